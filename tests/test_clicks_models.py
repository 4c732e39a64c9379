"""Click models: probabilities against all patterns of clicks, expectations against all paths, fits against truth."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toprank import kernels
from toprank.clicks import CCM, DBN, DCM, PBM, SDBN, UBM, Cascade, ClickLog, DocumentCTR, GlobalCTR, RankCTR
from toprank.clicks.fitting import maximise
from toprank.clicks.models import last_click
from toprank.errors import DataError

MODELS = [GlobalCTR, RankCTR, DocumentCTR, PBM, UBM, Cascade, DCM, SDBN, DBN, CCM]
chance = st.floats(0.01, 0.99)


def shown(n_sessions, rng, depth=6, n_queries=8, n_documents=9):
    """A log without clicks: random documents of random queries in random order, lists of several lengths."""
    sizes = rng.integers(1, depth + 1, n_sessions)
    sizes[0] = depth
    query = np.repeat(rng.integers(0, n_queries, n_sessions), sizes)
    document = np.concatenate([rng.permutation(n_documents)[:size] for size in sizes])
    position = np.concatenate([np.arange(1, size + 1) for size in sizes])
    session = np.repeat(np.arange(n_sessions), sizes)
    return ClickLog.of(query, document, position, np.zeros(len(query)), session=session)


def known(model, depth):
    """A model with parameters that are far from all defaults."""
    places = np.arange(1, depth + 1)
    if model is PBM:
        return PBM.known(places**-0.7)
    if model is UBM:
        return UBM.known(np.tril(np.exp(-0.3 * (places[:, None] - np.arange(depth + 1)))) / np.exp(-0.3))
    return {DCM: lambda: DCM.known(0.9 * places**-0.4), SDBN: SDBN.known, DBN: lambda: DBN.known(0.8),
            CCM: lambda: CCM.known([0.9, 0.6, 0.2]), Cascade: Cascade}[model]()  # fmt: skip


def simulated(model, log, rng):
    """Clicks of a known model, with the attraction and satisfaction of each pair that made them."""
    attraction, satisfaction = rng.beta(1, 2, log.n_pairs), rng.beta(2, 2, log.n_pairs)
    made = known(model, log.depth)
    clicks = made.draw(log, attraction[log.pair], satisfaction[log.pair], rng)
    return replace(log, clicks=clicks), attraction, satisfaction, made


def fitted(model, rng, n_sessions=60):
    log = shown(n_sessions, rng)
    clicks = rng.random(log.n_impressions) < 0.3
    return model().fit(replace(log, clicks=clicks)), log


@pytest.mark.parametrize("model", MODELS)
def test_all_patterns_of_clicks_are_one_world(model):
    """Σ P(pattern) = 1, and P(click at k) is the sum of the patterns with a click there."""
    ranker, log = fitted(model, np.random.default_rng(0))
    session = np.flatnonzero(np.diff(log.offsets) == 4)[0]
    one = log.select([session])
    total, marginal = 0.0, np.zeros(4)
    for pattern in itertools.product([False, True], repeat=4):
        this = replace(one, clicks=np.array(pattern))
        p = ranker.chances(this)
        likely = np.prod(np.where(pattern, p, 1 - p))
        if likely > 0:
            assert ranker.log_likelihood(this) == pytest.approx(np.log(likely))
        total, marginal = total + likely, marginal + likely * np.array(pattern)
    assert total == pytest.approx(1)
    np.testing.assert_allclose(ranker.chances(one, given=False), marginal)


@given(
    attraction=st.lists(chance, min_size=1, max_size=4),
    after=st.lists(chance, min_size=4, max_size=4),
    skip=chance,
    pattern=st.integers(0, 15),
)
@settings(max_examples=60)
def test_what_a_chain_expects_is_what_all_its_paths_say(attraction, after, skip, pattern):
    n = len(attraction)
    clicks = np.array([(pattern >> k) & 1 for k in range(n)], dtype=np.uint8)
    examined, onward, values = np.empty(n), np.empty(n), np.empty(1)
    offsets, pair = np.array([0, n]), np.arange(n)
    arguments = (offsets, pair, clicks, np.array(attraction), pair, np.array(after[:n]), skip)
    kernels.cascade_expectations(*arguments, 0, 1, examined, onward, values)
    looked, both, whole = np.zeros(n), np.zeros(n), 0.0
    for path in itertools.product([0, 1], repeat=n):  # who looks at what; then whether they go on
        chance_of_path, here = 1.0, 1.0
        for k in range(n):
            chance_of_path *= here if path[k] else 1 - here
            click = attraction[k] if path[k] else 0.0
            chance_of_path *= click if clicks[k] else 1 - click
            here = 0.0 if not path[k] else after[k] if clicks[k] else skip
        whole += chance_of_path
        looked += chance_of_path * np.array(path)
        both += chance_of_path * np.array(path) * [*path[1:], 0]
        both[-1] += chance_of_path * path[-1] * here  # and at one that would have come
    np.testing.assert_allclose(examined, looked / whole, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(onward, both / whole, rtol=1e-9, atol=1e-12)
    assert values[0] == pytest.approx(np.log(whole))


@given(attraction=chance, examination=chance, clicked=st.booleans())
def test_what_a_product_expects_is_what_all_its_cases_say(attraction, examination, clicked):
    cases = {
        (liked, looked): (attraction if liked else 1 - attraction) * (examination if looked else 1 - examination)
        for liked, looked in itertools.product([True, False], repeat=2)
        if (liked and looked) == clicked
    }
    whole = sum(cases.values())
    liked, looked = (sum(p for case, p in cases.items() if case[k]) / whole for k in (0, 1))
    found = np.zeros(1), np.zeros(1)
    arguments = (np.array([0, 1]), np.zeros(1, np.int32), np.ones(1), np.array([float(clicked)]))
    value = kernels.product_sums(*arguments, np.array([attraction]), np.array([examination]), 0, 1, True, *found)
    np.testing.assert_allclose([found[0][0], found[1][0], value], [liked, looked, np.log(whole)])


@pytest.mark.parametrize("model", [PBM, UBM, DCM, SDBN, DBN, CCM])
def test_a_fit_is_a_maximum_of_the_shrunk_likelihood(model):
    """Nothing near is better: neither a document's attraction, nor its satisfaction, nor a parameter of all."""
    rng = np.random.default_rng(3)
    log, *_ = simulated(model, shown(300, rng), rng)
    ranker = model(tolerance=1e-13, max_steps=20_000).fit(log)
    assert ranker.converged_
    a, b = ranker.prior_
    free = {"attraction_": ranker.attraction_}
    if hasattr(ranker, "satisfaction_"):
        free["satisfaction_"] = ranker.satisfaction_
    if model is CCM or model is DCM:
        free["continuation_"] = ranker.continuation_
    if model in (PBM, UBM):
        free["examination_"] = ranker.examination_

    def value():
        with np.errstate(divide="ignore"):
            happened = ranker.log_likelihood(log) * log.n_sessions
        scale = ranker.scale_ if model in (PBM, UBM) else 1.0
        total = happened
        for name, values in free.items():
            p = values / scale if name == "attraction_" else values * scale if name == "examination_" else values
            p = p[p > 0]
            total += a * np.log(p).sum() + b * np.log1p(-p).sum()
        if model is DBN:
            total += a * np.log(ranker.skip_) + b * np.log1p(-ranker.skip_)
        return total

    best = value()
    for name, values in free.items():
        for place in rng.permutation(values.size)[:8]:
            at = np.unravel_index(place, values.shape)
            was = values[at]
            if was == 0 or (name == "examination_" and place == 0):
                continue
            for factor in (0.99, 1.01):
                values[at] = was * factor if was * factor < 1 or name == "examination_" else was
                assert value() <= best + 1e-7, (name, at)
            values[at] = was


