"""Conversion between pandas, polars and Arrow tables and ranking data.

All frames and table files are processed as Arrow record batches: `layout_of` assigns roles to the columns, `gather`
fills the arrays, and `batches_of` converts ranking data back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal, Unpack

import numpy as np

from toprank.compute import Array
from toprank.data.arrays import index_of, strings
from toprank.data.dataset import RankingData
from toprank.data.encoding import Encoding, UnknownLevelTracker, is_text, kind_of
from toprank.data.frames.arrow import as_frame, table_of, words_of
from toprank.data.frames.categories import learn_levels
from toprank.data.frames.layout import METADATA_KEY, Layout, index_names, known_columns, layout_of, numbered, role_takes
from toprank.data.frames.metadata import metadata_values, type_of
from toprank.data.frames.options import TableKeywords, TableOptions, check_keywords
from toprank.data.queries import weight_of_each_query
from toprank.data.roles import Roles
from toprank.errors import DataError

ROWS_AT_A_TIME = 8192


def gather(
    batches: Iterable[Any],
    layout: Layout,
    n_rows: int,
    *,
    regroup: bool | None,
    ids_from_text: bool = False,
    index: Any = None,
) -> RankingData:
    """Build ranking data from record batches with at least the columns of a layout.

    More than `n_rows` rows are allowed, but need a copy. With `ids_from_text` (CSV), query ids that are all integers
    become integers. `index` is the index of the frame, if any.
    """
    X, columns = fill(batches, layout, n_rows)
    if len(X) == 0:
        raise DataError("The table has no rows.")
    values = {role: role_values(role, name, columns[role], layout) for role, name in layout.roles.items()}
    qid, weight_of_query = values.get("qid"), values.get("query_weight")
    data = RankingData(
        X,
        values.get("label"),
        qid=whole_numbers(qid) if ids_from_text and qid is not None else qid,
        document_ids=values.get("document_id"),
        document_weights=values.get("weight"),
        positions=values.get("position"),
        teacher=values.get("teacher"),
        source_index=index,
        feature_names=layout.feature_names,
        metadata={
            name: metadata_values(name, columns[f"metadata {name}"], ids_from_text, layout.is_text(name))
            for name in layout.metadata
        },
        text=layout.text,
        encoding=layout.encoding,
        roles=layout.assigned,
        regroup=regroup,
    )
    if weight_of_query is None:
        return data
    grouped = weight_of_query if data.source_rows is None else weight_of_query[data.source_rows]
    return data.replace(query_weights=weight_of_each_query(grouped, data.queries, data.qids))


def fill(batches: Iterable[Any], layout: Layout, n_rows: int) -> tuple[Array, dict[str, list[Any]]]:
    """Return the feature matrix, and the chunks of the column of each role."""
    try:
        X = np.empty((n_rows, len(layout.features)), dtype=layout.dtype)
    except (MemoryError, ValueError):  # the number of rows in a damaged file may be negative
        raise DataError(f"{n_rows} rows of {len(layout.features)} features do not fit into memory.") from None
    aside = layout.roles | {f"metadata {name}": name for name in layout.metadata}
    columns: dict[str, list[Any]] = {role: [] for role in aside}
    filled, unknown = 0, UnknownLevelTracker(layout.encoding or Encoding(()))
    for batch in batches:
        for role, name in aside.items():
            columns[role].append(batch.column(name))
        if filled + batch.num_rows > len(X):
            X.resize((max(filled + batch.num_rows, len(X) * 3 // 2), X.shape[1]), refcheck=False)
        fill_rows(X[filled : filled + batch.num_rows], batch, layout, unknown)
        filled += batch.num_rows
    unknown.warn()
    if filled < len(X):
        X.resize((filled, X.shape[1]), refcheck=False)
    return X, columns


def fill_rows(rows: Array, batch: Any, layout: Layout, unknown: UnknownLevelTracker) -> None:
    """Write the features of a record batch into rows of a matrix."""
    columns = [batch.column(name) for name in layout.features]
    if layout.encoding is not None:
        arrays = columns
        columns = [column.numbers(cells) for column, cells in zip(layout.encoding.columns, arrays, strict=True)]
        for place in layout.encoding.categories:
            unknown.update(place, columns[place], partial(arrays.__getitem__, place))
    # Process a few thousand rows at a time, so that this part of the matrix stays in the cache.
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        part = rows[start : start + ROWS_AT_A_TIME]
        for place, column in enumerate(columns):
            is_array = isinstance(column, np.ndarray)
            part[:, place] = (
                column[start : start + ROWS_AT_A_TIME] if is_array else _floats(column.slice(start, ROWS_AT_A_TIME))
            )


def _floats(column: Any) -> Array:
    """Convert a numeric Arrow array to floats; empty cells become NaN."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    floats: Array = column.to_numpy(zero_copy_only=False)
    return floats


