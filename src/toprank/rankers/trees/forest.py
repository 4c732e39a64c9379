"""`Forest`: scores from boosted trees by our own kernel (`native/forest.c`), in the bits of LightGBM's `predict`.

It is built once from the text of a model, and LightGBM itself is not needed: every threshold becomes a place in a
sorted list of its feature, and every node some bytes that say which leaves it excludes. Trees of other libraries are
told in the same terms, and how these count by an `Arithmetic`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, each_block
from toprank.data.checks import unshortened
from toprank.errors import DataError
from toprank.rankers.estimator import check_is_fitted
from toprank.rankers.trees.text import ReadTrees, read_trees

__all__ = ["Arithmetic", "Forest", "OfTrees"]

_RANKS = 255  # thresholds of a column at most: ranks among them are bytes
_ROWS = 1 << 11
Array = npt.NDArray[Any]


class Arithmetic(NamedTuple):
    """How a library compares and adds; by default, as LightGBM does."""

    flushed: bool = True
    """Values within 1e-35 of 0 are 0, and (int)x is a category; else nothing below 0 is one, as in XGBoost."""
    single_rows: bool = False
    """Features are rounded to single precision before anything is compared."""
    single_sums: bool = False
    """The sum is rounded to single precision after each tree."""


_OF_LIGHTGBM = Arithmetic()


class _Kernel(NamedTuple):
    """What `kernels.forest_scores` is told of the trees; native/forest.c explains it."""

    columns: IntArray
    cuts: FloatArray
    sets: Array
    trees: IntArray
    planes: IntArray
    entries: Array
    nodes: Array
    values: FloatArray


@dataclass(frozen=True, eq=False)
class Forest:
    """Boosted trees that score rows of features; made by `Forest.of`."""

    n_features: int
    outputs: int
    """Scores of a document: one, or one for each class."""
    n_trees: int
    gains: FloatArray
    """What the splits by each feature lowered the objective by, as LightGBM sums it up."""
    _dense: _Kernel
    _sparse: _Kernel
    """The same where a row holds the used features alone."""
    _slots: Array
    """Where a feature is in such a row; −1: nowhere."""
    arithmetic: Arithmetic

    @classmethod
    def of(cls, text: str) -> Self:
        """The trees of a model's text, which may be forged; DataError where it is not what LightGBM writes."""
        return cls.from_numbers(read_trees(text))

    @classmethod
    def from_numbers(cls, read: ReadTrees, arithmetic: Arithmetic = _OF_LIGHTGBM) -> Self:
        """The trees of a text that was read.

        Where nothing is flushed, a split by category with default_left (decision_type 3) takes NaN for one of its set.
        """
        nodes, n_features = _Nodes(read, arithmetic), len(read.infos)
        dense = nodes.for_kernel()
        used, places = np.unique(dense.columns[:, 0], return_inverse=True)
        slots = np.full(n_features, -1, np.int32)
        slots[used] = np.arange(len(used))
        columns = dense.columns.copy()
        columns[:, 0] = places
        gains = np.zeros(n_features)
        np.add.at(gains, nodes.feature, np.maximum(nodes.joined("split_gain", np.float32), 0.0))
        sparse = dense._replace(columns=columns)
        return cls(n_features, read.outputs, len(read.trees), gains, dense, sparse, slots, arithmetic)

    def predict(self, X: Any, threads: int | None = None) -> FloatArray:
        """What the trees add up to for each row of X: (n,), or (n, outputs) where there are several.

        Args:
            X: an array, or a sparse matrix by rows (CSR), with a column for each feature.
            threads: number of threads; None: every core. Few rows are scored on the caller's own.
        """
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise DataError(f"The trees take rows of {self.n_features} features, not an array of shape {X.shape}.")
        scores = np.empty((X.shape[0], self.outputs))
        score = self._score_dense if isinstance(X, np.ndarray) else self._score_sparse
        if len(scores) <= _ROWS:
            score(X, scores)
        else:
            blocks = [slice(first, first + _ROWS) for first in range(0, len(scores), _ROWS)]
            each_block(lambda rows: score(unshortened(X)[rows], scores[rows]), blocks, threads)
        return scores[:, 0] if self.outputs == 1 else scores

    def contributions(self, X: Any, of: IntArray, against: IntArray, threads: int | None = None) -> FloatArray:
        """What each feature contributes to the score of a row `of` X less that of a row `against` it.

        Exact Shapley values, the mean over the rows `against`: a coalition of features has the first row's values, all
        others the second's, and earns the trees' score. A feature by which no split tells two rows apart gets exactly
        0. One output; X is dense. The result does not depend on the number of threads.

        Source: the interventional algorithm of Lundberg et al. 2020, for a single background row.
        """
        if self.outputs != 1:
            raise DataError("Contributions to one score need trees with one output.")
        n, k = len(of), len(against)
        mutual = np.array_equal(of, against)  # each pair then serves both of its rows
        rows = X[of] if mutual else X[np.concatenate([of, against])]
        if self.arithmetic.single_rows:
            with np.errstate(over="ignore"):
                rows = rows.astype(np.float32)
        rows = np.require(rows, np.float64, ["C", "A"])
        first, second = np.triu_indices(n, 1) if mutual else np.divmod(np.arange(n * k), k)
        pairs = np.column_stack([first, second if mutual else n + second]).astype(np.int64)

        def work(start: int) -> FloatArray:
            found = np.zeros((len(rows), self.n_features))
            flushed = int(self.arithmetic.flushed)
            kernels.forest_contributions(rows, flushed, *self._dense, pairs[start : start + each], found)
            return found

        each = max(512, 4 * len(rows))  # enough to repay the ranks, which every call finds anew
        total = np.zeros((len(rows), self.n_features))
        for found in each_block(work, range(0, len(pairs), each), threads):
            total += found
        return total[:n] / k

    def thresholds(self, feature: int) -> FloatArray:
        """The values of a feature, in rising order, just above which scores may change; between them they do not."""
        columns = self._dense.columns
        ours = columns[(columns[:, 0] == feature) & (columns[:, 1] < kernels.ColumnKind.CATEGORIES)]
        cuts = [self._dense.cuts[begin : begin + count] for begin, count in ours[:, 3:].tolist()]
        return np.unique(np.concatenate([np.zeros(0), *cuts]))

    @property
    def categories(self) -> frozenset[int]:
        """The features that are split by sets of categories."""
        columns = self._dense.columns
        return frozenset(columns[columns[:, 1] >= kernels.ColumnKind.CATEGORIES, 0].tolist())

    def _score_dense(self, X: Array, scores: FloatArray) -> None:
        kind = np.float32 if X.dtype == np.float32 or self.arithmetic.single_rows else np.float64
        with np.errstate(over="ignore"):  # what is too large for single precision is infinite there, too
            rows = np.require(X, kind, ["C", "A"])
        kernels.forest_scores(rows, self._rules(self.arithmetic.flushed), *self._dense, scores)

    def _rules(self, flushed: bool) -> int:
        """The rules of native/forest.c."""
        rules = kernels.ForestRule
        return flushed * int(rules.FLUSHED) + self.arithmetic.single_sums * int(rules.SINGLE)

    def _score_sparse(self, X: Any, scores: FloatArray) -> None:
        rows = np.empty((X.shape[0], int(self._slots.max(initial=-1)) + 1))
        offsets, indices = X.indptr.astype(np.int64), X.indices.astype(np.int64)
        with np.errstate(over="ignore"):
            values = X.data.astype(np.float32) if self.arithmetic.single_rows else X.data
        kernels.rows_of_sparse(offsets, indices, values.astype(np.float64), self._slots, rows)
        kernels.forest_scores(rows, self._rules(False), *self._sparse, scores)


