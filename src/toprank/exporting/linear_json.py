"""A linear ranker as JSON: a weight for each name, an intercept, and what a missing value adds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from toprank.compute import FloatArray
from toprank.exporting.formats import Format, Target
from toprank.rankers.formula import Formula, Wide

__all__ = ["FORMATS"]


def _files(formula: Formula, target: Target) -> Mapping[str, bytes]:
    linear = formula.linear
    assert linear is not None
    said = {
        "model": target.name,
        "score": "intercept + the sum over features of weight * value, or of missing where there is no value",
        "intercept": float(linear.intercepts[0]),
        "weights": dict(zip(formula.names, linear.weights[0].tolist(), strict=True)),
        "missing": dict(zip(formula.names, linear.missing[0].tolist(), strict=True)),
    }
    return {"": (json.dumps(said, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()}


def _refuses(formula: Formula, target: Target) -> str | None:
    del target
    if formula.linear is not None:
        return None
    why = "it has a weight for each level of a category" if isinstance(formula.part, Wide) else "it is no weighted sum"
    return f"{why}, and the file holds a weight for each feature. Export it to onnx, c or python."


def _scores(path: Path, X: FloatArray, names: tuple[str, ...]) -> FloatArray:
    said = json.loads(path.read_bytes())
    weights, missing = (np.array([said[key][name] for name in names]) for key in ("weights", "missing"))
    gone = np.isnan(X)
    return np.asarray(np.where(gone, 0.0, X) @ weights + gone @ missing + said["intercept"])


FORMATS = [
    Format(
        name="json",
        title="the weights of a linear model by name",
        suffix=".json",
        precision="double",
        files=_files,
        refuses=_refuses,
        scores=_scores,
        interpreter=lambda: f"NumPy {np.__version__}",
    )
]
