"""Queries and judgments for training and evaluation, either from the collection or from the user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.data.trec import Qrels
from toprank.errors import DataError, Remedy
from toprank.search.collections import Topics, read_judgments
from toprank.search.collections.collection import ALL, preview
from toprank.search.storage import IndexFolder

if TYPE_CHECKING:
    from toprank.search.search_index import Index


def stored_topics(folder: IndexFolder) -> Topics | None:
    """Return the queries stored in an index, or None if its collection has none."""
    given = folder.json("topics.json")
    try:
        return None if given is None else Topics(tuple(map(str, given["ids"])), tuple(map(str, given["texts"])))
    except (DataError, KeyError, TypeError):
        raise folder.fault("This index is damaged: its queries cannot be read.") from None


def stored_judgments(folder: IndexFolder) -> dict[str, Qrels]:
    """Return the judgments stored in an index by split: ``train``, ``test`` …, or ``all``."""
    by_part = {}
    for name in (name for name in folder.meta["files"] if name.startswith("judgments.")):
        given = folder.json(name)
        try:
            columns = [np.array(given[column]) for column in ("qids", "documents", "grades")]
            by_part[str(given["part"])] = Qrels(*columns)
        except (DataError, KeyError, TypeError, ValueError):
            raise folder.fault(f"This index is damaged: {name} cannot be read.") from None
    return by_part


def queries_and_judgments(index: Index, queries: Any, qrels: Any, part: str) -> tuple[Topics, Qrels, tuple[str, ...]]:
    """Return queries, their judgments, and notes on the judgments.

    Args:
        index: search index.
        queries: file or ``{id: text}``. Default: the queries of the collection.
        qrels: file, `Qrels`, mapping, or the name of a split of the collection. Default: the split `part`.
        part: ``train`` or ``test``.
    """
    topics = index.topics if queries is None else Topics.from_source(queries)
    if topics is None:
        raise DataError(f"{index.name} was indexed without queries.", remedy=Remedy("Pass {queries}.", queries=...))
    if isinstance(qrels, str | os.PathLike) and str(qrels) not in index.judgments:
        return topics, *read_judgments(qrels, topics)
    if qrels is None or isinstance(qrels, str | os.PathLike):
        wanted = part if qrels is None else str(qrels)
        chosen = next((name for name in (wanted, ALL) if name in index.judgments), None)
        if chosen is None and qrels is None and len(index.judgments) == 1:
            [chosen] = index.judgments
            alone = f"The judgments are from '{chosen}', the only split of the collection."
            return topics, index.judgments[chosen], (*index.notes, alone)
        if chosen is None:
            known = ", ".join(index.judgments) or "none"
            raise DataError(
                f"{index.name} has no judgments named '{wanted}' (it has {known}).",
                remedy=Remedy("Pass {qrels}.", qrels=...),
            )
        return topics, index.judgments[chosen], index.notes
    judged = Qrels.from_source(qrels)
    if not np.isin(judged.qids, np.array(topics.ids)).any():
        raise DataError(
            f"No query has judgments. The queries have the ids {preview(topics.ids)}, the judgments "
            f"{preview(np.unique(judged.qids))}. Check that both use the same ids."
        )
    return topics, judged, ()
