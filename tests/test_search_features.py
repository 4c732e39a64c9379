"""Features of candidates against slow obvious computations; training and evaluation without a look at the answers."""

from __future__ import annotations

import email
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import toprank as tr
from toprank import search
from toprank.cli.commands import app
from toprank.clicks import ClickLog
from toprank.data.trec import Qrels
from toprank.errors import DataError, FileError, UnknownNameError
from toprank.search.features import CandidateFeatures
from toprank.search.feedback import Neighbors
from toprank.search.first_stage import FusedRuns
from toprank.search.proximity import Positions
from toprank.text import Statistics
from toprank.text.documents import cosine_values

WORDS = ("wing", "plate", "shock", "flow", "heat", "noise")


def encoded(texts):
    known = Statistics.fit({"body": texts}, lsa=3)
    return known.encode({"body": texts})


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=12), min_size=2, max_size=5),
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=4),
)
def test_proximity_is_the_shortest_passage(texts, query):
    documents = encoded([" ".join(words) for words in texts])
    asked = documents.queries([" ".join(query)])
    sequence = asked.phrase.astype(np.int64)
    sequence = sequence[sequence >= 0]
    numbers = np.full(len(documents.vocabulary) + 1, -1, dtype=np.int64)
    rows = np.arange(len(texts))
    idf = documents.statistics.idf(documents.known)
    found = Positions.from_documents(documents).features(sequence, idf, rows, numbers)
    assert (numbers == -1).all()
    known = [word for word in query if any(word in words for words in texts)]
    pairs = {(a, b) for a, b in pairwise(known) if a != b}
    for row, words in enumerate(texts):
        there = set(words) & set(known)
        spans = [b - a for a in range(len(words)) for b in range(a + 1, len(words) + 1) if there <= set(words[a:b])]
        expected = len(there) / min(spans) if len(there) >= 2 and len(set(known)) >= 2 else 0.0
        assert found[row, 1] == pytest.approx(expected)
        hits = [(place, word) for place, word in enumerate(words) if word in known]
        near = {(a, b) for (i, a), (j, b) in pairwise(hits) if j - i <= 2}
        assert found[row, 0] == pytest.approx(len(near & pairs) / len(pairs) if pairs else 0.0)


