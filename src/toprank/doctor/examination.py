"""Checks of the data doctor, which report problems of data with counts and remedies.

One pass over the features (`scan`) provides all their statistics; labels and ids are read a few times. Memory is a few
words per document.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.arguments import is_whole
from toprank.data.dataset import RankingData, check_data, dense_rows
from toprank.data.encoding import codes_of
from toprank.data.synthetic import Words, mixed_words
from toprank.doctor.findings import Finding, Report, Severity, Subject, examples_of, finding_about, inflected
from toprank.doctor.scan import Mask, ScannedData, scan
from toprank.doctor.splits import between_findings
from toprank.errors import DataError, Remedy, join_parts
from toprank.evaluation.scores import BoundMetric
from toprank.metrics.conventions import Gain
from toprank.metrics.graded import NDCG
from toprank.metrics.pairs import PairwiseAccuracy

_MAX_RANGE_RATIO = 1e4  # ratio of feature ranges above which tools without scaling converge slowly


def features_findings(scanned: ScannedData) -> Iterator[Finding]:
    """Find constant, duplicate and infinite features, missing values, and very different ranges."""
    look, n, width = scanned.scan, scanned.data.n_documents, scanned.data.n_features

    def some_features(which: Mask, code: str, severity: Severity, phrase: str, remedy: str) -> Iterator[Finding]:
        columns = np.flatnonzero(which)
        names = (scanned.feature(column) for column in columns)
        return finding_about(code, severity, len(columns), width, f"feature|features {phrase}", names, remedy)

    constant = (look.smallest == look.largest) & (look.missing == 0) & (look.infinite == 0) | (look.missing == n)
    phrase, remedy = "has|have the same value in all documents", "Drop them: they cannot distinguish documents."
    yield from some_features(constant, "constant-features", "warning", phrase, remedy)
    yield from _duplicate_features(scanned, ~constant)
    phrase = "has|have one level in each query, mostly a different one, like a query name"
    remedy = join_parts(
        "Leave them out, or use them as metadata: they cannot order documents of a query, and trees memorize queries "
        "with them. To match the text of queries with documents, use",
        Remedy("{text}.", "{query_text} and {document_text}.", text=..., query_text=..., document_text=...),
    )
    yield from some_features(_names_of_queries(scanned) & ~constant, "names-of-queries", "warning", phrase, remedy)
    phrase = f"has|have infinite values: {int(look.infinite.sum()):,} in total"
    remedy = "Replace them by finite values or by NaN for 'missing'; sums and scaling fail with them."
    yield from some_features(look.infinite > 0, "infinite-features", "problem", phrase, remedy)
    missing = int(look.missing.sum())
    phrase = f"has|have missing values: {missing:,} NaN, {missing / max(1, n * width):.1%} of all values"
    remedy = join_parts(
        "Trees learn a direction for missing values; linear models and networks replace them by the mean of the "
        "feature. If values absent from the text are zeros, read it with",
        Remedy("{missing}.", missing="zero"),
    )
    yield from some_features(look.missing > 0, "missing-values", "note", phrase, remedy)
    yield from _scales(scanned, ~constant & (look.infinite == 0))


def _names_of_queries(scanned: ScannedData) -> Mask:
    """Return a mask of the categories that are constant within queries and distinguish most queries."""
    data, which = scanned.data, np.zeros(scanned.data.n_features, dtype=bool)
    encoding = data.encoding
    if encoding is None or data.n_queries < 2 or data.n_documents == data.n_queries:
        return which
    for place in encoding.categories:
        codes = codes_of(data.X[:, place], len(encoding.columns[place].levels))
        of_query = codes[data.queries.offsets[:-1]]
        telling = len(np.unique(of_query[of_query >= 0])) > data.n_queries / 2
        which[place] = telling and np.array_equal(codes, data.queries.broadcast(of_query))
    return which


def _duplicate_features(scanned: ScannedData, varying: Mask) -> Iterator[Finding]:
    columns = np.flatnonzero(varying)
    _, first, inverse = np.unique(scanned.scan.column_hash[columns], return_index=True, return_inverse=True)
    originals = columns[first[inverse.reshape(-1)]]
    copies = np.flatnonzero(originals != columns)
    pairs = (f"{scanned.feature(columns[copy])} = {scanned.feature(originals[copy])}" for copy in copies)
    words = "feature|features repeats|repeat another|others exactly"
    remedy = "Drop the copies: they share the weight of the original and make solutions ambiguous."
    yield from finding_about(
        "duplicate-features", "warning", len(copies), scanned.data.n_features, words, pairs, remedy
    )


def _scales(scanned: ScannedData, which: Mask) -> Iterator[Finding]:
    columns = np.flatnonzero(which & (scanned.scan.largest > scanned.scan.smallest))
    ranges = scanned.scan.largest[columns] / 2 - scanned.scan.smallest[columns] / 2  # halved to avoid overflow
    if len(ranges) < 2 or ranges.max() / _MAX_RANGE_RATIO < ranges.min():
        return
    narrow, wide = columns[np.argmin(ranges)], columns[np.argmax(ranges)]
    sentence = (
        f"Features have very different ranges: {2 * ranges.min():.3g} for {scanned.feature(narrow)}, "
        f"{2 * ranges.max():.3g} for {scanned.feature(wide)}."
    )
    remedy = (
        "The rankers of toprank need no scaling: linear models and networks standardize features, and trees do not "
        "depend on it. Scale them for other tools."
    )
    yield Finding(
        "scales", "note", sentence, int(np.count_nonzero(ranges < ranges.max() / _MAX_RANGE_RATIO)), (), remedy
    )


def rows_findings(scanned: ScannedData) -> Iterator[Finding]:
    """Find documents that occur twice in a query, by content or id, and contradictory labels."""
    data = scanned.data
    query_keys = mixed_words(np.arange(1, data.n_queries + 1, dtype=np.uint64))
    of_query = data.queries.broadcast(query_keys)
    if data.n_features:
        first, second = _alike(scanned.scan.row_hash ^ of_query)
        phrase = "has|have the same features as another of its|their query"
        remedy = "Remove true duplicates; if they are different documents, the features cannot distinguish them."
        yield from _repeats(data, second, "duplicate-documents", phrase, remedy)
        yield from _conflicts(data, first, second)
    if data.document_ids is not None:
        ids = np.fromiter(map(hash, data.document_ids.tolist()), dtype=np.int64, count=data.n_documents)
        _, second = _alike(mixed_words(ids.view(np.uint64)) ^ of_query)
        phrase = "has|have the id of another of its|their query"
        remedy = "Keep one of each: evaluation counts repeated documents twice."
        yield from _repeats(data, second, "duplicate-document-ids", phrase, remedy, data.document_ids)


def _alike(keys: Words) -> tuple[IntArray, IntArray]:
    """Return consecutive pairs (first, second) of documents with equal keys; g equal keys give g - 1 pairs."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    return order[again], order[again + 1]


