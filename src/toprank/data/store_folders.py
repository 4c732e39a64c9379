"""The folder of a stored copy: what lies in it, what may be replaced, and how a new copy takes the place of an old one.

A copy is built under a hidden name beside its target (see `toprank.data.bytesource`) that ends in ``.tmp``; an older
copy steps aside to such a name that ends in ``.old.tmp``. What a process that was killed leaves behind is cleared away
by the next one that writes the same copy.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from toprank.data.bytesource import abandoned, temporary_sibling
from toprank.errors import DataError, FileError

__all__ = [
    "FORMAT", "KINDS", "META", "SUFFIX", "UNFINISHED", "VERSION", "clear_remains", "hash_of_names", "is_ours",
    "put_in_place", "refuse_what_is_no_copy", "target_of",
]  # fmt: skip

SUFFIX = ".toprank-data"
FORMAT, VERSION = "toprank-data", 1
META = "meta.json"
KINDS = {
    "X": "f",
    "X.data": "f",
    "X.indices": "i",
    "X.indptr": "i",
    "labels": "f",
    "offsets": "i",
    "qids": "iU",
    "document_ids": "U",
    "document_weights": "f",
    "query_weights": "f",
    "positions": "i",
    "source_rows": "i",
}
"""The arrays there may be, and the kinds of number that each may hold, as NumPy letters."""

_FILES = {META, *(f"{name}.npy" for name in KINDS)}
UNFINISHED, _ASIDE = ".tmp", ".old.tmp"


def is_ours(folder: Path) -> bool:
    """Whether the folder's description says that it is a stored copy."""
    try:
        meta = json.loads((folder / META).read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return False
    return isinstance(meta, dict) and meta.get("format") == FORMAT


def hash_of_names(names: Sequence[str] | None) -> str:
    """A hash of the feature names in their order."""
    return hashlib.blake2b(json.dumps(names).encode(), digest_size=16).hexdigest()


def target_of(path: str | os.PathLike[str]) -> Path:
    """Where a copy called `path` lies in truth; its name must have the suffix."""
    target = Path(os.path.realpath(path))
    if target.name.endswith(SUFFIX):
        return target
    called = f"{path} is" if Path(path).name == target.name else f"{path} leads to {target}, which is"
    raise DataError(f"A stored copy is a folder with the suffix {SUFFIX}; {called} not called so.")


def refuse_what_is_no_copy(path: str | os.PathLike[str], target: Path) -> None:
    """Refuse a target that is there already, unless it is a stored copy and nothing else."""
    try:
        os.stat(target)
    except FileNotFoundError:
        return
    if not is_ours(target):
        raise FileError(f"{path} exists and is not a stored copy; choose another name or remove it.")
    _refuse_strangers(target)


def _refuse_strangers(folder: Path) -> None:
    strangers = sorted(set(os.listdir(folder)) - _FILES)
    if strangers:
        raise FileError(
            f"{folder} is not replaced: beside the stored copy it holds {strangers[0]}. Move that elsewhere, or choose "
            "another name."
        )


def clear_remains(target: Path) -> None:
    """Clear away what processes that were killed left of this copy, and bring an older copy back that stands aside."""
    with suppress(OSError):  # who may not clear up may still write, or is told so then
        for aside in abandoned(target.parent, _ASIDE, target):
            if target.exists():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                os.rename(aside, target)
        for unfinished in abandoned(target.parent, UNFINISHED, target):
            shutil.rmtree(unfinished, ignore_errors=True)


def put_in_place(temporary: Path, target: Path) -> None:
    """Rename; a copy that is there already goes aside, and comes back if the new one cannot take its place."""
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
                _refuse_strangers(target)  # put there since we began
                os.rename(target, aside)
    finally:
        if aside.exists() and not target.exists():
            os.rename(aside, target)
        try:
            shutil.rmtree(aside, ignore_errors=True)
        except BaseException:  # an interrupt: the new copy is in place, so half of an old one serves nobody
            shutil.rmtree(aside, ignore_errors=True)
            raise
