"""Drift of one column between two sets of queries: PSI and KS statistic, bootstrap intervals and permutation tests.

The documents of a query are dependent, so the bootstrap resamples whole queries and the permutation test reassigns
whole queries to the two sets. Values are counted in cells: one between each pair of neighboring quantiles of the pooled
values, and one for missing values. Every resample then costs one matrix product. Quantiles of the reference alone would
bias the permutation test: the reference fills such cells evenly and never leaves its own range, unlike any permuted
set.
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

MAX_QUERIES = 20_000
"""Maximum number of queries per data set; larger sets are sampled, since intervals would hardly get shorter."""
_MAX_BLOCKS = 2_000  # more queries than this are resampled in blocks of equal size
_CELL_LEVELS = np.r_[np.linspace(0, 1, 51)[1:], 0.01, 0.99]  # quantile levels of the cell edges
_BIN_LEVELS = np.r_[
    0.01, np.linspace(0, 1, 11)[1:-1], 0.99
]  # quantile levels of the PSI bins: deciles, outermost ones split
_PSEUDOCOUNT = 0.5  # documents added to every PSI bin, because an empty bin would make PSI infinite


Counts = npt.NDArray[np.float32]


class CellCounts(NamedTuple):
    """Document counts by block of queries (rows) and cell (columns) in reference and new data.

    Attributes:
        reference: Counts in the reference data.
        new: Counts in the new data.
        bins: PSI bin of each cell.
        ordered: Number of leading cells that are ordered, for KS; 0 for categories.
        edges: Upper edges of the ordered cells. The first cell is empty, since it ends below the minimum.
        out_of_range: Share of new documents outside the range of the reference; for categories, with unknown levels.
    """

    reference: Counts
    new: Counts
    bins: IntArray
    ordered: int
    edges: FloatArray
    out_of_range: float

    def shares(self) -> tuple[FloatArray, FloatArray]:
        """Return the share of each cell in reference and new data."""
        before, after = self.reference.sum(axis=0), self.new.sum(axis=0)
        return before / before.sum(), after / after.sum()


class IntervalPairs(JsonObject):
    """Base of results whose JSON form represents intervals as pairs."""

    def _json_value(self, value: Any) -> Any:
        return to_json(list(value) if isinstance(value, Interval) else value)


@dataclass(frozen=True)
class FeatureDrift(IntervalPairs):
    """Drift of one feature, or of the scores.

    Attributes:
        name: name of the feature, or ``score``.
        psi: population stability index, corrected for sampling bias.
        psi_interval: confidence interval of `psi` over queries.
        ks: Kolmogorov–Smirnov statistic at fifty quantiles of the pooled data, corrected for sampling bias; None for
            categories.
        ks_interval: confidence interval of `ks`.
        p: p-value of the permutation test for equal distributions, adjusted for all features and scores.
        missing: share of missing values in reference and new data.
        out_of_range: share of new values outside the range of the reference; for categories, share of levels unknown to
            the model.
        drifted: whether the drift is significant and large enough for an alarm.
    """

    name: str
    psi: float
    psi_interval: Interval
    ks: float | None
    ks_interval: Interval | None
    p: float
    missing: tuple[float, float]
    out_of_range: float
    drifted: bool


def sample_queries(queries: Queries, rng: np.random.Generator) -> IntArray:
    """Return all queries, or a random sample of `MAX_QUERIES`."""
    n = len(queries)
    return np.arange(n) if n <= MAX_QUERIES else np.sort(rng.choice(n, MAX_QUERIES, replace=False))


class Resamples:
    """Bootstrap resamples and permutations of blocks of queries, shared by all features.

    Blocks have the same size in both data sets.
    """

    def __init__(self, n_reference: int, n_new: int, n_resamples: int, rng: np.random.Generator) -> None:
        size = max(1, min(-(-(n_reference + n_new) // _MAX_BLOCKS), n_new // 50, n_reference // 50))
        self.queries = n_reference + n_new
        self.block_of = tuple(rng.permutation(n) // size for n in (n_reference, n_new))
        self.blocks = tuple(-(-n // size) for n in (n_reference, n_new))
        self.bootstrap = tuple(_bootstrap_counts(n, n_resamples, rng) for n in self.blocks)
        first, total = self.blocks[0], sum(self.blocks)
        order = rng.random((n_resamples, total), dtype=np.float32).argpartition(first - 1, axis=1)
        self.permutations = np.zeros((n_resamples, total), dtype=np.float32)
        np.put_along_axis(self.permutations, order[:, :first], 1.0, axis=1)

    def squared_mean_difference(self, values: Sequence[FloatArray]) -> tuple[float, FloatArray]:
        """Return the squared difference of means of a per-query value, observed and for each permutation."""
        joined = np.concatenate([self.block_of[0], self.block_of[1] + self.blocks[0]])
        sums, sizes = (np.bincount(joined, each, sum(self.blocks)) for each in (np.concatenate(values), None))
        observed = np.arange(len(sums)) < self.blocks[0]
        assigned = np.concatenate([observed[None], self.permutations]).astype(np.float64)
        first, second = ((rows @ sums) / (rows @ sizes) for rows in (assigned, 1 - assigned))
        apart = (first - second) ** 2
        return float(apart[0]), apart[1:]


def _bootstrap_counts(n: int, n_resamples: int, rng: np.random.Generator) -> Counts:
    """Return how often each of n blocks occurs in each bootstrap resample."""
    drawn = np.sort(rng.integers(0, n, (n_resamples, n)) + n * np.arange(n_resamples)[:, None], axis=None)
    return np.bincount(drawn, minlength=n * n_resamples).reshape(n_resamples, n).astype(np.float32)


def count_cells(
    reference: FloatArray, new: FloatArray, blocks: Sequence[IntArray], n_blocks: Sequence[int], levels: int = 0
) -> CellCounts:
    """Count values in cells. `blocks` is the block of each document, `levels` the number of category levels or 0.

    Missing values are NaN. Codes outside 0 to `levels` - 1 are unknown levels and share a cell.
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
        out_of_range = float(by_side[1][:, levels].sum() / len(new))
        return CellCounts(by_side[0], by_side[1], np.arange(count + 1), 0, edges, out_of_range)
    bins = _bins(by_side[0].sum(axis=0) + by_side[1].sum(axis=0))
    known = reference[~np.isnan(reference)]
    beyond = (new < known.min()) | (new > known.max()) if len(known) else ~np.isnan(new)
    return CellCounts(by_side[0], by_side[1], bins, count, edges, float(beyond.mean()))


