"""Drift: that what moved is found, that what did not is left in peace, and that the numbers are what they say."""

import json
import re

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, ks_2samp, norm
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import toprank as tr
from toprank.cli import training
from toprank.cli.commands import app
from toprank.errors import DataError
from toprank.monitoring.feature_drift import Resamples, adjusted_p_values, count_cells, feature_drifts, measure_drift
from toprank.report.drift import drift_page


def grouped(n_queries, shift, rng, width=1):
    """Numbers of documents whose queries have levels of their own; the mean is `shift`."""
    sizes = rng.integers(5, 15, n_queries)
    of_query = np.repeat(np.arange(n_queries), sizes)
    level = rng.standard_normal((n_queries, width))[of_query]
    return of_query, shift + np.sqrt(0.5) * (level + rng.standard_normal((len(of_query), width)))


def counted(before, after, queries, n_resamples=200, seed=0):
    draws = Resamples(queries[0].max() + 1, queries[1].max() + 1, n_resamples, np.random.default_rng(seed))
    blocks = tuple(block[of] for block, of in zip(draws.block_of, queries, strict=True))
    columns = zip(before.T, after.T, strict=True)
    return [count_cells(a, b, blocks, draws.blocks) for a, b in columns], draws


def measured(*given, **options):
    cells, draws = counted(*given, **options)
    return [measure_drift(one, draws, 0.95) for one in cells]


def found(tests, least=0.1, alpha=0.05):
    return feature_drifts(
        range(len(tests)), tests, adjusted_p_values([(test.observed, test.permuted) for test in tests]), least, alpha
    )


def test_psi_and_ks_are_their_formulas():
    rng = np.random.default_rng(0)
    (of_a, a), (of_b, b) = grouped(300, 0, rng), grouped(200, 0.7, rng)
    a[::17], b[::5] = np.nan, np.nan
    [cells], draws = counted(a, b, (of_a, of_b))
    test = measure_drift(cells, draws, 0.95)
    counts = [side.sum(axis=0) for side in (test.cells.reference, test.cells.new)]
    assert [count[-1] for count in counts] == [np.isnan(a).sum(), np.isnan(b).sum()]
    binned = [
        np.array([count[test.cells.bins == k].sum() for k in range(test.cells.bins.max() + 1)]) for count in counts
    ]
    p, q = ((count + 0.5) / (count + 0.5).sum() for count in binned)
    assert test.observed == pytest.approx(((q - p) * np.log(q / p)).sum(), rel=1e-6)
    *inner, missing = binned[0] + binned[1]
    present = len(a) + len(b) - missing
    levels = np.r_[0, 0.01, np.linspace(0.1, 0.9, 9), 0.99, 1]
    np.testing.assert_allclose(np.array(inner), np.diff(levels) * present, atol=2)  # deciles of both, tails apart
    outside = (b[:, 0] < np.nanmin(a)) | (b[:, 0] > np.nanmax(a))
    assert test.cells.out_of_range == outside.mean()
    exact = ks_2samp(a[~np.isnan(a)], b[~np.isnan(b)]).statistic
    reached = [np.cumsum(count[:-1]) / count[:-1].sum() for count in counts]
    assert 0 <= exact - np.abs(reached[0] - reached[1]).max() <= 0.02  # at fifty quantiles
    plain = np.abs(reached[0] - reached[1]).max()
    again = [rows @ side for rows, side in zip(draws.bootstrap, cells[:2], strict=True)]
    reached = [np.cumsum(count[:, :-1], axis=1) / count[:, :-1].sum(axis=1, keepdims=True) for count in again]
    resampled = np.abs(reached[0] - reached[1]).max(axis=1)
    assert test.ks.value == pytest.approx(2 * plain - resampled.mean(), rel=1e-6)  # less what sampling adds


def test_many_ties_and_constants_and_nothing_but_missing_values():
    of = np.repeat(np.arange(20), 5)
    zeros = np.zeros(100)
    ones = np.where(np.arange(100) % 10 == 0, 1.0, 0.0)
    nothing = np.full(100, np.nan)
    tests = measured(np.c_[zeros, ones, nothing, zeros], np.c_[zeros, ones, nothing, nothing], (of, of))
    shown = found(tests)
    assert [shift.drifted for shift in shown] == [False, False, False, True]
    assert [shift.psi for shift in shown][:3] == [0, 0, 0]
    assert [shift.p for shift in shown][:3] == [1, 1, 1]
    assert shown[3].missing == (0, 1)
    [far] = found(measured(ones[:, None], 5 * ones[:, None], (of, of)))
    assert far.out_of_range == pytest.approx(0.1)


