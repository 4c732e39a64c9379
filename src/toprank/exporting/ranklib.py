"""Files for RankLib: LambdaMART's XML for trees, the line of its linear regression for linear functions.

RankLib has features by number, in single precision, asks x <= threshold, and takes a missing value for 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.exporting.float32 import single_below
from toprank.exporting.formats import Format, Target, table_remarks
from toprank.exporting.interpreters import ranklib
from toprank.exporting.splits import Node, Split, forest_refusal, missing_is_zero, plain_trees, single_text
from toprank.rankers.formula import Formula

__all__ = ["FORMATS"]


def _refuses(formula: Formula, target: Target) -> str | None:
    del target
    if formula.linear is not None:
        return None
    if (reason := forest_refusal(formula, "a file of RankLib")) is not None:
        return reason
    forest = formula.forest
    assert forest is not None
    if not missing_is_zero(plain_trees(forest)):
        return (
            "its splits send missing values left and right, and RankLib takes them for 0. Train on data whose missing "
            "values are filled in."
        )
    return None


def _files(formula: Formula, target: Target) -> Mapping[str, bytes]:
    del target
    linear = formula.linear
    if linear is not None:
        pairs = [f"{number}:{weight!r}" for number, weight in enumerate(linear.weights[0].tolist(), start=1)]
        text = "\n".join(
            ["## Linear Regression", "## Lambda = 0.0", f"0:{linear.intercepts[0].item()!r} " + " ".join(pairs)]
        )
        return {"": text.encode()}
    forest = formula.forest
    assert forest is not None
    trees = plain_trees(forest)
    lines = ["## LambdaMART", f"## No. of trees = {len(trees)}", "", "<ensemble>"]
    lines += [
        f'<tree id="{n}" weight="1.0"><split>{_tree(tree)}</split></tree>' for n, tree in enumerate(trees, start=1)
    ]
    return {"": "\n".join([*lines, "</ensemble>", ""]).encode()}


def _tree(tree: Node) -> str:
    if not isinstance(tree, Split):
        return f"<output>{single_text(tree)}</output>"
    threshold = single_text(float(single_below(tree.threshold)))
    return (
        f"<feature>{tree.feature + 1}</feature><threshold>{threshold}</threshold>"
        f'<split pos="left">{_tree(tree.left)}</split><split pos="right">{_tree(tree.right)}</split>'
    )


def _scores(path: Path, X: FloatArray, names: tuple[str, ...]) -> FloatArray:
    del names
    return ranklib.score(path.read_text(encoding="utf-8"), X)


def _settled(kept: Format, formula: Formula, target: Target, data: RankingData | None) -> Format:
    del target, data
    last, linear = formula.n_features, formula.linear
    said = [f"RankLib has features by number: 1 is '{formula.names[0]}', {last} is '{formula.names[-1]}'."]
    said += table_remarks(formula)
    apart: frozenset[str] = frozenset()
    if linear is not None and linear.missing.any():
        apart = frozenset({"missing"})
        said.append("RankLib takes a missing value for 0, and the model takes its mean: fill in means before.")
    return replace(kept, remarks=lambda _formula, _target: tuple(said), apart=apart)


FORMATS = [
    Format(
        name="ranklib",
        title="RankLib: LambdaMART's XML, or the line of a linear regression",
        suffix=".txt",
        precision="single",
        files=_files,
        scores=_scores,
        interpreter=lambda: "the rules of RankLib",
        refuses=_refuses,
        settle=_settled,
    )
]
