"""Significance tests, intervals and corrections against enumeration, independent formulas, SciPy and simulation."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats

from toprank import significance as sig
from toprank.errors import DataError, UnknownNameError
from toprank.significance.resampling import _resampled, mean_interval
from toprank.significance.tests import _sampled_hits, column, stream_start

small_integers = st.lists(st.integers(-6, 6), min_size=1, max_size=12)
real_differences = st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=30)


METHODS = ("studentized", "bca", "percentile")


def enumerated(differences):
    """The definition, in whole numbers: the share of sign patterns whose sum is as large as the observed one."""
    observed = abs(sum(differences))
    patterns = list(itertools.product([-1, 1], repeat=len(differences)))
    hits = sum(abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= observed for signs in patterns)
    return Fraction(hits, len(patterns))


def exact_p(differences):
    """The same for many whole numbers: the distribution of the signed sum by convolution."""
    reach = sum(abs(d) for d in differences)
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for d in differences:
        chances = (np.roll(chances, d) + np.roll(chances, -d)) / 2
    return chances[np.abs(np.arange(-reach, reach + 1)) >= abs(sum(differences))].sum()


def simulation_error(chance, times):
    return 4.5 * math.sqrt(chance * (1 - chance) / times)


class TestRandomization:
    @given(small_integers)
    @settings(deadline=None, max_examples=60)
    def test_equals_enumeration(self, differences):
        result = sig.randomization_test(differences)
        assert result.p == enumerated(differences)
        assert result.n == len(differences)
        assert result.difference == pytest.approx(np.mean(differences), abs=1e-15)

    @given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=10))
    @settings(deadline=None, max_examples=60)
    def test_rounding_does_not_break_ties(self, tenths):
        a, b = [x / 10 for x, _ in tenths], [y / 10 for _, y in tenths]
        assert sig.randomization_test(a, b).p == enumerated([x - y for x, y in tenths])

    @pytest.mark.parametrize("n", [21, 24, 61, 200])
    @pytest.mark.parametrize("shift", [0.0, 0.4])
    def test_sampled_agrees_with_the_exact_distribution(self, n, shift):
        rng = np.random.default_rng(n)
        differences = np.rint(rng.normal(shift, 3, n)).astype(int)
        differences[differences == 0] = 1
        p = sig.randomization_test(differences, n_permutations=50_000, seed=3).p
        assert abs(p - exact_p(differences.tolist())) < simulation_error(p, 50_000) + 1e-12

    @pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 16])
    def test_the_sampling_kernel_on_few_differences(self, n):
        differences = np.random.default_rng(n).integers(1, 5, n) * np.resize([1, 1, -1], n)
        p = float(enumerated(differences.tolist()))
        hits = _sampled_hits(differences.astype(float), 20_000, stream_start(0, 1), 1)
        assert abs(hits / 20_000 - p) <= simulation_error(p, 20_000)

    def test_twenty_are_enumerated_and_twenty_one_are_sampled(self):
        zeros = np.zeros(50)
        exact = sig.randomization_test(np.concatenate([zeros, np.ones(20)]))
        sampled = sig.randomization_test(np.concatenate([zeros, np.ones(21)]), n_permutations=3000)
        assert exact.p == 2 / 2**20
        assert exact.n == 70
        assert sampled.p == 1 / 3001
        assert "1,048,576 sign patterns" in exact.detail
        assert "3,000 random" in sampled.detail

    def test_default_is_a_hundred_thousand_flips(self):
        assert sig.randomization_test(np.ones(40)).p == 1 / 100_001

    @pytest.mark.parametrize("n_permutations", [1, 2047, 2048, 2049, 10_000])
    def test_same_bits_on_any_number_of_threads(self, n_permutations):
        differences = np.random.default_rng(5).normal(0.05, 1, 333)
        found = {
            sig.randomization_test(differences, n_permutations=n_permutations, seed=9, threads=t).p
            for t in (1, 2, 3, None)
        }
        assert len(found) == 1

    def test_more_flips_continue_fewer(self):
        differences = np.random.default_rng(5).normal(0.05, 1, 100)
        start = stream_start(1, 1)
        hits = [_sampled_hits(differences, n_permutations, start, 1) for n_permutations in range(2040, 2060)]
        assert all(later - earlier in (0, 1) for earlier, later in itertools.pairwise(hits))

    def test_seeds_differ(self):
        differences = np.random.default_rng(5).normal(0.05, 1, 100)
        assert len({sig.randomization_test(differences, n_permutations=5000, seed=seed).p for seed in range(8)}) > 4

    @given(st.lists(st.integers(-64, 64), min_size=1, max_size=40), st.integers(-300, 300))
    @settings(deadline=None, max_examples=40)
    def test_symmetric_and_free_of_shift_and_scale(self, whole, exponent):
        a, b = np.array(whole) / 64, np.arange(len(whole)) / 64  # dyadic: shifts below are exact
        p = sig.randomization_test(a, b, n_permutations=2000).p
        assert sig.randomization_test(b, a, n_permutations=2000).p == p
        assert sig.randomization_test(a + 3, b + 3, n_permutations=2000).p == p
        assert sig.randomization_test(np.ldexp(a, exponent), np.ldexp(b, exponent), n_permutations=2000).p == p
        assert sig.randomization_test(3 * a, 3 * b, n_permutations=2000).p == p

    def test_every_sign_pattern_gives_a_valid_p(self):
        """Given |d|, the null distribution is the sign patterns themselves: P(p ≤ α) ≤ α holds exactly."""
        for sizes in ([1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 1, 1, 2, 2, 0, 0], [5, 1, 1, 1, 1, 1, 1, 1]):
            p = np.array(
                [sig.randomization_test(np.multiply(s, sizes)).p for s in itertools.product([-1, 1], repeat=8)]
            )
            assert all(np.mean(p <= alpha) <= alpha for alpha in np.unique(p))

    @pytest.mark.parametrize("discrete", [True, False])
    def test_p_is_valid_under_the_null(self, discrete):
        rng, times = np.random.default_rng(2), 1500
        draw = (lambda: rng.choice([-2, -1, 0, 0, 0, 1, 2], 60)) if discrete else (lambda: rng.normal(size=60))
        p = np.array([sig.randomization_test(draw(), n_permutations=499, seed=k, threads=1).p for k in range(times)])
        for alpha in (0.01, 0.05, 0.2, 0.5):
            assert np.mean(p <= alpha) <= alpha + simulation_error(alpha, times)
            if not discrete:  # and not too cautious either
                assert np.mean(p <= alpha) >= alpha - simulation_error(alpha, times)

    def test_a_real_difference_is_found(self):
        rng = np.random.default_rng(0)
        assert sig.randomization_test(rng.normal(0.5, 1, 200)).p < 1e-4


class TestOtherTests:
    @given(real_differences)
    @settings(deadline=None, max_examples=60)
    def test_t_equals_scipy(self, values):
        differences = np.array(values)
        if np.ptp(differences) <= 1e-3 * np.abs(differences).max():  # where SciPy itself warns of lost digits
            return
        ours, theirs = sig.t_test(differences), stats.ttest_1samp(differences, 0)
        assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
        assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-9, abs=1e-12)

    def test_paired_columns_equal_scipy(self):
        rng = np.random.default_rng(1)
        a, b = rng.random((2, 80))
        assert sig.t_test(a, b).p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-10)
        assert sig.wilcoxon(a, b).p == pytest.approx(stats.wilcoxon(a, b).pvalue, rel=1e-10)

    @pytest.mark.parametrize("n", [1, 2, 5, 12, 30, 49, 120])
    def test_wilcoxon_equals_scipy(self, n):
        differences = np.random.default_rng(n).normal(0.2, 1, n)
        theirs = stats.wilcoxon(differences)
        with_zeros = np.concatenate([differences, np.zeros(5)])
        for ours in (sig.wilcoxon(differences), sig.wilcoxon(with_zeros)):
            assert ours.p == pytest.approx(theirs.pvalue, rel=1e-12)
            assert ours.statistic == pytest.approx(theirs.statistic)
        assert sig.wilcoxon(with_zeros).n == n + 5

    @pytest.mark.parametrize("n", [3, 9, 14, 60])
    def test_wilcoxon_with_ties_raises_no_warning(self, n):
        differences = np.random.default_rng(n).choice([-2.0, -1.0, 1.0, 2.0], n)
        assert sig.wilcoxon(differences).p == pytest.approx(stats.wilcoxon(differences).pvalue)


class TestIntervals:
    def test_t_equals_scipy(self):
        differences = np.random.default_rng(0).normal(0.1, 1, 25)
        for confidence in (0.5, 0.9, 0.95, 0.999):
            theirs = stats.ttest_1samp(differences, 0).confidence_interval(confidence)
            assert tuple(sig.t_interval(differences, confidence=confidence)) == pytest.approx(tuple(theirs), rel=1e-9)

    @pytest.mark.parametrize("method", ["percentile", "bca"])
    def test_bootstrap_agrees_with_scipy(self, method):
        differences = np.random.default_rng(0).exponential(1, 35) ** 1.5 - 1
        ours = sig.bootstrap_interval(differences, method=method, n_resamples=40_000)
        kind = "BCa" if method == "bca" else method
        theirs = stats.bootstrap((differences,), np.mean, n_resamples=40_000, method=kind, rng=1).confidence_interval
        width = theirs.high - theirs.low
        assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
        assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)

    def test_methods_differ_on_skewed_differences(self):
        differences = np.random.default_rng(0).exponential(1, 35) ** 1.5 - 1
        percentile, bca = (sig.bootstrap_interval(differences, method=m) for m in ("percentile", "bca"))
        assert bca.low > percentile.low  # a long right tail moves the interval to the right
        assert bca.high > percentile.high

    @pytest.mark.parametrize("values", [[1.0, 10.0, 100.0], [1.0, 10.0, 100.0, 1000.0]])
    def test_resamples_draw_every_value_alike(self, values):
        """The digits of n·mean count how often each value was drawn: compare with the multinomial distribution."""
        n, times = len(values), 40_000
        sums = np.rint(n * _resampled(np.array(values), times, stream_start(4, 2), 1)[0]).astype(int)
        for draw in itertools.combinations_with_replacement(range(n), n):
            counts = np.bincount(draw, minlength=n).tolist()
            chance = math.factorial(n) / math.prod(map(math.factorial, counts)) / n**n
            seen = np.mean(sums == sum(c * int(v) for c, v in zip(counts, values, strict=True)))
            assert abs(seen - chance) < simulation_error(chance, times)

    @pytest.mark.parametrize("n", [150, 4001])
    def test_same_bits_on_any_number_of_threads(self, n):
        differences = np.random.default_rng(5).normal(0.05, 1, n)
        assert len({tuple(sig.bootstrap_interval(differences, seed=2, threads=t)) for t in (1, 2, 3)}) == 1

    @pytest.mark.parametrize("method", METHODS)
    def test_coverage(self, method):
        rng, times = np.random.default_rng(7), 600
        covered = 0
        for k in range(times):
            differences = rng.gamma(2.0, 1.0, 60) * rng.integers(0, 2, 60)  # skewed, half of them zero
            low, high = sig.bootstrap_interval(differences, method=method, n_resamples=1000, seed=k, threads=1)
            covered += low <= 1.0 <= high  # the true mean: ½ · 2
        assert 0.90 < covered / times < 0.98

    def test_the_default_covers_few_skewed_differences_better_than_the_others(self):
        rng, times = np.random.default_rng(8), 1000
        covered = dict.fromkeys((*METHODS, "t"), 0)
        for k in range(times):
            differences = rng.exponential(1.0, 20)
            intervals = {
                method: sig.bootstrap_interval(differences, method=method, n_resamples=500, seed=k, threads=1)
                for method in METHODS
            } | {"t": sig.t_interval(differences)}
            for method, (low, high) in intervals.items():
                covered[method] += low <= 1.0 <= high
        best = covered.pop("studentized")
        assert best == pytest.approx(0.95 * times, abs=0.025 * times)
        assert all(best > other + 0.01 * times for other in covered.values())

    def test_studentized_is_its_definition(self):
        """Quantiles of t over all resamples of a small sample, which a large number of random ones come close to."""
        sample = np.array([0.1, 0.5, -0.2, 0.9, 0.3])
        n = len(sample)
        drawn = np.array(list(itertools.product(sample, repeat=n)))
        variances = np.maximum(drawn.var(axis=1, ddof=1), sample.var(ddof=1) / n)
        t = (drawn.mean(axis=1) - sample.mean()) / np.sqrt(variances / n)
        error = sample.std(ddof=1) / math.sqrt(n)
        high, low = sample.mean() - np.quantile(t, [0.15, 0.85]) * error
        found = sig.bootstrap_interval(sample, confidence=0.7, n_resamples=200_000)
        assert tuple(found) == pytest.approx((low, high), abs=0.02 * error)

    @pytest.mark.parametrize("method", METHODS)
    @settings(max_examples=40, deadline=None)
    @given(
        differences=st.one_of(
            st.lists(st.integers(-3, 3), min_size=2, max_size=30),
            st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=2, max_size=30),
        ),
        factor=st.one_of(st.integers(-12, 12).map(lambda e: 10.0**e), st.floats(1e-6, 1e6)),
        shift=st.integers(-5, 5),
    )
    @example(differences=[0, 1, 0, 2, -1, 3], factor=0.1, shift=0)
    @example(differences=[1, 0, 0, 0, 0, 0, 0, 0], factor=0.3, shift=1)
    def test_units_and_origin_do_not_matter(self, method, differences, factor, shift):
        values = np.array(differences, dtype=float)
        options = {"method": method, "n_resamples": 400, "threads": 1}
        assume(np.ptp(values) == 0 or np.ptp(values) > 1e-3 * (np.abs(values).max() + abs(shift)))
        expected = np.array(tuple(sig.bootstrap_interval(values, **options)))
        size = np.abs(values).max() + abs(shift)
        scaled = tuple(sig.bootstrap_interval(factor * values, **options))
        assert scaled == pytest.approx(factor * expected, rel=1e-9, abs=1e-9 * factor * size)
        moved = tuple(sig.bootstrap_interval(values + shift, **options))
        assert moved == pytest.approx(expected + shift, rel=1e-9, abs=1e-9 * size)

    def test_scale_and_sign(self):
        differences = np.random.default_rng(3).normal(0.05, 1, 50)
        low, high = sig.bootstrap_interval(differences)
        upper = sig.bootstrap_interval(differences, method="percentile").high
        assert sig.bootstrap_interval(-differences, method="percentile").low == pytest.approx(-upper)
        assert tuple(sig.bootstrap_interval(np.ldexp(differences, -900))) == tuple(np.ldexp([low, high], -900))

    def test_extreme_skew_stays_in_range(self):
        differences = np.zeros(30)
        differences[0] = 1.0
        for method in ("percentile", "bca"):
            low, high = sig.bootstrap_interval(differences, method=method, confidence=0.9999, n_resamples=200)
            assert 0 <= low <= high <= 1

    @pytest.mark.parametrize("n", [2, 3, 4])
    def test_few_queries_are_left_to_student(self, n):
        samples = np.random.default_rng(n).normal(0, 1, (400, n))
        for sample in samples[:3]:
            assert tuple(sig.bootstrap_interval(sample)) == tuple(sig.t_interval(sample))
        intervals = [sig.bootstrap_interval(sample, n_resamples=200) for sample in samples]
        assert np.mean([low <= 0 <= high for low, high in intervals]) > 0.95 - simulation_error(0.05, 400)
        assert "too few" in intervals[0].detail

    @pytest.mark.parametrize("n", [5, 8, 30])
    def test_resamples_without_variance_leave_the_interval_finite(self, n):
        differences = np.zeros(n)
        differences[0] = 1.0
        low, high = sig.bootstrap_interval(differences)
        assert -math.inf < low < 1 / n < high < math.inf
        assert high < 3


def population(kind, seed, size=10_000):
    """Weights and values of queries."""
    rng = np.random.default_rng(seed)
    lognormal = rng.lognormal(0, 1, size)
    weights = {"zipf": 1 / np.arange(1.0, size + 1), "lognormal": lognormal, "equal": np.ones(size)}[kind]
    return weights, rng.beta(2, 2, size)


def weighted_coverage(kind, n, times, n_resamples=300, *, anew=False):
    """How often an interval of a weighted mean holds that of the population the queries are drawn from.

    Under Zipf's law a tenth of the truth is one query, which hardly a sample holds: in one population its value decides
    how often intervals hold. `anew`: each sample is drawn from another.
    """
    rng, size, held = np.random.default_rng(n), 10_000, 0
    weights, values = population(kind, n)
    for seed in range(times):
        if anew:
            weights, values = population(kind, [n, seed])
        truth = np.average(values, weights=weights)
        drawn = rng.integers(0, size, n)
        low, high = sig.weighted_interval(values[drawn], weights[drawn], n_resamples=n_resamples, seed=seed, threads=1)
        held += low <= truth <= high
    return held / times


class TestWeighted:
    @pytest.mark.parametrize(("kind", "n"), [("zipf", 50), ("lognormal", 20), ("lognormal", 100)])
    def test_intervals_hold_the_mean(self, kind, n):
        """Resamples of the linearized values, as a mean without weights has, held .69, .89, .91 of 0.95."""
        assert weighted_coverage(kind, n, 200) > 0.95 - simulation_error(0.05, 200)

    @pytest.mark.nightly
    @pytest.mark.parametrize(("kind", "held"), [("zipf", 0.89), ("lognormal", 0.93), ("equal", 0.95)])
    @pytest.mark.parametrize("n", [20, 50, 100, 400])
    def test_intervals_hold_the_mean_as_often_as_the_page_says(self, kind, held, n):
        assert weighted_coverage(kind, n, 1000, anew=True) > held - simulation_error(1 - held, 1000)

    def test_equal_weights_are_none(self):
        values = np.random.default_rng(0).normal(size=30)
        weighted = sig.weighted_interval(values, np.full(30, 7.0))
        assert tuple(weighted) == pytest.approx(tuple(sig.bootstrap_interval(values)))
        few = sig.weighted_interval(values[:4], np.ones(4))
        assert tuple(few) == pytest.approx(tuple(sig.t_interval(values[:4])))

    @pytest.mark.parametrize("largest", [1e200, 1e308])
    @pytest.mark.parametrize("n", [3, 20])
    def test_one_weight_may_dwarf_all_others(self, largest, n):
        """Resamples without that query have weights whose squares vanish."""
        values, weights = np.random.default_rng(0).normal(size=n), np.ones(n)
        weights[0] = largest
        interval = sig.weighted_interval(values, weights)
        assert interval.low <= interval.value <= interval.high
        assert interval.value == pytest.approx(values[0])
        assert sig.effective_sample_size(weights) == 1.0

    @pytest.mark.parametrize("unit", [2.0**-700, 2.0**700])
    @pytest.mark.parametrize("n", [3, 20])
    def test_the_unit_of_the_values_scales_the_ends_alone(self, unit, n):
        """Squares of such values are 0 or infinite."""
        values, weights = np.random.default_rng(0).normal(size=(2, n))
        plain = sig.weighted_interval(values, weights**2)
        assert tuple(sig.weighted_interval(unit * values, weights**2)) == (unit * plain.low, unit * plain.high)

    def test_what_does_not_count_changes_nothing(self):
        rng = np.random.default_rng(1)
        values, weights = rng.normal(size=20), rng.random(20)
        more = sig.weighted_interval([math.nan, 5.0, *values], [3.0, 0.0, *weights])
        assert tuple(more) == pytest.approx(tuple(sig.weighted_interval(values, weights)), rel=1e-12)
        assert tuple(sig.weighted_interval([0.3, 0.3, 0.3], [1, 2, 3])) == (0.3, 0.3)
        assert sig.weighted_interval([0.3], [1]).high == math.inf

    def test_refusals(self):
        for values, weights in (([1.0, 2.0], [1.0]), ([1.0], [0.0]), ([1.0, 2.0], [1.0, -1.0]), ([1.0], [math.nan])):
            with pytest.raises(DataError, match=r"weight"):
                sig.weighted_interval(values, weights)


class TestEffects:
    def test_effect_size(self):
        differences = np.random.default_rng(0).normal(0.3, 1, 12)
        d = differences.mean() / differences.std(ddof=1)
        result = sig.effect_size(differences)
        assert result.d == pytest.approx(d)
        freedom = 11
        bias = stats.nct.mean(freedom, 1.0)  # E[d_z] / true effect: the mean of a noncentral t
        assert result.g == pytest.approx(d / bias, rel=1e-9)

    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
    @settings(deadline=None)
    def test_win_tie_loss(self, values):
        a, b = np.array(values, dtype=float).T
        expected = (sum(x > y for x, y in values), sum(x == y for x, y in values), sum(x < y for x, y in values))
        assert sig.win_tie_loss(a / 3, b / 3) == expected
        assert sum(sig.win_tie_loss(a, b, tolerance=2.5)) == len(values)
        assert sig.win_tie_loss(a, b, tolerance=10).ties == len(values)

    @pytest.mark.parametrize("size", [0.05, 0.2, 0.5, 1.0, 2.5])
    @pytest.mark.parametrize(("power", "alpha"), [(0.8, 0.05), (0.95, 0.005), (0.3, 0.2)])
    def test_queries_needed_is_the_smallest_number(self, size, power, alpha):
        differences = np.array([-1.0, 0.0, 1.0]) + size  # standard deviation 1
        n = sig.queries_needed(differences, power=power, alpha=alpha)

        def reached(n):
            return stats.nct.sf(stats.t.ppf(1 - alpha / 2, n - 1), n - 1, size * math.sqrt(n))

        assert reached(n) >= power - 1e-9
        assert n == 2 or reached(n - 1) < power
        assert sig.queries_needed(-differences, power=power, alpha=alpha) == n

    def test_queries_needed_by_simulation(self):
        size, times = 0.4, 4000
        n = sig.queries_needed(np.array([-1.0, 0.0, 1.0]) + size)
        samples = np.random.default_rng(8).normal(size, 1, (times, n))
        seen = np.mean(stats.ttest_1samp(samples, 0, axis=1).pvalue <= 0.05)
        assert abs(seen - 0.8) < simulation_error(0.8, times) + 0.01  # whole queries overshoot the power a little

    def test_queries_needed_for_a_tiny_effect(self):
        n = sig.queries_needed(np.array([-1.0, 0.0, 1.0]) + 1e-5)
        z = stats.norm.ppf([0.975, 0.8]).sum()
        assert n == pytest.approx(z**2 / 1e-10, rel=1e-4)


class TestEquivalence:
    @given(real_differences, st.floats(0.001, 2))
    @settings(deadline=None, max_examples=40)
    def test_decides_as_its_interval(self, values, margin):
        result = sig.equivalence_test(np.array(values), margin=margin)
        if abs(result.p - 0.05) > 1e-6:
            low, high = result.interval
            assert result.equivalent == (-margin < low and high < margin)

    @pytest.mark.parametrize("n", [1, 2, 3, 50, 1000])
    @pytest.mark.parametrize("margin", [0.01, 0.5])
    def test_nothing_seen_is_what_could_be_unseen(self, n, margin):
        """All zero: as likely as that n queries miss what happens in a share `margin` of them, the worst."""
        result = sig.equivalence_test(np.zeros(n), margin=margin)
        assert result.p == pytest.approx((1 - margin) ** n, rel=1e-6)
        assert result.interval.high == pytest.approx(1 - 0.05 ** (1 / n), rel=1e-6)
        assert result.interval.low == -result.interval.high

    @pytest.mark.parametrize("n", [2, 5, 30])
    def test_p_is_that_of_random_weights(self, n):
        rng = np.random.default_rng(n)
        differences = rng.normal(0, 0.2, n)
        weights = rng.dirichlet(np.ones(n + 1), 100_000)
        for margin in (0.05, 0.2):
            above, below = (weights @ np.append(side, 1.0) for side in (differences, -differences))
            expected = max(np.mean(above >= margin), np.mean(below >= margin))
            assert sig.equivalence_test(differences, margin=margin).p == pytest.approx(expected, abs=0.006)

    def test_many_differences_are_counted_in_cells(self, monkeypatch):
        differences = np.random.default_rng(0).normal(0, 0.1, 600)
        fine = sig.equivalence_test(differences, margin=0.01)
        monkeypatch.setattr("toprank.significance.equivalence._MAX_CELLS", 256)
        coarse = sig.equivalence_test(differences, margin=0.01)
        assert coarse.p == pytest.approx(fine.p, rel=1e-3)
        assert coarse.p != fine.p

    def test_size_at_the_edge_of_the_margin(self):
        """At a true difference of exactly the margin the test cries "equivalent" in at most 5 % of the cases."""
        samples = np.random.default_rng(1).normal(1.0, 2.0, (100, 30))
        seen = np.mean([sig.equivalence_test(row, margin=1.0).equivalent for row in samples])
        assert seen < 0.05 + simulation_error(0.05, 100)

    @pytest.mark.parametrize("n", [3, 20, 50, 100, 298, 299, 1000])
    @pytest.mark.parametrize(("share", "size"), [(0.01, 1.0), (0.02, 0.5), (0.1, 0.1)])
    def test_size_where_failures_are_seldom(self, n, share, size):
        """The true difference is the margin, and most queries do not show it: exactly, over how many do."""
        seen, failures = 0.0, 0
        while True:
            differences = np.where(np.arange(n) < failures, size, 0.0)
            if not sig.equivalence_test(differences, margin=0.01).equivalent:
                break
            seen += stats.binom.pmf(failures, n, share)
            failures += 1
        assert seen <= 0.05  # by Student's t up to .82
        assert n < 299 or failures > 0  # and what can be shown is

    @pytest.mark.nightly
    @pytest.mark.parametrize("n", [20, 100, 300, 1000])
    @pytest.mark.parametrize(("share", "size"), [(0.01, 1.0), (0.02, 0.5), (0.1, 0.1), (1.0, 0.01)])
    def test_size_where_failures_are_seldom_among_noise(self, n, share, size):
        rng, times = np.random.default_rng(n), 1000
        samples = size * (rng.random((times, n)) < share) + rng.normal(0, 0.02, (times, n))
        seen = np.mean([sig.equivalence_test(row, margin=0.01, max_difference=1.1).equivalent for row in samples])
        assert seen < 0.05 + simulation_error(0.05, times)

    def test_enough_queries_show_it(self):
        differences = np.random.default_rng(0).normal(0, 0.05, 1000)
        assert sig.equivalence_test(differences, margin=0.01).equivalent

    def test_the_worst_is_what_values_can_differ_by(self):
        rng = np.random.default_rng(0)
        a, b = rng.random((2, 50))
        assert sig.equivalence_test(a, b, margin=0.1).max_difference == 1
        assert sig.equivalence_test(a - b, margin=0.1).max_difference == 1
        assert sig.equivalence_test(7 * a, 7 * b, margin=0.1).max_difference == 7 * max(a.max(), b.max())
        assert sig.equivalence_test(7 * a, 7 * b, margin=9).max_difference == 18
        assert sig.equivalence_test(a, b, margin=0.1, max_difference=3).max_difference == 3
        assert sig.equivalence_test(a, b, margin=0.1, max_difference=3).p > sig.equivalence_test(a, b, margin=0.1).p
        with pytest.raises(DataError, match="max_difference"):
            sig.equivalence_test(a, b, margin=0.1, max_difference=0.01)
        wide = sig.equivalence_test([0.9, -0.2, 0.1], [-0.8, 0.3, 0.1], margin=0.1)  # as of a correlation
        assert wide.max_difference == 0.9 + 0.8
        assert sig.equivalence_test([3.0, -5.0, 0.0], margin=0.1).max_difference == 5


class TestCorrections:
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
    def test_holm_is_bonferroni_closed(self, p):
        """Closed testing: a hypothesis falls when every subset with it does, judged by Bonferroni."""
        adjusted = sig.holm(p)
        for i in range(len(p)):
            subsets = [s for k in range(1, len(p) + 1) for s in itertools.combinations(range(len(p)), k) if i in s]
            expected = max(min(1.0, len(s) * min(p[j] for j in s)) for s in subsets)
            assert adjusted[i] == pytest.approx(expected, rel=1e-12)

    @given(st.lists(st.floats(0, 1), max_size=8))
    def test_bonferroni(self, p):
        assert sig.bonferroni(p).tolist() == [min(1.0, len(p) * x) for x in p]
        assert (sig.holm(p) <= sig.bonferroni(p)).all()

    @pytest.mark.parametrize("p", [[0.1, float("nan")], [-0.1], [1.1], [[0.1]], ["x"]])
    def test_refuses_what_is_no_p(self, p):
        for correct in (sig.holm, sig.bonferroni):
            with pytest.raises(DataError, match="p-values"):
                correct(p)


class TestDegenerate:
    def test_one_query(self):
        assert sig.randomization_test([0.3], [0.1]).p == 1
        assert sig.t_test([0.3]).p == 1
        assert sig.wilcoxon([0.3]).p == 1
        assert tuple(sig.bootstrap_interval([0.3])) == tuple(sig.t_interval([0.3])) == (-math.inf, math.inf)
        assert sig.effect_size([0.3]).d is None
        assert sig.queries_needed([0.3]) is None
        assert sig.equivalence_test([0.0], margin=1).p == pytest.approx(0.5)

    def test_all_zero(self):
        zeros = np.zeros(6)
        for test in (sig.randomization_test, sig.t_test, sig.wilcoxon):
            assert test(zeros).p == 1
            assert "all differences are zero" in str(test(zeros))
        assert tuple(sig.bootstrap_interval(zeros)) == tuple(sig.t_interval(zeros)) == (0, 0)
        assert sig.effect_size(zeros).d == 0
        assert sig.queries_needed(zeros) is None
        assert not sig.equivalence_test(zeros, margin=0.1).equivalent

    def test_all_equal(self):
        a, b = np.arange(10) / 10 + 0.1, np.arange(10) / 10  # differences that are equal up to rounding
        assert sig.randomization_test(a, b).p == 2 / 2**10
        assert sig.t_test(a, b).p == 0
        assert sig.t_test(b, a).statistic == -math.inf
        assert tuple(sig.bootstrap_interval(a, b)) == pytest.approx((0.1, 0.1))
        assert tuple(sig.t_interval(a, b)) == pytest.approx((0.1, 0.1))
        assert sig.effect_size(a, b).d == math.inf
        assert sig.queries_needed(a, b) == 2
        assert sig.equivalence_test(a, b, margin=0.2, max_difference=0.3).p == pytest.approx(
            0.5**10
        )  # E ≥ the sum of ten others
        assert sig.equivalence_test(a, b, margin=0.05).p == pytest.approx(1)

    def test_nan_drops_the_pair(self):
        nan = math.nan
        a, b = [0.5, nan, 0.4, 0.9, 0.2], [0.1, 0.3, nan, 0.5, 0.3]
        kept_a, kept_b = [0.5, 0.9, 0.2], [0.1, 0.5, 0.3]
        for statistic in (sig.randomization_test, sig.t_test, sig.wilcoxon, sig.bootstrap_interval, sig.t_interval,
                          sig.effect_size, sig.win_tie_loss):  # fmt: skip
            assert statistic(a, b) == statistic(kept_a, kept_b)
        assert sig.t_test(a, b).n == 3

    def test_rounding_is_no_difference(self):
        a, b = np.array([0.1 + 0.2, 0.7, 0.5]), np.array([0.3, 0.6 + 0.1, 0.4])
        assert sig.win_tie_loss(a, b) == (1, 2, 0)
        assert sig.wilcoxon(a, b).p == sig.wilcoxon([0.0, 0.0, 0.1]).p == 1

    @pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200])
    def test_extreme_scales(self, scale):
        differences = np.array([3.0, -1.0, 2.0, 4.0, 1.5])
        tolerance = 1e-9 if scale > 1e-300 else 1e-3  # below 1e-308 numbers themselves lose digits
        for test in (sig.randomization_test, sig.t_test, sig.wilcoxon):
            assert test(differences * scale).p == pytest.approx(test(differences).p, rel=tolerance)
        assert sig.effect_size(differences * scale).d == pytest.approx(sig.effect_size(differences).d, rel=tolerance)
        low, high = sig.bootstrap_interval(differences * scale)
        assert low < differences.mean() * scale < high

    def test_str_is_a_sentence(self):
        differences = np.random.default_rng(0).normal(0.1, 1, 30)
        results = [sig.randomization_test(differences), sig.t_test(differences), sig.wilcoxon(differences),
                   sig.bootstrap_interval(differences), sig.t_interval(differences), sig.effect_size(differences),
                   sig.effect_size([1.0]), sig.win_tie_loss(differences),
                   sig.equivalence_test(differences, margin=0.1)]  # fmt: skip
        for result in results:
            assert str(result).endswith(".")
            assert "nan" not in str(result)


class TestRefusals:
    @pytest.mark.parametrize(
        ("a", "b", "message"),
        [
            ([], None, "No query has a value"),
            ([math.nan], None, "No query has a value"),
            ([math.nan, 1], [1, math.nan], "No query has a value"),
            ([1, 2], [1], "2 values and b has 1"),
            ([[1, 2]], None, "must have one"),
            (["x"], None, "must hold numbers"),
            ([1 + 2j], None, "a must hold real numbers"),
            ([1, math.inf], None, "finite"),
            ([1, 2], [1, -math.inf], "b is -inf for query number 1"),
        ],
    )
    def test_values(self, a, b, message):
        for statistic in (sig.randomization_test, sig.t_test, sig.wilcoxon, sig.bootstrap_interval, sig.t_interval,
                          sig.effect_size, sig.win_tie_loss, sig.queries_needed):  # fmt: skip
            with pytest.raises(DataError, match=message):
                statistic(a, b)

    @pytest.mark.parametrize(
        "call",
        [
            lambda: sig.randomization_test([1.0], n_permutations=0),
            lambda: sig.randomization_test([1.0], n_permutations=1.5),
            lambda: sig.randomization_test([1.0], seed=-1),
            lambda: sig.randomization_test([1.0], seed="x"),
            lambda: sig.randomization_test(np.arange(30.0), threads=0),
            lambda: sig.bootstrap_interval([1.0], confidence=1.0),
            lambda: sig.bootstrap_interval([1.0], n_resamples=0),
            lambda: sig.t_interval([1.0], confidence=95),
            lambda: sig.queries_needed([1.0], power=1.0),
            lambda: sig.queries_needed([1.0], alpha=0.0),
            lambda: sig.queries_needed([1.0], power=0.1, alpha=0.2),
            lambda: sig.equivalence_test([1.0], margin=0.0),
            lambda: sig.equivalence_test([1.0], margin=math.nan),
            lambda: sig.equivalence_test([1.0], margin=1.0, alpha=0.6),
            lambda: sig.win_tie_loss([1.0], tolerance=-1.0),
        ],
    )
    def test_options(self, call):
        with pytest.raises(DataError, match=r"must .*\.$"):
            call()

    def test_unknown_bootstrap(self):
        with pytest.raises(UnknownNameError, match="bca"):
            sig.bootstrap_interval([1.0], method="bc")


def test_a_number_that_is_too_large_is_not_said_to_be_infinite():
    with pytest.raises(DataError, match=r"is -3e\+300 for query number 1 .* at most 1e\+250 in absolute value"):
        column([0.0, -3e300], "a")


# --- queries and seeds ------------------------------------------------------------------------------------------------


def test_one_seed_gives_students_interval():
    rows = np.random.default_rng(0).normal(size=(3, 20))
    alone = sig.crossed_random_effects_interval([rows[:1]])
    known = sig.t_interval(rows[0])
    assert (alone.low, alone.high) == pytest.approx((known.low, known.high))
    together = sig.crossed_random_effects_interval([rows[:1, :8], rows[:1, 8:]])  # folds of a system that does not draw
    assert (together.low, together.high) == pytest.approx((known.low, known.high))


def test_the_variance_is_that_of_the_formula():
    rng = np.random.default_rng(1)
    table = rng.normal(size=(4, 1)) + rng.normal(size=(1, 9)) + 0.5 * rng.normal(size=(4, 9))
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    seeds = (table.mean(1).var(ddof=1) - (rest**2).sum() / (3 * 8) / 9) / 4
    square = stats.t.ppf(0.95, 8) ** 2 * table.mean(0).var(ddof=1) / 9 + stats.t.ppf(0.95, 3) ** 2 * seeds
    found = sig.crossed_random_effects_interval([table], confidence=0.9)
    assert found.high - table.mean() == pytest.approx(np.sqrt(square))
    gaps = np.where(np.arange(9) == 4, np.nan, table)  # a query that does not count
    assert sig.crossed_random_effects_interval([gaps]).n == 8


def test_two_level_intervals_at_the_edge():
    assert sig.crossed_random_effects_interval([np.full((3, 5), 0.25)]).low == 0.25
    assert sig.crossed_random_effects_interval([[[1.0], [2.0]]]).high == np.inf
    for wrong in ([], [[1.0, 2.0]], [np.full((2, 3), np.nan)]):
        with pytest.raises(DataError):
            sig.crossed_random_effects_interval(wrong)


def test_the_interval_of_one_query_is_infinite_and_is_that_of_one():
    interval = mean_interval(np.array([0.5]), np.ones(1), 0.95)
    assert (interval.value, interval.low, interval.high, interval.n) == (0.5, -np.inf, np.inf, 1)


@pytest.mark.nightly
@pytest.mark.parametrize(("folds", "seeds", "n"), [(1, 5, 60), (5, 3, 20), (1, 3, 200)])
@pytest.mark.parametrize("seed_std", [0.0, 0.05, 0.3])
def test_two_level_intervals_hold(folds, seeds, n, seed_std):
    """Queries, seeds and folds are drawn anew each time; the true mean is 0. Queries alone would hold it far less."""
    rng, times = np.random.default_rng(0), 2000
    held = 0
    for _ in range(times):
        parts = [
            seed_std * rng.normal(size=(seeds, 1)) + rng.normal(size=(1, n)) + 0.5 * rng.normal(size=(seeds, n))
            for _ in range(folds)
        ]
        found = sig.crossed_random_effects_interval(parts)
        held += found.low <= 0 <= found.high
    # Satterthwaite's degrees of freedom are an approximation, on the safe side where a level does nothing
    assert held / times > 0.95 - 4 * np.sqrt(0.95 * 0.05 / times) - 0.005
    assert held / times < 0.975


def test_every_resample_is_drawn():
    """The first resamples of a longer run are those of a shorter one, and all lie among the values."""
    values = np.linspace(3.0, 4.0, 20_000)  # so many that a block holds few resamples
    weights = np.linspace(1.0, 2.0, 20_000)
    for weighting in (None, weights):
        means, variances = _resampled(values, 300, stream_start(0, 1), 1, weighting)
        assert ((means > 3) & (means < 4)).all()
        assert (variances > 0).all()
        few = _resampled(values, 3, stream_start(0, 1), 1, weighting)
        assert [part.tolist() for part in few] == [means[:3].tolist(), variances[:3].tolist()]


def test_tiny_weights_count_by_their_shares():
    """(Σ w)² / Σ w² = 9 / 5 of weights 2 and 1, however small both are."""
    for unit in (1e-200, 1e-9, 1.0, 1e200):
        assert sig.effective_sample_size([2 * unit, unit]) == pytest.approx(9 / 5, rel=1e-12)
