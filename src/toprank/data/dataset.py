"""`RankingData`: features, labels and queries, validated on construction and immutable afterwards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from toprank.compute import Array, FloatArray, in_pieces, unshortened
from toprank.data.arrays import (
    Grades,
    check_any_weight,
    checked_columns,
    checked_features,
    checked_names,
    checked_weights,
    common_index,
)
from toprank.data.encoding import Column, Encoding
from toprank.data.hashes import digest, same_arrays
from toprank.data.metadata import NO_METADATA, Metadata
from toprank.data.queries import Queries, checked_regroup, group_rows
from toprank.data.roles import Roles
from toprank.data.row_order import DocumentValues, Order, places_of
from toprank.data.texts import TextRoles
from toprank.errors import DataError, UnknownNameError, count_of

if TYPE_CHECKING:
    from toprank.data.frames.options import TableKeywords


@dataclass(frozen=True, init=False, eq=False, repr=False)
class RankingData:
    """Documents with features and labels, grouped by query.

    Args:
        X: features, one row per document: a NumPy array, a SciPy sparse matrix (stored as CSR) or a data frame. float32
            and float64 arrays are used without a copy; other numbers become float64. NaN means missing. Categories of a
            frame become integer codes that depend on that frame (see `encoding`); to get the codes of other data, read
            the frame with `like=`, see `from_frame`.
        y: labels (grades), real numbers; higher is better. NaN and -1 mean "not judged". Default: all unjudged.
        qid: query id of each document, integers or strings. The rows of a query need not be contiguous, see
            `regroup`. Default: all documents belong to one query.
        queries: the grouping itself, instead of `qid`.
        qids: one id for each query, together with `queries`. Default: 0, 1, 2 …
        document_ids: one id for each document, as strings.
        document_weights: one weight for each document, not negative.
        query_weights: one weight for each query, not negative.
        positions: integer position at which each document was shown (click data).
        teacher: finite scores of another ranker, one for each document, for distillation with losses such as
            `toprank.losses.SoftmaxKL`.
        source_rows: row number of each document in the file or array that it came from, if grouping reordered the rows.
            It names documents without ids, and `in_source_order` uses it to restore the original order. `select`,
            `filter` and `concatenate` preserve it. Ignored by `equals`.
        source_index: index of the pandas frame that the documents came from, in the order of the documents. A pandas
            column of scores is aligned by it. Default: the index of X, y and qid. Ignored by `equals`, and not saved in
            a stored copy.
        metadata: columns that are not features (device, language, date …), by name: text, numbers, booleans or dates,
            one value for each document or for each query. They follow their rows into subsets and are used by splits
            (`toprank.split`), slices (`toprank.compare`) and reports.
        feature_names: one name for each column of X.
        first_feature_id: feature id of the first column in LETOR text, 0 or 1, so that other files can be read with the
            same columns. Ignored by `equals`.
        text: metadata columns that hold the text of queries and documents: ``{"query": "search_term", "document":
            ["title", "description"]}``. Rankers add features of the match between them; see `toprank.text`.
        encoding: description of the columns of X, if some hold categories (as codes), dates or durations. Set
            automatically for tables and frames.
        roles: roles (query, label, weight …) of the columns of the table that was read, and which of them were inferred
            from column names. Rankers remember them. Set automatically for tables and frames. Ignored by `equals`.
        regroup: whether to group scattered rows of a query; queries are ordered by first appearance, and rows keep
            their order within a query. False raises an error instead. Default: True.

    All values per document, here and in everything computed from the data, are in the order of the rows of X.
    One-dimensional arrays are copied, so that later changes by the caller have no effect.

    >>> data = RankingData([[1.0], [2.0], [3.0]], [0, 1, 2], qid=["a", "a", "b"])
    >>> data
    RankingData(2 queries, 3 documents, 1 feature, dense float64, grades 0-2)
    >>> data.qids.tolist(), data.queries.offsets.tolist()
    (['a', 'b'], [0, 2, 3])
    """

    X: Any
    labels: FloatArray
    queries: Queries
    qids: Array
    document_ids: Array | None
    document_weights: FloatArray | None
    query_weights: FloatArray | None
    positions: npt.NDArray[np.int64] | None
    teacher: FloatArray | None
    source_rows: npt.NDArray[np.int64] | None
    source_index: Any
    feature_names: tuple[str, ...] | None
    first_feature_id: int | None
    metadata: Metadata
    encoding: Encoding | None
    roles: Roles | None

    def __init__(
        self,
        X: Any,
        y: npt.ArrayLike | None = None,
        *,
        qid: npt.ArrayLike | None = None,
        queries: Queries | None = None,
        qids: npt.ArrayLike | None = None,
        document_ids: npt.ArrayLike | None = None,
        document_weights: npt.ArrayLike | None = None,
        query_weights: npt.ArrayLike | None = None,
        positions: npt.ArrayLike | None = None,
        teacher: npt.ArrayLike | None = None,
        source_rows: npt.ArrayLike | None = None,
        source_index: Any = None,
        feature_names: Sequence[str] | None = None,
        first_feature_id: int | None = None,
        metadata: Mapping[str, npt.ArrayLike] = NO_METADATA,
        text: Any = None,
        encoding: Encoding | None = None,
        roles: Roles | None = None,
        regroup: bool | None = None,
    ) -> None:
        matrix, names, own_encoding = checked_features(X)
        n = matrix.shape[0]
        if n == 0:
            raise DataError("X has no rows; give at least one document.")
        order, groups, ids = group_rows(qid, queries, qids, n, checked_regroup(regroup, default=True))
        common_index(
            metadata if type(metadata) is dict else {},
            X=X, y=y, qid=qid, document_ids=document_ids, document_weights=document_weights, teacher=teacher,
            positions=positions,
        )  # fmt: skip
        index = common_index(X=X, y=y, qid=qid) if source_index is None else source_index
        if index is not None and len(index) != n:
            raise DataError(f"source_index has {len(index)} labels for {n} documents; there must be one for each.")
        columns = {
            "labels": np.full(n, np.nan) if y is None else y,
            "document_ids": document_ids,
            "document_weights": document_weights,
            "positions": positions,
            "teacher": teacher,
            "source_rows": source_rows,
        }
        per_document = checked_columns(columns, n)
        if document_weights is not None:
            check_any_weight(per_document["document_weights"], "document_weights")
        if order is not None:
            matrix = matrix[order]
            per_document.setdefault("source_rows", np.arange(n))
            index = None if index is None else index[order]
            per_document = {name: column[order] for name, column in per_document.items()}
        known = encoding if encoding is not None else own_encoding
        column_names = checked_names(feature_names if feature_names is not None else names, matrix.shape[1])
        if known is not None and not known.is_plain and not isinstance(matrix, np.ndarray):
            raise DataError("Columns of categories, dates or durations are kept dense; give X.toarray().")
        weights_of_queries = checked_weights(query_weights, len(groups), "query_weights", "queries")
        self._set(
            X=matrix,
            queries=groups,
            qids=np.array(ids),
            query_weights=None if weights_of_queries is None else np.array(weights_of_queries),
            source_index=index,
            feature_names=column_names,
            first_feature_id=first_feature_id,
            metadata=NO_METADATA
            if metadata is NO_METADATA and text is None
            else Metadata.from_columns(metadata, groups, order, text),
            encoding=None if known is None else known.named(column_names),
            roles=roles,
            **{name: np.array(column) for name, column in per_document.items()},
        )

    @classmethod
    def from_frame(cls, frame: Any, **keywords: Unpack[TableKeywords]) -> RankingData:
        """Build ranking data from a pandas, polars or Arrow table: ``RankingData.from_frame(df, label="rel")``.

        See `toprank.data.frames.from_frame` for the arguments and for the column names that are recognized.
        """
        from toprank.data.frames import from_frame

        return from_frame(frame, **keywords)

    def to_frame(self, kind: Literal["arrow", "pandas", "polars"] = "pandas") -> Any:
        """Return a pandas, polars or Arrow table: ids, label and weights under their names, then the features.

        See `toprank.data.frames.to_frame`. `from_frame` infers query, label and document id of such a table; name the
        weight columns of a pandas or polars frame.

        >>> RankingData([[1.5], [2.5]], [0, 1], qid=["a", "a"]).to_frame().columns.tolist()
        ['qid', 'label', 'feature_1']
        """
        from toprank.data.frames import to_frame

        check_files(self)
        return to_frame(self, kind)

    @classmethod
    def _from_validated(cls, **values: Any) -> RankingData:
        """Build data from fields that are known to be valid (of a stored copy or of other data), without checks."""
        data = object.__new__(RankingData)
        data._set(**values)
        return data

    def _with_validated(self, **changes: Any) -> RankingData:
        """Return a copy with some fields changed, as `replace` does, but without checking the new values."""
        return RankingData._from_validated(**(self._values() | changes))

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(RankingData)}

    def _set(self, **values: Any) -> None:
        for field in fields(RankingData):
            value: Any = values.get(field.name)
            if isinstance(value, np.ndarray):
                value = _read_only(value)
            elif field.name == "X":
                value = csr_over((_read_only(getattr(value, part)) for part in CSR_PARTS), value.shape)
            elif field.name == "metadata" and value is None:
                value = NO_METADATA
            object.__setattr__(self, field.name, value)

    @property
    def n_documents(self) -> int:
        """Number of documents (rows)."""
        return self.queries.n_documents

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.queries)

    @property
    def n_features(self) -> int:
        """Number of features (columns)."""
        return int(self.X.shape[1])

    @property
    def text(self) -> TextRoles | None:
        """The metadata columns with the text of queries and documents, or None."""
        return self.metadata.text

    @property
    def is_sparse(self) -> bool:
        """True if X is a SciPy CSR matrix."""
        return not isinstance(self.X, np.ndarray)

    @property
    def qid(self) -> Array:
        """The query id of each document."""
        return self.queries.broadcast(self.qids)

    @property
    def row_names(self) -> Array:
        """Names of the documents: their ids or, without ids, their row numbers in the source."""
        if self.document_ids is not None:
            return self.document_ids
        return np.arange(self.n_documents) if self.source_rows is None else self.source_rows

    @cached_property
    def grades(self) -> Grades:
        """The labels, factorized into codes and distinct values."""
        return Grades.from_labels(self.labels)

    @cached_property
    def judged(self) -> npt.NDArray[np.bool_]:
        """Mask of the documents that have a judgment: their label is neither NaN nor -1."""
        result: npt.NDArray[np.bool_] = ~(np.isnan(self.labels) | (self.labels == -1))
        return result

    @property
    def n_unjudged(self) -> int:
        """Number of documents without a judgment."""
        return int((~self.judged).sum())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content (features, labels, grouping, ids, weights); equal data have equal fingerprints."""
        return self._fingerprint({name: digest(array) for name, array in self.arrays().items()})

    def _fingerprint(self, digests: dict[str, str]) -> str:
        parts = [f"{name} {digests[name]}" for name in self.arrays()]
        named: tuple[Any, ...] = () if self.metadata is NO_METADATA else (tuple(self.metadata),)
        named += () if self.text is None else (tuple(self.text),)
        described = () if self.encoding is None else (self.encoding.plain(),)
        whole = (self.X.shape, self.feature_names, parts, *named, *described)
        return hashlib.blake2b(repr(whole).encode(), digest_size=16).hexdigest()

    def with_digests(self, digests: dict[str, str]) -> RankingData:
        """Set the fingerprint from array hashes saved in a stored copy, so that the arrays need not be read."""
        self.__dict__["fingerprint"] = self._fingerprint(digests)
        return self

    @cached_property
    def was_regrouped(self) -> bool:
        """True if grouping by query changed the order of the rows."""
        return self.source_rows is not None and bool((self.source_rows[1:] < self.source_rows[:-1]).any())

    @property
    def source_places(self) -> npt.NDArray[np.int64]:
        """Rank of each document among these documents in the order of the source."""
        if not self.was_regrouped:
            return np.arange(self.n_documents)
        rows = np.asarray(self.source_rows)
        places = np.empty(len(rows), dtype=np.int64)
        places[np.argsort(rows, kind="stable")] = np.arange(len(rows))
        return places

    def aligned(self, values: Any, order: Order | None = None) -> Array:
        """Return values, one for each document, in the order of the rows of X.

        All functions that take scores (`evaluate`, `compare`, runs, reports and clicks) align them with this method. A
        pandas column is aligned by its index if the data came from a pandas frame; other values are assumed to be in
        the order of X. If grouping reordered the rows (`was_regrouped`), this order is ambiguous: a plain array is then
        accepted only if `predict` returned it for these data, or with `order`.

        Args:
            values: one value for each document; for a subset of data, one for each document of the subset.
            order: order of the values, which overrides an index: ``"data"`` for the order of the rows of X, or
                ``"source"`` for the order of the original rows. In a subset, only its own rows count; in concatenated
                data, the first part precedes the second.

        Raises:
            DataError: the order of the values is ambiguous, or their number is wrong.

        >>> data = RankingData([[1.0], [2.0], [3.0]], [0, 1, 2], qid=["a", "b", "a"])
        >>> data.aligned([10, 20, 30], order="source").tolist(), data.aligned([10, 30, 20], order="data").tolist()
        ([10, 30, 20], [10, 30, 20])
        """
        array = self._one_for_each(values)
        places = None if order == "data" else places_of(self, values, order)
        return self.mark_predictions(array.view() if places is None else array[places])

    def in_source_order(self, values: npt.ArrayLike) -> Array:
        """Return values that are in the order of X in the order of the original rows.

        >>> data = RankingData([[1.0], [2.0], [3.0]], [0, 1, 2], qid=["a", "b", "a"])
        >>> data.in_source_order(data.labels).tolist()
        [0.0, 1.0, 2.0]
        """
        array = self._one_for_each(values)
        if not self.was_regrouped:
            return array
        back = np.empty_like(array)
        back[self.source_places] = array
        return back

    @cached_property
    def row_order_token(self) -> object:
        """Identity of these documents in this order, for `DocumentValues`; copies with the same rows share it."""
        return object()

    def mark_predictions(self, values: Array) -> Array:
        """Mark values as computed for these documents in their order, so that `aligned` accepts them."""
        return DocumentValues.from_values(values, self.row_order_token) if self.was_regrouped else values

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "row_order_token"}

    def without_source_order(self) -> RankingData:
        """Return the data without `source_rows`, as if the source had been in this order."""
        if self.source_rows is None:
            return self
        data = copy(self)
        object.__setattr__(data, "source_rows", None)
        data.__dict__.pop("was_regrouped", None)
        return data

    def _one_for_each(self, values: Any) -> Array:
        array = np.asarray(values)
        if array.ndim == 0 or len(array) != self.n_documents:
            raise DataError(
                f"There are {len(array) if array.ndim else 1} values for {self.n_documents} documents; give one value "
                "for each document. If the data are a subset, give only its values, or align them before taking the "
                "subset."
            )
        return array

    def known_columns(self) -> Encoding:
        """The encoding; if the data have none, an encoding of numbers only."""
        names = self.feature_names or tuple(str(number) for number in range(self.n_features))
        return self.encoding or Encoding(tuple(Column(name) for name in names))

    def arrays(self, source: bool = False) -> dict[str, Array]:
        """Return all arrays of the data by name (three for a sparse X), with `source_rows` if `source` is set."""
        parts = {"X": self.X} if not self.is_sparse else {f"X.{p}": getattr(self.X, p) for p in CSR_PARTS}
        parts |= {"labels": self.labels, "offsets": self.queries.offsets, "qids": self.qids}
        optional = [*OPTIONAL, "source_rows"] if source else OPTIONAL
        parts |= {name: getattr(self, name) for name in optional if getattr(self, name) is not None}
        return parts if self.metadata is NO_METADATA else parts | self.metadata.arrays()

    def select(self, which: npt.ArrayLike) -> RankingData:
        """Return the data of some queries, given by their numbers in the desired order or by a mask over the queries.

        >>> data = RankingData([[1.0], [2.0], [3.0]], [0, 1, 2], qid=["a", "a", "b"])
        >>> data.select([1]).labels.tolist()
        [2.0]
        """
        chosen = self._query_numbers(which)
        sizes = self.queries.sizes[chosen]
        queries = Queries.from_sizes(sizes)
        if (
            np.diff(chosen) == 1
        ).all():  # Contiguous queries become a view, so that a subset of a memory-mapped copy stays on disk.
            first = int(self.queries.offsets[chosen[0]])
            return self._rows(slice(first, first + queries.n_documents), queries, chosen)
        rows = np.arange(queries.n_documents) + np.repeat(self.queries.offsets[chosen] - queries.offsets[:-1], sizes)
        return self._rows(rows, queries, chosen)

    def _query_numbers(self, which: npt.ArrayLike) -> Array:
        """Convert a mask or list of queries to an array of distinct numbers; raise a DataError if it is empty."""
        chosen = np.asarray(which)
        if chosen.dtype == bool and chosen.shape != (self.n_queries,):
            raise DataError(f"The mask has {chosen.size} values for {self.n_queries} queries; give one for each query.")
        if chosen.size == 0 or (chosen.dtype == bool and not chosen.any()):
            raise DataError("No query is selected; select at least one.")
        if chosen.dtype == bool:
            return np.flatnonzero(chosen)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise DataError(f"Select queries by a list of numbers or by a mask, not by {chosen.dtype} {chosen.shape}.")
        outside = (chosen < 0) | (chosen >= self.n_queries)
        if outside.any():
            raise DataError(
                f"Query number {chosen[outside][0]} does not exist; numbers run from 0 to {self.n_queries - 1}."
            )
        if len(np.unique(chosen)) < len(chosen):
            raise DataError("A query is selected twice; select each query only once.")
        return chosen.astype(np.int64)  # Signed 64-bit: differences of unsigned or short integers would wrap.

    def filter(self, documents: npt.ArrayLike) -> RankingData:
        """Return the data of the documents where the mask is True; queries without remaining documents are dropped."""
        mask = np.asarray(documents)
        if mask.dtype != bool or mask.shape != (self.n_documents,):
            raise DataError(
                f"Filter documents by a mask of {self.n_documents} booleans, one for each document, not by "
                f"{mask.dtype} {mask.shape}."
            )
        left = self.queries.sum(mask)
        chosen = np.flatnonzero(left)
        if len(chosen) == 0:
            raise DataError("The mask selects no document; select at least one.")
        return self._rows(np.flatnonzero(mask), Queries.from_sizes(left[chosen]), chosen)

    def _rows(self, rows: Array | slice, queries: Queries, chosen: Array) -> RankingData:
        def part(name: str, index: Array | slice) -> Array | None:
            whole = getattr(self, name)
            return None if whole is None else whole[index]

        check_files(self)
        values = {name: part(name, rows) for name in (*PER_DOCUMENT, "source_rows", "source_index")}
        return RankingData._from_validated(
            X=self.X[rows],
            queries=queries,
            feature_names=self.feature_names,
            first_feature_id=self.first_feature_id,
            metadata=NO_METADATA if self.metadata is NO_METADATA else self.metadata.take(rows, chosen, queries),
            encoding=self.encoding,
            roles=self.roles,
            **values,
            **{name: part(name, chosen) for name in ("qids", "query_weights")},
        )

    def without_features(self) -> RankingData:
        """Return the same documents without features, so that subsets are cheap whatever the size of X."""
        bare = self._with_validated(X=np.empty((self.n_documents, 0)), feature_names=None, encoding=None)
        return self._with_same_rows(bare)

    def replace(self, **changes: Any) -> RankingData:
        """Return a copy with some fields changed (`X`, `labels`, `document_ids`, `feature_names` …), validated again.

        Scores that `predict` returned for these data are valid for the copy, too, unless `queries` or `source_rows`
        change.
        """
        values = self._values()
        for name in changes:
            if name not in values and name != "text":  # `text` is part of the metadata.
                raise UnknownNameError("field of RankingData", name, (*values, "text"))
        values |= changes
        replaced = RankingData(values.pop("X"), values.pop("labels"), **values)
        return replaced if {"queries", "source_rows"} & set(changes) else self._with_same_rows(replaced)

    def _with_same_rows(self, other: RankingData) -> RankingData:
        """Share cached properties with `other`, which holds the same documents in the same order."""
        other.__dict__["row_order_token"] = self.row_order_token
        return other

    def equals(self, other: RankingData) -> bool:
        """Return whether both hold the same values (NaN equals NaN), ids, weights and names."""
        mine, theirs = self.arrays(), other.arrays()
        return (
            mine.keys() == theirs.keys()
            and self.X.shape == other.X.shape
            and self.feature_names == other.feature_names
            and list(self.metadata) == list(other.metadata)
            and self.text == other.text
            and self.encoding == other.encoding
            and all(same_arrays(mine[name], theirs[name]) for name in mine)
        )

    def __len__(self) -> int:
        return self.n_documents

    def __repr__(self) -> str:
        check_files(self)
        judged = self.labels[self.judged]
        return (
            f"{type(self).__name__}({count_of(self.n_queries, 'query')}, "
            f"{count_of(self.n_documents, 'document')}, {count_of(self.n_features, 'feature')}, "
            f"{'sparse' if self.is_sparse else 'dense'} {self.X.dtype}, "
            + (f"grades {judged.min() + 0.0:g}-{judged.max() + 0.0:g})" if len(judged) else "no judgments)")
        )

    def __str__(self) -> str:
        inferred = "" if self.roles is None else ", ".join(self.roles.in_words())
        return f"{self!r}, inferred from column names: {inferred}" if inferred else repr(self)


