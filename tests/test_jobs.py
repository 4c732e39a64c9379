"""Whole jobs on tables of products, as a user does them: from a table to a ranking of what is new."""

from __future__ import annotations

import json
import subprocess
import sys

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.metrics import ndcg_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import toprank as tr
from support import invoked

CATEGORIES, NUMBERS = ["brand", "color"], ["price", "in_stock"]


def shop(n_queries, seed):
    """Ten products for each search: what they are, and how much people wanted them."""
    rng, n = np.random.default_rng(seed), 10 * n_queries
    brands, worth = np.array(["Acme", "Borg", "Cola", "Delta"]), np.array([0.0, 2.0, 0.5, 3.0])
    brand, price = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1]), rng.gamma(2.0, 20.0, n)
    return pd.DataFrame(
        {
            "query_id": np.repeat([f"search {seed}-{number}" for number in range(n_queries)], 10),
            "sku": [f"{seed}/{row}" for row in range(n)],
            "title": [f"Thing number {row}" for row in range(n)],
            "brand": pd.Series(brands[brand], dtype="str").where(rng.random(n) > 0.1),
            "color": pd.Categorical(rng.choice(["red", "blue", "green"], n)),
            "price": np.where(rng.random(n) > 0.05, price, np.nan),
            "in_stock": rng.random(n) > 0.3,
            "added": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, n), unit="D"),
            "relevance": np.clip(np.round(worth[brand] - price / 40 + rng.normal(0, 0.6, n) + 1), 0, 3).astype(int),
        }
    )


@pytest.fixture(scope="module")
def tables():
    return shop(80, seed=0), shop(40, seed=1)


@pytest.fixture(scope="module")
def new():
    """Products that nobody has judged: in another order of columns, with one more, and some of a brand never seen."""
    made = shop(3, seed=2).drop(columns="relevance").assign(page=1)
    made.loc[[0, 7, 13], "brand"] = "Newcomer"
    return made[made.columns[::-1]]


@pytest.fixture(scope="module")
def others(tables):
    """What LightGBM and scikit-learn make of the same tables, by their own means."""
    train, test = (frame.astype({"brand": "category", "color": "category"}) for frame in tables)
    test = test.assign(**{name: test[name].cat.set_categories(train[name].cat.categories) for name in CATEGORIES})
    columns = [*CATEGORIES, *NUMBERS]
    boosted = lightgbm.LGBMRanker(n_estimators=40, num_leaves=15, n_jobs=1, random_state=0, verbose=-1)
    boosted.fit(train[columns], train["relevance"], group=np.full(80, 10))
    ridge = make_pipeline(
        make_column_transformer(
            (make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), OneHotEncoder()), CATEGORIES),
            (make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS),
        ),
        Ridge(),
    ).fit(tables[0][columns].astype({"color": object}), train["relevance"])
    return {
        "LGBMRanker": boosted.predict(test[columns]),
        "Ridge": ridge.predict(tables[1][columns].astype({"color": object})),
    }


