"""Scoring by XGBoost's predictor from a model in its JSON: trees, and the sum of their leaves.

Everything is in single precision. A document goes left if x < L, or if the node does not list its category; the node
gives the direction of missing values. The right child of a node is the one after the left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.exporters.interpreters.reading import singles, strict_json


def score(text: str, X: Any) -> FloatArray:
    """Score rows of features, before any transformation."""
    rows = singles(X)
    total = np.zeros(len(rows), dtype=np.float32)
    for tree in strict_json(text)["learner"]["gradient_booster"]["model"]["trees"]:
        left, feature = np.array(tree["left_children"]), np.array(tree["split_indices"])
        value, by_default = singles(tree["split_conditions"]), np.array(tree["default_left"]) == 1
        bounds = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
        sets = {place: tree["categories"][first : first + size] for place, first, size in bounds}
        node = np.zeros(len(rows), dtype=np.int64)
        while (inside := np.flatnonzero(left[node] >= 0)).size:
            at = node[inside]
            x = rows[inside, feature[at]]
            goes_left = x < value[at]
            for place, codes in sets.items():
                by_set = at == place
                goes_left[by_set] = (x[by_set] < 0) | ~np.isin(np.trunc(x[by_set]), codes)
            goes_left = np.where(np.isnan(x), by_default[at], goes_left)
            node[inside] = left[at] + ~goes_left
        total += value[node]
    return total.astype(np.float64)
