"""Click logs in and out: tables, frames, JSON lines, UBI, Yandex; what is merged, counted and refused."""

import gzip
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toprank as tr
from toprank.clicks import PBM, ClickLog, read, simulate, write
from toprank.clicks.events import shown_at
from toprank.clicks.log import numbered
from toprank.errors import DataError, FormatError, UnknownNameError


def plain(log):
    """A log as rows that do not depend on how ids are numbered."""
    ids = np.arange(log.n_sessions) if log.session_ids is None else log.session_ids
    rows = zip(
        ids[log.session].astype(str), log.qids[log.query].astype(str), log.document_ids[log.pair].astype(str),
        log.position.tolist(), log.clicks.tolist(), strict=True,
    )  # fmt: skip
    return [tuple(row) for row in rows]


def columns(log):
    return {name: values.tolist() for name, values in log.columns.items()}


@pytest.fixture(scope="module")
def log():
    data = tr.synthetic(n_queries=30, seed=0)
    scores = {"old": data.X[:, 0], "new": data.X[:, 1]}
    return simulate(data, scores, PBM.known([1, 0.5, 0.3, 0.2]), 300, k=4, exploration=0.3)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.csv.gz", "log.tsv", "log.arrow"])
def test_what_is_written_reads_back(name, log, tmp_path):
    write(log, tmp_path / name)
    again = read(tmp_path / name)
    assert plain(again) == plain(log)
    assert columns(again) == columns(log)
    assert again.qids.dtype.kind == "i"


ids = st.one_of(st.integers(-3, 12), st.text("ab, \"'é\t", min_size=1, max_size=3).filter(str.strip))
rows = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 6), st.booleans()), min_size=1, max_size=40
)


@given(rows=rows, words=st.booleans(), order=st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_shuffled_rows_give_the_same_log(rows, words, order):
    def made(rows):
        session, document, place, click = map(np.array, zip(*rows, strict=True))
        names = [f"d {one}" if words else int(one) for one in document]
        return ClickLog.of([f"q{one % 2}" for one in session], names, place, click, session=session)

    mixed = list(rows)
    order.shuffle(mixed)
    one, two = made(rows), made(mixed)
    assert plain(one) == plain(two)
    assert one.left_out == two.left_out
    assert (one.pair == two.pair).all()
    assert (one.offsets == two.offsets).all()


@given(values=st.lists(ids, min_size=1, max_size=6, unique_by=str), kind=st.sampled_from(["parquet", "csv"]))
@settings(max_examples=40)
def test_any_ids_come_back(values, kind, tmp_path_factory):
    texts = [str(value) for value in values]
    log = ClickLog.of(texts, texts[::-1], [1] * len(texts), [0] * len(texts), session=texts)
    path = tmp_path_factory.mktemp("ids") / f"log.{kind}"
    write(log, path)
    again = read(path)
    assert sorted(plain(again)) == sorted(plain(log))


@given(st.lists(st.integers(-(2**62), 2**62), max_size=30) | st.lists(st.integers(-100, 100), max_size=30))
def test_ids_are_numbered_in_their_order(values):
    array = np.array(values, dtype=np.int64)
    ids, number = np.unique(array, return_inverse=True)
    for found in (numbered(array), numbered(pa.chunked_array([array[:7], array[7:]]))):
        assert found.ids.tolist() == ids.tolist()
        assert found.number.tolist() == number.tolist()


def test_narrow_whole_numbers_do_not_overflow():
    array = np.array([-128, 127, 0, 127], dtype=np.int8)
    assert numbered(array).number.tolist() == [0, 2, 1, 2]


def test_frames_and_json_lines(log, tmp_path):
    write(log, tmp_path / "log.parquet")
    frame = pd.read_parquet(tmp_path / "log.parquet")
    frame.to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress((tmp_path / "log.jsonl").read_bytes()))
    sources = [frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), tmp_path / "log.jsonl"]
    for source in [*sources, tmp_path / "log.jsonl.gz", dict(frame)]:
        assert plain(read(source)) == plain(log)


