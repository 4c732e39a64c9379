"""Overlap between training and evaluation sessions.

A model file stores two samples of hashes of its training sessions, the smallest ones of each kind. Sessions are matched
by id, whatever else the two logs contain; the query and the first document only confirm that an id refers to the same
session in both. Sessions without ids are matched by time and query. This requires that both logs have exact times, so
no match is not evidence of no overlap: the overlap is then unknown, unless all sessions are later than the training
sessions. Clicks may arrive later and lists may be truncated, so neither is hashed.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from toprank.clicks.log import Array, ClickLog
from toprank.clicks.recency import times_of
from toprank.compute import FloatArray, IntArray
from toprank.data.hashes import Hashes, HashSample, as_text, from_text, id_hashes, is_numbering, mixed, single_hashes
from toprank.errors import DataError

_MAX_KEPT = 256  # Maximum number of hashes in a sample: 2 KB.
_CHUNK = 1 << 16  # Number of ids hashed at a time.
# Minimum number of sessions within the range of a sample: with fewer, an overlap of 20 % could be missed.
_MIN_SAMPLED = 20
_MIN_SHARE = 0.01  # Smaller fractions are reported as 0.
# Minimum fraction of matches by id that must be confirmed; ids that number the sessions of a file match by chance.
_MIN_CONFIRMED = 0.5
# Maximum fraction of sessions that share time and query with another session of the log.
_MAX_REPEATED = _MIN_SHARE / 4


class _SampledIds(NamedTuple):
    """A sample of session ids, with the queries and documents that confirm a match."""

    sample: HashSample
    queries: Hashes
    firsts: Hashes
    """Hashes of the first documents."""
    are_numbers: bool
    are_numbering: bool
    """True if the ids are 0 … n - 1 or 1 … n, as in any file that numbers its sessions."""

    @classmethod
    def from_log(cls, log: ClickLog) -> Self | None:
        """Sample the ids of a log; None if it has none."""
        if log.session_ids is None or not log.n_sessions:
            return None
        sample, at, _ = HashSample.from_hashes(_hashes(log.session_ids))
        ids = log.session_ids[at]
        return cls(sample, *_confirming(log, at), _are_numbers(ids), _is_numbering(log.session_ids))

    def share(self, log: ClickLog) -> float | None:
        """Return the fraction of the sessions of a log whose id matches; None if ids are not conclusive."""
        if log.session_ids is None or not log.n_sessions:
            return None
        hashes = _hashes(log.session_ids)
        hashes, at = self.sample.comparable(hashes)
        place = self.sample.places(hashes)
        known = place >= 0
        if known.any():
            queries, firsts = _confirming(log, at[known])
            place = place[known]
            confirmed = (self.queries[place] == queries) | (self.firsts[place] == firsts)
            return float(confirmed.sum() / len(at)) if confirmed.mean() >= _MIN_CONFIRMED else None
        are_alike = self.are_numbers == _are_numbers(log.session_ids[at[:_MAX_KEPT]])
        are_local = self.are_numbering or _is_numbering(log.session_ids)
        return 0.0 if are_alike and not are_local and len(at) >= (1 if self.sample.whole else _MIN_SAMPLED) else None


class TrainingOverlap(NamedTuple):
    """Record of the training sessions in a model file."""

    ids: _SampledIds | None
    moments: HashSample | None
    """Hashes of times and queries; None if the log has no times, or only coarse ones."""
    newest: float | None
    """The time of the newest session, in seconds."""

    @classmethod
    def from_log(cls, log: ClickLog) -> Self | None:
        """Return the record of a log; None if its sessions have neither ids nor times."""
        ids, times = _SampledIds.from_log(log), _times(log)
        hashes = None if times is None else _moments(log, times)
        if ids is None and times is None:
            return None
        moments = None if hashes is None else HashSample.from_hashes(hashes)[0]
        return cls(ids, moments, None if times is None else float(times.max()))

    def share(self, log: ClickLog) -> float | None:
        """Return the fraction of the sessions of a log that were training sessions, estimated from the samples; None if
        unknown.

        >>> log = ClickLog.from_columns(["a"] * 4, ["x"] * 4, [1] * 4, [0] * 4, session=["k", "l", "m", "n"])
        >>> TrainingOverlap.from_log(log.select([0, 1, 2])).share(log.select([2, 3]))
        0.5
        """
        by_id = None if self.ids is None else self.ids.share(log)
        if by_id is not None and by_id >= _MIN_SHARE:
            return by_id
        times = _times(log)
        if times is not None and self.newest is not None:
            by_time = self._share_by_time(log, times)
            if by_time >= _MIN_SHARE:
                return by_time
            if _is_later(times, self.newest):
                return 0.0
        return None if by_id is None else 0.0

    def _share_by_time(self, log: ClickLog, times: FloatArray) -> float:
        hashes = None if self.moments is None else _moments(log, times)
        if self.moments is None or hashes is None:
            return 0.0
        hashes, _ = self.moments.comparable(hashes)
        return float((self.moments.places(hashes) >= 0).mean()) if len(hashes) else 0.0

    def plain(self) -> dict[str, Any]:
        """Return the record in the form stored in a model file."""
        ids, moments = self.ids, self.moments
        return {
            "ids": None if ids is None else {
                **ids.sample.plain(), "queries": as_text(ids.queries),
                "firsts": as_text(ids.firsts), "numbers": ids.are_numbers, "numbering": ids.are_numbering,
            },
            "moments": None if moments is None else moments.plain(),
            "newest": self.newest,
        }  # fmt: skip

    @classmethod
    def from_ranker(cls, ranker: Any) -> Self | None:
        """Return the record of a ranker; None if it has none.

        Records in older files are ignored: their hashes include list and time, so another view of the same log does not
        match.
        """
        try:
            plain = ranker.training_["clicks"]["known"]
            ids, moments, newest = plain["ids"], plain["moments"], plain["newest"]
            known = cls(
                None if ids is None else _SampledIds(
                    _sample_from(ids), from_text(ids["queries"]), from_text(ids["firsts"]), bool(ids["numbers"]),
                    bool(ids["numbering"]),
                ),
                None if moments is None else _sample_from(moments),
                None if newest is None else float(newest),
            )  # fmt: skip
        except (AttributeError, TypeError, KeyError, ValueError):
            return None
        if known.ids is not None and not len(known.ids.queries) == len(known.ids.firsts) == len(known.ids.sample.least):
            return None
        return known


def _sample_from(plain: Any) -> HashSample:
    sample = HashSample.from_plain(plain)
    if not len(sample.least):
        raise ValueError("a sample without hashes")
    return sample


def _times(log: ClickLog) -> FloatArray | None:
    """Return the times of sessions in seconds; None if any is missing."""
    try:
        return times_of(log) if log.n_sessions else None
    except DataError:
        return None


def _moments(log: ClickLog, times: FloatArray) -> Hashes | None:
    """Return hashes of times (in milliseconds) and queries; None if too many sessions share both."""
    hashes = mixed(_milliseconds(times).view(np.uint64) + np.uint64(1))
    hashes = mixed(hashes + _hashes(log.qids)[log.session_query])
    is_coarse = len(single_hashes(hashes)[0]) < (1 - _MAX_REPEATED) * len(hashes)
    return None if is_coarse else hashes


def _confirming(log: ClickLog, sessions: Array) -> tuple[Hashes, Hashes]:
    """Return hashes of the queries and first documents of sessions."""
    queries = _hashes(log.qids[log.session_query[sessions]])
    return queries, _hashes(log.document_ids[log.pair[log.offsets[:-1][sessions]]])


def _is_later(times: FloatArray, newest: float) -> bool:
    """Return whether sessions are later than the newest training session, even if their times were rounded up."""
    resolution = int(np.gcd.reduce(_milliseconds(times))) / 1e3
    return bool(times.min() > newest and times.min() - resolution >= newest)


def _milliseconds(times: FloatArray) -> IntArray:
    return (times * 1e3).round().astype(np.int64)


def _are_numbers(ids: Array) -> bool:
    return all(str(one).isdecimal() for one in ids.tolist())


def _is_numbering(ids: Array) -> bool:
    first = ids[:_MAX_KEPT]
    if not _are_numbers(first) or max(map(int, first.tolist())) > len(ids):
        return False
    try:
        return is_numbering(ids.astype(np.int64))
    except (ValueError, OverflowError):
        return False


def _hashes(ids: Array) -> Hashes:
    """Return hashes of ids as text, so that 7 and "7" are the same id in every file format."""
    parts = [ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK)]
    return np.concatenate([np.empty(0, np.uint64), *(id_hashes(part.astype(np.str_)) for part in parts)])
