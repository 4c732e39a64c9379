"""Simulated users, and propensities harvested from their logs: unbiased, covered, and refused where unknowable."""

from dataclasses import replace

import numpy as np
import pytest

import toprank as tr
from toprank.clicks import DBN, PBM, ClickLog, UnidentifiedWarning, intervention_harvesting, simulate
from toprank.clicks.intervention_harvesting import _keeps_its_places, graph, harvested
from toprank.clicks.simulation import relevance_of
from toprank.errors import DataError, UnknownNameError
from toprank.rankers.base import ConvergenceWarning

TRUTH = 1 / np.arange(1, 5) ** 0.8


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=120, n_documents=(6, 15), n_features=4, n_grades=4, seed=0)


def turns(data, sessions=20_000, seed=0, **options):
    scores = {name: data.X[:, place] for place, name in enumerate("abc")}
    return simulate(data, scores, PBM.from_parameters(TRUTH), sessions, k=4, seed=seed, **options)


def test_what_is_shown_is_the_top_of_a_ranker(data):
    log = turns(data, 200)
    assert (np.diff(log.offsets) == 4).all()
    assert set(log.columns["ranker"]) == set("abc")
    for session in range(20):
        rows = log.pair[log.offsets[session] : log.offsets[session + 1]]
        column = "abc".index(log.columns["ranker"][log.offsets[session]])
        of_query = np.flatnonzero(data.queries.document_query == log.session_query[session])
        best = of_query[np.argsort(-data.X[of_query, column], kind="stable")[:4]]
        assert rows.tolist() == best.tolist()


def test_clicks_have_the_rate_of_the_formula(data):
    log = turns(data, 40_000, noise=0.2)
    wanted = TRUTH[log.position - 1] * (0.2 + 0.8 * relevance_of(data)[log.pair])
    for place in range(4):
        here = log.position == place + 1
        error = np.sqrt((wanted * (1 - wanted))[here].mean() / here.sum())
        assert abs(log.clicks[here].mean() - wanted[here].mean()) < 5 * error


def test_trust_lifts_what_stands_above(data):
    right, wrong = np.full(4, 0.95), np.array([0.6, 0.4, 0.2, 0.1])
    log = turns(data, 40_000, trust=(right, wrong), relevance=np.zeros(data.n_documents))
    rates = [log.clicks[log.position == k].mean() for k in range(1, 5)]
    np.testing.assert_allclose(rates, TRUTH * wrong, atol=5 * np.sqrt(0.25 / 40_000))


def test_exploration(data):
    log = turns(data, 3_000, exploration=0.5)
    assert 0.45 < log.columns["explored"].mean() < 0.55
    plain, swapped = (turns(data, 3_000, exploration=share, exploration_method="swap") for share in (0, 1))
    same = plain.pair == swapped.pair
    assert (same.reshape(-1, 4).sum(axis=1) == 2).all()  # two of four have changed places
    assert (np.sort(plain.pair.reshape(-1, 4)) == np.sort(swapped.pair.reshape(-1, 4))).all()
    assert not same.reshape(-1, 4)[:, 0].any()


def test_users_who_disagree_like_as_much_but_other_documents(data):
    mine, theirs = turns(data, 20_000), turns(data, 20_000, relevance_shuffle=1.0)
    judged = [np.corrcoef(log.clicks, relevance_of(data)[log.pair])[0, 1] for log in (mine, theirs)]
    assert judged[0] > judged[1] + 0.1


def test_popular_queries_are_asked_for_more_often(data):
    counts = np.sort(np.bincount(turns(data, 20_000, zipf_exponent=1.0).session_query))[::-1]
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.4)


def test_the_same_seed_gives_the_same_log(data):
    one, two, other = turns(data, 500), turns(data, 500), turns(data, 500, seed=1)
    assert (one.clicks == two.clicks).all()
    assert (one.pair != other.pair).any()


def test_cascades_are_simulated_too(data):
    log = simulate(data, data.X[:, 0], DBN.from_parameters(0.8), 3_000, k=4)
    assert abs(DBN().fit(log).continuation_ - 0.8) < 0.1


