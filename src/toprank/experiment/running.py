"""Execution of an experiment: look up cached cells, compute the others, evaluate, and report progress."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.folds import Fold
from toprank.data.slices import Sliceable, pooled_slices
from toprank.display.progress import FILE_INTERVAL, ProgressLine
from toprank.errors import DataError, join_parts
from toprank.evaluation.result import Evaluation
from toprank.evaluation.scores import evaluate
from toprank.experiment.datasets import Dataset
from toprank.experiment.provenance import described, experiment_key, fold_facts, key_of, provenance_of
from toprank.experiment.results import Results
from toprank.experiment.spec import Entry, Experiment
from toprank.experiment.store import Cell, CellStore, Failure
from toprank.experiment.tables import ResultBlock, table_of
from toprank.experiment.training import Outcome, Task, blind, compute_here, compute_in_workers, write_copies
from toprank.metrics.parsing import parse


class Progress:
    """Progress line on standard error, replaced on terminals and in notebooks, otherwise written at intervals.

    The remaining time is estimated from the mean time per cell of each system so far, or of all systems if it has no
    finished cell. The first cell of a worker includes the start of the process and is used only as a last resort.
    """

    def __init__(self, planned: Counter[str], workers: int, verbose: bool | None) -> None:
        self._left, self._total, self._workers = planned.copy(), planned.total(), workers
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._starts: Counter[str] = Counter()
        """Number of cells of a system that were the first cell of a worker."""
        self._cached = self._failed = 0
        self._tell = ProgressLine(FILE_INTERVAL, over=True)
        self._tell.rest()
        self._shown = self._tell.watched if verbose is None else verbose
        self._place = ""
        """System, dataset and fold of the last cell."""

    def cached(self, system: str) -> None:
        """Count a cached cell."""
        self._left[system] -= 1
        self._cached += 1

    def finished(self, system: str, place: str, seconds: float, failed: bool) -> None:
        """Count a computed cell and write the progress line."""
        self._left[system] -= 1
        self._failed += failed
        self._seconds[system].append(seconds)
        self._starts[system] += sum(map(len, self._seconds.values())) <= self._workers
        self._place = place
        self.tick()

    def time_left(self) -> float | None:
        """Return the estimated remaining seconds; None before the first cell is finished."""
        counted = {system: of[self._starts[system] :] or of for system, of in self._seconds.items()}
        known = {system: sum(of) / len(of) for system, of in counted.items()}
        if not known:
            return None
        usual = sum(map(sum, counted.values())) / sum(map(len, counted.values()))
        return sum(count * known.get(system, usual) for system, count in self._left.items()) / self._workers

    def tick(self) -> None:
        """Write the progress line, unless the last one is recent."""
        if self._shown:
            self._tell(self.line())

    def line(self) -> str:
        """Return the progress line."""
        done = self._total - self._left.total()
        parts = [f"{done} of {self._total} cells"]
        parts += [f"{self._cached} cached"] if self._cached else []
        parts += [f"{self._failed} failed"] if self._failed else []
        left = self.time_left()
        parts += [f"about {duration(left)} left"] if left is not None and self._left.total() else []
        parts += [self._place] if self._place else []
        return ", ".join(parts)

    def close(self, ended: bool) -> None:
        """Clear the line, or write a final one if the experiment has ended."""
        if self._shown and ended:
            self._place = ""
            self._tell(f"{self.line()}.", last=True)
        elif self._shown:
            self._tell.clear()


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(3), duration(75), duration(7300)
    ('3 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@dataclass
class _Place:
    """A fold during the run: its test data for the evaluation, and its cells.

    Attributes:
        missing: cells that are not computed yet, by key.
        slices: slice of each test query, if requested.
    """

    number: int
    dataset: str
    facts: dict[str, Any]
    test: RankingData
    keys: dict[tuple[str, int | None], str] = field(default_factory=dict)
    missing: dict[str, tuple[Entry, int | None]] = field(default_factory=dict)
    slices: list[str] | None = None

    @property
    def name(self) -> str:
        return str(self.facts["name"])


def run(experiment: Experiment, verbose: bool | None) -> Results:
    """Run the cells of an experiment that are not cached, and evaluate all cells."""
    kept = experiment.cache_dir is not None
    folder = experiment.cache_dir or Path(tempfile.mkdtemp(prefix="toprank-experiment-"))
    results = None
    try:
        results = _Run(experiment, CellStore(folder), verbose).results()
        if kept:
            results.save(CellStore(folder).results_of(experiment_key(results.provenance)))
            results.save(CellStore(folder).results)
    finally:
        if not kept and results is None:
            shutil.rmtree(folder, ignore_errors=True)
        elif not kept:  # keep the scores as long as the results exist
            weakref.finalize(results, shutil.rmtree, folder, True)
    return results


class _Run:
    """One run of an experiment with its cell store."""

    def __init__(self, experiment: Experiment, store: CellStore, verbose: bool | None) -> None:
        self.experiment, self.store = experiment, store
        self.seeds = {entry.name: entry.seeds(experiment.seeds) for entry in experiment.entries}
        self.definitions = {entry.name: entry.describe() for entry in experiment.entries}
        self.rule = described(experiment.selection_convention)
        n_folds = sum(len(dataset.fold_names) for dataset in experiment.datasets)
        planned = Counter({name: n_folds * len(seeds) for name, seeds in self.seeds.items()})
        # Threads per worker depend on the experiment only, not on which cells are cached.
        self.workers = min(experiment.threads, planned.total())
        self.threads = experiment.threads // self.workers
        self.progress = Progress(planned, self.workers, verbose)
        self.places: list[_Place] = []
        self.errors: dict[str, str] = {}
        self.scratch = Path()

    def results(self) -> Results:
        self.store.prepare()
        scratch = tempfile.TemporaryDirectory(prefix="toprank-folds-", ignore_cleanup_errors=True)
        self.scratch = Path(scratch.name)
        ended = False
        try:
            self._compute()
            ended = True
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._interrupt_message()) from None
        finally:
            self.progress.close(ended)
            scratch.cleanup()
        return self._evaluate()

    # ---- computing ----

    def _compute(self) -> None:
        """Compute fold by fold; each fold is read when needed and released afterwards."""
        seen: set[str] = set()
        places = (
            (dataset, number) for dataset in self.experiment.datasets for number in range(len(dataset.fold_names))
        )
        tasks = (task for dataset, number in places for task in self._tasks_of(dataset, number, seen))
        tick, here = self.progress.tick, self.workers == 1
        tick()
        finished = compute_here(tasks, tick) if here else compute_in_workers(tasks, self.workers, self.scratch, tick)
        with closing(finished):
            for task, outcome in finished:
                self._note(task, outcome)

    def _note(self, task: Task, outcome: Outcome) -> None:
        place = next(place for place in self.places if task.key in place.missing)
        del place.missing[task.key]
        if outcome.error is not None:
            self.errors[task.key] = outcome.error
        where = f"{task.entry.name} on {place.dataset} {place.name}"
        self.progress.finished(task.entry.name, where, outcome.seconds, outcome.error is not None)
        if not place.missing:
            shutil.rmtree(self._copies(place), ignore_errors=True)

    def _place(self, dataset: Dataset, fold: Fold, seen: set[str]) -> _Place:
        """Look up every cell of a fold; identical systems with different names share one cell."""
        prints = {name: part.fingerprint for name, part in fold.parts.items()}
        judged = fold.test.without_features().replace(source_rows=None)  # the evaluation needs no features
        place = _Place(len(self.places), dataset.name, fold_facts(fold, prints), judged)
        self.store.write_test(prints["test"], place.test)
        experiment = self.experiment
        chosen_by = (
            None if experiment.selection_metric is None else str(parse(experiment.selection_metric))
        )  # canonical spelling
        for entry in experiment.entries:
            for seed in self.seeds[entry.name]:
                rules = (None, None) if entry.system is None else (chosen_by, self.rule)
                key = key_of(prints, self.definitions[entry.name], seed, *rules)
                place.keys[entry.name, seed] = key
                if key in seen or self.store.read(key, experiment.save_models) is not None:
                    self.progress.cached(entry.name)
                else:
                    place.missing[key] = entry, seed
                seen.add(key)
        if experiment.slice_by is not None:
            Sliceable.from_data(place.test).column(experiment.slice_by)  # raises before any computation
        self._check_evaluable(place)
        return place

    def _check_evaluable(self, place: _Place) -> None:
        """Fail all cells of a fold to which no convention applies; inapplicable conventions are reported later."""
        values, reasons = self._evaluated(place, np.zeros(place.test.n_documents))
        if values:
            return
        why = join_parts(
            "This fold cannot be evaluated, because none of the conventions applies.",
            *(join_parts(f"{name}:", problem) for name, problem in reasons.items()),
        )
        for key, (entry, _) in place.missing.items():
            self.errors[key] = why
            self.progress.finished(entry.name, f"{entry.name} on {place.dataset} {place.name}", 0.0, True)
        place.missing.clear()

    def _tasks_of(self, dataset: Dataset, number: int, seen: set[str]) -> list[Task]:
        """Return the tasks of one fold; for worker processes, the fold is written to disk instead of kept in memory."""
        fold = dataset.folds[number]
        place = self._place(dataset, fold, seen)
        self.places.append(place)
        fold, experiment, apart = blind(fold), self.experiment, self.workers > 1
        if apart and any(entry.portable for entry, _ in place.missing.values()):
            write_copies(fold, self._copies(place))
        given = (
            experiment.selection_metric,
            experiment.selection_convention,
            self.threads,
            experiment.save_models,
            self.store.folder.resolve(),
        )
        return [
            Task(key, entry, seed, *given, self._copies(place) if apart and entry.portable else fold)
            for key, (entry, seed) in place.missing.items()
        ]

    def _copies(self, place: _Place) -> Path:
        return self.scratch / str(place.number)

    def _interrupt_message(self) -> str:
        state = f"Stopped: {self.progress.line()}."
        if self.experiment.cache_dir is None:
            return f"{state} Nothing was kept. Run with cache_dir= to be able to resume."
        return f"{state} Finished cells are in {self.experiment.cache_dir}. Run the same experiment again to resume."

    # ---- evaluation ----

    def _evaluate(self) -> Results:
        """Evaluate all cells; test labels are used only here."""
        cells, failures, blocks, notes = list[Cell](), list[Failure](), list[ResultBlock](), dict[str, None]()
        slices = self._slices(notes)
        for place in self.places:
            for (system, seed), key in place.keys.items():
                where: dict[str, Any] = {"dataset": place.dataset, "fold": place.name, "system": system, "seed": seed}
                if key in self.errors:
                    failures.append(Failure(**where, error=self.errors[key]))
                    continue
                record = self.store.read(key, False)
                if record is None:
                    raise DataError(f"The cell {key} is missing from {self.store.folder}. Run the experiment again.")
                cells.append(Cell.from_dict(record | where | {"fingerprints": place.facts["fingerprints"]}))
                blocks += self._blocks(place, where, self.store.scores(key), notes)
        datasets = {
            dataset.name: {
                "source": dataset.source,
                "folds": [p.facts for p in self.places if p.dataset == dataset.name],
            }
            for dataset in self.experiment.datasets
        }
        drawn = dict.fromkeys(seed for seeds in self.seeds.values() for seed in seeds if seed is not None)
        seeds = self.experiment.seeds or tuple(drawn) or (0,)
        provenance = provenance_of(self.experiment, datasets, seeds, list(notes))
        if self.experiment.slice_by is not None:
            provenance["slices"] = {"by": self.experiment.slice_by, "of": slices}
        return Results(table_of(blocks), cells, failures, provenance, self.store.folder)

    def _slices(self, notes: dict[str, None]) -> dict[str, dict[str, Any]]:
        """Return dataset → slices over the queries of all its folds, and set the slices of each fold."""
        by_dataset: dict[str, dict[str, Any]] = {}
        for dataset in self.experiment.datasets if self.experiment.slice_by is not None else ():
            places = [place for place in self.places if place.dataset == dataset.name]
            try:
                slices = pooled_slices(
                    [Sliceable.from_data(place.test) for place in places], str(self.experiment.slice_by)
                )
            except DataError as problem:
                notes[f"{dataset.name} is not compared in slices: {problem.args[0]}"] = None
                continue
            ends = np.cumsum([place.test.n_queries for place in places])[:-1]
            for place, codes in zip(places, np.split(slices.codes, ends), strict=True):
                place.slices = [slices.names[code] for code in codes.tolist()]
            by_dataset[dataset.name] = {"names": list(slices.names), "rule": slices.rule}
        return by_dataset

    def _blocks(
        self, place: _Place, where: dict[str, Any], scores: Any, notes: dict[str, None]
    ) -> Iterator[ResultBlock]:
        qids = [str(qid) for qid in place.test.qids.tolist()]
        sizes = place.test.queries.sizes
        relevant = place.test.queries.sum(place.test.labels > 0)
        number = {qid: i for i, qid in enumerate(qids)}
        evaluations, reasons = self._evaluated(place, scores)
        notes.update({f"{name} does not apply to {place.dataset}: {why}": None for name, why in reasons.items()})
        for name, evaluation in evaluations.items():
            # Rules for unjudged documents may have dropped queries.
            rows = [number[str(qid)] for qid in evaluation.qids.tolist()]
            for metric, measure in self.experiment.measures.items():
                whole = np.full(len(qids), np.nan)
                whole[rows] = evaluation.per_query[str(measure)]
                about: dict[str, Any] = {"qids": qids, "documents": sizes, "relevant": relevant, "slices": place.slices}
                yield ResultBlock(**where, convention=name, metric=metric, **about, values=whole)

    def _evaluated(self, place: _Place, scores: FloatArray) -> tuple[dict[str, Evaluation], dict[str, str]]:
        """Evaluate a fold under every convention; return the evaluations, and the reasons for inapplicable ones."""
        evaluations: dict[str, Evaluation] = {}
        reasons: dict[str, str] = {}
        measures, threads = list(self.experiment.measures.values()), self.experiment.threads
        for name, convention in self.experiment.conventions.items():
            try:
                evaluations[name] = evaluate(
                    scores,
                    place.test,
                    measures,
                    convention=convention,
                    max_grade=place.facts["max_grade"] or None,
                    order="data",
                    threads=threads,
                )
            except DataError as problem:
                reasons[name] = problem.args[0]
        return evaluations, reasons
