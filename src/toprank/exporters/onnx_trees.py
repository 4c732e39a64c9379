"""Export of boosted trees to ONNX's TreeEnsemble (ai.onnx.ml 5) in double precision, with all decisions of LightGBM.

Conditions that the operator does not support become columns that it can compare: features in which zeros are missing,
and for each category set a column that is 0 inside the set and 1 outside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray, offsets_of
from toprank.exporters.onnx_nodes import GraphNodes
from toprank.rankers.foreign.onnx_checks import MAX_DEPTH
from toprank.rankers.trees.forest import MISSING_ZERO, TINY, Forest, Tree

_LEQ, _LT = 0, 1  # modes of nodes


class _EnsembleNodes(NamedTuple):
    """All inner nodes of an ensemble; a child is a node, or a leaf if `*_is_leaf`."""

    feature: Any
    threshold: Any
    nan_left: Any
    left: Any
    right: Any
    left_is_leaf: Any
    right_is_leaf: Any
    roots: list[int]
    leaves: Any
    targets: Any


def forest_outputs(nodes: GraphNodes, X: str, forest: Forest, d: int) -> str:
    """Add the outputs of the trees, (n, outputs)."""
    if forest.flushes:
        near = nodes("LessOrEqual", nodes("Abs", X), nodes.constant(TINY))
        X = nodes("Where", near, nodes.constant(0.0), X)
    columns = _FeatureColumns(nodes, X, d)
    places = [columns.of_tree(tree) for tree in forest.trees]
    leaves = np.zeros(forest.outputs)
    for number, tree in enumerate(forest.trees):
        if len(tree.feature) == 0:  # a tree with a single leaf
            leaves[number % forest.outputs] += tree.values[0]
    start = nodes.constant(forest.intercepts + leaves)
    if all(len(tree.feature) == 0 for tree in forest.trees):
        # The score is the same for every row; zeros in the shape of X give the number of rows. (A missing value times 0
        # would stay missing.)
        filled = nodes("Where", nodes("IsNaN", X), nodes.constant(0.0), nodes.constant(0.0))
        return nodes("Add", nodes("MatMul", filled, nodes.constant(np.zeros((d, forest.outputs)))), start)
    summed = _ensemble(nodes, columns.joined(), _splits(forest, places), forest.outputs, _LEQ)
    return nodes("Add", summed, start)


def too_deep(forest: Forest) -> str | None:
    """Return the reason if the trees are too deep for a runtime, else None."""
    for number, tree in enumerate(forest.trees):
        if len(tree.feature) > MAX_DEPTH and tree.depth > MAX_DEPTH:
            return (
                f"tree number {number} (from 0) has {tree.depth:,} levels, and ONNX runtimes, which recurse for each "
                f"level, crash above about {MAX_DEPTH} levels. Train with a limit of the depth."
            )
    return None


class _FeatureColumns:
    """The features, and additional columns for splits."""

    def __init__(self, nodes: GraphNodes, X: str, d: int) -> None:
        self._nodes, self._X, self._d = nodes, X, d
        self._blocks = [X]
        self._width = d
        self._zeros: int | None = None
        self._sets: dict[tuple[int, bytes], int] = {}

    def of_tree(self, tree: Tree) -> tuple[IntArray, FloatArray]:
        """Return the column that each node compares, and its threshold."""
        column, threshold = tree.feature.copy(), tree.threshold.copy()
        for node in np.flatnonzero(tree.missing == MISSING_ZERO).tolist():
            if tree.categories[node] is None:
                column[node] += self._without_zeros()
        for node, categories in enumerate(tree.categories):
            if categories is not None:
                column[node], threshold[node] = self._set(int(tree.feature[node]), categories), 0.5
        return column, threshold

    def _add(self, name: str, width: int) -> int:
        self._blocks.append(name)
        self._width += width
        return self._width - width

    def _without_zeros(self) -> int:
        """Return the index of the first column in which zeros are missing."""
        if self._zeros is None:
            nodes = self._nodes
            near = nodes("LessOrEqual", nodes("Abs", self._X), nodes.constant(TINY))
            self._zeros = self._add(nodes("Where", near, nodes.constant(np.nan), self._X), self._d)
        return self._zeros

    def _set(self, feature: int, categories: IntArray) -> int:
        """Return the column that is 0 if the category, (int)x, is in the set, and 1 if not."""
        key = (feature, categories.tobytes())
        if key not in self._sets:
            nodes, size = self._nodes, int(categories.max(initial=0)) + 1
            table = np.ones(size + 1)
            table[categories] = 0.0
            x = nodes("Gather", self._X, nodes.constant(np.array([feature])), axis=1)
            whole = nodes("Floor", nodes("Abs", x))
            known = nodes(
                "And", nodes("Greater", x, nodes.constant(-1.0)), nodes("Less", x, nodes.constant(float(size)))
            )
            code = nodes("Cast", nodes("Where", known, whole, nodes.constant(float(size))), to=nodes.INT64)
            self._sets[key] = self._add(nodes("Gather", nodes.constant(table), code, axis=0), 1)
        return self._sets[key]

    def joined(self) -> str:
        """Concatenate all columns."""
        return self._blocks[0] if len(self._blocks) == 1 else self._nodes("Concat", *self._blocks, axis=1)


def _splits(forest: Forest, places: list[tuple[IntArray, FloatArray]]) -> _EnsembleNodes:
    parts: dict[str, list[Any]] = {name: [] for name in _EnsembleNodes._fields}
    n_nodes = n_leaves = 0
    for number, (tree, (column, threshold)) in enumerate(zip(forest.trees, places, strict=True)):
        if len(tree.feature) == 0:
            continue
        parts["feature"].append(column)
        parts["threshold"].append(threshold)
        parts["nan_left"].append(tree.nan_left)
        for side, children in (("left", tree.left), ("right", tree.right)):
            is_leaf = children < 0
            parts[side].append(np.where(is_leaf, n_leaves - 1 - children, n_nodes + children))
            parts[f"{side}_is_leaf"].append(is_leaf)
        parts["roots"].append(n_nodes)
        parts["leaves"].append(tree.values)
        parts["targets"].append(np.full(len(tree.values), number % forest.outputs))
        n_nodes += len(tree.feature)
        n_leaves += len(tree.values)
    roots = parts.pop("roots")
    return _EnsembleNodes(**{name: np.concatenate(part) for name, part in parts.items()}, roots=roots)


def _ensemble(nodes: GraphNodes, X: str, splits: _EnsembleNodes, outputs: int, mode: int) -> str:
    return nodes(
        "TreeEnsemble",
        X,
        domain="ai.onnx.ml",
        aggregate_function=1,  # the sum
        n_targets=outputs,
        post_transform=0,
        tree_roots=splits.roots,
        nodes_featureids=splits.feature.tolist(),
        nodes_splits=nodes.tensor(splits.threshold),
        nodes_modes=nodes.tensor(np.full(len(splits.feature), mode, dtype=np.uint8)),
        nodes_missing_value_tracks_true=splits.nan_left.astype(int).tolist(),
        nodes_truenodeids=splits.left.tolist(),
        nodes_falsenodeids=splits.right.tolist(),
        nodes_trueleafs=splits.left_is_leaf.astype(int).tolist(),
        nodes_falseleafs=splits.right_is_leaf.astype(int).tolist(),
        leaf_targetids=splits.targets.tolist(),
        leaf_weights=nodes.tensor(splits.leaves),
    )


def ranks_up_to(nodes: GraphNodes, X: str, knots: FloatArray) -> str:
    """Count, for each feature, the knots (a rising column each) that are at most x."""
    parts: dict[str, list[Any]] = {name: [] for name in _EnsembleNodes._fields}
    for feature in range(knots.shape[1]):
        cuts, counts = np.unique(knots[:, feature], return_counts=True)
        _search(parts, cuts, offsets_of(counts), 0, len(cuts), feature)
    columns = {name: np.array(part) for name, part in parts.items() if name != "roots"}
    splits = _EnsembleNodes(**columns, roots=parts["roots"])
    return _ensemble(nodes, X, splits, knots.shape[1], _LT)


def _search(
    parts: dict[str, list[Any]],
    cuts: FloatArray,
    ranks: IntArray,
    first: int,
    last: int,
    feature: int,
    root: bool = True,
) -> tuple[int, bool]:
    """Append a binary search among the cuts first … last − 1; return its number, and whether it is a leaf."""
    if first == last:
        parts["leaves"].append(float(ranks[first]))
        parts["targets"].append(feature)
        return len(parts["leaves"]) - 1, True
    middle, here = (first + last) // 2, len(parts["feature"])
    if root:
        parts["roots"].append(here)
    for name, value in (("feature", feature), ("threshold", cuts[middle]), ("nan_left", False)):
        parts[name].append(value)
    for name in ("left", "right", "left_is_leaf", "right_is_leaf"):
        parts[name].append(0)
    for side, begin, end in (("left", first, middle), ("right", middle + 1, last)):
        parts[side][here], parts[f"{side}_is_leaf"][here] = _search(parts, cuts, ranks, begin, end, feature, False)
    return here, False
