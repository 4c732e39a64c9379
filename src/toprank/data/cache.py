"""Cache of a file: a stored copy next to it, used while file and options stay the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from toprank.data.bytesource import PathLike, os_errors
from toprank.data.dataset import RankingData
from toprank.data.letor.survey import SIDES, beside
from toprank.data.store import SUFFIX, check_content, open_described, write_store
from toprank.errors import FileError, FormatError


def cached(
    path: PathLike, options: dict[str, Any], read_function: Callable[..., RankingData], *, verify: bool = False
) -> RankingData:
    """Return the data of a file, from the stored copy next to it if that is up to date.

    The copy ``<file>.toprank-data`` is used if name, size and modification time of the file, of its side files
    (``.query``, ``.weight`` …) and of its judgments, the options of the reader and the version of toprank are
    unchanged. Otherwise the file is read with ``read_function(path, **options)`` and the copy is rewritten. With
    `verify`, the content of the copy is compared with its hashes, and the file with its hash at the time of reading.
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
    # Another process may already have replaced the copy by one with other options.
    written = _current(copy, source)
    return data if written is None else written[0]


def _current(copy: Path, source: dict[str, Any]) -> tuple[RankingData, dict[str, Any]] | None:
    """Open the copy if it was made from this source; None if it was not, or if it is damaged."""
    if not copy.is_dir():
        return None
    try:
        data, meta = open_described(copy)
    except (FormatError, FileError):
        return None
    return (data, meta) if meta.get("source") == source else None


def _source_of(path: PathLike, options: dict[str, Any]) -> dict[str, Any]:
    """Describe the source of a cache with values that JSON preserves."""
    from toprank import __version__

    files = []  # by name only, since file and copy may be moved together
    sides = [side for suffix in SIDES if (side := beside(Path(path), suffix))]
    judgments = [options["qrels"]] if options.get("qrels") else []
    for file in (path, *sides, *judgments):
        with os_errors(file, "read"):
            status = os.stat(file)
        files.append({"name": Path(file).name, "size": status.st_size, "mtime_ns": status.st_mtime_ns})
    spelled = {name: _canonical(name, value) for name, value in sorted(options.items()) if name != "threads"}
    return {"files": files, "options": spelled, "toprank": __version__}


def _hash_of(path: PathLike) -> str:
    """Hash the content of a file, since it may change without a change of size and modification time."""
    with os_errors(path, "read"), open(path, "rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


def _canonical(name: str, value: Any) -> str:
    """Return a canonical text for an option; files are represented by their names."""
    if isinstance(value, os.PathLike) or name == "qrels":
        return repr(None if value is None else Path(value).name)
    if name == "like":
        from toprank.data.frames.layout import known_columns, known_text
        from toprank.data.roles import known_roles

        return repr((*known_columns(value), known_text(value), known_roles(value)))
    return np.dtype(value).name if name == "dtype" and value is not None else repr(value)
