"""Plot of differences with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toprank.display.pictures import Picture
from toprank.display.svg import WIDTH, Box, Markup, Scale, axes, join, marked_ticks, shortened, tag, title
from toprank.significance.results import signed

if TYPE_CHECKING:
    from toprank.evaluation.comparison import Difference

_ROW_HEIGHT = 40.0
_LABEL_HEIGHT = 19.0  # part of a row above the interval, for the names
_MAX_NAME_LENGTH = 26


def intervals(differences: Sequence[Difference], margin: float, labels: Sequence[str] | None = None) -> Picture:
    """Draw one row per difference: the mean, its interval, zero, and the equivalence margin.

    `labels` are shown above the intervals in place of the names of the systems.
    """
    ends = [e for d in differences for e in (*d.interval, d.difference) if math.isfinite(e)]
    reach = max([abs(e) for e in ends] + [margin]) * 1.08
    low, high = min([0.0, *ends]) - 0.06 * reach, max([0.0, *ends]) + 0.06 * reach
    bottom = 8 + _ROW_HEIGHT * len(differences)
    box = Box(10, 8, WIDTH - 78, bottom)  # numbers are shown to the right of the plot
    x = Scale(low, high, box.left, box.right)
    behind = [_behind_row(margin, x, box.top + _ROW_HEIGHT * i) for i in range(len(differences))]
    marked = marked_ticks(low, high, 4)
    frame = axes(box, x, Scale(0, 1, bottom, box.top), marked, [])
    rows = [
        _interval_row(d, x, box.top + _ROW_HEIGHT * i, labels[i] if labels else None) for i, d in enumerate(differences)
    ]
    first = differences[0]
    where = f"{first.metric} between {first.a} and {first.b} by slice" if labels else first.metric
    return Picture(f"Differences in {where} with their intervals", bottom + 22, *behind, frame, *rows)


def _behind_row(margin: float, x: Scale, top: float) -> Markup:
    """Draw zero and the margin of one row below its label, so that no line crosses the text."""
    top, height = top + _LABEL_HEIGHT, _ROW_HEIGHT - _LABEL_HEIGHT
    return join(
        [
            tag("rect", title(f"differences within ±{margin:g}"), x=x(-margin), y=top, cls="band",
                width=x(margin) - x(-margin), height=height),
            tag("line", x1=x(0.0), x2=x(0.0), y1=top, y2=top + height, cls="zero"),
        ]
    )  # fmt: skip


def _interval_row(d: Difference, x: Scale, top: float, name: str | None) -> Markup:
    low, high = d.interval
    y = top + 28
    verdict = "significant" if d.significant else "equivalent" if d.equivalent else "not significant"
    words = f"{d.a} − {d.b}: {signed(d.difference)} [{signed(low)}, {signed(high)}] {d.metric}, {verdict}"
    better = (d.difference > 0) != d.lower_is_better
    kind = ("win" if better else "loss") if d.significant else "flat"
    sign = {"win": " ▲", "loss": " ▼"}.get(kind, " ≈" if d.equivalent else "")
    shown = (
        f"{shortened(d.a, _MAX_NAME_LENGTH)} − {shortened(d.b, _MAX_NAME_LENGTH)}"
        if name is None
        else shortened(name, 2 * _MAX_NAME_LENGTH)
    )
    left, right = x(low), x(high)  # infinite bounds are clipped at the edge
    return tag(
        "g",
        title(words if name is None else f"{name}, {words}"),
        tag("rect", x=0, y=top, width=WIDTH, height=_ROW_HEIGHT, cls="hit"),
        tag("text", shown, x=10, y=top + 14, cls="name"),
        tag("text", signed(d.difference) + sign, x=WIDTH - 4, y=y + 4, cls="name end"),
        tag("line", x1=left, x2=right, y1=y, y2=y, cls=f"whisker {kind}"),
        *(tag("line", x1=end, x2=end, y1=y - 4, y2=y + 4, cls=f"whisker {kind}") for end in (left, right)),
        tag("circle", cx=x(d.difference), cy=y, r=4.5, cls=f"dot {kind}"),
    )
