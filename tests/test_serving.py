"""The service as a client meets it: rankings are the library's, and whatever is wrong is a 4xx with a sentence."""

from __future__ import annotations

import asyncio
import io
import json
import math
import socket
import threading

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import toprank as tr
from services import NAMES, Client, counted, documents, plain, refused, rows, save_mixed, save_models, serving, waited
from toprank import kernels
from toprank.errors import DataError, FileError, FormatError, MissingExtraError
from toprank.serving import application, check_installed, write_check
from toprank.serving.logs import Log
from toprank.serving.models import Models, named_files
from toprank.serving.server import listening, read_token
from toprank.serving.settings import Limits, LogFiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def attention(folder):
    rng = np.random.default_rng(1)
    X, y, qid = rng.normal(size=(60, 3)), rng.integers(0, 3, 60), np.repeat(np.arange(6), 10)
    network = tr.NeuralRanker("ListNet", network="attention", width=8, n_heads=2, n_layers=1, epochs=2, threads=1)
    network.fit(X, y, qid=qid).save(folder / "attention.toprank")
    return folder / "attention.toprank"


@pytest.fixture
def client(folder):
    with serving(folder, "linear", "trees", "unnamed") as found:
        yield found


# ---- rankings ----


@pytest.mark.parametrize("model", ["linear", "trees", "unnamed"])
def test_scores_and_rankings_are_those_of_the_library(folder, client, model):
    X, ranker = rows(30), tr.load(folder / f"{model}.toprank")
    names = NAMES if hasattr(ranker, "feature_names_in_") else None
    data = tr.RankingData(X, document_ids=[f"d{number}" for number in range(30)], feature_names=names)
    scores = ranker.predict(data)
    asked = {"model": model, "query": "q", "documents": documents(X)}
    told = client.post("/v1/score", json=asked).json()
    assert [one["id"] for one in told["scores"]] == list(data.document_ids)
    assert [one["score"] for one in told["scores"]] == scores.tolist()
    told = client.post("/v1/rank", json=asked).json()
    assert [one["id"] for one in told["ranking"]] == next(iter(ranker.rank(data, None).values()))
    assert [one["rank"] for one in told["ranking"]] == list(range(1, 31))
    best = client.post("/v1/rank", json={**asked, "top": 4}).json()
    assert best["ranking"] == told["ranking"][:4]
    assert best["model"] == model


def test_equal_scores_keep_the_order_given(client):
    same = [{"id": one, "values": [1, 2, 3]} for one in ("z", 5, "a", 2)]
    told = client.post("/v1/rank", json={"documents": same}).json()
    assert [one["id"] for one in told["ranking"]] == ["z", 5, "a", 2]


def test_columns_by_name_are_put_in_their_places(client):
    X = rows(5)
    wanted = client.post("/v1/score", json={"documents": documents(X)}).json()
    by_name = [{"id": f"d{i}", "values": dict(zip(NAMES, row, strict=True))} for i, row in enumerate(plain(X))]
    assert client.post("/v1/score", json={"documents": by_name}).json() == wanted
    turned = [{"id": one["id"], "values": one["values"][::-1]} for one in documents(X)]
    for _ in range(2):  # the second time, the order is remembered
        assert client.post("/v1/score", json={"documents": turned, "features": NAMES[::-1]}).json() == wanted


def test_the_first_model_is_primary_and_no_documents_are_an_empty_ranking(client):
    told = client.post("/v1/rank", json={"documents": []}).json()
    assert (told["model"], told["ranking"]) == ("linear", [])
    assert client.get("/v1/models").json()["primary"] == "linear"


def test_models_tell_their_columns(client):
    told = {one["name"]: one for one in client.get("/v1/models").json()["models"]}
    assert told["linear"]["features"] == list(NAMES)
    assert told["unnamed"]["features"] is None
    assert told["trees"]["kind"] == "TreeRanker"
    assert not told["trees"]["needs_query"]


def test_a_model_of_another_library_is_served(folder, tmp_path):
    X, ranker = rows(20), tr.load(folder / "trees.toprank")
    ranker.booster_.save_model(str(tmp_path / "foreign.txt"))
    service = application([f"foreign={tmp_path / 'foreign.txt'}"], log=Log(io.StringIO()))
    with asyncio.Runner() as runner:
        client = Client(service, runner)
        told = client.post("/v1/score", json={"documents": documents(X)}).json()
        assert [one["score"] for one in told["scores"]] == ranker.booster_.predict(X).tolist()
        assert client.get("/v1/models").json()["models"][0]["n_features"] == 3
    service.close()


