"""Logs of events: lists and clicks are separate records, which are joined here.

A click belongs to the latest list of its search or session that shows the document. Clicks without such a list are
counted in `ClickLog.dropped`, like all other unusable records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toprank.clicks.assembly import plain
from toprank.clicks.log import Array, Numbered, numbered
from toprank.clicks.values import NO_NUMBER, RETURN, action_of
from toprank.compute import FloatArray, IntArray

UNSHOWN = "clicks on documents that no earlier list showed"


def shown_at(
    lists: tuple[IntArray, IntArray, IntArray], clicks: tuple[IntArray, IntArray, IntArray], n_documents: int
) -> IntArray:
    """Return the impression of each click, or -1; both are given as owner, document and time.

    It is the latest impression of the same owner and document that is not later than the click, and the first of
    several at one time.

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
    """Return the first impression of the owner and document of each event, or -1.

    >>> lists = (np.array([0, 0, 1]), np.array([5, 6, 5]))
    >>> first_shown(lists, (np.array([1, 0, 1]), np.array([5, 5, 6])), 7).tolist()
    [2, 0, -1]
    """
    shown, wanted = (owner * np.int64(n_documents) + document for owner, document in (lists, events))
    if not len(shown):
        return np.full(len(wanted), -1)
    order = None if (np.diff(shown) > 0).all() else np.argsort(shown, kind="stable")
    known = shown if order is None else shown[order]
    by_key = np.argsort(wanted)  # sorted lookups use the cache better
    place = np.empty(len(wanted), dtype=np.int64)
    place[by_key] = np.searchsorted(known, wanted[by_key])
    place = np.minimum(place, len(known) - 1)
    return np.where(known[place] == wanted, place if order is None else order[place], -1)


class Pieces:
    """Columns that are collected in batches."""

    def __init__(self) -> None:
        self.parts: defaultdict[str, list[Any]] = defaultdict(list)

    def add(self, **values: Any) -> None:
        """Add a batch of each column."""
        for name, column in values.items():
            self.parts[name].append(column)

    def __contains__(self, name: str) -> bool:
        """Return whether the column has a batch."""
        return bool(self.parts.get(name))

    def text(self, name: str) -> list[Any]:
        """Return the batches of a text column."""
        return self.parts.get(name) or [pa.array([], pa.string()).dictionary_encode()]

    def given_up_text(self, name: str) -> list[Any]:
        """Return the batches of a text column and release them."""
        strips = self.text(name)
        self.parts[name] = []
        return strips

    def array(self, name: str, kind: npt.DTypeLike) -> Array:
        """Return a numeric column."""
        return np.concatenate([np.empty(0, kind), *self.parts.get(name, [])]).astype(kind, copy=False)

    def given_up(self, name: str, kind: npt.DTypeLike) -> Array:
        """Return a numeric column and release its batches; ten million rows need 80 MB."""
        array = self.array(name, kind)
        self.parts[name] = []
        return array


def present(ids: Array, number: IntArray) -> Numbered:
    """Factorize again, with only the ids that occur."""
    kept = numbered(number)
    return Numbered(ids[kept.ids], kept.number)


class EventKinds:
    """The kinds of events that count, by index; clicks are 0."""

    def __init__(self, click: str | None, weights: Mapping[str, float | None], served: bool) -> None:
        self.click, self.weights, self.served = click, weights, served
        others = [name for name in weights if name not in ("click", click)]
        returned = [RETURN] if "purchase" in others else []
        self.names = ["click", *others, *returned, *(["dwell"] if served else [])]

    def of(self, actions: Any) -> Any:
        """Return the index of the kind of each action; null if it does not count."""
        coded = actions.dictionary_encode()
        known = coded.dictionary.to_pylist()
        numbers = [self._number(name) for name in known]
        return pc.take(pa.array(numbers, pa.int8()), coded.indices)

    def _number(self, action: str | None) -> int | None:
        if action is None:
            return None
        is_click = action == self.click if self.click else action.lower().endswith("click")
        name = action_of(action)
        return 0 if is_click else self.names.index(name) if name in self.names[1:] else None


def seconds_in(times: Any, n: int) -> FloatArray:
    """Return times as seconds since 1970, from milliseconds or ISO 8601; NaN if missing."""
    if times is None or pa.types.is_null(times.type):
        return np.full(n, np.nan)
    times = plain(times)
    if pa.types.is_string(times.type):
        try:
            times = pc.cast(times, pa.timestamp("ms", "UTC"))
        except pa.ArrowInvalid:
            try:
                times = pc.cast(times, pa.timestamp("ms"))
            except pa.ArrowInvalid:
                return np.full(n, np.nan)
    if pa.types.is_timestamp(times.type) or pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("ms", getattr(times.type, "tz", None))).cast(pa.int64())
    if not (pa.types.is_integer(times.type) or pa.types.is_floating(times.type)):
        return np.full(n, np.nan)
    return np.asarray(times.cast("double").fill_null(np.nan).to_numpy(zero_copy_only=False)) / 1000.0


def amounts_in(values: Any, n: int, missing: Counter[str]) -> FloatArray:
    """Return the values that events state; NaN without a number."""
    if values is None or pa.types.is_null(values.type):
        return np.full(n, np.nan)
    values = plain(values)
    if pa.types.is_string(values.type):
        amounts = np.array([_number(value) for value in values.to_pylist()])
        missing[NO_NUMBER] += int((np.isnan(amounts) & ~np.asarray(values.is_null())).sum())
        return amounts
    amounts = np.asarray(values.cast("double").fill_null(np.nan).to_numpy(zero_copy_only=False))
    missing[NO_NUMBER] += int(np.isinf(amounts).sum())
    return np.where(np.isinf(amounts), np.nan, amounts)


def _number(text: str | None) -> float:
    try:
        number = float(text or "nan")
    except ValueError:
        number = np.nan
    return number if np.isfinite(number) else np.nan


def numbered_together(name: str, *sides: Pieces) -> tuple[Array, list[IntArray]]:
    """Factorize columns of several tables with common codes, and release their batches."""
    parts = [side.given_up_text(name) for side in sides]
    all_of_it = numbered(pa.chunked_array([piece for part in parts for piece in part]))
    ends = np.cumsum([sum(map(len, part)) for part in parts])[:-1]
    number = all_of_it.number
    if len(all_of_it.ids) < 2**31:
        number = number.astype(np.int32)  # several columns are held at once; this halves their memory
    return all_of_it.ids, np.split(number, ends)
