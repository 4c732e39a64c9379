"""Ranking of documents by score, with tied groups. All rankings are computed here.

Documents of a query are ranked by descending score. Documents with equal scores form a tied group. Under ``expected``
ties the group is kept, and metrics take the expectation over its orders. Under the other rules every document is a
group of its own, in the order of the rows, which the caller may have permuted.

With a cut-off k, only documents that can be among the best k are sorted (`native/ranking.c`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, numbers
from toprank.data.arguments import check_whole
from toprank.data.queries import Queries
from toprank.errors import DataError


class Ranked(NamedTuple):
    """Documents of several queries in rank order; query q owns the positions ``starts[q]:starts[q + 1]``.

    Each query is ranked to the requested depth or beyond it, to the end of a tied group.
    """

    order: IntArray
    """Indices of the documents, best first."""
    ends: npt.NDArray[np.bool_]
    """Whether each position is the last of its tied group."""
    starts: IntArray


def checked_scores(scores: npt.ArrayLike, n: int) -> FloatArray:
    """Return the scores of `n` documents as an array; a matrix with one column is accepted."""
    if hasattr(scores, "predict"):
        raise DataError(f"scores is a {type(scores).__name__}. Give its predictions instead: .predict(data).")
    values = np.ascontiguousarray(numbers(scores, "scores"), dtype=np.float64)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n,):
        raise DataError(f"There are {values.size} scores for {n} documents. Give one score per document.")
    return values


def rank_block(
    scores: FloatArray, offsets: IntArray, block: tuple[int, int], depth: int | None, keep_ties: bool
) -> Ranked:
    """Rank the queries ``block[0] … block[1] - 1`` to `depth` (None: completely)."""
    first, last = block
    if len(scores) < offsets[last]:
        raise DataError(f"There are {len(scores)} scores for {offsets[-1]} documents. Give one score per document.")
    if depth is not None:
        check_whole("The depth k of a ranking", depth, 1)
    n_documents = int(offsets[last] - offsets[first])
    order, ends = np.empty(n_documents, dtype=np.int64), np.empty(n_documents, dtype=np.bool_)
    starts = np.empty(last - first + 1, dtype=np.int64)
    n_ranked = n_documents if depth is None else min(depth, n_documents)
    bad = kernels.rank_queries(scores, offsets[first : last + 1], n_ranked, keep_ties, order, ends, starts)
    if bad >= 0:
        query = int(np.searchsorted(offsets, bad, side="right")) - 1
        raise DataError(
            f"The score of document {bad} (from 0; query number {query}) is NaN. Every document needs a score."
        )
    return Ranked(order, ends, starts)


def ranking(scores: npt.ArrayLike, queries: Queries, depth: int | None = None) -> Ranked:
    """Rank all documents, ties in the order of the rows; ``order`` lists document indices query by query.

    >>> ranking([0.1, 0.9, 0.5, 0.5], Queries([0, 2, 4])).order.tolist()
    [1, 0, 2, 3]
    """
    values = checked_scores(scores, queries.n_documents)
    ranked = rank_block(values, queries.offsets, (0, len(queries)), depth, keep_ties=False)
    return Ranked(ranked.order[: ranked.starts[-1]], ranked.ends[: ranked.starts[-1]], ranked.starts)


def best_rows(scores: npt.ArrayLike, queries: Queries, k: int | None) -> list[IntArray]:
    """Return the rows of the best k documents of each query, best first; all documents if k is None.

    >>> [rows.tolist() for rows in best_rows([0.1, 0.9, 0.5, 0.5], Queries([0, 2, 4]), 1)]
    [[1], [2]]
    """
    order, _, starts = ranking(scores, queries, k)
    return [order[first:last][:k] for first, last in pairwise(starts)]
