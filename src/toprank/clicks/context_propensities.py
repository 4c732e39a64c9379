"""Propensities by context, as a result: a curve for each context, or a number for each cell of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.clicks.contexts import ContextCells, ContextTest, changes_looks
from toprank.clicks.curves import PropensityCurves, Shrinkage
from toprank.clicks.intervention_harvesting import Propensities
from toprank.clicks.recency import Recency
from toprank.compute import FloatArray, IntArray
from toprank.display.pictures import Chart, Line, Picture, curves
from toprank.display.record import Record, to_json
from toprank.display.tables import Part, Table, bracketed, json_rows, percent
from toprank.errors import DataError, UnknownNameError
from toprank.significance import Interval

_SIGNIFICANCE_LEVEL = 0.05  # of the test whether contexts differ
_MAX_PLOTTED_CURVES = 10  # more curves would be hard to distinguish


@dataclass(frozen=True, repr=False)
class ContextPropensities(Record):
    """P(examined) at each position, by context.

    Attributes:
        layout: columns and names of the contexts, and whether they vary within sessions.
        values: propensities, one row for each context, from its first position on; NaN if unidentified.
        intervals: confidence intervals, over queries.
        own: weight of the context's own data in each value; the rest comes from the whole log.
        identified: whether the log identifies each value.
        whole: propensities of all sessions; for contexts that vary within sessions, of all cells.
        scales: click rate of the first position of each context, relative to the mean over sessions; 1 for cells, which
            are relative to one of them.
        sizes: number of sessions with each context.
        clicks: number of clicks in each context.
        difference: test whether contexts differ.
        between: variance between contexts, of log propensities (τ²).
        variance: prior variance of the deviations of each context from the whole log.
        method: method of estimation.
        confidence: confidence level of the intervals.
        n_resamples: number of bootstrap samples.
        recency: weights of the sessions by age, or None if all weights are 1.
    """

    layout: ContextCells
    values: FloatArray
    intervals: Interval[FloatArray]
    own: FloatArray
    identified: npt.NDArray[np.bool_]
    whole: Propensities
    scales: FloatArray
    sizes: IntArray
    clicks: IntArray
    difference: ContextTest
    between: float
    variance: FloatArray
    method: str
    confidence: float
    n_resamples: int = 0
    recency: Recency | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the contexts."""
        return self.layout.names

    def of(self, name: str) -> FloatArray:
        """Return the curve of a context by name."""
        if name not in self.names:
            raise UnknownNameError(f"context of {self.layout.called}", name, self.names)
        return np.asarray(self.values[self.names.index(name)])

    def curves(self, least: float = 0.0) -> PropensityCurves:
        """Return the curves to correct clicks with; the first row, the curve of the whole log, is for unknown
        contexts.
        """
        if self.layout.varies:
            return of_layout(np.full(self.layout.depth, np.nan), self.values, self.layout, self.method, least, None)
        shrinkage = Shrinkage(self.own, self.variance)
        slopes = self.values * self.scales[:, None]
        return of_layout(self.whole.values, slopes, self.layout, self.method, least, shrinkage)

    def _columns(self) -> dict[str, Sequence[Any]]:
        rows, places = np.nonzero(self._shown())
        low, high = self.intervals
        return {
            "context": [self.names[row] for row in rows], "position": (places + 1).tolist(),
            **{
                name: of[rows, places].tolist()
                for name, of in (("propensity", self.values), ("low", low), ("high", high), ("own", self.own),
                                 ("identified", self.identified))
            },
        }  # fmt: skip

    def _shown(self) -> npt.NDArray[np.bool_]:
        """Return which cells occur; a page need not have all positions of all modules."""
        if not self.layout.varies:
            return np.ones(self.values.shape, dtype=bool)
        return np.asarray(self.own > 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values; unidentified numbers are None."""
        return {
            "summary": self.summary, "method": self.method, "columns": list(self.layout.columns),
            "varies_within_sessions": self.layout.varies, "confidence": self.confidence,
            "recency": to_json(self.recency), "p": to_json(self.difference.p), "queries": self.difference.queries,
            "spread": float(np.sqrt(self.between)),
            "contexts": json_rows({
                "context": self.names, "sessions": self.sizes.tolist(), "clicks": self.clicks.tolist(),
                "scale": self.scales.tolist(),
            }),
            "positions": json_rows(self._columns()),
        }  # fmt: skip

    @property
    def summary(self) -> str:
        """The method, the test for differences, and unidentified cells."""
        return " ".join(self._sentences())

    def _sentences(self) -> list[str]:
        called, layout = self.layout.called, self.layout
        if layout.varies:
            words = [
                f"Propensities by {self.method} for each cell of {called}, which varies within sessions, and position. "
                f"They are relative to the first cell, position 1 of {self._first()}."
            ]
        else:
            words = [
                f"Propensities by {self.method} for each {called}, each relative to its own first position, and shrunk "
                "toward the propensities of the whole log if data are scarce (own: weight of the context's own data)."
            ]
        words += [] if self.recency is None else [str(self.recency)]
        words.append(self.whether_they_differ)
        lost = self._shown() & ~self.identified
        if lost.any():
            cells = [f"{self.names[row]} {place + 1}" for row, place in zip(*np.nonzero(lost), strict=True)]
            words.append(
                f"The log does not identify {len(cells)} of them ({', '.join(cells[:5])}{', …' * (len(cells) > 5)}): "
                "no document connects them to the first. Show some documents at other places in some sessions."
            )
        return words

    @property
    def whether_they_differ(self) -> str:
        """The result of the test whether contexts differ, as a sentence."""
        called, p = self.layout.called, self.difference.p
        if not self.difference.is_known:
            return (
                f"The log does not identify whether {called} changes the propensities: only {self.difference.queries} "
                "queries have documents that were shown at several positions of a context."
            )
        sentence = changes_looks(called, p)
        return sentence if p < _SIGNIFICANCE_LEVEL else f"There is no evidence that {sentence}"

    def _first(self) -> str:
        places = np.flatnonzero(self._shown()[:, 0])
        return self.names[places[0]] if len(places) else self.names[0]

    def table(self) -> Table:
        """Return a table with one row for each context and position."""
        columns = self._columns()
        width = 5 - self.layout.varies  # cells are not shrunk
        rows = []
        for name, position, value, low, high, own, _ in zip(*columns.values(), strict=True):
            known = (f"{value:.3f}", bracketed(low, high), f"{own:.0%}") if np.isfinite(value) else ("—", "", "")
            rows.append((name, str(position), *known)[:width])
        head = (self.layout.called, "position", "propensity", f"{percent(self.confidence)} interval", "own")
        return Table(head[:width], rows, names=1)

    def sizes_table(self) -> Table:
        """Return a table with the sessions and clicks of each context."""
        rows = [
            (name, f"{sessions:,}", f"{clicks:,}", f"{scale:.3f}")[: 4 - self.layout.varies]
            for name, sessions, clicks, scale in zip(self.names, self.sizes, self.clicks, self.scales, strict=True)
        ]
        head = (self.layout.called, "sessions", "clicks", "first position")
        return Table(head[: 4 - self.layout.varies], rows, names=1)

    def plot(self) -> Picture:
        """Plot a curve for each of the ten contexts with the most clicks."""
        often = np.sort(np.argsort(-self.clicks, kind="stable")[:_MAX_PLOTTED_CURVES])
        lines = []
        for style, row in enumerate(often.tolist()):
            finite = np.flatnonzero(np.isfinite(self.values[row]))
            if len(finite):
                places = tuple((finite + 1.0).tolist())
                lines.append(Line(self.names[row], places, tuple(self.values[row, finite].tolist()), style))
        if not lines:
            raise DataError("There is nothing to plot: the log identifies no propensities.")
        called = self.layout.called
        return curves(Chart(f"Propensity by position and {called}", "position", "propensity", tuple(lines)))

    def _parts(self) -> Sequence[Part]:
        return [*self._sentences(), self.sizes_table(), self.table()]


def of_layout(
    others: FloatArray, values: FloatArray, layout: ContextCells, origin: str, least: float, shrunken: Shrinkage | None
) -> PropensityCurves:
    """Return the curves of cells: one for unknown contexts, then one for each context."""
    slope = np.concatenate([others[None, :], values]).reshape(-1)
    words = f"{origin}, by {layout.called}"
    return PropensityCurves(slope, np.zeros(len(slope)), words, least, layout, shrunken)
