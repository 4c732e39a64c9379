"""`AutoRanker` is a ranker like any other: cloned, searched, piped, validated, saved, exported and explained."""

from __future__ import annotations

import json
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from typer.testing import CliRunner

import toprank as tr
from toprank import compute, systems
from toprank.cli.commands import app
from toprank.errors import DataError, UnknownNameError
from toprank.experiment.spec import entries_of
from toprank.model_selection import automatic, search
from toprank.model_selection.default import BLENDED_SYSTEMS, DEFAULT_SEARCH, TooFewQueriesWarning, default_systems
from toprank.model_selection.portfolio import portfolio
from toprank.rankers.early_stopping import EarlyStopping
from toprank.rankers.source import RankingObjective
from toprank.rankers.trees import cores
from toprank.rankers.trees import parameters as tree_parameters
from toprank.rankers.trees.cores import FreeCores
from toprank.systems import DEFAULT

QUICK = {"time_budget": None, "max_trials": 2, "threads": 1}


@pytest.fixture(scope="module")
def data():
    made = tr.synthetic(n_queries=48, n_documents=(4, 12), n_features=4, n_grades=3, noise=0.5, seed=0)
    return made.replace(feature_names=None)


@pytest.fixture(scope="module")
def parts(data):
    return tr.split(data, (0.6, 0.4))


@pytest.fixture(scope="module")
def fitted(parts):
    return tr.AutoRanker(**QUICK).fit(parts[0])


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# ---- too few queries ----


@pytest.mark.parametrize("n_queries", [1, 9])
def test_the_default_system_is_trained_where_there_are_too_few_queries_to_choose_by(data, n_queries, tmp_path):
    few = data.select(range(n_queries))
    ranker = tr.AutoRanker(**QUICK)
    with pytest.warns(
        TooFewQueriesWarning, match=rf"at least 10 .*but the data have {n_queries} quer.*trained {DEFAULT}"
    ):
        ranker.fit(few)
    wanted = systems.make(DEFAULT).fit(few).predict(data)
    np.testing.assert_array_equal(ranker.predict(data), wanted)
    choice = ranker.selection_
    assert (choice.name, choice.trials, choice.n_held_out, choice.refitted) == (DEFAULT, [], None, False)
    assert np.isnan(choice.value)
    assert choice.to_dict()["value"] is None
    assert str(choice).startswith(f"{DEFAULT}, without a search.")
    with pytest.raises(DataError, match="has no trials to plot"):
        choice.plot()
    assert ranker.training_["auto"]["chosen"] == DEFAULT
    ranker.save(tmp_path / "m.toprank")
    np.testing.assert_array_equal(tr.load(tmp_path / "m.toprank").predict(data), wanted)


