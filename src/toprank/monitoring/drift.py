"""A ranker, the data it was trained for, and the data it meets now: what has moved, and what to expect of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.checks import check_data, check_number, check_whole
from toprank.data.dataset import RankingData, dense_rows
from toprank.drawing import WIDTH, Box, Markup, Scale, axes, marked_ticks, tag
from toprank.errors import DataError, UnknownNameError, joined
from toprank.metrics.sorting import ranking
from toprank.monitoring.shifts import (
    MOST_QUERIES,
    CellCounts,
    Draws,
    Shift,
    cells_of,
    corrected,
    measure,
    sampled,
    shifts,
)
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import check_is_fitted
from toprank.rankers.probabilities import ExpectedValue
from toprank.showing.pictures import Picture, curve, key
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of, percent
from toprank.significance.effects import bootstrap_interval
from toprank.significance.results import Interval, number, p_value, signed

_ROWS = 12  # of features in the text; the frame and the page have all
_MATTERS = 0.05  # of the DCG expected before: a smaller change is no alarm


@dataclass(frozen=True)
class ExpectedChange:
    """The DCG@k that a calibrated ranker expects of its own rankings, per query, before and after.

    The interval of the difference is Welch's over queries, and holds for this difference alone; p comes from dealing
    the same queries out anew and is corrected for everything that is tested, so that it may be above 5 % although the
    interval just misses 0. Both take P(grade | x) for right on both sides: they notice documents with other features,
    but not features that mean something else than in training.
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
    """What has drifted; if anything has, the forecast and its interval are no evidence of how good the ranking is."""

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
class Disagreement:
    """How differently a second ranker orders the new queries: means over queries, with intervals.

    Attributes:
        k: the depth of the top that is compared.
        other_first: the share of queries with another first document.
        other_first_interval: the interval of this share.
        exchanged: the share of the top k that the other ranker leaves out.
        exchanged_interval: the interval of this share.
        reordered: how many queries differ in any way within the top k.
    """

    k: int
    other_first: float
    other_first_interval: Interval
    exchanged: float
    exchanged_interval: Interval
    reordered: int

    def __str__(self) -> str:
        first, top = self.other_first_interval, self.exchanged_interval
        return (
            f"The shadow has another first document in {self.other_first:.1%} of the queries [{first.low:.1%}, "
            f"{first.high:.1%}] and other documents at {self.exchanged:.1%} of the top {self.k} [{top.low:.1%}, "
            f"{top.high:.1%}]."
        )


