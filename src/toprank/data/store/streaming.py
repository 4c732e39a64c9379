"""Streaming of stored copies that are read as one data set; blocks are views of memory-mapped arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import Array, FloatArray, unshortened
from toprank.data.bytesource import PathLike
from toprank.data.dataset import CSR_PARTS, PER_DOCUMENT, RankingData, csr_over
from toprank.data.encoding import Encoding
from toprank.data.hashes import longest_text
from toprank.data.metadata import ARRAY_PREFIX, Metadata, metadata_from_arrays
from toprank.data.queries import Queries, joined_queries
from toprank.data.store.opening import open_store
from toprank.data.store.stream import Block, ColumnDescription, Started, sparse_block, started_sparse
from toprank.errors import FormatError, Remedy

_PART = 32 << 20  # bytes per block of rows


def open_together(paths: Sequence[PathLike], *, verify: bool = False) -> RankingData:
    """Open stored copies as one data set: a single copy is memory-mapped, several are loaded into memory."""
    if len(paths) == 1:
        return open_store(paths[0], verify=verify)
    stream = StoreStream(paths, verify=verify)
    blocks, started = list(stream.blocks()), stream.arrays()
    values: dict[str, Any] = {
        name: np.concatenate([block[name] for block in blocks], dtype=read.dtype, casting="same_kind")
        for name, read in started.items()
    }
    values |= stream.rest()
    held = {name: values.pop(name) for name in list(values) if name.startswith(ARRAY_PREFIX)}
    if "X" not in values:
        values["X"] = csr_over((values.pop(f"X.{part}") for part in CSR_PARTS), stream.shape)
    described = stream.description
    return RankingData._from_validated(
        queries=Queries(values.pop("offsets")),
        feature_names=described.feature_names,
        first_feature_id=described.first_feature_id,
        metadata=metadata_from_arrays(described.metadata, held, len(values["qids"]), described.text),
        encoding=described.encoding,
        roles=described.roles,
        **values,
    )


class StoreStream:
    """Stream over stored copies with the same features and columns.

    The result is sparse if one of the copies is. If rows of a copy were regrouped, source rows are numbered over the
    concatenated sources.
    """

    def __init__(self, paths: Sequence[PathLike], *, verify: bool = False) -> None:
        self._paths = [Path(path) for path in paths]
        self._copies = [open_store(path, verify=verify) for path in self._paths]
        self._refuse_drift()
        self._encoding = Encoding.concatenate([copy.encoding for copy in self._copies], self._copies[0].feature_names)
        self._is_sparse = any(copy.is_sparse for copy in self._copies)
        self._are_moved = any(copy.source_rows is not None for copy in self._copies)
        self._names = [name for name in PER_DOCUMENT if getattr(self._copies[0], name) is not None]
        first, roles = self._copies[0], [copy.roles for copy in self._copies]
        self.description = ColumnDescription(
            feature_names=first.feature_names,
            first_feature_id=self._first_feature_id(),
            metadata=tuple(first.metadata),
            text=first.text,
            encoding=self._encoding,
            roles=roles[0] if all(other == roles[0] for other in roles) else None,
        )
        self._rest = self._joined()

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return sum(copy.n_documents for copy in self._copies), self._copies[0].n_features

    def arrays(self) -> dict[str, Started]:
        """Describe the arrays in the blocks."""
        n, width = self.shape
        kind = np.result_type(*(copy.X.dtype for copy in self._copies))
        arrays = {"X": Started(kind, (width,), n)}
        if self._is_sparse:
            at_most = sum(len(copy.X.data) if copy.is_sparse else copy.X.size for copy in self._copies)
            index = np.dtype(np.int32 if max(at_most, width) < 2**31 else np.int64)
            entries = at_most if all(copy.is_sparse for copy in self._copies) else None
            arrays = started_sparse(kind, index, n, entries)
        for name in self._names:
            dtype = np.dtype(PER_DOCUMENT[name])
            if name == "document_ids":
                dtype = np.dtype(f"U{max(longest_text(getattr(copy, name)) for copy in self._copies)}")
            arrays[name] = Started(dtype, (), n)
        if self._are_moved:
            arrays["source_rows"] = Started(np.dtype(np.int64), (), n)
        return arrays

    def blocks(self) -> Iterator[Block]:
        """Iterate over the rows, copy by copy."""
        row = entries = source_row = 0
        for copy in self._copies:
            step = max(1, _PART // _bytes_per_row(copy))
            for first in range(0, copy.n_documents, step):
                rows = slice(first, min(first + step, copy.n_documents))
                X = unshortened(copy.X)[rows]
                if self._encoding is not None:
                    X = self._encoding.translated(X, copy.known_columns())
                block = self._features(X, entries, is_first=row == 0)
                entries += len(block.get("X.data", ()))
                block |= {name: getattr(copy, name)[rows] for name in self._names}
                if self._are_moved:
                    moved = np.arange(rows.start, rows.stop) if copy.source_rows is None else copy.source_rows[rows]
                    block["source_rows"] = source_row + moved
                row += rows.stop - rows.start
                yield block
            moved_to = -1 if copy.source_rows is None else int(copy.source_rows.max())
            source_row += max(copy.n_documents, 1 + moved_to)  # at least this many rows in its source

    def _first_feature_id(self) -> int | None:
        """Return the feature id of the first column, if a copy was made from LETOR text."""
        return next((copy.first_feature_id for copy in self._copies if copy.first_feature_id is not None), None)

    def rest(self) -> Block:
        """Return the queries, their ids and weights, and the metadata."""
        return self._rest

    def _features(self, X: Any, entries: int, is_first: bool) -> Block:
        if not self._is_sparse:
            return {"X": X}
        if isinstance(X, np.ndarray):
            from scipy import sparse

            X = sparse.csr_matrix(X)
        return sparse_block(X, entries, is_first)

    def _refuse_drift(self) -> None:
        """Raise an error if the features or columns of a copy differ from the first copy."""
        first, name_of_first = self._copies[0], self._paths[0]
        for path, copy in zip(self._paths[1:], self._copies[1:], strict=True):
            if copy.n_features != first.n_features:
                problem = f"There are {copy.n_features} features, but {first.n_features} in {name_of_first}."
                raise FormatError(f"{problem} Write all copies with the same features.", path=path)
            if None is not copy.first_feature_id != self._first_feature_id():
                first_id = f"The first column is feature {copy.first_feature_id} of its text"
                alike = "write all copies with the same first_feature_id= and n_features=."
                remedy = Remedy(alike, "convert the text of all of them in one command.")
                raise FormatError(f"{first_id}, but not in {name_of_first};", path=path, remedy=remedy)
            if copy.feature_names != first.feature_names:
                problem = (
                    f"The feature names differ from those in {name_of_first}; write all copies with the same names."
                )
                raise FormatError(problem, path=path)
            if set(copy.metadata) != set(first.metadata):
                odd = sorted(set(copy.metadata) ^ set(first.metadata))[0]
                problem = f"The column '{odd}' is metadata in only one of this copy and {name_of_first}."
                raise FormatError(f"{problem} Give it to all copies, or to none.", path=path)
            if copy.text != first.text:
                problem = f"The text columns differ from those in {name_of_first}."
                raise FormatError(f"{problem} Write all copies with the same text.", path=path)
            for name in (*PER_DOCUMENT, "query_weights"):
                here, there = (getattr(opened, name) is not None for opened in (copy, first))
                if here != there:
                    there_is = "are no" if there else "are"
                    has = "has" if there else "does not have"
                    problem = f"There {there_is} {name.replace('_', ' ')}, which {name_of_first} {has}."
                    raise FormatError(f"{problem} Give them to all copies, or to none.", path=path)

    def _joined(self) -> Block:
        """Return the queries of all copies; a query that continues in the next copy is joined."""
        ids = [copy.qids for copy in self._copies]
        if len({part_ids.dtype.kind for part_ids in ids}) > 1:
            ids = [part_ids.astype(str) for part_ids in ids]
        stretches = np.concatenate(ids)
        sizes = np.concatenate([copy.queries.sizes for copy in self._copies])
        starts, again = joined_queries(stretches)
        if again is not None:
            before = self._path_of(int(np.argmax(stretches == stretches[again])))
            raise FormatError(
                f"Query {stretches[again]} already occurs in {before}, and its rows are not contiguous. Reorder the "
                "copies so that its rows are contiguous, or remove it from one copy.",
                path=self._path_of(again),
            )
        arrays = {"offsets": Queries.from_sizes(np.add.reduceat(sizes, starts)).offsets, "qids": stretches[starts]}
        if self._copies[0].query_weights is not None:
            arrays["query_weights"] = self._weights(stretches, starts)
        parts = [(copy.metadata, copy.queries) for copy in self._copies]
        return arrays | Metadata.concatenate(parts, Queries(arrays["offsets"])).arrays()

    def _weights(self, stretches: Array, starts: Array) -> FloatArray:
        weights: FloatArray = np.concatenate(
            [copy.query_weights for copy in self._copies if copy.query_weights is not None]
        )
        wrong = (stretches[1:] == stretches[:-1]) & (weights[1:] != weights[:-1])
        if wrong.any():
            place = 1 + int(np.argmax(wrong))
            raise FormatError(
                f"Query {stretches[place]} continues here with another weight; give it the same weight in all copies.",
                path=self._path_of(place),
            )
        return weights[starts]

    def _path_of(self, stretch: int) -> Path:
        """Return the path of the copy that contains a query, given by its number over all copies."""
        ends = np.cumsum([copy.n_queries for copy in self._copies])
        return self._paths[int(np.searchsorted(ends, stretch, side="right"))]


def _bytes_per_row(copy: RankingData) -> int:
    ids = 0 if copy.document_ids is None else copy.document_ids.itemsize
    values: int = len(copy.X.data) // copy.n_documents if copy.is_sparse else copy.n_features
    return values * 2 * int(copy.X.dtype.itemsize) + ids + 64
