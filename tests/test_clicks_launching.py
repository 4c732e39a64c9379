"""Launch reports: the rule holds its level, bounds hold the truth, and what would mislead is found."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from typer.testing import CliRunner

import toprank as tr
from clicks_evidence import correct, judge_by
from support import nightly
from toprank.cli.commands import app
from toprank.clicks.assumptions import trust_caveats
from toprank.clicks.corrections import resolve_curves
from toprank.clicks.curves import contradiction
from toprank.clicks.evaluation import MIN_LISTS
from toprank.clicks.launch_estimates import _differences_by_slice
from toprank.clicks.launch_result import DO_NOT_LAUNCH, LAUNCH, UNDECIDED
from toprank.clicks.log import UnidentifiedWarning
from toprank.clicks.policies import ranks_of
from toprank.clicks.recency import Sessions
from toprank.errors import DataError, UnknownNameError
from toprank.report.launching import launch_page
from toprank.significance import Interval

LOOKS = np.array([1, 0.6, 0.4, 0.3, 0.25, 0.2])
NOISE = 0.1


def world(seed, n=100, better=0.0):
    """Queries of six documents with what users like, and two features that tell it as well as each other, or not."""
    rng = np.random.default_rng(seed)
    liked = rng.random(6 * n)
    X = np.stack([liked + s * rng.normal(size=6 * n) for s in (0.5, 0.5 - better)], axis=1)
    return tr.RankingData(X, liked, qid=np.repeat(np.arange(n), 6)), liked


def by_column(data, column):
    """A ranker that goes by one feature."""
    return tr.LinearRanker(tr.losses.Squared(gain=None)).fit(data.replace(labels=data.X[:, column]))


def brought(scores, data, liked, k):
    """The clicks of a session on the top k of each query, of position-based users: the sum of the definition."""
    rank = ranks_of(scores, data)
    return data.queries.sum(np.where(rank <= k, LOOKS[rank - 1], 0.0) * (NOISE + (1 - NOISE) * liked))


def served(data, liked, sessions=2_000, seed=0, **how):
    how = {"exploration": 0.3, **how}
    scores = {"old": data.X[:, 0], "other": data.X[:, 1]}
    return tr.clicks.simulate(
        data,
        scores,
        tr.clicks.PBM.from_parameters(LOOKS),
        sessions,
        k=6,
        relevance=liked,
        noise=NOISE,
        seed=seed,
        **how,
    )


def decided(runs, better=0.0, propensities=LOOKS, n=100):
    """The decisions of many runs, and in how many the interval of each estimator holds the true difference."""
    big, liked = world(10**6, 20_000, better)
    truth = (brought(big.X[:, 1], big, liked, 3) - brought(big.X[:, 0], big, liked, 3)).mean()
    truth = 0.0 if better == 0 else truth  # both features are drawn alike
    decisions, holds = [], dict.fromkeys(("ips", "snips", "dr"), 0)
    for seed in range(runs):
        data, liked = world(seed, n, better)
        log = served(data, liked, 20 * n, seed)
        found = tr.clicks.launch_report(
            log, data, data.X[:, 1], data.X[:, 0], k=3, propensities=propensities, seed=seed
        )
        decisions.append(found.decision)
        for name, (_, _, gain) in found.estimates.items():
            holds[name] += gain.low <= truth <= gain.high
    return decisions, holds


def test_two_equally_good_rankers_are_hardly_ever_told_apart():
    runs = 40
    decisions, _ = decided(runs)
    assert runs - decisions.count(UNDECIDED) <= binom.ppf(0.999, runs, 0.05)


@pytest.mark.nightly
def test_the_level_holds_and_the_intervals_hold_the_difference():
    decisions, holds = decided(1_000)
    assert len(decisions) - decisions.count(UNDECIDED) <= 70
    for better, propensities in ((0.0, LOOKS), (0.3, LOOKS), (0.3, None)):
        runs = 1_000 if propensities is not None else 300
        decisions, holds = decided(runs, better, propensities, 100 if propensities is not None else 300)
        slack = 3 * np.sqrt(0.05 * 0.95 / runs)
        assert all(0.93 - slack / 3 <= one / runs <= 0.97 + slack for one in holds.values()), holds


TEN = 1 / np.arange(1, 11) ** 0.7


def swapped_log(seed, share, sessions, n):
    """Two rankers as good as each other, and a log of one of them, some of whose lists swap two neighbors."""
    rng = np.random.default_rng(seed)
    liked = rng.random(10 * n)
    X = np.stack([liked + 0.5 * rng.normal(size=10 * n) for _ in range(2)], axis=1)
    data = tr.RankingData(X, liked, qid=np.repeat(np.arange(n), 10))
    return data, tr.clicks.simulate(
        data, X[:, 0], tr.clicks.PBM.from_parameters(TEN), sessions, k=10, relevance=liked, exploration=share,
            exploration_method="neighbors",
        seed=seed,
    )  # fmt: skip


def null_levels(seeds, share, sessions, n):
    """How many logs say launch and do not launch, and miss the difference or the clicks of the new ranker.

    Propensities are estimated. What `launch` examines besides can only lead to fewer decisions.
    """
    of_ranks = 0.1 + 0.9 * np.random.default_rng(10**6).random((200_000, 10))
    noisy = of_ranks + 0.45 * np.random.default_rng(10**6 + 1).normal(size=of_ranks.shape)  # 0.9 × 0.5
    truth = (np.take_along_axis(of_ranks, np.argsort(-noisy, axis=1), axis=1) @ TEN).mean()
    counts = np.zeros(4, dtype=int)
    for seed in seeds:
        data, log = swapped_log(seed, share, sessions, n)
        ranks = {"new": ranks_of(data.X[:, 1], data), "current": ranks_of(data.X[:, 0], data)}
        judged = judge_by(("snips",), ranks, log, data, ["clicks@10"])["snips"]
        low, high = judged.gain("new", "current", "clicks@10")
        enough = judged.informing_lists("clicks@10", "new", "current") >= MIN_LISTS
        clicks = judged.estimates["new"].intervals["clicks@10"]
        held = (low <= 0 <= high, clicks.low <= truth <= clicks.high)
        counts += np.array([enough and low > 0, enough and high < 0, not held[0], not held[1]])
    return counts


def test_two_equally_good_rankers_are_hardly_ever_told_apart_by_estimated_propensities():
    """Lists of one ranker with few swaps: a ratio of estimated propensities is too large on average."""
    seeds = range(12)
    launch, do_not, missed, evaluated = null_levels(seeds, 0.05, 5_000, 100)
    assert max(launch, do_not) <= binom.ppf(0.99, len(seeds), 0.025)
    assert max(missed, evaluated) <= binom.ppf(0.99, len(seeds), 0.05)


@pytest.mark.nightly
@pytest.mark.parametrize("n", [100, 300])
@pytest.mark.parametrize("sessions", [5_000, 20_000])
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_the_level_holds_with_propensities_estimated_from_swaps(share, sessions, n):
    runs = 1_000
    counts = null_levels(range(runs), share, sessions, n)
    print(f"{share:.0%} swaps, {sessions:,} sessions, {n} queries: {counts.tolist()} of {runs}")
    assert max(counts[:2]) <= binom.ppf(0.999, runs, 0.025)
    assert max(counts[2:]) <= binom.ppf(0.999, runs, 0.05)


def test_few_lists_that_inform_the_propensities_decide_nothing():
    data, log = swapped_log(0, 0.04, 2_000, 50)
    liked = data.labels
    few = tr.clicks.launch_report(log, data, liked, -liked)
    assert few.informing_lists < MIN_LISTS
    assert few.decision == UNDECIDED
    assert f"lists inform the propensities, and {MIN_LISTS} are needed" in few.summary
    assert few.to_dict()["informing_lists"] == few.informing_lists
    found = replace(few, informing_lists=200.0, propensity_variance_share=0.9, cascade_check=None)
    assert "mostly because the propensities are uncertain: about 200 lists inform them" in found.summary
    assert "Explore more of the lists" in found.summary
    gain = replace(found.difference, value=0.1, low=-0.1, high=0.3)
    nearer = replace(found, estimates={"snips": (*found.estimates["snips"][:2], gain)})
    assert "Fewer suffice if more of them are explored." in nearer.summary


@pytest.mark.parametrize("propensities", [LOOKS, None])
def test_a_better_ranker_is_launched_and_a_worse_one_is_not(propensities):
    data, liked = world(3, 300, 0.4)
    log = served(data, liked, 12_000)
    pairs = {LAUNCH: (1, 0), DO_NOT_LAUNCH: (0, 1)}
    for decision, (new, current) in pairs.items():
        found = tr.clicks.launch_report(log, data, data.X[:, new], data.X[:, current], k=3, propensities=propensities)
        truth = brought(data.X[:, new], data, liked, 3).mean() - brought(data.X[:, current], data, liked, 3).mean()
        assert found.decision == decision
        low, high = found.difference
        assert low < truth < high


def test_a_ranker_against_itself_is_nothing_to_launch():
    data, liked = world(0)
    found = tr.clicks.launch_report(served(data, liked), data, data.X[:, 0], data.X[:, 0], propensities=LOOKS)
    assert found.decision == UNDECIDED
    assert found.status == 4
    assert [*found.difference] == [0, 0]
    assert found.queries[1] == 0
    assert found.ranking_changes.changed == 0
    assert "same top 6" in found.summary


def test_what_was_never_shown_does_not_decide():
    """A log of the old ranker's top 3 says nothing of the rest: to take that for nothing would refuse a better one."""
    data, liked = world(5, 300, 0.45)
    scores = {"old": -liked + 0.8 * data.X[:, 0]}
    log = tr.clicks.simulate(
        data,
        scores,
        tr.clicks.PBM.from_parameters(LOOKS[:3]),
        20_000,
        k=3,
        relevance=liked,
        noise=NOISE,
        exploration=0.5,
        seed=1,
    )
    found = tr.clicks.launch_report(log, data, data.X[:, 1], scores["old"], k=3, propensities=LOOKS[:3])
    truth = brought(data.X[:, 1], data, liked, 3).mean() - brought(scores["old"], data, liked, 3).mean()
    assert truth > 0
    assert found.difference.high < 0
    low, high = found.decision_interval
    assert low < truth < high
    assert found.decision == UNDECIDED
    assert "never shown" in found.summary
    assert found.never_shown[0] > 0 == found.never_shown[1]
    told = tr.clicks.launch_report(
        log, data, data.X[:, 1], scores["old"], k=3, propensities=LOOKS[:3], max_unseen_value=0.0
    )
    assert told.unseen_bounds == (0.0, 0.0)
    assert told.decision == DO_NOT_LAUNCH


