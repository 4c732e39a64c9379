"""A fitted ranker is one record: a fit that fails changes nothing, and a parameter changed later waits for the next."""

from __future__ import annotations

import pickle
import warnings
from copy import copy
from itertools import count

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.validation import check_is_fitted

import onnx_models
import toprank as tr
from toprank import rankers
from toprank.errors import ToprankError
from toprank.losses import Squared
from toprank.rankers.base import Ranker
from toprank.rankers.foreign.onnx_model import OnnxRanker
from toprank.rankers.wrapping import WrappedRanker

FEW = {"n_trees": 3, "num_leaves": 3, "min_data_in_leaf": 2, "threads": 1}
SMALL = {"hidden": (3,), "width": 4, "n_heads": 2, "n_layers": 1, "epochs": 1, "threads": 1}
OURS = {
    "linear": lambda: tr.LinearRanker("ListNet"),
    "likelihood": lambda: tr.ExpectedGainRanker("Multinomial"),
    "thresholds": lambda: tr.ExpectedGainRanker("Ordinal"),
    "expected gain": lambda: tr.ExpectedGainRanker("ListNet", max_iterations=200),
    "classifier": lambda: tr.ExpectedGainRanker(classifier=GaussianNB()),
    "trees": lambda: tr.TreeRanker(**FEW, monotone={0: 1}, lightgbm_params={"max_depth": 3}),
    "trees of grades": lambda: tr.TreeRanker("Multinomial", outputs="grades", **FEW),
    "network": lambda: tr.NeuralRanker(**SMALL),
    "attention": lambda: tr.NeuralRanker("Multinomial", network="attention", outputs="grades", **SMALL),
    "AdaRank": lambda: tr.AdaRank(max_rounds=5),
    "RankBoost": lambda: tr.RankBoost(max_rounds=5),
    "CoordinateAscent": lambda: tr.CoordinateAscent(restarts=1, max_cycles=1),
    "blend": lambda: tr.BlendRanker([tr.LinearRanker(), tr.TreeRanker(**FEW)], [1, 2]),
    "wrapped": lambda: tr.wrap(Ridge()),
    "auto": lambda: tr.AutoRanker(time_budget=None, max_trials=2, threads=1),
}
THEIRS = {
    "forest": lambda data: tr.wrap(_lightgbm()).fit(data).saved_ranker(),
    "weights": lambda data: tr.wrap(Ridge()).fit(data).saved_ranker(),
    "ONNX": lambda data: OnnxRanker.from_bytes(onnx_models.network().SerializeToString()),
}
RUN = ("threads", "verbose", "device")  # of the machine, not of the model
OTHER = {
    "loss": ["Squared", "Multinomial", "Ordinal", "ListNet"],
    "outputs": ["score", "grades"],
    "gain": ["linear", [0.0, 5.0, 1.0]],
    "solver": ["lbfgs"],
    "init": ["zeros"],
    "classifier": [None, GaussianNB()],
    "calibration": ["sigmoid", None],
    "n_grades": [9],
    "monotone": [[-1] * 5],
    "categorical": [[0]],
    "network": ["mlp", "attention"],
    "hidden": [(9, 9)],
    "input_transform": ["none", "quantile"],
    "metric": ["map"],
    "weights": [[5, 1], None, [1]],
    "rankers": [[], [tr.LinearRanker()]],
    "estimator": [GaussianNB()],
    "source": ["RankLib", "LightGBM", "XGBoost"],
    "sums": ["single", "double"],
    "lightgbm_params": [{"max_depth": 9}, None],
}


def _lightgbm():
    from lightgbm import LGBMRegressor

    return LGBMRegressor(n_estimators=3, num_leaves=3, n_jobs=1, min_child_samples=2)


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=24, n_features=5, n_grades=3, seed=0, truth="nonlinear").replace(feature_names=None)


@pytest.fixture(scope="module")
def other():
    return tr.synthetic(n_queries=12, n_features=5, n_grades=3, seed=7).replace(feature_names=None)


def fitted(name, data):
    return OURS[name]().fit(data, valid=data.select(range(8))) if name in OURS else THEIRS[name](data)


def answer(question):
    """What a question is answered with, or the words of its refusal."""
    try:
        return question()
    except (ToprankError, AttributeError) as refusal:
        return str(refusal)


