"""Storage of an index: one folder, written atomically and read without executing any of its content.

    index.json         format version, description of the index, size and hash of each file
    NAME.npy           memory-mapped arrays
    first_stage…       files of the first-stage engine
    model.toprank      reranking model, once one is trained

A new index is written under a temporary name next to the target and renamed when it is complete. Processes that have
the old index open keep using it. The model is a single file, which is replaced atomically.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
import tokenize
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank import __version__
from toprank.data.bytesource import PathLike, check_name, os_errors, temporary_sibling
from toprank.data.store.writing import UNFINISHED, clear_remains, put_in_place
from toprank.errors import FileError, FormatError

FORMAT, VERSION = "toprank-search-index", 1
META, MODEL = "index.json", "model.toprank"
_INDEX_FILES = re.compile(r"index\.json|model\.toprank|[a-z_0-9]+(\.[a-z_0-9]+)*\.(npy|json|sqlite)|tantivy|runs")
_MAX_META_BYTES = 1 << 26  # upper bound for the description of any index
# Exceptions that NumPy may raise while reading a damaged header.
_UNREADABLE = (
    ValueError, EOFError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError, MemoryError, OSError,
    tokenize.TokenError,
)  # fmt: skip


def _parse_description(folder: Path) -> Any:
    """Read the description of an index.

    Raises:
        ValueError: if it is not JSON or too large.
    """
    file = folder / META
    if file.stat().st_size > _MAX_META_BYTES:
        raise ValueError
    return json.loads(file.read_bytes())


def is_index(folder: Path) -> bool:
    """Return whether a folder contains the description of a search index."""
    try:
        meta = _parse_description(folder)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(meta, dict) and meta.get("format") == FORMAT


def check_target(path: PathLike) -> Path:
    """Return the resolved path of an index to write; raise an error if something else exists there."""
    check_name(path)
    target = Path(os.path.realpath(path))
    with os_errors(path, "written"):
        if not target.parent.is_dir():
            raise FileError(f"{path} cannot be written: the folder {target.parent} does not exist.")
        _retry(lambda: _check_is_index(path, target))
    return target


def _retry(check: Callable[[], None]) -> None:
    """Retry a failing check a few times, because an index is briefly missing between a writer's two renames."""
    for delay in (0.001, 0.005, 0.02):
        try:
            check()
            return
        except (FormatError, FileError):
            time.sleep(delay)
    check()


def _check_is_index(path: PathLike, target: Path) -> None:
    if target.exists():
        if not is_index(target):
            raise FileError(f"{path} exists and is not a search index. Choose another name or remove it.")
        with suppress(FileNotFoundError):  # another writer has just moved it away
            _refuse_unknown_files(target)


def _refuse_unknown_files(folder: Path) -> None:
    unknown = sorted(name for name in os.listdir(folder) if not _INDEX_FILES.fullmatch(name))
    if unknown:
        raise FileError(
            f"{folder} is not replaced, because it contains {unknown[0]}, which is not part of an index. Move that "
            "file elsewhere, or choose another name."
        )


def write_array(folder: Path, name: str, array: npt.NDArray[Any]) -> None:
    """Write an array of the index as an ``.npy`` file."""
    with (folder / f"{name}.npy").open("wb") as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)


