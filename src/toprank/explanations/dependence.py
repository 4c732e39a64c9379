"""Partial dependence of the score on one feature, with its spread over documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_whole
from toprank.data.dataset import RankingData, dense_rows
from toprank.display.pictures import Picture, signed_bars
from toprank.display.record import Record
from toprank.display.svg import WIDTH, Box, Markup, Scale, axes, marked_ticks, marker, path, tag, title
from toprank.display.tables import Part, Table, json_rows
from toprank.errors import DataError
from toprank.explanations.columns import Feature, feature_number, signed
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import rescored, with_rows
from toprank.rankers.estimator import check_is_fitted


@dataclass(frozen=True, repr=False)
class PartialDependence(Record):
    """Partial dependence: the mean change of the score if all documents had the same value of a feature.

    Attributes:
        feature: Name of the feature.
        values: Evaluated values; NaN is a missing value.
        shown: The values in the text form of the user's table.
        means: Mean change of the score at each value.
        p10: 10th percentile of the change over documents, at each value.
        p90: 90th percentile of the change over documents, at each value.
        is_category: True if the feature is categorical.
        description: Sentence on the computation.
    """

    feature: str
    values: FloatArray
    shown: tuple[str, ...]
    means: FloatArray
    p10: FloatArray
    p90: FloatArray
    is_category: bool
    description: str

    json_names: ClassVar = {"is_category": "category", "_rows": "values"}
    json_hidden: ClassVar = frozenset({"values", "shown", "means", "p10", "p90"})
    json_properties: ClassVar = ("summary", "_rows")

    @property
    def summary(self) -> str:
        """Values with the highest and the lowest score, as a sentence."""
        low, high = int(np.argmin(self.means)), int(np.argmax(self.means))
        if self.means[low] == self.means[high]:
            return f"The score does not depend on {self.feature} if other features are unchanged."
        return (
            f"With other features unchanged, the score is highest at {self.feature} = {self.shown[high]} "
            f"({signed(self.means[high])}) and lowest at {self.shown[low]} ({signed(self.means[low])})."
        )

    def _parts(self) -> Sequence[Part]:
        rows = [
            (self.shown[i], signed(self.means[i]), signed(self.p10[i]), signed(self.p90[i]))
            for i in range(len(self.values))
        ]
        return [
            self.summary,
            Table((self.feature, "score", "10 % of documents", "90 %"), rows, names=1),
            self.description,
        ]

    def _columns(self) -> dict[str, list[Any]]:
        """Return one row per value of the feature."""
        numbers = {"score": self.means, "low": self.p10, "high": self.p90}
        return {"value": list(self.shown)} | {name: values.tolist() for name, values in numbers.items()}

    @property
    def _rows(self) -> list[dict[str, Any]]:
        return json_rows(self._columns())

    def plot(self) -> Picture:
        """Plot a curve with a 10–90 % band, or a bar per category."""
        name, label = f"Partial dependence on {self.feature}", "change of the score"
        known = np.isfinite(self.values)
        if self.is_category or known.sum() < 2:
            rows = [(s, f"{s}: {signed(m)}", float(m), float(low), float(high))
                    for s, m, low, high in zip(self.shown, self.means, self.p10, self.p90, strict=True)]  # fmt: skip
            return signed_bars(name, rows, label)
        box = Box(50, 24, WIDTH - 12, 190)
        at, means, p10, p90 = (a[known] for a in (self.values, self.means, self.p10, self.p90))
        room = 0.05 * float(p90.max() - p10.min()) or 0.05
        x = Scale(float(at.min()), float(at.max()), box.left + 4, box.right - 4)
        y = Scale(float(p10.min()) - room, float(p90.max()) + room, box.bottom, box.top)
        named = marked_ticks(x.low, x.high, 4)
        frame = axes(box, x, y, named, marked_ticks(y.low, y.high), self.feature, label)
        edge = [(x(v), y(h)) for v, h in zip(at.tolist(), p90.tolist(), strict=True)]
        edge += [(x(v), y(h)) for v, h in zip(at[::-1].tolist(), p10[::-1].tolist(), strict=True)]
        band = tag("path", d=path(edge, close=True), cls="band")
        through = [(x(v), y(m)) for v, m in zip(at.tolist(), means.tolist(), strict=True)]
        curve = tag("path", d=path(through), cls="line")
        marks: list[Markup] = [
            marker(0, *point, f"{self.feature} {s}: {signed(m)}", 3)
            for point, m, s in zip(through, means.tolist(), np.array(self.shown)[known].tolist(), strict=True)
        ]
        return Picture(name, 230, frame, band, curve, *marks, title(name))


def partial_dependence(
    ranker: Ranker,
    data: RankingData,
    feature: str | int,
    *,
    grid_resolution: int = 20,
    n_documents: int = 1000,
    seed: int = 0,
) -> PartialDependence:
    """Compute the partial dependence of the score on one feature, with its spread over documents.

    Every sampled document is scored with each value in turn. If the ranker scores whole queries, the other documents of
    the query are unchanged.

    Args:
        ranker: fitted ranker.
        data: documents to average over; labels are not used.
        feature: name of the feature, or its number from 0.
        grid_resolution: number of values to evaluate: quantiles of the values in the data, or the most frequent
            categories. A missing value is added if the data have any. Default 20.
        n_documents: maximum number of documents, sampled if the data have more. Default 1,000.
        seed: seed of the sample.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=30, n_features=2, seed=0)
    >>> effect = tr.explanations.partial_dependence(tr.LinearRanker("ListNet").fit(data), data, 0, grid_resolution=5)
    >>> len(effect.values), effect.is_category
    (5, False)
    """
    check_is_fitted(ranker)
    if not isinstance(data, RankingData):
        raise DataError("partial_dependence needs a RankingData: tr.RankingData(X, qid=qid).")
    check_whole("grid_resolution", grid_resolution, 2)
    check_whole("n_documents", n_documents, 1)
    check_whole("seed", seed, 0)
    translated = ranker.translated(data)
    column = Feature(ranker, translated, feature_number(ranker, data, feature))
    values = (
        column.levels[:grid_resolution]
        if column.is_category
        else np.unique(np.quantile(column.present, np.linspace(0, 1, grid_resolution)))
    )
    if np.isnan(column.values).any():
        values = np.append(values, np.nan)
    n = translated.n_documents
    drawn = (
        np.sort(np.random.default_rng(seed).choice(n, n_documents, replace=False)) if n_documents < n else np.arange(n)
    )
    score = _in_queries if ranker.uses_query_context else _by_rows
    scores = score(ranker, translated, column.number, values, drawn)
    p10, p90 = np.quantile(scores, (0.1, 0.9), axis=1)
    how = f"Mean over {len(drawn):,} documents" + (f" sampled with seed {seed}" if n_documents < n else "")
    how += "; the other documents of a query are unchanged." if ranker.uses_query_context else "."
    shown = tuple(column.shown(value) for value in values.tolist())
    return PartialDependence(
        feature=column.name,
        values=values,
        shown=shown,
        means=scores.mean(axis=1),
        p10=p10,
        p90=p90,
        is_category=column.is_category,
        description=how,
    )


def _by_rows(ranker: Ranker, data: RankingData, number: int, values: FloatArray, drawn: IntArray) -> FloatArray:
    """Return the change of each document's score, shape (values, documents)."""
    rows = dense_rows(data.X[drawn])  # a copy, modified below
    before = ranker.predict(with_rows(data, rows))
    changes = np.empty((len(values), len(drawn)))
    for place, value in enumerate(values.tolist()):
        rows[:, number] = value
        changes[place] = ranker.predict(with_rows(data, rows.copy())) - before
    return changes


def _in_queries(ranker: Ranker, data: RankingData, number: int, values: FloatArray, drawn: IntArray) -> FloatArray:
    """Return the change of each document's score if the ranker scores whole queries, shape (values, documents)."""
    changes = np.empty((len(values), len(drawn)))
    for place, row in enumerate(drawn.tolist()):
        query = int(data.queries.document_query[row])
        start, stop = data.queries.offsets[query : query + 2].tolist()
        X = dense_rows(data.X[start:stop])
        tried = np.concatenate([[X[row - start, number]], values])
        scores = rescored(ranker, data, X, {row - start: tried[:, None]}, [number])[:, 0]
        changes[:, place] = scores[1:] - scores[0]
    return changes
