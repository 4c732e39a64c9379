"""What counts of interleaved lists say about two models: an exact test and an exact interval.

Both are tails of the binomial distribution, which are values of the incomplete beta function. It is computed here, so
that a service needs no library of statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["preference"]

_TAIL = 0.025  # of the interval, on either side
_TINY = 1e-300
_ROUNDING = 1e-15
_HALVINGS = 60  # of the unit interval: more than a double can tell apart


def preference(wins: int, losses: int, ties: int, unclicked: int) -> dict[str, Any]:
    """What counts of lists say: the share of wins among lists with a winner, its interval, a test of "no difference".

    The test is the exact sign test, the interval Clopper and Pearson's at 95%. Both take lists for independent; those
    of one person, or one query asked again and again, are less than that.

    >>> told = preference(wins=60, losses=40, ties=7, unclicked=300)
    >>> told["share"], round(told["p"], 4), [round(end, 3) for end in told["interval"]]
    (0.6, 0.0569, [0.497, 0.697])
    >>> preference(0, 0, 0, 5)["words"]
    'No list had a winner yet.'
    """
    decided = wins + losses
    told = {"lists": decided + ties + unclicked, "wins": wins, "losses": losses, "ties": ties, "unclicked": unclicked}
    if decided == 0:
        return {**told, "share": None, "interval": None, "p": None, "words": "No list had a winner yet."}
    p = min(1.0, 2 * at_least(max(wins, losses), decided, 0.5))
    low = 0.0 if wins == 0 else _crossing(lambda share: at_least(wins, decided, share) >= _TAIL)
    high = 1.0 if losses == 0 else _crossing(lambda share: at_least(losses, decided, 1 - share) < _TAIL)
    better = "the first" if wins > losses else "the second"
    words = f"Users prefer {better} model (p = {p:.2g})." if p < 0.05 else f"No preference is proven (p = {p:.2g})."
    return {**told, "share": wins / decided, "interval": [low, high], "p": p, "words": words}


def _crossing(holds: Callable[[float], bool]) -> float:
    """Where a rule begins to hold, between 0 and 1."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return (low + high) / 2


def at_least(k: int, n: int, share: float) -> float:
    """The probability of at least k successes out of n, for 1 ≤ k ≤ n: the incomplete beta function I(k, n − k + 1).

    >>> math.isclose(at_least(9, 12, 0.5), sum(math.comb(12, i) for i in range(9, 13)) / 2**12, rel_tol=1e-13)
    True
    """
    if share <= 0 or share >= 1:
        return float(share >= 1)
    a, b = k, n - k + 1
    size = math.lgamma(n + 1) - math.lgamma(a) - math.lgamma(b) + a * math.log(share) + b * math.log1p(-share)
    # The fraction converges on its own side of the mean; the other side is the rest.
    if share < (a + 1) / (a + b + 2):
        return math.exp(size) * _fraction(share, a, b) / a
    return 1 - math.exp(size) * _fraction(1 - share, b, a) / b


def _fraction(x: float, a: int, b: int) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    found, m = d, 0
    change = 0.0
    while abs(change - 1) > _ROUNDING and m < a + b + 100:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            change *= c * d
        found *= change
    return found


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