PER_DOCUMENT = {
    "labels": np.float64,
    "document_ids": str,
    "document_weights": np.float64,
    "positions": np.int64,
    "teacher": np.float64,
}
"""Types of the fields with one value for each document that stored copies and tables provide."""
OPTIONAL = ["document_ids", "document_weights", "query_weights", "positions", "teacher"]
CSR_PARTS = ("data", "indices", "indptr")


def _read_only(array: Array) -> Array:
    """Return a read-only view; the array of the caller stays writable."""
    view = array.view()
    view.flags.writeable = False
    return view


def csr_over(arrays: Iterable[Array], shape: tuple[int, ...]) -> Any:
    """Build a CSR matrix over these arrays (`CSR_PARTS`) without reading them, as SciPy's constructor would."""
    from scipy import sparse

    data, indices, indptr = arrays
    matrix = sparse.csr_matrix(shape, dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


def same_content(data: Any, other: Any) -> bool:
    """Return whether two data sets have the same content; cheap if they differ in shape, queries or labels."""
    if data is other:
        return True
    if not (isinstance(data, RankingData) and isinstance(other, RankingData)):
        return False
    if data.X.shape != other.X.shape or not np.array_equal(data.queries.offsets, other.queries.offsets):
        return False
    return np.array_equal(data.labels, other.labels, equal_nan=True) and data.fingerprint == other.fingerprint


def dense_rows(X: Any) -> FloatArray:
    """Return rows of features, dense or sparse, as a dense array in double precision."""
    return np.ascontiguousarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


_MAPPED = (
    "X",
    "labels",
    "qids",
    "document_ids",
    "document_weights",
    "query_weights",
    "positions",
    "teacher",
    "source_rows",
)


def check_files(data: Any) -> None:
    """Raise an error if another program has truncated the files of the data; see `unshortened`."""
    for name in _MAPPED:
        unshortened(getattr(data, name))
    unshortened(data.queries.offsets)


def check_data(caller: str, data: Any) -> None:
    """Raise an error if `data` is not a `RankingData`; `caller` names the function in the message.

    >>> check_data("split", "train.txt")
    Traceback (most recent call last):
    toprank.errors.DataError: split needs a RankingData, not a str. Read the file first: tr.read('train.txt').
    """
    if isinstance(data, RankingData):
        check_files(data)
        return
    if isinstance(data, str | os.PathLike):
        remedy = f"Read the file first: tr.read({str(data)!r})."
    elif hasattr(data, "columns"):
        remedy = "Convert the frame first: tr.RankingData.from_frame(frame)."
    else:
        remedy = "Build one first: tr.RankingData(X, y, qid=qid)."
    raise DataError(f"{caller} needs a RankingData, not a {type(data).__name__}. {remedy}")


def refuse_infinite(infinite: npt.NDArray[Any], names: Any) -> None:
    """Raise an error that names the first column where `infinite` is True, if any."""
    if infinite.any():
        column = int(np.flatnonzero(infinite)[0])
        feature = f"'{names[column]}'" if names is not None else f"number {column} (from 0)"
        raise DataError(f"Feature {feature} holds infinite values; replace them, or make them NaN (missing).")


def check_finite(X: Any, names: Any) -> None:
    """Raise an error that names the first column with infinite values, if any."""
    if not isinstance(X, np.ndarray):
        infinite = np.isinf(unshortened(X).data)
        if infinite.any():
            refuse_infinite(np.bincount(X.indices[infinite], minlength=X.shape[1]) > 0, names)
        return
    for piece in in_pieces(X):
        infinite = np.isinf(piece)
        if infinite.any():
            refuse_infinite(np.logical_or.reduce(infinite, axis=0), names)