@dataclass(frozen=True, repr=False)
class Drift(Shown):
    """What has moved between two sets of queries. `alarms` has a sentence for each alarm.

    Attributes:
        features: a `Shift` for each feature, those that moved farthest first.
        scores: the `Shift` of the scores.
        expected_dcg: how the expected DCG has changed; None if the ranker cannot tell.
        shadow: how far a second ranker disagrees; None without one.
        queries: the numbers of queries before and after.
        confidence: the confidence level of all intervals.
        no_dcg_reason: why there is no expected DCG; empty if there is one.
    """

    features: tuple[Shift, ...]
    scores: Shift
    expected_dcg: ExpectedChange | None
    shadow: Disagreement | None
    queries: tuple[int, int]
    confidence: float
    no_dcg_reason: str
    cells: tuple[CellCounts, ...] = field(repr=False, compare=False, default=())
    """The counts behind the shifts: those of the scores first, then those of `features`."""

    @property
    def alarms(self) -> tuple[str, ...]:
        """A sentence for each thing that somebody should look at."""
        return tuple(self._alarms())

    def _alarms(self) -> Iterator[str]:
        for shift in self.features:
            if shift.drifted:
                name = f"Feature {shift.name}" if shift.name.isdigit() else shift.name
                yield f"{name} has drifted: PSI {shift.psi:.2f}{_in_words(shift)}, {p_value(shift.p)}."
        if self.scores.drifted:
            yield f"The scores have drifted: PSI {self.scores.psi:.2f}, {p_value(self.scores.p)}."
        if self.expected_dcg is not None and self.expected_dcg.changed:
            change = self.expected_dcg
            size = number(abs(change.difference))
            rise = f"rose by {size}: the ranker meets documents unlike those that it was calibrated on"
            yield f"The expected DCG@{change.k} {f'fell by {size}' if change.difference < 0 else rise}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = {name: getattr(self, name) for name in ("queries", "confidence", "no_dcg_reason")}
        parts = {name: getattr(self, name) for name in ("scores", "expected_dcg", "shadow")}
        return {
            "summary": self.summary,
            "alarms": list(self.alarms),
            "features": [_facts(shift) for shift in self.features],
            **{name: None if part is None else _facts(part) for name, part in parts.items()},
            **plain,
        }

    def gauges(self) -> dict[str, float]:
        """Return the numbers that a monitoring system draws, by the names of the service's metrics."""
        numbers = {"alarms": float(len(self.alarms)), "score_psi": self.scores.psi}
        numbers |= {"largest_feature_psi": max((shift.psi for shift in self.features), default=0.0)}
        numbers |= {"features_drifted": float(sum(shift.drifted for shift in self.features))}
        numbers |= {"missing_share": float(np.mean([shift.missing[1] for shift in self.features] or [0.0]))}
        numbers |= {"outside_share": float(np.mean([shift.outside for shift in self.features] or [0.0]))}
        if self.expected_dcg is not None:
            numbers |= {"expected_dcg": self.expected_dcg.new, "expected_dcg_change": self.expected_dcg.difference}
        return numbers

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """Return a row for each feature, and one for the scores."""
        rows = (*self.features, self.scores)
        columns: dict[str, list[Any]] = {"name": [row.name for row in rows], "psi": [row.psi for row in rows]}
        columns |= {
            "psi_low": [row.psi_interval.low for row in rows],
            "psi_high": [row.psi_interval.high for row in rows],
        }
        columns |= {"ks": [row.ks for row in rows], "p": [row.p for row in rows]}
        columns |= {f"missing_{when}": [row.missing[i] for row in rows] for i, when in enumerate(("before", "after"))}
        columns |= {"outside": [row.outside for row in rows], "drifted": [row.drifted for row in rows]}
        return frame_of(columns, kind)

    def table(self, rows: int | None = None) -> Table:
        """Return the scores and the features, those that moved farthest first."""
        header = ("", "PSI", f"{percent(self.confidence)} interval", "KS", "p", "missing", "outside")
        return Table(header, [_row(shift) for shift in (self.scores, *self.features)[:rows]], names=1)

    def plot(self, feature: str | None = None, *, named: bool = True) -> Picture:
        """Draw the distribution of a feature before and now; None: of the scores.

        If the two curves lie on each other, nothing has moved. `named`: whether to draw the key to the curves.
        """
        of_scores, *of_features = self.cells
        if feature is None:
            return _before_and_after("Scores", of_scores, named)
        cells = dict(zip([shift.name for shift in self.features], of_features, strict=True))
        if feature not in cells:
            raise UnknownNameError("feature", feature, cells)
        return _before_and_after(feature, cells[feature], named)

    @property
    def outlook(self) -> tuple[str, ...]:
        """What to expect: the DCG without labels, then what the shadow would change, if there is one."""
        expected = self.no_dcg_reason if self.expected_dcg is None else str(self.expected_dcg)
        return (expected,) if self.shadow is None else (expected, str(self.shadow))

    @property
    def summary(self) -> str:
        """The alarms, and what to expect."""
        return " ".join([*(self.alarms or ["No alarm."]), self.outlook[0]])

    def _parts(self) -> Sequence[Part]:
        before, after = self.queries
        opening = f"{before:,} queries before, {after:,} now, {len(self.features):,} features."
        if max(self.queries) > MOST_QUERIES:
            opening += f" Of each, {MOST_QUERIES:,} drawn at random were looked at."
        caveat = "What sampling alone adds to PSI and KS is subtracted; p holds for all rows together."
        more = len(self.features) + 1 - _ROWS
        rest = (f"… and {more:,} more features that moved less.",) if more > 0 else ()
        return [opening, self.alarms or "No alarm.", self.table(_ROWS), *rest, *self.outlook, caveat]


def _before_and_after(name: str, cells: CellCounts, named: bool) -> Picture:
    """Draw distribution functions; for categories, or if all values are equal, the shares of the cells."""
    box = Box(44, 10, WIDTH - 12, 170)
    y = Scale(0, 1, box.bottom, box.top)
    shares = [np.asarray(share, dtype=np.float64) for share in cells.shares()]
    y_ticks = [(v, f"{v:g}") for v in (0.0, 0.5, 1.0)]
    ends = np.flatnonzero(np.isfinite(cells.edges))  # infinite ones have no place on a page
    if len(ends) > 1:
        x = Scale(float(cells.edges[ends[0]]), float(cells.edges[ends[-1]]), box.left, box.right)
        x_ticks = marked_ticks(x.low, x.high, 4)
        curves = [
            (np.cumsum(share[: cells.ordered]) / max(share[: cells.ordered].sum(), 1e-300))[ends] for share in shares
        ]
        at = [x(float(edge)) for edge in cells.edges[ends]]
    else:
        x = Scale(0, len(shares[0]), box.left, box.right)
        x_ticks, curves, at = [], shares, [x(place + 0.5) for place in range(len(shares[0]))]
    lines = [
        tag("g", curve(side, [(a, y(float(v))) for a, v in zip(at, shown, strict=True)]), data_s=side)
        for side, shown in enumerate(curves)
    ]
    names = key({"before": 0, "now": 1}, 204) if named else Markup()
    return Picture(f"{name} before and now", 240 if named else 210, axes(box, x, y, x_ticks, y_ticks), *lines, names)


