"""Evaluation and comparison results in slices of the queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toprank.data.slices import Slices
from toprank.display.record import Record, to_json
from toprank.display.tables import Part, Table, latex_text, with_packages
from toprank.errors import count_of
from toprank.evaluation.comparison import CORRECTED_BY
from toprank.evaluation.differences import SliceDifference
from toprank.evaluation.result import Evaluation
from toprank.evaluation.statistics import ComparisonOptions
from toprank.evaluation.values import by_slice, intervals
from toprank.significance.results import Interval, bounds, number, p_value

_ALL = "all"
_MIN_EFFECTIVE_QUERIES = 30  # below, intervals of weighted means are too short
_MAX_UNEVEN_RATIO = 0.9  # above this ratio of effective to actual queries, weights are nearly equal: no warning


@dataclass(frozen=True, eq=False, repr=False)
class SlicedEvaluation(Record, Mapping[str, Evaluation]):
    """Mapping of slices to their evaluations; `str()` returns a table with an interval for every mean.

    Every query belongs to exactly one slice.

    Attributes:
        whole: Evaluation of all queries.
        slices: The slices and the rule that defines them.
        min_queries: Slices with fewer queries have no interval.
        confidence: Confidence level of the intervals.
        intervals: Slice → metric → interval of the mean; None with fewer than `min_queries` evaluated queries.
    """

    whole: Evaluation
    slices: Slices
    min_queries: int
    confidence: float
    intervals: Mapping[str, Mapping[str, Interval | None]]
    _whole_intervals: Mapping[str, Interval | None]
    _parts_of: Mapping[str, Evaluation]

    @classmethod
    def from_evaluation(
        cls, whole: Evaluation, slices: Slices, min_queries: int, options: Mapping[str, Any]
    ) -> SlicedEvaluation:
        """Return an evaluation in slices; `options` are passed to `bootstrap_interval`."""
        of_slices = by_slice(whole.values, slices, min_queries=min_queries, **options)
        return cls(
            whole,
            slices,
            min_queries,
            options["confidence"],
            {name: found[""] for name, found in of_slices.items()},
            intervals(whole.values, min_queries=min_queries, **options)[""],
            {name: whole.select(slices.codes == code) for code, name in enumerate(slices.names)},
        )

    @property
    def effective(self) -> dict[str, float]:
        """Slice → effective sample size in queries, the minimum over the metrics."""
        return {name: _min_effective_size(part) for name, part in self.items()}

    def __getitem__(self, name: str) -> Evaluation:
        return self._parts_of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts_of)

    def __len__(self) -> int:
        return len(self._parts_of)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `interval` has both bounds for each metric, or null."""

        def plain(part: Evaluation, of: Mapping[str, Interval | None]) -> dict[str, Any]:
            ends = {metric: to_json(ends and list(ends)) for metric, ends in of.items()}
            return {**part.to_dict(), "effective": _min_effective_size(part), "interval": ends}

        return {
            "slice_by": self.slices.column,
            "rule": self.slices.rule,
            "confidence": self.confidence,
            "min_queries": self.min_queries,
            "all": plain(self.whole, self._whole_intervals),
            "slices": {name: plain(part, self.intervals[name]) for name, part in self.items()},
        }

    def _columns(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {"slice": list(self), "queries": [len(part.qids) for part in self.values()]}
        if self.whole.query_weights is not None:
            columns["effective"] = list(self.effective.values())
        for metric in self.whole.names:
            found = [of[metric] for of in self.intervals.values()]
            columns[metric] = [part.mean[metric] for part in self.values()]
            columns[f"{metric} low"] = [interval and interval.low for interval in found]
            columns[f"{metric} high"] = [interval and interval.high for interval in found]
        return columns

    @property
    def _rows(self) -> list[tuple[str, Evaluation, Mapping[str, Interval | None]]]:
        """Name, evaluation and intervals of each slice, and of all queries at the end."""
        rows = [(name, part, self.intervals[name]) for name, part in self.items()]
        return [*rows, (_ALL, self.whole, self._whole_intervals)]

    def _parts(self) -> Sequence[Part]:
        weighted = self.whole.query_weights is not None
        cells = [
            (
                name,
                f"{len(part.qids):,}",
                *([f"{_min_effective_size(part):.1f}"] if weighted else []),
                *(cell for m in part.names for cell in (_mean(part.mean[m]), _ends(of[m]))),
            )
            for name, part, of in self._rows
        ]
        interval = f"{100 * self.confidence:g} % interval"
        counts = ("queries", "effective") if weighted else ("queries",)
        header = (self.slices.column, *counts, *(name for metric in self.whole.names for name in (metric, interval)))
        return [Table(header, cells, names=1), self._rules, *self.warnings]

    @property
    def _rules(self) -> str:
        short = any(interval is None for _, _, of in self._rows for interval in of.values())
        few = f" Slices with fewer than {self.min_queries} evaluated queries have no interval." if short else ""
        return f"{self.slices.rule}{few} Convention {self.whole.convention.name}."

    @property
    def summary(self) -> str:
        """Definition of the slices, convention of the means, and warnings about the intervals."""
        return " ".join([self._rules, *self.warnings])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about weighted means with a small effective sample size, as sentences."""
        few = [
            f"{name} ({_min_effective_size(part):.1f} of {len(part.qids):,})"
            for name, part, of in self._rows
            if any(of[metric] is not None and _has_few_effective_queries(part, metric) for metric in part.names)
        ]
        if not few or self.whole.query_weights is None:
            return ()
        return (
            f"Weighted means with a small effective sample size: {', '.join(few)}. With fewer than "
            f"{_MIN_EFFECTIVE_QUERIES} effective queries, intervals cover the true mean less often than "
            f"{100 * self.confidence:g} %, in particular if the queries with large weights differ from the rest.",
        )

    def __repr__(self) -> str:
        return f"SlicedEvaluation({self.slices.column}: {', '.join(self)})"


def _mean(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def _ends(interval: Interval | None) -> str:
    return "–" if interval is None else bounds(*interval)


def _has_few_effective_queries(part: Evaluation, metric: str) -> bool:
    effective = part.values.effective_size("", metric)
    return effective < _MIN_EFFECTIVE_QUERIES and effective < _MAX_UNEVEN_RATIO * part.values.n_counting("", metric)


def _min_effective_size(part: Evaluation) -> float:
    return min(part.values.effective_size("", metric) for metric in part.names)


@dataclass(frozen=True, repr=False)
class SlicedComparison(Record):
    """Comparison in slices; `str` returns a table and conclusions, ``slices["phone"]`` the rows of a slice.

    Attributes:
        statistics: Options of the comparison.
        slices: The slices and the rule that defines them.
        min_queries: Slices with fewer queries are not tested.
        differences: Differences, one per slice, pair and metric.
    """

    statistics: ComparisonOptions
    slices: Slices
    min_queries: int
    differences: tuple[SliceDifference, ...]

    def __getitem__(self, name: str) -> tuple[SliceDifference, ...]:
        if name not in self.slices.names:
            raise KeyError(name)
        return tuple(row for row in self.differences if row.slice == name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.slices.names)

    @property
    def n_tests(self) -> int:
        """Number of tests that are corrected together: tested slices × pairs × metrics."""
        return sum(row.tested is not None for row in self.differences)

    @property
    def untested(self) -> tuple[str, ...]:
        """Slices with too few queries to test some pair under some metric."""
        return tuple(dict.fromkeys(row.slice for row in self.differences if row.tested is None))

    def table(self) -> Table:
        """Return a table with one row per tested slice, pair and metric; all rows if none is tested.

        A star marks corrected significance. `to_frame` always has all rows.
        """
        correction = CORRECTED_BY[self.statistics.correction]
        header = (
            self.slices.column, "a", "b", "metric", "queries", "mean a", "mean b", "a - b",
            f"{100 * self.statistics.confidence:g} % interval", f"p ({correction})",
        )  # fmt: skip
        tested = [row for row in self.differences if row.tested is not None]
        return Table(header, [self._row(row) for row in tested or self.differences], names=4)

    @staticmethod
    def _row(row: SliceDifference) -> tuple[str, ...]:
        shown = ["–" if value is None else number(value) for value in (row.mean_a, row.mean_b, row.difference)]
        tail = ("–", "too few")
        if row.tested is not None:
            star = "*" if row.tested.significant else ""
            tail = (bounds(*row.tested.interval), f"{row.tested.p_adjusted:.3g}{star}")
        return (row.slice, row.a, row.b, row.metric, f"{row.n:,}", *shown, *tail)

    @property
    def summary(self) -> str:
        """One sentence per significant difference in a slice, and one about slices that are too small."""
        tests = count_of(self.n_tests, "test")
        sentences = []
        for row in self.differences:
            d = row.tested
            if d is not None and d.significant and d.winner is not None:
                loser = d.b if d.winner == d.a else d.a
                p = f"{p_value(d.p_adjusted)} ({CORRECTED_BY[self.statistics.correction]}, {tests})"
                size = f"{number(abs(d.difference))} {d.metric}"
                sentences.append(f"{row.slice}: {d.winner} is better than {loser} by {size}, {p}.")
        if not sentences and self.n_tests:
            sentences.append(f"No difference can be shown in any slice ({tests}).")
        if self.untested:
            most = {name: max(row.n for row in self[name] if row.tested is None) for name in self.untested}
            named = ", ".join(f"{name} ({n:,})" for name, n in most.items())
            sentences.append(f"Not tested, with fewer than {self.min_queries} queries: {named}.")
        return "\n".join(sentences)

    @property
    def methods(self) -> str:
        """Description of the slices and their tests."""
        correction = CORRECTED_BY[self.statistics.correction]
        how = (
            "uncorrected"
            if self.statistics.correction == "none"
            else f"{correction} over the {self.n_tests} tests in slices (slices × pairs × metrics), their own family"
        )
        return (
            f"{self.slices.rule} p: paired {self.statistics.test} test, two-sided, {how}; "
            f"* at level {self.statistics.alpha:g}. A difference that is significant in one slice but not in another "
            "does not show that the slices differ."
        )

    def _parts(self) -> Sequence[Part]:
        return [f"By {self.slices.column}:", self.table(), tuple(self.summary.splitlines()), self.methods]

    def _columns(self) -> dict[str, list[Any]]:
        of_row = ("slice", "a", "b", "metric", "n", "mean_a", "mean_b", "difference")
        columns = {name: [getattr(row, name) for row in self.differences] for name in of_row}
        tested = [row.tested for row in self.differences]
        for side in ("low", "high"):
            columns[side] = [d and getattr(d.interval, side) for d in tested]
        return columns | {name: [d and getattr(d, name) for d in tested] for name in ("p_adjusted", "significant")}

    def to_latex(self) -> str:
        """Return the table and the methods in LaTeX; the first line names the required packages."""
        return with_packages(self.latex())

    def latex(self) -> str:
        """Return the LaTeX without the line on packages, to combine it with other tables."""
        return "\n\n".join([self.table().latex(), latex_text(self.methods)]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values for JSON."""
        plain = {"column": self.slices.column, "rule": self.slices.rule, "queries": self.slices.sizes}
        return plain | {
            "min_queries": self.min_queries,
            "n_tests": self.n_tests,
            "differences": to_json(self.differences),
        }
