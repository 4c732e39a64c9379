"""What a file larger than memory looks like to whoever writes its stored copy: arrays that come block by block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from toprank.errors import FileError

__all__ = ["Block", "StartAgain", "Started", "Stream", "became_shorter"]

Block = dict[str, npt.NDArray[Any]]
"""The next rows of each array, by its name in the store."""


class Started(NamedTuple):
    """What is known of an array before its first block; see `toprank.data.store_writing.StoreWriter.start`."""

    dtype: np.dtype[Any] | None
    tail: tuple[int, ...]
    length: int | None


class StartAgain(Exception):  # noqa: N818 - a request, not an error
    """Raised by a stream whose survey proved wrong: it knows better now, and its blocks must be taken anew."""


class Stream(Protocol):
    """Ranking data in blocks of rows, in the order of the source. The source can be passed over more than once."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """One name for each feature, where they have names."""

    @property
    def first_feature_id(self) -> int | None:
        """For LETOR text, the feature id of the first column."""

    def arrays(self) -> dict[str, Started]:
        """The arrays that come in blocks."""

    def blocks(self) -> Iterator[Block]:
        """The blocks.

        Raises:
            StartAgain: the arrays are not what was said; begin anew.
        """

    def rest(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that do not come in blocks; asked for when the blocks are through."""


def became_shorter(path: str | os.PathLike[str]) -> FileError:
    """The error for a source that lost bytes while it was read."""
    return FileError(f"{os.fspath(path)} became shorter while it was read. Read it again when nothing writes to it.")
