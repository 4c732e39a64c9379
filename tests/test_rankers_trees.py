"""Trees: LightGBM is given what the loss says, keeps what validation prefers, and learns what there is to learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import toprank as tr
from forecasts import check_calibration, check_forecasts
from toprank import losses
from toprank.errors import DataError, FormatError, UnknownNameError
from toprank.losses.base import Diagonal
from toprank.rankers.base import ConstantScoresWarning, ConvergenceWarning
from toprank.rankers.trees.objective import (
    FLOOR,
    ExpectedGainObjective,
    LikelihoodObjective,
    QuerySample,
    ScoreObjective,
    StepScale,
)

ARGUMENTS = {"ApproxMetric": {"metric": "map"}}
GAINS = np.array([0.0, 1.0, 3.0])


def trees(loss="LambdaRank", **options):
    """A small, fast ranker. One thread: on small data two would wait for each other."""
    return tr.TreeRanker(loss, **{"n_trees": 20, "num_leaves": 7, "min_data_in_leaf": 5, "threads": 1} | options)


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(
        n_queries=80, n_documents=(3, 15), n_features=4, n_grades=3, truth="nonlinear", noise=0.3, seed=3
    )


@pytest.fixture(scope="module")
def halves():
    whole = tr.synthetic(n_queries=300, n_documents=(5, 20), n_features=5, n_grades=4, truth="nonlinear", seed=1)
    return tr.split(whole, (0.6, 0.4))


def weighted(data, seed=0):
    rng = np.random.default_rng(seed)
    return data.replace(
        document_weights=rng.uniform(0.5, 2, data.n_documents), query_weights=rng.uniform(0.5, 2, data.n_queries)
    )


def bound_to(loss, data):
    return loss.on(data.labels, data.queries, document_weights=data.document_weights, query_weights=data.query_weights)


# ---- what LightGBM is given ----


@pytest.mark.parametrize("name", ["LambdaRank", "ListNet", "Squared", "Logistic", "ListMLE"])
def test_the_objective_is_the_sum_over_queries_of_the_loss(data, name):
    heavy = weighted(data)
    bound = bound_to(losses.make(name), heavy)
    raw = np.random.default_rng(0).normal(size=data.n_documents)
    grad, curvature = ScoreObjective(bound, np.array([0.25]))(raw)
    judged = bound.at(raw + 0.25, curvature=True)
    diagonal = judged.curvature.diagonal() * data.n_queries
    np.testing.assert_allclose(grad, judged.grad * data.n_queries, rtol=1e-6, atol=1e-9)
    expected = np.where(judged.grad == 0, diagonal, np.maximum(diagonal, FLOOR * diagonal.mean()))
    np.testing.assert_allclose(curvature, expected, rtol=1e-6, atol=1e-12)
    assert grad.dtype == curvature.dtype == np.float32


@pytest.mark.parametrize("loss", ["LambdaRank", "Squared"])
def test_leaves_hold_newton_steps_of_the_loss(data, loss):
    """The whole stack: leaf by leaf, every tree's values are −rate·Σ gradient / (Σ curvature + l2)."""
    heavy = weighted(data)
    ranker = trees(losses.make(loss), n_trees=3, l2=0.5, learning_rate=0.3).fit(heavy)
    bound = bound_to(ranker.loss, heavy)
    leaves = ranker.booster_.predict(data.X, pred_leaf=True)
    scores = np.full(data.n_documents, ranker.intercept_[0])
    for tree, leaf in enumerate(leaves.T):
        judged = bound.at(scores, curvature=True)
        grad, curvature = judged.grad * data.n_queries, judged.curvature.diagonal() * data.n_queries
        step = -0.3 * np.bincount(leaf, grad) / (np.bincount(leaf, curvature) + 0.5)
        values = [ranker.booster_.get_leaf_output(tree, number) for number in range(leaf.max() + 1)]
        np.testing.assert_allclose(values, step, rtol=1e-4, atol=1e-6)
        scores += step[leaf]
    np.testing.assert_allclose(ranker.predict(data), scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["ListNet", "Squared", "Multinomial"])
def test_gradients_of_grade_outputs_are_derivatives(data, name):
    loss = losses.Multinomial(n_grades=3) if name == "Multinomial" else losses.make(name)
    bound = bound_to(loss, weighted(data))
    kind = LikelihoodObjective if name == "Multinomial" else ExpectedGainObjective
    intercept = np.array([0.3, -0.1, -0.2])
    objective = kind(bound, intercept, GAINS)
    raw = np.asfortranarray(np.random.default_rng(1).normal(size=(data.n_documents, 3)))
    grad = objective(raw)[0].astype(np.float64)

    def value(outputs):
        inner = outputs + intercept if name == "Multinomial" else objective.scores(outputs)
        return data.n_queries * bound.at(inner).value

    rng, eps = np.random.default_rng(2), 1e-5
    for _ in range(5):
        v = rng.normal(size=raw.shape)
        slope = (value(raw + eps * v) - value(raw - eps * v)) / (2 * eps)
        assert np.sum(grad * v) == pytest.approx(slope, rel=1e-4)


