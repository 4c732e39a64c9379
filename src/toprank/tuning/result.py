"""What a search hands back."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["Tuned"]

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
        from toprank.tuning.picture import write_picture

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
