"""What the doctor says of contexts: columns that change the curve, and modules whose positions are mixed up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from toprank.clicks.context_differences import changes_looks, differ
from toprank.clicks.contexts import Context, Contexts, columns_of, contexts_of
from toprank.clicks.log import ClickLog
from toprank.doctor.findings import Finding, examples_of
from toprank.errors import DataError, Remedy, UnknownNameError, joined

_NO_CONTEXTS = frozenset({
    "ranker", "explored", "time", "dwell", "user", "value", "team", "arm", "share", "propensity", "version", "score",
    "query", "document", "session", "position", "click",
})  # fmt: skip
"""Columns that say something else, which the log knows."""
_LEVEL = 0.01  # of the doubt that any column is found by chance


def of_contexts(log: ClickLog, context: Context | None, seed: int = 0) -> Iterator[Finding]:
    """What columns of the log say of where documents stood, or the one that is asked for."""
    if not log.clicks.any():
        return
    columns = [column for column in log.columns if column not in _NO_CONTEXTS] if context is None else [context]
    examined = [contexts for column in columns if (contexts := _contexts(log, column, context is not None)) is not None]
    for contexts in examined:
        yield from _mixed(log, contexts)
    for contexts in examined:
        difference = differ(log, contexts, seed)
        if difference.is_known and difference.p <= _LEVEL / len(examined):
            remedy = joined("A single curve would mislead there:", _give(contexts))
            names = contexts.names
            sentence = changes_looks(contexts.called, difference.p)
            yield Finding("contexts", "warning", sentence, len(names), examples_of(names), remedy)


def _contexts(log: ClickLog, column: Context, asked: bool) -> Contexts | None:
    """The contexts of a column; None where it is none, unless it was asked for."""
    try:
        contexts = contexts_of(log, column)
    except (DataError, UnknownNameError):
        if asked:
            raise
        return None
    return contexts if len(contexts.names) > 1 else None


def _told_apart(log: ClickLog, contexts: Contexts) -> bool:
    """Whether documents at one position of a session stood in different contexts, wherever there are several."""
    several = np.int64(len(contexts.names))
    place = log.session * np.int64(log.depth) + log.position - 1
    return bool(log.doubled.any()) and len(np.unique(place * several + contexts.number)) == log.n_impressions


def resolved(log: ClickLog, context: Context | None) -> bool:
    """Whether the context that is asked for tells apart what stands at one position."""
    return context is not None and _told_apart(log, contexts_of(log, columns_of(context)))


def _mixed(log: ClickLog, contexts: Contexts) -> Iterator[Finding]:
    """Modules that count from 1 each, told as positions of one list."""
    if not contexts.varies or not _told_apart(log, contexts):
        return
    count = int(log.doubled.sum())
    sentence = (
        f"In {count:,} of {log.n_sessions:,} sessions several documents stand at one position, one for each "
        f"{contexts.called}: positions start over in each, so they are not positions of one list."
    )
    remedy = joined("The same position is a different place in each:", _give(contexts))
    yield Finding("mixed-positions", "warning", sentence, count, examples_of(contexts.names), remedy)


def _give(contexts: Contexts) -> Remedy:
    column = contexts.columns[0] if len(contexts.columns) == 1 else list(contexts.columns)
    return Remedy("train and estimate with {context}.", context=column)
