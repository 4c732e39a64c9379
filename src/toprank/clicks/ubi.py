"""Logs of OpenSearch's User Behavior Insights, ``ubi_queries`` and ``ubi_events``.

The log of a service has the same format, with further attributes of lists (`_LISTS`) and unique events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toprank.clicks.assembly import RowOf, assembled, column, ids_in, numbers_of, plain, positions_of
from toprank.clicks.events import (
    UNSHOWN,
    EventKinds,
    Pieces,
    amounts_in,
    first_shown,
    numbered_together,
    present,
    seconds_in,
)
from toprank.clicks.log import Array, ClickLog, numbered
from toprank.clicks.sources import LogRows, are_events, field_names
from toprank.clicks.values import (
    DEFAULT_VALUES,
    EARLY,
    ValueEvents,
    action_of,
    tally,
    weights_of,
)
from toprank.compute import IntArray
from toprank.data.queries import positions_within
from toprank.errors import DataError, Remedy, UnknownNameError

_OBJECT, _ORDINAL = "event_attributes.object.object_id", "event_attributes.position.ordinal"
_VALUE, _EVENT = "event_attributes.value", "event_attributes.event_id"
_INNER = (_OBJECT, _ORDINAL, _VALUE, _EVENT)
_CONTEXTS = ("device", "surface")
_WORDS = {"model": "ranker", "version": "version", "arm": "arm"} | {name: name for name in _CONTEXTS}
# Further attributes of lists that a service writes, with their defaults.
_NUMBERS = {"explored": 0.0, "propensity": 1.0, "share": np.nan}
# Attributes of lists that become columns of the log, unless they are empty.
_LISTS = tuple(f"query_attributes.{name}" for name in (*_WORDS, *_NUMBERS))
_TEAMS, _SCORES, _FEATURES = "query_attributes.teams", "query_attributes.scores", "query_attributes.features"
_MAX_CLOCK_SKEW = 1.0  # seconds; larger differences between clocks are reported
UNKNOWN = "events of searches that have no list"


class _Collected(NamedTuple):
    """Batches of all tables, and counts of unusable rows by reason."""

    queries: Pieces
    hits: Pieces
    impressions: Pieces
    events: Pieces
    missing: Counter[str]


def read_ubi(
    tables: Sequence[LogRows],
    click: str | None,
    first_position: int,
    values: str | Mapping[str, float | str] | None = None,
    metadata: Sequence[str] = (),
) -> ClickLog:
    """Read ``ubi_queries`` and ``ubi_events`` as a log whose sessions are searches (``query_id``) and queries are
    typed text.

    A search shows the documents of its impression events at their ordinals, or else those of ``query_response_hit_ids``
    in order. A click is an event with the action `click`, or by default with an action that is or ends in "click".
    `values` gives the values of other events (`weights_of`), and `metadata` the features of a service's log to keep,
    and ``score``.
    """
    served = all(table.served for table in tables)
    events = [table for table in tables if are_events(table)]
    queries = [table for table in tables if "user_query" in field_names(table) and table not in events]
    if not queries or not (events or served):
        table_kind, lacks = ("events", "query text") if events else ("queries", "clicks")
        raise DataError(
            f"These are UBI {table_kind}; the {lacks} are in ubi_{'queries' if events else 'events'}: read the pair,",
            remedy=Remedy(
                "tr.clicks.read(('ubi_queries.jsonl', 'ubi_events.jsonl')).",
                "toprank clicks check ubi_queries.jsonl ubi_events.jsonl, or the folder that holds both.",
            ),
        )
    for table in tables:
        if table not in events and table not in queries:
            with table.about():
                raise DataError("This is neither ubi_queries (user_query) nor ubi_events (query_id, action_name).")
    weights = dict(DEFAULT_VALUES if served else {}) if values is None else weights_of(values)
    kinds = EventKinds(click, weights, served)
    collected, actions = _Collected(Pieces(), Pieces(), Pieces(), Pieces(), Counter()), set[str]()
    wanted = ["query_id", "user_query", "query_response_hit_ids", "client_id", "timestamp"]
    sources = _metadata_columns(tables, metadata) if served else None
    wanted += [] if sources is None else [*_LISTS, _TEAMS, *sources.values()]
    for table in queries:
        with table.about():
            for _, batch in _batches(table, wanted):
                _take_queries(batch, collected, sources)
    for table in events:
        with table.about():
            for row, batch in _batches(table, ("query_id", "action_name", "timestamp", "event_attributes", *_INNER)):
                actions |= _take_events(batch, row, kinds, first_position, collected)
    for name in ([] if click is None else [click]) + (list(weights) if values is not None and not served else []):
        if name not in {*actions, *map(action_of, actions), "click"}:
            raise UnknownNameError("action in these events", name, sorted(actions))
    for table in tables:
        collected.missing.update(table.lost or {})
    log = _joined(collected, kinds)
    for name in _CONTEXTS:
        if name in metadata and name not in log.columns:
            raise DataError(f"No list of the log has a {name}: every request to the service must include it.")
    return log


def _metadata_columns(tables: Sequence[LogRows], metadata: Sequence[str]) -> dict[str, str]:
    """Return the path of each column to keep."""
    features = sorted({name for table in tables for name in _features(table)})
    known = {**{name: f"{_FEATURES}.{name}" for name in features}, "score": _SCORES}  # even if a feature has this name
    further = [name for name in metadata if name not in _CONTEXTS]  # contexts are always kept
    for name in further:
        if name not in known:
            raise UnknownNameError("column of the log", name, ["score", *_CONTEXTS, *features])
    return {name: known[name] for name in further}


def _features(table: LogRows) -> list[str]:
    if "query_attributes" not in table.schema.names:
        return []
    kind = table.schema.field("query_attributes").type
    place = kind.get_field_index("features") if pa.types.is_struct(kind) else -1
    return [field.name for field in kind.field(place).type] if place >= 0 else []


def _batches(table: LogRows, wanted: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Yield batches of the columns that exist, and the first row of each; documents wrapped by an engine are
    unwrapped.
    """
    names, row = field_names(table), 0
    wrapped = "_source" in table.schema.names and "_source" not in names
    if table.inside:  # the first lines need not have all fields
        there = {*names, *_INNER} if "event_attributes" in names else set(names)
        there |= {name for name in wanted if name.startswith("query_attributes.")}
        columns = [
            f"_source.{name}" if wrapped else name for name in wanted if name in there and name != "event_attributes"
        ]
    else:
        columns = ["_source"] if wrapped else [name for name in wanted if name in names]
    texts = [name for name in columns if not name.endswith((_ORDINAL, _VALUE, "timestamp"))]
    for batch in table.batches(columns, texts):
        yield row, pa.RecordBatch.from_struct_array(batch.column("_source")) if wrapped else batch
        row += batch.num_rows