def expected_shift(shift, share):
    """PSI and KS of N(shift, 1) against N(0, 1), in bins of both together: `share` of them is of the first."""

    def mixed(x):
        return share * norm.cdf(x) + (1 - share) * norm.cdf(x - shift)

    levels = [0.01, *np.linspace(0.1, 0.9, 9), 0.99]
    edges = np.r_[-np.inf, [brentq(lambda x, to=level: mixed(x) - to, -9, 9) for level in levels], np.inf]
    p, q = np.diff(norm.cdf(edges)), np.diff(norm.cdf(edges - shift))
    return {"psi": ((q - p) * np.log(q / p)).sum(), "ks": 2 * norm.cdf(shift / 2) - 1}


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0])
def test_intervals_hold_the_truth_and_a_shift_is_found(shift):
    truth = expected_shift(shift, 150 / 230)
    inside, surely = {"psi": 0, "ks": 0}, 0
    rng, runs = np.random.default_rng(1), 50
    for run in range(runs):
        (of_a, a), (of_b, b) = grouped(150, 0, rng), grouped(80, shift, rng)
        [one] = found(measured(a, b, (of_a, of_b), n_resamples=150, seed=1000 + run))
        for name in inside:
            low, high = getattr(one, f"{name}_interval")
            inside[name] += low <= truth[name] <= high
        surely += one.p <= 0.05
    for name, share in (("psi", 0.93), ("ks", 0.88)):  # what docs/monitoring.md says of 95 %
        assert inside[name] >= binom.ppf(1e-3, runs, share)
    assert shift == 0 or surely >= 0.9 * runs


def of_kind(kind, n_queries, rng, width=1):
    """Numbers of documents that nothing has moved: alike within a query, or not, or half."""
    of_query = np.repeat(np.arange(n_queries), rng.integers(5, 15, n_queries))
    by_query, own = rng.standard_normal((n_queries, width))[of_query], rng.standard_normal((len(of_query), width))
    return of_query, {"query": by_query, "document": own, "both": by_query + own}[kind]


def false_alarms(kind, n_queries, runs, width=1, n_resamples=99):
    """In how many runs anything has p ≤ 5 % though nothing has moved: numbers of documents, and a mean of queries."""
    rng, alarms = np.random.default_rng([n_queries, len(kind), width]), 0
    for run in range(runs):
        (of_a, a), (of_b, b) = (of_kind(kind, n_queries, rng, width) for _ in range(2))
        cells, draws = counted(a, b, (of_a, of_b), n_resamples, seed=run)
        of_queries = draws.squared_mean_difference([rng.lognormal(size=n_queries) for _ in range(2)])
        tests = [measure_drift(part, draws, confidence=0.95) for part in cells]
        alarms += min(adjusted_p_values([of_queries, *((test.observed, test.permuted) for test in tests)])) <= 0.05
    return alarms


def test_with_few_queries_every_significant_shift_is_large_enough_for_an_alarm():
    """A PSI of 0.1 makes no alarm rarer where chance alone moves a PSI that far."""
    rng, found = np.random.default_rng(3), []
    for run in range(120):
        (of_a, a), (of_b, b) = (of_kind("query", 20, rng) for _ in range(2))
        cells, draws = counted(a, b, (of_a, of_b), 99, seed=run)
        [test] = [measure_drift(part, draws, confidence=0.95) for part in cells]
        if adjusted_p_values([(test.observed, test.permuted)])[0] <= 0.05:
            found.append(test.psi.value)
    assert holds_its_level(len(found), 120)
    assert found
    assert min(found) >= 0.1


def holds_its_level(alarms, runs):
    """Whether so many alarms are those of a level of 5 %, up to binomial error."""
    return binom.ppf(5e-4, runs, 0.05) <= alarms <= binom.ppf(1 - 5e-4, runs, 0.05)


@pytest.mark.parametrize(("kind", "n_queries"), [("query", 100), ("document", 50)])
def test_chance_is_an_alarm_in_five_of_a_hundred(kind, n_queries):
    assert holds_its_level(false_alarms(kind, n_queries, 150, width=2), 150)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["query", "document", "both"])
