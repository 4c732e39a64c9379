"""Training on clicks: what is right in expectation, what is not, and what that does to rankers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, binomtest

import toprank as tr
from clicks_evidence import correct
from toprank.clicks import PBM, ClickLog
from toprank.clicks.corrections import resolve_curves
from toprank.clicks.evaluation import evaluate
from toprank.clicks.evidence import bind, out_of_fold_regression
from toprank.clicks.simulation import relevance_of
from toprank.data.concatenation import concatenate
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError
from toprank.losses import LambdaLoss, LambdaRank, ListNet, Logistic, Multicategory, QuerySquared, SafeDCG, Squared
from toprank.metrics.sorting import ranking
from toprank.rankers import ExpectedGainRanker, LinearRanker, NeuralRanker, TreeRanker
from toprank.significance import Interval

THETA = np.array([1.0, 0.6, 0.4, 0.25, 0.15])
RIGHT, WRONG = np.array([1.0, 0.95, 0.9, 0.85, 0.8]), np.array([0.5, 0.35, 0.2, 0.1, 0.05])
TRUST = np.stack([THETA * (RIGHT - WRONG), THETA * WRONG])


def train(*given, folds=0, **options):
    """Without held-out queries unless they are asked for: comparing rankers takes most of the time."""
    return tr.clicks.train(*given, folds=folds, **options)


def little(n_queries=4, m=5, seed=0):
    """Queries of m documents each, of which all are shown, and how likely each is liked."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_queries * m, 3))
    data = RankingData(X, rng.integers(0, 2, len(X)), qid=np.repeat(np.arange(n_queries), m))
    return data, rng.uniform(0, 1, len(X))


@pytest.fixture(scope="module")
def many_labels():
    """Corrected relevance from many logs of users with and without trust, and what is right."""
    data, liked = little()
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("ips", "snips", "affine", "dr", "none")}
    guess = np.random.default_rng(5).uniform(0, 1, len(liked))
    for seed in range(400):
        options = {"sessions": 60, "k": 5, "relevance": liked, "noise": 0.0, "exploration": 0.5, "seed": seed}
        log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), **options)
        trusting = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), **options, trust=(RIGHT, WRONG))
        for name, values in found.items():
            used, curves = (trusting, TRUST) if name in ("affine", "snips") else (log, THETA)
            values.append(correct(used, data, name, resolve_curves(curves, used), 0.0, guess).relevance)
    return data, liked, {name: np.array(values) for name, values in found.items()}


def surprise(samples, expected):
    """How many standard errors the means lie from what is expected, at most."""
    error = samples.std(axis=0) / np.sqrt(len(samples))
    return float((np.abs(samples.mean(axis=0) - expected) / np.maximum(error, 1e-12)).max())


@pytest.mark.parametrize("name", ["ips", "snips", "affine", "dr"])
def test_corrected_clicks_are_right_in_expectation_and_rates_are_not(many_labels, name):
    _, liked, found = many_labels
    assert surprise(found[name], liked) < 4.5  # of 20 documents
    assert surprise(found["none"], liked) > 20


def gradients(loss, data, labels, scores):
    return np.array([loss.on(one, data.queries).at(scores).grad for one in labels])


@pytest.mark.parametrize(
    "loss", [Squared(gain=None), QuerySquared(gain=None), Multicategory(gain=None), LambdaLoss("arp1")]
)
def test_risk_and_gradient_are_unbiased_where_the_loss_is_linear_in_the_gains(many_labels, loss):
    data, liked, found = many_labels
    assert loss.traits.linear_in_gain
    scores = np.random.default_rng(1).standard_normal(data.n_documents)
    whole = loss.on(liked, data.queries).at(scores)
    assert surprise(gradients(loss, data, found["affine"], scores), whole.grad) < 4.5
    # Risks differ by what does not depend on the scores: compare how much two rankings differ.
    other = loss.on(liked, data.queries).at(-scores).value
    bound = [loss.on(one, data.queries) for one in found["affine"]]
    differences = np.array([[one.at(scores).value - one.at(-scores).value] for one in bound])
    assert surprise(differences, whole.value - other) < 4.5


@pytest.mark.parametrize("loss", [ListNet(alpha=5.0), Logistic(), Logistic("difference"), LambdaLoss("arp2")])
def test_a_loss_that_is_not_linear_is_biased_by_the_noise_of_clicks(many_labels, loss):
    data, liked, found = many_labels
    assert not loss.traits.linear_in_gain
    scores = np.random.default_rng(1).standard_normal(data.n_documents)
    assert surprise(gradients(loss, data, found["affine"], scores), loss.on(liked, data.queries).at(scores).grad) > 6


def test_the_approximation_is_biased_and_less_so_with_more_clicks():
    data, liked = little()
    bias = []
    for sessions in (40, 4000):
        labels = []
        for seed in range(60):
            log = tr.clicks.simulate(
                data, data.X[:, 0], PBM.from_parameters(THETA), sessions, k=5, relevance=liked, noise=0.0, seed=seed
            )
            labels.append(np.clip(correct(log, data, "affine", resolve_curves(THETA, log)).relevance, 0, 1))
        bias.append(np.abs(np.mean(labels, axis=0) - liked).mean())
    assert bias[0] > 0.05 > 5 * bias[1]


# --- formulas, by hand ---------------------------------------------------------------------------------------------


