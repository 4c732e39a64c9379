"""Random numbers of losses: one word per query, from the seed, the draw and the id of the query.

The kernels derive the numbers of a document from the word of its query and its index in the query, so they depend
neither on the number of threads nor on other queries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from toprank.data.hashes import id_hashes
from toprank.losses.base import Judgments


@dataclass(frozen=True, eq=False)
class RandomStream:
    """The random words of the queries in one draw."""

    seed: int
    hashes: npt.NDArray[np.uint64]
    """Hash of each query's id."""
    draw: int = 0

    @classmethod
    def from_judgments(cls, judgments: Judgments, seed: int) -> Self:
        """Return the words of the first draw; queries without ids use their indices."""
        ids = np.arange(len(judgments.queries)) if judgments.query_ids is None else judgments.query_ids
        return cls(seed, id_hashes(ids))

    def resampled(self, draw: int) -> Self:
        """Return the words of another draw."""
        return replace(self, draw=draw)

    @property
    def keys(self) -> npt.NDArray[np.uint64]:
        """A word for each query; the kernels mix it so that each bit changes every bit of the noise."""
        word = np.random.SeedSequence([self.seed, self.draw]).generate_state(1, np.uint64)
        return self.hashes ^ word
