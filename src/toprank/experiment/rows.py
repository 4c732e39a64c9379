"""The tidy table: one row for each query, system, seed, convention and metric; written to and read from Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.bytesource import output
from toprank.errors import DataError, FileError, FormatError
from toprank.experiment.store import plain

__all__ = ["Block", "blocks_of_table", "first_rows", "read_table", "table_of", "write_table"]

_METADATA = b"toprank"
_FORMAT, _VERSION = "toprank results", 1
_NAMES = ("dataset", "fold", "qid", "system", "convention", "metric")
_COLUMNS = ("dataset", "fold", "qid", "documents", "relevant", "system", "seed", "convention", "metric", "value")


class Block(NamedTuple):
    """Neighbouring rows that differ only in their query."""

    dataset: str
    fold: str
    system: str
    seed: int | None
    convention: str
    metric: str
    qids: Sequence[str]
    documents: npt.NDArray[Any]
    relevant: npt.NDArray[Any]
    values: FloatArray

    @property
    def place(self) -> tuple[str, str, str, str, str, int | None]:
        """What the block is about: (dataset, convention, metric, system, fold, seed)."""
        return self.dataset, self.convention, self.metric, self.system, self.fold, self.seed


def table_of(blocks: Sequence[Block]) -> Any:
    """The blocks as one Arrow table. A query that does not count under a metric has a null there."""
    import pyarrow as pa

    sizes = np.array([len(block.values) for block in blocks], dtype=np.int64)

    def repeated(name: str) -> Any:
        words = {word: place for place, word in enumerate(dict.fromkeys(getattr(block, name) for block in blocks))}
        codes = np.repeat(np.array([words[getattr(block, name)] for block in blocks], dtype=np.int32), sizes)
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(words), pa.string()))

    def joined(name: str, kind: Any) -> npt.NDArray[Any]:
        parts = [np.asarray(getattr(block, name), dtype=kind) for block in blocks]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)

    seeds = np.repeat(np.array([-1 if block.seed is None else block.seed for block in blocks], dtype=np.int64), sizes)
    values = joined("values", np.float64)
    columns = {
        "dataset": repeated("dataset"),
        "fold": repeated("fold"),
        "qid": pa.array([qid for block in blocks for qid in block.qids], pa.string()).dictionary_encode(),
        "documents": pa.array(joined("documents", np.int32)),
        "relevant": pa.array(joined("relevant", np.int32)),
        "system": repeated("system"),
        "seed": pa.array(seeds, mask=seeds < 0),
        "convention": repeated("convention"),
        "metric": repeated("metric"),
        "value": pa.array(values, mask=np.isnan(values)),
    }
    return pa.table(columns)


def blocks_of_table(table: Any) -> dict[tuple[str, str, str, str, str, int | None], FloatArray]:
    """Values by `Block.place`, NaN for null; the queries of a fold in one order, that of their first rows.

    Raises:
        DataError: where two blocks of a fold do not hold the same queries, so that they cannot be paired.
    """
    names = ("dataset", "convention", "metric", "system", "fold")
    coded = [_codes(table.column(name)) for name in names]
    seeds = table.column("seed").fill_null(-1).to_numpy()
    values = table.column("value").to_numpy()
    if not len(values):
        return {}
    keys = np.column_stack([*(codes for codes, _ in coded), seeds])
    places, group = np.unique(keys, axis=0, return_inverse=True)
    queries = first_rows(table)
    order = np.lexsort((queries, group.reshape(-1)))
    ends = np.cumsum(np.bincount(group.reshape(-1), minlength=len(places)))
    found = {}
    expected: dict[tuple[str, str], npt.NDArray[np.int64]] = {}
    for place, rows in zip(places.tolist(), np.split(order, ends[:-1]), strict=True):
        words = [coded[i][1][code] for i, code in enumerate(place[:-1])]
        if not np.array_equal(expected.setdefault((words[0], words[4]), queries[rows]), queries[rows]):
            raise DataError(
                f"{words[3]} on {words[0]} {words[4]} does not have a row for each query that another system, metric "
                "or seed has there, so they cannot be paired; use the table as the experiment wrote it."
            )
        found[(*words, None if place[-1] < 0 else place[-1])] = values[rows].astype(np.float64)
    return found


def first_rows(table: Any) -> npt.NDArray[np.int64]:
    """For each row, the first row about the same query of the same fold: one name and one order for the queries."""
    codes = np.column_stack([_codes(table.column(name))[0] for name in ("dataset", "fold", "qid")])
    _, first, query = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return first[query.reshape(-1)]


def _codes(column: Any) -> tuple[npt.NDArray[np.int64], list[str]]:
    import pyarrow as pa

    plainly = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    encoded = plainly if pa.types.is_dictionary(plainly.type) else plainly.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def write_table(table: Any, provenance: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the table with its provenance as Parquet, all or nothing."""
    import pyarrow.parquet as pq

    text = json.dumps({"format": _FORMAT, "format_version": _VERSION, **plain(provenance)}, ensure_ascii=False)
    with output(path) as stream:
        pq.write_table(table.replace_schema_metadata({_METADATA: text.encode()}), stream, compression="zstd")


def read_table(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """The table that `write_table` wrote, and its provenance."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise FileError(f"There is no file {os.fspath(path)}.") from None
    except (OSError, pa.ArrowException) as problem:
        raise FormatError(f"This is not a Parquet file that can be read ({problem}).", path=path) from None
    try:
        provenance = json.loads((table.schema.metadata or {})[_METADATA])
        ours = provenance.pop("format") == _FORMAT and set(_COLUMNS) <= set(table.column_names)
        version = int(provenance.pop("format_version"))
    except (KeyError, ValueError, TypeError):
        ours, version = False, 0
    if not ours:
        raise FormatError("This Parquet file does not hold the results of an experiment.", path=path)
    if version > _VERSION:
        raise FormatError(
            f"These results have format {version}; this toprank reads formats up to {_VERSION}. Update toprank.",
            path=path,
        )
    return table, provenance
