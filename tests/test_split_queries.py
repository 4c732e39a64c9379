"""Rows that were split at random, and not by query, are told when a ranker is judged on them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import KFold, cross_val_score, train_test_split

import toprank as tr
from toprank.data.hashes import KnownQueries, id_hashes, is_numbering
from toprank.data.warnings import SplitQueriesWarning

DATA = tr.synthetic(n_queries=200, n_features=4, seed=0)
TEXT = np.array([f"query {number}" for number in DATA.qid])


def halves(qid, seed=0):
    """Rows split at random: X, y, qid of either part."""
    one, other = train_test_split(np.arange(len(qid)), test_size=0.3, random_state=seed)
    return [(DATA.X[rows], DATA.labels[rows], qid[rows]) for rows in (np.sort(one), np.sort(other))]


def silent(judge, *arguments, **named):
    with warnings.catch_warnings():
        warnings.simplefilter("error", SplitQueriesWarning)
        return judge(*arguments, **named)


@pytest.mark.parametrize("qid", [TEXT, DATA.qid * 7 + 3], ids=["text", "numbers"])
def test_queries_that_come_back_with_other_rows_are_told(qid, tmp_path):
    (X, y, q), (X_test, y_test, q_test) = halves(qid)
    ranker = tr.LinearRanker().fit(X, y, qid=q)
    ranker.save(tmp_path / "model.toprank")
    frame = pd.DataFrame(X_test)
    for one in (
        ranker,
        tr.load(tmp_path / "model.toprank"),
        tr.BlendRanker.from_fitted([ranker], tr.RankingData(X, y, qid=q)),
    ):
        for judge in (one.score, lambda *given, one=one, **named: tr.make_scorer("map")(one, *given, **named)):
            with pytest.warns(SplitQueriesWarning, match=r"split within queries.*tr\.split"):
                judge(X_test, y_test, qid=q_test)
    for given in (
        tr.RankingData(X_test, y_test, qid=q_test),
        tr.RankingData(sparse.csr_matrix(X_test), y_test, qid=q_test),
    ):
        with pytest.warns(SplitQueriesWarning):
            ranker.score(given)
    named = tr.TreeRanker(n_trees=2, threads=1).fit(pd.DataFrame(X, columns=list("abcd")), y, qid=q)
    with pytest.warns(SplitQueriesWarning):
        named.score(frame.set_axis(list("abcd"), axis=1)[list("dcba")], y_test, qid=q_test)


def test_other_queries_and_known_rows_are_not_told():
    (X, y, q), (X_test, y_test, q_test) = halves(TEXT)
    ranker = tr.LinearRanker().fit(X, y, qid=q)
    silent(ranker.score, X, y, qid=q)
    order = np.random.default_rng(0).permutation(len(y))
    silent(ranker.score, X[order], y[order], qid=q[order])
    some = order[: len(y) // 3]
    silent(ranker.score, X[some], y[some], qid=q[some])  # rows that it saw, of queries it saw
    silent(ranker.score, X_test, y_test, qid=np.char.add(q_test, " of another day"))
    train, test = tr.split(tr.RankingData(DATA.X, DATA.labels, qid=TEXT), (0.5, 0.5))
    silent(tr.LinearRanker().fit(train).score, test)


def test_files_that_number_their_queries_anew_are_not_told():
    others = tr.synthetic(n_queries=150, n_features=4, seed=5)
    for first in (0, 1):
        ranker = tr.LinearRanker().fit(DATA.X, DATA.labels, qid=np.unique(DATA.qid, return_inverse=True)[1] + first)
        silent(ranker.score, others.X, others.labels, qid=np.unique(others.qid, return_inverse=True)[1] + first)
    assert [is_numbering(np.array(ids)) for ids in ([1, 0, 2], [2, 3, 1], [2, 3, 4], [0, 2], ["0", "1"])] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_a_cross_validation_is_told_once():
    from sklearn import config_context

    options = {"cv": KFold(3, shuffle=True, random_state=0), "params": {"qid": TEXT}}
    with config_context(enable_metadata_routing=True), pytest.warns(SplitQueriesWarning) as told:
        cross_val_score(tr.LinearRanker(), DATA.X, DATA.labels, **options)
    assert sum(one.category is SplitQueriesWarning for one in told) == 1


def test_models_of_earlier_versions_know_no_queries():
    (X, y, q), (X_test, y_test, q_test) = halves(TEXT)
    ranker = tr.LinearRanker().fit(X, y, qid=q)
    for nonsense in (None, {}, {"ids": "", "rows": "", "whole": True}, {"ids": "?", "rows": 3, "whole": 1}, []):
        ranker.training_["known_queries"] = nonsense
        silent(ranker.score, X_test, y_test, qid=q_test)


def test_ids_have_hashes_of_their_own_whatever_stands_beside_them():
    text = np.array([f"q{number}" for number in range(20_000)])
    assert len(np.unique(id_hashes(text))) == len(np.unique(id_hashes(np.arange(20_000)))) == 20_000
    np.testing.assert_array_equal(id_hashes(np.array(["a", "ab"]))[:1], id_hashes(np.array(["a"])))
    assert id_hashes(np.arange(5, dtype=np.int32)).tolist() == id_hashes(np.arange(5)).tolist()
    upper = (id_hashes(text) >> np.uint64(63)).mean()
    assert abs(upper - 0.5) < 4 * 0.5 / np.sqrt(20_000)


def test_few_queries_are_kept_whole_and_many_as_a_sample():
    few = KnownQueries.from_data(DATA.select(np.arange(100)))
    assert few.ids.whole
    assert len(few.ids.least) == 100
    many = KnownQueries.from_data(DATA)
    assert (many.ids.whole, len(many.ids.least)) == (False, 128)
    places, told = many.places(DATA.qids)
    assert (places >= 0).sum() == told == 128
