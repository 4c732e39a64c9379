"""The doctor of click logs: a report of what one can and cannot tell, and how far positions can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from toprank.clicks.context_curves import by_context
from toprank.clicks.context_propensities import ContextPropensities
from toprank.clicks.contexts import Context
from toprank.clicks.findings import found_in, sessions_needed
from toprank.clicks.harvests import Graph, Propensities, graph, harvested
from toprank.clicks.log import COMPARED, ClickLog, check_log
from toprank.compute import IntArray
from toprank.data.checks import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.doctor.findings import Finding
from toprank.errors import DataError, count_of
from toprank.showing.pictures import Picture
from toprank.showing.tables import Kind, Part, Shown, Table, bracketed, frame_of, json_numbers, json_rows, percent

_ALL_SHOWN = 15  # pairs of positions that a table shows; of more,
_TOP_SHOWN = 10  # those of neighbours and with the first, down to here


@dataclass(frozen=True, repr=False)
class LogReport(Shown):
    """What was found, worst first; and how far the log can tell positions apart.

    Attributes:
        sizes: numbers of sessions, impressions, clicks, queries, documents and positions.
        findings: sentences with counts and remedies.
        graph: which positions share documents; of the first 1,000 positions.
        impressions: number of impressions at each of these positions.
        clicks: number of clicks at each of these positions.
        propensities: how likely positions are looked at, with intervals; None where nothing was clicked.
        sessions_needed: about how many sessions make these intervals as narrow as was asked; None: it cannot be told.
        contexts: propensities by the context that was asked for.
    """

    sizes: dict[str, int]
    findings: tuple[Finding, ...]
    graph: Graph
    impressions: IntArray
    clicks: IntArray
    propensities: Propensities | None
    sessions_needed: int | None = None
    contexts: ContextPropensities | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON; what is not known is None."""
        return {
            "summary": self.summary,
            "log": self.sizes,
            "sessions_needed": self.sessions_needed,
            "findings": [asdict(finding) | {"examples": list(finding.examples)} for finding in self.findings],
            "positions": json_rows(self._columns()),
            "components": [list(component) for component in self.graph.components],
            "edges": [edge._asdict() for edge in self.graph.edges],
            "contexts": None if self.contexts is None else self.contexts.to_dict(),
        }

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each position; a frame of pandas or polars, or Arrow's."""
        return frame_of(self._columns(), kind)

    def _columns(self) -> dict[str, Sequence[Any]]:
        depth, known = self.graph.depth, self.propensities
        empty = np.full(depth, np.nan)
        low, high = (empty, empty) if known is None else known.intervals
        values = empty if known is None else known.values
        next_to = {edge.first: edge for edge in self.graph.edges if edge.second == edge.first + 1}
        return {
            "position": list(range(1, depth + 1)),
            "impressions": self.impressions.tolist(),
            "clicks": self.clicks.tolist(),
            "swapped_with_next": [next_to[k].pairs if k in next_to else 0 for k in range(1, depth + 1)],
            "identified": self.graph.identified.tolist(),
            **{
                name: json_numbers(column.tolist())
                for name, column in (("propensity", values), ("low", low), ("high", high))
            },
        }

    def plot(self) -> Picture:
        """How likely each position is looked at."""
        if self.propensities is None:
            raise DataError("There is nothing to draw: the log says nothing about propensities.")
        return self.propensities.plot()

    def table(self) -> Table:
        """One row for each position, in words."""
        columns = self._columns()
        rows = []
        for k, shown, clicked, swaps, identified, value, low, high in zip(*columns.values(), strict=True):
            rate = f"{clicked / shown:.3f}" if shown else "—"
            known = ("—", "")
            if identified and value is not None:  # no upper end where there is a lower one: it is infinite
                known = f"{value:.3f}", bracketed(low, np.inf if high is None and low is not None else high)
            rows.append((str(k), f"{shown:,}", rate, f"{swaps:,}", *known))
        level = "interval" if self.propensities is None else f"{percent(self.propensities.confidence)} interval"
        return Table(("position", "impressions", "click rate", "also at the next", "propensity", level), rows, names=0)

    def edges_table(self) -> Table:
        """The pairs of positions that share documents: how many, and how often these were shown."""
        edges = self.graph.edges
        if len(edges) > _ALL_SHOWN:
            near = (edge for edge in edges if edge.second <= _TOP_SHOWN)
            edges = tuple(edge for edge in near if edge.first in (1, edge.second - 1))
        rows = [(f"{edge.first} and {edge.second}", f"{edge.pairs:,}", f"{edge.impressions:,}") for edge in edges]
        return Table(("positions", "documents at both", "impressions of them"), rows, names=1)

    @property
    def summary(self) -> str:
        """What the log has, and how much was found."""
        if not self.findings:
            return f"{self._sizes()} Nothing was found."
        count, problems = len(self.findings), sum(finding.severity == "problem" for finding in self.findings)
        return f"{self._sizes()} {count_of(count, 'finding')} ({count_of(problems, 'problem')})."

    def _sizes(self) -> str:
        return ", ".join(f"{count:,} {name}" for name, count in self.sizes.items()) + "."

    def _parts(self) -> Sequence[Part]:
        sentences = tuple(str(finding) for finding in self.findings)
        parts: list[Part] = [self._sizes(), sentences or "Nothing was found.", self.table()]
        if self.contexts is not None:
            parts += self.contexts._parts()
        if not self.graph.edges:
            return parts
        groups, edges = self.graph.components, len(self.graph.edges)
        joined = "Documents that stood at several positions connect all positions."
        if len(groups) > 1:
            in_words = "; ".join(_in_words(group) for group in groups)
            joined = f"Positions fall into {len(groups)} groups that no document connects: {in_words}."
        if edges > _ALL_SHOWN:
            joined += (
                f" Of {edges:,} pairs, those of neighbours and those with the first, down to position {_TOP_SHOWN}:"
            )
        return [*parts, joined, self.edges_table()]


