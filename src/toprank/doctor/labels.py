"""What the data doctor says about labels, the lists they make, the order of rows, and where queries lie."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.bytesource import PathLike, open_bytes
from toprank.data.dataset import RankingData
from toprank.doctor.features import Examined, Mask
from toprank.doctor.findings import Finding, Severity, about_some, agreeing, examples_of, some
from toprank.errors import DataError, Remedy, joined
from toprank.metrics.evaluation import Judge
from toprank.metrics.gains import Gain
from toprank.metrics.graded import NDCG


def labels_findings(data: RankingData) -> Iterator[Finding]:
    """Unjudged documents; labels that are negative, not whole, very large, or all the same."""
    unjudged = int(np.count_nonzero(~data.judged))
    severity: Severity = "note" if unjudged == data.n_documents else "warning"
    remedy = "Say how to treat them when you evaluate: as not relevant, dropped, or as condensed lists."
    what = "document|documents is|are not judged (label NaN or -1)"
    yield from about_some("unjudged", severity, unjudged, data.n_documents, what, (), remedy)
    labels = data.labels[data.judged]
    if len(labels) == 0:
        return

    def odd(which: Mask, code: str, severity: Severity, what: str, remedy: str) -> Iterator[Finding]:
        examples = (f"{value:g}" for value in np.unique(labels[which]))
        count = int(np.count_nonzero(which))
        return about_some(code, severity, count, len(labels), f"label|labels is|are {what}", examples, remedy)

    what = "negative but not -1, so its|their gain|gains is|are, too"
    remedy = "Shift the grades so that the lowest is 0, or mark unjudged documents by NaN."
    yield from odd(labels < 0, "negative-labels", "problem", what, remedy)
    fractional = labels != np.floor(labels)
    what = "not a whole number" if np.count_nonzero(fractional) == 1 else "not whole numbers"
    remedy = "Real grades are legal here; LightGBM and XGBoost want whole ones, and binary metrics a threshold."
    yield from odd(fractional, "fractional-labels", "note", what, remedy)
    what = "above 31, where the gain 2^y - 1 outgrows everything else"
    remedy = "Use a linear gain, or bring the grades to a scale such as 0 to 4."
    yield from odd(labels > 31, "large-labels", "warning", what, remedy)
    if labels.min() == labels.max():
        sentence = f"All judged documents have the label {labels[0]:g}, so every order is as good as any other."
        remedy = "Check that the right column was read as the label."
        yield Finding("one-grade", "problem", sentence, len(labels), (), remedy)


def queries_findings(data: RankingData, cutoffs: tuple[int, ...]) -> Iterator[Finding]:
    """Queries of one document, without anything relevant, with equal labels, shorter than a cut-off."""

    def some_queries(which: Mask, code: str, severity: Severity, what: str, remedy: str) -> Iterator[Finding]:
        count, words = int(np.count_nonzero(which)), f"query|queries has|have {what}"
        return about_some(code, severity, count, data.n_queries, words, data.qids[which], remedy)

    sizes = data.queries.sizes
    single = sizes == 1
    what = "a single document, which is always ranked perfectly"
    remedy = "Leave them out of training and of means: they teach nothing and measure nothing."
    yield from some_queries(single, "one-document-queries", "warning", what, remedy)
    if data.judged.any():
        highest = data.queries.max(np.where(data.judged, data.labels, -np.inf))
        lowest = data.queries.min(np.where(data.judged, data.labels, np.inf))
        blank = highest <= 0
        what = "nothing relevant: no judged label is above 0"
        remedy = "Conventions differ on them: 0, 1, or left out of the mean; say which one you use."
        yield from some_queries(blank, "blank-queries", "warning", what, remedy)
        remedy = (
            "No ranker can do well or badly on them. Losses over pairs skip them; others, such as ListNet, learn equal "
            "scores from them."
        )
        equal = (highest == lowest) & ~blank & ~single
        yield from some_queries(equal, "equal-labels", "note", "the same label on all judged documents", remedy)
    for cutoff in sorted(set(cutoffs)):
        remedy = (
            f"What a metric at {cutoff} means there depends on the convention: LETOR's scripts give 0, others cut at "
            "the list's end."
        )
        yield from some_queries(sizes < cutoff, "short-lists", "note", f"fewer than {cutoff} documents", remedy)


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
    sentence = (
        f"The rows lie in an order that is itself a ranking: equal scores evaluated in file order would get "
        f"NDCG@{cutoff} {in_file_order.mean():.2f}, in random order {at_random.mean():.2f}."
    )
    remedy = "Use a convention that does not break ties by row (standard does not), or shuffle the rows of each query."
    yield Finding("file-order", "warning", sentence, int(np.count_nonzero(differences > 0)), (), remedy)


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
    if count := len(shared):
        number, verb = some(count, second.data.n_queries, "query|queries of"), agreeing(count, "occurs|occur")
        remedy = "Split by query, so that nothing is tested on what was trained on."
        sentence = f"{number} {b} {verb} in {a}, too."
        yield Finding("shared-queries", "problem", sentence, count, examples_of(shared), remedy)
    widths = first.data.n_features, second.data.n_features
    if widths[0] != widths[1]:
        sentence = f"{a} has {widths[0]:,} features, {b} has {widths[1]:,}."
        remedy = "Read both with the same n_features."
        yield Finding("different-widths", "problem", sentence, abs(widths[0] - widths[1]), (), remedy)
        return
    present = second.scan.row_hash != 0  # rows of zeros say nothing
    known = np.isin(second.scan.row_hash, first.scan.row_hash) & present
    if count := int(np.count_nonzero(known)):
        number, verb = some(count, second.data.n_documents, "document|documents of"), agreeing(count, "has|have")
        queries = np.unique(second.data.queries.document_query[known])
        examples = examples_of(f"query {second.data.qids[query]}" for query in queries)
        remedy = "If they are the same judgments, remove them from one split; else the features are coarse."
        sentence = f"{number} {b} {verb} exactly the features of a document of {a}."
        yield Finding("shared-documents", "warning", sentence, count, examples, remedy)


def _counted(data: RankingData) -> bool:
    """Whether the ids are only the numbers 0, 1, 2 … or 1, 2, 3 … that queries without ids get."""
    qids = data.qids
    return qids.dtype.kind == "i" and int(qids[0]) in (0, 1) and bool((np.diff(qids) == 1).all())


def _shared_ids(first: RankingData, second: RankingData) -> list[str]:
    known = {str(qid) for qid in first.qids.tolist()}
    return [str(qid) for qid in second.qids.tolist() if str(qid) in known]


def split_queries_finding(
    path: PathLike, name: str, data: RankingData, refusal: DataError, options: dict[str, Any]
) -> Finding:
    """That the rows of some queries are not neighbours; `refusal` is how the reader put it."""
    scattered = _scattered(_ids_by_row(path, options))
    number = some(len(scattered), data.n_queries, "query|queries is|are scattered, with rows of others between")
    line = getattr(refusal, "line", None)
    sentence = f"{name}: {number}{f', first at line {line}' if line else ''}."
    regroup = Remedy("regroup=True,", "--regroup,")
    remedy = joined("Sort the rows by query, or read with", regroup, "as was done for the rest of this report.")
    return Finding("split-queries", "problem", sentence, len(scattered), examples_of(scattered), remedy)


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


def _ids_by_row(path: PathLike, options: dict[str, Any]) -> list[str]:
    """The query id of every row, as the file has it."""
    from toprank.data.files import format_of

    kind = options.get("format") or format_of(path)
    if kind == "letor":
        tokens = re.findall(rb"^[^#\n]*?[ \t]qid:(\S+)", open_bytes(path).text.data, re.MULTILINE)
        return [token.decode("utf-8", "replace") for token in tokens]
    from toprank.data.tables.reading import query_ids

    return [str(qid) for qid in query_ids(path, format=kind, qid=options.get("qid")).tolist()]
