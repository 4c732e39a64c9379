"""Off-policy estimates, interleaving and preferences, against what is known of simulated users."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from scipy.stats import t as student

import toprank as tr
from support import nightly
from toprank.clicks import PBM, ClickLog, estimators
from toprank.clicks.corrections import Correction, data_queries, preferences, resolve_curves
from toprank.clicks.evaluation import LowEffectiveSampleSizeWarning, evaluate
from toprank.clicks.evidence import Evidence, bind, out_of_fold_regression
from toprank.clicks.interleaved import analyze_interleaving, interleave
from toprank.clicks.log import jackknife_groups, named
from toprank.clicks.policies import Metric, ranks_of
from toprank.data.dataset import RankingData
from toprank.data.division import Division
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.sorting import ranking

THETA = np.array([1.0, 0.6, 0.4, 0.25])


def little(n_queries=30, m=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_queries * m, 2))
    return RankingData(X, qid=np.repeat(np.arange(n_queries), m)), 1 / (1 + np.exp(-2 * X[:, 1]))


def clicked(data, liked, scores, sessions, **options):
    options = {"k": 4, "relevance": liked, "noise": 0.0, **options}
    return tr.clicks.simulate(data, scores, PBM.from_parameters(THETA), sessions, **options)


def true_dcg(data, liked, scores, k, log=None):
    """DCG@k of the ranking by `scores`, a session of the log counting once; without one, a query."""
    rank = np.empty(len(liked), dtype=int)
    rank[ranking(scores, data.queries).order] = np.tile(np.arange(4), data.n_queries)
    weights = np.where(rank < k, 1 / np.log2(rank + 2), 0)
    sessions = np.ones(data.n_queries)
    if log is not None:
        sessions = np.bincount(log.session_query, minlength=data.n_queries)
    return float(data.queries.sum(weights * liked) @ sessions / sessions.sum())


ESTIMATORS = ("ips", "snips", "affine", "dr", "none")


@pytest.fixture(scope="module")
def many_estimates():
    """Of each estimator, from many logs of other queries each: the error on these queries, and whether the interval
    holds the mean of all queries, of which those were drawn."""
    data, liked = little(n_queries=50_000, seed=10**6)
    everywhere = true_dcg(data, liked, data.X[:, 1], 3)
    errors: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    inside: dict[str, list[bool]] = {name: [] for name in ESTIMATORS}
    for seed in range(120):
        data, liked = little(n_queries=20, seed=seed)
        log = clicked(data, liked, data.X[:, 0], 300, exploration=0.3, seed=seed, zipf_exponent=0.5)
        truth = true_dcg(data, liked, data.X[:, 1], 3, log)
        for name in ESTIMATORS:
            given = None if name == "none" else THETA
            found = evaluate(data.X[:, 1], log, data, "dcg@3", estimator=name, propensities=given, clip=0.0)
            errors[name].append(found.value - truth)
            inside[name].append(found.interval.low <= everywhere <= found.interval.high)
    return errors, inside


@pytest.mark.parametrize("estimator", ["snips", *nightly(*(name for name in ESTIMATORS if name != "snips"))])
def test_estimates_of_another_ranker_are_right_and_intervals_cover_as_they_say(many_estimates, estimator):
    errors, inside = (np.array(one[estimator]) for one in many_estimates)
    if estimator == "none":  # clicks as they are
        assert errors.mean() < -0.4
        assert inside.mean() < 0.05
        return
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(len(errors))
    assert binomtest(int(inside.sum()), len(inside), 0.95).pvalue > 0.001


def test_intervals_contain_the_uncertainty_of_propensities_estimated_from_the_same_log():
    data, liked = little(60)
    log = clicked(data, liked, data.X[:, 0], 6000, exploration=0.3)
    found = evaluate(data.X[:, 1], log, data, "dcg@3")

    def plugged_in(part):
        given = tr.clicks.propensities(part, n_resamples=2)
        return evaluate(data.X[:, 1], part, data, "dcg@3", propensities=given)

    known = plugged_in(log)
    assert np.diff([*found.interval]) > np.diff([*known.interval])
    # Groups of queries, left out one at a time.
    group, rests = np.argmin(jackknife_groups(log, 20, 0)[0], axis=0)[log.session_query], []
    assert (np.bincount(group[np.unique(log.session_query, return_index=True)[1]]) == 3).all()
    for number in range(20):
        rests.append(plugged_in(log.select(group != number)).value)
    shares, rests = np.bincount(group) / len(group), np.array(rests)
    error = np.sqrt(19 / 20 * ((rests - rests.mean()) ** 2).sum())
    bias = known.value - (20 * known.value - ((1 - shares) * rests).sum())
    assert found.value == pytest.approx(known.value - bias)
    # The curvature along the gradient, from weights that move the estimate by half a standard error to both sides.
    moved = 19 / 20 * (rests.mean() - rests) / error
    sides = [plugged_in(replace(log, weights=1 + by * moved[group])).value for by in (0.5, -0.5)]
    assert sides[0] - sides[1] == pytest.approx(error, rel=0.05)
    bend = (sum(sides) - 2 * known.value) / 0.5
    middle = found.value + bend * (1 + norm.ppf(0.975) ** 2)
    half = student.ppf(0.975, 1 / (shares**2).sum() - 1) * np.sqrt(error**2 + 2 * bias**2)
    assert tuple(found.interval) == pytest.approx((middle - half, middle + half))


def test_lists_that_inform_propensities_are_counted_and_too_few_are_reported():
    data, liked = little(40)
    log = clicked(data, liked, data.X[:, 0], 4_000, exploration=0.1, exploration_method="neighbors")
    n_swapped = log.columns["explored"][log.offsets[:-1]].sum()
    found = evaluate(data.X[:, 1], log, data, "clicks@4")
    assert n_swapped / 3 < found.informing_lists < 2 * n_swapped / 3  # each swap is of two of four positions
    assert found.to_dict()["informing_lists"] == found.informing_lists
    few = clicked(data, liked, data.X[:, 0], 4_000, exploration=0.01, exploration_method="neighbors")
    with pytest.warns(LowEffectiveSampleSizeWarning, match="lists inform the propensities"):
        assert "reliable estimates and intervals" in str(evaluate(data.X[:, 1], few, data, "clicks@4"))
    given = evaluate(data.X[:, 1], log, data, "clicks@4", propensities=THETA)
    assert given.informing_lists is None


@pytest.mark.parametrize("context", [None, "device", "module"])
def test_only_shuffled_lists_inform_propensities_by_randomization(context):
    """Two rankers take turns, so that nearly all lists exchange documents, but 40 of 4,000 are shuffled."""
    data, liked = little(40)
    turns = {"one": data.X[:, 0], "other": -data.X[:, 0]}
    layout = [(name, place) for place in (1, 2) for name in ("left", "right")] if context == "module" else None
    if context == "device":
        users = {"phone": PBM.from_parameters(THETA), "desktop": PBM.from_parameters(THETA)}
        log = tr.clicks.simulate(
            data, turns, users, 4_000, k=4, relevance=liked, noise=0.0, exploration=0.01, context="device"
        )
    else:
        log = clicked(data, liked, turns, 4_000, exploration=0.01, context="module", layout=layout)
    shuffled = log.columns["explored"][log.offsets[:-1]]
    options = {"propensities": "randomization", "context": context}
    with pytest.warns(LowEffectiveSampleSizeWarning, match="lists inform the propensities"):
        found = evaluate(data.X[:, 1], log, data, "clicks@4", estimator="snips", **options)
    assert found.informing_lists < 0.5 * shuffled.sum()
    twice = log.select(np.concatenate([np.arange(log.n_sessions), np.flatnonzero(shuffled)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowEffectiveSampleSizeWarning)
        more = evaluate(data.X[:, 1], twice, data, "clicks@4", estimator="snips", **options)
    assert more.informing_lists == pytest.approx(2 * found.informing_lists, rel=0.02)


def test_the_interval_is_that_of_the_mean_where_queries_weigh_alike_and_infinite_for_one():
    data, _ = little(8)
    qid = np.repeat(np.arange(8), 8)
    log = ClickLog.from_columns(
        qid, np.concatenate([np.tile(4 * q + np.arange(4), 2) for q in range(8)]), np.tile([1, 2, 3, 4], 16),
        np.random.default_rng(0).random(64) < 0.5,
    )  # fmt: skip
    found = evaluate(data.X[:, 1], log, data, "dcg@3", estimator="none", confidence=0.9)
    expected = tr.significance.t_interval(found.per_query["dcg@3"], confidence=0.9)
    assert tuple(found.interval) == pytest.approx((expected.low, expected.high))
    one = evaluate(data.X[:, 1], log.select(log.session_query == 3), data, "dcg@3", estimator="none")
    assert tuple(one.interval) == (-np.inf, np.inf)


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
    assert same.never_shown["dcg@1"] == 0
    with pytest.warns(LowEffectiveSampleSizeWarning, match="no contributing impression was clicked"):
        turned = evaluate(-data.X[:, 0], log, data, "dcg@2", estimator="snips", propensities=[1, 0.5])
    assert turned.never_shown["dcg@2"] == turned.ranked["dcg@2"] == 2 * len(np.unique(log.query))
    assert turned.value == 0
    assert "so the estimate is too low" in str(turned)
    with pytest.warns(LowEffectiveSampleSizeWarning, match="rests on the regression alone"):
        robust = evaluate(-data.X[:, 0], log, data, "dcg@2", estimator="dr", propensities=[1, 0.5], regression=liked)
    assert robust.value == pytest.approx(true_dcg(data, liked, -data.X[:, 0], 2, log))


def seldom_below(seldom, sessions=1000):
    """One query: a document that is always first, and one that stood second in a few sessions."""
    data = RankingData([[1.0], [0.0]], qid=["q", "q"], document_ids=["x", "y"])
    number = np.concatenate([np.arange(sessions), np.arange(seldom)])
    below = np.repeat([False, True], [sessions, seldom])
    click = number % 3 == 0
    return data, ClickLog.from_columns(["q"] * len(number), np.where(below, "y", "x"), 1 + below, click, session=number)


@pytest.mark.parametrize(("seldom", "small"), [(5, True), (800, False)])
def test_an_estimate_that_rests_on_a_few_impressions_warns(seldom, small):
    data, log = seldom_below(seldom)
    w = np.r_[np.ones(1000), np.full(seldom, 1000 / seldom / 0.1 / np.log2(3))]
    with contextlib.ExitStack() as stack:
        if small:
            stack.enter_context(
                pytest.warns(LowEffectiveSampleSizeWarning, match=f"would say as much as the {1000 + seldom:,}")
            )
        found = evaluate([2.0, 1.0], log, data, "dcg@2", estimator="affine", propensities=[1, 0.1])
    assert found.effective_sample_size["dcg@2"] == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert (
        found.contributing_impressions["dcg@2"] == found.to_dict()["contributing_impressions"]["dcg@2"] == 1000 + seldom
    )
    assert (w.sum() ** 2 / (w**2).sum() < 0.1 * (1000 + seldom)) == small
    assert ("rests on few impressions" in str(found)) == small


def test_the_least_propensity_is_told_where_it_is_divided_by():
    data, log = seldom_below(800)
    for estimator, clip, clipped in (("ips", 0.2, 800), ("affine", 0.2, 800), ("snips", 0.2, 800), ("dr", 0.2, 800),
                                     ("ips", 0.1, 0), ("affine", 0.1, 0), ("snips", 0.1, 0), ("dr", 0.08, 0),
                                     ("none", 0.2, 0)):  # fmt: skip
        found = evaluate([2.0, 1.0], log, data, "dcg@2", estimator=estimator, propensities=[1, 0.1], clip=clip)
        told = (found.clip, found.clipped)
        assert told == ((clip, clipped) if clipped else (0, 0)), estimator
        assert told == (found.to_dict()["clip"], found.to_dict()["clipped"])
        words = f"The propensity of {clipped:,} impressions is below {clip:g} and was raised to it (clip)"
        assert (words in str(found)) == (clipped > 0)
        assert ("the regression replaces" in str(found)) == (clipped > 0 and estimator == "dr")
        trained = tr.clicks.train(tr.LinearRanker("Squared"), log, data, estimator, [1, 0.1], clip=clip, folds=0)
        assert (trained.clip, trained.counts["clipped"]) == told
        assert (words in str(trained)) == (clipped > 0)


def test_bad_evaluations_are_refused():
    data, liked = little()
    log = clicked(data, liked, data.X[:, 0], 100)
    for wrong in ({"metrics": "ndcg@10"}, {"metrics": "ctr"}, {"estimator": "magic"}):
        with pytest.raises(UnknownNameError):
            evaluate(data.X[:, 0], log, data, **{"propensities": THETA, **wrong})
    with pytest.raises(DataError, match="shown at two positions"):
        evaluate(data.X[:, 0], log, data)
    with pytest.raises(DataError, match="propensities of all positions"):
        evaluate(data.X[:, 0], log, data, "ctr@4", propensities=[1, 0.6, np.nan, 0.25])
    with pytest.raises(DataError, match="name at least one metric"):
        evaluate(data.X[:, 0], log, data, [], propensities=THETA)
    with pytest.raises(DataError, match="2 metrics"):
        _ = evaluate(data.X[:, 0], log, data, ["dcg", "dcg@2"], propensities=THETA).value


# --- interleaving --------------------------------------------------------------------------------------------------


def shown_to_users(log, liked, seed):
    attraction = liked[log.pair]
    return replace(
        log, clicks=PBM.from_parameters(THETA).sample_clicks(log, attraction, attraction, np.random.default_rng(seed))
    )


@pytest.mark.parametrize("method", ["team-draft", "probabilistic"])
def test_users_prefer_the_better_ranker_and_neither_of_two_that_are_the_same(method):
    data, liked = little()
    rankers = {"good": data.X[:, 1], "bad": data.X[:, 0]}
    given = {"a": rankers["good"], "b": rankers["bad"], "data": data} if method == "probabilistic" else {}
    log = shown_to_users(interleave(rankers["good"], rankers["bad"], data, 1500, k=4, method=method), liked, 1)
    found = analyze_interleaving(log, method=method, **given)
    assert found.share > 0.5
    assert found.p < 0.01
    assert found.interval.low > 0.5
    assert found.wins + found.losses + found.ties + found.unclicked == 1500
    assert "Users prefer a" in str(found)
    same = shown_to_users(interleave(rankers["bad"], rankers["bad"], data, 1500, k=4, method=method, seed=2), liked, 3)
    if method == "probabilistic":  # each shares every click alike
        found = analyze_interleaving(same, method=method, a=rankers["bad"], b=rankers["bad"], data=data)
        assert (found.wins, found.losses, found.p) == (0, 0, 1.0)
        assert "No list had a winner" in str(found)


def of_logs(method, seeds, scores, likes, seen):
    """Of logs of 15 queries each whether the test sees a difference at .2, and the interval of 80 % holds .5."""
    wrong, covered = [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((15 * 4, 2))
        data, liked, (a, b) = RankingData(X, qid=np.repeat(np.arange(15), 4)), likes(X), scores(X)
        log = interleave(a, b, data, 600, k=4, method=method, seed=seed)
        log = replace(log, clicks=PBM.from_parameters(seen).sample_clicks(log, liked[log.pair], liked[log.pair], rng))
        given = {"a": a, "b": b, "data": data} if method == "probabilistic" else {}
        found = analyze_interleaving(log, method=method, confidence=0.8, **given)
        wrong.append(found.p < 0.2)
        covered.append(found.interval.low <= 0.5 <= found.interval.high)
    return sum(wrong), sum(covered), len(wrong)


def moved(X):
    """The second puts the last of the first's documents first: clicks on it speak loudly, on all others softly."""
    return -np.tile([0, 1, 2, 3], len(X) // 4), -np.tile([1, 2, 3, 0], len(X) // 4)


def blind(X):
    return np.full(len(X), 0.6)


USERS_OF_BOTH = {
    "as good": (lambda X: X.T, lambda X: 1 / (1 + np.exp(-X.sum(axis=1))), THETA),
    "blind": (moved, blind, THETA),
    "blind, first alone": (moved, blind, np.array([1.0, 0.0, 0.0, 0.0])),
}


@pytest.mark.parametrize("users", USERS_OF_BOTH)
@pytest.mark.parametrize("method", ["team-draft", "probabilistic"])
def test_two_rankers_that_are_as_good_as_each_other_are_told_apart_as_seldom_as_the_level_says(method, users):
    """One is better for some queries, the other for as many: lists of one query speak with one voice."""
    wrong, covered, n = of_logs(method, range(30), *USERS_OF_BOTH[users])
    assert binomtest(wrong, n, 0.2, alternative="greater").pvalue > 0.001
    assert binomtest(covered, n, 0.8).pvalue > 0.001


@pytest.mark.nightly
@pytest.mark.parametrize("users", USERS_OF_BOTH)
@pytest.mark.parametrize("method", ["team-draft", "probabilistic"])
def test_the_level_of_interleaving_holds_over_many_logs(method, users):
    wrong, covered, n = of_logs(method, range(1000, 1400), *USERS_OF_BOTH[users])
    assert binomtest(wrong, n, 0.2).pvalue > 0.001
    assert binomtest(covered, n, 0.8).pvalue > 0.001


def test_the_test_of_interleaving_is_over_queries():
    wins = {"q": (5, 0), "r": (3, 1), "s": (0, 2)}
    lists = [(query, side) for query, (a, b) in wins.items() for side in ["a"] * a + ["b"] * b]
    rows = [(query, document, place, int(document == side)) for query, side in lists
            for place, document in ((1, "a"), (2, "b"))]  # fmt: skip
    query, team, place, click = (np.array(column) for column in zip(*rows, strict=True))
    log = ClickLog.from_columns(query, team, place, click, np.repeat(np.arange(len(lists)), 2), team=team)
    found = analyze_interleaving(log)
    assert (found.wins, found.losses) == (8, 3)
    assert found.p == tr.significance.randomization_test([5, 2, -2]).p > 0.05
    assert "No significant preference" in str(found)


def test_probabilistic_credit_is_the_share_of_the_chances():
    data = RankingData(np.zeros((3, 1)), qid=["q"] * 3, document_ids=["x", "y", "z"])
    log = ClickLog.from_columns(["q"] * 2, ["y", "x"], [1, 2], [1, 1])
    a, b = [3.0, 2.0, 1.0], [1.0, 3.0, 2.0]  # x y z, and y z x
    total = 1 + 1 / 8 + 1 / 27
    first = (1 / 8 / total, 1 / total)  # of drawing y
    second = (1 / (total - 1 / 8), 1 / 27 / (total - 1))  # of drawing x, y gone
    expected = sum((one - other) / (one + other) for one, other in (first, second))
    assert analyze_interleaving(log, a=a, b=b, data=data, method="probabilistic").credit == pytest.approx(expected)


def test_probabilistic_credit_is_added_up_and_not_counted_by_its_sign():
    """Of the first query ten lists speak softly for a, and one loudly for b; of the second all for a."""
    rng = np.random.default_rng(1)
    data = RankingData(np.zeros((12, 1)), qid=np.repeat(["q", "r", "s"], 4), document_ids=list("abcdefghijkl"))
    a, b = rng.standard_normal((2, 12))
    log = replace(interleave(a, b, data, 60, k=3, method="probabilistic"), clicks=rng.random(180) < 0.4)
    votes, clicked = [], np.flatnonzero(log.clicks)
    for row in clicked:
        chance = []
        for scores in (a, b):
            rows = np.flatnonzero(data.queries.document_query == log.query[row])
            order = rows[np.argsort(-scores[rows], kind="stable")].tolist()
            gone = log.pair[log.offsets[log.session[row]] : row].tolist()
            left = {one: 1 / (order.index(one) + 1) ** 3 for one in order if one not in gone}
            chance.append(left[int(log.pair[row])] / sum(left.values()))
        votes.append((chance[0] - chance[1]) / sum(chance))
    found = analyze_interleaving(log, a=a, b=b, data=data, method="probabilistic")
    assert found.credit == pytest.approx(sum(votes) / 60)
    assert found.share == pytest.approx(0.5 + np.mean(votes) / 2)
    of_query = np.bincount(log.query[clicked], votes)
    assert found.p == pytest.approx(tr.significance.randomization_test(of_query).p)
    assert f"{found.credit:+.4f}" in str(found)
    assert "lists won" not in str(found)


@pytest.mark.parametrize("method", ["team-draft", "probabilistic"])
def test_lists_are_as_long_as_they_should_be(method):
    data = RankingData(np.arange(9.0)[:, None], qid=np.repeat(["q", "r", "s"], [1, 3, 5]))
    log = interleave(data.X[:, 0], -data.X[:, 0], data, 40, k=3, method=method)
    assert (np.diff(log.offsets) == np.minimum(data.queries.sizes, 3)[log.session_query]).all()
    assert set(log.session_query) == {0, 1, 2}
    for session in range(40):
        shown = log.pair[log.offsets[session] : log.offsets[session + 1]]
        assert len(set(shown.tolist())) == len(shown)
        assert (data.queries.document_query[shown] == log.session_query[session]).all()
    if method == "team-draft":  # each captain takes the best that is left, from the top or from the bottom
        team, place = log.columns["team"], log.position
        firsts = place == 1
        best = np.where(team == "a", data.queries.offsets[log.query + 1] - 1, data.queries.offsets[log.query])
        assert (log.pair[firsts] == best[firsts]).all()


def test_drafts_hold_the_best_of_both_without_repeats():
    data, _ = little()
    log = interleave(data.X[:, 0], data.X[:, 1], data, 50, k=3)
    for session in range(log.n_sessions):
        rows = slice(*log.offsets[session : session + 2])
        assert len(set(log.pair[rows].tolist())) == 3
        assert {"a", "b"} == set(log.columns["team"][rows][:2].tolist())  # each has one of the first two
    with pytest.raises(DataError, match="column 'team'"):
        analyze_interleaving(replace(log, columns={}))
    with pytest.raises(DataError, match="Give a=, b= and data="):
        analyze_interleaving(log, method="probabilistic")
    with pytest.raises(UnknownNameError):
        analyze_interleaving(log, method="teamdraft!")


# --- preferences ---------------------------------------------------------------------------------------------------


def test_clicked_is_preferred_to_skipped_above_and_to_nothing_else():
    data = RankingData(np.arange(4.0)[:, None], qid=["q"] * 4, document_ids=list("wxyz"))
    log = ClickLog.from_columns(["q"] * 8, list("wxyzwxyz"), [1, 2, 3, 4] * 2, [0, 1, 1, 0, 0, 1, 0, 0])
    pairs = preferences(log, data)
    found = {
        (float(pairs.X[2 * q, 0]), float(pairs.X[2 * q + 1, 0])): weight
        for q, weight in enumerate(pairs.query_weights.tolist())
    }
    assert found == {(1.0, 0.0): 2.0, (2.0, 0.0): 1.0}  # x over w twice, y over w once; never x over z
    assert pairs.labels.tolist() == [1.0, 0.0, 1.0, 0.0]
    ranker = tr.LinearRanker("Logistic").fit(pairs)
    assert ranker.coef_[0] > 0
    with pytest.raises(DataError, match="the log contains no preferences"):
        preferences(ClickLog.from_columns(["q"], ["w"], [1], [1]), data)
    with pytest.raises(DataError, match="must be a ClickLog"):
        preferences("log.csv", data, half_life="1d")


def test_an_estimate_without_clicks_says_so():
    data = tr.synthetic(n_queries=20, seed=0)
    log = tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.from_parameters([1, 0.5]), sessions=100, k=2)
    with pytest.warns(tr.clicks.LowEffectiveSampleSizeWarning, match="because no contributing impression was clicked"):
        tr.clicks.evaluate(data.X[:, 0], replace(log, clicks=log.clicks & False), data, propensities=[1, 0.5])


