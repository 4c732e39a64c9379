"""Which of the candidates is taken, and which are blended: statistics of paired differences on validation queries.

The best of many on a few validation queries is partly luck. Measured inside the training and validation parts of
MQ2008, OHSUMED and slices of MSLR, and on synthetic data, the mean of all candidates that cannot be told apart from the
best did better on further queries than the best one, by 0.01 to 0.03 of NDCG@10. Weights that fall with the evidence
against a candidate did a little better (within noise) than equal ones, and than greedy selection of the members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from toprank.compute import FloatArray
from toprank.metrics.evaluation import Judge
from toprank.portfolio.trials import Trial
from toprank.rankers.blend import BlendRanker
from toprank.significance import Interval, t_interval

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["MOST_MEMBERS", "Decision", "decide"]

MOST_MEMBERS = 12
"""Members of a blend at most: each makes prediction slower, and more did not help."""


@dataclass(frozen=True)
class Decision:
    """The outcome: trials from best to worst, and what is made of them."""

    order: list[Trial]
    intervals: list[Interval]
    """Of each trial's difference to the best one, that is, the first."""
    members: list[Trial]
    """The trials that cannot be told apart from the best, at most `MOST_MEMBERS`, the best first."""
    weights: list[float]
    """Their weights in a blend, summing to 1."""
    ranker: Ranker
    values: FloatArray
    """The metric of the chosen ranker on each validation query."""
    blend: Interval | None = None
    """Of the blend's difference to the best trial; None where none was made."""
    blend_value: float = math.nan
    """The metric of the blend, taken or not."""

    @property
    def all_alike(self) -> bool:
        """Whether every trial has the same value on every query, so that there was nothing to choose by."""
        return len(self.order) > 1 and _all_alike(self.order)

    @property
    def blended(self) -> bool:
        """Whether the chosen ranker is the blend."""
        return isinstance(self.ranker, BlendRanker)


def decide(trials: Sequence[Trial], judge: Judge, blend: bool) -> Decision:
    """Choose by the mean of the metric; blend those that the 95 % interval of the difference does not rule out.

    With the interval [−g − h, −g + h] of a trial's difference to the best, its weight is 1 − g/h: 1 for the best, 0 for
    one whose interval just reaches 0.
    """
    sign = 1.0 if judge.higher_is_better else -1.0
    order = sorted(trials, key=lambda trial: -sign * float(np.nanmean(trial.values)))
    best = order[0]
    intervals = [t_interval(trial.values, best.values) for trial in order]
    worth = [plausibility(seen, sign) for seen in intervals]
    kept = [(trial, weight) for trial, weight in zip(order, worth, strict=True) if weight > 0][:MOST_MEMBERS]
    if _all_alike(order):  # no reason to prefer a blend, which is slower
        kept = kept[:1]
    members, weights = [trial for trial, _ in kept], [weight / sum(w for _, w in kept) for _, weight in kept]
    if not blend or len(members) == 1:
        return Decision(order, intervals, members, weights, best.ranker, best.values)
    mixed = BlendRanker.of([trial.ranker for trial in members], judge.data, weights)
    values = judge.per_query(mixed.predict(judge.data))
    seen = t_interval(values, best.values)
    taken = plausibility(seen, sign) > 0
    ranker, of_it = (mixed, values) if taken else (best.ranker, best.values)
    return Decision(order, intervals, members, weights, ranker, of_it, seen, float(np.nanmean(values)))


def _all_alike(trials: Sequence[Trial]) -> bool:
    """Whether every trial has the same value as the first, on every query."""
    return all(np.array_equal(trial.values, trials[0].values, equal_nan=True) for trial in trials)


def plausibility(interval: Interval, sign: float) -> float:
    """1 − g/h for a difference of −g ± h (`sign` −1: of +g, where less is better), between 0 and 1.

    >>> plausibility(Interval(-0.03, 0.01, 0.95, 20, ""), 1.0)
    0.5
    """
    low, high = sorted((sign * interval.low, sign * interval.high))
    half = (high - low) / 2
    if half == 0:  # the best itself, or a difference that is the same on every query
        return float(low >= 0)
    if math.isinf(half):  # a single query tells nothing
        return 1.0
    return round(min(max(high / half, 0.0), 1.0), 6)
