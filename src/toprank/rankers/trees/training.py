"""A training run of LightGBM: where it starts, its data sets, its objective, our metrics, and what comes out."""

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
    grown,
    lightgbm_parameters,
)
from toprank.rankers.trees.text import END_OF_TREES

if TYPE_CHECKING:
    from toprank.rankers.trees.ranker import TreeRanker

Metric = Callable[[FloatArray], float]

_BY_NAME: dict[str, dict[str, Any]] = {"LambdaRank": {"truncation": 30, "norm": True}}
"""What a name alone means on trees, where that is not what the loss's own defaults say: as the system LambdaMART."""

_LAST_BUILT_IN_LABEL = 30  # LightGBM's own table of gains ends there


class InitialState(NamedTuple):
    """What is known before the first round."""

    gains: FloatArray
    """G of each grade; empty where the output is the score itself."""
    intercept: FloatArray
    """What the trees start from, one number for each output."""
    objective: TreeObjective | None
    """None: an objective of LightGBM's own."""
    before: InitialTrees | None
    """The trees to go on from: those of `init_model`, or of a checkpoint."""

    @classmethod
    def from_ranker(cls, ranker: TreeRanker, data: RankingData) -> InitialState:
        """Look at the loss, the outputs and the labels; refuse what does not go together."""
        before = grown(ranker)
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
        """Rounds that were made already."""
        return 0 if self.before is None else self.before.rounds


def loss_on_trees(loss: Loss | str) -> Loss:
    """The loss itself where one is given; by name, the loss as trees are commonly grown under it.

    >>> loss_on_trees("LambdaRank").truncation, loss_on_trees(make_loss("LambdaRank")).truncation
    (30, None)
    """
    instance = make_loss(loss)
    return replace(instance, **_BY_NAME.get(type(instance).__name__, {})) if isinstance(loss, str) else instance


def loss_on_labels(ranker: TreeRanker, labels: FloatArray) -> tuple[Loss | None, FloatArray]:
    """The loss (None: one of LightGBM's own) and the gain of each grade (none: the output is the score).

    What does not go together is refused. `labels` may be all labels, or just the distinct ones.
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
    """What the trees start from: the model's so far, else see `first_outputs`; 0 where nobody knows better."""
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
    """The objective of LightGBM's rounds: of one score a document, or of an output for each grade. X: the features."""
    rank, share = 0 if together is None else together.rank, ranker.query_fraction
    sample = QuerySample(bound.queries, share, ranker.seed, rank) if share < 1 else None
    threads, gains, intercept = ranker.threads, start.gains, start.intercept
    options: dict[str, Any] = {"sample": sample, "rounds": start.rounds, "threads": threads}
    if len(gains):
        kind = LikelihoodObjective if loss.traits.space == "class" else ExpectedGainObjective
        return kind(bound, intercept, gains, **options, together=together)
    objective = ScoreObjective(bound, intercept, **options, together=together)
    if needs_search(loss) and ranker.boosting != "dart":  # whose scores are now and then without some of the trees
        last = _before_the_last(start.before, X, intercept)
        objective.stride = StepScale(bound, last, factor=objective.factor, threads=threads, together=together)
    return objective


def _before_the_last(model: InitialTrees | None, X: Any, intercept: FloatArray) -> FloatArray | None:
    """The scores of a model that training goes on from, without its last tree."""
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
            f"{ranker.loss} takes whole labels from 0 to {last}, but a document has {labels[wrong][0]:g}. Our own "
            "losses (LambdaRank, XENDCG) take any grades."
        )


class BoostingResult(NamedTuple):
    """The outcome of a training."""

    booster: Any
    """LightGBM's booster of the chosen rounds."""
    rounds: int
    valid: float | None
    """Their metric on the validation data."""
    metric: str
    convention: str
    history: dict[str, list[float]]
    stopped: str
    """Why training ended, as a sentence."""
    interrupted: bool


