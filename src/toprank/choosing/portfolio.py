"""The portfolio: which rankers are tried, in which order, and which are left out for lack of time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from toprank.choosing.search import Candidate, Clock, Search, State, Trial, TrialJudge
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.metrics.parsing import parse
from toprank.rankers.estimator import unfitted
from toprank.showing.progress import ProgressLine
from toprank.systems import System, get

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

NO_TIME = "There was no time for it."
"""The remark on an entry that does not fit into the budget."""
_MAX_TRIALS = "As many were tried as were asked for."
_PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)
_RAW_PENALTIES = (1e3, 1e2, 10.0, 1.0, 0.1)  # cs-RgList leaves the features as they are
_FEW_PENALTIES = (0.1, 0.01, 0.001)
_EXPECTED_GAIN_WORK = 50.0  # times a linear ListNet: 10 to 70 on the sets at hand
_ROUNDS, _PATIENCE = 500, 50
_LAMBDA_METRICS = ("ap", "err", "rr")


class PortfolioEntry(NamedTuple):
    """A ranker to try."""

    name: str
    ranker: Ranker
    """Not fitted."""
    work: float
    """Expected time, in a unit for solvers and another for rankers that learn in rounds."""

    @property
    def in_rounds(self) -> bool:
        """Whether the ranker learns in rounds; the others are solvers."""
        return self.ranker.rounds is not None


def portfolio(data: RankingData, metric: str, convention: str, seed: int, threads: int | None) -> list[PortfolioEntry]:
    """Return the entries for these data, in the order in which they are tried: those that win soonest first.

    The quickest linear model makes sure that there is an answer, and YetiRank, the best of single systems, comes next,
    so that a few seconds are enough for both.
    """
    judged: dict[str, Any] = {"metric": metric, "convention": convention, "threads": threads}
    rounds = {"n_trees": _ROUNDS, "early_stopping": _PATIENCE, "seed": seed} | tree_settings(data) | judged
    n_grades = float(max(len(data.grades.values), 2))

    def solver(name: str, work: float = 1.0, **options: Any) -> PortfolioEntry:
        return PortfolioEntry(name, get(name).make(**{"l2": _PENALTIES} | judged | options), work)

    def trees(system: str | System, name: str | None = None, sampled: bool = False, **options: Any) -> PortfolioEntry:
        system = get(system) if isinstance(system, str) else system
        name = name or system.name
        if sampled:
            options |= {"num_leaves": 2 * rounds["num_leaves"] + 1, "feature_fraction": 0.5, "query_fraction": 0.7}
            name += " (sampled)"
        ranker = system.make(**rounds | options)
        return PortfolioEntry(name, ranker, n_grades if ranker.outputs == "grades" else 1.0)

    measure = parse(metric).name
    # The system LambdaMART has only the pairs of the first 30 ranks.
    lambdas: dict[str, Any] = {"name": "LambdaMART-all-pairs", "truncation": None, "norm": False}
    lambdas["loss.metric"] = measure if measure in _LAMBDA_METRICS else "ndcg"
    mart, lightgbm = get("MART"), get("LambdaMART-lightgbm")
    return [
        solver("ListNet"),
        trees("YetiRank", **get("YetiRank").options),
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
    """Return options of trees: small ones and small steps on few documents, where 7 leaves beat 31 under every loss.

    The small end was chosen on the validation parts of MQ2008, OHSUMED and slices of MSLR; larger data get what is
    usual for them.
    """
    if data.n_documents < 20_000:
        return {"num_leaves": 7, "learning_rate": 0.05, "min_data_in_leaf": 20}
    if data.n_documents < 200_000:
        return {"num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 50}
    return {"num_leaves": 63, "learning_rate": 0.1, "min_data_in_leaf": 100}


class PortfolioSearch(Search):
    """Tries what fits into the time; the first entry that can learn from the data is fitted to its end.

    What an entry will take is estimated from the quickest of its kind before it: the first of a kind also pays for
    what is loaded once. What learns in rounds may use half of the time that is left, a solver and the last entry all of
    it. An entry that cannot learn from `also`, a few further queries, is refused too. After `max_trials` fits the
    others are not tried.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = (DataError,)  # labels that one cannot learn from
    failed: ClassVar[State] = "refused"

    def __init__(
        self,
        judge: TrialJudge,
        clock: Clock,
        entries: Sequence[PortfolioEntry],
        *,
        max_trials: int | None = None,
        also: RankingData | None = None,
        tell: ProgressLine | None = None,
    ) -> None:
        super().__init__(judge, clock)
        self.entries, self.max_trials, self.also, self.tell = entries, max_trials, also, tell

    def of(self, *states: str) -> list[Trial]:
        """Return the trials in these states."""
        return [trial for trial in self.trials if trial.state in states]

    @property
    def budget_bound(self) -> bool:
        """Whether trials were cut short or left out for lack of time."""
        return any(trial.state == "cut short" or trial.remark == NO_TIME for trial in self.trials)

    @property
    def stopped(self) -> str:
        """Why the search ended, as a sentence."""
        if self.interrupts.happened:
            return f"Interrupted after {len(self.ranked)} candidates."
        skipped = self.of("not tried")
        return skipped[0].remark if skipped else "All candidates were tried."

    @override
    def run(self) -> None:
        super().run()
        if not self.ranked:
            raise DataError(f"No ranker of the portfolio can learn from these data. {self.trials[0].remark}")

    @override
    def batches(self) -> Iterator[list[Candidate]]:
        rates: dict[bool, float] = {}
        for number, entry in enumerate(self.entries):
            left = self.clock.left
            why = self._skipped(left, rates.get(entry.in_rounds, 0.0) * entry.work)
            if why is not None:
                self.trials.append(Trial(entry.name, number=number, state="not tried", remark=why))
                continue
            share = left / 2 if entry.in_rounds and number + 1 < len(self.entries) else left
            yield [Candidate(entry.name, partial(self._rehearsed, entry), {}, math.inf if not self.ranked else share)]
            if (seconds := self.trials[-1].seconds) is not None:
                rates[entry.in_rounds] = min(rates.get(entry.in_rounds, math.inf), seconds / entry.work)

    def _skipped(self, left: float, expected: float) -> str | None:
        """Return why an entry is not tried; None if it is."""
        if self.max_trials is not None and len(self.ranked) >= self.max_trials:
            return _MAX_TRIALS
        return NO_TIME if self.ranked and (left <= 0 or expected > left) else None

    def _rehearsed(self, entry: PortfolioEntry) -> Ranker:
        if self.also is not None:
            _rehearse(entry, self.also)
        return entry.ranker

    @override
    def take(self, candidate: Candidate, trial: Trial | None) -> None:
        if trial is None:
            return
        if trial.state == "cut short" and not trial.fitted.path_[0]["iterations"]:  # it has not even begun
            trial = Trial(trial.name, state="not tried", remark=NO_TIME)
        self.trials.append(replace(trial, number=len(self.trials)))
        if self.tell is not None and trial.value is not None:
            left = max(self.clock.left, 0.0)
            spent = f"{trial.seconds:6.1f} s" + ("" if math.isinf(left) else f", {left:.0f} s left")
            self.tell(f"{trial.name:<22} {self.judge.metric} {trial.value:.4f}  {spent}", last=True)


def _rehearse(entry: PortfolioEntry, data: RankingData) -> None:
    """Fit an entry as briefly as possible, so that one that cannot learn from the data fails early."""
    ranker = unfitted(entry.ranker)
    if ranker.rounds is not None:
        ranker.set_params(**{ranker.rounds.option: 1, "early_stopping": None})
    else:
        ranker.set_params(l2=float(np.max(ranker.l2)))
    ranker.fit(data)