def test_what_was_never_shown_may_cost_where_other_documents_do():
    """Margins may be losses. Of three documents the log shows two, and the new ranker puts the third first."""
    n = 60
    slot = np.tile(np.arange(3.0), n)
    data = tr.RankingData(np.stack([slot, -slot], axis=1), np.zeros(3 * n), qid=np.repeat(np.arange(n), 3))
    log = tr.clicks.simulate(
        data,
        data.X[:, 1],
        tr.clicks.PBM.from_parameters([1, 1]),
        3_000,
        k=2,
        relevance=np.full(3 * n, 0.5),
        exploration=1.0,
    )
    margin = np.where(log.rows(data)[log.pair] % 3 == 0, -4.0, 2.0) * log.clicks
    log = replace(log, columns={**log.columns, "value": margin})
    found = tr.clicks.launch_report(log, data, data.X[:, 0], data.X[:, 1], "value", k=1, propensities=[1, 1])
    worth = correct(
        log, data, "snips", resolve_curves([1, 1], log), reward="value"
    ).relevance  # NaN of what was not shown
    assert found.unseen_bounds == pytest.approx((np.nanmin(worth), np.nanmax(worth)))
    assert found.unseen_bounds[0] < 0 < found.unseen_bounds[1]


def ending(n=200):
    """Queries of four documents, of which one ends the search; users read on until they are satisfied."""
    slot = np.tile(np.arange(4), n)
    data = tr.RankingData(np.stack([slot == 0, slot], axis=1) * 1.0, slot, qid=np.repeat(np.arange(n), 4))
    attraction, enough = np.where(slot == 0, 0.9, 0.5), np.where(slot == 0, 0.95, 0.0)
    users = tr.clicks.DBN.from_parameters(1.0)
    how = {"k": 4, "relevance": attraction, "satisfaction": enough, "noise": 0.0}

    def show(scores, sessions, **more):
        return tr.clicks.simulate(data, scores, users, sessions, **how, **more)

    return data, show