def _edges(values: FloatArray) -> FloatArray:
    """Return unique edges: one below the range, the quantiles, and the maximum."""
    values = values[~np.isnan(values)]
    if not len(values):
        return np.empty(0)
    inner = np.unique(np.quantile(values, _CELL_LEVELS, method="higher"))
    return np.concatenate([[np.nextafter(values.min(), -np.inf)], inner])


def _bins(counts: Counts) -> IntArray:
    """Return the bin of each cell by its median document; missing values (last cell) have a separate bin."""
    inner = counts[:-1]
    middles = (np.cumsum(inner) - inner / 2) / max(inner.sum(), 1)
    inside = np.unique(np.searchsorted(_BIN_LEVELS, middles), return_inverse=True)[1].reshape(-1)
    return np.append(inside, inside.max(initial=-1) + 1)


def _psi(before: Counts, after: Counts, bins: IntArray) -> FloatArray:
    """Return the population stability index Σ (q - p) log(q / p) for each row of counts."""
    shares = []
    for counts in (before, after):
        starts = np.flatnonzero(np.r_[True, np.diff(bins) > 0])
        binned = np.add.reduceat(counts.astype(np.float64), starts, axis=-1) + _PSEUDOCOUNT
        shares.append(binned / binned.sum(axis=-1, keepdims=True))
    p, q = shares
    return np.asarray(((q - p) * np.log(q / p)).sum(axis=-1))


def _ks(before: Counts, after: Counts, ordered: int) -> FloatArray:
    """Return max |F - G| over the edges of ordered cells for each row of counts, without missing values."""
    curves = []
    for counts in (before, after):
        reached = np.cumsum(counts[..., :ordered].astype(np.float64), axis=-1)
        curves.append(reached / np.maximum(reached[..., -1:], 1))
    return np.asarray(np.abs(curves[0] - curves[1]).max(axis=-1))


