"""AdaRank, RankBoost and coordinate ascent as rankers in rounds: watched, interrupted, and on sparse features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

import toprank as tr
from toprank.evaluation.scores import BoundMetric
from toprank.rankers.base import ConvergenceWarning
from toprank.rankers.early_stopping import LoopStopping
from toprank.rankers.linear import single_feature

SMALL = {
    "AdaRank": tr.AdaRank(max_rounds=12),
    "RankBoost": tr.RankBoost(max_rounds=12),
    "CoordinateAscent": tr.CoordinateAscent(restarts=2, max_cycles=3, steps=4, tolerance=0),
}


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=40, n_features=6, truth="nonlinear", seed=0)


@pytest.fixture(scope="module")
def valid():
    return tr.synthetic(n_queries=20, n_features=6, truth="nonlinear", seed=1)


def interrupted_in(monkeypatch, method, number):
    """The keyboard interrupts the `number`-th call of a method of the watch or of a judge."""
    kind = LoopStopping if method == "note" else BoundMetric
    call, calls = getattr(kind, method), []

    def interrupt(self, *given):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return call(self, *given)

    monkeypatch.setattr(kind, method, interrupt)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("with_valid", [False, True])
def test_the_history_is_that_of_shorter_trainings(name, with_valid, data, valid):
    """The metric of each round is the one that a training of so many rounds ends with."""
    ranker = tr.rankers.estimator.unfitted(SMALL[name]).fit(data, valid=valid if with_valid else None)
    assert ranker.history_["round"] == list(range(1, len(ranker.history_["round"]) + 1))
    assert ranker.stopped_ == f"All {len(ranker.history_['round'])} rounds were completed."
    assert not ranker.was_interrupted
    if name == "RankBoost":
        assert ("valid" in ranker.history_) == with_valid
    if name == "AdaRank":
        judged, metric = (valid, "valid") if with_valid else (data, "train")
        best = int(np.argmax(ranker.history_[metric]))
        assert ranker.rounds_ == best + 1
        reached = tr.evaluate(ranker.predict(judged), judged, "map").mean["map"]
        assert ranker.history_[metric][best] == pytest.approx(reached, abs=1e-12)
    if name == "CoordinateAscent" and not with_valid:
        reached = tr.evaluate(ranker.predict(data), data, "ndcg@10").mean["ndcg@10"]
        assert max(ranker.history_["train"]) == pytest.approx(reached, abs=1e-12)


@pytest.mark.parametrize("name", ["AdaRank", "RankBoost"])
def test_an_interrupt_keeps_the_rounds_until_then(name, data, monkeypatch):
    fewer = tr.rankers.estimator.unfitted(SMALL[name]).set_params(max_rounds=4).fit(data)
    ranker = tr.rankers.estimator.unfitted(SMALL[name])
    interrupted_in(monkeypatch, "note", 5)
    with pytest.warns(
        ConvergenceWarning, match=rf"^{name}: Interrupted after 4 rounds\. The best model until then is kept"
    ):
        ranker.fit(data)
    assert ranker.was_interrupted
    assert ranker.predict(data).tobytes() == fewer.predict(data).tobytes()


@pytest.mark.parametrize("name", ["AdaRank", "RankBoost"])
def test_an_interrupt_before_the_first_round_is_not_swallowed(name, data, monkeypatch):
    ranker = tr.rankers.estimator.unfitted(SMALL[name])
    interrupted_in(monkeypatch, "note", 1)
    with pytest.raises(KeyboardInterrupt):
        ranker.fit(data)
    assert not hasattr(ranker, "training_")


def test_an_interrupted_ascent_keeps_what_the_cycle_found(data, monkeypatch):
    """Even in the first: a cycle over many features takes long."""
    start = tr.evaluate(np.asarray(data.X, float) / data.X.std(axis=0) @ np.full(6, 1 / 6), data, "ndcg@10")
    ranker = tr.rankers.estimator.unfitted(SMALL["CoordinateAscent"])
    interrupted_in(monkeypatch, "per_query", 30)
    with pytest.warns(ConvergenceWarning, match="Interrupted after 1 rounds"):
        ranker.fit(data)
    monkeypatch.undo()
    reached = tr.evaluate(ranker.predict(data), data, "ndcg@10").mean["ndcg@10"]
    assert ranker.training_["train"]["ndcg@10"] == pytest.approx(reached, abs=1e-12)
    assert reached > start.mean["ndcg@10"]


@pytest.mark.parametrize("name", SMALL)
def test_progress_is_told(name, data, valid, capsys):
    tr.rankers.estimator.unfitted(SMALL[name]).set_params(verbose=True).fit(data, valid=valid)
    told = capsys.readouterr().err
    assert "round 12/12" in told or "round 6/6" in told


@pytest.mark.parametrize("name", ["AdaRank", "CoordinateAscent"])
def test_sparse_features_give_the_same_ranker(name, data):
    X = np.where(np.abs(data.X) < 0.5, 0, data.X).astype(np.float64)
    X[3, 2] = np.nan  # missing, also where stored
    dense = tr.RankingData(X, data.labels, qid=data.qid)
    sparse = tr.RankingData(scipy.sparse.csr_matrix(X), data.labels, qid=data.qid)
    first, second = (tr.rankers.estimator.unfitted(SMALL[name]).fit(one) for one in (dense, sparse))
    assert first.coef_.any()
    np.testing.assert_allclose(second.coef_, first.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(second.predict(sparse), first.predict(dense), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(first.predict(sparse), first.predict(dense), rtol=1e-9, atol=1e-9)


def test_three_rankers_share_one_weighted_sum(data, monkeypatch):
    """s = b + w·(x − center), what is missing at the center."""
    for ranker in (tr.LinearRanker("Squared"), *(SMALL[name] for name in ("AdaRank", "CoordinateAscent"))):
        fitted = tr.rankers.estimator.unfitted(ranker).fit(data)
        assert isinstance(fitted, single_feature.WeightedSum)
        assert type(fitted)._scores is single_feature.WeightedSum._scores
        X = np.array(data.X, float)
        X[0, 1] = np.nan
        filled = np.where(np.isnan(X), fitted.standardization_.center, X)
        at_zero = getattr(fitted, "intercept_", -fitted.coef_ @ fitted.standardization_.center)
        expected = at_zero + filled @ fitted.coef_
        np.testing.assert_allclose(fitted.predict(data.replace(X=X)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SMALL)
def test_what_chose_is_kept_with_the_rules_of_its_metric(data, valid, name):
    ranker = clone(SMALL[name]).set_params(metric="ndcg@5", convention="letor4").fit(data, valid=valid)
    kept = ranker.training_["valid"]
    assert kept["convention"] == "letor4"
    assert isinstance(kept["ndcg@5"], float)


def test_validation_data_in_single_precision_are_judged_as_they_are_scored():
    """A threshold of 0.1 lies below the float32 that is called 0.1."""
    X = np.random.default_rng(0).choice([0.1, 0.2, 0.3], (40, 1))
    labels, qid = (X[:, 0] > 0.15).astype(float), np.arange(40) // 4
    valid = tr.RankingData(X.astype(np.float32), 1 - labels, qid=qid)
    ranker = tr.RankBoost(max_rounds=1, metric="ndcg@10").fit(X, labels, qid=qid, valid=valid)
    assert ranker.thresholds_.tolist() == [0.1]
    wanted = tr.evaluate(ranker.predict(valid), valid, "ndcg@10").mean["ndcg@10"]
    assert ranker.training_["valid"]["ndcg@10"] == pytest.approx(wanted, abs=1e-12)
