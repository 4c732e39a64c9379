"""Click models: probabilities against all patterns of clicks, expectations against all paths, fits against truth."""

import itertools
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toprank as tr
import toprank.clicks.products as click_products
from toprank import kernels
from toprank.clicks import (
    CCM,
    DBN,
    DCM,
    PBM,
    SDBN,
    UBM,
    Cascade,
    ClickLog,
    DocumentCTR,
    GlobalCTR,
    RankCTR,
    UnidentifiedWarning,
    rate_prior,
)
from toprank.clicks.cascades import _whole_queries
from toprank.clicks.corrections import resolve_curves
from toprank.clicks.em import maximize
from toprank.clicks.intervention_harvesting import relative_examinations
from toprank.clicks.products import ProductCells, last_click
from toprank.errors import DataError
from toprank.rankers.base import ConvergenceWarning

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
    return ClickLog.from_columns(query, document, position, np.zeros(len(query)), session=session)


def users_of(model, depth):
    """A model with parameters that are far from all defaults."""
    places = np.arange(1, depth + 1)
    if model is PBM:
        return PBM.from_parameters(places**-0.7)
    if model is UBM:
        return UBM.from_parameters(np.tril(np.exp(-0.3 * (places[:, None] - np.arange(depth + 1)))) / np.exp(-0.3))
    return {DCM: lambda: DCM.from_parameters(0.9 * places**-0.4), SDBN: SDBN.from_parameters,
            DBN: lambda: DBN.from_parameters(0.8),
            CCM: lambda: CCM.from_parameters([0.9, 0.6, 0.2]), Cascade: Cascade}[model]()  # fmt: skip


def simulated(model, log, rng):
    """Clicks of a known model, with the attraction and satisfaction of each pair that made them."""
    attraction, satisfaction = rng.beta(1, 2, log.n_pairs), rng.beta(2, 2, log.n_pairs)
    made = users_of(model, log.depth)
    clicks = made.sample_clicks(log, attraction[log.pair], satisfaction[log.pair], rng)
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
        p = ranker.click_probabilities(this)
        likely = np.prod(np.where(pattern, p, 1 - p))
        if likely > 0:
            assert ranker.log_likelihood(this) == pytest.approx(np.log(likely))
        total, marginal = total + likely, marginal + likely * np.array(pattern)
    assert total == pytest.approx(1)
    np.testing.assert_allclose(ranker.click_probabilities(one, conditional=False), marginal)


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
    arguments = (np.array([0, 1]), *np.zeros((2, 1), np.int32), np.ones(1), np.array([float(clicked)]))
    value = kernels.product_sums(*arguments, np.array([attraction]), np.array([examination]), 0, 1, True, *found)
    np.testing.assert_allclose([found[0][0], found[1][0], value], [liked, looked, np.log(whole)])


@pytest.mark.parametrize("n_pairs", [3, 700])
@pytest.mark.parametrize("repeats", [1, 40])
def test_the_sums_of_a_product_are_those_of_its_cells(n_pairs, repeats):
    """However many cells there are, and whichever way they are counted."""
    rng = np.random.default_rng(n_pairs)
    n = n_pairs * repeats
    position = np.tile([1, 2, 3], n)
    queries, documents = np.repeat(np.arange(n) % 7, 3), rng.integers(0, n_pairs, 3 * n)
    log = ClickLog.from_columns(
        queries.astype(str), documents.astype(str), position, rng.random(3 * n) < 0.3, np.arange(3 * n) // 3
    )
    weights = rng.integers(0, 3, log.n_queries).astype(float)
    cells = ProductCells.from_log(log, log.position - 1, 3, weights)
    seen = Counter(zip(log.pair.tolist(), (log.position - 1).tolist(), strict=True))
    clicked = Counter(zip(log.pair[log.clicks].tolist(), (log.position[log.clicks] - 1).tolist(), strict=True))
    found = list(zip(cells.pair.tolist(), cells.place.tolist(), strict=True))
    assert found == sorted(seen)
    weight = weights[log.pair_query[cells.pair]]
    np.testing.assert_array_equal(cells.shown, weight * [seen[cell] for cell in found])
    np.testing.assert_array_equal(cells.clicked, weight * [clicked[cell] for cell in found])
    np.testing.assert_array_equal(np.repeat(np.arange(log.n_pairs), np.diff(cells.begins)), cells.pair)

    attraction, examination = rng.uniform(0.01, 0.99, log.n_pairs), rng.uniform(0.01, 0.99, 3)
    sums = np.full(log.n_pairs, np.nan), np.zeros(3)
    value = kernels.product_sums(*cells[:5], attraction, examination, 0, log.n_pairs, True, *sums)
    a, e, passed = attraction[cells.pair], examination[cells.place], cells.shown - cells.clicked
    liked, looked = (cells.clicked + passed * (one - a * e) / (1 - a * e) for one in (a, e))
    np.testing.assert_allclose(sums[0], np.bincount(cells.pair, liked, log.n_pairs), rtol=1e-12)
    np.testing.assert_allclose(sums[1], np.bincount(cells.place, looked, 3), rtol=1e-12)
    assert value == pytest.approx((cells.clicked * np.log(a * e) + passed * np.log(1 - a * e)).sum(), rel=1e-12)
    prior = kernels.beta_prior(attraction, 0.3, 1.7)
    assert prior == pytest.approx((0.3 * np.log(attraction) + 1.7 * np.log1p(-attraction)).sum(), rel=1e-12)


