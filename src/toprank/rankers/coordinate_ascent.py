"""Coordinate ascent: a linear ranker that climbs a metric directly, one weight at a time (Metzler & Croft 2007)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray
from toprank.data.checks import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.metrics.evaluation import Judge
from toprank.rankers.base import Ranker, warn_unconverged
from toprank.rankers.schema import Numbers
from toprank.scorers.features import Features, Standardisation

__all__ = ["CoordinateAscent"]


@dataclass(kw_only=True, eq=False, repr=False)
class CoordinateAscent(Ranker):
    """Maximise a metric over w by line searches along the coordinates, from several starts.

    Each search tries steps of growing size in both directions and keeps the best; a cycle over all features (in random
    order) is repeated until it gains less than `tolerance`. The metric is not smooth, so this finds a local optimum.

    Args:
        metric: the metric to climb.
        convention: its rules.
        restarts: starts; the first from equal weights, the others from random ones.
        max_cycles: at most so many cycles per start.
        tolerance: the least gain of a cycle worth another.
        steps: number of step sizes tried in each direction.
        first_step: the smallest step, as a share of the weight (or of 1 where it is 0); each next one doubles.
        seed: decides orders and random starts.
        threads: number of threads; results do not depend on it.

    After fitting: `coef_` on the scale of the raw features; the start that is best on `valid` is kept where given.
    """

    saved_arrays: ClassVar[Mapping[str, Numbers]] = {"coef_": Numbers("features")}
    standardises: ClassVar[bool] = True

    metric: str = "ndcg@10"
    convention: str = "standard"
    restarts: int = 3
    max_cycles: int = 25
    tolerance: float = 1e-3
    steps: int = 10
    first_step: float = 0.05
    seed: int = 0
    threads: int | None = None

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        for name in ("restarts", "max_cycles", "steps"):
            check_whole(name, getattr(self, name), 1)
        check_number("first_step", self.first_step, above=0)
        check_number("tolerance", self.tolerance, least=0)
        self.standardisation_ = Standardisation.of(data.X, data.feature_names, self.threads)
        features = Features(data.X, self.standardisation_)
        judge = Judge(data, self.metric, convention=self.convention, threads=self.threads)
        selection = Judge(valid, self.metric, convention=self.convention, threads=self.threads) if valid else None
        if selection is not None and self.restarts > 1:
            selection.for_choosing()
        rng = np.random.default_rng(self.seed)
        best_value = -np.inf
        self._interrupted = False
        for restart in range(self.restarts):
            d = data.n_features
            start = np.full(d, 1 / d) if restart == 0 else rng.uniform(-1, 1, d) / d
            weights, value = self._climb(features, judge, start, rng)
            if selection is not None and valid is not None:
                scores = Features(valid.X, self.standardisation_).times(slice(0, valid.n_documents), weights)
                value = selection.signed(scores)
            if value > best_value or restart == 0:
                best_value, best = value, weights
            if self._interrupted:
                warn_unconverged("CoordinateAscent: interrupted; these are the best weights so far.")
                break
        self.coef_ = best / self.standardisation_.spread
        reached = best_value if judge.higher_is_better else -best_value
        self.training_["valid" if valid is not None else "train"] = {judge.name: reached}

    def _climb(
        self, features: Features, judge: Judge, start: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        every = slice(0, features.X.shape[0])
        weights, scores = start.copy(), features.times(every, start)
        value = judge.signed(scores)
        for _ in range(self.max_cycles):
            before = value
            try:
                for j in rng.permutation(len(weights)):
                    column = features.column(j)
                    changes = self._changes(weights[j], len(weights))
                    gains = [judge.signed(scores + change * column) for change in changes]
                    best = int(np.argmax(gains))
                    if gains[best] > value + 1e-12:
                        value = gains[best]
                        weights[j] += changes[best]
                        scores = scores + changes[best] * column
            except KeyboardInterrupt:
                self._interrupted = True
                return weights, value
            scale = np.abs(weights).sum()
            if scale > 0:  # the metric sees only directions; keep the weights of a size that the steps suit
                weights, scores = weights / scale, scores / scale
            if value - before < self.tolerance:
                break
        return weights, value

    def _changes(self, weight: float, d: int) -> list[float]:
        """Steps to try: growing ones in both directions, and back to 0."""
        unit = abs(weight) if weight != 0 else 1.0 / d
        steps = [unit * self.first_step * 2.0**i for i in range(self.steps)]
        return [*steps, *(-step for step in steps), *([-weight] if weight != 0 else [])]

    def _scores(self, X: Any) -> FloatArray:
        features = Features(X, Standardisation(self.standardisation_.centre, np.ones(X.shape[1])))
        return features.times(slice(0, X.shape[0]), self.coef_)
