"""One order of rows: everything per document that data hold, give or take is in that of `data.X`."""

from __future__ import annotations

import pickle
import weakref

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toprank as tr
from support import toprank
from toprank.data.trec import run_of
from toprank.report.comparing import from_comparison

DATA = tr.synthetic(n_queries=12, n_documents=(2, 7), n_features=3, n_grades=3, seed=3)
FEATURES = ["f1", "f2", "f3"]
FRAME = pd.DataFrame(DATA.X, columns=FEATURES)
FRAME["qid"], FRAME["label"] = DATA.qid, DATA.labels
FRAME["document_id"] = [f"d{row}" for row in range(len(FRAME))]
FRAME["score"] = FRAME.f1 + 0.1 * FRAME.f2
METRICS = ["ndcg@10", "map", "err@20"]
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
permutations = st.permutations(range(len(FRAME)))


def shuffled(order, reset=False):
    """Rows in another order; their index goes with them, or is 0, 1, 2 … again."""
    frame = FRAME.iloc[list(order)]
    frame = frame.reset_index(drop=True) if reset else frame
    return frame, tr.RankingData.from_frame(frame, features=FEATURES)


def a_shuffle(seed=0, **options):
    return shuffled(np.random.default_rng(seed).permutation(len(FRAME)), **options)


def rankers():
    quick = {"epochs": 1, "width": 4, "n_heads": 1, "n_layers": 1, "device": "cpu", "threads": 1}
    return {
        "linear": tr.LinearRanker("Squared"),
        "grades": tr.ExpectedGainRanker(),
        "trees": tr.TreeRanker(n_trees=3, min_data_in_leaf=2, threads=1),
        "network": tr.NeuralRanker("ListNet", network="attention", **quick),
        "blend": tr.BlendRanker([tr.LinearRanker("Squared"), tr.TreeRanker(n_trees=2, min_data_in_leaf=2, threads=1)]),
        "wrapped": tr.wrap(lightgbm.LGBMRegressor(n_estimators=3, min_child_samples=2, verbose=-1)),
    }


@pytest.fixture(scope="module")
def fitted():
    data = tr.RankingData.from_frame(FRAME, features=FEATURES)
    return {name: ranker.fit(data) for name, ranker in rankers().items()}


def mean(evaluation):
    return pytest.approx(evaluation.mean["ndcg@10"], abs=1e-12)


# What the data hold


@given(permutations, st.booleans())
@few
def test_what_data_hold_is_in_one_order(order, reset):
    frame, data = shuffled(order, reset)
    for lying in (data, data.select([3, 1, 7]), tr.concatenate([data.select([5, 2]), data.select([0])])):
        rows = frame.set_index("document_id").loc[lying.document_ids.tolist()]
        np.testing.assert_array_equal(lying.X, rows[FEATURES])
        np.testing.assert_array_equal(lying.labels, rows.label)
        np.testing.assert_array_equal(lying.qid, rows.qid)
        np.testing.assert_array_equal(lying.source_index, frame.index[frame.document_id.isin(rows.index)].take(
            np.argsort(np.argsort([frame.document_id.tolist().index(one) for one in rows.index]))
        ))  # fmt: skip
        table = lying.to_frame()
        assert table.document_id.tolist() == rows.index.tolist() == lying.to_frame("polars")["document_id"].to_list()
        assert table.index.equals(lying.source_index)
    np.testing.assert_array_equal(data.source_rows if data.source_rows is not None else np.arange(len(frame)),
                                  [frame.document_id.tolist().index(one) for one in data.document_ids])  # fmt: skip


@given(permutations)
@few
@pytest.mark.parametrize("name", rankers())
def test_predictions_of_data_lie_as_x_and_those_of_frames_as_the_frame(fitted, name, order):
    frame, data = shuffled(order)
    ranker, plain = fitted[name], frame[FEATURES]
    scores, of_frame = ranker.predict(data), ranker.predict(plain, qid=frame.qid)
    np.testing.assert_allclose(scores, ranker.predict(data.to_frame(), qid=data.qid), atol=1e-6)
    np.testing.assert_allclose(data.in_source_order(scores), of_frame, atol=1e-6)
    if hasattr(ranker, "predict_proba"):
        of_data = ranker.predict_proba(data)
        np.testing.assert_allclose(data.in_source_order(of_data), ranker.predict_proba(plain), atol=1e-9)
    wanted = tr.evaluate(of_frame, frame.label, qid=frame.qid)
    assert tr.evaluate(scores, data).mean["ndcg@10"] == mean(wanted)
    assert ranker.score(data) == mean(wanted) == ranker.score(plain, frame.label, frame.qid)
    best = ranker.rank(data.replace(document_ids=None), k=1)
    of = pd.Series(of_frame, index=frame.qid.to_numpy()).groupby(level=0).max()
    assert {qid: of_frame[rows[0]] for qid, rows in best.items()} == pytest.approx(of.to_dict(), abs=1e-6)


