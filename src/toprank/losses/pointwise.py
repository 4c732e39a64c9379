"""Pointwise losses: each document's score is compared with its own target.

loss_q = Σ_j w_j φ(s_j, t_j), with targets t as in `targets`

`per_document` divides a query's loss by its number of documents. Document weights multiply the document's term.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.data.queries import Queries
from toprank.losses.base import BoundLoss, Curvature, Diagonal, Traits
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

    def bind(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> BoundLoss:
        """See `Loss.bind`."""
        weights = self.term_weights(queries, document_weights)
        return _BoundPointwise(self, self.targets(labels), weights, queries, query_weights)


class _BoundPointwise(BoundTargets):
    def __init__(self, loss: _Pointwise, *arrays: Any) -> None:
        super().__init__(*arrays)
        self.loss = loss

    def block(self, scores: FloatArray, first: int, last: int, grad: FloatArray) -> FloatArray:
        """See `BoundLoss.block`."""
        rows = self.rows(first, last)
        values, slopes = self.loss.terms(scores, self.targets[rows])
        np.multiply(slopes, self.weights[rows] * self.spread_scale(first, last), out=grad)
        losses: FloatArray = np.add.reduceat(values * self.weights[rows], self.starts(first, last))
        return losses

    def curvature_block(self, scores: FloatArray, first: int, last: int) -> Curvature:
        """See `BoundLoss.curvature_block`."""
        rows = self.rows(first, last)
        return Diagonal(
            self.loss.second(scores, self.targets[rows]) * self.weights[rows] * self.spread_scale(first, last)
        )


@dataclass(frozen=True)
class Squared(_Pointwise):
    """Least squares: Σ_j w_j (s_j − t_j)².

    Args:
        gain: name, table or callable of the target t = G(y); None takes the labels themselves.
        max_grade: largest grade there can be, for gains that need it (default: the largest label).
        per_document: divide a query's loss by its number of documents.

    Source: Cossock & Zhang 2008 (7). Weights multiply terms. Cost O(m).

    >>> bound = Squared(gain="linear").on([0, 2], Queries([0, 2]))
    >>> bound.at([1.0, 1.0]).value  # (1 − 0)² + (1 − 2)²
    2.0
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, shift_invariant=False, consistent="DCG with the same gain: the optimum is E[G(y)|x]"
    )

    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `_Pointwise.terms`."""
        residuals = scores - targets
        return residuals**2, 2 * residuals

    def second(self, scores: FloatArray, targets: FloatArray) -> FloatArray:  # noqa: ARG002 - quadratic
        """See `_Pointwise.second`."""
        return np.full_like(scores, 2.0)


@dataclass(frozen=True)
class ModifiedSquared(_Pointwise):
    """Modified least squares: Σ_j w_j [(1 − t_j) max(0, s_j)² + t_j max(0, 1 − s_j)²], t = G(y)/G(max_grade) in [0, 1].

    Scores below 0 of worthless documents, and above 1 of the most valuable, cost nothing.

    Args: as `Squared`. Source: Cossock & Zhang 2008 (8). Weights multiply terms. Cost O(m). The second derivative
    jumps at 0 and 1; there the curvature is that of the costly side.

    >>> bound = ModifiedSquared(gain="linear").on([0, 1], Queries([0, 2]))
    >>> bound.at([-3.0, 0.5]).value
    0.25
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, shift_invariant=False, consistent="DCG with the same gain: the optimum is E[t|x]"
    )
    _unit_targets: ClassVar[bool] = True

    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `_Pointwise.terms`."""
        above, below = np.maximum(scores, 0.0), np.maximum(1.0 - scores, 0.0)
        return (1 - targets) * above**2 + targets * below**2, 2 * ((1 - targets) * above - targets * below)

    def second(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """See `_Pointwise.second`."""
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

    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `_Pointwise.terms`."""
        size = np.abs(scores)
        slope = np.copysign(size ** (self.power - 1), scores)
        return size**self.power / self.power - scores * targets, slope - targets

    def second(self, scores: FloatArray, targets: FloatArray) -> FloatArray:  # noqa: ARG002 - targets are linear
        """See `_Pointwise.second`."""
        curved: FloatArray = (self.power - 1) * np.abs(scores) ** (self.power - 2)
        return curved


@dataclass(frozen=True)
class QuerySquared(Targeted):
    """Query-shifted least squares: min over b of Σ_j w_j (s_j + b − t_j)².

    Both sides are centred within the query (by the weighted mean), so only differences of scores count.

    Args: as `Squared`. Source: Cossock & Zhang 2008 (10). Weights multiply terms, and so move the best shift b. Cost
    O(m).

    >>> bound = QuerySquared(gain="linear").on([0, 2], Queries([0, 2]))
    >>> bound.at([5.0, 7.0]).value
    0.0
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, consistent="DCG with the same gain: the optimum is E[G(y)|x] up to a shift by query"
    )

    def bind(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> BoundLoss:
        """See `Loss.bind`."""
        weights = self.term_weights(queries, document_weights)
        return _BoundQuerySquared(self.targets(labels), weights, queries, query_weights)


class _BoundQuerySquared(BoundTargets):
    def block(self, scores: FloatArray, first: int, last: int, grad: FloatArray) -> FloatArray:
        """See `BoundLoss.block`."""
        rows, starts = self.rows(first, last), self.starts(first, last)
        weights = self.weights[rows]
        residuals = _centred(scores - self.targets[rows], weights, starts)
        np.multiply(2 * residuals, weights * self.spread_scale(first, last), out=grad)
        losses: FloatArray = np.add.reduceat(weights * residuals**2, starts)
        return losses

    def curvature_block(self, scores: FloatArray, first: int, last: int) -> Curvature:  # noqa: ARG002 - quadratic
        """See `BoundLoss.curvature_block`."""
        rows = self.rows(first, last)
        return _CentredCurvature(self.weights[rows], self.spread_scale(first, last), self.starts(first, last))


def _centred(values: FloatArray, weights: FloatArray, starts: IntArray) -> FloatArray:
    """Values (n,) or (n, d) less their weighted mean within each query; a query without weight loses nothing."""
    columns = weights.reshape((-1,) + (1,) * (values.ndim - 1))
    totals = np.add.reduceat(columns, starts, axis=0)
    means = np.add.reduceat(columns * values, starts, axis=0) / np.where(totals > 0, totals, 1.0)
    centred: FloatArray = values - np.repeat(means, np.diff(starts, append=len(values)), axis=0)
    return centred


@dataclass(frozen=True)
class _CentredCurvature(Curvature):
    """2·scale·(diag(w) − w wᵀ/Σw) for each query."""

    weights: FloatArray
    scale: FloatArray
    starts: IntArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        factor: FloatArray = (2 * self.scale * self.weights).reshape((-1,) + (1,) * (V.ndim - 1))
        return factor * _centred(V, self.weights, self.starts)

    def diagonal(self) -> FloatArray:
        """See `Curvature.diagonal`."""
        sizes, totals = np.diff(self.starts, append=len(self.scale)), np.add.reduceat(self.weights, self.starts)
        share: FloatArray = self.weights / np.repeat(np.where(totals > 0, totals, 1.0), sizes)
        return 2 * self.scale * self.weights * (1 - share)
