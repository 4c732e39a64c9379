"""The loop of an experiment: look up, compute what is missing, judge; and how far it is."""

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
from toprank.display.progress import NOW_AND_THEN, ProgressLine
from toprank.errors import DataError, join_parts
from toprank.evaluation.result import Evaluation
from toprank.evaluation.scores import evaluate
from toprank.experiment.datasets import Dataset
from toprank.experiment.provenance import described, experiment_key, fold_facts, key_of, provenance_of
from toprank.experiment.results import Results
from toprank.experiment.spec import Entry, Experiment
from toprank.experiment.store import Cell, CellStore, Failure
from toprank.experiment.tables import ResultBlock, table_of
from toprank.experiment.training import Outcome, Task, blind, compute_apart, compute_here, write_copies
from toprank.metrics.parsing import parse


class Progress:
    """A line on standard error that is written over where a person watches, else one now and then.

    The time left is taken from the mean time of each system's cells so far; systems that have none yet count as the
    mean of all. The first cell of a worker counts for a system that has no other: the worker's start is in it.
    """

    def __init__(self, planned: Counter[str], workers: int, verbose: bool | None) -> None:
        self._left, self._total, self._workers = planned.copy(), planned.total(), workers
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._starts: Counter[str] = Counter()
        """How many of the first cells of a system were the first of a worker."""
        self._cached = self._failed = 0
        self._tell = ProgressLine(NOW_AND_THEN, over=True)
        self._tell.rest()
        self._shown = self._tell.watched if verbose is None else verbose
        self._place = ""
        """The system, dataset and fold of the last cell."""

    def cached(self, system: str) -> None:
        """A cell was there already."""
        self._left[system] -= 1
        self._cached += 1

    def finished(self, system: str, place: str, seconds: float, failed: bool) -> None:
        """A cell was computed."""
        self._left[system] -= 1
        self._failed += failed
        self._seconds[system].append(seconds)
        self._starts[system] += sum(map(len, self._seconds.values())) <= self._workers
        self._place = place
        self.tick()

    def time_left(self) -> float | None:
        """Seconds that the rest will take; None before anything is known."""
        counted = {system: of[self._starts[system] :] or of for system, of in self._seconds.items()}
        known = {system: sum(of) / len(of) for system, of in counted.items()}
        if not known:
            return None
        usual = sum(map(sum, counted.values())) / sum(map(len, counted.values()))
        return sum(count * known.get(system, usual) for system, count in self._left.items()) / self._workers

    def tick(self) -> None:
        """Print the state, if it is time to."""
        if self._shown:
            self._tell(self.line())

    def line(self) -> str:
        """The state in one line."""
        done = self._total - self._left.total()
        parts = [f"{done} of {self._total} cells"]
        parts += [f"{self._cached} from the folder"] if self._cached else []
        parts += [f"{self._failed} failed"] if self._failed else []
        left = self.time_left()
        parts += [f"about {duration(left)} left"] if left is not None and self._left.total() else []
        parts += [self._place] if self._place else []
        return ", ".join(parts)

    def close(self, ended: bool) -> None:
        """Clear the line; at the `ended` experiment, leave the sum."""
        if self._shown and ended:
            self._place = ""
            self._tell(f"{self.line()}.", last=True)
        elif self._shown:
            self._tell.clear()


def duration(seconds: float) -> str:
    """A time that people can read.

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
    """A fold while it is worked on: what judging needs of it, and its cells.

    Attributes:
        slices: the slice of each test query, where slices were asked for.
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
    """Run the cells of an experiment that are not in its folder yet, and judge all of them."""
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
        elif not kept:  # scores live as long as the results that know them
            weakref.finalize(results, shutil.rmtree, folder, True)
    return results