# What is taken


def doors(scores, data, **order):
    """What every function that takes scores says of them, as numbers that do not depend on the order of rows."""
    log = tr.clicks.simulate(data, scores, tr.clicks.PBM.from_parameters([1, 0.5]), sessions=40, k=2, noise=0, **order)
    shown = log.document_ids[log.pair]
    known = tr.clicks.simulate(
        DATA_LOGGED, FRAME.f2, tr.clicks.PBM.from_parameters([1, 0.5]), sessions=300, k=2, noise=0
    )
    estimate = tr.clicks.evaluate(scores, known, data, "dcg@2", propensities=[1, 0.5], **order).value
    lists = tr.clicks.interleave(scores, scores, data, 20, k=3, **order)
    run = run_of(scores, data, **order)
    by_id = sorted(zip(run.document_ids.tolist(), run.scores.tolist(), strict=True))
    compared = tr.compare({"a": scores, "b": scores}, data, METRICS, **order)
    page = from_comparison(compared, data, {"a": scores, "b": scores}, **order).parts[0].documents
    return {
        "evaluate": list(tr.evaluate(scores, data, METRICS, **order).mean.values()),
        "compare": list(compared.means["a"].values()),
        "run": [score for _, score in by_id],
        "report": [s for _, s in sorted(zip(page.names.tolist(), page.scores["a"].tolist(), strict=True))],
        "clicks.simulate": len(set(shown.tolist()) & TOP),
        "clicks.evaluate": estimate,
        "clicks.interleave": len(set(lists.document_ids[lists.pair].tolist()) - set(TOP_3)),
        "expected_dcg": float(np.sum(GRADES.expected_dcg(data, scores, **order).mean)),
    }  # fmt: skip


BEST = float((FRAME.groupby("qid").label.max() > 0).mean())  # of a perfect ranking: a query without gain counts 0
DATA_LOGGED = tr.RankingData.from_frame(FRAME, features=FEATURES)
GRADES = tr.ExpectedGainRanker().fit(DATA_LOGGED)
TOP = set(FRAME.sort_values("score", ascending=False).groupby("qid").head(2).document_id)
TOP_3 = set(FRAME.sort_values("score", ascending=False).groupby("qid").head(3).document_id)


@pytest.mark.parametrize("reset", [False, True])
def test_shuffled_rows_give_the_same_numbers_at_every_door(reset):
    wanted = doors(FRAME.score, DATA_LOGGED)
    assert wanted["clicks.interleave"] == 0
    assert wanted["clicks.simulate"] > 10
    frame, data = a_shuffle(reset=reset)
    other = np.random.default_rng(9).permutation(len(frame))
    own = tr.LinearRanker("Squared").fit(data).predict(data)
    own[:] = data.aligned(frame.score)  # what predict(data) returned, whatever it holds
    ways = {
        "a column of the frame": (frame.score, {}),
        "in another order": (frame.score.iloc[other], {}),
        "as a frame of one column": (frame[["score"]].iloc[other], {}),
        "the frame's order, said": (frame.score.to_numpy(), {"order": "source"}),
        "that of X, said": (data.X[:, 0] + 0.1 * data.X[:, 1], {"order": "data"}),
        "that of X, said of a column": (pd.Series(data.X[:, 0] + 0.1 * data.X[:, 1]), {"order": "data"}),
        "a list, said": (frame.score.tolist(), {"order": "source"}),
        "polars, said": (pl.Series(frame.score.to_numpy()), {"order": "source"}),
        "what predict returned": (own, {}),
        "what aligned gave": (data.aligned(frame.score.to_numpy(), order="source"), {}),
    }
    for way, (scores, order) in ways.items():
        if way == "as a frame of one column":
            assert tr.evaluate(scores, data, METRICS).mean == tr.evaluate(frame.score, data, METRICS).mean
            continue
        for door, found in doors(scores, data, **order).items():
            assert found == pytest.approx(wanted[door], abs=1e-9), (way, door)


