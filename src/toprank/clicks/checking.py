"""Diagnosis of click logs: findings, propensities, and which positions can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toprank.clicks.context_estimation import by_context
from toprank.clicks.context_propensities import ContextPropensities
from toprank.clicks.contexts import Context
from toprank.clicks.findings import click_rates, of_features, of_log
from toprank.clicks.intervention_harvesting import SWAP, Graph, Propensities, graph, harvested
from toprank.clicks.log import MAX_COMPARED_POSITIONS, ClickLog, check_log
from toprank.compute import IntArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.display.pictures import Picture
from toprank.display.record import Record, to_json
from toprank.display.tables import Part, Table, bracketed, json_numbers, json_rows, percent
from toprank.doctor.findings import Finding, Severity, examples_of, finding_about, inflected
from toprank.errors import DataError, Remedy, count_of, join_parts

_NARROW = "Swap neighbors or shuffle the top in more sessions, or log more sessions."
_MAX_EDGES = 15  # tables of more pairs show only neighbors and pairs with the first position,
_MAX_EDGE_POSITION = 10  # down to this one

_SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
_MAX_RELATIVE_WIDTH = 0.5  # of an interval, relative to the propensity
_MIN_QUERIES = 10  # fewer queries give imprecise intervals


@dataclass(frozen=True, repr=False)
class LogReport(Record):
    """Findings in a click log, most severe first, and the identification of its positions.

    Attributes:
        sizes: numbers of sessions, impressions, clicks, queries, documents and positions.
        findings: sentences with counts and remedies.
        graph: positions that share documents, among the first 1,000 positions.
        impressions: number of impressions at each of these positions.
        clicks: number of clicks at each of these positions.
        propensities: examination propensities with intervals, or None without clicks.
        sessions_needed: approximate number of sessions for intervals of the target width, or None if unknown.
        contexts: propensities by the requested context, or None.
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
        """Return the report as JSON values; unknown numbers are None."""
        return {
            "summary": self.summary,
            "log": self.sizes,
            "sessions_needed": self.sessions_needed,
            "findings": to_json(self.findings),
            "positions": json_rows(self._columns()),
            "components": to_json(self.graph.components),
            "edges": to_json(self.graph.edges),
            "contexts": to_json(self.contexts),
        }

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
        """Plot the examination propensity of each position."""
        if self.propensities is None:
            raise DataError("There is nothing to plot: the log identifies no propensities.")
        return self.propensities.plot()

    def table(self) -> Table:
        """Return a table with one row for each position."""
        columns = self._columns()
        rows = []
        for k, shown, clicked, swaps, identified, value, low, high in zip(*columns.values(), strict=True):
            rate = f"{clicked / shown:.3f}" if shown else "—"
            known = ("—", "")
            if identified and value is not None:  # JSON has no infinity, so a missing upper end is infinite
                known = f"{value:.3f}", bracketed(low, np.inf if high is None and low is not None else high)
            rows.append((str(k), f"{shown:,}", rate, f"{swaps:,}", *known))
        level = "interval" if self.propensities is None else f"{percent(self.propensities.confidence)} interval"
        return Table(("position", "impressions", "click rate", "also at the next", "propensity", level), rows, names=0)

    def edges_table(self) -> Table:
        """Return a table of pairs of positions: shared documents, and impressions of these."""
        edges = self.graph.edges
        if len(edges) > _MAX_EDGES:
            near = (edge for edge in edges if edge.second <= _MAX_EDGE_POSITION)
            edges = tuple(edge for edge in near if edge.first in (1, edge.second - 1))
        rows = [(f"{edge.first} and {edge.second}", f"{edge.pairs:,}", f"{edge.impressions:,}") for edge in edges]
        return Table(("positions", "documents at both", "impressions of them"), rows, names=1)

    @property
    def summary(self) -> str:
        """Sizes of the log and number of findings."""
        if not self.findings:
            return f"{self._sizes()} No findings."
        count, problems = len(self.findings), sum(finding.severity == "problem" for finding in self.findings)
        return f"{self._sizes()} {count_of(count, 'finding')} ({count_of(problems, 'problem')})."

    def _sizes(self) -> str:
        return ", ".join(f"{count:,} {name}" for name, count in self.sizes.items()) + "."

    def _parts(self) -> Sequence[Part]:
        sentences = tuple(str(finding) for finding in self.findings)
        parts: list[Part] = [self._sizes(), sentences or "No findings.", self.table()]
        if self.contexts is not None:
            parts += self.contexts._parts()
        if not self.graph.edges:
            return parts
        groups, edges = self.graph.components, len(self.graph.edges)
        words = "Documents shown at several positions connect all positions."
        if len(groups) > 1:
            in_words = "; ".join(_in_words(group) for group in groups)
            words = f"Positions fall into {len(groups)} groups that are not connected by documents: {in_words}."
        if edges > _MAX_EDGES:
            words += (
                f" Of {edges:,} pairs, the table shows neighbors and pairs with the first position, down to position "
                f"{_MAX_EDGE_POSITION}:"
            )
        return [*parts, words, self.edges_table()]


