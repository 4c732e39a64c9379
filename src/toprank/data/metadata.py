"""Metadata: columns that are not features, such as the device, the language or the date of a query.

A column that is constant within every query is stored with one value per query, any other column with one value per
document. The length of a column shows which; subsets and concatenation preserve it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import Array
from toprank.data.arrays import check_surrogates, check_utf8, is_missing, strings
from toprank.data.queries import Queries
from toprank.data.texts import TextRoles, packed_texts, text_column, unpacked_texts
from toprank.errors import DataError, UnknownNameError

ARRAY_PREFIX = "carried."
"""Prefix of the array names in a stored copy, followed by the number of the column."""


class Metadata(Mapping[str, Array]):
    """Metadata columns by name, each with one value for each query or, if it varies within a query, each document.

    >>> import toprank as tr
    >>> log = {"device": ["phone", "phone", "desk"], "rank": [1, 2, 1]}
    >>> data = tr.RankingData([[0.1], [0.2], [0.3]], [0, 1, 2], qid=[7, 7, 8], metadata=log)
    >>> data.metadata
    Metadata(device: one for each query, rank: one for each document)
    >>> data.metadata["device"].tolist(), data.select([1]).metadata["rank"].tolist()
    (['phone', 'desk'], [1])
    """

    text: TextRoles | None
    """The columns with the text of queries and documents."""

    def __init__(self, columns: Mapping[str, Array], n_queries: int, text: TextRoles | None = None) -> None:
        for array in columns.values():
            array.flags.writeable = False
        self._columns, self._n_queries, self.text = dict(columns), n_queries, text

    @classmethod
    def from_columns(cls, values_by_name: Any, queries: Queries, order: Array | None, text: Any = None) -> Metadata:
        """Validate columns with one value for each document or query; values per document are put in `order`.

        `text` names the columns with the text of queries and documents. Default: those of a `Metadata`.
        """
        if not isinstance(values_by_name, Mapping):
            raise DataError(
                f"metadata must be a mapping from names to columns, such as {{'device': [...]}}, not a "
                f"{type(values_by_name).__name__}."
            )
        known = getattr(values_by_name, "text", None) if text is None else TextRoles.from_value(text)
        if known is not None and text is None and not set(known.columns) <= set(values_by_name):
            known = None
        for name in () if known is None else known.columns:
            if name not in values_by_name:
                raise UnknownNameError("metadata column", name, values_by_name or ("(there is no metadata)",))
        columns = {}
        for name, values in values_by_name.items():
            if not isinstance(name, str) or not name.strip():
                raise DataError(f"The name of a metadata column must be a non-empty string, not {name!r}.")
            check_utf8(name, "name of a metadata column")
            is_text = known is not None and name in known.columns
            column = (
                text_column(values, name) if is_text else np.array(checked_column(values, name))
            )  # Copy, so that later changes by the caller have no effect.
            if len(column) == queries.n_documents:
                columns[name] = shortened(column if order is None else column[order], queries)
            elif len(column) == len(queries):
                columns[name] = column
            else:
                raise DataError(
                    f"The metadata column '{name}' has {len(column)} values for {queries.n_documents} documents in "
                    f"{len(queries)} queries; give one value for each document or for each query."
                )
        return _metadata(columns, len(queries), known)

    def __reduce__(self) -> Any:
        return _metadata, (self._columns, self._n_queries, self.text)

    def __getitem__(self, name: str) -> Array:
        if name not in self._columns:
            raise UnknownNameError("metadata column", name, self._columns or ("(there is no metadata)",))
        return self._columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        each = {name: "query" if len(column) == self._n_queries else "document" for name, column in self.items()}
        return f"Metadata({', '.join(f'{name}: one for each {what}' for name, what in each.items())})"

    def take(self, rows: Array | slice, chosen: Array, queries: Queries) -> Metadata:
        """Select the columns for some rows, which belong to the `chosen` queries and form `queries`."""
        return Metadata(
            {
                name: column[chosen] if len(column) == self._n_queries else shortened(column[rows], queries)
                for name, column in self.items()
            },
            len(queries),
            self.text,
        )

    def without_text(self) -> Metadata:
        """Return the columns that are not text."""
        gone = () if self.text is None else self.text.columns
        return _metadata({name: column for name, column in self.items() if name not in gone}, self._n_queries)

    def arrays(self) -> dict[str, Array]:
        """Return the columns under numbered names, since a column name may not be a valid file name."""
        return {
            f"{ARRAY_PREFIX}{number}": packed_texts(column) if column.dtype.kind == "O" else column
            for number, column in enumerate(self.values())
        }

    @classmethod
    def concatenate(cls, parts: Sequence[tuple[Metadata, Queries]], queries: Queries) -> Metadata:
        """Concatenate the columns of parts, which form `queries`."""
        names = list(parts[0][0])
        for metadata, _ in parts[1:]:
            if set(metadata) != set(names):
                odd = sorted(set(metadata) ^ set(names))[0]
                raise DataError(
                    f"Some parts have the metadata column '{odd}' and others do not; give it to all or to none."
                )
            if metadata.text != parts[0][0].text:
                raise DataError("The parts have different text columns; read all of them with the same text=.")
        columns = {}
        for name in names:
            pieces = [
                column if len(column) == its.n_documents else its.broadcast(column)
                for column, its in ((metadata[name], its) for metadata, its in parts)
            ]
            if len({_family(piece) for piece in pieces}) > 1:
                raise DataError(
                    f"The metadata column '{name}' has different types in different parts; convert it to one type."
                )
            columns[name] = shortened(np.concatenate(pieces), queries)
        return _metadata(columns, len(queries), parts[0][0].text)


NO_METADATA = Metadata({}, 0)
"""The metadata of data without any; a singleton, so that it can be compared with `is`."""


def _metadata(columns: Mapping[str, Array], n_queries: int, text: TextRoles | None = None) -> Metadata:
    return Metadata(columns, n_queries, text) if columns else NO_METADATA


def metadata_from_arrays(
    names: Sequence[str], arrays: Mapping[str, Array], n_queries: int, text: TextRoles | None = None
) -> Metadata:
    """Rebuild metadata from arrays written by `Metadata.arrays`; raise a ValueError if text is damaged."""
    columns = {name: arrays[f"{ARRAY_PREFIX}{number}"] for number, name in enumerate(names)}
    columns |= {name: unpacked_texts(columns[name]) for name in (() if text is None else text.columns)}
    return _metadata(columns, n_queries, text)


def same_values(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Compare two columns element-wise; missing values are equal."""
    if a.dtype.kind == "O":  # Text columns have no missing values.
        return np.asarray(a == b, dtype=bool)
    result: npt.NDArray[np.bool_] = (a == b) | ((a != a) & (b != b))
    return result


