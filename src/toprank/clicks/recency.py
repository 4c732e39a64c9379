"""Recency weights: sessions are weighted by age, and the latest can be held out.

A session has the weight 2^(-age / half_life), where the age is the time until the newest session of the log; a window
drops older sessions. A weighted estimate describes sessions drawn from the log with these weights: the relevance of a
document is its mean relevance when it was shown, and queries count by the weights of their sessions. If nothing changes
over time, weights only increase the variance. Otherwise the estimate is a mean over the recent past, 1.44 half-lives
old if sessions are evenly spaced. It is not a forecast.

Sessions are ordered by time, whatever their order in the file. A clock that is slow makes sessions older and reduces
their weight. A session far ahead of all others would reduce the weights of these to nothing, and raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypedDict

import numpy as np

from toprank.clicks.log import Array, ClickLog, first_odd
from toprank.compute import FloatArray
from toprank.data.arguments import check_number
from toprank.data.periods import borders
from toprank.errors import DataError, Remedy, UnknownNameError
from toprank.significance import effective_sample_size

Span = float | str | timedelta | np.timedelta64
"""A duration: a number of seconds, or text such as ``14d`` and ``36h``."""
_SECONDS_PER_UNIT = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_UNIT_NAMES = {"w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second"}
_DURATION_PATTERN = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([a-z]?)\s*", re.IGNORECASE)
_TIME_ZONE_PATTERN = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
_TIME_UNITS = (
    (1e17, 1e9),
    (1e14, 1e6),
    (1e11, 1e3),
)  # seconds since 1970 reach 1e11 in the year 5138, milliseconds in 1973
_MIN_WEIGHT = 2.0**-50  # fifty half-lives; smaller weights vanish in rounding
_MIN_EFFECTIVE_SESSIONS = 30  # fewer sessions give too much influence to each
_LONGER_REMEDY = "Drop that session if its clock was wrong, or choose a longer"
_MAX_WEIGHT_SHARE = 0.1  # of the total weight, for a single session


def span_of(span: Span, name: str) -> float:
    """Return a duration in seconds; `name` is the name of the argument, for messages.

    >>> span_of("14d", "half_life"), span_of("1.5h", "window"), span_of(60, "window")
    (1209600.0, 5400.0, 60.0)
    """
    seconds = np.nan
    if isinstance(span, timedelta):
        seconds = span.total_seconds()
    elif isinstance(span, np.timedelta64):
        seconds = float(span / np.timedelta64(1, "s"))
    elif isinstance(span, str):
        match = _DURATION_PATTERN.fullmatch(span)
        if match is not None and (match[2] or "s").lower() in _SECONDS_PER_UNIT:
            seconds = float(match[1]) * _SECONDS_PER_UNIT[(match[2] or "s").lower()]
    elif isinstance(span, int | float | np.number) and not isinstance(span, bool):
        seconds = float(span)
    if not 0 < seconds < np.inf:
        units = ", ".join(f"{unit} ({word}s)" for unit, word in _UNIT_NAMES.items())
        raise DataError(
            f"{name} must be a time above 0, not {span!r}: a number with a unit, {units}; or a number of seconds.",
            remedy=Remedy(f"Give {{{name}}}.", **{name: "14d"}),
        )
    return seconds


def _words(seconds: float) -> str:
    """Format a duration in the largest unit that it contains at least twice, or exactly once."""
    for unit, size in _SECONDS_PER_UNIT.items():
        if unit != "w" and (seconds >= 2 * size or seconds == size or unit == "s"):
            count = seconds / size
            number = f"{count:,.0f}" if count >= 100 else f"{count:.3g}"
            return f"{number} {_UNIT_NAMES[unit]}{'' if count == 1 else 's'}"
    raise AssertionError("seconds are the last unit")


def moment(seconds: float) -> str:
    """Format a time of a log as a date.

    >>> moment(1_800_000_000)
    '2027-01-15 08:00 UTC'
    """
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, OSError, ValueError):
        return f"{seconds:.6g} s"


def times_of(log: ClickLog, by: str = "time") -> FloatArray:
    """Return the time of each session in seconds, from its first impression.

    Numbers are seconds since 1970, or milliseconds, microseconds or nanoseconds, by their size. Text is ISO 8601, in
    UTC without a time zone.

    >>> log = ClickLog.from_columns(["a", "b"], ["x", "y"], [1, 1], [0, 1], time=["1970-01-01T00:01", "1970-01-02"])
    >>> times_of(log).tolist()
    [60.0, 86400.0]
    """
    if by not in log.columns:
        if by == "time":
            raise DataError(
                "The log has no column 'time', so the age of sessions is unknown. If it has times under another name, "
                "read it",
                remedy=Remedy("with {time}.", time="COLUMN"),
            )
        raise UnknownNameError("column of the log", str(by), log.columns)
    times = seconds_of(log, by)
    missing = ~np.isfinite(times)
    if missing.any():
        first = int(np.argmax(missing))
        raise DataError(
            f"{int(missing.sum()):,} of {len(times):,} sessions have no time in the column '{by}', such as session "
            f"{log.session_names[first]}; leave them out, or give them one."
        )
    return times


def seconds_of(log: ClickLog, by: str) -> FloatArray:
    """Return the times of `times_of`, with NaN for sessions without a time."""
    column = np.asarray(log.columns[by])[log.offsets[:-1]]
    if column.dtype.kind in "OU":
        column = _parsed(column, by)
    if column.dtype.kind == "M":
        whole = column.astype("datetime64[us]")
        return np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / 1e6)
    if column.dtype.kind not in "iuf":
        raise DataError(f"The column '{by}' of the log holds {column.dtype.name}, not times.")
    numbers = column.astype(np.float64)
    size = float(np.median(np.abs(numbers[np.isfinite(numbers)]))) if np.isfinite(numbers).any() else 0.0
    return numbers / next((per for least, per in _TIME_UNITS if size >= least), 1.0)


def _parsed(column: Array, by: str) -> Array:
    """Parse text or objects as numbers or dates; dates with and without time zones can be mixed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words = [None if cell is None or cell == "" or cell != cell else cell for cell in column.tolist()]
    try:
        cells = pa.array(words)
    except (pa.ArrowException, TypeError, ValueError):
        cells = pa.array([None if word is None else str(word) for word in words])
    utc, bare = pa.timestamp("us", "UTC"), pa.timestamp("us")
    for kind in (pa.float64(), utc, bare):
        try:
            times: Array = cells.cast(kind).to_numpy(zero_copy_only=False)
        except (pa.ArrowException, ValueError):
            continue
        return times
    text, times = cells.cast(pa.string()), np.full(len(cells), "NaT", dtype="datetime64[us]")
    zoned = pc.match_substring_regex(text, _TIME_ZONE_PATTERN).fill_null(False)
    for which, kind in ((zoned, utc), (pc.invert(zoned), bare)):
        some = text.filter(which)
        try:
            times[which.to_numpy(zero_copy_only=False)] = some.cast(kind).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            odd = some[first_odd(some, kind)].as_py()
            raise DataError(
                f"The column '{by}' of the log holds something other than times, such as {odd!r}; give dates "
                "(2026-11-18T09:30) or seconds since 1970."
            ) from None
    return times


