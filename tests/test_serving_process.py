"""The service as a process: it is ready, drains, reloads under load, and is not kept waiting by slow clients."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import toprank as tr
from browser import Browser

NAMES = ("price", "age", "bm25")
PATIENCE = 300.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    data = tr.RankingData(X, (X[:, 0] > 0).astype(int), qid=np.repeat(np.arange(20), 10), feature_names=NAMES)
    tr.LinearRanker().fit(data).save(where / "a.toprank")
    tr.LinearRanker(l2=10.0).fit(data).save(where / "b.toprank")
    return where


class Process:
    """`toprank serve`, or another command that serves, on a free port; its lines are kept."""

    def __init__(self, *arguments, command=("serve",)):
        command = [sys.executable, "-m", "toprank", *command, *map(str, arguments), "--port", "0"]
        command += [] if "--drain" in arguments else ["--drain", "0"]
        self.process = subprocess.Popen(
            list(map(str, command)), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()
        self.address = ("127.0.0.1", int(self.event("ready")["url"].rpartition(":")[2]))

    def _read(self):
        for line in self.process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"event": "text", "says": line})

    def event(self, name, count=1):
        """The line of that event, once it is there."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = [line for line in self.lines if line["event"] == name]
            if len(found) >= count:
                return found[-1]
            assert self.process.poll() is None or name == "stopped", self.lines
            time.sleep(0.01)
        raise AssertionError((name, self.lines[-5:]))

    def ask(self, path, body=None):
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        with contextlib.closing(connection):
            headers = {} if body is None else {"Content-Type": "application/json"}
            text = None if body is None else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, text, headers)
            answer = connection.getresponse()
            content = answer.read()
            is_json = answer.headers["content-type"] == "application/json"
            return answer.status, json.loads(content) if is_json else content.decode()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def started(*arguments, **options):
    process = Process(*arguments, **options)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait()
        process.process.stdout.close()
        process.process.stderr.close()


def documents(n=5):
    return [{"id": number, "values": [number, 1, 2]} for number in range(n)]


def replace(target, source):
    """As a deployment does it: written beside, then renamed."""
    beside = target.with_name("beside")
    beside.write_bytes(source.read_bytes())
    os.replace(beside, target)


