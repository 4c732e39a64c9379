"""Analysis of online tests: the difference of two models with an always-valid interval, and the check of the
allocation.

The difference is per unit (a key of a split, or a query of interleaved lists), and its interval holds at all looks
together (`toprank.significance.sequential`). The difference is meaningless if units were not allocated as planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toprank.clicks.interleaved import teams_of
from toprank.clicks.log import REWARDS, ClickLog, check_log, numbered, sums
from toprank.clicks.recency import times_of
from toprank.compute import FloatArray
from toprank.data.arguments import check_number
from toprank.display.record import Record
from toprank.display.tables import Part, Table, bracketed, json_numbers, percent
from toprank.errors import DataError, UnknownNameError
from toprank.significance import (
    Interval,
    confidence_sequence_half_width,
    effective_sample_size,
    leave_one_out_means,
    sample_ratio_p,
)
from toprank.significance.resampling import jackknife_variance

_MISMATCH_LEVEL = 0.01  # Significance level of the test for sample ratio mismatch.
_SHARE_TOLERANCE = 1e-9  # Tolerance of the sum of planned shares.
_UNNAMED_ARM = "the other arm"  # The log contains only the names of arms with sessions.
_MIN_UNITS = 30  # Minimum number of units per arm; means over fewer are not normal enough.


@dataclass(frozen=True, repr=False)
class OnlineTestResult(Record):
    """Difference of two models in an online test, and the check of the allocation.

    Attributes:
        names: the new and the current model.
        metric: ``click`` or ``value``.
        unit: unit of the difference: ``key``, or ``list`` for interleaved lists.
        means: mean per unit of each model.
        interval: interval of the difference, new minus current, valid at all looks together.
        units: number of units of each model; for interleaved lists, the number of lists that each model began.
        shares: planned shares of the units.
        srm_p: p-value of the test for sample ratio mismatch, valid at all looks together.
        in_both_arms: number of units with sessions in both arms, which are dropped.
        dropped: number of sessions dropped, by reason.
        caveats: sentences about the interpretation of the difference.
    """

    names: tuple[str, str]
    metric: str
    unit: str
    means: tuple[float, float]
    interval: Interval
    units: tuple[int, int]
    shares: tuple[float, float]
    srm_p: float
    in_both_arms: int
    dropped: dict[str, int]
    caveats: tuple[str, ...] = ()

    @property
    def has_sample_ratio_mismatch(self) -> bool:
        """True if units were not allocated as planned."""
        return self.srm_p < _MISMATCH_LEVEL or self.in_both_arms > _MISMATCH_LEVEL * sum(self.units)

    @property
    def difference(self) -> float:
        """New minus current, per unit."""
        return self.interval.value

    @property
    def summary(self) -> str:
        """One sentence: whether the new model is better, or why this is undecided."""
        new, current = self.names
        if self.srm_p < _MISMATCH_LEVEL:
            what = "began" if self.unit == "list" else "have"
            return (
                f"Sample ratio mismatch, so the difference is not valid: {new} and {current} {what} "
                f"{self.units[0]:,} and {self.units[1]:,} {self._units}, planned as {self.shares[0]:.1%} and "
                f"{self.shares[1]:.1%} (p = {self.srm_p:.2g})."
            )
        if self.has_sample_ratio_mismatch:
            return (
                f"Sample ratio mismatch, so the difference is not valid: {self.in_both_arms:,} keys were in both arms."
            )
        low, high = self.interval
        if not np.isfinite(low):
            return f"There are too few data: each arm needs at least {_MIN_UNITS} {self._units}."
        if low > 0 or high < 0:
            return f"{new} brings {self._difference} {'more' if low > 0 else 'less'} than {current} (significant)."
        return f"The difference between {new} and {current} is not significant so far."

    @property
    def _units(self) -> str:
        return "lists" if self.unit == "list" else "keys"

    @property
    def _difference(self) -> str:
        what = "clicks" if self.metric == "click" else "of value"
        return f"{abs(self.difference):.4g} {what} per {self.unit}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values that JSON can hold; unknown interval bounds are None."""
        return {
            "summary": self.summary, "names": list(self.names), "metric": self.metric, "unit": self.unit,
            "means": json_numbers(list(self.means)), "difference": self.interval.to_dict(),
            "confidence": self.interval.confidence, "units": list(self.units), "shares": list(self.shares),
            "srm_p": self.srm_p, "has_sample_ratio_mismatch": self.has_sample_ratio_mismatch,
            "in_both_arms": self.in_both_arms, "dropped": self.dropped, "caveats": list(self.caveats),
        }  # fmt: skip

    def _columns(self) -> dict[str, Sequence[Any]]:
        low, high = self.interval
        return {
            "new": [self.names[0]], "current": [self.names[1]], "metric": [self.metric], "unit": [self.unit],
            "difference": [self.difference], "low": [low], "high": [high], "srm_p": [self.srm_p],
            "has_sample_ratio_mismatch": [self.has_sample_ratio_mismatch],
        }  # fmt: skip

    def _parts(self) -> Sequence[Part]:
        rows = [
            (name, f"{count:,}", f"{share:.1%}", f"{mean:.4f}" if count else "not known")
            for name, count, share, mean in zip(self.names, self.units, self.shares, self.means, strict=True)
        ]
        what = "clicks" if self.metric == "click" else "value"
        head = "lists begun" if self.unit == "list" else "keys"
        low, high = self.interval
        ends = bracketed(low, high, 4) if np.isfinite(low) else "not known"
        difference = "not known" if np.isnan(self.difference) else f"{self.difference:+.4f}"
        sentence = f"Difference per {self.unit}: {difference}, {ends} at {percent(self.interval.confidence)}"
        left = [f"{words[0].upper()}{words[1:]}: {count:,}." for words, count in self.dropped.items()]
        table = Table(("model", head, "planned", f"{what} per {self.unit}"), rows, names=1)
        return [
            self.summary,
            table,
            f"{sentence}, valid at any time. Sample ratio: p = {self.srm_p:.2g}.",
            *self.caveats,
            *left,
        ]


