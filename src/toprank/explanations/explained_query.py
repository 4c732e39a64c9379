"""The query that is explained, as a ranker sees it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData, dense_rows
from toprank.errors import DataError, refuse_if
from toprank.explanations.columns import cells, feature_names
from toprank.metrics.sorting import ranking
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import with_rows
from toprank.rankers.estimator import check_is_fitted

_MAX_VALUES = 1 << 27  # values of a query that are held as a dense array
_MAX_SEARCHED_IDS = 50_000  # ids among which similar ones are looked for
OTHERS_FIXED = "The ranker looks at whole queries; the other documents of this one are held fixed."


class ExplainedDocument(NamedTuple):
    """A document of the query that is explained."""

    name: str
    score: float
    place: int
    """In the ranking, from 1."""


class ExplainedQuery:
    """One query as a ranker sees it: dense features in the columns of training, scores, and the order they give."""

    def __init__(self, ranker: Ranker, data: RankingData, qid: Any) -> None:
        check_is_fitted(ranker)
        if not isinstance(data, RankingData):
            raise DataError("Explanations need a RankingData, tr.RankingData(X, qid=qid): they speak of queries.")
        number = _query_number(data, qid)
        names = data.row_names
        rows = slice(*data.queries.offsets[number : number + 2].tolist())
        part = ranker.translated(data.select([number]))
        if part.n_documents * part.n_features > _MAX_VALUES:
            raise DataError(
                f"Query {data.qids[number]} has {part.n_documents:,} documents with {part.n_features:,} features, too "
                "many values to be explained at once; keep some of its documents: data.filter(mask)."
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
        refuse_if(
            len(self.names) < 2,
            f"Query {self.qid} has one document, which stands above no other; explain another query.",
        )
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
        return (OTHERS_FIXED,) if self.ranker.uses_query_context else ()


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
    close = difflib.get_close_matches(wanted, ids[:_MAX_SEARCHED_IDS], n=3, cutoff=0.5)
    some = ", ".join(f"'{name}'" for name in (close or ids[:3]))
    more = "" if close or len(ids) <= 3 else " …"
    return f"There is no {kind} '{wanted}' {where}; " + (
        f"did you mean {some}?" if close else f"there are {some}{more}."
    )
