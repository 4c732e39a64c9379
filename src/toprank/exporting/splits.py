"""Trees as search engines know them: a feature is up to a threshold, or above it, or missing.

LightGBM knows more: it takes values within ±1e-35 for zero, and a node can send zeros where it sends missing values.
Here all of that is written with thresholds alone, exactly, with more nodes where one is not enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from toprank.exporting.code_ranges import DEEPEST, GROWTH, most_leaves
from toprank.exporting.float32 import LARGEST_SINGLE, next_single
from toprank.exporting.levels import numbered_forest, table_categories
from toprank.rankers.formula import Blend, Formula, GradeGains, LinearFunction, Network, Wide
from toprank.rankers.trees.forest import BELOW_TINY, MISSING_ZERO, TINY, Forest, Tree

_REMEDY = "Export it to onnx, c or python."
_MOST_CODES = 1 << 24  # whole numbers beyond are not all there in single precision


class Split(NamedTuple):
    """A node: left where x <= threshold, right where it is above; missing values by `missing_left`."""

    feature: int
    threshold: float
    missing_left: bool
    left: Node
    right: Node
    codes: tuple[int, ...] | None = None
    """The categories that go left, where it asks for these; all else goes right."""


Node = Split | float
"""A split, or the value of a leaf."""


def plain_trees(forest: Forest) -> list[Node]:
    """The trees of a forest with one output, and its intercept as a last tree of one leaf, where there is one."""
    trees = [_plain(tree) for tree in forest.unflushed().trees]
    intercept = float(forest.intercepts[0])
    return [*trees, intercept] if intercept or not trees else trees


def numbered_trees(formula: Formula) -> list[Node]:
    """The trees of a formula that `forest_refusal` lets pass, levels of categories given by their numbers."""
    forest = numbered_forest(formula)
    assert forest is not None
    return plain_trees(forest)


def _plain(tree: Tree) -> Node:
    made: dict[int, Node] = {-1 - leaf: float(value) for leaf, value in enumerate(tree.values)}
    missing_left = tree.nan_left
    for node in reversed(_from_the_root(tree)):
        sides = made[int(tree.left[node])], made[int(tree.right[node])]
        threshold, goes_left = float(tree.threshold[node]), bool(missing_left[node])
        wanted = tree.categories[node]
        if wanted is not None:
            made[node] = Split(int(tree.feature[node]), 0.0, False, *sides, tuple(map(int, wanted)))
        elif tree.missing[node] == MISSING_ZERO:
            made[node] = _with_zeros(int(tree.feature[node]), threshold, goes_left, *sides)
        else:
            made[node] = Split(int(tree.feature[node]), threshold, goes_left, *sides)
    return made[0] if len(tree.feature) else made[-1]


def _from_the_root(tree: Tree) -> list[int]:
    """The inner nodes, each after its parent."""
    inner = [0] if len(tree.feature) else []
    for node in inner:
        inner.extend(int(child) for child in (tree.left[node], tree.right[node]) if child >= 0)
    return inner


def _with_zeros(feature: int, threshold: float, default_left: bool, left: Node, right: Node) -> Node:
    """A node that sends zeros and missing values to its default side, whatever its threshold says of zero.

    Every node here sends missing values where it sends a zero, so that engines without missing values agree.
    """
    if BELOW_TINY <= threshold <= TINY:  # what is no zero is below or above by its sign
        return Split(feature, TINY if default_left else BELOW_TINY, default_left, left, right)
    inner = Split(feature, threshold, threshold >= 0.0, left, right)
    if (threshold >= 0.0) == default_left:
        return inner
    if default_left:  # zeros lie above the threshold, and go left all the same
        return Split(feature, BELOW_TINY, False, inner, Split(feature, TINY, True, left, right))
    return Split(feature, TINY, True, Split(feature, BELOW_TINY, False, left, right), inner)


def nodes(tree: Node) -> Iterator[Split]:
    """Every split of a tree, as often as it occurs."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, Split):
            yield node
            left.extend((node.right, node.left))


def missing_is_zero(trees: list[Node]) -> bool:
    """Whether a missing value goes where a zero goes, at every split."""
    return all(node.missing_left == (node.threshold >= 0.0) for tree in trees for node in nodes(tree))


