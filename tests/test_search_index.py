"""The index: what it finds, that it is written whole, and that nothing forged or broken is believed."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toprank import search
from toprank.data.trec import Run, write_run
from toprank.errors import DataError, FileError, FormatError, ToprankError, UnknownNameError
from toprank.search.snippets import snippet
from toprank.text import Analyzer

TEXTS = {
    "a": {"title": "wings", "body": "lift of wings in a slipstream of a propeller"},
    "b": {"title": "plates", "body": "heated plates and boundary layers"},
    "c": {"title": "propeller", "body": "noise of a propeller at speed"},
    "d": {"title": "東京", "body": "東京タワーは高い"},
    "e": {"title": "крылья", "body": "подъёмная сила крыла самолёта"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("search") / "texts.index"
    search.index(TEXTS, path)
    return path


@pytest.fixture
def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copied.index")


def ids(results):
    return [hit.id for hit in results]


@pytest.mark.parametrize("engine", ["sqlite", "tantivy"])
def test_both_engines_find_the_same(engine, tmp_path):
    if engine == "tantivy":
        pytest.importorskip("tantivy", reason="tantivy comes with the extra search")
    index = search.index(TEXTS, tmp_path / "x.index", first_stage=engine, weights={"title": 2.0})
    assert ids(index.search("noisy PROPELLERS"))[:2] == ["c", "a"]
    assert ids(index.search("タワー")) == ["d"]
    assert ids(index.search("крыла")) == ["e"]
    assert ids(index.search("nothing like it")) == []


ODD = [
    '"',
    '"wing',
    "wing AND",
    "wing OR (",
    "NEAR(wing",
    "title:wing",
    "wing*",
    "-wing",
    "^wing",
    "{wing}",
    "wing'; --",
    "\0wing",
]


@pytest.mark.parametrize("query", ODD)
@pytest.mark.parametrize("engine", ["sqlite", "tantivy"])
def test_nothing_in_a_query_is_syntax(query, engine, tmp_path):
    if engine == "tantivy":
        pytest.importorskip("tantivy", reason="tantivy comes with the extra search")
    index = search.index(TEXTS, tmp_path / "x.index", first_stage=engine)
    assert ids(index.search(query)) in (["a"], []), query
    assert ("wing" in query) == bool(ids(index.search(query)))


@given(st.text(max_size=60))
def test_any_text_is_a_query(text):
    index = _shared()
    found = index.search(text)
    assert len(found) <= 5
    str(found), found.to_dict(), found._repr_html_()


_OPEN = {}


def _shared():
    if not _OPEN:
        import tempfile

        _OPEN["folder"] = tempfile.TemporaryDirectory()
        _OPEN["index"] = search.index(TEXTS, f"{_OPEN['folder'].name}/x.index")
    return _OPEN["index"]


def test_empty_and_huge_queries(folder):
    index = search.open(folder)
    assert "contains no words" in index.search("").note
    assert "stop words" in index.search("the of a").note
    assert index.search("xyzzy").note == "No document contains a word of the query."
    assert ids(index.search("filler words " * 100_000 + "wings")) == []  # beyond what anybody types
    assert "a" in ids(index.search("wings " + " ".join(f"w{i}" for i in range(2000))))
    with pytest.raises(DataError, match="text"):
        index.search(7)


def test_a_document_of_ten_megabytes(tmp_path):
    big = {"big": "common words " * 800_000 + " needle in it", "small": "a needle"}
    index = search.index(big, tmp_path / "x.index")
    found = index.search("needle")
    assert ids(found) == ["small", "big"]
    data = index.data({"q": "needle common"})
    assert np.isfinite(data.X).all()


def test_results_say_themselves(folder):
    found = search.open(folder).search("propeller", 1)
    assert len(found) == 1
    assert found.found == 2
    assert found.to_frame()["id"].tolist() == ids(found)
    assert "<mark>" in found._repr_html_()
    hit = found[0]
    assert {hit.snippet.text[a:b] for a, b in hit.snippet.marks} == {"propeller"}
    assert json.loads(json.dumps(found.to_dict()))["results"][0]["first_stage_rank"] == 1


def test_snippets_are_escaped(tmp_path):
    index = search.index({"x": {"title": "<b>t</b>", "body": "<script>alert(1)</script> wing"}}, tmp_path / "x.index")
    assert "<script>alert" not in index.search("wing")._repr_html_()


# ---- written whole or not at all ----


def test_a_new_index_replaces_an_old_one_and_who_has_it_open_keeps_it(tmp_path):
    old = search.index({"a": "wings"}, tmp_path / "x.index")
    search.index({"b": "wings wings"}, tmp_path / "x.index")
    assert ids(search.open(tmp_path / "x.index").search("wing")) == ["b"]
    assert ids(old.search("wing", rerank=False)) == ["a"]
    assert [name for name in os.listdir(tmp_path) if name != "x.index"] == []


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    search.index({"a": "wings"}, tmp_path / "x.index")
    monkeypatch.setattr("toprank.search.indexing.build_engine", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(FileError, match="cannot be written"):
        search.index({"b": "other"}, tmp_path / "x.index")
    assert ids(search.open(tmp_path / "x.index").search("wing")) == ["a"]
    assert os.listdir(tmp_path) == ["x.index"]


def test_nothing_else_is_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(FileError, match="not a search index"):
        search.index({"a": "x"}, tmp_path / "mine")
    made = search.index({"a": "x"}, tmp_path / "x.index")
    (made.path / "notes.txt").write_text("keep me")
    with pytest.raises(FileError, match="which is not part of an index"):
        search.index({"a": "x"}, tmp_path / "x.index")
    assert (made.path / "notes.txt").read_text() == "keep me"


def test_connections_are_closed_with_their_thread_and_with_their_index(folder):
    opened = search.open(folder)
    opened.search("wing", k=1)
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(opened.engine._connection).result()
    here = opened.engine._connection()
    assert elsewhere is not here
    gc.collect()
    here.execute("SELECT 1")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        elsewhere.execute("SELECT 1")
    del opened
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        here.execute("SELECT 1")


def test_two_processes_write_one_index(tmp_path):
    code = (
        "import sys; from toprank import search\nfor _ in range(6): search.index({sys.argv[2]: 'wings'}, sys.argv[1])"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x.index"), name]) for name in ("one", "two")
    ]
    seen = set()
    while any(process.poll() is None for process in running):
        if (tmp_path / "x.index").exists():
            with suppress(FileError):  # between two renames, for longer than it waits
                seen |= set(ids(search.open(tmp_path / "x.index").search("wing")))
    assert [process.wait() for process in running] == [0, 0]
    assert seen <= {"one", "two"}
    assert ids(search.open(tmp_path / "x.index", verify=True).search("wing"))[0] in ("one", "two")
    assert os.listdir(tmp_path) == ["x.index"]


# ---- damage and forgery ----


def test_every_truncated_file_is_noticed(folder, copied):
    names = sorted(json.loads((copied / "index.json").read_text())["files"])
    assert len(names) > 10
    for name in names:
        content = (copied / name).read_bytes()
        (copied / name).write_bytes(content[: len(content) // 2])
        if len(content) > 1:
            with pytest.raises(FormatError, match="damaged"):
                search.open(copied)
        (copied / name).unlink()
        with pytest.raises(FormatError, match="is missing"):
            search.open(copied)
        (copied / name).write_bytes(content)
    search.open(copied)


def test_changed_bytes_are_noticed_on_demand_and_never_crash(copied):
    rng = np.random.default_rng(0)
    for name in sorted(json.loads((copied / "index.json").read_text())["files"]):
        content = bytearray((copied / name).read_bytes())
        if not content:
            continue
        for _ in range(3):
            forged = bytearray(content)
            for place in rng.integers(0, len(forged), 4):
                forged[place] ^= 1 << int(rng.integers(0, 8))
            if forged == content:
                continue
            (copied / name).write_bytes(forged)
            with pytest.raises(FormatError):
                search.open(copied, verify=True)
            with suppress(ToprankError):
                str(search.open(copied).search("wings propeller"))
        (copied / name).write_bytes(content)


def test_a_damaged_index_of_tantivy_is_refused_even_where_tantivy_panics(tmp_path):
    pytest.importorskip("tantivy", reason="tantivy comes with the extra search")
    texts = {f"d{i}": f"wing propeller flow{i % 7} noise{i % 3}" for i in range(40)}
    search.index(texts, tmp_path / "x.index", first_stage="tantivy")
    (postings,) = (tmp_path / "x.index" / "tantivy").glob("*.idx")
    content, refused = postings.read_bytes(), []
    for place in range(0, len(content), 3):
        postings.unlink()  # a file of its own: Tantivy has the one before mapped, and drops it when it likes
        postings.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        try:
            search.open(tmp_path / "x.index").search("wings propeller flow1 noise2")
        except FormatError as problem:
            refused.append(str(problem))
    assert refused
    assert all("The first stage of this index is damaged (" in sentence for sentence in refused)


def test_other_versions_and_other_folders(copied, tmp_path):
    meta = json.loads((copied / "index.json").read_text())
    (copied / "index.json").write_text(json.dumps(meta | {"version": 99}))
    with pytest.raises(FormatError, match="version 99"):
        search.open(copied)
    (copied / "index.json").write_text('{"format": "else"}')
    with pytest.raises(FormatError, match="not a search index"):
        search.open(copied)
    (copied / "index.json").write_text("{" * 5000)
    with pytest.raises(FormatError, match="damaged"):
        search.open(copied)
    (copied / "index.json").write_text(json.dumps(meta | {"files": {"../../etc/passwd": [1, "x"]}}))
    with pytest.raises(FormatError, match="damaged"):
        search.open(copied)
    for missing in ("documents", "fields", "statistics", "first_stage", "pool", "name", "weights", "notes", "vectors"):
        (copied / "index.json").write_text(json.dumps({k: v for k, v in meta.items() if k != missing}))
        with pytest.raises(FormatError):
            search.open(copied)
    with pytest.raises(FileError, match="does not exist"):
        search.open(tmp_path / "nothing")


def test_a_forged_table_finds_no_documents_that_are_not_there(copied):
    path = copied / "first_stage.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO documents(rowid, f0, f1) VALUES (77, 'wing', 'wing')")
    connection.commit()
    connection.close()
    meta = json.loads((copied / "index.json").read_text())
    meta["files"]["first_stage.sqlite"][0] = path.stat().st_size
    (copied / "index.json").write_text(json.dumps(meta))
    with pytest.raises(FormatError, match="do not exist"):
        search.open(copied).search("wing")


def test_a_python_without_fts5_says_so(monkeypatch, tmp_path):
    class NoSearch:
        def execute(self, _):
            raise sqlite3.OperationalError("no such module: fts5")

        def close(self):
            pass

    monkeypatch.setattr("toprank.search.first_stage.sqlite.sqlite3.connect", lambda *_, **__: NoSearch())
    with pytest.raises(DataError, match=r"built without full-text search.*tantivy"):
        search.index(TEXTS, tmp_path / "x.index")


def test_a_collection_that_changed(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("wings")
    search.index(texts, tmp_path / "x.index")
    search.open(tmp_path / "x.index")
    (texts / "b.txt").write_text("more wings")
    with pytest.warns(UserWarning, match="changed since"):
        search.open(tmp_path / "x.index")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"first_stage": "sqlit"}, "did you mean 'sqlite'"),
        ({"fields": ["titel"]}, "did you mean 'title'"),
        ({"weights": {"titel": 2}}, "did you mean 'title'"),
        ({"weights": {"title": -1}}, "weight of field title"),
        ({"n_candidates": 0}, "n_candidates"),
        ({"first_stage": {}}, "at least one run"),
        ({"first_stage": []}, "at least one run"),
        ({"language": "englisch"}, "did you mean 'english'"),
        ({"vectors": {"v": np.zeros((2, 3))}}, "There are 2 vectors for 5 documents"),
    ],
)
def test_refusals(options, said, tmp_path):
    with pytest.raises((DataError, UnknownNameError), match=said):
        search.index(TEXTS, tmp_path / "x.index", **options)
    assert os.listdir(tmp_path) == []


# ---- runs as the first stage ----


def test_runs_make_the_pool(tmp_path):
    write_run(Run.from_source({"q1": {"a": 3.0, "b": 2.0}, "q2": {"c": 1.0}}, "one"), tmp_path / "one.run")
    two = {"q1": {"c": 9.0, "b": 8.0, "nowhere": 7.0}}
    index = search.index(TEXTS, tmp_path / "x.index", first_stage={"one": str(tmp_path / "one.run"), "two": two})
    index = search.open(index.path)
    assert ids(index.search("q1")) == ["b", "a", "c"]  # 1/62 + 1/62 is more than 1/61
    data = index.data({"q1": "propeller noise"})
    row = dict(zip(data.feature_names, data.X[data.document_ids.tolist().index("a")].tolist(), strict=True))
    assert (row["one score"], row["one rank"]) == (3.0, 1.0)
    assert np.isnan(row["two score"])
    with pytest.raises(DataError, match="not among their queries"):
        index.search("wings")
    with pytest.raises(DataError, match="the same ids"):
        search.index(TEXTS, tmp_path / "x.index", first_stage={"x": {"q": {"zzz": 1.0}}})
    assert ids(search.open(index.path).search("q1")) == ["b", "a", "c"]  # the older index stays


def test_a_query_of_runs_has_the_features_of_its_words_whether_asked_by_words_or_by_id(tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    lines = [{"_id": name, "title": text["title"], "text": text["body"]} for name, text in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    asked = [{"_id": f"q{i}", "text": f"propeller noise {i}"} for i in range(6)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)))
    table = "".join(f"q{i}\tc\t1\n" for i in range(6))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{table}")
    run = {f"q{i}": {"a": 3.0, "b": 2.0, "c": 1.0} for i in range(6)}
    index = search.index(folder, tmp_path / "x.index", first_stage={"dense": run})
    index.train(qrels="test", system="ListNet", threads=1)
    by_id, by_words = index.search("q1"), index.search("propeller noise 1")
    assert [(hit.id, hit.score) for hit in by_id] == [(hit.id, hit.score) for hit in by_words]
    assert by_id[0].snippet.marks == by_words[0].snippet.marks != ()
    expected = dict(zip("abc", index.model.predict(index.data({"q1": "propeller noise 1"})), strict=True))
    assert {hit.id: hit.score for hit in by_id} == pytest.approx(expected)
    for query in ("q1", "propeller noise 1"):
        assert index.explain(query, "a", "c").total == pytest.approx(expected["a"] - expected["c"])


def test_missing_texts_have_no_words_and_half_characters_are_replaced(tmp_path):
    texts = {
        "a": {"title": None, "body": "wing"},
        "b": {"title": "none", "body": float("nan")},
        "c\ud800": "nan \ud800",
    }
    index = search.index(texts, tmp_path / "x.index")
    assert ids(index.search("none")) == ["b"]
    assert ids(index.search("nan")) == ["c\ufffd"]


def test_arrays_have_the_words_that_are_in_them(tmp_path):
    texts = {"a": {"title": "drag", "tags": np.array(["wing", "flap"])}, "b": {"title": "lift", "tags": np.array([])}}
    assert ids(search.index(texts, tmp_path / "x.index").search("wing")) == ["a"]


def test_ids_that_only_a_zero_byte_tells_apart_are_not_confused(tmp_path):
    index = search.index({"a": "wing", "a\0": "wings"}, tmp_path / "x.index")
    assert len(index.search("wing")) == 2
    with pytest.raises(DataError, match="zero byte"):
        index.data({"q": "wing"})


def test_a_title_of_many_letters_is_cut_in_lists(tmp_path):
    long = "wing é" * 300_000
    index = search.index({"a": {"title": long, "body": long}}, tmp_path / "x.index")
    hit = index.search("wing")[0]
    assert hit.title == long[:300]
    assert len(hit.snippet.text) < 300
    assert [index.documents.start(0, "body", n) for n in (0, 5, 6, 7)] == ["", "wing ", "wing é", "wing éw"]
    assert index.documents.start(0, "body", 10**8) == long


@pytest.mark.parametrize("n_candidates", [0, -1, 2.5])
def test_a_pool_is_a_whole_number(folder, n_candidates):
    with pytest.raises(DataError, match="n_candidates"):
        search.open(folder).search("wings", n_candidates=n_candidates)
    with pytest.raises(DataError, match="n_candidates"):
        search.open(folder).data({"q": "wings"}, n_candidates=n_candidates)


@pytest.mark.parametrize("blank", [" ", "、"])
@pytest.mark.parametrize("place", [0, 7, 400, 793, 799])
def test_the_passage_holds_the_only_word_that_matches(place, blank):
    pieces = ["東京", "高い"] if blank == "、" else ["wing", "plain"]
    text = blank.join(pieces[0] if number == place else pieces[1] for number in range(800))
    found = snippet(text, [pieces[0]], Analyzer())
    assert pieces[0] in found.text
    assert 100 < len(found.text) <= 220 + 12 + 2
    assert not found.marks or "".join(found.pieces()) == found.text
