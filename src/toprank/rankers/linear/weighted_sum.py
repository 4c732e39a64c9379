"""The score b + w·(x − center), shared by all rankers with linear weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray, each_block, row_parts
from toprank.rankers.contributions import LinearTerms
from toprank.rankers.formula import Part, centered
from toprank.rankers.schema import Numbers
from toprank.scorers.features import Features, Standardization

_ROWS_PER_BLOCK = 1 << 14


class WeightedSum(LinearTerms):
    """Mixin for rankers with `coef_`; list it before `Ranker`. Missing values count as the center."""

    saved_arrays: ClassVar[Mapping[str, Numbers]] = {"coef_": Numbers("features")}
    saved_values: ClassVar[Mapping[str, Any]]
    standardizes: ClassVar[bool] = True

    intercept_: float
    threads: int | None

    @property
    def _at_center(self) -> float:
        """The score of a document whose features are all at the center; 0 if the ranker has no intercept."""
        if "intercept_" not in self.saved_values:
            return 0.0
        return self.intercept_ + float(self.coef_ @ self.standardization_.center)

    def _scores(self, X: Any) -> FloatArray:
        unscaled = Standardization(self.standardization_.center, np.ones(X.shape[1]))
        scores = weighted_sums(unscaled, self.coef_, self.threads, X)
        scores += self._at_center
        return scores

    def _formula(self) -> Part:
        return centered(self.standardization_.center, self.coef_, self._at_center)


def weighted_sums(standardization: Standardization, weights: FloatArray, threads: int | None, X: Any) -> FloatArray:
    """Return Z · weights for the standardized rows Z of X, with the same bits for a row at any position."""
    features, scores = Features(X, standardization), np.empty(X.shape[0])

    def work(rows: slice) -> None:
        scores[rows] = features.times(rows, weights)

    each_block(work, row_parts(slice(0, len(scores)), _ROWS_PER_BLOCK), threads)
    return scores
