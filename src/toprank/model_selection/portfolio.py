"""The portfolio of candidates of `AutoRanker`, and their schedule within a time budget."""

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
from toprank.model_selection.search import Candidate, Clock, Search, State, Trial, TrialEvaluator
from toprank.model_selection.weights import plausibility
from toprank.rankers.base import Ranker
from toprank.rankers.estimator import unfitted
from toprank.significance import t_interval
from toprank.systems import System, get

NO_TIME = "There was no time for it."
"""Remark on a candidate that does not fit into the time budget."""
_MAX_TRIALS = "The maximum number of trials was reached."
_PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)
_RAW_PENALTIES = (1e3, 1e2, 10.0, 1.0, 0.1)  # cs-RgList does not standardize features
_FEW_PENALTIES = (0.1, 0.01, 0.001)
_EXPECTED_GAIN_WORK = 50.0  # relative to a linear ListNet: 10 to 70 on the benchmark data
_MAX_TREES, _EARLY_STOPPING = 500, 50
_RESUMING_SHARE = 0.25  # of the time left after the default system
_MIN_SHARE = 0.02  # of the time budget; less time does not suffice for another candidate
_REFIT_MARGIN = 1.05
_LAMBDA_METRICS = ("ap", "err", "rr")


class PortfolioEntry(NamedTuple):
    """A candidate of the portfolio.

    Attributes:
        name: unique name of the candidate.
        ranker: unfitted ranker.
        work: expected training time in relative units, which differ between solvers and iterative learners.
    """

    name: str
    ranker: Ranker
    work: float

    @property
    def in_rounds(self) -> bool:
        """True if the ranker learns in rounds, such as trees; the others are fitted by a solver."""
        return self.ranker.rounds is not None


class RefittedTrial(NamedTuple):
    """A candidate that was refitted on all the data.

    Attributes:
        rounds: number of rounds of the trial at the time of the refit; the trial may have been resumed since.
        ranker: the refitted ranker.
    """

    rounds: tuple[int, ...]
    ranker: Ranker


