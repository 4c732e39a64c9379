"""Interleaved lists: the draft is fair, any replica with the secret takes their clicks, and the test is exact."""

from __future__ import annotations

import base64
import io
import json
import math
import random
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest, t

import toprank as tr
from services import counted, documents, refused, rows, save_models, serving
from toprank.clicks.interleaved import preference, team_draft
from toprank.errors import DataError, FileError
from toprank.serving.impressions import ListIdSigner
from toprank.serving.interleaving import InterleavedModels
from toprank.serving.logs import Log
from toprank.serving.models import Models
from toprank.serving.server import read_secret
from toprank.serving.settings import LogFiles


def tell(client, request, *clicked):
    """Send clicks on documents of a list."""
    events = [{"kind": "click", "document": document} for document in clicked]
    return client.post("/v1/events", json={"request": request, "events": events})


GOOD = {"id": "a", "values": [1, 2, 3]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def served(folder):
    models = Models({"a": folder / "linear.toprank", "b": folder / "other.toprank"})
    return models.get("a"), models.get("b")


def made(interleaving, served, ids, top=10):
    """A list of documents that one model ranks as given, the other the other way round."""
    order = list(range(len(ids)))
    impression, teams = interleaving.draft(served, (order, order[::-1]), ids, top)
    return impression, list(teams)


def coin(seed):
    rng = random.Random(seed)
    return lambda: rng.getrandbits(1)


@given(st.permutations(range(8)), st.permutations(range(8)), st.integers(1, 10), st.integers(0, 1000))
def test_team_draft_takes_the_best_that_is_left_of_each_team_in_turn(a, b, top, seed):
    drafted = team_draft(a, b, top, coin(seed))
    assert len(drafted) == min(top, 8)
    teams = list(drafted.values())
    for place in range(0, len(teams) - 1, 2):
        assert {*teams[place : place + 2]} == {0, 1}  # each round, each captain chooses once
    taken = set()
    for document, team in drafted.items():
        ranking = (a, b)[team]
        assert document == next(one for one in ranking if one not in taken)
        taken.add(document)


def test_each_model_begins_half_of_the_rounds():
    fair = coin(0)
    first = sum(next(iter(team_draft([0, 1], [1, 0], 2, fair).values())) for _ in range(4000))
    assert abs(first - 2000) < 5 * math.sqrt(1000)


def test_interleaved_lists_and_their_clicks(folder, tmp_path):
    options = {"interleave": ("linear", "other"), "files": LogFiles(tmp_path)}
    with serving(folder, "linear", "other", **options) as client:
        X = rows(6)
        told = client.post("/v1/interleave", json={"query": "q", "documents": documents(X), "top": 4}).json()
        assert [one["rank"] for one in told["ranking"]] == [1, 2, 3, 4]
        ids = [one["id"] for one in told["ranking"]]
        refused(tell(client, told["impression"], "x"), 422, "not in this")
        refused(tell(client, "x"), 404, "is unknown")
        for new in (1, 0):  # sent twice, counted once
            assert tell(client, told["impression"], ids[0]).json() == {"counted": new, "again": 1 - new}
        assert sum(value for key, value in counted(client).items() if "interleaved_clicks_total" in key) == 1
        refused(client.post("/v1/interleave", json={"documents": [], "model": "linear"}), 422, "unknown field model")
        assert client.post("/v1/interleave", json={"documents": []}).json()["ranking"] == []
    with serving(folder, "linear") as client:
        refused(client.post("/v1/interleave", json={"documents": []}), 404, "does not interleave")


def test_interleaving_without_a_log_is_refused(folder):
    with (
        pytest.raises(DataError, match="Interleaving needs an event log"),
        serving(folder, "linear", "other", interleave=("linear", "other")),
    ):
        pass


def test_the_log_tells_which_model_won_each_list(folder, tmp_path, monkeypatch):
    """Lists are counted by hand from teams and clicks; each is of a query of its own, so the test is the sign test."""
    secret, rng, counts = "a long random word", random.Random(0), Counter()
    options = {"interleave": ("linear", "other"), "secret": secret, "files": LogFiles(tmp_path)}
    monkeypatch.setattr(
        "toprank.serving.interleaving.InterleavedModels", partial(InterleavedModels, rng=random.Random(1))
    )
    with serving(folder, "linear", "other", **options) as client:
        for query in range(60):
            told = client.post(
                "/v1/interleave", json={"query": query, "documents": documents(rows(6)), "top": 4}
            ).json()
            ids = [one["id"] for one in told["ranking"]]
            clicked = [one for one in ids if rng.random() < (0.9 if one == "d0" else 0.3)]
            if clicked:
                tell(client, told["impression"], *clicked)
            place = ListIdSigner(options["interleave"], secret.encode()).open(told["impression"]).place
            votes = sum(1 - 2 * place(one)[1] for one in clicked)
            counts["unclicked" if not clicked else ("losses", "ties", "wins")[int(np.sign(votes)) + 1]] += 1
    found = tr.clicks.analyze_interleaving(tr.clicks.read(tmp_path))
    assert found.names == ("linear", "other")
    assert {name: getattr(found, name) for name in counts} == counts
    wanted = binomtest(counts["wins"], counts["wins"] + counts["losses"])
    assert list(found.interval) == pytest.approx(list(wanted.proportion_ci(0.95)), rel=1e-8)
    assert found.p == pytest.approx(wanted.pvalue, abs=5 * math.sqrt(wanted.pvalue / 100_000) + 1e-5)


@pytest.mark.parametrize("contextual", ["linear", "other"])
def test_both_models_of_an_interleaved_list_get_the_query_that_they_need(folder, tmp_path, monkeypatch, contextual):
    """Only one of the models depends on the whole query: whichever it is, a request without a query is rejected."""
    needs = property(lambda ranker: ranker.l2 == (10.0 if contextual == "other" else tr.LinearRanker().l2))
    monkeypatch.setattr(tr.LinearRanker, "uses_query_context", needs)
    options = {"interleave": ("linear", "other"), "files": LogFiles(tmp_path)}
    with serving(folder, "linear", "other", **options) as client:
        asked = {"documents": documents(rows(3))}
        refused(client.post("/v1/interleave", json=asked), 422, f"'{contextual}' depend on the whole query")
        assert len(client.post("/v1/interleave", json={"query": 1, **asked}).json()["ranking"]) == 3


def test_models_of_other_columns_are_not_interleaved(folder, tmp_path):
    with serving(folder, "linear", "fewer", interleave=("linear", "fewer"), files=LogFiles(tmp_path)) as client:
        refused(client.post("/v1/interleave", json={"documents": [GOOD]}), 422, "different columns")


def of_lists(wins, losses, ties=0, unclicked=0):
    """Of so many lists, each of a query of its own."""
    won, lost = np.repeat([1.0, 0.0], [wins, losses]), np.repeat([0.0, 1.0], [wins, losses])
    return preference(won, lost, ties, unclicked, ("new", "old"))


@pytest.mark.parametrize(("wins", "losses"), [(9, 3), (1, 1), (2, 1), (5, 5), (0, 15), (15, 0), (11, 9)])
def test_of_lists_of_different_queries_the_test_is_the_sign_test_and_the_interval_clopper_and_pearsons(wins, losses):
    found, wanted = of_lists(wins, losses, 5, 100), binomtest(wins, wins + losses)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-8)
    assert list(found.interval) == pytest.approx(list(wanted.proportion_ci(0.95)), rel=1e-8, abs=1e-12)
    assert found.share == wins / (wins + losses)
    assert found.to_dict()["lists"] == wins + losses + 105


