"""The interface of losses: a loss is bound to labels and queries, and then evaluated at scores.

A `Loss` is a frozen dataclass of hyper-parameters. `loss.on(labels, queries)` binds it to data and computes everything
that depends on labels alone (ideal orders, normalizers, pair counts). `at(scores)` of the bound loss returns value,
gradient and curvature.

The value is always a mean over queries, Σ_q scale_q · loss_q, where scale_q is 1/number of queries, or the query's
weight over the sum of weights. A bound loss processes blocks of whole queries, so that a linear scorer can read its
features once, block by block, while they are in the cache.

A loss can be bound to a part of the data, such as a partition of a cluster. Quantities that depend on all labels (the
top grade of ERR, the number of classes) and the weights of the mean then come from `grades` and `total_weight`, so the
losses of the parts add up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, blocks_of, each_block, numbers
from toprank.data.arguments import PlainArguments, check_whole
from toprank.data.arrays import Grades
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError, count_of
from toprank.lazy_imports import exported_names
from toprank.metrics.conventions import Gain

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData


@dataclass(frozen=True, eq=False)
class Judgments:
    """Labels, queries and weights to which losses are bound, checked on construction.

    Args:
        labels: one finite number per document; the same holds for document weights and a teacher's scores.
        queries: division of the documents into queries.
        document_weights: weights of the documents. Default: 1.
        query_weights: weights of the queries. Default: 1.
        grades: distinct labels of the whole data in increasing order; the smallest and the largest suffice. Default:
            those of `labels`.
        total_weight: sum of the query weights (or number of queries) of the whole data. Default: that of these queries.
        teacher: scores of another ranker to learn from.
        query_ids: integers or text by which random losses identify queries. Default: the indices of the queries.

    >>> Judgments([0, 2, 1], Queries([0, 3])).top_grade
    2.0
    """

    labels: FloatArray
    queries: Queries
    document_weights: FloatArray | None = None
    query_weights: FloatArray | None = None
    grades: FloatArray | None = None
    total_weight: float | None = None
    teacher: FloatArray | None = None
    query_ids: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name not in ("queries", "total_weight", "query_ids"):
                object.__setattr__(self, field.name, np.ascontiguousarray(numbers(value, field.name), dtype=np.float64))
        n, q, labels = self.queries.n_documents, len(self.queries), self.labels
        if labels.shape != (n,):
            raise DataError(f"There are {labels.size} labels for {n} documents.")
        if not np.isfinite(labels).all():
            row = int(np.argmin(np.isfinite(labels)))
            raise DataError(f"The label of document {row} is {labels[row]}; training needs judged documents.")
        if labels.max() > self.top_grade:
            row = int(np.argmax(labels))
            raise DataError(
                f"The largest of the given grades is {self.top_grade:g}, but document {row} has the label "
                f"{labels[row]:g}. Pass the grades of the whole data."
            )
        counts = {"document_weights": n, "teacher": n, "query_weights": q, "query_ids": q}
        for name, needed in counts.items():
            values = getattr(self, name)
            if values is None:
                continue
            if values.shape != (needed,):
                noun = "teacher scores" if name == "teacher" else name
                raise DataError(f"There are {values.size} {noun}, but {needed} are needed.")
            if name == "teacher" and not np.isfinite(values).all():
                row = int(np.argmin(np.isfinite(values)))
                raise DataError(f"The teacher's score of document {row} is {values[row]}; it must be finite.")
            # All weights of a part may be 0, but the mean over the whole needs a positive weight.
            may_vanish = self.total_weight is not None or values.any()
            if "weights" in name and not (np.isfinite(values).all() and (values >= 0).all() and may_vanish):
                raise DataError(f"{name} must be finite, nonnegative, and not all zero.")

    @classmethod
    def from_data(
        cls, data: RankingData, grades: FloatArray | None = None, total_weight: float | None = None
    ) -> Judgments:
        """Return the judgments of a data set or a part of one, with the grades and the total weight of the whole."""
        weights = data.document_weights, data.query_weights
        return cls(data.labels, data.queries, *weights, grades, total_weight, data.teacher, data.qids)

    @property
    def top_grade(self) -> float:
        """The largest label of the whole data."""
        return float(self.labels.max() if self.grades is None else self.grades[-1])

    @property
    def distinct_grades(self) -> FloatArray:
        """The distinct labels of the whole data, in increasing order."""
        return np.unique(self.labels) if self.grades is None else self.grades

    @property
    def weights(self) -> FloatArray:
        """Weight of each document; 1 by default."""
        return np.ones(len(self.labels)) if self.document_weights is None else self.document_weights

    def term_weights(self, per_document: bool) -> FloatArray:
        """Return the weight of each document's term in the loss of its query; `per_document` averages the terms."""
        return self.weights / self.queries.broadcast(self.queries.sizes) if per_document else self.weights

    def weighted(self, values: FloatArray) -> FloatArray:
        """Return values of the documents times their weights."""
        return values if self.document_weights is None else values * self.document_weights

    def scale(self) -> FloatArray:
        """Return the weight of each query's loss in the mean over the queries of the whole data."""
        weights = np.ones(len(self.queries)) if self.query_weights is None else self.query_weights
        return weights / (weights.sum() if self.total_weight is None else self.total_weight)

    def gains(self, gain: Any, top_grade: float | None = None) -> FloatArray:
        """Return the gain of each label; with ``gain=None`` the labels themselves, which may be negative.

        >>> Judgments([0, 2, 1], Queries([0, 3])).gains("exponential").tolist()
        [0.0, 3.0, 1.0]
        """
        if gain is None:
            return self.labels
        grades = Grades.from_labels(self.labels)
        table: FloatArray = Gain.from_spec(gain).table(
            grades.values, self.top_grade if top_grade is None else top_grade
        )
        return np.take(table, grades.codes)

    def checked_gains(self, gain: Any, loss: Loss) -> FloatArray:
        """Return the gain of each label, and raise an error for negative labels unless ``gain=None``.

        A label of -1 usually means "not judged", and such documents must not be treated as irrelevant.
        """
        if gain is not None and (self.labels < 0).any():
            row = int(np.argmax(self.labels < 0))
            raise DataError(
                f"{type(loss).__name__} needs labels of at least 0, but document {row} has {self.labels[row]:g}. "
                "Drop unjudged documents (-1) before training."
            )
        return self.gains(gain)


