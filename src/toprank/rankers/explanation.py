"""Why one document stands above another, in words, as a table, a plot and JSON."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData, dense_rows
from toprank.data.encoding import Column
from toprank.errors import DataError
from toprank.metrics.sorting import ranking
from toprank.rankers.contributions import Sampling, with_rows
from toprank.rankers.estimator import check_is_fitted
from toprank.showing.pictures import Picture, signed_bars
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

_NAMED = 3  # features that a sentence names
_DRAWN = 15
_MOST = 1 << 27  # values of a query that are held as a dense array
_MIDNIGHT = " 00:00:00+00:00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEARCHED = 50_000  # ids among which similar ones are looked for
OTHERS_FIXED = "The ranker looks at whole queries; the other documents of this one are held fixed."


class ExplainedDocument(NamedTuple):
    """A document of the query that is explained."""

    name: str
    score: float
    place: int
    """In the ranking, from 1."""


class AskedQuery:
    """One query as a ranker sees it: dense features in the columns of training, scores, and the order they give."""

    def __init__(self, ranker: Ranker, data: RankingData, qid: Any) -> None:
        check_is_fitted(ranker)
        if not isinstance(data, RankingData):
            raise DataError("Explanations need a RankingData, tr.RankingData(X, qid=qid): they speak of queries.")
        number = _query_number(data, qid)
        names = data.row_names
        rows = slice(*data.queries.offsets[number : number + 2].tolist())
        part = ranker.translated(data.select([number]))
        if part.n_documents * part.n_features > _MOST:
            raise DataError(
                f"Query {data.qids[number]} has {part.n_documents:,} documents with {part.n_features:,} features, too "
                "many values to be explained at once; keep some of its documents: data.keep(mask)."
            )
        self.ranker, self.data = ranker, data
        self.qid = str(data.qids[number])
        self.X = dense_rows(part.X)
        self.part = with_rows(part, self.X)
        self.features = feature_names(ranker, data)
        self.names = [str(name) for name in names[rows].tolist()]
        self.scores: FloatArray = np.asarray(ranker.predict(self.part))
        self.order = ranking(self.scores, self.part.queries, None).order.tolist()
        self.places = {row: place for place, row in enumerate(self.order, start=1)}

    def document(self, row: int) -> ExplainedDocument:
        """A row of the query."""
        return ExplainedDocument(self.names[row], float(self.scores[row]), self.places[row])

    def row_of(self, document: Any) -> int:
        """The row of a document, by its id, or its row in the data where documents have no ids."""
        document_id = str(document)
        rows = [row for row, name in enumerate(self.names) if name == document_id]
        if not rows:
            raise DataError(_absent("document", document_id, self.names, f"in query {self.qid}"))
        if len(rows) > 1:
            raise DataError(f"Query {self.qid} has {len(rows)} documents called '{document_id}'; give each its own id.")
        return rows[0]

    def pair(self, a: Any, b: Any) -> tuple[int, int]:
        """Two different rows; None stands for the first of the ranking, and for the next after the other."""
        if len(self.names) < 2:
            raise DataError(f"Query {self.qid} has one document, which stands above no other; explain another query.")
        second = None if b is None else self.row_of(b)
        first = next(row for row in self.order if row != second) if a is None else self.row_of(a)
        if second is None:
            place = self.places[first]
            second = self.order[place] if place < len(self.order) else self.order[place - 2]
        if first == second:
            raise DataError(f"'{self.names[first]}' was given twice; name two different documents.")
        return first, second

    def shown(self, row: int, feature: int) -> str:
        """A value as it stands in the user's table."""
        return cells(self.part, feature, self.X[[row], feature])[0]

    @property
    def caveats(self) -> tuple[str, ...]:
        """What is to be said of every explanation of this query."""
        return (OTHERS_FIXED,) if self.ranker.sees_queries else ()


def _query_number(data: RankingData, qid: Any) -> int:
    if qid is None:
        if data.n_queries > 1:
            raise DataError(f"These data have {data.n_queries:,} queries; name the one to explain by its qid.")
        return 0
    qids = data.qids.astype(str)
    places = np.flatnonzero(qids == str(qid))
    if not len(places):
        raise DataError(_absent("query", str(qid), qids.tolist(), "in these data"))
    return int(places[0])


