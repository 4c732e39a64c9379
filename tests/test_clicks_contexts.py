"""Propensities by context: found again in simulations, shrunk by a formula, tested at a level, refused in words."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from typer.testing import CliRunner

import toprank as tr
from clicks_evidence import judge_by
from support import nightly
from toprank.cli.commands import app
from toprank.clicks import PBM, ClickLog, UnidentifiedWarning, context_estimation, propensities, simulate, training
from toprank.clicks.context_estimation import by_context, in_cells, scales
from toprank.clicks.contexts import ContextCells, contexts_of, differ
from toprank.clicks.corrections import resolve_curves
from toprank.clicks.curves import PropensityCurves
from toprank.clicks.empirical_bayes import drawn, shrunk
from toprank.clicks.intervention_harvesting import least_noise
from toprank.clicks.log import named
from toprank.errors import DataError, UnknownNameError
from toprank.significance import effective_sample_size

PHONE, DESKTOP = np.array([1, 0.4, 0.2, 0.1]), np.array([1, 0.8, 0.65, 0.5])
USERS = {"phone": PBM.from_parameters(PHONE), "desktop": PBM.from_parameters(DESKTOP)}
GRID = [("left", 1), ("right", 1), ("left", 2), ("right", 2)]
CELLS = np.array([1, 0.5, 0.7, 0.2])  # in the order of GRID


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=60, n_documents=(6, 12), n_features=3, n_grades=4, seed=0)


@pytest.fixture(scope="module")
def small():
    """Lists that are shown whole, so that nothing is never shown."""
    return tr.synthetic(n_queries=60, n_documents=4, n_features=3, n_grades=4, seed=0)


def shown(data, model=USERS, sessions=4_000, seed=0, context="device", **options):
    scores = {name: data.X[:, place] for place, name in enumerate("abc")}
    return simulate(data, scores, model, sessions, k=4, context=context, seed=seed, **options)


def relabeled(log, column, values):
    return replace(log, columns={**log.columns, column: np.asarray(values)})


def dealt(log, seed, names=("one", "two"), by_query=False):
    """Contexts that say nothing: sessions, or queries, have one by lot."""
    rng = np.random.default_rng(seed)
    of = rng.integers(0, len(names), log.n_queries)[log.session_query] if by_query else None
    of = rng.integers(0, len(names), log.n_sessions) if of is None else of
    return relabeled(log, "device", np.array(names)[of][log.session])


# ---- what a context is ----


def test_contexts_are_told_apart_and_crossed():
    log = ClickLog.from_columns(
        list("qqrr"), list("abab"), [1, 2, 1, 2], [0] * 4, device=["tv", "tv", "phone", "phone"], page=[2, 2, 10, 10]
    )
    found = contexts_of(log, ["device", "page"])
    assert (found.names, found.number.tolist(), found.varies) == (("phone × 10", "tv × 2"), [1, 1, 0, 0], False)
    assert contexts_of(log, "page").names == ("2", "10")  # numbers in their order


@pytest.mark.parametrize("column", [np.array([1, 1, 2, 2]), np.array([1.0, 1, 2, 2]), np.array(["1", "1", "2", "2"])])
def test_a_context_has_the_same_name_however_it_is_held(column):
    log = relabeled(ClickLog.from_columns(list("qqrr"), list("abab"), [1, 2, 1, 2], [0] * 4), "page", column)
    assert contexts_of(log, "page").names == ("1", "2")


def test_what_is_no_context_is_refused_with_a_sentence(data):
    log = shown(data, sessions=300)
    with pytest.raises(UnknownNameError, match="There is no column of the log called 'devise'"):
        propensities(log, context="devise")
    with pytest.raises(DataError, match="name of a column"):
        propensities(log, context=())
    some = log.columns["device"].astype(object)
    some[[3, 4]] = None
    with pytest.raises(DataError, match=r"2 of 1,200 impressions have no device \(the first in session 0\)"):
        propensities(relabeled(log, "device", some), context="device")
    with pytest.raises(DataError, match="fractions"):
        propensities(relabeled(log, "device", np.linspace(0, 1, log.n_impressions)), context="device")
    with pytest.raises(DataError, match="300 or more different values, but at most 100 are allowed"):
        propensities(relabeled(log, "user", log.session), context="user")
    with pytest.raises(DataError, match="All impressions of the log have the same device, 'tv'"):
        propensities(relabeled(log, "device", ["tv"] * log.n_impressions), context="device")
    with pytest.raises(DataError, match="Propensities by context are estimated by"):
        propensities(log, "trust", context="device")


def test_a_device_that_varies_within_a_few_sessions_is_a_mistake(data):
    log = shown(data, sessions=300)
    slip = log.columns["device"].copy()
    slip[4:6] = ["phone", "desktop"]
    with pytest.raises(DataError, match="device varies within 1 of 300 sessions"):
        propensities(relabeled(log, "device", slip), context="device")


def test_a_context_of_one_session_has_the_curve_of_the_whole(data):
    log = shown(data, sessions=3_000)
    device = log.columns["device"].astype("U10")
    device[:4] = "tv"
    found = propensities(relabeled(log, "device", device), context="device", n_resamples=20)
    np.testing.assert_allclose(found.of("tv"), found.whole.values, rtol=1e-12)
    assert found.own[found.names.index("tv"), 1:].tolist() == [0, 0, 0]
    assert np.isfinite(found.intervals.low).all()


# ---- curves ----


def test_each_device_has_its_curve_and_the_whole_has_neither(data):
    found = propensities(shown(data, sessions=100_000), context="device", n_resamples=20)
    np.testing.assert_allclose(found.of("phone"), PHONE, rtol=0.1)
    np.testing.assert_allclose(found.of("desktop"), DESKTOP, rtol=0.1)
    assert (found.whole.values[1:] > 1.2 * PHONE[1:]).all()
    assert (found.whole.values[1:] < 0.95 * DESKTOP[1:]).all()
    assert found.difference.p < 0.001
    assert (found.own[:, 1:] > 0.9).all()


def test_scales_say_how_often_first_positions_are_clicked(data):
    users = {"phone": PBM.from_parameters(0.4 * PHONE), "desktop": PBM.from_parameters(DESKTOP)}
    found = propensities(shown(data, users, sessions=100_000), context="device", n_resamples=5)
    phone, desktop = found.scales[found.names.index("phone")], found.scales[found.names.index("desktop")]
    assert phone / desktop == pytest.approx(0.4, rel=0.05)
    assert found.scales @ found.sizes / found.sizes.sum() == pytest.approx(1)
    classes = shown(data, users, sessions=5_000, shares=np.eye(2)[np.arange(data.n_queries) % 2])
    assert propensities(classes, context="device", n_resamples=5).scales.tolist() == [1, 1]  # no documents in common


def test_dealt_contexts_share_the_curve_of_the_whole(data):
    found = propensities(dealt(shown(data, PBM.from_parameters(PHONE), 20_000), 3), context="device", n_resamples=50)
    assert (np.abs(found.values / found.whole.values - 1)[:, 1:] <= 0.1).all()
    apart = [np.abs(np.log(np.concatenate([found.of("one"), found.of("two")]) / np.tile(PHONE, 2))).max()]
    assert apart[0] < 0.3


def covered(log, truth, context="device", n_resamples=40, seed=0):
    """Whether each interval but those of the first holds the truth."""
    found = propensities(log, context=context, n_resamples=n_resamples, seed=seed)
    wanted = np.stack([truth[name] for name in found.names])
    low, high = found.intervals
    kept = np.isfinite(wanted) & (wanted != 1)
    return ((low <= wanted) & (wanted <= high))[kept]


DEVICES = {"phone": PHONE, "desktop": DESKTOP}
PLACES = {"left": np.array([1, 0.7]), "right": np.array([0.5, 0.2])}


def held(inside, least, most):
    """Whether a share of answers is within bounds, but for what so few runs leave open."""
    slack = 3.3 * inside.mean(axis=1).std(ddof=1) / np.sqrt(len(inside))  # of the answers of one run, all at once
    assert least - slack <= inside.mean() <= most + slack, inside.mean(axis=0)


def coverage(data, runs, kind):
    if kind == "cells":
        logs = (
            shown(data, PBM.from_parameters(CELLS), 4_000, seed, context="column", layout=GRID) for seed in range(runs)
        )
        return np.array([covered(log, PLACES, "column") for log in logs])
    if kind == "alike":
        logs = (dealt(shown(data, PBM.from_parameters(PHONE), 4_000, seed), seed) for seed in range(runs))
        return np.array([covered(log, {"one": PHONE, "two": PHONE}) for log in logs])
    shares = [0.05, 0.95] if kind == "few" else None
    return np.array([covered(shown(data, sessions=4_000, seed=seed, shares=shares), DEVICES) for seed in range(runs)])


@pytest.mark.parametrize("kind", ["cells", *nightly("devices", "few")])
def test_intervals_hold_the_truth(data, kind):
    held(coverage(data, 12, kind), 0.93, 0.97)


def test_one_guess_of_how_far_contexts_vary_would_leave_out_the_truth(data, monkeypatch):
    """Of a rare context: were they taken to vary as little as may be, its intervals would be those of the whole."""
    monkeypatch.setattr("toprank.clicks.empirical_bayes._plausible", lambda d, *_: (np.array([1e-3]), np.ones(1)))
    log = shown(data, sessions=4_000, shares=[0.05, 0.95])
    assert not covered(log, DEVICES)[3:].any()  # of the phone


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "most"), [("devices", 0.97), ("cells", 0.97), ("few", 0.99), ("alike", 0.99)])
def test_intervals_hold_the_truth_as_often_as_they_say(data, kind, most):
    """Where contexts are alike, or one has little to say, what they may differ by makes intervals a little too long."""
    inside = coverage(data, 200, kind)
    assert 0.93 <= inside.mean() <= most, inside.mean(axis=0)


# ---- shrinking ----


def test_shrinking_is_the_mean_of_what_is_left_to_believe():
    """Against a sum over a fine grid of τ and of each δ, by Bayes' rule written out."""
    d, w = np.array([[0.5, -0.2], [-1.0, np.nan], [np.nan, np.nan]]), np.array([[0.1, 0.02], [0.3, np.inf], [9.0, 9.0]])
    shares = np.array([0.6, 0.4, 0.0])
    found = shrunk(d, w, np.zeros((3, 2)), shares)
    g = [0.4**2 + 0.4**2, 0.6**2 + 0.6**2, 1 + 0.6**2 + 0.4**2]
    taus, grid = (np.arange(500) + 0.5) / 100, np.linspace(-8, 8, 8_001)
    cells = [(0, 0), (0, 1), (1, 0)]
    moments, likely = {cell: [] for cell in cells}, []
    for tau in taus:
        evidence = 0.0
        for row, place in cells:
            joint = np.exp(-(grid**2) / (2 * tau**2 * g[row]) - (d[row, place] - grid) ** 2 / (2 * w[row, place])) / tau
            evidence += np.log(joint.sum())
            moments[row, place].append([joint @ grid / joint.sum(), joint @ grid**2 / joint.sum()])
        likely.append(evidence / 2 - tau**2 / 2)  # of two contexts, one is free
    weight = np.exp(np.array(likely) - max(likely))
    weight /= weight.sum()
    for row, place in cells:
        mean, square = weight @ np.array(moments[row, place])
        assert found.deviation[row, place] == pytest.approx(mean, abs=2e-3)
        spread = found.unknown[row, place] + found.own[row, place] ** 2 * w[row, place]
        assert spread == pytest.approx(square - mean**2, rel=0.02)
    assert found.deviation[2].tolist() == [0, 0]
    assert found.unknown[2, 0] == pytest.approx((weight @ taus**2) * g[2], rel=0.02)


