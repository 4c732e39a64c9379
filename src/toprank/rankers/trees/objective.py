"""From a loss of scores to what LightGBM asks for each round: a gradient and a curvature for every row and output.

LightGBM's step for a leaf is −Σ gradient / (Σ curvature + l2). The objective is the *sum* over queries (query weights
are scaled to a mean of 1), as in LightGBM's own ranking objectives, so that `l2` and `min_sum_hessian_in_leaf` mean
the same there and here. Sums are made in double precision; single precision begins where LightGBM begins.

Where a loss does not know its curvature but a bound of it, the bound may be loose by any factor, and trees that go by
it crawl: hinges and smoothed metrics are nearly straight where boosting starts, so that one tree is grown again and
again. Friedman (2001) asks the loss itself, by a search along each tree; LightGBM gives a tree its values before anyone
can look, so here each tree is searched for the sake of the next (`StepScale`).
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
"""The least curvature of a row that has a gradient, as a share of the mean curvature of all rows."""
_ROWS = 1 << 14
_DIGITS = 53  # of a double
_DOUBLINGS = 30  # a loss without a lower bound would have the steps doubled for ever


@dataclass(frozen=True)
class QuerySample:
    """A share of the queries, drawn anew each round without replacement; the round's number decides, not history."""

    queries: Queries
    fraction: float
    seed: int
    rank: int = 0
    """Which of several trainers draws; each has queries of its own."""

    def rows(self, round_number: int) -> npt.NDArray[np.bool_]:
        """Which documents take part: all documents of the drawn queries."""
        rng = np.random.default_rng([self.seed, round_number, *([self.rank] if self.rank else [])])
        count = max(1, round(self.fraction * len(self.queries)))
        drawn = np.zeros(len(self.queries), dtype=bool)
        drawn[rng.choice(len(self.queries), count, replace=False)] = True
        return self.queries.broadcast(drawn)


def put_on_grid(numbers: Single, *, above: bool = False, threads: int | None = None) -> None:
    """Round to multiples of a power of 2 that is so large that sums of any of them, in any order, are exact in float64.

    It is as small as that allows: among a million numbers, 2⁻³³ of the largest, which changes those only that are
    below 2⁻⁹ of it. With `above`, what is above 0 stays so: a row that has a gradient keeps a curvature.
    """
    largest = max(float(numbers.max()), -float(numbers.min()))
    if largest == 0:
        return
    exponent = math.frexp(largest)[1] + max(2, math.ceil(math.log2(len(numbers))))  # no sum is above 2 to this
    step, shift = math.ldexp(1.0, exponent - _DIGITS), math.ldexp(1.5, exponent - 1)

    def settle(rows: slice) -> None:
        values = numbers[rows].astype(np.float64)
        settled = (values + shift) - shift  # doubles of the size of `shift` are whole steps
        if above:
            np.copyto(settled, step, where=(values > 0) & (settled == 0))
        numbers[rows] = settled  # exactly: what keeps more digits than float32 has was a whole number of steps before

    each_block(settle, row_parts(slice(0, len(numbers)), _ROWS), threads)


class TrainerGroup(Protocol):
    """Several trainers of the same trees, each with queries of its own."""

    rank: int
    factor: float
    """What a gradient of the mean is multiplied by: the number of queries of all trainers."""

    def sum(self, numbers: FloatArray) -> FloatArray:
        """The sum over all trainers; each must ask at the same point."""


class Judged(NamedTuple):
    """A loss at some scores."""

    scores: FloatArray
    value: float
    grad: FloatArray
    diagonal: FloatArray


def needs_search(loss: Loss) -> bool:
    """Whether the loss has a value to search by, the same in all rounds, and a curvature far from its own."""
    traits = loss.traits
    return traits.exact_gradient and not traits.random and traits.curvature != "exact"


