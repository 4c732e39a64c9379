"""`Experiment`: what is to be run, checked before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toprank.compute import available_threads
from toprank.data.dataset import RankingData
from toprank.data.folds import Fold, Folds, folds
from toprank.data.typed import without_place
from toprank.errors import DataError, FileError, UnknownNameError
from toprank.experiment.entries import entries_of
from toprank.metrics.conventions import CONVENTIONS, Convention
from toprank.metrics.parsing import parse, parse_all

if TYPE_CHECKING:
    from toprank.experiment.results import Results

__all__ = ["Dataset", "Experiment"]


@dataclass(frozen=True)
class Dataset:
    """Folds under a name; they are read when they are needed."""

    name: str
    folds: Sequence[Fold]
    fold_names: tuple[str, ...]
    source: str


class Experiment:
    """Datasets × systems × folds × seeds: hyper-parameters chosen on validation data, test data judged once.

    Args:
        datasets: a folder with LETOR folds, a data file or a `RankingData` (divided by query into `n_folds` parts:
            one to test, one to choose on, the rest to train), a list of `Fold`, or a mapping from names to these.
        systems: names, or a mapping from names to a name, a `System`, a pair (name, options to fix), or an unfitted
            ranker. Systems search their grid; a ranker is fitted as it is, with `valid=` the validation data.
        metrics: what to report on the test data.
        conventions: the rules to report them under; one or several.
        seeds: seeds for the systems that draw anything, given rankers included; the others are computed once. None:
            each has its own (0 for a system by name), once.
        folder: where finished cells are kept; another run there computes only what is missing. None: nothing is kept.
        select_by: metric to choose the hyper-parameters of systems by; None: each system's own. Given rankers keep
            their own metric and convention.
        select_convention: the rules of that metric: a name or a `Convention`.
        baseline: the system that tables compare the others with; None: the best by the first metric.
        n_folds: number of parts, where data are divided here.
        split_seed: decides that division.
        keep_models: keep the fitted rankers too, for `Results.ranker`.
        threads: cores to use; results do not depend on it.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=60, seed=0)
    >>> results = Experiment(data, ["LeastSquares", "RankSVM"], n_folds=3, threads=1).run()
    >>> sorted(results.fold_means("ndcg@10"))
    ['LeastSquares', 'RankSVM']
    """

    def __init__(
        self,
        datasets: Any,
        systems: Any,
        *,
        metrics: Any = ("ndcg@10", "map"),
        conventions: Any = ("standard",),
        seeds: Iterable[int] | int | None = None,
        folder: str | os.PathLike[str] | None = None,
        select_by: str | None = None,
        select_convention: str | Convention = "standard",
        baseline: str | None = None,
        n_folds: int = 5,
        split_seed: int = 0,
        keep_models: bool = False,
        threads: int | None = None,
    ) -> None:
        self.entries = entries_of(systems)
        self.measures = parse_all(metrics)
        self.conventions = _conventions(conventions)
        self.seeds = None if seeds is None else _seeds(seeds)
        self.select_by = select_by
        if select_by is not None:
            parse(select_by)
        self.select_convention = _convention(select_convention)
        names = [entry.name for entry in self.entries]
        if baseline is not None and baseline not in names:
            raise UnknownNameError("system in this experiment", baseline, names)
        self.baseline = baseline
        self.n_folds, self.split_seed = n_folds, split_seed
        self.keep_models = keep_models
        self.threads = available_threads(threads)
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None and self.folder.exists() and not self.folder.is_dir():
            raise FileError(f"{self.folder} is a file; the results of an experiment need a folder.")
        self.datasets = _datasets(datasets, n_folds, split_seed)

    def run(self, verbose: bool | None = None) -> Results:
        """Compute what is not in the folder yet, and evaluate everything.

        Args:
            verbose: tell on standard error what is done and how long the rest will take; None: where a person watches.

        Raises:
            KeyboardInterrupt: on Ctrl-C, with a sentence on how to go on; finished cells stay in the folder.

        A system that fails on a fold is told in `Results.failures`, and the others go on.
        """
        from toprank.experiment.running import run

        return run(self, verbose)

    def __repr__(self) -> str:
        folds = [f"{len(one.fold_names)} fold{'' if len(one.fold_names) == 1 else 's'}" for one in self.datasets]
        data = ", ".join(f"{one.name} ({count})" for one, count in zip(self.datasets, folds, strict=True))
        return f"Experiment({data}; {', '.join(entry.name for entry in self.entries)})"


def _convention(given: str | Convention) -> Convention:
    """By name or as it is; tables and reports name a convention, so one of one's own needs a name of its own."""
    found = Convention.of(given)
    if CONVENTIONS.get(found.name, found) != found:
        raise DataError(f"There is another convention called '{found.name}'; give yours a name of its own.")
    return found


