"""Plot of a search: importance of the hyper-parameters, and the metric of each trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from toprank.display.pictures import Picture
from toprank.display.svg import Box, Markup, Scale, path, tag
from toprank.errors import DataError
from toprank.metrics.parsing import parse
from toprank.model_selection.search import EVALUATED_STATES

if TYPE_CHECKING:
    from toprank.model_selection.result import SelectionResult

_WIDTH, _MARGIN, _BAR, _TITLE, _HISTORY = 760.0, 24, 26, 66, 240
_LEFT, _RIGHT = 170.0, 60.0  # room for names, room for numbers


def picture_of(choice: SelectionResult) -> Picture:
    """Draw the importance of hyper-parameters and the metric of each trial.

    Raises:
        DataError: if no trial was run.
    """
    if not choice.trials:
        raise DataError(f"{choice.name} was trained without a search, so it has no trials to plot.")
    top = _TITLE + max(1, len(choice.importance)) * _BAR + 80.0
    drawn = [*_importance_bars(choice), *_history_plot(choice, top)]
    return Picture(f"{choice.name} chosen by {choice.metric}", top + _HISTORY + 50, *drawn, width=_WIDTH)


def _text(x: float, y: float, words: str, kind: str | None = None) -> Markup:
    return tag("text", words, x=float(x), y=float(y), cls=kind)


def _importance_bars(choice: SelectionResult) -> Iterator[Markup]:
    yield _text(_MARGIN, 30, f"Hyper-parameter importance for {choice.metric} of {choice.name}", "title")
    yield _text(_MARGIN, 50, "share of the variance over complete trials explained by each alone (fANOVA)", "muted")
    if not choice.importance:
        yield _text(_MARGIN, _TITLE + 18, "Too few complete trials.")
    x = Scale(0.0, 1.0, _LEFT, _WIDTH - _RIGHT)
    for number, (name, share) in enumerate(choice.importance.items()):
        y, end = _TITLE + number * _BAR, max(_LEFT + 1.0, x(share))
        yield _text(_LEFT - 8, y + 16, name, "end")
        yield tag("rect", cls="bar", x=_LEFT, y=y + 4, width=end - _LEFT, height=_BAR - 10, rx=2)
        yield _text(end + 6, y + 16, f"{share:.0%}")


def _history_plot(choice: SelectionResult, top: float) -> Iterator[Markup]:
    """Draw a dot for each trial, and the best value so far as a line."""
    by_number = sorted(choice.trials, key=lambda row: row["number"])
    judged = [row for row in by_number if row["value"] is not None]
    complete = [row for row in judged if row["state"] in EVALUATED_STATES]
    low, high = _bounds([row["value"] for row in complete])
    last = max(row["number"] for row in choice.trials)
    box = Box(_LEFT, top, _WIDTH - _RIGHT, top + _HISTORY)
    x = Scale(0.0, float(last), box.left, box.right)
    y = Scale(low, high, box.bottom, box.top)  # outliers among pruned trials are clipped to the box
    yield _text(_MARGIN, top - 40, f"{choice.metric} of each trial, on {choice.evaluated_on}", "title")
    yield _text(_MARGIN, top - 20, "line: best so far; pale: pruned; outliers are drawn at the edge", "muted")
    yield tag("path", cls="axis", d=path([(box.left, box.top), (box.left, box.bottom), (box.right, box.bottom)]))
    for value in (low, (low + high) / 2, high):
        yield _text(_LEFT - 8, y(value) + 4, f"{value:.4f}", "muted end")
    for number in sorted({0, last // 2, last}):
        yield _text(x(number), box.bottom + 18, str(number), "muted mid")
    yield _text((box.left + box.right) / 2, box.bottom + 38, "trial", "muted mid")
    better = max if parse(choice.metric).higher_is_better else min
    steps = _best_so_far(complete, better, last)
    yield tag("path", cls="line", d=path([(x(number), y(value)) for number, value in steps]))
    for row in judged:
        kind = "rest" if row["state"] == "pruned" else "dot"
        yield tag("circle", cls=kind, cx=x(row["number"]), cy=y(row["value"]), r=3.5)


def _bounds(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or max(abs(high), 1.0) * 0.01
    return low - room, high + room


def _best_so_far(complete: list[dict[str, Any]], better: Callable[..., float], last: int) -> list[tuple[float, float]]:
    """Return the corners of a step function through the best value so far."""
    reached = complete[0]["value"]
    corners = [(complete[0]["number"], reached)]
    for row in complete[1:]:
        corners.append((row["number"], reached))
        reached = better(reached, row["value"])
        corners.append((row["number"], reached))
    return [*corners, (last, reached)]
