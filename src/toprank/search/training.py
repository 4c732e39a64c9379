"""Training of the reranking model, on judgments or on click logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from toprank.data.dataset import RankingData
from toprank.data.division import CrossFit, Division, cross_fit
from toprank.data.folds import divided_in_folds, part_numbers
from toprank.data.queries import positions_within
from toprank.data.trec import Qrels
from toprank.display.progress import step
from toprank.display.record import Record
from toprank.display.tables import Part
from toprank.errors import DataError, count_of, warn_user
from toprank.model_selection.grid import choose
from toprank.model_selection.result import SelectionResult
from toprank.search.blending import BLEND, fit_blend
from toprank.search.collections import Topics
from toprank.search.collections.collection import preview
from toprank.search.vectors import rows_of_ids
from toprank.systems import get

if TYPE_CHECKING:
    from toprank.clicks.log import ClickLog
    from toprank.search.search_index import Index

DEFAULT_SYSTEM = BLEND
_VALIDATION_SHARE = 0.2  # share of queries held out to choose hyperparameters
_MIN_QUERIES = 5  # judged queries needed for training


@dataclass(frozen=True, repr=False)
class SearchTraining(Record):
    """Result of a training. The model itself is stored in the index.

    Attributes:
        choice: the trained system, its hyperparameters and all trials.
        queries: number of queries.
        candidates: total number of candidates.
        candidate_recall: mean share of a query's relevant documents that are among its candidates. Other documents are
            not ranked. None for clicks, since a log does not state which documents are relevant.
        facts: notes on the judgments or the clicks.
    """

    json_properties = ()
    json_names: ClassVar[Mapping[str, str]] = {"candidate_recall": "pool_recall"}

    choice: SelectionResult
    queries: int
    candidates: int
    candidate_recall: float | None
    facts: tuple[str, ...]

    @property
    def ranker(self) -> Any:
        """The fitted ranker."""
        return self.choice.ranker

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        return self.choice._columns()

    def _parts(self) -> Sequence[Part]:
        options = ", ".join(f"{name}={value}" for name, value in self.choice.options.items())
        if self.candidate_recall is None:
            head = f"{self.choice.name} was trained on {self.choice.evaluated_on} of {self.queries:,} queries with "
            return [f"{head}{self.candidates:,} candidates.", self.facts]
        return [
            f"{self.choice.name} was trained on {self.queries:,} queries with {self.candidates:,} candidates: "
            f"{self.choice.metric} {self.choice.value:.4f} on "
            f"{self.choice.evaluated_on}{f' ({options})' if options else ''}. The candidates contain "
            f"{self.candidate_recall:.1%} of the relevant documents.",
            self.facts,
        ]


def train(
    index: Index,
    queries: Any = None,
    qrels: Any = None,
    system: Any = DEFAULT_SYSTEM,
    *,
    metric: str = "ndcg@10",
    n_candidates: int | None = None,
    vectors: Mapping[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
    quiet: bool = True,
    **options: Any,
) -> SearchTraining:
    """Train a reranking model on judgments and store it in the index.

    A fifth of the queries is held out to choose hyperparameters and the number of training rounds. A blend uses
    cross-validation instead and is finally fitted on all queries.

    Args:
        index: search index.
        queries: file or ``{id: text}``. Default: the queries of the collection.
        qrels: judgments of the queries. Default: the judgments of the collection, its ``train`` split if there is one.
        system: name of a system (listed by `toprank systems`), or an unfitted ranker. Default: ``"blend"``.
        metric: metric to choose hyperparameters by. Default: NDCG@10.
        n_candidates: number of candidates per query, for training and for every later search. Default: the index's own
            number.
        vectors: query vectors by name of the embedding model: an array with one row per query in the order of
            `queries`, or a file (``.npy`` with such an array, or ``.npz`` with ``ids`` and ``vectors``).
        seed: random seed of held-out queries and of trees. Default: 0.
        threads: number of threads. Default: all cores.
        quiet: whether to suppress progress messages. Default: True.
        options: hyperparameters to fix.
    """
    judged = JudgedQueries.retrieve(index, queries, qrels, "train", n_candidates, vectors, quiet)
    data = judged.data
    if data.n_queries < _MIN_QUERIES or not data.labels.any():
        raise DataError(
            f"Only {count_of(data.n_queries, 'judged query')} with {int((data.labels > 0).sum()):,} relevant "
            f"candidates can be used for training. It takes at least {_MIN_QUERIES} queries and one relevant "
            "candidate; judge more."
        )
    with step(f"Training {system} on {data.n_documents:,} candidates …", quiet):
        choice = RerankerTraining(system, index.features.orders, metric, seed, threads, options).on(data)
    _store_model(index, choice, judged.topics, n_candidates, vectors)
    return SearchTraining(choice, data.n_queries, data.n_documents, judged.recall, judged.notes)


class JudgedQueries(NamedTuple):
    """Judged queries with their candidates.

    Attributes:
        topics: the judged queries.
        qrels: their judgments.
        data: their candidates as ranking data.
        notes: notes on the judgments.
    """

    topics: Topics
    qrels: Qrels
    data: RankingData
    notes: tuple[str, ...]

    @classmethod
    def retrieve(
        cls,
        index: Index,
        queries: Any,
        qrels: Any,
        part: str,
        n_candidates: int | None,
        vectors: Mapping[str, Any] | None,
        quiet: bool,
    ) -> JudgedQueries:
        """Retrieve the candidates of judged queries; arguments as in `Index.queries_and_judgments` and `train`."""
        topics, judged, notes = index.queries_and_judgments(queries, qrels, part)
        judged_topics = topics.select(judged.qids.tolist())
        kept = np.isin(judged.qids, np.array(judged_topics.ids))
        judged = Qrels(judged.qids[kept], judged.document_ids[kept], judged.grades[kept])
        notes += _missing_documents_note(index, judged)
        own = {
            name: rows_of_ids("queries", rows, topics.ids, judged_topics.ids) for name, rows in (vectors or {}).items()
        }
        with step(f"Finding the candidates of {len(judged_topics):,} queries …", quiet):
            data = index.data(judged_topics, judged, n_candidates=n_candidates, vectors=own)
        return cls(judged_topics, judged, data, notes)

    @property
    def recall(self) -> float:
        """Mean share of a query's relevant documents that are among its candidates."""
        qids, n_relevant = np.unique(self.qrels.qids[self.qrels.grades > 0], return_counts=True)
        retrieved = self.data.queries.sum((self.data.labels > 0).astype(np.float64))
        n_retrieved = dict(zip(self.data.qids.tolist(), retrieved.tolist(), strict=True))
        return float(np.mean([n_retrieved.get(qid, 0.0) for qid in qids.tolist()] / n_relevant))


