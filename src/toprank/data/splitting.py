"""Splitting a file by query into training, validation and test files.

Table rows are copied unchanged with all columns; text and stored copies are read and rewritten.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import IntArray
from toprank.data.bytesource import TABLES, os_errors, plain_name
from toprank.data.dataset import RankingData
from toprank.data.files import format_of, read, with_metadata, write
from toprank.data.folds import split
from toprank.errors import DataError

_NAMES = {2: ("train", "test"), 3: ("train", "vali", "test")}
_SUFFIX = {"letor": ".txt", "parquet": ".parquet", "arrow": ".arrow", "csv": ".csv", "store": ".toprank-data"}


def split_file(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    *,
    time_column: str | None = None,
    seed: int = 0,
    stable: bool = False,
    **options: Any,
) -> dict[Path, RankingData]:
    """Split a file by query into train, vali and test, or train and test, files of the same format.

    Args:
        source: LETOR text, a table, a folder of Parquet files or a stored copy.
        folder: output folder; created if it does not exist.
        fractions: two or three fractions of the queries.
        time_column: table column of dates or numbers to split by; the test file is the latest. See `toprank.split`.
        seed: seed of the assignment of queries to parts.
        stable: whether the part of a query depends only on its id, the seed and the fractions. See `toprank.split`.
        **options: options of the reader, such as ``qid=``; see `toprank.read`.

    Returns:
        The paths of the files with their data; for a table, the data have no features.
    """
    file, target, kind = Path(source), Path(folder), format_of(source)
    if len(fractions) not in _NAMES:
        raise DataError(f"Give two fractions (train, test) or three (train, vali, test), not {len(fractions)}.")
    if kind not in _SUFFIX:
        raise DataError(f"{file} has the format {kind}, which cannot be split; give LETOR text or a table.")
    suffix = file.name.removeprefix(plain_name(file).stem) if file.is_file() else _SUFFIX[kind]
    paths = [target / f"{name}{suffix}" for name in _NAMES[len(fractions)]]
    if any(path.exists() and path.samefile(file) for path in paths):
        raise DataError(f"{file} would be overwritten by one of its parts; write into another folder.")
    bare: dict[str, Any] = {"features": [], "label": False} if kind in TABLES else {}
    data = read(file, **with_metadata(kind, () if time_column is None else (time_column,), {**bare, **options}))
    parts = split(data, fractions, seed=seed, time_column=time_column, stable=stable)
    with os_errors(target, "written"):
        target.mkdir(exist_ok=True)
    if kind in TABLES:
        _write_rows(file, kind, paths, _part_of_each_row(data, parts))
    else:
        for path, part in zip(paths, parts, strict=True):
            write(part, path, format=kind)
    return dict(zip(paths, parts, strict=True))


def _part_of_each_row(data: RankingData, parts: Sequence[RankingData]) -> IntArray:
    """Return the part number of each row of the source."""
    number = {qid: place for place, part in enumerate(parts) for qid in part.qids.tolist()}
    return data.in_source_order(data.queries.broadcast(np.array([number[qid] for qid in data.qids.tolist()])))


def _write_rows(file: Path, kind: str, paths: Sequence[Path], number: IntArray) -> None:
    from toprank.data.tables.sources import sources_of
    from toprank.data.tables.writing import write_batches

    sources = sources_of(file, kind)
    for place, path in enumerate(paths):

        def chosen(place: int = place) -> Iterator[Any]:
            row = 0
            for batch in chain.from_iterable(source.whole_rows() for source in sources):
                yield batch.filter(number[row : row + batch.num_rows] == place)
                row += batch.num_rows

        write_batches(path, kind, sources[0].whole_schema(), chosen())