def _facts(part: Shift | ExpectedChange | Disagreement) -> dict[str, Any]:
    """Return the fields of a part, each interval as its two ends."""
    values = {name: getattr(part, name) for name in part.__dataclass_fields__}
    return {name: list(value) if isinstance(value, Interval) else value for name, value in values.items()}


def _in_words(shift: Shift) -> str:
    before, after = shift.missing
    missing = f", missing {before:.1%} before and {after:.1%} now" if abs(after - before) >= 0.01 else ""
    return missing + (f", {shift.outside:.1%} of it new" if shift.outside >= 0.01 else "")


def _row(shift: Shift) -> tuple[str, ...]:
    low, high = shift.psi_interval
    ks = "" if shift.ks is None else f"{shift.ks:.3f}"
    missing = "" if shift.missing == (0.0, 0.0) else "{:.1%} → {:.1%}".format(*shift.missing)
    outside = f"{shift.outside:.1%}" if shift.outside else ""
    name = f"{shift.name} !" if shift.drifted else shift.name
    return (name, f"{shift.psi:.3f}", f"[{low:.3f}, {high:.3f}]", ks, f"{shift.p:.3g}", missing, outside)


def monitor(
    ranker: Ranker,
    reference: RankingData,
    new: RankingData,
    *,
    shadow: Ranker | None = None,
    k: int = 10,
    psi: float = 0.1,
    confidence: float = 0.95,
    resamples: int = 1_000,
    seed: int = 0,
) -> Drift:
    """Compare the data a ranker meets with data it was trained for: features, scores, and the expected DCG.

    Intervals come from drawing queries anew, p-values from dealing the queries out anew to the two sides. The p-values
    are corrected for features, scores and the expected DCG together (Westfall and Young): if nothing has moved, the
    probability of any alarm at all is 1 - confidence at most. A feature raises an alarm if it has surely moved
    (p ≤ 1 - confidence) and moved far (PSI ≥ `psi`); the expected DCG does if it has surely changed, by 5 % or more.

    Args:
        ranker: a fitted ranker; one that was calibrated and gives P(grade | x) also tells the DCG to expect.
        reference: queries such as the ranker was trained for, best some that it did not see; labels are not used.
        new: queries that it meets now; labels are not used.
        shadow: a second ranker, to tell how differently it orders the new queries.
        k: the depth of DCG, and of the top that is compared with the shadow's.
        psi: the least shift of a feature that matters; by custom 0.1 is a small shift, 0.25 a large one.
        confidence: the confidence level of intervals and alarms.
        resamples: how often queries are drawn anew.
        seed: the seed of the draws.

    >>> import toprank as tr
    >>> old, new = tr.synthetic(n_queries=60, seed=0), tr.synthetic(n_queries=60, seed=1)
    >>> drift = tr.monitor(tr.ExpectedGainRanker().fit(old), old, new.replace(X=new.X + [0, 9, *[0] * 8]))
    >>> [shift.name for shift in drift.features if shift.drifted]
    ['effective_2']
    """
    check_whole("k", k, 1)
    check_whole("resamples", resamples, 99)
    check_number("confidence", confidence, above=0, below=1)
    check_number("psi", psi, least=0)
    for judged in (ranker, *(() if shadow is None else (shadow,))):
        check_is_fitted(judged)
    rng = np.random.default_rng(seed)
    sides = []
    for side, data in (("reference", reference), ("new", new)):
        check_data("monitor", data)
        if data.n_queries < 2:
            raise DataError(f"monitor compares queries, but the {side} data have only one; give at least two.")
        sides.append(data.select(sampled(data.queries, rng)))
    draws = Draws(sides[0].n_queries, sides[1].n_queries, resamples, rng)
    blocks = tuple(block[data.queries.document_query] for block, data in zip(draws.block_of, sides, strict=True))
    columns = _columns(ranker, sides)
    cells = [cells_of(before, after, blocks, draws.blocks, levels) for _, before, after, levels in columns]
    scores = [ranker.predict(data) for data in sides]
    names = [name for name, *_ in columns]
    tests = [
        measure(part, draws, confidence) for part in (*cells, cells_of(scores[0], scores[1], blocks, draws.blocks))
    ]
    values, no_dcg_reason = _expected(ranker, sides, scores, k, confidence)
    statistics = [(test.met, test.by_chance) for test in tests]
    statistics += [] if values is None else [draws.means_apart([value.mean for value in values])]
    p = corrected(statistics)
    *of_columns, of_scores = shifts([*names, "score"], tests, p[: len(tests)], psi, 1 - confidence)
    drifted = tuple(shift.name for shift in (*of_columns, of_scores) if shift.drifted)
    expected = None if values is None else replace(_change(values, k, confidence, p[-1]), drifted=drifted)
    pairs = sorted(zip(of_columns, cells, strict=True), key=lambda pair: (not pair[0].drifted, -pair[0].psi))
    return Drift(
        tuple(shift for shift, _ in pairs), of_scores, expected,
        None if shadow is None else _disagreement(shadow, scores[1], sides[1], k, confidence, seed),
        (reference.n_queries, new.n_queries), confidence, no_dcg_reason,
        (tests[-1].cells, *(counted for _, counted in pairs)),
    )  # fmt: skip


