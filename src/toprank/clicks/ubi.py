"""OpenSearch's User Behavior Insights: ``ubi_queries`` and ``ubi_events`` as a click log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from toprank.clicks.events import UNSHOWN, Pieces, present, shown_at
from toprank.clicks.log import Array, ClickLog, RowOf, assembled, numbered, positions_of
from toprank.clicks.sources import LogRows, are_events, column, field_names, ids_in, numbers_of, plain
from toprank.compute import IntArray
from toprank.errors import DataError, Remedy, UnknownNameError

__all__ = ["read_ubi"]

_OBJECT, _ORDINAL = "event_attributes.object.object_id", "event_attributes.position.ordinal"
_INNER = (_OBJECT, _ORDINAL)


def read_ubi(tables: Sequence[LogRows], click: str | None, first_position: int) -> ClickLog:
    """The log of ``ubi_queries`` and ``ubi_events``: a session is a search (``query_id``), a query what was typed.

    A search shows the documents of its impression events at their ordinals; where it has none, those of
    ``query_response_hit_ids`` in their order. A click is an event whose action is `click`; unless that is given, one
    whose action is or ends in "click".
    """
    events = [table for table in tables if are_events(table)]
    queries = [table for table in tables if "user_query" in field_names(table) and table not in events]
    if not (queries and events):
        what, lacks = ("events", "words that were searched for") if events else ("queries", "clicks")
        raise DataError(
            f"These are UBI {what}; the {lacks} are in ubi_{'queries' if events else 'events'}: read the pair,",
            remedy=Remedy(
                "tr.clicks.read(('ubi_queries.jsonl', 'ubi_events.jsonl')).",
                "toprank clicks check ubi_queries.jsonl ubi_events.jsonl, or the folder that holds both.",
            ),
        )
    for table in tables:
        if table not in events and table not in queries:
            with table.about():
                raise DataError("This is neither ubi_queries (user_query) nor ubi_events (query_id, action_name).")
    asked, hits = Pieces("id", "words", "user"), Pieces("search", "document", "place")
    missing: Counter[str] = Counter()
    for table in queries:
        with table.about():
            for _, batch in _batches(table, ("query_id", "user_query", "query_response_hit_ids", "client_id")):
                _take_queries(batch, asked, hits, missing)
    shown, clicked, actions = Pieces("id", "document", "place"), Pieces("id", "document"), set[str]()
    for table in events:
        with table.about():
            for row, batch in _batches(table, ("query_id", "action_name", "event_attributes", *_INNER)):
                _take_events(batch, row, click, first_position, (shown, clicked), missing, actions)
    if click is not None and click not in actions:
        raise UnknownNameError("action in these events", click, sorted(actions))
    return _joined(asked, hits, shown, clicked, missing)


def _batches(table: LogRows, wanted: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Strips with those columns that there are, and the first row of each; documents of an engine are unwrapped."""
    import pyarrow as pa

    names, row = field_names(table), 0
    wrapped = "_source" in table.schema.names and "_source" not in names
    if table.inside:  # a field may be absent from the first lines, so that its type is not known from them
        there = {*names, *_INNER} if "event_attributes" in names else set(names)
        columns = [
            f"_source.{name}" if wrapped else name for name in wanted if name in there and name != "event_attributes"
        ]
    else:
        columns = ["_source"] if wrapped else [name for name in wanted if name in names]
    texts = [name for name in columns if not name.endswith(_ORDINAL)]
    for batch in table.batches(columns, texts):
        yield row, pa.RecordBatch.from_struct_array(batch.column("_source")) if wrapped else batch
        row += batch.num_rows


