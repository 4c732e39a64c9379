"""At a user's desk: what a model knows need not be said again, and a file becomes parts with one command."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import toprank as tr
from support import invoked
from toprank.data.frames.categories import ColumnsLeftOutWarning
from toprank.data.splitting import split_file
from toprank.display.pictures import curves
from toprank.doctor import check_file
from toprank.errors import DataError, FileError, MissingExtraError, UnknownNameError

FEW = ("--system", "LeastSquares", "--set", "l2=1", "-q")


@pytest.fixture(scope="module")
def table():
    """Columns by names of their own; rows of a session are scattered, and not all columns are features."""
    rng, n = np.random.default_rng(0), 300
    frame = pd.DataFrame(
        {
            "session": rng.permutation(np.repeat([f"s{number:02d}" for number in range(30)], 10)),
            "page": [f"p{number}" for number in range(n)],
            "rating": rng.integers(0, 3, n),
            "bm25": rng.normal(size=n),
            "age": rng.normal(size=n),
            "brand": rng.choice(["acme", "zenith"], n),
            "code": [f"{number % 7:03d}" for number in range(n)],
            "title": [f'a "title", of {number}' if number % 3 else None for number in range(n)],
        }
    )
    frame["date"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(frame["session"].str[1:].astype(int), "D")
    return frame


# ---- more columns than a model needs ----


def test_data_may_have_more_columns_than_the_model_needs_as_frames_may(table):
    roles = {"label": "rating", "qid": "session", "document_id": "page"}
    few = tr.RankingData.from_frame(table, features=["age", "brand"], **roles)
    more = tr.RankingData.from_frame(table, features=["brand", "bm25", "age"], **roles)
    for ranker in (tr.LinearRanker().fit(few), tr.TreeRanker(n_trees=5, num_leaves=4, threads=1).fit(few)):
        scores = ranker.predict(more)
        np.testing.assert_array_equal(scores, ranker.predict(few))
        np.testing.assert_array_equal(more.in_source_order(scores), ranker.predict(table))
        assert ranker.rank(more) == ranker.rank(few)
        told = ranker.explain(more, qid="s03")
        assert told.contributions == ranker.explain(few, qid="s03").contributions
        assert tr.evaluate(scores, more).mean == tr.evaluate(ranker.predict(few), few).mean
    with pytest.raises(DataError, match="training data had no column 'bm25'"):  # may be another name for 'age'
        ranker.predict(tr.RankingData.from_frame(table, features=["brand", "bm25"], **roles))
    with pytest.raises(DataError, match="The column 'brand' of the training data is missing"):
        ranker.predict(tr.RankingData.from_frame(table, features=["age"], **roles))


def test_sparse_data_may_have_more_columns_too():
    X = sparse.random(40, 4, 0.5, "csr", random_state=0)
    y, qid = np.tile([0, 1], 20), np.repeat(np.arange(8), 5)
    ranker = tr.LinearRanker().fit(tr.RankingData(X[:, [3, 1]], y, qid=qid, feature_names=["d", "b"]))
    more = tr.RankingData(X, y, qid=qid, feature_names=list("abcd"))
    np.testing.assert_array_equal(ranker.predict(more), ranker.predict(tr.RankingData(X[:, [3, 1]])))


def test_queries_of_a_frame_are_a_column_by_name(table):
    roles = {"label": "rating", "qid": "session", "document_id": "page"}
    data = tr.RankingData.from_frame(table, features=["age", "bm25"], **roles)
    ranker, renamed = tr.LinearRanker().fit(data), table.rename(columns={"page": "document_id"})
    assert ranker.rank(table) == ranker.rank(data)
    assert ranker.rank(renamed) == ranker.rank(renamed, qid="session") == ranker.rank(data)
    with pytest.raises(DataError, match="qid="):
        ranker.rank(renamed.rename(columns={"session": "visit"}))
    arrays = ranker.rank(table[["age", "bm25"]], qid=table["session"].to_numpy())
    assert {qid: [table["page"][row] for row in rows] for qid, rows in arrays.items()} == ranker.rank(data)


# ---- commands remember ----


@pytest.fixture
def folder(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table.to_parquet("all.parquet")
    table.drop(columns="rating").to_csv("new.csv", index=False)
    return tmp_path


ROLES = ("--label", "rating", "--qid", "session", "--document-id", "page", "--features", "bm25,age")


def test_a_model_remembers_its_columns(folder, table):
    invoked("train", "all.parquet", *ROLES, *FEW, "-o", "m.toprank")
    for file in ("all.parquet", "new.csv"):
        for name, *more in (("rank", "--json"), ("predict",), ("explain", "--qid", "s03", "--json")):
            said = ("--qid-column", "session") if name == "explain" else ("--qid", "session")
            told = invoked(name, "m.toprank", file, *more, *said, "--document-id", "page").stdout
            assert invoked(name, "m.toprank", file, *more).stdout == told
    assert (
        "rating" not in invoked("explain", "m.toprank", "all.parquet", "--n-repeats", "1", "-q").stdout
    )  # known labels
    lists = json.loads(invoked("rank", "m.toprank", "new.csv", "--json").stdout)
    assert set(lists) == set(table["session"])
    assert lists["s03"][0].startswith("p")
    renamed = table.rename(columns={"session": "qid", "page": "document_id"})
    renamed.to_parquet("renamed.parquet")  # by names that need not be told
    assert json.loads(invoked("rank", "m.toprank", "renamed.parquet", "--json").stdout) == lists
    renamed.rename(columns={"qid": "visit"}).to_parquet("other.parquet")
    assert json.loads(invoked("rank", "m.toprank", "other.parquet", "--qid", "visit", "--json").stdout) == lists
    invoked("tune", "all.parquet", *ROLES, "--system", "LeastSquares", "--n-trials", "1", "-q", "-o", "t.toprank")
    assert invoked("rank", "t.toprank", "new.csv", "--json").stdout


def test_every_command_that_takes_a_model_finds_its_columns(folder):
    invoked("train", "all.parquet", *ROLES, *FEW, "-o", "m.toprank")
    invoked("train", "all.parquet", *ROLES, "--system", "RankSVM", "-q", "-o", "n.toprank")
    invoked("predict", "m.toprank", "all.parquet", "-o", "m.scores", "-q")
    columns, few = ROLES[:4], ("--json", "-q")
    for words in (
        ("evaluate", "all.parquet", "m.toprank", *few),
        ("compare", "all.parquet", "m.toprank", "n.toprank", *few),
        ("compare", "all.parquet", "m.scores", "n.toprank", *few),
        ("monitor", "m.toprank", "all.parquet", "all.parquet", *few),
    ):
        assert invoked(*words).stdout == invoked(*words, *columns).stdout
    assert "--label" in str(invoked("evaluate", "all.parquet", "m.scores", status=1).exception)  # no model knows


def test_a_model_file_that_remembers_nonsense_is_no_worse_for_it(folder):
    invoked("train", "all.parquet", *ROLES, *FEW, "-o", "m.toprank")
    ranker = tr.load("m.toprank")
    for nonsense in ("session", ["session"], {"qid": 3}, {"qid": ["session"]}, {"threads": "session"}):
        ranker.training_["columns"] = nonsense
        ranker.save("n.toprank")
        assert invoked("predict", "n.toprank", "new.csv").stdout


def test_scores_need_no_queries(folder, table):
    invoked("train", "all.parquet", *ROLES, *FEW, "-o", "m.toprank")
    table[["title", "age", "bm25"]].to_csv("alone.csv", index=False)
    scores = [float(line) for line in invoked("predict", "m.toprank", "alone.csv").stdout.split()]
    np.testing.assert_allclose(scores, tr.load("m.toprank").predict(table), rtol=1e-12)
    result = invoked("rank", "m.toprank", "alone.csv", status=1)  # a ranking does
    assert "--qid" in str(result.exception)


def test_a_model_that_sees_queries_still_asks_for_them(folder, table, monkeypatch):
    invoked("train", "all.parquet", *ROLES, *FEW, "-o", "m.toprank")
    table[["age", "bm25"]].to_csv("alone.csv", index=False)
    monkeypatch.setattr(tr.LinearRanker, "uses_query_context", True)
    assert "--qid" in str(invoked("predict", "m.toprank", "alone.csv", status=1).exception)


# ---- split ----


@pytest.mark.parametrize("file", ["all.parquet", "all.csv", "all.tsv.gz", "all.feather", "parts"])
def test_a_table_is_divided_by_query_and_its_rows_stay_as_they_are(folder, table, file):
    plain = table.assign(date=table["date"].dt.strftime("%Y-%m-%d"))
    if file == "parts":
        (folder / "parts").mkdir()
        for number in range(3):
            table[number * 100 : number * 100 + 100].to_parquet(f"parts/{number}.parquet")
    elif file.endswith("parquet"):
        table.to_parquet(file)
    elif file.endswith("feather"):
        table.to_feather(file)
    else:
        plain.to_csv(file, index=False, sep="\t" if ".tsv" in file else ",")
    invoked("split", file, "-o", "out", "--qid", "session", "-q")
    suffix = ".parquet" if file == "parts" else file.removeprefix("all")
    names = [f"{name}{suffix}" for name in ("train", "vali", "test")]
    assert sorted(path.name for path in (folder / "out").iterdir()) == sorted(names)

    def read(path):
        if suffix == ".parquet":
            return pd.read_parquet(path)
        if suffix == ".feather":
            return pd.read_feather(path)
        return pd.read_csv(path, sep="\t" if ".tsv" in suffix else ",", dtype={"code": str})

    parts = [read(f"out/{name}") for name in names]
    assert [part["session"].nunique() for part in parts] == [18, 6, 6]
    together = pd.concat(parts).sort_values("page", key=lambda page: page.str[1:].astype(int))
    wanted = plain if suffix in (".csv", ".tsv.gz") else table
    pd.testing.assert_frame_equal(together.reset_index(drop=True), wanted, check_dtype=False)
    for part in parts:  # rows keep their order
        numbers = part["page"].str[1:].astype(int)
        assert (numbers.diff().dropna() > 0).all()
    data = tr.RankingData.from_frame(table, qid="session", label="rating", features=["age"])
    for part, wanted in zip(parts, tr.split(data), strict=True):
        assert set(part["session"]) == set(wanted.qids)


def test_by_time_the_test_file_is_the_latest(folder, table):
    said = invoked("split", "all.parquet", "-o", "out", "--qid", "session", "--time-column", "date").stderr
    assert "out/vali.parquet: 6 queries, 60 documents" in said
    dates = [pd.read_parquet(f"out/{name}.parquet")["date"] for name in ("train", "vali", "test")]
    assert dates[0].max() < dates[1].min() <= dates[1].max() < dates[2].min()
    invoked(
        "split", "all.parquet", "-o", "two", "--qid", "session", "--time-column", "date", "--fractions", "0.8,0.2", "-q"
    )
    assert sorted(path.name for path in (folder / "two").iterdir()) == ["test.parquet", "train.parquet"]
    assert pd.read_parquet("two/test.parquet")["date"].min() == table["date"].max() - pd.Timedelta(5, "D")


def test_a_stable_division_keeps_queries_in_their_files_when_the_table_grows(folder, table):
    def parts(rows, out, *more):
        rows.to_parquet("some.parquet")
        invoked("split", "some.parquet", "-o", out, "--qid", "session", "-q", *more)
        return {q: part for part in ("train", "test") for q in pd.read_parquet(f"{out}/{part}.parquet")["session"]}

    grown_from = table[table["session"].isin(table["session"].unique()[:20])]
    moves = {}
    for more in ((), ("--stable",)):
        whole, less = (
            parts(rows, f"{len(rows)}{more}", "--fractions", "0.5,0.5", *more) for rows in (table, grown_from)
        )
        moves[more] = sum(whole[query] != less[query] for query in less)
    assert moves[("--stable",)] == 0 < moves[()]


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".toprank-data"])
def test_text_and_stored_copies_are_divided(tmp_path, suffix):
    data = tr.synthetic(n_queries=20, seed=0)
    tr.write(data, tmp_path / f"all{suffix}")
    found = split_file(tmp_path / f"all{suffix}", tmp_path / "out", seed=3)
    whole = tr.read(tmp_path / f"all{suffix}")
    for path, wanted in zip(found, tr.split(whole, seed=3), strict=True):
        assert path.name.endswith(suffix)
        read = tr.read(path, n_features=whole.n_features, first_feature_id=1) if ".txt" in suffix else tr.read(path)
        np.testing.assert_array_equal(read.X, wanted.X)
        assert read.qids.tolist() == wanted.qids.tolist()
    assert sum(part.n_queries for part in found.values()) == 20


def test_what_cannot_be_divided_is_said(folder):
    for words, given in (
        ("--fractions takes numbers", ("--fractions", "many")),
        ("--seed has no effect", ("--time-column", "date", "--seed", "1")),
        ("--stable has no effect", ("--time-column", "date", "--stable")),
    ):
        assert words in invoked("split", "all.parquet", "-o", "out", "--qid", "session", *given, status=2).output
    for fractions in ([1.0], [0.25] * 4):
        with pytest.raises(DataError, match="two fractions"):
            split_file("all.parquet", "out", fractions, qid="session")
    split_file("all.parquet", "out", qid="session")
    with pytest.raises(DataError, match="overwritten by one of its parts"):
        split_file("out/train.parquet", "out", qid="session")
    with pytest.raises(FileError, match="no/such cannot be written"):
        split_file("all.parquet", "no/such", qid="session")


# ---- scores, measures and names ----


def test_other_labels_leave_the_rows_as_they_are(table):
    data = tr.RankingData.from_frame(table, features=["age", "bm25"], label="rating", qid="session")
    assert data.was_regrouped
    scores = tr.LinearRanker().fit(data).predict(data)
    strict = data.replace(labels=np.where(data.labels == 2, 1.0, 0.0))
    expected = tr.evaluate(scores.copy(), strict, "map", order="data").mean
    assert tr.evaluate(scores, strict, "map").mean == expected
    assert tr.evaluate(scores, strict.without_features(), "map").mean == expected
    backwards = data.replace(source_rows=data.source_rows[::-1])
    with pytest.raises(DataError, match="order='data'"):
        tr.evaluate(scores, backwards, "map")


@pytest.mark.parametrize("function", [lambda labels, k: 0.0, lambda: 0.0, lambda labels, *, k: 0.0])
def test_a_measure_is_a_function_of_the_labels_alone(function):
    with pytest.raises(DataError, match=r"'own' takes .*, but is called with one argument, the labels in rank order"):
        tr.metrics.Custom("own", function)
    tr.metrics.Custom("own", lambda labels, k=3: 0.0)
    tr.metrics.Custom("own", max)  # a function of C


def test_names_that_are_no_misspelling_are_not_suggested():
    for name in ("bpref", "infap", "q_measure"):
        with pytest.raises(UnknownNameError, match="; known: ndcg") as refused:
            tr.metrics.parse(name)
        assert "did you mean" not in str(refused.value)


def test_the_first_judge_has_the_name_of_its_file(tmp_path):
    grades = {"q1": {"a": 2, "b": 0, "c": 1}, "q2": {"a": 1, "b": 0}}
    assert tr.judge_agreement(grades, {"model": grades}).names == ("reference", "model")
    (tmp_path / "gpt.qrels").write_text("q1 0 a 1\nq1 0 b 0\n")
    (tmp_path / "people.qrels").write_text("q1 0 a 1\nq1 0 b 1\n")
    assert tr.judge_agreement(tmp_path / "gpt.qrels", str(tmp_path / "people.qrels")).names == ("gpt", "people")


def test_a_run_that_lacks_judged_queries_says_so(tmp_path):
    (tmp_path / "q").write_text("1 0 a 1\n1 0 b 0\n2 0 a 1\n3 0 c 1\n4 0 c 0\n")
    (tmp_path / "r").write_text("1 Q0 b 1 2.0 t\n1 Q0 a 2 1.0 t\n4 Q0 x 1 1.0 t\n")
    words = ("evaluate", "--qrels", tmp_path / "q", "--run", tmp_path / "r", "-m", "map")
    said = "The run lacks 2 queries (2, 3) of 4 judged; "
    assert f"{said}left out (the option complete counts 0)." in invoked(*words).stdout
    assert f"{said}counted 0." in invoked(*words, "--complete").stdout
    assert "The run lacks 2 queries (2, 3) of those judged" in invoked(*words, "-c", "all").stdout
    assert json.loads(invoked(*words, "--json").stdout)["unanswered"] == ["2", "3"]
    condensed = tr.evaluate_run(tmp_path / "q", tmp_path / "r", "map", condense=True)
    assert condensed.unanswered == ("2", "3", "4")
    assert "lacks" not in tr.evaluate_run({"1": {"a": 1}}, {"1": {"a": 1.0}}, "map").summary


def test_the_example_of_tune_is_an_option_of_the_system(table):
    data = tr.RankingData.from_frame(table, features=["age", "bm25"], label="rating", qid="session")
    for name, fixed, example in (
        ("LeastSquares", {"l2": 1.0}, "space={'max_iterations': [10, 100]}"),
        ("RankBoost", {"n_thresholds": 8}, "space={'max_rounds': [100, 300]}"),
    ):
        space = None if name == "LeastSquares" else {}
        with pytest.raises(DataError) as refused:
            tr.tune(name, *tr.split(data, (0.6, 0.4)), space=space, n_trials=2, **fixed)
        assert example in str(refused.value)


# ---- commands ----


def test_scattered_rows_of_a_table_are_no_problem(table, tmp_path):
    table.to_csv(tmp_path / "t.csv", index=False)
    table.sort_values("session", kind="stable").to_csv(tmp_path / "sorted.csv", index=False)
    roles = {"qid": "session", "label": "rating", "features": ["age", "bm25"]}
    found = [finding for finding in check_file(tmp_path / "t.csv", **roles).findings if "split" in finding.code]
    assert [finding.severity for finding in found] == ["note"]
    assert "grouped by query when they are read" in found[0].remedy
    assert "split-queries" not in {finding.code for finding in check_file(tmp_path / "sorted.csv", **roles).findings}


WORDS = pd.DataFrame(
    {
        "qid": np.repeat(np.arange(20), 5),
        "label": np.tile([0, 1, 2, 0, 1], 20),
        "price": np.random.default_rng(0).random(100),
        "search_term": np.repeat([f"lamp {number}" for number in range(20)], 5),
        "title": [f"lamp no {number}" for number in range(100)],
    }
)
USED = ("--query-text", "search_term", "--document-text", "title")


def test_columns_of_text_are_left_out_aloud_but_not_with_q_or_if_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    WORDS.to_csv("t.csv", index=False)
    train = ("train", "t.csv", "--system", "LeastSquares", "--set", "l2=1")
    with pytest.warns(ColumnsLeftOutWarning, match="'title'"):
        invoked(*train, "-o", "plain.toprank")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnsLeftOutWarning)
        invoked(*train, "-o", "plain.toprank", "-q")
        invoked("cv", "t.csv", "--folds", "3", "--system", "LeastSquares,ListNet", "-q")
        invoked(*train, *USED, "-o", "words.toprank")
        invoked("compare", "t.csv", "plain.toprank", "words.toprank", "--html", "r.html")
    assert "0: lamp 0" in (tmp_path / "r.html").read_text()


def test_compare_refuses_models_that_are_not_compared_before_it_computes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    WORDS.to_csv("t.csv", index=False)
    for name, l2 in (("one", 1), ("two", 10)):
        invoked("train", "t.csv", "--system", "LeastSquares", "--set", f"l2={l2}", "-o", f"{name}.toprank", "-q")
    (tmp_path / "other.toprank").write_bytes((tmp_path / "one.toprank").read_bytes())
    monkeypatch.setattr("toprank.cli.comparing._read_scored", lambda *_, **__: pytest.fail("it computes"))
    words = ("compare", "t.csv", "one.toprank", "two.toprank", "--html", "r.html", "--model", "other.toprank")
    refused = invoked(*words, status=1).exception
    assert isinstance(refused, UnknownNameError)
    assert "file of scores for --model called 'other'; known: one, two" in str(refused)


def test_latex_names_the_packages_that_it_needs():
    data = tr.synthetic(n_queries=20, n_features=4, seed=0)
    scores = {f"system {number}": data.X[:, number] for number in range(3)}
    narrow = tr.evaluate(scores["system 0"], data, "ndcg@10").to_latex()
    assert narrow.startswith("% Put \\usepackage{booktabs} into the preamble.\n")
    wide = tr.compare(scores, data, [f"ndcg@{k}" for k in range(1, 12)], slice_by="head:documents", min_queries=2)
    assert wide.to_latex().startswith("% Put \\usepackage{booktabs,graphicx} into the preamble.\n")
    assert wide.to_latex().count("\\usepackage") == 1


# ---- figures ----


def test_figures_are_saved_as_png_and_pdf(tmp_path):
    """The pixels where the SVG has its bars have the color of bars, and those beside them that of the paper."""
    import matplotlib.image as images

    data = tr.synthetic(n_queries=40, n_features=3, seed=0)
    picture = tr.evaluate(data.X[:, 0], data, "ndcg@10").plot()
    for kind in ("png", "pdf"):
        picture.save(tmp_path / f"a.{kind}")
        picture.save(tmp_path / f"again.{kind}")
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"again.{kind}").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    pixels = np.round(255 * images.imread(tmp_path / "a.png")[:, :, :3]).astype(int)
    assert pixels.shape == (3 * 230, 3 * 360, 3)
    bars = re.findall(r'class="bar" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', picture.svg())
    assert len(bars) > 5
    mean = float(re.search(r'<line x1="([\d.]+)"[^>]*class="loss"', picture.svg())[1])
    for x, y, width, height in (tuple(map(float, bar)) for bar in bars):
        column = x + width / 2
        if abs(column - mean) > 2:
            assert pixels[int(3 * (y + height / 4)), int(3 * column)].tolist() == [0x2A, 0x8F, 0xD0]
    assert pixels[3, 3].tolist() == [255, 255, 255]


def test_all_kinds_of_plots_become_files(tmp_path):
    data = tr.synthetic(n_queries=40, n_features=9, seed=0)
    scores = {f"system ${number}$ <&>": data.X[:, number] for number in range(9)}  # more than there are colors
    ranker = tr.LinearRanker("ListNet").fit(data)
    results = tr.Experiment(data, ["LeastSquares", "ListNet"], n_folds=3, threads=1).run()
    plots = [
        tr.compare(scores, data, "ndcg@10").plot(),
        tr.explanations.explain_query(ranker, data, data.qids[0]).plot(),
        tr.explanations.partial_dependence(ranker, data, 0).plot(),
        results.plot(),
        *(curves(chart) for chart in tr.report.from_results(results).parts[0].at_k),
    ]
    for plot in plots:
        plot.save(tmp_path / "plot.png")
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_figures_without_matplotlib_or_of_another_kind_are_refused(tmp_path, monkeypatch):
    data = tr.synthetic(n_queries=9, seed=0)
    picture = tr.evaluate(data.X[:, 0], data, "ndcg@10").plot()
    with pytest.raises(DataError, match=r"'.*\.jpg' is not a supported plot file.*ends in \.svg, \.png or \.pdf"):
        picture.save(tmp_path / "a.jpg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"PNG or PDF needs matplotlib.*toprank\[plots\]"):
        picture.save(tmp_path / "a.png")
    picture.save(tmp_path / "a.svg")


def test_the_quick_start_installs_what_it_imports():
    page = (Path(__file__).parents[1] / "docs" / "quickstart.md").read_text()
    installed = re.search(r"pip install \.(.*)\n", page)[1].split()
    imported = set(re.findall(r"^(?:import|from) (\w+)", page, re.MULTILINE)) - set(sys.stdlib_module_names)
    assert imported <= {"toprank", "numpy", "scipy", "sklearn", *installed}
