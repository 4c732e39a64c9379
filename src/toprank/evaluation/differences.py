"""Differences between systems for each pair and metric, over all queries and in slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import significance
from toprank.compute import FloatArray
from toprank.data.slices import Slices
from toprank.display.record import to_json
from toprank.errors import DataError, UnknownNameError
from toprank.evaluation.statistics import ComparisonOptions
from toprank.evaluation.values import Values
from toprank.significance import Interval, bonferroni, holm
from toprank.significance.effects import queries_for_effect
from toprank.significance.tests import ROUNDING

_ADJUSTED: dict[str, Callable[[npt.ArrayLike], FloatArray]] = {
    "holm": holm,
    "bonferroni": bonferroni,
    "none": np.asarray,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference of two systems under one metric, ``a - b``; if there is a baseline, it is `b`.

    Attributes:
        metric, a, b: Names of the metric and the two systems.
        mean_a, mean_b: Means of both systems over the queries evaluated for both.
        difference: Mean of ``a - b``.
        interval: Confidence interval of the difference, without correction for multiple tests.
        effect_size: Cohen's d_z; None for one query.
        p: p-value of the test.
        p_adjusted: p-value after the correction for multiple tests.
        test: Name of the test.
        n: Number of queries evaluated for both.
        wins, ties, losses: Number of queries on which `a` is better, both are equal, or `b` is better.
        queries_needed: Number of queries needed to detect the difference; None if undefined.
        equivalence_p: p-value of the equivalence test, after the same correction.
        equivalent: True if the equivalence test is significant.
        significant: True if `p_adjusted` is at most the level of the test.
        lower_is_better: True if lower values of the metric are better.
    """

    metric: str
    a: str
    b: str
    mean_a: float
    mean_b: float
    difference: float
    interval: Interval
    effect_size: float | None
    p: float
    p_adjusted: float
    test: str
    n: int
    wins: int
    ties: int
    losses: int
    queries_needed: int | None = None
    equivalence_p: float
    equivalent: bool = False
    significant: bool = False
    lower_is_better: bool = False

    @property
    def winner(self) -> str | None:
        """System with the better mean, significant or not; None if the means are equal up to rounding."""
        if abs(self.difference) <= ROUNDING * max(abs(self.mean_a), abs(self.mean_b)):
            return None
        return self.a if (self.difference > 0) != self.lower_is_better else self.b

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain values for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: to_json(value) for name, value in (values | {"interval": list(self.interval)}).items()}


