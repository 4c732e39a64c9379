"""A stored copy beside a file, used as long as the file and the reader's options stay the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from toprank.data.bytesource import os_errors
from toprank.data.dataset import RankingData
from toprank.data.letor.survey import SIDES, beside
from toprank.data.store import SUFFIX, check_content, open_described, write_store
from toprank.errors import FileError, FormatError

__all__ = ["cached"]

PathLike = str | os.PathLike[str]


def cached(
    path: PathLike, options: dict[str, Any], read_function: Callable[..., RankingData], *, verify: bool = False
) -> RankingData:
    """The data of a file, from the stored copy beside it where that is up to date.

    The copy ``<file>.toprank-data`` serves when the file's name, size and time of change, those of its side files
    (``.query``, ``.weight`` …) and judgments, the reader's options and toprank's version are those it was made with.
    Otherwise the file is read and the copy written again.

    Args:
        path: the file.
        options: keyword arguments of the reader; the number of threads does not count.
        read_function: called as ``read_function(path, **options)``.
        verify: compare the copy's content with its hashes, and the file's with the hash noted when it was read.
    """
    copy = Path(f"{os.fspath(path)}{SUFFIX}")
    source = _source_of(path, options)
    current = _current(copy, source)
    if current is not None:
        data, meta = current
        if not verify:
            return data
        check_content(copy, data, meta)
        if meta.get("source_hash") == _hash_of(path):
            return data
    data = read_function(path, **options)
    try:
        write_store(data, copy, source=source, source_hash=_hash_of(path))
    except FileError as problem:
        raise FileError(f"The cache {problem} Make the folder writable, or read without cache.") from problem
    # Another process may have replaced our copy already, by that of other options.
    written = _current(copy, source)
    return data if written is None else written[0]


def _current(copy: Path, source: dict[str, Any]) -> tuple[RankingData, dict[str, Any]] | None:
    """The copy and its description, if it was made from this source; a damaged one is as good as none."""
    if not copy.is_dir():
        return None
    try:
        data, meta = open_described(copy)
    except (FormatError, FileError):
        return None
    return (data, meta) if meta.get("source") == source else None


def _source_of(path: PathLike, options: dict[str, Any]) -> dict[str, Any]:
    """What identifies the source of a cache, as it looks after a round trip through JSON."""
    from toprank import __version__

    files = []  # by name: the copy lies beside the file, and both may move
    sides = [side for suffix in SIDES if (side := beside(Path(path), suffix))]
    judgments = [options["qrels"]] if options.get("qrels") else []
    for file in (path, *sides, *judgments):
        with os_errors(file, "read"):
            status = os.stat(file)
        files.append({"name": Path(file).name, "size": status.st_size, "mtime_ns": status.st_mtime_ns})
    spelled = {name: _spelled(name, value) for name, value in sorted(options.items()) if name != "threads"}
    return {"files": files, "options": spelled, "toprank": __version__}


def _hash_of(path: PathLike) -> str:
    """A hash of the file's bytes: what size and time of change cannot tell."""
    with os_errors(path, "read"), open(path, "rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


def _spelled(name: str, value: Any) -> str:
    """An option as text: the same for the same meaning; a file by its name."""
    if isinstance(value, os.PathLike) or name == "qrels":
        return repr(None if value is None else Path(value).name)
    return np.dtype(value).name if name == "dtype" and value is not None else repr(value)
