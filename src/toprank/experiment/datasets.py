"""Datasets of an experiment: named folds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toprank.data.command_line import without_folders
from toprank.data.dataset import RankingData
from toprank.data.files import format_of, is_readable_folder, with_metadata
from toprank.data.folds import Fold, Folds, folds
from toprank.data.slices import columns_of
from toprank.errors import DataError


@dataclass(frozen=True)
class Dataset:
    """Named folds, which are read when they are needed."""

    name: str
    folds: Sequence[Fold]
    fold_names: tuple[str, ...]
    source: str


def check_unique_names(kind: str, given: Sequence[Any]) -> None:
    """Raise an error for duplicate names."""
    for name, times in Counter(named.name for named in given).items():
        if times > 1:
            raise DataError(f"Two {kind} are called '{name}'. Give a mapping with different names.")


def read_datasets(given: Any, k: int, seed: int, slice_by: str | None) -> tuple[Dataset, ...]:
    """Return the datasets of an experiment; raise an error for duplicate names."""
    if isinstance(given, Mapping):
        datasets = [_dataset(str(name), what, k, seed, slice_by) for name, what in given.items()]
    elif _is_sequence(given) and given and all(isinstance(path, str | os.PathLike) for path in given):
        datasets = [_dataset(None, what, k, seed, slice_by) for what in given]
    else:
        datasets = [_dataset(None, given, k, seed, slice_by)]
    if not datasets:
        raise DataError("datasets is empty. Give at least one dataset.")
    check_unique_names("datasets", datasets)
    return tuple(datasets)


def _dataset(name: str | None, what: Any, k: int, seed: int, slice_by: str | None) -> Dataset:
    if isinstance(what, str | os.PathLike):
        path = Path(what)
        own_name, of_folds = path.resolve().name, path.is_dir() and not is_readable_folder(path)
        # Read the slice column as metadata, so that callers need not request it.
        options = {} if of_folds or slice_by is None else with_metadata(format_of(path), columns_of(slice_by), {})
        parts = folds(path, seed=seed) if of_folds else folds(path, k, seed=seed, **options)
        usual_name = own_name if of_folds else own_name.split(".")[0]
        return Dataset(name or usual_name, parts, parts.names, without_folders(str(path)))
    if isinstance(what, RankingData):
        what = folds(what, k, seed=seed)
    if isinstance(what, Folds):
        return Dataset(name or "data", what, what.names, "")
    if _is_sequence(what) and what and all(isinstance(fold, Fold) for fold in what):
        names = tuple(fold.name for fold in what)
        if len(set(names)) < len(names):
            raise DataError(f"Two folds have the same name: {', '.join(names)}. Rename one.")
        return Dataset(name or "data", what, names, "")
    hint = " Convert a frame with RankingData.from_frame(frame)." if hasattr(what, "columns") else ""
    raise DataError(
        f"A {type(what).__name__} is not a dataset. Give a folder with folds, a data file, a RankingData, or a list of "
        f"Fold.{hint}"
    )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
