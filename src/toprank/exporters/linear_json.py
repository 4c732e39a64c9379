"""Export a linear ranker to JSON: a weight for each name, an intercept, and the contribution of missing values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.exporters.formats import OTHER_FORMATS, Format, PreparedModel
from toprank.rankers.formula import ExpandedFeatures, Formula


def _refuses(formula: Formula, _server: str | None) -> str | None:
    if formula.linear is not None:
        return None
    why = "it is not a weighted sum"
    if isinstance(formula.part, ExpandedFeatures):
        verb = "uses the mean of" if formula.part.means else "has a weight for"
        why = f"it {verb} each level of a category"
    return f"{why}, and the file holds a weight for each feature. {OTHER_FORMATS}."


def _scores(path: Path, X: FloatArray, features: tuple[str, ...]) -> FloatArray:
    model = json.loads(path.read_bytes())
    weights, missing = (np.array([model[key][name] for name in features]) for key in ("weights", "missing"))
    gone = np.isnan(X)
    return np.asarray(np.where(gone, 0.0, X) @ weights + gone @ missing + model["intercept"])


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> PreparedModel:
    linear = formula.linear
    assert linear is not None
    model = {
        "model": formula.name,
        "score": "intercept + the sum over features of weight * value, or of missing where there is no value",
        "intercept": float(linear.intercepts[0]),
        "weights": dict(zip(formula.features, linear.weights[0].tolist(), strict=True)),
        "missing": dict(zip(formula.features, linear.missing[0].tolist(), strict=True)),
    }
    text = json.dumps(model, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    return PreparedModel(
        formula=formula, files={"": text.encode()}, score=_scores, interpreter=f"NumPy {np.__version__}"
    )


FORMATS = [
    Format(
        name="json",
        title="the weights of a linear model by name",
        suffix=".json",
        writer=_prepare,
        support_check=_refuses,
    )
]