def _absent(kind: str, wanted: str, ids: Sequence[str], where: str) -> str:
    """That there is no such id, and some that are like it."""
    close = difflib.get_close_matches(wanted, ids[:_SEARCHED], n=3, cutoff=0.5)
    some = ", ".join(f"'{name}'" for name in (close or ids[:3]))
    more = "" if close or len(ids) <= 3 else " …"
    return f"There is no {kind} '{wanted}' {where}; " + (
        f"did you mean {some}?" if close else f"there are {some}{more}."
    )


def feature_names(ranker: Ranker, data: RankingData) -> tuple[str, ...]:
    """What the features are called; without names they are numbered as in LETOR's files."""
    names = getattr(ranker, "feature_names_in_", data.feature_names)
    if names is not None:
        return tuple(str(name) for name in names)
    first = 1 if data.first_feature_id is None else data.first_feature_id
    return tuple(f"feature {first + column}" for column in range(ranker.n_features_in_))


def cells(data: RankingData, feature: int, values: FloatArray) -> list[str]:
    """Stored numbers as they stand in the user's table."""
    column = None if data.encoding is None else data.encoding.columns[feature]
    if column is None or column.kind == "number":
        return ["missing" if math.isnan(value) else f"{value:.6g}" for value in values.tolist()]
    return ["missing" if math.isnan(value) else _cell(column, value) for value in values.tolist()]


def _cell(column: Column, value: float) -> str:
    if column.is_category:
        return column.levels[int(value)]
    span = timedelta(days=value)
    return str(_EPOCH + span).removesuffix(_MIDNIGHT) if column.kind == "date" else str(span)


