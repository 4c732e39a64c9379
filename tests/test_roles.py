"""Which column plays which role is decided once, shown, and remembered by data and models in every path."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import toprank as tr
from support import invoked
from toprank.data.roles import Roles, known_roles
from toprank.errors import DataError

N_QUERIES, N_DOCUMENTS = 40, 6
FEATURES = ("weight", "group", "bm25", "price")


def shop(seed=0):
    """A table of searches with misleading columns: grams, a group of products, and few different words of queries."""
    rng = np.random.default_rng(seed)
    n = N_QUERIES * N_DOCUMENTS
    search = np.repeat(np.arange(N_QUERIES), N_DOCUMENTS) + 100 * seed
    bm25 = rng.normal(size=n)
    return pd.DataFrame(
        {
            "search_id": search,
            "query": np.array(["red shoes", "green hat", "blue sock"])[search % 3],
            "grade": (bm25 + rng.normal(scale=0.5, size=n) > 0).astype(int) + (bm25 > 1),
            "weight": rng.choice([0.0, 250.0, 500.0], n),
            "group": rng.integers(0, 3, n),
            "title": [f"title {row}" for row in range(n)],
            "sku": [f"p{row}" for row in range(n)],
            "importance": np.repeat(rng.integers(1, 4, N_QUERIES), N_DOCUMENTS),
            "device": np.array(["phone", "desk"])[search % 2],
            "bm25": bm25,
            "price": rng.uniform(1, 9, n),
        }
    )


ROLES = {"qid": "search_id", "label": "grade", "query_weight": "importance", "metadata": ["device"]}
GIVEN = {**ROLES, "features": list(FEATURES)}


@pytest.fixture
def fitted():
    data = tr.RankingData.from_frame(shop(), **GIVEN)
    return tr.LinearRanker("Squared").fit(data), data


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = shop(1)
    frame.to_parquet("shop.parquet")
    shop(2).to_parquet("next.parquet")
    frame.drop(columns="title").to_parquet("numbers.parquet")
    # A second id makes every path that does not ask the model fail instead of guessing.
    frame.assign(session_id=frame["search_id"] // 2).to_parquet("both.parquet")
    frame.rename(columns={"grade": "rated", "search_id": "asked"}).to_csv("renamed.csv", index=False)
    return tmp_path


# ---- inference ----


def test_misleading_columns_are_features_and_no_roles():
    data = tr.RankingData.from_frame(shop().drop(columns=["title", "device"]))
    assert data.n_queries == N_QUERIES
    assert data.document_weights is None
    assert data.feature_names == ("query", "weight", "group", "importance", "bm25", "price")
    assert data.roles == Roles(
        query="search_id", label="grade", document_id="sku", weight=False, query_weight=False, position=False,
        teacher=False, metadata=(), text=False, inferred=("label", "qid", "document_id"),
    )  # fmt: skip


def test_two_ids_are_an_error_that_names_both():
    with pytest.raises(DataError, match=r"could be the qid: 'search_id', 'session_id'\. Choose one with qid='COL"):
        tr.RankingData.from_frame(shop().assign(session_id=1))


def test_inferred_roles_are_shown_by_print_and_check():
    data = tr.RankingData.from_frame(shop(), features=list(FEATURES), qid="search_id")
    assert str(data).endswith(", inferred from column names: label 'grade', document id 'sku'")
    assert str(data.select([1])).endswith(str(data)[str(data).index(", inferred") :])
    [finding] = [finding for finding in tr.check(data).findings if finding.code == "inferred-columns"]
    assert finding.severity == "note"
    assert finding.examples == ("label 'grade'", "document id 'sku'")
    told = tr.RankingData.from_frame(shop(), document_id="sku", **GIVEN)
    assert str(told) == repr(told)
    assert not [finding for finding in tr.check(told).findings if finding.code == "inferred-columns"]


def test_commands_print_what_they_inferred_once_and_not_on_standard_output(folder):
    words = ("--features", ",".join(FEATURES), "--system", "RankSVM", "--set", "l2=0.1", "-o", "m.toprank")
    result = invoked("train", "shop.parquet", "--valid", "next.parquet", *words[:4], *words[6:], "--json")
    line = (
        "Inferred from column names: label 'grade', query 'search_id', document id 'sku' "
        "(override with --label, --qid, --document-id).\n"
    )
    assert result.stderr.count(line) == 1
    training = json.loads(result.stdout)["training"]
    assert training["columns"]["qid"] == "search_id"
    assert training["columns"]["inferred"] == ["label", "qid", "document_id"]
    given = ("--qid", "search_id", "--label", "grade", "--document-id", "sku")
    assert "Inferred" not in invoked("train", "shop.parquet", *words, *given).stderr
    for name, *more in (("check",), ("convert", "copy.toprank-data"), ("split", "-o", "parts")):
        assert invoked(name, "numbers.parquet", *more).stderr.count("Inferred from column names: ") == 1, name
    assert "Inferred" not in invoked("check", "numbers.parquet", "-q").stderr


# ---- a model remembers ----


def test_a_ranker_reads_a_frame_like_its_training_data(fitted):
    ranker, data = fitted
    frame = shop(1).assign(session_id=1)
    again = tr.RankingData.from_frame(frame, like=ranker)
    assert again.n_queries == N_QUERIES
    assert np.array_equal(again.labels, frame["grade"])
    assert np.array_equal(again.query_weights, frame["importance"][::N_DOCUMENTS])
    assert again.metadata["device"].tolist() == frame["device"][::N_DOCUMENTS].tolist()  # one for each query
    assert again.feature_names == FEATURES
    assert again.equals(tr.RankingData.from_frame(frame, like=data))
    assert again.equals(tr.RankingData.from_frame(frame, document_id="sku", **GIVEN))
    assert len(ranker.rank(frame)) == N_QUERIES
    assert ranker.rank(frame) == ranker.rank(again)
    unlabeled = frame.drop(columns=["grade", "importance", "device"])
    assert ranker.rank(unlabeled) == ranker.rank(again)


def test_given_roles_win_over_remembered_ones(fitted):
    ranker, _ = fitted
    frame = shop(1)
    data = tr.RankingData.from_frame(frame, like=ranker, qid="query", label=False, query_weight=False, metadata=())
    assert data.n_queries == frame["query"].nunique()
    assert not data.judged.any()
    assert data.query_weights is None
    assert not data.metadata


@pytest.mark.parametrize("ranker", [tr.LinearRanker("Squared"), tr.TreeRanker(n_trees=3, threads=1)])
def test_a_model_file_keeps_the_roles(fitted, ranker, tmp_path):
    _, data = fitted
    ranker.fit(data).save(tmp_path / "m.toprank")
    loaded = tr.load(tmp_path / "m.toprank")
    assert known_roles(loaded).columns == data.roles.columns
    assert known_roles(loaded).metadata == ("device",)
    blend = tr.BlendRanker.from_fitted([ranker, loaded], data)
    assert known_roles(blend) == known_roles(ranker)


def test_a_ranker_of_texts_keeps_its_columns(tmp_path):
    frame = shop().assign(title=lambda frame: frame["query"] + " " + frame["title"])
    text = {"query": "query", "document": ["title"]}
    data = tr.RankingData.from_frame(frame, **GIVEN, text=text)
    tr.LinearRanker("ListNet").fit(data).save(tmp_path / "m.toprank")
    again = tr.RankingData.from_frame(frame.assign(session_id=1), like=tr.load(tmp_path / "m.toprank"))
    assert again.equals(data.replace(document_ids=frame["sku"].to_numpy(str)))


def test_stored_copies_and_caches_keep_the_roles(folder):
    for _ in range(2):  # the second time from the copy beside the table
        data = tr.read("shop.parquet", cache=True, **GIVEN)
        assert data.roles.columns["qid"] == "search_id"
        assert data.roles.inferred == ("document_id",)
    tr.convert("shop.parquet", "copy.toprank-data", **GIVEN)
    assert tr.read("copy.toprank-data", verify=True).roles == data.roles
    assert tr.concatenate([data.select([0]), data.select([1])]).roles == data.roles


def test_an_old_model_without_roles_reads_by_the_rule(fitted):
    ranker, _ = fitted
    del ranker.training_["columns"]
    assert tr.RankingData.from_frame(shop(1), like=ranker).roles.inferred == ("label", "qid", "document_id")
    with pytest.raises(DataError, match="could be the qid"):
        ranker.rank(shop(1).assign(session_id=1))


TRAIN = (
    "--qid", "search_id", "--label", "grade", "--query-weight", "importance", "--metadata", "device",
    "--features", ",".join(FEATURES), "-o", "m.toprank", "-q",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["train", "tune"])
def test_every_command_that_reads_a_table_for_a_model_uses_its_columns(folder, kind):
    if kind == "train":
        invoked("train", "both.parquet", *TRAIN, "--system", "LeastSquares")
    else:
        invoked("tune", "both.parquet", *TRAIN, "--system", "LeastSquares", "--n-trials", "1")
    tr.LinearRanker("ListNet").fit(tr.read("both.parquet", **GIVEN)).save("other.toprank")
    said, few = ("--qid", "search_id", "--label", "grade"), ("--json", "-q")
    weighed = (*said, "--query-weight", "importance")
    lists = json.loads(invoked("rank", "m.toprank", "both.parquet", *few).stdout)
    assert len(lists) == N_QUERIES
    result = json.loads(invoked("evaluate", "both.parquet", "m.toprank", *few).stdout)
    assert result == json.loads(invoked("evaluate", "both.parquet", "m.toprank", *few, *weighed).stdout)
    for words, more in (
        (("compare", "both.parquet", "m.toprank", "other.toprank", *few), weighed),
        (("explain", "m.toprank", "both.parquet", "--n-repeats", "1", *few), ("--qid-column", "search_id")),
        (("monitor", "m.toprank", "both.parquet", "shop.parquet", *few), said[:2]),
    ):
        assert invoked(*words).stdout == invoked(*words, *more).stdout
    assert len(invoked("predict", "m.toprank", "both.parquet").stdout.split()) == N_QUERIES * N_DOCUMENTS
    invoked("export", "m.toprank", "--to", "opensearch", "-o", "m.json", "--check", "both.parquet", "-q")
    page = invoked("evaluate", "both.parquet", "m.toprank", "--slice-by", "device", "-q")
    assert "phone" in page.stdout


def test_the_reference_of_a_service_is_read_by_the_columns_of_its_model(folder, fitted):
    from toprank.cli.serving import _reference
    from toprank.serving.models import Models

    fitted[0].save("m.toprank")
    data = _reference(folder / "both.parquet", Models({"m": folder / "m.toprank"}))
    assert data.n_queries == N_QUERIES


def test_experiments_and_folds_keep_the_roles(folder):
    folds = tr.folds("both.parquet", 3, **GIVEN)
    assert all(fold.train.roles.columns["qid"] == "search_id" for fold in folds)
    result = invoked(
        "cv", "shop.parquet", "--systems", "LeastSquares", "--folds", "3", "--features", "bm25,price", "--json"
    )
    assert result.stderr.count("Inferred from column names: ") == 1
    json.loads(result.stdout)


@pytest.mark.parametrize("nonsense", ["x", ["x"], {"qid": 3}, {"metadata": "x"}, {"text": 3}, {"inferred": ["x", 3]}])
def test_roles_of_a_file_that_make_no_sense_are_ignored(nonsense):
    assert (Roles.from_plain(nonsense) or Roles()).columns == {}


def test_roles_are_written_and_read_the_same(fitted):
    _, data = fitted
    again = Roles.from_plain(json.loads(json.dumps(data.roles.plain())))
    assert again.columns == data.roles.columns
    assert again.metadata == data.roles.metadata
    assert again.inferred == data.roles.inferred
