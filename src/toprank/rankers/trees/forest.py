"""`Forest`: boosted trees as flat arrays, scored by our own kernel with the bits of LightGBM's `predict`.

This is the only representation of trees: they are read from text (`text`), built by readers of other libraries' files,
scored, explained and exported, without LightGBM.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, each_block, offsets_of, row_parts, unshortened
from toprank.data.queries import positions_within
from toprank.errors import DataError

_ROWS_PER_BLOCK = 1 << 11
_MAX_RANKS = 255  # thresholds of a column, so that ranks fit in a byte
Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
MISSING_NONE, MISSING_ZERO, MISSING_NAN = 0, 1, 2
"""LightGBM's missing types. With the first, NaN is 0; with the second, NaN and zeros go in the default direction; with
the third, only NaN does.
"""
TINY = float(np.float32(1e-35))
"""LightGBM treats values up to this distance from zero as zero."""
BELOW_TINY = float(np.nextafter(-TINY, -np.inf))
"""The largest number that LightGBM treats as negative."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree in LightGBM's representation: node 0 is the root, children n ≥ 0 are inner nodes, and −1, −2 … are leaves
    0, 1 …

    A document goes left if x <= threshold (in double precision), or if (int)x is one of the node's categories.
    """

    feature: IntArray
    threshold: FloatArray
    default_left: BoolArray
    missing: IntArray
    """The missing type of each node: MISSING_NONE, MISSING_ZERO or MISSING_NAN."""
    categories: tuple[IntArray | None, ...]
    """For each node, the categories that go left; None for splits by threshold."""
    left: IntArray
    right: IntArray
    values: FloatArray
    """The value of each leaf."""
    gains: FloatArray
    """The loss reduction of each split; 0 if unknown."""

    @classmethod
    def constant(cls, value: float) -> Self:
        """Return a tree with a single leaf."""
        none = np.zeros(0, np.int64)
        return cls(
            feature=none,
            threshold=np.zeros(0),
            default_left=none == 0,
            missing=none,
            categories=(),
            left=none,
            right=none,
            values=np.array([value]),
            gains=np.zeros(0),
        )

    @property
    def depth(self) -> int:
        """Number of levels of inner nodes."""
        level, depth = np.zeros(min(1, len(self.feature)), np.int64), 0
        while len(level):
            below = np.concatenate([self.left[level], self.right[level]])
            level, depth = below[below >= 0], depth + 1
        return depth

    @property
    def nan_left(self) -> BoolArray:
        """True if a missing value (NaN) goes left at each node."""
        by_category = np.array([wanted is not None for wanted in self.categories], dtype=bool)
        as_zero = self.threshold >= 0.0
        return np.where(by_category, False, np.where(self.missing == MISSING_NONE, as_zero, self.default_left))


class PackedTrees(NamedTuple):
    """The trees in the layout of `kernels.forest_scores`, documented in native/forest.c."""

    columns: IntArray
    cuts: FloatArray
    sets: Array
    trees: IntArray
    planes: IntArray
    entries: Array
    nodes: Array
    values: FloatArray

    def for_used_features(self, n_features: int) -> tuple[PackedTrees, Array]:
        """Return the trees for rows with only the used features, and the index of each feature in these (−1 if
        unused).
        """
        used, places = np.unique(self.columns[:, 0], return_inverse=True)
        slots = np.full(n_features, -1, np.int32)
        slots[used] = np.arange(len(used))
        columns = self.columns.copy()
        columns[:, 0] = places
        return self._replace(columns=columns), slots


class TrainingFacts(NamedTuple):
    """Further contents of LightGBM's text, which do not affect scores and are written back unchanged."""

    objective: str | None
    directions: list[int] | None
    infos: list[str]
    """The value range of each feature."""
    numbers: Mapping[str, Array]
    """Values of nodes, leaves and trees, by their names in the text."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Boosted trees in sequence; output k of a document is intercepts[k] + Σ of the trees k, k + outputs …

    Nodes and leaves are numbered within their tree, as in a `Tree`.
    """

    n_features: int
    n_leaves: IntArray
    """Number of leaves of each tree, one more than its nodes."""
    feature: IntArray
    threshold: FloatArray
    default_left: BoolArray
    missing: IntArray
    set_size: IntArray
    """Number of `words` in the category set of each node; 0 for splits by threshold."""
    left: IntArray
    right: IntArray
    gains: FloatArray
    values: FloatArray
    words: npt.NDArray[np.uint32]
    """The category sets, one bit per category."""
    intercepts: FloatArray
    flushes: bool = True
    """Whether values within 1e-35 of 0 are 0 and (int)x is a category, as in LightGBM. Otherwise negative values are no
    category, and NaN is in the set of nodes with default_left, as in XGBoost.
    """
    single_rows: bool = False
    """Whether features are rounded to single precision before comparisons."""
    single_sums: bool = False
    """Whether the sum is rounded to single precision after each tree, as in XGBoost and RankLib."""
    facts: TrainingFacts | None = None

    @classmethod
    def from_trees(cls, trees: Sequence[Tree], n_features: int, intercepts: FloatArray, **rules: Any) -> Self:
        """Combine single trees into a forest."""

        def joined(name: str, kind: type[np.generic]) -> Array:
            return np.concatenate([getattr(tree, name) for tree in trees] or [[]]).astype(kind)

        sets = [_words(wanted) for tree in trees for wanted in tree.categories]
        return cls(
            n_features=n_features,
            n_leaves=np.array([len(tree.values) for tree in trees], np.int64),
            feature=joined("feature", np.int64),
            threshold=joined("threshold", np.float64),
            default_left=joined("default_left", np.bool_),
            missing=joined("missing", np.int64),
            set_size=np.array([len(words) for words in sets], np.int64),
            left=joined("left", np.int64),
            right=joined("right", np.int64),
            gains=joined("gains", np.float64),
            values=joined("values", np.float64),
            words=np.concatenate([np.zeros(0, np.uint32), *sets]),
            intercepts=intercepts,
            **rules,
        )

    @cached_property
    def trees(self) -> tuple[Tree, ...]:
        """The single trees."""
        leaf_ends = np.cumsum(self.n_leaves)
        of_nodes, of_leaves = (leaf_ends - np.arange(1, len(leaf_ends) + 1))[:-1], leaf_ends[:-1]
        first = np.cumsum(self.set_size) - self.set_size
        sets: list[IntArray | None] = [None] * len(self.feature)
        for node in np.flatnonzero(self.set_size).tolist():
            words = self.words[first[node] : first[node] + self.set_size[node]].astype("<u4")
            sets[node] = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        names = ("feature", "threshold", "default_left", "missing", "left", "right", "gains")
        parts = {name: np.split(getattr(self, name), of_nodes) for name in names}
        parts["values"] = np.split(self.values, of_leaves)
        ends = [0, *of_nodes.tolist(), len(sets)]
        return tuple(
            Tree(categories=tuple(sets[ends[n] : ends[n + 1]]), **{name: part[n] for name, part in parts.items()})
            for n in range(len(self.n_leaves))
        )

    @property
    def outputs(self) -> int:
        """Number of outputs per document: one, or one for each class."""
        return len(self.intercepts)

    @property
    def by_category(self) -> bool:
        """True if any node splits by category."""
        return bool(self.set_size.any())

    @property
    def categories(self) -> frozenset[int]:
        """The features that are split by sets of categories."""
        return frozenset(self.feature[self.set_size > 0].tolist())

    def features_and_sets(self) -> Iterator[tuple[int, IntArray | None]]:
        """Yield the feature of every split, and the categories that go left; None for a split by threshold."""
        for tree in self.trees:
            yield from zip(tree.feature.tolist(), tree.categories, strict=True)

    @property
    def feature_gains(self) -> FloatArray:
        """The total loss reduction of the splits by each feature, summed in single precision as in LightGBM."""
        gains = np.zeros(self.n_features)
        np.add.at(gains, self.feature, np.maximum(self.gains.astype(np.float32), 0.0))
        return gains

    def thresholds(self, feature: int) -> FloatArray:
        """Return the values of a feature, in ascending order, just above which scores may change."""
        return np.unique(self.threshold[(self.feature == feature) & (self.set_size == 0)])

    def unflushed(self) -> Forest:
        """Return equal trees for unflushed values: thresholds within ±1e-35 of zero move to the ends of that range."""
        if not self.flushes:
            return self
        t = self.threshold
        return replace(self, threshold=np.select([np.abs(t) > TINY, t >= 0.0], [t, TINY], BELOW_TINY), flushes=False)

    @cached_property
    def packed(self) -> PackedTrees:
        """The trees in the layout of the kernel."""
        return _Packing(self).trees()

    @cached_property
    def _has_intercept(self) -> bool:  # cached, because computing it takes 5 % of the time of a small query
        return bool(self.intercepts.any())

    @cached_property
    def _packed_sparse(self) -> tuple[PackedTrees, Array]:
        return self.packed.for_used_features(self.n_features)

    def predict(self, X: Any, threads: int | None = None) -> FloatArray:
        """Return the scores of the rows of X, (n,), or (n, outputs) for several outputs.

        Args:
            X: an array or CSR matrix with a column for each feature.
            threads: number of threads; None for all cores. Few rows are scored on the calling thread.
        """
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise DataError(f"The trees need rows of {self.n_features} features, not an array of shape {X.shape}.")
        scores = np.empty((X.shape[0], self.outputs))
        score = self._score_dense if isinstance(X, np.ndarray) else self._score_sparse
        if len(scores) <= _ROWS_PER_BLOCK:
            score(X, scores)
        else:
            blocks = row_parts(slice(0, len(scores)), _ROWS_PER_BLOCK)
            each_block(lambda rows: score(unshortened(X)[rows], scores[rows]), blocks, threads)
        if self._has_intercept:
            scores += self.intercepts
        return scores[:, 0] if self.outputs == 1 else scores

    def contributions(self, X: Any, of: IntArray, against: IntArray, threads: int | None = None) -> FloatArray:
        """Return the contribution of each feature to the score difference of a row `of` X and a row `against` it.

        Exact Shapley values, averaged over the rows `against`: a coalition of features has the first row's values, all
        others the second's, and its value is the score of the trees. A feature whose splits do not separate two rows
        gets exactly 0. Needs one output and dense X. The result does not depend on the number of threads.

        Source: the interventional algorithm of Lundberg et al. 2020, for a single background row.
        """
        if self.outputs != 1:
            raise DataError("Contributions need trees with one output.")
        n, k = len(of), len(against)
        mutual = np.array_equal(of, against)  # each pair then serves both rows
        rows = X[of] if mutual else X[np.concatenate([of, against])]
        if self.single_rows:
            with np.errstate(over="ignore"):
                rows = rows.astype(np.float32)
        rows = np.require(rows, np.float64, ["C", "A"])
        first, second = np.triu_indices(n, 1) if mutual else np.divmod(np.arange(n * k), k)
        pairs = np.column_stack([first, second if mutual else n + second]).astype(np.int64)

        def work(start: int) -> FloatArray:
            part = np.zeros((len(rows), self.n_features))
            flushed = int(self.flushes)
            kernels.forest_contributions(rows, flushed, *self.packed, pairs[start : start + each], part)
            return part

        each = max(512, 4 * len(rows))  # large enough to amortize the ranks, which each call computes
        total = np.zeros((len(rows), self.n_features))
        for part in each_block(work, range(0, len(pairs), each), threads):
            total += part
        return total[:n] / k

    def _score_dense(self, X: Array, scores: FloatArray) -> None:
        kind = np.float32 if X.dtype == np.float32 or self.single_rows else np.float64
        with np.errstate(over="ignore"):  # values too large for single precision become infinite
            rows = np.require(X, kind, ["C", "A"])
        kernels.forest_scores(rows, self._rules(self.flushes), *self.packed, scores)

    def _rules(self, flushed: bool) -> int:
        """Return the rule flags of native/forest.c."""
        rules = kernels.ForestRule
        return flushed * int(rules.FLUSHED) + self.single_sums * int(rules.SINGLE)

    def _score_sparse(self, X: Any, scores: FloatArray) -> None:
        trees, slots = self._packed_sparse
        rows = np.empty((X.shape[0], int(slots.max(initial=-1)) + 1))
        offsets, indices = X.indptr.astype(np.int64), X.indices.astype(np.int64)
        with np.errstate(over="ignore"):
            values = X.data.astype(np.float32) if self.single_rows else X.data
        kernels.rows_of_sparse(offsets, indices, values.astype(np.float64), slots, rows)
        kernels.forest_scores(rows, self._rules(False), *trees, scores)