@pytest.mark.parametrize(("n_queries", "width"), [(50, 1), (100, 12), (200, 3), (1000, 1)])
def test_chance_is_an_alarm_in_five_of_a_hundred_everywhere(kind, n_queries, width):
    assert holds_its_level(false_alarms(kind, n_queries, 1000, width, 199), 1000)


def test_a_mean_of_queries_is_dealt_out_like_the_rest():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=30), rng.normal(1, size=20)
    draws = Resamples(30, 20, 99, rng)
    met, permuted = draws.squared_mean_difference([a, b])
    assert met == pytest.approx((a.mean() - b.mean()) ** 2)
    both = np.concatenate([a, b])
    blocks = np.concatenate([draws.block_of[0], 30 + draws.block_of[1]])
    first = draws.permutations[4][blocks] == 1
    assert permuted[4] == pytest.approx((both[first].mean() - both[~first].mean()) ** 2)


NAMES = ("price", "age", "clicks", "length", "stars")


@pytest.fixture(scope="module")
def truth():
    data = tr.synthetic(n_queries=400, n_documents=(5, 20), n_features=5, n_grades=3, noise=0.5, seed=1)
    return data.replace(feature_names=NAMES)


@pytest.fixture(scope="module")
def parts(truth):
    return tr.split(truth, (0.4, 0.2, 0.2, 0.2))


@pytest.fixture(scope="module")
def calibrated(parts):
    return tr.ExpectedGainRanker().fit(parts[0]).calibrate(parts[1])


def moved(data, column, by):
    X = data.X.copy()
    X[:, column] += by
    return data.replace(X=X)


def test_what_moved_is_named_and_what_did_not_is_not(calibrated, parts):
    _, _, reference, new = parts
    still = tr.monitor(calibrated, reference, new)
    assert still.alarms == ()
    assert "No alarm." in str(still)
    drift = tr.monitor(calibrated, reference, moved(new, 2, 2 * reference.X[:, 2].std()))
    assert [shift.name for shift in drift.features if shift.drifted] == [NAMES[2]]
    assert drift.features[0].name == NAMES[2]
    assert f"{NAMES[2]} has drifted" in str(drift)
    assert drift.to_frame("arrow").column("drifted").to_pylist()[0]
    assert json.loads(json.dumps(drift.to_dict()))["features"][0]["name"] == NAMES[2]
    assert drift.gauges()["features_drifted"] == 1


def test_the_expected_dcg_and_its_fall(calibrated, parts):
    _, _, reference, new = parts
    still = tr.monitor(calibrated, reference, new).expected_dcg
    assert still.p != tr.monitor(calibrated, reference, new).scores.p  # tested by itself, not by the scores
    own = calibrated.expected_dcg(new, calibrated.predict(new))
    assert still.new == pytest.approx(own.overall()[0])
    assert still.interval.low < 0 < still.interval.high
    best = calibrated.predict(new)
    worst = new.filter(best <= np.quantile(best, 0.5))  # the better half of the documents is gone
    fall = tr.monitor(calibrated, reference, worst)
    assert fall.expected_dcg.changed
    assert fall.expected_dcg.p <= 0.05 < still.p
    assert fall.expected_dcg.interval.high < 0
    assert any("expected DCG@10 fell" in alarm for alarm in fall.alarms)
    assert still.drifted == ()
    assert still.alarm == ""


def test_a_forecast_on_drifted_data_carries_the_alarm(calibrated, parts):
    _, _, reference, new = parts
    X = new.X.copy()
    X[:, 1] = 3 * X[:, 1] + 2
    moved = tr.monitor(calibrated, reference, new.replace(X=X))
    drifted = {shift.name for shift in (*moved.features, moved.scores) if shift.drifted}
    assert set(moved.expected_dcg.drifted) == drifted != set()
    assert moved.expected_dcg.alarm in str(moved)
    assert moved.expected_dcg.alarm.startswith("Do not rely on the expected DCG")
    assert set(moved.to_dict()["expected_dcg"]["drifted"]) == drifted


def test_why_no_dcg_is_expected(parts):
    train, _, reference, new = parts
    assert (
        "predicts scores, not P(grade | x)"
        in tr.monitor(tr.LinearRanker("ListNet").fit(train), reference, new).no_dcg_reason
    )
    uncalibrated = tr.monitor(tr.ExpectedGainRanker().fit(train), reference, new)
    assert uncalibrated.expected_dcg is None
    assert "calibrate" in str(uncalibrated)


