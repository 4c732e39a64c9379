"""What the data doctor says about features (columns) and about documents that are alike (rows).

One pass over the features tells everything that is asked about them. Rows and columns get 64-bit hashes that add up
over their non-zero values, so dense and sparse data agree, and strips of rows can be scanned by different threads.
Equal hashes are taken for equal content: among ten million rows a chance agreement has a probability of about 1 in
400,000.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, available_threads, each_block
from toprank.data.dataset import RankingData
from toprank.data.synthetic import Words, mixed_words
from toprank.doctor.findings import Finding, Severity, about_some, agreeing, examples_of
from toprank.errors import Remedy, joined

__all__ = ["scan"]

Mask = npt.NDArray[np.bool_]
_ROWS = 4096  # looked at at a time; only so many are copied where the rows of X are not contiguous


@dataclass(frozen=True)
class Scan:
    """Columns' least and greatest finite value (inf, -inf without one), NaNs, infinities, hashes; rows' hashes."""

    smallest: FloatArray
    largest: FloatArray
    missing: IntArray
    infinite: IntArray
    column_hash: Words
    row_hash: Words


def scan(data: RankingData, threads: int | None = None) -> Scan:
    """Look at every value of X once."""
    n, width = data.X.shape
    edges = np.linspace(0, n, min(n, available_threads(threads)) + 1).astype(np.int64)
    row_hash = np.zeros(n, dtype=np.uint64)
    column_keys = mixed_words(np.arange(width, dtype=np.uint64) + np.uint64(1))

    def run(strip: tuple[int, int]) -> tuple[FloatArray, FloatArray, IntArray, IntArray, Words, IntArray]:
        result = (
            np.full(width, np.inf),
            np.full(width, -np.inf),
            np.zeros(width, dtype=np.int64),
            np.zeros(width, dtype=np.int64),
            np.zeros(width, dtype=np.uint64),
            np.zeros(width, dtype=np.int64),
        )
        for first in range(*strip, _ROWS):
            last = min(first + _ROWS, strip[1])
            if data.is_sparse:
                starts = data.X.indptr[first : last + 1].astype(np.int64)
                stored = slice(starts[0], starts[-1])
                columns = data.X.indices[stored].astype(np.int32, copy=False)
                values = (data.X.data[stored], columns, starts - starts[0])
                kernels.scan_sparse(*values, first, column_keys, row_hash[first:last], *result)
            else:
                rows = np.ascontiguousarray(data.X[first:last])
                kernels.scan_dense(rows, first, column_keys, row_hash[first:last], *result[:-1])
        return result

    strips = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    smallest, largest, missing, infinite, column_hash, stored = zip(*each_block(run, strips, threads), strict=True)
    low, high = np.min(smallest, axis=0), np.max(largest, axis=0)
    if data.is_sparse:
        has_zeros = np.sum(stored, axis=0) < n
        low, high = np.where(has_zeros, np.minimum(low, 0), low), np.where(has_zeros, np.maximum(high, 0), high)
    return Scan(low, high, np.sum(missing, axis=0), np.sum(infinite, axis=0), np.sum(column_hash, axis=0), row_hash)


_WILD = 1e4  # features whose ranges differ by more than this are worth a note


@dataclass(frozen=True)
class Examined:
    """Data and what one look at their features told."""

    data: RankingData
    scan: Scan

    def feature(self, column: np.signedinteger[Any]) -> str:
        """What to call a column: its name, or its number from 1."""
        names = self.data.feature_names
        return names[column] if names else str(column + 1)


def features_findings(one: Examined) -> Iterator[Finding]:
    """Constant, duplicate, infinite, missing, and wildly different features."""
    look, n, width = one.scan, one.data.n_documents, one.data.n_features

    def some_features(which: Mask, code: str, severity: Severity, what: str, remedy: str) -> Iterator[Finding]:
        columns = np.flatnonzero(which)
        names = (one.feature(column) for column in columns)
        return about_some(code, severity, len(columns), width, f"feature|features {what}", names, remedy)

    constant = (look.smallest == look.largest) & (look.missing == 0) & (look.infinite == 0) | (look.missing == n)
    what, remedy = "holds|hold the same value in all documents", "Drop them: they cannot tell documents apart."
    yield from some_features(constant, "constant-features", "warning", what, remedy)
    yield from _duplicate_features(one, ~constant)
    what = f"holds|hold infinities: {int(look.infinite.sum()):,} in all"
    remedy = "Replace them by finite values or by NaN for 'missing'; sums and scaling break on them."
    yield from some_features(look.infinite > 0, "infinite-features", "problem", what, remedy)
    missing = int(look.missing.sum())
    what = f"has|have missing values: {missing:,} NaN, {missing / max(1, n * width):.1%} of all"
    remedy = joined(
        "Nothing, or read text with",
        Remedy("missing='zero'", "--missing zero"),
        "where absent means 0: trees learn where to send missing values, linear models and networks take the mean of "
        "the feature.",
    )
    yield from some_features(look.missing > 0, "missing-values", "note", what, remedy)
    yield from _scales(one, ~constant & (look.infinite == 0))


def _duplicate_features(one: Examined, varying: Mask) -> Iterator[Finding]:
    columns = np.flatnonzero(varying)
    _, first, inverse = np.unique(one.scan.column_hash[columns], return_index=True, return_inverse=True)
    originals = columns[first[inverse.reshape(-1)]]
    copies = np.flatnonzero(originals != columns)
    pairs = (f"{one.feature(columns[copy])} = {one.feature(originals[copy])}" for copy in copies)
    words = "feature|features repeats|repeat another|others exactly"
    remedy = "Drop the copies: they share the weight of the original and make solutions ambiguous."
    yield from about_some("duplicate-features", "warning", len(copies), one.data.n_features, words, pairs, remedy)


def _scales(one: Examined, which: Mask) -> Iterator[Finding]:
    columns = np.flatnonzero(which & (one.scan.largest > one.scan.smallest))
    ranges = one.scan.largest[columns] / 2 - one.scan.smallest[columns] / 2  # halves cannot overflow
    if len(ranges) < 2 or ranges.max() / _WILD < ranges.min():
        return
    narrow, wide = columns[np.argmin(ranges)], columns[np.argmax(ranges)]
    sentence = (
        f"Features have very different ranges: {2 * ranges.min():.3g} for {one.feature(narrow)}, "
        f"{2 * ranges.max():.3g} for {one.feature(wide)}."
    )
    remedy = (
        "Nothing for the rankers here: linear models and networks standardise features by themselves, trees do not "
        "mind. Scale them for other tools."
    )
    yield Finding("scales", "note", sentence, int(np.count_nonzero(ranges < ranges.max() / _WILD)), (), remedy)


def rows_findings(one: Examined) -> Iterator[Finding]:
    """Documents that occur twice in a query, by content or by id, and labels that contradict each other."""
    data = one.data
    query_keys = mixed_words(np.arange(1, data.n_queries + 1, dtype=np.uint64))
    of_query = data.queries.spread(query_keys)
    if data.n_features:
        first, second = _alike(one.scan.row_hash ^ of_query)
        what = "has|have the same features as another of its|their query"
        remedy = "Remove true duplicates; if they are different documents, the features cannot tell them apart."
        yield from _repeats(data, second, "duplicate-documents", what, remedy)
        yield from _conflicts(data, first, second)
    if data.document_ids is not None:
        ids = np.fromiter(map(hash, data.document_ids.tolist()), dtype=np.int64, count=data.n_documents)
        _, second = _alike(mixed_words(ids.view(np.uint64)) ^ of_query)
        what = "has|have the id of another of its|their query"
        remedy = "Keep one of each: evaluation counts a document that is listed twice twice."
        yield from _repeats(data, second, "duplicate-document-ids", what, remedy, data.document_ids)


def _alike(keys: Words) -> tuple[IntArray, IntArray]:
    """Pairs of neighbours (first, second) among documents with equal keys, so that g alike give g - 1 pairs."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    return order[again], order[again + 1]


def _repeats(
    data: RankingData, repeated: IntArray, code: str, what: str, remedy: str, ids: npt.NDArray[Any] | None = None
) -> Iterator[Finding]:
    rows = np.sort(repeated)
    queries = data.queries.document_query[rows]
    pairs = zip(rows.tolist(), data.qids[queries].tolist(), strict=True)
    examples = (f"{f'row {row}' if ids is None else ids[row]} of query {qid}" for row, qid in pairs)
    concerned = len(np.unique(queries))
    words = f"document|documents {what}, in {concerned:,} {agreeing(concerned, 'query|queries')}"
    return about_some(code, "warning", len(rows), data.n_documents, words, examples, remedy)


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
    yield Finding("conflicting-labels", "warning", f"{count:,} {agreeing(count, words)}", count, examples, remedy)