BLOCK = 1 << 14  # documents per block: arrays of 128 KB stay in the second-level cache


@dataclass(frozen=True)
class Traits:
    """Declared properties of a loss, which solvers and rankers rely on and tests verify.

    Args:
        convex: convex in the scores.
        smooth: differentiable everywhere; otherwise `grad` is a subgradient.
        exact_gradient: `grad` is the derivative of `value`. That of LambdaRank is not, because its pair weights depend
            on ranks.
        shift_invariant: invariant to a constant added to all scores of a query.
        curvature: ``exact`` (the Hessian), ``gauss-newton`` (its positive part) or ``majorizer`` (a diagonal upper
            bound for losses without useful second derivatives); positive semi-definite unless gains are negative.
        space: ``score`` (one score per document) or ``class`` (several columns of scores).
        columns: meaning of these columns: one per grade (``grades``), or one per threshold between grades
            (``thresholds``).
        cost: cost of one evaluation of a query with m documents.
        consistent: metric for which the population minimizer orders optimally, as text; empty if unknown.
        teacher: requires a teacher's scores (`Judgments.teacher`).
        labels: depends on labels; other losses also learn from unjudged documents.
        random: samples orders or noise, independently for each `draw` (`BoundLoss.resampled`). The order of a query's
            documents affects a single draw but not the distribution.
        linear_in_gain: the gradient is an affine function of the gains G(y), which may be any real numbers
            (``gain=None``: the labels are the gains). Unbiased estimates of gains, such as debiased clicks, then give
            an unbiased gradient.
        labels_are_gains: labels are gains, any real numbers; doubled labels double value and gradient.
    """

    convex: bool
    smooth: bool
    exact_gradient: bool = True
    shift_invariant: bool = True
    curvature: Literal["exact", "gauss-newton", "majorizer"] = "exact"
    space: Literal["score", "class"] = "score"
    cost: str = "O(m)"
    consistent: str = ""
    linear_in_gain: bool = False
    random: bool = False
    labels_are_gains: bool = False
    columns: Literal["grades", "thresholds"] = "grades"
    teacher: bool = False
    labels: bool = True


