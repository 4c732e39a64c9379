"""A training run of LightGBM: its data sets, its objective, our metrics, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.metrics.evaluation import Judge
from toprank.rankers.tree_library import lightgbm
from toprank.rankers.tree_objective import diverging
from toprank.rankers.tree_parameters import built_in, categorical_columns, check_callbacks, lightgbm_parameters
from toprank.rankers.tree_start import Start
from toprank.rankers.tree_text import only_trees
from toprank.rankers.tree_watch import Progress, Watch

__all__ = ["Boosted", "booster_of", "check_init_model", "datasets", "make_rounds", "train_trees"]

Metric = Callable[[FloatArray], float]


class Boosted(NamedTuple):
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


def train_trees(ranker: Any, data: RankingData, valid: RankingData | None) -> tuple[Start, Boosted]:
    """Train as the ranker's parameters say."""
    check_callbacks(ranker.callbacks)
    check_init_model(ranker, data)
    start = Start.of(ranker, data)
    columns = categorical_columns(ranker.categorical, data)
    parameters = lightgbm_parameters(ranker, data, len(start.intercept), columns)
    judges = _judges(ranker, data, valid)
    watch = _watch(ranker, judges.get("valid"))
    sets = datasets(ranker, data, valid, columns)
    scores = (lambda raw: raw) if start.objective is None else start.objective.scores
    metrics: dict[str, Metric] = {
        name: lambda raw, judge=judge: judge(scores(raw))  # type: ignore[misc]
        for name, judge in judges.items()
    }
    make_rounds(ranker, parameters, sets, start, metrics, watch)
    trees, rounds, value = watch.kept()
    booster = booster_of(only_trees(trees))
    if not np.isfinite([booster.lower_bound(), booster.upper_bound()]).all():
        raise diverging(watch.done)
    judge = judges.get("valid")
    names = ("", "") if judge is None else (judge.name, judge.convention.name)
    return start, Boosted(booster, rounds, value, *names, watch.history, watch.stopped, watch.interrupted)


def check_init_model(ranker: Any, data: Any) -> None:
    """Refuse a model that training cannot go on from."""
    before = ranker.init_model
    if before is None:
        return
    if not isinstance(before, type(ranker)):
        raise DataError(f"init_model must be a fitted TreeRanker, not a {type(before).__name__}.")
    if not hasattr(before, "booster_"):
        raise DataError("init_model is not fitted. (scikit-learn's clone forgets what an estimator has learnt.)")
    before._check_features(data)
    if before.outputs != ranker.outputs:
        raise DataError(f"init_model has outputs='{before.outputs}', so it cannot go on with '{ranker.outputs}'.")


def _judges(ranker: Any, data: RankingData, valid: RankingData | None) -> dict[str, Judge]:
    def judge(of: RankingData) -> Judge:
        return Judge(of, ranker.metric, convention=ranker.convention, threads=ranker.threads)

    judges = {}
    if ranker.boosting != "dart":  # which shows its training scores without the trees that it left out
        on_train = judge(data)
        try:
            on_train(np.zeros(data.n_documents))
            judges["train"] = on_train
        except DataError:  # labels that a loss takes but this metric does not, such as negative ones
            pass
    if valid is not None:
        judges["valid"] = judge(valid)
        judges["valid"](np.zeros(valid.n_documents))  # refuse what cannot be judged now, not after the first tree
        if ranker.early_stopping is not None:
            judges["valid"].for_choosing()
    return judges


def _watch(ranker: Any, judge: Judge | None) -> Watch:
    before = ranker.init_model
    callbacks = list(ranker.callbacks)
    if ranker.verbose:
        callbacks.insert(0, Progress(ranker.metric))
    return Watch(
        rounds=ranker.n_trees,
        first=0 if before is None else before.best_iteration_,
        first_value=None if before is None or judge is None else judge(before.predict(judge.data)),
        higher_is_better=judge is None or judge.higher_is_better,
        patience=None if judge is None else ranker.early_stopping,
        dart=ranker.boosting == "dart",
        sampled=min(ranker.feature_fraction, ranker.row_fraction, ranker.query_fraction) < 1,
        callbacks=callbacks,
    )


def datasets(ranker: Any, data: RankingData, valid: RankingData | None, columns: list[int]) -> dict[str, Any]:
    """LightGBM's data sets, "train" and "valid"."""
    more: dict[str, Any] = {}
    if built_in(ranker.loss):
        more = {"group": data.queries.sizes, "weight": _row_weights(data)}
    train = lightgbm().Dataset(data.X, label=data.labels, categorical_feature=columns or "auto", **more)
    sets = {"train": train}
    if valid is not None:
        group: dict[str, Any] = {"group": valid.queries.sizes} if built_in(ranker.loss) else {}
        sets["valid"] = lightgbm().Dataset(valid.X, label=np.zeros(valid.n_documents), reference=train, **group)
    return sets


def _row_weights(data: RankingData) -> FloatArray | None:
    """The weights that LightGBM's own objectives take: one for each row, queries scaled to a mean of 1."""
    if data.document_weights is None and data.query_weights is None:
        return None
    weights = np.ones(data.n_documents) if data.document_weights is None else np.array(data.document_weights)
    if data.query_weights is not None:
        weights *= data.queries.spread(data.query_weights / data.query_weights.mean())
    return weights


def make_rounds(
    ranker: Any,
    parameters: dict[str, Any],
    sets: dict[str, Any],
    start: Start,
    metrics: dict[str, Metric],
    watch: Watch,
) -> None:
    """Make the rounds, unless an interrupt from the keyboard ends them."""
    library, own = lightgbm(), start.objective

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
        library.train(
            parameters | {"objective": built_in(ranker.loss) if own is None else gradients},
            sets["train"],
            num_boost_round=watch.rounds,
            valid_sets=[sets[name] for name in metrics] or None,
            valid_names=list(metrics) or None,
            feval=evaluate,
            init_model=None if ranker.init_model is None else ranker.init_model.booster_,
            keep_training_booster=True,
            callbacks=[watch.before_the_first, watch],
        )
    except library.basic.LightGBMError as problem:
        raise DataError(f"LightGBM cannot train like this: {problem}.") from None
    except KeyboardInterrupt:
        if watch.booster is None:  # not a single round to keep
            raise
        watch.interrupt()


def booster_of(trees: str) -> Any:
    """LightGBM's booster from its text; one that it cannot read is refused."""
    library = lightgbm()
    try:
        return library.Booster(model_str=trees)
    except library.basic.LightGBMError as problem:
        raise DataError(f"the trees cannot be read: {problem}") from None
