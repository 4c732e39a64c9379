"""Files for RankLib: LambdaMART's XML for trees, the line of its linear regression for linear functions.

RankLib numbers its features, stores them in single precision, tests x <= threshold, and treats missing values as 0.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.exporters.float32 import single_below, single_text
from toprank.exporters.formats import Format, PreparedModel, table_remarks
from toprank.exporters.interpreters import ranklib
from toprank.exporters.levels import LevelNumbers
from toprank.exporters.splits import Node, Split, filled_in, missing_is_zero, numbered_trees, unsupported_forest_reason
from toprank.rankers.formula import Formula


def _refuses(formula: Formula, _server: str | None) -> str | None:
    if formula.linear is not None:
        return None
    if (reason := unsupported_forest_reason(formula, "a file of RankLib")) is not None:
        return reason
    if not missing_is_zero(numbered_trees(formula)):
        return (
            f"its splits send missing values left and right, but RankLib treats them as 0. Train {filled_in(formula)}."
        )
    return None


def _text(formula: Formula) -> str:
    if (linear := formula.linear) is not None:
        pairs = [f"{number}:{weight!r}" for number, weight in enumerate(linear.weights[0].tolist(), start=1)]
        weights = " ".join([f"0:{linear.intercepts[0].item()!r}", *pairs])
        return f"## Linear Regression\n## Lambda = 0.0\n{weights}"
    trees = numbered_trees(formula)
    lines = ["## LambdaMART", f"## No. of trees = {len(trees)}", "", "<ensemble>"]
    lines += [
        f'<tree id="{n}" weight="1.0"><split>{_tree(tree)}</split></tree>' for n, tree in enumerate(trees, start=1)
    ]
    return "\n".join([*lines, "</ensemble>", ""])


def _tree(tree: Node) -> str:
    if not isinstance(tree, Split):
        return f"<output>{single_text(tree)}</output>"
    threshold = single_text(float(single_below(tree.threshold)))
    return (
        f"<feature>{tree.feature + 1}</feature><threshold>{threshold}</threshold>"
        f'<split pos="left">{_tree(tree.left)}</split><split pos="right">{_tree(tree.right)}</split>'
    )


def _scores(levels: LevelNumbers, path: Path, X: FloatArray, _features: tuple[str, ...]) -> FloatArray:
    return ranklib.score(path.read_text(encoding="utf-8"), levels.numbered(X))


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> PreparedModel:
    last, linear = formula.n_features, formula.linear
    levels = LevelNumbers.of(formula)
    fills = linear is not None and bool(linear.missing.any())
    remarks = [
        f"RankLib numbers features: 1 is '{formula.features[0]}', {last} is '{formula.features[-1]}'.",
        *table_remarks(formula, category=None),
        *levels.remarks(formula.name),
    ]
    if fills:
        remarks.append("RankLib treats a missing value as 0, but the model as its mean: fill in means first.")
    return PreparedModel(
        formula=formula,
        files={"": _text(formula).encode(), **levels.files},
        score=partial(_scores, levels),
        interpreter="the rules of RankLib",
        remarks=tuple(remarks),
        excluded=frozenset({"missing"}) if fills else frozenset(),
        single=True,
        texts=bool(levels),
    )


FORMATS = [
    Format(
        name="ranklib",
        title="RankLib: LambdaMART's XML, or the line of a linear regression",
        suffix=".txt",
        writer=_prepare,
        support_check=_refuses,
    )
]