@pytest.mark.parametrize("model", [PBM, UBM, DCM, SDBN, DBN, CCM, Cascade])
def test_what_made_the_clicks_is_found_again(model):
    rng = np.random.default_rng(1)
    log, attraction, satisfaction, made = simulated(model, shown(30_000, rng), rng)
    found = model(prior=(0.1, 0.1)).fit(log)
    seen = np.bincount(log.pair, minlength=log.n_pairs) > 500
    error = (found.attraction_ - attraction)[seen]
    assert np.abs(error).mean() < 0.05
    if hasattr(found, "satisfaction_"):
        clicked = np.bincount(log.pair, log.clicks, log.n_pairs) > 300
        assert np.abs(found.satisfaction_ - satisfaction)[clicked].mean() < 0.06
    for name, values in found.parameters_.items():
        truth = np.atleast_1d(getattr(made, f"{name}_"))
        often = truth > 0
        if model is UBM:
            place = (log.position - 1) * (log.depth + 1) + last_click(log)
            often &= np.bincount(place, minlength=truth.size).reshape(truth.shape) > 1500
        if model is DCM:
            often[-1] = False  # nothing comes after the last position
        np.testing.assert_allclose(values[often], truth[often], atol=0.06)


@pytest.mark.parametrize("model", [PBM, DCM, DBN, CCM])
def test_draws_have_the_chances_they_say(model):
    rng = np.random.default_rng(2)
    log = ClickLog.of(np.zeros(80_000), np.tile(np.arange(4), 20_000), np.tile([1, 2, 3, 4], 20_000), np.zeros(80_000))
    log, attraction, satisfaction, made = simulated(model, log, rng)
    made.attraction_, made.satisfaction_, made.log_ = attraction, satisfaction, log
    wanted = made.chances(log.select([0]), given=False)
    seen = log.clicks.reshape(-1, 4).mean(axis=0)
    np.testing.assert_allclose(seen, wanted, atol=5 * np.sqrt(0.25 / 20_000))


