"""Click logs in and out: tables, frames, JSON lines, UBI, Yandex; what is merged, counted and refused."""

import gzip
import json
import os
import threading
from dataclasses import replace

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
    return simulate(data, scores, PBM.from_parameters([1, 0.5, 0.3, 0.2]), 300, k=4, exploration=0.3)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.csv.gz", "log.tsv", "log.arrow"])
def test_what_is_written_reads_back(name, log, tmp_path):
    write(log, tmp_path / name)
    again = read(tmp_path / name)
    assert plain(again) == plain(log)
    assert columns(again) == columns(log)
    assert again.qids.dtype.kind == "i"


def test_columns_that_are_named_read_back_and_weights_are_not_written(log, tmp_path):
    more = replace(log, columns={"bm25": log.position / 2}, weights=np.full(log.n_sessions, 0.5))
    write(more, tmp_path / "log.parquet")
    assert read(tmp_path / "log.parquet").columns == {}
    again = read(tmp_path / "log.parquet", metadata="bm25")
    assert again.columns["bm25"].tolist() == (log.position / 2).tolist()
    assert again.weights is None


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=4)
FORMATS = ["parquet", "arrow", "csv", "csv.gz", "tsv", "jsonl", "pandas", "polars", "arrow table", "lists"]


def given_as(log, form, folder):
    """A log in one of the forms that can be read."""
    if form in ("parquet", "arrow", "csv", "csv.gz", "tsv"):
        write(log, folder / f"log.{form}")
        return folder / f"log.{form}"
    write(log, folder / "log.parquet")
    table = pa.table(pd.read_parquet(folder / "log.parquet"))
    if form == "jsonl":
        (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        return folder / "log.jsonl"
    if form == "lists":
        rows = table.to_pandas().groupby("session", sort=False)
        return rows.agg({"query": "first", "document": list, "position": list, "click": list}).reset_index()
    return {"pandas": table.to_pandas(), "polars": pl.from_arrow(table), "arrow table": table}[form]


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), words, st.integers(1, 6), st.booleans()), min_size=1, max_size=12),
    form=st.sampled_from(FORMATS),
    metadata=st.sampled_from(["whole", "fractions", "truth", "words"]),
)
@settings(max_examples=150, deadline=None)
def test_any_log_comes_back_from_any_form(rows, form, metadata, tmp_path_factory):
    session, document, position, click = zip(*rows, strict=True)
    n = len(rows)
    values = {"whole": np.arange(n), "fractions": np.arange(n) / 4, "truth": np.arange(n) % 2 == 0,
              "words": np.array([f"é, {place}" for place in range(n)])}[metadata]  # fmt: skip
    log = ClickLog.from_columns(
        [f"{one} q\n" for one in session], document, position, click, session=session, ranker=values
    )
    again = read(given_as(log, form, tmp_path_factory.mktemp("log")))
    assert plain(again) == plain(log)
    if form != "lists":
        assert columns(again) == columns(log)


rows = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 6), st.booleans()), min_size=1, max_size=40
)


