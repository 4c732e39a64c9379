"""Pointwise losses, which compare each document's score with a target.

    loss_q = Σ_j w_j φ(s_j, t_j), with targets t as in `targets`

`per_document` divides a query's loss by its number of documents. Document weights multiply the document's term.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.queries import Queries
from toprank.errors import UnknownNameError
from toprank.losses.base import Block, BlockResult, BoundLoss, Diagonal, Judgments, Requested, Traits
from toprank.losses.labels import BoundTargets, Targeted, groups_of
from toprank.losses.softmax import SoftmaxCurvature

_SAME_GAIN = "DCG with the same gain: the optimum is"
_MAX_POWER = 32.0  # scores of ±1e8 to this power do not overflow


@dataclass(frozen=True)
class _Pointwise(Targeted):
    """Base class of sums of φ(s, t) over documents."""

    @abstractmethod
    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return φ(s, t), dφ/ds and d²φ/ds² for each document."""

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundPointwise(self, judgments)


class _BoundPointwise(BoundTargets):
    def __init__(self, loss: _Pointwise, judgments: Judgments) -> None:
        super().__init__(loss, judgments)
        self.loss = loss

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        targets, weights = self.targets[block.rows], self.weights[block.rows]
        values, slopes, bends = self.loss.terms(scores, targets)
        factor = weights * block.broadcast(block.scale)
        np.multiply(slopes, factor, out=grad)
        return block.sum(values * weights), Diagonal(bends * factor) if requested.curvature else None


@dataclass(frozen=True)
class Squared(_Pointwise):
    """Least squares: Σ_j w_j (s_j − t_j)².

    Args:
        gain: name, table or callable of the target t = G(y); None uses the labels.
        max_grade: largest possible grade, for gains that depend on it (default: the largest label).
        per_document: divide a query's loss by its number of documents.

    Source: Cossock & Zhang 2008 (7). Weights multiply terms. Cost O(m).

    >>> from toprank import Queries
    >>> bound = Squared(gain="linear").on([0, 2], Queries([0, 2]))
    >>> bound.at([1.0, 1.0]).value  # (1 − 0)² + (1 − 2)²
    2.0
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, shift_invariant=False, consistent=f"{_SAME_GAIN} E[G(y)|x]", linear_in_gain=True
    )

    @override
    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        residuals = scores - targets
        return residuals**2, 2 * residuals, np.full_like(scores, 2.0)


@dataclass(frozen=True)
class ModifiedSquared(_Pointwise):
    """Modified least squares: Σ_j w_j [(1 − t_j) max(0, s_j)² + t_j max(0, 1 − s_j)²], t = G(y)/G(max_grade) in [0,
    1].

    Scores below 0 of documents with t = 0, and above 1 of documents with t = 1, have no loss.

    Args: as `Squared`. Source: Cossock & Zhang 2008 (8). Weights multiply terms. Cost O(m). The second derivative jumps
    at 0 and 1, where the larger value is used.

    >>> from toprank import Queries
    >>> bound = ModifiedSquared(gain="linear").on([0, 1], Queries([0, 2]))
    >>> bound.at([-3.0, 0.5]).value
    0.25
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, shift_invariant=False, consistent=f"{_SAME_GAIN} E[t|x]"
    )
    _unit_targets: ClassVar[bool] = True

    @override
    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        above, below, rest = np.maximum(scores, 0.0), np.maximum(1.0 - scores, 0.0), 1 - targets
        bends = 2 * (rest * (scores >= 0) + targets * (scores <= 1))
        return rest * above**2 + targets * below**2, 2 * (rest * above - targets * below), bends


