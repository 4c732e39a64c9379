"""Whole queries: which ones are cut by a border between partitions, and bringing them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.cluster.work import Facts, Rows, in_sentences
from toprank.compute import IntArray
from toprank.data.dataset import RankingData
from toprank.data.frames.conversion import one_for_each_query
from toprank.errors import DataError

__all__ = ["Guests", "Move", "joined", "moves", "taken"]

Array = npt.NDArray[Any]

_FULL = 1.25
"""A partition with so many times the average of rows takes no more from others, where another one can."""
_WHOLE_FILES = 3
"""A query that is alone in so many partitions is more likely an id that starts again in every file."""


class Move(NamedTuple):
    """Rows of some queries that go from one partition to another."""

    donor: int
    home: int
    qids: Array
    n_documents: int = 0


class Guests(NamedTuple):
    """Rows on their way: the partition that they leave, and where they stood there."""

    data: RankingData
    owner: int
    order: IntArray


class _Piece(NamedTuple):
    """What a partition has of a query."""

    place: int
    number: int
    size: int


def moves(facts: Sequence[Facts], repair: str) -> list[Move]:
    """What must move so that every query lies in one partition.

    A query that is cut by a border goes to the first partition that has any of it. With ``repair="all"`` queries go
    where most of their rows are, among partitions that are not full already.

    Raises:
        DataError: a query is cut where the kind of repair does not allow it.
    """
    settled = np.array([one.n_documents for one in facts])
    cut = _cut_queries(facts)
    for pieces in cut:
        for piece in pieces:
            settled[piece.place] -= piece.size
    full = _FULL * sum(one.n_documents for one in facts) / len(facts)
    wanted: dict[tuple[int, int], list[_Piece]] = {}
    for pieces in cut:
        size = sum(piece.size for piece in pieces)
        if repair == "all":
            home = _roomiest(pieces, settled, full - size)
        else:
            _check(facts, pieces, repair)
            home = pieces[0].place
        settled[home] += size
        for piece in pieces:
            if piece.place != home:
                wanted.setdefault((piece.place, home), []).append(piece)
    return [
        Move(donor, home, facts[donor].qids[[piece.number for piece in pieces]], sum(piece.size for piece in pieces))
        for (donor, home), pieces in wanted.items()
    ]


def _cut_queries(facts: Sequence[Facts]) -> list[list[_Piece]]:
    """The queries with rows in several partitions, by first appearance; what each partition has of them, in order."""
    places = np.repeat(np.arange(len(facts)), [len(one.qids) for one in facts])
    numbers = np.concatenate([np.arange(len(one.qids)) for one in facts])
    sizes = np.concatenate([one.sizes for one in facts])
    _, codes, counts = np.unique(np.concatenate([one.qids for one in facts]), return_inverse=True, return_counts=True)
    codes = codes.reshape(-1)
    found: dict[int, list[_Piece]] = {}
    for row in np.flatnonzero(counts[codes] > 1).tolist():
        found.setdefault(int(codes[row]), []).append(_Piece(int(places[row]), int(numbers[row]), int(sizes[row])))
    return list(found.values())


def _roomiest(pieces: Sequence[_Piece], settled: Array, most: float) -> int:
    """The partition with most rows of a query among those that have room; the emptiest where none has."""
    roomy = [piece for piece in pieces if settled[piece.place] <= most]
    if not roomy:
        return min(pieces, key=lambda piece: settled[piece.place]).place
    return min(roomy, key=lambda piece: (-piece.size, settled[piece.place])).place


def _check(facts: Sequence[Facts], pieces: Sequence[_Piece], repair: str) -> None:
    """Refuse what is more than a query cut by borders."""
    qid = facts[pieces[0].place].qids[pieces[0].number]
    for here, there in pairwise(pieces):
        at_border = there.place == here.place + 1 and there.number == 0 and facts[here.place].qids[-1] == qid
        where = f"Query {qid} lies partly in {facts[here.place].name} and partly in {facts[there.place].name}"
        if not at_border:
            raise DataError(
                f"{where}, and not at the border between them. If the id names two different queries, number them "
                "apart; if it is one query, give repair='all', which brings its rows together."
            )
        if repair == "none":
            raise DataError(f"{where}; partitions must hold whole queries. Cut them so, or give repair='neighbours'.")
    alone = [facts[piece.place].name for piece in pieces if len(facts[piece.place].qids) == 1]
    if len(alone) >= _WHOLE_FILES:
        raise DataError(
            f"Query {qid} is the only one in each of {len(alone)} partitions, {alone[0]} to {alone[-1]}. If the ids "
            "start again in every one, number them apart; if it is one query, give repair='all', which brings its rows "
            "together."
        )


@in_sentences
def taken(rows: Rows, owner: int, qids: Array) -> Guests:
    """The data of some queries of partition number `owner`."""
    data = rows.data
    assert data is not None
    chosen = np.isin(data.qids, qids)
    return Guests(data.select(chosen), owner, _order(rows)[data.queries.spread(chosen)])


@in_sentences
def joined(rows: Rows, owner: int, gone: Array | None, *more: Guests) -> Rows:
    """Partition number `owner` without the queries that went, and with the rows that came.

    Queries that came stand behind those that were there; rows of a query stand in the order of the partitions.
    """
    data = rows.data
    assert data is not None
    stays = np.ones(data.n_queries, dtype=bool) if gone is None else ~np.isin(data.qids, gone)
    parts = list(more)
    if stays.any():
        parts.insert(0, Guests(data.select(stays), owner, _order(rows)[data.queries.spread(stays)]))
    if not parts:
        return Rows(None, rows.name, None)
    owners = np.concatenate([np.full(part.data.n_documents, part.owner) for part in parts])
    qid = np.concatenate([part.data.qid for part in parts])
    _, first, inverse = np.unique(qid, return_index=True, return_inverse=True)
    sorting = np.lexsort((owners, first[inverse.reshape(-1)]))  # stable: rows of one partition keep their order
    order = np.concatenate([part.order for part in parts])
    return Rows(_stacked([part.data for part in parts], qid, sorting), rows.name, None, order[sorting], owners[sorting])


def _order(rows: Rows) -> IntArray:
    assert rows.data is not None
    return np.arange(rows.data.n_documents) if rows.order is None else rows.order


def _stacked(parts: Sequence[RankingData], qid: Array, sorting: IntArray) -> RankingData:
    """Parts one below the other, their rows sorted so that queries are whole."""

    def rows(pieces: Iterable[Array | None]) -> Array | None:
        present = [piece for piece in pieces if piece is not None]
        return np.concatenate(present)[sorting] if present else None

    if parts[0].is_sparse:
        from scipy import sparse

        X: Any = sparse.vstack([part.X for part in parts], format="csr")[sorting]
    else:
        X = rows(part.X for part in parts)
    whole = RankingData(
        X,
        rows(part.labels for part in parts),
        qid=qid[sorting],
        document_ids=rows(part.document_ids for part in parts),
        document_weights=rows(part.document_weights for part in parts),
        positions=rows(part.positions for part in parts),
        feature_names=parts[0].feature_names,
    )
    weights = rows(None if part.query_weights is None else part.queries.spread(part.query_weights) for part in parts)
    if weights is None:
        return whole
    return whole.replace(query_weights=one_for_each_query(weights, whole.queries, whole.qids))