@given(rows=rows, words=st.booleans(), order=st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_shuffled_rows_give_the_same_log(rows, words, order):
    def made(rows):
        session, document, place, click = map(np.array, zip(*rows, strict=True))
        names = [f"d {one}" if words else int(one) for one in document]
        return ClickLog.from_columns([f"q{one % 2}" for one in session], names, place, click, session=session)

    mixed = list(rows)
    order.shuffle(mixed)
    one, two = made(rows), made(mixed)
    assert plain(one) == plain(two)
    assert one.dropped == two.dropped
    assert (one.pair == two.pair).all()
    assert (one.offsets == two.offsets).all()


@given(rows=rows, order=st.randoms(use_true_random=False), data=st.data())
@settings(max_examples=60, deadline=None)
def test_parts_of_a_log_are_parts(rows, order, data):
    session, document, place, click = zip(*rows, strict=True)
    log = ClickLog.from_columns(
        [f"q{one % 2}" for one in session], document, place, click, session=session, ranker=click
    )
    some = data.draw(st.lists(st.sampled_from(range(log.n_sessions)), unique=True))
    part = log.select(some)
    by_session = {}
    for row, ranker in zip(plain(log), log.columns["ranker"].tolist(), strict=True):
        by_session.setdefault(row[0], []).append((*row, ranker))
    wanted = [row for one in some for row in by_session[str(log.session_ids[one])]]
    assert [(*row, one) for row, one in zip(plain(part), part.columns["ranker"].tolist(), strict=True)] == wanted
    mask = np.isin(np.arange(log.n_sessions), some)
    assert plain(log.select(mask)) == plain(log.select(sorted(some)))
    # whoever numbers pairs otherwise, they are found by ids
    if some:
        alone = ClickLog.from_columns(
            part.qids[part.query], part.document_ids[part.pair], part.position, part.clicks, session=part.session
        )
        found = alone.pairs_in(log)
        assert (log.qids[log.pair_query[found]] == alone.qids[alone.pair_query]).all()
        assert (log.document_ids[found] == alone.document_ids).all()
        back = log.pairs_in(alone)
        assert (back[found] == np.arange(alone.n_pairs)).all()
        assert (back >= 0).sum() == alone.n_pairs
    # and so are rows of data
    pairs = list(zip(log.qids[log.pair_query].tolist(), log.document_ids.tolist(), strict=True))
    order.shuffle(pairs)
    pairs.sort(key=lambda pair: pair[0])
    known = tr.RankingData(
        np.zeros((len(pairs), 1)), qid=[q for q, _ in pairs], document_ids=[str(d) for _, d in pairs]
    )
    assert [pairs[row] for row in log.rows(known)] == list(
        zip(log.qids[log.pair_query].tolist(), log.document_ids.tolist(), strict=True)
    )


@pytest.mark.parametrize("wrong", [[300], [-1], [True], ["a"], [0.5]])
def test_sessions_that_are_not_there_cannot_be_chosen(wrong, log):
    with pytest.raises(DataError, match=r"by index \(0 to 299\)"):
        log.select(wrong)
    assert log.select([]).n_sessions == 0


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
    found = read(frame, **given, metadata=["device"], first_position=0)
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
    lists.to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    assert plain(read(tmp_path / "log.jsonl")) == plain(log)
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


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_a_log_comes_through_a_pipe(form, log, tmp_path):
    source, pipe = given_as(log, form, tmp_path), tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(source.read_bytes()))
    writer.start()
    assert plain(read(pipe)) == plain(log)
    writer.join()


def test_many_words_are_written_and_found(tmp_path):
    """Of so much text Arrow makes several arrays."""
    n = 300_000
    words = np.char.zfill(np.arange(n).astype(str), 64)
    assert isinstance(pa.array(words), pa.ChunkedArray)
    log = ClickLog.from_columns(
        np.zeros(n, dtype=int), words, np.ones(n), np.zeros(n), session=np.arange(n), ranker=words
    )
    write(log, tmp_path / "log.parquet")
    again = read(tmp_path / "log.parquet")
    assert (again.columns["ranker"] == words).all()
    data = tr.RankingData(np.zeros((n, 1)), qid=np.zeros(n, dtype=int), document_ids=words)
    assert (words[again.rows(data)] == again.document_ids).all()


def test_a_file_is_read_once(tmp_path):
    (tmp_path / "log.csv").write_text(HEAD + GOOD)
    with pytest.raises(DataError, match="given twice"):
        read([tmp_path / "log.csv", tmp_path / "log.csv"])


# What is told twice, and what cannot be


def test_an_impression_told_twice_is_one():
    log = ClickLog.from_columns(["q"] * 3, ["a", "a", "b"], [1, 1, 2], [0, 1, 0], session=[7, 7, 7])
    assert plain(log) == [("7", "q", "a", 1, True), ("7", "q", "b", 2, False)]
    assert log.dropped == {"impressions that were logged twice, and count once": 1}


