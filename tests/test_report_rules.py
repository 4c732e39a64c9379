"""The first sentence of a report for differences of every sort: who wins, how sure it is, what supports it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from test_comparison_rules import DIFFERENCE, comparison, interval
from toprank.evaluation.values import Values
from toprank.report.headline import difference_between, headline, reversed_difference


def with_means(means):
    """Values of systems that have these means of ndcg, the same on every query."""
    return Values(tuple(means), ("ndcg",), np.array([[np.full(40, mean)] for mean in means.values()]))


def of(*, baseline=None, against_leader=False, means=(0.75, 0.5), correction="holm", **changed):
    """The headline of new against old, or against the baseline old."""
    values = with_means({"new": means[0], "old": means[1]})
    found = comparison(replace(DIFFERENCE, **changed), values=values, baseline=baseline, correction=correction)
    return headline(found, against_leader)


TURNED = {
    "means": (0.5, 0.75), "mean_a": 0.5, "mean_b": 0.75, "difference": -0.25, "interval": interval(-0.375, -0.125),
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"significant": True}, "new wins by 0.2500 ndcg over old, a significant difference."),
        (
            {"significant": True, "baseline": "old"},
            "new wins by 0.2500 ndcg over old, the baseline, a significant difference.",
        ),
        (
            {"significant": True, "baseline": "old", "against_leader": True},
            "new wins by 0.2500 ndcg over old, a significant difference.",
        ),
        (
            {"significant": True, "equivalent": True},
            "new wins by 0.2500 ndcg over old, a significant difference, but within the equivalence margin of 0.01.",
        ),
        (
            {"significant": True, "baseline": "old"} | TURNED,
            "old, the baseline, wins by 0.2500 ndcg over new, a significant difference.",
        ),
        ({"significant": True} | TURNED, "old wins by 0.2500 ndcg over new, a significant difference."),
        (  # the best mean of all loses on the queries that count for both
            {"significant": True} | TURNED | {"means": (0.75, 0.5)},
            "old wins by 0.2500 ndcg over new, a significant difference.",
        ),
        (
            {"equivalent": True, "interval": interval(-0.125, 0.625)},
            "new and old are equivalent: they differ by 0.2500 ndcg.",
        ),
        # Never "equal" beside an interval without 0, on whichever side it lies.
        ({"equivalent": True}, "new leads old by 0.2500 ndcg, within the equivalence margin of 0.01."),
        ({"equivalent": True} | TURNED, "old leads new by 0.2500 ndcg, within the equivalence margin of 0.01."),
        ({}, "new leads old by 0.2500 ndcg, which is not significant."),
        ({"baseline": "old"} | TURNED, "old leads new by 0.2500 ndcg, which is not significant."),
        ({"difference": 0.0, "mean_a": 0.5, "mean_b": 0.5}, "new and old have equal ndcg."),
    ],
)
def test_who_wins_in_one_sentence(given, sentence):
    assert of(**given).sentence == sentence


@pytest.mark.parametrize(
    ("given", "kind", "verdict"),
    [
        ({}, "noise", "Not significant: p = 0.02"),
        ({"significant": True}, "shown", "Significant: p = 0.02"),
        ({"equivalent": True}, "equivalent", "Equivalent within ±0.01: p = 0.75"),
        (
            {"equivalent": True, "significant": True},
            "shown",
            "Significant: p = 0.02, but equivalent within ±0.01: p = 0.75",
        ),
    ],
)
def test_how_sure_it_is(given, kind, verdict):
    found = of(**given)
    assert (found.kind, found.verdict) == (kind, verdict)


def test_what_supports_it():
    start = "0.7500 against 0.5000; 95 % interval of the difference "
    plain = start + "[0.1250, 0.3750]."
    assert of(significant=True).support == plain
    assert of(significant=True, **TURNED).support == plain
    wide, ends = {"interval": interval(-0.125, 0.625)}, start + "[−0.1250, 0.6250]."
    assert of(**wide).support == ends
    assert of(**wide, queries_needed=40).support == ends
    more = " About 41 queries would be needed to detect a difference of this size."
    assert of(**wide, queries_needed=41).support == ends + more
    assert of(**wide, queries_needed=None).support == ends
    assert of(**wide, queries_needed=41, equivalent=True).support == ends
    assert of(queries_needed=41, significant=True).support == plain
    error = replace(DIFFERENCE, lower_is_better=True)
    found = headline(
        comparison(error, values=replace(with_means({"old": 0.5, "new": 0.75}), lower_is_better=frozenset({"ndcg"})))
    )
    assert found.support.startswith("0.5000 against 0.7500, less is better;")


def test_why_interval_and_verdict_disagree_is_told():
    alone = "The interval excludes 0, but it is not adjusted for multiple testing; p is adjusted for 1 test."
    way = "in contrast to the test. They use different methods, and this is a borderline case."
    assert of(p=0.05, p_adjusted=0.1).support.endswith(alone)
    assert of(p=0.05, p_adjusted=0.1, equivalent=True, **TURNED).support.endswith(alone)
    assert of(p=0.0501, p_adjusted=0.1).support.endswith(f"The interval excludes 0 {way}")
    for ends in (interval(0.0, 0.5), interval(-0.5, 0.0), interval(-0.25, 0.5)):
        assert of(interval=ends, significant=True).support.endswith(f"The interval includes 0 {way}")
        assert "The interval" not in of(interval=ends).support


def several(baseline, *signs, correction="holm"):
    """One system against others that it beats (+), loses to (-), or is not told apart from (0)."""
    values = with_means({"first": 0.75} | {f"s{i}": 0.5 - 0.01 * i for i in range(len(signs))})
    found = []
    for i, sign in enumerate(signs):
        value = 0.25 * (sign or 1)
        known = {"difference": value, "mean_a": 0.5 + value, "mean_b": 0.5, "significant": sign != 0}
        pair = {"a": f"s{i}", "b": "first"} if baseline else {"a": "first", "b": f"s{i}"}
        found.append(replace(DIFFERENCE, **pair, **known))
    return headline(comparison(*found, values=values, baseline="first" if baseline else None, correction=correction))


def test_how_many_of_the_others_are_told_apart():
    after = "at level 0.05 after Holm's correction."
    assert several(False, 1, 0, 1).support.endswith(f"first is better than 2 of its 3 rivals {after}")
    assert several(False, 0, 0).support.endswith(f"first is better than none of its 2 rivals {after}")
    assert several(False, 0, -1).support.endswith(f"first is better than none of its 2 rivals {after}")
    assert several(True, 1, -1, -1, 0).support.endswith(f"Of 4 compared with first, 1 is better and 2 worse {after}")
    assert several(True, 1, 0, correction="none").support.endswith("1 is better and 0 worse at level 0.05.")


def test_a_difference_seen_from_the_other_side():
    turned = reversed_difference(DIFFERENCE)
    assert (turned.a, turned.b, turned.difference, turned.effect_size) == ("old", "new", -0.25, -0.5)
    assert (turned.interval.low, turned.interval.high) == (-0.375, -0.125)
    assert (turned.mean_a, turned.mean_b, turned.wins, turned.ties, turned.losses) == (0.5, 0.75, 4, 6, 30)
    assert reversed_difference(turned) == DIFFERENCE
    assert reversed_difference(replace(DIFFERENCE, effect_size=None)).effect_size is None
    both = comparison()
    assert difference_between(both, "old", "new", "ndcg") is DIFFERENCE
    assert difference_between(both, "new", "old", "ndcg") is DIFFERENCE
    assert difference_between(both, "new", "old", "map") is None
    assert difference_between(both, "new", "third", "ndcg") is None
