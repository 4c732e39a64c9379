"""What would change an order: the smallest change of one feature that lifts a document above another.

Along a feature, the score of a linear ranker, of trees and of their blends is a straight line between breaks
(`Ranker.score_profile`), so one score for each piece determines exactly where the order turns. Other rankers are
searched.
Every reported change has been scored by the ranker itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.display.record import Record
from toprank.display.tables import Part, Table
from toprank.explanations.columns import Feature, FeatureColumns
from toprank.explanations.explained_query import ExplainedDocument, ExplainedQuery
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import ScoreProfile, rescored

_GRID = 65  # values of a feature at which other rankers are searched
_FINER = 17  # values within a step of that grid, then within a step of these …
_ROUNDS = 5  # … so many times
_BEYOND = (1e-12, 1e-10, 1e-8, 2e-7, 1e-6)  # steps beyond a crossing, as a share of the value and its spread
_SHOWN = 5  # changes in the table
Margins = Callable[[FloatArray], FloatArray]


class FeatureChange(NamedTuple):
    """A change of one feature of the lower document that puts it above the other."""

    feature: str
    now: str
    wanted: str
    """The value that it would need, in words: ``above 3.2``."""
    value: float
    """Such a value, scored by the ranker."""
    size: float
    """The change in standard deviations of the feature; another category counts as 1."""
    seen: bool
    """Whether the value lies within those of the data."""


@dataclass(frozen=True, repr=False)
class Counterfactuals(Record):
    """What would lift the document `b` above `a`, one feature at a time, the smallest change first.

    Attributes:
        query: The id of the query.
        a, b: The higher and the lower document.
        changes: A change for each feature that can do it alone.
        features: How many features were tried.
        exact: Whether these are the smallest changes; if not, they were found by a search between the values of
            the data.
        caveats: Further sentences.
    """

    query: str
    a: ExplainedDocument
    b: ExplainedDocument
    changes: tuple[FeatureChange, ...]
    features: int
    exact: bool
    caveats: tuple[str, ...] = ()

    json_hidden: ClassVar = frozenset({"features"})

    @property
    def summary(self) -> str:
        """The smallest change, in a sentence."""
        within = [change for change in self.changes if change.seen]
        if not self.changes:
            return f"No single feature can lift {self.b.name} above {self.a.name}."
        best = (within or self.changes)[0]
        sentence = f"{self.b.name} would stand above {self.a.name} if its {best.feature} were {best.wanted}"
        sentence += f" (now {best.now})."
        if within:
            return sentence
        return f"No single feature can lift {self.b.name} above {self.a.name} with a value of these data; {sentence}"

    def _parts(self) -> Sequence[Part]:
        rows = [
            (change.feature, change.now, change.wanted, f"{change.size:.3g}", "yes" if change.seen else "no")
            for change in self.changes[:_SHOWN]
        ]
        header = ("feature", "now", "would have to be", "change in deviations", "among the data")
        how = "exact" if self.exact else (
            f"searched at {_GRID} values between the least and the largest of the data, a crossing to "
            f"{(_FINER - 1.0) ** -_ROUNDS / (_GRID - 1):.0e} of that range"
        )  # fmt: skip
        how_many = f"{len(self.changes)} of {self.features} features can do it alone ({how})."
        return [self.summary, *([Table(header, rows, names=3)] if rows else []), how_many, *self.caveats]

    def _columns(self) -> dict[str, list[Any]]:
        """Return a row for each change."""
        return {name: [getattr(change, name) for change in self.changes] for name in FeatureChange._fields}


def counterfactuals(
    ranker: Ranker, data: RankingData, qid: Any = None, a: Any = None, b: Any = None
) -> Counterfactuals:
    """Find what would lift the lower of two documents above the other: the smallest change of each feature by itself.

    Args:
        ranker: a fitted ranker.
        data: a `RankingData` that holds the query; its values tell what is usual, and how large a change is.
        qid: the id of the query; None: the only one.
        a: a document, as `Ranker.explain` takes it.
        b: another document.

    The result is exact for linear rankers (a crossing), trees (their thresholds) and blends of these; other rankers are
    searched. Another category counts as one change; the most frequent category that lifts the document is reported.
    Features that have the same value in all documents of the query describe the query, so they are not tried.

    >>> import toprank as tr
    >>> data = tr.RankingData([[3.0], [1.0], [2.0]], [2, 0, 1], feature_names=["sales"])
    >>> print(tr.explanations.counterfactuals(tr.LinearRanker("ListNet").fit(data), data, a=2, b=1).summary)
    1 would stand above 2 if its sales were above 2 (now 1).
    """
    query = ExplainedQuery(ranker, data, qid)
    return counterfactuals_of(query, *query.pair(a, b), FeatureColumns(ranker, ranker.translated(data)))


def counterfactuals_of(query: ExplainedQuery, first: int, second: int, features: FeatureColumns) -> Counterfactuals:
    """Do the same for two rows of a query that was looked up before."""
    a, b = sorted((first, second), key=lambda row: query.places[row])
    constant = ((query.X[0] == query.X) | (np.isnan(query.X) & np.isnan(query.X[0]))).all(axis=0)
    tried = np.flatnonzero(~constant)
    caveats = list(query.caveats)
    if constant.any():
        caveats.append("Features that have the same value in all documents of the query were not tried.")
    if features.data.is_sparse:
        tried = np.flatnonzero((query.X[[a, b]] != 0).any(axis=0) & ~constant)
        caveats.append("Only features that one of the two documents has were tried.")
    listed, exact = [], True
    for number in tried.tolist():
        feature = features[number]
        margins = _margins(query, a, b, number)
        profile = None if feature.is_category else query.ranker.score_profile(number)
        exact &= feature.is_category or profile is not None
        change = _of_category(feature, query.X[b, number], margins) if feature.is_category else None
        if not feature.is_category:
            change = _of_number(feature, float(query.X[b, number]), margins, profile)
        if change is not None:
            listed.append(change)
    listed.sort(key=lambda change: change.size)
    return Counterfactuals(
        query.qid, query.document(a), query.document(b), tuple(listed), len(tried), exact, tuple(caveats)
    )


def _margins(query: ExplainedQuery, a: int, b: int, feature: int) -> Margins:
    """Return a function of values of a feature of b: by how much b would then score above a."""

    def score(values: FloatArray) -> FloatArray:
        changes = {b: values[:, None]}
        if not query.ranker.uses_query_context:
            return np.asarray(rescored(query.ranker, query.part, query.X, changes, [feature])[:, 0] - query.scores[a])
        changes[a] = np.full((len(values), 1), query.X[a, feature])  # its score depends on b
        scores = rescored(query.ranker, query.part, query.X, changes, [feature])
        return np.asarray(scores[:, 0] - scores[:, 1])

    def margins(values: FloatArray) -> FloatArray:
        result = np.full(len(values), -np.inf)  # no value is infinite, though trees may split there
        finite = np.isfinite(values)
        if finite.any():
            result[finite] = score(values[finite])
        return result

    return margins


def _of_category(feature: Feature, now: float, margins: Margins) -> FeatureChange | None:
    levels = feature.levels[feature.levels != now]
    enough = np.flatnonzero(margins(levels) > 0)
    if not len(enough):
        return None
    value = float(levels[enough[0]])
    return FeatureChange(feature.name, feature.shown(now), feature.shown(value), value, 1.0, True)


def _of_number(feature: Feature, now: float, margins: Margins, profile: ScoreProfile | None) -> FeatureChange | None:
    start = float(feature.present.mean()) if math.isnan(now) else now
    crossings = _searched(feature, start, margins) if profile is None else _along(profile, start, margins)
    low, high = float(feature.present.min()), float(feature.present.max())
    for value, side, open_end in sorted(crossings, key=lambda crossing: abs(crossing.value - start)):
        beyond = _beyond(value, side, feature, open_end, margins)
        if beyond is None:
            continue
        up, down = ("above ", "below ") if open_end else ("at least ", "at most ")
        at_start = value == start and not open_end  # only if the feature is missing: the mean would do
        word = "" if at_start else up if side > 0 else down
        threshold = feature.shown(value) if at_start else _in_words(value, beyond, side, feature, open_end, margins)
        size, seen = abs(value - start) / feature.spread, low <= beyond <= high
        return FeatureChange(feature.name, feature.shown(now), word + threshold, beyond, size, seen)
    return None


def _beyond(value: float, side: float, feature: Feature, open_end: bool, margins: Margins) -> float | None:
    """Return a value at the crossing, or just beyond it, that turns the order and that the data can hold."""
    steps = [side * step * (abs(value) + feature.spread) for step in _BEYOND]
    nearest = float(np.nextafter(value, side * np.inf)) if open_end else value
    tried = feature.as_held(np.array([nearest, *(value + step for step in steps)]))
    turned = np.flatnonzero(margins(tried) > 0)
    return float(tried[turned[0]]) if len(turned) else None


def _in_words(value: float, beyond: float, side: float, feature: Feature, open_end: bool, margins: Margins) -> str:
    """Write the crossing in as few digits as keep the sentence true: rounded away from the start, tried as printed.

    Thresholds of trees lie a last digit beside the number that they mean, so an open end may be off by as much.
    """
    ways = [*feature.rounded(value, side), *feature.rounded(beyond, side)]
    numbers = np.array([number for _, number in ways])
    if open_end:  # the sentence must not claim that less than `beyond` turns the order
        last_digit = _BEYOND[0] * (abs(value) + feature.spread)
        holds = side * (value - numbers) <= last_digit
        tried = side * np.maximum(side * np.nextafter(numbers, side * np.inf), side * beyond)
    else:
        holds, tried = np.ones(len(ways), bool), numbers
    kept = np.flatnonzero(holds & (margins(feature.as_held(tried)) > 0))
    return ways[int(kept[0])][0] if len(kept) else feature.shown(beyond)


class _Crossing(NamedTuple):
    """A value of a feature where the margin turns positive."""

    value: float
    side: float
    """The direction of the change: 1 for larger values, −1 for smaller ones."""
    open_end: bool
    """Whether the value itself is excluded."""


def _along(profile: ScoreProfile, start: float, margins: Margins) -> Iterator[_Crossing]:
    """Yield the nearest point of each piece where the margin turns positive."""
    breaks = profile.breaks
    split = int(np.searchsorted(breaks, start, side="left"))  # pieces are (break, next break]
    below, above = breaks[:split][::-1], breaks[split:]
    last, beyond = profile.around()
    entries = np.concatenate([[start, start], last[:split][::-1], beyond[split:]])
    sides = np.concatenate([[-1.0, 1.0], np.full(len(below), -1.0), np.ones(len(above))])
    ends = np.concatenate([[np.append(below, -np.inf)[0], np.append(above, np.inf)[0]],
                           np.append(below, -np.inf)[1:], np.append(above, np.inf)[1:]])  # fmt: skip
    values = np.concatenate([[start, start], below, above])
    for place, margin in enumerate(margins(entries).tolist()):
        entry, side = float(entries[place]), float(sides[place])
        if margin > 0:
            yield _Crossing(float(values[place]), side, side > 0)
        elif profile.slope * side > 0:
            crossing = entry - margin / profile.slope
            if abs(crossing - entry) < abs(ends[place] - entry):
                yield _Crossing(crossing, side, True)


def _searched(feature: Feature, start: float, margins: Margins) -> Iterator[_Crossing]:
    """Search the nearest values on both sides with a positive margin, by ever finer grids."""
    low, high = float(feature.present.min()), float(feature.present.max())
    for end in (low, high):
        if end == start:
            continue
        grid = np.linspace(start, end, _GRID)
        for _ in range(_ROUNDS + 1):
            turned = np.flatnonzero(margins(grid[1:]) > 0)
            if not len(turned):
                break
            first = int(turned[0]) + 1
            crossing = float(grid[first])
            grid = np.linspace(grid[first - 1], grid[first], _FINER)
        else:
            yield _Crossing(crossing, math.copysign(1.0, crossing - start), False)
