"""The loop of trials: draw options, try them, note what came of it, and know when to stop."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from toprank.errors import DataError, MissingExtraError, ToprankError
from toprank.significance import t_interval
from toprank.tuning.attempt import Attempt, Interrupts, Outcome, OutOfTimeError, PrunedError, Question
from toprank.tuning.space import Space
from toprank.tuning.study import Trial, process, rows

__all__ = ["Kept", "Search", "Standing", "tell"]

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
    """Time until its end, if trials go on like this."""


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
                raise DataError(f"All {_count(len(done))} failed. The first said: {done[0]['remark']}")
            if interrupts.happened:
                raise KeyboardInterrupt
            return None
        if interrupts.happened:
            return f"Interrupted after {_count(len(done))}."
        if len(done) >= self.trials:
            return f"All {_count(self.trials)} were made."
        if self.ended:
            return f"A callback ended the search after {_count(len(done))}."
        if self.seconds is not None and time.perf_counter() - self.begin > self.seconds:
            return self._out_of_time(done)
        return None

    def _out_of_time(self, done: list[Trial]) -> str:
        return f"The {self.seconds:g} seconds were over after {_count(len(done))}."

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
        left = (self.trials - len(done)) * float(np.mean(self.fresh))
        if self.seconds is not None:
            left = min(left, max(0.0, self.seconds - seconds))
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


def _count(trials: int) -> str:
    return "1 trial" if trials == 1 else f"{trials:,} trials"


def tell(metric: str) -> Callable[[Standing], None]:
    """A callback that says on standard error where the search stands."""

    def line(now: Standing) -> None:
        row = now.trial
        value = row["state"] if row["value"] is None else f"{metric} {row['value']:.4f}"
        parts = [f"{now.made}/{now.last} trials", value if row["state"] == "complete" else f"{value} ({row['state']})"]
        if now.best is not None:
            parts.append(f"best {now.best['value']:.4f} in trial {now.best['number']}")
        sys.stderr.write("  ".join([*parts, f"about {now.seconds_left:.0f} s left"]) + "\n")

    return line
