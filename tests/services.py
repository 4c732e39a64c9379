"""A service as its tests ask it: models of several kinds, and a client without a socket."""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import re
import time

import httpx
import numpy as np

import toprank as tr
from toprank.serving import application
from toprank.serving.logs import Log

NAMES = ("price", "age", "bm25")


def save_models(where):
    """Models of several kinds: with names, without, one that looks at whole queries, and two to compare."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y, qid = (X @ [1.0, -0.5, 2.0] > 0.5).astype(int) + (X[:, 0] > 1), np.repeat(np.arange(20), 10)
    named = tr.RankingData(X, y, qid=qid, feature_names=NAMES)
    tr.LinearRanker().fit(named).save(where / "linear.toprank")
    tr.LinearRanker(l2=10.0).fit(named).save(where / "other.toprank")
    tr.LinearRanker().fit(X, y, qid=qid).save(where / "unnamed.toprank")
    tr.TreeRanker(n_trees=10, num_leaves=4, threads=1).fit(named).save(where / "trees.toprank")
    tr.LinearRanker().fit(tr.RankingData(X[:, :2], y, qid=qid, feature_names=NAMES[:2])).save(where / "fewer.toprank")
    return where


def save_mixed(folder):
    """Models of a table with numbers, texts, whole numbers that are categories, and dates."""
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 300
    table = pd.DataFrame(
        {
            "label": rng.integers(0, 3, n),
            "qid": np.repeat(np.arange(30), 10),
            "price": rng.normal(size=n),
            "brand": rng.choice(["acme", "zenith", "nadir"], n),
            "shop": pd.Categorical(rng.choice([7, 12, 40], n)),
            "added": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D"),
        }
    )
    data = tr.RankingData.from_frame(table, label="label", qid="qid")
    tr.LinearRanker().fit(data).save(folder / "mixed_linear.toprank")
    tr.TreeRanker(n_trees=10, num_leaves=4, threads=1).fit(data).save(folder / "mixed_trees.toprank")
    return table


class Client:
    """Asks an application without a socket."""

    def __init__(self, service, runner):
        self.service, self._runner = service, runner
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(service), base_url="http://test")

    def run(self, awaited):
        return self._runner.run(awaited)

    def asynchronous(self, method, path, **options):
        return self._client.request(method, path, **options)

    def request(self, method, path, **options):
        return self.run(self.asynchronous(method, path, **options))

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, **options):
        return self.request("POST", path, **options)


@contextlib.contextmanager
def serving(folder, *names, log=None, **options):
    service = application([folder / f"{name}.toprank" for name in names], log=log or Log(io.StringIO()), **options)
    with asyncio.Runner() as runner:
        yield Client(service, runner)
    service.close()


def rows(n=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def plain(X):
    return [[None if math.isnan(value) else value for value in row] for row in X.tolist()]


def documents(X):
    return [{"id": f"d{number}", "values": row} for number, row in enumerate(plain(X))]


def refused(answer, status, words):
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    assert re.search(words, answer.json()["error"]), answer.json()["error"]
    assert "Traceback" not in answer.text
    assert answer.json()["error"].endswith((".", "?"))


def counted(client):
    text = client.get("/metrics").text
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def until(holds, seconds=300):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def waited(client, key, least):
    until(lambda: counted(client).get(key, 0) >= least)
    return counted(client)
