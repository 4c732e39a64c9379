"""Devices that change what is looked at, and users who change their mind, both at once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import toprank as tr
from support import nightly
from toprank.clicks import PBM, ClickLog
from toprank.clicks.policies import ranks_of
from toprank.clicks.recency import latest
from toprank.errors import DataError, UnknownNameError

LOOKS = {"desktop": np.array([1, 0.9, 0.8, 0.7]), "phone": np.array([0.8, 0.4, 0.2, 0.1])}
NOISE, DAY, CHANGE, HALF_LIFE = 0.1, 86_400.0, 70, 10


def world(seed, n=80):
    """Queries of four documents, what users like at first and what later, and a feature for each."""
    rng = np.random.default_rng(seed)
    before, after = rng.random((2, 4 * n))
    X = np.stack([one + 0.3 * rng.normal(size=4 * n) for one in (before, after)], axis=1)
    return tr.RankingData(X, np.zeros(4 * n), qid=np.repeat(np.arange(n), 4)), before, after


def phones(data):
    """How many of the sessions of each query are on a phone."""
    return np.where(np.arange(data.n_queries) % 2 == 0, 0.9, 0.1)


def a_hundred_days(data, before, after, sessions, seed):
    """Half of the queries are asked for on the phone; after seventy days users like what they like later."""
    users, parts = {name: PBM.from_parameters(looks) for name, looks in LOOKS.items()}, []
    shares = np.stack([1 - phones(data), phones(data)], axis=1)
    for place, (liked, days) in enumerate(((before, (0, CHANGE)), (after, (CHANGE, 100)))):
        count = sessions * (days[1] - days[0]) // 100
        log = tr.clicks.simulate(
            data, data.X[:, 0], users, count, k=4, noise=NOISE, exploration=0.4, relevance=liked, context="device",
            shares=shares, seed=2 * seed + place,
        )  # fmt: skip
        day = np.random.default_rng(2 * seed + place).uniform(*days, log.n_sessions)
        parts.append((log, day[log.session], place))

    def column(of):
        return np.concatenate([of(*part) for part in parts])

    return ClickLog.from_columns(
        column(lambda log, *_: log.qids[log.query]),
        column(lambda log, *_: log.document_ids[log.pair]),
        column(lambda log, *_: log.position),
        column(lambda log, *_: log.clicks),
        session=column(lambda log, _, place: [f"{place}-{number}" for number in log.session]),
        time=column(lambda _, day, __: DAY * day),
        device=column(lambda log, *_: log.columns["device"]),
    )


def now_share():
    """How much of the weight of a hundred days is of users who have changed."""
    ages = np.linspace(0, 100, 200_001)
    weights = 0.5 ** (ages / HALF_LIFE)
    return weights[ages <= 100 - CHANGE].sum() / weights.sum()


def brought(scores, data, liked, k=2):
    """Clicks of a session on the top k, mean over queries and their devices: the sum of the definition."""
    rank, share = ranks_of(scores, data), data.queries.broadcast(phones(data))
    looks = share * LOOKS["phone"][rank - 1] + (1 - share) * LOOKS["desktop"][rank - 1]
    return float(data.queries.sum(np.where(rank <= k, looks, 0.0) * (NOISE + (1 - NOISE) * liked)).mean())


def covered(runs, **how):
    """In how many runs intervals hold the decayed mean of what both devices bring."""
    big, before, after = world(10**6, 50_000)
    truth = brought(big.X[:, 1], big, (1 - now_share()) * before + now_share() * after)
    holds = dict.fromkeys(("ips", "snips", "dr"), 0)
    for seed in range(runs):
        data, before, after = world(seed)
        log = a_hundred_days(data, before, after, 1_600, seed)
        for name in holds:
            found = tr.clicks.evaluate(data.X[:, 1], log, data, "clicks@2", estimator=name, clip=0.0, **how)
            holds[name] += found.interval.low <= truth <= found.interval.high
    return holds


BOTH = {"propensities": LOOKS, "context": "device", "half_life": f"{HALF_LIFE}d"}


@pytest.mark.nightly
def test_intervals_by_device_and_age_hold_the_truth_and_without_age_they_do_not():
    runs = 30
    assert all(binom.ppf(0.0005, runs, 0.95) <= one for one in covered(runs, **BOTH).values())
    without_age = covered(runs, propensities=LOOKS, context="device")
    assert all(one < 0.6 * runs for one in without_age.values())


@pytest.mark.nightly
def test_intervals_by_device_and_age_cover_as_they_say():
    runs = 1_000
    holds = covered(runs, **BOTH)
    assert all(0.93 <= one / runs <= 0.97 for one in holds.values()), holds


@pytest.fixture(scope="module")
def year():
    data, before, after = world(3, 200)
    return data, a_hundred_days(data, before, after, 24_000, 1), before, after


def test_propensities_are_found_by_device_whatever_users_like(year):
    _, log, _, _ = year
    found = tr.clicks.propensities(log, context="device", half_life=f"{HALF_LIFE}d", n_resamples=50)
    for name, low, high in zip(found.names, *found.intervals, strict=True):
        curve = LOOKS[name] / LOOKS[name][0]
        np.testing.assert_allclose(found.of(name), curve, rtol=0.25)
        assert (low[1:] < curve[1:]).all()
        assert (curve[1:] < high[1:]).all()
    assert found.scales[1] / found.scales[0] == pytest.approx(0.8, rel=0.15)
    assert found.difference.p < 0.05
    assert found.recency is not None


@pytest.mark.parametrize("age", [{"half_life": "8d"}, {"window": "25d"}])
@pytest.mark.parametrize("given", [LOOKS, *nightly(None)])
def test_a_launch_by_device_and_age_says_what_holds_today(year, age, given):
    data, log, before, after = year
    new, current = data.X[:, 1], data.X[:, 0]
    late = brought(new, data, after, 3) - brought(current, data, after, 3)
    early = brought(new, data, before, 3) - brought(current, data, before, 3)
    assert early < 0 < late
    report = tr.clicks.launch_report(log, data, new, current, k=3, context="device", propensities=given, **age)
    assert report.decision == "launch"
    assert report.cascade_check is None  # devices that look to different depths are no users who stop
    if "window" in age:
        assert report.difference.low < late < report.difference.high
    assert "Propensities are those of each position by device." in report.caveats
    assert report.recency is not None
    assert (
        tr.clicks.launch_report(log, data, new, current, k=3, context="device", propensities=given).decision != "launch"
    )


@pytest.mark.parametrize("correction", ["ips", *nightly("snips", "dr")])
def test_what_a_ranker_learns_by_device_and_age_is_what_is_liked_today(year, correction):
    data, log, before, after = year
    how = {"context": "device", "half_life": "5d", "time_column": "time", "holdout": 0.1}
    done = tr.clicks.train(tr.LinearRanker("Squared"), log, data, correction, **how)
    whole = tr.clicks.train(tr.LinearRanker("Squared"), log, data, correction, context="device", folds=0)
    assert done.curves.layout.names == ("desktop", "phone")
    assert done.recency.half_life == 5 * DAY
    late = tr.clicks.evaluate(done.naive, latest(log, "time", 0.1).late, data, "dcg@10", context="device", clip=0.0)
    assert done.estimates["naive"].value == pytest.approx(late.value)
    assert [*done.estimates["naive"]] == pytest.approx([*late.interval])
    scores, stale = done.ranker.predict(data), whole.ranker.predict(data)
    assert np.corrcoef(scores, after)[0, 1] > np.corrcoef(scores, before)[0, 1] + 0.2
    assert brought(scores, data, after) > brought(stale, data, after) + 0.05
    assert brought(stale, data, before) > brought(scores, data, before) + 0.05


def test_what_is_wrong_of_either_is_a_sentence(year):
    data, log, _, _ = year
    ask = (log, data, data.X[:, 1], data.X[:, 0])
    for wrong, kind, words in (
        ({"context": "devise", "half_life": "8d"}, UnknownNameError, "did you mean 'device'"),
        ({"context": "device", "half_life": "soon"}, DataError, "half_life must be a time above 0"),
        ({"context": "device", "window": "1s"}, DataError, "leaves nothing but the newest"),
        ({"propensities": LOOKS}, DataError, "need the name of the log's column"),
        ({"propensities": [1, 0.5, 0.4, 0.2], "context": "device"}, DataError, "must be a mapping from contexts"),
    ):
        with pytest.raises(kind, match=words):
            tr.clicks.launch_report(*ask, **wrong)
