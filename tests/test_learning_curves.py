"""With more queries, training comes as close to the best possible ranking as the truth allows, and known truth tells.

On synthetic data P(grade | x) is known, hence the scores of the highest expected DCG, E[G(y) | x], and of the highest
expected NDCG@10, E[G(y) / IDCG@10 | X]. `theory.regret` against them is what a ranking loses *in expectation*: test
labels, and their noise, play no part. A curve is the share of what a random order loses, so that 1 is random, 0 is the
best possible, at 50, 400 and 3,200 training queries (each step is 8 times the data), averaged over two truths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import toprank as tr
from support import nightly
from toprank import losses
from toprank.rankers.trees.objective import ScoreObjective
from toprank.theory import regret

SIZES = (50, 400, 3200)
SEEDS = (7, 8)
TRUTHS = {
    "linear": {"truth": "linear", "n_features": 20, "noise": 1.0},
    "nonlinear": {"truth": "nonlinear", "n_features": 3, "noise": 0.3},
}


class Problem(NamedTuple):
    pool: tr.data.synthetic.SyntheticData
    valid: tr.data.synthetic.SyntheticData
    test: tr.data.synthetic.SyntheticData
    best: dict

    def share_lost(self, scores):
        """The regret in DCG@10 and in NDCG@10, as shares of a random order's."""
        queries, random = self.test.queries, np.zeros(self.test.n_documents)
        return [
            regret(scores, best, queries, k=10).mean / regret(random, best, queries, k=10).mean
            for best in self.best.values()
        ]


def problem_of(truth, seed):
    whole = tr.synthetic(n_queries=300 + 200 + SIZES[-1], n_documents=12, n_grades=4, seed=seed, **TRUTHS[truth])
    test, valid, pool = (whole.select(np.arange(*part)) for part in ((0, 300), (300, 500), (500, 500 + SIZES[-1])))
    best = {"dcg": test.expected_gain(), "ndcg": test.ndcg_optimal(k=10, samples=4000, threads=1)[0]}
    return Problem(pool, valid, test, best)


@pytest.fixture(scope="module")
def problems():
    return {truth: [problem_of(truth, seed) for seed in SEEDS] for truth in TRUTHS}


def curve(make, problems, labels=lambda data: data.labels):
    """The shares lost (DCG, NDCG) for each number of training queries; `labels` may spoil those of the training."""
    lost = np.zeros((len(SIZES), 2))
    for problem in problems:
        for row, size in enumerate(SIZES):
            train = problem.pool.select(np.arange(size))
            ranker = make().fit(train.replace(labels=labels(train)), valid=problem.valid)
            lost[row] += np.divide(problem.share_lost(ranker.predict(problem.test)), len(problems))
    return lost


def approaches(lost, *, falls, ends):
    """Each step loses less than the last; in all the loss falls by the factor `falls`, and ends below `ends`."""
    return bool((np.diff(lost, axis=0) < 0).all() and (lost[-1] < lost[0] / falls).all() and (lost[-1] < ends).all())


@pytest.mark.parametrize("loss", ["Squared", "ListNet", "Logistic"])
def test_linear_rankers_approach_the_optimum_of_a_linear_truth(problems, loss):
    """The regret is quadratic in the error of the weights, so it falls like 1/n: 64-fold data, about 1/64."""
    lost = curve(lambda: tr.LinearRanker(loss, l2=1e-4, threads=1), problems["linear"])
    assert approaches(lost, falls=20, ends=0.006), lost


MARGIN = {"falls": 5, "ends": 0.025}
TREES = {
    "LambdaRank": ("LambdaRank", "score"),
    "ListNet": ("ListNet", "score"),
    "McRank": ("Multinomial", "grades"),
    "ExpectedGain": ("ListNet", "grades"),
}


def trees(name):
    loss, outputs = TREES[name]
    options = {"n_trees": 100, "num_leaves": 15, "learning_rate": 0.2, "early_stopping": 50, "threads": 1}
    return tr.TreeRanker(loss, outputs=outputs, **options)


@pytest.mark.parametrize("name", ["LambdaRank", "ListNet", *nightly("McRank", "ExpectedGain")])
def test_trees_approach_the_optimum_of_a_crooked_truth(problems, name):
    lost = curve(lambda: trees(name), problems["nonlinear"])
    assert approaches(lost, **MARGIN), lost


def test_networks_approach_the_optimum_of_a_crooked_truth(problems):
    pytest.importorskip("torch")
    options = {"hidden": (32, 32), "input_transform": "standard", "learning_rate": 5e-3, "epochs": 30, "dropout": 0.0}
    lost = curve(lambda: tr.NeuralRanker("ListNet", threads=1, device="cpu", **options), problems["nonlinear"][:1])
    assert approaches(lost, **MARGIN), lost


def test_a_wrong_setup_fails_these_tests(problems):
    """Labels of other documents teach nothing, and a straight line does not follow a crooked truth."""
    shuffled = curve(
        lambda: trees("ListNet"),
        problems["nonlinear"],
        labels=lambda data: np.random.default_rng(0).permutation(data.labels),
    )
    assert not approaches(shuffled, **MARGIN), shuffled
    assert (shuffled > 0.5).all(), shuffled
    straight = curve(lambda: tr.LinearRanker("ListNet", l2=1e-4, threads=1), problems["nonlinear"])
    assert not approaches(straight, **MARGIN), straight


@pytest.mark.parametrize("name", ["ListNet", "Squared", "Logistic", "ListMLE"])
def test_what_trees_are_given_are_derivatives_of_the_loss(name):
    """One output: the gradient is d/d raw of the sum over queries of the loss, the curvature its second derivative.

    (`tests/test_rankers_trees.py` has the same for one output for each grade, whose curvature is a bound.)
    """
    data = tr.synthetic(n_queries=5, n_documents=(2, 6), n_grades=3, seed=0)
    bound = losses.make(name).on(data.labels, data.queries)
    objective = ScoreObjective(bound, np.array([0.4]))
    raw = np.random.default_rng(0).normal(size=data.n_documents)
    grad, curvature = (part.astype(np.float64) for part in objective(raw))

    def value(outputs):
        return data.n_queries * bound.at(outputs + 0.4).value

    eps, one = 1e-4, np.eye(data.n_documents)
    ahead = np.array([value(raw + eps * step) for step in one])
    behind = np.array([value(raw - eps * step) for step in one])
    np.testing.assert_allclose(grad, (ahead - behind) / (2 * eps), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(curvature, (ahead - 2 * value(raw) + behind) / eps**2, rtol=1e-3, atol=1e-4)