def test_two_documents_at_one_position_are_kept_and_refused_by_models():
    places, sessions = [1, 1, 1, 2, 1, 2], [7, 7, 8, 8, 9, 9]
    log = ClickLog.from_columns(["q"] * 6, ["a", "b", "a", "b", "b", "a"], places, [0, 1, 1, 0, 0, 1], session=sessions)
    assert log.has_duplicate_positions.tolist() == [True, False, False]
    with pytest.raises(DataError, match="1 session has several documents at one position"):
        PBM().fit(log)
    PBM().fit(log.select(~log.has_duplicate_positions))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": [1, None, 3]}, r"'position' \(position\) is empty in row 1"),
        ({"position": [1, 2.5, 3]}, r"Row 1 \(counted from 0\) has the position 2.5"),
        ({"position": ["a", "b", "c"]}, r"'position' \(position\) must contain numbers, but has 'a' in row 0"),
        ({"click": [0, -1, 0]}, r"Row 1 \(counted from 0\) has the click -1"),
        ({"click": [0, None, 0]}, r"'click' \(click\) is empty in row 1"),
        ({"query": ["a", "", "a"]}, r"'query' \(query\) is empty in row 1"),
        ({"document": ["a", None, "b"]}, r"'document' \(document\) is empty in row 1"),
        ({"document": [1.5, 2.0, 3.0]}, "whole numbers or text, not fractions"),
        ({"qid": [1, 2, 3]}, "Several columns could be the query: 'query', 'qid'"),
        ({"session": [1, 1, 2], "query": ["a", "b", "a"]}, "Session 1 has several queries, such as 'a' and 'b'"),
    ],
)
def test_bad_tables_are_refused_with_a_sentence(change, message, tmp_path):
    table = {"query": ["a"] * 3, "document": ["x", "y", "z"], "position": [1, 2, 3], "click": [0, 1, 0], **change}
    with pytest.raises(DataError, match=message):
        read(pa.table(table))
    pd.DataFrame(table).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(FormatError, match=rf"log.parquet: .*{message}"):
        read(tmp_path / "log.parquet")


HEAD, GOOD = "session,query,document,position,click\n", "1,q,a,1,0\n1,q,b,2,1\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2,q,a,1e18,0", r"Row 2 \(counted from 0\) has the position 1e\+18\. .* from 1 to 10,000"),
        ("2,q,a,10001,0", r"Row 2 \(counted from 0\) has the position 10001"),
        ("2,q,a,NaN,0", "has the position nan"),
        ("2,q,a,-1,0", "has the position -1"),
        ("2,q,a,0,0", r"has the position 0\. .* first_position=0"),
        ("2,q,a,2.5,0", r"has the position 2\.5"),
        ("2,q,a,first,0", r"'position' \(position\) must contain numbers, but has 'first' in row 2 \(counted from 0\)"),
        ("2,q,a,true,0", "has 'true' in row 2"),
        ("2,q,a,,0", r"'position' \(position\) is empty in row 2"),
        ("2,q,a,1,yes", r"'click' \(click\) must contain 0 and 1, true and false, .* has 'yes' in row 2"),
        ("2,q,a,1,0.5", "has the click 0.5"),
        ("2,q,a,1,inf", "has the click inf"),
        ("2,q,,1,0", r"'document' \(document\) is empty in row 2"),
        ("1,r,c,3,0", "Session 1 has several queries, such as 'q' and 'r', .* session=False"),
        ("2,q,a", "4: .*Expected 5 columns, got 3"),
    ],
)
def test_a_bad_row_of_text_is_named(row, message, tmp_path):
    (tmp_path / "log.csv").write_text(HEAD + GOOD + row + "\n")
    with pytest.raises(FormatError, match=rf"log\.csv:.*{message}"):
        read(tmp_path / "log.csv")


@pytest.mark.parametrize("row", ["2,q,a, 3.0,TRUE", '2,q,a,"3",1.0', "2,q,a,3e0,7", "2,q,a,3,True"])
def test_numbers_may_be_written_as_people_do(row, tmp_path):
    for start, end in (("", "\n"), ("\ufeff", "\r\n")):
        (tmp_path / "log.csv").write_text(start + (HEAD + GOOD + row + "\n").replace("\n", end), newline="")
        assert plain(read(tmp_path / "log.csv"))[-1] == ("2", "q", "a", 3, True)


