"""The rules of a service one side at a time, and its limits at their exact sizes."""

from __future__ import annotations

import io
import json
import threading

import numpy as np
import pytest

import toprank as tr
from services import counted, documents, rows, save_mixed, save_models, serving, waited
from toprank.errors import DataError, FormatError
from toprank.serving import answers, drift_watch, models, write_check
from toprank.serving import rows as rows_module
from toprank.serving.counters import Counters
from toprank.serving.drift_watch import DriftWatch
from toprank.serving.logs import Log
from toprank.serving.models import Models, named_files
from toprank.serving.requests import RankRequest, parse_request
from toprank.serving.rows import ModelColumns
from toprank.serving.server import read_token


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


def test_an_equals_sign_in_a_folder_names_no_model():
    assert list(named_files(["models/a=1/m.toprank", "b=models/a=1/m.toprank"])) == ["m", "b"]
    assert str(named_files(["b=models/a=1/m.toprank"])["b"]) == "models/a=1/m.toprank"


def test_a_check_is_met_by_the_very_scores_and_needs_rows(folder, tmp_path):
    file = tmp_path / "m.toprank"
    file.write_bytes((folder / "linear.toprank").read_bytes())
    beside = write_check(file, rows(4))
    beside.write_text(json.dumps({**json.loads(beside.read_text()), "tolerance": 0.0}))
    assert Models({"m": file}).get("m").version
    with pytest.raises(DataError, match="needs at least one"):
        write_check(file, np.empty((0, 3)))
    with pytest.raises(DataError, match="2 columns, but the model takes 3"):
        write_check(file, [[1.0, 2.0]])
    for wrong in ([["a", "b", "c"]], np.zeros((2, 3, 2)), [[1.0], [1.0, 2.0]]):
        with pytest.raises(DataError, match="rows of numbers"):
            write_check(file, wrong)


@pytest.mark.parametrize("tolerance", [np.nan, np.inf, -1.0])
def test_a_check_that_nothing_could_fail_is_refused(folder, tmp_path, tolerance):
    file = tmp_path / "m.toprank"
    file.write_bytes((folder / "linear.toprank").read_bytes())
    (tmp_path / "m.toprank.check.json").write_text(
        json.dumps({"rows": [[0.0] * 3], "scores": [1e9], "tolerance": tolerance})
    )
    with pytest.raises(FormatError, match="tolerance"):
        Models({"m": file})


def test_a_check_file_that_is_nested_too_deeply_is_refused_in_a_sentence(folder, tmp_path):
    file = tmp_path / "m.toprank"
    file.write_bytes((folder / "linear.toprank").read_bytes())
    (tmp_path / "m.toprank.check.json").write_text("[" * 100_000)
    with pytest.raises(FormatError, match="must have the form"):
        Models({"m": file})


@pytest.mark.parametrize("changed", ["_digest", "signature_of"])
def test_a_file_that_changes_while_it_is_read_is_read_again(folder, monkeypatch, changed):
    """By its content, or by what the system says of it: each alone tells."""
    honest, calls = getattr(models, changed), []

    def other(path):
        calls.append(path)
        return f"{len(calls)}" if changed == "_digest" else (len(calls),)

    monkeypatch.setattr(models, changed, other)
    with pytest.raises(FormatError, match="changes while it is being read"):
        models.read_model("m", folder / "linear.toprank")
    assert len(calls) == 2 * models._TRIES
    monkeypatch.setattr(models, changed, honest)
    assert models.read_model("m", folder / "linear.toprank").name == "m"


def test_as_many_requests_and_values_are_kept_for_drift_as_may_be(folder, monkeypatch):
    monkeypatch.setattr(drift_watch, "_KEPT", 3)
    monkeypatch.setattr(drift_watch, "_VALUES", 30)
    known = Models({"m": folder / "unnamed.toprank"})
    reference = tr.RankingData(np.random.default_rng(0).normal(size=(20, 3)), qid=np.repeat([0, 1], 10))
    watch, model = DriftWatch(reference, known, Counters()), known.get("m")

    def kept(*sizes):
        for size in sizes:
            watch.observe(model, np.zeros((size, 3)))
        return [len(X) for X in watch._kept]

    assert kept(1, 2, 3) == [1, 2, 3]
    assert kept(4) == [2, 3, 4]  # the first of four goes
    assert kept(3) == [3, 4, 3]  # ten rows of three values are as many as may be
    assert kept(4) == [3, 4]  # and one row more is too many
    assert kept(50) == [50]  # the last is kept, however large
    watch.close()


