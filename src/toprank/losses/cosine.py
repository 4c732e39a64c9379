"""RankCosine: one minus the cosine similarity of the scores and the gains of the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.errors import DataError
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Judgments, Loss, Requested, Traits, by_columns
from toprank.losses.softmax import check_psi, psi_of


@dataclass(frozen=True)
class Cosine(Loss):
    """RankCosine: ½(1 − ψ(y)·s / (‖ψ(y)‖·√(‖s‖² + ε²))).

    The loss is between 0 and 1, and ½ at s = 0, where ε makes it smooth. A query with ψ = 0 contributes nothing. Apart
    from ε the loss does not depend on the scale of the scores, so an L2 penalty would shrink a linear scorer without
    limit: fix ‖w‖ = 1, or rely on ε.

    Args:
        psi: ``exponential`` ψ(y) = 2^y − 1, or ``linear`` ψ(y) = y.
        centered: ``"targets"`` subtracts the query's mean from ψ, so that labels below the mean get negative targets.
            ``"both"``, or True, also subtracts it from s: the loss is then ½(1 − Pearson's correlation) and invariant
            to shifts. In both cases a query of equal labels contributes nothing.
        epsilon: ε > 0, the norm of a query's scores below which the scale matters.

    Weights: with a = ψ/‖ψ‖ the loss is ½ Σ_j a_j (a_j − s_j/√(‖s‖² + ε²)); a document's weight multiplies its term of
    this sum, not the norms.
    Curvature: Gauss–Newton. With ŝ = s/√(‖s‖² + ε²) the loss is ¼‖a − ŝ‖² up to ε, and ½·JᵀJ with the Jacobian J of ŝ
    is positive semi-definite although the Hessian is not. The loss is not convex.
    Cost: O(m).
    Consistency: the minimizer is parallel to E[ψ(y)/‖ψ(y)‖ | X], which in general does not order by E[ψ(y_j) | X].
    Source: Qin et al. 2008, "Query-level loss functions for information retrieval".

    >>> from toprank import Queries
    >>> bound = Cosine().on([2, 1, 0], Queries([0, 3]))
    >>> float(bound.at([0.0, 0.0, 0.0]).value)
    0.5
    >>> bool(bound.at([3e6, 1e6, 0.0]).value < 1e-12)
    True
    """

    psi: str = "exponential"
    centered: bool | Literal["targets", "both"] = False
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        check_psi(self.psi)
        if not (isinstance(self.centered, bool) or self.centered in ("targets", "both")):
            raise DataError(
                f"Cosine's centered must be 'targets' (ψ alone), 'both' (ψ and the scores), True (both) or False, not "
                f"{self.centered!r}."
            )
        check_number("Cosine's epsilon", self.epsilon, above=0)

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """Properties; the loss is shift-invariant only if both sides are centered."""
        return Traits(convex=False, smooth=True, shift_invariant=self.centers_scores, curvature="gauss-newton")

    @property
    def centers_scores(self) -> bool:
        """True if the scores are centered in addition to ψ."""
        return self.centered in (True, "both")

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundCosine(self, judgments)


class _BoundCosine(BoundLoss):
    """The value at zero minus ½·direction·s/√(‖s‖² + ε²) in each query."""

    def __init__(self, loss: Cosine, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.centered, self.epsilon, queries = loss.centers_scores, loss.epsilon, self.queries
        wanted, weights = psi_of(judgments, loss.psi, loss), judgments.weights
        if loss.centered:
            # Set constant queries to exactly 0, because the mean is rounded.
            flat = queries.broadcast(queries.max(wanted) == queries.min(wanted))
            wanted = np.where(flat, 0.0, wanted - queries.broadcast(queries.mean(wanted)))
        # Scale by the largest entry first, because squares of large gains overflow.
        largest = queries.max(np.abs(wanted))
        largest[largest == 0] = 1.0
        wanted = wanted / queries.broadcast(largest)
        squares = queries.sum(wanted**2)
        squares[squares == 0] = 1.0
        direction = weights * wanted / queries.broadcast(np.sqrt(squares))
        if self.centered:  # weights shift the direction by a component that centered scores ignore
            direction -= queries.broadcast(queries.mean(direction))
        self.at_zero: FloatArray = queries.sum(weights * wanted**2) / squares / 2
        self.direction, self.length = direction, np.sqrt(queries.sum(direction**2))

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, options = np.empty(block.n_queries), (block.offsets, self.centered, self.epsilon)
        direction, at_zero = self.direction[block.rows], self.at_zero[block.queries]
        kernels.cosine(scores, direction, at_zero, block.scale, *options, grad, losses)
        if not requested.curvature:
            return losses, None
        unit, factors, shrink = np.empty(len(scores)), np.empty(block.n_queries), np.empty(block.n_queries)
        kernels.unit_scores(scores, *options, unit, factors, shrink)
        factors *= self.length[block.queries] * block.scale
        return losses, _CosineCurvature(unit, factors, shrink, block.offsets, self.centered)


@dataclass(frozen=True)
class _CosineCurvature(Curvature):
    """f·(C − h·ŝŝᵀ) in each query, with the identity or the centering matrix C; h = 2 − ‖ŝ‖² makes it f·(C − ŝŝᵀ)²."""

    unit: FloatArray
    factors: FloatArray
    shrink: FloatArray
    offsets: IntArray
    centered: bool

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return by_columns(V, kernels.cosine_times, self.unit, self.factors, self.shrink, self.offsets, self.centered)

    @override
    def diagonal(self) -> FloatArray:
        sizes = np.diff(self.offsets)
        whole = 1.0 - 1.0 / sizes if self.centered else np.ones(len(sizes))
        rest = np.repeat(whole, sizes) - np.repeat(self.shrink, sizes) * self.unit**2
        return np.repeat(self.factors, sizes) * np.maximum(rest, 0.0)
