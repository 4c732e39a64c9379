"""A real cluster: the same answer as on one machine, however the data are divided and wherever they come from."""

from __future__ import annotations

import warnings
from operator import attrgetter

import numpy as np
import pytest
from typer.testing import CliRunner

import toprank as tr
from toprank import cluster
from toprank.cli.commands import app
from toprank.data.frames import to_frame
from toprank.data.frames.categories import ColumnsLeftOutWarning
from toprank.errors import DataError

pytest.importorskip("distributed")

METRICS = ["ndcg@10", "map", "err@5", "mrr"]


@pytest.fixture(scope="module")
def two():
    """Two worker processes with one thread each."""
    with cluster.connect(workers=2, timeout=60) as connected:
        yield connected


@pytest.fixture(scope="module")
def data():
    made = tr.synthetic(n_queries=90, seed=0)
    rng = np.random.default_rng(0)
    X = np.array(made.X)
    X[rng.uniform(size=X.shape) < 0.02] = np.nan
    return made.replace(X=X, query_weights=rng.uniform(0.5, 2, made.n_queries))


@pytest.fixture(scope="module")
def valid():
    return tr.synthetic(n_queries=40, seed=1)


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    """A folder of Parquet files, cut by rows and not by queries; one of them is empty."""
    import pyarrow.parquet as parquet

    path = tmp_path_factory.mktemp("parquet")
    table = to_frame(data)
    n = table.num_rows
    for number, (a, b) in enumerate([(0, n // 3), (n // 3, n // 3), (n // 3, n // 2), (n // 2, n)]):
        parquet.write_table(table.slice(a, b - a), path / f"part-{number}.parquet")
    return path


@pytest.fixture(scope="module")
def sources(data, folder, tmp_path_factory):
    """The same data in every way that a cluster can get them."""
    import dask.dataframe

    store = tmp_path_factory.mktemp("store") / "d.toprank-data"
    tr.write(data, store)
    text = tmp_path_factory.mktemp("text")
    files = []
    for number, queries in enumerate(np.array_split(np.arange(data.n_queries), 3)):
        files.append(text / f"{number}.parquet")
        tr.write(data.select(queries), files[-1])
    return {
        "memory": lambda: data,
        "stored, 1 part": lambda: cluster.read(store, partitions=1),
        "stored, 7 parts": lambda: cluster.read(store, partitions=7),
        "folder cut by rows": lambda: cluster.read(folder),
        "list of files": lambda: cluster.read(files),
        "frame cut by rows": lambda: dask.dataframe.from_pandas(to_frame(data, "pandas"), npartitions=5, sort=False),
    }


WAYS = ["memory", "stored, 1 part", "stored, 7 parts", "folder cut by rows", "list of files", "frame cut by rows"]


@pytest.fixture(scope="module")
def alone(data):
    return tr.LinearRanker("ListNet", l2=1e-2).fit(data)


def close(got, expected, rtol=1e-8):
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore::toprank.cluster.QueriesMovedWarning")
@pytest.mark.parametrize("way", WAYS)
def test_same_weights_wherever_the_data_come_from(two, data, sources, alone, way):
    source = sources[way]()
    placed = two.persist(source, query_weight="query_weight") if way == "frame cut by rows" else source
    ranker = two.fit(tr.LinearRanker("ListNet", l2=1e-2), placed)
    close(ranker.coef_, alone.coef_)
    assert ranker.solution_.iterations == alone.solution_.iterations
    assert ranker.solution_.evaluations == alone.solution_.evaluations
    np.testing.assert_allclose(ranker.standardization_.center, alone.standardization_.center, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ranker.standardization_.spread, alone.standardization_.spread, rtol=1e-12)
    assert ranker.training_["queries"] == data.n_queries
    assert ranker.training_["documents"] == data.n_documents
    ours = tr.evaluate(ranker.predict(data), data, METRICS).mean
    theirs = tr.evaluate(alone.predict(data), data, METRICS).mean
    assert dict(ours) == pytest.approx(dict(theirs), abs=1e-6)


def test_constant_features_get_no_weight(two, data, tmp_path):
    """Also where a partition does not see that its neighbor has the same value, and where the first row has none."""
    constant = np.full((data.n_documents, 2), 30000.7)
    constant[: data.n_documents // 2, 1] = np.nan
    wide = data.replace(X=np.column_stack([data.X, constant]).astype(np.float64), feature_names=None)
    tr.write(wide, tmp_path / "wide.toprank-data")
    parts = cluster.read(tmp_path / "wide.toprank-data", partitions=3)
    linear = two.fit(tr.LinearRanker("ListNet", l2=0.0), parts)
    assert linear.coef_[-2:].tolist() == [0, 0]
    assert linear.coef_[:-2].all()
    gains = two.fit(tr.ExpectedGainRanker("Multinomial", l2=0.0), parts)
    assert not gains.coef_[:, -2:].any()


@pytest.mark.parametrize("way", ["stored, 7 parts", "memory"])
def test_a_loss_that_draws_draws_the_same_for_a_query_wherever_it_lies(two, data, sources, way):
    options = {"l2": 1e-2, "max_iterations": 4}
    alone = tr.LinearRanker("YetiRank", **options).fit(data)
    there = two.fit(tr.LinearRanker("YetiRank", **options), sources[way]())
    close(there.coef_, alone.coef_, rtol=1e-6)
    other = tr.LinearRanker(tr.losses.YetiRank(seed=1), **options).fit(data)
    assert np.abs(other.coef_ - alone.coef_).max() > 1e-3 * np.abs(alone.coef_).max()  # the draws do matter


def test_threads_of_a_partition_change_nothing(two, sources):
    weights = [
        two.fit(tr.LinearRanker("ListNet", l2=1e-2, threads=threads), sources["stored, 1 part"]()).coef_
        for threads in (1, 2)
    ]
    np.testing.assert_array_equal(weights[0], weights[1])


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("Hinge", {"l2": 0.3}),  # the bundle method
        ("Logistic", {"l1": 0.01}),  # proximal Newton
        ("ApproxNDCG", {"l2": 0.3, "solver": "lbfgs"}),
        ("LambdaRank", {"max_iterations": 2, "solver": "newton"}),  # starts from logistic pairs
    ],
    ids=["bundle", "proximal", "lbfgs", "inexact"],
)
def test_every_solver_runs_unchanged(two, data, loss, options):
    rankers = [tr.LinearRanker(loss, **options) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        rankers[0].fit(data)
        two.fit(rankers[1], data)
    close(rankers[1].coef_, rankers[0].coef_)
    assert rankers[1].solution_.iterations == rankers[0].solution_.iterations


@pytest.mark.parametrize(
    ("loss", "options"),
    [("Multinomial", {}), ("Ordinal", {}), ("ListNet", {"l2": 1.0, "init": "linear", "tolerance": 1e-3})],
    ids=["multinomial", "ordinal", "listnet"],
)
def test_expected_gain(two, data, loss, options):
    options = {"l2": 1e-1, "max_iterations": 40, "tolerance": 1e-5} | options
    one = tr.ExpectedGainRanker(loss, **options).fit(data)
    other = tr.cluster.Cluster(two.client).fit(tr.ExpectedGainRanker(loss, **options), data)
    close(other.coef_, one.coef_)
    assert other.solution_.iterations == one.solution_.iterations
    assert other.n_grades_ == one.n_grades_


def test_validation_chooses_the_same(two, data, valid, sources):
    path = {"l2": [1e-3, 1e-1, 10.0], "metric": "err@5"}
    one = tr.LinearRanker("ListNet", **path).fit(data, valid=valid)
    other = two.fit(tr.LinearRanker("ListNet", **path), sources["stored, 7 parts"](), valid=valid)
    assert other.l2_ == one.l2_
    assert [row["valid"] for row in other.path_] == pytest.approx([row["valid"] for row in one.path_], abs=1e-12)
    assert other.training_["valid"] == pytest.approx(one.training_["valid"], abs=1e-12)


def test_a_metric_that_is_blind_chooses_nothing(two, valid, sources):
    faint = valid.replace(labels=valid.labels / 8)
    ranker = tr.LinearRanker("ListNet", l2=[1.0, 0.1], metric="map")
    with pytest.raises(DataError, match="map has the same value for the best and the worst order"):
        two.fit(ranker, sources["stored, 7 parts"](), valid=faint)


@pytest.mark.parametrize("convention", ["standard", "letor4", "trec_eval", "lightgbm"])
def test_evaluation_is_that_of_one_machine(two, valid, alone, convention):
    named = valid.replace(document_ids=[f"d{i}" for i in range(valid.n_documents)])
    here = tr.evaluate(alone.predict(named), named, METRICS, convention=convention)
    there = two.evaluate(alone, named, METRICS, convention=convention)
    assert there.names == here.names
    assert (there.max_grade, there.n_documents) == (here.max_grade, here.n_documents)
    np.testing.assert_array_equal(there.qids, here.qids)
    for name in METRICS:
        np.testing.assert_allclose(there.per_query[name], here.per_query[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("unjudged", ["irrelevant", "condense", "drop"])
def test_unjudged_documents(two, valid, alone, unjudged):
    """The first partition has no judgment at all, so that condensing leaves nothing of it; weights count."""
    labels = np.array(valid.labels)
    labels[: valid.queries.offsets[valid.n_queries // 3]] = np.nan
    labels[valid.queries.offsets[-2]] = -1
    some = valid.replace(labels=labels, query_weights=np.arange(1.0, valid.n_queries + 1))
    options = {"unjudged": unjudged, "weighted": True}
    here = tr.evaluate(alone.predict(some), some, METRICS, **options)
    there = two.evaluate(alone, some, METRICS, **options)
    assert dict(there.mean) == pytest.approx(dict(here.mean), abs=1e-12)
    assert there.max_grade == here.max_grade
    with pytest.raises(DataError, match="unjudged"):
        two.evaluate(alone, some, METRICS)
    with pytest.raises(DataError, match=r"documents are unjudged"):
        two.fit(tr.LinearRanker(), some)


def test_predictions_come_in_order(two, data, alone, sources):
    placed = two.persist(sources["stored, 7 parts"]())
    np.testing.assert_array_equal(two.predict(alone, placed), alone.predict(data))
    np.testing.assert_array_equal(two.predict(alone, placed), alone.predict(data))  # and again, from what is there
    assert "90 queries" in repr(placed)


def test_predictions_written_by_the_workers(two, data, alone, sources, tmp_path):
    paths = two.write_predictions(alone, sources["stored, 7 parts"](), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"part-{n:05d}.scores" for n in range(len(paths))]
    np.testing.assert_array_equal(np.concatenate([tr.read_scores(path) for path in paths]), alone.predict(data))
    with pytest.raises(tr.ToprankError, match="gone"):
        two.write_predictions(alone, data, tmp_path / "gone")


def test_cut_queries_are_moved(two, data, folder):
    with pytest.warns(cluster.QueriesMovedWarning, match=r"queries \(.* rows were moved.*make the ids unique") as told:
        placed = two.persist(cluster.read(folder))
    assert told[0].filename == __file__
    assert placed.n_moved >= 1
    assert placed.n_queries == data.n_queries
    with pytest.raises(DataError, match="partitions must hold whole queries"):
        two.persist(cluster.read(folder, on_split_queries="none"))


def test_rows_in_any_order(two, data, alone):
    """A frame whose rows were shuffled: every partition has some of every query."""
    import dask.dataframe

    frame = to_frame(data, "pandas").sample(frac=1.0, random_state=0)
    shuffled = dask.dataframe.from_pandas(frame, npartitions=3, sort=False)
    with pytest.raises(DataError, match="on_split_queries='all'"):
        two.persist(shuffled, query_weight="query_weight")
    with pytest.warns(cluster.QueriesMovedWarning, match=f"{data.n_queries} queries"):
        placed = two.persist(shuffled, query_weight="query_weight", on_split_queries="all")
    sizes = [one.n_documents for one in placed.summaries]
    assert max(sizes) < 1.5 * data.n_documents / 3  # no worker gets them all
    ranker = two.fit(tr.LinearRanker("ListNet", l2=1e-2), placed)
    close(ranker.coef_, alone.coef_)


def write_parts(folder, *tables):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    for number, columns in enumerate(tables):
        parquet.write_table(pa.table(columns), folder / f"part-{number}.parquet")
    return cluster.read(folder)


def test_schema_drift(two, tmp_path):
    def place(*tables):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return two.persist(write_parts(folder, *tables))

    first = {"qid": [1, 1], "label": [0, 1], "a": [0.5, 1.5], "b": [1.0, 2.0]}
    reordered = {"b": [1.0, 3.0], "a": [0.1, 0.2], "label": [1, 0], "qid": [2, 2]}
    placed = place(first, reordered)  # by name, as on one machine
    assert placed.feature_names == ("a", "b")
    with pytest.raises(tr.ToprankError, match=r"part-1.parquet.*'b'"):
        place(first, {"qid": [2], "label": [1], "a": [0.5]})
    with pytest.raises(
        tr.ToprankError, match=r"part-1.parquet.*part-0.parquet does not have the column 'new' of this file"
    ):
        place(first, reordered | {"new": [1.0, 1.0]})
    with pytest.raises(tr.ToprankError, match=r"part-1.parquet.*'b' holds string"):
        place(first, {"qid": [2], "label": [1], "a": [0.5], "b": ["x"]})
    with pytest.raises(DataError, match=r"part-1.parquet.*'qid' holds string, but int64"):
        place(first, {**first, "qid": ["x", "x"]})
    with pytest.raises(DataError, match=r"no documents"):
        place({name: [] for name in first})
    for number, text in enumerate(["1 qid:1 1:0.5 2:1\n", "0 qid:2 1:0.25\n"]):
        (tmp_path / f"{number}.txt").write_text(text)
    files = [tmp_path / "0.txt", tmp_path / "1.txt"]
    with pytest.raises(DataError, match=r"1.txt differs from .*0.txt: it has 1 features instead of 2.*n_features="):
        two.persist(cluster.read(files))
    assert two.persist(cluster.read(files, n_features=2)).n_documents == 2
    files[0].write_text("0 qid:0 0:1 1:2\n")
    with pytest.raises(DataError, match=r"first column is feature 1 instead of 0. Pass first_feature_id=0"):
        two.persist(cluster.read(files, n_features=2))
    placed = two.persist(cluster.read(files, n_features=2, first_feature_id=0))
    assert placed.first_feature_id == 0
    with pytest.raises(tr.ToprankError, match=r"gone.txt"):
        two.persist(cluster.read([tmp_path / "gone.txt"]))


def test_what_needs_the_rows_here_is_refused(two, data):
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(DataError, match="active_set=True selects single documents"):
        two.fit(tr.LinearRanker("ImportanceWeightedSquared", active_set=True), data)
    with pytest.raises(DataError, match="A classifier needs data in memory"):
        two.fit(tr.ExpectedGainRanker(classifier=LogisticRegression()), data)
    with pytest.raises(DataError, match="uses random numbers by global document index"):
        two.fit(tr.LinearRanker("XENDCG"), data)


def test_the_current_client_is_found_and_left_open(two):
    found = cluster.connect()
    assert found.client is two.client
    found.close()
    assert two.client.status == "running"


@pytest.fixture(scope="module")
def mixed():
    """HessianProducts with categories, of which each part of the table has levels that others have not, and dates."""
    import pandas as pd

    rng = np.random.default_rng(3)
    n = 900
    brand = (np.arange(n) // 300 + rng.integers(0, 4, n)).astype(int)
    price = rng.gamma(2.0, 10.0, n)
    return pd.DataFrame(
        {
            "qid": np.repeat(np.arange(n // 10), 10),
            "label": np.clip(np.round(brand - price / 20 + rng.normal(0, 0.3, n)), 0, 3),
            "price": price,
            "brand": pd.Series([f"b{b}" for b in brand], dtype="str").where(rng.random(n) > 0.1),
            "added": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )


@pytest.mark.parametrize("way", ["memory", "files", "frame"])
def test_categories_are_the_same_on_a_cluster(two, mixed, way, tmp_path):
    import dask.dataframe

    data = tr.RankingData.from_frame(mixed)
    for number in range(3):
        mixed.iloc[300 * number : 300 * (number + 1)].to_parquet(tmp_path / f"{number}.parquet", index=False)
    given = {
        "memory": lambda: data,
        "files": lambda: cluster.read(tmp_path),
        "frame": lambda: dask.dataframe.from_pandas(mixed, npartitions=3, sort=False),
    }[way]()
    placed = two.persist(given)
    assert placed.encoding == data.encoding
    valid = tr.RankingData.from_frame(mixed.tail(200))
    options = {"l2": [1e-1, 1e-2]}
    there = two.fit(tr.LinearRanker("ListNet", **options), placed, valid=valid)
    alone = tr.LinearRanker("ListNet", **options).fit(data, valid=valid)
    assert there.columns_ == alone.columns_
    assert np.allclose(there.coef_, alone.coef_, rtol=1e-6, atol=1e-9)
    trees = two.fit(tr.TreeRanker("ListNet", n_trees=5, num_leaves=7, threads=1), placed, valid=valid)
    assert trees.encoding_ == data.encoding
    assert "cat_threshold" in trees.booster_.model_to_string()
    assert np.array_equal(two.predict(trees, given), trees.predict(data))


def test_titles_of_a_dask_frame_are_left_out_and_said(two, mixed):
    import dask.dataframe

    titled = mixed.assign(title=[f"thing {i}" for i in range(len(mixed))], shop="ours")
    frame = dask.dataframe.from_pandas(titled, npartitions=3, sort=False)
    with pytest.warns(ColumnsLeftOutWarning, match=r"'title' \(900 values in 900 cells\)"):
        placed = two.persist(frame)
    with pytest.warns(ColumnsLeftOutWarning):
        alone = tr.RankingData.from_frame(titled)
    assert (placed.feature_names, placed.encoding) == (alone.feature_names, alone.encoding)
    ranker = two.fit(tr.LinearRanker("ListNet", l2=0.1), placed)
    assert np.allclose(ranker.coef_, tr.LinearRanker("ListNet", l2=0.1).fit(alone).coef_, rtol=1e-6, atol=1e-9)
    asked = two.persist(frame, features=["price", "title"])
    assert len(asked.encoding.columns[1].levels) == len(mixed)
    # New products: other columns in another order, no labels, and brands that nobody knows.
    new = titled.drop(columns="label")[::-1].reset_index(drop=True).assign(further=1.0)
    new.loc[5, "brand"] = "new"
    there = two.persist(dask.dataframe.from_pandas(new[new.columns[::-1]], npartitions=2, sort=False), like=ranker)
    assert np.array_equal(two.predict(ranker, there), ranker.predict(new))


def test_a_dask_frame_carries_columns_along_also_where_a_query_is_cut(two, mixed):
    import dask.dataframe

    log = mixed.assign(device=np.where(mixed["qid"] % 2, "phone", "desk"), shown=np.arange(len(mixed)) % 10)
    frame = dask.dataframe.from_pandas(log, npartitions=4, sort=False)  # cuts queries at rows 225 and 675
    with pytest.warns(UserWarning, match="quer"):
        placed = two.persist(frame, metadata=["device", "shown"])
    parts = placed.rows.each(attrgetter("data"))
    assert placed.feature_names == ("price", "brand", "added")
    device = dict(zip(log["qid"], log["device"], strict=True))
    shown = {(row.qid, row.price): row.shown for row in log.itertuples()}
    for part in parts:
        assert [device[qid] for qid in part.qids] == part.metadata["device"].tolist()
        found = zip(part.qid.tolist(), part.X[:, 0].tolist(), strict=True)
        assert [shown[one] for one in found] == part.metadata["shown"].tolist()
    assert sum(part.n_documents for part in parts) == len(mixed)


def _write_products(path, n_rows, width):
    """A Parquet file of products in strips, with a category, missing values, a date and string ids."""
    import pyarrow as pa
    from pyarrow import parquet

    brands = np.array([f"brand {number}" for number in range(40)])
    worth = np.random.default_rng(0).normal(size=len(brands))
    writer = None
    for first in range(0, n_rows, 50_000):
        rng, n = np.random.default_rng([1, first]), min(50_000, n_rows - first)
        X, brand = rng.normal(size=(n, width - 2)).astype(np.float32), rng.integers(0, len(brands), n)
        liking = X[:, 0] - X[:, 1] + worth[brand] + rng.normal(0, 0.5, n)
        days = np.datetime64("2024-01-01") + rng.integers(0, 400, n).astype("timedelta64[D]")
        table = {
            "query_id": [f"query {row // 20}" for row in range(first, first + n)],
            "product_id": [f"p{row}" for row in range(first, first + n)],
            "relevance": np.clip(np.round(liking + 1), 0, 4),
            "brand": pa.array(brands[brand], mask=rng.random(n) < 0.1),
            "added": pa.array(days),
            **{f"f{place}": column for place, column in enumerate(X.T)},
        }
        strip = pa.table(table)
        writer = writer or parquet.ParquetWriter(path, strip.schema)
        writer.write_table(strip)
    writer.close()


@pytest.mark.nightly
@pytest.mark.parametrize(("n_rows", "width"), [(4_000, 8), (1_000_000, 50)])
def test_a_table_with_a_category_is_stored_and_trained_on_two_workers(two, tmp_path, n_rows, width):
    path, stored = tmp_path / "products.parquet", tmp_path / "products.toprank-data"
    _write_products(path, n_rows, width)
    done = CliRunner().invoke(app, ["convert", str(path), str(stored), "--quiet"])
    assert done.exit_code == 0, done.output
    data = tr.read(stored)
    assert (data.n_documents, data.n_features) == (n_rows, width)
    assert [data.encoding.columns[place].name for place in data.encoding.categories] == ["brand"]
    options = {"n_trees": 5, "num_leaves": 15, "threads": 1}
    parts = cluster.read(stored, partitions=4)
    trees = two.fit(tr.TreeRanker("LambdaRank", **options), parts)
    assert (trees.encoding_, trees.training_["documents"]) == (data.encoding, n_rows)
    assert "cat_threshold" in trees.booster_.model_to_string()
    assert np.array_equal(two.predict(trees, parts), trees.predict(data))
    linear = two.fit(tr.LinearRanker("ListNet", l2=0.1), parts)
    assert np.allclose(linear.coef_, tr.LinearRanker("ListNet", l2=0.1).fit(data).coef_, rtol=1e-5, atol=1e-8)
    trees.save(tmp_path / "m.toprank")
    new = data.select(np.arange(20)).to_frame().drop(columns="label")
    new["brand"] = new["brand"].astype(str).replace("brand 1", "a new brand")
    again = tr.load(tmp_path / "m.toprank")
    assert again.rank(new) == trees.rank(new)
    without = [place for place in range(data.n_features) if place not in data.encoding.categories]
    plain = tr.RankingData(data.X[:, without], data.labels, queries=data.queries, qids=data.qids)
    blind = tr.TreeRanker("LambdaRank", **options).fit(plain)
    seen, unseen = (tr.evaluate(one.predict(on), on).mean["ndcg@10"] for one, on in ((trees, data), (blind, plain)))
    assert seen > unseen + 0.02  # the category says something, and the trees hear it
