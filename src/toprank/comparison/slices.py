"""Systems against each other in slices of the queries: each slice with its means, difference, interval and p-value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toprank.comparison.results import CORRECTED_BY, Difference, Plan, plain
from toprank.data.slices import Slices
from toprank.errors import count_of
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of, latex_text
from toprank.significance.results import bounds, number, p_value


@dataclass(frozen=True)
class SliceDifference:
    """Two systems under one metric in one slice.

    Attributes:
        slice: The name of the slice.
        metric: The metric's name.
        a: The first system.
        b: The second system.
        n: Number of queries that count for both.
        mean_a: Mean of `a` over them; None where there is none.
        mean_b: Mean of `b` over them.
        tested: The difference with its interval and p-value, corrected over all slices; None where there are too few
            queries.
    """

    slice: str
    metric: str
    a: str
    b: str
    n: int
    mean_a: float | None
    mean_b: float | None
    tested: Difference | None

    @property
    def difference(self) -> float | None:
        """Mean of ``a - b``; None where there is no query."""
        if self.tested is not None:
            return self.tested.difference
        return None if self.mean_a is None or self.mean_b is None else self.mean_a - self.mean_b


@dataclass(frozen=True, repr=False)
class SlicedComparison(Shown):
    """A comparison in slices; `str` gives a table and verdicts, ``slices["phone"]`` the rows of a slice.

    Attributes:
        plan: The options of the comparison.
        slices: The slices and their rule.
        least: Slices with fewer queries are not tested.
        differences: One per slice, pair and metric.
    """

    plan: Plan
    slices: Slices
    least: int
    differences: tuple[SliceDifference, ...]

    def __getitem__(self, name: str) -> tuple[SliceDifference, ...]:
        if name not in self.slices.names:
            raise KeyError(name)
        return tuple(row for row in self.differences if row.slice == name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.slices.names)

    @property
    def family(self) -> int:
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
        correction = CORRECTED_BY[self.plan.correction]
        header = (
            self.slices.by, "a", "b", "metric", "queries", "mean a", "mean b", "a - b",
            f"{100 * self.plan.confidence:g} % interval", f"p ({correction})",
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
        tests = count_of(self.family, "test")
        sentences = []
        for row in self.differences:
            d = row.tested
            if d is not None and d.significant and d.winner is not None:
                loser = d.b if d.winner == d.a else d.a
                p = f"{p_value(d.p_adjusted)} ({CORRECTED_BY[self.plan.correction]}, {tests})"
                size = f"{number(abs(d.difference))} {d.metric}"
                sentences.append(f"{row.slice}: {d.winner} is better than {loser} by {size}, {p}.")
        if not sentences and self.family:
            sentences.append(f"No difference can be shown in any slice ({tests}).")
        if self.untested:
            most = {name: max(row.n for row in self[name] if row.tested is None) for name in self.untested}
            named = ", ".join(f"{name} ({n:,})" for name, n in most.items())
            sentences.append(f"Not tested, with fewer than {self.least} queries: {named}.")
        return "\n".join(sentences)

    @property
    def methods(self) -> str:
        """How the slices were made and tested."""
        correction = CORRECTED_BY[self.plan.correction]
        how = (
            "uncorrected"
            if self.plan.correction == "none"
            else f"{correction} over the {self.family} tests in slices (slices × pairs × metrics), their own family"
        )
        return (
            f"{self.slices.rule} p: paired {self.plan.test} test, two-sided, {how}; * at level {self.plan.alpha:g}. A "
            "difference that is shown in one slice and not in another need not differ between them."
        )

    def _parts(self) -> Sequence[Part]:
        return [f"By {self.slices.by}:", self.table(), tuple(self.summary.splitlines()), self.methods]

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row per slice, pair and metric; a frame of pandas or polars, or Arrow's."""
        rows = []
        for row in self.differences:
            d = row.tested
            low, high = (None, None) if d is None else d.interval
            p, shown = (None, None) if d is None else (d.p_adjusted, d.significant)
            entry = {"slice": row.slice, "a": row.a, "b": row.b, "metric": row.metric, "n": row.n, "mean_a": row.mean_a}
            entry |= {"mean_b": row.mean_b, "difference": row.difference, "low": low, "high": high}
            rows.append(entry | {"p_adjusted": p, "significant": shown})
        return frame_of({name: [row[name] for row in rows] for name in rows[0]}, kind)

    def to_latex(self) -> str:
        """The table for the booktabs package, the methods as a paragraph after it."""
        return "\n\n".join([self.table().latex(), latex_text(self.methods)]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values that JSON can hold."""
        rows = [
            {
                "slice": row.slice, "metric": row.metric, "a": row.a, "b": row.b, "n": row.n, "mean_a": row.mean_a,
                "mean_b": row.mean_b, "difference": row.difference,
                "tested": None if row.tested is None else plain(row.tested),
            }
            for row in self.differences
        ]  # fmt: skip
        about = {"column": self.slices.by, "rule": self.slices.rule, "queries": self.slices.sizes}
        return about | {"least": self.least, "family": self.family, "differences": rows}
