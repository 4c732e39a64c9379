"""Reader of XGBoost's JSON and UBJ, as written by `save_model`.

XGBoost rounds features to single precision and tests x < t, which is x <= t' for these, with t' the next smaller
number. Missing values go in the direction stored in each node. The sum starts at the base score and is rounded to
single precision after each tree, so scores equal `predict(..., output_margin=True)` of XGBoost's estimators in all
bits. (For DART, `Booster.predict` adds in another order than the estimators, and differs from them in the last digit.)
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import IntArray
from toprank.data.encoding import Encoding, UnknownCategoriesWarning
from toprank.errors import DataError, refuse_if, warn_user
from toprank.rankers.foreign import building, ubj
from toprank.rankers.foreign.building import (
    NAN_LEFT,
    NAN_RIGHT,
    RawNodes,
    as_object,
    count_in,
    nested_value,
    numbers,
    whole,
)
from toprank.rankers.foreign.ranker import ForestRanker
from toprank.rankers.trees.forest import Tree, words_of

_IDENTITY = {
    "reg:squarederror", "reg:linear", "reg:squaredlogerror", "reg:absoluteerror", "reg:pseudohubererror",
    "reg:quantileerror", "reg:expectileerror", "binary:hinge", "binary:logitraw",
}  # fmt: skip
_LOGISTIC = {"binary:logistic", "reg:logistic"}
_LOGARITHM = {"count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft"}
_ALL_CATEGORIES = 1 << 24
_MAX_WORDS = 1 << 20  # in all category sets, for 32 categories each, since a short file may name a large category


def read_binary(content: bytes) -> ForestRanker:
    """Build a ranker from UBJ."""
    return read(ubj.decode(content))


def read(model: Any) -> ForestRanker:
    """Build a ranker from a parsed model."""
    learner = as_object(nested_value(model, "learner"), "learner")
    parameters = as_object(learner.get("learner_model_param"), "learner_model_param")
    refuse_if(
        (classes := count_in(parameters, "num_class", 0)) > 1,
        f"it predicts {classes} numbers for each row (classes), not one score",
    )
    refuse_if((targets := count_in(parameters, "num_target", 1)) > 1, f"it has {targets} targets, not one score")
    features = building.feature_count(count_in(parameters, "num_feature"))
    objective = nested_value(learner, "objective", "name")
    base = _margin(str(objective), _base_score(parameters))
    booster = as_object(learner.get("gradient_booster"), "gradient_booster")
    model_part, weights = _booster(booster)
    taken_away = base if booster.get("name") == "dart" else np.float32(0)
    described = model_part.get("trees")
    if not isinstance(described, list):
        raise DataError("trees is missing or not a list")
    _check_counts(model_part, described)
    kept = _kept(learner, model_part, len(described))
    trees, room = [Tree.constant(float(base))], _MAX_WORDS
    for number, tree_object in enumerate(described[:kept]):
        tree = _tree(number, as_object(tree_object, f"tree number {number}"), features)
        room -= sum(words_of(categories) for categories in tree.categories if categories is not None)
        refuse_if(room < 0, "its sets of categories are too large")
        trees.append(tree if weights is None else _weighted(tree, weights[number], taken_away))
    names = _names(learner.get("feature_names"), features)
    encoding = None if names is None else _categories(model_part.get("cats"), names)
    facts = {"library": f"XGBoost {_version(nested_value(model, 'version'))}", "objective": str(objective)}
    forest = building.forest(trees, features)
    return ForestRanker.from_forest("XGBoost", forest, sums="single", names=names, encoding=encoding, facts=facts)


def _check_counts(model: dict[str, Any], trees: list[Any]) -> None:
    """Refuse trees whose number or order differs from the stated one, as XGBoost does."""
    announced = count_in(as_object(model.get("gbtree_model_param"), "gbtree_model_param"), "num_trees")
    refuse_if(announced != len(trees), f"its num_trees states {announced:,} trees, but it contains {len(trees):,}")
    refuse_if(
        len(whole(model.get("tree_info"), "tree_info")) != len(trees),
        "its tree_info does not have an entry for each tree",
    )
    if (ends := model.get("iteration_indptr")) is not None:
        rounds = whole(ends, "iteration_indptr")
        refuse_if(
            not len(rounds) or rounds[0] != 0 or rounds[-1] != len(trees) or (np.diff(rounds) < 0).any(),
            "its iteration_indptr does not divide its trees into rounds",
        )
    for number, described in enumerate(trees):
        place = nested_value(described, "id")  # an array, if a damaged UBJ file stores several numbers
        refuse_if(
            isinstance(place, np.ndarray) or place != number,
            f"tree number {number} (from 0) has the id {str(place)[:40]}",
        )


def _version(version: Any) -> str:
    plain = isinstance(version, list | np.ndarray) and len(version) <= 4
    return ".".join(str(part)[:8] for part in version) if plain else "of an unknown version"


def _names(names: Any, features: int) -> list[str] | None:
    if names is None or (isinstance(names, list) and not names):
        return None
    if not isinstance(names, list) or len(names) != features or not all(isinstance(name, str) for name in names):
        raise DataError("the number of its feature names does not match its number of features")
    return names


def _categories(categories: Any, names: list[str]) -> Encoding | None:
    """Return the category levels of XGBoost's training frame: numbers, or the bytes of strings."""
    columns = nested_value(categories, "enc")
    if not isinstance(columns, list) or not columns:
        return None
    levels: dict[int, Any] = {}
    for place, column in enumerate(columns):
        if nested_value(column, "offsets") is None:
            levels[place] = [float(value) if value != int(value) else int(value) for value in _finite(column)]
        elif len(ends := whole(nested_value(column, "offsets"), "offsets")):
            values = whole(nested_value(column, "values"), "values")
            if ((values < 0) | (values > 127)).any() and (np.abs(values) < 256).all():
                _tell_lost_levels(names[place] if place < len(names) else "")
                return None
            try:
                text = bytes(values.tolist())
                levels[place] = [text[a:b].decode() for a, b in pairwise(ends.tolist())]
            except ValueError:
                raise DataError("the levels of its categories are damaged") from None
    return building.encoding(names, levels) if levels else None


