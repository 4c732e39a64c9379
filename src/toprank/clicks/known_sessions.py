"""Sessions known again: whether a ranker learned from those that are to judge it.

A model file keeps the least hashes of the sessions that trained it, of their ids, times, queries and lists; clicks may
still come in later, so they are not among it. Where a log has neither ids nor times, its sessions cannot be told from
others that showed the same, and nothing is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from toprank.clicks.log import Array, ClickLog
from toprank.clicks.recency import times_of
from toprank.data.row_hashes import Hashes, as_text, from_text, id_hashes, is_numbering, mixed, single_hashes
from toprank.errors import DataError

_KEPT = 256  # hashes of a log that are kept: 2 KB
_AT_ONCE = 1 << 16  # ids whose letters lie side by side
_ENOUGH = 20  # of fewer sessions that the sample can tell of, a fifth that are known would too easily be missed
_SURELY = 0.01  # of the sessions: fewer may be alike by chance, where times are days


class KnownSessions(NamedTuple):
    """What is kept of the sessions that a ranker learned from."""

    least: Hashes
    """The least of their hashes, in order."""
    whole: bool
    """Whether those are all."""

    @classmethod
    def of(cls, log: ClickLog) -> Self | None:
        """Return what to keep of a log; None if its sessions cannot be recognised."""
        hashes = _session_hashes(log)
        if hashes is None:
            return None
        hashes, _ = single_hashes(hashes)
        return cls(hashes[:_KEPT], len(hashes) <= _KEPT)

    def share(self, log: ClickLog) -> float | None:
        """The share of the sessions of a log that are known, as far as the sample tells; None: it does not.

        >>> log = ClickLog.of(["a"] * 4, ["x"] * 4, [1] * 4, [0] * 4, session=["k", "l", "m", "n"])
        >>> KnownSessions.of(log.select([0, 1, 2])).share(log.select([2, 3]))
        0.5
        """
        hashes = _session_hashes(log)
        if hashes is None or not len(self.least):
            return None
        hashes, _ = single_hashes(hashes)  # sessions that are alike are no evidence
        hashes = hashes if self.whole else hashes[hashes <= self.least[-1]]
        known = np.isin(hashes, self.least)
        if not known.any() and len(hashes) < (1 if self.whole else _ENOUGH):
            return None
        share = float(known.mean())
        return share if share >= _SURELY else 0.0

    def plain(self) -> dict[str, Any]:
        """For a model file."""
        return {"least": as_text(self.least), "whole": self.whole}

    @classmethod
    def learned_by(cls, ranker: Any) -> Self | None:
        """Return what a ranker's record says about the sessions that it learned from; None if it says nothing."""
        try:
            plain = ranker.training_["clicks"]["known"]
            return cls(from_text(plain["least"]), bool(plain["whole"]))
        except (AttributeError, TypeError, KeyError, ValueError):
            return None


def _session_hashes(log: ClickLog) -> Hashes | None:
    """A number for each session, of what tells it from all others; None where nothing does."""
    hashes = np.zeros(log.n_sessions, dtype=np.uint64)
    can_be_known = False
    if log.session_ids is not None and not is_numbering(log.session_ids):
        hashes += _hashes(log.session_ids)
        can_be_known = True
    try:
        hashes += mixed((times_of(log) * 1e3).round().astype(np.int64).view(np.uint64) + np.uint64(1))
        can_be_known = True
    except DataError:  # without times, or with some missing: ids alone must tell
        pass
    if not can_be_known:
        return None
    rows = _hashes(log.document_ids)[log.pair] + log.position.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashes += np.add.reduceat(mixed(rows), log.offsets[:-1])
    hashes += _hashes(log.qids)[log.session_query]
    return mixed(hashes)


def _hashes(ids: Array) -> Hashes:
    if ids.dtype.kind in "iu":
        return id_hashes(ids)
    parts = [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]
    return np.concatenate([np.empty(0, np.uint64), *(id_hashes(part.astype(np.str_)) for part in parts)])