@given(st.floats(0.01, 50), st.floats(0.02, 4))
def test_without_a_click_the_most_likely_is_taken(clicks, variance):
    grid = np.linspace(-10, 0, 100_001)
    after = -clicks * np.exp(grid) - grid**2 / (2 * variance)
    found = drawn(np.array([[-np.inf]]), np.zeros((1, 1)), np.array([[clicks]]), np.array([[variance]]))
    assert found[0, 0] == pytest.approx(grid[after.argmax()], abs=2e-4)


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(1e-6, 10), st.floats(0.01, 0.99))
def test_shrinking_never_leaves_what_lies_between(one, other, noise, share):
    d = np.array([[one], [other], [np.nan]])
    found = shrunk(d, np.array([[noise], [1.0], [np.inf]]), np.zeros((3, 1)), np.array([share, 1 - share, 0]))
    for row in range(2):
        assert min(0, d[row, 0]) - 1e-12 <= found.deviation[row, 0] <= max(0, d[row, 0]) + 1e-12
    assert ((found.own >= 0) & (found.own <= 1)).all()
    assert (found.unknown >= 0).all()
    assert found.deviation[2, 0] == 0


def test_with_much_data_a_context_has_its_own_curve_and_its_variance_is_found_again():
    rng = np.random.default_rng(0)
    d, shares = rng.normal(0, 0.5, (100, 9)), np.full(100, 0.01)
    found = shrunk(d, np.full(d.shape, 1e-8), np.zeros(d.shape), shares)
    np.testing.assert_allclose(found.deviation, d, rtol=1e-6)
    assert found.between == pytest.approx(0.25, rel=0.1)
    noise = rng.uniform(0.05, 0.3, d.shape)
    found = shrunk(rng.normal(0, np.sqrt(noise)), noise, np.zeros(d.shape), shares)
    assert found.between < 0.01
    assert found.own.max() < 0.2