@pytest.mark.parametrize("model", [PBM, UBM, DCM, SDBN, DBN, CCM])
def test_a_fit_is_a_maximum_of_the_shrunk_likelihood(model):
    """Nothing near is better: neither a document's attraction, nor its satisfaction, nor a parameter of all."""
    rng = np.random.default_rng(3)
    log, *_ = simulated(model, shown(300, rng), rng)
    ranker = model(tolerance=1e-13, max_iterations=20_000).fit(log)
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
    log = ClickLog.from_columns(
        np.zeros(80_000), np.tile(np.arange(4), 20_000), np.tile([1, 2, 3, 4], 20_000), np.zeros(80_000)
    )
    log, attraction, satisfaction, made = simulated(model, log, rng)
    made.attraction_, made.satisfaction_, made.log_ = attraction, satisfaction, log
    wanted = made.click_probabilities(log.select([0]), conditional=False)
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

    log = ClickLog.from_columns(["q"] * 6, list("ababab"), [1, 2, 1, 2, 1, 2], [1, 0, 1, 1, 0, 0])
    model = RankCTR(prior=(2, 3)).fit(log)
    np.testing.assert_allclose(model.rate_, [(2 + 2) / (3 + 5), (1 + 2) / (3 + 5)])
    low, high = model.posterior_interval(0.9)
    np.testing.assert_allclose([low[0], high[0]], beta(4, 4).ppf([0.05, 0.95]))


def test_cascade_counts_what_it_holds_for_impossible():
    log = ClickLog.from_columns(["q"] * 4, list("abab"), [1, 2, 1, 2], [1, 1, 0, 1])
    model = Cascade().fit(log)
    assert model.impossible_ == 1
    assert model.log_likelihood(log) == -np.inf


def test_pairs_are_known_by_their_ids():
    log = ClickLog.from_columns(["q", "q", "r"], ["a", "b", "a"], [1, 2, 1], [1, 0, 1])
    other = ClickLog.from_columns(["r", "q", "s"], ["a", "b", "a"], [1, 2, 1], [0, 0, 0])
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


@pytest.mark.parametrize("model", [SDBN, DBN])
def test_sums_of_whole_queries_are_the_same_on_any_number_of_threads(model, monkeypatch):
    """Pairs of a query are added to by one thread: were its sessions cut, two would write to them at once."""
    monkeypatch.setattr("toprank.clicks.cascades._SESSIONS_PER_BLOCK", 50)
    rng = np.random.default_rng(6)
    log, *_ = simulated(model, shown(2_000, rng), rng)
    distinct, _ = log.unique_sessions
    parts = _whole_queries(distinct)
    assert len(parts) > 3
    for (_, last), (begin, _) in itertools.pairwise(parts):
        assert last == begin
        assert distinct.session_query[last - 1] != distinct.session_query[begin]
    one, four = (model().fit(log, threads=threads) for threads in (1, 4))
    assert (one.attraction_ == four.attraction_).all()
    assert (one.satisfaction_ == four.satisfaction_).all()


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.booleans()), min_size=1, max_size=3), max_size=30
    ),
    st.booleans(),
)
@settings(deadline=None)
def test_sessions_that_are_the_same_are_counted_and_no_others(sessions, hashes_agree):
    """Even where the hashes of all sessions were the same."""
    sessions = [*sessions, [(0, 1, False)]]
    offsets = np.cumsum([0, *map(len, sessions)])
    pair, clicked = (np.array([one[i] for rows in sessions for one in rows]) for i in (0, 2))
    position = np.concatenate([np.cumsum([one[1] for one in rows]) for rows in sessions])
    clicks, keys, n = clicked.astype(np.uint8), np.zeros(len(sessions), np.uint64), len(sessions)
    query = np.array([rows[0][0] for rows in sessions])
    if not hashes_agree:
        kernels.session_keys(offsets, query, pair, position, clicks, keys)
    kept, counts = np.empty(n, np.int64), np.empty(n)
    order = np.argsort(keys, kind="stable")
    shown = offsets, pair, position, clicks
    found = kernels.distinct_sessions(*shown, keys, order, kept, counts)

    def content(number):
        rows = slice(offsets[number], offsets[number + 1])
        return tuple(map(tuple, (pair[rows].tolist(), position[rows].tolist(), clicks[rows].tolist())))

    every, kept_ones = Counter(map(content, range(n))), Counter()
    for number, count in zip(kept[:found].tolist(), counts[:found].tolist(), strict=True):
        kept_ones[content(number)] += count
    assert every == kept_ones
    assert hashes_agree or found == len(every)


