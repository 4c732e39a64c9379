"""Quantiles of the beta and of Student's distribution for services, which may run without SciPy."""

from __future__ import annotations

import math

_TINY = 1e-300  # keeps Lentz's method from dividing by 0
_ROUNDING = 1e-15
_HALVINGS = 60  # of the unit interval: more than a double can tell apart


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I(x; a, b), the distribution function of the beta distribution; of a binomial, P(at least a of a + b − 1).

    >>> math.isclose(incomplete_beta(0.5, 9, 4), sum(math.comb(12, i) for i in range(9, 13)) / 2**12, rel_tol=1e-13)
    True
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    size = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    # The fraction converges on its own side of the mean; the other side is the rest.
    if x < (a + 1) / (a + b + 2):
        return math.exp(size) * _fraction(x, a, b) / a
    return 1 - math.exp(size) * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value, m, change = d, 0, 0.0
    while abs(change - 1) > _ROUNDING and m < a + b + 100:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            change *= c * d
        value *= change
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def beta_quantile(level: float, a: float, b: float) -> float:
    """The x with I(x; a, b) = level."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if incomplete_beta(middle, a, b) >= level else (middle, high)
    return (low + high) / 2


def student_quantile(level: float, freedom: float) -> float:
    """The t with P(T ≤ t) = level, for a level above a half: ν / (ν + t²) has a beta distribution.

    >>> round(student_quantile(0.975, 1), 4), round(student_quantile(0.975, 10), 4)
    (12.7062, 2.2281)
    """
    beyond = beta_quantile(1 - 2 * (1 - level), 0.5, freedom / 2)  # t² / (ν + t²)
    return math.sqrt(freedom * beyond / (1 - beyond))
