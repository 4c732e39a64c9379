"""Named systems: each can be made, trained, chosen on validation data, and beats a random order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import toprank as tr
from support import toprank
from toprank import systems
from toprank.errors import DataError, UnknownNameError
from toprank.model_selection import search as searching
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.rankers.linear.single_feature import _best_threshold

TREES = [name for name in systems.names() if systems.get(name).ranker == "TreeRanker"]
NETWORKS = [name for name in systems.names() if systems.get(name).ranker == "NeuralRanker"]


@pytest.fixture(scope="module")
def parts():
    data = tr.synthetic(n_queries=60, n_documents=(4, 12), n_features=5, n_grades=3, noise=0.3, seed=0)
    data = data.replace(teacher=data.expected_gain())  # for systems that learn from one
    return tr.split(data, (0.5, 0.25, 0.25))


@pytest.mark.parametrize("name", systems.names())
@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConstantScoresWarning")
def test_every_system_learns(parts, name):
    train, _, test = parts
    if name in NETWORKS:
        pytest.importorskip("torch")
    small = {"max_rounds": 30} if systems.get(name).ranker in ("AdaRank", "RankBoost") else {}
    small |= {"n_trees": 20, "min_data_in_leaf": 5} if systems.get(name).ranker == "TreeRanker" else {}
    small |= {"epochs": 15, "learning_rate": 0.01, "threads": 1} if name in NETWORKS else {}
    small |= {"restarts": 1, "max_cycles": 2, "steps": 4} if name == "CoordinateAscent" else {}
    ranker = systems.make(name, **small).fit(train)
    random = tr.evaluate(np.zeros(test.n_documents), test).mean["ndcg@10"]
    assert tr.evaluate(ranker.predict(test), test).mean["ndcg@10"] > random + 0.1 or ranker.solution_.zero_is_optimal


@pytest.mark.parametrize("name", ["LeastSquares", "cs-RgList", "OWPC-top10", "PlugIn", "AdaRank-MAP"])
def test_selection_tries_the_grid_and_keeps_the_best(parts, name):
    train, valid, _ = parts
    chosen = tr.grid_search(name, train, valid, threads=2)
    best = max(row["value"] for row in chosen.trials)
    assert chosen.value == pytest.approx(best, abs=0.02 if name.startswith("OWPC") else 0)  # which is fitted again
    again = tr.grid_search(name, train, valid, threads=1)
    assert again.options == chosen.options
    np.testing.assert_array_equal(again.ranker.predict(valid), chosen.ranker.predict(valid))
    seen = tr.evaluate(chosen.ranker.predict(valid), valid, chosen.metric).mean[chosen.metric]
    assert seen == pytest.approx(chosen.value, abs=1e-9)


def noisy_parts():
    """Many features and few queries: penalties matter."""
    return tr.split(tr.synthetic(n_queries=80, n_documents=10, n_features=30, noise=2.0, seed=0), (0.3, 0.7))


def test_a_search_walks_beyond_the_edge_of_its_grid():
    train, valid = noisy_parts()

    def value(l2):
        ranker = tr.LinearRanker("Squared", l2=l2).fit(train)
        return tr.evaluate(ranker.predict(valid), valid, "ndcg@10").mean["ndcg@10"]

    ladder = [10.0**power for power in range(7)]
    values = [value(l2) for l2 in ladder]
    top = next(i for i in range(7) if values[i + 1] <= values[i])  # where a climber from the lowest rung stops
    assert top > 1
    system = systems.System("narrow", "LinearRanker", "Squared", "us", "a narrow grid", grid={"l2": tuple(ladder[:2])})
    chosen = tr.grid_search(system, train, valid)
    assert [row["options"]["l2"] for row in chosen.trials] == pytest.approx([*ladder[1::-1], *ladder[2 : top + 2]])
    assert chosen.options["l2"] == pytest.approx(ladder[top])
    assert chosen.value == pytest.approx(values[top], abs=1e-9)
    assert chosen.sentences == (
        f"The best l2 was at the edge of the grid, {ladder[1]:g}; continued to {ladder[top + 1]:g}, "
        f"the best is {ladder[top]:g}.",
    )
    as_it_stands = tr.grid_search(replace(system, exact_grid=True), train, valid)
    assert [row["options"]["l2"] for row in as_it_stands.trials] == ladder[1::-1]
    assert as_it_stands.options["l2"] == ladder[1]
    assert not as_it_stands.sentences


def test_caution_keeps_the_default_unless_it_is_clearly_beaten():
    train, valid = noisy_parts()
    default = tr.LinearRanker("Squared").l2
    system = replace(systems.get("LeastSquares"), exact_grid=True)
    best = tr.grid_search(system, train, valid)
    assert best.options["l2"] != default
    values = {}
    for l2 in (best.options["l2"], default):
        scores = tr.LinearRanker("Squared", l2=l2).fit(train).predict(valid)
        values[l2] = tr.evaluate(scores, valid, "ndcg@10").per_query["ndcg@10"]
    gains = values[best.options["l2"]] - values[default]
    needed = gains.mean() / (gains.std(ddof=1) / np.sqrt(len(gains)))
    assert tr.grid_search(system, train, valid, se_rule=0.9 * needed).options == best.options
    kept = tr.grid_search(system, train, valid, se_rule=1.1 * needed)
    assert kept.options["l2"] == default
    assert kept.value == pytest.approx(values[default].mean())
    assert kept.ranker.l2_ == default
    assert kept.ranker.training_["valid"]["ndcg@10"] == kept.value
    np.testing.assert_allclose(
        kept.ranker.predict(valid), tr.LinearRanker("Squared", l2=default).fit(train).predict(valid), rtol=1e-6
    )
    assert "is kept" in kept.sentences[0]
    with pytest.raises(DataError, match="se_rule must be a number of at least 0"):
        tr.grid_search(system, train, valid, se_rule=-1)


@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConvergenceWarning")
def test_a_search_knows_which_candidates_did_not_converge(parts):
    train, valid, _ = parts
    chosen = tr.grid_search("RankNet-linear", train, valid, max_iterations=2)
    short = [row["options"]["l2"] for row in chosen.trials if not row["converged"]]
    assert short
    assert [row["options"]["l2"] for row in chosen.unconverged] == short
    assert f"{len(short)} of {len(chosen.trials)} candidates did not converge" in chosen.sentences[-1]
    assert f"l2 = {short[0]:g}" in chosen.sentences[-1]
    assert not tr.grid_search("RankNet-linear", train, valid).unconverged


def test_selection_never_looks_at_other_data(parts):
    """Choices stay the same whatever the labels of the test part are: they are not even given."""
    train, valid, _ = parts
    fixed = tr.grid_search("LeastSquares", train, valid, l2=0.5)
    assert fixed.options["l2"] == 0.5
    assert len(fixed.trials) == 1
    by_c = tr.grid_search("RankSVM", train, valid, C=2.0)
    assert by_c.options["l2"] == 0.5


def test_names_and_options():
    assert systems.make("CS_RGLIST", pcf=2.0).loss.pcf == 2.0
    assert systems.make("rankSVM", C=4.0).l2 == 0.25
    with pytest.raises(UnknownNameError, match="RankSVM"):
        systems.make("RankSWM")
    with pytest.raises(UnknownNameError, match="pcf"):
        systems.make("cs-RgList", pfc=2.0)
    with pytest.raises(DataError, match="C must be a positive number"):
        systems.make("RankSVM", C=0.0)
    for system in systems.SYSTEMS.values():
        assert system.source
        assert system.idea
        for options in system.candidates():
            system.make(**options)


def test_train_predict_rank_and_inspect_from_the_command_line(parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, part in zip(("train", "vali", "test"), parts, strict=True):
        tr.write(part.replace(document_ids=[f"d{i}" for i in range(part.n_documents)]), f"{name}.txt")
    done = toprank("train", "train.txt", "--system", "cs-rglist", "--valid", "vali.txt", "-o", "m.toprank", "--json")
    answer = json.loads(done.stdout)
    assert answer["system"] == "cs-RgList"
    assert len(answer["trials"]) >= 10  # and more where the best lay at an edge
    assert bool(answer["summary"]) == (len(answer["trials"]) > 10)
    toprank("predict", "m.toprank", "test.txt", "-o", "test.scores")
    test = tr.read("test.txt")
    scores = tr.read_scores("test.scores", test.n_documents)
    np.testing.assert_array_equal(scores, tr.load("m.toprank").predict(test))
    printed = toprank("predict", "m.toprank", "test.txt").stdout.split()
    assert [float(number) for number in printed] == scores.tolist()
    lists = tr.load("m.toprank").rank(test, k=3)
    shown = [line.split("\t") for line in toprank("rank", "m.toprank", "test.txt", "--top", 3).stdout.splitlines()]
    assert {row[0]: row[1:] for row in shown} == {str(qid): rows for qid, rows in lists.items()}
    (tmp_path / "run.txt").write_text(toprank("rank", "m.toprank", "test.txt", "--top", 1000, "--trec").stdout)
    run = tr.evaluate_run(tr.data.trec.qrels_of(test), tr.read_run("run.txt"), "ndcg@10")
    by_scores = tr.evaluate(scores, test, "ndcg@10", convention="trec_eval")
    assert run.mean["ndcg@10"] == pytest.approx(by_scores.mean["ndcg@10"], abs=1e-9)
    described = toprank("inspect", "m.toprank").stdout
    assert "kind: LinearRanker" in described
    assert "training.system: cs-RgList" in described
    assert "cs-RgList" in toprank("systems").stdout
    assert set(json.loads(toprank("systems", "--json").stdout)) == set(systems.names())


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["train", "train.txt", "--system", "cs-RgLits", "-o", "m"], 2, "cs-RgList"),
        (["train", "train.txt", "--system", "cs-RgList", "--set", "pfc=2", "-o", "m"], 2, "pcf"),
        (["train", "train.txt", "--set", "pcf", "-o", "m"], 2, "key=value"),
        (["train", "train.txt", "--system", "ListNet", "--set", "l2=-1", "-o", "m"], 1, "0 or larger"),
        (["train", "train.txt", "--system", "ListNet", "--set", "l2=abc", "-o", "m"], 1, "l2"),
        (["train", "train.txt", "--system", "cs-RgList", "--set", "pcf=x", "-o", "m"], 1, "pcf must be a number"),
        (["train", "train.txt", "--system", "ListNet", "--set", "loss=Squared", "-o", "m"], 1, "fixed loss"),
        (["train", "none.txt", "-o", "m"], 1, "none.txt"),
        (["predict", "train.txt", "train.txt"], 1, "This is not a model"),
        (["inspect", "none.toprank"], 1, "none.toprank"),
    ],
)
def test_wrong_commands_are_sentences(parts, tmp_path, monkeypatch, arguments, status, words):
    monkeypatch.chdir(tmp_path)
    tr.write(parts[0], "train.txt")
    done = toprank(*arguments, status=status)
    assert words in done.stderr
    assert not (tmp_path / "m").exists()


def test_an_unfinished_search_still_gives_a_model(parts):
    train, valid, _ = parts
    with pytest.warns(ConvergenceWarning):
        chosen = tr.grid_search("RankNet-linear", train, valid, l2=1e-8, max_iterations=1)
    assert np.isfinite(chosen.ranker.predict(valid)).all()


@pytest.mark.parametrize("name", TREES)
def test_tree_systems_are_chosen_on_validation_data(parts, name):
    train, valid, _ = parts
    chosen = tr.grid_search(name, train, valid, n_trees=10, min_data_in_leaf=5, threads=2)
    assert [row["options"] for row in chosen.trials] == systems.get(name).candidates()
    assert chosen.value == max(row["value"] for row in chosen.trials)
    assert set(chosen.options) == set(systems.get(name).grid)
    assert chosen.ranker.get_params()["threads"] == 2
    assert chosen.metric == systems.get(name).metric
    seen = tr.evaluate(chosen.ranker.predict(valid), valid, chosen.metric).mean[chosen.metric]
    assert seen == pytest.approx(chosen.value, abs=1e-9)
    again = tr.grid_search(name, train, valid, n_trees=10, min_data_in_leaf=5, threads=1)
    assert again.trials == chosen.trials
    np.testing.assert_array_equal(again.ranker.predict(valid), chosen.ranker.predict(valid))


@pytest.mark.parametrize("name", NETWORKS)
def test_network_systems_are_chosen_on_validation_data(parts, name):
    pytest.importorskip("torch")
    train, valid, _ = parts
    small = {"epochs": 3, "hidden": [8], "width": 8, "n_heads": 2, "n_layers": 1, "device": "cpu"}
    chosen = tr.grid_search(name, train, valid, threads=1, **small)
    assert [row["options"] for row in chosen.trials] == systems.get(name).candidates()
    assert chosen.value == max(row["value"] for row in chosen.trials)
    assert chosen.options["learning_rate"] == chosen.ranker.learning_rate
    assert set(chosen.options) == set(systems.get(name).grid)
    seen = tr.evaluate(chosen.ranker.predict(valid), valid, chosen.metric).mean[chosen.metric]
    assert seen == pytest.approx(chosen.value, abs=1e-6)
    assert chosen.ranker.network == ("attention" if name == "Attention" else "mlp")
    with pytest.raises(DataError, match="fixed loss"):
        systems.make(name, loss="Squared")


def test_lightgbms_own_objective_is_a_system(parts):
    """By another name the same thing, and its loss is as fixed as any."""
    train, valid, _ = parts
    small = {"n_trees": 5, "min_data_in_leaf": 5, "threads": 1}
    by_name = systems.make("lambdamart-lightgbm", **small).fit(train)
    by_hand = tr.TreeRanker("lightgbm:lambdarank", **small).fit(train)
    np.testing.assert_array_equal(by_name.predict(valid), by_hand.predict(valid))
    assert (by_name.predict(valid) != systems.make("LambdaMART", **small).fit(train).predict(valid)).any()
    with pytest.raises(DataError, match="fixed loss"):
        systems.make("LambdaMART-lightgbm", loss="ListNet")
    with pytest.raises(UnknownNameError, match="'truncation'"):
        systems.make("LambdaMART-lightgbm", truncation=5)  # an option of our LambdaRank, not of LightGBM's


def test_rankers_without_a_path_search_a_grid_too(parts):
    """A grid is searched whatever the ranker, also where it brings its own loss or takes one penalty at a time."""
    train, valid, _ = parts
    rounds = systems.System("few rounds", "AdaRank", None, "us", "boosting", grid={"max_rounds": (1, 2, 20)})
    chosen = tr.grid_search(rounds, train, valid)
    assert [row["options"]["max_rounds"] for row in chosen.trials] == [1, 2, 20]
    assert chosen.options["max_rounds"] in (1, 2, 20)
    assert chosen.value == max(row["value"] for row in chosen.trials)
    penalized = systems.System("penalized", "TreeRanker", "ListNet", "us", "trees", {"n_trees": 5}, {"l2": (0.0, 10.0)})
    chosen = tr.grid_search(penalized, train, valid, min_data_in_leaf=5)
    assert [row["options"]["l2"] for row in chosen.trials] == [0.0, 10.0]
    assert chosen.options == {"l2": chosen.ranker.l2}


def one_strong_feature():
    """Feature 0 ranks best under any weights of the queries, but features 1 and 2 know what it does not."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600)
    noise = rng.normal(size=(600, 3)) * [1.0, 1.6, 1.6]
    return tr.RankingData(
        np.c_[labels[:, None] + noise, rng.normal(size=600)], labels, qid=np.repeat(np.arange(60), 10)
    )


