"""Hashes: of whole arrays, of rows, of ids; and small samples of row hashes by which a model recognizes its data.

A row keeps its hash in any order, beside any other rows, sparse or dense, in single or double precision. The sample of
a data set is its least hashes. That draws the same rows from any set that holds them, so that the samples of data, of a
part of them, and of a larger set overlap.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import Array, in_pieces
from toprank.data.metadata import NO_METADATA, judges_of

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData


Hashes = npt.NDArray[np.uint64]
ROWS, QUERIES = "rows", "known_queries"
"""Where the `training_` of a ranker keeps its rows and queries, as they stand in a model file."""
_SAMPLE_SIZE = 256  # hashes of a data set that are kept: 2 KB
_QUERY_SAMPLE_SIZE = 128  # of queries, two of each: 2 KB
_BLOCK_CELLS = 1 << 18  # hashed at a time: 2 MB an array stay in the cache, and within a tight limit of memory


def row_hashes(X: Any, *, coarse: bool = False) -> Hashes:
    """A number for each row of features, in single precision; `coarse`: to three digits, so that near-copies agree.

    A row's hash is Σ factor · bits over its columns (modulo 2⁶⁴), well mixed: zero adds nothing, so sparse rows are
    hashed as dense ones.
    """
    n, width = X.shape
    factors = _factors(width)
    hashes = np.empty(n, dtype=np.uint64)
    step = max(1, _BLOCK_CELLS // max(width, 1))
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


class KnownRowMatches(NamedTuple):
    """Rows of other data that are known."""

    seen: int
    """How many have the label that they had."""
    relabeled: int
    """How many have another one."""
    decidable: int
    """Of how many rows the sample tells whether they are known."""


class HashSample(NamedTuple):
    """A sample of a set of hashes: the least of those that occur once, in order."""

    least: Hashes
    whole: bool
    """Whether those are all."""

    @classmethod
    def from_hashes(cls, hashes: Hashes, max_size: int = _SAMPLE_SIZE) -> tuple[Self, npt.NDArray[np.int64], int]:
        """Draw a sample of at most this size; also return the places of its hashes, and how many occur once."""
        single, at = single_hashes(hashes)
        return cls(single[:max_size], len(single) <= max_size), at[:max_size], len(single)

    def comparable(self, hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
        """Return the hashes, in order, that the sample would hold if they were of the same set, and their places."""
        single, at = single_hashes(hashes)
        n = len(single) if self.whole or not len(self.least) else np.searchsorted(single, self.least[-1], side="right")
        return single[:n], at[:n]

    def places(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """Return the place of each hash in the sample, or -1."""
        if not len(self.least):
            return np.full(len(hashes), -1)
        place = np.minimum(np.searchsorted(self.least, hashes), len(self.least) - 1)
        return np.where(self.least[place] == hashes, place, -1)

    def plain(self) -> dict[str, Any]:
        """For a model file."""
        return {"least": as_text(self.least), "whole": self.whole}

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """What `plain` wrote; TypeError, KeyError or ValueError if it is damaged."""
        return cls(from_text(plain["least"]), bool(plain["whole"]))


@dataclass(frozen=True)
class KnownRows:
    """A sample of the rows of a data set, to recognize them: of those that no other row repeats."""

    sample: HashSample
    labels: tuple[float, ...]
    """The labels of the sampled rows."""
    repeated: float
    """The share of the rows that others repeat: where it is large, a row that is known tells little."""

    @classmethod
    def from_hashes(cls, hashes: Hashes, labels: npt.NDArray[Any]) -> Self:
        """Draw the sample from the hashes of all rows."""
        sample, at, n_single = HashSample.from_hashes(hashes)
        return cls(sample, tuple(labels[at].astype(float).tolist()), 1 - n_single / max(len(hashes), 1))

    def matches(self, hashes: Hashes, labels: npt.NDArray[Any]) -> KnownRowMatches:
        """Which of the rows are known; rows that repeat each other are no evidence."""
        if not len(self.sample.least):
            return KnownRowMatches(0, 0, 0)
        single, at = self.sample.comparable(hashes)
        places = self.sample.places(single)
        alike = np.array(self.labels)[places[places >= 0]] == labels[at][places >= 0]
        return KnownRowMatches(int(alike.sum()), int((~alike).sum()), len(single))

    def plain(self) -> dict[str, Any]:
        """For a model file."""
        sample = self.sample.plain()
        return {
            "least": sample["least"],
            "labels": list(self.labels),
            "whole": sample["whole"],
            "repeated": self.repeated,
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """What `plain` wrote. Of anything else, such as older files hold, nothing is known."""
        try:
            sample = HashSample.from_plain(plain)
            labels = tuple(float(label) for label in plain["labels"])
            if len(labels) == len(sample.least):
                return cls(sample, labels, float(plain["repeated"]))
        except (TypeError, KeyError, ValueError):
            pass
        return cls(HashSample(np.empty(0, dtype=np.uint64), True), (), 1.0)


class KnownQueries(NamedTuple):
    """A sample of the queries of a data set, to see whether they come back with other rows."""

    ids: HashSample
    rows: Hashes
    """Of each of these queries, the least hash of its rows."""

    @classmethod
    def from_data(cls, data: RankingData) -> Self:
        """Draw the sample from data."""
        ids, kept, _ = HashSample.from_hashes(id_hashes(data.qids), _QUERY_SAMPLE_SIZE)
        some = data.select(kept)
        return cls(ids, some.queries.min(row_hashes(some.X)))

    def places(self, qids: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
        """For each query its place among those that are kept, or -1, and of how many that can be told."""
        hashes = id_hashes(qids)
        n_comparable = len(hashes) if self.ids.whole else int((hashes <= self.ids.least[-1]).sum())
        return self.ids.places(hashes), n_comparable

    def n_unknown(self, known: RankingData, places: npt.NDArray[np.int64]) -> int:
        """How many of these queries, all of them kept, surely hold a row that was not there: one with a lesser hash.

        A query that brings some or all of its rows again has none, so that those are never counted. Of queries that
        bring others, as many are as their share in all rows.
        """
        return int((known.queries.min(row_hashes(known.X)) < self.rows[places]).sum())

    def plain(self) -> dict[str, Any]:
        """For a model file."""
        return {"ids": as_text(self.ids.least), "rows": as_text(self.rows), "whole": self.ids.whole}

    @classmethod
    def from_plain(cls, plain: Any) -> Self | None:
        """What `plain` wrote; None of anything else, such as older files hold."""
        try:
            ids, rows = HashSample(from_text(plain["ids"]), bool(plain["whole"])), from_text(plain["rows"])
        except (TypeError, KeyError, ValueError):
            return None
        return cls(ids, rows) if len(ids.least) == len(rows) > 0 else None


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


def same_arrays(a: Array, b: Array) -> bool:
    """Whether two arrays hold the same values: NaN equals NaN, floats also have the same precision."""
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return False
    if a.dtype.kind == "f":
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "M"))


class Digest:
    """The hash of an array that comes in blocks of rows: BLAKE2b over its type, its whole shape and its values.

    The type of strings is as wide as the longest one there is (at least 1).
    """

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._dtype = np.dtype("<i8") if dtype.kind in "iu" else dtype.newbyteorder("<")
        self._hash = hashlib.blake2b(f"{self._dtype.str} {shape};".encode(), digest_size=16)

    def update(self, block: Array) -> None:
        """Go on with the next rows."""
        for rows in in_pieces(block):
            plain = np.ascontiguousarray(rows, dtype=self._dtype)
            if plain.size:
                self._hash.update(plain.reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """The hash of what came so far."""
        return self._hash.hexdigest()


def digest(array: Array) -> str:
    """A BLAKE2b hash of an array's shape and values, whatever its memory layout, string width or integer size.

    >>> digest(np.array(["a", "b"])) == digest(np.array(["a", "b", "long"])[:2])
    True
    """
    dtype = np.dtype(f"<U{longest_text(array)}") if array.dtype.kind == "U" else array.dtype
    result = Digest(dtype, array.shape)
    result.update(array)
    return result.hexdigest()


def longest_text(array: Array) -> int:
    """The length of the longest string, at least 1."""
    return max([1, *(int(np.char.str_len(piece).max(initial=1)) for piece in in_pieces(array))])


def training_record(data: RankingData, *, rows: bool) -> dict[str, Any]:
    """Return what a model keeps of its training data, to recognize their queries, judges and, if asked, rows later."""
    judges = () if data.metadata is NO_METADATA else judges_of(data.metadata)
    return {
        QUERIES: KnownQueries.from_data(data).plain(),
        **({"judges": list(judges)} if judges else {}),
        **({ROWS: KnownRows.from_hashes(row_hashes(data.X), data.labels).plain()} if rows else {}),
    }
