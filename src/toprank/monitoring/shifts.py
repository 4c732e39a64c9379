"""How far numbers have moved between two sets of queries: PSI and KS, with intervals and a test over queries.

The documents of a query belong together, so what is drawn anew, or dealt out anew, are whole queries. Numbers are
counted in cells: quantiles of the reference, one cell below and one above its range, one for missing values. So every
resample costs one product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.queries import Queries

__all__ = ["MOST_QUERIES", "Cells", "Draws", "Shift", "Test", "cells_of", "measure", "sampled", "shifts"]

MOST_QUERIES = 20_000
"""Of each set so many queries are looked at: beyond them no interval gets visibly shorter."""
_BLOCKS = 2_000  # queries are drawn in blocks of equally many where there are more
_CELLS, _BINS = 50, 10
_HALF = 0.5  # documents added to every bin of PSI, which has no value where a bin is empty


Counts = npt.NDArray[np.float32]


class Cells(NamedTuple):
    """Documents by block of queries (rows) and cell (columns), of the reference and of the new data."""

    reference: Counts
    new: Counts
    bins: IntArray
    """The bin of PSI that each cell belongs to."""
    ordered: int
    """So many cells from the first on are in order: KS looks at them; 0 for categories."""
    edges: FloatArray
    """The upper ends of the ordered cells but the last."""

    def shares(self) -> tuple[FloatArray, FloatArray]:
        """The share of each cell, before and after."""
        before, after = self.reference.sum(axis=0), self.new.sum(axis=0)
        return before / before.sum(), after / after.sum()


@dataclass(frozen=True)
class Shift:
    """One number of the documents, before and after.

    Attributes:
        name: the feature, or ``score``.
        psi: population stability index, less what sampling alone adds to it.
        psi_interval: of it, over queries.
        ks: the largest distance of the two distribution functions, likewise; None for categories.
        ks_interval: of it.
        p: of "the queries come from the same source", corrected for all features looked at.
        missing: the shares of missing values, before and after.
        outside: the share of new values outside of the reference's range; of categories, of levels that the model
            does not know.
        drifted: whether p and the size of the shift both call for an alarm.
    """

    name: str
    psi: float
    psi_interval: tuple[float, float]
    ks: float | None
    ks_interval: tuple[float, float] | None
    p: float
    missing: tuple[float, float]
    outside: float
    drifted: bool


def sampled(queries: Queries, rng: np.random.Generator) -> IntArray:
    """The queries that are looked at: all, or as many as `MOST_QUERIES`, drawn without replacement."""
    n = len(queries)
    return np.arange(n) if n <= MOST_QUERIES else np.sort(rng.choice(n, MOST_QUERIES, replace=False))


class Draws:
    """Which blocks of queries are in which resample, the same for all features; both sides have blocks of one size."""

    def __init__(self, n_reference: int, n_new: int, resamples: int, rng: np.random.Generator) -> None:
        size = max(1, min(-(-(n_reference + n_new) // _BLOCKS), n_new // 50, n_reference // 50))
        self.block_of = tuple(rng.permutation(n) // size for n in (n_reference, n_new))
        self.blocks = tuple(-(-n // size) for n in (n_reference, n_new))
        self.again = tuple(_again(n, resamples, rng) for n in self.blocks)
        first, total = self.blocks[0], sum(self.blocks)
        order = rng.random((resamples, total), dtype=np.float32).argpartition(first - 1, axis=1)
        self.dealt = np.zeros((resamples, total), dtype=np.float32)
        np.put_along_axis(self.dealt, order[:, :first], 1.0, axis=1)


def _again(n: int, resamples: int, rng: np.random.Generator) -> Counts:
    """How often each of n blocks is in each resample."""
    drawn = np.sort(rng.integers(0, n, (resamples, n)) + n * np.arange(resamples)[:, None], axis=None)
    return np.bincount(drawn, minlength=n * resamples).reshape(resamples, n).astype(np.float32)


def cells_of(
    reference: FloatArray, new: FloatArray, blocks: Sequence[IntArray], n_blocks: Sequence[int], levels: int = 0
) -> Cells:
    """Count the values of documents in cells; `blocks` tells the block of each; `levels` > 0: they are codes below it.

    A missing value is NaN. A code that is negative or not below `levels` has a cell of its own: unknown levels.
    """
    if levels:
        edges, count = np.empty(0), levels + 1
        placed = [np.where((x >= 0) & (x < levels), x, levels) for x in (reference, new)]
    else:
        edges = _edges(reference[~np.isnan(reference)])
        count = len(edges) + 1
        placed = [np.searchsorted(edges, x, side="left") for x in (reference, new)]
    found = []
    for x, at, block, n in zip((reference, new), placed, blocks, n_blocks, strict=True):
        cell = np.where(np.isnan(x), count, np.nan_to_num(at)).astype(np.int64)
        counts = np.bincount(block * (count + 1) + cell, minlength=n * (count + 1))
        found.append(counts.reshape(n, count + 1).astype(np.float32))
    bins = np.arange(count + 1) if levels else _bins(found[0].sum(axis=0))
    return Cells(found[0], found[1], bins, 0 if levels else count, edges)


def _edges(values: FloatArray) -> FloatArray:
    """The end below the reference's range, its quantiles, and its greatest value, each once."""
    if not len(values):
        return np.empty(0)
    levels = np.linspace(0, 1, _CELLS + 1)[1:]
    inner = np.unique(np.quantile(values, levels, method="higher"))
    return np.concatenate([[np.nextafter(values.min(), -np.inf)], inner])


