"""One search: trials, who judges them, what may end them, and the loop that makes them.

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
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from toprank.compute import FloatArray, TimeLimit, each_block
from toprank.errors import DataError, MissingExtraError
from toprank.metrics.evaluation import Judge
from toprank.metrics.parsing import parse
from toprank.rankers.base import ConstantScoresWarning, ConvergenceWarning

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.rankers.base import Ranker

State = Literal["complete", "cut short", "pruned", "failed", "interrupted", "refused", "not tried"]
"""How a trial ended: judged; stopped for lack of time, and judged; given up behind the others; with an error; by
Ctrl-C; by data that it cannot learn from; before it began."""


@dataclass(frozen=True)
class Trial:
    """One ranker that was tried, what it is worth on the queries that judge, and how it ended."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """The hyper-parameters that make it another one than the others."""
    value: float | None = None
    """The metric on the queries that judge; of a pruned trial, as far as it came."""
    number: int = 0
    state: State = "complete"
    seconds: float | None = None
    remark: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else its strategy knows of it."""
    values: FloatArray = field(default_factory=lambda: np.empty(0))
    """The metric of every query that judges, where this process judged it."""
    fitted: Any = None
    """The ranker that was fitted for it."""
    stop: int | None = None
    """Where a ranker walks a path of penalties: the stop on it that this trial is."""
    rounds: tuple[int, ...] = ()
    """How many rounds it kept on each part of the data, where it learns in rounds."""
    warned: Sequence[warnings.WarningMessage] = ()
    """What the ranker warned of."""

    @property
    def ranker(self) -> Any:
        """The ranker of this trial; every stop of a path can be taken up again."""
        path = self.fitted
        if self.stop is None or path.path_solutions_[self.stop] is path.solution_:
            return path
        return path.on_path(self.stop)

    def row(self) -> dict[str, Any]:
        """What there is to tell of it, in plain values."""
        names = ("number", "name", "options", "value", "state", "seconds", "remark")
        row = {name: getattr(self, name) for name in names}
        return {**row, "options": dict(self.options), **self.facts}


