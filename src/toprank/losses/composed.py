"""Losses composed of losses: a weighted mean of two, and any loss at scores with Gumbel noise."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.errors import DataError
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Judgments, Loss, Requested, Traits, make
from toprank.losses.random_stream import RandomStream

_MAX_SAMPLES = 1000
"""The mean of this many samples has a thirtieth of the standard deviation of one."""
_LOOSEST_FIRST = ("majorizer", "gauss-newton", "exact")


@dataclass(frozen=True)
class Mix(Loss):
    """weight·first + (1 − weight)·second: a loss on a teacher's scores with one on labels, or any other two.

    Losses have different scales (a mean over pairs, a sum over documents, a divergence), so a weight of ½ rarely gives
    both the same influence; choose the weight on validation data.

    Args:
        first: a loss, or its name.
        second: another loss, or its name.
        weight: weight of the first loss, in [0, 1].

    Weights: as in the two losses.
    Cost: the sum of both.
    Consistency: none known, except for two losses that agree.

    >>> from toprank import Queries
    >>> from toprank.losses import ListNet, SoftmaxKL
    >>> loss = Mix(SoftmaxKL(temperature=2.0), ListNet(), weight=0.7)
    >>> bound = loss.on([1, 0], Queries([0, 2]), teacher=[0.3, 0.1])
    >>> teacher, labels = (part.on([1, 0], Queries([0, 2]), teacher=[0.3, 0.1]) for part in (loss.first, loss.second))
    >>> value = 0.7 * teacher.at([0.5, 0.0]).value + 0.3 * labels.at([0.5, 0.0]).value
    >>> bool(np.isclose(bound.at([0.5, 0.0]).value, value))
    True
    """

    first: Loss | str = "SoftmaxKL"
    second: Loss | str = "ListNet"
    weight: float = 0.5

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            object.__setattr__(self, name, _one_score(make(getattr(self, name)), self))
        check_number("Mix's weight", self.weight, least=0, most=1)

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """Properties that both losses have."""
        first, second = make(self.first).traits, make(self.second).traits
        return Traits(
            convex=first.convex and second.convex,
            smooth=first.smooth and second.smooth,
            exact_gradient=first.exact_gradient and second.exact_gradient,
            shift_invariant=first.shift_invariant and second.shift_invariant,
            curvature=min(first.curvature, second.curvature, key=_LOOSEST_FIRST.index),
            cost=first.cost if first.cost == second.cost else f"{first.cost} + {second.cost}",
            linear_in_gain=_in_labels(self.first) and _in_labels(self.second) and (first.labels or second.labels),
            random=first.random or second.random,
            labels_are_gains=first.labels_are_gains and second.labels_are_gains,
            teacher=first.teacher or second.teacher,
            labels=(first.labels and self.weight > 0) or (second.labels and self.weight < 1),
        )

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        bound = [make(loss).bound_to(judgments) for loss in (self.first, self.second)]
        return _BoundMix(judgments, bound, (self.weight, 1.0 - self.weight))


class _BoundMix(BoundLoss):
    def __init__(self, judgments: Judgments, bound: Sequence[BoundLoss], shares: Sequence[float]) -> None:
        super().__init__(judgments)
        self.bound, self.shares = bound, shares

    @override
    def resampled(self, draw: int, scores: FloatArray | None = None) -> BoundLoss:
        other = copy(self)
        other.bound = [part.resampled(draw, scores) for part in self.bound]
        return other

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, curvatures = np.zeros(block.n_queries), list[Curvature]()
        grad[:] = 0.0
        for part, share in zip(self.bound, self.shares, strict=True):
            own = np.empty_like(grad)  # a new array, because a curvature may refer to it
            values, curvature = part.evaluate_block(block, scores, own, requested)
            losses += share * values
            grad += share * own
            if curvature is not None:
                curvatures.append(curvature)
        return losses, _Sum(curvatures, self.shares) if requested.curvature else None


@dataclass(frozen=True)
class _Sum(Curvature):
    """Σ factor·curvature over the same documents."""

    parts: Sequence[Curvature]
    factors: Sequence[float]

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return np.asarray(sum(factor * (part @ V) for part, factor in zip(self.parts, self.factors, strict=True)))

    @override
    def diagonal(self) -> FloatArray:
        return np.asarray(sum(factor * part.diagonal() for part, factor in zip(self.parts, self.factors, strict=True)))


@dataclass(frozen=True)
class Gumbel(Loss):
    """The mean of a loss over scores with noise, (s + g)/temperature with g = −log(−log u).

    The order of the noisy scores is a sample from the Plackett–Luce model of the scores, so the loss is averaged over
    likely rankings instead of the most likely one. This smooths the loss and avoids solutions whose order depends on
    small differences of scores.

    Noise is sampled independently for each `draw`, as in `YetiRank`: trees count rounds, networks batches, and linear
    rankers outer iterations; `bound.at(scores, draw=7)` evaluates that draw. Noise depends only on the seed, the draw,
    the id of the query and the index of the document in its query.

    Args:
        loss: loss to average, or its name; one score per document.
        samples: number of noise samples, 1 to 1000.
        temperature: divisor of the noisy scores, > 0.
        seed: seed of the noise; rankers add the index of the round, batch or iteration.

    Weights: as in the loss.
    Cost: `samples` times that of the loss.
    Consistency: none known.
    Source: Bruch, Han, Bendersky & Najork 2020, "A stochastic treatment of learning to rank scoring functions".

    >>> from toprank import Queries
    >>> bound = Gumbel("ListNet", samples=4).on([1, 0], Queries([0, 2]))
    >>> bound.at([1.0, 0.0], draw=1).value == bound.at([1.0, 0.0], draw=2).value
    False
    """

    loss: Loss | str = "ListNet"
    samples: int = 8
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", _one_score(make(self.loss), self))
        check_whole("Gumbel's samples", self.samples, 1, _MAX_SAMPLES + 1)
        check_number("Gumbel's temperature", self.temperature, above=0)
        check_whole("Gumbel's seed", self.seed, 0)

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """Properties of the loss, because the noise is constant within a draw."""
        inner = make(self.loss).traits
        linear = _in_labels(self.loss) and inner.labels
        cost = f"O(samples·{inner.cost.removeprefix('O(')}"
        return replace(inner, random=True, consistent="", cost=cost, linear_in_gain=linear)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundGumbel(self, judgments)


class _BoundGumbel(BoundLoss):
    def __init__(self, loss: Gumbel, judgments: Judgments) -> None:
        super().__init__(judgments)
        # A random inner loss needs another seed; otherwise it would sample the same noise.
        self.inner = reseeded(make(loss.loss), (loss.seed,)).bound_to(judgments)
        self.samples, self.temperature = loss.samples, loss.temperature
        self.chance = RandomStream.from_judgments(judgments, loss.seed)

    @override
    def resampled(self, draw: int, scores: FloatArray | None = None) -> BoundLoss:
        other = copy(self)
        other.chance, other.inner = self.chance.resampled(draw), self.inner.resampled(draw, scores)
        return other

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, curvatures = np.zeros(block.n_queries), list[Curvature]()
        grad[:], noise, keys = 0.0, np.empty_like(scores), self.chance.keys[block.queries]
        for number in range(self.samples):
            own = np.empty_like(grad)  # a new array, because a curvature may refer to it
            kernels.gumbel_noise(block.offsets, keys, number, noise)
            values, curvature = self.inner.evaluate_block(block, (scores + noise) / self.temperature, own, requested)
            losses += values
            grad += own
            if curvature is not None:
                curvatures.append(curvature)
        grad /= self.samples * self.temperature
        factors = [1.0 / (self.samples * self.temperature**2)] * self.samples
        return losses / self.samples, _Sum(curvatures, factors) if requested.curvature else None


def _one_score(loss: Loss, around: Loss) -> Loss:
    if loss.traits.space != "score":
        raise DataError(
            f"{type(around).__name__} supports losses with one score per document; {type(loss).__name__} needs one per "
            "grade."
        )
    return loss


def _in_labels(loss: Loss | str) -> bool:
    """Return whether the gradient is affine in the labels, without a gain."""
    traits, gain = make(loss).traits, getattr(loss, "gain", None)
    return not traits.labels or (traits.linear_in_gain and gain is None)


def reseeded(loss: Loss, seeds: Sequence[int]) -> Loss:
    """Return the loss with new seeds, also of nested losses, derived from the old ones and `seeds`."""
    changes: dict[str, Any] = {}
    for field in fields(loss):
        value = getattr(loss, field.name)
        if isinstance(value, Loss):
            changes[field.name] = reseeded(value, seeds)
        elif field.name == "seed":
            changes["seed"] = int(np.random.SeedSequence([value, *seeds]).generate_state(1)[0])
    return replace(loss, **changes) if changes else loss
