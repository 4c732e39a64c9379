"""Export to LightGBM's text format, with feature names: for LightGBM and other programs that read its models."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.exporters.formats import Format, PreparedModel, name_remarks, renamed, unsupported_names_reason
from toprank.exporters.splits import not_trees
from toprank.rankers.formula import Formula
from toprank.rankers.trees.forest import Forest, Tree
from toprank.rankers.trees.text import written_trees

_MARKS = r'[\s",:\[\]{}\x00-\x1f\x7f]'


def _text(formula: Formula, forest: Forest) -> bytes:
    trees = list(forest.trees)
    if forest.intercepts[0] or not trees:
        trees.append(Tree.constant(float(forest.intercepts[0])))
    text = written_trees(Forest.from_trees(trees, formula.n_features, np.zeros(1)))
    names = " ".join(renamed(formula.features, _MARKS))
    return re.sub("(?m)^feature_names=.*$", lambda _: f"feature_names={names}", text, count=1).encode()


def _refuses(formula: Formula, _server: str | None) -> str | None:
    clash = unsupported_names_reason(
        formula.features, _MARKS, "LightGBM", "blanks, control characters, quotes, commas, colons and brackets"
    )
    return clash or (None if formula.forest is not None else not_trees(formula, "LightGBM's file"))


def _scores(path: Path, X: FloatArray, _features: tuple[str, ...]) -> FloatArray:
    import lightgbm

    return np.asarray(lightgbm.Booster(model_file=str(path)).predict(X, raw_score=True, num_threads=1))


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> PreparedModel:
    import lightgbm

    forest = formula.forest
    assert forest is not None
    return PreparedModel(
        formula=formula,
        files={"": _text(formula, forest)},
        score=_scores,
        interpreter=f"LightGBM {lightgbm.__version__}",
        remarks=name_remarks(formula.features, _MARKS, "LightGBM"),
        # LightGBM treats values within ±1e-35 as zero, whatever the model does.
        excluded=frozenset() if forest.flushes else frozenset({"tiny"}),
    )


FORMATS = [
    Format(
        name="lightgbm",
        title="LightGBM's text, which many other programs read",
        suffix=".txt",
        writer=_prepare,
        support_check=_refuses,
    )
]
