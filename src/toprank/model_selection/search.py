"""One search: trials, the judge of their worth, what may end them, and the loop that makes them.

`grid`, `tuning` and `portfolio` are its strategies: each says what to try next, and what becomes of a trial.
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
"""How a trial ended: judged; stopped for lack of time, and judged; given up behind the others; with an error; by
Ctrl-C; by data that it cannot learn from; before it began."""


@dataclass(frozen=True)
class Trial:
    """A ranker that was tried, its value on the queries that judge, and how the trial ended.

    Attributes:
        options: the hyper-parameters in which it differs from the other trials.
        value: the metric on the queries that judge; for a pruned trial, the metric when it was given up.
        facts: what else the strategy knows about the trial.
        values: the metric of every query that judges; empty if another process judged the trial.
        fitted: the fitted ranker.
        stop: the stop of this trial on the path of penalties that the ranker walked; None if there is no path.
        rounds: how many rounds the ranker kept on each part of the data; empty if it does not learn in rounds.
        warned: the warnings of the ranker.
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
    stop: int | None = None
    rounds: tuple[int, ...] = ()
    warned: Sequence[warnings.WarningMessage] = ()

    @property
    def ranker(self) -> Any:
        """The ranker of this trial, restored if the trial is an earlier stop of a path."""
        path = self.fitted
        if self.stop is None or path.path_solutions_[self.stop] is path.solution_:
            return path
        return path.on_path(self.stop)

    @property
    def refit_work(self) -> float:
        """The expected work of fitting again what was chosen, as a share of the work of the trial.

        Those are the best rounds alone; or, of a path of penalties, the steps of the first and those of the chosen one.
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
        """Return the trial as plain values, for `SelectionResult.trials`."""
        names = ("number", "name", "options", "value", "state", "seconds", "remark")
        row = {name: getattr(self, name) for name in names}
        return {**row, "options": dict(self.options), **self.facts}


def unconverged(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of trials whose solver did not reach the optimum without being interrupted."""
    return [row for row in rows if row.get("converged", 1.0) == 0.0 and not row.get("interrupted")]


JUDGED: tuple[State, ...] = ("complete", "cut short")
"""The states of trials that can be chosen."""


