"""How far numbers have moved between two sets of queries: PSI and KS, with intervals and a test over queries.

The documents of a query belong together, so whole queries are drawn anew, or dealt out anew to the two sets. Numbers
are counted in cells: between quantiles of both sets together, and one cell for missing values. So every resample costs
one product of matrices. Quantiles of the reference alone would favor the way of dealing that was met: the reference's
own queries fill such cells evenly and never lie outside its range, while those of any other dealing do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.queries import Queries
from toprank.display.record import JsonObject, to_json
from toprank.significance import Interval

MOST_QUERIES = 20_000
"""How many queries of each set are looked at: with more, no interval gets visibly shorter."""
_BLOCKS = 2_000  # more queries than these are drawn in blocks of equally many
_CELLS = np.r_[np.linspace(0, 1, 51)[1:], 0.01, 0.99]  # the levels of the quantiles that cells end at
_BINS = np.r_[0.01, np.linspace(0, 1, 11)[1:-1], 0.99]  # those of PSI's bins: deciles, the outermost cut once more
_HALF = 0.5  # documents added to every bin of PSI, which an empty bin would make infinite


Counts = npt.NDArray[np.float32]


class CellCounts(NamedTuple):
    """Documents by block of queries (rows) and cell (columns), of the reference and of the new data.

    Attributes:
        bins: The bin of PSI that each cell belongs to.
        ordered: How many of the first cells are in order, for KS; 0 for categories.
        edges: The upper ends of the ordered cells; the first cell is empty, since it ends below the least value.
        outside: The share of new documents outside the reference's range; for categories, with levels that are unknown.
    """

    reference: Counts
    new: Counts
    bins: IntArray
    ordered: int
    edges: FloatArray
    outside: float

    def shares(self) -> tuple[FloatArray, FloatArray]:
        """Return the share of each cell, before and after."""
        before, after = self.reference.sum(axis=0), self.new.sum(axis=0)
        return before / before.sum(), after / after.sum()


class IntervalPairs(JsonObject):
    """A part of a result whose JSON form has each interval as the pair of its ends."""

    def _json_value(self, value: Any) -> Any:
        return to_json(list(value) if isinstance(value, Interval) else value)


@dataclass(frozen=True)
class Shift(IntervalPairs):
    """One number of the documents, before and after.

    Attributes:
        name: the feature, or ``score``.
        psi: population stability index, less what sampling alone adds to it.
        psi_interval: the interval of psi, over queries.
        ks: the largest distance of the two distribution functions at fifty quantiles of both sets, less what sampling
            alone adds to it, and so less than the statistic of that name; None for categories.
        ks_interval: the interval of ks.
        p: the p-value of "the queries come from the same source", corrected for everything that is tested.
        missing: the shares of missing values, before and after.
        outside: the share of new values outside the reference's range; for categories, of levels that the model does
            not know.
        drifted: whether p and the size of the shift both call for an alarm.
    """

    name: str
    psi: float
    psi_interval: Interval
    ks: float | None
    ks_interval: Interval | None
    p: float
    missing: tuple[float, float]
    outside: float
    drifted: bool


def sampled(queries: Queries, rng: np.random.Generator) -> IntArray:
    """Return the queries to look at: all, or `MOST_QUERIES` of them, drawn without replacement."""
    n = len(queries)
    return np.arange(n) if n <= MOST_QUERIES else np.sort(rng.choice(n, MOST_QUERIES, replace=False))


class Draws:
    """The blocks of queries in each resample, the same for all features; both sides have blocks of one size."""

    def __init__(self, n_reference: int, n_new: int, n_resamples: int, rng: np.random.Generator) -> None:
        size = max(1, min(-(-(n_reference + n_new) // _BLOCKS), n_new // 50, n_reference // 50))
        self.queries = n_reference + n_new
        self.block_of = tuple(rng.permutation(n) // size for n in (n_reference, n_new))
        self.blocks = tuple(-(-n // size) for n in (n_reference, n_new))
        self.again = tuple(_again(n, n_resamples, rng) for n in self.blocks)
        first, total = self.blocks[0], sum(self.blocks)
        order = rng.random((n_resamples, total), dtype=np.float32).argpartition(first - 1, axis=1)
        self.dealt = np.zeros((n_resamples, total), dtype=np.float32)
        np.put_along_axis(self.dealt, order[:, :first], 1.0, axis=1)

    def means_apart(self, values: Sequence[FloatArray]) -> tuple[float, FloatArray]:
        """Return the squared distance of two means of one number per query, as met and as dealt out by chance."""
        joined = np.concatenate([self.block_of[0], self.block_of[1] + self.blocks[0]])
        sums, sizes = (np.bincount(joined, each, sum(self.blocks)) for each in (np.concatenate(values), None))
        met = np.arange(len(sums)) < self.blocks[0]
        dealt = np.concatenate([met[None], self.dealt]).astype(np.float64)
        first, second = ((rows @ sums) / (rows @ sizes) for rows in (dealt, 1 - dealt))
        apart = (first - second) ** 2
        return float(apart[0]), apart[1:]


def _again(n: int, n_resamples: int, rng: np.random.Generator) -> Counts:
    """Count how often each of n blocks is in each resample."""
    drawn = np.sort(rng.integers(0, n, (n_resamples, n)) + n * np.arange(n_resamples)[:, None], axis=None)
    return np.bincount(drawn, minlength=n * n_resamples).reshape(n_resamples, n).astype(np.float32)


def cells_of(
    reference: FloatArray, new: FloatArray, blocks: Sequence[IntArray], n_blocks: Sequence[int], levels: int = 0
) -> CellCounts:
    """Count the values of documents in cells; `blocks`: the block of each document; `levels`: more than 0 for codes.

    A missing value is NaN. Codes that are negative, or not below `levels`, are unknown levels and share a cell.
    """
    if levels:
        edges, count = np.empty(0), levels + 1
        placed = [np.where((x >= 0) & (x < levels), x, levels) for x in (reference, new)]
    else:
        edges = _edges(np.concatenate([reference, new]))
        count = len(edges)
        placed = [np.searchsorted(edges, x, side="left") for x in (reference, new)]
    by_side = []
    for x, at, block, n in zip((reference, new), placed, blocks, n_blocks, strict=True):
        cell = np.where(np.isnan(x), count, np.nan_to_num(at)).astype(np.int64)
        counts = np.bincount(block * (count + 1) + cell, minlength=n * (count + 1))
        by_side.append(counts.reshape(n, count + 1).astype(np.float32))
    if levels:
        outside = float(by_side[1][:, levels].sum() / len(new))
        return CellCounts(by_side[0], by_side[1], np.arange(count + 1), 0, edges, outside)
    bins = _bins(by_side[0].sum(axis=0) + by_side[1].sum(axis=0))
    known = reference[~np.isnan(reference)]
    beyond = (new < known.min()) | (new > known.max()) if len(known) else ~np.isnan(new)
    return CellCounts(by_side[0], by_side[1], bins, count, edges, float(beyond.mean()))


def _edges(values: FloatArray) -> FloatArray:
    """Return an edge below the range, the quantiles, and the greatest value, each once."""
    values = values[~np.isnan(values)]
    if not len(values):
        return np.empty(0)
    inner = np.unique(np.quantile(values, _CELLS, method="higher"))
    return np.concatenate([[np.nextafter(values.min(), -np.inf)], inner])


def _bins(counts: Counts) -> IntArray:
    """Return the bin of each cell, by its middle document; the last cell, missing values, is a bin of its own."""
    inner = counts[:-1]
    middles = (np.cumsum(inner) - inner / 2) / max(inner.sum(), 1)
    inside = np.unique(np.searchsorted(_BINS, middles), return_inverse=True)[1].reshape(-1)
    return np.append(inside, inside.max(initial=-1) + 1)


def _psi(before: Counts, after: Counts, bins: IntArray) -> FloatArray:
    """Return Σ (q - p) log(q / p) over bins, for each row of counts."""
    shares = []
    for counts in (before, after):
        starts = np.flatnonzero(np.r_[True, np.diff(bins) > 0])
        binned = np.add.reduceat(counts.astype(np.float64), starts, axis=-1) + _HALF
        shares.append(binned / binned.sum(axis=-1, keepdims=True))
    p, q = shares
    return np.asarray(((q - p) * np.log(q / p)).sum(axis=-1))


def _ks(before: Counts, after: Counts, ordered: int) -> FloatArray:
    """Return the largest |F - G| at the ends of the ordered cells, for each row of counts, without missing values."""
    curves = []
    for counts in (before, after):
        reached = np.cumsum(counts[..., :ordered].astype(np.float64), axis=-1)
        curves.append(reached / np.maximum(reached[..., -1:], 1))
    return np.asarray(np.abs(curves[0] - curves[1]).max(axis=-1))


class Test(NamedTuple):
    """The measures of one feature's shift, before p-values are corrected for the other features.

    Attributes:
        by_chance: PSI for each way in which chance deals the queries out; `met` is PSI as they came.
    """

    cells: CellCounts
    psi: Interval
    ks: Interval | None
    met: float
    by_chance: FloatArray


def _dealt(cells: CellCounts, draws: Draws) -> tuple[Counts, Counts]:
    """Return the counts of both sides, a row for each dealing: as the queries came, then as chance deals them."""
    both = np.concatenate([cells.reference, cells.new])
    first = np.concatenate([cells.reference.sum(axis=0)[None], draws.dealt @ both])
    return first, both.sum(axis=0) - first


def measure(cells: CellCounts, draws: Draws, confidence: float) -> Test:
    """Measure PSI and KS with intervals, and the PSI of queries that chance deals out to the two sides."""
    before, after = (draws.again[side] @ cells[side] for side in (0, 1))
    dealt_before, dealt_after = _dealt(cells, draws)

    def estimate(name: str, values: FloatArray, resampled: FloatArray) -> Interval:
        plain = float(values[0])
        excess = resampled.mean() - plain  # sampling adds to a distance, and adds as much again to a resample's
        low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2]) - 2 * excess
        if plain <= np.quantile(values[1:], confidence):
            low = 0.0  # chance alone goes so far: below it a resample's excess says nothing
        value, low, high = (max(float(number), 0.0) for number in (plain - excess, low, high))
        return Interval(value, low, high, confidence, draws.queries, "queries drawn anew, on both sides", name)

    psi = _psi(dealt_before, dealt_after, cells.bins)
    ks = None
    if cells.ordered > 1:
        distances = _ks(dealt_before, dealt_after, cells.ordered)
        ks = estimate("KS", distances, _ks(before, after, cells.ordered))
    return Test(cells, estimate("PSI", psi, _psi(before, after, cells.bins)), ks, float(psi[0]), psi[1:])


def corrected(statistics: Sequence[tuple[float, FloatArray]]) -> list[float]:
    """Return p-values for a family of statistics, each as met and as chance deals it out (Westfall and Young).

    p is how often the largest of all, under chance, reaches the statistic that was met.

    Chance moves a feature with many bins differently from one with two. Each statistic is about a multiple of χ², so
    Wilson and Hilferty's root makes them comparable: a feature's share of chance alarms does not depend on its bins.
    """
    roots = np.array([_rooted(np.append(by_chance, met)) for met, by_chance in statistics])
    largest = roots[:, :-1].max(axis=0)
    return [float((1 + np.count_nonzero(largest >= own - 1e-9)) / (1 + len(largest))) for own in roots[:, -1]]


def _rooted(values: FloatArray) -> FloatArray:
    """Turn values like χ² into about standard normal ones; their mean and spread tell the degrees of freedom.

    The value that was met is one of them, so that it is treated like every other.
    """
    mean, spread = values.mean(), values.std()
    if spread <= 1e-12 * max(mean, 1e-300):
        return np.full(len(values), -np.inf)  # a constant feature: no dealing moves it
    part = (spread / mean) ** 2 / 9  # 2 / (9 ν)
    return np.asarray((np.cbrt(values / mean) - (1 - part)) / np.sqrt(part))


def shifts(names: Sequence[str], tests: Sequence[Test], p: Sequence[float], least: float, alpha: float) -> list[Shift]:
    """Join the measures with their corrected p-values; an alarm needs both p ≤ `alpha` and PSI ≥ `least`."""
    shifted = []
    for name, test, corrected_p in zip(names, tests, p, strict=True):
        before, after = test.cells.shares()
        psi, ks = test.psi.value, None if test.ks is None else test.ks.value
        drifted = bool(corrected_p <= alpha and psi >= least)
        missing = float(before[-1]), float(after[-1])
        shifted.append(
            Shift(
                name=name,
                psi=psi,
                psi_interval=test.psi,
                ks=ks,
                ks_interval=test.ks,
                p=corrected_p,
                missing=missing,
                outside=test.cells.outside,
                drifted=drifted,
            )
        )
    return shifted
