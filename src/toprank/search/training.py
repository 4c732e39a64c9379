"""The second stage is learned: from judgments, or from what users clicked, and kept in the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toprank.choosing.choice import Choice
from toprank.choosing.grid import select
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.folds import split
from toprank.data.trec import Qrels
from toprank.errors import DataError, warn_user
from toprank.search.collections import Topics
from toprank.showing.progress import step
from toprank.showing.tables import Part, Shown
from toprank.systems import get

if TYPE_CHECKING:
    from toprank.clicks.log import ClickLog
    from toprank.search.search_index import Index

__all__ = [
    "BLEND", "DEFAULT_SYSTEM", "SearchTraining", "choose", "judged_only", "recall_of", "rows_of", "train",
    "train_on_clicks",
]  # fmt: skip

BLEND = "blend"
"""A linear ranker and small trees, each fitted and chosen as ever, and the mean of their scores."""
_MEMBERS: tuple[tuple[str, dict[str, Any]], ...] = (("RankNet-linear", {}), ("YetiRank", {"num_leaves": 7}))
# On validation queries of four collections linear rankers and trees won in turn, and no tree of more leaves did better:
# a few hundred queries are all there usually are.
DEFAULT_SYSTEM = BLEND
_HELD_OUT = 0.2  # of the queries, for the choice of hyper-parameters
_FEWEST = 5  # judged queries to learn from


@dataclass(frozen=True, repr=False)
class SearchTraining(Shown):
    """What was learned; the model is in the index."""

    choice: Choice
    """The system, its hyper-parameters, and everything that was tried."""
    queries: int
    candidates: int
    pool_recall: float | None
    """The mean share of a query's relevant documents that are among its candidates: nothing else can be ranked. None
    for clicks, which do not say what is relevant."""
    facts: tuple[str, ...]
    """What to know about the judgments or the clicks."""

    @property
    def ranker(self) -> Any:
        """The fitted ranker."""
        return self.choice.ranker

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        recall = {"pool_recall": self.pool_recall, "facts": list(self.facts)}
        return {"queries": self.queries, "candidates": self.candidates, **recall, "choice": self.choice.to_dict()}

    def to_frame(self, kind: Any = "pandas") -> Any:
        """A row for each trial."""
        return self.choice.to_frame(kind)

    def _parts(self) -> Sequence[Part]:
        options = ", ".join(f"{name}={value}" for name, value in self.choice.options.items())
        if self.pool_recall is None:
            head = f"{self.choice.name} learned from {self.choice.judged_on} of {self.queries:,} queries with "
            return [f"{head}{self.candidates:,} candidates.", self.facts]
        return [
            f"{self.choice.name} learned from {self.queries:,} queries with {self.candidates:,} candidates: "
            f"{self.choice.metric} {self.choice.value:.4f} on {self.choice.judged_on}"
            f"{f' ({options})' if options else ''}. "
            f"The candidates hold {self.pool_recall:.1%} of what is relevant.",
            self.facts,
        ]


def train(
    index: Index,
    queries: Any = None,
    qrels: Any = None,
    system: Any = DEFAULT_SYSTEM,
    *,
    metric: str = "ndcg@10",
    pool: int | None = None,
    vectors: Mapping[str, npt.ArrayLike] | None = None,
    seed: int = 0,
    threads: int | None = None,
    quiet: bool = True,
    **options: Any,
) -> SearchTraining:
    """Learn the order of candidates from judgments, and keep the model in the index.

    A fifth of the queries is held out to choose hyper-parameters and when to stop.

    Args:
        index: the index.
        queries: a file or ``{id: words}``; None: those that came with the collection.
        qrels: judgments of them; None: those that came with the collection, of the part ``train`` if there is one.
        system: by name; `toprank systems` lists them. Or an unfitted ranker.
        metric: what hyper-parameters are chosen by.
        pool: candidates of a query; None: what the index says.
        vectors: of the queries, a row for each in the order of `queries`, by the name of the model.
        seed: of the hold-out.
        threads: number of threads.
        quiet: say nothing while it works.
        options: hyper-parameters to fix.
    """
    topics, judged, notes = index.queries_and_judgments(queries, qrels, "train")
    asked = topics.select(np.unique(judged.qids).tolist())
    judged = judged_only(judged, asked)
    own = None if vectors is None else {name: rows_of(topics, asked, array) for name, array in vectors.items()}
    with step(f"Finding the candidates of {len(asked):,} queries …", quiet):
        data = index.data(asked, judged, pool=pool, vectors=own)
    if data.n_queries < _FEWEST or not data.labels.any():
        raise DataError(
            f"{data.n_queries} judged queries have candidates, and {int((data.labels > 0).sum())} of these are "
            f"relevant; learning an order takes at least {_FEWEST} queries, and relevant candidates."
        )
    with step(f"Training {system} on {data.n_documents:,} candidates …", quiet):
        kept, held_out = split(data, (1 - _HELD_OUT, _HELD_OUT), seed=seed)
        choice = choose(system, kept, held_out, metric, threads, options)
    _keep(index, choice.ranker, asked)
    recall = float(np.mean(recall_of(judged, data)))
    return SearchTraining(choice, data.n_queries, data.n_documents, recall, notes)


def choose(
    system: Any, train: RankingData, valid: RankingData, metric: str, threads: int | None, options: Mapping[str, Any]
) -> Choice:
    """A ranker fitted on `train`, its hyper-parameters chosen on `valid`."""
    from toprank.metrics.evaluation import Judge
    from toprank.rankers.blend import BlendRanker
    from toprank.rankers.estimator import unfitted

    if isinstance(system, str) and system.strip().lower() == BLEND:
        if options:
            raise DataError("A blend takes no hyper-parameters; name one of its members alone, such as YetiRank.")
        members = [select(get(name), train, valid, metric=metric, threads=threads, **fixed) for name, fixed in _MEMBERS]
        blend = BlendRanker.of([member.ranker for member in members], valid)
        value = Judge(valid, metric)(blend.predict(valid))
        chosen = {f"{one.name} {name}": value for one in members for name, value in one.options.items()}
        return Choice(blend, BLEND, chosen, metric, "standard", value, members[0].judged_on, members[0].trials)
    if isinstance(system, str):
        return select(get(system), train, valid, metric=metric, threads=threads, **options)
    if options:
        raise DataError("Hyper-parameters are fixed for a system by name; give a ranker its own.")
    ranker = unfitted(system).fit(train, valid=valid)
    value = Judge(valid, metric)(ranker.predict(valid))
    name = type(ranker).__name__
    return Choice(ranker, name, {}, metric, "standard", value, f"{valid.n_queries:,} queries", [])


def judged_only(qrels: Qrels, topics: Topics) -> Qrels:
    """The judgments of queries that are asked."""
    kept = np.isin(qrels.qids, np.array(topics.ids))
    return Qrels(qrels.qids[kept], qrels.document_ids[kept], qrels.grades[kept])


def recall_of(qrels: Any, data: RankingData) -> FloatArray:
    """Of each judged query with something relevant, the share of it that is among the candidates."""
    relevant = qrels.grades > 0
    qids, wanted = np.unique(qrels.qids[relevant], return_counts=True)
    found = data.queries.sum((data.labels > 0).astype(np.float64))
    of = dict(zip(data.qids.tolist(), found.tolist(), strict=True))
    return np.array([of.get(qid, 0.0) for qid in qids.tolist()]) / wanted


def rows_of(topics: Topics, chosen: Topics, array: npt.ArrayLike) -> Any:
    """The rows of an array that belong to the chosen queries, of all of which it has one each."""
    rows, wanted = np.asarray(array), set(chosen.ids)
    if len(rows) != len(topics):
        raise DataError(f"There are {len(rows):,} vectors for {len(topics):,} queries; give a row for each.")
    return rows[[place for place, name in enumerate(topics.ids) if name in wanted]]


def _keep(index: Index, ranker: Any, topics: Topics) -> None:
    """Write the model into the index, with the queries that taught it."""
    ranker.training_["search"] = {
        "index": index.folder.meta["id"],
        "queries": sorted(topics.ids),
        "words": sorted(topics.texts),
    }
    index.keep_model(ranker)


def train_on_clicks(
    index: Index,
    log: ClickLog,
    queries: Any = None,
    system: Any = "ListNet",
    *,
    correction: str = "ips",
    propensities: Any = None,
    pool: int | None = None,
    **options: Any,
) -> SearchTraining:
    """Learn the order of candidates from what users clicked, corrected for where documents stood.

    Documents that were shown teach, and no others: of what never stood on a page the log knows nothing. The learned
    order ranks it by what its features have in common with what was shown.

    Args:
        index: the index.
        log: from `toprank.clicks.read`; its queries are words, or the ids of `queries`, its documents those of the
            index.
        queries: ``{id: words}`` or a file, where the log holds ids; None: the log's queries are words.
        system: by name, or an unfitted ranker.
        correction: see `toprank.clicks.train`.
        propensities: of positions; None: estimated from the log, where it tells them.
        pool: candidates of a query; None: what the index says.
        options: further options of `toprank.clicks.train`.
    """
    from toprank.clicks import propensities as estimated
    from toprank.clicks import train as train_clicks

    topics = Topics.of({str(qid): str(qid) for qid in log.qids}) if queries is None else Topics.of(queries)
    asked = topics.select(map(str, log.qids))
    if len(asked) == 0:
        raise DataError("No query of the log is among the queries; are the ids spelled alike?")
    data = index.data(asked, pool=pool)
    ranker = get(system).make() if isinstance(system, str) else system
    if propensities is None and correction != "none":
        propensities = estimated(log)
    trained = train_clicks(ranker, log, data, correction=correction, propensities=propensities, **options)
    _keep(index, trained.ranker, asked)
    clicked = log.rows(data) >= 0
    if clicked.mean() < 1:
        warn_user(f"{int((~clicked).sum()):,} of {len(clicked):,} pairs of the log are not among the candidates.")
    name = type(trained.ranker).__name__
    choice = Choice(trained.ranker, name, {}, "clicks", correction, float("nan"), f"{log.n_sessions:,} sessions", [])
    return SearchTraining(choice, data.n_queries, data.n_documents, None, (trained.summary,))