def test_other_names_and_what_goes_along(log, tmp_path):
    write(log, tmp_path / "log.parquet")
    frame = pd.read_parquet(tmp_path / "log.parquet")
    frame = frame.rename(columns={"query": "words", "document": "page", "position": "row", "click": "hit"})
    frame["device"], frame["client_id"], frame["row"] = "phone", "me", frame["row"] - 1
    with pytest.raises(DataError, match=r"No column looks like the query\. The columns are: session, words"):
        read(frame)
    given = {"query": "words", "document": "page", "position": "row", "click": "hit"}
    found = read(frame, **given, carry=["device"], first_position=0)
    assert plain(found) == plain(log)
    assert set(found.columns) == {"ranker", "explored", "device", "user"}
    with pytest.raises(DataError, match="counts from 0"):
        read(frame, **given)
    without = read(frame, **given, first_position=0, session=False)  # lists of four, one behind the other
    assert without.n_sessions == log.n_sessions


def test_a_row_may_be_a_session(log, tmp_path):
    write(log, tmp_path / "log.parquet")
    frame = pd.read_parquet(tmp_path / "log.parquet")
    lists = frame.groupby("session").agg({"query": "first", "document": list, "click": list}).reset_index(drop=True)
    assert plain(read(lists)) == plain(log)
    lists.at[3, "click"] = [True]
    with pytest.raises(DataError, match="Row 3 has 4 documents, but 1 values of click"):
        read(lists)


def test_several_files_are_one_log(log, tmp_path):
    half = log.n_sessions // 2
    write(log.select(np.arange(half)), tmp_path / "a.parquet")
    write(log.select(np.arange(half, log.n_sessions)), tmp_path / "b.parquet")
    frame = pd.read_parquet(tmp_path / "b.parquet")
    frame["session"] += half
    frame.to_parquet(tmp_path / "b.parquet")
    assert plain(read([tmp_path / "a.parquet", tmp_path / "b.parquet"])) == plain(log)
    assert plain(read(tmp_path)) == plain(log)


# What is told twice, and what cannot be


def test_an_impression_told_twice_is_one():
    log = ClickLog.of(["q"] * 3, ["a", "a", "b"], [1, 1, 2], [0, 1, 0], session=[7, 7, 7])
    assert plain(log) == [("7", "q", "a", 1, True), ("7", "q", "b", 2, False)]
    assert log.left_out == {"impressions that were told again, and count once": 1}


def test_two_documents_at_one_position_are_kept_and_refused_by_models():
    log = ClickLog.of(["q"] * 4, ["a", "b", "a", "b"], [1, 1, 1, 2], [0, 1, 0, 0], session=[7, 7, 8, 8])
    assert log.doubled.tolist() == [True, False]
    with pytest.raises(DataError, match="1 session has several documents at one position"):
        PBM().fit(log)
    PBM().fit(log.select(~log.doubled))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": [1, None, 3]}, r"'position' \(position\) is empty in row 1"),
        ({"position": [1, 2.5, 3]}, r"Row 1 \(counted from 0\) has the position 2.5"),
        ({"position": ["a", "b", "c"]}, r"'position' \(position\) must hold numbers, and has 'a' in row 0"),
        ({"click": [0, -1, 0]}, r"Row 1 \(counted from 0\) has the click -1"),
        ({"click": [0, None, 0]}, r"'click' \(click\) is empty in row 1"),
        ({"query": ["a", "", "a"]}, r"'query' \(query\) is empty in row 1"),
        ({"document": ["a", None, "b"]}, r"'document' \(document\) is empty in row 1"),
        ({"document": [1.5, 2.0, 3.0]}, "whole numbers or text, not fractions"),
        ({"qid": [1, 2, 3]}, "Several columns could be the query: 'query', 'qid'"),
        ({"session": [1, 1, 2], "query": ["a", "b", "a"]}, "Session 1 has several queries, 'a' and 'b'"),
    ],
)
def test_bad_tables_are_refused_with_a_sentence(change, message, tmp_path):
    table = {"query": ["a"] * 3, "document": ["x", "y", "z"], "position": [1, 2, 3], "click": [0, 1, 0], **change}
    with pytest.raises(DataError, match=message):
        read(pa.table(table))
    pd.DataFrame(table).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(FormatError, match=rf"log.parquet: .*{message}"):
        read(tmp_path / "log.parquet")


