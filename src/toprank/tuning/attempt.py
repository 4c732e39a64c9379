"""One trial: fit on each part of the data, judge on its queries, stop where it is not worth the time."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.folds import split
from toprank.errors import DataError, Remedy
from toprank.metrics.evaluation import Judge
from toprank.rankers.base import ConstantScoresWarning, ConvergenceWarning
from toprank.systems import System

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["Attempt", "Interrupts", "OutOfTimeError", "Outcome", "PrunedError", "Question", "divide"]

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
    """Whether every query judges once: then the answer may learn from all of them."""


def divide(train: RankingData, valid: RankingData | None, folds: int | None, seed: int) -> Division:
    """The given validation data; or so many folds; or a fifth of the queries held out, drawn by seed."""
    for name, data in (("train", train), ("valid", valid)):
        if data is not None and not isinstance(data, RankingData):
            raise DataError(f"{name} must be a RankingData: tr.RankingData(X, y, qid=qid), or tr.read(path).")
    if valid is not None:
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
        return Division((Part(train, valid),), f"{_count(valid.n_queries)} of validation data", False)
    if folds is None:
        _check_enough(train, 2)
        fraction = max(_HELD_OUT, 1 / train.n_queries)
        kept, held_out = split(train, (1 - fraction, fraction), seed=seed)
        words = f"{_count(held_out.n_queries)} held out of {train.n_queries:,}"
        return Division((Part(kept, held_out),), words, False)
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise DataError(f"folds must be a whole number of at least 2, not {folds!r}.")
    folds = int(folds)
    _check_enough(train, folds)
    judges = split(train, [1 / folds] * folds, seed=seed)
    parts = tuple(Part(train.select(~np.isin(train.qids, judge.qids)), judge) for judge in judges)
    return Division(parts, f"{_count(train.n_queries)} in {folds} folds", True)


def _check_enough(data: RankingData, parts: int) -> None:
    if data.n_queries < parts:
        raise DataError(
            f"{_count(data.n_queries)} cannot be divided into {parts} parts; give",
            remedy=Remedy("valid= data, or more queries.", "--valid data, or more queries."),
        )


def _count(queries: int) -> str:
    return f"{queries:,} {'query' if queries == 1 else 'queries'}"


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
    """Fits and judges.

    Args:
        question: what to find out.
        report: called with a value and the step it belongs to; says whether the trial is behind the others.
        deadline: `time.perf_counter()` at which to give up; None: never.
        interrupts: notes Ctrl-C.
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
                values = self.question.judge(part).per_query(ranker.predict(part.valid))
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
        self._before = signal.getsignal(signal.SIGINT) if _in_main_thread() else None
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


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
