"""Losses that compare a target distribution over documents with softmax(s).

All of them have the form Σ_j t_j (−s_j + log Σ_k e^{s_k}) and differ only in the targets t, which depend on the labels
and are computed once. With T = Σ_j t_j and p = softmax(s), the gradient is T·p − t and the Hessian T·(diag(p) − p pᵀ).

ListNet with k > 1 compares two Plackett–Luce distributions of the first k documents. A choice of k documents in order
has the loss Σ_i (−s_{j_i} + log Σ_{not chosen before i} e^s). Its expectation needs no sum over all choices of k. It is
the expected loss of one step, summed over the *prefixes* A (ordered choices of fewer than k documents), each with its
probability P(A) under the target:

    Σ_A P(A)·log Σ_{j ∉ A} e^{s_j} − Σ_j P(j among the first k)·s_j.

There are about m^(k−1) prefixes instead of m^k choices. They are enumerated and never stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.errors import DataError, UnknownNameError
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Judgments, Loss, Requested, Traits, by_columns
from toprank.losses.labels import check_gain
from toprank.metrics.conventions import Gain

PSI = ("linear", "exponential")
MAX_PREFIXES = 1_000_000  # per query; about 0.1 s for each evaluation


def check_psi(psi: str) -> None:
    """Raise an error for an unknown ψ."""
    if psi not in PSI:
        raise UnknownNameError("psi", psi, PSI)


def psi_of(judgments: Judgments, psi: str, loss: Loss, alpha: float = 1.0) -> FloatArray:
    """Return ψ of each label: α·y, or α·(2^y − 1) for labels of at least 0."""
    with np.errstate(over="ignore"):
        wanted = alpha * judgments.checked_gains(None if psi == "linear" else "exponential", loss)
    if not np.isfinite(wanted).all():
        row = int(np.argmin(np.isfinite(wanted)))
        raise DataError(
            f"{type(loss).__name__} cannot take the label {judgments.labels[row]:g} of document {row}: ψ overflows. "
            "Choose a smaller alpha, psi='linear', or smaller grades."
        )
    return np.ascontiguousarray(wanted)


def count_prefixes(m: int, top_k: int | None) -> int:
    """Return the number of ordered choices of fewer than k of m documents; the last document is not counted.

    >>> count_prefixes(100, 2), count_prefixes(100, 3), count_prefixes(5, None)
    (101, 10001, 86)
    """
    total, choices = 0, 1
    for length in range(_steps(m, top_k)):
        total += choices
        choices *= m - length
    return total


def _steps(m: int, top_k: int | None) -> int:
    """Return the number of nontrivial choices: k, or less for short queries."""
    return m - 1 if top_k is None else min(top_k, m - 1)


class TopKBound(BoundLoss):
    """ListNet for the first `top_k` documents (None: all) with target strengths ψ(y).

    A document's weight multiplies the step in which it is chosen.
    """

    def __init__(self, psi: FloatArray, top_k: int | None, judgments: Judgments) -> None:
        super().__init__(judgments)
        queries, n = self.queries, len(psi)
        _refuse_long_lists(queries.sizes, top_k)
        self.psi, self.weights = psi, judgments.weights
        self.top_k = int(queries.sizes.max()) if top_k is None else top_k
        # At s = ψ model and target have the same expected choices, P(j among the first k).
        chosen, whole = np.empty(n), self.slice(0, len(queries))
        of_labels, everywhere = (psi, np.ones(n), np.zeros(n)), np.ones(len(queries))
        spare = np.empty(len(queries)), chosen, np.empty(n)
        kernels.top_k_moments(psi, *of_labels, everywhere, self.top_k, whole.offsets, *spare)
        self.targets: FloatArray = chosen * self.weights

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses = np.empty(block.n_queries)
        self.moments(block, scores, self.targets, losses, grad, np.empty(len(scores)))
        return losses, _TopKCurvature(self, block, scores.copy()) if requested.curvature else None

    def moments(self, block: Block, scores: FloatArray, targets: FloatArray, *filled: FloatArray) -> None:
        """Compute losses, gradient, and the part that the diagonal of the curvature subtracts; see
        `native/listnet_topk.c`.
        """
        of_labels = self.psi[block.rows], self.weights[block.rows], targets[block.rows]
        kernels.top_k_moments(scores, *of_labels, block.scale, self.top_k, block.offsets, *filled)


@dataclass(frozen=True)
class _TopKCurvature(Curvature):
    """Σ_A P(A)·(diag(q) − q qᵀ) with q the softmax outside A; each product enumerates the prefixes A again."""

    bound: TopKBound
    block: Block
    scores: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        bound, block = self.bound, self.block
        of_labels = bound.psi[block.rows], bound.weights[block.rows]
        return by_columns(V, kernels.top_k_times, self.scores, *of_labels, block.scale, bound.top_k, block.offsets)

    @override
    def diagonal(self) -> FloatArray:
        once, twice = np.empty(len(self.scores)), np.empty(len(self.scores))
        losses, nothing = np.empty(self.block.n_queries), np.zeros_like(self.bound.targets)
        self.bound.moments(self.block, self.scores, nothing, losses, once, twice)
        return np.maximum(once - twice, 0.0)  # Σ q(1 − q) ≥ 0 up to rounding


def _refuse_long_lists(sizes: IntArray, top_k: int | None) -> None:
    longest = int(np.argmax(sizes))
    m = int(sizes[longest])
    if _steps(m, top_k) <= 1 or (prefixes := count_prefixes(m, top_k)) <= MAX_PREFIXES:
        return
    feasible = max(k for k in range(1, 4) if count_prefixes(m, k) <= MAX_PREFIXES)
    raise DataError(
        f"ListNet with top_k={top_k} would enumerate {_rounded(prefixes)} ordered choices for query number {longest} "
        f"(from 0) with its {m:,} documents; at most {MAX_PREFIXES:,} are allowed. "
        f"Choose top_k={feasible}, or shorten the lists."
    )


def _rounded(count: int) -> str:
    # Use the logarithm, because Python does not format numbers of more than 4,300 digits.
    return f"{count:,}" if count < 10**15 else f"about 10^{math.floor(math.log10(count))}"


@dataclass(frozen=True)
class ListNet(Loss):
    """ListNet: cross entropy between the Plackett–Luce top-k distributions of ψ(y) and of s.

    For k = 1 this is −Σ_j softmax(ψ(y))_j · log softmax(s)_j. For larger k the distributions are over the ordered
    choices of the first k documents, P(j_1 … j_k) = Π_i e^{s_{j_i}} / Σ_{documents not yet chosen} e^s, and for
    ``top_k=None`` over whole permutations. A list of equal labels contributes as well: its target is equal scores.

    Args:
        alpha: sharpness of the target, > 0; usually chosen from 0.1, 0.3, 0.5, 0.7, 1, 2, 5, 10.
        psi: ``linear`` ψ(y) = α·y, or ``exponential`` ψ(y) = α·(2^y − 1).
        top_k: 1, another integer, or None for whole permutations.

    Weights: a document's weight multiplies the term in which it is chosen, not the normalizing sums.
    Cost: O(m) for k = 1. Otherwise all ordered choices of fewer than k documents are enumerated, about m^(k−1); a query
    may have at most `toprank.losses.softmax.MAX_PREFIXES` of them.
    Consistency: the minimizer for k = 1 orders by E[softmax(ψ(y))_j | X], which is no E[G(y_j) | X].
    Source: Cao et al. 2007, "Learning to rank: from pairwise approach to listwise approach".

    >>> from toprank import Queries
    >>> eval = ListNet().on([1, 0], Queries([0, 2])).at([1.0, 0.0])
    >>> bool(abs(eval.grad).max() < 1e-15)   # the scores already are ψ(y)
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, cost="O(m) for top_k=1, else about O(k·m^(k-1))")

    alpha: float = 1.0
    psi: str = "linear"
    top_k: int | None = 1

    def __post_init__(self) -> None:
        check_psi(self.psi)
        check_number("ListNet's alpha", self.alpha, above=0)
        if self.top_k is not None:
            check_whole("ListNet's top_k", self.top_k, 1)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        wanted, queries = psi_of(judgments, self.psi, self, self.alpha), judgments.queries
        if self.top_k != 1:
            return TopKBound(wanted, self.top_k, judgments)
        targets = np.exp(wanted - queries.broadcast(queries.max(wanted)))
        targets /= queries.broadcast(queries.sum(targets))
        return SoftmaxBound(targets, judgments)