def test_the_shadow(calibrated, parts):
    train, _, reference, new = parts
    same = tr.monitor(calibrated, reference, new, shadow=calibrated).shadow
    assert (same.top1_changed, same.top_k_turnover, same.reordered) == (0, 0, 0)
    other = tr.LinearRanker("ListNet").fit(train.replace(labels=2 - train.labels))
    found = tr.monitor(calibrated, reference, new, shadow=other, k=3).shadow
    mine, theirs = (ranker.rank(new, 3) for ranker in (calibrated, other))
    differ = [mine[q][0] != theirs[q][0] for q in mine]
    gone = [1 - len(set(mine[q]) & set(theirs[q])) / len(mine[q]) for q in mine]
    assert found.top1_changed == pytest.approx(np.mean(differ))
    assert found.top_k_turnover == pytest.approx(np.mean(gone))
    assert found.reordered == sum(mine[q] != theirs[q] for q in mine)
    assert found.top_k_turnover_interval.low <= found.top_k_turnover <= found.top_k_turnover_interval.high


def test_the_same_seed_gives_the_same_numbers(calibrated, parts):
    _, _, reference, new = parts
    first, second = (tr.monitor(calibrated, reference, new, seed=3).to_dict() for _ in range(2))
    assert first == second
    assert first != tr.monitor(calibrated, reference, new, seed=4).to_dict()


def test_a_high_confidence_is_told_in_full(calibrated, parts):
    _, _, reference, new = parts
    assert "99.5% interval" in str(tr.monitor(calibrated, reference, new, confidence=0.995))


def test_more_queries_than_are_looked_at(monkeypatch, calibrated, parts):
    _, _, reference, new = parts
    monkeypatch.setattr("toprank.monitoring.feature_drift.MAX_QUERIES", 40)
    monkeypatch.setattr("toprank.monitoring.drift.MAX_QUERIES", 40)
    drift = tr.monitor(calibrated, reference, moved(new, 0, 9.0))
    assert drift.queries == (80, 80)
    assert "sampled down to 40 queries" in str(drift)
    assert drift.features[0].name == NAMES[0]


def test_refusals(calibrated, parts):
    _, _, reference, new = parts
    with pytest.raises(DataError, match="new data have only one query"):
        tr.monitor(calibrated, reference, new.select([0]))
    with pytest.raises(DataError, match="n_resamples"):
        tr.monitor(calibrated, reference, new, n_resamples=3)
    with pytest.raises(DataError, match="features"):
        tr.monitor(calibrated, reference, new.replace(X=new.X[:, :3]))


@pytest.fixture
def files(tmp_path, calibrated, parts):
    _, _, reference, new = parts
    calibrated.save(tmp_path / "m.toprank")
    tr.write(reference, tmp_path / "before.txt")
    tr.write(new, tmp_path / "same.txt")
    tr.write(moved(new, 1, 5.0), tmp_path / "moved.txt")
    return tmp_path


def test_the_command(files):
    quiet = CliRunner().invoke(app, ["monitor", *(str(files / f) for f in ("m.toprank", "before.txt", "same.txt"))])
    assert quiet.exit_code == 0, quiet.output
    assert "No alarm." in quiet.stdout
    arguments = ["monitor", *(str(files / f) for f in ("m.toprank", "before.txt", "moved.txt")), "--json", "-q"]
    alarm = CliRunner().invoke(app, [*arguments, "--html", str(files / "drift.html")])
    assert alarm.exit_code == 3
    assert [f["name"] for f in json.loads(alarm.stdout)["features"] if f["drifted"]] == [NAMES[1]]
    page = (files / "drift.html").read_text()
    assert f"{NAMES[1]} has drifted" in page
    early = CliRunner().invoke(app, [*arguments, "--html", str(files / "no" / "drift.html")])
    assert early.exit_code == 1
    assert "the folder" in str(early.exception)
    wrong = CliRunner().invoke(app, ["monitor", str(files / "none"), *arguments[2:]])
    assert wrong.exit_code == 1
    assert wrong.stdout == ""


