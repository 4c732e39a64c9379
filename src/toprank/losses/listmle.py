"""ListMLE and its weighted variants: the likelihood of the ideal order, with treatments of ties.

The Plackett–Luce model chooses documents one by one, each with probability e^{s_j} / Σ_{not yet chosen} e^s. The loss
is −log of the probability of choosing them by decreasing grade; a weight multiplies each document's term. Equal grades
do not determine the order. The loss is Cox's partial likelihood, so its closed-form treatments of ties apply: for a
group D of d tied documents with risk set R (its grade and below),

    Efron    Σ_{l<d} w̄·log(Σ_R e^s − (l/d) Σ_D e^s) − Σ_D w_j s_j        Breslow    the same with l = 0.

Always: mean over the orders of tied documents ≤ Efron ≤ Breslow, and every order ≤ Breslow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Judgments, Loss, Requested, Traits, by_columns
from toprank.losses.labels import groups_of
from toprank.metrics.conventions import Discount

TIES = ("efron", "breslow", "random", "file")


class IdealOrder(NamedTuple):
    """The documents of all queries by decreasing grade; all fields are in this order."""

    labels: FloatArray
    sizes: IntArray  # size of the document's query
    position: IntArray  # rank in the query, from 1
    grade: IntArray  # index of the group of equal grades, over all queries
    grade_sizes: IntArray  # size of each group


@dataclass(frozen=True, kw_only=True)
class PlackettLuce(Loss):
    """Base class: terms −w_j·log(e^{s_j} / Σ_{risk set} e^s) by decreasing grade."""

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True)

    ties: str = "efron"
    lowest: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ties not in TIES:
            raise UnknownNameError("treatment of ties", self.ties, TIES)
        check_whole(f"{type(self).__name__}'s seed", self.seed, 0)

    @abstractmethod
    def term_weights(self, ideal: IdealOrder) -> FloatArray:
        """Return the weight of each document's term in the ideal order, without document weights."""

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        labels, queries = judgments.labels, judgments.queries
        order = self._order(labels, queries)
        _, grade, starts = groups_of(labels, queries, order)
        position = queries.positions_in_query + 1
        sizes, grade_sizes = queries.broadcast(queries.sizes), np.diff(starts, append=len(labels))
        ideal = IdealOrder(labels[order], sizes, position, grade, grade_sizes)
        weights = self.term_weights(ideal)
        if self.ties in ("efron", "breslow"):
            weights = (np.add.reduceat(weights, starts) / ideal.grade_sizes)[ideal.grade]
        else:
            starts = np.arange(len(labels))
        weights = weights * self._taking_part(ideal, queries)
        if judgments.document_weights is not None:
            weights = weights * judgments.document_weights[order]
        return _BoundLikelihood(judgments, order, weights, starts, efron=self.ties == "efron")

    def _order(self, labels: FloatArray, queries: Queries) -> IntArray:
        keys = [-labels, queries.document_query]
        if self.ties == "random":
            keys.insert(0, np.random.default_rng(self.seed).random(len(labels)))
        return np.lexsort(keys)  # stable: equal keys keep row order

    def _taking_part(self, ideal: IdealOrder, queries: Queries) -> FloatArray:
        """Return 1 for documents whose term counts: none if all grades are equal, the lowest grade's only with
        `lowest`.
        """
        last = queries.broadcast(ideal.grade[queries.offsets[1:] - 1])
        several = queries.broadcast(ideal.grade[queries.offsets[:-1]]) != last
        counts = several if self.lowest else several & (ideal.grade != last)
        return np.asarray(counts, dtype=np.float64)


@dataclass(frozen=True)
class ListMLE(PlackettLuce):
    """ListMLE: −log Plackett–Luce probability of the ideal order, Σ_j −log(e^{s_(j)} / Σ_{k≥j} e^{s_(k)}).

    A query of equal grades contributes nothing.

    Args:
        ties: ``efron`` (default), ``breslow``, ``random`` (one order sampled by `seed` and row), or ``file`` (the order
            of the rows, as published, which leaks the order of the file).
        lowest: whether to include the terms of the query's lowest grade, as published.
        seed: seed of the random order.

    Weights: a document's weight multiplies its own term, not the risk sums; a tied group uses its mean weight.
    Cost: O(m), after a sort by grade when the loss is bound; a product with the curvature is O(m) per column.
    Consistency: for the 0–1 loss on whole orders (Xia et al. 2008), not for DCG.
    Source: Xia et al. 2008, "Listwise approach to learning to rank: theory and algorithm"; Efron 1977; Breslow 1974.

    >>> float(ListMLE().on([2, 1, 0], Queries([0, 3])).at([0.0, 0.0, 0.0]).value) == float(np.log(6))
    True
    """

    @override
    def term_weights(self, ideal: IdealOrder) -> FloatArray:
        return np.ones(len(ideal.labels))