def test_other_refusals(tmp_path, log):
    with pytest.raises(DataError, match="nothing to read"):
        read([])
    with pytest.raises(DataError, match="first_position"):
        read(pa.table({"a": [1]}), first_position=3)
    with pytest.raises(UnknownNameError, match="column called 'clik'"):
        read(pa.table({"click": [1]}), click="clik")
    with pytest.raises(DataError, match=r"name it \.parquet"):
        write(log, tmp_path / "log.txt")
    (tmp_path / "one.json").write_text("[{}]")
    with pytest.raises(FormatError, match="JSON lines"):
        read(tmp_path / "one.json")
    (tmp_path / "bad.jsonl").write_text('{"query": "a"}\n{"query": \n')
    with pytest.raises(FormatError, match=r"bad.jsonl:2:11: This is not JSON"):
        read(tmp_path / "bad.jsonl")
    (tmp_path / "empty.csv").write_text("query,document,position,click\n")
    with pytest.raises(DataError, match="no rows"):
        read(tmp_path / "empty.csv")
    with pytest.raises(DataError, match="whole numbers"):
        ClickLog.of(["q"], ["a"], ["first"], [0])
    with pytest.raises(DataError, match="0 or 1"):
        ClickLog.of(["q"], ["a"], [1], ["yes"])


# Features by ids


def test_rows_are_found_by_ids_whatever_their_type():
    rng = np.random.default_rng(0)
    qid = np.sort(rng.integers(0, 40, 300))
    names = np.array([f"d{one}" for one in rng.permutation(300)])
    data = tr.RankingData(np.zeros((300, 1)), qid=qid, document_ids=names)
    shown = rng.integers(0, 300, 500)
    stranger = rng.random(500) < 0.1
    documents = np.where(stranger, "nobody", names[shown])
    log = ClickLog.of(qid[shown].astype(str), documents, [1] * 500, [0] * 500, session=np.arange(500))
    where = {(str(query), name): row for row, (query, name) in enumerate(zip(qid, names, strict=True))}
    wanted = [where.get((q, d), -1) for q, d in zip(log.qids[log.pair_query], log.document_ids, strict=True)]
    assert log.rows(data).tolist() == wanted
    assert min(wanted) == -1


# Events


def test_clicks_are_on_the_latest_list_that_showed_them():
    rng = np.random.default_rng(0)
    for _ in range(20):
        lists = rng.integers(0, 3, 30), rng.integers(0, 3, 30), np.sort(rng.integers(0, 9, 30))
        clicks = rng.integers(0, 3, 12), rng.integers(0, 3, 12), rng.integers(0, 9, 12)
        wanted = []
        for owner, document, time in zip(*clicks, strict=True):
            fits = np.flatnonzero((lists[0] == owner) & (lists[1] == document) & (lists[2] <= time))
            latest = fits[lists[2][fits] == lists[2][fits].max()] if len(fits) else [-1]
            wanted.append(int(latest[0]))
        assert shown_at(lists, clicks, 3).tolist() == wanted


YANDEX = """1\t0\tQ\t10\t3\t100\t101\t102
1\t5\tC\t101
1\t9\tQ\t11\t3\t101\t103
1\t11\tC\t101
1\t12\tC\t100
1\t13\tC\t999
2\t0\tQ\t10\t3\t102\t101
"""