def test_adarank_as_published_stands_still_and_ours_does_not():
    data = one_strong_feature()
    published = tr.AdaRank(metric="ndcg@10", max_consecutive=500).fit(data)
    ours = tr.AdaRank(metric="ndcg@10").fit(data)
    assert np.count_nonzero(published.coef_) == 1
    assert np.count_nonzero(ours.coef_) >= 3
    reached = [tr.evaluate(one.predict(data), data).mean["ndcg@10"] for one in (published, ours)]
    assert reached[1] > reached[0] + 0.02
    assert reached[1] == pytest.approx(ours.training_["train"]["ndcg@10"])


def test_adarank_is_the_algorithm_of_the_paper():
    """α and P by the formulas, round by round, in plain sums; a feature that won twice in a row has no third turn."""
    data, rounds = one_strong_feature(), 6
    Z = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)

    def quality(scores):
        return tr.evaluate(scores, data, "map").per_query["ap"]

    alone = {(j, sign): quality(sign * Z[:, j]) for j in range(4) for sign in (1, -1)}
    P, weights, chosen = np.full(60, 1 / 60), np.zeros(4), []
    for _ in range(rounds):
        aside = {j for (j, _), (k, _) in pairwise(chosen) if j == k}
        best = max((key for key in alone if key[0] not in aside), key=lambda key: P @ alone[key])
        chosen.append(best)
        weights[best[0]] += best[1] * np.log((P @ (1 + alone[best])) / (P @ (1 - alone[best]))) / 2
        P = np.exp(-quality(Z @ weights))
        P /= P.sum()
        fitted = tr.AdaRank(metric="map", max_rounds=len(chosen)).fit(data)
        if fitted.rounds_ == len(chosen):  # else an earlier round was better, and is kept
            np.testing.assert_allclose(fitted.coef_ * data.X.std(axis=0), weights, rtol=1e-9, atol=1e-12)
    assert len({j for j, _ in chosen}) >= 3


