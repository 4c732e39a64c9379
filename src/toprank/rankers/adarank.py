"""AdaRank: boosting single features directly on a metric (Xu & Li 2007)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray
from toprank.data.checks import check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.metrics.evaluation import Judge
from toprank.rankers.base import Ranker, warn_unconverged
from toprank.rankers.schema import Numbers
from toprank.scorers.features import Features, Standardisation

__all__ = ["AdaRank"]


@dataclass(kw_only=True, eq=False, repr=False)
class AdaRank(Ranker):
    """A weighted sum of single features, chosen one after another where the queries so far ranked badly weigh most.

    Round t picks the feature (or its negative) with the best Σ_q P(q) E_q, E the metric of the query ranked by that
    feature alone; its weight is α = ½ ln(Σ P(1 + E) / Σ P(1 − E)); then P(q) ∝ exp(−E_q of the sum so far).

    E lies in [0, 1], so no query ever weighs more than e times another, and one strong feature may win every round: the
    sum then ranks as before, P stays as it is, and the algorithm as published stands still. So a feature that wins
    `max_in_a_row` rounds in a row keeps the weight it has and is set aside, and the next best has its turn.

    Args:
        metric: the metric E, with values in [0, 1]; "map" and "ndcg@10" in the literature.
        convention: its rules.
        max_rounds: at most so many rounds.
        max_in_a_row: so many rounds in a row may go to one feature (`max_rounds`: the algorithm as published).
        patience: stop after so many rounds without a better training metric (validation metric, where given).
        threads: number of threads; results do not depend on it.

    After fitting: `coef_` on the scale of the raw features; `rounds_`; the best round on `valid` is kept where given.
    """

    takes_sparse: ClassVar[bool] = False
    saved_arrays: ClassVar[Mapping[str, Numbers]] = {"coef_": Numbers("features")}
    standardises: ClassVar[bool] = True
    saved_values: ClassVar[Mapping[str, Any]] = {"rounds_": int}

    metric: str = "map"
    convention: str = "standard"
    max_rounds: int = 500
    max_in_a_row: int = 2
    patience: int = 50
    threads: int | None = None

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        check_whole("max_rounds", self.max_rounds, 1)
        check_whole("max_in_a_row", self.max_in_a_row, 1)
        check_whole("patience", self.patience, 1)
        self.standardisation_ = Standardisation.of(data.X, data.feature_names, self.threads)
        judge = self._judge(data)
        if not judge.higher_is_better:
            raise DataError(f"AdaRank boosts a metric where more is better; '{self.metric}' is an error.")
        pool = _Pool(self._single_features(data, judge), self.max_in_a_row)
        selection = judge if valid is None else self._judge(valid).for_choosing()
        watched = data if valid is None else valid
        worth, weights = np.full(data.n_queries, 1 / data.n_queries), np.zeros(data.n_features)
        scores, watched_scores = np.zeros(data.n_documents), np.zeros(watched.n_documents)
        best, best_value, since, self.rounds_ = weights.copy(), -np.inf, 0, 0
        try:
            for round_number in range(1, self.max_rounds + 1):
                column, step = pool.winner(worth)
                weights[column] += step
                scores += step * self._column(data, column)
                watched_scores += step * self._column(watched, column)
                value = selection(watched_scores)
                since += 1
                if value > best_value + 1e-12:
                    best, best_value, since, self.rounds_ = weights.copy(), value, 0, round_number
                if since >= self.patience or not pool.open.any():
                    break
                worth = np.exp(-np.nan_to_num(judge.per_query(scores)))
                worth /= worth.sum()
        except KeyboardInterrupt:
            warn_unconverged("AdaRank: interrupted; these are the best rounds so far.")
        self.coef_ = best / self.standardisation_.spread
        self.training_["valid" if valid is not None else "train"] = {selection.name: best_value}

    def _judge(self, data: RankingData) -> Judge:
        return Judge(data, self.metric, convention=self.convention, threads=self.threads)

    def _single_features(self, data: RankingData, judge: Judge) -> FloatArray:
        """E of each query ranked by each feature, and by its negative: rows 2j and 2j + 1."""
        table = np.empty((2 * data.n_features, data.n_queries))
        for column in range(data.n_features):
            values = self._column(data, column)
            table[2 * column] = np.nan_to_num(judge.per_query(values))
            table[2 * column + 1] = np.nan_to_num(judge.per_query(-values))
        return table

    def _column(self, data: RankingData, column: int) -> FloatArray:
        return Features(data.X, self.standardisation_).column(column)

    def _scores(self, X: Any) -> FloatArray:
        scores: FloatArray = np.nan_to_num(X - self.standardisation_.centre) @ self.coef_
        return scores


class _Pool:
    """The features that may win: each as it is and as its negative, until it has won too often in a row."""

    def __init__(self, alone: FloatArray, max_in_a_row: int) -> None:
        self.alone, self.max_in_a_row = alone, max_in_a_row
        self.open = np.ones(len(alone), dtype=bool)
        self.last, self.in_a_row = -1, 0

    def winner(self, worth: FloatArray) -> tuple[int, float]:
        """The best column under these weights of the queries, and its own weight, negative for its negative."""
        correct = self.alone @ worth
        choice = int(np.argmax(np.where(self.open, correct, -np.inf)))
        column, negative = divmod(choice, 2)
        self.in_a_row = self.in_a_row + 1 if column == self.last else 1
        self.last = column
        if self.in_a_row == self.max_in_a_row:
            self.open[2 * column : 2 * column + 2] = False
        step = 0.5 * float(np.log((1 + correct[choice]) / max(1 - correct[choice], 1e-12)))
        return column, -step if negative else step
