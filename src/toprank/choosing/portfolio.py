"""The portfolio: which rankers are tried, in which order, and their fits one after the other while time is left."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.metrics.evaluation import Judge
from toprank.metrics.parsing import parse
from toprank.rankers.base import ConstantScoresWarning, ConvergenceWarning
from toprank.rankers.estimator import unfitted
from toprank.rankers.watching import Epoch, Round
from toprank.showing.progress import Told
from toprank.systems import System, get

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["Clock", "Entry", "Trial", "Trials", "portfolio", "quietly", "run_trials"]

_PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)
_RAW_PENALTIES = (1e3, 1e2, 10.0, 1.0, 0.1)  # cs-RgList leaves the features as they are
_FEW_PENALTIES = (0.1, 0.01, 0.001)
_EXPECTED_GAIN_WORK = 50.0  # times a linear ListNet: 10 to 70 on the sets at hand
_ROUNDS, _PATIENCE = 500, 50
_LAMBDA_METRICS = ("ap", "err", "rr")


class Entry(NamedTuple):
    """A ranker to try."""

    name: str
    ranker: Ranker
    """Not fitted. One that learns in rounds can be stopped; a solver runs to its end."""
    work: float
    """Expected time, in units that the entries of one kind share."""

    @property
    def in_rounds(self) -> bool:
        """Which of the two kinds it is."""
        return self.ranker.rounds is not None


def portfolio(data: RankingData, metric: str, convention: str, seed: int, threads: int | None) -> list[Entry]:
    """The entries for these data, in the order in which they are tried.

    Quick linear models come first, so that there is always an answer; then trees, the most promising losses first.
    """
    judged: dict[str, Any] = {"metric": metric, "convention": convention, "threads": threads}
    rounds = {"n_trees": _ROUNDS, "early_stopping": _PATIENCE, "seed": seed} | tree_settings(data) | judged
    n_grades = float(max(len(data.grades.values), 2))

    def solver(name: str, work: float = 1.0, **options: Any) -> Entry:
        return Entry(name, get(name).make(**{"l2": _PENALTIES} | judged | options), work)

    def trees(system: str | System, name: str | None = None, sampled: bool = False, **options: Any) -> Entry:
        system = get(system) if isinstance(system, str) else system
        name = name or system.name
        if sampled:
            options |= {"num_leaves": 2 * rounds["num_leaves"] + 1, "feature_fraction": 0.5, "query_fraction": 0.7}
            name += " (sampled)"
        ranker = system.make(**rounds | options)
        return Entry(name, ranker, n_grades if ranker.outputs == "grades" else 1.0)

    measure = parse(metric).name
    # The system LambdaMART has only the pairs of the first 30 ranks.
    lambdas: dict[str, Any] = {"name": "LambdaMART-all-pairs", "truncation": None, "norm": False}
    lambdas["loss.metric"] = measure if measure in _LAMBDA_METRICS else "ndcg"
    mart, lightgbm = get("MART"), get("LambdaMART-lightgbm")
    return [
        solver("ListNet"),
        solver("cs-RgList", 2.0, l2=_RAW_PENALTIES),
        solver("RankNet-linear", 3.0),
        trees("LambdaMART", **lambdas),
        trees("McRank"),
        trees(lightgbm),
        trees(mart),
        trees(replace(mart, name="RankNet-trees", loss="Logistic")),
        trees(replace(lightgbm, name="XE-NDCG-lightgbm", options={"loss": "lightgbm:rank_xendcg"})),
        solver("ExpectedGain-cosine", _EXPECTED_GAIN_WORK, l2=_FEW_PENALTIES, seed=seed),
        trees("McRank", sampled=True),
        trees("LambdaMART", **lambdas, sampled=True),
        trees(mart, sampled=True),
        trees(replace(mart, name="QueryMART", loss="QuerySquared")),
    ]


def tree_settings(data: RankingData) -> dict[str, Any]:
    """Small trees and small steps on few documents, where 31 leaves were worse than 7 under every loss.

    The small end was chosen on the validation parts of MQ2008, OHSUMED and slices of MSLR; larger data get what is
    usual for them.
    """
    if data.n_documents < 20_000:
        return {"num_leaves": 7, "learning_rate": 0.05, "min_data_in_leaf": 20}
    if data.n_documents < 200_000:
        return {"num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 50}
    return {"num_leaves": 63, "learning_rate": 0.1, "min_data_in_leaf": 100}


class Clock:
    """A budget of seconds that runs from now on."""

    def __init__(self, budget: float) -> None:
        self.budget, self._begin = budget, time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._begin

    @property
    def left(self) -> float:
        """Seconds that are left, below 0 where the budget is overdrawn."""
        return self.budget - self.spent


@dataclass(frozen=True)
class Trial:
    """A ranker that was fitted, and what it scores on the validation data."""

    name: str
    ranker: Ranker
    values: FloatArray
    """The metric of each validation query."""
    seconds: float
    cut_short: bool
    """Whether its training was stopped for lack of time."""


@dataclass
class Trials:
    """What came of the portfolio."""

    done: list[Trial] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Not begun for lack of time."""
    refused: dict[str, str] = field(default_factory=dict)
    """Does not go with these data; why."""
    interrupted: bool = False

    @property
    def budget_bound(self) -> bool:
        """Whether more time would have given more."""
        return bool(self.skipped) or any(trial.cut_short for trial in self.done)