def test_an_estimate_that_no_impression_supports_says_so():
    """Doubly robust: of a ranker whose top was never shown, only the regression speaks, however narrow the interval."""
    data = tr.synthetic(n_queries=40, n_documents=(10, 10), n_features=3, seed=0)
    logger = data.X[:, 0].astype(np.float64)
    theta = 1 / np.arange(1, 4)
    log = tr.clicks.simulate(data, logger, PBM.from_parameters(theta), 2_000, k=3, exploration=0.2, seed=1)
    with pytest.warns(
        LowEffectiveSampleSizeWarning,
        match=r"dcg@3 rests on the regression alone: none of the documents that the ranker",
    ):
        found = tr.clicks.evaluate(-logger, log, data, "dcg@3", estimator="dr", propensities=theta)
    assert found.contributing_impressions["dcg@3"] == 0
    with warnings.catch_warnings(action="error", category=LowEffectiveSampleSizeWarning):
        tr.clicks.evaluate(logger, log, data, "dcg@3", estimator="dr", propensities=theta)


def test_evidence_without_a_group_and_on_some_queries_is_that_of_a_log_without_their_sessions():
    data = named(tr.synthetic(n_queries=40, seed=0))
    log = tr.clicks.simulate(
        data, data.X[:, 0], PBM.from_parameters([1, 0.5, 0.2]), sessions=4_000, k=3, exploration=0.5
    )
    evidence = bind(log, data)
    correction, metric = Correction("snips"), [Metric.from_name("clicks@3")]
    ranks = {"": ranks_of(data.X[:, 1], data)}
    weights = evidence.groups[0][3]
    parts = {
        "without": (evidence.without(3), bind(log.select(weights[log.session_query] > 0), data)),
        "reweighted": (
            evidence.reweighted(1 + weights),
            bind(replace(log, weights=(1 + weights)[log.session_query]), data),
        ),
    }
    for part, direct in parts.values():
        np.testing.assert_allclose(part.curves.slope, direct.curves.slope, rtol=1e-10)
        both = (of.policy_values(correction, ranks, metric).values.of("", "clicks@3") for of in (part, direct))
        np.testing.assert_allclose(*both, rtol=1e-10)
    chosen = np.arange(40) % 3 != 0
    part, numbers = evidence.select(chosen), np.array([str(qid) for qid in data.qids[chosen].tolist()])
    direct = bind(log.select(np.isin(log.qids.astype(str), numbers)[log.session_query]), data.select(chosen))
    np.testing.assert_allclose(part.relevance(correction).relevance, direct.relevance(correction).relevance, rtol=1e-10)
    assert part.n_sessions.sum() == direct.log.n_sessions == part.log.n_sessions


