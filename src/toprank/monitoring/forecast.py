"""Label-free forecasts: expected DCG of a ranker on new queries, and disagreement with a shadow ranker."""

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

_MIN_CHANGE = 0.05  # smallest relative change of the expected DCG that raises an alarm


@dataclass(frozen=True)
class ExpectedChange(IntervalPairs):
    """Change of the mean DCG@k that a calibrated ranker predicts for its rankings.

    The interval of the difference is a Welch interval over queries, not adjusted for multiple testing. The p-value is
    from the permutation test and is adjusted, so it may exceed 5 % although the interval excludes 0. Both assume that
    P(grade | x) is calibrated on both data sets. They detect changes in the distribution of x, but not in the relation
    between x and relevance.

    Attributes:
        k: Depth of DCG.
        reference: Mean expected DCG on the reference data.
        reference_interval: Its confidence interval.
        new: Mean expected DCG on the new data.
        new_interval: Its confidence interval.
        difference: New minus reference value.
        interval: Confidence interval of the difference.
        p: Adjusted p-value of the difference.
        changed: True if the change is significant and large enough for an alarm.
        drifted: Drifted features and scores. If there are any, the forecast is unreliable.
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
        """A warning that the forecast is unreliable; empty without drift."""
        if not self.drifted:
            return ""
        few = ", ".join(self.drifted[:3]) + (f" and {len(self.drifted) - 3} more" if len(self.drifted) > 3 else "")
        return (
            f"Do not rely on the expected DCG, since {few} drifted and P(grade | x) was calibrated on earlier "
            "documents. Judge some of the new queries."
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
    """Disagreement between a ranker and its shadow on the new queries.

    Attributes:
        k: depth of the comparison.
        top1_changed: share of queries with a different first document.
        top1_changed_interval: confidence interval of `top1_changed`.
        top_k_turnover: mean share of the top k documents that the shadow does not have in its top k.
        top_k_turnover_interval: confidence interval of `top_k_turnover`.
        reordered: number of queries with any difference within the top k.
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
            f"The shadow ranks another document first in {self.top1_changed:.1%} of the queries [{first.low:.1%}, "
            f"{first.high:.1%}], and replaces {self.top_k_turnover:.1%} of the top {self.k} [{top.low:.1%}, "
            f"{top.high:.1%}]."
        )


def expected_values(
    ranker: Any, sides: Sequence[RankingData], scores: Sequence[FloatArray], k: int, confidence: float
) -> tuple[tuple[ExpectedValue, ExpectedValue] | None, str]:
    """Return the expected DCG on reference and new data, or None and the reason."""
    if not hasattr(ranker, "expected_dcg"):
        return None, (
            f"The DCG cannot be estimated without labels, because {type(ranker).__name__} predicts scores, not "
            "P(grade | x). Use ExpectedGainRanker, or trees or networks with outputs='grades'."
        )
    try:
        before, after = (
            ranker.expected_dcg(data, by, k=k, confidence=confidence) for data, by in zip(sides, scores, strict=True)
        )
        before.overall_interval()  # raises an error for an uncalibrated ranker
    except DataError as error:
        return None, join_parts("The DCG is not estimated without labels.", error.args[0])
    return (before, after), ""


def expected_change(values: tuple[ExpectedValue, ExpectedValue], k: int, confidence: float, p: float) -> ExpectedChange:
    """Return the change of the expected DCG with a Welch interval; `p` is its adjusted p-value."""
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
    """Compare the top k of a shadow ranker with the top k by the scores `ours`."""
    try:
        theirs = shadow.predict(data)
    except DataError as error:
        raise DataError(join_parts("The shadow ranker does not accept the new data.", error.args[0])) from None
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
    """Return a bootstrap interval of the mean of values between 0 and 1.

    If all values are equal, the Clopper–Pearson interval is used instead of an interval of width 0.
    """
    interval = bootstrap_interval(values, confidence=confidence, seed=seed)
    unseen = 1 - ((1 - confidence) / 2) ** (1 / len(values)) if interval.low == interval.high else 0.0
    return replace(
        interval, low=max(0.0, interval.low - unseen), high=min(1.0, interval.high + unseen), quantity="share"
    )