@pytest.mark.parametrize(("wins", "losses"), [(0, 40), (520, 480), (30_000, 29_000)])
def test_of_many_lists_too(wins, losses):
    found, wanted = of_lists(wins, losses), binomtest(wins, wins + losses)
    assert found.p == pytest.approx(wanted.pvalue, abs=5 * math.sqrt(wanted.pvalue / 100_000) + 1e-5)
    assert list(found.interval) == pytest.approx(list(wanted.proportion_ci(0.95)), rel=1e-6)


def test_lists_of_one_query_are_as_many_as_would_know_as_much():
    """Ten queries of ten lists that all end alike know no more than ten lists do: Korn and Graubard's formula."""
    won = np.array([1.0] * 7 + [0.0] * 3)
    alone, often = (preference(times * won, times * (1 - won), 0, 0, ("a", "b")) for times in (1, 10))
    assert (often.wins, often.p, often.share) == (70, pytest.approx(alone.p), alone.share)
    ratio = (0.7 * 0.3 / 9) / (0.7 * 0.3 / 99)  # the variance of a mean of ten queries, and of a hundred lists
    n = 100 / ratio * (t.ppf(0.975, 99) / t.ppf(0.975, 9)) ** 2
    ends = beta.ppf(0.025, 0.7 * n, 0.3 * n + 1), beta.ppf(0.975, 0.7 * n + 1, 0.3 * n)
    assert list(often.interval) == pytest.approx(ends, rel=1e-8)
    assert often.interval.low < alone.interval.low < alone.interval.high < often.interval.high