def _words(batch: Any, name: str, role: str, *, optional: bool = False) -> Any:
    """Return ids or text as text; empty ones are null."""
    cells = column(batch, name)
    if cells is None or pa.types.is_null(cells.type):
        if cells is None and not optional:
            raise DataError(f"There is no column '{name}', which {role} must have.")
        return pa.nulls(batch.num_rows, pa.string())
    words = ids_in(plain(cells), name, role).cast(pa.string())
    return pc.if_else(pc.equal(words, ""), None, words)


def _take_queries(batch: Any, collected: _Collected, sources: Mapping[str, str] | None) -> None:
    """Collect a batch of ``ubi_queries``."""
    ids, words = _words(batch, "query_id", "ubi_queries"), _words(batch, "user_query", "ubi_queries")
    whole = pc.and_(ids.is_valid(), words.is_valid())
    if not pc.all(whole).as_py():
        collected.missing["searches without a query_id or user_query"] += batch.num_rows - (pc.sum(whole).as_py() or 0)
        batch, ids, words = batch.filter(whole), ids.filter(whole), words.filter(whole)
    before = sum(len(part) for part in collected.queries.parts["id"])
    user = _words(batch, "client_id", "ubi_queries", optional=True).fill_null("")
    collected.queries.add(id=ids.dictionary_encode(), words=words.dictionary_encode(), user=user.dictionary_encode())
    collected.queries.add(time=seconds_in(column(batch, "timestamp"), batch.num_rows))
    if sources is not None:
        collected.queries.add(**_attributes(batch))
    lists = column(batch, "query_response_hit_ids")
    if lists is None:
        return
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        collected.missing["query_response_hit_ids that are no lists"] += len(lists) - lists.null_count
        return
    sizes = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    documents = pc.list_flatten(lists)
    place = positions_within(sizes) + 1
    search = before + np.repeat(np.arange(len(sizes)), sizes)
    if pa.types.is_null(documents.type):
        documents = documents.cast(pa.string())
    documents = ids_in(plain(documents), "query_response_hit_ids", "ubi_queries").cast(pa.string())
    has_id = documents.is_valid().to_numpy(zero_copy_only=False)
    collected.missing["clicks and impressions without a document"] += int((~has_id).sum())
    collected.hits.add(search=search[has_id], document=documents.drop_null().dictionary_encode(), place=place[has_id])
    if sources is not None:
        beside = {"team": _TEAMS, **sources}
        collected.hits.add(**{name: _beside(batch, name, path, sizes, has_id) for name, path in beside.items()})


