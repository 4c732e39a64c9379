"""What workers do with a partition: functions of a `Rows`, called by Dask.

A partition sees only its own queries, but the objective is the mean over all of them. Two things make its part exact:
sums are multiplied by the partition's share of the query weights, and a loss is bound to the partition's queries and
to a *card* of one-document queries that hold the grades of the whole data and weigh nothing. What a loss derives from
the labels (the top grade of ERR, a number of classes) is then the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from toprank.cluster.sizes import bytes_held
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError, FileError, FormatError, ToprankError
from toprank.losses import Loss
from toprank.losses.base import BoundLoss, Diagonal, Eval
from toprank.rankers.objective import RankingObjective
from toprank.scorers.base import Scorer
from toprank.scorers.features import Features, Moments, Standardisation, first_row

__all__ = ["Facts", "PartObjective", "Rows", "Whole", "bound_with_card", "facts_of", "in_sentences", "part_objective"]

P = ParamSpec("P")
T = TypeVar("T")

MOST_GRADES = 1 << 12
"""More distinct labels than this are not told one by one: they are no grades."""


class Rows:
    """The data of a partition, where it lies; None where it has no rows.

    Where its content can be read anew, that is how it travels, to another worker or to the disk of one that is short of
    memory: as a recipe, not as rows.

    Args:
        data: the rows, grouped by query.
        name: what to call the partition in a sentence.
        again: the recipe: a function and its arguments.
        order: where each row stood in the partition that it was read with. None: as they lie here.
        owners: the number of that partition, for each row. None: this one.
    """

    def __init__(
        self,
        data: RankingData | None,
        name: str,
        again: tuple[Callable[..., Any], tuple[Any, ...]] | None,
        order: IntArray | None = None,
        owners: IntArray | None = None,
    ) -> None:
        self.data, self.name, self.again, self.order, self.owners = data, name, again, order, owners

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.again or (Rows, (self.data, self.name, None, self.order, self.owners))

    def __sizeof__(self) -> int:
        """What it holds in memory, for Dask's accounts: of arrays that are mapped from a file, nothing."""
        return object.__sizeof__(self) + bytes_held(self.data, self.order, self.owners)


def in_sentences(function: Callable[P, T]) -> Callable[P, T]:
    """Errors of ours as exceptions that survive the way to the client."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with _pools().limit(limits=1, user_api="blas"):
                return function(*args, **kwargs)
        except (FormatError, FileError):
            raise
        except ToprankError as problem:
            raise DataError(str(problem)) from None

    return guarded


@cache
def _pools() -> Any:
    """The process's pools of threads. Looked for once: that takes 5 ms, and a task may take less."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class Facts(NamedTuple):
    """What the client must know of a partition."""

    name: str
    n_documents: int
    n_features: int
    feature_names: tuple[str, ...] | None
    first_feature_id: int | None
    sparse: bool
    columns: tuple[str, ...]
    """Optional columns that are there: weights, ids, positions."""
    qids: npt.NDArray[Any]
    sizes: IntArray
    """Documents of each query."""
    weight: float
    """Sum of the query weights, or number of queries."""
    grades: FloatArray
    """Distinct labels; the smallest and the largest where there are too many."""
    counts: FloatArray
    n_unjudged: int
    first: FloatArray
    """A typical row of features."""


_OPTIONAL = ("document_weights", "query_weights", "document_ids", "positions")


@in_sentences
def facts_of(rows: Rows) -> Facts | None:
    """Look at a partition; None where it has no rows."""
    data = rows.data
    if data is None:
        return None
    grades, counts = np.unique(data.labels, return_counts=True)
    if len(grades) > MOST_GRADES:
        grades, counts = grades[[0, -1]], np.array([np.inf, np.inf])
    return Facts(
        rows.name,
        data.n_documents,
        data.n_features,
        data.feature_names,
        data.first_feature_id,
        data.is_sparse,
        tuple(name for name in _OPTIONAL if getattr(data, name) is not None),
        data.qids,
        data.queries.sizes,
        weight_of(data),
        grades,
        counts.astype(np.float64),
        int((~data.judged).sum()),
        first_row(data.X),
    )