def weights_by_age(times: FloatArray, half_life: Span | None = None, window: Span | None = None) -> FloatArray:
    """Return the weights of sessions with these times: 2^(-age / half_life), and 0 outside of the window.

    >>> times = np.array([0.0, 60.0, 120.0])
    >>> weights_by_age(times, half_life="1m", window="2m").tolist()
    [0.25, 0.5, 1.0]
    >>> weights_by_age(times, window="1m").tolist()
    [0.0, 1.0, 1.0]
    """
    newest = float(times.max())
    if len(times) > 1 and float(times.min()) == newest:
        raise DataError(
            f"All {len(times):,} sessions have the same time ({moment(newest)}), so none is more recent than another."
        )
    age = newest - times
    weights = np.ones(len(times))
    if window is not None:
        seconds = span_of(window, "window")
        weights[age > seconds] = 0.0
        if len(times) > 1 and weights.sum() < 2:
            raise DataError(
                f"A window of {_words(seconds)} leaves nothing but the newest of {len(times):,} sessions, "
                f"{_ahead(times)}",
                remedy=Remedy(f"{_LONGER_REMEDY} {{window}}.", window=...),
            )
    if half_life is not None:
        seconds = span_of(half_life, "half_life")
        weights *= np.exp2(-age / seconds)
        most = float(weights.max() / weights.sum())
        if len(times) >= _MIN_EFFECTIVE_SESSIONS and most > _MAX_WEIGHT_SHARE:
            raise DataError(
                f"With a half-life of {_words(seconds)} the newest of {len(times):,} sessions alone has {most:.0%} of "
                f"the weight of all, {_ahead(times)}",
                remedy=Remedy(f"{_LONGER_REMEDY} {{half_life}}.", half_life=...),
            )
    return weights


def _ahead(times: FloatArray) -> str:
    newest, before = np.sort(times)[[-1, -2]].tolist()
    return f"dated {moment(newest)}, {_words(max(newest - before, 1e-6))} after the one before it."