def test_scores_whose_order_nothing_tells_are_refused_at_every_door(fitted):
    frame, data = a_shuffle()
    log = tr.clicks.simulate(data, frame.score, tr.clicks.PBM.from_parameters([1, 0.5]), sessions=20, k=2)
    scores = fitted["linear"].predict(data)
    plain = [frame.score.to_numpy(), frame.score.tolist(), pl.Series(frame.score), data.X[:, 0], data.labels]
    derived = [scores * 2, scores.copy(), scores[:], fitted["linear"].predict(data.select(range(12)))]
    users = tr.clicks.PBM.from_parameters([1, 0.5])
    for one in plain + derived:
        for call in (
            lambda s: tr.evaluate(s, data),
            lambda s: tr.compare({"a": scores, "b": s}, data),
            lambda s: run_of(s, data),
            lambda s: tr.write_run(data, s, "never.run"),
            lambda s: tr.clicks.simulate(data, s, users, 5, k=2),
            lambda s: tr.clicks.evaluate(s, log, data, "dcg@2", propensities=[1, 0.5]),
            lambda s: tr.clicks.interleave(s, scores, data, 5),
            lambda s: fitted["grades"].expected_dcg(data, s),
            data.aligned,
        ):
            with pytest.raises(tr.ToprankError, match=r"order='data' .* order='source'"):
                call(one)


def test_the_very_array_is_known_by_its_own_data_alone(fitted):
    frame, data = a_shuffle()
    scores = fitted["linear"].predict(data)
    assert (
        tr.evaluate(scores, data).mean == tr.evaluate(scores, data, order="source").mean
    )  # it is known, whatever is said
    again, there = pickle.loads(pickle.dumps((data, scores)))
    others = (tr.RankingData.from_frame(frame, features=FEATURES), again)
    for other, given_there in zip(others, (scores, there), strict=True):
        with pytest.raises(tr.ToprankError, match="order='data'"):
            tr.evaluate(given_there, other)
        assert tr.evaluate(given_there, other, order="data").mean == tr.evaluate(scores, data).mean
    part = data.select([1, 0])
    assert tr.evaluate(fitted["linear"].predict(part), part).n_documents == part.n_documents
    kept = weakref.ref(scores)
    del scores
    assert kept() is None  # nothing is kept alive


def test_a_word_on_the_order_of_an_array_holds_for_one_call():
    _, data = a_shuffle()
    mine = np.random.default_rng(0).normal(size=data.n_documents)
    as_data, as_source = (tr.evaluate(mine.copy(), data, order=order).mean for order in ("data", "source"))
    assert as_data != as_source
    assert tr.evaluate(mine, data, order="data").mean == as_data
    assert tr.evaluate(mine, data, order="source").mean == as_source
    with pytest.raises(tr.ToprankError, match="is ambiguous"):
        tr.evaluate(mine, data)


def test_a_shuffled_column_beside_labels_without_an_index_is_refused():
    labels, qid = FRAME.label.to_numpy(), FRAME.qid.to_numpy()
    perfect = FRAME.label.reset_index(drop=True).sample(frac=1, random_state=0)
    with pytest.raises(tr.ToprankError, match=r"numbers the rows in a different order.*sort_index"):
        tr.evaluate(perfect, labels, qid=qid)
    assert tr.evaluate(perfect.sort_index(), labels, qid=qid).mean == {"ndcg@10": BEST}
    for order in ("data", "source"):  # both are the order of the labels that are given
        as_it_stands = tr.evaluate(perfect, labels, qid=qid, order=order).mean
        assert as_it_stands == tr.evaluate(perfect.to_numpy(), labels, qid=qid).mean
    with pytest.raises(tr.errors.UnknownNameError, match="order of rows"):
        tr.evaluate(perfect.to_numpy(), labels, qid=qid, order="sorted")


