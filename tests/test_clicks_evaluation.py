"""Off-policy estimates, interleaving and preferences, against what is known of simulated users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

import toprank as tr
from toprank.clicks import PBM, ClickLog
from toprank.clicks.evaluation import evaluate
from toprank.clicks.interleaved import interleave, interleaving
from toprank.clicks.preferring import preferences
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.ranking import ranking

THETA = np.array([1.0, 0.6, 0.4, 0.25])


def little(n_queries=30, m=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_queries * m, 2))
    return RankingData(X, qid=np.repeat(np.arange(n_queries), m)), 1 / (1 + np.exp(-2 * X[:, 1]))


def clicked(data, liked, scores, sessions, **options):
    options = {"k": 4, "relevance": liked, "noise": 0.0, **options}
    return tr.clicks.simulate(data, scores, PBM.known(THETA), sessions, **options)


def true_dcg(data, liked, scores, k, log):
    """DCG@k of the ranking by `scores`, a session of the log counting once."""
    rank = np.empty(len(liked), dtype=int)
    rank[ranking(scores, data.queries).order] = np.tile(np.arange(4), data.n_queries)
    weights = np.where(rank < k, 1 / np.log2(rank + 2), 0)
    sessions = np.bincount(log.session_query, minlength=data.n_queries)
    return float(data.queries.sum(weights * liked) @ sessions / sessions.sum())


@pytest.mark.parametrize("estimator", ["ips", "snips", "affine", "dr"])
def test_estimates_of_another_ranker_are_right_and_clicks_as_they_are_are_not(estimator):
    data, liked = little()
    errors, naive, inside = [], [], []
    for seed in range(60):
        log = clicked(data, liked, data.X[:, 0], 400, exploration=0.3, seed=seed)
        truth = true_dcg(data, liked, data.X[:, 1], 3, log)
        found = evaluate(data.X[:, 1], log, data, "dcg@3", estimator=estimator, propensities=THETA, resamples=50)
        naive.append(evaluate(data.X[:, 1], log, data, "dcg@3", estimator="none", resamples=2).value - truth)
        errors.append(found.value - truth)
        inside.append(found.interval[0] <= truth <= found.interval[1])
    standard_error = np.std(errors) / np.sqrt(len(errors))
    assert abs(np.mean(errors)) < 4 * standard_error + (0.03 if estimator == "dr" else 0)  # dr: clipped, so its bias
    assert np.mean(naive) < -0.2
    assert np.mean(inside) > 0.8


def test_the_rate_of_clicks_of_the_logger_itself_is_what_was_clicked():
    data, liked = little()
    log = clicked(data, liked, data.X[:, 0], 5000)
    found = evaluate(data.X[:, 0], log, data, ["ctr@4", "ctr@1"], estimator="affine", propensities=THETA)
    assert found.mean["ctr@4"] == pytest.approx(log.clicks.mean())
    assert found.mean["ctr@1"] == pytest.approx(log.clicks[log.position == 1].mean())
    assert set(found.per_query) == {"ctr@4", "ctr@1"}
    assert len(found.to_frame()) == 2


def test_effective_impressions_and_documents_never_shown_are_counted():
    data, liked = little()
    log = clicked(data, liked, data.X[:, 0], 3000, k=2)
    same = evaluate(data.X[:, 0], log, data, "dcg@1", estimator="affine", propensities=[1, 0.5])
    first = log.position == 1
    weights = np.bincount(log.query[first], minlength=data.n_queries)[log.query[first]]
    shares = weights / np.bincount(log.query[first])[log.query[first]]
    assert same.effective_sample_size["dcg@1"] == pytest.approx(shares.sum() ** 2 / (shares**2).sum())
    assert same.unseen["dcg@1"] == 0
    turned = evaluate(-data.X[:, 0], log, data, "dcg@2", estimator="snips", propensities=[1, 0.5])
    assert turned.unseen["dcg@2"] == turned.ranked["dcg@2"] == 2 * len(np.unique(log.query))
    assert turned.value == 0
    assert "too low by them" in str(turned)
    robust = evaluate(-data.X[:, 0], log, data, "dcg@2", estimator="dr", propensities=[1, 0.5], regression=liked)
    assert robust.value == pytest.approx(true_dcg(data, liked, -data.X[:, 0], 2, log))


def test_bad_evaluations_are_refused():
    data, liked = little()
    log = clicked(data, liked, data.X[:, 0], 100)
    for wrong in ({"metrics": "ndcg@10"}, {"metrics": "ctr"}, {"estimator": "magic"}):
        with pytest.raises(UnknownNameError):
            evaluate(data.X[:, 0], log, data, **{"propensities": THETA, **wrong})
    with pytest.raises(DataError, match="shown at two positions"):
        evaluate(data.X[:, 0], log, data)
    with pytest.raises(DataError, match="propensities of all positions"):
        evaluate(data.X[:, 0], log, data, "ctr@4", propensities=[1, 0.6, 0, 0.25])
    with pytest.raises(DataError, match="2 metrics"):
        _ = evaluate(data.X[:, 0], log, data, ["dcg", "dcg@2"], propensities=THETA).value


# --- interleaving --------------------------------------------------------------------------------------------------


def shown_to_users(log, liked, seed):
    attraction = liked[log.pair]
    return replace(log, clicks=PBM.known(THETA).draw(log, attraction, attraction, np.random.default_rng(seed)))


@pytest.mark.parametrize("method", ["team-draft", "probabilistic"])
def test_users_prefer_the_better_ranker_and_neither_of_two_that_are_the_same(method):
    data, liked = little()
    rankers = {"good": data.X[:, 1], "bad": data.X[:, 0]}
    given = {"a": rankers["good"], "b": rankers["bad"], "data": data} if method == "probabilistic" else {}
    log = shown_to_users(interleave(rankers["good"], rankers["bad"], data, 1500, k=4, method=method), liked, 1)
    found = interleaving(log, method=method, **given)
    assert found.share > 0.5
    assert found.p < 0.01
    assert found.interval[0] > 0.5
    assert found.p == pytest.approx(binomtest(found.wins, found.wins + found.losses).pvalue)
    assert found.wins + found.losses + found.ties + found.unclicked == 1500
    assert "Users prefer a" in str(found)
    same = shown_to_users(interleave(rankers["bad"], rankers["bad"], data, 1500, k=4, method=method, seed=2), liked, 3)
    if method == "probabilistic":
        assert interleaving(same, method=method, a=rankers["bad"], b=rankers["bad"], data=data).ties > 0
        assert interleaving(same, method=method, a=rankers["bad"], b=rankers["bad"], data=data).share != 1.0
    else:
        assert interleaving(same).p > 0.01


def test_probabilistic_credit_is_the_share_of_the_chances():
    data = RankingData(np.zeros((3, 1)), qid=["q"] * 3, document_ids=["x", "y", "z"])
    log = ClickLog.of(["q"] * 2, ["y", "x"], [1, 2], [1, 1])
    a, b = [3.0, 2.0, 1.0], [1.0, 3.0, 2.0]  # x y z, and y z x
    total = 1 + 1 / 8 + 1 / 27
    first = (1 / 8 / total, 1 / total)  # of drawing y
    second = (1 / (total - 1 / 8), 1 / 27 / (total - 1))  # of drawing x, y gone
    expected = sum((one - other) / (one + other) for one, other in (first, second))
    assert interleaving(log, a=a, b=b, data=data, method="probabilistic").credit == pytest.approx(expected)


def test_drafts_hold_the_best_of_both_without_repeats():
    data, _ = little()
    log = interleave(data.X[:, 0], data.X[:, 1], data, 50, k=3)
    for session in range(log.n_sessions):
        rows = slice(*log.offsets[session : session + 2])
        assert len(set(log.pair[rows].tolist())) == 3
        assert {"a", "b"} == set(log.columns["team"][rows][:2].tolist())  # each has one of the first two
    with pytest.raises(DataError, match="column team"):
        interleaving(replace(log, columns={}))
    with pytest.raises(DataError, match="give a=, b= and data="):
        interleaving(log, method="probabilistic")
    with pytest.raises(UnknownNameError):
        interleaving(log, method="teamdraft!")


# --- preferences ---------------------------------------------------------------------------------------------------


def test_clicked_is_preferred_to_skipped_above_and_to_nothing_else():
    data = RankingData(np.arange(4.0)[:, None], qid=["q"] * 4, document_ids=list("wxyz"))
    log = ClickLog.of(["q"] * 8, list("wxyzwxyz"), [1, 2, 3, 4] * 2, [0, 1, 1, 0, 0, 1, 0, 0])
    pairs = preferences(log, data)
    found = {
        (float(pairs.X[2 * q, 0]), float(pairs.X[2 * q + 1, 0])): weight
        for q, weight in enumerate(pairs.query_weights.tolist())
    }
    assert found == {(1.0, 0.0): 2.0, (2.0, 0.0): 1.0}  # x over w twice, y over w once; never x over z
    assert pairs.labels.tolist() == [1.0, 0.0, 1.0, 0.0]
    ranker = tr.LinearRanker("Logistic").fit(pairs)
    assert ranker.coef_[0] > 0
    with pytest.raises(DataError, match="no such preferences"):
        preferences(ClickLog.of(["q"], ["w"], [1], [1]), data)
