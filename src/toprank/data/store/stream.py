"""Streams: ranking data in blocks of rows, for conversion to stored copies."""

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
"""The next rows of each array, by its name in the stored copy."""


class Started(NamedTuple):
    """Type, shape and length of an array before its first block; see `toprank.data.store.writing.StoreWriter.start`."""

    dtype: np.dtype[Any] | None
    tail: tuple[int, ...]
    length: int | None


class StartAgain(Exception):  # noqa: N818 - a request, not an error
    """Raised by a stream whose survey was wrong; the survey is corrected, and the blocks must be requested again."""


@dataclass(frozen=True)
class ColumnDescription:
    """Description of the columns of ranking data; `RankingData` has the same attributes.

    Attributes:
        feature_names: one name for each feature; None if they have no names.
        first_feature_id: for LETOR text, the feature id of the first column.
        metadata: names of the metadata columns.
        text: metadata columns with the text of queries and documents.
        encoding: encoding of the features, if some are not numbers.
        roles: roles of the columns of the source table.
    """

    feature_names: tuple[str, ...] | None = None
    first_feature_id: int | None = None
    metadata: tuple[str, ...] = ()
    text: TextRoles | None = None
    encoding: Encoding | None = None
    roles: Roles | None = None


class Stream(Protocol):
    """Ranking data in blocks of rows, in the order of the source, which can be read more than once."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""

    @property
    def description(self) -> ColumnDescription:
        """Description of the columns; valid after the last block."""

    def arrays(self) -> dict[str, Started]:
        """Return the arrays that are provided in blocks."""

    def blocks(self) -> Iterator[Block]:
        """Iterate over the blocks.

        Raises:
            StartAgain: the description of the arrays was wrong and is now corrected; start again.
        """

    def rest(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that are not provided in blocks; valid after the last block."""


def started_sparse(values: np.dtype[Any], index: np.dtype[Any], n_rows: int, entries: int | None) -> dict[str, Started]:
    """Describe the arrays of a sparse X; `entries` is the number of entries, or None if unknown."""
    both = {"X.data": Started(values, (), entries), "X.indices": Started(index, (), entries)}
    return both | {"X.indptr": Started(index, (), n_rows + 1)}


def sparse_block(X: Any, entries: int, is_first: bool) -> Block:
    """Return rows of a sparse X as a block; `entries` is the number of entries before them."""
    ends = X.indptr.astype(np.int64) + entries
    return {"X.data": X.data, "X.indices": X.indices, "X.indptr": ends if is_first else ends[1:]}