@contextmanager
def new_index(path: PathLike) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a temporary folder and a description to fill; rename the folder to `path` at the end, or remove it."""
    target = check_target(path)
    clear_remains(target)
    folder = temporary_sibling(target, UNFINISHED)
    meta: dict[str, Any] = {"format": FORMAT, "version": VERSION, "toprank": __version__, "id": secrets.token_hex(8)}
    with os_errors(path, "written"):
        folder.mkdir()
        try:
            yield folder, meta
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            meta["files"] = {f.relative_to(folder).as_posix(): [f.stat().st_size, _hash(f)] for f in files}
            (folder / META).write_text(json.dumps(meta, ensure_ascii=False, indent=1), encoding="utf-8")
            put_in_place(folder, target, _refuse_unknown_files)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


class IndexFolder:
    """The folder of an index, after checking that all files in its description exist with their recorded sizes.

    Args:
        path: index folder.
        verify: whether to compare every file with its recorded hash. Default: False.
    """

    def __init__(self, path: PathLike, *, verify: bool = False) -> None:
        self.path = Path(path)
        _retry(lambda: self._read(verify))

    def _read(self, verify: bool) -> None:
        self.meta = self._read_description()
        self._check_files(verify)

    def fault(self, problem: str) -> FormatError:
        """Return the error for an unusable index."""
        return FormatError(f"{problem} Index the collection again.", path=self.path)

    def _read_description(self) -> dict[str, Any]:
        try:
            meta = _parse_description(self.path)
        except (FileNotFoundError, NotADirectoryError):
            what = "is not a search index" if self.path.exists() else "does not exist"
            raise FileError(f"{self.path} {what}. Create one with `toprank search index`.") from None
        except (ValueError, RecursionError):
            raise self.fault("This index is damaged: its description cannot be read.") from None
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise FormatError(f"This folder is not a search index: {META} has another format.", path=self.path)
        version = meta.get("version")
        if version != VERSION:
            raise self.fault(
                f"This index has format version {version}, written by toprank {meta.get('toprank')}; toprank "
                f"{__version__} reads version {VERSION}."
            )
        return meta

    def is_current(self) -> bool:
        """Return whether the folder still contains the opened index, not a newer one."""
        try:
            return bool(self._read_description().get("id") == self.meta.get("id"))
        except (FormatError, FileError, OSError):
            return False

    def _check_files(self, verify: bool) -> None:
        files = self.meta.get("files")
        if not isinstance(files, dict) or not files:
            raise self.fault("This index is damaged: its description lists no files.")
        for name, entry in files.items():
            parts = name.split("/")
            if not isinstance(entry, list) or len(entry) != 2 or not set(parts).isdisjoint(("", ".", "..")):
                raise self.fault("This index is damaged: its description has an invalid file entry.")
            file = self.path.joinpath(*parts)
            try:
                status = file.lstat()
            except OSError:  # missing, or an invalid file name
                size = None
            else:
                size = status.st_size if stat.S_ISREG(status.st_mode) else None
            if size != entry[0]:
                state = "is missing" if size is None else f"has {size:,} bytes instead of {entry[0]:,}"
                raise self.fault(f"This index is damaged: {name} {state}.")
            if verify and _hash(file) != entry[1]:
                raise self.fault(f"This index is damaged: the content of {name} does not match its hash.")

    def array(self, name: str, kind: str) -> npt.NDArray[Any]:
        """Return an array with a NumPy dtype kind, memory-mapped unless it is empty."""
        if f"{name}.npy" not in self.meta["files"]:
            raise self.fault(f"This index is damaged: it has no {name}.")
        file = self.path / f"{name}.npy"
        try:
            try:
                array = np.load(file, mmap_mode="r", allow_pickle=False)
            except ValueError:  # empty arrays cannot be memory-mapped
                array = np.load(file, allow_pickle=False)
        except _UNREADABLE as problem:
            raise self.fault(f"This index is damaged: {name} cannot be read ({problem}).") from None
        if array.dtype.kind != kind:
            raise self.fault(f"This index is damaged: {name} has the wrong data type.")
        checked: npt.NDArray[Any] = array
        return checked

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Read all arrays whose names start with `prefix` into memory, keyed by the rest of the name."""
        names = [
            name[len(prefix) : -4] for name in self.meta["files"] if name.startswith(prefix) and name[-4:] == ".npy"
        ]
        try:
            return {name: np.load(self.path / f"{prefix}{name}.npy", allow_pickle=False) for name in names}
        except _UNREADABLE as problem:
            raise self.fault(f"This index is damaged: {problem}.") from None

    def json(self, name: str) -> Any:
        """Return the content of a JSON file, or None if it does not exist."""
        if name not in self.meta["files"]:
            return None
        try:
            value: Any = json.loads((self.path / name).read_bytes())
            return value
        except (ValueError, RecursionError, OSError):
            raise self.fault(f"This index is damaged: {name} cannot be read.") from None

    def entry(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """Return an entry of the description after checking its type."""
        value = self.meta.get(name)
        if not isinstance(value, kind):
            raise self.fault(
                f"This index is damaged: the entry {name} of its description is missing or has the wrong type."
            )
        return value


def write_json(folder: Path, name: str, value: Mapping[str, Any]) -> None:
    """Write a JSON file of the index."""
    (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