def test_curvature_of_grade_outputs_bounds_the_joint_step(data):
    bound = losses.Squared().on(data.labels, data.queries)
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(data.n_documents, 3))
    objective = ExpectedGainObjective(bound, np.zeros(3), GAINS)
    grad, curvature = (part.astype(np.float64) for part in objective(raw))
    chances = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
    slopes = chances * (GAINS - (chances @ GAINS)[:, None])
    v = rng.normal(size=raw.shape)
    gauss_newton = 2.0 * (slopes * v).sum(axis=1) ** 2  # the curvature of a squared loss, summed over queries, is 2
    assert ((curvature * v**2).sum(axis=1) >= gauss_newton - 1e-6).all()
    assert (np.abs(grad) <= curvature * (1 + 1e-6)).all()  # no step above 1


def test_a_query_counts_as_often_as_its_weight_says(data):
    parts = [data.select([q]) for q in range(20)]
    twice = tr.concatenate([*parts, *(part.replace(qids=[100 + q]) for q, part in enumerate(parts[:10]))])
    once = tr.concatenate(parts).replace(query_weights=np.repeat([2.0, 1.0], 10))
    options = {"min_data_in_leaf": 1, "lightgbm_params": {"min_sum_hessian_in_leaf": 0.0, "min_data_in_bin": 1}}
    here, there = (trees("ListNet", n_trees=3, num_leaves=4, **options).fit(part) for part in (once, twice))
    np.testing.assert_allclose(here.predict(data), there.predict(data), rtol=1e-4, atol=1e-6)


# ---- what is learned ----


@pytest.mark.parametrize("outputs", ["score", "grades"])
@pytest.mark.parametrize("name", [name for name in losses.names() if name != "Ordinal"])
def test_every_loss_trains_trees(data, name, outputs):
    loss = losses.make(name, **ARGUMENTS.get(name, {}))
    if name == "Multinomial" and outputs == "score":
        with pytest.raises(DataError, match="outputs='grades'"):
            trees(loss).fit(data)
        return
    taught = data.replace(teacher=data.labels + 0.1 * data.X[:, 0])  # which the others do not look at
    ranker = trees(loss, outputs=outputs, learning_rate=0.2).fit(taught)
    random = tr.evaluate(np.zeros(data.n_documents), data).mean["ndcg@10"]
    assert tr.evaluate(ranker.predict(data), data).mean["ndcg@10"] > random + 0.15
    assert ranker.history_["train"][-1] > ranker.history_["train"][0]


def test_our_lambdarank_does_as_well_as_lightgbms_own():
    train, test = tr.split(tr.synthetic(n_queries=1500, n_features=5, truth="nonlinear", seed=1), (0.6, 0.4))
    shared = {"n_trees": 60, "num_leaves": 15}
    theirs = trees(
        "lightgbm:lambdarank", lightgbm_params={"lambdarank_norm": False, "lambdarank_truncation_level": 30}, **shared
    ).fit(train)
    ours = trees(losses.LambdaRank(truncation=30), **shared).fit(train)
    means = [tr.evaluate(ranker.predict(test), test).mean["ndcg@10"] for ranker in (ours, theirs)]
    assert abs(means[0] - means[1]) < 0.005
    assert np.corrcoef(ours.predict(test), theirs.predict(test))[0, 1] > 0.97


def test_lambdarank_by_name_is_that_of_lambdamart_and_a_value_is_itself(halves, tmp_path):
    train, test = halves
    named, system = trees(n_trees=5), tr.systems.make("LambdaMART")
    scores = named.fit(train).predict(test)
    as_system = named.set_params(loss=system.loss).fit(train).predict(test)
    np.testing.assert_array_equal(scores, as_system)
    all_pairs = trees(losses.LambdaRank(), n_trees=5).fit(train).predict(test)
    assert np.abs(scores - all_pairs).max() > 0
    assert clone(trees()).get_params()["loss"] == "LambdaRank"
    trees(n_trees=5).fit(train).save(tmp_path / "named.toprank")
    again = tr.load(tmp_path / "named.toprank")
    assert again.loss == "LambdaRank"
    np.testing.assert_array_equal(again.fit(train).predict(test), scores)


CRAWLED = ("Hinge", "Cosine", "ApproxNDCG", "SoftRank", "NeuralNDCG")


@pytest.fixture(scope="module")
def plenty():
    return tr.split(tr.synthetic(n_queries=300, n_documents=12, seed=1), (0.8, 0.2))


@pytest.mark.parametrize("loss", ["LambdaRank", *CRAWLED])
def test_no_loss_crawls(plenty, loss):
    """Under its own steps each gets most of what 40 rounds get under the loss that LightGBM knows best."""
    gained = []
    for one in (loss, "lightgbm:lambdarank"):
        history = trees(one, n_trees=40, num_leaves=15, learning_rate=0.1).fit(plenty[0]).history_["train"]
        gained.append(history[-1] - history[0])
    assert gained[0] > 0.6 * gained[1]


class _Parabola(losses.BoundLoss):
    """½ Σ (s − target)², with a curvature that is claimed to be so many times larger."""

    def __init__(self, target, queries, claimed):
        super().__init__(losses.Judgments(target, queries))
        self.target, self.claimed = target, claimed

    def evaluate_block(self, block, scores, grad, requested):
        off = scores - self.target[block.rows]
        grad[:] = off * block.broadcast(block.scale)
        return block.sum(0.5 * off**2), Diagonal(self.claimed * block.broadcast(block.scale))