def test_a_preference_is_proven_below_five_percent():
    first = next(wins for wins in range(5, 17) if binomtest(wins, wins + 3).pvalue < 0.05)
    assert of_lists(first, 3).summary.startswith("Users prefer new")
    assert of_lists(3, first).summary.startswith("Users prefer old")
    assert of_lists(first - 1, 3).summary.startswith("No significant preference")


# ---- clicks that reach another process ----


def test_any_replica_with_the_secret_takes_clicks_and_no_other_does(folder, tmp_path):
    options = {"interleave": ("linear", "other"), "secret": "a long random word", "files": LogFiles(tmp_path)}
    with serving(folder, "linear", "other", **options) as one, serving(folder, "linear", "other", **options) as two:
        told = one.post("/v1/interleave", json={"query": "q", "documents": documents(rows(6))}).json()
        first = told["ranking"][0]["id"]
        for new in (1, 0):  # sent twice, counted once
            assert tell(two, told["impression"], first).json() == {"counted": new, "again": 1 - new}
        refused(tell(two, told["impression"], "x"), 422, "'x' is not in this list")
        assert sum(value for key, value in counted(two).items() if "interleaved_clicks_total" in key) == 1
    with serving(folder, "linear", "other", **{**options, "secret": "another random word"}) as three:
        refused(tell(three, told["impression"], first), 404, "another secret")
    with serving(folder, "linear", "other", **{**options, "interleave": ("other", "linear")}) as four:
        assert tell(four, told["impression"], first).json() == {"counted": 1, "again": 0}
        assert not sum(value for key, value in counted(four).items() if "interleaved_clicks_total" in key)


def test_without_a_secret_ids_hold_for_one_process_which_is_said(folder, tmp_path):
    options = {"interleave": ("linear", "other"), "files": LogFiles(tmp_path)}
    lines = {}
    for secret in (None, "a long random word"):
        written = io.StringIO()
        with serving(folder, "linear", "other", **options, secret=secret, log=Log(written)) as one:
            told = one.post("/v1/interleave", json={"documents": documents(rows(3))}).json()
        lines[secret] = [json.loads(line) for line in written.getvalue().splitlines()]
        with serving(folder, "linear", "other", **options, secret=secret) as two:
            status = tell(two, told["impression"], "d0").status_code
        assert status == (404 if secret is None else 200)
    remarks = [line["says"] for line in lines[None] if line["event"] == "remark"]
    assert len(remarks) == 1
    assert "this process only" in remarks[0]
    assert "the same secret file" in remarks[0]
    assert "remark" not in [line["event"] for line in lines["a long random word"]]


