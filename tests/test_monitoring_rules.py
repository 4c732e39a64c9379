"""The rules of monitoring one by one: alarms with one side true alone, limits at their exact sizes, slow formulas."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ttest_ind

import toprank as tr
from toprank.errors import DataError
from toprank.monitoring import feature_drift as module
from toprank.monitoring.drift import Drift
from toprank.monitoring.feature_drift import (
    CellCounts,
    FeatureDrift,
    Resamples,
    adjusted_p_values,
    count_cells,
    feature_drifts,
    measure_drift,
    sample_queries,
)
from toprank.monitoring.forecast import Disagreement, ExpectedChange, expected_change
from toprank.significance import Interval


def between(value, low, high):
    return Interval(value, low, high, 0.95, 40, "")


def a_test(psi=0.2, ks=None):
    counts = np.array([[3.0, 1.0]], dtype=np.float32), np.array([[2.0, 2.0]], dtype=np.float32)
    cells = CellCounts(*counts, np.array([0, 1]), 1, np.array([1.0]), 0.25)
    return module.DriftTest(cells, between(psi, 0.0, 0.3), ks, psi, np.zeros(3))


@pytest.mark.parametrize(
    ("p", "psi", "drifted"),
    [(0.05, 0.1, True), (0.01, 0.3, True), (0.0501, 0.3, False), (0.01, 0.0999, False), (0.5, 0.05, False)],
)
def test_an_alarm_needs_both_a_small_p_and_a_far_shift(p, psi, drifted):
    [shift] = feature_drifts(["x"], [a_test(psi)], [p], 0.1, 0.05)
    assert shift == FeatureDrift("x", psi, between(psi, 0.0, 0.3), None, None, p, (0.25, 0.5), 0.25, drifted)
    [ordered] = feature_drifts(["x"], [a_test(ks=between(0.3, 0.2, 0.4))], [p], 0.1, 0.05)
    assert (ordered.ks, tuple(ordered.ks_interval)) == (0.3, (0.2, 0.4))


def slowly(counts, bins, ordered):
    """PSI and KS of one pair of rows of counts, cell by cell."""
    binned = [[0.5 + sum(row[bins == k]) for k in sorted(set(bins.tolist()))] for row in counts]
    p, q = (np.array(row) / sum(row) for row in binned)
    curves = [[sum(row[: end + 1]) / max(sum(row[:ordered]), 1) for end in range(ordered)] for row in counts]
    return sum((q - p) * np.log(q / p)), max(abs(a - b) for a, b in zip(*curves, strict=True))


def estimated(met, dealt, again, confidence):
    excess = np.mean(again) - met
    low, high = (np.quantile(again, part) - 2 * excess for part in ((1 - confidence) / 2, (1 + confidence) / 2))
    low = 0 if met <= np.quantile(dealt, confidence) else low
    return [max(value, 0) for value in (met - excess, low, high)]


@pytest.mark.parametrize("seed", range(12))
def test_estimates_and_intervals_are_their_slow_formulas(seed):
    rng = np.random.default_rng(seed)
    sizes = 8, 5
    values = [rng.normal(shift, size=10 * n).round(1) for n, shift in zip(sizes, (0, 0.3 * (seed % 4)), strict=True)]
    values[1][::7] = np.nan
    draws = Resamples(*sizes, 7, rng)
    blocks = [block[np.repeat(np.arange(n), 10)] for block, n in zip(draws.block_of, sizes, strict=True)]
    cells = count_cells(*values, blocks, draws.blocks)
    confidence = 0.5  # the quantile of few resamples then lies among them
    test = measure_drift(cells, draws, confidence)
    sides = [np.float64(side) for side in cells[:2]]
    whole = np.concatenate(sides)
    as_met = [side.sum(axis=0) for side in sides]
    permuted = [(whole[row == 1].sum(axis=0), whole[row == 0].sum(axis=0)) for row in draws.permutations]
    resampled = [tuple(draws.bootstrap[side][turn] @ sides[side] for side in (0, 1)) for turn in range(7)]
    for at, found in enumerate((test.psi, test.ks)):
        met, dealt, again = (
            [slowly(pair, cells.bins, cells.ordered)[at] for pair in pairs]
            for pairs in ([as_met], permuted, resampled)
        )  # fmt: skip
        np.testing.assert_allclose(
            [found.value, *found], estimated(met[0], dealt, again, confidence), rtol=1e-6, atol=1e-9
        )
        if at == 0:
            np.testing.assert_allclose([test.observed, *test.permuted], met + dealt, rtol=1e-6)
    both = np.concatenate(values)
    assert cells.edges[0] < np.nanmin(both)
    assert cells.edges[-1] == np.nanmax(both)
    assert (np.diff(cells.edges) > 0).all()
    assert not whole[:, 0].any()  # the cell below the least value


def test_p_values_count_how_often_the_largest_root_under_chance_reaches_so_far():
    rng = np.random.default_rng(0)
    statistics = [(float(rng.chisquare(df)), rng.chisquare(df, 40)) for df in (1, 4, 9)]
    roots = []
    for met, permuted in statistics:
        values = np.append(permuted, met)
        part = values.var() / values.mean() ** 2 / 9
        roots.append([((value / values.mean()) ** (1 / 3) - 1 + part) / part**0.5 for value in values])
    largest = [max(column) for column in zip(*(row[:-1] for row in roots), strict=True)]
    assert adjusted_p_values(statistics) == [(1 + sum(one >= row[-1] for one in largest)) / 41 for row in roots]
    # A statistic that nothing moves is no rival to the others, and never surprising.
    assert adjusted_p_values([*statistics, (2.0, np.full(40, 2.0))]) == [*adjusted_p_values(statistics), 1.0]


@pytest.mark.parametrize(
    ("reference", "new", "size"),
    [(4, 3, 1), (100, 100, 1), (1000, 1000, 1), (1001, 1000, 2), (2000, 2000, 2), (2001, 2000, 3), (99, 5000, 1),
     (5000, 149, 2), (5000, 150, 3), (149, 5000, 2)],
)  # fmt: skip
def test_queries_are_drawn_in_blocks_of_one_size(reference, new, size):
    """As many as leave 2,000 blocks of both sides together, and 50 of each."""
    draws = Resamples(reference, new, 3, np.random.default_rng(0))
    for n, blocks, of in zip((reference, new), draws.blocks, draws.block_of, strict=True):
        sizes = np.bincount(of, minlength=blocks)
        assert blocks == len(sizes) == -(-n // size)
        assert set(sizes[:-1]) <= {size}
        assert sizes.sum() == n
    for n, again in zip(draws.blocks, draws.bootstrap, strict=True):
        assert again.sum(axis=1).tolist() == [n] * 3  # with replacement
    assert draws.permutations.sum(axis=1).tolist() == [draws.blocks[0]] * 3
    assert set(draws.permutations.ravel().tolist()) == {0.0, 1.0}


def test_as_many_queries_as_are_looked_at_are_all_looked_at(monkeypatch):
    monkeypatch.setattr(module, "MAX_QUERIES", 5)
    rng = np.random.default_rng(0)
    six, five = (tr.synthetic(n_queries=n, n_documents=2, n_features=1).queries for n in (6, 5))
    assert sample_queries(five, rng).tolist() == [0, 1, 2, 3, 4]
    some = sample_queries(six, rng).tolist()
    assert len(set(some)) == 5
    assert some == sorted(some)


def test_codes_have_cells_of_their_own_and_unknown_ones_share_one():
    codes = [np.array([0.0, 1, 1, np.nan]), np.array([1.0, 2, -1, 7, np.nan, 0, 0, 0])]
    blocks = [np.zeros(len(each), dtype=int) for each in codes]
    cells = count_cells(*codes, blocks, (1, 1), levels=2)
    assert cells.reference.tolist() == [[1, 2, 0, 1]]
    assert cells.new.tolist() == [[3, 1, 3, 1]]
    assert (cells.ordered, cells.out_of_range, cells.bins.tolist()) == (0, 3 / 8, [0, 1, 2, 3])


def test_what_lies_outside_of_the_reference_is_strictly_outside():
    blocks = [np.zeros(4, dtype=int)] * 2
    reference = np.array([1.0, 2, 3, np.nan])
    assert count_cells(reference, np.array([1.0, 3, 3.5, 0.5]), blocks, (1, 1)).out_of_range == 0.5
    assert count_cells(reference, np.array([1.0, 3, 2, np.nan]), blocks, (1, 1)).out_of_range == 0
    nothing = np.full(4, np.nan)
    assert count_cells(nothing, np.array([1.0, np.nan, np.nan, np.nan]), blocks, (1, 1)).out_of_range == 0.25


def expectation(values):
    interval = Interval(float(np.mean(values)), 0.0, 9.0, 0.9, len(values), "")
    return SimpleNamespace(mean=np.asarray(values), overall_interval=lambda: interval)


def test_the_interval_of_the_expected_dcg_is_welchs():
    rng = np.random.default_rng(0)
    before, after = rng.normal(3, 1, 12), rng.normal(2, 2, 7)
    change = expected_change((expectation(before), expectation(after)), 5, 0.9, 0.01)
    welch = ttest_ind(after, before, equal_var=False).confidence_interval(0.9)
    assert tuple(change.interval) == pytest.approx(tuple(welch))
    assert change.difference == pytest.approx(after.mean() - before.mean())
    assert (change.k, tuple(change.reference_interval), tuple(change.new_interval)) == (5, (0.0, 9.0), (0.0, 9.0))
    assert (change.p, change.reference_interval.value) == (0.01, before.mean())
    same = expected_change((expectation([2.0, 2.0]), expectation([2.0, 2.0])), 5, 0.9, 1.0)
    assert (same.difference, tuple(same.interval), same.changed) == (0.0, (0.0, 0.0), False)


@pytest.mark.parametrize(
    ("p", "new", "changed"),
    [(0.25, 1.9, True), (0.25, 2.1, True), (0.25, 1.9375, False), (0.26, 1.0, False), (0.01, 1.0, True)],
)
def test_the_expected_dcg_calls_where_it_has_surely_changed_by_a_twentieth(p, new, changed):
    assert expected_change((expectation([1.0, 3.0]), expectation([new - 1, new + 1])), 5, 0.75, p).changed is changed


def a_shift(name="price", *, drifted=False, psi=0.2, missing=(0.0, 0.0), out_of_range=0.0, ks=0.125):
    return FeatureDrift(name, psi, between(psi, 0.1, 0.3), ks, None, 0.03, missing, out_of_range, drifted)


def a_drift(*features, change=None, shadow=None, queries=(10, 20), **score):
    return Drift(features, a_shift("score", **score), change, shadow, queries, 0.95, "No DCG." * (change is None))


def a_change(difference, *, changed=True):
    return ExpectedChange(
        7, 2.0, between(2.0, 1.9, 2.1), 2.0 + difference, between(2.0, 1, 3), difference, between(difference, -1, 1),
        0.01, changed,
    )  # fmt: skip


def test_alarms_in_words():
    assert a_drift(a_shift(), change=a_change(1, changed=False)).alarms == ()
    assert a_drift(a_shift(), drifted=True).alarms == ("The scores have drifted: PSI 0.20, p = 0.03.",)
    assert a_drift(a_shift(drifted=True)).alarms == ("price has drifted: PSI 0.20, p = 0.03.",)
    assert a_drift(a_shift("3", drifted=True)).alarms == ("Feature 3 has drifted: PSI 0.20, p = 0.03.",)
    assert a_drift(change=a_change(-0.5)).alarms == ("The expected DCG@7 fell by 0.5000.",)
    (rise,) = a_drift(change=a_change(0.5)).alarms
    assert rise.startswith("The expected DCG@7 rose by 0.5000: the new documents differ from")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"missing": (0.0, 0.01)}, ", missing 0.0% before and 1.0% now"),
        ({"missing": (0.5, 0.25)}, ", missing 50.0% before and 25.0% now"),
        ({"missing": (0.25, 0.255)}, ""),
        ({"out_of_range": 0.01}, ", 1.0% of values out of range"),
        ({"out_of_range": 0.009}, ""),
    ],
)
def test_an_alarm_tells_of_missing_and_new_values_from_one_in_a_hundred_on(told, words):
    (alarm,) = a_drift(a_shift(drifted=True, **told)).alarms
    assert alarm == f"price has drifted: PSI 0.20{words}, p = 0.03."


def test_the_table_marks_what_drifted_and_leaves_empty_what_is_nothing():
    rows = a_drift(a_shift(ks=None), drifted=True, missing=(0.0, 0.5), out_of_range=0.125).table().rows
    assert rows[0] == ("score !", "0.200", "[0.100, 0.300]", "0.125", "0.03", "0.0% → 50.0%", "12.5%")
    assert rows[1] == ("price", "0.200", "[0.100, 0.300]", "", "0.03", "", "")
    assert len(a_drift(a_shift(), a_shift()).table(2).rows) == 2


@pytest.mark.parametrize(("n", "more"), [(11, None), (12, "… and 1 more features"), (20, "… and 9 more features")])
def test_the_text_shows_twelve_rows_and_says_how_many_are_left(n, more):
    text = str(a_drift(*(a_shift(f"f{i:02}") for i in range(n))))
    assert "f10" in text
    assert "f11" not in text
    assert (more or "more features") in text if more else "more features" not in text


@pytest.mark.parametrize(("queries", "told"), [((20_000, 5), False), ((20_001, 5), True), ((5, 20_001), True)])
def test_the_text_says_where_not_every_query_was_looked_at(queries, told):
    assert ("sampled down to 20,000" in str(a_drift(a_shift(), queries=queries))) == told


def test_the_text_tells_the_dcg_or_why_there_is_none_and_the_shadow():
    assert "No DCG." in str(a_drift(a_shift()))
    shadow = Disagreement(3, 0.25, between(0.25, 0.125, 0.375), 0.5, between(0.5, 0.25, 0.75), 4)
    text = str(a_drift(a_shift(), change=a_change(-0.5), shadow=shadow))
    assert "No DCG." not in text
    assert "Expected DCG@7, without labels: 2.0000 before, 1.5000 now, −0.5000 [−1.0000, +1.0000]." in text
    first = "another document first in 25.0% of the queries [12.5%, 37.5%]"
    assert f"{first}, and replaces 50.0% of the top 3 [25.0%, 75.0%]." in " ".join(text.split())


def test_gauges_and_frame():
    features = a_shift(psi=0.5, missing=(0.0, 0.5), out_of_range=0.25, drifted=True), a_shift("age", psi=0.25)
    drift = a_drift(*features, change=a_change(-0.5), psi=0.75)
    assert drift.gauges() == {
        "alarms": 2, "score_psi": 0.75, "largest_feature_psi": 0.5, "features_drifted": 1, "missing_share": 0.25,
        "out_of_range_share": 0.125, "expected_dcg": 1.5, "expected_dcg_change": -0.5,
    }  # fmt: skip
    nothing = replace(drift, features=(), expected_dcg=None).gauges()
    assert {name: value for name, value in nothing.items() if value} == {"score_psi": 0.75}
    assert "expected_dcg" not in nothing
    rows = drift.to_frame("arrow").to_pylist()
    assert rows[0] == {
        "name": "price", "psi": 0.5, "psi_low": 0.1, "psi_high": 0.3, "ks": 0.125, "p": 0.03, "missing_before": 0.0,
        "missing_after": 0.5, "out_of_range": 0.25, "drifted": True,
    }  # fmt: skip
    assert [row["name"] for row in rows] == ["price", "age", "score"]
    assert drift.to_dict()["shadow"] is None


@pytest.mark.parametrize(
    "wrong", [{"k": 0}, {"n_resamples": 98}, {"confidence": 0.0}, {"confidence": 1.0}, {"psi_threshold": -1e-9}]
)
def test_limits_of_what_may_be_asked(wrong):
    data = tr.synthetic(n_queries=2, n_documents=4, n_features=2, seed=0)
    ranker = tr.LinearRanker().fit(data)
    drift = tr.monitor(ranker, data, data, k=1, n_resamples=99, confidence=0.5, psi_threshold=0)
    assert drift.queries == (2, 2)
    assert drift.scores.psi == 0
    with pytest.raises(DataError, match=next(iter(wrong))):
        tr.monitor(ranker, data, data, **wrong)
