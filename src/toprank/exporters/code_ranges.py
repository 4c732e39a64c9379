"""Splits by sets of categories, rewritten as thresholds on the category code for programs that only compare numbers.

A set of codes is a union of ranges of integers, and a range is delimited by two thresholds. So a split by a set becomes
several splits by thresholds, with a copy of the subtrees for each range and each gap. If a split further up already
determines the range of a document, no threshold is tested again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.rankers.trees.forest import MISSING_NAN, Forest, Tree

MAX_LEAF_GROWTH = 16
"""Maximum factor by which plain splits may multiply the leaves: beyond it, a model of a few megabytes becomes too large
for engines."""
MAX_DEPTH = 200
"""Maximum depth of a tree: each of its levels takes two or three levels of JSON, and parsers stop at 1,000."""
_MIN_LEAF_LIMIT = (
    32_000  # A small model may always grow to this many leaves, as many as 500 trees of 64 leaves have (5 MB of JSON).
)


def replace_category_sets(
    forest: Forest, numbers: Mapping[int, IntArray] | None = None, kept: Collection[int] = ()
) -> Forest | None:
    """Return an equivalent forest without category sets; None if it would have too many leaves, or be too deep.

    A missing value goes in the direction of the smallest numbers, which no set contains. A fractional code is read as
    LightGBM reads it: 3.7 is 3, and -0.3 is 0.

    Args:
        forest: trees with LightGBM's rule for categories.
        numbers: for features whose levels are represented by numbers other than their codes: the number for each code.
        kept: features whose sets may stay.
    """
    room = _LeafBudget(max_leaves(forest))
    try:
        trees = [_replace_category_sets(tree, numbers or {}, kept, room) for tree in forest.trees]
    except OverflowError:
        return None
    rules = {name: getattr(forest, name) for name in ("flushes", "single_rows", "single_sums")}
    return Forest.from_trees(trees, forest.n_features, forest.intercepts, **rules)


def max_leaves(forest: Forest) -> int:
    """Return the maximum number of leaves of a forest when it is written with plain splits."""
    return max(_MIN_LEAF_LIMIT, MAX_LEAF_GROWTH * len(forest.values))


def numbers_by_effect(forest: Forest, feature: int, n_levels: int) -> IntArray:
    """Number the codes of a category from 1 on so that levels with similar effects are neighbors.

    Levels are ordered by their total contribution to the score, so that a set consists of few ranges.
    """
    effect = np.zeros(n_levels)
    for tree in forest.trees:
        for node in np.flatnonzero(tree.feature == feature).tolist():
            categories = tree.categories[node]
            if categories is not None:
                left, right = (_mean_leaf(tree, int(side[node])) for side in (tree.left, tree.right))
                effect[categories[categories < n_levels]] += left - right
    numbers = np.empty(n_levels, dtype=np.int64)
    numbers[np.argsort(effect, kind="stable")] = np.arange(1, n_levels + 1)
    return numbers


def _mean_leaf(tree: Tree, node: int) -> float:
    values, ahead = [], [node]
    while ahead:
        node = ahead.pop()
        if node < 0:
            values.append(tree.values[-1 - node])
        else:
            ahead += [int(tree.left[node]), int(tree.right[node])]
    return float(np.mean(values))


def _range_ends(codes: IntArray, numbers: IntArray | None) -> FloatArray:
    """Return rising thresholds: each pair of them delimits a range of the set."""
    if numbers is not None:
        codes = np.sort(numbers[codes[codes < len(numbers)]])
    first = np.diff(codes, prepend=-2) > 1
    last = np.diff(codes, append=np.iinfo(np.int64).max) > 1
    ends = np.column_stack([codes[first], codes[last] + 1]).ravel().astype(np.float64)
    if numbers is not None:
        return np.asarray(ends - 0.5)  # these numbers are integers, and 0.5 is exact
    below = np.nextafter(ends, -np.inf)  # the largest value that is truncated to the number before
    return np.where(ends == 0.0, -1.0, below)  # all values between -1 and 0 are truncated to 0


class _LeafBudget:
    """Number of leaves that may still be written."""

    def __init__(self, leaves: int) -> None:
        self._left = leaves

    def take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise OverflowError


def _replace_category_sets(
    tree: Tree, numbers: Mapping[int, IntArray], kept: Collection[int], room: _LeafBudget
) -> Tree:
    ends = [
        None if categories is None or feature in kept else _range_ends(categories, numbers.get(feature))
        for feature, categories in zip(tree.feature.tolist(), tree.categories, strict=True)
    ]
    written = _WrittenTree(tree, ends, room)
    written.below(0 if len(tree.feature) else -1, {}, 0)
    return written.tree()


# For each feature tested further up: its lower bound (exclusive) and upper bound (inclusive).
_Between = Mapping[int, tuple[float, float]]


class _WrittenTree:
    """A tree that is built from its root, node by node."""

    def __init__(self, tree: Tree, ends: list[FloatArray | None], room: _LeafBudget) -> None:
        self._from, self._ends, self._room = tree, ends, room
        self._feature: list[int] = []
        self._threshold: list[float] = []
        self._default_left: list[bool] = []
        self._missing: list[int] = []
        self._categories: list[IntArray | None] = []
        self._sides: list[list[int]] = []
        self._values: list[float] = []

    def below(self, node: int, between: _Between, depth: int) -> int:
        """Write a node and its subtree; return its new number."""
        if depth > MAX_DEPTH:  # Check at every split: a path to a leaf may exceed Python's recursion limit.
            raise OverflowError
        tree = self._from
        if node < 0:
            self._room.take()
            self._values.append(float(tree.values[-1 - node]))
            return -len(self._values)
        feature, ends = int(tree.feature[node]), self._ends[node]
        if ends is None:
            kind = int(tree.missing[node]), tree.categories[node]
            place = self._split(feature, float(tree.threshold[node]), bool(tree.default_left[node]), *kind)
            for side, children in enumerate((tree.left, tree.right)):
                self._sides[place][side] = self.below(int(children[node]), between, depth + 1)
            return place
        low, high = between.get(feature, (-np.inf, np.inf))
        first = int(np.searchsorted(ends, low, side="right"))
        return self._parts(node, first, int(np.searchsorted(ends, high)), between, depth)

    def _parts(self, node: int, first: int, last: int, between: _Between, depth: int) -> int:
        """Write the parts `first` to `last` of a split: part n is above n of its thresholds, in the set if n is odd.

        Bisection keeps the depth of the parts about equal.
        """
        tree, ends = self._from, self._ends[node]
        assert ends is not None
        feature = int(tree.feature[node])
        if first == last:
            low, high = between.get(feature, (-np.inf, np.inf))
            above, up_to = (ends[first - 1] if first else low), (ends[first] if first < len(ends) else high)
            child = tree.left[node] if first % 2 else tree.right[node]
            return self.below(int(child), {**between, feature: (max(low, above), min(high, up_to))}, depth)
        middle = (first + last) // 2
        place = self._split(feature, float(ends[middle]), True, MISSING_NAN, None)
        self._sides[place][0] = self._parts(node, first, middle, between, depth + 1)
        self._sides[place][1] = self._parts(node, middle + 1, last, between, depth + 1)
        return place

    def _split(
        self, feature: int, threshold: float, default_left: bool, missing: int, categories: IntArray | None
    ) -> int:
        self._feature.append(feature)
        self._threshold.append(threshold)
        self._default_left.append(default_left)
        self._missing.append(missing)
        self._categories.append(categories)
        self._sides.append([0, 0])
        return len(self._sides) - 1

    def tree(self) -> Tree:
        """The completed tree."""
        left, right = np.array(self._sides, dtype=np.int64).reshape(-1, 2).T
        return Tree(
            feature=np.array(self._feature, dtype=np.int64),
            threshold=np.array(self._threshold, dtype=np.float64),
            default_left=np.array(self._default_left, dtype=bool),
            missing=np.array(self._missing, dtype=np.int64),
            categories=tuple(self._categories),
            left=left,
            right=right,
            values=np.array(self._values),
            gains=np.zeros(len(left)),
        )
