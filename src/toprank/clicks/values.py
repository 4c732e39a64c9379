"""What users did as one number: events of several kinds, each with a weight or its worth, less what came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.log import Array, sums
from toprank.compute import FloatArray, IntArray
from toprank.errors import DataError, Remedy

USUAL_VALUES: Mapping[str, float | None] = {"purchase": None}
"""Where nobody says what counts: what was bought, by what it was worth."""
RETURN, _PURCHASE = "return", "purchase"
AGAIN = "events that were logged twice, and count once"
NO_NUMBER = "values that are not numbers, which do not count"
EARLY = "events that are earlier than their list, which count all the same: clocks differ"
UNCLICKED = "purchases and the like of documents that were never clicked, which count all the same"
UNBOUGHT = "returns of what was not bought from the list, which do not count"
UNVALUED = "returns without a value, which take nothing away"
OVERRETURNED = "returns of more than was bought, or of less than nothing, which take away what was bought, or nothing"
_ROUNDING = 1e-9  # of what was bought in several pieces, and returned in others
_NAMES = {"cart": "add_to_cart"}  # as UBI calls them


def action_of(name: str) -> str:
    """An action as logs call it: ``cart`` is UBI's ``add_to_cart``.

    >>> action_of("Cart")
    'add_to_cart'
    """
    return _NAMES.get(name.strip().lower(), name.strip().lower())


def weights_of(named: str | Mapping[str, float | str]) -> dict[str, float | None]:
    """Return what each kind of event counts; None if each says so itself.

    >>> weights_of("click=1,cart=5,purchase=value")
    {'click': 1.0, 'add_to_cart': 5.0, 'purchase': None}
    """
    pairs: list[tuple[str, Any]]
    if isinstance(named, str):
        parts = (part.partition("=") for part in named.split(",") if part.strip())
        pairs = [(name, text.strip()) for name, _, text in parts]
    elif isinstance(named, Mapping):
        pairs = list(named.items())
    else:
        raise DataError(f"values must say what each kind of event is worth, such as {_EXAMPLE!r}, not {named!r}.")
    weights: dict[str, float | None] = {}
    for name, given in pairs:
        kind = action_of(str(name))
        if not kind or kind in weights:
            raise DataError(f"values name each kind of event once, such as {_EXAMPLE!r}; not {named!r}.")
        if kind == RETURN:
            raise DataError("values need not name returns: a return takes away what its purchase was worth.")
        weights[kind] = None if str(given).strip().lower() == "value" else _weight(given, str(name).strip())
    if not weights:
        raise DataError(f"values name no kind of event; give them as {_EXAMPLE!r}.")
    return weights


class ValueEvents(NamedTuple):
    """Events: of each its impression (-1: none), search and document as one number, kind, amount (or NaN) and id."""

    at: IntArray
    of: IntArray
    kind: IntArray
    amount: FloatArray
    event: IntArray

    def of_kind(self, kind: int) -> npt.NDArray[np.bool_]:
        """Whether each is of a kind, on an impression."""
        return np.asarray((self.kind == kind) & (self.at >= 0))

    def amounts(self, which: npt.NDArray[np.bool_], weight: float | None) -> FloatArray:
        """Return what some events count: this weight each, or what each says itself (NaN if nothing) if it is None."""
        return self.amount[which] if weight is None else np.full(int(which.sum()), weight)


def tallied(
    events: ValueEvents,
    n: int,
    kinds: Sequence[str],
    weights: Mapping[str, float | None],
    click: str | None,
    once: bool,
) -> tuple[npt.NDArray[np.bool_], dict[str, Array], dict[str, int]]:
    """What was done with each of n impressions: clicks; columns ``value`` and ``dwell``, where there are any; counts.

    Args:
        events: what was done.
        n: number of impressions.
        kinds: names of the kinds; the first are clicks.
        weights: what each kind counts, None: its amount. Returns take away what purchases count, and no more than that.
        click: the name of clicks, where they are called otherwise.
        once: whether a click counts once for each document of a search and id; events with a value do in any case.

    >>> done = ValueEvents(*map(np.array, ([0, 0, 0], [0, 0, 0], [0, 1, 1], [np.nan, 5.0, 5.0], [0, 0, 0])))
    >>> clicks, columns, counts = tallied(done, 2, ["click", "purchase"], {"purchase": None}, None, True)
    >>> clicks.tolist(), columns["value"].tolist(), counts[AGAIN]
    ([True, False], [5.0, 0.0], 1)
    """
    first = _first(events) if len(kinds) > 1 or once else np.ones(len(events.at), dtype=bool)
    first |= (events.kind == 0) & (not once)
    again = int((~first & (events.at >= 0)).sum())
    if not first.all():
        events = ValueEvents(*(column[first] for column in events))
    clicks = np.zeros(n, dtype=bool)
    clicks[events.at[events.of_kind(0)]] = True
    counts, columns = {AGAIN: again}, dict[str, Array]()
    value, valued = np.zeros(n), np.zeros(n, dtype=bool)
    acted_on = np.zeros(n, dtype=bool)
    for name, weight in weights.items():
        kind = 0 if name in ("click", click) else kinds.index(name)
        which = events.of_kind(kind)
        at, amount = events.at[which], events.amounts(which, weight)
        counts[f"{name} without a value, which count as 0"] = int(np.isnan(amount).sum())
        worth = sums(at, np.nan_to_num(amount), n)
        valued[at] = True
        if kind:
            acted_on[at] = True
        if name == _PURCHASE and RETURN in kinds:
            back, of_returns = _returned(events, kinds.index(RETURN), worth, which, weight)
            worth, counts = worth - back, counts | of_returns
        value += worth
    counts[UNCLICKED] = int((acted_on & ~clicks).sum())
    if weights and (valued.any() or set(weights) != set(USUAL_VALUES)):
        columns["value"] = value
    if "dwell" in kinds and (which := events.of_kind(kinds.index("dwell"))).any():
        dwell = np.full(n, np.nan)
        np.fmax.at(dwell, events.at[which], events.amount[which])
        columns["dwell"] = dwell
    return clicks, columns, counts


def _returned(
    events: ValueEvents, kind: int, worth: FloatArray, purchases: npt.NDArray[np.bool_], weight: float | None
) -> tuple[FloatArray, dict[str, int]]:
    """Return what returns take away from each impression's purchases, all of them at most; and counts."""
    sold = np.zeros(len(worth), dtype=bool)
    sold[events.at[purchases]] = True
    which = events.of_kind(kind)
    at, amount = events.at[which], events.amounts(which, weight)
    bought = sold[at]
    asked = sums(at[bought], np.nan_to_num(amount[bought]), len(worth))
    back = np.clip(asked, np.minimum(worth, 0.0), np.maximum(worth, 0.0))
    counts = {
        UNBOUGHT: int((~bought).sum()),
        UNVALUED: int(np.isnan(amount[bought]).sum()),
        OVERRETURNED: int((np.abs(asked - back) > _ROUNDING * np.abs(worth)).sum()),
    }
    return back, counts


