"""Expected reciprocal rank: a reader who goes down the list and stops where a document satisfies.

Ties are taken in expectation over their orders, by a closed form of its own (see `closed_forms` for the others).
"""

from __future__ import annotations

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel
from toprank.metrics.closed_forms import Codes, Flags

__all__ = ["expected_reciprocal_rank"]


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

    ``still[n]`` is q_t over the first n documents, from q_t(n) = (n−t)/n · q_t(n−1) + t/n · x_n · q_{t−1}(n−1): all
    terms are positive, so nothing cancels. O(size · depth), cut short once nobody reads on.
    """
    size, kept = len(go_on), 1.0
    for x in go_on:
        kept *= x
    still = np.ones(size + 1, dtype=np.float64)
    gained, before = 0.0, 1.0
    for t in range(1, min(size, limit - above) + 1):
        previous = still[t - 1]
        for n in range(t, size + 1):
            carried = still[n]
            kept_here = still[n - 1] * (n - t) / n if n > t else 0.0
            still[n] = kept_here + previous * go_on[n - 1] * t / n
            previous = carried
        gained += (before - still[size]) / (above + t)
        before = still[size]
        if before < 1e-18:
            break
    return gained, kept
