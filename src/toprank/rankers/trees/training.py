"""Training with LightGBM: initial state, data sets, objective, metrics and result."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray, on_threads_of, suspended_trainings
from toprank.data.dataset import RankingData
from toprank.display.progress import ProgressLine, in_notebook
from toprank.errors import DataError
from toprank.lazy_imports import first_use
from toprank.losses import Loss
from toprank.losses import make as make_loss
from toprank.losses.base import BoundLoss, Judgments
from toprank.rankers.early_stopping import BoosterStopping, PriorTraining, stopping_options, training_metrics
from toprank.rankers.outputs import first_outputs, loss_and_gains, row_weights, weighted_grades
from toprank.rankers.trees.memory import SAMPLED, check_memory, too_little_memory
from toprank.rankers.trees.objective import (
    ExpectedGainObjective,
    LikelihoodObjective,
    QuerySample,
    ScoreObjective,
    StepScale,
    TrainerGroup,
    TreeObjective,
    diverging,
    needs_search,
)
from toprank.rankers.trees.parameters import (
    InitialTrees,
    built_in,
    check_features,
    initial_trees,
    lightgbm_parameters,
)
from toprank.rankers.trees.text import END_OF_TREES

if TYPE_CHECKING:
    from toprank.rankers.trees.ranker import TreeRanker

Metric = Callable[[FloatArray], float]

_BY_NAME: dict[str, dict[str, Any]] = {"LambdaRank": {"truncation": 30, "norm": True}}
"""Options that a loss name selects for trees, if they differ from the loss's defaults, as in the system LambdaMART."""

_LAST_BUILT_IN_LABEL = 30  # the end of LightGBM's own table of gains


class InitialState(NamedTuple):
    """The state before the first round."""

    gains: FloatArray
    """G of each grade; empty if the output is the score."""
    intercept: FloatArray
    """The constant of each output."""
    objective: TreeObjective | None
    """The objective; None for LightGBM's own."""
    before: InitialTrees | None
    """The trees to continue from, of `init_model` or a checkpoint."""

    @classmethod
    def from_ranker(cls, ranker: TreeRanker, data: RankingData) -> InitialState:
        """Build the state from loss, outputs and labels; refuse invalid combinations."""
        before = initial_trees(ranker)
        loss, gains = loss_on_labels(ranker, data.labels)
        if loss is None:
            return cls(np.zeros(0), np.zeros(1), None, before)
        bound = loss.bound_to(Judgments.from_data(data))

        def value(constant: float) -> float:
            return bound.at(np.full(data.n_documents, constant), threads=ranker.threads).value

        intercept = first_intercept(ranker, loss, gains, *weighted_grades(data), value)
        start = cls(gains, intercept, None, before)
        return start._replace(objective=objective_of(ranker, loss, bound, start, data.X))

    @property
    def rounds(self) -> int:
        """Number of earlier rounds."""
        return 0 if self.before is None else self.before.rounds


def loss_on_trees(loss: Loss | str) -> Loss:
    """Return the given loss, or for a name the loss with the usual options for trees.

    >>> loss_on_trees("LambdaRank").truncation, loss_on_trees(make_loss("LambdaRank")).truncation
    (30, None)
    """
    instance = make_loss(loss)
    return replace(instance, **_BY_NAME.get(type(instance).__name__, {})) if isinstance(loss, str) else instance


def loss_on_labels(ranker: TreeRanker, labels: FloatArray) -> tuple[Loss | None, FloatArray]:
    """Return the loss (None for LightGBM's own) and the gain of each grade (empty if the output is the score).

    Invalid combinations are refused. `labels` may be all labels or the unique ones.
    """
    if built_in(ranker.loss):
        _check_built_in(ranker, labels)
        return None, np.zeros(0)
    gains_before = None if ranker.init_model is None else ranker.init_model.gains_
    return loss_and_gains(loss_on_trees(ranker.loss), ranker.outputs, ranker.gain, labels, gains_before, "trees do")


