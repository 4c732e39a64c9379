"""How the default order of search was chosen: rules for the weights of its members, on validation queries alone.

    python benchmarks/search_blend.py              # Cranfield, CISI, MED (where TOPRANK_DATA is set), Python's docs
    python benchmarks/search_blend.py med cisi     # some of them

A fifth of the queries is set aside and never looked at. Of the rest, 24 queries or two thirds
teach, and what they did not teach judges: the members and their weights are made of the queries that teach, as `train`
makes them. Three draws each.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from search import POOL, collections
from toprank import RankingData, evaluate, folds, search
from toprank.search import blending

METRIC = "ndcg@10"
RULES = {
    "learned members alike": math.inf,
    "best weights if better by 2 standard errors": 2.0,
    "best weights if better by 1 standard error": 1.0,
    "best weights": 0.0,
}
FEW = 24
DRAWS = 3


def divisions(data: RankingData) -> list[tuple[str, RankingData, RankingData]]:
    """What teaches and what judges, of the queries that are not set aside."""
    first = next(iter(folds(data, 5, seed=0)))
    known = np.setdiff1d(data.qids, first.test.qids)
    found = []
    for draw in range(DRAWS):
        order = np.random.default_rng(draw).permutation(known)
        for name, n in ((f"{FEW} queries", min(FEW, len(order) - 8)), ("two thirds", 2 * len(order) // 3)):
            teach = np.isin(data.qids, order[:n])
            found.append((name, data.select(teach), data.select(np.isin(data.qids, order[n:]))))
    return found


def main() -> None:
    wanted = sys.argv[1:]
    for name, source in collections().items():
        if wanted and name not in wanted:
            continue
        totals: dict[tuple[str, str], list[float]] = defaultdict(list)
        with tempfile.TemporaryDirectory() as folder:
            index = search.index(source, Path(folder, "index"), n_candidates=POOL)
            topics, judged, _ = index.queries_and_judgments(None, None, "test")
            data = index.data(topics.select(set(judged.qids.tolist())), judged)
        orders = index.features.orders
        for regime, teach, rest in divisions(data):
            columns = {order: rest.X[:, rest.feature_names.index(order)] for order in orders}
            scores = {f"{order.partition(' ')[0]} alone": column for order, column in columns.items()}
            for rule, se_rule in RULES.items():
                scores[rule] = blending.fit_blend(teach, METRIC, orders, 0, None, se_rule).ranker.predict(rest)
            for rule, values in scores.items():
                value = evaluate(np.asarray(values, dtype=float), rest, METRIC).mean[METRIC]
                totals[regime, rule].append(float(value))
        for regime in dict.fromkeys(regime for regime, _ in totals):
            print(f"\n{name}, {regime}: {METRIC} in the candidates, mean of {DRAWS} draws")
            for (where, rule), values in totals.items():
                if where == regime:
                    print(f"  {np.mean(values):.4f}  {rule}", flush=True)


if __name__ == "__main__":
    main()