def test_a_model_that_was_calibrated_by_command_expects_a_dcg(tmp_path, parts):
    train, held_out, reference, new = (str(tmp_path / f"{name}.txt") for name in ("train", "held", "before", "now"))
    for part, path in zip(parts, (train, held_out, reference, new), strict=True):
        tr.write(part, path)
    model = str(tmp_path / "m.toprank")

    def trained(*words):
        return CliRunner().invoke(app, ["train", train, "-o", model, "-q", *words])

    def expected():
        done = CliRunner().invoke(app, ["monitor", model, reference, new, "--json", "-q"])
        return json.loads(done.stdout)

    assert trained("--system", "PlugIn").exit_code == 0
    assert "--calibrate" in expected()["no_dcg_reason"]
    assert trained("--system", "PlugIn", "--calibrate", held_out).exit_code == 0
    value, ranker = expected()["expected_dcg"], tr.load(model)
    data = tr.read(new)
    assert value["new"] == pytest.approx(ranker.expected_dcg(data, ranker.predict(data)).overall()[0])
    refused = trained("--system", "ListNet", "--calibrate", held_out)
    assert refused.exit_code == 2
    assert "has scores only" in refused.stderr
    assert "documents were trained on, which overestimates" in str(
        trained("--system", "PlugIn", "--calibrate", train).exception
    )


def test_data_to_calibrate_on_are_read_before_the_training_and_under_its_rule(tmp_path, parts, monkeypatch):
    train, held_out, model = (str(tmp_path / name) for name in ("train.txt", "held.txt", "m.toprank"))
    tr.write(parts[0], train)
    labels = parts[1].labels.copy()
    labels[:3] = -1
    tr.write(parts[1].replace(labels=labels), held_out)
    command = ["train", train, "--system", "PlugIn", "-o", model, "--calibrate"]
    done = CliRunner().invoke(app, [*command, held_out, "--unjudged", "condense", "-q"])
    assert done.exit_code == 0, done.exception
    expected = tr.load(model)
    expected.calibrate(tr.read(held_out).filter(labels >= 0))
    assert tr.load(model).calibration_ == expected.calibration_
    monkeypatch.setattr(training, "_train", None)  # after the training it would be too late
    missing = CliRunner().invoke(app, [*command, str(tmp_path / "none.txt")])
    assert "none.txt" in str(missing.exception)


def test_curves_of_the_page_have_the_colors_of_the_legend(calibrated, parts):
    page = drift_page(tr.monitor(calibrated, parts[2], parts[3]), "m")
    drawn = re.findall(r'<path[^>]*class="([^"]*)"', page)
    assert drawn.count("curve s0") == drawn.count("curve s1") >= 6  # the scores and five features
    assert set(drawn) <= {"curve s0", "curve s1", "mark s1"}  # what the style sheet knows
    assert ".curve { fill: none" in page


def test_names_are_text_on_the_page(calibrated, parts):
    named = [part.replace(feature_names=["<b>x</b>", "b", "c", "d", "e"]) for part in parts]
    ranker = tr.LinearRanker("ListNet").fit(named[0])
    page = drift_page(tr.monitor(ranker, named[2], moved(named[3], 0, 9.0)), "<i>model</i>")
    assert "<b>x" not in page
    assert "<i>model" not in page
    assert "&lt;b&gt;x&lt;/b&gt; has drifted" in page


def test_levels_that_the_model_does_not_know_are_counted_apart_from_missing_cells(tmp_path):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)

    def table(levels, n=60):
        brand = rng.choice(levels, 8 * n)
        price = rng.normal(size=8 * n)
        worth = np.isin(brand, ["a", "b"]) + price + rng.normal(size=8 * n)
        return pd.DataFrame(
            {"qid": np.repeat(np.arange(n), 8), "label": (worth > 1) * 1, "brand": brand, "price": price}
        )

    before, now = table(list("abc")), table(["a", "b", "c", "new", None])
    ranker = tr.TreeRanker(n_trees=5).fit(tr.RankingData.from_frame(before))
    drift = tr.monitor(ranker, tr.RankingData.from_frame(before), tr.RankingData.from_frame(now))
    brand = next(shift for shift in drift.features if shift.name == "brand")
    assert brand.out_of_range == pytest.approx((now.brand == "new").mean())
    assert brand.missing == (0, pytest.approx(now.brand.isna().mean()))
    assert brand.drifted
    assert brand.ks is None
    ranker.save(tmp_path / "m.toprank")
    before.to_parquet(tmp_path / "before.parquet")
    now.drop(columns="label").to_parquet(tmp_path / "now.parquet")
    words = ["monitor", str(tmp_path / "m.toprank"), str(tmp_path / "before.parquet"), str(tmp_path / "now.parquet")]
    done = CliRunner().invoke(app, [*words, "--json", "-q"])
    assert done.exit_code == 3, done.output
    assert json.loads(done.stdout)["features"][0]["out_of_range"] == pytest.approx(brand.out_of_range)