@given(st.integers(0, 1000))
def test_feedback_leaves_a_document_out_of_its_own_center(seed):
    rng = np.random.default_rng(seed)
    documents = encoded([" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(14)])
    rows = rng.permutation(14)[: rng.integers(2, 15)]
    found = Neighbors(documents).features(rows)
    bags = documents.fields[0].bags
    values, _ = cosine_values(bags, documents.statistics.idf(documents.known))
    words = np.asarray(bags.matrix(len(documents.vocabulary), values).todense())
    for column, table in enumerate((words, documents.vectors.astype(float))):
        unit = table / np.where((length := np.linalg.norm(table, axis=1)) > 0, length, 1)[:, None]
        for place, row in enumerate(rows):
            center = sum(unit[other] for at, other in enumerate(rows[:10]) if at != place)
            size = np.linalg.norm(center)
            expected = float(unit[row] @ center / size) if size > 1e-3 else 0.0
            assert found[place, column] == pytest.approx(expected, abs=2e-3)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """120 documents about one of 24 things each; what is relevant says it in the title."""
    rng = np.random.default_rng(0)
    filler = [f"word{i}" for i in range(60)]
    documents, queries, qrels = {}, {}, {}
    for thing in range(24):
        queries[f"q{thing}"] = f"thing{thing} word{thing}"
        for number in range(5):
            relevant = number < 2
            body = " ".join([*rng.choice(filler, 25), *([f"thing{thing}"] * (1 if relevant else 4))])
            title = f"thing{thing} {rng.choice(filler)}" if relevant else " ".join(rng.choice(filler, 2))
            documents[f"d{thing}-{number}"] = {"title": title, "body": body}
            qrels.setdefault(f"q{thing}", {})[f"d{thing}-{number}"] = int(relevant)
    path = tmp_path_factory.mktemp("judged") / "x.index"
    return search.index(documents, path), queries, qrels


def test_a_learned_order_is_better_and_is_kept(judged):
    index, queries, qrels = judged
    systems = ["bm25", "lsa", "rrf", "ListNet"]
    found = index.evaluate(queries, qrels, systems, metrics="ndcg@10, map", threads=1)
    assert found.means["ListNet"]["ndcg@10"] > found.means["bm25"]["ndcg@10"] + 0.1
    assert found.candidate_recall == 1.0
    assert found.queries == 24
    assert json.loads(json.dumps(found.to_dict()))["systems"].keys() == {"bm25", "lsa", "rrf", "ListNet"}
    assert len(found.to_frame()) == 8
    trained = index.train(queries, qrels, "ListNet", threads=1)
    assert trained.candidate_recall == 1.0
    again = search.open(index.path)
    results = again.search(queries["q3"], 5)
    assert results.reranked
    assert {results[0].id, results[1].id} == {"d3-0", "d3-1"}
    assert not again.search(queries["q3"], rerank=False).reranked
    assert "d3-0" in str(again.explain(queries["q3"], "d3-0", "d3-2"))
    with pytest.raises(DataError, match="trained on 24 of these 24 queries"):
        again.evaluate(queries, qrels, ["model"])
    others = {"new": "thing5"}
    assert again.evaluate(others, {"new": {"d5-0": 1}}, ["model"]).queries == 1


def test_search_and_evaluation_compute_the_same_features(judged):
    index, queries, _ = judged
    data = index.data(queries)
    for place, (qid, words) in enumerate(queries.items()):
        alone = index.data({qid: words})
        rows = slice(*data.queries.offsets[place : place + 2])
        assert alone.document_ids.tolist() == data.document_ids[rows].tolist()
        assert np.array_equal(alone.X, data.X[rows], equal_nan=True)


def test_every_feature_of_a_candidate_has_a_meaning(judged):
    index, queries, _ = judged
    runs = {"dense": {qid: {"d3-0": 1.0} for qid in queries}}
    known = CandidateFeatures(
        index.documents, index.encoded, FusedRuns(runs, index.documents),
        {"small": np.ones((120, 2), dtype=np.float32)},
        {"own": lambda words, candidates: np.zeros(len(candidates.ids))},
    )  # fmt: skip
    assert list(known.descriptions) == list(known.names)
    assert known.descriptions["lsa feedback zscore in pool"] == (
        "z-score among the candidates, of: cosine similarity to the mean LSA vector of the top ten candidates"
    )
    assert known.descriptions["title bm25"] == "BM25 (k1 = 1.2, b = 0.75), in title"
    assert known.descriptions["dense rank"] == "rank in the run dense"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("a,b\n1,2\n", "looks like the query. The columns are: a, b. Call the one that holds it 'query'."),
        ("qid,query,document,position,click\n", "'query'. Keep only one of them in the file."),
        ("query,document,position,click\nq,d,0,1\n", "If the log counts from 0, add 1."),
        ("session,query,document,position,click\n1,q,d,1,1\n1,r,e,2,1\n", "Give each list its own id."),
        (
            "query,document,position,click,value\nq,d,1,1,dear\n",
            "is 'dear', not a number. Leave such cells empty.",
        ),
    ],
)
def test_a_log_that_cannot_teach_is_refused_with_what_the_command_takes(judged, tmp_path, log, said):
    (tmp_path / "log.csv").write_text(log)
    result = CliRunner().invoke(app, ["search", "train", str(judged[0].path), "--clicks", str(tmp_path / "log.csv")])
    assert result.exit_code == 1
    assert said in " ".join(str(result.exception or result.output).split())


def test_labels_that_mean_nothing_are_not_learned(judged):
    """Whoever saw the answers of a fold would rank it far above chance."""
    index, queries, qrels = judged
    rng = np.random.default_rng(3)
    shuffled = {q: dict(zip(of, rng.permutation(list(of.values())).tolist(), strict=True)) for q, of in qrels.items()}
    found = index.evaluate(queries, shuffled, ["bm25", "LambdaMART"], metrics="ndcg@3", threads=1)
    assert found.means["LambdaMART"]["ndcg@3"] < 0.75
    honest = index.evaluate(queries, qrels, ["LambdaMART"], metrics="ndcg@3", threads=1)
    assert honest.means["LambdaMART"]["ndcg@3"] > 0.9


