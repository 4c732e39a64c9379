"""How well our trees and `auto` rank, against LightGBM, XGBoost and CatBoost, on held-out test queries.

    TOPRANK_DATA=... python benchmarks/quality.py [--sets MQ2008,OHSUMED,MSLR] [--budget 120] [--threads 1] [--singles]

For every set and fold: (a) our LambdaMART and LightGBM's lambdarank, called by LightGBM's own API, with the same tree
settings, early stopping on the same validation data and the same metric; (b) `auto`, LightGBM, XGBoost (rank:ndcg) and
CatBoost (YetiRank) with their default settings, up to 1,000 rounds, early stopping after 50 on the same validation data
by their own NDCG@10. LETOR sets have five folds, whose test queries are pooled. MSLR: 5,000 rows to train, the
validation sample, 5,000 rows to test, then the two slices change places (each file's last query may be cut). Nothing is
chosen on test data.
`--singles` compares `auto` with every candidate of its portfolio, too; its best line is chosen in hindsight.
Prints a Markdown table: mean NDCG@10 (convention standard), mean paired difference, its 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import toprank as tr
from toprank.choosing.portfolio import portfolio, quietly
from toprank.data.folds import Fold
from toprank.metrics.evaluation import Judge
from toprank.significance import bootstrap_interval

METRIC = "ndcg@10"
ROUNDS, PATIENCE = 1000, 50
TREES = {"num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 20}


class Options(NamedTuple):
    """What every fit needs to know."""

    budget: float
    threads: int


@cache
def folds_of(name: str) -> tuple[Fold, ...]:
    """The folds of a set."""
    root = Path(os.environ["TOPRANK_DATA"])
    if name != "MSLR":
        return tuple(tr.folds(root / "letor" / name))
    files = ("msn1.fold1.train.5k.txt", "mslr_fold1_valid_sample.txt", "msn1.fold1.test.5k.txt")
    one, valid, other = (tr.read(root / "mslr-slices" / file, n_features=136) for file in files)
    # 43 queries to test on tell little, so the two slices change places once.
    return Fold("there", one, valid, other), Fold("and back", other, valid, one)


def our_lambdamart(fold: Fold, options: Options) -> Any:
    ranker = tr.systems.make(
        "LambdaMART", n_trees=ROUNDS, early_stopping=PATIENCE, threads=options.threads, metric=METRIC, **TREES
    )
    return ranker.fit(fold.train, valid=fold.valid).predict(fold.test)


def lightgbm(fold: Fold, options: Options, same: bool = False) -> Any:
    """LightGBM's lambdarank; `same`: our tree settings and our metric, else its defaults."""
    import lightgbm as lgb

    train = lgb.Dataset(fold.train.X, fold.train.labels, group=fold.train.queries.sizes)
    valid = lgb.Dataset(fold.valid.X, fold.valid.labels, group=fold.valid.queries.sizes, reference=train)
    judge = Judge(fold.valid, METRIC, threads=1)
    parameters: dict[str, Any] = {"objective": "lambdarank", "num_threads": options.threads, "verbosity": -1, "seed": 0}
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


