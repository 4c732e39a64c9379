"""What a linear ranker makes of each feature, with its sign."""

from __future__ import annotations

from typing import Any

import numpy as np

from toprank.compute import FloatArray

__all__ = ["signed_weights"]


def signed_weights(ranker: Any) -> tuple[str, FloatArray] | None:
    """What the numbers mean, and one for each feature; None where the ranker has no coefficients."""
    coef = getattr(ranker, "coef_", None)
    spread = getattr(getattr(ranker, "standardisation_", None), "spread", None)
    if coef is not None and np.ndim(coef) == 1:
        scale = np.ones(len(coef)) if spread is None else spread
        return "Weight of a standard deviation", np.asarray(coef * scale, dtype=np.float64)
    if coef is not None and np.ndim(coef) == 2:  # P(grade | x): one row per grade, or one row before thresholds
        rows = np.asarray(coef, dtype=np.float64)
        slope = rows[0] if len(rows) == 1 else rows[-1] - rows[0]
        return "Log-odds, highest against lowest grade, of a standard deviation", slope
    return None
