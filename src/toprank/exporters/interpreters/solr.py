"""Scoring by Solr's learning-to-rank module: linear functions, additive trees and neural networks.

Everything is in single precision. A document goes left if `x <= threshold + 1e-6`, where Solr adds 1e-6 on reading. A
feature without a value is 0, unless the feature store sets its default to NaN and the model sets `isNullSameAsZero:
false` (Solr 9.2 and later); then the `missing` of a node gives the direction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toprank.errors import FormatError
from toprank.exporters.interpreters.reading import (
    Array,
    BoolArray,
    Single,
    Trees,
    fields,
    places_of,
    single,
    singles,
    strict_json,
)

SLACK = np.float32(1e-6)
"""Solr adds this to every threshold."""
_MODEL = "org.apache.solr.ltr.model."
_STANDARD = "org.apache.solr.ltr.norm.StandardNormalizer"
_NODE = {"feature": str, "threshold": str, "left": dict, "right": dict, "missing": str, "value": str}
_LEFT, _RIGHT, _NOWHERE = 1, 0, -1
_CLAUSES = 1024  # maximum per query by default
_CLAUSE = re.compile(r'((?:\w|\\.)+):"((?:[^"\\]|\\.)*)"\^=(\d+)(?: |$)', re.DOTALL)


def feature_values(
    text: str, X: Any, names: Sequence[str], cells: Mapping[str, Array] | None = None
) -> tuple[Single, tuple[str, ...]]:
    """Return the values and names of the features that a feature store computes from document fields.

    Args:
        text: the features: each is the value of a field, or the score of a query for terms.
        X: the numbers in document fields, NaN if a document lacks one.
        names: the field names.
        cells: the terms in text fields, by field name; None if a document lacks one.
    """
    values, places, columns, feature_names = singles(X), places_of(names), [], []
    for feature in strict_json(text):
        entry = fields(feature, {"store": str, "name": str, "class": str, "params": dict}, "a feature")
        feature_names.append(entry["name"])
        if entry["class"] == "org.apache.solr.ltr.feature.SolrFeature":
            params = fields(entry["params"], {"q": str}, "params of a feature")
            columns.append(_score_of_terms(params["q"], cells or {}))
            continue
        params = fields(entry["params"], {"field": str, "defaultValue": str}, "params of a feature")
        if entry["class"] != "org.apache.solr.ltr.feature.FieldValueFeature":
            raise FormatError(f"The feature class '{entry['class']}' is not supported.")
        column = values[:, places[params["field"]]]
        columns.append(np.where(np.isnan(column), single(params.get("defaultValue", "0")), column))
    return np.column_stack(columns), tuple(feature_names)


def _score_of_terms(query: str, cells: Mapping[str, Array]) -> Single:
    """Score documents by a query of the standard parser whose clauses have constant scores; 0 if none matches."""
    if "${" in query:
        raise FormatError("The query contains a parameter, which no request provides.")
    clauses = [_CLAUSE.match(query)]
    while (last := clauses[-1]) is not None and last.end() < len(query):
        clauses.append(_CLAUSE.match(query, last.end()))
    if None in clauses or len(clauses) > _CLAUSES:
        raise FormatError(f"This reader knows {_CLAUSES:,} clauses at most, each a term in a field and its score.")
    parts = [(_unescaped(clause[1]), _unescaped(clause[2]), float(clause[3])) for clause in clauses if clause]
    [field] = {name for name, _, _ in parts}
    scores: dict[str, float] = {}
    for _, term, score in parts:
        scores[term] = scores.get(term, 0.0) + score
    return singles([0.0 if cell is None else scores.get(str(cell), 0.0) for cell in cells[field]])


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def score(text: str, X: Any, names: Sequence[str]) -> Single:
    """Score documents by a core whose feature store has these names.

    Args:
        text: the model.
        X: the values of the features, in the order of `names`; a missing one has the store's default.
        names: the names in the feature store.

    Raises:
        FormatError: Solr refuses the model, or fails while it scores.
    """
    known = {"class": str, "name": str, "store": str, "features": list, "params": dict}
    model = fields(strict_json(text), known, "the model")
    if not {"class", "name", "features", "params"} <= model.keys():
        raise FormatError("A model needs a class, a name, features and params.")
    values = singles(X)
    with np.errstate(over="ignore", invalid="ignore"):
        columns, places = [], places_of(names)
        for feature in model["features"]:
            entry = fields(feature, {"name": str, "norm": dict}, "a feature")
            if entry.get("name") not in places:
                raise FormatError(f"The feature store has no feature '{entry.get('name')}'.")
            columns.append(_normalized(values[:, places[entry["name"]]], entry.get("norm")))
        used = [feature["name"] for feature in model["features"]]
        if not used or len(set(used)) < len(used):
            raise FormatError("A model needs features, each listed once.")
        reader = _READERS.get(model["class"])
        if reader is None:
            raise FormatError(f"Solr has no model class '{model['class']}'.")
        return reader(model["params"], np.column_stack(columns), used)


def _normalized(column: Single, norm: dict[str, Any] | None) -> Single:
    if norm is None:
        return column
    normalizer = fields(norm, {"class": str, "params": dict}, "a normalizer")
    params = fields(normalizer.get("params", {}), {"avg": str, "std": str}, "a normalizer")
    if normalizer.get("class") != _STANDARD:
        raise FormatError(f"The normalizer '{normalizer.get('class')}' is not supported.")
    average, deviation = single(params.get("avg", "0")), single(params.get("std", "1"))
    if deviation <= 0:
        raise FormatError("The standard deviation of a normalizer must be positive.")
    result: Single = (column - average) / deviation
    return result


def _linear(params: dict[str, Any], X: Single, names: Sequence[str]) -> Single:
    weights = fields(params, {"weights": dict}, "params").get("weights", {})
    if lacking := [name for name in names if not isinstance(weights.get(name), (int, float))]:
        raise FormatError(f"The model lacks weights for {lacking}.")
    total = np.zeros(len(X), dtype=np.float32)
    for column, name in enumerate(names):
        total += X[:, column] * single(weights[name])
    return total


def _forest(params: dict[str, Any], X: Single, names: Sequence[str]) -> Single:
    fields(params, {"trees": list, "isNullSameAsZero": bool}, "params")
    if "trees" not in params:
        raise FormatError("The model declares no trees.")
    as_zero, trees, weights = params.get("isNullSameAsZero", True), Trees(), []
    places = places_of(names)
    for tree in params["trees"]:
        entry = fields(tree, {"weight": str, "root": dict}, "a tree")
        if len(entry) < 2:
            raise FormatError("A tree needs a weight and a root.")
        weights.append(single(entry["weight"]))
        trees.roots.append(_node(entry["root"], trees, places))

    def goes_left(x: Array, threshold: Array, missing: Array) -> BoolArray:
        less: BoolArray = x <= threshold
        if as_zero:  # any comparison with NaN is false, and goes right
            return less
        if (np.isnan(x) & (missing == _NOWHERE)).any():
            raise FormatError("A value is missing at a node without 'missing', where Solr fails.")
        return np.where(np.isnan(x), missing == _LEFT, less)

    total = np.zeros(len(X), dtype=np.float32)
    for weight, leaves in zip(weights, trees.leaves(X, goes_left, np.float32), strict=True):
        total += weight * leaves
    return total


def _node(value: Any, trees: Trees, places: dict[str, int]) -> int:
    node = fields(value, _NODE, "a node")
    if "feature" not in node:
        if "left" in node or "right" in node:
            raise FormatError("A leaf has children.")
        return trees.leaf(single(node.get("value", "0")))
    if not {"threshold", "left", "right"} <= node.keys():
        raise FormatError("A node needs a threshold, left and right.")
    if node["feature"] not in places:
        raise FormatError(f"A node tests '{node['feature']}', which is not a feature of the model: its tree scores 0.")
    left, right = _node(node["left"], trees, places), _node(node["right"], trees, places)
    missing = _NOWHERE if "missing" not in node else _LEFT if node["missing"] == "left" else _RIGHT
    return trees.split(places[node["feature"]], single(node["threshold"]) + SLACK, left, right, missing)


_ACTIVATIONS: dict[str, Callable[[Single], Array]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.where(x < 0, np.float32(0.0), x),
    "leakyrelu": lambda x: np.where(x < 0, np.float32(0.01) * x, x),
    "tanh": lambda x: np.tanh(x.astype(np.float64)),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x.astype(np.float64))),
}


def _network(params: dict[str, Any], X: Single, names: Sequence[str]) -> Single:
    layers, width, values = fields(params, {"layers": list}, "params").get("layers", []), len(names), X
    for layer in layers:
        fields(layer, {"matrix": list, "bias": list, "activation": str}, "a layer")
        matrix, bias = layer["matrix"], layer["bias"]
        if not all(isinstance(number, float) for row in [*matrix, bias] for number in row):
            raise FormatError("Numbers of a layer must have a decimal point: Solr fails on integers.")
        if any(len(row) != width for row in matrix) or len(matrix) != len(bias):
            raise FormatError("The sizes of the layers do not match.")
        if layer["activation"] not in _ACTIVATIONS:
            raise FormatError(f"Solr has no activation '{layer['activation']}'.")
        weights, width = singles(matrix), len(matrix)
        sums = np.tile(singles(bias), (len(X), 1))
        for column in range(weights.shape[1]):
            sums += values[:, column, None] * weights[:, column]
        values = _ACTIVATIONS[layer["activation"]](sums).astype(np.float32)
    if width != 1:
        raise FormatError("The last layer must have one row.")
    return values[:, 0]


_READERS: dict[str, Callable[[dict[str, Any], Single, Sequence[str]], Single]] = {
    _MODEL + "LinearModel": _linear,
    _MODEL + "MultipleAdditiveTreesModel": _forest,
    _MODEL + "NeuralNetworkModel": _network,
}
