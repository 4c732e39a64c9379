"""How well our trees and `auto` rank, against LightGBM, XGBoost and CatBoost, on held-out test queries.

    TOPRANK_DATA=... python benchmarks/quality.py [--sets MQ2008,OHSUMED,...] [--seeds 5] [--budget 120] [--threads 1]
                                                  [--singles] [--quick] [--busy] [--keep RESULTS.jsonl] [--minutes 30]

For every set, fold and seed: (a) our LambdaMART and LightGBM's lambdarank, called by LightGBM's own API, with the same
tree settings, early stopping on the same validation data and the same metric; (b) our system YetiRank, LightGBM,
XGBoost (rank:ndcg) and CatBoost (YetiRank) with their default settings, up to 1,000 rounds, early stopping after 50 on
the same validation data by their own NDCG@10; (c) `auto` with the budget, and with the time that CatBoost took on that
fold, measured right before by the same process.

LETOR sets have five folds, whose test queries are pooled. MSLR: 5,000 rows to train, the validation sample, 5,000 rows
to test, then the two slices change places (each file's last query may be cut). The example that comes with LightGBM is
tested on its own test file; a quarter of its training queries are validation data. Nothing is chosen on test data.

`--systems auto "auto with networks"` adds two networks to the candidates of `auto`.
`--singles` compares `auto` with every candidate of its portfolio, too; its best line is chosen in hindsight. `--inner`
never reads a test part: the validation part of each fold takes its place, and a quarter of the training queries that of
the validation part; what is to be changed is decided by that. `--quick` takes one fold of each set and one seed.
`--busy` makes `auto` count processor time, and CatBoost's time likewise, for a machine that others use.
`--keep` writes every fit to a file and does not make again what is there, so that `--minutes` may end a run that is
gone on with later; the tables are those of the folds and seeds on which all systems were tried.

Prints a Markdown table: mean NDCG@10 (convention standard) over queries and seeds with the standard deviation between
seeds, mean paired difference, its 95 % bootstrap interval over queries.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import _resuming
import toprank as tr
from toprank import compute
from toprank.data.folds import Fold
from toprank.evaluation.scores import BoundMetric
from toprank.model_selection import automatic as automatic_search
from toprank.model_selection import search
from toprank.model_selection.portfolio import PortfolioEntry, portfolio
from toprank.significance import bootstrap_interval

METRIC = "ndcg@10"
ROUNDS, PATIENCE = 1000, 50
TREES = {"num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 20}
SETS = ("MQ2008", "OHSUMED", "OHSUMED-null", "MSLR", "LightGBM-example")
AGAIN = ("OHSUMED-null",)  # the queries of another set with other features: they do not count twice among all
IN_ITS_TIME = "auto in CatBoost's time"


class Task(NamedTuple):
    """A system on a fold of a set, with a seed; and what every fit needs to know."""

    set: str
    fold: int
    seed: int
    system: str
    budget: float
    threads: int
    inner: bool
    busy: bool


@cache
def folds_of(name: str, inner: bool) -> tuple[Fold, ...]:
    """The folds of a set; `inner` ones leave its test parts alone."""
    if not inner:
        return _folds_of(name)
    divided = [(fold, tr.split(fold.train, (0.75, 0.25), seed=0)) for fold in _folds_of(name)]
    return tuple(Fold(fold.name, kept, held_out, fold.valid) for fold, (kept, held_out) in divided)


def _folds_of(name: str) -> tuple[Fold, ...]:
    root = Path(os.environ["TOPRANK_DATA"])
    if name == "LightGBM-example":
        # The training file's features reach 300, those of the test file fewer.
        train, test = (
            tr.read(root / "lightgbm-example" / f"rank.{part}", n_features=301) for part in ("train", "test")
        )
        return (Fold("the example", *tr.split(train, (0.75, 0.25), seed=0), test),)
    if name != "MSLR":
        return tuple(tr.folds(root / "letor" / name))
    files = ("msn1.fold1.train.5k.txt", "mslr_fold1_valid_sample.txt", "msn1.fold1.test.5k.txt")
    one, valid, other = (tr.read(root / "mslr-slices" / file, n_features=136) for file in files)
    # 43 queries to test on tell little, so the two slices change places once.
    return Fold("there", one, valid, other), Fold("and back", other, valid, one)


def our_lambdamart(fold: Fold, task: Task) -> Any:
    settings = {"n_trees": ROUNDS, "early_stopping": PATIENCE, "threads": task.threads, "metric": METRIC, **TREES}
    ranker = tr.systems.make("LambdaMART", seed=task.seed, **settings)
    return ranker.fit(fold.train, valid=fold.valid).predict(fold.test)


def our_yetirank(fold: Fold, task: Task) -> Any:
    settings = {"n_trees": ROUNDS, "early_stopping": PATIENCE, "threads": task.threads, "metric": METRIC}
    ranker = tr.systems.make("YetiRank", seed=task.seed, **{"loss.seed": task.seed}, **settings)
    return ranker.fit(fold.train, valid=fold.valid).predict(fold.test)


def lightgbm(fold: Fold, task: Task, same: bool = False) -> Any:
    """LightGBM's lambdarank; `same`: our tree settings and our metric, else its defaults."""
    import lightgbm as lgb

    train = lgb.Dataset(fold.train.X, fold.train.labels, group=fold.train.queries.sizes)
    valid = lgb.Dataset(fold.valid.X, fold.valid.labels, group=fold.valid.queries.sizes, reference=train)
    judge = BoundMetric(fold.valid, METRIC, threads=1)
    parameters: dict[str, Any] = {"objective": "lambdarank", "num_threads": task.threads, "verbosity": -1}
    parameters |= {"seed": task.seed}
    parameters |= {**TREES, "metric": "None"} if same else {"metric": "ndcg", "eval_at": [10]}
    booster = lgb.train(
        parameters,
        train,
        num_boost_round=ROUNDS,
        valid_sets=[valid],
        feval=(lambda scores, _: (METRIC, judge(scores), True)) if same else None,
        callbacks=[lgb.early_stopping(PATIENCE, verbose=False)],
    )
    return booster.predict(fold.test.X, num_iteration=booster.best_iteration)