def test_clicks_of_held_out_queries_do_not_change_the_rankers_that_rank_them():
    """A planted leak: turning the clicks of a fold changes no score of it."""
    data = tr.synthetic(n_queries=12, seed=0)
    log = tr.clicks.simulate(
        data, data.X[:, 0], PBM.from_parameters([1, 0.5, 0.2]), sessions=1_000, k=3, exploration=0.5
    )
    turned = replace(log, clicks=np.where(log.query == 3, ~log.clicks, log.clicks))
    mask = np.arange(12) != int(data_queries(log, data)[3])
    one, other = (bind(of, data).select(mask) for of in (log, turned))
    np.testing.assert_array_equal(one.curves.slope, other.curves.slope)
    np.testing.assert_array_equal(
        one.relevance(Correction("dr")).relevance, other.relevance(Correction("dr")).relevance
    )


def test_propensities_without_intervals_draw_no_bootstrap(monkeypatch):
    data = tr.synthetic(n_queries=20, n_documents=4, seed=0)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters([1, 0.5, 0.2]), sessions=800, k=3, exploration=0.5)
    drawn = []
    monkeypatch.setattr(estimators, "bootstrap_weights", lambda *a: drawn.append(a[1]) or iter(()))
    bind(log, data, propensities="trust").relevance(Correction("affine"))
    assert not any(drawn)