@pytest.mark.parametrize("claimed", [1.0, 3.0, 24.0])
def test_a_stride_finds_how_loose_a_bound_is(claimed):
    rng, queries = np.random.default_rng(3), tr.Queries([0, 4, 9])
    bound = _Parabola(rng.normal(size=9), queries, claimed)
    start = rng.normal(size=9)
    stride = StepScale(bound, start, factor=2.0)
    step = 0.01 * (bound.target - start)  # whichever way a tree goes, and however short its step
    assert stride.share(stride.judge(start + step)) == 2.0 ** -np.floor(np.log2(claimed))


def test_a_stride_leaves_alone_what_it_cannot_judge():
    queries = tr.Queries([0, 3])
    bound = _Parabola(np.array([1.0, 2.0, 3.0]), queries, 8.0)
    fresh = StepScale(bound, None, factor=1.0)
    assert fresh.share(fresh.judge(np.zeros(3))) == 1.0  # no tree yet
    assert fresh.share(fresh.judge(np.zeros(3))) == 1.0  # a tree without a split
    assert fresh.share(fresh.judge(-bound.target)) == 1.0  # one that goes uphill, as of another loss


def test_rank_xendcg_is_there_by_name(halves):
    train, test = halves
    ranker = trees("lightgbm:rank_xendcg").fit(train, valid=test)
    assert ranker.history_["valid"][-1] > tr.evaluate(np.zeros(test.n_documents), test).mean["ndcg@10"] + 0.1


@pytest.mark.parametrize("loss", ["Squared", "Multinomial"])
def test_expected_gain_trees_approach_the_optimal_dcg(loss):
    options = {"n_documents": 20, "n_features": 3, "n_grades": 4, "truth": "nonlinear", "noise": 0.3}
    whole = tr.synthetic(n_queries=1700, seed=7, **options)  # one truth: its weights are drawn by the seed
    test, pool = whole.select(np.arange(300)), whole.select(np.arange(300, 1700))
    best = tr.evaluate(test.expected_gain(), test, "dcg@10").mean["dcg@10"]
    reached = []
    for n_queries in (25, 150, 1400):
        train = pool.select(np.arange(n_queries))
        ranker = trees(loss, outputs="grades", n_trees=80, num_leaves=15, min_data_in_leaf=20).fit(train)
        reached.append(tr.evaluate(ranker.predict(test), test, "dcg@10").mean["dcg@10"] / best)
    assert reached[0] < reached[1] < reached[2]
    assert reached[2] > 0.97


def test_mcranks_probabilities(halves):
    train, test = halves
    ranker = trees("Multinomial", outputs="grades").fit(train)
    chances = ranker.predict_proba(test)
    assert chances.shape == (test.n_documents, 4)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_allclose(ranker.predict(test), chances @ (2.0 ** np.arange(4) - 1))
    shares = np.bincount(train.labels.astype(int)) / train.n_documents
    own = np.arange(test.n_documents), test.labels.astype(int)
    assert np.log(chances[own]).mean() > np.log(shares[test.labels.astype(int)]).mean() + 0.1
    table = trees("Multinomial", outputs="grades", gain=[0, 1, 2, 3]).fit(train)
    np.testing.assert_allclose(table.predict(test), chances @ np.arange(4.0))
    with pytest.raises(AttributeError, match="predict_proba"):
        _ = trees().fit(train).predict_proba
    assert not hasattr(trees().fit(train), "expected_dcg")
    assert not hasattr(trees(outputs="grades"), "classes_")  # not fitted


def test_what_to_expect_of_grades(halves):
    train, test = halves
    check_forecasts(trees("Multinomial", outputs="grades", n_trees=20).fit(train), test)


def test_grades_under_a_ranking_loss_are_calibrated(halves, tmp_path):
    train, rest = halves
    held_out, test = tr.split(rest, (0.5, 0.5))
    ranker = trees("ListNet", outputs="grades", n_trees=10).fit(train)
    check_calibration(ranker, held_out, test, tmp_path / "m.toprank")
    assert not hasattr(trees().fit(train), "calibrate")


def test_missing_values_are_a_way_of_their_own(data):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(data.n_documents, 2))
    X[data.labels > 0, 0] = np.nan
    ranker = trees("Squared", n_trees=5).fit(data.replace(X=X, feature_names=None))
    scores = ranker.predict(X)
    assert scores[data.labels > 0].min() > scores[data.labels == 0].max()
    assert ranker.feature_importances_[0] > 0.9


def test_a_category_is_no_number(data):
    rng = np.random.default_rng(0)
    category = rng.integers(0, 8, data.n_documents)
    good = np.isin(category, [1, 4, 6])
    X = np.column_stack([rng.normal(size=data.n_documents), category])
    named = data.replace(X=X, labels=good * 1.0, feature_names=["noise", "kind"])
    options = {"n_trees": 1, "num_leaves": 2, "lightgbm_params": {"max_cat_to_onehot": 1, "min_data_per_group": 1}}
    ranker = trees("Squared", categorical=["kind"], **options).fit(named)
    tree = ranker.booster_.dump_model()["tree_info"][0]["tree_structure"]
    assert tree["decision_type"] == "=="
    scores = ranker.predict(named)
    assert scores[good].min() > scores[~good].max()  # one split separates three of eight categories
    np.testing.assert_array_equal(trees("Squared", categorical=[1], **options).fit(named).predict(named), scores)
    with pytest.raises(DataError, match="both categorical and monotone"):
        trees("Squared", categorical=["kind"], monotone={"kind": 1}).fit(named)
    numeric = trees("Squared", **options).fit(named).predict(named)
    assert numeric[good].min() <= numeric[~good].max()


