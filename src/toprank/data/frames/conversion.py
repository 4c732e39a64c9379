"""Data frames in and out: pandas, polars and Arrow tables become ranking data and back.

Every frame is seen as a stream of Arrow record batches, so there is one way in (`layout_of` decides which column plays
which role, `gather` fills the arrays) and one way out (`batches_of`); files of tables use the same two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from toprank.data.dataset import RankingData
from toprank.data.frames.gathering import ROWS_AT_A_TIME, fill, gather
from toprank.data.frames.layout import METADATA_KEY, USUAL_NAMES, Choice, layout_of, numbered
from toprank.errors import DataError, UnknownNameError

__all__ = ["from_frame", "to_frame"]

Array = npt.NDArray[Any]


def from_frame(
    frame: Any,
    *,
    label: Choice = None,
    qid: Choice = None,
    features: Sequence[str] | None = None,
    document_id: Choice = None,
    weight: Choice = None,
    query_weight: Choice = None,
    position: Choice = None,
    dtype: npt.DTypeLike | None = None,
    regroup: bool = False,
) -> RankingData:
    """Ranking data from a pandas or polars frame, an Arrow table or record batch.

    Each role is given by a column's name, or `False` for "there is none". Where it is not given, a column with a usual
    name (in any case) takes it: ``label, relevance, grade, rel, y, target``; ``qid, query_id, query, q_id, group``;
    ``document_id, docid, doc_id, docno, did``; ``weight``; ``query_weight``; ``position``. Two candidates for a role,
    or none for the label or the query id, are an error. Tables written by toprank remember their roles.

    Args:
        frame: the table. A pandas index is not a column and is left out. Where a file or an Arrow table keeps it as
            a column, that column may play a role, but is no feature unless `features` names it.
        label: column of grades; empty cells are unjudged documents. `False`: no document is judged.
        qid: column of query ids, whole numbers or text. `False`: all rows belong to one query.
        features: columns to use, in this order. Default: all columns without a role; they must hold numbers or
            truth values. Empty cells become NaN. A column listed here is never guessed to play a role.
        document_id: column of document ids.
        weight: column of document weights.
        query_weight: column of query weights, the same in all rows of a query.
        position: column of the positions at which documents were shown.
        dtype: float32 or float64. Default: float32 where that holds every feature column exactly (float32, float16,
            truth values, integers of 8 or 16 bits), else float64.
        regroup: bring scattered rows of a query together.

    >>> import pyarrow as pa
    >>> from_frame(pa.table({"qid": [1, 1, 2], "label": [0, 2, 1], "bm25": [0.1, 0.7, None]}))
    RankingData(2 queries, 3 documents, 1 feature, dense float64, grades 0-2)
    """
    table = _table_of(frame)
    given = {
        "label": label,
        "qid": qid,
        "document_id": document_id,
        "weight": weight,
        "query_weight": query_weight,
        "position": position,
    }
    layout = layout_of(table.schema, given, features, dtype)
    return gather(table.to_batches(), layout, table.num_rows, regroup=regroup)


def matrix_of(frame: Any) -> tuple[Array, tuple[str, ...]]:
    """A frame all of whose columns are features, as a matrix and its column names."""
    if hasattr(frame, "dtypes") and hasattr(frame, "to_numpy"):
        kinds = {str(kind) for kind in frame.dtypes}
        if kinds in ({"float32"}, {"float64"}):  # one block in pandas: no copy
            return np.asarray(frame), tuple(str(name) for name in frame.columns)
    table = _table_of(frame)
    nothing: dict[str, Choice] = dict.fromkeys(USUAL_NAMES, False)
    layout = layout_of(table.schema, nothing, None, None)
    X, _ = fill(table.to_batches(), layout, table.num_rows)
    return X, layout.features


def to_frame(data: RankingData, kind: Literal["arrow", "pandas", "polars"] = "arrow") -> Any:
    """The data as a table: columns qid, document_id, label, position, weight, query_weight (those that there are), then
    the features by name, or as feature_1, feature_2 … A sparse X becomes dense columns.

    >>> data = RankingData([[1.5], [2.5]], [0, 1], qid=["a", "a"])
    >>> to_frame(data).to_pydict()
    {'qid': ['a', 'a'], 'label': [0.0, 1.0], 'feature_1': [1.5, 2.5]}
    """
    if kind not in ("arrow", "pandas", "polars"):
        raise UnknownNameError("kind of frame", kind, ("arrow", "pandas", "polars"))
    import pyarrow as pa

    table = pa.Table.from_batches(batches_of(data), schema_of(data))
    try:
        if kind == "pandas":
            return table.to_pandas()
        if kind == "polars":
            import polars

            return polars.from_arrow(table)
    except ImportError as problem:
        raise DataError(f"A {kind} frame needs {kind}, which is not installed: {problem}.") from None
    return table


def role_columns(data: RankingData) -> dict[str, Array]:
    """The columns that are not features, by role, one value for each document."""
    weights = None if data.query_weights is None else data.queries.spread(data.query_weights)
    columns = {
        "qid": data.qid,
        "document_id": data.document_ids,
        "label": data.labels,
        "position": data.positions,
        "weight": data.document_weights,
        "query_weight": weights,
    }
    return {role: column for role, column in columns.items() if column is not None}


def schema_of(data: RankingData) -> Any:
    """The Arrow schema of `to_frame`, with the roles in its metadata."""
    import pyarrow as pa

    kinds = {"qid": pa.int64() if data.qids.dtype.kind == "i" else pa.string(), "document_id": pa.string()}
    roles = role_columns(data)
    names = data.feature_names or numbered(data.n_features)
    for name in names:
        if name in roles:
            raise DataError(f"A feature is called '{name}', as the column for the {name} is; rename the feature.")
    fields = [(role, pa.int64() if role == "position" else kinds.get(role, pa.float64())) for role in roles]
    fields += [(name, pa.from_numpy_dtype(data.X.dtype)) for name in names]
    metadata = json.dumps({"version": 1, "roles": {role: role for role in roles}})
    return pa.schema(fields, metadata={METADATA_KEY: metadata.encode()})


def batches_of(data: RankingData, rows: int = 8 * ROWS_AT_A_TIME) -> Iterator[Any]:
    """The data as record batches of at most `rows` rows."""
    import pyarrow as pa

    schema, roles = schema_of(data), role_columns(data)
    for start in range(0, data.n_documents, rows):
        block = data.X[start : start + rows]
        by_column = np.ascontiguousarray((block.toarray() if data.is_sparse else block).T)
        arrays = [*(column[start : start + rows] for column in roles.values()), *by_column]
        columns = [pa.array(array, type=field.type) for array, field in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _table_of(frame: Any) -> Any:
    """Any supported frame as an Arrow table, without a copy where possible."""
    import pyarrow as pa

    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        return frame
    try:
        if type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns"):
            return _table_of_pandas(frame)
        if hasattr(frame, "to_arrow"):
            return _table_of(frame.to_arrow())
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
    except pa.ArrowException as problem:
        raise DataError(f"The frame cannot be read: {problem}. Every column needs values of one type.") from None
    raise DataError(
        f"A {type(frame).__name__} is not a frame that toprank knows; give a pandas or polars DataFrame "
        "(collect a lazy one first) or an Arrow table."
    )


def _table_of_pandas(frame: Any) -> Any:
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Two columns are called '{twice}'; rename one of them.")
    return pa.Table.from_pandas(frame, preserve_index=False)
