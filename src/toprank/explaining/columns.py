"""One feature of the data at hand: its values, whether they are categories, and how they are written."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import cached_property
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData, dense_rows
from toprank.errors import DataError, UnknownNameError
from toprank.rankers.base import Ranker
from toprank.rankers.explanation import cells, feature_names

_DIGITS = range(6, 18)
_TICK = 1e-6 / 86400  # dates and durations are days, written to the microsecond


class Feature:
    """A column of data that were translated to the columns of the training."""

    def __init__(self, ranker: Ranker, data: RankingData, number: int) -> None:
        self.number, self.name = number, feature_names(ranker, data)[number]
        self.is_category = number in ranker.category_columns
        self._data = data

    @cached_property
    def values(self) -> FloatArray:
        """The value of each document."""
        return dense_rows(self._data.X[:, [self.number]])[:, 0]

    @cached_property
    def present(self) -> FloatArray:
        """The values that are there; a single 0 if there are none."""
        finite: FloatArray = self.values[np.isfinite(self.values)]
        return finite if len(finite) else np.zeros(1)

    @cached_property
    def spread(self) -> float:
        """The standard deviation; 1 if all values are equal."""
        return float(self.present.std()) or 1.0

    @cached_property
    def levels(self) -> FloatArray:
        """The distinct values, the most frequent first."""
        levels, counts = np.unique(self.present, return_counts=True)
        return np.asarray(levels[np.argsort(-counts, kind="stable")])

    def shown(self, value: float) -> str:
        """Write a value as it stands in the user's table."""
        return cells(self._data, self.number, np.array([value]))[0]

    def as_held(self, values: FloatArray) -> FloatArray:
        """Round numbers to what the data can hold."""
        return values.astype(self._data.X.dtype).astype(np.float64)

    def rounded(self, value: float, side: float) -> list[tuple[str, float]]:
        """Return texts for a value, each with its number: as it is shown, then rounded up (`side` 1) or down (−1)."""
        encoding = self._data.encoding
        if encoding is not None and encoding.columns[self.number].kind != "number":
            near = [value, float(np.nextafter(value, side * np.inf)), value + side * _TICK]
            return [(self.shown(number), number) for number in near]
        way = ROUND_CEILING if side > 0 else ROUND_FLOOR
        numbers = [float(Context(prec=digits, rounding=way).create_decimal_from_float(value)) for digits in _DIGITS]
        shortened = [(f"{number:.{digits}g}", number) for digits, number in zip(_DIGITS, numbers, strict=True)]
        return [(self.shown(value), float(self.shown(value))), *shortened]


class FeatureColumns:
    """The columns of data, each looked at once."""

    def __init__(self, ranker: Ranker, data: RankingData) -> None:
        self.ranker, self.data = ranker, data
        self._known: dict[int, Feature] = {}

    def __getitem__(self, number: int) -> Feature:
        if number not in self._known:
            self._known[number] = Feature(self.ranker, self.data, number)
        return self._known[number]


def feature_number(ranker: Ranker, data: RankingData, feature: Any) -> int:
    """Return the column of a feature, given by its name or its number from 0."""
    names = feature_names(ranker, data)
    if isinstance(feature, str):
        if feature not in names:
            raise UnknownNameError("feature", feature, names)
        return names.index(feature)
    if isinstance(feature, bool) or not isinstance(feature, int | np.integer) or not 0 <= feature < len(names):
        raise DataError(f"There is no feature number {feature!r}; they run from 0 to {len(names) - 1}.")
    return int(feature)


def feature_named(ranker: Ranker, data: RankingData, text: str) -> str:
    """Return the feature that a text means: its name, or for features without names its number in LETOR's files."""
    names = feature_names(ranker, data)
    return f"feature {text}" if text not in names and f"feature {text}" in names else text
