"""Log files of served lists and user events, for `toprank.clicks.read`.

The files are JSON lines in the format of OpenSearch's User Behavior Insights: ``queries-….jsonl`` contains the lists,
``events-….jsonl`` the events. Requests never wait: records go to a queue of limited size, which a thread writes several
times per second. Records that do not fit into the queue or on the disk are counted and dropped. Any thread may add
records. Before a write that would exceed the total size limit, the oldest files are removed.

Every process writes its own files, so nothing is appended to an incomplete line. A partially written line is truncated;
if the process is killed before that, the last line of a file is incomplete, and readers skip it.
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

_SECONDS = 0.25  # Seconds between writes; a killed process loses the records since the last write.
_WAITING = 64 << 20  # Maximum size of the queue in bytes.
_AT_ONCE = 4 << 20  # Maximum size of a write in bytes.
_FILE = 64 << 20  # Maximum size of a file in bytes.
_SHARE = 8  # Minimum number of files that fill the size limit, so that removing the oldest one frees little.
_HOUR = 3600.0  # Seconds after which a file is closed, so that old files can be removed.
_LOOK = 60.0  # Seconds between checks for old files, and between error messages.
_KINDS = ("queries", "events")


class ShownAttributes(Struct, omit_defaults=True, gc=False):
    """Further attributes of a list; `model` and `version` of an interleaved list are those of both models, joined by a
    plus.
    """

    model: str
    version: str
    scores: Sequence[float] | None = None
    teams: list[str] | None = None
    explored: bool = False
    propensity: float | None = None
    """Probability of this list among the lists that exploration could have made of the ranking; None for 1."""
    arm: str | None = None
    share: float | None = None
    """Share of keys assigned to the arm."""
    features: dict[str, list[float | None]] | None = None
    device: str | None = None
    surface: str | None = None


class ShownList(Struct, omit_defaults=True, gc=False, tag_field="application", tag="toprank"):
    """A served list, as a row of ``ubi_queries``; the first field of the line names the application."""

    query_id: str
    timestamp: int
    user_query: str | None
    query_response_hit_ids: Sequence[str]
    query_attributes: ShownAttributes
    client_id: str | None = None


class ObjectOf(Struct, gc=False):
    """The object of an event."""

    object_id: str


class UserAttributes(Struct, omit_defaults=True, gc=False):
    """Further attributes of an event: an amount of money or seconds, and an id if the event may occur several times."""

    object: ObjectOf
    value: float | None = None
    event_id: str | None = None


class UserEvent(Struct, omit_defaults=True, gc=False, tag_field="application", tag="toprank"):
    """An event on a document of a list, as a row of ``ubi_events``."""

    action_name: str
    query_id: str
    timestamp: int
    event_attributes: UserAttributes


class EventLog:
    """Log files of lists and events, written by a thread.

    Args:
        options: location and limits of the files.
        counters: metrics of the service.
        complain: called at intervals while writing fails.
    """

    def __init__(self, options: LogFiles, counters: Counters, complain: Callable[..., None]) -> None:
        self.options, self._counters, self._complain = options, counters, complain
        _make_folder(options.folder)
        self._waiting: deque[tuple[str, bytes]] = deque()
        # Size of the queue, updated by the event loop, the threads of the service, and the writer.
        self._size, self._lock = 0, Lock()
        word = secrets.token_hex(4)
        self._max_file = max(1 << 20, min(_FILE, int(options.bytes / _SHARE)))
        self._files = {kind: _File(options.folder, kind, word, self._max_file) for kind in _KINDS}
        self._room = 0.0  # Number of bytes to write before the next check of the folder.
        self._stopped, self._failed = Signal(), -_LOOK
        self._looked = -_LOOK
        self._thread = Thread(target=self._write_on, name="event log", daemon=True)
        self._thread.start()

    def add_list(self, record: ShownList) -> bool:
        """Add a served list to the queue; return False if the queue is full and the list is lost."""
        return self._add("queries", record)

    def add_event(self, record: UserEvent) -> bool:
        """Add an event to the queue; return False if the queue is full."""
        return self._add("events", record)

    def _add(self, kind: str, record: Any) -> bool:
        # Encode here, while the record is in the CPU cache: on the thread of the writer it takes twice as long.
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
        """Write the queue and stop."""
        self._stopped.set()
        self._thread.join(10.0)

    # ---- writer thread ----

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
                count += 1  # plus one line break per record
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
        """Remove files that are too old, and the oldest ones until `needed` bytes fit within the limit.

        Files of other processes are included; files open in this process are kept.
        """
        self._looked = time.monotonic()
        own = {file.path for file in self._files.values()}
        known = []
        with suppress(OSError):
            for kind in _KINDS:
                for path in self.options.folder.glob(f"{kind}-*.jsonl"):
                    with suppress(OSError):  # Another process may have removed it.
                        facts = path.stat()
                        known.append((facts.st_mtime, facts.st_size, path))
        total, oldest = sum(size for _, size, _ in known), time.time() - self.options.days * 86_400.0
        limit = self.options.bytes
        if total + needed > limit:  # Make room for a whole file, so that the folder is not checked for every write.
            limit -= max(needed, self._max_file)
        for when, size, path in sorted(known):
            if path in own or (when >= oldest and total <= limit):
                continue
            with suppress(OSError):
                path.unlink()
                total -= size
        # Other processes may write too, so check again after the size of one file.
        self._room = min(self.options.bytes - total, max(needed, self._max_file))


_encode = msgspec.json.Encoder().encode


@dataclass
class _Open:
    """An open file."""

    path: Path
    descriptor: int
    since: float
    size: int = 0

    def is_over(self) -> bool:
        """Return whether the file has been open for long, or was removed, so that readers would not see new lines."""
        return time.monotonic() - self.since > _HOUR or os.fstat(self.descriptor).st_nlink == 0


class _File:
    """The consecutive files of one kind, readable only by their owner."""

    def __init__(self, folder: Path, kind: str, word: str, most: int) -> None:
        self._folder, self._kind, self._word, self._most = folder, kind, word, most
        self._number = 0
        self._open: _Open | None = None

    @property
    def path(self) -> Path | None:
        """Path of the open file, if any."""
        return None if self._open is None else self._open.path

    def append(self, text: bytes) -> None:
        """Write complete lines or nothing: if the disk is full, the written part is truncated."""
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
            except OSError:  # An incomplete line remains, so nothing may be appended to it.
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
        """Close the file, and remove it if it is empty."""
        file, self._open = self._open, None
        if file is None:
            return
        with suppress(OSError):
            os.close(file.descriptor)
        if not file.size:
            with suppress(OSError):
                file.path.unlink()


def _make_folder(folder: Path) -> None:
    """Create the folder if necessary, and check that it is writable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / f".{secrets.token_hex(8)}"
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        probe.unlink()
    except OSError as problem:
        raise DataError(f"The log cannot be written to {folder}: {problem.strerror}.") from None
