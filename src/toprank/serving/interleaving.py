"""Which of two models do users prefer? Team-draft interleaving: one list of both, and clicks tell.

As two captains choose teams: a coin says who begins each round, then each model puts its best document that is not in
the list yet there, as a member of its team. Documents of both are equally well placed, so clicks on a team's documents
are votes for its model (Radlinski, Kurup & Joachims 2008). A list is a win for the model whose team has more clicks.

A list is not remembered: its id says all that clicks need, signed (`impressions.py`), so that any replica with the same
secret understands them. Only lists that were clicked are kept, for a click that is told twice counts once.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toprank.serving.impressions import Seal, Shown
from toprank.serving.models import Served
from toprank.serving.preference import preference
from toprank.serving.requests import RefusedError

__all__ = ["Interleaving", "team_draft"]

_KEPT = 100_000  # lists with clicks that are remembered
_LONGEST = 1000  # documents of a list


def team_draft(a: Sequence[int], b: Sequence[int], top: int, rng: random.Random) -> list[tuple[int, int]]:
    """(document, team) from two rankings of the same documents, best first; team 0 is a's.

    >>> team_draft([1, 2, 3], [1, 3, 2], 3, random.Random(0))
    [(1, 1), (2, 0), (3, 0)]
    """
    drafted: list[tuple[int, int]] = []
    taken: set[int] = set()
    rankings, places = (a, b), [0, 0]
    while len(drafted) < min(top, len(a)):
        first = rng.getrandbits(1)
        for team in (first, 1 - first):
            ranking = rankings[team]
            while places[team] < len(ranking) and ranking[places[team]] in taken:
                places[team] += 1
            if len(drafted) < top and places[team] < len(ranking):
                document = ranking[places[team]]
                taken.add(document)
                drafted.append((document, team))
    return drafted


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


class Interleaving:
    """Lists of two models, and what became of them; counts belong to the versions that made the lists.

    Args:
        a: the name of the first model.
        b: the name of the second.
        rng: throws the coins.
        secret: signs the ids of lists; without one, they hold for this process alone.
    """

    def __init__(self, a: str, b: str, rng: random.Random | None = None, secret: bytes | None = None) -> None:
        self.names = (a, b)
        self.shared = secret is not None
        self._rng, self._seal = rng or random.Random(), Seal(self.names, secret)
        self._clicked: OrderedDict[bytes, _Clicked] = OrderedDict()
        self._forgotten = -1  # when the newest list was made of those that were clicked and forgotten
        self._counts: dict[tuple[str, str], dict[int | None, int]] = {}

    def shown(
        self, models: tuple[Served, Served], rankings: tuple[Sequence[int], Sequence[int]], ids: Sequence[Any], top: int
    ) -> tuple[str, list[Any]]:
        """A new list: its impression, and the ids of its documents."""
        drafted = team_draft(*rankings, min(top, _LONGEST), self._rng)
        versions = (models[0].version, models[1].version)
        impression = self._seal.made([(ids[document], team) for document, team in drafted], versions)
        self._count(versions, None, 1)
        return impression, [ids[document] for document, _ in drafted]

    def click(self, impression: str, documents: Sequence[Any]) -> list[str]:
        """Note clicks; a document that was clicked before counts once. Gives the models whose teams were clicked."""
        shown = self._seal.opened(impression)
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

    def _noted(self, shown: Shown, places: Sequence[tuple[int, int]]) -> list[str]:
        if not places:
            return []
        if (known := self._clicked.get(shown.key)) is None:
            known = self._remembered(shown)
        else:
            self._count(shown.versions, known.outcome, -1)
        new = []
        for place, team in places:
            if not known.places >> place & 1:
                known.places |= 1 << place
                known.votes[team] += 1
                new.append(self.names[team])
        self._count(shown.versions, known.outcome, 1)
        return new

    def _remembered(self, shown: Shown) -> _Clicked:
        """A list that is clicked for the first time; for its sake the one that was first so long ago is forgotten."""
        if shown.own:
            self._count(shown.versions, None, -1)
        known = self._clicked[shown.key] = _Clicked(shown.made)
        if len(self._clicked) > _KEPT:
            self._forgotten = max(self._forgotten, self._clicked.popitem(last=False)[1].made)
        return known

    def _count(self, versions: tuple[str, str], outcome: int | None, by: int) -> None:
        counts = self._counts.setdefault(versions, dict.fromkeys((1, 0, -1, None), 0))
        counts[outcome] += by

    def analysis(self) -> dict[str, Any]:
        """Who wins, for each pair of versions that was shown; the newest last."""
        return {
            "models": list(self.names),
            "comparisons": [
                {"versions": list(versions), **preference(counts[1], counts[-1], counts[0], counts[None])}
                for versions, counts in list(self._counts.items())
            ],
        }
