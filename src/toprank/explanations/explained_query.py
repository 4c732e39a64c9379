"""A query with the features and scores of a ranker, as the basis of its explanations."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData, dense_rows
from toprank.data.texts import document_titles, query_texts
from toprank.display.svg import shortened
from toprank.errors import DataError, refuse_if
from toprank.explanations.columns import cells, feature_names
from toprank.metrics.sorting import ranking
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import with_rows
from toprank.rankers.estimator import check_is_fitted

_MAX_VALUES = 1 << 27  # maximum size of the dense feature matrix of a query
_MAX_TEXT_CHARACTERS = 60  # of a query text or title
_MAX_SEARCHED_IDS = 50_000  # ids that are searched for close matches
OTHERS_FIXED = "The ranker scores whole queries; the other documents of this query are held fixed."


class ExplainedDocument(NamedTuple):
    """A document of the explained query."""

    name: str
    score: float
    place: int
    """Rank of the document, from 1."""
    title: str = ""
    """First text of the document; empty if the data have no texts."""

    @property
    def label(self) -> str:
        """The id with the title, shortened."""
        return label(self.name, self.title)


def label(name: str, text: str) -> str:
    """Return an id followed by its text in quotes, shortened.

    >>> label("p1", "red  shoes"), label("p2", "")
    ("p1 'red shoes'", 'p2')
    """
    words = " ".join(text.split())
    return f"{name} '{shortened(words, _MAX_TEXT_CHARACTERS)}'" if words else name


class ExplainedQuery:
    """One query with its dense features in the training layout, its scores and its ranking."""

    def __init__(self, ranker: Ranker, data: RankingData, qid: Any) -> None:
        check_is_fitted(ranker)
        if not isinstance(data, RankingData):
            raise DataError("Explanations need a RankingData with queries: tr.RankingData(X, qid=qid).")
        number = _query_number(data, qid)
        names = data.row_names
        rows = slice(*data.queries.offsets[number : number + 2].tolist())
        selected = data.select([number])
        texts, titles = query_texts(selected), document_titles(selected)
        self.text = "" if texts is None else str(texts[0])
        self._titles = None if titles is None else [str(title) for title in titles.tolist()]
        part = ranker.translated(selected)
        if part.n_documents * part.n_features > _MAX_VALUES:
            raise DataError(
                f"Query {data.qids[number]} has {part.n_documents:,} documents with {part.n_features:,} features, too "
                "many to explain; keep some of its documents: data.filter(mask)."
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
        """Return the document of a row of the query."""
        title = "" if self._titles is None else self._titles[row]
        return ExplainedDocument(self.names[row], float(self.scores[row]), self.places[row], title)

    def row_of(self, document: Any) -> int:
        """Return the row of a document, given by its id, or by its row in the data if documents have no ids."""
        document_id = str(document)
        rows = [row for row, name in enumerate(self.names) if name == document_id]
        if not rows:
            raise DataError(_absent("document", document_id, self.names, f"in query {self.qid}"))
        if len(rows) > 1:
            raise DataError(f"Query {self.qid} has {len(rows)} documents with id '{document_id}'; ids must be unique.")
        return rows[0]

    def pair(self, a: Any, b: Any) -> tuple[int, int]:
        """Return two different rows; None selects the first of the ranking, or the one after the other document."""
        refuse_if(
            len(self.names) < 2,
            f"Query {self.qid} has only one document, so it has no pairs; explain another query.",
        )
        second = None if b is None else self.row_of(b)
        first = next(row for row in self.order if row != second) if a is None else self.row_of(a)
        if second is None:
            place = self.places[first]
            second = self.order[place] if place < len(self.order) else self.order[place - 2]
        if first == second:
            raise DataError(f"'{self.names[first]}' was passed twice; name two different documents.")
        return first, second

    def shown(self, row: int, feature: int) -> str:
        """Return a value in the text form of the user's table."""
        return cells(self.part, feature, self.X[[row], feature])[0]

    @property
    def caveats(self) -> tuple[str, ...]:
        """Remarks that apply to every explanation of this query."""
        return (OTHERS_FIXED,) if self.ranker.uses_query_context else ()


def _query_number(data: RankingData, qid: Any) -> int:
    if qid is None:
        if data.n_queries > 1:
            raise DataError(f"The data have {data.n_queries:,} queries; pass the qid of the query to explain.")
        return 0
    qids = data.qids.astype(str)
    places = np.flatnonzero(qids == str(qid))
    if not len(places):
        raise DataError(_absent("query", str(qid), qids.tolist(), "in these data"))
    return int(places[0])


def _absent(kind: str, wanted: str, ids: Sequence[str], where: str) -> str:
    """Return the message that an id does not exist, with similar ids."""
    close = difflib.get_close_matches(wanted, ids[:_MAX_SEARCHED_IDS], n=3, cutoff=0.5)
    some = ", ".join(f"'{name}'" for name in (close or ids[:3]))
    more = "" if close or len(ids) <= 3 else " …"
    return f"The {kind} '{wanted}' does not exist {where}; " + (
        f"did you mean {some}?" if close else f"existing ids: {some}{more}."
    )