@pytest.mark.parametrize("model", [DCM, SDBN, DBN, CCM])
def test_a_fit_looks_at_the_same_sessions_once(model, monkeypatch):
    """And finds what it finds where each is looked at by itself."""
    rng = np.random.default_rng(8)
    log, *_ = simulated(model, shown(3_000, rng, depth=3, n_queries=2, n_documents=3), rng)
    assert log.unique_sessions[0].n_sessions < log.n_sessions / 4
    once = model().fit(log)
    monkeypatch.setattr(ClickLog, "unique_sessions", property(lambda self: (self, np.ones(self.n_sessions))))
    each = model().fit(log)
    assert once.n_iter_ == each.n_iter_
    np.testing.assert_allclose(once.attraction_, each.attraction_, rtol=1e-9)
    np.testing.assert_allclose(once.log_likelihood(log), each.log_likelihood(log), rtol=1e-12)


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
    log = ClickLog.from_columns(["q"] * 2, ["a", "b"], [1, 2], [1, 0])
    with pytest.raises(DataError, match="not fitted"):
        PBM().relevance()
    with pytest.raises(DataError, match="ClickLog"):
        PBM().fit([[1, 2]])
    with pytest.raises(DataError, match="prior"):
        PBM(prior=(0, 1)).fit(log)
    with pytest.raises(DataError, match="prior must be two numbers above 0"):
        PBM(prior=3).fit(log)
    with pytest.raises(DataError, match="query_weights"):
        DBN().fit(log, query_weights=[1, 2, 3])
    swapped = ClickLog.from_columns(["q"] * 4, list("abba"), [1, 2, 1, 2], [1, 0, 0, 1])
    with pytest.raises(DataError, match="position 5"):
        PBM().fit(swapped).click_probabilities(ClickLog.from_columns(["q"], ["a"], [5], [0]))
    with pytest.raises(DataError, match="whole numbers from 1"):
        ClickLog.from_columns(["q"], ["a"], [0], [1])
    with pytest.raises(DataError, match="several queries"):
        ClickLog.from_columns(["q", "r"], ["a", "a"], [1, 2], [0, 1], session=[1, 1])


def test_leaps_never_lower_the_objective():
    def step(x):
        return 0.5 + 0.99 * (x - 0.5), -float(((x - 0.5) ** 2).sum())

    found = maximize(step, np.array([0.01, 0.9]), 1e-12, 1000)
    np.testing.assert_allclose(found.at, 0.5, atol=1e-4)
    assert found.steps < 60  # of the thousand that 0.99^n takes


def test_a_fit_ends_where_examinations_rest_and_not_where_the_likelihood_is_flat():
    data = tr.synthetic(n_queries=1000, n_documents=(10, 14), seed=1)
    users, how = (
        PBM.from_parameters(1 / np.arange(1, 11) ** 0.9),
        {"noise": 0.02, "exploration": 0.3, "zipf_exponent": 1.0},
    )
    log = tr.clicks.simulate(data, data.X[:, 0], users, sessions=3000, k=10, seed=2, **how)
    usual, patient = (PBM(prior=(0.02, 0.18), tolerance=of).fit(log) for of in (1e-9, 1e-14))
    assert usual.converged_
    assert patient.converged_
    np.testing.assert_allclose(usual.examination_, patient.examination_, atol=1e-3)