@singledispatch
def train_trees(data: Any, ranker: TreeRanker, valid: Any) -> tuple[InitialState, BoostingResult]:
    """Train as the ranker asks, on `RankingData`; whoever has other data registers how, by their type.

    A training that a `TimeLimit` ends is kept by the `Resumable` around it; the same fit within that goes on with it.
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
    """A training of LightGBM that can go on after it was stopped between two rounds."""

    start: InitialState
    parameters: dict[str, Any]
    """For LightGBM."""
    sets: dict[str, Any]
    metrics: dict[str, Metric]
    watch: BoosterStopping
    valid_name: tuple[str, str]
    """The validation metric and its convention; empty without validation data."""

    @classmethod
    def begin(cls, ranker: TreeRanker, data: RankingData, valid: RankingData | None) -> TreeTraining:
        """Check what the ranker asks for, and bring it into LightGBM's form."""
        start = InitialState.from_ranker(ranker, data)
        columns = ranker.categorical_of_columns(data)
        check_features(ranker, data.n_features)
        if int(ranker.row_fraction * data.n_documents) == 0:  # as LightGBM rounds, and names its own variables then
            documents = "1 document leaves" if data.n_documents == 1 else f"{data.n_documents} documents leave"
            raise DataError(f"row_fraction={ranker.row_fraction:g} of {documents} none to grow a tree on; raise it.")
        parameters = lightgbm_parameters(ranker, data, len(start.intercept), columns)
        # DART shows its training scores without the trees that it left out.
        judges = training_metrics(ranker, None if ranker.boosting == "dart" else data, valid, lenient=True)
        judge = judges.get("valid")
        sets = datasets(ranker, data, valid, columns)
        scores = (lambda raw: raw) if start.objective is None else start.objective.scores
        watch = BoosterStopping(
            steps=ranker.n_trees,
            dart=ranker.boosting == "dart",
            sampled=is_sampled(ranker),
            # As later rounds are judged: `predict` would calibrate, if the model to go on from was calibrated.
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
        """Make rounds until the training ends or its time is over; a later call goes on from there."""
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
    """The booster of the trees that are kept; refused where a leaf is not finite."""
    booster = booster_of(only_trees(trees))
    if not np.isfinite([booster.lower_bound(), booster.upper_bound()]).all():
        raise diverging(rounds)
    return booster


def is_sampled(ranker: TreeRanker) -> bool:
    """Whether a round sees a part of the documents or features."""
    return min(ranker.feature_fraction, ranker.row_fraction, ranker.query_fraction) < 1


def datasets(ranker: TreeRanker, data: RankingData, valid: RankingData | None, columns: list[int]) -> dict[str, Any]:
    """LightGBM's data sets, "train" and "valid"."""
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
    words: dict[str, Any],
    sets: dict[str, Any],
    start: InitialState,
    metrics: dict[str, Metric],
    watch: BoosterStopping,
) -> None:
    """Make the rounds, unless an interrupt from the keyboard ends them; `words` are the parameters for LightGBM."""
    library, own = first_use("lightgbm"), start.objective
    X, sampled = sets["train"].data, words.get("bin_construct_sample_cnt", SAMPLED)
    if watch.booster is None:
        check_memory(X, sampled)

    def gradients(raw: FloatArray, _: Any) -> tuple[Any, Any]:
        assert own is not None
        watch.settle_draws()
        try:
            return own(raw)
        except KeyboardInterrupt:  # let the round end: DART has put some trees aside and must bring them back
            watch.interrupted = True
            return own(raw)

    def evaluate(raw: FloatArray, dataset: Any) -> tuple[str, float, bool]:
        name = "train" if dataset is sets["train"] else "valid"
        if not np.isfinite(raw).all():
            raise diverging(watch.done + 1)
        return "metric", metrics[name](raw), watch.higher_is_better

    try:
        with on_threads_of(library.basic._LIB, words["num_threads"]) as whose:
            if ranker.verbose and not in_notebook():  # there progress is one line, which is written over
                ProgressLine()(f"Losses and metrics run on {whose}.")
            if watch.booster is None:
                library.train(
                    words | {"objective": built_in(ranker.loss) if own is None else gradients},
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
        if watch.booster is None:  # not a single round to keep
            raise
        watch.interrupt()


def _make_further_rounds(
    gradients: Callable[..., Any] | None, evaluate: Callable[..., Any], judged: list[str], watch: BoosterStopping
) -> None:
    """Go on with the booster of a watch that stopped for lack of time, as `lightgbm.train` would have done."""
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
    reason = re.sub(r"Check failed: (.*) at \S+, line \d+", r"it must be that \1", str(problem)).strip(" .\n")
    return DataError(f"LightGBM cannot train like this: {reason}.")


def only_trees(text: str) -> str:
    """A model's text without what follows the trees: parameters of the training, which ours are written down for."""
    return text[: text.index(END_OF_TREES) + len(END_OF_TREES)]


def booster_of(trees: str) -> Any:
    """LightGBM's booster from its text; one that it cannot read is refused."""
    library = first_use("lightgbm")
    if not trees.startswith("tree\n"):  # LightGBM would say so on the standard error of the process, too
        raise DataError("the trees cannot be read: this is not LightGBM's text")
    try:
        return library.Booster(model_str=trees)
    except library.basic.LightGBMError as problem:
        raise DataError(f"the trees cannot be read: {problem}") from None
