"""Evaluation from arrays: NDCG@10 and five metrics at once, against the evaluators people use.

    python benchmarks/evaluation.py [--queries 30000]

Every tool is given its data in the form it wants before the clock starts, except where "with conversion" is said.
Best of several runs; ratios are to toprank on all cores, in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import toprank as tr


def best(function: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of some runs, after one to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def problem(n_queries: int) -> tuple[np.ndarray, tr.RankingData]:
    """Ragged queries of about 120 documents with MSLR-like grades."""
    rng = np.random.default_rng(0)
    sizes = np.clip(rng.poisson(120, n_queries) + rng.integers(-60, 60, n_queries), 1, None)
    queries = tr.Queries.from_sizes(sizes)
    labels = rng.choice(5, queries.n_documents, p=[0.52, 0.23, 0.18, 0.05, 0.02])
    scores = rng.normal(size=queries.n_documents) + 0.3 * labels
    return scores, tr.RankingData(np.zeros((queries.n_documents, 1), np.float32), labels, queries=queries)


def lightgbm_ndcg(scores: np.ndarray, data: tr.RankingData) -> Callable[[], object]:
    import lightgbm

    train = lightgbm.Dataset(data.X, data.labels, group=data.queries.sizes, init_score=scores)
    options = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "verbose": -1}
    return lightgbm.Booster(options, train).eval_train


def xgboost_ndcg(scores: np.ndarray, data: tr.RankingData) -> Callable[[], object]:
    import xgboost

    matrix = xgboost.DMatrix(data.X, data.labels, base_margin=scores)
    matrix.set_group(data.queries.sizes)
    booster = xgboost.Booster({"objective": "rank:ndcg", "eval_metric": "ndcg@10"}, [matrix])
    return lambda: booster.eval(matrix)


def catboost_ndcg(scores: np.ndarray, data: tr.RankingData) -> Callable[[], object]:
    from catboost.utils import eval_metric

    groups = data.queries.document_query
    return lambda: eval_metric(data.labels, scores, "NDCG:top=10;type=Exp", group_id=groups)


def dictionaries(scores: np.ndarray, data: tr.RankingData) -> tuple[dict, dict]:
    qrels, run = {}, {}
    for q, rows in enumerate(data.queries):
        names = [f"d{i}" for i in range(rows.stop - rows.start)]
        qrels[f"q{q}"] = dict(zip(names, data.labels[rows].astype(int).tolist(), strict=True))
        run[f"q{q}"] = dict(zip(names, scores[rows].tolist(), strict=True))
    return qrels, run


def report(name: str, seconds: float, ours: float) -> None:
    print(f"{name:<46}{seconds * 1e3:>10.1f} ms  {seconds / ours:>7.1f}x", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--queries", type=int, default=30_000)
    scores, data = problem(arguments.parse_args().queries)
    print(f"{data.n_queries:,} queries, {data.n_documents:,} documents; time and ratio to toprank's NDCG@10")
    ours = best(lambda: tr.evaluate(scores, data, "ndcg@10"), 9)
    five = "ndcg@10,map,mrr,err@20,p@10"
    report("toprank ndcg@10 (standard)", ours, ours)
    report("toprank ndcg@10, 1 thread", best(lambda: tr.evaluate(scores, data, "ndcg@10", threads=1), 5), ours)
    report(
        "toprank ndcg@10 from labels and qid arrays",
        best(lambda: tr.evaluate(scores, data.labels, "ndcg@10", qid=data.queries.document_query), 3),
        ours,
    )
    report(f"toprank {five}", best(lambda: tr.evaluate(scores, data, five), 5), ours)
    for name, make in (("LightGBM", lightgbm_ndcg), ("XGBoost", xgboost_ndcg), ("CatBoost", catboost_ndcg)):
        report(f"{name} ndcg@10, its own evaluator", best(make(scores, data), 5), ours)
    start = time.perf_counter()
    qrels, run = dictionaries(scores, data)
    building = time.perf_counter() - start

    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"})
    seconds = best(lambda: evaluator.evaluate(run), 1)
    report("pytrec_eval ndcg_cut_10, dicts ready", seconds, ours)
    report("pytrec_eval ndcg_cut_10, with conversion", seconds + building, ours)

    import ranx

    start = time.perf_counter()
    ranx_qrels, ranx_run = ranx.Qrels(qrels), ranx.Run(run)
    converting = time.perf_counter() - start
    seconds = best(lambda: ranx.evaluate(ranx_qrels, ranx_run, "ndcg@10"), 1)
    report("ranx ndcg@10, objects ready", seconds, ours)
    report("ranx ndcg@10, with conversion", seconds + building + converting, ours)


if __name__ == "__main__":
    main()
