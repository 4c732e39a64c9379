"""Writing of Parquet, Arrow IPC / Feather and CSV files, in batches and atomically."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from toprank.data.bytesource import TABLES, PathLike, delimiter_of, output, promised_format
from toprank.data.dataset import RankingData
from toprank.data.encoding import Column, Encoding, listed
from toprank.data.frames.conversion import batches_of, schema_of
from toprank.data.roles import ROLES, is_inferable
from toprank.data.warnings import WeightsWarning
from toprank.errors import DataError, Remedy, join_parts, warn_user


def write_table(data: RankingData, path: PathLike, *, format: str | None = None) -> None:
    """Write Parquet, Arrow IPC (Feather) or CSV, depending on the suffix of `path`, atomically.

    Parquet and Arrow files preserve everything, including roles. CSV has no types: features are read back as float64
    unless ``dtype="float32"`` is given, text query ids that are all integers become integers, and metadata
    (``metadata=``) and weights (``weight=``, ``query_weight=``) must be named again. A sparse X is written as dense
    columns.
    """
    kind = format or promised_format(path)
    if kind not in TABLES:
        raise DataError(f"The format of {path} is not clear from its name; pass format= as one of {', '.join(TABLES)}.")
    if kind == "csv":
        _check_names_for_csv(data)
        _check_ids_for_csv(data)
        _warn_of_weights(data)
        data = _with_days(data)
    schema = _without_dictionaries(schema_of(data)) if kind == "csv" else schema_of(data)
    write_batches(path, kind, schema, (batch.cast(schema) if kind == "csv" else batch for batch in batches_of(data)))


def write_batches(path: PathLike, kind: str, schema: Any, batches: Iterable[Any]) -> None:
    """Write record batches as a file of this kind (parquet, arrow, csv), atomically."""
    with output(path) as stream, _writer(kind, Path(path), stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _without_dictionaries(schema: Any) -> Any:
    """Return the schema with categories as plain columns, which CSV requires."""
    import pyarrow as pa

    plain = [
        pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in schema
    ]
    return pa.schema(plain, metadata=schema.metadata)


def _with_days(data: RankingData) -> RankingData:
    """Return the data with durations as numbers of days, which CSV can represent."""
    if data.encoding is None:
        return data
    columns = [Column(column.name) if column.kind == "duration" else column for column in data.encoding.columns]
    return data.replace(encoding=Encoding(tuple(columns)))


def _check_names_for_csv(data: RankingData) -> None:
    """Raise an error for features with the usual name of a role, because CSV roles are inferred from names."""
    for name in (*(data.feature_names or ()), *data.metadata):
        for role in ROLES:
            if is_inferable(role, name):
                what = "column" if name in data.metadata else "feature"
                raise DataError(
                    f"In a CSV file the {what} '{name}' would be read as the {role}; rename it, or write Parquet, "
                    "which stores the roles."
                )


def _warn_of_weights(data: RankingData) -> None:
    """Warn that the weights in the CSV file are read as features by default."""
    weights = {"weight": data.document_weights, "query_weight": data.query_weights}
    names = [name for name, values in weights.items() if values is not None]
    if names:
        warn_user(
            join_parts(
                f"CSV does not store roles of columns: {listed(names)} would be read as a feature. Read the file with",
                Remedy(f"{' and '.join(f'{{{name}}}' for name in names)}.", **{name: name for name in names}),
            ),
            WeightsWarning,
        )


def _check_ids_for_csv(data: RankingData) -> None:
    """Raise an error for empty ids, which CSV does not distinguish from missing ones."""
    for kind, ids in (("query", data.qids), ("document", data.document_ids)):
        if ids is not None and ids.dtype.kind == "U" and (np.char.strip(ids) == "").any():
            raise DataError(f"A {kind} id is empty, which CSV cannot represent; choose another id.")


def _writer(kind: str, path: Path, stream: Any, schema: Any) -> Any:
    """Return an Arrow writer for an open file."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if kind == "parquet":
        return parquet.ParquetWriter(stream, schema, compression="zstd")
    if kind == "arrow":
        return pa.ipc.new_file(stream, schema)
    return csv.CSVWriter(stream, schema, write_options=csv.WriteOptions(delimiter=delimiter_of(path)))
