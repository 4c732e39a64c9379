"""Scoring by Vespa from a LightGBM model in JSON, which its importer converts to a ranking expression.

A node becomes `x < t`, which sends missing values right, or with `default_left` `!(x >= t)`, which sends them left.
Vespa computes in double precision; in large models (`holds_singles`) thresholds and leaves are in single precision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.errors import FormatError
from toprank.exporters.interpreters.reading import Array, BoolArray, Trees, places_of, strict_json

_PATH, _TREE, _LEAVES = 2500.0, 12, 25_000  # Vespa's limits for double precision
_FIRST_SET = 2  # marks of splits: 0 and 1 are directions, sets follow
_FEATURE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\([A-Za-z0-9_., ]*\))?(\.[A-Za-z0-9_.]+)?\Z")


def is_rank_feature(name: str) -> bool:
    """Return whether a ranking expression may use a name: a function or a rank feature such as `attribute(price)`.

    >>> [is_rank_feature(name) for name in ("bm25(title)", "fieldMatch(title).proximity", "2nd", "title length")]
    [True, True, False, False]
    """
    return _FEATURE.match(name) is not None and name not in ("if", "in", "true", "false")


def holds_singles(paths: Any, leaves: Any) -> bool:
    """Return whether Vespa stores thresholds and leaves in single precision.

    Args:
        paths: the mean depth of the leaves of each tree.
        leaves: the number of leaves of each tree.
    """
    return bool((np.sum(paths) > _PATH and np.max(leaves) > _TREE) or np.sum(leaves) > _LEAVES)


def score(
    text: str, X: Any, names: Any, *, single: bool | None = None, cells: Mapping[str, Array] | None = None
) -> FloatArray:
    """Score rows of features.

    Args:
        text: the file in the application package.
        X: features, in the order of `names`.
        names: the rank features and functions of the profile.
        single: whether thresholds and leaves are in single precision. Default: decided by Vespa's rule.
        cells: the texts of text features, by name; None for a missing text.

    Raises:
        FormatError: Vespa's importer rejects the file.
    """
    root = strict_json(text)
    for key in ("objective", "feature_names", "tree_info", "pandas_categorical"):
        if not isinstance(root, dict) or key not in root:
            raise FormatError(f"The file has no '{key}', so the importer fails.")
    sets = _Sets(root, np.asarray(X, dtype=np.float64), names, cells or {})
    trees, depths = Trees(), []
    for tree in root["tree_info"]:
        depth: list[int] = []
        trees.roots.append(_node(tree["tree_structure"], trees, sets, depth, 0))
        depths.append(depth)
    if not depths:
        raise FormatError("The file has no trees, and an expression cannot be empty.")
    if single is None:
        single = holds_singles([np.mean(depth) for depth in depths], [len(depth) for depth in depths])
    total = np.zeros(len(sets.X))
    for leaves in trees.leaves(sets.X, sets.goes_left, np.float32 if single else np.float64):
        total = total + leaves
    return _through(root["objective"], total)


def _through(objective: Any, total: FloatArray) -> FloatArray:
    name = objective if isinstance(objective, str) else "regression"
    if name.startswith("binary") or name == "cross_entropy":
        result: FloatArray = 1.0 / (1.0 + np.exp(-total))
        return result
    return np.exp(total) if name in ("poisson", "gamma", "tweedie") else total


class _Sets:
    """The features, with a number for each text, and the sets of texts in splits."""

    def __init__(self, root: dict[str, Any], X: FloatArray, names: Iterable[str], cells: Mapping[str, Array]) -> None:
        self.features: list[str] = root["feature_names"]
        self.places = places_of(names)
        self.X, self._texts = X.copy(), {}
        for name, column in cells.items():
            texts = places_of({str(cell) for cell in column if cell is not None})
            self._texts[name] = texts
            self.X[:, self.places[name]] = [-1 if cell is None else texts[str(cell)] for cell in column]
        infos = root.get("feature_infos") or {}
        known = [name for name in self.features if isinstance(infos.get(name), dict) and infos[name].get("values")]
        self._levels = dict(zip(known, root["pandas_categorical"], strict=False))
        self._wide = max((len(texts) for texts in self._texts.values()), default=0) + 1
        self._sets: list[BoolArray] = []

    def is_text(self, name: str) -> bool:
        """Return whether a feature is a text."""
        return name in self._texts

    def mark(self, name: str, codes: list[str]) -> int:
        """Return the mark of a split that tests whether a text is one of several levels."""
        known = self._levels.get(name)  # without them an importer treats the codes as texts
        levels = set(codes if known is None else [known[int(code)] for code in codes])
        if any(not isinstance(level, str) or '"' in level or "\\" in level for level in levels):
            raise FormatError(f"A level of '{name}' cannot be written into a ranking expression.")
        inside = np.zeros(self._wide, dtype=bool)
        inside[[number for text, number in self._texts[name].items() if text in levels]] = True
        self._sets.append(inside)
        return _FIRST_SET + len(self._sets) - 1

    def goes_left(self, x: Array, threshold: Array, mark: Array) -> BoolArray:
        """Return whether values go left: below the threshold, or in the set with this mark."""
        with np.errstate(invalid="ignore"):
            left: BoolArray = np.where(mark == 1, ~(x >= threshold), x < threshold)
        if (by_set := mark >= _FIRST_SET).any():  # a missing text is -1, the last entry of each set, which is False
            left[by_set] = np.stack(self._sets)[mark[by_set] - _FIRST_SET, x[by_set].astype(np.int64)]
        return left


def _node(node: Any, trees: Trees, sets: _Sets, depths: list[int], depth: int) -> int:
    if "left_child" not in node and "right_child" not in node:
        depths.append(depth)
        return trees.leaf(float(node["leaf_value"]))
    name = sets.features[node["split_feature"]]
    if not is_rank_feature(name) or name not in sets.places:
        raise FormatError(f"'{name}' is neither a rank feature nor a function of the profile.")
    left, right = (_node(node[side], trees, sets, depths, depth + 1) for side in ("left_child", "right_child"))
    if (node["decision_type"] == "==") != sets.is_text(name):
        raise FormatError(f"Vespa compares categories as text, but '{name}' is compared as {node['decision_type']}.")
    if sets.is_text(name):
        return trees.split(sets.places[name], 0.0, left, right, sets.mark(name, node["threshold"].split("||")))
    return trees.split(sets.places[name], float(node["threshold"]), left, right, int(node.get("default_left", False)))
