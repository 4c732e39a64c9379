"""What a report says, before anyone thinks of how it looks: plain values, no markup.

A `ComparisonReport` holds one `RankedCollection` for each collection that was ranked. A collection holds at least one
`Comparison`, which keeps its per-query numbers; everything else is optional.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.display.pictures import Chart, Picture
from toprank.display.record import JsonObject, Record
from toprank.display.tables import Part, Table
from toprank.errors import DataError, UnknownNameError
from toprank.evaluation import Comparison
from toprank.explanations import Importance
from toprank.explanations.pairs import Explanation


@dataclass(frozen=True)
class JudgedDocuments:
    """The documents behind the per-query numbers, for the explorer.

    Attributes:
        labels: One grade per document; NaN and -1 mean "not judged".
        queries: Which documents belong to which query; as many as the per-query numbers have.
        names: What each document is called.
        scores: system → one score per document; -inf where the system did not retrieve it.
        titles: The title of each document, if the data have texts: the first column of the documents' text.
    """

    labels: FloatArray
    queries: Queries
    names: npt.NDArray[Any]
    scores: Mapping[str, FloatArray]
    titles: npt.NDArray[Any] | None = None

    def name_of(self, row: int) -> str:
        """The name of a document, and its title if it has one."""
        return named(self.names[row], None if self.titles is None else self.titles[row])

    @property
    def top_grade(self) -> float:
        """The highest grade, at least 1."""
        return float(np.max(np.where(np.isnan(self.labels), 1.0, self.labels), initial=1.0))


def named(name: object, text: str | None) -> str:
    """An id, and the text that belongs to it on one line.

    >>> named(17, "red  shoes"), named("d3", ""), named("d3", None)
    ('17: red shoes', 'd3', 'd3')
    """
    words = " ".join((text or "").split())
    return f"{name}: {words}" if words else str(name)


def query_texts(data: RankingData) -> npt.NDArray[Any] | None:
    """The words of each query; None if the data have no texts, or documents of a query give it different words."""
    if data.text is None:
        return None
    texts = data.metadata[data.text.query]
    return texts if len(texts) == data.n_queries else None


def titles_of(data: RankingData) -> npt.NDArray[Any] | None:
    """The first text of each document; None if the data have no texts."""
    if data.text is None:
        return None
    texts = data.metadata[data.text.document[0]]
    return texts if len(texts) == data.n_documents else data.queries.broadcast(texts)


@dataclass(frozen=True)
class TitledTable:
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
    """How the scores of one system, standardized within each query, spread over the documents of each grade.

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
    """Why a system ranks as it does: what its metric depends on, a pair in the wrong order, what would turn it.

    `heading` names the pair: its query and its two documents.
    """

    system: str
    importance: Importance | None
    pair: Explanation | None
    change: str
    heading: str = ""


@dataclass(frozen=True)
class RankedCollection(JsonObject):
    """One collection: its comparisons, the main one first, and all that is known about the systems on it.

    Attributes:
        name: What the collection is called.
        qids: One id per query.
        query_texts: The words of each query, if the data have texts.
        comparisons: The first one is plotted and explored; the others, of other conventions, are shown as tables.
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
            raise DataError(f"The part '{self.name}' of the report has nothing to compare.")
        for comparison in self.comparisons:
            if comparison.queries != len(self.qids):
                raise DataError(
                    f"The comparison has numbers of {comparison.queries} queries for {len(self.qids)} query ids; each "
                    "query needs one."
                )

    def query_name(self, query: int) -> str:
        """The id of a query, and its words if they are known."""
        return named(self.qids[query], None if self.query_texts is None else self.query_texts[query])

    @property
    def comparison(self) -> Comparison:
        """The main comparison."""
        return self.comparisons[0]

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
class ComparisonReport(Record):
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
        return [*parts, *self.caveats, "The whole page, to hand on: toprank.report.write_html(path, content)."]

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