def by_hand():
    data = RankingData([[1.0], [2.0], [3.0]], qid=["q"] * 3, document_ids=["x", "y", "z"])
    log = ClickLog.from_columns(["q"] * 6, list("xyyxxy"), [1, 2, 1, 2, 1, 2], [1, 0, 1, 1, 0, 0])
    return data, log


@pytest.mark.parametrize(
    ("correction", "x", "y"),
    [
        ("none", 2 / 3, 1 / 3),
        ("ips", (1 / 1.0 + 0 + 1 / 0.5) / 3, (0 + 0 + 1 / 1.0) / 3),
        ("affine", ((1 - 0.2) / 0.8 + (0 - 0.2) / 0.8 + (1 - 0.1) / 0.4) / 3,
         ((0 - 0.1) / 0.4 + (1 - 0.2) / 0.8 + (0 - 0.1) / 0.4) / 3),
        ("snips", (2 - 0.5) / (0.8 + 0.8 + 0.4), (1 - 0.4) / (0.4 + 0.8 + 0.4)),
    ],
)  # fmt: skip
def test_corrections_are_their_formulas(correction, x, y):
    data, log = by_hand()
    found = correct(log, data, correction, resolve_curves([[0.8, 0.4], [0.2, 0.1]], log))
    assert found.relevance[:2] == pytest.approx([x, y])
    assert np.isnan(found.relevance[2])
    assert found.shown.tolist() == [3, 3, 0]


def test_doubly_robust_keeps_the_regression_for_what_is_clipped_and_for_what_was_never_shown():
    data, log = by_hand()
    guess = np.array([0.5, 0.25, 0.75])
    curves = resolve_curves([1.0, 0.5], log)
    found = correct(log, data, "dr", curves, 0.9, guess).relevance
    assert found[0] == pytest.approx(0.5 + (2 - 2.5 * 0.5) / (0.9 * 3))  # two clicks; looked at 2.5 times of 3
    assert found[2] == 0.75
    unclipped = correct(log, data, "dr", curves, 0.0, guess).relevance[:2]
    assert unclipped == pytest.approx(correct(log, data, "snips", curves).relevance[:2])  # no regression is left


def doubly_robust(guess, propensities, clip, count=300):
    """Corrected relevance from many logs of one ranker's top 3 of 5, and what it estimates."""
    data, liked = little(seed=1)
    options = {"sessions": 80, "k": 3, "relevance": liked, "noise": 0.0}
    logs = [
        tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA[:3]), **options, seed=seed)
        for seed in range(count)
    ]
    told = liked if guess == "right" else np.full(len(liked), 0.5)
    found = [correct(log, data, "dr", resolve_curves(propensities, log), clip, told).relevance for log in logs]
    seen = np.zeros(len(liked), dtype=bool)
    seen[np.unique(logs[0].pair)] = True
    return liked, seen, np.array(found)


def test_doubly_robust_is_unbiased_if_the_regression_is_right_or_nothing_is_clipped_and_propensities_are():
    liked, seen, found = doubly_robust("right", THETA[:3], clip=0.7)
    assert not seen.all()
    np.testing.assert_allclose(found[:, ~seen], np.tile(liked[~seen], (len(found), 1)))
    assert surprise(found[:, seen], liked[seen]) < 4.5
    liked, seen, found = doubly_robust("wrong", THETA[:3], clip=0.0)
    assert surprise(found[:, seen], liked[seen]) < 4.5
    # What is clipped keeps what the regression is wrong by, in proportion; no regression mends wrong propensities.
    liked, seen, found = doubly_robust("wrong", THETA[:3], clip=0.7)
    assert surprise(found[:, seen], liked[seen]) > 10
    liked, seen, found = doubly_robust("right", THETA[:3] ** 2, clip=0.0)
    assert surprise(found[:, seen], liked[seen]) > 10


def test_the_regression_of_a_query_does_not_know_its_own_clicks():
    data, liked = little(n_queries=12, seed=2)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 600, k=5, relevance=liked, exploration=0.5)
    found = out_of_fold_regression(bind(log, data, propensities=THETA))
    turned = replace(log, clicks=np.where(log.query == 3, ~log.clicks, log.clicks))
    again = out_of_fold_regression(bind(turned, data, propensities=THETA))
    mine = data.queries.document_query == 3
    np.testing.assert_array_equal(found[mine], again[mine])
    assert not np.isclose(found[~mine], again[~mine]).all()


def test_cross_fitted_doubly_robust_labels_are_right_in_expectation():
    data, liked = little(n_queries=10, seed=4)
    labels = []
    for seed in range(60):
        log = tr.clicks.simulate(
            data,
            data.X[:, 0],
            PBM.from_parameters(THETA),
            150,
            k=5,
            relevance=liked,
            noise=0.0,
            exploration=0.5,
            seed=seed,
        )
        curves = resolve_curves(THETA, log)
        labels.append(correct(log, data, "dr", curves, 0.0).relevance)
    assert surprise(np.array(labels), liked) < 4.5


def test_a_relevance_of_minus_one_is_a_label_and_not_a_missing_one():
    data = RankingData([[0.0], [1.0]], qid=["q", "q"], document_ids=["x", "y"])
    log = ClickLog.from_columns(["q", "q"], ["x", "y"], [1, 2], [0, 1])
    done = train(LinearRanker("Squared"), log, data, "affine", [[0.5, 0.25], [0.5, 0.25]])
    assert done.data.labels == pytest.approx([-1.0, 3.0])
    assert done.data.judged.all()
    assert done.counts["negative"] == 1