def errors(log):
    found = propensities(log, context="device", n_resamples=20)
    wanted = np.log(np.stack([DEVICES[name.split()[0]] for name in found.names]))[:, 1:]
    with np.errstate(divide="ignore"):
        whole = np.log(found.whole.values)[1:]
        return np.array([((np.log(found.values)[:, 1:] - wanted) ** 2).mean(), ((whole - wanted) ** 2).mean()])


def few(data, seed):
    """Eight devices of two kinds, most of them rare."""
    log = shown(data, sessions=6_000, seed=seed, shares=[0.5, 0.5])
    rng = np.random.default_rng(seed)
    model = rng.choice(4, log.n_sessions, p=[0.7, 0.2, 0.07, 0.03])[log.session]
    device = log.columns["device"]
    return relabeled(log, "device", np.char.add(np.char.add(device.astype("U8"), " "), model.astype("U2")))


@pytest.mark.nightly
def test_shrunk_curves_are_nearer_to_the_truth_than_the_whole_and_than_what_each_says(data, monkeypatch):
    shrunken = np.mean([errors(few(data, seed)) for seed in range(3)], axis=0)

    def alone(deviation, noise, expected, shares):
        kept = np.isfinite(deviation) & np.isfinite(noise)
        found = shrunk(deviation, noise, expected, shares)
        return found._replace(deviation=np.where(kept, deviation, 0.0), own=kept * 1.0)

    monkeypatch.setattr("toprank.clicks.context_estimation.shrunk", alone)
    each = np.mean([errors(few(data, seed)) for seed in range(3)], axis=0)
    assert shrunken[0] < 0.8 * shrunken[1]  # than the whole
    assert shrunken[0] < 0.8 * each[0]  # than without shrinking


# ---- whether contexts differ ----


