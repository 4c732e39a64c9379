"""Trials: each fits and judges on parts of the data, and stops where it is not worth the time; and their loop."""

from __future__ import annotations

import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from toprank.choosing.space import Space
from toprank.choosing.study import Trial, process, rows
from toprank.compute import FloatArray
from toprank.data.checks import check_whole
from toprank.data.dataset import RankingData
from toprank.data.folds import split
from toprank.data.periods import periods
from toprank.errors import DataError, MissingExtraError, Remedy, ToprankError
from toprank.metrics.evaluation import Judge
from toprank.rankers.base import ConstantScoresWarning, ConvergenceWarning
from toprank.rankers.watching import seconds_left
from toprank.showing.progress import Told
from toprank.significance import t_interval
from toprank.significance.results import queries
from toprank.systems import System

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["Attempt", "Interrupts", "OutOfTimeError", "Question", "Search", "Standing", "divide", "tell"]

_HELD_OUT = 0.2


class Part(NamedTuple):
    """To learn from, and to judge by."""

    train: RankingData
    valid: RankingData


class Division(NamedTuple):
    """The parts of the data, and what they are in words."""

    parts: tuple[Part, ...]
    words: str
    folded: bool
    """Whether there are folds: then the answer may learn from all queries."""


def as_data(given: Any) -> Any:
    """Ranking data of (X, y, qid); other things are left to be refused."""
    if isinstance(given, tuple) and len(given) == 3:
        X, y, qid = given
        return RankingData(X, y, qid=qid)
    return given


def divide(
    train: RankingData, valid: RankingData | None, folds: int | None, seed: int, by: str | None = None
) -> Division:
    """The given validation data; or so many folds; or a fifth of the queries held out, drawn by seed or the latest."""
    for name, data in (("train", train), ("valid", valid)):
        if data is not None and not isinstance(data, RankingData):
            raise DataError(
                f"{name} must be a RankingData, tr.RankingData(X, y, qid=qid) or tr.read(path), or (X, y, qid)."
            )
    if valid is not None:
        if by is not None:
            raise DataError(
                "Validation data are given, so nothing is held out by time; leave one of the two out:",
                remedy=Remedy("{valid} or {by}.", valid=..., by=...),
            )
        if folds is not None:
            raise DataError("Trials are judged on valid data or on folds, not on both; leave one of them out.")
        if valid.n_features != train.n_features:
            raise DataError(
                f"The validation data have {valid.n_features} features, but the training data {train.n_features}.",
                remedy=Remedy(
                    "Read the file with n_features= of the training data where trailing features are absent.",
                    "They must be the same.",
                ),
            )
        return Division((Part(train, valid),), f"{queries(valid.n_queries)} of validation data", False)
    if folds is None:
        _check_enough(train, 2)
        fraction = max(_HELD_OUT, 1 / train.n_queries)
        drawn: dict[str, Any] = {"seed": seed} if by is None else {"by": by}
        kept, held_out = split(train, (1 - fraction, fraction), **drawn)
        words = f"{queries(held_out.n_queries)} held out of {train.n_queries:,}{_latest(by)}"
        return Division((Part(kept, held_out),), words, False)
    check_whole("folds", folds, 2)
    folds = int(folds)
    _check_enough(train, folds)
    if by is not None:
        number = periods(train, by, [1 / (folds + 1)] * (folds + 1))
        windows = [(number < end, number == end) for end in range(1, folds + 1)]
        timed = tuple(Part(train.select(before), train.select(then)) for before, then in windows)
        words = f"{queries(sum(part.valid.n_queries for part in timed))} in {folds} folds by '{by}'"
        return Division(timed, words, True)
    judges = split(train, [1 / folds] * folds, seed=seed)
    parts = tuple(Part(train.select(~np.isin(train.qids, judge.qids)), judge) for judge in judges)
    return Division(parts, f"{queries(train.n_queries)} in {folds} folds", True)


def _latest(by: str | None) -> str:
    return "" if by is None else f", the latest by '{by}'"


def _check_enough(data: RankingData, parts: int) -> None:
    if data.n_queries < parts:
        raise DataError(
            f"{queries(data.n_queries)} cannot be divided into {parts} parts; give",
            remedy=Remedy("{valid} data, or more queries.", valid=...),
        )


_OURS = (ConstantScoresWarning, ConvergenceWarning)
_REPORTS = 30


class PrunedError(Exception):
    """The trial lies behind the others and is not continued."""


class OutOfTimeError(Exception):
    """The time is over."""


