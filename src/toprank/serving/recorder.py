"""Writes the lists of a service, and events on them, to the event log."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.serving.answers import ScoredRequest
from toprank.serving.counters import Counters
from toprank.serving.event_log import EventLog, ObjectOf, ShownAttributes, ShownList, UserAttributes, UserEvent
from toprank.serving.experiments import Arm, Exploration, Swap
from toprank.serving.impressions import ListIdSigner, OpenedList, name_of
from toprank.serving.models import LoadedModel
from toprank.serving.requests import Event, Events, Id, InterleaveRequest, RankRequest, RefusedError

_KEPT = 100_000  # Number of recent events kept to recognize duplicates; readers of the log recognize all of them.
_ACTIONS = {"cart": "add_to_cart"}  # Names of actions in User Behavior Insights that differ from ours.
_VALUED = ("purchase", "return", "dwell")


class Recorder:
    """Records lists and events.

    Args:
        event_log: where to write; None to only validate events.
        signer: signs the ids of lists.
        counters: metrics of the service.
        days: maximum age of a list when an event arrives.
        exploration: selects the lists to perturb; None for none.
    """

    def __init__(
        self,
        event_log: EventLog | None,
        signer: ListIdSigner,
        counters: Counters,
        days: float,
        exploration: Exploration | None,
    ) -> None:
        self.event_log, self._signer, self._counters, self._days = event_log, signer, counters, days
        self._exploration = exploration
        self._noted: OrderedDict[tuple[Any, ...], None] = OrderedDict()

    def new_list_id(self, version: str) -> str:
        """Return the id of a new list."""
        return self._signer.sign_ranking(version)

    def draw_swap(self, length: int) -> Swap:
        """Draw the swap for a list of this length."""
        return Swap() if self._exploration is None else self._exploration.draw(length)

    def record_ranking(
        self, list_id: str, model: LoadedModel, request: RankRequest, scored: ScoredRequest, swap: Swap, arm: Arm | None
    ) -> None:
        """Record a list of one model."""
        if self.event_log is None:
            return
        ids, values, order = scored.ids, scored.values, scored.order
        try:
            "".join(ids)  # The fastest check that all ids are text; this runs for every request.
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
            features=self._features(model, scored.X, order) if self.event_log.options.features else None,
            device=request.device,
            surface=request.surface,
        )
        self.record_list(list_id, request.query, ranked(ids), attributes, request.key)

    def record_interleaving(
        self,
        impression: str,
        models: tuple[LoadedModel, LoadedModel],
        request: InterleaveRequest,
        teams: Mapping[Any, int],
    ) -> None:
        """Record a list of two models."""
        if self.event_log is None:
            return
        a, b = models
        attributes = ShownAttributes(
            f"{a.name}+{b.name}",
            f"{a.version}+{b.version}",
            teams=[models[team].name for team in teams.values()],
            device=request.device,
            surface=request.surface,
        )
        self.record_list(impression, request.query, [str(team) for team in teams], attributes, request.key)

    def record_list(
        self, list_id: str, query: Id | None, ids: Sequence[str], attributes: ShownAttributes, key: Id | None = None
    ) -> None:
        """Record a list of any kind with its id."""
        assert self.event_log is not None
        words, whose = None if query is None else str(query), None if key is None else self._signer.hash_key(key)
        self.event_log.add_list(ShownList(name_of(list_id), _now(), words, ids, attributes, whose))

    def _features(self, model: LoadedModel, X: FloatArray, order: Sequence[int]) -> dict[str, list[float | None]]:
        names = model.columns.names or [str(place) for place in range(1, model.columns.count + 1)]
        shown: dict[str, list[float | None]] = {}
        for name, column in zip(names, np.asarray(X)[order].T.tolist(), strict=True):
            shown[name] = [None if value != value else value for value in column]
        return shown

    # ---- events ----

    def open_list(self, events: Events) -> OpenedList:
        """Return the list of events; reject lists that are too old or not ours, and events that do not
        match the list.
        """
        shown = self._signer.open(events.request)
        if shown is None:
            self._count(events.events, "forged")
            raise RefusedError(
                404, f"The list {events.request[:40]!r} is unknown; it may come from a process with another secret."
            )
        if time.time_ns() - shown.made > self._days * 86_400e9:
            self._count(events.events, "late")
            raise RefusedError(404, f"The list is older than {self._days:g} days, so events on it are rejected.")
        for event in events.events:
            if (event.value is None) == (event.kind in _VALUED):
                needs = "a value" if event.kind in _VALUED else "no value"
                raise RefusedError(422, f"A {event.kind} must have {needs} (document {event.document!r}).")
            if shown.listed and shown.place(event.document) is None:
                self._count([event], "unknown document")
                raise RefusedError(422, f"Document {event.document!r} is not in this list.")
        return shown

    def record_events(self, events: Events) -> list[Event]:
        """Record events of an opened list; return the new ones."""
        name, new = name_of(events.request), []
        for event in events.events:
            key = (name, event.kind, event.document, event.id)  # readers of the log use the same key
            if key in self._noted:
                self._count([event], "again")
                continue
            if self.event_log is not None and not self.event_log.add_event(_written(name, event)):
                self._count([event], "dropped")
                raise RefusedError(503, "The queue of the event log is full. Send the events again later.")
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
        """Write the queue and stop."""
        if self.event_log is not None:
            self.event_log.close()


def _written(name: str, event: Event) -> UserEvent:
    attributes = UserAttributes(ObjectOf(str(event.document)), event.value, event.id)
    return UserEvent(_ACTIONS.get(event.kind, event.kind), name, _now(), attributes)


def _now() -> int:
    """Return milliseconds since 1970, the unit of UBI."""
    return time.time_ns() // 1_000_000
