"""Values of impressions: sums of weighted events (clicks, purchases, …), less returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.log import Array, sums
from toprank.compute import FloatArray, IntArray
from toprank.errors import DataError, Remedy

DEFAULT_VALUES: Mapping[str, float | None] = {"purchase": None}
"""Values if none are given: the amount of each purchase."""
RETURN, _PURCHASE = "return", "purchase"
AGAIN = "duplicate events, counted once"
NO_NUMBER = "values that are not numbers, ignored"
EARLY = "events earlier than their list, counted because clocks differ"
UNCLICKED = "events other than clicks on documents that were never clicked, counted"
UNBOUGHT = "returns without a purchase from the list, ignored"
UNVALUED = "returns without a value, counted as 0"
OVERRETURNED = "returns below 0 or above the value of the purchase, limited to that range"
_RETURN_TOLERANCE = 1e-9  # Relative tolerance for rounding, if a purchase and its return are logged in parts.
_NAMES = {"cart": "add_to_cart"}  # Names of actions in User Behavior Insights (UBI).


def action_of(name: str) -> str:
    """Return the name of an action in logs: ``cart`` is UBI's ``add_to_cart``.

    >>> action_of("Cart")
    'add_to_cart'
    """
    return _NAMES.get(name.strip().lower(), name.strip().lower())


def weights_of(named: str | Mapping[str, float | str]) -> dict[str, float | None]:
    """Parse the weight of each kind of event; None if each event contains an amount.

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
        raise DataError(f"values must map kinds of events to weights, such as {_EXAMPLE!r}, not {named!r}.")
    weights: dict[str, float | None] = {}
    for name, given in pairs:
        kind = action_of(str(name))
        if not kind or kind in weights:
            raise DataError(f"values must name each kind of event once, such as {_EXAMPLE!r}, not {named!r}.")
        if kind == RETURN:
            raise DataError("Remove 'return' from values: a return always subtracts the value of its purchase.")
        weights[kind] = None if str(given).strip().lower() == "value" else _weight(given, str(name).strip())
    if not weights:
        raise DataError(f"values name no kind of event. Give them as {_EXAMPLE!r}.")
    return weights


class ValueEvents(NamedTuple):
    """Events: impression (-1 if none), search–document pair as one number, kind, amount (or NaN) and id."""

    impression: IntArray
    pair: IntArray
    kind: IntArray
    amount: FloatArray
    event: IntArray

    def of_kind(self, kind: int) -> npt.NDArray[np.bool_]:
        """Return whether each event is of a kind and belongs to an impression."""
        return np.asarray((self.kind == kind) & (self.impression >= 0))

    def amounts(self, which: npt.NDArray[np.bool_], weight: float | None) -> FloatArray:
        """Return the values of the selected events: `weight` for each, or the amounts of the events (NaN if missing) if
        None.
        """
        return self.amount[which] if weight is None else np.full(int(which.sum()), weight)


def tally(
    events: ValueEvents,
    n: int,
    kinds: Sequence[str],
    weights: Mapping[str, float | None],
    click: str | None,
    once: bool,
) -> tuple[npt.NDArray[np.bool_], dict[str, Array], dict[str, int]]:
    """Aggregate events by impression: return clicks, the columns ``value`` and ``dwell`` if present, and counts of
    problems.

    Args:
        events: the events.
        n: number of impressions.
        kinds: names of the kinds; the first is clicks.
        weights: value of each kind of event; None for the amount of the event. Returns subtract from purchases, at most
            down to 0.
        click: name of the click action, if it is not ``click``.
        once: whether a click counts once per document, search and id; events with a value always do.

    >>> done = ValueEvents(*map(np.array, ([0, 0, 0], [0, 0, 0], [0, 1, 1], [np.nan, 5.0, 5.0], [0, 0, 0])))
    >>> clicks, columns, counts = tally(done, 2, ["click", "purchase"], {"purchase": None}, None, True)
    >>> clicks.tolist(), columns["value"].tolist(), counts[AGAIN]
    ([True, False], [5.0, 0.0], 1)
    """
    first = _is_first(events) if len(kinds) > 1 or once else np.ones(len(events.impression), dtype=bool)
    first |= (events.kind == 0) & (not once)
    again = int((~first & (events.impression >= 0)).sum())
    if not first.all():
        events = ValueEvents(*(column[first] for column in events))
    clicks = np.zeros(n, dtype=bool)
    clicks[events.impression[events.of_kind(0)]] = True
    counts, columns = {AGAIN: again}, dict[str, Array]()
    value, valued = np.zeros(n), np.zeros(n, dtype=bool)
    acted_on = np.zeros(n, dtype=bool)
    for name, weight in weights.items():
        kind = 0 if name in ("click", click) else kinds.index(name)
        which = events.of_kind(kind)
        at, amount = events.impression[which], events.amounts(which, weight)
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
    if weights and (valued.any() or set(weights) != set(DEFAULT_VALUES)):
        columns["value"] = value
    if "dwell" in kinds and (which := events.of_kind(kinds.index("dwell"))).any():
        dwell = np.full(n, np.nan)
        np.fmax.at(dwell, events.impression[which], events.amount[which])
        columns["dwell"] = dwell
    return clicks, columns, counts


def _returned(
    events: ValueEvents, kind: int, worth: FloatArray, purchases: npt.NDArray[np.bool_], weight: float | None
) -> tuple[FloatArray, dict[str, int]]:
    """Return the value that returns subtract from each impression, at most the value of its purchases; and counts of
    problems.
    """
    sold = np.zeros(len(worth), dtype=bool)
    sold[events.impression[purchases]] = True
    which = events.of_kind(kind)
    at, amount = events.impression[which], events.amounts(which, weight)
    bought = sold[at]
    asked = sums(at[bought], np.nan_to_num(amount[bought]), len(worth))
    back = np.clip(asked, np.minimum(worth, 0.0), np.maximum(worth, 0.0))
    counts = {
        UNBOUGHT: int((~bought).sum()),
        UNVALUED: int(np.isnan(amount[bought]).sum()),
        OVERRETURNED: int((np.abs(asked - back) > _RETURN_TOLERANCE * np.abs(worth)).sum()),
    }
    return back, counts


def _is_first(events: ValueEvents) -> npt.NDArray[np.bool_]:
    """Return whether each event is the first of its kind, search, document and id."""
    spans = [int(codes.max(initial=0)) + 1 for codes in (events.kind, events.event)]
    of = events.pair
    if int(events.pair.max(initial=0)) >= 2**62 // (spans[0] * spans[1]):
        of = np.unique(events.pair, return_inverse=True)[1]
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
        raise DataError(f"The value of '{name}' is {given!r}. Give a number, or 'value' for the amount of each event.")
    return weight


def numbers_in(column: Array) -> FloatArray:
    """Return a column of values as numbers; an empty cell is 0, and invalid cells are rejected with their row."""
    try:
        values = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        odd = next(place for place, value in enumerate(column.tolist()) if not _is_number(value))
        raise DataError(
            f"The value of impression {odd} is {column[odd]!r}, not a number.",
            remedy=Remedy(
                "Name the column of values by {value}, or False for none.", "Leave such cells empty.", value=...
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
