"""Synthetic data with known P(grade | x) for every document, so that regret can be computed exactly.

The score of a document is a known function of its features, s(x). Its grade follows the ordinal model

    P(y >= k | x) = 1 / (1 + exp(-(s(x) - t_k) / noise)),      t_1 <= t_2 <= ... <= t_{K-1},

with thresholds t_k such that a fraction ∝ exp(-skew k) of the documents has grade k. Given the features, grades are
independent.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import Array, FloatArray, blocks_of, each_block
from toprank.data.arrays import precision
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError

Words = npt.NDArray[np.uint64]


def mixed_words(words: Words) -> Words:
    """Mix words bijectively, so that every output bit depends on every input bit (finalizer of splitmix64)."""
    x = words.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


# Maximum number of documents to fit thresholds; the standard error of a grade's fraction is then √(1/4 / 100,000) =
# 0.0016.
_THRESHOLD_DOCUMENTS = 100_000
_TYPICAL = 20_000  # documents to fit the true model with `truth_seed`, independent of the sampled data


def synthetic(
    n_queries: int = 200,
    n_documents: int | tuple[int, int] = (5, 40),
    n_features: int = 10,
    *,
    n_grades: int = 5,
    truth: Literal["linear", "nonlinear"] = "linear",
    skew: float = 1.0,
    noise: float = 0.5,
    n_irrelevant: int = 0,
    query_effect: float = 0.0,
    dtype: npt.DTypeLike = np.float32,
    seed: int = 0,
    truth_seed: int | None = None,
) -> SyntheticData:
    """Sample queries, features and grades from a known model.

    Args:
        n_queries: number of queries.
        n_documents: number of documents per query, or (minimum, maximum) of a uniform distribution.
        n_features: number of features, all standard normal.
        n_grades: number of grades, 0 … n_grades - 1.
        truth: s(x) is ``"linear"``, w·x, or ``"nonlinear"``, Σ w_c (sin 2x_c + x_c x_{c+1}), standardized.
        skew: rarity of high grades: a fraction ∝ exp(-skew k) of the documents has grade k. 0 makes all grades equally
            frequent.
        noise: temperature of the grades around s(x), which has standard deviation 1; 0 makes grades a function of x.
        n_irrelevant: number of features without effect.
        query_effect: standard deviation of a shift common to all documents of a query. It is also a feature, constant
            within the query, so that P(grade | x) stays known.
        dtype: float32 or float64.
        seed: random seed.
        truth_seed: random seed of s(x) and the thresholds. Use the same value to sample training and test data from the
            same model with different seeds. None: the model also depends on `seed`.

    >>> data = synthetic(n_queries=3, n_documents=4, n_features=2)
    >>> data
    SyntheticData(3 queries, 12 documents, 2 features, dense float32, grades 0-3)
    >>> data.probabilities.shape, data.expected_gain().shape
    ((12, 5), (12,))
    """
    if truth not in ("linear", "nonlinear"):
        raise UnknownNameError("truth", str(truth), ("linear", "nonlinear"))
    shared = 1 if query_effect else 0
    effective = n_features - n_irrelevant - shared
    if n_irrelevant < 0 or effective < 1:
        kinds = f"{n_irrelevant} irrelevant" + (" and one for the query effect" if shared else "")
        raise DataError(f"{n_features} features, {kinds}: none is left to decide the grades; increase n_features.")
    if n_queries < 1 or n_grades < 2 or not (skew >= 0 and noise >= 0 and query_effect >= 0):
        raise DataError("n_queries must be at least 1, n_grades at least 2, skew, noise and query_effect at least 0.")
    rng = np.random.default_rng(seed)
    queries = _draw_queries(n_queries, n_documents, rng)
    X = rng.standard_normal((queries.n_documents, n_features)).astype(precision(dtype))
    if shared:
        X[:, effective] = queries.broadcast(X[queries.offsets[:-1], effective])
    known = rng if truth_seed is None else np.random.default_rng([truth_seed, 2])
    weights = known.uniform(0.5, 1.0, effective) * known.choice([-1.0, 1.0], effective)
    typical = X if truth_seed is None else known.standard_normal((_TYPICAL, effective + shared))
    scores = _true_scores(X, typical, weights, truth, query_effect)
    among = scores if truth_seed is None else _true_scores(typical, typical, weights, truth, query_effect)
    names = [f"effective_{c + 1}" for c in range(effective)] + ["query"] * shared
    data = SyntheticData.from_probabilities(X, _ordinal(scores, among, n_grades, skew, noise), queries, seed)
    return data._with(feature_names=(*names, *(f"irrelevant_{c + 1}" for c in range(n_irrelevant))))


def _draw_queries(n_queries: int, n_documents: int | tuple[int, int], rng: np.random.Generator) -> Queries:
    smallest, largest = (n_documents, n_documents) if isinstance(n_documents, int) else n_documents
    if not 1 <= smallest <= largest:
        raise DataError(f"n_documents must be a number or (minimum, maximum), at least 1, not {n_documents}.")
    return Queries.from_sizes(rng.integers(smallest, largest, n_queries, endpoint=True))


def _true_scores(X: Array, typical: Array, weights: FloatArray, truth: str, query_effect: float) -> FloatArray:
    """Return s(x), with standard deviation 1 over typical documents, plus the query effect."""
    x, usual = (matrix[:, : len(weights)].astype(np.float64) for matrix in (X, typical))
    if truth == "linear":
        scores: FloatArray = x @ (weights / np.linalg.norm(weights))
    else:
        raw, among = ((np.sin(2 * values) + values * np.roll(values, -1, axis=1)) @ weights for values in (x, usual))
        scores = np.asarray((raw - among.mean()) / (among.std() or 1.0))
    return scores + query_effect * X[:, len(weights)] if query_effect else scores


def _ordinal(scores: FloatArray, among: FloatArray, n_grades: int, skew: float, noise: float) -> FloatArray:
    """Return P(grade | x) of the ordinal model, with thresholds fitted by bisection to the requested fractions."""
    shares = np.exp(-skew * np.arange(n_grades))
    wanted = 1 - np.cumsum(shares / shares.sum())[:-1]  # P(y >= k) for k = 1 … K-1
    some = among[:: -(-len(among) // _THRESHOLD_DOCUMENTS)]
    spread = np.abs(some).max() + 50 * noise + 1  # tanh(25) is 1 in float64, so the bounds enclose every fraction
    low, high = np.full(n_grades - 1, -spread), np.full(n_grades - 1, spread)
    for _ in range(60):
        middle = (low + high) / 2
        too_many = np.array([_at_least(some, t, noise).mean() for t in middle]) > wanted
        low, high = np.where(too_many, middle, low), np.where(too_many, high, middle)
    # Bisection is exact up to rounding; sorting prevents equal thresholds from crossing.
    above = np.column_stack([_at_least(scores, t, noise) for t in np.sort(high)])
    ones, zeros = np.ones((len(scores), 1)), np.zeros((len(scores), 1))
    return np.hstack([ones, above]) - np.hstack([above, zeros])


def _at_least(scores: FloatArray, threshold: float, noise: float) -> FloatArray:
    """Return P(y >= k | s), a logistic function of width `noise`."""
    if noise == 0:
        return (scores > threshold).astype(np.float64)
    return np.asarray(0.5 * (1 + np.tanh((scores - threshold) / (2 * noise))))


class SyntheticData(RankingData):
    """`RankingData` with known P(grade | x), which subsets (`select`, folds, splits) preserve.

    Attributes:
        probabilities: array with one row for each document and one column for each grade 0, 1 …; rows add up to 1.
    """

    probabilities: FloatArray

    def __init__(self, X: Any, y: npt.ArrayLike, *, probabilities: npt.ArrayLike, **rest: Any) -> None:
        if rest.get("regroup"):
            raise DataError("SyntheticData does not support regroup=True, which would not reorder the probabilities.")
        super().__init__(X, y, **(rest | {"regroup": False}))
        object.__setattr__(self, "probabilities", _checked(probabilities, self.n_documents))

    @classmethod
    def from_probabilities(cls, X: Any, probabilities: npt.ArrayLike, queries: Queries, seed: int = 0) -> SyntheticData:
        """Build data from P(grade | x) (documents × grades); labels are sampled from it with `seed`."""
        checked = _checked(probabilities, queries.n_documents)
        return cls(X, _draw(checked, seed), probabilities=checked, queries=queries)

    def resample(self, seed: int) -> SyntheticData:
        """Return the same documents with newly sampled labels."""
        return self._with(labels=_draw(self.probabilities, seed))

    def expected_gain(self, gains: npt.ArrayLike | None = None) -> FloatArray:
        """Return the DCG-optimal scores E[G(y) | x] = Σ_k G(k) P(y = k | x).

        Args:
            gains: G for each grade. Default: 2^k - 1.
        """
        return np.asarray(self.probabilities @ self._gains(gains))

    def ndcg_optimal(
        self,
        gains: npt.ArrayLike | None = None,
        discounts: npt.ArrayLike | None = None,
        k: int | None = 10,
        samples: int = 2000,
        seed: int = 0,
        *,
        threads: int | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return Monte Carlo estimates of the NDCG@k-optimal scores E[G(y_j) / IDCG@k(y) | X] and their standard
        errors.

        Their order can differ from that of `expected_gain`: a certain small gain can beat a rare large one, because the
        large gain also increases the ideal DCG. Lists without gain contribute 0.

        Args:
            gains: G for each grade, not negative. Default: 2^k - 1.
            discounts: F for each rank; the gain at rank j counts G / F(j). Default: log2(1 + j).
            k: cutoff of the ideal DCG. None uses the whole list.
            samples: number of sampled label vectors per query.
            seed: random seed; the result does not depend on the number of threads.
            threads: number of threads. Default: all cores.

        Returns:
            Scores and standard errors, one of each for every document.
        """
        if samples < 2:
            raise DataError(f"samples must be at least 2 to estimate standard errors, not {samples}.")
        table = self._gains(gains)
        if table.min() < 0:
            raise DataError("gains must not be negative for NDCG.")
        depth = _cumulative_discounts(discounts, k, int(self.queries.sizes.max()))
        total, squares = np.zeros(self.n_documents), np.zeros(self.n_documents)
        cumulative = np.cumsum(self.probabilities, axis=1)
        order, offsets = np.argsort(-table, kind="stable"), self.queries.offsets
        key = np.uint64(seed % 2**64)

        def run(block: tuple[int, int]) -> None:
            kernels.sample_ratios(cumulative, table, order, depth, offsets, *block, samples, key, total, squares)

        each_block(run, blocks_of(offsets, 256), threads)
        mean = total / samples
        variance = np.maximum(squares / samples - mean**2, 0) * samples / (samples - 1)
        return mean, np.sqrt(variance / samples)

    def _gains(self, gains: npt.ArrayLike | None) -> FloatArray:
        n_grades = self.probabilities.shape[1]
        table = np.asarray(2.0 ** np.arange(n_grades) - 1 if gains is None else gains, dtype=np.float64)
        if table.shape != (n_grades,) or not np.isfinite(table).all():
            raise DataError(f"gains must be {n_grades} finite numbers, one for each grade.")
        return table

    def _with(self, **changes: Any) -> SyntheticData:
        """Return a copy with some fields changed, without checks."""
        copy = object.__new__(SyntheticData)
        probabilities = changes.pop("probabilities", self.probabilities)
        copy._set(**(self._values() | changes))
        probabilities.flags.writeable = False
        object.__setattr__(copy, "probabilities", probabilities)
        return copy

    def _rows(self, rows: Array | slice, queries: Queries, chosen: Array) -> SyntheticData:
        part = super()._rows(rows, queries, chosen)
        return self._with(**part._values(), probabilities=self.probabilities[rows])


