"""Systems compared on judged queries: the first stage, LSA, their fusion, and learned orders.

A learned order is judged on queries that it has not seen. The queries are divided into five folds; each fold is ranked
by what three others taught, with hyper-parameters chosen on the fourth. The baselines are as strong as they come: LSA
ranks the whole collection, not the pool alone, and the fusion joins the first stage's whole list with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from toprank.search.model_file import learned_from
from toprank.search.training import DEFAULT_SYSTEM, JudgedQueries, OrderTraining
from toprank.systems import names as system_names

if TYPE_CHECKING:
    from toprank.search.search_index import Index

BASELINES = ("bm25", "lsa", "rrf")
"""What a learned order has to beat."""
_FIRST_STAGE, _MODEL = "first-stage", "model"
_FOLDS, _MIN_FOLDS = 5, 3  # of three, one trains, one chooses and one judges


@dataclass(frozen=True, repr=False)
class SearchEvaluation(Record):
    """Systems on the same queries; `str` is a table.

    Attributes:
        runs: the run of each system.
        values: the metrics of each system, query by query.
        comparison: differences with tests; None for a single system.
        pool_recall: mean share of a query's relevant documents that are among its candidates: no others are ranked.
        pool: the most candidates of a query.
        validation: mean of each learned system over the folds, on the queries that chose hyper-parameters: choose by
            it.
        choices: the hyper-parameters of each fold.
        facts: what to know about the judgments.
    """

    json_hidden = frozenset({"runs", "values", "choices"})
    json_properties = ("means", "queries")
    json_names = {"means": "systems"}  # noqa: RUF012

    runs: Mapping[str, Run]
    values: Values
    comparison: Comparison | None
    pool_recall: float
    pool: int
    validation: Mapping[str, float]
    choices: Mapping[str, tuple[Mapping[str, Any], ...]]
    facts: tuple[str, ...]

    @property
    def queries(self) -> int:
        """How many queries were judged."""
        return self.values.n_units

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """System → metric → mean."""
        return self.values.means

    def _columns(self) -> dict[str, list[Any]]:
        rows = [(name, metric, value) for name, of in self.means.items() for metric, value in of.items()]
        return {column: [row[at] for row in rows] for at, column in enumerate(("system", "metric", "mean"))}

    def _parts(self) -> Sequence[Part]:
        head = (
            f"{count_of(self.queries, 'judged query')}; the candidates of each, {self.pool:,} at most, hold "
            f"{self.pool_recall:.1%} of the relevant documents. Learned systems are judged on queries that they have "
            "not seen."
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
    pool: int | None = None,
    vectors: Mapping[str, Any] | None = None,
    folds: int = _FOLDS,
    convention: str = "trec_eval",
    seed: int = 0,
    threads: int | None = None,
    quiet: bool = True,
    options: Mapping[str, Any] | None = None,
) -> SearchEvaluation:
    """Compare systems on judged queries.

    | system | what ranks |
    |---|---|
    | ``bm25`` | the engine of the first stage; where runs are the first stage, BM25 over their candidates |
    | ``lsa`` | the cosine in the directions of LSA, over all documents |
    | ``rrf`` | the fusion of both lists by reciprocal ranks; where runs are the first stage, of the runs |
    | the name of a run | that run |
    | ``model`` | the model of the index; queries that it was trained on are refused |
    | ``blend``, any of `toprank systems` | a learned order, each fold ranked by what the others taught |

    A learned order needs a judged query with candidates for each fold.

    Args:
        index: the index.
        queries: a file or ``{id: words}``; None: those that came with the collection.
        qrels: judgments of them; None: those that came with the collection, of the part ``test`` if there is one.
        systems: names, or unfitted rankers; None: the baselines and a blend.
        metrics: what to measure; hyper-parameters are chosen by the first.
        baseline: compare all with this one; None: the last system with each of the others.
        pool: candidates of a query; None: what the index says, or with ``model`` as many as it was trained to rank.
        vectors: of the queries, by the name of the model: an array with a row for each in the order of `queries`, or
            a file: ``.npy`` as such an array, ``.npz`` with ``ids`` and ``vectors``.
        folds: how many, at least 3.
        convention: the rules of the metrics. A judged query without candidates counts 0.
        seed: of the folds and of the statistics.
        threads: number of threads.
        quiet: say nothing while it works.
        options: hyper-parameters to fix, of all learned systems.
    """
    check_whole("folds", folds, least=_MIN_FOLDS)
    wanted, notes = _checked(index, systems), tuple[str, ...]()
    if systems is None and index.statistics.basis.shape[1] == 0:
        wanted = {name: system for name, system in wanted.items() if name != "lsa" and (name != "rrf" or index.runs)}
        notes = ("LSA and its fusion are left out: the documents share too few words for LSA.",)
    [metric, *_] = parse_all(metrics)
    depth = pool if pool is not None else index.depth if _MODEL in wanted else index.pool
    judged = JudgedQueries.of(index, queries, qrels, "test", depth, vectors, quiet)
    data = judged.data
    runs: dict[str, Run] = {}
    validation: dict[str, float] = {}
    choices: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for name, system in wanted.items():
        with step(f"Ranking with {name} …", quiet):
            if system is None:
                runs[name] = _baseline(index, name, judged.topics, depth, data)
                continue
            training = OrderTraining(system, index.features.orders, metric, seed, threads, options or {})
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
    """Return the metrics of the runs by query, and the comparison of several: by default all with the last one."""
    if len(runs) == 1:
        evaluations = {name: evaluate_run(qrels, run, metrics, **rules) for name, run in runs.items()}
        return Values.from_systems(evaluations), None
    against = baseline or (None if len(runs) == 2 else list(runs)[-1])
    comparison = compare(runs, qrels, metrics, baseline=against, seed=seed, **rules)
    return comparison.values, comparison


def _checked(index: Index, systems: Sequence[Any] | None) -> dict[str, Any]:
    """Return the systems by name; the value is None if the system is not learned here."""
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
                raise DataError(f"Two of the systems are called {called}; evaluate them one at a time.")
            checked[called] = system
            continue
        plain, key = system.strip(), system.strip().lower()
        ready = known.get(plain, known.get(key))
        name = ready or learned.get(key.replace("_", "-"))
        if name is None:
            raise UnknownNameError("system", system, [*dict.fromkeys(known.values()), *learned.values()])
        if name in checked:
            raise DataError(f"The system {name} is named twice.")
        checked[name] = None if ready else name
    if not checked:
        raise DataError("Name at least one system.")
    return checked


def _baseline(index: Index, name: str, topics: Topics, depth: int, data: RankingData) -> Run:
    """Return the run of a system that learns nothing here."""
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
    """Ranks in a run; what it does not have comes last, by its place in the pool."""
    ranks = _column(data, f"{name} rank")
    return np.where(np.isnan(ranks), 1e6 + _column(data, "first stage rank"), ranks)


def _run(data: RankingData, scores: FloatArray, tag: str) -> Run:
    """A run in which equal scores keep the order of the first stage, whatever the documents are called.

    trec_eval looks at scores as float32 and breaks ties by id, so ranks are what it gets.
    """
    query = data.queries.document_query
    order = np.lexsort((np.arange(len(scores)), -scores, query))
    sizes = data.queries.sizes
    assert data.document_ids is not None
    scores_by_rank = (np.repeat(sizes, sizes) - data.queries.places).astype(np.float64)
    return Run(data.qid[order], data.document_ids[order], scores_by_rank, tag)


def _lsa(index: Index, topics: Topics, depth: int) -> Run:
    """The best documents of the whole index in the directions of LSA."""
    vectors = index.encoded.vectors
    asked = index.encoded.query_vectors(index.encoded.queries(list(topics.texts)))
    rows, qids, scores = [], [], []
    for qid, vector in zip(topics.ids, asked, strict=True):
        if not vector.any():  # no word of the query is known, so any order of the documents would be made up
            continue
        cosines = vectors @ vector
        best = np.argsort(-cosines, kind="stable")[:depth]
        rows.append(best)
        qids += [qid] * len(best)
        scores.append(np.arange(len(best), 0, -1.0))
    if not rows:
        raise DataError(
            "LSA finds nothing for any query: the documents share too few words for LSA, or none has a word of the "
            "queries. Leave out 'lsa' and 'rrf'."
        )
    ids = index.documents.ids[np.concatenate(rows)]
    return Run(np.array(qids), ids, np.concatenate(scores), "lsa")


def _model_scores(index: Index, topics: Topics, data: RankingData) -> FloatArray:
    model = index.model
    if model is None:
        raise DataError("The index has no model yet: train one, or name a system, which is then trained fold by fold.")
    record = learned_from(model)
    # A log of clicks knows queries by their words alone, and one query may have two ids.
    ids, words = set(record.names("queries")), set(record.names("words"))
    again = [qid for qid, text in zip(topics.ids, topics.texts, strict=True) if qid in ids or text in words]
    if again:
        raise DataError(
            f"The model was trained on {len(again):,} of these {len(topics):,} queries ({again[0]} …), so its results "
            "on them say nothing about other queries. Evaluate it on other queries, or name a system, which is then "
            "trained fold by fold."
        )
    return np.asarray(model.predict(data), dtype=np.float64)


def _cross_fitted(training: OrderTraining, data: RankingData, n_folds: int) -> CrossFit[SelectionResult]:
    """Return rankers, each of which has not seen the queries of a fold, and their scores of that fold."""
    if data.n_queries < n_folds:
        fewer = "choose {folds}, or " if data.n_queries >= _MIN_FOLDS else ""
        raise DataError(
            f"There are candidates of {count_of(data.n_queries, 'judged query')}, but evaluating a learned order in "
            f"{n_folds} folds takes at least {n_folds}: judge more queries,",
            remedy=Remedy(
                f"{fewer}name {{systems}}, which need no training.", folds=data.n_queries, systems=list(BASELINES[:2])
            ),
        )
    return training.cross_fit(data, n_folds)