def test_a_model_that_looks_at_queries_asks_for_the_query(folder, attention):
    X = rows(8)
    with serving(folder, "attention") as client:
        refused(client.post("/v1/rank", json={"documents": documents(X)}), 422, "Give query")
        told = client.post("/v1/score", json={"documents": documents(X), "query": 3}).json()
        assert client.get("/v1/models").json()["models"][0]["needs_query"]
    wanted = tr.load(attention).predict(tr.RankingData(X))
    np.testing.assert_allclose([one["score"] for one in told["scores"]], wanted, rtol=1e-6)


# ---- why ----


@pytest.mark.parametrize("model", ["linear", "trees", "unnamed"])
def test_explanations_are_those_of_the_library(folder, client, model):
    X, ranker = rows(6), tr.load(folder / f"{model}.toprank")
    names = NAMES if model != "unnamed" else None
    wanted = ranker.explain(tr.RankingData(X, feature_names=names), a=4, b=1)
    asked = {"model": model, "documents": documents(X), "a": "d4", "b": "d1"}
    told = client.post("/v1/explain", json=asked).json()
    assert {one["feature"]: one["contribution"] for one in told["contributions"]} == wanted.contributions
    assert told["total"] == wanted.total == told["a"]["score"] - told["b"]["score"]
    assert sum(one["contribution"] for one in told["contributions"]) == pytest.approx(told["total"])
    assert (told["a"]["id"], told["b"]["id"], told["exact"]) == ("d4", "d1", True)
    assert "d4" in told["summary"]
    for a, b, words in (("d4", "x", "'x' is not among"), ("d1", "d1", "the same")):
        refused(client.post("/v1/explain", json={**asked, "a": a, "b": b}), 422, words)


def test_explained_documents_may_have_the_ids_1_and_one(client):
    both = [{"id": 1, "values": [1, 2, 3]}, {"id": "1", "values": [3, 2, 1]}]
    told = client.post("/v1/explain", json={"documents": both, "a": 1, "b": "1"}).json()
    scores = {
        repr(one["id"]): one["score"] for one in client.post("/v1/score", json={"documents": both}).json()["scores"]
    }
    assert told["total"] == scores["1"] - scores["'1'"]


# ---- categories and dates ----


@pytest.fixture(scope="module")
def mixed(folder):
    return save_mixed(folder)


def test_words_of_a_request_mean_what_they_mean_in_a_table(folder, mixed):
    some = mixed.iloc[:20]
    values = [
        {"price": row.price, "brand": row.brand, "shop": int(row.shop), "added": row.added.isoformat()}
        for row in some.itertuples()
    ]
    values[3]["brand"], values[4]["shop"], values[5]["added"], values[6]["brand"] = None, None, None, ""
    table = some.astype({"shop": object}).copy()
    table.loc[table.index[[3, 6]], "brand"], table.loc[table.index[4], "shop"] = None, None
    table.loc[table.index[5], "added"] = None
    asked = [{"id": number, "values": one} for number, one in enumerate(values)]
    with serving(folder, "mixed_linear", "mixed_trees") as client:
        (first, second) = client.get("/v1/models").json()["models"]
        names = [column["name"] for column in first["columns"]]
        assert names == ["price", "brand", "shop", "added"] == second["features"]
        assert first["columns"][1]["levels"] == ["acme", "nadir", "zenith"]
        for model in ("mixed_linear", "mixed_trees"):
            ranker = tr.load(folder / f"{model}.toprank")
            frame = table.astype({"shop": mixed["shop"].dtype})
            wanted = ranker.predict(tr.RankingData.from_frame(frame, label="label", qid="qid", like=ranker))
            told = client.post("/v1/score", json={"model": model, "documents": asked}).json()
            np.testing.assert_allclose([one["score"] for one in told["scores"]], wanted, rtol=1e-12)
            listed = [{"id": one["id"], "values": [one["values"][name] for name in names[::-1]]} for one in asked]
            by_order = {"model": model, "documents": listed, "features": names[::-1]}
            assert client.post("/v1/score", json=by_order).json() == told
            why = client.post("/v1/explain", json={"model": model, "documents": asked, "a": 0, "b": 1}).json()
            assert {one["feature"] for one in why["contributions"]} == set(names)


def test_a_level_that_was_not_seen_is_missing_and_counted(folder, mixed):
    known = {"price": 1.0, "brand": None, "shop": None, "added": "2026-05-01T12:00:00+02:00"}
    new = {**known, "brand": "never seen", "shop": 99}
    with serving(folder, "mixed_trees") as client:
        asked = [{"id": "known", "values": known}, {"id": "new", "values": new}]
        first, second = client.post("/v1/score", json={"documents": asked}).json()["scores"]
        assert first["score"] == second["score"]
        found = counted(client)
        for feature in ("brand", "shop"):
            assert found[f'toprank_unseen_levels_total{{feature="{feature}",model="mixed_trees"}}'] == 1
        for name, value, words in (
            ("brand", 3.0, "categorical with text values, but the value is 3"),
            ("added", "yesterday", "takes dates such as"),
            ("added", 20000, "takes dates such as"),
            ("price", "cheap", "text .cheap. for the numeric feature"),
        ):
            answer = client.post("/v1/score", json={"documents": [{"id": "d", "values": {**known, name: value}}]})
            refused(answer, 422, words)


