"""Whether trees keep to the directions that were asked for: looked up in the finished trees, not taken on trust.

A sum of trees rises with a feature where every one of them does. (The converse does not hold, so what is not found here
may still be so.) Rounding changes nothing: floating-point sums in a fixed order are monotone in every term.

A tree falls where two of its leaves lie in the wrong order, and some row reaches both by a change of that feature
alone. Their last common split is then by the feature itself, and in every other feature there is a value that both
admit. Values are told apart as far as the splits of the tree do: between two thresholds, 0 where that counts as
missing, a category, or missing. LightGBM's own constraints leave gaps: trees of an earlier training, values of 0 that
go the way of missing ones, and its method "advanced".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.rankers.trees.text import read_trees

__all__ = ["held_directions"]

_ZERO = float(np.float32(1e-35))  # LightGBM takes what is no farther from 0 for 0
_CATEGORY, _LEFT, _MISSING_ZERO, _MISSING_NAN = 1, 2, 1, 2
Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def held_directions(text: str, directions: Sequence[int]) -> list[int]:
    """The directions, −1, 0 or 1 for each feature, with 0 where a tree of the model's text breaks one."""
    held = list(directions)
    for fields in read_trees(text).trees:
        if len(fields["leaf_value"]) > 1:
            asked = [feature for feature in np.unique(fields["split_feature"]).tolist() if held[feature]]
            tree = _Tree(fields) if asked else None
            for feature in asked:
                if tree is not None and tree.breaks(feature, held[feature]):
                    held[feature] = 0
    return held


class _Tree:
    """One tree: for each leaf and feature, which of the values that its splits tell apart lead there."""

    def __init__(self, fields: Mapping[str, Array]) -> None:
        self.feature, self.decision = fields["split_feature"].astype(int), fields["decision_type"].astype(int)
        self.threshold, self.leaf = fields["threshold"].astype(np.float64), fields["leaf_value"].astype(np.float64)
        self.children = np.column_stack([fields["left_child"], fields["right_child"]]).astype(int)
        self.fields = fields
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
        """Whether the tree's value moves against the direction (1 or −1) somewhere along the feature."""
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
        """Whether some pair of leaves admits a common value of every feature but one."""
        for feature, admits in self.admits.items():
            if feature != but and wrong.any():
                wrong = wrong & (admits[a].astype(np.float32) @ admits[b].astype(np.float32).T > 0)
        return bool(wrong.any())

    def _values(self, feature: int) -> Array:
        """A value of each kind that the splits by a feature tell apart, in rising order; missing is the last."""
        nodes = np.flatnonzero(self.feature == feature)
        if self.decision[nodes[0]] & _CATEGORY:
            known = sorted({code for node in nodes.tolist() for code in self._codes(node)})
            return np.array([-1.0, *known, np.nan])  # -1: any other
        cuts = self.threshold[nodes]
        return np.append(np.unique([*cuts, -2 * _ZERO, 0.0, np.inf]), np.nan)

    def _codes(self, node: int) -> Iterator[int]:
        """The categories that go left."""
        begin, end = self.fields["cat_boundaries"][int(self.threshold[node]) :][:2]
        for place, word in enumerate(self.fields["cat_threshold"][begin:end].tolist()):
            yield from (32 * place + bit for bit in range(32) if word >> bit & 1)

    def _goes_left(self, node: int) -> Mask:
        values, decision = self.values[int(self.feature[node])], int(self.decision[node])
        if decision & _CATEGORY:
            return np.isin(values, list(self._codes(node)))
        missing = np.isnan(values)
        if decision >> 2 != _MISSING_NAN:
            values, missing = np.nan_to_num(values, posinf=np.inf), np.zeros_like(missing)
        if decision >> 2 == _MISSING_ZERO:
            missing = np.abs(values) <= _ZERO
        return np.where(missing, bool(decision & _LEFT), values <= self.threshold[node])

    def _leaves(self, child: int) -> list[int]:
        """The leaves below a child; one below 0 is a leaf itself."""
        return [~child] if child < 0 else [*self.under[child][0], *self.under[child][1]]

    def _from_the_leaves(self) -> list[int]:
        """The splits, each after those below it."""
        order, left = [], [0]
        while left:
            node = left.pop()
            order.append(node)
            left += [child for child in self.children[node].tolist() if child >= 0]
        return order[::-1]
