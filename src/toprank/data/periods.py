"""Assignment of queries to consecutive time periods, so that no training query is later than a test query.

A query whose documents have several dates has its latest date, so training data contain nothing from after the split.
Queries of the same date stay together; a period ends at the change of date that is closest to its requested fraction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toprank.compute import Array, IntArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy, UnknownNameError


def periods(data: RankingData, time_column: str, shares: Sequence[float]) -> IntArray:
    """Return the period of each query, 0 for the earliest; `shares` are the fractions of queries per period.

    >>> data = RankingData(np.zeros((4, 1)), np.zeros(4), qid=range(4), metadata={"day": [3, 1, 2, 4]})
    >>> periods(data, "day", [0.5, 0.5]).tolist()
    [1, 0, 0, 1]
    """
    times = _times(data, time_column)
    starts = data.queries.offsets[:-1]
    whole = len(times) == data.n_queries
    earliest, latest = (
        (times, times) if whole else (ufunc.reduceat(times, starts) for ufunc in (np.minimum, np.maximum))
    )
    dates, counts = np.unique(latest, return_counts=True)
    if len(dates) < len(shares):
        shown = f"only {len(dates)} distinct dates" if len(dates) > 1 else f"the same value everywhere ({dates[0]})"
        raise DataError(
            f"The column '{time_column}' has {shown}, too few for {len(shares)} consecutive parts, because queries of "
            "the same date stay together. Use fewer parts, or a column of finer dates."
        )
    number = np.searchsorted(borders(counts, shares), np.searchsorted(dates, latest), side="right")
    for border in range(1, len(shares)):
        behind = number >= border
        last = latest[~behind].max()
        if (earliest[behind] <= last).all():
            raise DataError(
                f"All {int(behind.sum()):,} queries after {last} in '{time_column}' also have earlier documents, so "
                "these queries cannot be split by time. Make each session a separate query, for example by adding the "
                "date to the query id, or split without",
                remedy=Remedy("{time_column}.", time_column=...),
            )
    return number.astype(np.int64)


def borders(counts: IntArray, shares: Sequence[float]) -> IntArray:
    """Return the index of the first date of each period but the first, closest to the requested fractions.

    Every period has at least one date.
    """
    ends, wanted = np.cumsum(counts), np.cumsum(shares)[:-1] * counts.sum()
    firsts = list[int]()
    for place, share in enumerate(wanted.tolist()):
        first = 1 + (firsts[-1] if firsts else 0)
        last = len(counts) - (len(wanted) - place)  # leave a date for each later period
        firsts.append(first + int(np.argmin(np.abs(ends[first - 1 : last] - share))))
    return np.array(firsts, dtype=np.int64)


def _times(data: RankingData, time_column: str) -> Array:
    """Return the dates of queries or documents as sortable values; raise an error if one is missing."""
    if not isinstance(time_column, str) or time_column not in data.metadata:
        if not data.metadata:
            raise DataError(
                f"The data have no metadata column '{time_column}' to split by. Read them from a table with",
                remedy=Remedy("{metadata}.", metadata=[time_column]),
            )
        raise UnknownNameError("metadata column", str(time_column), data.metadata)
    times = data.metadata[time_column]
    if times.dtype.kind == "U":
        try:
            times = np.array([word or "NaT" for word in times.tolist()], dtype="datetime64[us]")
        except ValueError:
            raise DataError(
                f"The column '{time_column}' contains text that is not a date, such as {str(times[0])!r}; give dates "
                "(2024-05-31) or numbers."
            ) from None
    missing = times != times
    if missing.any():
        place = int(np.argmax(missing))
        qid = data.qids[place if len(times) == data.n_queries else data.queries.document_query[place]]
        raise DataError(f"Query {qid} has no value in the column '{time_column}'; add one, or leave out the query.")
    return times