def test_listing_and_making_need_no_heavy_library():
    code = (
        "import sys; from toprank import systems; [one.candidates() for one in systems.SYSTEMS.values()];"
        "print('torch' in sys.modules, 'lightgbm' in sys.modules);"
        f"[systems.make(name) for name in {NETWORKS}];"
        "print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False"] * 3


def test_selection_by_a_measure_where_less_is_better(parts):
    train, valid, _ = parts
    chosen = tr.grid_search("LeastSquares", train, valid, metric="owa")
    assert chosen.value == min(row["value"] for row in chosen.trials)
    assert chosen.ranker.training_["valid"]["owa"] == chosen.value
    assert tr.evaluate(chosen.ranker.predict(valid), valid, "owa").mean["owa"] == pytest.approx(chosen.value)


@pytest.fixture(scope="module")
def faint(parts):
    """Data whose largest label is below 1: to a metric of relevant documents there are none."""
    return [part.replace(labels=part.labels / 4) for part in parts[:2]]


@pytest.mark.parametrize("name", ["RankSVM", "RankBoost", "AdaRank-MAP", "CoordinateAscent", "LambdaMART", "PlugIn"])
def test_a_metric_that_is_blind_chooses_nothing(faint, name):
    with pytest.raises(DataError, match=r"^map has the same value for the best and the worst order .* 0 to 0\.5\)"):
        tr.grid_search(name, *faint, metric="map")


