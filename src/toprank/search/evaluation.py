"""Comparison of retrieval systems on judged queries: first stage, LSA, rank fusion, and reranking models.

Reranking models are evaluated by five-fold cross-validation: three folds train, one chooses hyperparameters, and one is
scored. The baselines are not restricted to the candidates: LSA ranks the whole collection, and the fusion combines the
full first-stage list with the LSA list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from toprank.compute import FloatArray
from toprank.data.arguments import check_whole
from toprank.data.dataset import RankingData
from toprank.data.division import CrossFit
from toprank.data.trec import Qrels, Run
from toprank.display.progress import step
from toprank.display.record import Record
from toprank.display.tables import Part, Table
from toprank.errors import DataError, Remedy, UnknownNameError, count_of
from toprank.evaluation import compare
from toprank.evaluation.comparison import Comparison
from toprank.evaluation.runs import evaluate_run
from toprank.evaluation.values import Values
from toprank.fusion import fuse
from toprank.metrics.parsing import parse_all
from toprank.model_selection.result import SelectionResult
from toprank.search.blending import BLEND
from toprank.search.collections import Topics
from toprank.search.model_file import training_record
from toprank.search.training import DEFAULT_SYSTEM, JudgedQueries, RerankerTraining
from toprank.systems import names as system_names

if TYPE_CHECKING:
    from toprank.search.search_index import Index

BASELINES = ("bm25", "lsa", "rrf")
"""Baselines for reranking models."""
_FIRST_STAGE, _MODEL = "first-stage", "model"
_FOLDS, _MIN_FOLDS = 5, 3  # at least one fold each for training, validation and evaluation


@dataclass(frozen=True, repr=False)
class SearchEvaluation(Record):
    """Results of several systems on the same queries.

    Attributes:
        runs: run of each system.
        values: per-query metrics of each system.
        comparison: differences between systems with significance tests; None for a single system.
        candidate_recall: mean share of a query's relevant documents that are among its candidates. Other documents are
            not ranked.
        n_candidates: maximum number of candidates per query.
        validation: mean validation metric of each learned system over the folds, the number to select a system by.
        choices: hyperparameters of each learned system by fold.
        facts: notes on the judgments.
    """

    json_hidden = frozenset({"runs", "values", "choices"})
    json_properties = ("means", "queries")
    json_names: ClassVar[Mapping[str, str]] = {"means": "systems", "candidate_recall": "pool_recall"}

    runs: Mapping[str, Run]
    values: Values
    comparison: Comparison | None
    candidate_recall: float
    n_candidates: int
    validation: Mapping[str, float]
    choices: Mapping[str, tuple[Mapping[str, Any], ...]]
    facts: tuple[str, ...]

    @property
    def queries(self) -> int:
        """Number of judged queries."""
        return self.values.n_units

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """Mean of each metric by system: ``{system: {metric: mean}}``."""
        return self.values.means

    def _columns(self) -> dict[str, list[Any]]:
        rows = [(name, metric, value) for name, of in self.means.items() for metric, value in of.items()]
        return {column: [row[at] for row in rows] for at, column in enumerate(("system", "metric", "mean"))}

    def _parts(self) -> Sequence[Part]:
        head = (
            f"{count_of(self.queries, 'judged query')}. The candidates, at most {self.n_candidates:,} per query, "
            f"contain {self.candidate_recall:.1%} of the relevant documents. Learned systems are evaluated out of fold."
        )
        if self.comparison is not None:
            compared = self.comparison
            return [
                head, compared.means_table(), compared.differences_table(),
                tuple(map(compared.summary_of, compared.differences)), compared.methods, self.facts,
            ]  # fmt: skip
        header = ("system", *next(iter(self.means.values())))
        rows = [(name, *(f"{value:.4f}" for value in of.values())) for name, of in self.means.items()]
        return [head, Table(header, rows, names=1), self.facts]


def evaluate(
    index: Index,
    queries: Any = None,
    qrels: Any = None,
    systems: Sequence[Any] | None = None,
    *,
    metrics: Any = ("ndcg@10", "map"),
    baseline: str | None = None,
    n_candidates: int | None = None,
    vectors: Mapping[str, Any] | None = None,
    folds: int = _FOLDS,
    convention: str = "trec_eval",
    seed: int = 0,
    threads: int | None = None,
    quiet: bool = True,
    options: Mapping[str, Any] | None = None,
) -> SearchEvaluation:
    """Compare systems on judged queries.

    | system | ranking |
    |---|---|
    | ``bm25`` | the first-stage engine; if runs are the first stage, BM25 over their candidates |
    | ``lsa`` | cosine similarity of LSA vectors, over all documents |
    | ``rrf`` | reciprocal rank fusion of both lists; if runs are the first stage, of the runs |
    | the name of a run | that run |
    | ``model`` | the model of the index, on queries that it was not trained on |
    | ``blend``, any of `toprank systems` | a reranking model, evaluated by cross-validation |

    Cross-validation needs at least one judged query with candidates per fold.

    Args:
        index: search index.
        queries: file or ``{id: text}``. Default: the queries of the collection.
        qrels: judgments of the queries. Default: the judgments of the collection, its ``test`` split if there is one.
        systems: names of systems, or unfitted rankers. Default: the baselines and a blend.
        metrics: metrics to compute. The first also chooses hyperparameters.
        baseline: system to compare all others with. Default: the last system is compared with each of the others.
        n_candidates: candidates per query. Default: the number that the model was trained with if ``model`` is among
            the systems, else the index's own.
        vectors: query vectors by name of the embedding model: an array with one row per query in the order of
            `queries`, or a file (``.npy`` with such an array, or ``.npz`` with ``ids`` and ``vectors``).
        folds: number of folds, at least 3. Default: 5.
        convention: evaluation convention. Judged queries without candidates count 0. Default: ``"trec_eval"``.
        seed: random seed of the folds and of the statistics. Default: 0.
        threads: number of threads. Default: all cores.
        quiet: whether to suppress progress messages. Default: True.
        options: hyperparameters to fix in all learned systems.
    """
    check_whole("folds", folds, least=_MIN_FOLDS)
    wanted, notes = _checked(index, systems), tuple[str, ...]()
    if systems is None and index.statistics.basis.shape[1] == 0:
        wanted = {name: system for name, system in wanted.items() if name != "lsa" and (name != "rrf" or index.runs)}
        notes = ("Systems lsa and rrf are skipped: the documents share too few words for LSA.",)
    [metric, *_] = parse_all(metrics)
    depth = n_candidates if n_candidates is not None else index.depth if _MODEL in wanted else index.n_candidates
    judged = JudgedQueries.retrieve(index, queries, qrels, "test", depth, vectors, quiet)
    data = judged.data
    runs: dict[str, Run] = {}
    validation: dict[str, float] = {}
    choices: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for name, system in wanted.items():
        with step(f"Ranking with {name} …", quiet):
            if system is None:
                runs[name] = _baseline(index, name, judged.topics, depth, data)
                continue
            training = RerankerTraining(system, index.features.orders, metric, seed, threads, options or {})
            fitted = _cross_fitted(training, data, folds)
            runs[name] = _run(data, fitted.out_of_fold(data), name)
            validation[name] = float(np.mean([choice.value for choice in fitted.models]))
            choices[name] = tuple(dict(choice.options) for choice in fitted.models)
    rules: dict[str, Any] = {"convention": convention, "complete": True, "threads": threads}
    with step("Comparing …", quiet):
        values, comparison = _compared(runs, judged.qrels, metrics, baseline, seed, rules)
    facts = judged.notes + notes
    return SearchEvaluation(
        runs, values, comparison, judged.recall, depth, validation=validation, choices=choices, facts=facts
    )


def _compared(
    runs: Mapping[str, Run], qrels: Qrels, metrics: Any, baseline: str | None, seed: int, rules: Mapping[str, Any]
) -> tuple[Values, Comparison | None]:
    """Return per-query metrics of the runs, and their comparison, by default of all with the last one."""
    if len(runs) == 1:
        evaluations = {name: evaluate_run(qrels, run, metrics, **rules) for name, run in runs.items()}
        return Values.from_systems(evaluations), None
    against = baseline or (None if len(runs) == 2 else list(runs)[-1])
    comparison = compare(runs, qrels, metrics, baseline=against, seed=seed, **rules)
    return comparison.values, comparison


def _checked(index: Index, systems: Sequence[Any] | None) -> dict[str, Any]:
    """Return the systems by name; the value is None if the system needs no training."""
    runs = index.runs.names if index.runs is not None else ()
    if systems is None:
        systems = [*dict.fromkeys((*(runs or ("bm25", "lsa")), "rrf", DEFAULT_SYSTEM))]
    known = {name.lower(): name for name in (*BASELINES, _FIRST_STAGE, _MODEL, *runs)} | {name: name for name in runs}
    learned = {name.lower(): name for name in (BLEND, *system_names())}
    checked: dict[str, Any] = {}
    for system in [systems] if isinstance(systems, str) else systems:
        if not isinstance(system, str):
            called = type(system).__name__
            if called in checked:
                raise DataError(f"Two systems are named {called}. Evaluate them in separate calls.")
            checked[called] = system
            continue
        plain, key = system.strip(), system.strip().lower()
        ready = known.get(plain, known.get(key))
        name = ready or learned.get(key.replace("_", "-"))
        if name is None:
            raise UnknownNameError("system", system, [*dict.fromkeys(known.values()), *learned.values()])
        if name in checked:
            raise DataError(f"System {name} is listed twice. List each system once.")
        checked[name] = None if ready else name
    if not checked:
        raise DataError("systems is empty. Name at least one system.")
    return checked


def _baseline(index: Index, name: str, topics: Topics, depth: int, data: RankingData) -> Run:
    """Return the run of a system that needs no training."""
    if index.runs is not None and name in index.runs.names:
        return _run(data, -_ranks_in_run(data, name), name)
    if name == _MODEL:
        return _run(data, _model_scores(index, topics, data), name)
    if name == "lsa":
        return _lsa(index, topics, depth)
    if name == "bm25" and index.runs is not None:
        return _run(data, _column(data, "bm25"), name)
    first = _run(data, -_column(data, "first stage rank"), name)
    if name == "rrf" and index.runs is None:
        return fuse({"bm25": first, "lsa": _lsa(index, topics, depth)}, "rrf", depth=depth)
    return first


def _column(data: RankingData, name: str) -> FloatArray:
    assert data.feature_names is not None
    column: FloatArray = np.asarray(data.X[:, data.feature_names.index(name)], dtype=np.float64)
    return column


def _ranks_in_run(data: RankingData, name: str) -> FloatArray:
    """Return ranks in a run. Documents missing from the run come last, in first-stage order."""
    ranks = _column(data, f"{name} rank")
    return np.where(np.isnan(ranks), 1e6 + _column(data, "first stage rank"), ranks)


def _run(data: RankingData, scores: FloatArray, tag: str) -> Run:
    """Return a run that breaks ties by first-stage rank.

    Its scores are descending ranks, because trec_eval rounds scores to float32 and breaks ties by document id.
    """
    query = data.queries.document_query
    order = np.lexsort((np.arange(len(scores)), -scores, query))
    sizes = data.queries.sizes
    assert data.document_ids is not None
    scores_by_rank = (np.repeat(sizes, sizes) - data.queries.positions_in_query).astype(np.float64)
    return Run(data.qid[order], data.document_ids[order], scores_by_rank, tag)


def _lsa(index: Index, topics: Topics, depth: int) -> Run:
    """Return the run of LSA over the whole index."""
    vectors = index.encoded.vectors
    asked = index.encoded.query_vectors(index.encoded.queries(list(topics.texts)))
    rows, qids, scores = [], [], []
    for qid, vector in zip(topics.ids, asked, strict=True):
        if not vector.any():  # no query word is known, so any ranking would be arbitrary
            continue
        cosines = vectors @ vector
        best = np.argsort(-cosines, kind="stable")[:depth]
        rows.append(best)
        qids += [qid] * len(best)
        scores.append(np.arange(len(best), 0, -1.0))
    if not rows:
        raise DataError(
            "LSA found no document for any query, because the documents share too few words or contain no query word. "
            "Leave out 'lsa' and 'rrf'."
        )
    ids = index.documents.ids[np.concatenate(rows)]
    return Run(np.array(qids), ids, np.concatenate(scores), "lsa")


def _model_scores(index: Index, topics: Topics, data: RankingData) -> FloatArray:
    model = index.model
    if model is None:
        raise DataError("The index has no model. Train one, or name a system, which is then cross-validated.")
    record = training_record(model)
    # Click logs identify queries by their text, and one text may have several ids.
    ids, words = set(record.names("queries")), set(record.names("words"))
    again = [qid for qid, text in zip(topics.ids, topics.texts, strict=True) if qid in ids or text in words]
    if again:
        raise DataError(
            f"The model was trained on {len(again):,} of these {len(topics):,} queries ({again[0]} …), so its results "
            "would be biased. Evaluate it on other queries, or name a system, which is then cross-validated."
        )
    return np.asarray(model.predict(data), dtype=np.float64)


def _cross_fitted(training: RerankerTraining, data: RankingData, n_folds: int) -> CrossFit[SelectionResult]:
    """Return the cross-fitted rankers and their out-of-fold scores."""
    if data.n_queries < n_folds:
        fewer = "choose {folds}, or " if data.n_queries >= _MIN_FOLDS else ""
        raise DataError(
            f"Only {count_of(data.n_queries, 'judged query')} have candidates, but cross-validation with {n_folds} "
            f"folds needs at least {n_folds}. Judge more queries,",
            remedy=Remedy(
                f"{fewer}name {{systems}}, which need no training.", folds=data.n_queries, systems=list(BASELINES[:2])
            ),
        )
    return training.cross_fit(data, n_folds)
