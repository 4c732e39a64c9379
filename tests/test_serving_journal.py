"""The journal of a service: whole lines whatever happens, bounds that hold, ids nobody can write; trials on users."""

from __future__ import annotations

import contextlib
import errno
import http.client
import io
import itertools
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

import toprank as tr
from services import counted, documents, refused, rows, save_models, serving, until
from toprank.clicks.contexts import contexts_of
from toprank.errors import DataError, UnknownNameError
from toprank.serving import event_log as journal_module
from toprank.serving import experiments as trials_module
from toprank.serving import recorder as recording_module
from toprank.serving import service as service_module
from toprank.serving.counters import Counters
from toprank.serving.event_log import EventLog, ShownAttributes, ShownList
from toprank.serving.experiments import Exploration, TrafficSplit
from toprank.serving.impressions import ListIdSigner, name_of
from toprank.serving.logs import Log
from toprank.serving.settings import LogFiles

SECRET = "a long random word"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


def kept(where, kind="queries"):
    """The records of a folder, whatever process wrote them."""
    lines = [line for path in sorted(where.glob(f"{kind}-*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def ask(client, n=5, **more):
    return client.post("/v1/rank", json={"query": "q", "documents": documents(rows(n)), **more}).json()


def tell(client, request, *events):
    return client.post("/v1/events", json={"request": request, "events": list(events)})


def click(document, **more):
    return {"kind": "click", "document": document, **more}


# ---- what is written ----


def test_lists_and_events_are_written_as_they_were_served(folder, tmp_path):
    with serving(folder, "linear", files=LogFiles(tmp_path / "log"), secret=SECRET) as client:
        told = ask(client, top=3, key="someone")
        ids = [one["id"] for one in told["ranking"]]
        more = {"kind": "purchase", "document": ids[1], "value": 12.5, "id": "order 7"}
        assert tell(client, told["request"], click(ids[0]), more).json() == {"counted": 2, "again": 0}
        assert client.post("/v1/score", json={"documents": documents(rows(2))}).json().keys() == {
            "model", "version", "scores",
        }  # fmt: skip
        assert "request" not in client.post("/v1/rank", json={"documents": []}).json()
    (shown,), done = kept(tmp_path / "log"), kept(tmp_path / "log", "events")
    assert (shown["application"], shown["user_query"], shown["query_response_hit_ids"]) == ("toprank", "q", ids)
    assert shown["query_attributes"] == {
        "model": "linear", "version": told["version"], "scores": [one["score"] for one in told["ranking"]],
    }  # fmt: skip
    assert abs(shown["timestamp"] / 1000 - time.time()) < 60
    assert shown["client_id"] == ListIdSigner((), SECRET.encode()).hash_key("someone")
    assert {one["query_id"] for one in (shown, *done)} == {told["request"][:16]}
    assert [(one["action_name"], one["event_attributes"]) for one in done] == [
        ("click", {"object": {"object_id": ids[0]}}),
        ("purchase", {"object": {"object_id": ids[1]}, "value": 12.5, "event_id": "order 7"}),
    ]
    for path in (tmp_path / "log").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700


def test_without_a_log_answers_are_what_they_were(folder):
    with serving(folder, "linear") as client:
        assert ask(client).keys() == {"model", "version", "ranking"}
        refused(tell(client, "x", click("d0")), 404, "has no event log")


def test_features_are_written_where_asked_for_in_the_order_shown(folder, tmp_path):
    X = rows(6)
    with serving(folder, "linear", files=LogFiles(tmp_path, features=True)) as client:
        told = client.post("/v1/rank", json={"query": 1, "documents": documents(X), "top": 4}).json()
    (shown,) = kept(tmp_path)
    order = [int(one["id"][1:]) for one in told["ranking"]]
    features = shown["query_attributes"]["features"]
    assert list(features) == ["price", "age", "bm25"]
    np.testing.assert_array_equal(np.array(list(features.values()), dtype=float).T, X[order])


def test_interleaved_lists_are_written_with_teams_and_their_clicks(folder, tmp_path):
    options = {"interleave": ("linear", "other"), "secret": SECRET, "files": LogFiles(tmp_path)}
    with serving(folder, "linear", "other", **options) as client:
        told = client.post("/v1/interleave", json={"query": "q", "documents": documents(rows(6)), "top": 4}).json()
        ids = [one["id"] for one in told["ranking"]]
        assert tell(client, told["impression"], click(ids[0])).json() == {"counted": 1, "again": 0}
        assert tell(client, told["impression"], *map(click, ids[:2])).json() == {"counted": 1, "again": 1}
        refused(tell(client, told["impression"], click("x")), 422, "not in this list")
        assert sum(value for key, value in counted(client).items() if "interleaved_clicks_total" in key) == 2
    (shown,) = kept(tmp_path)
    teams = shown["query_attributes"]["teams"]
    assert sorted(teams) == ["linear", "linear", "other", "other"]
    opened = ListIdSigner(("linear", "other"), SECRET.encode()).open(told["impression"])
    assert [("linear", "other")[opened.place(one)[1]] for one in ids] == teams
    assert [one["event_attributes"]["object"]["object_id"] for one in kept(tmp_path, "events")] == ids[:2]


def test_device_and_surface_are_written_by_both_endpoints_and_read_as_contexts(folder, tmp_path):
    options = {"interleave": ("linear", "other"), "secret": SECRET, "files": LogFiles(tmp_path)}
    with serving(folder, "linear", "other", **options) as client:
        for device in ("phone", "desktop"):
            ask(client, device=device, surface="app")
        asked = {"query": "q", "documents": documents(rows(3)), "device": "phone", "surface": "web"}
        client.post("/v1/interleave", json=asked)
        for wrong in ("", 7, "x" * 65):
            refused(client.post("/v1/rank", json={**asked, "device": wrong}), 422, "device")
    log = tr.clicks.read(tmp_path, metadata="device")
    first = log.offsets[:-1]
    told = Counter(zip(log.columns["device"][first].tolist(), log.columns["surface"][first].tolist(), strict=True))
    assert told == {("phone", "app"): 1, ("desktop", "app"): 1, ("phone", "web"): 1}
    for place in (tmp_path, tmp_path / "without"):
        with serving(folder, "linear", files=LogFiles(place)) as client:
            ask(client)
    with pytest.raises(DataError, match="have no device"):
        contexts_of(tr.clicks.read(tmp_path), "device")
    with pytest.raises(DataError, match="No list of the log has a device"):
        tr.clicks.read(tmp_path / "without", metadata=["device"])
    with pytest.raises(UnknownNameError, match="column of the log called 'devise'; did you mean 'device'"):
        tr.clicks.read(tmp_path, metadata=["devise"])


# ---- events ----


def test_clicks_before_the_one_that_found_no_room_are_counted_once_when_they_are_sent_again(
    folder, tmp_path, monkeypatch
):
    options = {"interleave": ("linear", "other"), "secret": SECRET, "files": LogFiles(tmp_path)}
    with serving(folder, "linear", "other", **options) as client:
        told = client.post("/v1/interleave", json={"query": "q", "documents": documents(rows(6))}).json()
        events = [click(one["id"]) for one in told["ranking"][:2]]
        honest, room = EventLog.add_event, iter([True, False])
        monkeypatch.setattr(EventLog, "add_event", lambda self, one: next(room) and honest(self, one))
        refused(tell(client, told["impression"], *events), 503, "Send the events again")
        monkeypatch.undo()
        assert tell(client, told["impression"], *events).json() == {"counted": 1, "again": 1}
        assert sum(value for key, value in counted(client).items() if "interleaved_clicks_total" in key) == 1


def test_events_that_come_again_late_or_forged_are_refused_and_counted(folder, tmp_path, monkeypatch):
    with serving(folder, "linear", files=LogFiles(tmp_path), secret=SECRET, max_event_age_days=1) as client:
        request = ask(client)["request"]
        assert tell(client, request, click("d1"), click("d1"), click("d2")).json() == {"counted": 2, "again": 1}
        assert tell(client, request, click("d1")).json() == {"counted": 0, "again": 1}
        twice = [{"kind": "purchase", "document": "d1", "value": 2, "id": one} for one in ("a", "b", "a")]
        assert tell(client, request, *twice).json() == {"counted": 2, "again": 1}
        forged = request[:-1] + ("A" if request[-1] != "A" else "Q")
        refused(tell(client, forged, click("d1")), 404, "another secret")
        refused(
            tell(client, ListIdSigner((), b"another word").sign_ranking("0" * 12), click("d1")), 404, "another secret"
        )
        refused(tell(client, request[:16], click("d1")), 404, "another secret")  # what the log calls it opens nothing
        honest = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: honest() + 2 * 86_400 * 10**9)
        refused(tell(client, request, click("d3")), 404, "older than 1 days")
        monkeypatch.undo()
        numbers = counted(client)
    outcomes = Counter()
    for key, value in numbers.items():
        if key.startswith("toprank_events_total"):
            outcomes[key.split('outcome="')[1].split('"')[0]] += value
    assert outcomes == {"counted": 4, "again": 3, "forged": 3, "late": 1}
    assert len(kept(tmp_path, "events")) == 4


@pytest.mark.parametrize("replicas", [1, 2])
def test_documents_of_one_order_count_each_whatever_replica_takes_them(folder, tmp_path, replicas):
    """An id tells events of one list, kind and document apart; the revenue is the sum over documents."""
    prices = {"d0": 10.0, "d1": 20.0, "d2": 70.0}
    bought = [{"kind": "purchase", "document": one, "value": prices[one], "id": "order 7"} for one in prices]
    back = {"kind": "return", "document": "d1", "value": 20.0, "id": "order 7"}
    files = LogFiles(tmp_path)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(serving(folder, "linear", files=files, secret=SECRET)) for _ in range(replicas)]
        request = ask(clients[0])["request"]
        for number, event in enumerate([*bought, back]):
            assert tell(clients[number % replicas], request, event).json() == {"counted": 1, "again": 0}
        assert tell(clients[0], request, bought[0]).json() == {"counted": 0, "again": 1}
        assert tell(clients[-1], request, {**bought[0], "id": "order 8"}).json() == {"counted": 1, "again": 0}
    log = tr.clicks.read(tmp_path)
    worth = dict(zip(log.document_ids[log.pair].tolist(), log.rewards("value").tolist(), strict=True))
    assert {one: worth[one] for one in prices} == {"d0": 20.0, "d1": 0.0, "d2": 70.0}


def test_events_with_values_that_are_none_are_refused(folder, tmp_path):
    with serving(folder, "linear", files=LogFiles(tmp_path)) as client:
        request = ask(client)["request"]
        for event, words in (
            (click("d1", value=1), "A click must have no value"),
            ({"kind": "purchase", "document": "d1"}, "A purchase must have a value"),
            ({"kind": "purchase", "document": "d1", "value": "much"}, "expected float"),
            ({"kind": "purchase", "document": "d1", "value": -1}, ">= 0"),
            ({"kind": "kiss", "document": "d1"}, "invalid enum value"),
        ):
            refused(tell(client, request, event), 422, words)
        infinite = b'{"request": "x", "events": [{"kind": "dwell", "document": "d", "value": NaN}]}'
        refused(client.post("/v1/events", content=infinite, headers={"content-type": "application/json"}), 400, "NaN")
        refused(tell(client, request, *[click("d1")] * 1001), 422, "1000")
    assert not kept(tmp_path, "events")


def test_any_replica_with_the_secret_takes_events_and_they_need_the_token(folder, tmp_path):
    with (
        serving(folder, "linear", files=LogFiles(tmp_path), secret=SECRET) as one,
        serving(folder, "linear", files=LogFiles(tmp_path), secret=SECRET, token="t" * 20) as two,
    ):
        request = ask(one)["request"]
        refused(tell(two, request, click("d1")), 401, "token")
        body = {"request": request, "events": [click("d1")]}
        answer = two.post("/v1/events", json=body, headers={"Authorization": "Bearer " + "t" * 20})
        assert answer.json() == {"counted": 1, "again": 0}
    assert kept(tmp_path, "events")[0]["query_id"] == kept(tmp_path)[0]["query_id"]


def test_without_a_secret_ids_of_lists_hold_for_one_process_which_is_said(folder, tmp_path):
    written = io.StringIO()
    with serving(folder, "linear", files=LogFiles(tmp_path), log=Log(written)) as one:
        request = ask(one)["request"]
    assert "this process only" in written.getvalue()
    with serving(folder, "linear", files=LogFiles(tmp_path)) as two:
        refused(tell(two, request, click("d1")), 404, "another secret")


# ---- the disk, and bounds ----


def record(n=3, name="x" * 16):
    return ShownList(name, 0, "q", [f"d{number}" for number in range(n)], ShownAttributes("m", "v"))


@contextlib.contextmanager
def journal(where, **options):
    counters, lines = Counters(), []
    made = EventLog(LogFiles(where, **options), counters, lambda event, **told: lines.append((event, told)))
    made.counters, made.lines = counters, lines
    try:
        yield made
    finally:
        made.close()


def number(counters, name, **labels):
    wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
    lines = (line for line in counters.text().decode().splitlines() if line[0] != "#")
    told = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    return told.get(f"toprank_{name}_total{{{wanted}}}", 0.0)


def test_a_full_disk_loses_records_but_no_request_and_leaves_whole_lines(folder, tmp_path, monkeypatch):
    honest, full = os.write, threading.Event()

    def write(descriptor, text):
        if full.is_set() and len(text) > 100:
            honest(descriptor, bytes(text)[:70])  # some of it fits
            raise OSError(errno.ENOSPC, "No space left on device")
        return honest(descriptor, text)

    monkeypatch.setattr(journal_module.os, "write", write)
    written = io.StringIO()
    with serving(folder, "linear", files=LogFiles(tmp_path), log=Log(written)) as client:
        before = ask(client)["request"]
        until(lambda: len(kept(tmp_path)) == 1)
        full.set()
        lost = ask(client)["request"]
        until(lambda: counted(client).get('toprank_log_dropped_total{kind="queries",reason="disk"}') == 1)
        full.clear()
        after = ask(client)["request"]
        until(lambda: len(kept(tmp_path)) == 2)
    assert [one["query_id"] for one in kept(tmp_path)] == [name_of(before), name_of(after)]
    assert lost
    assert "No space left on device" in written.getvalue()


def test_what_finds_no_room_in_the_queue_is_counted_and_nobody_waits(tmp_path, monkeypatch):
    held = threading.Event()
    honest = os.write
    monkeypatch.setattr(journal_module.os, "write", lambda *given: (held.wait(60), honest(*given))[1])
    monkeypatch.setattr(journal_module, "_WAITING", 2_000)
    with journal(tmp_path) as made:
        start = time.perf_counter()
        taken = [made.add_list(record(9)) for _ in range(50)]
        assert time.perf_counter() - start < 5
        fits = 2_000 // len(journal_module._encode(record(9)))
        assert 5 < fits < 40
        assert taken == [True] * sum(taken) + [False] * (50 - sum(taken))
        assert abs(sum(taken) - fits) <= 1
        assert number(made.counters, "log_dropped", kind="queries", reason="queue") == 50 - sum(taken)
        held.set()
    assert len(kept(tmp_path)) == sum(taken)


def test_a_list_longer_than_the_queue_is_taken_where_nothing_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "_WAITING", 5)
    with journal(tmp_path) as made:
        assert made.add_list(record(100))
    assert len(kept(tmp_path)) == 1


