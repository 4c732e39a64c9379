"""Sources of training data: data in this process, or partitions on other machines.

A ranker asks its source for a standardization, an objective to minimize and a metric of scores; it does not see rows.
`InMemory` computes these from a `RankingData`; `toprank.cluster` computes them from partitions on other machines.

Value, gradient and curvature of an objective are sums over blocks of whole queries, added in the order of the blocks,
which gives the same bits on any number of threads. X is read once for value and gradient together and never copied as a
whole: beyond X, memory holds numbers per document and query, and the terms of a few blocks. Queries are not split, so
one query with all documents is one block. Value, gradient and Hessian-vector products process its rows in parts;
`hessian`, which solvers use for few weights, needs its whole Jacobian.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray, available_threads, each_block
from toprank.data.dataset import RankingData
from toprank.data.encoding import Encoding
from toprank.data.roles import Roles
from toprank.evaluation.scores import BoundMetric
from toprank.losses import Loss
from toprank.losses.base import Block, BoundLoss, Curvature, Judgments, Requested
from toprank.losses.softmax import SoftmaxBound
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.rankers.outputs import weighted_grades
from toprank.rankers.seen_columns import SeenColumns
from toprank.rankers.target_encoding import (
    EncodedCategories,
    TargetEncoding,
    TargetEncodings,
    choose_encodings,
    out_of_fold,
)
from toprank.scorers.features import Features, Standardization
from toprank.scorers.linear import LinearScorer, Scored, ScoredByClass, ScoredOnce, Scorer
from toprank.solvers.base import HasHessian

Item = TypeVar("Item")

_MAX_TERM_BYTES = 16 << 20  # of terms kept in memory until they are added
_MIN_TERMS_PER_THREAD = 4  # of any size, so that no thread is idle


class RankingObjective:
    """L(weights) = loss(scorer(weights, features)), without penalty."""

    def __init__(self, scorer: Scorer, features: Features, loss: BoundLoss, threads: int | None = None) -> None:
        self.scorer, self.features, self.loss, self.threads = scorer, features, loss, threads
        self.blocks = [loss.slice(*ends) for ends in features.blocks(loss.queries.offsets)]

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        return self.scorer.n_weights

    def value_and_grad(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean loss and its gradient."""
        losses, fused = np.empty(len(self.loss.queries)), self._cross_entropy()

        def work(block: Block) -> FloatArray:
            if fused is not None:
                of_labels = fused.targets[block.rows], fused.mass[block.queries], block.scale, block.offsets
                losses[block.queries], grad = self.features.cross_entropy(block.rows, weights, *of_labels)
                return grad
            scored = self._forward(weights, block)
            d_scores = np.zeros_like(scored.scores)
            losses[block.queries] = self.loss.evaluate_block(block, scored.scores, d_scores, Requested())[0]
            return scored.vjp(d_scores)

        grad = self._sum(work, self.blocks, self.n_weights)
        return float(np.sum(losses * self.loss.scale)), grad

    def _cross_entropy(self) -> SoftmaxBound | None:
        """Return the loss if it has a joint kernel with the scorer, which reads the rows of a query once."""
        joined = isinstance(self.scorer, LinearScorer) and not self.scorer.intercept and not self.features.sparse
        return self.loss if joined and type(self.loss) is SoftmaxBound else None

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Return Jᵀ H J: exact for a linear scorer, Gauss-Newton for others. Keeps J for one block at a time."""

        def work(block: Block) -> FloatArray:
            scored = self._forward(weights, block)
            curvature = self._curvature(block, scored)
            if scored.scores.ndim == 2:
                return cast(ScoredByClass, scored).hessian(_by_class(curvature, scored.scores))
            jacobian = cast(ScoredOnce, scored).jacobian()
            return jacobian.T @ (curvature @ jacobian)

        return self._sum(work, self.blocks, self.n_weights**2)

    def hessian_product(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the map v ↦ Jᵀ H J v. The curvature is computed once, and so are scores that do not copy X."""

        def prepare(block: Block) -> tuple[Block, Scored | None, Curvature]:
            scored = self._forward(weights, block)
            curvature = self._curvature(block, scored)
            return block, None if scored.holds_rows else scored, curvature

        prepared = each_block(prepare, self.blocks, self.threads)

        def times(vector: FloatArray) -> FloatArray:
            def work(part: tuple[Block, Scored | None, Curvature]) -> FloatArray:
                block, kept, curvature = part
                scored = self._forward(weights, block) if kept is None else kept
                return scored.vjp(curvature @ scored.jvp(vector))

            return self._sum(work, prepared, self.n_weights)

        return times

    def resampled(self, draw: int, weights: FloatArray) -> RankingObjective:
        """Return the objective for one draw of the loss, based on the scores at these weights."""
        loss = self.loss.resampled(draw, self.scores(weights))
        return RankingObjective(self.scorer, self.features, loss, self.threads)

    def scores(self, weights: FloatArray) -> FloatArray:
        """Return the scores of all documents."""
        return np.concatenate(each_block(lambda block: self._forward(weights, block).scores, self.blocks, self.threads))

    def _forward(self, weights: FloatArray, block: Block) -> Scored:
        return self.scorer.forward(weights, self.features, block.rows)

    def _curvature(self, block: Block, scored: Scored) -> Curvature:
        unread = np.zeros_like(scored.scores)
        curvature = self.loss.evaluate_block(block, scored.scores, unread, Requested(value=False, curvature=True))[1]
        assert curvature is not None
        return curvature

    def _sum(self, term: Callable[[Item], FloatArray], items: Sequence[Item], size: int) -> FloatArray:
        """Return Σ term(item), added in the order of the items; few terms of `size` numbers are in memory at a time."""
        at_once = max(_MIN_TERMS_PER_THREAD * available_threads(self.threads), _MAX_TERM_BYTES // (8 * size))
        total = None
        for first in range(0, len(items), at_once):
            for part in each_block(term, items[first : first + at_once], self.threads):
                total = part.copy() if total is None else np.add(total, part, out=total)
        assert total is not None  # there is at least one query
        return total


def _by_class(curvature: Curvature, scores: FloatArray) -> FloatArray:
    """Return the curvature of each document's outputs, (documents, columns, columns), one column at a time."""
    columns = scores.shape[1]
    result = np.empty((len(scores), columns, columns))
    for column in range(columns):
        unit = np.zeros_like(scores)
        unit[:, column] = 1.0
        result[:, :, column] = curvature @ unit
    return result


Score = Callable[[Any], FloatArray]
"""A function from rows of features to scores."""


class ScoreJudge(NamedTuple):
    """A metric on some data, for repeated evaluation: `judge.value(score)` with a function from rows to scores."""

    name: str
    """The metric as given by the user."""
    measure: Measure
    convention: Convention
    value: Callable[[Score], float]
    check: Callable[[], object]
    """Refuse a selection by the metric if it is constant; see `BoundMetric.for_choosing`."""

    @property
    def higher_is_better(self) -> bool:
        """True if a larger value is better."""
        return self.measure.higher_is_better


class Source(ABC):
    """Labeled queries that rankers can learn from, in memory or elsewhere."""

    n_queries: int
    n_documents: int
    n_features: int
    n_unjudged: int
    feature_names: tuple[str, ...] | None
    first_feature_id: int | None = None
    encoding: Encoding | None = None
    roles: Roles | None = None
    """The roles of the columns of the original tables."""
    fingerprint: str

    @abstractmethod
    def standardization(self, threads: int | None) -> Standardization:
        """Return center and spread of the features."""

    @abstractmethod
    def target_encodings(self, valid: Any, asked: EncodedCategories, seed: int) -> TargetEncodings:
        """Return the target encodings for a ranker, selected on validation data or folds, or as requested."""

    @abstractmethod
    def one_hot(self, encoding: Encoding, sparse: bool, means: tuple[TargetEncoding, ...] = ()) -> SeenColumns:
        """Return one-hot columns for category levels, by their document counts; `sparse` if they may be sparse.

        Categories with a target encoding in `means` have no one-hot columns.
        """

    @abstractmethod
    def translated(self, encoding: Encoding) -> Any:
        """Return the same data with the columns and codes of another encoding."""

    @abstractmethod
    def widened(self, columns: SeenColumns, folds: int | None = None) -> Any:
        """Return the same data with these columns in place of the features.

        `folds`, the seed of a division of the queries, is given for training data, whose target encodings are then out
        of fold.
        """

    @abstractmethod
    def grades(self) -> tuple[FloatArray, FloatArray]:
        """Return the unique labels in ascending order, and the weighted number of documents with each."""

    @abstractmethod
    def objective(
        self, scorer: Scorer, loss: Loss, standardization: Standardization, threads: int | None
    ) -> HasHessian:
        """Return the mean loss over all queries, with the weights of the data, as a function of the scorer's
        weights.
        """

    @abstractmethod
    def score_spread(self, standardization: Standardization, direction: FloatArray) -> float:
        """Return the standard deviation over all documents of the scores in a direction of the standardized
        features.
        """

    @abstractmethod
    def judge(self, metric: str | Measure, convention: str, threads: int | None) -> ScoreJudge:
        """Return a metric on these data."""


class InMemory(Source):
    """Data in the memory of this process, or memory-mapped from a stored copy."""

    def __init__(self, data: RankingData) -> None:
        self.data = data
        self.n_queries, self.n_documents, self.n_features = data.n_queries, data.n_documents, data.n_features
        self.feature_names, self.encoding = data.feature_names, data.encoding

    @property
    @override
    def n_unjudged(self) -> int:  # type: ignore[override]
        return self.data.n_unjudged

    @property
    @override
    def fingerprint(self) -> str:  # type: ignore[override]
        return self.data.fingerprint

    @override
    def standardization(self, threads: int | None) -> Standardization:
        return Standardization.from_data(self.data.X, self.feature_names, threads)

    @override
    def target_encodings(self, valid: Any, asked: EncodedCategories, seed: int) -> TargetEncodings:
        assert self.encoding is not None
        return choose_encodings(self.data, valid, self.encoding, asked, seed)

    @override
    def one_hot(self, encoding: Encoding, sparse: bool, means: tuple[TargetEncoding, ...] = ()) -> SeenColumns:
        counts = encoding.counts(self.data.X)
        return SeenColumns.from_counts(encoding, counts, lambda: self.standardization(None).center, sparse, means)

    @override
    def translated(self, encoding: Encoding) -> RankingData:
        X = encoding.translated(self.data.X, self.data.known_columns())
        return self._with(X, encoding.names, None if encoding.is_plain else encoding)

    @override
    def widened(self, columns: SeenColumns, folds: int | None = None) -> RankingData:
        means = None
        if columns.means and folds is not None:
            means = out_of_fold(self.data, columns.encoding, [mean.places for mean in columns.means], folds)
        return self._with(columns.columns(self.data.X, means), columns.names, columns.seen_encoding)

    def _with(self, X: Any, names: tuple[str, ...], encoding: Encoding | None) -> RankingData:
        return self.data._with_validated(X=X, feature_names=names, encoding=encoding)

    @override
    def grades(self) -> tuple[FloatArray, FloatArray]:
        return weighted_grades(self.data)

    @override
    def objective(
        self, scorer: Scorer, loss: Loss, standardization: Standardization, threads: int | None
    ) -> RankingObjective:
        data = self.data
        bound = loss.bound_to(Judgments.from_data(data))
        features = Features(data.X, standardization, complete=standardization.complete)
        return RankingObjective(scorer, features, bound, threads)

    @override
    def score_spread(self, standardization: Standardization, direction: FloatArray) -> float:
        features = Features(self.data.X, standardization, complete=standardization.complete)
        return float(features.times(slice(0, self.n_documents), direction).std())

    @override
    def judge(self, metric: str | Measure, convention: str, threads: int | None) -> ScoreJudge:
        judge = BoundMetric(self.data, metric, convention=convention, threads=threads)
        return ScoreJudge(
            judge.name, judge.measure, judge.convention, lambda score: judge(score(judge.data.X)), judge.for_selection
        )


def source_of(data: RankingData | Source) -> Source:
    """Return the data as a source."""
    return data if isinstance(data, Source) else InMemory(data)
