"""LightGBM's text format, looked at before LightGBM reads it: it ends the process where a number is missing, and
follows the numbers that are there anywhere.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.errors import DataError

__all__ = ["check_trees", "only_trees"]

_END = "end of trees\n"
_WHOLE = re.compile(r"(-?\d{1,18}( -?\d{1,18})*)?")
_NUMBER = r"-?(\d{1,400}(\.\d{0,400})?([eE][+-]?\d{1,4})?|inf)"
_REAL = re.compile(rf"({_NUMBER}( {_NUMBER})*)?")
_OF_NODES = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")
_OF_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
_INSIDE = ("internal_value", "internal_weight", "internal_count")
_INTEGERS = {"num_leaves", "num_cat", "split_feature", "decision_type", "left_child", "right_child", "leaf_count"}
_INTEGERS |= {"internal_count", "cat_boundaries", "cat_threshold", "is_linear"}

Fields = dict[str, npt.NDArray[Any]]


def only_trees(text: str) -> str:
    """A model's text without what follows the trees: parameters of the training, which ours are written down for."""
    return text[: text.index(_END) + len(_END)]


def check_trees(text: str) -> None:
    """Refuse a text whose trees are not trees: sizes that point outside, children that form no tree, unknown features.

    Raises:
        DataError: in words that finish the sentence "The model is inconsistent: …".
    """
    head, blank, rest = text.partition("\n\n")
    body, end, more = rest.partition(_END)
    if not (head.startswith("tree\n") and blank and end and text.isascii()) or more:
        raise DataError("the text does not hold LightGBM's trees")
    sizes, features = _announced(head, len(body))
    start = 0
    for number, size in enumerate(sizes):
        if not _is_tree(body[start : start + size], number, features):
            raise DataError(f"tree number {number} (from 0) is damaged")
        start += size
    if body[start:].strip():
        raise DataError("there are more trees than were announced")


def _announced(head: str, length: int) -> tuple[list[int], int]:
    """The sizes of the trees in characters, and the number of features."""
    try:
        header = dict(line.split("=", 1) for line in head.splitlines()[1:])
        sizes = [int(size) for size in header["tree_sizes"].split()]
        features, outputs = int(header["max_feature_idx"]) + 1, int(header["num_tree_per_iteration"])
        named = all(len(header[name].split()) == features for name in ("feature_names", "feature_infos"))
        fits = len(sizes) % outputs == 0 and sum(sizes) <= length and min(sizes, default=1) > 0
        if not (named and fits and outputs > 0 and int(header["num_class"]) == outputs):
            raise ValueError
    except (KeyError, ValueError, ZeroDivisionError):
        raise DataError("the description of the trees contradicts itself") from None
    return sizes, features


def _is_tree(block: str, number: int, features: int) -> bool:
    fields = _fields(block, number)
    if fields is None or any(len(fields[name]) != 1 for name in ("num_leaves", "num_cat", "is_linear", "shrinkage")):
        return False
    leaves, categories = int(fields["num_leaves"][0]), int(fields["num_cat"][0])
    nodes = leaves - 1
    of_leaves = {name: 0 if name == "leaf_weight" and leaves == 1 else leaves for name in _OF_LEAVES}
    counts = dict.fromkeys((*_OF_NODES, *_INSIDE), nodes) | of_leaves
    if any(len(fields[name]) != count for name, count in counts.items()):
        return False
    if leaves < 1 or fields["is_linear"][0] or not np.isfinite(fields["leaf_value"]).all():
        return False
    split = fields["split_feature"]
    if not ((split >= 0) & (split < features)).all():
        return False
    return _children_fit(fields, leaves) and _categories_fit(fields, categories)


def _fields(block: str, number: int) -> Fields | None:
    """The lines of a tree as numbers; None where one is missing, out of place, or no number."""
    lines = block.rstrip("\n").split("\n")
    by_category = ("cat_boundaries", "cat_threshold") if "\ncat_boundaries=" in block else ()
    names = ("num_leaves", "num_cat", *_OF_NODES, *_OF_LEAVES, *_INSIDE, *by_category, "is_linear", "shrinkage")
    if lines[0] != f"Tree={number}" or len(lines) != 1 + len(names) or not block.endswith("\n\n\n"):
        return None
    fields: Fields = {}
    for name, line in zip(names, lines[1:], strict=True):
        kind, value = (np.int64, _WHOLE) if name in _INTEGERS else (np.float64, _REAL)
        if not line.startswith(f"{name}=") or not value.fullmatch(line, len(name) + 1):
            return None
        fields[name] = np.array(line[len(name) + 1 :].split(), dtype=kind)
    return fields


def _children_fit(fields: Fields, leaves: int) -> bool:
    """Inner nodes are numbered from 0 as they are made, leaves −1, −2 …: each is the child of one earlier node."""
    sides, nodes = (fields["left_child"], fields["right_child"]), leaves - 1
    wanted = np.concatenate([np.arange(-leaves, 0), np.arange(1, nodes)]) if nodes else np.zeros(0)
    if not np.array_equal(np.sort(np.concatenate(sides)), wanted):
        return False
    return not any(((side >= 0) & (side <= np.arange(nodes))).any() for side in sides)


def _categories_fit(fields: Fields, count: int) -> bool:
    """Splits by category point to one of `count` sets, each a run of 32-bit words."""
    used = fields["threshold"][fields["decision_type"] % 2 == 1]
    if count == 0 or "cat_boundaries" not in fields:
        return count == 0 and len(used) == 0 and "cat_boundaries" not in fields
    bounds, words = fields["cat_boundaries"], fields["cat_threshold"]
    if len(bounds) != count + 1 or bounds[0] != 0 or not (np.diff(bounds) > 0).all() or bounds[-1] != len(words):
        return False
    return bool(((used >= 0) & (used < count)).all())