def _tell_lost_levels(name: str) -> None:
    """Warn that levels are unknown.

    XGBoost (at least until 3.2) stores the ends of strings in characters but writes bytes, and only that many: levels
    beyond ASCII run into each other, and the last ones are lost.
    """
    warn_user(
        f"XGBoost truncated the levels of '{name}' when it wrote the file, because some are not ASCII. Pass category "
        "codes instead: the index of a level among the categories of the training frame, from 0.",
        UnknownCategoriesWarning,
    )


def _finite(column: Any) -> list[float]:
    values = numbers(nested_value(column, "values"), "values")
    refuse_if(not np.isfinite(values).all(), "the levels of its categories are damaged")
    listed: list[float] = values.tolist()
    return listed


def _base_score(parameters: dict[str, Any]) -> np.float32:
    """Return the base score, which is in brackets since XGBoost 3.1."""
    word = str(parameters.get("base_score"))
    match = re.fullmatch(r"\[?(-?\d{1,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?)\]?", word, re.ASCII)
    if match is None:
        raise DataError(f"its base_score is {word[:40]!r}, not one number")
    with np.errstate(over="ignore"):  # `_margin` refuses values that are not finite
        return np.float32(match[1])


def _margin(objective: str, base: np.float32) -> np.float32:
    """Return the base score before the objective's final function, in single precision as in XGBoost."""
    one = np.float32(1)
    with np.errstate(all="ignore"):
        if objective.startswith("rank:") or objective in _IDENTITY:
            margin = base
        elif objective in _LOGISTIC:
            margin = -_log(one / base - one)
        elif objective in _LOGARITHM:
            margin = _log(base)
        elif objective.startswith("multi:"):
            raise DataError(f"its objective {objective} predicts a number for each class, not one score")
        else:
            raise DataError(f"its objective {objective[:40]!r} is unknown, so the base score cannot be interpreted")
    refuse_if(not np.isfinite(margin), "its base score is not finite")
    return np.float32(margin)


def _log(value: np.float32) -> np.float32:
    """Return the logarithm, correctly rounded to single precision, which NumPy's own is not."""
    return np.float32(np.log(np.float64(value)))


def _booster(booster: dict[str, Any]) -> tuple[dict[str, Any], npt.NDArray[np.float32] | None]:
    """Return the part with the trees, and the weights of DART, which XGBoost 3.4 and later store with gbtree's
    trees.
    """
    name = str(booster.get("name"))
    if name == "gbtree":
        part = as_object(booster.get("model"), "model")
        weights = part.get("weight_drop")
    elif name == "dart":
        part = as_object(nested_value(booster, "gbtree", "model"), "model")
        weights = booster.get("weight_drop", [])
    elif name == "gblinear":
        raise DataError("its booster is gblinear, which has no trees; use a linear ranker of toprank")
    else:
        raise DataError(f"its booster {name[:40]!r} is unknown")
    trees = part.get("trees")
    if weights is None or not isinstance(trees, list):
        return part, None
    with np.errstate(over="ignore"):  # `_weighted` refuses values that are not finite
        return part, numbers(weights, "weight_drop", len(trees)).astype(np.float32)