def _words(batch: Any, name: str, role: str, *, optional: bool = False) -> Any:
    """Ids or words as text; empty ones are null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = column(batch, name)
    if found is None or pa.types.is_null(found.type):
        if found is None and not optional:
            raise DataError(f"There is no column '{name}', which {role} must have.")
        return pa.nulls(batch.num_rows, pa.string())
    words = ids_in(plain(found), name, role).cast(pa.string())
    return pc.if_else(pc.equal(words, ""), None, words)


def _take_queries(batch: Any, asked: Pieces, hits: Pieces, missing: Counter[str]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    ids, words = _words(batch, "query_id", "ubi_queries"), _words(batch, "user_query", "ubi_queries")
    whole = pc.and_(ids.is_valid(), words.is_valid())
    if not pc.all(whole).as_py():
        missing["searches without a query_id or user_query"] += batch.num_rows - pc.sum(whole).as_py()
        batch, ids, words = batch.filter(whole), ids.filter(whole), words.filter(whole)
    before = sum(len(part) for part in asked.parts["id"])
    user = _words(batch, "client_id", "ubi_queries", optional=True).fill_null("")
    asked.add(id=ids.dictionary_encode(), words=words.dictionary_encode(), user=user.dictionary_encode())
    lists = column(batch, "query_response_hit_ids")
    if lists is None:
        return
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        missing["query_response_hit_ids that are no lists"] += len(lists) - lists.null_count
        return
    sizes = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    documents = pc.list_flatten(lists)
    place = np.arange(len(documents)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    search = before + np.repeat(np.arange(len(sizes)), sizes)
    if pa.types.is_null(documents.type):
        documents = documents.cast(pa.string())
    documents = ids_in(plain(documents), "query_response_hit_ids", "ubi_queries").cast(pa.string())
    has_id = documents.is_valid().to_numpy(zero_copy_only=False)
    missing["clicks and impressions without a document"] += int((~has_id).sum())
    hits.add(search=search[has_id], document=documents.drop_null().dictionary_encode(), place=place[has_id])


def _take_events(
    batch: Any, first_row: int, click: str | None, first_position: int, kept: tuple[Pieces, Pieces],
    missing: Counter[str], actions: set[str],
) -> None:  # fmt: skip
    import pyarrow as pa
    import pyarrow.compute as pc

    action = _words(batch, "action_name", "ubi_events").fill_null("")
    actions.update(pc.unique(action).to_pylist())
    is_click = pc.equal(action, click) if click else pc.ends_with(pc.utf8_lower(action), "click")
    is_shown = pc.equal(pc.utf8_lower(action), "impression")
    ids, documents = _words(batch, "query_id", "ubi_events"), _words(batch, _OBJECT, "ubi_events", optional=True)
    ordinal = column(batch, _ORDINAL)
    ordinal = pa.nulls(batch.num_rows, pa.float64()) if ordinal is None else plain(ordinal)
    of_interest = pc.or_(is_click, is_shown)
    bare = pc.and_(pc.and_(of_interest, documents.is_null()), ids.is_valid())
    chosen = pc.and_(is_shown, pc.and_(ids.is_valid(), documents.is_valid()))
    placed = pc.and_(chosen, pc.and_(ordinal.is_valid(), pc.not_equal(ordinal.cast(pa.string()), "").fill_null(False)))
    for words, mask in (
        ("events without a search", pc.and_(of_interest, ids.is_null())),
        ("clicks and impressions without a document", bare),
        ("impressions without a position", pc.and_not(chosen, placed)),
    ):
        missing[words] += pc.sum(mask).as_py() or 0
    shown, clicked = kept
    if pc.any(placed).as_py():
        row_of: RowOf = (first_row + np.flatnonzero(placed.to_numpy(zero_copy_only=False))).__getitem__
        places = numbers_of(ordinal.filter(placed), _ORDINAL, "position", row_of)
        shown.add(
            id=ids.filter(placed).dictionary_encode(), document=documents.filter(placed).dictionary_encode(),
            place=positions_of(places, row_of, first_position),
        )  # fmt: skip
    chosen = pc.and_(is_click, pc.and_(ids.is_valid(), documents.is_valid()))
    if pc.any(chosen).as_py():
        clicked.add(id=ids.filter(chosen).dictionary_encode(), document=documents.filter(chosen).dictionary_encode())


def _joined(asked: Pieces, hits: Pieces, shown: Pieces, clicked: Pieces, missing: Mapping[str, int]) -> ClickLog:
    import pyarrow as pa

    def split(*sides: tuple[Pieces, str]) -> tuple[Array, list[IntArray]]:
        """One numbering for columns of several tables."""
        parts = [side.text(name) for side, name in sides]
        all_of_it = numbered(pa.chunked_array([piece for part in parts for piece in part]))
        ends = np.cumsum([sum(map(len, part)) for part in parts])[:-1]
        return all_of_it.ids, np.split(all_of_it.number, ends)

    searches, (of_row, of_shown, of_clicked) = split((asked, "id"), (shown, "id"), (clicked, "id"))
    documents, (of_hit, of_impression, of_click) = split((hits, "document"), (shown, "document"), (clicked, "document"))
    words = numbered(pa.chunked_array(asked.text("words")))
    row_of = np.full(len(searches), -1, dtype=np.int64)  # the first that tells of a search is believed
    row_of[of_row[::-1]] = np.arange(len(of_row))[::-1]
    has_events = np.zeros(len(searches), dtype=bool)
    has_events[of_shown] = True
    row_of_hit = hits.array("search", np.int64)
    used = ~has_events[of_row[row_of_hit]] & (row_of[of_row[row_of_hit]] == row_of_hit)
    known = row_of[of_shown] >= 0
    search = np.concatenate([of_row[row_of_hit[used]], of_shown[known]])
    document = np.concatenate([of_hit[used], of_impression[known]])
    places = np.concatenate([hits.array("place", np.int64)[used], shown.array("place", np.int64)[known]])
    if not len(places):
        raise DataError(
            "No search shows anything: ubi_events has no impressions of searches that ubi_queries knows, and "
            "ubi_queries has no query_response_hit_ids."
        )
    zeros, ones = np.zeros(len(search), dtype=np.int64), np.ones(len(of_clicked), dtype=np.int64)
    at = shown_at((search, document, zeros), (of_clicked, of_click, ones), len(documents))
    clicks = np.zeros(len(search), dtype=bool)
    clicks[at[at >= 0]] = True
    listed = np.zeros(len(searches), dtype=bool)
    listed[search] = True
    again = len(of_row) - int((row_of >= 0).sum())
    further = {
        "impressions of searches that ubi_queries does not know": int((~known).sum()),
        "searches without a list": int((~listed & (row_of >= 0)).sum()),
        "rows of ubi_queries that tell of a search again": again,
        UNSHOWN: int((at < 0).sum()),
    }
    left = {words: count for words, count in {**missing, **further}.items() if count}
    users = numbered(pa.chunked_array(asked.text("user")))
    row = row_of[search]
    columns = {"user": users.ids.astype(object)[users.number[row]]} if any(users.ids != "") else {}
    return assembled(
        present(words.ids, words.number[row]), present(documents, document), present(searches, search), places,
        clicks, columns, left,
    )  # fmt: skip
