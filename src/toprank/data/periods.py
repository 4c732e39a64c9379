"""Queries in the order of time: which period each falls into, so that nothing is learned from what came later.

A query whose documents have several dates goes by its latest: what is trained on then holds nothing that came after
the border. Queries of one date stay together, so a border lies between two dates, at the change nearest to the wanted
share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toprank.compute import Array, IntArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy, UnknownNameError


def periods(data: RankingData, time_column: str, shares: Sequence[float]) -> IntArray:
    """The period of each query, 0 being the earliest; `shares` are the fractions of the queries in each.

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
        shown = f"only {len(dates)} different dates" if len(dates) > 1 else f"the same value everywhere ({dates[0]})"
        raise DataError(
            f"The column '{time_column}' has {shown}, too few for {len(shares)} parts one after the other: queries of "
            "one date stay together. Ask for fewer parts, or use a column of finer dates."
        )
    number = np.searchsorted(borders(counts, shares), np.searchsorted(dates, latest), side="right")
    for border in range(1, len(shares)):
        behind = number >= border
        last = latest[~behind].max()
        if (earliest[behind] <= last).all():
            raise DataError(
                f"All {int(behind.sum()):,} queries behind the border at {last} of '{time_column}' had begun before "
                "it, so time does not divide these queries. Make a query of each session, for example by putting the "
                "date into the query id, or split without",
                remedy=Remedy("{time_column}.", time_column=...),
            )
    return number.astype(np.int64)


def borders(counts: IntArray, shares: Sequence[float]) -> IntArray:
    """The first date of each period but the first: at the change nearest to its share, every period having a date."""
    ends, wanted = np.cumsum(counts), np.cumsum(shares)[:-1] * counts.sum()
    firsts = list[int]()
    for place, share in enumerate(wanted.tolist()):
        first = 1 + (firsts[-1] if firsts else 0)
        last = len(counts) - (len(wanted) - place)  # each period behind this border needs a date, too
        firsts.append(first + int(np.argmin(np.abs(ends[first - 1 : last] - share))))
    return np.array(firsts, dtype=np.int64)


def _times(data: RankingData, time_column: str) -> Array:
    """The dates of queries or documents, as values that have an order; none may be missing."""
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
                f"The column '{time_column}' holds text that is no date, such as {str(times[0])!r}; give dates "
                "(2024-05-31) or numbers."
            ) from None
    missing = times != times
    if missing.any():
        place = int(np.argmax(missing))
        qid = data.qids[place if len(times) == data.n_queries else data.queries.document_query[place]]
        raise DataError(f"Query {qid} has no value in the column '{time_column}'; give it one, or leave the query out.")
    return times