def test_levels_that_are_no_whole_numbers_are_known_however_they_are_written(folder):
    import pandas as pd

    rng, sizes = np.random.default_rng(0), [0.5, 2.0, 41.5]
    table = pd.DataFrame({"label": rng.integers(0, 3, 90), "qid": np.repeat(np.arange(9), 10)})
    table["size"] = pd.Categorical(rng.choice(sizes, 90))
    tr.TreeRanker(n_trees=3, num_leaves=4, threads=1).fit(tr.RankingData.from_frame(table)).save(folder / "s.toprank")
    with serving(folder, "s") as client:
        asked = [{"id": n, "values": [value]} for n, value in enumerate([0.5, "0.5", 2, 2.0, "2", 41.5])]
        assert client.post("/v1/rank", json={"documents": asked}).status_code == 200
        assert not [name for name in counted(client) if name.startswith("toprank_unseen_levels_total")]


def test_truth_values_are_those_of_a_table(folder):
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"label": rng.integers(0, 3, 90), "qid": np.repeat(np.arange(9), 10), "price": rng.random(90)})
    table["new"], table["brand"] = rng.random(90) < 0.5, rng.choice(["acme", "zenith"], 90)
    for name, columns in (("truth", ["price", "new"]), ("truth_mixed", ["price", "new", "brand"])):
        ranker = tr.LinearRanker().fit(tr.RankingData.from_frame(table[["label", "qid", *columns]]))
        ranker.save(folder / f"{name}.toprank")
        wanted = ranker.predict(tr.RankingData.from_frame(table[["label", "qid", *columns]], like=ranker)).tolist()
        lists = json.loads(table[columns].to_json(orient="values", double_precision=15))
        assert lists[0][1] in (True, False)
        named = [dict(zip(columns, one, strict=True)) for one in lists]
        with serving(folder, name) as client:
            for values in (lists, named):
                asked = [{"id": number, "values": one} for number, one in enumerate(values)]
                told = client.post("/v1/score", json={"documents": asked})
                np.testing.assert_allclose([one["score"] for one in told.json()["scores"]], wanted, rtol=1e-12)
            if "brand" in columns:
                asked = [{"id": 1, "values": [0.5, True, False]}]
                refused(client.post("/v1/score", json={"documents": asked}), 422, "'brand'.*but the value is false")


# ---- refusals ----

GOOD = {"id": "a", "values": [1, 2, 3]}


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"documents": [GOOD], "model": "lineer"}, 404, "did you mean 'linear'"),
        ({"documents": [GOOD, GOOD]}, 422, "Two documents have the id 'a'"),
        ({"documents": [{"id": "a", "values": [1, 2]}]}, 422, "'a' has 2 values, but the model has 3"),
        ({"documents": [{"id": "a", "values": {"price": 1, "age": 2}}]}, 422, "'bm25' is missing.*null"),
        (
            {"documents": [{"id": "a", "values": {"price": 1, "age": 2, "bm2": 3}}]},
            422,
            "unknown feature 'bm2'.*'bm25'",
        ),
        ({"documents": [GOOD], "features": ["price", "age"]}, 422, "'bm25' is missing"),
        ({"documents": [GOOD], "features": ["price", "age", "bm25", "x"]}, 422, "unknown feature 'x'"),
        ({"documents": [GOOD], "features": ["price", "age", "age"]}, 422, "'age' is listed twice"),
        ({"documents": [{"id": "a", "values": [1, 2]}], "features": NAMES}, 422, "3 features are listed"),
        ({"documents": [{"id": "a", "values": [1, "x", 3]}]}, 422, "text 'x' for the numeric feature 'age'"),
        ({"documents": [{"id": "a", "values": [1, [2], 3]}]}, 422, "Document 'a', value number 1.*array"),
        ({"documents": [{"id": "a", "values": 3}]}, 422, "Document 'a': expected"),
        ({"documents": [{"id": 1.5, "values": []}]}, 422, r"expected int \| str, got float at \$.documents\[0\].id"),
        ({"documents": [{"id": 2**60, "values": []}]}, 422, "expected int"),
        ({"documents": [{"values": []}]}, 422, "required field id"),
        ({"documents": [{**GOOD, "value": 1}]}, 422, "unknown field value"),
        ({"documents": [GOOD], "top": 0}, 422, "int >= 1"),
        ({}, 422, "required field documents"),
        ([], 422, "expected object, got array"),
    ],
)
def test_what_cannot_be_ranked_is_refused_in_a_sentence(client, asked, status, words):
    refused(client.post("/v1/rank", json=asked), status, words)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b'{"documents": [{"id": "a", "values": [NaN, 1, 2]}]}', 400, "no NaN.*null"),
        (b'{"documents": [{"id": "a", "values": [-Infinity, 1, 2]}]}', 400, "has no NaN"),
        (b'{"documents": [{"id": "a", "values": [1e400, 1, 2]}]}', 422, "out of range"),
        (b'{"documents": [{"id": "a", "values": [01, 1, 2]}]}', 400, "not JSON"),
        (b'{"documents": [{"id": "a", "values": [1,, 2]}]}', 400, "not JSON"),
        (b'{"documents": [{"id": "a", "values": ' + b"[" * 50_000 + b"]" * 50_000 + b"}]}", 400, "nested too deeply"),
        (b'{"documents": [{"id": "\\ud800", "values": [1, 2, 3]}]}', 400, "surrogate"),
        (b'{"documents": [{"id": "a", "values": ["\xff", 2, 3]}]}', 400, "not JSON"),
        (b"\xef\xbb\xbf{}", 400, "not JSON"),
    ],
)
def test_what_is_not_json_is_refused_in_a_sentence(client, body, status, words):
    refused(client.post("/v1/rank", content=body, headers={"content-type": "application/json"}), status, words)


