"""Trees in LightGBM's own text, with the names of the features: for LightGBM, and for all who read its models."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.exporting.formats import Format, Prepared, name_refusal, name_remarks, renamed
from toprank.exporting.splits import not_trees
from toprank.rankers.formula import Forest, Formula, Tree
from toprank.rankers.trees.text import Fields, ReadTrees, written_trees

__all__ = ["FORMATS"]

_MARKS = r'[\s",:\[\]{}\x00-\x1f\x7f]'


def _text(formula: Formula, forest: Forest) -> bytes:
    trees = [_fields(tree) for tree in forest.trees]
    if forest.intercepts[0] or not trees:
        trees.append(_fields(_leaf(float(forest.intercepts[0]))))
    text = written_trees(ReadTrees(1, None, None, ["none"] * formula.n_features, trees))
    names = " ".join(renamed(formula.features, _MARKS))
    return re.sub("(?m)^feature_names=.*$", lambda _: f"feature_names={names}", text, count=1).encode()


def _leaf(value: float) -> Tree:
    none = np.zeros(0, dtype=np.int64)
    return Tree(none, np.zeros(0), none == 1, none, (), none, none, np.array([value]))


def _fields(tree: Tree) -> Fields:
    """The lines of a tree; how many training documents each node had is written as 0 where it is not known."""
    nodes, leaves = len(tree.feature), len(tree.values)
    sets = [(node, wanted) for node, wanted in enumerate(tree.categories) if wanted is not None]
    by_category = np.zeros(nodes, dtype=np.int64)
    threshold, words = tree.threshold.copy(), []
    for number, (node, wanted) in enumerate(sets):
        by_category[node], threshold[node] = 1, number
        packed = np.zeros(int(wanted.max(initial=0)) // 32 + 1, dtype=np.int64)
        np.bitwise_or.at(packed, wanted // 32, np.int64(1) << (wanted % 32))
        words.append(packed)
    fields: Fields = {
        "num_leaves": np.array([leaves]),
        "num_cat": np.array([len(sets)]),
        "split_feature": tree.feature,
        "split_gain": np.zeros(nodes) if tree.gains is None else tree.gains,
        "threshold": threshold,
        "decision_type": by_category + 2 * tree.default_left.astype(np.int64) + 4 * tree.missing,
        "left_child": tree.left,
        "right_child": tree.right,
        "leaf_value": tree.values,
        "leaf_weight": np.zeros(leaves if nodes else 0),
        "leaf_count": np.zeros(leaves, dtype=np.int64),
        "internal_value": np.zeros(nodes),
        "internal_weight": np.zeros(nodes),
        "internal_count": np.zeros(nodes, dtype=np.int64),
        "is_linear": np.array([0]),
        "shrinkage": np.array([1.0]),
    }
    if sets:
        fields["cat_boundaries"] = np.concatenate([[0], np.cumsum([len(packed) for packed in words])])
        fields["cat_threshold"] = np.concatenate(words)
    return fields


def _refuses(formula: Formula, _server: str | None) -> str | None:
    clash = name_refusal(
        formula.features, _MARKS, "LightGBM", "blanks, control characters, quotes, commas, colons and brackets"
    )
    return clash or (None if formula.forest is not None else not_trees(formula, "LightGBM's file"))


def _scores(path: Path, X: FloatArray, _features: tuple[str, ...]) -> FloatArray:
    import lightgbm

    return np.asarray(lightgbm.Booster(model_file=str(path)).predict(X, raw_score=True, num_threads=1))


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> Prepared:
    import lightgbm

    forest = formula.forest
    assert forest is not None
    return Prepared(
        formula=formula,
        files={"": _text(formula, forest)},
        score=_scores,
        interpreter=f"LightGBM {lightgbm.__version__}",
        remarks=name_remarks(formula.features, _MARKS, "LightGBM"),
        # LightGBM takes values within ±1e-35 of zero for zero, whatever the model does
        excluded=frozenset() if forest.flushes else frozenset({"tiny"}),
    )


FORMATS = [
    Format(
        name="lightgbm",
        title="LightGBM's text, which many other programs read",
        suffix=".txt",
        prepare=_prepare,
        refuses=_refuses,
    )
]
