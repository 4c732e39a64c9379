"""Where boosting starts from: how many outputs, which objective, which constant output before the first tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.losses import Loss
from toprank.losses import make as make_loss
from toprank.losses.base import BoundLoss
from toprank.metrics.gains import Gain
from toprank.rankers.tree_objective import (
    ExpectedGainObjective,
    LikelihoodObjective,
    QuerySample,
    ScoreObjective,
    TreeObjective,
)
from toprank.rankers.tree_parameters import built_in

__all__ = ["Start"]

_LAST_BUILT_IN_LABEL = 30  # LightGBM's own table of gains ends there


class Start(NamedTuple):
    """What is known before the first round."""

    gains: FloatArray
    """G of each grade; empty where the output is the score itself."""
    intercept: FloatArray
    """What the trees start from, one number for each output."""
    objective: TreeObjective | None
    """None: an objective of LightGBM's own."""

    @classmethod
    def of(cls, ranker: Any, data: RankingData) -> Start:
        """Look at the loss, the outputs and the labels; refuse what does not go together."""
        if built_in(ranker.loss):
            _check_built_in(ranker, data)
            return cls(np.zeros(0), np.zeros(1), None)
        loss = make_loss(ranker.loss)
        _check_space(loss, ranker.outputs)
        if ranker.monotone is not None and ranker.outputs == "grades":
            raise DataError("monotone speaks of the score; with outputs='grades' there is one output for each grade.")
        grades = ranker.outputs == "grades"
        gains = _gains(ranker, data.labels) if grades else np.zeros(0)
        if loss.traits.space == "class":
            loss = replace(loss, n_grades=len(gains))  # type: ignore[call-arg]
        weights = {"document_weights": data.document_weights, "query_weights": data.query_weights}
        bound = loss.on(data.labels, data.queries, **weights)
        intercept = _intercept(ranker, loss, bound, data.labels, len(gains))
        rounds = 0 if ranker.init_model is None else ranker.init_model.best_iteration_
        sample = QuerySample(data.queries, ranker.query_fraction, ranker.seed) if ranker.query_fraction < 1 else None
        options: dict[str, Any] = {"sample": sample, "rounds": rounds, "threads": ranker.threads}
        if not grades:
            return cls(gains, intercept, ScoreObjective(bound, intercept, **options))
        kind = LikelihoodObjective if loss.traits.space == "class" else ExpectedGainObjective
        return cls(gains, intercept, kind(bound, intercept, gains, **options))


def _check_space(loss: Loss, outputs: str) -> None:
    name = type(loss).__name__
    if name == "Ordinal":
        raise DataError("Ordinal needs thresholds, which trees do not learn; use Multinomial with outputs='grades'.")
    if loss.traits.space == "class" and outputs != "grades":
        raise DataError(f"{name} needs an output for each grade; set outputs='grades'.")


def _check_built_in(ranker: Any, data: RankingData) -> None:
    if ranker.outputs != "score":
        raise DataError(f"{ranker.loss} scores documents; with outputs='grades' use a loss of toprank's.")
    labels = data.labels
    table = (ranker.extra or {}).get("label_gain")
    last = _LAST_BUILT_IN_LABEL if table is None else len(table) - 1
    wrong = ~((labels >= 0) & (labels <= last) & (labels == np.floor(labels)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{ranker.loss} takes whole labels from 0 to {last}, but document {row} has {labels[row]:g}. Our own "
            "losses (LambdaRank, XENDCG) take any grades."
        )


def _gains(ranker: Any, labels: FloatArray) -> FloatArray:
    whole = (labels == np.floor(labels)) & (labels >= 0)
    if not whole.all():
        row = int(np.argmin(whole))
        raise DataError(
            f"Grades must be whole numbers from 0 on, but document {row} has {labels[row]:g}; with outputs='grades' "
            "each is a class. Round the labels, or use outputs='score'."
        )
    count = max(int(labels.max()) + 1, 2)
    before = ranker.init_model
    if before is not None:
        if count > len(before.gains_):
            raise DataError(f"init_model knows {len(before.gains_)} grades, but the labels go up to {count - 1}.")
        count = len(before.gains_)
    return Gain.of(ranker.gain).table(np.arange(count, dtype=np.float64), count - 1.0)


def _intercept(ranker: Any, loss: Loss, bound: BoundLoss, labels: FloatArray, grades: int) -> FloatArray:
    """The model's so far; else the shares of the grades, or the best constant score where the loss minds shifts."""
    if ranker.init_model is not None:
        return np.array(ranker.init_model.intercept_)
    if grades:
        shares = np.bincount(labels.astype(np.int64), minlength=grades) + 1.0
        logs: FloatArray = np.log(shares / shares.sum())
        return logs
    if loss.traits.shift_invariant or not loss.traits.convex:
        return np.zeros(1)
    from scipy.optimize import minimize_scalar

    n = len(labels)
    found = minimize_scalar(lambda constant: bound.at(np.full(n, constant), threads=ranker.threads).value)
    return np.array([float(found.x)])