def forest_refusal(formula: Formula, file: str, kept: Collection[int] = ()) -> str | None:
    """Why a file of plain splits cannot hold a formula; None: it can.

    Args:
        formula: a formula that is no linear function, or one that the file has to hold as trees.
        file: what holds it, as in "a model of Solr".
        kept: features whose sets of categories it can hold as they are.
    """
    forest = formula.forest
    if forest is None:
        return not_trees(formula, file)
    deepest = max((tree.depth for tree in forest.trees), default=0)
    if deepest > DEEPEST:
        limit = "extra={'max_depth': 60}"
        return f"a tree is {deepest} splits deep, and parsers of nested files give up. Train with {limit}."
    if (reason := _category_refusal(formula, forest, file, kept)) is not None:
        return reason
    plain = numbered_forest(formula, kept)
    if plain is None:
        return (
            f"it splits by sets of categories, and {file} compares numbers alone; written as thresholds, its "
            f"{len(forest.values):,} leaves become more than {most_leaves(forest):,}, or a tree more than {DEEPEST} "
            f"splits deep. {_REMEDY} Or train with smaller sets, extra={{'max_cat_threshold': 4}}, or with a number "
            "of your own in the place of the category."
        )
    return _growth_refusal(plain, file, _REMEDY)


def _category_refusal(formula: Formula, forest: Forest, file: str, kept: Collection[int]) -> str | None:
    """Why the categories of trees have no numbers that a file could ask for."""
    of_table = table_categories(formula)
    for tree in forest.trees:
        for feature, wanted in zip(tree.feature.tolist(), tree.categories, strict=True):
            name = formula.features[feature]
            if feature in kept:
                continue
            if wanted is None and feature in of_table:
                return (
                    f"a split takes the category '{name}' for a number, and {file} is given other numbers for its "
                    f"levels. {_REMEDY}"
                )
            if wanted is not None and feature not in of_table and wanted.max(initial=0) >= _MOST_CODES:
                return (
                    f"it asks for category {int(wanted.max()):,} of '{name}', and {file} holds whole numbers up to "
                    f"{_MOST_CODES:,}. {_REMEDY}"
                )
    return None


def filled_in(formula: Formula) -> str:
    """What to train on where a program takes missing values for 0."""
    of_table = table_categories(formula)
    by_code = formula.forest is not None and not formula.forest.categories <= of_table
    numbered = " and whose categories are numbered from 1 on" if by_code else ""
    return f"on data whose missing values are filled in{numbered}"


def not_trees(formula: Formula, file: str) -> str:
    """Why a formula that is no forest with one output is none."""
    part, remedy = formula.part, _REMEDY
    if isinstance(part, Wide) and part.means:
        return (
            f"it looks up the mean of each level of a category in a table, and {file} has no tables. {remedy} Or train "
            "with level_means=False."
        )
    if isinstance(part, Wide):
        return (
            f"it sees each category as columns of 0 and 1, one for a level, and {file} has one for a feature. {remedy}"
        )
    if formula.linear is not None:
        return f"it is a linear function, and {file} holds trees. Export it to json, onnx, c or python."
    if isinstance(part, GradeGains | Forest):
        return f"its score comes from the probabilities of several grades, and {file} has one sum. {remedy}"
    if isinstance(part, Network):
        return f"it is a neural network, and {file} holds trees or a linear function. {remedy}"
    if isinstance(part, LinearFunction):
        return f"it is a linear function with several outputs, and {file} has one. {remedy}"
    assert isinstance(part, Blend)
    return (
        f"it is a blend of rankers of different kinds, and {file} holds one kind alone. {remedy} Or export one of its "
        "members, ranker.rankers_[0]."
    )


def _growth_refusal(forest: Forest, file: str, remedy: str) -> str | None:
    """Zeros that go with the missing values double what is below them; refuse where that is no longer reasonable."""
    if all((tree.missing != MISSING_ZERO).all() for tree in forest.trees):
        return None
    before = sum(len(tree.values) for tree in forest.trees)
    after = sum(_grown(tree, {}) for tree in plain_trees(forest))
    if after <= GROWTH * before:
        return None
    return (
        f"it was trained with zero_as_missing, and {file} has no such split; written with plain ones, its {before:,} "
        f"leaves become {after:,}. {remedy} Or train without zero_as_missing."
    )


def _grown(tree: Node, known: dict[int, int]) -> int:
    """How many leaves a tree has when it is written, without walking what occurs twice twice."""
    if not isinstance(tree, Split):
        return 1
    if id(tree) not in known:
        known[id(tree)] = _grown(tree.left, known) + _grown(tree.right, known)
    return known[id(tree)]


def single_text(value: float | np.floating) -> str:
    """A number as text that gives the same single precision number by way of a double and without.

    >>> single_text(0.1), single_text(1.0)
    ('0.1', '1.0')
    """
    kept = np.float32(value)
    short = str(kept)
    return short if np.float32(float(short)) == kept else repr(float(kept))


def least_above(threshold: float) -> np.float32:
    """L, for engines that ask x < L; the largest number of all where nothing lies above.

    >>> float(least_above(1e300)) == LARGEST_SINGLE
    True
    """
    return np.float32(min(float(next_single(threshold)), LARGEST_SINGLE))
