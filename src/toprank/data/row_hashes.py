"""Rows and queries recognised: hashes of features and of ids, and small samples of them that a model keeps.

A row keeps its hash in any order, beside any other rows, sparse or dense, in single or double precision. The sample of
a data set is its least hashes. That draws the same rows from any set that holds them, so that the samples of data, of a
part of them, and of a larger set overlap.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData

Hashes = npt.NDArray[np.uint64]

ROWS, QUERIES = "rows", "known_queries"
"""Where the `training_` of a ranker keeps its rows and queries, as they stand in a model file."""
_KEPT = 256  # hashes of a data set that are kept: 2 KB
_QUERIES = 128  # of queries, two of each: 2 KB
_CELLS = 1 << 18  # hashed at a time: 2 MB an array stay in the cache, and within a tight limit of memory


def row_hashes(X: Any, *, coarse: bool = False) -> Hashes:
    """A number for each row of features, in single precision; `coarse`: to three digits, so that near-copies agree.

    A row's hash is Σ factor · bits over its columns (modulo 2⁶⁴), well mixed: zero adds nothing, so sparse rows are
    hashed as dense ones.
    """
    n, width = X.shape
    factors = _factors(width)
    hashes = np.empty(n, dtype=np.uint64)
    step = max(1, _CELLS // max(width, 1))
    for first in range(0, n, step):
        part = X[first : first + step]
        if hasattr(part, "tocsr"):
            part = part.tocsr()
            words = _words(part.data, coarse) * factors[part.indices]
            sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(words, dtype=np.uint64)])
            hashes[first : first + step] = sums[part.indptr[1:]] - sums[part.indptr[:-1]]
        else:
            hashes[first : first + step] = _words(np.asarray(part), coarse) @ factors
    return mixed(hashes)


def id_hashes(ids: npt.NDArray[Any]) -> Hashes:
    """A number for each id, a whole number or text."""
    if ids.dtype.kind != "U":
        return mixed(ids.astype(np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    width = max(1, ids.dtype.itemsize // 4)
    letters = np.ascontiguousarray(ids, dtype=f"<U{width}").view(np.uint32).reshape(len(ids), width)
    return mixed(letters.astype(np.uint64) @ _factors(width))


def is_numbering(ids: npt.NDArray[Any]) -> bool:
    """Return whether ids are 0 … n - 1 or 1 … n, in any order: numbers that any file may give to its own queries."""
    if ids.dtype.kind not in "iu":
        return False
    return ids.min() in (0, 1) and np.array_equal(np.sort(ids), np.arange(len(ids)) + ids.min())


def mixed(words: Hashes) -> Hashes:
    """Mix words in place, so that every bit depends on all bits of the word, also where the upper bits tell little."""
    words ^= words >> np.uint64(32)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(31)
    return words


def _factors(width: int) -> Hashes:
    return np.random.default_rng(20).integers(0, 1 << 63, width, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def _words(values: npt.NDArray[Any], coarse: bool) -> Hashes:
    """The bits of numbers, one pattern for each number: of zero and of missing values, too."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    single = np.where(np.isnan(single), np.float32(np.nan), single) + np.float32(0)  # -0 + 0 is 0
    words = np.ascontiguousarray(single).view(np.uint32).astype(np.uint64)
    if coarse:
        words = (words + np.uint64(1 << 12)) >> np.uint64(13)  # rounded to ten bits behind the first
    return words


class Met(NamedTuple):
    """Rows of other data that are known."""

    seen: int
    """How many have the label that they had."""
    relabelled: int
    """How many have another one."""
    decidable: int
    """Of how many rows the sample tells whether they are known."""