@pytest.mark.parametrize("method", ["all-pairs", "pivot", "chain"])
def test_harvests_are_unbiased_and_their_intervals_hold_the_truth(method, data):
    found = [harvested(turns(data, seed=seed), method, n_resamples=40, seed=seed) for seed in range(8)]
    values = np.array([one.values for one in found])
    spread = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - TRUTH)[1:] < 4 * spread[1:] + 0.01).all()
    inside = [(one.intervals.low <= TRUTH) & (one.intervals.high >= TRUTH) for one in found]
    assert np.mean([one[1:] for one in inside]) >= 0.75  # of 95 %, 24 of them


def test_randomization_uses_the_sessions_that_were_shuffled(data):
    log = turns(data, 40_000, exploration=0.5)
    found = harvested(log, "randomization", n_resamples=60)
    chosen = log.columns["explored"]
    rate = [log.clicks[chosen & (log.position == k)].mean() for k in range(1, 5)]
    np.testing.assert_allclose(found.values, np.array(rate) / rate[0])
    assert (found.intervals.low <= TRUTH)[1:].sum() + (found.intervals.high >= TRUTH)[1:].sum() >= 5


def test_lists_that_nothing_says_were_shuffled_are_looked_at(data):
    shuffled = turns(data, 4_000, exploration=1.0)
    bare = replace(shuffled, columns={})
    found = [harvested(log, "randomization", n_resamples=2).values for log in (shuffled, bare)]
    np.testing.assert_array_equal(*found)
    with pytest.warns(UnidentifiedWarning, match=r"not all lists of this log were shuffled.* column 'explored'"):
        harvested(replace(turns(data, 4_000), columns={}), "randomization", n_resamples=2)
    alone = replace(simulate(data, data.X[:, 0], PBM.from_parameters(TRUTH), 500, k=4), columns={})
    one = harvested(alone, "randomization", n_resamples=2)
    assert one.identified.tolist() == [True, False, False, False]
    assert np.isnan(one.values[1:]).all()
    few = shuffled.select(np.unique(shuffled.session_query, return_index=True)[1])  # each query once: nothing is joined
    assert harvested(few, "randomization", n_resamples=2).identified.all()  # and yet they were shuffled, as is told


def test_shuffled_lists_look_shuffled_whatever_their_lengths_and_popularity():
    for seed in range(60):
        data = tr.synthetic(n_queries=40, n_documents=(1, 6), n_features=2, seed=seed)
        log = turns_of_two(data, seed)
        assert not _keeps_its_places(log)


def turns_of_two(data, seed, **options):
    scores = {name: data.X[:, place] for place, name in enumerate("ab")}
    options = {"exploration": 1.0, "zipf_exponent": 1.0, **options}
    return simulate(data, scores, PBM.from_parameters(TRUTH), 400, k=4, seed=seed, **options)


def test_one_deterministic_ranker_tells_nothing(data):
    log = simulate(data, data.X[:, 0], PBM.from_parameters(TRUTH), 500, k=4)
    found = harvested(log, n_resamples=5)
    assert found.identified.tolist() == [True, False, False, False]
    assert np.isnan(found.values[1:]).all()
    assert "positions 2, 3, 4 to the first, so the log does not identify" in str(found)
    assert graph(log).components == ((1,), (2,), (3,), (4,))


def test_the_graph_counts_what_joins_positions():
    #        a at 1 and 2 (3 impressions), b at 2 and 3 (2), c at 4 alone
    log = ClickLog.from_columns(["q"] * 6, list("aaabbc"), [1, 1, 2, 2, 3, 4], [0] * 6, session=list("uvwvwv"))
    found = graph(log)
    assert [tuple(edge) for edge in found.edges] == [(1, 2, 1, 3), (2, 3, 1, 2)]
    assert found.components == ((1, 2, 3), (4,))
    two = graph(ClickLog.from_columns(["q"] * 4, list("abba"), [1, 2, 1, 2], [0] * 4))
    assert [two.joined(documents).tolist() for documents in (2, 3)] == [[True, True], [True, False]]
    pivot = harvested(log, "pivot", n_resamples=3)
    assert pivot.identified.tolist() == [True, True, False, False]