@dataclass(frozen=True)
class Recency:
    """The weights of sessions by age.

    Attributes:
        half_life: age in seconds at which a session counts half, or None without decay.
        window: maximum age in seconds, or None without a limit.
        sessions: number of sessions that count.
        of: number of sessions in the log.
        effective: effective number of sessions.
        newest: time of the newest session, in seconds since 1970.
        mean_age: weighted mean age, in seconds.
    """

    half_life: float | None
    window: float | None
    sessions: int
    of: int
    effective: float
    newest: float
    mean_age: float

    def __str__(self) -> str:
        words = []
        if self.window is not None:
            words.append(f"{self.sessions:,} of {self.of:,} sessions are from the last {_words(self.window)} and count")
        if self.half_life is not None:
            what = "they count" if words else f"{self.sessions:,} sessions count"
            words.append(f"{what} half as much for every {_words(self.half_life)} of age")
        return (
            f"{', '.join(words)}: as much as {self.effective:,.0f} of equal weight, {_words(max(self.mean_age, 1.0))} "
            f"old on average when the newest came ({moment(self.newest)})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self) | {"summary": str(self)}


def recent(log: ClickLog, half_life: Span | None, window: Span | None) -> tuple[ClickLog, Recency | None]:
    """Return the log with sessions weighted by age, without sessions of weight 0, and a description of the weights."""
    if half_life is None and window is None:
        return log, None
    times = times_of(log)
    weights = weights_by_age(times, half_life, window)
    kept = weights > _MIN_WEIGHT
    weights, newest = weights[kept], float(times.max())
    recency = Recency(
        None if half_life is None else span_of(half_life, "half_life"),
        None if window is None else span_of(window, "window"),
        len(weights), log.n_sessions, effective_sample_size(weights), newest,
        newest - float(weights @ (times[kept] / weights.sum())),
    )  # fmt: skip
    part = log if kept.all() else log.select(kept)
    return (part if half_life is None else replace(part, weights=weights)), recency


@dataclass(frozen=True)
class TimeCut:
    """A log split by time.

    Attributes:
        early: sessions before the border.
        late: sessions from the border on.
        border: time of the first late session, in seconds.
    """

    early: ClickLog
    late: ClickLog
    border: float

    def __str__(self) -> str:
        return f"the latest {self.late.n_sessions:,} sessions, from {moment(self.border)} on"


def latest(log: ClickLog, by: str, holdout: float) -> TimeCut:
    """Hold out the latest fraction of the sessions; sessions with equal times are not split.

    >>> log = ClickLog.from_columns(["a"] * 4, ["x"] * 4, [1] * 4, [0] * 4, session=[0, 1, 2, 3], time=[30, 10, 40, 20])
    >>> cut = latest(log, "time", 0.25)
    >>> cut.late.session_ids.tolist(), cut.border
    ([2], 40.0)
    """
    check_number("holdout", holdout, above=0, below=1)
    times = times_of(log, by)
    moments, counts = np.unique(times, return_counts=True)
    if len(moments) < 2:
        raise DataError(
            f"All {len(times):,} sessions have the same time ({moment(float(times[0]))}), so there are no latest "
            "ones; hold out without",
            remedy=Remedy("{time_column}.", time_column=...),
        )
    border = float(moments[borders(counts, (1 - holdout, holdout))[0]])
    late = times >= border
    return TimeCut(log.select(~late), log.select(late), border)


class SessionOptions(TypedDict, total=False):
    """Keyword arguments of public functions that select sessions of a log."""

    time_column: str | None
    holdout: float
    half_life: Span | None
    window: Span | None


class ChosenSessions(NamedTuple):
    """The selected sessions of a log: their weights, and the split by time if the latest are held out."""

    log: ClickLog
    recency: Recency | None = None
    cut: TimeCut | None = None

    @property
    def held_out(self) -> str:
        """A sentence on the held-out sessions; empty if there are none."""
        return "" if self.cut is None else str(self.cut)


@dataclass(frozen=True)
class Sessions:
    """Selection and weights of the sessions of a log.

    Attributes:
        time_column: column of times by which the latest sessions are held out. Default: none are.
        holdout: fraction of the sessions to hold out, between 0 and 1.
        half_life: age at which a session counts half as much as the newest one. Default: equal weights.
        window: maximum age of sessions, relative to the newest one. Default: no limit.
        since: earliest time of sessions, in seconds since 1970. Default: no limit.
    """

    time_column: str | None = None
    holdout: float = 0.2
    half_life: Span | None = None
    window: Span | None = None
    since: float | None = None

    def training(self, log: ClickLog) -> ChosenSessions:
        """Return the sessions to train on: all except the held-out ones."""
        return self._chosen(log, early=True)

    def evaluation(self, log: ClickLog) -> ChosenSessions:
        """Return the sessions to evaluate on: the held-out ones, or all if none are."""
        return self._chosen(log, early=False)

    def _chosen(self, log: ClickLog, early: bool) -> ChosenSessions:
        log = self._later(log)
        cut = None if self.time_column is None else latest(log, self.time_column, self.holdout)
        if cut is not None:
            log = cut.early if early else cut.late
        return ChosenSessions(*recent(log, self.half_life, self.window), cut)

    def _later(self, log: ClickLog) -> ClickLog:
        if self.since is None:
            return log
        kept = times_of(log) >= self.since
        if not kept.any():
            raise DataError(f"The log has no session from {moment(self.since)} or later.")
        return log.select(kept)


def options_of(function: str, options: Mapping[str, Any], declared: type, *kinds: Any) -> tuple[Any, ...]:
    """Distribute the keyword arguments of a function over dataclasses, by the names of their fields.

    `declared` is the typed dictionary of the function's keyword arguments; other arguments raise an error.
    """
    names = [{each.name for each in fields(kind)} for kind in kinds]
    unknown = [name for name in options if name not in declared.__annotations__]
    if unknown:
        raise TypeError(f"{function}() got an unexpected keyword argument '{unknown[0]}'")
    return tuple(
        kind(**{name: value for name, value in options.items() if name in known})
        for kind, known in zip(kinds, names, strict=True)
    )
