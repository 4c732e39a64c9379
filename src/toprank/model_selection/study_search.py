"""The trials of a study by Optuna: what is drawn, pruned and written down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from toprank.errors import DataError, ToprankError, count_of
from toprank.model_selection.search import Candidate, Clock, PrunedError, Search, Trial, TrialJudge
from toprank.model_selection.space import Space
from toprank.model_selection.study import process, trials_of
from toprank.rankers.early_stopping import seconds_left
from toprank.significance import t_interval
from toprank.systems import System

_MAX_REPORTS = 30  # reports of one training in rounds: Optuna takes milliseconds for each
_MIN_HOPELESS = 10  # failed trials that end a search without a single success


class SearchProgress(NamedTuple):
    """What a callback gets after each trial; a callback that returns True ends the search.

    Attributes:
        trial: the trial that was just made: a row of `SelectionResult.trials`.
        made: trials of the study so far.
        last: trials that the study is to have.
        best: the best so far.
        seconds: time since the search began.
        seconds_left: time until the end if later trials take as long as these; NaN after the first trial, whose time
            includes the start, unless a limit was given.
    """

    trial: dict[str, Any]
    made: int
    last: int
    best: dict[str, Any] | None
    seconds: float
    seconds_left: float


@dataclass(frozen=True)
class SearchedSystem:
    """A system, the hyper-parameters that are fixed, those that are searched, and the seed of all draws."""

    system: System
    fixed: Mapping[str, Any]
    space: Space
    seed: int


@dataclass(frozen=True)
class SearchLimits:
    """What ends a search: a number of trials, a time budget in seconds (None: no limit), or a callback."""

    n_trials: int
    time_budget: float | None = None
    callbacks: Sequence[Callable[[SearchProgress], Any]] = ()


class StudySearch(Search):
    """Makes the trials of a study by Optuna until a limit of `SearchLimits` is reached.

    What is drawn for a trial depends on the seed, the number of trials before it and their outcomes, and not on the
    process that makes it: a search that is interrupted and resumed draws what an uninterrupted one draws.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = (
        ToprankError, ArithmeticError, MemoryError, np.linalg.LinAlgError,
    )  # fmt: skip

    def __init__(self, optuna: Any, judge: TrialJudge, searched: SearchedSystem) -> None:
        super().__init__(judge)
        self.optuna, self.system, self.space, self.seed = optuna, searched.system, searched.space, searched.seed
        self.fixed, self.distributions = searched.fixed, searched.space.distributions(optuna)
        self.durations: list[float] = []  # seconds of the trials that this process made
        self.kept: Trial | None = None  # the best trial that this process made, with its ranker
        self.ended = self.out_of_time = False

    def on(self, study: Any, limits: SearchLimits) -> None:
        """Make the trials of a study."""
        self.study, self.limits, self.clock = study, limits, Clock(limits.time_budget)
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
        while len(done := self.settled) < self.limits.n_trials and not self.ended and not self.out_of_time:
            if len(done) >= _MIN_HOPELESS and not self.ranked:
                break
            trial = self._draw(len(done))
            options = self.space.options(trial.params)
            look = partial(_report, trial)
            watch = self._watch(look) if not self.judge.division.is_folded else None
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
        if len(self.settled) >= self.limits.n_trials:
            return f"All {count_of(self.limits.n_trials, 'trial')} were made."
        if self.ended:
            return f"A callback ended the search after {made}."
        return f"The {self.clock.time_budget:g} seconds were over after {made}."

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
        every = max(1, (self.rounds or 1) // _MAX_REPORTS)

        def watch(now: Any) -> None:
            nonlocal best
            if now.valid is not None and now.valid == now.valid:
                best = max(best, sign * now.valid)
            if now.number % every == 0 and math.isfinite(best):
                look(sign * best, now.number)

        return watch

    def _tell(self, number: int) -> None:
        done, seconds = self.settled, self.clock.spent
        left = seconds_left(sum(self.durations[1:]), len(self.durations) - 1, self.limits.n_trials - len(done))
        if math.isfinite(self.clock.time_budget):
            left = float(np.fmin(left, max(0.0, self.clock.left)))
        [row] = [trial.row() for trial in done if trial.number == number]
        best = self.best.row() if self.ranked else None
        standing = SearchProgress(row, len(done), self.limits.n_trials, best, seconds, left)
        answers = [
            callback(standing) for callback in self.limits.callbacks
        ]  # each is called, also after one that ends it
        self.ended = any(answer is True for answer in answers)


def _report(trial: Any, value: float, step: int) -> None:
    """Report the metric of a trial so far, and raise `PrunedError` if Optuna prunes the trial."""
    if value == value:
        trial.report(value, step)
        if trial.should_prune():
            raise PrunedError