@pytest.mark.parametrize("model", [PBM, UBM, DCM, SDBN, DBN, CCM])
def test_a_fit_that_ends_before_it_came_to_rest_says_so(model):
    rng = np.random.default_rng(3)
    log, *_ = simulated(model, shown(300, rng), rng)
    for steps in (2, 3) if model in (PBM, UBM) else (4, 5, 6):  # a leap may be the last step, or the one after the last
        with pytest.warns(
            ConvergenceWarning, match=rf"{model.__name__} did not converge .*max_iterations \(now {steps}"
        ):
            early = model(max_iterations=steps).fit(log)
        assert not early.converged_
        assert early.n_iter_ <= steps
        assert f"not converged after {early.n_iter_} steps" in str(early)
    assert model(tolerance=1e-6).fit(log).converged_
    if model.shared and model is not PBM:  # its intervals take no such steps
        with pytest.warns(ConvergenceWarning) as told:
            model(max_iterations=2).intervals(log, groups=3)
        assert [str(one.message).partition(", so its")[0] for one in told] == [
            f"The fit of {model.__name__} did not converge (4 of 4 fits)"
        ]


def test_a_log_that_few_swaps_join_is_fitted_to_its_end(monkeypatch):
    """Expectation and maximization takes some two thousand steps; after a thousand another fit is likelier by far."""
    data = tr.synthetic(n_queries=300, n_documents=(8, 20), seed=0)
    users = PBM.from_parameters(1 / np.arange(1, 11) ** 0.9)
    log = tr.clicks.simulate(data, data.X[:, 0], users, 20_000, k=10, exploration=0.005)
    found = PBM(prior=(0.04, 0.16)).fit(log)
    monkeypatch.setattr(click_products, "_MAX_NEWTON_PARAMETERS", 0)
    with pytest.warns(ConvergenceWarning):
        early = PBM(prior=(0.04, 0.16), max_iterations=1_000).fit(log)
    patient = PBM(prior=(0.04, 0.16)).fit(log)
    assert found.converged_
    assert found.n_iter_ < 30
    assert np.abs(early.examination_ - found.examination_).max() > 0.1
    likely = [one.session_log_likelihoods(log).sum() for one in (early, found)]
    assert likely[1] > likely[0] + 1
    np.testing.assert_allclose(found.examination_, patient.examination_, rtol=0.05)  # which ends a little early


@pytest.mark.parametrize("model", [PBM, UBM])
@pytest.mark.parametrize("prior", [None, (0.02, 0.08), (3.0, 1.0)])
def test_newton_ends_where_expectation_and_maximization_do(model, prior, monkeypatch):
    rng = np.random.default_rng(5)
    log, *_ = simulated(model, shown(400, rng), rng)
    weights = rng.integers(0, 3, log.n_queries)
    newton = model(prior=prior, tolerance=1e-13).fit(log, query_weights=weights)
    monkeypatch.setattr(click_products, "_MAX_NEWTON_PARAMETERS", 0)
    em = model(prior=prior, tolerance=1e-14, max_iterations=50_000).fit(log, query_weights=weights)
    assert newton.n_iter_ < min(40, em.n_iter_)
    np.testing.assert_allclose(newton.attraction_, em.attraction_, atol=2e-4)
    np.testing.assert_allclose(newton.examination_, em.examination_, atol=2e-4)


def test_priors_have_the_rate_of_what_each_model_holds_for_looked_at():
    log = ClickLog.from_columns(
        ["q"] * 7, list("abcabcd"), [1, 2, 3, 1, 2, 3, 4], [0, 1, 0, 0, 0, 0, 0], session=[0] * 3 + [1] * 4
    )
    clicked = ClickLog.from_columns(["q"] * 4, list("abcd"), [1, 2, 3, 4], [1, 0, 1, 0])
    for model, looked, looked_at_clicked in (
        (GlobalCTR, 7, (2, 4)), (RankCTR, 7, (2, 4)), (DocumentCTR, 7, (2, 4)),
        (Cascade, 6, (1, 1)), (DCM, 6, (2, 3)), (SDBN, 6, (2, 3)),
        (PBM, 2, (1, 1)), (UBM, 2, (1, 1)), (DBN, 2, (1, 1)), (CCM, 2, (1, 1)),
    ):  # fmt: skip
        for of_log, (clicks, shown) in ((log, (0 if looked == 2 else 1, looked)), (clicked, looked_at_clicked)):
            rate = (clicks + 0.5) / (shown + 1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnidentifiedWarning)
                found = model().fit(of_log).prior_
            assert found == pytest.approx((2 * rate, 2 * (1 - rate))), model