def test_what_is_no_table_is_said_to_be_none(tmp_path):
    for name, content, message in (
        ("a.csv", b"", "Empty CSV"),
        ("a.jsonl", b"", "The file is empty"),
        ("b.csv", (HEAD + GOOD).replace(",", ";").encode(), "separated by semicolons"),
        ("c.csv", (HEAD + GOOD).replace(",", "\t").encode(), "separated by tabs"),
        ("d.csv", (HEAD + GOOD).encode("utf-16"), "UTF-16"),
        ("e.csv", (HEAD + GOOD + "2,caf\xe9,a,1,0\n").encode("latin-1"), "e.csv:4: .*UTF8"),
        ("f.csv", b"click,click\n1,1\n", "f.csv: Two columns are called 'click'"),
        ("g.parquet", b"PAR1 and no more", "not a readable Parquet file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=message):
            read(tmp_path / name)


def test_ids_of_any_type_are_joined():
    data = tr.RankingData(np.zeros((3, 1)), qid=[1, 1, 2], document_ids=["10", "11", "10"])
    frame = pd.DataFrame({"query": [1, 1, 2], "document": [10, 11, 12], "position": [1, 2, 1], "click": [0, 1, 0]})
    for change in (int, float, str, "category"):
        typed = frame.astype({"query": change, "document": change})
        assert read(typed).rows(data).tolist() == [0, 1, -1]
        assert read(pl.from_pandas(typed)).rows(data).tolist() == [0, 1, -1]
    log = ClickLog.from_columns([1.0, 1.0, 2.0], [10.0, 11.0, 12.0], [1, 2, 1], [0, 1, 0])
    assert log.rows(data).tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": [1.0, np.nan, 1.0]}, "is empty in row 1"),
        ({"query": pd.Categorical(["a", None, "a"])}, "is empty in row 1"),
        ({"query": ["a", 1, 2.5]}, "'query' holds values of several kinds"),
        ({"dwell": ["a", 1, 2.5]}, "'dwell' holds values of several kinds"),
        ({"position": [True, False, True]}, "must contain numbers, not bool"),
        ({"document": pd.to_datetime(["2026-01-01"] * 3)}, "whole numbers or text, not timestamp"),
    ],
)
def test_cells_of_frames_that_are_no_ids(change, message):
    base = {"query": ["a"] * 3, "document": ["x", "y", "z"], "position": [1, 2, 3], "click": [0, 1, 0]}
    with pytest.raises(DataError, match=message):
        read(pd.DataFrame({**base, **change}))


@pytest.mark.parametrize("bad", [[None, "a"], [np.nan, 1.0], ["", "a"], [1.5, 2.0]])
def test_a_log_of_arrays_needs_ids(bad):
    with pytest.raises(DataError, match=r"no query|not fractions"):
        ClickLog.from_columns(bad, ["a", "b"], [1, 2], [0, 1])


def test_lists_that_are_empty_are_counted():
    table = pa.table({"query": ["a", "b", "c"], "document": [["x", "y"], [], None], "click": [[0, 1], [], None]})
    log = read(table)
    assert log.n_sessions == 1
    assert log.dropped == {"lists without a document": 2}
    with pytest.raises(DataError, match="All lists are empty"):
        read(table.slice(1))
    with pytest.raises(DataError, match=r"'document' \(document\) is empty in row 1"):
        read(pa.table({"query": ["a", "b"], "document": [["x", "y"], ["z", None]], "click": [[0, 1], [0, 0]]}))
    with pytest.raises(DataError, match="A list has 10,001 documents"):
        read(pa.table({"query": ["a"], "document": [list(map(str, range(10_001)))], "click": [[0] * 10_001]}))


