"""What losses that draw go by: a word for each query, of the seed, the draw and the query's id.

The kernels make numbers of it and of a document's place in its query: the same bits on any number of threads, and
whatever other queries there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from toprank.data.row_hashes import id_hashes
from toprank.losses.base import Judgments


@dataclass(frozen=True, eq=False)
class Chance:
    """The chance of each query in one draw."""

    seed: int
    hashes: npt.NDArray[np.uint64]
    """Of the queries' ids."""
    draw: int = 0

    @classmethod
    def of(cls, judgments: Judgments, seed: int) -> Self:
        """That of the first draw; queries without ids are known by their numbers."""
        ids = np.arange(len(judgments.queries)) if judgments.query_ids is None else judgments.query_ids
        return cls(seed, id_hashes(ids))

    def drawn(self, draw: int) -> Self:
        """That of another draw."""
        return replace(self, draw=draw)

    @property
    def keys(self) -> npt.NDArray[np.uint64]:
        """A word for each query, which the kernels mix: a bit of it moves every bit of the noise."""
        word = np.random.SeedSequence([self.seed, self.draw]).generate_state(1, np.uint64)
        return self.hashes ^ word
