"""How likely a click is where a document stood: α and β of each position, or of each cell of contexts and positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.clicks.contexts import Layout
from toprank.clicks.log import ClickLog, UnidentifiedError
from toprank.compute import FloatArray, IntArray

__all__ = ["Curves", "Shrinkage"]


class Shrinkage(NamedTuple):
    """How curves were drawn towards the whole (`shrinking`): how much is their own, and what they vary by."""

    own: FloatArray
    variance: FloatArray


@dataclass(frozen=True)
class Curves:
    """α and β of each position, from the first on; NaN or an α of 0 where a click says nothing.

    `origin` says where they are from, and `least` the least α to divide by unless another is asked for. With a `layout`
    they are those of its cells, context by context, and `shrunk` says how these were drawn towards the whole.
    """

    slope: FloatArray
    offset: FloatArray
    origin: str
    least: float = 0.0
    layout: Layout | None = None
    shrunk: Shrinkage | None = None

    @property
    def depth(self) -> int:
        """Positions of each context."""
        return len(self.slope) if self.layout is None else self.layout.depth

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """Whether clicks at each position (or in each cell) can be corrected without a least α."""
        return self.known & (self.slope > 0)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether α and β of each are numbers."""
        return np.isfinite(self.slope) & np.isfinite(self.offset)

    def cells(self, log: ClickLog) -> IntArray:
        """Of each impression, where its α and β stand."""
        return log.position - 1 if self.layout is None else self.layout.cells(log)

    def slopes(self, log: ClickLog) -> FloatArray:
        """Of each impression its α."""
        return self.slope[self.cells(log)]

    def at_ranks(
        self, log: ClickLog, asking: Callable[[], IntArray], query: IntArray, ranks: IntArray, deepest: int, metric: str
    ) -> tuple[FloatArray, FloatArray]:
        """α and β of documents, were they at these ranks of lists of their queries; below the deepest, those of it.

        Args:
            log: whose sessions say in which contexts each query is asked for.
            asking: gives of each session the number of its query, or -1.
            query: of each document.
            ranks: of each document, from 1.
            deepest: the last rank that counts.
            metric: what needs them.
        """
        if self.layout is None:
            if deepest > len(self.slope) or not self.known[:deepest].all():
                raise UnidentifiedError(
                    f"{metric} needs the propensities of all positions down to {deepest}, and some are not known."
                )
            place = np.minimum(ranks, len(self.slope)) - 1
            return self.slope[place], self.offset[place]
        session_query = asking()
        n_queries = max(int(query.max()), int(session_query.max())) + 1
        tables = self.layout.at_ranks(log, session_query, n_queries, deepest, (self.slope, self.offset))
        asked = np.bincount(session_query[session_query >= 0], minlength=n_queries) > 0
        rows = []
        for table in tables:
            if table.shape[1] < deepest or np.isnan(table[asked]).any():
                raise UnidentifiedError(
                    f"{metric} needs the propensities of all positions down to {deepest} in each context of "
                    f"{self.layout.called}, and some are not known."
                )
            rows.append(table[query, np.minimum(ranks, deepest) - 1])
        return rows[0], rows[1]
