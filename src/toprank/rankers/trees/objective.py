"""Gradient and curvature of a loss for each row and output, as LightGBM requests them in each round.

LightGBM's value of a leaf is −Σ gradient / (Σ curvature + l2). The objective is the *sum* over queries (query weights
are scaled to a mean of 1), as in LightGBM's own ranking objectives, so `l2` and `min_sum_hessian_in_leaf` have the same
meaning. Sums are computed in double precision and rounded to single precision for LightGBM.

If a loss provides only an upper bound of its curvature, the bound may be loose by any factor, and training becomes
slow: hinges and smoothed metrics are nearly linear at the start of boosting, so nearly the same tree is repeated.
Friedman (2001) performs a line search along each tree; LightGBM sets the values of a tree before a search is possible,
so here the search along each tree scales the next one (`StepScale`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, each_block, row_parts
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import BoundLoss, Loss
from toprank.scorers.expected_gain import expected_gains, grade_probabilities

Single = npt.NDArray[np.float32]

FLOOR = 1e-6
"""Minimum curvature of a row with a gradient, as a fraction of the mean curvature of all rows."""
_ROWS_PER_BLOCK = 1 << 14
_DOUBLE_BITS = 53  # of the significand
_MAX_DOUBLINGS = 30  # steps for a loss without a lower bound would double forever


@dataclass(frozen=True)
class QuerySample:
    """A random fraction of the queries for each round, without replacement; it depends only on seed and round."""

    queries: Queries
    fraction: float
    seed: int
    rank: int = 0
    """The index of the trainer; each trainer has its own queries."""

    def rows(self, round_number: int) -> npt.NDArray[np.bool_]:
        """Return the mask of the documents in the sampled queries."""
        rng = np.random.default_rng([self.seed, round_number, *([self.rank] if self.rank else [])])
        count = max(1, round(self.fraction * len(self.queries)))
        drawn = np.zeros(len(self.queries), dtype=bool)
        drawn[rng.choice(len(self.queries), count, replace=False)] = True
        return self.queries.broadcast(drawn)


def put_on_grid(numbers: Single, *, above: bool = False, threads: int | None = None) -> None:
    """Round to multiples of a power of 2 for which sums of any subset, in any order, are exact in float64.

    The power is as small as possible: for a million numbers, 2⁻³³ of the largest, which changes only numbers below 2⁻⁹
    of it. With `above`, positive numbers stay positive, so a row with a gradient keeps its curvature.
    """
    largest = max(float(numbers.max()), -float(numbers.min()))
    if largest == 0:
        return
    exponent = math.frexp(largest)[1] + max(2, math.ceil(math.log2(len(numbers))))  # every sum is below 2 to this power
    step, shift = math.ldexp(1.0, exponent - _DOUBLE_BITS), math.ldexp(1.5, exponent - 1)

    def settle(rows: slice) -> None:
        values = numbers[rows].astype(np.float64)
        settled = (values + shift) - shift  # doubles of the magnitude of `shift` are multiples of the step
        if above:
            np.copyto(settled, step, where=(values > 0) & (settled == 0))
        numbers[rows] = settled  # exact: numbers with more digits than float32 were multiples of the step already

    each_block(settle, row_parts(slice(0, len(numbers)), _ROWS_PER_BLOCK), threads)


class TrainerGroup(Protocol):
    """Several trainers of the same trees, each with its own queries."""

    rank: int
    factor: float
    """The factor for gradients of the mean: the number of queries of all trainers."""

    def sum(self, numbers: FloatArray) -> FloatArray:
        """Return the sum over all trainers, which must all call it at the same point."""


class Judged(NamedTuple):
    """The loss and its derivatives at some scores."""

    scores: FloatArray
    value: float
    grad: FloatArray
    diagonal: FloatArray


def needs_search(loss: Loss) -> bool:
    """Return whether the loss needs a line search: it has a deterministic value, and a curvature that is not exact."""
    traits = loss.traits
    return traits.exact_gradient and not traits.random and traits.curvature != "exact"


class StepScale:
    """Scales the curvature bound by a line search along the last tree.

    Along the tree h from the scores s, the bound c predicts the step length t = −g·h/(h·c·h) and a decrease of
    ½·t·|g·h|, the minimum of a parabola. As long as twice the length achieves the predicted decrease, the bound is
    halved.

    Args:
        bound: the loss on the training data.
        before: the scores without the last tree, if training continues a model.
        factor: the factor from a mean over these queries to a sum over all.
        threads: number of threads; has no effect on results.
        together: the group of trainers, if there are several.
    """

    def __init__(
        self,
        bound: BoundLoss,
        before: FloatArray | None,
        *,
        factor: float,
        threads: int | None = None,
        together: TrainerGroup | None = None,
    ) -> None:
        self.bound, self.factor, self.threads, self.together = bound, factor, threads, together
        self.last = None if before is None else self.judge(before)

    def judge(self, scores: FloatArray) -> Judged:
        """Return the loss at these scores, with the bound of its curvature."""
        now = self.bound.at(scores, curvature=True, threads=self.threads)
        assert now.curvature is not None
        return Judged(np.array(scores), now.value, now.grad, now.curvature.diagonal())

    def share(self, now: Judged) -> float:
        """Return the factor of the bound for the next tree: 1, ½, ¼ …"""
        last, self.last = self.last, now
        if last is None:
            return 1.0
        tree = now.scores - last.scores
        value, slope, bend = self._sum(last.value, float(last.grad @ tree), float(tree @ (last.diagonal * tree)))
        if not (slope < 0 and bend > 0):
            return 1.0
        length, share = -slope / bend, 1.0
        for _ in range(_MAX_DOUBLINGS):
            there = last.scores + 2.0 * length * tree
            if not self._value(there) <= value + length * slope:
                break
            length, share = 2.0 * length, share / 2.0
        return share

    def _value(self, scores: FloatArray) -> float:
        # A trainer that raised alone would block the others.
        usable = np.isfinite(scores).all()
        return float(self._sum(self.bound.at(scores, threads=self.threads).value if usable else np.inf)[0])

    def _sum(self, *parts: float) -> FloatArray:
        own = self.factor * np.array(parts, dtype=np.float64)
        return own if self.together is None else self.together.sum(own)


class TreeObjective(ABC):
    """A LightGBM objective ``(raw, dataset) -> (gradient, curvature)`` with reused buffers.

    Args:
        bound: the loss on the training data.
        intercept: the constant added to each output of the trees.
        sample: the queries of a round; others have no gradient and no curvature. None for all.
        rounds: number of earlier rounds, if training continues.
        threads: number of threads; has no effect on results.
        together: the group of trainers, if there are several.
    """

    def __init__(
        self,
        bound: BoundLoss,
        intercept: FloatArray,
        *,
        sample: QuerySample | None = None,
        rounds: int = 0,
        threads: int | None = None,
        together: TrainerGroup | None = None,
    ) -> None:
        self.bound, self.intercept, self.sample, self.rounds, self.threads = bound, intercept, sample, rounds, threads
        self.together = together
        shape = (len(intercept), bound.queries.n_documents)
        self.grad: Single = np.zeros(shape, dtype=np.float32)
        self.curvature: Single = np.zeros(shape, dtype=np.float32)
        self.factor = float(len(bound.queries)) if together is None else together.factor

    @abstractmethod
    def fill(self, raw: FloatArray) -> bool:
        """Fill both buffers at the trees' outputs, (n,) or (n, outputs); return False if a number is not finite."""

    @abstractmethod
    def scores(self, raw: FloatArray) -> FloatArray:
        """Return the ranking scores from the trees' outputs."""

    def __call__(self, raw: FloatArray) -> tuple[Single, Single]:
        """Return gradient and curvature at the trees' outputs."""
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            usable = bool(np.isfinite(raw).all())
            if self.together is None:
                finite = usable and self.fill(raw)
            else:  # a trainer that raised alone would block the others
                finite = self.fill(raw if usable else np.zeros_like(raw)) and usable
                finite = not self.together.sum(np.array([float(not finite)]))[0]
        if not finite:
            raise diverging(self.rounds)
        self.rounds += 1
        if self.sample is not None:
            left_out = ~self.sample.rows(self.rounds)
            self.grad[:, left_out] = 0.0
            self.curvature[:, left_out] = 0.0
        for grad, curvature in zip(self.grad, self.curvature, strict=True):
            put_on_grid(grad, threads=self.threads)
            put_on_grid(curvature, above=True, threads=self.threads)
        return (self.grad[0], self.curvature[0]) if len(self.grad) == 1 else (self.grad.T, self.curvature.T)

    def derivatives(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gradient and curvature of the loss at these scores; stochastic losses draw for this round."""
        return self.bound.resampled(self.rounds).derivatives(scores, threads=self.threads)

    def floor(self, diagonal: FloatArray, factor: float) -> float:
        """Return the minimum curvature of a row with a gradient, from the mean over all rows of all trainers."""
        if self.together is None:
            return FLOOR * factor * float(diagonal.mean())
        total, rows = self.together.sum(np.array([factor * float(diagonal.sum()), float(diagonal.size)]))
        return FLOOR * float(total / rows)

    def pack(self, grad: FloatArray, diagonal: FloatArray, curvature_factor: float, floor: float) -> bool:
        """Fill both buffers with scaled values in single precision; return whether all are finite."""
        factors = self.factor, curvature_factor, floor
        return bool(kernels.pack_gradients(grad, diagonal, *factors, self.grad, self.curvature))


class ScoreObjective(TreeObjective):
    """One output per document, its score. The curvature is the diagonal of the loss's, scaled by `stride` if given."""

    stride: StepScale | None = None

    @override
    def fill(self, raw: FloatArray) -> bool:
        if self.stride is None:
            grad, diagonal = self.derivatives(self.scores(raw))
        else:
            now = self.stride.judge(self.scores(raw))
            grad, diagonal = now.grad, self.stride.share(now) * now.diagonal
        floor = self.floor(diagonal, self.factor)
        return self.pack(grad[:, None], diagonal[:, None], self.factor, floor)

    @override
    def scores(self, raw: FloatArray) -> FloatArray:
        return raw + self.intercept[0] if self.intercept[0] else raw


class LikelihoodObjective(TreeObjective):
    """One output for each grade, trained on the likelihood of the grades (McRank).

    The curvature is p(1 − p)·K/(K − 1), because the K trees of a round change simultaneously; the factor is Friedman's
    (2001).
    """

    def __init__(self, bound: BoundLoss, intercept: FloatArray, gains: FloatArray, **options: object) -> None:
        super().__init__(bound, intercept, **options)  # type: ignore[arg-type]
        self.gains = gains

    @override
    def fill(self, raw: FloatArray) -> bool:
        grad, diagonal = self.derivatives(raw + self.intercept)
        outputs = len(self.intercept)
        more = self.factor * outputs / (outputs - 1)
        floor = self.floor(diagonal, more)
        return self.pack(grad, diagonal, more, floor)

    @override
    def scores(self, raw: FloatArray) -> FloatArray:
        return expected_gains(grade_probabilities(raw + self.intercept), self.gains)


class ExpectedGainObjective(LikelihoodObjective):
    """One output for each grade; the score is Σ_k G(k) P(k) with P = softmax of the outputs, under any loss.

    With a_k = ∂s/∂z_k = P_k (G_k − s), A = Σ_k |a_k|, g = ∂L/∂s and c the curvature of the loss, the gradient is a_k·g
    and the curvature |a_k|·(A·c + |g|). The first term bounds the Gauss-Newton term of all K trees changing
    simultaneously, since (Σ a_k δ_k)² ≤ A Σ |a_k| δ_k²; alone it would change the score by one Newton step of the loss.
    The second represents the curvature of the softmax, s'' = Σ a_k (δ_k − mean δ)², and keeps every step below 1.
    """

    @override
    def fill(self, raw: FloatArray) -> bool:
        chances = np.empty(raw.shape)
        scores = np.empty(len(raw))

        def forward(rows: slice) -> None:
            chances[rows] = grade_probabilities(raw[rows] + self.intercept)
            scores[rows] = expected_gains(chances[rows], self.gains)

        each_block(forward, row_parts(slice(0, len(raw)), _ROWS_PER_BLOCK), self.threads)
        grad, diagonal = self.derivatives(scores)
        of_scores = grad, diagonal, self.factor
        return bool(kernels.chain_gradients(chances, scores, self.gains, *of_scores, self.grad, self.curvature))


def diverging(rounds: int) -> DataError:
    """Return the error for scores or gradients that are not finite."""
    return DataError(
        f"Training diverges: after {rounds} rounds the scores or the gradient of the loss are not finite. Lower "
        "learning_rate, raise l2 or min_data_in_leaf, or check for labels with an extremely large gain."
    )
