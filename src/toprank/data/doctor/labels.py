"""What the data doctor says about labels, about the lists they make, and about the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.doctor.findings import Finding, examples_of, some

Mask = npt.NDArray[np.bool_]


def labels_findings(data: RankingData) -> Iterator[Finding]:
    """Unjudged documents; labels that are negative, not whole, very large, or all the same."""
    unjudged = int(np.count_nonzero(~data.judged))
    if unjudged:
        yield Finding(
            "unjudged",
            "note" if unjudged == data.n_documents else "warning",
            f"{some(unjudged, data.n_documents, 'document is', 'documents are')} not judged (label NaN or -1).",
            unjudged,
            (),
            "Say how to treat them when you evaluate: as not relevant, dropped, or as condensed lists.",
        )
    labels = data.labels[data.judged]
    if len(labels) == 0:
        return
    yield from _odd_labels(
        labels,
        labels < 0,
        "negative-labels",
        "problem",
        "is negative but not -1, so its gain is, too",
        "are negative but not -1, so their gains are, too",
        "Shift the grades so that the lowest is 0, or mark unjudged documents by NaN.",
    )
    yield from _odd_labels(
        labels,
        labels != np.floor(labels),
        "fractional-labels",
        "note",
        "is not a whole number",
        "are not whole numbers",
        "Real grades are legal here; LightGBM and XGBoost want whole ones, and binary metrics a threshold.",
    )
    yield from _odd_labels(
        labels,
        labels > 31,
        "large-labels",
        "warning",
        "is above 31, where the gain 2^y - 1 outgrows everything else",
        "are above 31, where the gain 2^y - 1 outgrows everything else",
        "Use a linear gain, or bring the grades to a scale such as 0 to 4.",
    )
    if labels.min() == labels.max():
        yield Finding(
            "one-grade",
            "problem",
            f"All judged documents have the label {labels[0]:g}, so every order is as good as any other.",
            len(labels),
            (),
            "Check that the right column was read as the label.",
        )


def _odd_labels(
    labels: FloatArray, odd: Mask, code: str, severity: Any, singular: str, plural: str, remedy: str
) -> Iterator[Finding]:
    count = int(np.count_nonzero(odd))
    if count:
        sentence = some(count, len(labels), f"label {singular}", f"labels {plural}") + "."
        values = np.unique(labels[odd])
        examples = examples_of(f"{value:g}" for value in values)
        yield Finding(code, severity, sentence, count, examples, remedy)


def queries_findings(data: RankingData, cutoffs: tuple[int, ...]) -> Iterator[Finding]:
    """Queries of one document, without anything relevant, with equal labels, shorter than a cut-off."""
    sizes = data.queries.sizes
    single = sizes == 1
    yield from _some_queries(
        data,
        single,
        "one-document-queries",
        "warning",
        "has a single document, which is always ranked perfectly",
        "have a single document, which is always ranked perfectly",
        "Leave them out of training and of means: they teach nothing and measure nothing.",
    )
    if data.judged.any():
        labels = np.where(data.judged, data.labels, np.nan)
        highest = data.queries.max(np.where(data.judged, labels, -np.inf))
        lowest = data.queries.min(np.where(data.judged, labels, np.inf))
        blank = highest <= 0
        yield from _some_queries(
            data,
            blank,
            "blank-queries",
            "warning",
            "has nothing relevant: no judged label is above 0",
            "have nothing relevant: no judged label is above 0",
            "Conventions differ on them: 0, 1, or left out of the mean; say which one you use.",
        )
        yield from _some_queries(
            data,
            (highest == lowest) & ~blank & ~single,
            "equal-labels",
            "note",
            "has the same label on all judged documents",
            "have the same label on all judged documents",
            "No ranker can do well or badly on them. Losses over pairs skip them; others, such as ListNet, learn "
            "equal scores from them.",
        )
    for cutoff in sorted(set(cutoffs)):
        yield from _some_queries(
            data,
            sizes < cutoff,
            "short-lists",
            "note",
            f"has fewer than {cutoff} documents",
            f"have fewer than {cutoff} documents",
            f"What a metric at {cutoff} means there depends on the convention: LETOR's scripts give 0, "
            "others cut at the list's end.",
        )


def _some_queries(
    data: RankingData, which: Mask, code: str, severity: Any, singular: str, plural: str, remedy: str
) -> Iterator[Finding]:
    count = int(np.count_nonzero(which))
    if count:
        sentence = some(count, data.n_queries, f"query {singular}", f"queries {plural}") + "."
        yield Finding(code, severity, sentence, count, examples_of(data.qids[which]), remedy)


def order_findings(data: RankingData, cutoff: int) -> Iterator[Finding]:
    """Whether the order of the rows is itself a ranking: constant scores in file order would then look good."""
    gains = _gains(data)
    if not gains.any() or data.queries.sizes.max() == 1:
        return
    in_file_order, at_random = _mean_ndcg(data, gains, cutoff)
    differences = in_file_order - at_random
    lead = differences.mean()
    error = differences.std() / np.sqrt(len(differences))
    if lead < 0.02 or lead < 4 * error:
        return
    yield Finding(
        "file-order",
        "warning",
        f"The rows lie in an order that is itself a ranking: equal scores evaluated in file order would get "
        f"NDCG@{cutoff} {in_file_order.mean():.2f}, in random order {at_random.mean():.2f}.",
        int(np.count_nonzero(differences > 0)),
        (),
        "Use a convention that does not break ties by row (standard does not), or shuffle the rows of each query.",
    )


def _gains(data: RankingData) -> FloatArray:
    """2^y - 1, linear where that would overflow, 0 for what is not judged or negative."""
    grades = np.where(data.judged, np.maximum(data.labels, 0), 0.0)
    return np.asarray(grades if grades.max() > 31 else np.exp2(grades) - 1)


def _mean_ndcg(data: RankingData, gains: FloatArray, cutoff: int) -> tuple[FloatArray, FloatArray]:
    """NDCG by query of the rows as they lie, and its mean over all orders; queries without gain left out."""
    queries = data.queries
    place = np.arange(data.n_documents) - queries.spread(queries.offsets[:-1])
    discount = np.where(place < cutoff, 1 / np.log2(place + 2.0), 0.0)
    best_first = np.lexsort((-gains, queries.document_query))
    ideal = queries.sum(gains[best_first] * discount)
    some_gain = ideal > 0
    at_random = queries.mean(gains) * queries.sum(discount)
    in_file_order = queries.sum(gains * discount)
    return in_file_order[some_gain] / ideal[some_gain], at_random[some_gain] / ideal[some_gain]