def test_few_queries_with_validation_data_are_chosen_on(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error", TooFewQueriesWarning)
        ranker = tr.AutoRanker(**QUICK).fit(data.select(range(9)), valid=data.select(range(9, 40)))
    assert len([row for row in ranker.selection_.trials if row["value"] is not None]) >= 2


# ---- the contract of scikit-learn ----


def test_parameters_and_clones():
    ranker = tr.AutoRanker(60.0, 3, "map", 7)
    assert repr(ranker) == "AutoRanker(max_trials=3, metric='map', seed=7, time_budget=60.0)"
    assert clone(ranker).get_params() == ranker.get_params()
    assert ranker.set_params(time_budget=None).time_budget is None
    assert repr(tr.AutoRanker()) == "AutoRanker()"
    with pytest.raises(ValueError, match="Invalid parameter 'n_trees'"):
        ranker.set_params(n_trees=3)
    with pytest.raises(NotFittedError):
        ranker.predict(np.zeros((2, 4)))
    for question in (lambda: ranker.save("m"), lambda: ranker.formula(), lambda: ranker.feature_importances_):
        with pytest.raises(NotFittedError):
            question()


def test_arrays_and_data_are_one(data, parts, fitted):
    train, valid = parts
    again = tr.AutoRanker(**QUICK).fit(train.X, train.labels, qid=train.qid)
    assert again.n_features_in_ == 4
    np.testing.assert_array_equal(again.predict(valid.X, qid=valid.qid), fitted.predict(valid))
    given = tr.AutoRanker(**QUICK).fit(train, valid=(valid.X, valid.labels, valid.qid))
    assert given.selection_.value == tr.auto(train, valid, **QUICK).value
    with pytest.raises(ValueError, match="expecting 4 features"):
        fitted.predict(valid.X[:, :3])


def test_pipelines_searches_and_validation(data, routing):
    pipeline = make_pipeline(MinMaxScaler(), tr.AutoRanker(**QUICK))
    pipeline.fit(data.X, data.labels, qid=data.qid)
    assert pipeline.predict(data.X).shape == (data.n_documents,)
    how = {"cv": GroupKFold(2), "scoring": tr.make_scorer("ndcg@5")}
    search = GridSearchCV(tr.AutoRanker(**QUICK), {"blend": [True, False]}, error_score="raise", **how)
    search.fit(data.X, data.labels, qid=data.qid, groups=data.qid)
    assert isinstance(search.best_estimator_.selection_.value, float)
    scores = cross_val_score(
        tr.AutoRanker(**QUICK), data.X, data.labels, params={"qid": data.qid, "groups": data.qid}, **how
    )
    assert len(scores) == 2
    assert np.isfinite(scores).all()


def test_it_travels(fitted, parts):
    back = pickle.loads(pickle.dumps(fitted))
    assert back.predict(parts[1]).tobytes() == fitted.predict(parts[1]).tobytes()
    assert back.selection_.summary == fitted.selection_.summary


# ---- what it chooses ----


def test_auto_is_its_short_form(parts, fitted):
    train, valid = parts
    choice = tr.auto(train, **QUICK)
    assert choice.summary == fitted.selection_.summary
    assert choice.ranker.predict(valid).tobytes() == fitted.predict(valid).tobytes()
    assert fitted.selection_.ranker is fitted.ranker_
    assert fitted.selection_.n_held_out == 7  # a quarter of 29
    assert fitted.training_["fingerprint"] == train.fingerprint
    assert fitted.training_["auto"]["summary"] == fitted.selection_.summary


def test_validation_data_are_used_and_never_trained_on(parts):
    train, valid = parts
    ranker = tr.AutoRanker(**QUICK, blend=False).fit(train, valid=valid)
    assert ranker.selection_.n_held_out is None
    assert not ranker.selection_.refitted
    assert ranker.ranker_.training_["queries"] == train.n_queries
    assert ranker.selection_.value == tr.evaluate(ranker.predict(valid), valid).mean["ndcg@10"]
    assert ranker.selection_.evaluated_on == f"{valid.n_queries} queries of validation data"


def test_as_many_trials_as_asked_for_give_the_same_bits_however_slow_the_machine(parts, monkeypatch):
    train, valid = parts
    asked = {"time_budget": None, "max_trials": 5}
    quick = tr.AutoRanker(**asked, threads=1).fit(train)
    assert sum(row["state"] == "complete" and row["name"] != "blend" for row in quick.selection_.trials) == 5
    hours = iter(range(10**6))
    monkeypatch.setattr(search, "time", SimpleNamespace(perf_counter=lambda: 3600.0 * next(hours)))
    slow = tr.AutoRanker(**asked, threads=2).fit(train)
    assert slow.selection_.refitted
    assert not slow.selection_.timed_out
    assert slow.selection_.summary == quick.selection_.summary
    assert slow.predict(valid).tobytes() == quick.predict(valid).tobytes()
    bound = tr.AutoRanker(100.0, 5, threads=1).fit(train)  # the same clock against a budget: it does bind
    assert bound.selection_.timed_out
    assert not bound.selection_.refitted


def test_each_fit_has_the_whole_budget(parts, monkeypatch):
    begun = []

    class Clock(search.Clock):
        def __init__(self, time_budget=None):
            begun.append(time_budget)
            super().__init__(time_budget)

    monkeypatch.setattr(automatic, "Clock", Clock)
    ranker = tr.AutoRanker(100.0, 1, threads=1)
    for _ in range(2):
        ranker.fit(parts[0])
    assert begun == [100.0] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [({"time_budget": 0}, "time_budget must be"), ({"time_budget": float("nan")}, "time_budget must be"),
     ({"time_budget": -1.0}, "time_budget must be"), ({"max_trials": 0}, "max_trials must be"),
     ({"max_trials": 1.5}, "max_trials must be"), ({"seed": -1}, "seed must be"), ({"blend": "no"}, "blend must be")],
)  # fmt: skip
def test_what_no_choice_can_be_made_with(parts, options, words):
    with pytest.raises(DataError, match=words):
        tr.AutoRanker(**options).fit(parts[0])