def _attributes(batch: Any) -> dict[str, Any]:
    """Return the attributes that a service writes for each list."""
    attributes: dict[str, Any] = {}
    for name, called in _WORDS.items():
        attributes[called] = (
            _words(batch, f"query_attributes.{name}", "", optional=True).fill_null("").dictionary_encode()
        )
    for name, usual in _NUMBERS.items():
        values = column(batch, f"query_attributes.{name}")
        assert values is not None  # listed in `_served_types`
        attributes[name] = np.asarray(values.cast("double").fill_null(usual).to_numpy(zero_copy_only=False))
    return attributes


def _beside(batch: Any, name: str, path: str, sizes: IntArray, has_id: npt.NDArray[np.bool_]) -> Array:
    """Return an attribute of each document with an id; NaN or '' for lists without it."""
    outer, _, last = path.rpartition(".")
    lists = pc.struct_field(column(batch, outer), last) if outer == _FEATURES else column(batch, path)
    empty: Any = "" if name == "team" else np.nan
    kind = np.dtype(object if name == "team" else np.float64)
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    if not lengths.any():
        return np.broadcast_to(np.array(empty, dtype=kind), int(has_id.sum()))  # a broadcast constant needs no memory
    spread = np.full(int(sizes.sum()), empty, dtype=kind)
    if (lengths[lengths > 0] != sizes[lengths > 0]).any():
        raise DataError(f"A list does not have exactly one {name} per document.")
    values = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
    spread[np.repeat(lengths > 0, sizes)] = values
    return spread[has_id]


