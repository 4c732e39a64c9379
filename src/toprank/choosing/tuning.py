"""`tune`: hyper-parameters by a search that learns from its trials where to look next (Optuna)."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from toprank import losses, rankers
from toprank.choosing.choice import Choice
from toprank.choosing.hold_out import as_data, divide
from toprank.choosing.search import Question, Search, Standing, tell
from toprank.choosing.space import OneOf, Space, read_space
from toprank.choosing.study import NAME, open_study, storage_path
from toprank.choosing.trial import Interrupts, Trial, TrialJudge
from toprank.compute import available_threads
from toprank.data.checks import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy, needs, warn_user
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.showing.progress import SILENCE, Told, step
from toprank.systems import SYSTEMS, System, get

__all__ = ["tune"]

_TELLING = 10
_TELLING_EACH = 2
"""Complete trials, in all and for each hyper-parameter, below which its share of the variance is chance."""


def tune(
    system: System | str | Ranker | type[Ranker],
    train: RankingData | tuple[Any, ...],
    valid: RankingData | tuple[Any, ...] | None = None,
    *,
    metric: str | None = None,
    convention: str = "standard",
    trials: int = 50,
    seconds: float | None = None,
    space: Mapping[str, Any] | None = None,
    folds: int | None = None,
    by: str | None = None,
    storage: str | os.PathLike[str] | None = None,
    study: str | None = None,
    seed: int = 0,
    threads: int | None = None,
    callbacks: Sequence[Callable[[Standing], Any]] = (),
    verbose: bool | None = None,
    **fixed: Any,
) -> Choice:
    """Search a system's hyper-parameters: fit on `train`, judge on queries that were not trained on.

    The first trial is the system as it is (where its values lie within the space), the next are drawn at random, and
    those after the tenth where earlier ones were good (Optuna's tree-structured Parzen estimator). A trial that falls
    behind the median of the others is pruned: rankers that learn in rounds during training, others after a fold.

    Args:
        system: a system or its name; or a ranker or its class, whose other parameters stay as they are.
        train: data to fit on, also as (X, y, qid).
        valid: data to judge on, likewise. None: `folds`, or else a fifth of the training queries, held out by seed.
        metric: what to judge by; None: what the system's source chooses by.
        convention: the rules of the metric.
        trials: how many trials the study shall have, those of a resumed one included.
        seconds: time for this search; the first trial may take longer, later ones are cut off where they can be.
        space: the hyper-parameters to search, instead of `default_space(system)`: a tuple is a range, ``(8, 128)`` or
            ``(8, 128, "log")``, a list is a choice, ``[0.5, 1, 2]``. ``"loss.sigma"`` is an option of the loss.
        folds: judge by cross-validation over whole queries with so many folds; the answer is then fitted on all.
        by: a carried column of dates or numbers: the latest fifth is held out instead, or each of `folds` judges on a
            period and learns from all before it, in a window that expands; see `toprank.split`.
        storage: path of an SQLite file that keeps the study, to be resumed by the same call.
        study: the name of the study in that file; a file may hold several.
        seed: decides what is drawn and held out, and the ranker's own randomness.
        threads: threads for each trial, which are made one after another.
        callbacks: functions of a `Standing`, called after each trial; one that returns True ends the search.
        verbose: tell each trial, the best so far and the time left on standard error; in a notebook, in one line that
            is written over. None: from the third second on; False: never.
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
    with warnings.catch_warnings():  # in a notebook its import asks for widgets, which a search shows none of
        warnings.filterwarnings("ignore", "IProgress not found")
        optuna = needs("optuna", "tune", "tr.tune")
    chosen = _system(system)
    if space is None and not isinstance(system, System | str):
        own = {name: value for name, value in chosen.options.items() if name != "loss"}
        fixed = {**own, **fixed}  # what a ranker was given is not searched unasked
    path = _check(trials, seconds, seed, threads, callbacks, storage, study)
    trials, seed = int(trials), int(seed)
    learn, valid = as_data(train, "train"), None if valid is None else as_data(valid, "valid")
    division = divide(learn, valid, folds=folds, seed=seed, by=by)
    judge = TrialJudge(division, metric or chosen.metric, Convention.of(convention).name, threads)
    question = Question(chosen, judge, chosen.plain_options(fixed), seed)
    searched = read_space(chosen, space, question.fixed)
    if division.folded:
        _check_single(question, searched)
    measure = parse(judge.metric)
    judge.check()
    quiet, line = verbose is False, Told(after=SILENCE if verbose is None else 0.0)
    listeners = [*callbacks, *([] if quiet else [tell(judge.metric, line)])]
    identity = {} if path is None else _identity(question, searched, learn, valid)
    pruner = optuna.pruners.MedianPruner(n_warmup_steps=_warm_up(question))
    with open_study(optuna, path, study or NAME, identity, maximize=measure.higher_is_better, pruner=pruner) as opened:
        search = Search(optuna, opened, question, searched, trials=trials, seconds=seconds, callbacks=listeners)
        interrupts = Interrupts()
        with step(f"Searching hyper-parameters of {chosen.name}, trial by trial …", quiet, line):
            stopped = search.run(interrupts)
        importance = _importance(optuna, opened, search)
        with step(f"Fitting the best of {chosen.name} once more …", quiet, line):
            choice = _choice(search, learn, stopped, importance, interrupts.happened)
    if choice.interrupted:
        warn_user(f"tune: {stopped} The best of them is returned.", ConvergenceWarning)
    return choice


def _system(given: Any) -> System:
    """The system that is meant; of a ranker, the one that makes such rankers: what differs from the defaults stays."""
    if isinstance(given, System):
        return given
    if isinstance(given, str):
        return get(given)
    ranker = given() if isinstance(given, type) and issubclass(given, Ranker) else given
    kind = type(ranker).__name__
    if not isinstance(ranker, Ranker) or getattr(rankers, kind, None) is not type(ranker):
        raise DataError(
            f"tune takes a system or its name, or a ranker of toprank (tr.TreeRanker(n_trees=50)), not "
            f"{kind if ranker is given else given!r}."
        )
    defaults, found = type(ranker)().get_params(deep=False), ranker.get_params(deep=False)
    options = {name: value for name, value in found.items() if repr(value) != repr(defaults[name])}
    name = None
    if "loss" in found and not str(found["loss"]).startswith("lightgbm:"):
        options.pop("loss", None)
        loss = losses.make(found["loss"])
        name = type(loss).__name__
        if name not in losses.names() or type(plain := losses.make(name)) is not type(loss):
            raise DataError(f"tune makes losses by their names, and {name} is one of your own; search in a loop.")
        own = {one.name: getattr(loss, one.name) for one in fields(loss)}
        options |= {f"loss.{field}": value for field, value in own.items() if value != getattr(plain, field)}
    alike = [one for one in SYSTEMS.values() if (one.ranker, one.loss) == (kind, name) and not one.options]
    grid = {} if not alike else {key: values for key, values in alike[0].grid.items() if key not in options}
    return System(kind, kind, name, source="", idea=repr(ranker), options=options, grid=grid)


def _check(trials: Any, seconds: Any, seed: Any, threads: int | None, callbacks: Any, storage: Any, study: Any) -> Any:
    check_whole("trials", trials, 1)
    check_whole("seed", seed, 0, below=2**31)
    if seconds is not None:
        check_number("seconds", seconds, above=0)
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
        values = dimension.values if isinstance(dimension, OneOf) else (options.get(name),)
        for value in values:
            if isinstance(value, list | tuple | np.ndarray):
                raise DataError(
                    f"{name}={value!r} leaves a choice to the ranker, but with folds there are no validation data "
                    "for it when the answer is fitted on all. Search it instead:",
                    remedy=Remedy("{space}, or fix one value.", space={name: [...]}),
                )


def _identity(question: Question, space: Space, train: RankingData, valid: RankingData | None) -> dict[str, Any]:
    """What a study must agree in to be resumed."""
    return {
        "system": question.system.name,
        "metric": f"{question.judge.metric} ({question.judge.convention})",
        "train": train.fingerprint,
        "judges": question.judge.division.words,
        "valid": "" if valid is None else valid.fingerprint,
        "fixed": _listed({**question.system.options, **question.fixed}),
        "space": _listed(space.dimensions),
        "seed": question.seed,
    }


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(values)) or "none"


