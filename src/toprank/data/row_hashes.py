"""Rows known again: a hash of each row's features, and a small sample of hashes that tells whose rows they were.

A row keeps its hash in any order, beside any other rows, sparse or dense, in single precision or in double. What is
kept of a data set are its least hashes: the same rows whoever draws them, so that a part of the data, or the data and
more, meet in them.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

__all__ = ["KnownRows", "Met", "row_hashes"]

Hashes = npt.NDArray[np.uint64]

_KEPT = 256  # hashes of a data set that are kept: 2 KB
_CELLS = 1 << 22  # of features that are hashed at a time


def row_hashes(X: Any, *, coarse: bool = False) -> Hashes:
    """A number for each row of features, in single precision; `coarse`: to three digits, so that near-copies agree.

    A row's hash is Σ factor · bits over its columns (modulo 2⁶⁴), well mixed: zero adds nothing, so sparse rows are
    hashed as dense ones.
    """
    n, width = X.shape
    factors = np.random.default_rng(20).integers(0, 1 << 63, width, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    found = np.empty(n, dtype=np.uint64)
    step = max(1, _CELLS // max(width, 1))
    for first in range(0, n, step):
        part = X[first : first + step]
        if hasattr(part, "tocsr"):
            part = part.tocsr()
            words = _words(part.data, coarse) * factors[part.indices]
            sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(words, dtype=np.uint64)])
            found[first : first + step] = sums[part.indptr[1:]] - sums[part.indptr[:-1]]
        else:
            found[first : first + step] = _words(np.asarray(part), coarse) @ factors
    found ^= found >> np.uint64(32)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(31)
    return found


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
    """Rows that were met again."""

    seen: int
    """With the label that they had."""
    relabelled: int
    """With another one."""
    told: int
    """Of so many can be told whether they are known."""


@dataclass(frozen=True)
class KnownRows:
    """What is kept of a data set to know its rows again: those that no other row of it repeats."""

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
        """What to keep of the hashes of all rows."""
        single, at = _single(hashes)
        kept = at[:_KEPT]
        repeated = 1 - len(single) / max(len(hashes), 1)
        return cls(single[:_KEPT], tuple(labels[kept].astype(float).tolist()), len(single) <= _KEPT, repeated)

    def met(self, hashes: Hashes, labels: npt.NDArray[Any]) -> Met:
        """Which of the rows are known; rows that repeat each other are no evidence."""
        single, at = _single(hashes)
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
        text = base64.b64encode(self.least.astype("<u8").tobytes()).decode("ascii")
        return {"least": text, "labels": list(self.labels), "whole": self.whole, "repeated": self.repeated}

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """What `plain` wrote. Of anything else, such as older files hold, nothing is known."""
        try:
            least = np.frombuffer(base64.b64decode(plain["least"], validate=True), dtype="<u8").astype(np.uint64)
            labels = tuple(float(label) for label in plain["labels"])
            if len(labels) == len(least):
                return cls(least, labels, bool(plain["whole"]), float(plain["repeated"]))
        except (TypeError, KeyError, ValueError):
            pass
        return cls(np.empty(0, dtype=np.uint64), (), True, 1.0)


def _single(hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """The hashes that occur once, in order, and where."""
    distinct, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    once = counts == 1
    return distinct[once], first[once]
