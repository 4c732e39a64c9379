"""Rules of clicks one by one: counts of interleaved lists, intervals by hand, limits at exact sizes, what is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, binomtest, t

import toprank as tr
from toprank.clicks.checking import LogReport, _in_words
from toprank.clicks.evaluation import OffPolicyEstimate, clipping_sentences, dropped_sentences
from toprank.clicks.interleaved import Interleaving, _team_draft_list
from toprank.clicks.intervention_harvesting import Edge, Graph
from toprank.clicks.log import ClickLog, bootstrap_weights, jackknife_groups
from toprank.clicks.model_comparison import ComparedModels, model_named
from toprank.clicks.policies import Metric, ranks_of
from toprank.errors import DataError, ToprankError, UnknownNameError
from toprank.significance import Interval, bootstrap_t_interval, jackknife, leave_one_out_means
from toprank.significance.resampling import jackknife_interval, second_order_interval


def lists(*given, qids=None):
    """A log of lists, each a text such as ``a1 b0 b1``: the team of each impression, and whether it was clicked."""
    rows = [(q, place, cell) for q, cells in enumerate(given) for place, cell in enumerate(cells.split())]
    names = [f"q{q if qids is None else qids[q]}" for q, _, _ in rows]
    return ClickLog.from_columns(
        names, [f"d{place}" for _, place, _ in rows], [place + 1 for _, place, _ in rows],
        [int(cell[1]) for *_, cell in rows], team=[cell[0] for *_, cell in rows], session=[q for q, _, _ in rows],
    )  # fmt: skip


def test_lists_are_won_lost_tied_or_unclicked():
    found = tr.clicks.analyze_interleaving(lists("a1 b0", "a1 b0", "a0 b1", "a1 b1", "a0 b0", "a1 b1 a1"))
    assert (found.wins, found.losses, found.ties, found.unclicked) == (3, 1, 1, 1)
    assert found.share == 0.75
    assert found.credit == pytest.approx((1 + 1 - 1 + 0 + 0 + 1) / 6)
    assert list(found.interval) == pytest.approx(list(binomtest(3, 4).proportion_ci(0.95)))


def test_lists_of_one_query_are_one_witness():
    one = tr.clicks.analyze_interleaving(lists("a1 b0", "a1 b0", "a1 b0", qids=[1, 1, 1]))
    assert (one.wins, one.p, *one.interval) == (3, 1.0, 0.0, 1.0)
    nobody = tr.clicks.analyze_interleaving(lists("a1 b1", "a0 b0"))
    assert (nobody.wins, nobody.losses, nobody.ties, nobody.unclicked, nobody.p) == (0, 0, 1, 1, 1.0)
    assert np.isnan(nobody.share)
    assert str(nobody) == "No list had a winner."


def test_methods_of_interleaving_have_names():
    with pytest.raises(UnknownNameError, match="method of interleaving"):
        tr.clicks.analyze_interleaving(lists("a1 b0"), method="balanced")


@pytest.mark.parametrize("teams", ["a1 a0", "a1 b0 c0"])
def test_two_rankers_are_compared(teams):
    with pytest.raises(DataError, match="it must have two"):
        tr.clicks.analyze_interleaving(lists(teams))


FOUND = Interleaving(
    30, 10, 5, 55, 0.75, Interval(0.75, 0.5, 0.875, 0.95, 20, ""), 0.04, 0.125, "team-draft", ("new", "old"), 0.95
)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "Users prefer new (p = 0.04, team-draft)."),
        ({"share": 0.25}, "Users prefer old (p = 0.04, team-draft)."),
        ({"p": 0.06}, "No significant preference (p = 0.06, team-draft)."),
        ({"p": 0.04, "confidence": 0.99}, "No significant preference (p = 0.04, team-draft)."),
        ({"wins": 0}, "Users prefer new (p = 0.04, team-draft)."),  # one side alone may have winners
        ({"losses": 0}, "Users prefer new (p = 0.04, team-draft)."),
    ],
)
def test_what_interleaving_says(changed, words):
    assert str(replace(FOUND, **changed)).startswith(words)


def test_probabilistic_lists_are_told_by_credit():
    text = " ".join(str(replace(FOUND, method="probabilistic")).split())
    assert "100 45 +0.1250 0.750 [0.500, 0.875]" in text
    assert "lists won by" not in text
    assert "30 10 5 55 0.750 [0.500, 0.875]" in " ".join(str(FOUND).split())


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_a_team_draft_has_as_many_documents_as_are_asked_for_and_there_are(k):
    for seed in range(8):
        n = 3 + seed % 2  # of an odd number the last round has a document for one of the two alone
        a, b = (np.random.default_rng([seed, side]).permutation(n) for side in (0, 1))
        shown, teams = _team_draft_list(a, b, k, np.random.default_rng(seed))
        assert len(shown) == len(set(shown.tolist())) == len(teams) == min(k, n)
        for place in range(0, len(shown) - 1, 2):
            assert sorted(teams[place : place + 2]) == [0, 1]  # each round both captains choose
        for place, team in enumerate(teams.tolist()):
            left = [one for one in (a, b)[team].tolist() if one not in shown[:place]]
            assert shown[place] == left[0]


def test_intervals_of_draws_by_hand():
    drawn = [np.array([1.0, 4.0, np.nan]), np.array([2.0, np.nan, np.nan]), np.array([6.0, 8.0, 1.0])]
    value = np.array([3.0, 5.0, 1.0])
    low, high = bootstrap_t_interval(value, drawn, 5, 0.9)
    spread = np.sqrt([5 / 4 * np.var([1, 2, 6], ddof=1), 5 / 4 * np.var([4, 8], ddof=1)])
    wide = t.ppf(0.95, [2, 1]) * spread
    np.testing.assert_allclose([low[:2], high[:2]], [value[:2] - wide, value[:2] + wide])
    assert np.isnan([low[2], high[2]]).all()  # one draw tells nothing of the spread
    few_low, _ = bootstrap_t_interval(value[:1], [one[:1] for one in drawn], 2, 0.9)
    assert few_low[0] == pytest.approx(3 - t.ppf(0.95, 1) * np.sqrt(2 * np.var([1, 2, 6], ddof=1)))


def test_ratios_have_intervals_by_factors_where_all_is_above_nothing():
    drawn = [np.array([1.0, 0.0, 0.0]), np.array([4.0, 2.0, 0.0])]
    low, high = bootstrap_t_interval(np.array([2.0, 1.0, 0.0]), drawn, 4, 0.5, log_scale=True)
    factor = np.exp(t.ppf(0.75, 1) * np.sqrt(4 / 3 * np.var(np.log([1, 4]), ddof=1)))
    assert (low[0], high[0]) == (pytest.approx(2 / factor), pytest.approx(2 * factor))
    wide = t.ppf(0.75, 1) * np.sqrt(4 / 3 * np.var([0, 2], ddof=1))
    assert (low[1], high[1]) == (max(0, 1 - wide), pytest.approx(1 + wide))
    assert (low[2], high[2]) == (0.0, np.inf)


def second_order(values, of, confidence=0.95):
    """The second-order interval of a function of the mean, with groups of one."""
    n, shares = len(values), np.full(len(values), 1 / len(values))
    rests = np.array([of(np.delete(values, i).mean()) for i in range(n)])
    return second_order_interval(
        of(values.mean()), rests, shares, lambda w: of(np.average(values, weights=w)), confidence
    )


def test_the_second_order_interval_of_a_mean_is_the_jackknife_and_that_of_its_square_is_unbiased():
    values = np.random.default_rng(0).normal(2.0, size=20)
    plain = jackknife_interval(values.mean(), leave_one_out_means(values, np.ones(20)), np.full(20, 0.05), 0.95)
    linear = second_order(values, lambda mean: mean)
    assert [linear.value, *linear] == pytest.approx([plain.value, *plain])
    assert second_order(values, np.square).value == pytest.approx(values.mean() ** 2 - values.var(ddof=1) / 20)
    nothing = second_order_interval(1.0, np.empty(0), np.ones(1), lambda _: 1.0, 0.95)
    assert [*nothing] == [-np.inf, np.inf]
    still = second_order(np.full(5, 3.0), np.square)
    assert [still.value, *still] == [9.0, 9.0, 9.0]


def test_the_second_order_interval_misses_a_curved_estimate_on_both_sides_alike():
    """Of exp(mean), whose standard error grows with it, a symmetric interval nearly always misses from below."""
    rng, runs, n = np.random.default_rng(1), 600, 20
    below = above = plain_below = 0
    for _ in range(runs):
        values = rng.normal(0, 2.0, n)
        low, high = second_order(values, np.exp)
        below, above = below + (high < 1), above + (low > 1)
        rests = np.exp(leave_one_out_means(values, np.ones(n)))
        plain_below += jackknife_interval(np.exp(values.mean()), rests, np.full(n, 1 / n), 0.95).high < 1
    most = binom.ppf(0.999, runs, 0.025)
    assert below <= most
    assert above <= most
    assert plain_below > most


def test_the_jackknife_by_hand():
    values, weights = np.array([0.1, 0.3, 0.2, 0.9]), np.array([1.0, 2.0, 3.0, 2.0])
    rests = leave_one_out_means(values, weights)
    keep = [np.arange(4) != left for left in range(4)]
    np.testing.assert_allclose(rests, [np.average(values[one], weights=weights[one]) for one in keep])
    shares = weights / weights.sum()
    error = np.sqrt(3 / 4 * ((rests - rests.mean()) ** 2).sum())
    wide = t.ppf(0.975, 1 / (shares**2).sum() - 1) * error
    np.testing.assert_allclose([*jackknife(0.4, rests, shares, 0.95)], [0.4 - wide, 0.4 + wide])
    assert leave_one_out_means(values[:1], weights[:1]).tolist() == []
    assert np.isnan([*jackknife(0.4, np.empty(0), np.ones(1), 0.95)]).all()
    lopsided = np.array([0.99, 0.01])  # at least one degree of freedom
    low, _ = jackknife(0.0, np.array([0.0, 2.0]), lopsided, 0.5)
    assert low == pytest.approx(-t.ppf(0.75, 1))


def test_queries_are_drawn_or_left_out_with_all_their_sessions():
    log = lists("a1 b0", "a1 b0", "a1 b0", "a1 b0", "a1 b0", qids=[0, 0, 1, 2, 2])
    for weights in bootstrap_weights(log, 5, 0):
        assert weights.sum() == log.n_queries
    weights, shares = jackknife_groups(log, 2, 0)
    assert weights.shape == (2, 3)
    assert weights.sum() == 3  # each is left out once
    assert sorted(shares) in ([0.2, 0.8], [0.4, 0.6])
    assert len(jackknife_groups(log, 20, 0)[0]) == 3


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("dcg", ("dcg", "dcg", None, "click")),
        (" DCG@10 ", ("dcg@10", "dcg", 10, "click")),
        ("ctr@1", ("ctr@1", "ctr", 1, "click")),
    ],
)
def test_metrics_of_clicks(name, parts):
    assert tuple(Metric.from_name(name)) == parts


@pytest.mark.parametrize("name", ["ctr", "ctr@0", "dcg@0", "ndcg@10", "dcg@", "dcg@-1", "dcg@1x"])
def test_other_metrics_are_not_told_by_clicks(name):
    with pytest.raises(UnknownNameError):
        Metric.from_name(name)


def test_ranks_count_from_one_within_each_query():
    data = tr.RankingData(np.zeros((5, 1)), qid=[1, 1, 1, 2, 2])
    assert ranks_of(np.array([0.1, 0.9, 0.5, 0.2, 0.3]), data).tolist() == [3, 1, 2, 2, 1]


def estimates(**changed):
    plain = {
        "mean": {"dcg": 0.5}, "per_query": {"dcg": np.zeros(2)},
        "intervals": {"dcg": Interval(0.5, 0.25, 0.75, 0.9, 2, "")},
        "effective_sample_size": {"dcg": 100.0}, "contributing_impressions": {"dcg": 1000}, "estimator": "snips",
        "impressions": 2000,
        "never_shown": {"dcg": 0}, "ranked": {"dcg": 40}, "unknown": 0, "without_propensity": 0, "confidence": 0.9,
    }  # fmt: skip
    return OffPolicyEstimate(**(plain | changed))


def test_estimates_that_rest_on_less_than_a_tenth_are_doubted():
    assert estimates().caveats == []
    (doubt,) = estimates(effective_sample_size={"dcg": 99.0}).caveats
    assert doubt.startswith("dcg rests on few impressions: 99 of equal weight would say as much as the 1,000 that")
    assert doubt in str(estimates(effective_sample_size={"dcg": 99.0}))


def test_what_is_said_of_estimates():
    plain = str(estimates())
    assert plain.startswith("Estimated from 2,000 impressions by snips.")
    assert "90% interval" in plain
    assert "0.5000  [0.2500, 0.7500]" in plain
    assert "never shown at" not in plain
    assert "count as 0, so the estimate is too low" in str(estimates(never_shown={"dcg": 3}))
    assert "count as the prediction of the regression" in str(estimates(never_shown={"dcg": 3}, estimator="dr"))
    assert estimates().value == 0.5
    assert tuple(estimates().interval) == (0.25, 0.75)
    both = estimates(mean={"dcg": 0.5, "ctr@1": 0.1})
    for name in ("value", "interval"):
        with pytest.raises(DataError, match="There are 2 metrics"):
            getattr(both, name)


def test_sentences_about_impressions_appear_where_there_are_some():
    assert dropped_sentences(0, 0) == clipping_sentences(0.1, 0, "ips") == []
    assert [len(dropped_sentences(*counts)) for counts in ((1, 0), (0, 1), (1, 1))] == [1, 1, 2]
    assert dropped_sentences(1, 0)[0].endswith("that are not in the data were dropped.")
    assert dropped_sentences(0, 1)[0].endswith("propensity is 0 or unknown were dropped.")
    assert clipping_sentences(0.1, 5, "ips")[0].endswith("(clip): their clicks count too little.")
    assert clipping_sentences(0.1, 5, "dr")[0].endswith("the regression replaces the clipped part.")


def test_compared_models_in_words():
    found = ComparedModels(
        ("PBM", "RankCTR", "Cascade"), np.array([-1.0, -1.5, -np.inf]), np.array([1.25, 1.5, 2.0]), (), np.array(
            [0.5, 0.0, -np.inf]), (np.array([0.25, 0.0, np.nan]), np.array([0.75, 0.0, np.nan])), "RankCTR", (70, 7),
        {}, 0.9,
    )  # fmt: skip
    rows = found.table().rows
    assert rows[0] == ("PBM", "-1.0000", "1.2500", "+0.5000", "[+0.2500, +0.7500]")
    assert rows[1] == ("RankCTR", "-1.5000", "1.5000", "", "the best rate")
    assert rows[2][3:] == ("-inf", "—")
    assert "70 held-out sessions of 7 queries" in str(found)
    assert "assigns probability 0 to observed clicks" in str(found)
    assert "impossible" not in str(replace(found, log_likelihoods=np.array([-1.0, -1.5, -2.0])))


@pytest.mark.parametrize(("share", "what"), [(0.2, "test"), (0.8, "fit")])
def test_some_sessions_are_left_on_both_sides(share, what):
    log = lists("a1 b0", "a0 b1")
    with pytest.raises(DataError, match=f"leaves none to {what}"):
        tr.clicks.compare_models(log, [], holdout=share)


@pytest.mark.parametrize(
    "wrong", [{"holdout": 0.0}, {"holdout": 1.0}, {"n_resamples": 1}, {"confidence": 0.0}, {"confidence": 1.0}]
)
def test_limits_of_compared_models(wrong):
    with pytest.raises(ToprankError, match=f"^{next(iter(wrong))} must be"):
        tr.clicks.compare_models(lists("a1 b0", "a0 b1"), [], **wrong)


def test_models_have_names_of_their_own():
    log, PBM = lists("a1 b0", "a0 b1"), tr.clicks.PBM
    with pytest.raises(DataError, match="Two models are called PBM"):
        tr.clicks.compare_models(log, [PBM(), PBM()])
    with pytest.raises(DataError, match="must be click models"):
        tr.clicks.compare_models(log, {"x": 3})
    with pytest.raises(DataError, match="'RankCTR' is the name of a click rate"):
        tr.clicks.compare_models(log, {"RankCTR": PBM()})
    own = tr.clicks.RankCTR()
    assert set(tr.clicks.compare_models(log, {"mine": own}, holdout=0.5).names) == {"mine", "GlobalCTR", "DocumentCTR"}
    assert model_named("sDbN") is tr.clicks.SDBN
    with pytest.raises(UnknownNameError):
        model_named("none")


@pytest.mark.parametrize(
    ("positions", "words"),
    [([1], "1"), ([1, 2], "1 to 2"), ([1, 3], "1, 3"), ([2, 3, 4, 6, 8, 9], "2 to 4, 6, 8 to 9")],
)
def test_positions_in_words(positions, words):
    assert _in_words(positions) == words


def a_report(edges, components, depth=12):
    ones = np.ones(depth, dtype=np.int64)
    return LogReport({"sessions": 3, "clicks": 2}, (), Graph(depth, tuple(edges), components), 2 * ones, ones, None)


def test_fifteen_pairs_of_positions_are_shown_and_of_more_some():
    edges = [Edge(a, b, 3, 9) for a in range(1, 13) for b in range(a + 1, 13)]
    whole = (tuple(range(1, 13)),)
    assert len(a_report(edges[:15], whole).edges_table().rows) == 15
    assert "Of 15 pairs" not in str(a_report(edges[:15], whole))
    some = a_report(edges[:16], whole).edges_table().rows
    assert [row[0] for row in some] == [f"1 and {b}" for b in range(2, 11)] + ["2 and 3"]
    assert "Of 16 pairs, the table shows neighbors and pairs with the first position, down to position 10:" in str(
        a_report(edges[:16], whole)
    )
    assert "connect all positions" in str(a_report(edges[:3], whole))
    assert "Positions fall into 2 groups that are not connected by documents: 1 to 2; 3." in str(
        a_report(edges[:1], ((1, 2), (3,)))
    )
    bare = str(a_report([], ((1,), (2,))))
    assert bare.startswith("3 sessions, 2 clicks.")
    assert "No findings." in bare
    assert "groups" not in bare


def test_positions_are_joined_by_enough_documents():
    path = Graph(4, (Edge(1, 3, 2, 9), Edge(2, 3, 1, 9)), ((1, 2, 3), (4,)))
    assert path.joined(1).tolist() == [True, True, True, False]
    assert path.joined(2).tolist() == [True, False, True, False]
    assert path.joined(3).tolist() == [True, False, False, False]
    assert path.identified.tolist() == path.joined(1).tolist()
    assert a_report(path.edges, path.components, 4).to_dict()["positions"][1]["swapped_with_next"] == 1
