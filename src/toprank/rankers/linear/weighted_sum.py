"""The score b + w·(x − centre), which all rankers with weights share: computed in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray, each_block, row_parts
from toprank.rankers.contributions import LinearTerms
from toprank.rankers.formula import Part, centred
from toprank.rankers.schema import Numbers
from toprank.scorers.features import Features, Standardisation

_ROWS = 1 << 14  # rows that a thread takes at a time


class WeightedSum(LinearTerms):
    """What a ranker with `coef_` has before `Ranker` among its bases; missing values count as the centre."""

    saved_arrays: ClassVar[Mapping[str, Numbers]] = {"coef_": Numbers("features")}
    saved_values: ClassVar[Mapping[str, Any]]
    standardises: ClassVar[bool] = True

    intercept_: float
    threads: int | None

    @property
    def _at_centre(self) -> float:
        """The score of a document that has every feature at the centre: 0 where the ranker keeps no intercept."""
        if "intercept_" not in self.saved_values:
            return 0.0
        return self.intercept_ + float(self.coef_ @ self.standardisation_.centre)

    def _scores(self, X: Any) -> FloatArray:
        unscaled = Standardisation(self.standardisation_.centre, np.ones(X.shape[1]))
        scores = weighted_sums(unscaled, self.coef_, self.threads, X)
        scores += self._at_centre
        return scores

    def _formula(self) -> Part:
        return centred(self.standardisation_.centre, self.coef_, self._at_centre)


def weighted_sums(standardisation: Standardisation, weights: FloatArray, threads: int | None, X: Any) -> FloatArray:
    """Z · weights for the standardised rows Z of X; a row has the same bits wherever it stands."""
    features, scores = Features(X, standardisation), np.empty(X.shape[0])

    def work(rows: slice) -> None:
        scores[rows] = features.times(rows, weights)

    each_block(work, row_parts(slice(0, len(scores)), _ROWS), threads)
    return scores