def xgboost(fold: Fold, task: Task) -> Any:
    import xgboost as xgb

    ranker = xgb.XGBRanker(
        objective="rank:ndcg",
        n_estimators=ROUNDS,
        early_stopping_rounds=PATIENCE,
        eval_metric=METRIC,
        n_jobs=task.threads,
        random_state=task.seed,
    )
    train, valid = fold.train, fold.valid
    ranker.fit(
        train.X,
        train.labels,
        qid=train.queries.document_query,
        eval_set=[(valid.X, valid.labels)],
        eval_qid=[valid.queries.document_query],
        verbose=False,
    )
    return ranker.predict(fold.test.X)


def catboost(fold: Fold, task: Task) -> Any:
    import catboost as cat

    def pool(data: tr.RankingData) -> Any:
        return cat.Pool(data.X, data.labels, group_id=data.queries.document_query)

    ranker = cat.CatBoostRanker(
        loss_function="YetiRank",
        eval_metric="NDCG:top=10;type=Exp",
        iterations=ROUNDS,
        early_stopping_rounds=PATIENCE,
        thread_count=task.threads,
        random_seed=task.seed,
        verbose=False,
        allow_writing_files=False,
    )
    ranker.fit(pool(fold.train), eval_set=pool(fold.valid))
    return ranker.predict(pool(fold.test))


def automatic(fold: Fold, task: Task) -> Any:
    asked = {"metric": METRIC, "time_budget": task.budget, "threads": task.threads, "seed": task.seed, "verbose": False}
    return tr.auto(fold.train, fold.valid, **asked).ranker.predict(fold.test)


def with_networks(fold: Fold, task: Task) -> Any:
    """`auto`, with two networks among its candidates."""

    def entries(*asked: Any) -> list[PortfolioEntry]:
        names, (_, metric, convention, seed, threads) = ("YetiRank-network", "Attention"), asked
        judged = {"metric": metric, "convention": convention, "seed": seed, "threads": threads, "early_stopping": 10}
        networks = [PortfolioEntry(name, tr.systems.make(name, **judged), 1.0) for name in names]
        return [*portfolio(*asked), *networks]

    with patch.object(automatic_search, "portfolio", entries):
        return automatic(fold, task)


def single(fold: Fold, task: Task) -> Any:
    """A candidate of the portfolio by itself."""
    entries = portfolio(fold.train, METRIC, "standard", task.seed, task.threads)
    [ranker] = [entry.ranker for entry in entries if entry.name == task.system.removeprefix("only ")]
    return ranker.fit(fold.train, valid=fold.valid).predict(fold.test)


SYSTEMS: dict[str, Callable[[Fold, Task], Any]] = {
    "auto": automatic,
    "YetiRank": our_yetirank,
    "LambdaMART": our_lambdamart,
    "LightGBM, same settings": lambda fold, task: lightgbm(fold, task, same=True),
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
    "CatBoost": catboost,
}
NETWORKS = {"auto with networks": with_networks}
PAIRS = [
    ("LambdaMART", "LightGBM, same settings"),
    ("YetiRank", "CatBoost"),
    *((IN_ITS_TIME, name) for name in ("CatBoost", "YetiRank")),
    *(("auto", name) for name in ("CatBoost", "YetiRank", "LambdaMART", "LightGBM", "XGBoost")),
    *((name, "auto") for name in NETWORKS),
]


