"""Thresholds for targets that hold features in single precision: the same decisions, bit for bit.

For x in single precision, x <= t holds where x <= f, f the largest single ≤ t, and where x < L, L the next single above
f. The single nearest to t may lie on the other side of it, and would send documents the wrong way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["next_single", "single_below"]

_LARGEST = np.finfo(np.float32).max


def single_below(threshold: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The largest single precision number ≤ t; the largest of all where t is beyond, −∞ where t is below all.

    >>> float(single_below(0.1)) <= 0.1 < float(next_single(0.1))
    True
    """
    wanted = np.asarray(threshold, dtype=np.float64)
    with np.errstate(over="ignore"):
        nearest = wanted.astype(np.float32)
        below = np.where(nearest.astype(np.float64) > wanted, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    return np.where(wanted >= float(_LARGEST), _LARGEST, below).astype(np.float32)


def next_single(threshold: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The smallest single precision number > t (for x < L); ∞ where t is beyond all."""
    with np.errstate(over="ignore"):
        return np.nextafter(single_below(threshold), np.float32(np.inf))
