"""A metric of smooth ranks, bound to data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.queries import Queries
from toprank.losses.base import Curvature
from toprank.losses.one_pass import OnePassBound
from toprank.losses.reading import reading_of, worth_of
from toprank.losses.smooth_ranks import HITS, NO_EXTRA, SURVIVAL, collect, pair_flow, push
from toprank.metrics.gains import Discount
from toprank.metrics.graded import DCG
from toprank.metrics.measure import Measure

__all__ = ["SmoothDiscount", "SmoothMetricBound"]

_EXTRA = {"dcg": NO_EXTRA, "ap": HITS, "rr": SURVIVAL, "err": SURVIVAL}


class SmoothDiscount:
    """c(r) = 1/F(r) and its slope between whole ranks.

    >>> value, slope = SmoothDiscount(Discount.of("reciprocal"), None, 5)(np.array([2.0]))
    >>> float(value[0]), float(slope[0])
    (0.5, -0.25)
    """

    def __init__(self, discount: Discount, cut: int | None, longest: int) -> None:
        self.name, self.cut = discount.name, cut
        self.power = {"reciprocal": 1.0, "none": 0.0}.get(discount.name, discount.beta)
        self.curve: Any = None
        if self.name != "log2" and self.power is None:
            from scipy.interpolate import PchipInterpolator

            self.curve = PchipInterpolator(np.arange(1.0, longest + 2.0), discount.weights(longest + 1))

    def __call__(self, rank: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The values of c and dc/dr at real ranks of at least 1."""
        value, slope = self._uncut(rank)
        if self.cut is None:
            return value, slope
        t = np.clip(rank - self.cut, 0.0, 1.0)
        step, fall = 1.0 - t * t * (3.0 - 2.0 * t), -6.0 * t * (1.0 - t)
        return value * step, slope * step + value * fall

    def _uncut(self, rank: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self.curve is not None:
            return self.curve(rank), self.curve(rank, 1)
        if self.power is not None:
            value = rank**-self.power
            return value, -self.power * value / rank
        value = 1.0 / np.log2(1.0 + rank)
        return value, -(value**2) / (np.log(2.0) * (1.0 + rank))


@dataclass(frozen=True)
class SmoothRankCurvature(Curvature):
    """The Laplacian of `smooth_ranks`; its weights are computed when it is asked for."""

    pairs: tuple[FloatArray, IntArray, FloatArray, int, FloatArray, FloatArray]
    squared_scale: float
    values: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        columns = np.array(V.reshape(len(V), -1), dtype=np.float64, order="C")
        out = np.zeros_like(columns)
        pair_flow(*self.pairs, columns, out)
        return self.squared_scale * out.reshape(V.shape)

    def diagonal(self) -> FloatArray:
        """See `Curvature.diagonal`."""
        return self.values


class SmoothMetricBound(OnePassBound):
    """1 − Z of smooth ranks (−Z for DCG), on data; see `toprank.losses.approx.ApproxMetric`."""

    def __init__(
        self,
        measure: Measure,
        temperature: float,
        gain: Any,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> None:
        super().__init__(queries, query_weights)
        self.temperature = temperature
        reading = reading_of(measure, labels, queries, gain)
        self.kind, self.reads = reading.kind, reading.reads
        discount = measure.discount or Discount.of("log2") if isinstance(measure, DCG) else Discount.of("reciprocal")
        self.discount = SmoothDiscount(discount, measure.depth, int(queries.sizes.max()))
        best, self.worth = worth_of(reading, queries, document_weights)
        self.best = best if type(measure) is not DCG else np.zeros(len(queries))

    def judge(self, scores: FloatArray, first: int, last: int, grad: FloatArray) -> tuple[FloatArray, Curvature]:
        """See `OnePassBound.judge`."""
        offsets = self.queries.offsets[first : last + 1] - self.queries.offsets[first]
        rows = slice(self.queries.offsets[first], self.queries.offsets[last])
        z, reads, extra_kind = scores / self.temperature, self.reads[rows], _EXTRA[self.kind]
        above, extra, diagonal = np.empty_like(z), np.empty_like(z), np.empty_like(z)
        collect(z, offsets, reads, extra_kind, above, extra)
        terms, rank_slope, extra_slope = self._terms(rows, above, extra)
        spread = np.repeat(self.scale[first:last], np.diff(offsets))
        pairs = (z, offsets, reads, extra_kind, spread * rank_slope, spread * extra_slope)
        push(*pairs, grad, diagonal)
        grad /= self.temperature
        curvature = SmoothRankCurvature(pairs, self.temperature**-2, diagonal / self.temperature**2)
        return self.best[first:last] - np.add.reduceat(terms, offsets[:-1]), curvature

    def _terms(self, rows: slice, above: FloatArray, extra: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Each document's term of Z, and −d/d(above) and the slope of `push` that belongs to `extra`."""
        worth, (c, dc) = self.worth[rows], self.discount(1.0 + above)
        if self.kind == "dcg":
            return worth * c, -worth * dc, np.zeros_like(c)
        if self.kind == "ap":
            hits = 1.0 + extra
            return worth * c * hits, -worth * dc * hits, -worth * c
        return worth * c * extra, -worth * dc * extra, worth * c * extra