def _repeats(
    data: RankingData, repeated: IntArray, code: str, phrase: str, remedy: str, ids: npt.NDArray[Any] | None = None
) -> Iterator[Finding]:
    rows = np.sort(repeated)
    queries = data.queries.document_query[rows]
    pairs = zip(rows.tolist(), data.qids[queries].tolist(), strict=True)
    examples = (f"{f'row {row}' if ids is None else ids[row]} of query {qid}" for row, qid in pairs)
    concerned = len(np.unique(queries))
    words = f"document|documents {phrase}, in {concerned:,} {inflected(concerned, 'query|queries')}"
    return finding_about(code, "warning", len(rows), data.n_documents, words, examples, remedy)


def _conflicts(data: RankingData, first: IntArray, second: IntArray) -> Iterator[Finding]:
    judged = data.judged[first] & data.judged[second]
    against = judged & (data.labels[first] != data.labels[second])
    if not against.any():
        return
    queries = np.unique(data.queries.document_query[second[against]])
    count = int(np.count_nonzero(against))
    words = "pair|pairs of documents with the same features in the same query has|have different labels."
    examples = examples_of(f"query {data.qids[query]}" for query in queries)
    remedy = "No function of these features can order them; add features, or agree on one label."
    yield Finding("conflicting-labels", "warning", f"{count:,} {inflected(count, words)}", count, examples, remedy)