def first_intercept(
    ranker: TreeRanker,
    loss: Loss,
    gains: FloatArray,
    grades: FloatArray,
    counts: FloatArray,
    value: Callable[[float], float],
) -> FloatArray:
    """Return the initial outputs: from the model so far, else from `first_outputs`, else 0."""
    if ranker.init_model is not None:
        return np.array(ranker.init_model.intercept_)
    start = first_outputs(loss, len(gains), grades, counts, value)
    return np.zeros(1) if start is None else start


def objective_of(
    ranker: TreeRanker,
    loss: Loss,
    bound: BoundLoss,
    start: InitialState,
    X: Any,
    together: TrainerGroup | None = None,
) -> TreeObjective:
    """Return the objective of LightGBM's rounds, for one score per document or an output per grade. X: the features."""
    rank, share = 0 if together is None else together.rank, ranker.query_fraction
    sample = QuerySample(bound.queries, share, ranker.seed, rank) if share < 1 else None
    threads, gains, intercept = ranker.threads, start.gains, start.intercept
    options: dict[str, Any] = {"sample": sample, "rounds": start.rounds, "threads": threads}
    if len(gains):
        kind = LikelihoodObjective if loss.traits.space == "class" else ExpectedGainObjective
        return kind(bound, intercept, gains, **options, together=together)
    objective = ScoreObjective(bound, intercept, **options, together=together)
    if needs_search(loss) and ranker.boosting != "dart":  # whose scores exclude the dropped trees
        last = _before_the_last(start.before, X, intercept)
        objective.stride = StepScale(bound, last, factor=objective.factor, threads=threads, together=together)
    return objective


def _before_the_last(model: InitialTrees | None, X: Any, intercept: FloatArray) -> FloatArray | None:
    """Return the scores of the continued model without its last tree."""
    if model is None or model.rounds == 0:
        return None
    rounds = model.rounds - 1
    raw = model.booster.predict(X, num_iteration=rounds, raw_score=True) if rounds else np.zeros(X.shape[0])
    scores: FloatArray = raw + intercept[0]
    return scores


def _check_built_in(ranker: TreeRanker, labels: FloatArray) -> None:
    table = (ranker.lightgbm_params or {}).get("label_gain")
    last = _LAST_BUILT_IN_LABEL if table is None else len(table) - 1
    wrong = ~((labels >= 0) & (labels <= last) & (labels == np.floor(labels)))
    if wrong.any():
        raise DataError(
            f"{ranker.loss} needs integer labels from 0 to {last}, but a document has {labels[wrong][0]:g}. Our own "
            "losses (LambdaRank, XENDCG) support any grades."
        )


class BoostingResult(NamedTuple):
    """The result of a training."""

    booster: Any
    """LightGBM's booster with the selected rounds."""
    rounds: int
    valid: float | None
    """Their metric on the validation data."""
    metric: str
    convention: str
    history: dict[str, list[float]]
    stopped: str
    """The reason why training ended, as a sentence."""
    interrupted: bool


@singledispatch
def train_trees(data: Any, ranker: TreeRanker, valid: Any) -> tuple[InitialState, BoostingResult]:
    """Train on `RankingData`; other types of data register an implementation.

    If a `TimeLimit` ends the training, the surrounding `Resumable` keeps it, and the same fit within it continues it.
    """
    suspended = suspended_trainings()
    if suspended is None:
        return TreeTraining.begin(ranker, data, valid).run(ranker)
    key = (repr(ranker), data.fingerprint, None if valid is None else valid.fingerprint)
    training = suspended.pop(key, None) or TreeTraining.begin(ranker, data, valid)
    outcome = training.run(ranker)
    if training.watch.ran_out_of_time:
        suspended[key] = training
    return outcome


