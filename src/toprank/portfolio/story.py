"""The story of a choice, in sentences."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from toprank.metrics.evaluation import Judge
from toprank.portfolio.choosing import Decision
from toprank.portfolio.trials import Trials
from toprank.significance import Interval

__all__ = ["Told", "tell"]

_FEW_QUERIES = 30


class Told(NamedTuple):
    """What the story is about, besides the decision."""

    judge: Judge
    trained_on: int
    """Queries that the candidates were fitted on."""
    held_out: bool
    seed: int
    budget: float
    refit: str
    """What became of training again on all the data, as a sentence; empty where there was no question of it."""
    out_of_time: bool
    """Whether that was left out for lack of time."""
    interrupted: bool = False
    """Whether that was interrupted."""


def tell(decision: Decision, trials: Trials, told: Told) -> str:
    """All sentences, one paragraph."""
    parts = [
        _data(told),
        _winner(decision, told.judge),
        _blend(decision),
        told.refit,
        *_left_out(trials, told),
        _caution(told.judge),
    ]
    return " ".join(part for part in parts if part)


def _data(told: Told) -> str:
    n = told.judge.data.n_queries
    by = f"by {told.judge.name} (convention {told.judge.convention.name})"
    if told.held_out:
        return (
            f"{_queries(n)} of {told.trained_on + n:,}, drawn by seed {told.seed}, were held out to choose on, {by}; "
            "the candidates learned from the others."
        )
    return f"The candidates learned from {_queries(told.trained_on)} and were judged on {_queries(n)} {by}."


def _winner(decision: Decision, judge: Judge) -> str:
    order = decision.order
    best = f"{order[0].name} ({np.nanmean(order[0].values):.4f})"
    if len(order) == 1:
        return f"One candidate was tried, {best}."
    if decision.all_alike:
        return (
            f"All {len(order)} candidates have the same value on every one of these queries "
            f"({np.nanmean(order[0].values):.4f}), so that there is nothing to choose by."
        )
    lead = abs(float(np.nanmean(order[0].values) - np.nanmean(order[1].values)))
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
    """How many cannot be told apart from the best, itself included."""
    return sum(seen.low <= 0 <= seen.high for seen in decision.intervals)


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


def _left_out(trials: Trials, told: Told) -> list[str]:
    parts = [f"{name} does not go with these data: {why}" for name, why in trials.refused.items()]
    if trials.interrupted:
        parts.append("The search was interrupted; this is the best of what was tried until then.")
    cut = [trial.name for trial in trials.done if trial.cut_short]
    if cut:
        parts.append(f"Cut short for lack of time: {', '.join(cut)}.")
    if trials.skipped:
        parts.append(f"Not tried for lack of time: {', '.join(trials.skipped)}.")
    if trials.budget_bound or told.out_of_time:
        parts.append(f"The budget of {told.budget:g} s was too short for all, so another run may choose otherwise.")
    elif not trials.interrupted and not told.interrupted:
        parts.append("Time did not run out, so the same data, seed and threads give the same model.")
    return parts


def _caution(judge: Judge) -> str:
    few = judge.data.n_queries < _FEW_QUERIES
    mostly = f" With {_queries(judge.data.n_queries)} to choose on, much of the order is luck." if few else ""
    return "The validation values are those that the choice was made by, so expect a little less on new data." + mostly


def _queries(n: int) -> str:
    return f"{n:,} {'query' if n == 1 else 'queries'}"


def _interval(interval: Interval, before: str = "") -> str:
    """In brackets; nothing where a single query was judged, which has none."""
    if math.isinf(interval.high - interval.low):
        return ""
    return f" ({before}95 % interval of the difference {interval.low:+.4f} to {interval.high:+.4f})"
