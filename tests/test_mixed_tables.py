"""Tables with categories, text, truth values and dates: the same numbers everywhere, and nothing dropped in silence."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scipy import sparse
from sklearn.base import clone
from typer.testing import CliRunner

import toprank as tr
from toprank.cli.commands import app
from toprank.data.concatenation import concatenate
from toprank.data.converting import convert
from toprank.data.dataset import RankingData
from toprank.data.encoding import MIN_CELLS, Column, Encoding, UnknownCategoriesWarning
from toprank.data.frames import from_frame
from toprank.data.frames.categories import ColumnsLeftOutWarning
from toprank.errors import DataError, FormatError
from toprank.rankers.seen_columns import SeenColumns

BRANDS = ("acme", "borg", "cola", "delta", "exo")


def shop(n=600, seed=0, **columns):
    """A table of products: what people meet, in small."""
    rng = np.random.default_rng(seed)
    brand, price = rng.integers(0, len(BRANDS), n), rng.gamma(2.0, 20.0, n)
    label = np.clip(np.round(brand / 2 - price / 60 + rng.normal(0, 0.3, n) + 1), 0, 3)
    days = pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    table = {
        "query_id": np.repeat(np.arange(n // 10), 10),
        "relevance": label,
        "product_id": [f"p{i}" for i in range(n)],
        "price": price,
        "brand": pd.Series(np.array(BRANDS)[brand], dtype="str").where(rng.random(n) > 0.1),
        "color": pd.Categorical(rng.choice(["red", "blue"], n)),
        "in_stock": rng.random(n) > 0.5,
        "added": days,
    }
    return pd.DataFrame(table | columns)


@pytest.fixture(scope="module")
def frame():
    return shop()


@pytest.fixture(scope="module")
def data(frame):
    return from_frame(frame)


@pytest.fixture(scope="module")
def trees(data):
    return tr.TreeRanker(n_trees=10, num_leaves=7, threads=1).fit(data)


# ---- what numbers columns become ----


def test_each_kind_of_column_becomes_the_numbers_that_are_stated(frame, data):
    assert data.feature_names == ("price", "brand", "color", "in_stock", "added")
    assert data.document_ids.tolist() == frame["product_id"].tolist()
    assert [column.kind for column in data.encoding.columns] == ["number", "text", "text", "number", "date"]
    codes = pd.Categorical(frame["brand"]).codes.astype(float)
    assert np.array_equal(data.X[:, 1], np.where(codes < 0, np.nan, codes), equal_nan=True)
    assert np.array_equal(data.X[:, 3], frame["in_stock"].astype(float))
    since = (frame["added"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    assert np.array_equal(data.X[:, 4], since)


def test_dates_are_days_since_1970_in_utc_whatever_their_unit():
    noon = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    days = (noon - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) / datetime.timedelta(days=1)
    paris = pa.array([noon, None]).cast(pa.timestamp("ns", "Europe/Paris"))
    table = {
        "zoned": paris,
        "seconds": paris.cast(pa.timestamp("s", "UTC")),
        "day": pa.array([noon.date(), None]),
        "age": pa.array([datetime.timedelta(hours=36), None]),
    }
    X = from_frame(pa.table({"qid": [1, 1], "label": [0, 1], **table})).X
    assert X[0].tolist() == [days, days, np.floor(days), 1.5]
    assert np.isnan(X[1]).all()


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_pandas_polars_and_arrow_give_the_same_data(frame, data, kind):
    made = {"pandas": frame, "polars": pl.from_pandas(frame), "arrow": pa.Table.from_pandas(frame)}[kind]
    assert from_frame(made).equals(data)


def test_tables_of_numbers_have_no_encoding():
    data = from_frame(pd.DataFrame({"qid": [1, 1], "label": [0, 1], "a": [0.5, 1.0], "b": [True, False]}))
    assert data.encoding is None


@pytest.mark.parametrize("name", ["product_id", "Item_ID", "sku", "asin"])
def test_ids_of_products_are_document_ids(name):
    table = {"qid": [1, 1], "label": [0, 1], "f": [0.0, 1.0], name: ["x", "y"]}
    assert from_frame(pd.DataFrame(table)).document_ids.tolist() == ["x", "y"]
    both = from_frame(pd.DataFrame(table | {"doc_id": ["a", "b"]}), features=["f"])
    assert both.document_ids.tolist() == ["a", "b"]


# ---- what is left out, and what is refused ----


def test_text_with_a_value_of_its_own_in_nearly_every_cell_is_left_out_once_and_said(frame):
    titled = frame.assign(title=[f"thing {i}" for i in range(len(frame))])
    with pytest.warns(ColumnsLeftOutWarning, match=r"'title' \(600 values in 600 cells\).*features=") as said:
        found = from_frame(titled)
    assert len(said) == 1
    assert "title" not in found.feature_names
    asked = from_frame(titled, features=["price", "title"])
    assert len(asked.encoding.columns[1].levels) == len(frame)
    declared = from_frame(titled.astype({"title": "category"}))
    assert "title" in declared.feature_names


def test_unusable_columns_are_named_at_once_in_the_words_of_their_library():
    arrow = pa.table({"qid": [1], "label": [0], "tags": [["a"]], "at": pa.array([5], pa.time32("s")), "f": [1.0]})
    with pytest.raises(DataError, match=r"'tags' \(list<item: string>\), 'at' \(time32\[s\]\).*features="):
        from_frame(arrow)
    with pytest.raises(DataError, match=r"'tags' \(List\(String\)\), 'at' \(Time\)"):
        from_frame(pl.from_arrow(arrow))
    spans = pd.DataFrame({"qid": [1, 1], "label": [0, 1], "f": pd.cut([1, 5], 2), "g": [object(), object()]})
    with pytest.raises(DataError, match=r"'f' \(category of .*interval.*\), 'g' \(object of object\)"):
        from_frame(spans)
    with pytest.raises(DataError, match=r"cannot be a feature: 'f' \(category of .*interval"):
        from_frame(spans.drop(columns="g"))


def test_columns_that_changed_their_type_or_went_are_named(trees, frame):
    changed = frame.assign(brand=1.5, price="cheap", color=frame["added"])
    with pytest.raises(DataError, match=r"Column 'price' holds .*, not numbers; column 'brand' .*float64.* 'color'"):
        trees.predict(changed)
    with pytest.raises(DataError, match="The columns 'price' and 'brand' of the training data are missing"):
        trees.predict(frame.drop(columns=["brand", "price"]))
    with pytest.raises(DataError, match="training data had no column 'size'"):  # which may be the price, renamed
        trees.predict(from_frame(frame.rename(columns={"price": "size"})))
    doubled = pd.concat([frame, frame[["brand"]]], axis=1)
    with pytest.raises(DataError, match="Two columns are called 'brand'"):
        trees.predict(doubled)


@pytest.mark.parametrize("empty", [np.nan, None, pd.NaT])
def test_a_column_without_a_value_fits_whatever_type_its_library_gave_it(trees, frame, empty):
    new = frame.head(30).assign(brand=empty, added=empty, price=empty)
    expected = frame.head(30).assign(brand="", added=pd.NaT, price=np.nan)
    assert np.array_equal(trees.predict(new), trees.predict(expected))


def test_a_category_that_was_empty_in_training_takes_any_category(frame):
    kinds = {"e": pd.Series([None] * len(frame), dtype="category"), "s": pd.Series([None] * len(frame), dtype="str")}
    ranker = tr.LinearRanker().fit(from_frame(frame.assign(**kinds)))
    few = frame.head(MIN_CELLS - 1)
    expected = tr.LinearRanker().fit(from_frame(frame)).predict(few)
    for later in ("x", 7, None):
        assert np.array_equal(ranker.predict(few.assign(e=later, s=later)), expected)


def test_roles_of_another_type_are_refused_in_the_words_of_the_library(frame):
    with pytest.raises(DataError, match="'relevance' has the role 'label' and must contain numbers, not str"):
        from_frame(frame.assign(relevance=frame["relevance"].astype("str")))
    with pytest.raises(DataError, match=r"'query_id' has the role 'qid' and must contain .* text, not Datetime"):
        from_frame(pl.from_pandas(frame.assign(query_id=frame["added"])))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas])
def test_labels_are_no_features(frame, library):
    for columns in (["price", "relevance"], ["price", "brand", "relevance"]):
        with pytest.raises(DataError, match="Column 'relevance' of X equals y, so the labels would leak"):
            tr.LinearRanker().fit(library(frame[columns]), frame["relevance"], frame["query_id"])
    other = frame.assign(relevance=frame["price"])
    tr.LinearRanker().fit(library(other[["price", "relevance"]]), frame["relevance"], frame["query_id"])


# ---- models ----


def test_trees_are_those_of_lightgbm_on_the_same_categories(frame, data):
    import lightgbm

    options = {"n_estimators": 12, "num_leaves": 7, "min_child_samples": 5, "random_state": 0, "n_jobs": 1}
    theirs = lightgbm.LGBMRanker(**options, deterministic=True, force_row_wise=True, verbose=-1)
    categories = frame.assign(brand=pd.Categorical(frame["brand"]), added=data.X[:, 4])[list(data.feature_names)]
    theirs.fit(categories, frame["relevance"].astype(int), group=data.queries.sizes)
    ours = tr.TreeRanker("lightgbm:lambdarank", n_trees=12, num_leaves=7, min_data_in_leaf=5, threads=1).fit(data)
    assert "cat_threshold" in ours.booster_.model_to_string()
    assert np.array_equal(ours.predict(frame), theirs.predict(categories))


def test_trees_send_unseen_and_missing_levels_the_same_way_as_lightgbm(trees, frame):
    strange = frame.head(40).assign(brand="a brand that nobody knows")
    empty = frame.head(40).assign(brand=None)
    with pytest.warns(UnknownCategoriesWarning):
        scores = trees.predict(strange)
    assert np.array_equal(scores, trees.predict(empty))
    rows = from_frame(empty, like=trees).X
    assert np.isnan(rows[:, 1]).all()
    assert np.array_equal(scores, trees.booster_.predict(rows))


def test_a_category_without_a_known_level_is_said_wherever_data_meet_a_model(tmp_path, trees, frame):
    strange = frame.head(MIN_CELLS).assign(brand=[name.upper() for name in (BRANDS * MIN_CELLS)[:MIN_CELLS]])
    strange.to_csv(tmp_path / "new.csv", index=False)
    said = r"'brand' holds 'ACME', 'BORG', 'COLA'( and \d more)?, not 'acme', 'borg', 'cola' and 2 more"
    doors = [
        lambda: trees.predict(strange),
        lambda: trees.rank(pl.from_pandas(strange)),
        lambda: trees.predict(from_frame(strange)),
        lambda: from_frame(strange, like=trees),
        lambda: tr.read(tmp_path / "new.csv", like=trees),
        lambda: convert(tmp_path / "new.csv", tmp_path / "new.toprank-data", like=trees),
    ]
    for door in doors:
        with pytest.warns(UnknownCategoriesWarning, match=said) as caught:
            door()
        assert len(caught) == 1
    trees.predict(strange.head(MIN_CELLS - 1))  # a few products may all be new
    trees.predict(strange.assign(brand=["acme", *strange["brand"][1:]]))
    trees.predict(strange.assign(brand=""))


def test_rank_takes_a_frame_and_finds_queries_and_ids_by_name(trees, frame):
    new = frame.drop(columns="relevance").sample(frac=1.0, random_state=0)
    ranked = trees.rank(new, k=3)
    assert ranked == trees.rank(from_frame(new, like=trees, regroup=True), k=3)
    score = dict(zip(new["product_id"], trees.predict(new), strict=True))
    for qid, products in new.groupby("query_id")["product_id"]:
        best = sorted((score[product] for product in products), reverse=True)[:3]
        assert [score[product] for product in ranked[qid]] == best
    with pytest.raises(DataError, match="rank needs queries"):
        trees.rank(np.zeros((2, 5)))


@pytest.mark.parametrize("values", [[1.0, 2.0, np.nan], [1.5, 2.0, np.nan], [True, False, None]])
def test_categories_of_numbers_are_the_same_whatever_type_they_have(tmp_path, values, frame):
    shown = pd.Series(values * 200)
    data = from_frame(frame.assign(size=shown.astype("category")))
    place = data.feature_names.index("size")
    codes = pd.Categorical(shown).codes.astype(float)
    assert np.array_equal(data.X[:, place], np.where(codes < 0, np.nan, codes), equal_nan=True)
    ranker = tr.LinearRanker().fit(data)
    plain = frame.assign(size=shown.astype(float))
    assert np.array_equal(ranker.predict(plain), ranker.predict(data))
    tr.write(data, tmp_path / "t.parquet")
    assert tr.read(tmp_path / "t.parquet").equals(data)
    ranker.save(tmp_path / "m.toprank")
    assert np.array_equal(tr.load(tmp_path / "m.toprank").predict(plain), ranker.predict(data))


def test_categories_of_dates_are_dates(frame, data):
    assert from_frame(frame.astype({"added": "category"})).equals(data)


@pytest.mark.parametrize(
    "ranker",
    [
        tr.LinearRanker(),
        tr.ExpectedGainRanker(),
        tr.TreeRanker(n_trees=5, threads=1),
        tr.AdaRank(),
        tr.BlendRanker([tr.LinearRanker(), tr.TreeRanker(n_trees=5, threads=1)]),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_a_saved_model_gives_the_same_scores_for_new_tables(tmp_path, frame, ranker):
    data = from_frame(frame)
    new = shop(100, seed=5)
    new.loc[:5, "brand"] = "unheard of"
    model = clone(ranker).fit(data)
    model.save(tmp_path / "m.toprank")
    read = tr.load(tmp_path / "m.toprank")
    scores = model.predict(from_frame(new, like=model))
    shuffled = new[new.columns[::-1]]
    for scored in (model, read):
        assert np.array_equal(scored.predict(shuffled), scores)
        assert np.array_equal(scored.predict(from_frame(new)), scores)  # codes of their own, translated
        assert np.array_equal(scored.predict(pl.from_pandas(new)), scores)
    assert read.rank(from_frame(new, like=read)) == model.rank(from_frame(new))
    if hasattr(model, "feature_importances_"):
        assert len(model.feature_importances_) == data.n_features


def test_a_frame_with_labels_and_queries_apart_trains_the_same_model(frame, data):
    X = frame[list(data.feature_names)]
    model = tr.LinearRanker().fit(X, frame["relevance"], qid=frame["query_id"])
    assert np.array_equal(model.coef_, tr.LinearRanker().fit(data).coef_)
    valid = (X, frame["relevance"], frame["query_id"])
    both = tr.LinearRanker(l2=[1.0, 0.1]).fit(data, valid=(valid[0].tail(200), *(one.tail(200) for one in valid[1:])))
    assert "valid" in both.training_
    assert model.rank(X, qid=frame["query_id"]) == model.rank(data.replace(document_ids=None))


def test_one_hot_gives_rare_levels_one_column_and_unknown_ones_none():
    levels = [f"l{i:02}" for i in range(4)]
    codes = np.repeat([0.0, 1.0, 2.0, 3.0, np.nan], [MIN_CELLS, MIN_CELLS + 5, MIN_CELLS - 1, 1, 3])
    encoding = Encoding((Column("c", "text", tuple(levels)), Column("x")))
    X = np.column_stack([codes, np.arange(len(codes))])
    wide = SeenColumns.from_counts(encoding, encoding.counts(X), lambda: X.mean(axis=0), sparse=False)
    assert wide.names == ("x", "c=l00", "c=l01", "c=(other)")
    expected = [codes == 0, codes == 1, (codes == 2) | (codes == 3)]
    assert np.array_equal(wide.columns(X), np.column_stack([X[:, 1], *expected]))
    assert SeenColumns.from_plain(encoding, wide.plain()) == wide


def test_refined_least_squares_see_the_columns_of_levels_by_hand(frame, data):
    """Its rounds score the training data, whose columns are those of levels already."""
    options = {"l2": 1e-3, "active_set": True}
    ranker = tr.LinearRanker("ImportanceWeightedSquared", **options).fit(data)
    columns = ranker.columns_
    assert "brand=acme" in columns.names
    wide = RankingData(columns.columns(data.X), data.labels, qid=data.qid)
    by_hand = tr.LinearRanker("ImportanceWeightedSquared", **options).fit(wide)
    np.testing.assert_allclose(ranker.predict(frame), by_hand.predict(wide), rtol=1e-9)
    assert ranker.active_ == by_hand.active_


def test_many_levels_are_sparse_and_score_like_dense_ones():
    rng = np.random.default_rng(0)
    n, levels = 6000, 200
    maker = rng.integers(0, levels, n)
    table = pd.DataFrame(
        {
            "qid": np.repeat(np.arange(n // 20), 20),
            "maker": [f"m{i}" for i in maker],
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D"),
        }
    )
    table["label"] = (np.arange(levels)[maker] % 4 + rng.normal(0, 0.5, n)).round().clip(0, 4)
    data = from_frame(table)
    model = tr.LinearRanker(target_encoding=False).fit(data)
    assert model.columns_.center is not None
    assert hasattr(model.columns_.columns(data.X), "tocsr")
    assert model.score(data) > 0.9
    dense = SeenColumns(model.encoding_, model.columns_.kept).columns(data.X)
    centered = np.column_stack([dense[:, :1] - np.array(model.columns_.center), dense[:, 1:]])
    assert np.array_equal(model.columns_.columns(data.X).toarray(), centered)


# ---- round trips ----

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | TEXT, min_size=1, max_size=20), st.lists(st.none() | TEXT, min_size=1, max_size=9))
def test_codes_mean_the_same_level_after_a_round_trip(values, later):
    def table(cells):
        n = len(cells)
        return pa.table(
            {"qid": [1] * n, "label": [0.0] * n, "f": np.arange(n) * 0.5, "c": pa.array(cells, pa.string())}
        )

    data = from_frame(table(values), features=["f", "c"])
    column = data.encoding.columns[1]
    back = Encoding.from_plain(data.encoding.plain())
    assert back == data.encoding
    assert from_frame(data.to_frame("arrow")).equals(data)
    again = from_frame(table(later).select(["c", "f", "label", "qid"]), like=back)
    for cell, code in zip(later, again.X[:, 1].tolist(), strict=True):
        known = cell in column.levels
        assert (column.levels[int(code)] == cell) if known else np.isnan(code)
    own = from_frame(table(later), features=["c", "f"])
    assert np.array_equal(back.translated(own.X, own.encoding), again.X, equal_nan=True)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8), st.lists(st.sampled_from("abcdef"), min_size=1))
def test_parts_with_other_levels_are_joined_by_level(first, second):
    def part(cells, qid):
        table = pa.table({"qid": [qid] * len(cells), "label": [0.0] * len(cells), "c": cells})
        return from_frame(table, features=["c"])

    whole = concatenate([part(first, 1), part(second, 2)])
    levels = whole.encoding.columns[0].levels
    assert [levels[int(code)] for code in whole.X[:, 0]] == first + second
    assert levels == tuple(sorted({*first, *second}))
    assert whole.select([1]).encoding == whole.encoding


def test_categories_of_whole_numbers_are_found_by_number(frame):
    stores = np.arange(len(frame)) % 7 * 10
    data = from_frame(frame.assign(store=pd.Categorical(stores)))
    column = data.encoding.columns[-1]
    assert column.levels == ("0", "10", "20", "30", "40", "50", "60")
    again = from_frame(frame.assign(store=stores.astype(float)), like=data)
    assert again.equals(data)
    with pytest.raises(DataError, match=r"Column 'store' holds str.*, not categories by number"):
        from_frame(frame.assign(store="ten"), like=data)


# ---- files ----


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_durations_and_numbered_categories_come_back_from_files(tmp_path, suffix):
    ages = pd.to_timedelta([1.5, None, 3.25, 0], unit="D")
    table = pd.DataFrame(
        {"qid": [1, 1, 2, 2], "label": [0, 1, 0, 1], "age": ages, "shop": pd.Categorical([30, 4, 4, 30])}
    )
    data = from_frame(table)
    assert data.X.tolist()[0] == [1.5, 1.0]
    tr.write(data, tmp_path / f"x.{suffix}")
    assert tr.read(tmp_path / f"x.{suffix}", like=data).equals(data)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
def test_files_give_the_data_of_the_frame(tmp_path, frame, data, suffix):
    path = tmp_path / f"shop.{suffix}"
    tr.write(data, path)
    read = tr.read(path)
    assert read.encoding == data.encoding
    assert np.array_equal(read.X, data.X, equal_nan=True)
    stored = convert(path, tmp_path / "shop.toprank-data")
    assert stored.encoding == data.encoding
    assert stored.fingerprint == data.fingerprint if suffix != "csv" else True
    assert tr.read(tmp_path / "shop.toprank-data", verify=True).equals(read)
    with pytest.raises(DataError, match="LETOR text supports only numbers"):
        tr.write(data, tmp_path / "shop.txt")


def test_files_of_one_table_share_their_levels(tmp_path, frame, data):
    halves = [frame.head(300), frame.tail(300)]
    for number, half in enumerate(halves):
        half.to_parquet(tmp_path / f"part-{number}.parquet", index=False)
    assert tr.read([tmp_path / "part-0.parquet", tmp_path / "part-1.parquet"]).equals(data)
    assert tr.read(tmp_path / "part-1.parquet", like=data).equals(data.select(np.arange(30, 60)))
    copies = []
    for number in range(2):
        copies.append(tmp_path / f"{number}.toprank-data")
        convert(tmp_path / f"part-{number}.parquet", copies[-1])
    assert tr.read(copies).equals(data)
    wrong = halves[1].assign(brand=np.arange(300))
    wrong.to_parquet(tmp_path / "part-1.parquet", index=False)
    with pytest.raises(FormatError, match=r"part-1.parquet: Column 'brand' holds int64, not categories by text, as in"):
        tr.read([tmp_path / "part-0.parquet", tmp_path / "part-1.parquet"])


def test_a_damaged_mapping_is_refused(tmp_path, data):
    for wrong in ({}, None, [{"name": "a"}], [{"name": "a", "kind": "text", "levels": ["x", "x"]}]):
        with pytest.raises(DataError):
            Encoding.from_plain(wrong)
    with pytest.raises(DataError, match="numbers in order"):
        Encoding.from_plain([{"name": "a", "kind": "whole", "levels": ["2", "1"]}])
    with pytest.raises(DataError, match="do not match their levels"):
        SeenColumns.from_plain(data.encoding, {"kept": [[0], [99]], "center": None})


def test_commands_train_predict_rank_and_evaluate_mixed_tables(tmp_path, frame):
    def run(*arguments):
        result = CliRunner().invoke(app, [*map(str, arguments), "--quiet"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    train, new = tmp_path / "train.parquet", tmp_path / "new.csv"
    frame.to_parquet(train, index=False)
    later = shop(100, seed=3).assign(tags="x")[::-1]
    later.loc[later.index[:4], "brand"] = "unheard of"
    later[later.columns[::-1]].to_csv(new, index=False)
    model, scores = tmp_path / "m.toprank", tmp_path / "new.scores"
    held_out = tmp_path / "valid.csv"
    shop(200, seed=8).to_csv(held_out, index=False)
    run("train", train, "--system", "ListNet", "--valid", held_out, "-o", model)
    run("predict", model, new, "-o", scores)
    ranker = tr.load(model)
    assert np.allclose(np.loadtxt(scores), ranker.predict(later), rtol=1e-12)
    assert later["product_id"].iloc[0] in run("rank", model, new)
    listed = tmp_path / "listed.parquet"
    parquet.write_table(pa.Table.from_pandas(later.assign(tags=[["a"]] * 100)), listed)  # no feature is read
    assert "ndcg@10" in run("evaluate", listed, scores)
    assert isinstance(RankingData.from_frame(later, like=ranker).encoding, Encoding)


# ---- parts that do not fit together ----


def test_codes_of_categories_are_kept_dense():
    data = from_frame(pd.DataFrame({"qid": [1, 1], "label": [0, 1], "brand": pd.Categorical(["x", "y"])}))
    with pytest.raises(DataError, match=r"categories, dates or durations are kept dense; give X\.toarray\(\)"):
        data.replace(X=sparse.csr_matrix(data.X))


def test_parts_of_which_some_have_more_columns_say_which():
    def part(qid, **more):
        return from_frame(pd.DataFrame({"qid": [qid, qid], "label": [0, 1], "price": [1.0, 2.0], **more}))

    with pytest.raises(DataError, match=r"Not all parts have a column 'size'.*like=first"):
        concatenate([part(1), part(2, size=[1.0, 2.0])])
    with pytest.raises(DataError, match=r"Not all parts have columns 'size' and 'tall'"):
        concatenate([part(1, tall=[1.0, 2.0]), part(2, size=[1.0, 2.0])])


def test_warnings_point_to_the_line_that_asked():
    table = pd.DataFrame({"qid": [1] * 20, "label": [0, 1] * 10, "brand": ["x", "y"] * 10})
    with pytest.warns(ColumnsLeftOutWarning) as left_out:
        from_frame(table.assign(title=[f"t{row}" for row in range(20)]))
    with pytest.warns(UnknownCategoriesWarning) as unknown:
        tr.LinearRanker("ListNet").fit(from_frame(table)).predict(table.assign(brand="z"))
    assert {one.filename for one in (*left_out, *unknown)} == {__file__}
