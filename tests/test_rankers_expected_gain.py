"""The expected-gain ranker: probabilities, gains, calibration, and quality without labels."""

from __future__ import annotations

import numpy as np
import pytest

import toprank as tr
from toprank.errors import DataError, UnknownNameError
from toprank.rankers.base import ConstantScoresWarning
from toprank.rankers.probabilities import calibration_curve, expected_dcg


@pytest.fixture(scope="module")
def truth():
    return tr.synthetic(n_queries=300, n_documents=(5, 20), n_features=5, n_grades=3, noise=0.5, seed=1)


@pytest.fixture(scope="module")
def fitted(truth):
    return tr.ExpectedGainRanker("Multinomial", l2=1e-4).fit(truth)


def test_likelihood_equals_multinomial_logistic_regression(truth):
    from sklearn.linear_model import LogisticRegression

    l2, n_queries = 0.05, truth.n_queries
    Z = (truth.X - truth.X.astype(float).mean(axis=0)) / truth.X.astype(float).std(axis=0)
    # ours: mean over queries of summed likelihood + l2/2 ‖w‖²; theirs: C·Σ + ½‖w‖²
    theirs = LogisticRegression(C=1 / (l2 * n_queries), tol=1e-10, max_iter=2000).fit(Z, truth.labels)
    ours = tr.ExpectedGainRanker("Multinomial", l2=l2, tolerance=1e-9).fit(truth)
    np.testing.assert_allclose(ours.predict_proba(truth), theirs.predict_proba(Z), atol=2e-5)


@pytest.mark.parametrize("loss", ["Multinomial", "Ordinal"])
def test_likelihoods_are_solved_by_newton(truth, loss):
    """Where the penalty is weak, L-BFGS would need a thousand iterations and more."""
    ranker = tr.ExpectedGainRanker(loss, l2=1e-6).fit(truth)
    assert ranker.solution_.converged
    assert ranker.solution_.iterations < 20
    slowly = tr.ExpectedGainRanker(loss, l2=1e-6, solver="lbfgs", tolerance=1e-9, max_iterations=20_000).fit(truth)
    assert ranker.solution_.value <= slowly.solution_.value * (1 + 1e-12)
    np.testing.assert_allclose(ranker.predict_proba(truth), slowly.predict_proba(truth), atol=1e-4)
    with pytest.raises(UnknownNameError, match="'newton'"):
        tr.ExpectedGainRanker(loss, solver="newtons").fit(truth)


def test_probabilities_and_scores(truth, fitted):
    P = fitted.predict_proba(truth)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    np.testing.assert_allclose(fitted.predict(truth), P @ [0, 1, 3])
    np.testing.assert_allclose(fitted.predict(truth, gain="linear"), P @ [0, 1, 2])
    np.testing.assert_allclose(fitted.predict(truth, gain=[0, 0, 1]), P[:, 2])
    # The truth is known: the estimate approaches it.
    assert np.abs(P - truth.probabilities).mean() < 0.05
    optimal = tr.evaluate(truth.expected_gain(), truth, "dcg@10").mean["dcg@10"]
    assert tr.evaluate(fitted.predict(truth), truth, "dcg@10").mean["dcg@10"] > 0.98 * optimal


def test_two_grades_are_a_monotone_function_of_a_linear_score(truth):
    binary = truth.replace(labels=(truth.labels > 0).astype(float))
    ranker = tr.ExpectedGainRanker("Multinomial").fit(binary)
    linear = truth.X @ ((ranker.coef_[1] - ranker.coef_[0]) / ranker.standardisation_.spread)
    order = np.argsort(linear, kind="stable")
    assert (np.diff(ranker.predict(binary)[order]) >= -1e-6).all()


@pytest.mark.parametrize("loss", ["Cosine", "ListNet", "Squared", "ListMLE", "Logistic"])
@pytest.mark.parametrize("start", ["likelihood", "linear"])
def test_any_loss_trains_it(truth, loss, start):
    ranker = tr.ExpectedGainRanker(loss, l2=1e-3, start=start).fit(truth)
    assert ranker.solution_.converged
    optimal = tr.evaluate(truth.expected_gain(), truth).mean["ndcg@10"]
    assert tr.evaluate(ranker.predict(truth), truth).mean["ndcg@10"] > 0.95 * optimal


def test_saturation_belongs_to_plain_descent(truth):
    with pytest.raises(DataError, match="descent"):
        tr.ExpectedGainRanker("Squared", saturation=0.9).fit(truth)
    ranker = tr.ExpectedGainRanker("Squared", saturation=0.9, solver="descent", max_iterations=200, tolerance=1e-3)
    assert np.isfinite(ranker.fit(truth).predict(truth)).all()


def test_restarts_never_worsen_the_objective(truth):
    once = tr.ExpectedGainRanker("Cosine", l2=1e-3).fit(truth)
    often = tr.ExpectedGainRanker("Cosine", l2=1e-3, restarts=2).fit(truth)
    assert often.solution_.value <= once.solution_.value + 1e-12


