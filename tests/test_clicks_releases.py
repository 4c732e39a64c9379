"""Releases: intervals hold at all looks at once, broken assignments are found, and what is proven is there."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import binom
from typer.testing import CliRunner

import toprank as tr
from toprank.cli.commands import app
from toprank.clicks.online_tests import _variance, ab_test, interleaving_test
from toprank.errors import DataError, UnknownNameError
from toprank.significance import confidence_sequence_half_width, sample_ratio_p


def peeked(draw, share, runs, n, seed, width=confidence_sequence_half_width, variance=_variance):
    """In how many runs an interval of the difference ever left out 0, looking after every unit from the 60th on."""
    alarms = 0
    for run in range(runs):
        rng = np.random.default_rng((seed, run))
        new, values = rng.random(n) < share, draw(rng, n)
        sides = []
        for which in (new, ~new):
            count = np.cumsum(which)
            mean = np.cumsum(values * which) / np.maximum(count, 1)
            square = np.cumsum(values**2 * which) / np.maximum(count, 1)
            sides.append((count, mean, (square - mean**2) * count / np.maximum(count - 1, 1)))
        (a, one, s), (b, other, t) = sides
        seen = np.minimum(a, b) >= 30
        a, one, s, b, other, t = (column[seen] for column in (a, one, s, b, other, t))
        alarms += bool((np.abs(one - other) > width(variance(a, b, s, t), a * b / (a + b))).any())
    return alarms


KINDS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "clicks": lambda rng, n: rng.poisson(rng.gamma(0.5, 0.6, n)).astype(float),
    "rare": lambda rng, n: (rng.random(n) < 0.05) * 1.0,
    "money": lambda rng, n: (rng.random(n) < 0.2) * rng.lognormal(3.0, 1.0, n),
}


@pytest.mark.parametrize("share", [0.5, 0.05])
@pytest.mark.parametrize("kind", list(KINDS))
def test_who_looks_after_every_unit_is_alarmed_in_5_percent_of_the_splits_at_most(kind, share):
    runs = 200
    assert peeked(KINDS[kind], share, runs, 4_000, 1) <= binom.ppf(0.999, runs, 0.05)


@pytest.mark.nightly
@pytest.mark.parametrize("share", [0.5, 0.05])
@pytest.mark.parametrize("kind", list(KINDS))
def test_the_level_holds_over_many_units(kind, share):
    assert peeked(KINDS[kind], share, 1_000, 20_000, 2) <= binom.ppf(0.99, 1_000, 0.05)


def test_an_interval_of_a_fixed_size_would_be_left_far_more_often():
    """The same looks with 1.96 standard errors: what the test above would not let pass."""
    fixed = peeked(KINDS["normal"], 0.5, 100, 4_000, 1, lambda variance, _: 1.96 * np.sqrt(variance))
    assert fixed > binom.ppf(0.9999, 100, 0.05)


def test_a_small_arm_that_has_not_seen_what_is_rare_and_dear_is_not_found_to_be_worse():
    def dear(rng, n):
        return (rng.random(n) < 0.1) * rng.lognormal(3.0, 2.0, n)

    assert peeked(dear, 0.02, 200, 20_000, 1) <= binom.ppf(0.999, 200, 0.05)
    own = peeked(dear, 0.02, 200, 20_000, 1, variance=lambda n, m, new, current: new / n + current / m)
    assert own > binom.ppf(0.999, 200, 0.05)


def test_half_widths_are_those_of_the_mixture():
    """At its ends the likelihood ratio, mixed over normal effects by quadrature, is 1/α."""
    for variance, units in ((0.01, 100), (2.0, 5_000), (1e-6, 1e6)):
        half = float(confidence_sequence_half_width(variance, units, 0.95))
        spread = np.sqrt(variance * 8 * units / 5_000)
        effects = np.linspace(-12, 12, 200_001) * spread
        density = np.exp(-0.5 * (effects / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
        ratio = np.exp((half * effects - effects**2 / 2) / variance)
        assert np.trapezoid(ratio * density, effects) == pytest.approx(1 / 0.05, rel=1e-6)


def test_intervals_are_as_much_wider_as_the_page_says():
    for keys, ratio in ((30, 8.2), (100, 4.6), (1_000, 2.0), (10_000, 1.5), (1_000_000, 1.8)):
        r = 8 * keys / 2 / 5_000
        assert round(np.sqrt((1 + 1 / r) * np.log((1 + r) / 0.05**2)) / 1.96, 1) == ratio
        assert round(float(confidence_sequence_half_width(1, keys / 2)) / 1.96, 1) == ratio


def test_sample_ratios_are_a_mixture_of_binomials_and_hold_at_all_looks():
    for count, total, share in ((3, 20, 0.05), (480, 1000, 0.5)):
        a, b = 100 * share, 100 * (1 - share)
        mixed = betaln(a + count, b + total - count) - betaln(a, b)
        plain = count * np.log(share) + (total - count) * np.log1p(-share)
        assert sample_ratio_p(count, total, share) == pytest.approx(min(1, np.exp(plain - mixed)))
    runs, alarms = 300, 0
    for run in range(runs):
        counts = np.cumsum(np.random.default_rng(run).random(2_000) < 0.05)
        alarms += min(sample_ratio_p(count, n, 0.05) for n, count in enumerate(counts.tolist(), 1)) < 0.05
    assert alarms <= binom.ppf(0.999, runs, 0.05)
    assert sample_ratio_p(5, 5, 1.0) == 1
    assert sample_ratio_p(4, 5, 1.0) == 0


# ---- splits ----


def split(n, share, *, seed=0, effect=0.0, lost=0.0, sessions=2):
    """A log of keys with some sessions each; `lost` of the new arm's requests never reach the log."""
    rng = np.random.default_rng(seed)
    new, liking = rng.random(n) < share, rng.beta(1, 4, n)
    key = np.repeat(np.arange(n), sessions)
    chance = liking[key] + effect * new[key]
    click = rng.random(len(key)) < chance
    kept = ~(new & (rng.random(n) < lost))[key]
    arm, planned = np.where(new, "new", "old")[key], np.where(new, share, 1 - share)[key]
    return tr.clicks.ClickLog.from_columns(
        (key % 7)[kept], np.zeros(kept.sum(), int), np.ones(kept.sum(), int), click[kept],
        session=np.arange(len(key))[kept], arm=arm[kept], share=planned[kept], user=key[kept],
        value=(click * rng.lognormal(1, 1, len(key)))[kept], time=np.arange(len(key))[kept] * 1.0,
    )  # fmt: skip