@dataclass(frozen=True)
class Multicategory(Loss):
    """Weighted softmax: the reduction of ranking to multi-category classification, Σ_j t_j (−s_j + log Σ_k e^{s_k}),
    t = G(y).

    The weights t are not normalized, so a query with large total gain counts more, and a query without relevant
    documents contributes nothing. With a single t = 1 it is softmax classification.

    Args:
        gain: a name (``exponential``, ``linear`` …), a table with the gain of each grade, or a callable. None uses the
            labels, which may then be negative (estimated gains). The loss is not convex if their sum over a query is
            negative; boosting then uses the curvature of the other queries.

    Weights: a document's weight multiplies its t.
    Cost: O(m).
    Consistency: softmax(s)_j ∝ E[G(y_j) | X] at the minimizer, so the order is optimal for DCG with gain G.
    Source: Cossock & Zhang 2008, "Statistical analysis of Bayes optimal subset ranking", section IV-A.

    >>> from toprank import Queries
    >>> float(Multicategory().on([1, 0], Queries([0, 2])).at([0.0, 0.0]).value) == float(np.log(2))
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True, consistent="DCG with the gain G", linear_in_gain=True)

    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] | None = "exponential"

    def __post_init__(self) -> None:
        check_gain(self.gain, None)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return SoftmaxBound(judgments.checked_gains(self.gain, self), judgments)


@dataclass(frozen=True)
class XENDCG(Loss):
    """XE-NDCG: cross entropy between t_j = (2^{y_j} − γ_j) / Σ_k (2^{y_k} − γ_k) and softmax(s).

    The γ_j are sampled uniformly from [0, 1] once, when the loss is bound, by the seed and the document's row. The
    result thus depends on the order of rows and queries, but its distribution does not. A number for `gamma` (0.5 is
    the mean) makes the loss deterministic.

    Args:
        gamma: ``uniform``, or a number in [0, 1] for all documents.
        seed: seed of the sample.

    Weights: a document's weight multiplies its t, after the normalization.
    Cost: O(m).
    Consistency: the minimizer orders by E[t_j | X]. The paper proves a convex bound on NDCG and consistency under
    conditions; the traits do not declare it.
    Source: Bruch 2021, "An alternative cross entropy loss for learning-to-rank".

    >>> from toprank import Queries
    >>> eval = XENDCG(gamma=0.5).on([1, 0], Queries([0, 2])).at([0.0, 0.0])   # t = (3/4, 1/4)
    >>> eval.grad.tolist()
    [-0.25, 0.25]
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True)

    gamma: float | str = "uniform"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.gamma != "uniform":
            check_number("XENDCG's gamma, if not 'uniform',", self.gamma, least=0, most=1)
        check_whole("XENDCG's seed", self.seed, 0)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        gains, queries = judgments.checked_gains("exponential", self), judgments.queries
        gamma = np.random.default_rng(self.seed).random(len(gains)) if self.gamma == "uniform" else float(self.gamma)
        # Compute 2^y − γ as (2^y − 1) + (1 − γ), which is exact for γ near 1 and y = 0.
        targets = gains + (1 - gamma)
        totals = queries.sum(targets)
        # With γ = 1, queries without relevant documents have a total of zero and contribute nothing.
        targets /= queries.broadcast(np.where(totals > 0, totals, 1.0))
        return SoftmaxBound(targets, judgments)


