"""What callers give besides data: whatever is wrong with it is said in a sentence, never by a traceback."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import toprank as tr
from toprank import losses, metrics
from toprank.data.arguments import check_number, check_whole, is_whole
from toprank.losses.labels import Targeted
from toprank.metrics.sorting import ranking

DATA = tr.synthetic(n_queries=12, n_documents=(4, 8), n_features=3, n_grades=3, seed=0)
X, Y, QID = DATA.X, DATA.labels, DATA.qid
FRAME = pd.DataFrame(X)
FITTED = tr.LinearRanker().fit(DATA)
GRADED = tr.ExpectedGainRanker().fit(DATA)
SCORES = np.arange(len(Y), dtype=float)


def linear(**options):
    return tr.LinearRanker(**options).fit(DATA)


def graded(**options):
    return tr.ExpectedGainRanker(**options).fit(DATA)


def trees(**options):
    return tr.TreeRanker(**{"n_trees": 2, "threads": 1, **options}).fit(DATA)


REFUSED = [
    # rankings
    (lambda: FITTED.rank(DATA, k=2.5), "k of a ranking must be a whole number of at least 1, not 2.5"),
    (lambda: FITTED.rank(DATA, k="3"), "k of a ranking must be a whole number of at least 1, not '3'"),
    (lambda: ranking(SCORES, DATA.queries, 0), "k of a ranking must be a whole number of at least 1, not 0"),
    # data
    (lambda: tr.split(FRAME), "split needs a RankingData, not a DataFrame. Convert the frame first"),
    (lambda: tr.split(X), "split needs a RankingData, not a ndarray. Build one first: tr.RankingData(X, y, qid=qid)"),
    (lambda: tr.split(DATA, seed="a"), "seed must be a whole number of at least 0, not 'a'"),
    (lambda: tr.split(DATA, seed=-1), "seed must be a whole number of at least 0, not -1"),
    (lambda: tr.split(DATA, ["a", "b"]), "fractions must hold numbers"),
    (lambda: tr.split(DATA, 0.5), "add up to 1, not 0.5"),
    (lambda: tr.folds(FRAME), "folds needs a RankingData, not a DataFrame"),
    (lambda: tr.folds(DATA, k="5"), "k must be a whole number of at least 1, not '5'"),
    (lambda: tr.folds(DATA, seed=0.5), "seed must be a whole number of at least 0, not 0.5"),
    (lambda: tr.write(FRAME, "x.txt"), "write needs a RankingData, not a DataFrame. Convert the frame first"),
    (lambda: tr.read(None), "Give a path, such as 'train.txt', or a list of paths, not None"),
    (lambda: tr.convert(None, "x.toprank-data"), "Give a path, such as 'train.txt', or a list of paths"),
    (lambda: tr.read(["a.txt", 5]), "Give a path, such as 'train.txt', or a list of paths"),
    (lambda: tr.cluster.read(None), "Give a path, such as 'train.txt', or a list of paths"),
    (lambda: tr.check("train.txt"), "check(tr.read('train.txt'))"),
    (lambda: tr.check(FRAME), "check needs a RankingData, not a DataFrame"),
    (lambda: tr.check(DATA, X), "check needs a RankingData, not a ndarray"),
    (lambda: tr.check(DATA, cutoffs=5), "cutoffs must be a list of whole numbers of at least 1, not 5"),
    (lambda: tr.check(DATA, cutoffs=["a"]), "cutoffs must be a list of whole numbers"),
    (lambda: tr.RankingData(X.astype(complex), Y, qid=QID), "X must hold real numbers, not complex128"),
    (lambda: tr.RankingData(X, Y * 1j, qid=QID), "labels must hold real numbers, not complex128"),
    # experiments and comparisons
    (lambda: tr.Experiment({"s": FRAME}, ["ListNet"]), r"A DataFrame is not a dataset"),
    (lambda: tr.Experiment(7, ["ListNet"]), "A int is not a dataset"),
    (lambda: tr.compare([SCORES, SCORES], DATA), "systems must map names to scores, such as {'first': scores"),
    (lambda: tr.compare(5, DATA), "systems must map names to scores, such as {'first': scores"),
    (lambda: tr.compare({"a": SCORES, "b": SCORES}, DATA, confidence="a"), "confidence must be a number above 0.5 and"),
    (lambda: tr.compare({"a": SCORES, "b": SCORES}, DATA, margin="a"), "margin must be a positive number, not 'a'"),
    (lambda: tr.compare({"a": SCORES, "b": SCORES}, DATA, power="a"), "power must be a number above 0 and below 1"),
    # metrics
    (lambda: tr.evaluate(SCORES, DATA, lambda labels: 1.0), "toprank.metrics.Custom('name', function)"),
    (lambda: tr.evaluate(SCORES, DATA, ["ndcg", max]), "toprank.metrics.Custom('name', function)"),
    (
        lambda: tr.evaluate(SCORES, DATA, 5),
        "5 is not a metric. Give a name such as 'ndcg@10', or a measure of toprank.metrics.",
    ),
    (lambda: metrics.parse("ndgc"), "did you mean 'ndcg'?"),
    (lambda: metrics.parse("ndgc@10"), "did you mean 'ndcg@10'?"),
    (
        lambda: tr.evaluate(SCORES, DATA, convention=3),
        "3 is not the name of a convention. Give a name such as 'standard'.",
    ),
    (lambda: metrics.RBP(p="a"), "RBP's persistence p must be a number above 0 and below 1, not 'a'"),
    (lambda: metrics.AP(rel="a"), "rel of ap must be a finite number, not 'a'"),
    (lambda: metrics.ERR(max_grade="a"), "max_grade of err must be a finite number, not 'a'"),
    (lambda: metrics.NDCG("a"), "The cut-off of ndcg must be a whole number of at least 1, not 'a'"),
    (lambda: metrics.OWA(p="a"), "OWA's p, a percentage, must be a number above 0 and at most 100, not 'a'"),
    # systems and files
    (lambda: tr.systems.make(None), "A system must be given by name, such as 'LambdaMART', not None"),
    (lambda: tr.systems.make("cs-RgList", C=1, l2=2), "C and l2 are redundant, since l2 = 1/C; pass one of them"),
    (lambda: tr.systems.make("cs-RgList", C="a"), "C must be a positive number, not 'a'"),
    (lambda: tr.load(None), "The path of a model file must be a string or path, such as 'model.toprank', not None"),
    (lambda: FITTED.save(None), "The path of a model file must be a string or path, such as 'model.toprank', not None"),
    # linear rankers
    (lambda: linear(metric="foo"), "There is no metric called 'foo'"),
    (lambda: linear(convention="foo"), "There is no convention called 'foo'"),
    (lambda: linear(standardize="a"), "standardize must be True or False, not 'a'"),
    (lambda: linear(active_set="a"), "active_set must be True or False, not 'a'"),
    (lambda: linear(max_iterations=0), "max_iterations must be a whole number of at least 1, not 0"),
    (lambda: linear(max_iterations="a"), "max_iterations must be a whole number of at least 1, not 'a'"),
    (lambda: linear(init="a"), "init must be a number, an array of weights, or None, not 'a'"),
    (lambda: linear(tolerance="a"), "tolerance must be a number of at least 0, not 'a'"),
    (lambda: linear(tolerance=["a", 1]), "tolerance must be a number of at least 0, not 'a'"),
    (lambda: linear(tolerance=-1.0), "tolerance must be a number of at least 0, not -1.0"),
    (lambda: linear(l1="a"), "l1 must be a number of at least 0, not 'a'"),
    # expected gain
    (lambda: graded(metric="foo"), "There is no metric called 'foo'"),
    (lambda: graded(standardize=None), "standardize must be True or False, not None"),
    (lambda: graded(max_iterations=0), "max_iterations must be a whole number of at least 1, not 0"),
    (lambda: graded(restarts="a"), "restarts must be a whole number of at least 0, not 'a'"),
    (lambda: graded(saturation="a"), "saturation must be a number above 0 and at most 1, not 'a'"),
    (lambda: graded(tolerance="a"), "tolerance must be a number of at least 0, not 'a'"),
    (lambda: graded(n_grades="a"), "n_grades must be a whole number of at least 1, not 'a'"),
    (lambda: graded(seed="a"), "seed must be a whole number of at least 0, not 'a'"),
    (lambda: graded(calibration="isotonic"), "calibration applies only to classifier="),
    (lambda: GRADED.expected_dcg(X), "expected_dcg needs a RankingData, not a ndarray"),
    (lambda: GRADED.expected_dcg(DATA, k="a"), "k must be a whole number of at least 1, not 'a'"),
    (lambda: GRADED.expected_dcg(DATA, k=2.5), "k must be a whole number of at least 1, not 2.5"),
    (lambda: GRADED.expected_dcg(DATA, ["a"] * len(Y)), "scores must hold numbers"),
    (lambda: GRADED.expected_dcg(DATA, confidence=95), "confidence must be a number above 0 and below 1, not 95"),
    (lambda: GRADED.calibrate(DATA, k=0), "k must be a whole number of at least 1, not 0"),
    (lambda: GRADED.calibrate(X), "calibrate needs a RankingData, not a ndarray"),
    (lambda: GRADED.calibration_curve(X), "calibration_curve needs a RankingData, not a ndarray"),
    (lambda: GRADED.calibration_curve(DATA, bins="5"), "bins must be a whole number of at least 1, not '5'"),
    (lambda: GRADED.calibration_curve(DATA, bins=0), "bins must be a whole number of at least 1, not 0"),
    (lambda: GRADED.calibration_curve(DATA, at_least=3), "at_least must be a whole number of at least 1 and below 3"),
    (lambda: GRADED.calibration_curve(DATA.replace(labels=Y - 1.0)), "use data.filter(data.judged)"),
    # trees
    (lambda: trees(learning_rate="x"), "learning_rate must be a positive number, not 'x'"),
    (lambda: trees(l2=[1, 2]), "l2 must be a number of at least 0, not [1, 2]"),
    (lambda: trees(row_fraction="x"), "row_fraction must be a number above 0 and at most 1, not 'x'"),
    (lambda: trees(early_stopping=2.5), "early_stopping, a number of rounds or None for never, must be a whole number"),
    (lambda: trees(lightgbm_params="a"), "lightgbm_params takes a dictionary such as {'max_depth': 6}, not 'a'"),
    (lambda: trees(monotone="1,0,0"), "monotone must be a list such as [1, 0, -1] or a dictionary, not '1,0,0'"),
    (lambda: trees(monotone=1), "monotone must be a list such as [1, 0, -1] or a dictionary, not 1"),
    (lambda: trees(categorical=1), "categorical must be a list of features, such as [0, 3], not 1"),
    (lambda: trees(callbacks=5), "callbacks must be a list of functions"),
    # losses
    (lambda: losses.LambdaRank(sigma="a"), "LambdaRank's sigma must be a positive number, not 'a'"),
    (lambda: losses.LambdaLoss(sigma="a"), "LambdaLoss's sigma must be a positive number, not 'a'"),
    (lambda: losses.LambdaLoss(mu=None), "LambdaLoss's mu must be a positive number, not None"),
    (lambda: losses.ListNet(alpha="a"), "ListNet's alpha must be a positive number, not 'a'"),
    (lambda: losses.BoltzRank(alpha="a"), "BoltzRank's alpha must be a positive number, not 'a'"),
    (lambda: losses.BoltzRank(coupling="a"), "BoltzRank's coupling must be a positive number, not 'a'"),
    (lambda: losses.Cosine(epsilon="a"), "Cosine's epsilon must be a positive number, not 'a'"),
    (lambda: losses.ApproxNDCG(temperature="a"), "ApproxNDCG's temperature must be a positive number, not 'a'"),
    (lambda: losses.ApproxMRR(rel="a"), "ApproxMRR's rel must be a finite number, not 'a'"),
    (lambda: losses.NeuralNDCG(temperature="a"), "NeuralNDCG's temperature must be a positive number, not 'a'"),
    (lambda: losses.SoftRank(noise="a"), "SoftRank's noise must be a positive number, not 'a'"),
    (lambda: losses.CostSensitiveListMLE(pcf="a"), "pcf must be a number of at least 1, not 'a'"),
    (lambda: losses.XENDCG(gamma=None), "XENDCG's gamma, if not 'uniform', must be a number of at least 0 and at most"),
    (lambda: losses.OWPC(p="a"), "OWPC's p, a percentage, must be a number above 0 and at most 100, not 'a'"),
    (
        lambda: losses.OWPC(weights=None),
        "There is no OWPC weighting called 'None'; known: constant, top, 1/j, exp, max",
    ),
    (lambda: losses.Hinge(pair_weight=("one",)), "There is no pair weight called '('one',)'"),
    (lambda: losses.PowerRegression(power="a"), "power must be a number of at least 2 and at most"),
    (lambda: losses.SVMmap(threshold="a"), "threshold must be a finite number, not 'a'"),
    (lambda: losses.Multinomial(n_grades="a"), "n_grades must be a whole number of at least 2, not 'a'"),
    (lambda: losses.Squared(max_grade="a"), "max_grade must be a finite number, not 'a'"),
    (lambda: losses.ImportanceWeightedSquared(delta="a"), "delta must be a finite number, not 'a'"),
    (lambda: losses.ImportanceWeightedSquared(u="a"), "u must be a number of at least 0, not 'a'"),
    (lambda: losses.ImportanceWeightedSquared(top_k="a"), "top_k must be a whole number of at least 1, not 'a'"),
]


@pytest.mark.parametrize(("call", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_refused_in_a_sentence(call, sentence):
    with pytest.raises(tr.ToprankError, match=re.escape(sentence)):
        call()


def test_a_frame_is_not_printed_into_the_refusal():
    with pytest.raises(tr.ToprankError) as refusal:
        tr.Experiment({"s": FRAME}, ["ListNet"])
    assert str(FRAME) not in str(refusal.value)
    assert "RankingData.from_frame(frame)" in str(refusal.value)


@pytest.mark.parametrize(("value", "fits"), [(2, True), (np.int8(2), True), (True, False), (2.0, False), (1, False)])
def test_whole_numbers(value, fits):
    assert is_whole(value, 2) is fits


def test_a_bound_is_named_only_where_it_is_passed():
    check_whole("k", 4, 1, below=5)
    with pytest.raises(tr.ToprankError, match=r"^k must be a whole number of at least 1 and below 5, not 5\.$"):
        check_whole("k", 5, 1, below=5)
    with pytest.raises(tr.ToprankError, match=r"^k must be a whole number of at least 1, not 0\.$"):
        check_whole("k", 0, 1, below=5)


@pytest.mark.parametrize("value", [True, "1", None, 1j, [1.0], float("nan"), float("inf"), np.array([1.0])])
def test_no_finite_numbers(value):
    with pytest.raises(tr.ToprankError, match="x must be a finite number"):
        check_number("x", value)


@pytest.mark.parametrize("bound", ["above", "least", "below", "most"])
def test_bounds_are_kept_exactly(bound):
    inside = {"above": 1.5, "least": 1.0, "below": 0.5, "most": 1.0}[bound]
    outside = {"above": 1.0, "least": 0.5, "below": 1.0, "most": 1.5}[bound]
    check_number("x", np.float32(inside), **{bound: 1.0})
    with pytest.raises(tr.ToprankError, match=r"x must be a number .* 1, not"):
        check_number("x", outside, **{bound: 1.0})


class Silent(Targeted):
    """A loss without traits."""

    def bind(self, judgments):
        raise AssertionError("not reached")


@pytest.mark.parametrize("ranker", [tr.LinearRanker, tr.ExpectedGainRanker, tr.TreeRanker, tr.NeuralRanker])
def test_a_loss_must_say_its_traits(ranker):
    with pytest.raises(tr.ToprankError, match=r"Silent has no traits, .*traits = toprank\.losses\."):
        ranker(Silent()).fit(DATA)


def test_paths_may_come_from_anywhere(tmp_path):
    for number in range(2):
        tr.write(tr.RankingData(X[:3], Y[:3], qid=[number] * 3), tmp_path / f"{number}.txt")
    assert tr.read(tmp_path / f"{number}.txt" for number in range(2)).n_queries == 2  # looked at once only


def test_a_ranker_that_was_not_fitted_has_no_score():
    with pytest.raises(NotFittedError):
        tr.LinearRanker().score(X, Y)
