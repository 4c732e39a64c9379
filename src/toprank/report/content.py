"""What a report says, before anyone thinks of how it looks: plain values, no markup.

A `Content` holds one `RankedCollection` for each collection that was ranked. It holds at least one `JudgedComparison`,
a comparison and the per-query numbers behind it; everything else is there where it is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.comparison import Comparison
from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError
from toprank.explaining import Importance
from toprank.rankers.explanation import Explanation
from toprank.showing.pictures import Chart, Picture
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of
from toprank.significance import Interval


@dataclass(frozen=True)
class JudgedComparison:
    """Systems compared under one convention.

    `per_query` is system → metric → one number per query (NaN where the query does not count), `intervals` system →
    metric → bootstrap interval of the mean.
    """

    comparison: Comparison
    per_query: Mapping[str, Mapping[str, FloatArray]]
    intervals: Mapping[str, Mapping[str, Interval]]


@dataclass(frozen=True)
class JudgedDocuments:
    """The documents behind the per-query numbers, for the explorer.

    Attributes:
        labels: One grade per document; NaN and -1 mean "not judged".
        queries: Which documents belong to which query; as many as the per-query numbers have.
        names: What each document is called.
        scores: system → one score per document; -inf where the system did not retrieve it.
    """

    labels: FloatArray
    queries: Queries
    names: npt.NDArray[Any]
    scores: Mapping[str, FloatArray]

    @property
    def top_grade(self) -> float:
        """The highest grade, at least 1."""
        return float(np.max(np.where(np.isnan(self.labels), 1.0, self.labels), initial=1.0))


@dataclass(frozen=True)
class Titled:
    """A further table, with a title and a remark of what its numbers are; `folded`: shown only when asked for."""

    title: str
    table: Table
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class DrawnCalibration:
    """Predicted P(grade ≥ 1) of one system against what happened, bin by bin; `error` is the expected one."""

    system: str
    style: int
    predicted: FloatArray
    observed: FloatArray
    documents: FloatArray
    error: float


@dataclass(frozen=True)
class ScoreSpread:
    """How the scores of one system, standardised within each query, spread over the documents of each grade.

    `shares` has a row for each grade, lowest first: the share of its documents in each bin between the `edges`.
    """

    system: str
    style: int
    edges: FloatArray
    grades: tuple[str, ...]
    shares: FloatArray
    medians: FloatArray
    documents: tuple[int, ...]


@dataclass(frozen=True)
class WeightsShown:
    """The features that matter most to one system, most important first: weights (signed) or importances (shares).

    `meaning` says what a value is, `features` how many features there are in all.
    """

    system: str
    style: int
    meaning: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    features: int


@dataclass(frozen=True)
class Explained:
    """Why a system ranks as it does: what its metric depends on, a pair in the wrong order, what would turn it."""

    system: str
    importance: Importance | None
    pair: Explanation | None
    change: str


@dataclass(frozen=True)
class RankedCollection:
    """One collection: its judgements, the main one first, and all that is known about the systems on it.

    Attributes:
        name: What the collection is called.
        qids: One id per query.
        judgements: The first one is plotted and explored; the others are shown as tables.
        tables: Further tables, such as means of fold means.
        at_k: Metrics by cut-off.
        learning: Validation metric by round or epoch, by penalty …
        spreads: Scores by grade.
        calibrations: Where there are probabilities.
        weights: Where rankers are known.
        explained: The best of them.
        documents: Where scores are known; without them the explorer shows numbers only.
        hardest: Numbers of the queries that all systems rank worst, worst first.
        caveats: Sentences about this part: what was left out, what is pooled.
        against_leader: Nobody asked for the baseline of the comparison: it is simply the best system.
    """

    name: str
    qids: npt.NDArray[Any]
    judgements: tuple[JudgedComparison, ...]
    tables: tuple[Titled, ...] = ()
    at_k: tuple[Chart, ...] = ()
    learning: tuple[Chart, ...] = ()
    spreads: tuple[ScoreSpread, ...] = ()
    calibrations: tuple[DrawnCalibration, ...] = ()
    weights: tuple[WeightsShown, ...] = ()
    explained: Explained | None = None
    documents: JudgedDocuments | None = None
    hardest: tuple[int, ...] = ()
    caveats: tuple[str, ...] = ()
    against_leader: bool = False

    def __post_init__(self) -> None:
        if not self.judgements:
            raise DataError(f"The part '{self.name}' of the report has nothing to compare.")
        expected = len(self.qids)
        for judgement in self.judgements:
            for system, of in judgement.per_query.items():
                for metric, values in of.items():
                    if np.shape(values) != (expected,):
                        raise DataError(
                            f"{metric} of '{system}' has {np.size(values)} numbers for {expected} query ids; "
                            "each query needs one."
                        )

    @property
    def comparison(self) -> Comparison:
        """The main comparison."""
        return self.judgements[0].comparison

    @property
    def ranked_systems(self) -> tuple[str, ...]:
        """Systems by the first metric, best first; equal ones in the order given."""
        return ranked_systems(self.comparison)


@dataclass(frozen=True)
class DataSource:
    """Data that went into the report, and the fingerprint of their content."""

    name: str
    fingerprint: str
    size: str


@dataclass(frozen=True)
class Fact:
    """A line of the small print: what, and its value."""

    name: str
    value: str


@dataclass(frozen=True, repr=False)
class Content(Shown):
    """Everything that a report says; a notebook shows its tables, `write_html` the whole page.

    Attributes:
        title: For the browser's tab and the top of the page.
        parts: One for each collection.
        sources: Data with fingerprints.
        conventions: The rules in words, one for each convention used.
        facts: Versions, seeds, options: the small print.
        command: The command that made the report, to be typed again.
        date: Shown where it is given; without it the same input gives the same bytes on any day.
        caveats: Sentences about the whole.
    """

    title: str
    parts: tuple[RankedCollection, ...]
    sources: tuple[DataSource, ...] = ()
    conventions: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    command: str | None = None
    date: str | None = None
    caveats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.parts:
            raise DataError("A report needs at least one comparison.")

    def _parts(self) -> Sequence[Part]:
        parts: list[Part] = [f"{self.title}."]
        for part in self.parts:
            means = part.comparison.means_table()
            place = {name: i for i, name in enumerate(part.ranked_systems)}
            ranked = Table(means.header, sorted(means.rows, key=lambda row: place[row[0]]), names=1)
            verdicts = tuple(map(part.comparison.summary_of, part.comparison.differences))
            parts += [f"{part.name}: {part.comparison.heading}", ranked, verdicts, *part.caveats]
        return [*parts, *self.caveats, "The whole page, to hand on: toprank.report.write_html(path, content)."]

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each part, convention, system and metric: the mean and its interval."""
        names = ("part", "convention", "system", "metric", "mean", "low", "high")
        rows = [
            (part.name, judgement.comparison.convention, system, metric, mean, *judgement.intervals[system][metric])
            for part in self.parts
            for judgement in part.judgements
            for system, means in judgement.comparison.means.items()
            for metric, mean in means.items()
        ]
        return frame_of(dict(zip(names, zip(*rows, strict=True), strict=True)), kind)

    def to_dict(self) -> dict[str, Any]:
        """What was compared, as plain values for JSON: each part under each of its conventions."""
        parts = [
            {"name": part.name, "comparisons": [judgement.comparison.to_dict() for judgement in part.judgements],
             "caveats": list(part.caveats)}
            for part in self.parts
        ]  # fmt: skip
        return {"title": self.title, "summary": self.summary, "parts": parts, "caveats": list(self.caveats)}

    def plot(self, metric: str | None = None, part: str | None = None) -> Picture:
        """The differences of a part, the first if none is named, with their intervals."""
        parts = {part.name: part for part in self.parts}
        name = self.parts[0].name if part is None else part
        if name not in parts:
            raise UnknownNameError("part in this report", name, parts)
        return parts[name].comparison.plot(metric)


def ranked_systems(comparison: Comparison) -> tuple[str, ...]:
    """Systems by the first metric of a comparison, best first."""
    metric = comparison.metrics[0]
    sign = 1.0 if metric in comparison.lower_is_better else -1.0
    return tuple(sorted(comparison.systems, key=lambda name: sign * comparison.means[name][metric]))