def head(process, length):
    return (
        f"POST /v1/rank HTTP/1.1\r\nHost: {process.address[0]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def test_it_is_ready_answers_and_stops(folder):
    with started(folder / "a.toprank") as process:
        assert process.ask("/readyz") == (200, {"status": "ready"})
        status, told = process.ask("/v1/rank", {"documents": documents()})
        assert (status, len(told["ranking"])) == (200, 5)
        assert "process_resident_memory_bytes" in process.ask("/metrics")[1]
        assert process.stop() == 0
        events = [line["event"] for line in process.lines]
        assert events[-2:] == ["stopping", "stopped"]
        assert not {"text", "failure"} & set(events)  # lines of JSON from the first byte


def test_what_cannot_start_says_why(folder, tmp_path):
    def fails(*arguments):
        command = [sys.executable, "-m", "toprank", "serve", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "There is no file" in fails(tmp_path / "none.toprank")
    assert "--token-file FILE" in fails(folder / "a.toprank", "--host", "0.0.0.0")
    assert "no model called 'x'" in fails(folder / "a.toprank", "--shadow", "x", "--port", "0")


def test_a_slow_start_writes_nothing_but_lines_of_json(monkeypatch, capsys):
    """Other commands say that they are at work; this one's standard error is read by programs."""
    from typer.main import get_command

    from toprank.cli.commands import app

    def start(*_, **__):
        time.sleep(0.05)
        warnings.warn("A remark.", UserWarning, stacklevel=1)

    monkeypatch.setattr("toprank.display.progress.SILENCE", 0.0)
    monkeypatch.setattr("toprank.serving.startup._start", start)
    monkeypatch.setattr(warnings, "filters", [])  # a remark is a remark here, not an error
    assert get_command(app).main(["serve", "m.toprank"], standalone_mode=False) in (None, 0)
    [line] = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["event"], told["says"]) == ("warning", "A remark.")


def test_a_body_whose_end_is_told_twice_ends_the_connection(folder):
    """Else what one reader takes for the rest of the body is the next request to another: it is not answered."""
    with started(folder / "a.toprank") as process:
        for order in ((0, 1), (1, 0)):
            lines = ("Content-Length: 5", "Transfer-Encoding: chunked")
            head = "\r\n".join(["POST /v1/rank HTTP/1.1", "Host: x", *(lines[one] for one in order), "", ""])
            with socket.create_connection(process.address, timeout=PATIENCE) as client:
                client.sendall(head.encode() + b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = b"".join(iter(lambda: client.recv(65536), b""))
            assert answer.startswith(b"HTTP/1.1 400")
            assert answer.count(b"HTTP/1.1") == 1
            assert b"alive" not in answer


def test_a_request_under_way_is_answered_after_sigterm(folder):
    with started(folder / "a.toprank") as process, socket.create_connection(process.address) as client:
        body = json.dumps({"documents": documents()}).encode()
        client.settimeout(PATIENCE)
        client.sendall(head(process, len(body)).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert client.recv(65536).startswith(b"HTTP/1.1 100")  # the service reads the body: the request is under way
        client.sendall(body[:10])
        process.process.send_signal(signal.SIGTERM)
        process.event("stopping")
        time.sleep(0.2)
        client.sendall(body[10:])
        answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["ranking"]
        assert process.process.wait(PATIENCE) == 0
        with pytest.raises(OSError):
            socket.create_connection(process.address)


def test_while_it_drains_new_requests_are_answered_and_told_to_leave(folder):
    with started(folder / "a.toprank", "--drain", PATIENCE) as process:
        kept = http.client.HTTPConnection(*process.address, timeout=PATIENCE)
        with contextlib.closing(kept):
            kept.request("GET", "/readyz")
            answer = kept.getresponse()
            answer.read()
            assert (answer.status, answer.headers["connection"]) == (200, None)
            process.process.send_signal(signal.SIGTERM)
            process.event("stopping")
            kept.request("GET", "/readyz")
            answer = kept.getresponse()
            answer.read()
            assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert process.ask("/v1/rank", {"documents": documents()})[0] == 200
        process.process.send_signal(signal.SIGTERM)  # asked a second time, it goes at once
        assert process.process.wait(PATIENCE) == 0


def test_reloading_under_load_loses_no_request(folder, tmp_path):
    file = tmp_path / "m.toprank"
    replace(file, folder / "a.toprank")
    with started(file) as process:
        seen, wrong, stop = set(), [], threading.Event()

        def ask():
            connection = http.client.HTTPConnection(*process.address, timeout=PATIENCE)
            body = json.dumps({"documents": documents()})
            with contextlib.closing(connection):
                while not stop.is_set():
                    connection.request("POST", "/v1/rank", body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    told = json.loads(answer.read())
                    if answer.status != 200:
                        wrong.append(told)
                    seen.add(told.get("version"))

        askers = [threading.Thread(target=ask) for _ in range(3)]
        for asker in askers:
            asker.start()
        replace(file, folder / "b.toprank")
        process.event("reloaded")
        file.write_bytes(b"no model")
        process.event("reload refused")
        replace(file, folder / "a.toprank")
        process.event("reloaded", 2)
        process.process.send_signal(signal.SIGHUP)
        process.event("reloaded", 3)
        time.sleep(0.1)
        stop.set()
        for asker in askers:
            asker.join()
        assert not wrong
        assert len(seen) == 2
        counts = process.ask("/metrics")[1]
        assert 'toprank_reloads_total{model="m",outcome="loaded"} 3.0' in counts
        assert 'toprank_reloads_total{model="m",outcome="refused"} 1.0' in counts
        assert process.stop() == 0


def test_slow_clients_are_sent_away_and_keep_nobody_waiting(folder):
    with started(folder / "a.toprank", "--timeout", "0.5") as process:
        slow_body, slow_head, huge = (socket.create_connection(process.address) for _ in range(3))
        with slow_body, slow_head, huge:
            slow_body.sendall(head(process, 1000) + b"{")
            slow_head.sendall(b"POST /v1/rank HTTP/1.1\r\n")
            huge.sendall(head(process, 10**12) + b"{")
            assert process.ask("/v1/rank", {"documents": documents()})[0] == 200
            for client in (slow_body, slow_head, huge):
                client.settimeout(PATIENCE)
            assert slow_body.recv(65536).startswith(b"HTTP/1.1 408")
            assert huge.recv(65536).startswith(b"HTTP/1.1 413")
            assert slow_head.recv(65536) == b""  # closed without a word: there was no request
        assert process.stop() == 0


# ---- load ----


def press(process, seconds, connections=4, model="a"):
    """Ask as fast as can be for some seconds: how many were answered, and whether any was refused."""
    answered, refused = [0] * connections, []
    until = time.monotonic() + seconds
    body = json.dumps({"model": model, "documents": documents(100)})

    def ask(number):
        connection = http.client.HTTPConnection(*process.address, timeout=PATIENCE)
        with contextlib.closing(connection):
            while time.monotonic() < until:
                connection.request("POST", "/v1/rank", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                answered[number] += 1
                if answer.status != 200:
                    refused.append(answer.status)

    askers = [threading.Thread(target=ask, args=(number,)) for number in range(connections)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    return sum(answered), refused


def memory(process):
    told = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", told)[1])  # kB


@pytest.mark.nightly
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_nothing_is_dropped_and_memory_stays_flat(folder, tmp_path):
    options = ("--shadow", "b", "--interleave", "b", "a", "--log", tmp_path, "--quiet")
    with started(folder / "a.toprank", folder / "b.toprank", *options) as process:
        press(process, 1)
        before = memory(process)
        answered, refused = press(process, 2)
        assert answered > 0
        assert not refused
        assert memory(process) - before < 4096
        assert process.stop() == 0


@pytest.mark.nightly
def test_ten_minutes_of_load_leave_nothing_behind(folder, tmp_path):
    options = ("--shadow", "b", "--interleave", "a", "b", "--log", tmp_path)
    with started(folder / "a.toprank", folder / "b.toprank", *options) as process:
        press(process, 10)
        before = memory(process)
        for minute in range(10):
            answered, refused = press(process, 60, model="ab"[minute % 2])
            assert answered > 0
            assert not refused
        assert memory(process) - before < 8192
        assert process.stop() == 0


# ---- the page ----


def test_the_page_ranks_and_shows_markup_as_text_by_keyboard_alone(folder):
    with started(folder / "a.toprank", folder / "b.toprank") as process, Browser() as browser:
        page = browser.open(f"http://127.0.0.1:{process.address[1]}/")
        page.run("new Promise(done => { const look = () => models.length ? done() : setTimeout(look, 20); look(); })")
        assert page.run("[...document.getElementById('model').options].map(o => o.value).join()") == "a,b"
        page.run("document.getElementById('documents').focus()")
        given = [
            {"id": "x", "values": [0, 0, 0], "title": "<img src=x onerror=alert(1)><b>bold</b>"},
            {"id": "<i>y</i>", "values": [5, 0, None], "title": "plain"},
        ]
        page.type(json.dumps(given))
        page.press("Tab")
        assert page.run("document.activeElement.textContent") == "Rank"
        page.press("Enter", text="\r")
        page.run(
            "new Promise(done => { const look = () => document.querySelectorAll('#ranking tr').length == 2 ? done() :"
            " setTimeout(look, 20); look(); })"
        )
        shown = page.run("[...document.querySelectorAll('#ranking tr')].map(row => row.cells[1].textContent)")
        assert shown == ["<i>y</i>plain", "x<img src=x onerror=alert(1)><b>bold</b>"]
        assert page.run("document.querySelectorAll('#ranking img, #ranking i, #ranking b').length") == 0
        page.press("Tab")
        page.press("Tab")
        assert page.run("document.activeElement.getAttribute('aria-label')") == "Why is <i>y</i> above x?"
        page.press("Enter", text="\r")
        page.run(
            "new Promise(done => { const look = () => document.getElementById('why').hidden ? setTimeout(look, 20) :"
            " done(); look(); })"
        )
        assert page.run("document.activeElement.id") == "why"
        assert page.run("document.getElementById('sentence').textContent").startswith("<i>y</i> ranks above x because")
        assert page.run("document.querySelectorAll('#why i').length") == 0
        assert page.run("document.querySelector('#contributions td').textContent") == "price"
        assert page.complaints() == []
        page.run("document.getElementById('documents').value = '[{\"id\": 1, \"values\": [1]}]'")
        page.run("document.querySelector('button[type=submit]').focus()")
        page.press("Enter", text="\r")
        page.run(
            "new Promise(done => { const look = () => document.querySelector('#message.wrong') ? done() :"
            " setTimeout(look, 20); look(); })"
        )
        assert "1 values, but the model has 3 features" in page.run("document.getElementById('message').textContent")
        assert process.stop() == 0


def test_the_page_has_a_field_for_the_token_from_the_start(folder, tmp_path):
    (tmp_path / "token").write_text("a-long-random-word")
    with started(folder / "a.toprank", "--token-file", tmp_path / "token") as process, Browser() as browser:
        page = browser.open(f"http://127.0.0.1:{process.address[1]}/")
        assert page.run("document.getElementById('token').checkVisibility()")
        page.run("document.getElementById('token').focus()")
        page.type("a-long-random-word")
        page.press("Tab")
        page.run("new Promise(done => { const look = () => models.length ? done() : setTimeout(look, 20); look(); })")
        assert page.run("document.getElementById('model').value") == "a"
        assert process.stop() == 0


def test_the_example_of_the_page_is_one_that_its_model_takes(tmp_path):
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"label": rng.integers(0, 3, 90), "qid": np.repeat(np.arange(9), 10), "price": rng.random(90)})
    table["brand"] = rng.choice(["acme", "zenith"], 90)
    table["shop"] = pd.Categorical(rng.choice([7, 12], 90))
    table["added"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, 90), "D")
    tr.LinearRanker().fit(tr.RankingData.from_frame(table)).save(tmp_path / "m.toprank")
    with started(tmp_path / "m.toprank") as process, Browser() as browser:
        page = browser.open(f"http://127.0.0.1:{process.address[1]}/")
        page.run("new Promise(done => { const look = () => models.length ? done() : setTimeout(look, 20); look(); })")
        page.run("document.getElementById('example').click()")
        page.run("document.querySelector('button[type=submit]').click()")
        page.run(
            "new Promise(done => { const look = () => document.getElementById('message').textContent ? done() :"
            " setTimeout(look, 20); look(); })"
        )
        said = page.run("document.getElementById('message').textContent")
        assert said.startswith("3 documents, ranked by m"), said
        assert process.stop() == 0


def test_the_page_needs_nothing_else_and_says_so(folder):
    with started(folder / "a.toprank") as process:
        connection = http.client.HTTPConnection(*process.address, timeout=PATIENCE)
        with contextlib.closing(connection):
            for path in ("/", "/page.js", "/page.css"):
                connection.request("GET", path)
                answer = connection.getresponse()
                content = answer.read().decode()
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert "://" not in content
                assert "innerHTML" not in content
                assert not re.search(r"\son\w+=|style=", content)
                if path == "/":  # who needs a token must not have to fail first to be asked for it
                    [field] = [line for line in content.splitlines() if 'id="token"' in line]
                    assert "hidden" not in field
