"""Values of documents become the matrix that a model scores: every column there, none unknown, null = missing.

A truth value is 1 or 0, as it is in a table. Arrays of numbers, which most requests are, go straight from their text
into the matrix (`native/json.c`). Whatever is not plainly that (objects, categories, mistakes) takes the long way,
which has a sentence for everything.
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
from toprank.errors import closest_match
from toprank.serving.requests import RefusedError, RequestedDocument, decoder_message, first_duplicate, invalid_json
from toprank.text.tables import TextFeatures, joined_columns

_END = b",".ljust(41, b"\0")  # the zeros that the kernel stops at
_PLANS = 64  # orders of columns that are remembered
_SHOWN = 5
_LONG = 100  # characters of a name that are told
_LEVELS = 100  # of a category, that are listed
_DAY = 86_400.0
_LONG_WAY = msgspec.json.Decoder(list[list[float | bool | str | None] | dict[str, float | bool | str | None]])
_PLACE = re.compile(r" at \$\[(\d+)\](?:\[(\d+|\.\.\.)\])?$")
_NOTHING: Mapping[str, int] = {}


class RequestRows(NamedTuple):
    """The documents of a request as a model sees them.

    Attributes:
        unseen: How often a category had a level that the training data did not have, by feature; it counts as missing.
    """

    X: FloatArray
    unseen: Mapping[str, int] = _NOTHING


class ModelColumns:
    """The columns that a model takes.

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
    ) -> None:
        self.names, self.count, self.encoding = None if names is None else tuple(names), count, encoding
        self.text = text
        self._place = {name: place for place, name in enumerate(self.names or ())}
        self._plans: dict[tuple[tuple[str, ...], bool], IntArray] = {}
        kinds = [] if encoding is None else encoding.columns
        self._readers: dict[int, Reader] = {
            place: _READERS[column.kind](column) for place, column in enumerate(kinds) if column.kind in _READERS
        }

    def accepts_same_requests(self, other: ModelColumns) -> bool:
        """Whether a request to one of them says the same to the other."""
        kinds = [
            None if columns.encoding is None else [column.kind for column in columns.encoding.columns]
            for columns in (self, other)
        ]
        roles = [None if columns.text is None else columns.text.roles.document for columns in (self, other)]
        return (self.names, self.count, kinds[0], roles[0]) == (other.names, other.count, kinds[1], roles[1])

    def described(self) -> dict[str, Any]:
        """What columns hold, where some hold other things than numbers."""
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
        """The documents as rows of the model's columns, those of their words among them.

        Args:
            documents: of one query.
            features: the names of the values, in the order in which the documents give them.
            query_text: the words of the query.
            select: whether columns that the model does not know are left out, not refused.
        """
        rows = self._own_rows(documents, features, select)
        if self.text is None:
            return rows
        matched = self.text.columns([query_text or ""] * len(documents), self._texts(documents, query_text, select))
        return rows._replace(X=joined_columns(rows.X, matched).astype(np.float64, copy=False))

    def _texts(
        self, documents: Sequence[RequestedDocument], query_text: str | None, select: bool
    ) -> dict[str, list[str]]:
        """The texts of the documents, by field."""
        assert self.text is not None
        fields = self.text.roles.document
        if query_text is None:
            raise RefusedError(
                422, "The model matches the words of the query with those of the documents: give query_text."
            )
        for document in documents:
            given = document.text or {}
            missing = [name for name in fields if name not in given]
            if missing:
                raise RefusedError(
                    422,
                    f"Document {document.id!r} has no text {_listed(missing)}; where there is none, give null in its "
                    "text.",
                )
            unknown = [name for name in given if name not in fields]
            if unknown and not select:
                known = _listed(list(fields))
                raise RefusedError(
                    422, f"Document {document.id!r}: the model knows no text {_listed(unknown)}, but {known}."
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
        """Where the model's columns are among `features`."""
        if (known := self._plans.get((features, select))) is not None:
            return known
        if (twice := first_duplicate(features)) is not None:
            raise RefusedError(422, f"The feature {_listed([twice])} is named twice.")
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
                f"The model knows its {self.count} features by their order, not by names: give each document's values "
                "as an array in the order of training.",
            )
        unknown = [name for name in given if name not in self._place]
        if unknown and not select:
            close = closest_match(unknown[0], self.names)
            hint = f" (did you mean '{close}'?)" if close else ""
            raise RefusedError(
                422, f"In {where}: the model has no feature {_listed(unknown)}{hint}; /v1/models names them all."
            )
        there = set(given)
        missing = [name for name in self.names if name not in there]
        if missing:
            raise RefusedError(
                422, f"In {where}: the feature {_listed(missing)} is missing; where a value is not known, give null."
            )

    # ---- the long way ----

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
                wanted = f"the model takes {width}" if order is None else f"{width} features are named"
                raise RefusedError(
                    422,
                    f"Document {document.id!r} has {len(row)} values, but {wanted}; where a value is not known, give "
                    "null.",
                )
            else:
                values = row if order is None else [row[place] for place in order.tolist()]
            X[number] = self._numbers(values, document, unseen)
        return RequestRows(X, unseen)

    def _numbers(self, values: list[Any], document: RequestedDocument, unseen: Counter[str]) -> list[Any]:
        """The values as numbers, None where missing; levels become their codes."""
        numbers = list(values)
        for place, value in enumerate(values):
            read = self._readers.get(place)
            if value is None or (read is None and not isinstance(value, str)):
                continue
            name = f"number {place} (from 0)" if self.names is None else f"'{self.names[place]}'"
            if read is None:
                raise RefusedError(
                    422, f"Document {document.id!r} has the word {value!r} for the feature {name}, which takes numbers."
                )
            try:
                numbers[place] = read(value)
            except ValueError as problem:
                raise RefusedError(422, f"Document {document.id!r}, feature {name}: {problem}") from None
            if numbers[place] is None and value != "" and self.names is not None:
                unseen[self.names[place]] += 1
        return numbers


Reader = Callable[[Any], float | None]
"""From a value of JSON to the column's number; None: missing, or a level that was not seen."""


def _texts(column: Column) -> Reader:
    def code(value: Any) -> float | None:
        if not isinstance(value, str):
            shown = msgspec.json.encode(value).decode()
            raise ValueError(f"it holds categories, whose levels are texts, not values such as {shown}.")
        return column.codes.get(value)

    return code


def _wholes(column: Column) -> Reader:
    """Levels may come as numbers, 1 as 1.0, or as texts."""
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
        raise ValueError(f"it holds dates, such as '2026-11-16' or '2026-11-16T05:30:00Z', not {value!r}.") from None
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
        raise RefusedError(422, f"The values of the documents do not have the expected form: {fault}.") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise invalid_json(text, problem) from None
    return rows


def _listed(names: list[str]) -> str:
    """Some names, and how many more there are.

    >>> _listed(["a"]), _listed(list("abcdefg"))
    ("'a'", "'a', 'b', 'c', 'd', 'e' (and 2 more)")
    """
    more = len(names) - _SHOWN
    return ", ".join(f"'{name[:_LONG]}'" for name in names[:_SHOWN]) + (f" (and {more} more)" if more > 0 else "")
