"""Target encoding: categories as numbers, by the shrunken mean grade of each level or pair of levels.

Let t be a document's grade minus the mean grade of its query (by document weights), so that t has mean 0 over all
documents. A level with n documents (by weight) whose t sum to s gets

    m(level) = s / (n + k),        k = σ² / τ²,

the posterior mean of its effect if effects have variance τ² around 0, and documents have variance σ² around the effect
of their level. Both are estimated by moments: σ² is the variance within levels, and τ² = (Σ n m̄² − L σ²) / N, with the
unshrunken means m̄, L levels and N documents. Unknown levels and missing values get 0.

A pair of categories encodes the residual of its two categories, t − m(one) − m(other), for example the effect of a
seller in one product category beyond the effects of the seller and of the category.

**A document's own grade never enters its own encoding in training**: there, encodings are out of fold, from the other
four of five folds of queries. In prediction they come from all training data.

The parameter `target_encoding` of rankers selects the categories: ``"auto"`` takes those with more than 128 levels, and
at most ten pairs, if they help on the validation data (without any: on folds of the training data); True takes all
categories with that many levels; False takes none; a list contains names and pairs of names. For a fitted ranker,
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

MANY_LEVELS = 128
"""Categories with more levels have many: trees that sort levels by gradient overfit, and one-hot columns are sparse."""
N_FOLDS = 5
MAX_CELLS = 1_000_000
"""Of a table; 4 MB in a model file."""
MAX_PAIRS = 10
SIGNIFICANCE_LEVEL = 0.05
"""Significance level for accepting any useless table, over all candidates of a kind (Bonferroni)."""
_MAX_TRIED = 20  # pairs, by z score, that are tested in addition to the selected tables
_MIN_QUERIES = 20  # below, the variance between queries cannot be estimated

EncodedCategories = Literal["auto"] | bool | Sequence[str | Sequence[str]]
"""``auto``: those that help; True: every category with many levels; or names of categories and pairs of names."""
Places = tuple[int, ...]
"""The columns of one category, or of two."""


@dataclass(frozen=True, eq=False)
class TargetEncoding:
    """A number for each level of a category, or for each pair of levels of two categories."""

    places: Places
    sizes: tuple[int, ...]
    """Number of levels of each category."""
    table: npt.NDArray[np.float32]
    """In single precision, so that rows of either precision get the same number."""
    shrinkage: float | None
    """k; None if levels do not differ by more than chance, and all numbers are 0."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TargetEncoding)
            and (self.places, self.sizes, self.shrinkage) == (other.places, other.sizes, other.shrinkage)
            and np.array_equal(self.table, other.table)
        )

    __hash__ = None  # type: ignore[assignment]

    def transform(self, X: Any) -> FloatArray:
        """Return the encodings for rows of codes."""
        return looked_up(self.table, cells(X, self.places, self.sizes))

    def name(self, encoding: Encoding) -> str:
        """Return the name of the column."""
        return f"mean({', '.join(encoding.names[place] for place in self.places)})"

    def plain(self) -> dict[str, Any]:
        """Return the description in JSON types, without the table."""
        return {"columns": list(self.places), "shrinkage": self.shrinkage}

    @classmethod
    def from_plain(cls, encoding: Encoding, value: Any, table: Any) -> Self:
        """Read the output of `plain`, which may be damaged, and its table.

        Raises:
            DataError: the message completes the sentence "… is inconsistent: …".
        """
        try:
            places, shrinkage = tuple(value["columns"]), value["shrinkage"]
            fits = all(type(place) is int and place in encoding.categories for place in places)
            fits &= list(places) == sorted(set(places)) and len(places) in (1, 2)
            fits &= shrinkage is None or (type(shrinkage) in (int, float) and 0 <= shrinkage < np.inf)
        except (TypeError, KeyError):
            fits = False
        refuse_if(not fits, "the description of a target encoding is invalid")
        sizes = tuple(len(encoding.columns[place].levels) for place in places)
        table = np.asarray(table)
        count = int(np.prod(sizes))
        if table.dtype.kind != "f" or table.shape != (count,) or count > MAX_CELLS or not np.isfinite(table).all():
            raise DataError(f"the target encoding of {_named(encoding, places)} is not a finite number for each level")
        return cls(places, sizes, np.ascontiguousarray(table, dtype=np.float32), shrinkage)


