"""The expected-gain ranker: probabilities, gains, calibration, and quality without labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import toprank as tr
from support import nightly
from toprank.data.warnings import SameDataWarning
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.conventions import Discount
from toprank.rankers.base import ConstantScoresWarning
from toprank.rankers.calibration import Calibration, calibration_curve, fit_calibration, variances
from toprank.rankers.expected_dcg import expected_dcg, rank_weights, simulate
from toprank.scorers.expected_gain import expected_gains


@pytest.fixture(scope="module")
def truth():
    return tr.synthetic(n_queries=300, n_documents=(5, 20), n_features=5, n_grades=3, noise=0.5, seed=1)


@pytest.fixture(scope="module")
def fitted(truth):
    return tr.ExpectedGainRanker("Multinomial", l2=1e-4).fit(truth)


@pytest.mark.parametrize("order", ["C", "F"])
def test_equal_probabilities_have_equal_gains_wherever_they_stand(order):
    """BLAS adds the last rows of a table in columns, which LightGBM's are, in another order: ties would break."""
    rng, gains = np.random.default_rng(0), np.array([0.0, 1, 3, 7, 15])
    for n in range(1, 60):
        row = rng.dirichlet(np.ones(5))
        found = expected_gains(np.asarray(np.tile(row, (n, 1)), order=order), gains)
        assert len(set(found.tolist())) == 1
        np.testing.assert_allclose(found[0], sum(gain * share for gain, share in zip(gains, row, strict=True)))


