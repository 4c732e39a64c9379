"""RankBoost: boosting threshold rankers on the exponential pair loss (Freund et al. 2003)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.checks import check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.losses import make as make_loss
from toprank.metrics.evaluation import Judge
from toprank.rankers.base import Ranker, warn_unconverged
from toprank.rankers.schema import Numbers

__all__ = ["RankBoost"]

_SUREST = 1 - 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class RankBoost(Ranker):
    """s(x) = Σ_t α_t · 1[x_{f(t)} > θ_t].

    The pair distribution D of the paper needs no pairs: the potential of a document, π_i = Σ_j D(i, j) − Σ_j D(j, i),
    is minus the gradient of the exponential pair loss at the scores so far. Round t takes the threshold with the
    largest |r|, r = Σ_i π_i h(x_i), and α = ½ ln((1 + r)/(1 − r)), with D normalised over all pairs.

    Args:
        max_rounds: at most so many rounds.
        n_thresholds: candidate thresholds per feature, at quantiles of the training data.
        metric: what validation is judged by; the best number of rounds is kept where `valid` is given.
        convention: the rules of that metric.
        threads: number of threads; results do not depend on it.

    After fitting: `features_`, `thresholds_`, `alphas_`: one entry per round. Missing values are below every threshold.
    """

    takes_sparse: ClassVar[bool] = False
    saved_arrays: ClassVar[Mapping[str, Numbers]] = {
        "features_": Numbers("rounds", whole=True),
        "thresholds_": Numbers("rounds"),
        "alphas_": Numbers("rounds"),
    }

    max_rounds: int = 300
    n_thresholds: int = 64
    metric: str = "map"
    convention: str = "standard"
    threads: int | None = None

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        check_whole("max_rounds", self.max_rounds, 1)
        check_whole("n_thresholds", self.n_thresholds, 1, 256)
        bound = make_loss("Exponential").on(
            data.labels, data.queries, document_weights=data.document_weights, query_weights=data.query_weights
        )
        cuts = self._cuts(data.X)
        bins = np.empty(data.X.shape, dtype=np.uint8)
        for j, cut_points in enumerate(cuts):
            column = data.X[:, j]
            bins[:, j] = np.where(np.isnan(column), 0, np.searchsorted(cut_points, column, side="left"))
        watch = None if valid is None else Judge(valid, self.metric, convention=self.convention, threads=self.threads)
        if watch is not None:
            watch.for_choosing()
        scores, watched = np.zeros(data.n_documents), np.zeros(0 if valid is None else valid.n_documents)
        chosen: list[tuple[int, float, float]] = []
        best_value, best_rounds = -np.inf, 0
        try:
            for _ in range(self.max_rounds):
                now = bound.at(scores, threads=self.threads)
                potentials = -now.grad / now.value if now.value > 0 else -now.grad  # value = Σ D before normalisation
                column, cut, r = _best_threshold(bins, potentials, max(len(c) for c in cuts))
                if not abs(r) > 1e-9:
                    break
                sure = min(max(r, -_SUREST), _SUREST)  # a threshold that never errs would weigh infinitely
                alpha = 0.5 * np.log((1 + sure) / (1 - sure))
                threshold = float(cuts[column][cut])
                chosen.append((column, threshold, alpha))
                scores += alpha * (bins[:, column] > cut)
                if watch is not None and valid is not None:
                    watched += alpha * (valid.X[:, column] > threshold)
                    value = watch.signed(watched)
                    if value > best_value:
                        best_value, best_rounds = value, len(chosen)
        except KeyboardInterrupt:
            warn_unconverged("RankBoost: interrupted; these are the rounds so far.")
        kept = chosen[:best_rounds] if watch is not None else chosen
        self.features_ = np.array([column for column, _, _ in kept], dtype=np.int64)
        self.thresholds_ = np.array([threshold for _, threshold, _ in kept], dtype=np.float64)
        self.alphas_ = np.array([alpha for _, _, alpha in kept], dtype=np.float64)
        if watch is not None:
            self.training_["valid"] = {watch.name: best_value if watch.higher_is_better else -best_value}

    @override
    def check_restored(self) -> None:
        super().check_restored()
        if len(self.features_) and not 0 <= self.features_.min() <= self.features_.max() < self.n_features_in_:
            raise DataError("a round names a feature that does not exist")

    def _cuts(self, X: Any) -> list[FloatArray]:
        """Candidate thresholds of each feature: distinct quantiles of its values; at least one, even of a constant."""
        shares = np.linspace(0, 1, self.n_thresholds + 2)[1:-1]
        columns = (np.asarray(X[:, j], dtype=np.float64) for j in range(X.shape[1]))
        present = (column[np.isfinite(column)] for column in columns)
        return [np.unique(np.quantile(c, shares, method="lower")) if len(c) else np.zeros(1) for c in present]

    def _scores(self, X: Any) -> FloatArray:
        scores = np.zeros(len(X))
        for column, threshold, alpha in zip(self.features_, self.thresholds_, self.alphas_, strict=True):
            scores += alpha * (X[:, column] > threshold)
        return scores


def _best_threshold(bins: npt.NDArray[np.uint8], potentials: FloatArray, n_cuts: int) -> tuple[int, int, float]:
    """The (feature, cut, r) with the largest |r|, r = Σ potentials of the documents above the cut."""
    sums = np.zeros((bins.shape[1], n_cuts + 1))
    kernels.add_potentials(bins, potentials, sums)
    above = np.cumsum(sums[:, :0:-1], axis=1)  # the highest cut first
    column, place = divmod(int(np.argmax(np.abs(above))), n_cuts)
    return column, n_cuts - 1 - place, float(above[column, place])