@in_sentences
def digest_of(rows: Rows) -> str:
    """A hash of everything in a partition: features, labels, queries, ids, weights."""
    assert rows.data is not None
    return rows.data.fingerprint


def weight_of(data: RankingData, weighted: bool = True) -> float:
    """Sum of the query weights, or number of queries."""
    return float(data.query_weights.sum()) if weighted and data.query_weights is not None else float(data.n_queries)


@in_sentences
def moments_of(rows: Rows, shift: FloatArray, threads: int) -> Moments:
    """Sums over the rows, for the standardisation."""
    assert rows.data is not None
    return Moments.of(rows.data.X, shift, threads=threads)


class Whole(NamedTuple):
    """What a partition must know of the whole data."""

    weight: float
    """Sum of the query weights, or number of queries."""
    grades: FloatArray


def bound_with_card(loss: Loss, data: RankingData, grades: FloatArray, weighted: bool) -> BoundLoss:
    """The loss on the partition's queries, followed by a card of the grades of all data."""
    card = len(grades)
    labels = np.concatenate([data.labels, grades])
    queries = Queries(np.concatenate([data.queries.offsets, data.n_documents + np.arange(1, card + 1)]))
    documents, weights = (data.document_weights, data.query_weights) if weighted else (None, None)
    return loss.on(
        labels,
        queries,
        document_weights=None if documents is None else np.concatenate([documents, np.ones(card)]),
        query_weights=np.concatenate([np.ones(data.n_queries) if weights is None else weights, np.zeros(card)]),
    )


class _WithoutCard:
    """A loss bound with a card, as objectives of trees see it: scores of the partition's own documents in and out."""

    def __init__(self, bound: BoundLoss, queries: Queries) -> None:
        self.inner, self.queries = bound, queries
        if hasattr(bound, "gradient_and_diagonal"):
            self.gradient_and_diagonal = self._gradient_and_diagonal

    def at(self, scores: FloatArray, *, curvature: bool = False, threads: int | None = None) -> Eval:
        """See `BoundLoss.at`."""
        n = len(scores)
        value, grad, bend = self.inner.at(self._padded(scores), curvature=curvature, threads=threads)
        return Eval(value, grad[:n], None if bend is None else Diagonal(bend.diagonal()[:n]))

    def _gradient_and_diagonal(self, scores: FloatArray, threads: int | None = None) -> tuple[FloatArray, FloatArray]:
        grad, diagonal = self.inner.gradient_and_diagonal(self._padded(scores), threads=threads)  # type: ignore[attr-defined]
        return grad[: len(scores)], diagonal[: len(scores)]

    def _padded(self, scores: FloatArray) -> FloatArray:
        card = self.inner.queries.n_documents - len(scores)
        return np.concatenate([scores, np.zeros((card, *scores.shape[1:]))])


def bound_without_card(loss: Loss, data: RankingData, grades: FloatArray) -> Any:
    """The loss on a partition's own documents, with the card out of sight."""
    return _WithoutCard(bound_with_card(loss, data, grades, weighted=True), data.queries)


@in_sentences
def bound_part(rows: Rows, loss: Loss, whole: Whole) -> tuple[Any, float]:
    """The loss on a partition, and the partition's share of the query weights."""
    assert rows.data is not None
    share = weight_of(rows.data) / whole.weight
    return (bound_without_card(loss, rows.data, whole.grades) if share else None), share


@in_sentences
def constant_value(bound: tuple[Any, float], constant: float) -> tuple[float]:
    """The loss of a partition where all documents have the same score."""
    loss, share = bound
    return (share * loss.at(np.full(loss.queries.n_documents, constant), threads=1).value if share else 0.0,)