class Question(NamedTuple):
    """What is to be found out; everything but the hyper-parameters that are searched."""

    system: System
    division: Division
    fixed: Mapping[str, Any]
    metric: str
    convention: str
    seed: int
    threads: int | None

    def judge(self, part: Part) -> Judge:
        """The metric on the queries that judge."""
        return Judge(part.valid, self.metric, convention=self.convention, threads=self.threads)

    def check_judges(self) -> None:
        """Refuse what cannot be judged, or is the same on every part whatever the order, before the first fit."""
        judges = [self.judge(part) for part in self.division.parts]
        for judge in judges:
            judge(np.zeros(judge.data.n_documents))
        if all(np.array_equal(*judge.extremes(), equal_nan=True) for judge in judges):
            judges[0].for_choosing()

    def ranker(self, options: Mapping[str, Any], callback: Callable[[Any], Any] | None = None) -> Any:
        """An unfitted ranker with these options."""
        own = {
            "metric": self.metric,
            "convention": self.convention,
            "seed": self.seed,
            "threads": self.threads,
            "callbacks": () if callback is None else (callback,),
        }
        made = self.system.make(**{**self.fixed, **options})
        taken = {*self.fixed, *options, *self.system.options}
        known = made.get_params(deep=False)
        return made.set_params(**{name: value for name, value in own.items() if name in known and name not in taken})

    @property
    def rounds(self) -> int | None:
        """How many rounds a ranker of this kind makes at most; None where it does not learn in rounds."""
        rounds = self.system.kind.rounds
        return None if rounds is None else int(getattr(self.ranker({}), rounds.option))

    def rounds_of(self, ranker: Ranker) -> int | None:
        """How many rounds a fitted ranker kept."""
        return None if ranker.rounds is None else int(getattr(ranker, ranker.rounds.kept))

    def fitted_on_all(self, options: Mapping[str, Any], rounds: list[int], train: RankingData) -> Any:
        """A ranker fitted with the mean of the rounds that were best: without validation data nothing stops the fit."""
        told = self.system.kind.rounds
        if not rounds or told is None:
            return self.ranker(options).fit(train)
        best = max(1, round(float(np.mean(rounds))))
        if told.nested:
            return self.ranker({**options, told.option: best}).fit(train)
        ranker = self.ranker(options, lambda now: now.number >= best)
        return ranker.fit(train).set_params(callbacks=())


class Outcome(NamedTuple):
    """What a trial found."""

    value: float
    per_query: FloatArray
    """The metric of every query that has one."""
    rounds: list[int]
    """Rounds that were best, on each part; empty for rankers without rounds."""
    rankers: list[Any]
    said: list[warnings.WarningMessage]
    """What the rankers had to say."""


