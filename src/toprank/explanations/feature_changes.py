"""Counterfactuals: the smallest change of one feature that reorders two documents.

As a function of one feature, the score of linear rankers, trees and their blends is piecewise linear
(`Ranker.score_profile`), so one score per piece gives the exact crossing. Other rankers are searched on a grid. Every
reported change is verified by the ranker's own score.
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

_GRID_SIZE = 65  # values of a feature in the grid search
_REFINED_GRID_SIZE = 17  # values in each refinement of a grid step
_N_REFINEMENTS = 5
_RELATIVE_STEPS = (1e-12, 1e-10, 1e-8, 2e-7, 1e-6)  # steps beyond a crossing, relative to value plus spread
_MAX_ROWS = 5  # changes in the printed table
Margins = Callable[[FloatArray], FloatArray]


class FeatureChange(NamedTuple):
    """A change of one feature that ranks the lower document above the other."""

    feature: str
    now: str
    wanted: str
    """Required value in words, such as ``above 3.2``."""
    value: float
    """A value that satisfies this, verified by the ranker."""
    size: float
    """Size of the change in standard deviations of the feature; a change of category counts as 1."""
    seen: bool
    """Whether the value is within the range of the data."""


@dataclass(frozen=True, repr=False)
class Counterfactuals(Record):
    """Changes of single features that would rank document `b` above `a`, the smallest first.

    Attributes:
        query: Id of the query.
        a: The higher document.
        b: The lower document.
        changes: One change per feature that suffices alone.
        features: Number of features examined.
        exact: True if the changes are the smallest possible; False if they come from a grid search within the range of
            the data.
        caveats: Remarks on the result, as sentences.
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
        """The smallest change as a sentence."""
        within = [change for change in self.changes if change.seen]
        if not self.changes:
            return f"No change of a single feature ranks {self.b.name} above {self.a.name}."
        best = (within or self.changes)[0]
        sentence = f"{self.b.name} would rank above {self.a.name} if its {best.feature} were {best.wanted}"
        sentence += f" (now {best.now})."
        if within:
            return sentence
        return f"No value within these data ranks {self.b.name} above {self.a.name}; {sentence}"

    def _parts(self) -> Sequence[Part]:
        rows = [
            (change.feature, change.now, change.wanted, f"{change.size:.3g}", "yes" if change.seen else "no")
            for change in self.changes[:_MAX_ROWS]
        ]
        header = ("feature", "now", "required", "change in deviations", "within the data")
        how = "exact" if self.exact else (
            f"grid search over {_GRID_SIZE} values in the range of the data, refined to "
            f"{(_REFINED_GRID_SIZE - 1.0) ** -_N_REFINEMENTS / (_GRID_SIZE - 1):.0e} of that range"
        )  # fmt: skip
        note = f"{len(self.changes)} of {self.features} features suffice alone ({how})."
        return [self.summary, *([Table(header, rows, names=3)] if rows else []), note, *self.caveats]

    def _columns(self) -> dict[str, list[Any]]:
        """Return one row per change."""
        return {name: [getattr(change, name) for change in self.changes] for name in FeatureChange._fields}


def counterfactuals(
    ranker: Ranker, data: RankingData, qid: Any = None, a: Any = None, b: Any = None
) -> Counterfactuals:
    """Find the smallest change of each single feature that ranks the lower of two documents above the other.

    Args:
        ranker: fitted ranker.
        data: data that contain the query. Their values define the range and the standard deviation of each feature.
        qid: id of the query. None (default) if the data have only one query.
        a: a document, by its id; see `Ranker.explain`.
        b: another document.

    The result is exact for linear rankers, trees and blends of these; other rankers are searched on a grid. For a
    categorical feature, the most frequent sufficient category is reported. Features that are constant within the query
    are skipped.

    >>> import toprank as tr
    >>> data = tr.RankingData([[3.0], [1.0], [2.0]], [2, 0, 1], feature_names=["sales"])
    >>> print(tr.explanations.counterfactuals(tr.LinearRanker("ListNet").fit(data), data, a=2, b=1).summary)
    1 would rank above 2 if its sales were above 2 (now 1).
    """
    query = ExplainedQuery(ranker, data, qid)
    return row_counterfactuals(query, *query.pair(a, b), FeatureColumns(ranker, ranker.translated(data)))


def row_counterfactuals(query: ExplainedQuery, first: int, second: int, features: FeatureColumns) -> Counterfactuals:
    """Find the counterfactuals of two rows of a query."""
    a, b = sorted((first, second), key=lambda row: query.places[row])
    constant = ((query.X[0] == query.X) | (np.isnan(query.X) & np.isnan(query.X[0]))).all(axis=0)
    tried = np.flatnonzero(~constant)
    caveats = list(query.caveats)
    if constant.any():
        caveats.append("Features that are constant within the query were skipped.")
    if features.data.is_sparse:
        tried = np.flatnonzero((query.X[[a, b]] != 0).any(axis=0) & ~constant)
        caveats.append("Only features that are nonzero in one of the two documents were examined.")
    listed, exact = [], True
    for number in tried.tolist():
        feature = features[number]
        margins = _margins(query, a, b, number)
        profile = None if feature.is_category else query.ranker.score_profile(number)
        exact &= feature.is_category or profile is not None
        change = _categorical_change(feature, query.X[b, number], margins) if feature.is_category else None
        if not feature.is_category:
            change = _numeric_change(feature, float(query.X[b, number]), margins, profile)
        if change is not None:
            listed.append(change)
    listed.sort(key=lambda change: change.size)
    return Counterfactuals(
        query.qid, query.document(a), query.document(b), tuple(listed), len(tried), exact, tuple(caveats)
    )


