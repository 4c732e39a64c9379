"""`Encoding`: how table columns are encoded as numbers, consistently across tables.

A category becomes its code, the index of its level; a date becomes days since 1970-01-01 UTC; a duration becomes days.
Missing values and unknown levels become NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.errors import DataError, Remedy, first_of, warn_user

Kind = Literal["number", "date", "duration", "text", "whole"]
"""Content of a column; ``text`` and ``whole`` are categories whose levels are texts or numbers."""
Level = str | int | float
"""A level in a table: a text, or a number for numeric categories."""

MIN_CELLS = 10
"""Minimum number of documents of a level with a one-hot column; weights of rarer levels would be mostly noise."""

_CATEGORIES = ("text", "whole")
_WORDS = {
    "number": "numbers",
    "date": "dates",
    "duration": "durations",
    "text": "categories by text",
    "whole": "categories by number",
}
TRAINING = "the training data"
_MICROSECONDS_PER_DAY = 86_400_000_000
_MAX_FLOAT32_CODES = 1 << 24  # float32 is exact for smaller codes
_MAX_EXACT_FLOAT64 = 1 << 53  # float64 is exact for smaller integers

Array = npt.NDArray[Any]


def kind_of(type: Any) -> Kind | None:
    """Return the kind of a column of an Arrow type; None if it cannot be a feature."""
    from pyarrow import types

    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if any(is_one(type) for is_one in numeric):
        return "number"
    if types.is_date(type) or types.is_timestamp(type):
        return "date"
    if types.is_duration(type):
        return "duration"
    if types.is_dictionary(type):
        inside = kind_of(type.value_type)
        return "text" if types.is_null(type.value_type) else "whole" if inside == "number" else inside
    return "text" if is_text(type) else None


def is_text(type: Any) -> bool:
    """Return whether an Arrow type is text."""
    from pyarrow import types

    return bool(types.is_string(type) or types.is_large_string(type) or types.is_string_view(type))


def _coded(column: Any) -> tuple[list[str | None], npt.NDArray[np.int64]]:
    """Return the distinct values of an Arrow array as texts, and the index of the value of each cell (−1 if empty)."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        plain = column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column
        column = plain.dictionary_encode()
    if len(column.dictionary) == 0:
        return [], np.full(len(column), -1)
    places = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return [_level(value) for value in column.dictionary.to_pylist()], places


def _level(value: Any) -> str | None:
    """Return the level of a value; None for empty cells and empty texts, which CSV does not distinguish.

    Equal numbers give the same level whatever their type, since pandas converts integers to floats if some are missing.
    """
    if isinstance(value, str):
        return value or None
    if value is None or value != value:
        return None
    whole = isinstance(value, int) or (value % 1 == 0 and abs(value) < _MAX_EXACT_FLOAT64)
    return str(int(value)) if whole else repr(float(value))


def levels_of(column: Any) -> tuple[set[str], int]:
    """Return the levels of an Arrow array and the number of its non-empty cells."""
    values, places = _coded(column)
    counts = np.bincount(places + 1, minlength=len(values) + 1)[1:].tolist()
    seen = {value: count for value, count in zip(values, counts, strict=True) if value is not None and count}
    return set(seen), sum(count for value, count in zip(values, counts, strict=True) if value is not None)


