"""What LightGBM's own code writes to the process's standard output and error, past Python, kept from the user.

`verbosity` and a registered logger stop most of it, but neither what its threads say of ports nor the line that goes
before every error, which we tell as an error of ours.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import IO, Any

__all__ = ["muffled"]

_LOCK = Lock()
_kept: dict[int, tuple[int, IO[bytes]]] = {}
_within = 0


@contextmanager
def muffled() -> Iterator[None]:
    """Drop lines of LightGBM's within this block, in all threads; lines of others come when it ends."""
    global _within
    with _LOCK:
        _within += 1
        if _within == 1:
            _redirect()
    try:
        yield
    finally:
        with _LOCK:
            _within -= 1
            if _within == 0:
                _restore()


def _redirect() -> None:
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        _flush(stream)
        with suppress(OSError):  # closed, as in a service: there is nothing to keep from anyone
            copy, file = os.dup(number), tempfile.TemporaryFile()  # noqa: SIM115 - closed in `_restore`
            os.dup2(file.fileno(), number)
            _kept[number] = (copy, file)


def _restore() -> None:
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        _flush(stream)
        if number not in _kept:
            continue
        copy, file = _kept.pop(number)
        os.dup2(copy, number)
        os.close(copy)
        with file:
            file.seek(0)
            others = [line for line in file.read().splitlines(keepends=True) if not line.startswith(b"[LightGBM]")]
        if any(line.strip() for line in others):  # its messages may end in an empty line
            os.write(number, b"".join(others))


def _flush(stream: Any) -> None:
    with suppress(Exception):  # None, closed, or anything that stands for a stream
        stream.flush()
