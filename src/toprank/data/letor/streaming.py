"""Streaming of LETOR text into a stored copy, for text larger than memory.

As in reading, the first pass counts rows and queries and determines the width of the matrix, so the shapes of all
arrays are known before writing. It stores one entry per query. The second pass reads a few megabytes of text at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from toprank import kernels
from toprank.compute import available_threads
from toprank.data.arrays import checked_weights
from toprank.data.bytesource import PathLike
from toprank.data.hashes import longest_text
from toprank.data.letor.reading import LetorOptions, Parsed, Reader, id_range, index_type, n_entries
from toprank.data.letor.survey import SurveyedText
from toprank.data.queries import IN_MEMORY
from toprank.data.store.stream import Block, ColumnDescription, StartAgain, Started, sparse_block, started_sparse

_PART = 32 << 20  # bytes of arrays per block; more if needed to keep all threads busy, up to
_LARGEST_PART = 2  # times this size


class LetorStream:
    """Stream over the files of `read_letor` after the first pass."""

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        threads: int | None = None,
        spool: Path | None = None,
        **options: Any,
    ) -> None:
        wanted = LetorOptions.from_keywords(**options, threads=threads)
        self._text = SurveyedText.from_files(paths, threads, remedy=IN_MEMORY, spool=spool)
        self._wanted, self._surveys = wanted.named(self._text.names), self._text.surveys
        self._ids_seen = id_range(self._surveys)
        self._whole = Reader(self._surveys, self._text.grouping, self._wanted)
        self._id_type = self._whole.id_type()
        self._shape = self._whole.shape(*self._ids_seen)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return self._whole.n_rows, self._shape.width

    @property
    def description(self) -> ColumnDescription:
        """Feature names from the side files, and the feature id of the first column."""
        first, names = self._shape.first_id, self._text.names
        return ColumnDescription(None if names is None else names.check(first, self._shape.width), first)

    def arrays(self) -> dict[str, Started]:
        """Describe the arrays in the blocks."""
        n, width = self.shape
        kind = self._wanted.dtype
        arrays = {"X": Started(kind, (width,), n)}
        if not self._wanted.dense:
            entries = n_entries(self._surveys)
            length = None if self._wanted.zeros else entries  # the number of entries without NULLs is unknown
            arrays = started_sparse(kind, np.dtype(index_type(entries, width)), n, length)
        arrays["labels"] = Started(np.dtype(np.float64), (), n)
        if self._id_type is not None:
            arrays["document_ids"] = Started(None if self._whole.foreign_ids else self._id_type, (), n)
        return arrays

    def blocks(self) -> Iterator[Block]:
        """Iterate over the rows in order; raise an error at the first invalid line."""
        entries = 0
        for number, part in enumerate(self._parts()):
            parsed, outside = part.parse(self._shape, self._id_type)
            if number == 0:  # after the first block, because an unreadable line is the more helpful error
                self.rest()
            if parsed is None:
                raise self._wider(outside)
            block = self._block(parsed, entries, first=number == 0)
            entries += len(block.get("X.data", ()))
            yield block

    def _parts(self) -> Iterator[Reader]:
        """Yield readers of consecutive chunks."""
        per_row, at_least = self._bytes_per_row(), available_threads(self._wanted.threads)
        first, first_run, last_run, rows = 0, 0, 0, 0
        for last, survey in enumerate(self._surveys, 1):
            rows += int(survey.state[kernels.LetorSurvey.N_ROWS])
            last_run += len(survey.runs)
            parts = rows * per_row / _PART
            full = parts >= 1 and (last - first >= at_least or parts >= _LARGEST_PART)
            if (full or last == len(self._surveys)) and last_run > first_run:
                grouping = self._text.grouping.part(first_run, last_run)
                yield Reader(self._surveys[first:last], grouping, self._wanted)
                first, first_run, rows = last, last_run, 0

    def _bytes_per_row(self) -> int:
        """Return the number of bytes in memory per row during reading."""
        n, width = self.shape
        kind = self._wanted.dtype
        features = (
            width * kind.itemsize if self._wanted.dense else 16 + n_entries(self._surveys) * (kind.itemsize + 4) // n
        )
        ids = 0 if self._id_type is None else self._id_type.itemsize
        if ids and self._whole.foreign_ids:  # three arrays, and two Python strings
            ids = 3 * ids + 256
        return features + ids + np.dtype(np.float64).itemsize

    def _wider(self, outside: tuple[int, int]) -> StartAgain:
        """Find the true range of ids in a text with unordered ids, so that one restart suffices."""
        least, most = self._ids_seen
        ranges = [outside, *(part.parse(self._shape, self._id_type)[1] for part in self._parts())]
        self._ids_seen = min(least, *(r[0] for r in ranges)), max(most, *(r[1] for r in ranges))
        self._shape = self._whole.shape(*self._ids_seen)
        return StartAgain()

    def _block(self, parsed: Parsed, entries: int, first: bool) -> Block:
        block: Block = {"X": parsed.X} if self._wanted.dense else sparse_block(parsed.X, entries, first)
        block["labels"] = parsed.labels
        ids = parsed.document_ids
        if ids is not None:
            # The width is in bytes, so blocks with non-ASCII ids need at most as many characters.
            block["document_ids"] = ids.astype(f"U{longest_text(ids)}") if self._whole.foreign_ids else ids
        return block

    def rest(self) -> Block:
        """Return the arrays that fit into memory: queries and the columns of side files."""
        return self._rest

    @cached_property
    def _rest(self) -> Block:
        queries, qids = self._text.queries()
        sides = self._text.per_document()
        query_weights = sides.weight_of_each_query(queries, qids)
        arrays = {
            "offsets": queries.offsets,
            "qids": np.arange(len(queries)) if qids is None else qids,
            "document_weights": checked_weights(sides.weights, self.shape[0], "document_weights", "documents"),
            "query_weights": checked_weights(query_weights, len(queries), "query_weights", "queries"),
            "positions": sides.positions,
            "teacher": sides.teacher,
        }
        return {name: array for name, array in arrays.items() if array is not None}