def observed(ranker, data, folder):
    """Everything that can be asked of a fitted ranker, as bytes."""

    def saved():
        path = folder / "m.toprank"
        ranker.save(path)
        return path.read_bytes()

    questions = [
        lambda: ranker.predict(data),
        lambda: ranker.predict(data.X, qid=data.qid),
        lambda: ranker.rank(data),
        lambda: ranker.score(data),
        lambda: ranker.predict_proba(data),
        lambda: tuple(ranker.expected_dcg(data)),
        lambda: ranker.classes_,
        lambda: ranker.feature_importances_,
        lambda: sorted(ranker.explain(data, qid=data.qids[0], permutations=4).contributions.items()),
        lambda: (ranker.uses_query_context, ranker.explains_exactly, ranker.supports_sparse, ranker.supports_missing),
        lambda: ranker.predict(csr_matrix(data.X)),
        saved,
    ]
    return [pickle.dumps(answer(question)) for question in questions]


ALL = [*OURS, *THEIRS]


def test_every_kind_of_ranker_is_in_the_matrix(data):
    kinds = {type(fitted(name, data)) for name in ALL}
    assert kinds == {getattr(rankers, name) for name in rankers.KINDS} | {WrappedRanker, tr.AutoRanker}


# ---- a fit that fails ----


@pytest.mark.parametrize("name", OURS)
def test_a_fit_that_fails_at_its_last_step_changes_nothing(name, data, other, tmp_path, monkeypatch):
    ranker = fitted(name, data)
    before, known = observed(ranker, data, tmp_path), dict(vars(ranker))
    inner = type(ranker)._fit
    for problem in (RuntimeError, KeyboardInterrupt):

        def failing(self, *given, problem=problem):
            inner(self, *given)
            raise problem("at the very end")

        with monkeypatch.context() as patch:
            patch.setattr(type(ranker), "_fit", failing)
            with pytest.raises(problem, match="at the very end"):
                ranker.fit(other)
    assert vars(ranker) == known
    assert observed(ranker, data, tmp_path) == before
    assert observed(ranker.fit(other), data, tmp_path) != before


@pytest.mark.parametrize("name", ["linear", "expected gain", "trees", "network", "blend"])
def test_a_warning_that_is_an_error_keeps_the_model(name, data, tmp_path):
    ranker = fitted(name, data)
    before = observed(ranker, data, tmp_path)
    flat = data.replace(labels=np.zeros(data.n_documents))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            ranker.fit(flat)
    assert observed(ranker, data, tmp_path) == before


class Faulty(Squared):
    """A user's loss with a mistake that shows after a while."""

    def bind(self, judgments):
        bound, calls = super().bind(judgments), count()
        inner = bound.evaluate_block

        def evaluate_block(*given):
            if next(calls) > 2:
                raise ZeroDivisionError("a mistake of the user's")
            return inner(*given)

        bound.evaluate_block = evaluate_block
        return bound


@pytest.mark.parametrize("name", ["linear", "expected gain", "trees", "network"])
def test_a_loss_that_fails_midway_keeps_the_model(name, data, tmp_path):
    ranker = fitted(name, data)
    before = observed(ranker, data, tmp_path)
    longer = {"epochs": 9} if name == "network" else {"init": "zeros"} if name == "expected gain" else {}
    with pytest.raises(ZeroDivisionError, match="a mistake of the user's"):
        ranker.set_params(loss=Faulty(), **longer).fit(data)
    assert observed(ranker, data, tmp_path) == before


# ---- parameters that change after the fit ----


@pytest.mark.parametrize("name", ALL)
def test_no_parameter_reaches_back_into_the_model(name, data, tmp_path):
    ranker = fitted(name, data)
    before = observed(ranker, data, tmp_path)
    given = ranker.get_params(deep=False)
    ranker.set_params(**{name: object() for name in given if name not in RUN})
    assert observed(ranker, data, tmp_path) == before
    for parameter in given:
        for value in OTHER.get(parameter, ()):
            ranker.set_params(**given).set_params(**{parameter: value})
            assert observed(ranker, data, tmp_path) == before, (parameter, value)


@pytest.mark.parametrize("name", ALL)
def test_those_of_the_run_may_change_and_are_not_saved(name, data, tmp_path):
    ranker = fitted(name, data)
    before = observed(ranker, data, tmp_path)
    run = {"threads": 2, "verbose": True, "device": "cpu"}
    ranker.set_params(**{name: value for name, value in run.items() if name in ranker.get_params(deep=False)})
    assert observed(ranker, data, tmp_path) == before


