"""What the words of a product table are worth: the same rankers without titles, descriptions and searches, and with.

    python benchmarks/text_tables.py [--queries 800] [--test 400] [--seed 0]

The tables are those of `product_tables.py`: one shop, with other searches to train on, to stop on and to test on.
toprank gets `text=`, CatBoost the same columns as `text_features`; both get sellers, brands and kinds as categories,
and numbers. Nothing is tuned: both grow until the validation queries get no better. Each line is the mean NDCG@10 of
the test queries, and the gain by text with a 95 % interval over queries.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import catboost
import numpy as np
import pandas as pd

import toprank as tr
from product_tables import Catalogue
from toprank.significance import t_interval

CATEGORIES, NUMBERS = ["seller", "brand", "kind"], ["price", "rating", "reviews"]
WORDS = ["search_term", "title", "description"]
TEXT = {"query": "search_term", "document": ["title", "description"]}
ROUNDS, PATIENCE = 400, 40


def tables(queries: int, test: int, seed: int) -> list[pd.DataFrame]:
    shop = Catalogue(products=5_000, sellers=200, brands=60, seed=seed)
    sizes = (queries, queries // 4, test)
    return [shop.table(size, seed=seed + part)[0] for part, size in enumerate(sizes, start=1)]


def data_of(frame: pd.DataFrame, words: bool, like: Any = None) -> tr.RankingData:
    roles: dict[str, Any] = {"label": "relevance", "qid": "query_id", "document_id": "product_id"}
    given = (
        {"like": like} if like is not None else {"features": [*CATEGORIES, *NUMBERS], "text": TEXT if words else False}
    )
    return tr.RankingData.from_frame(frame, **roles, **given)


def by_toprank(train: pd.DataFrame, valid: pd.DataFrame, test: pd.DataFrame, words: bool) -> np.ndarray:
    learned = data_of(train, words)
    ranker = tr.TreeRanker(n_trees=ROUNDS, early_stopping=PATIENCE, seed=0)
    ranker.fit(learned, valid=data_of(valid, words, like=learned))
    return ranker.predict(data_of(test, words, like=learned))


def by_catboost(train: pd.DataFrame, valid: pd.DataFrame, test: pd.DataFrame, words: bool) -> np.ndarray:
    columns = [*CATEGORIES, *NUMBERS, *(WORDS if words else ())]
    texts = WORDS if words else None

    def pool(frame: pd.DataFrame) -> catboost.Pool:
        rows = frame[columns].assign(**{name: frame[name].astype(str) for name in (*CATEGORIES, *(texts or ()))})
        groups = pd.factorize(frame["query_id"])[0]
        return catboost.Pool(rows, frame["relevance"], group_id=groups, cat_features=CATEGORIES, text_features=texts)

    model = catboost.CatBoost(
        {"loss_function": "YetiRank", "eval_metric": "NDCG:top=10", "iterations": ROUNDS, "random_seed": 0,
         "od_wait": PATIENCE, "verbose": False, "allow_writing_files": False}
    )  # fmt: skip
    model.fit(pool(train), eval_set=pool(valid))
    return np.asarray(model.predict(pool(test)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=800)
    parser.add_argument("--test", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    train, valid, test = tables(asked.queries, asked.test, asked.seed)
    judged = data_of(test, False)
    found: dict[tuple[str, bool], np.ndarray] = {}
    for name, system in (("toprank", by_toprank), ("CatBoost", by_catboost)):
        for words in (False, True):
            start = time.process_time()
            scores = system(train, valid, test, words)
            seconds = time.process_time() - start
            found[name, words] = tr.evaluate(scores, judged, "ndcg@10").per_query["ndcg@10"]
            mean = np.nanmean(found[name, words])
            print(
                f"{name:9} {'with text' if words else 'without  '} ndcg@10 {mean:.4f}  {seconds:6.1f} s of CPU",
                flush=True,
            )
    for name in ("toprank", "CatBoost"):
        print(f"gain by text, {name}: {t_interval(found[name, True], found[name, False])}")
    print(f"toprank less CatBoost, with text: {t_interval(found['toprank', True], found['CatBoost', True])}")


if __name__ == "__main__":
    main()
