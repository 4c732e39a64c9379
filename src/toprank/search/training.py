"""The second stage is learned: from judgments, or from what users clicked, and kept in the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.data.dataset import RankingData
from toprank.data.division import CrossFit, Division, cross_fit
from toprank.data.folds import divided_in_folds, part_numbers
from toprank.data.queries import places_within
from toprank.data.trec import Qrels
from toprank.display.progress import step
from toprank.display.record import Record
from toprank.display.tables import Part
from toprank.errors import DataError, count_of, warn_user
from toprank.model_selection.grid import choose
from toprank.model_selection.result import SelectionResult
from toprank.search.blending import BLEND, blended
from toprank.search.collections import Topics
from toprank.search.collections.collection import few
from toprank.search.vectors import rows_of_ids
from toprank.systems import get

if TYPE_CHECKING:
    from toprank.clicks.log import ClickLog
    from toprank.search.search_index import Index

DEFAULT_SYSTEM = BLEND
_HELD_OUT = 0.2  # of the queries, for the choice of hyper-parameters
_FEWEST = 5  # judged queries to learn from


@dataclass(frozen=True, repr=False)
class SearchTraining(Record):
    """The result of a training; the model is in the index.

    Attributes:
        choice: the system, its hyper-parameters, and everything that was tried.
        queries: number of queries.
        candidates: number of candidates of all queries.
        pool_recall: mean share of a query's relevant documents that are among its candidates, the only ones that are
            ranked; None for clicks, which do not say what is relevant.
        facts: what to know about the judgments or the clicks.
    """

    json_properties = ()

    choice: SelectionResult
    queries: int
    candidates: int
    pool_recall: float | None
    facts: tuple[str, ...]

    @property
    def ranker(self) -> Any:
        """The fitted ranker."""
        return self.choice.ranker

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        return self.choice._columns()

    def _parts(self) -> Sequence[Part]:
        options = ", ".join(f"{name}={value}" for name, value in self.choice.options.items())
        if self.pool_recall is None:
            head = f"{self.choice.name} learned from {self.choice.evaluated_on} of {self.queries:,} queries with "
            return [f"{head}{self.candidates:,} candidates.", self.facts]
        return [
            f"{self.choice.name} learned from {self.queries:,} queries with {self.candidates:,} candidates: "
            f"{self.choice.metric} {self.choice.value:.4f} on "
            f"{self.choice.evaluated_on}{f' ({options})' if options else ''}. The candidates hold "
            f"{self.pool_recall:.1%} of the relevant documents.",
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
    vectors: Mapping[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
    quiet: bool = True,
    **options: Any,
) -> SearchTraining:
    """Learn the order of candidates from judgments, and keep the model in the index.

    A fifth of the queries is held out to choose hyper-parameters and when to stop; for a blend each fifth in turn, as
    long as few queries are judged, and all of them teach in the end.

    Args:
        index: the index.
        queries: a file or ``{id: words}``; None: those that came with the collection.
        qrels: judgments of them; None: those that came with the collection, of the part ``train`` if there is one.
        system: by name; `toprank systems` lists them. Or an unfitted ranker.
        metric: what hyper-parameters are chosen by.
        pool: candidates of a query, now and in every later search; None: what the index says.
        vectors: of the queries, by the name of the model: an array with a row for each in the order of `queries`, or
            a file: ``.npy`` as such an array, ``.npz`` with ``ids`` and ``vectors``.
        seed: of what is held out, and of trees.
        threads: number of threads.
        quiet: say nothing while it works.
        options: hyper-parameters to fix.
    """
    judged = JudgedQueries.of(index, queries, qrels, "train", pool, vectors, quiet)
    data = judged.data
    if data.n_queries < _FEWEST or not data.labels.any():
        raise DataError(
            f"There are candidates of {count_of(data.n_queries, 'judged query')}, and {int((data.labels > 0).sum()):,} "
            f"of these are relevant; learning an order takes at least {_FEWEST} queries, and some relevant candidates. "
            "Judge more."
        )
    with step(f"Training {system} on {data.n_documents:,} candidates …", quiet):
        choice = OrderTraining(system, index.features.orders, metric, seed, threads, options).on(data)
    _keep(index, choice, judged.topics, pool, vectors)
    return SearchTraining(choice, data.n_queries, data.n_documents, judged.recall, judged.notes)


class JudgedQueries(NamedTuple):
    """Judged queries with their candidates.

    Attributes:
        notes: what to know about the judgments.
    """

    topics: Topics
    qrels: Qrels
    data: RankingData
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        index: Index,
        queries: Any,
        qrels: Any,
        part: str,
        pool: int | None,
        vectors: Mapping[str, Any] | None,
        quiet: bool,
    ) -> JudgedQueries:
        """Find the candidates of judged queries; `part` as in `Index.queries_and_judgments`, the rest as in `train`."""
        topics, judged, notes = index.queries_and_judgments(queries, qrels, part)
        judged_topics = topics.select(judged.qids.tolist())
        kept = np.isin(judged.qids, np.array(judged_topics.ids))
        judged = Qrels(judged.qids[kept], judged.document_ids[kept], judged.grades[kept])
        notes += _not_indexed(index, judged)
        own = {
            name: rows_of_ids("queries", rows, topics.ids, judged_topics.ids) for name, rows in (vectors or {}).items()
        }
        with step(f"Finding the candidates of {len(judged_topics):,} queries …", quiet):
            data = index.data(judged_topics, judged, pool=pool, vectors=own)
        return cls(judged_topics, judged, data, notes)

    @property
    def recall(self) -> float:
        """The mean share of a query's relevant documents that are among its candidates."""
        qids, n_relevant = np.unique(self.qrels.qids[self.qrels.grades > 0], return_counts=True)
        retrieved = self.data.queries.sum((self.data.labels > 0).astype(np.float64))
        n_retrieved = dict(zip(self.data.qids.tolist(), retrieved.tolist(), strict=True))
        return float(np.mean([n_retrieved.get(qid, 0.0) for qid in qids.tolist()] / n_relevant))


