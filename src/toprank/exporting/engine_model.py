"""A model as a search engine holds it: Solr, or a plug-in, computes its features from the fields of documents.

Weights of linear functions are about the means; features ask fields for levels of categories, as `levels.py` has them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.encoding import listed
from toprank.exporting.formats import table_remarks
from toprank.exporting.levels import LevelNumbers, NumbersOfTerms, cells_of, level_columns
from toprank.rankers.formula import Formula, LinearFunction

FEATURE_FILE = ".features.json"
"""What follows the name of the model in the name of the file that tells the engine how to compute its features."""
Features = tuple[npt.NDArray[np.float32], tuple[str, ...]]
"""Values of features, and their names."""


class CentredWeights(NamedTuple):
    """Σ_j w_j (x_j − mean_j), with weights in single precision: the score of a linear function less `constant`.

    Weights of raw features would do, but if a mean dwarfs the spread (a date, a count) single precision would round
    away what the other features say. Engines can subtract a mean first, so the files ask them to.
    """

    weights: FloatArray
    means: FloatArray
    """Single precision numbers; 0 if nothing is to be subtracted."""
    constant: float
    filled: FloatArray
    """What replaces a missing value for the same score."""


def centred_weights(formula: Formula) -> CentredWeights:
    """Write a linear function about the means that its first part knows."""
    linear, first = formula.linear, formula.functions[0].part
    assert linear is not None
    assert isinstance(first, LinearFunction)
    weights = linear.weights[0]
    used = weights != 0.0
    centre = np.where(used, first.centre, 0.0).astype(np.float32).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        filled = np.where(used, linear.missing[0] / weights, 0.0)
    return CentredWeights(weights, centre, float(linear.intercepts[0] + weights @ centre), filled)


class EngineModel(NamedTuple):
    """A model as the plug-in of a search engine can hold it."""

    formula: Formula
    """The formula; a linear function of a table has a feature for each level."""
    linear: CentredWeights | None
    levels: LevelNumbers
    terms: NumbersOfTerms
    """The features that ask the engine for levels."""

    @classmethod
    def of(cls, formula: Formula) -> Self:
        """Choose the form in which an engine computes the features of a formula."""
        levels = LevelNumbers.of(formula)
        written, terms = level_columns(formula) or (formula, levels.of_terms)
        return cls(written, None if written.linear is None else centred_weights(written), levels, terms)

    def feature_remarks(self, table: Formula) -> list[str]:
        """Say what the fields of documents must hold; `table`: the formula of the table's own columns."""
        return [
            *table_remarks(table, category=None, of_dates="; a field of dates gives milliseconds"),
            *self.levels.remarks(table.name, table.name + FEATURE_FILE),
        ]

    def linear_remarks(self) -> list[str]:
        """Say what an engine without intercepts and missing values makes of a linear function, if this is one."""
        linear, file, remarks = self.linear, self.formula.name + FEATURE_FILE, []
        if linear is None:
            return []
        if linear.constant:
            remarks.append(f"Scores there lack the constant {linear.constant:.6g}, which changes no order.")
        for column in np.flatnonzero(linear.filled)[:1].tolist():  # one as an example
            remarks.append(
                f"A missing value counts as its mean in the model, and as 0 in the engine: {file} has means as "
                f"defaults ('{self.formula.features[column]}': {linear.filled[column]:.6g}); give them to features of "
                "your own as well."
            )
        if self.terms:
            fields = sorted({field for field, _ in self.terms.values()})
            remarks.append(
                f"{file} asks the documents' {listed(fields)} for {len(self.terms):,} levels, a feature each, 1 where "
                "a document has it: such a field holds the level as it is in the table, not analysed."
            )
        return remarks


def computed_features(
    read: Callable[..., Features], formula: Formula, path: Path, X: FloatArray, names: tuple[str, ...]
) -> Features:
    """Return the features that an engine computes from rows by the feature file beside a model, and their names.

    `read` is the `feature_values` of the engine's interpreter.
    """
    text = path.with_name(path.stem + FEATURE_FILE).read_text(encoding="utf-8")
    return read(text, LevelNumbers.of(formula).numbered(X), names, cells_of(formula, X))
