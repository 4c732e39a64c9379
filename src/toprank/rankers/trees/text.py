"""LightGBM's text format, parsed into checked numbers and written again, so that LightGBM only reads our own text.

LightGBM terminates the process if a number is missing, does not validate the numbers present, and two parsers may
interpret one text differently. Therefore every line must be one that LightGBM writes, in its place, every number is
validated, and the text passed to LightGBM is written from these numbers. For a text written by LightGBM it is
identical, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import offsets_of
from toprank.errors import DataError, refuse_if
from toprank.rankers.trees.forest import Forest, TrainingFacts

END_OF_TREES = "end of trees\n"
GAP = "\n\n\n"
_MAX_LEAVES = 131_072  # LightGBM's own limit
_MAX_OUTPUTS = 10_000
_MAX_SUM = 1e300  # of the absolute leaf values, so that no score overflows

_DIGITS = r"\d{1,18}"
_NUMBER = r"-?(?:\d{1,18}(?:\.\d{1,24})?(?:e[+-]\d{1,3})?|inf)"
_WHOLE_LIST = re.compile(rf"(?:-?{_DIGITS}(?: -?{_DIGITS})*)?")
_REAL_LIST = re.compile(rf"(?:{_NUMBER}(?: {_NUMBER})*)?")
INFO = re.compile(rf"none|\[{_NUMBER}:{_NUMBER}\]|-?{_DIGITS}(?::-?{_DIGITS})*", re.ASCII)
_HEAD = re.compile(
    r"tree\n"
    r"version=v4\n"
    rf"num_class=(?P<outputs>{_DIGITS})\n"
    r"num_tree_per_iteration=(?P=outputs)\n"
    r"label_index=0\n"
    rf"max_feature_idx=(?P<last>{_DIGITS})\n"
    r"(?:objective=(?P<objective>lambdarank|rank_xendcg)\n)?"
    r"feature_names=(?P<names>[^\n]*)\n"
    r"(?:monotone_constraints=(?P<directions>[-01 ]*)\n)?"
    r"feature_infos=(?P<infos>[^\n]*)\n"
    r"tree_sizes=(?P<sizes>[\d ]*)"
)

_OF_NODES = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")
_OF_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
_INSIDE = ("internal_value", "internal_weight", "internal_count")
_INTEGERS = {"num_leaves", "num_cat", "split_feature", "decision_type", "left_child", "right_child", "leaf_count"}
_INTEGERS |= {"internal_count", "cat_boundaries", "cat_threshold", "is_linear"}
_EXACT = {"threshold", "leaf_value", "leaf_weight"}  # written exactly; the others to six digits, as in LightGBM

Fields = dict[str, npt.NDArray[Any]]


# ---- reading ----


def read_trees(text: str) -> Forest:
    """Parse the trees of a text that may be forged.

    Refuses sizes out of range, children that do not form a tree, unknown features, lines that LightGBM does not write,
    and numbers out of range.

    Raises:
        DataError: the message completes the sentence "The model is inconsistent: …".
    """
    head, blank, rest = text.partition("\n\n")
    body, end, more = rest.partition(END_OF_TREES)
    refuse_if(
        not (head.startswith("tree\n") and blank and end and text.isascii()) or more,
        "the text does not contain LightGBM's trees",
    )
    *blocks, last = body.split(GAP)
    announced = _announced(head, [len(block) + len(GAP) for block in blocks])
    refuse_if(last.strip("\n"), "the text does not contain LightGBM's trees")
    return read_blocks(blocks, announced)


def read_blocks(blocks: Sequence[str], head: TextHead) -> Forest:
    """Parse the text of each tree into a forest, with the same validation."""
    refuse_if(not blocks or len(blocks) % head.outputs, "the description of the trees is inconsistent")
    trees = []
    for number, block in enumerate(blocks):
        refuse_if(
            "\nis_linear=1\n" in block, f"tree number {number} (from 0) has linear models in its leaves, not values"
        )
        fields = _fields(block, number)
        if fields is None or not _is_tree(fields, len(head.infos)):
            raise DataError(f"tree number {number} (from 0) is damaged")
        trees.append(fields)
    refuse_if(
        not sum(float(np.abs(fields["leaf_value"]).max()) for fields in trees) < _MAX_SUM,
        "the scores of the trees may not be finite",
    )
    return _forest(head, trees)


def _forest(head: TextHead, trees: list[Fields]) -> Forest:
    def joined(name: str) -> npt.NDArray[Any]:
        return np.concatenate([fields[name] for fields in trees if name in fields] or [np.zeros(0)])

    decision, n_leaves = joined("decision_type"), joined("num_leaves")
    by_category, set_size = decision % 2 == 1, np.zeros(len(decision), np.int64)
    sizes = [np.diff(fields["cat_boundaries"]) for fields in trees if "cat_boundaries" in fields]
    set_size[by_category] = np.concatenate([np.zeros(0, np.int64), *sizes])
    numbers = {name: joined(name) for name in (*_OF_LEAVES[1:], *_INSIDE, "shrinkage")}
    weights = np.zeros(int(n_leaves.sum()))
    weights[np.repeat(n_leaves > 1, n_leaves)] = numbers["leaf_weight"]  # a tree with one leaf has no weight
    return Forest(
        n_features=len(head.infos),
        n_leaves=n_leaves,
        feature=joined("split_feature"),
        threshold=np.where(by_category, 0.0, joined("threshold")),
        default_left=decision // 2 % 2 == 1,
        missing=decision // 4,
        set_size=set_size,
        left=joined("left_child"),
        right=joined("right_child"),
        gains=joined("split_gain"),
        values=joined("leaf_value"),
        words=joined("cat_threshold").astype(np.uint32),
        intercepts=np.zeros(head.outputs),
        facts=TrainingFacts(head.objective, head.directions, head.infos, numbers | {"leaf_weight": weights}),
    )


class TextHead(NamedTuple):
    """The header above the trees."""

    outputs: int
    objective: str | None
    directions: list[int] | None
    infos: list[str]


def _announced(head: str, sizes: list[int]) -> TextHead:
    """Parse the header; `sizes` are the actual lengths of the trees."""
    announced = _HEAD.fullmatch(head)
    contradiction = DataError("the description of the trees is inconsistent")
    if announced is None:
        refuse_if("\naverage_output\n" in head, "the trees are a random forest; only boosted trees are supported")
        raise contradiction
    outputs, features, infos = int(announced["outputs"]), int(announced["last"]) + 1, announced["infos"].split(" ")
    named = announced["names"].split(" ")
    if not 1 <= outputs <= _MAX_OUTPUTS or len(named) != features or len(infos) != features:
        raise contradiction
    if named != column_names(features) or not all(INFO.fullmatch(info) for info in infos):
        raise contradiction
    refuse_if(announced["sizes"] != " ".join(map(str, sizes)), "the sizes of the trees differ from those stated")
    directions = None
    if announced["directions"] is not None:
        words = announced["directions"].split(" ")
        if len(words) != features or not set(words) <= {"-1", "0", "1"}:
            raise contradiction
        directions = [int(word) for word in words]
    return TextHead(outputs, announced["objective"], directions, infos)


def column_names(features: int) -> list[str]:
    """Return LightGBM's names for features without names."""
    return [f"Column_{number}" for number in range(features)]


