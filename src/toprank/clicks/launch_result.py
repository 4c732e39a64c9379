"""The launch report: whether to launch a ranker, as one sentence under one rule.

The rule: **launch** if the whole interval of the difference lies above 0, **do not** if it lies below, else it **cannot
be told**. The interval holds whatever documents that were never shown are worth, from the least to the most possible.
And the difference must rest on enough: an effective sample of impressions, and queries whose lists differ; if
propensities are estimated, also on lists that inform them. If users read from the top and stop, the model of such users
must agree. A caveat by which the estimates may mislead blocks the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from toprank.clicks.assumptions import CascadeCheck
from toprank.clicks.curves import BLOCKED
from toprank.clicks.evaluation import MIN_LISTS, clipped
from toprank.clicks.ranking_changes import RankingChanges
from toprank.clicks.recency import Recency
from toprank.display.pictures import Picture, signed_bars
from toprank.display.record import Record, to_json
from toprank.display.tables import Part, Table, bracketed, percent
from toprank.errors import DataError
from toprank.evaluation import Comparison
from toprank.monitoring import Drift
from toprank.significance import Interval

LAUNCH, DO_NOT_LAUNCH, UNDECIDED = "launch", "do not launch", "undecided"
MIN_QUERIES = 30  # with lists that differ: means of fewer are not near enough to normal for an interval
_MOSTLY = 0.5  # of the variance
_POWER = 0.8  # the chance that so many sessions would tell
SLICES_REMARK = (
    "By slice, propensities are assumed to be exact. The intervals are simultaneous: the confidence level is that of "
    "all slices together (Bonferroni)."
)
_MOST_SESSIONS = 1000.0  # times as many as there are: beyond that, the difference is nothing for a log to tell


class SliceGain(NamedTuple):
    """The difference in a slice of the queries, with a simultaneous interval; infinite if the queries are few."""

    name: str
    queries: int
    sessions: int
    gain: Interval


class Cost(NamedTuple):
    """What a ranker costs: bytes of its model file, and seconds of a processor for a query; None if unknown."""

    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, repr=False)
class LaunchReport(Record):
    """What is known before a launch, and what follows from it.

    Attributes:
        names: names of the new and the current ranker.
        metric: what is estimated, such as ``clicks@10``.
        estimator: the one that decides; the others stand beside it.
        estimates: of each estimator, that of the new ranker, of the current one, and the difference of both.
        unseen_bounds: how far documents that were never shown where it tells something can move the difference, down
            and up.
        effective_sample_size: impressions of equal weight that would tell as much about the difference.
        min_effective_sample_size: how many such impressions a decision needs.
        sessions: number of sessions of the log whose query is in the data.
        queries: number of queries that are in the log and the data, and of those among them whose lists differ.
        never_shown: of the documents at the depth of the metric, those never shown, of the new ranker and the current
            one.
        clip: the least propensity, and how many impressions were divided by it.
        cascade_check: that users read from the top and stop, and what follows; None: nothing says so.
        ranking_changes: what changes for users.
        slices: the difference by slice; all intervals together hold with the confidence level (Bonferroni).
        offline: metrics by labels, where there are any.
        drift: how the data differ from `reference`, if that was given.
        costs: what both rankers cost.
        caveats: sentences on what the numbers rest on.
        blocking: the doubts by which the estimates may mislead; any of them blocks the decision.
        candidates: for each new ranker that was compared, its difference to the current one, with an interval at the
            deciding level; `names` has the one with the largest difference.
        n_candidates: number of new rankers compared on these sessions, including earlier ones that the caller counts.
        recency: how sessions were weighed by their age; None if all count alike.
        training_overlap: of the new ranker and the current one, the share of these sessions that it learned from; None:
            that is not known.
        undecided_reason: why the log tells nothing of the difference; empty where it tells something.
        informing_lists: effective number of lists that inform the propensities of the documents that the rankers place
            differently; None if propensities were given, or learned from features.
        propensity_variance_share: fraction of the variance of the difference that is due to estimated propensities.
    """

    names: tuple[str, str]
    metric: str
    estimator: str
    estimates: dict[str, tuple[Interval, Interval, Interval]]
    unseen_bounds: tuple[float, float]
    effective_sample_size: float
    min_effective_sample_size: int
    sessions: int
    queries: tuple[int, int]
    never_shown: tuple[int, int]
    clip: tuple[float, int]
    cascade_check: CascadeCheck | None
    ranking_changes: RankingChanges
    slices: tuple[SliceGain, ...]
    offline: Comparison | None
    drift: Drift | None
    costs: tuple[Cost, Cost]
    caveats: tuple[str, ...] = ()
    recency: Recency | None = None
    training_overlap: tuple[float | None, float | None] = (None, None)
    undecided_reason: str = ""
    informing_lists: float | None = None
    propensity_variance_share: float = 0.0
    blocking: tuple[str, ...] = ()
    candidates: dict[str, Interval] = field(default_factory=dict)
    n_candidates: int = 1
    _by: str = field(default="", repr=False)

    @property
    def difference(self) -> Interval:
        """New less current, by the estimator that decides."""
        return self.estimates[self.estimator][2]

    @property
    def _confidence(self) -> float:
        """The confidence level of all intervals together, over the new rankers that were compared."""
        return 1 - (1 - self.difference.confidence) * self.n_candidates

    @property
    def decision_interval(self) -> tuple[float, float]:
        """The interval that decides: it allows for whatever documents that were never shown may be worth."""
        low, high = self.difference
        return low + self.unseen_bounds[0], high + self.unseen_bounds[1]

    @property
    def decision(self) -> str:
        """``launch``, ``do not launch`` or ``cannot be told``."""
        sides = {side_of(*self.decision_interval)} | (
            set() if self.cascade_check is None else {side_of(*self.cascade_check.difference)}
        )
        if self._thin or self._blocked or len(sides) > 1 or sides <= self._flattered:
            return UNDECIDED
        return sides.pop()

    @property
    def _flattered(self) -> set[str]:
        """The decisions that speak for a ranker which learned from these sessions."""
        return {side for side, share in zip((LAUNCH, DO_NOT_LAUNCH), self.training_overlap, strict=True) if share}

    @property
    def status(self) -> int:
        """The exit status of the command: 0 launch, 3 do not, 4 cannot be told, 5 a caveat blocks the decision."""
        if self._blocked:
            return BLOCKED
        return {LAUNCH: 0, DO_NOT_LAUNCH: 3, UNDECIDED: 4}[self.decision]

    @property
    def _blocked(self) -> bool:
        """Whether a caveat blocks the decision; without any difference between the lists, no decision is blocked."""
        return bool(self.blocking) and self.ranking_changes.changed > 0

    @property
    def _thin(self) -> bool:
        return (
            self.effective_sample_size < self.min_effective_sample_size
            or self.queries[1] < MIN_QUERIES
            or self._uninformed
        )

    @property
    def _uninformed(self) -> bool:
        return self.informing_lists is not None and self.informing_lists < MIN_LISTS

    @property
    def sessions_needed(self) -> int | None:
        """Sessions that would decide with a power of 0.8, if the difference is as estimated.

        The sessions are like these, with the same number of sessions per query, so the number of queries
        (`queries_needed`) grows as that of sessions does. None if no sample size suffices, for example because the
        result depends on documents that are never shown.
        """
        enough = self._growth_needed
        return None if enough is None else int(np.ceil(enough * self.sessions))

    @property
    def queries_needed(self) -> int | None:
        """Number of different queries among the `sessions_needed`."""
        enough = self._growth_needed
        return None if enough is None else int(np.ceil(enough * self.queries[0]))

    @property
    def _growth_needed(self) -> float | None:
        """The factor on sessions and queries by which a log decides with a power of 0.8."""
        from scipy.special import ndtri

        half = (self.difference.high - self.difference.low) / 2
        value = self.difference.value
        margin = max(value + self.unseen_bounds[0], -(value + self.unseen_bounds[1]))
        if not np.isfinite(half) or margin <= 0:
            return None
        more = (half / margin) ** 2 * (1 + ndtri(_POWER) / ndtri((1 + self.difference.confidence) / 2)) ** 2
        lists = 0.0 if self.informing_lists is None else MIN_LISTS / max(self.informing_lists, 1e-9)
        enough = max(
            more,
            lists,
            self.min_effective_sample_size / max(self.effective_sample_size, 1e-9),
            MIN_QUERIES / max(self.queries[1], 1e-9),
        )
        return enough if enough <= _MOST_SESSIONS else None

    @property
    def summary(self) -> str:
        """The decision in one sentence, and, where it cannot be told, what would tell."""
        new, current = self.names
        gain, (low, high) = self.difference, self.difference
        unit = "of value a session" if self.metric.startswith("value") else "clicks a session"
        rests = (
            f"on an effective sample of {self.effective_sample_size:,.0f} impressions "
            f"(minimum {self.min_effective_sample_size:,})"
        )
        bracket = bracketed(low, high, 4) if np.isfinite(low) else "[not known]"
        if self.decision == LAUNCH:
            return f"Launch {new}: it brings {gain.value:.4f} {unit} more than {current} {bracket}, {rests}."
        if self.decision == DO_NOT_LAUNCH:
            return f"Do not launch {new}: it brings {-gain.value:.4f} {unit} less than {current} {bracket}, {rests}."
        if self.undecided_reason:
            tell = "" if self.ranking_changes.changed else f" {self._tell}"  # else the reason says it
            return f"This log cannot say whether {new} is better than {current}: {self._why_not}{tell}"
        figures = f"{gain.value:+.4f} {unit} {bracket}"
        return (
            f"This log cannot say whether {new} is better than {current} ({figures}, {rests}): {self._why_not} "
            f"{self._tell}"
        )

    @property
    def _why_not(self) -> str:
        if not self.ranking_changes.changed:
            return f"both show the same top {self.ranking_changes.k} to every session of the log."
        if self.undecided_reason:
            return self.undecided_reason[0].lower() + self.undecided_reason[1:]
        if self._blocked:
            return f"a caveat blocks the decision. {self.blocking[0]}"
        if self.effective_sample_size < self.min_effective_sample_size:
            return "the effective sample is too small."
        if self.queries[1] < MIN_QUERIES:
            return f"only {self.queries[1]:,} queries have lists that differ, and {MIN_QUERIES} are needed."
        if self._uninformed:
            return f"only about {self.informing_lists:,.0f} lists inform the propensities, and {MIN_LISTS} are needed."
        if side_of(*self.difference) == UNDECIDED:
            if self.propensity_variance_share > _MOSTLY:
                lists = self.informing_lists
                number = "" if lists is None else f": about {lists:,.0f} lists inform them"
                return f"the interval holds 0, mostly because the propensities are uncertain{number}."
            return "the interval holds 0."
        if side_of(*self.decision_interval) == UNDECIDED:
            return "documents that the log never showed could reverse it."
        if side_of(*self.decision_interval) in self._flattered:
            return "the ranker that looks better learned from these very sessions."
        assert self.cascade_check is not None
        model = self.cascade_check.model
        return f"users read from the top and stop, and {model}, which models such users, does not agree."

    @property
    def _tell(self) -> str:
        if not self.ranking_changes.changed:
            return "There is nothing to launch."
        if self._blocked:
            return "More sessions of this kind would not resolve this."
        needed, queries = self.sessions_needed, self.queries_needed
        uncertain = self.propensity_variance_share > _MOSTLY
        if not self._thin and side_of(*self.decision_interval) in self._flattered:
            return "Use sessions that it did not learn from: later ones, or those that training held out."
        if self.cascade_check is not None and side_of(*self.decision_interval) != UNDECIDED:
            return "An A/B test or interleaving would settle it."
        if needed is not None and needed > self.sessions:
            fewer = " Fewer would be enough if more of them were explored." if uncertain else ""
            n_queries = f"{self.sessions:,} of {self.queries[0]:,}"
            return (
                f"About {needed:,} sessions of {queries:,} different queries would be enough (there are "
                f"{n_queries}). More sessions of the same queries would not suffice.{fewer}"
            )
        if self.unseen_bounds != (0.0, 0.0) and not needed:
            return "Show these documents to users: explore, run an A/B test, or interleave."
        if uncertain:
            return "Explore more of the lists, or give propensities."
        return "No log of a realistic size would be enough: the two are about equally good."

    json_names: ClassVar[Mapping[str, str]] = {
        "propensity_variance_share": "variance_from_propensities",
    }
    json_hidden = frozenset({"undecided_reason"})
    json_properties = ("summary", "decision", "decision_interval", "sessions_needed", "queries_needed")

    def to_dict(self) -> dict[str, Any]:
        """For JSON; an end that is not known is None."""
        names = ("new", "current", "difference")
        return super().to_dict() | {
            "confidence": self.difference.confidence,
            "estimates": {name: to_json(dict(zip(names, of, strict=True))) for name, of in self.estimates.items()},
            "queries": self.queries[0], "queries_that_differ": self.queries[1],
            "clip": self.clip[0], "clipped": self.clip[1],
            "slices": [
                to_json({"slice": row.name, "queries": row.queries, "sessions": row.sessions, "difference": row.gain})
                for row in self.slices
            ],
        }  # fmt: skip

    def _columns(self) -> dict[str, list[Any]]:
        """One row for each estimator."""
        new, current, gain = (list(of) for of in zip(*self.estimates.values(), strict=True))
        return {
            "estimator": list(self.estimates), "new": [of.value for of in new],
            "current": [of.value for of in current], "difference": [of.value for of in gain],
            "low": [of.low for of in gain], "high": [of.high for of in gain],
            "decides": [name == self.estimator for name in self.estimates],
        }  # fmt: skip

    def table(self) -> Table:
        """What each estimator says."""
        rows = [
            (f"{name} (decides)" if name == self.estimator else name, _number(new), _number(current),
             _number(gain, "+.4f"), _ends(gain))
            for name, (new, current, gain) in self.estimates.items()
        ]  # fmt: skip
        if self.cascade_check is not None:
            values = [f"{value:.4f}" for value in self.cascade_check.estimates.values()]
            gain = self.cascade_check.difference
            rows.append(
                (f"{self.cascade_check.model} (must agree)", values[0], values[1], f"{gain.value:+.4f}", _ends(gain))
            )
        head = ("estimator", *self.names, "difference", f"{_level(self.difference.confidence)} interval")
        return Table(head, rows, names=1)

    def slices_table(self) -> Table:
        """The difference in slices."""
        rows = [
            (row.name, f"{row.queries:,}", f"{row.sessions:,}", f"{row.gain.value:+.4f}", _ends(row.gain))
            for row in self.slices
        ]
        level = f"simultaneous {percent(self._confidence)} interval"
        head = (self._by, "queries", "sessions", "difference", level)
        return Table(head, rows, names=1)

    def candidates_table(self) -> Table:
        """The difference of each new ranker to the current one."""
        rows = [(name, f"{gain.value:+.4f}", _ends(gain)) for name, gain in self.candidates.items()]
        level = f"simultaneous {percent(self._confidence)} interval"
        return Table(("new ranker", f"difference to {self.names[1]}", level), rows, names=1)

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
        if self.undecided_reason:
            raise DataError(f"There is nothing to draw. {self.undecided_reason}")
        rows = [(name, f"{name}: {gain.value:+.4f} {_ends(gain)}", gain.value, gain.low, gain.high)
                for name, (_, _, gain) in self.estimates.items()]  # fmt: skip
        if self.cascade_check is not None:
            gain = self.cascade_check.difference
            rows.append((self.cascade_check.model, str(self.cascade_check), gain.value, gain.low, gain.high))
        rows += [(row.name, f"{self._by} {row.name}: {row.gain.value:+.4f} {_ends(row.gain)}", row.gain.value,
                  row.gain.low, row.gain.high) for row in self.slices]  # fmt: skip
        return signed_bars("Gain of the new ranker", rows, f"{self.metric}, new less current")

    @property
    def rationale(self) -> list[str]:
        """Sentences on what the decision goes by, and on what it rests."""
        words = [
            f"{self.metric} of {self.sessions:,} sessions of {self.queries[0]:,} queries, of which {self.queries[1]:,} "
            "get different lists from the two. The difference and its interval are for the population that these "
            "queries were sampled from, not for this fixed list of queries."
        ]
        if self.n_candidates > 1:
            words.append(
                f"{self.n_candidates:,} new rankers were compared on these sessions, so the interval that decides has "
                f"{_level(self.difference.confidence)} confidence: all {self.n_candidates:,} together have "
                f"{percent(self._confidence)} (Bonferroni)."
            )
        words += [] if self.recency is None else [str(self.recency)]
        if any(self.never_shown) and not self.undecided_reason:
            low, high = self.decision_interval
            words.append(
                f"{self.never_shown[0]:,} documents that {self.names[0]} would show and {self.never_shown[1]:,} of "
                f"{self.names[1]} were never shown at a position that counts; whatever they are worth, the difference "
                f"lies within {bracketed(low, high, 4)}, and the decision is based on that."
            )
        if self.informing_lists is not None:
            words.append(
                f"About {self.informing_lists:,.0f} lists inform the propensities (minimum {MIN_LISTS}), whose "
                f"uncertainty makes {self.propensity_variance_share:.0%} of the variance of the difference."
            )
        words += clipped(*self.clip, self.estimator)
        words += [
            f"{name} learned from about {share:.0%} of these sessions, so it looks better on them than it is."
            for name, share in zip(self.names, self.training_overlap, strict=True)
            if share
        ]
        unknown = [name for name, share in zip(self.names, self.training_overlap, strict=True) if share is None]
        if unknown:
            words.append(
                f"Whether {' or '.join(unknown)} learned from these sessions is not known; the estimates are right "
                "only if not. Models trained by `clicks train` recognize their sessions, if both logs have session ids."
            )
        return [*words, *([] if self.cascade_check is None else [str(self.cascade_check)]), *self.caveats]

    def _parts(self) -> Sequence[Part]:
        parts: list[Part] = [self.summary, self.table(), *self.rationale, str(self.ranking_changes)]
        if len(self.candidates) > 1:
            parts.insert(1, self.candidates_table())
        if self.slices:
            parts += [SLICES_REMARK, self.slices_table()]
        for affected in self.ranking_changes.affected[:1]:
            parts += [
                f"Most affected: query {affected.query}, {affected.sessions:,} sessions. {affected.why}".strip(),
                affected.table(),
            ]
        if self.offline is not None:
            parts.append(f"By labels: {self.offline.summary}")
        if self.drift is not None:
            parts.append(f"Drift: {self.drift.summary}")
        return [*parts, self.costs_table()]


def _level(confidence: float) -> str:
    """Write a confidence level with three digits of its distance to 100%."""
    return f"{100 - float(f'{100 * (1 - confidence):.3g}'):.10g}%"


def _number(interval: Interval, form: str = ".4f") -> str:
    return "not known" if np.isnan(interval.value) else format(interval.value, form)


def _ends(gain: Interval) -> str:
    return bracketed(gain.low, gain.high, 4) if np.isfinite(gain.low) and np.isfinite(gain.high) else "not known"


def side_of(low: float, high: float) -> str:
    """Return the decision that an interval of the difference allows."""
    return LAUNCH if low > 0 else DO_NOT_LAUNCH if high < 0 else UNDECIDED
