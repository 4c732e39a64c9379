"""Metadata columns: they follow their rows wherever these go, into files and back."""

from __future__ import annotations

import datetime
import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toprank as tr
from toprank.data.frames.categories import ColumnsLeftOutWarning
from toprank.data.frames.metadata import infer_types
from toprank.data.store.writing import VERSION

LOG = {
    "qid": [1, 1, 2, 3, 3],
    "label": [0, 1, 2, 0, 1],
    "bm25": [0.1, 0.2, 0.3, 0.4, 0.5],
    "device": ["phone", "phone", "desk", None, None],
    "date": [datetime.date(2024, 1, day) for day in (1, 1, 2, 3, 4)],
    "logged_in": [True, True, False, True, True],
    "asked": [7, 7, None, 4, 4],
}
METADATA = ("device", "date", "logged_in", "asked")


@pytest.fixture
def data():
    return tr.RankingData.from_frame(pa.table(LOG), metadata=METADATA)


def by_document(data, name):
    """The column with one value for each document, as a list."""
    column = data.metadata[name]
    return (data.queries.broadcast(column) if len(column) == data.n_queries else column).tolist()


def test_columns_are_held_for_each_query_where_its_documents_agree(data):
    assert data.n_features == 1
    assert tuple(data.metadata) == METADATA
    assert data.metadata["device"].tolist() == ["phone", "desk", ""]
    assert data.metadata["date"].tolist() == LOG["date"]
    assert data.metadata["logged_in"].tolist() == ["true", "false", "true"]
    np.testing.assert_array_equal(data.metadata["asked"], [7, np.nan, 4])
    with pytest.raises(tr.ToprankError, match="no metadata column called 'devise'; did you mean 'device'"):
        data.metadata["devise"]
    assert "devise" not in data.metadata
    with pytest.raises(ValueError, match="read-only"):
        data.metadata["device"][0] = "desk"