def labels_findings(data: RankingData) -> Iterator[Finding]:
    """Find unjudged documents, and labels that are negative, not integers, very large, or all equal."""
    unjudged = data.n_unjudged
    severity: Severity = "note" if unjudged == data.n_documents else "warning"
    remedy = "Choose how to treat them in training and evaluation: irrelevant, drop or condense."
    phrase = "document|documents is|are not judged (label NaN or -1)"
    yield from finding_about("unjudged", severity, unjudged, data.n_documents, phrase, (), remedy)
    labels = data.labels[data.judged]
    if len(labels) == 0:
        return

    def odd(which: Mask, code: str, severity: Severity, phrase: str, remedy: str) -> Iterator[Finding]:
        examples = (f"{value:g}" for value in np.unique(labels[which]))
        count = int(np.count_nonzero(which))
        return finding_about(code, severity, count, len(labels), f"label|labels is|are {phrase}", examples, remedy)

    phrase = "negative but not -1, so its|their gain|gains is|are negative, too"
    remedy = "Shift the grades so that the lowest is 0, or mark unjudged documents by NaN."
    yield from odd(labels < 0, "negative-labels", "problem", phrase, remedy)
    fractional = labels != np.floor(labels)
    phrase = "not a whole number" if np.count_nonzero(fractional) == 1 else "not whole numbers"
    remedy = "toprank accepts real grades; LightGBM and XGBoost need integers, and binary metrics a threshold."
    yield from odd(fractional, "fractional-labels", "note", phrase, remedy)
    phrase = "above 31, where the gain 2^y - 1 dominates all other gains"
    remedy = "Use a linear gain, or rescale the grades, for example to 0 to 4."
    yield from odd(labels > 31, "large-labels", "warning", phrase, remedy)
    if labels.min() == labels.max():
        sentence = f"All judged documents have the label {labels[0]:g}, so all orders are equally good."
        remedy = "Check that the right column was read as the label."
        yield Finding("one-grade", "problem", sentence, len(labels), (), remedy)


def queries_findings(data: RankingData, cutoffs: Sequence[int]) -> Iterator[Finding]:
    """Find queries with one document, without relevant documents, with equal labels, or shorter than a cutoff."""

    def some_queries(which: Mask, code: str, severity: Severity, phrase: str, remedy: str) -> Iterator[Finding]:
        count, words = int(np.count_nonzero(which)), f"query|queries has|have {phrase}"
        return finding_about(code, severity, count, data.n_queries, words, data.qids[which], remedy)

    sizes = data.queries.sizes
    single = sizes == 1
    phrase = "a single document, which is always ranked perfectly"
    remedy = "Leave them out of training and of means: they have no information."
    yield from some_queries(single, "one-document-queries", "warning", phrase, remedy)
    if data.judged.any():
        highest = data.queries.max(np.where(data.judged, data.labels, -np.inf))
        lowest = data.queries.min(np.where(data.judged, data.labels, np.inf))
        blank = highest <= 0
        phrase = "nothing relevant: no judged label is above 0"
        remedy = "Conventions differ on them: 0, 1, or left out of the mean; report which one you use."
        yield from some_queries(blank, "blank-queries", "warning", phrase, remedy)
        remedy = (
            "All rankings of them are equally good. Pairwise losses skip them; others, such as ListNet, learn equal "
            "scores from them."
        )
        equal = (highest == lowest) & ~blank & ~single
        yield from some_queries(equal, "equal-labels", "note", "the same label on all judged documents", remedy)
    for cutoff in sorted(set(cutoffs)):
        remedy = (
            f"A metric at {cutoff} depends on the convention for them: LETOR's scripts return 0, others truncate at "
            "the end of the list."
        )
        yield from some_queries(sizes < cutoff, "short-lists", "note", f"fewer than {cutoff} documents", remedy)


