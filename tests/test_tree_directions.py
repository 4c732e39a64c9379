"""Trees that were asked to be monotone are, or `directions_` and a warning say that they are not."""

import itertools
import warnings

import numpy as np
import pytest

import toprank as tr
from toprank.errors import DataError
from toprank.rankers.trees.directions import verified_monotonicity
from toprank.rankers.trees.ranker import MonotoneWarning

SMALL = {"min_data_in_leaf": 3, "threads": 1, "early_stopping": None}


def some_data(seed=0, columns=3, zeros=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(240, columns)).round(1)
    if zeros:
        X[rng.uniform(size=X.shape) < 0.3] = 0.0
    signal = X[:, 0] + np.sin(3 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0.3) + 2 * (X[:, 0] == 0)
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    labels = np.digitize(np.nan_to_num(signal), [-0.5, 0.8]).astype(float)
    return tr.RankingData(X, labels, qid=np.repeat(np.arange(24), 10))


def every_row(forest, categories=()):
    """All rows that the splits of a model can tell apart: at, above and below every threshold, 0 and missing."""
    found = {}
    for tree in forest.trees:
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
            found.setdefault(int(feature), set()).update([threshold, np.nextafter(threshold, np.inf)])
    values = [
        [*range(-1, 7), np.nan]
        if column in categories
        else [*sorted(found.get(column, set()) | {-1e-9, 0.0, 9.0}), np.nan]
        for column in range(3)
    ]
    return np.array(list(itertools.product(*values))), values


def by_trying(ranker, directions, categories=()):
    """The directions that hold on every row, tried one by one."""
    X, values = every_row(ranker.forest_, categories)
    scores = ranker.predict(X).reshape([len(one) for one in values])
    held = []
    for feature, direction in enumerate(directions):
        along = np.moveaxis(scores, feature, 0)[: len(values[feature]) - 1]  # without the missing one
        held.append(direction if (direction * np.diff(along, axis=0) >= 0).all() else 0)
    return held


@pytest.mark.parametrize("lightgbm_params", [{}, {"zero_as_missing": True}, {"use_missing": False}])
@pytest.mark.parametrize("leaves", [3, 6])
def test_a_single_tree_is_judged_exactly(lightgbm_params, leaves):
    outcomes = set()
    for seed in range(12):
        ranker = tr.TreeRanker("Squared", n_trees=1, num_leaves=leaves, lightgbm_params=lightgbm_params, **SMALL).fit(
            some_data(seed)
        )
        for asked in ([1, 1, 1], [-1, -1, -1]):
            held = verified_monotonicity(ranker.forest_, asked)
            assert held == by_trying(ranker, asked)
            outcomes |= set(held)
    assert outcomes == {-1, 0, 1}


def test_a_split_by_category_above_is_judged_exactly():
    data = some_data(3)
    rng = np.random.default_rng(0)
    X = data.X.copy()
    X[:, 2] = rng.integers(0, 6, len(X))
    labels = np.where(X[:, 2] > 2, X[:, 0] > 0.2, X[:, 0] < 0.2).astype(
        float
    )  # rises in some categories, falls in others
    rising = data.replace(X=X, labels=np.where(X[:, 2] > 2, X[:, 0] > 0.2, X[:, 0] > -0.5).astype(float))
    options = {
        "categorical": [2],
        "lightgbm_params": {"min_data_per_group": 1, "max_cat_to_onehot": 1, "cat_smooth": 0.0},
    }
    for given in (data.replace(X=X, labels=labels), rising):
        ranker = tr.TreeRanker("Squared", n_trees=1, num_leaves=6, **options, **SMALL).fit(given)
        assert 2 in ranker.forest_.categories
        for asked in ([1, 0, 0], [-1, 0, 0]):
            assert verified_monotonicity(ranker.forest_, asked) == by_trying(ranker, asked, {2})


@pytest.mark.parametrize("method", ["basic", "intermediate"])
def test_what_lightgbm_keeps_is_found_to_hold(method):
    asked = [1, -1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranker = tr.TreeRanker(
            "Squared", n_trees=15, monotone=asked, lightgbm_params={"monotone_constraints_method": method}, **SMALL
        ).fit(some_data())
    assert ranker.directions_ == asked == by_trying(ranker, asked)


def test_zeros_that_count_as_missing_are_told(tmp_path):
    with pytest.warns(MonotoneWarning, match=r"violate the monotone constraint of feature '0'.*zero_as_missing"):
        ranker = tr.TreeRanker(
            "Squared", n_trees=5, num_leaves=7, monotone=[1, 0, 0], lightgbm_params={"zero_as_missing": True}, **SMALL
        ).fit(some_data())
    assert ranker.directions_ == [0, 0, 0] == by_trying(ranker, [1, 0, 0])
    ranker.save(tmp_path / "m.toprank")
    assert tr.load(tmp_path / "m.toprank").directions_ == [0, 0, 0]


def test_the_method_advanced_is_not_trusted():
    """LightGBM's own trees, some of which are not what was asked for; where one is not, it is told."""
    told = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(500, 3)).round(2)
        labels = np.digitize(np.sin(3 * X[:, 0]) + X[:, 0] * X[:, 1] + rng.normal(size=500), [-0.5, 0.8]).astype(float)
        X[rng.uniform(size=X.shape) < 0.1] = np.nan
        data = tr.RankingData(X, labels, qid=np.repeat(np.arange(50), 10))
        options = {"lightgbm_params": {"monotone_constraints_method": "advanced"}, "monotone": [1, 1, 0]}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ranker = tr.TreeRanker("Squared", n_trees=1, num_leaves=20, **options, **SMALL).fit(data)
        assert ranker.directions_ == by_trying(ranker, [1, 1, 0])
        assert (ranker.directions_ != [1, 1, 0]) == any(one.category is MonotoneWarning for one in caught)
        told += bool(caught)
    assert told  # else this says nothing


def test_an_earlier_model_that_falls_is_refused():
    data = some_data()
    free = tr.TreeRanker("Squared", n_trees=3, **SMALL).fit(data)
    with pytest.raises(DataError, match=r"init_model violates the monotone constraint of feature '0'"):
        tr.TreeRanker("Squared", n_trees=3, monotone=[1, 0, 0], init_model=free, **SMALL).fit(data)
    rising = tr.TreeRanker("Squared", n_trees=3, monotone=[1, 0, 0], **SMALL).fit(data)
    more = tr.TreeRanker("Squared", n_trees=3, monotone=[1, 0, 0], init_model=rising, **SMALL).fit(data)
    assert more.directions_ == [1, 0, 0] == by_trying(more, [1, 0, 0])
