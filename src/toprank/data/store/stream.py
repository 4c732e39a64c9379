"""Ranking data in blocks of rows, on their way into a stored copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from toprank.data.encoding import Encoding
from toprank.data.roles import Roles
from toprank.data.texts import TextRoles

Block = dict[str, npt.NDArray[Any]]
"""The next rows of each array, by its name in the store."""


class Started(NamedTuple):
    """What is known of an array before its first block; see `toprank.data.store.writing.StoreWriter.start`."""

    dtype: np.dtype[Any] | None
    tail: tuple[int, ...]
    length: int | None


class StartAgain(Exception):  # noqa: N818 - a request, not an error
    """Raised by a stream whose survey proved wrong: it knows better now, and its blocks must be taken anew."""


@dataclass(frozen=True)
class ColumnDescription:
    """What ranking data say of their columns, beside the arrays; `RankingData` has these attributes too.

    Attributes:
        feature_names: one name for each feature; None if they have no names.
        first_feature_id: for LETOR text, the feature id of the first column.
        metadata: names of the metadata columns.
        text: which of them hold the words of queries and documents.
        encoding: what the features are, if some are no plain numbers.
        roles: roles of the columns of the table that the data come from.
    """

    feature_names: tuple[str, ...] | None = None
    first_feature_id: int | None = None
    metadata: tuple[str, ...] = ()
    text: TextRoles | None = None
    encoding: Encoding | None = None
    roles: Roles | None = None


class Stream(Protocol):
    """Ranking data in blocks of rows, in the order of the source. The source can be passed over more than once."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""

    @property
    def description(self) -> ColumnDescription:
        """The columns; asked for when the blocks are through."""

    def arrays(self) -> dict[str, Started]:
        """The arrays that come in blocks."""

    def blocks(self) -> Iterator[Block]:
        """The blocks.

        Raises:
            StartAgain: the arrays are not what was said; begin anew.
        """

    def rest(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that do not come in blocks; asked for when the blocks are through."""


def started_sparse(values: np.dtype[Any], index: np.dtype[Any], n_rows: int, entries: int | None) -> dict[str, Started]:
    """The arrays of a sparse X, with so many entries where that is known."""
    both = {"X.data": Started(values, (), entries), "X.indices": Started(index, (), entries)}
    return both | {"X.indptr": Started(index, (), n_rows + 1)}


def sparse_block(X: Any, entries: int, is_first: bool) -> Block:
    """Some rows of a sparse X, behind so many entries."""
    ends = X.indptr.astype(np.int64) + entries
    return {"X.data": X.data, "X.indices": X.indices, "X.indptr": ends if is_first else ends[1:]}
