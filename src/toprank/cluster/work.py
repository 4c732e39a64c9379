"""Operations of workers on a partition: functions of a `WorkerRows`, called by Dask.

A partition contains only its own queries, but the objective is the mean over all of them. So a loss is bound to the
partition's queries together with the grades and the query weight of the whole data: quantities derived from the labels
(the top grade of ERR, a number of classes) are equal everywhere, and values and gradients only need to be added.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, one_blas_thread
from toprank.data.dataset import RankingData
from toprank.data.encoding import Encoding
from toprank.data.roles import Roles
from toprank.errors import DataError, FileError, FormatError, ToprankError
from toprank.losses import Loss
from toprank.losses.base import BoundLoss, Judgments
from toprank.rankers.seen_columns import SeenColumns
from toprank.rankers.source import RankingObjective
from toprank.scorers.features import Features, Moments, Standardization, first_row
from toprank.scorers.linear import Scorer

P = ParamSpec("P")
T = TypeVar("T")

MAX_GRADES = 1 << 12
"""Maximum number of distinct labels that count as grades."""


class WorkerRows:
    """The data of a partition on its worker, grouped by query; None if it has no rows.

    If its content can be loaded again, it is serialized (to another worker, or to the disk of one that is short of
    memory) as a recipe (`again`, a function and its arguments) instead of as rows. `order` contains the position of
    each row in its original partition (default: the current position), and `owners` the index of that partition
    (default: this one).
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

    @property
    def present(self) -> RankingData:
        """The data of a partition that has rows; empty partitions are dropped after the first survey."""
        assert self.data is not None
        return self.data

    @property
    def places(self) -> IntArray:
        """Position of each row in its original partition."""
        return np.arange(self.present.n_documents) if self.order is None else self.order

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.again or (WorkerRows, (self.data, self.name, None, self.order, self.owners))

    def __sizeof__(self) -> int:
        """Return the bytes in memory, for Dask's accounting; memory-mapped arrays count as none."""
        return object.__sizeof__(self) + bytes_held(self.data, self.order, self.owners)


