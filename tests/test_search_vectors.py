"""Vectors that users bring: files of them, matched by place or by id, and the commands that take them."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from typer.testing import CliRunner

from toprank import search
from toprank.cli.commands import app
from toprank.data.trec import Qrels, write_qrels
from toprank.errors import DataError, FileError, FormatError

N = 30
TEXTS = {f"d{i}": f"common words {'even' if i % 2 == 0 else 'odd'} number{i}" for i in range(N)}
QUERIES = {f"q{i}": f"common number{i}" for i in range(12)}
# A query wants the documents whose vector is near its own, which its words do not say.
DOCUMENTS = np.array([[np.cos(i), np.sin(i)] for i in range(N)])
ASKED = np.array([[np.cos(5.0 + i), np.sin(5.0 + i)] for i in range(12)])
WANTED = {q: {f"d{d}": 1 for d in np.argsort(-(DOCUMENTS @ v))[:3]} for q, v in zip(QUERIES, ASKED, strict=True)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in TEXTS.items()))
    (folder / "q.jsonl").write_text("".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in QUERIES.items()))
    write_qrels(Qrels.from_source(WANTED), folder / "q.qrels")
    np.save(folder / "documents.npy", DOCUMENTS)
    np.save(folder / "queries.npy", ASKED)
    np.save(folder / "one.npy", ASKED[0])
    order = np.random.default_rng(0).permutation(N)
    np.savez(folder / "documents.npz", ids=np.array(list(TEXTS))[order], vectors=DOCUMENTS[order].astype(np.float32))
    more, places = np.array([*QUERIES, "other"]), np.append(np.arange(11, -1, -1), 12)
    np.savez(folder / "queries.npz", ids=more[places], vectors=np.vstack([ASKED, [[9.0, 9.0]]])[places])
    return folder


def column(index, **given):
    data = index.data(QUERIES, n_candidates=N, **given)
    assert data.feature_names is not None
    return data.X[:, data.feature_names.index("v similarity")], data


@pytest.mark.parametrize("documents", ["documents.npy", "documents.npz"])
@pytest.mark.parametrize("queries", ["queries.npy", "queries.npz"])
def test_files_say_what_arrays_say_whatever_the_order_of_their_ids(files, tmp_path, documents, queries):
    index = search.index(TEXTS, tmp_path / "x.index", vectors={"v": files / documents})
    found, data = column(index, vectors={"v": str(files / queries)})
    places = [int(name[1:]) for name in data.document_ids]
    rows = [int(qid[1:]) for qid in data.qid]
    assert found == pytest.approx(np.einsum("ij,ij->i", DOCUMENTS[places], ASKED[rows]), abs=1e-6)


def test_the_commands_take_them(files, tmp_path):
    made = tmp_path / "x.index"

    def run(*words, code=0):
        done = CliRunner().invoke(app, ["search", *map(str, words)])
        assert done.exit_code == code, (done.output, done.exception)
        return done.output if code else done.stdout

    run("index", files / "corpus.jsonl", "-o", made, "--vectors", f"mine={files / 'documents.npz'}", "--quiet")
    judged = ("--queries", files / "q.jsonl", "--qrels", files / "q.qrels", "--quiet", "--json")
    systems = ("--systems", "bm25,RankNet-linear")
    given = ("--query-vectors", files / "queries.npy")
    with_them = json.loads(run("evaluate", made, *judged, *systems, *given))["systems"]
    without = json.loads(run("evaluate", made, *judged, *systems))["systems"]
    assert with_them["RankNet-linear"]["ndcg@10"] > 0.95 > without["RankNet-linear"]["ndcg@10"]
    assert with_them["bm25"] == without["bm25"]
    run("train", made, *judged, "--system", "RankNet-linear", *given)
    words = ("common", "number0", "-k", 3)
    told = json.loads(run("query", made, *words, "--query-vectors", files / "one.npy", "--json"))
    assert {hit["id"] for hit in told["results"]} == set(WANTED["q0"])
    assert told["note"] == ""
    assert "trained with query vectors (mine)" in json.loads(run("query", made, *words, "--json"))["note"]


@pytest.mark.filterwarnings("ignore")
def test_what_the_commands_refuse(files, tmp_path):
    one, two, none = (tmp_path / name for name in ("one.index", "two.index", "none.index"))
    search.index(TEXTS, one, vectors={"a": DOCUMENTS})
    search.index(TEXTS, two, vectors={"a": DOCUMENTS, "b": DOCUMENTS})
    search.index(TEXTS, none)

    def refused(*words):
        done = CliRunner().invoke(app, ["search", *map(str, words)], env={"COLUMNS": "400"})
        assert done.exit_code != 0
        assert "Traceback" not in done.output
        return " ".join(f"{done.output} {done.exception}".split())

    given = ("--query-vectors", files / "one.npy")
    assert "has no document vectors" in refused("query", none, "common", *given)
    assert "a and b. Name them" in refused("query", two, "common", *given)
    twice = ("--query-vectors", f"a={files / 'one.npy'}") * 2
    assert "uses the name 'a' twice" in refused("query", two, "common", *twice)
    assert "set of vectors" in refused("query", one, "common", "--query-vectors", f"c={files / 'one.npy'}")
    assert "There are 12 vectors for 1 queries" in refused(
        "query", one, "common", "--query-vectors", files / "queries.npy"
    )
    assert "uses the name 'documents' twice" in refused(
        "index", files / "corpus.jsonl", "-o", tmp_path / "x.index",
        "--vectors", files / "documents.npy", "--vectors", files / "documents.npz",
    )  # fmt: skip
    assert not (tmp_path / "x.index").exists()
    clicks = ("--clicks", files / "q.jsonl")
    for option in (("--query-vectors", files / "one.npy"), ("--metric", "map"), ("--qrels", files / "q.qrels")):
        assert f"{option[0]} cannot be combined with --clicks" in refused("train", one, *clicks, *option)


WRONG = {
    "short.npy": (DOCUMENTS[:7], DataError, "There are 7 vectors for 30 documents"),
    "flat.npy": (DOCUMENTS[:, 0], DataError, r"they have shape \(30,\)"),
    "nan.npy": (np.where(np.arange(N)[:, None] == 4, np.nan, DOCUMENTS), DataError, "row 5 contains NaN"),
    "infinite.npy": (np.where(np.arange(N)[:, None] > 20, np.inf, DOCUMENTS), DataError, "and so do 8 others"),
    "words.npy": (np.array([["a", "b"]] * N), DataError, "finite numbers"),
    "objects.npy": (np.array([[1.0, None]] * N), FormatError, "cannot be read without executing code"),
    "other.npz": ({"x": DOCUMENTS}, FormatError, "Expected the arrays 'ids' and 'vectors', but found x"),
    "fewer.npz": ({"ids": list(TEXTS)[:9], "vectors": DOCUMENTS}, FormatError, r"shapes are \(9,\) and \(30, 2\)"),
    "twice.npz": ({"ids": ["d1"] * N, "vectors": DOCUMENTS}, FormatError, "'d1' occurs more than once"),
    "strange.npz": (
        {"ids": [f"D{i}" for i in range(N)], "vectors": DOCUMENTS}, FormatError,
        "Vectors of 30 of 30 documents are missing: d0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_files_that_do_not_fit_are_refused_in_a_sentence(name, tmp_path):
    content, kind, said = WRONG[name]
    if name.endswith(".npz"):
        np.savez(tmp_path / name, **content)
    else:
        np.save(tmp_path / name, content, allow_pickle=True)
    with pytest.raises(kind, match=said):
        search.index(TEXTS, tmp_path / "x.index", vectors={"v": tmp_path / name})
    assert not (tmp_path / "x.index").exists()


class Trap:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("code of a file was run",)


def test_no_file_runs_code_and_a_file_that_is_cut_off_says_so(files, tmp_path):
    (tmp_path / "trap.npy").write_bytes(pickle.dumps(Trap()))
    whole = (files / "documents.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "cut.npy").write_bytes((files / "documents.npy").read_bytes()[:-10])
    (tmp_path / "empty.npy").write_bytes(b"")
    for name in ("trap.npy", "cut.npz", "cut.npy", "empty.npy"):
        with pytest.raises(FormatError, match="not a complete NumPy file"):
            search.index(TEXTS, tmp_path / "x.index", vectors={"v": tmp_path / name})
    with pytest.raises(FileError, match="cannot be read"):
        search.index(TEXTS, tmp_path / "x.index", vectors={"v": tmp_path / "missing.npy"})