def test_the_difference_is_that_of_means_over_keys():
    log = split(2_000, 0.3, effect=0.1)
    found = ab_test(log)
    totals = {name: {} for name in ("new", "old")}
    for arm, user, click in zip(log.columns["arm"], log.columns["user"], log.clicks, strict=True):
        totals[arm][user] = totals[arm].get(user, 0) + int(click)
    new, old = (np.array(list(one.values())) for one in totals.values())
    assert found.units == (len(new), len(old))
    assert found.difference == pytest.approx(new.mean() - old.mean())
    assert found.interval.low > 0
    assert "new brings" in found.summary
    assert not found.has_sample_ratio_mismatch
    assert ab_test(log, arms=["old", "new"]).difference == pytest.approx(-found.difference)
    assert ab_test(log, "value").metric == "value"


def test_a_broken_assignment_is_found_and_the_difference_then_says_nothing():
    broken = ab_test(split(20_000, 0.1, lost=0.2))
    assert broken.has_sample_ratio_mismatch
    assert broken.srm_p < 0.01
    assert "Sample ratio mismatch" in broken.summary
    assert not ab_test(split(20_000, 0.1)).has_sample_ratio_mismatch


def test_an_arm_whose_model_was_replaced_is_said_to_be_of_several_versions():
    log = split(500, 0.5)
    new = log.columns["arm"] == "new"
    version = np.where(new & (np.arange(log.n_impressions) > 200), "two", "one")
    (doubt,) = ab_test(replace(log, columns={**log.columns, "version": version})).caveats
    assert doubt.startswith("new had 2 versions of its model")
    one = ab_test(replace(log, columns={**log.columns, "version": np.where(new, "one", "two")}))
    assert not one.caveats