class Curvature(ABC):
    """A symmetric operator on the documents of whole queries, block-diagonal by query.

    It is positive semi-definite unless gains are negative, as estimated gains may be. Then products are those of the
    indefinite Hessian, which Newton's method can use, and the diagonal omits the negative part, as boosting requires.
    """

    @abstractmethod
    def __matmul__(self, V: FloatArray) -> FloatArray:
        """Return the operator times a vector (n,) or a matrix (n, d)."""

    @abstractmethod
    def diagonal(self) -> FloatArray:
        """Return the diagonal, (n,)."""


@dataclass(frozen=True)
class Diagonal(Curvature):
    """A curvature without coupling between documents."""

    values: FloatArray

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return self.values * V if V.ndim == self.values.ndim else self.values[:, None] * V

    @override
    def diagonal(self) -> FloatArray:
        return self.values


def by_columns(V: FloatArray, kernel: Callable[..., None], *arguments: Any) -> FloatArray:
    """Return the product that `kernel(*arguments, columns, product)` writes, for a vector (n,) or a matrix of
    columns.
    """
    columns = np.ascontiguousarray(V, dtype=np.float64).reshape(len(V), -1)
    product = np.empty_like(columns)
    kernel(*arguments, columns, product)
    return product.reshape(V.shape)


class Stacked(Curvature):
    """The curvatures of consecutive blocks."""

    def __init__(self, parts: Sequence[Curvature], rows: Sequence[slice]) -> None:
        self.parts, self.rows = parts, rows

    def __matmul__(self, V: FloatArray) -> FloatArray:
        return np.concatenate([part @ V[rows] for part, rows in zip(self.parts, self.rows, strict=True)])

    @override
    def diagonal(self) -> FloatArray:
        return np.concatenate([part.diagonal() for part in self.parts])


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive whole queries of the data."""

    first: int
    """Index of the first query."""
    last: int
    """Index after the last query."""
    rows: slice
    """Rows of the documents in the data."""
    offsets: IntArray
    """Index of the first document of each query, relative to the block, and the number of documents."""
    scale: FloatArray
    """Weight of each query's loss in the mean."""

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self.last - self.first

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return int(self.offsets[-1])

    @property
    def queries(self) -> slice:
        """The queries, as an index into arrays with one entry per query."""
        return slice(self.first, self.last)

    def broadcast(self, per_query: FloatArray) -> FloatArray:
        """Return the value of its query for each document."""
        return np.repeat(per_query, np.diff(self.offsets), axis=0)

    def sum(self, values: FloatArray) -> FloatArray:
        """Return the sum over the documents of each query."""
        sums: FloatArray = np.add.reduceat(values, self.offsets[:-1], axis=0)
        return sums


class Requested(NamedTuple):
    """The quantities requested in addition to the gradient; a loss may skip the others."""

    value: bool = True
    curvature: bool = False


BlockResult = tuple[FloatArray, Curvature | None]
"""Result of `BoundLoss.evaluate_block`: one loss per query, and the curvature or None."""


class Eval(NamedTuple):
    """A loss at given scores."""

    value: float
    """Weighted mean of the losses over queries."""
    grad: FloatArray
    """d value / d scores, with the shape of the scores."""
    curvature: Curvature | None