def test_queries_without_candidates_count_nothing(judged):
    index, queries, qrels = judged
    more = {**queries, "q99": "xyzzy"}
    judgments = {**qrels, "q99": {"d1-0": 1}}
    found = index.evaluate(more, judgments, ["bm25"], metrics="ndcg@10")
    less = index.evaluate(queries, qrels, ["bm25"], metrics="ndcg@10")
    assert found.means["bm25"]["ndcg@10"] == pytest.approx(less.means["bm25"]["ndcg@10"] * 24 / 25)
    assert found.candidate_recall == pytest.approx(24 / 25)


def test_vectors_and_functions(judged, tmp_path):
    base, queries, qrels = judged
    ids = base.documents.ids.tolist()
    relevant = np.array([[qrels[f"q{i.split('-')[0][1:]}"][i], 1.0] for i in ids])
    texts = {i: base.documents.fields_of(row) for row, i in enumerate(ids)}
    index = search.index(texts, tmp_path / "x.index", vectors={"v": relevant * 7})
    asked = {"v": np.tile([3.0, 0.0], (len(queries), 1))}
    data = index.data(queries, qrels, vectors=asked)
    column = data.X[:, data.feature_names.index("v similarity")]
    expected = [1 / np.sqrt(2) if name[-1] in "01" else 0.0 for name in data.document_ids]
    assert column == pytest.approx(expected, abs=1e-6)
    assert np.isnan(index.data(queries).X[:, data.feature_names.index("v similarity")]).all()
    with pytest.raises(UnknownNameError, match="set of vectors"):
        index.data(queries, vectors={"w": asked["v"]})
    mine = search.open(index.path, functions={"longer": lambda query, found: [len(t) for t in found.texts("title")]})
    mine.train(queries, qrels, "ListNet", threads=1, vectors=asked)
    assert mine.search("thing3", vectors={"v": [3.0, 0.0]}).reranked
    with pytest.raises(DataError, match="longer"):
        search.open(index.path).search("thing3")
    wrong = search.open(index.path, functions={"longer": lambda query, found: [1.0]})
    with pytest.raises(DataError, match="for each of the"):
        wrong.data(queries)


def test_learning_from_clicks(judged, tmp_path):
    index, queries, qrels = judged
    rng = np.random.default_rng(0)
    rows = []
    pools = {qid: index.data({qid: words}).document_ids.tolist() for qid, words in queries.items()}
    for session in range(1500):
        qid = f"q{rng.integers(24)}"
        shown = rng.permutation([*qrels[qid], *rng.choice(list(set(pools[qid]) - set(qrels[qid])), 5, replace=False)])
        for place, document in enumerate(shown, 1):
            look = rng.random() < 1 / place
            rows.append(
                (
                    queries[qid],
                    document,
                    place,
                    look and rng.random() < 0.1 + 0.8 * qrels[qid].get(str(document), 0),
                    session,
                )
            )
    query, document, position, click, session = zip(*rows, strict=True)
    log = ClickLog.from_columns(query, document, position, click, session)
    trained = index.train_on_clicks(log, correction="ips")
    assert trained.queries == 24
    hits = [{hit.id for hit in index.search(words, 2)} for words in queries.values()]
    right = sum(len(found & {d for d, g in qrels[q].items() if g}) for found, q in zip(hits, qrels, strict=True))
    assert right > 40  # of 48


def test_a_model_of_another_index_is_not_used(judged, tmp_path):
    index, queries, qrels = judged
    index.train(queries, qrels, "ListNet", threads=1)
    ids = index.documents.ids.tolist()
    other = search.index({i: index.documents.fields_of(r) for r, i in enumerate(ids)}, tmp_path / "x.index")
    (other.path / "model.toprank").write_bytes((index.path / "model.toprank").read_bytes())
    with pytest.warns(UserWarning, match="another index"):
        assert not search.open(other.path).search("thing3").reranked