def test_an_unknown_keyword_is_refused():
    data = tr.synthetic(n_queries=5, seed=0)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters([1, 0.5]), sessions=50, k=2)
    with pytest.raises(TypeError, match=r"evaluate\(\) got an unexpected keyword argument 'halflife'"):
        evaluate(data.X[:, 0], log, data, halflife="7d")


def test_names_of_metrics_are_read_in_any_case_and_once():
    data = tr.synthetic(n_queries=40, n_documents=5, seed=0)
    users = tr.clicks.PBM.from_parameters([1, 0.5, 0.3])
    log = tr.clicks.simulate(data, data.X[:, 0], users, sessions=3_000, k=3, exploration=0.5)
    plain = tr.clicks.evaluate(data.X[:, 0], log, data, ["dcg@3"])
    assert tr.clicks.evaluate(data.X[:, 0], log, data, ["DCG@3", "dcg@3"]).mean == plain.mean


@pytest.mark.parametrize("name", ["by", "holdout", "since", "time_column"])
def test_keywords_that_a_function_does_not_document_are_refused(name):
    data = tr.synthetic(n_queries=5, n_documents=5, seed=0)
    log = tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.from_parameters([1, 0.5]), sessions=50, k=2)
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        tr.clicks.propensities(log, **{name: "time"})


