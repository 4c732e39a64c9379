"""Pairwise comparison of systems: evaluation on the same queries, and a test for each difference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.arguments import check_whole
from toprank.data.bytesource import PathLike
from toprank.data.dataset import RankingData
from toprank.data.row_order import Order
from toprank.data.slices import MIN_QUERIES, SliceBy, Slices
from toprank.data.trec.tables import Qrels, Run
from toprank.errors import DataError, UnknownNameError
from toprank.evaluation.compared_runs import JudgedRuns, are_runs, judged_runs
from toprank.evaluation.comparison import ComparedInputs, Comparison
from toprank.evaluation.differences import differences, differences_by_slice, pairs_of
from toprank.evaluation.result import Evaluation
from toprank.evaluation.scores import EvaluationOptions, evaluate
from toprank.evaluation.sliced import SlicedComparison
from toprank.evaluation.statistics import ComparisonKeywords, ComparisonOptions
from toprank.evaluation.systems import PerQuery, gathered, named
from toprank.evaluation.values import Values

Scored = npt.ArrayLike | Run | PathLike | Mapping[str, Mapping[str, float]]


class CompareOptions(ComparisonKeywords, EvaluationOptions, total=False):
    """Options of `compare`: the statistics, and the evaluation of scores or runs."""

    order: Order | None
    threads: int | None
    complete: bool | None
    max_documents: int | None
    condense: bool


def compare(
    systems: Mapping[str, Scored] | Iterable[tuple[str, Scored]],
    data: RankingData | npt.ArrayLike | Qrels | PathLike | Mapping[str, Mapping[str, float]],
    metrics: Any = ("ndcg@10",),
    *,
    convention: Any = None,
    slice_by: SliceBy | None = None,
    min_queries: int = MIN_QUERIES,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Evaluate several systems on the same queries and test their per-query differences.

    Args:
        systems: Name → scores, one score per document of `data`, in the order of ``data.X``; or name → run, in any form
            that `evaluate_run` accepts.
        data: Labeled documents, as for `evaluate`; for runs, the judgments, as for `evaluate_run`.
        metrics: Metrics, as for `evaluate`. Default "ndcg@10".
        convention: Evaluation convention. Default: "standard" for scores and "trec_eval" for runs. It also determines
            whether unanswered queries count 0 or are left out; `complete=` overrides it.
        baseline: Name of the system to compare all others with. Default: all pairs are compared.
        test: "randomization" (default), Fisher's test by sign flips; "t" or "wilcoxon".
        correction: Correction over all pairs × metrics: "holm" (default), "bonferroni" or "none".
        confidence: Confidence level of the intervals, default 0.95; the level of the tests is ``1 - confidence``.
        n_permutations: Number of random sign flips of the randomization test, with more than 20 non-zero differences.
        n_resamples: Number of resamples of the bootstrap intervals.
        margin: Equivalence margin, the same for all metrics. Default 0.01.
        power: Power of the test for the number of queries needed. Default 0.8.
        seed: Seed of sign flips and resamples.
        slice_by: Also compare within slices of the queries: a metadata column of the data (``"device"``),
            ``"head:COLUMN"`` or ``"head:documents"`` for head and tail queries, or one value per query; for runs,
            ``{query id: value}``. See `Evaluation.by_slice`. Tests in slices are corrected separately, over slices ×
            pairs × metrics, and do not affect the tests over all queries.
        min_queries: Slices with fewer queries are named but not tested. Default 20.
        order: Order of plain score arrays if grouping moved the rows of the data: "data" or "source", as for
            `evaluate`.
        threads: Number of threads; the result does not depend on it.
        **options: Further options of `evaluate`, or of `evaluate_run` for runs.

    Returns:
        The comparison; print it, or use `Comparison.to_dict`, `to_markdown`, `to_latex`.

    >>> qrels = {"q1": {"a": 1, "b": 0}, "q2": {"a": 0, "b": 1}, "q3": {"a": 1, "b": 0}}
    >>> runs = {"x": {"q1": {"a": 2, "b": 1}, "q2": {"b": 1}}, "y": {q: {"a": 1, "b": 2} for q in qrels}}
    >>> comparison = compare(runs, qrels, "rr")
    >>> comparison.means["x"]["rr"], comparison.differences[0].n, comparison.unanswered
    (1.0, 2, {'x': ('q3',)})
    """
    statistics, rules = ComparisonOptions.split(options)
    order: Order | None = rules.pop("order", None)
    if rules.get("weighted"):
        raise DataError("A comparison tests unweighted means over queries. Leave out weighted=True.")
    given = named(systems)
    pairs = pairs_of(tuple(given), statistics.baseline)  # raises for an unknown baseline before any evaluation
    runs = are_runs(given, data)
    if runs:
        if order is not None:
            raise DataError("order does not apply to runs, whose documents have ids. Leave order out.")
        judged = judged_runs(given, data, metrics, pairs, convention=convention or "trec_eval", **rules)
    else:
        scored = _scored(given, data, metrics, order=order, convention=convention or "standard", **rules)
        judged = JudgedRuns(scored, {}, (), {}, data)
    if runs and slice_by is not None and not isinstance(slice_by, Mapping):
        raise DataError("Runs have no columns to slice by. Give slice_by={query id: value}.")
    first = next(iter(judged.evaluations.values()))
    slices = None if slice_by is None else _slices(slice_by, data, first)
    inputs = None
    if runs or isinstance(data, RankingData):
        compared = judged.runs if runs else _columns(given, judged.documents, order)
        inputs = ComparedInputs(compared, judged.documents, first.measures, first.convention, rules)
    whole = _compared(gathered(judged.evaluations), statistics, slices, min_queries, rules.get("threads"))
    return replace(whole, unanswered=judged.unanswered, omissions=judged.omissions, inputs=inputs)


