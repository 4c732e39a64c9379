"""What a click log can and cannot tell, in sentences, each with counts and a remedy.

Nothing is dropped here. What reading could not use was counted then (`ClickLog.left_out`) and is told again; what
models refuse (several documents at one position) is a problem; everything else is said, and left to who reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.clicks.intervals import in_words, plain
from toprank.clicks.log import ClickLog
from toprank.clicks.models import WITHOUT_DOUBLED, sums
from toprank.clicks.propensities import Graph, Propensities, graph, harvested
from toprank.compute import IntArray
from toprank.data.checks import check_whole
from toprank.data.dataset import RankingData
from toprank.doctor.findings import Finding, Severity, about_some, agreeing, examples_of
from toprank.errors import DataError, joined
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of

__all__ = ["LogReport", "check"]

Mask = npt.NDArray[np.bool_]
_SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
_LEAST_CLICKS = 5  # of a session or user that is suspected
_UNLIKELY = 1e-6
_WIDE = 0.5  # an interval wider than this share of its propensity tells little


@dataclass(frozen=True, repr=False)
class LogReport(Shown):
    """What was found, worst first; and how far the log can tell positions apart.

    Attributes:
        sizes: numbers of sessions, impressions, clicks, queries, documents and positions.
        findings: sentences with counts and remedies.
        graph: which positions share documents.
        impressions: of each position.
        clicks: of each position.
        propensities: how likely positions are looked at, with intervals; None where nothing was clicked.
    """

    sizes: dict[str, int]
    findings: tuple[Finding, ...]
    graph: Graph
    impressions: IntArray
    clicks: IntArray
    propensities: Propensities | None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON; what is not known is None."""
        columns = self._columns()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {
            "log": self.sizes,
            "findings": [asdict(one) | {"examples": list(one.examples)} for one in self.findings],
            "positions": rows,
            "components": [list(one) for one in self.graph.components],
            "edges": [edge._asdict() for edge in self.graph.edges],
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
            **{name: plain(column.tolist()) for name, column in (("propensity", values), ("low", low), ("high", high))},
        }

    def table(self) -> Table:
        """One row for each position, in words."""
        columns = self._columns()
        rows = []
        for k, shown, clicked, swaps, identified, value, low, high in zip(*columns.values(), strict=True):
            rate = f"{clicked / shown:.3f}" if shown else "—"
            known = ("—", "") if not identified or value is None else (f"{value:.3f}", in_words(low, high))
            rows.append((str(k), f"{shown:,}", rate, f"{swaps:,}", *known))
        level = "interval" if self.propensities is None else f"{self.propensities.confidence:.0%} interval"
        return Table(("position", "impressions", "click rate", "also at the next", "propensity", level), rows, names=0)

    def _parts(self) -> Sequence[Part]:
        found = tuple(str(one) for one in self.findings)
        said = ", ".join(f"{count:,} {name}" for name, count in self.sizes.items())
        return [said[0].upper() + said[1:] + ".", found or "Nothing was found.", self.table()]


def check(log: ClickLog, data: RankingData | None = None, *, resamples: int = 100, seed: int = 0) -> LogReport:
    """Examine a click log; with `data`, also whether they have features of what was shown.

    Args:
        log: the log.
        data: queries and documents with ids.
        resamples: how often queries are drawn again for the intervals of the propensities.
        seed: of that.

    >>> log = ClickLog.of(["q"] * 4, ["a", "b", "a", "b"], [1, 2, 1, 2], [0, 0, 0, 0])
    >>> [finding.code for finding in check(log).findings]
    ['no-clicks', 'one-order']
    """
    if not isinstance(log, ClickLog):
        raise DataError(f"check examines a ClickLog (tr.clicks.read), not a {type(log).__name__}.")
    if log.n_impressions == 0:
        raise DataError("The log has no impressions.")
    check_whole("resamples", resamples, 2)
    found = graph(log)
    shown = np.bincount(log.position, minlength=log.depth + 1)[1:]
    clicked = np.bincount(log.position[log.clicks], minlength=log.depth + 1)[1:]
    known = harvested(log, resamples=resamples, seed=seed) if log.clicks.any() and found.edges else None
    findings = [*_of_reading(log), *_of_lists(log), *_of_clicks(log), *_of_robots(log)]
    findings += [*_of_positions(log, found, known), *(_of_features(log, data) if data is not None else ())]
    findings.sort(key=lambda one: _SEVERITIES.index(one.severity))
    sizes = {"sessions": log.n_sessions, "impressions": log.n_impressions, "clicks": int(log.clicks.sum())}
    sizes |= {"queries": len(np.unique(log.session_query)), "documents": len(np.unique(log.pair))}
    sizes |= {"positions": log.depth}
    return LogReport(sizes, tuple(findings), found, shown, clicked, known)


