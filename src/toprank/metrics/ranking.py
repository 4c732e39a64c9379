"""The only sort, and the only place that knows what a tie is.

Documents of a query are ranked by score, highest first. Equal scores form a tied group. Under ``expected`` ties the
group keeps its extent and metrics take their expectation over its orders; under the other rules every document is a
group of its own, in the order of the rows (which the caller may have permuted first).

A cut-off k needs no full sort: the best k are kept by insertion, and only when the group at the border is tied is the
query read again to complete it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.checks import check_whole
from toprank.data.queries import Queries
from toprank.errors import DataError

__all__ = ["Ranked", "rank_block", "ranking"]

_INSERTION_LIMIT = 64  # beyond this depth sorting the whole query is cheaper than insertion
_FULL_BUCKET = 32  # documents in one bucket before merge sort beats insertion


class Ranked(NamedTuple):
    """Documents of some queries in rank order: query q holds the positions ``starts[q]:starts[q + 1]``.

    A query is ranked at least down to the wanted depth, always to the end of a tied group.
    """

    order: IntArray
    """Document numbers, best first."""
    ends: npt.NDArray[np.bool_]
    """Whether a position is the last of its tied group."""
    starts: IntArray


def rank_block(
    scores: FloatArray, offsets: IntArray, block: tuple[int, int], depth: int | None, keep_ties: bool
) -> Ranked:
    """Rank the queries ``block[0] … block[1] - 1`` down to `depth` (None: to the end)."""
    first, last = block
    if len(scores) < offsets[last]:
        raise DataError(f"There are {len(scores)} scores for {offsets[-1]} documents; there must be one for each.")
    if depth is not None:
        check_whole("The depth k of a ranking", depth, 1)
    n_documents = int(offsets[last] - offsets[first])
    longest = int(np.diff(offsets[first : last + 1]).max())
    order, ends = np.empty(n_documents, dtype=np.int64), np.empty(n_documents, dtype=np.bool_)
    starts = np.zeros(last - first + 1, dtype=np.int64)
    wanted = longest if depth is None else min(depth, longest)
    bad = _rank_queries(scores, offsets, first, last, wanted, keep_ties, order, ends, starts)
    if bad >= 0:
        query = int(np.searchsorted(offsets, bad, side="right")) - 1
        raise DataError(
            f"The score of document {bad} (from 0; query number {query}) is NaN; every document needs a score."
        )
    return Ranked(order, ends, starts)


def ranking(scores: npt.ArrayLike, queries: Queries, depth: int | None = None) -> Ranked:
    """Rank all documents, ties in the order of the rows; ``order`` lists document numbers query by query.

    >>> ranking([0.1, 0.9, 0.5, 0.5], Queries([0, 2, 4])).order.tolist()
    [1, 0, 2, 3]
    """
    values = np.ascontiguousarray(scores, dtype=np.float64)
    if values.shape != (queries.n_documents,):
        raise DataError(
            f"There are {values.size} scores for {queries.n_documents} documents; there must be one for each."
        )
    ranked = rank_block(values, queries.offsets, (0, len(queries)), depth, keep_ties=False)
    return Ranked(ranked.order[: ranked.starts[-1]], ranked.ends[: ranked.starts[-1]], ranked.starts)


@kernel
def _rank_queries(
    scores: FloatArray,
    offsets: IntArray,
    first: int,
    last: int,
    depth: int,
    keep_ties: bool,
    order: IntArray,
    ends: npt.NDArray[np.bool_],
    starts: IntArray,
) -> int:
    """Fill order, ends and starts; -1, or the number of a document whose score is NaN."""
    best = np.empty(depth + 1, dtype=np.float64)
    longest = np.max(offsets[first + 1 : last + 1] - offsets[first:last])
    sorted_scores, heads = np.empty(longest, dtype=np.float64), np.empty(2 * longest + 1, dtype=np.int64)
    at = 0
    for q in range(first, last):
        start, stop = offsets[q], offsets[q + 1]
        if depth < stop - start and depth <= _INSERTION_LIMIT:
            n = _rank_top(scores, start, stop, depth, keep_ties, order[at:], best)
        else:
            n = _rank_all(scores, start, stop, order[at:], sorted_scores, heads)
        if n < 0:
            return -n - 1
        for i in range(at, at + n - 1):
            ends[i] = not keep_ties or scores[order[i]] != scores[order[i + 1]]
        at += n
        ends[at - 1] = True
        starts[q - first + 1] = at
    return -1


@kernel
def _rank_top(
    scores: FloatArray, start: int, stop: int, depth: int, keep_ties: bool, order: Any, best: FloatArray
) -> int:
    """The best `depth` documents by insertion, and what is tied with the last of them; -1 - i where score i is NaN.

    Insertion is stable, so among equal scores the earlier rows are kept; `border_tied` remembers whether some
    document outside the buffer equals its last score.
    """
    n, threshold, border_tied = 0, -np.inf, False
    for i in range(start, stop):
        score = scores[i]
        if n == depth and score <= threshold:
            border_tied |= score == threshold
            continue
        if score != score:
            return -i - 1
        j = n
        if n == depth:
            j = n - 1
            dropped = best[j]
        while j > 0 and best[j - 1] < score:
            best[j] = best[j - 1]
            order[j] = order[j - 1]
            j -= 1
        best[j] = score
        order[j] = i
        if n < depth:
            n += 1
            if n == depth:
                threshold = best[n - 1]
        else:
            threshold = best[n - 1]
            border_tied = dropped == threshold
    if keep_ties and border_tied:
        for i in range(order[n - 1] + 1, stop):
            if scores[i] == threshold:
                order[n] = i
                n += 1
    return n


@kernel
def _rank_all(scores: FloatArray, start: int, stop: int, order: Any, sorted_scores: FloatArray, heads: Any) -> int:
    """All documents, stable; -1 - i where score i is NaN.

    Documents fall into 2m buckets of equal width, highest scores first, and insertion mends the order inside them:
    linear for scores that spread. Where they cluster (or are not finite) a merge sort takes over.
    """
    m = stop - start
    high, low = scores[start], scores[start]
    for i in range(start, stop):
        score = scores[i]
        if score != score:
            return -i - 1
        high, low = max(high, score), min(low, score)
    scale = (2 * m - 1) / (high - low)  # 0 where the range is infinite, infinite where it is nothing
    if not 0.0 < scale < np.inf or not _fill_buckets(scores, start, stop, high, scale, heads):
        by_score = np.argsort(-scores[start:stop], kind="mergesort")
        for i in range(m):
            order[i] = start + by_score[i]
        return int(m)
    for i in range(start, stop):
        bucket = np.int64((high - scores[i]) * scale)
        place = heads[bucket]
        heads[bucket] = place + 1
        order[place], sorted_scores[place] = i, scores[i]
    for i in range(1, m):
        score = sorted_scores[i]
        if sorted_scores[i - 1] < score:
            document, j = order[i], i
            while j > 0 and sorted_scores[j - 1] < score:
                sorted_scores[j], order[j] = sorted_scores[j - 1], order[j - 1]
                j -= 1
            sorted_scores[j], order[j] = score, document
    return int(m)


@kernel
def _fill_buckets(scores: FloatArray, start: int, stop: int, high: float, scale: float, heads: Any) -> bool:
    """heads[b] = where bucket b begins; False where one bucket is so full that insertion would be slow."""
    n_buckets = 2 * (stop - start)
    heads[: n_buckets + 1] = 0
    for i in range(start, stop):
        heads[np.int64((high - scores[i]) * scale) + 1] += 1
    for b in range(n_buckets):
        if heads[b + 1] > _FULL_BUCKET:
            return False
        heads[b + 1] += heads[b]
    return True
