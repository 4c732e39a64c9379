"""Trainings that a time limit ends go on later: the trees are those of a fit that was never cut."""

from __future__ import annotations

import numpy as np
import pytest

import toprank as tr
from toprank.compute import Resumable, TimeLimit

TREES = {"n_trees": 12, "num_leaves": 5, "min_data_in_leaf": 3, "seed": 4, "threads": 1}
KINDS = {
    "half of the features": {"loss": "YetiRank", "feature_fraction": 0.5},
    "part of the rows": {"loss": "Squared", "row_fraction": 0.5},
    "part of the queries": {"loss": "LambdaRank", "query_fraction": 0.5},
    "a search along each tree": {"loss": "Hinge"},
    "an output for each grade": {"loss": "Multinomial", "outputs": "grades"},
    "dart": {"loss": "LambdaRank", "boosting": "dart"},
    "LightGBM's own": {"loss": "lightgbm:lambdarank", "query_fraction": 0.6, "feature_fraction": 0.5},
    "early stopping": {"loss": "LambdaRank", "early_stopping": 2},
    "rounds without a split": {"loss": "LambdaRank", "feature_fraction": 0.25, "min_data_in_leaf": 40},
}


@pytest.fixture(scope="module")
def parts():
    data = tr.synthetic(n_queries=40, n_documents=(4, 10), n_features=4, n_grades=3, truth="nonlinear", seed=0)
    return tr.split(data, (0.6, 0.4))


def of_stretches(ranker, train, valid):
    """Fit under limits that are over after one round each; return how many fits it took."""
    with Resumable() as resumable:
        for n_fits in range(1, 1000):
            with TimeLimit(0.0) as limit:
                ranker.fit(train, valid=valid)
            if not limit.passed:
                assert not resumable.is_suspended
                return n_fits
            assert resumable.is_suspended
            assert ranker.stopped_ == f"The time limit was reached after {ranker.history_['round'][-1]:.0f} rounds."
            assert len(ranker.history_["round"]) <= n_fits
    raise AssertionError


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_that_goes_on_is_the_one_that_was_never_cut(parts, kind):
    train, valid = parts
    whole = tr.TreeRanker(**TREES | KINDS[kind]).fit(train, valid=valid)
    resumed = tr.TreeRanker(**TREES | KINDS[kind])
    n_fits = of_stretches(resumed, train, valid)
    assert n_fits == len(whole.history_["round"]) > 2
    assert resumed.booster_.model_to_string() == whole.booster_.model_to_string()
    assert resumed.predict(valid).tobytes() == whole.predict(valid).tobytes()
    assert (resumed.history_, resumed.stopped_) == (whole.history_, whole.stopped_)
    assert resumed.best_iteration_ == whole.best_iteration_


def test_a_training_goes_on_from_trees_of_before(parts):
    train, valid = parts
    first = tr.TreeRanker(**TREES).fit(train)
    whole = tr.TreeRanker(**TREES, init_model=first).fit(train, valid=valid)
    resumed = tr.TreeRanker(**TREES, init_model=first)
    of_stretches(resumed, train, valid)
    assert resumed.predict(valid).tobytes() == whole.predict(valid).tobytes()


def test_only_the_same_fit_goes_on(parts):
    train, valid = parts
    with Resumable():
        with TimeLimit(0.0):
            tr.TreeRanker(**TREES).fit(train, valid=valid)
        other = tr.TreeRanker(**TREES | {"seed": 5}).fit(train, valid=valid)
        less = tr.TreeRanker(**TREES).fit(valid)
    assert len(other.history_["round"]) == len(less.history_["round"]) == 12
    np.testing.assert_array_equal(less.predict(train), tr.TreeRanker(**TREES).fit(valid).predict(train))


def test_without_the_context_a_fit_begins_anew(parts):
    train, _ = parts
    ranker = tr.TreeRanker(**TREES)
    for _ in range(3):
        with TimeLimit(0.0):
            ranker.fit(train)
        assert ranker.best_iteration_ == 1
