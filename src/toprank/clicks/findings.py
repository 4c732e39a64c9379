"""Findings in a click log: sentences, each with counts and a remedy.

Nothing is dropped here. What reading could not use was counted then (`ClickLog.left_out`) and is reported again; what
models refuse (several documents at one position) is a problem; everything else is for the reader to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from toprank.clicks.context_findings import of_contexts, resolved
from toprank.clicks.contexts import Context, filled
from toprank.clicks.events import UNSHOWN
from toprank.clicks.harvests import SWAP, Graph, Propensities
from toprank.clicks.log import TOLD_AGAIN, ClickLog, numbered, sums
from toprank.clicks.models import WITHOUT_DOUBLED
from toprank.clicks.recency import moment, seconds_of
from toprank.clicks.sources import TORN
from toprank.clicks.values import AGAIN, EARLY, OVERRETURNED, UNCLICKED, UNVALUED
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.doctor.findings import Finding, Severity, about_some, agreeing, examples_of
from toprank.errors import DataError, Remedy, joined
from toprank.showing.tables import bracketed

Mask = npt.NDArray[np.bool_]
_SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
_LEAST_CLICKS = 5  # of a session or user that is suspected
_UNLIKELY = 1e-6
_WIDE = 0.5  # an interval wider than this share of its propensity tells little
_FEW = 10  # queries, which tell little of how queries differ
_SOME = 20  # lists that end alike by design and not by chance
_ODD, _DAY = 1000, 86_400.0  # one session in so many may be dated wrong; and a log may pause for a day


def sessions_needed(log: ClickLog, estimate: Propensities | None, width: float) -> int | None:
    """Return about how many sessions make all intervals narrower than this share of their propensity; None if unknown.

    Where the log tells propensities, their intervals shrink as 1/√sessions. Where it does not, as many as with
    neighbours swapped among the first ten in one list of twenty: the logarithm of the ratio of two neighbours has then
    the variance ¼ (1/clicks of the one + 1/clicks of the other) of swapped lists, and ratios add up to the last place.
    """
    if estimate is None or not estimate.identified[1:].any():
        rates = _rates(log)[1 : _SWAPPED + 1]
        if len(rates) < 2 or not (rates > 0).all():
            return None
        steps = 0.25 * (1 / rates[:-1] + 1 / rates[1:])
        return round((len(rates) - 1) / _SHARE * float(steps.sum()) * (2 * _NORMAL / width) ** 2)
    low, high = estimate.intervals
    with np.errstate(invalid="ignore", divide="ignore"):
        wider = ((high - low) / (width * estimate.values))[estimate.identified]
    wider = wider[np.isfinite(wider)]
    return round(log.n_sessions * float(wider.max()) ** 2) if len(wider) and wider.max() > 0 else None


_SWAPPED, _SHARE, _NORMAL = 10, 0.05, 1.96  # as `serve` explores, and the quantile of 95 %


def found_in(
    log: ClickLog, data: RankingData | None, graph: Graph, estimate: Propensities | None, width: float = _WIDE,
    context: Context | None = None, seed: int = 0,
) -> tuple[Finding, ...]:  # fmt: skip
    """Everything, worst first."""
    findings = [
        *_of_reading(log),
        *_of_lists(log, resolved(log, context)),
        *_of_clicks(log),
        *_one_sided(log),
        *_of_robots(log),
        *_of_versions(log),
        *_of_times(log),
        *of_contexts(log, context, seed),
    ]
    findings += [*_of_positions(log, graph, estimate, width), *(_of_features(log, data) if data is not None else ())]
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


def _names(log: ClickLog, sessions: Mask) -> Iterator[str]:
    chosen = np.flatnonzero(sessions)
    return (f"session {name}" for name in log.session_names[chosen[:10]].tolist())


def _some_sessions(
    log: ClickLog, which: Mask, code: str, severity: Severity, predicate: str, remedy: str
) -> Iterator[Finding]:
    count = int(np.count_nonzero(which))
    return about_some(
        code, severity, count, log.n_sessions, f"session|sessions {predicate}", _names(log, which), remedy
    )


def _any(log: ClickLog, impressions: Mask) -> Mask:
    """The sessions of some impressions."""
    sessions = np.zeros(log.n_sessions, dtype=bool)
    sessions[log.session[impressions]] = True
    return sessions


_RETURNS = "Look at what writes returns: each must say how much comes back, as a number above 0."
_WORDS_OF_KINDS = {
    TOLD_AGAIN: (
        "repeated-impressions",
        "They count once, as clicked if any copy was. Find out why they are logged twice.",
    ),
    UNSHOWN: (
        "impossible-clicks",
        "These clicks are not counted: check that lists are logged whole, and before their clicks.",
    ),
    TORN: ("torn-lines", "Each was the last of its file, and is left out; nothing else is lost."),
    AGAIN: ("repeated-events", "Where an event may happen twice, give each an id."),
    EARLY: ("clocks", "Events are joined to lists by ids alone, so nothing is lost; synchronise the clocks."),
    UNVALUED: ("returns", _RETURNS),
    OVERRETURNED: ("returns", _RETURNS),
    UNCLICKED: ("unclicked-values", "A value is expected to follow a click: look for clicks that are not logged."),
}
_OTHERWISE = ("left-out", "They are left out; if there are many, look at what writes the log.")


def _of_reading(log: ClickLog) -> Iterator[Finding]:
    for words, count in log.left_out.items():
        code, remedy = _WORDS_OF_KINDS.get(words, _OTHERWISE)
        yield Finding(code, "warning", f"{words[0].upper()}{words[1:]}: {count:,}.", count, (), remedy)


def _of_lists(log: ClickLog, told_apart: bool) -> Iterator[Finding]:
    """Positions that are doubled or missing, and documents that are repeated."""
    predicate = "has|have several documents at one position"
    remedy = joined("Models refuse them:", WITHOUT_DOUBLED)
    if not told_apart:
        yield from _some_sessions(log, log.doubled, "doubled-positions", "problem", predicate, remedy)
    inside = np.diff(log.session) == 0
    jump = np.append(inside & (np.diff(log.position) > 1), False)
    predicate = "has|have gaps between positions"
    remedy = "Positions are kept as they are; click models assume that nothing was shown in the gaps."
    yield from _some_sessions(log, _any(log, jump), "gaps", "warning", predicate, remedy)
    late = log.position[log.offsets[:-1]] > 1
    predicate = "begins|begin below the first position"
    remedy = (
        "These are later pages, or lists logged in part; cascade models assume that their first document was looked at."
    )
    yield from _some_sessions(log, late, "late-start", "warning", predicate, remedy)
    key = np.sort(log.session * np.int64(log.n_pairs) + log.pair)
    repeated = key[1:][np.diff(key) == 0] // log.n_pairs
    sessions = np.zeros(log.n_sessions, dtype=bool)
    sessions[repeated] = True
    predicate = "shows|show a document at several positions"
    remedy = "Each counts as an impression of its own; no model knows that the user has seen it above."
    yield from _some_sessions(log, sessions, "repeated-documents", "warning", predicate, remedy)


def _of_clicks(log: ClickLog) -> Iterator[Finding]:
    """Too few, too many, or without anything that could have been clicked."""
    total = int(log.clicks.sum())
    if total == 0:
        remedy = "Check that the right column was read as the click; nothing can be learnt without clicks."
        yield Finding("no-clicks", "problem", "Nothing was clicked.", log.n_impressions, (), remedy)
        return
    if total == log.n_impressions:
        remedy = "Also log what was shown and not clicked; without it no click rate can be known."
        yield Finding("only-clicks", "problem", "Everything that was shown was clicked.", total, (), remedy)
        return
    predicate = "is|are without a click"
    remedy = "Keep them: a list that nobody clicks says as much as one that is clicked."
    count = int((log.session_clicks == 0).sum())
    words = f"session|sessions {predicate}"
    yield from about_some("sessions-without-clicks", "note", count, log.n_sessions, words, (), remedy)
    predicate = "has|have several clicks"
    remedy = "The cascade model allows one click per list and ends the list there; use a model that allows several."
    yield from _some_sessions(log, log.session_clicks > 1, "several-clicks", "note", predicate, remedy)
    if "dwell" in log.columns and log.columns["dwell"].dtype.kind in "iuf":
        with np.errstate(invalid="ignore"):
            dwell = np.nan_to_num(log.columns["dwell"].astype(np.float64))
        wrong = _any(log, (dwell < 0) | ((dwell > 0) & ~log.clicks))
        predicate = "has|have a dwell time that is negative, or without a click"
        yield from _some_sessions(log, wrong, "dwell", "warning", predicate, "Check the column of dwell times.")


def _rates(log: ClickLog) -> FloatArray:
    """Return the rate of clicks of each position; there is none at 0."""
    return sums(log.position, log.clicks, log.depth + 1) / np.maximum(sums(log.position, None, log.depth + 1), 1)


def _one_sided(log: ClickLog) -> Iterator[Finding]:
    """Logs that tell of clicked lists alone, or of lists down to their clicks."""
    clicked = log.session_clicks > 0
    if log.clicks.all() or not clicked.any():
        return
    with np.errstate(divide="ignore"):
        unclicked = np.exp(sums(log.session, np.log1p(-_rates(log))[log.position], log.n_sessions))
    if clicked.all() and unclicked.sum() > -np.log(_UNLIKELY):
        sentence = f"Every session has a click, where {unclicked.sum():,.0f} without one would be expected."
        remedy = "Also log lists that nobody clicked; without them all click rates are too high."
        yield Finding("clicked-sessions-alone", "warning", sentence, log.n_sessions, (), remedy)
    count = int(clicked.sum())
    if log.depth > 1 and count >= _SOME and log.clicks[log.offsets[1:] - 1][clicked].all():
        sentence = f"All {count:,} lists with a click end with a click."
        remedy = "Also log what stood below the last click: users may have looked at it without clicking."
        yield Finding("cut-lists", "warning", sentence, count, (), remedy)


def unlikely(log: ClickLog, group: IntArray, n: int) -> Mask:
    """Return which of n sessions or users click more than people do; `group` says whose each impression is.

    Those with 5 clicks or more that would happen to fewer than one in a million by Hoeffding's bound,
    exp(-n KL(clicks / n, p)), if every impression were clicked independently at twice the rate of its position (p is
    the mean of these; n the number of impressions).
    """
    expected = np.minimum(2 * _rates(log), 1 - 1e-9)[log.position]
    shown, clicked = sums(group, None, n), sums(group, log.clicks, n)
    p = sums(group, expected, n) / np.maximum(shown, 1)
    share = clicked / np.maximum(shown, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.nan_to_num(share * np.log(share / p)) + np.nan_to_num((1 - share) * np.log((1 - share) / (1 - p)))
    return np.asarray((clicked >= _LEAST_CLICKS) & (share > p) & (-shown * apart < np.log(_UNLIKELY)))


def _of_robots(log: ClickLog) -> Iterator[Finding]:
    if log.clicks.all() or not log.clicks.any():
        return
    rule = "clicks|click more than one user in a million would at twice the log's click rates"
    remedy = "Look at them, and leave out robots and tests."
    which = unlikely(log, log.session, log.n_sessions)
    yield from _some_sessions(log, which, "suspect-sessions", "warning", rule, remedy)
    if "user" in log.columns:
        column = log.columns["user"]
        users = numbered(column[known := filled(column)])
        group = np.full(log.n_impressions, len(users.ids))  # rows of nobody are no user
        group[known] = users.number
        which = unlikely(log, group, len(users.ids) + 1)[:-1]
        count, examples = int(which.sum()), (f"user {user}" for user in users.ids[which])
        words = f"user|users {rule}"
        yield from about_some("suspect-users", "warning", count, len(users.ids), words, examples, remedy)


def _of_versions(log: ClickLog) -> Iterator[Finding]:
    """Models that were replaced within the log; both of an interleaved list are one version here."""
    if "version" not in log.columns:
        return
    column = log.columns["version"][log.offsets[:-1]]
    versions = numbered(column[filled(column)])
    if len(versions.ids) < 2:
        return
    sessions = np.bincount(versions.number)
    often = np.argsort(-sessions, kind="stable").tolist()
    examples = examples_of(
        f"{versions.ids[version]}: {sessions[version]:,} {agreeing(int(sessions[version]), 'session|sessions')}"
        for version in often
    )
    sentence = f"Lists were ranked by {len(often):,} versions of models."
    remedy = (
        "Several orders help to separate positions from documents. To see what one model brought, keep only the "
        "sessions of its version, by the column 'version'."
    )
    yield Finding("several-versions", "note", sentence, len(often), examples, remedy)


def _of_times(log: ClickLog) -> Iterator[Finding]:
    """Sessions without a time, far ahead of all others, or earlier than the one before them."""
    if "time" not in log.columns:
        return
    try:
        times = seconds_of(log, "time")
    except DataError as problem:
        remedy = "Sessions are weighed by their age, and the latest held out, by this column."
        yield Finding("times", "warning", str(problem), log.n_sessions, (), remedy)
        return
    dated = np.isfinite(times)
    remedy = "Commands and methods that go by time refuse them: leave them out, or give them a time."
    if dated.any():
        yield from _some_sessions(log, ~dated, "times", "warning", "has|have no time", remedy)
    order = np.sort(times[dated])
    most = len(order) // _ODD
    if most:
        gaps = np.diff(order[-most - 1 :])
        if gaps.max() > order[-most - 1] - order[0] + _DAY:
            border = order[-most - 1 + int(np.argmax(gaps)) + 1]
            predicate = f"is|are dated {moment(float(border))} or later, far ahead of all others"
            remedy = (
                "A clock was probably wrong: leave them out, otherwise all others count as old wherever age matters."
            )
            yield from _some_sessions(log, dated & (times >= border), "clocks", "warning", predicate, remedy)
    if log.session_ids is None:
        earlier = np.append(False, np.diff(times) < 0)
        predicate = "is|are earlier than the one before in the log"
        remedy = (
            "A clock went back, or the log is not in order of time. This does no harm: whatever goes by time uses the "
            "column."
        )
        yield from _some_sessions(log, earlier, "clocks", "note", predicate, remedy)


def _of_positions(log: ClickLog, graph: Graph, estimate: Propensities | None, width: float) -> Iterator[Finding]:
    """Which positions can be compared, and how well."""
    shown, clicked = (
        np.bincount(where, minlength=log.depth + 1)[1:] for where in (log.position, log.position[log.clicks])
    )
    if log.clicks.any():
        never = np.flatnonzero((shown > 0) & (clicked == 0)) + 1
        remedy = (
            "As far as the log can say nobody looks there, and nothing can be divided by a propensity of 0: log more "
        )
        remedy = joined(f"{remedy}sessions, or train with a least propensity,", Remedy("{clip}.", clip=...))
        words, names = "position|positions was|were never clicked", (f"position {k}" for k in never)
        yield from about_some("unclicked-positions", "warning", len(never), log.depth, words, names, remedy)
    if log.depth == 1:
        return
    below = int(shown[graph.depth :].sum())
    remedy = "They stay in the log, but are not compared with others here."
    words = f"impression|impressions stands|stand below position {graph.depth:,}"
    yield from about_some("deep-positions", "warning", below, log.n_impressions, words, (), remedy)
    if not graph.edges:
        sentence = "No document was shown at two positions: one ranker showed the same order every time."
        needed = sessions_needed(log, None, width)
        remedy = f"The effects of position and relevance cannot be separated. {SWAP}"
        if needed:
            remedy += (
                f" With neighbours swapped in {_SHARE:.0%} of the lists, about {needed:,} sessions make intervals of "
                f"propensities narrower than {width:.0%} of them."
            )
        yield Finding("one-order", "problem", sentence, log.n_pairs, (), remedy)
    else:
        apart = np.flatnonzero(~graph.identified & (shown[: graph.depth] > 0)) + 1
        words = "position|positions shares|share no document with those that are connected to the first"
        remedy = f"The log does not say how likely users look at them. {SWAP}"
        names = (f"position {k}" for k in apart)
        yield from about_some("unjoined-positions", "warning", len(apart), log.depth, words, names, remedy)
    if estimate is None:
        return
    count = len(np.unique(log.session_query))
    if count < _FEW:
        sentence = f"The log has {count} {agreeing(count, 'query|queries')}."
        remedy = (
            "Intervals come from the differences between queries, and so few queries make them wide. Log more queries."
        )
        if count == 1:
            remedy = "Intervals come from the differences between queries, so there are none. Log more queries."
        yield Finding("few-queries", "warning", sentence, count, (), remedy)
    low, high = estimate.intervals
    with np.errstate(invalid="ignore"):
        wide = estimate.identified & (high - low > width * estimate.values)
    count = int(wide.sum())
    if count:
        ends = (f"position {k + 1}: {bracketed(low[k], high[k])}" for k in np.flatnonzero(wide))
        noun = agreeing(count, "position|positions")
        part = "half" if width == _WIDE else f"{width:.0%}"
        sentence = f"The propensity of {count} {noun} has an interval that is wider than {part} of it."
        needed = sessions_needed(log, estimate, width)
        more = f" About {needed:,} sessions like these would be enough." if needed else ""
        yield Finding("wide-intervals", "warning", sentence, count, examples_of(ends), SWAP + more)


def _of_features(log: ClickLog, data: RankingData) -> Iterable[Finding]:
    shown = np.bincount(log.pair, minlength=log.n_pairs) > 0
    missing = shown & (log.rows(data) < 0)
    queries = log.qids[log.pair_query[missing]][:10].tolist()
    documents = log.document_ids[missing][:10].tolist()
    examples = (f"{document} of query {query}" for query, document in zip(queries, documents, strict=True))
    lost = int(missing[log.pair].sum())
    words = f"document|documents of the log has|have no row in the data, {lost:,} impressions of them"
    remedy = "Nothing can be learnt from them; check that queries and documents have the same ids on both sides."
    return about_some("no-features", "warning", int(missing.sum()), int(shown.sum()), words, examples, remedy)