def _take_events(batch: Any, first_row: int, kinds: EventKinds, first_position: int, collected: _Collected) -> set[str]:
    """Collect a batch of ``ubi_events``; return the actions in it."""
    action = _words(batch, "action_name", "ubi_events").fill_null("")
    actions = set(pc.unique(action).to_pylist())
    kind = kinds.of(action)
    is_done, is_shown = kind.is_valid(), pc.equal(pc.utf8_lower(action), "impression")
    ids, documents = _words(batch, "query_id", "ubi_events"), _words(batch, _OBJECT, "ubi_events", optional=True)
    ordinal = column(batch, _ORDINAL)
    ordinal = pa.nulls(batch.num_rows, pa.float64()) if ordinal is None else plain(ordinal)
    of_interest = pc.or_(is_done, is_shown)
    bare = pc.and_(pc.and_(of_interest, documents.is_null()), ids.is_valid())
    chosen = pc.and_(is_shown, pc.and_(ids.is_valid(), documents.is_valid()))
    placed = pc.and_(chosen, pc.and_(ordinal.is_valid(), pc.not_equal(ordinal.cast(pa.string()), "").fill_null(False)))
    for words, mask in (
        ("events without a search", pc.and_(of_interest, ids.is_null())),
        ("clicks and impressions without a document", bare),
        ("impressions without a position", pc.and_not(chosen, placed)),
    ):
        collected.missing[words] += pc.sum(mask).as_py() or 0
    if pc.any(placed).as_py():
        row_of: RowOf = (first_row + np.flatnonzero(placed.to_numpy(zero_copy_only=False))).__getitem__
        places = numbers_of(ordinal.filter(placed), _ORDINAL, "position", row_of)
        collected.impressions.add(
            id=ids.filter(placed).dictionary_encode(), document=documents.filter(placed).dictionary_encode(),
            place=positions_of(places, row_of, first_position),
        )  # fmt: skip
    chosen = pc.and_(is_done, pc.and_(ids.is_valid(), documents.is_valid()))
    if not pc.any(chosen).as_py():
        return actions
    batch, kind = batch.filter(chosen), kind.filter(chosen)
    event = column(batch, _EVENT)
    named = event is not None and event.null_count < len(event)
    collected.events.add(
        id=ids.filter(chosen).dictionary_encode(), document=documents.filter(chosen).dictionary_encode(),
        kind=np.asarray(kind), amount=amounts_in(column(batch, _VALUE), batch.num_rows, collected.missing),
        time=seconds_in(column(batch, "timestamp"), batch.num_rows),
        event=_words(batch, _EVENT, "ubi_events").fill_null("") if named else pa.array([""] * batch.num_rows),
    )  # fmt: skip
    return actions


class _Search(NamedTuple):
    """The impressions of searches: search, row of ``ubi_queries``, document and position of each."""

    search: IntArray
    row: IntArray
    document: IntArray
    places: IntArray
    used: npt.NDArray[np.bool_]  # which hits are impressions; these come first


def _joined(collected: _Collected, kinds: EventKinds) -> ClickLog:
    """Join lists with events."""
    queries, hits, impressions, events, missing = collected
    searches, (of_row, of_shown, of_done) = numbered_together("id", queries, impressions, events)
    documents, (of_hit, of_impression, of_event) = numbered_together("document", hits, impressions, events)
    words = numbered(pa.chunked_array(queries.text("words")))
    row_of = np.full(len(searches), -1, dtype=np.int64)  # the first row of a search counts
    row_of[of_row[::-1]] = np.arange(len(of_row))[::-1]
    known = row_of[of_shown] >= 0
    lists = _lists_of(collected, (of_row, of_hit), (of_shown, of_impression), row_of)
    del of_hit, of_impression
    times = queries.array("time", np.float64)
    unknown = row_of[of_done] < 0
    with np.errstate(invalid="ignore"):
        early = events.given_up("time", np.float64) < times[np.maximum(row_of[of_done], 0)] - _MAX_CLOCK_SKEW
    clicks, columns, counts = _tallied(events, lists, of_done, of_event, unknown, len(documents), kinds)
    del of_done, of_event
    listed = np.zeros(len(searches), dtype=bool)
    listed[lists.search] = True
    further = {
        "impressions of searches that ubi_queries does not know": int((~known).sum()),
        "searches without a list": int((~listed & (row_of >= 0)).sum()),
        "rows of ubi_queries that repeat a search": len(of_row) - int((row_of >= 0).sum()),
        UNKNOWN: int(unknown.sum()),
        UNSHOWN: counts.pop(UNSHOWN),
        EARLY: int((early & ~unknown).sum()),
        **counts,
    }
    left = {words: count for words, count in {**missing, **further}.items() if count}
    users = numbered(pa.chunked_array(queries.text("user")))
    row = lists.row
    if any(users.ids != ""):
        columns["user"] = users.ids.astype(object)[users.number[row]]
    if not np.isnan(times).all():
        columns["time"] = times[row]
    columns |= _of_lists(queries, row) | _of_documents(hits, lists.used, len(row))
    query, search = present(words.ids, words.number[row]), present(searches, lists.search)
    document, places = present(documents, lists.document), lists.places
    del lists, row, unknown, early  # free memory for the assembly
    return assembled(query, document, search, places, clicks, columns, left)