def test_data_that_nothing_can_be_chosen_on(parts, data):
    train, valid = parts
    ranker = tr.AutoRanker(**QUICK).fit(train)
    before = ranker.predict(valid)
    with pytest.raises(DataError, match="All documents of each query"):
        ranker.fit(train.replace(labels=np.ones(train.n_documents)))
    with pytest.raises(DataError, match="All documents of each query"):
        ranker.fit(train, valid=valid.replace(labels=np.zeros(valid.n_documents)))
    with pytest.raises(UnknownNameError):
        tr.AutoRanker(metric="ncdg").fit(train)
    np.testing.assert_array_equal(ranker.predict(valid), before)  # a fit that failed changed nothing


def test_an_interrupt_keeps_what_was_fitted(parts, monkeypatch):
    fits, real = [], tr.LinearRanker.fit

    def fit(self, *args, **options):
        fits.append(self)
        if len(fits) == 2:
            raise KeyboardInterrupt
        return real(self, *args, **options)

    monkeypatch.setattr(tr.LinearRanker, "fit", fit)
    ranker = tr.AutoRanker(**QUICK | {"max_trials": 3}, blend=False).fit(*parts[:1], valid=parts[1])
    assert ranker.was_interrupted
    assert {row["name"] for row in ranker.selection_.trials} == {"ListNet", "YetiRank"}
    assert len(fits) == 2
    fits[:] = [None]  # the first fit is the one that is interrupted
    with pytest.raises(KeyboardInterrupt):
        tr.AutoRanker(**QUICK).fit(parts[0], valid=parts[1])


# ---- the chosen ranker answers ----


def test_what_is_saved_is_the_chosen_ranker(fitted, parts, tmp_path):
    fitted.save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert type(back) is type(fitted.ranker_)
    assert back.predict(parts[1]).tobytes() == fitted.predict(parts[1]).tobytes()
    assert back.training_["auto"] == fitted.training_["auto"]
    member = tr.BlendRanker.from_fitted([fitted, fitted.ranker_], parts[1])
    member.save(tmp_path / "blend.toprank")
    assert tr.load(tmp_path / "blend.toprank").predict(parts[1]).tobytes() == member.predict(parts[1]).tobytes()


def test_explanations_and_exports_are_those_of_the_chosen_ranker(fitted, parts, tmp_path):
    _, valid = parts
    qid = valid.qids[0]
    pair, of_chosen = fitted.explain(valid, qid=qid), fitted.ranker_.explain(valid, qid=qid)
    assert pair.contributions == of_chosen.contributions
    np.testing.assert_array_equal(fitted.feature_importances_, fitted.ranker_.feature_importances_)
    assert repr(fitted.formula()) == repr(fitted.ranker_.formula())
    for feature in range(4):
        mine, theirs = fitted.score_profile(feature), fitted.ranker_.score_profile(feature)
        assert (mine is None) == (theirs is None)
    assert fitted.rank(valid, k=2) == fitted.ranker_.rank(valid, k=2)
    assert tr.export(fitted, "python", tmp_path / "scorer.py", check=valid).passed


# ---- experiments ----