@pytest.mark.parametrize("loss", ["Multinomial", "Ordinal"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_equal_rows_have_equal_scores_wherever_they_stand(loss, calibrated):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 300)
    data = tr.RankingData(rng.normal(size=(300, 13)) + 0.3 * labels[:, None], labels, qid=np.repeat(np.arange(30), 10))
    ranker = tr.ExpectedGainRanker(loss, l2=0.1).fit(data.select(np.arange(15)))
    if calibrated:
        ranker.calibrate(data.select(np.arange(15, 30)))
    for n in range(2, 60):
        row = rng.normal(size=13)
        scores = ranker.predict(np.tile(row, (n, 1)))
        assert len({*scores.tolist(), *ranker.predict(row[None]).tolist()}) == 1


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
    linear = truth.X @ ((ranker.coef_[1] - ranker.coef_[0]) / ranker.standardization_.spread)
    order = np.argsort(linear, kind="stable")
    assert (np.diff(ranker.predict(binary)[order]) >= -1e-6).all()


@pytest.mark.parametrize("loss", ["Cosine", "ListNet", "Squared", "ListMLE", "Logistic"])
@pytest.mark.parametrize("start", ["likelihood", "linear"])
def test_any_loss_trains_it(truth, loss, start):
    ranker = tr.ExpectedGainRanker(loss, l2=1e-3, init=start).fit(truth)
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
    ranker = tr.ExpectedGainRanker("ListNet", l2=1e-3, init="linear").fit(truth)
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
    weights = rank_weights(scores, part.queries, 5, Discount.from_spec("log2"))
    value = expected_dcg(weights, P, np.array([0.0, 1.0, 3.0]), part.queries)
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


# ---- what may be expected without labels ----

GAINS = np.array([0.0, 1.0, 3.0])
RANKING_LOSSES = ["Cosine", "ListNet", "Squared", "LambdaRank"]


def by_loss(loss, data):
    return tr.ExpectedGainRanker(loss, l2=1e-3, max_iterations=200).fit(data)


@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
@pytest.mark.parametrize("loss", [*RANKING_LOSSES[:3], *nightly(*RANKING_LOSSES[3:])])
def test_a_ranking_loss_is_no_forecast_until_it_is_calibrated(truth, loss):
    """The truth is known: E[DCG] of the ranker's order, to which only the calibrated forecast comes close."""
    train, valid, test = tr.split(truth, (0.4, 0.4, 0.2))
    ranker = by_loss(loss, train)
    with pytest.raises(DataError, match=rf"trained under {loss}.*ranker\.calibrate\(valid\)"):
        ranker.expected_dcg(test)
    order = np.argsort(ranker.predict(test), kind="stable")
    assert ranker.calibrate(valid) is ranker
    value = ranker.expected_dcg(test)
    weights = rank_weights(ranker.predict(test), test.queries, 10, Discount.from_spec("log2"))
    known = test.queries.sum(weights * (test.probabilities @ GAINS)).mean()
    assert abs(value.mean.mean() - known) < 0.07 * known  # the level of 120 held-out queries is known to about 3 %
    np.testing.assert_array_equal(np.argsort(ranker.predict(test), kind="stable"), order)  # the order stays
    np.testing.assert_allclose(ranker.predict(test), ranker.predict_proba(test) @ GAINS)
    ranker.fit(train)  # a new fit knows nothing of it
    with pytest.raises(DataError, match="calibrate"):
        ranker.expected_dcg(test)


def test_likelihood_training_may_answer_but_gives_no_interval(truth, fitted):
    value = fitted.expected_dcg(truth)
    mean, deviation = value
    assert mean is value.mean
    assert deviation is value.deviation
    for ask in (value.interval, value.overall_interval):
        with pytest.raises(DataError, match=r"on held-out queries\. .*calibrate\(valid\)"):
            ask()


def with_a_shared_effect(n_queries, shared, seed):
    """Grades whose probabilities are known, and of which the documents of a query have something in common."""
    from scipy.special import ndtri

    data = tr.synthetic(n_queries=n_queries, n_documents=(1, 25), n_features=5, n_grades=3, noise=0.5, seed=seed)
    rng = np.random.default_rng(seed)
    behind = np.sqrt(shared) * data.queries.broadcast(rng.normal(size=n_queries))
    behind += np.sqrt(1 - shared) * rng.normal(size=data.n_documents)
    labels = (behind[:, None] > ndtri(data.probabilities.cumsum(axis=1)[:, :-1])).sum(axis=1)
    return data, data.replace(labels=labels.astype(float))


def coverage(judged, low, high):
    return ((judged >= low - 1e-9) & (judged <= high + 1e-9)).mean()


@pytest.mark.parametrize("shared", [0.0, 0.4])
def test_intervals_hold_where_the_grades_of_a_query_hang_together(shared):
    from scipy.stats import binom

    _, data = with_a_shared_effect(1800, shared, seed=3)
    train, valid, test = (data.select(np.arange(a, a + 600)) for a in (0, 600, 1200))
    ranker = tr.ExpectedGainRanker("Cosine", l2=1e-3).fit(train).calibrate(valid)
    assert ranker.calibration_.shared == pytest.approx(shared, abs=0.12)
    value = ranker.expected_dcg(test)
    judged = tr.evaluate(ranker.predict(test), test, "dcg@10").per_query["dcg@10"]
    within = coverage(judged, *value.interval())
    lowest, highest = binom.ppf([0.0005, 0.9995], 600, 0.95) / 600
    assert lowest <= within <= highest + 0.02  # DCG is not continuous: an interval may hold a little more
    weights = rank_weights(ranker.predict(test), test.queries, 10, Discount.from_spec("log2"))
    alone = expected_dcg(weights, ranker.predict_proba(test), GAINS, test.queries)
    independent = (np.abs(judged - alone.mean) <= 1.96 * alone.deviation).mean()
    assert (independent < lowest) == (shared > 0)
    mean, deviation = value.overall()
    least, most = value.overall_interval()
    assert mean == pytest.approx(value.mean.mean())
    assert abs(judged.mean() - mean) < 4 * deviation
    assert least < mean < most
    assert deviation > np.sqrt((value.deviation**2).sum()) / 600  # the level is uncertain, too, for all alike


def test_the_interval_of_the_mean_holds_as_often_as_it_says():
    """Again and again: 40 queries calibrate, 40 others are foretold; what both have in common is the truth."""
    from scipy.stats import binom

    known, data = with_a_shared_effect(25 * 80, 0.4, seed=4)
    held = 0
    for first in range(0, data.n_queries, 80):
        places = [np.arange(a, a + 40) for a in (first, first + 40)]
        parts, P = [data.select(each) for each in places], [known.select(each).probabilities for each in places]
        weights = [
            rank_weights(p @ GAINS, part.queries, 10, Discount.from_spec("log2"))
            for p, part in zip(P, parts, strict=True)
        ]
        learned = fit_calibration(P[0], GAINS, parts[0].labels, parts[0].queries, weights[0], by_score=True)
        forecast = expected_dcg(weights[1], learned.probabilities(P[1], GAINS), GAINS, parts[1].queries, learned)
        least, most = forecast.overall_interval()
        judged = parts[1].queries.sum(weights[1] * GAINS[parts[1].labels.astype(int)])
        held += least <= judged.mean() <= most
    assert held >= binom.ppf(0.001, 25, 0.95)


@pytest.mark.parametrize("calibration", [Calibration((), True, 0.0, 0.0, 9), Calibration((), True, 0.5, 0.05, 9)])
def test_draws_have_the_moments_that_are_stated(truth, calibration):
    part = truth.select(np.arange(20))
    P = truth.probabilities[: part.n_documents]
    weights = rank_weights(P @ GAINS, part.queries, 5, Discount.from_spec("log2"))
    value = expected_dcg(weights, P, GAINS, part.queries, calibration)
    low, high = simulate(P, weights, GAINS, part.queries, calibration, 0.999)[:2]
    assert (low >= 0).all()
    assert (high <= part.queries.sum(weights) * 3 + 1e-9).all()
    drawn = value.spread.means
    assert drawn.mean() == pytest.approx(value.mean.mean(), abs=4 * drawn.std() / np.sqrt(len(drawn)))
    if calibration.common == 0:
        exact = np.sqrt((value.deviation**2).sum()) / 20
        assert drawn.std() == pytest.approx(exact, rel=4 / np.sqrt(2 * len(drawn)))
    together = (calibration.shared + calibration.common) / (1 + calibration.common)
    np.testing.assert_allclose(value.deviation**2, variances(P, weights, GAINS, part.queries, together))


def test_a_query_of_which_all_documents_agree_has_the_variance_of_one(truth):
    """With everything shared, equal documents have one grade: the deviation is Σ weight times that of the gain."""
    P, queries = np.tile([0.5, 0.3, 0.2], (4, 1)), tr.Queries([0, 4])
    weights = np.array([1.0, 0.5, 0.25, 0.0])
    variance = P[0] @ GAINS**2 - (P[0] @ GAINS) ** 2
    alone = variances(P, weights, GAINS, queries, 0.0)
    assert alone[0] == pytest.approx((weights**2).sum() * variance)
    shares = [variances(P, weights, GAINS, queries, shared)[0] for shared in (0.0, 0.2, 0.5, 0.95)]
    assert (np.diff(shares) > 0).all()
    assert alone[0] < shares[-1] < weights.sum() ** 2 * variance


def test_calibration_is_saved_with_the_model(truth, tmp_path):
    train, valid, test = tr.split(truth)
    ranker = tr.ExpectedGainRanker("Cosine", l2=1e-3).fit(train)
    ranker.save(tmp_path / "raw.toprank")
    with pytest.raises(DataError, match="trained under Cosine"):
        tr.load(tmp_path / "raw.toprank").expected_dcg(test)
    ranker.calibrate(valid).save(tmp_path / "calibrated.toprank")
    again = tr.load(tmp_path / "calibrated.toprank")
    assert again.calibration_ == ranker.calibration_
    one, other = ranker.expected_dcg(test), again.expected_dcg(test)
    np.testing.assert_array_equal([*one, *one.interval()], [*other, *other.interval()])
    np.testing.assert_array_equal(again.predict(test), ranker.predict(test))


def test_a_forged_calibration_is_refused(fitted):
    whole = Calibration(((0.0, 1.0), (0.0, 1.0)), False, 0.2, 0.1, 50).plain()
    assert Calibration.from_plain(whole, 3).shared == 0.2
    for wrong in ({"steps": [[0.0, 1.0]]}, {"steps": [[0.0, -1.0], [0.0, 1.0]]}, {"shared": 1.5}, {"common": -1.0}):
        with pytest.raises(DataError, match="does not match the grades"):
            Calibration.from_plain(whole | wrong, 3)


def test_calibration_on_what_says_too_little(truth, fitted):
    for few in (1, 2):
        with pytest.raises(DataError, match=f"variance between queries, but there are {few}"):
            fitted.calibrate(truth.select(np.arange(few)))
    with pytest.raises(DataError, match="All or nearly all of these documents were trained on"):
        fitted.calibrate(truth)


def disguised(data, more):
    """The training data in other clothes."""
    rng = np.random.default_rng(0)
    order = rng.permutation(data.n_documents)
    scattered = tr.RankingData(data.X[order], data.labels[order], qid=data.qid[order], regroup=True)
    return {
        "permuted queries": data.select(rng.permutation(data.n_queries)),
        "permuted documents": scattered,
        "half of the queries": data.select(np.arange(0, data.n_queries, 2)),
        "half of the documents": data.filter(np.arange(data.n_documents) % 2 == 0),
        "in double precision": data.replace(X=data.X.astype(np.float64)),
        "sparse": data.replace(X=scipy.sparse.csr_array(data.X)),
        "and a query more": tr.concatenate([data, more.select([0])]),
    }


@pytest.mark.parametrize("saved", [False, True])
def test_training_data_are_known_again(truth, saved, tmp_path):
    train, valid = tr.split(truth, (0.6, 0.4))
    train = train.replace(X=train.X.astype(np.float32))
    ranker = tr.ExpectedGainRanker("Cosine", l2=1e-2).fit(train)
    if saved:
        ranker.save(tmp_path / "m.toprank")
        ranker = tr.load(tmp_path / "m.toprank")
    for data in disguised(train, valid).values():
        with pytest.raises(DataError, match="nearly all of these documents were trained on"):
            ranker.calibrate(data)
    with pytest.warns(SameDataWarning, match="[45].% of the calibration documents were trained on"):
        ranker.calibrate(tr.concatenate([valid, train.select(np.arange(valid.n_queries))]))
    ranker.calibrate(truth.resample(7))  # grades drawn anew for the same documents are held out; warnings are errors
    ranker.calibrate(valid)
    assert ranker.calibration_.queries == valid.n_queries


def test_rows_that_everybody_has_are_no_evidence():
    """Features of few values: new queries have the rows of training, and may well be calibrated on."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (600, 3)).astype(float)
    data = tr.RankingData(X, (X.sum(axis=1) > 1).astype(float), qid=np.repeat(np.arange(60), 10))
    ranker = tr.ExpectedGainRanker().fit(data.select(np.arange(40)))
    ranker.calibrate(data.select(np.arange(40, 60)))


@pytest.mark.parametrize("loss", ["Cosine", "Multinomial"])
@pytest.mark.parametrize("grade", [0.0, 2.0, None])
def test_calibration_in_odd_corners(truth, loss, grade):
    """Held-out documents that all have one grade, queries of one document, a cut-off beyond every list."""
    train, valid, test = tr.split(truth)
    labels = valid.labels if grade is None else np.full(valid.n_documents, grade)
    ranker = tr.ExpectedGainRanker(loss, l2=1e-3).fit(train).calibrate(valid.replace(labels=labels))
    P = ranker.predict_proba(test)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    if grade is not None:
        assert P[:, int(grade)].mean() > 0.98  # almost sure, and short of certainty
    single = test.filter(np.diff(np.concatenate([[-1], test.queries.document_query])) > 0)
    assert (single.queries.sizes == 1).all()
    beyond, whole = ranker.expected_dcg(single, k=1000), ranker.expected_dcg(single, k=None)
    np.testing.assert_array_equal([*beyond, *beyond.interval()], [*whole, *whole.interval()])
    np.testing.assert_allclose(beyond.mean, ranker.predict(single))
    low, high = beyond.interval()
    assert np.isin([low, high], GAINS).all()  # what one document can bring
    narrow = ranker.expected_dcg(test, confidence=0.5).interval()
    wide = ranker.expected_dcg(test, confidence=0.99).interval()
    assert (narrow.high - narrow.low <= wide.high - wide.low).all()


def test_the_map_finds_lines_that_are_known(truth):
    """Probabilities bent by a known chain of lines are straightened by it."""
    bent = Calibration(((0.5, 2.0), (-0.5, 1.5)), False, 0.0, 0.0, 0).probabilities(truth.probabilities, GAINS)
    weights = np.ones(truth.n_documents)
    found = fit_calibration(bent, GAINS, truth.labels, truth.queries, weights, by_score=False)
    straight = found.probabilities(bent, GAINS)
    assert np.abs(straight - truth.probabilities).mean() < 0.02 < np.abs(bent - truth.probabilities).mean()


def test_a_classifier_may_be_calibrated_too(truth):
    from sklearn.naive_bayes import GaussianNB

    train, valid, test = tr.split(truth)
    ranker = tr.ExpectedGainRanker(classifier=GaussianNB()).fit(train)
    before = ranker.calibration_curve(test).error
    assert ranker.calibrate(valid).calibration_curve(test).error < max(before, 0.05)
    low, high = ranker.expected_dcg(test).interval()
    assert (low <= high).all()


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
    with pytest.raises(DataError, match="must be integers"):
        tr.ExpectedGainRanker().fit(truth.replace(labels=truth.labels + 0.5))
    with pytest.raises(DataError, match="n_grades is 2"):
        tr.ExpectedGainRanker(n_grades=2).fit(truth)
    with pytest.raises(DataError, match="is not in the training data"):
        fitted.calibrate(truth.replace(labels=truth.labels + 1))
    with pytest.raises(UnknownNameError, match="likelihood"):
        tr.ExpectedGainRanker("ListNet", init="likelyhood").fit(truth)
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
