"""The search loop of a study: Optuna proposes candidates, prunes them and stores their trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from toprank.errors import DataError, ToprankError, count_of
from toprank.model_selection.search import Candidate, Clock, PrunedError, Search, Trial, TrialEvaluator
from toprank.model_selection.space import Space
from toprank.model_selection.study import process, trials_of
from toprank.rankers.early_stopping import seconds_left
from toprank.significance import t_interval
from toprank.systems import System

_MAX_REPORTS = 30  # intermediate values per training, as Optuna needs milliseconds for each
_MAX_FAILED_TRIALS = 10  # the search ends if this many trials fail before the first success


class SearchProgress(NamedTuple):
    """State of a search after a trial, passed to callbacks; a callback that returns True ends the search.

    Attributes:
        trial: the last trial, a row of `SelectionResult.trials`.
        made: number of trials of the study so far.
        last: number of trials after which the search ends.
        best: the best trial so far.
        seconds: time since the start of the search.
        seconds_left: expected remaining time. NaN after the first trial, whose time includes the start-up, unless there
            is a time budget.
    """

    trial: dict[str, Any]
    made: int
    last: int
    best: dict[str, Any] | None
    seconds: float
    seconds_left: float


@dataclass(frozen=True)
class SearchedSystem:
    """A system with its fixed hyper-parameters, its search space and the seed of the search."""

    system: System
    fixed: Mapping[str, Any]
    space: Space
    seed: int


@dataclass(frozen=True)
class SearchLimits:
    """Limits of a search: number of trials, time budget in seconds (None: no limit), and callbacks."""

    n_trials: int
    time_budget: float | None = None
    callbacks: Sequence[Callable[[SearchProgress], Any]] = ()


class StudySearch(Search):
    """Search with Optuna until a limit of `SearchLimits` is reached.

    The parameters of a trial depend only on the seed and on the earlier trials, so an interrupted and resumed search
    samples the same parameters as an uninterrupted one.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = (
        ToprankError, ArithmeticError, MemoryError, np.linalg.LinAlgError,
    )  # fmt: skip

    def __init__(self, optuna: Any, judge: TrialEvaluator, searched: SearchedSystem) -> None:
        super().__init__(judge)
        self.optuna, self.system, self.space, self.seed = optuna, searched.system, searched.space, searched.seed
        self.fixed, self.distributions = searched.fixed, searched.space.distributions(optuna)
        self.durations: list[float] = []  # seconds of the trials of this process
        self.kept: Trial | None = None  # the best trial of this process, with its ranker
        self.ended = self.out_of_time = False

    def on(self, study: Any, limits: SearchLimits) -> None:
        """Run the trials of a study."""
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
        """Maximum number of rounds of the ranker, or None if it does not learn in rounds."""
        rounds = self.system.kind.rounds
        return None if rounds is None else int(getattr(self.ranker({}), rounds.option))

    # ---- the table ----

    @property
    @override
    def trials(self) -> list[Trial]:
        """All finished trials, including interrupted ones."""
        return trials_of(self.study, self.space, self.system.name)

    @property
    def counted_trials(self) -> list[Trial]:
        """All trials except interrupted ones."""
        return [trial for trial in self.trials if trial.state != "interrupted"]

    # ---- the loop ----

    @override
    def batches(self) -> Iterator[list[Candidate]]:
        while len(done := self.counted_trials) < self.limits.n_trials and not self.ended and not self.out_of_time:
            if len(done) >= _MAX_FAILED_TRIALS and not self.ranked:
                break
            trial = self._draw(len(done))
            options = self.space.options(trial.params)
            look = partial(_report, trial)
            watch = self._watch(look) if not self.judge.division.is_folded else None
            # The first trial may exceed the time budget, so that there is a result.
            seconds = self.clock.left if self.ranked else math.inf
            self.open, self.began = trial, self.clock.spent
            yield [Candidate(self.system.name, partial(self.ranker, options, watch), options, seconds, look)]
            self.out_of_time |= bool(self.ranked) and self.clock.left < 0
        if not self.ranked:
            raise DataError(f"All {count_of(len(done), 'trial')} failed. The error of the first: {done[0].remark}")

    @property
    def stopped(self) -> str:
        """Reason why the search ended, as a sentence."""
        made = count_of(len(self.counted_trials), "trial")
        if self.interrupts.happened:
            return f"Interrupted after {made}."
        if len(self.counted_trials) >= self.limits.n_trials:
            return f"All {count_of(self.limits.n_trials, 'trial')} were completed."
        if self.ended:
            return f"A callback ended the search after {made}."
        return f"The time budget of {self.clock.time_budget:g} s ended after {made}."

    @override
    def record(self, candidate: Candidate, trial: Trial | None) -> None:
        """Store the outcome of a trial in the study; interrupted trials are stored as failed."""
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
        self._call_back(self.open.number)

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
        if index == 0:  # start with the defaults, so that the result is never worse
            # Optuna's skip_if_exists would skip a start that was interrupted before and must be repeated.
            waiting = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.WAITING,))
            if not waiting:
                self.study.enqueue_trial(self.space.start())
        trial = self.study.ask(self.distributions)
        trial.set_user_attr("process", process())
        return trial

    def _watch(self, look: Callable[[float, int], None]) -> Callable[[Any], None]:
        """Return a training callback that reports the best validation metric so far every few rounds."""
        best, sign = -math.inf, self.judge.sign
        every = max(1, (self.rounds or 1) // _MAX_REPORTS)

        def watch(now: Any) -> None:
            nonlocal best
            if now.valid is not None and now.valid == now.valid:
                best = max(best, sign * now.valid)
            if now.number % every == 0 and math.isfinite(best):
                look(sign * best, now.number)

        return watch

    def _call_back(self, number: int) -> None:
        done, seconds = self.counted_trials, self.clock.spent
        left = seconds_left(sum(self.durations[1:]), len(self.durations) - 1, self.limits.n_trials - len(done))
        if math.isfinite(self.clock.time_budget):
            left = float(np.fmin(left, max(0.0, self.clock.left)))
        [row] = [trial.row() for trial in done if trial.number == number]
        best = self.best.row() if self.ranked else None
        progress = SearchProgress(row, len(done), self.limits.n_trials, best, seconds, left)
        answers = [callback(progress) for callback in self.limits.callbacks]  # call all, even after one returned True
        self.ended = any(answer is True for answer in answers)


def _report(trial: Any, value: float, step: int) -> None:
    """Report an intermediate metric of a trial to Optuna; raise `PrunedError` if the trial is pruned."""
    if value == value:
        trial.report(value, step)
        if trial.should_prune():
            raise PrunedError
