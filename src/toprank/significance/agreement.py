"""Chance-corrected agreement between judges: Cohen's kappa for two, Krippendorff's alpha for any number.

Both are computed from count matrices of shape (…, grades, grades), so that the leave-one-query-out estimates of a
jackknife are computed in one call.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.errors import UnknownNameError

WEIGHTS = ("none", "linear", "quadratic")
LEVELS = ("nominal", "ordinal", "interval")


def confusions(a: IntArray, b: IntArray, query: IntArray, n_queries: int, n_grades: int) -> FloatArray:
    """Return the confusion matrix of two judges for each query: (queries, grades, grades)."""
    cells = (query * n_grades + a) * n_grades + b
    counts = np.bincount(cells, minlength=n_queries * n_grades**2).astype(np.float64)
    return counts.reshape(n_queries, n_grades, n_grades)


def kappa(counts: FloatArray, weights: str = "none") -> FloatArray:
    """Return Cohen's kappa: 1 − observed disagreement / disagreement expected by chance.

    Expected disagreement uses the marginal grade distribution of each judge. The result is NaN if expected disagreement
    is 0, because both judges always give the same grade.

    Args:
        counts: confusion matrices, (…, grades, grades).
        weights: cost of a disagreement: ``none``, always 1; ``linear`` or ``quadratic`` in the distance of the two
            grades. Default "none".

    >>> float(kappa(np.array([[2.0, 0.0], [1.0, 1.0]])))
    0.5
    """
    if weights not in WEIGHTS:
        raise UnknownNameError("weights of kappa", weights, WEIGHTS)
    place = np.arange(counts.shape[-1])
    apart = np.abs(place[:, None] - place)
    cost = {"none": apart > 0, "linear": apart, "quadratic": apart**2}[weights].astype(np.float64)
    expected = counts.sum(-1)[..., :, None] * counts.sum(-2)[..., None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: FloatArray = counts.sum((-2, -1)) * (cost * counts).sum((-2, -1)) / (cost * expected).sum((-2, -1))
    return np.where(np.isfinite(ratio), 1.0 - ratio, np.nan)


def coincidences(codes: IntArray, query: IntArray, n_queries: int, n_grades: int) -> FloatArray:
    """Return the coincidence matrix of grade pairs for each query: (queries, grades, grades).

    Every document with at least two grades has the same total weight.

    Args:
        codes: grade codes, (documents, judges); −1 for an unjudged document.
        query: query index of each document.
        n_queries: number of queries.
        n_grades: number of grades.
    """
    counts = np.stack([(codes == grade).sum(axis=1) for grade in range(n_grades)], axis=1).astype(np.float64)
    several = counts.sum(axis=1) >= 2
    counts, query = counts[several], query[several]
    each = 1.0 / (counts.sum(axis=1) - 1.0)
    table = np.empty((n_queries, n_grades, n_grades))
    for c in range(n_grades):
        for k in range(n_grades):
            pairs = counts[:, c] * (counts[:, k] - (c == k)) * each
            table[:, c, k] = np.bincount(query, pairs, minlength=n_queries)
    return table


def krippendorff(counts: FloatArray, grades: npt.ArrayLike, level: str = "ordinal") -> FloatArray:
    """Return Krippendorff's alpha from coincidence matrices (…, grades, grades); NaN if only one grade occurs.

    Args:
        counts: matrices from `coincidences`.
        grades: value of each grade, ascending.
        level: level of measurement, which sets the cost of a disagreement: ``nominal``, always 1; ``ordinal``, by the
            number of judgments between the two grades; ``interval``, the squared difference.

    >>> table = coincidences(np.array([[0, 0], [1, 1], [0, 1]]), np.zeros(3, dtype=int), 1, 2)
    >>> round(float(krippendorff(table[0], [0.0, 1.0])), 4)
    0.4444
    """
    if level not in LEVELS:
        raise UnknownNameError("level of measurement", level, LEVELS)
    of_grade = counts.sum(-1)
    total, place = of_grade.sum(-1), np.arange(counts.shape[-1])
    if level == "nominal":
        cost = (place[:, None] != place).astype(np.float64)
    elif level == "interval":
        values = np.asarray(grades, dtype=np.float64)
        cost = (values[:, None] - values) ** 2
    else:
        middle = np.cumsum(of_grade, axis=-1) - of_grade / 2  # judgments below a grade plus half of those at it
        cost = (middle[..., :, None] - middle[..., None, :]) ** 2
    expected = of_grade[..., :, None] * of_grade[..., None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: FloatArray = (total - 1) * (cost * counts).sum((-2, -1)) / (cost * expected).sum((-2, -1))
    return np.where(np.isfinite(ratio), 1.0 - ratio, np.nan)
