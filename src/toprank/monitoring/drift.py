"""Drift monitoring: compares features, scores and expected DCG of a ranker between reference and new data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData, check_data, dense_rows
from toprank.display.pictures import Picture, curve, key
from toprank.display.record import Record, columns_of
from toprank.display.svg import WIDTH, Box, Markup, Scale, axes, marked_ticks, tag
from toprank.display.tables import Part, Table, percent
from toprank.errors import DataError, UnknownNameError
from toprank.monitoring.feature_drift import (
    MAX_QUERIES,
    CellCounts,
    FeatureDrift,
    Resamples,
    adjusted_p_values,
    count_cells,
    feature_drifts,
    measure_drift,
    sample_queries,
)
from toprank.monitoring.forecast import Disagreement, ExpectedChange, disagreement, expected_change, expected_values
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import check_is_fitted
from toprank.significance.results import number, p_value

_MAX_ROWS = 12  # table rows in the text form; data frame and HTML page have all


@dataclass(frozen=True, repr=False)
class Drift(Record):
    """Drift between two sets of queries.

    Attributes:
        features: drift of each feature; drifted features first, then by decreasing PSI.
        scores: drift of the scores.
        expected_dcg: change of the expected DCG; None if the ranker predicts no grade probabilities.
        shadow: disagreement with the shadow ranker; None without one.
        queries: number of reference queries and of new queries.
        confidence: confidence level of all intervals.
        no_dcg_reason: reason for a missing expected DCG; else empty.
    """

    features: tuple[FeatureDrift, ...]
    scores: FeatureDrift
    expected_dcg: ExpectedChange | None
    shadow: Disagreement | None
    queries: tuple[int, int]
    confidence: float
    no_dcg_reason: str
    cells: tuple[CellCounts, ...] = field(repr=False, compare=False, default=())
    """Cell counts of the scores, followed by those of `features`."""

    json_hidden = frozenset({"cells"})
    json_properties = ("alarms", "summary")

    @property
    def alarms(self) -> tuple[str, ...]:
        """One sentence per alarm."""
        return tuple(self._alarms())

    def _alarms(self) -> Iterator[str]:
        for shift in self.features:
            if shift.drifted:
                name = f"Feature {shift.name}" if shift.name.isdigit() else shift.name
                yield f"{name} has drifted: PSI {shift.psi:.2f}{_remarks(shift)}, {p_value(shift.p)}."
        if self.scores.drifted:
            yield f"The scores have drifted: PSI {self.scores.psi:.2f}, {p_value(self.scores.p)}."
        if self.expected_dcg is not None and self.expected_dcg.changed:
            change = self.expected_dcg
            size = number(abs(change.difference))
            rise = f"rose by {size}: the new documents differ from those used for calibration"
            yield f"The expected DCG@{change.k} {f'fell by {size}' if change.difference < 0 else rise}."

    def gauges(self) -> dict[str, float]:
        """Return the values of the drift gauges of the scoring service, by name."""
        numbers = {"alarms": float(len(self.alarms)), "score_psi": self.scores.psi}
        numbers |= {"largest_feature_psi": max((shift.psi for shift in self.features), default=0.0)}
        numbers |= {"features_drifted": float(sum(shift.drifted for shift in self.features))}
        numbers |= {"missing_share": float(np.mean([shift.missing[1] for shift in self.features] or [0.0]))}
        numbers |= {"out_of_range_share": float(np.mean([shift.out_of_range for shift in self.features] or [0.0]))}
        if self.expected_dcg is not None:
            numbers |= {"expected_dcg": self.expected_dcg.new, "expected_dcg_change": self.expected_dcg.difference}
        return numbers

    def _columns(self) -> dict[str, list[Any]]:
        names = {"psi_low": "psi_interval.low", "psi_high": "psi_interval.high", "ks": "ks", "p": "p"}
        rows = (*self.features, self.scores)
        columns = columns_of(rows, ("name", "psi", *names.values()))
        return {
            "name": columns["name"],
            "psi": columns["psi"],
            **{name: columns[path] for name, path in names.items()},
            **{f"missing_{when}": [row.missing[i] for row in rows] for i, when in enumerate(("before", "after"))},
            **columns_of(rows, ("out_of_range", "drifted")),
        }

    def table(self, rows: int | None = None) -> Table:
        """Return a table of scores and features; `rows` limits its length."""
        header = ("", "PSI", f"{percent(self.confidence)} interval", "KS", "p", "missing", "out of range")
        return Table(header, [_row(shift) for shift in (self.scores, *self.features)[:rows]], names=1)

    def plot(self, feature: str | None = None, *, named: bool = True) -> Picture:
        """Plot the distribution of a feature in reference and new data. Default: of the scores.

        `named`: whether to draw a legend.
        """
        of_scores, *of_features = self.cells
        if feature is None:
            return _before_and_after("Scores", of_scores, named)
        cells = dict(zip([shift.name for shift in self.features], of_features, strict=True))
        if feature not in cells:
            raise UnknownNameError("feature", feature, cells)
        return _before_and_after(feature, cells[feature], named)

    @property
    def forecast(self) -> tuple[str, ...]:
        """The expected DCG without labels and, if there is a shadow ranker, its disagreement, as sentences."""
        expected = self.no_dcg_reason if self.expected_dcg is None else str(self.expected_dcg)
        return (expected,) if self.shadow is None else (expected, str(self.shadow))

    @property
    def summary(self) -> str:
        """Alarms and expected DCG in one paragraph."""
        return " ".join([*(self.alarms or ["No alarm."]), self.forecast[0]])

    def _parts(self) -> Sequence[Part]:
        before, after = self.queries
        opening = f"{before:,} queries before, {after:,} now, {len(self.features):,} features."
        if max(self.queries) > MAX_QUERIES:
            opening += f" Larger sets were sampled down to {MAX_QUERIES:,} queries."
        caveat = "PSI and KS are corrected for sampling bias; p is adjusted for all rows together."
        more = len(self.features) + 1 - _MAX_ROWS
        rest = (f"… and {more:,} more features with less drift.",) if more > 0 else ()
        return [opening, self.alarms or "No alarm.", self.table(_MAX_ROWS), *rest, *self.forecast, caveat]


def _before_and_after(name: str, cells: CellCounts, named: bool) -> Picture:
    """Plot distribution functions; for categories or constant columns, plot the shares of the cells."""
    box = Box(44, 10, WIDTH - 12, 170)
    y = Scale(0, 1, box.bottom, box.top)
    shares = [np.asarray(share, dtype=np.float64) for share in cells.shares()]
    y_ticks = [(v, f"{v:g}") for v in (0.0, 0.5, 1.0)]
    ends = np.flatnonzero(np.isfinite(cells.edges))  # infinite edges cannot be drawn
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


def _remarks(shift: FeatureDrift) -> str:
    before, after = shift.missing
    missing = f", missing {before:.1%} before and {after:.1%} now" if abs(after - before) >= 0.01 else ""
    return missing + (f", {shift.out_of_range:.1%} of values out of range" if shift.out_of_range >= 0.01 else "")


def _row(shift: FeatureDrift) -> tuple[str, ...]:
    low, high = shift.psi_interval
    ks = "" if shift.ks is None else f"{shift.ks:.3f}"
    missing = "" if shift.missing == (0.0, 0.0) else "{:.1%} → {:.1%}".format(*shift.missing)
    out_of_range = f"{shift.out_of_range:.1%}" if shift.out_of_range else ""
    name = f"{shift.name} !" if shift.drifted else shift.name
    return (name, f"{shift.psi:.3f}", f"[{low:.3f}, {high:.3f}]", ks, f"{shift.p:.3g}", missing, out_of_range)


def monitor(
    ranker: Ranker,
    reference: RankingData,
    new: RankingData,
    *,
    shadow: Ranker | None = None,
    k: int = 10,
    psi_threshold: float = 0.1,
    confidence: float = 0.95,
    n_resamples: int = 1_000,
    seed: int = 0,
) -> Drift:
    """Detect data drift: compare features, scores and expected DCG of a ranker between reference and new data.

    Intervals come from a bootstrap over queries, p-values from a permutation test that reassigns whole queries to the
    two data sets. The p-values are adjusted for features, scores and expected DCG together (Westfall and Young):
    without drift, the probability of any alarm is at most 1 - confidence. A feature raises an alarm if the drift is
    significant (p ≤ 1 - confidence) and large (PSI ≥ `psi_threshold`). The expected DCG raises an alarm if its change
    is significant and at least 5 %.

    Args:
        ranker: fitted ranker. The expected DCG needs a calibrated ranker that predicts P(grade | x).
        reference: reference queries, ideally unseen queries from the time of training. Labels are not used.
        new: new queries. Labels are not used.
        shadow: second ranker, to report how differently it ranks the new queries. Default: none.
        k: depth of DCG and of the comparison with the shadow ranker. Default: 10.
        psi_threshold: smallest PSI that raises an alarm. Default: 0.1. Customary values are 0.1 for small and 0.25 for
            large drift.
        confidence: confidence level of intervals and alarms. Default: 0.95.
        n_resamples: number of bootstrap resamples and of permutations, at least 99. Default: 1,000.
        seed: random seed. Default: 0.

    >>> import toprank as tr
    >>> old, new = tr.synthetic(n_queries=60, seed=0), tr.synthetic(n_queries=60, seed=1)
    >>> drift = tr.monitor(tr.ExpectedGainRanker().fit(old), old, new.replace(X=new.X + [0, 9, *[0] * 8]))
    >>> [shift.name for shift in drift.features if shift.drifted]
    ['effective_2']
    """
    check_whole("k", k, 1)
    check_whole("n_resamples", n_resamples, 99)
    check_number("confidence", confidence, above=0, below=1)
    check_number("psi_threshold", psi_threshold, least=0)
    for judged in (ranker, *(() if shadow is None else (shadow,))):
        check_is_fitted(judged)
    rng = np.random.default_rng(seed)
    sides = []
    for side, data in (("reference", reference), ("new", new)):
        check_data("monitor", data)
        if data.n_queries < 2:
            raise DataError(f"The {side} data have only one query. monitor needs at least two.")
        sides.append(data.select(sample_queries(data.queries, rng)))
    resampling = Resamples(sides[0].n_queries, sides[1].n_queries, n_resamples, rng)
    blocks = tuple(block[data.queries.document_query] for block, data in zip(resampling.block_of, sides, strict=True))
    columns = _columns(ranker, sides)
    cells = [count_cells(before, after, blocks, resampling.blocks, levels) for _, before, after, levels in columns]
    scores = [ranker.predict(data) for data in sides]
    names = [name for name, *_ in columns]
    tests = [
        measure_drift(part, resampling, confidence)
        for part in (*cells, count_cells(scores[0], scores[1], blocks, resampling.blocks))
    ]
    values, no_dcg_reason = expected_values(ranker, sides, scores, k, confidence)
    statistics = [(test.observed, test.permuted) for test in tests]
    statistics += [] if values is None else [resampling.squared_mean_difference([value.mean for value in values])]
    p = adjusted_p_values(statistics)
    *of_columns, of_scores = feature_drifts([*names, "score"], tests, p[: len(tests)], psi_threshold, 1 - confidence)
    drifted = tuple(shift.name for shift in (*of_columns, of_scores) if shift.drifted)
    expected = None if values is None else replace(expected_change(values, k, confidence, p[-1]), drifted=drifted)
    pairs = sorted(zip(of_columns, cells, strict=True), key=lambda pair: (not pair[0].drifted, -pair[0].psi))
    return Drift(
        features=tuple(shift for shift, _ in pairs), scores=of_scores, expected_dcg=expected,
        shadow=None if shadow is None else disagreement(shadow, scores[1], sides[1], k, confidence, seed),
        queries=(reference.n_queries, new.n_queries), confidence=confidence, no_dcg_reason=no_dcg_reason,
        cells=(tests[-1].cells, *(counted for _, counted in pairs)),
    )  # fmt: skip


def _columns(ranker: Ranker, sides: Sequence[RankingData]) -> list[tuple[str, FloatArray, FloatArray, int]]:
    """Return name, reference values, new values and number of category levels (0 for numbers) of each feature.

    Levels unknown to the ranker get a code of their own, so that they do not count as missing values.
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
