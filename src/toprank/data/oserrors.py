"""Refusals of the operating system, as sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from toprank.errors import FileError

__all__ = ["os_errors"]


@contextmanager
def os_errors(path: str | os.PathLike[str], done: str) -> Iterator[None]:
    """Turn the operating system's refusals within the block into a `FileError` about `path`."""
    try:
        yield
    except FileError:
        raise
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno else str(problem)
        raise FileError(f"{os.fspath(path)} cannot be {done}: {reason}.") from problem
