"""Choose hyper-parameters on validation data, and on nothing else.

The best at the edge of a grid may not be the best: where the best penalty lies at one, the search walks on beyond it.
Papers did not; with `System.exact_grid` neither does the search. And the best on few queries is partly luck: `se_rule`
asks of it to beat the system's default clearly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.arguments import check_number
from toprank.data.dataset import RankingData
from toprank.data.division import DividedData
from toprank.errors import DataError, count_of, warn_user
from toprank.evaluation.scores import BoundMetric
from toprank.losses import make as make_loss
from toprank.model_selection.hold_out import divide
from toprank.model_selection.result import SelectionResult
from toprank.model_selection.search import Candidate, Search, Trial, TrialJudge, fit_again, unconverged
from toprank.model_selection.weights import paired_gain
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.rankers.estimator import unfitted
from toprank.systems import System, get

_ROUGH = 1e-4  # relative duality gap that suffices to tell candidates apart
_STEPS = 5  # beyond an edge of the grid
_NAMED = 5  # candidates in a sentence


def grid_search(
    system: System | str,
    train: RankingData,
    valid: RankingData | None = None,
    *,
    metric: str | None = None,
    convention: str = "standard",
    se_rule: float = 0.0,
    threads: int | None = None,
    **options: Any,
) -> SelectionResult:
    """Search a system's grid: fit on `train`, choose on `valid`, or on a fifth of the queries of `train`.

    Where the best penalty lies at an edge of the grid, the search walks on beyond it, a step of the grid at a time, as
    long as that is better (five steps at most), and says so in `summary`; not for a system with `exact_grid`.

    Args:
        system: a system or its name.
        train: data to fit on.
        valid: data to choose on. None: a fifth of the training queries, held out by `seed` where that is an option of
            the system, else by 0; the choice is then fitted on all.
        metric: what to choose by; None: what the system's source chooses by.
        convention: the rules of the metric.
        se_rule: keep the system's default, if it is in the grid, unless the best is better by more than so many
            standard errors of the differences over the validation queries, and say so in `summary`; 0: keep the best.
        threads: number of threads, over candidates; results do not depend on it (those of trees and networks to
            rounding, where a candidate has several threads to itself).
        options: hyper-parameters to fix; they are taken out of the grid.

    >>> import toprank as tr
    >>> train, valid = tr.split(tr.synthetic(n_queries=60, seed=0), (0.5, 0.5))
    >>> grid_search("LeastSquares", train, valid).options["l2"] in get("LeastSquares").grid["l2"]
    True
    """
    check_number("se_rule", se_rule, least=0)
    chosen = system if isinstance(system, System) else get(system)
    options = chosen.plain_options(options)
    seed = int(options.get("seed", 0))
    if valid is None:
        division = divide(train, None, seed=seed)
    else:
        words = f"{count_of(valid.n_queries, 'query')} of validation data"
        division = DividedData.given(train, valid, words).for_selection()
    judge = TrialJudge(division, metric or chosen.metric, convention, threads)
    search = GridSearch(chosen, judge, options)
    if len(search.combinations) * len(search.penalties or (None,)) > 1:
        judge.check()
    search.run()
    if se_rule > 0:
        search.keep_default(se_rule)
    return search.choice(train)


def choose(
    system: System | str | Ranker,
    train: RankingData,
    valid: RankingData,
    *,
    metric: str,
    threads: int | None = None,
    **options: Any,
) -> SelectionResult:
    """Run `grid_search` for a system, or fit an unfitted ranker with its own parameters and number of threads."""
    if isinstance(system, System | str):
        return grid_search(system, train, valid, metric=metric, threads=threads, **options)
    if options:
        raise DataError(
            "Hyper-parameters can be fixed only for a system given by name; set those of a ranker on the ranker."
        )
    ranker = unfitted(system).fit(train, valid=valid)
    value, evaluated_on = BoundMetric(valid, metric)(ranker.predict(valid)), f"{valid.n_queries:,} queries"
    interrupted = bool(getattr(ranker, "was_interrupted", False))
    return SelectionResult(
        ranker=ranker,
        name=type(ranker).__name__,
        options={},
        metric=metric,
        convention="standard",
        value=value,
        evaluated_on=evaluated_on,
        trials=[],
        interrupted=interrupted,
    )


class GridSearch(Search):
    """Every combination of a grid, each with the whole path of penalties, and where these lead."""

    hushed = False

    def __init__(self, system: System, judge: TrialJudge, options: dict[str, Any]) -> None:
        # Several combinations share the cores, one each; a single one may have them all, and so may each of several
        # that are trained one after the other.
        super().__init__(judge, at_once=1 if system.kind.needs_exclusive_training else judge.threads)
        self.system, self.options = system, options
        grid = {name: values for name, values in system.grid.items() if name not in options}
        self.searched = tuple(grid)
        self.penalties = grid.pop("l2", None) if system.kind.has_penalty_path else None
        self.combinations = _distinct([dict(zip(grid, values, strict=True)) for values in product(*grid.values())])
        own_threads = 1 if len(self.combinations) > 1 and self.at_once != 1 else judge.threads
        asked = {"metric": judge.metric, "convention": judge.convention, "threads": own_threads}
        self.shared = {**options, **asked}
        kinked = system.kind.uses_duality_gap and system.loss is not None and not make_loss(system.loss).traits.smooth
        self.rough = {"tolerance": _ROUGH} if kinked else {}
        self.kept: Trial | None = None
        self.sentences: list[str] = []

    @override
    def batches(self) -> Iterator[list[Candidate]]:
        yield [self._candidate(combination, self.penalties) for combination in self.combinations]
        if not self.system.exact_grid:
            yield from self.walk()
        if self.system.refine and self.penalties is not None:  # a second search around the best C = 1/l2
            yield [self._around(tuple(self.best.options["l2"] / factor for factor in self.system.refine))]

    def walk(self) -> Iterator[list[Candidate]]:
        """Walk beyond the edge of the grid if the best penalty lies there and beats its neighbor."""
        edge = None
        try:
            for _ in range(_STEPS):
                best = self.best
                beyond = None if self.penalties is None else self._beyond(best)
                if beyond is None:
                    break
                edge = best.options["l2"] if edge is None else edge
                yield [self._around((beyond,))]
                if self.best is best:
                    break
        finally:  # also where Ctrl-C ends the search here
            if edge is not None:
                best_l2, last = self.best.options["l2"], self.trials[-1].options["l2"]
                ended = f"the best is {best_l2:g}" if best_l2 != edge else "which was no better"
                words = f"The best l2 of the grid lay at its edge, {edge:g}; tried on to {last:g}, {ended}."
                self.sentences.append(words)

    @override
    def take(self, candidate: Candidate, trial: Trial | None) -> None:
        if trial is not None:
            self.trials.extend(self._stops(trial))

    def keep_default(self, se_rule: float) -> None:
        """Keep the default unless the best is better by so many standard errors of the differences by query."""
        best, default = self.best, self._default()
        if default is None or default is best or self.interrupts.happened:
            return
        gain = paired_gain(self._per_query(best), self._per_query(default), self.judge.sign)
        if not math.isnan(gain.error) and gain.in_errors <= se_rule:  # one query has no spread to compare with
            self.kept = default
            self.sentences.append(
                f"The default, {_named(default.options)}, is kept: {_named(best.options)} is better by {gain.mean:.4f} "
                f"{self.judge.metric} on the validation data, at a standard error of {gain.error:.4f}."
            )

    def choice(self, train: RankingData) -> SelectionResult:
        """Return the best trial, or the default that was kept, trained to the end.

        `train` is all the data, which the choice is fitted on once more if some were held out. A candidate with a loss
        that is not smooth is otherwise solved once more, as the search solved it roughly.
        """
        kept, n_held_out, refitted = self.kept or self.best, self.judge.division.n_held_out, False
        ranker, final = kept.ranker, dict(kept.options)
        if self.penalties is not None or "l2" in self.options:
            final["l2"] = getattr(ranker, "l2_", self.options.get("l2"))
        if n_held_out is not None and not self.interrupts.happened:
            with self.interrupts:
                again = self.interrupts.finished(
                    lambda: fit_again(self.system.make(**{**self.shared, **final}), kept.rounds, train)
                )
            if again is not None:
                ranker, refitted = again, True
                ranker.keep_value(kept.value, self.judge.metric, self.judge.convention)
        elif self.rough and not self.interrupts.happened:
            exact = None
            with self.interrupts, self.interrupts.cutting():
                exact = self.attempt(self._candidate(final, None, rough={}))
            self.lost |= exact is None
            if exact is not None and not self.interrupts.happened:
                kept, ranker = self.judge.ranked(self._stops(exact))[0], exact.fitted
        if self.lost:
            warn_user(
                f"grid_search: interrupted; the best of the {len(self.trials)} candidates tried until then is kept.",
                ConvergenceWarning,
            )
        ranker.set_params(threads=self.judge.threads)
        rows = [trial.row() for trial in self.trials]
        return SelectionResult(
            ranker=ranker,
            name=self.system.name,
            options=final,
            metric=self.judge.metric,
            convention=self.judge.convention,
            value=float(kept.value or 0.0),
            evaluated_on=self.judge.division.description,
            trials=rows,
            sentences=(*self.sentences, *_short_of_the_optimum(rows)),
            n_held_out=n_held_out,
            refitted=refitted,
            interrupted=self.interrupts.happened,
        )

    def _candidate(
        self, options: dict[str, Any], l2: tuple[float, ...] | None, rough: dict[str, Any] | None = None
    ) -> Candidate:
        path = {} if l2 is None else {"l2": list(l2)}
        given = {**self.shared, **options, **path, **(self.rough if rough is None else rough)}
        return Candidate(self.system.name, partial(self.system.make, **given), options)

    def _around(self, l2: tuple[float, ...]) -> Candidate:
        """Return the best candidate with other penalties."""
        return self._candidate(_combination(self.best), l2)

    def _stops(self, trial: Trial) -> list[Trial]:
        """Return a trial for each penalty of the path that a ranker walked, or the one trial if there is no path."""
        first, trial = len(self.trials), replace(trial, seconds=None)  # several share the cores
        if not hasattr(trial.fitted, "path_"):
            return [replace(trial, number=first)]
        trials = []
        for stop, row in enumerate(trial.fitted.path_):
            facts = {"objective" if name == "value" else name: of for name, of in row.items()}
            value, options = facts.pop("valid"), trial.options
            if self.penalties is not None:
                options = {**options, "l2": facts.pop("l2")}
            place = stop if hasattr(trial.fitted, "on_path") else None
            # `values` belong to the stop that the ranker kept.
            at_stop = replace(trial, options=options, value=value, facts=facts, stop=place, values=trial.values[:0])
            trials.append(replace(at_stop, number=first + stop))
        return trials

    def _beyond(self, best: Trial) -> float | None:
        """Return the next penalty beyond the edge that a trial is at, in the step of the grid; None within the grid."""
        alike = [trial for trial in self.trials if _combination(trial) == _combination(best)]
        worths = {trial.options["l2"]: self.judge.worth(trial) for trial in alike}
        tried, l2 = sorted(worths), best.options["l2"]
        if len(tried) < 2 or l2 not in (tried[0], tried[-1]):
            return None
        neighbor = tried[1] if l2 == tried[0] else tried[-2]
        if not (l2 * neighbor > 0 and worths[l2] > worths[neighbor]):
            return None
        return float(f"{l2 * l2 / neighbor:.12g}")  # 1, not 1.0000000000000002

    def _default(self) -> Trial | None:
        """Return the trial with the system's default hyper-parameters, if there is one."""
        plain = self.system.make(**self.options).get_params(deep=False)
        own = {name: plain[name] if name in plain else getattr(plain.get("loss"), name, None) for name in self.searched}
        alike = [trial for trial in self.ranked if own and _key(trial.options) == _key(own)]
        return alike[0] if alike else None

    def _per_query(self, trial: Trial) -> FloatArray:
        """Return the metric by query, also for a stop of a path, of which the search has only the mean."""
        [round] = self.judge.division.rounds
        return self.judge.values(trial.ranker, round.held_out)


def _short_of_the_optimum(rows: list[dict[str, Any]]) -> list[str]:
    if not (short := unconverged(rows)):
        return []
    some = "; ".join(_named(row["options"]) for row in short[:_NAMED])
    return [
        f"{len(short)} of {len(rows)} candidates did not converge, and were judged as far as they came: {some}"
        f"{'; …' if len(short) > _NAMED else ''}."
    ]


def _combination(trial: Trial) -> dict[str, Any]:
    """Return the hyper-parameters of a trial without its penalty."""
    return {name: value for name, value in trial.options.items() if name != "l2"}


def _named(options: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in options.items()
    )


def _distinct(combinations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each combination once, by its meaning."""
    kept: dict[Any, dict[str, Any]] = {}
    for values in combinations:
        kept.setdefault(_key(values), values)
    return list(kept.values())


def _key(combination: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the meaning of a combination: OWPC ignores its share p if the weights are 1/j or constant."""
    silent = combination.get("weights") in ("1/j", "constant")
    named = {name: value for name, value in combination.items() if not (silent and name == "p")}
    return tuple(sorted((name, f"{v:.12g}" if isinstance(v, float | int) else str(v)) for name, v in named.items()))
