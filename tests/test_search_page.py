"""The search page: its endpoints inside the service, and the page in a real browser."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import toprank as tr

pytest.importorskip("msgspec")
pytest.importorskip("uvicorn")

from browser import Browser
from test_serving_process import started
from toprank.cli.commands import app
from toprank.errors import DataError, FileError
from toprank.search import Index
from toprank.search.serving import SearchService
from toprank.serving.logs import Log
from toprank.serving.models import Models
from toprank.serving.service import Service
from toprank.serving.settings import Limits, LogFiles, ServiceOptions

WORDS = ["wing", "flow", "heat", "plate", "shock", "wave", "boundary", "layer", "pressure", "lift"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained index: the answer to a query is the document whose title has its words, though others repeat them."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("search") / "index"
    lines, queries, judged = [], {}, {}
    for number in range(120):
        title = " ".join(rng.choice(WORDS, 2, replace=False))
        body = " ".join(rng.choice(WORDS, 12)) + "."
        lines.append({"_id": f"d{number}", "title": title, "text": body})
    for number, one in enumerate(lines[:30]):
        queries[f"q{number}"] = one["title"]
        judged[f"q{number}"] = {other["_id"]: 1 for other in lines if other["title"] == one["title"]}
    lines.append(
        {
            "_id": "<i>odd</i>",
            "title": "<b>wing</b> & <img src=x onerror=alert(1)>",
            "text": "wing <script>alert(1)</script> wing 𝒳 wing",
        }
    )
    source = folder.parent / "corpus.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tr.search.index(source, folder)
    opened = tr.search.open(folder)
    opened.train(queries, judged, system="RankNet-linear")
    return folder


def asked(service, path, body, token=None):
    """Status and answer of a POST, through the ASGI door."""
    sent = []
    headers = [(b"content-type", b"application/json")]
    headers += [(b"authorization", b"Bearer " + token)] if token else []

    async def receive():
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    asyncio.run(service(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


def served(folder, **options):
    extension = SearchService(folder)
    return Service(
        Models({}, may_be_none=True), ServiceOptions(**options), extension=extension, log=Log(requests=False)
    )


@pytest.fixture(scope="module")
def service(folder):
    made = served(folder)
    yield made
    made.close()


def test_both_orders_are_those_of_the_index(service, folder):
    status, told = asked(service, "/v1/search", {"query": "wing flow", "top": 7})
    assert status == 200
    opened = tr.search.open(folder)
    learned, first = opened.search("wing flow", 7), opened.search("wing flow", 7, rerank=False)
    assert [one["id"] for one in told["ranking"]] == [hit.id for hit in learned]
    assert [one["id"] for one in told["first_stage"]] == [hit.id for hit in first]
    assert told["reranked"]
    assert told["request"] is None  # nobody keeps a log
    whole = {hit.id: hit.rank for hit in opened.search("wing flow", 200)}
    assert all(one["rank"] == whole[one["id"]] for one in told["first_stage"])
    for one, hit in zip(told["ranking"], learned, strict=True):
        assert "".join(one["passage"]) == hit.snippet.text
        assert all("wing" in piece.lower() or "flow" in piece.lower() for piece in one["passage"][1::2])


def test_why_is_the_explanation_of_the_model(service, folder):
    _, told = asked(service, "/v1/search", {"query": "shock wave"})
    a, b = (told["ranking"][place] for place in (0, 1))
    status, why = asked(service, "/v1/search/why", {"query": "shock wave", "a": a["id"], "b": b["id"]})
    assert status == 200
    assert why["total"] == pytest.approx(a["score"] - b["score"], abs=1e-9)
    assert sum(one["contribution"] for one in why["reasons"]) + why["others"] == pytest.approx(why["total"])
    meanings = tr.search.open(folder).features.descriptions
    assert all(one["meaning"] == meanings[one["feature"]] for one in why["reasons"])
    for wrong in ({"a": "nobody", "b": b["id"]}, {"a": a["id"], "b": a["id"]}):
        status, refused = asked(service, "/v1/search/why", {"query": "shock wave", **wrong})
        assert status == 422, refused


def test_documents_are_told_whole_or_cut(service, tmp_path):
    status, told = asked(service, "/v1/search/document", {"id": "<i>odd</i>"})
    assert (status, told["cut"]) == (200, False)
    assert told["fields"]["text"].endswith("𝒳 wing")
    assert asked(service, "/v1/search/document", {"id": "nobody"})[0] == 404
    tr.search.index({"long": "wing " * 50_000}, tmp_path / "index")
    other = served(tmp_path / "index")
    told = asked(other, "/v1/search/document", {"id": "long"})[1]
    assert told["cut"]
    assert sum(map(len, told["fields"].values())) <= 20_000
    other.close()


@pytest.mark.parametrize("query", ["", "   ", "wing" * 1000])
def test_queries_that_are_none_are_refused(service, query):
    assert asked(service, "/v1/search", {"query": query})[0] == 422


@pytest.mark.parametrize("query", ['"wing', "wing AND (", "NEAR(wing", "*", "風", "-", "wing\u0000", "title:wing"])
def test_nothing_in_a_query_is_syntax(service, query):
    status, told = asked(service, "/v1/search", {"query": query})
    assert status == 200
    assert told["ranking"] or told["note"]


def test_it_has_the_limits_and_the_token_of_the_service(folder):
    service = served(folder, token="secret", limits=Limits(body=1000))
    assert asked(service, "/v1/search", {"query": "wing"})[0] == 401
    assert asked(service, "/v1/search", {"query": "wing"}, b"secret")[0] == 200
    assert asked(service, "/v1/search", {"query": "wing " * 300}, b"secret")[0] == 413
    assert asked(service, "/v1/rank", {"documents": []}, b"secret")[0] == 404  # no model for rows of a request
    service.close()


def test_what_is_opened_and_judged_is_a_log_to_train_on(folder, tmp_path, monkeypatch):
    service = served(folder, files=LogFiles(tmp_path / "log"), secret="shared word")
    for words in (f"{a} {b}" for a in WORDS for b in WORDS if a < b):
        _, told = asked(service, "/v1/search", {"query": words})
        best = told["ranking"][0]["id"]
        events = [{"kind": "click", "document": best}, {"kind": "like", "document": best}]
        status, counted = asked(service, "/v1/events", {"request": told["request"], "events": events})
        assert (status, counted["counted"]) == (200, 2)
    forged = {"request": "x" * 60, "events": events}
    assert asked(service, "/v1/events", forged)[0] == 404
    service.close()
    log = tr.clicks.read(tmp_path / "log")
    assert log.n_sessions == log.clicks.sum() == len(WORDS) * (len(WORDS) - 1) // 2
    opened = tr.search.open(folder)
    shown = opened.search("flow wing")
    of = list(log.qids).index("flow wing")
    listed = [log.document_ids[pair] for pair in log.pair if log.pair_query[pair] == of]
    assert listed == [hit.id for hit in shown]
    taught = []

    def seen(index, log, queries, **options):
        taught.append((options["reward"], set(log.columns.get("value", [None]))))
        raise DataError("enough")

    monkeypatch.setattr(tr.search.Index, "train_on_clicks", seen)
    given = ("search", "train", str(folder), "--clicks", str(tmp_path / "log"))
    for values in ((), ("--values", "click=1,like=2")):
        CliRunner().invoke(app, [*given, *values])
    assert taught == [("click", {None}), ("value", {0.0, 3.0})]
    done = CliRunner().invoke(app, [*given[:3], "--values", "like=2"])
    assert (done.exit_code, "Pass the log with --clicks" in done.stderr) == (2, True)


def test_exploring_exchanges_two_neighbors_and_says_how_likely_that_was(folder, tmp_path):
    service = served(folder, files=LogFiles(tmp_path / "log"), explore="swap-neighbors:0.5:3", secret="shared word")
    plain = [hit.id for hit in tr.search.open(folder).search("flow wing")]
    seen = set()
    for _ in range(40):
        ranking = asked(service, "/v1/search", {"query": "flow wing"})[1]["ranking"]
        assert [one["rank"] for one in ranking] == list(range(1, len(ranking) + 1))
        seen.add(tuple(one["id"] for one in ranking))
    service.close()
    a, b, c, *rest = plain
    assert seen == {(a, b, c, *rest), (b, a, c, *rest), (a, c, b, *rest)}
    log = tr.clicks.read(tmp_path / "log")
    assert set(np.unique(log.columns["propensity"])) == {0.25, 0.5}


def test_an_index_that_is_made_anew_is_opened_and_a_damaged_one_is_not(tmp_path):
    tr.search.index({"a": "wing", "b": "heat"}, tmp_path / "index")
    service = served(tmp_path / "index")
    tr.search.index({"a": "wing", "c": "heat"}, tmp_path / "index")
    asyncio.run(service.reload())
    assert [one["id"] for one in asked(service, "/v1/search", {"query": "heat"})[1]["ranking"]] == ["c"]
    (tmp_path / "index" / "index.json").write_text("{")
    asyncio.run(service.reload())
    assert asked(service, "/v1/search", {"query": "heat"})[0] == 200
    service.close()


def test_a_model_that_is_replaced_while_it_is_opened_is_not_served_under_the_version_of_the_next(
    folder, tmp_path, monkeypatch
):
    copied, pin = shutil.copytree(folder, tmp_path / "index"), Index.pin_model

    def pinned(index):
        pin(index)
        model = index.path / "model.toprank"
        model.write_bytes(model.read_bytes())

    SearchService(copied)
    monkeypatch.setattr(Index, "pin_model", pinned)
    with pytest.raises(FileError, match="was replaced while it was being opened"):
        SearchService(copied)


def test_the_openapi_document_has_the_endpoints(service):
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(service({"type": "http", "method": "GET", "path": "/openapi.json", "headers": []}, None, send))
    paths = json.loads(sent[1]["body"])["paths"]
    assert {"/v1/search", "/v1/search/why", "/v1/search/document", "/v1/search/about", "/v1/events"} <= set(paths)


# ---- in a browser ----


def until(page, condition):
    """Wait until something holds on the page, for two minutes at most."""
    page.run(
        "new Promise((done, failed) => { const end = Date.now() + 120000; const look = () => "
        f"({condition}) ? done() : Date.now() > end ? failed({json.dumps(condition)}) : setTimeout(look, 20);"
        " look(); })"
    )


def test_the_page_by_keyboard_on_a_phone_escapes_everything(folder, tmp_path):
    with started(folder, "--log", tmp_path / "log", command=("search", "serve")) as process, Browser() as browser:
        page = browser.open(f"http://127.0.0.1:{process.address[1]}/", width=400)
        until(page, "document.getElementById('about').textContent")
        assert page.run("document.activeElement.id") == "query"
        page.type("wing")
        page.press("Enter", text="\r")
        until(page, "document.querySelectorAll('#learned li').length == 10")
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        assert page.run("location.search") == "?q=wing"
        page.run("search('<img src=x onerror=alert(1)> script alert')")
        until(page, "document.querySelector('#learned .title')?.textContent.includes('onerror')")
        assert page.run("document.querySelectorAll('main img, main b, main i, main script').length") == 0
        page.press("Tab")
        page.press("Tab")
        until(page, "document.activeElement.className == 'title'")
        page.press("Enter", text="\r")
        until(page, "document.getElementById('document').open")
        assert "<script>" in page.run("document.getElementById('document-text').textContent")
        page.press("Escape")
        until(page, "!document.getElementById('document').open")
        page.press("Tab")
        page.press("Enter", text="\r")
        until(page, "document.querySelector('button[aria-pressed=true]')")
        page.run("search('wing flow')")
        until(page, "document.querySelectorAll('#learned li').length == 10")
        page.run("[...document.querySelectorAll('.tools button')].find(b => b.textContent.startsWith('Why')).click()")
        until(page, "document.querySelector('.why .bar')")
        page.press("/")
        assert page.run("document.activeElement.id") == "query"
        page.run("search('qqqq zzzz')")
        until(page, "document.getElementById('message').textContent.includes('No document contains a word')")
        assert page.complaints() == []
        assert process.stop() == 0
    log = tr.clicks.read(tmp_path / "log")
    assert log.clicks.sum() == 1


def test_why_any_two_and_a_thumb_that_is_changed(service, folder, tmp_path):
    """On a phone: reasons are legible beside their bars, for any two documents; the later thumb is the one shown."""
    with started(folder, "--log", tmp_path / "log", command=("search", "serve")) as process, Browser() as browser:
        page = browser.open(f"http://127.0.0.1:{process.address[1]}/", width=360)
        until(page, "document.getElementById('about').textContent")
        page.run("search('wing flow')")
        until(page, "document.querySelectorAll('#learned li').length == 10")
        assert page.run("document.getElementById('about').textContent").count("RankNet-linear reranks them") == 1
        page.run("document.querySelector('#learned [aria-expanded]').click()")
        until(page, "document.querySelector('.why .bar')")
        assert page.run("document.querySelector('.why p').textContent").startswith(
            page.run("document.querySelector('#learned .title').textContent") + " is ranked above "
        )
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        widths = "Math.min(...[...document.querySelectorAll('.why %s')].map(e => e.getBoundingClientRect().width))"
        assert page.run(widths % "th") > 100
        assert page.run("[...document.querySelectorAll('.why small')].every(e => e.textContent.length > 10)")
        assert page.run(widths % ".drawn") > 90
        total = "document.querySelector('.why .sum .number').textContent"
        parts = "[...document.querySelectorAll('.why tr:not(.sum) .number')].map(e => +e.textContent.replace('−', '-'))"
        for other in (1, 2):  # the next, then the one after it
            why = asked(service, "/v1/search/why", {
                "query": "wing flow",
                **{name: page.run(f"shown.ranking[{place}].id") for name, place in (("a", 0), ("b", other))},
            })[1]  # fmt: skip
            until(page, f"Math.abs(+{total}.replace('−', '-') - {why['total']}) < 0.006")
            assert sum(page.run(parts)) == pytest.approx(why["total"], abs=0.05)
            page.run(
                "(choice => { choice.value = shown.ranking[2].id; choice.dispatchEvent(new Event('change')); })"
                "(document.querySelector('.why select'))"
            )
        for name in ("Good", "Bad", "Bad"):
            page.run(f"[...document.querySelectorAll('.tools button')].find(b => b.textContent == '{name}').click()")
            until(page, f"document.querySelector('.tools [aria-pressed=true]')?.textContent == '{name}'")
        assert page.run("document.querySelectorAll('.tools [aria-pressed=true]').length") == 1
        assert page.run("[...document.querySelectorAll('.title, .passage, #query')].every(e => e.dir == 'auto')")
        assert page.complaints() == []
        page.run("shown.request = 'x'.repeat(60); document.querySelector('.tools button').click()")
        until(page, "document.querySelector('.wrong')?.textContent.includes('search again')")
        assert process.stop() == 0
        page.run("search('heat')")
        until(page, "document.querySelector('.wrong')?.textContent.includes('does not answer')")
    log = tr.clicks.read(tmp_path / "log", values="like=1,dislike=-2")
    assert sorted(set(log.columns["value"].tolist())) == [-1.0, 0.0]


def test_the_page_asks_for_the_token_and_follows_what_is_trained(tmp_path):
    index = tr.search.index({f"d{i}": f"{WORDS[i % 10]} {WORDS[i % 7]} wing" for i in range(20)}, tmp_path / "index")
    (tmp_path / "token").write_text("a word of nobody".replace(" ", "-"))
    (tmp_path / "token").chmod(0o600)
    given = ("--token-file", tmp_path / "token")
    with started(index.path, *given, command=("search", "serve")) as process, Browser() as browser:
        page = browser.open(f"http://127.0.0.1:{process.address[1]}/", width=400)
        for words, said in (("", "those who give its token"), ("wrong", "does not take this token")):
            page.type(words)
            if words:
                page.press("Enter", text="\r")
            until(page, f"document.getElementById('message').textContent.includes('{said}')")
            assert page.run("document.activeElement.id") == "token"
        page.type("a-word-of-nobody")  # in the place of the wrong one, which is selected
        page.press("Enter", text="\r")
        until(page, "document.activeElement.id == 'query'")
        assert page.run("document.getElementById('access').hidden")
        page.run("search('wing')")
        until(page, "document.getElementById('about').textContent.includes('no model is trained yet')")
        index.train(
            {str(i): f"wing {WORDS[i]}" for i in range(6)}, {str(i): {f"d{i}": 1} for i in range(6)}, "RankNet-linear"
        )
        page.run(
            "(async () => { while (!trained) { await search('wing', true);"
            " await new Promise(done => setTimeout(done, 100)); } })()"
        )
        until(page, "document.getElementById('about').textContent.includes('RankNet-linear reranks them')")
        assert process.stop() == 0


def test_the_command_refuses_what_is_no_index(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "toprank", "search", "serve", str(tmp_path), "--port", "0"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "is not a search index" in done.stderr
    assert "Traceback" not in done.stderr
