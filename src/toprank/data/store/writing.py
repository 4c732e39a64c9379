"""Writing a stored copy, whole or block by block: data larger than memory pass through, and never rest there.

The arrays grow in files under a hidden name beside the target that ends in ``.tmp`` (see `toprank.data.bytesource`).
Their hashes are computed on the way, the headers get their final shape at the end, ``meta.json`` comes last, and then
the folder takes its name: what is found under that name is always a whole copy, and a failure or an interrupt leaves
nothing behind. An older copy steps aside to a name that ends in ``.old.tmp``. What a process that was killed leaves
behind is cleared away by the next one that writes the same copy.

The system is not made to bring the arrays to the disk before that: it took a fifth of the time of converting a table.
After a power failure just behind a conversion, open the copy once with ``verify=True``.
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
from toprank.data.bytesource import PathLike, abandoned, os_errors, temporary_sibling
from toprank.data.dataset import RankingData
from toprank.data.hashes import longest_text
from toprank.data.store.files import ArrayFile, TextFile
from toprank.data.store.stream import ColumnDescription
from toprank.errors import DataError, FileError

SUFFIX = ".toprank-data"
FORMAT, VERSION = "toprank-data", 5
"""The latter is always written. Formats 1 to 4 knew less (columns that are carried, then features that are described, a
teacher's scores, text), and are read as 5 is."""


META = "meta.json"
KINDS = dict.fromkeys(("X", "X.data", "labels", "document_weights", "query_weights", "teacher"), "f")


KINDS |= dict.fromkeys(("X.indices", "X.indptr", "offsets", "positions", "source_rows"), "i")


KINDS |= {"qids": "iU", "document_ids": "U"}
"""The arrays there may be, and the kinds of number that each may hold, as NumPy letters."""
DESCRIPTIONS = {
    "feature_names": "The feature names are",
    "carried": "The names of metadata columns are",
    "text": "Which columns hold text is",
    "columns": "What the features are is",
    "roles": "The roles of columns are",
}
"""What `meta.json` says beside the arrays, each with a hash; and how a sentence about it begins."""
_FILES = {META, *(f"{name}.npy" for name in KINDS)}
_CARRIED = re.compile(r"carried\.[0-9]+")


def kinds_of(name: str) -> str:
    """Return the kinds of number that an array of this name may hold; empty if there is no such array."""
    return "ifUMu" if _CARRIED.fullmatch(name) else KINDS.get(name, "")


UNFINISHED, _ASIDE = ".tmp", ".old.tmp"


def is_ours(folder: Path) -> bool:
    """Whether the folder's description says that it is a stored copy."""
    try:
        meta = json.loads((folder / META).read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return False
    return isinstance(meta, dict) and meta.get("format") == FORMAT


def hash_of_description(description: Any) -> str:
    """A hash of an entry of `DESCRIPTIONS`."""
    return hashlib.blake2b(json.dumps(description).encode(), digest_size=16).hexdigest()


def _described(content: ColumnDescription | RankingData | None) -> dict[str, Any]:
    """The entries of `DESCRIPTIONS`; those of which there is nothing to say are left out, but for the names.

    Their hash is written also where there are none: copies without it are the first ones, whose names are not verified.
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
    """Return the folder that `path` leads to; its name must have the suffix."""
    target = Path(os.path.realpath(path))
    if target.name.endswith(SUFFIX):
        return target
    called = f"{path} is" if Path(path).name == target.name else f"{path} leads to {target}, which is"
    raise DataError(f"A stored copy is a folder with the suffix {SUFFIX}; {called} not called so.")


def refuse_what_is_no_copy(path: PathLike, target: Path) -> None:
    """Refuse a target that exists already, unless it is a stored copy without foreign files."""
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
            f"{folder} is not replaced: beside the stored copy it holds {strangers[0]}. Move that elsewhere, or choose "
            "another name."
        )


def clear_remains(target: Path) -> None:
    """Remove what killed processes left of this copy, and bring back an older copy that was put aside."""
    with suppress(OSError):  # without permission to clear up: writing says so, if that is not allowed either
        for aside in abandoned(target.parent, _ASIDE, target):
            if target.exists():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                os.rename(aside, target)
        for unfinished in abandoned(target.parent, UNFINISHED, target):
            shutil.rmtree(unfinished, ignore_errors=True)


def put_in_place(temporary: Path, target: Path, refuse_strangers: Callable[[Path], None] = _refuse_strangers) -> None:
    """Rename; a folder that is there already goes aside, and comes back if the new one cannot take its place.

    `refuse_strangers` refuses to replace a folder that holds what is not ours.
    """
    aside = temporary_sibling(target, _ASIDE)
    try:
        while True:  # more than twice only when another process writes the same copy at the same moment
            try:
                os.rename(temporary, target)
                break
            except OSError as problem:
                if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            shutil.rmtree(aside, ignore_errors=True)
            with suppress(FileNotFoundError):
                refuse_strangers(target)  # put there since we began
                os.rename(target, aside)
    except BaseException:
        with suppress(OSError):  # nothing was put aside, or another writer's copy took the name meanwhile
            os.rename(aside, target)
        raise
    finally:
        if target.exists():
            try:
                shutil.rmtree(aside, ignore_errors=True)
            except BaseException:  # an interrupt: the new copy is in place, so half of an old one serves nobody
                shutil.rmtree(aside, ignore_errors=True)
                raise


def write_store(
    data: RankingData, path: PathLike, *, source: dict[str, Any] | None = None, source_hash: str | None = None
) -> None:
    """Write `data` as a stored copy, a folder whose name ends in ``.toprank-data``.

    The copy is built under another name beside `path` and renamed when it is complete. An older copy steps aside
    first, so what is found under `path` is always a whole copy; processes that have the older one open keep it. Only a
    stored copy is ever replaced, never another folder or a file. A cache also says what it was made from.
    """
    with StoreWriter(path) as writer:
        writer.put_all(data.arrays(source=True))
        writer.finish(data.X.shape, data, source=source, source_hash=source_hash)


class StoreWriter:
    """A stored copy under construction: start arrays, append blocks of rows, finish; or leave, and nothing is left."""

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
            with suppress(OSError):  # what was not flushed is not wanted any more
                file.abandon()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(
        self, name: str, dtype: np.dtype[Any] | None, tail: tuple[int, ...] = (), length: int | None = None
    ) -> None:
        """Start an array, whose rows have the shape `tail`, or start it anew.

        The type is None for text whose longest string is not known yet. Where the number of rows is known, the hash is
        computed on the way, not at the end.
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
        """The next rows of an array."""
        with os_errors(self.path, "written"):
            self._files[name].append(block)

    def put(self, name: str, array: Array) -> None:
        """A whole array."""
        with os_errors(self.path, "written"):
            self._check_room(array.nbytes)
            hashed = np.dtype(f"U{longest_text(array)}") if array.dtype.kind == "U" else array.dtype
            file = ArrayFile(self.folder / f"{name}.npy", array.dtype, array.shape[1:], len(array), hashed)
            self._files[name] = file
            for piece in in_pieces(array):
                file.append(piece)

    def put_all(self, arrays: Mapping[str, Array]) -> None:
        """Several whole arrays, refused before any is written if there is no room for all of them."""
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
        """Complete the copy, of an X of this shape, and give it its name.

        `content` says what the columns are; None: they are plain numbers without names.
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
        """Refuse at once what the disk cannot hold, not after minutes of writing."""
        needed = more + sum(file.to_come for file in self._files.values())
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise FileError(
                f"{self.path} cannot be written: it takes {needed / 1e6:,.1f} MB more, and {free / 1e6:,.1f} MB are "
                "free there. Make room, or write to another disk."
            )
