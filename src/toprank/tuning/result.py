"""What a search hands back: the ranker, a table, and importance and history as one SVG, which reads light and dark."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toprank.data.bytesource import output
from toprank.drawing import Box, Markup, Scale, figure, path, tag, title
from toprank.errors import DataError

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["Tuned", "check_picture_path"]

_SHOWN = 5


@dataclass(frozen=True)
class Tuned:
    """The ranker with the best hyper-parameters that were found, and everything that was tried; `str` is a table.

    `value` is optimistic: it is the best of many on the data that chose it. What the ranker is worth, other data tell.
    """

    system: str
    ranker: Ranker
    """Fitted with the best options: on the training data, with the validation data to stop by; after folds, on all."""
    options: dict[str, Any]
    """The best of the hyper-parameters that were searched."""
    metric: str
    convention: str
    value: float
    """The metric on the data that the trials were judged by."""
    interval: tuple[float, float] | None
    """95 % interval of that over queries (Student's t), blind to the choice; None for a single query."""
    judged_on: str
    """What the trials were judged by, in words."""
    trials: list[dict[str, Any]]
    """A row for each trial: `number`, `options`, `value`, `state` (complete, pruned, failed or interrupted),
    `seconds`, `remark`; for complete ones also `interval`, `queries`, and `rounds` (the best of each part)."""
    importance: dict[str, float]
    """How much of the variance of the metric each hyper-parameter explains by itself, as shares of 1, largest first
    (fANOVA, over complete trials); empty for fewer than ten trials, or than two for each hyper-parameter."""
    stopped: str
    """Why the search ended, as a sentence."""

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw importance and history as a self-contained SVG file, which every browser opens."""
        write_picture(self, path)

    def __str__(self) -> str:
        found = ", ".join(f"{name}={_short(value)}" for name, value in self.options.items())
        within = "" if self.interval is None else f" [{self.interval[0]:.4f}, {self.interval[1]:.4f}]"
        counts = Counter(row["state"] for row in self.trials)
        lines = [
            f"{self.system}: {self.metric} ({self.convention}) {self.value:.4f}{within} on {self.judged_on}",
            f"with {found}",
            "",
            *self._table(),
            "",
        ]
        if self.importance:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in self.importance.items())
            lines.append(f"What mattered: {shares}.")
        states = ", ".join(f"{number} {state}" for state, number in counts.items())
        lines += [
            f"{self.stopped} ({states})",
            "The value is the best of many, so it is optimistic; judge the ranker on data that chose nothing.",
        ]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        complete = [row for row in self.trials if row["state"] == "complete"]
        best_first = sorted(complete, key=lambda row: (abs(row["value"] - self.value), row["number"]))[:_SHOWN]
        names = list(self.options)
        cells = [["trial", self.metric, *names, "seconds"]]
        for row in best_first:
            options = [_short(row["options"][name]) for name in names]
            cells.append([str(row["number"]), f"{row['value']:.4f}", *options, f"{row['seconds'] or 0:.1f}"])
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_WIDTH, _MARGIN, _BAR, _TITLE, _HISTORY = 760.0, 24, 26, 66, 240
_LEFT, _RIGHT = 170.0, 60.0  # room for names, room for numbers
_STYLE = """
  svg { background: #fff; color-scheme: light dark; font: 13px system-ui, sans-serif }
  text { fill: #1b1f24 } .title { font-size: 16px; font-weight: 600 } .muted { fill: #5b6672 }
  .bar, .dot { fill: #0a5fb4 } .rest { fill: #9aa7b4 } .line { stroke: #0a5fb4; stroke-width: 2; fill: none }
  .axis { stroke: #9aa7b4; fill: none } .end { text-anchor: end } .mid { text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    svg { background: #14171a } text { fill: #e6e9ec } .muted { fill: #9aa7b4 }
    .bar, .dot { fill: #6cb2f5 } .rest { fill: #5b6672 } .line { stroke: #6cb2f5 } .axis { stroke: #5b6672 }
  }
"""


def write_picture(tuned: Tuned, where: str | os.PathLike[str]) -> None:
    """Write the picture, all or nothing."""
    check_picture_path(where)
    top = _TITLE + max(1, len(tuned.importance)) * _BAR + 80.0
    name = f"{tuned.system} tuned by {tuned.metric}"
    drawn = [tag("style", Markup(_STYLE)), title(name), *_importance(tuned), *_history(tuned, top)]
    picture = figure(name, top + _HISTORY + 50, *drawn, width=_WIDTH)
    with output(where) as file:
        file.write(picture.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1).encode())


def check_picture_path(where: str | os.PathLike[str]) -> None:
    """Refuse other formats."""
    if Path(where).suffix.lower() != ".svg":
        raise DataError(f"The picture is an SVG; give a name that ends in .svg, not {os.fspath(where)!r}.")


def _text(x: float, y: float, words: str, kind: str | None = None) -> Markup:
    return tag("text", words, x=float(x), y=float(y), cls=kind)


def _importance(tuned: Tuned) -> Iterator[Markup]:
    yield _text(_MARGIN, 30, f"What mattered to {tuned.metric} of {tuned.system}", "title")
    yield _text(_MARGIN, 50, "share of the variance over complete trials that each explains by itself", "muted")
    if not tuned.importance:
        yield _text(_MARGIN, _TITLE + 18, "Too few trials were complete to tell.")
    x = Scale(0.0, 1.0, _LEFT, _WIDTH - _RIGHT)
    for number, (name, share) in enumerate(tuned.importance.items()):
        y, end = _TITLE + number * _BAR, max(_LEFT + 1.0, x(share))
        yield _text(_LEFT - 8, y + 16, name, "end")
        yield tag("rect", cls="bar", x=_LEFT, y=y + 4, width=end - _LEFT, height=_BAR - 10, rx=2)
        yield _text(end + 6, y + 16, f"{share:.0%}")


def _history(tuned: Tuned, top: float) -> Iterator[Markup]:
    """A dot for each trial, and the best so far as a line."""
    judged = [row for row in tuned.trials if row["value"] is not None]
    complete = [row for row in judged if row["state"] == "complete"]
    low, high = _bounds([row["value"] for row in complete])
    last = max(row["number"] for row in tuned.trials)
    box = Box(_LEFT, top, _WIDTH - _RIGHT, top + _HISTORY)
    x = Scale(0.0, float(last), box.left, box.right)
    y = Scale(low, high, box.bottom, box.top)  # what lies far from the complete trials is drawn at the edge
    yield _text(_MARGIN, top - 40, f"{tuned.metric} of each trial, on {tuned.judged_on}", "title")
    yield _text(_MARGIN, top - 20, "line: best so far; pale: pruned; beyond the scale: at its edge", "muted")
    yield tag("path", cls="axis", d=path([(box.left, box.top), (box.left, box.bottom), (box.right, box.bottom)]))
    for value in (low, (low + high) / 2, high):
        yield _text(_LEFT - 8, y(value) + 4, f"{value:.4f}", "muted end")
    for number in sorted({0, last // 2, last}):
        yield _text(x(number), box.bottom + 18, str(number), "muted mid")
    yield _text((box.left + box.right) / 2, box.bottom + 38, "trial", "muted mid")
    steps = _best_so_far(complete, tuned.value, last)
    yield tag("path", cls="line", d=path([(x(number), y(value)) for number, value in steps]))
    for row in judged:
        kind = "dot" if row["state"] == "complete" else "rest"
        yield tag("circle", cls=kind, cx=x(row["number"]), cy=y(row["value"]), r=3.5)


def _bounds(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or max(abs(high), 1.0) * 0.01
    return low - room, high + room


def _best_so_far(complete: list[dict[str, Any]], best: float, last: int) -> list[tuple[float, float]]:
    """Corners of a staircase that ends at the best value, up or down as the metric goes."""
    better = max if best == max(row["value"] for row in complete) else min
    reached = complete[0]["value"]
    corners = [(complete[0]["number"], reached)]
    for row in complete[1:]:
        corners.append((row["number"], reached))
        reached = better(reached, row["value"])
        corners.append((row["number"], reached))
    return [*corners, (last, reached)]