def _line_names(by_category: bool) -> tuple[str, ...]:
    more = ("cat_boundaries", "cat_threshold") if by_category else ()
    return ("num_leaves", "num_cat", *_OF_NODES, *_OF_LEAVES, *_INSIDE, *more, "is_linear", "shrinkage")


def _fields(block: str, number: int) -> Fields | None:
    """Parse the lines of a tree; None if a line is missing, out of place or not numeric."""
    lines = block.split("\n")
    names = _line_names("\ncat_boundaries=" in block)
    if not block.isascii() or lines[0] != f"Tree={number}" or len(lines) != 1 + len(names):
        return None
    fields: Fields = {}
    for name, line in zip(names, lines[1:], strict=True):
        kind, pattern = (np.int64, _WHOLE_LIST) if name in _INTEGERS else (np.float64, _REAL_LIST)
        if not line.startswith(f"{name}=") or not pattern.fullmatch(line, len(name) + 1):
            return None
        fields[name] = np.array(line[len(name) + 1 :].split(), dtype=kind)
    return fields


# ---- checking ----


def _is_tree(fields: Fields, features: int) -> bool:
    if any(len(fields[name]) != 1 for name in ("num_leaves", "num_cat", "is_linear", "shrinkage")):
        return False
    leaves, nodes = int(fields["num_leaves"][0]), int(fields["num_leaves"][0]) - 1
    of_leaves = {name: 0 if name == "leaf_weight" and leaves == 1 else leaves for name in _OF_LEAVES}
    counts = dict.fromkeys((*_OF_NODES, *_INSIDE), nodes) | of_leaves
    if not 1 <= leaves <= _MAX_LEAVES or any(len(fields[name]) != count for name, count in counts.items()):
        return False
    if fields["is_linear"][0] or not np.isfinite(fields["leaf_value"]).all():
        return False
    ranges = {"split_feature": features, "decision_type": 12, "leaf_count": 2**31, "internal_count": 2**31}
    if not all(_within(fields[name], below) for name, below in ranges.items()):
        return False
    return _children_fit(fields, leaves) and _categories_fit(fields, int(fields["num_cat"][0]))


def _within(values: npt.NDArray[Any], below: int) -> bool:
    return bool(((values >= 0) & (values < below)).all())