def test_a_shadow_without_time_skips_and_is_asked_again_later(folder, monkeypatch):
    monkeypatch.setattr("toprank.serving.shadow._WAITING", 2)
    over, pair = threading.Event(), '{model="linear",shadow="trees"}'
    with serving(folder, "linear", "trees", shadows=("trees",)) as client:
        honest = client.service.models.get("trees").ranker.query_scores
        monkeypatch.setattr(
            client.service.models.get("trees").ranker, "query_scores", lambda X: over.wait(300) and honest(X)
        )
        for _ in range(3):
            client.post("/v1/rank", json={"documents": documents(rows(4))})
        assert counted(client)[f"toprank_shadow_skipped_total{pair}"] == 1
        over.set()
        waited(client, f"toprank_shadow_requests_total{pair}", 2)
        for total in range(3, 8):
            client.post("/v1/rank", json={"documents": documents(rows(4))})
            waited(client, f"toprank_shadow_requests_total{pair}", total)
        assert counted(client)[f"toprank_shadow_skipped_total{pair}"] == 1


def test_orders_of_columns_that_are_remembered_have_a_limit():
    names = [f"f{number}" for number in range(100)]
    columns = ModelColumns(names, 100)
    for turn in range(rows_module._PLANS + 1):
        columns._order(tuple(names[turn:] + names[:turn]), False)
        assert len(columns._plans) == (turn + 1 if turn < rows_module._PLANS else 1)


def test_names_that_are_all_shown_have_no_more():
    assert rows_module._listed(list("abcde")) == "'a', 'b', 'c', 'd', 'e'"
    assert rows_module._listed(list("abcdef")).endswith("(and 1 more)")


def test_an_empty_text_is_missing_and_no_unseen_level(folder):
    save_mixed(folder)
    with serving(folder, "mixed_trees") as client:
        asked = [{"id": 1, "values": [1.0, "", "", ""]}]
        assert client.post("/v1/score", json={"documents": asked}).status_code == 200
        found = counted(client)
        assert found['toprank_missing_values_total{model="mixed_trees"}'] == 3
        assert not [key for key in found if key.startswith("toprank_unseen_levels_total")]


def test_models_with_other_levels_are_each_asked_in_their_own(folder):
    """The columns are the same, the codes are not."""
    table = save_mixed(folder)
    table.loc[table.index[::15], "brand"] = "0 before all others"
    tr.LinearRanker().fit(tr.RankingData.from_frame(table)).save(folder / "more.toprank")
    known = Models({name: folder / f"{name}.toprank" for name in ("mixed_linear", "more")})
    values = [[0.0, brand, shop, "2026-05-01"] for brand in ("acme", "nadir", "zenith") for shop in (7, 12, 40)]
    body = {"documents": [{"id": number, "values": one} for number, one in enumerate(values)]}
    asked = parse_request(RankRequest, json.dumps(body).encode())
    served = known.get("mixed_linear"), known.get("more")
    _, *found = answers.rank_by_both(served, asked, 100)
    wanted = [one.order(one.scores(one.columns.rows(asked.documents, None).X)) for one in served]
    assert found == wanted


@pytest.mark.parametrize("word", ["0123456789abcde\x07f", "0123456789 abcdef", "0123456789abcde"])
def test_a_token_is_one_printable_word_of_sixteen_characters(tmp_path, word):
    (tmp_path / "t").write_text(word)
    with pytest.raises(DataError, match="must be a word of at least 16"):
        read_token(tmp_path / "t", "127.0.0.1")


def test_quiet_logs_tell_what_happens_to_the_service_alone_and_a_closed_one_nothing():
    for requests in (True, False):
        stream = io.StringIO()
        log = Log(stream, requests=requests)
        log.request("/healthz", 200, 0.001)
        log("ready")
        events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
        assert events == (["request", "ready"] if requests else ["ready"])
    stream.close()
    log = Log(stream)
    log("ready")  # nobody reads it any more: no reason to stop serving
    assert not log.requests


def test_a_refusal_is_no_longer_than_a_sentence_however_long_the_words_are(folder):
    long, short = "y" * 1_000_000, [1.0, 2.0, 3.0]
    with serving(folder, "linear") as client:
        for document in ({"id": "a", "values": [long, 2.0, 3.0]}, {"id": long, "values": ["b", 2.0, 3.0]}):
            answer = client.post("/v1/rank", json={"documents": [document, {"id": "c", "values": short}]})
            assert answer.status_code == 422
            assert answer.json()["error"].startswith("Document ")
            assert answer.json()["error"].endswith("for the numeric feature 'price'.")
            assert len(answer.content) < 4000