class TreeTraining(NamedTuple):
    """A LightGBM training that can continue after it was stopped between two rounds."""

    start: InitialState
    parameters: dict[str, Any]
    """LightGBM's parameters."""
    sets: dict[str, Any]
    metrics: dict[str, Metric]
    watch: BoosterStopping
    valid_name: tuple[str, str]
    """The validation metric and its convention; empty without validation data."""

    @classmethod
    def begin(cls, ranker: TreeRanker, data: RankingData, valid: RankingData | None) -> TreeTraining:
        """Validate the parameters and convert them to LightGBM's."""
        start = InitialState.from_ranker(ranker, data)
        columns = ranker.categorical_of_columns(data)
        check_features(ranker, data.n_features)
        if (
            int(ranker.row_fraction * data.n_documents) == 0
        ):  # rounds like LightGBM, whose own message names internal variables
            documents = "1 document leaves" if data.n_documents == 1 else f"{data.n_documents} documents leave"
            raise DataError(f"row_fraction={ranker.row_fraction:g} of {documents} none to train a tree on; raise it.")
        parameters = lightgbm_parameters(ranker, data, len(start.intercept), columns)
        # DART's training scores exclude the dropped trees.
        judges = training_metrics(ranker, None if ranker.boosting == "dart" else data, valid, lenient=True)
        judge = judges.get("valid")
        sets = datasets(ranker, data, valid, columns)
        scores = (lambda raw: raw) if start.objective is None else start.objective.scores
        watch = BoosterStopping(
            steps=ranker.n_trees,
            dart=ranker.boosting == "dart",
            sampled=is_sampled(ranker),
            # Raw scores as in later rounds: `predict` would apply the calibration of init_model.
            **stopping_options(
                ranker, judge, lambda before, valid: scores(before.raw_scores(valid.X)), PriorTraining(start.rounds)
            ),
        )
        metrics: dict[str, Metric] = {
            name: lambda raw, judge=judge: judge(scores(raw))  # type: ignore[misc]
            for name, judge in judges.items()
        }
        name = ("", "") if judge is None else (judge.name, judge.convention.name)
        return cls(start, parameters, sets, metrics, watch, name)

    def run(self, ranker: TreeRanker) -> tuple[InitialState, BoostingResult]:
        """Run rounds until the training ends or its time limit is reached; a later call continues."""
        watch = self.watch
        make_rounds(ranker, self.parameters, self.sets, self.start, self.metrics, watch)
        trees, rounds, value = watch.kept()
        booster = finished(trees, watch.done)
        metric, convention = self.valid_name
        return self.start, BoostingResult(
            booster=booster,
            rounds=rounds,
            valid=value,
            metric=metric,
            convention=convention,
            history=watch.history,
            stopped=watch.stopped,
            interrupted=watch.interrupted,
        )


def finished(trees: str, rounds: int) -> Any:
    """Return the booster of the selected trees; refuse leaves that are not finite."""
    booster = booster_of(only_trees(trees))
    if not np.isfinite([booster.lower_bound(), booster.upper_bound()]).all():
        raise diverging(rounds)
    return booster


def is_sampled(ranker: TreeRanker) -> bool:
    """Return whether a round uses only a sample of the documents or features."""
    return min(ranker.feature_fraction, ranker.row_fraction, ranker.query_fraction) < 1


def datasets(ranker: TreeRanker, data: RankingData, valid: RankingData | None, columns: list[int]) -> dict[str, Any]:
    """Return LightGBM's data sets, "train" and "valid"."""
    more: dict[str, Any] = {}
    if built_in(ranker.loss):
        more = {"group": data.queries.sizes, "weight": row_weights(data)}
    library = first_use("lightgbm")
    train = library.Dataset(data.X, label=data.labels, categorical_feature=columns or "auto", **more)
    sets = {"train": train}
    if valid is not None:
        group: dict[str, Any] = {"group": valid.queries.sizes} if built_in(ranker.loss) else {}
        sets["valid"] = library.Dataset(valid.X, label=np.zeros(valid.n_documents), reference=train, **group)
    return sets


