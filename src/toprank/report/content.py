"""The content of reports as plain values, without markup.

A `ComparisonReport` has one `RankedCollection` per data set. A ranked collection has at least one `Comparison` with its
per-query values; all other content is optional.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.data.texts import with_text
from toprank.display.pictures import Chart, Picture
from toprank.display.record import JsonObject, Record
from toprank.display.tables import Part, Table
from toprank.errors import DataError, UnknownNameError
from toprank.evaluation import Comparison
from toprank.explanations import Importance
from toprank.explanations.pairs import Explanation


@dataclass(frozen=True)
class JudgedDocuments:
    """Judged and scored documents, for the query explorer.

    Attributes:
        labels: One grade per document; NaN and -1 mean "not judged".
        queries: Assignment of documents to queries, in the order of the per-query values.
        names: Name of each document.
        scores: One score per document by system; -inf if the system did not retrieve the document.
        titles: Title of each document (the first document text), if the data have texts.
    """

    labels: FloatArray
    queries: Queries
    names: npt.NDArray[Any]
    scores: Mapping[str, FloatArray]
    titles: npt.NDArray[Any] | None = None

    def name_of(self, row: int) -> str:
        """Return the name of a document, with its title if there is one."""
        return with_text(self.names[row], None if self.titles is None else self.titles[row])

    @property
    def top_grade(self) -> float:
        """The highest grade, at least 1."""
        return float(np.max(np.where(np.isnan(self.labels), 1.0, self.labels), initial=1.0))


@dataclass(frozen=True)
class TitledTable:
    """A table with title and note; `folded` tables are collapsed."""

    title: str
    table: Table
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class DrawnCalibration:
    """Calibration curve of one system for P(grade ≥ 1); `error` is the expected calibration error."""

    system: str
    style: int
    predicted: FloatArray
    observed: FloatArray
    documents: FloatArray
    error: float


@dataclass(frozen=True)
class ScoreSpread:
    """Distribution of the scores of one system by grade, standardized within queries.

    `shares` has one row per grade, lowest first: the share of its documents in each bin between the `edges`.
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
    """The most important features of one system, as signed weights or as shares of importance.

    `meaning` describes the values; `features` is the total number of features.
    """

    system: str
    style: int
    meaning: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    features: int


@dataclass(frozen=True)
class Explained:
    """Explanation of a system: permutation importance, a misranked pair, and a counterfactual change for the pair.

    `heading` names the query and the two documents of the pair.
    """

    system: str
    importance: Importance | None
    pair: Explanation | None
    change: str
    heading: str = ""


@dataclass(frozen=True)
class RankedCollection(JsonObject):
    """The part of a report about one data set.

    Attributes:
        name: Name of the data set.
        qids: Query ids.
        query_texts: Query texts, if the data have texts.
        comparisons: Comparisons by convention. The first one is plotted and explored, the others are shown as tables.
        tables: Further tables, such as means over folds.
        at_k: Metrics by cutoff.
        learning: Learning curves: validation metric by round, epoch or penalty.
        spreads: Score distributions by grade.
        calibrations: Calibration curves of systems with probabilities.
        weights: Feature weights of systems with rankers.
        explained: Explanation of the best system with a ranker.
        documents: Scored documents, if available. Without them the explorer shows only metric values.
        hardest: Indices of the hardest queries, worst first.
        caveats: Notes on this part, for example on excluded queries.
        against_leader: True if the baseline was chosen automatically as the best system, not by the user.
    """

    name: str
    qids: npt.NDArray[Any]
    comparisons: tuple[Comparison, ...]
    tables: tuple[TitledTable, ...] = ()
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
    query_texts: npt.NDArray[Any] | None = None

    json_fields = ("name", "comparisons", "caveats")

    def __post_init__(self) -> None:
        if not self.comparisons:
            raise DataError(f"The part '{self.name}' of the report has no comparison. At least one is needed.")
        for comparison in self.comparisons:
            if comparison.queries != len(self.qids):
                raise DataError(
                    f"The comparison has values of {comparison.queries} queries, but there are {len(self.qids)} query "
                    "ids. Pass one id per query."
                )

    def query_name(self, query: int) -> str:
        """Return the id of a query, with its text if available."""
        return with_text(self.qids[query], None if self.query_texts is None else self.query_texts[query])

    @property
    def comparison(self) -> Comparison:
        """The main (first) comparison."""
        return self.comparisons[0]

    @property
    def ranked_systems(self) -> tuple[str, ...]:
        """Systems sorted by the first metric, best first; ties in the order given."""
        return ranked_systems(self.comparison)


@dataclass(frozen=True)
class DataSource:
    """Name, fingerprint and size of data used in the report."""

    name: str
    fingerprint: str
    size: str


@dataclass(frozen=True)
class Fact:
    """A line of the provenance section: name and value."""

    name: str
    value: str


@dataclass(frozen=True, repr=False)
class ComparisonReport(Record):
    """A report of comparisons. Notebooks show its tables; `write_html` writes the full page.

    Attributes:
        title: Title of the page.
        parts: One part per data set.
        sources: Data with fingerprints.
        conventions: Description of each convention.
        facts: Versions, seeds and options.
        command: Command that created the report.
        date: Date to show. Without a date, the same input always gives the same bytes.
        caveats: Notes on the whole report.
    """

    title: str
    parts: tuple[RankedCollection, ...]
    sources: tuple[DataSource, ...] = ()
    conventions: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    command: str | None = None
    date: str | None = None
    caveats: tuple[str, ...] = ()

    json_fields = ("title", "parts", "caveats")

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
        return [*parts, *self.caveats, "Write the full page with toprank.report.write_html(path, report)."]

    def _columns(self) -> dict[str, list[Any]]:
        names = ("part", "convention", "system", "metric", "mean", "low", "high")
        rows = [
            (part.name, comparison.convention, system, metric, mean, *comparison.mean_intervals[system][metric])
            for part in self.parts
            for comparison in part.comparisons
            for system, means in comparison.means.items()
            for metric, mean in means.items()
        ]
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))

    def plot(self, metric: str | None = None, part: str | None = None) -> Picture:
        """Plot the differences of a part with their intervals. Default: the first part."""
        parts = {part.name: part for part in self.parts}
        name = self.parts[0].name if part is None else part
        if name not in parts:
            raise UnknownNameError("part in this report", name, parts)
        return parts[name].comparison.plot(metric)


def ranked_systems(comparison: Comparison) -> tuple[str, ...]:
    """Return the systems sorted by the first metric, best first."""
    metric = comparison.metrics[0]
    sign = 1.0 if metric in comparison.lower_is_better else -1.0
    return tuple(sorted(comparison.systems, key=lambda name: sign * comparison.means[name][metric]))
