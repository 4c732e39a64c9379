"""The trials of a search by Optuna: each stops where it is not worth the time; and their loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.choosing.space import Space
from toprank.choosing.study import process, trials_of
from toprank.choosing.trial import Interrupts, Trial, TrialJudge, noting
from toprank.errors import DataError, MissingExtraError, ToprankError
from toprank.rankers.watching import seconds_left
from toprank.showing.progress import Told
from toprank.significance import t_interval
from toprank.systems import System

if TYPE_CHECKING:
    from toprank.compute import FloatArray
    from toprank.data.dataset import RankingData
    from toprank.rankers.base import Ranker

__all__ = ["OutOfTimeError", "Question", "Search", "Standing", "TrialRun", "tell"]

_REPORTS = 30  # looks at a training in rounds: each asks Optuna, which takes milliseconds


class PrunedError(Exception):
    """The trial lies behind the others and is not continued."""


class OutOfTimeError(Exception):
    """The time is over."""


class Question(NamedTuple):
    """What is to be found out; everything but the hyper-parameters that are searched."""

    system: System
    judge: TrialJudge
    fixed: Mapping[str, Any]
    seed: int

    def ranker(self, options: Mapping[str, Any], callback: Callable[[Any], Any] | None = None) -> Any:
        """An unfitted ranker with these options."""
        own = {
            "metric": self.judge.metric,
            "convention": self.judge.convention,
            "seed": self.seed,
            "threads": self.judge.threads,
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
        kind = self.system.kind.rounds
        if not rounds or kind is None:
            return self.ranker(options).fit(train)
        best = max(1, round(float(np.mean(rounds))))
        if kind.nested:
            return self.ranker({**options, kind.option: best}).fit(train)
        ranker = self.ranker(options, lambda now: now.number >= best)
        return ranker.fit(train).set_params(callbacks=())


class TrialRun:
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

    def __call__(self, options: Mapping[str, Any]) -> Trial:
        """The trial with these options, complete.

        Raises:
            PrunedError: the trial is behind the others.
            OutOfTimeError: the time is over.
            KeyboardInterrupt: Ctrl-C, also where the ranker itself was content with what it had.
            DataError: the metric is undefined, or the ranker refuses.
        """
        judge = self.question.judge
        parts = judge.division.parts
        judged: list[FloatArray] = []
        rounds, warned, ranker = [], [], None
        for number, part in enumerate(parts):
            with noting() as notes, self.interrupts.cutting():
                ranker = self.question.ranker(options, self._watch() if len(parts) == 1 else None)
                ranker.fit(part.train, valid=part.valid)
                values = judge.values(ranker, part)
            if self.interrupts.happened:
                raise KeyboardInterrupt
            warned += notes
            kept = self.question.rounds_of(ranker)
            rounds += [] if kept is None else [kept]
            judged.append(values[~np.isnan(values)])
            if number + 1 < len(parts):
                self._check(float(np.concatenate(judged).mean()) if any(map(len, judged)) else np.nan, number)
        values = np.concatenate(judged)
        if len(values) == 0:
            raise DataError(f"{judge.metric} is undefined for every query of the validation data.")
        interval = t_interval(values)
        facts = {
            "interval": list(interval) if math.isfinite(interval.low) else None,
            "queries": len(values),
            "rounds": rounds,
        }
        return Trial(
            self.question.system.name,
            options,
            float(values.mean()),
            remark=str(warned[0].message) if warned else "",
            facts=facts,
            values=values,
            fitted=ranker,
            warned=warned,
        )

    def _check(self, value: float, step: int) -> None:
        if self.deadline is not None and time.perf_counter() > self.deadline:
            raise OutOfTimeError
        if value == value and self.report(value, step):
            raise PrunedError

    def _watch(self) -> Callable[[Any], None]:
        """A callback for rankers that learn in rounds: the best validation metric so far, every few rounds."""
        best, sign = -np.inf, self.question.judge.sign
        every = max(1, (self.question.rounds or 1) // _REPORTS)

        def look(now: Any) -> None:
            nonlocal best
            if now.valid is not None and now.valid == now.valid:
                best = max(best, sign * now.valid)
            if now.number % every == 0:
                self._check(sign * best if np.isfinite(best) else np.nan, now.number)

        return look


_FAILURES = (ToprankError, ArithmeticError, MemoryError, np.linalg.LinAlgError)
_HOPELESS = 10  # so many failures, and nothing else, end a search


class Standing(NamedTuple):
    """What a callback sees after each trial; one that returns True ends the search."""

    trial: dict[str, Any]
    """The trial that was just made: a row of `Choice.trials`."""
    made: int
    """Trials of the study so far."""
    last: int
    """Trials that it shall have."""
    best: dict[str, Any] | None
    """The best so far."""
    seconds: float
    """Time since the search began."""
    seconds_left: float
    """Time until its end, if trials go on like this; NaN after the first where no limit was given: the start is in its
    time."""


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
        self.kept: Trial | None = None  # the best that this process made, with its ranker
        self.out_of_time = False

    # ---- the table ----

    def table(self) -> list[Trial]:
        """Everything that was tried, trials that were cut off included."""
        return trials_of(self.study, self.space, self.question.system.name)

    def settled(self) -> list[Trial]:
        """The trials that count."""
        return [trial for trial in self.table() if trial.state != "interrupted"]

    def best(self) -> Trial | None:
        """The complete trial with the best value; the first of equals."""
        return self.question.judge.best(self.table())

    # ---- the loop ----

    def run(self, interrupts: Interrupts) -> str:
        """Make the trials; why they ended, as a sentence."""
        with interrupts:
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
                raise DataError(f"All {_trials(len(done))} failed. The first said: {done[0].remark}")
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
        self.out_of_time = True
        return f"The {self.seconds:g} seconds were over after {_trials(len(done))}."

    def _make(self, index: int, interrupts: Interrupts) -> None:
        """Draw a trial, try it, and write down what came of it."""
        state = self.optuna.trial.TrialState
        trial = self._draw(index)
        # There must be an answer, so the first trial may take longer than the time that was given.
        deadline = None if self.seconds is None or self.best() is None else self.begin + self.seconds
        run = TrialRun(self.question, lambda value, step: _is_behind(trial, value, step), deadline, interrupts)
        began = time.perf_counter()
        try:
            made = run(self.space.options(trial.params))
        except PrunedError:
            self.study.tell(trial, state=state.PRUNED)
        except (KeyboardInterrupt, OutOfTimeError, MissingExtraError):
            self.study.tell(trial, state=state.FAIL)
            raise
        except _FAILURES as problem:
            trial.set_user_attr("failure", _sentence(problem))
            self.study.tell(trial, state=state.FAIL)
        else:
            trial.set_user_attr("noted", {**made.facts, "remark": made.remark})
            self.study.tell(trial, made.value)
            best = self.best()
            if best is not None and best.number == trial.number:
                self.kept = replace(made, number=trial.number)
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
        [row] = [trial.row() for trial in done if trial.number == number]
        best = self.best()
        seen = Standing(row, len(done), self.trials, None if best is None else best.row(), seconds, left)
        wishes = [callback(seen) for callback in self.callbacks]
        self.ended = any(wish is True for wish in wishes)


def _is_behind(trial: Any, value: float, step: int) -> bool:
    trial.report(value, step)
    return bool(trial.should_prune())


def _sentence(problem: BaseException) -> str:
    if isinstance(problem, MemoryError):
        return "There was not enough memory."
    return str(problem) or type(problem).__name__


def _trials(trials: int) -> str:
    return "1 trial" if trials == 1 else f"{trials:,} trials"


def tell(metric: str, line: Told) -> Callable[[Standing], None]:
    """A callback that says on standard error where the search stands."""

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
