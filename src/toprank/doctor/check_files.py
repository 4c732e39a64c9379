"""Files read and scanned: rows of a query that are not neighbors are a finding, not a refusal."""

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
    """Return the finding that the rows of some queries are not neighbors; `refusal` is the reader's error.

    Readers of a `table` group its rows by query, so this is only a note there.
    """
    scattered = _scattered(_ids_in_order(path, options))
    number = some(len(scattered), data.n_queries, "query|queries is|are scattered, with rows of others between")
    line = getattr(refusal, "line", None)
    sentence = f"{name}: {number}{f', first at line {line}' if line else ''}."
    if table:
        remedy = "Tables are grouped by query when they are read; scores made elsewhere stay in the order of the table."
        return Finding("split-queries", "note", sentence, len(scattered), examples_of(scattered), remedy)
    regroup = Remedy("{regroup},", regroup=True)
    remedy = join_parts("Sort the rows by query, or read with", regroup, "as was done for the rest of this report.")
    return Finding("split-queries", "problem", sentence, len(scattered), examples_of(scattered), remedy)


def _scattered(ids: list[str]) -> list[str]:
    """The ids that come back after another one, in the order in which they first do."""
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
    """The query ids in the order of the rows, as the file has them; one for each row, or for neighbors that agree."""
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
    """Read files and examine them; several files are the splits of one collection.

    Rows of a query that are not neighbors, which a reader refuses, are a finding here.

    Args:
        paths: one file or several.
        cutoffs: the cut-offs that metrics will be computed at.
        names: what to call the data sets. Default: the files' names.
        threads: how many threads to use. Default: all cores.
        **read_options: passed to `toprank.read`.
    """
    files = listed_paths(paths)
    if names is None:
        names = _short_names(files)
    check_options(names, len(files), cutoffs)  # before minutes of reading
    options = read_options | {"threads": threads}
    read_files = [_read(file, name, options) for file, name in zip(files, names, strict=True)]
    splits = _in_agreement(files, [data for data, _ in read_files], options)
    scattered = [finding for _, findings in read_files for finding in findings]
    return report_on(splits, names, cutoffs, threads, scattered)


def _in_agreement(files: Sequence[PathLike], splits: list[RankingData], options: dict[str, Any]) -> list[RankingData]:
    """The splits with the same columns: those of text are read again if they differ."""
    from toprank.data.files import in_agreement

    def again(number: int, further: dict[str, int]) -> RankingData:
        if not Path(files[number]).is_file():  # a stored copy, or a pipe, which gives its bytes once
            return splits[number]
        return _read(files[number], "", further | options)[0]

    return in_agreement(splits, again)


def _short_names(files: Sequence[PathLike]) -> list[str]:
    """File names, or whole paths where two names are alike."""
    short = [Path(file).name for file in files]
    return short if len(set(short)) == len(short) else [os.fspath(file) for file in files]


def _read(file: PathLike, name: str, options: dict[str, Any]) -> tuple[RankingData, list[Finding]]:
    """The data of a file, regrouped where its queries are scattered, and the finding that says so."""
    from toprank.data.files import common_format, read

    kind = common_format([file], options.get("format"))
    strict = {"regroup": False} if kind in TABLES else {}  # readers of tables group silently
    try:
        return read(file, **(strict | options)), []
    except DataError as refusal:
        try:
            data = read(file, **(options | {"regroup": True}))
        except ToprankError:  # so scattered rows were not the reason
            raise refusal from None
        return data, [split_queries_finding(file, name, data, refusal, options, table=kind in TABLES)]
