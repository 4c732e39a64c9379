"""Network inputs: transformed, standardized and imputed features, in mini-batches of whole queries.

Each feature is transformed by f, then standardized with the mean and standard deviation of f(x) on the training data;
missing values (NaN) are replaced by the mean. f is the identity (``standard``), sign(x)·log(1 + |x|) (``log1p``), or
the fraction of training documents with a smaller value (``quantile``; equal values count half). ``none`` only imputes
missing values. Sparse features are converted to dense batch by batch, with the same results.

An epoch is an order of the queries, split into consecutive ranges. For networks that score each document independently,
the order is uniform and a batch is a number of flat rows without padding. Attention pads its queries to the longest of
the batch, so queries of similar length are grouped: they are sorted by a randomly perturbed length and split, and the
batches are shuffled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, blocks_of, each_block, offsets_of, unshortened
from toprank.data.dataset import refuse_infinite
from toprank.data.queries import Queries

Single = npt.NDArray[np.float32]

Transform = Literal["standard", "log1p", "quantile", "none"]
TRANSFORMS: tuple[Transform, ...] = get_args(Transform)
_MAX_KNOTS = 1001
_MAX_SAMPLE = 1 << 16  # documents used to estimate quantiles
_CHUNK = 1 << 13  # rows processed at a time


@dataclass(frozen=True)
class Inputs:
    """A transform, fitted on training data.

    Args:
        kind: one of `TRANSFORMS`.
        center: mean of each transformed feature.
        spread: its standard deviation; 1 for constant features.
        knots: for ``quantile``, quantiles of each feature at equal steps, (knots, features); else (0, features).
    """

    kind: Transform
    center: FloatArray
    spread: FloatArray
    knots: FloatArray

    @classmethod
    def from_data(
        cls, kind: Transform, X: Any, names: tuple[str, ...] | None = None, threads: int | None = None
    ) -> Inputs:
        """Fit the transform; infinite values are refused, by the name of their feature."""
        d = X.shape[1]
        knots = _knots(X, names, threads) if kind == "quantile" else np.zeros((0, d))
        mapped = cls(kind, np.zeros(d), np.ones(d), knots)
        sums, counts, infinite = mapped._added(kernels.mapped_sums, X, np.empty((3, d)), threads)
        refuse_infinite(infinite, names)
        center = sums / np.maximum(counts, 1.0)
        (squares,) = mapped._added(kernels.mapped_squares, X, np.empty((1, d)), threads, center)
        spread = np.sqrt(squares / np.maximum(counts, 1.0))
        flat = (spread <= 1e-7 * np.abs(center)) | (spread == 0.0)
        return cls(kind, center, np.where(flat, 1.0, spread), knots)

    def rows(self, X: Any, threads: int | None = 1) -> Single:
        """Return the network inputs for dense or sparse X, (documents, features)."""
        out = np.empty(X.shape, dtype=np.float32)
        nothing = np.zeros_like(self.center)
        how = (self.center, self.spread, nothing) if self.kind != "none" else (nothing, nothing + 1.0, self.center)

        def work(first: int) -> None:
            last = first + _CHUNK
            kernels.mapped_rows(self._block(unshortened(X)[first:last]), self.kind == "log1p", *how, out[first:last])

        each_block(work, range(0, X.shape[0], _CHUNK), threads)
        return out

    def _block(self, rows: Any) -> npt.NDArray[Any]:
        """Return rows as the kernel requires; quantiles are transformed here, because they differ by column."""
        block: npt.NDArray[Any] = np.ascontiguousarray(rows if isinstance(rows, np.ndarray) else rows.toarray())
        if block.dtype not in (np.float32, np.float64) or self.kind == "quantile":
            block = block.astype(np.float64)
        if self.kind == "quantile":
            for column in range(block.shape[1]):
                block[:, column] = _share_below(block[:, column], self.knots[:, column])
        return block

    def _added(
        self, kernel: Callable[..., None], X: Any, out: FloatArray, threads: int | None, *how: FloatArray
    ) -> FloatArray:
        """Return the column sums of a kernel (one row of `out` each), added over chunks of rows in their order."""

        def work(first: int) -> FloatArray:
            sums = np.empty_like(out)
            kernel(self._block(unshortened(X)[first : first + _CHUNK]), self.kind == "log1p", *how, *sums)
            return sums

        total = np.zeros_like(out)
        for sums in each_block(work, range(0, X.shape[0], _CHUNK), threads):
            total += sums
        return total


def _share_below(values: FloatArray, knots: FloatArray) -> FloatArray:
    """Return the quantile level of each value, from 0 to 1; the middle for values equal to several knots. NaN stays
    NaN.
    """
    shares = np.linspace(0.0, 1.0, len(knots))
    rising = np.interp(values, knots, shares)
    falling = 1.0 - np.interp(-values, -knots[::-1], shares)
    return 0.5 * (rising + falling)


def _knots(X: Any, names: tuple[str, ...] | None, threads: int | None) -> FloatArray:
    step = -(-X.shape[0] // _MAX_SAMPLE)
    sample = X[::step] if isinstance(X, np.ndarray) else X[::step].tocsc()
    count = min(_MAX_KNOTS, sample.shape[0])

    def knots(column: int) -> FloatArray:
        present = sample[:, column] if isinstance(sample, np.ndarray) else sample[:, [column]].toarray()[:, 0]
        values = np.asarray(present[~np.isnan(present)], dtype=np.float64)
        if not np.isfinite(values).all():
            refuse_infinite(np.arange(X.shape[1]) == column, names)
        return np.quantile(values, np.linspace(0.0, 1.0, count)) if len(values) else np.zeros(count)

    return np.column_stack(each_block(knots, range(X.shape[1]), threads))


_JITTER = 0.1
"""Maximum relative perturbation of lengths before sorting: more shuffles better, less pads less."""


class EpochPlan(NamedTuple):
    """The queries in the order of an epoch, and its batches."""

    order: IntArray
    """Indices of the queries."""
    queries: Queries
    """The queries in that order."""
    rows: IntArray
    """Rows of the documents in that order."""
    batches: list[tuple[int, int]]
    """Ranges [first, last) of the ordered queries."""

    def documents(self, batch: tuple[int, int]) -> slice:
        """Return the documents of a batch, as a slice of `rows`."""
        return slice(int(self.queries.offsets[batch[0]]), int(self.queries.offsets[batch[1]]))


def plan_epoch(queries: Queries, budget: int, rng: np.random.Generator, *, alike: bool = False) -> EpochPlan:
    """Plan batches of at most `budget` documents in random order; a larger query forms its own batch.

    `alike` groups queries of similar length; `budget` then includes padding.

    >>> plan = plan_epoch(Queries([0, 3, 5, 9, 10]), 5, np.random.default_rng(0))
    >>> sorted(plan.rows.tolist()) == list(range(10)), [last - first for first, last in plan.batches]
    (True, [1, 2, 1])
    """
    if not alike:
        order = rng.permutation(len(queries))
        return _with_rows(queries, order, blocks_of(offsets_of(queries.sizes[order]), budget))
    lengths = queries.sizes * rng.uniform(1 - _JITTER, 1 + _JITTER, len(queries))
    order = np.argsort(lengths, kind="stable")
    parts = [order[first:last] for first, last in _padded_blocks(queries.sizes[order], budget)]
    shuffled = [parts[i] for i in rng.permutation(len(parts))]
    ends = np.cumsum([len(part) for part in shuffled])
    batches = list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))
    return _with_rows(queries, np.concatenate(shuffled), batches)


def plan_prediction(queries: Queries, budget: int) -> EpochPlan:
    """Plan batches for prediction by attention, sorted by query length to minimize padding."""
    order = np.argsort(queries.sizes, kind="stable")
    return _with_rows(queries, order, _padded_blocks(queries.sizes[order], budget))


def _with_rows(queries: Queries, order: IntArray, batches: list[tuple[int, int]]) -> EpochPlan:
    ordered = Queries.from_sizes(queries.sizes[order])
    shifts = queries.offsets[:-1][order] - ordered.offsets[:-1]
    rows = np.arange(queries.n_documents) + np.repeat(shifts, ordered.sizes)
    return EpochPlan(order, ordered, rows, batches)


def _padded_blocks(sizes: IntArray, budget: int) -> list[tuple[int, int]]:
    """Split queries into ranges whose number times the longest length is at most `budget`."""
    blocks, first, longest = [], 0, 0
    for place, size in enumerate(sizes.tolist()):
        longest = max(longest, size)
        if place > first and (place + 1 - first) * longest > budget:
            blocks.append((first, place))
            first, longest = place, size
    return [*blocks, (first, len(sizes))]