def cells(X: Any, places: Places, sizes: Sequence[int]) -> IntArray:
    """Return the table cell for each row of codes; −1 for missing or unknown levels."""
    return _combined([codes_of(X[:, place], size) for place, size in zip(places, sizes, strict=True)], sizes)


def _combined(codes: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    """Return the cells for the codes of one category or two; −1 if any code has none."""
    if len(codes) == 1:
        return codes[0]
    first, second = codes
    return np.where((first >= 0) & (second >= 0), first * sizes[1] + second, -1)


def looked_up(table: npt.NDArray[Any], cells: IntArray) -> FloatArray:
    """Return the values of cells; 0 for cell −1."""
    return np.append(table.astype(np.float64), 0.0)[cells]


class TargetEncodings(NamedTuple):
    """The selected tables, and the evidence for their selection."""

    tables: tuple[TargetEncoding, ...]
    evaluated_on: str
    """In words: ``validation data``, ``folds of the training data``, or ``nothing: they were asked for``."""
    z_scores: dict[str, float]
    """For each candidate by name, its benefit on held-out queries in standard errors above 0."""

    def plain(self, encoding: Encoding) -> dict[str, Any]:
        """Return the description for the training provenance."""
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
        self.weights *= int(judged.sum()) / (self.weights.sum() or 1.0)  # judged documents have a mean weight of 1
        self.grades = self.centered(np.where(judged, data.labels, 0.0))
        self._codes: dict[int, IntArray] = {}

    def size(self, places: Places) -> int:
        return int(np.prod([len(self.encoding.columns[place].levels) for place in places]))

    def centered(self, values: FloatArray, rows: Any = slice(None)) -> FloatArray:
        """Subtract the weighted query mean from values of rows, which must form whole queries."""
        query, weights = self.query[rows], self.weights[rows]
        weight = np.bincount(query, weights, minlength=self.n_queries)
        total = np.bincount(query, weights * values, minlength=self.n_queries)
        means = np.divide(total, weight, out=np.zeros(self.n_queries), where=weight > 0)
        return np.asarray(values - means[query])

    def evidence(self, products: FloatArray) -> float:
        """Return the z score of the mean over queries of products."""
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
        """Return the requested tables, including the categories of pairs, estimated on some rows."""
        means: dict[Places, TargetEncoding] = {}
        for places in asked:
            means[places] = self.table(places, means, rows)
        return means

    def table(self, places: Places, known: dict[Places, TargetEncoding], rows: Any) -> TargetEncoding:
        """Return a table estimated on some rows; `known` caches the tables of single categories on the same rows."""
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
    """Return k = σ² / τ², by moments; None if τ² is not positive, or if no level has two documents."""
    levels = int((n > 0).sum())
    if documents <= levels:
        return None
    between = float(np.divide(sums**2, n, out=np.zeros(len(n)), where=n > 0).sum())
    within = max(squares - between, 0.0) / (documents - levels)  # rounding may make it negative
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
    """Divide the queries into folds, in the order of their hashed ids."""
    turn = np.random.default_rng(seed).integers(1 << 63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    order = np.argsort(id_hashes(data.qids) * turn, kind="stable")
    fold = np.empty(data.n_queries, dtype=np.int64)
    fold[order] = np.arange(data.n_queries) % N_FOLDS
    return Division.folds(fold)


def out_of_fold(data: RankingData, encoding: Encoding, asked: Sequence[Places], seed: int) -> FloatArray:
    """Return the out-of-fold encodings of the training documents, (documents, tables)."""
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
    """Return the requested tables, or those that help on held-out queries.

    The held-out queries are the validation data, or else inner folds. A table helps if documents with larger values
    have higher grades than the others of their query: the mean over queries of the covariance is positive, in a
    one-sided test at `SIGNIFICANCE_LEVEL` over all candidates. A pair must explain the residual of the grades after a
    regression on all tables selected before it, in the order of their z scores.
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
    if (held_out or data).n_queries < _MIN_QUERIES:
        return _of(
            levels, singles if asked is True else [], f"nothing: there are fewer than {_MIN_QUERIES} queries", {}
        )
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
    """Evaluates tables on held-out queries, of other data or of each fold."""

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
        """Return the encoding that each document would get."""
        column = np.zeros(len(self._judged.grades))
        for judged, learned, tables in self._parts:
            table = self._levels.table(places, tables, learned)
            column[judged] = looked_up(table.table, self._judged.cells(places)[judged])
        return self._judged.centered(column)

    def use(self, places: Places) -> float:
        """Return the z score of the covariance with the grades."""
        return self._evidence(self._judged.grades * self.column(places))

    def _evidence(self, products: FloatArray) -> float:
        """Return the z score of the mean of products.

        Between folds, two documents of a level are each evaluated by the other, so the same product is counted twice,
        and the variance of the mean over queries doubles.
        """
        return float(self._judged.evidence(products) / np.sqrt(self._sides))

    def pairs_beyond(self, kept: list[Places], pairs: list[Places], uses: dict[Places, float]) -> list[Places]:
        """Return the pairs that help in addition to the kept tables; `uses` receives the z score of each pair."""
        columns, bar = [self.column(places) for places in kept], _bar(len(pairs))
        left = self._left(columns)
        helping: list[Places] = []
        for pair in pairs:
            uses[pair] = self._evidence(left * self.column(pair))
        helpful = sorted((pair for pair in pairs if uses[pair] > bar), key=lambda pair: -uses[pair])
        for pair in helpful[:_MAX_TRIED]:
            column = self.column(pair)
            uses[pair] = self._evidence(left * column)
            if uses[pair] > bar and len(helping) < MAX_PAIRS:
                helping.append(pair)
                columns.append(column)
                left = self._left(columns)
        return helping

    def _left(self, columns: list[FloatArray]) -> FloatArray:
        """Return the residual of the grades after a weighted regression on columns, within queries."""
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
    return NormalDist().inv_cdf(1 - SIGNIFICANCE_LEVEL / max(candidates, 1))


def _candidates(encoding: Encoding) -> tuple[list[Places], list[Places]]:
    """Return categories with many levels, and pairs with such a category, unless their table would be too large."""
    sizes = {place: len(encoding.columns[place].levels) for place in encoding.categories}
    singles: list[Places] = [(place,) for place, size in sizes.items() if MANY_LEVELS < size <= MAX_CELLS]
    pairs: list[Places] = [
        (first, second)
        for first, second in combinations(sizes, 2)
        if min(sizes[first], sizes[second]) > 1 and max(sizes[first], sizes[second]) > MANY_LEVELS
        if sizes[first] * sizes[second] <= MAX_CELLS
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
        f"target_encoding must contain names of categories and pairs of names, not {asked!r}.",
    )
    size = int(np.prod([len(encoding.columns[place].levels) for place in places]))
    if size > MAX_CELLS:
        raise DataError(
            f"The table of {_named(encoding, places)} would have {size:,} cells; the limit is {MAX_CELLS:,}. "
            "Remove it from target_encoding."
        )
    return places


def _named(encoding: Encoding, places: Places) -> str:
    return " × ".join(encoding.names[place] for place in places)


def check_categories(asked: Any) -> None:
    """Refuse a `target_encoding` that is invalid for any data, unless it is 'auto' or a bool."""
    pairs = [wish for wish in asked if not isinstance(wish, str)] if _is_list(asked) else []
    refuse_if(
        not _is_list(asked) or not all(_is_list(pair) and len(pair) == 2 for pair in pairs),
        "target_encoding must be 'auto', True, False, or a list of categories and pairs of categories, such as "
        f"['seller', ('seller', 'kind')], not {asked!r}.",
    )
    if len(pairs) > MAX_PAIRS:
        raise DataError(f"target_encoding supports at most {MAX_PAIRS} pairs, not {len(pairs)}: {listed(pairs[0])} …")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
