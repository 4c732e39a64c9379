"""Scoring by the learning-to-rank plug-ins of Elasticsearch and OpenSearch, from the body of a `_createmodel` request.

Everything is in single precision. A document goes left if `threshold > x`. The treatment of missing values depends on
the version of the server: they are 0 (``zero``), go right (``right``), or go in the direction given by the node
(``node``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

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
    zeros_for_missing,
)

Missing = Literal["zero", "right", "node"]
_NUMBER = (int, float)
_NODE: dict[str, Any] = {
    "nodeid": int, "depth": int, "split": str, "split_condition": _NUMBER, "yes": int, "no": int, "missing": int,
    "children": list, "leaf": _NUMBER,
}  # fmt: skip
_SET: dict[str, Any] = {"name": str, "features": list}
_FEATURE: dict[str, Any] = {"name": str, "params": list, "template_language": str, "template": dict}
_OBJECTIVES = {"rank:pairwise", "reg:linear", "binary:logitraw"}
_LOGISTIC = {"binary:logistic", "reg:logistic"}


def score(text: str, X: Any, names: Sequence[str], missing: Missing) -> Single:
    """Score rows of features on a server whose feature set has these names.

    Raises:
        FormatError: the parser of the plug-in rejects the request.
    """
    body = fields(strict_json(text), {"model": dict}, "the request")
    model = fields(body.get("model"), {"name": str, "model": dict}, "the model")
    inner = fields(model.get("model"), {"type": str, "definition": str, "feature_normalizers": dict}, "'model'")
    if not model.get("name") or "type" not in inner or "definition" not in inner:
        raise FormatError("A model needs a name, a type and a definition.")
    places = places_of(names)
    definition = strict_json(inner["definition"])
    norms = _normalizers(inner.get("feature_normalizers", {}), places)
    is_linear = inner["type"] == "model/linear"
    values = zeros_for_missing(X) if is_linear or missing == "zero" else singles(X)
    with np.errstate(over="ignore", invalid="ignore"):
        if is_linear:
            return _linear(definition, _normalized(values, norms), places)
        if inner["type"] == "model/xgboost+json":
            return _forest(definition, _normalized(values, norms), places, missing)
    raise FormatError(f"No parser of the plug-in is registered for '{inner['type']}'.")


def feature_values(
    text: str, X: Any, names: Sequence[str], cells: Mapping[str, Array] | None = None
) -> tuple[Single, tuple[str, ...]]:
    """Return the values and names of the features that a feature set computes from document fields.

    Args:
        text: the body of a request that creates a feature set: each feature is the number in a field, or the number of
            the term in it.
        X: the numbers in document fields, NaN if a document lacks one.
        names: the field names.
        cells: the terms in text fields, by field name; None if a document lacks one.
    """
    request = fields(strict_json(text), {"featureset": dict}, "the request")
    feature_set = fields(request["featureset"], _SET, "the feature set")
    values, columns, places = singles(X), [], places_of(names)
    for feature in feature_set["features"]:
        template = fields(feature, _FEATURE, "a feature")["template"]["function_score"]
        if "functions" in template:
            columns.append(_by_term(template, cells or {}))
            continue
        factor = fields(template["field_value_factor"], {"field": str, "missing": _NUMBER}, "a field's value")
        column = values[:, places[factor["field"]]]
        if "missing" in factor:
            column = np.where(np.isnan(column), single(factor["missing"]), column)
        elif template["query"] != {"exists": {"field": factor["field"]}}:
            raise FormatError(f"The query fails if a document lacks the field '{factor['field']}'.")
        columns.append(column)
    return np.column_stack(columns), tuple(feature["name"] for feature in feature_set["features"])


def _by_term(query: dict[str, Any], cells: Mapping[str, Array]) -> Single:
    """Score documents by the weight of the first function whose term they have; one without a term matches all."""
    known = {"query": dict, "functions": list, "score_mode": str, "boost_mode": str}
    score = fields(query, known, "a function_score")
    if (score["query"], score["score_mode"], score["boost_mode"]) != ({"match_all": {}}, "first", "replace"):
        raise FormatError("A function_score must match all documents, and its first function must replace the score.")
    weights: dict[Any, float] = {}
    searched, otherwise = set(), 1.0  # 1 is the score of a document that matches no function
    for function in score["functions"]:
        entry = fields(function, {"filter": dict, "weight": _NUMBER}, "a function")
        if entry["weight"] < 0:
            raise FormatError("The weight of a function cannot be negative.")
        if "filter" not in entry:
            otherwise = entry["weight"]
            break
        [(field, term)] = entry["filter"]["term"].items()
        searched.add(field)
        weights.setdefault(term, entry["weight"])
    [field] = searched
    return singles([weights.get(cell, otherwise) if cell is not None else otherwise for cell in cells[field]])


def _normalizers(normalizers: dict[str, Any], places: dict[str, int]) -> dict[int, tuple[np.float32, np.float32]]:
    norms = {}
    for name, norm in normalizers.items():
        inner = fields(norm, {"standard": dict}, f"the normalizer of '{name}'").get("standard")
        numbers = fields(inner, {"mean": _NUMBER, "standard_deviation": _NUMBER}, f"the normalizer of '{name}'")
        if name not in places or len(numbers) < 2 or numbers["standard_deviation"] <= 0:
            raise FormatError(f"The normalizer of '{name}' must have a known feature, a mean and a deviation > 0.")
        norms[places[name]] = single(numbers["mean"]), single(numbers["standard_deviation"])
    return norms


def _normalized(X: Single, norms: dict[int, tuple[np.float32, np.float32]]) -> Single:
    normalized = X.copy()
    for column, (mean, deviation) in norms.items():
        normalized[:, column] = (X[:, column] - mean) / deviation
    return normalized


def _linear(definition: Any, X: Single, places: dict[str, int]) -> Single:
    weights = np.zeros(len(places), dtype=np.float32)
    for name, weight in fields(definition, dict.fromkeys(places, _NUMBER), "the linear model").items():
        weights[places[name]] = single(weight)
    total = np.zeros(len(X), dtype=np.float32)
    for column, weight in enumerate(weights):
        total += weight * X[:, column]
    return total


def _forest(definition: Any, X: Single, places: dict[str, int], missing: Missing) -> Single:
    objective, splits = "rank:pairwise", definition
    if isinstance(definition, dict):
        fields(definition, {"objective": str, "splits": list}, "the definition")
        objective, splits = definition.get("objective", objective), definition.get("splits")
    if not isinstance(splits, list) or not splits:
        raise FormatError("A model needs trees: an array of them, or an object with 'splits'.")
    if objective not in _OBJECTIVES | _LOGISTIC:
        raise FormatError(f"The objective '{objective}' is not supported by every version.")
    trees = Trees()
    trees.roots = [_node(tree, trees, places) for tree in splits]

    def goes_left(x: Array, threshold: Array, missing_left: Array) -> BoolArray:
        less: BoolArray = threshold > x
        return np.where(np.isnan(x), missing_left == 1, less) if missing == "node" else less

    total = np.zeros(len(X), dtype=np.float32)
    for leaves in trees.leaves(X, goes_left, np.float32):
        total += leaves
    if objective in _LOGISTIC:
        total = (1.0 / (1.0 + np.exp(-total.astype(np.float64)))).astype(np.float32)
    return total


def _node(value: Any, trees: Trees, places: dict[str, int]) -> int:
    node = fields(value, _NODE, "a node")
    if "leaf" in node:
        if "nodeid" not in node:
            raise FormatError("This leaf lacks required fields.")
        return trees.leaf(single(node["leaf"]))
    # Elasticsearch's parser accepts a node without `missing`, and fails later.
    if not {"nodeid", "depth", "split", "split_condition", "yes", "no", "missing"} <= node.keys():
        raise FormatError("This split lacks required fields.")
    children = node.get("children", ())
    numbers = [child.get("nodeid") if isinstance(child, dict) else None for child in children]
    if numbers != [node["yes"], node["no"]] or node["missing"] not in numbers:
        raise FormatError("The branches yes, no and missing of a split do not point to its children.")
    if node["split"] not in places:
        raise FormatError(f"The feature set has no feature '{node['split']}'.")
    left, right = (_node(child, trees, places) for child in children)
    threshold = single(node["split_condition"])
    return trees.split(places[node["split"]], threshold, left, right, int(node["missing"] == node["yes"]))
