"""Collections that are odd but legal, by the commands as documented: each works, or says in a sentence why not."""

from __future__ import annotations

import gzip
import json
import random
import re

import pytest
from typer.testing import CliRunner

from support import nightly
from toprank.cli.commands import app
from toprank.errors import ToprankError

WORDS = re.findall(r"\w+", "wing plate shock flow heat noise layer lift drag engine nozzle jet wake body cone cylinder")
_DRAWN = random.Random(0)
TEXTS = {f"d{i}": " ".join(_DRAWN.choices(WORDS, k=12)) + f" own{i}" for i in range(40)}


def asked(n):
    return {f"q{i}": f"{WORDS[i % 16]} {WORDS[(3 * i + 1) % 16]} own{i}" for i in range(n)}


def judged(queries, grades=(0, 1, 2), more=()):
    rows = [(q, f"d{i}", grades[-1]) for i, q in enumerate(queries)]
    rows += [(q, f"d{20 + i}", grade) for q in queries for i, grade in enumerate(grades)]
    return [*rows, *more]


def beir(path, texts, queries, parts, *, packed=False, mark="", end="\n", field="text", head=True, ids="{}"):
    def write(name, text):
        file = path / (f"{name}.gz" if packed else name)
        file.parent.mkdir(parents=True, exist_ok=True)
        content = (mark + text).encode()
        file.write_bytes(gzip.compress(content) if packed else content)

    rows = [{"_id": ids.format(i), "title": "", "text": "", field: text} for i, text in texts.items()]
    write("corpus.jsonl", "".join(json.dumps(row, ensure_ascii=False) + end for row in rows))
    write("queries.jsonl", "".join(json.dumps({"_id": ids.format(i), "text": t}) + end for i, t in queries.items()))
    for part, judgments in parts.items():
        title = [head if isinstance(head, str) else "query-id\tcorpus-id\tscore"] if head else []
        middle = "\t0" * (title[0].count("\t") - 2 if title else 0)
        lines = [f"{ids.format(q)}{middle}\t{ids.format(d)}\t{grade}" for q, d, grade in judgments]
        write(f"qrels/{part}.tsv", "".join(line + end for line in [*title, *lines]))


def trec(path, texts, queries, judgments, *, packed=False, mark="", end="\n"):
    path.mkdir()

    def write(name, text):
        content = (mark + text.replace("\n", end)).encode()
        (path / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)

    write("docs.xml", "".join(f"<DOC>\n<DOCNO>{i}</DOCNO>\n<TEXT>\n{t}\n</TEXT>\n</DOC>\n" for i, t in texts.items()))
    write("topics.txt", "".join(f"<top>\n<num> Number: {i}\n<title> {t}\n</top>\n\n" for i, t in queries.items()))
    for name, rows in judgments.items():
        write(name, "".join(f"{q} 0 {d} {g}\n" for q, d, g in rows))


def run(*words):
    """What a command says, or why it refuses: never anything but a sentence of ours."""
    done = CliRunner().invoke(app, ["search", *map(str, words)])
    problem = done.exception
    if problem is not None and not isinstance(problem, SystemExit):
        assert isinstance(problem, ToprankError), problem
        assert str(problem).endswith((".", "?"))
        return f"REFUSED {problem}"
    return done.output


def tried(source, tmp_path):
    """Indexed, trained and evaluated, with a quick system."""
    index = tmp_path / "made.index"
    assert "REFUSED" not in run("index", source, "-o", index, "--quiet")
    trained = run("train", index, "--system", "RankNet-linear", "--quiet")
    systems = ("--systems", "bm25,lsa,rrf,RankNet-linear")
    return trained, run("evaluate", index, *systems, "--json", "--quiet")


@pytest.fixture(scope="module")
def plainly(tmp_path_factory):
    """What is found in a collection that is not odd at all."""
    queries, folder = asked(12), tmp_path_factory.mktemp("plain")
    beir(folder / "plain", TEXTS, queries, {"test": judged(queries)})
    return json.loads(tried(folder / "plain", folder)[1])


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"packed": True},
        {"mark": "\ufeff", "end": "\r\n"},
        {"packed": True, "mark": "\ufeff"},
        {"field": "title"},
        {"head": False},
        {"head": "query-id\tQ0\tcorpus-id\tscore"},
        {"ids": "my {}"},
        {"ids": "my {}", "head": False},
    ],
    ids=str,
)
def test_beir_in_every_dress_gives_the_same(how, plainly, tmp_path):
    queries = asked(12)
    beir(tmp_path / "dressed", TEXTS, queries, {"test": judged(queries)}, **how)
    trained, evaluated = tried(tmp_path / "dressed", tmp_path)
    assert "'test', the only split of the collection" in trained
    found = json.loads(evaluated)
    assert found["queries"] == 12
    for system in ("bm25", "lsa", "rrf"):
        assert found["systems"][system] == pytest.approx(plainly["systems"][system]), system


