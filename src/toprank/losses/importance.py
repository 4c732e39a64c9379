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
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.checks import check_number, check_whole
from toprank.data.queries import Queries
from toprank.errors import UnknownNameError
from toprank.losses.base import Answer, Block, BoundLoss, Diagonal, Traits, Want
from toprank.losses.judgments import Judgments
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
        return self._importance(Judgments(np.asarray(labels, dtype=np.float64), queries))

    def _importance(self, judgments: Judgments) -> FloatArray:
        queries, targets = judgments.queries, self.targets(judgments.labels, judgments.top_grade)
        high = targets > self.delta
        if self.scheme == "grade":
            # The scale of the weights is that of the whole data, of which these may be a part.
            every = self.targets(judgments.distinct_grades, judgments.top_grade)
            unit = every[every > self.delta].min() if (every > self.delta).any() else every.max()
            weights = np.maximum(targets, 0.0) / (max(unit, 0.0) or 1.0)
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

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _Bound(self, judgments, self._importance(judgments))


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
    def __init__(self, loss: ImportanceWeightedSquared, judgments: Judgments, importance: FloatArray) -> None:
        super().__init__(loss, judgments)
        self.delta, self.held_down = loss.delta, loss.u * self.weights * (importance < 1.0)
        self.weights = self.weights * importance

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        residuals, weights = scores - self.targets[block.rows], self.weights[block.rows]
        worst, leaders = self._offenders(block, scores)
        slopes, scale = weights * residuals + leaders * np.maximum(scores - self.delta, 0.0), block.spread(block.scale)
        np.multiply(2 * slopes, scale, out=grad)
        curvature = Diagonal(2 * (weights + leaders) * scale) if want.curvature else None
        return block.sum(weights * residuals**2) + worst, curvature

    def _offenders(self, block: Block, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The largest penalty of each query, and for each document its factor in it (0 unless it attains it)."""
        held_down = self.held_down[block.rows]
        penalties = held_down * np.maximum(scores - self.delta, 0.0) ** 2
        worst: FloatArray = np.maximum.reduceat(penalties, block.offsets[:-1])
        leads = (penalties == block.spread(worst)) & (penalties > 0)
        sharing = np.maximum(block.sum(leads.astype(np.float64)), 1.0)
        return worst, held_down * leads / block.spread(sharing)