def _in_words(positions: Sequence[int]) -> str:
    """Format increasing numbers as ranges.

    >>> _in_words([1, 2, 3, 5, 7, 8])
    '1 to 3, 5, 7 to 8'
    """
    ends = [place for place in range(len(positions)) if positions[place] + 1 not in positions[place + 1 : place + 2]]
    starts = [0, *(place + 1 for place in ends[:-1])]
    pairs = [(positions[first], positions[last]) for first, last in zip(starts, ends, strict=True)]
    return ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in pairs)


def check(
    log: ClickLog, data: RankingData | None = None, *, context: Context | None = None, n_resamples: int = 100,
    target_width: float = 0.5, seed: int = 0,
) -> LogReport:  # fmt: skip
    """Examine a click log and, with `data`, the features of the shown documents.

    Args:
        log: the log.
        data: queries and documents with ids.
        context: column of the log, or several crossed columns, such as the device, the surface or the module, for
            propensities by context (`toprank.clicks.propensities`). By default all columns with few values are tested
            for an effect on the propensities.
        n_resamples: number of bootstrap samples for the intervals of the propensities.
        target_width: width of the intervals, relative to the propensity, for which the required number of sessions is
            reported.
        seed: seed of the bootstrap.

    >>> log = ClickLog.from_columns(["q"] * 4, ["a", "b", "a", "b"], [1, 2, 1, 2], [0, 0, 0, 0])
    >>> [finding.code for finding in check(log).findings]
    ['no-clicks', 'one-order']
    """
    check_log(log)
    check_whole("n_resamples", n_resamples, 2)
    check_number("target_width", target_width, above=0)
    shallow = log.top(MAX_COMPARED_POSITIONS) if log.depth > MAX_COMPARED_POSITIONS else log
    estimate = harvested(shallow, n_resamples=n_resamples, seed=seed) if log.clicks.any() else None
    positions = graph(shallow) if estimate is None else estimate.graph
    estimate = estimate if positions.edges else None
    sizes = {"sessions": log.n_sessions, "impressions": log.n_impressions, "clicks": int(log.clicks.sum())}
    sizes |= {"queries": _different(log.session_query), "documents": _different(log.pair), "positions": log.depth}
    found = [*of_log(log, context, seed), *_of_positions(log, positions, estimate, target_width)]
    found += of_features(log, data) if data is not None else ()
    return LogReport(
        sizes=sizes,
        findings=tuple(sorted(found, key=lambda finding: _SEVERITIES.index(finding.severity))),
        graph=positions,
        impressions=np.bincount(log.position, minlength=log.depth + 1)[1 : positions.depth + 1],
        clicks=np.bincount(log.position[log.clicks], minlength=log.depth + 1)[1 : positions.depth + 1],
        propensities=estimate,
        sessions_needed=sessions_needed(log, estimate, target_width),
        contexts=None if context is None else by_context(shallow, context, n_resamples=n_resamples, seed=seed),
    )


def _different(numbers: IntArray) -> int:
    return int(np.count_nonzero(np.bincount(numbers)))