def work(task: Task) -> dict[str, Any]:
    """The metric of each test query, and the seconds of training; of CatBoost, also those of `auto` in its time."""
    now = time.process_time if task.busy else time.perf_counter
    if task.busy:
        search.time = compute.time = SimpleNamespace(perf_counter=time.process_time)
    warnings.simplefilter("ignore")  # linear candidates that did not converge are judged as they are
    fold = folds_of(task.set, task.inner)[task.fold]
    judge = BoundMetric(fold.test, METRIC, threads=1)

    def timed(fit: Callable[[Fold, Task], Any], task: Task) -> dict[str, Any]:
        start, begin = now(), time.process_time()
        scores = fit(fold, task)
        spent, cpu = now() - start, time.process_time() - begin
        return {"values": judge.per_query(scores).tolist(), "seconds": spent, "cpu": cpu, "budget": task.budget}

    if task.system == "CatBoost":
        catboost(
            Fold("warm", *(part.select(range(3)) for part in (fold.train, fold.valid, fold.test))), task
        )  # loads it
    found = {task.system: timed((SYSTEMS | NETWORKS).get(task.system, single), task)}
    if task.system == "CatBoost":
        found[IN_ITS_TIME] = timed(automatic, task._replace(budget=found["CatBoost"]["seconds"]))
    return found


def row(name: str, a: str, b: str, of: dict[str, np.ndarray]) -> str:
    """Two systems on a set; `of` gives seeds × queries."""
    left, right = (of[system].mean(axis=0) for system in (a, b))
    low, high = bootstrap_interval(left, right)
    means = [
        f"{of[system].mean():.4f} ± {of[system].mean(axis=1).std(ddof=min(1, len(of[system]) - 1)):.4f}"
        for system in (a, b)
    ]
    cells = [name, a, b, f"{len(left)}", *means, f"{left.mean() - right.mean():+.4f}", f"[{low:+.4f}, {high:+.4f}]"]
    return "| " + " | ".join(cells) + " |"


def tables(results: dict[Task, dict[str, Any]], names: list[str]) -> dict[str, dict[str, np.ndarray]]:
    """The values of each system on each set, seeds × queries of the folds on which all were tried with all seeds."""
    seeds = {task.seed for task in results}
    by_cell: dict[tuple[str, int, int], dict[str, Any]] = {}
    for task, one in results.items():
        by_cell.setdefault((task.set, task.fold, task.seed), {}).update(one)
    values: dict[str, dict[str, list[np.ndarray]]] = {}
    for name, fold in sorted({(name, fold) for name, fold, _ in by_cell}):
        cells = [by_cell.get((name, fold, seed), {}) for seed in sorted(seeds)]
        if all(set(names) <= set(cell) for cell in cells):
            for system in names:
                both = np.array([cell[system]["values"] for cell in cells])
                values.setdefault(name, {}).setdefault(system, []).append(both)
    whole = {name: {s: np.concatenate(v, axis=1) for s, v in of.items()} for name, of in values.items()}
    counted = [of for name, of in whole.items() if name not in AGAIN]
    if len(counted) > 1:
        whole["all"] = {system: np.concatenate([of[system] for of in counted], axis=1) for system in names}
    return whole


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default=",".join(SETS))
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--budget", type=float, default=120.0)
    arguments.add_argument("--threads", type=int, default=1, help="threads of each fit")
    known = ", ".join(SYSTEMS | NETWORKS)
    arguments.add_argument(
        "--systems", nargs="+", default=[*SYSTEMS], help=f"{known}; CatBoost brings auto in its time"
    )
    for name in ("singles", "inner", "quick", "busy"):
        arguments.add_argument(f"--{name}", action="store_true")
    _resuming.arguments(arguments)
    given = arguments.parse_args()
    sets, systems = given.sets.split(","), list(given.systems)
    if given.singles:
        entries = portfolio(folds_of(sets[0], given.inner)[0].train, METRIC, "standard", 0, 1)
        systems += [f"only {entry.name}" for entry in entries]
    more = {"budget": given.budget, "threads": given.threads, "inner": given.inner, "busy": given.busy}
    tasks = [
        Task(name, i, seed, system, **more)
        for seed in range(1 if given.quick else given.seeds)
        for name in sets
        for i in range(1 if given.quick else len(folds_of(name, given.inner)))
        for system in systems
    ]
    start = time.perf_counter()
    asked = {"keep": given.keep, "processes": given.processes, "minutes": given.minutes}
    results = _resuming.run(tasks, work, **asked)
    names = [*systems, *([IN_ITS_TIME] if "CatBoost" in systems else [])]
    values = tables(results, names)
    print("| set | a | b | queries | a, ± between seeds | b, ± between seeds | a − b | 95 % interval |")
    print("|---|---|---|---|---|---|---|---|")
    for a, b in [*PAIRS, *(("auto", name) for name in systems if name.startswith("only "))]:
        for name, of in values.items():
            if a in of and b in of:
                print(row(name, a, b, of))
    for what in ("seconds", "cpu"):
        spent = {name: sum(one[name][what] for one in results.values() if name in one) for name in names}
        print(f"\n{what} of training in all: {', '.join(f'{name} {took:.0f}' for name, took in spent.items())}.")
    over = [
        one["seconds"] / one["budget"] for found in results.values() for name, one in found.items() if "auto" in name
    ]
    if over:
        print(f"auto took at most {max(over):.2f} of its budget.")
    print(f"Wall time {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