def test_scores_that_no_number_can_hold_are_refused(folder, tmp_path):
    ranker = tr.load(folder / "linear.toprank")
    ranker.coef_ = ranker.coef_ * 1e3
    ranker.save(tmp_path / "steep.toprank")
    with serving(tmp_path, "steep") as client:
        asked = {"documents": [{"id": "a", "values": [1.7e308, -1.7e308, 1.7e308]}]}
        refused(client.post("/v1/rank", json=asked), 422, "extremely large")


def test_many_names_and_long_ones_are_refused_at_once(client):
    """Nothing that a client sends may take a time that grows with its square: the service would not answer at all."""
    many = [f"x{number}" for number in range(150_000)]
    asked = {"documents": [GOOD], "features": [*many, "z", "z"]}
    refused(client.post("/v1/rank", json=asked), 422, "The feature 'z' is listed twice")
    answer = client.post("/v1/rank", json={"documents": [GOOD], "features": ["a" * 1_000_000]})
    refused(answer, 422, "unknown feature 'aaa")
    assert len(answer.content) < 1000


def test_names_for_a_model_without_names_are_refused(client):
    asked = {"model": "unnamed", "documents": [GOOD], "features": NAMES}
    refused(client.post("/v1/rank", json=asked), 422, "of the model have no names")


def test_limits_paths_and_methods(folder):
    with serving(folder, "linear", limits=Limits(body=2000, documents=3)) as client:
        refused(client.post("/v1/rank", json={"documents": documents(rows(4))}), 413, "4 documents, but the limit is 3")
        much = {"documents": [{"id": "a" * 3000, "values": [1, 2, 3]}]}
        refused(client.post("/v1/rank", json=much), 413, "larger than 2,000 bytes")

        async def pieces():
            for _ in range(40):
                yield b" " * 100

        answer = client.post("/v1/rank", content=pieces(), headers={"content-type": "application/json"})
        refused(answer, 413, "larger")
        refused(client.get("/v2/rank"), 404, "Unknown path /v2/rank")
        answer = client.get("/v1/rank")
        refused(answer, 405, "requires POST")
        assert answer.headers["allow"] == "POST"
        refused(client.post("/v1/rank", content=b"{}"), 415, "Content-Type")
        assert client.request("HEAD", "/healthz").content == b""
        refused(client.post("/v1/score", json={"documents": [], "top": 3}), 422, "unknown field top")


def test_a_failure_of_ours_is_a_sentence_and_a_line_without_the_payload(folder, monkeypatch):
    written = io.StringIO()
    with serving(folder, "linear", log=Log(written)) as client:
        monkeypatch.setattr(type(client.service.models.get(None)), "scores", lambda *_: 1 / 0)
        secret = {"id": "secret", "values": [1, 2, 3]}
        refused(client.post("/v1/rank", json={"documents": [secret]}), 500, "log of the service contains the location")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["failure", "request"]
    assert lines[0]["error"] == "ZeroDivisionError"
    assert "secret" not in written.getvalue()


