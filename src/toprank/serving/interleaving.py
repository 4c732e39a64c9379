"""Which of two models do users prefer? Team-draft interleaving: one list of both, and clicks tell.

As two captains choose teams: a coin says who begins each round, then each model puts its best document that is not in
the list yet there, as a member of its team. Documents of both are equally well placed, so clicks on a team's documents
are votes for its model (Radlinski, Kurup & Joachims 2008). A list is a win for the model whose team has more clicks.
"""

from __future__ import annotations

import random
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toprank.serving.models import Served
from toprank.serving.requests import RefusedError

__all__ = ["Interleaving", "preference", "team_draft"]

_KEPT = 100_000  # lists that are remembered until clicks come
_BYTES = 1 << 28  # that all of them may take, about: a list may be long, and so may ids
_EACH = 200  # bytes of a document in a list, beside its id
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
class _List:
    """A list that was shown: whose team each document is in, and which were clicked."""

    teams: dict[Any, int]
    versions: tuple[str, str]
    clicked: set[Any] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        return sum(_EACH + len(str(document)) for document in self.teams)

    @property
    def outcome(self) -> int | None:
        """1: the first model won, −1: the second, 0: neither; None: nothing was clicked."""
        if not self.clicked:
            return None
        balance = sum(1 if self.teams[document] == 0 else -1 for document in self.clicked)
        return (balance > 0) - (balance < 0)


class Interleaving:
    """Lists of two models, and what became of them; counts belong to the versions that made the lists."""

    def __init__(self, a: str, b: str, rng: random.Random | None = None) -> None:
        self.names = (a, b)
        self._rng = rng or random.Random()
        self._lists: OrderedDict[str, _List] = OrderedDict()
        self._size = 0
        self._counts: dict[tuple[str, str], dict[int | None, int]] = {}

    def shown(
        self, models: tuple[Served, Served], rankings: tuple[Sequence[int], Sequence[int]], ids: Sequence[Any], top: int
    ) -> tuple[str, list[Any]]:
        """A new list: its impression, and the ids of its documents."""
        drafted = team_draft(*rankings, min(top, _LONGEST), self._rng)
        impression, versions = secrets.token_urlsafe(16), (models[0].version, models[1].version)
        made = self._lists[impression] = _List({ids[document]: team for document, team in drafted}, versions)
        self._size += made.size
        while len(self._lists) > _KEPT or (self._size > _BYTES and len(self._lists) > 1):
            self._size -= self._lists.popitem(last=False)[1].size
        self._count(versions, None, 1)
        return impression, [ids[document] for document, _ in drafted]

    def click(self, impression: str, documents: Sequence[Any]) -> list[str]:
        """Note clicks; a document that was clicked before counts once. Gives the models whose teams were clicked."""
        made = self._lists.get(impression)
        if made is None:
            raise RefusedError(
                404, f"There is no interleaved list {impression!r}; it may be too old, or of another process."
            )
        if strange := [document for document in documents if document not in made.teams]:
            raise RefusedError(422, f"Document {strange[0]!r} is not in this list.")
        new = [document for document in dict.fromkeys(documents) if document not in made.clicked]
        self._count(made.versions, made.outcome, -1)
        made.clicked.update(new)
        self._count(made.versions, made.outcome, 1)
        return [self.names[made.teams[document]] for document in new]

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


def preference(wins: int, losses: int, ties: int, unclicked: int) -> dict[str, Any]:
    """What counts of lists say: the share of wins among lists with a winner, its interval, a test of "no difference".

    The test is the exact sign test, the interval Clopper and Pearson's at 95%. Both take lists for independent; those
    of one person, or one query asked again and again, are less than that.

    >>> told = preference(wins=60, losses=40, ties=7, unclicked=300)
    >>> told["share"], round(told["p"], 4), [round(end, 3) for end in told["interval"]]
    (0.6, 0.0569, [0.497, 0.697])
    >>> preference(0, 0, 0, 5)["words"]
    'No list had a winner yet.'
    """
    decided = wins + losses
    told = {"lists": decided + ties + unclicked, "wins": wins, "losses": losses, "ties": ties, "unclicked": unclicked}
    if decided == 0:
        return {**told, "share": None, "interval": None, "p": None, "words": "No list had a winner yet."}
    from scipy.stats import binomtest

    result = binomtest(wins, decided)
    interval = result.proportion_ci(0.95)
    low, high = float(interval.low), float(interval.high)
    better = "the first" if wins > losses else "the second"
    words = (
        f"Users prefer {better} model (p = {result.pvalue:.2g})."
        if result.pvalue < 0.05
        else f"No preference is proven (p = {result.pvalue:.2g})."
    )
    return {**told, "share": wins / decided, "interval": [low, high], "p": float(result.pvalue), "words": words}