# --- rankers -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collection():
    """MQ2008 where there is a folder of data, or synthetic queries; and a logger that is half-good."""
    root = os.environ.get("TOPRANK_DATA")
    parts = [] if root is None else [Path(root) / "letor" / "MQ2008" / f"S{i}.txt" for i in range(1, 6)]
    real = bool(parts) and all(part.exists() for part in parts)
    if real:
        learned, test = concatenate([tr.read(part) for part in parts[:3]]), tr.read(parts[4])
    else:
        both = tr.synthetic(n_queries=600, n_documents=(10, 10), n_features=8, seed=0)
        learned, test = both.select(np.arange(300)), both.select(np.arange(300, 600))
    shown = LinearRanker("Squared").fit(learned.select(np.arange(0, learned.n_queries, 20))).predict(learned)
    return learned, test, shown if real else shown + learned.X[:, 4]  # which of itself would be too good


def ndcg(ranker, data):
    return tr.evaluate(ranker.predict(data), data, "ndcg@10").mean["ndcg@10"]


def clicked(collection, sessions, **options):
    learned, _, logger = collection
    depth = int(learned.queries.sizes.max())
    theta = 1 / np.arange(1.0, depth + 1)
    return tr.clicks.simulate(learned, logger, PBM.from_parameters(theta), sessions, k=depth, **options), theta


def test_the_debiased_ranker_approaches_full_information_and_the_naive_one_does_not(collection):
    learned, test, _ = collection
    full = LinearRanker(Multicategory(gain=None)).fit(learned.replace(labels=relevance_of(learned)))
    log, theta = clicked(collection, 60_000)
    done = train(LinearRanker("ListNet"), log, learned, "affine", theta, full_information=True, valid=test)
    assert done.loss == (Multicategory(gain=None), ListNet())
    assert done.full_information.coef_ == pytest.approx(full.coef_)
    assert ndcg(done.ranker, test) > ndcg(full, test) - 0.01
    assert ndcg(done.naive, test) < ndcg(full, test) - 0.01
    rankers = {"affine": done.ranker, "naive": done.naive, "full information": done.full_information}
    assert {name: one.value for name, one in done.metrics.items()} == {n: ndcg(one, test) for n, one in rankers.items()}
    words = str(done)
    assert "linear form" in words
    assert "The correction is valid if the probability of a click is α·R + β" in words
    assert "naive" in words


def test_wrong_propensities_do_not_debias(collection):
    """Flat ones are the naive ranker; those read off the clicks of a good logger are too steep."""
    learned, test, _ = collection
    log, theta = clicked(collection, 60_000)
    right = train(LinearRanker("Squared"), log, learned, "affine", theta)
    flat = train(LinearRanker("Squared"), log, learned, "affine", np.ones_like(theta))
    np.testing.assert_allclose(flat.ranker.predict(test), flat.naive.predict(test), rtol=1e-9, atol=1e-9)
    liked = relevance_of(learned)
    confounded = np.bincount(log.position - 1, log.clicks) / np.bincount(log.position - 1)
    confounded = np.maximum(confounded / confounded[0], 1e-3)
    assert (confounded[3:10] < theta[3:10]).all()  # the good stand above: clicks fall faster than looks
    expected = 0.1 + 0.9 * liked
    error = [np.nanmean(np.abs(correct(log, learned, "affine", resolve_curves(one, log)).relevance - expected))
             for one in (theta, confounded)]  # fmt: skip
    assert error[0] < error[1]
    assert ndcg(right.ranker, test) > ndcg(flat.ranker, test)


@pytest.mark.parametrize("users", ["PBM", "DBN"])
def test_more_clicks_mend_noise_and_never_a_wrong_model_which_other_sessions_betray(users):
    """Users who read from the top until they are satisfied are none whose looks depend on the position alone."""
    data, _ = little(n_queries=60, m=5, seed=0)
    liked = 1 / (1 + np.exp(-2 * data.X[:, 1]))
    model = PBM.from_parameters(THETA) if users == "PBM" else tr.clicks.DBN.from_parameters(0.9)
    errors = []
    for sessions in (3_000, 60_000):
        options = {"k": 5, "relevance": liked, "noise": 0.0, "exploration": 0.2}
        log = tr.clicks.simulate(data, -data.X[:, 1], model, sessions, **options)
        looked = tr.clicks.propensities(log, "randomization", n_resamples=2)
        errors.append(np.abs(correct(log, data, "affine", resolve_curves(looked, log)).relevance - liked).mean())
    few = log.select(np.arange(10_000))
    likeliest = tr.clicks.compare_models(few, [PBM(), tr.clicks.DBN()], n_resamples=2).names[0]
    assert likeliest == users
    if users == "PBM":
        assert errors[1] < errors[0] / 2
    else:
        assert errors[1] > 0.25


def rankers():
    yield LinearRanker("Squared")
    yield LinearRanker(Logistic())
    yield TreeRanker("ListNet", n_trees=10)
    yield TreeRanker("Squared", n_trees=10)
    yield ExpectedGainRanker("Squared")


