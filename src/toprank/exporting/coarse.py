"""Features whose values single precision cannot hold, as the model itself tells: timestamps, large counts, ids."""

from __future__ import annotations

import numpy as np

from toprank.compute import FloatArray
from toprank.exporting.float32 import single_below
from toprank.exporting.probe_rows import Cuts, Seen, seen_parts, thresholds_of
from toprank.rankers.formula import Forest, Formula, Linear

__all__ = ["coarse_features"]

_WHOLE = float(1 << 24)  # whole numbers beyond are not all there in single precision
_BEYOND = 1e37  # a threshold that asks whether there is a value at all
_SOME = 3  # features that are named


def coarse_features(formula: Formula) -> tuple[str, ...]:
    """What to say of features whose values a target of single precision rounds: nothing, or one sentence."""
    parts = list(seen_parts(formula.part, np.arange(formula.n_features)))
    cuts = thresholds_of(parts)
    found = [(j, size) for j in range(formula.n_features) if (size := _coarse(formula, parts, cuts, j))]
    if not found:
        return ()
    steps = [
        f"'{formula.names[j]}' (about {size:.4g}, in steps of {np.spacing(np.float32(size)):.2g})" for j, size in found
    ]
    others = f" and {len(found) - _SOME} more" if len(found) > _SOME else ""
    return (
        f"Single precision cannot hold what the model tells apart in {', '.join(steps[:_SOME])}{others}: values within "
        "a step of each other are one there, and may lie on the other side of a threshold. Subtract a constant near to "
        "them before training and in the index, or check on data.",
    )


def _coarse(formula: Formula, parts: list[Seen], cuts: Cuts, feature: int) -> float:
    """How large the values of a feature are where they are too large or too fine for single precision; else 0."""
    own = np.unique(cuts[1][cuts[0] == feature])
    own = own[np.abs(own) < _BEYOND]
    expected = _centres(parts, feature)
    size = float(np.abs(np.concatenate([own, expected])).max(initial=0.0))
    collapse = len(np.unique(single_below(own))) < len(own) and size > 1.0
    kind = "number" if formula.encoding is None else formula.encoding.columns[feature].kind
    middles = np.nextafter(own, -np.inf)  # LightGBM's thresholds are the next numbers above
    of_days = np.isin(np.mod(np.concatenate([own, middles]) * 2.0, 1.0).reshape(2, -1), 0.0).any(axis=0).all()
    timed = kind in ("date", "duration") and (len(expected) > 0 or not of_days)
    return size if size >= _WHOLE or collapse or timed else 0.0


def _centres(parts: list[Seen], feature: int) -> FloatArray:
    """What linear functions and networks take for the middle of a feature."""
    found: list[float] = []
    for part, features in parts:
        if isinstance(part, Forest):
            continue
        for column in np.flatnonzero(features == feature).tolist():
            if isinstance(part, Linear):
                found += [float(part.centre[column])] if part.weights[:, column].any() else []
            elif part.transform == "quantile":
                found.append(float(np.abs(part.knots[:, column]).max()))
            else:
                middle = float(part.centre[column])
                found.append(float(np.expm1(min(abs(middle), 80.0))) if part.transform == "log1p" else middle)
    return np.array(found)