def ab_test(
    log: ClickLog, metric: str = "click", *, arms: Sequence[str] | None = None, confidence: float = 0.95
) -> OnlineTestResult:
    """Compare the arms of an A/B test by the total reward of each key over its sessions.

    Args:
        log: log with columns ``arm``, ``share`` and ``user``, as written by a service with a split.
        metric: ``click`` or ``value``. Default: ``click``.
        arms: names of the new and the current arm. Default: of two arms, the one with the larger share is the current
            one. An arm without sessions has the remaining share, and there are too few data for a decision.
        confidence: confidence level of the interval. Default: 0.95.

    >>> n = 400
    >>> arm = np.where(np.arange(n) % 4 == 0, "new", "old")
    >>> log = ClickLog.from_columns(["q"] * n, ["a"] * n, [1] * n, np.arange(n) % 3 == 0, session=np.arange(n),
    ...                   arm=arm, share=np.where(arm == "new", 0.25, 0.75), user=np.arange(n))
    >>> result = ab_test(log)
    >>> result.names, result.units, result.has_sample_ratio_mismatch
    (('new', 'old'), (100, 300), False)
    """
    check_log(log)
    check_number("confidence", confidence, above=0, below=1)
    if metric not in REWARDS:
        raise UnknownNameError("metric of an online test", metric, REWARDS)
    first = log.offsets[:-1]
    missing = [name for name in ("arm", "share", "user") if name not in log.columns]
    if missing:
        raise DataError(
            f"The log has no column '{missing[0]}'. An A/B test needs the arm, the share and the user of each session, "
            "which a service with a split logs for requests with a key."
        )
    arm, share, user = (log.columns[name][first] for name in ("arm", "share", "user"))
    dropped: dict[str, int] = {}
    assigned = arm != ""
    dropped["sessions in no arm, without a key or with a model requested by name"] = int((~assigned).sum())
    if not assigned.any():
        raise DataError("No session of the log belongs to an arm of a split. Requests need a key.")
    assigned, earlier = _latest_plan(log, assigned, arm, share)
    dropped["sessions of an earlier allocation, with other shares"] = earlier
    names = _arm_names(arm[assigned], share[assigned], arms)
    compared = assigned & np.isin(arm, names)
    others = 1 - sum({name: float(part) for name, part in zip(arm[assigned], share[assigned], strict=True)}.values())
    planned = [float(share[compared & (arm == name)][0]) if name in arm[compared] else others for name in names]
    rewards = sums(log.session, log.rewards(metric), log.n_sessions)
    units = numbered(np.asarray(user[compared], dtype=object))
    n = len(units.ids)
    in_arm = np.stack([sums(units.number, arm[compared] == name, n) > 0 for name in names])
    total = sums(units.number, rewards[compared], n)
    crossed = in_arm.all(axis=0)
    new, current = (total[in_arm[side] & ~crossed] for side in (0, 1))
    counts = len(new), len(current)
    shares = (planned[0] / sum(planned), planned[1] / sum(planned))
    dropped = {words: count for words, count in dropped.items() if count}
    return OnlineTestResult(
        names=names,
        metric=metric,
        unit="key",
        means=(_mean(new), _mean(current)),
        interval=_difference(new, current, confidence),
        units=counts,
        shares=shares,
        srm_p=sample_ratio_p(counts[0], sum(counts), shares[0]),
        in_both_arms=int(crossed.sum()),
        dropped=dropped,
        caveats=_version_caveats(log, compared, arm, names),
    )