def null(data, kind, seed, sessions=1_500):
    """A log whose contexts do not change the curve, and that differs otherwise as much as may be."""
    if kind == "dealt":
        return dealt(shown(data, PBM.from_parameters(PHONE), sessions, seed), seed), "device"
    if kind == "scale":  # one device is clicked a third as often
        users = {"phone": PBM.from_parameters(0.33 * PHONE), "desktop": PBM.from_parameters(PHONE)}
        return shown(data, users, sessions, seed, shares=[0.7, 0.3]), "device"
    if kind == "class":
        return dealt(shown(data, PBM.from_parameters(PHONE), sessions, seed), seed, by_query=True), "device"
    if kind == "taste":  # users of one device like other documents, which stand elsewhere, too
        parts = [
            shown(data, PBM.from_parameters(PHONE), sessions // 2, seed + 10**6 * part, relevance_shuffle=part)
            for part in (0, 1)
        ]
        return joined(parts, ["phone", "desktop"]), "device"
    grid = np.array([1, 1, 0.5, 0.5])
    return shown(data, PBM.from_parameters(grid), sessions, seed, context="column", layout=GRID), "column"


def joined(parts, names):
    """Logs behind each other, each of a device of its own."""

    def of(field):
        return np.concatenate([field(part) for part in parts])

    return ClickLog.from_columns(
        of(lambda one: one.qids[one.query]), of(lambda one: one.document_ids[one.pair]), of(lambda one: one.position),
        of(lambda one: one.clicks),
        np.concatenate([part.session + 10**6 * number for number, part in enumerate(parts)]),
        device=np.concatenate([[name] * part.n_impressions for name, part in zip(names, parts, strict=True)]),
    )  # fmt: skip


def rejected(data, kind, runs):
    count = 0
    for seed in range(runs):
        log, context = null(data, kind, seed)
        count += differ(log, contexts_of(log, context), seed).p < 0.05
    return count


KINDS = ("dealt", "scale", "class", "taste", "cells")


@pytest.mark.parametrize("kind", [*KINDS[:2], *nightly(*KINDS[2:])])
def test_the_test_holds_its_level(data, kind):
    runs = 100
    assert rejected(data, kind, runs) <= binom.ppf(1 - 1e-3, runs, 0.05)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_the_test_holds_its_level_in_a_thousand_runs(data, kind):
    assert rejected(data, kind, 1_000) <= 70


def test_the_test_finds_a_planted_difference_and_nothing_once_contexts_are_shuffled(data):
    found, mixed = 0, 0
    for seed in range(20):
        log = shown(data, sessions=2_000, seed=seed)
        found += differ(log, contexts_of(log, "device"), seed).p < 0.05
        log = dealt(log, seed)
        mixed += differ(log, contexts_of(log, "device"), seed).p < 0.05
    assert found >= 16
    assert mixed <= binom.ppf(1 - 1e-3, 20, 0.05)


def test_a_smaller_difference_is_found_although_the_whole_curve_was_learned_from_the_same_clicks(data):
    """Without orthogonal scores, signs spread further than what they are compared with, and find one in fifteen."""
    users = {"phone": PBM.from_parameters(PHONE), "desktop": PBM.from_parameters([1, 0.55, 0.35, 0.2])}
    logs = (shown(data, users, sessions=2_500, seed=seed) for seed in range(40))
    assert sum(differ(log, contexts_of(log, "device")).p < 0.05 for log in logs) >= 9


def test_sessions_of_another_time_count_less_in_curves_and_in_the_test(data):
    """Last year both devices had the curve of phones: with a half-life of a month that is forgotten."""
    parts = [shown(data, USERS, 8_000, 1), shown(data, {name: PBM.from_parameters(PHONE) for name in USERS}, 40_000, 2)]
    log = joined(parts, ["", ""])
    device = np.concatenate([part.columns["device"] for part in parts])
    when = np.concatenate([np.full(part.n_impressions, 3e7 * (1 - old)) for old, part in enumerate(parts)])
    log = relabeled(relabeled(log, "device", device), "time", when)
    blurred = propensities(log, context="device", n_resamples=10)
    found = propensities(log, context="device", n_resamples=10, half_life="30d")
    np.testing.assert_allclose(found.of("desktop"), DESKTOP, rtol=0.2)
    assert (blurred.of("desktop")[1:] < 0.8 * DESKTOP[1:]).all()
    assert found.recency is not None
    assert "30 days" in found.summary
    assert found.difference.p < 0.001


def test_scales_and_the_test_of_weighted_sessions_are_those_of_them_repeated(data):
    rng, log = np.random.default_rng(0), shown(data, sessions=1_500)
    times, lot = rng.integers(1, 6, log.n_sessions), rng.integers(0, 2, log.n_sessions)
    log = relabeled(log, "lot", lot[log.session])
    weighed, repeated = replace(log, weights=times * 1.0), log.select(np.repeat(np.arange(log.n_sessions), times))
    curves = np.tile([1, 0.6, 0.4, 0.3], (2, 1))
    found = []
    for one in (weighed, repeated, log):
        found.append([differ(one, contexts_of(one, "lot")).p, *scales(one, contexts_of(one, "device").number, curves)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert (np.abs(np.subtract(found[0], found[2])) > 1e-3).all()


def test_contexts_are_examined_once_however_many_groups_of_queries_are_left_out(small, monkeypatch):
    """Where a group is left out, curves are drawn toward the whole as much as those of all."""
    log, calls, asked = shown(small, sessions=1_000, exploration=0.3), [], context_estimation.by_context
    monkeypatch.setattr(context_estimation, "by_context", lambda *a, **k: calls.append(a) or asked(*a, **k))
    tr.clicks.evaluate(small.X[:, 0], log, small, "dcg@4", context="device")
    assert len(calls) == 1


def test_clicks_of_sessions_that_count_less_tell_less_and_are_counted_as_they_are(data):
    log = shown(data, sessions=4_000)
    weights = 0.5 ** np.linspace(0, 8, log.n_sessions)
    curve = np.array([1, 0.6, 0.4, 0.3])
    least, even, weighed, more = (
        least_noise(one, curve)
        for one in (log, *(replace(log, weights=w) for w in (np.ones(log.n_sessions), weights, 7 * weights)))
    )
    np.testing.assert_allclose(even, least)
    np.testing.assert_allclose(more, weighed)
    np.testing.assert_allclose(weighed[1:] / least[1:], log.n_sessions / effective_sample_size(weights), rtol=0.3)
    device = log.columns["device"]
    found = propensities(replace(log, weights=weights), context="device", n_resamples=5)
    assert found.clicks.tolist() == [int(log.clicks[device == name].sum()) for name in found.names]


def test_of_few_queries_the_test_says_that_it_cannot_tell(data):
    log = shown(data.select(np.arange(5)), sessions=2_000)
    difference = differ(log, contexts_of(log, "device"))
    assert np.isnan(difference.p)
    found = propensities(log, context="device", n_resamples=5)
    assert "does not identify whether" in found.summary


# ---- cells ----


def test_cells_of_a_grid_are_found_again(data):
    log = shown(data, PBM.from_parameters(CELLS), 60_000, context="column", layout=GRID)
    assert log.has_duplicate_positions.all()
    found = propensities(log, context="column", n_resamples=10)
    assert found.layout.varies
    np.testing.assert_allclose(found.of("left"), PLACES["left"], rtol=0.08)
    np.testing.assert_allclose(found.of("right"), PLACES["right"], rtol=0.08)
    assert found.difference.p < 0.001


def test_modules_need_not_have_all_positions(data):
    layout = [("ads", 1), ("main", 1), ("main", 2), ("main", 3)]
    log = shown(data, PBM.from_parameters(CELLS), 40_000, context="module", layout=layout)
    found = propensities(log, context="module", n_resamples=5)
    assert found.to_frame("arrow").num_rows == 4
    assert np.isnan(found.of("ads")[1:]).all()
    np.testing.assert_allclose(found.of("main"), CELLS[1:], rtol=0.2)
    assert "module" in str(found)
    assert "own" not in str(found.table().text())


def test_cells_keep_documents_with_their_clicks(data):
    log = shown(data, PBM.from_parameters(CELLS), 200, context="column", layout=GRID)
    celled, cells = in_cells(log, contexts_of(log, "column"))
    assert cells.tolist() == [0, 2, 1, 3]  # left 1, right 1, left 2, right 2 of rows of two
    where = {"left": 0, "right": 1}
    told = {
        (s, d, 2 * (k - 1) + where[c] + 1, y)
        for s, d, k, c, y in zip(log.session, log.pair, log.position, log.columns["column"], log.clicks, strict=True)
    }
    assert told == set(zip(celled.session, celled.pair, celled.position, celled.clicks, strict=True))


# ---- curves where they are used ----


def test_a_slope_is_that_of_the_context_and_position(data):
    log = shown(data, sessions=200)
    curves = resolve_curves({"phone": PHONE, "desktop": DESKTOP}, log, context="device")
    wanted = [DEVICES[name][k - 1] for name, k in zip(log.columns["device"], log.position, strict=True)]
    assert curves.slopes(log).tolist() == wanted
    assert PropensityCurves(PHONE, np.zeros(4), "").slopes(log).tolist() == PHONE[log.position - 1].tolist()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 5))
def test_at_ranks_is_the_mean_over_sessions_one_by_one(seed, varies, deepest):
    rng = np.random.default_rng(seed)
    names, query, document, position, session, context = ("a", "b"), [], [], [], [], []
    for s in range(6):
        chosen = rng.integers(0, 2)
        for k in range(1, 4):
            for name in names if varies else names[chosen : chosen + 1]:
                if rng.random() < 0.8:
                    query.append(f"q{s % 3}")
                    document.append(f"d{k}{name}")
                    position.append(k)
                    session.append(s)
                    context.append(name)
    log = ClickLog.from_columns(query, document, position, np.zeros(len(query)), session, where=context)
    weights = np.ones(log.n_sessions) if seed % 2 else rng.random(log.n_sessions)
    log = replace(log, weights=None if seed % 2 else weights)
    layout = ContextCells(("where",), names, varies, 5)
    values = rng.random(3 * 5)
    asking = np.array([int(str(log.qids[q])[1]) for q in log.session_query])
    (found,) = layout.at_ranks(log, asking, 3, deepest, (values,))
    for q in range(3):
        mine = [s for s in range(log.n_sessions) if asking[s] == q]
        for r in range(deepest):
            each = []
            for s in mine:
                rows = range(log.offsets[s], log.offsets[s + 1])
                places = sorted((int(log.position[i]), str(log.columns["where"][i])) for i in rows)
                if varies:
                    each.append(
                        0.0 if r >= len(places) else values[5 * (1 + names.index(places[r][1])) + places[r][0] - 1]
                    )
                else:
                    each.append(values[5 * (1 + names.index(places[0][1])) + r])
            wanted = np.average(each, weights=weights[mine]) if each else 0.0
            assert found[q, r] == pytest.approx(wanted)


def skewed(data):
    """Half of the queries are asked for on the phone, the others on the desktop."""
    return np.where((np.arange(data.n_queries) % 2 == 0)[:, None], [0.95, 0.05], [0.05, 0.95])


def turned(data):
    """Queries of phones, a ranker that turns the lists around that were shown most, and its DCG@4."""
    part = data.select(np.arange(0, data.n_queries, 2))
    scores = -part.X[:, 0]
    rank = tr.clicks.policies.ranks_of(scores, part)
    liked = 0.1 + 0.9 * (2.0**part.labels - 1) / (2.0 ** data.labels.max() - 1)
    return part, scores, float((liked / np.log2(1 + rank)).sum() / part.n_queries)


def skewed_log(data, seed):
    return simulate(
        data, data.X[:, 0], USERS, 12_000, k=4, context="device", shares=skewed(data), exploration=0.3, seed=seed
    )


@pytest.mark.nightly
def test_the_whole_curve_misleads_where_devices_ask_other_queries_and_their_own_do_not(small):
    """By every estimator; and curves of contexts that were dealt by lot are no better than that of the whole."""
    part, scores, truth = turned(named(small))
    names, ranks = ("ips", "snips", "dr"), {"": tr.clicks.policies.ranks_of(scores, part)}
    apart = {"whole": [], "own": [], "shuffled": []}
    for seed in range(8):
        log = skewed_log(small, seed)
        ways = {"whole": (log, None), "own": (log, "device"), "shuffled": (dealt(log, seed), "device")}
        for way, (one, context) in ways.items():
            curves = resolve_curves(None, one, context=context)
            found = judge_by(names, ranks, one, part, ["dcg@4"], propensities=curves)
            apart[way].append([found[name].estimates[""].value - truth for name in names])
    means = {way: np.mean(of, axis=0) for way, of in apart.items()}
    errors = {way: np.std(of, axis=0, ddof=1) / np.sqrt(len(of)) for way, of in apart.items()}
    assert (np.abs(means["own"]) < 4 * errors["own"]).all()
    for way in ("whole", "shuffled"):
        assert (np.abs(means[way]) > 5 * errors[way]).all()
        assert (np.abs(means[way]) > 3 * np.abs(means["own"])).all()


def test_evaluate_takes_a_context_and_counts_what_finding_it_costs(small):
    part, scores, truth = turned(named(small))
    log = skewed_log(small, 0)
    learned = propensities(log, context="device", n_resamples=20)
    for curves in (learned, DEVICES):
        found = tr.clicks.evaluate(scores, log, part, "dcg@4", propensities=curves, context="device")
        assert found.interval.low < truth < found.interval.high
    found = tr.clicks.evaluate(small.X[:, 1], log, small, "dcg@4", context="device")
    known = tr.clicks.evaluate(small.X[:, 1], log, small, "dcg@4", propensities=DEVICES, context="device")
    assert found.interval.high - found.interval.low > known.interval.high - known.interval.low


def test_what_a_ranker_learns_from_is_right_and_by_the_whole_curve_it_is_not(small):
    """Phones are asked for other queries, and the whole curve thinks documents of theirs worse than they are."""
    log = shown(small, sessions=60_000, shares=skewed(small), exploration=0.5)
    relevance = 0.1 + 0.9 * tr.clicks.simulation.relevance_of(small)
    phone = small.queries.document_query % 2 == 0
    ratio = {}
    for name, context in (("whole", None), ("own", "device")):
        done = tr.clicks.train(tr.LinearRanker("Squared"), log, small, context=context, folds=0)
        ratio[name] = done.data.labels[phone].sum() / relevance[phone].sum()
    assert ratio["own"] == pytest.approx(1, abs=0.06)
    assert ratio["whole"] < 0.8
    assert done.curves.layout.names == ("desktop", "phone")


def test_train_and_launch_take_a_context(data, monkeypatch):
    log, judging = shown(data, sessions=6_000, exploration=0.3), []
    judge = training.estimate_rankers
    monkeypatch.setattr(
        training, "estimate_rankers", lambda bound, *a: judging.append(bound.source.context) or judge(bound, *a)
    )
    done = tr.clicks.train(tr.LinearRanker("Squared"), log, data, context="device")
    assert done.estimates
    assert judging == ["device"]  # the held-out queries are judged by the curves of devices too
    report = tr.clicks.launch_report(log, data, data.labels, -data.labels, context="device", k=4)
    assert report.decision == "launch"
    assert report.to_dict()["metric"] == "clicks@4"
    assert "Propensities are those of each position by device." in str(report)
    assert "Propensities are those of each position by device." in done.summary


@pytest.mark.nightly
def test_a_launch_is_told_right_where_devices_have_rankers_of_their_own(small):
    """Phones click a fifth as often, so that by the whole curve what their ranker likes looks bad."""
    rng = np.random.default_rng(0)
    liked = 0.1 + 0.9 * tr.clicks.simulation.relevance_of(small)
    scores = {"phone": liked + 0.5 * rng.normal(size=len(liked)), "desktop": rng.normal(size=len(liked))}
    looks = {"phone": 0.2 * PHONE, "desktop": DESKTOP}
    parts = [
        simulate(small, scores[name], PBM.from_parameters(looks[name]), 20_000, k=4, exploration=0.1, seed=seed)
        for seed, name in enumerate(looks)
    ]
    log, mean = joined(parts, list(looks)), sum(looks.values()) / 2
    ranks = {name: tr.clicks.policies.ranks_of(of, small) for name, of in scores.items()}
    worth = {name: float((mean[rank - 1] * liked).sum() / small.n_queries) for name, rank in ranks.items()}
    truth = worth["desktop"] - worth["phone"]
    told = {}
    for context in (None, "device"):
        report = tr.clicks.launch_report(log, named(small), scores["desktop"], scores["phone"], context=context)
        told[context] = report
    assert told["device"].difference.low < truth < told["device"].difference.high
    assert told["device"].decision == "do not launch"
    assert not told[None].difference.low < truth < told[None].difference.high


def deep_and_shallow(kinds, looks, sessions=16_000):
    """Two rankers, one of them better; users of two devices, of which one looks far down."""
    rng = np.random.default_rng(0)
    liked = rng.random(480)
    X = np.stack([liked + 0.4 * rng.normal(size=480), liked + 0.2 * rng.normal(size=480)], axis=1)
    data = tr.RankingData(X, np.zeros(480), qid=np.repeat(np.arange(120), 4))
    users = dict(zip(("desktop", "phone"), map(kinds, looks), strict=True))
    how = {"k": 4, "context": "device", "relevance": liked, "noise": 0.1, "exploration": 0.4}
    return data, simulate(data, X[:, 0], users, sessions, **how)


@pytest.mark.nightly
def test_devices_that_look_to_different_depths_are_not_taken_for_users_who_stop():
    """Without the device they are: who clicked far down is likelier to have looked at what stands between."""
    data, log = deep_and_shallow(PBM.known, ([1, 0.95, 0.9, 0.85], [1, 0.3, 0.1, 0.05]))
    how = {"names": ("new", "current"), "k": 3}
    blind, seeing = (
        tr.clicks.launch_report(log, data, data.X[:, 1], data.X[:, 0], context=context, **how)
        for context in (None, "device")
    )
    assert blind.cascade_check is not None
    assert "give the context" in str(blind)
    assert seeing.cascade_check is None
    given = {"desktop": [1, 0.95, 0.9, 0.85], "phone": [1, 0.3, 0.1, 0.05]}
    told = tr.clicks.launch_report(log, data, data.X[:, 1], data.X[:, 0], propensities=given, context="device", **how)
    assert told.cascade_check is None
    assert told.decision == "launch"


def test_users_of_devices_who_stop_are_found_within_each():
    data, log = deep_and_shallow(tr.clicks.DBN.from_parameters, (1.0, 0.6))
    found = tr.clicks.launch_report(log, data, data.X[:, 1], data.X[:, 0], context="device", k=3)
    assert found.cascade_check is not None
    assert found.cascade_check.context == "device"
    assert "within each device" in str(found)


def test_a_page_in_cells_is_trained_on_and_launched(data):
    log = shown(data, PBM.from_parameters(CELLS), 6_000, context="column", layout=GRID, exploration=0.3)
    done = tr.clicks.train(tr.LinearRanker("Squared"), log, data, context="column", folds=2)
    assert done.curves.layout.varies
    report = tr.clicks.launch_report(log, data, data.labels, -data.labels, context="column")
    assert (report.decision, report.metric) == ("launch", "clicks@4")  # four cells, two positions
    assert "cells have no single reading order" in str(report)
    with pytest.raises(DataError, match="correction='safe' counts exposure by rank"):
        tr.clicks.train(tr.LinearRanker("Squared"), log, data, "safe", context="column")
    with pytest.raises(DataError, match="and ignores contexts"):
        tr.clicks.train(tr.TreeRanker("ListNet", n_trees=2), log, data, "position", context="column")


def test_clicks_on_a_grid_are_estimated_right(small):
    """A rank fills a cell, row by row."""
    scores = small.X[:, 2] - small.X[:, 0]
    liked, rank = 0.1 + 0.9 * tr.clicks.simulation.relevance_of(small), tr.clicks.policies.ranks_of(scores, small)
    truth = np.where(rank <= 4, CELLS[np.minimum(rank, 4) - 1] * liked, 0).sum() / small.n_queries
    values = []
    for seed in range(6):
        log = shown(small, PBM.from_parameters(CELLS), 8_000, seed, context="column", layout=GRID, exploration=0.3)
        curves = resolve_curves(None, log, context="column")
        values.append(tr.clicks.evaluate(scores, log, small, "clicks@4", propensities=curves).value)
    assert np.mean(values) == pytest.approx(truth, abs=4 * np.std(values, ddof=1) / np.sqrt(6))


def test_contexts_that_the_log_never_had_take_the_whole(data):
    learned = propensities(shown(data, sessions=6_000), context="device", n_resamples=10)
    other = dealt(shown(data, sessions=500, seed=1), 0, ("phone", "tv"))
    with pytest.warns(UnidentifiedWarning, match="do not cover device 'tv', which the log has: it takes those of"):
        curves = resolve_curves(learned, other)
    tv = other.columns["device"] == "tv"
    np.testing.assert_allclose(curves.slopes(other)[tv], learned.whole.values[other.position[tv] - 1])
    with pytest.warns(UnidentifiedWarning, match="they take none|it takes none"):
        resolve_curves({"phone": PHONE}, other, context="device")


def test_curves_that_do_not_fit_are_refused(data):
    log = shown(data, sessions=500)
    learned = propensities(log, context="device", n_resamples=5)
    with pytest.raises(DataError, match="have the context device, but context='ranker' was requested"):
        resolve_curves(learned, log, context="ranker")
    with pytest.raises(DataError, match="have no context"):
        resolve_curves(PropensityCurves(PHONE, np.zeros(4), ""), log, context="device")
    with pytest.raises(DataError, match="must be a mapping from contexts, such as"):
        resolve_curves([1, 0.5, 0.3, 0.2], log, context="device")
    with pytest.raises(DataError, match=r"of 3 positions, and the log has 4|for each of the 4 positions"):
        resolve_curves({"phone": PHONE[:3], "desktop": DESKTOP[:3]}, log, context="device")
    grid = shown(data, PBM.from_parameters(CELLS), 300, context="device", layout=[(f"{m} x", k) for m, k in GRID])
    with pytest.raises(DataError, match="varies within sessions of this log"):
        resolve_curves(learned, grid)


# ---- the doctor, and results ----


def codes(report):
    return {one.code for one in report.findings}


def test_the_doctor_says_that_a_column_changes_the_curve(data):
    log = shown(data, sessions=10_000)
    report = tr.clicks.check(log, n_resamples=10)
    (found,) = (one for one in report.findings if one.code == "contexts")
    assert "device changes how likely users examine a position (p < 0.001)" in found.summary
    assert "context='device'" in found.remedy
    crossed = relabeled(log, "page", np.repeat(np.arange(log.n_sessions) % 2, 4))
    (found,) = (
        one
        for one in tr.clicks.check(crossed, context=["device", "page"], n_resamples=5).findings
        if one.code == "contexts"
    )
    assert "device × page" in found.summary
    assert "contexts" not in codes(tr.clicks.check(dealt(log, 1), n_resamples=10))
    report = tr.clicks.check(log, context="device", n_resamples=10)
    assert report.contexts.names == ("desktop", "phone")
    assert "for each device" in str(report)
    assert report.to_dict()["contexts"]["p"] < 0.001


def test_the_doctor_says_that_positions_of_modules_are_mixed_up(data):
    log = shown(data, PBM.from_parameters(CELLS), 3_000, context="module", layout=GRID)
    report = tr.clicks.check(log, n_resamples=10)
    (found,) = (one for one in report.findings if one.code == "mixed-positions")
    assert "In 3,000 of 3,000 sessions several documents have one position, one for each module" in str(found)
    assert "duplicate-positions" in codes(report)
    assert "duplicate-positions" not in codes(tr.clicks.check(log, context="module", n_resamples=10))


def test_results_have_the_vocabulary_of_all(data):
    found = propensities(shown(data, sessions=3_000), context="device", n_resamples=10)
    frame = found.to_frame()
    assert list(frame.columns) == ["context", "position", "propensity", "low", "high", "own", "identified"]
    assert len(frame) == 8
    told = found.to_dict()
    assert told["varies_within_sessions"] is False
    assert [one["context"] for one in told["contexts"]] == ["desktop", "phone"]
    assert "phone" in found._repr_html_()
    assert "phone" in found.plot()._repr_html_()
    assert found.summary in str(found).replace("\n\n", " ")
    with pytest.raises(UnknownNameError, match="'phone'"):
        found.of("phon")
    again = propensities(shown(data, sessions=3_000), context="device", n_resamples=10)
    assert (found.values == again.values).all()


def test_a_position_without_a_click_is_not_infinitely_far_from_the_whole(data):
    log = shown(data, {"phone": PBM.from_parameters([1, 0.5, 0, 0]), "desktop": PBM.from_parameters(DESKTOP)}, 10_000)
    found = propensities(log, context="device", n_resamples=20)
    phone = found.of("phone")
    assert (phone[2:] > 0).all()
    assert (phone[2:] < 0.3 * found.whole.values[2:]).all()
    low, high = (end[found.names.index("phone"), 2:] for end in found.intervals)
    assert (high > phone[2:]).all()
    assert (low >= 0).all()


def test_parts_of_a_log_are_estimated_from_shuffled_sessions_as_the_whole_is(data):
    """The scales of contexts come from shuffled sessions alone, in each part of the jackknife as in the whole."""
    log = shown(data, sessions=6_000, exploration=0.3)
    curves = resolve_curves("randomization", log, context="device")
    again = resolve_curves("randomization", log, context="device", like=curves)
    np.testing.assert_allclose(again.slope, curves.slope)
    marked = log.columns["explored"].astype(bool)
    others = replace(log, clicks=log.clicks & marked)  # clicks in other sessions do not matter
    np.testing.assert_array_equal(
        resolve_curves("randomization", others, context="device", like=curves).slope, again.slope
    )


def test_a_part_of_a_log_is_drawn_to_the_whole_as_much(data):
    log = shown(data, sessions=6_000)
    curves = resolve_curves(None, log, context="device")
    again = resolve_curves(None, log, context="device", like=curves)
    np.testing.assert_allclose(again.slope, curves.slope, rtol=1e-9)


def test_several_models_and_layouts_of_simulations_are_checked(data):
    with pytest.raises(DataError, match="shares must be a nonnegative number for each of the 2 models"):
        shown(data, sessions=10, shares=[1, 2, 3])
    with pytest.raises(DataError, match="a different place for each of the 4 documents"):
        shown(data, PBM.from_parameters(CELLS), 10, layout=GRID[:3])
    with pytest.raises(DataError, match="either several models or a layout"):
        shown(data, sessions=10, layout=GRID)
    log = shown(data, sessions=20_000, shares=[3, 1])
    assert np.mean(log.columns["device"][log.offsets[:-1]] == "phone") == pytest.approx(0.75, abs=0.02)


def test_by_context_is_what_propensities_gives(data):
    log = shown(data, sessions=2_000)
    one, two = by_context(log, "device", n_resamples=10), propensities(log, context=["device"], n_resamples=10)
    assert (one.values == two.values).all()


# ---- commands ----


@pytest.fixture(scope="module")
def files(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("contexts")
    tr.write(data, folder / "train.txt")
    held = tr.read(folder / "train.txt")
    tr.clicks.write(shown(held, sessions=5_000, exploration=0.3), folder / "log.csv")
    np.savetxt(folder / "new.scores", held.X[:, 1])
    for name, l2 in (("new", 1e-6), ("old", 100.0)):
        tr.LinearRanker("Squared", l2=l2).fit(held).save(folder / f"{name}.toprank")
    return folder, held, tr.clicks.read(folder / "log.csv", metadata="device")


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "--quiet"])