@dataclass(frozen=True)
class Column:
    """Encoding of one feature column.

    >>> import pyarrow as pa
    >>> Column("brand", "text", ("acme", "zenith")).numbers(pa.array(["zenith", None, "acme", "new"])).tolist()
    [1.0, nan, 0.0, nan]
    """

    name: str
    kind: Kind = "number"
    levels: tuple[str, ...] = ()

    @property
    def is_category(self) -> bool:
        """True if the values are category codes."""
        return self.kind in _CATEGORIES

    @property
    def was_empty(self) -> bool:
        """True for a category without levels, whose cells in the training data were all empty."""
        return self.is_category and not self.levels

    @classmethod
    def from_levels(cls, name: str, kind: Kind, levels: Iterable[str]) -> Self:
        """Build a category with sorted levels."""
        return cls(name, kind, tuple(sorted(levels, key=_number if kind == "whole" else None)))

    @cached_property
    def codes(self) -> dict[str, int]:
        """Code of each level."""
        return {level: code for code, level in enumerate(self.levels)}

    @property
    def values(self) -> list[Level]:
        """The levels as texts or numbers, as in tables."""
        return [_number(level) for level in self.levels] if self.kind == "whole" else list(self.levels)

    def takes(self, kind: Kind | None) -> bool:
        """Return whether a table column of this kind can be encoded as this column."""
        return kind == self.kind or (self.kind in ("whole", "duration") and kind == "number")

    def numbers(self, column: Any) -> Any:
        """Encode an Arrow array; numbers stay unchanged, all other values become floats."""
        import pyarrow as pa

        if self.kind == "number":
            return column
        if pa.types.is_null(column.type):
            return np.full(len(column), np.nan)
        if self.is_category:
            if kind_of(column.type) == "number":
                return self.codes_of_numbers(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
            values, places = _coded(column)
            return self.recoded(values)[places]
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if kind_of(column.type) == "number":  # already in days
            return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        units = pa.timestamp("us", getattr(column.type, "tz", None)) if self.kind == "date" else pa.duration("us")
        return column.cast(units, safe=False).cast(pa.int64()).to_numpy(zero_copy_only=False) / _MICROSECONDS_PER_DAY

    def recoded(self, levels: Sequence[str | None]) -> FloatArray:
        """Return the codes of levels of other data (NaN if unknown), followed by NaN for empty cells."""
        codes = self.codes
        known = [np.nan if level is None else codes.get(level, np.nan) for level in levels]
        return np.array([*known, np.nan], dtype=np.float64)

    def codes_of_numbers(self, values: Array) -> FloatArray:
        """Return the codes of numeric levels."""
        levels = np.array([float(level) for level in self.levels] or [np.nan])
        places = np.searchsorted(levels, values).clip(max=len(levels) - 1)
        return np.where(levels[places] == values, places.astype(np.float64), np.nan)

    def cells(self, values: Array) -> Any:
        """Decode stored numbers to an Arrow array; the inverse of `numbers`."""
        import pyarrow as pa

        missing = np.isnan(values)
        if self.kind == "number":
            return pa.array(values)
        if self.is_category:
            codes = pa.array(np.where(missing, 0, values).astype(np.int32), mask=missing)
            return pa.DictionaryArray.from_arrays(codes, pa.array(self.values, type=self.arrow_type().value_type))
        microseconds = np.where(missing, 0, np.round(values.astype(np.float64) * _MICROSECONDS_PER_DAY)).astype(
            np.int64
        )
        return pa.array(microseconds, mask=missing).cast(self.arrow_type())

    def arrow_type(self) -> Any:
        """Return the Arrow type of `cells`, for any kind except numbers."""
        import pyarrow as pa

        if self.is_category:
            whole = all(level.lstrip("-").isdigit() for level in self.levels)
            numbers = pa.int64() if whole else pa.float64()
            return pa.dictionary(pa.int32(), numbers if self.kind == "whole" else pa.string())
        return pa.timestamp("us", "UTC") if self.kind == "date" else pa.duration("us")

    def in_words(self) -> str:
        """Describe the content of the column."""
        return _WORDS[self.kind]


@dataclass(frozen=True)
class Encoding:
    """Encodings of all columns of X, if some are not numbers; part of the data and of model files.

    >>> known = Encoding((Column("price"), Column("brand", "text", ("acme", "zenith"))))
    >>> known.categories, Encoding.from_plain(known.plain()) == known
    ((1,), True)
    """

    columns: tuple[Column, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def categories(self) -> tuple[int, ...]:
        """Indices of the category columns."""
        return tuple(place for place, column in enumerate(self.columns) if column.is_category)

    @property
    def is_plain(self) -> bool:
        """True if all columns are numbers, so that no encoding is needed."""
        return all(column.kind == "number" for column in self.columns)

    @property
    def fits_single(self) -> bool:
        """True if float32 is exact for all columns that are not numbers."""
        return all(
            column.kind == "number" or (column.is_category and len(column.levels) < _MAX_FLOAT32_CODES)
            for column in self.columns
        )

    def named(self, names: Sequence[str] | None) -> Encoding | None:
        """Return the encoding with other column names; None without names."""
        if names is None:
            return None
        if len(names) != len(self.columns):
            raise DataError(
                f"The encoding describes {len(self.columns)} columns, but X has {len(names)}; give encoding=None if "
                "all of them are numbers."
            )
        if tuple(names) == self.names:
            return self
        return Encoding(tuple(replace(column, name=name) for column, name in zip(self.columns, names, strict=True)))

    def plain(self) -> list[dict[str, Any]]:
        """Return a JSON-serializable description."""
        return [
            {"name": column.name, "kind": column.kind} | ({"levels": list(column.levels)} if column.is_category else {})
            for column in self.columns
        ]

    @classmethod
    def from_plain(cls, value: Any) -> Self:
        """Read the description that `plain` returned.

        Raises:
            DataError: the description is damaged; the message completes the sentence "… is damaged: …".
        """
        columns = []
        for entry in value if isinstance(value, list) else [None]:
            if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
                raise DataError("the description of the columns is missing")
            levels = entry.get("levels", [])
            if entry.get("kind") not in get_args(Kind) or not isinstance(levels, list):
                raise DataError(f"the column '{entry['name']}' has an unknown kind")
            if not all(isinstance(level, str) for level in levels) or len(set(levels)) < len(levels):
                raise DataError(f"the levels of the column '{entry['name']}' are not distinct texts")
            if entry["kind"] == "whole":
                _check_whole(entry["name"], levels)
            columns.append(Column(entry["name"], entry["kind"], tuple(levels)))
        if len({column.name for column in columns}) < len(columns):
            raise DataError("two columns have the same name")
        return cls(tuple(columns))

    # ---- translation between encodings ----

    def translated(self, X: Any, theirs: Encoding) -> Any:
        """Translate rows with another encoding to this one, matching columns and levels by name.

        X is a dense array, or sparse if all columns are numbers. Unknown levels become NaN.
        """
        self.check_columns({column.name: column for column in theirs.columns})
        places = [theirs.names.index(name) for name in self.names]
        same = all(mine == theirs.columns[place] for mine, place in zip(self.columns, places, strict=True))
        if same:
            return X if places == list(range(len(theirs.columns))) else X[:, places]
        rows, unknown = np.array(X[:, places]), UnknownLevelTracker(self)
        for number, (mine, place) in enumerate(zip(self.columns, places, strict=True)):
            other = theirs.columns[place]
            if mine.is_category and mine != other:
                before = rows[:, number].copy()
                rows[:, number] = (
                    mine.recoded(other.levels)[codes_of(before, len(other.levels))]
                    if other.is_category
                    else mine.codes_of_numbers(before)
                )
                unknown.update(number, rows[:, number], partial(other.cells, before))
        unknown.warn()
        return rows

    def check_columns(
        self, theirs: Mapping[str, Column], holding: Callable[[str], str] | None = None, where: str = TRAINING
    ) -> None:
        """Raise an error if data lack a column or have one of another kind.

        Args:
            theirs: columns of the data by name.
            holding: function that describes the content of a column. Default: `Column.in_words`.
            where: name of the data with this encoding, for the message.
        """
        absent = [name for name in self.names if name not in theirs]
        if absent:
            raise DataError(
                f"The {'column' if len(absent) == 1 else 'columns'} {listed(absent)} of {where} "
                f"{'is' if len(absent) == 1 else 'are'} missing. Give all columns (cells may be empty);",
                remedy=Remedy(
                    "use like= to read data with the columns of a ranker or of other data.",
                    "table columns are matched by name.",
                ),
            )
        holding = holding or (lambda name: theirs[name].in_words())
        wrong = [
            f"column '{mine.name}' holds {holding(mine.name)}, not {mine.in_words()}"
            for mine in self.columns
            if not mine.takes(theirs[mine.name].kind)
            and not (where == TRAINING and mine.was_empty and theirs[mine.name].kind in (*_CATEGORIES, "number"))
        ]
        if wrong:
            raise DataError(
                f"C{'; '.join(wrong)[1:]}, as in {where}. Convert {'it' if len(wrong) == 1 else 'each'} to the type "
                "that it has there."
            )

    @classmethod
    def concatenate(cls, parts: Sequence[Encoding | None], names: Sequence[str] | None) -> Encoding | None:
        """Merge the encodings of several parts with the same column names; categories get the union of their levels."""
        if all(part is None for part in parts) or names is None:
            return None
        plain = cls(tuple(Column(name) for name in names))
        known = [plain if part is None else part for part in parts]
        columns = []
        for place, name in enumerate(names):
            of_parts = [part.columns[place] for part in known]
            kinds = {column.kind for column in of_parts}
            if len(kinds) > 1:
                holdings = " and ".join(
                    sorted(column.in_words() for column in {column.kind: column for column in of_parts}.values())
                )
                raise DataError(f"Column '{name}' holds {holdings} in different parts; convert it to one type.")
            levels = {level for column in of_parts for level in column.levels}
            columns.append(Column.from_levels(name, of_parts[0].kind, levels))
        return cls(tuple(columns))

    def counts(self, X: Any) -> tuple[FloatArray, ...]:
        """Return the number of rows with each level, for each category of X."""
        counts = []
        for place in self.categories:
            size = len(self.columns[place].levels)
            counts.append(np.bincount(codes_of(X[:, place], size) + 1, minlength=size + 1)[1:].astype(np.float64))
        return tuple(counts)


class UnknownCategoriesWarning(UserWarning):
    """A category column has only levels that do not occur in the training data, so all its cells count as missing."""


class UnknownLevelTracker:
    """Category columns without any known level so far, with examples of their unknown levels.

    All of a few documents may have a new brand; with many documents, a wrong column or spelling is more likely.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._columns = encoding.columns
        self._held: dict[int, set[str]] = {place: set() for place in encoding.categories}
        self._cells = dict.fromkeys(self._held, 0)

    def update(self, place: int, codes: Array, cells: Callable[[], Any]) -> None:
        """Add rows of a column: their codes and, used only if all codes are missing, their cells as an Arrow array."""
        if place not in self._held:
            return
        if not np.isnan(codes).all():
            del self._held[place]
            return
        levels, count = levels_of(cells())
        self._cells[place] += count
        self._held[place] |= set(sorted(levels)[:3])

    def warn(self) -> None:
        """Warn about columns with at least `MIN_CELLS` cells and no known level."""
        foreign = [
            (self._columns[place], held) for place, held in self._held.items() if self._cells[place] >= MIN_CELLS
        ]
        if not foreign:
            return
        phrases = [
            f"'{column.name}' holds {_some(sorted(held))}, not {_some(column.levels)}" for column, held in foreign
        ]
        many = len(foreign) > 1
        warn_user(
            f"{'Columns have' if many else 'A column has'} no category of the training data, so all of "
            f"{'their' if many else 'its'} cells count as missing: {'; '.join(phrases)}. Check that the "
            f"{'columns are' if many else 'column is'} right and spelled as in the training data.",
            UnknownCategoriesWarning,
        )


def _some(levels: Sequence[str]) -> str:
    return first_of([f"'{level}'" for level in levels], 3) or "nothing"


def _number(level: str) -> int | float:
    """Parse a numeric level, exactly if it is an integer."""
    try:
        return int(level)
    except ValueError:
        return float(level)


def _check_whole(name: str, levels: Sequence[str]) -> None:
    try:
        numbers = [_number(level) for level in levels]
        fine = numbers == sorted(numbers) and [_level(number) for number in numbers] == list(levels)
    except (ValueError, OverflowError):
        fine = False
    if not fine:
        raise DataError(f"the levels of the column '{name}' are not numbers in order")


_MAX_LISTED_NAMES = 12


def listed(names: Sequence[str]) -> str:
    """List quoted names for a sentence; long lists are truncated.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed([str(n) for n in range(40)])[-16:]
    ("'a'", "'a', 'b' and 'c'", "'10' and 29 more")
    """
    quoted = [f"'{name}'" for name in names]
    if len(quoted) > _MAX_LISTED_NAMES:
        return first_of(quoted, _MAX_LISTED_NAMES - 1)
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def codes_of(values: Array, size: int) -> npt.NDArray[np.int64]:
    """Return stored codes as integers; −1 for values that are not a valid code."""
    values = np.asarray(values, dtype=np.float64)
    known = (values >= 0) & (values < size) & (values == np.floor(values))
    return np.where(known, values, -1).astype(np.int64)
