"""What `tune` refuses at once, and what it does not claim after few trials."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from sklearn.naive_bayes import GaussianNB

import toprank as tr
from toprank.errors import DataError
from toprank.model_selection.space import read_space
from toprank.systems import SYSTEMS

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def parts():
    return tr.split(tr.synthetic(n_queries=16, n_documents=(3, 6), n_features=2, seed=0), (0.5, 0.5))


@pytest.mark.parametrize("wrong", [None, 5, object, GaussianNB()])
def test_what_is_no_ranker_is_refused(parts, wrong):
    with pytest.raises(DataError, match="takes a system or its name, or a ranker of toprank"):
        tr.tune(wrong, *parts)


def test_a_ranker_with_a_loss_of_ones_own_is_refused(parts):
    @dataclass(frozen=True)
    class Mine(tr.losses.ListNet):
        pass

    with pytest.raises(DataError, match="does not support the custom loss Mine"):
        tr.tune(tr.LinearRanker(Mine()), *parts)


@pytest.mark.parametrize(
    ("system", "space"),
    [
        ("ListNet", {"l2": ["foo"]}),
        ("ListNet", {"l2": [0.1, [0.1, "x"]]}),
        ("ListNet", {"l2": [float("nan")]}),
        ("ListNet", {"l2": [True]}),
        ("ListNet", {"loss.alpha": ["foo"]}),
        ("LambdaMART", {"sigma": ["foo", 1.0]}),
        ("MART", {"l2": [[0.1, "x"]]}),
    ],
)
def test_text_is_refused_where_numbers_are_searched(system, space):
    with pytest.raises(DataError, match="number"):
        read_space(SYSTEMS[system], space, {})


def test_a_metric_that_is_blind_is_refused(parts):
    faint = [part.replace(labels=part.labels / 8) for part in parts]
    with pytest.raises(DataError, match="map has the same value for the best and the worst order"):
        tr.tune("RankSVM", *faint, metric="map", n_trials=2)
    with pytest.raises(DataError, match="map has the same value for the best and the worst order"):
        tr.tune("RankSVM", faint[0], folds=2, space={"l2": (0.1, 1.0)}, metric="map", n_trials=2)


def test_numbers_and_several_of_them_are_searched():
    values = [1, 0.5, [0.1, 1.0], (1, 2)]
    assert read_space(SYSTEMS["ListNet"], {"l2": values}, {}).dimensions["l2"].values == tuple(values)


@pytest.mark.parametrize(
    ("space", "trials", "tells"),
    [
        ({"l2": (1e-3, 1.0, "log")}, 9, False),
        ({"l2": (1e-3, 1.0, "log")}, 10, True),
        ({"l2": (1e-3, 1.0, "log"), "alpha": (0.1, 2.0), "init": [None], "tolerance": [1e-6], "max_iterations": [99],
          "psi": ["linear"]}, 11, False),
    ],
)  # fmt: skip
def test_importance_is_left_out_where_few_trials_tell_little(parts, space, trials, tells):
    tuned = tr.tune("ListNet", *parts, space=space, n_trials=trials)
    assert bool(tuned.importance) == tells
    assert ("Importance of hyper-parameters" in str(tuned)) == tells
