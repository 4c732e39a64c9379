"""One protocol for every loss: judge scores, and say how to change them.

A `Loss` is a frozen dataclass of hyper-parameters. `loss.on(labels, queries)` binds it to data: whatever depends on
the labels alone (ideal orders, masses, pair counts) is computed once. The bound loss is then asked `at(scores)`.

The mean over queries is the only mean there is: value = Σ_q scale_q · loss_q, where scale_q = 1/number of queries, or
the query's weight over the sum of weights. A bound loss works on blocks of whole queries, so a linear scorer can run
through its features once, block by block, while they are in the cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, blocks_of, each_block, writable
from toprank.data.arguments import PlainArguments
from toprank.data.queries import Queries
from toprank.errors import DataError

__all__ = ["BoundLoss", "Curvature", "Diagonal", "Eval", "Loss", "Stacked", "Traits"]

BLOCK = 1 << 14  # documents that `at` hands to one call


@dataclass(frozen=True)
class Traits:
    """What is true of a loss. Every claim is tested by the shared matrix of tests; none is made idly.

    Args:
        convex: convex in the scores.
        smooth: differentiable everywhere (otherwise `grad` is a subgradient).
        exact_gradient: `grad` is the derivative of `value`. LambdaRank's is not: its pair weights depend on the ranks.
        shift_invariant: adding a constant to all scores of a query changes nothing.
        curvature: ``exact`` (the Hessian), ``gauss-newton`` (its positive part) or ``majoriser`` (a diagonal that
            bounds the growth where the loss has no curvature of its own); always positive semi-definite.
        space: ``score`` (one score a document) or ``class`` (one column of scores for each grade).
        cost: cost of one evaluation of a query with m documents.
        consistent: for which metric the population minimiser orders optimally, in words; empty: none known.
    """

    convex: bool
    smooth: bool
    exact_gradient: bool = True
    shift_invariant: bool = True
    curvature: Literal["exact", "gauss-newton", "majoriser"] = "exact"
    space: Literal["score", "class"] = "score"
    cost: str = "O(m)"
    consistent: str = ""


class Curvature(ABC):
    """A symmetric positive semi-definite operator on the documents of some whole queries, block-diagonal by query."""

    @abstractmethod
    def __matmul__(self, V: FloatArray) -> FloatArray:
        """The operator times a vector (n,) or a matrix (n, d)."""

    @abstractmethod
    def diagonal(self) -> FloatArray:
        """Its diagonal, (n,)."""


@dataclass(frozen=True)
class Diagonal(Curvature):
    """A curvature without coupling between documents."""

    values: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return self.values * V if V.ndim == self.values.ndim else self.values[:, None] * V

    def diagonal(self) -> FloatArray:
        """See `Curvature.diagonal`."""
        return self.values


class Stacked(Curvature):
    """The curvatures of consecutive blocks, as one."""

    def __init__(self, parts: Sequence[Curvature], bounds: Sequence[tuple[int, int]]) -> None:
        self.parts, self.bounds = parts, bounds

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return np.concatenate([part @ V[a:b] for part, (a, b) in zip(self.parts, self.bounds, strict=True)])

    def diagonal(self) -> FloatArray:
        """See `Curvature.diagonal`."""
        return np.concatenate([part.diagonal() for part in self.parts])


class Eval(NamedTuple):
    """A loss at given scores."""

    value: float
    """Mean over queries."""
    grad: FloatArray
    """d value / d scores, shaped like the scores."""
    curvature: Curvature | None


class BoundLoss(ABC):
    """A loss bound to labels and queries. Subclasses say what happens in a block of whole queries."""

    def __init__(self, queries: Queries, query_weights: FloatArray | None = None) -> None:
        self.queries = queries
        weights = np.ones(len(queries)) if query_weights is None else np.asarray(query_weights, dtype=np.float64)
        self.scale: FloatArray = weights / weights.sum()

    @abstractmethod
    def block(self, scores: FloatArray, first: int, last: int, grad: FloatArray) -> FloatArray:
        """Losses of the queries first … last - 1 (one number each, not scaled).

        `scores` and `grad` belong to the documents of these queries alone; `grad` is filled with d value / d scores,
        that is with the gradient of each query's loss times ``self.scale`` of its query.
        """

    @abstractmethod
    def curvature_block(self, scores: FloatArray, first: int, last: int) -> Curvature:
        """The curvature of these queries' part of the value (scaled)."""

    def at(self, scores: npt.ArrayLike, *, curvature: bool = False, threads: int | None = None) -> Eval:
        """Value, gradient and, where asked for, curvature. The same bits on any number of threads."""
        values = writable(np.ascontiguousarray(scores, dtype=np.float64))
        if len(values) != self.queries.n_documents:
            raise DataError(
                f"There are {len(values)} scores for {self.queries.n_documents} documents; there must be one for each."
            )
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values).reshape(len(values), -1).all(axis=1)))
            raise DataError(f"The score of document {row} is not finite; every document needs a finite score.")
        grad, losses, offsets = np.zeros_like(values), np.empty(len(self.queries)), self.queries.offsets

        def work(block: tuple[int, int]) -> Curvature | None:
            first, last = block
            rows = slice(int(offsets[first]), int(offsets[last]))
            losses[first:last] = self.block(values[rows], first, last, grad[rows])
            return self.curvature_block(values[rows], first, last) if curvature else None

        blocks = blocks_of(offsets, BLOCK)
        parts = each_block(work, blocks, threads)
        bounds = [(int(offsets[first]), int(offsets[last])) for first, last in blocks]
        whole = Stacked([part for part in parts if part is not None], bounds) if curvature else None
        return Eval(float(np.sum(losses * self.scale)), grad, whole)


