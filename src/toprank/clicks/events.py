"""Logs of events: what was shown and what was clicked stand apart, and are joined here.

A click belongs to the latest list of its search or session that shows the document; one that no list shows is counted
in `ClickLog.left_out`, as is everything else that cannot be used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.clicks.log import Array, Numbered, numbered
from toprank.compute import IntArray

UNSHOWN = "clicks on documents that no earlier list showed"


def shown_at(
    lists: tuple[IntArray, IntArray, IntArray], clicks: tuple[IntArray, IntArray, IntArray], n_documents: int
) -> IntArray:
    """Return for each click the impression that it is on, -1 if none; both are given as owner, document and time.

    It is the latest one of the same owner and document that is not later; of several at one time the first.

    >>> lists = (np.array([0, 0, 0]), np.array([5, 6, 5]), np.array([0, 0, 2]))
    >>> shown_at(lists, (np.array([0, 0, 1]), np.array([5, 5, 5]), np.array([1, 3, 9])), 7).tolist()
    [0, 2, -1]
    """
    n = len(lists[0])
    owner, document, time = (np.concatenate(both) for both in zip(lists, clicks, strict=True))
    key = numbered(owner * np.int64(n_documents) + document).number
    row = np.arange(len(key))
    is_click = row >= n
    order = np.lexsort((np.where(is_click, row, -row), is_click, time, key))
    key, row, is_click = key[order], row[order], is_click[order]
    latest = np.maximum.accumulate(np.where(is_click, -1, np.arange(len(row))))
    shown_row = np.where((latest >= 0) & (key[latest] == key), row[latest], -1)
    of_click = np.empty(len(clicks[0]), dtype=np.int64)
    of_click[row[is_click] - n] = shown_row[is_click]
    return of_click


def first_shown(lists: tuple[IntArray, IntArray], events: tuple[IntArray, IntArray], n_documents: int) -> IntArray:
    """Return for each event the first impression of its owner and document, -1 if none: `shown_at` without times.

    >>> lists = (np.array([0, 0, 1]), np.array([5, 6, 5]))
    >>> first_shown(lists, (np.array([1, 0, 1]), np.array([5, 5, 6])), 7).tolist()
    [2, 0, -1]
    """
    shown, wanted = (owner * np.int64(n_documents) + document for owner, document in (lists, events))
    if not len(shown):
        return np.full(len(wanted), -1)
    order = None if (np.diff(shown) > 0).all() else np.argsort(shown, kind="stable")
    known = shown if order is None else shown[order]
    by_key = np.argsort(wanted)  # neighbours are looked for where the last one was
    place = np.empty(len(wanted), dtype=np.int64)
    place[by_key] = np.searchsorted(known, wanted[by_key])
    place = np.minimum(place, len(known) - 1)
    return np.where(known[place] == wanted, place if order is None else order[place], -1)


class Pieces:
    """Columns that grow a strip at a time."""

    def __init__(self, *names: str) -> None:
        self.parts: dict[str, list[Any]] = {name: [] for name in names}

    def add(self, **values: Any) -> None:
        """A strip of each column."""
        for name, column in values.items():
            self.parts.setdefault(name, []).append(column)

    def __contains__(self, name: str) -> bool:
        """Whether the column has a strip."""
        return bool(self.parts.get(name))

    def text(self, name: str) -> list[Any]:
        """The strips of a column of text."""
        import pyarrow as pa

        return self.parts.get(name) or [pa.array([], pa.string()).dictionary_encode()]

    def array(self, name: str, kind: npt.DTypeLike) -> Array:
        """A column of numbers."""
        return np.concatenate([np.empty(0, kind), *self.parts.get(name, [])]).astype(kind, copy=False)

    def given_up(self, name: str, kind: npt.DTypeLike) -> Array:
        """A column of numbers whose strips are not needed again: of ten million rows, each is 80 MB."""
        array = self.array(name, kind)
        self.parts[name] = []
        return array


def present(ids: Array, number: IntArray) -> Numbered:
    """Number only the ids that occur."""
    kept = numbered(number)
    return Numbered(ids[kept.ids], kept.number)
