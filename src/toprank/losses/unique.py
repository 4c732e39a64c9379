"""Unique softmax: each document competes with documents of lower grades; see `native/unique.c`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray, IntArray
from toprank.losses.base import Block, BlockResult, BoundLoss, Curvature, Judgments, Loss, Requested, Traits, by_columns
from toprank.losses.labels import groups_of
from toprank.metrics.conventions import Gain


@dataclass(frozen=True)
class UniqueSoftmax(Loss):
    """Unique softmax: −Σ_j G(y_j)·log(e^{s_j} / (e^{s_j} + Σ_{y_k < y_j} e^{s_k})).

    Unlike in `Multicategory`, documents of equal grade do not compete with each other. A query of equal grades
    contributes nothing.

    Args:
        gain: gain of the label that weights a document's term (a name, a table or a callable).

    Weights: a document's weight multiplies its own term, not the sums.
    Cost: O(m), after a sort by grade when the loss is bound; a product with the curvature is O(m) per column.
    Consistency: none known.
    Source: Zhu & Klabjan 2020, "Listwise learning to rank by exploring unique ratings".

    >>> from toprank import Queries
    >>> bound = UniqueSoftmax(gain="linear").on([1, 1, 0], Queries([0, 3]))
    >>> bool(np.isclose(bound.at([0.0, 0.0, 0.0]).value, 2 * np.log(2)))
    True
    """

    traits: ClassVar[Traits] = Traits(convex=True, smooth=True)

    gain: Gain | str | tuple[float, ...] | Callable[[Any], Any] = "exponential"

    def __post_init__(self) -> None:
        Gain.from_spec(self.gain)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundUnique(judgments.weighted(judgments.checked_gains(self.gain, self)), judgments)


class _Sorted(NamedTuple):
    """A block's documents by increasing label in each query, as arguments of the kernels."""

    offsets: IntArray
    begin: IntArray
    """Number of documents of the query with lower labels."""
    weights: FloatArray
    scale: FloatArray


class _BoundUnique(BoundLoss):
    def __init__(self, weights: FloatArray, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.order, group, starts = groups_of(judgments.labels, self.queries)
        self.begin: IntArray = starts[group] - self.queries.broadcast(self.queries.offsets[:-1])
        self.weights = weights[self.order]

    @override
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        order: IntArray = self.order[block.rows] - block.rows.start
        by_label = _Sorted(block.offsets, self.begin[block.rows], self.weights[block.rows], block.scale)
        raised, losses = scores[order], np.empty(block.n_queries)
        slopes, diagonal = np.empty_like(raised), np.empty_like(raised)
        kernels.unique_sums(raised, *by_label, slopes, diagonal, losses)
        grad[order] = slopes
        return losses, _UniqueCurvature(raised, by_label, order, diagonal) if requested.curvature else None


@dataclass(frozen=True)
class _UniqueCurvature(Curvature):
    """Σ over documents of weight·(diag(p) − p pᵀ), p the softmax over the document and those below it."""

    scores: FloatArray
    by_label: _Sorted
    order: IntArray
    sorted_diagonal: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        product = np.empty(V.shape)
        product[self.order] = by_columns(V[self.order], kernels.unique_times, self.scores, *self.by_label)
        return product

    @override
    def diagonal(self) -> FloatArray:
        diagonal = np.empty_like(self.sorted_diagonal)
        diagonal[self.order] = self.sorted_diagonal
        return diagonal