_MIN_QUERIES = 5  # fewer queries may be in order by chance


def order_findings(data: RankingData, cutoff: int) -> Iterator[Finding]:
    """Find data whose row order is a ranking, so that constant scores in file order would look good."""
    gains = _gains(data)
    if not gains.any() or data.queries.sizes.max() == 1:
        return
    in_file_order, at_random = _mean_ndcg(data, gains, cutoff)
    differences = in_file_order - at_random
    lead = abs(differences.mean())
    error = differences.std() / np.sqrt(len(differences))
    # A difference of four standard errors is chance in 1 of 16,000 data sets; an NDCG difference below 0.02 is
    # harmless.
    if len(differences) < _MIN_QUERIES or lead < 0.02 or lead < 4 * error:
        return
    best = differences.mean() > 0
    sentence = (
        f"The order of the rows is a ranking, {'best' if best else 'worst'} first: equal scores evaluated in file "
        f"order would get NDCG@{cutoff} {in_file_order.mean():.2f}, in random order "
        f"{at_random.mean():.2f}."
    )
    remedy = "Use a convention that does not break ties by row, such as standard, or shuffle the rows of each query."
    count = int(np.count_nonzero(differences > 0 if best else differences < 0))
    yield Finding("file-order", "warning", sentence, count, (), remedy)


_MAX_COMPARED_DOCUMENTS = 20_000  # documents (of complete queries) used to compare columns with the label
_LEAK, _ORDERED = (
    0.99,
    20,
)  # fraction of pairs; number of queries, since one of many columns may order fewer queries correctly by chance