class _Run:
    """One run of an experiment over its folder."""

    def __init__(self, experiment: Experiment, store: CellStore, verbose: bool | None) -> None:
        self.experiment, self.store = experiment, store
        self.seeds = {entry.name: entry.seeds(experiment.seeds) for entry in experiment.entries}
        self.definitions = {entry.name: entry.describe() for entry in experiment.entries}
        self.rule = described(experiment.selection_convention)
        n_folds = sum(len(dataset.fold_names) for dataset in experiment.datasets)
        planned = Counter({name: n_folds * len(seeds) for name, seeds in self.seeds.items()})
        # Shares of the cores depend on what is asked for, never on what happens to be finished already.
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
            raise KeyboardInterrupt(self._farewell()) from None
        finally:
            self.progress.close(ended)
            scratch.cleanup()
        return self._judged()

    # ---- computing ----

    def _compute(self) -> None:
        """Fold by fold; a fold is read when its turn comes, and not kept."""
        seen: set[str] = set()
        places = (
            (dataset, number) for dataset in self.experiment.datasets for number in range(len(dataset.fold_names))
        )
        tasks = (task for dataset, number in places for task in self._tasks_of(dataset, number, seen))
        tick, here = self.progress.tick, self.workers == 1
        tick()
        finished = compute_here(tasks, tick) if here else compute_apart(tasks, self.workers, self.scratch, tick)
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
        """Look up every cell of a fold; two names for one thing make one cell."""
        prints = {name: part.fingerprint for name, part in fold.parts.items()}
        judged = fold.test.without_features().replace(source_rows=None)  # what judging needs, in no more memory
        place = _Place(len(self.places), dataset.name, fold_facts(fold, prints), judged)
        self.store.write_test(prints["test"], place.test)
        experiment = self.experiment
        chosen_by = (
            None if experiment.selection_metric is None else str(parse(experiment.selection_metric))
        )  # under any spelling
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
            Sliceable.from_data(place.test).column(experiment.slice_by)  # refused before anything is computed
        self._refuse_unjudgeable(place)
        return place

    def _refuse_unjudgeable(self, place: _Place) -> None:
        """Compute nothing that no convention could judge; one that applies is enough, and the others are told later."""
        values, reasons = self._evaluated(place, np.zeros(place.test.n_documents))
        if values:
            return
        why = join_parts(
            "Nothing can be judged here, since no convention that was asked for applies.",
            *(join_parts(f"{name}:", problem) for name, problem in reasons.items()),
        )
        for key, (entry, _) in place.missing.items():
            self.errors[key] = why
            self.progress.finished(entry.name, f"{entry.name} on {place.dataset} {place.name}", 0.0, True)
        place.missing.clear()

    def _tasks_of(self, dataset: Dataset, number: int, seen: set[str]) -> list[Task]:
        """The tasks of one fold; where other processes compute them, the fold is not held in memory here."""
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

    def _farewell(self) -> str:
        state = f"Stopped: {self.progress.line()}."
        if self.experiment.cache_dir is None:
            return f"{state} Nothing was kept, since no folder was given; with one, the same run goes on from there."
        return f"{state} Finished cells are in {self.experiment.cache_dir}; the same run there goes on from them."

    # ---- judging ----

    def _judged(self) -> Results:
        """Now, and only now, the scores of the systems meet the test labels."""
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
                    raise DataError(f"The cell {key} has vanished from {self.store.folder}; run the experiment again.")
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
        """Dataset → its slices, found over the queries of all its folds; each fold is told its own."""
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
            # Rules for unjudged documents may drop queries.
            rows = [number[str(qid)] for qid in evaluation.qids.tolist()]
            for metric, measure in self.experiment.measures.items():
                whole = np.full(len(qids), np.nan)
                whole[rows] = evaluation.per_query[str(measure)]
                about: dict[str, Any] = {"qids": qids, "documents": sizes, "relevant": relevant, "slices": place.slices}
                yield ResultBlock(**where, convention=name, metric=metric, **about, values=whole)

    def _evaluated(self, place: _Place, scores: FloatArray) -> tuple[dict[str, Evaluation], dict[str, str]]:
        """The fold's test data under every convention that applies to them, and the reason where one does not."""
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