def test_refusals(judged):
    index, queries, qrels = judged
    with pytest.raises(UnknownNameError, match="did you mean 'bm25'"):
        index.evaluate(queries, qrels, ["bm26"])
    with pytest.raises(DataError, match="n_candidates"):
        index.evaluate(queries, qrels, ["bm25"], n_candidates=0)
    with pytest.raises(DataError, match="listed twice"):
        index.evaluate(queries, qrels, ["bm25", "BM25"])
    with pytest.raises(DataError, match="was indexed without queries"):
        index.train()
    with pytest.raises(DataError, match="the same ids"):
        index.train(queries, {"zz": {"d": 1}})
    with pytest.raises(DataError, match="at least 5 queries"):
        index.train({"q1": queries["q1"]}, qrels)


def test_the_commands(judged, tmp_path):
    index, queries, qrels = judged
    (tmp_path / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": q, "text": t}) + "\n" for q, t in queries.items())
    )
    tr.data.trec.write_qrels(Qrels.from_source(qrels), tmp_path / "my.qrels")

    def run(*words):
        done = CliRunner().invoke(app, ["search", *map(str, words)])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    given = ("--queries", tmp_path / "queries.jsonl", "--qrels", tmp_path / "my.qrels", "--quiet")
    out = json.loads(run("evaluate", index.path, *given, "--systems", "bm25,lsa,rrf,ListNet", "--json"))
    assert set(out) >= {"systems", "pool_recall", "queries"}
    assert out["systems"]["ListNet"]["ndcg@10"] > 0.9
    assert json.loads(run("train", index.path, *given, "--system", "ListNet", "--json"))["queries"] == 24
    assert json.loads(run("query", index.path, "thing3", "-k", 2, "--json"))["reranked"]


def test_the_demo_shows_a_search_that_got_better(tmp_path, monkeypatch):
    """The whole job, on few queries and a fast system."""
    from toprank.search.collections import python_docs

    few = Path(email.__file__).parent  # of the standard library
    monkeypatch.setattr("toprank.search.collections.sources.python_docs", lambda: python_docs(queries=40, root=few))
    monkeypatch.setattr("toprank.search.evaluation.DEFAULT_SYSTEM", "RankNet-linear")
    monkeypatch.setattr("toprank.search.blending._ROUNDS", (10,))
    monkeypatch.setattr("toprank.serving._PACKAGES", ("no_such_package",))
    done = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo"), "--threads", "1"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert {"report.html", "python.index"} <= {path.name for path in (tmp_path / "demo").iterdir()}
    assert done.stdout.count(", better") + done.stdout.count(", worse") == 4
    assert done.stdout.count("Grade 2 marks the source document") == 1
    [page] = [line for line in done.stderr.splitlines() if "search serve" in line]
    assert page.endswith("no_such_package, which is not installed: pip install 'toprank[serve]'.)")
    assert search.open(tmp_path / "demo" / "python.index").search("header").reranked


def test_an_open_index_has_what_another_process_trained_and_a_pinned_one_keeps_its_own(judged, tmp_path):
    base, queries, qrels = judged
    path = tmp_path / "x.index"
    documents = {name: base.documents.fields_of(row) for row, name in enumerate(base.documents.ids.tolist())}
    search.index(documents, path)
    here, pinned, there = search.open(path), search.open(path), search.open(path)
    pinned.pin_model()
    assert not here.search("thing3").reranked
    there.train(queries, qrels, "ListNet", threads=1)
    assert here.search("thing3").reranked
    assert not pinned.search("thing3").reranked
    before = [hit.score for hit in here.search("thing3")]
    there.train(queries, qrels, "ListNet", threads=1, l2=100.0)
    assert [hit.score for hit in here.search("thing3")] != before
    kept = [hit.score for hit in here.search("thing3")]
    search.index(documents, path)  # of the same name: without a model
    assert [hit.score for hit in here.search("thing3")] == kept
    with pytest.raises(FileError, match="replaced by another index"):
        here.train(queries, qrels, "ListNet", threads=1)
    assert not search.open(path).search("thing3").reranked


def test_recall_is_over_the_queries_that_are_asked(judged):
    index, queries, qrels = judged
    some = {qid: queries[qid] for qid in list(queries)[:10]}
    assert index.train(some, qrels, "ListNet", threads=1).candidate_recall == 1.0