def _version_caveats(log: ClickLog, compared: Any, arm: Any, names: tuple[str, str]) -> tuple[str, ...]:
    """Return sentences about arms whose model was replaced during the test."""
    if "version" not in log.columns:
        return ()
    version = log.columns["version"][log.offsets[:-1]]
    counts = {name: len(np.unique(version[compared & (arm == name)].astype(str))) for name in names}
    return tuple(
        f"{name} had {count} versions of its model; the difference is that of all of them together."
        for name, count in counts.items()
        if count > 1
    )


def _latest_plan(log: ClickLog, assigned: Any, arm: Any, share: Any) -> tuple[Any, int]:
    """Return the sessions under the latest shares; sessions of earlier shares are dropped, because keys may change
    arms.
    """
    plans = {(name, float(part)) for name, part in zip(arm[assigned].tolist(), share[assigned].tolist(), strict=True)}
    if len(plans) == len({name for name, _ in plans}):
        return assigned, 0
    if "time" not in log.columns:
        raise DataError(
            "The shares of the split change within the log, and the log has no times. Read only a part with constant "
            "shares."
        )
    time = np.full(log.n_sessions, -np.inf)
    time[assigned] = times_of(log.select(assigned))
    newest: dict[str, float] = {}
    for place in np.flatnonzero(assigned)[np.argsort(time[assigned], kind="stable")].tolist():
        newest[arm[place]] = float(share[place])
    last_plan = assigned & np.array(
        [newest.get(name) == part for name, part in zip(arm.tolist(), share.tolist(), strict=True)]
    )
    since = last_plan & (time > time[assigned & ~last_plan].max())
    if not since.any():
        raise DataError(
            "The shares of the split change within the log, and no session is later than all those with other shares. "
            "Read only a part with constant shares."
        )
    return since, int(assigned.sum() - since.sum())