def make_rounds(
    ranker: TreeRanker,
    parameters: dict[str, Any],
    sets: dict[str, Any],
    start: InitialState,
    metrics: dict[str, Metric],
    watch: BoosterStopping,
) -> None:
    """Run the rounds until the end or an interrupt from the keyboard; `parameters` are LightGBM's parameters."""
    library, own = first_use("lightgbm"), start.objective
    X, sampled = sets["train"].data, parameters.get("bin_construct_sample_cnt", SAMPLED)
    if watch.booster is None:
        check_memory(X, sampled)

    def gradients(raw: FloatArray, _: Any) -> tuple[Any, Any]:
        assert own is not None
        watch.settle_draws()
        try:
            return own(raw)
        except KeyboardInterrupt:  # finish the round, because DART must restore the trees that it dropped
            watch.interrupted = True
            return own(raw)

    def evaluate(raw: FloatArray, dataset: Any) -> tuple[str, float, bool]:
        name = "train" if dataset is sets["train"] else "valid"
        if not np.isfinite(raw).all():
            raise diverging(watch.done + 1)
        return "metric", metrics[name](raw), watch.higher_is_better

    try:
        with on_threads_of(library.basic._LIB, parameters["num_threads"]) as whose:
            if ranker.verbose and not in_notebook():  # notebooks show progress in one updated line
                ProgressLine()(f"Losses and metrics run on {whose}.")
            if watch.booster is None:
                library.train(
                    parameters | {"objective": built_in(ranker.loss) if own is None else gradients},
                    sets["train"],
                    num_boost_round=watch.steps,
                    valid_sets=[sets[name] for name in metrics] or None,
                    valid_names=list(metrics) or None,
                    feval=evaluate,
                    init_model=None if start.before is None else start.before.booster,
                    keep_training_booster=True,
                    callbacks=[watch.before_the_first, watch],
                )
            else:
                _make_further_rounds(None if own is None else gradients, evaluate, list(metrics), watch)
    except library.basic.LightGBMError as problem:
        raise (too_little_memory(X, sampled) if "bad_alloc" in str(problem) else _untrainable(problem)) from None
    except MemoryError:
        raise too_little_memory(X, sampled) from None
    except KeyboardInterrupt:
        if watch.booster is None:  # no completed round
            raise
        watch.interrupt()


def _make_further_rounds(
    gradients: Callable[..., Any] | None, evaluate: Callable[..., Any], judged: list[str], watch: BoosterStopping
) -> None:
    """Continue with the booster of a training that reached its time limit, as `lightgbm.train` would have done."""
    callback, booster = first_use("lightgbm").callback, watch.booster
    watch.go_on()
    for number in range(watch.attempts, watch.steps):
        booster.update(fobj=gradients)
        values = booster.eval_train(evaluate) if "train" in judged else []
        values += booster.eval_valid(evaluate) if "valid" in judged else []
        try:
            watch(callback.CallbackEnv(booster, {}, watch.first + number, watch.first, watch.last, values))
        except callback.EarlyStopException:
            break


def _untrainable(problem: Exception) -> DataError:
    reason = re.sub(r"Check failed: (.*) at \S+, line \d+", r"it requires \1", str(problem)).strip(" .\n")
    return DataError(f"LightGBM cannot train with these settings: {reason}.")


def only_trees(text: str) -> str:
    """Return a model's text without the training parameters after the trees."""
    return text[: text.index(END_OF_TREES) + len(END_OF_TREES)]


def booster_of(trees: str) -> Any:
    """Return LightGBM's booster from its text; refuse text that LightGBM cannot read."""
    library = first_use("lightgbm")
    if not trees.startswith("tree\n"):  # LightGBM would also write to the standard error of the process
        raise DataError("the trees cannot be read: the text is not LightGBM's")
    try:
        return library.Booster(model_str=trees)
    except library.basic.LightGBMError as problem:
        raise DataError(f"the trees cannot be read: {problem}") from None