def test_a_feature_may_be_called_score():
    """Its picture is its own, not that of the scores."""
    rng = np.random.default_rng(0)
    known = {"qid": np.repeat(np.arange(40), 10), "feature_names": ["score", "age"]}
    old, new = (tr.RankingData(rng.normal((shift, 0), size=(400, 2)), **known) for shift in (0.0, 50.0))
    ranker = tr.LinearRanker().fit(old.replace(labels=(old.X[:, 1] > 0).astype(float)))
    drift = tr.monitor(ranker, old, new, n_resamples=99)
    of_scores, *of_features = drift.cells
    assert [shift.name for shift in drift.features] == ["score", "age"]
    edges = {shift.name: cells.edges for shift, cells in zip(drift.features, of_features, strict=True)}
    assert edges["score"][-1] == new.X[:, 0].max()
    assert edges["age"][-1] == max(old.X[:, 1].max(), new.X[:, 1].max())
    assert of_scores.edges[-1] == max(ranker.predict(data).max() for data in (old, new))
    assert drift.plot("score").svg() != drift.plot().svg()
    page = drift_page(drift, "m")
    assert all(drift.plot(one, named=False).figure() in page for one in (None, "score", "age"))


def test_the_plot_of_a_feature_is_that_of_the_page(calibrated, parts):
    drift = tr.monitor(calibrated, parts[2], moved(parts[3], 1, 9.0), n_resamples=99)
    farthest = drift.features[0].name
    drawn = drift.plot(farthest).svg()
    assert drawn.count('class="curve s') == 4  # two curves, and the key to them
    assert ">before</text>" in drawn
    assert ">now</text>" in drawn
    assert drift.plot(farthest, named=False).figure() in drift_page(drift, "m")
    with pytest.raises(tr.errors.UnknownNameError, match="no feature"):
        drift.plot("nobody")


def test_features_without_names_have_the_numbers_of_their_file(tmp_path):
    rng = np.random.default_rng(0)
    for name, shift in (("old", 0.0), ("new", 9.0)):
        lines = [
            f"{row % 3} qid:{row // 5} 0:{shift + rng.normal():.4f} 1:{rng.normal():.4f}\n" for row in range(300)
        ]  # fmt: skip
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    old, new = (tr.read(tmp_path / f"{name}.txt") for name in ("old", "new"))
    drift = tr.monitor(tr.LinearRanker().fit(old), old, new, n_resamples=99)
    assert [shift.name for shift in drift.features if shift.drifted] == ["0"]
    assert drift.alarms[0].startswith("Feature 0 has drifted")


def test_infinite_values_are_refused():
    data = tr.synthetic(n_queries=20, n_features=2, seed=0)
    X = np.array(data.X)
    X[3, 0] = np.inf
    with pytest.raises(DataError, match="holds infinite values"):
        tr.monitor(tr.TreeRanker(n_trees=3, threads=1).fit(data), data, data.replace(X=X), n_resamples=99)


def test_a_shadow_that_does_not_fit_is_named():
    data = tr.synthetic(n_queries=10, n_features=4, seed=0)
    other = tr.LinearRanker().fit(tr.synthetic(n_queries=10, n_features=5, seed=0))
    with pytest.raises(DataError, match=r"^The shadow ranker does not accept the new data\. "):
        tr.monitor(tr.LinearRanker().fit(data), data, data, shadow=other, n_resamples=99)


def test_rankers_must_be_fitted():
    data = tr.synthetic(n_queries=10, seed=0)
    fitted = tr.LinearRanker().fit(data)
    for options in ({"ranker": tr.LinearRanker()}, {"ranker": fitted, "shadow": tr.LinearRanker()}):
        with pytest.raises(NotFittedError, match="LinearRanker"):
            tr.monitor(reference=data, new=data, **options)


def test_a_shadow_that_never_disagreed_may_yet():
    data = tr.synthetic(n_queries=40, seed=0)
    ranker = tr.LinearRanker("ListNet").fit(data)
    found = tr.monitor(ranker, data, data.select(range(20)), shadow=ranker, n_resamples=99).shadow
    assert found.top1_changed == 0
    low, high = found.top1_changed_interval
    assert low == 0
    assert (1 - high) ** 20 == pytest.approx(0.025)  # so likely is it that twenty queries miss what happens in `high`
