"""Overlap between training, validation and test data: queries, documents, near duplicates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from toprank.data.dataset import RankingData
from toprank.data.hashes import row_hashes
from toprank.doctor.findings import Finding, examples_of, inflected, some
from toprank.doctor.scan import Mask, ScannedData


def between_findings(a: str, first: ScannedData, b: str, second: ScannedData) -> Iterator[Finding]:
    """Find queries and documents that occur in two splits."""
    shared = [] if _counted(first.data) and _counted(second.data) else _shared_ids(first.data, second.data)
    if count := len(shared):
        number, verb = some(count, second.data.n_queries, "query|queries of"), inflected(count, "occurs|occur")
        remedy = "Split by query, so that no training query is in the test data."
        sentence = f"{number} {b} {verb} in {a}, too."
        yield Finding("shared-queries", "problem", sentence, count, examples_of(shared), remedy)
    widths = first.data.n_features, second.data.n_features
    if widths[0] != widths[1]:
        sentence = f"{a} has {widths[0]:,} features, {b} has {widths[1]:,}."
        remedy = "Read both with the same n_features."
        yield Finding("different-widths", "problem", sentence, abs(widths[0] - widths[1]), (), remedy)
        return
    present = second.scan.row_hash != 0  # ignore rows of zeros
    known = np.isin(second.scan.row_hash, first.scan.row_hash) & present
    if known.any():
        remedy = "If they are the same judgments, remove them from one split; otherwise the features are coarse."
        phrase = f" exactly the features of a document of {a}."
        yield _rows_of_two("shared-documents", b, second.data, known, phrase, remedy)
    yield from _near_copies(a, first, b, second, ~known & present)


def _near_copies(a: str, first: ScannedData, b: str, second: ScannedData, others: Mask) -> Iterator[Finding]:
    """Find documents of two splits that differ only after the third digit, for example because of rounding."""
    hashes = [row_hashes(scanned.data.X, coarse=True) for scanned in (first, second)]
    repeated = 1 - len(np.unique(hashes[0])) / max(len(hashes[0]), 1)  # expected by chance for coarse features
    near = np.isin(hashes[1], hashes[0]) & others
    count = int(np.count_nonzero(near))
    # Two rows, or 1 % more than the fraction of repeated coarse rows, may be chance.
    if count < 3 or count <= (repeated + 0.01) * len(near):
        return
    remedy = "If they are the same documents, rounded or converted, remove them from one split."
    phrase = f", up to the third digit, the features of a document of {a}."
    yield _rows_of_two("near-copies", b, second.data, near, phrase, remedy)


def _rows_of_two(kind: str, name: str, data: RankingData, rows: Mask, phrase: str, remedy: str) -> Finding:
    """Build the finding that rows of a split also occur in another one, with their queries as examples."""
    count = int(np.count_nonzero(rows))
    number, verb = some(count, data.n_documents, "document|documents of"), inflected(count, "has|have")
    examples = examples_of(f"query {data.qids[query]}" for query in np.unique(data.queries.document_query[rows]))
    return Finding(kind, "warning", f"{number} {name} {verb}{phrase}", count, examples, remedy)


def _counted(data: RankingData) -> bool:
    """Return whether the ids are 0, 1, 2 … or 1, 2, 3 …, as for queries without ids."""
    qids = data.qids
    return qids.dtype.kind == "i" and int(qids[0]) in (0, 1) and bool((np.diff(qids) == 1).all())


def _shared_ids(first: RankingData, second: RankingData) -> list[str]:
    known = {str(qid) for qid in first.qids.tolist()}
    return [str(qid) for qid in second.qids.tolist() if str(qid) in known]
