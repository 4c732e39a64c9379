"""Explanation of a query: contributions to the score of each document, and counterfactuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray
from toprank.data.arguments import check_whole
from toprank.data.dataset import RankingData
from toprank.display.pictures import Picture, signed_bars
from toprank.display.record import Record
from toprank.display.tables import Part, Table
from toprank.explanations.columns import FeatureColumns, signed
from toprank.explanations.explained_query import ExplainedDocument, ExplainedQuery, label
from toprank.explanations.feature_changes import Counterfactuals, row_counterfactuals
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import AdditiveTerms, Sampling

_MAX_BACKGROUND = 8  # background documents if contributions are estimated
_MAX_PAIRS = 1 << 16  # pairs of documents explained for trees, a few seconds
_MAX_PERMUTATIONS = 16  # sampled permutations per pair
_MAX_SCORED_DOCUMENTS = 1 << 19  # scored documents per estimate
_MAX_NAMED_FEATURES = 3  # features per document in the table
_MAX_ROWS = 20  # documents in the table
_MAX_BARS = 15  # bars of the plot


@dataclass(frozen=True, repr=False)
class QueryExplanation(Record):
    """Contributions of the features to the deviation of each document's score from the mean score.

    Attributes:
        query: Id of the query.
        documents: Documents in the order of the ranking.
        features: Names of all features.
        values: Contributions, shape (documents, features); a row sums to the score minus `mean`.
        errors: Standard errors of estimated contributions, or None if they are exact.
        mean: Mean score of the background documents.
        against: Description of the background documents.
        method: Method that computed the contributions.
        changes: Counterfactuals of neighboring documents at the top of the ranking.
        caveats: Remarks on the result, as sentences.
        query_text: Text of the query; empty if the data have no texts.
    """

    query: str
    documents: tuple[ExplainedDocument, ...]
    features: tuple[str, ...]
    values: FloatArray
    errors: FloatArray | None
    mean: float
    against: str
    method: str
    changes: tuple[Counterfactuals, ...] = ()
    caveats: tuple[str, ...] = ()
    query_text: str = ""

    json_names: ClassVar = {"_documents": "documents"}
    json_hidden: ClassVar = frozenset({"documents", "features", "values", "errors"})
    json_properties: ClassVar = ("summary", "_documents", "exact")

    @property
    def exact(self) -> bool:
        """True if the contributions are exact, not estimates."""
        return self.errors is None

    def contributions(self, document: Any) -> dict[str, float]:
        """Return the contributions to a document by feature, the largest first."""
        row = next((i for i, entry in enumerate(self.documents) if entry.name == str(document)), None)
        if row is None:
            raise KeyError(str(document))
        return {self.features[j]: float(self.values[row, j]) for j in _largest(self.values[row])}

    def _moved(self, row: int) -> str:
        which = [j for j in _largest(self.values[row]) if self.values[row, j] != 0][:_MAX_NAMED_FEATURES]
        return ", ".join(f"{self.features[j]} {signed(self.values[row, j])}" for j in which) or "nothing"

    def _heading(self) -> str:
        return (
            f"Query {label(self.query, self.query_text)}: contributions to the scores of its "
            f"{len(self.documents):,} documents."
        )

    @property
    def summary(self) -> str:
        """The first document and its main contributions, as a sentence."""
        return f"{self._heading()} {self.documents[0].label} ranks first: {self._moved(0)}."

    def _parts(self) -> Sequence[Part]:
        rows = [
            (
                str(document.place),
                document.label,
                self._moved(i),
                f"{document.score:.4g}",
                signed(document.score - self.mean),
            )
            for i, document in enumerate(self.documents[:_MAX_ROWS])
        ]
        table = Table(("rank", "document", "contributions", "score", "minus mean"), rows, names=3)
        left = len(self.documents) - _MAX_ROWS
        sums = (
            f"Contributions sum to the score minus {self.mean:.4g}, {self.against} ({self.method})."
            + (f" to_frame() lists {left:,} more documents." if left > 0 else "")
        )  # fmt: skip
        return [self._heading(), table, sums, tuple(change.summary for change in self.changes), *self.caveats]

    def _columns(self) -> dict[str, list[Any]]:
        """Return one row per document and feature."""
        n, d = self.values.shape
        errors = np.zeros((n, d)) if self.errors is None else self.errors
        spread = [document for document in self.documents for _ in range(d)]
        return {
            "place": [document.place for document in spread],
            "document": [document.name for document in spread],
            "score": [document.score for document in spread],
            "feature": list(self.features) * n,
            "contribution": self.values.ravel().tolist(),
            "error": errors.ravel().tolist(),
        }

    @property
    def _documents(self) -> list[dict[str, Any]]:
        return [
            {**document._asdict(), "contributions": dict(zip(self.features, self.values[i].tolist(), strict=True))}
            for i, document in enumerate(self.documents)
        ]

    def plot(self, document: Any = None) -> Picture:
        """Plot the contributions to a document; None selects the first of the ranking."""
        name = self.documents[0].name if document is None else str(document)
        moved = self.contributions(name)
        rows = [
            (feature, f"{feature}: {signed(v)}", v, v, v) for feature, v in list(moved.items())[:_MAX_BARS] if v != 0
        ]
        return signed_bars(f"Contributions to {name} in query {self.query}", rows, "contribution to score minus mean")


def _largest(values: FloatArray) -> list[int]:
    order: list[int] = np.argsort(-np.abs(values), kind="stable").tolist()
    return order


def explain_query(
    ranker: Ranker, data: RankingData, qid: Any = None, *, top: int = 5, seed: int = 0
) -> QueryExplanation:
    """Explain the score of each document of a query, and find counterfactuals for the top of its ranking.

    The contributions to a document are averages of `Ranker.explain` against all documents of the query, including
    itself. They sum to its score minus the mean score, and the contributions of a feature sum to 0 over the documents.
    Estimated contributions use at most 8 sampled background documents, and trees sample the background documents of
    queries with more than 256 documents.

    Args:
        ranker: fitted ranker.
        data: data that contain the query.
        qid: id of the query. None (default) if the data have only one query.
        top: number of top ranks for which counterfactuals with the next document are computed. Default 5.
        seed: seed of the samples.

    >>> import toprank as tr
    >>> data = tr.RankingData([[3.0], [1.0], [2.0]], [2, 0, 1], feature_names=["sales"])
    >>> explanation = tr.explanations.explain_query(tr.LinearRanker("ListNet").fit(data), data)
    >>> [document.name for document in explanation.documents], explanation.values[1].tolist()
    (['0', '2', '1'], [0.0])
    """
    check_whole("top", top, 0)
    explained = ExplainedQuery(ranker, data, qid)
    order, n = np.array(explained.order), len(explained.order)
    against, words = order, "the mean of all documents of the query"
    if n > (most := _backgrounds(ranker, n)):
        against = np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
        words = f"the mean of {most} documents of the query, sampled with seed {seed}"
    cost = n * len(against) * (len(explained.features) + 1) * (n if ranker.uses_query_context else 1)
    sampling = Sampling(min(max(_MAX_SCORED_DOCUMENTS // cost, 4), _MAX_PERMUTATIONS), seed).checked()
    terms = ranker.contributions(explained.part, order, against, sampling)
    columns = FeatureColumns(ranker, ranker.translated(data))
    lifts = [
        row_counterfactuals(explained, explained.order[i], explained.order[i + 1], columns)
        for i in range(min(top, n - 1))
    ]
    return QueryExplanation(
        query=explained.qid,
        documents=tuple(explained.document(row) for row in explained.order),
        features=explained.features,
        values=terms.values,
        errors=terms.errors,
        mean=float(explained.scores[against].mean()),
        against=words,
        method=terms.method,
        changes=tuple(lifts),
        caveats=explained.caveats,
        query_text=explained.text,
    )


def _backgrounds(ranker: Ranker, n: int) -> int:
    """Return the maximum number of background documents; additive rankers use all n at no extra cost."""
    if not ranker.explains_exactly:
        return _MAX_BACKGROUND
    return n if isinstance(ranker, AdditiveTerms) else max(_MAX_BACKGROUND, _MAX_PAIRS // n)