def test_keys_in_both_arms_are_found():
    log = split(500, 0.5)
    log.columns["user"][:] = np.arange(log.n_impressions) % 100
    found = ab_test(log)
    assert found.in_both_arms > 50
    assert found.has_sample_ratio_mismatch
    assert "both arms" in found.summary


def test_of_two_plans_the_last_counts_and_what_was_before_is_said():
    first, second = split(300, 0.05, seed=1), split(2_000, 0.2, seed=2)
    parts = []
    for number, log in enumerate((first, second)):
        columns = {name: values.copy() for name, values in log.columns.items()}
        columns["time"] += number * 1e6
        columns["user"] = columns["user"] + 10_000 * number
        parts.append((log, columns))
    joined = tr.clicks.ClickLog.from_columns(
        np.concatenate([log.qids[log.query] for log, _ in parts]), np.zeros(4_600, int), np.ones(4_600, int),
        np.concatenate([log.clicks for log, _ in parts]), session=np.arange(4_600),
        **{name: np.concatenate([columns[name] for _, columns in parts]) for name in first.columns},
    )  # fmt: skip
    found, alone = ab_test(joined), ab_test(second)
    assert found.difference == pytest.approx(alone.difference)
    assert found.units == alone.units
    assert found.dropped == {"sessions of an earlier allocation, with other shares": 600}
    assert not found.has_sample_ratio_mismatch


def with_other_shares(log, first):
    """The log of a split whose shares were others in the first sessions."""
    share = np.where(np.arange(log.n_sessions) < first, log.columns["share"] / 2, log.columns["share"])
    return replace(log, columns={**log.columns, "share": share})


def test_shares_that_change_at_no_time_that_is_known_are_refused_in_a_sentence():
    log = with_other_shares(split(300, 0.5), 100)
    bare = {name: values for name, values in log.columns.items() if name != "time"}
    with pytest.raises(DataError, match=r"no times\. Read only a part"):
        ab_test(replace(log, columns=bare))
    for missing in (np.nan, np.where(np.arange(log.n_sessions) % 2 == 0, np.nan, 5.0)):
        times = np.full(log.n_sessions, 0.0) + missing
        with pytest.raises(DataError, match="sessions have no time in the column 'time'"):
            ab_test(replace(log, columns={**log.columns, "time": times}))
    for times in (np.full(log.n_sessions, 5.0), -np.arange(log.n_sessions)):  # at one moment; and clocks that go back
        changed = replace(log, columns={**log.columns, "time": times})
        if times[0] == times[-1]:
            with pytest.raises(DataError, match="no session is later than all those with other shares"):
                ab_test(changed)
        else:
            assert sum(ab_test(changed).units) > 0  # the last by their times
    outside = {**log.columns, "time": np.arange(log.n_sessions) * 1.0, "arm": log.columns["arm"].astype(object)}
    outside["arm"][:5], outside["time"][:5] = "", np.nan  # sessions of no arm need no time
    assert sum(ab_test(replace(log, columns=outside)).units) > 0


@pytest.mark.parametrize("arms", [["new", "new"], ["new"], "new", ["new", "old", "older"], []])
def test_two_arms_are_compared(arms):
    with pytest.raises(DataError, match="two different names, of the new and the current arm"):
        ab_test(split(40, 0.5), arms=arms)


def test_few_units_say_nothing_and_logs_that_are_none_are_refused():
    found = ab_test(split(40, 0.5))
    assert not np.isfinite(found.interval.low)
    assert "There are too few data" in found.summary
    assert found.to_dict()["difference"]["low"] is None
    with pytest.raises(UnknownNameError, match="metric of an online test"):
        ab_test(split(40, 0.5), "money")
    with pytest.raises(UnknownNameError, match="arm"):
        ab_test(split(40, 0.5), arms=["new", "odl"])
    with pytest.raises(DataError, match="no column 'arm'"):
        ab_test(tr.clicks.ClickLog.from_columns(["q"], ["a"], [1], [1]))


def of_arm(name, n, share=0.05):
    """The sessions of one arm of a split that has just begun."""
    log = split(n, share)
    return log.select(log.columns["arm"][log.offsets[:-1]] == name)


