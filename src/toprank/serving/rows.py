"""Values of documents become the matrix that a model scores: every column there, none unknown, null = missing.

Arrays of numbers, which most requests are, go straight from their text into the matrix (`native/json.c`). Whatever is
not plainly that (objects, words, mistakes) takes the long way, which has a sentence for everything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.errors import nearest
from toprank.serving.requests import Document, RefusedError, malformed, plain_fault

__all__ = ["Columns"]

_END = b",".ljust(41, b"\0")  # the zeros that the kernel stops at
_PLANS = 64  # orders of columns that are remembered
_SHOWN = 5
_LONG_WAY = msgspec.json.Decoder(list[list[float | str | None] | dict[str, float | str | None]])
_PLACE = re.compile(r" at \$\[(\d+)\](?:\[(\d+|\.\.\.)\])?$")


class Columns:
    """The columns that a model takes.

    >>> raw = msgspec.json.Decoder(list[Document]).decode(b'[{"id": 1, "values": {"b": null, "a": 2}}]')
    >>> Columns(("a", "b"), 2).matrix(raw, None)
    array([[ 2., nan]])
    """

    def __init__(self, names: Sequence[str] | None, count: int) -> None:
        self.names, self.count = None if names is None else tuple(names), count
        self._place = {name: place for place, name in enumerate(self.names or ())}
        self._plans: dict[tuple[tuple[str, ...], bool], IntArray] = {}

    def matrix(
        self, documents: Sequence[Document], features: Sequence[str] | None, *, select: bool = False
    ) -> FloatArray:
        """The documents as rows of the model's columns.

        Args:
            documents: of one query.
            features: the names of the values, in the order in which the documents give them.
            select: whether columns that the model does not know are left out, not refused.
        """
        order = None if features is None else self._order(tuple(features), select)
        width = self.count if features is None else len(features)
        X = np.empty((len(documents), width))
        text = b",".join([document.values for document in documents]) + _END
        if kernels.json_rows(np.frombuffer(text, np.uint8), X) != -1:
            return self._long_way(documents, None if features is None else tuple(features), order, select)
        return X if order is None else np.ascontiguousarray(X[:, order])

    def _order(self, features: tuple[str, ...], select: bool) -> IntArray:
        """Where the model's columns are among `features`."""
        if (known := self._plans.get((features, select))) is not None:
            return known
        if len(set(features)) < len(features):
            twice = next(name for name in features if features.count(name) > 1)
            raise RefusedError(422, f"The feature '{twice}' is named twice.")
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
            close = nearest(unknown[0], self.names)
            hint = f" (did you mean '{close}'?)" if close else ""
            raise RefusedError(
                422, f"In {where}: the model has no feature {_listed(unknown)}{hint}; /v1/models names them all."
            )
        missing = [name for name in self.names if name not in set(given)]
        if missing:
            raise RefusedError(
                422, f"In {where}: the feature {_listed(missing)} is missing; where a value is not known, give null."
            )

    # ---- the long way ----

    def _long_way(
        self, documents: Sequence[Document], features: tuple[str, ...] | None, order: IntArray | None, select: bool
    ) -> FloatArray:
        rows = _decoded(documents)
        width = self.count if features is None else len(features)
        X = np.empty((len(rows), self.count))
        known: set[frozenset[str]] = set()
        for number, (document, row) in enumerate(zip(documents, rows, strict=True)):
            if isinstance(row, dict):
                if frozenset(row) not in known:
                    self._check_names(list(row), select, f"document {document.id!r}")
                    known.add(frozenset(row))
                values = [row[name] for name in self.names or ()]
            elif len(row) != width:
                raise RefusedError(
                    422,
                    f"Document {document.id!r} has {len(row)} values, but "
                    + (f"the model takes {width}" if features is None else f"{width} features are named")
                    + "; where a value is not known, give null.",
                )
            else:
                values = row if order is None else [row[place] for place in order.tolist()]
            X[number] = self._numbers(values, document)
        return X

    def _numbers(self, values: list[Any], document: Document) -> list[Any]:
        """The values as numbers, None where missing; words are refused."""
        for place, value in enumerate(values):
            if isinstance(value, str):
                name = str(place) if self.names is None else f"'{self.names[place]}'"
                raise RefusedError(
                    422, f"Document {document.id!r} has the word {value!r} for the feature {name}, which takes numbers."
                )
        return values


def _decoded(documents: Sequence[Document]) -> list[Any]:
    text = b"[" + b",".join([document.values for document in documents]) + b"]"
    try:
        rows: list[Any] = _LONG_WAY.decode(text)
    except msgspec.ValidationError as problem:
        said = plain_fault(problem)
        if place := _PLACE.search(said):
            about = f"Document {documents[int(place[1])].id!r}"
            value = "" if place[2] in (None, "...") else f", value number {place[2]} (from 0)"
            said = said[: place.start()]
            raise RefusedError(422, f"{about}{value}: {said}.") from None
        raise RefusedError(422, f"The values of the documents have not the form that is asked for: {said}.") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise malformed(text, problem) from None
    return rows


def _listed(names: list[str]) -> str:
    """Some names, and how many more there are.

    >>> _listed(["a"]), _listed(list("abcdefg"))
    ("'a'", "'a', 'b', 'c', 'd', 'e' (and 2 more)")
    """
    more = len(names) - _SHOWN
    return ", ".join(f"'{name}'" for name in names[:_SHOWN]) + (f" (and {more} more)" if more > 0 else "")