def test_other_refusals(tmp_path, log):
    with pytest.raises(DataError, match="source is empty"):
        read([])
    with pytest.raises(DataError, match="first_position"):
        read(pa.table({"a": [1]}), first_position=3)
    with pytest.raises(UnknownNameError, match="column called 'clik'"):
        read(pa.table({"click": [1]}), click="clik")
    with pytest.raises(DataError, match=r"suffix must be \.parquet"):
        write(log, tmp_path / "log.txt")
    (tmp_path / "one.json").write_text("[{}]")
    with pytest.raises(FormatError, match="JSON lines"):
        read(tmp_path / "one.json")
    (tmp_path / "bad.jsonl").write_text('{"query": "a"}\n{"query": \n')
    with pytest.raises(FormatError, match=r"bad.jsonl:2:11: This is not JSON"):
        read(tmp_path / "bad.jsonl")
    line = json.dumps({"query": "a", "document": "x", "position": 1, "click": 0}) + "\n"
    (tmp_path / "bytes.jsonl").write_bytes(line.encode() + line.replace("x", "\xe9").encode("latin1"))
    (tmp_path / "bytes.txt").write_bytes(YANDEX.encode() + b"2\t3\tC\t\xe9\n")
    for name, number in (("bytes.jsonl", 2), ("bytes.txt", 1 + YANDEX.count("\n"))):
        with pytest.raises(FormatError, match=rf"{name}:{number}: The text is not UTF-8\."):
            read(tmp_path / name)
    (tmp_path / "empty.csv").write_text("query,document,position,click\n")
    with pytest.raises(DataError, match="no rows"):
        read(tmp_path / "empty.csv")
    with pytest.raises(DataError, match="whole numbers"):
        ClickLog.from_columns(["q"], ["a"], ["first"], [0])
    with pytest.raises(DataError, match="0 or 1"):
        ClickLog.from_columns(["q"], ["a"], [1], ["yes"])


# JSON lines


ROW = {"query": "a", "document": "x", "position": 1, "click": 0}


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"position": "2"}, "field 'position' changed from number to string"),
        ({"click": [1]}, "field 'click' changed from number to array"),
        ({"query": {"a": 1}}, "field 'query' changed from string to object"),
    ],
)
def test_a_line_of_another_type_is_named(bad, message, tmp_path, monkeypatch):
    for block in (1, 1 << 20):
        monkeypatch.setattr("toprank.clicks.sources._BLOCK_BYTES", block)
        (tmp_path / "log.jsonl").write_text(lines(ROW, ROW) + "\n" + lines(ROW | bad, ROW))
        with pytest.raises(
            FormatError, match=rf"log\.jsonl:4: This line does not match the fields of the first lines: {message}"
        ):
            read(tmp_path / "log.jsonl")


def test_lines_that_are_no_objects_are_named(tmp_path):
    for content, message in (
        (lines(ROW) + "5\n", ":2: This line is not an object"),
        (lines(ROW, ROW)[:-9], r":2:\d+: This is not JSON"),
        (lines(ROW) + '{"query": "caf\xe9"}\n', ":2: The text is not UTF-8"),
    ):
        (tmp_path / "log.jsonl").write_bytes(content.encode("latin-1"))
        with pytest.raises(FormatError, match=rf"log\.jsonl{message}"):
            read(tmp_path / "log.jsonl")


def test_fields_that_nobody_asks_for_may_hold_anything(tmp_path, monkeypatch):
    rows = [ROW | {"more": more, "time": "2026-01-01T10:00:00.5Z"} for more in (1, "two", [3], {"four": 4}, None)]
    (tmp_path / "log.jsonl").write_text(lines(*rows))
    log = read(tmp_path / "log.jsonl", first_position=1)
    assert log.n_impressions == 5
    assert log.columns["time"].tolist() == ["2026-01-01T10:00:00.5Z"] * 5
    monkeypatch.setattr("toprank.clicks.sources._BLOCK_BYTES", 1)
    assert plain(read(tmp_path / "log.jsonl")) == plain(log)


@pytest.mark.parametrize("order", [1, -1])
def test_ids_may_be_fractions_that_are_whole_and_clicks_words(order, tmp_path):
    rows = [ROW | {"query": 1.0, "click": "true"}, ROW | {"query": 2, "click": "False"}]
    (tmp_path / "log.jsonl").write_text(lines(*rows[::order]))
    wanted = [("1", "x", 1, True), ("2", "x", 1, False)]
    assert [row[1:] for row in plain(read(tmp_path / "log.jsonl"))] == wanted[::order]


# Features by ids


