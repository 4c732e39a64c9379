"""Findings in a click log: sentences with counts and remedies.

Nothing is dropped here. Rows that could not be read were counted then (`ClickLog.dropped`) and are reported again.
Sessions that models refuse, with several documents at one position, are problems; all other findings are warnings or
notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from toprank.clicks.contexts import Context, Contexts, changes_looks, columns_of, contexts_of, differ, filled
from toprank.clicks.events import UNSHOWN
from toprank.clicks.log import DUPLICATE_IMPRESSIONS, TRUNCATED_LINES, ClickLog, numbered, sums
from toprank.clicks.models import DROP_DUPLICATE_POSITIONS
from toprank.clicks.recency import moment, seconds_of
from toprank.clicks.values import AGAIN, EARLY, OVERRETURNED, UNCLICKED, UNVALUED
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.doctor.findings import Finding, Severity, examples_of, finding_about, inflected
from toprank.errors import DataError, Remedy, UnknownNameError, join_parts

Mask = npt.NDArray[np.bool_]
_MIN_SUSPICIOUS_CLICKS = 5  # fewer clicks of a session or user are never suspicious
_MAX_CHANCE_PROBABILITY = 1e-6
_MIN_LISTS_ENDING_ALIKE = 20  # fewer lists may end with a click by chance
_SESSIONS_PER_WRONG_DATE, _MAX_GAP_SECONDS = (
    1000,
    86_400.0,
)  # tolerated rate of wrong dates, and tolerated pause


def of_log(log: ClickLog, context: Context | None, seed: int) -> Iterator[Finding]:
    """Examine the log itself."""
    yield from _of_reading(log)
    yield from _of_lists(log, context is not None and _told_apart(log, contexts_of(log, columns_of(context))))
    yield from _of_clicks(log)
    yield from _one_sided(log)
    yield from _of_robots(log)
    yield from _of_versions(log)
    yield from _of_times(log)
    yield from _of_contexts(log, context, seed)


def _some_sessions(
    log: ClickLog, which: Mask, code: str, severity: Severity, predicate: str, remedy: str
) -> Iterator[Finding]:
    chosen = np.flatnonzero(which)
    names = (f"session {name}" for name in log.session_names[chosen[:10]].tolist())
    return finding_about(code, severity, len(chosen), log.n_sessions, f"session|sessions {predicate}", names, remedy)


def _members(numbers: IntArray, n: int) -> Mask:
    """Return whether each of n numbers occurs."""
    return np.bincount(numbers, minlength=n) > 0


_RETURNS = "Check the source of returns: each must state the returned value, as a number above 0."
_WORDS_OF_KINDS = {
    DUPLICATE_IMPRESSIONS: (
        "repeated-impressions",
        "They count once, as clicked if any copy was. Check why they are logged twice.",
    ),
    UNSHOWN: (
        "impossible-clicks",
        "These clicks are ignored. Check that lists are logged completely, and before their clicks.",
    ),
    TRUNCATED_LINES: (
        "truncated-lines",
        "Each was the last line of its file and is dropped; no other line is affected.",
    ),
    AGAIN: ("repeated-events", "If an event can happen twice, give each an id."),
    EARLY: ("clocks", "Events are joined to lists by id, so none is lost. Synchronize the clocks."),
    UNVALUED: ("returns", _RETURNS),
    OVERRETURNED: ("returns", _RETURNS),
    UNCLICKED: ("unclicked-values", "Values should follow clicks. Check for clicks that are not logged."),
}
_OTHERWISE = ("dropped-records", "They are dropped. If there are many, check the source of the log.")


def _of_reading(log: ClickLog) -> Iterator[Finding]:
    for words, count in log.dropped.items():
        code, remedy = _WORDS_OF_KINDS.get(words, _OTHERWISE)
        yield Finding(code, "warning", f"{words[0].upper()}{words[1:]}: {count:,}.", count, (), remedy)


def _of_lists(log: ClickLog, told_apart: bool) -> Iterator[Finding]:
    """Report duplicate or missing positions, and repeated documents."""
    if not told_apart:
        yield from _some_sessions(
            log, log.has_duplicate_positions, "duplicate-positions", "problem",
            "has|have several documents at one position",
            join_parts("Click models do not accept them:", DROP_DUPLICATE_POSITIONS),
        )  # fmt: skip
    inside = np.diff(log.session) == 0
    jump = np.append(inside & (np.diff(log.position) > 1), False)
    yield from _some_sessions(
        log, _members(log.session[jump], log.n_sessions), "gaps", "warning", "has|have gaps between positions",
        "Positions are unchanged; click models assume that the gaps showed nothing.",
    )  # fmt: skip
    yield from _some_sessions(
        log, log.position[log.offsets[:-1]] > 1, "late-start", "warning", "begins|begin below the first position",
        "These are later pages, or incompletely logged lists; chain models assume that users examined their first "
        "document.",
    )  # fmt: skip
    key = np.sort(log.session * np.int64(log.n_pairs) + log.pair)
    repeated = key[1:][np.diff(key) == 0] // log.n_pairs
    yield from _some_sessions(
        log, _members(repeated, log.n_sessions), "repeated-documents", "warning",
        "shows|show a document at several positions",
        "Each counts as a separate impression; models ignore that the user has seen the document above.",
    )  # fmt: skip


def _of_clicks(log: ClickLog) -> Iterator[Finding]:
    """Report too few or too many clicks, and clicks without impressions."""
    total = int(log.clicks.sum())
    if total == 0:
        yield Finding(
            "no-clicks", "problem", "The log has no clicks.", log.n_impressions, (),
            "Check which column was read as the click.",
        )  # fmt: skip
        return
    if total == log.n_impressions:
        yield Finding(
            "only-clicks", "problem", "Every impression was clicked.", total, (),
            "Also log impressions without a click; click rates are unknown without them.",
        )  # fmt: skip
        return
    yield from finding_about(
        "sessions-without-clicks", "note", int((log.session_clicks == 0).sum()), log.n_sessions,
        "session|sessions is|are without a click", (),
        "Keep them: lists without clicks are as informative as lists with clicks.",
    )  # fmt: skip
    yield from _some_sessions(
        log, log.session_clicks > 1, "several-clicks", "note", "has|have several clicks",
        "The cascade model allows one click per list; use a model that allows several.",
    )  # fmt: skip
    if "dwell" in log.columns and log.columns["dwell"].dtype.kind in "iuf":
        with np.errstate(invalid="ignore"):
            dwell = np.nan_to_num(log.columns["dwell"].astype(np.float64))
        wrong = (dwell < 0) | ((dwell > 0) & ~log.clicks)
        yield from _some_sessions(
            log, _members(log.session[wrong], log.n_sessions), "dwell", "warning",
            "has|have a dwell time that is negative, or without a click", "Check the column of dwell times.",
        )  # fmt: skip


def click_rates(log: ClickLog) -> FloatArray:
    """Return the click rate of each position; the entry of position 0 is empty."""
    return sums(log.position, log.clicks, log.depth + 1) / np.maximum(sums(log.position, None, log.depth + 1), 1)


def _one_sided(log: ClickLog) -> Iterator[Finding]:
    """Report logs of clicked lists only, or of lists only down to their clicks."""
    clicked = log.session_clicks > 0
    if log.clicks.all() or not clicked.any():
        return
    with np.errstate(divide="ignore"):
        unclicked = np.exp(sums(log.session, np.log1p(-click_rates(log))[log.position], log.n_sessions))
    if clicked.all() and unclicked.sum() > -np.log(_MAX_CHANCE_PROBABILITY):
        sentence = f"Every session has a click, although {unclicked.sum():,.0f} without one would be expected."
        yield Finding(
            "clicked-sessions-alone", "warning", sentence, log.n_sessions, (),
            "Also log lists without clicks; all click rates are too high without them.",
        )  # fmt: skip
    count = int(clicked.sum())
    if log.depth > 1 and count >= _MIN_LISTS_ENDING_ALIKE and log.clicks[log.offsets[1:] - 1][clicked].all():
        yield Finding(
            "cut-lists", "warning", f"All {count:,} lists with a click end with a click.", count, (),
            "Also log the documents below the last click, which users may have examined without clicking.",
        )  # fmt: skip


def unlikely(log: ClickLog, group: IntArray, n: int) -> Mask:
    """Return which of n sessions or users click implausibly often; `group` holds the session or user of each
    impression.

    A member is returned if it has at least 5 clicks, and so many would have a probability below one in a million if
    every impression were clicked independently at twice the rate of its position. The probability is Hoeffding's bound
    exp(-n KL(clicks / n, p)), with the number n of impressions and the mean p of the doubled rates.
    """
    expected = np.minimum(2 * click_rates(log), 1 - 1e-9)[log.position]
    shown, clicked = sums(group, None, n), sums(group, log.clicks, n)
    p = sums(group, expected, n) / np.maximum(shown, 1)
    share = clicked / np.maximum(shown, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.nan_to_num(share * np.log(share / p)) + np.nan_to_num((1 - share) * np.log((1 - share) / (1 - p)))
    return np.asarray(
        (clicked >= _MIN_SUSPICIOUS_CLICKS) & (share > p) & (-shown * apart < np.log(_MAX_CHANCE_PROBABILITY))
    )


def _of_robots(log: ClickLog) -> Iterator[Finding]:
    if log.clicks.all() or not log.clicks.any():
        return
    rule = "clicks|click more than one user in a million would at twice the log's click rates"
    remedy = "Check them, and drop robots and tests."
    which = unlikely(log, log.session, log.n_sessions)
    yield from _some_sessions(log, which, "suspect-sessions", "warning", rule, remedy)
    if "user" in log.columns:
        column = log.columns["user"]
        users = numbered(column[known := filled(column)])
        group = np.full(log.n_impressions, len(users.ids))  # rows without a user
        group[known] = users.number
        which = unlikely(log, group, len(users.ids) + 1)[:-1]
        yield from finding_about(
            "suspect-users", "warning", int(which.sum()), len(users.ids), f"user|users {rule}",
            (f"user {user}" for user in users.ids[which]), remedy,
        )  # fmt: skip


def _of_versions(log: ClickLog) -> Iterator[Finding]:
    """Report models that were replaced within the log; the two models of an interleaved list count as one version."""
    if "version" not in log.columns:
        return
    column = log.columns["version"][log.offsets[:-1]]
    versions = numbered(column[filled(column)])
    if len(versions.ids) < 2:
        return
    sessions = np.bincount(versions.number)
    often = np.argsort(-sessions, kind="stable").tolist()
    examples = examples_of(
        f"{versions.ids[version]}: {sessions[version]:,} {inflected(int(sessions[version]), 'session|sessions')}"
        for version in often
    )
    yield Finding(
        "several-versions", "note", f"Lists were ranked by {len(often):,} versions of models.", len(often), examples,
        "Several orders help to separate positions from documents. To see what one model brought, keep only the "
        "sessions of its version, by the column 'version'.",
    )  # fmt: skip


def _of_times(log: ClickLog) -> Iterator[Finding]:
    """Report sessions without a time, far ahead of all others, or earlier than the previous one."""
    if "time" not in log.columns:
        return
    try:
        times = seconds_of(log, "time")
    except DataError as problem:
        remedy = "Recency weights and held-out sessions depend on this column."
        yield Finding("times", "warning", str(problem), log.n_sessions, (), remedy)
        return
    dated = np.isfinite(times)
    yield from _some_sessions(
        log, ~dated, "times", "warning", "has|have no time",
        "Recency weights need a time for each session: drop them, or add times.",
    )  # fmt: skip
    order = np.sort(times[dated])
    most = len(order) // _SESSIONS_PER_WRONG_DATE
    if most:
        gaps = np.diff(order[-most - 1 :])
        if gaps.max() > order[-most - 1] - order[0] + _MAX_GAP_SECONDS:
            border = order[-most - 1 + int(np.argmax(gaps)) + 1]
            yield from _some_sessions(
                log, dated & (times >= border), "clocks", "warning",
                f"is|are dated {moment(float(border))} or later, far ahead of all others",
                "A clock was probably wrong. Drop them, or recency weights treat all others as old.",
            )  # fmt: skip
    if log.session_ids is None:
        yield from _some_sessions(
            log, np.append(False, np.diff(times) < 0), "clocks", "note",
            "is|are earlier than the one before in the log",
            "A clock was set back, or the log is not sorted by time. This does no harm, because times come from the "
            "column.",
        )  # fmt: skip


def of_features(log: ClickLog, data: RankingData) -> Iterable[Finding]:
    """Report documents of the log without a row in the data."""
    shown = np.bincount(log.pair, minlength=log.n_pairs) > 0
    missing = shown & (log.rows(data) < 0)
    queries = log.qids[log.pair_query[missing]][:10].tolist()
    documents = log.document_ids[missing][:10].tolist()
    examples = (f"{document} of query {query}" for query, document in zip(queries, documents, strict=True))
    lost = int(missing[log.pair].sum())
    return finding_about(
        "no-features", "warning", int(missing.sum()), int(shown.sum()),
        f"document|documents of the log has|have no row in the data, {lost:,} impressions of them", examples,
        "They are ignored in training. Check that queries and documents have the same ids in both.",
    )  # fmt: skip


# ---- contexts: columns that change propensities, and modules logged as one list ----

_NO_CONTEXTS = frozenset({
    "ranker", "explored", "time", "dwell", "user", "value", "team", "arm", "share", "propensity", "version", "score",
    "query", "document", "session", "position", "click",
})  # fmt: skip
_FAMILYWISE_LEVEL = 0.01  # of the test over all columns


def _of_contexts(log: ClickLog, context: Context | None, seed: int = 0) -> Iterator[Finding]:
    """Report columns of the log that change the propensities, or the requested one."""
    if not log.clicks.any():
        return
    columns = [column for column in log.columns if column not in _NO_CONTEXTS] if context is None else [context]
    examined = [contexts for column in columns if (contexts := _contexts(log, column, context is not None)) is not None]
    for contexts in examined:
        yield from _mixed(log, contexts)
    for contexts in examined:
        difference = differ(log, contexts, seed)
        if difference.is_known and difference.p <= _FAMILYWISE_LEVEL / len(examined):
            yield Finding(
                "contexts", "warning", changes_looks(contexts.called, difference.p), len(contexts.names),
                examples_of(contexts.names), join_parts("A single curve would be biased:", _give(contexts)),
            )  # fmt: skip


def _contexts(log: ClickLog, column: Context, asked: bool) -> Contexts | None:
    """Return the contexts of a column; None if it has none, unless it was requested."""
    try:
        contexts = contexts_of(log, column)
    except (DataError, UnknownNameError):
        if asked:
            raise
        return None
    return contexts if len(contexts.names) > 1 else None


def _told_apart(log: ClickLog, contexts: Contexts) -> bool:
    """Return whether documents at one position of a session always belong to different contexts."""
    several = np.int64(len(contexts.names))
    place = log.session * np.int64(log.depth) + log.position - 1
    return (
        bool(log.has_duplicate_positions.any())
        and len(np.unique(place * several + contexts.number)) == log.n_impressions
    )


def _mixed(log: ClickLog, contexts: Contexts) -> Iterator[Finding]:
    """Warn if modules that each number positions from 1 were logged as one list."""
    if not contexts.varies or not _told_apart(log, contexts):
        return
    count = int(log.has_duplicate_positions.sum())
    sentence = (
        f"In {count:,} of {log.n_sessions:,} sessions several documents have one position, one for each "
        f"{contexts.called}: positions start over in each, so they are not positions of one list."
    )
    remedy = join_parts("The same position is a different place in each:", _give(contexts))
    yield Finding("mixed-positions", "warning", sentence, count, examples_of(contexts.names), remedy)


def _give(contexts: Contexts) -> Remedy:
    column = contexts.columns[0] if len(contexts.columns) == 1 else list(contexts.columns)
    return Remedy("train and estimate with {context}.", context=column)