def test_a_column_is_aligned_also_where_no_row_moved():
    perfect, best = FRAME.label.sample(frac=1, random_state=0), {"ndcg@10": BEST}
    assert tr.evaluate(perfect, DATA_LOGGED).mean == best
    assert tr.evaluate(perfect, FRAME.label, qid=FRAME.qid).mean == best
    assert tr.evaluate(perfect, FRAME.label.to_numpy(), qid=FRAME.qid).mean == best
    table = tr.RankingData(FRAME[FEATURES], FRAME.label, qid=FRAME.qid)
    assert tr.evaluate(perfect, table).mean == best
    some = table.select([4, 0, 3])
    labels = some.labels
    wanted = tr.evaluate(labels, some).mean
    assert tr.evaluate(perfect[FRAME.qid.isin(some.qids).loc[perfect.index]], some).mean == wanted
    with pytest.raises(tr.ToprankError, match=r"numbers the rows in a different order.*order='data'"):
        tr.evaluate(perfect, DATA)  # of arrays, which have no index
    assert tr.evaluate(FRAME.label, DATA).mean == tr.evaluate(perfect.sort_index(), DATA).mean == best


@pytest.mark.parametrize("moved", [False, True])
def test_an_index_that_does_not_fit_is_refused(moved):
    frame, data = a_shuffle() if moved else (FRAME, DATA_LOGGED)
    odd = {
        "twice": frame.score.set_axis([7] * len(frame)),
        r"differs from the original frame \(for example, \d+ is missing": frame.score.set_axis(
            np.arange(len(frame)) + 1000
        ),
        "differs from the original frame": frame.score.set_axis([f"row {row}" for row in range(len(frame))]),
        "index of these values differs from": frame.score.set_axis(
            pd.MultiIndex.from_product([[0], range(len(frame))])
        ),
    }
    for match, scores in odd.items():
        with pytest.raises(tr.ToprankError, match=rf"{match}.*order='data' .* order='source'"):
            tr.evaluate(scores, data)
        assert tr.evaluate(scores, data, order="source").mean == tr.evaluate(frame.score, data).mean
    twice = frame.set_axis([0] * len(frame))
    again = tr.RankingData.from_frame(twice, features=FEATURES)
    if moved:  # an index that says the same of all rows cannot bring them anywhere
        with pytest.raises(tr.ToprankError, match="twice"):
            tr.evaluate(twice.score, again)
    else:
        assert tr.evaluate(twice.score, again).mean == tr.evaluate(frame.score, data).mean


def test_columns_of_one_call_that_contradict_each_other_are_refused():
    with pytest.raises(tr.ToprankError, match=r"X and y have the same index in different orders.*y = y.loc\[X.index\]"):
        tr.RankingData(FRAME[FEATURES], FRAME.label.sort_values(), qid=FRAME.qid)
    with pytest.raises(tr.ToprankError, match="y and qid"):
        tr.evaluate(FRAME.score, FRAME.label.sort_values(), qid=FRAME.qid)


def bent(name):
    """The arguments of a ranker, one of which has its rows in another order than the others."""
    given = {"X": FRAME[FEATURES], "y": FRAME.label, "qid": FRAME.qid, "sample_weight": FRAME.f1.abs()}
    return given | {name: given[name].iloc[::-1]}


@pytest.mark.parametrize("name", ["X", "y", "qid", "sample_weight"])
def test_rankers_refuse_columns_that_contradict_each_other(fitted, name):
    given = bent(name)
    asked = {"match": "have the same index in different orders"}
    for ranker in rankers().values():
        with pytest.raises(tr.ToprankError, **asked):
            ranker.fit(**given)
    with pytest.raises(tr.ToprankError, **asked):
        tr.RankingData(given["X"], given["y"], qid=given["qid"], document_weights=given["sample_weight"])
    if name == "sample_weight":
        return
    X, y, qid = (given[one] for one in ("X", "y", "qid"))
    for ranker in (fitted["linear"], fitted["network"]):
        with pytest.raises(tr.ToprankError, **asked):
            ranker.score(X, y, qid)
        with pytest.raises(tr.ToprankError, **asked):
            tr.make_scorer("map")(ranker, X, y, qid)
    with pytest.raises(tr.ToprankError, **asked):
        tr.LinearRanker("Squared").fit(FRAME[FEATURES], FRAME.label, FRAME.qid, valid=(X, y, qid))
    if name != "y":
        for ranker in (fitted["network"], fitted["blend"]):
            with pytest.raises(tr.ToprankError, **asked):
                ranker.rank(X, qid=qid)
        with pytest.raises(tr.ToprankError, **asked):
            fitted["network"].predict(X, qid=qid)