def test_rows_are_found_by_ids_whatever_their_type():
    rng = np.random.default_rng(0)
    qid = np.sort(rng.integers(0, 40, 300))
    names = np.array([f"d{one}" for one in rng.permutation(300)])
    data = tr.RankingData(np.zeros((300, 1)), qid=qid, document_ids=names)
    shown = rng.integers(0, 300, 500)
    stranger = rng.random(500) < 0.1
    documents = np.where(stranger, "nobody", names[shown])
    log = ClickLog.from_columns(qid[shown].astype(str), documents, [1] * 500, [0] * 500, session=np.arange(500))
    where = {(str(query), name): row for row, (query, name) in enumerate(zip(qid, names, strict=True))}
    wanted = [where.get((q, d), -1) for q, d in zip(log.qids[log.pair_query], log.document_ids, strict=True)]
    assert log.rows(data).tolist() == wanted
    assert min(wanted) == -1


@given(rows=rows, data=st.data())
@settings(max_examples=40, deadline=None)
def test_features_may_stand_in_the_log(rows, data):
    session, document, place, click = zip(*rows, strict=True)
    worth = [one * 7.0 + 1 for one in document]
    log = ClickLog.from_columns([f"q{one % 2}" for one in session], document, place, click, session=session, bm25=worth)
    some = data.draw(st.lists(st.sampled_from(range(log.n_sessions)), unique=True, min_size=1))
    part = log.select(some)
    found = part.data(["bm25"])
    at = part.rows(found)[part.pair]
    assert (at >= 0).all()
    assert found.n_documents == len(np.unique(part.pair))
    assert (found.X[at, 0] == part.columns["bm25"]).all()
    assert found.feature_names == ("bm25",)


def test_features_of_the_log_are_those_shown_last():
    log = ClickLog.from_columns(
        ["q"] * 3, ["a"] * 3, [1] * 3, [0] * 3, session=[3, 1, 2], age=[9.0, 7.0, 8.0], name=["x"] * 3
    )
    assert log.data(["age"]).X.tolist() == [[9.0]]
    with pytest.raises(UnknownNameError, match="no column of the log called 'agee'; did you mean 'age'"):
        log.data(["agee"])
    with pytest.raises(DataError, match="'name' of the log must hold numbers"):
        log.data(["name"])


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
    assert log.dropped == {"clicks on documents that no earlier list showed": 1}
    assert log.columns["visit"].tolist() == [1] * 5 + [2] * 2
    assert log.columns["time"].tolist() == [0, 0, 0, 9, 9, 0, 0]


def test_files_of_yandex_follow_each_other(tmp_path):
    first, rest = YANDEX[: YANDEX.index("1\t11")], YANDEX[YANDEX.index("1\t11") :]
    (tmp_path / "all.txt").write_text(YANDEX)
    (tmp_path / "a.txt").write_text("\ufeff" + first.replace("\n", "\r\n"), newline="")
    (tmp_path / "b.txt").write_text(rest.rstrip("\n"))
    whole, parts = read(tmp_path / "all.txt"), read([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert plain(parts) == plain(whole)
    assert parts.dropped == whole.dropped
    with pytest.raises(DataError, match="cannot be chosen; leave out query="):
        read(tmp_path / "all.txt", query="words")
    (tmp_path / "log.csv").write_text(HEAD + GOOD)
    with pytest.raises(FormatError, match="can only be combined with others"):
        read([tmp_path / "all.txt", tmp_path / "log.csv"])


def test_words_of_yandex_may_hold_signs_that_split_lines_elsewhere(tmp_path):
    (tmp_path / "log.txt").write_text(YANDEX.replace("103", "a\u2028b\x0bc"))
    assert "a\u2028b\x0bc" in read(tmp_path / "log.txt").document_ids


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tx\tC\t101", "The time 'x' is not an integer"),
        ("1\t9.5\tQ\t10\t3\t100", "The time '9.5'"),
        ("1\t99999999999999999999\tC\t101", "The time '9{20}'"),
        ("\t5\tC\t101", "A field is empty"),
        ("1\t5\tQ\t\t3\t100", "A field is empty"),
        ("1\t5\tQ\t10\t3\t100\t", "A field is empty"),
        ("1\t5\tC\tcaf\xe9", "The text is not UTF-8"),
    ],
)
def test_a_bad_word_of_yandex_is_named(line, message, tmp_path):
    (tmp_path / "log.txt").write_bytes((YANDEX + line + "\n" + YANDEX).encode("latin-1"))
    with pytest.raises(FormatError, match=rf"log\.txt:8: {message}"):
        read(tmp_path / "log.txt")