@pytest.mark.parametrize("how", [{}, {"packed": True}, {"mark": "\ufeff", "end": "\r\n"}], ids=str)
def test_trec_in_every_dress(how, tmp_path):
    queries = asked(12)
    trec(tmp_path / "made", TEXTS, queries, {"my.qrels": judged(queries)}, **how)
    trained, evaluated = tried(tmp_path / "made", tmp_path)
    assert "was trained on 12 queries" in trained
    assert json.loads(evaluated)["queries"] == 12


@pytest.mark.parametrize("topics", ["{:03d}", "{}"])
@pytest.mark.parametrize("judgments", ["{:03d}", "{}"])
@pytest.mark.parametrize("layout", ["trec", "smart"])
def test_ids_of_queries_differ_by_leading_zeros(layout, topics, judgments, tmp_path):
    queries = {f"q{7 * i + 1}": text for i, text in enumerate(asked(12).values())}
    trec(tmp_path / "made", TEXTS, queries, {})
    for name, begin in (("trec", "<top>\n<num> Number: {}\n<title> {}\n</top>\n"), ("smart", ".I {}\n.W\n{}\n")):
        written = [begin.format(topics.format(int(q[1:])), text) for q, text in queries.items()]
        (tmp_path / f"{name}.topics").write_text("".join(written))
    rows = [(judgments.format(int(q[1:])), f"d{i}", 1) for i, q in enumerate(queries)]
    (tmp_path / "made.qrels").write_text("".join(f"{q} 0 {d} {g}\n" for q, d, g in rows))
    index = tmp_path / "made.index"
    run("index", tmp_path / "made", "-o", index, "--quiet")
    judged_by = ("--queries", tmp_path / f"{layout}.topics", "--qrels", tmp_path / "made.qrels")
    found = json.loads(run("evaluate", index, *judged_by, "--systems", "bm25", "--json", "--quiet"))
    assert found["queries"] == 12
    assert found["systems"]["bm25"]["ndcg@10"] > 0.9  # each asks for a word that only its document has


def test_parts_of_trec_may_have_folders_of_their_own_but_hide_no_other_texts(tmp_path):
    queries = asked(8)
    trec(tmp_path / "flat", TEXTS, queries, {"my.qrels": judged(queries)})
    for name in ("docs", "topics", "qrels"):
        (tmp_path / "deep" / name).mkdir(parents=True)
    for name, place in (("docs.xml", "docs/a"), ("topics.txt", "topics/a.txt"), ("my.qrels", "qrels/a.txt")):
        (tmp_path / "deep" / place).write_bytes((tmp_path / "flat" / name).read_bytes())
    assert "40 documents of deep" in run("index", tmp_path / "deep", "-o", tmp_path / "deep.index")
    systems = ("--systems", "bm25", "--json", "--quiet")
    run("index", tmp_path / "flat", "-o", tmp_path / "flat.index", "--quiet")
    deep, flat = (json.loads(run("evaluate", tmp_path / f"{name}.index", *systems)) for name in ("deep", "flat"))
    assert deep["systems"] == flat["systems"]
    (tmp_path / "deep" / "notes.txt").write_text("bread")
    assert "3 documents of deep" in run("index", tmp_path / "deep", "-o", tmp_path / "deep.index")


def test_trec_may_have_any_root_and_is_not_taken_for_whole_where_it_is_cut(tmp_path):
    trec(tmp_path / "made", TEXTS, asked(8), {})
    content = (tmp_path / "made" / "docs.xml").read_text()
    (tmp_path / "rooted.xml").write_text(f"<?xml version='1.0'?>\n<my-texts>\n{content}</my-texts>\n")
    assert "40 documents" in run("index", tmp_path / "rooted.xml", "-o", tmp_path / "a.index")
    (tmp_path / "cut.xml").write_text(content[:-12])
    assert "REFUSED" in (refused := run("index", tmp_path / "cut.xml", "-o", tmp_path / "b.index"))
    assert "Document number 40 has no </doc>: the file is truncated." in refused
    assert not (tmp_path / "b.index").exists()


