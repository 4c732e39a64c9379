"""The search loop: candidates, their evaluation on held-out queries, time limits and interrupts.

`grid`, `tuning` and `portfolio` are the strategies: each proposes candidates and records their trials.
"""

from __future__ import annotations

import math
import signal
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from toprank.compute import FloatArray, Resumable, TimeLimit, each_block
from toprank.data.dataset import RankingData
from toprank.data.division import DividedData
from toprank.errors import DataError, MissingExtraError, held_warnings
from toprank.evaluation.scores import BoundMetric
from toprank.metrics.parsing import parse
from toprank.rankers.base import ConstantScoresWarning, ConvergenceWarning, Ranker

State = Literal["complete", "cut short", "pruned", "failed", "interrupted", "refused", "not tried"]
"""Final state of a trial: evaluated; evaluated after its training was stopped for lack of time; stopped because it was
worse than the others; failed with an error; ended by Ctrl-C; unable to train on the data; skipped."""


@dataclass(frozen=True)
class Trial:
    """A candidate with its metric on the held-out queries.

    Attributes:
        name: name of the candidate.
        options: hyper-parameters in which it differs from the other trials.
        value: metric on the held-out queries; for a pruned trial, the last metric before pruning.
        number: position in the order of trials.
        state: how the trial ended.
        seconds: training and evaluation time, or None if not measured.
        remark: reason for a failure, a refusal or a warning.
        facts: further columns of the strategy.
        values: metric of each held-out query; empty if another process ran the trial.
        fitted: the fitted ranker.
        path_index: position of this trial on the ranker's regularization path; None without a path.
        rounds: number of rounds that the ranker kept in each round of cross-validation; empty for solvers.
        warned: warnings of the ranker.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    value: float | None = None
    number: int = 0
    state: State = "complete"
    seconds: float | None = None
    remark: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    values: FloatArray = field(default_factory=lambda: np.empty(0))
    fitted: Any = None
    path_index: int | None = None
    rounds: tuple[int, ...] = ()
    warned: Sequence[warnings.WarningMessage] = ()

    @property
    def ranker(self) -> Any:
        """Ranker of this trial, restored if the trial is an earlier point of a regularization path."""
        path = self.fitted
        if self.path_index is None or path.path_solutions_[self.path_index] is path.solution_:
            return path
        return path.on_path(self.path_index)

    @property
    def refit_work(self) -> float:
        """Expected cost of a refit as a share of the cost of the trial.

        A refit needs only the best rounds, or on a regularization path the steps of the first and the selected penalty.
        """
        if self.rounds:
            history = getattr(self.fitted, "history_", {})
            chosen, n_steps = sum(self.rounds), len(next(iter(history.values()), ()))
        else:
            path = getattr(self.fitted, "path_", [])
            steps = {row.get("l2"): row["iterations"] for row in path}
            chosen = sum(row["iterations"] for row in path[:1]) + steps.get(getattr(self.ranker, "l2_", None), 0)
            n_steps = sum(row["iterations"] for row in path)
        return min(1.0, chosen / n_steps) if chosen and n_steps else 1.0

    def row(self) -> dict[str, Any]:
        """Return the trial as a row of `SelectionResult.trials`."""
        names = ("number", "name", "options", "value", "state", "seconds", "remark")
        row = {name: getattr(self, name) for name in names}
        return {**row, "options": dict(self.options), **self.facts}


def unconverged(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of trials whose solver did not converge, without interrupted ones."""
    return [row for row in rows if row.get("converged", 1.0) == 0.0 and not row.get("interrupted")]


EVALUATED_STATES: tuple[State, ...] = ("complete", "cut short")
"""States of trials that can be selected."""


