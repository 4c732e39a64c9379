"""Which of two rankers users prefer: one list of both, and clicks tell.

Team draft (Radlinski, Kurup & Joachims 2008): as two captains choose teams; a coin says who begins each round, then
each ranker puts its best document that is not in the list yet there. A click is a vote for the team of its document.

Probabilistic (Hofmann, Whiteson & de Rijke 2011): for each place a coin says which ranker draws, with chances that fall
as 1/rank³ among its documents that are left. A click is shared between the rankers by how likely each is to have drawn
its document, whoever did: no coin is left in the outcome, so fewer clicks are needed. The shares less each other have
mean 0 where users click whatever stands there, but no symmetry: few clicks may speak loudly for one ranker, and many
softly for the other. So shares are added up and tested, and not which ranker they favour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.clicks.corrections import rows_of
from toprank.clicks.log import ClickLog, check_log
from toprank.clicks.simulation import named
from toprank.compute import FloatArray, IntArray
from toprank.data.checks import check_data, check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.data.row_order import Order
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.ranking import ranking
from toprank.showing.tables import Part, Shown, Table
from toprank.significance import jackknife, means_without, randomization_test

__all__ = ["Interleaving", "interleave", "interleaving"]

METHODS = ("team-draft", "probabilistic")
_FALL = 3.0  # chances fall as 1/rank³


def interleave(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    data: RankingData,
    sessions: int = 1000,
    *,
    k: int = 10,
    method: str = "team-draft",
    seed: int = 0,
    order: Order | None = None,
) -> ClickLog:
    """Lists of two rankers for queries drawn at random, without clicks: what to show.

    Args:
        a: scores of the first ranker for the documents of `data`.
        b: of the second.
        data: queries.
        sessions: how many lists.
        k: documents of a list.
        method: ``team-draft`` or ``probabilistic``.
        seed: of everything drawn.
        order: how the scores stand, where grouping moved the rows of the data: see `RankingData.aligned`.

    Returns:
        a log whose column ``team`` says who put each document there, ``a`` or ``b``.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=5, seed=0)
    >>> log = interleave(data.X[:, 0], data.X[:, 1], data, sessions=20, k=4)
    >>> log.n_impressions, sorted(set(log.columns["team"].tolist()))
    (80, ['a', 'b'])
    """
    check_data("interleave", data)
    _check_method(method)
    check_whole("sessions", sessions, 1)
    check_whole("k", k, 1)
    rng = np.random.default_rng(seed)
    orders = [ranking(np.asarray(data.aligned(one, order), dtype=np.float64), data.queries).order for one in (a, b)]
    query, data = rng.integers(0, data.n_queries, sessions), named(data)
    draft = _team_draft if method == "team-draft" else _probabilistic
    lists, teams = [], []
    for number in query.tolist():
        part = slice(*data.queries.offsets[number : number + 2])
        shown, team = draft(orders[0][part], orders[1][part], k, rng)
        lists.append(shown)
        teams.append(team)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    rows, n = np.concatenate(lists), int(offsets[-1])
    position = np.arange(n) - np.repeat(offsets[:-1], np.diff(offsets)) + 1
    return ClickLog(
        offsets, query, data.qids, rows, data.queries.document_query, np.asarray(data.document_ids), position,
        np.zeros(n, dtype=bool), {"team": np.array(["a", "b"])[np.concatenate(teams)]},
    )  # fmt: skip


def _team_draft(a: IntArray, b: IntArray, k: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    taken: dict[int, int] = {}
    rankings, places = (a.tolist(), b.tolist()), [0, 0]
    while len(taken) < min(k, len(a)):
        first = int(rng.integers(0, 2))
        for team in (first, 1 - first):
            while places[team] < len(a) and rankings[team][places[team]] in taken:
                places[team] += 1
            if len(taken) < k and places[team] < len(a):
                taken[rankings[team][places[team]]] = team
    return np.array(list(taken)), np.array(list(taken.values()))


def _probabilistic(a: IntArray, b: IntArray, k: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    teams = rng.integers(0, 2, min(k, len(a)))
    chances = 1.0 / np.arange(1, len(a) + 1) ** _FALL
    left: list[dict[int, float]] = [dict(zip(one.tolist(), chances.tolist(), strict=True)) for one in (a, b)]
    shown = []
    for team in teams.tolist():
        documents, weights = list(left[team]), np.array(list(left[team].values()))
        document = documents[int(rng.choice(len(documents), p=weights / weights.sum()))]
        shown.append(document)
        for side in left:
            del side[document]
    return np.array(shown), teams


@dataclass(frozen=True, repr=False)
class Interleaving(Shown):
    """What clicks on interleaved lists say.

    Attributes:
        wins: lists whose clicks favour a.
        losses: lists whose clicks favour b.
        ties: lists with clicks that favour neither.
        unclicked: lists without clicks.
        share: of wins among lists with a winner; for ``probabilistic`` a's share of the clicks. NaN where none is.
        interval: of the share, over queries (Student's t with the jackknife's standard error).
        p: of the randomization test of "no difference", over queries: lists of one query are no independent witnesses,
            and one query says nothing of others. What is tested is wins less losses, for ``probabilistic`` the credit.
        credit: mean over lists of a's clicks less b's.
        method: how the lists were made.
        names: of the two.
        confidence: of the interval.
    """

    wins: int
    losses: int
    ties: int
    unclicked: int
    share: float
    interval: tuple[float, float]
    p: float
    credit: float
    method: str
    names: tuple[str, str]
    confidence: float

    def _parts(self) -> Sequence[Part]:
        a, b = self.names
        decided = self.wins + self.losses
        if decided == 0:
            return ["No list had a winner."]
        better = a if self.share > 0.5 else b
        words = f"Users prefer {better}" if self.p < 1 - self.confidence else "No preference is proven"
        low, high = self.interval
        ends = (f"share of {a}", f"{self.confidence:.0%} interval")
        told = (f"{self.share:.3f}", f"[{low:.3f}, {high:.3f}]")
        table = Table(
            ("lists won by " + a, "by " + b, "tied", "unclicked", *ends),
            [(f"{self.wins:,}", f"{self.losses:,}", f"{self.ties:,}", f"{self.unclicked:,}", *told)], names=0,
        )  # fmt: skip
        if self.method == "probabilistic":  # lists won would tell another tale than shares do
            lists, clicked = (f"{n:,}" for n in (decided + self.ties + self.unclicked, decided + self.ties))
            table = Table(
                ("lists", "clicked", "credit a list", *ends), [(lists, clicked, f"{self.credit:+.4f}", *told)], 0
            )
        return [f"{words} (p = {self.p:.2g}, {self.method}).", table]


def interleaving(
    log: ClickLog,
    *,
    a: npt.ArrayLike | None = None,
    b: npt.ArrayLike | None = None,
    data: RankingData | None = None,
    method: str = "team-draft",
    confidence: float = 0.95,
    order: Order | None = None,
) -> Interleaving:
    """Which ranker the clicks on interleaved lists favour.

    Args:
        log: with a column ``team`` of two values for ``team-draft``.
        a: for ``probabilistic``, scores of the first ranker for the documents of `data`.
        b: of the second.
        data: whose documents were shown, for ``probabilistic``.
        method: how the lists were made.
        confidence: of the interval, and 1 less it the level of the test.
        order: how the scores stand, where grouping moved the rows of the data: see `RankingData.aligned`.

    >>> log = ClickLog.of(["q"] * 4, list("xyxy"), [1, 2, 1, 2], [1, 0, 1, 0], team=["new", "old", "new", "old"])
    >>> found = interleaving(log)
    >>> found.names, found.wins, found.losses
    (('new', 'old'), 2, 0)
    """
    _check_method(method)
    check_log(log)
    check_number("confidence", confidence, above=0, below=1)
    names, votes = _teams(log) if method == "team-draft" else (("a", "b"), _shared(log, a, b, data, order))
    credit = np.add.reduceat(np.where(log.clicks, votes, 0.0), log.offsets[:-1])
    clicked = np.add.reduceat(log.clicks.astype(np.int64), log.offsets[:-1]) > 0
    won, lost = credit > 1e-12, credit < -1e-12
    wins, losses = int(won.sum()), int(lost.sum())
    share, interval, p = float("nan"), (float("nan"), float("nan")), 1.0
    if wins + losses:
        for_a, for_b = won * 1.0, lost * 1.0
        if method == "probabilistic":
            clicks = np.add.reduceat(log.clicks * 1.0, log.offsets[:-1])
            for_a, for_b = (clicks + credit) / 2, (clicks - credit) / 2
        of_query = [np.bincount(log.session_query, side, minlength=log.n_queries) for side in (for_a, for_b)]
        decided = np.asarray(of_query[0] + of_query[1], dtype=np.float64)
        asked = decided > 0
        share = float(of_query[0].sum() / decided.sum())
        p = randomization_test((of_query[0] - of_query[1])[asked]).p
        rests = means_without(of_query[0][asked] / decided[asked], decided[asked])
        low, high = jackknife(share, rests, decided[asked] / decided.sum(), confidence)
        interval = (float(np.fmax(low, 0.0)), float(np.fmin(high, 1.0)))  # of one query: all from 0 to 1
    ties = int((clicked & ~won & ~lost).sum())
    return Interleaving(
        wins, losses, ties, int((~clicked).sum()), share, interval, p, float(credit.mean()), method, names, confidence
    )


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise UnknownNameError("method of interleaving", method, METHODS)


def _teams(log: ClickLog) -> tuple[tuple[str, str], FloatArray]:
    """The two teams, and of each impression 1 where it is of the first, -1 of the second."""
    if "team" not in log.columns:
        raise DataError("Team draft needs to know who put each document there: give the log a column team.")
    names, team = np.unique(log.columns["team"], return_inverse=True)
    if len(names) != 2:
        raise DataError(f"The column team has {len(names)} different values; two rankers are compared.")
    return (str(names[0]), str(names[1])), np.where(team.reshape(-1) == 0, 1.0, -1.0)


def _shared(log: ClickLog, a: Any, b: Any, data: RankingData | None, given: Order | None) -> FloatArray:
    """Of each impression P(a drew it) - P(b drew it), given what stood above."""
    if a is None or b is None or data is None:
        raise DataError("Probabilistic interleaving shares clicks by both rankings: give a=, b= and data=.")
    row = rows_of(log, data)
    if (row < 0).any():
        raise DataError(f"{int((row < 0).sum()):,} impressions are of documents that the data do not have.")
    chance = np.empty((2, len(row)))
    for side, scores in enumerate((a, b)):
        order = ranking(np.asarray(data.aligned(scores, given), dtype=np.float64), data.queries).order
        worth = np.empty(len(order))
        worth[order] = 1 / (np.arange(len(order)) - data.queries.spread(data.queries.offsets[:-1]) + 1.0) ** _FALL
        whole = data.queries.spread(data.queries.sum(worth))[row]
        above = np.cumsum(worth[row]) - worth[row]
        gone = above - np.repeat(above[log.offsets[:-1]], np.diff(log.offsets))
        chance[side] = worth[row] / np.maximum(whole - gone, 1e-300)
    return np.asarray((chance[0] - chance[1]) / (chance[0] + chance[1]))