def test_monotone_means_monotone():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(600, 2))
    labels = np.digitize(x[:, 0] + np.sin(4 * x[:, 0]) + 0.5 * x[:, 1], [-0.5, 1.0]).astype(float)
    data = tr.RankingData(x, labels, qid=np.repeat(np.arange(60), 10), feature_names=["a", "b"])
    grid = np.column_stack([np.linspace(-2, 2, 200), np.zeros(200)])

    def steps(ranker):
        return np.diff(ranker.predict(tr.RankingData(grid, feature_names=["a", "b"])))

    free, rising = trees().fit(data), trees(monotone={"a": 1}).fit(data)
    assert (steps(free) < 0).any()
    assert (steps(rising) >= 0).all()
    assert (steps(rising) > 0).any()
    assert (steps(trees(monotone=[-1, 0]).fit(data)) <= 0).all()


def test_sparse_features_give_the_same_trees(data):
    X = np.where(np.abs(data.X) < 0.5, 0.0, data.X)
    dense, thin = data.replace(X=X), data.replace(X=sparse.csr_matrix(X))
    ranker = trees().fit(thin)
    np.testing.assert_allclose(ranker.predict(thin), trees().fit(dense).predict(dense), atol=1e-6)
    plain = trees().fit(sparse.csr_array(X), data.labels, qid=data.qid)
    np.testing.assert_array_equal(plain.predict(sparse.csr_array(X)), plain.predict(X))


def test_importances_are_shares_and_find_what_matters():
    data = tr.synthetic(n_queries=100, n_features=6, n_irrelevant=4, noise=0.2, seed=0)
    importances = trees().fit(data).feature_importances_
    assert importances.sum() == pytest.approx(1.0)
    assert importances[:2].sum() > 0.8


# ---- rounds ----


@pytest.mark.parametrize("boosting", ["gbdt", "dart"])
def test_early_stopping_keeps_the_best_round(halves, boosting):
    train, valid = halves
    lightgbm_params = {"drop_rate": 0.3} if boosting == "dart" else None
    ranker = trees(
        n_trees=200,
        num_leaves=15,
        learning_rate=0.3,
        early_stopping=10,
        boosting=boosting,
        lightgbm_params=lightgbm_params,
    ).fit(train, valid=valid)
    judged = ranker.history_["valid"]
    assert len(judged) < 200
    assert ranker.best_iteration_ == np.argmax(judged) + 1 == len(judged) - 10
    assert ranker.history_["round"] == list(range(1, len(judged) + 1))
    assert "10 rounds" in ranker.stopped_
    value = tr.evaluate(ranker.predict(valid), valid).mean["ndcg@10"]
    assert value == pytest.approx(max(judged), abs=1e-12)
    assert ranker.training_["valid"] == {"ndcg@10": max(judged), "convention": "standard"}
    assert ranker.booster_.num_trees() == ranker.best_iteration_
    assert ("train" in ranker.history_) == (boosting == "gbdt")


def test_metric_convention_and_direction_are_ours(halves):
    train, valid = halves
    ranker = trees(metric="owa", convention="letor4", early_stopping=3).fit(train, valid=valid)
    judged = ranker.history_["valid"]
    assert ranker.best_iteration_ == np.argmin(judged) + 1
    expected = tr.evaluate(ranker.predict(valid), valid, "owa", convention="letor4").mean["owa"]
    assert min(judged) == pytest.approx(expected)


def test_without_early_stopping_every_round_is_kept(halves):
    train, valid = halves
    ranker = trees(early_stopping=None, n_trees=7).fit(train, valid=valid)
    assert ranker.best_iteration_ == 7
    np.testing.assert_array_equal(ranker.predict(valid), trees(n_trees=7).fit(train).predict(valid))


@pytest.mark.parametrize(
    ("loss", "outputs"),
    [
        ("LambdaRank", "score"),
        ("Squared", "score"),
        ("ApproxNDCG", "score"),  # its steps depend on the tree before
        ("ListNet", "grades"),
        ("lightgbm:lambdarank", "score"),
    ],
)
def test_continued_training_is_training_in_one_go(halves, loss, outputs):
    train, valid = halves
    once = trees(loss, n_trees=12, outputs=outputs).fit(train)
    first = trees(loss, n_trees=5, outputs=outputs).fit(train)
    then = trees(loss, n_trees=7, outputs=outputs, init_model=first, early_stopping=None).fit(train, valid=valid)
    assert then.best_iteration_ == 12
    assert then.history_["round"] == list(range(6, 13))
    np.testing.assert_allclose(then.history_["train"], once.history_["train"][5:], atol=1e-9)
    np.testing.assert_allclose(then.predict(valid), once.predict(valid), atol=1e-9)
    value = tr.evaluate(once.predict(valid), valid).mean["ndcg@10"]
    assert then.history_["valid"][-1] == pytest.approx(value, abs=1e-9)


def test_a_model_that_cannot_be_improved_stays_as_it_is(halves):
    train, valid = halves
    first = trees(n_trees=60).fit(train, valid=valid)
    worse = train.replace(labels=train.labels.max() - train.labels)
    then = trees(init_model=first, early_stopping=3).fit(worse, valid=valid)
    assert then.best_iteration_ == first.best_iteration_
    np.testing.assert_array_equal(then.predict(valid), first.predict(valid))


