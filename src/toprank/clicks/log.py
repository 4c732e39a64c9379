"""A log of what was shown and what was clicked: sessions, each a list of documents in the order of their positions."""

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
MAX_COMPARED_POSITIONS = (
    1_000  # the most positions that are compared with each other: every pair has a number, or several
)
MAX_POSITION = 10_000  # the last position: lower ones are mistakes, and would cost memory for all above them
REWARDS = ("click", "value")
DUPLICATE_IMPRESSIONS = "impressions that were logged twice, and count once"
TRUNCATED_LINES = "lines that were cut off when the service was killed"
_MAX_TABLE_RATIO = 4  # a table of all numbers between the ids may be so many times as long as the log
_MAX_INLINE_ID_LENGTH = 32  # of ids that NumPy holds side by side; of longer ones it holds references


class UnidentifiedWarning(UserWarning):
    """The log alone does not tell what was estimated; an assumption does."""


class UnidentifiedError(DataError):
    """The log does not tell what is asked of it, and no assumption was made that would."""


@dataclass(frozen=True, eq=False, repr=False)
class ClickLog:
    """Impressions as flat arrays; session s owns the impressions ``offsets[s]:offsets[s + 1]``, by position.

    A pair is a query with one of its documents; what click models learn belongs to pairs.

    Attributes:
        offsets: where each session begins, and the end.
        session_query: the number of each session's query.
        qids: the ids of the queries.
        pair: the number of each impression's pair.
        pair_query, document_ids: the number of each pair's query, and the id of its document.
        position: of each impression, from 1, rising within a session.
        clicks: whether each impression was clicked.
        columns: further columns of impressions: ``dwell``, ``time``, ``ranker`` …
        session_ids: the ids that sessions had in their source; None if they are numbered.
        dropped: how often something could not become an impression or a click, in words.
        weights: how much each session counts (`toprank.clicks.recency`); None if all count alike.
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
        """A log of impressions, one row each, in any order; the rows of a session become neighbors.

        Without `session`, rows stand in the order of the log, and a session ends where the query changes or the
        position does not rise. A document that a session tells twice at one position is one impression, clicked where
        either was; other documents at a position that is taken stay (`has_duplicate_positions` marks such sessions).

        >>> log = ClickLog.from_columns(["a", "a", "a", "a"], ["x", "y", "y", "x"], [1, 2, 1, 2], [0, 1, 1, 0])
        >>> log.n_sessions, log.n_pairs, log.clicks.tolist()
        (2, 2, [False, True, True, False])
        """
        from toprank.clicks.assembly import from_columns  # which imports this module

        return from_columns(query, document, position, click, session, columns)

    @property
    def n_impressions(self) -> int:
        """Number of rows."""
        return len(self.pair)

    @property
    def n_sessions(self) -> int:
        """Number of lists that were shown."""
        return len(self.session_query)

    @property
    def n_queries(self) -> int:
        """Number of different queries."""
        return len(self.qids)

    @property
    def n_pairs(self) -> int:
        """Number of different documents of queries."""
        return len(self.pair_query)

    @property
    def depth(self) -> int:
        """The lowest position that was shown."""
        return int(self.position.max(initial=0))

    @cached_property
    def sessions(self) -> Queries:
        """Impressions split into sessions."""
        return Queries(self.offsets)

    @cached_property
    def session(self) -> IntArray:
        """For each impression, the number of its session."""
        return np.repeat(np.arange(self.n_sessions), np.diff(self.offsets))

    @cached_property
    def query(self) -> IntArray:
        """For each impression, the number of its query."""
        return self.session_query[self.session]

    @property
    def session_weights(self) -> FloatArray:
        """For each session, how much it counts: 1 if all count alike."""
        return _ones(self.n_sessions) if self.weights is None else self.weights

    @cached_property
    def impression_weights(self) -> FloatArray:
        """For each impression, how much its session counts: 1 if all count alike."""
        return _ones(self.n_impressions) if self.weights is None else np.repeat(self.weights, np.diff(self.offsets))

    def reweighted(self, queries: FloatArray) -> FloatArray:
        """For each impression, how much it counts if queries count so often."""
        return queries[self.query] * self.impression_weights

    @property
    def session_names(self) -> Array:
        """For each session, its id; its number if it has none."""
        return np.arange(self.n_sessions) if self.session_ids is None else self.session_ids

    @cached_property
    def session_clicks(self) -> IntArray:
        """For each session, the number of its clicks."""
        return np.add.reduceat(self.clicks.astype(np.int64), self.offsets[:-1])

    @cached_property
    def cache(self) -> dict[Any, Any]:
        """A cache for what is computed from this log and needed again; a log derived from it has its own."""
        return {}

    @cached_property
    def has_duplicate_positions(self) -> npt.NDArray[np.bool_]:
        """For each session, whether it has several documents at one position, so that their order is not known."""
        again = np.flatnonzero((np.diff(self.position) == 0) & (np.diff(self.session) == 0))
        sessions = np.zeros(self.n_sessions, dtype=bool)
        sessions[self.session[again]] = True
        return sessions

    def rewards(self, reward: str = "click") -> FloatArray:
        """Return what each impression brought: 1 if it was clicked (``click``), or its value (``value``).

        >>> ClickLog.from_columns(["a", "a"], ["x", "y"], [1, 2], [0, 1], value=[0.0, 9.5]).rewards("value").tolist()
        [0.0, 9.5]
        """
        if reward not in REWARDS:
            raise UnknownNameError("reward", reward, REWARDS)
        if reward == "click":
            return self.clicks.astype(np.float64)
        if "value" not in self.columns:
            raise DataError(
                "The log has no values. Of a table, name the column that holds them; of a log of events, say what each "
                "kind is worth:",
                remedy=Remedy("{values}.", values="click=1,cart=5,purchase=value"),
            )
        values = np.asarray(self.columns["value"], dtype=np.float64)
        if not np.isfinite(values).all():
            raise DataError("The values of the log must be finite numbers; where an impression brought nothing, 0.")
        return values

    @cached_property
    def unique_sessions(self) -> tuple[ClickLog, FloatArray]:
        """The sessions without those that showed the same and were clicked the same, by query, and how often each was.

        >>> log = ClickLog.from_columns(["a"] * 6, list("xyxyxy"), [1, 2] * 3, [1, 0, 0, 0, 1, 0])
        >>> distinct, counts = log.unique_sessions
        >>> distinct.n_sessions, sorted(counts.tolist())
        (2, [1.0, 2.0])
        """
        if self.weights is not None:  # as many weights as sessions: none are the same
            return replace(self, columns={}, session_ids=None), self.weights
        keys, clicks = np.empty(self.n_sessions, np.uint64), self.clicks.view(np.uint8)
        kernels.session_keys(self.offsets, self.session_query, self.pair, self.position, clicks, keys)
        order = np.argsort(keys, kind="stable")
        kept, counts = np.empty(self.n_sessions, np.int64), np.empty(self.n_sessions)
        shown = self.pair, self.position, clicks
        n = kernels.distinct_sessions(self.offsets, *shown, keys, order, kept, counts)
        return replace(self, columns={}, session_ids=None).select(kept[:n]), counts[:n].copy()

    def select(self, sessions: npt.ArrayLike) -> ClickLog:
        """The log of some sessions (numbers or a mask), in their order; queries and pairs keep their numbers."""
        chosen = np.asarray(sessions) if np.size(sessions) else np.empty(0, np.int64)
        if chosen.dtype == bool and chosen.shape == (self.n_sessions,):
            chosen = np.flatnonzero(chosen)
        elif chosen.dtype.kind not in "iu" or ((chosen < 0) | (chosen >= self.n_sessions)).any():
            raise DataError(f"Choose sessions by numbers from 0 to {self.n_sessions - 1:,}, or a mask of as many.")
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
        """Return the log of some impressions, in this order, with further fields replaced; sessions must stay together.

        >>> log = ClickLog.from_columns(["q", "q"], ["a", "b"], [1, 2], [0, 1])
        >>> log.take(np.array([1, 0]), position=log.position).clicks.tolist()
        [True, False]
        """
        taken = {name: getattr(self, name)[rows] for name in ("pair", "position", "clicks")}
        columns = {name: values[rows] for name, values in self.columns.items()}
        return replace(self, **{**taken, "columns": columns, **changes})

    def top(self, k: int) -> ClickLog:
        """The log of the first k positions; sessions that show nothing there are left out.

        >>> ClickLog.from_columns(["a", "a", "a"], ["x", "y", "z"], [1, 2, 9], [0, 1, 1]).top(2).position.tolist()
        [1, 2]
        """
        kept = self.position <= k
        if not kept.any():
            raise DataError(
                f"The log shows nothing at the first {k:,} positions; check that the right column was read as the "
                "position."
            )
        sizes = np.bincount(self.session[kept], minlength=self.n_sessions)
        return self.take(kept, offsets=np.concatenate([[0], np.cumsum(sizes)])).select(sizes > 0)

    def rows(self, data: RankingData) -> IntArray:
        """Return for each pair the row of `data` that has its query and document, by ids; -1 if there is none.

        Where the data have no document ids, these are the numbers of their rows, as `simulate` has it.

        >>> data = RankingData([[0.5], [0.7]], qid=["a", "a"], document_ids=["y", "x"])
        >>> ClickLog.from_columns(["a", "a"], ["x", "z"], [1, 2], [0, 1]).rows(data).tolist()
        [1, -1]
        """
        check_data("the join with a click log", data)
        return rows_of_pairs(self._pairs, (data.qids, data.queries.document_query, data.row_names))

    def data(self, features: Sequence[str]) -> RankingData:
        """Return what was shown as ranking data without labels: a row for each pair, columns of the log as features.

        Where a column differs between impressions of a pair, the last of them counts.

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
        """Return for each pair the number of the same query and document in another log, by ids; -1 if there is none.

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
    """Refuse what is no log, and one without impressions."""
    if not isinstance(log, ClickLog):
        raise DataError(
            f"Clicks are learned from a ClickLog (tr.clicks.read gives one), not from a {type(log).__name__}."
        )
    if log.n_impressions == 0:
        raise DataError("The log has no impressions.")


def _ones(n: int) -> FloatArray:
    """N times 1, in the memory of one: a log of ten million impressions would take 80 MB."""
    return np.broadcast_to(np.float64(1.0), n)


def sums(of: npt.NDArray[np.signedinteger[Any]], values: Any, n: int) -> FloatArray:
    """Return the sum of the values of each of n members; `of` says whose each value is, and None counts."""
    return np.asarray(np.bincount(of, values, n), dtype=np.float64)


def sums_by(keys: IntArray, *values: Any) -> tuple[IntArray, list[FloatArray]]:
    """The different keys, rising, and the sums of each of several values over the rows that have them; None counts.

    >>> keys, (rows, total) = sums_by(np.array([7, 3, 7]), None, np.array([1.0, 5.0, 2.0]))
    >>> keys.tolist(), rows.tolist(), total.tolist()
    ([3, 7], [1.0, 2.0], [5.0, 3.0])
    """
    different, place = np.unique(keys, return_inverse=True)
    return different, [sums(place, value, len(different)) for value in values]


def named(data: RankingData) -> RankingData:
    """The data with document ids; without ids, documents are called by rows."""
    if data.document_ids is not None:
        return data
    return data.replace(document_ids=data.row_names.astype(str))


def unclicked(
    data: RankingData, query: IntArray, sizes: IntArray, rows: IntArray, columns: Mapping[str, Array]
) -> ClickLog:
    """Return the log of lists without clicks: the query and the size of each, and the rows of `data` that it shows."""
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


# ---- ids as numbers ----


class Numbered(NamedTuple):
    """Different ids, in order, and the number of each row's."""

    ids: Array
    number: IntArray


