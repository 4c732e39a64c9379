"""Expected reciprocal rank: a reader who goes down the list and stops where a document satisfies.

Ties are taken in expectation over their orders, by a closed form of its own (see `closed_forms` for the others).
"""

from __future__ import annotations

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel
from toprank.metrics.closed_forms import Codes, Flags

__all__ = ["expected_reciprocal_rank"]

_NOBODY = 1e-18  # a probability this small is nobody


@kernel
def expected_reciprocal_rank(
    order: IntArray,
    ends: Flags,
    starts: IntArray,
    codes: Codes,
    stops: FloatArray,
    limit: int,
    out: FloatArray,
) -> None:
    """ERR = Σ_r (1/r) R_r Π_{i<r} (1 − R_i), with `stops` the table of R.

    In a tied group the reader is still reading after t of its documents with probability
    q_t = e_t(1 − R)/C(g, t), the mean over t-subsets of the product of (1 − R): the sum gains
    Π · Σ_t (q_{t−1} − q_t)/(rank of t), and Π is multiplied by q_g.
    """
    for q in range(len(out)):
        start, above, reading, total = starts[q], 0, 1.0, 0.0
        for i in range(start, starts[q + 1]):
            if above >= limit or reading <= 0.0:
                break
            if not ends[i]:
                continue
            size = i + 1 - start - above
            if size == 1:
                stop = stops[codes[order[i]]]
                total += reading * stop / (above + 1.0)
                reading *= 1.0 - stop
            else:
                go_on = np.empty(size, dtype=np.float64)
                for t in range(size):
                    go_on[t] = 1.0 - stops[codes[order[start + above + t]]]
                gained, kept = _err_of_group(go_on, above, limit)
                total += reading * gained
                reading *= kept
            above += size
        out[q] = total


@kernel
def _err_of_group(go_on: FloatArray, above: int, limit: int) -> tuple[float, float]:
    """What a tied group adds for a reader who enters it, and the probability to leave it unsatisfied.

    Only documents that can satisfy (x = 1 − R < 1) matter, r of g. With ē_h the mean product over h of them, and
    P_t(h) the chance that h of them are among the first t documents, q_t = Σ_h P_t(h) ē_h. Both come from recurrences
    without subtraction, so nothing cancels; ē falls, so h stops mattering soon. O((r + depth) · relevant h).
    """
    size, kept = len(go_on), 1.0
    for x in go_on:
        kept *= x
    products = _mean_products(go_on)
    chances = np.zeros(len(products), dtype=np.float64)
    chances[0] = 1.0
    r = 0
    for x in go_on:
        r += x < 1.0
    gained, before = 0.0, 1.0
    for t in range(1, min(size, limit - above) + 1):
        left = float(size - t + 1)  # documents that may stand at place t
        for h in range(len(chances) - 1, -1, -1):
            drawn = chances[h - 1] * (r - h + 1) / left if h > 0 else 0.0
            chances[h] = chances[h] * max(0.0, left - (r - h)) / left + drawn
        still = 0.0
        for h in range(len(chances)):
            still += chances[h] * products[h]
        gained += (before - still) / (above + t)
        before = still
        if before < _NOBODY:
            break
    return gained, kept


@kernel
def _mean_products(go_on: FloatArray) -> FloatArray:
    """The mean over h-subsets of the x < 1 of their product, for h = 0, 1, … until it is nothing."""
    r = 0
    for x in go_on:
        r += x < 1.0
    means = np.zeros(r + 1, dtype=np.float64)
    means[0] = 1.0
    n, top = 0, 0
    for x in go_on:
        if x >= 1.0:
            continue
        n += 1
        top = min(top + 1, r)
        for h in range(top, 0, -1):
            means[h] = means[h] * (n - h) / n + means[h - 1] * x * h / n
        while top > 1 and means[top] < _NOBODY and means[top - 1] < _NOBODY and n > 64:
            top -= 1
    last = r
    while last > 0 and means[last] < _NOBODY:
        last -= 1
    return means[: last + 1]
