"""What a metric reads off the labels: the part of it that does not depend on scores.

All metrics that can be taken apart here have the form Σ_j read_j · (something of the ranks) / normaliser of the query:
gains over the ideal DCG, relevance over the number of relevant documents, stopping probabilities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import Loss
from toprank.losses.judgments import Judgments
from toprank.metrics.binary import AP, RR
from toprank.metrics.gains import Discount, Gain
from toprank.metrics.graded import DCG, ERR, NDCG
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse

__all__ = ["Reading", "ideal_dcg", "readable", "reading_of", "refuse_long_queries", "worth_of"]


class Reading(NamedTuple):
    """A metric on labels."""

    kind: str
    """``dcg``, ``ap``, ``rr`` or ``err``."""
    reads: FloatArray
    """What the metric reads off each document."""
    inverse: FloatArray
    """1 / normaliser per query; 0 where the normaliser is 0."""
    rank_weights: FloatArray
    """The weight of the ranks 1, 2 … up to the longest query's; 0 beyond the metric's cut-off."""


def readable(metric: str | Measure, loss: Loss, why: str) -> Measure:
    """The metric, refused where it cannot be read in this way."""
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


def reading_of(measure: Measure, judgments: Judgments, gain: Any, ideal_cut: int | None = None) -> Reading:
    """Read the labels as the metric does.

    Args:
        measure: see `readable`.
        judgments: labels and queries.
        gain: gain of DCG and NDCG, unless the measure names its own.
        ideal_cut: where the ideal DCG ends, unless the measure has a cut-off.
    """
    discount = measure.discount or Discount.of("log2") if isinstance(measure, DCG) else Discount.of("reciprocal")
    rank_weights = discount.weights(int(judgments.queries.sizes.max()))
    if measure.depth is not None:
        rank_weights[measure.depth :] = 0.0
    reads, normaliser = _parts(measure, judgments, gain, rank_weights, ideal_cut)
    inverse = np.divide(1.0, normaliser, out=np.zeros(len(normaliser)), where=normaliser > 0)
    return Reading("dcg" if isinstance(measure, DCG) else measure.name, reads, inverse, rank_weights)


def _parts(
    measure: Measure, judgments: Judgments, gain: Any, rank_weights: FloatArray, ideal_cut: int | None
) -> tuple[FloatArray, FloatArray]:
    """What is read off each document, and what the metric divides by, per query."""
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
        grades, codes = np.unique(labels, return_inverse=True)
        return Gain.of("err").table(grades, top)[codes.reshape(-1)], np.ones(len(queries))
    threshold: float | None = getattr(measure, "rel", None)
    relevant = (labels >= (1.0 if threshold is None else threshold)).astype(np.float64)
    if not isinstance(measure, AP):
        return relevant, np.ones(len(queries))
    total = queries.sum(relevant)
    return relevant, total if measure.k is None or measure.norm != "min" else np.minimum(total, measure.k)


def worth_of(reading: Reading, judgments: Judgments) -> tuple[FloatArray, FloatArray]:
    """Per query 1, and per document read · weight / normaliser; both 0 where all documents look alike to the metric."""
    queries = judgments.queries
    speaking = queries.max(reading.reads) > queries.min(reading.reads)
    worth: FloatArray = reading.reads * queries.spread(np.where(speaking, reading.inverse, 0.0))
    return speaking.astype(np.float64), judgments.weighted(worth)


def refuse_long_queries(loss: Loss, limit: int, queries: Queries, why: str) -> None:
    """Refuse queries with more documents than the loss can afford."""
    if queries.sizes.max() > limit:
        query = int(np.argmax(queries.sizes))
        raise DataError(
            f"Query number {query} (from 0) has {queries.sizes[query]} documents, but {type(loss).__name__} takes at "
            f"most max_documents={limit}: its {why}. Cut the lists, raise max_documents, or use ApproxNDCG."
        )


def ideal_dcg(gains: FloatArray, queries: Queries, weights: FloatArray) -> FloatArray:
    """Per query Σ_j weights[j]·(the j-th largest gain); ranks beyond the weights count nothing.

    >>> ideal_dcg(np.array([1.0, 3.0, 7.0]), Queries([0, 2, 3]), np.array([1.0, 0.5])).tolist()
    [3.5, 7.0]
    """
    best_first = np.lexsort((-gains, queries.document_query))
    rank = np.arange(queries.n_documents) - queries.spread(queries.offsets[:-1])
    padded = np.append(weights, 0.0)
    return queries.sum(gains[best_first] * padded[np.minimum(rank, len(weights))])
