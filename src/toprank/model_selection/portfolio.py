"""The portfolio: which rankers are tried, in which order, and which are left out for lack of time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from toprank.compute import Resumable
from toprank.data.dataset import RankingData
from toprank.display.progress import ProgressLine
from toprank.errors import DataError
from toprank.metrics.parsing import parse
from toprank.model_selection.default import BLENDED_SYSTEMS
from toprank.model_selection.search import Candidate, Clock, Search, State, Trial, TrialJudge
from toprank.model_selection.weights import plausibility
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import unfitted
from toprank.significance import t_interval
from toprank.systems import System, get

NO_TIME = "There was no time for it."
"""The remark on an entry that does not fit into the budget."""
_MAX_TRIALS = "As many were tried as were asked for."
_PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)
_RAW_PENALTIES = (1e3, 1e2, 10.0, 1.0, 0.1)  # cs-RgList leaves the features as they are
_FEW_PENALTIES = (0.1, 0.01, 0.001)
_EXPECTED_GAIN_WORK = 50.0  # times a linear ListNet: 10 to 70 on the sets at hand
_ROUNDS, _PATIENCE = 500, 50
_RESUMING_SHARE = 0.25  # of the time after the default system
_MIN_SHARE = 0.02  # of the budget: less than that is not worth another training
_REFIT_MARGIN = 1.05
_LAMBDA_METRICS = ("ap", "err", "rr")


class PortfolioEntry(NamedTuple):
    """A ranker to try.

    Attributes:
        ranker: not fitted.
        work: expected time, in a unit for solvers and another for rankers that learn in rounds.
    """

    name: str
    ranker: Ranker
    work: float

    @property
    def in_rounds(self) -> bool:
        """Whether the ranker learns in rounds; the others are solvers."""
        return self.ranker.rounds is not None


class RefittedTrial(NamedTuple):
    """A candidate fitted again on all the data.

    Attributes:
        rounds: the rounds of the trial then; it may have gone on since.
    """

    rounds: tuple[int, ...]
    ranker: Ranker


def portfolio(data: RankingData, metric: str, convention: str, seed: int, threads: int | None) -> list[PortfolioEntry]:
    """Return the entries for these data, in the order in which they are tried.

    The systems of the default blend come first, then the others from cheap to dear: solvers of one score, trees of one
    score, trees of larger size, trees with an output for each grade, and the solver that takes the most steps.
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
    linear, boosted = BLENDED_SYSTEMS
    return [
        solver(linear),
        trees(boosted, **get(boosted).options),
        solver("cs-RgList", 2.0, l2=_RAW_PENALTIES),
        solver("RankNet-linear", 3.0),
        trees(mart),
        trees("LambdaMART", **lambdas),
        trees(lightgbm),
        trees(replace(lightgbm, name="XE-NDCG-lightgbm", options={"loss": "lightgbm:rank_xendcg"})),
        trees(replace(mart, name="QueryMART", loss="QuerySquared")),
        trees(replace(mart, name="RankNet-trees", loss="Logistic")),
        trees(mart, sampled=True),
        trees("LambdaMART", **lambdas, sampled=True),
        trees("McRank"),
        trees("McRank", sampled=True),
        solver("ExpectedGain-cosine", _EXPECTED_GAIN_WORK, l2=_FEW_PENALTIES, seed=seed),
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


class RefitPlan(NamedTuple):
    """What fitting the choice again on all the data takes.

    Attributes:
        factor: time for fitting a candidate again, as a multiple of the time for fitting it here; 0 if the choice is
            not fitted again.
        further: queries with labels that occur in all the data alone; a candidate that cannot learn from them is
            refused. None if there are none.
    """

    factor: float = 0.0
    further: RankingData | None = None


class PortfolioSearch(Search):
    """Tries what fits into the time: the default system first, and the others with the time that it leaves.

    The first entries, `n_default`, are the default system, and may use all of the time; the very first that can learn
    from the data is fitted to its end whatever the time. Of the time left, less what fitting the choice again will
    take, an entry that learns in rounds may use half, and goes on later from where it was cut: the last quarter of the
    time is for those, the best first, as is the time that others leave. A solver may use all of it, but is not tried
    if others of its kind suggest that it would take longer. After `max_trials` fits the others are not tried.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = (DataError,)  # labels that one cannot learn from
    failed: ClassVar[State] = "refused"

    def __init__(
        self,
        judge: TrialJudge,
        clock: Clock,
        entries: Sequence[PortfolioEntry],
        *,
        n_default: int = len(BLENDED_SYSTEMS),
        refit: RefitPlan = RefitPlan(),  # noqa: B008 - a named tuple
        max_trials: int | None = None,
        tell: ProgressLine | None = None,
    ) -> None:
        super().__init__(judge, clock)
        self.entries, self.max_trials, self.tell = entries, max_trials, tell
        self.n_default, self.refit = n_default, refit
        self.refitted: dict[str, RefittedTrial] = {}
        """The candidates that were fitted again on all the data, by name."""
        self.chosen: frozenset[str] | None = None
        """The candidates that the last decision was made of; None before the first."""
        self._waiting = list(enumerate(self.entries))
        self._time_for_resuming: float | None = None
        self._suspended: dict[str, Candidate] = {}
        self._solver_rate = 0.0  # seconds for a unit of work, of the quickest solver so far

    def of(self, *states: str) -> list[Trial]:
        """Return the trials in these states."""
        return [trial for trial in self.trials if trial.state in states]

    @property
    def timed_out(self) -> bool:
        """Whether trials were cut short or left out for lack of time."""
        return any(trial.state == "cut short" or trial.remark == NO_TIME for trial in self.trials)

    @property
    def stopped(self) -> str:
        """Why the search ended, as a sentence."""
        if self.interrupts.happened:
            return f"Interrupted after {len(self.ranked)} candidates."
        skipped = self.of("not tried")
        return skipped[0].remark if skipped else "All candidates were tried."

    @property
    def is_over(self) -> bool:
        """Whether another run has nothing left to try."""
        return not self._waiting and not self._suspended

    @override
    def run(self) -> None:
        """Try what fits into the time; a later run goes on with what is left of it."""
        super().run()
        if not self.refit.factor:
            self.close()
        if not self.ranked:
            raise DataError(f"No ranker of the portfolio can learn from these data. {self.trials[0].remark}")

    @property
    def default(self) -> tuple[str, ...]:
        """The names of the entries that are the default system."""
        return tuple(entry.name for entry in self.entries[: self.n_default])

    def refit_seconds(self, trials: Iterable[Trial]) -> float:
        """Return the expected time for fitting these trials again on all the data, unless that was done."""
        new = [trial for trial in trials if not self.is_refitted(trial)]
        return self.refit.factor * sum((trial.seconds or 0.0) * trial.refit_work for trial in new)

    def is_refitted(self, trial: Trial) -> bool:
        """Whether a trial was fitted again on all the data, with the rounds that it has now."""
        return trial.name in self.refitted and self.refitted[trial.name].rounds == trial.rounds

    def close(self) -> None:
        """Note that there was no time for what was not tried."""
        if not self.interrupts.happened:
            for number, entry in self._waiting:
                self._skip(number, entry, self._skipped(0.0) or NO_TIME)
        self._waiting = []

    @override
    def batches(self) -> Iterator[list[Candidate]]:
        while self._waiting and self._waiting[0][0] < self.n_default:
            number, entry = self._waiting.pop(0)
            if (why := self._skipped(self.clock.left)) is not None:
                self._skip(number, entry, why)
            else:
                yield [self._candidate(entry, self.clock.left if self.ranked else math.inf)]
        if self._time_for_resuming is None:
            self._time_for_resuming = _RESUMING_SHARE * self._usable
        least = 0.0 if math.isinf(self.clock.time_budget) else _MIN_SHARE * self.clock.time_budget
        while not self.is_over:
            usable = self._usable
            if usable <= least and self.ranked:
                return
            if self._suspended and (not self._waiting or usable <= self._time_for_resuming):
                yield [self._suspended[self._best_suspended]._replace(seconds=usable)]
                continue
            number, entry = self._waiting.pop(0)
            expected = 0.0 if entry.in_rounds else self._solver_rate * entry.work
            if (why := self._skipped(usable, expected)) is not None:
                self._skip(number, entry, why)
                continue
            alone = not entry.in_rounds or not self._waiting
            yield [self._candidate(entry, math.inf if not self.ranked else usable if alone else usable / 2)]

    @property
    def _usable(self) -> float:
        """The time for further candidates: each of them may have to be fitted again, as what is best so far."""
        left = self.clock.left
        if math.isinf(left) or not self.refit.factor:
            return left
        again = _REFIT_MARGIN * self.refit_seconds(self._plausible())
        return (left - again) / (1 + self.refit.factor) if again <= left else left

    def _plausible(self) -> list[Trial]:
        """Return the trials that the choice may be made of as things are, or was made of when it was last made."""
        ranked, sign = self.ranked, self.judge.sign
        if self.chosen is not None:
            return [trial for trial in ranked if trial.name in self.chosen]
        return [
            trial
            for trial in ranked
            if trial.name in self.default or plausibility(t_interval(trial.values, ranked[0].values), sign) > 0
        ]

    @property
    def _best_suspended(self) -> str:
        return next(trial.name for trial in self.ranked if trial.name in self._suspended)

    def _skipped(self, left: float, expected: float = 0.0) -> str | None:
        """Return why an entry is not tried; None if it is."""
        if self.max_trials is not None and len(self.ranked) >= self.max_trials:
            return _MAX_TRIALS
        return NO_TIME if self.ranked and (left <= 0 or expected > left) else None

    def _skip(self, number: int, entry: PortfolioEntry, why: str) -> None:
        self.trials.append(Trial(entry.name, number=number, state="not tried", remark=why))

    def _candidate(self, entry: PortfolioEntry, seconds: float) -> Candidate:
        return Candidate(entry.name, partial(self._rehearsed, entry), {}, seconds, resumable=Resumable())

    def _rehearsed(self, entry: PortfolioEntry) -> Ranker:
        if self.refit.further is not None and entry.name not in self._suspended:
            _rehearse(entry, self.refit.further)
        return entry.ranker

    @override
    def take(self, candidate: Candidate, trial: Trial | None) -> None:
        before = self._suspended.pop(candidate.name, None)
        if trial is None:
            return
        if before is not None:
            self._take_further(trial)
        else:
            if trial.state == "cut short" and not trial.fitted.path_[0]["iterations"]:  # it has not even begun
                trial = Trial(trial.name, state="not tried", remark=NO_TIME)
            trial = replace(trial, number=len(self.trials))
            self.trials.append(trial)
            self._note_rate(trial)
        if trial.state == "cut short" and candidate.resumable is not None and candidate.resumable.is_suspended:
            self._suspended[candidate.name] = candidate
        if self.tell is not None and trial.value is not None:
            left = max(self.clock.left, 0.0)
            spent = f"{trial.seconds:6.1f} s" + ("" if math.isinf(left) else f", {left:.0f} s left")
            further = " (further rounds)" if before is not None else ""
            self.tell(f"{trial.name:<22} {self.judge.metric} {trial.value:.4f}  {spent}{further}", last=True)

    def _take_further(self, trial: Trial) -> None:
        """Put a trial that went on in the place of what it was; if its further rounds failed, nothing changes."""
        [place] = [place for place, known in enumerate(self.trials) if known.name == trial.name]
        earlier = self.trials[place]
        if trial.value is not None:
            seconds = (trial.seconds or 0.0) + (earlier.seconds or 0.0)
            self.trials[place] = replace(trial, number=earlier.number, seconds=seconds)

    def _note_rate(self, trial: Trial) -> None:
        entry = next(entry for entry in self.entries if entry.name == trial.name)
        if not entry.in_rounds and trial.seconds is not None:
            rate = trial.seconds / entry.work
            self._solver_rate = min(self._solver_rate, rate) if self._solver_rate else rate


def _rehearse(entry: PortfolioEntry, data: RankingData) -> None:
    """Fit an entry as briefly as possible, so that one that cannot learn from the data fails early."""
    ranker = unfitted(entry.ranker)
    if ranker.rounds is not None:
        ranker.set_params(**{ranker.rounds.option: 1, "early_stopping": None})
    else:
        ranker.set_params(l2=float(np.max(ranker.l2)))
    ranker.fit(data)