@pytest.mark.parametrize("correction", ["snips", "affine", "dr", "safe"])
@pytest.mark.parametrize("ranker", list(rankers()), ids=lambda one: f"{type(one).__name__}-{one.loss}")
def test_every_scorer_learns_from_labels_below_zero(ranker, correction, tmp_path):
    data, liked = little(n_queries=40, m=5, seed=3)
    liked = 1 / (1 + np.exp(-2 * data.X[:, 1]))
    log = tr.clicks.simulate(
        data, data.X[:, 0], PBM.from_parameters(THETA), 3000, k=5, relevance=liked, trust=(RIGHT, WRONG)
    )
    done = train(ranker, log, data, correction, TRUST)
    assert done.counts["negative"] > 0
    scores = done.ranker.predict(data)
    assert np.corrcoef(scores, liked)[0, 1] > 0.6
    done.ranker.save(tmp_path / "m.toprank")
    np.testing.assert_array_equal(tr.load(tmp_path / "m.toprank").predict(data), scores)


def test_networks_learn_from_labels_below_zero():
    pytest.importorskip("torch")
    data, liked = little(n_queries=40, m=5, seed=3)
    liked = 1 / (1 + np.exp(-2 * data.X[:, 1]))
    log = tr.clicks.simulate(
        data, data.X[:, 0], PBM.from_parameters(THETA), 3000, k=5, relevance=liked, trust=(RIGHT, WRONG)
    )
    done = train(NeuralRanker("ListNet", epochs=20), log, data, "affine", TRUST)
    assert np.corrcoef(done.ranker.predict(data), liked)[0, 1] > 0.6


def dcg_of(scores, data, liked):
    """The mean DCG of the rankings by what users like."""
    rank = np.empty(len(liked), dtype=int)
    rank[ranking(scores, data.queries).order] = data.queries.positions_in_query
    return float(data.queries.sum(liked / np.log2(rank + 2)).mean())


@pytest.mark.parametrize("within", [1.0, 1.1, 1.5])
@pytest.mark.parametrize("seed", [4, 5])
def test_safe_training_does_bounded_harm_where_the_propensities_are_wrong(within, seed):
    """With no less than 1/within of its exposure for any document, no users lose more than that share of their DCG."""
    data, _ = little(n_queries=60, m=5, seed=seed)
    liked = 1 / (1 + np.exp(-2 * data.X[:, 0]))  # the logger is right already
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 6000, k=5, relevance=liked, noise=0)
    wrong = THETA**4  # far too steep: what stands below seems worth more
    before = dcg_of(data.X[:, 0], data, liked)
    bold = train(LinearRanker("Squared"), log, data, "affine", wrong)
    safe = train(LinearRanker("Squared"), log, data, "safe", wrong, max_exposure_ratio=within)
    assert isinstance(safe.loss[0], SafeDCG)
    assert dcg_of(safe.ranker.predict(data), data, liked) > 0.999 * before / within
    assert dcg_of(bold.ranker.predict(data), data, liked) < before / 1.1
    assert "has a loss of its own" in str(safe)


def test_safe_training_learns_where_the_propensities_are_right():
    data, _ = little(n_queries=60, m=5, seed=4)
    liked = 1 / (1 + np.exp(-2 * data.X[:, 1]))  # the logger is wrong
    log = tr.clicks.simulate(
        data, data.X[:, 0], PBM.from_parameters(THETA), 20_000, k=5, relevance=liked, exploration=0.2
    )
    found = [dcg_of(train(LinearRanker(LambdaRank()), log, data, "safe", THETA,
    max_exposure_ratio=within).ranker.predict(data),
                    data, liked) for within in (1.05, 3.0)]  # fmt: skip
    assert found[1] > found[0] + 0.05
    assert found[1] > 0.97 * dcg_of(liked, data, liked)


def test_trust_that_is_found_from_the_log_corrects_as_trust_that_is_known():
    """Found up to a shift and a scale, with offsets below 0; both give one order of documents."""
    data, _ = little(n_queries=40, m=5, seed=7)
    liked = 1 / (1 + np.exp(-2 * data.X[:, 1]))
    options = {"k": 5, "relevance": liked, "trust": (RIGHT, WRONG), "exploration": 0.3}
    log = tr.clicks.simulate(data, -data.X[:, 1], PBM.from_parameters(THETA), 30_000, **options)
    found = train(LinearRanker("Squared"), log, data, "affine", "trust")
    assert found.curves.offset.min() < 0
    known = train(LinearRanker("Squared"), log, data, "affine", TRUST)
    assert np.corrcoef(found.data.labels, known.data.labels)[0, 1] > 0.95
    assert (
        np.corrcoef(found.ranker.predict(data), liked)[0, 1] > 0.9 > np.corrcoef(found.naive.predict(data), liked)[0, 1]
    )


def test_dual_learning_finds_propensities_with_the_ranker_that_is_trained():
    data, _ = little(n_queries=60, m=5, seed=7)
    liked = 1 / (1 + np.exp(-2 * data.X[:, 1]))
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 20_000, k=5, relevance=liked, noise=0)
    with pytest.warns(tr.clicks.UnidentifiedWarning):  # one ranker: the features alone join positions
        done = train(LinearRanker("ListNet"), log, data, "affine", "dual")
    np.testing.assert_allclose(done.curves.slope, THETA, rtol=0.25)
    right, naive = (np.corrcoef(one.predict(data), liked)[0, 1] for one in (done.ranker, done.naive))
    assert right > 0.95 > naive