def _warm_up(question: Question) -> int:
    """A fifth of the rounds, in which small steps cannot yet show what they are good for; folds need none."""
    rounds = question.rounds
    return 0 if question.judge.division.folded or rounds is None else rounds // 5


def _importance(optuna: Any, study: Any, search: Search) -> dict[str, float]:
    values = [trial.value for trial in search.table() if trial.state == "complete"]
    if len(set(values)) < 2 or len(values) < max(_TELLING, _TELLING_EACH * len(search.space.dimensions)):
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=search.question.seed)
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()}


def _choice(
    search: Search, train: RankingData, stopped: str, importance: dict[str, float], interrupted: bool
) -> Choice:
    judge, best = search.question.judge, search.best()
    assert best is not None  # a search without a complete trial does not come here
    assert best.value is not None
    table, interval = search.table(), best.facts["interval"]
    states = ", ".join(f"{number} {state}" for state, number in Counter(trial.state for trial in table).items())
    shares = ", ".join(f"{name} {share:.0%}" for name, share in importance.items())
    return Choice(
        ranker=_ranker(search, best, train),
        name=search.question.system.name,
        options=dict(best.options),
        metric=judge.metric,
        convention=judge.convention,
        value=best.value,
        judged_on=judge.division.words,
        trials=[trial.row() for trial in table],
        sentences=(
            *([f"What mattered: {shares}."] if shares else []),
            f"{stopped} ({states})",
            "The value is the best of many, so it is optimistic; judge the ranker on data that chose nothing.",
        ),
        stopped=stopped,
        interval=None if interval is None else (interval[0], interval[1]),
        importance=importance,
        held_out=judge.division.held_out,
        refitted=judge.division.folded,
        budget_bound=search.out_of_time,
        interrupted=interrupted,
    )


def _ranker(search: Search, best: Trial, train: RankingData) -> Any:
    """The ranker to hand back: that of the best trial where this process made it, else fitted again."""
    question, kept = search.question, search.kept
    if question.judge.division.folded:
        return question.fitted_on_all(best.options, best.facts["rounds"], train)
    if kept is None or kept.number != best.number:  # a resumed study: its best trial was made by another process
        [part] = question.judge.division.parts
        return question.ranker(best.options).fit(part.train, valid=part.valid)
    for warning in kept.warned:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    with contextlib.suppress(ValueError):  # not every kind of ranker has callbacks
        kept.fitted.set_params(callbacks=())
    return kept.fitted