class _Nodes:
    """The inner nodes of all trees, one after the other."""

    def __init__(self, read: ReadTrees, arithmetic: Arithmetic) -> None:
        self._trees, self._flushed = read.trees, arithmetic.flushed
        leaves = np.array([len(tree["leaf_value"]) for tree in read.trees])
        self._n_leaves, n_nodes = leaves, int((leaves - 1).sum())
        self._first_node = _starts(leaves - 1)
        self._tree = np.repeat(np.arange(len(leaves)), leaves - 1)
        self.feature = self.joined("split_feature", np.int64)
        # What the kernel finds out about a node: its first leaf, how many leaves of its smaller child follow, whether
        # that is the right one, and both children; and where each leaf is.
        self._begin, self._count = np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int32)
        self._swapped, self._next = np.empty(n_nodes, np.uint8), np.empty((n_nodes, 2), np.int32)
        self._place = np.empty(int(leaves.sum()), np.int32)
        found = (self._begin, self._count, self._swapped, self._next, self._place)
        sides = (self.joined(name, np.int32) for name in ("left_child", "right_child"))
        kernels.forest_layout(self._first_node, _starts(leaves), *sides, *found)

    def joined(self, name: str, kind: type[np.generic]) -> Array:
        """A line of all trees, one after the other."""
        return np.concatenate([tree[name] for tree in self._trees if name in tree] or [np.zeros(0)]).astype(kind)

    def for_kernel(self) -> _Kernel:
        """All that the scores depend on."""
        column, rank, columns, cuts, sets = self._columns()
        tree_planes = _starts((self._n_leaves + 7) // 8)
        planes, entries = self._entries(tree_planes, column, rank)
        values = np.zeros(8 * int(tree_planes[-1]))
        values[8 * np.repeat(tree_planes[:-1], self._n_leaves) + self._place] = self.joined("leaf_value", np.float64)
        nodes = np.column_stack([column, rank, self._next]).astype(np.int32)
        trees = np.column_stack([tree_planes, self._first_node])
        return _Kernel(columns, cuts, sets, trees, planes, entries, nodes, values)

    def _columns(self) -> tuple[IntArray, IntArray, IntArray, FloatArray, Array]:
        """The column and rank of each node; then the columns, their thresholds, and their sets of categories.

        The thresholds of a feature make runs of at most 255, and each split by category is a run of its own; a run has
        a column for each kind and side that occurs.
        """
        threshold, decision = self.joined("threshold", np.float64), self.joined("decision_type", np.int64)
        by_category, default_left, missing = decision % 2 == 1, decision // 2 % 2, decision // 4
        kinds = kernels.ColumnKind
        of_sets = kinds.CATEGORIES if self._flushed else kinds.CATEGORIES_FROM_0 + default_left
        of_numbers = np.where(missing == 0, kinds.NO_MISSING, kinds.ZERO_RIGHT + 2 * (missing - 1) - default_left)
        kind = np.where(by_category, of_sets, of_numbers)
        own = np.where(by_category, np.arange(len(kind)), -1)
        order = np.lexsort((threshold, own, self.feature))
        new_list = _changes(self.feature[order]) | _changes(own[order])
        new_cut = new_list | _changes(threshold[order])
        cut = np.cumsum(new_cut) - 1
        within = cut - np.maximum.accumulate(np.where(new_list, cut, 0))
        new_run = new_cut & (within % _RANKS == 0)
        run, rank = np.empty_like(order), np.empty_like(order)
        run[order], rank[order] = np.cumsum(new_run) - 1, within % _RANKS
        _, heads, column = np.unique((run * 8 + kind) * 2 + self._swapped, return_index=True, return_inverse=True)
        begin = cut[new_run]
        count = np.diff(np.append(begin, new_cut.sum()))
        parts = (self.feature[heads], kind[heads], self._swapped[heads], begin[run[heads]], count[run[heads]])
        columns = np.column_stack(parts).astype(np.int64)
        sets = self._point_to_sets(columns, heads, threshold)
        # In a swapped column ranks are complements: those up to r, and no others, are above 126 − r.
        return column, np.where(self._swapped, 126 - rank, rank - 128), columns, threshold[order][new_cut], sets

    def _point_to_sets(self, columns: IntArray, heads: IntArray, threshold: FloatArray) -> Array:
        """Write into the columns of categories which words are their set; gives the words of all trees."""
        first = _starts(np.array([len(tree.get("cat_threshold", ())) for tree in self._trees]))
        for column in np.flatnonzero(columns[:, 1] >= kernels.ColumnKind.CATEGORIES).tolist():
            node = heads[column]
            tree, number = self._tree[node], int(threshold[node])
            begin, end = self._trees[tree]["cat_boundaries"][number : number + 2]
            columns[column, 3:] = first[tree] + begin, end - begin
        return self.joined("cat_threshold", np.uint32)

    def _entries(self, tree_planes: IntArray, column: IntArray, rank: IntArray) -> tuple[IntArray, Array]:
        """For each plane of eight leaves the nodes that exclude some of them: the first of each plane, and all."""
        begin, end = self._begin.astype(np.int64), self._begin + self._count.astype(np.int64)
        spans = (end - 1) // 8 - begin // 8 + 1
        node = np.repeat(np.arange(len(begin)), spans)
        plane = begin[node] // 8 + np.arange(len(node)) - np.repeat(_starts(spans)[:-1], spans)
        low, high = np.maximum(begin[node] - 8 * plane, 0), np.minimum(end[node] - 8 * plane, 8)
        leaves = (1 << high) - (1 << low)
        plane += tree_planes[self._tree[node]]
        order = np.argsort(plane, kind="stable")
        entries = np.empty((len(node), 6), np.uint8)
        entries[:, :4] = column[node[order]].astype(np.int32)[:, None].view(np.uint8)
        entries[:, 4], entries[:, 5] = rank[node[order]].astype(np.int8).view(np.uint8), leaves[order]
        return _starts(np.bincount(plane, minlength=int(tree_planes[-1]))), entries


def _starts(counts: Array) -> IntArray:
    """Where each begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _changes(key: Array) -> npt.NDArray[np.bool_]:
    """Where a key differs from the one before; the first does."""
    return np.append(True, key[1:] != key[:-1])[: len(key)]


class OfTrees:
    """What rankers that are a forest share; their `_trees` make it when it is first asked for."""

    shows_infinity: ClassVar[bool] = False
    n_features_in_: int

    @property
    def forest_(self) -> Forest:
        """The trees as they score; of a model that was trained they are made when they are first asked for."""
        check_is_fitted(self)
        forest: Forest = self._trees.forest  # type: ignore[attr-defined]
        return forest

    def _prediction_rows(self, X: Any) -> Any:
        """Plain arrays of the right shape need no further look: in a small query it would take a share of the time.

        Trees know no numbers, only their order, so an infinite value does no harm here; elsewhere it is refused.
        """
        known = vars(getattr(self, "as_fitted", self))
        bare = "_trees" in known and "feature_names_in_" not in known and type(X) is np.ndarray
        if bare and X.ndim == 2 and X.dtype.char in "fd" and X.shape[1] == self.n_features_in_ and len(X) > 0:
            return X
        return super()._prediction_rows(X)  # type: ignore[misc]