def _children_fit(fields: Fields, leaves: int) -> bool:
    """Return whether inner nodes from 0 and leaves −1, −2 … are each the child of exactly one earlier node."""
    sides, nodes = (fields["left_child"], fields["right_child"]), leaves - 1
    wanted = np.concatenate([np.arange(-leaves, 0), np.arange(1, nodes)]) if nodes else np.zeros(0)
    if not np.array_equal(np.sort(np.concatenate(sides)), wanted):
        return False
    return not any(((side >= 0) & (side <= np.arange(nodes))).any() for side in sides)


def _categories_fit(fields: Fields, count: int) -> bool:
    """Return whether splits by category refer to `count` sets in order; a set is a range of 32-bit words."""
    used = fields["threshold"][fields["decision_type"] % 2 == 1]
    if count == 0 or "cat_boundaries" not in fields:
        return count == 0 and len(used) == 0 and "cat_boundaries" not in fields
    bounds, words = fields["cat_boundaries"], fields["cat_threshold"]
    if len(bounds) != count + 1 or bounds[0] != 0 or not (np.diff(bounds) > 0).all() or bounds[-1] != len(words):
        return False
    return _within(words, 2**32) and np.array_equal(used, np.arange(count))


# ---- writing ----


def written_trees(forest: Forest) -> str:
    """Return the text that LightGBM would write."""
    blocks = [_block(number, fields) for number, fields in enumerate(_trees_of(forest))]
    return "".join([_head(forest, [len(block) for block in blocks]), "\n\n", *blocks, END_OF_TREES])


def _head(forest: Forest, sizes: Sequence[int]) -> str:
    features, facts = forest.n_features, forest.facts
    lines = ["tree", "version=v4", f"num_class={forest.outputs}", f"num_tree_per_iteration={forest.outputs}"]
    lines += ["label_index=0", f"max_feature_idx={features - 1}"]
    if facts is not None and facts.objective is not None:
        lines.append(f"objective={facts.objective}")
    lines.append("feature_names=" + " ".join(column_names(features)))
    if facts is not None and facts.directions is not None:
        lines.append("monotone_constraints=" + _joined("%d", facts.directions))
    infos = ["none"] * features if facts is None else facts.infos
    lines += ["feature_infos=" + " ".join(infos), "tree_sizes=" + _joined("%d", sizes)]
    return "\n".join(lines)


def _block(number: int, fields: Fields) -> str:
    lines = [f"Tree={number}"]
    for name in _line_names("cat_boundaries" in fields):
        form = "%d" if name in _INTEGERS else "%.17g" if name in _EXACT else "%g"
        lines.append(f"{name}={_joined(form, fields[name].tolist())}")
    return "\n".join(lines) + GAP


def _trees_of(forest: Forest) -> Iterator[Fields]:
    """Yield the lines of each tree; values known only to LightGBM's training are 0 if missing."""
    nodes, leaves, count = np.zeros(len(forest.feature)), np.zeros(len(forest.values)), len(forest.n_leaves)
    numbers: Fields = dict.fromkeys(_INSIDE, nodes) | dict.fromkeys(_OF_LEAVES, leaves)
    numbers["shrinkage"] = np.ones(count)
    numbers |= {} if forest.facts is None else forest.facts.numbers
    numbers |= {"leaf_value": forest.values, "split_gain": forest.gains, "split_feature": forest.feature}
    numbers |= {"left_child": forest.left, "right_child": forest.right}
    decision = (forest.set_size > 0) + 2 * forest.default_left + 4 * forest.missing
    node = leaf = word = 0
    for number, n_leaves in enumerate(forest.n_leaves.tolist()):
        inner, outer = slice(node, node + n_leaves - 1), slice(leaf, leaf + n_leaves)
        fields: Fields = {name: numbers[name][inner] for name in (*_OF_NODES[:2], *_OF_NODES[4:], *_INSIDE)}
        fields |= {name: numbers[name][outer] for name in _OF_LEAVES}
        sizes, threshold = forest.set_size[inner], forest.threshold[inner].copy()
        ends = offsets_of(sizes[sizes > 0])
        if len(ends) > 1:
            threshold[sizes > 0] = np.arange(len(ends) - 1)
            fields |= {"cat_boundaries": ends, "cat_threshold": forest.words[word : word + ends[-1]]}
        if n_leaves == 1:  # LightGBM writes none for a single leaf
            fields["leaf_weight"] = fields["leaf_weight"][:0]
        fields |= {"threshold": threshold, "decision_type": decision[inner], "num_leaves": np.array([n_leaves])}
        fields |= {"num_cat": np.array([len(ends) - 1]), "is_linear": np.zeros(1)}
        yield fields | {"shrinkage": numbers["shrinkage"][number : number + 1]}
        node, leaf, word = inner.stop, outer.stop, word + int(ends[-1])


def _joined(form: str, numbers: Iterable[float]) -> str:
    return " ".join([form % number for number in numbers])
