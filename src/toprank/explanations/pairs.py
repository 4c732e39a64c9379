"""Explanation of the order of two documents, as text, table, plot and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from toprank.compute import FloatArray
from toprank.display.pictures import Picture, signed_bars
from toprank.display.record import Record
from toprank.display.tables import Part, Table, json_rows
from toprank.explanations.columns import signed
from toprank.explanations.explained_query import ExplainedDocument, ExplainedQuery, label
from toprank.rankers.contributions import Sampling

_MAX_NAMED = 3  # features named in a sentence
_MAX_BARS = 15  # bars of the plot


@dataclass(frozen=True, repr=False)
class Explanation(Record):
    """Contributions of the features to the difference of the scores of document `a` and document `b`.

    Attributes:
        query: Id of the query.
        a: First document, with its name, score and rank.
        b: Second document.
        features: Names of all features.
        values: Contribution of each feature; they sum to `total`.
        errors: Standard errors of estimated contributions, or None if they are exact.
        a_values: Feature values of `a`, in the text form of the user's table.
        b_values: Feature values of `b`, in the same form.
        method: Method that computed the contributions.
        caveats: Remarks on the result, as sentences.
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
    """Descriptions of the values of a and b, for features computed from text."""
    query_text: str = ""
    """Text of the query; empty if the data have no texts."""

    json_names: ClassVar = {"_rows": "contributions"}
    json_hidden: ClassVar = frozenset({"features", "values", "errors", "a_values", "b_values", "said"})
    json_properties: ClassVar = ("total", "summary", "_rows", "exact")

    @property
    def total(self) -> float:
        """Score of a minus score of b."""
        return self.a.score - self.b.score

    @property
    def exact(self) -> bool:
        """True if the contributions are exact, not estimates."""
        return self.errors is None

    @property
    def contributions(self) -> dict[str, float]:
        """Contribution of each feature by name, the largest first."""
        return {self.features[i]: float(self.values[i]) for i in self._order(everything=True)}

    def _order(self, everything: bool = False) -> list[int]:
        """Return the features by decreasing contribution, without zero contributions unless `everything`."""
        sizes = np.abs(self.values)
        # Round, so that ties between equal columns do not depend on the rounding errors of the machine.
        order = np.argsort(-np.round(sizes / (sizes.max(initial=0.0) or 1.0), 9), kind="stable")
        return [i for i in order.tolist() if everything or self.values[i] != 0]

    @property
    def summary(self) -> str:
        """Order of the two documents and the main reasons, as a sentence."""

        def because(which: list[int]) -> str:
            phrases = [
                f"{self.features[i]} {'' if place else 'counts '}{signed(self.values[i])} ({self._against(i)})"
                for place, i in enumerate(which[:_MAX_NAMED])
            ]
            more = f" and {len(which) - _MAX_NAMED} more" if len(which) > _MAX_NAMED else ""
            return ", ".join(phrases) + more

        order = self._order()
        support, oppose = [i for i in order if self.values[i] > 0], [i for i in order if self.values[i] < 0]
        a, b = self.a.label, self.b.label
        if self.total and not (support if self.total > 0 else oppose):
            return f"{a} ranks {'above' if self.total > 0 else 'below'} {b} only by rounding errors of the scores."
        if self.total > 0:
            head = f"{a} ranks above {b} because {because(support)}"
            return head + (f"; against it: {because(oppose)}." if oppose else ".")
        if self.total < 0:
            head = f"{a} ranks below {b} because {because(oppose)}"
            return head + (f"; for it: {because(support)}." if support else ".")
        if not order:
            return f"{a} and {b} have the same score: no feature makes a difference."
        return f"{a} and {b} have the same score: {because(support)} and {because(oppose)} balance each other."

    def _against(self, i: int) -> str:
        """Return the values of a feature in both documents, as numbers or as a description."""
        of_a, of_b = self.said.get(self.features[i], (None, None))
        if of_a is not None and of_b is not None:
            return f"{self.a.name}: {of_a}; {self.b.name}: {of_b}"
        return f"{self.a_values[i]} against {self.b_values[i]}"

    def _parts(self) -> Sequence[Part]:
        a, b, order = self.a, self.b, self._order()
        heading = (
            f"Query {label(self.query, self.query_text)}: {a.label} (rank {a.place}, score {a.score:.4g}) against "
            f"{b.label} (rank {b.place}, score {b.score:.4g}), a difference of {signed(self.total)}."
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

    def _columns(self) -> dict[str, list[Any]]:
        """Return one row per feature, the largest contribution first."""
        order = self._order(everything=True)
        return {
            "feature": [self.features[i] for i in order],
            "a": [self.a_values[i] for i in order],
            "b": [self.b_values[i] for i in order],
            "contribution": [float(self.values[i]) for i in order],
            "error": [0.0 if self.errors is None else float(self.errors[i]) for i in order],
        }

    @property
    def _rows(self) -> list[dict[str, Any]]:
        return json_rows(self._columns())

    def plot(self) -> Picture:
        """Plot the largest contributions as bars; bars to the right favor a."""
        error = np.zeros(len(self.values)) if self.errors is None else 2 * self.errors
        rows = [
            (
                self.features[i],
                f"{self.features[i]}: {signed(v)} ({self.a_values[i]} against {self.b_values[i]})",
                v, v - float(error[i]), v + float(error[i]),
            )
            for i, v in ((i, float(self.values[i])) for i in self._order()[:_MAX_BARS])
        ]  # fmt: skip
        name = f"Why {self.a.name} ranks {'below' if self.total < 0 else 'above'} {self.b.name} in query {self.query}"
        return signed_bars(name, rows, "contribution to the difference of the scores")


def explain_pair(query: ExplainedQuery, first: int, second: int, sampling: Sampling) -> Explanation:
    """Explain the order of two rows of a query; see `Ranker.explain`."""
    terms = query.ranker.contributions(query.part, np.array([first]), np.array([second]), sampling)
    columns = range(len(query.features))
    a_values, b_values = (tuple(query.shown(row, j) for j in columns) for row in (first, second))
    return Explanation(
        query=query.qid,
        a=query.document(first),
        b=query.document(second),
        features=query.features,
        values=terms.values[0],
        errors=None if terms.errors is None else terms.errors[0],
        a_values=a_values,
        b_values=b_values,
        method=terms.method,
        caveats=query.caveats,
        said=_in_words(query, a_values, b_values),
        query_text=query.text,
    )


def _in_words(
    query: ExplainedQuery, a_values: Sequence[str], b_values: Sequence[str]
) -> dict[str, tuple[str | None, str | None]]:
    """Return descriptions of the text features of both documents."""
    text = query.ranker.text_
    if text is None:
        return {}
    rows = zip(query.features, a_values, b_values, strict=True)
    return {name: (text.sentence(name, a), text.sentence(name, b)) for name, a, b in rows if name in text.names}
