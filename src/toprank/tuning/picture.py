"""Importance and history of a search as one SVG, written by hand: no package is needed, and it reads light and dark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toprank.data.bytesource import output
from toprank.errors import DataError

if TYPE_CHECKING:
    from toprank.tuning.result import Tuned

__all__ = ["write_picture"]

_WIDTH, _MARGIN, _BAR, _TITLE, _HISTORY = 760, 24, 26, 66, 240
_LEFT, _RIGHT = 170, 60  # room for names, room for numbers
_STYLE = """
  svg { background: #fff; color-scheme: light dark; font: 13px system-ui, sans-serif }
  text { fill: #1b1f24 } .title { font-size: 16px; font-weight: 600 } .muted { fill: #5b6672 }
  .bar, .dot { fill: #0a5fb4 } .rest { fill: #9aa7b4 } .line { stroke: #0a5fb4; stroke-width: 2; fill: none }
  .axis { stroke: #9aa7b4 }
  @media (prefers-color-scheme: dark) {
    svg { background: #14171a } text { fill: #e6e9ec } .muted { fill: #9aa7b4 }
    .bar, .dot { fill: #6cb2f5 } .rest { fill: #5b6672 } .line { stroke: #6cb2f5 } .axis { stroke: #5b6672 }
  }
"""


def write_picture(tuned: Tuned, path: str | os.PathLike[str]) -> None:
    """Write the picture, all or nothing."""
    check_picture_path(path)
    bars = max(1, len(tuned.importance))
    height = _TITLE + bars * _BAR + 80 + _HISTORY + 50
    body = "\n".join([*_importance(tuned), *_history(tuned, _TITLE + bars * _BAR + 80)])
    title = escape(f"{tuned.system} tuned by {tuned.metric}")
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{title}">\n'
        f"<style>{_STYLE}</style>\n<title>{title}</title>\n{body}\n</svg>\n"
    )
    with output(path) as file:
        file.write(text.encode())


def check_picture_path(path: str | os.PathLike[str]) -> None:
    """Refuse other formats."""
    if Path(path).suffix.lower() != ".svg":
        raise DataError(f"The picture is an SVG; give a name that ends in .svg, not {os.fspath(path)!r}.")


def _text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(words)}</text>'


def _importance(tuned: Tuned) -> Iterator[str]:
    yield _text(_MARGIN, 30, f"What mattered to {tuned.metric} of {tuned.system}", kind="title")
    yield _text(_MARGIN, 50, "share of the variance over complete trials that each explains by itself", kind="muted")
    if not tuned.importance:
        yield _text(_MARGIN, _TITLE + 18, "Too few trials were complete to tell.")
    room = _WIDTH - _LEFT - _RIGHT
    for number, (name, share) in enumerate(tuned.importance.items()):
        y = _TITLE + number * _BAR
        width = max(1.0, share * room)
        yield _text(_LEFT - 8, y + 16, name, anchor="end")
        yield f'<rect class="bar" x="{_LEFT}" y="{y + 4}" width="{width:.1f}" height="{_BAR - 10}" rx="2"/>'
        yield _text(_LEFT + width + 6, y + 16, f"{share:.0%}")


def _history(tuned: Tuned, top: float) -> Iterator[str]:
    """A dot for each trial, and the best so far as a line."""
    judged = [row for row in tuned.trials if row["value"] is not None]
    complete = [row for row in judged if row["state"] == "complete"]
    low, high = _bounds([row["value"] for row in complete])
    last = max(row["number"] for row in tuned.trials)
    right, bottom = _WIDTH - _RIGHT, top + _HISTORY

    def x(number: int) -> float:
        return _LEFT + (right - _LEFT) * (number / last if last else 0.5)

    def y(value: float) -> float:  # what lies far below the complete trials is drawn at the edge
        return bottom - _HISTORY * min(1.0, max(0.0, (value - low) / (high - low)))

    yield _text(_MARGIN, top - 40, f"{tuned.metric} of each trial, on {tuned.judged_on}", kind="title")
    yield _text(_MARGIN, top - 20, "line: best so far; pale: pruned; beyond the scale: at its edge", kind="muted")
    yield f'<path class="axis" d="M{_LEFT} {top}V{bottom}H{right}" fill="none"/>'
    for value in (low, (low + high) / 2, high):
        yield _text(_LEFT - 8, y(value) + 4, f"{value:.4f}", kind="muted", anchor="end")
    for number in sorted({0, last // 2, last}):
        yield _text(x(number), bottom + 18, str(number), kind="muted", anchor="middle")
    yield _text((_LEFT + right) / 2, bottom + 38, "trial", kind="muted", anchor="middle")
    yield f'<path class="line" d="{_best_so_far(complete, tuned.value, last, x, y)}"/>'
    for row in judged:
        kind = "dot" if row["state"] == "complete" else "rest"
        yield f'<circle class="{kind}" cx="{x(row["number"]):.1f}" cy="{y(row["value"]):.1f}" r="3.5"/>'


def _bounds(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or max(abs(high), 1.0) * 0.01
    return low - room, high + room


def _best_so_far(complete: list[dict[str, Any]], best: float, last: int, x: Any, y: Any) -> str:
    """A staircase that ends at the best value, up or down as the metric goes."""
    values = [row["value"] for row in complete]
    up = best == max(values)
    reached, path = values[0], f"M{x(complete[0]['number']):.1f} {y(values[0]):.1f}"
    for row in complete[1:]:
        reached = max(reached, row["value"]) if up else min(reached, row["value"])
        path += f"H{x(row['number']):.1f}V{y(reached):.1f}"
    return f"{path}H{x(last):.1f}"