def test_explanations_that_take_too_long_keep_nobody_else_waiting(folder, monkeypatch):
    """They go on after their clients were told; rankings and metrics have threads of their own."""
    over = threading.Event()
    monkeypatch.setattr("toprank.serving.answers.explain", lambda *_: over.wait(300))
    monkeypatch.setattr("toprank.serving.service._LARGE", 0)  # every ranking is made on a thread
    try:
        with serving(folder, "linear", limits=Limits(seconds=0.2)) as client:
            asked = {"documents": documents(rows(3)), "a": "d0", "b": "d1"}
            for _ in range(3):  # the first is begun, or not even that where the machine is busy
                refused(client.post("/v1/explain", json=asked), 503, r"took longer than 0\.2 s|in the queue for 0\.2 s")
            monkeypatch.setattr(client.service, "limits", Limits())
            assert client.post("/v1/rank", json={"documents": documents(rows(3))}).status_code == 200
            assert client.get("/metrics").status_code == 200
            over.set()
    finally:
        over.set()


def test_every_request_is_a_line_of_json_without_payload(folder):
    written = io.StringIO()
    with serving(folder, "linear", log=Log(written)) as client:
        client.post("/v1/rank", json={"query": "my secret", "documents": documents(rows(4))})
        client.post("/v1/rank", json={"documents": [{"id": "my secret", "values": []}]})
        client.get("/my secret")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [(line["endpoint"], line["status"]) for line in lines] == [
        ("/v1/rank", 200),
        ("/v1/rank", 422),
        ("other", 404),
    ]
    assert lines[0]["documents"] == 4
    assert "secret" not in written.getvalue()


# ---- who may ask ----


def test_a_token_is_asked_for_everywhere_but_at_probes_and_the_page(folder):
    with serving(folder, "linear", token="a-long-random-word") as client:
        asked = {"json": {"documents": [GOOD]}}
        wrong = ("", "Bearer a-long-random-wor", "a-long-random-word", "Basic a-long-random-word", "Bearer")
        for words in (*wrong, "Bearer  ", "Bearer a-long-random-word x", "Bearera-long-random-word"):
            answer = client.post("/v1/rank", **asked, headers={"authorization": words} if words else {})
            refused(answer, 401, "requires a token")
            assert answer.headers["www-authenticate"] == "Bearer"
        for scheme in ("Bearer", "bearer", "BEARER", "Bearer "):  # in any case, says RFC 9110
            right = {"authorization": f"{scheme} a-long-random-word"}
            assert client.post("/v1/rank", **asked, headers=right).status_code == 200
        for path in ("/v1/models", "/metrics", "/openapi.json"):
            assert client.get(path).status_code == 401
        for path in ("/healthz", "/readyz", "/", "/page.js", "/page.css"):
            assert client.get(path).status_code == 200


def test_other_addresses_than_loopback_need_a_token(tmp_path):
    assert read_token(None, "127.0.0.1") is None
    assert read_token(None, "::1") is None
    for host in ("0.0.0.0", "::", "example.org", "192.168.0.1"):
        with pytest.raises(DataError, match="needs a token"):
            read_token(None, host)
    (tmp_path / "t").write_text("0123456789abcdef\n")
    assert read_token(tmp_path / "t", "0.0.0.0") == "0123456789abcdef"
    for wrong in ("", "short", "0123456789 abcdef0"):
        (tmp_path / "t").write_text(wrong)
        with pytest.raises(DataError, match="at least 16"):
            read_token(tmp_path / "t", "0.0.0.0")
    with pytest.raises(FileError, match="cannot be read"):
        read_token(tmp_path / "none", "127.0.0.1")


def test_a_port_that_is_taken_is_said():
    with listening("127.0.0.1", 0) as taken, pytest.raises(FileError, match="Cannot listen on"):
        listening("127.0.0.1", taken.getsockname()[1])


