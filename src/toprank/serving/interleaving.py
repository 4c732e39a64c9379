"""Which of two models do users prefer? Lists of both by team draft (`toprank.clicks.interleaved`), and clicks tell.

A list is a win for the model whose team has more clicks.

A list is not remembered: its id says all that clicks need, signed (`impressions.py`), so that any replica with the same
secret understands them. Only lists that were clicked are kept, for a click that is told twice counts once.
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
    """What became of the lists of two versions; wins (1) and losses (−1) by groups of queries, for lists of one query
    are no independent witnesses.
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
    """Lists of two models, and what became of them; counts belong to the versions that made the lists.

    Args:
        a: the name of the first model.
        b: the name of the second.
        rng: throws the coins.
        secret: signs the ids of lists; without one, they hold for this process alone.
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

        One without a query is of a query of its own.
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
        """Note clicks; a document that was clicked before counts once. Gives the models whose teams were clicked."""
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
        """A list that is clicked for the first time; for its sake the one that was first so long ago is forgotten."""
        if shown.own:
            self._tally(shown.versions).unclicked -= 1
        known = self._clicked[shown.key] = _Clicked(shown.made)
        if len(self._clicked) > _KEPT:
            self._forgotten = max(self._forgotten, self._clicked.popitem(last=False)[1].made)
        return known

    def _tally(self, versions: tuple[str, str]) -> _Tally:
        return self._tallies.setdefault(versions, _Tally())

    def analysis(self) -> dict[str, Any]:
        """Who wins, for each pair of versions that was shown; the newest last."""
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
