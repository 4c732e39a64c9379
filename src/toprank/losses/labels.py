"""Quantities that losses compute from labels: the terms of a metric, and regression targets.

Metrics here have the form Σ_j read_j · (a function of the ranks) / (a normalizer of the query), where read_j is a gain,
a relevance or a stopping probability, and the normalizer the ideal DCG or the number of relevant documents.

The target is t = G(y), a gain of the grade, or with ``gain=None`` the label itself, which may be negative. Targets in
[0, 1] are G(y)/G(max_grade), where `max_grade` is by default the largest label of the data, not of the query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import check_number
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import BoundLoss, Judgments, Loss
from toprank.metrics.binary import AP, RR
from toprank.metrics.conventions import Discount, Gain
from toprank.metrics.graded import DCG, ERR, NDCG
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse


class MetricTerms(NamedTuple):
    """The label-dependent terms of a metric."""

    kind: str
    """``dcg``, ``ap``, ``rr`` or ``err``."""
    reads: FloatArray
    """A gain, a relevance of 0 or 1, or a stopping probability for each document."""
    inverse: FloatArray
    """1 / normalizer for each query; 0 if the normalizer is 0."""
    discount: Discount
    """The metric's discount: ``log2`` by default; ``reciprocal`` for metrics in 1/rank."""
    rank_weights: FloatArray
    """Weight of the ranks 1, 2 … up to the longest query's; 0 beyond the cut-off of the metric."""


def readable(metric: str | Measure, loss: Loss, why: str) -> Measure:
    """Return the metric; raise an error if it does not have this form."""
    measure = parse(metric)
    if type(measure) not in (NDCG, DCG, AP, ERR, RR):
        raise DataError(
            f"{type(loss).__name__} {why}; it can do so for NDCG, DCG, MAP, ERR and MRR, not for '{measure}'."
        )
    if isinstance(measure, AP) and measure.norm == "hits":
        raise DataError(
            f"{type(loss).__name__} cannot divide AP by the hits within the cut-off, which change with the ranking "
            "(norm=hits); use norm=all or norm=min."
        )
    return measure


def metric_terms(measure: Measure, judgments: Judgments, gain: Any, ideal_cut: int | None = None) -> MetricTerms:
    """Return the label-dependent terms of a metric.

    Args:
        measure: the metric; see `readable`.
        judgments: labels and queries.
        gain: gain of DCG and NDCG, unless the measure names its own.
        ideal_cut: cut-off of the ideal DCG, unless the measure has one.
    """
    discount = (
        measure.discount or Discount.from_spec("log2") if isinstance(measure, DCG) else Discount.from_spec("reciprocal")
    )
    rank_weights = discount.weights(int(judgments.queries.sizes.max()))
    if measure.depth is not None:
        rank_weights[measure.depth :] = 0.0
    reads, normalizer = _parts(measure, judgments, gain, rank_weights, ideal_cut)
    inverse = np.divide(1.0, normalizer, out=np.zeros(len(normalizer)), where=normalizer > 0)
    return MetricTerms("dcg" if isinstance(measure, DCG) else measure.name, reads, inverse, discount, rank_weights)


def _parts(
    measure: Measure, judgments: Judgments, gain: Any, rank_weights: FloatArray, ideal_cut: int | None
) -> tuple[FloatArray, FloatArray]:
    """Return the metric's number for each document, and its normalizer for each query."""
    labels, queries = judgments.labels, judgments.queries
    if isinstance(measure, DCG):
        gains = judgments.gains(measure.gain or gain)
        if not isinstance(measure, NDCG):
            return gains, np.ones(len(queries))
        return gains, ideal_dcg(gains, queries, rank_weights[: ideal_cut if measure.k is None else None])
    if isinstance(measure, ERR):
        top = judgments.top_grade if measure.max_grade is None else measure.max_grade
        if labels.max() > top:
            raise DataError(f"ERR needs max_grade ≥ every label; max_grade is {top:g}, a label {labels.max():g}.")
        return judgments.gains("err", top), np.ones(len(queries))
    threshold: float | None = getattr(measure, "rel", None)
    relevant = (labels >= (1.0 if threshold is None else threshold)).astype(np.float64)
    if not isinstance(measure, AP):
        return relevant, np.ones(len(queries))
    total = queries.sum(relevant)
    return relevant, total if measure.k is None or measure.norm != "min" else np.minimum(total, measure.k)


