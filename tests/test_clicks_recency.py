"""Sessions weighed by their age: what is estimated then, what it costs, what it saves, and what is refused."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from typer.testing import CliRunner

import toprank as tr
from clicks_evidence import correct
from toprank.cli.commands import app
from toprank.clicks import PBM, ClickLog
from toprank.clicks.assumptions import _expected_reward
from toprank.clicks.corrections import resolve_curves
from toprank.clicks.curves import PropensityCurves
from toprank.clicks.evidence import bind
from toprank.clicks.launch_result import DO_NOT_LAUNCH, LAUNCH, UNDECIDED
from toprank.clicks.log import jackknife_groups
from toprank.clicks.policies import ranks_of
from toprank.clicks.recency import latest, recent, span_of, times_of, weights_by_age
from toprank.clicks.training_overlap import TrainingOverlap
from toprank.errors import DataError, UnknownNameError
from toprank.significance import effective_sample_size

LOOKS = np.array([1, 0.6, 0.4, 0.3])
NOISE, DAY = 0.1, 86_400.0
CHANGE = 0.7  # when, of the days of a log, users begin to like what they did not like before


def world(seed, n=100):
    """Queries of four documents, what users like at first and what later, and a feature for each."""
    rng = np.random.default_rng(seed)
    before, after = rng.random((2, 4 * n))
    X = np.stack([one + 0.3 * rng.normal(size=4 * n) for one in (before, after)], axis=1)
    return tr.RankingData(X, np.zeros(4 * n), qid=np.repeat(np.arange(n), 4)), before, after


def one_after_the_other(*logs):
    """Logs of simulated users as one, each session with a time within a hundred days."""
    parts = []
    for log, start, end, seed in logs:
        times = np.random.default_rng(seed).uniform(start * 100 * DAY, end * 100 * DAY, log.n_sessions)
        parts.append((log, times[log.session]))

    def column(of):
        return np.concatenate([of(log, times) for log, times in parts])

    return ClickLog.from_columns(
        column(lambda log, _: log.qids[log.query]),
        column(lambda log, _: log.document_ids[log.pair]),
        column(lambda log, _: log.position),
        column(lambda log, _: log.clicks),
        session=np.concatenate([[f"{place}-{s}" for s in log.session] for place, (log, _) in enumerate(parts)]),
        time=column(lambda _, times: times),
    )


def drifting(data, before, after, sessions=2_000, seed=0, change=CHANGE):
    """A log of a hundred days, shown by the first feature, a third of it explored; users change when 70 are over."""
    users, how = PBM.from_parameters(LOOKS), {"k": 4, "noise": NOISE, "exploration": 0.3}
    logs = []
    for place, (liked, start, end) in enumerate(((before, 0, change), (after, change, 1))):
        count = round(sessions * (end - start))
        log = tr.clicks.simulate(data, data.X[:, 0], users, count, relevance=liked, seed=2 * seed + place, **how)
        logs.append((log, start, end, seed))
    return one_after_the_other(*logs)


def steady(data, liked, sessions=2_000, seed=0):
    return drifting(data, liked, liked, sessions, seed)


def brought(scores, data, liked, k=2):
    """Clicks of a session on the top k, mean over the queries: the sum of the definition."""
    rank = ranks_of(scores, data)
    looked = np.where(rank <= k, LOOKS[rank - 1], 0.0)
    return float(data.queries.sum(looked * (NOISE + (1 - NOISE) * liked)).mean())


# ---- weights ----


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e6), min_size=12, max_size=40, unique=True), st.floats(1e4, 1e7), st.floats(1e5, 1e7))
def test_weights_are_those_of_the_definition(times, half_life, window):
    n = len(times)
    log = ClickLog.from_columns(["q"] * n, ["d"] * n, [1] * n, [0] * n, session=np.arange(n), time=times)
    try:
        found = weights_by_age(times_of(log), half_life, window)
    except DataError:  # the newest alone counts
        return
    for time, weight in zip(times, found, strict=True):
        age = max(times) - time
        assert weight == pytest.approx(0.5 ** (age / half_life) if age <= window else 0.0, rel=1e-9)


def test_weighted_corrections_are_those_of_the_sessions_repeated():
    """A session of weight 3 is three sessions; so all corrections, and what propensities are harvested."""
    data, before, _ = world(1, 20)
    log = steady(data, before, 300)
    times = np.random.default_rng(0).integers(1, 4, log.n_sessions)
    weighed = replace(log, weights=times.astype(float))
    repeated = log.select(np.repeat(np.arange(log.n_sessions), times))
    curves = PropensityCurves(LOOKS, np.full(4, 0.02), "given", 0.25)
    for correction in ("none", "ips", "snips", "affine", "dr"):
        how = (data, correction, curves, 0.3, np.linspace(0, 1, data.n_documents))
        one, other = correct(weighed, *how), correct(repeated, *how)
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=1e-12)
        np.testing.assert_allclose(one.shown, other.shown)
    one, other = bind(weighed, data), bind(repeated, data)
    np.testing.assert_allclose(one.sessions, other.sessions)
    assert one.n_sessions.sum() == log.n_sessions
    for model in (PBM(), tr.clicks.DBN(), tr.clicks.DCM(), tr.clicks.RankCTR(), tr.clicks.Cascade(prior=(1, 1))):
        model.prior = (1.0, 1.0)
        a, b = (model.fit(one).click_probabilities(log) for one in (weighed, repeated))
        np.testing.assert_allclose(a, b, rtol=1e-4, err_msg=type(model).__name__)


@pytest.mark.parametrize("method", ["all-pairs", "pivot", "chain", "randomization", "trust"])
def test_propensities_of_late_sessions_are_found_where_positions_changed(method):
    data, liked, _ = world(2, 200)
    logs = []
    for place, looks in enumerate(([1, 0.9, 0.8, 0.7], LOOKS)):
        log = tr.clicks.simulate(
            data,
            liked,
            PBM.from_parameters(looks),
            30_000,
            k=4,
            relevance=liked,
            noise=NOISE,
            exploration=1.0,
            seed=place,
        )
        logs.append((log, place / 2, (place + 1) / 2, place))
    log = one_after_the_other(*logs)
    log = replace(log, columns={**log.columns, "explored": np.ones(log.n_impressions, dtype=bool)})
    found = tr.clicks.propensities(log, method, n_resamples=2, half_life="5d")
    whole = tr.clicks.propensities(log, method, n_resamples=2)
    np.testing.assert_allclose(found.values, LOOKS, atol=0.06)
    assert np.abs(whole.values - LOOKS).max() > 0.1
    assert "half as much for every 5 days" in found.summary
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("method", ["all-pairs", "pivot", "chain"])
def test_what_stood_where_long_ago_bends_no_propensities(method):
    """Good documents stood above at first, and anywhere later: each counts alike at both positions it is seen at."""
    data, liked, _ = world(3, 300)
    logs = []
    for place, explored in enumerate((0.1, 1.0)):
        log = tr.clicks.simulate(
            data,
            liked,
            PBM.from_parameters(LOOKS),
            60_000,
            k=4,
            relevance=liked,
            noise=NOISE,
            exploration=explored,
            seed=place,
        )
        logs.append((log, place / 2, (place + 1) / 2, place))
    found = tr.clicks.propensities(one_after_the_other(*logs), method, n_resamples=2, half_life="10d")
    np.testing.assert_allclose(found.values, LOOKS, atol=0.03)


def test_contexts_and_age_go_together():
    """Phones and desks whose positions changed, each otherwise: late sessions tell what holds now."""
    data, liked, _ = world(4, 300)
    logs, late = [], {"desk": LOOKS, "phone": LOOKS**2}
    for place, looks in enumerate(([1, 0.9, 0.8, 0.7], *late.values())):
        log = tr.clicks.simulate(
            data,
            liked,
            PBM.from_parameters(looks),
            40_000,
            k=4,
            relevance=liked,
            noise=NOISE,
            exploration=1.0,
            seed=place,
        )
        logs.append((log, min(place, 1) / 2, (min(place, 1) + 1) / 2, place))
    log = one_after_the_other(*logs)
    part = np.array([one.split("-")[0] for one in log.session_ids])
    device = np.where(part == "0", np.where(np.arange(log.n_sessions) % 2 == 0, "desk", "phone"), "desk")
    device[part == "2"] = "phone"
    log = replace(log, columns={**log.columns, "device": device[log.session]})
    found = tr.clicks.propensities(log, context="device", n_resamples=20, half_life="5d")
    whole = tr.clicks.propensities(log, context="device", n_resamples=20)
    for row, name in enumerate(found.names):
        np.testing.assert_allclose(found.values[row], late[name], atol=0.05)
        assert np.abs(whole.values[row] - late[name]).max() > 0.08
    rank = data.X[:, 1]
    right = tr.clicks.evaluate(rank, log, data, "clicks@2", context="device", propensities=late, half_life="5d")
    learned = tr.clicks.evaluate(rank, log, data, "clicks@2", context="device", half_life="5d")
    assert learned.value == pytest.approx(right.value, rel=0.05)


# ---- estimates ----


def share_of_after(half_life):
    """How much of the weight of a hundred days is of users who have changed, sessions coming evenly."""
    ages = np.linspace(0, 100, 200_001)
    weights = 0.5 ** (ages / half_life)
    return weights[ages <= 100 * (1 - CHANGE)].sum() / weights.sum()


def covered(runs, half_life=20, n=60):
    """In how many runs the interval of each estimator holds what it is said to estimate, and the mean without decay."""
    big, before, after = world(10**6, 50_000)
    now = share_of_after(half_life)
    truths = [brought(big.X[:, 1], big, (1 - part) * before + part * after) for part in (now, 1 - CHANGE)]
    holds, other = dict.fromkeys(("ips", "snips", "dr"), 0), 0
    for seed in range(runs):
        data, before, after = world(seed, n)
        log = drifting(data, before, after, 20 * n, seed)
        for name in holds:
            found = tr.clicks.evaluate(
                data.X[:, 1], log, data, "clicks@2", estimator=name, propensities=LOOKS, clip=0.0,
                half_life=f"{half_life}d",
            )  # fmt: skip
            low, high = found.interval
            holds[name] += low <= truths[0] <= high
            if name == "snips":
                other += low <= truths[1] <= high
    return holds, other


def test_intervals_of_decayed_estimates_hold_the_decayed_mean():
    runs = 40
    holds, other = covered(runs)
    assert all(binom.ppf(0.0005, runs, 0.95) <= one for one in holds.values()), holds
    assert other < 0.8 * runs  # and not that of the whole log, which is another number


@pytest.mark.nightly
def test_intervals_of_decayed_estimates_cover_as_they_say():
    runs = 1_000
    holds, _ = covered(runs)
    assert all(0.93 <= one / runs <= 0.97 for one in holds.values()), holds


def told_apart(runs, half_life="20d"):
    """How often two rankers that are equally good now, and on the mean before, are told apart."""
    decided = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        data, before, after = world(seed, 100)
        mixed = [(1 - part) * before + part * after for part in (0.3, 0.7)]
        X = np.stack([before + after + 0.5 * rng.normal(size=len(before)) for _ in range(2)], axis=1)
        data = data.replace(X=X)
        log = drifting(data, *mixed, 2_000, seed)
        found = tr.clicks.launch_report(
            log,
            data,
            data.X[:, 1],
            data.X[:, 0],
            k=2,
            propensities=LOOKS,
            half_life=half_life,
            min_effective_sample_size=1,
            seed=seed,
        )
        decided += found.decision != UNDECIDED
    return decided


def test_equally_good_rankers_are_hardly_ever_told_apart_under_decay():
    runs = 25
    assert told_apart(runs) <= binom.ppf(0.999, runs, 0.05)


@pytest.mark.nightly
def test_the_level_of_a_decayed_launch_holds():
    assert told_apart(1_000) <= 70


def test_without_a_change_decay_costs_variance_alone():
    errors = {None: [], "20d": []}
    samples = []
    for seed in range(60):
        data, liked, _ = world(seed, 30)
        log = steady(data, liked, 600, seed)
        truth = brought(data.X[:, 1], data, liked)
        weights = np.bincount(log.session_query, minlength=30) / log.n_sessions  # the queries as they were asked
        rank = ranks_of(data.X[:, 1], data)
        each = data.queries.sum(np.where(rank <= 2, LOOKS[rank - 1], 0.0) * (NOISE + (1 - NOISE) * liked))
        truth = float(each @ weights)
        for half_life, of in errors.items():
            found = tr.clicks.evaluate(
                data.X[:, 1], log, data, "clicks@2", propensities=LOOKS, estimator="ips", half_life=half_life
            )
            of.append(found.value - truth)
        samples.append(found.recency.effective / log.n_sessions)
    plain, decayed = (np.array(one) for one in errors.values())
    for one in (plain, decayed):
        assert abs(one.mean()) < 4 * one.std() / np.sqrt(len(one))
    ratio = decayed.var() / plain.var()
    assert 0.5 / np.mean(samples) < ratio < 2 / np.mean(samples)  # as many fewer sessions as Kish says
    assert ratio > 1.2


def test_a_log_of_the_past_misleads_and_decay_or_a_window_does_not():
    data, before, after = world(5, 300)
    log = drifting(data, before, after, 20_000)
    new, current = data.X[:, 1], data.X[:, 0]
    assert brought(new, data, after) > brought(current, data, after) + 0.1  # what users will see
    how = {"k": 2, "propensities": LOOKS}
    assert tr.clicks.launch_report(log, data, new, current, **how).decision == DO_NOT_LAUNCH
    for recency in ({"half_life": "7d"}, {"window": "20d"}, {"time_column": "time", "holdout": 0.2}):
        found = tr.clicks.launch_report(log, data, new, current, **how, **recency)
        assert found.decision == LAUNCH, recency
        assert found.difference.value == pytest.approx(
            brought(new, data, after) - brought(current, data, after), abs=0.06
        )
    ndcg = []
    for recency in ({}, {"half_life": "7d"}, {"window": "20d"}):
        learned = tr.clicks.train(tr.LinearRanker("Squared"), log, data, "snips", LOOKS, folds=0, **recency).ranker
        ndcg.append(brought(learned.predict(data), data, after))
    assert min(ndcg[1:]) > ndcg[0] + 0.05


def test_what_is_asked_for_changes_and_recent_sessions_say_what_counts_now():
    """The new ranker is worse where users came from at first, and better where they come from now."""
    data, liked, _ = world(11, 300)
    rng = np.random.default_rng(0)
    odd = data.queries.document_query % 2 == 1
    noise = rng.normal(size=len(liked))
    current, new = liked + 0.5 * noise, np.where(odd, liked + 0.1 * noise, liked + 3.0 * noise)
    log = tr.clicks.simulate(
        data, current, PBM.from_parameters(LOOKS), 40_000, k=4, relevance=liked, noise=NOISE, exploration=0.3, seed=3
    )
    late = rng.random(log.n_sessions) < np.where(log.session_query % 2 == 1, 0.9, 0.1)
    kept = ~late | (rng.random(log.n_sessions) < 0.2)
    days = np.where(late, rng.uniform(70, 100, log.n_sessions), rng.uniform(0, 70, log.n_sessions))
    log = replace(log, columns={"time": days[log.session] * DAY}).select(kept)
    rank = [ranks_of(one, data) for one in (new, current)]
    looked = np.subtract(*(np.where(one <= 2, LOOKS[one - 1], 0.0) for one in rank))
    each = data.queries.sum(looked * (NOISE + (1 - NOISE) * liked))
    now = 0.9 * each[1::2].mean() + 0.1 * each[::2].mean()
    assert now > 0.02
    how = {"k": 2, "propensities": LOOKS}
    assert tr.clicks.launch_report(log, data, new, current, **how).difference.high < 0
    for recency in ({"half_life": "5d"}, {"window": "25d"}):
        found = tr.clicks.launch_report(log, data, new, current, **how, **recency)
        weights = np.bincount(log.session_query, weights_by_age(times_of(log), **recency), data.n_queries)
        assert found.difference.low < each @ weights / weights.sum() < found.difference.high
        assert found.difference.value > 0


def test_the_effective_sample_is_kishs_and_enters_the_minimum():
    data, before, _ = world(3, 60)
    log = steady(data, before, 3_000)
    whole = tr.clicks.launch_report(
        log, data, data.X[:, 1], data.X[:, 0], k=2, propensities=LOOKS, min_effective_sample_size=1
    )
    weights = weights_by_age(times_of(log), "10d")
    found = tr.clicks.launch_report(
        log, data, data.X[:, 1], data.X[:, 0], k=2, propensities=LOOKS, half_life="10d", min_effective_sample_size=1
    )
    assert found.recency.effective == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    ratio = found.recency.effective / log.n_sessions
    assert found.effective_sample_size == pytest.approx(whole.effective_sample_size * ratio, rel=0.15)
    assert found.sessions == whole.sessions == log.n_sessions
    rank = [ranks_of(data.X[:, column], data) for column in (1, 0)]
    more = np.subtract(*(np.where(one <= 2, LOOKS[one - 1], 0.0) for one in rank))
    row, counted = log.rows(data)[log.pair], weights[log.session]
    looked = np.bincount(row, counted * LOOKS[log.position - 1], data.n_documents)
    asked = np.bincount(log.session_query, weights, data.n_queries)[log.query]
    each = np.abs(more[row]) * counted / looked[row] * asked  # what a click there adds to the difference
    assert found.effective_sample_size == pytest.approx(each.sum() ** 2 / (each**2).sum())
    between = round((found.effective_sample_size + whole.effective_sample_size) / 2)
    thin = tr.clicks.launch_report(
        log,
        data,
        data.X[:, 1],
        data.X[:, 0],
        k=2,
        propensities=LOOKS,
        half_life="10d",
        min_effective_sample_size=between,
    )
    assert thin.decision == UNDECIDED
    assert "effective sample" in thin.summary
    assert effective_sample_size(np.full(7, 0.3)) == pytest.approx(7)
    json.dumps(found.to_dict(), allow_nan=False)
    assert any("half as much for every 10 days" in one for one in found.rationale)


def test_queries_that_are_left_out_weigh_as_their_sessions_do():
    data, before, _ = world(4, 30)
    log = steady(data, before, 500)
    weighed = replace(log, weights=np.random.default_rng(0).random(500))
    kept, shares = jackknife_groups(weighed, 7, 0)
    for weights, share in zip(kept, shares, strict=True):
        out = weights[log.session_query] == 0
        assert share == pytest.approx(weighed.weights[out].sum() / weighed.weights.sum())
    found = tr.clicks.launch_report(
        weighed, data, data.X[:, 1], data.X[:, 0], k=2, min_effective_sample_size=1
    )  # propensities from the log
    again = tr.clicks.launch_report(
        replace(log, weights=7 * weighed.weights), data, data.X[:, 1], data.X[:, 0], k=2, min_effective_sample_size=1
    )
    assert found.difference.value == pytest.approx(again.difference.value)
    assert tuple(found.difference) == pytest.approx(tuple(again.difference))
    assert found.effective_sample_size == pytest.approx(again.effective_sample_size)


def test_a_window_is_the_log_of_these_days():
    data, before, after = world(4, 50)
    log = drifting(data, before, after, 2_000)
    times = times_of(log)
    part = log.select(times >= times.max() - 20 * DAY)
    one = tr.clicks.evaluate(data.X[:, 1], log, data, "clicks@2", propensities=LOOKS, window="20d")
    other = tr.clicks.evaluate(data.X[:, 1], part, data, "clicks@2", propensities=LOOKS)
    assert one.value == other.value
    assert tuple(one.interval) == tuple(other.interval)
    assert one.recency.sessions == part.n_sessions
    assert f"{part.n_sessions:,} of 2,000 sessions are from the last 20 days" in str(one)


@pytest.mark.parametrize("correction", ["none", "ips", "snips", "affine", "dr", "safe", "position"])
def test_every_correction_learns_from_weighted_sessions(correction):
    """What is half a life old counts half: two sessions of it are as good as one of today."""
    data, before, after = world(6, 40)
    log = drifting(data, before, after, 1_000)
    ranker = tr.TreeRanker(n_trees=5, num_leaves=4) if correction == "position" else tr.LinearRanker("Squared")
    if correction == "position":
        ranker.set_params(loss="ListNet")
    weighed = tr.clicks.train(ranker, log, data, correction, LOOKS, folds=0, half_life="20d", clip=0.0)
    plain = tr.clicks.train(ranker, log, data, correction, LOOKS, folds=0, clip=0.0)
    assert np.abs(weighed.ranker.predict(data) - plain.ranker.predict(data)).max() > 1e-3
    assert weighed.ranker.training_["clicks"]["half_life"] == 20 * DAY
    assert "half as much for every 20 days" in weighed.summary
    json.dumps(weighed.to_dict(), allow_nan=False)


@pytest.mark.parametrize("correction", ["none", "ips", "snips", "affine", "dr", "safe", "position"])
def test_training_on_weighted_sessions_is_training_on_them_repeated(correction):
    data, before, _ = world(1, 20)
    log = steady(data, before, 300)
    times = np.random.default_rng(0).integers(1, 4, log.n_sessions)
    weighed, repeated = replace(log, weights=times * 1.0), log.select(np.repeat(np.arange(log.n_sessions), times))
    ranker = (
        tr.LinearRanker("Squared") if correction != "position" else tr.TreeRanker("ListNet", n_trees=9, num_leaves=4)
    )
    scores = [
        tr.clicks.train(ranker, one, data, correction, LOOKS, folds=0, clip=0.1).ranker.predict(data)
        for one in (weighed, repeated)
    ]
    np.testing.assert_allclose(*scores, rtol=1e-6, atol=1e-6)
    assert np.ptp(scores[0]) > 0.01


def test_preferences_count_by_age():
    data = tr.RankingData([[0.0], [1.0]], qid=["q", "q"], document_ids=["x", "y"])
    log = ClickLog.from_columns(
        ["q"] * 8, list("xy") * 4, [1, 2] * 4, [0, 1] * 3 + [1, 0], time=np.repeat([0, 60, 120, 180], 2)
    )
    assert tr.clicks.preferences(log, data).query_weights.tolist() == [3.0]
    assert tr.clicks.preferences(log, data, half_life="1m").query_weights.tolist() == [1 / 8 + 1 / 4 + 1 / 2]
    assert tr.clicks.preferences(log, data, half_life="1m", window="2m").query_weights.tolist() == [1 / 4 + 1 / 2]


def test_users_who_stop_bring_the_same_by_weighted_sessions_as_by_them_repeated():
    data, before, _ = world(1, 20)
    log = steady(data, before, 300)
    log = replace(log, columns={"value": log.clicks * (1.0 + log.pair % 3)})
    times = np.random.default_rng(0).integers(1, 4, log.n_sessions)
    weighed, repeated = replace(log, weights=times * 1.0), log.select(np.repeat(np.arange(log.n_sessions), times))
    ranks = {"new": ranks_of(data.X[:, 1], data)}
    for reward in ("click", "value"):
        (one, shares), (other, counts) = (
            _expected_reward(tr.clicks.DBN(prior=(1, 1)).fit(of), ranks, of, data, (3, reward))
            for of in (weighed, repeated)
        )
        np.testing.assert_allclose(shares, counts)
        np.testing.assert_allclose(one["new"], other["new"], rtol=1e-3)


def test_models_are_compared_by_weighted_sessions_as_by_them_repeated():
    """Users who stop gave way to users who do not: by their ages, the sessions say so."""
    data, before, _ = world(1, 60)
    log = steady(data, before, 600)
    models = tr.clicks.compare_models(log, [tr.clicks.PBM(), tr.clicks.DBN()], n_resamples=2)
    held, times = models.held_out, np.random.default_rng(0).integers(1, 4, models.held_out.n_sessions)
    again = np.repeat(np.arange(held.n_sessions), times)
    weighed = replace(models, held_out=replace(held, weights=times * 1.0))
    repeated = replace(
        models, held_out=held.select(again), likely={name: one[again] for name, one in models.likely.items()}
    )
    assert weighed.gain("PBM", "DBN").value != pytest.approx(models.gain("PBM", "DBN").value, rel=1e-3)
    for one, other in zip(weighed.gain("PBM", "DBN"), repeated.gain("PBM", "DBN"), strict=True):
        assert one == pytest.approx(other, rel=1e-9)


def test_the_least_propensity_goes_by_how_many_sessions_of_equal_weight_would_tell_as_much():
    data, before, _ = world(1, 20)
    log, _ = recent(steady(data, before, 2_000), "10d", None)
    assert resolve_curves(None, log).least == pytest.approx(10 / np.sqrt(effective_sample_size(log.weights)))
    assert effective_sample_size(log.weights) < 0.5 * log.n_sessions


def test_a_launch_by_weighted_sessions_is_that_by_them_repeated_in_slices_and_bounds_too():
    data, before, _ = world(1, 40)
    half = (np.arange(40) % 3 > 0)[data.queries.document_query].astype(str)
    data = data.replace(metadata={"half": half})
    log = steady(data, before, 900).top(2)  # what stands lower was never shown, of some queries
    some = np.arange(log.n_sessions) % 40 < 4
    log = log.select(some)
    times = np.random.default_rng(0).integers(1, 6, log.n_sessions)
    weighed, repeated = replace(log, weights=times * 1.0), log.select(np.repeat(np.arange(log.n_sessions), times))
    one, other, plain = (
        tr.clicks.launch_report(
            shown,
            data,
            data.X[:, 1],
            data.X[:, 0],
            propensities=LOOKS,
            k=2,
            slice_by="half",
            min_effective_sample_size=1,
        )
        for shown in (weighed, repeated, log)
    )
    assert one.unseen_bounds[1] > 0 > one.unseen_bounds[0]
    np.testing.assert_allclose(one.unseen_bounds, other.unseen_bounds)
    np.testing.assert_allclose(one.decision_interval, other.decision_interval)
    assert one.unseen_bounds != pytest.approx(plain.unseen_bounds, rel=1e-3)
    for slice_of, again, alike in zip(one.slices, other.slices, plain.slices, strict=True):
        np.testing.assert_allclose([*slice_of.gain], [*again.gain])
        assert slice_of.gain.value != pytest.approx(alike.gain.value, rel=1e-3)


def test_users_who_stopped_long_ago_are_not_those_of_today():
    data, liked, _ = world(3, 150)
    how = {"k": 4, "relevance": liked, "noise": NOISE, "exploration": 1.0}
    stopping = tr.clicks.simulate(
        data, liked, tr.clicks.DBN.from_parameters(1.0), 12_000, seed=0, satisfaction=liked, **how
    )
    today = tr.clicks.simulate(data, liked, PBM.from_parameters(LOOKS), 6_000, seed=1, **how)
    log = one_after_the_other((stopping, 0, 0.5, 0), (today, 0.5, 1, 1))
    ask = (log, data, data.X[:, 1], data.X[:, 0], "click")
    assert tr.clicks.launch_report(*ask, k=3, propensities=LOOKS).cascade_check is not None
    assert tr.clicks.launch_report(*ask, k=3, propensities=LOOKS, half_life="4d").cascade_check is None


# ---- the latest, held out ----


def test_the_latest_sessions_are_held_out_and_no_ranker_learns_from_them():
    data, before, after = world(7, 100)
    log = drifting(data, before, after, 4_000)
    times = times_of(log)
    done = tr.clicks.train(tr.LinearRanker("Squared"), log, data, "snips", LOOKS, time_column="time", holdout=0.25)
    early = log.select(times < np.sort(times)[3_000])
    alone = tr.clicks.train(tr.LinearRanker("Squared"), early, data, "snips", LOOKS, folds=0)
    np.testing.assert_array_equal(done.ranker.predict(data), alone.ranker.predict(data))
    assert done.ranker.training_["clicks"]["sessions"] == 3_000
    assert "the latest 1,000 sessions, from 1970-" in done.summary
    assert "On the latest sessions" in done.summary
    late = log.select(times >= np.sort(times)[3_000])
    found = tr.clicks.evaluate(done.ranker, late, data, "dcg@10", clip=0.0)  # by the propensities of these sessions
    assert done.estimates["snips"].value == pytest.approx(found.value)
    same = tr.clicks.evaluate(done.ranker, log, data, "dcg@10", clip=0.0, time_column="time", holdout=0.25)
    assert (same.value, same.interval) == (found.value, found.interval)
    assert f"Evaluated on {same.to_dict()['held_out']}." in same.summary
    judged = tr.clicks.launch_report(
        log,
        data,
        done.ranker,
        done.naive,
        k=2,
        propensities=LOOKS,
        time_column="time",
        holdout=0.25,
        min_effective_sample_size=1,
    )
    assert judged.sessions == 1_000
    assert judged.training_overlap == (0.0, 0.0)


def test_sessions_of_one_moment_stay_together():
    log = ClickLog.from_columns(["q"] * 6, ["d"] * 6, [1] * 6, [0] * 6, session=np.arange(6), time=[5, 1, 5, 1, 1, 5])
    cut = latest(log, "time", 0.2)
    assert cut.late.session_ids.tolist() == [0, 2, 5]
    assert cut.early.session_ids.tolist() == [1, 3, 4]


def test_a_ranker_that_learned_from_the_sessions_does_not_win_by_them():
    data, before, _ = world(8, 300)
    log = steady(data, before, 12_000)
    done = tr.clicks.train(tr.LinearRanker("Squared"), log, data, "snips", LOOKS, folds=0)
    worse = -done.ranker.predict(data)
    how = {"k": 2, "propensities": LOOKS}
    found = tr.clicks.launch_report(log, data, done.ranker, worse, **how)
    assert found.training_overlap == (1.0, None)
    assert found.difference.low > 0
    assert replace(found, training_overlap=(0.0, None)).decision == LAUNCH
    assert found.decision == UNDECIDED
    assert "was trained on these sessions" in found.summary
    assert any("was trained on about 100% of these sessions" in one for one in found.rationale)
    assert tr.clicks.launch_report(log, data, worse, done.ranker, **how).decision == UNDECIDED  # the other way round
    fresh = steady(data, before, 12_000, seed=1)
    other = replace(fresh, session_ids=np.array([f"x{one}" for one in fresh.session_ids]))
    assert tr.clicks.launch_report(other, data, done.ranker, worse, **how).decision == LAUNCH
    half = np.arange(12_000) % 2 == 0
    some = tr.clicks.train(tr.LinearRanker("Squared"), log.select(half), data, "snips", LOOKS, folds=0)
    assert tr.clicks.launch_report(log, data, some.ranker, worse, **how).training_overlap[0] == pytest.approx(
        0.5, abs=0.2
    )


def test_models_know_their_sessions_again_from_a_file_and_in_any_view(tmp_path):
    data, before, _ = world(9, 50)
    log = steady(data, before, 1_000)
    tr.clicks.train(tr.LinearRanker("Squared"), log, data, "snips", LOOKS, folds=0).ranker.save(tmp_path / "m.toprank")
    known = TrainingOverlap.from_ranker(tr.load(tmp_path / "m.toprank"))
    times = log.columns["time"]
    tr.clicks.write(log, tmp_path / "log.parquet")
    bare = replace(log, columns={})
    nameless = replace(log, session_ids=None)
    views = {
        "late clicks": replace(log, clicks=np.ones_like(log.clicks)),
        "another order": log.select(np.random.default_rng(0).permutation(1_000)),
        "a file": tr.clicks.read(tmp_path / "log.parquet"),
        "another depth": log.top(2),
        "the top alone": bare.top(1),
        "without times": bare,
        "times by the day": replace(log, columns={"time": times // DAY * DAY}),
        "times of another zone": replace(log, columns={"time": times + 9 * 3600}),
        "other words of queries": replace(log, qids=np.array([f"query {qid}" for qid in log.qids])),
        "without ids": nameless,
        "without ids, another depth": nameless.top(2),
        "other ids": replace(log, session_ids=np.arange(1_000)),
    }
    assert {name: known.share(view) for name, view in views.items()} == dict.fromkeys(views, 1.0)
    unknown = {
        "neither ids nor times": replace(bare, session_ids=None),
        "without ids, times by the day": replace(nameless, columns={"time": times // DAY * DAY}),
        "without ids, times of another zone": replace(nameless, columns={"time": times + 9 * 3600}),
        "ids of another kind": replace(bare, session_ids=np.arange(1_000)),
        "the last day without ids, rounded up": replace(
            nameless, columns={"time": np.ceil(times / DAY) * DAY}
        ).select(times_of(log) > times_of(log).max() - DAY / 2),
    }  # fmt: skip
    assert {name: known.share(view) for name, view in unknown.items()} == dict.fromkeys(unknown)
    few = known.share(log.select(np.arange(30)))
    assert few is None or few == 1.0  # the sample tells of some eight, all of them known, or of none
    for ranker in (before, tr.LinearRanker(), None):
        assert TrainingOverlap.from_ranker(ranker) is None


def test_sessions_that_were_not_learned_from_are_told_by_ids_or_by_later_times():
    data, before, _ = world(9, 50)
    log, other = steady(data, before, 2_000), steady(data, before, 2_000, seed=1)
    renamed = replace(other, session_ids=np.array([f"other {one}" for one in other.session_ids]))
    known = TrainingOverlap.from_log(log)
    assert known.share(renamed) == 0.0
    assert known.share(replace(renamed, columns={})) == 0.0
    assert known.share(other) is None  # its ids are those of other queries and documents
    assert known.share(replace(other, columns={}, session_ids=None)) is None
    early = times_of(log) < 50 * DAY
    nameless = replace(log, session_ids=None)
    first_days = TrainingOverlap.from_log(nameless.select(early))
    assert first_days.share(nameless.select(~early)) == 0.0
    assert first_days.share(replace(nameless, columns={}).select(~early)) is None
    assert TrainingOverlap.from_log(log.select(early)).share(log.select(~early)) == 0.0
    half = np.arange(2_000) % 2 == 0
    assert TrainingOverlap.from_log(log.select(half)).share(log.top(2)) == pytest.approx(0.5, abs=0.15)
    assert TrainingOverlap.from_log(nameless.select(half)).share(nameless.select(~half)) is None


def test_ids_that_are_numbers_of_a_file_show_what_is_known_but_not_what_is_not():
    data, before, _ = world(9, 50)
    log, other = (replace(steady(data, before, 1_000, seed), columns={}) for seed in (0, 1))
    for numbers in (np.arange(1_000), np.arange(1_000) + 1):
        known = TrainingOverlap.from_log(replace(log, session_ids=numbers))
        assert known.share(replace(log.top(2), session_ids=numbers)) == 1.0
        assert known.share(replace(log, session_ids=numbers.astype(str).astype(object))) == 1.0
        assert known.share(replace(other, session_ids=numbers)) is None
        assert known.share(replace(other, session_ids=numbers + 5_000)) is None
    assert TrainingOverlap.from_log(replace(log, session_ids=None)) is None


def test_times_that_many_sessions_share_do_not_show_what_is_known():
    """On a day, every frequent query is asked: two logs of the same days agree by chance."""
    data, before, _ = world(9, 50)
    day = [replace(log, session_ids=None, columns={"time": log.columns["time"] // DAY * DAY})
           for log in (steady(data, before, 1_000, seed) for seed in (0, 1))]  # fmt: skip
    assert TrainingOverlap.from_log(day[0]).share(day[1]) is None


def test_records_of_older_files_are_loaded_and_do_not_count(tmp_path):
    data, before, _ = world(9, 50)
    log = steady(data, before, 1_000)
    ranker = tr.clicks.train(tr.LinearRanker("Squared"), log, data, "snips", LOOKS, folds=0).ranker
    for record in ({"least": "AAAAAAAAAAA=", "whole": False}, {"ids": {"least": ""}, "moments": None, "newest": None}):
        ranker.training_["clicks"]["known"] = record
        ranker.save(tmp_path / "m.toprank")
        older = tr.load(tmp_path / "m.toprank")
        assert TrainingOverlap.from_ranker(older) is None
        found = tr.clicks.launch_report(log, data, older, before, k=2, propensities=LOOKS)
        assert found.training_overlap == (None, None)
        assert any("is unknown" in one for one in found.rationale)


# ---- bad input ----


def timed(times, **more):
    n = len(times)
    return ClickLog.from_columns(["q"] * n, ["d"] * n, [1] * n, [0] * n, session=np.arange(n), time=times, **more)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("14d", 14 * DAY), ("36h", 36 * 3600), ("2w", 14 * DAY), ("90 m", 5400), ("10s", 10), ("10", 10), (10, 10),
     ("0.5D", DAY / 2), (datetime.timedelta(days=2), 2 * DAY), (np.timedelta64(3, "h"), 10_800)],
)  # fmt: skip
def test_spans(given, seconds):
    assert span_of(given, "window") == seconds


@pytest.mark.parametrize("given", [0, -1, "0d", "-3d", "14x", "d", "", np.nan, np.inf, True, "1e400d", [1], b"1d"])
def test_spans_that_are_none_are_refused(given):
    with pytest.raises(DataError, match=r"half_life must be a time above 0.*half_life='14d'"):
        tr.clicks.propensities(timed(np.arange(9.0)), half_life=given)


@pytest.mark.parametrize(
    "times",
    [
        np.array(["2026-01-01T00:00:00", "2026-01-01T00:01:00"]),
        np.array(["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"], dtype=object),
        np.array(["2026-01-01T00:00:00", "2026-01-01T00:01:00"], dtype="datetime64[ns]"),
        np.array([datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, 0, 1)], dtype=object),
        np.array(["2026-01-01", "2025-12-31T19:01:00-05:00"]),  # of several loggers, one of which says no zone
        np.array(["2026-01-01T01:00:00+0100", "2026-01-01 00:01"]),
        np.array([1_767_225_600.0, 1_767_225_660.0]),
        np.array([1_767_225_600_000, 1_767_225_660_000]),
        np.array([1_767_225_600_000_000, 1_767_225_660_000_000]),
        np.array(["1767225600", "1767225660"]),
    ],
)
def test_times_in_all_their_forms(times):
    assert times_of(timed(times)).tolist() == [1_767_225_600.0, 1_767_225_660.0]


def test_what_has_no_times_is_refused_in_a_sentence():
    log = timed(np.arange(9.0))
    with pytest.raises(DataError, match=r"no column 'time'.*with time='COLUMN'"):
        recent(replace(log, columns={}), "1d", None)
    with pytest.raises(DataError, match="no column 'time'"):
        latest(replace(log, columns={}), "time", 0.2)
    with pytest.raises(UnknownNameError, match="column of the log"):
        latest(log, "tiem", 0.2)
    with pytest.raises(DataError, match="other than times, such as 'soon'"):
        recent(timed(np.array(["soon", "later"] * 3)), "1d", None)
    with pytest.raises(DataError, match="other than times, such as 'soon'"):
        recent(timed(np.array(["2026-01-01T00:00:00Z", "2026-01-02", "soon"])), "1d", None)
    with pytest.raises(DataError, match="holds bool, not times"):
        recent(timed(np.ones(5, dtype=bool)), "1d", None)
    for empty in (np.nan, np.inf):
        with pytest.raises(DataError, match="1 of 3 sessions have no time in the column 'time', such as session 1"):
            recent(timed(np.array([1.0, empty, 3.0])), "1d", None)
    with pytest.raises(DataError, match="2 of 3 sessions have no time"):
        recent(timed(np.array(["2026-01-01", "", None], dtype=object)), "1d", None)
    for how in (("1d", None), (None, "1d")):
        with pytest.raises(DataError, match="All 9 sessions have the same time"):
            recent(timed(np.full(9, 5.0)), *how)
    with pytest.raises(DataError, match=r"the same time.*hold out without time_column"):
        latest(timed(np.full(9, 5.0)), "time", 0.2)
    for share in (0, 1, -0.1, np.nan):
        with pytest.raises(DataError, match="holdout"):
            latest(log, "time", share)


def test_one_clock_far_ahead_is_found_where_it_would_take_all_weight():
    times = np.append(np.linspace(0, 30 * DAY, 200), 4e9)
    whole = r"newest of 201 sessions alone has 100% of the weight of all, dated 2096-.* days after the one before"
    with pytest.raises(DataError, match=whole):
        recent(timed(times), "14d", None)
    with pytest.raises(DataError, match="leaves nothing but the newest of 201 sessions"):
        recent(timed(times), None, "90d")
    assert recent(timed(times), "50000d", None)[1].effective > 150  # here it does no harm
    with pytest.raises(DataError, match="of the weight of all"):
        recent(timed(np.linspace(0, 30 * DAY, 200)), "1s", None)


def test_a_clock_that_goes_back_makes_sessions_older_and_nothing_else():
    """The order is that of the times, wherever a session stands."""
    times = np.linspace(0, 30 * DAY, 100)
    mixed = np.random.default_rng(0).permutation(100)
    forward, shuffled = (
        weights_by_age(times_of(timed(times)), "5d"),
        weights_by_age(times_of(timed(times[mixed])), "5d"),
    )
    np.testing.assert_array_equal(shuffled, forward[mixed])


def test_the_commands_take_them(tmp_path):
    data, before, after = world(5, 120)
    log = drifting(data, before, after, 8_000)
    log = replace(log, columns={"day": log.columns["time"]})
    tr.write(data.replace(labels=np.zeros(data.n_documents)), tmp_path / "data.txt")
    tr.clicks.write(log, tmp_path / "log.parquet")
    paths = [str(tmp_path / "log.parquet"), str(tmp_path / "data.txt")]
    looks = ["--propensities", ",".join(map(str, LOOKS))]
    model, other = str(tmp_path / "m.toprank"), str(tmp_path / "old.toprank")

    def run(*words):
        return CliRunner().invoke(app, [*words, *looks])

    learn = ["clicks", "train", *paths, "--system", "LeastSquares", "--time", "day", "--time-column", "time"]
    found = run(*learn, "-o", model, "--half-life", "7d", "--window", "60d")
    assert found.exit_code == 0, found.output
    assert "the latest 1,600 sessions" in found.stdout
    assert run(*learn, "-o", other).exit_code == 0
    decide = ["launch-report", *paths, "--new", model, "--current", other, "--k", "2", "--time", "day"]
    found = run(*decide, "--time-column", "time", "--half-life", "7d", "--json")
    assert found.exit_code in (0, 4), found.output
    told = json.loads(found.stdout)
    assert told["sessions"] == 1_600
    assert told["recency"]["half_life"] == 7 * DAY
    assert told["training_overlap"] == [0.0, 0.0]
    found = run(*decide, "--half-life", "7 days")
    assert found.exit_code == 1
    assert "Give --half-life 14d." in str(found.exception)
    assert "--time COLUMN" in str(run(*decide[:-2], "--half-life", "7d").exception)
    scores = tmp_path / "s.txt"
    np.savetxt(scores, data.X[:, 1])
    latest_sessions = ["--time", "day", "--time-column", "time", "--window", "20d"]
    found = run("clicks", "evaluate", str(scores), *paths, "--metrics", "clicks@2", *latest_sessions)
    assert found.exit_code == 0, found.output
    assert "Evaluated on the latest 1,600 sessions" in found.stdout
    assert "are from the last 20 days" in found.stdout


def test_the_doctor_counts_clocks_that_are_wrong_and_sessions_without_a_time():
    n = 3_000
    times = np.linspace(0, 30 * DAY, n)
    assert not [one for one in tr.clicks.check(timed(times)).findings if one.code in ("times", "clocks")]

    def found(times, **more):
        log = replace(timed(np.asarray(times)), **more)
        return {(one.code, one.severity): one.count for one in tr.clicks.check(log).findings}

    ahead = np.append(times[:-2], [4e9, 4e9 + 5])
    assert found(ahead)["clocks", "warning"] == 2
    missing = times.copy()
    missing[7:10] = np.nan
    assert found(missing)["times", "warning"] == 3
    for nothing in (np.full(n, np.nan), [""] * n, [None] * n, np.full(n, np.datetime64("NaT"))):
        assert found(nothing) == {**found(times), ("times", "warning"): n}
    back = np.concatenate([times[:2_000], times[1_000:2_000]])  # set back once
    assert found(back, session_ids=None)["clocks", "note"] == 1
    assert ("clocks", "note") not in found(back)  # ids of sessions tell no order
    assert found(np.array(["soon", "later"] * 50))["times", "warning"] == 100
    quiet = np.append(times[:-2], times[-3] + np.array([1, 2]) * DAY)  # a log that paused for a day
    assert ("clocks", "warning") not in found(quiet)