def numbered(values: Any, *, from_text: bool = False) -> Numbered:
    """The different ids of a column (NumPy's or Arrow's), in order, and the number of each row's.

    With `from_text`, ids that are all written as whole numbers are numbers: text has no types.

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
    if isinstance(coded, pa.ChunkedArray):  # of one chunk, as some versions of Arrow give it
        coded = coded.chunk(0)
    known, codes = coded.dictionary, np.asarray(coded.indices.to_numpy(zero_copy_only=False))
    known = _whole_numbers(known) if from_text else known
    order = pc.sort_indices(known)
    place = np.empty(len(known), dtype=np.int64)
    place[np.asarray(order)] = np.arange(len(known))
    return Numbered(ids_of(known.take(order)), place[codes])


def _whole_numbers(words: Any) -> Any:
    """An Arrow array of text as whole numbers where each is written exactly as the number would be, else unchanged."""
    import pyarrow as pa

    try:
        numbers = words.cast(pa.int64())
    except pa.ArrowInvalid:
        return words
    return numbers if numbers.cast(words.type).equals(words) else words


def _counted(values: Array) -> Numbered | None:
    """Number whole numbers that lie close together by a table of them; None if they do not."""
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
    """An Arrow array of ids as NumPy's: whole numbers, or text, which takes no more room than its letters do."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(known.type):
        return np.asarray(known.to_numpy(zero_copy_only=False))
    longest = pc.max(pc.utf8_length(known)).as_py() or 0
    held = (
        longest > _MAX_INLINE_ID_LENGTH or pc.any(pc.match_substring(known, "\0")).as_py()
    )  # a last zero is padding to NumPy
    return np.array(known.to_pylist(), dtype=object if held else np.str_)


