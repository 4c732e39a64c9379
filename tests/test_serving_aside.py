"""One request must not stop the service: what may take long works aside, waits in a queue with an end, and is timed."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from functools import partial

import numpy as np
import pytest

import toprank as tr
from services import documents, refused, rows, save_models, serving
from toprank.serving import service
from toprank.serving.logs import Log
from toprank.serving.models import LoadedModel
from toprank.serving.requests import RefusedError
from toprank.serving.settings import Limits, LogFiles
from toprank.serving.worker_pool import WorkerPool

PATIENCE = 300.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def uses_query_context(monkeypatch):
    monkeypatch.setattr(tr.LinearRanker, "uses_query_context", True)


@pytest.fixture
def where(monkeypatch):
    """The threads that scored."""
    seen, honest = [], LoadedModel.scores

    def scores(self, X):
        seen.append(threading.current_thread().name)
        return honest(self, X)

    monkeypatch.setattr(LoadedModel, "scores", scores)
    return seen


def aside(seen):
    """Whether the last scoring was made aside."""
    return seen[-1].startswith("serving")


# ---- who goes aside ----


def test_many_documents_go_aside_however_small(folder, where, tmp_path):
    with serving(folder, "linear", "other", interleave=("linear", "other"), files=LogFiles(tmp_path)) as client:
        for path in ("/v1/rank", "/v1/score", "/v1/interleave"):
            for n, wanted in ((200, False), (201, True)):
                body = {"documents": [{"id": number, "values": [0, 0, 0]} for number in range(n)]}
                assert client.post(path, json=body).status_code == 200
                assert aside(where) == wanted


def test_large_bodies_go_aside(folder, where, monkeypatch):
    body = json.dumps({"documents": documents(rows(3))})
    with serving(folder, "linear") as client:
        for limit, wanted in ((len(body), False), (len(body) - 1, True)):
            monkeypatch.setattr(service, "_LARGE", limit)
            client.post("/v1/rank", content=body, headers={"content-type": "application/json"})
            assert aside(where) == wanted


def test_models_that_see_the_set_always_go_aside(folder, where, uses_query_context, tmp_path):
    options = {"interleave": ("trees", "linear"), "files": LogFiles(tmp_path)}
    with serving(folder, "trees", "linear", "other", **options) as client:
        for model, wanted in (("trees", False), ("linear", True)):
            client.post("/v1/rank", json={"model": model, "query": 1, "documents": documents(rows(2))})
            assert aside(where) == wanted
        client.post("/v1/interleave", json={"query": 1, "documents": documents(rows(2))})  # one of the two is enough
        assert aside(where)


def test_slow_models_go_aside(folder, where, monkeypatch):
    monkeypatch.setattr("toprank.serving.models._SLOW", -1.0)
    with serving(folder, "trees") as client:
        client.post("/v1/rank", json={"documents": documents(rows(2))})
        assert aside(where)


def test_others_are_answered_while_a_large_request_is_worked_on(folder, uses_query_context, monkeypatch):
    """As 8,000 documents of one feature are by a network of attention, whose body is small."""
    begun, over, waited = threading.Event(), threading.Event(), []

    def scores(self, X):
        begun.set()
        waited.append(over.wait(PATIENCE))
        return np.zeros(len(X))

    with serving(folder, "linear") as client:
        monkeypatch.setattr(LoadedModel, "scores", scores)

        async def ask():
            large = asyncio.create_task(
                client.asynchronous("POST", "/v1/rank", json={"query": 1, "documents": documents(rows(3))})
            )
            while not begun.is_set():
                await asyncio.sleep(0.001)
            answers = [await client.asynchronous("GET", path) for path in ("/healthz", "/metrics")]
            over.set()
            return [answer.status_code for answer in (*answers, await large)]

        assert client.run(ask()) == [200, 200, 200]
    assert waited == [True]


# ---- the queue ----


def blocked(threads, count, over):
    """Tasks that work until `over`, begun on as many threads as there are; and how to wait until so many are begun."""
    begun = threading.Semaphore(0)

    def work():
        begun.release()
        over.wait(PATIENCE)
        return "done"

    return [asyncio.ensure_future(threads.run(work, PATIENCE)) for _ in range(count)], begun


@pytest.mark.parametrize(("count", "queue"), [(1, 0), (1, 1), (2, 3)])
def test_the_queue_ends_where_it_was_told_to(count, queue):
    async def ask():
        threads, over = WorkerPool(count, queue, "test"), threading.Event()
        try:
            tasks, _ = blocked(threads, count + queue, over)
            await asyncio.sleep(0)
            with pytest.raises(RefusedError, match="overloaded") as refusal:
                await threads.run(lambda: None, PATIENCE)
            assert refusal.value.status == 503
            over.set()
            assert await asyncio.gather(*tasks) == ["done"] * (count + queue)
            assert await threads.run(lambda: "again", PATIENCE) == "again"
        finally:
            over.set()
            threads.close()

    asyncio.run(ask())


def test_what_was_not_begun_in_time_is_never_done_and_leaves_its_place():
    async def ask():
        threads, over, ran = WorkerPool(1, 1, "test"), threading.Event(), []
        try:
            (first,), begun = blocked(threads, 1, over)
            await asyncio.sleep(0)
            await asyncio.to_thread(begun.acquire, timeout=PATIENCE)
            for _ in range(3):  # each takes the place of the one that gave up
                with pytest.raises(RefusedError, match=r"waited in the queue for 0\.05 s"):
                    await threads.run(partial(ran.append, 1), 0.05)
            over.set()
            await first
            await threads.run(partial(ran.append, 2), PATIENCE)
            assert ran == [2]
        finally:
            over.set()
            threads.close()

    asyncio.run(ask())


def test_what_takes_too_long_keeps_its_place_until_it_ends():
    async def ask():
        threads, over = WorkerPool(1, 0, "test"), threading.Event()
        try:
            refusal = "waited"
            while "waited" in refusal:  # where the machine is too busy to begin it in time
                with pytest.raises(RefusedError) as caught:
                    await threads.run(partial(over.wait, PATIENCE), 0.2)
                refusal = str(caught.value)
            assert refusal == "The request took longer than 0.2 s. Send fewer documents."
            with pytest.raises(RefusedError, match="overloaded"):
                await threads.run(lambda: None, PATIENCE)
            over.set()
            while True:
                try:
                    assert await threads.run(lambda: 3, PATIENCE) == 3
                    break
                except RefusedError:
                    await asyncio.sleep(0.001)
        finally:
            over.set()
            threads.close()

    asyncio.run(ask())


def test_a_failure_leaves_its_place():
    async def ask():
        threads = WorkerPool(1, 0, "test")
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await threads.run(lambda: 1 // 0, PATIENCE)
        threads.close()

    asyncio.run(ask())


def test_who_is_sent_away_is_told_when_to_come_back_and_metrics_are_told_meanwhile(
    folder, uses_query_context, monkeypatch
):
    over = threading.Event()
    with serving(folder, "linear", limits=Limits(threads=1, queue=2)) as client:
        monkeypatch.setattr(LoadedModel, "scores", lambda self, X: np.full(len(X), float(over.wait(PATIENCE))))

        async def ask():
            body = {"query": 1, "documents": documents(rows(3))}
            tasks = [asyncio.create_task(client.asynchronous("POST", "/v1/rank", json=body)) for _ in range(5)]
            gone, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            while len(gone) < 2:
                gone, _ = await asyncio.wait(tasks, timeout=0.01)
            metrics = await client.asynchronous("GET", "/metrics")
            over.set()
            return [one.result() for one in gone], await asyncio.gather(*tasks), metrics

        try:
            gone, answers, metrics = client.run(ask())
        finally:
            over.set()
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503, 503]
    for answer in gone:
        refused(answer, 503, "overloaded")
        assert answer.headers["retry-after"] == "1"
    assert metrics.status_code == 200
    assert 'toprank_requests_total{endpoint="/v1/rank",status="503"} 2.0' in metrics.text


def test_a_service_that_stops_says_when_to_come_back(folder):
    with serving(folder, "linear") as client:
        assert "retry-after" not in client.get("/readyz").headers
        client.service.draining = True
        assert client.get("/readyz").headers["retry-after"] == "1"


# ---- which request was it? ----


def test_requests_have_ids_in_answers_and_lines(folder, monkeypatch):
    written = io.StringIO()
    with serving(folder, "linear", log=Log(written)) as client:

        def ask(path="/healthz", **headers):
            return client.get(path, headers=headers).headers["x-request-id"]

        mine = "0af7651916cd43dd8448eb211c80319c/a.b:c+d=e@f_g-h"
        assert ask(**{"x-request-id": mine}) == mine
        assert ask("/nothing", **{"x-request-id": mine}) == mine  # refusals, too
        assert ask(**{"x-request-id": "x" * 128}) == "x" * 128
        strange = ["x" * 129, "", "two words", '{"a":1}', "a\tb", "é".encode()]
        made = [ask(), *(ask(**{"x-request-id": text}) for text in strange)]
        assert len(set(made)) == len(made)
        assert all(len(one) == 16 for one in made)
        monkeypatch.setattr(LoadedModel, "scores", lambda *_: 1 / 0)
        failed = client.post("/v1/rank", json={"documents": documents(rows(3))})
        assert failed.status_code == 500
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    asked = [line["request"] for line in lines if line["event"] == "request"]
    assert asked == [mine, mine, "x" * 128, *made, failed.headers["x-request-id"]]
    assert [line["request"] for line in lines if line["event"] == "failure"] == asked[-1:]


def test_a_body_whose_end_is_told_twice_is_refused_and_the_connection_closed(folder):
    with serving(folder, "linear", token="a-long-random-word") as client:
        for path in ("/v1/rank", "/healthz", "/nothing"):
            headers = {"content-type": "application/json", "content-length": "2", "transfer-encoding": "chunked"}
            answer = client.request("POST", path, content=b"{}", headers=headers)
            refused(answer, 400, "not both")
            assert answer.headers["connection"] == "close"


# ---- limits at their exact sizes ----


def test_as_many_documents_and_bytes_as_allowed_are_taken(folder):
    body = json.dumps({"documents": documents(rows(3))}).encode()
    kind = {"content-type": "application/json"}
    with serving(folder, "linear", limits=Limits(body=len(body), documents=3)) as client:
        assert client.post("/v1/rank", content=body, headers=kind).status_code == 200
        refused(client.post("/v1/rank", content=body + b" ", headers=kind), 413, "larger than")

        async def pieces(n):
            for place in range(0, len(body), 10):
                yield body[place : place + 10]
            for _ in range(n):
                yield b" "

        assert client.post("/v1/rank", content=pieces(0), headers=kind).status_code == 200
        refused(client.post("/v1/rank", content=pieces(1), headers=kind), 413, "larger than")
        four = {"documents": [{"id": number, "values": [0, 0, 0]} for number in range(4)]}
        refused(client.post("/v1/rank", json=four), 413, "4 documents, but the limit is 3")


def test_a_body_that_is_much_too_large_is_not_read_to_its_end(folder):
    """Up to eight times the limit is read and thrown away, so that the client hears why; beyond it nothing more is."""
    kind = {"content-type": "application/json"}
    with serving(folder, "linear", limits=Limits(body=100)) as client:
        for size, read in ((800, 80), (810, 81), (2000, 81)):
            taken = 0

            async def pieces(n):
                nonlocal taken
                for _ in range(n):
                    taken += 1
                    yield b" " * 10

            refused(client.post("/v1/rank", content=pieces(size // 10), headers=kind), 413, "larger than 100")
            assert taken in (read, read + 1)  # the client is one piece ahead