def _conventions(given: Any) -> dict[str, Convention]:
    if isinstance(given, str | Convention):
        given = [given]
    found: dict[str, Convention] = {}
    for one in map(_convention, given):
        if one.name in found:
            raise DataError(f"Two conventions are called '{one.name}'; give each once, and each its own name.")
        found[one.name] = one
    if not found:
        raise DataError("No convention is named; ask for at least one, for example 'standard'.")
    return found


def _seeds(given: Iterable[int] | int) -> tuple[int, ...]:
    seeds = (given,) if isinstance(given, int) else tuple(given)
    if not seeds or not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds):
        raise DataError(f"seeds must be one or more whole numbers of 0 or more, not {given!r}.")
    if len(set(seeds)) < len(seeds):
        raise DataError(f"A seed is given twice: {', '.join(map(str, seeds))}.")
    return seeds


def _datasets(given: Any, k: int, seed: int) -> tuple[Dataset, ...]:
    if isinstance(given, Mapping):
        found = [_dataset(str(name), what, k, seed) for name, what in given.items()]
    elif _is_sequence(given) and given and all(isinstance(one, str | os.PathLike) for one in given):
        found = [_dataset(None, what, k, seed) for what in given]
    else:
        found = [_dataset(None, given, k, seed)]
    if not found:
        raise DataError("There is no dataset; give at least one.")
    for place, one in enumerate(found):
        if one.name in [other.name for other in found[:place]]:
            raise DataError(f"Two datasets are called '{one.name}'; give a mapping with different names.")
    return tuple(found)


def _dataset(name: str | None, what: Any, k: int, seed: int) -> Dataset:
    if isinstance(what, str | os.PathLike):
        path = Path(what)
        its = folds(path, seed=seed) if path.is_dir() and not _divided(path) else folds(path, k, seed=seed)
        return Dataset(name or _stem(path), its, its.names, without_place(str(path)))
    if isinstance(what, RankingData):
        its = folds(what, k, seed=seed)
        return Dataset(name or "data", its, its.names, "")
    if isinstance(what, Folds):
        return Dataset(name or "data", what, what.names, "")
    if _is_sequence(what) and what and all(isinstance(one, Fold) for one in what):
        names = tuple(one.name for one in what)
        if len(set(names)) < len(names):
            raise DataError(f"Two folds have the same name: {', '.join(names)}.")
        return Dataset(name or "data", what, names, "")
    frame = " A frame becomes one by RankingData.from_frame(frame)." if hasattr(what, "columns") else ""
    raise DataError(
        f"A {type(what).__name__} is not a dataset: give a folder with folds, a data file, a RankingData, or a list of "
        f"Fold.{frame}"
    )


def _divided(path: Path) -> bool:
    from toprank.data.files import is_readable_folder

    return bool(is_readable_folder(path))


def _stem(path: Path) -> str:
    """What a dataset is called after its path: a folder's name, a file's without suffixes."""
    name = path.resolve().name
    return name if path.is_dir() and not _divided(path) else name.split(".")[0]


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