def _names(log: ClickLog, sessions: Mask) -> Iterator[str]:
    chosen = np.flatnonzero(sessions)
    ids = chosen if log.session_ids is None else log.session_ids[chosen]
    return (f"session {one}" for one in ids[:10].tolist())


def _some_sessions(
    log: ClickLog, which: Mask, code: str, severity: Severity, what: str, remedy: str
) -> Iterator[Finding]:
    count = int(np.count_nonzero(which))
    return about_some(code, severity, count, log.n_sessions, f"session|sessions {what}", _names(log, which), remedy)


def _any(log: ClickLog, impressions: Mask) -> Mask:
    """The sessions of some impressions."""
    found = np.zeros(log.n_sessions, dtype=bool)
    found[log.session[impressions]] = True
    return found


def _of_reading(log: ClickLog) -> Iterator[Finding]:
    for words, count in log.left_out.items():
        remedy = "They are not in the log; look at what writes it where they are many."
        yield Finding("left-out", "warning", f"{count:,} {words}.", count, (), remedy)


def _of_lists(log: ClickLog) -> Iterator[Finding]:
    """Positions that are doubled or missing, and documents that are repeated."""
    what = "has|have several documents at one position"
    remedy = joined("Models refuse them:", WITHOUT_DOUBLED)
    yield from _some_sessions(log, log.doubled, "doubled-positions", "problem", what, remedy)
    inside = np.diff(log.session) == 0
    jump = np.append(inside & (np.diff(log.position) > 1), False)
    what = "has|have gaps between positions"
    remedy = "Positions stay what they are; users who read from the top are taken to have skipped nothing there."
    yield from _some_sessions(log, _any(log, jump), "gaps", "warning", what, remedy)
    late = log.position[log.offsets[:-1]] > 1
    what = "begins|begin below the first position"
    remedy = "Later pages, or lists logged in part: cascades take their first document for looked at."
    yield from _some_sessions(log, late, "late-start", "warning", what, remedy)
    key = np.sort(log.session * np.int64(log.n_pairs) + log.pair)
    again = key[1:][np.diff(key) == 0] // log.n_pairs
    which = np.zeros(log.n_sessions, dtype=bool)
    which[again] = True
    what = "shows|show a document at several positions"
    remedy = "Each counts as an impression; that it was seen above is in no model."
    yield from _some_sessions(log, which, "repeated-documents", "warning", what, remedy)


def _of_clicks(log: ClickLog) -> Iterator[Finding]:
    """Too few, too many, or without anything that could have been clicked."""
    total = int(log.clicks.sum())
    if total == 0:
        remedy = "Check that the right column was read as the click; nothing can be learnt from it."
        yield Finding("no-clicks", "problem", "Nothing was clicked.", log.n_impressions, (), remedy)
        return
    if total == log.n_impressions:
        remedy = "Log what was shown and not clicked, too: without it no rate can be known."
        yield Finding("only-clicks", "problem", "Everything that was shown was clicked.", total, (), remedy)
        return
    by_session = sums(log.session, log.clicks, log.n_sessions)
    what = "is|are without a click"
    remedy = "Keep them: a list that nobody clicks says as much as one that somebody does."
    count = int((by_session == 0).sum())
    words = f"session|sessions {what}"
    yield from about_some("sessions-without-clicks", "note", count, log.n_sessions, words, (), remedy)
    what = "has|have several clicks"
    remedy = "The cascade model holds them for impossible and cuts them at the first; others explain them."
    yield from _some_sessions(log, by_session > 1, "several-clicks", "note", what, remedy)
    if "dwell" in log.columns and log.columns["dwell"].dtype.kind in "iuf":
        with np.errstate(invalid="ignore"):
            dwell = np.nan_to_num(log.columns["dwell"].astype(np.float64))
        wrong = _any(log, (dwell < 0) | ((dwell > 0) & ~log.clicks))
        what = "has|have a dwell time that is negative, or without a click"
        yield from _some_sessions(log, wrong, "dwell", "warning", what, "Check the column of dwell times.")