class Attempt:
    """Fits and judges, until the deadline by `time.perf_counter()`, if there is one.

    `report` is called with a value and the step it belongs to; it says whether the trial is behind the others.
    """

    def __init__(
        self,
        question: Question,
        report: Callable[[float, int], bool],
        deadline: float | None,
        interrupts: Interrupts,
    ) -> None:
        self.question, self.report, self.deadline, self.interrupts = question, report, deadline, interrupts
        self.sign = 1.0 if question.judge(question.division.parts[0]).higher_is_better else -1.0

    def __call__(self, options: Mapping[str, Any]) -> Outcome:
        """The metric with these options.

        Raises:
            PrunedError: the trial is behind the others.
            OutOfTimeError: the time is over.
            KeyboardInterrupt: Ctrl-C, also where the ranker itself was content with what it had.
            DataError: the metric is undefined, or the ranker refuses.
        """
        parts = self.question.division.parts
        judged: list[FloatArray] = []
        rankers, rounds, said = [], [], []
        for number, part in enumerate(parts):
            with noting() as notes, self.interrupts.welcome():
                ranker = self.question.ranker(options, self._watch() if len(parts) == 1 else None)
                ranker.fit(part.train, valid=part.valid)
                judge = self.question.judge(part)
                values = judge.per_query(ranker.predict(judge.data))
            if self.interrupts.happened:
                raise KeyboardInterrupt
            rankers.append(ranker)
            said += notes
            kept = self.question.rounds_of(ranker)
            rounds += [] if kept is None else [kept]
            judged.append(values[~np.isnan(values)])
            if number + 1 < len(parts):
                self._check(float(np.concatenate(judged).mean()) if any(map(len, judged)) else np.nan, number)
        values = np.concatenate(judged)
        if len(values) == 0:
            raise DataError(f"{self.question.metric} is undefined for every query of the validation data.")
        return Outcome(float(values.mean()), values, rounds, rankers, said)

    def _check(self, value: float, step: int) -> None:
        if self.deadline is not None and time.perf_counter() > self.deadline:
            raise OutOfTimeError
        if value == value and self.report(value, step):
            raise PrunedError

    def _watch(self) -> Callable[[Any], None]:
        """A callback for rankers that learn in rounds: the best validation metric so far, every few rounds."""
        best = -np.inf
        every = max(1, (self.question.rounds or 1) // _REPORTS)

        def look(now: Any) -> None:
            nonlocal best
            if now.valid is not None and now.valid == now.valid:
                best = max(best, self.sign * now.valid)
            if now.number % every == 0:
                self._check(self.sign * best if np.isfinite(best) else np.nan, now.number)

        return look


@contextmanager
def noting() -> Iterator[list[warnings.WarningMessage]]:
    """Collect what rankers warn of, a trial at a time; other warnings go where they would have gone."""
    ours: list[warnings.WarningMessage] = []
    seen: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as seen:
            for category in _OURS:
                warnings.simplefilter("always", category)
            yield ours
    finally:
        for one in seen:
            if issubclass(one.category, _OURS):
                ours.append(one)
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


class Interrupts:
    """Notes Ctrl-C while it is open, also where a ranker answers it itself by keeping the best so far.

    Only training is cut off: in between, the study is written, and the note is enough. A second Ctrl-C always counts.
    """

    def __init__(self) -> None:
        self.happened, self._welcome = False, False

    def __enter__(self) -> Self:
        here = threading.current_thread() is threading.main_thread()
        self._before = signal.getsignal(signal.SIGINT) if here else None
        if callable(self._before):
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if callable(self._before):
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def welcome(self) -> Iterator[None]:
        """Within, Ctrl-C cuts off what is going on."""
        self._welcome = True
        try:
            yield
        finally:
            self._welcome = False

    def _note(self, number: int, frame: Any) -> None:
        again, self.happened = self.happened, True
        if (self._welcome or again) and callable(self._before):
            self._before(number, frame)


_FAILURES = (ToprankError, ArithmeticError, MemoryError, np.linalg.LinAlgError)
_HOPELESS = 10  # so many failures, and nothing else, end a search


class Standing(NamedTuple):
    """What a callback sees after each trial; one that returns True ends the search."""

    trial: Trial
    """The trial that was just made: a row of `Tuned.trials`."""
    made: int
    """Trials of the study so far."""
    last: int
    """Trials that it shall have."""
    best: Trial | None
    """The best so far."""
    seconds: float
    """Time since the search began."""
    seconds_left: float
    """Time until its end, if trials go on like this; NaN after the first where no limit was given: the start is in its
    time."""


class Kept(NamedTuple):
    """The best trial of this process, with what it fitted."""

    number: int
    outcome: Outcome


class Search:
    """Makes the trials of a study until there are enough, or the time is over, or somebody stops it.

    What is drawn for a trial depends on the seed, the number of trials before it and their outcomes, and not on the
    process that makes it: a search that is interrupted and resumed draws what an uninterrupted one draws.
    """

    def __init__(
        self,
        optuna: Any,
        study: Any,
        question: Question,
        space: Space,
        *,
        trials: int,
        seconds: float | None,
        callbacks: Sequence[Callable[[Standing], Any]],
    ) -> None:
        self.optuna, self.study, self.question, self.space = optuna, study, question, space
        self.trials, self.seconds, self.callbacks = trials, seconds, callbacks
        self.distributions = space.distributions(optuna)
        self.begin, self.ended = time.perf_counter(), False
        self.fresh: list[float] = []  # seconds of the trials that this process made
        self.kept: Kept | None = None

    # ---- the table ----

    def table(self) -> list[Trial]:
        """Everything that was tried, trials that were cut off included."""
        return rows(self.study, self.space)

    def settled(self) -> list[Trial]:
        """The trials that count."""
        return [row for row in self.table() if row["state"] != "interrupted"]

    def best(self) -> Trial | None:
        """The complete trial with the best value; the first of equals."""
        complete = [row for row in self.table() if row["state"] == "complete"]
        sign = 1.0 if self.study.direction.name == "MAXIMIZE" else -1.0
        return max(complete, key=lambda row: sign * row["value"], default=None)

    # ---- the loop ----

    def run(self) -> str:
        """Make the trials; why they ended, as a sentence."""
        with Interrupts() as interrupts:
            while True:
                done = self.settled()
                if (why := self._enough(done, interrupts)) is not None:
                    return why
                try:
                    self._make(len(done), interrupts)
                except OutOfTimeError:
                    return self._out_of_time(done)
                except KeyboardInterrupt:
                    if self.best() is None:
                        raise
                    interrupts.happened = True

    def _enough(self, done: list[Trial], interrupts: Interrupts) -> str | None:
        if self.best() is None:
            if len(done) >= min(self.trials, _HOPELESS):
                raise DataError(f"All {_trials(len(done))} failed. The first said: {done[0]['remark']}")
            if interrupts.happened:
                raise KeyboardInterrupt
            return None
        if interrupts.happened:
            return f"Interrupted after {_trials(len(done))}."
        if len(done) >= self.trials:
            return f"All {_trials(self.trials)} were made."
        if self.ended:
            return f"A callback ended the search after {_trials(len(done))}."
        if self.seconds is not None and time.perf_counter() - self.begin > self.seconds:
            return self._out_of_time(done)
        return None

    def _out_of_time(self, done: list[Trial]) -> str:
        return f"The {self.seconds:g} seconds were over after {_trials(len(done))}."

    def _make(self, index: int, interrupts: Interrupts) -> None:
        """Draw a trial, try it, and write down what came of it."""
        state = self.optuna.trial.TrialState
        trial = self._draw(index)
        # There must be an answer, so the first trial may take longer than the time that was given.
        deadline = None if self.seconds is None or self.best() is None else self.begin + self.seconds
        attempt = Attempt(self.question, lambda value, step: _is_behind(trial, value, step), deadline, interrupts)
        began = time.perf_counter()
        try:
            outcome = attempt(self.space.options(trial.params))
        except PrunedError:
            self.study.tell(trial, state=state.PRUNED)
        except (KeyboardInterrupt, OutOfTimeError, MissingExtraError):
            self.study.tell(trial, state=state.FAIL)
            raise
        except _FAILURES as problem:
            trial.set_user_attr("failure", _sentence(problem))
            self.study.tell(trial, state=state.FAIL)
        else:
            trial.set_user_attr("noted", _noted(outcome))
            self.study.tell(trial, outcome.value)
            best = self.best()
            if best is not None and best["number"] == trial.number:
                self.kept = Kept(trial.number, outcome)
        self.fresh.append(time.perf_counter() - began)
        self._tell(trial.number)

    def _draw(self, index: int) -> Any:
        seed = int(np.random.SeedSequence([self.question.seed, index]).generate_state(1)[0])
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed)
        if index == 0:  # the search begins with the system as it is, so that it cannot end with less
            # One that was cut off is made again, so Optuna's skip_if_exists, which counts it, is no help.
            waiting = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.WAITING,))
            if not waiting:
                self.study.enqueue_trial(self.space.start())
        trial = self.study.ask(self.distributions)
        trial.set_user_attr("process", process())
        return trial

    def _tell(self, number: int) -> None:
        done = self.settled()
        seconds = time.perf_counter() - self.begin
        left = seconds_left(sum(self.fresh[1:]), len(self.fresh) - 1, self.trials - len(done))
        if self.seconds is not None:
            left = float(np.fmin(left, max(0.0, self.seconds - seconds)))
        [row] = [row for row in done if row["number"] == number]
        seen = Standing(row, len(done), self.trials, self.best(), seconds, left)
        wishes = [callback(seen) for callback in self.callbacks]
        self.ended = any(wish is True for wish in wishes)


