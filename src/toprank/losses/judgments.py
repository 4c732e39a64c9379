"""What is known of the documents that a loss judges: labels, queries, weights, and what holds of the whole data.

A loss may be bound to a part of the data only: a partition of a cluster. What it derives from all labels (the top grade
of ERR, a number of classes) and the mean over all queries are then those of the whole, as `grades` and `total_weight`
say; so the losses of the parts add up.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.grades import Grades
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.metrics.gains import Gain

__all__ = ["Judgments", "non_negative"]

_OF_DOCUMENTS = ("document_weights", "teacher_scores", "positions", "propensities")


@dataclass(frozen=True, eq=False)
class Judgments:
    """Labels, queries and weights as one value, checked when it is made; a loss is bound to it.

    Args:
        labels: one for each document, finite.
        queries: which documents belong together.
        document_weights: one for each document, or None.
        query_weights: one for each query, or None.
        grades: the distinct labels of the whole data, rising (the lowest and the highest will do where they are too
            many); None: these labels are all there are.
        total_weight: the sum of the query weights (or the number of queries) of the whole data; None: of these.
        teacher_scores: scores of another ranker, one for each document, or None.
        positions: where each document was shown, or None.
        propensities: the chance of each document to have been looked at, or None.

    >>> Judgments([0, 2, 1], Queries([0, 3])).top_grade
    2.0
    """

    labels: FloatArray
    queries: Queries
    document_weights: FloatArray | None = None
    query_weights: FloatArray | None = None
    grades: FloatArray | None = None
    total_weight: float | None = None
    teacher_scores: FloatArray | None = None
    positions: FloatArray | None = None
    propensities: FloatArray | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name not in ("queries", "total_weight"):
                object.__setattr__(self, field.name, np.ascontiguousarray(value, dtype=np.float64))
        n, labels = self.queries.n_documents, self.labels
        if labels.shape != (n,):
            raise DataError(f"There are {labels.size} labels for {n} documents.")
        if not np.isfinite(labels).all():
            row = int(np.argmin(np.isfinite(labels)))
            raise DataError(f"The label of document {row} is {labels[row]}; training needs judged documents only.")
        if labels.max() > self.top_grade:
            row = int(np.argmax(labels))
            raise DataError(
                f"The grades of the whole data end at {self.top_grade:g}, but document {row} has the label "
                f"{labels[row]:g}. Give all of them."
            )
        for name, needed in {**dict.fromkeys(_OF_DOCUMENTS, n), "query_weights": len(self.queries)}.items():
            values = getattr(self, name)
            if values is None:
                continue
            if values.shape != (needed,):
                raise DataError(f"There are {values.size} {name}, but {needed} are needed.")
            # A part of the data may weigh nothing; the whole may not, or there would be no mean.
            may_vanish = self.total_weight is not None or values.any()
            if "weights" in name and not (np.isfinite(values).all() and (values >= 0).all() and may_vanish):
                raise DataError(f"{name} must be finite, not negative, and not all zero.")

    @property
    def top_grade(self) -> float:
        """The largest label of the whole data."""
        return float(self.labels.max() if self.grades is None else self.grades[-1])

    @property
    def distinct_grades(self) -> FloatArray:
        """The distinct labels of the whole data, rising."""
        return np.unique(self.labels) if self.grades is None else self.grades

    @property
    def weights(self) -> FloatArray:
        """One weight for each document: 1 where none are given."""
        return np.ones(len(self.labels)) if self.document_weights is None else self.document_weights

    def weighted(self, values: FloatArray) -> FloatArray:
        """Values of the documents times their weights, where there are any."""
        return values if self.document_weights is None else values * self.document_weights

    def scale(self) -> FloatArray:
        """What each query's loss is multiplied by in the mean over the queries of the whole data."""
        weights = np.ones(len(self.queries)) if self.query_weights is None else self.query_weights
        return weights / (weights.sum() if self.total_weight is None else self.total_weight)

    def gains(self, gain: Any) -> FloatArray:
        """The gain of each label, looked up by grade.

        >>> Judgments([0, 2, 1], Queries([0, 3])).gains("exponential").tolist()
        [0.0, 3.0, 1.0]
        """
        grades = Grades.of(self.labels)
        table: FloatArray = Gain.of(gain).table(grades.values, self.top_grade)
        return np.take(table, grades.codes)


def non_negative(labels: FloatArray, loss: Any) -> FloatArray:
    """The labels, refused where one is negative (exponential gains and -1 for 'not judged' do not go together)."""
    if (labels < 0).any():
        row = int(np.argmax(labels < 0))
        raise DataError(
            f"{type(loss).__name__} needs labels of at least 0, but document {row} has {labels[row]:g}. "
            "Take unjudged documents (-1) out before training."
        )
    return labels