def mean_ndcg(scores, frame):
    """Of scikit-learn, with the gains of the usual convention."""
    gains = 2.0 ** frame["relevance"].to_numpy().reshape(-1, 10) - 1
    wanted = gains.max(axis=1) > 0
    return ndcg_score(gains[wanted], np.reshape(scores, (-1, 10))[wanted], k=10) * wanted.mean()


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_a_mixed_frame_is_trained_compared_reported_saved_and_ranks_new_products(
    tables, new, others, library, tmp_path
):
    with pytest.warns(UserWarning, match=r"left out.*'title' \(800 values in 800 cells\)"):
        train = tr.RankingData.from_frame(library(tables[0]))
    test = tr.RankingData.from_frame(library(tables[1]), like=train)
    assert train.feature_names == ("brand", "color", "price", "in_stock", "added")
    assert test.document_ids.tolist() == tables[1]["sku"].tolist()

    trees = tr.TreeRanker("LambdaRank", n_trees=40, num_leaves=15, threads=1).fit(train)
    linear = tr.LinearRanker("ListNet", l2=0.01).fit(train)
    systems = {**others, "trees": trees.predict(test), "ListNet": linear.predict(test)}
    comparison = tr.compare(systems, test, "ndcg@10", baseline="Ridge")
    means = {name: tr.evaluate(scores, test, "ndcg@10").mean["ndcg@10"] for name, scores in systems.items()}
    for name in ("Ridge", "ListNet"):  # whose scores have no ties
        assert means[name] == pytest.approx(mean_ndcg(systems[name], tables[1]), abs=1e-9)
    assert all(f"{name} " in str(comparison) and f"{mean:.4f}" in str(comparison) for name, mean in means.items())
    assert means["trees"] > means["LGBMRanker"] - 0.02
    assert means["ListNet"] > means["Ridge"] - 0.02

    content = tr.report.from_comparison(comparison, test, systems, rankers={"trees": trees, "ListNet": linear})
    tr.report.write_html(tmp_path / "report.html", content)
    assert "brand=Delta" in (tmp_path / "report.html").read_text()

    trees.save(tmp_path / "trees.toprank")
    linear.save(tmp_path / "linear.toprank")
    new.to_parquet(tmp_path / "new.parquet", index=False)
    reading = "polars" if library is pl.from_pandas else "pandas"
    script = f"""
import json, {reading}
import toprank as tr

new = {reading}.read_parquet("new.parquet")
print(json.dumps([tr.load(f"{{name}}.toprank").rank(new, k=3) for name in ("trees", "linear")]))
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [ranker.rank(library(new), k=3) for ranker in (trees, linear)]
    unknown = new.assign(brand=new["brand"].where(new["brand"] != "Newcomer"))
    for ranker in (trees, linear):
        assert np.array_equal(ranker.predict(library(new)), ranker.predict(library(unknown)))
        assert len(np.unique(ranker.predict(library(new)))) > 10


def test_mixed_parquet_is_trained_compared_reported_and_ranks_new_products_by_commands(tables, new, others, tmp_path):
    def toprank(*arguments):
        return invoked(*arguments).stdout

    train, test, unjudged = (tmp_path / f"{name}.parquet" for name in ("train", "test", "new"))
    for frame, path in zip((*tables, new), (train, test, unjudged), strict=True):
        frame.to_parquet(path, index=False)
    scores = {name: tmp_path / f"{name}.scores" for name in ("ListNet", "LambdaMART", *others)}
    for name, values in others.items():
        tr.write_scores(values, scores[name])
    models = {name: tmp_path / f"{name}.toprank" for name in ("ListNet", "LambdaMART")}
    with pytest.warns(UserWarning, match="'title'"):
        toprank("train", train, "--system", "ListNet", "--set", "l2=0.01", "-o", models["ListNet"])
    options = ("--set", "n_trees=40", "--set", "num_leaves=15", "--threads", "1")
    columns = "brand,color,price,in_stock,added"
    named = ("--features", columns, "--document-id", "sku")
    toprank("train", train, "--system", "LambdaMART", *options, *named, "-o", models["LambdaMART"], "-q")
    for name, model in models.items():
        toprank("predict", model, test, "-o", scores[name], "-q")
    judged = ("compare", test, *scores.values(), "--baseline", "Ridge", "-m", "ndcg@10", "-q")
    told = json.loads(toprank(*judged, "--json"))["means"]
    assert set(told) == set(scores)
    for name in ("Ridge", "ListNet"):
        assert told[name]["ndcg@10"] == pytest.approx(mean_ndcg(tr.read_scores(scores[name]), tables[1]), abs=1e-9)
    report = tmp_path / "report.html"
    toprank(*judged, "--html", report, "--model", models["ListNet"])
    assert "brand=Delta" in report.read_text()
    known = json.loads(toprank("inspect", models["ListNet"], "--json"))["features"]["columns"]
    assert {one["name"]: one.get("levels") for one in known}["brand"] == ["Acme", "Borg", "Cola", "Delta"]

    command = [sys.executable, "-m", "toprank", "rank", str(models["ListNet"]), str(unjudged), "--top", "3", "-q"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    ranked = tr.load(models["ListNet"]).rank(new, k=3)
    assert run.stdout.splitlines() == ["\t".join([query, *products]) for query, products in ranked.items()]
