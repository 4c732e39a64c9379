"""Conversion of the values of documents to the matrix that a model scores; null means missing.

Booleans are 1 or 0, as in tables. Arrays of numbers, the most common form, are parsed by a kernel (`native/json.c`)
directly into the matrix. All other input (objects, categories, errors) takes the general path, which reports errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.encoding import Column, Encoding
from toprank.data.roles import Roles
from toprank.errors import closest_match
from toprank.serving.requests import RefusedError, RequestedDocument, decoder_message, first_duplicate, invalid_json
from toprank.text.tables import TextFeatures, append_columns

_END = b",".ljust(41, b"\0")  # The kernel stops at the zeros.
_PLANS = 64  # Maximum number of cached column orders.
_SHOWN = 5
_LONG = 100  # Maximum length of a name in a message.
_LEVELS = 100  # Maximum number of levels listed per category.
_DAY = 86_400.0
_LONG_WAY = msgspec.json.Decoder(list[list[float | bool | str | None] | dict[str, float | bool | str | None]])
_PLACE = re.compile(r" at \$\[(\d+)\](?:\[(\d+|\.\.\.)\])?$")
_NOTHING: Mapping[str, int] = {}


class RequestRows(NamedTuple):
    """The documents of a request in the columns of a model.

    Attributes:
        unseen: number of values with unknown categories, by feature; they are treated as missing.
    """

    X: FloatArray
    unseen: Mapping[str, int] = _NOTHING


class ModelColumns:
    """The columns that a model requires.

    Columns with a role in the training data, such as the query id, may be among the values and are ignored.

    >>> raw = msgspec.json.Decoder(list[RequestedDocument]).decode(b'[{"id": 1, "values": {"b": null, "a": 2}}]')
    >>> ModelColumns(("a", "b"), 2).rows(raw, None).X
    array([[ 2., nan]])
    """

    def __init__(
        self,
        names: Sequence[str] | None,
        count: int,
        encoding: Encoding | None = None,
        text: TextFeatures | None = None,
        roles: Roles | None = None,
    ) -> None:
        self.names, self.count, self.encoding = None if names is None else tuple(names), count, encoding
        self.text = text
        self.ignored = () if roles is None else tuple(name for name in roles.names if name not in (self.names or ()))
        self._place = {name: place for place, name in enumerate(self.names or ())}
        self._plans: dict[tuple[tuple[str, ...], bool], IntArray] = {}
        kinds = [] if encoding is None else encoding.columns
        self._readers: dict[int, Reader] = {
            place: _READERS[column.kind](column) for place, column in enumerate(kinds) if column.kind in _READERS
        }

    def accepts_same_requests(self, other: ModelColumns) -> bool:
        """Return whether both models interpret a request in the same way."""
        kinds = [
            None if columns.encoding is None else [column.kind for column in columns.encoding.columns]
            for columns in (self, other)
        ]
        roles = [None if columns.text is None else columns.text.roles.document for columns in (self, other)]
        return (self.names, self.count, kinds[0], roles[0]) == (other.names, other.count, kinds[1], roles[1])

    def described(self) -> dict[str, Any]:
        """Return the types of columns, if not all are numbers."""
        words = {} if self.text is None else {"text": list(self.text.roles.document)}
        if self.encoding is None:
            return words
        columns = []
        for column in self.encoding.columns:
            levels = {"levels": list(column.levels[:_LEVELS]), "n_levels": len(column.levels)}
            columns.append({"name": column.name, "holds": column.in_words(), **(levels if column.is_category else {})})
        return {"columns": columns, **words}

    def rows(
        self,
        documents: Sequence[RequestedDocument],
        features: Sequence[str] | None,
        query_text: str | None = None,
        *,
        select: bool = False,
    ) -> RequestRows:
        """Return the documents as rows of the model's columns, including those computed from text.

        Args:
            documents: documents of one query.
            features: names of the values, in the order in which the documents contain them.
            query_text: text of the query.
            select: whether unknown columns are ignored instead of rejected.
        """
        rows = self._own_rows(documents, features, select)
        if self.text is None:
            return rows
        matched = self.text.columns([query_text or ""] * len(documents), self._texts(documents, query_text, select))
        return rows._replace(X=append_columns(rows.X, matched).astype(np.float64, copy=False))

    def _texts(
        self, documents: Sequence[RequestedDocument], query_text: str | None, select: bool
    ) -> dict[str, list[str]]:
        """Return the texts of the documents by field."""
        assert self.text is not None
        fields = self.text.roles.document
        if query_text is None:
            raise RefusedError(
                422, "The model matches words of the query with words of the documents. Give query_text."
            )
        for document in documents:
            given = document.text or {}
            missing = [name for name in fields if name not in given]
            if missing:
                raise RefusedError(
                    422,
                    f"Document {document.id!r} has no text {_listed(missing)}. Use null for a missing text.",
                )
            unknown = [name for name in given if name not in fields]
            if unknown and not select:
                known = _listed(list(fields))
                raise RefusedError(
                    422, f"Document {document.id!r}: unknown text {_listed(unknown)}. The model uses {known}."
                )
        return {name: [(document.text or {}).get(name) or "" for document in documents] for name in fields}

    def _own_rows(
        self, documents: Sequence[RequestedDocument], features: Sequence[str] | None, select: bool
    ) -> RequestRows:
        order = None if features is None else self._order(tuple(features), select)
        width = self.count if features is None else len(features)
        if not self._readers:
            X = np.empty((len(documents), width))
            text = b",".join([document.values for document in documents]) + _END
            if kernels.json_rows(np.frombuffer(text, np.uint8), X) == -1:
                return RequestRows(X if order is None else np.ascontiguousarray(X[:, order]))
        return self._long_way(documents, width, order, select)

    def _order(self, features: tuple[str, ...], select: bool) -> IntArray:
        """Return the index of each column of the model in `features`."""
        if (known := self._plans.get((features, select))) is not None:
            return known
        if (twice := first_duplicate(features)) is not None:
            raise RefusedError(422, f"The feature {_listed([twice])} is listed twice.")
        self._check_names(features, select, "features")
        place = {name: number for number, name in enumerate(features)}
        order = np.array([place[name] for name in self.names or ()], dtype=np.int64)
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        self._plans[features, select] = order
        return order

    def _check_names(self, given: Sequence[str], select: bool, where: str) -> None:
        if self.names is None:
            raise RefusedError(
                422,
                f"The {self.count} features of the model have no names. Give the values of each document as an array "
                "in the order of training.",
            )
        unknown = [name for name in given if name not in self._place and name not in self.ignored]
        if unknown and not select:
            close = closest_match(unknown[0], self.names)
            hint = f" (did you mean '{close}'?)" if close else ""
            raise RefusedError(
                422, f"In {where}: unknown feature {_listed(unknown)}{hint}. /v1/models lists all features."
            )
        there = set(given)
        missing = [name for name in self.names if name not in there]
        if missing:
            raise RefusedError(
                422, f"In {where}: the feature {_listed(missing)} is missing. Use null for an unknown value."
            )

    # ---- general path ----

    def _long_way(
        self, documents: Sequence[RequestedDocument], width: int, order: IntArray | None, select: bool
    ) -> RequestRows:
        decoded = _decoded(documents)
        X, unseen = np.empty((len(decoded), self.count)), Counter[str]()
        known: set[frozenset[str]] = set()
        for number, (document, row) in enumerate(zip(documents, decoded, strict=True)):
            if isinstance(row, dict):
                if frozenset(row) not in known:
                    self._check_names(list(row), select, f"document {document.id!r}")
                    known.add(frozenset(row))
                values = [row[name] for name in self.names or ()]
            elif len(row) != width:
                wanted = f"the model has {width} features" if order is None else f"{width} features are listed"
                raise RefusedError(
                    422,
                    f"Document {document.id!r} has {len(row)} values, but {wanted}. Use null for an unknown value.",
                )
            else:
                values = row if order is None else [row[place] for place in order.tolist()]
            X[number] = self._numbers(values, document, unseen)
        return RequestRows(X, unseen)

    def _numbers(self, values: list[Any], document: RequestedDocument, unseen: Counter[str]) -> list[Any]:
        """Return the values as numbers, None if missing; categories become codes."""
        numbers = list(values)
        for place, value in enumerate(values):
            read = self._readers.get(place)
            if value is None or (read is None and not isinstance(value, str)):
                continue
            name = f"number {place} (from 0)" if self.names is None else f"'{self.names[place]}'"
            if read is None:
                raise RefusedError(
                    422, f"Document {document.id!r} has the text {value!r} for the numeric feature {name}."
                )
            try:
                numbers[place] = read(value)
            except ValueError as problem:
                raise RefusedError(422, f"Document {document.id!r}, feature {name}: {problem}") from None
            if numbers[place] is None and value != "" and self.names is not None:
                unseen[self.names[place]] += 1
        return numbers


Reader = Callable[[Any], float | None]
"""A function that converts a JSON value to the number of the column; None for missing values and unknown categories."""


def _texts(column: Column) -> Reader:
    def code(value: Any) -> float | None:
        if not isinstance(value, str):
            shown = msgspec.json.encode(value).decode()
            raise ValueError(f"it is categorical with text values, but the value is {shown}.")
        return column.codes.get(value)

    return code


def _wholes(column: Column) -> Reader:
    """Return a reader of levels given as numbers (1 or 1.0) or as text."""
    codes: dict[Any, float] = dict(column.codes)
    codes |= {float(level): code for level, code in column.codes.items()}
    return codes.get


def _days(value: Any) -> float | None:
    """Return days since 1970-01-01 UTC."""
    if value == "":
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"it takes dates such as '2026-11-16' or '2026-11-16T05:30:00Z', but the value is {value!r}."
        ) from None
    utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return utc.timestamp() / _DAY


_READERS: dict[str, Callable[[Column], Reader]] = {"text": _texts, "whole": _wholes, "date": lambda _: _days}


def _decoded(documents: Sequence[RequestedDocument]) -> list[Any]:
    text = b"[" + b",".join([document.values for document in documents]) + b"]"
    try:
        rows: list[Any] = _LONG_WAY.decode(text)
    except msgspec.ValidationError as problem:
        fault = decoder_message(problem)
        if place := _PLACE.search(fault):
            about = f"Document {documents[int(place[1])].id!r}"
            value = "" if place[2] in (None, "...") else f", value number {place[2]} (from 0)"
            fault = fault[: place.start()]
            raise RefusedError(422, f"{about}{value}: {fault}.") from None
        raise RefusedError(422, f"The values of the documents have an invalid form: {fault}.") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise invalid_json(text, problem) from None
    return rows


def _listed(names: list[str]) -> str:
    """Return some names, and the number of further ones.

    >>> _listed(["a"]), _listed(list("abcdefg"))
    ("'a'", "'a', 'b', 'c', 'd', 'e' (and 2 more)")
    """
    more = len(names) - _SHOWN
    return ", ".join(f"'{name[:_LONG]}'" for name in names[:_SHOWN]) + (f" (and {more} more)" if more > 0 else "")