def role_values(role: str, name: str, pieces: list[Any], layout: Layout, first_row: int = 0) -> Array:
    """Return the column of a role as an array; values except ids become floats. Messages count from `first_row`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = pieces[0].type
    if pa.types.is_dictionary(kind):
        pieces = [piece.dictionary_decode() for piece in pieces]
        kind = pieces[0].type
    is_id = role in ("qid", "document_id")
    expected, fits = role_takes(role, kind)
    if not fits:
        raise DataError(f"Column '{name}' has the role '{role}' and must contain {expected}, not {kind}.")
    missing = pc.index(pa.chunked_array([piece.is_null() for piece in pieces]), True).as_py()
    if missing >= 0 and role != "label":
        raise _empty(name, role, first_row + missing)
    if is_text(kind):
        words = [value for piece in pieces for value in piece.to_pylist()]
        blank = next((row for row, word in enumerate(words) if not word.strip()), None)
        if blank is not None and not layout.ours:
            raise _empty(name, role, first_row + blank)
        return strings(words, f"Column '{name}'", first_row)
    if is_id and pa.types.is_decimal(kind):  # distinct large decimals could become equal floats
        return _whole_decimals([value for piece in pieces for value in piece.to_pylist()], name, first_row)
    if pa.types.is_integer(kind) and role != "label":
        return np.concatenate([piece.to_numpy(zero_copy_only=False) for piece in pieces])
    return np.concatenate([_floats(piece) for piece in pieces])


def _empty(name: str, role: str, row: int) -> DataError:
    return DataError(f"Column '{name}' ({role}) is empty in row {row} (counted from 0); fill it in every row.")


def _whole_decimals(values: list[Any], name: str, first_row: int) -> Array:
    """Convert integral decimals to Python integers exactly."""
    for row, value in enumerate(values):
        if value != value.to_integral_value():
            where = f"row {first_row + row} (counted from 0)"
            raise DataError(f"Column '{name}' contains ids, which must be whole numbers or text; {where} has {value}.")
    return np.array([int(value) for value in values], dtype=object)


def whole_numbers(ids: Array) -> Array:
    """Return text ids as integers if every id is the canonical form of an integer, else unchanged."""
    try:
        numbers = ids.astype(np.int64)
    except (ValueError, OverflowError):
        return ids
    return numbers if np.array_equal(numbers.astype(str), ids) else ids


def from_frame(frame: Any, **keywords: Unpack[TableKeywords]) -> RankingData:
    """Build ranking data from a pandas or polars frame, an Arrow table or a record batch.

    A role is given as a column name, or as `False` if no column has it. Other roles are taken from `like`, or inferred
    from column names, ignoring case: ``label, relevance, grade``; ``qid, query_id, search_id, session_id``;
    ``document_id, docid, doc_id, docno, did``, else ``product_id, item_id, sku, asin``; ``position``; ``teacher,
    teacher_score``. Weights are never inferred. Several candidates for a role, or none for the label or the query id,
    raise an error. `RankingData.roles` lists all roles and those that were inferred, which ``print(data)`` shows.
    Parquet and Arrow tables written by toprank store their roles.

    Text and categories are stored as codes, dates as days since 1970-01-01 (UTC, with fractions), durations as days;
    see `RankingData.encoding`. Empty cells and empty text become NaN.

    Args:
        frame: the table. A pandas index is ignored. If a file or an Arrow table stores it as a column, this column can
            have a role, but is a feature only if `features` contains it.
        label: column of grades; empty cells are unjudged documents. `False` if no document is judged.
        qid: column of query ids, integers or text. `False` if all rows belong to one query.
        features: feature columns, in this order. Default: all columns without a role, except for text columns in which
            the number of distinct values exceeds half of the cells (titles, ids); a warning names these. No role is
            inferred for a column in this list.
        document_id: column of document ids.
        weight: column of document weights.
        query_weight: column of query weights, the same in all rows of a query.
        position: column of the positions at which documents were shown.
        teacher: column of scores of another ranker, for distillation.
        dtype: float32 or float64. Default: float32 if it is exact for all feature columns (float32, float16, booleans,
            integers of 8 or 16 bits, categories), else float64.
        metadata: columns that are not features but stay with the rows (`RankingData.metadata`), for splits, slices and
            reports: text, numbers, booleans (as the words true and false) or dates. Empty cells become NaN, NaT or
            empty text. Default: the metadata of `like`, or of a table written by toprank.
        text: text columns of the query and of the documents: ``{"query": "search_term", "document": ["title",
            "description"]}``. They are not features; rankers compute features of the match between them (BM25, coverage
            …). Empty cells are empty texts. Default: the text columns of `like`, or of a table written by toprank;
            False for none.
        regroup: whether to group scattered rows of a query (queries by first appearance, rows in their order). False
            raises an error instead. See `RankingData.aligned` for the consequences for scores. Default: True.
        like: data or a fitted ranker with the same features: columns are matched by name and get the same codes. Its
            roles (query, label, weight, text, metadata …) apply to the columns that exist in this table. Unknown levels
            become missing values; a warning names columns without any known level. Data for a ranker to score need no
            label.

    >>> import pyarrow as pa
    >>> from_frame(pa.table({"qid": [1, 1, 2], "label": [0, 2, 1], "bm25": [0.1, 0.7, None]}))
    RankingData(2 queries, 3 documents, 1 feature, dense float64, grades 0-2)
    """
    check_keywords("from_frame", keywords)
    options = TableOptions.from_keywords(keywords)
    table = _null_empty_columns(table_of(frame), options.like)
    layout = learn_levels(layout_of(table.schema, options, words_of(frame)), table.to_batches())
    return gather(table.to_batches(), layout, table.num_rows, regroup=options.regroup, index=index_of(frame))


def matrix_of(frame: Any, like: Any = None) -> tuple[Array, tuple[str, ...], Encoding | None]:
    """Return a frame that has only features as a matrix, with its column names and encoding.

    With `like`, only the columns of other data or of a ranker are used.
    """
    if hasattr(frame, "dtypes") and hasattr(frame, "to_numpy") and known_columns(like)[0] is None:
        kinds = {str(kind) for kind in frame.dtypes}
        names = [str(name) for name in frame.columns]
        if kinds in ({"float32"}, {"float64"}) and not index_names(
            names
        ):  # a single block in pandas, so no copy is needed
            return np.asarray(frame), tuple(names), None
    table = _null_empty_columns(table_of(frame), like)
    draft = layout_of(table.schema, TableOptions(roles=Roles.none(), like=like), words_of(frame))
    layout = learn_levels(draft, table.to_batches())
    X, _ = fill(table.to_batches(), layout, table.num_rows)
    return X, layout.features, layout.encoding


def to_frame(data: RankingData, kind: Literal["arrow", "pandas", "polars"] = "arrow") -> Any:
    """Convert data to a table.

    The columns are qid, document_id, label, position, weight, query_weight and teacher, as far as they exist, the
    metadata, and the features by name or as feature_1, feature_2 … A sparse X becomes dense columns. Rows are in the
    order of X; a pandas frame gets the index of the original frame.

    >>> data = RankingData([[1.5], [2.5]], [0, 1], qid=["a", "a"])
    >>> to_frame(data).to_pydict()
    {'qid': ['a', 'a'], 'label': [0.0, 1.0], 'feature_1': [1.5, 2.5]}
    """
    import pyarrow as pa

    table = pa.Table.from_batches(batches_of(data), schema_of(data))
    frame = as_frame(table, kind)
    return frame if kind != "pandas" or data.source_index is None else frame.set_axis(data.source_index)


def role_columns(data: RankingData) -> dict[str, Array]:
    """Return the columns with roles, one value for each document."""
    weights = None if data.query_weights is None else data.queries.broadcast(data.query_weights)
    columns = {"qid": data.qid, "document_id": data.document_ids, "label": data.labels, "position": data.positions}
    columns |= {"weight": data.document_weights, "query_weight": weights, "teacher": data.teacher}
    return {role: column for role, column in columns.items() if column is not None}


def schema_of(data: RankingData) -> Any:
    """Return the Arrow schema of `to_frame`, with the roles in its schema metadata."""
    import pyarrow as pa

    kinds = {"qid": pa.int64() if data.qids.dtype.kind == "i" else pa.string(), "document_id": pa.string()}
    roles = role_columns(data)
    names = data.feature_names or numbered(data.n_features)
    for name in (*names, *data.metadata):
        if name in roles:
            what = "feature" if name in names else "metadata column"
            raise DataError(f"A {what} is called '{name}', like the column of the {name}; rename the {what}.")
    for name in data.metadata:
        if name in names:
            raise DataError(f"A feature and a metadata column are both called '{name}'; rename one of them.")
    fields = [(role, pa.int64() if role == "position" else kinds.get(role, pa.float64())) for role in roles]
    fields += [(name, type_of(column)) for name, column in data.metadata.items()]
    known = (
        {}
        if data.encoding is None
        else {column.name: column for column in data.encoding.columns if column.kind != "number"}
    )
    plain = pa.from_numpy_dtype(data.X.dtype)
    fields += [(name, known[name].arrow_type() if name in known else plain) for name in names]
    about: dict[str, Any] = {"version": 1, "roles": {role: role for role in roles}}
    about |= {"carried": list(data.metadata)} if data.metadata else {}
    about |= {"text": data.text.plain()} if data.text is not None else {}
    about |= {"columns": data.encoding.plain()} if data.encoding is not None else {}
    metadata = json.dumps(about)
    return pa.schema(fields, metadata={METADATA_KEY: metadata.encode()})


def batches_of(data: RankingData) -> Iterator[Any]:
    """Convert data to record batches."""
    import pyarrow as pa

    schema, roles, rows = schema_of(data), role_columns(data), 8 * ROWS_AT_A_TIME
    roles |= {
        f"metadata {name}": data.queries.broadcast(column) if len(column) == data.n_queries else column
        for name, column in data.metadata.items()
    }
    for start in range(0, data.n_documents, rows):
        block = data.X[start : start + rows]
        by_column = np.ascontiguousarray((block.toarray() if data.is_sparse else block).T)
        arrays = [*(column[start : start + rows] for column in roles.values()), *by_column]
        if data.encoding is not None:
            arrays[len(roles) :] = [
                values if column.kind == "number" else column.cells(values)
                for column, values in zip(data.encoding.columns, by_column, strict=True)
            ]
        columns = [
            pa.array(array, type=field.type) if isinstance(array, np.ndarray) else array
            for array, field in zip(arrays, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _null_empty_columns(table: Any, like: Any) -> Any:
    """Convert known columns without values to null columns, since empty columns are numeric in pandas."""
    import pyarrow as pa

    for column in (known_columns(like)[1] or Encoding(())).columns:
        place = table.schema.get_field_index(column.name)
        fits = place < 0 or column.takes(kind_of(table.schema.field(place).type))
        if not fits and table.column(place).null_count == table.num_rows:
            table = table.set_column(place, column.name, pa.nulls(table.num_rows))
    return table
