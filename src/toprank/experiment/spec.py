"""`Experiment`: datasets as folds and systems as entries, checked before anything is computed."""

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
from toprank.experiment.datasets import read_datasets, refuse_twins
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
    """A fitted ranker and how it was chosen."""

    ranker: Ranker
    options: dict[str, Any]
    metric: str | None
    convention: str
    valid: float | None
    candidates: list[dict[str, Any]]


@dataclass(frozen=True)
class Entry:
    """A system by name with options to fix, searched over its grid; or an unfitted ranker, fitted as it is.

    Attributes:
        automatic: whether the ranker is `auto`, asked for by its name.
    """

    name: str
    system: System | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    ranker: Ranker | None = None
    automatic: bool = False

    def judged_by(self, metric: str | None, convention: str | Convention) -> Entry:
        """`auto` by its name chooses by the metric that the experiment chooses by; others are as they are."""
        if not self.automatic:
            return self
        own = {} if metric is None else {"metric": metric}
        usual = {"verbose": False, "convention": _called(convention), **own}
        return replace(self, ranker=AutoRanker(**{**usual, **self.options}))

    def unfitted(self) -> Any:
        """The ranker before any choice."""
        if self.system is None:
            return self.ranker
        return self.system.make(**self._own_options())

    def _own_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name != "threads"}

    @property
    def random(self) -> bool:
        """Whether a seed makes a difference: the ranker or its loss draws something, and the seed is not fixed."""
        parameters = self.unfitted().get_params(deep=False)
        if "seed" in self.options:
            return False
        return "seed" in parameters or _draws(_loss(parameters))

    def seeds(self, asked: tuple[int, ...] | None) -> tuple[int | None, ...]:
        """The seeds of its cells: those asked for, else its own; one cell without a seed where nothing is random."""
        if not self.random:
            return (None,)
        if asked is not None:
            return asked
        parameters = self.unfitted().get_params(deep=False)
        own = parameters["seed"] if "seed" in parameters else _loss(parameters).seed
        return (own if isinstance(own, int) else None,)

    @property
    def portable(self) -> bool:
        """Whether another process can rebuild it: not what is defined in a script or a notebook."""
        try:
            return b"__main__" not in pickle.dumps(self)
        except Exception:  # noqa: BLE001 - pickling fails in as many ways as there are objects
            return False

    def describe(self) -> Any:
        """What the fitted ranker depends on, in plain terms; names and sources of the literature are not part of it."""
        if self.system is None:
            return described(self.ranker)
        system, options = self.system, self.system.plain_options(self._own_options())
        return {
            "ranker": system.ranker,
            "loss": system.loss,
            "options": described({**system.options, **options}),
            "fixed": sorted(options),
            # As pairs: of two equally good candidates the first wins, so the order counts.
            "grid": [[name, described(tuple(values))] for name, values in system.grid.items()],
            "refine": list(system.refine),
            "metric": system.metric,
            "exact_grid": system.exact_grid,
        }

    def choose(
        self, fold: Fold, metric: str | None, convention: str | Convention, seed: int | None, threads: int
    ) -> Chosen:
        """Fit on training, choose on validation data; a given ranker goes by its own metric and convention."""
        if self.system is None:
            return self._fit(fold, seed, threads)
        options = self._own_options()
        if seed is not None:
            options["seed"] = seed
        rest: dict[str, Any] = {"metric": metric, "convention": _called(convention), "threads": threads, **options}
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


def _called(convention: str | Convention) -> Any:
    """By its name where that tells all: a ranker with a convention of one's own inside cannot be saved."""
    rules = Convention.from_name(convention)
    return rules.name if CONVENTIONS.get(rules.name) == rules else rules


_UNTOLD = ("number", "name", "options", "value", "state", "seconds", "remark")


def _candidates(choice: SelectionResult) -> list[dict[str, Any]]:
    """A row for each trial that was judged: its hyper-parameters, or the candidate, and `valid`, the metric."""
    judged = [row for row in choice.trials if row["value"] is not None]
    several = len({row["name"] for row in judged}) > 1
    return [
        {
            **({"candidate": row["name"]} if several else {}),
            **row["options"],
            "valid": row["value"],
            **{name: value for name, value in row.items() if name not in _UNTOLD},
        }
        for row in judged
    ]


def entries_of(systems: Any) -> tuple[Entry, ...]:
    """The systems that were asked for, by distinct names."""
    if isinstance(systems, str | System):
        systems = [systems]
    if isinstance(systems, Mapping):
        entries = [_entry(str(name), what) for name, what in systems.items()]
    elif isinstance(systems, Iterable):
        entries = [_entry(None, what) for what in systems]
    else:
        raise DataError(f"systems must be names, or a mapping from names to systems, not {systems!r}.")
    if not entries:
        raise DataError("There is no system to run; name at least one, such as 'LambdaMART'.")
    refuse_twins("systems", entries)
    for entry in entries:
        entry.random  # noqa: B018 - unknown options are refused here, before any work
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
            raise DataError(f"{inner.name}: options go with the name of a system; give a ranker its options itself.")
        return replace(inner, options=dict(what[1]))
    if all(hasattr(what, method) for method in ("fit", "predict", "get_params")) and not isinstance(what, type):
        return Entry(name or str(getattr(what, "called", type(what).__name__)), ranker=what)
    raise DataError(
        f"{what!r} is not a system: give a name, a System, a pair (name, options), or an unfitted ranker such as "
        "LinearRanker(l2=0.1)."
    )


