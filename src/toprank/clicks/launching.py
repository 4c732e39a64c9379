"""Whether to launch a ranker: what it would bring beside the current one, from a log, and one sentence under one rule.

Both rankers are judged by the same clicks, so what is hard is hard for both, and the interval is that of their paired
difference. The rule: **launch** if all of it lies above 0, **do not** if all of it lies below, else it **cannot be
told**. "All of it" holds with whatever the documents may be worth that the log never showed where it tells something:
from nothing to the most that is possible. And the difference must rest on enough: an effective sample of impressions,
and queries whose lists differ. Where users read from the top and stop, the model of such users must say the same.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toprank.clicks.assumptions import CascadeUsers, cascade_users, trusting_users
from toprank.clicks.contexts import Context, ContextCells, contexts_of
from toprank.clicks.corrections import correct, curves_of
from toprank.clicks.curves import contradiction
from toprank.clicks.evaluation import JudgedRankers, added_by_clicks, clipped, judge_by, left_out, ranks_of
from toprank.clicks.known_sessions import KnownSessions
from toprank.clicks.log import REWARDS, ClickLog, UnidentifiedError, check_log, named
from toprank.clicks.recency import Recency, Span, latest, moment, recent, times_of
from toprank.clicks.reordering import Reordered, reordered
from toprank.comparison import Comparison, compare
from toprank.compute import FloatArray, IntArray
from toprank.data.checks import check_data, check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.data.slices import LEAST, By, Sliceable
from toprank.errors import DataError, Remedy, UnknownNameError, joined
from toprank.monitoring import Drift, monitor
from toprank.rankers.linear.ranker import LinearRanker
from toprank.showing.pictures import Picture, signed_bars
from toprank.showing.tables import Kind, Part, Shown, Table, bracketed, frame_of, json_numbers, percent
from toprank.significance import Interval, effective_sample
from toprank.significance.leaving_out import mean_interval

LAUNCH, DO_NOT_LAUNCH, CANNOT_BE_TOLD = "launch", "do not launch", "cannot be told"
ESTIMATORS = ("ips", "snips", "dr")
_QUERIES = 30  # with lists that differ: means of fewer are not near enough to normal for an interval
_DEPTH = 10
_POWER = 0.8  # the chance that so many sessions would tell
_MOST_SESSIONS = 1000.0  # times as many as there are: beyond that, the difference is nothing for a log to tell


class SliceGain(NamedTuple):
    """The difference in some of the queries; of few there is no interval."""

    name: str
    queries: int
    sessions: int
    gain: Interval


class Cost(NamedTuple):
    """What a ranker costs: bytes of its model file, and seconds of a processor for a query; None if unknown."""

    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, repr=False)
class Launch(Shown):
    """What is known before a launch, and what follows from it.

    Attributes:
        names: names of the new and the current ranker.
        metric: what is estimated, such as ``clicks@10``.
        estimator: the one that decides; the others stand beside it.
        estimates: of each estimator, that of the new ranker, of the current one, and the difference of both.
        reach: how far documents that were never shown where it tells something can move the difference, down and up.
        effective: impressions of equal weight that would tell as much about the difference.
        minimum: how many such impressions a decision needs.
        sessions: number of sessions of the log whose query is in the data.
        queries: number of queries that are in the log and the data, and of those among them whose lists differ.
        unseen: of the documents at the depth of the metric, those never shown, of the new ranker and the current one.
        clip: the least propensity, and how many impressions were divided by it.
        users: that users read from the top and stop, and what follows; None: nothing says so.
        reordered: what changes for users.
        slices: the difference by slices.
        offline: metrics by labels, where there are any.
        drift: how the data differ from `reference`, if that was given.
        costs: what both rankers cost.
        doubts: sentences on what the numbers rest on.
        recency: how sessions were weighed by their age; None if all count alike.
        learned: of the new ranker and the current one, the share of these sessions that it learned from; None: that is
            not known.
        no_answer: why the log tells nothing of the difference; empty where it tells something.
    """

    names: tuple[str, str]
    metric: str
    estimator: str
    estimates: dict[str, tuple[Interval, Interval, Interval]]
    reach: tuple[float, float]
    effective: float
    minimum: int
    sessions: int
    queries: tuple[int, int]
    unseen: tuple[int, int]
    clip: tuple[float, int]
    users: CascadeUsers | None
    reordered: Reordered
    slices: tuple[SliceGain, ...]
    offline: Comparison | None
    drift: Drift | None
    costs: tuple[Cost, Cost]
    doubts: tuple[str, ...] = ()
    recency: Recency | None = None
    learned: tuple[float | None, float | None] = (None, None)
    no_answer: str = ""
    _by: str = field(default="", repr=False)

    @property
    def difference(self) -> Interval:
        """New less current, by the estimator that decides."""
        return self.estimates[self.estimator][2]

    @property
    def ends(self) -> tuple[float, float]:
        """The interval that decides: it allows for whatever documents that were never shown may be worth."""
        low, high = self.difference
        return low + self.reach[0], high + self.reach[1]

    @property
    def decision(self) -> str:
        """``launch``, ``do not launch`` or ``cannot be told``."""
        sides = {_side(*self.ends)} | (set() if self.users is None else {_side(*self.users.difference)})
        if self._thin or len(sides) > 1 or sides <= self._flattered:
            return CANNOT_BE_TOLD
        return sides.pop()

    @property
    def _flattered(self) -> set[str]:
        """The decisions that speak for a ranker which learned from these sessions."""
        return {side for side, share in zip((LAUNCH, DO_NOT_LAUNCH), self.learned, strict=True) if share}

    @property
    def status(self) -> int:
        """The exit status of the command: 0 launch, 3 do not, 4 cannot be told."""
        return {LAUNCH: 0, DO_NOT_LAUNCH: 3, CANNOT_BE_TOLD: 4}[self.decision]

    @property
    def _thin(self) -> bool:
        return self.effective < self.minimum or self.queries[1] < _QUERIES

    @property
    def sessions_needed(self) -> int | None:
        """Sessions like these, of as many more queries, that would tell 8 times of 10, were the difference as it seems.

        None: no number would, as where the difference hangs on documents that are never shown.
        """
        from scipy.special import ndtri

        half = (self.difference.high - self.difference.low) / 2
        value = self.difference.value
        margin = max(value + self.reach[0], -(value + self.reach[1]))
        if not np.isfinite(half) or margin <= 0:
            return None
        more = (half / margin) ** 2 * (1 + ndtri(_POWER) / ndtri((1 + self.difference.confidence) / 2)) ** 2
        enough = max(more, self.minimum / max(self.effective, 1e-9), _QUERIES / max(self.queries[1], 1e-9))
        return int(np.ceil(enough * self.sessions)) if enough <= _MOST_SESSIONS else None

    @property
    def summary(self) -> str:
        """The decision in one sentence, and, where it cannot be told, what would tell."""
        new, current = self.names
        gain, (low, high) = self.difference, self.difference
        unit = "of value a session" if self.metric.startswith("value") else "clicks a session"
        rests = f"on an effective sample of {self.effective:,.0f} impressions (minimum {self.minimum:,})"
        bracket = bracketed(low, high, 4) if np.isfinite(low) else "[not known]"
        if self.decision == LAUNCH:
            return f"Launch {new}: it brings {gain.value:.4f} {unit} more than {current} {bracket}, {rests}."
        if self.decision == DO_NOT_LAUNCH:
            return f"Do not launch {new}: it brings {-gain.value:.4f} {unit} less than {current} {bracket}, {rests}."
        if self.no_answer:
            tell = "" if self.reordered.changed else f" {self._tell}"  # else the reason says it
            return f"This log cannot say whether {new} is better than {current}: {self._why_not}{tell}"
        figures = f"{gain.value:+.4f} {unit} {bracket}"
        return (
            f"This log cannot say whether {new} is better than {current} ({figures}, {rests}): {self._why_not} "
            f"{self._tell}"
        )

    @property
    def _why_not(self) -> str:
        if not self.reordered.changed:
            return f"both show the same top {self.reordered.k} to every session of the log."
        if self.no_answer:
            return self.no_answer[0].lower() + self.no_answer[1:]
        if self.effective < self.minimum:
            return "the effective sample is too small."
        if self.queries[1] < _QUERIES:
            return f"only {self.queries[1]:,} queries have lists that differ, and {_QUERIES} are needed."
        if _side(*self.difference) == CANNOT_BE_TOLD:
            return "the interval holds 0."
        if _side(*self.ends) == CANNOT_BE_TOLD:
            return "documents that the log never showed could reverse it."
        if _side(*self.ends) in self._flattered:
            return "the ranker that looks better learned from these very sessions."
        assert self.users is not None
        return f"users read from the top and stop, and {self.users.model}, which models such users, does not agree."

    @property
    def _tell(self) -> str:
        if not self.reordered.changed:
            return "There is nothing to launch."
        needed = self.sessions_needed
        if not self._thin and _side(*self.ends) in self._flattered:
            return "Use sessions that it did not learn from: later ones, or those that training held out."
        if self.users is not None and _side(*self.ends) != CANNOT_BE_TOLD:
            return "An A/B test or interleaving would settle it."
        if needed is not None and needed > self.sessions:
            return f"About {needed:,} sessions like these would be enough (there are {self.sessions:,})."
        if self.reach != (0.0, 0.0) and not needed:
            return "Show these documents to users: explore, run an A/B test, or interleave."
        return "No log of a realistic size would be enough: the two are about equally good."

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each estimator."""
        parts = list(self.estimates.values())
        return frame_of(
            {
                "estimator": list(self.estimates), "new": [part[0].value for part in parts],
                "current": [part[1].value for part in parts], "difference": [part[2].value for part in parts],
                "low": [part[2].low for part in parts], "high": [part[2].high for part in parts],
                "decides": [name == self.estimator for name in self.estimates],
            },
            kind,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """For JSON; an end that is not known is None."""
        names = ("new", "current", "difference")
        return {
            "decision": self.decision, "summary": self.summary, "names": list(self.names), "metric": self.metric,
            "estimator": self.estimator, "confidence": self.difference.confidence,
            "estimates": {
                name: {side: interval.to_dict() for side, interval in zip(names, of, strict=True)}
                for name, of in self.estimates.items()
            },
            "ends": json_numbers(list(self.ends)), "reach": json_numbers(list(self.reach)),
            "effective_sample_size": self.effective, "minimum": self.minimum, "sessions": self.sessions,
            "sessions_needed": self.sessions_needed, "queries": self.queries[0], "queries_that_differ": self.queries[1],
            "unseen": list(self.unseen), "clip": self.clip[0], "clipped": self.clip[1],
            "users": None if self.users is None else self.users.to_dict(), "reordered": self.reordered.to_dict(),
            "slices": [
                {"slice": row.name, "queries": row.queries, "sessions": row.sessions, "difference": row.gain.to_dict()}
                for row in self.slices
            ],
            "offline": None if self.offline is None else self.offline.to_dict(),
            "drift": None if self.drift is None else self.drift.to_dict(),
            "costs": [cost._asdict() for cost in self.costs], "doubts": list(self.doubts),
            "recency": None if self.recency is None else self.recency.to_dict(), "learned": list(self.learned),
        }  # fmt: skip

    def table(self) -> Table:
        """What each estimator says."""
        rows = [
            (f"{name} (decides)" if name == self.estimator else name, _number(new), _number(current),
             _number(gain, "+.4f"), _ends(gain))
            for name, (new, current, gain) in self.estimates.items()
        ]  # fmt: skip
        if self.users is not None:
            values = [f"{value:.4f}" for value in self.users.estimates.values()]
            gain = self.users.difference
            rows.append((f"{self.users.model} (must agree)", values[0], values[1], f"{gain.value:+.4f}", _ends(gain)))
        head = ("estimator", *self.names, "difference", f"{percent(self.difference.confidence)} interval")
        return Table(head, rows, names=1)

    def slices_table(self) -> Table:
        """The difference in slices."""
        rows = [
            (row.name, f"{row.queries:,}", f"{row.sessions:,}", f"{row.gain.value:+.4f}", _ends(row.gain))
            for row in self.slices
        ]
        head = (self._by, "queries", "sessions", "difference", f"{percent(self.difference.confidence)} interval")
        return Table(head, rows, names=1)

    def costs_table(self) -> Table:
        """Size and time of both models."""
        rows = [
            (name, "not known" if cost.bytes is None else f"{cost.bytes:,}",
             "not known" if cost.seconds is None else f"{cost.seconds * 1e6:.3g}")
            for name, cost in zip(self.names, self.costs, strict=True)
        ]  # fmt: skip
        return Table(("model", "bytes", "µs of a processor a query"), rows, names=1)

    def plot(self) -> Picture:
        """The difference by each estimator, and in slices."""
        if self.no_answer:
            raise DataError(f"There is nothing to draw. {self.no_answer}")
        rows = [(name, f"{name}: {gain.value:+.4f} {_ends(gain)}", gain.value, gain.low, gain.high)
                for name, (_, _, gain) in self.estimates.items()]  # fmt: skip
        if self.users is not None:
            gain = self.users.difference
            rows.append((self.users.model, str(self.users), gain.value, gain.low, gain.high))
        rows += [(row.name, f"{self._by} {row.name}: {row.gain.value:+.4f} {_ends(row.gain)}", row.gain.value,
                  row.gain.low, row.gain.high) for row in self.slices]  # fmt: skip
        return signed_bars("Gain of the new ranker", rows, f"{self.metric}, new less current")

    @property
    def grounds(self) -> list[str]:
        """Sentences on what the decision goes by, and on what it rests."""
        words = [
            f"{self.metric} of {self.sessions:,} sessions of {self.queries[0]:,} queries, of which {self.queries[1]:,} "
            "get different lists from the two."
        ]
        words += [] if self.recency is None else [str(self.recency)]
        if any(self.unseen) and not self.no_answer:
            low, high = self.ends
            words.append(
                f"{self.unseen[0]:,} documents that {self.names[0]} would show and {self.unseen[1]:,} of "
                f"{self.names[1]} were never shown at a position that counts; whatever they are worth, the difference "
                f"lies within {bracketed(low, high, 4)}, and the decision is based on that."
            )
        words += clipped(*self.clip, self.estimator)
        words += [
            f"{name} learned from about {share:.0%} of these sessions, so it looks better on them than it is."
            for name, share in zip(self.names, self.learned, strict=True)
            if share
        ]
        unknown = [name for name, share in zip(self.names, self.learned, strict=True) if share is None]
        if unknown:
            words.append(
                f"Whether {' or '.join(unknown)} learned from these sessions is not known; the estimates are right "
                "only if not. Models trained by `clicks train` record this, if the log has session ids or times."
            )
        return [*words, *([] if self.users is None else [str(self.users)]), *self.doubts]

    def _parts(self) -> Sequence[Part]:
        parts: list[Part] = [self.summary, self.table(), *self.grounds, str(self.reordered)]
        if self.slices:
            parts += [self.slices_table()]
        for affected in self.reordered.affected[:1]:
            parts += [
                f"Most affected: query {affected.query}, {affected.sessions:,} sessions. {affected.why}".strip(),
                affected.table(),
            ]
        if self.offline is not None:
            parts.append(f"By labels: {self.offline.summary}")
        if self.drift is not None:
            parts.append(f"Drift: {self.drift.summary}")
        return [*parts, self.costs_table()]


def _number(interval: Interval, form: str = ".4f") -> str:
    return "not known" if np.isnan(interval.value) else format(interval.value, form)


def _ends(gain: Interval) -> str:
    return bracketed(gain.low, gain.high, 4) if np.isfinite(gain.low) and np.isfinite(gain.high) else "not known"


def _side(low: float, high: float) -> str:
    return LAUNCH if low > 0 else DO_NOT_LAUNCH if high < 0 else CANNOT_BE_TOLD


def launch(
    log: ClickLog,
    data: RankingData,
    new: Any,
    current: Any,
    metric: str = "click",
    *,
    k: int | None = None,
    estimator: str = "snips",
    propensities: Any = None,
    context: Context | None = None,
    clip: float | None = None,
    most: float | None = None,
    minimum: int = 1000,
    slices: By | None = None,
    reference: RankingData | None = None,
    since: float | None = None,
    by: str | None = None,
    holdout: float = 0.2,
    half_life: Span | None = None,
    window: Span | None = None,
    version: str | None = None,
    current_data: RankingData | None = None,
    names: tuple[str, str] = ("new", "current"),
    shown: int = 5,
    confidence: float = 0.95,
    seed: int = 0,
) -> Launch:
    """Say whether to launch a new ranker, from a log of what users did with lists of any rankers.

    The sessions must be ones that neither ranker learned from: give a log of later days, or `since`, or `by`. A ranker
    that is known to have learned from them does not win: its file says so where `train` made it.

    Args:
        log: sessions of queries of `data`. Some lists must have been explored, or made by several rankers.
        data: documents; labels are only used for metrics beside the estimates.
        new: a fitted ranker, or its scores of the documents.
        current: the ranker that serves now, or its scores.
        metric: ``click`` or ``value``: what a session brings at the top `k`.
        k: None: 10, or the depth of the log where that is less.
        estimator: the one that decides: ``ips``, ``snips`` or ``dr``. Choose it before you look.
        propensities: as in `evaluate`; None: found from the log, and intervals are as wide as that makes them.
        context: column of the log whose contexts have propensities of their own, as in `evaluate`.
        clip: the least propensity to divide by, as in `evaluate`.
        most: what a document that was never shown can be worth to a user who looks at it; None: 1 for clicks, for
            values the most that any document of the log seems to be worth.
        minimum: the effective sample that a decision needs.
        slices: also tell the difference in slices of the queries: a column that the data carry, or as `compare` has it.
        reference: data like those that the new ranker was trained for, to see what has drifted.
        since: leave out sessions before this time of the log, in seconds since 1970.
        by: a column of the log with times, such as ``time``: judge by the latest sessions alone, those that `train`
            holds out of the same log.
        holdout: the share of sessions to hold out.
        half_life: a session counts half for every such time that it is older than the newest: ``"14d"``, ``"36h"``, or
            seconds; what is estimated is then a mean over the last while (`toprank.clicks.recency`).
        window: leave out sessions that are older than this.
        version: of the current model as the service calls it, or the SHA-256 of its file; sessions that other versions
            served are counted and reported.
        current_data: the same documents in the columns of the current ranker, where the new one takes others.
        names: names of the new ranker and the current one.
        shown: queries to show side by side.
        confidence: confidence level of the intervals.
        seed: seed of the random draws.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=60, n_documents=5, seed=0)
    >>> users = tr.clicks.PBM.known([1, 0.6, 0.4, 0.3, 0.2])
    >>> log = tr.clicks.simulate(data, data.X[:, 0], users, sessions=4_000, k=5, exploration=0.5)
    >>> report = tr.clicks.launch(log, data, -data.labels, data.labels, propensities=[1, 0.6, 0.4, 0.3, 0.2])
    >>> report.decision, report.status
    ('do not launch', 3)
    """
    _check(log, data, metric, estimator, minimum, confidence, most)
    if names[0] == names[1]:
        raise DataError(f"The new ranker and the current one are both called '{names[0]}'; give two different names.")
    log = _later(log, since)
    log, recency = recent(log if by is None else latest(log, by, holdout).late, half_life, window)
    layout = _layout_of(propensities, context, log)
    in_cells = (
        layout is not None and layout.varies
    )  # positions are places within contexts: nobody knows what is read when
    k = min(_DEPTH, int(np.diff(log.offsets).max()) if in_cells else log.depth) if k is None else k
    check_whole("k", k, 1)
    wanted = f"{'clicks' if metric == 'click' else 'value'}@{k}"
    data_of_rankers = (data, data if current_data is None else _alike(current_data, data))
    scores, costs = zip(
        *(_scored(model, rows, name) for model, rows, name in zip((new, current), data_of_rankers, names, strict=True)),
        strict=True,
    )
    ranks = {name: ranks_of(of_model, data) for name, of_model in zip(names, scores, strict=True)}
    curves = propensities
    if not (propensities is None or isinstance(propensities, str)):
        curves, context = curves_of(propensities, log, data, LinearRanker(), context), None
        if metric == "value" and curves.has_offsets and estimator != "ips":
            raise DataError("With trust in positions, values have one estimator only,", remedy=_BY_IPS)
    trusting = metric == "value" and estimator == "ips"
    estimators = (estimator,) if trusting else ESTIMATORS
    facts: dict[str, Any] = {
        "recency": recency, "learned": (_learned(new, log), _learned(current, log)),
        "offline": _offline(dict(zip(names, scores, strict=True)), data, seed),
        "drift": None if reference is None else monitor(new, reference, data, confidence=confidence, seed=seed),
        "costs": costs,
    }  # fmt: skip
    try:
        judged = judge_by(
            estimators,
            ranks,
            log,
            data,
            [wanted],
            propensities=curves,
            context=context,
            clip=clip,
            confidence=confidence,
        )
    except UnidentifiedError as reason:
        unknown = Interval(np.nan, -np.inf, np.inf, confidence, 0, "not known", "difference")
        return _without_answer(
            reason.args[0], log, data, ranks, k, new, shown, names=names, metric=wanted, estimator=estimator,
            minimum=minimum, estimates=dict.fromkeys(estimators, (unknown, unknown, unknown)), **facts,
        )  # fmt: skip
    deciding = judged[estimator]
    known = deciding.known[wanted]
    looks = deciding.weights[names[0]][wanted] - deciding.weights[names[1]][wanted]
    differ = np.bincount(data.queries.document_query, looks != 0, data.n_queries) > 0
    read_by = None if layout is None else layout.columns
    users = None if in_cells else cascade_users(ranks, log, data, k, metric, confidence, seed, read_by)
    estimates = deciding.estimates
    examined = layout is None and users is None and not _know_trust(curves)
    trust = trusting_users(log, seed) if examined else []
    contradictions = [] if deciding.curves is None else list(filter(None, [contradiction(deciding.curves, log, seed)]))
    sliced_by, gains = _in_slices(deciding, wanted, names, data, slices, confidence) if slices is not None else ("", ())
    return Launch(
        names=names, metric=wanted, estimator=estimator,
        estimates={name: _three(estimate, names, wanted) for name, estimate in judged.items()},
        reach=_reach(looks, known, data, _possible(log, known, metric, most), estimator),
        effective=effective_sample(added_by_clicks(np.abs(looks), known, data)), minimum=minimum,
        sessions=int(known.counts.sum()),
        queries=(int(known.asked.sum()), int((differ & known.asked).sum())),
        unseen=(estimates[names[0]].unseen[wanted], estimates[names[1]].unseen[wanted]),
        clip=(known.clip, known.clipped), users=users,
        reordered=reordered(ranks[names[0]], ranks[names[1]], data, known.counts, k, looks, new, shown),
        slices=gains,
        doubts=(*_by_context(layout), *trust, *contradictions,
                *_doubts(log, known, judged, names, wanted, version)),
        _by=sliced_by, **facts,
    )  # fmt: skip


def _without_answer(
    reason: str, log: ClickLog, data: RankingData, ranks: dict[str, IntArray], k: int, new: Any, shown: int,
    **facts: Any,
) -> Launch:  # fmt: skip
    """The report where the log tells nothing of the difference: what changes for users is known all the same."""
    names = facts["names"]
    known = correct(log, data, "none", None)
    first, second = (np.where(ranks[name] <= k, 1 / np.log2(ranks[name] + 1), 0.0) for name in names)
    differ = np.bincount(data.queries.document_query, first != second, data.n_queries) > 0
    among = data.queries.spread(known.asked) & (known.shown == 0)
    return Launch(
        reach=(0.0, 0.0), effective=0.0, sessions=int(known.counts.sum()),
        queries=(int(known.asked.sum()), int((differ & known.asked).sum())),
        unseen=(int((among & (first > 0)).sum()), int((among & (second > 0)).sum())), clip=(0.0, 0), users=None,
        reordered=reordered(ranks[names[0]], ranks[names[1]], data, known.counts, k, first - second, new, shown),
        slices=(), no_answer=reason, **facts,
    )  # fmt: skip


def _know_trust(curves: Any) -> bool:
    """Whether propensities have offsets, or are found by the method that gives them some."""
    return curves == "trust" if curves is None or isinstance(curves, str) else bool(curves.has_offsets)


def _layout_of(propensities: Any, context: Context | None, log: ClickLog) -> ContextCells | None:
    """The contexts that propensities belong to."""
    if context is None:
        return getattr(propensities, "layout", None)
    contexts = contexts_of(log, context)
    return ContextCells(contexts.columns, contexts.names, contexts.varies, log.depth)


_BY_IPS = Remedy("{estimator}: a click out of trust brings no value.", estimator="ips")


def _check(
    log: ClickLog, data: RankingData, metric: str, estimator: str, minimum: int, confidence: float, most: float | None
) -> None:
    check_log(log)
    check_data("launch", data)
    if metric not in REWARDS:
        raise UnknownNameError("metric of a launch", metric, REWARDS)
    if estimator not in ESTIMATORS:
        raise UnknownNameError("estimator of a launch", estimator, ESTIMATORS)
    check_whole("minimum", minimum, 1)
    check_number("confidence", confidence, above=0, below=1)
    if most is not None:
        check_number("most", most, least=0)
    if metric == "value":
        log.rewards("value")


def _later(log: ClickLog, since: float | None) -> ClickLog:
    if since is None:
        return log
    kept = times_of(log) >= since
    if not kept.any():
        raise DataError(f"The log has no session from {moment(since)} or later.")
    return log.select(kept)


def _alike(other: RankingData, data: RankingData) -> RankingData:
    """Other columns of the same documents."""
    ours, theirs = ((rows.queries.offsets, rows.qids, rows.document_ids) for rows in map(named, (data, other)))
    if not all(np.array_equal(np.asarray(mine), np.asarray(others)) for mine, others in zip(ours, theirs, strict=True)):
        raise DataError("current_data has other documents than data, or has them in another order.")
    return other


def _learned(ranker: Any, log: ClickLog) -> float | None:
    """The share of the sessions that a ranker learned from; None where that is not known."""
    known = KnownSessions.learned_by(ranker)
    return None if known is None else known.share(log)


def _scored(ranker: Any, data: RankingData, name: str) -> tuple[FloatArray, Cost]:
    """The scores of the documents, and what they cost."""
    if not hasattr(ranker, "predict"):
        return np.asarray(data.aligned(ranker), dtype=np.float64), Cost(None, None)
    try:
        ranker.predict(data.select([0]))  # the first call of a process loads what later ones need not
        start = time.process_time()
        scores = np.asarray(ranker.predict(data), dtype=np.float64)
    except DataError as problem:
        raise DataError(joined(f"The model '{name}' does not fit these data.", problem.args[0])) from None
    seconds = (time.process_time() - start) / data.n_queries
    return scores, Cost(_size(ranker), seconds)


def _size(ranker: Any) -> int | None:
    if not hasattr(ranker, "save"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.toprank"
        try:
            ranker.save(path)
        except DataError:  # of another library, in its own file
            return None
        return path.stat().st_size


def _three(judged: JudgedRankers, names: tuple[str, str], metric: str) -> tuple[Interval, Interval, Interval]:
    new, current = (judged.estimates[name].intervals[metric] for name in names)
    return new, current, judged.gain(*names, metric)


def _possible(log: ClickLog, known: Any, metric: str, most: float | None) -> tuple[float, float]:
    """Return the least and the most that a document that was never shown may bring to a user who looks at it."""
    seen = known.relevance[(known.shown > 0) & np.isfinite(known.relevance)]
    least = float(seen.min(initial=0.0)) if (log.rewards(metric) < 0).any() else 0.0
    if most is None:
        most = 1.0 if metric == "click" else float(seen.max(initial=0.0))
    return least, most


def _reach(
    looks: FloatArray, known: Any, data: RankingData, possible: tuple[float, float], estimator: str
) -> tuple[float, float]:
    """Return how far the difference moves, down and up, if what was never shown is worth the least or most possible."""
    unseen, shares = known.shown == 0, data.queries.spread(known.sessions / known.sessions.sum())
    weight = (looks * shares)[unseen]
    counted = np.nan_to_num(known.relevance)[unseen] if estimator == "dr" else np.zeros(len(weight))
    sides = np.stack([weight * (end - counted) for end in possible])
    return min(float(sides.min(axis=0).sum()), 0.0), max(float(sides.max(axis=0).sum()), 0.0)


def _in_slices(
    judged: JudgedRankers, metric: str, names: tuple[str, str], data: RankingData, by: By, confidence: float
) -> tuple[str, tuple[SliceGain, ...]]:
    """Return what the slices are by, and the difference in each; propensities are taken for right here."""
    known = judged.known[metric]
    in_log, slices = known.asked, Sliceable.of(data).slices(by)
    each = judged.estimates[names[0]].per_query[metric] - judged.estimates[names[1]].per_query[metric]
    codes, weights, gains = slices.codes[in_log], known.sessions[in_log], []
    for number, name in enumerate(slices.names):
        of_slice = codes == number
        if not of_slice.any():
            continue
        n_queries, gain = int(of_slice.sum()), mean_interval(each[of_slice], weights[of_slice], confidence)
        if n_queries < LEAST:
            gain = replace(gain, low=-np.inf, high=np.inf)
        gains.append(SliceGain(name, n_queries, int(known.counts[in_log][of_slice].sum()), gain))
    return slices.by, tuple(gains)


def _offline(scores: dict[str, FloatArray], data: RankingData, seed: int) -> Comparison | None:
    """NDCG@10 of both by the labels, where every document has one and some are good."""
    if not data.judged.all() or not (data.labels > 0).any():
        return None
    return compare(scores, data, ["ndcg@10"], order="data", flips=10_000, resamples=2_000, seed=seed)


def _by_context(layout: ContextCells | None) -> list[str]:
    if layout is None:
        return []
    if not layout.varies:
        return [layout.sentence]
    return [
        layout.sentence,
        "Whether users read from the top and stop was not examined, since cells have no single order.",
    ]


def _doubts(
    log: ClickLog, known: Any, judged: dict[str, JudgedRankers], names: tuple[str, str], metric: str,
    version: str | None,
) -> list[str]:  # fmt: skip
    doubts = left_out(known.unknown, known.uncorrected)
    sides = {name: _side(*estimate.gain(*names, metric)) for name, estimate in judged.items()}
    if {LAUNCH, DO_NOT_LAUNCH} <= set(sides.values()):
        listed = ", ".join(f"{name}: {side}" for name, side in sides.items())
        doubts.append(f"The estimators contradict each other ({listed}): do not trust any of them.")
    n_other = _of_other_versions(log, version)
    if n_other:
        doubts.append(
            f"{n_other:,} of {log.n_sessions:,} sessions were served by other versions than the current model. They "
            "are used, but they do not show what that model would have shown."
        )
    return doubts


def _of_other_versions(log: ClickLog, version: str | None) -> int:
    """Sessions that other versions served; of interleaved lists and splits, neither of whose versions it is."""
    if version is None or "version" not in log.columns:
        return 0
    versions = log.columns["version"][log.offsets[:-1]].astype(str)
    known = {
        version_named: any(part and version.startswith(part) for part in version_named.split("+"))
        for version_named in set(versions.tolist())
    }
    return sum(not known[version] for version in versions.tolist())
