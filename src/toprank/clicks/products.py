"""Click models with P(click) = attraction of the document × examination of its place: PBM and UBM.

The places of `PBM` are positions; those of `UBM` also depend on the last click above. Chain models are in `cascades`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import kernels
from toprank.clicks.em import Maximum, ascend, blocks, climb, inside, maximize
from toprank.clicks.features import AttractionByFeatures, same_features
from toprank.clicks.intervention_harvesting import SWAP, check_compared, components, relative_examinations
from toprank.clicks.log import ClickLog, UnidentifiedWarning, sums, sums_by
from toprank.clicks.models import ClickModel, by_rank, check_depth
from toprank.compute import FloatArray, IntArray, each_block
from toprank.data.dataset import RankingData
from toprank.errors import warn_user

_MAX_TABLE_PLACES = 1 << 12  # above it, sorting takes less memory than a table of pairs
_MAX_NEWTON_PARAMETERS = 256  # above it, the Hessian costs more than it saves


class ProductCells(NamedTuple):
    """Weighted counts of impressions and clicks of each pair at each place, sorted by pair."""

    begins: IntArray  # index of the first cell of each pair, and the number of cells
    pair: npt.NDArray[np.int32]
    place: npt.NDArray[np.int32]
    shown: FloatArray
    clicked: FloatArray
    n_places: int

    @classmethod
    def from_log(cls, log: ClickLog, place: IntArray, n_places: int, weights: FloatArray) -> Self:
        """Count the cells of a log, given the place of each impression."""
        if (
            log.weights is None and log.n_pairs * n_places <= log.n_impressions < 2**31
        ):  # a table is smaller than the log
            counts = np.empty((log.n_pairs * n_places, 2), dtype=np.int32)
            kernels.count_cells(log.pair, place, log.clicks.view(np.uint8), n_places, counts)
            cells = np.flatnonzero(counts[:, 0])
            weight = weights[log.pair_query[cells // n_places]]
            shown, clicked = counts[cells, 0] * weight, counts[cells, 1] * weight
        else:
            weight = log.reweighted(weights)
            cells, (shown, clicked) = sums_by(log.pair * n_places + place, weight, weight * log.clicks)
        pair = (cells // n_places).astype(np.int32)
        begins = np.searchsorted(pair, np.arange(log.n_pairs + 1))
        return cls(begins, pair, (cells % n_places).astype(np.int32), shown, clicked, n_places)

    def fit(
        self,
        prior: tuple[float, float],
        tolerance: float,
        max_iterations: int,
        threads: int | None = None,
        learner: AttractionByFeatures | None = None,
        start: FloatArray | None = None,
    ) -> Maximum:
        """Return the maximum-likelihood attraction of each pair, followed by the examination of each place."""
        n, m, (a, b) = len(self.begins) - 1, self.n_places, prior
        shown = np.concatenate([sums(self.pair, self.shown, n), sums(self.place, self.shown, self.n_places)])
        parts = blocks(n)

        def step(both: FloatArray) -> tuple[FloatArray, float]:
            attracted, examined = np.empty(n), np.zeros((len(parts), self.n_places))

            def part(number: int) -> float:
                parameters = (both[:n], both[n:], *parts[number], True, attracted, examined[number])
                return float(kernels.product_sums(*self[:5], *parameters))

            value = sum(each_block(part, range(len(parts)), threads))
            shrunk = both if learner is None else both[n:]
            value += float(kernels.beta_prior(shrunk, a, b))
            better = (np.concatenate([attracted, examined.sum(axis=0)]) + a) / (shown + a + b)
            if learner is not None:
                better[:n] = learner(attracted, shown[:n])
            return inside(better), value

        if start is None:
            rates = (sums(self.pair, self.clicked, n) + a) / (shown[:n] + a + b)
            start = np.concatenate([rates, np.full(self.n_places, 0.5)])
        if learner is not None:
            return climb(step, start, tolerance, max_iterations)
        counts = self.shown > 0
        joined = joined_places(self.pair[counts], self.place[counts], self.n_places)

        def read(both: FloatArray) -> FloatArray:
            """Return the identified quantities: ratios of the examinations of connected places."""
            examined = both[-self.n_places :][joined]
            return np.asarray(examined / examined.max())

        if self.n_places > _MAX_NEWTON_PARAMETERS:
            return maximize(step, start, tolerance, max_iterations, read)
        attraction = inside(start[:n])

        def profile(examination: FloatArray) -> tuple[FloatArray, FloatArray]:
            """Return the gradient and negative Hessian of the profile likelihood in the log examinations."""
            slopes, curvatures = np.zeros((len(parts), m)), np.zeros((len(parts), m, m))

            def part(number: int) -> None:
                cells = self.begins, self.place, self.shown, self.clicked
                results = attraction, slopes[number], curvatures[number], np.empty((3, m))
                kernels.profile_of_places(*cells, examination, a, b, *parts[number], *results)

            each_block(part, range(len(parts)), threads)
            own = b * examination / (1 - examination)
            slope, curvature = slopes.sum(axis=0) + a - own, curvatures.sum(axis=0)
            curvature[np.diag_indices(m)] += own / (1 - examination)
            return slope, curvature

        examination, steps, converged = ascend(profile, inside(start[n:]), tolerance, max_iterations, read)
        at = np.concatenate([inside(attraction), examination])
        return Maximum(at, step(at)[1], steps, converged)


class _Product(ClickModel):
    """Base class of models with P(click) = attraction of the document × examination of the place.

    `identified_` marks the examinations that the log compares with the first position, through a chain of documents
    shown at several places. The others rest on the prior, or on the form of the ranker if the attraction is learned
    from features.
    """

    shared: ClassVar[tuple[str, ...]] = ("examination",)
    ratios: ClassVar[bool] = True
    examination_: FloatArray
    identified_: npt.NDArray[np.bool_]

    @classmethod
    def from_parameters(cls, examination: npt.ArrayLike) -> Self:
        """Return a model with these examinations, for simulation."""
        model = cls()
        model.examination_ = np.asarray(examination, dtype=np.float64)
        return model

    @abstractmethod
    def _places(self, log: ClickLog) -> tuple[IntArray, int]:
        """Return the index of the place of each impression, and the number of places."""

    @abstractmethod
    def _keep(self, attraction: FloatArray, examination: FloatArray, depth: int) -> None:
        """Store the fitted parameters, rescaled by convention."""

    def _fit(self, log: ClickLog, weights: FloatArray, threads: int | None) -> None:
        cells = ProductCells.from_log(log, *self._places(log), weights)
        tolerance = self.tolerance * log.n_impressions
        fitted = cells.fit(self.prior_, tolerance, self.max_iterations, threads, self._learner, self._begin)
        self._end(fitted)
        self._keep(fitted.at[: log.n_pairs], fitted.at[log.n_pairs :], log.depth)

    @override
    def _unidentified(self, log: ClickLog, fits: FloatArray, mean: float) -> npt.NDArray[np.bool_]:
        """Return which places have no click or are not connected to the first; all if the first has no click."""
        place, n_places = self._places(log)
        silent = sums(place, log.clicks, n_places) == 0
        if self.attraction is None:
            silent |= ~joined_places(log.pair, place, n_places)
        return np.asarray(silent | silent[0]).reshape(fits.shape[1:])

    def _look_at_joints(self, log: ClickLog, data: RankingData | None) -> None:
        place, n_places = self._places(log)
        by_features = self.attraction is not None and data is not None
        pair = same_features(log, data)[log.pair] if by_features and data is not None else log.pair
        joined = joined_places(pair, place, n_places)
        self.identified_ = joined.reshape(self.examination_.shape)
        seen, compared = (np.bincount(log.position[of], minlength=log.depth + 1) > 0 for of in (..., joined[place]))
        lost = np.flatnonzero(seen & ~compared).tolist()
        if not lost:
            return
        several, rests = len(lost) > 1, "the form of the ranker" if by_features else "its prior"
        which = f"position{'s' if several else ''} {', '.join(map(str, lost[:10]))}{' …' if len(lost) > 10 else ''}"
        warn_user(
            f"No document{' and no feature vector' if by_features else ''} connects {which} to the first, so the "
            f"estimate of {type(self).__name__} for {'them' if several else 'it'} rests on {rests} alone. {SWAP}",
            UnidentifiedWarning,
        )

    def _looked(self, log: ClickLog) -> FloatArray:
        check_depth(self, log, len(self.examination_))
        return self.examination_[log.position - 1]

    @override
    def click_probabilities(self, log: ClickLog, *, conditional: bool = True) -> FloatArray:
        """Return attraction times examination."""
        return self._of_pairs("attraction_", log)[log.pair] * self._looked(log)


def joined_places(
    pair: npt.NDArray[np.signedinteger[Any]], place: npt.NDArray[np.signedinteger[Any]], n_places: int
) -> npt.NDArray[np.bool_]:
    """Return whether each place is connected to the first, from the pair and the place of each impression.

    >>> joined_places(np.array([0, 0, 1, 1, 2]), np.array([0, 2, 2, 1, 3]), 4).tolist()
    [True, True, True, False]
    """
    from scipy.sparse import coo_array

    place_of = np.zeros(int(pair.max(initial=-1)) + 1, dtype=np.int64)
    place_of[pair] = place  # any one place of the pair, which connects all of them
    joined = place.astype(np.int64) * n_places + place_of[pair]
    if n_places <= _MAX_TABLE_PLACES:
        table = np.zeros(n_places**2, dtype=bool)
        table[joined] = True
        edges = np.flatnonzero(table)
    else:
        edges = np.unique(joined)
    ends = edges // n_places, edges % n_places
    label = components(coo_array((np.ones(len(edges), dtype=bool), ends), shape=(n_places, n_places)))
    return np.asarray(label == label[0])


class PBM(_Product):
    """The position-based model: a position is examined with its own probability, whatever document it shows.

    Only ratios of examinations are identified, so that of the first position is set to 1.

    >>> log = ClickLog.from_columns(["q"] * 4, ["a", "b", "b", "a"], [1, 2, 1, 2], [1, 0, 1, 0])
    >>> bool(PBM().fit(log).examination_[0] == 1)
    True
    """

    def _places(self, log: ClickLog) -> tuple[IntArray, int]:
        return log.position - 1, log.depth

    @override
    def _keep(self, attraction: FloatArray, examination: FloatArray, depth: int) -> None:
        self.scale_ = float(examination[0])
        self.examination_, self.attraction_ = examination / self.scale_, attraction * self.scale_

    @override
    def _hardly_shrunk(
        self,
        log: ClickLog,
        data: RankingData | None,
        weights: FloatArray | None = None,
        begin: FloatArray | None = None,
    ) -> Self:
        """Fit the examinations by the conditional likelihood of click positions, which has no small-sample bias."""
        if self.attraction is not None:
            return super()._hardly_shrunk(log, data, weights, begin)
        model = type(self)()
        model.prior_ = self._weak_prior(log)
        counted = np.ones(log.n_queries) if weights is None else weights
        cells = ProductCells.from_log(log, *self._places(log), counted)
        counts = (cells.begins, cells.place, cells.shown, cells.clicked, cells.n_places)
        model.examination_, model.converged_ = relative_examinations(*counts, model.prior_[0])
        model.log_ = log
        return model

    @override
    def _refits(self, best: Self, log: ClickLog, weights: FloatArray | None, seed: int) -> list[dict[str, FloatArray]]:
        """Return no refits, because the estimate has no small-sample bias."""
        return []

    @override
    def sample_clicks(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Sample the click of each impression independently."""
        return rng.random(log.n_impressions) < attraction * self._looked(log)