@pytest.mark.parametrize("arms", [None, ("new", "old")])
@pytest.mark.parametrize("there", ["new", "old"])
def test_before_the_first_session_of_an_arm_it_is_too_early(there, arms, tmp_path):
    log = of_arm(there, 20, 0.4)
    found = ab_test(log, arms=arms)
    names = tuple("the other arm" if arms is None and name != there else name for name in ("new", "old"))
    assert found.names == names
    assert found.units[names.index(there)] == len(np.unique(log.columns["user"]))
    assert found.units[1 - names.index(there)] == 0
    assert found.shares == pytest.approx((0.4, 0.6))
    assert "too few data" in found.summary
    assert "nan" not in str(found)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["difference"]["value"] is None
    tr.clicks.write(log, tmp_path / "log.parquet")
    named = [] if arms is None else ["--arms", ",".join(arms)]
    told = CliRunner().invoke(app, ["clicks", "ab-test", str(tmp_path / "log.parquet"), "-q", *named])
    assert told.exit_code == 0, told.output
    assert "too few data" in told.output


def test_an_arm_that_stays_without_sessions_is_a_broken_assignment():
    found = ab_test(of_arm("old", 2_000))
    assert found.has_sample_ratio_mismatch
    assert found.srm_p == pytest.approx(sample_ratio_p(0, sum(found.units), 0.05), rel=1e-6)
    with pytest.raises(DataError, match="The log has the arms old, but two are needed"):
        ab_test(replace(log := of_arm("old", 50), columns={**log.columns, "share": np.ones(log.n_impressions)}))


# ---- interleaving ----


def interleaved(n, better=0.0, seed=0, began=0.5):
    """Lists of two documents, one of each team; the first model's is clicked more often by `better`."""
    rng = np.random.default_rng(seed)
    first = rng.random(n) < began
    team = np.stack([np.where(first, "a", "b"), np.where(first, "b", "a")], 1).ravel()
    click = rng.random(2 * n) < 0.2 + better * (team == "a")
    session = np.repeat(np.arange(n), 2)
    return tr.clicks.ClickLog.from_columns(
        session % 200, np.tile(["x", "y"], n), np.tile([1, 2], n), click, session=session, team=team
    )


def test_interleaved_lists_are_compared_and_their_coin_is_checked():
    found = interleaving_test(interleaved(3_000, 0.1))
    assert found.interval.low > 0
    assert found.difference == pytest.approx(found.means[0] - found.means[1])
    assert not found.has_sample_ratio_mismatch
    assert found.to_frame().shape[0] == 1
    assert interleaving_test(interleaved(3_000, began=0.4)).has_sample_ratio_mismatch
    alarms = 0
    for run in range(40):
        log = interleaved(1_000, seed=run)
        looks = (interleaving_test(log.select(np.arange(n))) for n in range(100, 1_001, 50))
        alarms += any(one.interval.low > 0 or one.interval.high < 0 for one in looks)
    assert alarms <= binom.ppf(0.999, 40, 0.05)


def test_the_commands_say_two_numbers_and_a_sentence(tmp_path):
    tr.clicks.write(split(2_000, 0.3, effect=0.1), tmp_path / "split.parquet")
    tr.clicks.write(interleaved(500), tmp_path / "lists.parquet")
    run = CliRunner()
    carried = run.invoke(
        app, ["clicks", "ab-test", str(tmp_path / "split.parquet"), "--metric", "value", "-q", "--json"]
    )
    assert carried.exit_code == 0, carried.output
    assert json.loads(carried.output)["metric"] == "value"
    told = run.invoke(app, ["clicks", "ab-test", str(tmp_path / "split.parquet"), "-q"])
    assert "new brings" in told.output
    assert "Sample ratio: p" in told.output
    lists = run.invoke(app, ["clicks", "interleaving", str(tmp_path / "lists.parquet"), "-q"])
    assert "Difference per list" in lists.output
    wrong = run.invoke(app, ["clicks", "ab-test", str(tmp_path / "split.parquet"), "--arms", "new"])
    assert wrong.exit_code == 2
