"""Predicted probabilities of being relevant against what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.drawing import WIDTH, Box, Markup, Scale, axes, colour, dashes, figure, marker, path, shortened, tag
from toprank.errors import DataError
from toprank.rankers.probabilities import calibration_curve
from toprank.report.parts import Panel, panel, side_by_side

if TYPE_CHECKING:
    from toprank.report.content import Part

__all__ = ["CALIBRATION", "Calibration", "calibration", "calibrations"]


@dataclass(frozen=True)
class Calibration:
    """Predicted P(grade ≥ 1) of one system against what happened, bin by bin; `error` is the expected one."""

    system: str
    style: int
    predicted: FloatArray
    observed: FloatArray
    documents: FloatArray
    error: float


def calibrations(
    probabilities: Mapping[str, FloatArray], data: RankingData, styles: Mapping[str, int]
) -> tuple[Calibration, ...]:
    """Predicted P(grade ≥ 1) against what happened, for systems that give P(grade | x), one column per grade."""
    found = []
    for name, table in probabilities.items():
        given = np.asarray(table, dtype=np.float64)
        if given.ndim != 2 or len(given) != data.n_documents:
            raise DataError(
                f"The probabilities of '{name}' have shape {given.shape}; they need a row for each of "
                f"{data.n_documents} documents and a column for each grade."
            )
        if name in styles:
            found.append(calibration(name, styles[name], given[:, 1:].sum(axis=1), data))
    return tuple(found)


def calibration(system: str, style: int, relevance: FloatArray, data: RankingData) -> Calibration:
    """Predicted P(grade ≥ 1) against what happened."""
    judged = data.judged
    curve = calibration_curve(relevance[judged], (data.labels[judged] > 0).astype(np.float64))
    return Calibration(system, style, *curve, curve.error)


def _shown(part: Part, _: str) -> Markup | None:
    """One panel for each system with probabilities."""
    if not part.calibrations:
        return None
    panels = [panel(f"{shortened(c.system, 40)}: off by {c.error:.3f} on average", _plot(c)) for c in part.calibrations]
    return side_by_side(*panels)


def _plot(what: Calibration) -> Markup:
    """Observed shares over predicted probabilities; on the diagonal the prediction can be taken at its word."""
    box = Box(44, 24, WIDTH - 62, 278)
    x, y = Scale(0, 1, box.left, box.right), Scale(0, 1, box.bottom, box.top)
    marks = [(v / 4, f"{v / 4:g}") for v in range(5)]
    frame = axes(box, x, y, marks, marks, "predicted P(grade ≥ 1)", "observed share")
    diagonal = tag("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), cls="zero dashed")
    bins = list(zip(what.predicted.tolist(), what.observed.tolist(), what.documents.tolist(), strict=True))
    drawn = path([(x(p), y(o)) for p, o, _ in bins])
    curve = tag("path", d=drawn, cls=f"curve {colour(what.style)}", stroke_dasharray=dashes(what.style))
    dots = [
        marker(what.style, x(p), y(o), f"predicted {p:.3f}, observed {o:.3f}, {n:,.0f} documents", size=4.2)
        for p, o, n in bins
    ]
    return figure(f"Calibration of {what.system}", 318, frame, diagonal, curve, *dots)


_REMARK = (
    "Documents in ten groups by predicted probability of being relevant, against the share that is. On the dashed "
    "diagonal a prediction can be taken at its word."
)
CALIBRATION = Panel("calibration", "Calibration", "Calibration", _REMARK, _shown)