def test_losses_that_are_not_linear_are_refused_unless_the_approximation_is_asked_for():
    data, _ = little(20)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 500, k=5)
    for loss in (LambdaRank(), "ApproxNDCG", "Hinge"):
        with pytest.raises(DataError, match="not linear in the gains"):
            train(LinearRanker(loss), log, data, "affine", THETA)
    done = train(TreeRanker(LambdaRank(), n_trees=5), log, data, "affine", THETA, allow_biased_loss=True)
    assert done.data.labels.min() >= 0
    assert done.data.labels.max() <= 1
    assert "The loss is biased: LambdaRank" in str(done)
    with pytest.raises(DataError, match="but clicks give real-valued relevance"):
        train(ExpectedGainRanker("Multinomial"), log, data, "affine", THETA, allow_biased_loss=True)


# --- which ranker to take --------------------------------------------------------------------------------------------


def true_dcg(ranker, data, liked):
    return dcg_of(ranker.predict(data), data, liked)


def drawn(n_queries, seed, n_features=12):
    """Queries of five documents, of which users like what two features say."""
    X = np.random.default_rng(seed).standard_normal((5 * n_queries, n_features))
    return RankingData(X, qid=np.repeat(np.arange(n_queries), 5)), 1 / (1 + np.exp(-X[:, 1] - 0.5 * X[:, 2]))


def held(ranker, seeds, n_queries=30, sessions=600, propensities=THETA, exploration=0.0):
    """Of logs of queries drawn anew: whether intervals hold the truth of the rankers trained on all sessions: of either
    ranker, of the gain, and of either by the log that trained it."""
    everything, likes = drawn(4_000, 10**6)
    inside = {name: [] for name in ("each", "gain", "own log")}
    for seed in seeds:
        data, liked = drawn(n_queries, seed)
        options = {"k": 5, "relevance": liked, "noise": 0.0, "exploration": exploration, "seed": seed}
        log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), sessions, **options)
        done = tr.clicks.train(ranker, log, data, "affine", propensities)
        truth = {
            name: true_dcg(one, everything, likes) for name, one in (("affine", done.ranker), ("naive", done.naive))
        }
        for name, one in (("affine", done.ranker), ("naive", done.naive)):
            inside["each"].append(done.estimates[name].low <= truth[name] <= done.estimates[name].high)
            low, high = evaluate(one, log, data, propensities=THETA).interval
            inside["own log"].append(low <= truth[name] <= high)
        gain = done.gains["affine"]
        inside["gain"].append(gain.low <= truth["affine"] - truth["naive"] <= gain.high)
    return {name: np.array(one) for name, one in inside.items()}


def as_often_as_it_says(inside, level=0.95):
    return binomtest(int(inside.sum()), len(inside), level).pvalue > 0.001


def test_intervals_of_rankers_that_were_not_shown_the_query_hold_the_truth():
    found = held(LinearRanker("Squared", l2=1e-3), range(25))
    assert as_often_as_it_says(found["each"])
    assert as_often_as_it_says(found["gain"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("ranker", "options"),
    [
        (LinearRanker("Squared", l2=1e-3), {}),
        (LinearRanker("Squared", l2=1e-3), {"propensities": None, "exploration": 0.3, "sessions": 2_000}),
        (TreeRanker("Squared", n_trees=20, min_data_in_leaf=5), {"n_queries": 60, "sessions": 1_500}),
    ],
    ids=["given", "found", "trees"],
)
def test_held_out_intervals_hold_the_truth_as_often_as_they_say(ranker, options):
    found = held(ranker, range(120), **options)
    assert as_often_as_it_says(found["each"])
    assert as_often_as_it_says(found["gain"])
    if isinstance(ranker, TreeRanker):
        assert not as_often_as_it_says(found["own log"])  # which trees know by heart


def test_held_out_estimates_are_those_of_rankers_trained_on_other_queries():
    data, liked = drawn(13, 0)
    log = tr.clicks.simulate(
        data, data.X[:, 0], PBM.from_parameters(THETA), 400, k=5, relevance=liked, zipf_exponent=0.7
    )
    done = train(LinearRanker("Squared"), log, data, "snips", THETA, folds=3)
    asked = np.unique(log.session_query)
    fold = np.full(data.n_queries, -1)
    fold[asked] = np.random.default_rng(0).permutation(len(asked)) % 3
    total, sessions = {"snips": 0.0, "naive": 0.0}, 0
    for number in range(3):
        out = fold[log.session_query] == number
        fitted = train(LinearRanker("Squared"), log.select(~out), data, "snips", THETA)
        sessions += int(out.sum())
        for name, one in (("snips", fitted.ranker), ("naive", fitted.naive)):
            total[name] += out.sum() * evaluate(one, log.select(out), data, propensities=THETA).value
    for name, value in total.items():
        assert done.estimates[name].value == pytest.approx(value / sessions)
    gain = done.gains["snips"]
    assert gain.value == pytest.approx((total["snips"] - total["naive"]) / sessions)
    assert gain.high - gain.low < done.estimates["snips"].high - done.estimates["snips"].low  # paired
    whole = train(LinearRanker("Squared"), log, data, "snips", THETA)
    assert (whole.estimates, whole.gains, whole.folds) == ({}, {}, 0)
    np.testing.assert_array_equal(done.ranker.predict(data), whole.ranker.predict(data))  # of all sessions
    np.testing.assert_array_equal(done.naive.predict(data), whole.naive.predict(data))
    with pytest.raises(DataError, match="2 or more"):
        train(LinearRanker("Squared"), log, data, "snips", THETA, folds=1)


def compared(gain, valid_gain=None, correction="affine"):
    data, _ = little(4)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 50, k=5)
    done = train(LinearRanker("Squared"), log, data, correction, THETA)
    gains, labels = ({} if one is None else {correction: Interval(*one, 0.95, 9, "")} for one in (gain, valid_gain))
    return replace(done, gains=gains, valid_gains=labels)


