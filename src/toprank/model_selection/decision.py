"""Select a candidate or a blend of candidates by paired differences on validation queries, and summarize the result.

The best of many candidates on few validation queries is partly luck. A blend of all candidates that are not separated
from the best generalizes better than the best one alone.
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

MAX_MEMBERS = 12
"""Maximum number of members of a blend. Every member slows down prediction."""


@dataclass(frozen=True)
class Decision:
    """Outcome of a selection: the evaluated trials from best to worst, and the ranker made of them.

    Attributes:
        order: trials from best to worst.
        intervals: interval of each trial's difference to the best trial.
        members: trials that are not separated from the best, from best to worst, at most `MAX_MEMBERS`.
        weights: weights of the members in a blend; they sum to 1.
        ranker: the selected ranker.
        values: metric of the selected ranker on each validation query.
        blend: interval of the blend's difference to the best trial, or None if no blend was made.
        blend_value: metric of the blend, whether selected or not.
        single: the selected trial if no blend was selected; None selects the best trial.
        default: names of the trials of the default system, if other systems were evaluated too.
        share: weight reserved for the default system independently of the validation data: 1, 0.5 or 0.
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
    def all_equal(self) -> bool:
        """True if all trials have the same value on every query, so that the data do not distinguish them."""
        return len(self.order) > 1 and _all_equal(self.order)

    @property
    def blended(self) -> bool:
        """True if the blend was selected."""
        return isinstance(self.ranker, BlendRanker)

    @property
    def chosen(self) -> list[Trial]:
        """Trials that make up the selected ranker."""
        return self.members if self.blended else [self.single or self.order[0]]

    @property
    def weights_by_name(self) -> dict[str, float]:
        """Weight of each selected trial, by name."""
        return dict(zip([trial.name for trial in self.chosen], self.weights if self.blended else [1.0], strict=False))


def decide(order: Sequence[Trial], judge: BoundMetric, blend: bool, default: Collection[str] = ()) -> Decision:
    """Select the best of trials that are sorted from best to worst, or a blend of those not separated from the best.

    If the interval of a trial's difference to the best is [−g − h, −g + h], its weight is 1 − g/h: 1 for the best
    trial, 0 for a trial whose interval just reaches 0.

    The trials named in `default` form the default system. It keeps half of the weight, and the other half is divided
    among all trials as above. If this blend is worse than the default system by more than one standard error of the
    paired differences, the default system is selected alone. The reserved half is dropped only if the selection without
    it is better than both by more than one standard error.
    """
    free = _weighed(list(order), judge, blend)
    own = [trial for trial in free.order if trial.name in default]
    if not own or len(own) == len(free.order) or free.all_equal:
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
    """Select among trials, with weights that decrease with the evidence against each."""
    sign, best = 1.0 if judge.higher_is_better else -1.0, order[0]
    intervals = [t_interval(trial.values, best.values) for trial in order]
    evidence = [plausibility(interval, sign) for interval in intervals]
    kept = [(trial, weight) for trial, weight in zip(order, evidence, strict=True) if weight > 0][:MAX_MEMBERS]
    if _all_equal(order):  # a blend would only be slower
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
    """Return the blend whose weights are the mean of the weights of two decisions."""
    shares = {trial.name: 0.5 * (free.weights_by_name.get(trial.name, 0) + floor.weights_by_name.get(trial.name, 0))
              for trial in free.order}  # fmt: skip
    members = [trial for trial in free.order if shares[trial.name] > 0]
    members = sorted(members, key=lambda trial: -shares[trial.name])[:MAX_MEMBERS]
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


def _all_equal(trials: Sequence[Trial]) -> bool:
    """Return whether all trials have the same value on every query."""
    return all(np.array_equal(trial.values, trials[0].values, equal_nan=True) for trial in trials)


def rows_of(decision: Decision) -> list[dict[str, Any]]:
    """Return the rows of the evaluated trials: the blend, if one was made, then the trials from best to worst."""
    best = decision.order[0].value or 0.0
    weights = decision.weights_by_name if decision.blended else {}
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


_MIN_RELIABLE_QUERIES = 30


class SummaryFacts(NamedTuple):
    """Facts of the search that the summary reports next to the decision.

    Attributes:
        judge: metric bound to the validation data.
        trained_on: number of queries that the candidates were fitted on.
        drawn: how the held-out queries were selected, in words; None if validation data were passed.
        time_budget: time limit of the search in seconds, or None.
        refit: outcome of the refit on all the data.
    """

    judge: BoundMetric
    trained_on: int
    drawn: str | None
    time_budget: float | None
    refit: Refit


def summary_of(decision: Decision, search: PortfolioSearch, facts: SummaryFacts) -> tuple[str, ...]:
    """Return the sentences of the summary: data, best candidate, blend, refit, and skipped candidates."""
    parts = [
        _data(facts),
        _winner(decision, facts.judge),
        _blend(decision),
        _default(decision),
        facts.refit.sentence,
        *_left_out(search, facts),
        _optimism(facts.judge),
    ]
    return tuple(part for part in parts if part)


def _data(facts: SummaryFacts) -> str:
    n = facts.judge.data.n_queries
    by = f"by {facts.judge.name} (convention {facts.judge.convention.name})"
    if facts.drawn is None:
        return f"The candidates were trained on {queries(facts.trained_on)} and evaluated on {queries(n)} {by}."
    return (
        f"{queries(n)} of {facts.trained_on + n:,}, {facts.drawn}, were held out for the selection {by}; "
        "the candidates were trained on the others."
    )


