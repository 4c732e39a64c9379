"""Collections: every layout as it is found, what is none refused in a sentence, and no leak of what is asked."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from support import shared_data
from toprank import search
from toprank.errors import DataError, FileError, FormatError, ToprankError
from toprank.search.collections.collection import SourceSignature
from toprank.search.collections.sources import changed

SMART = ".I 1\n.T\nWings in\nslipstreams\n.A\nSmith\n.W\nWings in slipstreams\nlift more.\n"
SMART += ".I 2\n.T\nPlates\n.W\nHeated.\n.I\n"


def written(path, text, mode="w"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
    return path


def test_smart(tmp_path):
    found = search.read(written(tmp_path / "docs.all", SMART))
    assert found.ids == ["1", "2"]
    assert found.fields == {"title": ["Wings in slipstreams", "Plates"], "body": ["lift more.", "Heated."]}


def test_cranfield_counts_its_queries(tmp_path):
    """Ids run 1, 2, 4; judgments count 1, 2, 3: the third are about query 4."""
    topics = search.read_topics(written(tmp_path / "c.qry", ".I 001\n.W\na\n.I 002\n.W\nb\n.I 004\n.W\nc\n"))
    assert topics.ids == ("1", "2", "4")
    rel = written(tmp_path / "cranqrel", "1 10 2 \n2 11 -1\n3 12 4 \n3 13 5 \n")
    qrels, notes = search.read_judgments(rel, topics)
    got = dict(zip(zip(qrels.qids, qrels.document_ids, strict=True), qrels.grades, strict=True))
    assert got == {("1", "10"): 1, ("2", "11"): 1, ("4", "12"): 1, ("4", "13"): 0}
    assert any("binary" in note for note in notes)
    assert any("ordinal numbers 1 to" in note for note in notes)
    with pytest.raises(DataError, match="complete query file"):
        search.read_judgments(rel, search.Topics(("1", "4"), ("a", "c")))


@pytest.mark.parametrize(
    ("folder", "documents", "queries", "judgments"),
    [
        ("cran", 1400, 225, 1837),
        ("cisi", 1460, 112, 3114),
        ("med", 1033, 30, 696),
        ("cran/trec-format", 1400, 225, 1837),
    ],
)
def test_the_collections_of_smart(folder, documents, queries, judgments):
    found = search.read(shared_data("text", folder))
    assert (len(found), len(found.topics), len(found.judgments["all"])) == (documents, queries, judgments)
    if folder.startswith("cran"):  # both files judge the same pairs, by the ids of the queries
        assert set(found.judgments["all"].qids) == set(found.topics.ids)


def test_trec(tmp_path):
    docs = "<DOC>\n<DOCNO> a-1 </DOCNO>\n<TITLE>Wings &amp; tails</TITLE>\n<TEXT>They <b>lift</b>.</TEXT></DOC>\n"
    written(tmp_path / "docs.xml", docs)
    written(tmp_path / "topics.txt", "<top>\n<num> Number: 301\n<title> wings\n<desc> Description:\nx\n</top>\n")
    written(tmp_path / "my.qrels", "301 0 a-1 2\n")
    found = search.read(tmp_path)
    assert found.fields == {"title": ["Wings & tails"], "body": ["They  lift ."]}
    assert found.topics == search.Topics(("301",), ("wings",))
    assert found.judgments["all"].grades.tolist() == [2.0]


def test_beir(tmp_path):
    written(tmp_path / "corpus.jsonl", '{"_id": "d 1", "title": "T", "text": "body", "metadata": {}}\n')
    written(tmp_path / "queries.jsonl", '{"_id": "q1", "text": "what"}\n')
    written(tmp_path / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\nq1\td 1\t2\n")
    found = search.read(tmp_path)
    assert found.ids == ["d 1"]
    assert found.fields == {"title": ["T"], "text": ["body"]}
    assert found.judgments["test"].document_ids.tolist() == ["d 1"]


def test_a_folder_of_texts(tmp_path):
    written(tmp_path / "a.md", "# Cats\n\nSee [dogs](b.html).")
    written(tmp_path / "b.html", "<html><title>Dogs</title><script>var x</script><p>bark &lt;3</p>")
    written(tmp_path / "deep" / "c_d.txt", "plain")
    written(tmp_path / "e.png", b"\x89PNG\0")
    written(tmp_path / ".hidden.txt", "no")
    found = search.read(tmp_path)
    assert found.ids == ["a.md", "b.html", "deep/c_d.txt"]
    assert found.fields["title"] == ["Cats", "Dogs", "c d"]
    assert found.fields["body"] == ["See dogs.", "bark <3", "plain"]
    assert "png" in found.notes[0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_texts_in_any_encoding(tmp_path, encoding):
    written(tmp_path / "a.txt", "Über größe".encode(encoding))
    found = search.read(tmp_path)
    assert found.fields["body"] == ["Über größe"]
    guessed = "Read 1 of 1 files as Windows-1252, since they are not UTF-8 and declare no encoding."
    assert found.notes == ((guessed,) if encoding == "cp1252" else ())


@pytest.mark.parametrize("encoding", ["windows-1251", "koi8-r", "utf-8"])
def test_pages_are_read_in_the_encoding_that_they_state(tmp_path, encoding):
    page = f"<html><meta content='text/html; charset={encoding}'><title>Крыло</title><p>самолёт"
    written(tmp_path / "a.html", page.encode(encoding))
    found = search.read(tmp_path)
    assert (found.fields["title"], found.fields["body"], found.notes) == (["Крыло"], ["самолёт"], ())
    written(tmp_path / "a.html", page.encode("koi8-r").replace(encoding.encode(), b"klingon"))
    assert "not UTF-8" in search.read(tmp_path).notes[0]


def test_a_link_to_nothing_is_left_out_of_a_folder(tmp_path):
    written(tmp_path / "a.txt", "wing")
    (tmp_path / "b.txt").symlink_to(tmp_path / "gone.txt")
    found = search.read(tmp_path)
    assert found.ids == ["a.txt"]
    assert found.notes[0].endswith("1 × broken link.")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"abc\0\1\2", "binary file"),
        ("docs.jsonl", b'{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n', "already used in line 1"),
        ("docs.jsonl", b'{"id": "a", "text": "x"}\n{"text": "y"}\n', "no id"),
        ("docs.jsonl", b'{"id": "a", "text": "x"}\n[1]\n', "one JSON object per line"),
        ("docs.jsonl", b'{"id": "a", "n": 1}\n', "contain only ids"),
        ("x.all", b".I 1\n.W\na\n.I 1\n.W\nb\n", "have the same id '1'"),
        ("x.bin", b"\0\1", "binary file"),
        ("x.csv", b"a,b\n1,2\n", "no supported layout"),
        ("x.xml", b"<doc><text>a</text></doc>", "no <docno>"),
    ],
)
def test_refused_in_a_sentence(tmp_path, name, content, said):
    path = written(tmp_path / "folder" / name, content)
    with pytest.raises(ToprankError, match=said) as problem:
        search.read(path.parent if name == "a.txt" else path)
    assert str(problem.value).endswith((".", "?"))


def test_nothing_there(tmp_path):
    with pytest.raises(FileError, match="python-docs"):
        search.read(tmp_path / "nothing")
    with pytest.raises(DataError, match="contains no text files"):
        search.read(tmp_path)
    with pytest.raises(ToprankError, match="did you mean 'title'"):
        search.read({"a": {"title": "x", "body": "y"}}, fields=["titel"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("q1 0 d1\nq1 d2 1 1 1\n", "columns"),
        ("", "no judgments"),
        ("q1 0 d1 x\n", "a number"),
        ("q1 0 d1 1\nq1 0 d1 0\n", "twice"),
    ],
)
def test_judgments_refused(tmp_path, content, said):
    with pytest.raises(FormatError, match=said):
        search.read_judgments(written(tmp_path / "q.qrels", content))


def test_queries_nobody_judged(tmp_path):
    path = written(tmp_path / "q.qrels", "x 0 d1 1\n")
    with pytest.raises(DataError, match="the same ids"):
        search.read_judgments(path, search.Topics(("a",), ("words",)))


def test_a_source_that_changes_is_noticed(tmp_path):
    file = written(tmp_path / "a.txt", "one")
    stamp = SourceSignature.from_files(tmp_path, [file], whole_folder=True)
    assert not changed(stamp)
    written(tmp_path / "b.txt", "two")
    assert changed(stamp)
    (tmp_path / "b.txt").unlink()
    assert not changed(stamp)
    file.unlink()
    assert changed(stamp)


# ---- the documentation of Python ----

PLANTED = "Zyxwv quokkas juggle marmalade before breakfast."


@pytest.fixture
def planted(tmp_path):
    body = "Further words stand below it, so that there is something left to be found by whoever asks."
    source = '"""A module about things.\n\nWith ten more words so that there is a text of its own here."""\n'
    source += f'def target():\n    """{PLANTED}\n\n    {body} Again:\n    {PLANTED.lower()}\n    """\n'
    for number in range(8):
        source += f'def other_{number}():\n    """Number {number} of the others does some thing.\n\n    {body}"""\n'
    written(tmp_path / "package" / "things.py", source)
    written(tmp_path / "test" / "test_x.py", f'"""{PLANTED}"""')
    written(tmp_path / "broken.py", "def (:")
    return tmp_path


def test_a_held_out_sentence_leaks_nowhere(planted, tmp_path):
    found = search.python_docs(queries=50, root=planted)
    assert PLANTED in found.topics.texts
    qid = found.topics.ids[found.topics.texts.index(PLANTED)]
    target = found.ids.index("package.things.target")
    assert "quokkas" not in found.fields["body"][target].lower()
    made = search.index(found, tmp_path / "made.index")
    rare = set(made.statistics.analyzer.words("zyxwv quokkas juggle marmalade"))
    assert not rare & set(made.statistics.vocabulary.words)  # nor in LSA, whose words are among these
    assert len(made.search("quokkas marmalade", rerank=False)) == 0  # nor in the first stage
    for file in (tmp_path / "made.index").iterdir():
        if file.name != "topics.json":
            assert b"quokka" not in file.read_bytes().lower(), file
    qrels = found.judgments["all"]
    own = dict(zip(qrels.document_ids[qrels.qids == qid], qrels.grades[qrels.qids == qid], strict=True))
    assert own.pop("package.things.target") == 2
    assert set(own.values()) == {1.0}
    assert "package.things" in own


def test_the_test_of_leaks_can_fail(planted, tmp_path):
    """Without the removal the planted sentence is found, in the texts, the words and the first stage."""
    found = search.python_docs(queries=0, root=planted)
    assert found.topics is None
    made = search.index(found, tmp_path / "made.index")
    assert "quokka" in made.statistics.vocabulary.words
    assert made.search("quokkas")[0].id == "package.things.target"


@pytest.mark.nightly
def test_the_documentation_of_this_python():
    found = search.python_docs(queries=40)
    assert len(found) > 2000
    assert len(found.topics) == 40
    assert found.ids == sorted(set(found.ids), key=found.ids.index)
    bodies = dict(zip(found.ids, found.fields["body"], strict=True))
    qrels = found.judgments["all"]
    for qid, text in zip(found.topics.ids, found.topics.texts, strict=True):
        target = qrels.document_ids[(qrels.qids == qid) & (qrels.grades == 2)]
        assert len(target) == 1
        words = " ".join(re.findall(r"[a-z0-9]+", text.lower()))
        assert words not in " ".join(re.findall(r"[a-z0-9]+", bodies[target[0]].lower()))
    again = search.python_docs(queries=40)
    assert again.topics == found.topics
    assert np.array_equal(again.judgments["all"].grades, qrels.grades)


def test_topics_in_lines_and_json(tmp_path):
    lines = search.read_topics(written(tmp_path / "q.tsv", "query_id\ttext\n7\tred shoes\n8\t\n"))
    assert lines == search.Topics(("7", "8"), ("red shoes", ""))
    given = "\n".join(json.dumps({"_id": i, "text": f"words {i}"}) for i in (1, 2))
    assert search.read_topics(written(tmp_path / "q.jsonl", given)).ids == ("1", "2")
    with pytest.raises(FormatError, match="as one line"):
        search.read_topics(written(tmp_path / "q.txt", "no tab here\n"))
