"""Results of tests and intervals: frozen values whose `str` is a sentence.

A quantity that does not exist, such as the standard deviation of a single difference, is `None`, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
from typing_extensions import TypeVar

from toprank.compute import FloatArray
from toprank.errors import count_of

Number = TypeVar("Number", bound=float | FloatArray, default=float)
"""Type of an estimate: a number, or an array of numbers."""


@dataclass(frozen=True, slots=True)
class TestResult:
    """Result of a two-sided test of the null hypothesis "the two systems do not differ".

    Attributes:
        test: Name of the test: "randomization", "t" or "wilcoxon".
        p: The p-value.
        statistic: Mean difference (randomization), t, or the smaller rank sum W (wilcoxon); None if undefined.
        difference: Mean of ``a - b`` over the queries used.
        n: Number of queries used.
        detail: Method behind the p-value, or the reason for a trivial one.
    """

    __test__: ClassVar[bool] = False  # keeps pytest from collecting this class because of its name

    test: str
    p: float
    statistic: float | None
    difference: float
    n: int
    detail: str

    def __str__(self) -> str:
        title = {"randomization": "Randomization", "t": "Paired t", "wilcoxon": "Wilcoxon signed-rank"}[self.test]
        return (
            f"{title} test, two-sided: mean difference {number(self.difference)} on {queries(self.n)}, "
            f"{p_value(self.p)} ({self.detail})."
        )


@dataclass(frozen=True, slots=True)
class Interval(Generic[Number]):
    """A two-sided confidence interval of one quantity, or of several in arrays; unpacks as ``low, high = interval``.

    Attributes:
        value: The estimate.
        low, high: The bounds; infinite or NaN if the data do not determine them.
        confidence: Confidence level.
        n: Number of queries used.
        detail: Method behind the bounds.
        quantity: The estimated quantity, in words.
    """

    value: Number
    low: Number
    high: Number
    confidence: float
    n: int
    detail: str
    quantity: str = "mean difference"

    def __iter__(self) -> Iterator[Number]:
        return iter((self.low, self.high))

    def __neg__(self) -> Interval[Number]:
        """Return the interval with reversed sign: of ``b - a`` instead of ``a - b``."""
        return replace(self, value=-self.value, low=-self.high, high=-self.low)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate and its bounds for JSON; infinite or unknown bounds become None.

        >>> Interval(0.5, 0.25, math.inf, 0.95, 9, "").to_dict()
        {'value': 0.5, 'low': 0.25, 'high': None}
        """
        sides: dict[str, Any] = {"value": self.value, "low": self.low, "high": self.high}
        return {name: np.where(np.isfinite(side), side, np.array(None)).tolist() for name, side in sides.items()}

    def __str__(self) -> str:
        ends = zip(np.ravel(self.low).tolist(), np.ravel(self.high).tolist(), strict=True)
        shown = ", ".join(bounds(low, high) for low, high in ends)
        title = f"{100 * self.confidence:g} % confidence interval of the {self.quantity}"
        return f"{title} on {queries(self.n)}: {shown} ({self.detail})."


@dataclass(frozen=True, slots=True)
class EffectSize:
    """Mean difference in units of the standard deviation of the differences.

    Attributes:
        d: Cohen's d_z; infinite if all differences are equal and not zero, None for a single query.
        g: Hedges' g, `d` corrected for small-sample bias; None if `d` is None.
        n: Number of queries used.
    """

    d: float | None
    g: float | None
    n: int

    def __str__(self) -> str:
        if self.d is None:
            return "The effect size is undefined for a single query, because one difference has no spread."
        return f"Effect size d_z = {number(self.d)} (Hedges' g = {number(self.g or 0.0)}) on {queries(self.n)}."


@dataclass(frozen=True, slots=True)
class EquivalenceResult:
    """Result of two one-sided tests (TOST) of the null hypothesis "the mean difference is outside ±margin".

    Attributes:
        margin: The equivalence margin.
        p: The larger of the two one-sided p-values.
        equivalent: True if p ≤ alpha, which is the case exactly if `interval` is within ±margin.
        interval: The confidence interval of level ``1 - 2 alpha`` from the inverted tests.
        difference: Mean of ``a - b``.
        n: Number of queries used.
        alpha: Level of the test.
        max_difference: The largest possible difference on one query; one such query is added to the sample.
    """

    margin: float
    p: float
    equivalent: bool
    interval: Interval
    difference: float
    n: int
    alpha: float
    max_difference: float = 1.0

    def __str__(self) -> str:
        verdict = "Equivalent" if self.equivalent else "Equivalence is not shown"
        return (
            f"{verdict} within ±{self.margin:g}: mean difference {number(self.difference)} on {queries(self.n)}, "
            f"{p_value(self.p)} (two one-sided tests at level {self.alpha:g}, an unseen query of "
            f"±{self.max_difference:g} counted)."
        )


class WinTieLoss(NamedTuple):
    """Number of queries on which `a` is above, equal to, and below `b`."""

    wins: int
    ties: int
    losses: int

    def __str__(self) -> str:
        return f"{count_of(self.wins, 'win')}, {count_of(self.ties, 'tie')}, {count_of(self.losses, 'loss')}."


def number(value: float) -> str:
    """Format a value with four decimals, or with three significant digits if four decimals would hide it.

    >>> number(0.01234567), number(-0.000012345), number(0.0), number(float("-inf"))
    ('0.0123', '-1.23e-05', '0.0000', '-∞')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e9 else f"{value:.3g}"


def bounds(low: float, high: float) -> str:
    """Format the bounds of an interval in brackets.

    >>> bounds(0.01234567, float("inf"))
    '[0.0123, ∞]'
    """
    return f"[{number(low)}, {number(high)}]"


def signed(value: float) -> str:
    """Format a number with its sign, using a typographic minus.

    >>> signed(0.0123), signed(-0.5)
    ('+0.0123', '−0.5000')
    """
    shown = number(abs(value))
    return shown if value == 0 else ("+" if value > 0 else "−") + shown


def p_value(p: float) -> str:
    """Format a p-value with three significant digits, as ``p = …``.

    >>> p_value(0.031249), p_value(1.0), p_value(0.0)
    ('p = 0.0312', 'p = 1', 'p < 1e-300')
    """
    return f"p = {p:.3g}" if p >= 1e-300 else "p < 1e-300"


def queries(n: int) -> str:
    """Format a number of queries, such as "3 queries"."""
    return count_of(n, "query")
