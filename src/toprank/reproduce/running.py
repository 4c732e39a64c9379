"""Run a study on the sets at hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from toprank.data.dataset import RankingData
from toprank.data.folds import Fold, Folds
from toprank.errors import UnknownNameError
from toprank.experiment import Experiment, Results
from toprank.metrics.conventions import CONVENTIONS
from toprank.reproduce.findings import Reproduction
from toprank.reproduce.sets import find_sets
from toprank.reproduce.studies import STUDIES, Study
from toprank.systems import System, get

__all__ = ["reproduce"]

NEEDS_IDS = "trec_eval"
"""The convention that breaks ties by document ids, which not every file has; it is no LETOR convention anyway."""


def reproduce(
    study: str | Study,
    data: str | os.PathLike[str],
    sets: Iterable[str] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    verbose: bool | None = None,
) -> Reproduction:
    """Rerun a paper's protocol on the LETOR sets under a folder, and put our numbers beside the published ones.

    Args:
        study: ``cs-rglist``, ``owpc``, ``bayes-optimal``, or a `Study` of your own.
        data: the folder that holds the sets, in the layout of their archives.
        sets: which sets; None: those that are found.
        folder: keep finished cells here; a run that was ended goes on from them.
        threads: cores to use; results do not depend on it.
        verbose: tell on standard error what is done; None: where a person watches.
    """
    if isinstance(study, str):
        if study.strip().lower() not in STUDIES:
            raise UnknownNameError("study", study, STUDIES)
        study = STUDIES[study.strip().lower()]
    found = find_sets(data, sets)

    def run(folds: dict[str, Folds], systems: dict[str, Any]) -> Results:
        return Experiment(
            folds,
            systems,
            metrics=study.metrics,
            conventions=[name for name in CONVENTIONS if name != NEEDS_IDS],
            seeds=study.seeds,
            folder=None if folder is None else Path(folder),
            select_by=study.select_by,
            select_convention=study.convention,
            threads=threads,
        ).run(verbose)

    systems = {name: _as_published(what) for name, what in study.systems.items()}
    parts = [run(found, systems)]
    if study.reversed_rows:
        turned = {name: _each(its, reversed_rows) for name, its in found.items()}
        parts.append(run(turned, {new: systems[old] for new, old in study.reversed_rows.items()}))
    return Reproduction(study, tuple(found), tuple(parts))


def _as_published(what: Any) -> Any:
    """The same system, its grid searched as papers do: as it stands, not beyond its edges."""
    if isinstance(what, tuple):
        return (_as_published(what[0]), *what[1:])
    system = get(what) if isinstance(what, str) else what
    return replace(system, exact_grid=True) if isinstance(system, System) else what


def _each(folds: Folds, change: Callable[[RankingData], RankingData]) -> Folds:
    """The folds with changed training data."""

    def load(number: int) -> Fold:
        fold = folds[number]
        return Fold(fold.name, change(fold.train), fold.valid, fold.test)

    return Folds(folds.names, load)


def reversed_rows(data: RankingData) -> RankingData:
    """The same data with the rows of each query in the opposite order; queries keep theirs."""
    offsets = data.queries.offsets
    rows = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in pairwise(offsets)])
    per_document = ("labels", "document_ids", "document_weights", "positions")
    own = {name: None if getattr(data, name) is None else getattr(data, name)[rows] for name in per_document}
    return data.replace(X=data.X[rows], **own)
