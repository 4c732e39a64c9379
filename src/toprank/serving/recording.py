"""Writes the lists of a service, and events on them, to its journal: every list has an id, which its events name."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.serving.answers import Done
from toprank.serving.counting import Counters
from toprank.serving.impressions import OpenedList, Seal, name_of
from toprank.serving.journal import Journal, ObjectOf, ShownAttributes, ShownList, UserAttributes, UserEvent
from toprank.serving.models import Served
from toprank.serving.requests import Event, Events, Id, InterleaveRequest, RankRequest, RefusedError
from toprank.serving.trials import Arm, Exploration, Swap

_KEPT = 100_000  # events that are remembered, so that one that is sent again is known; readers know them all
_ACTIONS = {"cart": "add_to_cart"}  # as UBI calls them; the others are called alike
_VALUED = ("purchase", "return", "dwell")


class Recorder:
    """Writes lists and events.

    Args:
        journal: where to write; None: nothing is written, but events are understood.
        seal: signs the ids of lists.
        counters: where events are counted.
        days: how old a list may be when an event on it arrives.
        exploration: which lists to change a little; None: none.
    """

    def __init__(
        self, journal: Journal | None, seal: Seal, counters: Counters, days: float, exploration: Exploration | None
    ) -> None:
        self.journal, self._seal, self._counters, self._days = journal, seal, counters, days
        self._exploration = exploration
        self._noted: OrderedDict[tuple[Any, ...], None] = OrderedDict()

    def new_list(self, version: str) -> str:
        """The id of a new list."""
        return self._seal.ranked(version)

    def swap(self, length: int) -> Swap:
        """Draw what is done to a list of so many documents."""
        return Swap() if self._exploration is None else self._exploration.drawn(length)

    def ranked(
        self, list_id: str, model: Served, request: RankRequest, done: Done, swap: Swap, arm: Arm | None
    ) -> None:
        """Keep a list of one model."""
        if self.journal is None:
            return
        ids, values, order = done.ids, done.values, done.order
        try:
            "".join(ids)  # the quickest way to see that all are text; every microsecond here is one of each request
        except TypeError:
            ids = list(map(str, ids))
        ranked = itemgetter(*order) if len(order) > 1 else lambda rows: [rows[row] for row in order]
        attributes = ShownAttributes(
            model.name,
            model.version,
            ranked(values),
            explored=swap.place is not None,
            propensity=None if swap.propensity == 1 else swap.propensity,
            arm=None if arm is None else arm.model,
            share=None if arm is None else arm.share,
            features=self._features(model, done.X, order) if self.journal.options.features else None,
            device=request.device,
            surface=request.surface,
        )
        self.shown(list_id, request.query, ranked(ids), attributes, request.key)

    def interleaved(
        self, impression: str, models: tuple[Served, Served], request: InterleaveRequest, teams: Mapping[Any, int]
    ) -> None:
        """Keep a list of two models."""
        if self.journal is None:
            return
        a, b = models
        attributes = ShownAttributes(
            f"{a.name}+{b.name}",
            f"{a.version}+{b.version}",
            teams=[models[team].name for team in teams.values()],
            device=request.device,
            surface=request.surface,
        )
        self.shown(impression, request.query, [str(team) for team in teams], attributes, request.key)

    def shown(
        self, list_id: str, query: Id | None, ids: Sequence[str], attributes: ShownAttributes, key: Id | None = None
    ) -> None:
        """Keep a list of any kind, whose id is `list_id`."""
        assert self.journal is not None
        words, whose = None if query is None else str(query), None if key is None else self._seal.keyed(key)
        self.journal.shown(ShownList(name_of(list_id), _now(), words, ids, attributes, whose))

    def _features(self, model: Served, X: FloatArray, order: Sequence[int]) -> dict[str, list[float | None]]:
        names = model.columns.names or [str(place) for place in range(1, model.columns.count + 1)]
        shown: dict[str, list[float | None]] = {}
        for name, column in zip(names, np.asarray(X)[order].T.tolist(), strict=True):
            shown[name] = [None if value != value else value for value in column]
        return shown

    # ---- events ----

    def opened(self, events: Events) -> OpenedList:
        """Return the list of events; refuse a list that is too old or not ours, and events that do not fit it."""
        shown = self._seal.opened(events.request)
        if shown is None:
            self._count(events.events, "forged")
            raise RefusedError(
                404, f"There is no list {events.request[:40]!r}; it may be of a process with another secret."
            )
        if time.time_ns() - shown.made > self._days * 86_400e9:
            self._count(events.events, "late")
            raise RefusedError(404, f"The list is older than {self._days:g} days; events on it are no longer taken.")
        for event in events.events:
            if (event.value is None) == (event.kind in _VALUED):
                needs = "a value" if event.kind in _VALUED else "no value"
                raise RefusedError(422, f"A {event.kind} has {needs}: the event of document {event.document!r}.")
            if shown.listed and shown.place(event.document) is None:
                self._count([event], "unknown document")
                raise RefusedError(422, f"Document {event.document!r} is not in this list.")
        return shown

    def done(self, events: Events) -> list[Event]:
        """Keep events of a list that was opened; return those that are new."""
        name, new = name_of(events.request), []
        for event in events.events:
            key = (name, event.kind, event.document, event.id)  # readers of the log tell events apart in the same way
            if key in self._noted:
                self._count([event], "again")
                continue
            if self.journal is not None and not self.journal.done(_written(name, event)):
                self._count([event], "dropped")
                raise RefusedError(503, "The log cannot take more events now; send them again later.")
            self._noted[key] = None
            if len(self._noted) > _KEPT:
                self._noted.popitem(last=False)
            self._count([event], "counted")
            new.append(event)
        return new

    def _count(self, events: Sequence[Event], outcome: str) -> None:
        for event in events:
            self._counters.events.labels(event.kind, outcome).inc()

    def close(self) -> None:
        """Write what waits."""
        if self.journal is not None:
            self.journal.close()


def _written(name: str, event: Event) -> UserEvent:
    attributes = UserAttributes(ObjectOf(str(event.document)), event.value, event.id)
    return UserEvent(_ACTIONS.get(event.kind, event.kind), name, _now(), attributes)


def _now() -> int:
    """Milliseconds since 1970, as UBI takes times."""
    return time.time_ns() // 1_000_000
