"""Plackett–Luce likelihoods through suffix sums, stable for any scores.

Documents are in the ideal order (best grade first), cut into groups of tied documents. A term of a group with l < d
has the risk sum Z_l = below + c_l·tied, where `tied` sums e^s over the group, `below` over everything of lower grade,
and c_l = 1 − l/d (Efron) or 1 (Breslow, or groups of one document). Nothing is ever subtracted.

All exponentials of a group are relative to the largest score in its risk set, so 1/d ≤ Z_l ≤ m. From a group to the
next better one that reference can only rise; `ratio` ≤ 1 carries sums over lower documents upwards and sums over better
groups' terms downwards, so nothing overflows in either direction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel

__all__ = ["Layout", "RiskSums", "likelihood", "risk_diagonal", "risk_sums", "risk_times"]

FACTORS = 16  # risk sums multiplied before one logarithm is taken: each lies between 1/m and m


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
        for group in range(layout.query_groups[q + 1] - 1, layout.query_groups[q] - 1, -1):
            keep = order[starts[group]] - base
            for c in range(width):
                below[c] *= sums.ratio[group - first_group]
                product[keep, c] = below[c]
            for i in range(starts[group], starts[group + 1]):
                for c in range(width):
                    below[c] += sums.exponentials[i - base] * V[order[i] - base, c]
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