def _columns(ranker: Ranker, sides: Sequence[RankingData]) -> list[tuple[str, FloatArray, FloatArray, int]]:
    """Return the name, the values before and after, and for a category the number of levels, of each feature.

    Levels that the ranker does not know get a code behind all others, so that they are not taken for missing values.
    """
    translated = [ranker.translated(data) for data in sides]
    names, first = getattr(ranker, "feature_names_in_", None), getattr(ranker, "first_feature_id_", 1)
    titles = [str(first + place) for place in range(ranker.n_features_in_)] if names is None else list(names)
    matrices = [data.X.tocsc() if data.is_sparse else data.X for data in translated]
    columns = []
    for place, name in enumerate(titles):
        values = [dense_rows(matrix[:, [place]])[:, 0] for matrix in matrices]
        levels = 0
        if ranker.encoding_ is not None and ranker.encoding_.columns[place].is_category:
            levels = len(ranker.encoding_.columns[place].levels)
            for side, data in enumerate(sides):
                own = dense_rows(data.X[:, [(data.feature_names or ()).index(name)]])[:, 0]
                values[side] = np.where(np.isnan(values[side]) & ~np.isnan(own), float(levels), values[side])
        columns.append((name, values[0], values[1], levels))
    return columns


def _expected(
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
        return None, joined("The DCG is not estimated without labels.", error.args[0])
    return (before, after), ""


def _change(values: tuple[ExpectedValue, ExpectedValue], k: int, confidence: float, p: float) -> ExpectedChange:
    from scipy.special import stdtrit

    means = [float(value.mean.mean()) for value in values]
    parts = [float(value.mean.var(ddof=1)) / len(value.mean) for value in values]
    spread = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(value.mean) - 1) for part, value in zip(parts, values, strict=True)
    ) if spread else 1.0  # fmt: skip
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * spread
    change = means[1] - means[0]
    changed = bool(p <= 1 - confidence and abs(change) >= _MATTERS * abs(means[0]))
    n = len(values[1].mean)
    ends = [replace(value.overall_interval(), of=f"DCG@{k}") for value in values]
    welch = Interval(change, change - half, change + half, confidence, n, "Welch's t", f"change of DCG@{k}")
    return ExpectedChange(k, means[0], ends[0], means[1], ends[1], change, welch, p, changed)


def _disagreement(
    shadow: Ranker, ours: FloatArray, data: RankingData, k: int, confidence: float, seed: int
) -> Disagreement:
    try:
        theirs = shadow.predict(data)
    except DataError as error:
        raise DataError(joined("The shadow does not fit the new data.", error.args[0])) from None
    first, second = (ranking(scores, data.queries, k).order for scores in (ours, theirs))
    n, depths = data.n_queries, np.minimum(data.queries.sizes, k)
    query_of_place = np.repeat(np.arange(n), depths)
    in_second = np.bincount(second, minlength=data.n_documents)
    common = np.bincount(query_of_place, in_second[first], n) / depths
    tops = np.cumsum(depths) - depths
    other_first = (first[tops] != second[tops]).astype(np.float64)
    reordered = np.bincount(query_of_place, first != second, n) > 0
    shares = [_share_interval(values, confidence, seed) for values in (other_first, 1 - common)]
    return Disagreement(
        k, float(other_first.mean()), shares[0], float(1 - common.mean()), shares[1], int(reordered.sum())
    )


def _share_interval(values: FloatArray, confidence: float, seed: int) -> Interval:
    """Return the interval of a mean of numbers from 0 to 1.

    If all numbers are equal, it is as wide as that of Clopper and Pearson: others may be unseen.
    """
    interval = bootstrap_interval(values, confidence=confidence, seed=seed)
    unseen = 1 - ((1 - confidence) / 2) ** (1 / len(values)) if interval.low == interval.high else 0.0
    return replace(interval, low=max(0.0, interval.low - unseen), high=min(1.0, interval.high + unseen), of="share")