def test_too_few_judged_queries_say_what_can_be_done(judged):
    index, queries, qrels = judged
    few = {qid: queries[qid] for qid in list(queries)[:4]}
    judgments = {qid: qrels[qid] for qid in few}
    with pytest.raises(DataError, match=r"choose folds=4, or name systems=\['bm25', 'lsa'\]"):
        index.evaluate(few, judgments)
    assert index.evaluate(few, judgments, ["bm25", "lsa"]).queries == 4
    two = dict(list(few.items())[:2])
    with pytest.raises(DataError, match=r"more queries, name systems="):
        index.evaluate(two, {qid: qrels[qid] for qid in two})


def test_lsa_makes_up_no_order_for_words_that_nobody_knows(judged):
    index, queries, qrels = judged
    asked = {**dict(list(queries.items())[:3]), "none": "the of and"}
    judgments = {**{qid: qrels[qid] for qid in asked if qid in qrels}, "none": {"d0-0": 1}}
    found = index.evaluate(asked, judgments, ["bm25", "lsa"])
    assert "none" not in found.runs["lsa"].qids
    assert found.queries == 4
    with pytest.raises(DataError, match="found no document"):
        index.evaluate({"none": "the of and"}, {"none": {"d0-0": 1}}, ["lsa"])


def test_what_clicks_taught_says_what_they_cannot(judged):
    index, queries, _ = judged
    words = list(queries.values())[:6]
    rows = [
        (text, hit.id, hit.rank, (session + hit.rank) % 3 == 0, f"{place}-{session}")
        for place, text in enumerate(words)
        for session in range(20)
        for hit in index.search(text, 3, rerank=False)
    ]
    trained = index.train_on_clicks(ClickLog.from_columns(*zip(*rows, strict=True)), propensities=[1.0, 0.5, 0.3])
    assert "nan" not in str(trained)
    assert "never shown" in str(trained)
    assert trained.to_dict()["pool_recall"] is None
    with pytest.raises(DataError, match="trained on 1 of these 1 queries"):  # the log knows it by its words
        index.evaluate({"other id": words[0]}, {"other id": {"d0-0": 1}}, ["model"])


def shown_log(index, queries, deep, sessions=20, learned=False):
    """Lists of the first stage, with clicks that tell positions apart."""
    return ClickLog.from_columns(*zip(*(
        (text, hit.id, hit.rank, (session + hit.rank) % 3 == 0, f"{place}-{session}")
        for place, text in enumerate(queries)
        for session in range(sessions)
        for hit in index.search(text, deep, rerank=learned)
    ), strict=True))  # fmt: skip


def test_clicks_rank_as_deep_as_the_log_has_shown(judged, tmp_path):
    index, queries, _ = judged
    words = list(queries.values())[:6]
    log, looks = shown_log(index, words, 4), [1.0, 0.7, 0.5, 0.3]
    whole = len(index.search(words[0], rerank=False).rows)
    assert whole > 4
    trained = index.train_on_clicks(log, propensities=looks)
    assert trained.candidates == 4 * len(words)
    assert "down to rank 4 of the first stage" in str(trained)
    assert len(index.search(words[0], k=2).rows) == index.depth == 4
    trained = index.train_on_clicks(log, propensities=looks, n_candidates=whole)
    assert trained.candidates > 4 * len(words)
    assert "none below rank 4" in str(trained)
    assert len(index.search(words[0], k=2).rows) == whole
    with pytest.raises(DataError, match="the log belongs to this index"):
        index.train_on_clicks(ClickLog.from_columns([words[0]] * 2, ["x", "y"], [1, 2], [1, 0]), propensities=looks)