@dataclass(frozen=True)
class SliceDifference:
    """Difference of two systems under one metric in one slice.

    Attributes:
        slice: Name of the slice.
        metric: Name of the metric.
        a: Name of the first system.
        b: Name of the second system.
        n: Number of queries evaluated for both.
        mean_a: Mean of `a` over these queries; None if there are none.
        mean_b: Mean of `b` over these queries; None if there are none.
        tested: Difference with its interval and its p-value, corrected over all slices; None with too few queries.
    """

    slice: str
    metric: str
    a: str
    b: str
    n: int
    mean_a: float | None
    mean_b: float | None
    tested: Difference | None

    @property
    def difference(self) -> float | None:
        """Mean of ``a - b``; None without queries."""
        if self.tested is not None:
            return self.tested.difference
        return None if self.mean_a is None or self.mean_b is None else self.mean_a - self.mean_b

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values for JSON."""
        names = ("slice", "metric", "a", "b", "n", "mean_a", "mean_b", "difference", "tested")
        return {name: to_json(getattr(self, name)) for name in names}


def pairs_of(names: tuple[str, ...], baseline: str | None) -> list[tuple[str, str]]:
    """Return pairs of each system with the baseline, or all pairs without a baseline."""
    if baseline is None:
        return list(combinations(names, 2))
    if baseline not in names:
        raise UnknownNameError("system", baseline, names)
    return [(name, baseline) for name in names if name != baseline]


def differences(values: Values, statistics: ComparisonOptions, threads: int | None = None) -> tuple[Difference, ...]:
    """Return the difference of each pair of systems under each metric, tested and corrected."""
    tested = [
        _difference(values, metric, pair, statistics, threads)
        for pair in pairs_of(values.systems, statistics.baseline)
        for metric in values.metrics
    ]
    return _corrected(tested, statistics)


def differences_by_slice(
    values: Values, slices: Slices, min_queries: int, statistics: ComparisonOptions, threads: int | None = None
) -> tuple[SliceDifference, ...]:
    """Return one row per slice, pair and metric; rows with at least `min_queries` queries are tested and corrected."""
    rows = list[SliceDifference]()
    for name, part in values.parts(slices).items():
        for pair in pairs_of(part.systems, statistics.baseline):
            for metric in part.metrics:
                a, b = _paired(part, metric, pair)
                mean_a, mean_b = (float(a.mean()), float(b.mean())) if len(a) else (None, None)
                tested = _difference(part, metric, pair, statistics, threads) if len(a) >= min_queries else None
                rows.append(SliceDifference(name, metric, *pair, len(a), mean_a, mean_b, tested))
    corrected = iter(_corrected([row.tested for row in rows if row.tested is not None], statistics))
    return tuple(row if row.tested is None else replace(row, tested=next(corrected)) for row in rows)


def _paired(values: Values, metric: str, pair: tuple[str, str]) -> tuple[FloatArray, FloatArray]:
    """Return the values of both systems for the queries evaluated for both."""
    a, b = (values.of(name, metric) for name in pair)
    both = ~(np.isnan(a) | np.isnan(b))
    return a[both], b[both]


def _difference(
    values: Values, metric: str, pair: tuple[str, str], statistics: ComparisonOptions, threads: int | None
) -> Difference:
    """Test one pair under one metric, without correction."""
    a, b = _paired(values, metric, pair)
    if not len(a):
        raise DataError(f"{metric} is undefined for {pair[0]} or {pair[1]} on every query. Leave out this metric.")
    tested = _tested(statistics, a, b, threads)
    interval = significance.bootstrap_interval(
        a,
        b,
        confidence=statistics.confidence,
        n_resamples=statistics.n_resamples,
        seed=statistics.seed,
        threads=threads,
    )
    lower_is_better = metric in values.lower_is_better
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
        test=statistics.test,
        n=tested.n,
        wins=wins,
        ties=ties,
        losses=losses,
        equivalence_p=significance.equivalence_test(a, b, margin=statistics.margin, alpha=statistics.alpha).p,
        lower_is_better=lower_is_better,
    )


def _tested(
    statistics: ComparisonOptions, a: FloatArray, b: FloatArray, threads: int | None
) -> significance.TestResult:
    if statistics.test == "randomization":
        return significance.randomization_test(
            a, b, n_permutations=statistics.n_permutations, seed=statistics.seed, threads=threads
        )
    return significance.t_test(a, b) if statistics.test == "t" else significance.wilcoxon(a, b)


def _corrected(tested: Sequence[Difference], statistics: ComparisonOptions) -> tuple[Difference, ...]:
    """Return the differences with all fields that depend on the number of tests."""
    adjust = _ADJUSTED[statistics.correction]
    adjusted = adjust([d.p for d in tested]).tolist()
    equivalence = adjust([d.equivalence_p for d in tested]).tolist()
    alpha = statistics.alpha
    hurdle = alpha if statistics.correction == "none" else alpha / max(1, len(tested))
    return tuple(
        replace(
            d,
            p_adjusted=p,
            significant=p <= alpha,
            equivalence_p=q,
            equivalent=q <= alpha,
            queries_needed=queries_for_effect(d.effect_size, power=statistics.power, alpha=hurdle),
        )
        for d, p, q in zip(tested, adjusted, equivalence, strict=True)
    )
