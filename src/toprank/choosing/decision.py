"""Choose a candidate or a blend of several, by paired differences on validation queries, and explain the choice.

The best of many on a few validation queries is partly luck. Measured inside the training and validation parts of
MQ2008, OHSUMED and slices of MSLR, and on synthetic data, the mean of all candidates that cannot be told apart from the
best did better on further queries than the best one, by 0.01 to 0.03 of NDCG@10. Weights that fall with the evidence
against a candidate did a little better (within noise) than equal ones, and than greedy selection of the members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.choosing.portfolio import NO_TIME, PortfolioSearch
from toprank.choosing.search import Refit, Trial
from toprank.compute import FloatArray
from toprank.metrics.evaluation import Judge
from toprank.rankers.blend import BlendRanker
from toprank.significance import Interval, t_interval
from toprank.significance.results import queries

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

MOST_MEMBERS = 12
"""Members of a blend at most: each makes prediction slower, and more did not help."""


@dataclass(frozen=True)
class Decision:
    """The outcome: trials from best to worst, and what is made of them."""

    order: list[Trial]
    intervals: list[Interval]
    """The interval of each trial's difference to the best one, which is the first."""
    members: list[Trial]
    """The trials that cannot be told apart from the best, from best to worst, at most `MOST_MEMBERS`."""
    weights: list[float]
    """Their weights in a blend, summing to 1."""
    ranker: Ranker
    values: FloatArray
    """The metric of the chosen ranker on each validation query."""
    blend: Interval | None = None
    """The interval of the blend's difference to the best trial; None if no blend was made."""
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


def decide(order: Sequence[Trial], judge: Judge, blend: bool) -> Decision:
    """Take the first of trials that are sorted from best to worst, or blend those that may be as good as the first.

    With the interval [−g − h, −g + h] of a trial's difference to the best, its weight is 1 − g/h: 1 for the best, 0 for
    one whose interval just reaches 0.
    """
    sign = 1.0 if judge.higher_is_better else -1.0
    order, best = list(order), order[0]
    intervals = [t_interval(trial.values, best.values) for trial in order]
    evidence = [plausibility(interval, sign) for interval in intervals]
    kept = [(trial, weight) for trial, weight in zip(order, evidence, strict=True) if weight > 0][:MOST_MEMBERS]
    if _all_alike(order):  # no reason to prefer a blend, which is slower
        kept = kept[:1]
    members, weights = [trial for trial, _ in kept], [weight / sum(w for _, w in kept) for _, weight in kept]
    if not blend or len(members) == 1:
        return Decision(order, intervals, members, weights, best.ranker, best.values)
    mixed = BlendRanker.of([trial.ranker for trial in members], judge.data, weights)
    blend_values = judge.per_query(mixed.predict(judge.data))
    lead = t_interval(blend_values, best.values)
    ranker, values = (mixed, blend_values) if plausibility(lead, sign) > 0 else (best.ranker, best.values)
    return Decision(order, intervals, members, weights, ranker, values, lead, float(np.nanmean(blend_values)))


def _all_alike(trials: Sequence[Trial]) -> bool:
    """Whether every trial has the same value as the first, on every query."""
    return all(np.array_equal(trial.values, trials[0].values, equal_nan=True) for trial in trials)


def plausibility(interval: Interval, sign: float) -> float:
    """1 − g/h for a difference of −g ± h (`sign` −1: of +g, where less is better), between 0 and 1.

    >>> plausibility(Interval(-0.01, -0.03, 0.01, 0.95, 20, ""), 1.0)
    0.5
    """
    low, high = sorted((sign * interval.low, sign * interval.high))
    half = (high - low) / 2
    if half == 0:  # the best itself, or a difference that is the same on every query
        return float(low >= 0)
    if math.isinf(half):  # a single query tells nothing
        return 1.0
    return round(min(max(high / half, 0.0), 1.0), 6)


def rows_of(decision: Decision) -> list[dict[str, Any]]:
    """Return rows of the trials that were judged: the blend if one was made, then the others from best to worst."""
    best = decision.order[0].value or 0.0
    members = [trial.name for trial in decision.members] if decision.blended else []
    weights = dict(zip(members, decision.weights, strict=False))
    judged = list(zip(decision.order, decision.intervals, strict=True))
    if decision.blend is not None:
        last = max(trial.number for trial in decision.order) + 1
        judged.insert(0, (Trial("blend", value=decision.blend_value, number=last), decision.blend))
    return [
        trial.row()
        | {
            "difference": float(trial.value or 0.0) - best,
            "difference_low": interval.low,
            "difference_high": interval.high,
            "weight": weights.get(trial.name, 0.0),
        }
        for trial, interval in judged
    ]


_FEW_QUERIES = 30


class StoryFacts(NamedTuple):
    """What the story tells besides the decision."""

    judge: Judge
    trained_on: int
    """The number of queries that the candidates were fitted on."""
    drawn: str | None
    """How the held-out queries were drawn; None if validation data were given."""
    budget: float | None
    refit: Refit


def story_of(decision: Decision, search: PortfolioSearch, facts: StoryFacts) -> tuple[str, ...]:
    """Say in sentences what was tried, what won and by how much, what was blended and what was left out."""
    parts = [
        _data(facts),
        _winner(decision, facts.judge),
        _blend(decision),
        facts.refit.sentence,
        *_left_out(search, facts),
        _caution(facts.judge),
    ]
    return tuple(part for part in parts if part)


