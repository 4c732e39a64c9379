"""Wins and losses, query by query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.drawing import WIDTH, Box, Markup, Scale, axes, figure, join, path, shortened, tag, ticks, title
from toprank.report.parts import Panel, panel, plotted, side_by_side
from toprank.significance.results import number

if TYPE_CHECKING:
    from toprank.report.content import Part

__all__ = ["LEVEL", "WINS"]

LEVEL = 1e-12  # what `significance.win_tie_loss` takes for no difference
_BARS = 240  # more queries than this are drawn as one outline


def _shown(part: Part, _: str) -> Markup:
    """The leader against each other plotted system, or each against the baseline."""
    comparison, per_query, styles = part.comparison, part.judgements[0].per_query, plotted(part.comparison)
    metric = comparison.metrics[0]
    lower = metric in comparison.lower_is_better
    reference = comparison.baseline or part.ranked_systems[0]
    baseline = comparison.baseline is not None and not part.against_leader
    panels = []
    for name in part.ranked_systems:
        if name == reference or name not in styles:
            continue
        a, b = (name, reference) if baseline else (reference, name)
        drawn = _win_loss_plot(metric, (a, b), per_query[a][metric], per_query[b][metric], part.qids, lower)
        panels.append(panel(f"{shortened(a, 40)} against {shortened(b, 40)}", drawn))
    return side_by_side(*panels)


def _win_loss_plot(
    name: str, pair: tuple[str, str], a: FloatArray, b: FloatArray, qids: npt.NDArray[np.generic], lower: bool
) -> Markup:
    """Differences query by query, largest win of `a` first; upwards is better for `a`, also where less is better."""
    both = np.flatnonzero(~(np.isnan(a) | np.isnan(b)))
    gains = (b - a if lower else a - b)[both]
    gains = np.where(np.abs(gains) <= LEVEL, 0.0, gains)
    order = np.argsort(-gains, kind="stable")
    gains, both = gains[order], both[order]
    reach = float(np.abs(gains).max(initial=0.0)) or 1.0
    box = Box(40, 12, WIDTH - 8, 150)
    y = Scale(-reach, reach, box.bottom, box.top)
    x = Scale(0, len(gains), box.left, box.right)
    marked = [(v, f"{v:g}".replace("-", "−")) for v in ticks(-reach, reach, 6)]
    frame = axes(box, x, y, [], marked)
    if len(gains) <= _BARS:
        drawn = join(_bar(i, x, y, gains[i], int(q), qids[q], a[q], b[q]) for i, q in enumerate(both.tolist()))
    else:
        drawn = _outline(gains, x, y)
    zero = tag("line", x1=box.left, x2=box.right, y1=y(0.0), y2=y(0.0), cls="zero")
    wins, losses = int((gains > 0).sum()), int((gains < 0).sum())
    counts = [
        tag("text", f"▲ better on {wins:,}", x=box.right, y=box.top + 8, cls="name end"),
        tag("text", f"▼ worse on {losses:,}", x=box.left + 4, y=box.bottom - 5, cls="name"),
        tag("text", f"{len(gains):,} queries, {len(gains) - wins - losses:,} level", x=(box.left + box.right) / 2,
            y=box.bottom + 16, cls="label mid"),
    ]  # fmt: skip
    spoken = f"{name} of {pair[0]} against {pair[1]}: better on {wins}, worse on {losses} of {len(gains)} queries"
    role = "group" if len(gains) <= _BARS else "img"  # within an image nothing can be reached
    return figure(spoken, 172, frame, drawn, zero, *counts, role=role)


def _bar(i: int, x: Scale, y: Scale, gain: float, query: int, qid: object, a: float, b: float) -> Markup:
    top, bottom = sorted((y(gain), y(0.0)))
    kind = "win" if gain > 0 else "loss" if gain < 0 else "flat"
    width = max(x(i + 1) - x(i) - 0.4, 0.5)
    words = title(f"query {shortened(str(qid), 60)}: {number(a)} against {number(b)}")
    place = {"x": x(i), "y": top, "width": width, "height": max(bottom - top, 1.0)}
    # Of all bars one is reached by Tab, the others from there by arrows.
    return tag("rect", words, **place, cls=f"bar {kind}", data_q=query, role="button", tabindex="0" if i == 0 else "-1")


def _outline(gains: FloatArray, x: Scale, y: Scale) -> Markup:
    """Wins and losses as two areas, a point for each pixel."""
    at = np.unique(np.linspace(0, len(gains) - 1, int(x.stop - x.start)).astype(int))
    parts = []
    for kind, side in (("win", np.maximum(gains, 0.0)), ("loss", np.minimum(gains, 0.0))):
        points = [(x(i + 0.5), y(side[i])) for i in at.tolist()]
        outline = [(x(0), y(0.0)), *points, (x(len(gains)), y(0.0))]
        parts.append(tag("path", d=path(outline, close=True), cls=f"bar {kind}"))
    return join(parts)


_REMARK = (
    "One bar for each query, sorted: above the line the first system is better, below it the second. A mean hides "
    "whether many queries gain a little or few a lot."
)
WINS = Panel("wins", "Queries", "Wins and losses, query by query", _REMARK, _shown)