def test_the_pool_of_a_training_is_that_of_later_searches(judged, tmp_path):
    base, queries, qrels = judged
    texts = {name: base.documents.fields_of(row) for row, name in enumerate(base.documents.ids.tolist())}
    index = search.index(texts, tmp_path / "x.index", n_candidates=9)
    index.train(queries, qrels, "ListNet", threads=1)
    assert index.depth == 9
    index.train(queries, qrels, "ListNet", threads=1, n_candidates=6)
    asked = queries["q0"]
    found = search.open(index.path).search(asked, 3)
    assert len(found.rows) == index.depth == 6
    assert len(index.search(asked, 3, n_candidates=8).rows) == 8
    # What is explained is what was found: the features of the pool are those of six candidates.
    told = index.explain(asked, found[0].id, found[1].id, k=3)
    assert float(told.total) == pytest.approx(found[0].score - found[1].score, abs=1e-6)
    others = {f"{qid}!": f"{text} more" for qid, text in queries.items()}
    judgments = {f"{qid}!": of for qid, of in qrels.items()}
    assert index.evaluate(others, judgments, ["bm25", "model"]).n_candidates == 6
    assert index.evaluate(others, judgments, ["bm25", "lsa"]).n_candidates == 9
    for told in (True, 0, -3, 2.5, "7", None):  # what a forged file may say
        model = index.model
        model.training_["search"]["pool"] = told
        index.keep_model(model)
        assert search.open(index.path).depth == 9


def test_the_command_that_learns_from_clicks_hands_on_seed_and_threads(judged, tmp_path, monkeypatch):
    base, queries, qrels = judged
    rng = np.random.default_rng(0)
    rows = []
    for session in range(400):
        qid = f"q{rng.integers(6)}"
        for place, document in enumerate(rng.permutation(list(qrels[qid])), 1):
            click = rng.random() < (0.1 + 0.8 * (qrels[qid][str(document)] > 0)) / place
            rows.append((queries[qid], document, place, click, session))
    columns = zip(("query", "document", "position", "click", "session"), zip(*rows, strict=True), strict=True)
    pd.DataFrame(dict(columns)).to_parquet(tmp_path / "log.parquet")
    made, real = [], search.Index.train_on_clicks

    def seen(index, log, asked, **options):
        made.append(options["system"])
        return real(index, log, asked, **options)

    monkeypatch.setattr(search.Index, "train_on_clicks", seen)
    for system, more in (("ListNet", ()), ("MART", ("--set", "n_trees=3", "--set", "min_data_in_leaf=1"))):
        given = ("--clicks", tmp_path / "log.parquet", "--system", system, "--seed", 7, "--threads", 2, "--quiet")
        done = CliRunner().invoke(app, ["search", "train", *map(str, (base.path, *given)), *more])
        assert done.exit_code == 0, (done.output, done.exception)
        assert "400 sessions" in done.stdout
    assert [ranker.threads for ranker in made] == [2, 2]
    assert made[1].seed == 7


def test_the_language_of_a_collection_is_that_of_its_documents(tmp_path):
    german = {
        "flügel": "Der Auftrieb der Flügel hängt von der Form ab und davon, wie schnell die Luft sie umströmt.",
        "platte": "Die Platte wird von der Luft gekühlt, die über sie strömt, und ist dann nicht mehr so heiß.",
        "nichts": "Das ist nur ein Text, in dem es um nichts geht, was in den anderen steht.",
    }
    index = search.index(german, tmp_path / "x.index")
    assert index.statistics.analyzer.language == "german"
    assert "Detected language: German" in " ".join(index.notes)
    assert [hit.id for hit in index.search("die gekühlten Platten")] == ["platte"]
    assert index.search("und der die").note.startswith("The query contains no words")
    english = search.index(german, tmp_path / "x.index", language="english")
    assert not english.search("gekühlten")  # the stemmer of another language does not find it
    assert not english.notes
    plain = search.index(german, tmp_path / "x.index", language="none")
    assert len(plain.search("DIE")) == 2
    french = {
        "aile": "La portance des ailes dépend de leur forme et de la vitesse de l'air autour d'elles.",
        "plaque": "La plaque est refroidie par l'air qui passe dessus, et elle n'est plus aussi chaude.",
    }
    index = search.index(french, tmp_path / "x.index")
    assert index.statistics.analyzer.language == "french"
    assert [hit.id for hit in index.search("l'aile dépendante")] == ["aile"]
    with pytest.raises(UnknownNameError, match="german"):
        search.index(german, tmp_path / "x.index", language="germann")