def as_toprank_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Raise our errors as exceptions that can be sent to the client, and limit BLAS to one thread.

    Dask runs as many tasks at a time as a worker has threads; a BLAS pool for each of them would compete with the
    others.
    """

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with one_blas_thread():
                return function(*args, **kwargs)
        except (FormatError, FileError):
            raise
        except ToprankError as problem:
            raise DataError(str(problem)) from None

    return guarded


class PartitionSummary(NamedTuple):
    """Summary of a partition for the client.

    Attributes:
        columns: Optional columns of the partition: weights, ids, positions, a teacher's scores.
        sizes: Number of documents of each query.
        weight: Sum of the query weights, or number of queries.
        grades: Distinct labels; only the smallest and the largest if there are too many.
        counts: Total weight of the documents with each label; infinite if there are too many labels.
        first: A typical row of features.
    """

    name: str
    n_documents: int
    n_features: int
    feature_names: tuple[str, ...] | None
    first_feature_id: int | None
    encoding: Encoding | None
    roles: Roles | None
    sparse: bool
    columns: tuple[str, ...]
    qids: npt.NDArray[Any]
    sizes: IntArray
    weight: float
    grades: FloatArray
    counts: FloatArray
    n_unjudged: int
    first: FloatArray


_OPTIONAL = ("document_weights", "query_weights", "document_ids", "positions", "teacher")


@as_toprank_errors
def summarize(rows: WorkerRows) -> PartitionSummary | None:
    """Summarize a partition; return None if it has no rows."""
    data = rows.data
    if data is None:
        return None
    grades, places = np.unique(data.labels, return_inverse=True)
    weights = 1.0 if data.query_weights is None else data.queries.broadcast(data.query_weights)
    weights = weights if data.document_weights is None else weights * data.document_weights
    counts = np.bincount(places.reshape(-1), np.broadcast_to(weights, len(data.labels)))
    if len(grades) > MAX_GRADES:
        grades, counts = grades[[0, -1]], np.array([np.inf, np.inf])
    return PartitionSummary(
        name=rows.name,
        n_documents=data.n_documents,
        n_features=data.n_features,
        feature_names=data.feature_names,
        first_feature_id=data.first_feature_id,
        encoding=data.encoding,
        roles=data.roles,
        sparse=data.is_sparse,
        columns=tuple(name for name in _OPTIONAL if getattr(data, name) is not None),
        qids=data.qids,
        sizes=data.queries.sizes,
        weight=float(data.n_queries if data.query_weights is None else data.query_weights.sum()),
        grades=grades,
        counts=counts.astype(np.float64),
        n_unjudged=data.n_unjudged,
        first=first_row(data.X),
    )


@as_toprank_errors
def level_counts(rows: WorkerRows, encoding: Encoding) -> tuple[FloatArray, ...]:
    """Count the documents of a partition with each level of each category."""
    return encoding.counts(rows.present.X)


@as_toprank_errors
def filled_cells(rows: WorkerRows) -> tuple[IntArray]:
    """Count the non-missing values of each feature in a partition."""
    return (np.count_nonzero(~np.isnan(rows.present.X), axis=0),)


@as_toprank_errors
def with_columns(rows: WorkerRows, columns: Encoding | SeenColumns) -> WorkerRows:
    """Return a partition with other columns: of another encoding, or one-hot columns for category levels."""
    data = rows.data
    if data is None:
        return rows
    if isinstance(columns, SeenColumns):
        values = {"X": columns.columns(data.X), "feature_names": columns.names, "encoding": None}
    else:
        known = None if columns.is_plain else columns
        X = columns.translated(data.X, data.known_columns())
        values = {"X": X, "feature_names": columns.names, "encoding": known}
    return WorkerRows(
        data._with_validated(**values), rows.name, (with_columns, (rows, columns)), rows.order, rows.owners
    )


@as_toprank_errors
def digest_of(rows: WorkerRows) -> str:
    """Hash the entire content of a partition: features, labels, queries, ids, weights."""
    return rows.present.fingerprint


@as_toprank_errors
def moments_of(rows: WorkerRows, shift: FloatArray, threads: int) -> Moments:
    """Sum over the rows, for the standardization."""
    return Moments.from_data(rows.present.X, shift, threads=threads)


class GlobalFacts(NamedTuple):
    """Facts about the whole data that a partition needs.

    Attributes:
        weight: Sum of the query weights, or number of queries.
    """

    weight: float
    grades: FloatArray


def bound_part(loss: Loss, data: RankingData, whole: GlobalFacts) -> BoundLoss:
    """Bind the loss to a partition's queries, as a part of the mean over the queries of all data."""
    return loss.bound_to(Judgments.from_data(data, whole.grades, whole.weight))


@as_toprank_errors
def bound_rows(rows: WorkerRows, loss: Loss, whole: GlobalFacts) -> BoundLoss:
    """Bind a loss to the rows of a partition, on its worker."""
    return bound_part(loss, rows.present, whole)


@as_toprank_errors
def constant_value(bound: BoundLoss, constant: float) -> tuple[float]:
    """Return the loss of a partition if all documents have the same score."""
    return (bound.at(np.full(bound.queries.n_documents, constant), threads=1).value,)


class PartObjective:
    """A partition's part of the mean loss over all queries: value, gradient and curvature, to be added up.

    It is serialized as the arguments of `part_objective`, like the recipe of `WorkerRows`.
    """

    def __init__(self, inner: RankingObjective, recipe: tuple[Any, ...]) -> None:
        self.inner, self.recipe = inner, recipe

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return part_objective, self.recipe

    def __sizeof__(self) -> int:
        """Return the bytes in addition to the rows, which Dask counts separately."""
        rows = self.recipe[0].data
        X = () if rows is None else (rows.X,)
        return object.__sizeof__(self) + bytes_held(self.inner, apart_from=(rows, *X))