def _margins(query: ExplainedQuery, a: int, b: int, feature: int) -> Margins:
    """Return a function from values of a feature of b to the margin of b over a."""

    def score(values: FloatArray) -> FloatArray:
        changes = {b: values[:, None]}
        if not query.ranker.uses_query_context:
            return np.asarray(rescored(query.ranker, query.part, query.X, changes, [feature])[:, 0] - query.scores[a])
        changes[a] = np.full((len(values), 1), query.X[a, feature])  # rescore a, since its score depends on b
        scores = rescored(query.ranker, query.part, query.X, changes, [feature])
        return np.asarray(scores[:, 0] - scores[:, 1])

    def margins(values: FloatArray) -> FloatArray:
        result = np.full(len(values), -np.inf)  # trees may split at infinity, but data values are finite
        finite = np.isfinite(values)
        if finite.any():
            result[finite] = score(values[finite])
        return result

    return margins


def _categorical_change(feature: Feature, now: float, margins: Margins) -> FeatureChange | None:
    levels = feature.levels[feature.levels != now]
    enough = np.flatnonzero(margins(levels) > 0)
    if not len(enough):
        return None
    value = float(levels[enough[0]])
    return FeatureChange(feature.name, feature.shown(now), feature.shown(value), value, 1.0, True)


def _numeric_change(
    feature: Feature, now: float, margins: Margins, profile: ScoreProfile | None
) -> FeatureChange | None:
    start = float(feature.present.mean()) if math.isnan(now) else now
    crossings = _search(feature, start, margins) if profile is None else _solve(profile, start, margins)
    low, high = float(feature.present.min()), float(feature.present.max())
    for value, side, open_end in sorted(crossings, key=lambda crossing: abs(crossing.value - start)):
        beyond = _beyond(value, side, feature, open_end, margins)
        if beyond is None:
            continue
        up, down = ("above ", "below ") if open_end else ("at least ", "at most ")
        at_start = value == start and not open_end  # the feature is missing, and its mean suffices
        word = "" if at_start else up if side > 0 else down
        threshold = feature.shown(value) if at_start else _in_words(value, beyond, side, feature, open_end, margins)
        size, seen = abs(value - start) / feature.spread, low <= beyond <= high
        return FeatureChange(feature.name, feature.shown(now), word + threshold, beyond, size, seen)
    return None


def _beyond(value: float, side: float, feature: Feature, open_end: bool, margins: Margins) -> float | None:
    """Return a representable value at or just beyond the crossing that reorders the documents, or None."""
    steps = [side * step * (abs(value) + feature.spread) for step in _RELATIVE_STEPS]
    nearest = float(np.nextafter(value, side * np.inf)) if open_end else value
    tried = feature.as_stored(np.array([nearest, *(value + step for step in steps)]))
    turned = np.flatnonzero(margins(tried) > 0)
    return float(tried[turned[0]]) if len(turned) else None


def _in_words(value: float, beyond: float, side: float, feature: Feature, open_end: bool, margins: Margins) -> str:
    """Return the crossing with as few digits as possible, rounded away from the start and verified as printed.

    Thresholds of trees differ from the intended number in the last digit, so an open end may be off by as much.
    """
    ways = [*feature.rounded(value, side), *feature.rounded(beyond, side)]
    numbers = np.array([number for _, number in ways])
    if open_end:  # do not claim that a smaller change than `beyond` suffices
        last_digit = _RELATIVE_STEPS[0] * (abs(value) + feature.spread)
        holds = side * (value - numbers) <= last_digit
        tried = side * np.maximum(side * np.nextafter(numbers, side * np.inf), side * beyond)
    else:
        holds, tried = np.ones(len(ways), bool), numbers
    kept = np.flatnonzero(holds & (margins(feature.as_stored(tried)) > 0))
    return ways[int(kept[0])][0] if len(kept) else feature.shown(beyond)


class _Crossing(NamedTuple):
    """A value of a feature at which the margin becomes positive."""

    value: float
    side: float
    """Direction of the change: 1 for larger values, −1 for smaller values."""
    open_end: bool
    """Whether the value itself is excluded."""


def _solve(profile: ScoreProfile, start: float, margins: Margins) -> Iterator[_Crossing]:
    """Yield the nearest point of each linear piece at which the margin becomes positive."""
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


def _search(feature: Feature, start: float, margins: Margins) -> Iterator[_Crossing]:
    """Yield the nearest values with a positive margin on both sides, by successively refined grids."""
    low, high = float(feature.present.min()), float(feature.present.max())
    for end in (low, high):
        if end == start:
            continue
        grid = np.linspace(start, end, _GRID_SIZE)
        for _ in range(_N_REFINEMENTS + 1):
            turned = np.flatnonzero(margins(grid[1:]) > 0)
            if not len(turned):
                break
            first = int(turned[0]) + 1
            crossing = float(grid[first])
            grid = np.linspace(grid[first - 1], grid[first], _REFINED_GRID_SIZE)
        else:
            yield _Crossing(crossing, math.copysign(1.0, crossing - start), False)
