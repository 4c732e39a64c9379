"""Metrics of smooth ranks: ApproxNDCG, ApproxMRR and the same for any metric that can be read off ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.queries import Queries
from toprank.losses.base import Loss, Traits
from toprank.losses.reading import readable
from toprank.losses.smooth_metric import SmoothMetricBound
from toprank.metrics.binary import RR
from toprank.metrics.gains import Gain
from toprank.metrics.graded import NDCG
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse

__all__ = ["ApproxMRR", "ApproxMetric", "ApproxNDCG"]

_TRAITS = Traits(convex=False, smooth=True, curvature="majoriser", cost="O(m²)")


@dataclass(frozen=True)
class ApproxMetric(Loss):
    """1 − Z with the ranks of the metric Z replaced by smooth ones, r_j = 1 + Σ_{k≠j} σ((s_k − s_j)/T).

    With p_jk = σ((s_k − s_j)/T) and c(r) = 1/F(r):

    NDCG, DCG   Σ_j G_j·c(r_j), over the ideal DCG for NDCG; the loss for DCG is −Z
    AP          1/N Σ_{j relevant} (1 + Σ_{k relevant} p_jk) / r_j
    RR          Σ_{j relevant} 1/r_j · Π_{k relevant} (1 − p_jk)
    ERR         Σ_j R_j/r_j · Π_k (1 − R_k·p_jk)

    As T → 0 the ranks become whole, and the loss becomes that of the metric (tied documents share their mean rank). A
    cut-off @k multiplies c by a smooth step that falls from 1 at rank k to 0 at rank k + 1. Discounts given as
    tables or callables, and LETOR's, are interpolated between whole ranks (monotone cubic).

    Args:
        metric: NDCG, DCG, AP (``map``), RR (``mrr``) or ERR, with options as `toprank.metrics.parse` reads them.
        temperature: T.
        gain: gain of NDCG and DCG, unless the metric names its own.

    Queries whose documents all look alike to the metric (equal gains, none or all relevant) contribute nothing.
    Weights: a document's weight multiplies its own term of the sum, never the ranks or the normaliser.
    Curvature: that of the smooth ranks, bounded, with the metric taken as linear in them (`smooth_ranks`); for NDCG
    and DCG with a convex discount and no cut-off it bounds the Hessian from above.
    Cost: O(m²), memory O(m).
    Consistency: none known; the loss is not convex.
    Source: Qin, Liu & Li 2010, "A general approximation framework for direct optimization of IR measures".

    >>> sharp = ApproxMetric("mrr", temperature=1e-3).on([0, 1, 0], Queries([0, 3]))
    >>> round(sharp.at([3.0, 2.0, 1.0]).value, 6)   # the relevant document is second
    0.5
    """

    traits: ClassVar[Traits] = _TRAITS

    metric: str | Measure = "ndcg"
    temperature: float = 0.1
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"

    def __post_init__(self) -> None:
        readable(self.metric, self, "needs a metric that can be written in smooth ranks")
        _check(self)
        Gain.of(self.gain)

    def bind(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> SmoothMetricBound:
        """See `Loss.bind`."""
        measure = parse(self.metric)
        return SmoothMetricBound(measure, self.temperature, self.gain, labels, queries, document_weights, query_weights)


@dataclass(frozen=True)
class ApproxNDCG(Loss):
    """ApproxNDCG: 1 − Σ_j G_j / log2(1 + r_j) / ideal DCG, r_j = 1 + Σ_{k≠j} σ((s_k − s_j)/T).

    Args:
        temperature: T; smaller is closer to NDCG and harder to descend.
        k: cut-off of NDCG@k (a smooth step, see `ApproxMetric`); None: the whole list.
        gain: a name, a table or a callable.

    Everything else as in `ApproxMetric`, of which this is a case.

    >>> round(ApproxNDCG().on([1, 0], Queries([0, 2])).at([9.0, 0.0]).value, 9)
    0.0
    """

    traits: ClassVar[Traits] = _TRAITS

    temperature: float = 0.1
    k: int | None = None
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"

    def __post_init__(self) -> None:
        _check(self)
        Gain.of(self.gain)

    def bind(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> SmoothMetricBound:
        """See `Loss.bind`."""
        return SmoothMetricBound(
            NDCG(self.k), self.temperature, self.gain, labels, queries, document_weights, query_weights
        )


@dataclass(frozen=True)
class ApproxMRR(Loss):
    """ApproxMRR: 1 − Σ_{j relevant} 1/r_j · Π_{k relevant} σ((s_j − s_k)/T), r_j = 1 + Σ_{k≠j} σ((s_k − s_j)/T).

    The product leaves the first relevant document alone, so that the loss tends to 1 − RR however many are relevant.

    Args:
        temperature: T.
        k: cut-off (a smooth step, see `ApproxMetric`); None: the whole list.
        rel: grades of at least this much are relevant.

    Everything else as in `ApproxMetric`, of which this is a case.
    """

    traits: ClassVar[Traits] = _TRAITS

    temperature: float = 0.1
    k: int | None = None
    rel: float = 1.0

    def __post_init__(self) -> None:
        _check(self)
        check_number("ApproxMRR's rel", self.rel)

    def bind(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> SmoothMetricBound:
        """See `Loss.bind`."""
        return SmoothMetricBound(
            RR(self.k, self.rel), self.temperature, "linear", labels, queries, document_weights, query_weights
        )


def _check(loss: Any) -> None:
    name = type(loss).__name__
    check_number(f"{name}'s temperature", loss.temperature, above=0)
    if getattr(loss, "k", None) is not None:
        check_whole(f"{name}'s k", loss.k, 1)