def leak_findings(scanned: ScannedData) -> Iterator[Finding]:
    """Find columns that order documents almost like the label, and are probably derived from it."""
    data = scanned.data
    sizes, judged = data.queries.sizes, data.judged
    labels = np.where(judged, data.labels, 0.0)
    graded = np.flatnonzero(
        (data.queries.max(labels) > data.queries.min(labels)) & (data.queries.sum(~judged * 1.0) == 0)
    )
    if len(graded) < _ORDERED or not data.n_features:
        return
    step = max(1, -(-int(sizes[graded].sum()) // _MAX_COMPARED_DOCUMENTS))
    part = data.select(graded[::step])
    judge = BoundMetric(part.without_features(), PairwiseAccuracy())
    shares = {}
    for column in np.flatnonzero(scanned.scan.largest > scanned.scan.smallest):
        values = part.X[:, [column]]
        values = dense_rows(values).reshape(-1)
        share = judge(np.nan_to_num(values, nan=float(scanned.scan.smallest[column]) - 1.0))
        if max(share, 1 - share) >= _LEAK:
            equal = np.array_equal(values, part.labels)
            shares[f"{scanned.feature(column)} ({'the label itself' if equal else f'{max(share, 1 - share):.1%}'})"] = (
                share
            )
    words = f"feature|features orders|order at least {_LEAK:.0%} of the pairs of documents as their labels do"
    remedy = "If it is derived from the label or known only later, drop it: a ranker would learn nothing else."
    yield from finding_about("label-leak", "warning", len(shares), data.n_features, words, list(shares), remedy)


def _gains(data: RankingData) -> FloatArray:
    """Return 2^y - 1, or y if that would overflow; 0 for unjudged and negative labels."""
    grades = np.where(data.judged, np.maximum(data.labels, 0), 0.0)
    return np.asarray(grades if grades.max() > 31 else np.exp2(grades) - 1)


def _mean_ndcg(data: RankingData, gains: FloatArray, cutoff: int) -> tuple[FloatArray, FloatArray]:
    """Return the NDCG of each query with gain in the order of the rows, and its mean over all orders."""
    relative = data.without_features().replace(
        labels=gains / gains.max()
    )  # NDCG is invariant to scale, and sums stay finite
    judge = BoundMetric(relative, NDCG(cutoff, gain=Gain.from_spec("linear"), no_relevant="skip"))
    in_file_order, at_random = judge.per_query(-np.arange(len(gains))), judge.per_query(np.zeros(len(gains)))
    some_gain = ~np.isnan(at_random)
    return in_file_order[some_gain], at_random[some_gain]


def check(
    data: RankingData,
    *others: RankingData,
    cutoffs: Sequence[int] = (10,),
    names: Sequence[str] | None = None,
    threads: int | None = None,
) -> Report:
    """Check data, and other splits of the same collection.

    Args:
        data: data to check.
        others: validation and test data, which are also compared with `data` and with each other.
        cutoffs: cutoffs of the metrics that will be computed.
        names: names of the data sets in the report. Default: "data", or "data 1", "data 2" …
        threads: number of threads. Default: all cores.

    >>> report = check(RankingData([[1.0, 5.0], [2.0, 5.0]], [0, 0]))
    >>> [finding.code for finding in report.findings]
    ['one-grade', 'blank-queries', 'constant-features', 'short-lists']
    """
    everything = (data, *others)
    for subject in everything:
        if isinstance(subject, str | os.PathLike):
            raise DataError(
                f"check needs data instead of a path: check(tr.read({str(subject)!r})). To check files, use "
                "toprank.doctor.check_file or the command 'toprank check'."
            )
        check_data("check", subject)
    if names is None:
        names = ["data"] if not others else [f"data {number}" for number in range(1, len(everything) + 1)]
    check_options(names, len(everything), cutoffs)
    return report_on(everything, names, cutoffs, threads)


def check_options(names: Sequence[str], n_data_sets: int, cutoffs: Any) -> None:
    """Raise an error for a wrong number of names, and for invalid cutoffs."""
    if len(names) != n_data_sets:
        raise DataError(f"There are {len(names)} names for {n_data_sets} data sets; give one for each.")
    if not isinstance(cutoffs, Sequence) or not cutoffs or not all(is_whole(cut, 1) for cut in cutoffs):
        raise DataError(f"cutoffs must be a list of whole numbers of at least 1, not {cutoffs!r}.")


def roles_findings(data: RankingData) -> Iterator[Finding]:
    """Report the column roles that were inferred from names."""
    if data.roles is None or not (inferred := data.roles.inferred):
        return
    summary = f"{inflected(len(inferred), 'Column role|roles was|were')} inferred from the names of columns"
    arguments = " or ".join(f"{{{keyword}}}" for keyword in inferred)
    remedy = Remedy(
        f"If this is wrong, read the table with {arguments}.",
        f"If this is wrong, use {arguments}.",
        "If this is wrong, name the column when you read the table.",
        **dict.fromkeys(inferred, ...),
    )
    yield Finding("inferred-columns", "note", summary, len(inferred), data.roles.in_words(), remedy)


def report_on(
    everything: Sequence[RankingData],
    names: Sequence[str],
    cutoffs: Sequence[int],
    threads: int | None,
    known: Sequence[Finding] = (),
) -> Report:
    """Build the report on data sets, starting from findings that are already known."""
    scanned = [ScannedData(data, scan(data, threads)) for data in everything]
    findings = list(known)
    for name, part in zip(names, scanned, strict=True):
        prefix = f"{name}: " if len(names) > 1 else ""
        groups: Iterable[Iterable[Finding]] = (
            labels_findings(part.data),
            queries_findings(part.data, cutoffs),
            order_findings(part.data, cutoffs[0]),
            features_findings(part),
            leak_findings(part),
            rows_findings(part),
            roles_findings(part.data),
        )
        of_part = itertools.chain.from_iterable(groups)
        findings += [replace(finding, summary=prefix + finding.summary) for finding in of_part]
    for (a, first), (b, second) in itertools.combinations(zip(names, scanned, strict=True), 2):
        findings += between_findings(a, first, b, second)
    subjects = [
        Subject(name, data.n_queries, data.n_documents, data.n_features)
        for name, data in zip(names, everything, strict=True)
    ]
    return Report.from_findings(subjects, findings)
