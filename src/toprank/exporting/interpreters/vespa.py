"""What Vespa makes of a LightGBM model in JSON: its importer writes a ranking expression of nested conditions.

A node becomes `x < t`, or `!(x >= t)` where `default_left` is true: so a missing value goes right, or left. Vespa
reckons in double precision; in large models (`holds_singles`) thresholds and leaves are kept in single precision.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.errors import FormatError
from toprank.exporting.interpreters.reading import Array, BoolArray, Trees, strict_json

__all__ = ["holds_singles", "is_rank_feature", "score"]

_PATH, _TREE, _LEAVES = 2500.0, 12, 25_000
_FEATURE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\([A-Za-z0-9_., ]*\))?(\.[A-Za-z0-9_.]+)?\Z")


def is_rank_feature(name: str) -> bool:
    """Whether a name can stand in a ranking expression: a function or a rank feature such as `attribute(price)`.

    >>> [is_rank_feature(name) for name in ("bm25(title)", "fieldMatch(title).proximity", "2nd", "title length")]
    [True, True, False, False]
    """
    return _FEATURE.match(name) is not None and name not in ("if", "in", "true", "false")


def holds_singles(paths: Any, leaves: Any) -> bool:
    """Whether Vespa keeps thresholds and leaves in single precision.

    Args:
        paths: the mean depth of the leaves of each tree.
        leaves: how many leaves each tree has.
    """
    return bool((np.sum(paths) > _PATH and np.max(leaves) > _TREE) or np.sum(leaves) > _LEAVES)


def score(text: str, X: Any, names: Any, *, single: bool | None = None) -> FloatArray:
    """The scores of rows of features.

    Args:
        text: the file in the application package.
        X: features, in the order of `names`.
        names: the rank features and functions that the profile has.
        single: whether thresholds and leaves are in single precision; None: as Vespa decides.

    Raises:
        FormatError: Vespa's importer refuses the file.
    """
    root = strict_json(text)
    for key in ("objective", "feature_names", "tree_info", "pandas_categorical"):
        if not isinstance(root, dict) or key not in root:
            raise FormatError(f"The file has no '{key}', and the importer fails.")
    place = {name: j for j, name in enumerate(names)}
    features = root["feature_names"]
    trees, depths = Trees(), []
    for tree in root["tree_info"]:
        depth: list[int] = []
        trees.roots.append(_node(tree["tree_structure"], trees, features, place, depth, 0))
        depths.append(depth)
    if not depths:
        raise FormatError("The file has no trees, and an empty expression is none.")
    if single is None:
        single = holds_singles([np.mean(depth) for depth in depths], [len(depth) for depth in depths])
    held = np.asarray(X, dtype=np.float64)
    total = np.zeros(len(held))
    for leaves in trees.leaves(held, _goes_left, np.float32 if single else np.float64):
        total = total + leaves
    return _through(root["objective"], total)


def _goes_left(x: Array, threshold: Array, default_left: Array) -> BoolArray:
    with np.errstate(invalid="ignore"):
        return np.where(default_left == 1, ~(x >= threshold), x < threshold)


def _through(objective: Any, total: FloatArray) -> FloatArray:
    name = objective if isinstance(objective, str) else "regression"
    if name.startswith("binary") or name == "cross_entropy":
        result: FloatArray = 1.0 / (1.0 + np.exp(-total))
        return result
    return np.exp(total) if name in ("poisson", "gamma", "tweedie") else total


def _node(node: Any, trees: Trees, features: list[str], place: dict[str, int], depths: list[int], depth: int) -> int:
    if "left_child" not in node and "right_child" not in node:
        depths.append(depth)
        return trees.leaf(float(node["leaf_value"]))
    if node["decision_type"] == "==":
        raise FormatError("Vespa compares categories as texts, which features in numbers are not.")
    name = features[node["split_feature"]]
    if not is_rank_feature(name) or name not in place:
        raise FormatError(f"'{name}' is no rank feature and no function of the profile.")
    left, right = (
        _node(node[side], trees, features, place, depths, depth + 1) for side in ("left_child", "right_child")
    )
    return trees.split(place[name], float(node["threshold"]), left, right, int(node.get("default_left", False)))
