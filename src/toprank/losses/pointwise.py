"""Pointwise losses: each document's score is compared with its own target.

loss_q = Σ_j w_j φ(s_j, t_j), with targets t as in `targets`

`per_document` divides a query's loss by its number of documents. Document weights multiply the document's term.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.checks import check_number
from toprank.losses.base import Answer, Block, BoundLoss, Curvature, Diagonal, Traits, Want
from toprank.losses.judgments import Judgments
from toprank.losses.targets import BoundTargets, Targeted

__all__ = ["ModifiedSquared", "PowerRegression", "QuerySquared", "Squared"]

_MAX_POWER = 32.0  # scores of ±1e8 to this power are still far from overflow


@dataclass(frozen=True)
class _Pointwise(Targeted):
    """A sum of φ(s, t) over documents."""

    @abstractmethod
    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """φ(s, t) and dφ/ds for each document."""

    @abstractmethod
    def second(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """d²φ/ds² for each document."""

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundPointwise(self, judgments)


class _BoundPointwise(BoundTargets):
    def __init__(self, loss: _Pointwise, judgments: Judgments) -> None:
        super().__init__(loss, judgments)
        self.loss = loss

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        targets, weights = self.targets[block.rows], self.weights[block.rows]
        values, slopes = self.loss.terms(scores, targets)
        factor = weights * block.spread(block.scale)
        np.multiply(slopes, factor, out=grad)
        curvature = Diagonal(self.loss.second(scores, targets) * factor) if want.curvature else None
        return block.sum(values * weights), curvature


@dataclass(frozen=True)
class Squared(_Pointwise):
    """Least squares: Σ_j w_j (s_j − t_j)².

    Args:
        gain: name, table or callable of the target t = G(y); None takes the labels themselves.
        max_grade: largest grade there can be, for gains that need it (default: the largest label).
        per_document: divide a query's loss by its number of documents.

    Source: Cossock & Zhang 2008 (7). Weights multiply terms. Cost O(m).

    >>> from toprank import Queries
    >>> bound = Squared(gain="linear").on([0, 2], Queries([0, 2]))
    >>> bound.at([1.0, 1.0]).value  # (1 − 0)² + (1 − 2)²
    2.0
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, shift_invariant=False, consistent="DCG with the same gain: the optimum is E[G(y)|x]"
    )

    @override
    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        residuals = scores - targets
        return residuals**2, 2 * residuals

    @override
    def second(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        return np.full_like(scores, 2.0)


@dataclass(frozen=True)
class ModifiedSquared(_Pointwise):
    """Modified least squares: Σ_j w_j [(1 − t_j) max(0, s_j)² + t_j max(0, 1 − s_j)²], t = G(y)/G(max_grade) in [0, 1].

    Scores below 0 of worthless documents, and above 1 of the most valuable, cost nothing.

    Args: as `Squared`. Source: Cossock & Zhang 2008 (8). Weights multiply terms. Cost O(m). The second derivative
    jumps at 0 and 1; there the curvature is that of the costly side.

    >>> from toprank import Queries
    >>> bound = ModifiedSquared(gain="linear").on([0, 1], Queries([0, 2]))
    >>> bound.at([-3.0, 0.5]).value
    0.25
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, shift_invariant=False, consistent="DCG with the same gain: the optimum is E[t|x]"
    )
    _unit_targets: ClassVar[bool] = True

    @override
    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        above, below = np.maximum(scores, 0.0), np.maximum(1.0 - scores, 0.0)
        return (1 - targets) * above**2 + targets * below**2, 2 * ((1 - targets) * above - targets * below)

    @override
    def second(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        return 2 * ((1 - targets) * (scores >= 0) + targets * (scores <= 1))


@dataclass(frozen=True)
class PowerRegression(_Pointwise):
    """Power family φ0(s) − s·t with φ0(s) = |s|^p/p: Σ_j w_j (|s_j|^p/p − s_j t_j), t = G(y)/G(max_grade) in [0, 1].

    The optimum is E[t|x]^{1/(p−1)}: the same order as E[t|x]. The value may be negative; its least possible value for
    a document of target t is −(1 − 1/p)·t^{p/(p−1)}.

    Args:
        gain, max_grade, per_document: as `Squared`.
        power: p, from 2 to 32.

    Source: Cossock & Zhang 2008 §IV. Weights multiply terms. Cost O(m).

    >>> from toprank import Queries
    >>> bound = PowerRegression(power=4).on([1.0], Queries([0, 1]))
    >>> bound.at([1.0]).value  # 1/4 − 1
    -0.75
    """

    power: float = 4.0
    traits: ClassVar[Traits] = Traits(
        convex=True,
        smooth=True,
        shift_invariant=False,
        consistent="DCG with the same gain: the optimum is a rising function of E[t|x]",
    )
    _unit_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("power", self.power, least=2, most=_MAX_POWER)

    @override
    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        size = np.abs(scores)
        slope = np.copysign(size ** (self.power - 1), scores)
        return size**self.power / self.power - scores * targets, slope - targets

    @override
    def second(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        curved: FloatArray = (self.power - 1) * np.abs(scores) ** (self.power - 2)
        return curved


@dataclass(frozen=True)
class QuerySquared(Targeted):
    """Query-shifted least squares: min over b of Σ_j w_j (s_j + b − t_j)².

    Both sides are centred within the query (by the weighted mean), so only differences of scores count.

    Args: as `Squared`. Source: Cossock & Zhang 2008 (10). Weights multiply terms, and so move the best shift b. Cost
    O(m).

    >>> from toprank import Queries
    >>> bound = QuerySquared(gain="linear").on([0, 2], Queries([0, 2]))
    >>> bound.at([5.0, 7.0]).value
    0.0
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, consistent="DCG with the same gain: the optimum is E[G(y)|x] up to a shift by query"
    )

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundQuerySquared(self, judgments)


class _BoundQuerySquared(BoundTargets):
    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        weights = self.weights[block.rows]
        residuals = _centred(scores - self.targets[block.rows], weights, block)
        np.multiply(2 * residuals, weights * block.spread(block.scale), out=grad)
        return block.sum(weights * residuals**2), _CentredCurvature(weights, block) if want.curvature else None


def _centred(values: FloatArray, weights: FloatArray, block: Block) -> FloatArray:
    """Values (n,) or (n, d) less their weighted mean within each query; a query without weight loses nothing."""
    columns = weights.reshape((-1,) + (1,) * (values.ndim - 1))
    totals = block.sum(columns)
    means = block.sum(columns * values) / np.where(totals > 0, totals, 1.0)
    return values - block.spread(means)


@dataclass(frozen=True)
class _CentredCurvature(Curvature):
    """2·scale·(diag(w) − w wᵀ/Σw) for each query."""

    weights: FloatArray
    block: Block

    def __matmul__(self, V: FloatArray) -> FloatArray:
        factor: FloatArray = self._factor().reshape((-1,) + (1,) * (V.ndim - 1))
        return factor * _centred(V, self.weights, self.block)

    @override
    def diagonal(self) -> FloatArray:
        totals = self.block.sum(self.weights)
        share: FloatArray = self.weights / self.block.spread(np.where(totals > 0, totals, 1.0))
        return self._factor() * (1 - share)

    def _factor(self) -> FloatArray:
        return 2 * self.block.spread(self.block.scale) * self.weights