@dataclass(frozen=True)
class Loss(ABC, metaclass=PlainArguments):
    """Base of all losses: hyper-parameters and nothing else; its repr is its constructor."""

    traits: ClassVar[Traits]

    @abstractmethod
    def bind(
        self,
        labels: FloatArray,
        queries: Queries,
        document_weights: FloatArray | None,
        query_weights: FloatArray | None,
    ) -> BoundLoss:
        """Bind to checked arrays; refuses labels that the loss cannot take."""

    def on(
        self,
        labels: npt.ArrayLike,
        queries: Queries,
        *,
        document_weights: npt.ArrayLike | None = None,
        query_weights: npt.ArrayLike | None = None,
    ) -> BoundLoss:
        """Bind the loss to labels and queries; see the module's text."""
        bound = self.unproved(labels, queries, document_weights, query_weights)
        if not type(self).__module__.startswith("toprank."):  # ours are tested
            _prove(bound, self)
        return bound

    def unproved(
        self,
        labels: npt.ArrayLike,
        queries: Queries,
        document_weights: npt.ArrayLike | None = None,
        query_weights: npt.ArrayLike | None = None,
    ) -> BoundLoss:
        """The loss bound to checked arrays, as `on` gives it, but not asked for anything yet."""
        values = np.ascontiguousarray(labels, dtype=np.float64)
        if values.shape != (queries.n_documents,):
            raise DataError(f"There are {values.size} labels for {queries.n_documents} documents.")
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise DataError(f"The label of document {row} is {values[row]}; training needs judged documents only.")
        documents = _checked_weights(document_weights, queries.n_documents, "document_weights")
        return self.bind(values, queries, documents, _checked_weights(query_weights, len(queries), "query_weights"))


def _prove(bound: BoundLoss, loss: Loss) -> None:
    """Refuse a loss whose `block` does not give a number for each query: one for all would silently be every query's.

    Looked at once, where the loss is bound: on two queries, so that one number and a number each are told apart.
    """
    count = min(2, len(bound.queries))
    n, columns = int(bound.queries.offsets[count]), getattr(bound, "n_columns", None)
    if loss.traits.space == "class" and columns is None:
        return  # how many scores a document has, only the ranker knows
    scores = np.zeros(n if columns is None else (n, columns))
    with np.errstate(all="ignore"):
        losses = bound.block(scores, 0, count, np.zeros_like(scores))
    if losses is None or np.shape(losses) != (count,):
        asked = "1 query" if count == 1 else f"{count} queries"
        raise DataError(
            f"`block` of {type(bound).__name__} was asked for {asked} and returned {losses!r}; there must be an array "
            "with a number for each. toprank.losses.checking.check_loss looks at all that a loss promises."
        )


def _checked_weights(weights: npt.ArrayLike | None, n: int, name: str) -> FloatArray | None:
    if weights is None:
        return None
    values = np.ascontiguousarray(weights, dtype=np.float64)
    if values.shape != (n,):
        raise DataError(f"There are {values.size} {name}, but {n} are needed.")
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise DataError(f"{name} must be finite, not negative, and not all zero.")
    return values


def non_negative(labels: FloatArray, loss: Any) -> FloatArray:
    """The labels, refused where one is negative (exponential gains and -1 for 'not judged' do not go together)."""
    if (labels < 0).any():
        row = int(np.argmax(labels < 0))
        raise DataError(
            f"{type(loss).__name__} needs labels of at least 0, but document {row} has {labels[row]:g}. "
            "Take unjudged documents (-1) out before training."
        )
    return labels
