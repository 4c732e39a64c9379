"""ListMLE and its weighted relatives: the likelihood of the ideal order, and what to do about ties.

The Plackett–Luce model chooses documents one after the other, each with probability e^{s_j} / Σ_{not yet chosen} e^s.
The loss is −log of the probability of choosing them by falling grade; a weight multiplies each document's term.
Equal grades leave the order open. The loss is Cox's partial likelihood, so its closed treatments of ties fit: for a
group D of d tied documents with risk set R (its grade and below),

    Efron    Σ_{l<d} w̄·log(Σ_R e^s − (l/d) Σ_D e^s) − Σ_D w_j s_j        Breslow    the same with l = 0.

Always: mean over the orders of tied documents ≤ Efron ≤ Breslow, and every order ≤ Breslow.

Documents are in the ideal order (best grade first), cut into groups of tied documents. A term of a group with l < d
has the risk sum Z_l = below + c_l·tied, where `tied` sums e^s over the group, `below` over everything of lower grade,
and c_l = 1 − l/d (Efron) or 1 (Breslow, or groups of one document). Nothing is ever subtracted.

All exponentials of a group are relative to the largest score in its risk set, so 1/d ≤ Z_l ≤ m. From a group to the
next better one that reference can only rise; `ratio` ≤ 1 carries sums over lower documents upwards and sums over better
groups' terms downwards, so nothing overflows in either direction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.checks import check_number, check_whole
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError
from toprank.losses.base import Answer, Block, BoundLoss, Curvature, Loss, Traits, Want
from toprank.losses.judgments import Judgments
from toprank.metrics.gains import Discount

__all__ = ["CostSensitiveListMLE", "ListMLE", "PListMLE"]

TIES = ("efron", "breslow", "random", "file")

FACTORS = 16  # risk sums multiplied before one logarithm is taken: each lies between 1/m and m


class IdealOrder(NamedTuple):
    """The documents of all queries by falling grade; every field is in that order."""

    labels: FloatArray
    sizes: IntArray
    """Number of documents in the document's query."""
    position: IntArray
    """1, 2 … within the query."""
    grade: IntArray
    """Number of the document's group of equal grades, counted through all queries."""
    grade_sizes: IntArray
    """Documents in each such group."""


@dataclass(frozen=True, kw_only=True)
class PlackettLuce(Loss):
    """What the three have in common: terms −w_j·log(e^{s_j} / Σ_{risk set} e^s) in the order of falling grades."""

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True)

    ties: str = "efron"
    lowest: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ties not in TIES:
            raise UnknownNameError("treatment of ties", str(self.ties), TIES)
        check_whole(f"{type(self).__name__}'s seed", self.seed, 0)

    @abstractmethod
    def term_weights(self, ideal: IdealOrder) -> FloatArray:
        """The weight of each document's term, in the ideal order, before document weights."""

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        labels, queries = judgments.labels, judgments.queries
        order = self._order(labels, queries)
        ideal, starts = _ideal_order(labels, queries, order)
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
        return np.lexsort(keys)  # stable: what no key decides stays as the rows stand

    def _taking_part(self, ideal: IdealOrder, queries: Queries) -> FloatArray:
        """1 for documents whose term counts: not where all grades are equal, and the lowest grade's only if wanted."""
        last = queries.spread(ideal.grade[queries.offsets[1:] - 1])
        several = queries.spread(ideal.grade[queries.offsets[:-1]]) != last
        counts = several if self.lowest else several & (ideal.grade != last)
        return np.asarray(counts, dtype=np.float64)


