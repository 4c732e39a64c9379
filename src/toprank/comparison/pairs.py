"""Compare systems in pairs: evaluate all on the same queries and metrics, and test each difference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import significance
from toprank.comparison.results import CORRECTIONS, Comparison, Difference, Plan
from toprank.comparison.runs import JudgedRuns, are_runs, judged_runs
from toprank.comparison.slices import SlicedComparison, SliceDifference
from toprank.compute import FloatArray
from toprank.data.bytesource import PathLike
from toprank.data.checks import check_whole
from toprank.data.dataset import RankingData
from toprank.data.query_values import QueryValues, by_query
from toprank.data.row_order import Order
from toprank.data.slices import LEAST, By, Slices, slices_of_values
from toprank.data.trec.files import Qrels, Run
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.evaluation import evaluate
from toprank.metrics.result import Evaluation
from toprank.significance.effects import queries_for_effect
from toprank.significance.tests import column

Scored = npt.ArrayLike | Run | PathLike | Mapping[str, Mapping[str, float]]
PerQuery = Evaluation | Mapping[str, npt.ArrayLike | Mapping[str, float]]
Named = Mapping[str, Any] | Iterable[tuple[str, Any]]
Columns = dict[str, dict[str, FloatArray]]

_UNNAMED = "Systems are compared by name: give a dictionary such as {'first': scores, 'second': other_scores}."


def pairs_of(names: tuple[str, ...], baseline: str | None) -> list[tuple[str, str]]:
    """Return pairs of each system and the baseline, or all pairs if there is none."""
    if baseline is None:
        return list(combinations(names, 2))
    if baseline not in names:
        raise UnknownNameError("system", baseline, names)
    return [(name, baseline) for name in names if name != baseline]


def named(systems: Named) -> dict[str, Any]:
    """Return two or more systems by their distinct names."""
    if not isinstance(systems, Iterable):
        raise DataError(_UNNAMED)
    by_name: dict[str, Any] = {}
    for pair in systems.items() if isinstance(systems, Mapping) else systems:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(_UNNAMED)
        name, system = pair
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"A system must have a name, a piece of text; {name!r} is none.")
        if name in by_name:
            raise DataError(f"Two systems are called '{name}'; give them different names.")
        by_name[name] = system
    if len(by_name) < 2:
        raise DataError(f"A comparison needs at least two systems, not {len(by_name)}.")
    return by_name


def columns_of(per_query: Named) -> Columns:
    """Return per-query values as arrays: the same metrics and queries for every system, queries in one order."""
    systems = {name: _values(system) for name, system in named(per_query).items()}
    first, reference = next(iter(systems.items()))
    if not reference:
        raise DataError("There is no metric to compare; name at least one, such as 'ndcg@10'.")
    for name, values_by_metric in systems.items():
        if list(values_by_metric) != list(reference):
            raise DataError(
                f"Systems '{first}' and '{name}' were evaluated with different metrics: "
                f"{', '.join(reference)} and {', '.join(values_by_metric)}. Evaluate all with the same."
            )
    columns: Columns = {name: {} for name in systems}
    for metric in reference:
        for name, values in by_query({name: by_metric[metric] for name, by_metric in systems.items()}).items():
            columns[name][metric] = column(values, f"{metric} of system '{name}'")
    _check_lengths(columns)
    return columns


def _values(system: Any) -> dict[str, Any]:
    """Return metric → values of a system; values that are given by query id become values that know their queries."""
    per_query = system.per_query if isinstance(system, Evaluation) else system
    return {
        metric: QueryValues.of(list(values.values()), list(values)) if isinstance(values, Mapping) else values
        for metric, values in per_query.items()
    }


def rules_of(systems: Mapping[str, Any]) -> tuple[str | None, frozenset[str]]:
    """Return the convention of the evaluations among the systems, and the names of metrics that are errors."""
    evaluations = {name: system for name, system in systems.items() if isinstance(system, Evaluation)}
    if not evaluations:
        return None, frozenset()
    first, reference = next(iter(evaluations.items()))
    for name, evaluation in evaluations.items():
        if evaluation.convention != reference.convention:
            raise DataError(
                f"System '{first}' was evaluated under {reference.convention.name}, system '{name}' under "
                f"{evaluation.convention.name}; evaluate both under the same convention."
            )
        if evaluation.query_weights is not None:
            raise DataError(f"A comparison tests plain means over the queries; evaluate '{name}' without weights.")
    return reference.convention.name, frozenset(
        name for name, measure in reference.measures.items() if not measure.higher_is_better
    )


def _check_lengths(columns: Columns) -> None:
    first, reference = next(iter(columns.items()))
    length = len(next(iter(reference.values())))
    for name, by_metric in columns.items():
        for metric, values in by_metric.items():
            if values.shape != (length,):
                raise DataError(
                    f"{metric} of system '{name}' has shape {values.shape}, but system '{first}' has {length} queries; "
                    "all must be evaluated on the same queries, in the same order."
                )
            if np.isnan(values).all():
                raise DataError(f"{metric} is not defined on any query for system '{name}'; leave the metric out.")


def compare(
    systems: Mapping[str, Scored] | Iterable[tuple[str, Scored]],
    data: RankingData | npt.ArrayLike | Qrels | PathLike | Mapping[str, Mapping[str, float]],
    metrics: Any = ("ndcg@10",),
    *,
    convention: Any = None,
    baseline: str | None = None,
    test: str = "randomization",
    correction: str = "holm",
    confidence: float = 0.95,
    flips: int = 100_000,
    resamples: int = 10_000,
    margin: float = 0.01,
    power: float = 0.8,
    seed: int = 0,
    by: By | None = None,
    least: int = LEAST,
    order: Order | None = None,
    threads: int | None = None,
    **evaluate_options: Any,
) -> Comparison:
    """Evaluate several systems on the same queries and test their differences, query by query.

    Args:
        systems: Name → scores, one score per document of `data`, in the order of ``data.X``; or name → run: what
            `evaluate_run` takes.
        data: The labelled documents, as for `evaluate`; for runs the judgments, as for `evaluate_run`.
        metrics: Metrics, as for `evaluate`.
        convention: Evaluation convention; by default "standard" for scores and "trec_eval" for runs. It also says
            whether a query that a run does not answer counts 0 or is left out; `complete=` overrules it.
        baseline: Name of the system with which every other is compared; None compares all pairs.
        test: "randomization" (Fisher's sign flips, the default), "t" or "wilcoxon".
        correction: "holm", "bonferroni" or "none", over the family of all pairs × metrics.
        confidence: Of the intervals; differences are called significant at level ``1 - confidence``.
        flips: Random sign flips of the randomization test, beyond 20 non-zero differences.
        resamples: Resamples of the bootstrap intervals.
        margin: The largest difference that does not matter, for the equivalence test; the same for all metrics.
        power: The chance to see the difference, for the number of queries needed.
        seed: Seed of flips and resamples.
        by: Compare also in slices of the queries: a column that the data carry along (``"device"``),
            ``"head:COLUMN"`` or ``"head:documents"`` for head and tail queries, or one value for each query, of runs
            as ``{query id: value}``; see `Evaluation.by`. The tests in slices are a family of their own, slices ×
            pairs × metrics; those over all queries stay as they are.
        least: Slices with fewer queries are named but not tested.
        order: How scores stand that do not tell it themselves, where grouping moved the rows of the data: "data" or
            "source", as for `evaluate`.
        threads: Threads to use; the results do not depend on it.
        **evaluate_options: Further options of `evaluate`, or of `evaluate_run` for runs.

    Returns:
        The comparison; `print` it, or see `Comparison.to_dict`, `to_markdown`, `to_latex`.

    >>> qrels = {"q1": {"a": 1, "b": 0}, "q2": {"a": 0, "b": 1}, "q3": {"a": 1, "b": 0}}
    >>> runs = {"x": {"q1": {"a": 2, "b": 1}, "q2": {"b": 1}}, "y": {q: {"a": 1, "b": 2} for q in qrels}}
    >>> comparison = compare(runs, qrels, "rr")
    >>> comparison.means["x"]["rr"], comparison.differences[0].n, comparison.missing
    (1.0, 2, {'x': ('q3',)})
    """
    plan = Plan(baseline, test, correction, confidence, margin, power, flips, resamples, (), seed)
    if evaluate_options.get("weighted"):
        raise DataError("A comparison tests plain means over the queries; leave out weighted=True.")
    given = named(systems)
    pairs = pairs_of(tuple(given), baseline)  # an unknown baseline is refused before the work
    options = {**evaluate_options, "threads": threads}
    runs = are_runs(given, data)
    if runs:
        if order is not None:
            raise DataError("Runs know their documents by id; leave order out.")
        judged = judged_runs(given, data, metrics, pairs, convention=convention or "trec_eval", **options)
    else:
        options |= {"order": order, "convention": convention or "standard"}
        judged = JudgedRuns(_scored(given, data, metrics, **options), {}, ())
    name_of_rules, errors = rules_of(judged.evaluations)
    columns, plan = columns_of(judged.evaluations), replace(plan, lower_is_better=errors)
    if runs and by is not None and not isinstance(by, Mapping):
        raise DataError("Runs know their queries by id alone; to compare them in slices, give by={query id: value}.")
    slices = None if by is None else _slices(by, data, next(iter(judged.evaluations.values())))
    whole = replace(
        _compared(columns, plan, name_of_rules, threads), missing=judged.missing, omissions=judged.omissions
    )
    return whole if slices is None else _with_slices(whole, columns, plan, slices, least, threads)


def _scored(systems: Mapping[str, Any], data: Any, metrics: Any, **options: Any) -> dict[str, Evaluation]:
    n_documents = len(data) if isinstance(data, RankingData) else np.size(data)
    for name, values in systems.items():
        try:
            size = np.size(values)
        except ValueError:
            raise DataError(f"The scores of system '{name}' must be a plain list of numbers.") from None
        if size != n_documents and not hasattr(values, "predict"):
            raise DataError(f"System '{name}' has {size:,} scores for {n_documents:,} documents; each needs one.")

    def evaluated(name: str) -> Evaluation:
        try:
            return evaluate(systems[name], data, metrics, **options)
        except DataError as problem:
            raise DataError(f"System '{name}':", remedy=problem.args[0]) from None

    return {name: evaluated(name) for name in systems}


def compare_values(
    per_query: Mapping[str, PerQuery] | Iterable[tuple[str, PerQuery]],
    *,
    convention: str | None = None,
    baseline: str | None = None,
    test: str = "randomization",
    correction: str = "holm",
    confidence: float = 0.95,
    flips: int = 100_000,
    resamples: int = 10_000,
    margin: float = 0.01,
    power: float = 0.8,
    lower_is_better: Collection[str] = (),
    seed: int = 0,
    by: By | Slices | None = None,
    least: int = LEAST,
    threads: int | None = None,
) -> Comparison:
    """Compare systems whose per-query numbers are known: system → evaluation, or metric → one value per query.

    Evaluations, and values given as ``{query id: value}``, are paired by the ids of their queries; systems that were
    not evaluated on the same queries are refused. Plain lists must be in the same order. NaN marks a query that does
    not count under the metric. `lower_is_better` names the metrics that are errors (evaluations know theirs), `by`
    slices the queries in the order of the first system; the other options are those of `compare`. The number of
    queries needed is for a t-test at the level divided by the size of the family (where a correction is asked for):
    the hurdle that the smallest p-value of the family has to take.

    >>> a = {"map": [0.5, 0.4, 0.7, 0.6, 0.5, 0.3, 0.8]}
    >>> b = {"map": [0.3, 0.3, 0.6, 0.3, 0.4, 0.2, 0.7]}
    >>> compare_values({"a": a, "b": b}).summary
    'a is better than b by 0.1429 [0.0903, 0.2562] map, p = 0.0156 (Holm, 1 test).'
    """
    systems = named(per_query)
    name, errors = rules_of(systems)
    plan = Plan(
        baseline, test, correction, confidence, margin, power, flips, resamples, lower_is_better or errors, seed
    )
    columns, first = columns_of(systems), next(iter(systems.values()))
    whole = _compared(columns, plan, convention or name, threads)
    if by is None:
        return whole
    known = isinstance(first, Evaluation) and not isinstance(by, Slices)
    slices = first.slices(by) if known else slices_of_values(by, whole.queries)
    return _with_slices(whole, columns, plan, slices, least, threads)


def _compared(columns: Columns, plan: Plan, convention: str | None, threads: int | None) -> Comparison:
    metrics = tuple(next(iter(columns.values())))
    for name in plan.lower_is_better:
        if name not in metrics:
            raise UnknownNameError("metric among those compared", name, metrics)
    differences = [
        _difference(plan, metric, pair, columns, threads)
        for pair in pairs_of(tuple(columns), plan.baseline)
        for metric in metrics
    ]
    return Comparison(
        **vars(plan),
        means={
            name: {metric: float(np.nanmean(v)) for metric, v in by_metric.items()}
            for name, by_metric in columns.items()
        },
        differences=_corrected(differences, plan),
        queries=len(next(iter(columns.values()))[metrics[0]]),
        convention=convention,
    )


def _slices(by: By, data: Any, evaluation: Evaluation) -> Slices:
    """Return the slices of the queries that were evaluated, which may be fewer than those of the data."""
    if not isinstance(by, str | Mapping) and len(evaluation.qids) < getattr(data, "n_queries", 0):
        by = np.asarray(by)
        if len(by) == data.n_queries:
            by = by[np.isin(data.qids, evaluation.qids)]
    return evaluation.slices(by)


def _with_slices(
    whole: Comparison, columns: Columns, plan: Plan, slices: Slices, least: int, threads: int | None
) -> Comparison:
    """Return the comparison with one row per slice, pair and metric; rows of large enough slices are tested."""
    check_whole("least", least, 2)
    rows = list[SliceDifference]()
    for number, name in enumerate(slices.names):
        chosen = slices.codes == number
        part = {
            system: {metric: values[chosen] for metric, values in by_metric.items()}
            for system, by_metric in columns.items()
        }
        for pair in pairs_of(tuple(columns), plan.baseline):
            for metric in whole.metrics:
                a, b = (part[system][metric] for system in pair)
                both = ~(np.isnan(a) | np.isnan(b))
                n = int(both.sum())
                means = (float(a[both].mean()), float(b[both].mean())) if n else (None, None)
                tested = _difference(plan, metric, pair, part, threads) if n >= least else None
                rows.append(SliceDifference(name, metric, *pair, n, means[0], means[1], tested))
    corrected = iter(_corrected([row.tested for row in rows if row.tested is not None], plan))
    complete = tuple(row if row.tested is None else replace(row, tested=next(corrected)) for row in rows)
    return replace(whole, slices=SlicedComparison(plan, slices, least, complete))


def _difference(plan: Plan, metric: str, pair: tuple[str, str], columns: Columns, threads: int | None) -> Difference:
    """Test one pair under one metric, before the correction."""
    a, b = (columns[name][metric] for name in pair)
    both = ~(np.isnan(a) | np.isnan(b))
    if not both.any():
        raise DataError(f"{metric} is not defined on any query for both {pair[0]} and {pair[1]}; leave it out.")
    a, b = a[both], b[both]
    tested = _tested(plan, a, b, threads)
    interval = significance.bootstrap_interval(
        a, b, confidence=plan.confidence, resamples=plan.resamples, seed=plan.seed, threads=threads
    )
    lower_is_better = metric in plan.lower_is_better
    wins, ties, losses = significance.win_tie_loss(b, a) if lower_is_better else significance.win_tie_loss(a, b)
    return Difference(
        metric=metric,
        a=pair[0],
        b=pair[1],
        mean_a=float(a.mean()),
        mean_b=float(b.mean()),
        difference=tested.difference,
        interval=interval,
        effect_size=significance.effect_size(a, b).d,
        p=tested.p,
        p_adjusted=tested.p,
        test=plan.test,
        n=tested.n,
        wins=wins,
        ties=ties,
        losses=losses,
        equivalence_p=significance.equivalence_test(a, b, margin=plan.margin, alpha=plan.alpha).p,
        lower_is_better=lower_is_better,
    )


def _tested(plan: Plan, a: FloatArray, b: FloatArray, threads: int | None) -> significance.TestResult:
    if plan.test == "randomization":
        return significance.randomization_test(a, b, flips=plan.flips, seed=plan.seed, threads=threads)
    return significance.t_test(a, b) if plan.test == "t" else significance.wilcoxon(a, b)


def _corrected(differences: Sequence[Difference], plan: Plan) -> tuple[Difference, ...]:
    """Return the differences with everything that depends on the size of the family."""
    adjust = CORRECTIONS[plan.correction]
    adjusted = adjust([d.p for d in differences]).tolist()
    equivalence = adjust([d.equivalence_p for d in differences]).tolist()
    alpha = plan.alpha
    hurdle = alpha if plan.correction == "none" else alpha / max(1, len(differences))
    return tuple(
        replace(
            d,
            p_adjusted=p,
            significant=p <= alpha,
            equivalence_p=q,
            equivalent=q <= alpha,
            queries_needed=queries_for_effect(d.effect_size, power=plan.power, alpha=hurdle),
        )
        for d, p, q in zip(differences, adjusted, equivalence, strict=True)
    )