def unconverged(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of rows of trials those whose solver did not reach the optimum, and was not interrupted either."""
    return [row for row in rows if row.get("converged", 1.0) == 0.0 and not row.get("interrupted")]


JUDGED: tuple[State, ...] = ("complete", "cut short")
"""The states of trials that there is a choice among."""


class HoldOut(NamedTuple):
    """To learn from, and to judge by."""

    train: RankingData
    valid: RankingData


class Division(NamedTuple):
    """The parts of the data, and what they are in words."""

    parts: tuple[HoldOut, ...]
    words: str
    folded: bool = False
    """Whether there are folds: then the answer may learn from all queries."""
    held_out: int | None = None
    """How many queries of the training data were held out; None where there are validation data or folds."""


class TrialJudge(NamedTuple):
    """Says what trials are worth: by a metric under a convention, on the queries of a division that judge."""

    division: Division
    metric: str
    convention: str
    threads: int | None

    def of(self, part: HoldOut) -> Judge:
        """The judge of one part."""
        return Judge(part.valid, self.metric, convention=self.convention, threads=self.threads)

    @property
    def sign(self) -> float:
        """1 where more of the metric is better, -1 where less is."""
        return 1.0 if parse(self.metric).higher_is_better else -1.0

    def check(self) -> None:
        """Refuse, before the first fit, what cannot be judged, or is the same on every part whatever the order."""
        judges = [self.of(part) for part in self.division.parts]
        for judge in judges:
            judge(np.zeros(judge.data.n_documents))
        if all(np.array_equal(*judge.extremes(), equal_nan=True) for judge in judges):
            judges[0].for_choosing()

    def values(self, ranker: Ranker, part: HoldOut) -> FloatArray:
        """The metric of every query of a part."""
        judge = self.of(part)
        return judge.per_query(ranker.predict(judge.data))

    def worth(self, trial: Trial) -> float:
        """The value of a trial, more of which is better; what could not be judged is worth least."""
        return self.sign * trial.value if trial.value == trial.value and trial.value is not None else -math.inf

    def ranked(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials that were judged, from the best to the worst; the first of equals comes first."""
        return sorted((trial for trial in trials if trial.state in JUDGED), key=self.worth, reverse=True)


_OURS = (ConstantScoresWarning, ConvergenceWarning)


@contextmanager
def noting() -> Iterator[list[warnings.WarningMessage]]:
    """Collect what rankers warn of: a trial is judged by its metric. Other warnings go where they would have gone."""
    ours: list[warnings.WarningMessage] = []
    seen: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as seen:
            for category in _OURS:
                warnings.simplefilter("always", category)
            yield ours
    finally:
        for warning in seen:
            if issubclass(warning.category, _OURS):
                ours.append(warning)
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


class Interrupts:
    """Notes Ctrl-C while it is open, also where a ranker answers it itself by keeping the best so far.

    Only training is cut off: between trials a study is written, and the note is enough. A second Ctrl-C always counts.
    """

    def __init__(self) -> None:
        self.happened, self._cutting = False, False

    def __enter__(self) -> Self:
        here = threading.current_thread() is threading.main_thread()  # no other thread may listen to signals
        self._before = signal.getsignal(signal.SIGINT) if here else None
        if callable(self._before):
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if callable(self._before):
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """Within, Ctrl-C cuts off what is going on, and `happened` says so."""
        around, self._cutting = self._cutting, True
        try:
            yield
        except KeyboardInterrupt:
            self.happened = True
        finally:
            self._cutting = around

    def finished(self, fit: Callable[[], Any]) -> Any:
        """The ranker that a last training gives; None where Ctrl-C ended that, so that what there was stays."""
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
    """A budget of seconds that runs from now on; None: without end."""

    def __init__(self, budget: float | None = None) -> None:
        self.budget, self._begin = math.inf if budget is None else budget, time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._begin

    @property
    def left(self) -> float:
        """Seconds that are left, below 0 where the budget is overdrawn."""
        return self.budget - self.spent


class PrunedError(Exception):
    """The trial lies behind the others and is not continued."""


class Candidate(NamedTuple):
    """What to try: a ranker, made anew for each part of the data."""

    name: str
    make: Callable[[], Any]
    options: Mapping[str, Any]
    seconds: float = math.inf
    """When its training is cut short, and judged as far as it came."""
    look: Callable[[float, int], None] | None = None
    """Told the metric so far after each part but the last; raises `PrunedError` to give the candidate up."""


class Search(ABC):
    """Fits and judges what its strategy proposes until there is no more, or Ctrl-C; what was judged by then is kept."""

    failures: ClassVar[tuple[type[Exception], ...]] = ()
    """What a candidate may fail of without ending the search."""
    failed: ClassVar[State] = "failed"
    hushed: ClassVar[bool] = True
    """Whether what rankers warn of is noted in the trial instead."""

    def __init__(self, judge: TrialJudge, clock: Clock | None = None, at_once: int | None = 1) -> None:
        self.judge, self.clock, self.at_once = judge, clock or Clock(), at_once
        self.interrupts, self.lost = Interrupts(), False  # whether Ctrl-C left nothing of a candidate
        self._trials: list[Trial] = []

    @abstractmethod
    def batches(self) -> Iterator[Sequence[Candidate]]:
        """What to try next, again and again; the candidates of a batch may be tried at once."""

    @abstractmethod
    def take(self, candidate: Candidate, trial: Trial | None) -> None:
        """See to what became of a candidate; None where Ctrl-C left nothing of it."""

    @property
    def trials(self) -> list[Trial]:
        """Everything that was tried."""
        return self._trials

    @property
    def ranked(self) -> list[Trial]:
        """The trials that there is a choice among, the best first."""
        return self.judge.ranked(self.trials)

    @property
    def best(self) -> Trial:
        """The first of the best, once something was judged."""
        return self.ranked[0]

    def run(self) -> None:
        """Try what is proposed; `KeyboardInterrupt` where that is interrupted before anything was judged."""
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
        """Fit a candidate to each part of the data, and judge it on what that part holds out."""
        clock, values, rounds = Clock(), list[FloatArray](), list[int]()
        ended: Callable[..., Trial] = partial(Trial, candidate.name, candidate.options)
        notes = noting() if self.hushed else nullcontext(list[warnings.WarningMessage]())
        with notes as warned, TimeLimit(candidate.seconds) as limit:
            try:
                for step, part in enumerate(self.judge.division.parts):
                    if values and limit.over():
                        break
                    if values and candidate.look is not None:
                        candidate.look(_mean(values), step - 1)
                    fitted = candidate.make().fit(part.train, valid=part.valid)
                    values.append(self.judge.values(fitted, part))
                    rounds += [] if fitted.rounds is None else [int(getattr(fitted, fitted.rounds.kept))]
                if math.isnan(value := _mean(values)):
                    raise DataError(f"{self.judge.metric} is undefined for every query of the validation data.")
            except PrunedError:
                return ended(state="pruned")
            except self.failures as problem:
                if isinstance(problem, MissingExtraError):  # what one lacks, all lack
                    raise
                words = "There was not enough memory." if isinstance(problem, MemoryError) else str(problem)
                return ended(state=self.failed, remark=words or type(problem).__name__)
        self.interrupts.happened |= fitted.was_interrupted
        return ended(
            value,
            state="cut short" if limit.passed else "complete",
            seconds=clock.spent,
            values=np.concatenate(values),
            fitted=fitted,
            rounds=tuple(rounds),
            warned=warned,
        )


def _mean(values: Sequence[FloatArray]) -> float:
    """Over the queries for which the metric is defined; NaN where it is for none."""
    every = np.concatenate(values)
    return math.nan if np.isnan(every).all() else float(np.nanmean(every))


class Refit(NamedTuple):
    """The final ranker, and what became of training it again on all the data."""

    ranker: Ranker
    sentence: str = ""
    out_of_time: bool = False
    interrupted: bool = False


def fit_again(ranker: Any, rounds: Sequence[int], train: RankingData) -> Any:
    """Fit on all the data, in the mean of the rounds that were best: without validation data nothing stops the fit."""
    kind, best = ranker.rounds, max(1, round(float(np.mean(rounds)))) if rounds else None
    if kind is not None and best is not None:
        # The rate of some falls until the last round, so that they are told of all of them and are stopped.
        stop = {kind.option: best} if kind.nested else {"callbacks": (lambda now: now.number >= best,)}
        ranker.set_params(**stop)
    ranker.fit(train)
    return ranker if kind is None else ranker.set_params(callbacks=())
