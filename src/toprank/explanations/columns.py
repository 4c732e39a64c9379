"""Feature columns of explained data: names, values, categories, and their text form."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import cached_property
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData, dense_rows
from toprank.data.encoding import Column
from toprank.errors import DataError, UnknownNameError
from toprank.rankers.base import Ranker

_MIDNIGHT = " 00:00:00+00:00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = range(6, 18)
_TICK = 1e-6 / 86400  # a microsecond in days, the unit of dates and durations


def feature_names(ranker: Ranker, data: RankingData) -> tuple[str, ...]:
    """Return the names of the features; unnamed features are numbered as in LETOR files."""
    names = getattr(ranker, "feature_names_in_", data.feature_names)
    if names is not None:
        return tuple(str(name) for name in names)
    first = 1 if data.first_feature_id is None else data.first_feature_id
    return tuple(f"feature {first + column}" for column in range(ranker.n_features_in_))


def cells(data: RankingData, feature: int, values: FloatArray) -> list[str]:
    """Convert stored numbers to the text of the user's table: categories, dates, durations or numbers."""
    column = None if data.encoding is None else data.encoding.columns[feature]
    if column is None or column.kind == "number":
        return ["missing" if math.isnan(value) else f"{value:.6g}" for value in values.tolist()]
    return ["missing" if math.isnan(value) else _cell(column, value) for value in values.tolist()]


def _cell(column: Column, value: float) -> str:
    if column.is_category:
        return column.levels[int(value)]
    span = timedelta(days=value)
    return str(_EPOCH + span).removesuffix(_MIDNIGHT) if column.kind == "date" else str(span)


def signed(value: float) -> str:
    """Format a number with its sign and three significant digits.

    >>> signed(0.81234), signed(-0.5), signed(0.0)
    ('+0.812', '−0.5', '0')
    """
    return "0" if value == 0 else f"{'−' if value < 0 else '+'}{abs(value):.3g}"


class Feature:
    """A feature column of data in the training layout."""

    def __init__(self, ranker: Ranker, data: RankingData, number: int) -> None:
        self.number, self.name = number, feature_names(ranker, data)[number]
        self.is_category = number in ranker.category_columns
        self._data = data

    @cached_property
    def values(self) -> FloatArray:
        """Value of each document."""
        return dense_rows(self._data.X[:, [self.number]])[:, 0]

    @cached_property
    def present(self) -> FloatArray:
        """Finite values, or a single 0 if all are missing."""
        finite: FloatArray = self.values[np.isfinite(self.values)]
        return finite if len(finite) else np.zeros(1)

    @cached_property
    def spread(self) -> float:
        """Standard deviation, or 1 if all values are equal."""
        return float(self.present.std()) or 1.0

    @cached_property
    def levels(self) -> FloatArray:
        """Distinct values, the most frequent first."""
        levels, counts = np.unique(self.present, return_counts=True)
        return np.asarray(levels[np.argsort(-counts, kind="stable")])

    def shown(self, value: float) -> str:
        """Return a value in the text form of the user's table."""
        return cells(self._data, self.number, np.array([value]))[0]

    def as_stored(self, values: FloatArray) -> FloatArray:
        """Round numbers to the precision of the data."""
        return values.astype(self._data.X.dtype).astype(np.float64)

    def rounded(self, value: float, side: float) -> list[tuple[str, float]]:
        """Return pairs of text and number for a value: as displayed, then rounded up (`side` 1) or down (−1)."""
        encoding = self._data.encoding
        if encoding is not None and encoding.columns[self.number].kind != "number":
            near = [value, float(np.nextafter(value, side * np.inf)), value + side * _TICK]
            return [(self.shown(number), number) for number in near]
        way = ROUND_CEILING if side > 0 else ROUND_FLOOR
        numbers = [float(Context(prec=digits, rounding=way).create_decimal_from_float(value)) for digits in _DIGITS]
        shortened = [(f"{number:.{digits}g}", number) for digits, number in zip(_DIGITS, numbers, strict=True)]
        return [(self.shown(value), float(self.shown(value))), *shortened]


class FeatureColumns(dict[int, Feature]):
    """Mapping from column numbers to features, created on first access."""

    def __init__(self, ranker: Ranker, data: RankingData) -> None:
        super().__init__()
        self.ranker, self.data = ranker, data

    def __missing__(self, number: int) -> Feature:
        return self.setdefault(number, Feature(self.ranker, self.data, number))


def feature_number(ranker: Ranker, data: RankingData, feature: Any) -> int:
    """Return the column number of a feature, given by name or by number from 0."""
    names = feature_names(ranker, data)
    if isinstance(feature, str):
        if feature not in names:
            raise UnknownNameError("feature", feature, names)
        return names.index(feature)
    if isinstance(feature, bool) or not isinstance(feature, int | np.integer) or not 0 <= feature < len(names):
        raise DataError(f"Feature number {feature!r} does not exist; valid numbers are 0 to {len(names) - 1}.")
    return int(feature)


def find_feature(ranker: Ranker, data: RankingData, text: str) -> str:
    """Return the name of the feature that a text refers to: a name, or a LETOR number of an unnamed feature."""
    names = feature_names(ranker, data)
    return f"feature {text}" if text not in names and f"feature {text}" in names else text
