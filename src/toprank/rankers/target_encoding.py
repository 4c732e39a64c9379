"""Categories as numbers: the shrunken mean of the grades of each level, and of pairs of levels.

Let t be a document's grade less the mean grade of its query (by document weights), so that over all documents t is 0 on
average. A level with n documents (by weight) whose t add up to s gets

    m(level) = s / (n + k),        k = σ² / τ²,

the posterior mean of its effect where effects vary with τ² about 0, the mean of all, and documents with σ² about their
level's. Both come from the data by moments: σ² is the variance within levels, and τ² = (Σ n m̄² − L σ²) / N, with m̄ the
plain means, L levels and N documents. A level that was never seen, and a missing cell, have 0.

A pair of categories has the same of what its two leave over, t − m(one) − m(other): what a seller is worth in one
kind of product beyond what both are worth.

**A document's own grade never enters its own number in training**: there, the tables come from the other four of five
folds of queries. In prediction they come from all training data.

The parameter `target_encoding` of rankers selects the categories: ``"auto"`` takes those with more than 128 levels, and
at most ten pairs, if they help on the validation data (without any: on folds of the training data); True takes all
categories with that many levels; False takes none; a list holds names and pairs of names. For a fitted ranker,
`training_["target_encoding"]` reports the encodings used, and the evidence for each candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.division import Division, cross_fit
from toprank.data.encoding import Encoding, codes_of, listed
from toprank.data.hashes import id_hashes
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError, refuse_if

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData

MANY = 128
"""A category with more levels has many: trees that sort them by gradients overfit, and one-hot columns are sparse."""
FOLDS = 5
MOST_CELLS = 1_000_000
"""Of a table: 4 MB in a model's file."""
MOST_PAIRS = 10
LEVEL = 0.05
"""Largest chance that any useless table is taken, over all candidates of a kind (Bonferroni)."""
_TRIED = 20  # pairs, the most telling first, that are asked what they tell beyond the others
_FEWEST = 20  # queries to judge by: of fewer, the spread between queries is not known

EncodedCategories = Literal["auto"] | bool | Sequence[str | Sequence[str]]
"""``auto``: those that help; True: every category with many levels; or names of categories, and pairs of names."""
Places = tuple[int, ...]
"""The columns of one category, or of two."""


@dataclass(frozen=True, eq=False)
class TargetEncoding:
    """A number for each level of a category, or for each pair of levels of two."""

    places: Places
    sizes: tuple[int, ...]
    """Levels of each."""
    table: npt.NDArray[np.float32]
    """In single precision, so that rows in either give the same number."""
    shrinkage: float | None
    """k; None where levels do not differ by more than chance, and all numbers are 0."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TargetEncoding)
            and (self.places, self.sizes, self.shrinkage) == (other.places, other.sizes, other.shrinkage)
            and np.array_equal(self.table, other.table)
        )

    __hash__ = None  # type: ignore[assignment]

    def transform(self, X: Any) -> FloatArray:
        """The numbers for rows of codes."""
        return looked_up(self.table, cells(X, self.places, self.sizes))

    def name(self, encoding: Encoding) -> str:
        """The name of the column."""
        return f"mean({', '.join(encoding.names[place] for place in self.places)})"

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it, without the table."""
        return {"columns": list(self.places), "shrinkage": self.shrinkage}

    @classmethod
    def from_plain(cls, encoding: Encoding, value: Any, table: Any) -> Self:
        """What `plain` wrote down, which may be damaged, and its table.

        Raises:
            DataError: in words that finish the sentence "… is inconsistent: …".
        """
        try:
            places, shrinkage = tuple(value["columns"]), value["shrinkage"]
            fits = all(type(place) is int and place in encoding.categories for place in places)
            fits &= list(places) == sorted(set(places)) and len(places) in (1, 2)
            fits &= shrinkage is None or (type(shrinkage) in (int, float) and 0 <= shrinkage < np.inf)
        except (TypeError, KeyError):
            fits = False
        refuse_if(not fits, "the means of levels are not described")
        sizes = tuple(len(encoding.columns[place].levels) for place in places)
        table = np.asarray(table)
        count = int(np.prod(sizes))
        if table.dtype.kind != "f" or table.shape != (count,) or count > MOST_CELLS or not np.isfinite(table).all():
            raise DataError(f"the means of {_named(encoding, places)} are not a finite number for each level")
        return cls(places, sizes, np.ascontiguousarray(table, dtype=np.float32), shrinkage)


def cells(X: Any, places: Places, sizes: Sequence[int]) -> IntArray:
    """The cell of a table for each row of codes; −1 where a level is missing or unknown."""
    return _combined([codes_of(X[:, place], size) for place, size in zip(places, sizes, strict=True)], sizes)