def test_rows_of_other_columns_are_not_told_by_one_that_has_its_own_index():
    """Labels with an index of their own go row by row; what stands beside them is looked at all the same."""
    y = FRAME.label.set_axis([f"y{row}" for row in range(len(FRAME))])
    tr.RankingData(FRAME[FEATURES], y, qid=FRAME.qid)
    with pytest.raises(tr.ToprankError, match="X and qid have the same index in different orders"):
        tr.RankingData(FRAME[FEATURES], y, qid=FRAME.qid.iloc[::-1])
    for beside in ({"document_ids": FRAME.document_id.iloc[::-1]}, {"metadata": {"device": FRAME.f2.iloc[::-1]}}):
        with pytest.raises(tr.ToprankError, match="have the same index in different orders"):
            tr.RankingData(FRAME[FEATURES], FRAME.label, qid=FRAME.qid, **beside)


# The examples that this rule was made for


def test_another_library_beside_ours_is_compared_row_by_row():
    data = tr.synthetic(n_queries=60, n_documents=8, n_features=4, seed=1)
    frame = pd.DataFrame(data.X, columns=list("abcd")).assign(qid=data.qid, label=data.labels)
    t = tr.RankingData.from_frame(frame.sample(frac=1, random_state=0))
    model = lightgbm.LGBMRegressor(n_estimators=20, verbose=-1).fit(t.X, t.labels)
    ours = tr.wrap(model).fit(t)
    theirs = model.predict(t.X)
    with pytest.raises(tr.ToprankError, match=r"System 'lgb': .*order='data' .* order='source'"):
        tr.compare({"lgb": theirs, "ours": ours.predict(t)}, t)
    found = tr.compare({"lgb": theirs, "ours": ours.predict(t)}, t, order="data")
    assert found.means["lgb"] == found.means["ours"]
    assert tr.evaluate(ours.predict(t), t.labels, qid=t.qid).mean["ndcg@10"] == found.means["ours"]["ndcg@10"]


# Training, choosing, files


def test_training_choosing_and_experiments_are_those_of_the_grouped_rows(tmp_path):
    _, data = a_shuffle()
    whole = data.replace(source_rows=None)
    for name in ("linear", "grades", "trees", "blend"):
        here, there = (rankers()[name].fit(one, valid=one.select(range(6))) for one in (data, whole))
        np.testing.assert_array_equal(here.predict(whole), there.predict(whole))
    parts = [(one.select(range(6)), one.select(range(6, 12))) for one in (data, whole)]
    found = [tr.grid_search("RankSVM", train, valid) for train, valid in parts]
    assert found[0].options == found[1].options
    means = []
    for number, one in enumerate((data, whole)):
        systems = ["LeastSquares", "RankSVM"]
        results = tr.Experiment(one, systems, n_folds=3, threads=1, cache_dir=tmp_path / str(number)).run()
        means.append(results.by_fold(None, None, None))
        for fold in results.folds(None):
            found = tr.evaluate(results.scores(None, fold, "RankSVM"), results.test(None, fold), results.metrics[0])
            assert found.mean[results.metrics[0]] == pytest.approx(means[-1]["RankSVM"][fold])
    assert means[0] == means[1]


def test_reports_and_calibration_follow(fitted):
    frame, data = a_shuffle()
    rankers, systems = {"b": fitted["grades"]}, {"a": frame.score, "b": fitted["grades"].predict(data)}
    part = from_comparison(tr.compare(systems, data), data, systems, rankers=rankers).parts[0]
    same = {"a": FRAME.score, "b": fitted["grades"].predict(DATA_LOGGED)}
    other = from_comparison(tr.compare(same, DATA_LOGGED), DATA_LOGGED, same, rankers=rankers).parts[0]
    np.testing.assert_allclose(part.calibrations[0].observed, other.calibrations[0].observed)
    table = fitted["grades"].predict_proba(data)
    with pytest.raises(tr.ToprankError, match="order='source'"):
        from_comparison(tr.compare(systems, data), data, systems, probabilities={"a": table.copy()})
    given_it = from_comparison(tr.compare(systems, data), data, systems, probabilities={"a": table}).parts[0]
    np.testing.assert_allclose(given_it.calibrations[0].observed, part.calibrations[0].observed)