def sessions_needed(log: ClickLog, estimate: Propensities | None, target_width: float) -> int | None:
    """Return about how many sessions make all intervals narrower than this share of their propensity; None if
    unknown.

    If propensities are identified, their intervals shrink as 1/√sessions. Otherwise the number is that for swaps of
    neighbors among the first ten positions in 5 % of the lists. The log ratio of two neighbors then has the variance ¼
    (1/clicks of one + 1/clicks of the other) in swapped lists, and the variances add up to the last position.
    """
    if estimate is None or not estimate.identified[1:].any():
        rates = click_rates(log)[1 : _N_SWAPPED_POSITIONS + 1]
        if len(rates) < 2 or not (rates > 0).all():
            return None
        steps = 0.25 * (1 / rates[:-1] + 1 / rates[1:])
        return round((len(rates) - 1) / _SWAP_RATE * float(steps.sum()) * (2 * _Z_95 / target_width) ** 2)
    low, high = estimate.intervals
    with np.errstate(invalid="ignore", divide="ignore"):
        wider = ((high - low) / (target_width * estimate.values))[estimate.identified]
    wider = wider[np.isfinite(wider)]
    return round(log.n_sessions * float(wider.max()) ** 2) if len(wider) and wider.max() > 0 else None


_N_SWAPPED_POSITIONS, _SWAP_RATE, _Z_95 = 10, 0.05, 1.96  # the exploration of `serve`, and the normal quantile for 95 %


def _of_positions(log: ClickLog, graph: Graph, estimate: Propensities | None, target_width: float) -> Iterator[Finding]:
    """Report which positions can be compared, and how precisely."""
    shown, clicked = (
        np.bincount(where, minlength=log.depth + 1)[1:] for where in (log.position, log.position[log.clicks])
    )
    if log.clicks.any():
        never = np.flatnonzero((shown > 0) & (clicked == 0)) + 1
        remedy = join_parts(
            "Their estimated propensity is 0, by which clicks cannot be divided. Log more sessions, or train with a "
            "lower bound of propensities,",
            Remedy("{clip}.", clip=...),
        )
        yield from finding_about(
            "unclicked-positions", "warning", len(never), log.depth, "position|positions was|were never clicked",
            (f"position {k}" for k in never), remedy,
        )  # fmt: skip
    if log.depth == 1:
        return
    yield from finding_about(
        "deep-positions", "warning", int(shown[graph.depth :].sum()), log.n_impressions,
        f"impression|impressions is|are below position {graph.depth:,}", (),
        "They stay in the log, but are not compared here.",
    )  # fmt: skip
    if not graph.edges:
        sentence = "No document was shown at two positions: a single ranker always showed the same order."
        needed = sessions_needed(log, None, target_width)
        remedy = f"The effects of position and relevance cannot be separated. {SWAP}"
        if needed:
            remedy += (
                f" With neighbors swapped in {_SWAP_RATE:.0%} of the lists, about {needed:,} sessions make intervals "
                f"of propensities narrower than {target_width:.0%} of them."
            )
        yield Finding("one-order", "problem", sentence, log.n_pairs, (), remedy)
    else:
        apart = np.flatnonzero(~graph.identified & (shown[: graph.depth] > 0)) + 1
        yield from finding_about(
            "unjoined-positions", "warning", len(apart), log.depth,
            "position|positions shares|share no document with those that are connected to the first",
            (f"position {k}" for k in apart), f"The log does not identify how likely users examine them. {SWAP}",
        )  # fmt: skip
    if estimate is not None:
        yield from _of_intervals(log, estimate, target_width)


def _of_intervals(log: ClickLog, estimate: Propensities, target_width: float) -> Iterator[Finding]:
    """Report few queries and wide intervals of propensities."""
    count = len(np.unique(log.session_query))
    if count < _MIN_QUERIES:
        sentence = f"The log has {count} {inflected(count, 'query|queries')}."
        effect = ", so there are none" if count == 1 else ", and few queries make them wide"
        remedy = f"Intervals come from the differences between queries{effect}. Log more queries."
        yield Finding("few-queries", "warning", sentence, count, (), remedy)
    low, high = estimate.intervals
    with np.errstate(invalid="ignore"):
        wide = estimate.identified & (high - low > target_width * estimate.values)
    count = int(wide.sum())
    if count:
        ends = (f"position {k + 1}: {bracketed(low[k], high[k])}" for k in np.flatnonzero(wide))
        noun = inflected(count, "position|positions")
        part = "half" if target_width == _MAX_RELATIVE_WIDTH else f"{target_width:.0%}"
        sentence = f"The propensity of {count} {noun} has an interval wider than {part} of it."
        needed = sessions_needed(log, estimate, target_width)
        more = f" About {needed:,} such sessions would suffice." if needed else ""
        yield Finding("wide-intervals", "warning", sentence, count, examples_of(ends), _NARROW + more)
