"""Category levels of a table, for programs that only support numbers.

For trees, each level gets a number from 1 on, and everything else is 0; for linear functions, each level becomes a
feature that is 1 if a document has it. `EngineModel` is a model whose features, including these levels, are computed by
a search engine.

A missing value and an unseen level are both 0, which is also how such programs treat missing values. So no version of a
server can confuse one level with another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.encoding import Column, Level, codes_of, listed
from toprank.exporters.code_ranges import numbers_by_effect, replace_category_sets
from toprank.exporters.formats import OTHER_FORMATS, table_remarks
from toprank.rankers.formula import ExpandedFeatures, Formula, LinearFunction
from toprank.rankers.trees.forest import Forest

LEVELS_FILE = ".levels.json"
NumbersOfTerms = dict[int, tuple[str, dict[Level, int]]]
"""For each feature that queries levels: the field, and the value of each term; 0 for any other or none."""
MOST_TERMS = 1000
"""Maximum number of levels in a query: Solr and Elasticsearch allow 1,024 clauses by default."""
PARAMETER = "{{"
"""Elasticsearch parses this as the start of a request parameter."""
FEATURE_FILE = ".features.json"
"""Suffix of the file that defines the features for the engine."""
Features = tuple[npt.NDArray[np.float32], tuple[str, ...]]
"""Feature values and names."""


def table_categories(formula: Formula) -> frozenset[int]:
    """Return the features that are categories of a table, whose levels are known by name."""
    return frozenset(() if formula.encoding is None else formula.encoding.categories)


def numbered_forest(formula: Formula, kept: Collection[int] = ()) -> Forest | None:
    """Return the trees of a formula for programs that only compare numbers; None if they would grow too large.

    Args:
        formula: a formula that is a forest.
        kept: features for which the program supports category sets.
    """
    forest = formula.forest
    assert forest is not None
    if forest.categories <= set(kept):
        return forest
    return replace_category_sets(forest, LevelNumbers.of(formula).of_codes, kept)


@dataclass(frozen=True, eq=False)
class LevelNumbers:
    """The number of each level of each category of a table.

    Attributes:
        columns: The categories, by feature index.
        of_codes: The number of each code, by feature index.
    """

    columns: Mapping[int, Column]
    of_codes: Mapping[int, IntArray]

    @classmethod
    def of(cls, formula: Formula) -> Self:
        """Number the levels for trees; other formulas have no numbers."""
        forest, encoding = formula.forest, formula.encoding
        if forest is None or encoding is None:
            return cls({}, {})
        columns = {place: encoding.columns[place] for place in encoding.categories}
        sizes = {place: len(column.levels) for place, column in columns.items()}
        return cls(columns, {place: numbers_by_effect(forest, place, size) for place, size in sizes.items()})

    def __bool__(self) -> bool:
        """Return whether there is a category."""
        return bool(self.columns)

    @cached_property
    def files(self) -> dict[str, bytes]:
        """A file with the table of levels and numbers; empty without categories."""
        if not self:
            return {}
        table = {column.name: self._by_number(place) for place, column in self.columns.items()}
        text = json.dumps(table, ensure_ascii=False, allow_nan=False, indent=1)
        return {LEVELS_FILE: (text + "\n").encode()}

    def _by_number(self, place: int) -> dict[Level, int]:
        levels, numbers = self.columns[place].values, self.of_codes[place]
        return {levels[code]: int(numbers[code]) for code in np.argsort(numbers).tolist()}

    @cached_property
    def of_terms(self) -> NumbersOfTerms:
        """Categories whose levels a feature can query from a server, so that the index needs no numbers."""
        return {
            place: (column.name, self._by_number(place))
            for place, column in self.columns.items()
            if 0 < len(column.levels) <= MOST_TERMS and not any(PARAMETER in level for level in column.levels)
        }

    def numbered(self, X: FloatArray) -> FloatArray:
        """Convert rows of codes to rows of numbers; NaN if a code has no level."""
        numbered = X.copy()
        for place, numbers in self.of_codes.items():
            numbered[:, place] = np.append(numbers, np.nan)[codes_of(X[:, place], len(numbers))]
        return numbered

    def remarks(self, name: str, feature_file: str | None = None) -> list[str]:
        """Describe how to pass levels to a model called `name`; `feature_file`, if given, queries them."""
        file = name + LEVELS_FILE
        by_query = [] if feature_file is None else [field for field, _ in self.of_terms.values()]
        by_number = [column.name for column in self.columns.values() if column.name not in by_query]
        remarks = []
        if by_query:
            remarks.append(
                f"{feature_file} looks up the level of {listed(by_query)} in the document field of the same name, and "
                "returns its number: such a field must contain the level as in the table, not analyzed. A custom "
                f"feature in its place must return the number of the level in {file}, and 0 for any other or none."
            )
        if by_number:
            remarks.append(
                f"Pass {listed(by_number)} as the number of the level in {file}, and 0 for any other or none."
            )
        return remarks


def terms_of(formula: Formula, place: int) -> list[Level]:
    """Return the levels of a category in the order of their codes, as stored in documents."""
    assert formula.encoding is not None
    return formula.encoding.columns[place].values


def cells_of(formula: Formula, X: FloatArray) -> dict[str, npt.NDArray[Any]]:
    """Convert codes to the levels stored in documents, for each category by name; None if a document has no level."""
    cells = {}
    for place in table_categories(formula):
        terms = np.array([*terms_of(formula, place), None], dtype=object)
        cells[formula.features[place]] = terms[codes_of(X[:, place], len(terms) - 1)]
    return cells


class LevelColumns(NamedTuple):
    """A linear function of features that an engine computes.

    Attributes:
        numbers: For each feature that queries levels: the field, and 1 for each level of the feature.
    """

    formula: Formula
    numbers: NumbersOfTerms


def level_columns(formula: Formula) -> LevelColumns | None:
    """Return a linear function of a table with a feature for each level; None for other formulas."""
    wide = formula.part
    if (
        not isinstance(wide, ExpandedFeatures)
        or wide.means
        or not isinstance(wide.part, LinearFunction)
        or wide.part.outputs > 1
    ):
        return None
    names = [formula.features[place] for place in wide.numbers.tolist()]
    numbers: NumbersOfTerms = {}
    for place, where in wide.categories:
        field, terms = formula.features[place], terms_of(formula, place)
        for column in np.unique(where).tolist():
            own = [terms[code] for code in np.flatnonzero(where == column).tolist()]
            numbers[len(names)] = field, dict.fromkeys(own, 1)
            names.append(f"{field}={own[0] if len(own) == 1 else '(other)'}")
    part = _without_center_of_levels(wide, wide.part)
    return LevelColumns(replace(formula, features=tuple(names), part=part, encoding=None), numbers)


def _without_center_of_levels(wide: ExpandedFeatures, part: LinearFunction) -> LinearFunction:
    """Return the same function with raw numbers, and zeros and ones that are not centered."""
    k = len(wide.numbers)
    slopes, center, missing = part.weights * part.scale, part.center.copy(), part.missing.copy()
    intercept = part.intercepts - slopes[:, k:] @ center[k:]
    if wide.center is not None:  # missing numbers then count as the center
        missing[:, :k] = -slopes[:, :k] * center[:k]
        center[:k] += wide.center
    center[k:], missing[:, k:] = 0.0, 0.0
    return LinearFunction(center, part.scale, part.weights, intercept, missing)


def column_refusal(columns: LevelColumns) -> str | None:
    """Return the reason why an engine cannot query the levels of a linear function; None if it can."""
    names = columns.formula.features
    if len(columns.numbers) > MOST_TERMS:
        return (
            f"it has a weight for each of {len(columns.numbers):,} levels, each of which is a query, and more than "
            f"{MOST_TERMS:,} queries for every document take too long. {OTHER_FORMATS}, or train trees, which need "
            "one query per category."
        )
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        return f"two of its features are called '{repeated[0]}'. {OTHER_FORMATS}, or rename a column before training."
    for field, terms in columns.numbers.values():
        if len(terms) > MOST_TERMS:
            return (
                f"{len(terms):,} rare levels of '{field}' share a weight, and a query supports at most "
                f"{MOST_TERMS:,}. {OTHER_FORMATS}."
            )
        if marked := [term for term in terms if PARAMETER in str(term)]:
            return (
                f"the level '{marked[0]}' of '{field}' would be read as a parameter of the query. "
                f"{OTHER_FORMATS}, or rename it."
            )
    return None


# ---- models of search engines ----


class CenteredWeights(NamedTuple):
    """Σ_j w_j (x_j − mean_j), with weights in single precision: the score of a linear function minus `constant`.

    Weights of raw features would suffice, but if a mean dwarfs the spread (a date, a count), single precision would
    round away the other features. Engines can subtract a mean first, so the files use that.

    Attributes:
        means: Single-precision means; 0 for features that are not centered.
        filled: The value that replaces a missing value with the same score.
    """

    weights: FloatArray
    means: FloatArray
    constant: float
    filled: FloatArray


def centered_weights(formula: Formula) -> CenteredWeights:
    """Rewrite a linear function with the means that its first part knows."""
    linear, first = formula.linear, formula.functions[0].part
    assert linear is not None
    assert isinstance(first, LinearFunction)
    weights = linear.weights[0]
    used = weights != 0.0
    center = np.where(used, first.center, 0.0).astype(np.float32).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        filled = np.where(used, linear.missing[0] / weights, 0.0)
    return CenteredWeights(weights, center, float(linear.intercepts[0] + weights @ center), filled)


class EngineModel(NamedTuple):
    """A model in the form that the plug-in of a search engine supports.

    Attributes:
        formula: The formula; a linear function of a table has a feature for each level.
        terms: The features that query the engine for levels.
    """

    formula: Formula
    linear: CenteredWeights | None
    levels: LevelNumbers
    terms: NumbersOfTerms

    @classmethod
    def of(cls, formula: Formula) -> Self:
        """Choose the form in which an engine computes the features of a formula."""
        levels = LevelNumbers.of(formula)
        written, terms = level_columns(formula) or (formula, levels.of_terms)
        return cls(written, None if written.linear is None else centered_weights(written), levels, terms)

    def feature_remarks(self, table: Formula) -> list[str]:
        """Describe the required fields of documents; `table` is the formula of the table's own columns."""
        return [
            *table_remarks(table, category=None, of_dates="; a field of dates gives milliseconds"),
            *self.levels.remarks(table.name, table.name + FEATURE_FILE),
        ]

    def linear_remarks(self) -> list[str]:
        """Describe how an engine without intercepts and missing values treats a linear function, if this is one."""
        linear, file, remarks = self.linear, self.formula.name + FEATURE_FILE, []
        if linear is None:
            return []
        if linear.constant:
            remarks.append(f"Scores there omit the constant {linear.constant:.6g}, which changes no order.")
        for column in np.flatnonzero(linear.filled)[:1].tolist():  # one feature as an example
            remarks.append(
                f"A missing value counts as its mean in the model, but as 0 in the engine: {file} sets means as "
                f"defaults ('{self.formula.features[column]}': {linear.filled[column]:.6g}); set them in custom "
                "features as well."
            )
        if self.terms:
            fields = sorted({field for field, _ in self.terms.values()})
            remarks.append(
                f"{file} looks up {len(self.terms):,} levels of {listed(fields)} in the document field of the same "
                "name, with one feature each, which is 1 if a document has the level: such a field must contain the "
                "level as in the table, not analyzed."
            )
        return remarks


def computed_features(
    read: Callable[..., Features], formula: Formula, path: Path, X: FloatArray, names: tuple[str, ...]
) -> Features:
    """Return the features that an engine computes from rows by the feature file beside a model, and their names.

    `read` is the `feature_values` function of the engine's interpreter.
    """
    text = path.with_name(path.stem + FEATURE_FILE).read_text(encoding="utf-8")
    return read(text, LevelNumbers.of(formula).numbered(X), names, cells_of(formula, X))