def test_it_is_chosen_inside_each_training_part(data):
    results = tr.Experiment(
        data, ["LeastSquares", ("auto", QUICK)], n_folds=3, threads=1, selection_metric="map", save_models=True
    ).run(verbose=False)
    assert not results.failures
    cells = [cell for cell in results.cells if cell.system == "auto"]
    assert len(cells) == 3
    for cell, fold in zip(cells, tr.folds(data, 3), strict=True):
        by_hand = tr.AutoRanker(**QUICK, metric="map").fit(fold.train, valid=fold.valid)
        choice = by_hand.selection_
        assert (cell.metric, cell.valid, cell.options) == (choice.metric, choice.value, {"chosen": choice.name})
        judged = [(row["name"], row["value"]) for row in choice.trials if row["value"] is not None]
        assert [(row["candidate"], row["valid"]) for row in cell.candidates] == judged
        wanted = tr.evaluate(by_hand.predict(fold.test), fold.test).mean["ndcg@10"]
        assert (
            tr.evaluate(results.ranker(None, fold.name, "auto").predict(fold.test), fold.test).mean["ndcg@10"] == wanted
        )


def test_auto_by_its_name(data):
    [entry] = entries_of(["Auto"])
    assert (entry.name, type(entry.ranker), entry.random) == ("auto", tr.AutoRanker, True)
    [fixed] = entries_of([("auto", {"seed": 3})])
    assert not fixed.random
    with pytest.raises(UnknownNameError, match="option of auto"):
        tr.Experiment(data, [("auto", {"n_trees": 3})])
    [own] = tr.Experiment(data, {"mine": tr.AutoRanker(metric="err@10")}, selection_metric="map").entries
    assert own.ranker.metric == "err@10"  # a ranker that is given keeps its own


def test_the_command_cross_validates_it(data, tmp_path):
    tr.write(data, tmp_path / "d.txt")
    settings = ["--set", "auto.max_trials=1", "--set", "AUTO.blend=false", "--folds", "3", "--threads", "1"]
    done = CliRunner().invoke(
        app, ["cv", str(tmp_path / "d.txt"), "--systems", "LeastSquares,auto", *settings, "--json"]
    )
    assert done.exit_code == 0, done.output
    assert '"auto"' in json.dumps(json.loads(done.stdout))


# ---- the budget ----


@pytest.fixture
def costly(monkeypatch):
    """A machine on which nothing takes time but a pass over the data and a tree: 0.9 s each."""
    clock = SimpleNamespace(now=0.0, first=None)

    def costs(kind, name):
        real = getattr(kind, name)

        def timed(*given, **options):
            clock.now += 0.9
            return real(*given, **options)

        monkeypatch.setattr(kind, name, timed)

    for module in (search, compute):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    costs(RankingObjective, "value_and_grad")
    costs(RankingObjective, "hessian")
    costs(EarlyStopping, "note")
    fit = tr.LinearRanker.fit

    def first(self, *given, **options):
        fitted = fit(self, *given, **options)
        clock.first = clock.first or clock.now
        return fitted

    monkeypatch.setattr(tr.LinearRanker, "fit", first)
    return clock


@pytest.mark.parametrize("given", [True, False], ids=["valid", "refit"])
@pytest.mark.parametrize("budget", [5.0, 40.0, 90.0, 300.0])
def test_the_budget_is_kept_to_the_tree_and_the_step_however_slow_they_are(parts, costly, budget, given):
    train, valid = parts
    ranker = tr.AutoRanker(budget, threads=1).fit(train, valid=valid if given else None)
    assert costly.now <= 1.05 * max(budget, costly.first) + 1
    assert ranker.selection_.timed_out
    late = [row["name"] for row in ranker.selection_.trials if row["state"] == "not tried"]
    cut = [row["name"] for row in ranker.selection_.trials if row["state"] == "cut short"]
    for names, words in ((late, "Not tried for lack of time: "), (cut, "Stopped early for lack of time: ")):
        assert not names or words in ranker.selection_.summary
        assert all(name in ranker.selection_.summary for name in names)
    assert np.isfinite(ranker.predict(valid)).all()
    if budget > 2 * costly.first:
        assert "YetiRank" not in late  # what wins soonest comes second


def test_without_limit_the_slow_machine_ends_nothing(parts, costly):
    ranker = tr.AutoRanker(None, max_trials=3, threads=1).fit(parts[0])
    assert costly.now > 100
    assert {row["state"] for row in ranker.selection_.trials} == {"complete", "not tried"}
    assert not ranker.was_interrupted


