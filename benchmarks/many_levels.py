"""Categories with many levels: means of levels, against trees that split by sets of levels, CatBoost and LightGBM.

    python benchmarks/many_levels.py [--seeds 5] [--queries 2000] [--threads 1] [--null]
    python benchmarks/many_levels.py --speed
    python benchmarks/many_levels.py --growth

Shops of `product_tables.py` (50,000 products, 1,500 sellers, 300 brands), one for each seed: 2,000 searches of 20
products to train on, 500 to validate, 1,000 to test. Features: four numbers, the share of the search's words that stand
in the title, and the categories kind, seller, brand, product. Everybody has the same features and stops early on the
same validation data by NDCG@10: our LambdaMART and linear ListNet with target_encoding="auto" and False, our YetiRank
with "auto", LightGBM's lambdarank with categories split by sets of levels, CatBoost's YetiRank with its own
encodings of categories; all with their defaults, up to 1,000 rounds, patience 50. `--null`: sellers, brands and
products have no effect.

Prints a Markdown table: mean NDCG@10 over all test queries, the mean paired difference to "LambdaMART, auto", its 95 %
bootstrap interval over queries, the smallest and largest difference of a seed, and seconds of processor time.
`--speed`: the processor time to find, judge and look up the means on 1,000,000 rows with a category of 50,000 levels.
`--growth`: how many times the leaves grow where trees that split by sets of levels are written for engines that compare
numbers alone, with levels numbered as exports do it and by name; the bound on growth is lifted for that.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import toprank as tr
from product_tables import Catalogue
from toprank.exporters import code_ranges
from toprank.exporters.levels import LevelNumbers
from toprank.rankers.formula import formula_of
from toprank.rankers.source import InMemory
from toprank.significance import bootstrap_interval

ROUNDS, PATIENCE = 1000, 50
BEST = "LambdaMART, auto"


class Shop(NamedTuple):
    """Searches in one shop."""

    train: tr.RankingData
    valid: tr.RankingData
    test: tr.RankingData


def shop(seed: int, queries: int, null: bool) -> Shop:
    catalog = Catalogue(seed=seed)
    if null:
        catalog.quality = np.zeros(catalog.size)
    first, *others = (_columns(catalog.table(count, seed=part)[0]) for part, count in enumerate((queries, 500, 1000)))
    train = tr.RankingData.from_frame(first)
    return Shop(train, *(tr.RankingData.from_frame(one, like=train) for one in others))


def _columns(frame: pd.DataFrame) -> pd.DataFrame:
    words = [(set(s.split()), set(t.lower().split())) for s, t in zip(frame.search_term, frame.title, strict=True)]
    frame["title_match"] = [len(search & title) / len(search) for search, title in words]
    return frame.drop(columns=["search_term", "title", "description", "added"])


def trees(system: str, asked: Any) -> Callable[[Shop, int], Any]:
    def scores(shop: Shop, threads: int) -> Any:
        ranker = tr.systems.make(
            system, n_trees=ROUNDS, early_stopping=PATIENCE, threads=threads, target_encoding=asked
        )
        return ranker.fit(shop.train, valid=shop.valid).predict(shop.test)

    return scores


def listnet(asked: Any) -> Callable[[Shop, int], Any]:
    def scores(shop: Shop, threads: int) -> Any:
        ranker = tr.LinearRanker("ListNet", l2=[0.1, 0.01, 0.001], threads=threads, target_encoding=asked)
        return ranker.fit(shop.train, valid=shop.valid).predict(shop.test)

    return scores


def lightgbm(shop: Shop, threads: int) -> Any:
    import lightgbm as lgb

    categories = list(shop.train.encoding.categories)
    sets = [
        lgb.Dataset(data.X, data.labels, group=data.queries.sizes, categorical_feature=categories)
        for data in (shop.train, shop.valid)
    ]
    sets[1].reference = sets[0]
    parameters = {"objective": "lambdarank", "num_threads": threads, "verbosity": -1, "seed": 0, "deterministic": True}
    parameters |= {"metric": "ndcg", "eval_at": [10], "force_row_wise": True}
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    booster = lgb.train(parameters, sets[0], num_boost_round=ROUNDS, valid_sets=[sets[1]], callbacks=[stop])
    return booster.predict(shop.test.X, num_iteration=booster.best_iteration)


def catboost(shop: Shop, threads: int) -> Any:
    import catboost as cat

    categories = list(shop.train.encoding.categories)

    def pool(data: tr.RankingData) -> Any:
        frame = pd.DataFrame(data.X, columns=list(data.feature_names))
        for place in categories:
            name = data.feature_names[place]
            frame[name] = frame[name].fillna(-1).astype(int)
        return cat.Pool(frame, data.labels, group_id=data.queries.document_query, cat_features=categories)

    ranker = cat.CatBoostRanker(
        loss_function="YetiRank",
        eval_metric="NDCG:top=10;type=Exp",
        iterations=ROUNDS,
        early_stopping_rounds=PATIENCE,
        thread_count=threads,
        random_seed=0,
        verbose=False,
        allow_writing_files=False,
    )
    ranker.fit(pool(shop.train), eval_set=pool(shop.valid))
    return ranker.predict(pool(shop.test))


SYSTEMS: dict[str, Callable[[Shop, int], Any]] = {
    BEST: trees("LambdaMART", "auto"),
    "LambdaMART, sets of levels": trees("LambdaMART", False),
    "YetiRank, auto": trees("YetiRank", "auto"),
    "ListNet, auto": listnet("auto"),
    "ListNet, one-hot": listnet(False),
    "LightGBM": lightgbm,
    "CatBoost": catboost,
}


def quality(chosen: argparse.Namespace) -> None:
    found: dict[str, list[Any]] = {name: [] for name in SYSTEMS}
    seconds = dict.fromkeys(SYSTEMS, 0.0)
    for seed in range(chosen.seeds):
        made = shop(seed, chosen.queries, chosen.null)
        for name, scores in SYSTEMS.items():
            start = time.process_time()
            result = scores(made, chosen.threads)
            seconds[name] += time.process_time() - start
            found[name].append(tr.evaluate(result, made.test, "ndcg@10").per_query["ndcg@10"])
    print(
        f"{chosen.seeds} shops, {chosen.queries:,} searches to train on{', categories without worth' * chosen.null}\n"
    )
    print(f"| system | NDCG@10 | less {BEST} | 95 % interval | by seed | CPU s |\n|---|---|---|---|---|---|")
    for name, values in found.items():
        told = f"| {name} | {np.concatenate(values).mean():.4f} |"
        if name == BEST:
            print(told, f"| | | {seconds[name]:.0f} |")
            continue
        by_seed = [np.asarray(one) - np.asarray(best) for one, best in zip(values, found[BEST], strict=True)]
        means, pooled = [one.mean() for one in by_seed], np.concatenate(by_seed)
        low, high = bootstrap_interval(pooled, seed=0)
        print(
            told,
            f"{pooled.mean():+.4f} | [{low:+.4f}, {high:+.4f}] | {min(means):+.4f} … {max(means):+.4f} | "
            f"{seconds[name]:.0f} |",
        )


def speed() -> None:
    rng = np.random.default_rng(0)
    n = 1_000_000
    frame = pd.DataFrame({"query_id": np.arange(n) // 20, "price": rng.normal(size=n)})
    for name, levels in (("product", 50_000), ("seller", 1_500), ("kind", 30)):
        frame[name] = pd.Categorical.from_codes(rng.integers(levels, size=n), [f"{name} {i}" for i in range(levels)])
    worth = rng.normal(size=50_000)[frame["product"].cat.codes]
    frame["relevance"] = np.digitize(worth + rng.normal(size=n), [0.5, 1.5, 2.5])
    source = InMemory(tr.RankingData.from_frame(frame))
    start = time.process_time()
    found = source.target_encodings(None, "auto", 0)
    chose = time.process_time()
    from toprank.rankers.seen_columns import SeenColumns

    source.widened(SeenColumns.from_codes(source.encoding, found.tables), folds=0)
    done = time.process_time()
    print(f"{n:,} rows, {found.plain(source.encoding)['used']}")
    print(f"found and judged in {chose - start:.1f} s, looked up out of fold in {done - chose:.1f} s of processor time")


def growth() -> None:
    code_ranges.GROWTH = 300
    print("| levels | trees | sets | leaves | grown, numbered | grown, by name |\n|---|---|---|---|---|---|")
    small_sets = {"max_cat_threshold": 4}
    for levels, n_trees, lightgbm_params in (
        *((levels, 100, {}) for levels in (10, 30, 100)),
        (300, 50, {}),
        *((levels, 100, small_sets) for levels in (100, 300)),
    ):
        data = tr.RankingData.from_frame(_brands(300, levels))
        options = {
            "n_trees": n_trees,
            "num_leaves": 31,
            "threads": 1,
            "target_encoding": False,
            "lightgbm_params": lightgbm_params,
        }
        formula = formula_of(tr.TreeRanker("LambdaRank", **options).fit(data))
        forest = formula.forest
        numbers = LevelNumbers.of(formula).of_codes
        by_name = {place: np.arange(1, len(codes) + 1) for place, codes in numbers.items()}
        grown = [
            "refused" if plain is None else f"{len(plain.values) / len(forest.values):.1f}"
            for plain in (code_ranges.with_ranges(forest, numbering) for numbering in (numbers, by_name))
        ]
        size = "of 4 levels at most" if lightgbm_params else "of any size"
        print(f"| {levels} | {n_trees} | {size} | {len(forest.values):,} | {grown[0]} | {grown[1]} |")


def _brands(queries: int, levels: int) -> pd.DataFrame:
    """A small shop whose products have a brand, missing at one in ten, and a price."""
    rng = np.random.default_rng(0)
    n, worth = 10 * queries, np.random.default_rng(7).normal(size=levels)
    brand, price = rng.integers(levels, size=n), rng.gamma(2, 20, n)
    frame = pd.DataFrame({"query_id": np.repeat(np.arange(queries), 10)})
    frame["brand"] = pd.Series([f"brand {number:04d}" for number in brand]).where(rng.random(n) > 0.1)
    frame["size"] = pd.Categorical(rng.choice([38, 40, 42, 44], n))
    frame["price"] = np.where(rng.random(n) > 0.1, price, np.nan)
    frame["relevance"] = np.clip(np.round(worth[brand] - price / 40 + rng.normal(0, 0.6, n) + 1), 0, 3).astype(int)
    return frame


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure means of levels.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--null", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--growth", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # of columns that are left out
    if chosen.growth:
        growth()
    elif chosen.speed:
        speed()
    else:
        quality(chosen)


if __name__ == "__main__":
    main()