def _combined(codes: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    """The cells of the codes of one category, or of two; −1 where one of them has none."""
    if len(codes) == 1:
        return codes[0]
    first, second = codes
    return np.where((first >= 0) & (second >= 0), first * sizes[1] + second, -1)


def looked_up(table: npt.NDArray[Any], cells: IntArray) -> FloatArray:
    """The numbers of cells; 0 where there is none."""
    return np.append(table.astype(np.float64), 0.0)[cells]


class TargetEncodings(NamedTuple):
    """The tables that a ranker looks up, and how they were found."""

    tables: tuple[TargetEncoding, ...]
    evaluated_on: str
    """In words: ``validation data``, ``folds of the training data``, or ``nothing: they were asked for``."""
    z_scores: dict[str, float]
    """For each candidate by name, how many standard errors its use on queries it has not seen is above 0."""

    def plain(self, encoding: Encoding) -> dict[str, Any]:
        """For the record of a training."""
        used = {_named(encoding, mean.places): mean.shrinkage for mean in self.tables}
        return {"used": used, "evaluated_on": self.evaluated_on, "z_scores": self.z_scores}


# ---- learning ----


class _Levels:
    """The codes and grades of the judged documents of some data."""

    def __init__(self, data: RankingData, encoding: Encoding) -> None:
        self._X, self.encoding = data.X, encoding
        self.queries = data.queries
        self.query, self.n_queries = data.queries.document_query, data.n_queries
        judged = data.judged
        weights = np.ones(data.n_documents) if data.document_weights is None else data.document_weights
        self.weights = np.where(judged, weights, 0.0)
        self.weights *= int(judged.sum()) / (self.weights.sum() or 1.0)  # a judged document counts as one on average
        self.grades = self.centered(np.where(judged, data.labels, 0.0))
        self._codes: dict[int, IntArray] = {}

    def size(self, places: Places) -> int:
        return int(np.prod([len(self.encoding.columns[place].levels) for place in places]))

    def centered(self, values: FloatArray, rows: Any = slice(None)) -> FloatArray:
        """Values of rows, which are those of whole queries, less the mean of their query, by weight."""
        query, weights = self.query[rows], self.weights[rows]
        weight = np.bincount(query, weights, minlength=self.n_queries)
        total = np.bincount(query, weights * values, minlength=self.n_queries)
        means = np.divide(total, weight, out=np.zeros(self.n_queries), where=weight > 0)
        return np.asarray(values - means[query])

    def evidence(self, products: FloatArray) -> float:
        """How many standard errors the mean over queries of products is above 0."""
        weight = np.bincount(self.query, self.weights, minlength=self.n_queries)
        total = np.bincount(self.query, self.weights * products, minlength=self.n_queries)
        means = total[weight > 0] / weight[weight > 0]
        error = float(means.std(ddof=1)) / np.sqrt(len(means)) if len(means) > 1 else 0.0
        return float(means.mean() / error) if error > 0 else 0.0

    def cells(self, places: Places) -> IntArray:
        for place in places:
            if place not in self._codes:
                self._codes[place] = codes_of(self._X[:, place], self.size((place,)))
        return _combined([self._codes[place] for place in places], [self.size((place,)) for place in places])

    def tables(self, asked: Iterable[Places], rows: Any = slice(None)) -> dict[Places, TargetEncoding]:
        """The tables that are asked for, and those of the categories of pairs, from some rows."""
        means: dict[Places, TargetEncoding] = {}
        for places in asked:
            means[places] = self.table(places, means, rows)
        return means

    def table(self, places: Places, known: dict[Places, TargetEncoding], rows: Any) -> TargetEncoding:
        """A table from some rows; `known` are those of categories, from the same rows, and learns new ones."""
        if places not in known:
            left = self.grades[rows]
            for place in places if len(places) > 1 else ():
                left = left - looked_up(self.table((place,), known, rows).table, self.cells((place,))[rows])
            mean = self._table(places, left, rows)
            if len(places) > 1:
                return mean
            known[places] = mean
        return known[places]

    def _table(self, places: Places, values: FloatArray, rows: Any) -> TargetEncoding:
        cells, weights, size = self.cells(places)[rows], self.weights[rows], self.size(places)
        kept = np.flatnonzero((cells >= 0) & (weights > 0))
        cells, weights, values = cells[kept], weights[kept], values[kept]
        n, sums = (
            np.asarray(np.bincount(cells, of, minlength=size), dtype=np.float64) for of in (weights, weights * values)
        )
        k = _shrinkage(n, sums, float(weights @ values**2), len(kept))
        means = np.zeros(size) if k is None else np.divide(sums, n + k, out=np.zeros(size), where=n > 0)
        sizes = tuple(self.size((place,)) for place in places)
        return TargetEncoding(places, sizes, means.astype(np.float32), k)


def _shrinkage(n: FloatArray, sums: FloatArray, squares: float, documents: int) -> float | None:
    """K = σ² / τ², by moments; None where τ² is not above 0, or where no level has two documents."""
    levels = int((n > 0).sum())
    if documents <= levels:
        return None
    between = float(np.divide(sums**2, n, out=np.zeros(len(n)), where=n > 0).sum())
    within = max(squares - between, 0.0) / (documents - levels)  # rounding may leave less than nothing
    excess = (between - levels * within) / n.sum()
    return float(within / excess) if excess > 0 else None


class _Part(NamedTuple):
    """The codes and grades of some rows, for `cross_fit`."""

    levels: _Levels
    rows: Any = slice(None)

    @property
    def queries(self) -> Queries:
        return self.levels.queries

    def select(self, which: npt.ArrayLike) -> _Part:
        """Return the rows of some queries, by a mask."""
        return _Part(self.levels, np.flatnonzero(self.queries.broadcast(which)))


def _division(data: RankingData, seed: int) -> Division:
    """Divide the queries into folds, dealt out in the order of their ids' hashes."""
    turn = np.random.default_rng(seed).integers(1 << 63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    order = np.argsort(id_hashes(data.qids) * turn, kind="stable")
    fold = np.empty(data.n_queries, dtype=np.int64)
    fold[order] = np.arange(data.n_queries) % FOLDS
    return Division.folds(fold)


def out_of_fold(data: RankingData, encoding: Encoding, asked: Sequence[Places], seed: int) -> FloatArray:
    """Return the numbers of the training documents, (documents, tables), each from the folds that it is not in."""
    whole = _Part(_Levels(data, encoding))

    def fit(part: _Part, _: None) -> dict[Places, TargetEncoding]:
        return part.levels.tables(asked, part.rows)

    def encode(tables: dict[Places, TargetEncoding], part: _Part) -> FloatArray:
        columns = [looked_up(tables[places].table, part.levels.cells(places)[part.rows]) for places in asked]
        return np.column_stack(columns)

    return cross_fit(whole, _division(data, seed), fit, encode).out_of_fold(whole)


# ---- choosing ----


def choose_encodings(
    data: RankingData, valid: RankingData | None, encoding: Encoding, asked: EncodedCategories, seed: int
) -> TargetEncodings:
    """The tables that are to be used: those that are asked for, or those that help on queries they have not seen.

    The queries are those of the validation data, else of the inner folds. A table helps where documents with larger
    numbers have higher grades than the others of their query: the mean over queries of the covariance is above 0, by a
    one-sided test at `LEVEL` over all candidates. A pair has to explain what is left of the grades after a regression
    on all that was taken before it, the most telling first.
    """
    if isinstance(asked, str | bool):
        singles, pairs = _candidates(encoding)
    else:
        wanted = [_placed(encoding, wish) for wish in asked]
        return _of(_Levels(data, encoding), wanted, "nothing: they were asked for", {})
    if not singles:
        return TargetEncodings((), "nothing: no category has many levels", {})
    levels = _Levels(data, encoding)
    held_out = None if valid is None or not valid.judged.any() else valid
    if (held_out or data).n_queries < _FEWEST:
        return _of(levels, singles if asked is True else [], f"nothing: there are fewer than {_FEWEST} queries", {})
    judge = _Judge(levels, _division(data, seed) if held_out is None else held_out)
    uses = {places: judge.use(places) for places in singles}
    kept = [places for places in singles if asked is True or uses[places] > _bar(len(singles))]
    kept += judge.pairs_beyond(kept, pairs, uses)
    evaluated_on = "folds of the training data" if held_out is None else "validation data"
    return _of(levels, kept, evaluated_on, {_named(encoding, places): round(use, 3) for places, use in uses.items()})


def _of(levels: _Levels, kept: Sequence[Places], evaluated_on: str, z_scores: dict[str, float]) -> TargetEncodings:
    tables = levels.tables(kept)
    return TargetEncodings(tuple(tables[places] for places in kept), evaluated_on, z_scores)


class _Judge:
    """Judges tables on queries that they were not learned from: those of other data, or of each fold in turn."""

    def __init__(self, levels: _Levels, held_out: RankingData | Division) -> None:
        self._levels = levels
        if isinstance(held_out, Division):
            self._judged, self._sides = levels, 2
            rows = _Part(levels).select
            self._parts: list[tuple[Any, Any, dict[Places, TargetEncoding]]] = [
                (rows(round.held_out).rows, rows(round.train).rows, {}) for round in held_out.rounds
            ]
        else:
            self._judged, self._sides = _Levels(held_out, levels.encoding), 1
            self._parts = [(slice(None), slice(None), {})]

    def column(self, places: Places) -> FloatArray:
        """The number that each document would get."""
        column = np.zeros(len(self._judged.grades))
        for judged, learned, tables in self._parts:
            table = self._levels.table(places, tables, learned)
            column[judged] = looked_up(table.table, self._judged.cells(places)[judged])
        return self._judged.centered(column)

    def use(self, places: Places) -> float:
        """How many standard errors the covariance with the grades is above 0."""
        return self._evidence(self._judged.grades * self.column(places))

    def _evidence(self, products: FloatArray) -> float:
        """Standard errors above 0; between folds, two documents of a level judge each other, which is one product seen
        from two sides: the mean over queries varies by twice what it would if these were two.
        """
        return float(self._judged.evidence(products) / np.sqrt(self._sides))

    def pairs_beyond(self, kept: list[Places], pairs: list[Places], uses: dict[Places, float]) -> list[Places]:
        """Return the pairs that help beyond the tables that are kept; `uses` gets the use of each pair."""
        columns, bar = [self.column(places) for places in kept], _bar(len(pairs))
        left = self._left(columns)
        helping: list[Places] = []
        for pair in pairs:
            uses[pair] = self._evidence(left * self.column(pair))
        helpful = sorted((pair for pair in pairs if uses[pair] > bar), key=lambda pair: -uses[pair])
        for pair in helpful[:_TRIED]:
            column = self.column(pair)
            uses[pair] = self._evidence(left * column)
            if uses[pair] > bar and len(helping) < MOST_PAIRS:
                helping.append(pair)
                columns.append(column)
                left = self._left(columns)
        return helping

    def _left(self, columns: list[FloatArray]) -> FloatArray:
        """The grades less their regression on columns, within queries and by weight."""
        if not columns:
            return self._judged.grades
        weights = self._judged.weights
        gram = np.array([[float(column @ (weights * other)) for other in columns] for column in columns])
        moments = np.array([float(column @ (weights * self._judged.grades)) for column in columns])
        left = self._judged.grades.copy()
        for factor, column in zip(np.linalg.lstsq(gram, moments, rcond=None)[0].tolist(), columns, strict=True):
            left -= factor * column
        return left


def _bar(candidates: int) -> float:
    return NormalDist().inv_cdf(1 - LEVEL / max(candidates, 1))


def _candidates(encoding: Encoding) -> tuple[list[Places], list[Places]]:
    """Categories with many levels, and pairs in which there is one; none whose table would be too large."""
    sizes = {place: len(encoding.columns[place].levels) for place in encoding.categories}
    singles: list[Places] = [(place,) for place, size in sizes.items() if MANY < size <= MOST_CELLS]
    pairs: list[Places] = [
        (first, second)
        for first, second in combinations(sizes, 2)
        if min(sizes[first], sizes[second]) > 1 and max(sizes[first], sizes[second]) > MANY
        if sizes[first] * sizes[second] <= MOST_CELLS
    ]
    return singles, pairs


def _placed(encoding: Encoding, asked: str | Sequence[str]) -> Places:
    """Return the columns of a category, or of a pair, given by name."""
    names = [asked] if isinstance(asked, str) else list(asked)
    known = {encoding.names[place]: place for place in encoding.categories}
    for name in names:
        if name not in known:
            raise UnknownNameError("category for target_encoding", str(name), known)
    places = tuple(sorted({known[name] for name in names}))
    refuse_if(
        len(places) != len(names) or len(places) > 2,
        f"target_encoding takes names of categories, and pairs of two names, not {asked!r}.",
    )
    size = int(np.prod([len(encoding.columns[place].levels) for place in places]))
    if size > MOST_CELLS:
        raise DataError(
            f"The table of {_named(encoding, places)} would have {size:,} cells; a table has {MOST_CELLS:,} at most. "
            "Leave it out of target_encoding."
        )
    return places


def _named(encoding: Encoding, places: Places) -> str:
    return " × ".join(encoding.names[place] for place in places)


def check_categories(asked: Any) -> None:
    """Refuse a `target_encoding`, other than 'auto' or a truth value, that fits no data."""
    pairs = [wish for wish in asked if not isinstance(wish, str)] if _is_list(asked) else []
    refuse_if(
        not _is_list(asked) or not all(_is_list(pair) and len(pair) == 2 for pair in pairs),
        "target_encoding is 'auto', True, False, or a list of categories and pairs of them, such as ['seller', "
        f"('seller', 'kind')], not {asked!r}.",
    )
    if len(pairs) > MOST_PAIRS:
        raise DataError(f"target_encoding takes {MOST_PAIRS} pairs at most, not {len(pairs)}: {listed(pairs[0])} …")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