@pytest.mark.parametrize("name", ["pid", "docID", "UUID"])
def test_objects_have_their_ids_under_many_names(name, tmp_path):
    queries = asked(8)
    rows = [json.dumps({name: i, "passage": text}) + "\n" for i, text in TEXTS.items()]
    (tmp_path / "made.jsonl").write_text("".join(rows))
    assert "fields passage." in run("index", tmp_path / "made.jsonl", "-o", tmp_path / "made.index")
    (tmp_path / "q.tsv").write_text("".join(f"{q}\t{text}\n" for q, text in queries.items()))
    (tmp_path / "made.qrels").write_text("".join(f"{q} 0 {d} {g}\n" for q, d, g in judged(queries)))
    given = ("--queries", tmp_path / "q.tsv", "--qrels", tmp_path / "made.qrels", "--json", "--quiet")
    assert json.loads(run("evaluate", tmp_path / "made.index", *given, "--systems", "bm25"))["pool_recall"] > 0.5


def test_lines_are_ids_where_objects_have_none_and_that_is_told(tmp_path):
    (tmp_path / "made.jsonl").write_text('{"text": "wing"}\n{"text": "plate"}\n')
    assert "No object has an id (_id, id, " in run("index", tmp_path / "made.jsonl", "-o", tmp_path / "made.index")


def test_systems_go_by_their_own_names_however_they_are_written(tmp_path):
    queries = asked(12)
    trec(tmp_path / "made", TEXTS, queries, {"my.qrels": judged(queries)})
    index = tmp_path / "made.index"
    run("index", tmp_path / "made", "-o", index, "--quiet")
    given = run("evaluate", index, "--systems", "RRF, ranknet_LINEAR,BM25", "--json", "--quiet")
    assert list(json.loads(given)["systems"]) == ["rrf", "RankNet-linear", "bm25"]
    assert "RankNet-linear is listed twice" in run("evaluate", index, "--systems", "ranknet-linear,RankNet-linear")


def test_a_run_called_as_a_baseline_is_the_run(tmp_path):
    queries = asked(12)
    trec(tmp_path / "made", TEXTS, queries, {"my.qrels": judged(queries)})
    worst = [f"{q} Q0 d{(i + 7) % 20} 1 1.0 BM25\n" for i, q in enumerate(queries)]
    (tmp_path / "own.run").write_text("".join(worst))
    index = tmp_path / "made.index"
    assert "REFUSED" not in run("index", tmp_path / "made", "-o", index, "--run", tmp_path / "own.run", "--quiet")
    found = json.loads(run("evaluate", index, "--systems", "BM25,lsa", "--json", "--quiet"))
    assert found["systems"]["BM25"]["ndcg@10"] == 0.0  # it finds nothing relevant, as the words would


def test_parts_of_trec_are_told_by_the_names_of_their_files(tmp_path):
    queries = asked(14)
    rows = judged(queries)
    of = {name: [row for row in rows if (int(row[0][1:]) < 8) == (name == "train")] for name in ("train", "test")}
    trec(tmp_path / "made", TEXTS, queries, {f"qrels.{name}.txt": of[name] for name in of})
    trained, evaluated = tried(tmp_path / "made", tmp_path)
    assert "was trained on 8 queries" in trained
    assert json.loads(evaluated)["queries"] == 6
    trec(tmp_path / "other", TEXTS, queries, {f"qrels.{name}.txt": of["train"] for name in ("mine", "yours")})
    assert "their names have no split" in run("index", tmp_path / "other", "-o", tmp_path / "other.index")
    assert "has no judgments named 'train'" in run("train", tmp_path / "other.index")


def test_grades_of_nothing(tmp_path):
    queries = asked(12)
    beir(tmp_path / "some", TEXTS, queries, {"test": judged(queries, (-2, 0, 1, 3))})
    trained, evaluated = tried(tmp_path / "some", tmp_path)
    assert "was trained on 12 queries" in trained
    assert 0 < json.loads(evaluated)["systems"]["bm25"]["ndcg@10"] < 1
    for name, grades in (("zero", (0,)), ("below", (-1,))):
        beir(tmp_path / name, TEXTS, queries, {"test": judged(queries, grades)})
        for said in tried(tmp_path / name, tmp_path):
            assert f"REFUSED All judgments are between {grades[0]} and {grades[0]}" in said


