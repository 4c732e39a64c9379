"""Results of the statistics: frozen values whose `str` is a sentence.

`None` stands for a quantity that does not exist (the spread of a single difference), never NaN.
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
"""A number, or an array of numbers."""


@dataclass(frozen=True, slots=True)
class TestResult:
    """A two-sided test of "the two systems do not differ".

    Attributes:
        test: Its name: "randomization", "t" or "wilcoxon".
        p: The p-value.
        statistic: Mean difference (randomization), t, or the smaller rank sum W (wilcoxon); None where undefined.
        difference: Mean of ``a - b`` over the queries used.
        n: Number of queries used.
        detail: How p was found, or why it is what it is.
    """

    __test__: ClassVar[bool] = False  # pytest would take the class for a test because of its name

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
        low, high: The ends; infinite or NaN where the data leave them open.
        confidence: How often intervals made like this one hold the true value.
        n: Number of queries used.
        detail: How the ends were found.
        quantity: What was estimated.
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
        """The interval of the quantity with its sign turned: of ``b - a`` where this one is of ``a - b``."""
        return replace(self, value=-self.value, low=-self.high, high=-self.low)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """The estimate and its ends, for JSON; None where one is infinite or unknown.

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
        d: Cohen's d_z; infinite where all differences are equal and not zero, None for a single query.
        g: `d` freed of its small-sample bias (Hedges); None where `d` is None.
        n: Number of queries used.
    """

    d: float | None
    g: float | None
    n: int

    def __str__(self) -> str:
        if self.d is None:
            return "The effect size of one query does not exist: a single difference has no spread."
        return f"Effect size d_z = {number(self.d)} (Hedges' g = {number(self.g or 0.0)}) on {queries(self.n)}."


@dataclass(frozen=True, slots=True)
class EquivalenceResult:
    """Two one-sided tests of "the mean difference lies outside ±margin".

    Attributes:
        margin: The largest difference that does not matter.
        p: The larger of the two one-sided p-values.
        equivalent: Whether p ≤ alpha, that is, whether `interval` lies within ±margin.
        interval: The interval of confidence ``1 - 2 alpha`` that decides it, by inversion of the tests.
        difference: Mean of ``a - b``.
        n: Number of queries used.
        alpha: The level of the test.
        max_difference: The largest difference that a query can have: one such query is counted as not yet seen.
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
    """On how many queries `a` is above, level with, and below `b`."""

    wins: int
    ties: int
    losses: int

    def __str__(self) -> str:
        return f"{count_of(self.wins, 'win')}, {count_of(self.ties, 'tie')}, {count_of(self.losses, 'loss')}."


def number(value: float) -> str:
    """Four decimals, or three significant digits where four decimals would hide the value.

    >>> number(0.01234567), number(-0.000012345), number(0.0), number(float("-inf"))
    ('0.0123', '-1.23e-05', '0.0000', '-∞')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e9 else f"{value:.3g}"


def bounds(low: float, high: float) -> str:
    """Return the ends of an interval in brackets.

    >>> bounds(0.01234567, float("inf"))
    '[0.0123, ∞]'
    """
    return f"[{number(low)}, {number(high)}]"


def signed(value: float) -> str:
    """A number that shows its sign, with a true minus.

    >>> signed(0.0123), signed(-0.5)
    ('+0.0123', '−0.5000')
    """
    shown = number(abs(value))
    return shown if value == 0 else ("+" if value > 0 else "−") + shown


def p_value(p: float) -> str:
    """A p-value in three significant digits, with its letter.

    >>> p_value(0.031249), p_value(1.0), p_value(0.0)
    ('p = 0.0312', 'p = 1', 'p < 1e-300')
    """
    return f"p = {p:.3g}" if p >= 1e-300 else "p < 1e-300"


def queries(n: int) -> str:
    """A number of queries in words."""
    return count_of(n, "query")