class BoundLoss(ABC):
    """A loss bound to data. Subclasses implement `evaluate_block` for blocks of whole queries."""

    n_columns: int | None = None
    """Number of scores per document for losses in class space; None for one score, of shape (n,)."""

    def __init__(self, judgments: Judgments) -> None:
        self.queries = judgments.queries
        self.scale = judgments.scale()

    @abstractmethod
    def evaluate_block(self, block: Block, scores: FloatArray, grad: FloatArray, requested: Requested) -> BlockResult:
        """Return the unscaled loss of each query of a block, and the curvature if it is requested.

        `scores` and `grad` belong to the documents of the block. Implementations must not change `scores`, and must
        fill `grad` with d value / d scores: the gradient of each query's loss times its `block.scale`. The curvature is
        scaled in the same way.
        """

    def resampled(self, draw: int, scores: FloatArray | None = None) -> BoundLoss:  # noqa: ARG002
        """Return the loss at a draw; losses without randomness return themselves.

        Args:
            draw: index of the round, batch or iteration, from 0.
            scores: scores of all documents that determine the sample, whatever scores are evaluated later, so that the
                loss stays one function during a line search. Default: the evaluated scores.
        """
        return self

    def slice(self, first: int, last: int) -> Block:
        """Return the queries first … last − 1 as a block."""
        offsets = self.queries.offsets[first : last + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        return Block(first, last, rows, offsets - offsets[0], self.scale[first:last])

    def blocks(self, size: int) -> list[Block]:
        """Return all queries in blocks of about `size` documents; a longer query forms its own block."""
        return [self.slice(*ends) for ends in blocks_of(self.queries.offsets, size)]

    def at(
        self, scores: npt.ArrayLike, *, curvature: bool = False, threads: int | None = None, draw: int | None = None
    ) -> Eval:
        """Return value, gradient and, with `curvature`, the curvature at scores; a random loss uses this `draw`
        (default: 0).

        Results are bit-identical for any number of threads.
        """
        if draw is not None:
            check_whole("draw", draw, 0)
            return self.resampled(draw).at(scores, curvature=curvature, threads=threads)
        values, blocks = self._checked(scores), self.blocks(BLOCK)
        grad, losses, requested = np.zeros_like(values), np.empty(len(self.queries)), Requested(curvature=curvature)

        def work(block: Block) -> Curvature | None:
            losses[block.queries], bend = self.evaluate_block(block, values[block.rows], grad[block.rows], requested)
            return bend

        parts = each_block(work, blocks, threads)
        whole = Stacked([part for part in parts if part is not None], [block.rows for block in blocks])
        return Eval(float(np.sum(losses * self.scale)), grad, whole if curvature else None)

    def derivatives(self, scores: npt.ArrayLike, *, threads: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the diagonal of the curvature, which is all that trees need."""
        values = self._checked(scores)
        grad, diagonal, requested = np.zeros_like(values), np.empty_like(values), Requested(value=False, curvature=True)

        def work(block: Block) -> None:
            bend = self.evaluate_block(block, values[block.rows], grad[block.rows], requested)[1]
            assert bend is not None
            diagonal[block.rows] = bend.diagonal()

        each_block(work, self.blocks(BLOCK), threads)
        return grad, diagonal

    def _checked(self, scores: npt.ArrayLike) -> FloatArray:
        values = np.ascontiguousarray(numbers(scores, "scores"), dtype=np.float64)
        if len(values) != self.queries.n_documents:
            raise DataError(
                f"There are {len(values)} scores for {self.queries.n_documents} documents; there must be one for each."
            )
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values).reshape(len(values), -1).all(axis=1)))
            raise DataError(f"The score of document {row} is not finite; every document needs a finite score.")
        return values


@dataclass(frozen=True)
class Loss(ABC, metaclass=PlainArguments):
    """Base class of losses, which hold hyper-parameters only; the repr of a loss is its constructor call."""

    traits: ClassVar[Traits]

    @abstractmethod
    def bind(self, judgments: Judgments) -> BoundLoss:
        """Bind the loss to checked judgments; raise an error for labels that the loss does not support."""

    def on(
        self,
        labels: npt.ArrayLike,
        queries: Queries,
        *,
        document_weights: npt.ArrayLike | None = None,
        query_weights: npt.ArrayLike | None = None,
        query_ids: npt.ArrayLike | None = None,
        teacher: npt.ArrayLike | None = None,
    ) -> BoundLoss:
        """Bind the loss to labels and queries.

        Args:
            labels: one number per document.
            queries: division of the documents into queries.
            document_weights: weights of the documents. Default: 1.
            query_weights: weights of the queries. Default: 1.
            query_ids: ids by which random losses identify queries. Default: their indices.
            teacher: scores of a teacher, for losses that learn from one.
        """
        ids, weights = None if query_ids is None else np.asarray(query_ids), (document_weights, query_weights)
        return self.bound_to(Judgments(labels, queries, *weights, query_ids=ids, teacher=teacher))  # type: ignore[arg-type]

    def bound_to(self, judgments: Judgments) -> BoundLoss:
        """Bind the loss to judgments, which may cover a part of the data."""
        bound = self.bind(judgments)
        if not type(self).__module__.startswith("toprank."):  # built-in losses are tested
            _prove(bound, self)
        return bound


def _prove(bound: BoundLoss, loss: Loss) -> None:
    """Raise an error if `evaluate_block` does not return one number per query.

    NumPy would broadcast a single number to all queries. The check evaluates up to two queries once, when the loss is
    bound.
    """
    block, columns = bound.slice(0, min(2, len(bound.queries))), bound.n_columns
    if loss.traits.space == "class" and columns is None:
        return  # the number of scores depends on the ranker
    scores = np.zeros(block.n_documents if columns is None else (block.n_documents, columns))
    with np.errstate(all="ignore"):
        answer = bound.evaluate_block(block, scores, np.zeros_like(scores), Requested())
    losses = answer[0] if isinstance(answer, tuple) and len(answer) == 2 else answer
    if not isinstance(answer, tuple) or losses is None or np.shape(losses) != (block.n_queries,):
        raise DataError(
            f"`evaluate_block` of {type(bound).__name__} returned {answer!r} for {count_of(block.n_queries, 'query')}. "
            "Return an array with one number for each query and the curvature (None if it is not requested). "
            "toprank.losses.checking.check_loss tests the whole contract of a loss."
        )


_SYNONYMS = {"WeightedSoftmax": "Multicategory"}
# Every exported class is a loss, except synonyms and the classes of this module, which losses share.
_LOSSES = tuple(
    name
    for name, home in exported_names("toprank.losses").items()
    if name[0].isupper() and home != __name__ and name not in _SYNONYMS
)
_KEYS_IN_FILES = {("Mix", "weight"): "share"}  # files keep the first spelling of a parameter


def names() -> tuple[str, ...]:
    """Return the names of all losses."""
    return _LOSSES


def make(loss: Loss | str, /, **options: Any) -> Loss:
    """Return the loss with this name (case and punctuation are ignored), or the loss itself.

    >>> make("list-net", alpha=2.0)
    ListNet(alpha=2.0, psi='linear', top_k=1)
    """
    if isinstance(loss, Loss):
        if not isinstance(getattr(loss, "traits", None), Traits):
            raise DataError(
                f"{type(loss).__name__} has no traits, which determine the solver. Add "
                "traits = toprank.losses.Traits(convex=…, smooth=…) to the class."
            )
        return loss
    if not isinstance(loss, str):
        raise DataError(f"A loss is a value of toprank.losses or its name, not {type(loss).__name__}.")
    from toprank import losses

    by_key = {_key(name): name for name in _LOSSES} | {_key(name): loss for name, loss in _SYNONYMS.items()}
    if _key(loss) not in by_key:
        raise UnknownNameError("loss", loss, _LOSSES)
    kind = getattr(losses, by_key[_key(loss)])
    known = {field.name for field in fields(kind)}
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of {kind.__name__}", option, sorted(known))
    try:
        value: Loss = kind(**options)
    except TypeError:
        arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise DataError(f"{kind.__name__} cannot be created from {arguments}: a value has the wrong type.") from None
    return value


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def to_spec(loss: Loss) -> dict[str, Any]:
    """Return a loss as plain values for a file; raise an error if it holds a user-defined function."""
    spec: dict[str, Any] = {"name": type(loss).__name__}
    if spec["name"] not in _LOSSES:
        raise DataError(f"{spec['name']} is not a loss of toprank; a model file can name only those.")
    for field in fields(loss):
        value, key = getattr(loss, field.name), _KEYS_IN_FILES.get((spec["name"], field.name), field.name)
        if callable(value) or getattr(value, "function", None) is not None:
            raise DataError(
                f"{field.name} of {spec['name']} is a user-defined function, which a model file cannot hold."
            )
        if isinstance(value, Loss):
            spec[key] = to_spec(value)
            continue
        if isinstance(value, tuple):
            value = [float(number) for number in value]
        spec[key] = value if isinstance(value, str | int | float | bool | list | None) else str(value)
    return spec


def from_spec(spec: dict[str, Any]) -> Loss:
    """Return the loss that `to_spec` converted."""
    if "name" not in spec:
        raise DataError("A loss has no name.")
    names_of_keys = {key: name for (loss, name), key in _KEYS_IN_FILES.items() if loss == spec["name"]}
    options = {names_of_keys.get(key, key): value for key, value in spec.items() if key != "name"}
    for name, value in options.items():
        if isinstance(value, dict):
            options[name] = from_spec(value)
        elif isinstance(value, list):
            if not all(isinstance(number, int | float) for number in value):
                raise DataError(f"{name} of {spec['name']} must be a list of numbers, not {value!r}.")
            options[name] = tuple(value)
    return make(spec["name"], **options)