def xgboost(fold: Fold, options: Options) -> Any:
    import xgboost as xgb

    ranker = xgb.XGBRanker(
        objective="rank:ndcg",
        n_estimators=ROUNDS,
        early_stopping_rounds=PATIENCE,
        eval_metric=METRIC,
        n_jobs=options.threads,
        random_state=0,
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


def catboost(fold: Fold, options: Options) -> Any:
    import catboost as cat

    def pool(data: tr.RankingData) -> Any:
        return cat.Pool(data.X, data.labels, group_id=data.queries.document_query)

    ranker = cat.CatBoostRanker(
        loss_function="YetiRank",
        eval_metric="NDCG:top=10;type=Exp",
        iterations=ROUNDS,
        early_stopping_rounds=PATIENCE,
        thread_count=options.threads,
        random_seed=0,
        verbose=False,
        allow_writing_files=False,
    )
    ranker.fit(pool(fold.train), eval_set=pool(fold.valid))
    return ranker.predict(pool(fold.test))


def automatic(fold: Fold, options: Options) -> Any:
    choice = tr.auto(fold.train, fold.valid, metric=METRIC, budget=options.budget, threads=options.threads)
    if choice.budget_bound:
        warnings.warn(f"{fold.name}: {choice.summary}", stacklevel=1)
    return choice.ranker.predict(fold.test)


SYSTEMS: dict[str, Callable[[Fold, Options], Any]] = {
    "auto": automatic,
    "LambdaMART": our_lambdamart,
    "LightGBM, same settings": lambda fold, options: lightgbm(fold, options, same=True),
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
    "CatBoost": catboost,
}
PAIRS = [
    ("LambdaMART", "LightGBM, same settings"),
    *(("auto", name) for name in ("LightGBM", "XGBoost", "CatBoost", "LambdaMART")),
]


def single(name: str, fold: Fold, options: Options) -> Any:
    """A candidate of the portfolio by itself."""
    entries = portfolio(fold.train, METRIC, "standard", 0, options.threads)
    [ranker] = [entry.ranker for entry in entries if entry.name == name]
    with quietly():
        return ranker.fit(fold.train, valid=fold.valid).predict(fold.test)


def work(task: tuple[str, int, str, Options]) -> tuple[np.ndarray, float]:
    """A system on a fold: the metric of each test query, and the seconds that training took."""
    name, number, system, options = task
    fold, start = folds_of(name)[number], time.perf_counter()
    fit = SYSTEMS.get(system) or (lambda fold, options: single(system.removeprefix("only "), fold, options))
    scores = fit(fold, options)
    return Judge(fold.test, METRIC, threads=1).per_query(scores), time.perf_counter() - start


def row(name: str, a: str, b: str, of: dict[str, np.ndarray]) -> str:
    low, high = bootstrap_interval(of[a], of[b])
    difference = of[a].mean() - of[b].mean()
    verdict = "yes" if high >= 0 and difference >= -0.005 else "no"
    cells = [name, a, b, f"{len(of[a])}", f"{of[a].mean():.4f}", f"{of[b].mean():.4f}", f"{difference:+.4f}"]
    return "| " + " | ".join([*cells, f"[{low:+.4f}, {high:+.4f}]", verdict]) + " |"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default="MQ2008,OHSUMED,MSLR")
    arguments.add_argument("--budget", type=float, default=120.0)
    arguments.add_argument("--threads", type=int, default=1, help="threads of each fit; fits run in two processes")
    arguments.add_argument("--singles", action="store_true")
    given = arguments.parse_args()
    sets, options = given.sets.split(","), Options(given.budget, given.threads)
    names = list(SYSTEMS)
    pairs = list(PAIRS)
    if given.singles:
        entries = portfolio(folds_of(sets[0])[0].train, METRIC, "standard", 0, 1)
        names += [f"only {entry.name}" for entry in entries]
        pairs += [("auto", f"only {entry.name}") for entry in entries]
    tasks = [(name, i, system, options) for name in sets for i in range(len(folds_of(name))) for system in names]
    start = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        results = dict(zip(tasks, pool.map(work, tasks), strict=True))
    seconds = {system: sum(took for task, (_, took) in results.items() if task[2] == system) for system in names}
    values = {
        name: {
            system: np.concatenate([v for (s, _, n, _), (v, _) in results.items() if (s, n) == (name, system)])
            for system in names
        }
        for name in sets
    }
    if len(sets) > 1:
        values["all"] = {system: np.concatenate([values[name][system] for name in sets]) for system in names}
    print("| set | a | b | test queries | a | b | a − b | 95 % interval | within the goal |")
    print("|---|---|---|---|---|---|---|---|---|")
    for a, b in pairs:
        for name, of in values.items():
            print(row(name, a, b, of))
    print(f"\nSeconds of training in all: {', '.join(f'{name} {took:.0f}' for name, took in seconds.items())}.")
    print(f"Wall time {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
