"""Where boosting starts from: how many outputs, which objective, which constant output before the first tree."""

from __future__ import annotations

from collections.abc import Callable
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
    Together,
    TreeObjective,
)
from toprank.rankers.tree_parameters import built_in
from toprank.rankers.tree_stride import Stride, needs_search

__all__ = ["Start", "first_outputs", "loss_and_gains", "loss_on_trees", "objective_of"]

_BY_NAME: dict[str, dict[str, Any]] = {"LambdaRank": {"truncation": 30, "norm": True}}
"""What a name alone means on trees, where that is not what the loss's own defaults say: as the system LambdaMART."""

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
        loss, gains = loss_and_gains(ranker, data.labels)
        if loss is None:
            return cls(np.zeros(0), np.zeros(1), None)
        weights = {"document_weights": data.document_weights, "query_weights": data.query_weights}
        bound = loss.on(data.labels, data.queries, **weights)

        def value(constant: float) -> float:
            return bound.at(np.full(data.n_documents, constant), threads=ranker.threads).value

        grades, counts = np.unique(data.labels, return_counts=True)
        intercept = first_outputs(ranker, loss, grades, counts.astype(np.float64), value)
        return cls(gains, intercept, objective_of(ranker, loss, bound, gains, intercept, data.X))


def loss_on_trees(loss: Loss | str) -> Loss:
    """The loss itself where one is given; by name, the loss as trees are commonly grown under it.

    >>> loss_on_trees("LambdaRank").truncation, loss_on_trees(make_loss("LambdaRank")).truncation
    (30, None)
    """
    made = make_loss(loss)
    return replace(made, **_BY_NAME.get(type(made).__name__, {})) if isinstance(loss, str) else made


def loss_and_gains(ranker: Any, labels: FloatArray) -> tuple[Loss | None, FloatArray]:
    """The loss (None: one of LightGBM's own) and the gain of each grade (none: the output is the score).

    What does not go together is refused. `labels` may be all labels, or just the distinct ones.
    """
    if built_in(ranker.loss):
        _check_built_in(ranker, labels)
        return None, np.zeros(0)
    loss = loss_on_trees(ranker.loss)
    _check_space(loss, ranker.outputs)
    if ranker.monotone is not None and ranker.outputs == "grades":
        raise DataError("monotone speaks of the score; with outputs='grades' there is one output for each grade.")
    gains = _gains(ranker, labels) if ranker.outputs == "grades" else np.zeros(0)
    if loss.traits.space == "class":
        loss = replace(loss, n_grades=len(gains))  # type: ignore[call-arg]
    return loss, gains


def objective_of(
    ranker: Any,
    loss: Loss,
    bound: BoundLoss,
    gains: FloatArray,
    intercept: FloatArray,
    X: Any,
    together: Together | None = None,
) -> TreeObjective:
    """The objective of LightGBM's rounds: of one score a document, or of an output for each grade. X: the features."""
    rounds = 0 if ranker.init_model is None else ranker.init_model.best_iteration_
    rank = 0 if together is None else together.rank
    sample = QuerySample(bound.queries, ranker.query_fraction, ranker.seed, rank) if ranker.query_fraction < 1 else None
    options: dict[str, Any] = {"sample": sample, "rounds": rounds, "threads": ranker.threads, "together": together}
    if not len(gains):
        objective = ScoreObjective(bound, intercept, **options)
        if needs_search(loss) and ranker.boosting != "dart":  # whose scores are now and then without some of the trees
            before = _before_the_last(ranker.init_model, X, intercept)
            options = {"factor": objective.factor, "threads": ranker.threads, "together": together}
            objective.stride = Stride(bound, before, **options)
        return objective
    kind = LikelihoodObjective if loss.traits.space == "class" else ExpectedGainObjective
    return kind(bound, intercept, gains, **options)


def _before_the_last(model: Any, X: Any, intercept: FloatArray) -> FloatArray | None:
    """The scores of a model that training goes on from, without its last tree."""
    if model is None or model.best_iteration_ == 0:
        return None
    rounds = model.best_iteration_ - 1
    raw = model.booster_.predict(X, num_iteration=rounds, raw_score=True) if rounds else np.zeros(X.shape[0])
    scores: FloatArray = raw + intercept[0]
    return scores


def _check_space(loss: Loss, outputs: str) -> None:
    name = type(loss).__name__
    if name == "Ordinal":
        raise DataError("Ordinal needs thresholds, which trees do not learn; use Multinomial with outputs='grades'.")
    if loss.traits.space == "class" and outputs != "grades":
        raise DataError(f"{name} needs an output for each grade; set outputs='grades'.")


def _check_built_in(ranker: Any, labels: FloatArray) -> None:
    if ranker.outputs != "score":
        raise DataError(f"{ranker.loss} scores documents; with outputs='grades' use a loss of toprank's.")
    table = (ranker.extra or {}).get("label_gain")
    last = _LAST_BUILT_IN_LABEL if table is None else len(table) - 1
    wrong = ~((labels >= 0) & (labels <= last) & (labels == np.floor(labels)))
    if wrong.any():
        raise DataError(
            f"{ranker.loss} takes whole labels from 0 to {last}, but a document has {labels[wrong][0]:g}. Our own "
            "losses (LambdaRank, XENDCG) take any grades."
        )


def _gains(ranker: Any, labels: FloatArray) -> FloatArray:
    whole = (labels == np.floor(labels)) & (labels >= 0)
    if not whole.all():
        raise DataError(
            f"Grades must be whole numbers from 0 on, but a document has {labels[~whole][0]:g}; with outputs='grades' "
            "each is a class. Round the labels, or use outputs='score'."
        )
    count = max(int(labels.max()) + 1, 2)
    before = ranker.init_model
    if before is not None:
        if count > len(before.gains_):
            raise DataError(f"init_model knows {len(before.gains_)} grades, but the labels go up to {count - 1}.")
        count = len(before.gains_)
    return Gain.of(ranker.gain).table(np.arange(count, dtype=np.float64), count - 1.0)


def first_outputs(
    ranker: Any,
    loss: Loss,
    grades: FloatArray,
    counts: FloatArray,
    value: Callable[[float], float],
) -> FloatArray:
    """The model's so far; else the shares of the grades, or the best constant score where the loss minds shifts.

    Args:
        ranker: as it was asked for.
        loss: its loss.
        grades: with an output for each grade, the distinct labels.
        counts: how many documents have each.
        value: the loss where all documents have the same score.
    """
    if ranker.init_model is not None:
        return np.array(ranker.init_model.intercept_)
    if ranker.outputs == "grades":
        shares = np.bincount(grades.astype(np.int64), counts, minlength=2) + 1.0
        logs: FloatArray = np.log(shares / shares.sum())
        return logs
    if loss.traits.shift_invariant or not loss.traits.convex:
        return np.zeros(1)
    from scipy.optimize import minimize_scalar

    return np.array([float(minimize_scalar(value).x)])