def test_the_value_to_beat_is_that_of_the_model_before_its_calibration(halves):
    """Calibration may change the order of documents, and the trees that go on have none."""
    train, valid = halves
    first = trees("Multinomial", outputs="grades", n_trees=5).fit(train)
    upside_down = valid.replace(labels=valid.labels.max() - valid.labels)
    calibrated = trees("Multinomial", outputs="grades", n_trees=5).fit(train).calibrate(upside_down)
    values = [tr.evaluate(ranker.predict(valid), valid).mean["ndcg@10"] for ranker in (first, calibrated)]
    assert values[0] != pytest.approx(values[1], abs=1e-3)
    worse = train.replace(labels=train.labels.max() - train.labels)
    then = trees("Multinomial", outputs="grades", n_trees=2, init_model=calibrated).fit(worse, valid=valid)
    assert then.best_iteration_ == 5
    assert then.training_["valid"]["ndcg@10"] == pytest.approx(values[0], abs=1e-9)


def test_callbacks_see_every_round_and_may_end_the_training(halves):
    seen = []

    def watch(now):
        seen.append(now)
        return now.number == 4

    ranker = trees(callbacks=[watch]).fit(halves[0], valid=halves[1])
    assert [now.number for now in seen] == [1, 2, 3, 4]
    assert [now.valid for now in seen] == ranker.history_["valid"]
    assert [now.train for now in seen] == ranker.history_["train"]
    assert seen[-1].last == 20
    assert np.isnan(seen[0].seconds_left)  # the first round's time is that of the start, too
    assert seen[-1].seconds_left == pytest.approx((seen[-1].seconds - seen[0].seconds) / 3 * 16)
    assert "callback" in ranker.stopped_


def test_an_interrupt_keeps_the_best_so_far(halves):
    train, valid = halves

    def interrupt(now):
        if now.number == 6:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="Interrupted after 6 rounds"):
        ranker = trees(callbacks=[interrupt]).fit(train, valid=valid)
    best = int(np.argmax(ranker.history_["valid"])) + 1
    assert ranker.best_iteration_ == best
    whole = trees(n_trees=best).fit(train)
    np.testing.assert_array_equal(ranker.predict(valid), whole.predict(valid))


@pytest.mark.parametrize("boosting", ["gbdt", "dart"])
def test_an_interrupt_while_the_loss_is_at_work_lets_the_round_end(halves, monkeypatch, boosting):
    fill, calls = ScoreObjective.fill, []

    def interrupt(self, raw):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return fill(self, raw)

    options = {
        "boosting": boosting,
        "lightgbm_params": {"drop_rate": 0.9, "skip_drop": 0.0} if boosting == "dart" else None,
    }
    whole = trees(n_trees=6, **options).fit(halves[0])
    monkeypatch.setattr(ScoreObjective, "fill", interrupt)
    with pytest.warns(ConvergenceWarning, match="Interrupted after 6 rounds"):
        ranker = trees(**options).fit(halves[0])
    np.testing.assert_array_equal(ranker.predict(halves[1]), whole.predict(halves[1]))


def test_an_interrupt_before_the_first_round_is_passed_on(halves, monkeypatch):
    def interrupt(self, raw):
        raise KeyboardInterrupt

    monkeypatch.setattr(ScoreObjective, "fill", interrupt)
    with pytest.raises(KeyboardInterrupt):
        trees().fit(halves[0])


def test_a_diverging_training_says_so(data):
    with pytest.raises(DataError, match=r"diverges: after . rounds"):
        trees("Squared", learning_rate=1e200).fit(data)


def test_progress_tells_the_metric_and_the_time_left(halves, capfd):
    trees(verbose=True, n_trees=3).fit(halves[0], valid=halves[1])
    whose, *lines = capfd.readouterr().err.splitlines()
    assert whose.startswith("Losses and metrics run on ")
    assert lines[0].startswith("round 1/3  train ndcg@10 0.")
    assert " left" not in lines[0]
    assert "valid ndcg@10 0." in lines[-1]
    assert lines[-1].endswith("about 0 s left")


def test_training_that_never_splits_warns():
    data = tr.synthetic(n_queries=3, n_documents=4, seed=0)
    with pytest.warns(ConstantScoresWarning, match="lower min_data_in_leaf than 20"):
        ranker = trees(min_data_in_leaf=20).fit(data)
    assert np.ptp(ranker.predict(data)) == 0
    assert not ranker.feature_importances_.any()
    assert "no split" in ranker.stopped_


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([1, 1, 1, 1], "All documents of each query have the same label"),
        ([0, 1, 0, 1], "No split of any feature lowers the loss"),
    ],
)
def test_that_no_split_was_found_has_a_reason_that_fits(labels, why):
    data = tr.RankingData(np.ones((4, 1)), labels, qid=[1, 1, 1, 1])
    with pytest.warns(ConstantScoresWarning, match=why):
        trees(min_data_in_leaf=1).fit(data)


# ---- sampling and chance ----


