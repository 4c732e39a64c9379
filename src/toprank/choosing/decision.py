"""Which of the candidates is taken, which are blended, and the story of it: paired differences on validation queries.

The best of many on a few validation queries is partly luck. Measured inside the training and validation parts of
MQ2008, OHSUMED and slices of MSLR, and on synthetic data, the mean of all candidates that cannot be told apart from the
best did better on further queries than the best one, by 0.01 to 0.03 of NDCG@10. Weights that fall with the evidence
against a candidate did a little better (within noise) than equal ones, and than greedy selection of the members.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.choosing.portfolio import Trial, Trials
from toprank.compute import FloatArray
from toprank.metrics.evaluation import Judge
from toprank.rankers.blend import BlendRanker
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of
from toprank.significance import Interval, t_interval
from toprank.significance.results import queries

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["MOST_MEMBERS", "Candidate", "Choice", "Decision", "Told", "decide", "table_of", "tell"]

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


_WIDTH = 100


@dataclass(frozen=True)
class Candidate:
    """A line of the table."""

    name: str
    valid: float
    """The metric on the validation data."""
    difference: float
    """Mean difference to the best single candidate over the validation queries."""
    low: float
    high: float
    """Its 95 % interval (Student's t); infinite where a single query was judged."""
    seconds: float
    weight: float
    """Its weight in the chosen blend; 0 where it is not a member, or nothing was blended."""
    cut_short: bool
    """Whether its training was stopped for lack of time."""


@dataclass(frozen=True, repr=False)
class Choice(Shown):
    """The ranker that `auto` settled on; printing it shows the table and the story."""

    ranker: Ranker
    name: str
    """The chosen candidate, or "blend of …"."""
    story: str
    """What was tried, what won and by how much, what was blended, what was left out: in sentences."""
    table: tuple[Candidate, ...]
    """The candidates from best to worst; the blend, where one was made, comes first."""
    metric: str
    convention: str
    value: float
    """The metric of the chosen ranker on the validation data. Where `refitted`, of the ranker before that."""
    held_out: int | None
    """How many queries of the training data were held out to choose on; None where validation data were given."""
    refitted: bool
    """Whether the ranker was then trained on all of the training data, the held-out queries included."""
    not_tried: tuple[str, ...]
    """Candidates that were not begun for lack of time."""
    refused: dict[str, str]
    """Candidates that do not go with the data, and why."""
    budget_bound: bool
    """Whether time ran out; if not, the same data, seed and number of threads give the same ranker."""
    interrupted: bool
    """Whether an interrupt from the keyboard ended the search, or the training on all the data after it."""

    def fields(self) -> dict[str, Any]:
        """Everything but the ranker as plain values, for JSON; an infinite bound is None."""
        plain = {name: value for name, value in vars(self).items() if name not in ("ranker", "table")}
        rows = [{key: _finite(value) for key, value in asdict(row).items()} for row in self.table]
        return plain | {"not_tried": list(self.not_tried), "value": _finite(self.value), "table": rows}

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each candidate; a frame of pandas or polars, or Arrow's."""
        names = [field.name for field in fields(Candidate)]
        return frame_of({name: [getattr(row, name) for row in self.table] for name in names}, kind)

    def _table(self) -> Table:
        header = ("candidate", self.metric, "to the best", "95 % interval", "weight", "seconds")
        rows = [
            (
                row.name, f"{row.valid:.4f}", _signed(row.difference), f"[{_signed(row.low)}, {_signed(row.high)}]",
                f"{row.weight:.2f}" if row.weight else "", f"{row.seconds:.1f}{' cut short' if row.cut_short else ''}",
            )
            for row in self.table
        ]  # fmt: skip
        return Table(header, rows, names=1)

    def _parts(self) -> Sequence[Part]:
        return [f"{self.name}: {self.metric} ({self.convention}) {self.value:.4f}.", self._table(), self.story]

    def __str__(self) -> str:
        return f"{self._table().text()}\n\n{textwrap.fill(self.story, _WIDTH, break_on_hyphens=False)}"


def table_of(decision: Decision) -> tuple[Candidate, ...]:
    """The table of a decision."""
    best = float(np.nanmean(decision.order[0].values))
    rows = []
    if decision.blend is not None:
        value, seen = decision.blend_value, decision.blend
        rows.append(Candidate("blend", value, value - best, seen.low, seen.high, 0.0, 0.0, False))
    names = [trial.name for trial in decision.members] if decision.blended else []
    weights = dict(zip(names, decision.weights, strict=False))
    for trial, seen in zip(decision.order, decision.intervals, strict=True):
        value, weight = float(np.nanmean(trial.values)), weights.get(trial.name, 0.0)
        rows.append(
            Candidate(trial.name, value, value - best, seen.low, seen.high, trial.seconds, weight, trial.cut_short)
        )
    return tuple(rows)


def _signed(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "0" if value == 0 else f"{value:+.3f}"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    by: str | None = None
    """The column of dates that the held-out queries were the latest by."""


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
        drawn = f"drawn by seed {told.seed}" if told.by is None else f"the latest by '{told.by}'"
        return (
            f"{queries(n)} of {told.trained_on + n:,}, {drawn}, were held out to choose on, {by}; "
            "the candidates learned from the others."
        )
    return f"The candidates learned from {queries(told.trained_on)} and were judged on {queries(n)} {by}."


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
    mostly = f" With {queries(judge.data.n_queries)} to choose on, much of the order is luck." if few else ""
    return "The validation values are those that the choice was made by, so expect a little less on new data." + mostly


def _interval(interval: Interval, before: str = "") -> str:
    """In brackets; nothing where a single query was judged, which has none."""
    if math.isinf(interval.high - interval.low):
        return ""
    return f" ({before}95 % interval of the difference {interval.low:+.4f} to {interval.high:+.4f})"