def words_of(ids: Array) -> Any:
    """Ids as an Arrow array of text, by which they are compared wherever they come from."""
    import pyarrow as pa

    if ids.dtype.kind in "iu":
        return pa.array(ids).cast(pa.string())
    if ids.dtype.kind == "O":
        return pa.array([str(word) for word in ids.tolist()], pa.string())
    words = pa.array(ids if ids.dtype.kind == "U" else ids.astype(str), pa.string())
    return (
        pa.concat_arrays(words.chunks) if isinstance(words, pa.ChunkedArray) else words
    )  # of many, Arrow makes several


def first_odd(words: Any, kind: Any) -> int:
    """Return the place of the first text that Arrow cannot take for one of a type; there is one."""
    import pyarrow as pa

    for place, word in enumerate(words):
        try:
            word.cast(kind)
        except pa.ArrowInvalid:
            return place
    raise AssertionError("all of them could be meant")


def rows_of_pairs(pairs: tuple[Array, IntArray, Array], others: tuple[Array, IntArray, Array]) -> IntArray:
    """Return for each pair of query and document the row with the same ids in another table; -1 if there is none.

    Both are given as the ids of queries, the number of each row's query among them, and the document of each row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def index(wanted: Any, known: Any) -> IntArray:
        places = pc.index_in(wanted, value_set=known).fill_null(-1)
        return np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)

    names = words_of(others[2]).dictionary_encode()
    document = np.asarray(names.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    span = np.int64(len(names.dictionary) + 1)  # one more: documents that are not among the names
    of_query = index(words_of(pairs[0]), words_of(others[0]))[pairs[1]]
    of_document = index(words_of(pairs[2]), names.dictionary)
    wanted = np.where((of_query >= 0) & (of_document >= 0), of_query * span + of_document, -1)
    return index(pa.array(wanted), pa.array(np.asarray(others[1], dtype=np.int64) * span + document))


# ---- queries drawn again, or left out in turn, with all their sessions: what intervals are made of ----


def redrawn(log: ClickLog, n_resamples: int, seed: int) -> Iterator[FloatArray]:
    """Draw the queries with sessions again, as many as there are, `n_resamples` times; yield how often each counts."""
    rng, present = np.random.default_rng(seed), np.unique(log.session_query)
    for _ in range(n_resamples):
        yield np.bincount(rng.choice(present, len(present)), minlength=log.n_queries).astype(np.float64)


def jackknife_groups(log: ClickLog, groups: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Leave out each group of queries in turn: how often each query counts, 0 or 1; and the groups' shares of sessions.

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
    """Return all sessions of queries drawn at random, at most so many: models must see documents often."""
    sessions = sums(log.session_query, None, log.n_queries)
    order = np.random.default_rng(seed).permutation(log.n_queries)
    kept = np.zeros(log.n_queries, dtype=bool)
    kept[order[np.cumsum(sessions[order]) <= most]] = True
    if not kept.any():  # the first query alone has more
        drawn = np.random.default_rng(seed).permutation(log.n_sessions)[:most]
        return log.select(np.sort(drawn))
    return log.select(kept[log.session_query])
