"""The default order: a weighted sum of its members, weighed on unseen queries, that falls back where learning hurts."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

import toprank as tr
from toprank.errors import DataError
from toprank.model_selection.weights import simplex
from toprank.rankers.linear.ranker import LinearRanker
from toprank.search import blending
from toprank.search.blending import fit_blend

GOOD = "good zscore in pool"


def drawn(n_queries, truth, n_noise=30, seed=0, size=20):
    """Queries whose labels are drawn by a feature that is there (`truth` says how strongly), among noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries * size, 1 + n_noise))
    chance = truth * X[:, 0] + rng.gumbel(size=len(X))
    labels = np.zeros(len(X))
    for query in range(n_queries):
        here = slice(query * size, (query + 1) * size)
        labels[here][np.argsort(-chance[here])[:3]] = 1
    names = [GOOD, *(f"noise {i}" for i in range(n_noise))]
    return tr.RankingData(X, labels, qid=np.repeat(np.arange(n_queries), size), feature_names=names)


def ndcg(scores, data):
    return tr.evaluate(scores, data, "ndcg@10").mean["ndcg@10"]


@pytest.fixture
def few_rounds(monkeypatch):
    """Trees as good as none, where a test is of what becomes of the members, not of what they learn."""
    monkeypatch.setattr(blending, "_ROUNDS", (5, 10))


@pytest.fixture(scope="module")
def fitted():
    """Members, and what they learned from."""
    data = drawn(40, 2.0, seed=5)
    folds = blending._HeldOutQueries.divide(data, "ndcg@10", 0)
    return data, [*blending._features(folds, [GOOD]), blending._linear(folds, 1), blending._trees(folds, 0, 1)]


def test_few_queries_fall_back_on_the_order_that_was_there():
    new = drawn(300, 3.0, seed=1)
    alone = ndcg(new.X[:, 0], new)
    worst = 0.0
    for seed in range(3):
        few = drawn(14, 3.0, seed=10 + seed)
        found = fit_blend(few, "ndcg@10", [GOOD], 0, 1)
        learned = ndcg(tr.LinearRanker("Logistic", l2=0.1).fit(few).predict(new), new)
        assert alone - learned > 0.03  # learning hurts here
        worst = max(worst, alone - ndcg(found.ranker.predict(new), new))
        assert found.options["good"] > 0.3
    assert worst < 0.04


def test_where_learning_helps_it_learns():
    """The order that was there says nothing, and another feature all."""
    data, new = drawn(80, 3.0, seed=2), drawn(100, 3.0, seed=3)
    names = ["noise 0", GOOD, *data.feature_names[2:]]
    data, new = (one.replace(feature_names=names) for one in (data, new))
    found = fit_blend(data, "ndcg@10", [GOOD], 0, 1)
    assert found.options["good"] == 0
    assert ndcg(found.ranker.predict(new), new) > ndcg(new.X[:, 0], new) - 0.05


def test_what_it_is_worth_is_said_by_queries_that_the_members_have_not_seen():
    """Labels that mean nothing: who remembers them would look perfect."""
    data = drawn(30, 0.0, n_noise=60, seed=4)
    found = fit_blend(data, "ndcg@10", [GOOD], 0, 1)
    chance = np.mean([ndcg(np.random.default_rng(i).normal(size=data.n_documents), data) for i in range(30)])
    assert found.value < chance + 0.12
    for row in found.to_frame().to_dict("records"):
        assert abs(row["value"] - chance) < 0.12, row
    remembered = tr.TreeRanker("YetiRank", n_trees=200, num_leaves=7, threads=1).fit(data)
    assert ndcg(remembered.predict(data), data) > chance + 0.4  # as a leak would


def test_every_query_teaches_in_the_end_and_few_are_all_held_out(few_rounds):
    assert "14 queries, out of fold" in str(fit_blend(drawn(14, 1.0), "ndcg@10", [GOOD], 0, 1))
    assert "80 queries" in str(fit_blend(drawn(200, 1.0, size=8), "ndcg@10", [GOOD], 0, 1))  # two fifths are enough


@pytest.mark.parametrize(
    "factors",
    [
        {"good": 0.7, "RankNet-linear": 0.4, "YetiRank": 1.3},
        {"good": 0.7, "RankNet-linear": 0.0, "YetiRank": 0.0},
        {"good": 0.0, "RankNet-linear": 0.0, "YetiRank": 2.0},
        {"good": 0.2, "RankNet-linear": 0.9, "YetiRank": 0.0},
    ],
)
def test_the_ranker_is_the_weighted_sum_of_the_members(fitted, factors, tmp_path):
    (data, members), new = fitted, drawn(10, 2.0, seed=6)
    ranker = blending._merge_members(data, members[1], members, factors)
    ranker.save(tmp_path / "blend.toprank")
    scores = tr.load(tmp_path / "blend.toprank").predict(new)
    by_hand = sum(
        factors[one.name] * (new.X[:, 0] if one.ranker is None else one.ranker.predict(new)) for one in members
    )
    centered = [values - new.queries.broadcast(new.queries.mean(values)) for values in (scores, by_hand)]
    scale = float(centered[0] @ centered[1] / (centered[1] @ centered[1]))
    assert scale > 0
    assert centered[0] == pytest.approx(scale * centered[1], abs=1e-6 * np.abs(centered[0]).max())


def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(few_rounds):
    data = drawn(20, 2.0, seed=7)
    one, two, other = (fit_blend(data, "ndcg@10", [GOOD], seed, threads) for seed, threads in ((3, 1), (3, 2), (4, 1)))
    assert one.options == two.options
    assert np.array_equal(one.ranker.predict(data), two.ranker.predict(data))
    assert one.value != other.value


@pytest.mark.parametrize("members", range(1, 12))
def test_weights_are_tried_on_a_grid_that_stays_small(members):
    grid = simplex(members, blending._n_steps(members))
    assert grid.sum(axis=1) == pytest.approx(1.0)
    assert np.unique(grid, axis=0).shape == grid.shape
    assert all((np.eye(members)[place] == grid).all(axis=1).any() for place in range(members))
    assert len(grid) <= max(60, comb(members, 1))


def test_a_missing_value_stands_in_the_middle(few_rounds):
    data = drawn(16, 2.0, seed=8)
    X = np.array(data.X)
    X[::5, 0] = np.nan
    gaps = tr.RankingData(X, data.labels, qid=data.qid, feature_names=data.feature_names)
    found = fit_blend(gaps, "ndcg@10", [GOOD], 0, 1)
    assert np.isfinite(found.ranker.predict(data)).all()


def test_refusals_and_interrupts(few_rounds, monkeypatch):
    data = drawn(8, 1.0)
    with pytest.raises(DataError, match="Judge more"):
        fit_blend(data.replace(labels=np.ones(data.n_documents)), "ndcg@10", [GOOD], 0, 1)
    labels, qid = np.tile([0, 0, 1, 0], 10), np.repeat(range(10), 4)
    alike = tr.RankingData(np.ones((40, 1)), labels, qid=qid, feature_names=[GOOD])
    with pytest.raises(DataError, match="identical features"):
        fit_blend(alike, "ndcg@10", [GOOD], 0, 1)
    monkeypatch.setattr(LinearRanker, "was_interrupted", property(lambda self: True))
    with pytest.raises(KeyboardInterrupt):
        fit_blend(data, "ndcg@10", [GOOD], 0, 1)