def test_query_samples_are_whole_queries(data):
    sample = QuerySample(data.queries, 0.3, seed=5)
    drawn = []
    for number in range(1, 40):
        rows = sample.rows(number)
        taken = data.queries.mean(rows.astype(float))
        assert set(taken.tolist()) <= {0.0, 1.0}
        assert taken.sum() == round(0.3 * data.n_queries)
        drawn.append(taken)
    assert np.all(np.mean(drawn, axis=0) > 0)  # every query has its turn
    np.testing.assert_array_equal(sample.rows(7), QuerySample(data.queries, 0.3, seed=5).rows(7))
    bound = losses.ListNet().on(data.labels, data.queries)
    grad, curvature = ScoreObjective(bound, np.zeros(1), sample=sample)(np.zeros(data.n_documents))
    assert not grad[~sample.rows(1)].any()
    assert not curvature[~sample.rows(1)].any()
    assert grad[sample.rows(1)].any()


def test_lightgbms_own_lambdarank_samples_whole_queries():
    data = tr.synthetic(n_queries=100, n_documents=16, seed=0)
    ranker = trees("lightgbm:lambdarank", n_trees=5, query_fraction=0.4).fit(data)
    counts = [one["tree_structure"]["internal_count"] for one in ranker.booster_.dump_model()["tree_info"]]
    assert len(set(counts)) > 1
    assert all(count % 16 == 0 and count < 1600 for count in counts)


@pytest.mark.parametrize("loss", ["LambdaRank", "lightgbm:rank_xendcg"])
def test_the_seed_decides(halves, loss):
    train, test = halves
    options = {"row_fraction": 0.5, "feature_fraction": 0.6, "n_trees": 5}
    one, same, other = (trees(loss, seed=seed, **options).fit(train).predict(test) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    by_query = [trees(query_fraction=0.5, seed=seed, n_trees=5).fit(train).predict(test) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(by_query[0], by_query[1])
    assert (by_query[0] != by_query[2]).any()


# ---- files and the door ----


@pytest.mark.parametrize(
    "options",
    [
        {
            "loss": losses.LambdaRank("map", truncation=5),
            "lightgbm_params": {"max_depth": 4},
            "monotone": {"effective_1": 1},
        },
        {"loss": "Multinomial", "outputs": "grades", "gain": [0.0, 1.0, 2.0], "categorical": ()},
        {"loss": "lightgbm:lambdarank", "boosting": "dart"},
        {"loss": "Squared", "callbacks": [lambda now: None]},
    ],
)
def test_what_is_read_equals_what_was_saved(data, tmp_path, options):
    ranker = trees(**options).fit(data, valid=data.select(np.arange(20)))
    ranker.save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert back.predict(data).tobytes() == ranker.predict(data).tobytes()
    assert (back.loss, back.lightgbm_params, back.history_) == (ranker.loss, ranker.lightgbm_params, ranker.history_)
    assert (back.best_iteration_, back.stopped_) == (ranker.best_iteration_, ranker.stopped_)
    np.testing.assert_array_equal(back.feature_importances_, ranker.feature_importances_)
    back.save(tmp_path / "again.toprank")
    assert (tmp_path / "again.toprank").read_bytes() == (tmp_path / "m.toprank").read_bytes()
    more = trees(**options | {"init_model": back, "n_trees": 2}).fit(data)
    assert more.best_iteration_ == back.best_iteration_ + 2


@pytest.fixture(scope="module")
def state(data):
    """Of a model with every kind of node: numbers, missing values, categories."""
    X = np.column_stack([data.X, np.random.default_rng(0).integers(0, 8, data.n_documents)])
    X[::7, 0] = np.nan
    labels = np.where(np.isin(X[:, 4], [1, 4]), 2.0, data.labels)
    named = data.replace(X=X, labels=labels, feature_names=None)
    return trees(n_trees=3, categorical=[4], lightgbm_params={"min_data_per_group": 1}).fit(named).state()


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        (r"(?s).*", "no trees here", "does not contain LightGBM's trees"),
        (r"end of trees", "end", "does not contain LightGBM's trees"),
        (r"Column_0", "Colünn_0", "does not contain LightGBM's trees"),
        (r"tree_sizes=\d+", "tree_sizes=99999999", "differ from those stated"),
        (r"tree_sizes=\d+ ", "tree_sizes=", "differ from those stated"),
        (r"tree_sizes=.*", "tree_sizes=", "differ from those stated"),
        (r"tree_sizes=.*", "tree_sizes=few", "is inconsistent"),
        (r"num_class=1", "num_class=3", "is inconsistent"),
        (r"max_feature_idx=4", "max_feature_idx=1", "is inconsistent"),
        (r"end of trees\n", "end of trees\nparameters:\n", "does not contain LightGBM's trees"),
        (r"num_leaves=7", "num_leaves=8", "is damaged"),
        (r"num_leaves=7", "num_leaves=99999999999999999999", "is damaged"),
        (r"split_feature=\d", "split_feature=9", "is damaged"),
        (r"left_child=-?\d+", "left_child=0", "is damaged"),
        (r"left_child=-?\d+", "left_child=70", "is damaged"),
        (r"leaf_value=\S+", "leaf_value=nan", "is damaged"),
        (r"threshold=\S+ ", "threshold=", "is damaged"),
        (r"num_cat=[1-9]", "num_cat=0", "is damaged"),
        (r"cat_boundaries=0", "cat_boundaries=5", "is damaged"),
        (r"cat_threshold=\S+", "cat_threshold=", "is damaged"),
        (r"is_linear=0", "is_linear=1", "linear models"),
        (r"feature_infos=.*\n", "", "is inconsistent"),
        (r"label_index=0\n", "", "is inconsistent"),
    ],
)
def test_forged_trees_are_refused_before_lightgbm_follows_them(state, pattern, replacement, message):
    text = state.texts["trees"]
    assert "cat_boundaries" in text
    forged = re.sub(pattern, replacement, text, count=1)
    assert forged != text
    if "tree_sizes" in text and message != "is inconsistent" and "tree_sizes" not in pattern:
        sizes = [len(one) for one in re.findall(r"(?s)Tree=\d+\n.*?\n\n\n", forged)]
        forged = re.sub(r"tree_sizes=.*", "tree_sizes=" + " ".join(map(str, sizes)), forged)
    with pytest.raises(DataError, match=message):
        tr.TreeRanker.restore(state._replace(texts={"trees": forged}))


