"""Scores by grade and calibration curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.display.pictures import curve
from toprank.display.svg import (
    WIDTH,
    Box,
    Markup,
    Scale,
    axes,
    color,
    figure,
    marked_ticks,
    marker,
    path,
    shortened,
    tag,
    title,
)
from toprank.errors import DataError
from toprank.rankers.calibration import calibration_curve
from toprank.report.content import DrawnCalibration, RankedCollection, ScoreSpread
from toprank.report.parts import Panel, panel, side_by_side

_MAX_GRADES = 8
_BINS = np.linspace(-3.0, 3.0, 41)


def spreads(scores: Mapping[str, FloatArray], data: RankingData, styles: Mapping[str, int]) -> tuple[ScoreSpread, ...]:
    """Return score distributions by grade, standardized within queries because only these differences matter.

    Infinite scores are excluded; runs have -inf for documents that they did not retrieve.
    """
    drawn = []
    for name, style in styles.items():
        values = np.asarray(scores[name], dtype=np.float64)
        finite = np.isfinite(values)
        if not finite.any():
            continue
        part = data if finite.all() else data.filter(finite)
        names, members = _by_grade(part.labels, part.judged)
        if not names:
            continue
        z = _within_queries(values[finite], part.queries)
        groups = [z[rows] for rows in members]
        shares = np.array([np.histogram(group, _BINS)[0] / len(group) for group in groups])
        medians = np.array([np.median(group) for group in groups])
        documents = tuple(len(group) for group in groups)
        drawn.append(ScoreSpread(name, style, _BINS, names, _smoothed(shares), medians, documents))
    return tuple(drawn)


def _within_queries(values: FloatArray, queries: Queries) -> FloatArray:
    largest = queries.max(np.abs(values))
    values = values / queries.broadcast(np.where(largest > 0, largest, 1.0))  # squares of large scores would overflow
    centered = values - queries.broadcast(queries.sum(values) / queries.sizes)
    deviation = np.sqrt(queries.sum(centered**2) / queries.sizes)
    result: FloatArray = centered / queries.broadcast(np.where(deviation > 0, deviation, 1.0))
    return result


def _by_grade(labels: FloatArray, judged: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Return names and rows of the grades; more than eight distinct labels are grouped into five classes."""
    distinct = np.unique(labels[judged])
    if len(distinct) <= _MAX_GRADES:
        return tuple(f"{g:g}" for g in distinct), [np.flatnonzero(labels == g) for g in distinct]
    edges = np.linspace(distinct[0], distinct[-1], 6)
    place = np.clip(np.searchsorted(edges, labels, side="right") - 1, 0, 4)
    rows = [np.flatnonzero(judged & (place == i)) for i in range(5)]
    used = [i for i in range(5) if len(rows[i])]
    return tuple(f"{edges[i]:.2g}–{edges[i + 1]:.2g}" for i in used), [rows[i] for i in used]


