"""Smooth approximations of metrics: by smooth ranks (ApproxNDCG …), in expectation (SoftRank), by a relaxed sort
(NeuralNDCG).

With p_jk = σ((s_k − s_j)/T), the degree to which k precedes j, the smooth rank of j is 1 + Σ_k p_jk, and every kind of
metric is Σ_j read_j · (a function of the p_j·). A first pass over the pairs computes for each document

    above    Σ_k p_jk, the smooth rank minus 1
    extra    AP: Σ_{relevant k} p_jk, the relevant documents above;
             ERR and RR: Π_k (1 − R_k·p_jk), the probability that the user gets here

and a second pass propagates dL/dp_jk = rank_slope_j + extra_slope_j · (AP: relevant_k; ERR and RR: R_k/(1 − R_k·p_jk))
to the scores. Since p_kj = 1 − p_jk, a pair contributes p(1 − p)/T · (dL/dp_jk − dL/dp_kj) to the gradient, with
opposite signs.

The curvature is the Laplacian of the pairs with weights p(1 − p)/T² · (|dL/dp_jk| + |dL/dp_kj|). Since |σ''| ≤ σ', it
bounds the curvature of the smooth ranks, with the metric linearized in them. For a convex discount (DCG, NDCG without a
cut-off) the metric's own curvature is negative, so it bounds the Hessian.

p needs no exponential per pair: with E = exp((s − max s)/T), p_jk = E_k/(E_j + E_k), unless the scores are too far
apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.losses.base import (
    Block,
    BlockResult,
    BoundLoss,
    Curvature,
    Diagonal,
    Judgments,
    Loss,
    Requested,
    Traits,
    by_columns,
)
from toprank.losses.labels import metric_terms, metric_weights, readable, refuse_long_queries
from toprank.metrics.binary import RR
from toprank.metrics.conventions import Discount, Gain
from toprank.metrics.graded import DCG, NDCG
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse

_EXTRA = {"dcg": "NO_EXTRA", "ap": "HITS", "rr": "SURVIVAL", "err": "SURVIVAL"}
"""The quantity that the first pass collects in addition to the ranks, by kind of metric, as the kernels' `Extra`
names it.
"""

_TRAITS = Traits(convex=False, smooth=True, curvature="majorizer", cost="O(m²)")


@dataclass(frozen=True)
class ApproxMetric(Loss):
    """1 − Z with the ranks of the metric Z replaced by smooth ones, r_j = 1 + Σ_{k≠j} σ((s_k − s_j)/T).

    With p_jk = σ((s_k − s_j)/T) and c(r) = 1/F(r):

        NDCG, DCG   Σ_j G_j·c(r_j), over the ideal DCG for NDCG; the loss for DCG is −Z
        AP          1/N Σ_{j relevant} (1 + Σ_{k relevant} p_jk) / r_j
        RR          Σ_{j relevant} 1/r_j · Π_{k relevant} (1 − p_jk)
        ERR         Σ_j R_j/r_j · Π_k (1 − R_k·p_jk)

    As T → 0 the ranks become integers, and the loss becomes that of the metric (tied documents share their mean rank).
    A cut-off @k multiplies c by a smooth step from 1 at rank k to 0 at rank k + 1. Discounts given as tables or
    callables, and that of LETOR, are interpolated between ranks (monotone cubic).

    Args:
        metric: NDCG, DCG, AP (``map``), RR (``mrr``) or ERR, with options as `toprank.metrics.parse` reads them.
        temperature: T.
        gain: gain of NDCG and DCG, unless the metric names its own.

    Queries whose labels do not affect the metric (equal gains, none or all relevant) contribute nothing.
    Weights: a document's weight multiplies its own term of the sum, not the ranks or the normalizer.
    Curvature: bound of that of the smooth ranks, with the metric linearized in them (see the module); for NDCG and DCG
    with a convex discount and no cut-off it bounds the Hessian from above.
    Cost: O(m²), memory O(m).
    Consistency: none known; the loss is not convex.
    Source: Qin, Liu & Li 2010, "A general approximation framework for direct optimization of IR measures".

    >>> from toprank import Queries
    >>> sharp = ApproxMetric("mrr", temperature=1e-3).on([0, 1, 0], Queries([0, 3]))
    >>> round(sharp.at([3.0, 2.0, 1.0]).value, 6)   # the relevant document is second
    0.5
    """

    traits: ClassVar[Traits] = _TRAITS

    metric: str | Measure = "ndcg"
    temperature: float = 0.1
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"

    def __post_init__(self) -> None:
        readable(self.metric, self, "needs a metric that is a function of ranks")
        _check(self)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return SmoothMetricBound(parse(self.metric), self.temperature, self.gain, judgments)


@dataclass(frozen=True)
class ApproxNDCG(Loss):
    """ApproxNDCG: 1 − Σ_j G_j / log2(1 + r_j) / ideal DCG, r_j = 1 + Σ_{k≠j} σ((s_k − s_j)/T).

    Args:
        temperature: T; smaller values are closer to NDCG but harder to optimize.
        k: cut-off of NDCG@k (a smooth step, see `ApproxMetric`); None: the whole list.
        gain: a name, a table or a callable.

    It is a special case of `ApproxMetric`.

    >>> from toprank import Queries
    >>> round(ApproxNDCG().on([1, 0], Queries([0, 2])).at([9.0, 0.0]).value, 9)
    0.0
    """

    traits: ClassVar[Traits] = _TRAITS

    temperature: float = 0.1
    k: int | None = None
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"

    def __post_init__(self) -> None:
        _check(self)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return SmoothMetricBound(NDCG(self.k), self.temperature, self.gain, judgments)


@dataclass(frozen=True)
class ApproxMRR(Loss):
    """ApproxMRR: 1 − Σ_{j relevant} 1/r_j · Π_{k relevant} σ((s_j − s_k)/T), r_j = 1 + Σ_{k≠j} σ((s_k − s_j)/T).

    The product selects the first relevant document, so the loss tends to 1 − RR for any number of relevant documents.

    Args:
        temperature: T.
        k: cut-off (a smooth step, see `ApproxMetric`); None: the whole list.
        rel: smallest relevant grade.

    It is a special case of `ApproxMetric`.
    """

    traits: ClassVar[Traits] = _TRAITS

    temperature: float = 0.1
    k: int | None = None
    rel: float = 1.0

    def __post_init__(self) -> None:
        _check(self)
        check_number("ApproxMRR's rel", self.rel)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return SmoothMetricBound(RR(self.k, self.rel), self.temperature, "linear", judgments)


def _check(loss: Any, width: str = "temperature") -> None:
    """Check hyper-parameters that these losses share."""
    name, own = type(loss).__name__, vars(loss)
    check_number(f"{name}'s {width}", own[width], above=0)
    if own.get("k") is not None:
        check_whole(f"{name}'s k", loss.k, 1)
    if "max_documents" in own:
        check_whole(f"{name}'s max_documents", loss.max_documents, 1)
    if "gain" in own:
        Gain.from_spec(loss.gain)


class SmoothDiscount:
    """c(r) = 1/F(r) and its slope between whole ranks.

    >>> value, slope = SmoothDiscount(Discount.from_spec("reciprocal"), None, 5)(np.array([2.0]))
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
        """Return c and dc/dr at real ranks of at least 1."""
        value, slope = self._uncut(rank)
        if self.cut is None:
            return value, slope
        t = np.clip(rank - self.cut, 0.0, 1.0)  # the step is flat outside of ranks k to k + 1
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
    """The Laplacian of the smooth ranks, whose weights are computed with each product."""

    pairs: tuple[FloatArray, IntArray, FloatArray, int, FloatArray, FloatArray]
    squared_scale: float
    values: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return self.squared_scale * by_columns(V, kernels.smooth_rank_flow, *self.pairs)

    @override
    def diagonal(self) -> FloatArray:
        return self.values


