"""Linear functions of a table for engines: a feature for each level of a category, 1 where a document has it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from toprank.data.encoding import listed
from toprank.exporting.level_numbers import MOST_TERMS, PARAMETER, NumbersOfTerms, terms_of
from toprank.rankers.formula import Formula, LinearFunction, Wide

__all__ = ["LevelColumns", "column_refusal", "level_columns", "one_hot_remarks"]


class LevelColumns(NamedTuple):
    """A linear function of features that an engine computes."""

    formula: Formula
    numbers: NumbersOfTerms
    """Of features that ask for levels: the field, and 1 for each level of the feature."""


def level_columns(formula: Formula) -> LevelColumns | None:
    """A linear function of a table with a feature for each level; None where a formula is something else."""
    wide = formula.part
    if not isinstance(wide, Wide) or wide.means or not isinstance(wide.part, LinearFunction) or wide.part.outputs > 1:
        return None
    names = [formula.features[place] for place in wide.numbers.tolist()]
    numbers: NumbersOfTerms = {}
    for place, where in wide.categories:
        field, terms = formula.features[place], terms_of(formula, place)
        for column in np.unique(where).tolist():
            own = [terms[code] for code in np.flatnonzero(where == column).tolist()]
            numbers[len(names)] = field, dict.fromkeys(own, 1)
            names.append(f"{field}={own[0] if len(own) == 1 else '(other)'}")
    part = _without_centre_of_levels(wide, wide.part)
    return LevelColumns(replace(formula, features=tuple(names), part=part, encoding=None), numbers)


def _without_centre_of_levels(wide: Wide, part: LinearFunction) -> LinearFunction:
    """The function of zeros and ones as they are, and of raw numbers."""
    k = len(wide.numbers)
    slopes, centre, missing = part.weights * part.scale, part.centre.copy(), part.missing.copy()
    intercept = part.intercepts - slopes[:, k:] @ centre[k:]
    if wide.centre is not None:  # a missing number is then in the middle
        missing[:, :k] = -slopes[:, :k] * centre[:k]
        centre[:k] += wide.centre
    centre[k:], missing[:, k:] = 0.0, 0.0
    return LinearFunction(centre, part.scale, part.weights, intercept, missing)


def column_refusal(columns: LevelColumns) -> str | None:
    """Why an engine cannot ask for the levels of a linear function."""
    remedy = "Export it to onnx, c or python"
    names = columns.formula.features
    if len(columns.numbers) > MOST_TERMS:
        return (
            f"it has a weight for each of {len(columns.numbers):,} levels, which is a query each, and more than "
            f"{MOST_TERMS:,} for every document take too long. {remedy}, or train trees, which ask once for a category."
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return f"two of its features are called '{twice[0]}'. {remedy}, or rename a column before training."
    for field, terms in columns.numbers.values():
        if len(terms) > MOST_TERMS:
            return (
                f"{len(terms):,} rare levels of '{field}' share a weight, and a query asks for {MOST_TERMS:,} at most. "
                f"{remedy}."
            )
        if marked := [term for term in terms if PARAMETER in str(term)]:
            return f"the level '{marked[0]}' of '{field}' would be a parameter of the query. {remedy}, or rename it."
    return None


def one_hot_remarks(asked: NumbersOfTerms, feature_file: str) -> list[str]:
    """What to know of features that ask for levels."""
    if not asked:
        return []
    fields = sorted({field for field, _ in asked.values()})
    return [
        f"{feature_file} asks the documents' {listed(fields)} for {len(asked):,} levels, a feature each, 1 where a "
        "document has it: such a field holds the level as it is in the table, not analysed."
    ]
