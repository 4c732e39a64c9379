"""The second pass over LETOR text: allocate what the survey has measured, fill it, and finish it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.bytesource import ByteSource, check_size
from toprank.data.letor import kernels
from toprank.data.letor.groups import Grouping
from toprank.data.letor.kernels import (
    ENTRIES,
    ID_FOREIGN,
    ID_LENGTH,
    ID_ZERO,
    LARGEST_ID,
    LEAST_ID,
    MOST_ID,
    N_IDENTIFIED,
    N_ROWS,
)
from toprank.data.letor.passes import Survey, fault_at, parse_chunks
from toprank.errors import DataError, FormatError

__all__ = ["Parsed", "Reader", "id_range", "index_type", "n_entries"]

# A quiet NaN with a payload that no arithmetic produces; it never leaves the row that is being read.
_HOLES: dict[int, Any] = {4: np.uint32(0x7FC07070), 8: np.uint64(0x7FF8707070707070)}


class Parsed(NamedTuple):
    """What rows of text say."""

    X: Any
    labels: FloatArray
    document_ids: npt.NDArray[Any] | None
    first_id: int


class Reader:
    """Reads features, labels and document ids of surveyed files into arrays of the wanted kind."""

    def __init__(
        self,
        sources: Sequence[ByteSource],
        surveys: Sequence[Survey],
        grouping: Grouping,
        dtype: np.dtype[Any],
        dense: bool,
        zeros: bool,
        threads: int | None,
    ) -> None:
        self.surveys, self.grouping, self.threads = surveys, grouping, threads
        self.dtype, self.dense, self.zeros = dtype, dense, zeros
        self.text_bytes = sum(source.size for source in sources)
        self.n_rows = int(grouping.run_rows.sum())

    def read(self, n_features: int | None, first_id: int | None) -> Parsed:
        """Features, labels and document ids."""
        ids, (least, most) = self.id_type(), id_range(self.surveys)
        while True:  # twice only where a row with ids out of order proves the survey wrong
            shape = self.shape(least, most, n_features, first_id)
            parsed, (below, beyond) = self.parse(shape, ids)
            if parsed is not None:
                return parsed
            least, most = min(least, below), max(most, beyond)

    def shape(self, least: int, most: int, n_features: int | None, first_id: int | None) -> kernels.Shape:
        """What the result looks like where ids lie in this range; refused where it is out of proportion."""
        first = first_id if first_id is not None else int(least != 0)
        width = n_features if n_features is not None else max(most - first + 1, 0)
        if self.dense:
            what = f"A dense array of {self.n_rows:,} rows and {width:,} features"
            n_bytes = self.n_rows * width * self.dtype.itemsize
            wanted = most if n_features is None else -1
            check_size(n_bytes, self.text_bytes, what, "Read with layout='sparse'.", partial(self._at_id, wanted))
        missing = 0.0 if self.zeros and self.dense else np.nan
        hole = _HOLES[self.dtype.itemsize]
        return kernels.Shape(first, width, first_id is not None, n_features is not None, missing, hole)

    def _at_id(self, feature: int, problem: str) -> FormatError:
        """The error at the first place that names a feature; at no line where none does."""
        for survey in self.surveys:
            chunk = survey.chunk
            found = re.search(rb"(?<!\S)0*%d:" % feature, chunk.source.bytes(chunk.start, chunk.end))
            if feature >= 0 and found is not None:
                return chunk.source.fault(problem, chunk.start + found.start())
        return FormatError(problem, path=self.surveys[0].chunk.source.path)

    def parse(self, shape: kernels.Shape, ids: np.dtype[Any] | None) -> tuple[Parsed | None, tuple[int, int]]:
        """The rows in this shape, or None and the range of the ids that lie outside of it."""
        result = self._result(shape.width, ids)
        below, beyond, shuffled = parse_chunks(self.surveys, self.grouping.places, shape, result, self.threads)
        if beyond >= 0:
            return None, (below, beyond)
        dense = result.values.reshape(self.n_rows, shape.width) if self.dense else None
        X = self._sparse(result, shape, shuffled) if dense is None else dense
        words = None if ids is None else self._document_ids(result, ids)
        return Parsed(X, result.labels, words, shape.first_id), (below, beyond)

    def _result(self, width: int, ids: np.dtype[Any] | None) -> kernels.Result:
        if self.dense:
            n_values, n_ends = self.n_rows * width, 0
        else:
            n_values, n_ends = n_entries(self.surveys), self.n_rows
        index = np.int32 if self.dense else index_type(n_values, width)
        values = np.empty(n_values, dtype=self.dtype)
        letters = (0, 0) if ids is None else (self.n_rows, ids.itemsize // 4)
        return kernels.Result(
            values=values,
            bits=values.view(_HOLES[self.dtype.itemsize].dtype),
            columns=np.empty(0 if self.dense else n_values, dtype=index),
            row_ends=np.zeros(n_ends + 1, dtype=index)[1:],
            labels=np.empty(self.n_rows),
            ids=np.empty(letters, dtype=np.uint32),
        )

    def _sparse(self, result: kernels.Result, shape: kernels.Shape, shuffled: bool) -> Any:
        from scipy import sparse

        ends = result.row_ends.base
        X = sparse.csr_matrix((result.values, result.columns, ends), shape=(self.n_rows, shape.width), copy=False)
        if shuffled:
            X.has_sorted_indices = False
            X.sort_indices()
            repeats = X.indices[1:] == X.indices[:-1]
            repeats[X.indptr[1:-1][(X.indptr[1:-1] > 0) & (X.indptr[1:-1] < X.nnz)] - 1] = False
            if repeats.any():
                entry = int(np.argmax(repeats))
                row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
                feature = int(X.indices[entry]) + shape.first_id
                raise _repeated_id(self.surveys, self.grouping.row_of_text(row), feature)
        if self.zeros and (absent := np.isnan(X.data)).any():
            kept = np.concatenate([[0], np.cumsum(~absent)])[X.indptr].astype(X.indptr.dtype)
            X = sparse.csr_matrix((X.data[~absent], X.indices[~absent], kept), shape=X.shape)
        return X

    def id_type(self) -> np.dtype[Any] | None:
        """The type of the document ids as the text spells them; None where some row has none."""
        states = np.array([survey.state for survey in self.surveys])
        longest = int(states[:, ID_LENGTH].max())
        if states[:, N_IDENTIFIED].sum() < self.n_rows:
            return None
        for survey in self.surveys:
            if survey.state[ID_ZERO]:
                problem = "The document id ends in a zero byte, which ids may not; remove it."
                raise survey.chunk.source.fault(problem, int(survey.state[ID_ZERO]) - 1)
        try:
            check_size(4 * longest * self.n_rows, self.text_bytes, "The document ids, padded to the longest one,", "")
        except DataError as problem:
            path = self.surveys[0].chunk.source.path
            warnings.warn(f"{path}: {problem}They are left out.", stacklevel=4)
            return None
        return np.dtype(f"U{longest}")

    @property
    def foreign_ids(self) -> bool:
        """Whether a document id holds letters beyond ASCII."""
        return any(survey.state[ID_FOREIGN] for survey in self.surveys)

    def _document_ids(self, result: kernels.Result, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        ids = result.ids.reshape(-1).view(kind)
        if self.foreign_ids:  # the kernel stores bytes as letters; bytes that are no UTF-8 stay visible
            return np.array([word.encode("latin-1").decode("utf-8", "backslashreplace") for word in ids.tolist()])
        return ids


def id_range(surveys: Sequence[Survey]) -> tuple[int, int]:
    """The least and the most feature id that the survey saw."""
    states = np.array([survey.state for survey in surveys])
    return int(states[:, LEAST_ID].min()), int(states[:, MOST_ID].max())


def n_entries(surveys: Sequence[Survey]) -> int:
    """The number of features that the rows mention."""
    return int(sum(survey.runs[:, ENTRIES].sum() for survey in surveys))


def index_type(entries: int, width: int) -> type[np.int32 | np.int64]:
    """The type of a sparse matrix's indices."""
    return np.int32 if max(entries, width) <= LARGEST_ID else np.int64


def _repeated_id(surveys: Sequence[Survey], row: int, feature: int) -> FormatError:
    """The error for a feature id that stands twice in a row, given by its number over all files."""
    for survey in surveys:
        if row < survey.state[N_ROWS]:
            break
        row -= int(survey.state[N_ROWS])
    source, at = survey.chunk.source, survey.chunk.start
    while True:
        end = source.newline(at)
        line = source.bytes(at, end).partition(b"#")[0]
        if line.strip():
            if row == 0:
                break
            row -= 1
        at = end + 1
    digits = str(feature).encode().lstrip(b"0")
    found = [at + m.start() for m in re.finditer(rb"(?<!\S)(\d+):", line) if m.group(1).lstrip(b"0") == digits]
    return fault_at(source, kernels.REPEATED, found[1], 0)