def _winner(decision: Decision, judge: BoundMetric) -> str:
    order = decision.order
    best = f"{order[0].name} ({order[0].value:.4f})"
    if len(order) == 1:
        return f"One candidate was tried, {best}."
    if decision.all_equal:
        return (
            f"All {len(order)} candidates have the same value on every one of these queries "
            f"({order[0].value:.4f}), so these queries do not distinguish them."
        )
    lead = abs((order[0].value or 0.0) - (order[1].value or 0.0))
    sign = -1.0 if judge.higher_is_better else 1.0  # intervals hold the difference of the runner-up to the best
    low, high = sorted(sign * bound for bound in decision.intervals[1])
    sentence = f"Of {len(order)} candidates {best} was best, {lead:.4f} ahead of the runner-up {order[1].name}"
    if math.isinf(high - low):
        return f"{sentence}. A single query has no interval, so the others may be as good."
    sentence += f" (95 % interval of the lead {low:+.4f} to {high:+.4f})."
    others = _level(decision) - 1
    if others == 0:
        return sentence + " This lead is significant."
    which = "another one" if others == 1 else f"{others} others"
    return sentence + f" It is not significantly better than {which} on this many validation queries."


def _level(decision: Decision) -> int:
    """Return the number of trials that are not separated from the best, including the best."""
    return sum(interval.low <= 0 <= interval.high for interval in decision.intervals)


def _blend(decision: Decision) -> str:
    taken = decision.chosen[0].name
    if decision.all_equal:
        return f"{taken}, the first candidate, is selected; nothing is blended."
    if decision.blend is None:
        if len(decision.members) > 1 and not decision.blended:
            return f"Blending is off, so {taken} is selected, though others may be as good."
        return f"{taken} is selected."
    names = ", ".join(trial.name for trial in decision.members)
    if not decision.blended:
        return f"A blend of {names} was worse than the best alone{_interval(decision.blend)} and is not selected."
    n = len(decision.members)
    which = ("Both" if n == 2 else f"All {n}") if n == _level(decision) else f"The best {n} of these"
    if decision.share:
        which = "Both" if n == len(decision.order) == 2 else f"{n} of them"
    equal = max(decision.weights) == min(decision.weights)
    weights = "equal weights" if equal else "weights that decrease with the evidence against them"
    return (
        f"{which} ({names}) are blended with {weights}: if validation does not separate them, their mean generalizes "
        f"better than the candidate that happens to be first. The blend has {np.nanmean(decision.values):.4f} on the "
        f"validation data{_interval(decision.blend, 'against the best alone: ')}."
    )


def _default(decision: Decision) -> str:
    """Return the role of the default system, or an empty string if no other candidate was evaluated."""
    if not decision.default:
        return ""
    name = f"the default system ({', '.join(decision.default)})"
    if decision.share == 1:
        return f"That is {name}: no candidate was better by more than one standard error."
    if decision.share:
        return f"Half of the weight is reserved for {name}."
    return f"That is better by more than one standard error than any selection with {name}."


def _left_out(search: PortfolioSearch, facts: SummaryFacts) -> list[str]:
    parts = [f"{trial.name} does not support these data: {trial.remark}" for trial in search.in_state("refused")]
    if search.interrupts.happened:
        parts.append("The search was interrupted; this is the best candidate until then.")
    if cut := search.in_state("cut short"):
        parts.append(f"Stopped early for lack of time: {_names(cut)}.")
    first = next((trial for trial in search.trials if trial.seconds is not None), None)
    if first is not None and facts.time_budget is not None and (first.seconds or 0.0) > facts.time_budget:
        parts.append(
            f"{first.name} alone took {first.seconds:.1f} s: the first candidate is always fitted completely, so that "
            "there is a result."
        )
    skipped = search.in_state("not tried")
    if late := [trial for trial in skipped if trial.remark == NO_TIME]:
        parts.append(f"Not tried for lack of time: {_names(late)}.")
    if unasked := [trial for trial in skipped if trial.remark != NO_TIME]:
        parts.append(f"Not tried because of max_trials={search.max_trials}: {_names(unasked)}.")
    if search.timed_out or facts.refit.out_of_time:
        parts.append(
            f"The time budget of {facts.time_budget:g} s was too short for all, so another run may select differently."
        )
    elif not search.interrupts.happened and not facts.refit.interrupted:
        parts.append("The time sufficed, so the same data, seed and threads give the same model.")
    return parts


def _names(trials: Sequence[Trial]) -> str:
    return ", ".join(trial.name for trial in trials)


def _optimism(judge: BoundMetric) -> str:
    few = judge.data.n_queries < _MIN_RELIABLE_QUERIES
    mostly = f" With {queries(judge.data.n_queries)}, much of the order is luck." if few else ""
    return "The validation values are optimistic because the selection used them; expect less on new data." + mostly


def _interval(interval: Interval, before: str = "") -> str:
    """Return an interval in parentheses, or an empty string for a single query, which has no interval."""
    if math.isinf(interval.high - interval.low):
        return ""
    return f" ({before}95 % interval of the difference {interval.low:+.4f} to {interval.high:+.4f})"