class RerankerTraining(NamedTuple):
    """A system to train on candidates, and the settings of its hyperparameter search.

    Attributes:
        system: name of a system, ``"blend"``, or an unfitted ranker.
        orders: features that rank candidates without training.
        metric: metric to choose hyperparameters by.
        seed: random seed of held-out queries and of trees.
        threads: number of threads.
        options: hyperparameters to fix.
    """

    system: Any
    orders: tuple[str, ...]
    metric: str
    seed: int = 0
    threads: int | None = None
    options: Mapping[str, Any] = {}

    @property
    def is_blend(self) -> bool:
        """True for the blend, which has its own cross-validation."""
        return isinstance(self.system, str) and self.system.strip().lower() == BLEND

    def on(self, data: RankingData) -> SelectionResult:
        """Train the system; a fifth of the queries is held out for validation."""
        if self.is_blend:
            return self.fit(data)
        part = part_numbers(data, (1 - _VALIDATION_SHARE, _VALIDATION_SHARE), seed=self.seed)
        return self.fit(*Division.holdout(part == 1).on(data).rounds[0][:2])

    def cross_fit(self, data: RankingData, n_folds: int) -> CrossFit[SelectionResult]:
        """Train on all but one fold and score that fold, for each fold; folds run in parallel, one thread each."""
        division = divided_in_folds(data, n_folds, seed=self.seed, validation=not self.is_blend)
        fit = self._replace(threads=1).fit
        return cross_fit(data, division, fit, lambda choice, part: choice.ranker.predict(part), threads=self.threads)

    def fit(self, train: RankingData, valid: RankingData | None = None) -> SelectionResult:
        """Return a fitted ranker with hyperparameters chosen on the validation data."""
        if self.is_blend:
            if self.options:
                raise DataError("A blend takes no hyperparameters. Train a single system instead, such as YetiRank.")
            return fit_blend(train, self.metric, self.orders, self.seed, self.threads)
        assert valid is not None
        system = get(self.system) if isinstance(self.system, str) else self.system
        return choose(system, train, valid, metric=self.metric, threads=self.threads, **self.options)


