"""Scores are in the order of the user's rows wherever they meet data, also where these were regrouped."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toprank as tr
from toprank.data.trec import run_of
from toprank.report.comparing import from_comparison

FRAMES = {"pandas": lambda frame: frame, "polars": pl.from_pandas}
DATA = tr.synthetic(n_queries=12, n_documents=(2, 7), n_features=3, n_grades=3, seed=3)
FRAME = pd.DataFrame(DATA.X, columns=["f1", "f2", "f3"])
FRAME["qid"], FRAME["label"] = DATA.qid, DATA.labels
FRAME["document_id"] = [f"d{row}" for row in range(len(FRAME))]
FRAME["score"] = FRAME.f1 + 0.1 * FRAME.f2
ROLES = {"features": ["f1", "f2", "f3"], "regroup": True}
METRICS = ["ndcg@10", "map", "err@20"]
few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
permutations = st.permutations(range(len(FRAME)))


def shuffled(order):
    frame = FRAME.iloc[list(order)]
    return frame, tr.RankingData.from_frame(frame, **ROLES)


def rankers():
    quick = {"epochs": 1, "width": 4, "n_heads": 1, "n_layers": 1, "device": "cpu", "threads": 1}
    return {
        "linear": tr.LinearRanker("Squared"),
        "grades": tr.ExpectedGainRanker(),
        "trees": tr.TreeRanker(n_trees=3, min_data_in_leaf=2, threads=1),
        "network": tr.NeuralRanker("ListNet", network="attention", **quick),
        "blend": tr.BlendRanker([tr.LinearRanker("Squared"), tr.TreeRanker(n_trees=2, min_data_in_leaf=2, threads=1)]),
    }


@pytest.fixture(scope="module")
def fitted():
    data = tr.RankingData.from_frame(FRAME, features=ROLES["features"])
    return {name: ranker.fit(data) for name, ranker in rankers().items()}


@given(permutations)
@few
@pytest.mark.parametrize("kind", FRAMES)
def test_any_order_of_the_rows_gives_the_same_evaluation(kind, order):
    frame, data = shuffled(order)
    wanted = tr.evaluate(FRAME.score, FRAME.label, METRICS, qid=FRAME.qid)
    for scores in (FRAMES[kind](frame)["score"], frame.score.tolist(), frame[["score"]].to_numpy()):
        found = tr.evaluate(scores, data, METRICS)
        for metric in METRICS:
            assert found.mean[metric] == pytest.approx(wanted.mean[metric], abs=1e-12)
    compared = tr.compare({"a": frame.score, "b": frame.f2}, data, METRICS)
    assert compared.means["a"]["map"] == pytest.approx(wanted.mean["map"], abs=1e-12)


@given(permutations, st.data())
@few
def test_parts_of_regrouped_data_take_the_rows_that_are_left(order, draw):
    frame, data = shuffled(order)
    some = draw.draw(st.permutations(range(data.n_queries)))[: draw.draw(st.integers(1, data.n_queries))]
    part = data.select(some)
    left = frame[frame.qid.isin(part.qids)]
    wanted = tr.evaluate(left.score, left.label, "ndcg", qid=left.qid).mean["ndcg"]
    assert tr.evaluate(left.score, part, "ndcg").mean["ndcg"] == pytest.approx(wanted, abs=1e-12)


@given(permutations)
@few
@pytest.mark.parametrize("name", rankers())
def test_predictions_are_in_the_order_of_the_rows(fitted, name, order):
    frame, data = shuffled(order)
    ranker = fitted[name]
    plain = frame[ROLES["features"]]
    scores = ranker.predict(data)
    np.testing.assert_allclose(scores, ranker.predict(plain, qid=frame.qid), atol=1e-6)
    if hasattr(ranker, "predict_proba"):
        np.testing.assert_allclose(ranker.predict_proba(data), ranker.predict_proba(plain), atol=1e-9)
    wanted = tr.evaluate(scores, frame.label, "ndcg@10", qid=frame.qid).mean["ndcg@10"]
    assert tr.evaluate(scores, data).mean["ndcg@10"] == pytest.approx(wanted, abs=1e-12)
    assert ranker.score(data) == pytest.approx(wanted, abs=1e-12)
    best = ranker.rank(data.replace(document_ids=None), k=1)
    of = pd.Series(scores, index=frame.qid.to_numpy()).groupby(level=0).max()
    assert {qid: scores[rows[0]] for qid, rows in best.items()} == of.to_dict()


@given(permutations)
@few
def test_runs_frames_and_reports_follow(fitted, order):
    frame, data = shuffled(order)
    by_id = dict(zip(frame.document_id, frame.score, strict=True))
    run = run_of(frame.score, data)
    assert dict(zip(run.document_ids.tolist(), run.scores.tolist(), strict=True)) == by_id
    assert data.to_frame().document_id.tolist() == frame.document_id.tolist()
    systems = {"a": frame.score, "b": fitted["grades"].predict(data)}
    rankers = {"b": fitted["grades"]}
    part = from_comparison(tr.compare(systems, data), data, systems, rankers=rankers).parts[0]
    assert dict(zip(part.documents.names.tolist(), part.documents.scores["a"].tolist(), strict=True)) == by_id
    plain = tr.RankingData.from_frame(FRAME, features=ROLES["features"])
    same = {"a": FRAME.score, "b": fitted["grades"].predict(plain)}
    other = from_comparison(tr.compare(same, plain), plain, same, rankers=rankers).parts[0]
    np.testing.assert_allclose(part.calibrations[0].observed, other.calibrations[0].observed)
    expected = fitted["grades"].expected_dcg(data, frame.score).mean
    np.testing.assert_allclose(np.sort(expected), np.sort(fitted["grades"].expected_dcg(plain, FRAME.score).mean))


def test_training_choosing_and_experiments_are_those_of_the_grouped_rows(tmp_path):
    _, data = shuffled(np.random.default_rng(0).permutation(len(FRAME)))
    whole = data.as_grouped()
    for name in ("linear", "grades", "trees", "blend"):
        here, there = (rankers()[name].fit(one, valid=one.select(range(6))) for one in (data, whole))
        np.testing.assert_array_equal(here.predict(whole), there.predict(whole))
    parts = [(one.select(range(6)), one.select(range(6, 12))) for one in (data, whole)]
    found = [tr.select("RankSVM", train, valid) for train, valid in parts]
    assert found[0].options == found[1].options
    means = []
    for number, one in enumerate((data, whole)):
        systems = ["LeastSquares", "RankSVM"]
        results = tr.Experiment(one, systems, n_folds=3, threads=1, folder=tmp_path / str(number)).run()
        means.append(results.by_fold(None, None, None))
        for fold in results.folds(None):
            found = tr.evaluate(results.scores(None, fold, "RankSVM"), results.test(None, fold), results.metrics[0])
            assert found.mean[results.metrics[0]] == pytest.approx(means[-1]["RankSVM"][fold])
    assert means[0] == means[1]


def test_a_column_of_regrouped_data_is_not_taken_for_the_users_rows():
    _, data = shuffled(np.random.default_rng(0).permutation(len(FRAME)))
    for own in (data.X[:, 0], data.labels):
        with pytest.raises(tr.ToprankError, match=r"column of the regrouped data.*data.in_source_order\(values\)"):
            tr.evaluate(own, data)
    wanted = tr.evaluate(FRAME.f1, FRAME.label, "map", qid=FRAME.qid).mean["map"]
    assert tr.evaluate(data.in_source_order(data.X[:, 0]), data, "map").mean["map"] == pytest.approx(wanted)
    assert tr.evaluate(data.X[:, 0], data.as_grouped(), "map").mean["map"] == pytest.approx(wanted)
