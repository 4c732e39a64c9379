"""The data doctor: what is wrong with these data, in sentences, each with counts and a remedy.

Features are looked at once (`toprank.doctor.features`), labels and ids a few times; memory is a few words for each
document.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toprank.data.bytesource import PathLike
from toprank.data.checks import check_data, is_whole, listed_paths
from toprank.data.dataset import RankingData
from toprank.doctor.features import Examined, features_findings, rows_findings, scan
from toprank.doctor.findings import Finding, Report, Subject
from toprank.doctor.labels import (
    between_findings,
    labels_findings,
    order_findings,
    queries_findings,
    split_queries_finding,
)
from toprank.errors import DataError, ToprankError

__all__ = ["Finding", "Report", "check", "check_file"]


def check(
    data: RankingData,
    *others: RankingData,
    cutoffs: Sequence[int] = (10,),
    names: Sequence[str] | None = None,
    threads: int | None = None,
) -> Report:
    """Examine data, and the other splits of the same collection if there are any.

    Args:
        data: the data.
        others: validation and test data: what they share with `data` and with each other is found too.
        cutoffs: the cut-offs that metrics will be computed at.
        names: what to call the data sets. Default: "data", or "data 1", "data 2" …
        threads: how many threads to use. Default: all cores.

    >>> report = check(RankingData([[1.0, 5.0], [2.0, 5.0]], [0, 0]))
    >>> [finding.code for finding in report.findings]
    ['one-grade', 'blank-queries', 'constant-features', 'short-lists']
    """
    everything = (data, *others)
    for one in everything:
        if isinstance(one, str | os.PathLike):
            raise DataError(
                f"check examines data that are read already: check(tr.read({str(one)!r})); files by themselves are "
                "examined by toprank.doctor.check_file, or on the command line by 'toprank check'."
            )
        check_data("check", one)
    if names is None:
        names = ["data"] if not others else [f"data {number}" for number in range(1, len(everything) + 1)]
    if len(names) != len(everything):
        raise DataError(f"There are {len(names)} names for {len(everything)} data sets; there must be one for each.")
    if not isinstance(cutoffs, Sequence) or not cutoffs or not all(is_whole(cut, 1) for cut in cutoffs):
        raise DataError(f"cutoffs must be a list of whole numbers of at least 1, not {cutoffs!r}.")
    return _report(everything, list(names), tuple(cutoffs), threads)


def check_file(
    paths: PathLike | Sequence[PathLike],
    *,
    cutoffs: Sequence[int] = (10,),
    names: Sequence[str] | None = None,
    threads: int | None = None,
    **read_options: Any,
) -> Report:
    """Read files and examine them; several files are the splits of one collection.

    Rows of a query that are not neighbours, which a reader refuses, are a finding here.

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
    options = read_options | {"threads": threads}
    read_files = [_read(file, name, options) for file, name in zip(files, names, strict=True)]
    splits = _in_agreement(files, [data for data, _ in read_files], options)
    report = check(*splits, cutoffs=cutoffs, names=names, threads=threads)
    scattered = [finding for _, findings in read_files for finding in findings]
    return Report.of(report.subjects, (*scattered, *report.findings))


def _in_agreement(files: Sequence[PathLike], splits: list[RankingData], options: dict[str, Any]) -> list[RankingData]:
    """The splits with the same columns, where they are text; what is no text is what it is."""
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
    from toprank.data.files import read

    try:
        return read(file, **options), []
    except DataError as refusal:
        try:
            data = read(file, **(options | {"regroup": True}))
        except ToprankError:  # then scattered rows are not what was refused
            raise refusal from None
        return data, [split_queries_finding(file, name, data, refusal, options)]


def _report(
    everything: Sequence[RankingData], names: list[str], cutoffs: tuple[int, ...], threads: int | None
) -> Report:
    examined = [Examined(data, scan(data, threads)) for data in everything]
    findings: list[Finding] = []
    for name, one in zip(names, examined, strict=True):
        prefix = f"{name}: " if len(names) > 1 else ""
        groups: Iterable[Iterable[Finding]] = (
            labels_findings(one.data),
            queries_findings(one.data, cutoffs),
            order_findings(one.data, cutoffs[0]),
            features_findings(one),
            rows_findings(one),
        )
        found = itertools.chain.from_iterable(groups)
        findings += [replace(finding, sentence=prefix + finding.sentence) for finding in found]
    for (a, first), (b, second) in itertools.combinations(zip(names, examined, strict=True), 2):
        findings += between_findings(a, first, b, second)
    subjects = [
        Subject(name, data.n_queries, data.n_documents, data.n_features)
        for name, data in zip(names, everything, strict=True)
    ]
    return Report.of(subjects, findings)
