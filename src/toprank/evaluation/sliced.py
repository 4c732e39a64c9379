"""Evaluations and comparisons in slices of the queries."""

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
_FEW = 30  # effective queries below which an interval of a weighted mean is too short more often than it claims
_UNEVEN = 0.9  # above this share of effective queries, weights are about equal, and few queries need no warning


@dataclass(frozen=True, eq=False, repr=False)
class SlicedEvaluation(Record, Mapping[str, Evaluation]):
    """Slice → its evaluation; `str()` is a table with an interval for every mean. Every query is in one slice.

    Attributes:
        whole: The evaluation of all queries.
        slices: The slices and their rule.
        min_queries: Slices with fewer queries have no interval.
        confidence: Level of the intervals.
        intervals: Slice → metric → the interval of its mean; None where fewer than `min_queries` queries count.
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
        """Return an evaluation in slices; `options` are those of `bootstrap_interval`."""
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
        """Slice → its effective sample size of queries, the smallest over the metrics."""
        return {name: _least_effective(part) for name, part in self.items()}

    def __getitem__(self, name: str) -> Evaluation:
        return self._parts_of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts_of)

    def __len__(self) -> int:
        return len(self._parts_of)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `interval` has both ends for each metric, or null."""

        def plain(part: Evaluation, of: Mapping[str, Interval | None]) -> dict[str, Any]:
            ends = {metric: to_json(ends and list(ends)) for metric, ends in of.items()}
            return {**part.to_dict(), "effective": _least_effective(part), "interval": ends}

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
        """Each slice, and all queries at the end: name, evaluation, intervals."""
        rows = [(name, part, self.intervals[name]) for name, part in self.items()]
        return [*rows, (_ALL, self.whole, self._whole_intervals)]

    def _parts(self) -> Sequence[Part]:
        weighted = self.whole.query_weights is not None
        cells = [
            (
                name,
                f"{len(part.qids):,}",
                *([f"{_least_effective(part):.1f}"] if weighted else []),
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
        few = f" Fewer than {self.min_queries} queries that count have no interval." if short else ""
        return f"{self.slices.rule}{few} Convention {self.whole.convention.name}."

    @property
    def summary(self) -> str:
        """How the slices are made, the convention of their means, and doubts about the intervals."""
        return " ".join([self._rules, *self.warnings])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Doubts about the intervals, as sentences: means whose weights leave too few effective queries."""
        few = [
            f"{name} ({_least_effective(part):.1f} of {len(part.qids):,})"
            for name, part, of in self._rows
            if any(of[metric] is not None and _is_carried_by_few(part, metric) for metric in part.names)
        ]
        if not few or self.whole.query_weights is None:
            return ()
        return (
            f"Weighted means of few effective queries: {', '.join(few)}. A few queries carry the weight; below {_FEW} "
            f"effective ones an interval holds the truth less often than {100 * self.confidence:g} %, and far less "
            "often where those queries differ from the rest.",
        )

    def __repr__(self) -> str:
        return f"SlicedEvaluation({self.slices.column}: {', '.join(self)})"


def _mean(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def _ends(interval: Interval | None) -> str:
    return "–" if interval is None else bounds(*interval)


def _is_carried_by_few(part: Evaluation, metric: str) -> bool:
    effective = part.values.effective_size("", metric)
    return effective < _FEW and effective < _UNEVEN * part.values.n_counting("", metric)


def _least_effective(part: Evaluation) -> float:
    return min(part.values.effective_size("", metric) for metric in part.names)


@dataclass(frozen=True, repr=False)
class SlicedComparison(Record):
    """A comparison in slices; `str` gives a table and verdicts, ``slices["phone"]`` the rows of a slice.

    Attributes:
        statistics: The options of the comparison.
        slices: The slices and their rule.
        min_queries: Slices with fewer queries are not tested.
        differences: One per slice, pair and metric.
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
        """How many tests the correction takes together: slices × pairs × metrics, those that are tested."""
        return sum(row.tested is not None for row in self.differences)

    @property
    def untested(self) -> tuple[str, ...]:
        """The slices in which a pair under a metric has too few queries to be tested."""
        return tuple(dict.fromkeys(row.slice for row in self.differences if row.tested is None))

    def table(self) -> Table:
        """One row per slice, pair and metric that is tested, or each where none is; `to_frame` always has all.

        A star marks what is significant at the level after the correction.
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
        """A sentence for each slice that shows a difference, and one about slices that are too small, line by line."""
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
        """How the slices were made and tested."""
        correction = CORRECTED_BY[self.statistics.correction]
        how = (
            "uncorrected"
            if self.statistics.correction == "none"
            else f"{correction} over the {self.n_tests} tests in slices (slices × pairs × metrics), their own family"
        )
        return (
            f"{self.slices.rule} p: paired {self.statistics.test} test, two-sided, {how}; "
            f"* at level {self.statistics.alpha:g}. A difference that is shown in one slice and not in "
            "another need not differ between them."
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
        """The table, the methods as a paragraph after it; the first line names the packages that it needs."""
        return with_packages(self.latex())

    def latex(self) -> str:
        """The same without the line on packages, to be put together with other tables."""
        return "\n\n".join([self.table().latex(), latex_text(self.methods)]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values that JSON can hold."""
        about = {"column": self.slices.column, "rule": self.slices.rule, "queries": self.slices.sizes}
        return about | {
            "min_queries": self.min_queries,
            "n_tests": self.n_tests,
            "differences": to_json(self.differences),
        }
