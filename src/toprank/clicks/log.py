"""Click logs: sessions of shown documents in the order of their positions, and their clicks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData, check_data
from toprank.data.queries import Queries, positions_within
from toprank.errors import DataError, Remedy, UnknownNameError

Array = npt.NDArray[Any]
MAX_COMPARED_POSITIONS = 1_000  # comparisons store numbers for every pair of positions
MAX_POSITION = 10_000  # larger ones are mistakes, and tables of positions would waste memory on them
REWARDS = ("click", "value")
DUPLICATE_IMPRESSIONS = "impressions that were logged twice, and count once"
TRUNCATED_LINES = "lines that were cut off when the service was killed"
_MAX_TABLE_RATIO = 4  # length of a lookup table relative to the log
_MAX_INLINE_ID_LENGTH = 32  # longer ids are stored as Python objects


class UnidentifiedWarning(UserWarning):
    """The log does not identify an estimate without a further assumption."""


class UnidentifiedError(DataError):
    """The log does not identify the requested estimate, and no assumption replaces the missing information."""


@dataclass(frozen=True, eq=False, repr=False)
class ClickLog:
    """A click log in flat arrays; session s owns the impressions ``offsets[s]:offsets[s + 1]``, in order of
    position.

    A pair is a query with one of its documents. Click models learn one attraction for each pair.

    Attributes:
        offsets: index of the first impression of each session, and the total number of impressions.
        session_query: index of the query of each session.
        qids: ids of the queries.
        pair: index of the pair of each impression.
        pair_query, document_ids: index of the query of each pair, and the id of its document.
        position: position of each impression, from 1, in increasing order within a session.
        clicks: whether each impression was clicked.
        columns: further columns with one value per impression: ``dwell``, ``time``, ``ranker`` …
        session_ids: ids of the sessions in their source, or None if they are numbered.
        dropped: counts of rows and events that could not be used, by reason.
        weights: weight of each session (`toprank.clicks.recency`), or None if all weights are 1.
    """

    offsets: IntArray
    session_query: IntArray
    qids: Array
    pair: IntArray
    pair_query: IntArray
    document_ids: Array
    position: IntArray
    clicks: npt.NDArray[np.bool_]
    columns: Mapping[str, Array] = field(default_factory=dict)
    session_ids: Array | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    weights: FloatArray | None = None

    @classmethod
    def from_columns(
        cls, query: npt.ArrayLike, document: npt.ArrayLike, position: npt.ArrayLike, click: npt.ArrayLike,
        session: npt.ArrayLike | None = None, **columns: npt.ArrayLike,
    ) -> ClickLog:  # fmt: skip
        """Build a log from one row per impression, in any order; the rows of a session become contiguous.

        Without `session`, the rows must be in the order of the log, and a session ends where the query changes or the
        position does not increase. If a session lists a document twice at one position, the rows are merged into one
        impression, which is clicked if either was. Different documents at the same position are kept, and
        `has_duplicate_positions` marks their sessions.

        >>> log = ClickLog.from_columns(["a", "a", "a", "a"], ["x", "y", "y", "x"], [1, 2, 1, 2], [0, 1, 1, 0])
        >>> log.n_sessions, log.n_pairs, log.clicks.tolist()
        (2, 2, [False, True, True, False])
        """
        from toprank.clicks.assembly import from_columns  # avoid a circular import

        return from_columns(query, document, position, click, session, columns)

    @property
    def n_impressions(self) -> int:
        """Number of impressions."""
        return len(self.pair)

    @property
    def n_sessions(self) -> int:
        """Number of sessions."""
        return len(self.session_query)

    @property
    def n_queries(self) -> int:
        """Number of distinct queries."""
        return len(self.qids)

    @property
    def n_pairs(self) -> int:
        """Number of distinct pairs of query and document."""
        return len(self.pair_query)

    @property
    def depth(self) -> int:
        """The largest position in the log."""
        return int(self.position.max(initial=0))

    @cached_property
    def sessions(self) -> Queries:
        """The division of the impressions into sessions."""
        return Queries(self.offsets)

    @cached_property
    def session(self) -> IntArray:
        """Index of the session of each impression."""
        return np.repeat(np.arange(self.n_sessions), np.diff(self.offsets))

    @cached_property
    def query(self) -> IntArray:
        """Index of the query of each impression."""
        return self.session_query[self.session]

    @property
    def session_weights(self) -> FloatArray:
        """Weight of each session; 1 without weights."""
        return _ones(self.n_sessions) if self.weights is None else self.weights

    @cached_property
    def impression_weights(self) -> FloatArray:
        """Weight of the session of each impression; 1 without weights."""
        return _ones(self.n_impressions) if self.weights is None else np.repeat(self.weights, np.diff(self.offsets))

    def reweighted(self, queries: FloatArray) -> FloatArray:
        """Return the weight of each impression if queries have these weights."""
        return queries[self.query] * self.impression_weights

    @property
    def session_names(self) -> Array:
        """Id of each session, or its index if the sessions have no ids."""
        return np.arange(self.n_sessions) if self.session_ids is None else self.session_ids

    @cached_property
    def session_clicks(self) -> IntArray:
        """Number of clicks of each session."""
        return np.add.reduceat(self.clicks.astype(np.int64), self.offsets[:-1])

    @cached_property
    def cache(self) -> dict[Any, Any]:
        """Results computed from this log, for reuse; a derived log has its own cache."""
        return {}

    @cached_property
    def has_duplicate_positions(self) -> npt.NDArray[np.bool_]:
        """True for sessions with several documents at one position, whose order is unknown."""
        again = np.flatnonzero((np.diff(self.position) == 0) & (np.diff(self.session) == 0))
        sessions = np.zeros(self.n_sessions, dtype=bool)
        sessions[self.session[again]] = True
        return sessions

    def rewards(self, reward: str = "click") -> FloatArray:
        """Return the reward of each impression: its click (``click``) or its value (``value``).

        >>> ClickLog.from_columns(["a", "a"], ["x", "y"], [1, 2], [0, 1], value=[0.0, 9.5]).rewards("value").tolist()
        [0.0, 9.5]
        """
        if reward not in REWARDS:
            raise UnknownNameError("reward", reward, REWARDS)
        if reward == "click":
            return self.clicks.astype(np.float64)
        if "value" not in self.columns:
            raise DataError(
                "The log has no values. Name their column if the log is a table, or state the value of each kind of "
                "event:",
                remedy=Remedy("{values}.", values="click=1,cart=5,purchase=value"),
            )
        values = np.asarray(self.columns["value"], dtype=np.float64)
        if not np.isfinite(values).all():
            raise DataError("The values of the log must be finite numbers; use 0 for impressions without a value.")
        return values

    @cached_property
    def unique_sessions(self) -> tuple[ClickLog, FloatArray]:
        """The distinct sessions, sorted by query, and how often each occurs.

        >>> log = ClickLog.from_columns(["a"] * 6, list("xyxyxy"), [1, 2] * 3, [1, 0, 0, 0, 1, 0])
        >>> distinct, counts = log.unique_sessions
        >>> distinct.n_sessions, sorted(counts.tolist())
        (2, [1.0, 2.0])
        """
        if self.weights is not None:  # sessions with different weights are distinct
            return replace(self, columns={}, session_ids=None), self.weights
        keys, clicks = np.empty(self.n_sessions, np.uint64), self.clicks.view(np.uint8)
        kernels.session_keys(self.offsets, self.session_query, self.pair, self.position, clicks, keys)
        order = np.argsort(keys, kind="stable")
        kept, counts = np.empty(self.n_sessions, np.int64), np.empty(self.n_sessions)
        shown = self.pair, self.position, clicks
        n = kernels.distinct_sessions(self.offsets, *shown, keys, order, kept, counts)
        return replace(self, columns={}, session_ids=None).select(kept[:n]), counts[:n].copy()

    def select(self, sessions: npt.ArrayLike) -> ClickLog:
        """Return the log of the selected sessions (indices or a mask); queries and pairs keep their indices."""
        chosen = np.asarray(sessions) if np.size(sessions) else np.empty(0, np.int64)
        if chosen.dtype == bool and chosen.shape == (self.n_sessions,):
            chosen = np.flatnonzero(chosen)
        elif chosen.dtype.kind not in "iu" or ((chosen < 0) | (chosen >= self.n_sessions)).any():
            raise DataError(f"Select sessions by index (0 to {self.n_sessions - 1:,}) or by a mask of that length.")
        sizes = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.repeat(self.offsets[chosen], sizes) + positions_within(sizes)
        ids, weights = (None if values is None else values[chosen] for values in (self.session_ids, self.weights))
        return self.take(
            rows,
            offsets=offsets,
            session_query=self.session_query[chosen],
            session_ids=ids,
            weights=weights,
            dropped={},
        )

    def take(self, rows: IntArray | npt.NDArray[np.bool_], **changes: Any) -> ClickLog:
        """Return the log of the selected impressions, in this order, with further fields replaced.

        The impressions of a session must stay contiguous.

        >>> log = ClickLog.from_columns(["q", "q"], ["a", "b"], [1, 2], [0, 1])
        >>> log.take(np.array([1, 0]), position=log.position).clicks.tolist()
        [True, False]
        """
        taken = {name: getattr(self, name)[rows] for name in ("pair", "position", "clicks")}
        columns = {name: values[rows] for name, values in self.columns.items()}
        return replace(self, **{**taken, "columns": columns, **changes})

    def top(self, k: int) -> ClickLog:
        """Return the log of the first k positions, without sessions that show nothing there.

        >>> ClickLog.from_columns(["a", "a", "a"], ["x", "y", "z"], [1, 2, 9], [0, 1, 1]).top(2).position.tolist()
        [1, 2]
        """
        kept = self.position <= k
        if not kept.any():
            raise DataError(
                f"The log shows nothing at the first {k:,} positions; check which column was read as the position."
            )
        sizes = np.bincount(self.session[kept], minlength=self.n_sessions)
        return self.take(kept, offsets=np.concatenate([[0], np.cumsum(sizes)])).select(sizes > 0)

    def rows(self, data: RankingData) -> IntArray:
        """Return the row of `data` with the query and document of each pair, matched by id; -1 if there is none.

        If `data` have no document ids, the ids of the log are row numbers, as in logs of `simulate`.

        >>> data = RankingData([[0.5], [0.7]], qid=["a", "a"], document_ids=["y", "x"])
        >>> ClickLog.from_columns(["a", "a"], ["x", "z"], [1, 2], [0, 1]).rows(data).tolist()
        [1, -1]
        """
        check_data("the join with a click log", data)
        return rows_of_pairs(self._pairs, (data.qids, data.queries.document_query, data.row_names))

    def data(self, features: Sequence[str]) -> RankingData:
        """Return the shown documents as ranking data without labels: one row per pair, with columns of the log as
        features.

        If a column differs between impressions of a pair, the last impression counts.

        >>> log = ClickLog.from_columns(["a", "a", "b"], ["x", "y", "x"], [1, 2, 1], [0, 1, 0], bm25=[0.5, 0.7, 0.9])
        >>> data = log.data(["bm25"])
        >>> data.X.ravel().tolist(), log.rows(data).tolist()
        ([0.5, 0.7, 0.9], [0, 1, 2])
        """
        last = np.full(self.n_pairs, -1, dtype=np.int64)
        np.maximum.at(last, self.pair, np.arange(self.n_impressions))
        pairs = np.flatnonzero(last >= 0)
        X = np.empty((len(pairs), len(features)))
        for place, name in enumerate(features):
            if name not in self.columns:
                raise UnknownNameError("column of the log", name, self.columns)
            try:
                X[:, place] = self.columns[name][last[pairs]]
            except (TypeError, ValueError):
                raise DataError(f"Column '{name}' of the log must hold numbers to be a feature.") from None
        names = [str(document) for document in self.document_ids[pairs].tolist()]
        query = self.qids[self.pair_query[pairs]]
        return RankingData(X, qid=query, document_ids=names, feature_names=list(features))

    def pairs_in(self, other: ClickLog) -> IntArray:
        """Return the index in another log of each pair, matched by query and document ids; -1 if it is absent.

        >>> log = ClickLog.from_columns(["q", "q"], ["a", "b"], [1, 2], [0, 0])
        >>> log.pairs_in(ClickLog.from_columns(["q", "r"], ["b", "a"], [1, 1], [0, 0])).tolist()
        [-1, 0]
        """
        return rows_of_pairs(self._pairs, other._pairs)

    @property
    def _pairs(self) -> tuple[Array, IntArray, Array]:
        return self.qids, self.pair_query, self.document_ids

    def __repr__(self) -> str:
        return (
            f"ClickLog({self.n_sessions:,} sessions, {self.n_impressions:,} impressions, "
            f"{int(self.clicks.sum()):,} clicks, {self.n_queries:,} queries, {self.n_pairs:,} documents)"
        )


def check_log(log: Any) -> None:
    """Raise an error unless the argument is a click log with impressions."""
    if not isinstance(log, ClickLog):
        raise DataError(f"A click log must be a ClickLog (see tr.clicks.read), not a {type(log).__name__}.")
    if log.n_impressions == 0:
        raise DataError("The log has no impressions.")


def _ones(n: int) -> FloatArray:
    """Return n ones in the memory of one: ten million impressions would otherwise take 80 MB."""
    return np.broadcast_to(np.float64(1.0), n)


def sums(group: npt.NDArray[np.signedinteger[Any]], values: Any, n: int) -> FloatArray:
    """Return the sum of `values` in each of n groups; `group` holds the group of each value, and None counts the
    values.
    """
    return np.asarray(np.bincount(group, values, n), dtype=np.float64)


def sums_by(keys: IntArray, *values: Any) -> tuple[IntArray, list[FloatArray]]:
    """Return the distinct keys in increasing order, and the sums of several columns by key; None counts the rows.

    >>> keys, (rows, total) = sums_by(np.array([7, 3, 7]), None, np.array([1.0, 5.0, 2.0]))
    >>> keys.tolist(), rows.tolist(), total.tolist()
    ([3, 7], [1.0, 2.0], [5.0, 3.0])
    """
    different, place = np.unique(keys, return_inverse=True)
    return different, [sums(place, value, len(different)) for value in values]


def named(data: RankingData) -> RankingData:
    """Return the data with document ids; row numbers become ids if there are none."""
    if data.document_ids is not None:
        return data
    return data.replace(document_ids=data.row_names.astype(str))


def unclicked(
    data: RankingData, query: IntArray, sizes: IntArray, rows: IntArray, columns: Mapping[str, Array]
) -> ClickLog:
    """Return a log of lists without clicks, from the query and the size of each list and the rows of `data` that it
    shows.
    """
    data = named(data)
    return ClickLog(
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        session_query=query,
        qids=data.qids,
        pair=rows,
        pair_query=data.queries.document_query,
        document_ids=np.asarray(data.document_ids),
        position=positions_within(sizes) + 1,
        clicks=np.zeros(len(rows), dtype=bool),
        columns=columns,
    )


# ---- factorized ids ----


class Numbered(NamedTuple):
    """Distinct ids in sorted order, and the index of the id of each row."""

    ids: Array
    number: IntArray


def numbered(values: Any, *, from_text: bool = False) -> Numbered:
    """Factorize a column of NumPy or Arrow: return its distinct ids in sorted order and the index of each row's id.

    With `from_text`, ids become integers if all of them are written as integers, because text files have no types.

    >>> numbered(np.array(["b", "a", "b"]))
    Numbered(ids=array(['a', 'b'], dtype='<U1'), number=array([1, 0, 1]))
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = values
    if isinstance(values, np.ndarray):
        if values.dtype.kind in "iu" and (near := _counted(values)) is not None:
            return near
        column = pa.array(values) if values.dtype.kind in "iu" else words_of(values)
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.unify_dictionaries().combine_chunks() if coded.num_chunks else pa.array([], coded.type)
    if isinstance(coded, pa.ChunkedArray):  # some versions of Arrow return one chunk
        coded = coded.chunk(0)
    known, codes = coded.dictionary, np.asarray(coded.indices.to_numpy(zero_copy_only=False))
    known = _whole_numbers(known) if from_text else known
    order = pc.sort_indices(known)
    place = np.empty(len(known), dtype=np.int64)
    place[np.asarray(order)] = np.arange(len(known))
    return Numbered(ids_of(known.take(order)), place[codes])


