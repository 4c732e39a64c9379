"""Run a study on the available LETOR datasets, in any layout of their archives."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from toprank.data.dataset import PER_DOCUMENT, RankingData
from toprank.data.folds import Fold, Folds, folds
from toprank.errors import DataError, FileError, UnknownNameError
from toprank.experiment import Experiment, Results
from toprank.metrics.conventions import CONVENTIONS
from toprank.reproduce.findings import Reproduction
from toprank.reproduce.studies import STUDIES, Study
from toprank.systems import System, get

SETS = ("OHSUMED", "MQ2007", "MQ2008", "HP2003", "HP2004", "NP2003", "NP2004", "TD2003", "TD2004")
"""Names of the LETOR datasets, as in the papers."""

_MAX_DEPTH = 4  # levels of subfolders that are searched
_NORMALIZED = "querylevelnorm"


def find_sets(data: str | os.PathLike[str], sets: Iterable[str] | None = None) -> dict[str, Folds]:
    """Find the LETOR datasets under a folder and return their folds, in the order of `SETS`.

    A dataset is a folder with its name (``OHSUMED``, ``MQ2008``) or its name in the LETOR 3.0 archive
    (``2003_hp_dataset``), at most four levels deep. If there are several, the one under ``QueryLevelNorm`` is used,
    otherwise the first.

    Args:
        data: folder to search.
        sets: names of required datasets. Default: all that are found.
    """
    root = Path(data)
    if not root.is_dir():
        raise FileError(f"{root} is not a folder. Give the folder that contains the LETOR datasets.")
    wanted = SETS if sets is None else tuple(_known(name) for name in sets)
    if not wanted:
        raise DataError(f"sets is empty. Name at least one of {', '.join(SETS)}.")
    present: dict[str, Folds] = {}
    for folder in sorted(_folders(root), key=lambda path: (_NORMALIZED not in str(path).lower(), str(path))):
        name = _set_of(folder.name)
        if name in wanted and name not in present:
            with suppress(DataError, FileError):  # a folder with this name, but without LETOR folds
                present[name] = folds(folder)
    absent = [name for name in wanted if name not in present]
    if sets is not None and absent:
        raise FileError(f"{', '.join(absent)} was not found under {root}: no folder of that name contains LETOR folds.")
    if not present:
        raise FileError(f"No LETOR dataset was found under {root}. Known names: {', '.join(SETS)}.")
    return {name: present[name] for name in SETS if name in present}


def _known(name: str) -> str:
    by_key = {name.lower(): name for name in SETS}
    if name.strip().lower() not in by_key:
        raise UnknownNameError("LETOR set", name.strip(), SETS)
    return by_key[name.strip().lower()]


def _set_of(folder: str) -> str | None:
    """Return the dataset for a folder name such as MQ2008 or 2003_hp_dataset, or None."""
    plain = folder.lower().replace("-", "_")
    for name in SETS:
        task, year = name[:2].lower(), name[2:]
        if plain in (name.lower(), f"{year}_{task}_dataset", f"{task}_{year}", f"{year}_{task}"):
            return name
    return None


def _folders(root: Path) -> Iterator[Path]:
    """Yield a folder and its subfolders, except hidden and unreadable ones."""
    for name, children, _ in os.walk(root, followlinks=True):
        folder = Path(name)
        yield folder
        deep = len(folder.relative_to(root).parts) == _MAX_DEPTH
        children[:] = [] if deep else [child for child in children if not child.startswith(".")]


NEEDS_IDS = "trec_eval"
"""Convention that requires document ids, which some LETOR files lack."""


def reproduce(
    study: str | Study,
    data: str | os.PathLike[str],
    sets: Iterable[str] | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    verbose: bool | None = None,
) -> Reproduction:
    """Rerun the protocol of a paper on LETOR datasets and compare the results with the published figures.

    Args:
        study: ``cs-rglist``, ``owpc``, ``bayes-optimal``, or a custom `Study`.
        data: folder with the datasets, in the layout of their archives.
        sets: names of the datasets. Default: all that are found.
        cache_dir: folder for finished cells, from which an interrupted run resumes. Default: cells are not kept.
        threads: number of threads; results do not depend on it.
        verbose: report progress on standard error. Default: on terminals and in notebooks.
    """
    if isinstance(study, str):
        if study.strip().lower() not in STUDIES:
            raise UnknownNameError("study", study, STUDIES)
        study = STUDIES[study.strip().lower()]
    present = find_sets(data, sets)

    def run(folds: dict[str, Folds], systems: dict[str, Any]) -> Results:
        return Experiment(
            folds,
            systems,
            metrics=study.metrics,
            conventions=[name for name in CONVENTIONS if name != NEEDS_IDS],
            seeds=study.seeds,
            cache_dir=None if cache_dir is None else Path(cache_dir),
            selection_metric=study.selection_metric,
            selection_convention=study.convention,
            threads=threads,
        ).run(verbose)

    systems = {name: _as_published(what) for name, what in study.systems.items()}
    parts = [run(present, systems)]
    if study.reversed_rows:
        turned = {name: its.each(_with_reversed_rows) for name, its in present.items()}
        parts.append(run(turned, {new: systems[old] for new, old in study.reversed_rows.items()}))
    return Reproduction(study, tuple(present), tuple(parts))


def _as_published(what: Any) -> Any:
    """Return the system with its grid searched exactly as published, without extension beyond its edges."""
    if isinstance(what, tuple):
        return (_as_published(what[0]), *what[1:])
    system = get(what) if isinstance(what, str) else what
    return replace(system, exact_grid=True) if isinstance(system, System) else what


def _with_reversed_rows(fold: Fold) -> Fold:
    return replace(fold, train=reversed_rows(fold.train))


def reversed_rows(data: RankingData) -> RankingData:
    """Return the data with the rows of each query in reverse order."""
    offsets = data.queries.offsets
    rows = data.queries.broadcast(offsets[:-1] + offsets[1:] - 1) - np.arange(data.n_documents)
    own = {name: None if getattr(data, name) is None else getattr(data, name)[rows] for name in PER_DOCUMENT}
    return data.replace(X=data.X[rows], **own)
