"""Interleaving: compare two rankers by clicks on lists that contain documents of both.

Team draft (Radlinski, Kurup & Joachims 2008): in each round a coin decides which ranker picks first; each ranker then
adds its best document that is not in the list yet. A click is a vote for the ranker that contributed the document.

Probabilistic (Hofmann, Whiteson & de Rijke 2011): for each rank a coin decides which ranker draws a document, with
probabilities proportional to 1/rank³ among its remaining documents. A click is credited to both rankers by the
probability that each would have drawn the document, which removes the randomness of the coins, so fewer clicks are
needed. If clicks do not depend on the documents, the difference in credit has mean 0, but it is not symmetric: few
clicks may strongly favor one ranker, and many clicks slightly favor the other. The test therefore uses the sum of the
credit, not the number of lists won.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.clicks.corrections import rows_of
from toprank.clicks.log import ClickLog, check_log, sums, unclicked
from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData, check_data
from toprank.data.row_order import Order
from toprank.display.record import Record
from toprank.display.tables import Part, Table, percent
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.sorting import ranking
from toprank.significance import Interval, effective_sample_size, leave_one_out_means, randomization_test
from toprank.significance.resampling import jackknife_variance, mean_interval

METHODS = ("team-draft", "probabilistic")
_RANK_EXPONENT = 3.0  # Draws have probability proportional to 1/rank³.


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
    """Create interleaved lists of two rankers for randomly drawn queries, without clicks.

    Args:
        a: scores of the first ranker for the documents of `data`.
        b: scores of the second ranker.
        data: queries.
        sessions: number of lists. Default: 1000.
        k: number of documents per list. Default: 10.
        method: ``team-draft`` or ``probabilistic``. Default: ``team-draft``.
        seed: seed of the random generator.
        order: order of the scores, if grouping moved rows of the data; see `RankingData.aligned`.

    Returns:
        a log whose column ``team`` contains the ranker that contributed each document, ``a`` or ``b``.

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
    orders = [
        ranking(np.asarray(data.aligned(scores, order), dtype=np.float64), data.queries).order for scores in (a, b)
    ]
    query = rng.integers(0, data.n_queries, sessions)
    draft = _team_draft_list if method == "team-draft" else _probabilistic_list
    lists, teams = [], []
    for number in query.tolist():
        part = slice(*data.queries.offsets[number : number + 2])
        listed, team = draft(orders[0][part], orders[1][part], k, rng)
        lists.append(listed)
        teams.append(team)
    columns = {"team": np.array(["a", "b"])[np.concatenate(teams)]}
    return unclicked(data, query, np.array([len(listed) for listed in lists]), np.concatenate(lists), columns)


def team_draft(a: Sequence[int], b: Sequence[int], k: int, coin: Callable[[], int]) -> dict[int, int]:
    """Return the documents of one list with their teams, from two rankings of the same documents, best first; team 0 is
    a.

    >>> team_draft([1, 2, 3], [1, 3, 2], 3, coin=lambda: 1)  # b begins both rounds
    {1: 1, 2: 0, 3: 1}
    """
    taken: dict[int, int] = {}
    rankings, places = (a, b), [0, 0]
    while len(taken) < min(k, len(a)):
        first = coin()
        for team in (first, 1 - first):
            while places[team] < len(a) and rankings[team][places[team]] in taken:
                places[team] += 1
            if len(taken) < k and places[team] < len(a):
                taken[rankings[team][places[team]]] = team
    return taken