def test_small_packets_are_sent_at_once():
    """Without TCP_NODELAY the second packet of an answer waits for the client's delayed acknowledgment."""

    async def accepted():
        made = asyncio.get_running_loop().create_future()

        class Accepting(asyncio.Protocol):
            def connection_made(self, transport):
                sock = transport.get_extra_info("socket")
                made.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        bound = listening("127.0.0.1", 0)
        server = await asyncio.get_running_loop().create_server(Accepting, sock=bound)
        async with server:
            _, writer = await asyncio.open_connection(*bound.getsockname())
            found = await made
            writer.close()
            await writer.wait_closed()
        return found

    assert asyncio.run(accepted())


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr("toprank.serving.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"toprank\[serve\]"):
        check_installed()


def test_names_of_models(tmp_path):
    assert list(named_files(["a/m.toprank", "b=a/m.toprank"])) == ["m", "b"]
    with pytest.raises(DataError, match="Two models are called 'm'"):
        named_files(["a/m.toprank", "b/m.toprank"])
    for text in ("", "=m.toprank", "m="):
        with pytest.raises(DataError, match=f"'{text}' is not a model. Give a file, or NAME=FILE"):
            named_files([text])
    with pytest.raises(FileError, match=r"There is no file .*none"):
        Models({"m": tmp_path / "none"})


def test_an_application_of_one_model_need_not_be_a_list(folder):
    service = application(folder / "linear.toprank")
    assert [model.name for model in service.models] == ["linear"]
    service.close()


# ---- what is counted ----


def test_metrics_count_requests_documents_and_missing_values(client):
    X = rows(10)
    client.post("/v1/rank", json={"documents": documents(X)})
    client.post("/v1/rank", json={"documents": [GOOD, GOOD]})
    found = counted(client)
    assert found['toprank_requests_total{endpoint="/v1/rank",status="200"}'] == 1
    assert found['toprank_requests_total{endpoint="/v1/rank",status="422"}'] == 1
    assert found['toprank_missing_values_total{model="linear"}'] == np.isnan(X).sum()
    assert found['toprank_documents_sum{model="linear"}'] == 10
    assert found['toprank_documents_bucket{le="5.0",model="linear"}'] == 0
    assert found['toprank_documents_bucket{le="10.0",model="linear"}'] == 1
    assert sum("toprank_model_info" in key for key in found) == 3


def test_gauges_of_others_are_told(client):
    client.service.counters.gauge("my_drift", "Drift.", ("feature",), lambda: {("price",): 0.25})
    assert counted(client)['my_drift{feature="price"}'] == 0.25


def test_a_shadow_is_compared_and_never_answered_with(folder):
    pair = '{model="linear",shadow="trees"}'
    live, shadow = (tr.load(folder / f"{name}.toprank") for name in ("linear", "trees"))
    changed, first, overlap = 0, 0, 0.0
    with serving(folder, "linear", "trees", shadows=("trees",)) as client:
        for seed in range(5):
            X = rows(12, seed)
            data = tr.RankingData(X, feature_names=NAMES)
            (a,), (b,) = live.rank(data, None).values(), shadow.rank(data, None).values()
            changed, first, overlap = (
                changed + (a != b),
                first + (a[0] != b[0]),
                overlap + len({*a[:10]} & {*b[:10]}) / 10,
            )
            told = client.post("/v1/rank", json={"documents": documents(X)}).json()
            assert [int(one["id"][1:]) for one in told["ranking"]] == a
        client.post("/v1/rank", json={"documents": documents(rows(1))})  # one document: nothing can change
        client.post("/v1/rank", json={"model": "trees", "documents": documents(X)})  # not to the primary: no shadow
        found = waited(client, f"toprank_shadow_requests_total{pair}", 6)
    assert found[f"toprank_shadow_requests_total{pair}"] == 6
    assert found.get(f"toprank_shadow_rankings_changed_total{pair}", 0) == changed > 0
    assert found.get(f"toprank_shadow_first_changed_total{pair}", 0) == first
    assert found[f"toprank_shadow_overlap_at_10_sum{pair}"] == pytest.approx(overlap + 1)


def test_a_shadow_of_other_columns_takes_what_it_knows_by_name(folder):
    pair = '{model="linear",shadow="fewer"}'
    with serving(folder, "linear", "fewer", shadows=("fewer",)) as client:
        X = rows(4)
        client.post("/v1/rank", json={"documents": documents(X), "features": NAMES})
        client.post("/v1/rank", json={"documents": documents(X)})  # three numbers without names say nothing to it
        found = waited(client, f"toprank_shadow_failures_total{pair}", 1)
        asked = {"model": "fewer", "documents": documents(X), "features": NAMES}
        refused(client.post("/v1/rank", json=asked), 422, "unknown feature 'bm25'")  # asked itself, it is strict
    assert found[f"toprank_shadow_requests_total{pair}"] == found[f"toprank_shadow_failures_total{pair}"] == 1


def test_roles_that_make_no_sense_are_refused(folder, tmp_path):
    with pytest.raises(DataError, match="There is no model called 'x'"):
        application([folder / "linear.toprank"], shadows=("x",))
    with pytest.raises(DataError, match="'linear' is the primary model and cannot be its own shadow"):
        application([folder / "linear.toprank"], shadows=("linear",))
    with pytest.raises(DataError, match="needs two models, but 'linear' was given twice"):
        application(folder / "linear.toprank", interleave=("linear", "linear"), files=LogFiles(tmp_path))


def test_a_shadow_that_is_named_twice_counts_once_and_every_failure_of_it_counts(folder, monkeypatch):
    pair = '{model="linear",shadow="trees"}'
    with serving(folder, "linear", "trees", shadows=("trees", "trees")) as client:
        client.post("/v1/rank", json={"documents": documents(rows(4))})
        waited(client, f"toprank_shadow_requests_total{pair}", 1)

        def fail(*_):
            raise RuntimeError("no reason")

        monkeypatch.setattr(client.service.models.get("trees").ranker, "query_scores", fail)
        client.post("/v1/rank", json={"documents": documents(rows(4))})
        found = waited(client, f"toprank_shadow_failures_total{pair}", 1)
    assert found[f"toprank_shadow_requests_total{pair}"] == found[f"toprank_shadow_failures_total{pair}"] == 1


# ---- models that are replaced ----


def test_a_replaced_file_is_served_and_one_that_fails_is_not(folder, tmp_path):
    file = tmp_path / "m.toprank"
    file.write_bytes((folder / "linear.toprank").read_bytes())
    models = Models({"m": file})
    before = models.get(None)
    assert models.changed() == []
    for content, words in (
        (file.read_bytes()[:-30], "not a complete toprank model"),
        ((folder / "fewer.toprank").read_bytes(), "other columns"),
    ):
        file.write_bytes(content)
        assert models.changed() == ["m"]
        with pytest.raises(tr.ToprankError, match=words):
            models.reload("m")
        assert models.get(None) is before
        assert models.changed() == []  # refused once, not again every second
    file.unlink()
    assert models.changed() == ["m"]
    with pytest.raises(FileError, match=r"There is no file .*m\.toprank"):
        models.reload("m")
    assert models.get(None) is before
    file.write_bytes((folder / "other.toprank").read_bytes())
    assert models.changed() == ["m"]
    assert models.reload("m").version != before.version
    assert models.get(None).version == models.reload("m").version


def test_a_check_file_must_be_met(folder, tmp_path):
    file = tmp_path / "m.toprank"
    file.write_bytes((folder / "linear.toprank").read_bytes())
    models = Models({"m": file})
    beside = write_check(file, rows(4))
    assert models.changed() == ["m"]
    models.reload("m")
    told = json.loads(beside.read_text())
    told["scores"][2] += 1e-3
    beside.write_text(json.dumps(told))
    with pytest.raises(FormatError, match="fails its self-test: the score of row 2"):
        models.reload("m")
    beside.write_text(json.dumps({**told, "model": "0" * 64}))
    with pytest.raises(FormatError, match="belongs to another model"):
        models.reload("m")
    for wrong in ("{}", "no", json.dumps({**told, "rows": [[1.0]]})):
        beside.write_text(wrong)
        with pytest.raises(FormatError, match=r"must (have the form|contain rows)"):
            models.reload("m")
    told["scores"][2] -= 1e-3
    export = {"format": "json", "features": NAMES, "tolerance": 1e-6, "rows": told["rows"], "scores": told["scores"]}
    beside.write_text(json.dumps(export))  # as `tr.export(check=data)` writes it
    models.reload("m")
    with pytest.raises(DataError, match="2 columns"):
        write_check(file, [[1.0, 2.0]])


def test_a_model_whose_scores_are_not_finite_is_not_served(folder, tmp_path):
    ranker = tr.load(folder / "linear.toprank")
    ranker.coef_ = np.full(3, 1e308)
    ranker.save(tmp_path / "m.toprank")
    with pytest.raises(FormatError, match="self-test"):
        Models({"m": tmp_path / "m.toprank"})


# ---- numbers straight from their text ----

digits = st.integers(0, 10**22)
usual = st.text("0123456789", min_size=1, max_size=9)
texts = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.builds("{}{}.{}e{}".format, st.sampled_from(["", "-"]), digits, digits, st.integers(-330, 280)),
    st.builds("{}.{:030d}".format, st.integers(0, 99), st.integers(0, 10**30 - 1)),
    st.builds("{}{}.{}{}".format, st.sampled_from(["", "-"]), st.integers(0, 99), usual, st.sampled_from(["", "e3"])),
    st.sampled_from(["null", "true", "false"]),
)  # fmt: skip
WORDS = {"null": math.nan, "true": 1.0, "false": 0.0}