def _in_words(positions: Sequence[int]) -> str:
    """Rising numbers as people say them.

    >>> _in_words([1, 2, 3, 5, 7, 8])
    '1 to 3, 5, 7 to 8'
    """
    ends = [place for place in range(len(positions)) if positions[place] + 1 not in positions[place + 1 : place + 2]]
    starts = [0, *(place + 1 for place in ends[:-1])]
    pairs = [(positions[first], positions[last]) for first, last in zip(starts, ends, strict=True)]
    return ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in pairs)


def check(
    log: ClickLog, data: RankingData | None = None, *, context: Context | None = None, resamples: int = 100,
    width: float = 0.5, seed: int = 0,
) -> LogReport:  # fmt: skip
    """Examine a click log; with `data`, also whether they have features of what was shown.

    Args:
        log: the log.
        data: queries and documents with ids.
        context: column of the log, or several that are crossed, such as the device, the surface or the module: tell
            propensities by it (`toprank.clicks.propensities`). Without one, all columns with a few values are examined
            for whether they change the curve.
        resamples: how often queries are drawn again for the intervals of the propensities.
        width: report how many sessions make the intervals of propensities this narrow, as a share of the propensity.
        seed: seed of these draws.

    >>> log = ClickLog.of(["q"] * 4, ["a", "b", "a", "b"], [1, 2, 1, 2], [0, 0, 0, 0])
    >>> [finding.code for finding in check(log).findings]
    ['no-clicks', 'one-order']
    """
    check_log(log)
    check_whole("resamples", resamples, 2)
    check_number("width", width, above=0)
    shallow = log.top(COMPARED) if log.depth > COMPARED else log
    estimate = harvested(shallow, resamples=resamples, seed=seed) if log.clicks.any() else None
    positions = graph(shallow) if estimate is None else estimate.graph
    estimate = estimate if positions.edges else None
    impressions = np.bincount(log.position, minlength=log.depth + 1)[1:]
    clicks = np.bincount(log.position[log.clicks], minlength=log.depth + 1)[1:]
    sizes = {"sessions": log.n_sessions, "impressions": log.n_impressions, "clicks": int(log.clicks.sum())}
    sizes |= {"queries": _different(log.session_query), "documents": _different(log.pair), "positions": log.depth}
    depth = positions.depth
    contexts = None if context is None else by_context(shallow, context, resamples=resamples, seed=seed)
    return LogReport(
        sizes,
        found_in(log, data, positions, estimate, width, context, seed),
        positions,
        impressions[:depth],
        clicks[:depth],
        estimate,
        sessions_needed(log, estimate, width),
        contexts,
    )


def _different(numbers: IntArray) -> int:
    return int(np.count_nonzero(np.bincount(numbers)))
