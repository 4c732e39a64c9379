"""Which of two models do users prefer? Both make one list by team draft (`toprank.clicks.interleaved`).

A list is a win for the model whose team gets more clicks.

A list is not remembered: its signed id says all that is needed to count clicks (`impressions.py`), so any replica with
the same secret can. Only lists that were clicked are kept, so that a click that is sent twice counts once.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toprank.clicks.interleaved import preference, team_draft
from toprank.compute import FloatArray
from toprank.serving.impressions import GROUPS, OpenedList, Seal
from toprank.serving.models import Served
from toprank.serving.requests import RefusedError

_KEPT = 100_000  # lists with clicks that are remembered
_LONGEST = 1000  # documents of a list


@dataclass
class _Clicked:
    """What was clicked of a list."""

    made: int
    places: int = 0
    """A bit for each place that was clicked."""
    votes: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def outcome(self) -> int | None:
        """1: the first model won, −1: the second, 0: neither; None: nothing was clicked."""
        return (self.votes[0] > self.votes[1]) - (self.votes[0] < self.votes[1]) if self.places else None


@dataclass
class _Tally:
    """The outcomes of the lists of two versions; wins (1) and losses (−1) by groups of queries, since lists of one
    query are not independent.
    """

    won: dict[int, FloatArray] = field(default_factory=lambda: {1: np.zeros(GROUPS), -1: np.zeros(GROUPS)})
    ties: int = 0
    unclicked: int = 0

    def count(self, group: int, outcome: int | None, by: int) -> None:
        """A list more, or less, of an outcome."""
        if outcome:
            self.won[outcome][group] += by
        elif outcome == 0:
            self.ties += by
        else:
            self.unclicked += by


class InterleavedModels:
    """Lists of two models and their outcomes, counted by the versions that made the lists.

    Args:
        a: the name of the first model.
        b: the name of the second.
        rng: tosses the coins of the draft.
        secret: signs the ids of lists; without one, they are valid in this process only.
    """

    def __init__(self, a: str, b: str, rng: random.Random | None = None, secret: bytes | None = None) -> None:
        self.names = (a, b)
        self._rng, self._seal = rng or random.Random(), Seal(self.names, secret)
        self._clicked: OrderedDict[bytes, _Clicked] = OrderedDict()
        self._forgotten = -1  # when the newest list was made of those that were clicked and forgotten
        self._tallies: dict[tuple[str, str], _Tally] = {}

    def shown(
        self, models: tuple[Served, Served], rankings: tuple[Sequence[int], Sequence[int]], ids: Sequence[Any],
        top: int, query: Any = None,
    ) -> tuple[str, dict[Any, int]]:  # fmt: skip
        """A new list: its impression, and the ids of its documents with their teams, 0 or 1, in order.

        A list without a query counts as a query of its own.
        """
        drafted = team_draft(*rankings, min(top, _LONGEST), lambda: self._rng.getrandbits(1))
        versions = (models[0].version, models[1].version)
        impression = self._seal.made([(ids[document], team) for document, team in drafted.items()], versions, query)
        self._tally(versions).unclicked += 1
        return impression, {ids[document]: team for document, team in drafted.items()}

    def made(self, shown: OpenedList) -> bool:
        """Whether a list is of these two models."""
        return bool(shown.pair == self._seal.pair)

    def click(self, impression: str, documents: Sequence[Any]) -> list[str]:
        """Count clicks, each document once; return the models whose teams got new clicks."""
        shown = self._seal.opened(impression)
        if shown is not None and not self.made(shown):
            shown = None
        if shown is None or (shown.key not in self._clicked and shown.made <= self._forgotten):
            raise RefusedError(
                404,
                f"There is no interleaved list {impression[:40]!r}; it may be too old, or of a process with another "
                "secret or with other models to interleave.",
            )
        places = []
        for document in dict.fromkeys(documents):  # no more of them than a list is long, and the one that is not there
            if (place := shown.place(document)) is None:
                raise RefusedError(422, f"Document {document!r} is not in this list.")
            places.append(place)
        return self._noted(shown, places)

    def _noted(self, shown: OpenedList, places: Sequence[tuple[int, int]]) -> list[str]:
        if not places:
            return []
        if (known := self._clicked.get(shown.key)) is None:
            known = self._remembered(shown)
        else:
            self._tally(shown.versions).count(shown.group, known.outcome, -1)
        new = []
        for place, team in places:
            if not known.places >> place & 1:
                known.places |= 1 << place
                known.votes[team] += 1
                new.append(self.names[team])
        self._tally(shown.versions).count(shown.group, known.outcome, 1)
        return new

    def _remembered(self, shown: OpenedList) -> _Clicked:
        """Remember a list that is clicked for the first time, and forget the oldest one if there are too many."""
        if shown.own:
            self._tally(shown.versions).unclicked -= 1
        known = self._clicked[shown.key] = _Clicked(shown.made)
        if len(self._clicked) > _KEPT:
            self._forgotten = max(self._forgotten, self._clicked.popitem(last=False)[1].made)
        return known

    def _tally(self, versions: tuple[str, str]) -> _Tally:
        return self._tallies.setdefault(versions, _Tally())

    def analysis(self) -> dict[str, Any]:
        """Return who wins, for each pair of versions that was shown; the newest last."""
        return {
            "models": list(self.names),
            "comparisons": [
                {
                    "versions": list(versions),
                    **preference(tally.won[1], tally.won[-1], tally.ties, tally.unclicked, self.names).to_dict(),
                }
                for versions, tally in list(self._tallies.items())
            ],
        }
