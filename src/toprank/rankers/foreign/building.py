"""Trees of any library, told in LightGBM's terms: what every reader of a foreign format builds.

A reader gives the nodes of a tree in any numbering, and this module finds the tree in them: children that point
nowhere, come twice or lead back are refused, and nothing here calls itself, so that no tree is too deep.
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

MOST_FEATURES = 1 << 20
"""Features of a foreign model at most: a short file may claim any number, and each costs some memory."""
_MOST_LEAVES = 131_072  # as in LightGBM's own trees
ZERO_FOR_NAN, NAN_RIGHT, NAN_LEFT = 0, 8, 10
"""LightGBM's decision_type of splits where NaN counts as 0, goes right, or goes left."""


class RawNodes(NamedTuple):
    """The nodes of a tree in any order, the root first; a leaf has left = −1."""

    left: Sequence[int]
    right: Sequence[int]
    feature: npt.NDArray[Any]
    threshold: npt.NDArray[Any]
    """x <= threshold goes left; at a node by categories not looked at."""
    decision: npt.NDArray[Any]
    value: npt.NDArray[Any]
    """Of leaves."""
    gain: npt.NDArray[Any] | None = None
    sets: Mapping[int, IntArray] = {}
    """The categories that go left, of nodes by categories."""


def tree(number: int, nodes: RawNodes, features: int) -> Tree:
    """The nodes as LightGBM numbers them: inner ones from 0, leaves −1, −2 …, children after their parents."""
    inner, leaves, (left, right) = _in_order(number, nodes.left, nodes.right)
    feature = nodes.feature[inner].astype(np.int64)
    refuse_if(
        len(feature) and not 0 <= feature.min() <= feature.max() < features,
        f"tree number {number} (from 0) asks for a feature that is not there",
    )
    threshold, decision = nodes.threshold[inner].astype(np.float64), nodes.decision[inner].astype(np.int64)
    categories = tuple(nodes.sets.get(node) for node in inner)
    threshold[[wanted is not None for wanted in categories]] = 0.0
    values = nodes.value[leaves].astype(np.float64)
    refuse_if(
        np.isnan(threshold).any() or not np.isfinite(values).all(),
        f"tree number {number} (from 0) holds numbers that are not finite",
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
    """The number of features, refused before anything is looked up by it."""
    refuse_if(not 1 <= features <= MOST_FEATURES, f"it has {features:,} features; from 1 to {MOST_FEATURES:,} are read")
    return features


def forest(trees: Sequence[Tree], features: int) -> Forest:
    """Trees of one output."""
    feature_count(features)
    return Forest.from_trees(trees or [Tree.constant(0.0)], features, np.zeros(1))


def _in_order(number: int, left: Sequence[int], right: Sequence[int]) -> tuple[list[int], list[int], list[IntArray]]:
    """Inner nodes and leaves from the root down, and the children of the inner ones by their new numbers."""
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
    refuse_if(len(leaves) > _MOST_LEAVES, f"tree number {number} (from 0) has more than {_MOST_LEAVES:,} leaves")
    sides = [np.array([places[side[node]] for node in inner], np.int64) for side in (left, right)]
    return inner, leaves, sides


# ---- what a description may say ----


def encoding(names: Sequence[str], levels: Mapping[int, Any]) -> Encoding:
    """What the columns are, where some of them (by number) are categories of these levels in the order of their codes.

    Levels must be different texts, or different whole numbers in their order.
    """
    columns = [Column(name) for name in names]
    for place, known in levels.items():
        given = list(known) if isinstance(known, list) else []
        texts = all(isinstance(level, str) and level for level in given)
        rising = not texts and all(type(level) is int for level in given) and given == sorted(given)
        refuse_if(
            not given or not (texts or rising) or len(set(given)) < len(given) or not 0 <= place < len(names),
            "the levels of its categories are neither texts nor whole numbers in their order",
        )
        columns[place] = Column(names[place], "text" if texts else "whole", tuple(map(str, given)))
    return Encoding.from_plain(Encoding(tuple(columns)).plain())  # which looks at all of it once more


def as_object(value: Any, called: str) -> dict[str, Any]:
    """A value that must be an object of JSON."""
    if not isinstance(value, dict):
        raise DataError(f"{called} is missing or no object")
    return value


def of_object(value: Any, *names: str) -> Any:
    """What lies under these names, one within the other; None where one is not there."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def count_in(entries: Mapping[str, Any], name: str, otherwise: int | None = None) -> int:
    """Return a whole number that a file writes as text; `otherwise` if it is absent, else that is refused."""
    word = str(entries.get(name, "" if otherwise is None else otherwise))
    refuse_if(not re.fullmatch(r"\d{1,12}", word, re.ASCII), f"{name} is missing or no number")
    return int(word)


def numbers(value: Any, called: str, count: int | None = None) -> npt.NDArray[np.float64]:
    """A list of numbers, as many as `count` says."""
    plain = isinstance(value, np.ndarray) or (isinstance(value, list) and set(map(type, value)) <= {int, float, bool})
    try:
        values = np.array(value, dtype=np.float64) if plain else None  # NumPy would take None for NaN, and read texts
    except OverflowError:
        values = None
    if values is None or values.ndim != 1 or (count is not None and len(values) != count):
        many = "" if count is None else f" of {count}"
        raise DataError(f"{called} is not a list{many} of numbers")
    return values


def whole(value: Any, called: str, count: int | None = None) -> npt.NDArray[np.int64]:
    """A list of whole numbers of 32 bits."""
    values = numbers(value, called, count)
    refuse_if(
        not ((np.abs(values) < 2**32) & (values == np.floor(values))).all(), f"{called} holds what is no whole number"
    )
    return values.astype(np.int64)