def shortened(per_document: Array, queries: Queries) -> Array:
    """Shorten a column to one value per query if it is constant within every query."""
    differs = ~same_values(per_document[1:], per_document[:-1])
    differs[queries.offsets[1:-1] - 1] = False
    return per_document.view() if differs.any() else per_document[queries.offsets[:-1]]


def judges_of(metadata: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the distinct values of the column ``judge``; empty without such a column.

    >>> judges_of({"judge": np.array(["ann", "gpt", "ann"])})
    ('ann', 'gpt')
    """
    return tuple(np.unique(metadata["judge"]).astype(str).tolist()) if "judge" in metadata else ()


def one_per_query(name: str, column: Array, queries: Queries, qids: Array) -> Array:
    """Return a column with one value for each query; raise an error if it varies within a query."""
    if len(column) == len(queries):
        return column
    differs = ~same_values(column, column[np.repeat(queries.offsets[:-1], queries.sizes)])
    query = int(queries.document_query[int(np.argmax(differs))])
    first, other = column[queries.offsets[query]], column[int(np.argmax(differs))]
    raise DataError(
        f"The column '{name}' has several values within query {qids[query]} ({first} and {other}), so it cannot divide "
        "the queries. Choose another column, or add its value to the query id."
    )


def _family(column: Array) -> str:
    return "number" if column.dtype.kind in "if" else column.dtype.kind


def checked_column(values: Any, name: str) -> Array:
    """Return values as integers, floats, dates or text; booleans become the words true and false."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"The metadata column '{name}' must be one-dimensional.")
    if array.dtype.kind == "O":
        array = _from_objects(array.tolist(), name)
    if array.dtype.kind == "b":
        return np.where(array, "true", "false")
    if array.dtype.kind in "iu":
        if array.dtype == np.uint64 and len(array) and array.max() >= 2**63:
            return array.astype(str)
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind == "T":
        array = array.astype(str)
    if array.dtype.kind == "U":
        check_surrogates(array, f"The metadata column '{name}'")
        return array
    if array.dtype.kind == "M" and np.datetime_data(array.dtype)[0] != "generic":
        return array
    raise DataError(f"The metadata column '{name}' has the type {array.dtype}; give text, numbers, booleans or dates.")


def _from_objects(values: list[Any], name: str) -> Array:
    """Convert Python objects of one type to an array; missing values become empty text, NaN or NaT."""
    missing = list(map(is_missing, values))
    known = [value for value, gone in zip(values, missing, strict=True) if not gone]

    def filled(hole: Any) -> list[Any]:
        return [hole if gone else value for value, gone in zip(values, missing, strict=True)]

    if all(isinstance(value, str) for value in known):
        return strings(filled(""), f"The metadata column '{name}'")
    if all(isinstance(value, bool | np.bool_) for value in known):
        return np.array([("true" if value else "false") if value != "" else "" for value in filled("")])
    if all(isinstance(value, datetime.date) for value in known):
        plain = [value.astimezone(datetime.UTC).replace(tzinfo=None) if getattr(value, "tzinfo", None) else value
                 for value in filled("NaT")]  # fmt: skip
        exact = "us" if any(isinstance(value, datetime.datetime) for value in known) else "D"
        return np.array(plain, dtype=f"datetime64[{exact}]")
    if all(isinstance(value, int | float | np.integer | np.floating) for value in known):
        return np.array(filled(float("nan")) if any(missing) else values)
    kinds = sorted({type(value).__name__ for value in known})
    raise DataError(
        f"The metadata column '{name}' mixes the types {', '.join(kinds)}; give only text, only numbers, only booleans "
        "or only dates."
    )
