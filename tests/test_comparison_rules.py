"""What a comparison may be asked, at the limits, and what it says of differences of every sort."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from toprank.errors import DataError, ToprankError
from toprank.evaluation.comparison import Comparison, Difference
from toprank.evaluation.statistics import ComparisonOptions
from toprank.evaluation.values import Values
from toprank.significance import Interval


def interval(low, high):
    return Interval((low + high) / 2, low, high, 0.95, 40, "bootstrap")


DIFFERENCE = Difference(
    metric="ndcg", a="new", b="old", mean_a=0.75, mean_b=0.5, difference=0.25, interval=interval(0.125, 0.375),
    effect_size=0.5, p=0.01, p_adjusted=0.02, test="randomization", n=40, wins=30, ties=6, losses=4,
    queries_needed=12, equivalence_p=0.75,
)  # fmt: skip


def values(systems=("new", "old"), metrics=("ndcg",), n_queries=40, convention="standard"):
    numbers = np.full((len(systems), len(metrics), n_queries), 0.5)
    numbers[0] = 0.75
    return Values(systems, metrics, numbers, convention=convention)


def comparison(*differences, **more):
    settings = {"values": values(), "n_permutations": 1000, "n_resamples": 500, "seed": 7} | more
    statistics, more = ComparisonOptions.split(settings)
    return Comparison(differences=differences or (DIFFERENCE,), statistics=statistics, **more)


def verdict(**changed):
    return comparison().summary_of(replace(DIFFERENCE, **changed))


def test_a_significant_difference_names_the_better_system():
    said = "by 0.2500 [0.1250, 0.3750] ndcg, p = 0.02 (Holm, 1 test)."
    assert verdict(significant=True) == f"new is better than old {said}"
    turned = {"difference": -0.25, "interval": interval(-0.375, -0.125), "mean_a": 0.5, "mean_b": 0.75}
    assert verdict(significant=True, **turned) == f"old is better than new {said}"
    assert "old is better than new by 0.2500 [0.1250, 0.3750] ndcg (lower is better)" in verdict(
        significant=True, lower_is_better=True
    )
    assert "new is better than old" in verdict(significant=True, lower_is_better=True, **turned)
    assert verdict(significant=True, equivalent=True).endswith(
        "; so small a difference makes them equivalent within ±0.01."
    )
    level = {"difference": 0.0, "mean_a": 0.5, "mean_b": 0.5}
    assert verdict(significant=True, **level) == (
        "new and old differ in ndcg, p = 0.02 (Holm, 1 test), although their means are equal."
    )


def test_what_is_not_significant_is_equivalent_or_not_shown():
    assert verdict(equivalent=True) == "new and old are equivalent within ±0.01 in ndcg, p = 0.75 (Holm, 1 test)."
    nothing = "No difference between new and old can be shown in ndcg on 40 queries, p = 0.02 (Holm, 1 test)"
    assert verdict(queries_needed=None) == f"{nothing}."
    assert verdict(queries_needed=40) == f"{nothing}."  # there are so many
    assert verdict(queries_needed=41) == (
        f"{nothing}; about 41 queries would be needed to see a difference of this size."
    )


@pytest.mark.parametrize(
    ("means", "lower", "winner"),
    [((2.0, 1.0), False, "new"), ((1.0, 2.0), False, "old"), ((2.0, 1.0), True, "old"), ((1.0, 2.0), True, "new"),
     ((1.0, 1.0), False, None), ((1.0 + 1e-15, 1.0), False, None), ((0.0, 0.0), True, None)],
)  # fmt: skip
def test_the_winner_has_the_better_mean(means, lower, winner):
    a, b = means
    one = replace(DIFFERENCE, mean_a=a, mean_b=b, difference=a - b, lower_is_better=lower)
    assert one.winner == winner


@pytest.mark.parametrize(
    "wrong",
    [{"test": "z"}, {"correction": "fdr"}, {"confidence": 0.5}, {"confidence": 1.0}, {"margin": 0.0}, {"power": 0.0},
     {"power": 1.0}, {"power": 0.05}, {"power": 0.03}, {"n_permutations": 0}, {"n_resamples": 0}, {"seed": -1}],
)  # fmt: skip
def test_limits_of_a_plan(wrong):
    with pytest.raises(ToprankError, match=next(iter(wrong))):
        comparison(**wrong)


def test_what_a_plan_takes():
    assert comparison(power=0.0501, confidence=0.95).alpha == 0.05
    assert comparison(confidence=0.51, power=0.6).alpha == 0.49
    assert comparison(confidence=0.9).alpha == 0.1  # and not 0.09999999999999998


def test_headings_and_methods_in_words():
    one = comparison()
    assert one.heading == "2 systems on 40 queries, convention standard; all pairs."
    assert comparison(values=values(n_queries=1, convention=None), baseline="old").heading == (
        "2 systems on 1 query; each against the baseline old."
    )
    assert one.methods == (
        "p: paired randomization test, two-sided, 1,000 flips beyond 20 non-zero differences, Holm over 1 test (1 × 1, "
        "pairs × metrics); * at level 0.05. Intervals: studentized bootstrap, 500 resamples, each for itself. Needed: "
        "queries for power 0.8 at level 0.05/1. p (±0.01): equivalence, two one-sided tests that count an unseen "
        "query, same correction. Seed 7."
    )
    three = values(("a", "b", "c"), ("ndcg", "map"))
    plain_t = comparison(*[DIFFERENCE] * 6, values=three, test="t", correction="none")
    assert plain_t.methods.startswith("p: paired t test, two-sided, uncorrected; * at level 0.05.")
    assert "at level 0.05. p (±0.01)" in plain_t.methods
    assert "query, uncorrected." in plain_t.methods
    six = comparison(*[DIFFERENCE] * 6, values=three, correction="bonferroni")
    assert "Bonferroni over 6 tests (3 × 2, pairs × metrics)" in six.methods
    assert "at level 0.05/6" in six.methods
    assert six.tests == "6 tests"


def test_stars_mark_what_was_shown():
    def cells(**changed):
        [row] = comparison(replace(DIFFERENCE, **changed)).differences_table().rows
        return row

    plain_row = ("new", "old", "ndcg", "0.2500", "[0.1250, 0.3750]", "0.5000", "0.01", "0.02", "30/6/4", "40", "12")
    assert cells() == (*plain_row, "0.75")
    assert cells(significant=True)[7] == "0.02*"
    assert cells(equivalent=True)[11] == "0.75*"
    assert (cells(effect_size=None)[5], cells(queries_needed=None)[10]) == ("", "")
    assert comparison().differences_table().header[4] == "95 % interval"


def test_what_is_infinite_is_null_in_json():
    values = [None, np.inf, -np.inf, np.nan, 0.0, -2.5]
    assert [replace(DIFFERENCE, effect_size=value).to_dict()["effect_size"] for value in values] == [None] * 4 + [
        0.0,
        -2.5,
    ]
    found = replace(DIFFERENCE, interval=interval(-np.inf, np.inf), effect_size=np.inf).to_dict()
    assert found["interval"] == [None, None]
    assert found["effect_size"] is None


def test_a_picture_is_of_one_metric():
    other = replace(DIFFERENCE, metric="map", a="third")
    both = comparison(DIFFERENCE, other, values=values(metrics=("ndcg", "map")))
    assert "third" not in both.plot()._repr_svg_()
    assert "third" in both.plot("map")._repr_svg_()
    with pytest.raises(ToprankError, match="mrr"):
        both.plot("mrr")


def test_power_must_exceed_the_level_in_words():
    with pytest.raises(DataError, match=r"power is 0.05, but must be larger than the level of the tests \(0.05\)"):
        comparison(power=0.05)
