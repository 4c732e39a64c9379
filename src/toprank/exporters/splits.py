"""Trees as search engines know them: a feature is at most a threshold, or above it, or missing.

LightGBM knows more: it takes values within ±1e-35 for zero, and a node can send zeros where it sends missing values.
Thresholds alone say all of that exactly, with more nodes where one is not enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from toprank.exporters.code_ranges import DEEPEST, GROWTH, most_leaves
from toprank.exporters.float32 import MOST_WHOLE
from toprank.exporters.formats import ELSEWHERE
from toprank.exporters.levels import numbered_forest, table_categories
from toprank.rankers.formula import Blend, ExpandedFeatures, Formula, GradeGains, LinearFunction, Network
from toprank.rankers.trees.forest import BELOW_TINY, MISSING_ZERO, TINY, Forest, Tree


class Split(NamedTuple):
    """A node: left where x <= threshold, right where it is above; missing values by `missing_left`.

    Attributes:
        codes: The categories that go left, all else goes right; None for a split by threshold.
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
    """Return the trees of a forest with one output; an intercept other than 0 is a last tree of one leaf."""
    trees = [_plain(tree) for tree in forest.unflushed().trees]
    intercept = float(forest.intercepts[0])
    return [*trees, intercept] if intercept or not trees else trees


def numbered_trees(formula: Formula) -> list[Node]:
    """Return the trees of a formula that `forest_refusal` lets pass, with a number for each level of a category."""
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
    """Return the inner nodes, each after its parent."""
    inner = [0] if len(tree.feature) else []
    for node in inner:
        inner.extend(int(child) for child in (tree.left[node], tree.right[node]) if child >= 0)
    return inner


def _with_zeros(feature: int, threshold: float, default_left: bool, left: Node, right: Node) -> Node:
    """Return a node that sends zeros and missing values to its default side, whatever its threshold says of zero.

    Every node of it sends missing values where it sends a zero, so that engines without missing values agree.
    """
    if BELOW_TINY <= threshold <= TINY:  # the sign decides for all other values
        return Split(feature, TINY if default_left else BELOW_TINY, default_left, left, right)
    inner = Split(feature, threshold, threshold >= 0.0, left, right)
    if (threshold >= 0.0) == default_left:
        return inner
    if default_left:  # zeros lie above the threshold, but go left
        return Split(feature, BELOW_TINY, False, inner, Split(feature, TINY, True, left, right))
    return Split(feature, TINY, True, Split(feature, BELOW_TINY, False, left, right), inner)


def nodes(tree: Node) -> Iterator[Split]:
    """Every split of a tree, as often as it occurs."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        if isinstance(node, Split):
            yield node
            ahead.extend((node.right, node.left))


def missing_is_zero(trees: list[Node]) -> bool:
    """Whether a missing value goes where a zero goes, at every split."""
    return all(node.missing_left == (node.threshold >= 0.0) for tree in trees for node in nodes(tree))


def forest_refusal(formula: Formula, file: str, kept: Collection[int] = ()) -> str | None:
    """Say why a file of plain splits cannot hold a formula; None if it can.

    Args:
        formula: what the file has to hold as trees.
        file: what it is called in the sentence, such as "a model of Solr".
        kept: features whose sets of categories the file can hold as they are.
    """
    forest = formula.forest
    if forest is None:
        return not_trees(formula, file)
    deepest = max((tree.depth for tree in forest.trees), default=0)
    if deepest > DEEPEST:
        limit = "lightgbm_params={'max_depth': 60}"
        return f"a tree is {deepest} splits deep, and parsers of nested files give up. Train with {limit}."
    if (reason := _category_refusal(formula, forest, file, kept)) is not None:
        return reason
    plain = numbered_forest(formula, kept)
    if plain is None:
        return (
            f"it splits by sets of categories, and {file} compares numbers alone; written as thresholds, its "
            f"{len(forest.values):,} leaves become more than {most_leaves(forest):,}, or a tree more than {DEEPEST} "
            f"splits deep. {ELSEWHERE}. Or train with smaller sets, "
            "lightgbm_params={{'max_cat_threshold': 4}}, or with a number of your own in the place of the category."
        )
    return _growth_refusal(plain, file)


def _category_refusal(formula: Formula, forest: Forest, file: str, kept: Collection[int]) -> str | None:
    """Say why the categories of trees have no numbers that a file could compare."""
    of_table = table_categories(formula)
    for feature, categories in forest.features_and_sets():
        name = formula.features[feature]
        if feature in kept:
            continue
        if categories is None and feature in of_table:
            return (
                f"a split takes the category '{name}' for a number, and {file} is given other numbers for its "
                f"levels. {ELSEWHERE}."
            )
        if categories is not None and feature not in of_table and categories.max(initial=0) >= MOST_WHOLE:
            return (
                f"it asks for category {int(categories.max()):,} of '{name}', and {file} holds whole numbers up to "
                f"{MOST_WHOLE:,}. {ELSEWHERE}."
            )
    return None


def filled_in(formula: Formula) -> str:
    """Name the data to train on if a program takes missing values for 0."""
    of_table = table_categories(formula)
    by_code = formula.forest is not None and not formula.forest.categories <= of_table
    numbered = " and whose categories are numbered from 1 on" if by_code else ""
    return f"on data whose missing values are filled in{numbered}"


def not_trees(formula: Formula, file: str) -> str:
    """Say why a formula is no forest with one output."""
    part, remedy = formula.part, f"{ELSEWHERE}."
    if isinstance(part, ExpandedFeatures) and part.means:
        return (
            f"it looks up the mean of each level of a category in a table, and {file} has no tables. {remedy} Or train "
            "with target_encoding=False."
        )
    if isinstance(part, ExpandedFeatures):
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


def _growth_refusal(forest: Forest, file: str) -> str | None:
    """Refuse trees that grow too much: a split that sends zeros with the missing values doubles what is below it."""
    if all((tree.missing != MISSING_ZERO).all() for tree in forest.trees):
        return None
    before = sum(len(tree.values) for tree in forest.trees)
    after = sum(_grown(tree, {}) for tree in plain_trees(forest))
    if after <= GROWTH * before:
        return None
    return (
        f"it was trained with zero_as_missing, and {file} has no such split; written with plain ones, its {before:,} "
        f"leaves become {after:,}. {ELSEWHERE}. Or train without zero_as_missing."
    )


def _grown(tree: Node, counted: dict[int, int]) -> int:
    """Count the leaves of a tree as it is written; a part that occurs several times is walked once."""
    if not isinstance(tree, Split):
        return 1
    if id(tree) not in counted:
        counted[id(tree)] = _grown(tree.left, counted) + _grown(tree.right, counted)
    return counted[id(tree)]
