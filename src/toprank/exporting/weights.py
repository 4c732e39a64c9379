"""Linear functions for search engines: weights in single precision of features about their means, and no intercept.

Weights of raw features would do, but where a mean dwarfs the spread (a date, a count) single precision would round
away what the other features say. Engines can subtract a mean first, so they are asked to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.rankers.formula import Formula, LinearFunction


class CentredWeights(NamedTuple):
    """Σ_j w_j (x_j − mean_j), which is the score less `constant`."""

    weights: FloatArray
    means: FloatArray
    """Single precision numbers; 0 where nothing is to be subtracted."""
    constant: float
    filled: FloatArray
    """What to put in the place of a missing value, for the same score."""


def centred_weights(formula: Formula) -> CentredWeights:
    """A formula that is a linear function, about the means that its first part knows."""
    linear, first = formula.linear, formula.functions[0].part
    assert linear is not None
    assert isinstance(first, LinearFunction)
    weights = linear.weights[0]
    used = weights != 0.0
    centre = np.where(used, first.centre, 0.0).astype(np.float32).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        filled = np.where(used, linear.missing[0] / weights, 0.0)
    return CentredWeights(weights, centre, float(linear.intercepts[0] + weights @ centre), filled)


def linear_remarks(linear: CentredWeights, features: tuple[str, ...], file: str) -> list[str]:
    """What to know about a linear function in an engine without intercepts and missing values."""
    remarks = []
    if linear.constant:
        remarks.append(f"Scores there lack the constant {linear.constant:.6g}, which changes no order.")
    filled = np.flatnonzero(linear.filled)
    if len(filled):
        column = int(filled[0])
        remarks.append(
            f"A missing value counts as its mean in the model, and as 0 in the engine: {file} has means as defaults "
            f"('{features[column]}': {linear.filled[column]:.6g}); give them to features of your own as well."
        )
    return remarks