@dataclass(frozen=True)
class PowerRegression(_Pointwise):
    """Power family φ0(s) − s·t with φ0(s) = |s|^p/p: Σ_j w_j (|s_j|^p/p − s_j t_j), t = G(y)/G(max_grade) in [0, 1].

    The optimum is E[t|x]^{1/(p−1)}, which has the same order as E[t|x]. The value may be negative; its minimum for a
    document with target t is −(1 − 1/p)·t^{p/(p−1)}.

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
        convex=True, smooth=True, shift_invariant=False, consistent=f"{_SAME_GAIN} a rising function of E[t|x]"
    )
    _unit_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("power", self.power, least=2, most=_MAX_POWER)

    @override
    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        size, p = np.abs(scores), self.power
        slopes = np.copysign(size ** (p - 1), scores) - targets
        return size**p / p - scores * targets, slopes, (p - 1) * size ** (p - 2)


@dataclass(frozen=True)
class CrossEntropy(_Pointwise):
    """Logistic regression on probabilities: Σ_j w_j (log(1 + e^{s_j}) − t_j s_j), t = G(y)/G(max_grade) in [0, 1].

    Targets may be any probabilities; with ``gain=None`` they are the labels. 1/(1 + e^{−s}) estimates them.

    Args: as `Squared`. Weights multiply terms. Cost O(m). The minimum for a document is the entropy of its target.

    >>> from toprank import Queries
    >>> bound = CrossEntropy(gain=None).on([0.5], Queries([0, 1]))
    >>> bool(bound.at([0.0]).value == np.log(2))
    True
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, shift_invariant=False, consistent=f"{_SAME_GAIN} the log-odds of E[t|x]"
    )
    _unit_targets: ClassVar[bool] = True

    @override
    def terms(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        small = np.exp(-np.abs(scores))
        likely = np.where(scores >= 0, 1.0, small) / (1.0 + small)
        values = np.maximum(scores, 0.0) + np.log1p(small) - targets * scores
        return values, likely - targets, likely * (1.0 - likely)


@dataclass(frozen=True)
class QuerySquared(Targeted):
    """Query-shifted least squares: min over b of Σ_j w_j (s_j + b − t_j)².

    Scores and targets are centered within the query by the weighted mean, so only score differences count.

    Args: as `Squared`. Source: Cossock & Zhang 2008 (10). Weights multiply terms, and thus affect the best shift b.
    Cost O(m).

    >>> from toprank import Queries
    >>> bound = QuerySquared(gain="linear").on([0, 2], Queries([0, 2]))
    >>> bound.at([5.0, 7.0]).value
    0.0
    """

    traits: ClassVar[Traits] = Traits(
        convex=True, smooth=True, consistent=f"{_SAME_GAIN} E[G(y)|x] up to a shift by query", linear_in_gain=True
    )

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        targets = self.targets(judgments.labels, judgments.top_grade)
        return CenteredBound(targets, judgments.term_weights(self.per_document), judgments)


class CenteredBound(BoundLoss):
    """factor · min over b of Σ_j w_j (s_j + b − t_j)² in each query; factors are 1 by default."""

    def __init__(
        self, targets: FloatArray, weights: FloatArray, judgments: Judgments, factors: FloatArray | None = None
    ) -> None:
        super().__init__(judgments)
        self.targets, self.weights, queries = targets, weights, self.queries
        masses = queries.sum(weights)
        self.shares: FloatArray = weights / queries.broadcast(
            np.where(masses > 0, masses, 1.0)
        )  # queries without weight have no loss
        self.factors = np.ones(len(queries)) if factors is None else factors
        self.bends: FloatArray = 2.0 * self.factors * masses

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        shares, factors = self.shares[block.rows], self.factors[block.queries]
        residuals = scores - self.targets[block.rows]
        # Subtract the first residual before the mean, which preserves digits of large, similar scores.
        residuals -= block.broadcast(residuals[block.offsets[:-1]])
        residuals -= block.broadcast(block.sum(shares * residuals))
        pulls = self.weights[block.rows] * residuals
        np.multiply(block.broadcast(2.0 * factors * block.scale), pulls, out=grad)
        losses = factors * block.sum(pulls * residuals)
        if not requested.curvature:
            return losses, None
        # 2·(diag(w) − w wᵀ/Σw) is the curvature of a softmax with p = w/Σw and the mass 2·Σw.
        return losses, SoftmaxCurvature(shares, self.bends[block.queries] * block.scale, block.offsets)


Flags = npt.NDArray[np.bool_]

_SCHEMES = ("ones", "grade", "top", "frequency")


@dataclass(frozen=True)
class ImportanceWeightedSquared(Targeted):
    """Σ_j w_j (s_j − t_j)² + u · max_j w'_j (s_j − δ)²₊ with w' = 1 where w < 1, else 0.

    Args:
        gain, max_grade, per_document: as `Squared`.
        scheme: how w is chosen, see below.
        delta: δ, the score that documents outside the top should not exceed.
        u: weight of the worst offender.
        top_k: how many documents the scheme ``top`` takes from the ideal order.

    =============  ====================================================================================================
    ``ones``       w = 1: least squares.
    ``grade``      w ∝ t, scaled so that the smallest target above δ has w = 1.
    ``top``        w = 1 for the first `top_k` documents of the ideal order, 0 for the others; a tied group at the
                   border shares its places (w is the chance to be among the first when ties are broken at random).
    ``frequency``  w ∝ 1/number of documents of the same grade in the query, scaled within the query so that the most
                   frequent grade with t > δ has w = 1 (without such a grade: the rarest).
    =============  ====================================================================================================

    Whatever the scheme, a document with t > δ has w ≥ 1, which Theorem 5 of the source needs. Documents with w < 1 are
    held down by the worst offender alone; where several attain the maximum, the subgradient is shared equally.

    Refinement (§VI) leaves most documents out: begin with `first_active`, fit least squares on the active documents
    with `active_weights`, score all, add what `now_active` says, and repeat until nothing is added. That loop belongs
    to the ranker; the pieces are here.

    Source: Cossock & Zhang 2008 (13), §VI. Document weights multiply the document's terms in both parts. Cost O(m).

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
        """Return the weight w of each document under the scheme.

        >>> loss = ImportanceWeightedSquared(scheme="frequency")
        >>> loss.importance([1, 0, 0, 0], Queries([0, 4])).round(3).tolist()
        [1.0, 0.333, 0.333, 0.333]
        """
        return self._importance(Judgments(np.asarray(labels, dtype=np.float64), queries))

    def _importance(self, judgments: Judgments) -> FloatArray:
        queries, targets = judgments.queries, self.targets(judgments.labels, judgments.top_grade)
        high = targets > self.delta
        if self.scheme == "grade":
            # Scale weights by the whole data; these may be a part of it.
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
                weights = queries.broadcast(np.where(frequent > 0, frequent, queries.min(size))) / size
        return np.where(high, np.maximum(weights, 1.0), weights)

    def first_active(self, labels: npt.ArrayLike, queries: Queries, *, contrast: int = 10, seed: int = 0) -> Flags:
        """Return the initial active set of refinement: documents of weight 1 and more, and some others.

        From each query, `contrast` others are sampled at random. Without them the first fit would use relevant
        documents only and give high scores to all documents, so that no document would stay inactive.
        """
        important = self.importance(labels, queries) >= 1.0
        lot = np.random.default_rng(seed).random(queries.n_documents)
        lot[important] = np.inf
        by_lot = np.lexsort((lot, queries.document_query))
        place = np.empty(queries.n_documents, dtype=np.int64)
        place[by_lot] = queries.positions_in_query
        return important | (place < contrast)

    def now_active(self, active: npt.ArrayLike, scores: npt.ArrayLike) -> Flags:
        """Return the active set after a round: it gains the inactive documents whose score exceeds δ."""
        return np.asarray(active, dtype=np.bool_) | (np.asarray(scores) > self.delta)

    def active_weights(self, labels: npt.ArrayLike, queries: Queries, active: npt.ArrayLike) -> FloatArray:
        """Return weights for least squares on the active set: w, at least 1; 0 for inactive documents."""
        return np.where(np.asarray(active, dtype=np.bool_), np.maximum(self.importance(labels, queries), 1.0), 0.0)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundImportance(self, judgments, self._importance(judgments))


def _grade_groups(targets: FloatArray, queries: Queries) -> tuple[FloatArray, FloatArray]:
    """Return for each document how many of its query have a higher target, and how many the same target."""
    order, group, starts = groups_of(-targets, queries)
    better, size = np.empty(len(targets)), np.empty(len(targets))
    better[order] = starts[group] - queries.broadcast(queries.offsets[:-1])
    size[order] = np.diff(starts, append=len(targets))[group]
    return better, size


class _BoundImportance(BoundTargets):
    def __init__(self, loss: ImportanceWeightedSquared, judgments: Judgments, importance: FloatArray) -> None:
        super().__init__(loss, judgments)
        self.delta, self.held_down = loss.delta, loss.u * self.weights * (importance < 1.0)
        self.weights = self.weights * importance

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        residuals, weights = scores - self.targets[block.rows], self.weights[block.rows]
        worst, leaders = self._offenders(block, scores)
        slopes, scale = (
            weights * residuals + leaders * np.maximum(scores - self.delta, 0.0),
            block.broadcast(block.scale),
        )
        np.multiply(2 * slopes, scale, out=grad)
        curvature = Diagonal(2 * (weights + leaders) * scale) if requested.curvature else None
        return block.sum(weights * residuals**2) + worst, curvature

    def _offenders(self, block: Block, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the largest penalty of each query, and the factor of each document in it; 0 unless it attains the
        maximum.
        """
        held_down = self.held_down[block.rows]
        penalties = held_down * np.maximum(scores - self.delta, 0.0) ** 2
        worst: FloatArray = np.maximum.reduceat(penalties, block.offsets[:-1])
        leads = (penalties == block.broadcast(worst)) & (penalties > 0)
        sharing = np.maximum(block.sum(leads.astype(np.float64)), 1.0)
        return worst, held_down * leads / block.broadcast(sharing)
