"""Forecasts without labels: the DCG that a ranker expects on new queries, and where a second ranker disagrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, join_parts
from toprank.metrics.sorting import ranking
from toprank.monitoring.feature_drift import IntervalPairs
from toprank.rankers.base import Ranker
from toprank.rankers.expected_dcg import ExpectedValue
from toprank.significance.resampling import bootstrap_interval
from toprank.significance.results import Interval, number, signed

_MIN_CHANGE = 0.05  # share of the DCG expected before; a smaller change raises no alarm


@dataclass(frozen=True)
class ExpectedChange(IntervalPairs):
    """The DCG@k that a calibrated ranker expects of its own rankings, per query, before and after.

    The interval of the difference is Welch's over queries, and holds for this difference alone; p comes from dealing
    the same queries out anew and is corrected for everything that is tested, so that it may be above 5 % although the
    interval just misses 0. Both take P(grade | x) for right on both sides: they notice documents with other features,
    but not features that mean something else than in training.

    Attributes:
        drifted: What has drifted; if anything has, the forecast and its interval are no evidence of how good the
            ranking is.
    """

    k: int
    reference: float
    reference_interval: Interval
    new: float
    new_interval: Interval
    difference: float
    interval: Interval
    p: float
    changed: bool
    drifted: tuple[str, ...] = ()

    @property
    def alarm(self) -> str:
        """Why not to rely on the forecast; empty if nothing has drifted."""
        if not self.drifted:
            return ""
        few = ", ".join(self.drifted[:3]) + (f" and {len(self.drifted) - 3} more" if len(self.drifted) > 3 else "")
        return (
            f"Do not rely on the expected DCG: {few} drifted, and P(grade | x) was calibrated on earlier documents. "
            "Judge some of the new queries."
        )

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"Expected DCG@{self.k}, without labels: {number(self.reference)} before, {number(self.new)} now, "
            f"{signed(self.difference)} [{signed(low)}, {signed(high)}]."
            f"{self.alarm and ' ' + self.alarm}"
        )


@dataclass(frozen=True)
class Disagreement(IntervalPairs):
    """How differently a second ranker orders the new queries: means over queries, with intervals.

    Attributes:
        k: the depth of the top that is compared.
        top1_changed: the share of queries with another first document.
        top1_changed_interval: the interval of this share.
        top_k_turnover: the share of the top k that the other ranker leaves out.
        top_k_turnover_interval: the interval of this share.
        reordered: how many queries differ in any way within the top k.
    """

    k: int
    top1_changed: float
    top1_changed_interval: Interval
    top_k_turnover: float
    top_k_turnover_interval: Interval
    reordered: int

    def __str__(self) -> str:
        first, top = self.top1_changed_interval, self.top_k_turnover_interval
        return (
            f"The shadow has another first document in {self.top1_changed:.1%} of the queries [{first.low:.1%}, "
            f"{first.high:.1%}] and other documents at {self.top_k_turnover:.1%} of the top {self.k} [{top.low:.1%}, "
            f"{top.high:.1%}]."
        )


def expected_values(
    ranker: Any, sides: Sequence[RankingData], scores: Sequence[FloatArray], k: int, confidence: float
) -> tuple[tuple[ExpectedValue, ExpectedValue] | None, str]:
    """Return what the ranker expects of the queries before and now, or why it cannot tell."""
    if not hasattr(ranker, "expected_dcg"):
        return None, (
            f"The DCG cannot be estimated without labels: {type(ranker).__name__} gives scores, not P(grade | x) "
            "(ExpectedGainRanker does, and so do trees and networks with outputs='grades')."
        )
    try:
        before, after = (
            ranker.expected_dcg(data, by, k=k, confidence=confidence) for data, by in zip(sides, scores, strict=True)
        )
        before.overall_interval()  # refused, with the reason, where nothing was calibrated
    except DataError as error:
        return None, join_parts("The DCG is not estimated without labels.", error.args[0])
    return (before, after), ""


def expected_change(values: tuple[ExpectedValue, ExpectedValue], k: int, confidence: float, p: float) -> ExpectedChange:
    """Return the change of the expected DCG, with Welch's interval; `p`: its corrected p-value."""
    from scipy.special import stdtrit

    means = [float(value.mean.mean()) for value in values]
    parts = [float(value.mean.var(ddof=1)) / len(value.mean) for value in values]
    spread = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(value.mean) - 1) for part, value in zip(parts, values, strict=True)
    ) if spread else 1.0  # fmt: skip
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * spread
    change = means[1] - means[0]
    changed = bool(p <= 1 - confidence and abs(change) >= _MIN_CHANGE * abs(means[0]))
    n = len(values[1].mean)
    ends = [replace(value.overall_interval(), quantity=f"DCG@{k}") for value in values]
    welch = Interval(change, change - half, change + half, confidence, n, "Welch's t", f"change of DCG@{k}")
    return ExpectedChange(
        k=k,
        reference=means[0],
        reference_interval=ends[0],
        new=means[1],
        new_interval=ends[1],
        difference=change,
        interval=welch,
        p=p,
        changed=changed,
    )


def disagreement(
    shadow: Ranker, ours: FloatArray, data: RankingData, k: int, confidence: float, seed: int
) -> Disagreement:
    """Compare the top k of a second ranker with that of the scores `ours`, query by query."""
    try:
        theirs = shadow.predict(data)
    except DataError as error:
        raise DataError(join_parts("The shadow does not fit the new data.", error.args[0])) from None
    first, second = (ranking(scores, data.queries, k).order for scores in (ours, theirs))
    n, depths = data.n_queries, np.minimum(data.queries.sizes, k)
    query_of_place = np.repeat(np.arange(n), depths)
    in_second = np.bincount(second, minlength=data.n_documents)
    common = np.bincount(query_of_place, in_second[first], n) / depths
    tops = np.cumsum(depths) - depths
    top1_changed = (first[tops] != second[tops]).astype(np.float64)
    reordered = np.bincount(query_of_place, first != second, n) > 0
    shares = [_share_interval(values, confidence, seed) for values in (top1_changed, 1 - common)]
    return Disagreement(
        k, float(top1_changed.mean()), shares[0], float(1 - common.mean()), shares[1], int(reordered.sum())
    )


def _share_interval(values: FloatArray, confidence: float, seed: int) -> Interval:
    """Return the interval of a mean of numbers from 0 to 1.

    If all numbers are equal, it is as wide as that of Clopper and Pearson: others may be unseen.
    """
    interval = bootstrap_interval(values, confidence=confidence, seed=seed)
    unseen = 1 - ((1 - confidence) / 2) ** (1 / len(values)) if interval.low == interval.high else 0.0
    return replace(
        interval, low=max(0.0, interval.low - unseen), high=min(1.0, interval.high + unseen), quantity="share"
    )