@pytest.mark.parametrize(
    ("gain", "by_labels", "choice", "words"),
    [
        ((0.2, 0.1, 0.3), None, "affine", "The choice is 'affine'"),
        ((0.2, 0.0, 0.4), None, "naive", "'affine' is not significantly better, so the choice is the naive model"),
        ((0.1, -0.1, 0.3), (0.2, 0.1, 0.3), "naive", "not significantly better, so the choice is the naive model"),
        ((-0.1, -0.3, 0.0), None, "naive", "not significantly better, so the choice is the naive model"),
        ((-0.2, -0.3, -0.1), None, "naive", "'affine' is worse, so the choice is the naive model"),
        ((0.2, -np.inf, np.inf), None, "naive", "not significantly better, so the choice is the naive model"),
        (
            None,
            (0.2, 0.1, 0.3),
            "affine",
            "The clicks do not compare the models: no sessions were held out. The choice is",
        ),
        (None, None, "naive", "not significantly better, so the choice is the naive model"),
    ],
)
def test_the_naive_ranker_is_the_choice_unless_the_other_is_shown_to_be_better(gain, by_labels, choice, words):
    done = compared(gain, by_labels)
    assert done.choice == done.to_dict()["choice"] == choice
    assert words in str(done)
    assert ("the correction 'dr'" in str(done)) == (choice == "naive")
    assert "inf" not in str(done)


def test_the_correction_for_few_clicks_does_not_recommend_itself():
    assert "the correction 'dr'" not in str(compared((0.1, -0.1, 0.3), correction="dr"))
    done = compared((0.1, -0.1, 0.3), (0.2, 0.1, 0.3))
    assert (
        "On held-out queries 'affine' gains +0.1000 of DCG@10 over the naive model, interval [-0.1000, +0.3000]"
        in str(done)
    )
    assert "By the labels 'affine' gains +0.2000 of NDCG@10" in str(done)


def test_a_good_ranker_in_the_log_makes_the_naive_one_the_choice():
    """Trees that debias a good ranker's log learn noise: the log that trained them says they are far better."""
    data, liked = drawn(60, 3)
    options = {"k": 5, "relevance": liked, "noise": 0.0, "seed": 3}
    log = tr.clicks.simulate(data, data.X[:, 1] + 0.5 * data.X[:, 2], PBM.from_parameters(THETA**2), 800, **options)
    done = train(TreeRanker("ListNet", n_trees=15, min_data_in_leaf=3), log, data, "affine", THETA**2, folds=3)
    own = [evaluate(one, log, data, propensities=THETA**2).value for one in (done.ranker, done.naive)]
    assert own[0] > own[1]
    assert true_dcg(done.ranker, data, liked) < true_dcg(done.naive, data, liked)
    assert done.gains["affine"].value < 0
    assert done.choice == "naive"


LOOKS = 1 / np.arange(1.0, 9.0)


def misled(seed, power, sessions=3_000, exploration=0.02, exploration_method="shuffle", folds=5):
    """Train with given propensities θ^power on the log of a good ranker that knows more than the features.

    Documents differ little in relevance, so too small propensities make low positions look better than high ones.
    Returns the result, and the true DCG of the debiased ranker less that of the naive one.
    """
    rng, n, k = np.random.default_rng(seed), 100, len(LOOKS)
    told, secret = rng.normal(size=(2, k * n))
    liked = 0.4 + 0.2 / (1 + np.exp(-told - 1.5 * secret))
    logger = told + 1.5 * secret + 0.3 * rng.normal(size=k * n)
    X = np.stack([told, logger], axis=1) + 0.5 * rng.normal(size=(k * n, 2))
    data = RankingData(X, np.zeros(k * n), qid=np.repeat(np.arange(n), k))
    options = {
        "k": k,
        "relevance": liked,
        "noise": 0.0,
        "exploration": exploration,
        "exploration_method": exploration_method,
        "seed": seed,
    }
    log = tr.clicks.simulate(data, logger, PBM.from_parameters(LOOKS), sessions, **options)
    done = train(LinearRanker("Squared"), log, data, propensities=LOOKS**power, folds=folds)
    return done, true_dcg(done.ranker, data, liked) - true_dcg(done.naive, data, liked)


def wrong_choices(runs, power, **options):
    """Count the logs that make a truly worse debiased ranker the choice."""
    wrong = 0
    for seed in range(runs):
        done, gain = misled(seed, power, **options)
        wrong += gain < 0 and done.choice != "naive"
    return wrong


