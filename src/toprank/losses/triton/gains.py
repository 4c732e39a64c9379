"""Gains of labels and weights of ranks on any device, by the formulas of `toprank.metrics.conventions`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from toprank.losses.triton.frame import Frame
from toprank.metrics.conventions import Discount, Gain
from toprank.metrics.graded import DCG, NDCG

LOG2 = Discount.from_spec("log2")

_GAIN_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exponential": lambda y: torch.exp2(y) - 1,
    "linear": lambda y: y,
    "clipped": lambda y: y.clamp_min(0),
    "exponential/31": lambda y: (torch.exp2(y) - 1) / 31,
}


def has_gain(gain: Any) -> bool:
    """Return whether `gains_of` supports this gain: all except user-defined functions, which need NumPy arrays.

    >>> has_gain("exponential"), has_gain((0.0, 1.0)), has_gain(lambda y: y)
    (True, True, False)
    """
    known = Gain.from_spec(gain)
    return known.steps is not None or (known.function is None and known.name in (*_GAIN_FUNCTIONS, "err"))


def gains_of(frame: Frame, gain: Any, max_grade: float | None = None) -> Tensor:
    """Return the gain of each label; the top grade is the largest label of the data unless `max_grade` is given."""
    known = Gain.from_spec(gain)
    if known.steps is not None:
        return frame.tensor(known.steps).index_select(0, frame.labels.long())
    if known.name == "err":
        top = frame.labels.max() if max_grade is None else frame.tensor(max_grade)
        return (torch.exp2(frame.labels) - 1) / torch.exp2(top)
    return _GAIN_FUNCTIONS[known.name](frame.labels)


def has_dcg(measure: object, gain: Any) -> bool:
    """Return whether the metric is NDCG or DCG without user-defined functions, which need not accept unused ranks."""
    if type(measure) not in (DCG, NDCG):
        return False
    discount = measure.discount  # type: ignore[attr-defined]
    return has_gain(measure.gain or gain) and (discount is None or discount.function is None)  # type: ignore[attr-defined]


def rank_table(frame: Frame, discount: Discount = LOG2, depth: int | None = None, last: int | None = None) -> Tensor:
    """Return (M + 1, 4) cumulative sums over the ranks, in float64, so that their differences are exact in float32.

    With the weight c(r) of rank r (0 beyond `depth`), they are sums of c and of 1 within the truncation `last`, of c,
    and of Σ_{a < b} (top_a − slope_a·c(b)). The change of DCG if documents at ranks a < b exchange places is Δ = top_a
    − slope_a·below_b. Documents of equal score share the ranks of their group, so each term is a mean over these ranks,
    and two documents of one group get the mean over its pairs of ranks.
    """
    return _rank_table(discount, depth, last, _width(frame), frame.device)


@lru_cache(maxsize=64)
def _rank_table(discount: Discount, depth: int | None, last: int | None, width: int, device: torch.device) -> Tensor:
    weights = torch.from_numpy(discount.weights(width))
    if depth is not None:
        weights[depth:] = 0.0
    reached = torch.ones_like(weights)
    if last is not None:
        reached[last:] = 0.0
    tops, slopes = _running(weights * reached), _running(reached)
    pairs = _running(tops[:-1] - slopes[:-1] * weights)
    return torch.stack([tops, slopes, _running(weights), pairs], 1).to(device)


def distance_tables(frame: Frame) -> tuple[Tensor, Tensor, Tensor]:
    """Return δ(d) = 1/log2(1 + d) − 1/log2(2 + d) by the distance d of two ranks, and sums for its means over ties.

    For two groups Σ_p Σ_r δ(r − p) telescopes in r and is a cumulative sum (the second table) in p. The third table
    holds the mean of δ over the pairs of g ranks, by g: g − d of them have the distance d.
    """
    return _distance_tables(_width(frame), frame.device, frame.dtype)


@lru_cache(maxsize=16)
def _distance_tables(width: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    inverse = torch.from_numpy(LOG2.weights(width + 1))
    steps = -inverse.diff()
    d, counts = torch.arange(1, len(steps) + 1), torch.arange(len(steps) + 2)
    sums, moments = _running(steps), _running(steps * d)
    reach = (counts - 1).clamp(0, len(steps))
    within = (counts * sums[reach] - moments[reach]) / (0.5 * counts * (counts - 1)).clamp_min(1.0)
    padded = torch.nn.functional.pad(steps, (1, 1)).to(dtype)
    return padded.to(device), _running(inverse).to(device), within.to(device)


def _width(frame: Frame) -> int:
    """Return the number of ranks of the tables, a power of two, so that other data reuse compiled kernels."""
    return max(64, 1 << (frame.part.longest - 1).bit_length())


def _running(values: Tensor) -> Tensor:
    """Return (M + 1,) cumulative sums of the first 0, 1 … M values."""
    return torch.nn.functional.pad(values.cumsum(0), (1, 0))
