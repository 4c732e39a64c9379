"""The features that matter most to each system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.compute import FloatArray
from toprank.drawing import WIDTH, Box, Markup, Scale, colour, figure, shortened, tag, title
from toprank.experiment import Cell
from toprank.experiment.training import signed_weights
from toprank.report.content import RankedCollection, WeightsShown
from toprank.report.parts import Panel, panel, side_by_side

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

_FEATURES = 15
_NAME = 24


def weights_of_rankers(
    rankers: Mapping[str, Any], styles: Mapping[str, int], names: Sequence[str] | None
) -> tuple[WeightsShown, ...]:
    """The most important features of each ranker that can tell."""
    weights = []
    for system, ranker in rankers.items():
        described = _weights_of(ranker)
        if described is None or system not in styles:
            continue
        meaning, values = described
        signed = signed_weights(ranker) is not None
        known = getattr(ranker, "column_names_" if signed else "feature_names_in_", None)
        known = names if known is None else known
        weights.append(_most_important(system, styles[system], meaning, values, known))
    return tuple(weights)


def _most_important(
    system: str, style: int, meaning: str, values: FloatArray, names: Sequence[str] | None
) -> WeightsShown:
    """The features of the largest values. Without names they are numbered from 1, as in LETOR's files."""
    order = np.argsort(-np.abs(values), kind="stable")[:_FEATURES]
    order = order[values[order] != 0]
    called = [f"feature {i + 1}" if names is None else str(names[i]) for i in order.tolist()]
    return WeightsShown(system, style, meaning, tuple(called), tuple(values[order].tolist()), len(values))


def _weights_of(ranker: Ranker) -> tuple[str, FloatArray] | None:
    signed = signed_weights(ranker)
    if signed is not None:
        return signed
    importances = getattr(ranker, "feature_importances_", None)
    if importances is None:
        return None
    return "Share of importance", np.asarray(importances, dtype=np.float64)


def weights_of_cells(
    of: Sequence[Cell], styles: Mapping[str, int], names: Sequence[str] | None
) -> tuple[WeightsShown, ...]:
    """Weights with their sign where a system has them, else importances, as the mean over folds and seeds."""
    weights = []
    for system, style in styles.items():
        cells = [cell for cell in of if cell.system == system]
        signed = bool(cells) and all(cell.weights for cell in cells)
        vectors = [cell.weights if signed else cell.importances for cell in cells]
        if vectors and len({len(of) for of in vectors}) == 1 and vectors[0]:
            meaning = cells[0].meaning if signed else "Share of importance"
            mean = np.mean(np.array(vectors, dtype=np.float64), axis=0)
            weights.append(_most_important(system, style, f"{meaning}, mean over folds", mean, names))
    return tuple(weights)


def _shown(part: RankedCollection, _: str) -> Markup | None:
    """One panel for each ranker that can tell."""
    if not part.weights:
        return None
    panels = []
    for weights in part.weights:
        left = weights.features - len(weights.names)
        more = tag(
            "p",
            f"{weights.meaning}; {left:,} further features matter less." if left else f"{weights.meaning}.",
            cls="remark",
        )
        panels.append(panel(shortened(weights.system, 40), _plot(weights), more))
    return side_by_side(*panels)


def _plot(what: WeightsShown) -> Markup:
    """A bar for each feature, to the right where more is better, to the left where less is."""
    row, top = 19.0, 4.0
    reach = max((abs(v) for v in what.values), default=0.0) or 1.0
    two_sided = min(what.values, default=0.0) < 0
    box = Box(132, top, WIDTH - 58, top + row * len(what.values))
    x = Scale(-reach if two_sided else 0.0, reach, box.left, box.right)
    parts = []
    for i, (name, value) in enumerate(zip(what.names, what.values, strict=True)):
        y = top + row * i
        left, right = sorted((x(0.0), x(value)))
        shown = f"{value:.3g}".replace("-", "−")
        parts.append(
            tag(
                "g",
                title(f"{name}: {shown}"),
                tag("text", shortened(name, _NAME), x=126, y=y + 13, cls="name end"),
                tag("rect", x=left, y=y + 3, width=max(right - left, 0.8), height=row - 6,
                    cls=f"weight {colour(what.style)}{' minus' if value < 0 else ''}"),
                tag("text", shown, x=WIDTH - 4, y=y + 13, cls="tick end"),
            )
        )  # fmt: skip
    zero = tag("line", x1=x(0.0), x2=x(0.0), y1=box.top, y2=box.bottom, cls="zero")
    return figure(f"{what.meaning} of {what.system}", box.bottom + 6, *parts, zero)


_REMARK = "Weights on standardised features, or shares of importance."
FEATURES = Panel("weights", "Features", "Features that matter", _REMARK, _shown)
