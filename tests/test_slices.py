"""Results in slices of the queries: a partition, whose means add up and whose tests are corrected together."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import toprank as tr
from toprank.cli.commands import app
from toprank.evaluation import compare_values
from toprank.report import from_comparison, from_results, write_html
from toprank.significance import bonferroni, bootstrap_interval, holm, randomization_test

FEW = {"n_permutations": 500, "n_resamples": 200}


@pytest.fixture(scope="module")
def data():
    made = tr.synthetic(n_queries=90, n_documents=(2, 12), seed=0)
    chance = np.random.default_rng(0)
    devices = np.repeat(["phone", "desk", "tv"], [45, 35, 10])
    metadata = {
        "device": chance.permutation(devices),
        "asked": chance.zipf(2.0, 90),
        "weight": np.ones(90),
        "shown": chance.integers(0, 3, made.n_documents),
        "one": np.zeros(90),
        "many": np.arange(90),
    }
    return made.replace(metadata=metadata)


@pytest.fixture(scope="module")
def scores(data):
    return {"good": data.X[:, 0] + data.X[:, 1], "first": data.X[:, 0], "bad": -data.X[:, 0]}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=30),
    st.booleans(),
)
def test_slices_partition_the_queries_and_their_means_add_up(rows, weighted):
    names = [name for name, _, _ in rows]
    if len(set(names)) < 2:
        names[0] = "other"
    labels = np.array([[a, b] for _, a, b in rows]).reshape(-1)
    weights = np.arange(1, len(rows) + 1) if weighted else None
    queries = tr.Queries.from_sizes([2] * len(rows))
    made = tr.RankingData(
        np.zeros((len(labels), 0)), labels, queries=queries, query_weights=weights, metadata={"name": names}
    )
    whole = tr.evaluate(
        np.tile([1.0, 0.0], len(rows)), made, ["ndcg@10", "mrr"], weighted=weighted, convention="letor4"
    )
    sliced = whole.by_slice("name")
    assert sorted(qid for part in sliced.values() for qid in part.qids.tolist()) == list(range(len(rows)))
    for name, part in sliced.items():
        assert part.qids.tolist() == [q for q, its in enumerate(names) if its == name]
        assert part.n_documents == 2 * len(part.qids)
    for metric in whole.names:
        shares = [
            (weights[part.qids] if weighted else np.ones(len(part.qids)))[~np.isnan(part.per_query[metric])].sum()
            for part in sliced.values()
        ]
        means = [part.mean[metric] for part in sliced.values()]
        counted = [(share, mean) for share, mean in zip(shares, means, strict=True) if share]
        expected = sum(share * mean for share, mean in counted) / sum(share for share, _ in counted)
        assert whole.mean[metric] == pytest.approx(expected)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=30).filter(lambda values: len(set(values)) > 1 and max(values)))
def test_head_queries_make_half_of_the_whole_and_one_value_less_does_not(values):
    asked = np.array(values)
    made = tr.RankingData(
        np.zeros((len(asked), 0)), np.zeros(len(asked)), qid=range(len(asked)), metadata={"asked": asked}
    )
    evaluation = tr.evaluate(np.zeros(len(asked)), made, "mrr", convention="letor4")
    if 2 * asked[asked > asked.min()].sum() < asked.sum():
        with pytest.raises(tr.ToprankError, match="does not separate head and tail"):
            evaluation.slices("head:asked")
        return
    slices = evaluation.slices("head:asked")
    head = slices.codes == 0
    assert asked[head].min() > asked[~head].max()
    assert 2 * asked[head].sum() >= asked.sum()
    assert 2 * asked[asked > asked[head].min()].sum() < asked.sum()
    assert f"of the total ({asked[head].min()} or more)" in slices.rule


def test_large_queries_are_told_from_small_ones(data):
    evaluation = tr.evaluate(data.X[:, 0], data, "ndcg@10")
    head = evaluation.slices("head:documents").codes == 0
    assert data.queries.sizes[head].min() > data.queries.sizes[~head].max()
    weighed = data.replace(query_weights=data.queries.sizes.astype(float), metadata={})
    again = tr.evaluate(data.X[:, 0], weighed, "ndcg@10").slices("head:weight")
    np.testing.assert_array_equal(again.codes == 0, head)


def test_every_mean_of_a_slice_has_the_interval_of_its_queries(data):
    evaluation = tr.evaluate(data.X[:, 0], data, ["ndcg@10", "map"])
    sliced = evaluation.by_slice("device", confidence=0.9, n_resamples=300, seed=3)
    words = ["device", "queries", "ndcg@10", "90", "%", "interval", "map", "90", "%", "interval"]
    assert str(sliced).splitlines()[0].split() == words
    for name, part in sliced.items():
        for metric, interval in sliced.intervals[name].items():
            if name == "tv":
                assert interval is None  # ten queries
                continue
            expected = bootstrap_interval(part.per_query[metric], confidence=0.9, n_resamples=300, seed=3)
            assert interval == expected
            assert f"[{interval.low:.4f}, {interval.high:.4f}]" in str(sliced)
    assert "Slices with fewer than 20 evaluated queries have no interval." in str(sliced)
    assert "Slices with fewer" not in str(evaluation.by_slice("device", min_queries=10))
    plain = json.loads(json.dumps(sliced.to_dict(), allow_nan=False))
    assert plain["slices"]["desk"]["interval"]["map"] == list(sliced.intervals["desk"]["map"])
    assert plain["slices"]["tv"]["interval"] == {"ndcg@10": None, "map": None}
    assert plain["all"]["interval"]["map"] == list(
        bootstrap_interval(evaluation.per_query["map"], confidence=0.9, n_resamples=300, seed=3)
    )
    frame = sliced.to_frame("arrow").to_pydict()
    assert frame["map low"][0] == sliced.intervals["desk"]["map"].low
    assert frame["map high"][list(sliced).index("tv")] is None
    with pytest.raises(tr.ToprankError, match="min_queries"):
        evaluation.by_slice("device", min_queries=1)


def test_the_interval_of_a_weighted_mean_is_that_of_weighted_resamples(data):
    chance = np.random.default_rng(1)
    weights = chance.exponential(size=data.n_queries)
    weighed = data.replace(query_weights=weights)
    evaluation = tr.evaluate(data.X[:, 0], weighed, "ndcg@10", weighted=True)
    low, high = evaluation.by_slice("device").to_dict()["all"]["interval"]["ndcg@10"]
    values = np.asarray(evaluation.per_query["ndcg@10"])
    n, mean = len(weights), evaluation.mean["ndcg@10"]
    draws = chance.integers(0, n, (20_000, n))
    w, v = weights[draws], values[draws]
    means = (v * w).sum(axis=1) / w.sum(axis=1)
    errors = np.sqrt((w**2 * (v - means[:, None]) ** 2).sum(axis=1) * n / (n - 1)) / w.sum(axis=1)
    without = np.array([np.average(np.delete(values, i), weights=np.delete(weights, i)) for i in range(n)])
    jackknife = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    high_t, low_t = np.quantile((means - mean) / errors, [0.975, 0.025])
    assert (low, high) == pytest.approx((mean - high_t * jackknife, mean - low_t * jackknife), abs=0.1 * jackknife)
    same = tr.evaluate(data.X[:, 0], data.replace(query_weights=np.full(data.n_queries, 7.0)), "map", weighted=True)
    plain = tr.evaluate(data.X[:, 0], data, "map")
    for name, of in same.by_slice("device").intervals.items():
        if of["map"] is not None:
            np.testing.assert_allclose(list(of["map"]), list(plain.by_slice("device").intervals[name]["map"]))


def test_weights_that_leave_few_queries_are_told(data):
    heavy = np.ones(data.n_queries)
    heavy[:2] = 500.0
    weighed = tr.evaluate(data.X[:, 0], data.replace(query_weights=heavy), "ndcg@10", weighted=True)
    sliced = weighed.by_slice("device")
    effective = heavy.sum() ** 2 / (heavy**2).sum()
    assert sliced.to_dict()["all"]["effective"] == pytest.approx(effective)
    assert "effective" in sliced.to_frame("arrow").column_names
    [warning] = sliced.warnings
    assert f"all ({effective:.1f} of {data.n_queries})" in warning
    assert warning in str(sliced)
    assert f"{effective:.1f} of {data.n_queries} queries effective" in sliced._whole_intervals["ndcg@10"].detail
    plain = tr.evaluate(data.X[:, 0], data, "ndcg@10").by_slice("device")
    assert plain.warnings == ()
    assert "effective" not in str(plain)


@pytest.mark.parametrize("correction", ["holm", "bonferroni", "none"])
def test_tests_in_slices_are_corrected_over_slices_pairs_and_metrics(data, scores, correction):
    options = {"correction": correction, **FEW}
    plain = tr.compare(scores, data, ["ndcg@10", "map"], **options)
    found = tr.compare(scores, data, ["ndcg@10", "map"], slice_by="device", **options)
    assert found.differences == plain.differences  # what is said of all queries stays
    sliced = found.slices
    assert sliced.n_tests == 2 * 3 * 2  # two slices are large enough
    assert sliced.untested == ("tv",)
    tested = [row.tested for row in sliced.differences if row.tested is not None]
    adjust = {"holm": holm, "bonferroni": bonferroni, "none": np.asarray}[correction]
    np.testing.assert_allclose([d.p_adjusted for d in tested], adjust([d.p for d in tested]))
    evaluations = {name: tr.evaluate(values, data, "ndcg@10").by_slice("device") for name, values in scores.items()}
    for row in sliced.differences:
        if row.metric == "ndcg@10":
            a, b = (evaluations[name][row.slice].per_query["ndcg@10"] for name in (row.a, row.b))
            assert row.n == len(a)
            assert row.difference == pytest.approx(np.mean(a - b))
            if row.tested is not None:
                assert row.tested.p == randomization_test(a, b, n_permutations=FEW["n_permutations"]).p
    json.dumps(found.to_dict(), allow_nan=False)


def test_small_slices_are_named_and_said_not_to_be_tested(data, scores):
    found = tr.compare(scores, data, slice_by="device", baseline="first", **FEW).slices
    assert [(row.n, row.tested) for row in found["tv"]] == [(10, None)] * 2
    assert all(row.difference is not None for row in found["tv"])
    assert "Not tested, with fewer than 20 queries: tv (10)." in found.summary.splitlines()
    assert tr.compare(scores, data, slice_by="device", min_queries=10, **FEW).slices.untested == ()
    nothing = tr.compare(scores, data, slice_by="device", min_queries=1000, **FEW).slices
    assert nothing.n_tests == 0
    assert nothing.summary == "Not tested, with fewer than 1000 queries: desk (35), phone (45), tv (10)."
    whole = tr.compare(scores, data, slice_by="device", **FEW)
    assert "By device:" in str(whole)
    for text in (str(whole), whole.to_markdown(), whole.to_latex()):  # what was tested; where nothing was, all
        assert "too few" not in text
    assert str(nothing).count("too few") == 3 * 3
    assert set(whole.slices.to_frame()["slice"]) == {"desk", "phone", "tv"}


def test_values_that_are_known_are_sliced_by_one_value_for_each_query(data, scores):
    evaluations = {name: tr.evaluate(values, data) for name, values in scores.items()}
    by_name = compare_values(evaluations, slice_by="device", **FEW)
    plain = {name: {"ndcg@10": list(of.per_query["ndcg@10"])} for name, of in evaluations.items()}
    by_value = compare_values(plain, slice_by=data.metadata["device"], **FEW)
    assert by_value.slices.differences == by_name.slices.differences
    with pytest.raises(tr.ToprankError, match="queries have no metadata and therefore no column 'device'"):
        compare_values(plain, slice_by="device")
    with pytest.raises(tr.ToprankError, match="There are 2 values to slice 90 queries by"):
        compare_values(plain, slice_by=["a", "b"])


def test_values_for_each_query_fit_also_where_queries_are_dropped(data, scores):
    labels = data.labels.copy()
    labels[data.queries.offsets[:-1][::9]] = -1
    some = data.replace(labels=labels)
    by_name = tr.compare(scores, some, slice_by="device", unjudged="drop", **FEW).slices
    by_value = tr.compare(scores, some, slice_by=data.metadata["device"], unjudged="drop", **FEW).slices
    assert by_value.differences == by_name.differences
    assert sum(by_name.slices.sizes.values()) == 80


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("devise", "no metadata column called 'devise'; did you mean 'device'"),
        ("shown", "has several values within query"),
        ("one", "'one' is 0 for every query, so there would be only one slice"),
        ("many", "90 distinct values, .* use 'head:many'"),
        ("head:device", "must contain numbers"),
        ("head:weight", "'weight' does not separate head and tail"),
    ],
)
def test_what_does_not_slice_is_refused_in_a_sentence(data, scores, by, said):
    with pytest.raises(tr.ToprankError, match=said):
        tr.compare(scores, data, slice_by=by, **FEW)


def test_data_that_carry_nothing_say_how_to_carry(data, scores):
    with pytest.raises(tr.ToprankError, match=r"have no metadata column 'device' .* metadata=\['device'\]"):
        tr.compare(scores, data.replace(metadata={}), slice_by="device", **FEW)


def test_missing_values_are_a_slice_of_their_own(data):
    bare = data.replace(metadata={"lang": [""] * 40 + ["de"] * 50, "age": [float("nan")] * 40 + [3.0] * 50})
    evaluation = tr.evaluate(data.X[:, 0], bare)
    assert evaluation.by_slice("lang").slices.sizes == {"(none)": 40, "de": 50}
    assert evaluation.by_slice("age").slices.sizes == {"3": 50, "(none)": 40}


def test_a_report_shows_the_slices(data, scores, tmp_path):
    found = tr.compare(scores, data, slice_by="device", **FEW)
    write_html(tmp_path / "with.html", from_comparison(found, data, scores))
    page = (tmp_path / "with.html").read_text()
    assert "Results by slice" in page
    assert "fewer than 20 queries: tv (10)." in page
    assert "phone (45)" in page
    write_html(tmp_path / "without.html", from_comparison(tr.compare(scores, data, **FEW), data, scores))
    assert "Results by slice" not in (tmp_path / "without.html").read_text()


def test_commands_slice_a_table_by_its_columns(data, scores, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = {"device": data.metadata["device"], "day": np.arange(90)}
    data.replace(metadata=kept).to_frame().to_csv("log.csv", index=False)
    for name, values in scores.items():
        tr.write_scores(values, f"{name}.scores")

    def output(*arguments):
        result = CliRunner().invoke(app, [*arguments, "-q"])
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    systems = ("good.scores", "first.scores", "--n-permutations", "100")
    assert "queries: tv (10)." in output("compare", "log.csv", *systems, "--metadata", "day", "--slice-by", "device")
    told = json.loads(output("compare", "log.csv", *systems, "--slice-by", "device", "--min-queries", "5", "--json"))
    assert told["slices"]["queries"] == {"desk": 35, "phone": 45, "tv": 10}
    assert told["slices"]["n_tests"] == 3
    assert "phone" in output("evaluate", "log.csv", "good.scores", "--slice-by", "device")
    surer = output(
        "evaluate", "log.csv", "good.scores", "--slice-by", "device", "--confidence", "0.99", "--min-queries", "5"
    )
    assert "99 % interval" in surer
    assert "–" not in surer
    output("convert", "log.csv", "log.toprank-data", "--metadata", "day,device")
    told = json.loads(output("evaluate", "log.toprank-data", "good.scores", "--slice-by", "device", "--json"))
    assert told["slice_by"] == "device"
    folds = output(
        "cv", "log.toprank-data", "--systems", "LeastSquares", "--time-column", "day", "--folds", "3", "--json"
    )
    assert json.loads(folds)["datasets"]["log"]["folds"][2]["queries"] == {"train": 54, "valid": 18, "test": 18}


def test_an_experiment_compares_in_slices_of_its_pooled_queries(data, tmp_path):
    options = {"n_folds": 3, "metrics": ["ndcg@10", "map"], "threads": 1}
    plain = tr.Experiment(data, ["LeastSquares", "ListNet"], **options).run()
    results = tr.Experiment(data, ["LeastSquares", "ListNet"], slice_by="device", **options).run()
    assert results.compare().differences == plain.compare().differences  # what is said of all queries stays
    device = dict(zip(map(str, data.qids.tolist()), data.metadata["device"].tolist(), strict=True))
    table = results.per_query.to_pydict()
    assert table["slice"] == [device[qid] for qid in table["qid"]]
    slices = results.slices()
    assert (slices.column, slices.sizes) == ("device", {"desk": 35, "phone": 45, "tv": 10})
    rows = list(zip(*(table[name] for name in ("system", "slice", "metric", "value")), strict=True))

    def mean(system, name):
        return np.mean([value for *place, value in rows if place == [system, name, "map"]])

    expected = {system: {name: mean(system, name) for name in slices.names} for system in results.systems}
    for name, of in results.by_slice("map").items():
        assert of == pytest.approx(expected[name])
    sliced = results.compare(baseline="ListNet").slices
    assert sliced.untested == ("tv",)
    assert {row.slice: row.mean_b for row in sliced.differences if row.metric == "map"} == pytest.approx(
        expected["ListNet"]
    )
    assert "By device:" in str(results)
    assert "in any slice" in str(results) or " is better than " in str(results)
    results.save(tmp_path / "results.parquet")
    again = tr.experiment.Results.read(tmp_path / "results.parquet")
    assert str(again) == str(results)
    by = results.to_dict()["datasets"]["data"]["conventions"]["standard"]["pooled_comparison"]["slices"]
    assert by["queries"] == slices.sizes
    write_html(tmp_path / "report.html", from_results(results))
    assert "Results by slice" in (tmp_path / "report.html").read_text()
    assert plain.slices() is None
    with pytest.raises(tr.ToprankError, match="Run it with slice_by="):
        plain.by_slice()


def test_head_and_tail_of_an_experiment_are_those_of_all_its_folds(data):
    results = tr.Experiment(data, "LeastSquares", slice_by="head:asked", n_folds=3, threads=1).run()
    whole = tr.evaluate(data.X[:, 0], data, "ndcg@10").slices("head:asked")
    head = {str(qid) for qid in data.qids[whole.codes == 0].tolist()}
    table = results.per_query.to_pydict()
    assert {qid for qid, its in zip(table["qid"], table["slice"], strict=True) if its == "head"} == head
    assert "By head:asked, means over pooled queries:" in str(results)  # one system has nothing to compare


def test_an_experiment_refuses_a_column_that_is_not_there_and_tells_of_one_that_does_not_divide(data):
    with pytest.raises(tr.ToprankError, match="did you mean 'device'"):
        tr.Experiment(data, ["LeastSquares"], slice_by="devise", n_folds=3, threads=1).run()
    with pytest.raises(tr.ToprankError, match="must be the name of a metadata column"):
        tr.Experiment(data, ["LeastSquares"], slice_by=["device"])
    results = tr.Experiment(data, ["LeastSquares"], slice_by="one", n_folds=3, threads=1).run()
    assert results.slices() is None
    assert "data is not compared in slices: 'one' is 0 for every query" in str(results)


def test_the_command_line_cross_validates_in_slices(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tr.write(data.replace(metadata={"device": data.metadata["device"], "day": np.arange(90)}), "log.csv")
    command = ["cv", "log.csv", "--systems", "LeastSquares,ListNet", "--folds", "3", "--quiet"]
    done = CliRunner().invoke(app, [*command, "--slice-by", "device", "--metadata", "day", "--html", "r.html"])
    assert done.exit_code == 0, done.output
    assert "By device:" in done.output
    assert "Results by slice" in (tmp_path / "r.html").read_text()
    timed = CliRunner().invoke(app, [*command, "--slice-by", "device", "--time-column", "day", "--json"])
    assert timed.exit_code == 0, timed.output
    [of] = json.loads(timed.output)["datasets"].values()
    assert of["conventions"]["standard"]["pooled_comparison"]["slices"]["column"] == "device"
    tr.write(data, "copy.toprank-data")  # which carries the column by itself: what the table is told is not for it
    both = CliRunner().invoke(app, ["cv", "log.csv", "copy.toprank-data", *command[2:], "--slice-by", "device"])
    assert both.exit_code == 0, both.exception


def test_only_uneven_weights_are_told_to_leave_few_queries_and_what_weighs_nothing_has_no_mean():
    data = tr.synthetic(n_queries=40, seed=0)
    kinds = np.repeat(["light", "heavy"], 20)

    def sliced(weights):
        weighty = data.replace(query_weights=np.asarray(weights, dtype=float))
        return tr.evaluate(data.X[:, 0], weighty, "ndcg@10", weighted=True).by_slice(kinds)

    even = sliced(np.repeat([0, 1], 20))  # twenty queries of equal weight are twenty, and no few that carry the weight
    assert even.warnings == ()
    assert even.intervals["light"]["ndcg@10"] is None
    assert "nan" not in str(even)
    assert "evaluated queries have no interval" in str(even)
    assert "heavy" in sliced(np.r_[np.ones(20), 1 / np.arange(1.0, 21)]).warnings[0]
    assert "of the weighted mean on" in str(sliced(np.arange(1.0, 41)).intervals["heavy"]["ndcg@10"])


def test_the_summary_is_the_prose_without_the_tables():
    data = tr.synthetic(n_queries=40, n_documents=6, n_features=3, seed=0)
    evaluation = tr.evaluate(np.arange(data.n_documents) % 5, data, "ndcg@10")
    assert evaluation.summary == f"Convention {evaluation.convention}; max grade {evaluation.max_grade:g}."
    sliced = evaluation.by_slice(["few"] * 3 + ["many"] * 37)
    assert sliced.slices.rule in sliced.summary
    assert "no interval" in sliced.summary
    assert "ndcg" not in sliced.summary
    assert sliced.summary in str(sliced)
    assert "no interval" not in evaluation.by_slice(["one"] * 20 + ["other"] * 20).summary