class HessianProducts:
    """A partition's part of the map v ↦ H v, with its precomputed parts."""

    def __init__(self, part: PartObjective, weights: FloatArray) -> None:
        self.part, self.weights = part, weights
        self.times = part.inner.hessian_product(weights)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return HessianProducts, (self.part, self.weights)

    def __sizeof__(self) -> int:
        """Return the bytes of the precomputed parts; the objective is counted separately."""
        inner = self.part.inner
        return object.__sizeof__(self) + bytes_held(self.times, apart_from=(inner, inner.features, inner.features.X))


@as_toprank_errors
def part_objective(
    rows: WorkerRows,
    scorer: Scorer,
    loss: Loss,
    standardization: Standardization,
    whole: GlobalFacts,
    threads: int = 1,
    draw: tuple[int, FloatArray] | None = None,
) -> PartObjective:
    """Return the objective of a partition over its rows; with `draw`, at that draw."""
    data = rows.present
    features = Features(data.X, standardization, complete=standardization.complete)
    inner = RankingObjective(scorer, features, bound_part(loss, data, whole), threads)
    part = PartObjective(inner, (rows, scorer, loss, standardization, whole, threads))
    return part if draw is None else resampled(part, *draw)


@as_toprank_errors
def resampled(part: PartObjective, draw: int, weights: FloatArray) -> PartObjective:
    """Return a partition's part of the objective at a draw; see `RankingObjective.resampled`."""
    return PartObjective(part.inner.resampled(draw, weights), (*part.recipe, (draw, weights)))


@as_toprank_errors
def value_and_grad(part: PartObjective, weights: FloatArray) -> tuple[float, FloatArray]:
    """Return a partition's part of the loss and of its gradient."""
    return part.inner.value_and_grad(weights)


@as_toprank_errors
def hessian(part: PartObjective, weights: FloatArray) -> tuple[FloatArray]:
    """Return a partition's part of the curvature."""
    return (part.inner.hessian(weights),)


@as_toprank_errors
def products(part: PartObjective, weights: FloatArray) -> HessianProducts:
    """Prepare products with a partition's part of the curvature."""
    return HessianProducts(part, weights)


@as_toprank_errors
def product(prepared: HessianProducts, vector: FloatArray) -> tuple[FloatArray]:
    """Return H v, using the result of `products`."""
    return (prepared.times(vector),)


@as_toprank_errors
def score_sums(
    rows: WorkerRows, standardization: Standardization, direction: FloatArray, about: float
) -> tuple[float, float, float]:
    """Return the number of documents, and the sum and sum of squares of their scores minus `about`."""
    features = Features(rows.present.X, standardization, complete=standardization.complete)
    scores = features.times(slice(0, rows.present.n_documents), direction) - about
    return float(len(scores)), float(scores.sum()), float(scores @ scores)


def bytes_held(*objects: Any, apart_from: tuple[Any, ...] = ()) -> int:
    """Return the bytes of all arrays in memory reachable from objects, through attributes and closures, each counted
    once.

    Arrays reachable from the objects in `apart_from` are counted elsewhere.
    """
    seen, total, left = {id(thing) for thing in apart_from}, 0, list(objects)
    while left:
        thing = left.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            total += 0 if _is_mapped(thing) else thing.nbytes
        elif isinstance(thing, list | tuple):
            left.extend(thing)
        elif getattr(thing, "__closure__", None):
            left.extend(cell.cell_contents for cell in thing.__closure__)
        elif type(thing).__module__.startswith(("toprank.", "scipy.")):
            slots = getattr(type(thing), "__slots__", ())
            left.extend(getattr(thing, name, None) for name in (*getattr(thing, "__dict__", ()), *slots))
    return total


def _is_mapped(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)
