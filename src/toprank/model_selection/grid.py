"""Grid search of hyper-parameters on validation data.

If the best penalty is at an edge of the grid, the search continues beyond it, unless the system has an `exact_grid`.
With `se_rule`, the system's default is kept unless another candidate is better by several standard errors.
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
from toprank.model_selection.search import Candidate, Search, Trial, TrialEvaluator, refit_on_all, unconverged
from toprank.model_selection.weights import paired_gain
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.rankers.estimator import unfitted
from toprank.systems import System, get

_SEARCH_TOLERANCE = 1e-4  # relative duality gap during the search; the selected candidate is solved exactly
_MAX_STEPS_BEYOND_GRID = 5  # penalties evaluated beyond an edge of the grid
_MAX_NAMED = 5  # candidates named in a message


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
    """Search a system's hyper-parameter grid: fit on `train` and select on `valid` or on a held-out fifth of `train`.

    If the best penalty is at an edge of the grid, the search continues beyond it by up to five steps of the grid, as
    long as the metric improves, and reports this in `summary`. Systems with an `exact_grid` are not extended.

    Args:
        system: system or its name.
        train: training data.
        valid: validation data. None (default) holds out a fifth of the training queries, with the system's option
            `seed` or 0, and refits the selected candidate on all queries.
        metric: metric to select by. None (default) uses the metric of the system's paper.
        convention: evaluation convention of the metric.
        se_rule: number of standard errors of the paired differences by which a candidate must beat the system's default
            to replace it (Breiman's one-standard-error rule with 1.0). 0 (default) selects the best candidate.
        threads: number of threads, divided among candidates. Results do not depend on it, except for rounding in trees
            and networks.
        **options: hyper-parameters to fix; they are removed from the grid.

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
    judge = TrialEvaluator(division, metric or chosen.metric, convention, threads)
    search = GridSearch(chosen, judge, options)
    if len(search.combinations) * len(search.penalties or (None,)) > 1:
        judge.check()
    search.run()
    if se_rule > 0:
        search.apply_se_rule(se_rule)
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
        raise DataError("Hyper-parameters can be fixed only for a system; set them on the ranker itself.")
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
    """Search over all combinations of a grid, each with its whole regularization path."""

    collects_warnings = False

    def __init__(self, system: System, judge: TrialEvaluator, options: dict[str, Any]) -> None:
        # Several combinations run in parallel on one core each. A single combination uses all cores, and so does each
        # combination of a system that cannot be trained in parallel.
        super().__init__(judge, n_parallel=1 if system.kind.needs_exclusive_training else judge.threads)
        self.system, self.options = system, options
        grid = {name: values for name, values in system.grid.items() if name not in options}
        self.searched = tuple(grid)
        self.penalties = grid.pop("l2", None) if system.kind.has_penalty_path else None
        self.combinations = _distinct([dict(zip(grid, values, strict=True)) for values in product(*grid.values())])
        own_threads = 1 if len(self.combinations) > 1 and self.n_parallel != 1 else judge.threads
        asked = {"metric": judge.metric, "convention": judge.convention, "threads": own_threads}
        self.shared = {**options, **asked}
        kinked = system.kind.uses_duality_gap and system.loss is not None and not make_loss(system.loss).traits.smooth
        self.rough = {"tolerance": _SEARCH_TOLERANCE} if kinked else {}
        self.kept: Trial | None = None
        self.sentences: list[str] = []

    @override
    def batches(self) -> Iterator[list[Candidate]]:
        yield [self._candidate(combination, self.penalties) for combination in self.combinations]
        if not self.system.exact_grid:
            yield from self.walk()
        if self.system.refine and self.penalties is not None:  # a second, finer search around the best C = 1/l2
            yield [self._around(tuple(self.best.options["l2"] / factor for factor in self.system.refine))]

    def walk(self) -> Iterator[list[Candidate]]:
        """Yield candidates beyond the edge of the grid while the best penalty is at the edge."""
        edge = None
        try:
            for _ in range(_MAX_STEPS_BEYOND_GRID):
                best = self.best
                beyond = None if self.penalties is None else self._beyond(best)
                if beyond is None:
                    break
                edge = best.options["l2"] if edge is None else edge
                yield [self._around((beyond,))]
                if self.best is best:
                    break
        finally:  # also after Ctrl-C
            if edge is not None:
                best_l2, last = self.best.options["l2"], self.trials[-1].options["l2"]
                outcome = f"the best is {best_l2:g}" if best_l2 != edge else "which was not better"
                words = f"The best l2 was at the edge of the grid, {edge:g}; continued to {last:g}, {outcome}."
                self.sentences.append(words)

    @override
    def record(self, candidate: Candidate, trial: Trial | None) -> None:
        if trial is not None:
            self.trials.extend(self._path_trials(trial))

    def apply_se_rule(self, se_rule: float) -> None:
        """Keep the default unless the best is better by more than `se_rule` standard errors of the differences."""
        best, default = self.best, self._default()
        if default is None or default is best or self.interrupts.happened:
            return
        gain = paired_gain(self._per_query(best), self._per_query(default), self.judge.sign)
        if not math.isnan(gain.error) and gain.in_errors <= se_rule:  # a single query has no standard error
            self.kept = default
            self.sentences.append(
                f"The default, {_named(default.options)}, is kept: {_named(best.options)} is better by {gain.mean:.4f} "
                f"{self.judge.metric} on the validation data, at a standard error of {gain.error:.4f}."
            )

    def choice(self, train: RankingData) -> SelectionResult:
        """Return the result: the best trial, or the default if it was kept.

        If part of `train` was held out, refit on all of it. Otherwise, solve candidates with a nonsmooth loss again,
        because the search used a loose tolerance.
        """
        kept, n_held_out, refitted = self.kept or self.best, self.judge.division.n_held_out, False
        ranker, final = kept.ranker, dict(kept.options)
        if self.penalties is not None or "l2" in self.options:
            final["l2"] = getattr(ranker, "l2_", self.options.get("l2"))
        if n_held_out is not None and not self.interrupts.happened:
            with self.interrupts:
                again = self.interrupts.run_fit(
                    lambda: refit_on_all(self.system.make(**{**self.shared, **final}), kept.rounds, train)
                )
            if again is not None:
                ranker, refitted = again, True
                ranker.keep_value(kept.value, self.judge.metric, self.judge.convention)
        elif self.rough and not self.interrupts.happened:
            exact = None
            with self.interrupts, self.interrupts.interruptible():
                exact = self.attempt(self._candidate(final, None, rough={}))
            self.lost |= exact is None
            if exact is not None and not self.interrupts.happened:
                kept, ranker = self.judge.ranked(self._path_trials(exact))[0], exact.fitted
        if self.lost:
            warn_user(
                f"grid_search: interrupted; the best of {len(self.trials)} evaluated candidates is returned.",
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
            sentences=(*self.sentences, *_convergence_note(rows)),
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
        """Return the best combination with other penalties."""
        return self._candidate(_combination(self.best), l2)

    def _path_trials(self, trial: Trial) -> list[Trial]:
        """Return a trial for each penalty of a ranker's regularization path, or the trial itself without a path."""
        first, trial = len(self.trials), replace(trial, seconds=None)  # wall time is shared by parallel candidates
        if not hasattr(trial.fitted, "path_"):
            return [replace(trial, number=first)]
        trials = []
        for index, row in enumerate(trial.fitted.path_):
            facts = {"objective" if name == "value" else name: of for name, of in row.items()}
            value, options = facts.pop("valid"), trial.options
            if self.penalties is not None:
                options = {**options, "l2": facts.pop("l2")}
            path_index = index if hasattr(trial.fitted, "on_path") else None
            # Per-query values are known only for the penalty that the ranker selected.
            at_penalty = replace(
                trial, options=options, value=value, facts=facts, path_index=path_index, values=trial.values[:0]
            )
            trials.append(replace(at_penalty, number=first + index))
        return trials

    def _beyond(self, best: Trial) -> float | None:
        """Return the next penalty beyond the edge of the grid, or None if the trial is not at an edge."""
        alike = [trial for trial in self.trials if _combination(trial) == _combination(best)]
        signed_values = {trial.options["l2"]: self.judge.signed_value(trial) for trial in alike}
        tried, l2 = sorted(signed_values), best.options["l2"]
        if len(tried) < 2 or l2 not in (tried[0], tried[-1]):
            return None
        neighbor = tried[1] if l2 == tried[0] else tried[-2]
        if not (l2 * neighbor > 0 and signed_values[l2] > signed_values[neighbor]):
            return None
        return float(f"{l2 * l2 / neighbor:.12g}")  # avoid 1.0000000000000002

    def _default(self) -> Trial | None:
        """Return the trial with the system's default hyper-parameters, if there is one."""
        plain = self.system.make(**self.options).get_params(deep=False)
        own = {name: plain[name] if name in plain else getattr(plain.get("loss"), name, None) for name in self.searched}
        alike = [trial for trial in self.ranked if own and _key(trial.options) == _key(own)]
        return alike[0] if alike else None

    def _per_query(self, trial: Trial) -> FloatArray:
        """Return the metric per query; for trials of a path the search stores only the mean."""
        [round] = self.judge.division.rounds
        return self.judge.values(trial.ranker, round.held_out)


def _convergence_note(rows: list[dict[str, Any]]) -> list[str]:
    if not (short := unconverged(rows)):
        return []
    some = "; ".join(_named(row["options"]) for row in short[:_MAX_NAMED])
    return [
        f"{len(short)} of {len(rows)} candidates did not converge and were evaluated as they were: {some}"
        f"{'; …' if len(short) > _MAX_NAMED else ''}."
    ]


def _combination(trial: Trial) -> dict[str, Any]:
    """Return the hyper-parameters of a trial without its penalty."""
    return {name: value for name, value in trial.options.items() if name != "l2"}


def _named(options: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in options.items()
    )


def _distinct(combinations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove combinations that are equivalent to an earlier one."""
    kept: dict[Any, dict[str, Any]] = {}
    for values in combinations:
        kept.setdefault(_key(values), values)
    return list(kept.values())


def _key(combination: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return a canonical form of a combination: OWPC ignores p if its weights are 1/j or constant."""
    silent = combination.get("weights") in ("1/j", "constant")
    named = {name: value for name, value in combination.items() if not (silent and name == "p")}
    return tuple(sorted((name, f"{v:.12g}" if isinstance(v, float | int) else str(v)) for name, v in named.items()))
