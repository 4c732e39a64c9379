"""Result of a comparison: means, differences with tests, and conclusions in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from toprank.display.pictures import Picture
from toprank.display.record import Record, to_json
from toprank.display.tables import Part, Table, latex_text, with_packages
from toprank.errors import UnknownNameError, count_of
from toprank.evaluation.differences import Difference as Difference
from toprank.evaluation.plots import intervals
from toprank.evaluation.statistics import ComparisonKeywords, ComparisonOptions
from toprank.evaluation.values import Values
from toprank.evaluation.values import intervals as bootstrap_means
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.significance import Interval
from toprank.significance.results import bounds, number, p_value, queries

if TYPE_CHECKING:
    from toprank.evaluation.sliced import SlicedComparison

OPTIONS = frozenset({*ComparisonKeywords.__annotations__, "alpha"})
_JSON = (
    *("systems", "metrics", "queries", "convention", "baseline", "test", "correction", "n_tests", "confidence"),
    *("alpha", "margin", "power", "n_permutations", "n_resamples", "seed", "unanswered"),
)
CORRECTED_BY = {"holm": "Holm", "bonferroni": "Bonferroni", "none": "uncorrected"}


@dataclass(frozen=True, eq=False)
class ComparedInputs:
    """Evaluated scores or runs of a comparison, for reports that show documents.

    Attributes:
        systems: Name → scores in the order of the data, or run.
        data: Labeled documents, or the judgments of runs.
        measures: Metrics by name.
        convention: Evaluation convention.
        options: Further options of `evaluate` or `evaluate_run`.
    """

    systems: Mapping[str, Any]
    data: Any
    measures: Mapping[str, Measure]
    convention: Convention
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Record):
    """Pairwise comparison of systems; `str` returns tables and conclusions.

    The options of the comparison are also attributes, for example ``comparison.confidence``.

    Attributes:
        values: Compared values, by system, metric and query.
        differences: Differences, one per pair and metric, pair by pair.
        statistics: Options of the comparison.
        slices: Comparison in slices of the queries, if requested.
        unanswered: For runs: system → ids of the judged queries that its run does not answer, if any.
        omissions: Unanswered or omitted queries, as sentences.
        inputs: The evaluated scores or runs with their rules; None if only per-query values were compared.
        n_seeds: Number of seeds of the systems that use randomness; their values are means over these seeds.
    """

    values: Values
    differences: tuple[Difference, ...]
    statistics: ComparisonOptions
    slices: SlicedComparison | None = None
    unanswered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    omissions: tuple[str, ...] = ()
    inputs: ComparedInputs | None = field(default=None, compare=False)
    n_seeds: int = 1

    def __getattr__(self, name: str) -> Any:
        if name in OPTIONS:
            return getattr(self.statistics, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def lower_is_better(self) -> frozenset[str]:
        """Metrics for which lower values are better."""
        return self.values.lower_is_better

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, in input order."""
        return self.values.systems

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in input order."""
        return self.values.metrics

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.values.n_units

    @property
    def convention(self) -> str | None:
        """Name of the evaluation convention; None for values computed elsewhere."""
        return self.values.convention

    @cached_property
    def means(self) -> Mapping[str, Mapping[str, float]]:
        """System → metric → mean over the evaluated queries."""
        return self.values.means

    @cached_property
    def mean_intervals(self) -> Mapping[str, Mapping[str, Interval]]:
        """System → metric → bootstrap interval of the mean, without correction."""
        options = {"confidence": self.confidence, "n_resamples": self.n_resamples, "seed": self.seed}
        by_system = bootstrap_means(self.values, **options)
        return cast(dict[str, dict[str, Interval]], by_system)  # each system has a value on at least one query

    @property
    def n_tests(self) -> int:
        """Number of tests that are corrected together: pairs × metrics."""
        return len(self.differences)

    @property
    def tests(self) -> str:
        """Number of tests, in words."""
        return count_of(self.n_tests, "test")

    def summary_of(self, difference: Difference) -> str:
        """Return the conclusion about a difference, as a sentence."""
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
        """One sentence per difference, on separate lines."""
        return "\n".join(map(self.summary_of, self.differences))

    def means_table(self) -> Table:
        """Return the table of means, systems × metrics."""
        rows = [(name, *(number(mean) for mean in means.values())) for name, means in self.means.items()]
        best = set()
        for column, metric in enumerate(self.metrics, start=1):
            column_means = [
                -means[metric] if metric in self.lower_is_better else means[metric] for means in self.means.values()
            ]
            best |= {(row, column) for row, mean in enumerate(column_means) if mean == max(column_means)}
        return Table(("system", *self.metrics), rows, names=1, best=frozenset(best))

    def differences_table(self) -> Table:
        """Return the table of differences, one row per pair and metric; a star marks corrected significance."""
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
        """Number of systems and queries, convention and baseline, as a sentence."""
        under = f", convention {self.convention}" if self.convention else ""
        against = f"each against the baseline {self.baseline}" if self.baseline is not None else "all pairs"
        return f"{len(self.means)} systems on {queries(self.queries)}{under}; {against}."

    @property
    def interval_method(self) -> str:
        """The method behind the intervals, as a sentence."""
        bootstrap = f"studentized bootstrap, {self.n_resamples:,} resamples"
        if self.n_seeds == 1:
            return f"Intervals: {bootstrap}, each for itself."
        return (
            f"Intervals: t intervals over queries and seeds (crossed random effects, {self.n_seeds} seeds) if a system "
            f"uses randomness, otherwise {bootstrap}; each for itself."
        )

    @property
    def methods(self) -> str:
        """Description of the statistics, for the footnote of a table."""
        n_permutations = (
            f", {self.n_permutations:,} flips beyond 20 non-zero differences" if self.test == "randomization" else ""
        )
        pairs, metrics = self.n_tests // len(self.metrics), len(self.metrics)
        corrected = self.correction != "none"
        correction = f"{CORRECTED_BY[self.correction]} over {self.tests} ({pairs} × {metrics}, pairs × metrics)"
        strict = f"{self.alpha:g}/{self.n_tests}" if corrected else f"{self.alpha:g}"
        equivalence = (
            f"two one-sided tests that count an unseen query, {'same correction' if corrected else 'uncorrected'}"
        )
        return (
            f"p: paired {self.test} test, two-sided{n_permutations}, {correction if corrected else 'uncorrected'}; "
            f"* at level {self.alpha:g}. "
            f"{self.interval_method} "
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
        """Return both tables and the methods in LaTeX; the first line names the required packages."""
        return with_packages(self.latex())

    def latex(self) -> str:
        """Return the LaTeX without the line on packages, to combine it with other tables."""
        tables = [self.means_table().latex(), self.differences_table().latex()]
        sliced = "" if self.slices is None else f"\n{self.slices.latex()}"
        return "\n\n".join([*tables, latex_text(" ".join([*self.omissions, self.methods]))]) + "\n" + sliced

    def _columns(self) -> dict[str, list[Any]]:
        rows = [row | dict(zip(("low", "high"), row.pop("interval"), strict=True)) for row in self._rows()]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _rows(self) -> list[dict[str, Any]]:
        return [each.to_dict() | {"verdict": self.summary_of(each)} for each in self.differences]

    def plot(self, metric: str | None = None) -> Picture:
        """Plot the differences and their intervals under one metric, by default the first."""
        name = self.metrics[0] if metric is None else metric
        shown = [row for row in self.differences if row.metric == name]
        if not shown:
            raise UnknownNameError("metric in this comparison", name, self.metrics)
        return intervals(shown, self.margin)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values for JSON; infinite and undefined values become None."""
        plain: dict[str, Any] = {name: to_json(getattr(self, name)) for name in _JSON}
        plain |= {"notes": list(self.omissions), "means": to_json(self.means), "differences": self._rows()}
        return plain if self.slices is None else plain | {"slices": self.slices.to_dict()}
