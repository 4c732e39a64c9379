"""`tune`: hyper-parameter search with Optuna."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from toprank import losses, rankers
from toprank.compute import available_threads
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.display.progress import SILENCE, ProgressLine, step
from toprank.errors import DataError, Remedy, require_extra, warn_user
from toprank.metrics.conventions import Convention
from toprank.model_selection.hold_out import as_data, divide
from toprank.model_selection.result import SelectionResult
from toprank.model_selection.search import Interrupts, Refit, Trial, TrialEvaluator, refit_on_all
from toprank.model_selection.space import OneOf, read_space
from toprank.model_selection.study import NAME, StudyLocation, open_study, storage_path
from toprank.model_selection.study_search import SearchedSystem, SearchLimits, SearchProgress, StudySearch
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.significance import Interval
from toprank.systems import SYSTEMS, System, get

_MIN_TRIALS, _MIN_TRIALS_EACH = 10, 2
"""Minimum number of complete trials, in total and per hyper-parameter, for the fANOVA importance."""


def _progress_printer(metric: str, line: ProgressLine) -> Callable[[SearchProgress], None]:
    """Return a callback that prints the progress of the search."""

    def say(now: SearchProgress) -> None:
        row = now.trial
        value = row["state"] if row["value"] is None else f"{metric} {row['value']:.4f}"
        parts = [f"{now.made}/{now.last} trials", value if row["state"] == "complete" else f"{value} ({row['state']})"]
        if now.best is not None:
            parts.append(f"best {now.best['value']:.4f} in trial {now.best['number']}")
        if now.seconds_left == now.seconds_left:
            parts.append(f"about {now.seconds_left:.0f} s left")
        line("  ".join(parts), last=True)

    return say


def tune(
    system: System | str | Ranker | type[Ranker],
    train: RankingData | tuple[Any, ...],
    valid: RankingData | tuple[Any, ...] | None = None,
    *,
    metric: str | None = None,
    convention: str = "standard",
    n_trials: int = 50,
    time_budget: float | None = None,
    space: Mapping[str, Any] | None = None,
    folds: int | None = None,
    time_column: str | None = None,
    storage: str | os.PathLike[str] | None = None,
    study_name: str | None = None,
    seed: int = 0,
    threads: int | None = None,
    callbacks: Sequence[Callable[[SearchProgress], Any]] = (),
    verbose: bool | None = None,
    **fixed: Any,
) -> SelectionResult:
    """Search the hyper-parameters of a system with Optuna: fit on `train`, evaluate on held-out queries.

    The first trial uses the system's defaults, if they are within the space. The next ones are sampled at random, and
    from the eleventh on by Optuna's tree-structured Parzen estimator. Trials below the median of the others are pruned:
    during training for rankers that learn in rounds, otherwise after a fold.

    Args:
        system: system or its name; or a ranker or its class, whose other parameters stay fixed.
        train: training data, a `RankingData` or a tuple (X, y, qid).
        valid: validation data in the same form. None (default) uses `folds`, or holds out a fifth of the queries.
        metric: metric to optimize. None (default) uses the metric of the system's paper.
        convention: evaluation convention of the metric.
        n_trials: total number of trials of the study, including earlier ones if it is resumed. Default 50.
        time_budget: time limit of this search in seconds. The first trial may exceed it; later ones are stopped. None
            (default): no limit.
        space: hyper-parameters to search instead of `default_space(system)`. A tuple is a range, ``(8, 128)`` or
            ``(8, 128, "log")``; a list is a choice, ``[0.5, 1, 2]``; ``"loss.sigma"`` is an option of the loss.
        folds: number of cross-validation folds over whole queries; the best trial is then refitted on all queries.
        time_column: metadata column of dates or numbers to split by. The latest fifth is held out, or with `folds` each
            fold is evaluated on one period after training on all earlier ones (expanding window); see `toprank.split`.
        storage: path of an SQLite file that stores the study; the same call resumes it.
        study_name: name of the study in that file, which may contain several.
        seed: seed of the search, the held-out queries and the ranker.
        threads: number of threads of each trial; trials run one after another.
        callbacks: functions called with a `SearchProgress` after each trial; one that returns True ends the search.
        verbose: whether to report each trial, the best so far and the time left on standard error. None (default)
            reports from the third second on.
        **fixed: hyper-parameters to fix; they are not searched.

    The same seed gives the same trials, whether resumed or not, for the same number of threads and without
    `time_budget`. Ctrl-C ends the search with a warning and returns the best trial so far. A failed trial is recorded
    with its reason; an error is raised only if all trials fail.

    Raises:
        MissingExtraError: if Optuna is not installed.
        UnknownNameError: if a system, metric, convention or hyper-parameter does not exist.
        DataError: if the space, the data or the study in `storage` are not valid for this search.

    >>> import toprank as tr
    >>> train, valid = tr.split(tr.synthetic(n_queries=60, seed=0), (0.5, 0.5))
    >>> tuned = tr.tune("LeastSquares", train, valid, space={"l2": (1e-4, 10.0, "log")}, n_trials=3)
    >>> len(tuned.trials), tuned.value >= tuned.trials[0]["value"]
    (3, True)
    """
    optuna, chosen = _optuna(), _system(system)
    if space is None and not isinstance(system, System | str):
        own = {name: value for name, value in chosen.options.items() if name != "loss"}
        fixed = {**own, **fixed}  # parameters set on the ranker are fixed, unless the space names them
    _check(SearchLimits(n_trials, time_budget, callbacks), seed, threads, study_name)
    limits, path = SearchLimits(int(n_trials), time_budget, callbacks), storage_path(storage)
    learn, valid = as_data(train, "train"), None if valid is None else as_data(valid, "valid")
    division = divide(learn, valid, folds=folds, seed=int(seed), time_column=time_column)
    judge = TrialEvaluator(division, metric or chosen.metric, Convention.from_name(convention).name, threads)
    options = chosen.plain_options(fixed)
    searched = SearchedSystem(chosen, options, read_space(chosen, space, options), int(seed))
    search = StudySearch(optuna, judge, searched)
    if division.is_folded:
        _check_single(search)
    judge.check()
    place = StudyLocation(path, study_name or NAME, {} if path is None else _identity(search, learn, valid))
    return _searched(search, limits, place, learn, verbose)


def _optuna() -> Any:
    with warnings.catch_warnings():  # in notebooks, importing Optuna warns about missing widgets
        warnings.filterwarnings("ignore", "IProgress not found")
        return require_extra("optuna", "tune", "tr.tune")


def _searched(
    search: StudySearch, limits: SearchLimits, place: StudyLocation, train: RankingData, verbose: bool | None
) -> SelectionResult:
    """Run the trials and return the result."""
    quiet, line, name = verbose is False, ProgressLine(after=SILENCE if verbose is None else 0.0), search.system.name
    if not quiet:
        limits = replace(limits, callbacks=[*limits.callbacks, _progress_printer(search.judge.metric, line)])
    pruner = search.optuna.pruners.MedianPruner(n_warmup_steps=_warm_up(search))
    with open_study(search.optuna, place, maximize=search.judge.sign > 0, pruner=pruner) as study:
        with step(f"Searching hyper-parameters of {name} …", quiet, line):
            search.on(study, limits)
        with step(f"Refitting the best trial of {name} …", quiet, line):
            choice = _choice(search, train)
    if choice.interrupted:
        warn_user(f"tune: {choice.stopped} The best trial is returned.", ConvergenceWarning)
    return choice


def _system(system: Any) -> System:
    """Return the system to search; convert a ranker to a system that keeps its non-default parameters."""
    if isinstance(system, System):
        return system
    if isinstance(system, str):
        return get(system)
    ranker = system() if isinstance(system, type) and issubclass(system, Ranker) else system
    kind = type(ranker).__name__
    if not isinstance(ranker, Ranker) or getattr(rankers, kind, None) is not type(ranker):
        raise DataError(
            f"tune takes a system or its name, or a ranker of toprank such as tr.TreeRanker(n_trees=50), not "
            f"{kind if ranker is system else system!r}."
        )
    defaults, chosen = type(ranker)().get_params(deep=False), ranker.get_params(deep=False)
    options = {name: value for name, value in chosen.items() if repr(value) != repr(defaults[name])}
    name = None
    if "loss" in chosen and not str(chosen["loss"]).startswith("lightgbm:"):
        options.pop("loss", None)
        loss = losses.make(chosen["loss"])
        name = type(loss).__name__
        if name not in losses.names() or type(plain := losses.make(name)) is not type(loss):
            raise DataError(f"tune does not support the custom loss {name}; use a built-in loss, or search in a loop.")
        own = {field.name: getattr(loss, field.name) for field in fields(loss)}
        options |= {f"loss.{field}": value for field, value in own.items() if value != getattr(plain, field)}
    alike = [known for known in SYSTEMS.values() if (known.ranker, known.loss) == (kind, name) and not known.options]
    grid = {} if not alike else {key: values for key, values in alike[0].grid.items() if key not in options}
    return System(kind, kind, name, source="", idea=repr(ranker), options=options, grid=grid)


def _check(limits: SearchLimits, seed: Any, threads: int | None, study_name: Any) -> None:
    check_whole("n_trials", limits.n_trials, 1)
    check_whole("seed", seed, 0, below=2**31)
    if limits.time_budget is not None:
        check_number("time_budget", limits.time_budget, above=0)
    if callable(limits.callbacks) or not all(map(callable, limits.callbacks)):
        raise DataError("callbacks must be a list of functions that take a SearchProgress.")
    if study_name is not None and (not isinstance(study_name, str) or not study_name.strip()):
        raise DataError(f"study_name must be a nonempty string, not {study_name!r}.")
    available_threads(threads)


def _check_single(search: StudySearch) -> None:
    """Refuse lists of penalties with folds: the final refit has no validation data to select a penalty."""
    options = search.ranker({}).get_params(deep=False)
    for name in ("l2", "tolerance"):
        dimension = search.space.dimensions.get(name)
        values = dimension.values if isinstance(dimension, OneOf) else (options.get(name),)
        for value in values:
            if isinstance(value, list | tuple | np.ndarray):
                raise DataError(
                    f"{name}={value!r} needs validation data, which the final fit after folds lacks. Search for it:",
                    remedy=Remedy("{space}, or fix one value.", space={name: [...]}),
                )


def _identity(search: StudySearch, train: RankingData, valid: RankingData | None) -> dict[str, Any]:
    """Return the properties of a study that must match to resume it."""
    return {
        "system": search.system.name,
        "metric": f"{search.judge.metric} ({search.judge.convention})",
        "train": train.fingerprint,
        "judges": search.judge.division.description,
        "valid": "" if valid is None else valid.fingerprint,
        "fixed": _listed({**search.system.options, **search.fixed}),
        "space": _listed(search.space.dimensions),
        "seed": search.seed,
    }


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(values)) or "none"


def _warm_up(search: StudySearch) -> int:
    """Return the number of rounds before pruning: a fifth, since small learning rates start slowly; 0 with folds."""
    return 0 if search.judge.division.is_folded else (search.rounds or 0) // 5


def _importance(search: StudySearch) -> dict[str, float]:
    values = [trial.value for trial in search.ranked]
    if len(set(values)) < 2 or len(values) < max(_MIN_TRIALS, _MIN_TRIALS_EACH * len(search.space.dimensions)):
        return {}
    importance = search.optuna.importance
    evaluator = importance.FanovaImportanceEvaluator(seed=search.seed)
    shares = importance.get_param_importances(search.study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()}


def _choice(search: StudySearch, train: RankingData) -> SelectionResult:
    judge, best, table = search.judge, search.best, search.trials
    importance, ends = _importance(search), best.facts["interval"]
    states = ", ".join(f"{number} {state}" for state, number in Counter(trial.state for trial in table).items())
    shares = ", ".join(f"{name} {share:.0%}" for name, share in importance.items())
    value = float(best.value or 0.0)
    last = _refit(search, best, train)
    return SelectionResult(
        ranker=last.ranker,
        name=search.system.name,
        options=dict(best.options),
        metric=judge.metric,
        convention=judge.convention,
        value=value,
        evaluated_on=judge.division.description,
        trials=[trial.row() for trial in table],
        sentences=(
            *([f"Importance of hyper-parameters: {shares}."] if shares else []),
            f"{search.stopped} ({states})",
            *([last.sentence] if last.sentence else []),
            "The value is optimistic, as it is the best of many; evaluate the ranker on independent data.",
        ),
        stopped=" ".join(filter(None, (search.stopped, last.sentence))),
        interval=ends and Interval(value, ends[0], ends[1], 0.95, best.facts["queries"], "Student's t", judge.metric),
        importance=importance,
        n_held_out=judge.division.n_held_out,
        refitted=judge.division.is_folded and not last.interrupted,
        timed_out=search.out_of_time,
        interrupted=search.interrupts.happened or last.interrupted,
    )


def _refit(search: StudySearch, best: Trial, train: RankingData) -> Refit:
    """Return the ranker of the best trial; refit it after folds, or if another process ran the trial."""
    kept, rounds = search.kept, search.judge.division.rounds
    if kept is not None and kept.number != best.number:  # the best trial of a resumed study is from another process
        kept = None
    sentence, interrupts = "", Interrupts()
    if search.judge.division.is_folded:
        with interrupts:
            again = interrupts.run_fit(lambda: refit_on_all(search.ranker(best.options), best.facts["rounds"], train))
        if again is not None:
            return Refit(again)
        if kept is None:
            raise KeyboardInterrupt
        sentence = "The refit on all queries was interrupted; the returned ranker was trained without the last fold."
    elif kept is None:
        ranker = search.ranker(best.options).fit(rounds[0].train, valid=rounds[0].valid)
        if ranker.was_interrupted:
            sentence = "The refit of the best trial was interrupted, so its training is incomplete."
        return Refit(ranker, sentence, interrupted=ranker.was_interrupted)
    for warning in kept.warned:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    ranker = kept.fitted if kept.fitted.rounds is None else kept.fitted.set_params(callbacks=())
    return Refit(ranker, sentence, interrupted=interrupts.happened)
