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

_SIGNIFICANCE_LEVEL = 0.05  # of the sentence that says whether contexts differ
_MAX_PLOTTED_CURVES = 10  # curves in a picture: more cannot be told apart


@dataclass(frozen=True, repr=False)
class ContextPropensities(Record):
    """P(look at a position) by context.

    Attributes:
        layout: the columns, the names of the contexts, and whether they vary within sessions.
        values: the propensities, a row for each context, from its first position on; NaN if the log cannot tell.
        intervals: their intervals, over queries.
        own: how much of each value is what the context's own data say; the rest is the whole's.
        identified: whether the log can tell each value.
        whole: the propensities of all sessions; of a page with cells, of the cells, in their order.
        scales: how often the first position of each context is clicked, relative to the mean over sessions; of cells 1,
            since these are relative to one of them.
        sizes: sessions that each context was in.
        clicks: number of clicks in each context.
        difference: whether contexts differ at all.
        between: the variance of contexts, of logarithms (τ²).
        variance: that of the deviations of each context from the whole.
        method: the method that estimated the propensities.
        confidence: confidence level of the intervals.
        n_resamples: how often queries were drawn again for the intervals.
        recency: how sessions were weighed by their age; None if all count alike.
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
        """The curve of a context, by its name."""
        if name not in self.names:
            raise UnknownNameError(f"context of {self.layout.called}", name, self.names)
        return np.asarray(self.values[self.names.index(name)])

    def curves(self, least: float = 0.0) -> PropensityCurves:
        """What clicks are corrected by, with a row for contexts that this log never had: that of the whole."""
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
        """The cells that are: of a page not all positions of all modules."""
        if not self.layout.varies:
            return np.ones(self.values.shape, dtype=bool)
        return np.asarray(self.own > 0)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what the log cannot tell is None."""
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
        """How they were found, whether contexts differ, and what the log cannot tell."""
        return " ".join(self._sentences())

    def _sentences(self) -> list[str]:
        called, layout = self.layout.called, self.layout
        if layout.varies:
            words = [
                f"Propensities by {self.method} of each cell: {called} varies within sessions, and a position is a "
                f"place in it. They are relative to the first cell, position 1 of {self._first()}."
            ]
        else:
            words = [
                f"Propensities by {self.method} for each {called}, each relative to its own first position, and shrunk "
                "toward the propensities of the whole log where data are scarce (own: how much weight the context's "
                "own data have)."
            ]
        words += [] if self.recency is None else [str(self.recency)]
        words.append(self.whether_they_differ)
        lost = self._shown() & ~self.identified
        if lost.any():
            cells = [f"{self.names[row]} {place + 1}" for row, place in zip(*np.nonzero(lost), strict=True)]
            words.append(
                f"The log says nothing about {len(cells)} of them ({', '.join(cells[:5])}{', …' * (len(cells) > 5)}): "
                "no document connects them to the first. Show some documents at other places in a share of the "
                "sessions."
            )
        return words

    @property
    def whether_they_differ(self) -> str:
        """Whether contexts differ at all, as a sentence."""
        called, p = self.layout.called, self.difference.p
        if not self.difference.is_known:
            return (
                f"The log cannot say whether {called} changes the propensities: the documents of only "
                f"{self.difference.queries} queries stood at several positions of a context."
            )
        sentence = changes_looks(called, p)
        return sentence if p < _SIGNIFICANCE_LEVEL else f"There is no evidence that {sentence}"

    def _first(self) -> str:
        places = np.flatnonzero(self._shown()[:, 0])
        return self.names[places[0]] if len(places) else self.names[0]

    def table(self) -> Table:
        """One row for each context and position."""
        columns = self._columns()
        width = 5 - self.layout.varies  # cells are all their own
        rows = []
        for name, position, value, low, high, own, _ in zip(*columns.values(), strict=True):
            known = (f"{value:.3f}", bracketed(low, high), f"{own:.0%}") if np.isfinite(value) else ("—", "", "")
            rows.append((name, str(position), *known)[:width])
        head = (self.layout.called, "position", "propensity", f"{percent(self.confidence)} interval", "own")
        return Table(head[:width], rows, names=1)

    def sizes_table(self) -> Table:
        """One row for each context: how much the log has of it."""
        rows = [
            (name, f"{sessions:,}", f"{clicks:,}", f"{scale:.3f}")[: 4 - self.layout.varies]
            for name, sessions, clicks, scale in zip(self.names, self.sizes, self.clicks, self.scales, strict=True)
        ]
        head = (self.layout.called, "sessions", "clicks", "first position")
        return Table(head[: 4 - self.layout.varies], rows, names=1)

    def plot(self) -> Picture:
        """A curve for each context, of the ten with the most clicks."""
        often = np.sort(np.argsort(-self.clicks, kind="stable")[:_MAX_PLOTTED_CURVES])
        lines = []
        for style, row in enumerate(often.tolist()):
            finite = np.flatnonzero(np.isfinite(self.values[row]))
            if len(finite):
                places = tuple((finite + 1.0).tolist())
                lines.append(Line(self.names[row], places, tuple(self.values[row, finite].tolist()), style))
        if not lines:
            raise DataError("There is nothing to draw: the log says nothing about propensities.")
        called = self.layout.called
        return curves(Chart(f"Propensity by position and {called}", "position", "propensity", tuple(lines)))

    def _parts(self) -> Sequence[Part]:
        return [*self._sentences(), self.sizes_table(), self.table()]


def of_layout(
    others: FloatArray, values: FloatArray, layout: ContextCells, origin: str, least: float, shrunken: Shrinkage | None
) -> PropensityCurves:
    """Curves of cells: first those of contexts that nothing is known of, then each context's."""
    slope = np.concatenate([others[None, :], values]).reshape(-1)
    words = f"{origin}, by {layout.called}"
    return PropensityCurves(slope, np.zeros(len(slope)), words, least, layout, shrunken)
