"""LETOR text, block by block, for a stored copy of text that is larger than memory.

The survey of the whole text comes first, as for reading: it counts rows and queries, finds the width of the matrix,
and so the final shapes are known before a row is written. What it keeps is one line for each query. The second pass
then reads a few megabytes of text at a time.
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

_PART = 32 << 20  # bytes of arrays at a time, and more where that keeps all threads busy, but not without end:
_LARGEST_PART = 2  # times as much


class LetorStream:
    """The files of `read_letor`, surveyed; its options."""

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
        """Rows and features."""
        return self._whole.n_rows, self._shape.width

    @property
    def description(self) -> ColumnDescription:
        """The names in the side files, and the feature id of the first column."""
        first, names = self._shape.first_id, self._text.names
        return ColumnDescription(None if names is None else names.check(first, self._shape.width), first)

    def arrays(self) -> dict[str, Started]:
        """What the blocks are made of."""
        n, width = self.shape
        kind = self._wanted.dtype
        arrays = {"X": Started(kind, (width,), n)}
        if not self._wanted.dense:
            entries = n_entries(self._surveys)
            length = None if self._wanted.zeros else entries  # where NULLs are left out, nobody has counted them
            arrays = started_sparse(kind, np.dtype(index_type(entries, width)), n, length)
        arrays["labels"] = Started(np.dtype(np.float64), (), n)
        if self._id_type is not None:
            arrays["document_ids"] = Started(None if self._whole.foreign_ids else self._id_type, (), n)
        return arrays

    def blocks(self) -> Iterator[Block]:
        """The rows, in order; refuses at the first line that is not what it should be."""
        entries = 0
        for number, part in enumerate(self._parts()):
            parsed, outside = part.parse(self._shape, self._id_type)
            if number == 0:  # a line that cannot be read at all would have been the better thing to report
                self.rest()
            if parsed is None:
                raise self._wider(outside)
            block = self._block(parsed, entries, first=number == 0)
            entries += len(block.get("X.data", ()))
            yield block

    def _parts(self) -> Iterator[Reader]:
        """Readers of some neighboring chunks each."""
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
        """Bytes of memory that a row takes while it is read."""
        n, width = self.shape
        kind = self._wanted.dtype
        features = (
            width * kind.itemsize if self._wanted.dense else 16 + n_entries(self._surveys) * (kind.itemsize + 4) // n
        )
        ids = 0 if self._id_type is None else self._id_type.itemsize
        if ids and self._whole.foreign_ids:  # three arrays, and two strings of Python's
            ids = 3 * ids + 256
        return features + ids + np.dtype(np.float64).itemsize

    def _wider(self, outside: tuple[int, int]) -> StartAgain:
        """Find the true range of ids, in a text with ids out of order, so that one more start is enough."""
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
            # Where some ids are foreign, no block is wider than its letters: the room was measured in bytes.
            block["document_ids"] = ids.astype(f"U{longest_text(ids)}") if self._whole.foreign_ids else ids
        return block

    def rest(self) -> Block:
        """The arrays that are small enough to be held: queries, and what the side files say."""
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
