"""A whole query: what moved each document, and what would change the order."""

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
from toprank.explanations.explained_query import ExplainedDocument, ExplainedQuery
from toprank.explanations.feature_changes import Counterfactuals, counterfactuals_of
from toprank.rankers.base import Ranker
from toprank.rankers.contributions import AdditiveTerms, Sampling

_BACKGROUNDS = 8  # documents that each is compared with where contributions are estimated
_PAIRS = 1 << 16  # of documents that trees are explained about: some seconds
_PERMUTATIONS = 16  # at most, of each pair
_SCORED = 1 << 19  # documents that an estimate for a query may score
_NAMED = 3  # features that moved a document, in the table
_SHOWN = 20  # documents of the table
_DRAWN = 15  # features of the picture


@dataclass(frozen=True, repr=False)
class QueryExplanation(Record):
    """What moved each document of a query away from the mean score of those that it is compared with.

    Attributes:
        query: The id of the query.
        documents: The documents in the order of the ranking.
        features: The names of all features.
        values: What each feature contributes to the score less `mean`, (documents, features); a row sums to all of it.
        errors: The standard errors of estimated contributions; None if they are exact.
        mean: The mean score of the documents that all are compared with.
        against: Which documents these are, in words.
        method: How the contributions were computed.
        changes: What would lift a document above the one before it, for the first places.
        caveats: Further sentences.
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

    json_names: ClassVar = {"_documents": "documents"}
    json_hidden: ClassVar = frozenset({"documents", "features", "values", "errors"})
    json_properties: ClassVar = ("summary", "_documents", "exact")

    @property
    def exact(self) -> bool:
        """Whether the contributions are exact, not estimates."""
        return self.errors is None

    def contributions(self, document: Any) -> dict[str, float]:
        """Return what moved a document, by feature, the largest contribution first."""
        row = next((i for i, entry in enumerate(self.documents) if entry.name == str(document)), None)
        if row is None:
            raise KeyError(str(document))
        return {self.features[j]: float(self.values[row, j]) for j in _largest(self.values[row])}

    def _moved(self, row: int) -> str:
        which = [j for j in _largest(self.values[row]) if self.values[row, j] != 0][:_NAMED]
        return ", ".join(f"{self.features[j]} {signed(self.values[row, j])}" for j in which) or "nothing"

    def _heading(self) -> str:
        return f"Query {self.query}: what moved its {len(self.documents):,} documents away from the mean score."

    @property
    def summary(self) -> str:
        """What stands first, and what moved it there."""
        return f"{self._heading()} {self.documents[0].name} stands first, moved by {self._moved(0)}."

    def _parts(self) -> Sequence[Part]:
        rows = [
            (
                str(document.place),
                document.name,
                self._moved(i),
                f"{document.score:.4g}",
                signed(document.score - self.mean),
            )
            for i, document in enumerate(self.documents[:_SHOWN])
        ]
        table = Table(("place", "document", "moved by", "score", "less mean"), rows, names=3)
        left = len(self.documents) - _SHOWN
        sums = (
            f"Contributions sum to the score less {self.mean:.4g}, {self.against} ({self.method})."
            + (f" {left:,} more documents are not shown; to_frame() has them." if left > 0 else "")
        )  # fmt: skip
        return [self._heading(), table, sums, tuple(change.summary for change in self.changes), *self.caveats]

    def _columns(self) -> dict[str, list[Any]]:
        """Return a row for each document and feature."""
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
        """Draw what moved a document; None: the first of the ranking."""
        name = self.documents[0].name if document is None else str(document)
        moved = self.contributions(name)
        rows = [(name, f"{name}: {signed(v)}", v, v, v) for name, v in list(moved.items())[:_DRAWN] if v != 0]
        return signed_bars(f"What moved {name} in query {self.query}", rows, "contribution to the score less the mean")


def _largest(values: FloatArray) -> list[int]:
    order: list[int] = np.argsort(-np.abs(values), kind="stable").tolist()
    return order


def explain_query(
    ranker: Ranker, data: RankingData, qid: Any = None, *, top: int = 5, seed: int = 0
) -> QueryExplanation:
    """Tell what moved each document of a query, and what would change the order of the first ones.

    The contributions to a document are the mean of those of `Ranker.explain` against all documents of the query, itself
    included. So they sum to its score less the mean score, and those of a feature sum to 0 over the documents. If they
    have to be estimated, all documents are compared with at most 8 of the query, drawn by `seed`. In a query of
    more than 256 documents, trees compare all of them with some of them, also drawn by `seed`.

    Args:
        ranker: a fitted ranker.
        data: a `RankingData` that holds the query.
        qid: the id of the query; None: the only one.
        top: for how many of the first places to tell what would lift the next document above them.
        seed: the seed of what is drawn.

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
        words = f"the mean of {most} documents of the query, drawn by seed {seed}"
    cost = n * len(against) * (len(explained.features) + 1) * (n if ranker.uses_query_context else 1)
    sampling = Sampling(min(max(_SCORED // cost, 4), _PERMUTATIONS), seed).checked()
    terms = ranker.contributions(explained.part, order, against, sampling)
    columns = FeatureColumns(ranker, ranker.translated(data))
    lifts = [
        counterfactuals_of(explained, explained.order[i], explained.order[i + 1], columns)
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
    )


def _backgrounds(ranker: Ranker, n: int) -> int:
    """Return how many of n documents all are compared with at most; a sum of terms costs the same for any number."""
    if not ranker.explains_exactly:
        return _BACKGROUNDS
    return n if isinstance(ranker, AdditiveTerms) else max(_BACKGROUNDS, _PAIRS // n)
