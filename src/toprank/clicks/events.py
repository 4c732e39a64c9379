"""Logs of events: what was shown and what was clicked stand apart, and are joined here.

A click belongs to the latest list of its search or session that shows the document; one that no list shows is counted
in `ClickLog.left_out`, as is everything else that cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.clicks.log import Array, ClickLog, Numbered, assembled, numbered, positions_of
from toprank.clicks.sources import Rows, column
from toprank.compute import IntArray
from toprank.data.bytesource import ByteSource, PathLike, open_bytes
from toprank.errors import DataError, FormatError

__all__ = ["read_ubi", "read_yandex"]

_BLOCK = 8 << 20  # bytes of text at a time
_UNSHOWN = "clicks on documents that no list showed before"


def shown_at(
    lists: tuple[IntArray, IntArray, IntArray], clicks: tuple[IntArray, IntArray, IntArray], n_documents: int
) -> IntArray:
    """Of each click the impression that it is on, -1 where there is none; both as owner, document and time.

    It is the latest one of the same owner and document that is not later; of several at one time the first.

    >>> lists = (np.array([0, 0, 0]), np.array([5, 6, 5]), np.array([0, 0, 2]))
    >>> shown_at(lists, (np.array([0, 0, 1]), np.array([5, 5, 5]), np.array([1, 3, 9])), 7).tolist()
    [0, 2, -1]
    """
    n = len(lists[0])
    owner, document, time = (np.concatenate(both) for both in zip(lists, clicks, strict=True))
    key = numbered(owner * np.int64(n_documents) + document).number
    row = np.arange(len(key))
    is_click = row >= n
    order = np.lexsort((np.where(is_click, row, -row), is_click, time, key))
    key, row, is_click = key[order], row[order], is_click[order]
    latest = np.maximum.accumulate(np.where(is_click, -1, np.arange(len(row))))
    found = np.where((latest >= 0) & (key[latest] == key), row[latest], -1)
    of_click = np.empty(len(clicks[0]), dtype=np.int64)
    of_click[row[is_click] - n] = found[is_click]
    return of_click


# ---- OpenSearch's User Behavior Insights ----


class _Pieces:
    """Columns that grow a strip at a time."""

    def __init__(self, *names: str) -> None:
        self.parts: dict[str, list[Any]] = {name: [] for name in names}

    def add(self, **values: Any) -> None:
        for name, one in values.items():
            self.parts[name].append(one)

    def text(self, name: str) -> list[Any]:
        import pyarrow as pa

        return self.parts[name] or [pa.array([], pa.string()).dictionary_encode()]

    def array(self, name: str, kind: npt.DTypeLike) -> Array:
        return np.concatenate([np.empty(0, kind), *self.parts[name]]).astype(kind)


def read_ubi(tables: Sequence[Rows], click: Any, first_position: int) -> ClickLog:
    """The log of ``ubi_queries`` and ``ubi_events``: a session is a search (``query_id``), a query what was typed.

    A search shows the documents of its impression events at their ordinals; where it has none, those of
    ``query_response_hit_ids`` in their order. A click is an event whose action is `click`; unless that is given, one
    whose action is or ends in "click".
    """
    events = [table for table in tables if "action_name" in _names(table)]
    queries = [table for table in tables if "user_query" in _names(table) and table not in events]
    if not queries:
        raise DataError(
            "These are UBI events; the words that were searched for are in ubi_queries: read the pair, "
            "tr.clicks.read(('ubi_queries.jsonl', 'ubi_events.jsonl'))."
        )
    asked, hits = _Pieces("id", "words", "user"), _Pieces("search", "document", "place")
    for table in queries:
        for batch in _batches(table, ("query_id", "user_query", "query_response_hit_ids", "client_id")):
            _take_queries(batch, asked, hits)
    shown, clicked = _Pieces("id", "document", "place"), _Pieces("id", "document")
    missing = {"events without a search": 0, "clicks and impressions without a document": 0,
               "impressions without a position": 0}  # fmt: skip
    for table in events:
        for batch in _batches(table, ("query_id", "action_name", "event_attributes", *_INNER)):
            _take_events(batch, click or None, shown, clicked, missing)
    return _joined(asked, hits, shown, clicked, missing, first_position)


_OBJECT, _ORDINAL = "event_attributes.object.object_id", "event_attributes.position.ordinal"
_INNER = (_OBJECT, _ORDINAL)


def _names(table: Rows) -> list[str]:
    names = list(table.schema.names)
    return [one.name for one in table.schema.field("_source").type] if "_source" in names else names


def _batches(table: Rows, wanted: Sequence[str]) -> Iterator[Any]:
    """Strips with those columns that there are; documents of a search engine are unwrapped."""
    import pyarrow as pa

    wrapped = "_source" in table.schema.names
    if table.inside:  # a field may be absent from the first lines, so that its type is not known from them
        there = {*_names(table), *_INNER} if "event_attributes" in _names(table) else set(_names(table))
        columns = [
            f"_source.{name}" if wrapped else name for name in wanted if name in there and name != "event_attributes"
        ]
    else:
        columns = ["_source"] if wrapped else [name for name in wanted if name in table.schema.names]
    texts = [name for name in columns if not name.endswith(("_source", "event_attributes", "ordinal", "hit_ids"))]
    with table.about():
        for batch in table.batches(columns, texts):
            yield pa.RecordBatch.from_struct_array(batch.column("_source")) if wrapped else batch


def _words(batch: Any, name: str, role: str) -> Any:
    import pyarrow as pa

    found = column(batch, name)
    if found is None:
        if role == "optional":
            return pa.nulls(batch.num_rows, pa.string())
        raise DataError(f"There is no column '{name}', which {role} must have.")
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    return _as(pa.string(), found, name, "text")


def _as(kind: Any, values: Any, name: str, what: str) -> Any:
    import pyarrow as pa

    try:
        return values.cast(kind, safe=False)  # a number that is rounded is no position anyway
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise DataError(f"Column '{name}' must hold {what}: {str(problem).rstrip('.')}.") from None


def _take_queries(batch: Any, asked: _Pieces, hits: _Pieces) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    before = sum(len(part) for part in asked.parts["id"])
    ids, words = _words(batch, "query_id", "ubi_queries"), _words(batch, "user_query", "ubi_queries")
    if ids.null_count or words.null_count:
        raise DataError("A row of ubi_queries has no query_id or no user_query; every search needs both.")
    user = _words(batch, "client_id", "optional").fill_null("")
    asked.add(id=ids.dictionary_encode(), words=words.dictionary_encode(), user=user.dictionary_encode())
    lists = column(batch, "query_response_hit_ids")
    if lists is None or not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        return
    sizes = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    documents = pc.list_flatten(lists).cast(pa.string())
    place = np.arange(len(documents)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    hits.add(
        search=before + np.repeat(np.arange(len(sizes)), sizes), document=documents.dictionary_encode(), place=place
    )


def _take_events(batch: Any, click: str | None, shown: _Pieces, clicked: _Pieces, missing: dict[str, int]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    action = _words(batch, "action_name", "ubi_events").fill_null("")
    is_click = pc.equal(action, click) if click else pc.ends_with(pc.utf8_lower(action), "click")
    is_shown = pc.equal(pc.utf8_lower(action), "impression")
    ids, documents = _words(batch, "query_id", "ubi_events"), _words(batch, _OBJECT, "optional")
    ordinal = column(batch, _ORDINAL)
    ordinal = (
        pa.nulls(batch.num_rows, pa.float64()) if ordinal is None else _as(pa.float64(), ordinal, _ORDINAL, "numbers")
    )
    of_interest = pc.or_(is_click, is_shown)
    lost, bare = pc.and_(of_interest, ids.is_null()), pc.and_(of_interest, documents.is_null())
    bare = pc.and_(bare, ids.is_valid())
    complete = pc.and_(ids.is_valid(), documents.is_valid())
    nowhere = pc.and_(pc.and_(is_shown, complete), ordinal.is_null())
    for words, mask in zip(missing, (lost, bare, nowhere), strict=True):
        missing[words] += pc.sum(mask).as_py() or 0
    chosen = pc.and_(pc.and_(is_shown, complete), ordinal.is_valid())
    if pc.any(chosen).as_py():
        shown.add(
            id=ids.filter(chosen).dictionary_encode(), document=documents.filter(chosen).dictionary_encode(),
            place=np.asarray(ordinal.filter(chosen)),
        )  # fmt: skip
    chosen = pc.and_(is_click, complete)
    if pc.any(chosen).as_py():
        clicked.add(id=ids.filter(chosen).dictionary_encode(), document=documents.filter(chosen).dictionary_encode())


def _joined(
    asked: _Pieces, hits: _Pieces, shown: _Pieces, clicked: _Pieces, missing: dict[str, int], first_position: int
) -> ClickLog:
    import pyarrow as pa

    def split(*sides: tuple[_Pieces, str]) -> tuple[Array, list[IntArray]]:
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
    ordinals = shown.array("place", np.float64)[known] + (1 - first_position)
    places = positions_of(np.concatenate([hits.array("place", np.float64)[used], ordinals]))
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
        _UNSHOWN: int((at < 0).sum()),
    }
    left = {words: count for words, count in {**missing, **further}.items() if count}
    users = numbered(pa.chunked_array(asked.text("user")))
    row = row_of[search]
    columns = {"user": users.ids.astype(object)[users.number[row]]} if any(users.ids != "") else {}
    return assembled(
        _present(words.ids, words.number[row]), _present(documents, document), _present(searches, search), places,
        clicks, columns, left,
    )  # fmt: skip


def _present(ids: Array, number: IntArray) -> Numbered:
    """Those ids alone that occur."""
    kept = numbered(number)
    return Numbered(ids[kept.ids], kept.number)


# ---- Yandex ----


def read_yandex(path: PathLike) -> ClickLog:
    """The log of a file with a line for each list, ``session⇥time⇥Q⇥query⇥region⇥urls …``, and for each click,
    ``session⇥time⇥C⇥url``.

    A session of the log is a list; the column ``visit`` holds the session of the file, ``time`` the time of the list.
    """
    import pyarrow as pa

    text = open_bytes(path)
    asked, shown, clicked = (
        _Pieces("visit", "query", "time", "line"),
        _Pieces("list", "url"),
        _Pieces("visit", "url", "line"),
    )
    line = lists = 0
    for block in _lines(text):
        lines, count = _take_lines(block, asked, shown, clicked, line, lists, path)
        line, lists = line + lines, lists + count
    if not lists:
        raise FormatError("There is no line of a list (Q).", path=path)
    visits = numbered(pa.chunked_array([*asked.text("visit"), *clicked.text("visit")]), from_text=True)
    urls = numbered(pa.chunked_array([*shown.text("url"), *clicked.text("url")]), from_text=True)
    query = numbered(pa.chunked_array(asked.text("query")), from_text=True)
    of_list, n = shown.array("list", np.int64), sum(map(len, shown.parts["url"]))
    when = asked.array("line", np.int64)
    at = shown_at(
        (visits.number[:lists][of_list], urls.number[:n], when[of_list]),
        (visits.number[lists:], urls.number[n:], clicked.array("line", np.int64)),
        len(urls.ids),
    )
    clicks = np.zeros(n, dtype=bool)
    clicks[at[at >= 0]] = True
    left = {_UNSHOWN: int((at < 0).sum())} if (at < 0).any() else {}
    begins = np.searchsorted(of_list, np.arange(lists))
    places = np.arange(n) - begins[of_list] + 1
    columns = {"visit": visits.ids[visits.number[:lists][of_list]], "time": asked.array("time", np.int64)[of_list]}
    return assembled(
        Numbered(query.ids, query.number[of_list]), _present(urls.ids, urls.number[:n]),
        Numbered(np.arange(lists), of_list), places, clicks, columns, left,
    )  # fmt: skip


def _lines(text: ByteSource) -> Iterator[bytes]:
    at = text.start
    while at < text.size:
        end = min(text.newline(min(at + _BLOCK, text.size)) + 1, text.size)
        yield text.bytes(at, end)
        at = end


def _take_lines(
    block: bytes, asked: _Pieces, shown: _Pieces, clicked: _Pieces, line: int, lists: int, path: PathLike
) -> tuple[int, int]:
    """Sort the lines of a block; how many there are, and how many lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        # splitlines() would also end a line at letters that may stand in a query
        lines = pa.array(block.decode("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n"), pa.string())
    except UnicodeDecodeError as problem:
        before = block.count(b"\n", 0, problem.start)
        raise FormatError("The text is not UTF-8.", path=path, line=line + before + 1) from None
    split = pc.split_pattern(lines, "\t")
    begins = np.asarray(split.offsets)[:-1].astype(np.int64)
    sizes = np.diff(np.asarray(split.offsets)).astype(np.int64)
    words = split.values
    kind = words.take(pa.array(begins + np.minimum(2, sizes - 1)))
    is_list = np.asarray(pc.equal(kind, "Q").to_numpy(zero_copy_only=False)) & (sizes >= 6)
    is_click = np.asarray(pc.equal(kind, "C").to_numpy(zero_copy_only=False)) & (sizes == 4)
    wrong = np.flatnonzero(~(is_list | is_click))
    if len(wrong):
        raise FormatError(
            "A line is session, time, Q, query, region and URLs, or session, time, C and a URL, with tabs between.",
            path=path, line=line + int(wrong[0]) + 1,
        )  # fmt: skip

    def coded(places: IntArray) -> Any:
        return words.take(pa.array(places)).dictionary_encode()

    first, length = begins[is_list], sizes[is_list] - 5
    try:
        time = np.asarray(words.take(pa.array(first + 1)).cast(pa.int64()))
    except pa.ArrowInvalid as problem:
        raise FormatError(f"A time is no whole number: {problem}.", path=path) from None
    asked.add(visit=coded(first), query=coded(first + 3), time=time, line=line + np.flatnonzero(is_list))
    place = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    shown.add(list=lists + np.repeat(np.arange(len(first)), length), url=coded(np.repeat(first + 5, length) + place))
    at = begins[is_click]
    clicked.add(visit=coded(at), url=coded(at + 3), line=line + np.flatnonzero(is_click))
    return len(lines), len(first)