def unlikely(log: ClickLog, group: IntArray, n: int) -> Mask:
    """Which sessions or users click more than people do, `group` telling them apart.

    Those with 5 clicks or more that would happen to fewer than one in a million by Hoeffding's bound,
    exp(-n KL(clicks / n, p)), if every impression were clicked independently at twice the rate of its position (p is
    the mean of these; n the number of impressions).
    """
    rate = sums(log.position, log.clicks, log.depth + 1) / np.maximum(sums(log.position, None, log.depth + 1), 1)
    expected = np.minimum(2 * rate, 1 - 1e-9)[log.position]
    shown, clicked = sums(group, None, n), sums(group, log.clicks, n)
    p = sums(group, expected, n) / np.maximum(shown, 1)
    share = clicked / np.maximum(shown, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.nan_to_num(share * np.log(share / p)) + np.nan_to_num((1 - share) * np.log((1 - share) / (1 - p)))
    return np.asarray((clicked >= _LEAST_CLICKS) & (share > p) & (-shown * apart < np.log(_UNLIKELY)))


def _of_robots(log: ClickLog) -> Iterator[Finding]:
    if log.clicks.all() or not log.clicks.any():
        return
    rule = "clicks|click more than one in a million would at twice the rates of the log"
    remedy = "Look at them, and leave out what robots and tests did."
    which = unlikely(log, log.session, log.n_sessions)
    yield from _some_sessions(log, which, "suspect-sessions", "warning", rule, remedy)
    if "user" in log.columns:
        users, of_row = np.unique(log.columns["user"].astype(str), return_inverse=True)
        which = unlikely(log, of_row.reshape(-1), len(users))
        count, examples = int(which.sum()), (f"user {one}" for one in users[which])
        words = f"user|users {rule}"
        yield from about_some("suspect-users", "warning", count, len(users), words, examples, remedy)


_SWAP = "Swap neighbours, or shuffle the top for a share of the sessions: then the log can tell."


def _of_positions(log: ClickLog, found: Graph, known: Propensities | None) -> Iterator[Finding]:
    """Which positions can be compared, and how well."""
    if log.depth == 1:
        return
    if not found.edges:
        sentence = "No document was shown at two positions: one ranker, always in the same order."
        remedy = f"Position and relevance cannot be told apart. {_SWAP}"
        yield Finding("one-order", "problem", sentence, log.n_pairs, (), remedy)
        return
    apart = np.flatnonzero(~found.identified & (np.bincount(log.position, minlength=log.depth + 1)[1:] > 0)) + 1
    words = "position|positions shares|share no document with those that are joined to the first"
    remedy = f"How likely they are looked at is not in the log. {_SWAP}"
    names = (f"position {k}" for k in apart)
    yield from about_some("unjoined-positions", "warning", len(apart), log.depth, words, names, remedy)
    if known is None:
        return
    if (queries := len(np.unique(log.session_query))) < 2:
        sentence = "All sessions are of one query, and intervals are over queries: none can be given."
        yield Finding("one-query", "warning", sentence, queries, (), "Log other queries, too.")
        return
    low, high = known.intervals
    with np.errstate(invalid="ignore"):
        wide = known.identified & ((high - low > _WIDE * known.values) | np.isnan(high))
    wide[0] = False
    count = int(wide.sum())
    if count:
        shown = (f"position {k + 1}: {in_words(low[k], high[k])}" for k in np.flatnonzero(wide))
        noun = agreeing(count, "position|positions")
        sentence = f"The propensity of {count} {noun} has an interval that is wider than half of it."
        yield Finding("wide-intervals", "warning", sentence, count, examples_of(shown), _SWAP)


def _of_features(log: ClickLog, data: RankingData) -> Iterable[Finding]:
    shown = np.bincount(log.pair, minlength=log.n_pairs) > 0
    missing = shown & (log.rows(data) < 0)
    queries = log.qids[log.pair_query[missing]][:10].tolist()
    documents = log.document_ids[missing][:10].tolist()
    examples = (f"{document} of query {query}" for query, document in zip(queries, documents, strict=True))
    lost = int(missing[log.pair].sum())
    words = f"document|documents of the log has|have no row in the data, {lost:,} impressions of them"
    remedy = "They cannot be learnt from; check that queries and documents have the same ids on both sides."
    return about_some("no-features", "warning", int(missing.sum()), int(shown.sum()), words, examples, remedy)