def test_all_pairs_is_exact_where_rates_are():
    """Rates that are p_k × r exactly: whatever the weights of documents, the ratios come out."""
    p, worth = np.array([1.0, 0.6, 0.3]), np.array([0.9, 0.5, 0.2, 0.7])
    rows = [(d, k, round(1000 * p[k] * worth[d])) for d in range(4) for k in range(3)]
    document = np.concatenate([np.full(1000, d) for d, _, _ in rows])
    position = np.concatenate([np.full(1000, k + 1) for _, k, _ in rows])
    click = np.concatenate([np.arange(1000) < clicks for _, _, clicks in rows])
    log = ClickLog.from_columns(np.zeros(len(click)), document, position, click, session=np.arange(len(click)))
    for method in ("all-pairs", "pivot", "chain"):
        np.testing.assert_allclose(harvested(log, method, n_resamples=2).values, p, atol=1e-3)


def test_refusals(data):
    with pytest.raises(DataError, match="probability"):
        turns(data, 10, relevance=np.full(data.n_documents, 2.0))
    with pytest.raises(UnknownNameError, match="exploration method"):
        turns(data, 10, exploration_method="dance")
    with pytest.raises(DataError, match="trust"):
        turns(data, 10, trust=([0.5], [0.1]))
    with pytest.raises(UnknownNameError, match="method of propensities"):
        harvested(turns(data, 10), "magic")
    with pytest.raises(DataError, match="shuffled"):
        harvested(turns(data, 10), "randomization")


def silent(data, position, kept=0):
    """A log whose position has no clicks but the first few."""
    log = turns(data, 3_000, exploration=0.2)
    there = np.flatnonzero(log.clicks & (log.position == position))[kept:]
    return replace(log, clicks=np.where(np.isin(np.arange(log.n_impressions), there), False, log.clicks))


@pytest.mark.parametrize("method", ["all-pairs", "pivot", "chain", "randomization"])
def test_a_position_without_clicks_is_0_and_has_no_upper_end(method, data):
    log = silent(data, 4)
    found = tr.clicks.propensities(log, method, n_resamples=20)
    low, high = found.intervals
    assert (found.values[3], low[3], high[3]) == (0, 0, np.inf)
    assert (found.values[:3] > 0).all()
    assert np.isfinite(high[:3]).all()
    assert "[0.000, ∞]" in str(tr.clicks.check(log, n_resamples=20).table().text())


def test_a_position_with_one_click_is_not_taken_for_a_wide_one(data):
    found = tr.clicks.propensities(silent(data, 4, 1))
    assert 0 == found.intervals.low[3] < found.values[3] < found.intervals.high[3] < 0.1 * TRUTH[3]


@pytest.mark.parametrize("method", ["all-pairs", "pivot", "chain", "trust"])
def test_nothing_can_be_compared_with_a_first_position_without_clicks(method, data):
    log = silent(data, 1)
    found = tr.clicks.propensities(log, method, n_resamples=5)
    assert np.isnan(found.values[1:]).all()
    assert "was clicked at the first position" in str(found)
    assert "wide-intervals" not in [one.code for one in tr.clicks.check(log, n_resamples=5).findings]


def test_a_least_propensity_makes_up_for_one_of_0(data):
    log = silent(data, 4)
    there = int((log.position == 4).sum())
    curves = [1, 0.5, 0.3, 0, 0][: log.depth]
    for correction in ("ips", "affine", "snips"):
        lost = [tr.clicks.train(tr.LinearRanker("Squared"), log, data, correction, curves, clip=clip).counts
                for clip in (None, 0.1)]  # fmt: skip
        assert lost[0]["without_propensity"] - lost[1]["without_propensity"] >= there
    rate = tr.clicks.evaluate(data.X[:, 0], log, data, "ctr@4", propensities=curves)
    assert np.isfinite(rate.value)


def test_a_fit_of_all_pairs_that_does_not_come_to_rest_says_so(data, monkeypatch):
    log = turns(data, 300)
    monkeypatch.setattr(intervention_harvesting, "_MAX_ITERATIONS", 1)
    with pytest.warns(ConvergenceWarning, match="all-pairs did not converge: too few clicks connect") as told:
        harvested(log, n_resamples=5)
    assert len(told) == 1  # of the log itself, and not of every draw from it