def _bins(before: Counts) -> IntArray:
    """About ten bins of equally many documents; below, above and missing keep their own."""
    inner = before[1:-2] if len(before) > 3 else before[:0]
    if not len(inner):
        return np.arange(len(before))
    middles = (np.cumsum(inner) - inner / 2) / max(inner.sum(), 1)
    inside = np.unique(np.floor(middles * _BINS), return_inverse=True)[1].reshape(-1)
    return np.concatenate([[0], inside + 1, inside[-1] + np.array([2, 3])])


def _psi(before: Counts, after: Counts, bins: IntArray) -> FloatArray:
    """Σ (q - p) log(q / p) over bins, of each row of counts."""
    shares = []
    for counts in (before, after):
        starts = np.flatnonzero(np.r_[True, np.diff(bins) > 0])
        binned = np.add.reduceat(counts.astype(np.float64), starts, axis=-1) + _HALF
        shares.append(binned / binned.sum(axis=-1, keepdims=True))
    p, q = shares
    return np.asarray(((q - p) * np.log(q / p)).sum(axis=-1))


def _ks(before: Counts, after: Counts, ordered: int) -> FloatArray:
    """The largest |F - G| at the ends of the ordered cells, of each row of counts; missing values are left out."""
    curves = []
    for counts in (before, after):
        reached = np.cumsum(counts[..., :ordered].astype(np.float64), axis=-1)
        curves.append(reached / np.maximum(reached[..., -1:], 1))
    return np.asarray(np.abs(curves[0] - curves[1]).max(axis=-1))


class Test(NamedTuple):
    """What one feature's shift is measured by, before features are corrected for each other."""

    cells: Cells
    psi: tuple[float, float, float]
    ks: tuple[float, float, float] | None
    observed: float
    by_chance: FloatArray


def measure(cells: Cells, draws: Draws, confidence: float) -> Test:
    """PSI and KS with intervals; and the PSI of queries that are dealt out to the two sides by chance."""
    before, after = (draws.again[side] @ cells[side] for side in (0, 1))
    both = np.concatenate([cells.reference, cells.new])
    first = draws.dealt @ both
    second = both.sum(axis=0) - first

    def estimate(statistic: Callable[..., FloatArray], rule: Any) -> tuple[float, float, float]:
        plain = float(statistic(cells.reference.sum(axis=0), cells.new.sum(axis=0), rule))
        resampled = statistic(before, after, rule)
        excess = resampled.mean() - plain  # sampling adds to a distance, and adds as much again to a resample's
        low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2]) - 2 * excess
        if plain <= np.quantile(statistic(first, second, rule), confidence):
            low = 0.0  # chance alone goes so far: below it a resample's excess says nothing
        return max(plain - excess, 0.0), max(float(low), 0.0), max(float(high), 0.0)

    ks = estimate(_ks, cells.ordered) if cells.ordered > 1 else None
    observed = float(_psi(cells.reference.sum(axis=0), cells.new.sum(axis=0), cells.bins))
    return Test(cells, estimate(_psi, cells.bins), ks, observed, _psi(first, second, cells.bins))


def shifts(names: Sequence[str], tests: Sequence[Test], least: float, alpha: float) -> Iterator[Shift]:
    """What was measured, with p-values for the family: how often chance's largest reaches so far (Westfall, Young).

    Chance moves a feature of many bins farther than one of two, so each is measured in its own mean under chance.
    """
    means = np.array([test.by_chance.mean() for test in tests])
    means[means <= 0] = 1.0  # a constant feature: it cannot move, and 0 reaches nothing
    largest = np.max([test.by_chance / mean for test, mean in zip(tests, means, strict=True)], axis=0)
    for name, test, mean in zip(names, tests, means, strict=True):
        reached = np.count_nonzero(largest >= test.observed / mean * (1 - 1e-9))
        p = float((1 + reached) / (1 + len(largest)))
        before, after = test.cells.shares()
        outside = float(after[-2] + (after[0] if test.cells.ordered > 1 else 0))
        ks, ks_interval = (None, None) if test.ks is None else (test.ks[0], test.ks[1:])
        yield Shift(
            name, test.psi[0], test.psi[1:], ks, ks_interval, p, (float(before[-1]), float(after[-1])), outside,
            bool(p <= alpha and test.psi[0] >= least),
        )  # fmt: skip
