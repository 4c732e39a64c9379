"""`tune`: from a system and data to the best ranker that a search finds."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toprank.compute import available_threads
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy, joined, needs
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.rankers.base import ConvergenceWarning
from toprank.systems import SYSTEMS, System, get
from toprank.tuning.attempt import Question, divide
from toprank.tuning.result import Tuned
from toprank.tuning.search import Search, Standing, tell
from toprank.tuning.space import Choice, Space, read_space
from toprank.tuning.study import NAME, open_study, storage_path

__all__ = ["tune"]

_TELLING = 10
_TELLING_EACH = 2
"""Complete trials, in all and for each hyper-parameter, below which its share of the variance is chance."""


def tune(
    system: System | str,
    train: RankingData,
    valid: RankingData | None = None,
    *,
    metric: str | None = None,
    convention: str = "standard",
    trials: int = 50,
    seconds: float | None = None,
    space: Mapping[str, Any] | None = None,
    folds: int | None = None,
    storage: str | os.PathLike[str] | None = None,
    study: str | None = None,
    seed: int = 0,
    threads: int | None = None,
    callbacks: Sequence[Callable[[Standing], Any]] = (),
    verbose: bool = False,
    **fixed: Any,
) -> Tuned:
    """Search a system's hyper-parameters: fit on `train`, judge on queries that were not trained on.

    The first trial is the system as it is (where its values lie within the space), the next are drawn at random, and
    those after the tenth where earlier ones were good (Optuna's tree-structured Parzen estimator). A trial that falls
    behind the median of the others is pruned: rankers that learn in rounds during training, others after a fold.

    Args:
        system: a system or its name.
        train: data to fit on.
        valid: data to judge on. None: `folds`, or else a fifth of the training queries, held out by seed.
        metric: what to judge by; None: what the system's source chooses by.
        convention: the rules of the metric.
        trials: how many trials the study shall have, those of a resumed one included.
        seconds: time for this search; the first trial may take longer, later ones are cut off where they can be.
        space: the hyper-parameters to search, instead of `default_space(system)`: a tuple is a range, ``(8, 128)`` or
            ``(8, 128, "log")``, a list is a choice, ``[0.5, 1, 2]``. ``"loss.sigma"`` is an option of the loss.
        folds: judge by cross-validation over whole queries with so many folds; the answer is then fitted on all.
        storage: path of an SQLite file that keeps the study, to be resumed by the same call.
        study: the name of the study in that file; a file may hold several.
        seed: decides what is drawn and held out, and the ranker's own randomness.
        threads: threads for each trial, which are made one after another.
        callbacks: functions of a `Standing`, called after each trial; one that returns True ends the search.
        verbose: tell each trial, the best so far and the time left on standard error.
        fixed: hyper-parameters to fix; they are not searched.

    The same seed gives the same trials, in one go or resumed, on the same number of threads and without `seconds`. An
    interrupt from the keyboard ends the search with a warning; the best so far is returned. A trial that fails is noted
    with its reason; only if none succeeds, it is an error.

    Raises:
        MissingExtraError: Optuna is not installed.
        UnknownNameError: there is no such system, metric, convention or hyper-parameter.
        DataError: the space, the data or the study in `storage` do not suit.

    >>> import toprank as tr
    >>> train, valid = tr.split(tr.synthetic(n_queries=60, seed=0), (0.5, 0.5))
    >>> tuned = tr.tune("LeastSquares", train, valid, space={"l2": (1e-4, 10.0, "log")}, trials=3)
    >>> len(tuned.trials), tuned.value >= tuned.trials[0]["value"]
    (3, True)
    """
    optuna = needs("optuna", "tune", "tr.tune")
    chosen = _system(system)
    path = _check(trials, seconds, seed, threads, callbacks, storage, study)
    trials, seed = int(trials), int(seed)
    question = Question(
        chosen,
        divide(train, valid, folds, seed),
        chosen.plain_options(fixed),
        metric or chosen.metric,
        Convention.of(convention).name,
        seed,
        threads,
    )
    searched = read_space(chosen, space, question.fixed)
    if question.division.folded:
        _check_single(question, searched)
    measure = parse(question.metric)
    question.check_judges()
    told = [*callbacks, *([tell(question.metric)] if verbose else [])]
    identity = {} if path is None else _identity(question, searched, train, valid)
    pruner = optuna.pruners.MedianPruner(n_warmup_steps=_warm_up(question))
    with open_study(optuna, path, study or NAME, identity, maximize=measure.higher_is_better, pruner=pruner) as opened:
        search = Search(optuna, opened, question, searched, trials=trials, seconds=seconds, callbacks=told)
        stopped = search.run()
        importance = _importance(optuna, opened, search)
        return _answer(search, train, stopped, importance)


def _system(given: Any) -> System:
    """The system that is meant; a ranker is refused, with the name of a system that makes one like it."""
    if isinstance(given, System):
        return given
    if isinstance(given, str):
        return get(given)
    kind = given.__name__ if isinstance(given, type) else type(given).__name__
    loss = getattr(given, "loss", None)
    loss = loss if isinstance(loss, str) else type(loss).__name__
    alike = [one for one in SYSTEMS.values() if one.ranker == kind]
    best = next((one for one in alike if one.loss == loss), alike[0] if alike else SYSTEMS["LambdaMART"])
    raise DataError(
        f"tune takes a system or its name, not {kind}: it makes a ranker for each trial itself. Name a system, and fix "
        f"what is not to be searched by keywords: tune('{best.name}', train, valid, option=value)."
    )


def _check(trials: Any, seconds: Any, seed: Any, threads: int | None, callbacks: Any, storage: Any, study: Any) -> Any:
    if isinstance(trials, bool) or not isinstance(trials, int | np.integer) or trials < 1:
        raise DataError(f"trials must be a whole number of at least 1, not {trials!r}.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise DataError(f"seed must be a whole number of at least 0, not {seed!r}.")
    if seconds is not None and (
        not isinstance(seconds, int | float | np.integer | np.floating) or not 0 < seconds < math.inf
    ):
        raise DataError(f"seconds must be a number above 0, or None for no limit, not {seconds!r}.")
    if callable(callbacks) or not all(map(callable, callbacks)):
        raise DataError("callbacks takes a list of functions, each of which is called with a Standing.")
    if study is not None and (not isinstance(study, str) or not study.strip()):
        raise DataError(f"study is the name of a study, not {study!r}.")
    available_threads(threads)
    return storage_path(storage)


def _check_single(question: Question, space: Space) -> None:
    """Refuse several penalties at once, which a ranker chooses among on validation data: after folds there are none."""
    options = question.ranker({}).get_params(deep=False)
    for name in ("l2", "tolerance"):
        dimension = space.dimensions.get(name)
        values = dimension.values if isinstance(dimension, Choice) else (options.get(name),)
        for value in values:
            if isinstance(value, list | tuple | np.ndarray):
                raise DataError(
                    f"{name}={value!r} leaves a choice to the ranker, but with folds there are no validation data "
                    "for it when the answer is fitted on all. Search it instead:",
                    remedy=joined(Remedy(f"space={{'{name}': [...]}},", f"--space {name}=a,b,c,"), "or fix one value."),
                )


def _identity(question: Question, space: Space, train: RankingData, valid: RankingData | None) -> dict[str, Any]:
    """What a study must agree in to be resumed."""
    return {
        "system": question.system.name,
        "metric": f"{question.metric} ({question.convention})",
        "train": train.fingerprint,
        "judges": question.division.words,
        "valid": "" if valid is None else valid.fingerprint,
        "fixed": _written({**question.system.options, **question.fixed}),
        "space": _written(space.dimensions),
        "seed": question.seed,
    }


def _written(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(values)) or "none"


def _warm_up(question: Question) -> int:
    """A fifth of the rounds, in which small steps cannot yet show what they are good for; folds need none."""
    rounds = question.rounds
    return 0 if question.division.folded or rounds is None else rounds // 5


def _importance(optuna: Any, study: Any, search: Search) -> dict[str, float]:
    values = [row["value"] for row in search.table() if row["state"] == "complete"]
    if len(set(values)) < 2 or len(values) < max(_TELLING, _TELLING_EACH * len(search.space.dimensions)):
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=search.question.seed)
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()}


def _answer(search: Search, train: RankingData, stopped: str, importance: dict[str, float]) -> Tuned:
    question, best = search.question, search.best()
    assert best is not None  # a search without a complete trial does not come here
    ranker = _ranker(search, best, train)
    if stopped.startswith("Interrupted"):
        warnings.warn(f"tune: {stopped} The best of them is returned.", ConvergenceWarning, stacklevel=3)
    interval = best["interval"]
    return Tuned(
        system=question.system.name,
        ranker=ranker,
        options=best["options"],
        metric=question.metric,
        convention=question.convention,
        value=best["value"],
        interval=None if interval is None else (interval[0], interval[1]),
        judged_on=question.division.words,
        trials=search.table(),
        importance=importance,
        stopped=stopped,
    )


def _ranker(search: Search, best: Mapping[str, Any], train: RankingData) -> Any:
    """The ranker to hand back: that of the best trial where this process made it, else fitted again."""
    question, kept = search.question, search.kept
    if question.division.folded:
        return question.fitted_on_all(best["options"], best["rounds"], train)
    if kept is None or kept.number != best["number"]:
        part = question.division.parts[0]
        return question.ranker(best["options"]).fit(part.train, valid=part.valid)
    [ranker] = kept.outcome.rankers
    for one in kept.outcome.said:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    with contextlib.suppress(ValueError):  # not every kind of ranker has callbacks
        ranker.set_params(callbacks=())
    return ranker
