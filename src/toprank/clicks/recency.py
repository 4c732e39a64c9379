"""What is recent counts more: sessions weighed by their age, and the latest of them held out.

A session counts 2^(-age / half_life), its age being how long it was before the newest of the log; a window leaves out
what is older. What is estimated with such weights is what holds for a session that is drawn from the log with these
chances: the worth of a document is the mean of what it was worth when it was shown, and queries count by the weights of
their sessions. Where nothing changes over time that is the same as without weights, with a larger variance; where
something does, it is a mean over the last while, 1.44 half-lives old if sessions come evenly. It predicts nothing.

Sessions are in the order of their times, wherever they stand in a file. A clock that was set back makes sessions older
than they are, which costs them weight; one far ahead of all others would take all weight from these, and is refused.
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
"""A length of time: seconds, or text such as ``14d`` and ``36h``."""
_SECONDS_PER_UNIT = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_UNIT_NAMES = {"w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second"}
_DURATION_PATTERN = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([a-z]?)\s*", re.IGNORECASE)
_TIME_ZONE_PATTERN = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
_TIME_UNITS = (
    (1e17, 1e9),
    (1e14, 1e6),
    (1e11, 1e3),
)  # seconds since 1970 reach 1e11 in the year 5138, milliseconds in 1973
_MIN_WEIGHT = 2.0**-50  # beside a session of today such a one is lost in the rounding of any sum: fifty half-lives
_MIN_EFFECTIVE_SESSIONS = 30  # sessions, of which any one may count for much
_LONGER_REMEDY = "Leave that session out if its clock was wrong, or take a longer"
_MAX_WEIGHT_SHARE = (
    0.1  # of all weight: a session that has more is ahead of all others, or everything is older than can count
)


def span_of(span: Span, name: str) -> float:
    """A length of time in seconds; `name` is the argument's.

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
    """A span in words, in the largest unit that it has at least twice, or once exactly."""
    for unit, size in _SECONDS_PER_UNIT.items():
        if unit != "w" and (seconds >= 2 * size or seconds == size or unit == "s"):
            count = seconds / size
            number = f"{count:,.0f}" if count >= 100 else f"{count:.3g}"
            return f"{number} {_UNIT_NAMES[unit]}{'' if count == 1 else 's'}"
    raise AssertionError("seconds are the last unit")


def moment(seconds: float) -> str:
    """A time of a log as a date.

    >>> moment(1_800_000_000)
    '2027-01-15 08:00 UTC'
    """
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, OSError, ValueError):
        return f"{seconds:.6g} s"


def times_of(log: ClickLog, by: str = "time") -> FloatArray:
    """When each session was, in seconds: the time of its first impression, of a column of the log.

    Numbers are seconds since 1970, or milli-, micro- or nanoseconds where they are as large as these; text is ISO 8601;
    what says no zone is UTC.

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
    """`times_of`, with NaN where a session has no time."""
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
    """Text or objects as numbers, or as dates, of which some may say their zone and others not."""
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
    """Return how much sessions of these times count: 2^(-age / half_life), and 0 outside of the window.

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
    """How sessions were weighed by their age.

    Attributes:
        half_life: seconds after which a session counts half; None: none counts less for its age.
        window: seconds before the newest session from which sessions count; None: all do.
        sessions: number of sessions that count.
        of: number of sessions in the log.
        effective: number of sessions of equal weight that would tell as much.
        newest: the time of the newest, in seconds since 1970.
        mean_age: the mean of the ages, weighted, in seconds.
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
        """For JSON."""
        return asdict(self) | {"summary": str(self)}


def recent(log: ClickLog, half_life: Span | None, window: Span | None) -> tuple[ClickLog, Recency | None]:
    """Return the log with its sessions weighed by age, without those that do not count; and how they were weighed."""
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
    """A log cut in time: what came before the border, and the sessions from it on.

    Attributes:
        early: sessions before it.
        late: the latest sessions.
        border: the time of the first of these, in seconds.
    """

    early: ClickLog
    late: ClickLog
    border: float

    def __str__(self) -> str:
        return f"the latest {self.late.n_sessions:,} sessions, from {moment(self.border)} on"


def latest(log: ClickLog, by: str, holdout: float) -> TimeCut:
    """Hold out the latest share of the sessions; sessions of the same time stay together.

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
            remedy=Remedy("{by}.", by=...),
        )
    border = float(moments[borders(counts, (1 - holdout, holdout))[0]])
    late = times >= border
    return TimeCut(log.select(~late), log.select(late), border)


class SessionOptions(TypedDict, total=False):
    """Keywords that say which sessions of a log count, as public functions take them."""

    by: str | None
    holdout: float
    half_life: Span | None
    window: Span | None


class ChosenSessions(NamedTuple):
    """The sessions of a log that count: how they are weighed, and the cut in time if the latest are held out."""

    log: ClickLog
    recency: Recency | None = None
    cut: TimeCut | None = None

    @property
    def held_out(self) -> str:
        """The sessions that were held out, in words; empty if none were."""
        return "" if self.cut is None else str(self.cut)


@dataclass(frozen=True)
class Sessions:
    """Which sessions of a log count, and how much.

    Attributes:
        time_column: column of times by which the latest sessions are held out; None: none are.
        holdout: fraction of the sessions to hold out, between 0 and 1.
        half_life: the age at which a session counts half as much as the newest one; None: all count alike.
        window: leave out sessions that are older than the newest one by more than this.
        since: leave out sessions before this time, in seconds since 1970.
    """

    time_column: str | None = None
    holdout: float = 0.2
    half_life: Span | None = None
    window: Span | None = None
    since: float | None = None

    def training(self, log: ClickLog) -> ChosenSessions:
        """Return the sessions to learn from: all but those held out."""
        return self._chosen(log, early=True)

    def evaluation(self, log: ClickLog) -> ChosenSessions:
        """Return the sessions to evaluate on: those held out, or all if none are."""
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
    """Divide the keywords of a function among dataclasses that hold them, by the names of their fields.

    `declared` is the typed dictionary of the function's keywords; any other keyword is refused.
    """
    given = {"time_column" if name == "by" else name: value for name, value in options.items()}
    names = [{each.name for each in fields(kind)} for kind in kinds]
    unknown = [name for name in options if name not in declared.__annotations__]
    if unknown:
        raise TypeError(f"{function}() got an unexpected keyword argument '{unknown[0]}'")
    return tuple(
        kind(**{name: value for name, value in given.items() if name in known})
        for kind, known in zip(kinds, names, strict=True)
    )
