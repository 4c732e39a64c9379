"""Writing stored copies, at once or in blocks, so that data may be larger than memory.

The arrays are written to a hidden folder next to the target whose name ends in ``.tmp`` (see
`toprank.data.bytesource`). Hashes are computed while writing, headers get their final shape, ``meta.json`` is written
last, and then the folder is renamed. Therefore the target is always a complete copy, and a failure or an interrupt
leaves no files behind. An existing copy is renamed to a name that ends in ``.old.tmp`` and removed. Files left by a
killed process are removed by the next process that writes the same copy.

The arrays are not synced to disk before the rename, because that took a fifth of the time of a conversion. After a
power failure right after a conversion, open the copy once with ``verify=True``.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from toprank.compute import Array, in_pieces
from toprank.data.bytesource import PathLike, leftover_files, os_errors, temporary_sibling
from toprank.data.dataset import RankingData
from toprank.data.hashes import longest_text
from toprank.data.store.files import ArrayFile, TextFile
from toprank.data.store.stream import ColumnDescription
from toprank.errors import DataError, FileError

SUFFIX = ".toprank-data"
FORMAT, VERSION = "toprank-data", 5
"""Newest format version, which is always written. Versions 1 to 4 lack some columns and are read like version 5."""


META = "meta.json"
KINDS = dict.fromkeys(("X", "X.data", "labels", "document_weights", "query_weights", "teacher"), "f")


KINDS |= dict.fromkeys(("X.indices", "X.indptr", "offsets", "positions", "source_rows"), "i")


KINDS |= {"qids": "iU", "document_ids": "U"}
"""Names of possible arrays and their allowed NumPy type kinds."""
DESCRIPTIONS = {
    "feature_names": "The feature names are",
    "carried": "The names of metadata columns are",
    "text": "The names of text columns are",
    "columns": "The descriptions of features are",
    "roles": "The roles of columns are",
}
"""Entries of `meta.json` that have a hash, with the beginning of an error message about each."""
_FILES = {META, *(f"{name}.npy" for name in KINDS)}
_CARRIED = re.compile(r"carried\.[0-9]+")


def kinds_of(name: str) -> str:
    """Return the allowed NumPy type kinds of an array; empty for unknown names."""
    return "ifUMu" if _CARRIED.fullmatch(name) else KINDS.get(name, "")


UNFINISHED, _ASIDE = ".tmp", ".old.tmp"


def is_ours(folder: Path) -> bool:
    """Return whether the folder contains the description of a stored copy."""
    try:
        meta = json.loads((folder / META).read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return False
    return isinstance(meta, dict) and meta.get("format") == FORMAT


def hash_of_description(description: Any) -> str:
    """Return the hash of an entry of `DESCRIPTIONS`."""
    return hashlib.blake2b(json.dumps(description).encode(), digest_size=16).hexdigest()


def _described(content: ColumnDescription | RankingData | None) -> dict[str, Any]:
    """Return the non-empty entries of `DESCRIPTIONS` with their hashes, and the hash of the feature names.

    The latter is always written, because copies without it have the first format version, which is not verified.
    """
    if content is None:
        return {"feature_names": None}
    plain = {
        "carried": tuple(content.metadata) or None,
        "text": None if content.text is None else content.text.plain(),
        "columns": None if content.encoding is None else content.encoding.plain(),
        "roles": None if content.roles is None else content.roles.plain(),
    }
    said = {name: description for name, description in plain.items() if description is not None}
    return {"feature_names": content.feature_names} | said


def target_of(path: PathLike) -> Path:
    """Resolve the folder of `path`; raise an error if its name lacks the suffix."""
    target = Path(os.path.realpath(path))
    if target.name.endswith(SUFFIX):
        return target
    called = f"{path}" if Path(path).name == target.name else f"{path} is a link to {target}, which"
    raise DataError(f"{called} lacks the suffix {SUFFIX} of a stored copy; choose a name with this suffix.")


def refuse_what_is_no_copy(path: PathLike, target: Path) -> None:
    """Raise an error if the target exists and is not a stored copy, or contains other files."""
    try:
        os.stat(target)
    except FileNotFoundError:
        return
    if not is_ours(target):
        raise FileError(f"{path} exists and is not a stored copy; choose another name or remove it.")
    _refuse_strangers(target)


def _refuse_strangers(folder: Path) -> None:
    files = set(os.listdir(folder)) - _FILES
    strangers = sorted(file for file in files if not _CARRIED.fullmatch(file.removesuffix(".npy")))
    if strangers:
        raise FileError(
            f"{folder} is not replaced, because it also contains {strangers[0]}. Move this file, or choose another "
            "name."
        )


def clear_remains(target: Path) -> None:
    """Remove files that killed processes left of this copy, and restore an older copy that was renamed."""
    with suppress(OSError):  # without permission to clean up, writing reports the error
        for aside in leftover_files(target.parent, _ASIDE, target):
            if target.exists():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                os.rename(aside, target)
        for unfinished in leftover_files(target.parent, UNFINISHED, target):
            shutil.rmtree(unfinished, ignore_errors=True)


def put_in_place(temporary: Path, target: Path, refuse_strangers: Callable[[Path], None] = _refuse_strangers) -> None:
    """Rename the temporary folder to the target; restore an existing target if that fails.

    `refuse_strangers` raises an error if the existing folder contains files of others.
    """
    aside = temporary_sibling(target, _ASIDE)
    try:
        while True:  # more than two rounds only if another process writes the same copy concurrently
            try:
                os.rename(temporary, target)
                break
            except OSError as problem:
                if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            shutil.rmtree(aside, ignore_errors=True)
            with suppress(FileNotFoundError):
                refuse_strangers(target)  # created since this process started writing
                os.rename(target, aside)
    except BaseException:
        with suppress(OSError):  # no older copy, or another process has written one
            os.rename(aside, target)
        raise
    finally:
        if target.exists():
            try:
                shutil.rmtree(aside, ignore_errors=True)
            except BaseException:  # interrupted; the new copy is in place, so the rest of the old one is useless
                shutil.rmtree(aside, ignore_errors=True)
                raise


def write_store(
    data: RankingData, path: PathLike, *, source: dict[str, Any] | None = None, source_hash: str | None = None
) -> None:
    """Write `data` as a stored copy, a folder whose name ends in ``.toprank-data``.

    The copy is written under a temporary name next to `path` and renamed when it is complete, so `path` is always a
    complete copy; processes that have opened an older copy can still use it. Only stored copies are replaced, never
    other folders or files. `source` and `source_hash` describe the cached file, if the copy is a cache.
    """
    with StoreWriter(path) as writer:
        writer.put_all(data.arrays(source=True))
        writer.finish(data.X.shape, data, source=source, source_hash=source_hash)


class StoreWriter:
    """Context manager that writes a stored copy: start arrays, append blocks of rows, finish.

    If the block is left without `finish`, all files are removed.
    """

    def __init__(self, path: PathLike) -> None:
        self.path, self._target = path, target_of(path)
        with os_errors(path, "written"):
            refuse_what_is_no_copy(path, self._target)
        self.folder = temporary_sibling(self._target, UNFINISHED)
        self._files: dict[str, ArrayFile | TextFile] = {}

    def __enter__(self) -> Self:
        clear_remains(self._target)
        with os_errors(self.path, "written"):
            self.folder.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            with suppress(OSError):  # unflushed data are no longer needed
                file.abandon()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(
        self, name: str, dtype: np.dtype[Any] | None, tail: tuple[int, ...] = (), length: int | None = None
    ) -> None:
        """Start or restart an array whose rows have the shape `tail`.

        The type is None for text whose longest string is still unknown. If the number of rows is given, the hash is
        computed while writing instead of at the end.
        """
        file = self.folder / f"{name}.npy"
        with os_errors(self.path, "written"):
            if (old := self._files.pop(name, None)) is not None:
                old.abandon()
            if dtype is None:
                self._files[name] = TextFile(file, self._check_room)
                return
            self._check_room((length or 0) * dtype.itemsize * int(np.prod(tail, dtype=np.int64)))
            self._files[name] = ArrayFile(file, dtype, tail, length)

    def append(self, name: str, block: Array) -> None:
        """Write the next rows of an array."""
        with os_errors(self.path, "written"):
            self._files[name].append(block)

    def put(self, name: str, array: Array) -> None:
        """Write a complete array."""
        with os_errors(self.path, "written"):
            self._check_room(array.nbytes)
            hashed = np.dtype(f"U{longest_text(array)}") if array.dtype.kind == "U" else array.dtype
            file = ArrayFile(self.folder / f"{name}.npy", array.dtype, array.shape[1:], len(array), hashed)
            self._files[name] = file
            for piece in in_pieces(array):
                file.append(piece)

    def put_all(self, arrays: Mapping[str, Array]) -> None:
        """Write several complete arrays; raise an error before writing if disk space is insufficient."""
        with os_errors(self.path, "written"):
            self._check_room(sum(array.nbytes for array in arrays.values()))
        for name, array in arrays.items():
            self.put(name, array)

    def finish(
        self,
        shape: tuple[int, ...],
        content: ColumnDescription | RankingData | None,
        *,
        source: dict[str, Any] | None = None,
        source_hash: str | None = None,
    ) -> None:
        """Complete the copy, with X of this shape, and rename it to its final name.

        `content` describes the columns; None means numbers without names.
        """
        with os_errors(self.path, "written"):
            meta = {
                "format": FORMAT,
                "version": VERSION,
                "id": secrets.token_hex(8),
                "X_shape": list(shape),
                "arrays": {name: file.close() for name, file in self._files.items()},
                "first_feature_id": None if content is None else content.first_feature_id,
                "source": source,
                "source_hash": source_hash,
            }
            for name, description in _described(content).items():
                meta |= {name: description, f"{name}_hash": hash_of_description(description)}
            (self.folder / META).write_text(json.dumps(meta, indent=1), encoding="utf-8")
            put_in_place(self.folder, self._target)

    def _check_room(self, more: int) -> None:
        """Raise an error immediately, not after minutes of writing, if disk space is insufficient."""
        needed = more + sum(file.to_come for file in self._files.values())
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise FileError(
                f"{self.path} cannot be written: it needs another {needed / 1e6:,.1f} MB, but only {free / 1e6:,.1f} "
                "MB are free. Free some space, or write to another disk."
            )
