"""One cell: choose on validation data, predict the test documents, write both down.

Test labels do not come here: the test data of a `Task` have none, so no choice can depend on them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.folds import Fold
from toprank.data.store import SUFFIX, open_store, write_store
from toprank.errors import ToprankError
from toprank.experiment.content import versions
from toprank.experiment.entries import Chosen, Entry
from toprank.experiment.store import CellStore, plain
from toprank.metrics.conventions import Convention

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["Outcome", "Task", "blind", "compute", "labels_only", "signed_weights", "write_copies"]


def signed_weights(ranker: Ranker) -> tuple[str, FloatArray] | None:
    """What the numbers mean, and one for each feature; None where the ranker has no coefficients."""
    coef = getattr(ranker, "coef_", None)
    spread = getattr(getattr(ranker, "standardisation_", None), "spread", None)
    if coef is not None and np.ndim(coef) == 1:
        scale = np.ones(len(coef)) if spread is None else spread
        return "Weight of a standard deviation", np.asarray(coef * scale, dtype=np.float64)
    if coef is not None and np.ndim(coef) == 2:  # P(grade | x): one row per grade, or one row before thresholds
        rows = np.asarray(coef, dtype=np.float64)
        slope = rows[0] if len(rows) == 1 else rows[-1] - rows[0]
        return "Log-odds, highest against lowest grade, of a standard deviation", slope
    return None


_PARTS = ("train", "valid", "test")
_MOST_WARNINGS = 20


@dataclass(frozen=True)
class Task:
    """A cell to compute: everything that is needed, for this process or another."""

    key: str
    entry: Entry
    seed: int | None
    metric: str | None
    convention: Convention
    threads: int
    keep_model: bool
    folder: Path
    data: Fold | Path
    """The fold with its test labels taken out, or the folder with copies of its parts."""


class Outcome(NamedTuple):
    """What became of a task."""

    seconds: float
    error: str | None


def blind(fold: Fold) -> Fold:
    """The fold without test labels."""
    return replace(fold, test=fold.test.replace(labels=np.full(fold.test.n_documents, np.nan)))


def labels_only(test: RankingData) -> RankingData:
    """The test data without features: what judging needs, and no more memory than that."""
    return test.replace(X=np.zeros((test.n_documents, 0)), feature_names=None)


def write_copies(fold: Fold, folder: Path) -> None:
    """The fold as stored copies, which other processes map into memory instead of each holding its own."""
    folder.mkdir()
    for part in _PARTS:
        write_store(getattr(fold, part), folder / f"{part}{SUFFIX}")


def compute(task: Task, stopped: Callable[[], bool] = lambda: False) -> Outcome:
    """Compute a cell and write it to its folder; what goes wrong with the system is told, not raised.

    Args:
        task: the cell.
        stopped: whether the user has asked to end; solvers answer Ctrl-C with the best so far, which is no result.
    """
    start = time.perf_counter()
    try:
        fold = task.data
        if isinstance(fold, Path):
            fold = Fold("", *(open_store(fold / f"{part}{SUFFIX}") for part in _PARTS))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            chosen = task.entry.choose(
                fold.train,
                fold.valid,
                metric=task.metric,
                convention=task.convention,
                seed=task.seed,
                threads=task.threads,
            )
            scores = np.asarray(chosen.ranker.predict(fold.test), dtype=np.float64)
            relevance = _relevance(chosen.ranker, fold.test)
    except ToprankError as problem:
        return Outcome(time.perf_counter() - start, problem.args[0])
    except MemoryError:
        return Outcome(time.perf_counter() - start, "There was not enough memory for this.")
    except Exception as problem:  # noqa: BLE001 - one system's trouble must not end the others
        return Outcome(time.perf_counter() - start, f"{type(problem).__name__}: {problem}")
    if stopped():
        raise KeyboardInterrupt
    seconds = time.perf_counter() - start
    record = _record(task, chosen, [str(one.message) for one in caught], seconds)
    _keep(task, record, scores, relevance, chosen.ranker)
    return Outcome(seconds, None)


def _keep(task: Task, record: dict[str, Any], scores: FloatArray, relevance: FloatArray | None, ranker: Ranker) -> None:
    CellStore(task.folder).write(task.key, record, scores, relevance, ranker if task.keep_model else None)


def _relevance(ranker: Ranker, test: RankingData) -> FloatArray | None:
    """P(grade ≥ 1) of the test documents, where the ranker gives P(grade | x)."""
    if not hasattr(ranker, "predict_proba"):
        return None
    found: FloatArray = ranker.predict_proba(test)[:, 1:].sum(axis=1)
    return found


def _record(task: Task, chosen: Chosen, said: list[str], seconds: float) -> dict[str, Any]:
    ranker = chosen.ranker
    solution = getattr(ranker, "solution_", None)
    meaning, weights = signed_weights(ranker) or ("", [])
    return {
        "key": task.key,
        "options": plain(chosen.options),
        "metric": chosen.metric,
        "convention": chosen.convention,
        "valid": chosen.valid,
        "seconds": seconds,
        "message": getattr(solution, "message", None) or getattr(ranker, "stopped_", "") or "",
        "warnings": list(dict.fromkeys(said))[:_MOST_WARNINGS],
        "tried": chosen.tried,
        "history": getattr(ranker, "history_", {}) or {},
        "importances": _importances(ranker),
        "weights": weights,
        "meaning": meaning,
        "versions": versions(),
    }


def _importances(ranker: Ranker) -> list[float]:
    try:
        return [float(share) for share in ranker.feature_importances_]
    except (AttributeError, TypeError, ValueError):  # not every ranker can tell
        return []
