"""Drift of what a service is asked: told at /metrics, measured on a thread that nobody waits for."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import toprank as tr
from services import NAMES, counted, documents, save_mixed, save_models, serving, until
from toprank.errors import DataError
from toprank.monitoring import monitor
from toprank.serving import application, drift_watch

PATIENCE = 300.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def mixed(folder):
    return save_mixed(folder)


@pytest.fixture(scope="module")
def reference():
    X = np.random.default_rng(3).normal(size=(500, 3))
    return tr.RankingData(X, qid=np.repeat(np.arange(50), 10), feature_names=NAMES)


def drift(client):
    return {key: value for key, value in counted(client).items() if key.startswith("toprank_drift")}


def compared(client):
    """What is told of drift, once a comparison was made."""
    until(lambda: any("alarms" in key for key in drift(client)))
    return drift(client)


def ask(client, shift=0.0, requests=40, seed=4):
    rng = np.random.default_rng(seed)
    for _ in range(requests):
        X = rng.normal((0, shift, 0), size=(10, 3))
        assert client.post("/v1/rank", json={"documents": documents(X)}).status_code == 200


def test_drift_of_what_is_asked_is_told_at_metrics(folder, reference):
    with serving(folder, "linear", reference=reference) as client:
        assert drift(client) == {"toprank_drift_requests": 0}
        ask(client)
        still = compared(client)
        assert still['toprank_drift_alarms{model="linear"}'] == 0
        assert still["toprank_drift_requests"] == 40
    with serving(folder, "linear", reference=reference) as client:
        ask(client, 2.0)
        moved = compared(client)
        assert moved['toprank_drift_alarms{model="linear"}'] >= 1
        psi = {name: moved[f'toprank_drift_feature_psi{{feature="{name}",model="linear"}}'] for name in NAMES}
        assert max(psi, key=psi.get) == "age"
        assert moved['toprank_drift_largest_feature_psi{model="linear"}'] == psi["age"]


def test_who_asks_for_the_numbers_never_waits_for_drift_and_it_is_measured_once_a_minute(
    folder, reference, monkeypatch
):
    over, calls, now = threading.Event(), [], [1000.0]

    def slow(ranker, reference, new, *, n_resamples):
        calls.append(new.n_queries)
        assert over.wait(PATIENCE)
        return monitor(ranker, reference, new, n_resamples=n_resamples)

    with serving(folder, "linear", reference=reference) as client:
        monkeypatch.setattr(drift_watch, "monitor", slow)
        monkeypatch.setattr(drift_watch, "monotonic", lambda: now[0])
        watch = client.service._watch
        ask(client, requests=29)
        assert drift(client) == {"toprank_drift_requests": 29}
        assert calls == []
        ask(client, requests=1)
        for _ in range(3):
            assert drift(client) == {"toprank_drift_requests": 30}  # answered, though the comparison goes on
        over.set()
        until(lambda: watch._last)
        assert calls == [30]
        ask(client, requests=1)
        first = compared(client)
        now[0] += drift_watch._SECONDS - 0.01
        assert drift(client) == first
        assert calls == [30]
        now[0] += 0.01
        drift(client)
        until(lambda: calls == [30, 31])


def test_a_comparison_of_yesterday_says_nothing_of_today(folder, reference, monkeypatch):
    now = [1000.0]
    with serving(folder, "linear", reference=reference) as client:
        monkeypatch.setattr(drift_watch, "monotonic", lambda: now[0])
        ask(client, requests=30)
        compared(client)
        monkeypatch.setattr(client.service._watch, "_due", float("inf"))
        for later, told in ((drift_watch._OLD, True), (0.01, False)):
            now[0] += later
            assert any("alarms" in key for key in drift(client)) == told


def test_a_comparison_that_fails_is_counted_and_told_no_more(folder, reference, monkeypatch):
    with serving(folder, "linear", reference=reference) as client:
        ask(client, requests=30)
        compared(client)
        monkeypatch.setattr(drift_watch, "monitor", lambda *_, **__: 1 / 0)
        client.service._watch._due = 0.0
        until(lambda: 'toprank_drift_failures_total{model="linear"}' in drift(client))
        until(lambda: not any("alarms" in key for key in drift(client)))


def test_a_reference_with_other_columns_is_refused_at_the_start(folder):
    other = tr.RankingData(np.zeros((4, 2)), qid=[0, 0, 1, 1], feature_names=["price", "color"])
    with pytest.raises(DataError, match="color"):
        application([folder / "linear.toprank"], reference=other)


def test_what_is_kept_for_drift_has_a_limit(folder, monkeypatch):
    monkeypatch.setattr(drift_watch, "_VALUES", 300)
    monkeypatch.setattr(drift_watch, "_KEPT", 20)
    reference = tr.RankingData(np.random.default_rng(0).normal(size=(20, 3)), qid=np.repeat([0, 1], 10))
    service = application([folder / "unnamed.toprank"], reference=reference)
    for rows in [1] * 50 + [30] * 10:
        service._watch.observe(service.models.get(None), np.zeros((rows, 3)))
        assert len(service._watch._kept) <= 20
        assert sum(one.size for one in service._watch._kept) == service._watch._size <= 300
    service.close()


def test_drift_is_measured_on_requests_to_the_model_that_serves(mixed, tmp_path):
    """Codes of categories belong to a model: those of the one before it would be other levels of its successor."""
    path = tmp_path / "m.toprank"

    def train(table):
        ranker = tr.LinearRanker().fit(tr.RankingData.from_frame(table))
        ranker.save(path)
        return ranker

    train(mixed)
    reference = tr.RankingData.from_frame(mixed)
    with serving(tmp_path, "m", reference=reference) as client:

        def ask():
            for _, query in mixed.groupby("qid"):
                values = [
                    {"price": row.price, "brand": row.brand, "shop": int(row.shop), "added": row.added.isoformat()}
                    for row in query.itertuples()
                ]
                asked = [{"id": number, "values": one} for number, one in enumerate(values)]
                assert client.post("/v1/rank", json={"documents": asked}).status_code == 200

        ask()
        assert compared(client)['toprank_drift_features_drifted{model="m"}'] == 0
        more = mixed.copy()
        more.loc[more.index[::15], "brand"] = "0 before all others"
        train(more)
        client.run(client.service.reload())
        assert 'toprank_drift_alarms{model="m"}' not in counted(client)
        ask()
        found = compared(client)
        assert found['toprank_drift_feature_psi{feature="brand",model="m"}'] < 0.01
        assert found["toprank_drift_requests"] == 30
