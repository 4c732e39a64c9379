"""Files of what was served and what users did, for `toprank.clicks.read`.

They are lines of JSON in the terms of OpenSearch's User Behavior Insights: ``queries-….jsonl`` has the lists,
``events-….jsonl`` what users did with them. A request never waits: records go to a queue of bounded size, which a
thread writes out several times a second. A record that finds no room in the queue, or on the disk, is counted and
dropped. Records may come from any thread. The oldest files are removed before lines are written that would exceed the
limit on all files together.

Every process writes files of its own, so that nothing is ever appended to a torn line. A line that could be written
only in part is taken back; if the process is killed in between, the last line of a file is torn, and readers skip it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Signal
from threading import Lock, Thread
from typing import Any

import msgspec
from msgspec import Struct

from toprank.errors import DataError
from toprank.serving.counters import Counters
from toprank.serving.settings import LogFiles

_SECONDS = 0.25  # between two writes: records since the last one are lost if the process is killed
_WAITING = 64 << 20  # bytes of lines that may wait to be written
_AT_ONCE = 4 << 20  # bytes that are written in one go
_FILE = 64 << 20  # bytes of a file at most
_SHARE = 8  # a file has at most one in so many of all bytes, so that removing the oldest removes little
_HOUR = 3600.0  # a file is no longer open than that, so that what is too old can be removed
_LOOK = 60.0  # seconds between looks at what is too old, and between complaints
_KINDS = ("queries", "events")


class ShownAttributes(Struct, omit_defaults=True, gc=False):
    """What else is known of a list; of an interleaved one `model` and `version` are those of both, joined by a plus."""

    model: str
    version: str
    scores: Sequence[float] | None = None
    teams: list[str] | None = None
    explored: bool = False
    propensity: float | None = None
    """The chance that this list is shown, of all those that exploring might have made of the ranking; None: 1."""
    arm: str | None = None
    share: float | None = None
    """Of the arm, how many of all keys it gets."""
    features: dict[str, list[float | None]] | None = None
    device: str | None = None
    surface: str | None = None


class ShownList(Struct, omit_defaults=True, gc=False, tag_field="application", tag="toprank"):
    """A list that was served, as a row of ``ubi_queries``; the first field of its line says which program wrote it."""

    query_id: str
    timestamp: int
    user_query: str | None
    query_response_hit_ids: Sequence[str]
    query_attributes: ShownAttributes
    client_id: str | None = None


class ObjectOf(Struct, gc=False):
    """What an event is about."""

    object_id: str


class UserAttributes(Struct, omit_defaults=True, gc=False):
    """What else is known of an event: an amount of money, or seconds; and an id, where one may happen several times."""

    object: ObjectOf
    value: float | None = None
    event_id: str | None = None


class UserEvent(Struct, omit_defaults=True, gc=False, tag_field="application", tag="toprank"):
    """What a user did with a document of a list, as a row of ``ubi_events``."""

    action_name: str
    query_id: str
    timestamp: int
    event_attributes: UserAttributes


class EventLog:
    """Files of what was shown and done, written by a thread.

    Args:
        options: where, and how much of it is kept.
        counters: where records are counted.
        complain: called now and then while the disk takes no records.
    """

    def __init__(self, options: LogFiles, counters: Counters, complain: Callable[..., None]) -> None:
        self.options, self._counters, self._complain = options, counters, complain
        _make_folder(options.folder)
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._size, self._lock = 0, Lock()  # bytes that wait; the loop, the service's threads and the writer count them
        word = secrets.token_hex(4)
        self._max_file = max(1 << 20, min(_FILE, int(options.bytes / _SHARE)))
        self._files = {kind: _File(options.folder, kind, word, self._max_file) for kind in _KINDS}
        self._room = 0.0  # bytes that may be written before the folder has to be looked at
        self._stopped, self._failed = Signal(), -_LOOK
        self._looked = -_LOOK
        self._thread = Thread(target=self._write_on, name="event log", daemon=True)
        self._thread.start()

    def add_list(self, record: ShownList) -> bool:
        """Queue a list that was served; False if there was no room, and the list is lost."""
        return self._add("queries", record)

    def add_event(self, record: UserEvent) -> bool:
        """Queue what a user did; False if there was no room."""
        return self._add("events", record)

    def _add(self, kind: str, record: Any) -> bool:
        # Encoded here, where the record is in the cache: on the writer's thread it costs twice as much.
        line = _encode(record)
        with self._lock:
            room = self._size + len(line) <= _WAITING or not self._waiting
            if room:
                self._size += len(line)
                self._waiting.append((kind, line))
        if not room:
            self._counters.log_dropped.labels(kind, "queue").inc()
        return room

    def close(self) -> None:
        """Write what waits, and stop."""
        self._stopped.set()
        self._thread.join(10.0)

    # ---- on the thread ----

    def _write_on(self) -> None:
        while not self._stopped.wait(_SECONDS):
            self._write()
        self._write()
        for file in self._files.values():
            file.close()

    def _write(self) -> None:
        at_once = min(_AT_ONCE, self._max_file)
        while self._waiting:
            lines: dict[str, list[bytes]] = {kind: [] for kind in _KINDS}
            size = count = 0
            while self._waiting and (not size or size + count + len(self._waiting[0][1]) < at_once):
                kind, line = self._waiting.popleft()
                lines[kind].append(line)
                size += len(line)
                count += 1  # and a line break of each
            for kind, written in lines.items():
                if written:
                    self._append(kind, written)
            with self._lock:
                self._size -= size
        if time.monotonic() - self._looked >= _LOOK:
            self._remove_old(0)

    def _append(self, kind: str, lines: list[bytes]) -> None:
        text = b"\n".join([*lines, b""])
        if len(text) > self._room:
            self._remove_old(len(text))
        self._room -= len(text)
        try:
            self._files[kind].append(text)
        except OSError as problem:
            self._counters.log_dropped.labels(kind, "disk").inc(len(lines))
            if time.monotonic() - self._failed >= _LOOK:
                self._failed = time.monotonic()
                self._complain("log not written", folder=str(self.options.folder), error=problem.strerror)
        else:
            self._counters.log_records.labels(kind).inc(len(lines))

    def _remove_old(self, needed: int) -> None:
        """Remove files that are too old, and the oldest ones until `needed` bytes fit below the limit.

        Files of other processes count and are removed, too; files that are open here are not removed.
        """
        self._looked = time.monotonic()
        own = {file.path for file in self._files.values()}
        known = []
        with suppress(OSError):
            for kind in _KINDS:
                for path in self.options.folder.glob(f"{kind}-*.jsonl"):
                    with suppress(OSError):  # another process was quicker
                        facts = path.stat()
                        known.append((facts.st_mtime, facts.st_size, path))
        total, oldest = sum(size for _, size, _ in known), time.time() - self.options.days * 86_400.0
        limit = self.options.bytes
        if total + needed > limit:  # make room for a whole file, so that the folder is not looked at every time
            limit -= max(needed, self._max_file)
        for when, size, path in sorted(known):
            if path in own or (when >= oldest and total <= limit):
                continue
            with suppress(OSError):
                path.unlink()
                total -= size
        # Other processes may write meanwhile, so look again after as many bytes as a file holds.
        self._room = min(self.options.bytes - total, max(needed, self._max_file))


_encode = msgspec.json.Encoder().encode


@dataclass
class _Open:
    """A file that is written to."""

    path: Path
    descriptor: int
    since: float
    size: int = 0

    def is_over(self) -> bool:
        """Whether it was open for long, or was removed: nobody would read what is written to it then."""
        return time.monotonic() - self.since > _HOUR or os.fstat(self.descriptor).st_nlink == 0


class _File:
    """The files of one kind, one behind the other; readable by their owner alone."""

    def __init__(self, folder: Path, kind: str, word: str, most: int) -> None:
        self._folder, self._kind, self._word, self._most = folder, kind, word, most
        self._number = 0
        self._open: _Open | None = None

    @property
    def path(self) -> Path | None:
        """That of the one that is open."""
        return None if self._open is None else self._open.path

    def append(self, text: bytes) -> None:
        """Write whole lines, or none of them: where there is no room for all, the part is taken back."""
        file = self._open
        if file is not None and (file.size + len(text) > self._most or file.is_over()):
            self.close()
        file = self._open = self._open or self._new()
        try:
            left = memoryview(text)
            while left:
                left = left[os.write(file.descriptor, left) :]
        except OSError:
            try:
                os.ftruncate(file.descriptor, file.size)
                os.lseek(file.descriptor, file.size, os.SEEK_SET)
            except OSError:  # what was written of a line stays, so that nothing may follow it
                self.close()
            raise
        file.size += len(text)

    def _new(self) -> _Open:
        self._number += 1
        when = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        path = self._folder / f"{self._kind}-{when}-{self._word}-{self._number}.jsonl"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        return _Open(path, descriptor, time.monotonic())

    def close(self) -> None:
        """Finish the file, and remove it if nothing was written to it."""
        file, self._open = self._open, None
        if file is None:
            return
        with suppress(OSError):
            os.close(file.descriptor)
        if not file.size:
            with suppress(OSError):
                file.path.unlink()


def _make_folder(folder: Path) -> None:
    """The folder, made where it is not there; refused where it cannot be written to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / f".{secrets.token_hex(8)}"
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        probe.unlink()
    except OSError as problem:
        raise DataError(f"{folder}: the log cannot be written there: {problem.strerror}.") from None