@dataclass(frozen=True)
class ListMLE(PlackettLuce):
    """ListMLE: −log Plackett–Luce probability of the ideal order, Σ_j −log(e^{s_(j)} / Σ_{k≥j} e^{s_(k)}).

    A query of equal grades contributes nothing.

    Args:
        ties: ``efron`` (default), ``breslow``, ``random`` (one order drawn by `seed` and the row), or ``file`` (as the
            rows stand, as published; it leaks the order of the file).
        lowest: whether the terms of the query's lowest grade count, as published.
        seed: seed of the random order.

    Weights: a document's weight multiplies its own term, never the risk sums; a tied group uses its mean weight.
    Cost: O(m) once sorted by grade, which happens when the loss is bound.
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
        ties: see `ListMLE`; Efron and Breslow give each document of a tied group the group's mean a.
        lowest: see `ListMLE`.
        seed: see `ListMLE`.

    Weights: a document's weight multiplies its own term, never the risk sums; a tied group uses its mean weight.
    Cost: O(m) once sorted by grade.
    Consistency: as for `ListMLE`.
    Source: Lan et al. 2014, "Position-aware ListMLE: a sequential learning process for ranking".

    >>> bound = PListMLE("published").on([2, 1, 0], Queries([0, 3]))   # a = 1, 1/3, 0
    >>> bool(np.isclose(bound.at([0.0, 0.0, 0.0]).value, np.log(3) + np.log(2) / 3))
    True
    """

    discount: Discount | str | tuple[float, ...] | Callable[[Any], Any] = "log2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discount != "published":
            Discount.of(self.discount)

    @override
    def term_weights(self, ideal: IdealOrder) -> FloatArray:
        if self.discount != "published":
            return Discount.of(self.discount).weights(int(ideal.sizes.max()))[ideal.position - 1]
        # Numerator and denominator divided by 2^{m−1}, which overflows beyond m = 1024. One document: 0 / 1.
        least = np.exp2(1.0 - ideal.sizes)
        weights: FloatArray = (np.exp2(1.0 - ideal.position) - least) / np.where(ideal.sizes > 1, 1 - least, 1.0)
        return weights


@dataclass(frozen=True)
class CostSensitiveListMLE(PlackettLuce):
    """cs-RgList: Σ_j (U_j / V_j)·(−log(e^{s_(j)} / Σ_{k≥j} e^{s_(k)})) with U = pcf^{y_(j)}.

    V is the number of documents of that grade in the query, so each grade speaks with one voice, and the better ones
    louder. The ranker's l2 stands for the paper's 1/C.

    Args:
        pcf: how much louder a grade is than the one below, ≥ 1 (the paper tries 1 … 6).
        ties: see `ListMLE`.
        lowest: see `ListMLE`.
        seed: see `ListMLE`.

    Weights: a document's weight multiplies its own term, never the risk sums; a tied group uses its mean weight.
    Cost: O(m) once sorted by grade; a product with the curvature O(m) a column.
    Consistency: as for `ListMLE`.
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
                f"{ideal.labels.max():g}. Choose a smaller pcf, or smaller grades."
            )
        return costs


def _ideal_order(labels: FloatArray, queries: Queries, order: IntArray) -> tuple[IdealOrder, IntArray]:
    """The ideal order, and where in it each group of equal grades begins."""
    ordered = labels[order]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    begins[queries.offsets[:-1]] = True
    starts = np.flatnonzero(begins)
    grade_sizes = np.diff(np.append(starts, len(labels)))
    position = np.arange(1, len(labels) + 1) - queries.spread(queries.offsets[:-1])
    sizes = queries.spread(queries.sizes)
    return IdealOrder(ordered, sizes, position, np.cumsum(begins) - 1, grade_sizes), starts


class Layout(NamedTuple):
    """What depends on the labels alone, for all queries."""

    offsets: IntArray
    order: IntArray  # the row of each document in the ideal order
    weights: FloatArray  # of each document's term, in the ideal order
    mass: FloatArray  # their sum in each query
    scale: FloatArray  # of each query in the mean
    group_starts: IntArray  # into the ideal order; the number of documents at the end
    group_weights: FloatArray  # w̄, the mean weight in each group
    query_groups: IntArray  # each query's first group; the number of groups at the end


class RiskSums(NamedTuple):
    """The state of a curvature: for each group Σ_l w̄·c_l^a / Z_l^b, times the query's scale."""

    exponentials: FloatArray  # in the ideal order
    ratio: FloatArray
    below_1: FloatArray  # a = 0, b = 1
    tied_1: FloatArray  # a = 1, b = 1
    below_2: FloatArray  # a = 0, b = 2
    mixed_2: FloatArray  # a = 1, b = 2
    tied_2: FloatArray  # a = 2, b = 2


class _BoundLikelihood(BoundLoss):
    """The loss for documents in an ideal order, split into groups that begin at `starts`."""

    def __init__(
        self, judgments: Judgments, order: IntArray, weights: FloatArray, starts: IntArray, efron: bool
    ) -> None:
        super().__init__(judgments)
        queries, group_starts = self.queries, np.append(starts, len(order))
        self.layout = Layout(
            queries.offsets,
            order,
            weights,
            queries.sum(weights),
            self.scale,
            group_starts,
            np.add.reduceat(weights, starts) / np.diff(group_starts),
            np.searchsorted(starts, queries.offsets),
        )
        self.efron = efron

    @override
    def judge(self, block: Block, scores: FloatArray, grad: FloatArray, want: Want) -> Answer:
        losses, given = np.empty(block.n_queries), (self.layout, self.efron, block.first, block.last)
        likelihood(scores, *given, grad, losses)
        if not want.curvature:
            return losses, None
        return losses, _RiskCurvature(self.layout, block.first, block.last, risk_sums(scores, *given))


