"""Overlap between training and evaluation sessions: whether a ranker learned from the sessions that are to judge it.

A model file keeps two samples of its training sessions, each of the least hashes. Sessions are recognized by their ids,
whatever else a view of the log shows of them; the query and the first document only confirm that two logs mean the same
session by an id. Sessions without ids are recognized by their time and query. That succeeds only if both logs have the
same exact times, so finding nothing there proves nothing: the overlap is then unknown, unless all sessions are later
than those of the training. Clicks may still come in later, and lists may be cut, so neither is part of a hash.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from toprank.clicks.log import Array, ClickLog
from toprank.clicks.recency import times_of
from toprank.compute import FloatArray, IntArray
from toprank.data.hashes import Hashes, HashSample, as_text, from_text, id_hashes, is_numbering, mixed, single_hashes
from toprank.errors import DataError

_MAX_KEPT = 256  # hashes in a sample: 2 KB
_CHUNK = 1 << 16  # ids that are hashed at a time
_MIN_SAMPLED = 20  # sessions within the range of a sample: of fewer, a fifth that are known would too easily be missed
_MIN_SHARE = 0.01  # smaller shares count as 0
_MIN_CONFIRMED = 0.5  # of sessions with a known id; numbers that two files give to their own sessions agree by chance
_MAX_REPEATED = _MIN_SHARE / 4  # sessions that share their time and query with another one of their log


class _SampledIds(NamedTuple):
    """A sample of session ids, with the queries and documents that confirm a match."""

    sample: HashSample
    queries: Hashes
    firsts: Hashes
    """The first documents."""
    are_numbers: bool
    are_numbering: bool
    """Whether the ids are 0 … n - 1 or 1 … n, which any file may give to its own sessions."""

    @classmethod
    def from_log(cls, log: ClickLog) -> Self | None:
        """Sample the ids of a log; None if it has none."""
        if log.session_ids is None or not log.n_sessions:
            return None
        sample, at, _ = HashSample.from_hashes(_hashes(log.session_ids))
        ids = log.session_ids[at]
        return cls(sample, *_confirming(log, at), _are_numbers(ids), _is_numbering(log.session_ids))

    def share(self, log: ClickLog) -> float | None:
        """Return the share of the sessions of a log whose id is known; None if ids do not show it."""
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
    """The record of its training sessions in a model file."""

    ids: _SampledIds | None
    moments: HashSample | None
    """Hashes of times and queries; None if the log has no times, or too coarse ones."""
    newest: float | None
    """The time of the newest session, in seconds."""

    @classmethod
    def from_log(cls, log: ClickLog) -> Self | None:
        """Return what to keep of a log; None if its sessions cannot be recognized."""
        ids, times = _SampledIds.from_log(log), _times(log)
        hashes = None if times is None else _moments(log, times)
        if ids is None and times is None:
            return None
        moments = None if hashes is None else HashSample.from_hashes(hashes)[0]
        return cls(ids, moments, None if times is None else float(times.max()))

    def share(self, log: ClickLog) -> float | None:
        """Return the share of the sessions of a log that are known, estimated from the samples; None if unknown.

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
        """For a model file."""
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

        Records of older files do not count: their hashes contain list and time, so any other view of a log evades them.
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
    """Return hashes of the times, in milliseconds, and queries; None if too many sessions share theirs."""
    hashes = mixed(_milliseconds(times).view(np.uint64) + np.uint64(1))
    hashes = mixed(hashes + _hashes(log.qids)[log.session_query])
    is_coarse = len(single_hashes(hashes)[0]) < (1 - _MAX_REPEATED) * len(hashes)
    return None if is_coarse else hashes


def _confirming(log: ClickLog, sessions: Array) -> tuple[Hashes, Hashes]:
    """Return hashes of the queries and first documents of some sessions."""
    queries = _hashes(log.qids[log.session_query[sessions]])
    return queries, _hashes(log.document_ids[log.pair[log.offsets[:-1][sessions]]])


def _is_later(times: FloatArray, newest: float) -> bool:
    """Return whether sessions are later than the newest of the training, also if their times were rounded up."""
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
    """Hash ids as text, so that 7 and "7" are the same id whatever format a log was stored in."""
    parts = [ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK)]
    return np.concatenate([np.empty(0, np.uint64), *(id_hashes(part.astype(np.str_)) for part in parts)])
