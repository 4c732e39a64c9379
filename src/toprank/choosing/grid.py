"""Choose hyper-parameters on validation data, and on nothing else.

The best at the edge of a grid may not be the best: where the best penalty lies at one, the search walks on beyond it.
Papers did not; with `System.exact_grid` neither does the search. And the best on few queries is partly luck: `caution`
asks of it to beat the system's default clearly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.compute import FloatArray, each_block
from toprank.data.checks import check_number
from toprank.data.dataset import RankingData
from toprank.errors import warn_user
from toprank.losses import make as make_loss
from toprank.metrics.evaluation import Judge
from toprank.metrics.parsing import parse
from toprank.rankers.base import ConvergenceWarning
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of
from toprank.systems import System, get

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["Selected", "select"]

_ROUGH = 1e-4  # relative duality gap that suffices to tell candidates apart
_STEPS = 5  # beyond an edge of the grid
_NAMED = 5  # candidates in a sentence


@dataclass(frozen=True, repr=False)
class Selected(Shown):
    """The ranker that validation data prefer, and everything that was tried."""

    system: str
    ranker: Ranker
    options: dict[str, Any]
    """The chosen hyper-parameters."""
    metric: str
    value: float
    """The metric of the ranker that is kept, on the validation data."""
    tried: list[dict[str, Any]]
    """One row per candidate: its hyper-parameters and `valid`, the metric; `converged` where a solver ran."""
    notes: tuple[str, ...] = ()
    """What there is to know about the search, in sentences: edges, the default, candidates that did not converge."""

    @property
    def unconverged(self) -> list[dict[str, Any]]:
        """The candidates whose solver did not reach the optimum."""
        return [row for row in self.tried if _is_unconverged(row)]

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each candidate; a frame of pandas or polars, or Arrow's."""
        return frame_of({name: [row.get(name) for row in self.tried] for name in self._names}, kind)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for row in self.tried for name in row))

    def _parts(self) -> Sequence[Part]:
        chosen = ", ".join(f"{name}={value}" for name, value in self.options.items())
        reached = f"{self.system}: {self.metric} {self.value:.4f} on the validation data"
        rows = [tuple(_cell(row.get(name)) for name in self._names) for row in self.tried]
        table = Table(self._names, rows, names=0)
        return [f"{reached}{f', with {chosen}' if chosen else ''}.", *([table] if rows else []), *self.notes]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


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
) -> Selected:
    """Search a system's grid: fit on `train`, choose on `valid`.

    Where the best penalty lies at an edge of the grid, the search walks on beyond it, a step of the grid at a time, as
    long as that is better (five steps at most), and says so in `notes`; not for a system with `exact_grid`.

    Args:
        system: a system or its name.
        train: data to fit on.
        valid: data to choose on.
        metric: what to choose by; None: what the system's source chooses by.
        convention: the rules of the metric.
        caution: keep the system's default, if it is in the grid, unless the best is better by more than so many
            standard errors of the differences over the validation queries, and say so in `notes`; 0: keep the best.
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
    search = _Search(chosen, train, valid, judged, convention, threads, options)
    if len(search.combinations) * len(search.penalties or (None,)) > 1:
        Judge(valid, judged, convention=convention, threads=threads).for_choosing()
    search.grid()
    if not chosen.exact_grid:
        search.walk()
    search.refine()
    if caution > 0:
        search.keep_default(caution)
    return search.finish()


@dataclass(frozen=True, eq=False)
class _Candidate:
    """One row of what was tried, and where to find its ranker."""

    combination: dict[str, Any]
    row: dict[str, Any]
    fitted: Any
    place: int

    @property
    def ranker(self) -> Any:
        """Of a path every stop can be taken up again; other rankers are one candidate each."""
        own = not hasattr(self.fitted, "on_path") or self.fitted.path_solutions_[self.place] is self.fitted.solution_
        return self.fitted if own else self.fitted.on_path(self.place)


class _Search:
    def __init__(
        self,
        system: System,
        train: RankingData,
        valid: RankingData,
        metric: str,
        convention: str,
        threads: int | None,
        options: dict[str, Any],
    ) -> None:
        self.system, self.train, self.valid, self.options, self.threads = system, train, valid, options, threads
        self.metric, self.convention = metric, convention
        self.better = 1.0 if parse(metric).higher_is_better else -1.0
        grid = {name: values for name, values in system.grid.items() if name not in options}
        self.searched = tuple(grid)
        self.penalties = grid.pop("l2", None) if system.kind.walks_penalties else None
        self.combinations = _distinct([dict(zip(grid, values, strict=True)) for values in product(*grid.values())])
        # Several combinations share the cores, one each; a single one may have them all, and so may each of several
        # that are trained one after the other.
        self.at_once = 1 if system.kind.trains_alone else threads
        own_threads = 1 if len(self.combinations) > 1 and self.at_once != 1 else threads
        self.shared = {**options, "metric": metric, "convention": convention, "threads": own_threads}
        kinked = system.kind.solves_to_a_gap and system.loss is not None and not make_loss(system.loss).traits.smooth
        self.rough = {"tolerance": _ROUGH} if kinked else {}
        self.candidates: list[_Candidate] = []
        self.kept: _Candidate | None = None
        self.notes: list[str] = []
        # Ctrl-C ends the search; what was fitted until then is judged. A candidate that it leaves nothing of is lost.
        self.stopped = self.lost = False

    def grid(self) -> None:
        """Fit every combination, each with the whole path of penalties."""
        found: dict[int, Any] = {}

        def work(i: int) -> None:
            found[i] = self._fit(self.combinations[i], self.penalties)

        try:
            each_block(work, range(len(self.combinations)), self.at_once)
        except KeyboardInterrupt:  # while waiting for the other threads
            self.stopped = self.lost = True
        for i in sorted(found):
            self._add(self.combinations[i], found[i])
        if not self.candidates:
            raise KeyboardInterrupt

    def walk(self) -> None:
        """Beyond the edge, where the best penalty lies at one and is better than its neighbour."""
        edge = None
        for _ in range(_STEPS):
            here = self.best
            beyond = None if self.penalties is None or self.stopped else self._beyond(here)
            if beyond is None:
                break
            edge = here.row["l2"] if edge is None else edge
            self._add(here.combination, self._fit(here.combination, (beyond,)))
            if self.best is here:
                break
        if edge is not None:
            ended = f"the best is {self.best.row['l2']:g}" if self.best.row["l2"] != edge else "which was no better"
            last = self.candidates[-1].row["l2"]
            self.notes.append(f"The best l2 of the grid lay at its edge, {edge:g}; tried on to {last:g}, {ended}.")

    def refine(self) -> None:
        """A second search around the best C = 1/l2, where the system has one."""
        if self.system.refine and self.penalties is not None and not self.stopped:
            here = self.best
            around = tuple(here.row["l2"] / factor for factor in self.system.refine)
            self._add(here.combination, self._fit(here.combination, around))

    def keep_default(self, caution: float) -> None:
        """The default, unless the best is better by so many standard errors of the differences by query."""
        best, default = self.best, self._default()
        if default is None or default is best or self.stopped:
            return
        gains = self.better * (self._per_query(best) - self._per_query(default))
        gains = gains[~np.isnan(gains)]
        if len(gains) < 2:
            return
        gain, error = float(gains.mean()), float(gains.std(ddof=1)) / len(gains) ** 0.5
        if gain <= caution * error:
            self.kept = default
            self.notes.append(
                f"The default, {self._named(default)}, is kept: {self._named(best)} is better by {gain:.4f} "
                f"{self.metric} on the validation data, at a standard error of {error:.4f}."
            )

    def finish(self) -> Selected:
        """The candidate that is kept, solved to the end where the search was content with less."""
        kept = self.kept or self.best
        ranker, reached, final = kept.ranker, float(kept.row["valid"]), dict(kept.combination)
        if self.penalties is not None or "l2" in self.options:
            final["l2"] = getattr(ranker, "l2_", self.options.get("l2"))
        if self.rough and not self.stopped:
            try:
                exact = self.system.make(**{**self.shared, **final}).fit(self.train, valid=self.valid)
            except KeyboardInterrupt:
                self.lost = True
            else:
                if not exact.solution_.interrupted:
                    ranker, reached = exact, max(_path(exact, self.metric), key=self._worth)["valid"]
        tried = [{**one.combination, **one.row} for one in self.candidates]
        if self.lost:
            warn_user(
                f"select: interrupted; the best of the {len(tried)} candidates tried until then is kept.",
                ConvergenceWarning,
            )
        ranker.set_params(threads=self.threads)
        short = [one for one in self.candidates if _is_unconverged(one.row)]
        if short:
            self.notes.append(
                f"{len(short)} of {len(tried)} candidates did not converge, and were judged as far as they came: "
                f"{'; '.join(self._named(one) for one in short[:_NAMED])}{'; …' if len(short) > _NAMED else ''}."
            )
        notes = tuple(self.notes)
        return Selected(self.system.name, ranker, final, self.metric, float(reached), tried, notes)

    @property
    def best(self) -> _Candidate:
        """The first of the best."""
        return max(self.candidates, key=lambda one: self._worth(one.row))

    def _worth(self, row: Mapping[str, Any]) -> float:
        return float(self.better * row["valid"])

    def _fit(self, combination: dict[str, Any], l2: tuple[float, ...] | None) -> Any:
        if self.stopped:
            return None
        path = {} if l2 is None else {"l2": list(l2)}
        try:
            unfitted = self.system.make(**{**self.shared, **combination, **path, **self.rough})
            ranker = unfitted.fit(self.train, valid=self.valid)
        except KeyboardInterrupt:
            self.stopped = self.lost = True
            return None
        if any(row.get("interrupted") for row in _path(ranker, self.metric)):
            self.stopped = True
        return ranker

    def _add(self, combination: dict[str, Any], fitted: Any) -> None:
        if fitted is not None:
            rows = _path(fitted, self.metric)
            self.candidates += [_Candidate(combination, row, fitted, place) for place, row in enumerate(rows)]

    def _beyond(self, here: _Candidate) -> float | None:
        """The next penalty beyond the edge that this candidate is at, in the step of the grid; None within it."""
        worths = {one.row["l2"]: self._worth(one.row) for one in self.candidates if one.combination is here.combination}
        tried, l2 = sorted(worths), here.row["l2"]
        if len(tried) < 2 or l2 not in (tried[0], tried[-1]):
            return None
        neighbour = tried[1] if l2 == tried[0] else tried[-2]
        if not (l2 * neighbour > 0 and worths[l2] > worths[neighbour]):
            return None
        return float(f"{l2 * l2 / neighbour:.12g}")  # 1, not 1.0000000000000002

    def _default(self) -> _Candidate | None:
        """The candidate with the hyper-parameters that the system has unasked, if it was tried."""
        plain = self.system.make(**self.options).get_params(deep=False)
        own = {name: plain[name] if name in plain else getattr(plain.get("loss"), name, None) for name in self.searched}
        alike = [one for one in self.candidates if _key(self._searched(one)) == _key(own)]
        return max(alike, key=lambda one: self._worth(one.row)) if own and alike else None

    def _searched(self, one: _Candidate) -> dict[str, Any]:
        return {**one.combination, **({} if self.penalties is None else {"l2": one.row["l2"]})}

    def _named(self, one: _Candidate) -> str:
        return ", ".join(
            f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
            for name, value in self._searched(one).items()
        )

    def _per_query(self, one: _Candidate) -> FloatArray:
        judge = Judge(self.valid, self.metric, convention=self.convention, threads=self.threads)
        return judge.per_query(one.ranker.predict(judge.data))


def _path(ranker: Ranker, metric: str) -> list[dict[str, Any]]:
    """What the ranker tried by itself, a row each; one row where it looks after itself (rounds, restarts)."""
    if hasattr(ranker, "path_"):
        path: list[dict[str, Any]] = ranker.path_
        return path
    return [{"valid": float(ranker.training_["valid"][str(metric)])}]


def _is_unconverged(row: Mapping[str, Any]) -> bool:
    return row.get("converged", 1.0) == 0.0 and not row.get("interrupted")


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