def words_of(categories: IntArray) -> int:
    """Return the number of 32-bit words of a set of categories."""
    return int(categories.max(initial=0)) // 32 + 1


def _words(categories: IntArray | None) -> npt.NDArray[np.uint32]:
    """Return a set of categories as bits: no words for None, and at least one for a set."""
    if categories is None:
        return np.zeros(0, np.uint32)
    words = np.zeros(words_of(categories), np.uint32)
    np.bitwise_or.at(words, categories // 32, np.left_shift(np.uint32(1), (categories % 32).astype(np.uint32)))
    return words


class _Packing:
    """The inner nodes of all trees in the layout of `native/forest.c`: comparisons, and the leaves that they exclude.

    Each threshold becomes an index into a sorted list of its feature, and each node a few bytes for the leaves it
    excludes.
    """

    def __init__(self, forest: Forest) -> None:
        self._forest, leaves = forest, forest.n_leaves
        n_nodes = len(forest.feature)
        self._first_node, self._tree = offsets_of(leaves - 1), np.repeat(np.arange(len(leaves)), leaves - 1)
        # Computed by the kernel for each node: the first leaf of its smaller child, the number of leaves of that child,
        # whether it is the right child, and both children; and the position of each leaf.
        self._begin, self._count = np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int32)
        self._swapped, self._next = np.empty(n_nodes, np.uint8), np.empty((n_nodes, 2), np.int32)
        self._place = np.empty(len(forest.values), np.int32)
        results = (self._begin, self._count, self._swapped, self._next, self._place)
        sides = (forest.left.astype(np.int32), forest.right.astype(np.int32))
        kernels.forest_layout(self._first_node, offsets_of(leaves), *sides, *results)

    def trees(self) -> PackedTrees:
        column, rank, columns, cuts = self._columns()
        leaves = self._forest.n_leaves
        tree_planes = offsets_of((leaves + 7) // 8)
        planes, entries = self._entries(tree_planes, column, rank)
        values = np.zeros(8 * int(tree_planes[-1]))
        values[8 * np.repeat(tree_planes[:-1], leaves) + self._place] = self._forest.values
        nodes = np.column_stack([column, rank, self._next]).astype(np.int32)
        trees = np.column_stack([tree_planes, self._first_node])
        return PackedTrees(
            columns=columns,
            cuts=cuts,
            sets=self._forest.words,
            trees=trees,
            planes=planes,
            entries=entries,
            nodes=nodes,
            values=values,
        )

    def _columns(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Return the column and rank of each node, and the columns and their thresholds.

        The thresholds of a feature form runs of at most 255, and each split by category is a run of its own. A run has
        a column for each kind and side that occurs.
        """
        forest = self._forest
        threshold, feature, missing, by_category = forest.threshold, forest.feature, forest.missing, forest.set_size > 0
        default_left = forest.default_left.astype(np.int64)
        kinds = kernels.ColumnKind
        of_sets = kinds.CATEGORIES if forest.flushes else kinds.CATEGORIES_FROM_0 + default_left
        of_numbers = np.where(missing == 0, kinds.NO_MISSING, kinds.ZERO_RIGHT + 2 * (missing - 1) - default_left)
        kind = np.where(by_category, of_sets, of_numbers)
        own = np.where(by_category, np.arange(len(kind)), -1)
        order = np.lexsort((threshold, own, feature))
        new_list = _changes(feature[order]) | _changes(own[order])
        new_cut = new_list | _changes(threshold[order])
        cut = np.cumsum(new_cut) - 1
        within = cut - np.maximum.accumulate(np.where(new_list, cut, 0))
        new_run = new_cut & (within % _MAX_RANKS == 0)
        run, rank = np.empty_like(order), np.empty_like(order)
        run[order], rank[order] = np.cumsum(new_run) - 1, within % _MAX_RANKS
        _, heads, column = np.unique((run * 8 + kind) * 2 + self._swapped, return_index=True, return_inverse=True)
        begin = cut[new_run]
        count = np.diff(np.append(begin, new_cut.sum()))
        parts = (feature[heads], kind[heads], self._swapped[heads], begin[run[heads]], count[run[heads]])
        columns = np.column_stack(parts).astype(np.int64)
        by_set = columns[:, 1] >= kinds.CATEGORIES  # these contain the words of their set instead
        columns[by_set, 3] = offsets_of(forest.set_size)[heads[by_set]]
        columns[by_set, 4] = forest.set_size[heads[by_set]]
        # In a swapped column ranks are complemented: exactly the ranks up to r are above 126 − r.
        return column, np.where(self._swapped, 126 - rank, rank - 128), columns, threshold[order][new_cut]

    def _entries(self, tree_planes: IntArray, column: IntArray, rank: IntArray) -> tuple[IntArray, Array]:
        """Return the first node of each plane of eight leaves, and the nodes that exclude leaves of a plane."""
        begin, end = self._begin.astype(np.int64), self._begin + self._count.astype(np.int64)
        spans = (end - 1) // 8 - begin // 8 + 1
        node = np.repeat(np.arange(len(begin)), spans)
        plane = begin[node] // 8 + positions_within(spans)
        low, high = np.maximum(begin[node] - 8 * plane, 0), np.minimum(end[node] - 8 * plane, 8)
        leaves = (1 << high) - (1 << low)
        plane += tree_planes[self._tree[node]]
        order = np.argsort(plane, kind="stable")
        entries = np.empty((len(node), 6), np.uint8)
        entries[:, :4] = column[node[order]].astype(np.int32)[:, None].view(np.uint8)
        entries[:, 4], entries[:, 5] = rank[node[order]].astype(np.int8).view(np.uint8), leaves[order]
        return offsets_of(np.bincount(plane, minlength=int(tree_planes[-1]))), entries


def _changes(key: Array) -> npt.NDArray[np.bool_]:
    """Return where a key differs from the previous one; true for the first."""
    return np.append(True, key[1:] != key[:-1])[: len(key)]


class ForestMixin:
    """Mixin for rankers that score with a forest."""

    propagates_infinity: ClassVar[bool] = False
    n_features_in_: int

    @property
    @abstractmethod
    def forest_(self) -> Forest:
        """The trees used for scoring."""

    def _prediction_rows(self, X: Any) -> Any:
        """Return plain arrays of the right shape unchanged, because checks would dominate the time of a small query.

        Trees compare values only by order, so infinite values are accepted.
        """
        attributes = vars(getattr(self, "as_fitted", self))
        bare = "n_features_in_" in attributes and attributes.get("columns_") is None and type(X) is np.ndarray
        if bare and X.ndim == 2 and X.dtype.char in "fd" and X.shape[1] == self.n_features_in_ and len(X) > 0:
            return X
        return super()._prediction_rows(X)  # type: ignore[misc]