def _arm_names(arm: Any, share: Any, arms: Sequence[str] | None) -> tuple[str, str]:
    """Return the names of the new and the current arm, even if one arm has no sessions yet."""
    known = {name: float(share[arm == name][0]) for name in np.unique(arm.astype(str)).tolist()}
    has_others = sum(known.values()) < 1 - _SHARE_TOLERANCE
    if arms is not None:
        if isinstance(arms, str) or len(arms) != 2 or arms[0] == arms[1]:
            raise DataError(f"arms must be two different names, of the new and the current arm, not {arms!r}.")
        for name in arms:
            if name not in known and not has_others:
                raise UnknownNameError("arm", name, known)
        return arms[0], arms[1]
    if len(known) == 1 and has_others:
        [(name, part)] = known.items()
        return (_UNNAMED_ARM, name) if part >= 0.5 else (name, _UNNAMED_ARM)
    if len(known) != 2:
        listed = ", ".join(known)
        raise DataError(f"The log has the arms {listed}, but two are needed. Name the new and the current arm.")
    new, current = sorted(known, key=lambda name: known[name])
    return new, current


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else np.nan


def _difference(new: FloatArray, current: FloatArray, confidence: float) -> Interval:
    n, m = len(new), len(current)
    value = _mean(new) - _mean(current)
    detail, half = "normal mixture, at all looks together", np.inf
    if min(n, m) >= _MIN_UNITS:
        variance = _variance(n, m, new.var(ddof=1), current.var(ddof=1))
        half = float(confidence_sequence_half_width(variance, n * m / (n + m), confidence))
    return Interval(value, value - half, value + half, confidence, n + m, detail, "difference per key")


def _variance(n: Any, m: Any, of_new: Any, of_current: Any) -> Any:
    """Return the variance of a difference of means: the larger of the unpooled and the pooled estimate.

    A small arm may not contain rare and large values yet. With its own variance alone, repeated looks would find it
    worse far more often than the level allows.
    """
    of_both = ((n - 1) * of_new + (m - 1) * of_current) / (n + m - 2)
    return np.maximum(of_new / n + of_current / m, of_both / n + of_both / m)


def interleaving_test(log: ClickLog, *, confidence: float = 0.95) -> OnlineTestResult:
    """Compare two models by clicks on lists interleaved by team draft, per list.

    The interval is over queries, because lists of one query are not independent. The check of the allocation tests how
    often each model began a list. The first name in alphabetical order is the new model.

    Args:
        log: log with a column ``team`` of two values; lists without teams are dropped.
        confidence: confidence level of the interval. Default: 0.95.
    """
    check_log(log)
    check_number("confidence", confidence, above=0, below=1)
    dropped: dict[str, int] = {}
    if "team" in log.columns:
        mixed = np.asarray(log.columns["team"][log.offsets[:-1]] != "")
        if mixed.any() and not mixed.all():
            dropped["lists that were not interleaved"] = int((~mixed).sum())
            log = log.select(mixed)
    names, votes = teams_of(log)
    clicks = [sums(log.session, log.clicks & (votes == side), log.n_sessions) for side in (1, -1)]
    began = votes[log.offsets[:-1]] == 1
    counts = (int(began.sum()), int((~began).sum()))
    differences = clicks[0] - clicks[1]
    lists = sums(log.session_query, None, log.n_queries)
    has_lists = lists > 0
    weights = lists[has_lists]
    of_query = sums(log.session_query, differences, log.n_queries)[has_lists] / weights
    value, half = float(differences.mean()), np.inf
    if len(weights) >= _MIN_UNITS:
        rests = leave_one_out_means(of_query, weights)
        half = float(
            confidence_sequence_half_width(jackknife_variance(rests), effective_sample_size(weights), confidence)
        )
    detail = "normal mixture over queries, at all looks together"
    interval = Interval(value, value - half, value + half, confidence, len(weights), detail, "difference per list")
    return OnlineTestResult(
        names=names,
        metric="click",
        unit="list",
        means=(float(clicks[0].mean()), float(clicks[1].mean())),
        interval=interval,
        units=counts,
        shares=(0.5, 0.5),
        srm_p=sample_ratio_p(counts[0], sum(counts), 0.5),
        in_both_arms=0,
        dropped=dropped,
    )
