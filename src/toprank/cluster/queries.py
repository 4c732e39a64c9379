"""Whole queries: which ones are cut by a border between partitions, and bringing them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.cluster.work import Facts, Rows, in_sentences
from toprank.data.dataset import RankingData
from toprank.errors import DataError

__all__ = ["Move", "joined", "moves", "taken"]

Array = npt.NDArray[Any]


class Move(NamedTuple):
    """Rows of some queries that go from one partition to another."""

    donor: int
    home: int
    qids: Array


def moves(facts: Sequence[Facts], repair: str) -> list[Move]:
    """What must move so that every query lies in one partition: the first that has any of it.

    Raises:
        DataError: a query is cut where the kind of repair does not allow it.
    """
    places = np.repeat(np.arange(len(facts)), [len(one.qids) for one in facts])
    _, codes, counts = np.unique(np.concatenate([one.qids for one in facts]), return_inverse=True, return_counts=True)
    cut = np.flatnonzero(counts[codes.reshape(-1)] > 1)
    starts = np.concatenate([[0], np.cumsum([len(one.qids) for one in facts])])
    holders: dict[int, list[int]] = {}
    wanted: dict[tuple[int, int], list[int]] = {}
    for row in cut.tolist():
        place, code = int(places[row]), int(codes.reshape(-1)[row])
        before = holders.setdefault(code, [])
        if before:
            _check(facts, before[-1], place, row - int(starts[place]), repair)
            wanted.setdefault((place, before[0]), []).append(row - int(starts[place]))
        before.append(place)
    return [Move(donor, home, facts[donor].qids[numbers]) for (donor, home), numbers in wanted.items()]


def _check(facts: Sequence[Facts], here: int, there: int, number: int, repair: str) -> None:
    """Refuse what the kind of repair does not allow."""
    if repair == "all":
        return
    qid = facts[there].qids[number]
    at_border = there == here + 1 and number == 0 and facts[here].qids[-1] == qid
    if at_border and repair == "neighbours":
        return
    where = f"Query {qid} lies partly in {facts[here].name} and partly in {facts[there].name}"
    if at_border:
        raise DataError(f"{where}; partitions must hold whole queries. Cut them so, or give repair='neighbours'.")
    raise DataError(
        f"{where}, and not at the border between them. If the id names two different queries, number them apart; if it "
        "is one query, give repair='all', which brings its rows together."
    )


@in_sentences
def taken(rows: Rows, qids: Array) -> RankingData:
    """The data of some queries of a partition."""
    assert rows.data is not None
    return rows.data.select(np.isin(rows.data.qids, qids))


@in_sentences
def joined(rows: Rows, gone: Array | None, *more: RankingData) -> Rows:
    """A partition without the queries that went, and with the rows that came, behind those of the same query."""
    data = rows.data
    assert data is not None
    if gone is not None:
        left = ~np.isin(data.qids, gone)
        data = data.select(left) if left.any() else None
    parts = [part for part in (data, *more) if part is not None]
    if not parts:
        return Rows(None, rows.name, None)
    return Rows(_stacked(parts) if len(parts) > 1 else parts[0], rows.name, None)


def _stacked(parts: Sequence[RankingData]) -> RankingData:
    """Data whose queries may go on from one part to the next."""

    def rows(name: str) -> Array | None:
        pieces = [getattr(part, name) for part in parts]
        return None if pieces[0] is None else np.concatenate(pieces)

    if parts[0].is_sparse:
        from scipy import sparse

        X: Any = sparse.vstack([part.X for part in parts], format="csr")
    else:
        X = np.concatenate([part.X for part in parts])
    whole = RankingData(
        X,
        rows("labels"),
        qid=np.concatenate([part.qid for part in parts]),
        document_ids=rows("document_ids"),
        document_weights=rows("document_weights"),
        positions=rows("positions"),
        feature_names=parts[0].feature_names,
        regroup=True,
    )
    if parts[0].query_weights is None:
        return whole
    weights = [part.queries.spread(np.asarray(part.query_weights)) for part in parts]
    spread = whole.aligned(np.concatenate(weights))
    least, most = whole.queries.min(spread), whole.queries.max(spread)
    if not np.array_equal(least, most):
        qid = whole.qids[np.argmax(least != most)]
        raise DataError(f"Query {qid} has several query weights; all its rows must have the same.")
    return whole.replace(query_weights=least)