WeightedSoftmax = Multicategory
"""Another name of `Multicategory`: softmax cross-entropy with weights that are not normalized."""


@dataclass(frozen=True)
class CalibratedSoftmax(Loss):
    """Softmax with an anchor: Σ_j t_j (−s_j + log Z) + a·log Z, Z = 1 + Σ_k e^{s_k}, t = G(y).

    The anchor is an additional document of each query with the score 0 and the target a. It fixes the scale, which
    other softmax losses leave undetermined: at the minimum a·e^{s_j} is the expected gain. Scores are therefore
    comparable between queries, and a query without relevant documents lowers all its scores.

    Args:
        anchor: target a of the score 0, > 0: the expected gain of a document with score 0.
        gain: as in `Multicategory`; None uses the labels.

    Weights: a document's weight multiplies its t.
    Cost: O(m).
    Consistency: e^{s_j} ∝ E[G(y_j) | X] at the minimizer, so the order is optimal for DCG with gain G.
    Source: Yan, Qin, Wang, Bendersky & Najork 2022, "Scale calibration of deep ranking models".

    >>> from toprank import Queries
    >>> eval = CalibratedSoftmax(anchor=0.5, gain="linear").on([2, 1], Queries([0, 2])).at(np.log([4.0, 2.0]))
    >>> bool(abs(eval.grad).max() < 1e-15)   # 0.5·e^s already is the gain
    True
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, shift_invariant=False, consistent="DCG with the gain G", linear_in_gain=True
    )

    anchor: float = 1.0
    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] | None = "exponential"

    def __post_init__(self) -> None:
        check_number("CalibratedSoftmax's anchor", self.anchor, above=0)
        check_gain(self.gain, None)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _AnchoredBound(judgments.checked_gains(self.gain, self), self.anchor, judgments)


class _AnchoredBound(BoundLoss):
    """`SoftmaxBound` with an additional document in each query, of score 0 and target `anchor`."""

    def __init__(self, targets: FloatArray, anchor: float, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.targets = judgments.weighted(targets)
        self.mass: FloatArray = self.queries.sum(self.targets) + anchor
        self.anchor = anchor

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        targets, mass = self.targets[block.rows], self.mass[block.queries]
        top = np.maximum(np.maximum.reduceat(scores, block.offsets[:-1]), 0.0)
        below = scores - block.broadcast(top)
        exponentials = np.exp(below)
        total = block.sum(exponentials) + np.exp(-top)
        losses = mass * np.log(total) + self.anchor * top - block.sum(targets * below)
        probabilities = exponentials / block.broadcast(total)
        grad[:] = block.broadcast(mass * block.scale) * probabilities - block.broadcast(block.scale) * targets
        if not requested.curvature:
            return losses, None
        return losses, SoftmaxCurvature(probabilities, mass * block.scale, block.offsets)


class SoftmaxBound(BoundLoss):
    """Σ_j t_j (−s_j + log Σ_k e^{s_k}) for given targets t, multiplied by document weights."""

    def __init__(self, targets: FloatArray, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.targets = judgments.weighted(targets)
        self.mass: FloatArray = self.queries.sum(self.targets)

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, mass = np.empty(block.n_queries), self.mass[block.queries]
        kernels.cross_entropy(scores, self.targets[block.rows], mass, block.scale, block.offsets, grad, losses)
        if not requested.curvature:
            return losses, None
        probabilities = np.empty(len(scores))
        kernels.softmax(scores, block.offsets, probabilities)
        return losses, SoftmaxCurvature(probabilities, mass * block.scale, block.offsets)


@dataclass(frozen=True)
class SoftmaxCurvature(Curvature):
    """c·(diag(p) − p pᵀ) in each query, p summing to at most 1; the diagonal omits negative parts (c < 0)."""

    probabilities: FloatArray
    masses: FloatArray
    offsets: IntArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return by_columns(V, kernels.softmax_times, self.probabilities, self.masses, self.offsets)

    @override
    def diagonal(self) -> FloatArray:
        p = self.probabilities
        masses = np.maximum(self.masses, 0.0)  # boosting divides by the diagonal, which must not be negative
        return np.repeat(masses, np.diff(self.offsets)) * p * (1 - p)