def test_given_propensities_do_not_judge_the_ranker_that_they_trained():
    runs, choices = 5, []
    for seed in range(runs):
        done, gain = misled(seed, 1.5)
        assert gain < -0.1
        assert done.shared_propensities_reason == ""
        choices.append(done.choice)
    assert runs - choices.count("naive") <= binom.ppf(0.999, runs, 0.025)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [
        {"runs": 200},
        {"runs": 200, "exploration": 0.1},
        {"runs": 200, "exploration": 0.05, "exploration_method": "neighbors"},
        {"runs": 40, "sessions": 30_000},
        {"runs": 40, "sessions": 30_000, "exploration": 0.05, "exploration_method": "neighbors"},
    ],
    ids=str,
)
def test_worse_rankers_of_wrong_propensities_are_rarely_the_choice(options):
    wrong, runs = wrong_choices(power=1.5, **options), options["runs"]
    print(f"{options}: a worse ranker was the choice in {wrong} of {runs}")
    assert wrong <= binom.ppf(0.999, runs, 0.025)


def test_a_contradiction_blocks_the_choice():
    done, _ = misled(0, 1.5, exploration=0.1)
    assert done.propensity_conflict
    better = {"affine": Interval(0.2, 0.1, 0.3, 0.95, 100, "")}
    blocked = replace(done, gains=better, valid_gains=better)
    assert (blocked.choice, blocked.status) == ("naive", 5)
    assert "The choice is the naive model, because the log contradicts the propensities" in blocked.summary
    assert "The choice is 'affine'" not in blocked.summary
    free = replace(blocked, propensity_conflict="")
    assert (free.choice, free.status) == ("affine", 0)


def test_a_comparison_by_the_propensities_of_the_training_is_stated():
    done, gain = misled(0, 1.5, exploration=0.0)
    assert gain < 0
    assert done.choice != "naive"  # nothing in such a log contradicts them
    sentence = "The comparison uses the given propensities, because the held-out sessions do not identify the "
    assert done.shared_propensities_reason.startswith(sentence)
    assert "propensity of positions 1, 2, 3, 4, 5 and 3 more." in done.shared_propensities_reason
    assert done.shared_propensities_reason in done.summary
    assert done.to_dict()["shared_propensities_reason"] == done.shared_propensities_reason


def test_right_propensities_and_trust_are_compared_by_held_out_propensities():
    """A bad ranker's log: the debiased ranker is better, and the held-out part shows it."""
    data, liked = drawn(200, 3)
    options = {"k": 5, "relevance": liked, "noise": 0.0, "exploration": 0.2, "seed": 3}
    log = tr.clicks.simulate(data, -data.X[:, 1], PBM.from_parameters(THETA), 12_000, **options)
    trusting = tr.clicks.simulate(
        data, -data.X[:, 1], PBM.from_parameters(THETA), 12_000, **options, trust=(RIGHT, WRONG)
    )
    given = {"phone": THETA, "desktop": THETA}
    device = np.where(log.session_query % 2, "phone", "desktop")[log.session]
    crossed = replace(log, columns={**log.columns, "device": device.astype(object)})
    ranker = LinearRanker("Squared")
    for of, propensities, context in ((log, THETA, None), (trusting, TRUST, None), (crossed, given, "device")):
        done = train(ranker, of, data, "affine", propensities, context=context, folds=2)
        assert true_dcg(done.ranker, data, liked) > true_dcg(done.naive, data, liked)
        assert done.shared_propensities_reason == ""
        assert done.choice == "affine"


def test_one_query_compares_nothing_and_positions_are_judged_by_what_the_log_tells():
    data, liked = drawn(20, 1)
    options = {"k": 5, "relevance": liked, "noise": 0.0}
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 300, exploration=0.5, **options)
    one = train(LinearRanker("Squared"), log.select(log.session_query == 3), data, "affine", THETA, folds=5)
    assert (one.estimates, one.gains, one.choice) == ({}, {}, "naive")
    assert "The clicks do not compare the models: all sessions are of one query, so none are left for training." in str(
        one
    )
    assert one.to_dict()["no_comparison_reason"] == one.no_comparison_reason
    trees = TreeRanker("ListNet", n_trees=3)
    found = train(trees, log, data, "position", folds=2)
    assert found.curves is None
    assert list(found.gains) == ["position"]
    alone = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 300, **options)
    told = train(trees, alone, data, "position", folds=2)
    assert "The clicks do not compare the models: " + told.no_comparison_reason in str(told)
    assert (
        "position" in told.no_comparison_reason
    )  # that no document joins them is the reason, in the words of whoever found it


# --- what is wrong with logs ---------------------------------------------------------------------------------------


def test_a_log_of_one_deterministic_ranker_is_told_and_given_propensities_will_do():
    data, _ = little(20)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 500, k=5)
    with pytest.raises(DataError, match=r"No document of the log was shown at two positions.*Give propensities="):
        train(LinearRanker("Squared"), log, data)
    with pytest.raises(DataError, match="No document of the log was shown at two positions"):
        train(LinearRanker("Squared"), replace(log, columns={}), data, "affine", "randomization")
    assert train(LinearRanker("Squared"), log, data, "affine", THETA).ranker is not None
    assert train(LinearRanker("Squared"), log, data, "none").estimates == {}


def test_positions_without_propensity_and_documents_without_features_are_counted():
    data, _ = little(20)
    data = data.replace(document_ids=np.arange(data.n_documents).astype(str))
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 500, k=5, exploration=1.0)
    few = data.filter(np.arange(data.n_documents) % 5 != 2)
    done = train(LinearRanker("Squared"), log, few, "affine", [1, 0.6, 0, np.nan, 0.15])
    row = log.rows(few)[log.pair]
    at = log.position
    assert done.counts["unknown"] == (row < 0).sum()
    assert done.counts["without_propensity"] == ((row >= 0) & ((at == 3) | (at == 4))).sum()
    assert done.counts["impressions"] == ((row >= 0) & (at != 3) & (at != 4)).sum()
    assert f"{done.counts['without_propensity']:,} impressions at positions whose propensity is 0 or unknown" in str(
        done
    )
    assert f"{done.counts['unknown']:,} impressions of documents that are not in the data were dropped" in str(done)


