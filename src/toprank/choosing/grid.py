"""Choose hyper-parameters on validation data, and on nothing else.

The best at the edge of a grid may not be the best: where the best penalty lies at one, the search walks on beyond it.
Papers did not; with `System.exact_grid` neither does the search. And the best on few queries is partly luck: `caution`
asks of it to beat the system's default clearly.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.choosing.choice import Choice
from toprank.choosing.trial import Division, Interrupts, Trial, TrialJudge
from toprank.compute import FloatArray, each_block
from toprank.data.checks import check_number
from toprank.errors import warn_user
from toprank.losses import make as make_loss
from toprank.rankers.base import ConvergenceWarning
from toprank.systems import System, get

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData

__all__ = ["select"]

_ROUGH = 1e-4  # relative duality gap that suffices to tell candidates apart
_STEPS = 5  # beyond an edge of the grid
_NAMED = 5  # candidates in a sentence


def select(
    system: System | str,
    train: RankingData,
    valid: RankingData,
    *,
    metric: str | None = None,
    convention: str = "standard",
    caution: float = 0.0,
    threads: int | None = None,
    **options: Any,
) -> Choice:
    """Search a system's grid: fit on `train`, choose on `valid`.

    Where the best penalty lies at an edge of the grid, the search walks on beyond it, a step of the grid at a time, as
    long as that is better (five steps at most), and says so in `summary`; not for a system with `exact_grid`.

    Args:
        system: a system or its name.
        train: data to fit on.
        valid: data to choose on.
        metric: what to choose by; None: what the system's source chooses by.
        convention: the rules of the metric.
        caution: keep the system's default, if it is in the grid, unless the best is better by more than so many
            standard errors of the differences over the validation queries, and say so in `summary`; 0: keep the best.
        threads: number of threads, over candidates; results do not depend on it (those of trees and networks to
            rounding, where a candidate has several threads to itself).
        options: hyper-parameters to fix; they are taken out of the grid.

    >>> import toprank as tr
    >>> train, valid = tr.split(tr.synthetic(n_queries=60, seed=0), (0.5, 0.5))
    >>> select("LeastSquares", train, valid).options["l2"] in get("LeastSquares").grid["l2"]
    True
    """
    check_number("caution", caution, least=0)
    chosen = get(system) if isinstance(system, str) else system
    judged = metric or options.pop("metric", None) or chosen.metric
    options = chosen.plain_options(options)
    options.pop("threads", None)
    judge = TrialJudge(Division.of(train, valid), judged, convention, threads)
    with Interrupts() as interrupts:
        search = _GridSearch(chosen, judge, options, interrupts)
        if len(search.combinations) * len(search.penalties or (None,)) > 1:
            judge.check()
        search.grid()
        if not chosen.exact_grid:
            search.walk()
        search.refine()
        if caution > 0:
            search.keep_default(caution)
        return search.finish()


class _GridSearch:
    """The trials of a grid: every combination, each with the whole path of penalties, and where these lead.

    Ctrl-C ends it; what was fitted until then is judged. A candidate that it leaves nothing of is `lost`.
    """

    def __init__(self, system: System, judge: TrialJudge, options: dict[str, Any], interrupts: Interrupts) -> None:
        self.system, self.judge, self.options, self.interrupts = system, judge, options, interrupts
        grid = {name: values for name, values in system.grid.items() if name not in options}
        self.searched = tuple(grid)
        self.penalties = grid.pop("l2", None) if system.kind.walks_penalties else None
        self.combinations = _distinct([dict(zip(grid, values, strict=True)) for values in product(*grid.values())])
        # Several combinations share the cores, one each; a single one may have them all, and so may each of several
        # that are trained one after the other.
        self.at_once = 1 if system.kind.trains_alone else judge.threads
        own_threads = 1 if len(self.combinations) > 1 and self.at_once != 1 else judge.threads
        asked = {"metric": judge.metric, "convention": judge.convention, "threads": own_threads}
        self.shared = {**options, **asked}
        kinked = system.kind.solves_to_a_gap and system.loss is not None and not make_loss(system.loss).traits.smooth
        self.rough = {"tolerance": _ROUGH} if kinked else {}
        self.trials: list[Trial] = []
        self.kept: Trial | None = None
        self.sentences: list[str] = []
        self.lost = False

    def grid(self) -> None:
        """Fit every combination, each with the whole path of penalties."""
        fits: dict[int, Any] = {}

        def work(i: int) -> None:
            fits[i] = self._fit(self.combinations[i], self.penalties)

        with self.interrupts.cutting():
            try:
                each_block(work, range(len(self.combinations)), self.at_once)
            except KeyboardInterrupt:  # while waiting for the other threads
                self.lost = True
                raise
        for i in sorted(fits):
            self._add(self.combinations[i], fits[i])
        if not self.trials:
            raise KeyboardInterrupt

    def walk(self) -> None:
        """Beyond the edge, where the best penalty lies at one and is better than its neighbour."""
        edge = None
        for _ in range(_STEPS):
            here = self.best
            beyond = None if self.penalties is None or self.interrupts.happened else self._beyond(here)
            if beyond is None:
                break
            edge = here.options["l2"] if edge is None else edge
            self._add(_combination(here), self._fit(_combination(here), (beyond,)))
            if self.best is here:
                break
        if edge is not None:
            best, last = self.best.options["l2"], self.trials[-1].options["l2"]
            ended = f"the best is {best:g}" if best != edge else "which was no better"
            self.sentences.append(f"The best l2 of the grid lay at its edge, {edge:g}; tried on to {last:g}, {ended}.")

    def refine(self) -> None:
        """A second search around the best C = 1/l2, where the system has one."""
        if self.system.refine and self.penalties is not None and not self.interrupts.happened:
            here = self.best
            around = tuple(here.options["l2"] / factor for factor in self.system.refine)
            self._add(_combination(here), self._fit(_combination(here), around))

    def keep_default(self, caution: float) -> None:
        """The default, unless the best is better by so many standard errors of the differences by query."""
        best, default = self.best, self._default()
        if default is None or default is best or self.interrupts.happened:
            return
        gains = self.judge.sign * (self._per_query(best) - self._per_query(default))
        gains = gains[~np.isnan(gains)]
        if len(gains) < 2:  # one query has no spread to compare with
            return
        gain, error = float(gains.mean()), float(gains.std(ddof=1)) / len(gains) ** 0.5
        if gain <= caution * error:
            self.kept = default
            self.sentences.append(
                f"The default, {_named(default)}, is kept: {_named(best)} is better by {gain:.4f} "
                f"{self.judge.metric} on the validation data, at a standard error of {error:.4f}."
            )

    def finish(self) -> Choice:
        """The candidate that is kept, solved to the end where the search was content with less."""
        kept = self.kept or self.best
        ranker, value, final = kept.ranker, self.judge.sign * self.judge.worth(kept), dict(kept.options)
        if self.penalties is not None or "l2" in self.options:
            final["l2"] = getattr(ranker, "l2_", self.options.get("l2"))
        if self.rough and not self.interrupts.happened:
            exact = self._fit(final, None, rough=False)
            if exact is not None and not exact.solution_.interrupted:
                ranker, value = exact, self.judge.sign * max(map(self.judge.worth, self._stops(final, exact)))
        if self.lost:
            warn_user(
                f"select: interrupted; the best of the {len(self.trials)} candidates tried until then is kept.",
                ConvergenceWarning,
            )
        ranker.set_params(threads=self.judge.threads)
        return Choice(
            ranker=ranker,
            name=self.system.name,
            options=final,
            metric=self.judge.metric,
            convention=self.judge.convention,
            value=value,
            judged_on=self.judge.division.words,
            trials=[trial.row() for trial in self.trials],
            sentences=(*self.sentences, *self._short_of_the_optimum()),
            interrupted=self.interrupts.happened,
        )

    def _short_of_the_optimum(self) -> list[str]:
        ends = ((trial, trial.facts.get("converged", 1.0), trial.facts.get("interrupted")) for trial in self.trials)
        short = [trial for trial, converged, interrupted in ends if converged == 0.0 and not interrupted]
        if not short:
            return []
        return [
            f"{len(short)} of {len(self.trials)} candidates did not converge, and were judged as far as they came: "
            f"{'; '.join(map(_named, short[:_NAMED]))}{'; …' if len(short) > _NAMED else ''}."
        ]

    @property
    def best(self) -> Trial:
        """The first of the best."""
        return max(self.trials, key=self.judge.worth)

    def _fit(self, options: dict[str, Any], l2: tuple[float, ...] | None, rough: bool = True) -> Any:
        """The ranker with these options, fitted; None where Ctrl-C leaves nothing of it."""
        if rough and self.interrupts.happened:
            return None
        [part] = self.judge.division.parts
        more = {**({} if l2 is None else {"l2": list(l2)}), **(self.rough if rough else {})}
        ranker = None
        with self.interrupts.cutting():
            ranker = self.system.make(**{**self.shared, **options, **more}).fit(part.train, valid=part.valid)
        if ranker is None:
            self.lost = True
        elif ranker.was_interrupted:
            self.interrupts.happened = True
        return ranker

    def _add(self, combination: dict[str, Any], fitted: Any) -> None:
        if fitted is not None:
            self.trials += self._stops(combination, fitted, len(self.trials))

    def _stops(self, combination: dict[str, Any], fitted: Any, first: int = 0) -> list[Trial]:
        """The trials that a ranker makes by itself: one for each penalty of its path, else one in all."""
        made = partial(Trial, self.system.name, fitted=fitted)
        if not hasattr(fitted, "path_"):
            value = float(fitted.training_["valid"][str(self.judge.metric)])
            return [made(combination, value, first)]
        trials = []
        for stop, row in enumerate(fitted.path_):
            facts = {"objective" if name == "value" else name: of for name, of in row.items()}
            value = facts.pop("valid")
            options = combination if self.penalties is None else {**combination, "l2": facts.pop("l2")}
            place = stop if hasattr(fitted, "on_path") else None
            trials.append(made(options, value, first + stop, facts=facts, stop=place))
        return trials

    def _beyond(self, here: Trial) -> float | None:
        """The next penalty beyond the edge that this candidate is at, in the step of the grid; None within it."""
        alike = [trial for trial in self.trials if _combination(trial) == _combination(here)]
        worths = {trial.options["l2"]: self.judge.worth(trial) for trial in alike}
        tried, l2 = sorted(worths), here.options["l2"]
        if len(tried) < 2 or l2 not in (tried[0], tried[-1]):
            return None
        neighbour = tried[1] if l2 == tried[0] else tried[-2]
        if not (l2 * neighbour > 0 and worths[l2] > worths[neighbour]):
            return None
        return float(f"{l2 * l2 / neighbour:.12g}")  # 1, not 1.0000000000000002

    def _default(self) -> Trial | None:
        """The candidate with the hyper-parameters that the system has unasked, if it was tried."""
        plain = self.system.make(**self.options).get_params(deep=False)
        own = {name: plain[name] if name in plain else getattr(plain.get("loss"), name, None) for name in self.searched}
        return self.judge.best(trial for trial in self.trials if _key(trial.options) == _key(own)) if own else None

    def _per_query(self, trial: Trial) -> FloatArray:
        [part] = self.judge.division.parts
        return self.judge.values(trial.ranker, part)


def _combination(trial: Trial) -> dict[str, Any]:
    """The hyper-parameters of a candidate besides its place on the path of penalties."""
    return {name: value for name, value in trial.options.items() if name != "l2"}


def _named(trial: Trial) -> str:
    return ", ".join(
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in trial.options.items()
    )


def _distinct(combinations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each combination once, by what it means."""
    kept: dict[Any, dict[str, Any]] = {}
    for one in combinations:
        kept.setdefault(_key(one), one)
    return list(kept.values())


def _key(combination: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What a combination means: OWPC's share p says nothing where the weights are 1/j or constant."""
    silent = combination.get("weights") in ("1/j", "constant")
    named = {name: value for name, value in combination.items() if not (silent and name == "p")}
    return tuple(sorted((name, f"{v:.12g}" if isinstance(v, float | int) else str(v)) for name, v in named.items()))