def test_commands_take_a_context(files):
    folder, held, log = files
    done = run("clicks", "check", folder / "log.csv", "--context", "device", "--html", folder / "log.html")
    assert done.exit_code == 0, done.output
    assert "Propensities by all-pairs for each device" in done.stdout
    assert "--context device" in done.stdout  # the remedy, as an option
    assert "Propensity by context" in (folder / "log.html").read_text()
    done = run(
        "clicks",
        "evaluate",
        folder / "new.scores",
        folder / "log.csv",
        folder / "train.txt",
        "--context",
        "device",
        "--json",
    )
    assert done.exit_code == 0, done.output
    expected = tr.clicks.evaluate(held.X[:, 1], log, held, context="device")
    assert json.loads(done.stdout)["mean"] == pytest.approx(expected.mean)
    done = run(
        "clicks", "train", folder / "log.csv", folder / "train.txt", "--context", "device", "--folds", 0, "--json",
        "-o", folder / "m.toprank", "--html", folder / "train.html",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "by device" in (folder / "train.html").read_text()
    models = ["--new", folder / "new.toprank", "--current", folder / "old.toprank"]
    done = run("launch-report", folder / "log.csv", folder / "train.txt", *models, "--context", "device", "--json")
    assert done.exit_code in (0, 3, 4), done.output
    report = tr.clicks.launch_report(log, held, tr.load(models[1]), tr.load(models[3]), context="device")
    assert json.loads(done.stdout)["estimates"]["snips"]["difference"]["value"] == pytest.approx(
        report.difference.value
    )


def test_commands_say_what_is_wrong_with_a_context(files):
    folder, *_ = files
    done = run("clicks", "check", folder / "log.csv", "--context", "devise")
    assert done.exit_code != 0
    assert "There is no column called 'devise'; did you mean 'device'?" in str(done.exception)
    logged = [{"query_id": "s", "user_query": "q", "query_response_hit_ids": ["a", "b"]}]
    (folder / "ubi_queries.jsonl").write_text("\n".join(map(json.dumps, logged)))
    (folder / "ubi_events.jsonl").write_text(json.dumps({"query_id": "s", "action_name": "click"}))
    done = run("clicks", "check", folder / "ubi_queries.jsonl", folder / "ubi_events.jsonl", "--context", "device")
    assert "cannot be chosen; leave out" in str(done.exception)
    done = run("clicks", "check", folder / "log.csv", "--context", ",")
    assert "--context takes the name of a column" in " ".join(done.stderr.split())
    numbers = ["--propensities", "1,0.5,0.3,0.2", "--context", "device"]
    done = run("clicks", "evaluate", folder / "new.scores", folder / "log.csv", folder / "train.txt", *numbers)
    assert done.exit_code != 0
    assert "With a context, propensities must be a mapping from contexts" in str(done.exception)