def test_the_right_model_beats_the_rates_on_sessions_it_has_not_seen():
    rng = np.random.default_rng(4)
    log, *_ = simulated(DBN, shown(8_000, rng), rng)
    old, new = log.select(np.arange(4_000)), log.select(np.arange(4_000, 8_000))
    likely = {model: model().fit(old).log_likelihood(new) for model in MODELS if model is not Cascade}
    assert max(likely, key=likely.get) is DBN
    surprise = {model: float(model().fit(old).perplexity(new)) for model in (GlobalCTR, DBN)}
    assert 1 < surprise[DBN] < surprise[GlobalCTR] < 2


def test_rates_are_their_posterior_means_and_intervals():
    from scipy.stats import beta

    log = ClickLog.of(["q"] * 6, list("ababab"), [1, 2, 1, 2, 1, 2], [1, 0, 1, 1, 0, 0])
    model = RankCTR(prior=(2, 3)).fit(log)
    np.testing.assert_allclose(model.rate_, [(2 + 2) / (3 + 5), (1 + 2) / (3 + 5)])
    low, high = model.posterior_interval(0.9)
    np.testing.assert_allclose([low[0], high[0]], beta(4, 4).ppf([0.05, 0.95]))


def test_cascade_counts_what_it_holds_for_impossible():
    log = ClickLog.of(["q"] * 4, list("abab"), [1, 2, 1, 2], [1, 1, 0, 1])
    model = Cascade().fit(log)
    assert model.impossible_ == 1
    assert model.log_likelihood(log) == -np.inf


def test_pairs_are_known_by_their_ids():
    log = ClickLog.of(["q", "q", "r"], ["a", "b", "a"], [1, 2, 1], [1, 0, 1])
    other = ClickLog.of(["r", "q", "s"], ["a", "b", "a"], [1, 2, 1], [0, 0, 0])
    model = DocumentCTR(prior=(1, 1)).fit(log)
    by_name = dict(zip([("q", "a"), ("q", "b"), ("r", "a")], model.attraction_, strict=True))
    wanted = [by_name["q", "b"], by_name["r", "a"], 0.5]  # of s nothing is known
    np.testing.assert_allclose(model.relevance(other), wanted)


@pytest.mark.parametrize("model", [PBM, UBM, DCM, DBN])
def test_the_number_of_threads_changes_no_bit(model):
    rng = np.random.default_rng(6)
    log, *_ = simulated(model, shown(2_000, rng), rng)
    one, two = (model().fit(log, threads=threads) for threads in (1, 2))
    assert (one.attraction_ == two.attraction_).all()


@pytest.mark.parametrize("model", [PBM, DBN])
def test_a_weight_of_two_is_the_query_twice(model):
    rng = np.random.default_rng(7)
    log, *_ = simulated(model, shown(200, rng, n_queries=2), rng)
    first = np.flatnonzero(log.session_query == 0)
    twice = log.select(np.concatenate([np.arange(log.n_sessions), first]))
    same = {"prior": (1.0, 1.0), "tolerance": 1e-13}
    weighted, repeated = model(**same).fit(log, query_weights=[2, 1]), model(**same).fit(twice)
    np.testing.assert_allclose(weighted.attraction_, repeated.attraction_, atol=1e-4)


def test_refusals():
    log = ClickLog.of(["q"] * 2, ["a", "b"], [1, 2], [1, 0])
    with pytest.raises(DataError, match="not fitted"):
        PBM().relevance()
    with pytest.raises(DataError, match="ClickLog"):
        PBM().fit([[1, 2]])
    with pytest.raises(DataError, match="prior"):
        PBM(prior=(0, 1)).fit(log)
    with pytest.raises(DataError, match="query_weights"):
        DBN().fit(log, query_weights=[1, 2, 3])
    with pytest.raises(DataError, match="position 5"):
        PBM().fit(log).chances(ClickLog.of(["q"], ["a"], [5], [0]))
    with pytest.raises(DataError, match="whole numbers from 1"):
        ClickLog.of(["q"], ["a"], [0], [1])
    with pytest.raises(DataError, match="several queries"):
        ClickLog.of(["q", "r"], ["a", "a"], [1, 2], [0, 1], session=[1, 1])


def test_leaps_never_lower_the_objective():
    def step(x):
        return 0.5 + 0.99 * (x - 0.5), -float(((x - 0.5) ** 2).sum())

    found = maximise(step, np.array([0.01, 0.9]), 1e-12, 1000)
    np.testing.assert_allclose(found.at, 0.5, atol=1e-4)
    assert found.steps < 60  # of the thousand that 0.99^n takes
