"""YetiRank against its definition: orders by quadrature and by counting, pairs and weights by hand, draws and bits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad

import toprank as tr
from toprank.data.hashes import id_hashes
from toprank.errors import DataError
from toprank.losses import YetiRank
from toprank.losses.base import Judgments
from toprank.metrics.parsing import parse
from toprank.solvers import AveragedStochastic, Penalty


def mixed(word: int) -> int:
    word &= 2**64 - 1
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


def noisy_orders(scores, query_id, permutations, seed=0, draw=0):
    """The orders of one query, from their description: a word for (seed, draw, id), the order and the place."""
    step = 0x9E3779B97F4A7C15
    word = int(np.random.SeedSequence([seed, draw]).generate_state(1, np.uint64)[0])
    key = int(id_hashes(np.array([query_id]))[0]) ^ word
    for p in range(permutations):
        start = mixed(key + (p + 1) * step)
        u = [((mixed(start + (j + 1) * step) >> 12) + 0.5) / 2**52 for j in range(len(scores))]
        noisy = [s + math.log(one / (1 - one)) for s, one in zip(scores, u, strict=True)]
        yield sorted(range(len(scores)), key=lambda j: -noisy[j])


def swap_weight(metric, labels, order, k):
    """What the metric changes by when the neighbors at the ranks k and k + 1 change places, from the metric itself."""
    ranked = np.asarray(labels, dtype=float)[order]
    changed = ranked.copy()
    changed[[k, k + 1]] = changed[[k + 1, k]]
    qid, falling = np.zeros(len(ranked), dtype=int), -np.arange(len(ranked), dtype=float)
    before, after = (
        tr.evaluate(falling, of, metric, qid=qid, max_grade=max(labels)).mean[str(parse(metric))]
        for of in (ranked, changed)
    )
    return abs(before - after)


def by_hand(loss, labels, scores, query_id):
    """Value and gradient of one query, pair by pair."""
    value, grad = 0.0, np.zeros(len(scores))
    for order in noisy_orders(scores, query_id, loss.permutations, loss.seed):
        for k in range(len(order) - 1):
            a, b = order[k], order[k + 1]
            if labels[a] == labels[b]:
                continue
            better, worse = (a, b) if labels[a] > labels[b] else (b, a)
            weight = loss.decay**k * abs(labels[a] - labels[b])
            if loss.metric is not None:
                weight = swap_weight(loss.metric, labels, order, k)
            difference = scores[better] - scores[worse]
            value += weight * math.log1p(math.exp(-difference)) / loss.permutations
            push = weight / (1 + math.exp(difference)) / loss.permutations
            grad[better] -= push
            grad[worse] += push
    return value, grad


@pytest.mark.parametrize("metric", [None, "ndcg(gain=linear)", "ndcg@3", "dcg@2", "map(rel=1)", "map@3(rel=1)",
                                    "mrr", "mrr@2", "err", "err@3"])  # fmt: skip
def test_value_and_gradient_are_those_of_the_pairs(metric):
    rng = np.random.default_rng(5)
    loss = YetiRank(permutations=4, decay=0.7, metric=metric, gain="exponential" if metric == "ndcg@3" else "linear")
    sizes, top = (6, 1, 9), 3
    queries, labels = tr.Queries.from_sizes(sizes), rng.integers(0, top + 1, 16).astype(float)
    labels[0] = top  # of every query's ERR
    scores, ids = rng.normal(size=16), np.array(["a", "b", "ccc"])
    found = loss.on(labels, queries, query_ids=ids).at(scores)
    if metric is not None and metric.startswith(("ndcg", "dcg")) and loss.gain == "linear" and "gain" not in metric:
        loss = YetiRank(permutations=4, decay=0.7, metric=f"{metric}(gain=linear)")
    value, grad = 0.0, []
    for rows, query_id in zip(queries, ids, strict=True):
        # ERR reads the top grade off all labels, so each query is shown one more document, far below, in the metric
        one, slope = by_hand(loss, labels[rows], scores[rows], query_id) if metric not in ("err", "err@3") else (
            err_by_hand(loss, labels[rows], scores[rows], query_id, top)
        )  # fmt: skip
        value, grad = value + one / 3, [*grad, *(slope / 3)]
    assert found.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found.grad, grad, rtol=1e-11, atol=1e-15)


def err_by_hand(loss, labels, scores, query_id, top):
    cut = 3 if "@" in loss.metric else len(labels)

    def err(ranked):
        stops, going, total = (2.0**ranked - 1) / 2.0**top, 1.0, 0.0
        for rank, stop in enumerate(stops[:cut], start=1):
            total, going = total + going * stop / rank, going * (1 - stop)
        return total

    value, grad = 0.0, np.zeros(len(scores))
    for order in noisy_orders(scores, query_id, loss.permutations, loss.seed):
        for k in range(len(order) - 1):
            ranked = labels[order]
            changed = ranked.copy()
            changed[[k, k + 1]] = ranked[[k + 1, k]]
            weight, a, b = abs(err(ranked) - err(changed)), order[k], order[k + 1]
            if weight == 0:
                continue
            better, worse = (a, b) if labels[a] > labels[b] else (b, a)
            difference = scores[better] - scores[worse]
            value += weight * math.log1p(math.exp(-difference)) / loss.permutations
            push = weight / (1 + math.exp(difference)) / loss.permutations
            grad[better] -= push
            grad[worse] += push
    return value, grad


def chances_of_orders(scores):
    """P(order) of three documents with logistic noise: ∫ f(x_b) P(x_a > x_b) P(x_c < x_b) over the middle score."""

    def logistic(x):
        return 1 / (1 + math.exp(-x)) if x > -700 else 0.0

    chances = {}
    for a, b, c in itertools.permutations(range(3)):

        def integrand(x, a=a, b=b, c=c):
            middle = logistic(x - scores[b])
            density = middle * (1 - middle)
            return density * (1 - logistic(x - scores[a])) * logistic(x - scores[c])

        chances[a, b, c] = quad(integrand, -60, 60, epsabs=1e-12, limit=500)[0]
    return chances


def test_orders_come_as_often_as_logistic_noise_says():
    """10⁵ draws of three documents, told apart by the gradient of the pairs that are neighbors in each."""
    scores, draws = np.array([0.7, -0.4, 0.1]), 100_000
    chances = chances_of_orders(scores)
    assert sum(chances.values()) == pytest.approx(1, abs=1e-9)
    queries, labels = tr.Queries.from_sizes([3] * draws), np.tile([0.0, 1.0, 3.0], draws)
    # With one order and a decay of 1/2, the weights 1, 3, 2 of the pairs 01, 02, 12 at rank 0 or 1 tell the order.
    bound = YetiRank(permutations=1, decay=0.5).on(labels, queries)
    grad = bound.at(np.tile(scores, draws)).grad.reshape(draws, 3) * draws
    seen = 0
    for (a, b, c), chance in chances.items():
        want = np.zeros(3)
        for (i, j), weight in (((a, b), 1.0), ((b, c), 0.5)):
            better, worse = (i, j) if i > j else (j, i)
            push = weight * abs([0, 1, 3][i] - [0, 1, 3][j]) / (1 + math.exp(scores[better] - scores[worse]))
            want[better] -= push
            want[worse] += push
        count = int((np.abs(grad - want) < 1e-9).all(axis=1).sum())
        seen += count
        assert abs(count - draws * chance) < 4.5 * math.sqrt(draws * chance * (1 - chance))
    assert seen == draws


def some_data():
    data = tr.synthetic(n_queries=40, n_features=4, seed=3)
    return data, np.random.default_rng(0).normal(size=data.n_documents)


def test_a_draw_hangs_on_seed_draw_and_query_id_alone():
    data, scores = some_data()
    loss = YetiRank(permutations=3)
    whole = loss.on(data.labels, data.queries, query_ids=data.qids)
    one, again = whole.at(scores, threads=1, curvature=True), whole.at(scores, threads=2, curvature=True)
    assert one.value == again.value
    assert one.grad.tobytes() == again.grad.tobytes()
    assert one.curvature.diagonal().tobytes() == again.curvature.diagonal().tobytes()
    kept = np.arange(39, -1, -3)  # some of the queries, in another order
    part = data.select(kept)
    rows = np.concatenate([np.arange(*data.queries.offsets[q : q + 2]) for q in kept])
    apart = loss.bound_to(Judgments.from_data(part, total_weight=40.0)).at(
        scores[rows]
    )  # as a worker of a cluster has it
    np.testing.assert_array_equal(apart.grad, one.grad[rows])
    for other in (whole.at(scores, draw=1), YetiRank(permutations=3, seed=1).on(data.labels, data.queries).at(scores)):
        assert not np.array_equal(other.grad, one.grad)
    np.testing.assert_array_equal(whole.at(scores, draw=0).grad, one.grad)
    np.testing.assert_array_equal(whole.resampled(4).at(scores).grad, whole.at(scores, draw=4).grad)


def test_the_order_of_rows_makes_no_difference_in_distribution():
    labels, scores = np.array([0.0, 2.0, 1.0, 0.0]), np.array([0.5, 0.1, -0.2, 0.3])
    order, draws = np.array([2, 0, 3, 1]), 20_000
    queries = tr.Queries.from_sizes([4] * draws)
    bound = [YetiRank(permutations=1).on(np.tile(labels[o], draws), queries) for o in (np.arange(4), order)]
    first, second = (
        b.at(np.tile(scores[o], draws)).grad.reshape(draws, 4)[:, np.argsort(o)] * draws
        for b, o in zip(bound, (np.arange(4), order), strict=True)
    )
    spread = np.sqrt(first.var(axis=0) / draws + second.var(axis=0) / draws)
    assert (np.abs(first.mean(axis=0) - second.mean(axis=0)) < 4.5 * spread).all()
    assert not np.array_equal(first, second)  # while in any one draw it does


def test_pairs_stay_as_they_are_along_a_line_search():
    """At a draw that goes by given scores the loss is one smooth convex function: its gradient is its derivative."""
    data, scores = some_data()
    bound = YetiRank(permutations=2).on(data.labels, data.queries).resampled(7, scores)
    direction, step = np.random.default_rng(1).normal(size=len(scores)), 1e-5
    for t in (0.0, 0.5, 3.0):
        here = bound.at(scores + t * direction, curvature=True)
        ends = [bound.at(scores + (t + side) * direction) for side in (-step, step)]
        assert (ends[1].value - ends[0].value) / (2 * step) == pytest.approx(here.grad @ direction, rel=1e-6)
        bend = (ends[1].grad - ends[0].grad) @ direction / (2 * step)
        assert bend == pytest.approx(direction @ (here.curvature @ direction), rel=1e-5)


@pytest.mark.parametrize("make", [
    lambda: tr.TreeRanker("YetiRank", n_trees=5, num_leaves=5, threads=1),
    lambda: tr.LinearRanker("YetiRank", max_iterations=3),
    lambda: tr.ExpectedGainRanker("YetiRank", max_iterations=2, gain=[0, 1, 2, 3, 4]),
])  # fmt: skip
def test_rankers_learn_the_same_bits_on_any_number_of_threads(make):
    data, _ = some_data()
    one, two = (make().set_params(threads=threads).fit(data).predict(data) for threads in (1, 2))
    assert one.tobytes() == two.tobytes()
    assert tr.evaluate(one, data, "ndcg@10").mean["ndcg@10"] > 0.6


def test_every_round_and_iteration_draws_anew(monkeypatch):
    from toprank.losses import yetirank

    seen = []
    plain = yetirank._BoundYetiRank.resampled

    def noting(self, draw, scores=None):
        seen.append((draw, scores is not None))
        return plain(self, draw, scores)

    monkeypatch.setattr(yetirank._BoundYetiRank, "resampled", noting)
    data, _ = some_data()
    tr.TreeRanker("YetiRank", n_trees=4, num_leaves=5).fit(data)
    assert seen == [(draw, False) for draw in range(4)]
    seen.clear()
    tr.LinearRanker("YetiRank", max_iterations=3).fit(data)
    assert seen == [(draw, True) for draw in range(3)]


def test_a_linear_ranker_comes_near_the_weights_that_all_draws_agree_on():
    """The mean of the later weights has hardly any gradient under many orders; single steps wander farther away."""
    data, _ = some_data()
    queries = (data.labels, data.queries)
    many = YetiRank(permutations=2_000).on(*queries)

    def pull(ranker):
        return float(np.linalg.norm(data.X.T @ many.at(ranker.predict(data)).grad))

    loss = YetiRank(permutations=1)
    mean = tr.LinearRanker(loss, l2=0.0, max_iterations=60).fit(data)
    assert isinstance(mean.solution_.message, str)
    assert mean.solution_.message == "60 draws with one step each; the weights are the mean of the last 30."
    start = tr.LinearRanker("Logistic", l2=0.0).fit(data)
    assert pull(mean) < 0.35 * pull(start)


@pytest.mark.parametrize(("options", "words"), [
    ({"permutations": 0}, "permutations must be"),
    ({"permutations": 2.5}, "permutations must be"),
    ({"permutations": 10**9}, "at least 1 and below 10001, not 1000000000"),
    ({"decay": 0.0}, "decay must be"),
    ({"decay": 1.5}, "decay must be a number above 0 and at most 1, not 1.5"),
    ({"decay": float("nan")}, "decay must be"),
    ({"metric": "rbp"}, "it can do so for NDCG"),
    ({"seed": -1}, "seed must be"),
])  # fmt: skip
def test_what_means_nothing_is_refused(options, words):
    with pytest.raises(DataError, match=words):
        YetiRank(**options)


class Still:
    n_weights = 1

    def value_and_grad(self, weights):
        return float(weights @ weights), 2 * weights


def test_what_cannot_be_drawn_for_is_refused():
    with pytest.raises(DataError, match="3 query_ids"):
        YetiRank().on([1, 0], tr.Queries([0, 2]), query_ids=[1, 2, 3])
    with pytest.raises(DataError, match="labels must hold numbers"):
        YetiRank().on(["good", "bad"], tr.Queries([0, 2]))
    with pytest.raises(DataError, match="label of document 1 is nan; training needs judged documents"):
        YetiRank().on([1.0, np.nan], tr.Queries([0, 2]))
    with pytest.raises(DataError, match="scores must hold numbers"):
        YetiRank().on([1, 0], tr.Queries([0, 2])).at(["high", "low"])
    with pytest.raises(DataError, match="draw must be"):
        YetiRank().on([1, 0], tr.Queries([0, 2])).at([0.0, 0.0], draw=-1)
    with pytest.raises(DataError, match="needs a stochastic objective; use Newton"):
        AveragedStochastic().solve(Still(), [0.0], Penalty.uniform(1))
    level = YetiRank().on([2.0, 2.0, 2.0], tr.Queries([0, 3])).at([0.3, 0.1, -1.0], curvature=True)
    assert (level.value, level.grad.any(), level.curvature.diagonal().any()) == (0.0, False, False)
    for labels, qid in (([1.0], [0]), ([1.0, 1.0, 1.0], [0, 0, 1])):  # one document; equal labels
        data = tr.RankingData(np.arange(len(labels), dtype=float)[:, None], labels, qid=qid)
        with pytest.warns(UserWarning, match="all documents have the same score"):
            tr.LinearRanker("YetiRank").fit(data)
    lonely = YetiRank().on([1.0], tr.Queries([0, 1])).at([0.3], curvature=True)
    assert (lonely.value, lonely.grad.tolist(), lonely.curvature.diagonal().tolist()) == (0.0, [0.0], [0.0])
