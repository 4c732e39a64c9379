"""Common parts of the interpreters: strict JSON, numbers in single precision, and trees."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.errors import FormatError

Single = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


def strict_json(text: str) -> Any:
    """Parse JSON, rejecting NaN, Infinity and repeated keys like the parsers of search engines."""

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(pairs)
        if len(unique) < len(pairs):
            raise FormatError("An object contains a field twice.")
        return unique

    def refuse(word: str) -> None:
        raise FormatError(f"{word} is not JSON.")

    try:
        return json.loads(text, object_pairs_hook=unique_keys, parse_constant=refuse)
    except (json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"This is not valid JSON: {error}.") from None


def fields(value: Any, kinds: Mapping[str, type | tuple[type, ...]], name: str) -> dict[str, Any]:
    """Check that a value is an object with known fields of the right kinds, like a strict parser."""
    if not isinstance(value, dict):
        raise FormatError(f"{name} should be an object, not {type(value).__name__}.")
    for key, content in value.items():
        if key not in kinds:
            raise FormatError(f"{name} has the unknown field '{key}'.")
        if not isinstance(content, kinds[key]) or isinstance(content, bool) != (kinds[key] is bool):
            raise FormatError(f"Field '{key}' of {name} cannot be a {type(content).__name__}.")
    return value


def single(text: str | float) -> np.float32:
    """Convert a number of a file to single precision."""
    with np.errstate(over="ignore"):
        return np.float32(float(text))


def singles(X: Any) -> Single:
    """Return features in single precision, as the programs store them."""
    with np.errstate(over="ignore"):
        return np.asarray(X, dtype=np.float32)


def zeros_for_missing(X: Any) -> Single:
    """Return features in single precision with zeros for missing values."""
    values = singles(X)
    return np.where(np.isnan(values), np.float32(0.0), values)


def places_of(names: Iterable[str]) -> dict[str, int]:
    """Return the position of each name."""
    return {name: place for place, name in enumerate(names)}


class Trees:
    """The trees of a file: nodes by number; a leaf has feature −1."""

    def __init__(self) -> None:
        self.roots: list[int] = []
        self._rows: list[tuple[int, float, int, int, float, int]] = []

    def leaf(self, value: float | np.floating[Any]) -> int:
        """Add a leaf and return its number."""
        self._rows.append((-1, 0.0, -1, -1, float(value), 0))
        return len(self._rows) - 1

    def split(self, feature: int, threshold: float | np.floating[Any], left: int, right: int, mark: int = 0) -> int:
        """Add a node above two others and return its number. `mark` is passed to the decision function."""
        self._rows.append((feature, float(threshold), left, right, 0.0, mark))
        return len(self._rows) - 1

    def leaves(self, X: Array, goes_left: Callable[[Array, Array, Array], BoolArray], kind: Any) -> Iterator[Array]:
        """Yield the leaf values of each tree, one for each row of X.

        Args:
            X: features in the program's representation.
            goes_left: function that returns the decisions from values, thresholds and marks.
            kind: the precision of thresholds and leaves, np.float32 or np.float64.
        """
        feature, _, left, right, _, mark = (np.array(column) for column in zip(*self._rows, strict=True))
        with np.errstate(over="ignore"):
            threshold = np.array([row[1] for row in self._rows]).astype(kind)
            value = np.array([row[4] for row in self._rows]).astype(kind)
        for root in self.roots:
            node = np.full(len(X), root)
            while len(rows := np.flatnonzero(feature[node] >= 0)):
                at = node[rows]
                goes_there = goes_left(X[rows, feature[at]], threshold[at], mark[at])
                node[rows] = np.where(goes_there, left[at], right[at])
            yield value[node]
