"""`Forest`: boosted trees as flat arrays, and their scores by our own kernel, in the bits of LightGBM's `predict`.

This is the one form of trees here: read from text (`text`), put together by readers of other libraries' files, scored,
explained, and written down by exports. LightGBM itself is not needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, each_block
from toprank.data.checks import unshortened
from toprank.errors import DataError
from toprank.rankers.trees.packing import PackedTrees, packed

__all__ = [
    "BELOW_TINY", "MISSING_NAN", "MISSING_NONE", "MISSING_ZERO", "TINY", "Forest", "OfTrees", "TrainingFacts", "Tree",
]  # fmt: skip

_ROWS = 1 << 11
Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
MISSING_NONE, MISSING_ZERO, MISSING_NAN = 0, 1, 2
"""LightGBM's missing types. NaN is 0 at a node of the first; NaN and zeros take the default side at one of the second;
NaN takes it at one of the third."""
TINY = float(np.float32(1e-35))
"""LightGBM takes what is at most this far from zero for zero."""
BELOW_TINY = float(np.nextafter(-TINY, -np.inf))
"""The largest number that it takes for less than zero."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree in LightGBM's terms: node 0 is the root, a child n ≥ 0 is an inner node, −1, −2 … are the leaves 0, 1 …

    A document goes left where x <= threshold (in double precision), or where (int)x is one of the node's categories.
    """

    feature: IntArray
    threshold: FloatArray
    default_left: BoolArray
    missing: IntArray
    """Of each node: MISSING_NONE, MISSING_ZERO or MISSING_NAN; see there."""
    categories: tuple[IntArray | None, ...]
    """Of each node: the categories that go left; None where it compares."""
    left: IntArray
    right: IntArray
    values: FloatArray
    """Of each leaf."""
    gains: FloatArray
    """Of each node, what the split lowered the objective by; 0 where that is not known."""

    @classmethod
    def constant(cls, value: float) -> Self:
        """A tree that is one leaf."""
        none = np.zeros(0, np.int64)
        return cls(none, np.zeros(0), none == 0, none, (), none, none, np.array([value]), np.zeros(0))

    @property
    def depth(self) -> int:
        """Levels of inner nodes."""
        level, depth = np.zeros(min(1, len(self.feature)), np.int64), 0
        while len(level):
            below = np.concatenate([self.left[level], self.right[level]])
            level, depth = below[below >= 0], depth + 1
        return depth

    @property
    def nan_left(self) -> BoolArray:
        """Whether a missing value (NaN) goes left at each node."""
        by_category = np.array([wanted is not None for wanted in self.categories], dtype=bool)
        as_zero = self.threshold >= 0.0
        return np.where(by_category, False, np.where(self.missing == MISSING_NONE, as_zero, self.default_left))


class TrainingFacts(NamedTuple):
    """What a text of LightGBM's tells besides, on which no score depends; the same text is written again with it."""

    objective: str | None
    directions: list[int] | None
    infos: list[str]
    """Of each feature, the range of its values."""
    numbers: Mapping[str, Array]
    """Of nodes, leaves and trees, by their names in the text."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Boosted trees, one behind the other; of document x, output k is intercepts[k] + Σ of the trees k, k + outputs …

    Nodes and leaves are numbered within their tree, and their numbers mean what they mean in a `Tree`.
    """

    n_features: int
    n_leaves: IntArray
    """Of each tree; it has one node less."""
    feature: IntArray
    threshold: FloatArray
    default_left: BoolArray
    missing: IntArray
    set_size: IntArray
    """Of each node, how many of the `words` are its set of categories; 0: it compares."""
    left: IntArray
    right: IntArray
    gains: FloatArray
    values: FloatArray
    words: npt.NDArray[np.uint32]
    """The sets of categories, a bit each."""
    intercepts: FloatArray
    flushes: bool = True
    """Values within 1e-35 of 0 are 0, and (int)x is a category, as LightGBM has it. Else nothing below 0 is a category,
    and a node with default_left takes NaN for one of its set, as XGBoost has it."""
    single_rows: bool = False
    """Whether features are rounded to single precision before anything is compared."""
    single_sums: bool = False
    """Whether the sum is rounded to single precision after each tree, as XGBoost and RankLib have it."""
    facts: TrainingFacts | None = None

    @classmethod
    def of(cls, trees: Sequence[Tree], n_features: int, intercepts: FloatArray, **rules: Any) -> Self:
        """Single trees as a forest."""

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
        """How many numbers a document gets: one, or one for each class."""
        return len(self.intercepts)

    @property
    def by_category(self) -> bool:
        """Whether a node asks for categories."""
        return bool(self.set_size.any())

    @property
    def categories(self) -> frozenset[int]:
        """The features that are split by sets of categories."""
        return frozenset(self.feature[self.set_size > 0].tolist())

    @property
    def feature_gains(self) -> FloatArray:
        """What the splits by each feature lowered the objective by, as LightGBM sums it up: in single precision."""
        gains = np.zeros(self.n_features)
        np.add.at(gains, self.feature, np.maximum(self.gains.astype(np.float32), 0.0))
        return gains

    def thresholds(self, feature: int) -> FloatArray:
        """The values of a feature, in rising order, just above which scores may change; between them they do not."""
        return np.unique(self.threshold[(self.feature == feature) & (self.set_size == 0)])

    def unflushed(self) -> Forest:
        """The same for values as they are: a threshold within ±1e-35 of zero moves to the end of that range."""
        if not self.flushes:
            return self
        t = self.threshold
        return replace(self, threshold=np.select([np.abs(t) > TINY, t >= 0.0], [t, TINY], BELOW_TINY), flushes=False)

    @cached_property
    def packed(self) -> PackedTrees:
        """The trees as the kernel takes them."""
        return packed(self)

    @cached_property
    def _starts_elsewhere(self) -> bool:  # kept: asking took 0.8 of the 18 µs of a query of 20 documents
        return bool(self.intercepts.any())

    @cached_property
    def _packed_sparse(self) -> tuple[PackedTrees, Array]:
        return self.packed.of_used_features(self.n_features)

    def predict(self, X: Any, threads: int | None = None) -> FloatArray:
        """The scores of the rows of X: (n,), or (n, outputs) where there are several outputs.

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
        if self._starts_elsewhere:
            scores += self.intercepts
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

        each = max(512, 4 * len(rows))  # enough to repay the ranks, which every call finds anew
        total = np.zeros((len(rows), self.n_features))
        for part in each_block(work, range(0, len(pairs), each), threads):
            total += part
        return total[:n] / k

    def _score_dense(self, X: Array, scores: FloatArray) -> None:
        kind = np.float32 if X.dtype == np.float32 or self.single_rows else np.float64
        with np.errstate(over="ignore"):  # what is too large for single precision is infinite there, too
            rows = np.require(X, kind, ["C", "A"])
        kernels.forest_scores(rows, self._rules(self.flushes), *self.packed, scores)

    def _rules(self, flushed: bool) -> int:
        """The rules of native/forest.c."""
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


def _words(categories: IntArray | None) -> npt.NDArray[np.uint32]:
    """A set of categories as bits; no words where there is no set, and one at least for a set."""
    if categories is None:
        return np.zeros(0, np.uint32)
    words = np.zeros(int(categories.max(initial=0)) // 32 + 1, np.uint32)
    np.bitwise_or.at(words, categories // 32, np.left_shift(np.uint32(1), (categories % 32).astype(np.uint32)))
    return words


class OfTrees:
    """What rankers that are a forest share."""

    shows_infinity: ClassVar[bool] = False
    n_features_in_: int

    @property
    @abstractmethod
    def forest_(self) -> Forest:
        """The trees as they score."""

    def _prediction_rows(self, X: Any) -> Any:
        """Plain arrays of the right shape need no further look: in a small query it would take a share of the time.

        Trees know no numbers, only their order, so an infinite value does no harm here; elsewhere it is refused.
        """
        known = vars(getattr(self, "as_fitted", self))
        bare = "n_features_in_" in known and "feature_names_in_" not in known and type(X) is np.ndarray
        if bare and X.ndim == 2 and X.dtype.char in "fd" and X.shape[1] == self.n_features_in_ and len(X) > 0:
            return X
        return super()._prediction_rows(X)  # type: ignore[misc]