class StepScale:
    """By which share of the bound steps may go, from how the loss fell along the last tree.

    Along the tree h from the scores s the bound c promises the length t = −g·h/(h·c·h), and that the loss falls by half
    of what its slope says, ½·t·|g·h|: that is where a parabola has its minimum. As long as twice the length keeps the
    same promise, the bound is too large by another factor of 2.

    Args:
        bound: the loss on the training data.
        before: the scores without the last tree, where training goes on from a model.
        factor: what a mean over these queries is multiplied by to be a part of the sum over all.
        threads: number of threads; results do not depend on it.
        together: the other trainers, where there are any.
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
        """The loss at these scores, with the bound of its curvature."""
        now = self.bound.at(scores, curvature=True, threads=self.threads)
        assert now.curvature is not None
        return Judged(np.array(scores), now.value, now.grad, now.curvature.diagonal())

    def share(self, now: Judged) -> float:
        """What the bound is multiplied by for the next tree: 1, ½, ¼ …"""
        last, self.last = self.last, now
        if last is None:
            return 1.0
        tree = now.scores - last.scores
        value, slope, bend = self._sum(last.value, float(last.grad @ tree), float(tree @ (last.diagonal * tree)))
        if not (slope < 0 and bend > 0):
            return 1.0
        length, share = -slope / bend, 1.0
        for _ in range(_DOUBLINGS):
            there = last.scores + 2.0 * length * tree
            if not self._value(there) <= value + length * slope:
                break
            length, share = 2.0 * length, share / 2.0
        return share

    def _value(self, scores: FloatArray) -> float:
        # A trainer that refused its scores alone would leave the others waiting.
        usable = np.isfinite(scores).all()
        return float(self._sum(self.bound.at(scores, threads=self.threads).value if usable else np.inf)[0])

    def _sum(self, *parts: float) -> FloatArray:
        own = self.factor * np.array(parts, dtype=np.float64)
        return own if self.together is None else self.together.sum(own)


class TreeObjective(ABC):
    """A LightGBM objective ``(raw, dataset) -> (gradient, curvature)``; its buffers are filled anew each round.

    Args:
        bound: the loss on the training data.
        intercept: what is added to the output of the trees, one number for each output.
        sample: queries of a round; the others have neither gradient nor curvature. None: all.
        rounds: how many rounds were made before (continued training).
        threads: number of threads; results do not depend on it.
        together: the other trainers, where there are any.
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
        """Fill the two buffers at the trees' outputs, (n,) or (n, outputs); False where a number is not finite."""

    @abstractmethod
    def scores(self, raw: FloatArray) -> FloatArray:
        """The scores that rank the documents, from the trees' outputs."""

    def __call__(self, raw: FloatArray) -> tuple[Single, Single]:
        """Gradient and curvature at the trees' outputs."""
        with np.errstate(over="ignore", invalid="ignore"):  # looked after here
            usable = bool(np.isfinite(raw).all())
            if self.together is None:
                finite = usable and self.fill(raw)
            else:  # one that gave up alone would leave the others waiting
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
        """Gradient and curvature of the loss at these scores; one that draws does so for this round."""
        return self.bound.resampled(self.rounds).derivatives(scores, threads=self.threads)

    def floor(self, diagonal: FloatArray, factor: float) -> float:
        """The least curvature of a row that has a gradient: a share of the mean over all rows, of all trainers."""
        if self.together is None:
            return FLOOR * factor * float(diagonal.mean())
        total, rows = self.together.sum(np.array([factor * float(diagonal.sum()), float(diagonal.size)]))
        return FLOOR * float(total / rows)

    def pack(self, grad: FloatArray, diagonal: FloatArray, curvature_factor: float, floor: float) -> bool:
        """Fill the two buffers with scaled copies in single precision; whether all of them are finite."""
        factors = self.factor, curvature_factor, floor
        return bool(kernels.pack_gradients(grad, diagonal, *factors, self.grad, self.curvature))


class ScoreObjective(TreeObjective):
    """One output a document: its score. The curvature is the diagonal of the loss's own, or its share by the stride."""

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

    The curvature is p(1 − p)·K/(K − 1): the K trees of a round move at once, and the factor is Friedman's (2001) share.
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
    """One output for each grade; the score is Σ_k G(k) P(k) with P = softmax of the outputs, judged by any loss.

    With a_k = ∂s/∂z_k = P_k (G_k − s), A = Σ_k |a_k|, g = ∂L/∂s and c the loss's curvature: the gradient is a_k·g and
    the curvature |a_k|·(A·c + |g|). The first part bounds the Gauss-Newton term of all K trees moving at once, since
    (Σ a_k δ_k)² ≤ A Σ |a_k| δ_k²; with it alone they would move the score by one Newton step of the loss. The second
    stands for how the softmax bends, s'' = Σ a_k (δ_k − mean δ)², and keeps every step below 1.
    """

    @override
    def fill(self, raw: FloatArray) -> bool:
        chances = np.empty(raw.shape)
        scores = np.empty(len(raw))

        def forward(rows: slice) -> None:
            chances[rows] = grade_probabilities(raw[rows] + self.intercept)
            scores[rows] = expected_gains(chances[rows], self.gains)

        each_block(forward, row_parts(slice(0, len(raw)), _ROWS), self.threads)
        grad, diagonal = self.derivatives(scores)
        of_scores = grad, diagonal, self.factor
        return bool(kernels.chain_gradients(chances, scores, self.gains, *of_scores, self.grad, self.curvature))


def diverging(rounds: int) -> DataError:
    """What to say where scores or gradients cease to be finite."""
    return DataError(
        f"Training diverges: after {rounds} rounds the scores or the gradient of the loss are not finite. Lower "
        "learning_rate, raise l2 or min_data_in_leaf, or look for labels of enormous gain."
    )