def _first(events: ValueEvents) -> npt.NDArray[np.bool_]:
    """Return whether each event is the first of its kind, search, document and id."""
    spans = [int(codes.max(initial=0)) + 1 for codes in (events.kind, events.event)]
    of = events.of
    if int(events.of.max(initial=0)) >= 2**62 // (spans[0] * spans[1]):
        of = np.unique(events.of, return_inverse=True)[1]
    key = (of * spans[0] + events.kind) * spans[1] + events.event
    first = np.zeros(len(key), dtype=bool)
    first[np.unique(key, return_index=True)[1]] = True
    return first


_EXAMPLE = "click=1,cart=5,purchase=value"


def _weight(given: Any, name: str) -> float:
    try:
        weight = float(given)
    except (TypeError, ValueError):
        weight = np.nan
    if isinstance(given, bool) or not np.isfinite(weight):
        raise DataError(
            f"The value of '{name}' is {given!r}; give a number, or 'value' to take the value that each event carries."
        )
    return weight


def numbers_in(column: Array) -> FloatArray:
    """A column of values as numbers; an empty cell is 0, and what is no finite number is refused by its row."""
    try:
        values = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        odd = next(place for place, value in enumerate(column.tolist()) if not _is_number(value))
        raise DataError(
            f"The value of impression {odd} is {column[odd]!r}, which is no number.",
            remedy=Remedy(
                "Give the column of values by {value}; False: there is none.", "Leave such cells empty.", value=...
            ),
        ) from None
    values = np.where(np.isnan(values), 0.0, values)
    if not np.isfinite(values).all():
        raise DataError(f"The value of impression {int(np.argmin(np.isfinite(values)))} is infinite.")
    return values


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return value is None
    return True