def test_judgments_about_what_is_not_there(tmp_path):
    queries = asked(12)
    strange = [(q, f"x{i}", 2) for q in queries for i in range(2)]
    beir(tmp_path / "some", TEXTS, queries, {"train": [("zz", "d1", 1)], "test": judged(queries, more=strange)})
    assert "qrels" in (said := run("index", tmp_path / "some", "-o", tmp_path / "some.index"))
    assert "The judgments train.tsv are skipped" in said
    trained, evaluated = tried(tmp_path / "some", tmp_path)
    assert "are not in the index (x0, x1). They count as not retrieved" in trained
    assert json.loads(evaluated)["pool_recall"] < 0.7
    beir(tmp_path / "all", TEXTS, queries, {"test": strange})
    for said in tried(tmp_path / "all", tmp_path):
        assert "REFUSED None of the 2 relevant documents is in the index" in said


@pytest.mark.parametrize("n", [1, *nightly(5, 8)])
def test_few_queries(n, tmp_path):
    queries = asked(n)
    trec(tmp_path / "made", TEXTS, asked(n + 3), {"my.qrels": judged(queries)})  # three have no judgments
    index = tmp_path / "made.index"
    run("index", tmp_path / "made", "-o", index, "--quiet")
    trained, evaluated = run("train", index, "--quiet"), run("evaluate", index, "--json", "--quiet")
    if n == 1:
        assert "Only 1 judged query" in trained
        assert "name --systems" in evaluated or "name systems" in evaluated
        evaluated = run("evaluate", index, "--json", "--quiet", "--systems", "bm25,lsa")
    else:
        assert f"blend was trained on {n} queries" in trained
        assert "blend" in json.loads(evaluated)["systems"]
    assert json.loads(evaluated)["queries"] == n


@pytest.mark.parametrize(
    "texts",
    [
        {f"d{i}": f"{WORDS[i % 16]}{i}" for i in range(40)},
        *nightly(dict.fromkeys(TEXTS, "the same words")),
        {"d0": "same words wing0 own0"},
    ],
    ids=["one word", "all alike", "one document"],
)
def test_documents_that_share_too_little_for_lsa(texts, tmp_path):
    queries = {f"q{i}": f"same words {WORDS[i % 16]}{i}" for i in range(8)}
    rows = [(q, f"d{i if len(texts) > 1 else 0}", 1) for i, q in enumerate(queries)]
    trec(tmp_path / "made", texts, queries, {"my.qrels": rows})
    index = tmp_path / "made.index"
    run("index", tmp_path / "made", "-o", index, "--quiet")
    trained, evaluated = run("train", index, "--quiet"), run("evaluate", index, "--json", "--quiet")
    if "REFUSED" in evaluated:
        assert "nothing to order them by" in evaluated or "Too few queries have candidates" in evaluated, evaluated
        assert "REFUSED" in trained
        evaluated = run("evaluate", index, "--json", "--quiet", "--systems", "bm25")
    else:
        assert "lsa and rrf are skipped" in evaluated
        assert set(json.loads(evaluated)["systems"]) == {"bm25", "blend"}
    assert json.loads(evaluated)["queries"] == 8


@pytest.mark.parametrize(
    ("texts", "query"), [("…!?", "!?"), ("the of and to be", "to be or not to be"), ("", "")], ids=["signs", "the", ""]
)
def test_documents_without_words_are_refused_in_a_sentence(texts, query, tmp_path):
    queries = dict.fromkeys(asked(8), query)
    trec(tmp_path / "made", dict.fromkeys(TEXTS, texts), queries, {"my.qrels": judged(queries)})
    index = tmp_path / "made.index"
    made = run("index", tmp_path / "made", "-o", index, "--quiet")
    assert ("REFUSED" in made) == (query == "")
    assert "REFUSED" in run("train", index)
    assert "REFUSED" in run("evaluate", index)


@pytest.mark.parametrize("weight", ["body", "body=", "body=much"])
def test_a_weight_is_a_number(weight):
    assert f"--weights must be FIELD=N, not '{weight}'" in " ".join(run("index", "--weights", weight).split())


def test_no_english_words_at_all(tmp_path):
    parts = ["東京", "大阪", "京都", "翼", "流れ", "熱", "騒音", "境界", "層", "揚力", "抗力", "機関"]
    drawn = random.Random(1)
    texts = {f"d{i}": "".join(drawn.choices(parts, k=9)) for i in range(40)}
    queries = {f"q{i}": parts[i % 12] + parts[(i + 1) % 12] for i in range(12)}
    beir(tmp_path / "made", texts, queries, {"test": judged(queries)})
    trained, evaluated = tried(tmp_path / "made", tmp_path)
    assert "was trained on" in trained
    assert json.loads(evaluated)["systems"]["bm25"]["map"] > 0