def signed(value: float) -> str:
    """A number that shows its sign, in three significant digits.

    >>> signed(0.81234), signed(-0.5), signed(0.0)
    ('+0.812', '−0.5', '0')
    """
    return "0" if value == 0 else f"{'−' if value < 0 else '+'}{abs(value):.3g}"


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """What each feature contributes to the score of document `a` less that of document `b`.

    Attributes:
        query: The id of the query.
        a, b: The documents: name, score, place in the ranking.
        features: The names of all features.
        values: What each contributes; their sum is `total`.
        errors: The standard error of each, where they are estimates; None where they are exact.
        a_values, b_values: The values of the features, as they stand in the table.
        method: How the contributions were found.
        caveats: Further sentences.
    """

    query: str
    a: ExplainedDocument
    b: ExplainedDocument
    features: tuple[str, ...]
    values: FloatArray
    errors: FloatArray | None
    a_values: tuple[str, ...]
    b_values: tuple[str, ...]
    method: str
    caveats: tuple[str, ...] = ()
    said: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """What the values of a and b say in words, for features that are made of words."""

    @property
    def total(self) -> float:
        """The score of a less that of b."""
        return self.a.score - self.b.score

    @property
    def contributions(self) -> dict[str, float]:
        """What each feature contributes, by name, the largest first."""
        return {self.features[i]: float(self.values[i]) for i in self._order(everything=True)}

    def _order(self, everything: bool = False) -> list[int]:
        """The features, the largest contribution first; without those that contribute nothing, unless all are asked."""
        sizes = np.abs(self.values)
        # Columns that are alike count alike but for rounding, which is another on other machines.
        order = np.argsort(-np.round(sizes / (sizes.max(initial=0.0) or 1.0), 9), kind="stable")
        return [i for i in order.tolist() if everything or self.values[i] != 0]

    @property
    def summary(self) -> str:
        """What it comes to."""

        def because(which: list[int]) -> str:
            phrases = [
                f"{self.features[i]} {'' if place else 'counts '}{signed(self.values[i])} ({self._against(i)})"
                for place, i in enumerate(which[:_NAMED])
            ]
            more = f" and {len(which) - _NAMED} more" if len(which) > _NAMED else ""
            return ", ".join(phrases) + more

        order = self._order()
        support, oppose = [i for i in order if self.values[i] > 0], [i for i in order if self.values[i] < 0]
        a, b = self.a.name, self.b.name
        if self.total and not (support if self.total > 0 else oppose):
            return f"{a} stands {'above' if self.total > 0 else 'below'} {b} by the rounding of the scores alone."
        if self.total > 0:
            head = f"{a} stands above {b} because {because(support)}"
            return head + (f"; against it: {because(oppose)}." if oppose else ".")
        if self.total < 0:
            head = f"{a} stands below {b} because {because(oppose)}"
            return head + (f"; for it: {because(support)}." if support else ".")
        if not order:
            return f"{a} and {b} have the same score: no feature makes a difference."
        return f"{a} and {b} have the same score: {because(support)} and {because(oppose)} balance each other."

    def _against(self, i: int) -> str:
        """What both documents have of a feature: their values, or what these say in words."""
        of_a, of_b = self.said.get(self.features[i], (None, None))
        if of_a is not None and of_b is not None:
            return f"{self.a.name}: {of_a}; {self.b.name}: {of_b}"
        return f"{self.a_values[i]} against {self.b_values[i]}"

    def _parts(self) -> Sequence[Part]:
        a, b, order = self.a, self.b, self._order()
        heading = (
            f"Query {self.query}: {a.name} (place {a.place}, score {a.score:.4g}) against {b.name} (place {b.place}, "
            f"score {b.score:.4g}), a difference of {signed(self.total)}."
        )
        header = ["feature", a.name, b.name, "contribution", *(["± error"] if self.errors is not None else [])]
        rows = []
        for i in order:
            error = [] if self.errors is None else [f"{self.errors[i]:.2g}"]
            rows.append((self.features[i], self.a_values[i], self.b_values[i], signed(self.values[i]), *error))
        table = Table(tuple(header), rows, names=1)
        silent = len(self.features) - len(order)
        note = f"Contributions sum to the difference of the scores ({self.method})."
        if silent:
            verb = "makes" if silent == 1 else "make"
            note += f" {silent} of {len(self.features)} features {verb} no difference between the two."
        return [heading, self.summary, *([table] if rows else []), note, *self.caveats]

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each feature, the largest contribution first."""
        return frame_of(self._columns(), kind)

    def _columns(self) -> dict[str, list[Any]]:
        order = self._order(everything=True)
        return {
            "feature": [self.features[i] for i in order],
            "a": [self.a_values[i] for i in order],
            "b": [self.b_values[i] for i in order],
            "contribution": [float(self.values[i]) for i in order],
            "error": [0.0 if self.errors is None else float(self.errors[i]) for i in order],
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        columns = self._columns()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {
            "query": self.query,
            "a": self.a._asdict(),
            "b": self.b._asdict(),
            "total": self.total,
            "summary": self.summary,
            "contributions": rows,
            "exact": self.errors is None,
            "method": self.method,
            "caveats": list(self.caveats),
        }

    def plot(self) -> Picture:
        """A bar for each of the features that count most: to the right where they speak for a."""
        error = np.zeros(len(self.values)) if self.errors is None else 2 * self.errors
        rows = [
            (
                self.features[i],
                f"{self.features[i]}: {signed(v)} ({self.a_values[i]} against {self.b_values[i]})",
                v, v - float(error[i]), v + float(error[i]),
            )
            for i, v in ((i, float(self.values[i])) for i in self._order()[:_DRAWN])
        ]  # fmt: skip
        name = f"Why {self.a.name} stands {'below' if self.total < 0 else 'above'} {self.b.name} in query {self.query}"
        return signed_bars(name, rows, "contribution to the difference of the scores")


def explained(query: AskedQuery, first: int, second: int, sampling: Sampling) -> Explanation:
    """Explain why one row of a query stands above another; see `Ranker.explain`."""
    terms = query.ranker.contributions(query.part, np.array([first]), np.array([second]), sampling)
    columns = range(len(query.features))
    a_values, b_values = (tuple(query.shown(row, j) for j in columns) for row in (first, second))
    return Explanation(
        query.qid,
        query.document(first),
        query.document(second),
        query.features,
        terms.values[0],
        None if terms.errors is None else terms.errors[0],
        a_values,
        b_values,
        terms.method,
        query.caveats,
        _in_words(query, a_values, b_values),
    )


def _in_words(
    query: AskedQuery, a_values: Sequence[str], b_values: Sequence[str]
) -> dict[str, tuple[str | None, str | None]]:
    """What the values say of the words that query and documents share."""
    text = query.ranker.text_
    if text is None:
        return {}
    rows = zip(query.features, a_values, b_values, strict=True)
    return {name: (text.sentence(name, a), text.sentence(name, b)) for name, a, b in rows if name in text.names}