def read_rows(text, n, d):
    out = np.full((n, d), 7.0)
    padded = np.frombuffer(text + b",".ljust(41, b"\0"), np.uint8)
    return kernels.json_rows(padded, out), out


@settings(max_examples=300)
@given(st.lists(st.lists(texts, min_size=3, max_size=3), min_size=1, max_size=4), st.sampled_from(["", " ", "\n\t "]))
@example([["0", "-0", "0.0"]], "")
@example([["1e-400", "5e-324", "1.7976931348623157e308"]], " ")
def test_rows_of_json_are_read_as_python_reads_them(given_rows, blank):
    text = ",".join("[" + ",".join(f"{blank}{one}{blank}" for one in row) + "]" for row in given_rows).encode()
    wanted = np.array([[WORDS[one] if one in WORDS else float(one) for one in row] for row in given_rows])
    bad, out = read_rows(text, len(given_rows), 3)
    if np.isinf(wanted).any():
        assert bad == int(np.argmax(np.isinf(wanted).any(1)))
    else:
        assert bad == -1
        np.testing.assert_array_equal(out, wanted)


@settings(max_examples=500)
@given(st.text('[]{},.:-+0123456789eEnultrfas"a \n', max_size=30))
@example("[1,2,3]")
@example("[1,2,03]")
@example("[1,2,3.]")
@example("[1,2,.3]")
@example("[1,2,+3]")
@example("[1,2,3e]")
@example("[1,2,nul]")
@example("[true,false,1]")
@example("[true,fals,1]")
@example("[1,2,tru]")
@example("[1,2,True]")
@example("[1,2,3],[4,5,6]")
def test_what_the_kernel_takes_is_json(text):
    bad, out = read_rows(text.encode(), 1, 3)
    try:
        (row,) = msgspec.json.decode(f"[{text}]")
        fits = isinstance(row, list) and len(row) == 3 and all(isinstance(one, int | float | None) for one in row)
    except (ValueError, msgspec.DecodeError):
        fits = False
    assert (bad == -1) == fits
    if fits:
        np.testing.assert_array_equal(out[0], [np.nan if one is None else float(one) for one in row])


