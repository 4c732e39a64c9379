"""Parquet, Arrow IPC / Feather and CSV files, written in strips and whole or not at all."""

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
    """Write Parquet, Arrow IPC (Feather) or CSV by the suffix of `path`; the file appears whole or not at all.

    Parquet and Arrow files read back exactly, roles and all. CSV has no types: features come back as float64 unless
    read with ``dtype="float32"``, text query ids that are all whole numbers come back as numbers, and what is carried
    along must be named again (``metadata=``), and so must weights (``weight=``, ``query_weight=``). A sparse X is
    written as dense columns.
    """
    kind = format or promised_format(path)
    if kind not in TABLES:
        raise DataError(f"{path}: the name does not tell the format; ask for one of {', '.join(TABLES)}.")
    if kind == "csv":
        _check_names_for_csv(data)
        _check_ids_for_csv(data)
        _warn_of_weights(data)
        data = _with_days(data)
    schema = _without_dictionaries(schema_of(data)) if kind == "csv" else schema_of(data)
    write_batches(path, kind, schema, (batch.cast(schema) if kind == "csv" else batch for batch in batches_of(data)))


def write_batches(path: PathLike, kind: str, schema: Any, batches: Iterable[Any]) -> None:
    """Write record batches as a file of this kind (parquet, arrow, csv), whole or not at all."""
    with output(path) as stream, _writer(kind, Path(path), stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _without_dictionaries(schema: Any) -> Any:
    """The schema with categories as plain columns; CSV knows no other."""
    import pyarrow as pa

    plain = [
        pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in schema
    ]
    return pa.schema(plain, metadata=schema.metadata)


def _with_days(data: RankingData) -> RankingData:
    """The data with durations as numbers of days, which CSV can hold."""
    if data.encoding is None:
        return data
    columns = [Column(column.name) if column.kind == "duration" else column for column in data.encoding.columns]
    return data.replace(encoding=Encoding(tuple(columns)))


def _check_names_for_csv(data: RankingData) -> None:
    """CSV knows roles by column names alone, so no feature may have the usual name of one."""
    for name in (*(data.feature_names or ()), *data.metadata):
        for role in ROLES:
            if is_inferable(role, name):
                what = "column" if name in data.metadata else "feature"
                raise DataError(
                    f"In a CSV file the {what} '{name}' would be taken for the {role}; "
                    "rename it, or write Parquet, which remembers what each column is."
                )


def _warn_of_weights(data: RankingData) -> None:
    """Warn that weights are features to whoever reads the CSV file, unless told otherwise."""
    weights = {"weight": data.document_weights, "query_weight": data.query_weights}
    names = [name for name, values in weights.items() if values is not None]
    if names:
        warn_user(
            join_parts(
                f"CSV does not keep roles of columns: {listed(names)} would be read as a feature. Read the file with",
                Remedy(f"{' and '.join(f'{{{name}}}' for name in names)}.", **{name: name for name in names}),
            ),
            WeightsWarning,
        )


def _check_ids_for_csv(data: RankingData) -> None:
    """In CSV an empty id is none."""
    for kind, ids in (("query", data.qids), ("document", data.document_ids)):
        if ids is not None and ids.dtype.kind == "U" and (np.char.strip(ids) == "").any():
            raise DataError(f"A {kind} id is empty and could not be read back from CSV; choose another.")


def _writer(kind: str, path: Path, stream: Any, schema: Any) -> Any:
    """An Arrow writer into an open file."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if kind == "parquet":
        return parquet.ParquetWriter(stream, schema, compression="zstd")
    if kind == "arrow":
        return pa.ipc.new_file(stream, schema)
    return csv.CSVWriter(stream, schema, write_options=csv.WriteOptions(delimiter=delimiter_of(path)))
