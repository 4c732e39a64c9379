"""Metrics of tied rankings in closed form: the exact mean over all orders of the tied documents.

Every kernel walks the tied groups of a query in rank order. A group of g documents that starts after rank r holds
each of its documents at each of the ranks r+1 … r+g with probability 1/g. Where no scores are tied all groups have
one document, and the formulas reduce to the plain definitions.

All kernels share their first arguments: ``order, ends, starts`` (see `Ranked`), ``codes`` (the grade of each document,
as an index) and a table with one entry per grade.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, kernel

Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[Any]


@kernel
def weighted_sum(
    order: IntArray,
    ends: Flags,
    starts: IntArray,
    codes: Codes,
    table: FloatArray,
    weights: FloatArray,
    limits: IntArray,
    out: FloatArray,
) -> None:
    """Σ_{rank j ≤ limits[q]} weights[j] · table[grade at j]: linear, so a group contributes its mean."""
    for q in range(len(out)):
        start, limit = starts[q], min(limits[q], len(weights))
        total, group, above = 0.0, 0.0, 0
        for i in range(start, starts[q + 1]):
            if above >= limit:
                break
            group += table[codes[order[i]]]
            if ends[i]:
                below = i + 1 - start
                if below - above == 1:
                    total += group * weights[above]
                elif group != 0.0:
                    share = 0.0
                    for j in range(above, min(below, limit)):
                        share += weights[j]
                    total += group * share / (below - above)
                group, above = 0.0, below
        out[q] = total


@kernel
def ideal_sum(
    codes: Codes, offsets: IntArray, table: FloatArray, best_first: IntArray, weights: FloatArray, out: FloatArray
) -> None:
    """The largest possible Σ weights[j] · table[grade at j]: documents sorted by their table entry.

    Only the number of documents of each grade matters; `best_first` lists the grades by entry.
    """
    counts = np.zeros(len(table), dtype=np.int64)
    for q in range(len(out)):
        counts[:] = 0
        for i in range(offsets[q], offsets[q + 1]):
            counts[codes[i]] += 1
        total, rank = 0.0, 0
        for code in best_first:
            for _ in range(min(counts[code], len(weights) - rank)):
                total += table[code] * weights[rank]
                rank += 1
        out[q] = total


@kernel
def ideal_sum_of_many_grades(
    codes: Codes, offsets: IntArray, table: FloatArray, weights: FloatArray, out: FloatArray
) -> None:
    """`ideal_sum` where almost every document has a grade of its own: counting grades would cost more than sorting."""
    for q in range(len(out)):
        ideal = _sorted_gains(codes, offsets[q], offsets[q + 1], table)
        total = 0.0
        for rank in range(min(len(ideal), len(weights))):
            total += ideal[rank] * weights[rank]
        out[q] = total


@kernel
def _sorted_gains(codes: Codes, start: int, stop: int, table: FloatArray) -> FloatArray:
    """The table entries of some documents, largest first."""
    losses = np.empty(stop - start, dtype=np.float64)
    for i in range(stop - start):
        losses[i] = -table[codes[start + i]]
    return -np.sort(losses)


@kernel
def mean_ndcg(
    order: IntArray,
    ends: Flags,
    starts: IntArray,
    codes: Codes,
    judged_codes: Codes,
    judged_offsets: IntArray,
    table: FloatArray,
    weights: FloatArray,
    cut: int,
    zero_past_end: bool,
    out: FloatArray,
) -> None:
    """Mean of NDCG@1 … NDCG@cut (cut = 0: to the end of the list); -1 where the ideal is 0.

    Past the end of the list NDCG@j stays what it was, or is 0 where `zero_past_end`.
    """
    reached = np.zeros(len(weights), dtype=np.float64)
    for q in range(len(out)):
        m = starts[q + 1] - starts[q]
        _group_means(order, ends, starts[q], starts[q + 1], codes, table, reached)
        ideal = _sorted_gains(judged_codes, judged_offsets[q], judged_offsets[q + 1], table)
        depth = cut if cut > 0 else m
        total, dcg, best = 0.0, 0.0, 0.0
        for j in range(depth):
            if j < m and j < len(weights):
                dcg += reached[j] * weights[j]
            if j < len(ideal) and j < len(weights):
                best += ideal[j] * weights[j]
            if best > 0.0 and (j < m or not zero_past_end):
                total += dcg / best
        out[q] = total / depth if best > 0.0 else -1.0


@kernel
def _group_means(
    order: IntArray, ends: Flags, start: int, stop: int, codes: Codes, table: FloatArray, out: FloatArray
) -> None:
    """Expected table entry at each rank: the mean of the tied group it lies in."""
    first, group = start, 0.0
    for i in range(start, stop):
        group += table[codes[order[i]]]
        if ends[i]:
            for j in range(first, i + 1):
                if j - start < len(out):
                    out[j - start] = group / (i + 1 - first)
            first, group = i + 1, 0.0


@kernel
def count(codes: Codes, offsets: IntArray, relevant: FloatArray, out: FloatArray) -> None:
    """Number of relevant documents of each query."""
    for q in range(len(out)):
        total = 0.0
        for i in range(offsets[q], offsets[q + 1]):
            total += relevant[codes[i]]
        out[q] = total


@kernel
def average_precision(
    order: IntArray,
    ends: Flags,
    starts: IntArray,
    codes: Codes,
    relevant: FloatArray,
    limit: int,
    by_hits: bool,
    out: FloatArray,
) -> None:
    """Σ over relevant documents at ranks j ≤ limit of the precision at j; divided by their number where `by_hits`.

    In a group of g with r relevant, after R relevant ones: a relevant document stands at the t-th place with
    probability r/g, and then (r−1)(t−1)/(g−1) relevant ones of its group are expected before it.
    """
    for q in range(len(out)):
        start, above, hits_above, total = starts[q], 0, 0.0, 0.0
        group, straddled = 0.0, False
        for i in range(start, starts[q + 1]):
            if above >= limit:
                break
            group += relevant[codes[order[i]]]
            if not ends[i]:
                continue
            size = i + 1 - start - above
            places = min(size, limit - above)
            if by_hits and places < size and group > 0.0:
                out[q] = _ap_by_hits_straddling(total, above, hits_above, size, group, places)
                straddled = True
                break
            total += _precisions(above, hits_above, size, group, places)
            hits_above += group
            above, group = above + size, 0.0
        if not straddled:
            out[q] = total / hits_above if by_hits and hits_above > 0.0 else total


@kernel
def _precisions(above: int, hits_above: float, size: int, hits: float, places: int) -> float:
    """Expected sum of precisions over the first `places` of a group of `size` with `hits` relevant documents."""
    if hits == 0.0:
        return 0.0
    if size == 1:
        return (hits_above + 1.0) / (above + 1.0)
    total, slope = 0.0, (hits - 1.0) / (size - 1.0)
    for t in range(places):
        total += (hits_above + 1.0 + slope * t) / (above + t + 1.0)
    return total * hits / size


@kernel
def _ap_by_hits_straddling(total: float, above: int, hits_above: float, size: int, hits: float, places: int) -> float:
    """The cut-off lies inside a tied group: mean over the (hypergeometric) number h of hits within it."""
    n_hits, expected = int(hits), 0.0
    for h in range(max(0, places - (size - n_hits)), min(places, n_hits) + 1):
        if hits_above + h == 0.0:
            continue
        log_probability = _log_choose(n_hits, h) + _log_choose(size - n_hits, places - h) - _log_choose(size, places)
        precisions = _precisions(above, hits_above, places, float(h), places)
        expected += np.exp(log_probability) * (total + precisions) / (hits_above + h)
    return expected


@kernel
def _log_choose(n: int, k: int) -> float:
    total = 0.0
    for i in range(min(k, n - k)):
        total += np.log((n - i) / (i + 1.0))
    return total


@kernel
def first_hit(
    order: IntArray,
    ends: Flags,
    starts: IntArray,
    codes: Codes,
    relevant: FloatArray,
    limit: int,
    reciprocal: FloatArray,
    success: FloatArray,
) -> None:
    """Of the first relevant document within `limit`: expected 1/rank, and the probability that there is one.

    Only the first group with a relevant document matters; there each of the places left is as likely a hit as any.
    """
    for q in range(len(success)):
        start, above, hits = starts[q], 0, 0.0
        reciprocal[q], success[q] = 0.0, 0.0
        for i in range(start, starts[q + 1]):
            if above >= limit:
                break
            hits += relevant[codes[order[i]]]
            if not ends[i]:
                continue
            size = i + 1 - start - above
            if hits > 0.0:
                none_before, total = 1.0, 0.0
                for t in range(min(size, limit - above)):
                    left = float(size - t)
                    total += none_before * (hits / left) / (above + t + 1.0)
                    none_before *= max(0.0, left - hits) / left
                    if none_before <= 0.0:
                        break
                reciprocal[q], success[q] = total, 1.0 - none_before
                break
            above += size