@pytest.mark.parametrize("model", [DocumentCTR, SDBN, DCM])
def test_models_foretell_better_with_the_rate_of_what_was_looked_at_than_with_that_of_the_first_position(model):
    data = tr.synthetic(n_queries=200, n_documents=(15, 25), n_features=5, seed=0)
    users = PBM.from_parameters(1 / np.arange(1, 11))
    log = tr.clicks.simulate(data, data.expected_gain(), users, 3_000, k=10, exploration=0.1, zipf_exponent=1.0, seed=1)
    old, new = log.select(np.arange(2_000)), log.select(np.arange(2_000, 3_000))
    likely = [model(prior=prior, tolerance=1e-7).fit(old).log_likelihood(new) for prior in (None, rate_prior(old))]
    assert likely[0] > likely[1] + 0.1


def one_order(n=400, depth=3):
    """Every query shows its documents at their own positions alone."""
    rng = np.random.default_rng(0)
    query, place = np.repeat(np.arange(n) % 20, depth), np.tile(np.arange(1, depth + 1), n)
    clicks = rng.random(n * depth) < 0.5 / place
    return ClickLog.from_columns(query, [f"{q}/{k}" for q, k in zip(query, place, strict=True)], place, clicks)


@pytest.mark.parametrize("model", [PBM, UBM])
def test_positions_that_no_document_joins_are_told_and_may_be_anything(model):
    log = one_order()
    with pytest.warns(
        UnidentifiedWarning,
        match=rf"No document connects positions 2, 3 to the first, so the estimate of {model.__name__}",
    ):
        fitted = model().fit(log)
    looked = fitted.identified_ if model is PBM else fitted.identified_[:, 0]
    assert looked.tolist() == [True, False, False]
    found = model(tolerance=1e-6).intervals(log, groups=3)["examination"]
    low, high = (end if model is PBM else end[:, 0] for end in (found.low, found.high))
    assert low.tolist() == [1, 0, 0]
    assert high.tolist() == [1, np.inf, np.inf]
    joined = replace(log, pair=np.where((log.query < 5) & (log.position == 2), log.pair - 1, log.pair))
    with pytest.warns(UnidentifiedWarning, match="connects position 3 to the first, so the estimate of .* for it"):
        model().fit(joined)


def test_features_join_positions_where_a_ranker_learns_the_attraction():
    log = one_order()
    data = tr.RankingData(
        np.arange(60.0)[:, None] % 7, qid=log.qids[log.pair_query], document_ids=log.document_ids.astype(str)
    )
    ranker = tr.LinearRanker(l2=1e-3)
    few = {"attraction": ranker, "tolerance": 1e-4, "max_iterations": 200}
    assert PBM(**few).fit(log, data).identified_.all()
    alone = data.replace(X=np.arange(60.0)[:, None] / 60)
    with pytest.warns(UnidentifiedWarning, match="no feature vector connects positions 2, 3 .* form of the ranker"):
        model = PBM(**few).fit(log, alone)
    np.testing.assert_array_equal(
        resolve_curves(model, log).slope, model.examination_
    )  # as regression-em, which warns too


def test_training_takes_examinations_without_what_few_impressions_do_to_them():
    data = tr.synthetic(n_queries=100, n_documents=(6, 8), n_features=3, seed=0)
    truth = 1 / np.arange(1, 5) ** 0.8
    log = tr.clicks.simulate(data, {"a": data.X[:, 0], "b": data.X[:, 1]}, PBM.from_parameters(truth), 1_000, k=4)
    model = PBM(tolerance=1e-7).fit(log)
    wanted = model.intervals(log, groups=2)["examination"].value
    np.testing.assert_array_equal(model.bias_corrected()["examination"], wanted)
    assert model.bias_corrected() is model.bias_corrected()
    np.testing.assert_array_equal(resolve_curves(model, log).slope, wanted)
    assert np.abs(wanted - model.examination_).max() > 0.01
    np.testing.assert_array_equal(resolve_curves(PBM.from_parameters(truth), log).slope, truth)
    half = np.arange(log.n_queries) % 2 * 1.0
    few = PBM(tolerance=1e-7).fit(log, query_weights=half)
    assert np.abs(few.bias_corrected()["examination"] - wanted).max() > 0.01  # of the queries that count
    assert RankCTR().fit(log).bias_corrected()["rate"] == pytest.approx(RankCTR().fit(log).rate_)
    model.fit(log.select(np.arange(500)))
    assert np.abs(model.bias_corrected()["examination"] - wanted).max() > 0.001  # of the new fit


