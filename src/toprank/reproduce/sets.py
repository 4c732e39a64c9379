"""The nine LETOR sets of the papers, found under a folder whatever layout their archives were unpacked to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from toprank.data.folds import Folds, folds
from toprank.errors import DataError, FileError, UnknownNameError

__all__ = ["SETS", "find_sets"]

SETS = ("OHSUMED", "MQ2007", "MQ2008", "HP2003", "HP2004", "NP2003", "NP2004", "TD2003", "TD2004")
"""The names of the papers."""

_DEEP = 4
_NORMALISED = "querylevelnorm"


def find_sets(data: str | os.PathLike[str], sets: Iterable[str] | None = None) -> dict[str, Folds]:
    """The folds of the LETOR sets under a folder, in the order of `SETS`.

    A set is a folder called like it (``OHSUMED``, ``MQ2008``), or as in LETOR 3.0's archive (``2003_hp_dataset``), at
    most four levels down. Where there are several, the one under ``QueryLevelNorm`` is taken, else the first.

    Args:
        data: where to look.
        sets: the sets wanted; one that is not there is refused. None: whatever is there.
    """
    root = Path(data)
    if not root.is_dir():
        raise FileError(f"{root} is not a folder; --data must name the folder that holds the LETOR sets.")
    wanted = SETS if sets is None else tuple(_known(name) for name in sets)
    if not wanted:
        raise DataError(f"No set is named; known: {', '.join(SETS)}.")
    found: dict[str, Folds] = {}
    for folder in sorted(_folders(root, _DEEP), key=lambda path: (_NORMALISED not in str(path).lower(), str(path))):
        name = _set_of(folder.name)
        if name in wanted and name not in found and (its := _folds_of(folder)) is not None:
            found[name] = its
    absent = [name for name in wanted if name not in found]
    if sets is not None and absent:
        raise FileError(f"{', '.join(absent)} is not under {root}: no folder of that name holds LETOR folds.")
    if not found:
        raise FileError(f"There is no LETOR set under {root}; known: {', '.join(SETS)}.")
    return {name: found[name] for name in SETS if name in found}


def _known(name: str) -> str:
    by_key = {one.lower(): one for one in SETS}
    if name.strip().lower() not in by_key:
        raise UnknownNameError("LETOR set", name.strip(), SETS)
    return by_key[name.strip().lower()]


def _set_of(folder: str) -> str | None:
    """The set that a folder's name stands for: MQ2008, or 2003_hp_dataset."""
    plain = folder.lower().replace("-", "_")
    for name in SETS:
        task, year = name[:2].lower(), name[2:]
        if plain in (name.lower(), f"{year}_{task}_dataset", f"{task}_{year}", f"{year}_{task}"):
            return name
    return None


def _folders(root: Path, deep: int) -> Iterator[Path]:
    yield root
    if deep:
        for child in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")):
            yield from _folders(child, deep - 1)


def _folds_of(folder: Path) -> Folds | None:
    """The folds in a folder; None where it has the name but nothing of the kind."""
    try:
        return folds(folder)
    except (DataError, FileError):
        return None