@pytest.mark.parametrize("frame_of", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_of_all_kinds_carry_the_same(data, frame_of):
    made = tr.RankingData.from_frame(frame_of(LOG), metadata=METADATA)
    assert {name: made.metadata[name].dtype.kind for name in METADATA} == dict(zip(METADATA, "UMUf", strict=True))
    assert all(by_document(made, name)[:2] == by_document(data, name)[:2] for name in METADATA)


@pytest.mark.parametrize("name", ["log.parquet", "log.feather", "log.csv", "log.csv.gz", "log.toprank-data"])
def test_files_give_them_back_and_conversions_carry_them(data, tmp_path, name):
    tr.write(data, tmp_path / name)
    options = {"metadata": METADATA} if ".csv" in name else {}
    read = tr.read(tmp_path / name, **options)
    assert read.equals(data)
    assert read.fingerprint == data.fingerprint
    converted = tr.convert(tmp_path / name, tmp_path / "copy.toprank-data", **options)
    assert converted.equals(data)
    tr.write(read, tmp_path / "whole.toprank-data")
    for file in (tmp_path / "whole.toprank-data").glob("*.npy"):
        assert file.read_bytes() == (tmp_path / "copy.toprank-data" / file.name).read_bytes()
    assert tr.read(tmp_path / "copy.toprank-data", verify=True).equals(data)


def test_a_table_of_ours_remembers_what_it_carries_and_may_leave_it(data, tmp_path):
    tr.write(data, tmp_path / "log.parquet")
    assert tuple(tr.read(tmp_path / "log.parquet", metadata=["date"]).metadata) == ("date",)
    bare = tr.read(tmp_path / "log.parquet", metadata=[])
    assert not bare.metadata
    assert bare.n_features == 1
    both = tr.read(tmp_path / "log.parquet", features=["bm25", "asked"])
    assert both.feature_names == ("bm25", "asked")
    assert tuple(both.metadata) == ("device", "date", "logged_in")


def test_scattered_rows_take_their_columns_along(data):
    shuffled = tr.RankingData.from_frame(pa.table(LOG).take([3, 0, 2, 4, 1]), metadata=METADATA, regroup=True)
    assert shuffled.qids.tolist() == [3, 1, 2]
    assert shuffled.metadata["device"].tolist() == ["", "phone", "desk"]
    assert by_document(shuffled, "date") == [LOG["date"][row] for row in (3, 4, 0, 1, 2)]


def test_stored_copies_are_read_as_one_also_where_a_query_meets_itself(data, tmp_path):
    halves = data.filter(np.arange(5) < 4), data.filter(np.arange(5) >= 4)
    for number, half in enumerate(halves):
        tr.write(half, tmp_path / f"{number}.toprank-data")
    paths = [tmp_path / "0.toprank-data", tmp_path / "1.toprank-data"]
    assert tr.read(paths).equals(data)
    assert tr.convert(paths, tmp_path / "all.toprank-data").equals(data)
    tr.write(halves[1].replace(metadata={}), paths[1])
    with pytest.raises(tr.ToprankError, match="is metadata in only one of this copy"):
        tr.read(paths)


def test_copies_have_one_version_whatever_they_carry(data, tmp_path):
    for held in (data, data.replace(metadata={})):
        tr.write(held, tmp_path / "x.toprank-data")
        assert f'"version": {VERSION}' in (tmp_path / "x.toprank-data" / "meta.json").read_text()
    tr.write(data, tmp_path / "x.toprank-data")
    (tmp_path / "x.toprank-data" / "carried.1.npy").unlink()
    with pytest.raises(tr.ToprankError, match="damaged"):
        tr.read(tmp_path / "x.toprank-data")


def test_they_survive_pickling_and_count_for_equality(data):
    again = pickle.loads(pickle.dumps(data))
    assert again.equals(data)
    bare = data.replace(metadata={})
    assert not bare.equals(data)
    assert pickle.loads(pickle.dumps(bare)).fingerprint == bare.fingerprint
    assert not data.replace(metadata={"gadget": data.metadata["device"]}).equals(data)
    assert data.replace(labels=data.labels + 1).metadata["device"].tolist() == ["phone", "desk", ""]
    assert list(data.without_features().metadata) == list(METADATA)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": [1, 2]}, "has 2 values for 5 documents in 3 queries"),
        ({"": [1, 2, 3]}, "name of a metadata column must be a non-empty string"),
        ({"a": [[1], [2], [3]]}, "must be one-dimensional"),
        ({"a": [1j, 2j, 3j]}, "give text, numbers, booleans or dates"),
        ({"a": ["x", 2, datetime.date(2024, 1, 1), None, 3]}, "mixes the types date, int, str"),
        (["device"], "must be a mapping"),
    ],
)
def test_what_cannot_be_carried_is_refused_in_a_sentence(data, given, said):
    if "a" in given and given["a"][0] == "x":
        given = {"a": np.array(given["a"], dtype=object)}
    with pytest.raises(tr.ToprankError, match=said):
        data.replace(metadata=given)


def test_columns_of_a_table_that_cannot_be_carried(tmp_path):
    table = pa.table(LOG).append_column("terms", [[["a"]] * 5])
    with pytest.raises(tr.ToprankError, match=r"'terms' holds list.* cannot be metadata"):
        tr.RankingData.from_frame(table, metadata=(*METADATA, "terms"))
    with pytest.raises(tr.ToprankError, match="no column called 'devise'; did you mean 'device'"):
        tr.RankingData.from_frame(pa.table(LOG), metadata=["devise"])
    with pytest.warns(ColumnsLeftOutWarning, match=r"for splits and slices, use metadata=\['device'\]"):
        tr.RankingData.from_frame(pa.table(LOG))
    with pytest.raises(tr.ToprankError, match="two roles"):
        tr.RankingData.from_frame(pa.table(LOG), features=["bm25", "asked"], metadata=METADATA)
    held = tr.RankingData.from_frame(pa.table(LOG), metadata=METADATA)
    clash = held.replace(feature_names=["device"])
    with pytest.raises(tr.ToprankError, match="A feature and a metadata column are both called 'device'"):
        tr.write(clash, tmp_path / "x.parquet")


