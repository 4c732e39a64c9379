"""Trees of any library in LightGBM's representation, built by the readers of all foreign formats.

A reader passes the nodes of a tree in any numbering, and this module finds the tree in them. Children that are out of
range, have two parents or form a cycle are refused. There is no recursion, so no tree is too deep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import IntArray
from toprank.data.encoding import Column, Encoding
from toprank.errors import DataError, refuse_if
from toprank.rankers.trees.forest import Forest, Tree

MAX_FEATURES = 1 << 20
"""Maximum number of features of a foreign model: a short file may claim any number, and each takes memory."""
_MAX_LEAVES = 131_072  # the limit of LightGBM's own trees
ZERO_FOR_NAN, NAN_RIGHT, NAN_LEFT = 0, 8, 10
"""LightGBM's decision_type for splits with NaN as 0, NaN to the right, or NaN to the left."""


class RawNodes(NamedTuple):
    """The nodes of a tree in any order, with the root first; a leaf has left = −1."""

    left: Sequence[int]
    right: Sequence[int]
    feature: npt.NDArray[Any]
    threshold: npt.NDArray[Any]
    """x <= threshold goes left; ignored for splits by category."""
    decision: npt.NDArray[Any]
    value: npt.NDArray[Any]
    """The values of leaves."""
    gain: npt.NDArray[Any] | None = None
    sets: Mapping[int, IntArray] = {}
    """The categories that go left, for splits by category."""


def tree(number: int, nodes: RawNodes, features: int) -> Tree:
    """Build a tree in LightGBM's numbering: inner nodes from 0, leaves −1, −2 …, children after their parents."""
    inner, leaves, (left, right) = _in_order(number, nodes.left, nodes.right)
    feature = nodes.feature[inner].astype(np.int64)
    refuse_if(
        len(feature) and not 0 <= feature.min() <= feature.max() < features,
        f"tree number {number} (from 0) uses a feature that does not exist",
    )
    threshold, decision = nodes.threshold[inner].astype(np.float64), nodes.decision[inner].astype(np.int64)
    categories = tuple(nodes.sets.get(node) for node in inner)
    threshold[[wanted is not None for wanted in categories]] = 0.0
    values = nodes.value[leaves].astype(np.float64)
    refuse_if(
        np.isnan(threshold).any() or not np.isfinite(values).all(),
        f"tree number {number} (from 0) contains numbers that are not finite",
    )
    gain = np.zeros(len(inner)) if nodes.gain is None else nodes.gain[inner].astype(np.float64)
    gain = np.where(np.isfinite(gain), gain, 0.0)
    default_left = decision // 2 % 2 == 1
    return Tree(
        feature=feature,
        threshold=threshold,
        default_left=default_left,
        missing=decision // 4,
        categories=categories,
        left=left,
        right=right,
        values=values,
        gains=gain,
    )


def feature_count(features: int) -> int:
    """Return the number of features; refuse invalid numbers before they are used."""
    refuse_if(not 1 <= features <= MAX_FEATURES, f"it has {features:,} features; 1 to {MAX_FEATURES:,} are supported")
    return features


def forest(trees: Sequence[Tree], features: int) -> Forest:
    """Combine trees with one output."""
    feature_count(features)
    return Forest.from_trees(trees or [Tree.constant(0.0)], features, np.zeros(1))


def _in_order(number: int, left: Sequence[int], right: Sequence[int]) -> tuple[list[int], list[int], list[IntArray]]:
    """Return inner nodes and leaves from the root down, and the children of inner nodes in the new numbering."""
    no_tree = DataError(f"the nodes of tree number {number} (from 0) do not form a tree")
    count = len(left)
    seen, order = bytearray(count), [0]
    places, inner, leaves = [0] * count, list[int](), list[int]()
    if not count or len(right) != count:
        raise no_tree
    for node in order:
        if seen[node]:
            raise no_tree
        seen[node] = 1
        if left[node] == -1:
            leaves.append(node)
            places[node] = -len(leaves)
            continue
        places[node] = len(inner)
        inner.append(node)
        for child in (left[node], right[node]):
            if not 0 < child < count:
                raise no_tree
            order.append(child)
    refuse_if(len(leaves) > _MAX_LEAVES, f"tree number {number} (from 0) has more than {_MAX_LEAVES:,} leaves")
    sides = [np.array([places[side[node]] for node in inner], np.int64) for side in (left, right)]
    return inner, leaves, sides


# ---- values in a description ----


def encoding(names: Sequence[str], levels: Mapping[int, Any]) -> Encoding:
    """Return the types of the columns. `levels` contains the levels of categories by column index, in the order of
    their codes.

    Levels must be unique strings, or unique integers in ascending order.
    """
    columns = [Column(name) for name in names]
    for place, known in levels.items():
        given = list(known) if isinstance(known, list) else []
        texts = all(isinstance(level, str) and level for level in given)
        rising = not texts and all(type(level) is int for level in given) and given == sorted(given)
        refuse_if(
            not given or not (texts or rising) or len(set(given)) < len(given) or not 0 <= place < len(names),
            "the levels of its categories are neither strings nor integers in ascending order",
        )
        columns[place] = Column(names[place], "text" if texts else "whole", tuple(map(str, given)))
    return Encoding.from_plain(Encoding(tuple(columns)).plain())  # validates the whole encoding


def as_object(value: Any, called: str) -> dict[str, Any]:
    """Return a value that must be a JSON object."""
    if not isinstance(value, dict):
        raise DataError(f"{called} is missing or not an object")
    return value


def nested_value(value: Any, *names: str) -> Any:
    """Return the nested value under these keys; None if a key is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def count_in(entries: Mapping[str, Any], name: str, otherwise: int | None = None) -> int:
    """Return an integer that a file stores as text; `otherwise` is the default, without which it is required."""
    word = str(entries.get(name, "" if otherwise is None else otherwise))
    refuse_if(not re.fullmatch(r"\d{1,12}", word, re.ASCII), f"{name} is missing or not a number")
    return int(word)


def numbers(value: Any, called: str, count: int | None = None) -> npt.NDArray[np.float64]:
    """Return a list of numbers as an array, of length `count` if given."""
    plain = isinstance(value, np.ndarray) or (isinstance(value, list) and set(map(type, value)) <= {int, float, bool})
    try:
        values = (
            np.array(value, dtype=np.float64) if plain else None
        )  # NumPy would convert None to NaN, and strings to numbers
    except OverflowError:
        values = None
    if values is None or values.ndim != 1 or (count is not None and len(values) != count):
        many = "" if count is None else f" of {count}"
        raise DataError(f"{called} is not a list{many} of numbers")
    return values


def whole(value: Any, called: str, count: int | None = None) -> npt.NDArray[np.int64]:
    """Return a list of 32-bit integers as an array."""
    values = numbers(value, called, count)
    refuse_if(
        not ((np.abs(values) < 2**32) & (values == np.floor(values))).all(),
        f"{called} contains values that are not integers",
    )
    return values.astype(np.int64)
