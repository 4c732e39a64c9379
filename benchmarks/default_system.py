"""Which system ranks best untuned: what `toprank train DATA -o M` should do when nobody names one.

    TOPRANK_DATA=... python benchmarks/default_system.py [--sets MQ2008,OHSUMED] [--systems unasked,cs-RgList]
                                                         [--queries 500] [--folds 5] [--chosen] [--stopped]
                                                         [--processes 2] [--keep RESULTS.jsonl] [--minutes 10]

Every system as it stands: its defaults, no grid, no search, fitted on the training part of every fold and judged by the
NDCG@10 of the fold's *validation* part, of which it has seen nothing. Test parts are never read, so that they stay good
for other questions. LETOR sets have folds of their own; MSLR's training and validation slices together, and the example
that comes with LightGBM, are divided into five by query. A set with more training queries than `--queries` is
sub-sampled, by a hash of each query's id (seed 0).

Candidates are all systems but networks: those need PyTorch, which the plain installation has not; and "unasked", what
the command trains where there is enough to choose by: the first two of `auto`'s portfolio, blended by the evidence, on
held-out queries of the training part unless there is a fifth to choose on (`--chosen`). `--folds 2` takes the
first two folds of each set. With `--stopped`, rankers that learn in rounds are shown a second time as "NAME, stopped
early": trained on four fifths of the training queries and stopped on the fifth. These lines do not compete for the
first place: they need data to stop on, which the plain command does not have. With `--chosen`, systems are judged as
`toprank train --valid` trains them instead: on four fifths, with the grid searched and trees stopped on the fifth. With
`--held-out`, every system comes twice: with its defaults, and as "NAME, held out", chosen in the same way and then
trained on all: whether it pays to hold queries out where there are no validation data (of at most `--queries`).

`--keep` writes every fit to a file and does not make again what is there, so that `--minutes` may end a run that is
gone on with later; the tables are those of the folds on which every system was tried.

Prints a Markdown table: the mean over collections of NDCG@10, the share of all duels won (a system against another on a
fold, a tie being half a win), the mean rank on a fold, the folds on which it is first, and the seconds of processor
time of all its fits. Collections count alike, whatever their number of folds; OHSUMED with and without normalized
features is one collection, its queries being the same.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import _resuming
import toprank as tr
from toprank.data.concatenation import concatenate
from toprank.data.folds import Folds
from toprank.errors import ToprankError
from toprank.model_selection.automatic import auto
from toprank.model_selection.default import DEFAULT_SEARCH

METRIC, SEED = "ndcg@10", 0
SETS = ("MQ2008", "OHSUMED", "OHSUMED-null", "MSLR", "LightGBM-example")
COLLECTION = {"OHSUMED-null": "OHSUMED"}
STOPPED, CHOSEN, HELD_OUT = ", stopped early", ", chosen", ", held out"
SEVERAL = "unasked"


class Task(NamedTuple):
    """A system on a fold of a set."""

    system: str
    set: str
    fold: int
    queries: int


class Found(NamedTuple):
    """What it reached there, and in which time; NaN where it refuses the data."""

    value: float
    seconds: float
    refusal: str = ""


@cache
def folds_of(name: str) -> Folds:
    """The folds of a set, from which nobody asks for a test part."""
    root = Path(os.environ["TOPRANK_DATA"])
    if name == "MSLR":
        files = ("msn1.fold1.train.5k.txt", "mslr_fold1_valid_sample.txt")
        return tr.folds(concatenate([tr.read(root / "mslr-slices" / file, n_features=136) for file in files]), 5)
    if name == "LightGBM-example":
        return tr.folds(tr.read(root / "lightgbm-example" / "rank.train"), 5)
    return tr.folds(root / "letor" / name)


def work(task: Task) -> Found:
    """One fit, in a process of its own."""
    warnings.simplefilter("ignore")  # rankers that did not converge are judged as they are
    fold = folds_of(task.set)[task.fold]
    train, stop = fold.train, None
    if train.n_queries > task.queries:
        share = task.queries / train.n_queries
        train = tr.split(train, (share, 1 - share), seed=SEED)[0]
    name, _, how = task.system.partition(",")
    if how and not task.system.endswith(HELD_OUT):
        train, stop = tr.split(train, (0.8, 0.2), seed=SEED)
    start = time.process_time()
    try:
        if name == SEVERAL:
            ranker = auto(train, stop, metric=METRIC, threads=1, verbose=False, **DEFAULT_SEARCH).ranker
        elif task.system.endswith((CHOSEN, HELD_OUT)):
            ranker = tr.grid_search(name, train, stop, threads=1).ranker
        else:
            ranker = tr.systems.make(name).set_params(threads=1).fit(train, valid=stop)
    except ToprankError as problem:
        return Found(float("nan"), time.process_time() - start, str(problem))
    seconds = time.process_time() - start
    return Found(float(tr.evaluate(ranker.predict(fold.valid), fold.valid, METRIC).mean[METRIC]), seconds)


class Standing(NamedTuple):
    """A line of the table."""

    system: str
    mean: float
    duels: float
    rank: float
    first: int
    seconds: float


def standings(systems: list[str], found: dict[Task, Found]) -> list[Standing]:
    """Every system against every other on every fold; one that refuses a set comes last there."""
    rows: dict[tuple[str, int], dict[str, float]] = {}
    for task, one in found.items():
        rows.setdefault((task.set, task.fold), {})[task.system] = one.value if one.value == one.value else -1.0
    sets = [COLLECTION.get(name, name) for name, _ in rows]
    weight = np.array([1 / sets.count(name) for name in sets])
    values = np.array([[row[system] for system in systems] for row in rows.values()])
    above = (values[:, None, :] > values[:, :, None]).sum(axis=2)  # fold × system: how many are better
    level = (values[:, None, :] == values[:, :, None]).sum(axis=2) - 1
    rank = 1 + above + level / 2
    duels = 1 - (rank - 1) / max(1, len(systems) - 1)
    shown = np.where(values < 0, np.nan, values)
    first = (values == values.max(axis=1, keepdims=True)).sum(axis=0)
    lines = [
        Standing(
            system,
            float(np.average(shown[:, i], weights=weight)),
            float(np.average(duels[:, i], weights=weight)),
            float(np.average(rank[:, i], weights=weight)),
            int(first[i]),
            sum(one.seconds for task, one in found.items() if task.system == system),
        )
        for i, system in enumerate(systems)
    ]
    return sorted(lines, key=lambda line: -line.duels)


def printed(lines: list[Standing]) -> None:
    print("| system | mean NDCG@10 | duels won | mean rank | folds won | seconds |\n|---|---:|---:|---:|---:|---:|")
    for line in lines:
        mean = "–" if line.mean != line.mean else f"{line.mean:.4f}"
        cells = (line.system, mean, f"{100 * line.duels:.1f} %", f"{line.rank:.1f}", line.first, f"{line.seconds:.1f}")
        print("| " + " | ".join(map(str, cells)) + " |")


def complete(found: dict[Task, Found], systems: list[str]) -> dict[Task, Found]:
    """The results of these systems on the folds on which all of them were tried."""
    tried: dict[tuple[str, int, int], set[str]] = {}
    for task in found:
        tried.setdefault(task[1:], set()).add(task.system)
    return {task: one for task, one in found.items() if task.system in systems and set(systems) <= tried[task[1:]]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default=",".join(SETS))
    systems = tr.systems.SYSTEMS.items()
    candidates = [name for name, one in systems if one.kind.family != "networks" and not one.learns_from_teacher]
    candidates.append(SEVERAL)
    arguments.add_argument("--systems", default=",".join(candidates))
    arguments.add_argument("--queries", type=int, default=500, help="training queries at most")
    arguments.add_argument("--folds", type=int, default=5, help="folds of a set at most")
    arguments.add_argument("--stopped", action="store_true")
    arguments.add_argument("--chosen", action="store_true")
    arguments.add_argument("--held-out", action="store_true")
    _resuming.arguments(arguments)
    given = arguments.parse_args()
    sets = given.sets.split(",")
    named = [name if name == SEVERAL else tr.systems.get(name).name for name in given.systems.split(",")]
    single = [name for name in named if name != SEVERAL]
    plain = [name + (CHOSEN if given.chosen else "") for name in named]
    plain += [name + HELD_OUT for name in single] if given.held_out else []
    in_rounds = [name for name in single if tr.systems.get(name).kind.rounds is not None]
    stopped = [name + STOPPED for name in in_rounds] if given.stopped and not given.chosen else []
    tasks = [  # a fold of all sets after the other, so that a run that ends early has whole folds
        Task(system, name, fold, given.queries)
        for fold in range(given.folds)
        for name in sets
        if fold < len(folds_of(name))
        for system in (*plain, *stopped)
    ]
    start, asked = time.perf_counter(), {"keep": given.keep, "processes": given.processes, "minutes": given.minutes}
    found = {task: Found(*one) for task, one in _resuming.run(tasks, work, **asked).items()}
    folds = {task[1:3] for task in complete(found, plain)}
    if folds:
        printed(standings(plain, complete(found, plain)))
    if stopped and complete(found, plain + stopped):
        print("\nWith data to stop on, among the others:\n")
        lines = standings(plain + stopped, complete(found, plain + stopped))
        printed([line for line in lines if line.system in stopped])
    refusals = {f"{task.system} refuses {task.set}: {one.refusal}" for task, one in found.items() if one.refusal}
    for text in sorted(refusals):
        print(f"\n{text}")
    counted = ", ".join(f"{name} {sum(of == name for of, _ in folds)}" for name in sets)
    print(f"\nFolds on which all {len(plain)} systems were tried: {counted}; {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
