"""Boosted trees as `native/forest.c` takes them: what a row is compared with, and which leaves that excludes.

Every threshold becomes a place in a sorted list of its feature, and every node some bytes that say which leaves it
excludes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray

if TYPE_CHECKING:
    from toprank.rankers.trees.forest import Forest

__all__ = ["PackedTrees", "packed"]

_RANKS = 255  # thresholds of a column at most: ranks among them are bytes
Array = npt.NDArray[Any]


class PackedTrees(NamedTuple):
    """What `kernels.forest_scores` is told of the trees; native/forest.c explains it."""

    columns: IntArray
    cuts: FloatArray
    sets: Array
    trees: IntArray
    planes: IntArray
    entries: Array
    nodes: Array
    values: FloatArray

    def of_used_features(self, n_features: int) -> tuple[PackedTrees, Array]:
        """The same for rows that hold the used features alone; and where a feature is in these, or −1: nowhere."""
        used, places = np.unique(self.columns[:, 0], return_inverse=True)
        slots = np.full(n_features, -1, np.int32)
        slots[used] = np.arange(len(used))
        columns = self.columns.copy()
        columns[:, 0] = places
        return self._replace(columns=columns), slots


def packed(forest: Forest) -> PackedTrees:
    """All that the scores depend on."""
    return _Packing(forest).trees()


class _Packing:
    """The inner nodes of all trees, one after the other."""

    def __init__(self, forest: Forest) -> None:
        self._forest, leaves = forest, forest.n_leaves
        n_nodes = len(forest.feature)
        self._first_node, self._tree = _starts(leaves - 1), np.repeat(np.arange(len(leaves)), leaves - 1)
        # What the kernel finds out about a node: its first leaf, how many leaves of its smaller child follow, whether
        # that is the right one, and both children; and where each leaf is.
        self._begin, self._count = np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int32)
        self._swapped, self._next = np.empty(n_nodes, np.uint8), np.empty((n_nodes, 2), np.int32)
        self._place = np.empty(len(forest.values), np.int32)
        results = (self._begin, self._count, self._swapped, self._next, self._place)
        sides = (forest.left.astype(np.int32), forest.right.astype(np.int32))
        kernels.forest_layout(self._first_node, _starts(leaves), *sides, *results)

    def trees(self) -> PackedTrees:
        column, rank, columns, cuts = self._columns()
        leaves = self._forest.n_leaves
        tree_planes = _starts((leaves + 7) // 8)
        planes, entries = self._entries(tree_planes, column, rank)
        values = np.zeros(8 * int(tree_planes[-1]))
        values[8 * np.repeat(tree_planes[:-1], leaves) + self._place] = self._forest.values
        nodes = np.column_stack([column, rank, self._next]).astype(np.int32)
        trees = np.column_stack([tree_planes, self._first_node])
        return PackedTrees(columns, cuts, self._forest.words, trees, planes, entries, nodes, values)

    def _columns(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """The column and rank of each node; then the columns and their thresholds.

        The thresholds of a feature make runs of at most 255, and each split by category is a run of its own; a run has
        a column for each kind and side that occurs.
        """
        forest = self._forest
        threshold, feature, missing, by_category = forest.threshold, forest.feature, forest.missing, forest.set_size > 0
        default_left = forest.default_left.astype(np.int64)
        kinds = kernels.ColumnKind
        of_sets = kinds.CATEGORIES if forest.flushes else kinds.CATEGORIES_FROM_0 + default_left
        of_numbers = np.where(missing == 0, kinds.NO_MISSING, kinds.ZERO_RIGHT + 2 * (missing - 1) - default_left)
        kind = np.where(by_category, of_sets, of_numbers)
        own = np.where(by_category, np.arange(len(kind)), -1)
        order = np.lexsort((threshold, own, feature))
        new_list = _changes(feature[order]) | _changes(own[order])
        new_cut = new_list | _changes(threshold[order])
        cut = np.cumsum(new_cut) - 1
        within = cut - np.maximum.accumulate(np.where(new_list, cut, 0))
        new_run = new_cut & (within % _RANKS == 0)
        run, rank = np.empty_like(order), np.empty_like(order)
        run[order], rank[order] = np.cumsum(new_run) - 1, within % _RANKS
        _, heads, column = np.unique((run * 8 + kind) * 2 + self._swapped, return_index=True, return_inverse=True)
        begin = cut[new_run]
        count = np.diff(np.append(begin, new_cut.sum()))
        parts = (feature[heads], kind[heads], self._swapped[heads], begin[run[heads]], count[run[heads]])
        columns = np.column_stack(parts).astype(np.int64)
        by_set = columns[:, 1] >= kinds.CATEGORIES  # these say which words are their set instead
        columns[by_set, 3] = _starts(forest.set_size)[heads[by_set]]
        columns[by_set, 4] = forest.set_size[heads[by_set]]
        # In a swapped column ranks are complements: those up to r, and no others, are above 126 − r.
        return column, np.where(self._swapped, 126 - rank, rank - 128), columns, threshold[order][new_cut]

    def _entries(self, tree_planes: IntArray, column: IntArray, rank: IntArray) -> tuple[IntArray, Array]:
        """For each plane of eight leaves the nodes that exclude some of them: the first of each plane, and all."""
        begin, end = self._begin.astype(np.int64), self._begin + self._count.astype(np.int64)
        spans = (end - 1) // 8 - begin // 8 + 1
        node = np.repeat(np.arange(len(begin)), spans)
        plane = begin[node] // 8 + np.arange(len(node)) - np.repeat(_starts(spans)[:-1], spans)
        low, high = np.maximum(begin[node] - 8 * plane, 0), np.minimum(end[node] - 8 * plane, 8)
        leaves = (1 << high) - (1 << low)
        plane += tree_planes[self._tree[node]]
        order = np.argsort(plane, kind="stable")
        entries = np.empty((len(node), 6), np.uint8)
        entries[:, :4] = column[node[order]].astype(np.int32)[:, None].view(np.uint8)
        entries[:, 4], entries[:, 5] = rank[node[order]].astype(np.int8).view(np.uint8), leaves[order]
        return _starts(np.bincount(plane, minlength=int(tree_planes[-1]))), entries


def _starts(counts: Array) -> IntArray:
    """Where each begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _changes(key: Array) -> npt.NDArray[np.bool_]:
    """Where a key differs from the one before; the first does."""
    return np.append(True, key[1:] != key[:-1])[: len(key)]