def test_users_who_stop_are_found_where_propensities_would_mislead():
    data, show = ending()
    log = show(data.X[:, 0], 8_000, exploration=1.0)
    first, last = data.X[:, 0], -data.X[:, 0]
    truth = [show(one, 8_000, seed=1).clicks.sum() / 8_000 for one in (first, last)]
    found = tr.clicks.launch_report(log, data, first, last)
    assert truth[0] < truth[1] - 0.5
    assert found.difference.low > 0
    assert replace(found, cascade_check=None).decision == LAUNCH
    assert found.cascade_check is not None
    assert found.cascade_check.model == "DBN"
    assert found.cascade_check.difference.high < 0
    assert found.decision == UNDECIDED
    assert "read from the top and stop" in str(found)
    assert truth[0] - truth[1] < found.cascade_check.difference.value < 0  # its prior draws documents to each other


def test_position_based_users_are_not_taken_for_others():
    wrong = 0
    for seed in range(20):
        data, liked = world(seed)
        log = served(data, liked, 2_000, seed)
        wrong += (
            tr.clicks.launch_report(log, data, data.X[:, 1], data.X[:, 0], propensities=LOOKS).cascade_check is not None
        )
    assert wrong <= binom.ppf(0.999, 20, 0.025)


def trusting(seed):
    """Users who click what stands first, whatever it is; the worst has stood there most of the time."""
    rng, n, trust = np.random.default_rng(seed), 200, np.array([0.8, 0.4, 0.1, 0.0])
    liked = rng.random(4 * n) ** 3
    new, current = liked + 0.1 * rng.normal(size=4 * n), -liked
    data = tr.RankingData(np.stack([new, current], axis=1), np.zeros(4 * n), qid=np.repeat(np.arange(n), 4))
    log = tr.clicks.simulate(
        data, current, tr.clicks.PBM.from_parameters(LOOKS[:4]), 12_000, k=4, relevance=liked, exploration=0.2,
        trust=([1] * 4, trust), seed=seed,
    )  # fmt: skip
    rank = {name: ranks_of(scores, data) for name, scores in (("new", new), ("current", current))}
    worth = {
        name: np.where(of <= 2, LOOKS[of - 1] * (trust[of - 1] + (1 - trust[of - 1]) * liked), 0).sum() / n
        for name, of in rank.items()
    }
    return data, log, worth["new"] - worth["current"]


@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
def test_users_who_trust_positions_are_found_where_propensities_would_mislead(seed):
    data, log, truth = trusting(seed)
    blind, seeing = (
        tr.clicks.launch_report(log, data, data.X[:, 0], data.X[:, 1], k=2, propensities=by) for by in (None, "trust")
    )
    assert blind.difference.low > 2 * truth
    assert "Users trust positions" in str(blind)
    assert replace(blind, blocking=()).status == 0
    assert (blind.decision, blind.status) == (UNDECIDED, 5)
    assert "a caveat blocks the decision. Users trust positions" in blind.summary
    assert blind.to_dict()["blocking"] == [one for one in blind.caveats if "may mislead" in one]
    assert seeing.difference.value == pytest.approx(truth, rel=0.25)
    assert "Users trust positions" not in str(seeing)


def test_users_who_do_not_trust_positions_are_not_taken_for_such():
    wrong = sum(bool(trust_caveats(served(*world(seed), 2_000, seed), seed)) for seed in range(20))
    assert wrong <= binom.ppf(0.999, 20, 0.01)


