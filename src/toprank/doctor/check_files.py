"""Checks of files, in which scattered rows of a query are a finding instead of an error."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toprank.data.bytesource import TABLES, PathLike, listed_paths, open_bytes
from toprank.data.dataset import RankingData
from toprank.doctor.examination import check_options, report_on
from toprank.doctor.findings import Finding, Report, examples_of, some
from toprank.errors import DataError, Remedy, ToprankError, join_parts


def split_queries_finding(
    path: PathLike, name: str, data: RankingData, refusal: DataError, options: dict[str, Any], *, table: bool
) -> Finding:
    """Return the finding that the rows of some queries are scattered; `refusal` is the error of the reader.

    For a `table` this is only a note, because readers of tables group the rows by query.
    """
    scattered = _scattered(_ids_in_order(path, options))
    number = some(len(scattered), data.n_queries, "query|queries has|have rows that are not contiguous")
    line = getattr(refusal, "line", None)
    sentence = f"{name}: {number}{f', first at line {line}' if line else ''}."
    if table:
        remedy = "Tables are grouped by query when they are read; scores of other tools keep the order of the table."
        return Finding("split-queries", "note", sentence, len(scattered), examples_of(scattered), remedy)
    regroup = Remedy("{regroup},", regroup=True)
    remedy = join_parts("Sort the rows by query, or read with", regroup, "as was done for the rest of this report.")
    return Finding("split-queries", "problem", sentence, len(scattered), examples_of(scattered), remedy)


def _scattered(ids: list[str]) -> list[str]:
    """Return the ids that recur after another id, in the order of their first recurrence."""
    seen: set[str] = set()
    again: dict[str, None] = {}
    previous = None
    for qid in ids:
        if qid != previous and qid in seen:
            again[qid] = None
        seen.add(qid)
        previous = qid
    return list(again)


def _ids_in_order(path: PathLike, options: dict[str, Any]) -> list[str]:
    """Return the query ids in the order of the file, one for each row or for each run of equal ids."""
    from toprank.data.files import format_of
    from toprank.data.letor.survey import survey_chunks

    kind = options.get("format") or format_of(path)
    if kind == "letor":
        surveys = survey_chunks([open_bytes(path)], options.get("threads"))
        return [(token or b"").decode("utf-8", "replace") for survey in surveys for token in survey.tokens()]
    from toprank.data.tables.reading import query_ids

    return [str(qid) for qid in query_ids(path, format=kind, qid=options.get("qid")).tolist()]


def check_file(
    paths: PathLike | Sequence[PathLike],
    *,
    cutoffs: Sequence[int] = (10,),
    names: Sequence[str] | None = None,
    threads: int | None = None,
    **read_options: Any,
) -> Report:
    """Read and check files; several files are the splits of one collection.

    Scattered rows of a query, for which a reader raises an error, are a finding here.

    Args:
        paths: one file or several files.
        cutoffs: cutoffs of the metrics that will be computed.
        names: names of the data sets in the report. Default: the file names.
        threads: number of threads. Default: all cores.
        **read_options: options of `toprank.read`.
    """
    files = listed_paths(paths)
    if names is None:
        names = _short_names(files)
    check_options(names, len(files), cutoffs)  # before reading, which may take minutes
    options = read_options | {"threads": threads}
    read_files = [_read(file, name, options) for file, name in zip(files, names, strict=True)]
    splits = _in_agreement(files, [data for data, _ in read_files], options)
    scattered = [finding for _, findings in read_files for finding in findings]
    return report_on(splits, names, cutoffs, threads, scattered)


def _in_agreement(files: Sequence[PathLike], splits: list[RankingData], options: dict[str, Any]) -> list[RankingData]:
    """Return the splits with the same columns; text files are read again if they differ."""
    from toprank.data.files import in_agreement

    def again(number: int, further: dict[str, int]) -> RankingData:
        if not Path(files[number]).is_file():  # a stored copy, or a pipe, which can be read only once
            return splits[number]
        return _read(files[number], "", further | options)[0]

    return in_agreement(splits, again)


def _short_names(files: Sequence[PathLike]) -> list[str]:
    """Return the file names, or full paths if two names are equal."""
    short = [Path(file).name for file in files]
    return short if len(set(short)) == len(short) else [os.fspath(file) for file in files]


def _read(file: PathLike, name: str, options: dict[str, Any]) -> tuple[RankingData, list[Finding]]:
    """Read a file and group scattered rows; also return the finding about them."""
    from toprank.data.files import common_format, read

    kind = common_format([file], options.get("format"))
    strict = {"regroup": False} if kind in TABLES else {}  # readers of tables group silently
    try:
        return read(file, **(strict | options)), []
    except DataError as refusal:
        try:
            data = read(file, **(options | {"regroup": True}))
        except ToprankError:  # scattered rows were not the cause
            raise refusal from None
        return data, [split_queries_finding(file, name, data, refusal, options, table=kind in TABLES)]