class TrialEvaluator(NamedTuple):
    """Metric and convention that evaluate trials on the held-out queries of a division."""

    division: DividedData
    metric: str
    convention: str
    threads: int | None

    def on(self, held_out: RankingData) -> BoundMetric:
        """Return the metric bound to one round's held-out data."""
        return BoundMetric(held_out, self.metric, convention=self.convention, threads=self.threads)

    @property
    def sign(self) -> float:
        """1 if larger values of the metric are better, otherwise -1."""
        return 1.0 if parse(self.metric).higher_is_better else -1.0

    def check(self) -> None:
        """Refuse data on which the metric is undefined or the same for every ranking, before the first fit."""
        judges = [self.on(round.held_out) for round in self.division.rounds]
        for judge in judges:
            judge(np.zeros(judge.data.n_documents))
        if all(np.array_equal(*judge.extremes(), equal_nan=True) for judge in judges):
            judges[0].for_selection()

    def values(self, ranker: Ranker, held_out: RankingData) -> FloatArray:
        """Return the metric of each query of one round's held-out data."""
        return self.on(held_out).per_query(ranker.predict(held_out))

    def signed_value(self, trial: Trial) -> float:
        """Return the value of a trial, negated if smaller is better; -inf without a value."""
        return self.sign * trial.value if trial.value == trial.value and trial.value is not None else -math.inf

    def ranked(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the evaluated trials from best to worst; ties keep their order."""
        return sorted(
            (trial for trial in trials if trial.state in EVALUATED_STATES), key=self.signed_value, reverse=True
        )


_COLLECTED_WARNINGS = (ConstantScoresWarning, ConvergenceWarning)


def collect_warnings() -> AbstractContextManager[list[warnings.WarningMessage]]:
    """Collect convergence warnings of rankers instead of showing them; other warnings are shown."""
    return held_warnings(*_COLLECTED_WARNINGS)


class Interrupts:
    """Context that records Ctrl-C, even if a ranker handles it by keeping its best state.

    The exception is raised only inside `interruptible` blocks, which train rankers, so that writing a study is not
    interrupted. A second Ctrl-C is always raised.
    """

    def __init__(self) -> None:
        self.happened, self._interruptible = False, False

    def __enter__(self) -> Self:
        in_main = (
            threading.current_thread() is threading.main_thread()
        )  # Python allows signal handlers only in the main thread
        self._before = signal.getsignal(signal.SIGINT) if in_main else None
        if callable(self._before):
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if callable(self._before):
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C interrupt the block and set `happened`."""
        around, self._interruptible = self._interruptible, True
        try:
            yield
        except KeyboardInterrupt:
            self.happened = True
        finally:
            self._interruptible = around

    def run_fit(self, fit: Callable[[], Any]) -> Any:
        """Return the result of a final fit, or None if Ctrl-C interrupted it."""
        ranker = None
        with self.interruptible():
            ranker = fit()
        self.happened |= ranker is not None and ranker.was_interrupted
        return None if self.happened else ranker

    def _note(self, number: int, frame: Any) -> None:
        again, self.happened = self.happened, True
        if (self._interruptible or again) and callable(self._before):
            self._before(number, frame)


class Clock:
    """Time budget in seconds that starts on construction; None means no limit."""

    def __init__(self, time_budget: float | None = None) -> None:
        self.time_budget, self._begin = math.inf if time_budget is None else time_budget, time.perf_counter()

    @property
    def spent(self) -> float:
        """Elapsed seconds."""
        return time.perf_counter() - self._begin

    @property
    def left(self) -> float:
        """Remaining seconds, negative once the budget is exceeded."""
        return self.time_budget - self.spent


class PrunedError(Exception):
    """Raised to stop a trial that is worse than the others."""


class Candidate(NamedTuple):
    """A candidate to fit and evaluate in every round of the division.

    Attributes:
        name: name of the candidate.
        make: function that returns an unfitted ranker.
        options: hyper-parameters in which it differs from other candidates.
        seconds: time limit of its training; it is then evaluated as it is.
        look: function called with the metric so far after each round but the last; raises `PrunedError` to stop.
        resumable: holder of the suspended training, so that the same candidate can be resumed later.
    """

    name: str
    make: Callable[[], Any]
    options: Mapping[str, Any]
    seconds: float = math.inf
    look: Callable[[float, int], None] | None = None
    resumable: Resumable | None = None


class Search(ABC):
    """Base class of searches: fit and evaluate the candidates of a strategy until it ends or Ctrl-C.

    Attributes:
        failures: exceptions of a candidate that do not end the search.
        failed: state of a trial that raised one of these.
        collects_warnings: whether warnings of rankers are stored in the trial instead of shown.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = ()
    failed: ClassVar[State] = "failed"
    collects_warnings: ClassVar[bool] = True

    def __init__(self, judge: TrialEvaluator, clock: Clock | None = None, n_parallel: int | None = 1) -> None:
        self.judge, self.clock, self.n_parallel = judge, clock or Clock(), n_parallel
        self.interrupts, self.lost = Interrupts(), False  # lost: whether Ctrl-C discarded a candidate
        self._trials: list[Trial] = []
        self.n_fits = 0

    @abstractmethod
    def batches(self) -> Iterator[Sequence[Candidate]]:
        """Yield batches of candidates; a batch may run in parallel."""

    @abstractmethod
    def record(self, candidate: Candidate, trial: Trial | None) -> None:
        """Record the trial of a candidate; None if Ctrl-C discarded it."""

    @property
    def trials(self) -> list[Trial]:
        """All trials so far."""
        return self._trials

    @property
    def ranked(self) -> list[Trial]:
        """Evaluated trials from best to worst."""
        return self.judge.ranked(self.trials)

    @property
    def best(self) -> Trial:
        """The best evaluated trial."""
        return self.ranked[0]

    def run(self) -> None:
        """Run the search; raise `KeyboardInterrupt` if Ctrl-C occurs before the first evaluated trial."""
        with self.interrupts:
            try:
                for batch in self.batches():
                    self._run_batch(batch)
                    if self.interrupts.happened:
                        break
            except KeyboardInterrupt:
                self.interrupts.happened = True
        if self.interrupts.happened and not self.ranked:
            raise KeyboardInterrupt

    def _run_batch(self, batch: Sequence[Candidate]) -> None:
        made, ended = dict[int, Trial](), False
        self.n_fits += len(batch)

        def work(number: int) -> None:
            if not self.interrupts.happened:
                made[number] = self.attempt(batch[number])

        with self.interrupts.interruptible():
            each_block(work, range(len(batch)), self.n_parallel)
            ended = True
        self.lost |= not ended
        for number, candidate in enumerate(batch):
            self.record(candidate, made.get(number))

    def attempt(self, candidate: Candidate) -> Trial:
        """Fit a candidate in each round of the division, and evaluate it on the held-out queries."""
        clock, look = Clock(), candidate.look
        ended: Callable[..., Trial] = partial(Trial, candidate.name, candidate.options)
        after_round = None if look is None else lambda values: look(_mean(values), len(values) - 1)
        notes = collect_warnings() if self.collects_warnings else nullcontext(list[warnings.WarningMessage]())
        with notes as warned, candidate.resumable or nullcontext(), TimeLimit(candidate.seconds) as limit:
            try:
                found = self.judge.division.cross_fit(
                    lambda train, valid: candidate.make().fit(train, valid=valid),
                    self.judge.values,
                    after_round=after_round,
                    time_limited=True,
                )
                if math.isnan(value := _mean(found.predictions)):
                    raise DataError(f"{self.judge.metric} is undefined for every query of the validation data.")
            except PrunedError:
                return ended(state="pruned")
            except self.failures as problem:
                if isinstance(problem, MissingExtraError):  # every candidate would fail
                    raise
                words = "There was not enough memory." if isinstance(problem, MemoryError) else str(problem)
                return ended(state=self.failed, remark=words or type(problem).__name__)
        self.interrupts.happened |= found.interrupted
        in_rounds = [model for model in found.models if model.rounds is not None]
        return ended(
            value,
            state="cut short" if limit.passed else "complete",
            seconds=clock.spent,
            values=np.concatenate(found.predictions),
            fitted=found.models[-1],
            rounds=tuple(int(getattr(model, model.rounds.kept)) for model in in_rounds),
            warned=warned,
        )


def _mean(values: Sequence[FloatArray]) -> float:
    """Return the mean over the queries for which the metric is defined; NaN if there is none."""
    per_query = np.concatenate(values)
    return math.nan if np.isnan(per_query).all() else float(np.nanmean(per_query))


class Refit(NamedTuple):
    """The final ranker and the outcome of its refit on all the data."""

    ranker: Ranker
    sentence: str = ""
    out_of_time: bool = False
    interrupted: bool = False


def refit_on_all(ranker: Any, rounds: Sequence[int], train: RankingData) -> Any:
    """Fit on all the data with the mean of the best numbers of rounds, since no data are left for early stopping."""
    kind, best = ranker.rounds, max(1, round(float(np.mean(rounds)))) if rounds else None
    if kind is not None and best is not None:
        # If the learning rate decays until the last round, keep the number of rounds and stop by a callback.
        stop = {kind.option: best} if kind.nested else {"callbacks": (lambda now: now.number >= best,)}
        ranker.set_params(**stop)
    ranker.fit(train)
    return ranker if kind is None else ranker.set_params(callbacks=())