class SmoothMetricBound(BoundLoss):
    """1 − Z of smooth ranks (−Z for DCG), on data; see `ApproxMetric`."""

    def __init__(self, measure: Measure, temperature: float, gain: Any, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.temperature = temperature
        terms = metric_terms(measure, judgments, gain)
        self.kind, self.reads = terms.kind, terms.reads
        self.discount = SmoothDiscount(terms.discount, measure.depth, int(self.queries.sizes.max()))
        best, self.worth = metric_weights(terms, judgments)
        self.best = best if type(measure) is not DCG else np.zeros(len(best))

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        z, reads, extra_kind = scores / self.temperature, self.reads[block.rows], vars(kernels.Extra)[_EXTRA[self.kind]]
        above, extra, diagonal = np.empty_like(z), np.empty_like(z), np.empty_like(z)
        kernels.smooth_ranks(z, block.offsets, reads, extra_kind, above, extra)
        terms, rank_slope, extra_slope = self._terms(block.rows, above, extra)
        scale = block.broadcast(block.scale)
        pairs = (z, block.offsets, reads, extra_kind, scale * rank_slope, scale * extra_slope)
        kernels.smooth_rank_push(*pairs, grad, diagonal)
        grad /= self.temperature
        losses = self.best[block.queries] - block.sum(terms)
        if not requested.curvature:
            return losses, None
        return losses, SmoothRankCurvature(pairs, self.temperature**-2, diagonal / self.temperature**2)

    def _terms(self, rows: slice, above: FloatArray, extra: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each document's term of Z, −d/d(above), and the slope of `push` with respect to `extra`."""
        worth, (c, dc) = self.worth[rows], self.discount(1.0 + above)
        if self.kind == "dcg":
            return worth * c, -worth * dc, np.zeros_like(c)
        if self.kind == "ap":
            hits = 1.0 + extra
            return worth * c * hits, -worth * dc * hits, -worth * c
        return worth * c * extra, -worth * dc * extra, worth * c * extra


@dataclass(frozen=True)
class SoftRank(Loss):
    """SoftRank: 1 − E[NDCG] with independent scores N(s_j, noise²); ranks come from pairwise contests.

    Document i beats j with probability π_ij = Φ((s_i − s_j)/(√2·noise)). If these contests are treated as independent,
    the rank of j is 1 plus a Poisson-binomial number of winners over j, whose distribution p_j(r) is computed by a
    recursion over competitors. The loss is 1 − Σ_j G_j Σ_r p_j(r)/log2(1 + r) / ideal DCG, and tends to 1 − NDCG as the
    noise goes to 0.

    Args:
        noise: standard deviation of a score.
        k: cut-off of NDCG@k; None: the whole list.
        gain: a name, a table or a callable.
        max_documents: longest query allowed.

    Queries of equal gains contribute nothing.
    Weights: a document's weight multiplies its own term of the sum, not the ideal.
    Curvature: a diagonal that bounds the curvature of the contests, with the metric linearized in π. With u = (s_i −
    s_j)/(2·noise), |d²π/du²| ≤ (1 + u²)·dπ/du; the Laplacian of the pairs with these weights is at most twice its
    diagonal.
    Cost: O(m³) time and O(m²) memory per query, O(m²·k) and O(m·k) with a cut-off: the recursion runs once forward and
    once backward for each document with a gain.
    Consistency: none known; the loss is not convex.
    Source: Taylor, Guiver, Robertson & Minka 2008, "SoftRank: optimizing non-smooth rank metrics".

    >>> from toprank import Queries
    >>> quiet = SoftRank(noise=1e-3).on([0, 1], Queries([0, 2]))
    >>> bool(np.isclose(quiet.at([1.0, 0.0]).value, 1 - 1 / np.log2(3)))   # the relevant document is second
    True
    """

    traits: ClassVar[Traits] = Traits(convex=False, smooth=True, curvature="majorizer", cost="O(m³), memory O(m²)")

    noise: float = 1.0
    k: int | None = None
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"
    max_documents: int = 500

    def __post_init__(self) -> None:
        _check(self, "noise")

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        refuse_long_queries(self, self.max_documents, judgments.queries, "time grows with the cube of a query's length")
        return _SoftNDCG(self, judgments, 2.0 * self.noise, kernels.expected_ndcg)  # Φ(√2·u) = erfc(−u)/2


@dataclass(frozen=True)
class NeuralNDCG(Loss):
    """NeuralNDCG: 1 − Σ_r (X·G)_r / log2(1 + r) / ideal DCG, with a relaxed permutation matrix X that sorts the
    scores.

    NeuralSort gives the rows P_r = softmax_j(((m + 1 − 2r)·s_j − Σ_k |s_j − s_k|)/T), r = 1 … m, which sum to 1 and
    tend to the sorting permutation as T → 0. Sinkhorn scaling then divides alternately by the sums of columns and rows,
    so that no document counts more than once. The gradient is computed through all steps of the scaling. At tied scores
    |s_j − s_k| has a kink, where the gradient is the mean of both sides.

    Args:
        temperature: T.
        k: cut-off of NDCG@k; None: the whole list.
        gain: a name, a table or a callable.
        iterations: maximum rounds of Sinkhorn scaling; 0 gives plain NeuralSort.
        max_documents: longest query allowed.

    Queries of equal gains contribute nothing.
    Weights: a document's weight multiplies its own term of the sum, not the sorting or the ideal.
    Curvature: a diagonal of the scale of the softmaxes' curvature, Σ_r P_rj·|dL/dP_rj − mean|·(1 + b_rj²)/T² with b_rj
    = T·dlogit_rj/ds_j; a heuristic step size, not a proven bound.
    Cost: O(iterations·m²) time and O(m²) memory per query.
    Consistency: none known; the loss is not convex.
    Source: Pobrotyn & Białobrzeski 2021, "NeuralNDCG"; Grover et al. 2019, "Stochastic optimization of sorting networks
    via continuous relaxations".

    >>> from toprank import Queries
    >>> sharp = NeuralNDCG(temperature=1e-3).on([0, 1], Queries([0, 2]))
    >>> bool(np.isclose(sharp.at([1.0, 0.0]).value, 1 - 1 / np.log2(3)))   # the relevant document is second
    True
    """

    traits: ClassVar[Traits] = Traits(
        convex=False, smooth=False, curvature="majorizer", cost="O(iterations·m²), memory O(m²)"
    )

    temperature: float = 1.0
    k: int | None = None
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"
    iterations: int = 50
    max_documents: int = 1000

    def __post_init__(self) -> None:
        _check(self)
        check_whole("NeuralNDCG's iterations", self.iterations, 0)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        why = "memory grows with the square of a query's length"
        refuse_long_queries(self, self.max_documents, judgments.queries, why)
        return _SoftNDCG(self, judgments, self.temperature, kernels.relaxed_ndcgs, self.iterations)


class _SoftNDCG(BoundLoss):
    """1 − a soft NDCG of the scores over `width`; the kernel computes it with its first and second derivatives."""

    def __init__(
        self, loss: SoftRank | NeuralNDCG, judgments: Judgments, width: float, kernel: Callable[..., None], *more: int
    ) -> None:
        super().__init__(judgments)
        terms = metric_terms(NDCG(loss.k), judgments, loss.gain)
        self.width, self.kernel, self.more, self.rank_weights = width, kernel, more, terms.rank_weights
        self.best, self.worth = metric_weights(terms, judgments)

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        soft, diagonal = np.empty(block.n_queries), np.empty_like(scores)
        of_labels = block.offsets, self.worth[block.rows], self.rank_weights, *self.more
        self.kernel(scores / self.width, *of_labels, soft, grad, diagonal)
        scale = block.broadcast(block.scale) / self.width
        grad *= scale
        curvature = Diagonal(diagonal * (scale / self.width)) if requested.curvature else None
        return self.best[block.queries] - soft, curvature