def test_threads_together_put_no_more_into_the_queue_than_it_holds(tmp_path, monkeypatch):
    """A service's threads write, too: each stops a while between every two lines of what adds a record."""
    held, honest = threading.Event(), os.write
    monkeypatch.setattr(journal_module.os, "write", lambda *given: (held.wait(60), honest(*given))[1])
    seal, taken, line = ListIdSigner((), b"a long random word"), [], len(journal_module._encode(record(3))) + 30
    monkeypatch.setattr(journal_module, "_WAITING", 5 * line)

    def slowly(frame, event, _):
        if frame.f_code is EventLog._add.__code__:
            time.sleep(0.002)
            return slowly
        return None

    with journal(tmp_path) as made:
        threads = [
            threading.Thread(target=lambda: taken.append(made.add_list(record(3, seal.sign_ranking("0" * 12)[:16]))))
            for _ in range(30)
        ]
        threading.settrace(slowly)
        try:
            for one in threads:
                one.start()
        finally:
            threading.settrace(None)
        for one in threads:
            one.join()
        assert 1 <= sum(taken) <= 6  # five, and what the writer took out before
        assert number(made.counters, "log_dropped", kind="queries", reason="queue") == 30 - sum(taken)
        held.set()
    assert made._size == 0
    assert len({one["query_id"] for one in kept(tmp_path)}) == sum(taken)