def metric_weights(terms: MetricTerms, judgments: Judgments) -> tuple[FloatArray, FloatArray]:
    """Return 1 for each query, and read · weight / normalizer for each document; 0 if the labels do not affect the
    metric.
    """
    queries = judgments.queries
    differ = queries.max(terms.reads) > queries.min(terms.reads)
    worth: FloatArray = terms.reads * queries.broadcast(np.where(differ, terms.inverse, 0.0))
    return differ.astype(np.float64), judgments.weighted(worth)


def refuse_long_queries(loss: Loss, limit: int, queries: Queries, why: str, instead: str = "ApproxNDCG") -> None:
    """Raise an error for queries with more documents than the loss supports."""
    if queries.sizes.max() > limit:
        query = int(np.argmax(queries.sizes))
        raise DataError(
            f"Query number {query} (from 0) has {queries.sizes[query]:,} documents, but {type(loss).__name__} takes at "
            f"most max_documents={limit:,}: its {why}. Shorten the lists, raise max_documents, or use {instead}."
        )


def ideal_dcg(gains: FloatArray, queries: Queries, weights: FloatArray) -> FloatArray:
    """Return Σ_j weights[j]·(the j-th largest gain) for each query; ranks beyond the weights have weight 0.

    >>> ideal_dcg(np.array([1.0, 3.0, 7.0]), Queries([0, 2, 3]), np.array([1.0, 0.5])).tolist()
    [3.5, 7.0]
    """
    best_first = np.lexsort((-gains, queries.document_query))
    padded = np.append(weights, 0.0)
    return queries.sum(gains[best_first] * padded[np.minimum(queries.positions_in_query, len(weights))])


GainLike = Gain | str | Sequence[float] | Callable[[Any], Any] | None


def groups_of(
    labels: FloatArray, queries: Queries, order: IntArray | None = None
) -> tuple[IntArray, IntArray, IntArray]:
    """Sort the documents of each query by increasing label, or in a given `order`, and group equal labels.

    Returns:
        the order; the index of the group of each document in it, over all queries; the first document of each group.
    """
    query = queries.document_query
    order = np.lexsort((labels, query)) if order is None else order
    ordered = labels[order]
    is_new = np.r_[True, (query[1:] != query[:-1]) | (ordered[1:] != ordered[:-1])]
    return order, np.cumsum(is_new) - 1, np.flatnonzero(is_new)


def check_gain(gain: GainLike, max_grade: float | None) -> None:
    """Raise an error for an unknown gain, or a largest grade that is not a number."""
    if gain is not None:
        Gain.from_spec(gain)
    if max_grade is not None:
        check_number("max_grade", max_grade)


def targets_of(labels: FloatArray, gain: GainLike, top: float, unit: bool = False) -> FloatArray:
    """Return regression targets t = G(y), or the labels if `gain` is None; with `unit`, G(y)/G(top) in [0, 1].

    >>> targets_of(np.array([0.0, 1.0, 2.0]), "exponential", 2.0).tolist()
    [0.0, 1.0, 3.0]
    >>> targets_of(np.array([0.0, 1.0, 2.0]), "linear", 4.0, unit=True).tolist()
    [0.0, 0.25, 0.5]
    """
    if labels.max() > top:
        raise DataError(f"max_grade is {top:g}, but the labels go up to {labels.max():g}. Raise max_grade.")
    if gain is None:
        targets = labels.copy()
        if unit and not ((targets >= 0) & (targets <= 1)).all():
            raise DataError("With gain=None the labels are the targets, and here they must lie between 0 and 1.")
        return targets
    table = Gain.from_spec(gain)
    targets = table.table(labels, top)
    if unit:
        largest = float(table.table(np.array([top]), top)[0])
        if targets.max() > largest:
            raise DataError(f"The gain '{table}' decreases with the grade; targets in [0, 1] need an increasing gain.")
        targets = targets / (largest or 1.0)  # if the largest gain is 0, all targets are
    return targets


@dataclass(frozen=True)
class Targeted(Loss):
    """Base class of losses with a target for each document."""

    gain: GainLike = "exponential"
    max_grade: float | None = None
    per_document: bool = False
    _unit_targets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_gain(self.gain, self.max_grade)

    def targets(self, labels: FloatArray, top_grade: float) -> FloatArray:
        """Return the target of each label; `top_grade` is the largest label of the data."""
        top = top_grade if self.max_grade is None else self.max_grade
        return targets_of(labels, self.gain, top, self._unit_targets)


class BoundTargets(BoundLoss):
    """Targets and term weights of all documents."""

    def __init__(self, loss: Targeted, judgments: Judgments) -> None:
        super().__init__(judgments)
        self.targets = loss.targets(judgments.labels, judgments.top_grade)
        self.weights = judgments.term_weights(loss.per_document)
