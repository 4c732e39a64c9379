"""Text in tables: kept in every form of data, learned by `fit` from its own training part, part of the model."""

from __future__ import annotations

import json
import pickle
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import toprank as tr
from toprank.data.frames.categories import ColumnsLeftOutWarning
from toprank.errors import DataError, FormatError
from toprank.report.page import page as report_page
from toprank.text import MatchFeatures, Statistics

ROLES = {"query": "search_term", "document": ["title", "description"]}
COLORS, THINGS = ["red", "blue", "green", "black"], ["shoe", "lamp", "chair", "bottle"]


def table(n_queries=24, seed=0):
    """Products whose grade is how many of the query's words their title has."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(n_queries):
        color, thing = rng.choice(COLORS), rng.choice(THINGS)
        for _ in range(6):
            words = rng.choice(COLORS), rng.choice(THINGS)
            rows.append(
                {
                    "qid": q,
                    "label": int(words[0] == color) + int(words[1] == thing),
                    "price": rng.random(),
                    "search_term": f"{color} {thing}s",
                    "title": f"{words[0]} {words[1]} no {rng.integers(1000)}",
                    "description": rng.choice([None, "a fine thing", "it is cheap"]),
                }
            )
    return pd.DataFrame(rows)


FRAME = table()
DATA = tr.RankingData.from_frame(FRAME, text=ROLES)


def rankers():
    return [
        tr.LinearRanker("ListNet"),
        tr.TreeRanker(n_trees=8, min_data_in_leaf=3),
        tr.ExpectedGainRanker(),
        tr.AdaRank(),
        tr.BlendRanker([tr.LinearRanker("ListNet"), tr.TreeRanker(n_trees=5, min_data_in_leaf=3)]),
    ]


every_ranker = pytest.mark.parametrize("ranker", rankers(), ids=lambda one: type(one).__name__)


# ---- data ----


def test_text_is_carried_and_no_feature():
    assert DATA.feature_names == ("price",)
    assert DATA.text.columns == ("search_term", "title", "description")
    assert len(DATA.metadata["search_term"]) == DATA.n_queries
    assert "" in DATA.metadata["description"].tolist()
    assert "None" not in DATA.metadata["description"].tolist()


def test_a_query_beside_its_id_is_words_if_that_is_said() -> None:
    frame = FRAME.rename(columns={"qid": "query_id", "search_term": "query"})
    data = tr.RankingData.from_frame(frame, text={"query": "query", "document": ["title"]})
    assert data.n_queries == DATA.n_queries
    assert "query" not in data.feature_names


@pytest.mark.parametrize("kind", ["parquet", "arrow", "toprank-data"])
def test_files_keep_the_text(tmp_path, kind):
    path = tmp_path / f"data.{kind}"
    tr.write(DATA, path)
    again = tr.read(path, **({"verify": True} if kind == "toprank-data" else {}))
    assert again.equals(DATA)
    assert again.fingerprint == DATA.fingerprint
    assert again.text == DATA.text


def test_csv_and_conversions_keep_the_text(tmp_path):
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    assert tr.read(tmp_path / "a.csv", text=ROLES).equals(DATA)
    for name in ("b.parquet", "c.toprank-data"):
        tr.convert(tmp_path / "a.csv", tmp_path / name, text=ROLES)
        assert tr.read(tmp_path / name).equals(DATA)
    half = DATA.select(np.arange(DATA.n_queries) < 12), DATA.select(np.arange(DATA.n_queries) >= 12)
    for number, part in enumerate(half):
        tr.write(part, tmp_path / f"{number}.toprank-data")
    both = [tmp_path / "0.toprank-data", tmp_path / "1.toprank-data"]
    assert tr.read(both).equals(DATA)
    tr.convert(both, tmp_path / "both.toprank-data")
    assert tr.read(tmp_path / "both.toprank-data").equals(DATA)


def test_parts_keep_the_text():
    a, b = tr.split(DATA, (0.5, 0.5))
    joined = tr.concatenate([a, b])
    assert joined.text == DATA.text
    assert sorted(joined.metadata["title"].tolist()) == sorted(DATA.metadata["title"].tolist())
    mask = np.arange(DATA.n_documents) % 2 == 0
    assert DATA.filter(mask).metadata["title"].tolist() == DATA.metadata["title"][mask].tolist()
    assert DATA.replace(labels=DATA.labels + 1).text == DATA.text
    assert pickle.loads(pickle.dumps(DATA)).equals(DATA)
    other = DATA.replace(metadata={**DATA.metadata}, text={**ROLES, "language": "german"})
    assert not other.equals(DATA)
    assert other.fingerprint != DATA.fingerprint


@pytest.mark.parametrize(
    "made", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"]
)
def test_frames_of_all_kinds(made):
    data = tr.RankingData.from_frame(made(FRAME), text=ROLES)
    assert data.equals(DATA)
    assert tr.RankingData.from_frame(data.to_frame("arrow")).equals(DATA)


def test_a_query_column_may_be_the_query_id_too():
    frame = FRAME.drop(columns="qid").rename(columns={"search_term": "query"})
    words = {"text": {"query": "query", "document": "title"}, "features": ["price"]}
    with pytest.raises(DataError, match="If rows with the same text are one query, give qid='query'"):
        tr.RankingData.from_frame(frame, **words)
    data = tr.RankingData.from_frame(frame, **words, qid="query")
    assert set(data.qids.tolist()) == set(frame["query"])
    assert tr.LinearRanker("ListNet").fit(data).rank(frame)


def test_long_texts_cost_their_own_length():
    frame = FRAME.assign(title=["x " * 2_000_000, *FRAME.title[1:]])
    data = tr.RankingData.from_frame(frame, text=ROLES)
    assert sum(map(len, data.metadata["title"].tolist())) < 5_000_000
    assert data.metadata["title"].nbytes < 10_000
    assert np.isfinite(tr.LinearRanker("ListNet").fit(data).predict(data)).all()


def test_the_message_about_titles_proposes_the_text():
    with pytest.warns(
        ColumnsLeftOutWarning, match=r"match the text with the query, use text=\{'query': \.\.\., 'document': \['ti"
    ):
        tr.RankingData.from_frame(FRAME)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"query": "search_term", "document": ["name"]}, "'name'"),
        ({"query": "term", "document": ["title"]}, "'term'"),
        ({"query": "search_term", "document": ["title", "price"]}, "column 'price' must hold text"),
        ({"query": "search_term", "document": []}, "at least one"),
        ({"query": "search_term", "document": ["title", "title"]}, "twice"),
        ({"query": "search_term"}, "text must name"),
        ("title", "text must name"),
    ],
)
def test_text_that_is_not_there_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        tr.RankingData.from_frame(FRAME, text=text)


def test_arrays_with_texts():
    columns = {name: FRAME[name] for name in ("search_term", "title", "description")}
    data = tr.RankingData(FRAME[["price"]], FRAME.label, qid=FRAME.qid, metadata=columns, text=ROLES)
    assert data.equals(DATA)
    with pytest.raises(DataError, match="row 0 \\(counted from 0\\) holds a int: 7"):
        tr.RankingData([[1.0]], [1], metadata={"q": ["a"], "t": [7]}, text={"query": "q", "document": "t"})
    with pytest.raises(ValueError, match="no metadata column called 't'"):
        tr.RankingData([[1.0]], [1], metadata={"q": ["a"]}, text={"query": "q", "document": "t"})
    with pytest.raises(DataError, match="cannot be written as UTF-8"):
        tr.RankingData([[1.0]], [1], metadata={"q": ["a"], "t": ["\ud800"]}, text={"query": "q", "document": "t"})
    several = tr.RankingData(
        [[1.0], [2.0]], [1, 0], metadata={"q": ["a", "b"], "t": ["a", "b"]}, text={"query": "q", "document": "t"}
    )
    with pytest.raises(DataError, match="Use the same text in all rows"):
        tr.LinearRanker("ListNet").fit(several)


def test_a_damaged_stored_copy_is_refused(tmp_path):
    path = tmp_path / "x.toprank-data"
    tr.write(DATA, path)
    meta = json.loads((path / "meta.json").read_text())
    for change in (
        {"text": {"query": "title", "document": ["search_term", "device"]}},
        {"text": {"query": "title"}},
        {"text": None},
        {"text": {"query": "search_term", "document": ["title"]}},
        {"carried": ["search_term", "title"]},
    ):
        (path / "meta.json").write_text(json.dumps(meta | change))
        with pytest.raises(FormatError):
            tr.read(path)
    (path / "meta.json").write_text(json.dumps(meta))
    files = [file for file in path.glob("carried.*.npy") if np.load(file).dtype == np.uint8]
    assert len(files) == 3
    array = np.load(files[1])
    array[array == 255] = 65  # one text where there were many
    np.save(files[1], array)
    with pytest.raises(FormatError):
        tr.read(path)


# ---- rankers ----


@every_ranker
def test_a_ranker_learns_from_words_and_predicts_them(ranker, tmp_path):
    train, test = tr.split(DATA, (0.7, 0.3))
    ranker = ranker.fit(train)
    scores = ranker.predict(test)
    assert tr.evaluate(scores, test, "ndcg@5").mean["ndcg@5"] > 0.9  # the price alone says nothing
    assert ranker.n_features_in_ == len(ranker.feature_names_in_) == 1 + len(ranker.text_.names)
    frame = FRAME[FRAME.qid.isin(test.qids)]
    assert (ranker.predict(frame) == scores).all()
    assert (ranker.predict(pl.from_pandas(frame)) == scores).all()
    assert ranker.rank(frame) == ranker.rank(test) == ranker.rank(frame, qid="qid")
    ranker.save(tmp_path / "m.toprank")
    again = tr.load(tmp_path / "m.toprank")
    assert (again.predict(test) == scores).all()
    assert (again.predict(frame) == scores).all()
    assert again.state().values == ranker.saved_ranker().state().values
    matched = ranker.translated(test)
    assert (ranker.predict(matched) == scores).all()  # who brings the columns need not bring the words
    assert matched.text is None
    np.testing.assert_allclose([ranker.query_scores(row[None]) for row in matched.X.astype(float)], scores[:, None])


@every_ranker
def test_explanations_tell_of_words(ranker):
    ranker = ranker.fit(DATA)
    ranking = ranker.rank(DATA, None)[0]
    found = ranker.explain(DATA, 0, ranking[0], ranking[-1])
    assert set(found.features) == set(ranker.feature_names_in_)
    assert abs(sum(found.contributions.values()) - found.total) < 1e-6
    if "title coverage" in found.summary:
        assert "the title covers all words of the query" in found.summary
    assert ranker.text_.sentence("title coverage", "1") == "the title covers all words of the query"
    assert ranker.text_.sentence("title coverage", "0.5") == "the title covers 50 % of the words"
    assert ranker.text_.sentence("coverage", "0") == "title and description together cover no word of the query"
    assert ranker.text_.sentence("phrase", "0") == "no field has the query word for word"
    assert ranker.text_.sentence("price", "0") is None


def test_importance_sees_words():
    ranker = tr.TreeRanker(n_trees=8, min_data_in_leaf=3).fit(DATA)
    importance = tr.permutation_importance(ranker, DATA, seed=0)
    assert set(importance.features) == set(ranker.feature_names_in_)


def test_the_columns_are_those_of_the_room_of_text():
    ranker = tr.LinearRanker("ListNet").fit(DATA)
    titles, descriptions = DATA.metadata["title"].tolist(), DATA.metadata["description"].tolist()
    distinct = list(dict.fromkeys(zip(titles, descriptions, strict=True)))
    known = Statistics.fit({"title": [t for t, _ in distinct], "description": [d for _, d in distinct]})
    documents = known.encode({"title": titles, "description": descriptions})
    queries = DATA.metadata["search_term"].tolist()
    expected = MatchFeatures(known).matrix(queries, documents, np.arange(len(titles)), DATA.queries.offsets)
    assert (ranker.translated(DATA).X[:, 1:] == expected).all()


def test_folds_refit_what_is_learned_of_texts():
    """A word that stands in test rows alone, or in queries alone, changes nothing that was learned."""
    planted = FRAME.copy()
    test = planted.qid >= 16
    planted.loc[test, "title"] = "zebra " + planted.loc[test, "title"]
    planted["search_term"] = planted["search_term"] + " unicorn"
    learned = []
    for frame in (FRAME, planted):
        data = tr.RankingData.from_frame(frame, text=ROLES)
        ranker = tr.LinearRanker("ListNet").fit(data.select(data.qids < 16))
        assert np.isfinite(ranker.predict(data)).all()
        learned.append(ranker.text_)
    words = learned[1].match.statistics.vocabulary.words
    assert "zebra" not in words
    assert "unicorn" not in words
    assert learned[0].same_as(learned[1])
    whole = tr.LinearRanker("ListNet").fit(tr.RankingData.from_frame(planted, text=ROLES))
    assert "zebra" in whole.text_.match.statistics.vocabulary.words  # the test can fail
    assert not whole.text_.same_as(learned[0])


def test_documents_count_once_and_labels_never():
    twice = tr.RankingData.from_frame(
        pd.concat([FRAME, FRAME.assign(qid=FRAME.qid + 100, label=2 - FRAME.label)]), text=ROLES
    )
    a, b = (tr.LinearRanker("ListNet").fit(data).text_ for data in (DATA, twice))
    assert a.same_as(b)


def test_validation_data_teach_no_words():
    train, valid = tr.split(DATA, (0.6, 0.4))
    a = tr.TreeRanker(n_trees=5, min_data_in_leaf=3).fit(train).text_
    b = tr.TreeRanker(n_trees=5, min_data_in_leaf=3).fit(train, valid=valid).text_
    assert a.same_as(b)


def test_text_without_features_is_enough():
    data = tr.RankingData.from_frame(FRAME, features=[], text=ROLES)
    assert data.n_features == 0
    ranker = tr.TreeRanker(n_trees=8, min_data_in_leaf=3).fit(data)
    assert tr.evaluate(ranker.predict(FRAME), FRAME.label, "ndcg@5", qid=FRAME.qid).mean["ndcg@5"] > 0.9


def test_other_columns_keep_their_names():
    frame = FRAME.assign(bm25=1.0, brand=["a", "b"] * (len(FRAME) // 2))
    data = tr.RankingData.from_frame(frame, text=ROLES)
    for ranker in (tr.LinearRanker("ListNet"), tr.TreeRanker(n_trees=3, min_data_in_leaf=3)):
        ranker.fit(data)
        assert [name for name in ranker.feature_names_in_ if name.startswith("bm25")] == [
            "bm25",
            "bm25 (text)",
            "bm25f",
        ]
        shuffled = frame[list(reversed(frame.columns))]
        assert (ranker.predict(shuffled) == ranker.predict(data)).all()


def test_training_goes_on_with_the_same_words():
    first = tr.TreeRanker(n_trees=4, min_data_in_leaf=3).fit(DATA)
    more = table(seed=1)
    second = tr.TreeRanker(n_trees=6, min_data_in_leaf=3, init_model=first)
    second.fit(tr.RankingData.from_frame(more, like=first, label="label"))
    assert second.text_.same_as(first.text_)


def test_a_blend_of_fitted_rankers(tmp_path):
    train, test = tr.split(DATA, (0.7, 0.3))
    members = [tr.LinearRanker("ListNet").fit(train), tr.TreeRanker(n_trees=4, min_data_in_leaf=3).fit(train)]
    blend = tr.BlendRanker.from_fitted(members, test)
    blend.save(tmp_path / "b.toprank")
    assert (tr.load(tmp_path / "b.toprank").predict(test) == blend.predict(test)).all()
    assert members[0].text_ is not None  # members stay as they are
    other = tr.LinearRanker("ListNet").fit(test)
    with pytest.raises(DataError, match="trained on different texts"):
        tr.BlendRanker.from_fitted([members[0], other], test)


def test_data_without_the_words_are_refused():
    ranker = tr.LinearRanker("ListNet").fit(DATA)
    with pytest.raises(DataError, match="Column 'title' is missing"):
        ranker.predict(FRAME.drop(columns="title"))
    with pytest.raises(DataError, match="text column 'search_term' of the training data is missing"):
        ranker.rank(FRAME.drop(columns="search_term"))
    bare = tr.RankingData.from_frame(FRAME[["qid", "label", "price"]])
    with pytest.raises(DataError, match="these data have no text columns"):
        ranker.predict(bare)
    with pytest.raises(DataError, match="must hold text"):
        ranker.predict(FRAME.assign(title=7))
    renamed = tr.RankingData.from_frame(
        FRAME.rename(columns={"title": "name"}), text={"query": "search_term", "document": ["name", "description"]}
    )
    with pytest.raises(DataError, match="name the columns as in the training data"):
        ranker.predict(renamed)


def test_exports_say_what_is_made_of_words(tmp_path):
    ranker = tr.LinearRanker("ListNet").fit(DATA)
    parity = tr.export(ranker, "python", tmp_path / "model.py", check=DATA)
    assert parity.passed
    told = " ".join(parity.caveats)
    assert "title bm25: BM25 (k1 = 1.2, b = 0.75), in title" in told
    assert all(name in told for name in ranker.text_.names)


def test_other_languages():
    frame = FRAME.assign(title="die Häuser", search_term="Haus")
    data = tr.RankingData.from_frame(frame, text={**ROLES, "language": "german"})
    ranker = tr.LinearRanker("ListNet").fit(data)
    matched = ranker.translated(data)
    assert (matched.X[:, list(matched.feature_names).index("coverage")] == 1).all()
    with pytest.raises(ValueError, match="stemming language"):
        tr.LinearRanker("ListNet").fit(tr.RankingData.from_frame(frame, text={**ROLES, "language": "klingon"}))


# ---- model files ----


def forged(path, target, change):
    """A copy of a model file with one part changed, and checksums that fit."""
    import hashlib

    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    metadata = json.loads(parts["metadata.json"])
    change(metadata, parts)
    parts["metadata.json"] = json.dumps(metadata).encode()
    parts.pop("checksums.json")
    parts["checksums.json"] = json.dumps({n: hashlib.sha256(c).hexdigest() for n, c in parts.items()}).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return target


def drop_text(metadata, parts):
    del metadata["features"]["text"]


@pytest.mark.parametrize(
    "change",
    [
        drop_text,
        lambda metadata, parts: parts.pop("arrays/text_vocabulary.npy"),
        lambda metadata, parts: parts.update({"arrays/text_basis.npy": parts["arrays/text_mean_lengths.npy"]}),
        lambda metadata, parts: metadata["features"]["text"].update(own=0),
        lambda metadata, parts: metadata["features"]["text"].update(own=-1),
        lambda metadata, parts: metadata["features"]["text"].update(own=10**9),
        lambda metadata, parts: metadata["features"]["text"].update(named=False),
        lambda metadata, parts: metadata["features"]["text"].update(columns={"query": "a", "document": ["b"]}),
        lambda metadata, parts: metadata["features"]["text"].update(statistics=[]),
        lambda metadata, parts: metadata["features"].update(text="x"),
        lambda metadata, parts: metadata["features"]["names"].reverse(),
    ],
)
def test_a_forged_model_is_refused(tmp_path, change):
    tr.LinearRanker("ListNet").fit(DATA).save(tmp_path / "m.toprank")
    assert tr.load(forged(tmp_path / "m.toprank", tmp_path / "same.toprank", lambda metadata, parts: None))
    with pytest.raises(FormatError):
        tr.load(forged(tmp_path / "m.toprank", tmp_path / "f.toprank", change))


# ---- the service ----


def request(data, frame, query_text=None):
    """The documents of one query as a client sends them."""
    return {
        "query": "q",
        "query_text": frame.search_term.iloc[0] if query_text is None else query_text,
        "documents": [
            {
                "id": number,
                "values": {"price": row.price},
                "text": {"title": row.title, "description": None if row.description is None else row.description},
            }
            for number, row in enumerate(frame.itertuples())
        ],
    }


def test_the_service_matches_words(tmp_path):
    services = pytest.importorskip("services")
    for name, ranker in (("linear", tr.LinearRanker("ListNet")), ("trees", tr.TreeRanker(n_trees=5))):
        ranker.fit(DATA).save(tmp_path / f"{name}.toprank")
    frame = FRAME[FRAME.qid == 3].replace({np.nan: None})
    with services.serving(tmp_path, "linear", "trees") as client:
        for model in ("linear", "trees"):
            ranker = tr.load(tmp_path / f"{model}.toprank")
            asked = request(DATA, frame) | {"model": model}
            answer = client.post("/v1/score", json=asked)
            assert answer.status_code == 200, answer.text
            scores = [one["score"] for one in answer.json()["scores"]]
            np.testing.assert_allclose(scores, ranker.predict(DATA.select(DATA.qids == 3)), rtol=1e-6)
            told = client.post("/v1/explain", json=asked | {"a": 0, "b": 1})
            assert told.status_code == 200, told.text
        assert client.get("/v1/models").json()["models"][0]["text"] == ["title", "description"]
        for change, said in (
            ({"query_text": None}, "Give query_text"),
            ({"documents": [{"id": 1, "values": [1.0]}]}, "has no text 'title', 'description'"),
            ({"documents": [{"id": 1, "values": [1.0], "text": {"title": "x"}}]}, "has no text 'description'"),
            (
                {"documents": [{"id": 1, "values": [1.0], "text": {"title": "x", "description": "", "name": "y"}}]},
                "unknown text 'name'",
            ),
            ({"documents": [{"id": 1, "values": [1.0], "text": {"title": 7}}]}, "expected form"),
        ):
            answer = client.post("/v1/score", json=request(DATA, frame) | change)
            assert answer.status_code == 422
            assert said in answer.json()["error"]
        huge = request(DATA, frame, "shoe " * 10_000)
        assert client.post("/v1/rank", json=huge).status_code == 200


# ---- searches ----


def test_experiments_and_searches_take_text():
    found = tr.AutoRanker(time_budget=2, seed=0).fit(DATA)
    assert np.isfinite(found.predict(DATA)).all()


# ---- the command line ----


def test_commands_take_text(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from toprank.cli.commands import app

    def run(*arguments, status=0):
        result = CliRunner().invoke(app, [*map(str, arguments)])
        assert result.exit_code == status, result.output
        return result

    monkeypatch.chdir(tmp_path)
    FRAME[FRAME.qid < 16].to_csv("train.csv", index=False)
    FRAME[FRAME.qid >= 16].to_parquet("test.parquet")
    words = "--query-text", "search_term", "--document-text", "title,description"
    run("train", "train.csv", "--system", "ListNet", *words, "-o", "m.toprank", "-q")
    run("predict", "m.toprank", "test.parquet", "-o", "s.txt")
    data = tr.read("test.parquet", like=tr.load("m.toprank"), label="label")
    assert np.loadtxt("s.txt") == pytest.approx(tr.load("m.toprank").predict(data))
    said = run("train", "train.csv", "--system", "ListNet", *words[:2], "-o", "x.toprank", status=2)
    assert "must be passed together" in said.output
    (tmp_path / "a.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.1\n")
    said = run("train", "a.txt", "--system", "ListNet", *words, "-o", "x.toprank", status=1)
    assert "Text columns exist only in tables" in str(said.exception)
    run("cv", "train.csv", "--folds", "3", "--system", "LeastSquares,ListNet", *words, "--html", "r.html")
    assert FRAME.title[0] in (tmp_path / "r.html").read_text()
    run("convert", "train.csv", "train.toprank-data", *words)
    assert tr.read("train.toprank-data").text.document == ("title", "description")


# ---- clusters ----


def test_a_cluster_refuses_words(tmp_path):
    from toprank.cluster.cluster import _frame_parts

    class Frame:
        """What is asked of a Dask frame before anything is computed."""

        _meta = FRAME.head(1)

    with pytest.raises(DataError, match="A cluster does not support text columns such as 'search_term'"):
        _frame_parts(Frame(), {"like": DATA})


# ---- reports ----


def test_reports_of_text_show_the_words_and_name_the_features_of_texts():
    results = tr.Experiment(DATA, ["LeastSquares", tr.TreeRanker(n_trees=3, min_data_in_leaf=3)], n_folds=3).run()
    [part] = tr.report.from_results(results).parts
    fitted = tr.LinearRanker("Squared").fit(DATA)
    assert set(part.weights[0].names) <= set(fitted.feature_names_in_.tolist())
    assert any(name.startswith("title") for name in part.weights[0].names)
    for number in (0, 7, 20):
        words = FRAME.search_term[FRAME.qid.astype(str) == part.qids[number]].iloc[0]
        assert part.query_name(number) == f"{part.qids[number]}: {words}"
        start, stop = part.documents.queries.offsets[number : number + 2]
        titles = FRAME.title[FRAME.qid.astype(str) == part.qids[number]].tolist()
        assert [part.documents.name_of(row).partition(": ")[2] for row in range(start, stop)] == titles
    page = report_page(tr.report.from_results(results))
    assert FRAME.search_term[0] in page
    assert FRAME.title[0] in page


def test_reports_of_comparisons_show_the_words():
    labels = np.random.default_rng(0).integers(0, 3, len(FRAME))  # so that some documents are in the wrong order
    only_text = tr.RankingData.from_frame(FRAME.drop(columns="price").assign(label=labels), text=ROLES)
    rankers = {"linear": tr.LinearRanker("ListNet").fit(only_text), "boosted": tr.AdaRank().fit(only_text)}
    scores = {name: ranker.predict(only_text) for name, ranker in rankers.items()}
    content = tr.report.from_comparison(tr.compare(scores, only_text), only_text, scores, rankers=rankers)
    [part] = content.parts
    assert part.query_name(3) == f"3: {only_text.metadata['search_term'][3]}"
    assert part.documents.name_of(5).endswith(f": {FRAME.title[5]}")
    assert part.explained.importance is not None
    assert FRAME.search_term[FRAME.qid == int(part.explained.pair.query)].iloc[0] in part.explained.heading