def test_the_kernel_stays_within_its_text():
    for text in (b"", b"[1,2,3", b"[" * 100, b"[1,2,3],"):
        assert read_rows(text, 1, 3)[0] >= 0
    out = np.zeros((1, 3))
    assert kernels.json_rows(np.frombuffer(b"[1,2,3],", np.uint8), out) == 0  # no zeros to stop at


# ---- what the process is made of ----


def test_the_openapi_document_names_every_endpoint(client):
    told = client.get("/openapi.json").json()
    paths = {path for path in client.service._routes if path not in ("/", "/page.js", "/page.css", "/openapi.json")}
    assert set(told["paths"]) == paths
    for path, (method, _) in client.service._routes.items():
        if path in paths:
            assert method.lower() in told["paths"][path]


def explore(folder, log_folder, examples):
    """Ask everything that the OpenAPI document allows, and much that it does not; no answer may be a failure."""
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    service = application(
        [folder / "linear.toprank", folder / "trees.toprank"],
        interleave=("linear", "trees"),
        shadows=("trees",),
        files=LogFiles(log_folder),
        log=Log(io.StringIO()),
    )
    schema = schemathesis.openapi.from_asgi("/openapi.json", service)
    asked = set()
    for result in schema.get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(max_examples=examples, deadline=None)
        def ask(case):
            case.call_and_validate(checks=checks)

        ask()
        asked.add(operation.path)
    service.close()
    return asked


def test_whatever_the_document_allows_is_answered(folder, tmp_path):
    assert "/v1/rank" in explore(folder, tmp_path, 15)


@pytest.mark.nightly
def test_whatever_the_document_allows_is_answered_at_length(folder, tmp_path):
    assert "/v1/rank" in explore(folder, tmp_path, 1000)


def test_columns_with_a_role_may_be_among_the_values(folder, tmp_path):
    """A client sends rows of its table as they are: the query id, the label and metadata are no features."""
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"search": np.repeat([f"q{k}" for k in range(20)], 5), "grade": rng.integers(0, 3, 100)})
    table["device"], table["price"], table["age"] = "phone", rng.normal(size=100), rng.normal(size=100)
    data = tr.RankingData.from_frame(table, qid="search", label="grade", metadata=["device"])
    tr.LinearRanker().fit(data).save(tmp_path / "roles.toprank")
    few = table.head(3).to_dict("records")
    plain = [{name: row[name] for name in ("price", "age")} for row in few]
    with serving(tmp_path, "roles") as client:
        forms = [{"documents": [{"id": k, "values": row} for k, row in enumerate(rows)]} for rows in (plain, few)]
        forms.append({
            "documents": [{"id": k, "values": list(row.values())} for k, row in enumerate(few)],
            "features": list(few[0]),
        })  # fmt: skip
        answers = [client.post("/v1/score", json=form) for form in forms]
        assert [answer.status_code for answer in answers] == [200] * 3
        assert answers[0].json() == answers[1].json() == answers[2].json()
        wrong = {"documents": [{"id": 1, "values": {**few[0], "brand": 1.0}}]}
        refused(client.post("/v1/score", json=wrong), 422, "unknown feature 'brand'")
