"""Scoring by RankLib from a model file: LambdaMART's XML, or the line of its linear regression.

Features are in single precision, and missing ones are 0. A document goes left if x <= threshold.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np

from toprank.compute import FloatArray
from toprank.errors import FormatError
from toprank.exporters.interpreters.reading import Array, BoolArray, Trees, single, zeros_for_missing

_TREES, _LINEAR = "## LambdaMART", "## Linear Regression"


def score(text: str, X: Any) -> FloatArray:
    """Score rows of features; column 0 is RankLib's feature 1.

    Raises:
        FormatError: RankLib cannot read the file.
    """
    lines = [line.strip() for line in text.splitlines()]
    body = "".join(line for line in lines if not line.startswith("#"))
    values = zeros_for_missing(X)
    if lines[0] == _LINEAR:
        return _linear(body, values)
    if lines[0] != _TREES:
        raise FormatError(f"The first line must name a ranker of RankLib, such as '{_TREES}'.")
    try:
        ensemble = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise FormatError(f"This is not valid XML: {error}.") from None
    trees, weights = Trees(), []
    for tree in ensemble.iter("tree"):
        weights.append(single(tree.attrib["weight"]))
        trees.roots.append(_node(_first(tree), trees, values.shape[1]))
    total = np.zeros(len(values), dtype=np.float32)
    for weight, leaves in zip(weights, trees.leaves(values, _goes_left, np.float32), strict=True):
        # a double is added to a float, and the sum is rounded
        total = (total.astype(np.float64) + leaves.astype(np.float64) * float(weight)).astype(np.float32)
    return total.astype(np.float64)


def _goes_left(x: Array, threshold: Array, mark: Array) -> BoolArray:
    del mark
    less: BoolArray = x <= threshold
    return less


def _first(parent: Any) -> Any:
    """Return the first child; RankLib would treat white space before it as the first one."""
    if parent.text is not None or not len(parent):
        raise FormatError(
            f"<{parent.tag}> must begin with its first element: RankLib treats white space as an element."
        )
    return parent[0]


def _node(split: Any, trees: Trees, n_features: int) -> int:
    first = _first(split)
    if any(child.tail is not None for child in split):
        raise FormatError("Text between the elements of a split is not allowed; RankLib parses it as an element.")
    if first.tag.lower() != "feature":
        return trees.leaf(single((first.text or "").strip()))
    if len(split) < 4:
        raise FormatError("A split needs a feature, a threshold, and two splits.")
    number = int((first.text or "").strip())
    if not 1 <= number <= n_features:
        raise FormatError(f"A split tests feature {number}, but documents have the features 1 to {n_features}.")
    threshold = single((split[1].text or "").strip())
    left, right = _node(split[2], trees, n_features), _node(split[3], trees, n_features)
    return trees.split(number - 1, threshold, left, right)


def _linear(body: str, X: Array) -> FloatArray:
    pairs = [pair.split(":") for pair in body.split()]
    weights = {int(key): float(value) for key, value in pairs}
    if max(weights) > X.shape[1]:
        raise FormatError(f"The line has a weight for feature {max(weights)}, but documents have {X.shape[1]}.")
    total = np.full(len(X), weights.pop(0, 0.0))
    for number, weight in weights.items():
        total = total + weight * X[:, number - 1].astype(np.float64)
    return total