class TrialJudge(NamedTuple):
    """Judges trials by a metric under a convention, on the queries that a division holds out."""

    division: DividedData
    metric: str
    convention: str
    threads: int | None

    def on(self, held_out: RankingData) -> BoundMetric:
        """Return the judge of one round's held-out data."""
        return BoundMetric(held_out, self.metric, convention=self.convention, threads=self.threads)

    @property
    def sign(self) -> float:
        """1 if more of the metric is better, -1 if less is."""
        return 1.0 if parse(self.metric).higher_is_better else -1.0

    def check(self) -> None:
        """Refuse, before the first fit, data that cannot be judged or on which every order is worth the same."""
        judges = [self.on(round.held_out) for round in self.division.rounds]
        for judge in judges:
            judge(np.zeros(judge.data.n_documents))
        if all(np.array_equal(*judge.extremes(), equal_nan=True) for judge in judges):
            judges[0].for_selection()

    def values(self, ranker: Ranker, held_out: RankingData) -> FloatArray:
        """Return the metric of every query of one round's held-out data."""
        return self.on(held_out).per_query(ranker.predict(held_out))

    def worth(self, trial: Trial) -> float:
        """Return the value of a trial with the sign by which more is better; -inf if it has none."""
        return self.sign * trial.value if trial.value == trial.value and trial.value is not None else -math.inf

    def ranked(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials that were judged, from best to worst; equal ones stay in their order."""
        return sorted((trial for trial in trials if trial.state in JUDGED), key=self.worth, reverse=True)


_NOTED = (ConstantScoresWarning, ConvergenceWarning)


def noting() -> AbstractContextManager[list[warnings.WarningMessage]]:
    """Collect the warnings of rankers, whose trials are judged by the metric; all other warnings are shown."""
    return held_warnings(*_NOTED)


class Interrupts:
    """Notes Ctrl-C while it is open, even if a ranker answers it by keeping the best so far.

    Only training is cut off: between trials a study is written, and the note is enough. A second Ctrl-C always counts.
    """

    def __init__(self) -> None:
        self.happened, self._cutting = False, False

    def __enter__(self) -> Self:
        in_main = threading.current_thread() is threading.main_thread()  # no other thread may listen to signals
        self._before = signal.getsignal(signal.SIGINT) if in_main else None
        if callable(self._before):
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if callable(self._before):
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """Let Ctrl-C cut off what runs within the block; `happened` says whether it did."""
        around, self._cutting = self._cutting, True
        try:
            yield
        except KeyboardInterrupt:
            self.happened = True
        finally:
            self._cutting = around

    def finished(self, fit: Callable[[], Any]) -> Any:
        """Return the ranker of a last training; None if Ctrl-C ended it, so that the earlier ranker is kept."""
        ranker = None
        with self.cutting():
            ranker = fit()
        self.happened |= ranker is not None and ranker.was_interrupted
        return None if self.happened else ranker

    def _note(self, number: int, frame: Any) -> None:
        again, self.happened = self.happened, True
        if (self._cutting or again) and callable(self._before):
            self._before(number, frame)


class Clock:
    """A budget of seconds that begins now; None: no limit."""

    def __init__(self, time_budget: float | None = None) -> None:
        self.time_budget, self._begin = math.inf if time_budget is None else time_budget, time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._begin

    @property
    def left(self) -> float:
        """Seconds that are left; negative once the budget is overdrawn."""
        return self.time_budget - self.spent


class PrunedError(Exception):
    """The trial is behind the others and is not continued."""


class Candidate(NamedTuple):
    """What to try: a ranker, made anew for each part of the data.

    Attributes:
        seconds: the time after which its training is cut short; it is then judged as it is.
        look: called with the metric so far after each part but the last; raises `PrunedError` to give the candidate up.
        resumable: what keeps its training if that is cut short, so that the same candidate goes on when it is tried
            again.
    """

    name: str
    make: Callable[[], Any]
    options: Mapping[str, Any]
    seconds: float = math.inf
    look: Callable[[float, int], None] | None = None
    resumable: Resumable | None = None


class Search(ABC):
    """Fits and judges what its strategy proposes, to the end or until Ctrl-C; what was judged by then is kept.

    Attributes:
        failures: exceptions of a candidate that do not end the search.
        hushed: whether warnings of rankers are kept in the trial instead of shown.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = ()
    failed: ClassVar[State] = "failed"
    hushed: ClassVar[bool] = True

    def __init__(self, judge: TrialJudge, clock: Clock | None = None, at_once: int | None = 1) -> None:
        self.judge, self.clock, self.at_once = judge, clock or Clock(), at_once
        self.interrupts, self.lost = Interrupts(), False  # whether Ctrl-C left nothing of a candidate
        self._trials: list[Trial] = []
        self.n_fits = 0

    @abstractmethod
    def batches(self) -> Iterator[Sequence[Candidate]]:
        """Yield what to try next; the candidates of a batch may be tried at once."""

    @abstractmethod
    def take(self, candidate: Candidate, trial: Trial | None) -> None:
        """Take the trial of a candidate; None if Ctrl-C left nothing of it."""

    @property
    def trials(self) -> list[Trial]:
        """All trials so far."""
        return self._trials

    @property
    def ranked(self) -> list[Trial]:
        """The trials that can be chosen, from best to worst."""
        return self.judge.ranked(self.trials)

    @property
    def best(self) -> Trial:
        """The best trial, once something was judged."""
        return self.ranked[0]

    def run(self) -> None:
        """Try what is proposed; raise `KeyboardInterrupt` if Ctrl-C comes before anything was judged."""
        with self.interrupts:
            try:
                for batch in self.batches():
                    self._try(batch)
                    if self.interrupts.happened:
                        break
            except KeyboardInterrupt:
                self.interrupts.happened = True
        if self.interrupts.happened and not self.ranked:
            raise KeyboardInterrupt

    def _try(self, batch: Sequence[Candidate]) -> None:
        made, ended = dict[int, Trial](), False
        self.n_fits += len(batch)

        def work(number: int) -> None:
            if not self.interrupts.happened:
                made[number] = self.attempt(batch[number])

        with self.interrupts.cutting():
            each_block(work, range(len(batch)), self.at_once)
            ended = True
        self.lost |= not ended
        for number, candidate in enumerate(batch):
            self.take(candidate, made.get(number))

    def attempt(self, candidate: Candidate) -> Trial:
        """Fit a candidate in each round of the division, and judge it on what that round holds out."""
        clock, look = Clock(), candidate.look
        ended: Callable[..., Trial] = partial(Trial, candidate.name, candidate.options)
        after_round = None if look is None else lambda values: look(_mean(values), len(values) - 1)
        notes = noting() if self.hushed else nullcontext(list[warnings.WarningMessage]())
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
                if isinstance(problem, MissingExtraError):  # what one lacks, all lack
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
    """The final ranker, and what became of training it again on all the data."""

    ranker: Ranker
    sentence: str = ""
    out_of_time: bool = False
    interrupted: bool = False


def fit_again(ranker: Any, rounds: Sequence[int], train: RankingData) -> Any:
    """Fit on all the data for the mean of the best numbers of rounds, as no validation data can stop the fit."""
    kind, best = ranker.rounds, max(1, round(float(np.mean(rounds)))) if rounds else None
    if kind is not None and best is not None:
        # In some the learning rate falls until the last round, so they get the full number of rounds and are stopped.
        stop = {kind.option: best} if kind.nested else {"callbacks": (lambda now: now.number >= best,)}
        ranker.set_params(**stop)
    ranker.fit(train)
    return ranker if kind is None else ranker.set_params(callbacks=())