@pytest.mark.parametrize("propensities", [[1.0], [1, -0.5, 0.4, 0.25, 0.15], "steep", [[1] * 5] * 3, object()])
def test_propensities_that_are_none_are_refused(propensities):
    data, _ = little(20)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 500, k=5, exploration=0.5)
    with pytest.raises((DataError, UnknownNameError), match="propensities"):
        train(LinearRanker("Squared"), log, data, "affine", propensities)


def test_other_bad_input_is_refused_in_sentences():
    data, _ = little(20)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters(THETA), 500, k=5)
    silent = ClickLog.from_columns(["0", "0"], ["0", "1"], [1, 2], [0, 0])
    for wrong, match in (
        (lambda: train(LinearRanker("Squared"), log, data, "affine", np.zeros(5)), "The propensities of all positions"),
        (lambda: train(LinearRanker("Squared"), silent, data, "affine", THETA), "clicked"),
        (lambda: train(LinearRanker("Squared"), log, data, "afine", THETA), "affine"),
        (lambda: train(object(), log, data, "affine", THETA), "no loss"),
        (lambda: train(LinearRanker("Squared"), "log.csv", data, "affine", THETA), "must be a ClickLog .* not a str"),
        (
            lambda: train(LinearRanker("Squared"), log, data.replace(labels=None), full_information=True),
            "not all are judged",
        ),
        (lambda: train(LinearRanker("Squared"), log, data, "affine", THETA, clip=2), "clip"),
    ):
        with pytest.raises((DataError, UnknownNameError), match=match):
            wrong()
    strange = ClickLog.from_columns(["other"], ["x"], [1], [1])
    for ids, match in ((None, "no document ids"), (data.row_names.astype(str), "same query and document ids")):
        with pytest.raises(DataError, match=match):
            train(LinearRanker("Squared"), strange, data.replace(document_ids=ids), "affine", THETA)


def test_trees_with_a_term_for_each_position_learn_both_and_keep_the_biases(tmp_path):
    data, _ = little(n_queries=80, m=5, seed=6)
    liked = 1 / (1 + np.exp(-2 * data.X[:, 1]))
    options = {"k": 5, "relevance": liked, "noise": 0.0, "exploration": 0.3}
    log = tr.clicks.simulate(
        data, -data.X[:, 1], PBM.from_parameters(THETA), 20_000, **options
    )  # the worst stands first
    done = train(TreeRanker("ListNet", n_trees=60), log, data, "position")
    scores = done.ranker.predict(data)
    assert np.corrcoef(scores, liked)[0, 1] > 0.8 > np.corrcoef(done.naive.predict(data), liked)[0, 1]
    biases = done.ranker.training_["clicks"]["position_biases"]
    np.testing.assert_allclose(np.exp(biases), THETA, rtol=0.2)
    done.ranker.save(tmp_path / "m.toprank")
    again = tr.load(tmp_path / "m.toprank")
    np.testing.assert_array_equal(again.predict(data), scores)
    assert again.training_["clicks"]["position_biases"] == biases
    with pytest.raises(DataError, match="Give a TreeRanker"):
        train(LinearRanker("ListNet"), log, data, "position")


def test_propensities_that_the_log_tells_are_divided_by_with_caution():
    data, liked = little(n_queries=20, seed=8)
    log = tr.clicks.simulate(
        data, data.X[:, 0], PBM.from_parameters(THETA), 2500, k=5, relevance=liked, exploration=0.5
    )
    found = resolve_curves(None, log)
    assert found.least == 10 / np.sqrt(2500)
    assert found.slope[-1] < found.least
    for name in ("ips", "snips", "affine"):
        cautious, same = (correct(log, data, name, found, clip).relevance for clip in (None, found.least))
        np.testing.assert_array_equal(cautious, same)
        bold = correct(log, data, name, found, 0.0).relevance
        assert (bold >= cautious).all()
        assert name == "snips" or (bold > cautious).any()  # snips clips the mean over a document's positions
        given = resolve_curves(found.slope, log)
        np.testing.assert_array_equal(correct(log, data, name, given).relevance, bold)


def test_rankers_are_drawn_by_what_compares_them():
    data = tr.synthetic(n_queries=30, seed=0)
    log = tr.clicks.simulate(data, data.X[:, 0], PBM.from_parameters([1, 0.5, 0.2]), sessions=2000, k=3)
    done = tr.clicks.train(LinearRanker("Squared"), log, data, propensities=[1, 0.5, 0.2])
    assert done.compared_by == ("dcg@10", "gain")
    for by, worth in (("dcg@10", done.estimates["affine"]), ("gain", done.gains["affine"])):
        assert f"affine: {worth.value:.4f}, {worth.low:.4f} to {worth.high:.4f}" in done.plot(by).svg()
        row = done.to_frame("arrow").to_pylist()[1]
        assert (row["model"], row[f"{by} low"]) == ("affine", worth.low)
    with pytest.raises(UnknownNameError, match="gain"):
        done.plot("valid_gain")
    assert done.summary.endswith(done._verdict())