def test_a_line_of_yandex_ends_where_a_line_ends(tmp_path):
    """Other letters that Python takes for the end of a line may stand in a query."""
    (tmp_path / "log.txt").write_bytes("1\t0\tQ\ta\u2028b\x0bc\t0\tx\ty\r\n1\t5\tC\ty\r\n".encode())
    assert plain(read(tmp_path / "log.txt")) == [
        ("0", "a\u2028b\x0bc", "x", 1, False),
        ("0", "a\u2028b\x0bc", "y", 2, True),
    ]


@pytest.mark.parametrize("line", ["1\t5\tX\t101", "1\t5\tC", "1\t5\tQ\t10", ""])
def test_a_line_that_is_neither_list_nor_click_is_named(line, tmp_path):
    (tmp_path / "log.txt").write_text(YANDEX + line + "\n")
    with pytest.raises(FormatError, match=r"log.txt:8: A line must be session"):
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
    assert log.dropped == {
        "events without a search": 1, "clicks and impressions without a document": 1,
        "impressions without a position": 1, "impressions of searches that ubi_queries does not know": 1,
        "searches without a list": 1, "clicks on documents that no earlier list showed": 1,
    }  # fmt: skip
    assert read(pair, click="item_click").clicks.sum() == 1


def test_of_a_search_that_ubi_tells_twice_the_first_row_counts():
    again = [
        {"query_id": "b", "user_query": "boots", "client_id": "c9", "query_response_hit_ids": ["v", "w", "x"]},
        {"query_id": "a", "user_query": "boots", "client_id": "c9", "query_response_hit_ids": ["v"]},
    ]
    log = read((pd.DataFrame([*QUERIES, *again]), pd.DataFrame(EVENTS)))
    assert plain(log) == UBI
    assert log.columns["user"].tolist() == ["c1", "c1", "c2", "c2"]
    assert log.dropped["rows of ubi_queries that repeat a search"] == 2


def test_a_field_that_the_first_lines_lack_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("toprank.clicks.sources._BLOCK_BYTES", 1)  # a block for each line
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUERIES))
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in EVENTS))
    assert plain(read((tmp_path / "q.jsonl", tmp_path / "e.jsonl"))) == UBI


def test_a_folder_holds_one_log(log, tmp_path):
    (tmp_path / "ubi_queries.ndjson").write_text(lines(*QUERIES))
    (tmp_path / "ubi_events.jsonl.gz").write_bytes(gzip.compress(lines(*EVENTS).encode()))
    (tmp_path / "README.md").write_text("not a log")
    assert plain(read(tmp_path)) == UBI
    half = log.n_sessions // 2
    (tmp_path / "parts").mkdir()
    for name, some in (("2.csv", np.arange(half)), ("10.csv", np.arange(half, log.n_sessions))):
        write(replace(log, session_ids=np.arange(log.n_sessions)).select(some), tmp_path / "parts" / name)
    assert plain(read(tmp_path / "parts")) == plain(log)


def test_ubi_in_csv(tmp_path):
    pd.DataFrame(QUERIES).to_csv(tmp_path / "q.csv", index=False)
    pd.json_normalize(EVENTS).to_csv(tmp_path / "e.csv", index=False)
    log = read((tmp_path / "q.csv", tmp_path / "e.csv"))
    assert plain(log) == [row for row in UBI if row[0] == "a"]
    assert log.dropped["query_response_hit_ids that are no lists"] == 3