@pytest.mark.parametrize("source", ["table.csv", "table.parquet", "table.txt"])
def test_score_files_follow_the_source_file_also_through_a_stored_copy(tmp_path, fitted, source):
    frame, data = a_shuffle()
    file = tmp_path / source
    forced = {}
    if source.endswith("txt"):
        lines = [
            f"{r.label:g} qid:{r.qid} 1:{r.f1!r} 2:{r.f2!r} 3:{r.f3!r} # docid = {r.document_id}"
            for r in frame.itertuples()
        ]
        file.write_text("\n".join(lines))
        forced = {"regroup": True}
        with pytest.raises(tr.ToprankError, match="regroup=True"):
            tr.read(file)
    else:
        kept = frame.drop(columns="score")
        kept.to_csv(file, index=False) if source.endswith("csv") else kept.to_parquet(file, index=False)
    read = tr.read(file, dtype=np.float64, **forced)
    assert read.was_regrouped
    assert read.document_ids.tolist() == data.document_ids.tolist()
    copy = tmp_path / "copy.toprank-data"
    tr.write(read, copy)
    if source.endswith("csv"):
        tr.LinearRanker("Squared").fit(read).save(tmp_path / "m.toprank")
        for number, one in enumerate((file, copy)):
            out = tmp_path / f"{number}.scores"
            toprank("predict", tmp_path / "m.toprank", one, "-o", out, "-q")
            best = tmp_path / "best.scores"
            tr.write_scores(frame.label.to_numpy(), best)
            assert f'"ndcg@10": {BEST}' in toprank("evaluate", one, best, "-m", "ndcg@10", "--json").stdout
        np.testing.assert_array_equal(tr.read_scores(tmp_path / "0.scores"), tr.read_scores(tmp_path / "1.scores"))
        written = tr.load(tmp_path / "m.toprank").predict(frame[FEATURES])
        np.testing.assert_allclose(tr.read_scores(tmp_path / "0.scores"), written, atol=1e-6)
    opened = tr.read(copy)
    np.testing.assert_array_equal(opened.source_rows, read.source_rows)


@pytest.mark.parametrize("regroup", [None, True, False])
def test_scattered_rows_are_grouped_unless_told_otherwise(tmp_path, regroup):
    frame, _ = a_shuffle()
    file = tmp_path / "t.parquet"
    frame.to_parquet(file, index=False)
    option = {} if regroup is None else {"regroup": regroup}
    ways = {
        "from_frame": lambda: tr.RankingData.from_frame(frame, features=FEATURES, **option),
        "polars": lambda: tr.RankingData.from_frame(pl.from_pandas(frame), features=FEATURES, **option),
        "read": lambda: tr.read(file, features=FEATURES, **option),
        "RankingData": lambda: tr.RankingData(frame[FEATURES], frame.label, qid=frame.qid, **option),
    }
    for make in ways.values():
        if regroup is False:
            with pytest.raises(tr.ToprankError, match="not contiguous"):
                make()
        else:
            data = make()
            assert data.was_regrouped
            assert data.qids.tolist() == list(dict.fromkeys(frame.qid))
            np.testing.assert_array_equal(data.labels, frame.label.to_numpy()[data.source_rows])
    with pytest.raises(tr.ToprankError, match="regroup must be True or False"):
        tr.RankingData.from_frame(frame, features=FEATURES, regroup="yes")
    (tmp_path / "d.txt").write_text("1 qid:1 1:1\n")
    with pytest.raises(tr.ToprankError, match="regroup must be True or False"):
        tr.convert(tmp_path / "d.txt", tmp_path / "d.toprank-data", regroup="no")
    with pytest.raises(tr.ToprankError, match="regroup=True, which holds all data in memory"):
        tr.convert(file, tmp_path / "t.toprank-data", features=FEATURES)


@pytest.mark.parametrize("name", ["positions", "document_weights", "teacher"])
def test_a_column_with_another_index_is_not_taken_row_by_row(name):
    X = pd.DataFrame({"f": [1.0, 2.0, 3.0, 4.0]}, index=list("abcd"))
    column = pd.Series([1, 2, 3, 4], index=list("dcba"))
    with pytest.raises(tr.errors.DataError, match="index"):
        tr.RankingData(X, [0, 1, 0, 1], qid=[1, 1, 2, 2], **{name: column})
    same = tr.RankingData(X, [0, 1, 0, 1], qid=[1, 1, 2, 2], **{name: column.set_axis(list("abcd"))})
    assert np.asarray(getattr(same, name)).tolist() == [1, 2, 3, 4]