class PartObjective:
    """A partition's part of the mean loss over all queries: value, gradient and curvature, to be added up.

    It travels as the arguments of `part_objective`, as `Rows` travel as a recipe.
    """

    def __init__(self, inner: RankingObjective | None, share: float, n_weights: int, recipe: tuple[Any, ...]) -> None:
        self.inner, self.share, self.n_weights, self.recipe = inner, share, n_weights, recipe

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return part_objective, self.recipe

    def __sizeof__(self) -> int:
        """What it holds besides the rows, which Dask counts already."""
        rows = self.recipe[0].data
        X = () if rows is None else (rows.X,)
        return object.__sizeof__(self) + bytes_held(self.inner, apart_from=(rows, *X))

    def value_and_grad(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """Both at these weights."""
        if self.inner is None:
            return 0.0, np.zeros(self.n_weights)
        value, grad = self.inner.value_and_grad(weights)
        return self.share * value, self.share * grad

    def hessian(self, weights: FloatArray) -> tuple[FloatArray]:
        """The curvature at these weights."""
        if self.inner is None:
            return (np.zeros((self.n_weights, self.n_weights)),)
        return (self.share * self.inner.hessian(weights),)

    def products(self, weights: FloatArray) -> Products:
        """The map v ↦ H v at these weights."""
        return Products(self, weights)


class Products:
    """A partition's part of the map v ↦ H v, with what it needs computed once."""

    def __init__(self, part: PartObjective, weights: FloatArray) -> None:
        self.part, self.weights = part, weights
        self.times = None if part.inner is None else part.inner.hessian_times(weights)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Products, (self.part, self.weights)

    def __sizeof__(self) -> int:
        """What was prepared; the objective is counted already."""
        inner = self.part.inner
        known = () if inner is None else (inner, inner.features, inner.features.X)
        return object.__sizeof__(self) + bytes_held(self.times, apart_from=known)

    def __call__(self, vector: FloatArray) -> tuple[FloatArray]:
        """The product."""
        return (np.zeros_like(vector) if self.times is None else self.part.share * self.times(vector),)


@in_sentences
def part_objective(
    rows: Rows,
    scorer: Scorer,
    loss: Loss,
    standardisation: Standardisation,
    whole: Whole,
    weighted: bool,
    threads: int = 1,
) -> PartObjective:
    """The objective of a partition, over its rows as they lie."""
    data = rows.data
    assert data is not None
    share = weight_of(data, weighted) / whole.weight
    recipe = (rows, scorer, loss, standardisation, whole, weighted, threads)
    if share == 0.0:
        return PartObjective(None, share, scorer.n_weights, recipe)
    bound = bound_with_card(loss, data, whole.grades, weighted)
    bound.scale = bound.scale[: data.n_queries]
    features = Features(data.X, standardisation, complete=standardisation.complete)
    inner = RankingObjective(scorer, features, bound, threads)
    inner.offsets, inner.blocks = data.queries.offsets, features.blocks(data.queries.offsets)  # not the card's
    return PartObjective(inner, share, scorer.n_weights, recipe)


@in_sentences
def value_and_grad(part: PartObjective, weights: FloatArray) -> tuple[float, FloatArray]:
    """See `PartObjective.value_and_grad`."""
    return part.value_and_grad(weights)


@in_sentences
def hessian(part: PartObjective, weights: FloatArray) -> tuple[FloatArray]:
    """See `PartObjective.hessian`."""
    return part.hessian(weights)


@in_sentences
def products(part: PartObjective, weights: FloatArray) -> Products:
    """See `PartObjective.products`."""
    return part.products(weights)


@in_sentences
def product(times: Products, vector: FloatArray) -> tuple[FloatArray]:
    """H v from what `products` prepared."""
    return times(vector)


@in_sentences
def score_sums(
    rows: Rows, standardisation: Standardisation, direction: FloatArray, about: float
) -> tuple[float, float, float]:
    """Number of documents, sum and sum of squares of their scores about a number."""
    assert rows.data is not None
    features = Features(rows.data.X, standardisation, complete=standardisation.complete)
    scores = features.times(slice(0, rows.data.n_documents), direction) - about
    return float(len(scores)), float(scores.sum()), float(scores @ scores)
