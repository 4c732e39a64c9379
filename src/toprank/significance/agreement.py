"""How far judges agree beyond chance: Cohen's kappa of two, Krippendorff's alpha of any number.

Both are computed from counts, (…, grades, grades): of one set of judgments, or of several at once, such as all
judgments without each query in turn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.errors import UnknownNameError

WEIGHTS = ("none", "linear", "quadratic")
LEVELS = ("nominal", "ordinal", "interval")


def confusions(a: IntArray, b: IntArray, query: IntArray, n_queries: int, n_grades: int) -> FloatArray:
    """(queries, grades, grades): how often one judge gave the first grade and the other one the second."""
    cells = (query * n_grades + a) * n_grades + b
    counts = np.bincount(cells, minlength=n_queries * n_grades**2).astype(np.float64)
    return counts.reshape(n_queries, n_grades, n_grades)


def kappa(counts: FloatArray, weights: str = "none") -> FloatArray:
    """Cohen's kappa: 1 − observed disagreement / disagreement by chance, with each judge's own shares of grades.

    NaN where chance alone gives no disagreement: both judges always give the same grade.

    Args:
        counts: (…, grades, grades).
        weights: the cost of a disagreement: ``none``, always 1; ``linear`` or ``quadratic`` in the number of grades
            between the two.

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
    """(queries, grades, grades): pairs of grades that two judges gave to one document; all documents count alike.

    Args:
        codes: (documents, judges) numbers of grades; −1 where a judge gave none.
        query: of each document.
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
    """Krippendorff's alpha from coincidences (…, grades, grades); NaN where only one grade occurs.

    Args:
        counts: see `coincidences`.
        grades: the value of each grade, rising.
        level: the cost of a disagreement: ``nominal``, always 1; ``ordinal``, by the number of judgments between the
            two grades; ``interval``, the square of the difference.

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
        middle = np.cumsum(of_grade, axis=-1) - of_grade / 2  # judgments below, with half of the grade's own
        cost = (middle[..., :, None] - middle[..., None, :]) ** 2
    expected = of_grade[..., :, None] * of_grade[..., None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: FloatArray = (total - 1) * (cost * counts).sum((-2, -1)) / (cost * expected).sum((-2, -1))
    return np.where(np.isfinite(ratio), 1.0 - ratio, np.nan)
