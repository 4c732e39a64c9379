"""`SelectionResult`: the ranker that a search settled on, and everything that it tried."""

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
from toprank.model_selection.search import JUDGED, unconverged
from toprank.rankers.base import Ranker
from toprank.significance import Interval

_SHOWN = 20  # trials of a table in print


@dataclass(frozen=True, repr=False)
class SelectionResult(Record):
    """The ranker that `grid_search`, `tune` or `auto` settled on, and everything that was tried; `str` is a table.

    `value` is optimistic: it is the best of many on the queries that chose it. What the ranker is worth, other data
    tell.

    Attributes:
        ranker: fitted, and ready to use.
        name: the system, the candidate of the portfolio, or "blend of …".
        options: the hyper-parameters that were chosen.
        value: the metric of the choice on the queries that judged; where it was `refitted`, of the ranker before that.
            NaN if there were too few queries to choose by.
        evaluated_on: which queries judged, in words.
        trials: a row for each trial: `number`, `name`, `options`, `value`, `seconds`, `remark`, `state` (complete, cut
            short, pruned, failed, interrupted, refused, not tried), and what more its strategy knows: `converged` and
            the `objective` on the training data where a solver ran; `interval`, `queries` and `rounds` of `tune`;
            `difference` to the best, its interval and `weight` of `auto`.
        sentences: what there is to know about the search.
        stopped: why the search ended.
        interval: 95 % interval of `value` over queries (Student's t), blind to the choice, where the search looked at
            one.
        importance: how much of the variance of the metric each hyper-parameter explains by itself, as shares of 1,
            largest first (fANOVA, over complete trials of `tune`); empty for fewer than ten trials, or than two for
            each hyper-parameter.
        n_held_out: number of training queries held out for evaluation; None with validation data or folds.
        refitted: whether the ranker was then trained on all of the training data, those queries included.
        timed_out: whether time ran out; if not, the same data, seed and number of threads give the same ranker.
        interrupted: whether an interrupt from the keyboard ended the search, or the last training after it.
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
        """What was tried, what won, and what to make of it."""
        return " ".join(self.sentences)

    @property
    def unconverged(self) -> list[dict[str, Any]]:
        """The trials whose solver did not reach the optimum, and was not interrupted either."""
        return unconverged(self.trials)

    def _columns(self) -> dict[str, list[Any]]:
        """Return a row for each trial, with time and remark at the end."""
        rows = [_flat(row) for row in self.trials]
        names = dict.fromkeys(name for row in rows for name in row)
        names |= {name: names.pop(name) for name in ("seconds", "remark") if name in names}
        return {name: [row.get(name) for row in rows] for name in names}

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """Importance and history; with a path, also saved as an SVG, PNG or PDF file (see `Picture.save`)."""
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
            reached = f"{self.name}, without a comparison"
        shown = [row for row in self.trials if row["state"] in JUDGED]
        table = [self._table(shown)] if shown else []
        return [f"{reached}{f', with {chosen}' if chosen else ''}.", *table, self.sentences]

    def _table(self, judged: list[dict[str, Any]]) -> Table:
        """The trials that were judged: the blend, if there is one, and the others from best to worst."""
        sign = -1.0 if parse(self.metric).higher_is_better else 1.0
        best_first = sorted(judged, key=lambda row: (row["name"] != "blend", sign * row["value"], row["number"]))
        columns = [list(_cells(row, self.metric)) for row in best_first[:_SHOWN]]
        names = dict.fromkeys(name for row in columns for name, _ in row)
        named = len({row["name"] for row in judged}) > 1
        names = {name: None for name in names if named or name != "name"}
        rows = [tuple(dict(row).get(name, "") for name in names) for row in columns]
        return Table(tuple(names), rows, names=2 if named else 1)


def _cells(row: dict[str, Any], metric: str) -> Iterator[tuple[str, str]]:
    """The columns of a row of the table, by their headings."""
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
    """A row of the frame: hyper-parameters by their names, the ends of an interval apart."""
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
