"""An index on disk: one folder that is written whole or not at all, and is read without running any of it.

    index.json         the format's version, what is in the folder, and how large each file is and its hash
    NAME.npy           arrays, memory-mapped
    first_stage…       what the engine of the first stage keeps
    model.toprank      the learned order, once it is trained: a model file like any other

A new index grows under a hidden name beside the target and takes its name when it is complete; who has the older one
open keeps it. A model is a single file, which replaces the one before it.
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
_OURS = re.compile(r"index\.json|model\.toprank|[a-z_0-9]+(\.[a-z_0-9]+)*\.(npy|json|sqlite)|tantivy|runs")
_MOST_META = 1 << 26  # bytes: of the description of any index
# What NumPy's reader of headers may meet in one that is damaged.
_UNREADABLE = (
    ValueError, EOFError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError, MemoryError, OSError,
    tokenize.TokenError,
)  # fmt: skip


def _description_of(folder: Path) -> Any:
    """Read the description of an index.

    Raises:
        ValueError: it is no JSON, or larger than any of ours.
    """
    file = folder / META
    if file.stat().st_size > _MOST_META:
        raise ValueError
    return json.loads(file.read_bytes())


def is_index(folder: Path) -> bool:
    """Whether a folder's description says that it is an index."""
    try:
        meta = _description_of(folder)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(meta, dict) and meta.get("format") == FORMAT


def check_target(path: PathLike) -> Path:
    """Return where an index called `path` really lies; refuse what is there if it is no index."""
    check_name(path)
    target = Path(os.path.realpath(path))
    with os_errors(path, "written"):
        if not target.parent.is_dir():
            raise FileError(f"{path} cannot be written: the folder {target.parent} does not exist.")
        _patiently(lambda: _refuse_what_is_no_index(path, target))
    return target


def _patiently(check: Callable[[], None]) -> None:
    """Repeat a check that fails a moment later: between a writer's two renames nothing lies under an index's name."""
    for patience in (0.001, 0.005, 0.02):
        try:
            check()
            return
        except (FormatError, FileError):
            time.sleep(patience)
    check()


def _refuse_what_is_no_index(path: PathLike, target: Path) -> None:
    if target.exists():
        if not is_index(target):
            raise FileError(f"{path} exists and is not a search index; choose another name or remove it.")
        with suppress(FileNotFoundError):  # another writer has just put it aside
            _refuse_strangers(target)


def _refuse_strangers(folder: Path) -> None:
    strangers = sorted(name for name in os.listdir(folder) if not _OURS.fullmatch(name))
    if strangers:
        raise FileError(
            f"{folder} is not replaced: it also holds {strangers[0]}, which is not part of an index. Move that "
            "elsewhere, or choose another name."
        )


def write_array(folder: Path, name: str, array: npt.NDArray[Any]) -> None:
    """An array of the index, in NumPy's plain format."""
    with (folder / f"{name}.npy").open("wb") as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)


@contextmanager
def new_index(path: PathLike) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Give a folder to write an index into and a description to fill; it takes its name at the end, or is removed."""
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
            put_in_place(folder, target, _refuse_strangers)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


class IndexFolder:
    """An index on disk whose files were checked: they are those of its description, each as large as that says.

    Args:
        path: the folder.
        verify: also compare the content of every file with the hash that it was written with.
    """

    def __init__(self, path: PathLike, *, verify: bool = False) -> None:
        self.path = Path(path)
        _patiently(lambda: self._look(verify))

    def _look(self, verify: bool) -> None:
        self.meta = self._described()
        self._check_files(verify)

    def fault(self, problem: str) -> FormatError:
        """The error for an index that cannot be used."""
        return FormatError(f"{problem} Index the collection again.", path=self.path)

    def _described(self) -> dict[str, Any]:
        try:
            meta = _description_of(self.path)
        except (FileNotFoundError, NotADirectoryError):
            what = "is not a search index" if self.path.exists() else "does not exist"
            raise FileError(f"{self.path} {what}; `toprank search index` makes one.") from None
        except (ValueError, RecursionError):
            raise self.fault("This index has no readable description: it is damaged.") from None
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise FormatError(f"This folder is not a search index: its {META} is another program's.", path=self.path)
        version = meta.get("version")
        if version != VERSION:
            raise self.fault(
                f"This index has version {version}, written by toprank {meta.get('toprank')}; this toprank "
                f"({__version__}) reads version {VERSION}."
            )
        return meta

    def is_current(self) -> bool:
        """Whether the folder still holds the index that was opened, and not another one of its name."""
        try:
            return bool(self._described().get("id") == self.meta.get("id"))
        except (FormatError, FileError, OSError):
            return False

    def _check_files(self, verify: bool) -> None:
        files = self.meta.get("files")
        if not isinstance(files, dict) or not files:
            raise self.fault("The description of this index lists no files: it is damaged.")
        for name, entry in files.items():
            parts = name.split("/")
            if not isinstance(entry, list) or len(entry) != 2 or not set(parts).isdisjoint(("", ".", "..")):
                raise self.fault("The description of this index is damaged.")
            file = self.path.joinpath(*parts)
            try:
                status = file.lstat()
            except OSError:  # not there, or a name that no file can have
                size = None
            else:
                size = status.st_size if stat.S_ISREG(status.st_mode) else None
            if size != entry[0]:
                state = "is missing" if size is None else f"has {size:,} bytes instead of {entry[0]:,}"
                raise self.fault(f"This index is damaged: {name} {state}.")
            if verify and _hash(file) != entry[1]:
                raise self.fault(f"This index is damaged: the content of {name} is not what was written.")

    def array(self, name: str, kind: str) -> npt.NDArray[Any]:
        """An array of numbers of one kind (a letter of NumPy), mapped where it is not empty."""
        if f"{name}.npy" not in self.meta["files"]:
            raise self.fault(f"This index is damaged: it has no {name}.")
        file = self.path / f"{name}.npy"
        try:
            try:
                array = np.load(file, mmap_mode="r", allow_pickle=False)
            except ValueError:  # nothing to map
                array = np.load(file, allow_pickle=False)
        except _UNREADABLE as problem:
            raise self.fault(f"This index is damaged: {name} cannot be read ({problem}).") from None
        if array.dtype.kind != kind:
            raise self.fault(f"This index is damaged: {name} does not hold what it should.")
        checked: npt.NDArray[Any] = array
        return checked

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays whose names begin so, without that beginning, read into memory."""
        names = [
            name[len(prefix) : -4] for name in self.meta["files"] if name.startswith(prefix) and name[-4:] == ".npy"
        ]
        try:
            return {name: np.load(self.path / f"{prefix}{name}.npy", allow_pickle=False) for name in names}
        except _UNREADABLE as problem:
            raise self.fault(f"This index is damaged: {problem}.") from None

    def json(self, name: str) -> Any:
        """The content of a file of JSON; None where there is none."""
        if name not in self.meta["files"]:
            return None
        try:
            value: Any = json.loads((self.path / name).read_bytes())
            return value
        except (ValueError, RecursionError, OSError):
            raise self.fault(f"This index is damaged: {name} cannot be read.") from None

    def entry(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """An entry of the description, of a kind."""
        value = self.meta.get(name)
        if not isinstance(value, kind):
            raise self.fault(f"The description of this index is damaged: {name} is missing or of the wrong kind.")
        return value


def write_json(folder: Path, name: str, value: Mapping[str, Any]) -> None:
    """A file of JSON of the index."""
    (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