def test_calibration_on_held_out_data(truth):
    ranker = tr.ExpectedGainRanker("ListNet", l2=1e-3, start="linear").fit(truth)
    held_out = truth.resample(5)

    def log_loss():
        return -np.log(ranker.predict_proba(held_out)[np.arange(len(held_out)), held_out.labels.astype(int)]).mean()

    before, error = log_loss(), ranker.calibration_curve(held_out).error
    ranker.calibrate(held_out)
    assert log_loss() <= before + 1e-9
    assert ranker.calibration_curve(truth.resample(6)).error < max(0.05, error)
    curve = tr.ExpectedGainRanker("Multinomial").fit(truth).calibration_curve(held_out)
    assert curve.error < 0.04
    assert curve.documents.sum() == held_out.n_documents


def test_calibration_curve_by_hand():
    curve = calibration_curve(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0.0, 1.0, 1.0, 1.0]), bins=2)
    assert curve.predicted.tolist() == [0.1, 0.9]
    assert curve.observed.tolist() == [0.5, 1.0]
    assert curve.error == pytest.approx((0.4 + 0.1) / 2)


def test_expected_dcg_equals_simulation(truth):
    part = truth.select(np.arange(6))
    P = truth.probabilities[: part.n_documents]
    scores = np.round(truth.expected_gain()[: part.n_documents], 1)  # with ties
    from toprank.metrics.gains import Discount

    value = expected_dcg(scores, P, np.array([0.0, 1.0, 3.0]), part.queries, 5, Discount.of("log2"))
    rng, drawn = np.random.default_rng(0), []
    for _ in range(1500):
        labels = (rng.uniform(size=(len(P), 1)) > P.cumsum(axis=1)).sum(axis=1)
        drawn.append(tr.evaluate(scores, part.replace(labels=labels), "dcg@5").per_query["dcg@5"])
    drawn = np.array(drawn)
    np.testing.assert_allclose(value.mean, drawn.mean(axis=0), atol=5 * drawn.std() / np.sqrt(1500))
    np.testing.assert_allclose(value.deviation, drawn.std(axis=0), rtol=0.1)


def test_expected_dcg_of_the_ranker(truth, fitted):
    mean, deviation = fitted.expected_dcg(truth, k=5).overall()
    seen = tr.evaluate(fitted.predict(truth), truth, "dcg@5").mean["dcg@5"]
    assert abs(mean - seen) < 4 * deviation + 0.05 * seen


def test_the_grades_of_the_columns_are_named(truth, fitted):
    assert not hasattr(tr.ExpectedGainRanker(), "classes_")
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert tr.ExpectedGainRanker(n_grades=5).fit(truth).classes_.tolist() == [0, 1, 2, 3, 4]


def test_labels_that_are_all_alike_are_said(truth):
    with pytest.warns(ConstantScoresWarning, match="all training documents have the label 2"):
        tr.ExpectedGainRanker().fit(truth.replace(labels=np.full(truth.n_documents, 2.0)))


@pytest.mark.parametrize("calibration", [None, "sigmoid", "isotonic"])
def test_plug_in_from_a_classifier(truth, calibration):
    from sklearn.linear_model import LogisticRegression

    ranker = tr.ExpectedGainRanker(classifier=LogisticRegression(), calibration=calibration).fit(truth)
    np.testing.assert_allclose(ranker.predict_proba(truth).sum(axis=1), 1.0)
    optimal = tr.evaluate(truth.expected_gain(), truth).mean["ndcg@10"]
    assert tr.evaluate(ranker.predict(truth), truth).mean["ndcg@10"] > 0.95 * optimal


def test_wrong_input_is_a_sentence(truth, fitted):
    with pytest.raises(DataError, match="whole numbers"):
        tr.ExpectedGainRanker().fit(truth.replace(labels=truth.labels + 0.5))
    with pytest.raises(DataError, match="n_grades is 2"):
        tr.ExpectedGainRanker(n_grades=2).fit(truth)
    with pytest.raises(DataError, match="training never showed"):
        fitted.calibrate(truth.replace(labels=truth.labels + 1))
    with pytest.raises(UnknownNameError, match="likelihood"):
        tr.ExpectedGainRanker("ListNet", start="likelyhood").fit(truth)
    with pytest.raises(DataError, match="predict_proba"):
        tr.ExpectedGainRanker(classifier=object()).fit(truth)


def test_proportional_odds(truth):
    """The synthetic truth is an ordinal model, so the ordinal likelihood finds it with one direction."""
    ranker = tr.ExpectedGainRanker("Ordinal", l2=1e-5, tolerance=1e-8).fit(truth)
    assert ranker.coef_.shape == (1, 5)
    assert (np.diff(-ranker.intercept_) > 0).all()  # thresholds rise
    P = ranker.predict_proba(truth)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert np.abs(P - truth.probabilities).mean() < 0.02
    likelihood = np.log(P[np.arange(len(truth)), truth.labels.astype(int)]).mean()
    known = np.log(truth.probabilities[np.arange(len(truth)), truth.labels.astype(int)]).mean()
    assert likelihood >= known - 1e-3  # the fit is at least as likely as the truth, up to the penalty


def test_proportional_odds_with_a_grade_nobody_has(truth, tmp_path):
    gap = truth.replace(labels=np.where(truth.labels == 1, 0, truth.labels))
    ranker = tr.ExpectedGainRanker("Ordinal").fit(gap)
    P = ranker.predict_proba(gap)
    assert (P >= 0).all()
    assert P[:, 1].max() < 0.05
    ranker.save(tmp_path / "m.toprank")
    np.testing.assert_array_equal(tr.load(tmp_path / "m.toprank").predict(gap), ranker.predict(gap))
