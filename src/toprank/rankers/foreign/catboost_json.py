"""Reader of CatBoost's JSON (`save_model(path, format="json")`): trees over numerical features.

CatBoost rounds features to single precision and tests x > border; other values go left. It identifies feature and
border of a split by `split_index`, the index among the borders of all features. The file also stores both directly, and
a file in which they contradict the index is refused. In CatBoost's symmetric trees all nodes of a level share one
split, and the outcomes, the first split as the lowest bit, form the index of the leaf.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.errors import DataError, refuse_if
from toprank.rankers.foreign import building
from toprank.rankers.foreign.building import NAN_LEFT, NAN_RIGHT, RawNodes, as_object, nested_value, numbers, whole
from toprank.rankers.foreign.ranker import ForestRanker
from toprank.rankers.trees.forest import Tree

_MISSING = {"AsIs": NAN_LEFT, "AsFalse": NAN_LEFT, "AsTrue": NAN_RIGHT}
_OTHER_KINDS = {"categorical_features": "categories", "text_features": "texts", "embedding_features": "embeddings"}
_MAX_DEPTH = 16  # CatBoost's own limit of the depth of symmetric trees


def read(model: Any) -> ForestRanker:
    """Build a ranker from a parsed model."""
    info = as_object(nested_value(model, "features_info"), "features_info")
    for part, kind in _OTHER_KINDS.items():
        refuse_if(
            info.get(part),
            f"it uses {kind}, which CatBoost encodes by tables of the training data; only models over numerical "
            "features are supported",
        )
    columns = _FloatFeatures(info.get("float_features"))
    scale, bias = _scale_and_bias(nested_value(model, "scale_and_bias"))
    trees = []
    if isinstance(described_trees := nested_value(model, "oblivious_trees"), list):
        trees = [_level_by_level(number, tree, columns) for number, tree in enumerate(described_trees)]
    elif isinstance(described_trees := nested_value(model, "trees"), list):
        trees = [_node_by_node(number, tree, columns) for number, tree in enumerate(described_trees)]
    else:
        raise DataError("trees are missing")
    refuse_if(not trees, "it has no trees")
    if scale != 1.0:
        trees = [replace(tree, values=tree.values * scale) for tree in trees]
    if bias:
        trees.append(Tree.constant(bias))
    version = str(nested_value(model, "model_info", "catboost_version_info", "version") or "")[:20]
    facts = {"library": f"CatBoost {version}".strip()}
    return ForestRanker.from_forest("CatBoost", building.forest(trees, columns.count), names=columns.names, facts=facts)


class _FloatFeatures:
    """The features: number of columns, names, and handling of missing values."""

    def __init__(self, features: Any) -> None:
        if not isinstance(features, list) or not features:
            raise DataError("it has no numerical features")
        described = [as_object(feature, "a feature") for feature in features]
        self.places = whole([feature.get("flat_feature_index") for feature in described], "flat_feature_index").tolist()
        own = whole([feature.get("feature_index") for feature in described], "feature_index").tolist()
        within = 0 <= min(self.places) <= max(self.places) < building.MAX_FEATURES
        refuse_if(
            not within or own != list(range(len(own))) or len(set(self.places)) < len(own),
            "the numbers of its features are damaged",
        )
        self.count = max(self.places) + 1
        ways: list[Any] = [feature.get("nan_value_treatment") for feature in described]
        if not all(isinstance(way, str) and way in _MISSING for way in ways):
            raise DataError("the handling of missing values in its features is unknown")
        self.missing = [_MISSING[way] for way in ways]
        borders = [_borders(feature.get("borders")) for feature in described]
        self.questions = [(number, float(border)) for number, own in enumerate(borders) for border in own]
        ids = [feature.get("feature_id", "") for feature in described]
        named = all(isinstance(name, str) and name for name in ids) and self.places == list(range(self.count))
        self.names = [str(name) for name in ids] if named and ids != [str(n) for n in range(self.count)] else None

    def split(self, described: Any) -> tuple[int, float, int]:
        """Return the column, border and missing type of a split."""
        kind = nested_value(described, "split_type")
        refuse_if(
            kind not in ("FloatFeature", None),
            f"it has splits of the kind {str(kind)[:40]!r}; only splits by numerical features are supported",
        )
        [feature] = whole([nested_value(described, "float_feature_index")], "float_feature_index").tolist()
        [border] = numbers([nested_value(described, "border")], "border").tolist()
        refuse_if(not 0 <= feature < len(self.places), "a split uses a feature that does not exist")
        single = float(_singles([border])[0])
        [index] = whole([nested_value(described, "split_index")], "split_index").tolist()
        refuse_if(
            not 0 <= index < len(self.questions) or self.questions[index] != (feature, single),
            f"a split has the border {border:.9g} of feature {feature}, but its split_index {index} does not "
            "belong to that border",
        )
        return self.places[feature], single, self.missing[feature]


def _borders(values: Any) -> npt.NDArray[np.float32]:
    """Return the borders of a feature in ascending order; an unused feature may have none."""
    borders = _singles([] if values is None else values)
    refuse_if((np.diff(borders) <= 0).any(), "the borders of a feature are not ascending")
    return borders


def _singles(values: Any) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):
        singles = numbers(values, "border").astype(np.float32)
    refuse_if(not np.isfinite(singles).all(), "a border is not finite")
    return singles


def _scale_and_bias(pair: Any) -> tuple[float, float]:
    """Return the factor of the sum of the trees, and the constant added to it."""
    if pair is None:
        return 1.0, 0.0
    if not isinstance(pair, list) or len(pair) != 2:
        raise DataError("scale_and_bias is damaged")
    biases = pair[1] if isinstance(pair[1], list) else [pair[1]]
    refuse_if(len(biases) > 1, f"it predicts {len(biases)} numbers for each row (classes), not one score")
    [scale, bias] = numbers([pair[0], *(biases or [0.0])], "scale_and_bias", 2).tolist()
    refuse_if(not np.isfinite([scale, bias]).all(), "scale_and_bias is not finite")
    return scale, bias


def _level_by_level(number: int, described: Any, columns: _FloatFeatures) -> Tree:
    """Build a symmetric tree; its last split is the root here, because it is the highest bit of the leaf index."""
    splits = nested_value(described, "splits")
    splits = [] if splits is None else splits
    if not isinstance(splits, list) or len(splits) > _MAX_DEPTH:
        raise DataError(f"the splits of tree number {number} (from 0) are damaged")
    depth = len(splits)
    values = numbers(nested_value(described, "leaf_values"), "leaf_values")
    if len(values) != 1 << depth:
        several = len(values) > 1 << depth and len(values) % (1 << depth) == 0
        why = "predicts several numbers for each row" if several else "does not have a value for each leaf"
        raise DataError(f"tree number {number} (from 0) {why}")
    questions = [columns.split(split) for split in reversed(splits)]
    inner, count = (1 << depth) - 1, 2 * (1 << depth) - 1  # as in a heap: 2i + 1 and 2i + 2 are the children of i
    levels = np.log2(np.arange(1, inner + 1)).astype(np.int64)
    parts = np.zeros((3, count))
    if inner:
        parts[:, :inner] = np.array(questions).T[:, levels]
    left = [2 * node + 1 if node < inner else -1 for node in range(count)]
    right = [2 * node + 2 if node < inner else -1 for node in range(count)]
    leaves = np.concatenate([np.zeros(inner), values])
    return building.tree(number, RawNodes(left, right, parts[0], parts[1], parts[2], leaves), columns.count)


def _node_by_node(number: int, described: Any, columns: _FloatFeatures) -> Tree:
    """Build a tree of nested nodes."""
    left, right, questions, values = list[int](), list[int](), list[tuple[int, float, int]](), list[Any]()
    open_nodes: list[tuple[Any, list[int] | None, int]] = [(described, None, 0)]
    while open_nodes:
        node, side, above = open_nodes.pop()
        if side is not None:
            side[above] = len(left)
        inside = nested_value(node, "split") is not None
        if not inside and nested_value(node, "value") is None:
            raise DataError(f"tree number {number} (from 0) is damaged")
        questions.append(columns.split(node["split"]) if inside else (0, 0.0, 0))
        values.append(0.0 if inside else node["value"])
        left.append(-1)
        right.append(-1)
        if inside:
            place = len(left) - 1
            open_nodes += [(node.get("right"), right, place), (node.get("left"), left, place)]
    if any(isinstance(value, list) for value in values):
        raise DataError(f"tree number {number} (from 0) predicts several numbers for each row")
    parts = np.array(questions).T
    value = numbers(values, "value")
    return building.tree(number, RawNodes(left, right, parts[0], parts[1], parts[2], value), columns.count)