def test_the_folds_of_dr_stay_when_a_group_is_left_out(monkeypatch):
    data = tr.synthetic(n_queries=30, n_documents=4, seed=0)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA[:3]), 600, k=3, exploration=0.5, seed=0)
    evidence = bind(log, data, propensities=THETA[:3])
    folds = []
    honest = Division.folds
    monkeypatch.setattr(Division, "folds", lambda fold: (folds.append(np.array(fold)), honest(fold))[1])
    for part in (evidence, evidence.without(0), evidence.select(np.arange(30) % 2 == 0)):
        out_of_fold_regression(part)
    whole, without, half = folds
    left = without >= 0
    assert 0 < left.sum() < (whole >= 0).sum()
    assert without[left].tolist() == whole[left].tolist()
    assert half.tolist() == whole[::2].tolist()


def test_the_share_of_propensities_in_the_variance_is_none_if_they_do_not_move(monkeypatch):
    data = tr.synthetic(n_queries=60, n_documents=4, seed=1)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA[:3]), 20_000, k=3, exploration=0.03, seed=1)
    report = [tr.clicks.launch_report(log, data, data.X[:, 1], data.X[:, 0], k=3)]
    assert 0 < report[0].propensity_variance_share < 1
    monkeypatch.setattr(Evidence, "_harvested", lambda self, method: resolve_curves(THETA[:3], self._origin.log))
    report.append(tr.clicks.launch_report(log, data, data.X[:, 1], data.X[:, 0], k=3))
    assert report[1].propensity_variance_share == pytest.approx(0.0, abs=1e-9)
