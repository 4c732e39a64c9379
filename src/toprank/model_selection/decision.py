"""Choose a candidate or a blend of several, by paired differences on validation queries, and explain the choice.

The best of many on a few validation queries is partly luck. Measured inside the training and validation parts of
MQ2008, OHSUMED and slices of MSLR, and on synthetic data, the mean of all candidates that cannot be told apart from the
best did better on further queries than the best one, by 0.01 to 0.03 of NDCG@10. Weights that fall with the evidence
against a candidate did a little better (within noise) than equal ones, and than greedy selection of the members.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.evaluation.scores import BoundMetric
from toprank.model_selection.portfolio import NO_TIME, PortfolioSearch
from toprank.model_selection.search import Refit, Trial
from toprank.model_selection.weights import paired_gain, plausibility
from toprank.rankers.base import Ranker
from toprank.rankers.blend import BlendRanker
from toprank.significance import Interval, t_interval
from toprank.significance.results import queries

MOST_MEMBERS = 12
"""Members of a blend at most: each makes prediction slower, and more did not help."""


@dataclass(frozen=True)
class Decision:
    """The outcome: trials from best to worst, and what is made of them.

    Attributes:
        intervals: the interval of each trial's difference to the best one, which is the first.
        members: the trials that cannot be told apart from the best, from best to worst, at most `MOST_MEMBERS`.
        weights: their weights in a blend, summing to 1.
        values: the metric of the chosen ranker on each validation query.
        blend: the interval of the blend's difference to the best trial; None if no blend was made.
        blend_value: the metric of the blend, taken or not.
        single: the trial that is taken if none are blended; None for the best one.
        default: the trials of the default system, if others were tried besides.
        share: the weight that the default system keeps, whatever the validation data say: 1, 0.5 or 0.
    """

    order: list[Trial]
    intervals: list[Interval]
    members: list[Trial]
    weights: list[float]
    ranker: Ranker
    values: FloatArray
    blend: Interval | None = None
    blend_value: float = math.nan
    single: Trial | None = None
    default: tuple[str, ...] = ()
    share: float = 0.0

    @property
    def all_alike(self) -> bool:
        """Whether every trial has the same value on every query, so that there was nothing to choose by."""
        return len(self.order) > 1 and _all_alike(self.order)

    @property
    def blended(self) -> bool:
        """Whether the chosen ranker is the blend."""
        return isinstance(self.ranker, BlendRanker)

    @property
    def chosen(self) -> list[Trial]:
        """The trials that the chosen ranker is made of."""
        return self.members if self.blended else [self.single or self.order[0]]

    @property
    def weight_of(self) -> dict[str, float]:
        """The weight of each of these, by name."""
        return dict(zip([trial.name for trial in self.chosen], self.weights if self.blended else [1.0], strict=False))


def decide(order: Sequence[Trial], judge: BoundMetric, blend: bool, default: Collection[str] = ()) -> Decision:
    """Take the first of trials that are sorted from best to worst, or blend those that may be as good as the first.

    With the interval [−g − h, −g + h] of a trial's difference to the best, its weight is 1 − g/h: 1 for the best, 0 for
    one whose interval just reaches 0.

    The trials named in `default` are the default system. It keeps half of the weight, and the other half is divided
    among all trials as above. If that is below the default system by more than one standard error of the paired
    differences, the default system is taken alone; only what is above by more than that does without its half.
    """
    free = _weighed(list(order), judge, blend)
    own = [trial for trial in free.order if trial.name in default]
    if not own or len(own) == len(free.order) or free.all_alike:
        return free
    floor, sign = _weighed(own, judge, blend), 1.0 if judge.higher_is_better else -1.0
    half = _halved(free, floor, judge) if blend else replace(floor, share=1.0)
    if all(paired_gain(free.values, other.values, sign).in_errors > 1 for other in (half, floor)):
        chosen = free
    elif paired_gain(half.values, floor.values, sign).in_errors < -1:
        chosen = replace(floor, share=1.0)
    else:
        chosen = half
    lead = chosen.blend if chosen is free else None
    if chosen.blended:
        lead = t_interval(chosen.values, free.order[0].values)
    single = None if chosen.blended else chosen.order[0]
    names = tuple(name for name in default if any(trial.name == name for trial in own))
    return replace(chosen, order=free.order, intervals=free.intervals, blend=lead, single=single, default=names)


def _weighed(order: list[Trial], judge: BoundMetric, blend: bool) -> Decision:
    """Decide among trials by the evidence against each."""
    sign, best = 1.0 if judge.higher_is_better else -1.0, order[0]
    intervals = [t_interval(trial.values, best.values) for trial in order]
    evidence = [plausibility(interval, sign) for interval in intervals]
    kept = [(trial, weight) for trial, weight in zip(order, evidence, strict=True) if weight > 0][:MOST_MEMBERS]
    if _all_alike(order):  # no reason to prefer a blend, which is slower
        kept = kept[:1]
    members, weights = [trial for trial, _ in kept], [weight / sum(w for _, w in kept) for _, weight in kept]
    if not blend or len(members) == 1:
        return Decision(order, intervals, members, weights, best.ranker, best.values)
    mixed, blend_values = _blended(members, weights, judge)
    lead = t_interval(blend_values, best.values)
    ranker, values = (mixed, blend_values) if plausibility(lead, sign) > 0 else (best.ranker, best.values)
    value = float(np.nanmean(blend_values))
    return Decision(order, intervals, members, weights, ranker, values, blend=lead, blend_value=value)


def _halved(free: Decision, floor: Decision, judge: BoundMetric) -> Decision:
    """Return the blend whose weights are the mean of those of two decisions."""
    shares = {trial.name: 0.5 * (free.weight_of.get(trial.name, 0) + floor.weight_of.get(trial.name, 0))
              for trial in free.order}  # fmt: skip
    members = [trial for trial in free.order if shares[trial.name] > 0]
    members = sorted(members, key=lambda trial: -shares[trial.name])[:MOST_MEMBERS]
    if len(members) == 1:
        return replace(floor, share=1.0)
    total = sum(shares[trial.name] for trial in members)
    weights = [shares[trial.name] / total for trial in members]
    mixed, values = _blended(members, weights, judge)
    lead, value = t_interval(values, free.order[0].values), float(np.nanmean(values))
    blend = Decision(free.order, free.intervals, members, weights, mixed, values)
    return replace(blend, blend=lead, blend_value=value, share=0.5)


def _blended(members: list[Trial], weights: list[float], judge: BoundMetric) -> tuple[BlendRanker, FloatArray]:
    mixed = BlendRanker.from_fitted([trial.ranker for trial in members], judge.data, weights)
    return mixed, judge.per_query(mixed.predict(judge.data))


def _all_alike(trials: Sequence[Trial]) -> bool:
    """Whether every trial has the same value as the first, on every query."""
    return all(np.array_equal(trial.values, trials[0].values, equal_nan=True) for trial in trials)


def rows_of(decision: Decision) -> list[dict[str, Any]]:
    """Return rows of the trials that were judged: the blend if one was made, then the others from best to worst."""
    best = decision.order[0].value or 0.0
    weights = decision.weight_of if decision.blended else {}
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
    """What the story tells besides the decision.

    Attributes:
        trained_on: the number of queries that the candidates were fitted on.
        drawn: how the held-out queries were drawn; None if validation data were given.
    """

    judge: BoundMetric
    trained_on: int
    drawn: str | None
    time_budget: float | None
    refit: Refit


def story_of(decision: Decision, search: PortfolioSearch, facts: StoryFacts) -> tuple[str, ...]:
    """Say in sentences what was tried, what won and by how much, what was blended and what was left out."""
    parts = [
        _data(facts),
        _winner(decision, facts.judge),
        _blend(decision),
        _default(decision),
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


def _winner(decision: Decision, judge: BoundMetric) -> str:
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
    taken = decision.chosen[0].name
    if decision.all_alike:
        return f"{taken}, the first that was tried, is taken; nothing is blended."
    if decision.blend is None:
        if len(decision.members) > 1 and not decision.blended:
            return f"No blend was asked for, so {taken} is taken, though others may be as good."
        return f"{taken} is taken."
    names = ", ".join(trial.name for trial in decision.members)
    if not decision.blended:
        return f"A blend of {names} was worse than the best alone{_interval(decision.blend)} and is not taken."
    n = len(decision.members)
    which = ("Both" if n == 2 else f"All {n}") if n == _level(decision) else f"The best {n} of these"
    if decision.share:
        which = "Both" if n == len(decision.order) == 2 else f"{n} of them"
    equal = max(decision.weights) == min(decision.weights)
    weights = "equal weights" if equal else "weights that fall with the evidence against them"
    return (
        f"{which} ({names}) are blended, with {weights}: where validation cannot choose, a mean of several is a safer "
        f"bet than the one that happened to come first. The blend has {np.nanmean(decision.values):.4f} on the "
        f"validation data{_interval(decision.blend, 'against the best alone: ')}."
    )


def _default(decision: Decision) -> str:
    """Say what became of the default system; nothing if no other candidate was tried."""
    if not decision.default:
        return ""
    name = f"the default system ({', '.join(decision.default)})"
    if decision.share == 1:
        return f"That is {name}: nothing better was found by more than one standard error."
    if decision.share:
        return f"Half of the weight is that of {name}."
    return f"That is better than a choice with {name} in it by more than one standard error."


def _left_out(search: PortfolioSearch, facts: StoryFacts) -> list[str]:
    parts = [f"{trial.name} does not go with these data: {trial.remark}" for trial in search.of("refused")]
    if search.interrupts.happened:
        parts.append("The search was interrupted; this is the best of what was tried until then.")
    if cut := search.of("cut short"):
        parts.append(f"Cut short for lack of time: {_names(cut)}.")
    first = next((trial for trial in search.trials if trial.seconds is not None), None)
    if first is not None and facts.time_budget is not None and (first.seconds or 0.0) > facts.time_budget:
        parts.append(
            f"{first.name} alone took {first.seconds:.1f} s: the first candidate is always fitted to the end, so that "
            "there is an answer."
        )
    skipped = search.of("not tried")
    if late := [trial for trial in skipped if trial.remark == NO_TIME]:
        parts.append(f"Not tried for lack of time: {_names(late)}.")
    if unasked := [trial for trial in skipped if trial.remark != NO_TIME]:
        parts.append(f"Not tried, since no more than {search.max_trials} were asked for: {_names(unasked)}.")
    if search.timed_out or facts.refit.out_of_time:
        parts.append(
            f"The budget of {facts.time_budget:g} s was too short for all, so another run may choose otherwise."
        )
    elif not search.interrupts.happened and not facts.refit.interrupted:
        parts.append("Time did not run out, so the same data, seed and threads give the same model.")
    return parts


def _names(trials: Sequence[Trial]) -> str:
    return ", ".join(trial.name for trial in trials)


def _caution(judge: BoundMetric) -> str:
    few = judge.data.n_queries < _FEW_QUERIES
    mostly = f" With {queries(judge.data.n_queries)} to choose on, much of the order is luck." if few else ""
    return "The validation values are those that the choice was made by, so expect a little less on new data." + mostly


def _interval(interval: Interval, before: str = "") -> str:
    """Return an interval in brackets; nothing if a single query was judged, which has no interval."""
    if math.isinf(interval.high - interval.low):
        return ""
    return f" ({before}95 % interval of the difference {interval.low:+.4f} to {interval.high:+.4f})"