def _team_draft_list(a: IntArray, b: IntArray, k: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    taken = team_draft(a.tolist(), b.tolist(), k, lambda: int(rng.integers(0, 2)))
    return np.array(list(taken)), np.array(list(taken.values()))


def _probabilistic_list(a: IntArray, b: IntArray, k: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    teams = rng.integers(0, 2, min(k, len(a)))
    chances = 1.0 / np.arange(1, len(a) + 1) ** _RANK_EXPONENT
    remaining: list[dict[int, float]] = [dict(zip(order.tolist(), chances.tolist(), strict=True)) for order in (a, b)]
    shown = []
    for team in teams.tolist():
        documents, weights = list(remaining[team]), np.array(list(remaining[team].values()))
        document = documents[int(rng.choice(len(documents), p=weights / weights.sum()))]
        shown.append(document)
        for side in remaining:
            del side[document]
    return np.array(shown), teams


@dataclass(frozen=True, repr=False)
class Interleaving(Record):
    """Comparison of two rankers by clicks on interleaved lists.

    Attributes:
        wins: number of lists whose clicks favor a.
        losses: number of lists whose clicks favor b.
        ties: number of lists with clicks that favor neither.
        unclicked: number of lists without clicks.
        share: fraction of wins among lists with a winner; for ``probabilistic``, a's share of the clicks. NaN if there
            are none.
        interval: interval of the share over queries. For ``team-draft`` the Clopper–Pearson interval, exact if all
            lists are of different queries, with the effective sample size of Korn and Graubard (1998) otherwise. For
            ``probabilistic`` a t interval with the jackknife standard error.
        p: p-value of the randomization test of no difference, over queries, because lists of one query are not
            independent. The statistic is wins minus losses, or the credit for ``probabilistic``.
        credit: mean over lists of a's clicks minus b's clicks.
        method: how the lists were interleaved.
        names: names of both rankers.
        confidence: confidence level of the interval.
    """

    wins: int
    losses: int
    ties: int
    unclicked: int
    share: float
    interval: Interval
    p: float
    credit: float
    method: str
    names: tuple[str, str]
    confidence: float

    @property
    def summary(self) -> str:
        """The ranker that users prefer, if significant."""
        if self.wins + self.losses == 0:
            return "No list had a winner."
        better = self.names[0] if self.share > 0.5 else self.names[1]
        words = f"Users prefer {better}" if self.p < 1 - self.confidence else "No significant preference"
        return f"{words} (p = {self.p:.2g}, {self.method})."

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values that JSON can hold; share, interval and p are None if no list had a winner."""
        counts = {name: getattr(self, name) for name in ("wins", "losses", "ties", "unclicked")}
        decided = self.wins + self.losses > 0
        return {
            "names": list(self.names), "method": self.method, "lists": sum(counts.values()), **counts,
            "share": self.share if decided else None, "interval": list(self.interval) if decided else None,
            "p": self.p if decided else None, "credit": self.credit, "confidence": self.confidence,
            "summary": self.summary,
        }  # fmt: skip

    def _columns(self) -> dict[str, Sequence[Any]]:
        facts = self.to_dict()
        (a, b), (low, high) = facts.pop("names"), facts.pop("interval") or (None, None)
        return {name: [value] for name, value in {"a": a, "b": b, **facts, "low": low, "high": high}.items()}

    def _parts(self) -> Sequence[Part]:
        a, b = self.names
        decided = self.wins + self.losses
        if decided == 0:
            return [self.summary]
        low, high = self.interval
        ends = (f"share of {a}", f"{percent(self.confidence)} interval")
        share = (f"{self.share:.3f}", f"[{low:.3f}, {high:.3f}]")
        table = Table(
            ("lists won by " + a, "by " + b, "tied", "unclicked", *ends),
            [(f"{self.wins:,}", f"{self.losses:,}", f"{self.ties:,}", f"{self.unclicked:,}", *share)], names=0,
        )  # fmt: skip
        if self.method == "probabilistic":  # The number of lists won may contradict the shares.
            lists, clicked = (f"{n:,}" for n in (decided + self.ties + self.unclicked, decided + self.ties))
            table = Table(
                ("lists", "clicked", "credit per list", *ends), [(lists, clicked, f"{self.credit:+.4f}", *share)], 0
            )
        return [self.summary, table]


def analyze_interleaving(
    log: ClickLog,
    *,
    a: npt.ArrayLike | None = None,
    b: npt.ArrayLike | None = None,
    data: RankingData | None = None,
    method: str = "team-draft",
    confidence: float = 0.95,
    order: Order | None = None,
) -> Interleaving:
    """Compare two rankers by the clicks on interleaved lists.

    Args:
        log: log of the lists; for ``team-draft`` with a column ``team`` of two values.
        a: scores of the first ranker for the documents of `data`, for ``probabilistic``.
        b: scores of the second ranker.
        data: documents that were shown, for ``probabilistic``.
        method: how the lists were interleaved. Default: ``team-draft``.
        confidence: confidence level of the interval; the significance level of the test is 1 minus it. Default: 0.95.
        order: order of the scores, if grouping moved rows of the data; see `RankingData.aligned`.

    >>> team = ["new", "old", "new", "old"]
    >>> log = ClickLog.from_columns(["q"] * 4, list("xyxy"), [1, 2, 1, 2], [1, 0, 1, 0], team=team)
    >>> preferred = analyze_interleaving(log)
    >>> preferred.names, preferred.wins, preferred.losses
    (('new', 'old'), 2, 0)
    """
    _check_method(method)
    check_log(log)
    check_number("confidence", confidence, above=0, below=1)
    names, votes = (
        teams_of(log) if method == "team-draft" else (("a", "b"), _credit_by_probability(log, a, b, data, order))
    )
    credit = np.add.reduceat(np.where(log.clicks, votes, 0.0), log.offsets[:-1])
    clicks = log.session_clicks
    won, lost = credit > 1e-12, credit < -1e-12  # Credits that cancel leave rounding errors.
    for_a, for_b = won * 1.0, lost * 1.0
    if method == "probabilistic" and (won | lost).any():
        for_a, for_b = (clicks + credit) / 2, (clicks - credit) / 2
    a_of_query, b_of_query = (sums(log.session_query, side, log.n_queries) for side in (for_a, for_b))
    preferred = preference(a_of_query, b_of_query, 0, 0, names, confidence=confidence, method=method)
    wins, losses, unclicked = int(won.sum()), int(lost.sum()), int((clicks == 0).sum())
    return replace(
        preferred, wins=wins, losses=losses, ties=log.n_sessions - wins - losses - unclicked, unclicked=unclicked,
        credit=float(credit.mean()),
    )  # fmt: skip


def preference(
    for_a: FloatArray,
    for_b: FloatArray,
    ties: int,
    unclicked: int,
    names: tuple[str, str],
    *,
    confidence: float = 0.95,
    method: str = "team-draft",
) -> Interleaving:
    """Return the comparison from counts: for each query (or group of queries), the number of lists won by a and by b.

    >>> preferred = preference(np.array([1.0] * 9 + [0.0] * 3), np.array([0.0] * 9 + [1.0] * 3), 5, 100, ("new", "old"))
    >>> round(preferred.p, 3), [round(end, 3) for end in preferred.interval], preferred.summary
    (0.146, [0.428, 0.945], 'No significant preference (p = 0.15, team-draft).')
    """
    wins, losses = float(for_a.sum()), float(for_b.sum())
    interval, p = Interval(np.nan, np.nan, np.nan, confidence, 0, "no list had a winner", "share"), 1.0
    decided = for_a + for_b
    if wins + losses > 0:
        share_of = _share_of_counts if method == "team-draft" else _share_of_credit
        interval = share_of(for_a[decided > 0], decided[decided > 0], confidence)
        p = randomization_test((2 * for_a - decided)[decided > 0]).p
    return Interleaving(
        wins=round(wins),
        losses=round(losses),
        ties=ties,
        unclicked=unclicked,
        share=interval.value,
        interval=interval,
        p=p,
        credit=(wins - losses) / max(round(wins + losses) + ties + unclicked, 1),
        method=method,
        names=names,
        confidence=confidence,
    )


def _share_of_credit(part: FloatArray, whole: FloatArray, confidence: float) -> Interval:
    """Return the jackknife interval of the share, within 0 and 1; unbounded for a single query."""
    interval = mean_interval(part / whole, whole, confidence, "share")
    share = float(part.sum() / whole.sum())  # exactly 1 if one ranker has all the credit
    return replace(interval, value=share, low=max(interval.low, 0.0), high=min(interval.high, 1.0))


def _share_of_counts(part: FloatArray, whole: FloatArray, confidence: float) -> Interval:
    """Clopper and Pearson's for as many lists of different queries as would know the share as well.

    How much less the lists tell than so many of different queries is the ratio of the jackknife's variance to theirs
    (Korn and Graubard 1998, who also make up for how little few queries know of that ratio). Where all agree there is
    no such ratio, and each query is one witness.
    """
    from scipy.special import betaincinv, stdtrit  # here: a service draws lists without SciPy

    n, lists, share = len(whole), float(whole.sum()), float(part.sum() / whole.sum())
    if n == 1:
        return Interval(share, 0.0, 1.0, confidence, 1, "one query says nothing about others", "share")
    rests = leave_one_out_means(part / whole, whole)
    variance = float(jackknife_variance(rests))
    level, enough = (1 + confidence) / 2, float(n)
    if variance > 1e-24 and lists > 1:  # below is the rounding of equal shares
        free = max(effective_sample_size(whole) - 1, 1.0)
        few = float(stdtrit(lists - 1, level) / stdtrit(free, level))
        enough = min(lists, lists * share * (1 - share) / (lists - 1) / variance * few**2)
    won, lost = share * enough, (1 - share) * enough
    low = float(betaincinv(won, lost + 1, 1 - level)) if won > 0 else 0.0
    high = float(betaincinv(won + 1, lost, level)) if lost > 0 else 1.0
    return Interval(share, low, high, confidence, n, f"Clopper and Pearson, {enough:.1f} lists effective", "share")


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise UnknownNameError("method of interleaving", method, METHODS)


def teams_of(log: ClickLog) -> tuple[tuple[str, str], FloatArray]:
    """Return the names of the two teams, and for each impression 1 for the first team and -1 for the second."""
    if "team" not in log.columns:
        raise DataError(
            "The log has no column 'team'. Team draft needs the ranker that contributed each document, which a service "
            "with interleaving logs."
        )
    names, team = np.unique(log.columns["team"], return_inverse=True)
    if len(names) != 2:
        raise DataError(f"The column 'team' has {len(names)} different values, but it must have two.")
    return (str(names[0]), str(names[1])), np.where(team == 0, 1.0, -1.0)


def _credit_by_probability(
    log: ClickLog, a: Any, b: Any, data: RankingData | None, score_order: Order | None
) -> FloatArray:
    """Return for each impression P(a drew it) - P(b drew it), given the documents above it."""
    if a is None or b is None or data is None:
        raise DataError("Probabilistic interleaving credits clicks by both rankings. Give a=, b= and data=.")
    row = rows_of(log, data)
    if (row < 0).any():
        raise DataError(f"{int((row < 0).sum()):,} impressions are of documents that are not in the data.")
    chance = np.empty((2, len(row)))
    for side, scores in enumerate((a, b)):
        order = ranking(np.asarray(data.aligned(scores, score_order), dtype=np.float64), data.queries).order
        worth = np.empty(len(order))
        worth[order] = 1 / (data.queries.positions_in_query + 1.0) ** _RANK_EXPONENT
        whole = data.queries.broadcast(data.queries.sum(worth))[row]
        above = np.cumsum(worth[row]) - worth[row]
        gone = above - np.repeat(above[log.offsets[:-1]], np.diff(log.offsets))
        chance[side] = worth[row] / np.maximum(whole - gone, 1e-300)
    return np.asarray((chance[0] - chance[1]) / (chance[0] + chance[1]))