class OrderTraining(NamedTuple):
    """A system to train on candidates, and how its hyper-parameters are chosen.

    Attributes:
        system: name of a system, "blend", or an unfitted ranker.
        orders: features that order candidates without anything learned.
        metric: metric to choose by.
        seed: of held-out queries and of trees.
        threads: number of threads.
        options: hyper-parameters to fix.
    """

    system: Any
    orders: tuple[str, ...]
    metric: str
    seed: int = 0
    threads: int | None = None
    options: Mapping[str, Any] = {}

    @property
    def is_blend(self) -> bool:
        """Whether the system is the blend, which holds out queries by itself."""
        return isinstance(self.system, str) and self.system.strip().lower() == BLEND

    def on(self, data: RankingData) -> SelectionResult:
        """Train on data, of which a fifth is held out to choose by."""
        if self.is_blend:
            return self.fit(data)
        part = part_numbers(data, (1 - _HELD_OUT, _HELD_OUT), seed=self.seed)
        return self.fit(*Division.holdout(part == 1).on(data).rounds[0][:2])

    def cross_fit(self, data: RankingData, n_folds: int) -> CrossFit[SelectionResult]:
        """Train in each fold and rank its queries; each fold has one thread, for a few hundred queries are few."""
        division = divided_in_folds(data, n_folds, seed=self.seed, validation=not self.is_blend)
        fit = self._replace(threads=1).fit
        return cross_fit(data, division, fit, lambda choice, part: choice.ranker.predict(part), threads=self.threads)

    def fit(self, train: RankingData, valid: RankingData | None = None) -> SelectionResult:
        """Return a fitted ranker whose hyper-parameters were chosen on validation data."""
        if self.is_blend:
            if self.options:
                raise DataError("A blend takes no hyper-parameters; train a single system instead, such as YetiRank.")
            return blended(train, self.metric, self.orders, self.seed, self.threads)
        assert valid is not None
        system = get(self.system) if isinstance(self.system, str) else self.system
        return choose(system, train, valid, metric=self.metric, threads=self.threads, **self.options)


def _not_indexed(index: Index, qrels: Qrels) -> tuple[str, ...]:
    """Say how many relevant documents the index lacks; refuse judgments that it cannot use."""
    names = np.unique(qrels.document_ids[qrels.grades > 0]).tolist()
    unknown = [name for name, row in zip(names, index.documents.rows(names).tolist(), strict=True) if row < 0]
    if not names:
        low, high = float(qrels.grades.min()), float(qrels.grades.max())
        raise DataError(
            f"No judgment is above 0 (they go from {low:g} to {high:g}), so no document is relevant and no order is "
            "better than another; check the grades."
        )
    if not unknown:
        return ()
    if len(unknown) == len(names):
        raise DataError(
            f"None of the {len(names):,} documents that are judged relevant is in the index: their ids are "
            f"{few(unknown)}, those of the index {few(index.documents.ids[:4].tolist())}. Are the ids spelled alike?"
        )
    return (
        f"{len(unknown):,} of {len(names):,} documents that are judged relevant are not in the index "
        f"({few(unknown)}); they count as not found.",
    )