def size_of(path):
    """Of a file that the journal may remove this very moment."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_files_are_rotated_and_the_oldest_go_when_they_are_too_old_or_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "_LOOK", 0.0)
    stranger = tmp_path / "mine.jsonl"
    stranger.write_text("{}\n")
    old = tmp_path / "queries-20200101T000000-00000000-1.jsonl"
    old.write_text("{}\n")
    os.utime(old, (0, 0))
    seen = set()
    with journal(tmp_path, days=1, bytes=2 << 20) as made:
        for _ in range(30):
            for _ in range(50):
                made.add_list(record(500))
            until(lambda: not made._waiting)
            files = list(tmp_path.glob("queries-*.jsonl"))
            seen |= set(files)
            assert sum(map(size_of, files)) <= (2 << 20) + 2 * (1 << 20)
        until(lambda: made._size == 0)
    assert stranger.exists()
    assert not old.exists()
    sizes = [path.stat().st_size for path in tmp_path.glob("queries-*.jsonl")]
    assert len(seen) > len(sizes) > 1
    assert max(sizes) <= 1 << 20
    assert number(made.counters, "log_records", kind="queries") == 1500


def test_all_files_together_stay_below_the_limit_however_fast_lines_come(tmp_path, monkeypatch):
    """Also between two looks at what is too old; another process has left files, too."""
    limit, line = 10_000_000, len(journal_module._encode(record(500))) + 1
    for place in range(3):
        other = tmp_path / f"events-20200101T000000-00000000-{place}.jsonl"
        other.write_bytes(b"{}\n" * 1_000_000)
        os.utime(other, (time.time() - 3_600 + place,) * 2)
    largest, append = 0, journal_module._File.append

    def measured(self, text):
        nonlocal largest
        append(self, text)
        largest = max(largest, sum(size_of(path) for path in tmp_path.glob("*.jsonl")))

    monkeypatch.setattr(journal_module._File, "append", measured)
    n = 4 * limit // line
    with journal(tmp_path, bytes=limit) as made:
        for _ in range(n):
            assert made.add_list(record(500))
    assert number(made.counters, "log_records", kind="queries") == n
    assert limit / 2 < largest <= limit
    assert not other.exists()


def test_what_is_written_after_its_file_was_removed_is_written_to_another(tmp_path):
    with journal(tmp_path) as made:
        for name in ("first", "second"):
            made.add_list(record(3, name))
            until(lambda: made._size == 0)
            (file,) = tmp_path.glob("queries-*.jsonl")
            assert json.loads(file.read_text())["query_id"] == name
            file.unlink()


def test_a_folder_that_cannot_be_written_to_is_said_at_the_start(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DataError, match="log cannot be written to"),
        serving(folder, "linear", files=LogFiles(tmp_path / "file" / "log")),
    ):
        pass


def test_kill_loses_the_last_second_at_most_and_no_line_is_torn(folder, tmp_path):
    """Requests are sent without a pause until the process is killed: what was answered a second before is there."""
    command = [sys.executable, "-m", "toprank", "serve", str(folder / "linear.toprank"), "--port", "0", "-q"]
    opened = contextlib.ExitStack()
    process = opened.enter_context(
        subprocess.Popen([*command, "--log", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    )
    try:
        line = next(json.loads(line) for line in process.stderr if '"ready"' in line)
        port = int(line["url"].rpartition(":")[2])
        body = json.dumps({"query": "q", "documents": documents(rows(50))})
        answered, connection = (
            [],
            opened.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", port))),
        )
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            connection.request("POST", "/v1/rank", body, {"Content-Type": "application/json"})
            answered.append((time.monotonic(), json.loads(connection.getresponse().read())["request"]))
    finally:
        process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        process.wait()
        opened.close()
    found = {one["query_id"] for one in kept(tmp_path)}
    early = [name_of(request) for when, request in answered if when < killed - 1]
    assert len(early) > 20
    assert set(early) <= found


# ---- trials ----


def test_exploring_swaps_neighbors_as_often_as_told_and_says_how_likely_each_list_was(folder, tmp_path, monkeypatch):
    n, share = 2000, 0.3
    monkeypatch.setattr(service_module, "Exploration", partial(Exploration, rng=random.Random(0)))
    X = rows(5)
    with serving(folder, "linear", files=LogFiles(tmp_path), explore=f"swap-neighbors:{share}:4") as client:
        told = [client.post("/v1/rank", json={"query": "q", "documents": documents(X)}).json() for _ in range(n)]
        refused(client.post("/v1/rank", json={"documents": documents(X), "top": 0}), 422, "top")
    usual = Counter(tuple(one["id"] for one in each["ranking"]) for each in told).most_common(1)[0][0]
    shown = kept(tmp_path)
    lists = Counter(tuple(one["query_response_hit_ids"]) for one in shown)
    assert [one["query_response_hit_ids"] for one in shown] == [[d["id"] for d in each["ranking"]] for each in told]
    swapped = [[*usual[:k], usual[k + 1], usual[k], *usual[k + 2 :]] for k in range(3)]
    assert set(lists) == {usual, *map(tuple, swapped)}
    for each in swapped:  # three neighbors among the first four
        assert 1e-4 < binom.cdf(lists[tuple(each)], n, share / 3) < 1 - 1e-4
    for one in shown:
        plain = tuple(one["query_response_hit_ids"]) == usual
        attributes = one["query_attributes"]
        assert attributes.get("explored", False) != plain
        assert attributes["propensity"] == pytest.approx(1 - share if plain else share / 3)
    assert [one["rank"] for one in told[0]["ranking"]] == [1, 2, 3, 4, 5]


def test_short_lists_are_not_swapped():
    exploration = Exploration("swap-neighbors:1", random.Random(0))
    assert {exploration.draw(n) for n in (0, 1)} == {(None, 1.0)}
    assert exploration.draw(2) == (0, 1.0)


@pytest.mark.parametrize("told", ["swap-neighbors", "swap-neighbors:0", "swap-neighbors:1.5", "shuffle:0.1",
                                  "swap-neighbors:0.1:1", "swap-neighbors:0.1:3:4", "swap-neighbors:x"])  # fmt: skip
def test_ways_to_explore_that_are_none_are_refused(told):
    with pytest.raises(DataError, match=r"is not an exploration method\. Give swap-neighbors:SHARE"):
        Exploration(told)


def test_a_split_gives_each_key_one_model_in_all_replicas_and_as_many_as_told(folder, tmp_path):
    options = {"files": LogFiles(tmp_path), "split": ["other=20"], "secret": SECRET}
    with serving(folder, "linear", "other", **options) as one, serving(folder, "linear", "other", **options) as two:
        for key in range(200):
            first, second = (ask(client, key=key)["model"] for client in (one, two))
            assert first == second == TrafficSplit("linear", ["other=20"]).arm(key).model
        assert ask(one)["model"] == "linear"  # without a key
        assert ask(one, model="other", key=1)["model"] == "other"  # asked for by name: in no arm
        assert (
            sum(value for key, value in counted(one).items() if key.startswith("toprank_split_requests_total")) == 200
        )
    arms = Counter()
    for shown in kept(tmp_path):
        attributes = shown["query_attributes"]
        if "arm" in attributes:
            assert attributes["model"] == attributes["arm"]
            assert attributes["share"] == pytest.approx({"linear": 0.8, "other": 0.2}[attributes["arm"]])
            assert len(shown["client_id"]) == 16
            arms[attributes["arm"]] += 1
    assert sum(arms.values()) == 400


def test_shares_of_a_split_are_kept_and_who_had_a_model_keeps_it_when_more_get_it():
    few, more = TrafficSplit("old", ["new=5", "third=10"]), TrafficSplit("old", ["new=20", "third=10"])
    n = 20_000
    arms = Counter(few.arm(key).model for key in range(n))
    for name, share in (("new", 0.05), ("third", 0.1), ("old", 0.85)):
        assert 1e-4 < binom.cdf(arms[name], n, share) < 1 - 1e-4
    assert all(more.arm(key).model == "new" for key in range(n) if few.arm(key).model == "new")
    assert all(TrafficSplit("old", ["new=100"]).arm(key).model == "new" for key in range(100))


def arms_of(texts, n=10_000):
    split = TrafficSplit("old", texts)
    return np.array([split.arm(f"user {key}").model for key in range(n)])


@pytest.mark.parametrize("texts", [["a=20", "b=30", "c=10"], ["a=60", "b=1"], ["a=33.3", "b=33.3", "c=33.4"]])
def test_the_order_of_the_options_moves_no_key(texts):
    for order in itertools.permutations(texts):
        np.testing.assert_array_equal(arms_of(order), arms_of(texts))


@pytest.mark.parametrize(
    ("before", "after"),
    [(["a=10", "b=10"], ["a=20", "b=10"]), (["a=10", "b=10"], ["a=10", "b=20"]), (["a=60", "b=15"], ["a=85", "b=15"]),
     (["new=1"], ["new=100"]), (["a=10", "b=20", "c=30"], ["a=33", "b=20", "c=30"]),
     (["a=10", "b=45", "c=15"], ["a=10", "b=75", "c=15"])],
)  # fmt: skip
def test_a_share_that_is_raised_takes_as_many_keys_from_the_primary_model_alone(before, after):
    n = 10_000
    was, now = arms_of(before), arms_of(after)
    (raised,) = {text.partition("=")[0] for text in set(after) - set(before)}
    shares = [{name: float(share) / 100 for name, _, share in (text.partition("=") for text in texts)}
              for texts in (before, after)]  # fmt: skip
    moved = was != now
    assert set(was[moved]) == {"old"}
    assert set(now[moved]) == {raised}
    assert 1e-4 < binom.cdf(moved.sum(), n, shares[1][raised] - shares[0][raised]) < 1 - 1e-4
    for name, share in shares[1].items():
        assert binom.cdf((now == name).sum(), n, share) > 1e-4 or share == 1
        assert binom.cdf((now == name).sum() - 1, n, share) < 1 - 1e-4


def test_shares_are_exact_and_grow_from_what_they_were_also_where_slots_are_full():
    """Ranges of random shares: disjoint, as long as told; a range that grows holds what it was."""
    rng = np.random.default_rng(5)
    points = np.arange(200)
    for _ in range(60):
        k = int(rng.integers(1, 6))
        parts = np.diff(np.sort(np.r_[0, rng.choice(np.arange(1, 200), k, replace=False)]))
        shares = {f"arm {number}": Fraction(int(part), 200) for number, part in enumerate(rng.permutation(parts))}
        raised = f"arm {rng.integers(k)}"
        more = int(rng.integers(0, 201 - 200 * sum(shares.values())))
        owned = []
        for given in (shares, {**shares, raised: shares[raised] + Fraction(more, 200)}):
            ranges = trials_module._allocate(given)
            for (_, end, _), (start, _, _) in itertools.pairwise(sorted(ranges)):
                assert end <= start
            for name, share in given.items():
                assert sum(end - start for start, end, of in ranges if of == name) == share
            owned.append(
                [{name for start, end, name in ranges if start <= Fraction(int(p), 200) < end} for p in points]
            )
        assert all(raised in now for was, now in zip(*owned, strict=True) if raised in was)


def test_a_key_is_one_user_as_a_number_and_as_text():
    split, seal = TrafficSplit("old", ["new=50"]), ListIdSigner((), b"a long random word")
    for key in (7, -1, 0, 2**53 - 1):
        assert split.arm(key) == split.arm(str(key))
        assert seal.hash_key(key) == seal.hash_key(str(key))
    assert seal.hash_key("7") != seal.hash_key("07")


@pytest.mark.parametrize(
    ("told", "words"),
    [(["new=101"], "at most 100"), (["new"], "NAME=PERCENT"), (["new=0"], "above 0"),
     (["new=60", "b=50"], "110 percent"),
     (["old=5"], "primary model"), (["new=nan"], "above 0"), (["new=-1"], "above 0")],
)  # fmt: skip
def test_splits_that_are_none_are_refused(told, words):
    with pytest.raises(DataError, match=words):
        TrafficSplit("old", told)


def test_trials_that_cannot_be_are_refused_at_the_start(folder, tmp_path):
    for options, words in (
        ({"split": ["nothing=5"]}, "no model called 'nothing'"),
        ({"split": ["fewer=5"]}, "different columns"),
        ({"split": ["other=5"], "files": None}, "A split needs an event log"),
        ({"explore": "swap-neighbors:0.1", "files": None}, "Exploring needs an event log"),
    ):
        given = {"files": LogFiles(tmp_path), **options}
        with pytest.raises(DataError, match=words), serving(folder, "linear", "other", "fewer", **given):
            pass


def test_events_are_remembered_up_to_a_limit(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(recording_module, "_KEPT", 2)
    with serving(folder, "linear", files=LogFiles(tmp_path)) as client:
        request = ask(client)["request"]
        tell(client, request, click("d1"), click("d2"), click("d3"))
        assert tell(client, request, click("d3"), click("d1")).json() == {"counted": 1, "again": 1}