def test_ubi_attributes_are_free(tmp_path):
    """Whatever applications put beside object and position, and whatever they leave out."""
    odd = [
        {"extra": extra, **one["event_attributes"]} for one, extra in zip(EVENTS, [1, "a", {"b": 2}] * 4, strict=False)
    ]
    events = [one | {"event_attributes": attributes} for one, attributes in zip(EVENTS, odd, strict=True)]
    bare = [
        {"query_id": "a", "action_name": "click"},
        {"query_id": "a", "action_name": "click", "event_attributes": None},
    ]
    (tmp_path / "q.jsonl").write_text(
        lines(*QUERIES, {"query_id": "d", "user_query": None}, {"query_id": "e", "user_query": ""})
    )
    (tmp_path / "e.jsonl").write_text(lines(*bare, *events))
    log = read((tmp_path / "q.jsonl", tmp_path / "e.jsonl"))
    assert plain(log) == UBI
    assert log.dropped["clicks and impressions without a document"] == 3
    assert log.dropped["searches without a query_id or user_query"] == 2


@pytest.mark.parametrize("ordinal", [0, -1, 2.5, 1e9, "first"])
def test_an_impossible_ordinal_is_named(ordinal, tmp_path):
    (tmp_path / "q.jsonl").write_text(lines(*QUERIES))
    (tmp_path / "e.jsonl").write_text(lines(event("a", "scroll"), event("a", "impression", "x", ordinal)))
    with pytest.raises(FormatError, match=r"e\.jsonl: .*[Rr]ow 1 \(counted from 0\)"):
        read((tmp_path / "q.jsonl", tmp_path / "e.jsonl"))


def test_ubi_positions_may_count_from_zero(tmp_path):
    (tmp_path / "q.jsonl").write_text(lines(*QUERIES))
    (tmp_path / "e.jsonl").write_text(lines(event("a", "impression", "x", 0), event("a", "impression", "y", 1)))
    log = read((tmp_path / "q.jsonl", tmp_path / "e.jsonl"), first_position=0)
    assert plain(log)[:2] == [("a", "shoes", "x", 1, False), ("a", "shoes", "y", 2, False)]


def test_what_ubi_does_not_know_is_refused():
    pair = (pd.DataFrame(QUERIES), pd.DataFrame(EVENTS))
    with pytest.raises(UnknownNameError, match="no action in these events called 'purchase'; known: click, impression"):
        read(pair, click="purchase")
    with pytest.raises(DataError, match="cannot be chosen; leave out position="):
        read(pair, position="ordinal")
    with pytest.raises(DataError, match="clicks are in ubi_events: read the pair"):
        read(pair[0])
    with pytest.raises(DataError, match="neither ubi_queries"):
        read([*pair, pd.DataFrame({"query": ["a"]})])


@pytest.mark.parametrize(
    ("ordinal", "message"),
    [
        ("first", r"'event_attributes.position.ordinal' \(position\) must contain numbers"),
        (2**62 + 1, "whole numbers from 1 to 10,000"),
    ],
)
def test_ubi_ordinals_that_are_no_positions_are_refused(ordinal, message):
    with pytest.raises(DataError, match=message):
        read((pd.DataFrame(QUERIES), pd.DataFrame([event("a", "impression", "x", ordinal)])))


def test_ubi_ids_that_are_no_text_are_refused():
    with pytest.raises(DataError, match=r"'query_id' \(ubi_events\) must contain whole numbers or text"):
        read((pd.DataFrame(QUERIES), pd.DataFrame([{**EVENTS[0], "query_id": {"a": 1}}])))


def test_ubi_events_alone_are_refused():
    with pytest.raises(DataError, match="read the pair"):
        read(pd.DataFrame(EVENTS))
    with pytest.raises(DataError, match="No search shows anything"):
        read((pd.DataFrame(QUERIES).drop(columns="query_response_hit_ids"), pd.DataFrame(EVENTS[:1])))


def test_files_of_a_folder_follow_each_other_as_people_count(tmp_path):
    for number in (10, 9, 2, 100):
        line = {"query": "a", "url": f"d{number}", "rank": 1, "click": 0}
        (tmp_path / f"part-{number}.jsonl").write_text(json.dumps(line))
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "notes.md").write_text("no log")
    log = read(tmp_path)
    assert [str(log.document_ids[n]) for n in log.pair] == ["d2", "d9", "d10", "d100"]