@dataclass(frozen=True)
class _RiskCurvature(Curvature):
    """Σ over terms of weight·(diag(p) − p pᵀ), p the softmax over the term's risk set: suffix sums, O(m) a column."""

    layout: Layout
    first: int
    last: int
    sums: RiskSums

    def __matmul__(self, V: FloatArray) -> FloatArray:
        columns = np.ascontiguousarray(V, dtype=np.float64).reshape(len(self.sums.exponentials), -1)
        product = np.empty_like(columns)
        risk_times(self.sums, self.layout, self.first, self.last, columns, product)
        return product.reshape(V.shape)

    @override
    def diagonal(self) -> FloatArray:
        return risk_diagonal(self.sums, self.layout, self.first, self.last)


@kernel
def likelihood(
    scores: FloatArray,
    layout: Layout,
    efron: bool,
    first: int,
    last: int,
    grad: FloatArray,
    losses: FloatArray,
) -> None:
    """Losses and scaled gradients of the queries first … last − 1; `scores` and `grad` are theirs alone."""
    base, first_group = layout.offsets[first], layout.query_groups[first]
    n_groups = layout.query_groups[last] - first_group
    exponentials, ratio, top = np.empty(len(scores)), np.empty(n_groups), np.empty(n_groups)
    below, tied = np.empty(n_groups), np.empty(n_groups)
    for q in range(first, last):
        if layout.mass[q] == 0.0:
            losses[q - first] = 0.0
            grad[layout.offsets[q] - base : layout.offsets[q + 1] - base] = 0.0
            continue
        _suffix_sums(scores, layout, q, base, first_group, exponentials, ratio, top, below, tied)
        loss, above, scale = 0.0, 0.0, layout.scale[q]
        for group in range(layout.query_groups[q], layout.query_groups[q + 1]):
            g, start, stop = group - first_group, layout.group_starts[group], layout.group_starts[group + 1]
            mean = layout.group_weights[group]
            if group > layout.query_groups[q]:
                above *= ratio[g - 1]
            share, more = above, 0.0
            if mean > 0.0:
                logs, for_below, for_tied = _terms(below[g], tied[g], stop - start, efron)
                loss += mean * logs
                share, more = above + mean * for_tied, mean * for_below
            for i in range(start, stop):
                row, weight = layout.order[i] - base, layout.weights[i]
                loss += weight * (top[g] - scores[row])
                grad[row] = scale * (exponentials[i - base] * share - weight)
            above += more
        losses[q - first] = loss


@kernel
def _suffix_sums(
    scores: FloatArray,
    layout: Layout,
    q: int,
    base: int,
    first_group: int,
    exponentials: FloatArray,
    ratio: FloatArray,
    top: FloatArray,
    below: FloatArray,
    tied: FloatArray,
) -> None:
    """From the lowest group of query q upwards; ratio[g] = exp(reference of the group after g − reference of g)."""
    reference, lower = -np.inf, 0.0
    for group in range(layout.query_groups[q + 1] - 1, layout.query_groups[q] - 1, -1):
        g, start, stop = group - first_group, layout.group_starts[group], layout.group_starts[group + 1]
        before = reference
        for i in range(start, stop):
            reference = max(reference, scores[layout.order[i] - base])
        ratio[g] = 1.0 if reference == before else np.exp(before - reference)
        lower *= ratio[g]
        total = 0.0
        for i in range(start, stop):
            exponentials[i - base] = np.exp(scores[layout.order[i] - base] - reference)
            total += exponentials[i - base]
        top[g], below[g], tied[g] = reference, lower, total
        lower += total


@kernel
def _terms(below: float, tied: float, d: int, efron: bool) -> tuple[float, float, float]:
    """Σ_l log Z_l, Σ_l 1/Z_l and Σ_l c_l/Z_l."""
    if d == 1 or not efron:
        total = below + tied
        return d * np.log(total), d / total, d / total
    logs, product, for_below, for_tied = 0.0, 1.0, 0.0, 0.0
    for left in range(d, 0, -1):
        share = left / d
        total = below + share * tied
        inverse = 1.0 / total
        for_below += inverse
        for_tied += share * inverse
        product *= total
        if left % FACTORS == 0:
            logs += np.log(product)
            product = 1.0
    return logs + np.log(product), for_below, for_tied