def _check_penalty(entry: Entry) -> None:
    """A penalty may be one number or several, which `System.make` leaves to the fit; text is neither."""
    given = entry.options.get("l2", 0.0)
    several = given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in several):
        raise DataError(f"{entry.name}: l2 must be a number, or several, not {given!r}.")


def _loss(parameters: Mapping[str, Any]) -> Any:
    """The loss of a ranker, where it is one of ours."""
    loss = parameters.get("loss")
    return losses.make(loss) if isinstance(loss, str) and loss in losses.names() else loss


def _draws(loss: Any) -> bool:
    """Whether a loss is random: it has a seed, and is not told to do without."""
    if not hasattr(loss, "seed"):
        return False
    return getattr(loss, "ties", "random") == "random" and getattr(loss, "gamma", "uniform") == "uniform"


class Experiment:
    """Datasets × systems × folds × seeds: hyper-parameters chosen on validation data, test data judged once.

    Args:
        datasets: a folder with LETOR folds, a data file or a `RankingData` (divided by query into `n_folds` parts:
            one to test, one to choose on, the rest to train), a list of `Fold`, or a mapping from names to these.
        systems: names, or a mapping from names to a name, a `System`, a pair (name, options to fix), or an unfitted
            ranker. Systems search their grid; a ranker is fitted as it is, with `valid=` the validation data.
            ``"auto"`` is an `AutoRanker`, which chooses anew in each fold; ``("auto", {"time_budget":
            60.0})`` gives it less time.
        metrics: what to report on the test data.
        conventions: the rules to report them under; one or several.
        seeds: seeds for the systems that draw anything, given rankers included; the others are computed once. None:
            each has its own (0 for a system by name), once.
        cache_dir: folder for finished cells; another run with it computes only missing cells. None: nothing is kept.
        selection_metric: metric to choose the hyper-parameters of systems by; None: each system's own. Given rankers
            keep their own metric and convention.
        selection_convention: the rules of that metric: a name or a `Convention`.
        baseline: the system that tables compare the others with; None: the best by the first metric.
        slice_by: also compare in slices of the test queries: a column that the data carry along (``"device"``),
            ``"head:COLUMN"`` or ``"head:documents"`` for head and tail queries, as for `toprank.compare`; of a table
            that is read here the column is carried.
        n_folds: number of parts, where data are divided here.
        split_seed: decides that division.
        save_models: keep the fitted rankers too, for `Results.ranker`.
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
        self.entries = tuple(entry.judged_by(selection_metric, selection_convention) for entry in entries_of(systems))
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
            raise DataError(f"slice_by must be the name of a column that the data carry, not {slice_by!r}.")
        self.slice_by = slice_by
        self.n_folds, self.split_seed, self.save_models = n_folds, split_seed, save_models
        self.threads = available_threads(threads)
        self.cache_dir = None if cache_dir is None else Path(cache_dir)
        if self.cache_dir is not None and self.cache_dir.exists() and not self.cache_dir.is_dir():
            raise FileError(f"{self.cache_dir} is a file; the results of an experiment need a folder.")
        self.datasets = read_datasets(datasets, n_folds, split_seed, slice_by)

    def run(self, verbose: bool | None = None) -> Results:
        """Compute what is not in the folder yet, and evaluate everything.

        Args:
            verbose: tell on standard error what is done and how long the rest will take; None: where a person watches,
                on a terminal or in a notebook.

        Raises:
            KeyboardInterrupt: on Ctrl-C, with a sentence on how to go on; finished cells stay in the folder.

        A system that fails on a fold is told in `Results.failures`, and the others go on.
        """
        from toprank.experiment.running import run

        return run(self, verbose)

    def __repr__(self) -> str:
        data = ", ".join(f"{dataset.name} ({count_of(len(dataset.fold_names), 'fold')})" for dataset in self.datasets)
        return f"Experiment({data}; {', '.join(entry.name for entry in self.entries)})"


def _convention(given: str | Convention) -> Convention:
    """By name or as it is; tables and reports name a convention, so one of one's own needs a name of its own."""
    convention = Convention.from_name(given)
    if CONVENTIONS.get(convention.name, convention) != convention:
        raise DataError(f"There is another convention called '{convention.name}'; give yours a name of its own.")
    return convention


def _conventions(given: Any) -> dict[str, Convention]:
    if isinstance(given, str | Convention):
        given = [given]
    conventions: dict[str, Convention] = {}
    for convention in map(_convention, given):
        if convention.name in conventions:
            raise DataError(f"Two conventions are called '{convention.name}'; give each once, and each its own name.")
        conventions[convention.name] = convention
    if not conventions:
        raise DataError("No convention is named; ask for at least one, for example 'standard'.")
    return conventions


def _seeds(given: Iterable[int] | int) -> tuple[int, ...]:
    seeds = (given,) if isinstance(given, int) else tuple(given)
    if not seeds or not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds):
        raise DataError(f"seeds must be one or more whole numbers of 0 or more, not {given!r}.")
    if len(set(seeds)) < len(seeds):
        raise DataError(f"A seed is given twice: {', '.join(map(str, seeds))}.")
    return seeds