def _whole_numbers(words: Any) -> Any:
    """Convert an Arrow array of text to integers if each is written in canonical form; otherwise return it
    unchanged.
    """
    import pyarrow as pa

    try:
        numbers = words.cast(pa.int64())
    except pa.ArrowInvalid:
        return words
    return numbers if numbers.cast(words.type).equals(words) else words


def _counted(values: Array) -> Numbered | None:
    """Factorize integers with a lookup table, or return None if their range is too large for one."""
    if not len(values):
        return Numbered(values, np.empty(0, dtype=np.int64))
    low, high = int(values.min()), int(values.max())
    if high - low >= _MAX_TABLE_RATIO * len(values):
        return None
    place = (values.astype(np.int64) if values.dtype.kind == "i" else values) - low
    known = np.zeros(high - low + 1, dtype=bool)
    known[place] = True
    return Numbered((np.flatnonzero(known) + low).astype(values.dtype), (np.cumsum(known) - 1)[place])


def ids_of(known: Any) -> Array:
    """Convert Arrow ids to NumPy: integers, or text with no more memory than its characters need."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(known.type):
        return np.asarray(known.to_numpy(zero_copy_only=False))
    longest = pc.max(pc.utf8_length(known)).as_py() or 0
    held = (
        longest > _MAX_INLINE_ID_LENGTH or pc.any(pc.match_substring(known, "\0")).as_py()
    )  # NumPy strips trailing zeros
    return np.array(known.to_pylist(), dtype=object if held else np.str_)


def words_of(ids: Array) -> Any:
    """Convert ids to Arrow text, the common form in which ids of different sources are compared."""
    import pyarrow as pa

    if ids.dtype.kind in "iu":
        return pa.array(ids).cast(pa.string())
    if ids.dtype.kind == "O":
        return pa.array([str(word) for word in ids.tolist()], pa.string())
    words = pa.array(ids if ids.dtype.kind == "U" else ids.astype(str), pa.string())
    return pa.concat_arrays(words.chunks) if isinstance(words, pa.ChunkedArray) else words  # Arrow splits long columns


def first_odd(words: Any, kind: Any) -> int:
    """Return the index of the first text that Arrow cannot convert to a type; one must exist."""
    import pyarrow as pa

    for place, word in enumerate(words):
        try:
            word.cast(kind)
        except pa.ArrowInvalid:
            return place
    raise AssertionError("all values can be converted")


def rows_of_pairs(pairs: tuple[Array, IntArray, Array], others: tuple[Array, IntArray, Array]) -> IntArray:
    """Return the row of another table with the same query and document ids for each pair; -1 if there is none.

    Both tables are given as the query ids, the index of each row's query, and the document id of each row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def index(wanted: Any, known: Any) -> IntArray:
        places = pc.index_in(wanted, value_set=known).fill_null(-1)
        return np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)

    names = words_of(others[2]).dictionary_encode()
    document = np.asarray(names.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    span = np.int64(len(names.dictionary) + 1)  # one more for unknown documents
    of_query = index(words_of(pairs[0]), words_of(others[0]))[pairs[1]]
    of_document = index(words_of(pairs[2]), names.dictionary)
    wanted = np.where((of_query >= 0) & (of_document >= 0), of_query * span + of_document, -1)
    return index(pa.array(wanted), pa.array(np.asarray(others[1], dtype=np.int64) * span + document))


# ---- bootstrap and jackknife weights of queries with all their sessions ----


def bootstrap_weights(log: ClickLog, n_resamples: int, seed: int) -> Iterator[FloatArray]:
    """Yield the query weights of bootstrap samples: the queries with sessions are resampled with replacement."""
    rng, present = np.random.default_rng(seed), np.unique(log.session_query)
    for _ in range(n_resamples):
        yield np.bincount(rng.choice(present, len(present)), minlength=log.n_queries).astype(np.float64)


def jackknife_groups(log: ClickLog, groups: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return query weights that leave out one group of queries each (0 or 1), and the groups' shares of the
    sessions.

    >>> weights, shares = jackknife_groups(ClickLog.from_columns(["q", "q", "r"], ["a"] * 3, [1] * 3, [0, 1, 1]), 20, 0)
    >>> weights.sum(axis=1).tolist(), sorted(shares.round(2).tolist())
    ([1.0, 1.0], [0.33, 0.67])
    """
    present, place = np.unique(log.session_query, return_inverse=True)
    sessions = np.bincount(place, log.weights)
    number = np.random.default_rng(seed).permutation(len(present)) % min(groups, len(present))
    group = np.full(log.n_queries, -1)
    group[present] = number
    weights = (group != np.arange(number.max(initial=0) + 1)[:, None]).astype(np.float64)
    return weights, np.bincount(number, sessions) / sessions.sum()


def some_queries(log: ClickLog, most: int, seed: int) -> ClickLog:
    """Return all sessions of randomly chosen queries, at most `most` sessions in total.

    Whole queries are kept, because click models need many impressions of each document.
    """
    sessions = sums(log.session_query, None, log.n_queries)
    order = np.random.default_rng(seed).permutation(log.n_queries)
    kept = np.zeros(log.n_queries, dtype=bool)
    kept[order[np.cumsum(sessions[order]) <= most]] = True
    if not kept.any():  # the first query alone exceeds the limit
        drawn = np.random.default_rng(seed).permutation(log.n_sessions)[:most]
        return log.select(np.sort(drawn))
    return log.select(kept[log.session_query])