def test_training_leaves_out_what_the_log_of_a_model_does_not_tell():
    log = one_order()
    with pytest.warns(UnidentifiedWarning):
        model = PBM().fit(log)
    with pytest.raises(DataError, match="No document of the log was shown at two positions"):
        resolve_curves(model, log)
    joined = replace(log, pair=np.where((log.query < 15) & (log.position == 2), log.pair - 1, log.pair))
    with pytest.warns(UnidentifiedWarning):
        model = PBM().fit(joined)
    assert np.isfinite(resolve_curves(model, joined).slope).tolist() == [True, True, False]


@pytest.mark.parametrize("impressions", [1, 3, 12])
def test_examinations_are_told_however_few_impressions_a_document_has(impressions):
    """Of 10 logs: fits of users who are as a fit says once took .574 for .998, with an interval from 1 to 1."""
    truth, rng, found, held = np.array([1, 0.574, 0.4, 0.3]), np.random.default_rng(impressions), [], []
    sessions, depth = 3_000, 4
    n_queries = sessions // (2 * impressions)  # eight documents each, of which a session shows four
    for _ in range(10):
        attraction = rng.beta(0.5, 2, size=(n_queries, 8))
        query = rng.integers(n_queries, size=sessions)
        document = rng.random((sessions, 8)).argsort(axis=1)[:, :depth]
        click = rng.random((sessions, depth)) < attraction[query[:, None], document] * truth
        each = np.tile(np.arange(1, depth + 1), sessions), click.ravel(), np.repeat(np.arange(sessions), depth)
        log = ClickLog.from_columns(np.repeat(query, depth), document.ravel(), *each)
        told = PBM().intervals(log)["examination"]
        np.testing.assert_array_equal(PBM().fit(log).bias_corrected()["examination"], told.value)
        found.append(told.value[1:])
        held += ((told.low <= truth) & (truth <= told.high))[1:].tolist()
    error = np.std(found, axis=0, ddof=1) / np.sqrt(10)
    assert (np.abs(np.mean(found, axis=0) - truth[1:]) < 4 * error).all()
    assert error.max() < 0.03
    assert np.mean(held) >= 0.8


def test_relative_examinations_balance_the_clicks_of_each_document():
    rng = np.random.default_rng(0)
    begins, place = np.arange(0, 121, 4), np.tile(np.arange(4), 30)
    shown = rng.integers(1, 9, 120).astype(float)
    clicked = np.floor(shown * rng.random(120))
    theta, rests = relative_examinations(begins, place, shown, clicked, 4, 0.3)
    n, c = np.vstack([shown.reshape(30, 4), np.ones(4)]), np.vstack([clicked.reshape(30, 4), np.full(4, 0.3)])
    expected = c.sum(axis=1, keepdims=True) * n * theta / (n @ theta)[:, None]
    np.testing.assert_allclose(expected.sum(axis=0), c.sum(axis=0), rtol=1e-9)
    assert rests
    assert theta[0] == 1


@pytest.mark.nightly
def test_corrected_examinations_are_right_where_those_of_a_fit_are_not():
    """Of 60 sparse logs the means: bent by documents that were shown a few times each, or not."""
    truth, found = 1 / np.arange(1, 5) ** 0.8, []
    for seed in range(60):
        data = tr.synthetic(n_queries=200, n_documents=(6, 8), n_features=3, seed=seed)
        log = tr.clicks.simulate(
            data, {"a": data.X[:, 0], "b": data.X[:, 1]}, PBM.from_parameters(truth), 2_000, k=4, seed=seed
        )
        model = PBM(tolerance=1e-7).fit(log)
        found.append([model.examination_, model.bias_corrected()["examination"]])
    plain, better = np.abs(np.mean(found, axis=0) - truth)[:, 1:]
    assert (better < plain / 2).all()


@pytest.mark.parametrize("model", MODELS)
def test_a_log_without_clicks_tells_nothing_and_that_is_said(model):
    log = shown(50, np.random.default_rng(0))
    assert not log.clicks.any()
    with pytest.warns(UnidentifiedWarning, match=f"The log has no clicks, so {model.__name__} equals its prior"):
        model().fit(log)
    with pytest.raises(DataError, match="query_weights are all 0"):
        model().fit(log, query_weights=np.zeros(log.n_queries))