def test_what_text_means_is_told_by_how_all_of_it_is_written():
    assert infer_types(np.array(["7", "-12"])).tolist() == [7, -12]
    assert infer_types(np.array(["07", "12"])).dtype.kind == "f"
    assert infer_types(np.array(["2024-05-31 10:00", ""])).dtype == "datetime64[us]"
    assert infer_types(np.array(["2024-02-31"])).tolist() == ["2024-02-31"]
    assert infer_types(np.array(["", ""])).tolist() == ["", ""]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1234567890123456789", "-7", "0"], [1234567890123456789, -7, 0]),
        (["9223372036854775807", "-9223372036854775808", "0"], [2**63 - 1, -(2**63), 0]),
        (["9223372036854775809", "1", "2"], ["9223372036854775809", "1", "2"]),  # beyond 64 bits: digits as text
        (["12345678901234567890123", "1", "2"], ["12345678901234567890123", "1", "2"]),
        (["9007199254740993", "", "1"], ["9007199254740993", "", "1"]),  # a float for the empty cell would round
        (["9007199254740992", "", "1.5"], [2.0**53, None, 1.5]),
    ],
)
def test_long_whole_numbers_in_csv_keep_their_digits(tmp_path, cells, expected):
    rows = "".join(f"{query},{query % 2},0.5,{cell}\n" for query, cell in enumerate(cells))
    (tmp_path / "log.csv").write_text("qid,label,x,session\n" + rows)
    found = tr.read(tmp_path / "log.csv", metadata=["session"]).metadata["session"].tolist()
    assert [None if value != value else value for value in found] == expected
    assert [type(value) for value in found if value == value] == [
        type(value) for value in expected if value is not None
    ]


def test_parts_that_carry_different_columns_are_not_joined(data):
    first, rest = data.select([0]), data.select([1, 2])
    assert tr.concatenate([first, rest]).equals(data)
    with pytest.raises(tr.ToprankError, match="Some parts have the metadata column 'asked'"):
        tr.concatenate([first.replace(metadata={}), rest])
    with pytest.raises(tr.ToprankError, match="'device' has different types in different parts"):
        tr.concatenate([first.replace(metadata=dict(first.metadata) | {"device": [1]}), rest])