def portfolio(data: RankingData, metric: str, convention: str, seed: int, threads: int | None) -> list[PortfolioEntry]:
    """Return the candidates for these data, in the order of evaluation.

    The systems of the default blend are first. The others follow by increasing cost: linear models, trees, larger
    trees, trees with an output for each grade, and the expected-gain model.
    """
    judged: dict[str, Any] = {"metric": metric, "convention": convention, "threads": threads}
    rounds = {"n_trees": _MAX_TREES, "early_stopping": _EARLY_STOPPING, "seed": seed} | tree_settings(data) | judged
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
    # Unlike the system LambdaMART, which truncates at rank 30, use all pairs.
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
    """Return options of trees by the size of the data.

    On fewer than 20,000 documents, 7 leaves and a small learning rate were better than 31 leaves on the validation data
    of all sets and losses tried. Larger data get common defaults.
    """
    if data.n_documents < 20_000:
        return {"num_leaves": 7, "learning_rate": 0.05, "min_data_in_leaf": 20}
    if data.n_documents < 200_000:
        return {"num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 50}
    return {"num_leaves": 63, "learning_rate": 0.1, "min_data_in_leaf": 100}


class RefitPlan(NamedTuple):
    """Cost and constraints of the refit on all the data.

    Attributes:
        factor: time of a refit as a multiple of the time of the original fit; 0 without a refit.
        further: queries with labels that occur only in the held-out part, or None. Candidates that cannot train on
            them are refused.
    """

    factor: float = 0.0
    further: RankingData | None = None


class PortfolioSearch(Search):
    """Search that evaluates the candidates that fit into the time budget, the default system first.

    The first `n_default` candidates form the default system and may use all of the time; the first one that can train
    on the data is fitted completely in any case. The time for the refit is reserved. Of the remaining time, a candidate
    that learns in rounds may use half, and is suspended then. The last quarter of the time, and any time left over,
    resumes suspended candidates, the best first. A solver may use all of the remaining time, but is skipped if the
    speed of earlier solvers predicts that it would take longer. After `max_trials` fits the others are skipped.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = (DataError,)  # unsupported labels
    failed: ClassVar[State] = "refused"

    def __init__(
        self,
        judge: TrialEvaluator,
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
        """Refitted candidates by name."""
        self.chosen: frozenset[str] | None = None
        """Names of the candidates in the last decision, or None before the first decision."""
        self._waiting = list(enumerate(self.entries))
        self._time_for_resuming: float | None = None
        self._suspended: dict[str, Candidate] = {}
        self._solver_rate = 0.0  # seconds per unit of work of the fastest solver so far

    def in_state(self, *states: str) -> list[Trial]:
        """Return the trials in these states."""
        return [trial for trial in self.trials if trial.state in states]

    @property
    def timed_out(self) -> bool:
        """True if trials were stopped early or skipped for lack of time."""
        return any(trial.state == "cut short" or trial.remark == NO_TIME for trial in self.trials)

    @property
    def stopped(self) -> str:
        """Reason why the search ended, as a sentence."""
        if self.interrupts.happened:
            return f"Interrupted after {len(self.ranked)} candidates."
        skipped = self.in_state("not tried")
        return skipped[0].remark if skipped else "All candidates were evaluated."

    @property
    def is_over(self) -> bool:
        """True if no candidate is left for another run."""
        return not self._waiting and not self._suspended

    @override
    def run(self) -> None:
        """Evaluate the candidates that fit into the time; a later run continues with the remaining time."""
        super().run()
        if not self.refit.factor:
            self.close()
        if not self.ranked:
            raise DataError(f"No candidate of the portfolio can be trained on these data. {self.trials[0].remark}")

    @property
    def default(self) -> tuple[str, ...]:
        """Names of the candidates that form the default system."""
        return tuple(entry.name for entry in self.entries[: self.n_default])

    def refit_seconds(self, trials: Iterable[Trial]) -> float:
        """Return the expected time for refitting these trials, excluding those that are already refitted."""
        new = [trial for trial in trials if not self.is_refitted(trial)]
        return self.refit.factor * sum((trial.seconds or 0.0) * trial.refit_work for trial in new)

    def is_refitted(self, trial: Trial) -> bool:
        """Return whether a trial was refitted on all the data with its current number of rounds."""
        return trial.name in self.refitted and self.refitted[trial.name].rounds == trial.rounds

    def close(self) -> None:
        """Record that the remaining candidates were skipped for lack of time."""
        if not self.interrupts.happened:
            for number, entry in self._waiting:
                self._skip(number, entry, self._skipped(0.0) or NO_TIME)
        self._waiting = []

    @override
    def batches(self) -> Iterator[list[Candidate]]:
        while self._waiting and self._waiting[0][0] < self.n_default:
            number, entry = self._waiting.pop(0)
            if (reason := self._skipped(self.clock.left)) is not None:
                self._skip(number, entry, reason)
            else:
                yield [self._candidate(entry, self.clock.left if self.ranked else math.inf)]
        if self._time_for_resuming is None:
            self._time_for_resuming = _RESUMING_SHARE * self._usable
        min_usable = 0.0 if math.isinf(self.clock.time_budget) else _MIN_SHARE * self.clock.time_budget
        while not self.is_over:
            usable = self._usable
            if usable <= min_usable and self.ranked:
                return
            if self._suspended and (not self._waiting or usable <= self._time_for_resuming):
                yield [self._suspended[self._best_suspended]._replace(seconds=usable)]
                continue
            number, entry = self._waiting.pop(0)
            expected = 0.0 if entry.in_rounds else self._solver_rate * entry.work
            if (reason := self._skipped(usable, expected)) is not None:
                self._skip(number, entry, reason)
                continue
            alone = not entry.in_rounds or not self._waiting
            yield [self._candidate(entry, math.inf if not self.ranked else usable if alone else usable / 2)]

    @property
    def _usable(self) -> float:
        """Time left for further candidates, without the time reserved for refits."""
        left = self.clock.left
        if math.isinf(left) or not self.refit.factor:
            return left
        again = _REFIT_MARGIN * self.refit_seconds(self._plausible())
        return (left - again) / (1 + self.refit.factor) if again <= left else left

    def _plausible(self) -> list[Trial]:
        """Return the trials of the last decision, or before it the trials that may be selected."""
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
        """Return the reason for skipping a candidate, or None."""
        if self.max_trials is not None and len(self.ranked) >= self.max_trials:
            return _MAX_TRIALS
        return NO_TIME if self.ranked and (left <= 0 or expected > left) else None

    def _skip(self, number: int, entry: PortfolioEntry, reason: str) -> None:
        self.trials.append(Trial(entry.name, number=number, state="not tried", remark=reason))

    def _candidate(self, entry: PortfolioEntry, seconds: float) -> Candidate:
        return Candidate(entry.name, partial(self._prepare, entry), {}, seconds, resumable=Resumable())

    def _prepare(self, entry: PortfolioEntry) -> Ranker:
        if self.refit.further is not None and entry.name not in self._suspended:
            _check_trainable(entry, self.refit.further)
        return entry.ranker

    @override
    def record(self, candidate: Candidate, trial: Trial | None) -> None:
        before = self._suspended.pop(candidate.name, None)
        if trial is None:
            return
        if before is not None:
            self._take_further(trial)
        else:
            if (
                trial.state == "cut short" and not trial.fitted.path_[0]["iterations"]
            ):  # stopped before the first iteration
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
        """Replace a trial by its resumed version, unless the additional rounds failed."""
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


def _check_trainable(entry: PortfolioEntry, data: RankingData) -> None:
    """Fit a candidate for one round, so that a candidate that cannot be trained on the data fails early."""
    ranker = unfitted(entry.ranker)
    if ranker.rounds is not None:
        ranker.set_params(**{ranker.rounds.option: 1, "early_stopping": None})
    else:
        ranker.set_params(l2=float(np.max(ranker.l2)))
    ranker.fit(data)
