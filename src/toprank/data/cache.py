"""The stored copy beside a file, which serves in its place as long as the file and the options stay the same."""

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
    """The data of a file, from the stored copy beside it where that is up to date.

    The copy ``<file>.toprank-data`` serves when the file's name, size and time of change, those of its side files
    (``.query``, ``.weight`` …) and judgments, the reader's options and toprank's version are those it was made with.
    Otherwise the file is read and the copy written again.

    The file is read by ``read_function(path, **options)``. To `verify` is to compare the copy's content with its
    hashes, and the file's with the hash noted when it was read.
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
    """Open the copy if it was made from this source; None for another one, or a damaged one."""
    if not copy.is_dir():
        return None
    try:
        data, meta = open_described(copy)
    except (FormatError, FileError):
        return None
    return (data, meta) if meta.get("source") == source else None


def _source_of(path: PathLike, options: dict[str, Any]) -> dict[str, Any]:
    """Describe the source of a cache, in values that come back from JSON as they are."""
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
    """Hash the file's bytes: size and time of change may stay the same."""
    with os_errors(path, "read"), open(path, "rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


def _spelled(name: str, value: Any) -> str:
    """Write an option as text that is the same for the same meaning; a file by its name."""
    if isinstance(value, os.PathLike) or name == "qrels":
        return repr(None if value is None else Path(value).name)
    if name == "like":
        from toprank.data.frames.layout import known_columns, known_text
        from toprank.data.roles import known_roles

        return repr((*known_columns(value), known_text(value), known_roles(value)))
    return np.dtype(value).name if name == "dtype" and value is not None else repr(value)