@pytest.mark.parametrize(
    "ranker",
    [
        tr.LinearRanker("Logistic", l2=[1, 0.1], metric="map"),
        tr.LinearRanker("Logistic", tolerance=[1e-1, 1e-3], metric="map"),
        tr.RankBoost(max_rounds=3),
        tr.AdaRank(max_rounds=3),
        tr.CoordinateAscent(metric="map"),
        tr.TreeRanker(n_trees=3, early_stopping=2, metric="map"),
        tr.NeuralRanker(epochs=2, early_stopping=1, metric="map"),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_no_ranker_chooses_by_a_metric_that_is_blind(faint, ranker):
    if isinstance(ranker, tr.NeuralRanker):
        pytest.importorskip("torch")
    train, valid = faint
    with pytest.raises(DataError, match="map has the same value for the best and the worst order"):
        ranker.fit(train, valid=valid)


def test_where_nothing_is_chosen_a_blind_metric_is_told_as_it_is(faint):
    train, valid = faint
    fitted = tr.LinearRanker("Logistic", l2=0.1, metric="map").fit(train, valid=valid)
    assert fitted.training_["valid"]["map"] == 0
    trees = tr.TreeRanker(n_trees=3, early_stopping=None, min_data_in_leaf=2, metric="map").fit(train, valid=valid)
    assert trees.best_iteration_ == 3


def test_wrong_options_are_refused_not_ignored(parts):
    train, valid, _ = parts
    with pytest.raises(DataError, match="C must be a positive number"):
        tr.grid_search("RankSVM", train, valid, C=0)
    with pytest.raises(DataError, match="fixed loss"):
        systems.make("RankSVM", loss="Squared")
    with pytest.raises(DataError, match="pcf must be a number"):
        systems.make("cs-RgList", pcf="x")
    with pytest.raises(DataError, match="wrong type"):
        systems.make("LambdaMART", early_stopping="soon")
    assert systems.make("LambdaMART", early_stopping=None).early_stopping is None
    for name, values in {"standardize": 1, "max_iterations": 2.5, "tolerance": [1e-3, True]}.items():
        with pytest.raises(DataError, match=rf"{name}=.* has the wrong type for RankSVM; its default is"):
            systems.make("RankSVM", **{name: values})
    several = systems.make("RankSVM", l2=np.array([1.0, 0.1]), tolerance=[1e-3], solver=tr.solvers.LBFGS(), init=None)
    assert several.tolerance == [1e-3]
    with pytest.raises(DataError, match="l2 must be one or several numbers"):
        systems.make("RankSVM", l2="abc").fit(train)
    with pytest.raises(DataError, match="smooth loss"):
        systems.make("RankSVM", l1=0.1).fit(train)


def test_error_measures_are_lowered_by_every_ranker(parts):
    train, valid, _ = parts
    climbed = tr.CoordinateAscent(metric="owa", restarts=1, max_cycles=2, steps=4).fit(train)
    random = tr.evaluate(np.zeros(train.n_documents), train, "owa").mean["owa"]
    assert tr.evaluate(climbed.predict(train), train, "owa").mean["owa"] < random - 0.2
    with pytest.raises(DataError, match="larger values are better"):
        tr.AdaRank(metric="owa").fit(train)
    boosted = tr.RankBoost(metric="owa", max_rounds=20).fit(train, valid=valid)
    assert boosted.training_["valid"]["owa"] > 0


def test_a_search_that_is_interrupted_keeps_its_best(parts, monkeypatch):
    from toprank.rankers.source import RankingObjective

    train, valid, _ = parts
    calls, real = iter(range(10_000)), RankingObjective.value_and_grad

    def interrupted(self, weights):
        if next(calls) == 60:
            raise KeyboardInterrupt
        return real(self, weights)

    monkeypatch.setattr(RankingObjective, "value_and_grad", interrupted)
    chosen = tr.grid_search("OWPC", train, valid, threads=1)
    assert len(chosen.trials) < 40
    assert chosen.value == max(row["value"] for row in chosen.trials)


@pytest.mark.parametrize(
    ("name", "number", "tried"),
    [("LambdaMART", 1, 1), ("LambdaMART", 2, 2), ("cs-RgList", 1, 5), ("RankSVM", 1, 7)],
    ids=["second", "last", "refinement", "exact optimum"],
)
def test_an_interrupt_that_leaves_nothing_of_a_fit_keeps_the_others(parts, monkeypatch, name, number, tried):
    train, valid, _ = parts
    fits, real = iter(range(100)), Ranker.fit
    small = {"n_trees": 3, "min_data_in_leaf": 5} if name in TREES else {}

    def fit(self, *args, **options):
        if next(fits) == number:
            raise KeyboardInterrupt
        return real(self, *args, **options)

    monkeypatch.setattr(Ranker, "fit", fit)
    with pytest.warns(ConvergenceWarning, match=f"interrupted; the best of {tried} evaluated"):
        chosen = tr.grid_search(name, train, valid, threads=1, **small)
    assert len(chosen.trials) == tried
    assert chosen.value == max(row["value"] for row in chosen.trials)
    assert next(fits) == number + 1  # nothing was begun after it


def test_an_interrupt_between_candidates_or_before_any(parts, monkeypatch):
    train, valid, _ = parts

    def interrupted_after(count):
        def each(function, blocks, threads):
            for block in blocks[:count]:
                function(block)
            raise KeyboardInterrupt

        return each

    small = {"n_trees": 3, "min_data_in_leaf": 5}
    monkeypatch.setattr(searching, "each_block", interrupted_after(2))
    with pytest.warns(ConvergenceWarning, match="interrupted; the best of 2 evaluated"):
        assert len(tr.grid_search("LambdaMART", train, valid, threads=1, **small).trials) == 2
    monkeypatch.setattr(searching, "each_block", interrupted_after(0))
    with pytest.raises(KeyboardInterrupt):
        tr.grid_search("LambdaMART", train, valid, threads=1, **small)


def test_a_real_interrupt_leaves_a_usable_model(tmp_path):
    import signal

    data = tr.synthetic(n_queries=400, n_documents=60, n_features=40, noise=1.0, seed=0)
    tr.write(data, tmp_path / "d.txt")
    command = [sys.executable, "-m", "toprank", "train", tmp_path / "d.txt", "--system", "RankSVM"]
    command += ["--set", "l2=1e-9", "--set", "verbose=true", "-o", tmp_path / "m.toprank"]
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True) as running:
        assert any(line.startswith("iteration") for line in running.stderr)  # waits until training has begun
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
        assert running.wait(timeout=60) == 130  # so that no script goes on with half a training
    assert "Traceback" not in said
    assert "nterrupted" in said
    assert np.isfinite(tr.load(tmp_path / "m.toprank").predict(data)).all()


def test_rankboost_takes_the_threshold_with_the_largest_sum():
    rng = np.random.default_rng(0)
    for n_cuts in (1, 7, 64):
        bins, potentials = rng.integers(0, n_cuts + 1, (300, 4)).astype(np.uint8), rng.normal(size=300)
        sums = {(c, cut): potentials[bins[:, c] > cut].sum() for c in range(4) for cut in range(n_cuts)}
        column, cut, r = _best_threshold(bins, potentials, n_cuts)
        assert r == pytest.approx(sums[column, cut], rel=1e-12)
        assert abs(r) == pytest.approx(max(map(abs, sums.values())), rel=1e-12)


def test_the_default_of_the_command_line_is_that_which_was_measured():
    from inspect import signature

    from toprank.cli.options import expanded
    from toprank.cli.training import train

    asked = signature(expanded(train)).parameters["system"]
    assert asked.default is None
    said = f"Default: a blend of a linear ranker and trees; without --valid and with few queries, {systems.DEFAULT}."
    assert said in asked.annotation.__metadata__[0].help
    assert systems.get(systems.DEFAULT).kind.family == "linear"


@pytest.mark.parametrize("name", ["ListNet", "LambdaMART", "RankSVM", "cs-RgList"])
def test_without_validation_data_a_fifth_is_held_out_and_learned_from_in_the_end(parts, name):
    train, _, _ = parts
    small = {"n_trees": 8, "min_data_in_leaf": 5} if name in TREES else {}
    chosen = tr.grid_search(name, train, threads=1, **small)
    kept, held_out = tr.split(train, (0.8, 0.2), seed=0)
    assert (chosen.n_held_out, chosen.refitted) == (held_out.n_queries, True)
    assert chosen.ranker.training_["queries"] == train.n_queries
    assert chosen.evaluated_on == f"{held_out.n_queries} queries held out of {train.n_queries}"
    given = tr.grid_search(name, kept, held_out, threads=1, **small)
    assert chosen.options == given.options
    assert [row["value"] for row in chosen.trials] == [row["value"] for row in given.trials]
    again = systems.make(name, **small, **chosen.options, threads=1)
    if name in TREES:
        again.set_params(n_trees=given.ranker.best_iteration_)
    assert again.fit(train).predict(train).tobytes() == chosen.ranker.predict(train).tobytes()


def test_training_on_all_that_is_interrupted_leaves_what_was_chosen(parts, monkeypatch):
    train, _, _ = parts
    real = Ranker.fit

    def fit(self, data, *args, valid=None, **options):
        if valid is None:
            raise KeyboardInterrupt
        return real(self, data, *args, valid=valid, **options)

    monkeypatch.setattr(Ranker, "fit", fit)
    chosen = tr.grid_search("ListNet", train, threads=1)
    assert (chosen.interrupted, chosen.refitted) == (True, False)
    assert chosen.ranker.training_["queries"] < train.n_queries


def test_the_readme_counts_the_losses_and_names_those_that_exist():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    (count,) = re.findall(r"(\d+) losses", readme)
    assert int(count) == len(tr.losses.names())
    names = re.findall(r"Ranker\(\"(\w+)\"", readme)
    assert names
    assert set(names) <= set(tr.losses.names())