def _noted(outcome: Outcome) -> dict[str, Any]:
    interval = t_interval(outcome.per_query)
    return {
        "interval": list(interval) if math.isfinite(interval.low) else None,
        "queries": len(outcome.per_query),
        "rounds": outcome.rounds,
        "remark": str(outcome.said[0].message) if outcome.said else "",
    }


def _is_behind(trial: Any, value: float, step: int) -> bool:
    trial.report(value, step)
    return bool(trial.should_prune())


def _sentence(problem: BaseException) -> str:
    if isinstance(problem, MemoryError):
        return "There was not enough memory."
    return str(problem) or type(problem).__name__


def _trials(trials: int) -> str:
    return "1 trial" if trials == 1 else f"{trials:,} trials"


def tell(metric: str, told: Told) -> Callable[[Standing], None]:
    """A callback that says on standard error where the search stands."""

    def line(now: Standing) -> None:
        row = now.trial
        value = row["state"] if row["value"] is None else f"{metric} {row['value']:.4f}"
        parts = [f"{now.made}/{now.last} trials", value if row["state"] == "complete" else f"{value} ({row['state']})"]
        if now.best is not None:
            parts.append(f"best {now.best['value']:.4f} in trial {now.best['number']}")
        if now.seconds_left == now.seconds_left:
            parts.append(f"about {now.seconds_left:.0f} s left")
        told("  ".join(parts), last=True)

    return line
