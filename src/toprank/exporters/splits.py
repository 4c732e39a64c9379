"""Trees as search engines represent them: a feature is at most a threshold, above it, or missing.

LightGBM has more rules: it treats values within ±1e-35 as zero, and a node can send zeros in the direction of missing
values. Thresholds alone express all of these exactly, with additional nodes if one is not enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from toprank.exporters.code_ranges import MAX_DEPTH, MAX_LEAF_GROWTH, max_leaves
from toprank.exporters.float32 import MAX_EXACT_INTEGER
from toprank.exporters.formats import OTHER_FORMATS
from toprank.exporters.levels import numbered_forest, table_categories
from toprank.rankers.formula import Blend, ExpandedFeatures, Formula, GradeGains, LinearFunction, Network
from toprank.rankers.trees.forest import BELOW_TINY, MISSING_ZERO, TINY, Forest, Tree


class Split(NamedTuple):
    """A node: rows with x <= threshold go left, others right; missing values go left if `missing_left`.

    Attributes:
        codes: Categories that go left, all others go right; None for a split by threshold.
    """

    feature: int
    threshold: float
    missing_left: bool
    left: Node
    right: Node
    codes: tuple[int, ...] | None = None


Node = Split | float
"""A split, or the value of a leaf."""


def plain_trees(forest: Forest) -> list[Node]:
    """Return the trees of a forest with one output; a nonzero intercept becomes a last tree with one leaf."""
    trees = [_plain(tree) for tree in forest.unflushed().trees]
    intercept = float(forest.intercepts[0])
    return [*trees, intercept] if intercept or not trees else trees


def numbered_trees(formula: Formula) -> list[Node]:
    """Return the trees of a formula that plain splits can express, with a number for each level of a category."""
    forest = numbered_forest(formula)
    assert forest is not None
    return plain_trees(forest)


def _plain(tree: Tree) -> Node:
    plain: dict[int, Node] = {-1 - leaf: float(value) for leaf, value in enumerate(tree.values)}
    nan_left = tree.nan_left
    for node in reversed(_from_the_root(tree)):
        sides = plain[int(tree.left[node])], plain[int(tree.right[node])]
        feature, threshold, missing_left = int(tree.feature[node]), float(tree.threshold[node]), bool(nan_left[node])
        categories = tree.categories[node]
        if categories is not None:
            plain[node] = Split(feature, 0.0, False, *sides, tuple(map(int, categories)))
        elif tree.missing[node] == MISSING_ZERO:
            plain[node] = _with_zeros(feature, threshold, missing_left, *sides)
        else:
            plain[node] = Split(feature, threshold, missing_left, *sides)
    return plain[0] if len(tree.feature) else plain[-1]


def _from_the_root(tree: Tree) -> list[int]:
    """Return the inner nodes, parents first."""
    inner = [0] if len(tree.feature) else []
    for node in inner:
        inner.extend(int(child) for child in (tree.left[node], tree.right[node]) if child >= 0)
    return inner


def _with_zeros(feature: int, threshold: float, default_left: bool, left: Node, right: Node) -> Node:
    """Return a node that sends zeros and missing values to its default side, whatever its threshold implies for zero.

    Each of its nodes sends missing values in the direction of zero, so that engines without missing values agree.
    """
    if BELOW_TINY <= threshold <= TINY:  # the sign alone decides for all other values
        return Split(feature, TINY if default_left else BELOW_TINY, default_left, left, right)
    inner = Split(feature, threshold, threshold >= 0.0, left, right)
    if (threshold >= 0.0) == default_left:
        return inner
    if default_left:  # zeros are above the threshold, but go left
        return Split(feature, BELOW_TINY, False, inner, Split(feature, TINY, True, left, right))
    return Split(feature, TINY, True, Split(feature, BELOW_TINY, False, left, right), inner)


def nodes(tree: Node) -> Iterator[Split]:
    """Yield every split of a tree, as often as it occurs."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        if isinstance(node, Split):
            yield node
            ahead.extend((node.right, node.left))


def missing_is_zero(trees: list[Node]) -> bool:
    """Return whether every split sends missing values in the direction of zero."""
    return all(node.missing_left == (node.threshold >= 0.0) for tree in trees for node in nodes(tree))


