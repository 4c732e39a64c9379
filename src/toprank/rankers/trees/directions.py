"""Verification of monotone constraints in the finished trees, without relying on LightGBM.

A sum of trees is monotone in a feature if every tree is. (The converse does not hold, so a constraint may hold although
it is not verified here.) Rounding has no effect: floating-point sums in a fixed order are monotone in every term.

A tree violates a constraint if two of its leaves are in the wrong order and some row reaches both by a change of only
that feature. Their last common split is then by the feature itself, and for every other feature some value reaches
both. Values are distinguished as far as the splits of the tree do: between two thresholds, 0 if it counts as missing, a
category, or missing. LightGBM's own constraints have gaps: trees of an earlier training, zeros treated as missing
values, and its method "advanced".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.rankers.trees.forest import MISSING_NAN, MISSING_ZERO, TINY, Forest, Tree

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def verified_monotonicity(forest: Forest, directions: Sequence[int]) -> list[int]:
    """Return the directions, −1, 0 or 1 for each feature, with 0 if a tree violates the constraint."""
    held = list(directions)
    for tree in forest.trees:
        constrained = [feature for feature in np.unique(tree.feature).tolist() if held[feature]]
        regions = _LeafRegions(tree) if constrained else None
        for feature in constrained:
            if regions is not None and regions.breaks(feature, held[feature]):
                held[feature] = 0
    return held


class _LeafRegions:
    """The feature values that lead to each leaf of a tree, as far as its splits distinguish them."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.feature, self.leaf = tree, tree.feature, tree.values
        self.children = np.column_stack([tree.left, tree.right])
        self.values = {feature: self._values(feature) for feature in np.unique(self.feature).tolist()}
        self.admits = {feature: np.ones((len(self.leaf), len(v)), bool) for feature, v in self.values.items()}
        self.under: dict[int, tuple[list[int], list[int]]] = {}
        for node in self._from_the_leaves():
            left, right = (self._leaves(child) for child in self.children[node].tolist())
            goes_left = self._goes_left(node)
            admits = self.admits[self.feature[node]]
            admits[left] &= goes_left
            admits[right] &= ~goes_left
            self.under[node] = left, right

    def breaks(self, feature: int, direction: int) -> bool:
        """Return whether the tree's value decreases in the direction (1 or −1) anywhere along the feature."""
        score, admits = direction * self.leaf, self.admits[feature][:, :-1]  # the last value is the missing one
        lowest, highest = np.argmax(admits, axis=1), admits.shape[1] - 1 - np.argmax(admits[:, ::-1], axis=1)
        by_number: Mask = np.any(admits, axis=1)
        for node in np.flatnonzero(self.feature == feature).tolist():
            first, second = (np.array(side)[by_number[side]] for side in self.under[node])
            for a, b in ((first, second), (second, first)):
                wrong = (score[a][:, None] > score[b]) & (lowest[a][:, None] < highest[b])
                if wrong.any() and self._some_row_reaches(a, b, wrong, feature):
                    return True
        return False

    def _some_row_reaches(self, a: Array, b: Array, wrong: Mask, but: int) -> bool:
        """Return whether some pair of leaves admits a common value of every feature except one."""
        for feature, admits in self.admits.items():
            if feature != but and wrong.any():
                wrong = wrong & (admits[a].astype(np.float32) @ admits[b].astype(np.float32).T > 0)
        return bool(wrong.any())

    def _values(self, feature: int) -> Array:
        """Return one value of each kind that the splits by a feature distinguish, in ascending order, missing last."""
        nodes = np.flatnonzero(self.feature == feature)
        sets = [wanted for node in nodes.tolist() if (wanted := self.tree.categories[node]) is not None]
        if sets:
            return np.array([-1.0, *np.unique(np.concatenate(sets)), np.nan])  # -1: any other
        return np.append(np.unique([*self.tree.threshold[nodes], -2 * TINY, 0.0, np.inf]), np.nan)

    def _goes_left(self, node: int) -> Mask:
        values, wanted = self.values[int(self.feature[node])], self.tree.categories[node]
        if wanted is not None:
            return np.isin(values, wanted)
        missing, kind = np.isnan(values), self.tree.missing[node]
        if kind != MISSING_NAN:
            values, missing = np.nan_to_num(values, posinf=np.inf), np.zeros_like(missing)
        if kind == MISSING_ZERO:
            missing = np.abs(values) <= TINY
        goes_left: Mask = np.where(missing, self.tree.default_left[node], values <= self.tree.threshold[node])
        return goes_left

    def _leaves(self, child: int) -> list[int]:
        """Return the leaves below a child; a negative child is a leaf."""
        return [~child] if child < 0 else [*self.under[child][0], *self.under[child][1]]

    def _from_the_leaves(self) -> list[int]:
        """Return the splits, each after those below it."""
        order, left = [], [0]
        while left:
            node = left.pop()
            order.append(node)
            left += [child for child in self.children[node].tolist() if child >= 0]
        return order[::-1]
