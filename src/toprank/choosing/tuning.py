"""`tune`: search hyper-parameters by Optuna, which learns from its trials where to look next."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from toprank import losses, rankers
from toprank.choosing.choice import Choice
from toprank.choosing.hold_out import as_data, divide
from toprank.choosing.search import (
    Candidate,
    Clock,
    Interrupts,
    PrunedError,
    Refit,
    Search,
    Trial,
    TrialJudge,
    fit_again,
)
from toprank.choosing.space import OneOf, Space, read_space
from toprank.choosing.study import NAME, open_study, process, storage_path, trials_of
from toprank.compute import available_threads
from toprank.data.checks import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, Remedy, ToprankError, count_of, needs, warn_user
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.rankers.watching import seconds_left
from toprank.showing.progress import SILENCE, ProgressLine, step
from toprank.significance import Interval, t_interval
from toprank.systems import SYSTEMS, System, get

_TELLING = 10
_TELLING_EACH = 2
"""Complete trials, in all and per hyper-parameter, below which shares of the variance are chance."""
_REPORTS = 30  # looks at a training in rounds: each asks Optuna, which takes milliseconds
_HOPELESS = 10  # so many failures, and nothing else, end a search


class Standing(NamedTuple):
    """What a callback gets after each trial; a callback that returns True ends the search."""

    trial: dict[str, Any]
    """The trial that was just made: a row of `Choice.trials`."""
    made: int
    """Trials of the study so far."""
    last: int
    """Trials that the study is to have."""
    best: dict[str, Any] | None
    """The best so far."""
    seconds: float
    """Time since the search began."""
    seconds_left: float
    """Time until the end if later trials take as long as these; NaN after the first trial, whose time includes the
    start, unless a limit was given."""


class StudySearch(Search):
    """The trials of a study by Optuna, until there are enough, or the time is over, or a callback says so.

    What is drawn for a trial depends on the seed, the number of trials before it and their outcomes, and not on the
    process that makes it: a search that is interrupted and resumed draws what an uninterrupted one draws.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = (
        ToprankError, ArithmeticError, MemoryError, np.linalg.LinAlgError,
    )  # fmt: skip

    def __init__(
        self, optuna: Any, system: System, judge: TrialJudge, fixed: Mapping[str, Any], space: Space, seed: int
    ) -> None:
        super().__init__(judge)
        self.optuna, self.system, self.fixed, self.space, self.seed = optuna, system, fixed, space, seed
        self.distributions = space.distributions(optuna)
        self.durations: list[float] = []  # seconds of the trials that this process made
        self.kept: Trial | None = None  # the best trial that this process made, with its ranker
        self.ended = self.out_of_time = False

    def on(
        self, study: Any, trials: int, seconds: float | None, callbacks: Sequence[Callable[[Standing], Any]]
    ) -> None:
        """Make the trials of a study."""
        self.study, self.wanted, self.callbacks, self.clock = study, trials, callbacks, Clock(seconds)
        self.run()

    # ---- rankers ----

    def ranker(self, options: Mapping[str, Any], callback: Callable[[Any], Any] | None = None) -> Any:
        """Return an unfitted ranker with these options."""
        made = self.system.make(**{**self.fixed, **options})
        own = {
            "metric": self.judge.metric,
            "convention": self.judge.convention,
            "seed": self.seed,
            "threads": self.judge.threads,
            "callbacks": () if callback is None else (callback,),
        }
        taken = {*self.fixed, *options, *self.system.options}
        known = made.get_params(deep=False)
        return made.set_params(**{name: value for name, value in own.items() if name in known and name not in taken})

    @property
    def rounds(self) -> int | None:
        """The most rounds that a ranker of the system makes; None if it does not learn in rounds."""
        rounds = self.system.kind.rounds
        return None if rounds is None else int(getattr(self.ranker({}), rounds.option))

    # ---- the table ----

    @property
    @override
    def trials(self) -> list[Trial]:
        """Everything that was tried, trials that were cut off included."""
        return trials_of(self.study, self.space, self.system.name)

    @property
    def settled(self) -> list[Trial]:
        """The trials that count: all but those that were cut off."""
        return [trial for trial in self.trials if trial.state != "interrupted"]

    # ---- the loop ----

    @override
    def batches(self) -> Iterator[list[Candidate]]:
        while len(done := self.settled) < self.wanted and not self.ended and not self.out_of_time:
            if len(done) >= _HOPELESS and not self.ranked:
                break
            trial = self._draw(len(done))
            options = self.space.options(trial.params)
            look = partial(_report, trial)
            watch = self._watch(look) if len(self.judge.division.parts) == 1 else None
            # There must be an answer, so the first trial may take longer than the time that was given.
            seconds = self.clock.left if self.ranked else math.inf
            self.open, self.began = trial, self.clock.spent
            yield [Candidate(self.system.name, partial(self.ranker, options, watch), options, seconds, look)]
            self.out_of_time |= bool(self.ranked) and self.clock.left < 0
        if not self.ranked:
            raise DataError(f"All {count_of(len(done), 'trial')} failed. The first said: {done[0].remark}")

    @property
    def stopped(self) -> str:
        """Why the search ended, as a sentence."""
        made = count_of(len(self.settled), "trial")
        if self.interrupts.happened:
            return f"Interrupted after {made}."
        if len(self.settled) >= self.wanted:
            return f"All {count_of(self.wanted, 'trial')} were made."
        if self.ended:
            return f"A callback ended the search after {made}."
        return f"The {self.clock.budget:g} seconds were over after {made}."

    @override
    def take(self, candidate: Candidate, trial: Trial | None) -> None:
        """Store the outcome of a trial in the study; one that was cut off is stored as failed."""
        states = self.optuna.trial.TrialState
        self.out_of_time |= trial is not None and trial.state == "cut short"
        if trial is None or self.out_of_time or self.interrupts.happened:
            self.study.tell(self.open, state=states.FAIL)
            return
        if trial.state == "failed":
            self.open.set_user_attr("failure", trial.remark)
        if trial.state == "complete":
            self._note(trial)
        else:
            self.study.tell(self.open, state=states.PRUNED if trial.state == "pruned" else states.FAIL)
        self.durations.append(self.clock.spent - self.began)
        self._tell(self.open.number)

    def _note(self, trial: Trial) -> None:
        values = trial.values[~np.isnan(trial.values)]
        interval = t_interval(values)
        facts = {
            "interval": list(interval) if math.isfinite(interval.low) else None,
            "queries": len(values),
            "rounds": list(trial.rounds),
        }
        remark = str(trial.warned[0].message) if trial.warned else ""
        self.open.set_user_attr("noted", {**facts, "remark": remark})
        self.study.tell(self.open, trial.value)
        if self.best.number == self.open.number:
            self.kept = replace(trial, number=self.open.number)

    def _draw(self, index: int) -> Any:
        seed = int(np.random.SeedSequence([self.seed, index]).generate_state(1)[0])
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed)
        if index == 0:  # the search begins with the system as it is, so that it cannot end with less
            # One that was cut off is made again, so Optuna's skip_if_exists, which counts it, is no help.
            waiting = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.WAITING,))
            if not waiting:
                self.study.enqueue_trial(self.space.start())
        trial = self.study.ask(self.distributions)
        trial.set_user_attr("process", process())
        return trial

    def _watch(self, look: Callable[[float, int], None]) -> Callable[[Any], None]:
        """A callback for rankers that learn in rounds: the best validation metric so far, every few rounds."""
        best, sign = -math.inf, self.judge.sign
        every = max(1, (self.rounds or 1) // _REPORTS)

        def watch(now: Any) -> None:
            nonlocal best
            if now.valid is not None and now.valid == now.valid:
                best = max(best, sign * now.valid)
            if now.number % every == 0 and math.isfinite(best):
                look(sign * best, now.number)

        return watch

    def _tell(self, number: int) -> None:
        done, seconds = self.settled, self.clock.spent
        left = seconds_left(sum(self.durations[1:]), len(self.durations) - 1, self.wanted - len(done))
        if math.isfinite(self.clock.budget):
            left = float(np.fmin(left, max(0.0, self.clock.left)))
        [row] = [trial.row() for trial in done if trial.number == number]
        best = self.best.row() if self.ranked else None
        standing = Standing(row, len(done), self.wanted, best, seconds, left)
        answers = [callback(standing) for callback in self.callbacks]  # each is called, also after one that ends it
        self.ended = any(answer is True for answer in answers)


def _report(trial: Any, value: float, step: int) -> None:
    """Tell Optuna the metric of a trial so far, and give the trial up if Optuna says that it is behind."""
    if value == value:
        trial.report(value, step)
        if trial.should_prune():
            raise PrunedError


def _telling(metric: str, line: ProgressLine) -> Callable[[Standing], None]:
    """Return a callback that prints the state of the search."""

    def say(now: Standing) -> None:
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
    _check(trials, seconds, seed, threads, callbacks, study)
    path, trials, seed = storage_path(storage), int(trials), int(seed)
    learn, valid = as_data(train, "train"), None if valid is None else as_data(valid, "valid")
    division = divide(learn, valid, folds=folds, seed=seed, by=by)
    judge = TrialJudge(division, metric or chosen.metric, Convention.of(convention).name, threads)
    options = chosen.plain_options(fixed)
    search = StudySearch(optuna, chosen, judge, options, read_space(chosen, space, options), seed)
    if division.folded:
        _check_single(search)
    measure = parse(judge.metric)
    judge.check()
    quiet, line = verbose is False, ProgressLine(after=SILENCE if verbose is None else 0.0)
    listeners = [*callbacks, *([] if quiet else [_telling(judge.metric, line)])]
    identity = {} if path is None else _identity(search, learn, valid)
    pruner = optuna.pruners.MedianPruner(n_warmup_steps=_warm_up(search))
    with open_study(optuna, path, study or NAME, identity, maximize=measure.higher_is_better, pruner=pruner) as opened:
        with step(f"Searching hyper-parameters of {chosen.name}, trial by trial …", quiet, line):
            search.on(opened, trials, seconds, listeners)
        with step(f"Fitting the best of {chosen.name} once more …", quiet, line):
            choice = _choice(search, learn)
    if choice.interrupted:
        warn_user(f"tune: {choice.stopped} The best of them is returned.", ConvergenceWarning)
    return choice


def _system(system: Any) -> System:
    """Return the system to search; for a ranker, one that makes such rankers and keeps what is not a default."""
    if isinstance(system, System):
        return system
    if isinstance(system, str):
        return get(system)
    ranker = system() if isinstance(system, type) and issubclass(system, Ranker) else system
    kind = type(ranker).__name__
    if not isinstance(ranker, Ranker) or getattr(rankers, kind, None) is not type(ranker):
        raise DataError(
            f"tune takes a system or its name, or a ranker of toprank (tr.TreeRanker(n_trees=50)), not "
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
            raise DataError(f"tune makes losses by their names, and {name} is one of your own; search in a loop.")
        own = {field.name: getattr(loss, field.name) for field in fields(loss)}
        options |= {f"loss.{field}": value for field, value in own.items() if value != getattr(plain, field)}
    alike = [known for known in SYSTEMS.values() if (known.ranker, known.loss) == (kind, name) and not known.options]
    grid = {} if not alike else {key: values for key, values in alike[0].grid.items() if key not in options}
    return System(kind, kind, name, source="", idea=repr(ranker), options=options, grid=grid)


def _check(trials: Any, seconds: Any, seed: Any, threads: int | None, callbacks: Any, study: Any) -> None:
    check_whole("trials", trials, 1)
    check_whole("seed", seed, 0, below=2**31)
    if seconds is not None:
        check_number("seconds", seconds, above=0)
    if callable(callbacks) or not all(map(callable, callbacks)):
        raise DataError("callbacks takes a list of functions, each of which is called with a Standing.")
    if study is not None and (not isinstance(study, str) or not study.strip()):
        raise DataError(f"study is the name of a study, not {study!r}.")
    available_threads(threads)


def _check_single(search: StudySearch) -> None:
    """Refuse lists of penalties, among which rankers choose on validation data: with folds, the last fit has none."""
    options = search.ranker({}).get_params(deep=False)
    for name in ("l2", "tolerance"):
        dimension = search.space.dimensions.get(name)
        values = dimension.values if isinstance(dimension, OneOf) else (options.get(name),)
        for value in values:
            if isinstance(value, list | tuple | np.ndarray):
                raise DataError(
                    f"{name}={value!r} leaves a choice to the ranker, but with folds there are no validation data "
                    "for it when the answer is fitted on all. Search it instead:",
                    remedy=Remedy("{space}, or fix one value.", space={name: [...]}),
                )


def _identity(search: StudySearch, train: RankingData, valid: RankingData | None) -> dict[str, Any]:
    """What a study must agree in to be resumed."""
    return {
        "system": search.system.name,
        "metric": f"{search.judge.metric} ({search.judge.convention})",
        "train": train.fingerprint,
        "judges": search.judge.division.words,
        "valid": "" if valid is None else valid.fingerprint,
        "fixed": _listed({**search.system.options, **search.fixed}),
        "space": _listed(search.space.dimensions),
        "seed": search.seed,
    }


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(values)) or "none"


def _warm_up(search: StudySearch) -> int:
    """Return how many rounds are not pruned: a fifth, in which small steps cannot show their worth; none for folds."""
    return 0 if search.judge.division.folded else (search.rounds or 0) // 5


def _importance(search: StudySearch) -> dict[str, float]:
    values = [trial.value for trial in search.ranked]
    if len(set(values)) < 2 or len(values) < max(_TELLING, _TELLING_EACH * len(search.space.dimensions)):
        return {}
    importance = search.optuna.importance
    evaluator = importance.FanovaImportanceEvaluator(seed=search.seed)
    shares = importance.get_param_importances(search.study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()}


def _choice(search: StudySearch, train: RankingData) -> Choice:
    judge, best, table = search.judge, search.best, search.trials
    importance, ends = _importance(search), best.facts["interval"]
    states = ", ".join(f"{number} {state}" for state, number in Counter(trial.state for trial in table).items())
    shares = ", ".join(f"{name} {share:.0%}" for name, share in importance.items())
    value = float(best.value or 0.0)
    last = _refit(search, best, train)
    return Choice(
        ranker=last.ranker,
        name=search.system.name,
        options=dict(best.options),
        metric=judge.metric,
        convention=judge.convention,
        value=value,
        judged_on=judge.division.words,
        trials=[trial.row() for trial in table],
        sentences=(
            *([f"What mattered: {shares}."] if shares else []),
            f"{search.stopped} ({states})",
            *([last.sentence] if last.sentence else []),
            "The value is the best of many, so it is optimistic; judge the ranker on data that chose nothing.",
        ),
        stopped=" ".join(filter(None, (search.stopped, last.sentence))),
        interval=ends and Interval(value, ends[0], ends[1], 0.95, best.facts["queries"], "Student's t", judge.metric),
        importance=importance,
        held_out=judge.division.held_out,
        refitted=judge.division.folded and not last.interrupted,
        budget_bound=search.out_of_time,
        interrupted=search.interrupts.happened or last.interrupted,
    )


def _refit(search: StudySearch, best: Trial, train: RankingData) -> Refit:
    """Return the ranker of the best trial; after folds, or if another process made the trial, fit it again."""
    kept, parts = search.kept, search.judge.division.parts
    if kept is not None and kept.number != best.number:  # a resumed study: another process made its best trial
        kept = None
    sentence, interrupts = "", Interrupts()
    if search.judge.division.folded:
        with interrupts:
            again = interrupts.finished(lambda: fit_again(search.ranker(best.options), best.facts["rounds"], train))
        if again is not None:
            return Refit(again)
        if kept is None:
            raise KeyboardInterrupt
        sentence = "Fitting the best on all queries was interrupted, so it has not learned from the last fold."
    elif kept is None:
        ranker = search.ranker(best.options).fit(parts[0].train, valid=parts[0].valid)
        if ranker.was_interrupted:
            sentence = "Fitting the best once more was interrupted, so it is what there was by then."
        return Refit(ranker, sentence, interrupted=ranker.was_interrupted)
    for warning in kept.warned:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    ranker = kept.fitted if kept.fitted.rounds is None else kept.fitted.set_params(callbacks=())
    return Refit(ranker, sentence, interrupted=interrupts.happened)
