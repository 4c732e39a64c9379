"""The options of a comparison, checked before any work begins, and its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toprank.comparison.plots import intervals
from toprank.compute import FloatArray
from toprank.data.checks import check_number, check_whole
from toprank.errors import DataError, UnknownNameError, count_of
from toprank.showing.pictures import Picture
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of, json_numbers, latex_text
from toprank.significance import Interval, bonferroni, holm
from toprank.significance.results import bounds, number, p_value, queries
from toprank.significance.tests import ROUNDING

if TYPE_CHECKING:
    from toprank.comparison.slices import SlicedComparison

TESTS = ("randomization", "t", "wilcoxon")
CORRECTIONS: dict[str, Callable[[npt.ArrayLike], FloatArray]] = {
    "holm": holm,
    "bonferroni": bonferroni,
    "none": np.asarray,
}


@dataclass(frozen=True)
class Plan:
    """The options of a comparison, as `compare` takes them; `lower_is_better` names the metrics that are errors."""

    baseline: str | None
    test: str
    correction: str
    confidence: float
    margin: float
    power: float
    flips: int
    resamples: int
    lower_is_better: Collection[str]
    seed: int

    def __post_init__(self) -> None:
        if self.test not in TESTS:
            raise UnknownNameError("test", self.test, TESTS)
        if self.correction not in CORRECTIONS:
            raise UnknownNameError("correction", self.correction, CORRECTIONS)
        check_number("confidence", self.confidence, above=0.5, below=1)
        check_number("margin", self.margin, above=0)
        check_number("power", self.power, above=0, below=1)
        if self.power <= self.alpha:
            raise DataError(f"power must be above the level of the tests ({self.alpha:g}), not {self.power:g}.")
        check_whole("flips", self.flips, 1)
        check_whole("resamples", self.resamples, 1)
        check_whole("seed", self.seed, 0)

    @property
    def alpha(self) -> float:
        """Level of the tests; rounded, as 1 - 0.95 is 0.050000000000000044."""
        return round(1 - self.confidence, 12)


CORRECTED_BY = {"holm": "Holm", "bonferroni": "Bonferroni", "none": "uncorrected"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two systems under one metric. Signs are those of ``a - b``; against a baseline, `b` is the baseline.

    Attributes:
        metric, a, b: Names of the metric and the two systems.
        mean_a, mean_b: Means of the two over the queries that count for both.
        difference: Mean of ``a - b``.
        interval: Bootstrap confidence interval of the difference, not adjusted for the family.
        effect_size: Cohen's d_z; None for one query.
        p: p-value of the test.
        p_adjusted: p-value after the correction over the family.
        test: Name of the test.
        n: Number of queries that count for both.
        wins, ties, losses: Queries on which `a` is the better one, on which they are level, on which `b` is.
        queries_needed: Queries needed to see such a difference; None where no number can be given.
        equivalence_p: p-value of the equivalence test, after the same correction.
        equivalent: Whether the difference is shown to lie within ±margin.
        significant: Whether the difference is shown not to be zero.
        lower_is_better: Whether the metric is an error.
    """

    metric: str
    a: str
    b: str
    mean_a: float
    mean_b: float
    difference: float
    interval: Interval
    effect_size: float | None
    p: float
    p_adjusted: float
    test: str
    n: int
    wins: int
    ties: int
    losses: int
    queries_needed: int | None = None
    equivalence_p: float
    equivalent: bool = False
    significant: bool = False
    lower_is_better: bool = False

    @property
    def winner(self) -> str | None:
        """The system with the better mean, significantly or not; None where the means are equal up to rounding."""
        if abs(self.difference) <= ROUNDING * max(abs(self.mean_a), abs(self.mean_b)):
            return None
        return self.a if (self.difference > 0) != self.lower_is_better else self.b


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Shown, Plan):
    """Systems compared in pairs, and the plan that was followed; `str` gives tables and verdicts.

    Attributes:
        means: system → metric → mean over the queries that count for the system.
        differences: One per pair and metric, pair by pair.
        queries: Number of queries.
        convention: Name of the evaluation convention; None for values that were evaluated elsewhere.
        slices: The same systems in slices of the queries, where these were asked for.
        missing: Of runs: system → ids of the judged queries that its run does not answer, where there are any.
        omissions: Sentences about queries that are missing or were left out.
    """

    means: Mapping[str, Mapping[str, float]]
    differences: tuple[Difference, ...]
    queries: int
    convention: str | None
    slices: SlicedComparison | None = None
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    omissions: tuple[str, ...] = ()

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, in the order given."""
        return tuple(self.means)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in the order given."""
        return tuple(next(iter(self.means.values())))

    @property
    def family(self) -> int:
        """How many tests the correction takes together: pairs × metrics."""
        return len(self.differences)

    @property
    def tests(self) -> str:
        """The size of the family in words."""
        return count_of(self.family, "test")

    def summary_of(self, difference: Difference) -> str:
        """Return the verdict on a difference as a sentence."""
        d = difference
        tests = f"{CORRECTED_BY[self.correction]}, {self.tests}"
        p = f"{p_value(d.p_adjusted)} ({tests})"
        within = f"equivalent within ±{self.margin:g}"
        if d.significant and d.winner is None:
            return f"{d.a} and {d.b} differ in {d.metric}, {p}, although their means are equal."
        if d.significant:
            loser = d.b if d.winner == d.a else d.a
            interval = d.interval if d.difference > 0 else -d.interval
            size = f"{number(abs(d.difference))} {bounds(*interval)} {d.metric}"
            lower = " (lower is better)" if d.lower_is_better else ""
            tail = f"; so small a difference makes them {within}." if d.equivalent else "."
            return f"{d.winner} is better than {loser} by {size}{lower}, {p}{tail}"
        if d.equivalent:
            shown = p_value(d.equivalence_p)
            return f"{d.a} and {d.b} are {within} in {d.metric}, {shown} ({tests})."
        needed = (
            f"; about {d.queries_needed:,} queries would be needed to see a difference of this size"
            if d.queries_needed is not None and d.queries_needed > d.n
            else ""
        )
        return f"No difference between {d.a} and {d.b} can be shown in {d.metric} on {queries(d.n)}, {p}{needed}."

    @property
    def summary(self) -> str:
        """A sentence for every difference, each on a line of its own."""
        return "\n".join(map(self.summary_of, self.differences))

    def means_table(self) -> Table:
        """Systems × metrics."""
        rows = [(name, *(number(mean) for mean in means.values())) for name, means in self.means.items()]
        best = set()
        for column, metric in enumerate(self.metrics, start=1):
            column_means = [
                -means[metric] if metric in self.lower_is_better else means[metric] for means in self.means.values()
            ]
            best |= {(row, column) for row, mean in enumerate(column_means) if mean == max(column_means)}
        return Table(("system", *self.metrics), rows, names=1, best=frozenset(best))

    def differences_table(self) -> Table:
        """One row per pair and metric; a star marks what is significant at the level after the correction."""
        header = (
            "a", "b", "metric", "a - b", f"{100 * self.confidence:g} % interval", "d_z", "p",
            f"p ({CORRECTED_BY[self.correction]})", "win/tie/loss", "queries", "needed", f"p (±{self.margin:g})",
        )  # fmt: skip
        rows = [
            (
                d.a, d.b, d.metric, number(d.difference), bounds(*d.interval),
                "" if d.effect_size is None else number(d.effect_size), f"{d.p:.3g}",
                f"{d.p_adjusted:.3g}{'*' if d.significant else ''}", f"{d.wins}/{d.ties}/{d.losses}", f"{d.n:,}",
                "" if d.queries_needed is None else f"{d.queries_needed:,}",
                f"{d.equivalence_p:.3g}{'*' if d.equivalent else ''}",
            )
            for d in self.differences
        ]  # fmt: skip
        return Table(header, rows, names=3)

    @property
    def heading(self) -> str:
        """What was compared, under which convention."""
        under = f", convention {self.convention}" if self.convention else ""
        against = f"each against the baseline {self.baseline}" if self.baseline is not None else "all pairs"
        return f"{len(self.means)} systems on {queries(self.queries)}{under}; {against}."

    @property
    def methods(self) -> str:
        """How the numbers were computed: the footnote of a table."""
        flips = f", {self.flips:,} flips beyond 20 non-zero differences" if self.test == "randomization" else ""
        pairs, metrics = self.family // len(self.metrics), len(self.metrics)
        corrected = self.correction != "none"
        correction = f"{CORRECTED_BY[self.correction]} over {self.tests} ({pairs} × {metrics}, pairs × metrics)"
        strict = f"{self.alpha:g}/{self.family}" if corrected else f"{self.alpha:g}"
        equivalence = (
            f"two one-sided tests that count an unseen query, {'same correction' if corrected else 'uncorrected'}"
        )
        return (
            f"p: paired {self.test} test, two-sided{flips}, {correction if corrected else 'uncorrected'}; "
            f"* at level {self.alpha:g}. "
            f"Intervals: studentised bootstrap, {self.resamples:,} resamples, each for itself. "
            f"Needed: queries for power {self.power:g} at level {strict}. "
            f"p (±{self.margin:g}): equivalence, {equivalence}. "
            f"Seed {self.seed}."
        )

    def _parts(self) -> Sequence[Part]:
        heading = "\n".join([self.heading, *self.omissions])
        sliced = [] if self.slices is None else self.slices._parts()
        return [
            heading,
            self.means_table(),
            self.differences_table(),
            tuple(map(self.summary_of, self.differences)),
            self.methods,
            *sliced,
        ]

    def to_latex(self) -> str:
        """The two tables for the booktabs package, the methods as a paragraph after them."""
        tables = [self.means_table().latex(), self.differences_table().latex()]
        sliced = "" if self.slices is None else f"\n{self.slices.to_latex()}"
        return "\n\n".join([*tables, latex_text(" ".join([*self.omissions, self.methods]))]) + "\n" + sliced

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each difference, with its verdict; a frame of pandas or polars, or Arrow's."""
        rows = [
            {name: value for name, value in self._plain(difference).items() if name != "interval"}
            | {"low": difference.interval.low, "high": difference.interval.high}
            for difference in self.differences
        ]
        return frame_of({name: [row[name] for row in rows] for name in rows[0]}, kind)

    def plot(self, metric: str | None = None) -> Picture:
        """The differences under one metric, the first if none is named, with their intervals."""
        name = self.metrics[0] if metric is None else metric
        shown = [row for row in self.differences if row.metric == name]
        if not shown:
            raise UnknownNameError("metric in this comparison", name, self.metrics)
        return intervals(shown, self.margin)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values that JSON can hold; what is infinite or does not exist is None."""
        options = ("queries", "convention", "baseline", "test", "correction", "family", "confidence", "alpha")
        more = ("margin", "power", "flips", "resamples", "seed")
        return {
            "systems": list(self.systems),
            "metrics": list(self.metrics),
            **{name: getattr(self, name) for name in (*options, *more)},
            "missing": {system: list(ids) for system, ids in self.missing.items()},
            "notes": list(self.omissions),
            "means": {system: dict(means) for system, means in self.means.items()},
            "differences": [self._plain(difference) for difference in self.differences],
            **({} if self.slices is None else {"by": self.slices.to_dict()}),
        }

    def _plain(self, difference: Difference) -> dict[str, Any]:
        return plain(difference) | {"verdict": self.summary_of(difference)}


def plain(difference: Difference) -> dict[str, Any]:
    """Return a difference as values that JSON can hold."""
    effect_size = json_numbers(difference.effect_size)
    return asdict(difference) | {"interval": json_numbers(list(difference.interval)), "effect_size": effect_size}
