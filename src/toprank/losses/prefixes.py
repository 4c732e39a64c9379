"""Visiting the prefixes of a Plackett–Luce choice: every ordered choice of some documents, with its probability.

The sum of exponentials over the documents *outside* a prefix A is a total less the few members of A. It is taken
relative to the largest value outside A, which is the first of the query's values, in falling order, that A leaves out:
what remains is at least 1 and the total at most m, so the subtraction loses nothing, however far the values lie apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, kernel

__all__ = ["Side", "Walk", "advance", "mean_weight", "outside", "row_sums", "side_of", "start_walk"]


class Side(NamedTuple):
    """Exponentials of one list of values, relative to each of its largest ones."""

    rank: IntArray  # of each document, 0 for the largest value; all beyond the first `steps` share the last rank
    tops: FloatArray  # the values in falling order, `steps` of them
    exponentials: FloatArray  # [r, j] = exp(value_j − tops[r]) for documents of rank r or later, else 0
    totals: FloatArray  # sum of each row


class Walk(NamedTuple):
    """Where the visit of all prefixes stands; entries with index `depth` belong to the present prefix."""

    prefix: IntArray
    candidate: IntArray  # next document to append
    used: npt.NDArray[np.bool_]
    probability: FloatArray  # P(A)
    row: IntArray  # first rank of the target that A leaves out
    left: FloatArray  # Σ_{j ∉ A} e^ψ, relative to that rank's


@kernel
def side_of(values: FloatArray, steps: int) -> Side:
    """The exponentials of `values`; O(steps·m)."""
    m = len(values)
    rank, tops = np.full(m, steps, np.int64), np.empty(steps)
    exponentials, totals = np.zeros((steps, m)), np.zeros(steps)
    for r in range(steps):
        best = -1
        for j in range(m):
            if rank[j] == steps and (best < 0 or values[j] > values[best]):
                best = j
        rank[best] = r
        tops[r] = values[best]
        for j in range(m):
            if rank[j] >= r:
                exponentials[r, j] = np.exp(values[j] - tops[r])
                totals[r] += exponentials[r, j]
    return Side(rank, tops, exponentials, totals)


@kernel
def row_sums(side: Side, factors: FloatArray) -> FloatArray:
    """Σ_j exponentials[r, j]·factors[j] for each r."""
    sums = np.zeros(len(side.tops))
    for r in range(len(sums)):
        for j in range(len(factors)):
            sums[r] += side.exponentials[r, j] * factors[j]
    return sums


@kernel
def outside(side: Side, prefix: IntArray, depth: int) -> tuple[int, float]:
    """The first rank that the prefix leaves out, and the sum of exponentials outside the prefix relative to it."""
    row, found = 0, True
    while found:
        found = False
        for i in range(depth):
            if side.rank[prefix[i]] == row:
                row += 1
                found = True
                break
    left = side.totals[row]
    for i in range(depth):
        left -= side.exponentials[row, prefix[i]]
    return row, max(left, 1.0)


@kernel
def start_walk(target: Side, m: int, steps: int) -> Walk:
    """The empty prefix."""
    walk = Walk(
        np.zeros(steps, np.int64),
        np.zeros(steps, np.int64),
        np.zeros(m, np.bool_),
        np.ones(steps),
        np.zeros(steps, np.int64),
        np.empty(steps),
    )
    walk.left[0] = target.totals[0]
    return walk


@kernel
def advance(walk: Walk, target: Side, depth: int, m: int, steps: int) -> int:
    """Go to the next prefix and return its length; −1 after the last. Prefixes of probability 0 are passed over."""
    while depth >= 0:
        if depth == steps - 1 or walk.candidate[depth] == m:
            depth -= 1
            if depth >= 0:
                walk.used[walk.prefix[depth]] = False
            continue
        document = walk.candidate[depth]
        walk.candidate[depth] += 1
        if walk.used[document]:
            continue
        chosen = target.exponentials[walk.row[depth], document] / walk.left[depth]
        if walk.probability[depth] * chosen == 0.0:
            continue
        walk.prefix[depth] = document
        walk.used[document] = True
        depth += 1
        walk.probability[depth] = walk.probability[depth - 1] * chosen
        walk.candidate[depth] = 0
        walk.row[depth], walk.left[depth] = outside(target, walk.prefix, depth)
        return depth
    return depth


@kernel
def mean_weight(walk: Walk, target: Side, weights: FloatArray, weighted: FloatArray, depth: int) -> float:
    """The expected weight of the document that the target chooses next; `weighted` is ``row_sums(target, weights)``."""
    row = walk.row[depth]
    total = weighted[row]
    for i in range(depth):
        total -= weights[walk.prefix[i]] * target.exponentials[row, walk.prefix[i]]
    return float(max(total, 0.0) / walk.left[depth])
