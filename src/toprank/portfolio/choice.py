"""What `auto` answers with: the ranker, a table of what was tried, and the story in plain words."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from toprank.portfolio.choosing import Decision

__all__ = ["Candidate", "Choice", "table_of"]

_WIDTH = 100


@dataclass(frozen=True)
class Candidate:
    """A line of the table."""

    name: str
    valid: float
    """The metric on the validation data."""
    difference: float
    """Mean difference to the best single candidate over the validation queries."""
    low: float
    high: float
    """Its 95 % interval (Student's t); infinite where a single query was judged."""
    seconds: float
    weight: float
    """Its weight in the chosen blend; 0 where it is not a member, or nothing was blended."""
    cut_short: bool
    """Whether its training was stopped for lack of time."""


@dataclass(frozen=True)
class Choice:
    """The ranker that `auto` settled on; printing it shows the table and the story."""

    ranker: Any
    name: str
    """The chosen candidate, or "blend of …"."""
    story: str
    """What was tried, what won and by how much, what was blended, what was left out: in sentences."""
    table: tuple[Candidate, ...]
    """The candidates from best to worst; the blend, where one was made, comes first."""
    metric: str
    convention: str
    value: float
    """The metric of the chosen ranker on the validation data. Where `refitted`, of the ranker before that."""
    held_out: int | None
    """How many queries of the training data were held out to choose on; None where validation data were given."""
    refitted: bool
    """Whether the ranker was then trained on all of the training data, the held-out queries included."""
    not_tried: tuple[str, ...]
    """Candidates that were not begun for lack of time."""
    refused: dict[str, str]
    """Candidates that do not go with the data, and why."""
    budget_bound: bool
    """Whether time ran out; if not, the same data, seed and number of threads give the same ranker."""
    interrupted: bool
    """Whether an interrupt from the keyboard ended the search, or the training on all the data after it."""

    def fields(self) -> dict[str, Any]:
        """Everything but the ranker as plain values, for JSON; an infinite bound is None."""
        plain = {name: value for name, value in vars(self).items() if name not in ("ranker", "table")}
        rows = [{key: _finite(value) for key, value in asdict(row).items()} for row in self.table]
        return plain | {"not_tried": list(self.not_tried), "value": _finite(self.value), "table": rows}

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.table)
        title = self.metric if len(self.metric) <= 8 else "metric"
        lines = [f"{'candidate':<{width}}  {title:>8}  to the best     95 % interval  weight  seconds"]
        for row in self.table:
            interval = f"[{_signed(row.low)}, {_signed(row.high)}]"
            weight = f"{row.weight:6.2f}" if row.weight else f"{'':6}"
            lines.append(
                f"{row.name:<{width}}  {row.valid:8.4f}  {_signed(row.difference):>11}  {interval:>16}  {weight}  "
                f"{row.seconds:7.1f}{'  cut short' if row.cut_short else ''}"
            )
        return "\n".join([*lines, "", textwrap.fill(self.story, _WIDTH, break_on_hyphens=False)])


def table_of(decision: Decision) -> tuple[Candidate, ...]:
    """The table of a decision."""
    best = float(np.nanmean(decision.order[0].values))
    rows = []
    if decision.blend is not None:
        value, seen = decision.blend_value, decision.blend
        rows.append(Candidate("blend", value, value - best, seen.low, seen.high, 0.0, 0.0, False))
    names = [trial.name for trial in decision.members] if decision.blended else []
    weights = dict(zip(names, decision.weights, strict=False))
    for trial, seen in zip(decision.order, decision.intervals, strict=True):
        value, weight = float(np.nanmean(trial.values)), weights.get(trial.name, 0.0)
        rows.append(
            Candidate(trial.name, value, value - best, seen.low, seen.high, trial.seconds, weight, trial.cut_short)
        )
    return tuple(rows)


def _signed(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "0" if value == 0 else f"{value:+.3f}"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
