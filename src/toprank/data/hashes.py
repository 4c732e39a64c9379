"""Hashes of arrays, rows and ids, and samples of row hashes from which a model recognizes its training data.

The hash of a row depends neither on the order of rows nor on other rows, storage (sparse or dense) or precision. The
sample of a data set is its smallest hashes. This selects the same rows from every set that contains them, so the
samples of a data set, of its subsets and of its supersets overlap.
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
"""Keys of the sampled rows and queries in the `training_` of a ranker and in model files."""
_SAMPLE_SIZE = 256  # row hashes per data set: 2 KB
_QUERY_SAMPLE_SIZE = 128  # queries per data set, with two hashes each: 2 KB
_BLOCK_CELLS = 1 << 18  # cells hashed per block: 2 MB per array, which fits into the cache


def row_hashes(X: Any, *, coarse: bool = False) -> Hashes:
    """Return a hash of each feature row in single precision; `coarse` rounds to three digits, so near-copies agree.

    The hash is Σ factor · bits over the columns (modulo 2⁶⁴), then mixed. Zeros add nothing, so sparse and dense rows
    have the same hash.
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
    """Return a hash of each id, an integer or text."""
    if ids.dtype.kind != "U":
        return mixed(ids.astype(np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    width = max(1, ids.dtype.itemsize // 4)
    letters = np.ascontiguousarray(ids, dtype=f"<U{width}").view(np.uint32).reshape(len(ids), width)
    return mixed(letters.astype(np.uint64) @ _factors(width))


def is_numbering(ids: npt.NDArray[Any]) -> bool:
    """Return whether ids are 0 … n - 1 or 1 … n in any order, as in files that number their queries."""
    if ids.dtype.kind not in "iu":
        return False
    return ids.min() in (0, 1) and np.array_equal(np.sort(ids), np.arange(len(ids)) + ids.min())


def mixed(words: Hashes) -> Hashes:
    """Mix words in place, so that every bit depends on all bits of the word."""
    words ^= words >> np.uint64(32)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(31)
    return words


def _factors(width: int) -> Hashes:
    return np.random.default_rng(20).integers(0, 1 << 63, width, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def _words(values: npt.NDArray[Any], coarse: bool) -> Hashes:
    """Return the bits of numbers, with a single pattern for zero and for missing values."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    single = np.where(np.isnan(single), np.float32(np.nan), single) + np.float32(0)  # -0 + 0 is 0
    words = np.ascontiguousarray(single).view(np.uint32).astype(np.uint64)
    if coarse:
        words = (words + np.uint64(1 << 12)) >> np.uint64(13)  # round to ten fraction bits
    return words


class KnownRowMatches(NamedTuple):
    """Counts of rows of other data that match known rows."""

    seen: int
    """Number of known rows with the same label."""
    relabeled: int
    """Number of known rows with another label."""
    decidable: int
    """Number of rows that can be compared with the sample."""


class HashSample(NamedTuple):
    """A sample of a set of hashes: the smallest hashes that occur only once, sorted."""

    least: Hashes
    whole: bool
    """Whether the sample contains all hashes that occur once."""

    @classmethod
    def from_hashes(cls, hashes: Hashes, max_size: int = _SAMPLE_SIZE) -> tuple[Self, npt.NDArray[np.int64], int]:
        """Draw a sample of at most `max_size`; also return its positions, and the number of hashes that occur once."""
        single, at = single_hashes(hashes)
        return cls(single[:max_size], len(single) <= max_size), at[:max_size], len(single)

    def comparable(self, hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
        """Return the sorted hashes that would be in the sample if they were in its set, and their positions."""
        single, at = single_hashes(hashes)
        n = len(single) if self.whole or not len(self.least) else np.searchsorted(single, self.least[-1], side="right")
        return single[:n], at[:n]

    def places(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """Return the position of each hash in the sample, or -1."""
        if not len(self.least):
            return np.full(len(hashes), -1)
        place = np.minimum(np.searchsorted(self.least, hashes), len(self.least) - 1)
        return np.where(self.least[place] == hashes, place, -1)

    def plain(self) -> dict[str, Any]:
        """Return a JSON-serializable form."""
        return {"least": as_text(self.least), "whole": self.whole}

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Read the output of `plain`; raise TypeError, KeyError or ValueError if it is damaged."""
        return cls(from_text(plain["least"]), bool(plain["whole"]))


@dataclass(frozen=True)
class KnownRows:
    """A sample of the rows of a data set that occur only once, from which they can be recognized."""

    sample: HashSample
    labels: tuple[float, ...]
    """Labels of the sampled rows."""
    repeated: float
    """Fraction of rows with duplicates; if it is large, a matching row is weak evidence."""

    @classmethod
    def from_hashes(cls, hashes: Hashes, labels: npt.NDArray[Any]) -> Self:
        """Draw the sample from the hashes of all rows."""
        sample, at, n_single = HashSample.from_hashes(hashes)
        return cls(sample, tuple(labels[at].astype(float).tolist()), 1 - n_single / max(len(hashes), 1))

    def matches(self, hashes: Hashes, labels: npt.NDArray[Any]) -> KnownRowMatches:
        """Count the known rows; duplicate rows are ignored."""
        if not len(self.sample.least):
            return KnownRowMatches(0, 0, 0)
        single, at = self.sample.comparable(hashes)
        places = self.sample.places(single)
        alike = np.array(self.labels)[places[places >= 0]] == labels[at][places >= 0]
        return KnownRowMatches(int(alike.sum()), int((~alike).sum()), len(single))

    def plain(self) -> dict[str, Any]:
        """Return a JSON-serializable form."""
        sample = self.sample.plain()
        return {
            "least": sample["least"],
            "labels": list(self.labels),
            "whole": sample["whole"],
            "repeated": self.repeated,
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Read the output of `plain`; return an empty sample for any other value, as in older files."""
        try:
            sample = HashSample.from_plain(plain)
            labels = tuple(float(label) for label in plain["labels"])
            if len(labels) == len(sample.least):
                return cls(sample, labels, float(plain["repeated"]))
        except (TypeError, KeyError, ValueError):
            pass
        return cls(HashSample(np.empty(0, dtype=np.uint64), True), (), 1.0)


class KnownQueries(NamedTuple):
    """A sample of the queries of a data set, to detect whether they recur with other rows."""

    ids: HashSample
    rows: Hashes
    """Smallest row hash of each sampled query."""

    @classmethod
    def from_data(cls, data: RankingData) -> Self:
        """Draw the sample from data."""
        ids, kept, _ = HashSample.from_hashes(id_hashes(data.qids), _QUERY_SAMPLE_SIZE)
        some = data.select(kept)
        return cls(ids, some.queries.min(row_hashes(some.X)))

    def places(self, qids: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
        """Return the position of each query in the sample (or -1), and the number of comparable queries."""
        hashes = id_hashes(qids)
        n_comparable = len(hashes) if self.ids.whole else int((hashes <= self.ids.least[-1]).sum())
        return self.ids.places(hashes), n_comparable

    def n_unknown(self, known: RankingData, places: npt.NDArray[np.int64]) -> int:
        """Return the number of these sampled queries that certainly have a new row: one with a smaller hash.

        Queries with some or all of their old rows are never counted. Queries with new rows are counted with a
        probability equal to the fraction of new rows.
        """
        return int((known.queries.min(row_hashes(known.X)) < self.rows[places]).sum())

    def plain(self) -> dict[str, Any]:
        """Return a JSON-serializable form."""
        return {"ids": as_text(self.ids.least), "rows": as_text(self.rows), "whole": self.ids.whole}

    @classmethod
    def from_plain(cls, plain: Any) -> Self | None:
        """Read the output of `plain`; return None for any other value, as in older files."""
        try:
            ids, rows = HashSample(from_text(plain["ids"]), bool(plain["whole"])), from_text(plain["rows"])
        except (TypeError, KeyError, ValueError):
            return None
        return cls(ids, rows) if len(ids.least) == len(rows) > 0 else None


def as_text(hashes: Hashes) -> str:
    """Encode hashes as text."""
    return base64.b64encode(hashes.astype("<u8").tobytes()).decode("ascii")


def from_text(text: Any) -> Hashes:
    """Decode the output of `as_text`."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<u8").astype(np.uint64)


def single_hashes(hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Return the sorted hashes that occur only once, and their positions."""
    distinct, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    once = counts == 1
    return distinct[once], first[once]


def same_arrays(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same values (NaN equals NaN) and the same float precision."""
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return False
    if a.dtype.kind == "f":
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "M"))


class Digest:
    """Incremental BLAKE2b hash of the type, shape and values of an array that arrives in blocks of rows.

    The width of a string type is the length of the longest string, at least 1.
    """

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._dtype = np.dtype("<i8") if dtype.kind in "iu" else dtype.newbyteorder("<")
        self._hash = hashlib.blake2b(f"{self._dtype.str} {shape};".encode(), digest_size=16)

    def update(self, block: Array) -> None:
        """Add the next rows."""
        for rows in in_pieces(block):
            plain = np.ascontiguousarray(rows, dtype=self._dtype)
            if plain.size:
                self._hash.update(plain.reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the hash of the rows so far."""
        return self._hash.hexdigest()


def digest(array: Array) -> str:
    """Return a BLAKE2b hash of shape and values, independent of memory layout, string width and integer size.

    >>> digest(np.array(["a", "b"])) == digest(np.array(["a", "b", "long"])[:2])
    True
    """
    dtype = np.dtype(f"<U{longest_text(array)}") if array.dtype.kind == "U" else array.dtype
    result = Digest(dtype, array.shape)
    result.update(array)
    return result.hexdigest()


def longest_text(array: Array) -> int:
    """Return the length of the longest string, at least 1."""
    return max([1, *(int(np.char.str_len(piece).max(initial=1)) for piece in in_pieces(array))])


def training_record(data: RankingData, *, rows: bool) -> dict[str, Any]:
    """Return the record of training data from which a model recognizes queries, judges and, with `rows`, rows later."""
    judges = () if data.metadata is NO_METADATA else judges_of(data.metadata)
    return {
        QUERIES: KnownQueries.from_data(data).plain(),
        **({"judges": list(judges)} if judges else {}),
        **({ROWS: KnownRows.from_hashes(row_hashes(data.X), data.labels).plain()} if rows else {}),
    }
