"""The most important features of each system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.display.svg import WIDTH, Box, Markup, Scale, color, figure, shortened, tag, title
from toprank.experiment import Cell
from toprank.experiment.training import signed_weights
from toprank.report.content import RankedCollection, WeightsShown
from toprank.report.parts import Panel, panel, side_by_side

_MAX_FEATURES = 15
_MAX_NAME_CHARACTERS = 24  # of a feature name; the tooltip shows it in full
_IMPORTANCE = "Share of importance"


def weights_of_rankers(
    rankers: Mapping[str, Any], styles: Mapping[str, int], names: Sequence[str] | None
) -> tuple[WeightsShown, ...]:
    """Return the most important features of each ranker with weights or importances."""
    weights = []
    for system, ranker in rankers.items():
        signed, importances = signed_weights(ranker), getattr(ranker, "feature_importances_", None)
        if system not in styles or (signed is None and importances is None):
            continue
        meaning, values = signed or (_IMPORTANCE, np.asarray(importances, dtype=np.float64))
        own_names = getattr(ranker, "feature_names_in_" if signed is None else "column_names_", None)
        shown_names = names if own_names is None else own_names
        weights.append(_most_important(system, styles[system], meaning, values, shown_names))
    return tuple(weights)


def _most_important(
    system: str, style: int, meaning: str, values: FloatArray, names: Sequence[str] | None
) -> WeightsShown:
    """Return the features with the largest absolute values; unnamed features are numbered from 1 as in LETOR."""
    order = np.argsort(-np.abs(values), kind="stable")[:_MAX_FEATURES]
    order = order[values[order] != 0]
    called = [f"feature {i + 1}" if names is None else str(names[i]) for i in order.tolist()]
    return WeightsShown(system, style, meaning, tuple(called), tuple(values[order].tolist()), len(values))


def weights_of_cells(
    cells: Sequence[Cell], styles: Mapping[str, int], names: Sequence[str] | None
) -> tuple[WeightsShown, ...]:
    """Return mean signed weights over folds and seeds, or mean importances for systems without weights.

    `names` are used for cells without feature names, if their number matches.
    """
    weights = []
    for system, style in styles.items():
        own = [cell for cell in cells if cell.system == system]
        signed = all(cell.weights for cell in own)
        vectors = [cell.weights if signed else cell.importances for cell in own]
        named = {cell.feature_names for cell in own}
        if vectors and len(set(map(len, vectors))) == 1 and vectors[0] and len(named) == 1:
            meaning = own[0].meaning if signed else _IMPORTANCE
            mean = np.mean(np.array(vectors, dtype=np.float64), axis=0)
            candidates = (*named, names or ())
            known = next((of for of in candidates if len(of) == len(mean)), None)
            weights.append(_most_important(system, style, f"{meaning}, mean over folds", mean, known))
    return tuple(weights)


def _shown(part: RankedCollection, _: str) -> Markup | None:
    """Show one panel per system with weights or importances."""
    if not part.weights:
        return None
    panels = []
    for weights in part.weights:
        left = weights.features - len(weights.names)
        more = tag(
            "p",
            f"{weights.meaning}; {left:,} less important features are not shown." if left else f"{weights.meaning}.",
            cls="remark",
        )
        panels.append(panel(shortened(weights.system, 40), _plot(weights), more))
    return side_by_side(*panels)


def _plot(weights: WeightsShown) -> Markup:
    """Draw one bar per feature, to the right for positive and to the left for negative values."""
    row, top = 19.0, 4.0
    reach = max((abs(v) for v in weights.values), default=0.0) or 1.0
    two_sided = min(weights.values, default=0.0) < 0
    box = Box(132, top, WIDTH - 58, top + row * len(weights.values))
    x = Scale(-reach if two_sided else 0.0, reach, box.left, box.right)
    parts = []
    for i, (name, value) in enumerate(zip(weights.names, weights.values, strict=True)):
        y = top + row * i
        left, right = sorted((x(0.0), x(value)))
        shown = f"{value:.3g}".replace("-", "−")
        parts.append(
            tag(
                "g",
                title(f"{name}: {shown}"),
                tag("text", shortened(name, _MAX_NAME_CHARACTERS), x=126, y=y + 13, cls="name end"),
                tag("rect", x=left, y=y + 3, width=max(right - left, 0.8), height=row - 6,
                    cls=f"weight {color(weights.style)}{' minus' if value < 0 else ''}"),
                tag("text", shown, x=WIDTH - 4, y=y + 13, cls="tick end"),
            )
        )  # fmt: skip
    zero = tag("line", x1=x(0.0), x2=x(0.0), y1=box.top, y2=box.bottom, cls="zero")
    return figure(f"{weights.meaning} of {weights.system}", box.bottom + 6, *parts, zero)


_REMARK = "Weights of standardized features, or shares of total importance."
FEATURES = Panel("weights", "Features", "Most important features", _REMARK, _shown)
