"""The plots of a comparison: differences with intervals, and wins and losses query by query."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from toprank.comparison import Difference
from toprank.compute import FloatArray
from toprank.report.content import LEVEL
from toprank.report.markup import Markup, join, shortened, tag
from toprank.report.svg import WIDTH, Box, Scale, axes, figure, path, ticks, title
from toprank.significance.results import number

__all__ = ["interval_plot", "win_loss_plot"]

_ROW = 40.0
_WORDS = 19.0  # of a row, for the names above the interval
_BARS = 240  # more queries than this are drawn as one outline
_NAME = 26


def signed(value: float) -> str:
    """A number that shows its sign, with a true minus.

    >>> signed(0.0123), signed(-0.5)
    ('+0.0123', '−0.5000')
    """
    shown = number(abs(value))
    return shown if value == 0 else ("+" if value > 0 else "−") + shown


def interval_plot(differences: Sequence[Difference], margin: float) -> Markup:
    """One row for each difference: the mean, its interval, zero, and the band of differences that do not matter."""
    ends = [e for d in differences for e in (*d.interval, d.difference) if math.isfinite(e)]
    reach = max([abs(e) for e in ends] + [margin]) * 1.08
    low, high = min([0.0, *ends]) - 0.06 * reach, max([0.0, *ends]) + 0.06 * reach
    bottom = 8 + _ROW * len(differences)
    box = Box(10, 8, WIDTH - 78, bottom)  # the numbers stand to the right of the plot
    x = Scale(low, high, box.left, box.right)
    behind = [_behind_row(margin, x, box.top + _ROW * i) for i in range(len(differences))]
    marked = [(value, f"{value:g}".replace("-", "−")) for value in ticks(low, high, 4)]
    frame = axes(box, x, Scale(0, 1, bottom, box.top), marked, [])
    rows = [_interval_row(d, x, box.top + _ROW * i) for i, d in enumerate(differences)]
    metric = differences[0].metric
    return figure(f"Differences in {metric} with their intervals", bottom + 22, *behind, frame, *rows)


def _behind_row(margin: float, x: Scale, top: float) -> Markup:
    """Zero and the band of one row, below its words: a line through words cannot be read, nor can they."""
    top, height = top + _WORDS, _ROW - _WORDS
    return join(
        [
            tag("rect", title(f"differences within ±{margin:g}"), x=x(-margin), y=top, cls="band",
                width=x(margin) - x(-margin), height=height),
            tag("line", x1=x(0.0), x2=x(0.0), y1=top, y2=top + height, cls="zero"),
        ]
    )  # fmt: skip


def _interval_row(d: Difference, x: Scale, top: float) -> Markup:
    low, high = d.interval
    y = top + 28
    verdict = "significant" if d.significant else "equivalent" if d.equivalent else "not significant"
    words = f"{d.a} − {d.b}: {signed(d.difference)} [{signed(low)}, {signed(high)}] {d.metric}, {verdict}"
    better = (d.difference > 0) != d.lower_is_better
    kind = ("win" if better else "loss") if d.significant else "flat"
    sign = {"win": " ▲", "loss": " ▼"}.get(kind, " ≈" if d.equivalent else "")
    pair = f"{shortened(d.a, _NAME)} − {shortened(d.b, _NAME)}"
    left, right = x(low), x(high)  # an infinite end stops at the edge
    return tag(
        "g",
        title(words),
        tag("rect", x=0, y=top, width=WIDTH, height=_ROW, cls="hit"),
        tag("text", pair, x=10, y=top + 14, cls="name"),
        tag("text", signed(d.difference) + sign, x=WIDTH - 4, y=y + 4, cls="name end"),
        tag("line", x1=left, x2=right, y1=y, y2=y, cls=f"whisker {kind}"),
        *(tag("line", x1=end, x2=end, y1=y - 4, y2=y + 4, cls=f"whisker {kind}") for end in (left, right)),
        tag("circle", cx=x(d.difference), cy=y, r=4.5, cls=f"dot {kind}"),
    )


def win_loss_plot(
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