@st.composite
def logs(draw):
    """Data whose columns tell the number of each document and of its query."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=3, max_size=8))
    n = sum(sizes)
    qid = np.repeat(np.arange(len(sizes)), sizes)
    metadata = {"row": np.arange(n), "words": [f"q{q}" for q in qid], "query": qid.astype(float)}
    return tr.RankingData(np.arange(n, dtype=float)[:, None], np.arange(n) % 3, qid=qid, metadata=metadata)


@given(logs(), st.data())
def test_columns_follow_their_rows_through_any_sequence_of_parts_and_joins(data, choices):
    for _ in range(choices.draw(st.integers(1, 5))):
        step = choices.draw(st.sampled_from(["select", "filter", "split", "swap", "replace", "time"]))
        if step == "select":
            data = data.select(choices.draw(st.permutations(range(data.n_queries)))[: max(1, data.n_queries - 1)])
        elif step == "filter":
            mask = choices.draw(st.lists(st.booleans(), min_size=len(data), max_size=len(data)))
            data = data.filter(np.array([True, *mask[1:]]))
        elif step in ("split", "time") and data.n_queries > 1:
            by = {"time_column": "query"} if step == "time" else {"seed": 3}
            data = tr.concatenate(tr.split(data, (0.5, 0.5), **by)[::-1])
        elif step == "swap" and data.n_queries > 1:
            cut = choices.draw(st.integers(1, data.n_queries - 1))
            numbers = np.arange(data.n_queries)
            data = tr.concatenate([data.select(numbers[cut:]), data.select(numbers[:cut])])
        elif step == "replace":
            data = data.replace(labels=data.labels)
    assert by_document(data, "row") == data.X[:, 0].tolist()
    assert data.metadata["words"].tolist() == [f"q{q}" for q in data.qids]
    assert data.metadata["query"].tolist() == data.qids.tolist()
    alone = data.queries.sizes.max() == 1
    assert len(data.metadata["row"]) == (data.n_queries if alone else data.n_documents)


# By time


def dated(dates, sizes=None):
    """Queries with these dates, given for each query or each document."""
    sizes = np.ones(len(dates), int) if sizes is None else sizes
    n = int(np.sum(sizes))
    return tr.RankingData(np.zeros((n, 1)), np.zeros(n), queries=tr.Queries.from_sizes(sizes), metadata={"date": dates})


@given(st.lists(st.integers(0, 12), min_size=5, max_size=40).filter(lambda days: len(set(days)) > 4), st.integers(1, 3))
def test_training_comes_before_validation_before_test(days, k):
    data = dated(np.datetime64("2024-01-01") + np.array(days))
    parts = tr.split(data, (0.5, 0.25, 0.25), time_column="date")
    assert sorted(np.concatenate([part.qids for part in parts])) == list(range(len(days)))
    folds = [(fold.train, fold.valid, fold.test) for fold in tr.folds(data, k=k, time_column="date")]
    for one in (parts, *folds):
        spans = [(part.metadata["date"].min(), part.metadata["date"].max()) for part in one]
        assert all(before[1] < after[0] for before, after in pairwise(spans))
    for before, after in pairwise(folds):  # the window expands by what was validated on
        assert after[0].equals(data.select(np.isin(data.qids, [*before[0].qids, *before[1].qids])))
        assert after[1].equals(before[2])


def test_shares_are_kept_where_every_query_has_its_own_date():
    data = dated(np.random.default_rng(0).permutation(20))
    assert [part.n_queries for part in tr.split(data, time_column="date")] == [12, 4, 4]
    assert [fold.train.n_queries for fold in tr.folds(data, k=3, time_column="date")] == [4, 8, 12]


def test_a_query_goes_by_its_latest_date_and_training_holds_nothing_later():
    data = dated([1, 9, 2, 2, 8, 8], sizes=[2, 2, 2])
    first, second = tr.split(data, (1 / 3, 2 / 3), time_column="date")
    assert (first.qids.tolist(), second.qids.tolist()) == ([1], [0, 2])
    assert first.metadata["date"].max() == 2


@pytest.mark.parametrize(
    ("dates", "sizes", "said"),
    [
        ([4] * 6, None, "same value everywhere"),
        ([1, 1, 2, 2], None, "only 2 distinct dates, too few for 3 consecutive parts"),
        ([1, 7, 1, 8, 1, 9], [2, 2, 2], "also have earlier documents, so these queries cannot be split by time"),
        (["soon", "late", "now"], None, "text that is not a date, such as 'soon'"),
        ([1.0, float("nan"), 2.0], None, "Query 1 has no value in the column 'date'"),
    ],
)
def test_columns_that_do_not_divide_time_are_refused(dates, sizes, said):
    with pytest.raises(tr.ToprankError, match=said):
        tr.split(dated(dates, sizes), time_column="date")


def test_what_else_is_refused_by_time(tmp_path, data):
    with pytest.raises(
        tr.ToprankError, match=r"have no metadata column 'date' to split by. Read them from a table with metadata="
    ):
        tr.split(data.replace(metadata={}), time_column="date")
    with pytest.raises(tr.ToprankError, match="no metadata column called 'dates'; did you mean 'date'"):
        tr.folds(data, k=1, time_column="dates")
    with pytest.raises(tr.ToprankError, match="split by time is not random"):
        tr.split(data, seed=1, time_column="date")
    tr.write(data, tmp_path / "train.txt")
    with pytest.raises(tr.ToprankError, match="has predefined folds; time_column='date' applies only"):
        tr.folds(tmp_path, time_column="date")


def test_folds_by_time_of_a_table_need_no_further_word(tmp_path):
    pd.DataFrame({"qid": range(9), "label": 0, "x": 0.5, "day": range(9)}).to_parquet(tmp_path / "log.parquet")
    fold = tr.folds(tmp_path / "log.parquet", k=1, time_column="day")[0]
    assert [part.metadata["day"].tolist() for part in (fold.train, fold.valid, fold.test)] == [
        [0, 1, 2], [3, 4, 5], [6, 7, 8],
    ]  # fmt: skip
    assert fold.train.feature_names == ("x",)
