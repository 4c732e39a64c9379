"""Logs in Yandex' format: one line per list, ``session⇥time⇥Q⇥query⇥region⇥urls …``, and one per click,
``session⇥time⇥C⇥url``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toprank.clicks.assembly import assembled
from toprank.clicks.events import UNSHOWN, Pieces, present, shown_at
from toprank.clicks.log import ClickLog, Numbered, first_odd, numbered
from toprank.clicks.sources import line_blocks
from toprank.compute import IntArray
from toprank.data.bytesource import PathLike
from toprank.data.queries import positions_within
from toprank.errors import FormatError

_LINES = "A line must be session, time, Q, query, region and URLs, or session, time, C and a URL, separated by tabs"


def read_yandex(paths: Sequence[PathLike]) -> ClickLog:
    """Read the log of consecutive files.

    A session of the log is a list. The column ``visit`` holds the session of the file, and ``time`` the time of the
    list.
    """
    list_pieces, url_pieces, click_pieces = (
        Pieces(),
        Pieces(),
        Pieces(),
    )
    before = lists = 0  # numbers of lines and lists read so far
    for path in paths:
        for first, block in line_blocks(path):
            lines = _SessionLines(block.tobytes(), path, first)
            lists += _take(lines, before, lists, list_pieces, url_pieces, click_pieces)
            before += len(lines.sizes)
    if not lists:
        raise FormatError("The file has no lines of lists (Q).", path=paths[0])
    visits = numbered(pa.chunked_array([*list_pieces.text("visit"), *click_pieces.text("visit")]), from_text=True)
    urls = numbered(pa.chunked_array([*url_pieces.text("url"), *click_pieces.text("url")]), from_text=True)
    query = numbered(pa.chunked_array(list_pieces.text("query")), from_text=True)
    of_list, n = url_pieces.array("list", np.int64), sum(map(len, url_pieces.parts["url"]))
    line = list_pieces.array("line", np.int64)
    at = shown_at(
        (visits.number[:lists][of_list], urls.number[:n], line[of_list]),
        (visits.number[lists:], urls.number[n:], click_pieces.array("line", np.int64)),
        len(urls.ids),
    )
    clicks = np.zeros(n, dtype=bool)
    clicks[at[at >= 0]] = True
    left = {UNSHOWN: int((at < 0).sum())} if (at < 0).any() else {}
    begins = np.searchsorted(of_list, np.arange(lists))
    places = np.arange(n) - begins[of_list] + 1
    columns = {
        "visit": visits.ids[visits.number[:lists][of_list]],
        "time": list_pieces.array("time", np.int64)[of_list],
    }
    return assembled(
        Numbered(query.ids, query.number[of_list]), present(urls.ids, urls.number[:n]),
        Numbered(np.arange(lists), of_list), places, clicks, columns, left,
    )  # fmt: skip


class _SessionLines:
    """The fields of a block of lines, each a list or a click."""

    def __init__(self, block: bytes, path: PathLike, first: int) -> None:
        self._path, self._first = path, first
        try:
            text = block.decode("utf-8").replace("\r\n", "\n").removesuffix("\n")
        except UnicodeDecodeError as problem:
            self.refuse(block.count(b"\n", 0, problem.start), "The text is not UTF-8")
        split = pc.split_pattern(pa.array(text.split("\n"), pa.string()), "\t")
        self.words = split.values
        self.begins = np.asarray(split.offsets)[:-1].astype(np.int64)
        self.sizes = np.diff(np.asarray(split.offsets)).astype(np.int64)
        kind = np.asarray(self.words.take(pa.array(self.begins + np.minimum(2, self.sizes - 1))))
        self.is_list, self.is_click = (kind == "Q") & (self.sizes >= 6), (kind == "C") & (self.sizes == 4)
        wrong = np.flatnonzero(~(self.is_list | self.is_click))
        if len(wrong):
            self.refuse(wrong[0], _LINES)
        empty = np.flatnonzero(pc.equal(self.words, "").to_numpy(zero_copy_only=False))
        line = np.searchsorted(self.begins, empty, side="right") - 1
        line = line[empty - self.begins[line] != 4]  # the region may be empty
        if len(line):
            self.refuse(line[0], f"A field is empty. {_LINES}")

    def times(self) -> IntArray:
        words = self.words.take(pa.array(self.begins + 1))
        try:
            return np.asarray(words.cast(pa.int64()))
        except pa.ArrowInvalid:
            odd = first_odd(words, pa.int64())
            self.refuse(odd, f"The time '{words[odd]}' is not an integer")

    def coded(self, places: IntArray) -> Any:
        """Return some fields, dictionary-encoded."""
        return self.words.take(pa.array(places)).dictionary_encode()

    def refuse(self, line: int, problem: str) -> NoReturn:
        raise FormatError(f"{problem}.", path=self._path, line=self._first + int(line)) from None


def _take(
    lines: _SessionLines, before: int, lists: int, list_pieces: Pieces, url_pieces: Pieces, click_pieces: Pieces
) -> int:
    """Collect lists and clicks of a block, given the counts of previous lines and lists; return the number of lists."""
    first, length = lines.begins[lines.is_list], lines.sizes[lines.is_list] - 5
    list_pieces.add(
        visit=lines.coded(first), query=lines.coded(first + 3), time=lines.times()[lines.is_list],
        line=before + np.flatnonzero(lines.is_list),
    )  # fmt: skip
    place = positions_within(length)
    url_pieces.add(
        list=lists + np.repeat(np.arange(len(first)), length), url=lines.coded(np.repeat(first + 5, length) + place)
    )
    at = lines.begins[lines.is_click]
    click_pieces.add(visit=lines.coded(at), url=lines.coded(at + 3), line=before + np.flatnonzero(lines.is_click))
    return len(first)
