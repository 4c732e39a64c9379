"""Serving: requests of 100 documents × 46 features over loopback, from a second process, ours and the plainest peer's.

    python benchmarks/serving.py [--seconds 10] [--digits 6]

A linear model at 1,500 requests/s and 300 trees × 31 leaves at 500/s, by `toprank serve`; the same trees by LightGBM
behind the plainest FastAPI application, at the same 500/s. Ours also with a log of what was served.
Requests are due at fixed times, whether or not earlier ones were answered; latency counts from when a request was due.
Then both as fast as 8 connections can. Prints requests/s, p50, p99, what was not answered by 200, the server's
processor time for a request, and how its memory grew. Times of a machine that is busy with other things say nothing;
processor time and the ratio say something.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil

import toprank as tr

N, D, CONNECTIONS = 100, 46, 8
PEER = """
import sys
import lightgbm, numpy as np, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

booster = lightgbm.Booster(model_file=sys.argv[1])
app = FastAPI()

class Document(BaseModel):
    id: str
    values: list[float | None]

class Request(BaseModel):
    query: str
    documents: list[Document]

@app.post("/v1/rank")
async def rank(request: Request):
    X = np.array([document.values for document in request.documents], dtype=float)
    scores = booster.predict(X)
    order = np.argsort(-scores, kind="stable")
    return {"ranking": [
        {"id": request.documents[i].id, "score": float(scores[i]), "rank": rank + 1} for rank, i in enumerate(order)
    ]}

@app.get("/healthz")
async def healthz():
    return {}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), access_log=False, log_level="warning")
"""


def requests(digits: int, several: int = 20) -> list[bytes]:
    """Whole requests as bytes, so that the client's time is not ours."""
    rng, made = np.random.default_rng(0), []
    for _ in range(several):
        X = rng.random((N, D)).round(digits).tolist()
        body = json.dumps({"query": "q", "documents": [{"id": f"d{i}", "values": x} for i, x in enumerate(X)]}).encode()
        head = "POST /v1/rank HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        made.append(head.encode() + body)
    return made


class Connection(asyncio.Protocol):
    """One connection that is kept; a request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self.transport, self.buffer, self.answer = transport, b"", None

    def data_received(self, data: bytes) -> None:
        """Find the end of the answer."""
        self.buffer += data
        head, divided, body = self.buffer.partition(b"\r\n\r\n")
        if not divided:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) >= length:
            self.buffer = body[length:]
            self.answer.set_result(head.startswith(b"HTTP/1.1 200"))

    def connection_lost(self, problem: Exception | None) -> None:
        """A request that gets no answer is a bad one."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(False)


async def load(port: int, made: list[bytes], count: int, rate: float | None) -> tuple[float, list[float], int]:
    """Seconds, sorted latencies, and how many were not answered well."""
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(Connection, "127.0.0.1", port) for _ in range(CONNECTIONS)]
    start, turn, latencies, bad = loop.time() + 0.05, iter(range(count)), [], 0

    async def work(connection: Connection) -> None:
        nonlocal bad
        for number in turn:
            due = loop.time() if rate is None else start + number / rate
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            connection.answer = loop.create_future()
            connection.transport.write(made[number % len(made)])
            bad += not await connection.answer
            latencies.append(loop.time() - due)

    await asyncio.gather(*(work(connection) for _, connection in pairs))
    took = loop.time() - start
    for transport, _ in pairs:
        transport.close()
    return took, sorted(latencies), bad


def measure(
    name: str, command: list[str], port: int, made: list[bytes], seconds: float, rate: float
) -> tuple[float, float]:
    """Start a server, press it at a rate and then as hard as can be; gives requests/s and CPU seconds of the latter."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.01)
    ready = time.perf_counter() - began
    try:
        watched = psutil.Process(process.pid)
        asyncio.run(load(port, made, 300, None))  # warm
        for pace in (rate, None):
            count = int((pace or rate) * seconds)
            memory, cpu = watched.memory_info().rss, sum(watched.cpu_times()[:2])
            took, latencies, bad = asyncio.run(load(port, made, count, pace))
            cpu = sum(watched.cpu_times()[:2]) - cpu
            grown = (watched.memory_info().rss - memory) / 2**20
            p50, p99 = (1e3 * latencies[int(share * (count - 1))] for share in (0.5, 0.99))
            asked = "as fast as can be" if pace is None else f"at {pace:g}/s"
            print(
                f"{name:<28}{asked:<18}{count / took:>8.0f}/s  p50 {p50:>8.2f} ms  p99 {p99:>8.2f} ms  bad {bad}  "
                f"cpu {1e3 * cpu / count:.2f} ms  memory {watched.memory_info().rss / 2**20:.0f} MB ({grown:+.1f})",
                flush=True,
            )
        print(f"{name:<28}ready after {ready:.2f} s")
        return count / took, cpu / count
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=10.0)
    arguments.add_argument("--digits", type=int, default=6, help="of the values; 17 is all that a double has")
    options = arguments.parse_args()
    made = requests(options.digits)
    data = tr.synthetic(n_queries=200, n_features=D, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        linear, trees, text, peer = (
            Path(folder, name) for name in ("linear.toprank", "trees.toprank", "t.txt", "peer.py")
        )
        tr.LinearRanker().fit(data).save(linear)
        ranker = tr.TreeRanker(n_trees=300, num_leaves=31, early_stopping=None).fit(data)
        ranker.save(trees)
        ranker.booster_.save_model(str(text))
        peer.write_text(textwrap.dedent(PEER))
        speeds, costs = {}, {}
        for name, rate in (
            ("toprank, linear", 1500.0),
            ("toprank, linear, log", 1500.0),
            ("toprank, 300 trees", 500.0),
            ("toprank, 300 trees, log", 500.0),
            ("LightGBM + FastAPI", 500.0),
        ):
            port = free_port()
            ours = [
                sys.executable,
                "-m",
                "toprank",
                "serve",
                str(linear if "linear" in name else trees),
                "--port",
                str(port),
                *(["--log", str(Path(folder, name))] if name.endswith("log") else []),
            ]
            command = ours if name.startswith("toprank") else [sys.executable, str(peer), str(text), str(port)]
            speeds[name], costs[name] = measure(name, command, port, made, options.seconds, rate)
        for name in ("toprank, linear", "toprank, 300 trees"):
            print(f"{name}: a log costs {costs[f'{name}, log'] / costs[name] - 1:+.1%} of a request's processor time")
        print(f"trees: {speeds['toprank, 300 trees'] / speeds['LightGBM + FastAPI']:.1f} times the peer's requests/s")


if __name__ == "__main__":
    main()
