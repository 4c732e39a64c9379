"""What the data doctor says about queries that are scattered over a file or shared between splits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from toprank.data.bytesource import open_bytes
from toprank.data.dataset import RankingData
from toprank.data.doctor.features import Examined
from toprank.data.doctor.findings import Finding, examples_of, some
from toprank.errors import DataError


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
        "Sort the rows by query, or read with regroup=True, as was done for the rest of this report.",
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