def test_trees_of_another_model_are_refused(state, data):
    ranker = tr.TreeRanker.restore(state)
    ranker.n_features_in_ = 5
    ranker.check_restored()
    ranker.n_features_in_ = 4
    with pytest.raises(DataError, match="number of features"):
        ranker.check_restored()
    ranker.n_features_in_, ranker.intercept_ = 5, np.zeros(3)
    with pytest.raises(DataError, match="number of outputs"):
        ranker.check_restored()


def test_an_altered_file_is_refused(data, tmp_path):
    trees(n_trees=2).fit(data).save(tmp_path / "m.toprank")
    content = bytearray((tmp_path / "m.toprank").read_bytes())
    content[len(content) // 2] ^= 255
    (tmp_path / "m.toprank").write_bytes(content)
    with pytest.raises(FormatError):
        tr.load(tmp_path / "m.toprank")


def test_plain_arrays_and_data_give_the_same_scores(data):
    ranker = trees().fit(data.X, data.labels, qid=data.qid)
    scores = ranker.predict(data.X)
    for rows in (data.X.astype(np.float64), np.asfortranarray(data.X), data, data.X.tolist()):
        np.testing.assert_array_equal(ranker.predict(rows), scores)
    np.testing.assert_array_equal(ranker.predict(data.X[5:9]), scores[5:9])
    with pytest.raises(ValueError, match="4 features"):
        ranker.predict(data.X[:, :3])
    far = np.array([[np.inf, -np.inf, np.inf, 0.0], [1e300, -1e300, 1e300, 0.0]])
    assert np.ptp(ranker.predict(far)) == 0  # only the order of values counts
    with pytest.raises(ValueError, match="minimum of 1"):
        ranker.predict(data.X[:0])
    with pytest.raises(ValueError, match="not fitted"):
        clone(ranker).predict(data.X)


def test_labels_beyond_31(data):
    high = data.replace(labels=data.labels * 20)
    assert trees(n_trees=3).fit(high).best_iteration_ == 3
    with pytest.raises(DataError, match=r"integer labels from 0 to 30.* has [24]0"):
        trees("lightgbm:lambdarank").fit(high)
    wide = trees("lightgbm:lambdarank", n_trees=3, lightgbm_params={"label_gain": list(range(41))}).fit(high)
    assert wide.best_iteration_ == 3


def test_labels_that_the_metric_does_not_take_leave_no_training_history(data):
    ranker = trees("ListNet", n_trees=3).fit(data.replace(labels=data.labels - 2.5))
    assert set(ranker.history_) == {"round"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_trees": 0}, "n_trees must be a whole number of at least 1"),
        ({"n_trees": 2.5}, "n_trees must be a whole number"),
        ({"num_leaves": 1}, "num_leaves must be a whole number of at least 2"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
        ({"l2": -1.0}, "l2 must be a number of at least 0"),
        ({"row_fraction": 0.0}, "row_fraction must be a number above 0 and at most 1"),
        ({"query_fraction": 1.5}, "query_fraction must be a number above 0 and at most 1"),
        ({"boosting": "drat"}, "did you mean 'dart'"),
        ({"outputs": "grade"}, "did you mean 'grades'"),
        ({"early_stopping": 0}, "early_stopping, a number of rounds or None"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"threads": 0}, "threads must be a whole number of at least 1"),
        ({"metric": "ncdg@10"}, "ndcg@10"),
        ({"loss": "LambdaRnk"}, "LambdaRank"),
        ({"loss": "lightgbm:lamdarank"}, "did you mean 'lightgbm:lambdarank'"),
        ({"loss": "Ordinal"}, "thresholds"),
        ({"loss": "lightgbm:lambdarank", "outputs": "grades"}, "use a loss of toprank"),
        ({"loss": "lightgbm:rank_xendcg", "query_fraction": 0.5}, "cannot sample whole queries"),
        ({"loss": "lightgbm:lambdarank", "query_fraction": 0.5, "row_fraction": 0.5}, "not both"),
        ({"lightgbm_params": {"max_dept": 3}}, "did you mean 'max_depth'"),
        ({"lightgbm_params": {"num_leaves": 3}}, "There is no LightGBM parameter"),
        ({"lightgbm_params": {"lambdarank_norm": True}}, "There is no LightGBM parameter"),
        ({"lightgbm_params": {"max_depth": "deep"}}, r"lightgbm_params\['max_depth'\] must be a whole number"),
        ({"lightgbm_params": {"data_sample_strategy": "goss"}, "row_fraction": 0.5}, "GOSS"),
        ({"monotone": [1, 0]}, "2 directions for 4 features"),
        ({"monotone": [2, 0, 0, 0]}, "1 .increasing., -1 .decreasing. or 0"),
        ({"monotone": {"effective_9": 1}}, "did you mean 'effective_"),
        ({"monotone": {7: 1}}, "indices are from 0 to 3"),
        ({"monotone": {0: 1}, "outputs": "grades"}, "one output per grade"),
        ({"categorical": "effective_1"}, "list of features"),
        ({"categorical": [0]}, "categories must be integers from 0"),
        ({"callbacks": [3]}, "3 cannot be called; callbacks must be functions"),
        ({"callbacks": len}, "list of functions"),
        ({"init_model": "model.txt"}, "must be a fitted TreeRanker, not a str"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(data, options, message):
    with pytest.raises((DataError, UnknownNameError), match=message) as caught:
        trees(**options).fit(data)
    assert str(caught.value).rstrip("?").endswith((".", "'"))


def test_lightgbms_callbacks_are_refused(data):
    import lightgbm

    with pytest.raises(DataError, match=r"EarlyStopping.* is a LightGBM callback"):
        trees(callbacks=[lightgbm.early_stopping(5, verbose=False)]).fit(data)


def test_models_to_go_on_from_must_fit(data, halves):
    fitted = trees(n_trees=2).fit(data)
    with pytest.raises(DataError, match="not fitted"):
        trees(init_model=trees()).fit(data)
    with pytest.raises(DataError, match="not fitted"):
        clone(trees(init_model=fitted)).fit(data)
    with pytest.raises(DataError, match="expecting 4 features"):
        trees(init_model=fitted).fit(halves[0])
    with pytest.raises(DataError, match="outputs='score'"):
        trees(init_model=fitted, outputs="grades").fit(data)
    grades = trees("Multinomial", outputs="grades", n_trees=2).fit(data)
    with pytest.raises(DataError, match="has 3 grades"):
        trees("Multinomial", outputs="grades", init_model=grades).fit(data.replace(labels=data.labels + 1))


def test_validation_data_that_cannot_be_judged_are_refused_before_training(data):
    seen = []
    with pytest.raises(DataError, match="are unjudged"):
        trees(callbacks=[seen.append]).fit(data, valid=data.replace(labels=data.labels - 1))
    assert not seen


def test_grades_need_whole_labels(data):
    with pytest.raises(DataError, match=r"has 0.5"):
        trees("ListNet", outputs="grades").fit(data.replace(labels=data.labels + 0.5))


FORKED = """
import os, sys, warnings
import numpy as np
import toprank as tr

path = sys.argv[1]
data = tr.synthetic(n_queries=300, n_documents=10, n_features=9, seed=0)
options = {"n_trees": 3, "num_leaves": 7}
ranker = tr.TreeRanker(threads=2, **options).fit(data)
scores, alone = ranker.predict(data), tr.TreeRanker(threads=1, **options).fit(data).predict(data)
child = os.fork()
if child == 0:
    try:
        np.testing.assert_array_equal(ranker.predict(data), scores)
        ranker.save(path)
        np.testing.assert_array_equal(tr.load(path).predict(data), scores)
        np.testing.assert_array_equal(tr.TreeRanker(**options).fit(data).predict(data), alone)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            np.testing.assert_array_equal(tr.TreeRanker(threads=2, **options).fit(data).predict(data), alone)
        assert ["spawn" in str(one.message) for one in said] == [True], said
        os._exit(0)
    except BaseException as problem:
        print(repr(problem), flush=True)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_trees_in_a_process_forked_after_trees(tmp_path):
    """LightGBM's threads do not survive a fork; a child that waited for them would never end."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, str(tmp_path / "m.toprank")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fit_goes_by_a_copy_of_the_parameters(data):
    """A callback that changes the ranker, or what it was given, changes the next fit and not this one."""
    ranker = tr.TreeRanker(n_trees=4, num_leaves=4, threads=1, seed=3, lightgbm_params={"max_depth": 1})
    untouched = ranker.fit(data).predict(data)

    def meddle(now):
        ranker.num_leaves, ranker.n_trees = 31, 1
        ranker.lightgbm_params["max_depth"] = 6

    ranker.callbacks = [meddle]
    np.testing.assert_array_equal(ranker.fit(data).predict(data), untouched)
    assert (ranker.as_fitted.num_leaves, ranker.as_fitted.lightgbm_params, ranker.num_leaves) == (
        4,
        {"max_depth": 1},
        31,
    )
    ranker.callbacks = []
    assert not np.array_equal(ranker.set_params(n_trees=4).fit(data).predict(data), untouched)


def test_threads_by_what_there_is_to_do(monkeypatch):
    """One for each quarter of a million cells begun, as many as there are at most; what was asked for as it is."""
    from types import SimpleNamespace

    from toprank.rankers.trees import parameters as tree_parameters

    monkeypatch.delenv("TOPRANK_LEAVE_BUSY_CORES", raising=False)  # a command that ran in this process asks for it
    monkeypatch.setattr(tree_parameters, "available_threads", lambda asked=None: 4 if asked is None else asked)
    sizes = {2**18 - 1: 1, 2**18: 2, 3 * 2**18 - 1: 3, 3 * 2**18: 4, 2**24: 4}
    for cells, wanted in sizes.items():
        data = SimpleNamespace(n_documents=cells, n_features=1)
        assert tree_parameters.training_threads(None, data).threads == wanted
        assert tree_parameters.training_threads(3, data).threads == 3
