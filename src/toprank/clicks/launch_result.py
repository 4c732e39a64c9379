"""The launch report: the decision whether to launch a ranker, by one rule.

The rule: **launch** if the whole decision interval of the difference lies above 0, **do not launch** if it lies below
0, otherwise **undecided**. The decision interval includes every possible value of documents that were never shown. A
decision also needs enough data: a minimum effective sample size of impressions, enough queries whose lists differ, and,
if propensities are estimated, enough lists that inform them. If users read from the top and stop, the cascade model
must agree. A caveat that may invalidate the estimates blocks the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from toprank.clicks.assumptions import CascadeCheck
from toprank.clicks.curves import BLOCKED
from toprank.clicks.evaluation import MIN_LISTS, clipping_sentences
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
# Minimum number of queries whose lists differ; means over fewer are not normal enough for an interval.
MIN_QUERIES = 30
_MAIN_SHARE = 0.5  # Share of the variance above which a source is named as its main cause.
_POWER = 0.8  # Power at which `sessions_needed` is computed.
SLICES_REMARK = (
    "Intervals by slice assume exact propensities. They are simultaneous: the confidence level holds for all slices "
    "together (Bonferroni)."
)
_MAX_GROWTH = 1000.0  # Maximum growth of the log for which `sessions_needed` is reported.


class SliceGain(NamedTuple):
    """The difference in a slice of the queries, with a simultaneous interval, which is infinite if there are too few
    queries.
    """

    name: str
    queries: int
    sessions: int
    gain: Interval


class Cost(NamedTuple):
    """Cost of a ranker: bytes of its model file and CPU seconds per query; None if unknown."""

    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, repr=False)
class LaunchReport(Record):
    """Decision about a launch, with the estimates behind it.

    Attributes:
        names: names of the new and the current ranker.
        metric: estimated metric, such as ``clicks@10``.
        estimator: name of the deciding estimator.
        estimates: for each estimator, the values of the new and the current ranker and their difference.
        unseen_bounds: worst-case effect on the difference of documents never shown at a position with a known
            propensity: lower and upper.
        effective_sample_size: effective sample size of the difference, in impressions.
        min_effective_sample_size: effective sample size that a decision needs.
        sessions: number of sessions of the log whose query is in the data.
        queries: number of queries in both the log and the data, and number of those whose lists differ.
        never_shown: for the new and the current ranker, number of documents within the depth of the metric that were
            never shown.
        clip: smallest propensity used as a divisor, and number of impressions that were clipped to it.
        cascade_check: estimates by a cascade model, if users read from the top and stop; otherwise None.
        ranking_changes: changes of the lists that users see.
        slices: difference in each slice; the intervals are simultaneous (Bonferroni).
        offline: comparison by labels, if there are labels.
        drift: drift of the data from `reference`, if given.
        costs: costs of the new and the current ranker.
        caveats: sentences about assumptions and dropped data.
        recency: how sessions were weighted by age; None if all have the same weight.
        training_overlap: for the new and the current ranker, the fraction of these sessions that it was trained on;
            None if unknown.
        undecided_reason: why the difference cannot be estimated; empty if it can.
        informing_lists: effective number of lists that inform the propensities of documents ranked differently; None if
            propensities were given or learned from features.
        propensity_variance_share: fraction of the variance of the difference that is due to estimated propensities.
        blocking: caveats that may invalidate the estimates; any of them blocks the decision.
        candidates: difference of each new ranker to the current one, with an interval at the deciding level; `names`
            contains the one with the largest difference.
        n_candidates: number of new rankers compared on these sessions, including earlier ones reported by the caller.
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
        """Difference of the new and the current ranker, by the deciding estimator."""
        return self.estimates[self.estimator][2]

    @property
    def _confidence(self) -> float:
        """The simultaneous confidence level of the intervals of all compared rankers."""
        return 1 - (1 - self.difference.confidence) * self.n_candidates

    @property
    def decision_interval(self) -> tuple[float, float]:
        """Interval of the difference that the decision uses, including every possible value of documents
        never shown.
        """
        low, high = self.difference
        return low + self.unseen_bounds[0], high + self.unseen_bounds[1]

    @property
    def decision(self) -> str:
        """``launch``, ``do not launch`` or ``undecided``."""
        sides = {decision_of(*self.decision_interval)} | (
            set() if self.cascade_check is None else {decision_of(*self.cascade_check.difference)}
        )
        if self._has_too_little_data or self._blocked or len(sides) > 1 or sides <= self._favored_by_overlap:
            return UNDECIDED
        return sides.pop()

    @property
    def _favored_by_overlap(self) -> set[str]:
        """Decisions in favor of a ranker that was trained on these sessions."""
        return {side for side, share in zip((LAUNCH, DO_NOT_LAUNCH), self.training_overlap, strict=True) if share}

    @property
    def status(self) -> int:
        """The exit status of the command: 0 launch, 3 do not launch, 4 undecided, 5 blocked by a caveat."""
        if self._blocked:
            return BLOCKED
        return {LAUNCH: 0, DO_NOT_LAUNCH: 3, UNDECIDED: 4}[self.decision]

    @property
    def _blocked(self) -> bool:
        """True if a caveat blocks the decision. Identical lists need no decision, so nothing blocks it then."""
        return bool(self.blocking) and self.ranking_changes.changed > 0

    @property
    def _has_too_little_data(self) -> bool:
        return (
            self.effective_sample_size < self.min_effective_sample_size
            or self.queries[1] < MIN_QUERIES
            or self._has_too_few_lists
        )

    @property
    def _has_too_few_lists(self) -> bool:
        return self.informing_lists is not None and self.informing_lists < MIN_LISTS

    @property
    def sessions_needed(self) -> int | None:
        """Number of sessions for a decision with power 0.8, if the true difference equals the estimate.

        The number of sessions per query is assumed to stay the same, so the number of queries (`queries_needed`) grows
        in proportion. None if no sample size suffices, for example because the result depends on unshown documents.
        """
        enough = self._growth_needed
        return None if enough is None else int(np.ceil(enough * self.sessions))

    @property
    def queries_needed(self) -> int | None:
        """Number of distinct queries among the `sessions_needed`."""
        enough = self._growth_needed
        return None if enough is None else int(np.ceil(enough * self.queries[0]))

    @property
    def _growth_needed(self) -> float | None:
        """Factor by which sessions and queries must grow for a decision with power 0.8."""
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
        return enough if enough <= _MAX_GROWTH else None

    @property
    def summary(self) -> str:
        """The decision in one sentence; if undecided, with the reason and advice."""
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
            advice = "" if self.ranking_changes.changed else f" {self._advice}"  # otherwise part of the reason
            return f"This log does not show whether {new} is better than {current}: {self._reason}{advice}"
        figures = f"{gain.value:+.4f} {unit} {bracket}"
        return (
            f"This log does not show whether {new} is better than {current} ({figures}, {rests}): {self._reason} "
            f"{self._advice}"
        )

    @property
    def _reason(self) -> str:
        if not self.ranking_changes.changed:
            return f"both show the same top {self.ranking_changes.k} in every session of the log."
        if self.undecided_reason:
            return self.undecided_reason[0].lower() + self.undecided_reason[1:]
        if self._blocked:
            return f"a caveat blocks the decision. {self.blocking[0]}"
        if self.effective_sample_size < self.min_effective_sample_size:
            return "the effective sample is too small."
        if self.queries[1] < MIN_QUERIES:
            return f"the lists of only {self.queries[1]:,} queries differ, and {MIN_QUERIES} are needed."
        if self._has_too_few_lists:
            return f"only about {self.informing_lists:,.0f} lists inform the propensities, and {MIN_LISTS} are needed."
        if decision_of(*self.difference) == UNDECIDED:
            if self.propensity_variance_share > _MAIN_SHARE:
                lists = self.informing_lists
                number = "" if lists is None else f": about {lists:,.0f} lists inform them"
                return f"the interval contains 0, mostly because the propensities are uncertain{number}."
            return "the interval contains 0."
        if decision_of(*self.decision_interval) == UNDECIDED:
            return "documents that were never shown could reverse the result."
        if decision_of(*self.decision_interval) in self._favored_by_overlap:
            return "the ranker that looks better was trained on these sessions."
        assert self.cascade_check is not None
        model = self.cascade_check.model
        return f"users read from the top and stop, and {model}, a model of such users, disagrees."

    @property
    def _advice(self) -> str:
        if not self.ranking_changes.changed:
            return "There is nothing to launch."
        if self._blocked:
            return "More sessions of this kind will not resolve this."
        needed, queries = self.sessions_needed, self.queries_needed
        uncertain = self.propensity_variance_share > _MAIN_SHARE
        if not self._has_too_little_data and decision_of(*self.decision_interval) in self._favored_by_overlap:
            return "Use sessions that it was not trained on: later ones, or those that training held out."
        if self.cascade_check is not None and decision_of(*self.decision_interval) != UNDECIDED:
            return "Run an A/B test or interleaving to decide."
        if needed is not None and needed > self.sessions:
            fewer = " Fewer suffice if more of them are explored." if uncertain else ""
            n_queries = f"{self.sessions:,} of {self.queries[0]:,}"
            return (
                f"About {needed:,} sessions of {queries:,} different queries would suffice (the log has {n_queries}). "
                f"More sessions of the same queries would not.{fewer}"
            )
        if self.unseen_bounds != (0.0, 0.0) and not needed:
            return "Show these documents to users: explore, run an A/B test, or interleave."
        if uncertain:
            return "Explore more of the lists, or give propensities."
        return "No log of realistic size would suffice: the two are about equally good."

    json_names: ClassVar[Mapping[str, str]] = {
        "propensity_variance_share": "variance_from_propensities",
    }
    json_hidden = frozenset({"undecided_reason"})
    json_properties = ("summary", "decision", "decision_interval", "sessions_needed", "queries_needed")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can hold; unknown interval bounds are None."""
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
        """Return one row per estimator."""
        new, current, gain = (list(of) for of in zip(*self.estimates.values(), strict=True))
        return {
            "estimator": list(self.estimates), "new": [of.value for of in new],
            "current": [of.value for of in current], "difference": [of.value for of in gain],
            "low": [of.low for of in gain], "high": [of.high for of in gain],
            "decides": [name == self.estimator for name in self.estimates],
        }  # fmt: skip

    def table(self) -> Table:
        """Return the estimates by estimator."""
        rows = [
            (f"{name} (decides)" if name == self.estimator else name, _number(new), _number(current),
             _number(gain, "+.4f"), _interval_text(gain))
            for name, (new, current, gain) in self.estimates.items()
        ]  # fmt: skip
        if self.cascade_check is not None:
            values = [f"{value:.4f}" for value in self.cascade_check.estimates.values()]
            gain = self.cascade_check.difference
            rows.append(
                (
                    f"{self.cascade_check.model} (must agree)",
                    values[0],
                    values[1],
                    f"{gain.value:+.4f}",
                    _interval_text(gain),
                )
            )
        head = ("estimator", *self.names, "difference", f"{_level_text(self.difference.confidence)} interval")
        return Table(head, rows, names=1)

    def slices_table(self) -> Table:
        """Return the difference by slice."""
        rows = [
            (row.name, f"{row.queries:,}", f"{row.sessions:,}", f"{row.gain.value:+.4f}", _interval_text(row.gain))
            for row in self.slices
        ]
        level = f"simultaneous {percent(self._confidence)} interval"
        head = (self._by, "queries", "sessions", "difference", level)
        return Table(head, rows, names=1)

    def candidates_table(self) -> Table:
        """Return the difference of each new ranker to the current one."""
        rows = [(name, f"{gain.value:+.4f}", _interval_text(gain)) for name, gain in self.candidates.items()]
        level = f"simultaneous {percent(self._confidence)} interval"
        return Table(("new ranker", f"difference to {self.names[1]}", level), rows, names=1)

    def costs_table(self) -> Table:
        """Return model size and time of both rankers."""
        rows = [
            (name, "not known" if cost.bytes is None else f"{cost.bytes:,}",
             "not known" if cost.seconds is None else f"{cost.seconds * 1e6:.3g}")
            for name, cost in zip(self.names, self.costs, strict=True)
        ]  # fmt: skip
        return Table(("model", "bytes", "CPU µs per query"), rows, names=1)

    def plot(self) -> Picture:
        """Draw the difference by estimator and by slice."""
        if self.undecided_reason:
            raise DataError(f"There is nothing to draw. {self.undecided_reason}")
        rows = [(name, f"{name}: {gain.value:+.4f} {_interval_text(gain)}", gain.value, gain.low, gain.high)
                for name, (_, _, gain) in self.estimates.items()]  # fmt: skip
        if self.cascade_check is not None:
            gain = self.cascade_check.difference
            rows.append((self.cascade_check.model, str(self.cascade_check), gain.value, gain.low, gain.high))
        rows += [(row.name, f"{self._by} {row.name}: {row.gain.value:+.4f} {_interval_text(row.gain)}", row.gain.value,
                  row.gain.low, row.gain.high) for row in self.slices]  # fmt: skip
        return signed_bars("Gain of the new ranker", rows, f"{self.metric}, new less current")

    @property
    def rationale(self) -> list[str]:
        """The decision rule and its assumptions, as sentences."""
        words = [
            f"{self.metric} in {self.sessions:,} sessions of {self.queries[0]:,} queries; the lists of "
            f"{self.queries[1]:,} queries differ. The difference and its interval are for the population that these "
            "queries were sampled from, not for this fixed set of queries."
        ]
        if self.n_candidates > 1:
            words.append(
                f"{self.n_candidates:,} new rankers were compared on these sessions, so the confidence level of the "
                f"deciding interval is {_level_text(self.difference.confidence)}: for all {self.n_candidates:,} "
                f"together it is {percent(self._confidence)} (Bonferroni)."
            )
        words += [] if self.recency is None else [str(self.recency)]
        if any(self.never_shown) and not self.undecided_reason:
            low, high = self.decision_interval
            words.append(
                f"{self.never_shown[0]:,} documents that {self.names[0]} would show and {self.never_shown[1]:,} of "
                f"{self.names[1]} were never shown at a position with a known propensity. For any value of theirs, the "
                f"interval of the difference is within {bracketed(low, high, 4)}; the decision uses this interval."
            )
        if self.informing_lists is not None:
            words.append(
                f"About {self.informing_lists:,.0f} lists inform the propensities (minimum {MIN_LISTS}); the "
                f"uncertainty of the propensities is {self.propensity_variance_share:.0%} of the variance of the "
                "difference."
            )
        words += clipping_sentences(*self.clip, self.estimator)
        words += [
            f"{name} was trained on about {share:.0%} of these sessions, so they overstate its quality."
            for name, share in zip(self.names, self.training_overlap, strict=True)
            if share
        ]
        unknown = [name for name, share in zip(self.names, self.training_overlap, strict=True) if share is None]
        if unknown:
            words.append(
                f"Whether {' or '.join(unknown)} was trained on these sessions is unknown; the estimates are valid "
                "only if not. Models trained by `clicks train` detect the overlap if both logs have session ids."
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


def _level_text(confidence: float) -> str:
    """Format a confidence level with three significant digits of 1 minus the level."""
    return f"{100 - float(f'{100 * (1 - confidence):.3g}'):.10g}%"


def _number(interval: Interval, form: str = ".4f") -> str:
    return "not known" if np.isnan(interval.value) else format(interval.value, form)


def _interval_text(gain: Interval) -> str:
    return bracketed(gain.low, gain.high, 4) if np.isfinite(gain.low) and np.isfinite(gain.high) else "not known"


def decision_of(low: float, high: float) -> str:
    """Return the decision that an interval of the difference supports."""
    return LAUNCH if low > 0 else DO_NOT_LAUNCH if high < 0 else UNDECIDED
