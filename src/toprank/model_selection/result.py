"""`SelectionResult`: the selected ranker of a search, and all trials."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from toprank.display.pictures import Picture
from toprank.display.record import Record
from toprank.display.tables import Part, Table
from toprank.metrics.parsing import parse
from toprank.model_selection.search import EVALUATED_STATES, unconverged
from toprank.rankers.base import Ranker
from toprank.significance import Interval

_MAX_ROWS = 20  # trials in the printed table


@dataclass(frozen=True, repr=False)
class SelectionResult(Record):
    """Result of `grid_search`, `tune` or `auto`: the selected ranker and all trials; `str` prints a table.

    `value` is optimistic, as it is the best of many on the same queries. Evaluate the ranker on independent data.

    Attributes:
        ranker: the selected ranker, fitted.
        name: name of the system or of the candidate of the portfolio, or "blend of …".
        options: selected hyper-parameters.
        metric: metric of the selection.
        convention: evaluation convention of the metric.
        value: metric of the selected trial on the held-out queries, before a refit. NaN without an evaluation.
        evaluated_on: description of the held-out queries.
        trials: one row per trial with `number`, `name`, `options`, `value`, `seconds`, `remark` and `state` (complete,
            cut short, pruned, failed, interrupted, refused, not tried). Solvers add `converged` and the training
            `objective`; `tune` adds `interval`, `queries` and `rounds`; `auto` adds the `difference` to the best, its
            interval and the `weight`.
        sentences: summary of the search, sentence by sentence.
        stopped: reason why the search ended.
        interval: 95 % t interval of `value` over queries, if computed; not corrected for the selection.
        importance: share of the metric's variance that each hyper-parameter explains alone, largest first (fANOVA over
            the complete trials of `tune`). Empty below ten trials or below two trials per hyper-parameter.
        n_held_out: number of training queries held out for evaluation; None with validation data or folds.
        refitted: whether the ranker was refitted on all of the training data, including the held-out queries.
        timed_out: whether the time limit was reached. If not, the same data, seed and number of threads reproduce the
            ranker.
        interrupted: whether Ctrl-C ended the search or the final training.
    """

    json_hidden = frozenset({"ranker", "sentences"})

    ranker: Ranker
    name: str
    options: dict[str, Any]
    metric: str
    convention: str
    value: float
    evaluated_on: str
    trials: list[dict[str, Any]]
    sentences: tuple[str, ...] = ()
    stopped: str = ""
    interval: Interval[float] | None = None
    importance: dict[str, float] = field(default_factory=dict)
    n_held_out: int | None = None
    refitted: bool = False
    timed_out: bool = False
    interrupted: bool = False

    @property
    def summary(self) -> str:
        """Summary of the search in sentences."""
        return " ".join(self.sentences)

    @property
    def unconverged(self) -> list[dict[str, Any]]:
        """Trials whose solver did not converge, without interrupted ones."""
        return unconverged(self.trials)

    def _columns(self) -> dict[str, list[Any]]:
        """Return one row per trial, with time and remark as the last columns."""
        rows = [_flat(row) for row in self.trials]
        names = dict.fromkeys(name for row in rows for name in row)
        names |= {name: names.pop(name) for name in ("seconds", "remark") if name in names}
        return {name: [row.get(name) for row in rows] for name in names}

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """Plot hyper-parameter importance and the search history; with a path, also save as SVG, PNG or PDF."""
        from toprank.model_selection.picture import picture_of

        picture = picture_of(self)
        if path is not None:
            picture.save(path)
        return picture

    def _parts(self) -> Sequence[Part]:
        chosen = ", ".join(f"{name}={_cell(value)}" for name, value in self.options.items())
        within = "" if self.interval is None else f" [{self.interval.low:.4f}, {self.interval.high:.4f}]"
        reached = f"{self.name}: {self.metric} ({self.convention}) {self.value:.4f}{within} on {self.evaluated_on}"
        if math.isnan(self.value):
            reached = f"{self.name}, without a search"
        shown = [row for row in self.trials if row["state"] in EVALUATED_STATES]
        table = [self._table(shown)] if shown else []
        return [f"{reached}{f', with {chosen}' if chosen else ''}.", *table, self.sentences]

    def _table(self, judged: list[dict[str, Any]]) -> Table:
        """Return the table of evaluated trials: the blend, if any, then the trials from best to worst."""
        sign = -1.0 if parse(self.metric).higher_is_better else 1.0
        best_first = sorted(judged, key=lambda row: (row["name"] != "blend", sign * row["value"], row["number"]))
        columns = [list(_cells(row, self.metric)) for row in best_first[:_MAX_ROWS]]
        names = dict.fromkeys(name for row in columns for name, _ in row)
        named = len({row["name"] for row in judged}) > 1
        names = {name: None for name in names if named or name != "name"}
        rows = [tuple(dict(row).get(name, "") for name in names) for row in columns]
        return Table(tuple(names), rows, names=2 if named else 1)


def _cells(row: dict[str, Any], metric: str) -> Iterator[tuple[str, str]]:
    """Yield the cells of a table row with their headings."""
    yield "trial", str(row["number"])
    yield "name", row["name"]
    yield metric, _cell(row["value"], 4)
    for name, value in row["options"].items():
        yield name, _cell(value)
    if "converged" in row:
        yield "converged", _cell(row["converged"])
    if "difference" in row:
        yield "to the best", _signed(row["difference"])
        yield "95 % interval", f"[{_signed(row['difference_low'])}, {_signed(row['difference_high'])}]"
        yield "weight", f"{row['weight']:.2f}" if row["weight"] else ""
    if row["seconds"] is not None:
        yield "seconds", f"{row['seconds']:.1f}{' cut short' if row['state'] == 'cut short' else ''}"


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a trial as a flat row: hyper-parameters by name, and the bounds of the interval as columns."""
    low, high = row.get("interval") or (None, None)
    flat = {"trial": row["number"], "name": row["name"], "state": row["state"], "value": row["value"]}
    flat |= {"low": low, "high": high} if "interval" in row else {}
    rest = {name: value for name, value in row.items() if name not in ("number", "options", "interval")}
    return {**flat, **row["options"], **rest}


def _cell(value: Any, decimals: int | None = None) -> str:
    if value is None:
        return ""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _signed(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "0" if value == 0 else f"{value:+.3f}"