def _lists_of(
    collected: _Collected, of_hits: tuple[IntArray, IntArray], of_events: tuple[IntArray, IntArray], row_of: IntArray
) -> _Search:
    """Return the impressions: impression events, and the hits of searches without such events."""
    (of_row, of_hit), (of_shown, of_impression) = of_hits, of_events
    has_events = np.zeros(len(row_of), dtype=bool)
    has_events[of_shown] = True
    row_of_hit = collected.hits.given_up("search", np.int64)
    search = of_row[row_of_hit]
    used = ~has_events[search] & (row_of[search] == row_of_hit)
    known = row_of[of_shown] >= 0
    search = np.concatenate([search[used], of_shown[known]])
    places = np.concatenate(
        [collected.hits.given_up("place", np.int64)[used], collected.impressions.given_up("place", np.int64)[known]]
    )
    if not len(places):
        raise DataError(
            "No search shows anything: ubi_events has no impressions of searches that ubi_queries knows, and "
            "ubi_queries has no query_response_hit_ids."
        )
    document = np.concatenate([of_hit[used], of_impression[known]])
    return _Search(search, row_of[search], document, places, used)


def _tallied(
    events: Pieces, lists: _Search, of_done: IntArray, of_event: IntArray, unknown: Array, documents: int,
    kinds: EventKinds,
) -> tuple[npt.NDArray[np.bool_], dict[str, Array], dict[str, int]]:  # fmt: skip
    """Return clicks and values of each impression, and counts, including events on documents that no list shows."""
    at = first_shown((lists.search, lists.document), (of_done, of_event), documents)
    amount, kind = events.given_up("amount", np.float64), events.given_up("kind", np.int8)
    named = numbered(pa.chunked_array(events.given_up_text("event"))).number
    done = ValueEvents(at, of_done * np.int64(documents) + of_event, kind, amount, named)
    clicks, columns, counts = tally(done, len(lists.row), kinds.names, kinds.weights, kinds.click, kinds.served)
    return clicks, columns, {UNSHOWN: int(((at < 0) & ~unknown).sum()), **counts}


def _of_lists(query_pieces: Pieces, row: IntArray) -> dict[str, Array]:
    """Return the attributes of lists for each impression; attributes without values are omitted."""
    columns: dict[str, Array] = {}
    for name in _WORDS.values():
        if name in query_pieces:
            words = numbered(pa.chunked_array(query_pieces.text(name)))
            if any(words.ids != ""):
                columns[name] = words.ids.astype(object)[words.number[row]]
    for name, usual in _NUMBERS.items():
        if name in query_pieces:
            numbers = query_pieces.array(name, np.float64)
            if not (np.isnan(numbers) if np.isnan(usual) else numbers == usual).all():
                columns[name] = numbers[row].astype(bool) if name == "explored" else numbers[row]
    return columns


def _of_documents(hit_pieces: Pieces, used: Array, n: int) -> dict[str, Array]:
    """Return the attributes of documents in lists; impressions from events have none."""
    columns: dict[str, Array] = {}
    for name in hit_pieces.parts:
        if name in ("search", "document", "place") or name not in hit_pieces:
            continue
        if name == "team" and not any(part.strides[0] for part in hit_pieces.parts[name]):
            continue  # no list has teams
        values = np.concatenate(hit_pieces.parts[name])[used]
        if name == "team" and not (values != "").any():
            continue
        empty = np.full(n - len(values), "" if name == "team" else np.nan, dtype=values.dtype)
        columns[name] = np.concatenate([values, empty])
    return columns