def unsupported_forest_reason(formula: Formula, file: str, kept: Collection[int] = ()) -> str | None:
    """Return the reason why a file of plain splits cannot represent a formula; None if it can.

    Args:
        formula: the formula to represent as trees.
        file: name of the file in the sentence, such as "a model of Solr".
        kept: features whose category sets the file can represent directly.
    """
    forest = formula.forest
    if forest is None:
        return not_trees(formula, file)
    deepest = max((tree.depth for tree in forest.trees), default=0)
    if deepest > MAX_DEPTH:
        limit = "lightgbm_params={'max_depth': 60}"
        return f"a tree is {deepest} splits deep, too deep for parsers of nested files. Train with {limit}."
    if (reason := _unsupported_categories_reason(formula, forest, file, kept)) is not None:
        return reason
    plain = numbered_forest(formula, kept)
    if plain is None:
        return (
            f"it splits by sets of categories, and {file} can only compare numbers; written as thresholds, its "
            f"{len(forest.values):,} leaves become more than {max_leaves(forest):,}, or a tree more than {MAX_DEPTH} "
            f"splits deep. {OTHER_FORMATS}. Or train with smaller sets, lightgbm_params={{'max_cat_threshold': 4}}, "
            "or replace the category with a number."
        )
    return _excessive_growth_reason(plain, file)


def _unsupported_categories_reason(formula: Formula, forest: Forest, file: str, kept: Collection[int]) -> str | None:
    """Return the reason if the categories of the trees have no numbers that a file could compare."""
    of_table = table_categories(formula)
    for feature, categories in forest.features_and_sets():
        name = formula.features[feature]
        if feature in kept:
            continue
        if categories is None and feature in of_table:
            return (
                f"a split treats the category '{name}' as a number, and {file} uses other numbers for its levels. "
                f"{OTHER_FORMATS}."
            )
        if categories is not None and feature not in of_table and categories.max(initial=0) >= MAX_EXACT_INTEGER:
            return (
                f"it splits by category {int(categories.max()):,} of '{name}', and {file} represents integers up to "
                f"{MAX_EXACT_INTEGER:,}. {OTHER_FORMATS}."
            )
    return None


def filled_in(formula: Formula) -> str:
    """Describe the data to train on if a program treats missing values as 0."""
    of_table = table_categories(formula)
    by_code = formula.forest is not None and not formula.forest.categories <= of_table
    numbered = " and whose categories are numbered from 1 on" if by_code else ""
    return f"on data whose missing values are filled in{numbered}"


def not_trees(formula: Formula, file: str) -> str:
    """Return the reason why a formula is not a forest with one output."""
    part, remedy = formula.part, f"{OTHER_FORMATS}."
    if isinstance(part, ExpandedFeatures) and part.means:
        return (
            f"it uses target encoding, a table of means per level, and {file} has no tables. {remedy} Or train with "
            "target_encoding=False."
        )
    if isinstance(part, ExpandedFeatures):
        return (
            f"it expands each category into columns of 0 and 1, one for each level, and {file} has one column for a "
            f"feature. {remedy}"
        )
    if formula.linear is not None:
        return f"it is a linear function, and {file} holds trees. Export it to json, onnx, c or python."
    if isinstance(part, GradeGains | Forest):
        return f"its score is computed from the probabilities of several grades, and {file} has a single sum. {remedy}"
    if isinstance(part, Network):
        return f"it is a neural network, and {file} holds trees or a linear function. {remedy}"
    if isinstance(part, LinearFunction):
        return f"it is a linear function with several outputs, and {file} has one. {remedy}"
    assert isinstance(part, Blend)
    return (
        f"it is a blend of rankers of different kinds, and {file} holds one kind only. {remedy} Or export one of its "
        "members, ranker.rankers_[0]."
    )


def _excessive_growth_reason(forest: Forest, file: str) -> str | None:
    """Return a reason if trees grow too much: a split that sends zeros with missing values doubles its subtrees."""
    if all((tree.missing != MISSING_ZERO).all() for tree in forest.trees):
        return None
    before = sum(len(tree.values) for tree in forest.trees)
    after = sum(_grown(tree, {}) for tree in plain_trees(forest))
    if after <= MAX_LEAF_GROWTH * before:
        return None
    return (
        f"it was trained with zero_as_missing, and {file} has no such split; written with plain splits, its "
        f"{before:,} leaves become {after:,}. {OTHER_FORMATS}. Or train without zero_as_missing."
    )


def _grown(tree: Node, counted: dict[int, int]) -> int:
    """Count the leaves of a tree as written; a part that occurs several times is visited once."""
    if not isinstance(tree, Split):
        return 1
    if id(tree) not in counted:
        counted[id(tree)] = _grown(tree.left, counted) + _grown(tree.right, counted)
    return counted[id(tree)]