def _checked(probabilities: npt.ArrayLike, n: int) -> FloatArray:
    """Validate probabilities; return a read-only matrix whose rows are distributions."""
    table = np.array(probabilities, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != n or table.shape[1] < 1:
        raise DataError(f"probabilities must have one row for each of {n} documents, and one column for each grade.")
    wrong = ~((table >= 0).all(axis=1) & (np.abs(table.sum(axis=1) - 1) < 1e-9))  # tolerance for rounding
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"The probabilities of row {row} are not a distribution: {table[row].tolist()}.")
    table.flags.writeable = False
    return table


def _draw(probabilities: FloatArray, seed: int) -> FloatArray:
    """Sample one grade for each document."""
    u = np.random.default_rng([seed, 1]).random((len(probabilities), 1))
    steps = np.cumsum(probabilities, axis=1)[:, :-1]
    return np.asarray((u >= steps).sum(axis=1), dtype=np.float64)


def _cumulative_discounts(discounts: npt.ArrayLike | None, k: int | None, longest: int) -> FloatArray:
    """Return Σ_{j <= r} 1/F(j) for r = 0 … min(k, longest)."""
    if k is not None and k < 1:
        raise DataError(f"k must be at least 1, not {k}.")
    depth = longest if k is None else min(k, longest)
    table = np.log2(np.arange(2, depth + 2)) if discounts is None else np.asarray(discounts, dtype=np.float64)
    if table.ndim != 1 or len(table) < depth or not (table[:depth] > 0).all():
        raise DataError(f"discounts must be at least {depth} positive numbers, one for each rank up to the cut-off.")
    return np.concatenate([[0.0], np.cumsum(1 / table[:depth])])
