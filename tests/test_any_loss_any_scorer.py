"""The promise of the house: any loss meets any scorer."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest

import toprank as tr
from toprank import losses

# Losses that need another label range or an argument; all others are taken as they are.
ARGUMENTS = {"ApproxMetric": {"metric": "map"}}
MISMATCHED = {"Multinomial", "Ordinal"}  # class space: no linear scorer


@pytest.fixture(scope="module")
def data():
    data = tr.synthetic(n_queries=40, n_documents=(3, 10), n_features=4, n_grades=3, noise=0.3, seed=4)
    return data.replace(teacher=data.expected_gain())  # for losses that learn from one


def beats_a_random_order(ranker, data):
    random = tr.evaluate(np.zeros(data.n_documents), data).mean["ndcg@10"]
    return tr.evaluate(ranker.predict(data), data).mean["ndcg@10"] > random + 0.15


@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
@pytest.mark.parametrize("name", [name for name in losses.names() if name not in MISMATCHED])
def test_every_loss_trains_a_linear_ranker(data, name):
    ranker = tr.LinearRanker(losses.make(name, **ARGUMENTS.get(name, {})), l2=1e-3).fit(data)
    assert beats_a_random_order(ranker, data)


@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
@pytest.mark.parametrize("name", losses.names())
def test_every_loss_trains_an_expected_gain_ranker(data, name):
    loss = losses.make(name, **ARGUMENTS.get(name, {}))
    ranker = tr.ExpectedGainRanker(loss, l2=1e-3, max_iterations=100).fit(data)
    assert beats_a_random_order(ranker, data)
    np.testing.assert_allclose(ranker.predict_proba(data).sum(axis=1), 1.0)


@pytest.mark.parametrize("name", [name for name in losses.names() if name not in MISMATCHED])
def test_every_loss_trains_trees(data, name):
    loss = losses.make(name, **ARGUMENTS.get(name, {}))
    ranker = tr.TreeRanker(loss, n_trees=20, num_leaves=7, min_data_in_leaf=5, threads=1).fit(data)
    assert beats_a_random_order(ranker, data)


@pytest.mark.parametrize("name", [name for name in losses.names() if name not in MISMATCHED])
def test_every_loss_trains_a_network(data, name):
    loss = losses.make(name, **ARGUMENTS.get(name, {}))
    options = {"hidden": (16,), "epochs": 12, "batch_documents": 32, "learning_rate": 0.02, "dropout": 0.0}
    assert beats_a_random_order(tr.NeuralRanker(loss, threads=1, device="cpu", **options).fit(data), data)


@pytest.mark.parametrize("name", losses.names())
def test_every_loss_can_be_written_down(name):
    loss = losses.make(name, **ARGUMENTS.get(name, {}))
    assert losses.from_spec(losses.to_spec(loss)) == loss


def of_numpy(value):
    """The same value as NumPy has it."""
    kinds = {bool: np.bool_, int: np.int64, float: np.float64, str: np.str_}
    return kinds[type(value)](value) if type(value) in kinds else value


@pytest.mark.parametrize("name", losses.names())
def test_numbers_of_numpy_become_plain_ones(name):
    """A search over np.arange or np.logspace gives such: repr stays the constructor, and JSON can hold the spec."""
    loss = losses.make(name, **ARGUMENTS.get(name, {}))
    options = {field.name: getattr(loss, field.name) for field in fields(loss)}
    made = type(loss)(**{option: of_numpy(value) for option, value in options.items()})
    assert repr(made) == repr(loss)
    assert eval(repr(made), {name: getattr(losses, name) for name in losses.names()}) == loss
    assert losses.from_spec(json.loads(json.dumps(losses.to_spec(made)))) == loss
    assert {type(value) for value in losses.to_spec(made).values()} <= {str, int, float, bool, list, dict, type(None)}


def test_numbers_of_numpy_mean_what_they_say():
    assert repr(losses.ApproxNDCG(k=np.int64(10))) == repr(losses.ApproxNDCG(k=10))
    assert losses.ListNet(np.float32(2)) == losses.ListNet(2.0)
    assert losses.LambdaRank(norm=np.bool_(False)).norm is False
    assert losses.LambdaRank(gain=(np.int64(0), np.float64(1))).gain == (0, 1)
    assert losses.to_spec(losses.LambdaRank(gain=np.array([0, 1, 3])))["gain"] == [0.0, 1.0, 3.0]


def test_lambda_rank_improves_on_where_it_starts():
    data = tr.synthetic(n_queries=80, n_documents=(5, 20), n_features=6, n_grades=4, noise=0.8, seed=1)
    start = tr.LinearRanker("Logistic", l2=1e-2).fit(data)
    ranker = tr.LinearRanker("LambdaRank", l2=1e-2).fit(data)
    bound = losses.LambdaRank().on(data.labels, data.queries)
    assert bound.at(ranker.predict(data)).value <= bound.at(start.predict(data)).value + 1e-9


def test_a_certificate_is_given_for_convex_losses_only(data):
    assert tr.LinearRanker("Hinge", l2=0.1).fit(data).solution_.lower_bound is not None
    assert tr.LinearRanker("NeuralNDCG", l2=0.1).fit(data).solution_.lower_bound is None
