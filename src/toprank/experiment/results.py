"""Results of an experiment: per-query values with provenance, and the statistics derived from them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.slices import Slices
from toprank.display.pictures import Picture, strips
from toprank.display.tables import DisplayMixin, Kind, Part
from toprank.errors import DataError, FileError, UnknownNameError, count_of
from toprank.evaluation import Comparison, Difference, compare_values
from toprank.evaluation.differences import SliceDifference
from toprank.evaluation.result import ByMetric
from toprank.evaluation.values import Values
from toprank.experiment.store import Cell, CellStore, Failure
from toprank.experiment.tables import blocks_of_table, dictionary, parts_of, pooled_queries, read_table, write_table
from toprank.significance.two_level import crossed_random_effects_interval

Name = str | None
"""Name of a dataset, metric or convention; None means the only one, or the first."""


class Results(DisplayMixin):
    """Results of an experiment; `str` returns the tables.

    Two kinds of means are reported separately. The **mean of fold means** averages over the queries of each fold, then
    over folds, as in the tables of papers (`fold_means`). The **pooled mean** treats the queries of all folds as one
    sample, as required by tests (`pooled`, `compare`). With several seeds, the value of a query is the mean over seeds.

    Attributes:
        per_query: tidy Arrow table with the columns dataset, fold, qid, documents (of the query), relevant (documents
            with a grade above 0), system, seed, convention, metric, value and, if requested, slice. The value is null
            for queries that are left out.
        cells: selection and fit of each system on each fold.
        failures: cells that could not be computed, with the reason.
        provenance: versions, machine, command, data, systems, conventions; `save` stores it with the values.
        cache_dir: folder with scores and models; None if unknown.
        datasets, metrics, conventions: names, metrics as spelled by the caller.
        systems: names of the systems, including failed ones.
        seeds: all seeds that were used.
        n_seeds: maximum number of seeds of a system.
        inapplicable: reasons why a convention does not apply to a dataset.
    """

    def __init__(
        self,
        per_query: Any,
        cells: Iterable[Cell],
        failures: Iterable[Failure],
        provenance: Mapping[str, Any],
        cache_dir: Path | None = None,
    ) -> None:
        self.per_query, self.cells, self.failures = per_query, list(cells), list(failures)
        self.provenance, self.cache_dir = dict(provenance), cache_dir
        parts = ("datasets", "systems", "metrics", "conventions")
        names: list[tuple[str, ...]] = [tuple(provenance[part]) for part in parts]
        self.datasets, self.systems, self.metrics, self.conventions = names
        self.seeds, self.inapplicable = tuple(provenance["seeds"]), tuple(provenance["notes"])
        cells_of = Counter(system for system, _ in {(cell.system, cell.seed) for cell in self.cells})
        self.n_seeds = max(cells_of.values(), default=1)
        self._query_values: dict[tuple[str, str], Values] = {}
        self._comparisons: dict[Any, Comparison] = {}

    # ---- files ----

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything except scores and models to one Parquet file."""
        cells, failures = [cell.to_dict() for cell in self.cells], [asdict(failure) for failure in self.failures]
        here = Path(path).resolve().parent
        folder = None if self.cache_dir is None else os.path.relpath(self.cache_dir.resolve(), here)
        write_table(self.per_query, {**self.provenance, "cells": cells, "failures": failures, "folder": folder}, path)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Results:
        """Read a Parquet file that `save` wrote, or the results of the last run in a cache folder.

        If several experiments share a cache folder, each also has its own file there: ``results-KEY.parquet``.
        """
        file = CellStore(Path(path)).results if Path(path).is_dir() else Path(path)
        table, provenance = read_table(file)
        cells = [Cell.from_dict(values) for values in provenance.pop("cells")]
        failures = [Failure(**values) for values in provenance.pop("failures")]
        noted = provenance.pop("folder")
        beside = file.parent if (file.parent / "cells").is_dir() else None  # the folder may have been moved
        cache_dir = beside if beside is not None else file.parent / noted if noted else None
        return cls(table, cells, failures, provenance, cache_dir)

    def folds(self, dataset: str | None = None) -> tuple[str, ...]:
        """Return the names of the folds of a dataset."""
        return tuple(fold["name"] for fold in self.provenance["datasets"][self._dataset(dataset)]["folds"])

    # ---- cells ----

    def cell(self, dataset: str | None, fold: str, system: str, seed: int | None = None) -> Cell:
        """Return a finished cell; without a seed, the first. Deterministic systems have one cell for all seeds."""
        dataset = self._dataset(dataset)
        self._check("system", system, self.systems)
        self._check("fold", fold, self.folds(dataset))
        if seed is not None:
            self._check("seed", str(seed), map(str, self.seeds))
        place = (dataset, fold, system)
        for cell in self.cells:
            if (cell.dataset, cell.fold, cell.system) == place and (seed is None or cell.seed in (None, seed)):
                return cell
        for failure in self.failures:
            if (failure.dataset, failure.fold, failure.system) == place:
                raise DataError(f"{system} failed on {dataset}, {fold}: {failure.error}")
        raise DataError(f"{system} has no cell on {dataset}, {fold}.")

    def scores(self, dataset: str | None, fold: str, system: str, seed: int | None = None) -> FloatArray:
        """Return the scores of the test documents of a fold, from the cache folder."""
        return self._store.scores(self.cell(dataset, fold, system, seed).key)

    def relevance(self, dataset: str | None, fold: str, system: str, seed: int | None = None) -> FloatArray | None:
        """Return P(grade ≥ 1) of the test documents of a fold; None if the ranker has no probabilities."""
        return self._store.relevance(self.cell(dataset, fold, system, seed).key)

    def test(self, dataset: str | None, fold: str) -> RankingData:
        """Return labels, queries and ids (no features) of the test documents of a fold, from the cache folder."""
        dataset = self._dataset(dataset)
        self._check("fold", fold, self.folds(dataset))
        [facts] = [entry for entry in self.provenance["datasets"][dataset]["folds"] if entry["name"] == fold]
        return self._store.test(facts["fingerprints"]["test"])

    def ranker(self, dataset: str | None, fold: str, system: str, seed: int | None = None) -> Any:
        """Return the fitted ranker of a cell, if models were saved."""
        from toprank.rankers.model_files import load

        path = self._store.model(self.cell(dataset, fold, system, seed).key)
        if not path.exists():
            raise FileError("The fitted ranker was not saved. Run the experiment with cache_dir= and save_models=True.")
        return load(path)

    @property
    def _store(self) -> CellStore:
        if self.cache_dir is None:
            raise FileError("Scores are not available. Run the experiment with cache_dir=.")
        return CellStore(self.cache_dir)

    # ---- numbers ----

    @cached_property
    def _blocks(self) -> dict[tuple[str, str, str, str, str, int | None], FloatArray]:
        return blocks_of_table(self.per_query)

    def query_values(self, convention: Name = None, dataset: Name = None) -> Values:
        """Return the per-query values of all folds in order: means over the seeds.

        NaN marks queries that are left out. Systems that failed on any fold are left out.
        """
        dataset, convention = self._dataset(dataset), self._convention(convention)
        if (dataset, convention) not in self._query_values:
            by_metric = {metric: self.values(metric, convention, dataset) for metric in self.metrics}
            systems = tuple(by_metric[self.metrics[0]])
            pooled = [[np.concatenate([*by_metric[name][system].values()]) for name in by_metric] for system in systems]
            table = np.array(pooled) if systems else np.empty((0, len(self.metrics), 0))
            self._query_values[dataset, convention] = Values(
                systems=systems,
                metrics=self.metrics,
                table=table,
                lower_is_better=frozenset(
                    name for name, of in self.provenance["metrics"].items() if not of["higher_is_better"]
                ),
                convention=convention,
            )
        return self._query_values[dataset, convention]

    def values(
        self, metric: Name = None, convention: Name = None, dataset: Name = None
    ) -> dict[str, dict[str, FloatArray]]:
        """Return system → fold → value of each test query, the mean over seeds; NaN for queries that are left out.

        Systems that failed on any fold are left out.
        """
        by_seed = self.seed_values(metric, convention, dataset)
        return {system: {fold: of.mean(axis=0) for fold, of in folds.items()} for system, folds in by_seed.items()}

    def seed_values(
        self, metric: Name = None, convention: Name = None, dataset: Name = None
    ) -> dict[str, dict[str, FloatArray]]:
        """Return system → fold → values (seeds, queries); see `values`."""
        dataset, convention, metric = self._dataset(dataset), self._convention(convention), self._metric(metric)
        failed = {failure.system for failure in self.failures if failure.dataset == dataset}
        by_system: dict[str, dict[str, FloatArray]] = {}
        for system in self.systems:
            by_fold = {}
            for fold in self.folds(dataset):
                places = [(dataset, convention, metric, system, fold, seed) for seed in (None, *self.seeds)]
                if of_seeds := [self._blocks[place] for place in places if place in self._blocks]:
                    by_fold[fold] = np.array(of_seeds)
            if system not in failed and len(by_fold) == len(self.folds(dataset)):
                by_system[system] = by_fold
        return by_system

    def by_fold(
        self, metric: Name = None, convention: Name = None, dataset: Name = None
    ) -> dict[str, dict[str, float]]:
        """Return system → fold → mean over the evaluated queries of the fold."""
        by_system = self.values(metric, convention, dataset)
        return {system: {fold: _mean(of) for fold, of in folds.items()} for system, folds in by_system.items()}

    def fold_means(self, metric: Name = None, convention: Name = None, dataset: Name = None) -> dict[str, float]:
        """Return system → mean of fold means, as in the tables of papers."""
        means = self.by_fold(metric, convention, dataset)
        return {system: _mean(np.array(list(of.values()))) for system, of in means.items()}

    def pooled_values(
        self, metric: Name = None, convention: Name = None, dataset: Name = None
    ) -> dict[str, FloatArray]:
        """Return system → value of each query, all folds in order."""
        values, metric = self.query_values(convention, dataset), self._metric(metric)
        return {system: values.of(system, metric) for system in values.systems}

    def pooled(self, metric: Name = None, convention: Name = None, dataset: Name = None) -> dict[str, float]:
        """Return system → mean over the pooled queries of all folds."""
        return {system: _mean(values) for system, values in self.pooled_values(metric, convention, dataset).items()}

    def slices(self, dataset: str | None = None) -> Slices | None:
        """Return the slices of the pooled queries of a dataset; None if none were requested."""
        dataset, asked = self._dataset(dataset), self.provenance.get("slices")
        if asked is None or dataset not in asked["of"] or "slice" not in self.per_query.column_names:
            return None
        words = pooled_queries(self.per_query, dataset, self.folds(dataset)).column("slice").to_pylist()
        names = {name: code for code, name in enumerate(asked["of"][dataset]["names"])}
        codes = np.array([names[word] for word in words], dtype=np.int64)
        return Slices(asked["by"], tuple(names), codes, asked["of"][dataset]["rule"])

    def seed_std(self, metric: Name = None, convention: Name = None, dataset: Name = None) -> dict[str, float | None]:
        """Return system → standard deviation of the mean of fold means over seeds; None for a single run."""
        spread: dict[str, float | None] = {}
        for system, folds in self.seed_values(metric, convention, dataset).items():
            seeds = min(map(len, folds.values()))
            means = [_mean(np.array([_mean(of[seed]) for of in folds.values()])) for seed in range(seeds)]
            spread[system] = float(np.std(means, ddof=1)) if seeds > 1 else None
        return spread

    def by_slice(
        self, metric: Name = None, convention: Name = None, dataset: Name = None
    ) -> dict[str, dict[str, float]]:
        """Return system → slice → mean over its evaluated queries."""
        slices = self.slices(dataset)
        if slices is None:
            raise DataError("The experiment has no slices. Run it with slice_by=, the name of a column.")
        return {
            system: {name: _mean(values[slices.codes == code]) for code, name in enumerate(slices.names)}
            for system, values in self.pooled_values(metric, convention, dataset).items()
        }

    def compare(
        self,
        dataset: str | None = None,
        metrics: str | Iterable[str] | None = None,
        *,
        baseline: str | None = None,
        convention: str | None = None,
        **options: Any,
    ) -> Comparison:
        """Compare the systems on the pooled queries, and in the slices of the experiment.

        If a system was run with several seeds, the intervals account for the variance between seeds.

        Args:
            dataset: name of the dataset. Default: the only one.
            metrics: metrics to compare. Default: all.
            baseline: system to compare the others with. Default: all pairs are compared.
            convention: evaluation convention. Default: the first.
            **options: further options of `toprank.compare`; `slice_by` takes one value per query.
        """
        slice_by = options.pop("slice_by", None)
        dataset, convention = self._dataset(dataset), self._convention(convention)
        metrics = [metrics] if isinstance(metrics, str) else self.metrics if metrics is None else metrics
        names = [self._metric(metric) for metric in metrics]
        key = (dataset, tuple(names), baseline, convention, tuple(sorted(options.items())))
        if slice_by is None and key in self._comparisons:
            return self._comparisons[key]
        values = self.query_values(convention, dataset)
        comparison = compare_values(
            {system: {name: values.of(system, name) for name in names} for system in values.systems},
            convention=convention,
            baseline=baseline,
            lower_is_better=values.lower_is_better.intersection(names),
            slice_by=self.slices(dataset) if slice_by is None else slice_by,
            **options,
        )
        comparison = self._over_seeds(comparison, convention, dataset)
        if slice_by is None:
            self._comparisons[key] = comparison
        return comparison

    def _over_seeds(self, comparison: Comparison, convention: str, dataset: str) -> Comparison:
        """Replace the intervals of systems that were run with several seeds: they then hold for other seeds, too."""
        rows = {metric: self.seed_values(metric, convention, dataset) for metric in comparison.metrics}

        def over_seeds(difference: Difference, chosen: npt.NDArray[np.bool_] | None = None) -> Difference:
            a, b = (rows[difference.metric][name] for name in (difference.a, difference.b))
            if all(len(of) == 1 for system in (a, b) for of in system.values()):
                return difference
            tables = [a[fold] - b[fold] for fold in a]
            if chosen is not None:
                ends = np.cumsum([table.shape[1] for table in tables])[:-1]
                tables = [table[:, part] for table, part in zip(tables, np.split(chosen, ends), strict=True)]
            interval = crossed_random_effects_interval(tables, confidence=comparison.confidence)
            return replace(difference, interval=interval)

        def row_over_seeds(row: SliceDifference, slices: Slices) -> SliceDifference:
            if row.tested is None:
                return row
            return replace(row, tested=over_seeds(row.tested, slices.codes == slices.names.index(row.slice)))

        sliced = comparison.slices
        if sliced is not None:
            sliced = replace(
                sliced, differences=tuple(row_over_seeds(row, sliced.slices) for row in sliced.differences)
            )
        differences = tuple(map(over_seeds, comparison.differences))
        return replace(comparison, differences=differences, slices=sliced, n_seeds=self.n_seeds)

    # ---- output ----

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """Return the tidy table `per_query` as a pandas or polars frame, or an Arrow table."""
        from toprank.data.frames.arrow import as_frame

        return as_frame(self.per_query, kind)

    def plot(self, metric: str | None = None, convention: str | None = None, dataset: str | None = None) -> Picture:
        """Plot the mean of each system on each fold, and the mean over folds."""
        metric, dataset = self._metric(metric), self._dataset(dataset)
        rows = {name: list(of.values()) for name, of in self.by_fold(metric, convention, dataset).items()}
        name = f"{metric} on {count_of(len(self.folds(dataset)), 'fold')} of {dataset}"
        return strips(name, rows, self.fold_means(metric, convention, dataset), metric)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the per-query values as plain values for JSON."""
        return dictionary(self)

    def _parts(self) -> Sequence[Part]:
        return parts_of(self)

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"Results({', '.join(self.datasets)}; {', '.join(self.systems)}; {len(self.cells)} cells{failed})"

    # ---- default names ----

    def _dataset(self, name: str | None) -> str:
        if name is None and len(self.datasets) > 1:
            raise DataError(f"The results have several datasets. Name one of {', '.join(self.datasets)}.")
        return self._check("dataset", name or self.datasets[0], self.datasets)

    def _convention(self, name: str | None) -> str:
        return self._check("convention", name or self.conventions[0], self.conventions)

    def _metric(self, name: str | None) -> str:
        if name is None:
            return self.metrics[0]
        try:
            return str(ByMetric({metric: metric for metric in self.metrics})[name])
        except KeyError:
            raise UnknownNameError("metric in these results", name, self.metrics) from None

    @staticmethod
    def _check(kind: str, name: str, known: Iterable[str]) -> str:
        names = tuple(known)
        if name not in names:
            raise UnknownNameError(f"{kind} in these results", name, names)
        return name


def _mean(values: FloatArray) -> float:
    """Return the mean over values that are not NaN, summed in order; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
