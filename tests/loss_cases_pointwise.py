"""Pointwise and class-space losses for the shared matrix."""

from __future__ import annotations

from toprank.losses.ordinal import Multinomial, Ordinal
from toprank.losses.pointwise import (
    CrossEntropy,
    ImportanceWeightedSquared,
    ModifiedSquared,
    PowerRegression,
    QuerySquared,
    Squared,
)

CASES = [
    ("squared", Squared(), {}),
    ("squared-linear-per-document", Squared(gain="linear", per_document=True), {"labels": "real"}),
    ("squared-labels", Squared(gain=None, max_grade=5), {"labels": "real"}),
    ("query-squared", QuerySquared(), {}),
    ("query-squared-per-document", QuerySquared(gain="linear", per_document=True), {"labels": "real"}),
    ("modified-squared", ModifiedSquared(), {}),
    ("modified-squared-binary", ModifiedSquared(gain="linear", max_grade=1), {"labels": "binary"}),
    ("power", PowerRegression(), {}),
    ("power-2.5", PowerRegression(power=2.5, gain="linear", per_document=True), {"labels": "real"}),
    ("cross-entropy", CrossEntropy(), {}),
    ("cross-entropy-linear", CrossEntropy(gain="linear", max_grade=6, per_document=True), {"labels": "real"}),
    ("importance-grade", ImportanceWeightedSquared(scheme="grade", delta=1.0, u=3.0), {}),
    ("importance-top", ImportanceWeightedSquared(scheme="top", top_k=2, delta=0.2, u=5.0), {"scale": 2.0}),
    ("importance-frequency", ImportanceWeightedSquared(scheme="frequency", u=8.0, gain="linear"), {}),
    ("multinomial", Multinomial(), {"columns": 5}),
    ("multinomial-n-grades", Multinomial(n_grades=4, per_document=True), {"labels": "binary", "columns": 4}),
    ("ordinal", Ordinal(), {"columns": 4, "decreasing": True}),
    ("ordinal-binary", Ordinal(per_document=True), {"labels": "binary", "columns": 1}),
]