def _data(facts: StoryFacts) -> str:
    n = facts.judge.data.n_queries
    by = f"by {facts.judge.name} (convention {facts.judge.convention.name})"
    if facts.drawn is None:
        return f"The candidates learned from {queries(facts.trained_on)} and were judged on {queries(n)} {by}."
    return (
        f"{queries(n)} of {facts.trained_on + n:,}, {facts.drawn}, were held out to choose on, {by}; "
        "the candidates learned from the others."
    )


def _winner(decision: Decision, judge: Judge) -> str:
    order = decision.order
    best = f"{order[0].name} ({order[0].value:.4f})"
    if len(order) == 1:
        return f"One candidate was tried, {best}."
    if decision.all_alike:
        return (
            f"All {len(order)} candidates have the same value on every one of these queries "
            f"({order[0].value:.4f}), so that there is nothing to choose by."
        )
    lead = abs((order[0].value or 0.0) - (order[1].value or 0.0))
    sign = -1.0 if judge.higher_is_better else 1.0  # intervals are those of the next one's difference to the best
    low, high = sorted(sign * bound for bound in decision.intervals[1])
    sentence = f"Of {len(order)} candidates {best} did best, {lead:.4f} ahead of {order[1].name}, the next"
    if math.isinf(high - low):
        return f"{sentence}. A single query has no interval: it cannot rule out any of the others."
    sentence += f" (95 % interval of the lead {low:+.4f} to {high:+.4f})."
    others = _level(decision) - 1
    if others == 0:
        return sentence + " That is more than chance would explain."
    which = "another one" if others == 1 else f"{others} others"
    return (
        sentence
        + f" It cannot be told apart from {which}: with this many validation queries the difference may be chance."
    )


def _level(decision: Decision) -> int:
    """Return how many trials cannot be told apart from the best, the best included."""
    return sum(interval.low <= 0 <= interval.high for interval in decision.intervals)


def _blend(decision: Decision) -> str:
    if decision.all_alike:
        return f"{decision.order[0].name}, the first that was tried, is taken; nothing is blended."
    if decision.blend is None:
        if len(decision.members) > 1:
            return f"No blend was asked for, so {decision.order[0].name} is taken, though others may be as good."
        return f"{decision.order[0].name} is taken."
    names = ", ".join(trial.name for trial in decision.members)
    if not decision.blended:
        return f"A blend of {names} was worse than the best alone{_interval(decision.blend)} and is not taken."
    n = len(decision.members)
    which = ("Both" if n == 2 else f"All {n}") if n == _level(decision) else f"The best {n} of these"
    equal = max(decision.weights) == min(decision.weights)
    weights = "equal weights" if equal else "weights that fall with the evidence against them"
    return (
        f"{which} ({names}) are blended, with {weights}: where validation cannot choose, a mean of several is a safer "
        f"bet than the one that happened to come first. The blend has {np.nanmean(decision.values):.4f} on the "
        f"validation data{_interval(decision.blend, 'against the best alone: ')}."
    )


def _left_out(search: PortfolioSearch, facts: StoryFacts) -> list[str]:
    parts = [f"{trial.name} does not go with these data: {trial.remark}" for trial in search.of("refused")]
    if search.interrupts.happened:
        parts.append("The search was interrupted; this is the best of what was tried until then.")
    if cut := search.of("cut short"):
        parts.append(f"Cut short for lack of time: {_names(cut)}.")
    first = next((trial for trial in search.trials if trial.seconds is not None), None)
    if first is not None and facts.budget is not None and (first.seconds or 0.0) > facts.budget:
        parts.append(
            f"{first.name} alone took {first.seconds:.1f} s: the first candidate is always fitted to the end, so that "
            "there is an answer."
        )
    skipped = search.of("not tried")
    if late := [trial for trial in skipped if trial.remark == NO_TIME]:
        parts.append(f"Not tried for lack of time: {_names(late)}.")
    if unasked := [trial for trial in skipped if trial.remark != NO_TIME]:
        parts.append(f"Not tried, since no more than {search.max_trials} were asked for: {_names(unasked)}.")
    if search.budget_bound or facts.refit.out_of_time:
        parts.append(f"The budget of {facts.budget:g} s was too short for all, so another run may choose otherwise.")
    elif not search.interrupts.happened and not facts.refit.interrupted:
        parts.append("Time did not run out, so the same data, seed and threads give the same model.")
    return parts


def _names(trials: Sequence[Trial]) -> str:
    return ", ".join(trial.name for trial in trials)


def _caution(judge: Judge) -> str:
    few = judge.data.n_queries < _FEW_QUERIES
    mostly = f" With {queries(judge.data.n_queries)} to choose on, much of the order is luck." if few else ""
    return "The validation values are those that the choice was made by, so expect a little less on new data." + mostly


def _interval(interval: Interval, before: str = "") -> str:
    """Return an interval in brackets; nothing if a single query was judged, which has no interval."""
    if math.isinf(interval.high - interval.low):
        return ""
    return f" ({before}95 % interval of the difference {interval.low:+.4f} to {interval.high:+.4f})"