def _kept(learner: dict[str, Any], model: dict[str, Any], count: int) -> int:
    """Return the number of trees used for prediction: all, or up to the best round, as in XGBRanker.predict."""
    best = as_object(learner.get("attributes"), "attributes").get("best_iteration")
    if best is None:
        return count
    rounds = count_in({"best_iteration": best}, "best_iteration") + 1
    ends = model.get("iteration_indptr")
    if ends is not None:
        starts = whole(ends, "iteration_indptr")
        kept = int(starts[rounds]) if rounds < len(starts) else count
    else:
        kept = rounds * max(
            1, count_in(as_object(model.get("gbtree_model_param"), "gbtree_model_param"), "num_parallel_tree", 1)
        )
    refuse_if(not 0 < kept <= count, f"its best round is {rounds}, which has no tree")
    return kept


def _tree(number: int, described: dict[str, Any], features: int) -> Tree:
    parameters = as_object(described.get("tree_param"), "tree_param")
    refuse_if(
        count_in(parameters, "size_leaf_vector", 1) > 1,
        f"tree number {number} (from 0) predicts several numbers for each row",
    )
    left = whole(described.get("left_children"), "left_children")
    count = len(left)
    refuse_if(
        (announced := count_in(parameters, "num_nodes")) != count,
        f"tree number {number} (from 0) states {announced:,} nodes, but contains {count:,}",
    )
    for name in ("parents", "base_weights", "sum_hessian"):  # not needed for scores, but XGBoost refuses other lengths
        numbers(described.get(name), name, count)
    right = whole(described.get("right_children"), "right_children", count)
    feature = whole(described.get("split_indices"), "split_indices", count)
    condition = numbers(described.get("split_conditions"), "split_conditions", count)
    default_left = numbers(described.get("default_left"), "default_left", count) != 0
    by_category = np.zeros(count, bool)
    if len(kinds := numbers(described.get("split_type", []), "split_type")):
        by_category = (numbers(kinds, "split_type", count) == 1) & (left != -1)
    gain = described.get("loss_changes")
    with np.errstate(over="ignore"):
        single = condition.astype(np.float32)
        threshold = np.nextafter(single, np.float32(-np.inf)).astype(np.float64)
    refuse_if(
        np.isinf(single[~by_category]).any(), f"tree number {number} (from 0) contains numbers that are not finite"
    )
    # XGBoost's sets go right. In LightGBM's representation they go left, together with NaN if it went right.
    decision = np.where(by_category, np.where(default_left, 1, 3), np.where(default_left, NAN_LEFT, NAN_RIGHT))
    turned = by_category.tolist()
    pairs = list(zip(left.tolist(), right.tolist(), turned, strict=True))
    nodes = RawNodes(
        left=[b if turn else a for a, b, turn in pairs],
        right=[a if turn else b for a, b, turn in pairs],
        feature=feature,
        threshold=threshold,
        decision=decision,
        value=single.astype(np.float64),
        gain=None if gain is None else numbers(gain, "loss_changes", count),
        sets=_sets(described, by_category),
    )
    return building.tree(number, nodes, features)


def _sets(described: dict[str, Any], by_category: npt.NDArray[np.bool_]) -> dict[int, IntArray]:
    """Return the categories of each split by category."""
    wanted = set(np.flatnonzero(by_category).tolist())
    if not wanted:
        return {}
    nodes = whole(described.get("categories_nodes"), "categories_nodes").tolist()
    begins = whole(described.get("categories_segments"), "categories_segments", len(nodes)).tolist()
    sizes = whole(described.get("categories_sizes"), "categories_sizes", len(nodes)).tolist()
    categories = whole(described.get("categories"), "categories")
    if sum(sizes) > len(categories):  # segments of nodes do not overlap
        raise DataError("its categories are damaged")
    sets = {}
    for node, begin, size in zip(nodes, begins, sizes, strict=True):
        mine = categories[begin : begin + size]
        refuse_if(
            begin < 0
            or size < 0
            or len(mine) != size
            or (size and not 0 <= mine.min() <= mine.max() < _ALL_CATEGORIES),
            "its categories are damaged",
        )
        sets[node] = mine
    refuse_if(set(sets) != wanted or len(nodes) != len(wanted), "its categories do not match its splits")
    return sets


def _weighted(tree: Tree, weight: np.float32, base: np.float32) -> Tree:
    """Return DART's tree: XGBoost adds its value to the base score, subtracts that again, and multiplies, in floats.

    From 3.4 on it only multiplies: `base` is then 0.
    """
    values = tree.values.astype(np.float32)
    with np.errstate(all="ignore"):
        values = ((values + base) - base) * weight
    refuse_if(not np.isfinite(values).all(), "its tree weights are not finite")
    return replace(tree, values=values.astype(np.float64))
