"""Trees in XGBoost's JSON, in single precision, with thresholds that make the same decisions as LightGBM's.

XGBoost goes left if x < L, so L is the next single-precision number above the threshold. Its predictor assumes that the
right child of a node follows the left one. The categories listed at a node go right and all others left, so the
children of such a node are swapped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.exporters.float32 import LARGEST_SINGLE, MAX_EXACT_INTEGER, upper_single
from toprank.exporters.formats import (
    OTHER_FORMATS,
    Format,
    PreparedModel,
    name_remarks,
    renamed,
    table_remarks,
    unsupported_names_reason,
)
from toprank.exporters.interpreters import xgboost
from toprank.exporters.splits import Node, Split, plain_trees, unsupported_forest_reason
from toprank.lazy_imports import installed
from toprank.rankers.formula import Formula
from toprank.rankers.trees.forest import Forest

_MARKS = r"[\[\]<\x00-\x1f\x7f]"
_NO_PARENT = 2147483647
_VERSION = [2, 0, 0]  # the oldest version with this format; later ones read it


def _text(formula: Formula, forest: Forest) -> bytes:
    trees = [_tree(number, _as_xgboost(node), formula.n_features) for number, node in enumerate(plain_trees(forest))]
    model = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": list(range(len(trees) + 1)),
        "tree_info": [0] * len(trees),
        "trees": trees,
    }
    learner = {
        "attributes": {},
        "feature_names": renamed(formula.features, _MARKS),
        "feature_types": _types(forest),
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {
            "base_score": "0E0",
            "boost_from_average": "1",
            "num_class": "0",
            "num_feature": str(formula.n_features),
            "num_target": "1",
        },
        "objective": {"name": "rank:pairwise", "lambdarank_param": {}},
    }
    return json.dumps({"learner": learner, "version": _VERSION}, ensure_ascii=False, allow_nan=False).encode()


def _types(forest: Forest) -> list[str]:
    """Return ``c`` for features with splits by categories, else ``float``."""
    return ["c" if feature in forest.categories else "float" for feature in range(forest.n_features)]


def _as_xgboost(node: Node) -> Node:
    """Return the node in XGBoost's terms: children of category splits swapped, and only thresholds that JSON can
    represent.

    A threshold above all numbers becomes one below all, with the children swapped.
    """
    if not isinstance(node, Split):
        return node
    left, right = _as_xgboost(node.left), _as_xgboost(node.right)
    if node.codes is not None:
        return node._replace(left=right, right=left, missing_left=True)
    if node.threshold < LARGEST_SINGLE:
        return node._replace(left=left, right=right)
    return Split(node.feature, -np.inf, not node.missing_left, right, left)


def _tree(number: int, root: Node, n_features: int) -> dict[str, Any]:
    """Return the columns of a tree: nodes level by level, so that both children of a node are neighbors."""
    nodes, parents, left = [root], [_NO_PARENT], []
    for place, node in enumerate(nodes):
        left.append(len(nodes) if isinstance(node, Split) else -1)
        if isinstance(node, Split):
            nodes += [node.left, node.right]
            parents += [place, place]
    n = len(nodes)
    splits = [node if isinstance(node, Split) else None for node in nodes]
    sets = {place: split.codes for place, split in enumerate(splits) if split and split.codes is not None}
    sizes = [len(codes) for codes in sets.values()]
    categories = {
        "categories": [code for codes in sets.values() for code in codes],
        "categories_nodes": list(sets),
        "categories_segments": [sum(sizes[:number]) for number in range(len(sizes))],
        "categories_sizes": sizes,
    }
    values = [float(upper_single(node.threshold) if isinstance(node, Split) else np.float32(node)) for node in nodes]
    return {
        "base_weights": [0.0 if split else value for split, value in zip(splits, values, strict=True)],
        **categories,
        "default_left": [int(split is not None and split.missing_left) for split in splits],
        "id": number,
        "left_children": left,
        "loss_changes": [0.0] * n,
        "parents": parents,
        "right_children": [child + 1 if child >= 0 else -1 for child in left],
        "split_conditions": values,
        "split_indices": [0 if split is None else split.feature for split in splits],
        "split_type": [int(split is not None and split.codes is not None) for split in splits],
        "sum_hessian": [0.0] * n,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(n_features),
            "num_nodes": str(n),
            "size_leaf_vector": "1",
        },
    }


def _refuses(formula: Formula, _server: str | None) -> str | None:
    clash = unsupported_names_reason(formula.features, _MARKS, "XGBoost", "'[', ']', '<' and control characters")
    return (
        clash
        or unsupported_forest_reason(formula, "XGBoost's file", range(formula.n_features))
        or _refuses_categories(formula)
    )


def _refuses_categories(formula: Formula) -> str | None:
    assert formula.forest is not None
    numbers = {feature for feature, categories in formula.forest.features_and_sets() if categories is None}
    largest = max((int(np.max(sets)) for _, sets in formula.forest.features_and_sets() if sets is not None), default=0)
    if largest >= MAX_EXACT_INTEGER:
        return (
            f"XGBoost supports categories below {MAX_EXACT_INTEGER:,}, and this model uses {largest}. {OTHER_FORMATS}."
        )
    if both := sorted(numbers & set(formula.forest.categories)):
        name = formula.features[both[0]]
        return (
            f"some splits treat '{name}' as a category and some as a number, but in XGBoost a feature must be one of "
            f"the two. {OTHER_FORMATS}."
        )
    return None


# ---- scoring ----


def _scores(path: Path, X: FloatArray, features: tuple[str, ...]) -> FloatArray:
    library = installed("xgboost")
    if library is None:
        return xgboost.score(path.read_text(encoding="utf-8"), X)
    with np.errstate(over="ignore"):
        if np.isinf(X.astype(np.float32)).any():
            raise DataError(
                "XGBoost supports no values beyond single precision, but the data to check on contain some."
            )
    booster = library.Booster(params={"nthread": 1}, model_file=str(path))
    rows = library.DMatrix(
        X.astype(np.float32),
        feature_names=renamed(features, _MARKS),
        feature_types=booster.feature_types,
        enable_categorical=True,
    )
    return np.asarray(booster.predict(rows, output_margin=True))


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> PreparedModel:
    assert formula.forest is not None
    library = installed("xgboost")
    return PreparedModel(
        formula=formula,
        files={"": _text(formula, formula.forest)},
        score=_scores,
        interpreter="the rules of XGBoost's predictor" if library is None else f"XGBoost {library.__version__}",
        remarks=(*name_remarks(formula.features, _MARKS, "XGBoost"), *_category_remarks(formula)),
        excluded=frozenset({"negative"} if formula.forest.by_category else ()),
        single=True,
    )


def _category_remarks(formula: Formula) -> tuple[str, ...]:
    if not formula.forest or not formula.forest.by_category:
        return table_remarks(formula)
    return (
        *table_remarks(formula),
        "Features of the type 'c' contain category codes: pass feature_types=booster.feature_types and "
        "enable_categorical=True to DMatrix. A number between -1 and 0 is not a category there, but category 0 here.",
    )


FORMATS = [Format(name="xgboost", title="XGBoost's JSON", suffix=".json", writer=_prepare, support_check=_refuses)]