def changing(seed, changes, n=100, sessions=4_000):
    """A log of users without trust in positions, who may change their mind after 70 of 100 days."""
    rng = np.random.default_rng(seed)
    liked = rng.random((2, 8 * n))
    data = tr.RankingData(liked.T, np.zeros(8 * n), qid=np.repeat(np.arange(n), 8))
    current, users = liked[0] + 0.3 * rng.normal(size=8 * n), tr.clicks.PBM.from_parameters(1 / np.arange(1, 9))
    parts = [
        tr.clicks.simulate(data, current, users, count, k=8, relevance=of, exploration=0.3, seed=seed)
        for count, of in ((7 * sessions // 10, liked[0]), (3 * sessions // 10, liked[int(changes)]))
    ]
    n_first, joined = parts[0].n_sessions, [np.concatenate(of) for of in zip(*(
        (part.qids[part.query], part.document_ids[part.pair], part.position, part.clicks) for part in parts
    ), strict=True)]  # fmt: skip
    day = np.concatenate([np.sort(rng.uniform(0, 70, n_first)), np.sort(rng.uniform(70, 100, parts[1].n_sessions))])
    session = np.concatenate([parts[0].session, n_first + parts[1].session])
    return tr.clicks.ClickLog.from_columns(*joined, session=session, time=86_400 * day[session])


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("half_life", [None, "7d"])
@pytest.mark.parametrize("runs", [8, *nightly(400)])
def test_users_without_trust_are_hardly_ever_taken_for_trusting_by_weights_or_changes(runs, half_life, changes):
    """Weights leave few clicks to each document, which a fit of the offsets takes for trust."""
    wrong = 0
    for seed in range(runs):
        log = Sessions(half_life=half_life).evaluation(changing(seed, changes)).log
        wrong += bool(trust_caveats(log, seed))
    assert wrong <= binom.ppf(0.999, runs, 0.002)


def good_logger(hidden, seed=0, n=200):
    """A log by who knows what users like, a part of which is in no feature; one list in ten is shuffled."""
    rng = np.random.default_rng(seed)
    told, secret = rng.normal(size=(2, 5 * n))
    liked = 1 / (1 + np.exp(0.5 - told - hidden * secret))
    data = tr.RankingData(np.stack([told], axis=1), np.zeros(5 * n), qid=np.repeat(np.arange(n), 5))
    current = told + hidden * secret + 0.3 * rng.normal(size=5 * n)
    log = tr.clicks.simulate(
        data,
        current,
        tr.clicks.PBM.from_parameters(LOOKS[:5]),
        8_000,
        k=5,
        relevance=liked,
        noise=0,
        exploration=0.1,
        seed=seed,
    )
    new = current + 2 * rng.normal(size=5 * n)
    looks = np.where(np.arange(1, 6) <= 3, LOOKS[:5], 0)
    worth = [(looks[ranks_of(scores, data) - 1] * liked).sum() / n for scores in (new, current)]
    return data, log, new, current, worth[0] - worth[1]


def test_what_a_good_ranker_knows_is_not_taken_for_looks_without_a_word():
    """Rates of clicks of its lists, and models of what features tell, say that hardly anybody looks down."""
    data, log, new, current, truth = good_logger(1.5)
    rates = np.array([log.clicks[log.position == place].mean() for place in range(1, 6)])
    found = tr.clicks.launch_report(log, data, new, current, k=3, propensities=rates / rates[0])
    assert found.difference.low > truth + 0.05
    assert "Documents shown at several positions contradict" in str(found)
    assert found.status == 5
    assert "contradict these" not in str(tr.clicks.launch_report(log, data, new, current, k=3, propensities=LOOKS[:5]))
    ranker = tr.LinearRanker("Squared")
    for method in ("regression-em", "dual"):
        with pytest.warns(UnidentifiedWarning, match=rf"contradict these propensities \({method}\)"):
            learned = tr.clicks.propensities(log, method, data, tr.LinearRanker(l2=1e-6), n_resamples=5)
        assert (learned.intervals.high[1:] < LOOKS[1:5]).all()
    with pytest.warns(UnidentifiedWarning, match="contradict these"):
        estimate = tr.clicks.evaluate(new, log, data, "clicks@3", propensities=learned)
    assert estimate.to_dict()["propensity_conflict"] in estimate.summary
    done = tr.clicks.train(ranker, log, data, propensities=learned, folds=0)
    assert done.propensity_conflict in str(done)
    assert done.propensity_conflict == done.to_dict()["propensity_conflict"]
    assert not tr.clicks.train(ranker, log, data, propensities=LOOKS[:5], folds=0).propensity_conflict


def test_what_is_right_is_hardly_ever_contradicted():
    wrong = 0
    for seed in range(10):
        data, log, *_ = good_logger(0.0, seed, 100)
        wrong += bool(contradiction(resolve_curves(LOOKS[:5], log), log, seed))
        if seed < 2:  # here the features tell all there is
            assert tr.clicks.propensities(log, "regression-em", data, tr.LinearRanker(l2=1e-6), n_resamples=2)
    assert wrong <= binom.ppf(0.999, 10, 0.01)


def test_a_log_of_later_pages_is_asked_nothing_of_its_first_positions():
    data, liked = world(0)
    log = served(data, liked, 500)
    later = replace(log, position=log.position + 10)
    curves = np.append(np.full(10, np.nan), LOOKS)
    assert trust_caveats(later, 0) == []
    assert contradiction(resolve_curves(curves, later), later) == ""


def test_values_are_compared_as_clicks_are():
    data, liked = world(2, 300, 0.4)
    log = served(data, liked, 12_000)
    log = replace(log, columns={**log.columns, "value": 7.0 * log.clicks})
    clicks, values = (
        tr.clicks.launch_report(
            log, data, data.X[:, 1], data.X[:, 0], metric, k=3, propensities=LOOKS, max_unseen_value=0
        )
        for metric in ("click", "value")
    )
    assert values.metric == "value@3"
    assert values.decision == clicks.decision == LAUNCH
    for name, (_, _, gain) in values.estimates.items():
        if name != "dr":  # its regression is held within other ends
            assert gain.value == pytest.approx(7 * clicks.estimates[name][2].value)


def valued(runs, sigma, better, n=100):
    """In how many runs a launch by lognormal prices is decided, and the interval of each estimator holds the truth."""
    big, liked = world(10**6, 20_000, better)
    clicks = (brought(big.X[:, 1], big, liked, 3) - brought(big.X[:, 0], big, liked, 3)).mean()
    truth = 0.0 if better == 0 else clicks * np.exp(sigma**2 / 2)  # prices have nothing to do with what is liked
    decided, holds = 0, dict.fromkeys(("ips", "snips", "dr"), 0)
    for seed in range(runs):
        data, liked = world(seed, n, better)
        log = served(data, liked, 20 * n, seed)
        price = np.random.default_rng(10**6 + seed).lognormal(0, sigma, data.n_documents)
        log = replace(log, columns={**log.columns, "value": log.clicks * price[log.rows(data)[log.pair]]})
        found = tr.clicks.launch_report(
            log, data, data.X[:, 1], data.X[:, 0], "value", k=3, propensities=LOOKS, seed=seed
        )
        decided += found.decision != UNDECIDED
        for name, (_, _, gain) in found.estimates.items():
            holds[name] += gain.low <= truth <= gain.high
    return decided, holds


@pytest.mark.nightly
@pytest.mark.parametrize("sigma", [1.0, 2.0])
def test_launches_by_heavy_tailed_values_are_as_they_are_found(sigma):
    """Not held to what they say: means of so few dear things are far from normal. But not far too short, either."""
    runs = 1_000
    level, _ = valued(runs, sigma, 0.0)
    _, holds = valued(runs, sigma, 0.3)
    print(f"lognormal values, sigma {sigma:g}: {level} of {runs} told apart, held {holds}")  # the page has them
    assert level <= 0.07 * runs
    assert all(one >= 0.85 * runs for one in holds.values()), holds


def test_the_rule_at_its_edges():
    data, liked = world(0)
    found = tr.clicks.launch_report(served(data, liked), data, data.X[:, 1], data.X[:, 0], propensities=LOOKS)

    def with_(low, high, **more):
        gain = Interval((low + high) / 2, low, high, 0.95, 100, "")
        three = {"snips": (*found.estimates["snips"][:2], gain)}
        changed = {
            "unseen_bounds": (0.0, 0.0),
            "cascade_check": None,
            "effective_sample_size": 1e4,
            "queries": (100, 90),
            **more,
        }
        return replace(found, estimates=three, **changed)

    assert with_(0.01, 0.02).status == 0
    assert with_(-0.02, -0.01).status == 3
    assert with_(-0.01, 0.02).status == 4
    assert with_(0.0, 0.02).decision == UNDECIDED
    assert with_(0.01, 0.02, effective_sample_size=999).decision == UNDECIDED
    assert with_(0.01, 0.02, queries=(100, 29)).decision == UNDECIDED
    assert with_(0.01, 0.02, informing_lists=29.0).decision == UNDECIDED
    assert with_(0.01, 0.02, informing_lists=30.0).decision == LAUNCH
    assert with_(0.01, 0.02, unseen_bounds=(-0.011, 0.0)).decision == UNDECIDED
    assert with_(-np.inf, np.inf).status == 4
    assert with_(-np.inf, np.inf).sessions_needed is None
    wide = with_(-0.01, 0.03)  # twice as wide as far: 4 times as many reach the edge, and more 8 times of 10
    assert 4 * found.sessions < wide.sessions_needed < 9 * found.sessions
    assert 4 * found.queries[0] < wide.queries_needed < 9 * found.queries[0]
    assert f"{wide.sessions_needed:,} sessions of {wide.queries_needed:,} different queries would" in wide.summary
    assert "More sessions of the same queries would not." in wide.summary
    blocked = with_(0.01, 0.02, blocking=("The estimates may mislead.",))
    assert (blocked.decision, blocked.status) == (UNDECIDED, 5)
    assert with_(-0.01, 0.02, blocking=("The estimates may mislead.",)).status == 5


def test_candidates_are_compared_at_the_level_of_all_together():
    data, liked = world(0)
    log, current = served(data, liked), data.X[:, 0]
    new = {"better": liked, "same": data.X[:, 1], "worse": -liked}
    found = tr.clicks.launch_report(log, data, new, current, k=3, propensities=LOOKS, slice_by=np.arange(100) % 2)
    assert found.names == ("better", "current")
    assert found.decision == LAUNCH
    assert found.n_candidates == 3
    alone = {
        name: tr.clicks.launch_report(
            log, data, scores, current, k=3, propensities=LOOKS, confidence=1 - 0.05 / 3, slice_by=np.arange(100) % 2
        )
        for name, scores in new.items()
    }
    for name, one in alone.items():
        assert found.candidates[name] == one.difference
    assert found.slices == alone["better"].slices
    counted = tr.clicks.launch_report(log, data, liked, current, k=3, propensities=LOOKS, n_candidates=3)
    assert counted.difference == found.difference
    assert "3 new rankers were compared on these sessions" in str(counted)
    assert "is 98.33%: for all 3 together it is 95% (Bonferroni)" in str(counted)
    assert "new rankers were compared" not in str(alone["same"])
    assert "simultaneous 95% interval" in str(found)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (told["n_candidates"], [*told["candidates"]]) == (3, [*new])
    assert "New rankers" in launch_page(found, "three")
    with pytest.raises(DataError, match="n_candidates is 2, but 3 new rankers were given"):
        tr.clicks.launch_report(log, data, new, current, n_candidates=2)
    with pytest.raises(DataError, match="both called 'current'"):
        tr.clicks.launch_report(log, data, {**new, "current": liked}, current)
    with pytest.raises(DataError, match="empty mapping"):
        tr.clicks.launch_report(log, data, {}, current)
    unknown = tr.clicks.launch_report(one_order(data), data, new, current, k=3)
    assert (unknown.status, unknown.n_candidates) == (4, 3)


def equal_rankers(seed, m, n=100):
    """A log, and m rankers that are equally good on average, of which the first is the current one."""
    rng = np.random.default_rng(seed)
    liked = rng.random(6 * n)
    X = liked[:, None] + 0.5 * rng.normal(size=(6 * n, m))
    data = tr.RankingData(X, liked, qid=np.repeat(np.arange(n), 6))
    return data, served(data, liked, 20 * n, seed), {f"r{j}": X[:, j] for j in range(m)}


def launches_of_equal_candidates(runs, counted):
    """Count the logs in which the best of ten rankers, each as good as the current one, is launched."""
    launches = 0
    for seed in range(runs):
        data, log, rankers = equal_rankers(seed, 11)
        current, how = rankers.pop("r0"), {"k": 3, "propensities": LOOKS, "seed": seed}
        found = tr.clicks.launch_report(log, data, rankers, current, **how)
        if not counted:
            found = tr.clicks.launch_report(log, data, rankers[found.names[0]], current, **how)
        launches += found.decision == LAUNCH
    return launches


def test_the_best_of_equal_candidates_is_hardly_ever_launched():
    runs = 10
    assert launches_of_equal_candidates(runs, True) <= binom.ppf(0.999, runs, 0.025)


@pytest.mark.nightly
def test_the_level_holds_for_the_best_of_ten_candidates():
    runs = 500
    uncounted, counted = (launches_of_equal_candidates(runs, counted) for counted in (False, True))
    print(f"best of ten equal rankers launched in {uncounted} of {runs}; counted, in {counted}")
    assert counted <= binom.ppf(0.999, runs, 0.025)
    assert uncounted > counted


def slices_that_exclude_zero(runs, m=12, n=300):
    """Count the logs of two equal rankers in which a slice excludes 0: at simultaneous and at separate levels."""
    simultaneous = separate = 0
    for seed in range(runs):
        data, log, rankers = equal_rankers(seed, 2, n)
        ranks = {name: ranks_of(scores, data) for name, scores in rankers.items()}
        judged = judge_by(("snips",), ranks, log, data, ["clicks@3"], propensities=LOOKS)["snips"]
        by = np.arange(n) % m
        one, all_together = (
            [row.gain for row in _differences_by_slice(judged, "clicks@3", ("r0", "r1"), by, level)[1]]
            for level in (1 - 0.05 * m, 0.95)
        )
        assert all(gain.confidence == pytest.approx(0.95) for gain in one)
        separate += any(gain.low > 0 or gain.high < 0 for gain in one)
        simultaneous += any(gain.low > 0 or gain.high < 0 for gain in all_together)
    return simultaneous, separate


@pytest.mark.parametrize("runs", [60, *nightly(2_000)])
def test_slices_have_simultaneous_intervals(runs):
    simultaneous, separate = slices_that_exclude_zero(runs)
    print(f"a slice of 12 excludes 0 in {simultaneous} of {runs} reports; one by one in {separate}")
    assert simultaneous <= binom.ppf(0.999, runs, 0.05)
    assert separate > 3 * simultaneous


def new_against_current(seed, better, n, sessions):
    """The estimated difference between the rankers in a log of n new queries."""
    data, liked = world(seed, n, better)
    log = served(data, liked, sessions, seed)
    ranks = {name: ranks_of(data.X[:, column], data) for name, column in (("new", 1), ("current", 0))}
    judged = judge_by(("snips",), ranks, log, data, ["clicks@3"], propensities=LOOKS)["snips"]
    return judged.gain("new", "current", "clicks@3")


@pytest.mark.nightly
def test_the_sessions_needed_have_the_power_with_as_many_more_queries():
    """The report of a log whose estimate is exact, with the mean width of the intervals of such logs."""
    better, n, runs = 0.1, 100, 400
    big, liked = world(10**6, 20_000, better)
    truth = (brought(big.X[:, 1], big, liked, 3) - brought(big.X[:, 0], big, liked, 3)).mean()
    half = np.mean([np.ptp([*new_against_current(seed, better, n, 20 * n)]) / 2 for seed in range(40)])
    data, liked = world(1, n, better)
    found = tr.clicks.launch_report(
        served(data, liked, 20 * n, 1), data, data.X[:, 1], data.X[:, 0], k=3, propensities=LOOKS, seed=1
    )
    exact = replace(found.difference, value=truth, low=truth - half, high=truth + half)
    found = replace(found, estimates={"snips": (*found.estimates["snips"][:2], exact)})
    sessions, queries = found.sessions_needed, found.queries_needed
    decided = {
        number: sum(new_against_current(5_000 + seed, better, number, sessions).low > 0 for seed in range(runs))
        for number in (queries, n)
    }
    print(f"{sessions} sessions, power by number of queries: {decided} of {runs}")
    assert 0.74 < decided[queries] / runs < 0.86
    assert decided[n] < 0.75 * decided[queries]


def test_the_estimand_is_stated():
    data, liked = world(0)
    found = tr.clicks.launch_report(served(data, liked), data, data.X[:, 1], data.X[:, 0], k=3, propensities=LOOKS)
    assert "for the population that these queries were sampled from, not for this fixed set" in str(found)


def test_what_changes_for_users_is_counted():
    data = tr.RankingData(np.eye(4)[[0, 1, 2, 3] * 2], np.zeros(8), qid=[0] * 4 + [1] * 4)
    log = tr.clicks.ClickLog.from_columns(
        ["0"] * 8 + ["1"] * 4, list("0123") + list("1032") + list("4567"), [1, 2, 3, 4] * 3, [1, 0] * 6,
        session=np.repeat([0, 1, 2], 4),
    )  # fmt: skip
    current = np.array([4.0, 3.0, 2.0, 1.0] * 2)
    new = np.array([3, 4, 1, 2, 4, 3, 2, 1], dtype=float)
    found = tr.clicks.launch_report(log, data, new, current, k=3, propensities=[1, 1, 1, 1]).ranking_changes
    assert found.changed == found.first == pytest.approx(2 / 3)  # two sessions of three are of the first query
    assert found.exchanged == pytest.approx(2 / 3 / 3)
    assert found.moved == pytest.approx((2 * 2) / (2 * 2 + 3))
    assert [one.query for one in found.affected] == ["0"]
    assert found.affected[0].current == ("0", "1", "2")
    assert found.affected[0].new == ("1", "0", "3")


def test_what_else_is_told():
    data, liked = world(1, 200)
    data = data.replace(metadata={"device": np.arange(200) % 2})
    new, old = (by_column(data, c) for c in (1, 0))
    log = served(data, liked, 4_000)
    log = replace(log, columns={**log.columns, "version": np.full(log.n_impressions, "abc", dtype=object)})
    found = tr.clicks.launch_report(
        log, data, new, old, propensities=LOOKS, slice_by="device", reference=data, version="def0", confidence=0.9
    )
    assert [one.name for one in found.slices] == ["0", "1"]
    both = sum(one.gain.value * one.sessions for one in found.slices) / found.sessions
    assert both == pytest.approx(found.difference.value)
    assert found.drift is not None
    assert not found.drift.alarms
    assert found.offline is not None
    assert found.costs[0].bytes
    assert found.costs[0].seconds is not None
    assert any("4,000 of 4,000 sessions were served by other versions" in one for one in found.caveats)
    assert not tr.clicks.launch_report(log, data, new, old, propensities=LOOKS, version="abcdef").caveats
    assert found.ranking_changes.affected[0].why
    json.dumps(found.to_dict(), allow_nan=False)
    page = launch_page(found, "a < b")
    assert "a &lt; b" in page
    assert "device" in page
    assert found.to_frame()["decides"].sum() == 1
    assert "<svg" in found.plot().svg()


def test_bad_input_is_refused_in_a_sentence():
    data, liked = world(0)
    log, scores = served(data, liked), (data.X[:, 1], data.X[:, 0])
    with pytest.raises(UnknownNameError, match="metric"):
        tr.clicks.launch_report(log, data, *scores, "sales")
    with pytest.raises(UnknownNameError, match="estimator"):
        tr.clicks.launch_report(log, data, *scores, estimator="none")
    with pytest.raises(DataError, match="no values"):
        tr.clicks.launch_report(log, data, *scores, "value")
    with pytest.raises(DataError, match="no impressions"):
        tr.clicks.launch_report(log.select([]), data, *scores)
    with pytest.raises(DataError, match="no column 'time'"):
        tr.clicks.launch_report(log, data, *scores, since=5.0)
    timed = replace(log, columns={"time": log.session.astype(float)})
    assert tr.clicks.launch_report(timed, data, *scores, since=500.0, propensities=LOOKS).sessions == 1_500
    with pytest.raises(DataError, match="no session from 2001"):
        tr.clicks.launch_report(timed, data, *scores, since=1e9)
    with pytest.raises(DataError, match="both called 'm'"):
        tr.clicks.launch_report(log, data, *scores, propensities=LOOKS, names=("m", "m"))
    other = tr.LinearRanker().fit(tr.synthetic(n_queries=5, n_features=7, seed=0))
    with pytest.raises(DataError, match="'new' does not fit these data"):
        tr.clicks.launch_report(log, data, other, scores[1])


def test_a_log_of_one_order_tells_nothing_and_the_report_says_what_would():
    data, liked = world(0)
    log = one_order(data)
    found = tr.clicks.launch_report(log, data, by_column(data, 1), by_column(data, 0), k=3)
    assert (found.decision, found.status) == (UNDECIDED, 4)
    assert ": no document of the log was shown at two positions" in found.summary
    assert "swap neighbors" in found.summary
    assert found.ranking_changes.changed > 0.5
    assert found.sessions == 500
    assert found.sessions_needed is None
    known = tr.clicks.launch_report(log, data, data.X[:, 1], data.X[:, 0], k=3, propensities=LOOKS)
    assert found.queries == known.queries
    assert found.never_shown == known.never_shown
    assert found.ranking_changes.changed == known.ranking_changes.changed
    json.dumps(found.to_dict(), allow_nan=False)
    assert "swap neighbors" in launch_page(found, "one order")
    assert "not known" in str(found)
    with pytest.raises(DataError, match="nothing to draw"):
        found.plot()
    same = tr.clicks.launch_report(log, data, data.X[:, 0], data.X[:, 0], k=3)
    assert "nothing to launch" in same.summary.lower()
    looks = np.where(np.arange(6) == 2, np.nan, LOOKS)  # nothing is known of the third position
    found = tr.clicks.launch_report(served(data, liked), data, data.X[:, 1], data.X[:, 0], k=3, propensities=looks)
    assert found.status == 4
    assert "all positions down to 3, but some are unknown" in found.summary


def one_order(data):
    return tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.from_parameters(LOOKS), 500, k=6, noise=0)


def test_the_command_says_it_by_its_exit_status(tmp_path):
    data, liked = world(3, 300, 0.4)
    paths = {name: tmp_path / f"{name}.toprank" for name in ("new", "old")}
    for name, column in (("new", 1), ("old", 0)):
        by_column(data, column).save(paths[name])
    tr.write(data.replace(labels=(liked > 0.5).astype(float)), tmp_path / "data.txt")
    shown = tr.read(tmp_path / "data.txt")
    tr.clicks.write(served(shown, liked, 12_000), tmp_path / "log.parquet")
    tr.clicks.write(served(shown, liked, 12_000).select(np.arange(40)), tmp_path / "short.parquet")
    given = ["--propensities", ",".join(map(str, LOOKS)), "--k", "3"]

    def run(log, new, old, *more):
        data_path = str(tmp_path / "data.txt")
        asked = [
            "launch-report",
            str(tmp_path / log),
            data_path,
            "--new",
            str(new),
            "--current",
            str(old),
            *given,
            *more,
        ]
        return CliRunner().invoke(app, asked)

    page = tmp_path / "l.html"
    found = run("log.parquet", paths["new"], paths["old"], "--html", str(page))
    assert found.exit_code == 0
    assert "Launch new: it brings" in found.stdout
    assert "Launch" in page.read_text()
    found = run("log.parquet", paths["old"], paths["new"], "--json")
    assert found.exit_code == 3
    assert json.loads(found.stdout)["decision"] == DO_NOT_LAUNCH
    assert run("short.parquet", paths["new"], paths["old"]).exit_code == 4
    assert run("log.parquet", tmp_path / "none", paths["old"]).exit_code == 1
    by_column(data, 0).save(tmp_path / "third.toprank")
    found = run("log.parquet", paths["new"], paths["old"], "--new", str(tmp_path / "third.toprank"), "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["names"] == ["new", "old"]
    assert json.loads(found.stdout)["n_candidates"] == 2
    alone = run("log.parquet", paths["new"], paths["old"], "--n-candidates", "2", "--json")
    assert json.loads(alone.stdout)["decision_interval"] == json.loads(found.stdout)["decision_interval"]
    assert run("log.parquet", paths["new"], paths["old"], "--new", str(paths["new"])).exit_code == 2
    given[1] = ",".join(map(str, LOOKS**2))
    contradicted = run("log.parquet", paths["new"], paths["old"])
    assert contradicted.exit_code == 5
    assert "a caveat blocks the decision" in contradicted.stdout
    given[1] = ",".join(map(str, LOOKS))
    assert run("log.parquet", paths["new"], paths["old"], "--metric", "value").exit_code == 1
    assert run("log.parquet", paths["new"], paths["old"], "--since", "yesterday").exit_code == 2
    tr.clicks.write(one_order(shown), tmp_path / "one.parquet")
    given.clear()
    found = run("one.parquet", paths["new"], paths["old"], "--k", "3", "--html", str(page))
    assert found.exit_code == 4, found.output
    assert "--propensities" in found.stdout
    assert "This log does not show whether" in page.read_text()


def test_rankers_of_other_columns_are_read_and_compared_as_their_scores_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, liked = world(3, 300, 0.4)
    log = served(data, liked, 12_000)
    qid, documents = np.array(data.qids)[data.queries.document_query], data.row_names.astype(str)
    ids = {"qid": qid, "document_id": documents}
    pd.DataFrame({**ids, "price": -data.X[:, 0], "score": data.X[:, 1], "sales": data.X[:, 0]}).to_csv(
        "data.csv", index=False
    )
    read = {}
    for name, columns in (("new", ["sales", "score"]), ("old", ["score", "price"])):
        read[name] = tr.read("data.csv", label=False, features=columns)
        by_column(read[name], 1).save(f"{name}.toprank")
    tr.clicks.write(log, "log.parquet")
    given = ["log.parquet", "data.csv", "--new", "new.toprank", "--current", "old.toprank", "--k", "3", "--json"]
    found = CliRunner().invoke(app, ["launch-report", *given, "--propensities", ",".join(map(str, LOOKS))])
    assert found.exit_code == 0, found.output
    assert found.stdout
    scores = [tr.load(f"{name}.toprank").predict(of) for name, of in read.items()]
    expected = tr.clicks.launch_report(log, read["new"], *scores, k=3, propensities=LOOKS).to_dict()
    assert json.loads(found.stdout)["estimates"] == expected["estimates"]
    rankers = [tr.load(f"{name}.toprank") for name in read]
    with pytest.raises(DataError, match="'current' does not fit these data"):
        tr.clicks.launch_report(log, read["new"], *rankers, k=3, propensities=LOOKS)
    with pytest.raises(DataError, match="current_data must contain the documents"):
        tr.clicks.launch_report(log, read["new"], *rankers, current_data=read["old"].select(np.arange(299)))