@dataclass(frozen=True)
class PListMLE(PlackettLuce):
    """Position-aware ListMLE: Σ_i a_i·(−log(e^{s_(i)} / Σ_{k≥i} e^{s_(k)})), a falling with the position i.

    Args:
        discount: a_i = 1/F(i) for a discount of `toprank.metrics.Discount` (``log2``: 1/log2(1 + i), the default), or
            ``published``: (2^{m−i} − 1) / (2^{m−1} − 1), the paper's weights divided by the largest.
        ties, lowest, seed: see `ListMLE`; Efron and Breslow give each document of a tied group the group's mean a.

    Weights, cost and consistency: as for `ListMLE`.
    Source: Lan et al. 2014, "Position-aware ListMLE: a sequential learning process for ranking".

    >>> bound = PListMLE("published").on([2, 1, 0], Queries([0, 3]))   # a = 1, 1/3, 0
    >>> bool(np.isclose(bound.at([0.0, 0.0, 0.0]).value, np.log(3) + np.log(2) / 3))
    True
    """

    discount: Discount | str | tuple[float, ...] | Callable[[Any], Any] = "log2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discount != "published":
            Discount.from_spec(self.discount)

    @override
    def term_weights(self, ideal: IdealOrder) -> FloatArray:
        if self.discount != "published":
            return Discount.from_spec(self.discount).weights(int(ideal.sizes.max()))[ideal.position - 1]
        # Numerator and denominator divided by 2^{m−1}, which overflows beyond m = 1024. One document: 0 / 1.
        least = np.exp2(1.0 - ideal.sizes)
        weights: FloatArray = (np.exp2(1.0 - ideal.position) - least) / np.where(ideal.sizes > 1, 1 - least, 1.0)
        return weights


@dataclass(frozen=True)
class CostSensitiveListMLE(PlackettLuce):
    """cs-RgList: Σ_j (U_j / V_j)·(−log(e^{s_(j)} / Σ_{k≥j} e^{s_(k)})) with U = pcf^{y_(j)}.

    V is the number of documents of that grade in the query, so the total weight of a grade does not depend on its
    frequency. The ranker's l2 corresponds to the paper's 1/C.

    Args:
        pcf: ratio of the weights of neighboring grades, ≥ 1 (the paper tries 1 … 6).
        ties, lowest, seed: see `ListMLE`.

    Weights, cost and consistency: as for `ListMLE`.
    Source: He, "Cost-sensitive learning for listwise ranking functions", (3).

    >>> labels, queries = [2, 1, 0], Queries([0, 3])
    >>> plain = ListMLE().on(labels, queries).at([0.3, 0.2, 0.1])
    >>> plain.value == CostSensitiveListMLE(pcf=1).on(labels, queries).at([0.3, 0.2, 0.1]).value
    True
    """

    pcf: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("CostSensitiveListMLE's pcf", self.pcf, least=1)

    @override
    def term_weights(self, ideal: IdealOrder) -> FloatArray:
        with np.errstate(over="ignore"):
            costs = np.power(float(self.pcf), ideal.labels) / ideal.grade_sizes[ideal.grade]
        if not np.isfinite(costs).all():
            raise DataError(
                f"CostSensitiveListMLE's weight pcf^y overflows for pcf={self.pcf:g} and the grade "
                f"{ideal.labels.max():g}. Choose a smaller pcf or smaller grades."
            )
        return costs


class GroupLayout(NamedTuple):
    """Label-dependent quantities of the likelihood."""

    order: IntArray  # row of each document
    weights: FloatArray  # weight of each document's term
    mass: FloatArray  # sum of the weights of each query
    scale: FloatArray  # weight of each query in the mean
    starts: IntArray  # first document of each group, and the number of documents
    group_weights: FloatArray  # mean weight w̄ of each group
    groups: IntArray  # first group of each query, and the number of groups

    def slice(self, block: Block) -> GroupLayout:
        """Return the part of a block as views; indices still count from the first document and group of the data."""
        first, last = self.groups[block.first], self.groups[block.last]
        of_documents = (self.order[block.rows], self.weights[block.rows])
        of_queries = (self.mass[block.queries], self.scale[block.queries])
        of_groups = (self.starts[first : last + 1], self.group_weights[first:last])
        return GroupLayout(*of_documents, *of_queries, *of_groups, self.groups[block.first : block.last + 1])


class _BoundLikelihood(BoundLoss):
    """The loss of documents in an ideal order, divided into groups that begin at `starts`."""

    def __init__(
        self, judgments: Judgments, order: IntArray, weights: FloatArray, starts: IntArray, efron: bool
    ) -> None:
        super().__init__(judgments)
        queries, ends = self.queries, np.append(starts, len(order))
        means = np.add.reduceat(weights, starts) / np.diff(ends)
        groups = np.searchsorted(starts, queries.offsets)
        self.layout = GroupLayout(order, weights, queries.sum(weights), self.scale, ends, means, groups)
        self.efron = efron

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        losses, layout = np.empty(block.n_queries), self.layout.slice(block)
        kernels.likelihood(scores, *layout, self.efron, grad, losses)
        if not requested.curvature:
            return losses, None
        order, _, _, *rest = layout
        exponentials, sums = np.empty(len(scores)), np.empty((6, len(layout.group_weights)))
        kernels.risk_sums(scores, order, *rest, self.efron, exponentials, sums)
        return losses, _RiskCurvature(layout, exponentials, sums)


@dataclass(frozen=True)
class _RiskCurvature(Curvature):
    """Σ over terms of weight·(diag(p) − p pᵀ), p the softmax over the term's risk set; products take O(m) per
    column.
    """

    layout: GroupLayout
    exponentials: FloatArray
    sums: FloatArray
    """Sums of each group that `native/listmle.c` reuses."""

    def __matmul__(self, V: FloatArray) -> FloatArray:
        order, _, mass, _, starts, _, groups = self.layout
        return by_columns(V, kernels.risk_times, self.exponentials, self.sums, order, mass, starts, groups)

    @override
    def diagonal(self) -> FloatArray:
        diagonal, layout = np.empty_like(self.exponentials), self.layout
        kernels.risk_diagonal(self.exponentials, self.sums, layout.order, layout.starts, layout.groups, diagonal)
        return diagonal