def test_what_parameters_hold_may_change_too(data, tmp_path):
    """Lists, dictionaries, arrays, members and estimators that a ranker was given and that live on."""
    l2, weights, members, lightgbm_params = (
        [1.0, 0.1],
        [1, 2],
        [tr.LinearRanker(), tr.TreeRanker(**FEW)],
        {"max_depth": 2},
    )
    ridge, gain = Ridge(alpha=1.0), np.array([0.0, 1.0, 3.0])
    made = [
        tr.LinearRanker(l2=l2).fit(data, valid=data.select(range(8))),
        tr.BlendRanker(members, weights).fit(data),
        tr.TreeRanker(lightgbm_params=lightgbm_params, **FEW).fit(data),
        tr.ExpectedGainRanker(gain=gain).fit(data),
        tr.wrap(ridge).fit(data),
    ]
    before = [observed(ranker, data, tmp_path) for ranker in made]
    (
        l2.clear(),
        weights.clear(),
        lightgbm_params.clear(),
        members[0].fit(data),
        members.clear(),
        ridge.set_params(alpha=9.0),
    )
    gain[:] = 0
    assert [observed(ranker, data, tmp_path) for ranker in made] == before


def test_a_blend_keeps_the_members_it_was_made_of(data, other, tmp_path):
    linear = tr.LinearRanker().fit(data)
    blend = tr.BlendRanker.from_fitted([linear], data)
    before = observed(blend, data, tmp_path)
    linear.fit(other)
    assert observed(blend, data, tmp_path) == before


def test_an_expected_dcg_that_was_refused_stays_refused(data):
    ranker = tr.ExpectedGainRanker("ListNet", max_iterations=200).fit(data)
    with pytest.raises(ToprankError, match="trained under ListNet"):
        ranker.set_params(loss="Multinomial").expected_dcg(data)
    ranker = tr.TreeRanker("ListNet", outputs="grades", **FEW).fit(data)
    with pytest.raises(ToprankError, match="trained under ListNet"):
        ranker.set_params(loss="Multinomial").expected_dcg(data)


# ---- the record itself ----


@pytest.mark.parametrize("name", ALL)
def test_nothing_that_was_learned_lies_beside_the_record(name, data, tmp_path):
    ranker = fitted(name, data)
    observed(ranker, data, tmp_path)
    known = {*ranker.get_params(deep=False), "_record"} | ({"_session"} if name == "ONNX" else set())
    assert set(vars(ranker)) <= known
    for again in (pickle.loads(pickle.dumps(ranker)), copy(ranker)):
        assert set(vars(again)) <= known
        assert again.predict(data).tobytes() == ranker.predict(data).tobytes()
    if name != "wrapped" and name != "classifier":
        ranker.save(tmp_path / "m.toprank")
        loaded = tr.load(tmp_path / "m.toprank")
        assert set(vars(loaded)) <= {*loaded.get_params(deep=False), *known}


class Secretive(Ranker):
    """A ranker of a user's, which keeps what it learns under names of its own."""

    def __init__(self, bias: float = 1.0) -> None:
        self.bias = bias

    def _fit(self, data, valid):
        self.secret, self._hidden, self.weight_ = self.bias, [1], np.ones(data.n_features)
        if (data.labels == 0).all():
            raise ValueError("nothing is relevant")

    def _scores(self, X):
        return X @ self.weight_ + self.secret + self._hidden[0]


def test_whatever_fit_sets_becomes_part_of_the_record(data):
    ranker = Secretive().fit(data)
    assert set(vars(ranker)) == {"bias", "_record"}
    scores = ranker.set_params(bias=5.0).predict(data)
    with pytest.raises(ValueError, match="nothing is relevant"):
        ranker.fit(data.replace(labels=np.zeros(data.n_documents)))
    np.testing.assert_array_equal(ranker.predict(data), scores)
    np.testing.assert_allclose(ranker.fit(data).predict(data), scores + 4.0)
    assert not hasattr(clone(ranker), "secret")


def test_the_record_cannot_be_written(data):
    ranker = tr.LinearRanker().fit(data)
    with pytest.raises(AttributeError, match="is immutable"):
        ranker.as_fitted.l2 = 1.0
    with pytest.raises(AttributeError, match="is immutable"):
        ranker.as_fitted.coef_ = 1.0
    with pytest.raises(ValueError, match="read-only"):
        ranker.coef_[0] = 1.0
    other = copy(ranker)
    other.intercept_ = ranker.intercept_ + 1.0  # a new record, of this ranker alone
    np.testing.assert_allclose(other.predict(data), ranker.predict(data) + 1.0)


def test_scikit_learn_is_told_whether_a_ranker_is_fitted(data):
    ranker = tr.LinearRanker()
    assert not hasattr(ranker, "coef_")
    assert ranker.encoding_ is None
    with pytest.raises(ValueError, match="not fitted"):
        check_is_fitted(ranker)
    check_is_fitted(ranker.fit(data))
    check_is_fitted(ranker, "coef_")
    assert not hasattr(clone(ranker), "coef_")
