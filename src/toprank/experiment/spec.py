"""Specification of an experiment: datasets and systems, validated before any computation."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toprank import losses
from toprank.compute import available_threads
from toprank.data.folds import Fold
from toprank.errors import DataError, FileError, UnknownNameError, count_of
from toprank.experiment.datasets import check_unique_names, read_datasets
from toprank.experiment.provenance import described
from toprank.metrics.conventions import CONVENTIONS, Convention
from toprank.metrics.parsing import parse, parse_all
from toprank.model_selection import AUTO
from toprank.model_selection.automatic import AutoRanker
from toprank.model_selection.grid import grid_search
from toprank.model_selection.result import SelectionResult
from toprank.rankers.base import Ranker
from toprank.systems import System, get

if TYPE_CHECKING:
    from toprank.experiment.results import Results


class Chosen(NamedTuple):
    """A fitted ranker with its selected hyper-parameters and the candidates."""

    ranker: Ranker
    options: dict[str, Any]
    metric: str | None
    convention: str
    valid: float | None
    candidates: list[dict[str, Any]]


@dataclass(frozen=True)
class Entry:
    """A named system with fixed options, searched over its grid; or an unfitted ranker, fitted unchanged.

    Attributes:
        automatic: True if the entry was given as "auto".
    """

    name: str
    system: System | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    ranker: Ranker | None = None
    automatic: bool = False

    def with_selection_rule(self, metric: str | None, convention: str | Convention) -> Entry:
        """Return the entry; "auto" selects by the selection metric of the experiment."""
        if not self.automatic:
            return self
        own = {} if metric is None else {"metric": metric}
        usual = {"verbose": False, "convention": _name_or_convention(convention), **own}
        return replace(self, ranker=AutoRanker(**{**usual, **self.options}))

    def unfitted(self) -> Any:
        """Return the unfitted ranker, before model selection."""
        if self.system is None:
            return self.ranker
        return self.system.make(**self._own_options())

    def _own_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name != "threads"}

    @property
    def random(self) -> bool:
        """True if the ranker or its loss uses randomness and the seed is not fixed."""
        parameters = self.unfitted().get_params(deep=False)
        if "seed" in self.options:
            return False
        return "seed" in parameters or _is_random(_loss(parameters))

    def seeds(self, asked: tuple[int, ...] | None) -> tuple[int | None, ...]:
        """Return the seeds of the cells: the requested ones, or its own; (None,) for deterministic systems."""
        if not self.random:
            return (None,)
        if asked is not None:
            return asked
        parameters = self.unfitted().get_params(deep=False)
        own = parameters["seed"] if "seed" in parameters else _loss(parameters).seed
        return (own if isinstance(own, int) else None,)

    @property
    def portable(self) -> bool:
        """True if another process can unpickle the entry; classes defined in a script or notebook cannot be."""
        try:
            return b"__main__" not in pickle.dumps(self)
        except Exception:  # noqa: BLE001 - pickling can raise any exception
            return False

    def describe(self) -> Any:
        """Return everything that the fitted ranker depends on, as plain values, without names and citations."""
        if self.system is None:
            return described(self.ranker)
        system, options = self.system, self.system.plain_options(self._own_options())
        return {
            "ranker": system.ranker,
            "loss": system.loss,
            "options": described({**system.options, **options}),
            "fixed": sorted(options),
            # Pairs keep the order, which matters: the first of two equally good candidates is selected.
            "grid": [[name, described(tuple(values))] for name, values in system.grid.items()],
            "refine": list(system.refine),
            "metric": system.metric,
            "exact_grid": system.exact_grid,
        }

    def choose(
        self, fold: Fold, metric: str | None, convention: str | Convention, seed: int | None, threads: int
    ) -> Chosen:
        """Fit on training data and select on validation data; a given ranker uses its own metric and convention."""
        if self.system is None:
            return self._fit(fold, seed, threads)
        options = self._own_options()
        if seed is not None:
            options["seed"] = seed
        rest: dict[str, Any] = {
            "metric": metric,
            "convention": _name_or_convention(convention),
            "threads": threads,
            **options,
        }
        choice = grid_search(self.system, fold.train, fold.valid, **rest)
        rules = Convention.from_name(convention).name
        return Chosen(choice.ranker, choice.options, choice.metric, rules, choice.value, _candidates(choice))

    def _fit(self, fold: Fold, seed: int | None, threads: int) -> Chosen:
        from toprank.rankers.estimator import unfitted

        ranker = unfitted(self.ranker)
        known = ranker.get_params(deep=False)
        changes: dict[str, Any] = {"threads": threads}
        if seed is not None:
            changes |= {"seed": seed} if "seed" in known else {"loss": replace(_loss(known), seed=seed)}
        ranker.set_params(**{name: value for name, value in changes.items() if name in known})
        ranker.fit(fold.train, valid=fold.valid)
        if isinstance(ranker, AutoRanker):
            choice = ranker.selection_
            chosen = {"chosen": choice.name}
            return Chosen(ranker.ranker_, chosen, choice.metric, choice.convention, choice.value, _candidates(choice))
        judged = ranker.get_params(deep=False).get("metric")
        reached = getattr(ranker, "training_", {}).get("valid", {})
        path = list(getattr(ranker, "path_", []))
        options = {"l2": ranker.l2_} if len(path) > 1 and hasattr(ranker, "l2_") else {}
        value = reached.get(str(judged)) if judged else None
        rules = reached.get("convention") or known.get("convention") or "standard"
        return Chosen(ranker, options, judged, getattr(rules, "name", str(rules)), value, path)


def _name_or_convention(convention: str | Convention) -> Any:
    """Return the name of a built-in convention, which keeps the ranker savable, or the custom convention itself."""
    rules = Convention.from_name(convention)
    return rules.name if CONVENTIONS.get(rules.name) == rules else rules


_SEARCH_FIELDS = ("number", "name", "options", "value", "state", "seconds", "remark")


def _candidates(choice: SelectionResult) -> list[dict[str, Any]]:
    """Return one row per evaluated trial: its hyper-parameters or the candidate, and `valid`, the metric value."""
    judged = [row for row in choice.trials if row["value"] is not None]
    several = len({row["name"] for row in judged}) > 1
    return [
        {
            **({"candidate": row["name"]} if several else {}),
            **row["options"],
            "valid": row["value"],
            **{name: value for name, value in row.items() if name not in _SEARCH_FIELDS},
        }
        for row in judged
    ]


def entries_of(systems: Any) -> tuple[Entry, ...]:
    """Return the entries of an experiment; raise an error for duplicate names."""
    if isinstance(systems, str | System):
        systems = [systems]
    if isinstance(systems, Mapping):
        entries = [_entry(str(name), what) for name, what in systems.items()]
    elif isinstance(systems, Iterable):
        entries = [_entry(None, what) for what in systems]
    else:
        raise DataError(f"systems is {systems!r}, but must be names, or a mapping from names to systems.")
    if not entries:
        raise DataError("systems is empty. Name at least one system, such as 'LambdaMART'.")
    check_unique_names("systems", entries)
    for entry in entries:
        entry.random  # noqa: B018 - raises for unknown options before any computation
        _check_penalty(entry)
    return tuple(entries)


def _entry(name: str | None, what: Any) -> Entry:
    if isinstance(what, Entry):
        return what if name is None else replace(what, name=name)
    if isinstance(what, str) and what.strip().lower() == AUTO:
        return Entry(name or AUTO, ranker=AutoRanker(), automatic=True)
    if isinstance(what, str):
        return Entry(name or get(what).name, get(what))
    if isinstance(what, System):
        return Entry(name or what.name, what)
    if isinstance(what, tuple) and len(what) == 2 and isinstance(what[1], Mapping):
        inner = _entry(name, what[0])
        if inner.automatic:
            known = AutoRanker().get_params(deep=False)
            for option in what[1]:
                if option not in known:
                    raise UnknownNameError("option of auto", str(option), known)
        elif inner.system is None:
            raise DataError(
                f"{inner.name}: options are accepted only for named systems. Set the parameters of a ranker directly."
            )
        return replace(inner, options=dict(what[1]))
    if all(hasattr(what, method) for method in ("fit", "predict", "get_params")) and not isinstance(what, type):
        return Entry(name or str(getattr(what, "called", type(what).__name__)), ranker=what)
    raise DataError(
        f"{what!r} is not a system. Give a name, a System, a pair (name, options), or an unfitted ranker such as "
        "LinearRanker(l2=0.1)."
    )


def _check_penalty(entry: Entry) -> None:
    """Check that the penalty is one number or several; `System.make` does not check it."""
    given = entry.options.get("l2", 0.0)
    several = given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in several):
        raise DataError(f"{entry.name}: l2 is {given!r}, but must be a number or a list of numbers.")


def _loss(parameters: Mapping[str, Any]) -> Any:
    """Return the loss of a ranker; names of built-in losses are resolved."""
    loss = parameters.get("loss")
    return losses.make(loss) if isinstance(loss, str) and loss in losses.names() else loss


def _is_random(loss: Any) -> bool:
    """Return whether a loss uses randomness: it has a seed and no option disables it."""
    if not hasattr(loss, "seed"):
        return False
    return getattr(loss, "ties", "random") == "random" and getattr(loss, "gamma", "uniform") == "uniform"


class Experiment:
    """Experiment over datasets × systems × folds × seeds.

    Hyper-parameters are selected on validation data, and test data are evaluated once, at the end.

    Args:
        datasets: a folder with LETOR folds, a data file or a `RankingData` (split by query into `n_folds` parts: one
            for test, one for validation, the rest for training), a list of `Fold`, or a mapping from names to these.
        systems: names, or a mapping from names to a name, a `System`, a pair (name, fixed options), or an unfitted
            ranker. Systems search their grid; a ranker is fitted unchanged, with the validation data as `valid`.
            ``"auto"`` is an `AutoRanker`, which selects separately in each fold; ``("auto", {"time_budget":
            60.0})`` gives it less time.
        metrics: metrics on the test data.
        conventions: evaluation conventions of these metrics; one or several.
        seeds: seeds for systems and rankers that use randomness; the others are computed once. Default: one run with
            the seed of the ranker (0 for named systems).
        cache_dir: folder for finished cells; a later run computes only the missing ones. Default: cells are not kept.
        selection_metric: metric for the selection of hyper-parameters. Default: the metric of each system. Given
            rankers keep their own metric and convention.
        selection_convention: convention of that metric: a name or a `Convention`. Default "standard".
        baseline: system that tables compare the others with. Default: the best by the first metric.
        slice_by: also compare in slices of the test queries: a metadata column (``"device"``), ``"head:COLUMN"`` or
            ``"head:documents"`` for head and tail queries, as for `toprank.compare`. Tables are read with this column.
        n_folds: number of parts into which unsplit data are divided. Default 5.
        split_seed: seed of that split.
        save_models: also keep the fitted rankers, for `Results.ranker`.
        threads: number of threads; results do not depend on it.

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
        cache_dir: str | os.PathLike[str] | None = None,
        selection_metric: str | None = None,
        selection_convention: str | Convention = "standard",
        baseline: str | None = None,
        slice_by: str | None = None,
        n_folds: int = 5,
        split_seed: int = 0,
        save_models: bool = False,
        threads: int | None = None,
    ) -> None:
        self.entries = tuple(
            entry.with_selection_rule(selection_metric, selection_convention) for entry in entries_of(systems)
        )
        self.measures = parse_all(metrics)
        self.conventions = _conventions(conventions)
        self.seeds = None if seeds is None else _seeds(seeds)
        self.selection_metric = selection_metric
        if selection_metric is not None:
            parse(selection_metric)
        self.selection_convention = _convention(selection_convention)
        names = [entry.name for entry in self.entries]
        if baseline is not None and baseline not in names:
            raise UnknownNameError("system in this experiment", baseline, names)
        self.baseline = baseline
        if slice_by is not None and (not isinstance(slice_by, str) or not slice_by):
            raise DataError(f"slice_by is {slice_by!r}, but must be the name of a metadata column.")
        self.slice_by = slice_by
        self.n_folds, self.split_seed, self.save_models = n_folds, split_seed, save_models
        self.threads = available_threads(threads)
        self.cache_dir = None if cache_dir is None else Path(cache_dir)
        if self.cache_dir is not None and self.cache_dir.exists() and not self.cache_dir.is_dir():
            raise FileError(f"cache_dir {self.cache_dir} is a file. Give a folder.")
        self.datasets = read_datasets(datasets, n_folds, split_seed, slice_by)

    def run(self, verbose: bool | None = None) -> Results:
        """Compute the cells that are not cached yet, and evaluate all cells.

        A system that fails on a fold is reported in `Results.failures`; the others continue.

        Args:
            verbose: report progress and the remaining time on standard error. Default: on terminals and in notebooks.

        Raises:
            KeyboardInterrupt: on Ctrl-C, with instructions for resuming; finished cells stay in `cache_dir`.
        """
        from toprank.experiment.running import run

        return run(self, verbose)

    def __repr__(self) -> str:
        data = ", ".join(f"{dataset.name} ({count_of(len(dataset.fold_names), 'fold')})" for dataset in self.datasets)
        return f"Experiment({data}; {', '.join(entry.name for entry in self.entries)})"


def _convention(given: str | Convention) -> Convention:
    """Return a convention; a custom one needs a distinct name, since tables and reports show it."""
    convention = Convention.from_name(given)
    if CONVENTIONS.get(convention.name, convention) != convention:
        raise DataError(f"'{convention.name}' is the name of a built-in convention. Give your convention another name.")
    return convention


def _conventions(given: Any) -> dict[str, Convention]:
    if isinstance(given, str | Convention):
        given = [given]
    conventions: dict[str, Convention] = {}
    for convention in map(_convention, given):
        if convention.name in conventions:
            raise DataError(
                f"Two conventions are called '{convention.name}'. Give each convention once, with a distinct name."
            )
        conventions[convention.name] = convention
    if not conventions:
        raise DataError("conventions is empty. Name at least one, for example 'standard'.")
    return conventions


def _seeds(given: Iterable[int] | int) -> tuple[int, ...]:
    seeds = (given,) if isinstance(given, int) else tuple(given)
    if not seeds or not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds):
        raise DataError(f"seeds is {given!r}, but must be one or more non-negative integers.")
    if len(set(seeds)) < len(seeds):
        raise DataError(f"seeds contains duplicates: {', '.join(map(str, seeds))}.")
    return seeds