@given(st.data())
def test_a_forged_id_is_no_list(data):
    seal = ListIdSigner(("a", "b"), b"a long random word")
    text = seal.sign_interleaved([("x", 0), ("y", 1)], ("0" * 12, "1" * 12))
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << data.draw(st.integers(0, 7))
    assert seal.open(base64.urlsafe_b64encode(raw).decode()) is None
    assert seal.open(data.draw(st.text(max_size=80))) is None
    assert seal.open(text[: data.draw(st.integers(0, len(text) - 2))]) is None


@given(st.data())
def test_a_list_has_one_id_alone(data):
    """Base64 is read past signs that are not of its alphabet; an id with some among it would be another list's name."""
    seal = ListIdSigner((), b"a long random word")
    text = seal.sign_ranking("0" * 12)
    assert seal.open(text) is not None
    place = data.draw(st.integers(0, len(text)))
    assert seal.open(text[:place] + data.draw(st.text("!*=+/ \n\té", min_size=1, max_size=3)) + text[place:]) is None
    other = data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
    changed = text[:-1] + other  # whose last bits may be beyond the last byte
    assert (seal.open(changed) is not None) == (changed == text)


def test_an_id_tells_neither_documents_nor_teams():
    seal = ListIdSigner(("a", "b"), None)

    def signed(document, team):
        return seal.sign_interleaved([(document, team)], ("0" * 12, "1" * 12))

    texts = [base64.urlsafe_b64decode(signed("document", team) + "==") for team in (0, 1)]
    assert b"document" not in texts[0]
    marks = {seal.open(signed("document", 0)).place("document") for _ in range(20)}
    assert marks == {(0, 0)}
    ends = {base64.urlsafe_b64decode(signed("d", 0) + "==")[-4:] for _ in range(30)}
    assert len(ends) == 30  # the same document, of the same team, is another mark in each list
    assert {end[-1] & 1 for end in ends} == {0, 1}


def test_documents_whose_marks_are_alike_get_others(monkeypatch):
    """Of 2³¹ marks two may be one; then the list is marked anew."""
    seal, drawn = ListIdSigner(("a", "b"), None), []
    honest = seal.mark

    def alike(word, document):
        if word not in drawn:
            drawn.append(word)
        return honest(word, "same" if word == drawn[0] else document) ^ (document == "y" and word == drawn[0])

    monkeypatch.setattr(seal, "mark", alike)
    shown = seal.open(seal.sign_interleaved([("x", 0), ("y", 1)], ("0" * 12, "1" * 12)))
    assert len(drawn) == 2
    assert (shown.place("x"), shown.place("y")) == ((0, 0), (1, 1))


def test_the_number_1_and_the_word_are_two_documents(served):
    interleaving = InterleavedModels("a", "b")
    impression, ids = made(interleaving, served, [1, "1"])
    assert set(map(type, ids)) == {int, str}
    shown = interleaving._signer.open(impression)
    assert {interleaving.model_of(shown, one) for one in (1, "1")} == {"a", "b"}


def test_long_lists_are_cut_at_a_thousand(served):
    interleaving = InterleavedModels("a", "b")
    for length, wanted in ((999, 999), (1000, 1000), (1001, 1000)):
        impression, ids = made(interleaving, served, list(range(length)), top=length)
        shown = interleaving._signer.open(impression)
        assert len(ids) == wanted
        assert {interleaving.model_of(shown, one) for one in ids} == {"a", "b"}
        assert len(impression) < 6 * wanted + 100


def test_a_secret_is_a_word_of_a_file(tmp_path):
    assert read_secret(None) is None
    (tmp_path / "s").write_text("0123456789abcdef\n")
    assert read_secret(tmp_path / "s") == "0123456789abcdef"
    (tmp_path / "s").write_text("0123456789abcde\n")
    with pytest.raises(DataError, match="a secret must be a word of at least 16"):
        read_secret(tmp_path / "s")
    with pytest.raises(FileError, match="cannot be read"):
        read_secret(tmp_path / "none")