class UBM(_Product):
    """The user browsing model: the examination of a position depends on the position of the last click above it.

    `examination_[k, j]` belongs to position k + 1 with the last click at position j ≤ k; j = 0 means no click. That of
    the first position is 1.
    """

    def _places(self, log: ClickLog) -> tuple[IntArray, int]:
        check_compared(log)
        return (log.position - 1) * (log.depth + 1) + last_click(log), log.depth * (log.depth + 1)

    def _keep(self, attraction: FloatArray, examination: FloatArray, depth: int) -> None:
        self.scale_ = float(examination[0])
        self.attraction_ = attraction * self.scale_
        self.examination_ = np.tril((examination / self.scale_).reshape(depth, depth + 1))

    def _looked(self, log: ClickLog) -> FloatArray:
        check_depth(self, log, len(self.examination_))
        return self.examination_[log.position - 1, last_click(log)]

    def click_probabilities(self, log: ClickLog, *, conditional: bool = True) -> FloatArray:
        """Return attraction times examination; marginal probabilities sum over the positions of the last click."""
        if conditional:
            return super().click_probabilities(log)
        attraction, chance = self._of_pairs("attraction_", log), np.empty(log.n_impressions)
        table = np.zeros((len(self.examination_) + 1, len(self.examination_) + 1))
        table[1:] = self.examination_[:, : len(self.examination_) + 1]
        self._looked(log)
        each_block(
            lambda part: kernels.browsing_chances(
                log.offsets, log.pair, log.position, attraction, table, *part, chance
            ),
            blocks(log.n_sessions),
        )
        return chance

    @override
    def sample_clicks(
        self, log: ClickLog, attraction: FloatArray, satisfaction: FloatArray, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Sample clicks from the top, given the last click."""
        last, clicks = np.zeros(log.n_sessions, dtype=np.int64), np.zeros(log.n_impressions, dtype=bool)
        uniform = rng.random(log.n_impressions)
        for rows, sessions in by_rank(log):
            chance = self.examination_[log.position[rows] - 1, last[sessions]] * attraction[rows]
            clicks[rows] = uniform[rows] < chance
            last[sessions] = np.where(clicks[rows], log.position[rows], last[sessions])
        return clicks


def last_click(log: ClickLog) -> IntArray:
    """Return the position of the last click above each impression in its session; 0 if there is none.

    >>> last_click(ClickLog.from_columns(["q"] * 4, list("abcd"), [1, 2, 3, 4], [0, 1, 0, 1])).tolist()
    [0, 0, 2, 2]
    """
    span = np.int64(log.depth + 1)
    here = log.session * span + np.where(log.clicks, log.position, 0)
    before = np.maximum.accumulate(np.r_[0, here[:-1]]) if len(here) else here
    return np.maximum(before - log.session * span, 0)