class DriftTest(NamedTuple):
    """Drift statistics of one feature, before p-values are adjusted for multiple testing.

    Attributes:
        cells: Cell counts.
        psi: PSI with its interval.
        ks: KS statistic with its interval; None for categories.
        observed: PSI without bias correction.
        permuted: PSI of each permutation.
    """

    cells: CellCounts
    psi: Interval
    ks: Interval | None
    observed: float
    permuted: FloatArray


def _permuted_counts(cells: CellCounts, resampling: Resamples) -> tuple[Counts, Counts]:
    """Return the counts of both data sets: first row as observed, then one row per permutation."""
    both = np.concatenate([cells.reference, cells.new])
    first = np.concatenate([cells.reference.sum(axis=0)[None], resampling.permutations @ both])
    return first, both.sum(axis=0) - first


def measure_drift(cells: CellCounts, resampling: Resamples, confidence: float) -> DriftTest:
    """Compute PSI and KS with bootstrap intervals, and the permutation distribution of PSI."""
    before, after = (resampling.bootstrap[side] @ cells[side] for side in (0, 1))
    permuted_before, permuted_after = _permuted_counts(cells, resampling)

    def estimate(name: str, values: FloatArray, resampled: FloatArray) -> Interval:
        plain = float(values[0])
        excess = (
            resampled.mean() - plain
        )  # estimate of the sampling bias, by which a resample exceeds the observed value
        low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2]) - 2 * excess
        if plain <= np.quantile(values[1:], confidence):
            low = 0.0  # within the permutation distribution, the bias estimate is unreliable
        value, low, high = (max(float(number), 0.0) for number in (plain - excess, low, high))
        return Interval(
            value, low, high, confidence, resampling.queries, "bootstrap over queries of both data sets", name
        )

    psi = _psi(permuted_before, permuted_after, cells.bins)
    ks = None
    if cells.ordered > 1:
        distances = _ks(permuted_before, permuted_after, cells.ordered)
        ks = estimate("KS", distances, _ks(before, after, cells.ordered))
    return DriftTest(cells, estimate("PSI", psi, _psi(before, after, cells.bins)), ks, float(psi[0]), psi[1:])


def adjusted_p_values(statistics: Sequence[tuple[float, FloatArray]]) -> list[float]:
    """Return Westfall–Young max-T adjusted p-values; each statistic is given as observed and permuted values.

    The null distribution of PSI depends on the number of bins. It is approximately a scaled χ² distribution, so the
    Wilson–Hilferty transformation makes features with different numbers of bins comparable.
    """
    roots = np.array([_to_normal(np.append(permuted, observed)) for observed, permuted in statistics])
    largest = roots[:, :-1].max(axis=0)
    return [float((1 + np.count_nonzero(largest >= own - 1e-9)) / (1 + len(largest))) for own in roots[:, -1]]


def _to_normal(values: FloatArray) -> FloatArray:
    """Transform χ²-like values to approximately standard normal ones (Wilson–Hilferty).

    Degrees of freedom are estimated from mean and standard deviation, including the observed value.
    """
    mean, spread = values.mean(), values.std()
    if spread <= 1e-12 * max(mean, 1e-300):
        return np.full(len(values), -np.inf)  # a constant feature has no drift in any permutation
    part = (spread / mean) ** 2 / 9  # 2 / (9 ν)
    return np.asarray((np.cbrt(values / mean) - (1 - part)) / np.sqrt(part))


def feature_drifts(
    names: Sequence[str], tests: Sequence[DriftTest], p: Sequence[float], min_psi: float, alpha: float
) -> list[FeatureDrift]:
    """Combine statistics and adjusted p-values; drift requires p ≤ `alpha` and PSI ≥ `min_psi`."""
    shifted = []
    for name, test, adjusted_p in zip(names, tests, p, strict=True):
        before, after = test.cells.shares()
        psi, ks = test.psi.value, None if test.ks is None else test.ks.value
        drifted = bool(adjusted_p <= alpha and psi >= min_psi)
        missing = float(before[-1]), float(after[-1])
        shifted.append(
            FeatureDrift(
                name=name,
                psi=psi,
                psi_interval=test.psi,
                ks=ks,
                ks_interval=test.ks,
                p=adjusted_p,
                missing=missing,
                out_of_range=test.cells.out_of_range,
                drifted=drifted,
            )
        )
    return shifted