@kernel
def risk_sums(scores: FloatArray, layout: Layout, efron: bool, first: int, last: int) -> RiskSums:
    """The state of the curvature of the queries first … last − 1."""
    base, first_group = layout.offsets[first], layout.query_groups[first]
    n = layout.query_groups[last] - first_group
    top, below, tied = np.empty(n), np.empty(n), np.empty(n)
    sums = RiskSums(np.empty(len(scores)), np.empty(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n))
    for q in range(first, last):
        _suffix_sums(scores, layout, q, base, first_group, sums.exponentials, sums.ratio, top, below, tied)
        for group in range(layout.query_groups[q], layout.query_groups[q + 1]):
            g, start, stop = group - first_group, layout.group_starts[group], layout.group_starts[group + 1]
            d, mean = stop - start, layout.scale[q] * layout.group_weights[group]
            for left in range(d if mean > 0.0 else 0, 0, -1):
                share = left / d if efron else 1.0
                total = below[g] + share * tied[g]
                once = mean / total
                twice = once / total
                sums.below_1[g] += once
                sums.tied_1[g] += once * share
                sums.below_2[g] += twice
                sums.mixed_2[g] += twice * share
                sums.tied_2[g] += twice * share * share
    return sums


@kernel
def risk_times(sums: RiskSums, layout: Layout, first: int, last: int, V: FloatArray, product: FloatArray) -> None:
    """Σ over terms of weight·p_i·(V_i − Σ_j p_j V_j), without a loop over the terms of a group.

    The row of `product` that belongs to a group's first document keeps Σ e^s V over everything below the group until
    the pass downwards replaces it by the result.
    """
    base, first_group, width = layout.offsets[first], layout.query_groups[first], V.shape[1]
    order, starts = layout.order, layout.group_starts
    below, tied, above = np.empty(width), np.empty(width), np.empty(width)
    for q in range(first, last):
        if layout.mass[q] == 0.0:
            product[layout.offsets[q] - base : layout.offsets[q + 1] - base] = 0.0
            continue
        below[:] = 0.0
        # Upwards: a risk set holds its own group and all below it. The reference rises on the way, hence the ratios.
        for group in range(layout.query_groups[q + 1] - 1, layout.query_groups[q] - 1, -1):
            keep = order[starts[group]] - base
            for c in range(width):
                below[c] *= sums.ratio[group - first_group]
                product[keep, c] = below[c]
            for i in range(starts[group], starts[group + 1]):
                for c in range(width):
                    below[c] += sums.exponentials[i - base] * V[order[i] - base, c]
        # Downwards: a document is in the risk sets of its own group's terms and of all better groups'.
        above[:] = 0.0
        terms = 0.0
        for group in range(layout.query_groups[q], layout.query_groups[q + 1]):
            g, start, stop = group - first_group, starts[group], starts[group + 1]
            carried = sums.ratio[g - 1] if group > layout.query_groups[q] else 1.0
            terms *= carried
            tied[:] = 0.0
            for i in range(start, stop):
                for c in range(width):
                    tied[c] += sums.exponentials[i - base] * V[order[i] - base, c]
            for c in range(width):
                lower = product[order[start] - base, c]
                above[c] *= carried
                below[c] = above[c] + sums.mixed_2[g] * lower + sums.tied_2[g] * tied[c]  # this group's own mean
                above[c] += sums.below_2[g] * lower + sums.mixed_2[g] * tied[c]
            own = terms + sums.tied_1[g]
            for i in range(start, stop):
                row, exponential = order[i] - base, sums.exponentials[i - base]
                for c in range(width):
                    product[row, c] = exponential * (own * V[row, c] - below[c])
            terms += sums.below_1[g]


@kernel
def risk_diagonal(sums: RiskSums, layout: Layout, first: int, last: int) -> FloatArray:
    """Σ over terms of weight·p_i·(1 − p_i); rounding never makes it negative."""
    base, first_group = layout.offsets[first], layout.query_groups[first]
    diagonal = np.empty(len(sums.exponentials))
    for q in range(first, last):
        once, twice = 0.0, 0.0
        for group in range(layout.query_groups[q], layout.query_groups[q + 1]):
            g = group - first_group
            carried = sums.ratio[g - 1] if group > layout.query_groups[q] else 1.0
            once *= carried
            twice *= carried * carried
            for i in range(layout.group_starts[group], layout.group_starts[group + 1]):
                e = sums.exponentials[i - base]
                value = e * (once + sums.tied_1[g]) - e * e * (twice + sums.tied_2[g])
                diagonal[layout.order[i] - base] = max(value, 0.0)
            once += sums.below_1[g]
            twice += sums.below_2[g]
    return diagonal
