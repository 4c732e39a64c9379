"""Files for Vespa: trees as a LightGBM model in JSON, rewritten so that Vespa's importer decides as LightGBM does.

The importer tests `x < t`, LightGBM `x <= t`, and a node has one direction for missing values. So a threshold is the
smallest number above LightGBM's, and the direction is the one that LightGBM takes at that node, whatever its missing
type.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.exporters.float32 import upper_single
from toprank.exporters.formats import Format, PreparedModel, compact_json, table_remarks
from toprank.exporters.interpreters import vespa
from toprank.exporters.levels import cells_of, numbered_forest, table_categories
from toprank.exporters.splits import Node, Split, nodes, plain_trees, unsupported_forest_reason
from toprank.rankers.formula import Formula

_MARGIN = 0.8  # fraction of Vespa's limits for double precision, which other versions may set differently
_LARGEST = np.finfo(np.float64).max
_MARKS = re.compile(r'["\\\x00-\x1f]')


def _trees(formula: Formula) -> list[Node]:
    """Return the trees, with the intercept added to the first: only a sum of conditions is fast in Vespa."""
    forest = numbered_forest(formula, table_categories(formula))
    assert forest is not None
    intercept = float(forest.intercepts[0])
    trees = plain_trees(replace(forest, intercepts=np.zeros(1)))
    return [_raised(trees[0], intercept), *trees[1:]] if intercept else trees


def _raised(node: Node, by: float) -> Node:
    if not isinstance(node, Split):
        return node + by
    return node._replace(left=_raised(node.left, by), right=_raised(node.right, by))


def _single(trees: list[Node]) -> bool:
    """Return whether to write thresholds that are correct in both single and double precision."""
    depths = [_depths(tree, 0) for tree in trees]
    paths, leaves = [np.mean(depth) / _MARGIN for depth in depths], [len(depth) / _MARGIN for depth in depths]
    return vespa.holds_singles(paths, leaves)


def _depths(node: Node, depth: int) -> list[int]:
    if not isinstance(node, Split):
        return [depth]
    return _depths(node.left, depth + 1) + _depths(node.right, depth + 1)


def _refuses(formula: Formula, _server: str | None) -> str | None:
    if formula.forest is None:
        if formula.levels:
            return (
                "Vespa imports trees from LightGBM's JSON, and all other models as ONNX without text inputs, which "
                "category levels need. Train trees, or replace categories with columns of 0 and 1."
            )
        return "Vespa imports trees from LightGBM's JSON, and all other models as ONNX. Export it to onnx."
    if (
        reason := unsupported_forest_reason(formula, "Vespa's importer of trees", table_categories(formula))
    ) is not None:
        return reason
    if (reason := _unsupported_categories_reason(formula)) is not None:
        return reason
    used = {node.feature for tree in _trees(formula) for node in nodes(tree)}
    wrong = [formula.features[column] for column in sorted(used) if not vespa.is_rank_feature(formula.features[column])]
    if wrong:
        return (
            f"'{wrong[0]}' can be no name in a ranking expression, and Vespa uses feature names as they are. Name the "
            "features as Vespa does (attribute(price), bm25(title)) or as functions of the profile (title_length)."
        )
    return None


def _unsupported_categories_reason(formula: Formula) -> str | None:
    """Return the reason why Vespa cannot compare the levels of a category by name."""
    remedy = "Export it to c or python"
    for name, levels in formula.levels.items():
        if marked := [level for level in levels if _MARKS.search(level)]:
            return (
                f"the level {marked[0]!r} of '{name}' contains a quote or a backslash, which Vespa's importer cannot "
                f"write in a ranking expression. {remedy}, or rename it before training."
            )
    of_table = table_categories(formula)
    for node in (node for tree in _trees(formula) for node in nodes(tree)):
        if node.codes is None and node.feature in of_table:
            name = formula.features[node.feature]
            return f"a split treats the category '{name}' as a number, but Vespa passes its levels. {remedy}."
    return None


def _text(formula: Formula, trees: list[Node], single: bool) -> str:
    written = ",".join(
        f'{{"tree_index":{number},"num_leaves":{len(_depths(tree, 0))},"tree_structure":{_tree(tree, single)}}}'
        for number, tree in enumerate(trees)
    )
    head: dict[str, Any] = {
        "name": "tree",
        "version": "v4",
        "num_class": 1,
        "num_tree_per_iteration": 1,
        "objective": "lambdarank",
    }
    # Older importers treat features with splits by sets as categories, newer ones those with values here.
    by_set = sorted({node.feature for tree in trees for node in nodes(tree) if node.codes is not None})
    levels = {formula.features[column]: formula.levels[formula.features[column]] for column in by_set}
    head |= {
        "feature_names": list(formula.features),
        "feature_infos": {name: {"values": list(range(len(known)))} for name, known in levels.items()},
        "pandas_categorical": list(levels.values()),
    }
    return f'{compact_json(head)[:-1]},"tree_info":[{written}]}}'


def _tree(node: Node, single: bool) -> str:
    if not isinstance(node, Split):
        return f'{{"leaf_value":{node!r}}}'
    left, right = _tree(node.left, single), _tree(node.right, single)
    if node.codes is not None:
        return (
            f'{{"split_feature":{node.feature},"threshold":"{"||".join(map(str, node.codes))}","decision_type":"==",'
            f'"default_left":false,"missing_type":"NaN","left_child":{left},"right_child":{right}}}'
        )
    with np.errstate(over="ignore"):
        above = upper_single(node.threshold) if single else min(np.nextafter(node.threshold, np.inf), _LARGEST)
    return (
        f'{{"split_feature":{node.feature},"threshold":{float(above)!r},"decision_type":"<=","default_left":'
        f'{"true" if node.missing_left else "false"},"missing_type":"NaN","left_child":{left},"right_child":{right}}}'
    )


def _scores(single: bool, formula: Formula, path: Path, X: FloatArray, features: tuple[str, ...]) -> FloatArray:
    """Score rows as Vespa does; for a large model, return NaN if single and double precision differ at a split."""
    text, cells = path.read_text(encoding="utf-8"), cells_of(formula, X)
    if not single:
        return vespa.score(text, X, features, single=False, cells=cells)
    coarse, fine = (vespa.score(text, X, features, single=precision, cells=cells) for precision in (True, False))
    # Leaves are rounded to single precision, an error of 2⁻²⁴ each; the other side of a split is further away.
    return np.where(np.abs(coarse - fine) <= 1e-6 * np.maximum(1.0, np.abs(coarse)), coarse, np.nan)


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> PreparedModel:
    trees = _trees(formula)
    single = _single(trees)
    remarks = [
        f"Put the file into models/ of the application package; in a rank profile it is "
        f'lightgbm("{formula.name}.json").',
        *table_remarks(formula, category="its level, as a string attribute"),
    ]
    if not formula.named:
        remarks.append(
            f"The features have generated names ({formula.features[0]} …): define functions with these names in the "
            "profile."
        )
    if single:
        remarks.append(
            "The model is so large that Vespa may store it in single precision; its thresholds are correct in both."
        )
    return PreparedModel(
        formula=formula,
        files={"": _text(formula, trees, single).encode()},
        score=partial(_scores, single, formula),
        interpreter="the rules of Vespa's importer",
        remarks=tuple(remarks),
        single=single,
        texts=bool(formula.levels),
    )


FORMATS = [
    Format(
        name="vespa",
        title="Vespa: trees as a LightGBM model that its importer reads",
        suffix=".json",
        writer=_prepare,
        support_check=_refuses,
    )
]