def test_a_training_again_that_takes_too_long_is_given_up(parts, costly, monkeypatch):
    """The choice is quick, and training it again on all the data takes hours."""
    real = automatic.refit_on_all

    def slow(ranker, rounds, data):
        costly.now += 3600.0
        return real(ranker, rounds, data)

    monkeypatch.setattr(automatic, "refit_on_all", slow)
    ranker = tr.AutoRanker(300.0, max_trials=1, threads=1).fit(parts[0])
    assert not ranker.selection_.refitted
    assert ranker.selection_.timed_out
    assert "not refitted on all the data for lack of time" in ranker.selection_.summary
    assert np.isfinite(ranker.predict(parts[1])).all()


@pytest.mark.parametrize(("asked", "spares"), [(None, True), ("1", True), ("0", False)])
def test_busy_cores_are_left_to_others_as_by_the_command(parts, monkeypatch, asked, spares):
    looks, asked_for = [], []

    def look():
        looks.append(None)
        return FreeCores(1, "")

    if asked is None:
        monkeypatch.delenv(cores.VARIABLE, raising=False)  # a command that ran in this process asks for it
    else:
        monkeypatch.setenv(cores.VARIABLE, asked)
    monkeypatch.setattr(tree_parameters, "_CELLS_PER_THREAD", 1)
    monkeypatch.setattr(tree_parameters, "available_threads", lambda threads=None: 2 if threads is None else threads)
    monkeypatch.setattr(tree_parameters, "free_cores", look)
    real = tree_parameters.training_threads
    monkeypatch.setattr(
        tree_parameters, "training_threads", lambda *given: asked_for.append(real(*given)) or asked_for[-1]
    )
    tr.AutoRanker(time_budget=None, max_trials=2).fit(parts[0])
    assert [free.threads for free in asked_for] == [1 if spares else 2] * 2  # the search, and training again on all
    assert len(looks) == (2 if spares else 0)
    tr.TreeRanker(n_trees=2).fit(parts[0])
    assert asked_for[-1].threads == (1 if asked == "1" else 2)  # a ranker by itself decides by the variable alone


def test_the_default_system_comes_first_and_is_what_train_makes(parts):
    train, valid = parts
    names = [entry.name for entry in portfolio(train, "ndcg@10", "standard", 0, 1)]
    assert tuple(names[:2]) == default_systems(train, valid) == BLENDED_SYSTEMS
    plain = tr.auto(train, valid, **DEFAULT_SEARCH, threads=1)
    assert sorted(row["name"] for row in plain.trials if row["state"] == "complete" and row["name"] != "blend") == [
        "ListNet", "YetiRank"
    ]  # fmt: skip


def test_the_default_system_gets_all_the_time_that_it_needs(parts, costly):
    """With a third of the time of the whole portfolio, and no others before it is complete."""
    train, valid = parts
    whole = tr.AutoRanker(**QUICK).fit(train, valid=valid)
    needed = costly.now
    costly.now = 0.0
    ranker = tr.AutoRanker(1.2 * needed, threads=1).fit(train, valid=valid)
    states = {row["name"]: row["state"] for row in ranker.selection_.trials}
    assert (states["ListNet"], states["YetiRank"]) == ("complete", "complete")
    rows = {row["name"]: row["value"] for row in whole.selection_.trials}
    found = {row["name"]: row["value"] for row in ranker.selection_.trials}
    assert (found["ListNet"], found["YetiRank"]) == (rows["ListNet"], rows["YetiRank"])
    assert costly.now >= 0.95 * 1.2 * needed  # nothing stays idle


@pytest.mark.parametrize("given", [True, False], ids=["valid", "refit"])
@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_no_time_stays_idle_while_candidates_are_unfinished(parts, costly, factor, given):
    train, valid = parts
    valid = valid if given else None
    tr.AutoRanker(**QUICK).fit(train, valid=valid)
    budget, costly.now = factor * costly.now, 0.0
    ranker = tr.AutoRanker(budget, threads=1).fit(train, valid=valid)
    assert ranker.selection_.timed_out
    assert 0.95 * budget <= costly.now <= 1.05 * budget + 1
