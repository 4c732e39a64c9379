"""A trial: one ranker, fitted, and judged on queries that it did not learn from; who judges it, and what may end it."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from toprank.compute import FloatArray
from toprank.metrics.evaluation import Judge
from toprank.metrics.parsing import parse
from toprank.rankers.base import ConstantScoresWarning, ConvergenceWarning

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.rankers.base import Ranker

__all__ = ["Division", "HoldOut", "Interrupts", "State", "Trial", "TrialJudge", "noting"]

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

    @classmethod
    def of(cls, train: RankingData, valid: RankingData) -> Division:
        """Validation data that were given."""
        n = valid.n_queries
        return cls((HoldOut(train, valid),), f"{n:,} {'query' if n == 1 else 'queries'} of validation data")


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
        """The value of a trial, more of which is better."""
        assert trial.value is not None
        return self.sign * trial.value

    def best(self, trials: Iterable[Trial]) -> Trial | None:
        """The complete trial with the best value; the first of equals."""
        return max((one for one in trials if one.state == "complete"), key=self.worth, default=None)


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

    def _note(self, number: int, frame: Any) -> None:
        again, self.happened = self.happened, True
        if (self._cutting or again) and callable(self._before):
            self._before(number, frame)
