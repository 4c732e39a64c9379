"""Importance-weighted regression: fit the top of the list well, and keep the rest below a threshold (Cossock & Zhang
2008 §VI).

The weights w emphasise the top of the list; documents with w < 1 are held down by the worst offender alone. Schemes:

=============  ==========================================================================================
``ones``       w = 1: least squares.
``grade``      w ∝ t, scaled so that the smallest target above δ has w = 1.
``top``        w = 1 for the first `top_k` documents of the ideal order, 0 for the others; a tied group at the border
               shares its places (w is the chance to be among the first `top_k` when ties are broken at random).
``frequency``  w ∝ 1/number of documents of the same grade in the query, scaled within the query so that the most
               frequent grade with t > δ has w = 1 (without such a grade: the rarest).
=============  ==========================================================================================

Whatever the scheme, a document with t > δ has w ≥ 1, which Theorem 5 of Cossock & Zhang 2008 needs.

The refinement scheme of Cossock & Zhang 2008 §VI leaves most documents out: begin with
`ImportanceWeightedSquared.first_active`, fit least squares on the active documents with `active_weights`, score all,
add what `now_active` says, and repeat until nothing is added. That loop belongs to the ranker; the pieces are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.queries import Queries
from toprank.errors import UnknownNameError
from toprank.losses.base import BoundLoss, Curvature, Diagonal, Traits
from toprank.losses.targets import BoundTargets, Targeted

__all__ = ["ImportanceWeightedSquared"]

Flags = npt.NDArray[np.bool_]

_SCHEMES = ("ones", "grade", "top", "frequency")


@dataclass(frozen=True)
class ImportanceWeightedSquared(Targeted):
    """Σ_j w_j (s_j − t_j)² + u · max_j w'_j (s_j − δ)²₊ with w' = 1 where w < 1, else 0.

    Args:
        gain, max_grade, per_document: as `Squared`.
        scheme: how w is chosen: ``ones``, ``grade``, ``top`` or ``frequency`` (see the module).
        delta: δ, the score that documents outside the top should not exceed.
        u: weight of the worst offender.
        top_k: how many documents the scheme ``top`` takes from the ideal order.

    Source: Cossock & Zhang 2008 (13). Document weights multiply the document's terms in both parts. Cost O(m). Where
    several documents attain the maximum, the subgradient is shared among them equally.

    >>> loss = ImportanceWeightedSquared(scheme="top", top_k=1, delta=0.5, u=2.0)
    >>> bound = loss.on([1, 0, 0], Queries([0, 3]))
    >>> bound.at([1.0, 1.5, 0.0]).value  # 0 + 2·(1.5 − 0.5)²
    2.0
    """

    scheme: str = "grade"
    delta: float = 0.5
    u: float = 1.0
    top_k: int = 10
    traits: ClassVar[Traits] = Traits(
        convex=True,
        smooth=False,
        shift_invariant=False,
        consistent='DCG at the top where weights do not look at the label (scheme="ones"; Cossock & Zhang 2008, Th. 5)',
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scheme not in _SCHEMES:
            raise UnknownNameError("weighting scheme", self.scheme, _SCHEMES)
        check_number("delta", self.delta)
        check_number("u", self.u, least=0)
        check_whole("top_k", self.top_k, 1)

    def importance(self, labels: npt.ArrayLike, queries: Queries) -> FloatArray:
        """The weight w of each document under the scheme.

        >>> loss = ImportanceWeightedSquared(scheme="frequency")
        >>> loss.importance([1, 0, 0, 0], Queries([0, 4])).round(3).tolist()
        [1.0, 0.333, 0.333, 0.333]
        """
        targets = self.targets(np.ascontiguousarray(labels, dtype=np.float64))
        high = targets > self.delta
        if self.scheme == "grade":
            raw = np.maximum(targets, 0.0)
            weights = raw / ((raw[high].min() if high.any() else raw.max()) or 1.0)
        elif self.scheme == "ones":
            weights = np.ones_like(targets)
        else:
            better, size = _grade_groups(targets, queries)
            if self.scheme == "top":
                weights = np.clip((self.top_k - better) / size, 0.0, 1.0)
            else:
                frequent = queries.max(np.where(high, size, 0.0))
                weights = queries.spread(np.where(frequent > 0, frequent, queries.min(size))) / size
        return np.where(high, np.maximum(weights, 1.0), weights)

    def first_active(self, labels: npt.ArrayLike, queries: Queries, *, contrast: int = 10, seed: int = 0) -> Flags:
        """The documents that refinement begins with: those of weight 1 and more, and some of the others.

        From each query `contrast` others are drawn at random. Without them the first fit sees good documents only,
        scores everything high, and nothing stays ignored.
        """
        important = self.importance(labels, queries) >= 1.0
        lot = np.random.default_rng(seed).random(queries.n_documents)
        lot[important] = np.inf
        by_lot = np.lexsort((lot, queries.document_query))
        place = np.empty(queries.n_documents, dtype=np.int64)
        place[by_lot] = np.arange(queries.n_documents) - queries.spread(queries.offsets[:-1])
        return important | (place < contrast)

    def now_active(self, active: npt.ArrayLike, scores: npt.ArrayLike) -> Flags:
        """The active documents after a round: those so far, and the ignored ones whose score exceeds δ."""
        return np.asarray(active, dtype=np.bool_) | (np.asarray(scores) > self.delta)

    def active_weights(self, labels: npt.ArrayLike, queries: Queries, active: npt.ArrayLike) -> FloatArray:
        """Weights for least squares on the active documents: w, at least 1; the ignored have 0."""
        return np.where(np.asarray(active, dtype=np.bool_), np.maximum(self.importance(labels, queries), 1.0), 0.0)

    def bind(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> BoundLoss:
        """See `Loss.bind`."""
        weights, importance = self.term_weights(queries, document_weights), self.importance(labels, queries)
        held_down = self.u * weights * (importance < 1.0)
        return _Bound(held_down, self.delta, self.targets(labels), weights * importance, queries, query_weights)


def _grade_groups(targets: FloatArray, queries: Queries) -> tuple[FloatArray, FloatArray]:
    """For each document, how many of its query have a higher target, and how many the same (itself included)."""
    order = np.lexsort((-targets, queries.document_query))
    query, value = queries.document_query[order], targets[order]
    is_new = np.r_[True, (query[1:] != query[:-1]) | (value[1:] != value[:-1])]
    group, starts = np.cumsum(is_new) - 1, np.flatnonzero(is_new)
    better, size = np.empty(len(targets)), np.empty(len(targets))
    better[order] = (starts - queries.offsets[query[starts]])[group]
    size[order] = np.diff(starts, append=len(targets))[group]
    return better, size


class _Bound(BoundTargets):
    def __init__(self, held_down: FloatArray, delta: float, *arrays: Any) -> None:
        super().__init__(*arrays)
        self.held_down, self.delta = held_down, delta

    def block(self, scores: FloatArray, first: int, last: int, grad: FloatArray) -> FloatArray:
        """See `BoundLoss.block`."""
        rows, starts = self.rows(first, last), self.starts(first, last)
        residuals, weights = scores - self.targets[rows], self.weights[rows]
        worst, leaders = self._offenders(scores, first, last)
        slopes = weights * residuals + leaders * np.maximum(scores - self.delta, 0.0)
        np.multiply(2 * slopes, self.spread_scale(first, last), out=grad)
        losses: FloatArray = np.add.reduceat(weights * residuals**2, starts) + worst
        return losses

    def curvature_block(self, scores: FloatArray, first: int, last: int) -> Curvature:
        """See `BoundLoss.curvature_block`."""
        _, leaders = self._offenders(scores, first, last)
        return Diagonal(2 * (self.weights[self.rows(first, last)] + leaders) * self.spread_scale(first, last))

    def _offenders(self, scores: FloatArray, first: int, last: int) -> tuple[FloatArray, FloatArray]:
        """The largest penalty of each query, and for each document its factor in it (0 unless it attains it)."""
        held_down, starts = self.held_down[self.rows(first, last)], self.starts(first, last)
        sizes = self.queries.sizes[first:last]
        penalties = held_down * np.maximum(scores - self.delta, 0.0) ** 2
        worst: FloatArray = np.maximum.reduceat(penalties, starts)
        leads = (penalties == np.repeat(worst, sizes)) & (penalties > 0)
        sharing = np.maximum(np.add.reduceat(leads.astype(np.float64), starts), 1.0)
        return worst, held_down * leads / np.repeat(sharing, sizes)