def _scored(systems: Mapping[str, Any], data: Any, metrics: Any, **options: Any) -> dict[str, Evaluation]:
    n_documents = len(data) if isinstance(data, RankingData) else np.size(data)
    for name, values in systems.items():
        try:
            size = np.size(values)
        except ValueError:
            raise DataError(f"The scores of system '{name}' must be a one-dimensional list of numbers.") from None
        if size != n_documents and not hasattr(values, "predict"):
            raise DataError(
                f"System '{name}' has {size:,} scores for {n_documents:,} documents. Give one score per document."
            )

    def evaluated(name: str) -> Evaluation:
        try:
            return evaluate(systems[name], data, metrics, **options)
        except DataError as problem:
            raise DataError(f"System '{name}':", remedy=problem.args[0]) from None

    return {name: evaluated(name) for name in systems}


def _columns(systems: Mapping[str, Any], data: RankingData, order: Order | None) -> dict[str, FloatArray]:
    """Return copies of the scores of each system in the order of the data."""
    aligned = {name: data.aligned(scores, order) for name, scores in systems.items()}
    return {name: np.array(scores, dtype=np.float64).reshape(-1) for name, scores in aligned.items()}


def compare_values(
    per_query: Mapping[str, PerQuery] | Iterable[tuple[str, PerQuery]],
    *,
    convention: str | None = None,
    lower_is_better: Collection[str] = (),
    slice_by: SliceBy | Slices | None = None,
    min_queries: int = MIN_QUERIES,
    threads: int | None = None,
    **options: Unpack[ComparisonKeywords],
) -> Comparison:
    """Compare systems from per-query values: system → evaluation, or metric → one value per query.

    Evaluations, and values given as ``{query id: value}``, are paired by query id; an error is raised if the systems
    were not evaluated on the same queries. Plain lists must be in the same order. NaN marks a query that is left out
    under that metric. The number of queries needed refers to a t-test at the level divided by the number of tests, if
    a correction is applied: the threshold for the smallest p-value.

    Args:
        per_query: the values by system.
        convention: name of the evaluation convention, for the output. Default: taken from the evaluations.
        lower_is_better: names of the metrics that are errors. Default: taken from the evaluations.
        slice_by: slices of the queries, in the order of the first system; see `compare`.
        min_queries: slices with fewer queries are named but not tested.
        threads: number of threads; the result does not depend on it.
        **options: the statistics, as for `compare`.

    >>> a = {"map": [0.5, 0.4, 0.7, 0.6, 0.5, 0.3, 0.8]}
    >>> b = {"map": [0.3, 0.3, 0.6, 0.3, 0.4, 0.2, 0.7]}
    >>> compare_values({"a": a, "b": b}).summary
    'a is better than b by 0.1429 [0.0903, 0.2562] map, p = 0.0156 (Holm, 1 test).'
    """
    values = gathered(named(per_query))
    errors = frozenset(lower_is_better) or values.lower_is_better
    for name in errors:
        if name not in values.metrics:
            raise UnknownNameError("metric among those compared", name, values.metrics)
    values = replace(values, lower_is_better=errors, convention=convention or values.convention)
    return _compared(
        values,
        ComparisonOptions(**options),
        None if slice_by is None else values.slices(slice_by),
        min_queries,
        threads,
    )


def _slices(slice_by: SliceBy, data: Any, evaluation: Evaluation) -> Slices:
    """Return the slices of the evaluated queries, which may be a subset of the queries in the data."""
    if not isinstance(slice_by, str | Mapping) and len(evaluation.qids) < getattr(data, "n_queries", 0):
        slice_by = np.asarray(slice_by)
        if len(slice_by) == data.n_queries:
            slice_by = slice_by[np.isin(data.qids, evaluation.qids)]
    return evaluation.slices(slice_by)


def _compared(
    values: Values, statistics: ComparisonOptions, slices: Slices | None, min_queries: int, threads: int | None
) -> Comparison:
    """Compare systems on all queries and, if slices are given, in each slice."""
    tested, sliced = differences(values, statistics, threads), None
    if slices is not None:
        check_whole("min_queries", min_queries, 2)
        rows = differences_by_slice(values, slices, min_queries, statistics, threads)
        sliced = SlicedComparison(statistics, slices, min_queries, rows)
    return Comparison(values=values, differences=tested, statistics=statistics, slices=sliced)
