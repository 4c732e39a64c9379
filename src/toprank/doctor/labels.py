"""What the data doctor says about labels, the lists they make, the order of rows, and where queries lie."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.bytesource import open_bytes
from toprank.data.dataset import RankingData
from toprank.doctor.features import Examined
from toprank.doctor.findings import Finding, examples_of, some
from toprank.errors import DataError, Remedy, joined
from toprank.metrics.evaluation import Judge
from toprank.metrics.gains import Gain
from toprank.metrics.graded import NDCG

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
    relative = data.without_features().replace(labels=gains / gains.max())  # NDCG does not mind, and sums stay finite
    judge = Judge(relative, NDCG(cutoff, gain=Gain.of("linear"), blank="skip"))
    in_file_order, at_random = judge.per_query(-np.arange(len(gains))), judge.per_query(np.zeros(len(gains)))
    some_gain = ~np.isnan(at_random)
    return in_file_order[some_gain], at_random[some_gain]


def between_findings(a: str, first: Examined, b: str, second: Examined) -> Iterator[Finding]:
    """What two splits share: queries, and documents with identical features."""
    shared = [] if _counted(first.data) and _counted(second.data) else _shared_ids(first.data, second.data)
    if shared:
        number = some(len(shared), second.data.n_queries, "query of", "queries of")
        verb = "occurs" if len(shared) == 1 else "occur"
        yield Finding(
            "shared-queries",
            "problem",
            f"{number} {b} {verb} in {a}, too.",
            len(shared),
            examples_of(shared),
            "Split by query, so that nothing is tested on what was trained on.",
        )
    if first.data.n_features != second.data.n_features:
        yield Finding(
            "different-widths",
            "problem",
            f"{a} has {first.data.n_features:,} features, {b} has {second.data.n_features:,}.",
            abs(first.data.n_features - second.data.n_features),
            (),
            "Read both with the same n_features.",
        )
        return
    present = second.scan.row_hash != 0  # rows of zeros say nothing
    known = np.isin(second.scan.row_hash, first.scan.row_hash) & present
    count = int(np.count_nonzero(known))
    if count:
        queries = np.unique(second.data.queries.document_query[known])
        yield Finding(
            "shared-documents",
            "warning",
            f"{some(count, second.data.n_documents, 'document of', 'documents of')} {b} "
            f"{'has' if count == 1 else 'have'} exactly the features of a document of {a}.",
            count,
            examples_of(f"query {second.data.qids[query]}" for query in queries),
            "If they are the same judgments, remove them from one split; else the features are coarse.",
        )


def _counted(data: RankingData) -> bool:
    """Whether the ids are only the numbers 0, 1, 2 … or 1, 2, 3 … that queries without ids get."""
    qids = data.qids
    return qids.dtype.kind == "i" and int(qids[0]) in (0, 1) and bool((np.diff(qids) == 1).all())


def _shared_ids(first: RankingData, second: RankingData) -> list[str]:
    known = {str(qid) for qid in first.qids.tolist()}
    return [str(qid) for qid in second.qids.tolist() if str(qid) in known]


def split_queries_finding(
    path: str | os.PathLike[str], name: str, data: RankingData, refusal: DataError, options: dict[str, Any]
) -> Finding:
    """That the rows of some queries are not neighbours; `refusal` is how the reader put it."""
    scattered = _scattered(_ids_by_row(path, options))
    number = some(len(scattered), data.n_queries, "query is", "queries are")
    line = getattr(refusal, "line", None)
    return Finding(
        "split-queries",
        "problem",
        f"{name}: {number} scattered, with rows of others between{f', first at line {line}' if line else ''}.",
        len(scattered),
        examples_of(scattered),
        joined(
            "Sort the rows by query, or read with",
            Remedy("regroup=True,", "--regroup,"),
            "as was done for the rest of this report.",
        ),
    )


def _scattered(row_ids: list[str]) -> list[str]:
    """The ids that come back after another one, in the order in which they first do."""
    seen: set[str] = set()
    again: dict[str, None] = {}
    previous = None
    for qid in row_ids:
        if qid != previous and qid in seen:
            again[qid] = None
        seen.add(qid)
        previous = qid
    return list(again)


def _ids_by_row(path: str | os.PathLike[str], options: dict[str, Any]) -> list[str]:
    """The query id of every row, as the file has it."""
    from toprank.data.files import format_of

    kind = options.get("format") or format_of(path)
    if kind == "letor":
        tokens = re.findall(rb"^[^#\n]*?[ \t]qid:(\S+)", open_bytes(path).text.data, re.MULTILINE)
        return [token.decode("utf-8", "replace") for token in tokens]
    from toprank.data.tables.reading import query_ids

    return [str(qid) for qid in query_ids(path, format=kind, qid=options.get("qid")).tolist()]
