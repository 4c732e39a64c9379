"""Columns that are carried along and are no features: the device, the language, the date of a query.

A column whose documents agree within every query is held once for each query, any other once for each document; which
of the two it is, its length tells, and taking parts or joining them keeps it so.
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
"""How a store calls the columns: by this and their number."""


class Metadata(Mapping[str, Array]):
    """Columns by name, each with one value for each query, or for each document where these differ within a query.

    >>> import toprank as tr
    >>> log = {"device": ["phone", "phone", "desk"], "rank": [1, 2, 1]}
    >>> data = tr.RankingData([[0.1], [0.2], [0.3]], [0, 1, 2], qid=[7, 7, 8], metadata=log)
    >>> data.metadata
    Metadata(device: one for each query, rank: one for each document)
    >>> data.metadata["device"].tolist(), data.select([1]).metadata["rank"].tolist()
    (['phone', 'desk'], [1])
    """

    text: TextRoles | None
    """Which of them hold the words of queries and documents."""

    def __init__(self, columns: Mapping[str, Array], n_queries: int, text: TextRoles | None = None) -> None:
        for array in columns.values():
            array.flags.writeable = False
        self._columns, self._n_queries, self.text = dict(columns), n_queries, text

    @classmethod
    def from_columns(cls, values_by_name: Any, queries: Queries, order: Array | None, text: Any = None) -> Metadata:
        """Check the columns of a caller, one value for each document or query; those of documents are put in `order`.

        `text` says which columns hold the words of queries and documents; by default, those that a `Metadata` names.
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
                raise DataError(f"A metadata column must have a name, a piece of text; {name!r} is none.")
            check_utf8(name, "name of a metadata column")
            is_text = known is not None and name in known.columns
            column = (
                text_column(values, name) if is_text else np.array(checked_column(values, name))
            )  # a copy of our own
            if len(column) == queries.n_documents:
                columns[name] = shortened(column if order is None else column[order], queries)
            elif len(column) == len(queries):
                columns[name] = column
            else:
                raise DataError(
                    f"The metadata column '{name}' has {len(column)} values for {queries.n_documents} documents in "
                    f"{len(queries)} queries; give one for each document or one for each query."
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
        """The columns of some rows, which belong to the `chosen` queries and make `queries`."""
        return Metadata(
            {
                name: column[chosen] if len(column) == self._n_queries else shortened(column[rows], queries)
                for name, column in self.items()
            },
            len(queries),
            self.text,
        )

    def without_text(self) -> Metadata:
        """The other columns."""
        gone = () if self.text is None else self.text.columns
        return _metadata({name: column for name, column in self.items() if name not in gone}, self._n_queries)

    def arrays(self) -> dict[str, Array]:
        """The columns under the names that a store knows them by: their own may not be names of files."""
        return {
            f"{ARRAY_PREFIX}{number}": packed_texts(column) if column.dtype.kind == "O" else column
            for number, column in enumerate(self.values())
        }

    @classmethod
    def concatenate(cls, parts: Sequence[tuple[Metadata, Queries]], queries: Queries) -> Metadata:
        """The columns of parts one behind the other, which make `queries`."""
        names = list(parts[0][0])
        for metadata, _ in parts[1:]:
            if set(metadata) != set(names):
                odd = sorted(set(metadata) ^ set(names))[0]
                raise DataError(
                    f"Some parts have the metadata column '{odd}' and others do not; give it to all or to none."
                )
            if metadata.text != parts[0][0].text:
                raise DataError("Not all parts say the same of which columns hold the text; read them with one text=.")
        columns = {}
        for name in names:
            pieces = [
                column if len(column) == its.n_documents else its.broadcast(column)
                for column, its in ((metadata[name], its) for metadata, its in parts)
            ]
            if len({_family(piece) for piece in pieces}) > 1:
                raise DataError(f"The metadata column '{name}' holds values of different kinds in different parts.")
            columns[name] = shortened(np.concatenate(pieces), queries)
        return _metadata(columns, len(queries), parts[0][0].text)


NO_METADATA = Metadata({}, 0)
"""What data without metadata columns have: always this very object."""


def _metadata(columns: Mapping[str, Array], n_queries: int, text: TextRoles | None = None) -> Metadata:
    return Metadata(columns, n_queries, text) if columns else NO_METADATA


def metadata_from_arrays(
    names: Sequence[str], arrays: Mapping[str, Array], n_queries: int, text: TextRoles | None = None
) -> Metadata:
    """Make columns of a store's arrays, as `Metadata.arrays` wrote them; ValueError if text is damaged."""
    columns = {name: arrays[f"{ARRAY_PREFIX}{number}"] for number, name in enumerate(names)}
    columns |= {name: unpacked_texts(columns[name]) for name in (() if text is None else text.columns)}
    return _metadata(columns, n_queries, text)


def same_values(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Return where two columns agree; missing values agree with each other."""
    if a.dtype.kind == "O":  # texts, none of which is missing
        return np.asarray(a == b, dtype=bool)
    result: npt.NDArray[np.bool_] = (a == b) | ((a != a) & (b != b))
    return result


def shortened(per_document: Array, queries: Queries) -> Array:
    """Shorten a column to one value for each query if the documents of every query agree."""
    differs = ~same_values(per_document[1:], per_document[:-1])
    differs[queries.offsets[1:-1] - 1] = False
    return per_document.view() if differs.any() else per_document[queries.offsets[:-1]]


def judges_of(metadata: Mapping[str, Array]) -> tuple[str, ...]:
    """Return who judged, by the column ``judge`` if there is one.

    >>> judges_of({"judge": np.array(["ann", "gpt", "ann"])})
    ('ann', 'gpt')
    """
    return tuple(np.unique(metadata["judge"]).astype(str).tolist()) if "judge" in metadata else ()


def one_per_query(name: str, column: Array, queries: Queries, qids: Array) -> Array:
    """Return a column with one value for each query; refuse one whose values differ within a query."""
    if len(column) == len(queries):
        return column
    differs = ~same_values(column, column[np.repeat(queries.offsets[:-1], queries.sizes)])
    query = int(queries.document_query[int(np.argmax(differs))])
    first, other = column[queries.offsets[query]], column[int(np.argmax(differs))]
    raise DataError(
        f"The column '{name}' differs within query {qids[query]} ({first} and {other}), so it does not divide the "
        "queries. Make one query of each, for example by putting both into the query id, or choose another column."
    )


def _family(column: Array) -> str:
    return "number" if column.dtype.kind in "if" else column.dtype.kind


def checked_column(values: Any, name: str) -> Array:
    """Values as whole numbers, floats, dates or text; truth values are the words true and false."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"The metadata column '{name}' must be a plain list of values.")
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
    raise DataError(f"The metadata column '{name}' holds {array.dtype}; give text, numbers, truth values or dates.")


def _from_objects(values: list[Any], name: str) -> Array:
    """Python objects as one kind of value; what is missing is empty text, NaN or no time."""
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
        f"The metadata column '{name}' holds values of the kinds {', '.join(kinds)}; give text, numbers, truth values "
        "or dates, and one kind only."
    )