def _missing_documents_note(index: Index, qrels: Qrels) -> tuple[str, ...]:
    """Return a note on relevant documents missing from the index; raise an error if no judgment is usable."""
    names = np.unique(qrels.document_ids[qrels.grades > 0]).tolist()
    unknown = [name for name, row in zip(names, index.documents.rows(names).tolist(), strict=True) if row < 0]
    if not names:
        low, high = float(qrels.grades.min()), float(qrels.grades.max())
        raise DataError(
            f"All judgments are between {low:g} and {high:g}, so no document is relevant. Grades of relevant documents "
            "must be above 0; check the grades."
        )
    if not unknown:
        return ()
    if len(unknown) == len(names):
        raise DataError(
            f"None of the {len(names):,} relevant documents is in the index. Judgments contain the ids "
            f"{preview(unknown)}, the index contains {preview(index.documents.ids[:4].tolist())}. Check that both use "
            "the same ids."
        )
    return (
        f"{len(unknown):,} of {len(names):,} relevant documents are not in the index ({preview(unknown)}). They count "
        "as not retrieved.",
    )


def _store_model(
    index: Index,
    choice: SelectionResult,
    topics: Topics,
    n_candidates: int | None,
    vectors: Mapping[str, Any] | None = None,
) -> None:
    """Store the model in the index, with a record of its training data."""
    ranker = choice.ranker
    ranker.training_["search"] = {
        "index": index.folder.meta["id"], "system": choice.name,
        "queries": sorted(topics.ids), "words": sorted(topics.texts),
        **({} if n_candidates is None else {"pool": int(n_candidates)}),
        **({"vectors": list(vectors)} if vectors else {}),
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
    n_candidates: int | None = None,
    **options: Any,
) -> SearchTraining:
    """Train a reranking model on a click log, corrected for position bias.

    Only documents that were shown are training data. No correction makes up for documents that never had a chance of a
    click: their order is extrapolated from their features. By default, therefore, the candidates reach down to the
    last one that the log shows, for training and for every later search.

    Args:
        index: search index.
        log: click log from `toprank.clicks.read`. Its queries are texts, or ids of `queries`; its documents are ids of
            the index.
        queries: ``{id: text}`` or a file, if the log contains query ids. Default: the log contains query texts.
        system: name of a system, or an unfitted ranker. Default: ``"ListNet"``.
        correction: bias correction, see `toprank.clicks.train`. Default: ``"ips"``.
        propensities: propensities of positions. Default: estimated from the log.
        n_candidates: number of candidates per query, for training and for every later search. Default: down to the last
            candidate that the log shows.
        options: further options of `toprank.clicks.train`.
    """
    from toprank.clicks import propensities as estimated
    from toprank.clicks import train as train_clicks

    topics = (
        Topics.from_source({str(qid): str(qid) for qid in log.qids}) if queries is None else Topics.from_source(queries)
    )
    asked = topics.select(map(str, log.qids))
    if len(asked) == 0:
        raise DataError("No query of the log is among the given queries. Check that both use the same ids.")
    depth, facts = _candidate_depth(index, log, asked, n_candidates)
    data = index.data(asked, n_candidates=depth)
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
    _store_model(index, choice, asked, depth)
    return SearchTraining(choice, data.n_queries, data.n_documents, None, (trained.summary, *facts))


def _candidate_depth(
    index: Index, log: ClickLog, asked: Topics, n_candidates: int | None
) -> tuple[int, tuple[str, ...]]:
    """Return how many candidates to rerank, and a note on candidates that the log never shows."""
    lists = index.candidate_lists(asked, n_candidates)
    sizes = np.diff(lists.offsets)
    if not sizes.any():
        raise DataError(
            "The first stage found no document for any query of the log. Check that the log belongs to this index."
        )
    rank = positions_within(sizes) + 1
    ids = index.documents.ids[lists.rows]
    candidates = RankingData(rank[:, None], qid=np.repeat(np.array(asked.ids), sizes), document_ids=ids)
    place = log.rows(candidates)
    missing = int((place < 0).sum())
    if missing == len(place):
        raise DataError(
            f"None of the {len(place):,} query-document pairs of the log is among the candidates of its query. Check "
            "that the log belongs to this index and uses its document ids."
        )
    if missing:
        warn_user(
            f"{missing:,} of {len(place):,} query-document pairs of the log are not among the candidates; they are "
            "ignored."
        )
    deepest = int(candidates.X[place[place >= 0], 0].max())
    if n_candidates is None:
        return deepest, (
            f"The log shows candidates down to rank {deepest:,} of the first stage, so only that many are reranked "
            "from now on. Pass n_candidates to rerank more; the log has no information about documents never shown.",
        )
    if n_candidates <= deepest:
        return n_candidates, ()
    return n_candidates, (
        f"{n_candidates:,} candidates are reranked, but the log shows none below rank {deepest:,} of the first stage. "
        "The order of those documents is extrapolated from their features.",
    )