def _keep(
    index: Index, choice: SelectionResult, topics: Topics, pool: int | None, vectors: Mapping[str, Any] | None = None
) -> None:
    """Write the model into the index, with a note of what it was trained on."""
    ranker = choice.ranker
    ranker.training_["search"] = {
        "index": index.folder.meta["id"], "system": choice.name,
        "queries": sorted(topics.ids), "words": sorted(topics.texts),
        **({} if pool is None else {"pool": int(pool)}), **({"vectors": list(vectors)} if vectors else {}),
    }  # fmt: skip
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

    Only documents that were shown teach. A document that was never shown had no chance of a click: no correction makes
    up for that, and its place in the learned order is a guess from its features. So by default the pool reaches down to
    the last candidate that was shown, now and in every later search.

    Args:
        index: the index.
        log: from `toprank.clicks.read`; its queries are words, or the ids of `queries`, its documents those of the
            index.
        queries: ``{id: words}`` or a file, where the log holds ids; None: the log's queries are words.
        system: by name, or an unfitted ranker.
        correction: see `toprank.clicks.train`.
        propensities: of positions; None: estimated from the log, where it tells them.
        pool: candidates of a query, now and in every later search; None: down to the last that was shown.
        options: further options of `toprank.clicks.train`.
    """
    from toprank.clicks import propensities as estimated
    from toprank.clicks import train as train_clicks

    topics = Topics.of({str(qid): str(qid) for qid in log.qids}) if queries is None else Topics.of(queries)
    asked = topics.select(map(str, log.qids))
    if len(asked) == 0:
        raise DataError("No query of the log is among the queries; are the ids spelled alike?")
    depth, facts = _shown(index, log, asked, pool)
    data = index.data(asked, pool=depth)
    ranker = get(system).make() if isinstance(system, str) else system
    if propensities is None and correction != "none":
        propensities = estimated(log)
    trained = train_clicks(ranker, log, data, correction=correction, propensities=propensities, **options)
    name = system if isinstance(system, str) else type(system).__name__
    choice = SelectionResult(
        ranker=trained.ranker,
        name=name,
        options={},
        metric="clicks",
        convention=correction,
        value=float("nan"),
        evaluated_on=f"{log.n_sessions:,} sessions",
        trials=[],
    )
    _keep(index, choice, asked, depth)
    return SearchTraining(choice, data.n_queries, data.n_documents, None, (trained.summary, *facts))


def _shown(index: Index, log: ClickLog, asked: Topics, pool: int | None) -> tuple[int, tuple[str, ...]]:
    """Return how many candidates to rank, and what to know about those that the log never showed."""
    pooled = index.pool_of(asked, pool)
    sizes = np.diff(pooled.offsets)
    if not sizes.any():
        raise DataError("The first stage finds no document for any query of the log; is it a log of this index?")
    rank = places_within(sizes) + 1
    ids = index.documents.ids[pooled.rows]
    candidates = RankingData(rank[:, None], qid=np.repeat(np.array(asked.ids), sizes), document_ids=ids)
    place = log.rows(candidates)
    missing = int((place < 0).sum())
    if missing == len(place):
        raise DataError(
            f"None of the {len(place):,} pairs of query and document in the log is among the candidates of its query; "
            "is it a log of this index, with the ids of its documents?"
        )
    if missing:
        warn_user(f"{missing:,} of {len(place):,} pairs of the log are not among the candidates.")
    deepest = int(candidates.X[place[place >= 0], 0].max())
    if pool is None:
        return deepest, (
            f"The log shows candidates down to place {deepest:,} of the first stage: so only that many are ranked "
            "from now on, unless pool says otherwise. The log says nothing about documents that were never shown.",
        )
    if pool <= deepest:
        return pool, ()
    return pool, (
        f"{pool:,} candidates are ranked, and the log shows none below place {deepest:,} of the first stage: the log "
        "says nothing about those, and their order is a guess from their features.",
    )