@dataclass(frozen=True)
class KnownRows:
    """A sample of the rows of a data set, to recognise them: of those that no other row repeats."""

    least: Hashes
    """The least of the hashes, in order."""
    labels: tuple[float, ...]
    """Theirs."""
    whole: bool
    """Whether those are all."""
    repeated: float
    """The share of the rows that others repeat: where it is large, a row that is known tells little."""

    @classmethod
    def of(cls, hashes: Hashes, labels: npt.NDArray[Any]) -> Self:
        """Draw the sample from the hashes of all rows."""
        single, at = single_hashes(hashes)
        kept = at[:_KEPT]
        repeated = 1 - len(single) / max(len(hashes), 1)
        return cls(single[:_KEPT], tuple(labels[kept].astype(float).tolist()), len(single) <= _KEPT, repeated)

    def met(self, hashes: Hashes, labels: npt.NDArray[Any]) -> Met:
        """Which of the rows are known; rows that repeat each other are no evidence."""
        single, at = single_hashes(hashes)
        if not len(self.least):
            return Met(0, 0, 0)
        if not self.whole:
            single = single[single <= self.least[-1]]
            at = at[: len(single)]
        place = np.minimum(np.searchsorted(self.least, single), len(self.least) - 1)
        known = self.least[place] == single
        alike = np.array(self.labels)[place][known] == labels[at][known]
        return Met(int(alike.sum()), int((~alike).sum()), len(single))

    def plain(self) -> dict[str, Any]:
        """For a model file."""
        return {
            "least": as_text(self.least),
            "labels": list(self.labels),
            "whole": self.whole,
            "repeated": self.repeated,
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """What `plain` wrote. Of anything else, such as older files hold, nothing is known."""
        try:
            least = from_text(plain["least"])
            labels = tuple(float(label) for label in plain["labels"])
            if len(labels) == len(least):
                return cls(least, labels, bool(plain["whole"]), float(plain["repeated"]))
        except (TypeError, KeyError, ValueError):
            pass
        return cls(np.empty(0, dtype=np.uint64), (), True, 1.0)


class KnownQueries(NamedTuple):
    """A sample of the queries of a data set, to see whether they come back with other rows."""

    ids: Hashes
    """The least hashes of their ids, in order."""
    rows: Hashes
    """Of each of these queries, the least hash of its rows."""
    whole: bool
    """Whether those are all."""

    @classmethod
    def of(cls, data: RankingData) -> Self:
        """Draw the sample from data."""
        hashes = id_hashes(data.qids)
        kept = np.argsort(hashes, kind="stable")[:_QUERIES]
        some = data.select(kept)
        return cls(hashes[kept], some.queries.min(row_hashes(some.X)), len(hashes) <= _QUERIES)

    def places(self, qids: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
        """For each query its place among those that are kept, or -1, and of how many that can be told."""
        hashes = id_hashes(qids)
        place = np.minimum(np.searchsorted(self.ids, hashes), len(self.ids) - 1)
        n_known = len(hashes) if self.whole else int((hashes <= self.ids[-1]).sum())
        return np.where(self.ids[place] == hashes, place, -1), n_known

    def strangers(self, known: RankingData, places: npt.NDArray[np.int64]) -> int:
        """How many of these queries, all of them kept, surely hold a row that was not there: one with a lesser hash.

        A query that brings some or all of its rows again has none, so that those are never counted. Of queries that
        bring others, as many are as their share in all rows.
        """
        return int((known.queries.min(row_hashes(known.X)) < self.rows[places]).sum())

    def plain(self) -> dict[str, Any]:
        """For a model file."""
        return {"ids": as_text(self.ids), "rows": as_text(self.rows), "whole": self.whole}

    @classmethod
    def from_plain(cls, plain: Any) -> Self | None:
        """What `plain` wrote; None of anything else, such as older files hold."""
        try:
            ids, rows = from_text(plain["ids"]), from_text(plain["rows"])
            if len(ids) == len(rows) > 0:
                return cls(ids, rows, bool(plain["whole"]))
        except (TypeError, KeyError, ValueError):
            pass
        return None


def as_text(hashes: Hashes) -> str:
    """Hashes for a model file."""
    return base64.b64encode(hashes.astype("<u8").tobytes()).decode("ascii")


def from_text(text: Any) -> Hashes:
    """What `as_text` wrote."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<u8").astype(np.uint64)


def single_hashes(hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """The hashes that occur once, in order, and where."""
    distinct, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    once = counts == 1
    return distinct[once], first[once]