class Deadline:
    """A callback of rankers that learn in rounds, which ends the training when its time is over."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.passed = seconds, False

    def __call__(self, now: Round | Epoch) -> bool:
        """True when the time is over."""
        self.passed = now.seconds >= self.seconds and now.number < now.last
        return self.passed


def run_trials(
    entries: Sequence[Entry],
    train: RankingData,
    judge: Judge,
    clock: Clock,
    tell: Told | None = None,
    also: RankingData | None = None,
) -> Trials:
    """Fit what fits into the time; the first entry that goes with the data is fitted whatever it takes.

    What an entry will take is estimated from the quickest of its kind before it: the first call of a kernel compiles
    it, so the slowest would tell too much. Trees may use half of the time that is left, the last entry all of it. An
    entry that cannot learn from `also`, a few further queries, is refused too. An interrupt from the keyboard ends the
    search; the fits until then are kept.
    """
    trials = Trials()
    rates: dict[bool, float] = {}
    for number, entry in enumerate(entries):
        left = clock.left
        if trials.done and (left <= 0 or rates.get(entry.in_rounds, 0.0) * entry.work > left):
            trials.skipped.append(entry.name)
            continue
        share = left / 2 if number + 1 < len(entries) else left
        try:
            if also is not None:
                _rehearse(entry, also)
            trial = _fit(entry, train, judge, max(share, 0.0))
        except DataError as problem:  # labels that this one cannot learn from
            trials.refused[entry.name] = str(problem)
            continue
        except KeyboardInterrupt:
            if not trials.done:  # nothing to keep
                raise
            trials.interrupted = True
            break
        trials.done.append(trial)
        rates[entry.in_rounds] = min(rates.get(entry.in_rounds, math.inf), trial.seconds / entry.work)
        if tell is not None:
            value = f"{judge.name} {np.nanmean(trial.values):.4f}"
            spent = f"{trial.seconds:6.1f} s, {max(clock.left, 0.0):.0f} s left"
            tell(f"{trial.name:<22} {value}  {spent}", last=True)
        if trial.ranker.was_interrupted:
            trials.interrupted = True
            break
    if not trials.done:
        raise DataError(f"No ranker of the portfolio can learn from these data. {next(iter(trials.refused.values()))}")
    return trials


def _rehearse(entry: Entry, data: RankingData) -> None:
    """Refuse, as early as that can be told, an entry that cannot learn from the data."""
    ranker = unfitted(entry.ranker)
    if ranker.rounds is not None:
        ranker.set_params(**{ranker.rounds.option: 1, "early_stopping": None})
    else:
        ranker.set_params(l2=float(np.max(ranker.l2)))
    with quietly():
        ranker.fit(data)


def _fit(entry: Entry, train: RankingData, judge: Judge, seconds: float) -> Trial:
    begin, deadline, ranker = time.perf_counter(), Deadline(seconds), entry.ranker
    if entry.in_rounds:
        ranker.set_params(callbacks=(deadline,))
    with quietly():
        ranker.fit(train, valid=judge.data)
    if entry.in_rounds:
        ranker.set_params(callbacks=())
    values = judge.per_query(ranker.predict(judge.data))
    return Trial(entry.name, ranker, values, time.perf_counter() - begin, deadline.passed)


class quietly(warnings.catch_warnings):  # noqa: N801 - read as a verb
    """Without the warnings of fits: a rough solution or constant scores are judged by their validation metric."""

    def __enter__(self) -> None:
        super().__enter__()
        for kind in (ConvergenceWarning, ConstantScoresWarning):
            warnings.simplefilter("ignore", kind)