def _smoothed(shares: FloatArray) -> FloatArray:
    """Smooth a histogram with the kernel (1, 2, 1)/4."""
    padded = np.pad(shares, ((0, 0), (1, 1)), mode="edge")
    smooth: FloatArray = (padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4
    return smooth


def _spreads_shown(part: RankedCollection, _: str) -> Markup | None:
    """Show one panel per system."""
    if not part.spreads:
        return None
    return side_by_side(*(panel(shortened(spread.system, 40), _spread_plot(spread)) for spread in part.spreads))


def _spread_plot(spread: ScoreSpread) -> Markup:
    """Draw one ridge per grade with its median, highest grade on top."""
    row = 34.0
    top = 26.0
    box = Box(44, top, WIDTH - 10, top + row * len(spread.grades))
    x = Scale(float(spread.edges[0]), float(spread.edges[-1]), box.left, box.right)
    marked = marked_ticks(x.low, x.high, 6)
    frame = axes(box, x, Scale(0, 1, box.bottom, box.top), marked, [], "score within the query, in standard deviations")
    middles = (spread.edges[:-1] + spread.edges[1:]) / 2
    tallest = float(spread.shares.max()) or 1.0
    ridges = []
    for i in reversed(range(len(spread.grades))):
        base = box.bottom - row * i - 1
        heights = spread.shares[i] / tallest * row * 1.25
        outline = [(x(m), base - h) for m, h in zip(middles.tolist(), heights.tolist(), strict=True)]
        outline = [(x.start, base), *outline, (x.stop, base)]
        middle = x(float(spread.medians[i]))
        words = f"grade {spread.grades[i]}: {spread.documents[i]:,} documents, median {spread.medians[i]:+.2f}"
        ridges.append(
            tag(
                "g",
                title(words.replace("-", "−")),
                tag("path", d=path(outline, close=True), cls=f"ridge {color(spread.style)}"),
                tag("line", x1=middle, x2=middle, y1=base, y2=base - row * 0.55, cls="median"),
                tag("text", spread.grades[i], x=box.left - 8, y=base - 4, cls="name end"),
            )
        )
    label = tag("text", "grade", x=box.left - 8, y=12, cls="label end")
    return figure(f"Scores of {spread.system} by grade", box.bottom + 38, frame, *ridges, label)


_SPREADS = (
    "Distribution of scores by grade, standardized within queries. The further apart two curves, the better the system "
    "separates the grades. Ticks mark medians."
)
SCORES = Panel("spread", "Scores", "Scores by grade", _SPREADS, _spreads_shown)


def calibrations(
    probabilities: Mapping[str, FloatArray], data: RankingData, styles: Mapping[str, int]
) -> tuple[DrawnCalibration, ...]:
    """Return calibration curves of P(grade ≥ 1), given P(grade | x) with one column per grade."""
    curves = []
    for name, table in probabilities.items():
        columns = np.asarray(table, dtype=np.float64)
        if columns.ndim != 2 or len(columns) != data.n_documents:
            raise DataError(
                f"The probabilities of '{name}' have shape {columns.shape}. They must have one row for each of the "
                f"{data.n_documents} documents and one column per grade."
            )
        if name in styles:
            curves.append(calibration(name, styles[name], columns[:, 1:].sum(axis=1), data))
    return tuple(curves)


def calibration(system: str, style: int, relevance: FloatArray, data: RankingData) -> DrawnCalibration:
    """Return the calibration curve of P(grade ≥ 1)."""
    judged = data.judged
    curve = calibration_curve(relevance[judged], (data.labels[judged] > 0).astype(np.float64))
    return DrawnCalibration(system, style, *curve, curve.error)


def _calibrations_shown(part: RankedCollection, _: str) -> Markup | None:
    """Show one panel per system with probabilities."""
    if not part.calibrations:
        return None
    panels = [
        panel(f"{shortened(c.system, 40)}: expected calibration error {c.error:.3f}", _calibration_plot(c))
        for c in part.calibrations
    ]
    return side_by_side(*panels)


def _calibration_plot(calibration: DrawnCalibration) -> Markup:
    """Draw observed shares over predicted probabilities, with the diagonal of perfect calibration."""
    box = Box(44, 24, WIDTH - 62, 278)
    x, y = Scale(0, 1, box.left, box.right), Scale(0, 1, box.bottom, box.top)
    marks = [(v / 4, f"{v / 4:g}") for v in range(5)]
    frame = axes(box, x, y, marks, marks, "predicted P(grade ≥ 1)", "observed share")
    diagonal = tag("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), cls="zero dashed")
    bins = list(
        zip(calibration.predicted.tolist(), calibration.observed.tolist(), calibration.documents.tolist(), strict=True)
    )
    dots = [
        marker(calibration.style, x(p), y(o), f"predicted {p:.3f}, observed {o:.3f}, {n:,.0f} documents", size=4.2)
        for p, o, n in bins
    ]
    line = curve(calibration.style, [(x(p), y(o)) for p, o, _ in bins])
    return figure(f"Calibration of {calibration.system}", 318, frame, diagonal, line, *dots)


_CALIBRATION = (
    "Observed share of relevant documents by predicted probability, in ten groups. The dashed diagonal is perfect "
    "calibration."
)
CALIBRATION = Panel("calibration", "Calibration", "Calibration", _CALIBRATION, _calibrations_shown)
