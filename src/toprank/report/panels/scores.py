"""Scores by grade: how far a system tells the grades apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.drawing import WIDTH, Box, Markup, Scale, axes, colour, figure, path, shortened, tag, ticks, title
from toprank.report.parts import Panel, panel, side_by_side

if TYPE_CHECKING:
    from toprank.report.content import Part

__all__ = ["SCORES", "Spread", "spreads"]

_GRADES = 8
_BINS = np.linspace(-3.0, 3.0, 41)


@dataclass(frozen=True)
class Spread:
    """How the scores of one system spread over the documents of each grade.

    Attributes:
        system: Its name.
        style: Its number.
        edges: Edges of the bins, of scores standardised within each query.
        grades: Names of the grades, lowest first.
        shares: One row per grade: share of its documents in each bin.
        medians: One per grade.
        documents: Documents of each grade.
    """

    system: str
    style: int
    edges: FloatArray
    grades: tuple[str, ...]
    shares: FloatArray
    medians: FloatArray
    documents: tuple[int, ...]


def spreads(scores: Mapping[str, FloatArray], data: RankingData, styles: Mapping[str, int]) -> tuple[Spread, ...]:
    """Scores, standardised within each query, by grade: only differences within a query decide a ranking."""
    names, members = _by_grade(data.labels, data.judged)
    if not names:
        return ()
    found = []
    for name, style in styles.items():
        z = _within_queries(scores[name], data)
        groups = [z[rows] for rows in members]
        shares = np.array([np.histogram(group, _BINS)[0] / len(group) for group in groups])
        medians = np.array([np.median(group) for group in groups])
        documents = tuple(len(group) for group in groups)
        found.append(Spread(name, style, _BINS, names, _smoothed(shares), medians, documents))
    return tuple(found)


def _within_queries(scores: FloatArray, data: RankingData) -> FloatArray:
    queries = data.queries
    values = np.asarray(scores, dtype=np.float64)
    centred = values - queries.spread(queries.sum(values) / queries.sizes)
    deviation = np.sqrt(queries.sum(centred**2) / queries.sizes)
    result: FloatArray = centred / queries.spread(np.where(deviation > 0, deviation, 1.0))
    return result


def _by_grade(labels: FloatArray, judged: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Names of the grades and the rows of each; many different labels are put into five classes."""
    distinct = np.unique(labels[judged])
    if len(distinct) <= _GRADES:
        return tuple(f"{g:g}" for g in distinct), [np.flatnonzero(labels == g) for g in distinct]
    edges = np.linspace(distinct[0], distinct[-1], 6)
    place = np.clip(np.searchsorted(edges, labels, side="right") - 1, 0, 4)
    rows = [np.flatnonzero(judged & (place == i)) for i in range(5)]
    used = [i for i in range(5) if len(rows[i])]
    return tuple(f"{edges[i]:.2g}–{edges[i + 1]:.2g}" for i in used), [rows[i] for i in used]


def _smoothed(shares: FloatArray) -> FloatArray:
    """Each bin with a part of its neighbours (1, 2, 1)/4: a histogram that does not flicker."""
    padded = np.pad(shares, ((0, 0), (1, 1)), mode="edge")
    smooth: FloatArray = (padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4
    return smooth


def _shown(part: Part, _: str) -> Markup | None:
    """One panel for each system."""
    if not part.spreads:
        return None
    return side_by_side(*(panel(shortened(one.system, 40), _plot(one)) for one in part.spreads))


def _plot(what: Spread) -> Markup:
    """One ridge for each grade, the highest on top, with its median."""
    row = 34.0
    top = 26.0
    box = Box(44, top, WIDTH - 10, top + row * len(what.grades))
    x = Scale(float(what.edges[0]), float(what.edges[-1]), box.left, box.right)
    marked = [(v, f"{v:g}".replace("-", "−")) for v in ticks(x.low, x.high, 6)]
    frame = axes(box, x, Scale(0, 1, box.bottom, box.top), marked, [], "score within the query, in standard deviations")
    middles = (what.edges[:-1] + what.edges[1:]) / 2
    tallest = float(what.shares.max()) or 1.0
    ridges = []
    for i in reversed(range(len(what.grades))):
        base = box.bottom - row * i - 1
        heights = what.shares[i] / tallest * row * 1.25
        outline = [(x(m), base - h) for m, h in zip(middles.tolist(), heights.tolist(), strict=True)]
        outline = [(x.start, base), *outline, (x.stop, base)]
        middle = x(float(what.medians[i]))
        words = f"grade {what.grades[i]}: {what.documents[i]:,} documents, median {what.medians[i]:+.2f}"
        ridges.append(
            tag(
                "g",
                title(words.replace("-", "−")),
                tag("path", d=path(outline, close=True), cls=f"ridge {colour(what.style)}"),
                tag("line", x1=middle, x2=middle, y1=base, y2=base - row * 0.55, cls="median"),
                tag("text", what.grades[i], x=box.left - 8, y=base - 4, cls="name end"),
            )
        )
    label = tag("text", "grade", x=box.left - 8, y=12, cls="label end")
    return figure(f"Scores of {what.system} by grade", box.bottom + 38, frame, *ridges, label)


_REMARK = (
    "Scores within each query, standardised; the further the ridges of the grades lie apart, the better the system "
    "tells them apart. The tick is the median."
)
SCORES = Panel("spread", "Scores", "Scores by grade", _REMARK, _shown)