def test_yandex(tmp_path):
    (tmp_path / "log.txt").write_text(YANDEX)
    log = read(tmp_path / "log.txt")
    assert plain(log) == [
        ("0", "10", "100", 1, True), ("0", "10", "101", 2, True), ("0", "10", "102", 3, False),
        ("1", "11", "101", 1, True), ("1", "11", "103", 2, False),
        ("2", "10", "102", 1, False), ("2", "10", "101", 2, False),
    ]  # fmt: skip
    assert log.left_out == {"clicks on documents that no list showed before": 1}
    assert log.columns["visit"].tolist() == [1] * 5 + [2] * 2
    assert log.columns["time"].tolist() == [0, 0, 0, 9, 9, 0, 0]


@pytest.mark.parametrize("line", ["1\t5\tX\t101", "1\t5\tC", "1\t5\tQ\t10", ""])
def test_a_line_that_is_neither_list_nor_click_is_named(line, tmp_path):
    (tmp_path / "log.txt").write_text(YANDEX + line + "\n")
    with pytest.raises(FormatError, match=r"log.txt:8: A line is session"):
        read(tmp_path / "log.txt")


def event(search, action, document=None, ordinal=None):
    attributes = {}
    if document is not None:
        attributes["object"] = {"object_id": document, "name": "any"}
    if ordinal is not None:
        attributes["position"] = {"ordinal": ordinal}
    return {"query_id": search, "action_name": action, "event_attributes": attributes, "timestamp": "2026-01-01"}


QUERIES = [
    {"query_id": "a", "user_query": "shoes", "client_id": "c1", "query_response_hit_ids": ["x", "y"]},
    {"query_id": "b", "user_query": "shoes", "client_id": "c2", "query_response_hit_ids": ["x", "y"]},
    {"query_id": "c", "user_query": "hats", "client_id": "c2", "query_response_hit_ids": None},
]
EVENTS = [
    event("b", "click", "x"), event("b", "click", "z"), event("b", "scroll"), event(None, "click", "x"),
    event("a", "impression", "y", 1), event("a", "impression", "x", 2), event("a", "item_click", "x"),
    event("zz", "impression", "x", 2), event("a", "impression", "x"), event("a", "click"),
]  # fmt: skip
UBI = [("a", "shoes", "y", 1, False), ("a", "shoes", "x", 2, True), ("b", "shoes", "x", 1, True),
       ("b", "shoes", "y", 2, False)]  # fmt: skip


@pytest.mark.parametrize("form", ["jsonl", "wrapped", "parquet", "pandas", "polars", "flat"])
def test_ubi(form, tmp_path):
    pair = []
    for name, rows in (("ubi_queries", QUERIES), ("ubi_events", EVENTS)):
        path = tmp_path / f"{name}.jsonl"
        if form == "parquet":
            path = tmp_path / f"{name}.parquet"
            pd.DataFrame(rows).to_parquet(path)
        elif form in ("jsonl", "wrapped"):
            path.write_text("".join(
                json.dumps({"_index": name, "_source": row} if form == "wrapped" else row) + "\n" for row in rows
            ))  # fmt: skip
        frames = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "flat": pd.json_normalize}
        pair.append(frames[form](rows) if form in frames else path)
    log = read(pair)
    assert plain(log) == UBI
    assert log.columns["user"].tolist() == ["c1", "c1", "c2", "c2"]
    assert log.left_out == {
        "events without a search": 1, "clicks and impressions without a document": 1,
        "impressions without a position": 1, "impressions of searches that ubi_queries does not know": 1,
        "searches without a list": 1, "clicks on documents that no list showed before": 1,
    }  # fmt: skip
    assert read(pair, click="item_click").clicks.sum() == 1


def test_a_field_that_the_first_lines_lack_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("toprank.clicks.sources._JSON_BLOCK", 1)  # a block for each line
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUERIES))
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in EVENTS))
    assert plain(read((tmp_path / "q.jsonl", tmp_path / "e.jsonl"))) == UBI


def test_ubi_events_alone_are_refused():
    with pytest.raises(DataError, match="read the pair"):
        read(pd.DataFrame(EVENTS))
    with pytest.raises(DataError, match="No search shows anything"):
        read((pd.DataFrame(QUERIES).drop(columns="query_response_hit_ids"), pd.DataFrame(EVENTS[:1])))
