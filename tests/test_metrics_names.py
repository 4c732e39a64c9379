"""Names of metrics: what is written can be read, and the spellings of other tools are understood."""

from __future__ import annotations

import pickle
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toprank.evaluation as te
import toprank.metrics as tm
from toprank.errors import DataError, UnknownNameError

cut = st.none() | st.integers(1, 2000)
threshold = st.none() | st.sampled_from([1.0, 2.0, 0.5])
gains = st.none() | st.sampled_from(["linear", "exponential", "err", "exponential/31"]).map(tm.Gain.from_spec)
gains |= st.lists(st.integers(0, 9), min_size=1, max_size=5).map(tm.Gain.from_spec)
discounts = st.none() | st.sampled_from(["log2", "letor", "reciprocal", "zipf(1.5)"]).map(tm.Discount.from_spec)
measures = st.one_of(
    st.builds(tm.NDCG, cut, gains, discounts, st.sampled_from([None, "zero", "one", "skip"])),
    st.builds(tm.DCG, cut, gains, discounts),
    st.builds(tm.AvgNDCG, cut, gains),
    st.builds(tm.ERR, cut, st.none() | st.just(4.0)),
    st.builds(tm.ApproxERR, cut, st.sampled_from([2.0, 1.25])),
    st.builds(tm.RBP, st.sampled_from([0.5, 0.8, 0.95]), threshold, cut),
    st.builds(tm.AP, cut, st.sampled_from([None, "all", "hits", "min"]), threshold),
    st.builds(tm.RR, cut, threshold),
    st.builds(tm.Precision, cut, threshold),
    st.builds(tm.Recall, cut, threshold),
    st.builds(tm.Success, cut, threshold),
    st.builds(tm.RPrecision, threshold),
    st.builds(tm.OWA, st.sampled_from(["1/j", "top", "exp", "constant"]), st.sampled_from([5.0, 10.0])),
    st.sampled_from([tm.TCriterion(), tm.PairwiseAccuracy(), tm.KendallTau(), tm.SpearmanRho()]),
)


@given(measures)
def test_parse_reads_what_str_writes(measure):
    assert tm.parse(str(measure)) == measure


@given(measures)
def test_a_measure_is_a_value_whose_numbers_are_plain(measure):
    """Equal, hashed and written alike where NumPy's numbers were given."""
    kind = {int: np.int64, float: np.float64}
    given = {field.name: getattr(measure, field.name) for field in fields(measure)}
    made = type(measure)(**{name: kind.get(type(value), lambda one: one)(value) for name, value in given.items()})
    assert made == measure
    assert hash(made) == hash(measure)
    assert repr(made) == repr(measure)
    assert pickle.loads(pickle.dumps(made)) == measure


@pytest.mark.parametrize(
    ("spelling", "measure"),
    [
        ("nDCG@10", tm.NDCG(10)),
        ("NDCG@10", tm.NDCG(10)),
        ("ndcg_cut_10", tm.NDCG(10)),
        ("ndcg_cut.10", tm.NDCG(10)),
        ("ndcg", tm.NDCG()),
        ("nDCG(dcg='exp-log2')@10", tm.NDCG(10, tm.Gain.from_spec("exponential"))),
        ("ndcg@10-", tm.NDCG(10, no_relevant="zero")),
        ("map", tm.AP()),
        ("AP", tm.AP()),
        ("AP(rel=2)@100", tm.AP(100, rel=2.0)),
        ("map_cut_100", tm.AP(100)),
        ("map@3", tm.AP(3)),
        ("ap@10(norm=hits)", tm.AP(10, "hits")),
        ("mrr@10", tm.RR(10)),
        ("RR", tm.RR()),
        ("recip_rank", tm.RR()),
        ("P_5", tm.Precision(5)),
        ("P.5", tm.Precision(5)),
        ("P@5", tm.Precision(5)),
        ("pre@5", tm.Precision(5)),
        ("precision@5", tm.Precision(5)),
        ("R@1000", tm.Recall(1000)),
        ("recall_1000", tm.Recall(1000)),
        ("success_1", tm.Success(1)),
        ("Rprec", tm.RPrecision()),
        ("R-precision", tm.RPrecision()),
        ("RBP(p=0.9)", tm.RBP(0.9)),
        ("ERR@20", tm.ERR(20)),
        ("AvgNDCG", tm.AvgNDCG()),
        ("MeanNDCG", tm.AvgNDCG(None)),
        ("kendall_tau", tm.KendallTau()),
    ],
)
def test_spellings_of_the_usual_tools(spelling, measure):
    assert tm.parse(spelling) == measure


@pytest.mark.parametrize(
    ("spelling", "error", "words"),
    [
        ("ndgc@10", UnknownNameError, "did you mean"),
        ("", UnknownNameError, "no metric called"),
        ("ndcg@", UnknownNameError, "no metric called"),
        ("ndcg@0", DataError, "at least 1"),
        ("ndcg@10(gain=cubic)", UnknownNameError, "no gain called 'cubic'"),
        ("ndcg@10(discount=zipf(0.5))", DataError, "a number above 1"),
        ("ndcg@10(rel=2)", UnknownNameError, "no option of ndcg called 'rel'"),
        ("tau@10", DataError, "takes no cut-off"),
        ("ap@10(norm=most)", UnknownNameError, "no norm called"),
        ("ap@10(10)", DataError, "option=value"),
        ("rbp(p=high)", DataError, "must be a number"),
        ("owa(weights=2/j)", UnknownNameError, "1/j"),
    ],
)
def test_wrong_names_say_what_is_right(spelling, error, words):
    with pytest.raises(error, match=words):
        tm.parse(spelling)


def test_lists_of_names():
    assert list(tm.parse_all("ndcg@10(gain=linear), ap@10(norm=hits),map")) == [
        "ndcg@10(gain=linear)",
        "ap@10(norm=hits)",
        "map",
    ]
    with pytest.raises(DataError, match="No metric"):
        tm.parse_all(" , ")


def test_results_answer_to_every_spelling():
    result = te.evaluate([1.0, 0.0], [0, 1], ["map", "ndcg_cut_10"])
    assert result.mean["AP"] == result.mean["map"] == 1 / 2
    assert result.names == ("map", "ndcg_cut_10")
    assert result.mean["nDCG@10"] == result.mean["ndcg_cut_10"]
    with pytest.raises(KeyError):
        result.mean["err"]
    assert set(result.to_dict(per_query=True)["per_query"]) == {"map", "ndcg_cut_10"}


def test_names_are_exact_and_never_lose_a_metric():
    assert tm.parse(str(tm.RBP(p=0.123456789))) == tm.RBP(p=0.123456789)
    assert tm.parse(str(tm.NDCG(10, gain=[0, 1 / 3]))) == tm.NDCG(10, gain=[0, 1 / 3])
    two = [tm.NDCG(10, gain=lambda y: y + 0.5), tm.NDCG(10, gain=lambda y: y)]
    with pytest.raises(DataError, match="are called"):
        te.evaluate([1.0, 0.0], [0, 1], two)
    own = tm.Custom("own", lambda labels: float(labels[0]))
    result = te.evaluate([1.0, 0.0], [0, 1], [own, "ndcg@10"], convention="letor-clipped")
    assert result.mean["nDCG@10"] == result.mean["ndcg@10"]
    assert "foo" not in result.mean
    assert result.mean.get("foo") is None
