"""Results of a reproduction: figures compared with published ones, counts of cases, and tested claims."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from toprank.compute import FloatArray
from toprank.display.record import JsonObject, Record, columns_of, to_json
from toprank.display.tables import Part
from toprank.errors import UnknownNameError
from toprank.experiment import Results
from toprank.reproduce.studies import Claim, Duel, PublishedTable, Study
from toprank.reproduce.tables import nearest_convention, parts_of
from toprank.significance import randomization_test, t_interval


def published(name: str) -> dict[tuple[str, str], float]:
    """Return (row, column) → figure of a published table."""
    return {place: float(figure) for place, figure in _printed(name).items()}


def units(name: str) -> dict[tuple[str, str], float]:
    """Return (row, column) → unit of the last decimal of the figure; its rounding error is at most half a unit.

    >>> units("cs-rglist-avgndcg")["ListMLE", "MQ2008"]
    0.001
    """
    return {place: 10.0 ** -len(figure.partition(".")[2]) for place, figure in _printed(name).items()}


@cache
def _printed(name: str) -> dict[tuple[str, str], str]:
    file = files("toprank.reproduce").joinpath("published", f"{name}.csv")
    header, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())
    columns = header[1:]
    return {(row[0], to): value.strip() for row in rows for to, value in zip(columns, row[1:], strict=True) if value}


ALPHA = 0.05
_COUNT_ROWS = ("better", "same", "worse", "change")  # rows of a published count


@dataclass(frozen=True)
class Figure(JsonObject):
    """One figure of a table: the mean of fold means, with its confidence interval over queries.

    Attributes:
        unit: Unit of the last printed decimal in the paper.
    """

    table: str
    dataset: str
    system: str
    metric: str
    convention: str
    paper: float | None
    ours: float | None
    low: float | None
    high: float | None
    unit: float | None

    json_properties = ("difference",)

    @property
    def difference(self) -> float | None:
        """Our figure minus the figure of the paper."""
        return None if self.paper is None or self.ours is None else self.ours - self.paper


@dataclass(frozen=True)
class Case(JsonObject):
    """One case of a duel: two systems, one metric, one dataset. Means are means of fold means.

    Attributes:
        p: p-value of the randomization test on the pooled queries.
        difference: Mean paired difference over the pooled queries.
    """

    duel: str
    dataset: str
    convention: str
    new: str
    old: str
    metric: str
    new_mean: float
    old_mean: float
    p: float
    difference: float

    json_properties = ("verdict",)

    @property
    def verdict(self) -> Literal["better", "same", "worse"]:
        """Outcome for the new system at the 5 % level without correction, as counted in papers."""
        return "same" if self.p >= ALPHA else "better" if self.difference > 0 else "worse"


@dataclass(frozen=True)
class DuelCount:
    """Counts of a duel on one dataset: cases in which the new system is better, the same or worse.

    Attributes:
        change: Mean relative change over the cases, in percent.
    """

    duel: str
    dataset: str
    convention: str
    better: int
    same: int
    worse: int
    change: float
    paper: tuple[int, int, int, float] | None

    @property
    def tally(self) -> tuple[int, int, int]:
        """Number of better, same and worse cases."""
        return self.better, self.same, self.worse


@dataclass(frozen=True)
class TestedClaim(JsonObject):
    """A claim tested on one dataset: the paired difference to the strongest competitor, on the pooled queries."""

    claim: str
    dataset: str
    convention: str
    against: str
    metric: str
    difference: float
    low: float
    high: float
    p: float

    json_properties = ("verdict",)

    @property
    def verdict(self) -> str:
        """Outcome of the test, in words."""
        if self.p < ALPHA:
            return "holds" if self.difference > 0 else "the opposite holds"
        return "so in our figures, within noise" if self.difference > 0 else "not so in our figures, within noise"


class Reproduction(Record):
    """Results of a study on the available datasets; `str` shows the paper's convention and `standard`."""

    def __init__(self, study: Study, sets: tuple[str, ...], parts: tuple[Results, ...]) -> None:
        self.study, self.sets, self.parts = study, sets, parts
        self._cases: dict[str, list[Case]] = {}

    @property
    def conventions(self) -> tuple[str, ...]:
        """Names of the conventions under which every number is computed."""
        return self.parts[0].conventions

    def values(self, system: str, metric: str, dataset: str, convention: str) -> dict[str, FloatArray] | None:
        """Return fold → value of each test query; None if the system failed on the dataset."""
        for part in self.parts:
            if system in part.systems:
                return part.values(metric, convention, dataset).get(system)
        raise UnknownNameError("system in this study", system, [name for part in self.parts for name in part.systems])

    # ---- figures ----

    def figures(self, convention: str) -> list[Figure]:
        """Return all figures of the tables for the available datasets, and ours without published counterpart."""
        return [figure for table in self.study.tables for figure in self._figures(table, convention)]

    def _figures(self, table: PublishedTable, convention: str) -> Iterator[Figure]:
        paper, unit = published(table.figures), units(table.figures)
        systems = list(dict.fromkeys(row for row, _ in paper))
        if table.metric is not None:
            cases = [(dataset, table.metric) for dataset in self.sets]
            more = [name for part in self.parts for name in part.systems if name not in systems]
            systems += more if table is self.study.tables[0] else []
        else:
            cases = [(str(table.dataset), metric) for metric in dict.fromkeys(column for _, column in paper)]
            cases = [case for case in cases if case[0] in self.sets]
        for dataset, metric in cases:
            for system in systems:
                place = (system, dataset if table.metric is not None else metric)
                estimate = self._estimate(system, metric, dataset, convention)
                yield Figure(
                    table.title, dataset, system, metric, convention, paper.get(place), *estimate, unit.get(place)
                )

    def _estimate(
        self, system: str, metric: str, dataset: str, convention: str
    ) -> tuple[float | None, float | None, float | None]:
        """Return the mean of fold means and its 95 % interval; folds are strata, queries the sample."""
        folds = self.values(system, metric, dataset, convention)
        if folds is None:
            return None, None, None
        from scipy.stats import t

        samples = [values[~np.isnan(values)] for values in folds.values()]
        mean = float(np.mean([np.mean(values) for values in samples]))
        variance = sum(float(np.var(values, ddof=1)) / len(values) for values in samples if len(values) > 1)
        freedom = max(sum(len(values) - 1 for values in samples), 1)
        reach = float(t.ppf(0.975, freedom)) * variance**0.5 / len(samples)
        return mean, mean - reach, mean + reach

    # ---- conventions ----

    @cached_property
    def fit(self) -> dict[str, float]:
        """Convention → mean absolute difference from the published figures, ascending; empty if none were published."""
        distances = {}
        for convention in self.conventions:
            gaps = [abs(figure.difference) for figure in self.figures(convention) if figure.difference is not None]
            if gaps:
                distances[convention] = float(np.mean(gaps))
        return dict(sorted(distances.items(), key=lambda item: item[1]))

    @cached_property
    def nearest(self) -> tuple[str, ...]:
        """Conventions with the smallest distance; several if the published figures are rounded too coarsely.

        Rounding changes a figure by up to half a unit of its last decimal, a mean distance by up to half the mean unit,
        and the difference of two mean distances by up to the mean unit.
        """
        if not self.fit:
            return ()
        figures = self.figures(self.conventions[0])
        rounding = float(
            np.mean([figure.unit for figure in figures if figure.unit is not None and figure.difference is not None])
        )
        least = min(self.fit.values())
        return tuple(name for name, distance in self.fit.items() if distance - least <= rounding)

    # ---- cases and claims ----

    def cases(self, convention: str) -> list[Case]:
        """Return all cases of the duels, by dataset."""
        if convention not in self._cases:  # cached: each case takes a randomization test and is used several times
            self._cases[convention] = [
                case
                for duel in self.study.duels
                for dataset in self.sets
                for new, old in duel.pairs
                for metric in duel.metrics
                if (case := self._case(duel, dataset, new, old, metric, convention)) is not None
            ]
        return self._cases[convention]

    def _case(self, duel: Duel, dataset: str, new: str, old: str, metric: str, convention: str) -> Case | None:
        a, b = (self.values(system, metric, dataset, convention) for system in (new, old))
        if a is None or b is None:
            return None
        first, second = _paired(a, b)
        new_mean, old_mean = (float(np.mean([np.nanmean(values) for values in of.values()])) for of in (a, b))
        p, difference = randomization_test(first, second, seed=0).p, float(np.mean(first - second))
        return Case(
            duel=duel.title,
            dataset=dataset,
            convention=convention,
            new=new,
            old=old,
            metric=metric,
            new_mean=new_mean,
            old_mean=old_mean,
            p=p,
            difference=difference,
        )

    def counts(self, convention: str) -> list[DuelCount]:
        """Return the counts of all duels, by dataset."""
        cases = self.cases(convention)
        return [
            _counted(duel, own)
            for duel in self.study.duels
            for dataset in self.sets
            if (own := [case for case in cases if (case.duel, case.dataset) == (duel.title, dataset)])
        ]

    @cached_property
    def count_fit(self) -> dict[str, int]:
        """Convention → number of cases that differ from the counts of the paper, ascending."""
        misplaced = {}
        for convention in self.conventions:
            pairs = [(count.paper[:3], count.tally) for count in self.counts(convention) if count.paper is not None]
            if pairs:
                gaps = [abs(theirs - ours) for pair in pairs for theirs, ours in zip(*pair, strict=True)]
                misplaced[convention] = sum(gaps) // 2
        return dict(sorted(misplaced.items(), key=lambda item: item[1]))

    def tested_claims(self, convention: str) -> list[TestedClaim]:
        """Return the tested claims, by dataset."""
        judged = (
            self._tested_claim(claim, dataset, convention)
            for claim in self.study.claims
            for dataset in self.sets
            if not claim.sets or dataset in claim.sets
        )
        return [claim for claim in judged if claim is not None]

    def _tested_claim(self, claim: Claim, dataset: str, convention: str) -> TestedClaim | None:
        own = self.values(claim.better, claim.metric, dataset, convention)
        others = {name: self.values(name, claim.metric, dataset, convention) for name in claim.worse}
        present = {name: values for name, values in others.items() if values is not None}
        if own is None or not present:
            return None
        strongest = max(present, key=lambda name: np.nanmean(np.concatenate(list(present[name].values()))))
        first, second = _paired(own, present[strongest])
        interval, p = t_interval(first, second), randomization_test(first, second, seed=0).p
        numbers = float(np.mean(first - second)), interval.low, interval.high, p
        return TestedClaim(claim.text, dataset, convention, strongest, claim.metric, *numbers)

    def untested_claims(self) -> list[str]:
        """Return the claims that cannot be tested on the available datasets."""
        return [claim.text for claim in self.study.claims if claim.sets and not set(claim.sets) & set(self.sets)]

    # ---- output ----

    def _parts(self) -> Sequence[Part]:
        return parts_of(self)

    @property
    def summary(self) -> str:
        """Best-fitting convention, and the outcome of each claim under the convention of the paper."""
        claims = (
            f"{claim.claim} on {claim.dataset}: {claim.verdict}." for claim in self.tested_claims(self.study.convention)
        )
        return "\n".join([*([nearest_convention(self)] if self.fit else []), *claims])

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, cases, counts and claims under every convention, for JSON."""

        def under_all(rows: Callable[[str], list[Any]]) -> list[Any]:
            return [row for convention in self.conventions for row in rows(convention)]

        plain = {
            "study": self.study.name, "paper": self.study.paper, "sets": self.sets,
            "paper_convention": self.study.convention, "fit": self.fit, "nearest": self.nearest,
            "figures": under_all(self.figures), "count_fit": self.count_fit, "cases": under_all(self.cases),
            "counts": under_all(self.counts), "claims": under_all(self.tested_claims),
            "untested": self.untested_claims(),
            "failures": [failure for part in self.parts for failure in part.failures], "remarks": self.study.remarks,
        }  # fmt: skip
        return {name: to_json(value) for name, value in plain.items()}

    def _columns(self) -> dict[str, list[Any]]:
        rows = self.to_dict()["figures"]
        return columns_of(rows, list(rows[0] if rows else ()))


def _counted(duel: Duel, cases: list[Case]) -> DuelCount:
    """Count the cases of a duel on one dataset."""
    first = cases[0]
    figures = {} if duel.figures is None else published(duel.figures)
    printed = [figures[row, first.dataset] for row in _COUNT_ROWS if (row, first.dataset) in figures]
    paper = (int(printed[0]), int(printed[1]), int(printed[2]), printed[3]) if len(printed) == 4 else None
    verdicts = [case.verdict for case in cases]
    better, same, worse = (verdicts.count(verdict) for verdict in ("better", "same", "worse"))
    change = float(np.mean([100 * (case.new_mean / case.old_mean - 1) if case.old_mean else 0.0 for case in cases]))
    return DuelCount(
        duel=first.duel,
        dataset=first.dataset,
        convention=first.convention,
        better=better,
        same=same,
        worse=worse,
        change=change,
        paper=paper,
    )


def _paired(a: dict[str, FloatArray], b: dict[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the pooled values of the queries that are evaluated for both systems."""
    first, second = np.concatenate(list(a.values())), np.concatenate([b[fold] for fold in a])
    both = ~(np.isnan(first) | np.isnan(second))
    return first[both], second[both]
