"""`tr.tune`: what it finds, what it looks at, and that neither a kill nor a failing trial spoils a search."""

from __future__ import annotations

import itertools
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import textwrap
import warnings
import xml.etree.ElementTree as ET

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import toprank as tr
from toprank.cli.commands import app
from toprank.cli.tuning import _space
from toprank.errors import DataError, FileError, FormatError, MissingExtraError, UnknownNameError
from toprank.model_selection import tuning
from toprank.model_selection.hold_out import divide
from toprank.model_selection.search import Candidate, TrialEvaluator
from toprank.model_selection.space import OneOf, Range, default_space, read_space
from toprank.model_selection.study import _began
from toprank.model_selection.study_search import SearchedSystem, StudySearch
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.rankers.early_stopping import EarlyStopping
from toprank.systems import SYSTEMS, System

L2 = {"l2": (1e-4, 100.0, "log")}
# No leaf can hold so many documents, so nothing is learned; what a search finds must be far better.
NUMB = System(
    "Numb", "TreeRanker", "LambdaRank", "nobody", "no good", {"min_data_in_leaf": 9999, "n_trees": 10, "threads": 1}
)


@pytest.fixture(scope="module")
def parts():
    """Train and validation data of which every feature matters in its own way."""
    return tr.split(tr.synthetic(n_queries=60, n_documents=(4, 12), n_features=6, seed=3), (0.6, 0.4))


@pytest.fixture
def fits(monkeypatch):
    """What rankers were fitted on and asked to score, in order: ("fit" or "predict", query ids)."""
    seen = []
    fit, predict = Ranker.fit, Ranker.predict

    def noted_fit(self, X, *arguments, valid=None, **options):
        seen.append(("fit", X.qids.tolist(), None if valid is None else valid.qids.tolist()))
        return fit(self, X, *arguments, valid=valid, **options)

    def noted_predict(self, X, *arguments):
        seen.append(("predict", X.qids.tolist()))
        return predict(self, X, *arguments)

    monkeypatch.setattr(Ranker, "fit", noted_fit)
    monkeypatch.setattr(Ranker, "predict", noted_predict)
    return seen


def drawn(tuned):
    return [row["options"] for row in tuned.trials if row["state"] != "interrupted"]


# What it finds


def test_a_search_beats_a_bad_default(parts):
    train, valid = parts
    tuned = tr.tune(NUMB, train, valid, space={"min_data_in_leaf": (3, 9999, "log")}, n_trials=8)
    assert tuned.trials[0]["options"] == {"min_data_in_leaf": 9999}
    assert "no tree found a split" in tuned.trials[0]["remark"]
    assert tuned.trials[0]["value"] == pytest.approx(tr.evaluate(np.zeros(valid.n_documents), valid).mean["ndcg@10"])
    assert tuned.value > tuned.trials[0]["value"] + 0.05
    assert tuned.value == max(row["value"] for row in tuned.trials if row["state"] == "complete")
    assert tuned.ranker.min_data_in_leaf == tuned.options["min_data_in_leaf"] < 100
    per_query = tr.evaluate(tuned.ranker.predict(valid), valid).per_query["ndcg@10"]
    assert tuned.value == pytest.approx(per_query.mean())
    expected = tr.significance.t_interval(per_query)
    assert tuple(tuned.interval) == pytest.approx(tuple(expected))
    assert (tuned.interval.value, tuned.interval.n, tuned.interval.confidence) == (tuned.value, expected.n, 0.95)


def test_less_is_better_for_errors(parts):
    tuned = tr.tune("LeastSquares", *parts, space=L2, n_trials=6, metric="owa")
    complete = [row["value"] for row in tuned.trials if row["state"] == "complete"]
    assert tuned.value == min(complete) < max(complete)


def test_options_of_the_loss_and_fixed_ones(parts):
    tuned = tr.tune("ListNet", *parts, space={"loss.alpha": [0.5, 2.0]}, n_trials=3, l2=0.25)
    assert (tuned.ranker.l2, tuned.ranker.loss.alpha) == (0.25, tuned.options["loss.alpha"])
    assert tuned.options.keys() == {"loss.alpha"}
    by_constant = tr.tune("ListNet", *parts, space={"alpha": [0.5, 2.0]}, n_trials=1, C=4.0)
    assert by_constant.ranker.l2 == 0.25


def test_the_same_seed_makes_the_same_trials(parts):
    first, again, other = (tr.tune("ListNet", *parts, n_trials=13, seed=seed) for seed in (1, 1, 2))
    assert [(row["options"], row["value"]) for row in first.trials] == [
        (row["options"], row["value"]) for row in again.trials
    ]
    assert drawn(first)[1:] != drawn(other)[1:]
    assert drawn(first)[0] == drawn(other)[0] == {"l2": 0.1, "loss.alpha": 1.0}
    assert len({str(options) for options in drawn(first)}) == 13


# What it looks at


def test_nothing_but_train_and_valid_is_touched(parts, fits):
    train, valid = parts
    tr.tune("ListNet", train, valid, n_trials=4)
    assert fits
    for kind, qids, *judges in fits:
        assert qids == (train if kind == "fit" else valid).qids.tolist()
        assert judges in ([], [valid.qids.tolist()])


@pytest.mark.parametrize("folds", [None, 3])
def test_a_trial_is_judged_on_queries_it_has_not_seen(parts, fits, folds):
    train, _ = parts
    tuned = tr.tune("LeastSquares", train, space=L2, n_trials=2, folds=folds)
    trials = [fits[at : at + 2] for at in range(0, len(fits) - 1, 2)]
    for (_, learned, judged), (_, scored) in trials:
        assert judged == scored
        assert set(learned) | set(scored) == set(train.qids.tolist())
        assert not set(learned) & set(scored)
    if folds is not None:
        assert fits[-1] == ("fit", train.qids.tolist(), None)  # the answer learns from all
        assert sum(len(scored) for _, (_, scored) in trials[:3]) == train.n_queries
        assert tuned.trials[0]["queries"] == train.n_queries


@given(n=st.integers(2, 40), folds=st.none() | st.integers(2, 6), seed=st.integers(0, 99), data=st.data())
def test_a_query_is_never_divided(n, folds, seed, data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    qid = np.repeat(np.arange(n), sizes)
    whole = tr.RankingData(np.arange(len(qid), dtype=float)[:, None], np.zeros(len(qid)), qid=qid)
    if n < (folds or 2):
        with pytest.raises(DataError, match="cannot be divided"):
            divide(whole, None, folds=folds, seed=seed)
        return
    division = divide(whole, None, folds=folds, seed=seed)
    assert len(division.rounds) == (folds or 1)
    for train, valid, _ in division.rounds:
        rows = np.concatenate([train.X[:, 0], valid.X[:, 0]])
        assert sorted(rows) == list(range(len(qid)))
        assert not set(train.qids) & set(valid.qids)
    judges = [qid for part in division.rounds for qid in part.held_out.qids.tolist()]
    assert len(judges) == len(set(judges))
    assert folds is None or len(judges) == n


def test_rounds_after_folds_are_the_mean_of_the_best(parts):
    train, _ = parts
    few = {"n_trees": 25, "early_stopping": 5, "min_data_in_leaf": 3, "threads": 1}
    tuned = tr.tune("LambdaMART", train, folds=2, n_trials=1, space={"num_leaves": [4]}, **few)
    best = [
        SYSTEMS["LambdaMART"].make(num_leaves=4, **few).fit(part.train, valid=part.valid).best_iteration_
        for part in divide(train, None, folds=2).rounds
    ]
    assert tuned.ranker.n_trees == round(np.mean(best)) == tuned.ranker.best_iteration_
    assert tuned.ranker.training_["queries"] == train.n_queries


def test_a_network_after_folds_is_trained_at_the_rates_of_the_folds(parts):
    pytest.importorskip("torch")
    train, _ = parts
    few = {"epochs": 12, "early_stopping": 2, "hidden": (8,), "threads": 1, "device": "cpu"}
    tuned = tr.tune("RankNet", train, folds=2, n_trials=1, space={"learning_rate": [0.1]}, **few)
    [rounds] = [row["rounds"] for row in tuned.trials]
    assert tuned.ranker.best_epoch_ == max(1, round(np.mean(rounds))) < 12
    assert tuned.ranker.epochs == 12
    assert tuned.ranker.callbacks == ()
    whole = SYSTEMS["RankNet"].make(learning_rate=0.1, metric="ndcg@10", **few).fit(train)
    assert tuned.ranker.history_["loss"] == whole.history_["loss"][: tuned.ranker.best_epoch_]


@pytest.mark.parametrize(
    ("space", "fixed"),
    [
        ({"alpha": (0.1, 2.0)}, {"l2": [0.1, 1.0]}),
        ({"l2": [0.1, [0.1, 1.0]]}, {}),
        ({"alpha": (0.1, 2.0)}, {"tolerance": (1e-3, 1e-5)}),
    ],
)
def test_folds_leave_the_ranker_nothing_to_choose_on(parts, fits, space, fixed):
    with pytest.raises(DataError, match="needs validation data, which the final fit after folds lacks"):
        tr.tune("ListNet", parts[0], folds=2, n_trials=2, space=space, **fixed)
    assert not fits


def test_numbers_of_numpy_are_numbers(parts):
    plain = tr.tune("ListNet", parts[0], folds=2, n_trials=2, seed=2)
    of_numpy = tr.tune("ListNet", parts[0], folds=np.int32(2), n_trials=np.int64(2), seed=np.uint8(2))
    assert drawn(of_numpy) == drawn(plain)


@pytest.mark.parametrize("folds", [None, 2])
def test_networks(parts, folds):
    pytest.importorskip("torch")
    space = {"hidden": [(4,), [8, 4]], "learning_rate": (1e-4, 1e-2, "log")}
    train, valid = parts
    few = {"epochs": 4, "threads": 1, "device": "cpu"}
    tuned = tr.tune("RankNet", train, None if folds else valid, folds=folds, space=space, n_trials=3, **few)
    assert tuned.options["hidden"] in [(4,), [8, 4]]
    assert tuned.ranker.hidden == tuned.options["hidden"]
    assert 1 <= tuned.ranker.best_epoch_ <= 4
    assert tuned.ranker.training_["queries"] == train.n_queries


# Stopping


def test_trees_behind_the_others_are_pruned(parts, monkeypatch):
    rounds = []
    tell = EarlyStopping._report
    monkeypatch.setattr(
        EarlyStopping, "_report", lambda self, *values: (rounds.append(self.done), tell(self, *values))[1]
    )
    tuned = tr.tune(
        "LambdaMART", *parts, n_trials=14, n_trees=30, early_stopping=None, min_data_in_leaf=3, threads=1,
        space={"learning_rate": (1e-4, 0.3, "log"), "num_leaves": (2, 16)},
    )  # fmt: skip
    states = [row["state"] for row in tuned.trials]
    assert {"complete", "pruned"} == set(states)
    assert states[:5] == ["complete"] * 5  # a median needs something to be the median of
    made = [len(list(group)) for group in _runs(rounds)]
    assert len(made) == 14
    for row, number in zip(tuned.trials, made, strict=True):
        assert (number < 30) == (row["state"] == "pruned")
        assert number >= 6  # a fifth of the rounds is left in peace
    assert tuned.trials[states.index("pruned")]["value"] < tuned.value
    assert tuned.ranker.callbacks == ()


def _runs(rounds):
    """Consecutive rounds, cut where they begin anew."""
    run = []
    for number in rounds:
        if number == 1 and run:
            yield run
            run = []
        run.append(number)
    yield run


def test_linear_rankers_are_pruned_between_folds(parts, fits):
    tuned = tr.tune("ListNet", parts[0], folds=4, n_trials=10)
    pruned = sum(row["state"] == "pruned" for row in tuned.trials)
    assert pruned > 0
    assert sum(kind == "fit" for kind, *_ in fits) < 4 * 10 + 1


def test_the_time_is_kept_and_the_first_trial_is_made(parts):
    tuned = tr.tune("LeastSquares", *parts, space=L2, n_trials=50, time_budget=1e-9)
    assert len(tuned.trials) == 1
    assert tuned.stopped == "The time budget of 1e-09 s ended after 1 trial."
    judge = TrialEvaluator(divide(parts[0], None, folds=2), "ndcg@10", "standard", None)
    system = SYSTEMS["LeastSquares"]
    searched = SearchedSystem(system, {}, read_space(system, L2, {}), 0)
    search = StudySearch(optuna, judge, searched)
    fits = []
    cut = search.attempt(Candidate("", lambda: fits.append(1) or search.ranker({"l2": 1.0}), {}, seconds=0.0))
    assert (cut.state, len(fits)) == ("cut short", 1)  # the second fold is not begun


def test_callbacks_see_each_trial_and_may_end_the_search(parts):
    seen = []
    tuned = tr.tune("LeastSquares", *parts, space=L2, callbacks=[seen.append, lambda now: now.made == 3])
    assert [now.trial["number"] for now in seen] == [0, 1, 2]
    assert seen[-1].best["value"] == tuned.value
    assert all(now.last == 50 for now in seen)
    assert np.isnan(seen[0].seconds_left)  # the first trial's time is that of the start, too
    assert all(now.seconds_left >= 0 for now in seen[1:])
    assert tuned.stopped == "A callback ended the search after 3 trials."


def test_progress_says_the_best_and_the_time_left(parts, capsys):
    tr.tune("LeastSquares", *parts, space={"init": [(1.0, 2.0), None]}, n_trials=2, verbose=True)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("1/2 trials  ndcg@10 0.")
    assert "best 0." in first
    assert " left" not in first
    assert second.startswith("2/2 trials")
    assert second.endswith("about 0 s left")


# Interrupts, failures, resuming


def after(calls, function, act):
    """The function, but at its call of that number, `act` comes first."""
    count = itertools.count(1)

    def called(*arguments, **options):
        if next(count) == calls:
            act()
        return function(*arguments, **options)

    return called


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_the_best_and_can_be_resumed(parts, monkeypatch, tmp_path):
    whole = tr.tune("ListNet", *parts, n_trials=6)
    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(tr.LinearRanker, "predict", after(3, tr.LinearRanker.predict, ctrl_c))
        with pytest.warns(ConvergenceWarning, match=r"Interrupted after 2 trials. The best trial is returned."):
            tuned = tr.tune("ListNet", *parts, n_trials=6, storage=tmp_path / "study.db")
    assert signal.getsignal(signal.SIGINT) is handler
    assert tuned.value == max(row["value"] for row in tuned.trials[:2])
    assert [row["state"] for row in tuned.trials] == ["complete", "complete", "interrupted"]
    resumed = tr.tune("ListNet", *parts, n_trials=6, storage=tmp_path / "study.db")
    assert [row["number"] for row in resumed.trials] == list(range(7))
    assert drawn(resumed) == drawn(whole)
    assert resumed.value == whole.value


def test_ctrl_c_within_trees_which_answer_it_themselves(parts, monkeypatch):
    few = {"n_trees": 5, "min_data_in_leaf": 3, "threads": 1, "space": {"num_leaves": (2, 8)}}
    monkeypatch.setattr(EarlyStopping, "_compare", after(13, EarlyStopping._compare, ctrl_c))
    with pytest.warns(ConvergenceWarning) as said:
        tuned = tr.tune("LambdaMART", *parts, n_trials=6, **few)
    assert [row["state"] for row in tuned.trials] == ["complete", "complete", "interrupted"]
    assert ["Interrupted after 2 trials" in str(one.message) for one in said] == [True]


def test_ctrl_c_while_the_best_of_a_resumed_study_is_fitted_once_more(parts, monkeypatch, tmp_path):
    few = {"n_trees": 5, "min_data_in_leaf": 3, "threads": 1, "space": {"num_leaves": (2, 8)}}
    tr.tune("LambdaMART", *parts, n_trials=2, storage=tmp_path / "study.db", **few)
    monkeypatch.setattr(EarlyStopping, "_compare", after(2, EarlyStopping._compare, ctrl_c))
    with pytest.warns(ConvergenceWarning) as warned:
        tuned = tr.tune("LambdaMART", *parts, n_trials=2, storage=tmp_path / "study.db", **few)
    assert tuned.ranker.was_interrupted
    assert tuned.interrupted
    assert "of the best trial was interrupted" in str(warned[-1].message)


def test_ctrl_c_before_there_is_anything(parts, monkeypatch):
    monkeypatch.setattr(tr.LinearRanker, "predict", after(1, tr.LinearRanker.predict, ctrl_c))
    with pytest.raises(KeyboardInterrupt):
        tr.tune("ListNet", *parts, n_trials=6)


def test_ctrl_c_in_the_first_trial_does_not_lose_the_system_as_it_is(parts, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(tr.LinearRanker, "predict", after(1, tr.LinearRanker.predict, ctrl_c))
        with pytest.raises(KeyboardInterrupt):
            tr.tune("ListNet", *parts, n_trials=3, storage=tmp_path / "study.db")
    resumed = tr.tune("ListNet", *parts, n_trials=3, storage=tmp_path / "study.db")
    assert drawn(resumed)[0] == {"l2": 0.1, "loss.alpha": 1.0}
    assert drawn(resumed) == drawn(tr.tune("ListNet", *parts, n_trials=3))


@pytest.mark.parametrize("killed_in", [1, 4])
def test_a_killed_search_is_resumed_as_if_nothing_had_been(tmp_path, killed_in):
    script = tmp_path / "search.py"
    script.write_text(
        textwrap.dedent("""
        import itertools, os, signal, sys
        import toprank as tr
        train, valid = tr.split(tr.synthetic(n_queries=40, n_features=4, seed=3), (0.6, 0.4))
        predict, count = tr.LinearRanker.predict, itertools.count(1)
        def deadly(*arguments):
            if next(count) == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            return predict(*arguments)
        tr.LinearRanker.predict = deadly
        tr.tune("ListNet", train, valid, n_trials=5, storage=sys.argv[1])
        """)
    )
    died = subprocess.run([sys.executable, script, tmp_path / "study.db", str(killed_in)], capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    train, valid = tr.split(tr.synthetic(n_queries=40, n_features=4, seed=3), (0.6, 0.4))
    resumed = tr.tune("ListNet", train, valid, n_trials=5, storage=tmp_path / "study.db")
    states = ["complete"] * 5
    states.insert(killed_in - 1, "interrupted")
    assert [row["state"] for row in resumed.trials] == states
    assert drawn(resumed) == drawn(tr.tune("ListNet", train, valid, n_trials=5))


def test_a_resumed_search_goes_on_and_repeats_nothing(parts, fits, tmp_path):
    storage = tmp_path / "study.db"
    first = tr.tune("ListNet", *parts, n_trials=5, storage=storage)
    second = tr.tune("ListNet", *parts, n_trials=13, storage=str(storage))
    assert second.trials[:5] == first.trials
    assert [row["number"] for row in second.trials] == list(range(13))
    assert drawn(second) == drawn(tr.tune("ListNet", *parts, n_trials=13))
    fits.clear()
    third = tr.tune("ListNet", *parts, n_trials=13, storage=storage)  # all is there: the best is fitted, once
    assert (third.trials, third.value) == (second.trials, second.value)
    assert sum(kind == "fit" for kind, *_ in fits) == 1
    np.testing.assert_array_equal(third.ranker.coef_, second.ranker.coef_)


def test_another_study_is_refused(parts, tmp_path):
    train, valid = parts
    asked = {"system": "ListNet", "train": train, "valid": valid, "space": L2, "n_trials": 1, "psi": "linear"}
    storage = tmp_path / "study.db"
    tr.tune(**asked, storage=storage)
    for change, words in (
        ({"system": "LeastSquares", "psi": None}, "a study of ListNet, not of LeastSquares"),
        ({"metric": "map"}, r"evaluated by ndcg@10 \(standard\), not by map \(standard\)"),
        ({"convention": "letor4"}, r"not by ndcg@10 \(letor4\)"),
        ({"train": train.select(range(20))}, "other training data"),
        ({"valid": valid.replace(labels=valid.labels * 2)}, "other validation data"),
        ({"valid": None, "folds": 3}, "3 folds"),
        ({"psi": "exponential"}, "psi=linear, here psi=exponential"),
        ({"space": {"l2": (1e-4, 1.0, "log")}}, "another space"),
        ({"seed": 5}, "the seed 0, not 5"),
    ):
        other = {name: value for name, value in {**asked, **change}.items() if value is not None}
        with pytest.raises(DataError, match=words):
            tr.tune(**other, storage=storage)
    assert len(tr.tune(**{**asked, "seed": 5}, storage=storage, study_name="another").trials) == 1
    assert len(tr.tune(**asked, storage=storage).trials) == 1


def storage_of(study):
    """The database behind Optuna's cache of it."""
    return study._storage._backend


def test_a_study_that_another_process_works_on_is_left_alone(parts, tmp_path):
    storage = tmp_path / "study.db"
    tr.tune("ListNet", *parts, n_trials=1, storage=storage)
    study = optuna.load_study(study_name="tune", storage=f"sqlite:///{storage}")
    study.ask().set_user_attr("process", {"host": platform.node(), "pid": os.getppid()})
    storage_of(study).engine.dispose()
    with pytest.raises(DataError, match=f"Process {os.getppid()} is running the study"):
        tr.tune("ListNet", *parts, n_trials=2, storage=storage)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the system does not say when a process began")
def test_another_process_of_the_same_number_is_not_the_one_that_worked(parts, tmp_path):
    storage = tmp_path / "study.db"
    tr.tune("ListNet", *parts, n_trials=1, storage=storage)
    study = optuna.load_study(study_name="tune", storage=f"sqlite:///{storage}")
    trial = study.ask()
    trial.set_user_attr("process", {"host": platform.node(), "pid": os.getppid(), "began": _began(os.getppid())})
    with pytest.raises(DataError, match=f"Process {os.getppid()} is running the study"):
        tr.tune("ListNet", *parts, n_trials=2, storage=storage)
    trial.set_user_attr("process", {"host": platform.node(), "pid": os.getppid(), "began": "before the flood"})
    storage_of(study).engine.dispose()
    assert len(drawn(tr.tune("ListNet", *parts, n_trials=2, storage=storage))) == 2


def test_storage_is_checked_before_anything_is_written(parts, tmp_path):
    (tmp_path / "notes.txt").write_text("do not touch\n")
    with sqlite3.connect(tmp_path / "cats.db") as cats:
        cats.execute("CREATE TABLE cats (name TEXT)")
    cats.close()
    broken = tmp_path / "broken.db"
    tr.tune("ListNet", *parts, n_trials=1, storage=broken)
    broken.write_bytes(broken.read_bytes()[:6000])
    for storage, kind, words in (
        (tmp_path, FileError, "is a folder"),
        (tmp_path / "none" / "study.db", FileError, "does not exist"),
        (tmp_path / "notes.txt", FormatError, "not a database of studies"),
        (tmp_path / "cats.db", FormatError, "does not contain studies"),
        (broken, (FileError, FormatError), "broken.db"),
        ("sqlite:///study.db", DataError, "must be a file path"),
    ):
        with pytest.raises(kind, match=words):
            tr.tune("ListNet", *parts, n_trials=1, storage=storage)
    assert (tmp_path / "notes.txt").read_text() == "do not touch\n"
    elsewhere = optuna.create_study(storage=f"sqlite:///{tmp_path}/other.db", study_name="tune")
    elsewhere.ask()
    storage_of(elsewhere).engine.dispose()
    with pytest.raises(DataError, match="from another program"):
        tr.tune("ListNet", *parts, n_trials=1, storage=tmp_path / "other.db")


def test_a_failed_trial_is_noted_and_not_fatal(parts):
    tuned = tr.tune("LeastSquares", *parts, space={"init": [(1.0, 2.0), 1.0, None]}, n_trials=9)
    failed = [row for row in tuned.trials if row["state"] == "failed"]
    assert failed
    for row in failed:
        assert row["options"] == {"init": (1.0, 2.0)}
        assert row["remark"] == "init has 2 weights, but the ranker has 7."
        assert row["value"] is None
    assert f"{len(failed)} failed" in str(tuned)
    with pytest.raises(DataError, match=r"All 10 trials failed. The error of the first: init has 2 weights"):
        tr.tune("LeastSquares", *parts, space={"init": [(1.0, 2.0), (3.0, 4.0)]}, n_trials=30)
    with pytest.raises(DataError, match="All 1 trial failed"):
        tr.tune("LeastSquares", *parts, space={"init": [(1.0, 2.0), (3.0, 4.0)]}, n_trials=1)


def test_what_rankers_say_is_said_once_for_the_answer(parts):
    with pytest.warns(ConvergenceWarning) as said:
        tuned = tr.tune("RankNet-linear", *parts, space=L2, n_trials=3, max_iterations=1)
    assert len(said) == 1
    assert all("LinearRanker" in row["remark"] for row in tuned.trials)


def test_optuna_is_silent_and_left_as_it_was(parts, capfd):
    before, filters = optuna.logging.get_verbosity(), list(warnings.filters)
    tr.tune("LeastSquares", *parts, space={"init": [(1.0, 2.0), None]}, n_trials=3)
    assert (optuna.logging.get_verbosity(), warnings.filters) == (before, filters)
    assert capfd.readouterr() == ("", "")


def test_without_optuna_the_extra_is_named(parts, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"tr.tune needs optuna, .*: pip install 'toprank\[tune\]'\."):
        tr.tune("LeastSquares", *parts)


def test_a_ranker_whose_extra_is_missing_ends_the_search(parts, monkeypatch):
    def fit(*arguments, **options):
        raise MissingExtraError("NeuralRanker needs torch.")

    monkeypatch.setattr(tr.LinearRanker, "fit", fit)
    with pytest.raises(MissingExtraError, match=r"^NeuralRanker needs torch\.$"):
        tr.tune("LeastSquares", *parts)


# The space

finite = st.floats(1e-6, 1e6)


@given(a=finite, b=finite, log=st.booleans(), share=st.floats(0, 1))
def test_ranges_of_numbers(a, b, log, share):
    low, high = sorted((a, b))
    plain = (low, high, "log") if log else (low, high)
    if low == high:
        with pytest.raises(DataError, match="empty"):
            read_space(SYSTEMS["LeastSquares"], {"l2": plain}, {})
        return
    space = read_space(SYSTEMS["LeastSquares"], {"l2": plain}, {})
    assert space.dimensions == {"l2": Range(low, high, log)}
    value = low + share * (high - low)
    dimension = space.dimensions["l2"]
    assert dimension.decoded(dimension.encoded(value)) == value
    assert dimension.holds(min(value, high))
    assert not dimension.holds(np.nextafter(high, np.inf))
    assert space.start() == ({"l2": 0.1} if low <= 0.1 <= high else {})


@given(a=st.integers(2, 500), b=st.integers(2, 500), seed=st.integers(0, 9))
@settings(max_examples=30)
def test_ranges_of_whole_numbers_stay_whole(a, b, seed):
    low, high = min(a, b), max(a, b) + 1
    space = read_space(SYSTEMS["LambdaMART"], {"num_leaves": (float(low), high, "log"), "l2": (low, high)}, {})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    options = space.options(study.ask(space.distributions(optuna)).params)
    assert type(options["num_leaves"]) is int
    assert type(options["l2"]) is float
    assert low <= options["num_leaves"] <= high
    assert low <= options["l2"] <= high


@given(
    st.lists(
        st.one_of(st.integers(0, 9), st.floats(0, 9), st.sampled_from(["top", "exp"])),
        min_size=1,
        unique_by=lambda value: value,
    )
)
def test_choices_come_back_as_they_were(values):
    choice = OneOf(tuple(values))
    for value in values:
        back = choice.decoded(choice.encoded(value))
        assert (type(back), back) == (type(value), value)
        assert choice.holds(value)
    assert not choice.holds("none of these")


names = st.text("abcdefgh_.", min_size=1).filter(lambda name: name.strip())
numbers = st.integers(-1000, 1000) | st.floats(-1e9, 1e9).map(lambda value: value + 0.0)
ranges = st.tuples(numbers, numbers) | st.tuples(numbers, numbers, st.just("log"))
choices = st.lists(numbers | st.text("abcxyz/", min_size=1).filter(lambda t: t not in ("null", "true")), min_size=2)


@given(st.dictionaries(names, ranges | choices))
def test_the_command_line_says_the_same_space(space):
    def text(values):
        separator = ":" if isinstance(values, tuple) else ","
        return separator.join(value if isinstance(value, str) else repr(value) for value in values)

    assert _space([f"{name}={text(values)}" for name, values in space.items()]) == space


@pytest.mark.parametrize(
    ("space", "kind", "words"),
    [
        ({"num_leavs": (2, 8)}, UnknownNameError, "did you mean 'num_leaves'"),
        ({"quux": (2, 8)}, UnknownNameError, "known: .*num_leaves.*sigma"),
        ({"loss.quux": (2, 8)}, UnknownNameError, "sigma"),
        ({"loss": ["ListNet"]}, DataError, "a fixed loss"),
        ({"num_leaves": (8, 2)}, DataError, "is empty: 8 is not below 2"),
        ({"num_leaves": (8, 8)}, DataError, "is empty"),
        ({"learning_rate": (0, 1, "log")}, DataError, "must start above 0"),
        ({"learning_rate": ("a", 1)}, DataError, "must be finite numbers, not 'a' and 1"),
        ({"learning_rate": (0.1, float("inf"))}, DataError, "finite numbers, not 0.1 and inf"),
        ({"learning_rate": (False, True)}, DataError, "finite numbers, not False and True"),
        ({"learning_rate": ["fast", "slow"]}, DataError, "has the wrong type"),
        ({"learning_rate": (0.1, 0.2, "lg")}, UnknownNameError, "log"),
        ({"learning_rate": (0.1,)}, DataError, "must be"),
        ({"num_leaves": (2.5, 8)}, DataError, "whole numbers"),
        ({"num_leaves": []}, DataError, "no values"),
        ({"num_leaves": [4, 4]}, DataError, "twice"),
        ({"num_leaves": 8}, DataError, "num_leaves=8"),
        ({"C": (1, 2)}, DataError, "1/l2"),
        ({"l2": (-2.0, 1.0)}, DataError, "l2 must be a number of at least 0, not -2.0"),
        ({"l2": [1.0, -1.0]}, DataError, "l2 must be a number of at least 0, not -1.0"),
        ({"num_leaves": (1, 8)}, DataError, "num_leaves must be a whole number of at least 2, not 1"),
        ({"learning_rate": (0.0, 0.5)}, DataError, "learning_rate must be a positive number, not 0.0"),
        ({"row_fraction": (0.5, 2.0)}, DataError, "row_fraction must be a number above 0 and at most 1, not 2.0"),
        ({"sigma": (-1.0, 2.0)}, DataError, "sigma must be a positive number"),
        ({"sigma": (1, 2), "loss.sigma": (1, 2)}, DataError, "the same option"),
        ({"n_trees": (2, 8)}, DataError, "both fixed and searched"),
        ({}, DataError, "has no default search space"),
        (["num_leaves"], DataError, "dictionary"),
        ({3: (1, 2)}, DataError, "names of options"),
    ],
)
def test_a_space_that_makes_no_sense_is_a_sentence(parts, space, kind, words):
    with pytest.raises(kind, match=words):
        tr.tune("LambdaMART", *parts, space=space, n_trees=5)


@pytest.mark.parametrize(
    ("system", "space", "words"),
    [
        ("RankSVM", {"l2": [1.0, "much"]}, "l2 must be one or several numbers of 0 or larger, not 'much'"),
        ("RankSVM", {"l2": (-1.0, 1.0)}, "not -1.0"),
        ("RankSVM", {"tolerance": (0.5, 1.0), "l1": (-0.5, 1.0)}, "l1 must be a number of at least 0, not -0.5"),
        ("RankBoost", {"n_thresholds": (2, 999)}, "n_thresholds must be a whole number of at least 1 and below 256"),
        ("AdaRank-MAP", {"early_stopping": (0, 9)}, "early_stopping must be a whole number of at least 1, not 0"),
        ("CoordinateAscent", {"first_step": [0.0, 0.1]}, "first_step must be a positive number, not 0.0"),
        ("PlugIn", {"saturation": (0.5, 1.5)}, "saturation must be a number above 0 and at most 1, not 1.5"),
        ("RankNet", {"dropout": (0.0, 1.0)}, "dropout must be a number of at least 0 and below 1, not 1.0"),
        ("RankNet", {"max_grad_norm": (0.0, 1.0)}, "max_grad_norm must be a positive number, not 0.0"),
    ],
)
def test_a_space_that_the_ranker_refuses_ends_before_the_first_trial(parts, system, space, words):
    with pytest.raises(DataError, match=words):
        tr.tune(system, *parts, space=space)


def test_a_ranker_refuses_each_parameter_before_it_is_fitted_and_what_depends_on_others_in_the_fit(parts):
    odd = tr.NeuralRanker(network="attention", width=30, n_heads=4)
    odd.check_parameters()  # another n_heads would suit
    with pytest.raises(DataError, match="multiple"):
        odd.fit(parts[0])
    several = tr.LinearRanker(l2=[1.0, 0.1])
    several.check_parameters()  # validation data would suit
    with pytest.raises(DataError, match="Several penalties"):
        several.fit(parts[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_trials": 0}, "n_trials must be a whole number of at least 1, not 0"),
        ({"n_trials": 2.5}, "n_trials"),
        ({"time_budget": 0}, "time_budget must be a positive number"),
        ({"time_budget": float("nan")}, "time_budget"),
        ({"folds": 3}, "either on valid data or on folds"),
        ({"valid": None, "folds": 1}, "folds must be a whole number of at least 2"),
        ({"valid": None, "folds": 999}, "cannot be divided"),
        ({"seed": -1}, "seed"),
        ({"threads": 0}, "threads"),
        ({"callbacks": print}, "list of functions"),
        ({"study_name": ""}, "nonempty string"),
        ({"metric": "ncdg"}, "no metric"),
        ({"convention": "letr4"}, "letor4"),
        ({"valid": 5}, "valid must be a RankingData"),
        ({"l3": 5}, "no option of ListNet called 'l3'"),
    ],
)
def test_wrong_arguments_are_sentences(parts, options, words):
    train, valid = parts
    with pytest.raises(tr.ToprankError, match=words):
        tr.tune("ListNet", train, **{"valid": valid, **options})


def test_validation_data_of_another_width(parts):
    train, valid = parts
    with pytest.raises(DataError, match="The validation data have 5 features, but the training data have 6"):
        tr.tune("ListNet", train, valid.replace(X=valid.X[:, :5], feature_names=None))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--space", "l2="], "--space takes"),
        (["--space", "l2=["], "is not a list"),
        (["--space", "l2=[1,2"], "is not a list"),
        (["--space", "hidden=[64],[32"], "is not a list"),
        (["--space", "num_leaves=(8,128)"], "num_leaves=low:high"),
        (["--space", "num_leaves=()"], "num_leaves=low:high"),
        (["--system", "auto"], "auto selects among systems and needs toprank train"),
        (["--space", "l2=1:2", "--space", "l2=1:2"], "passed twice for l2"),
        (["--set", "seed=3"], "use --seed"),
        (["--n-trials", "0"], "--n-trials"),
        (["--folds", "1"], "--folds"),
    ],
)
def test_wrong_usage_of_the_command(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["tune", "none.txt", "-o", "no.toprank", *options])
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_default_space_begins_with_the_system_as_it_is(name):
    system = SYSTEMS[name]
    if not default_space(name):
        with pytest.raises(DataError, match="has no default search space"):
            read_space(system, None, {})
        return
    space = read_space(system, None, {})
    assert space.start().keys() == space.dimensions.keys()
    for name, value in space.options(space.start()).items():
        if len(space.dimensions) > 1:  # what is fixed is not searched, however it is spelled
            assert name not in read_space(system, None, {name.removeprefix("loss."): value}).dimensions


# The result


def test_the_result_tells_and_draws(parts, tmp_path):
    tuned = tr.tune("ListNet", *parts, n_trials=12)
    assert list(tuned.importance) == sorted(tuned.importance, key=tuned.importance.get, reverse=True)
    assert sum(tuned.importance.values()) == pytest.approx(1.0)
    assert tuned.importance.keys() == tuned.options.keys()
    text = str(tuned)
    assert f"ndcg@10 (standard) {tuned.value:.4f}" in text
    assert "optimistic" in text
    assert text.splitlines()[4].split()[0] == str(next(r["number"] for r in tuned.trials if r["value"] == tuned.value))
    assert all(row["seconds"] >= 0 for row in tuned.trials)
    tuned.plot(tmp_path / "study.svg")
    root = ET.fromstring((tmp_path / "study.svg").read_text())
    kinds = [element.get("class") for element in root.iter()]
    assert kinds.count("bar") == 2
    assert kinds.count("dot") == sum(row["state"] == "complete" for row in tuned.trials)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"l2", "loss.alpha", "trial"} <= set(words)
    assert "http" not in (tmp_path / "study.svg").read_text().replace("http://www.w3.org/2000/svg", "")
    with pytest.raises(DataError, match=r"ends in \.svg"):
        tuned.plot(tmp_path / "study.jpg")
    with pytest.raises(FileError):
        tuned.plot(tmp_path / "none" / "study.svg")
    one = tr.tune("ListNet", *parts, n_trials=1)
    assert one.importance == {}
    one.plot(tmp_path / "one.svg")
    assert "Too few complete trials" in (tmp_path / "one.svg").read_text()


# Rankers and plain arrays


@pytest.mark.parametrize(
    ("ranker", "name"),
    [
        (tr.LinearRanker, tr.LinearRanker().loss),
        (tr.LinearRanker("Squared"), "LeastSquares"),
        (tr.LinearRanker(tr.losses.ListNet()), "ListNet"),
    ],
)
def test_a_ranker_is_tuned_as_the_system_like_it(parts, ranker, name):
    space, train, valid = {"l2": (1e-4, 10.0, "log")}, *parts
    options = {"space": space, "n_trials": 4, "metric": "ndcg@10"}
    wanted = tr.tune(name, train, valid, **options)
    arrays = [(one.X, one.labels, one.qid) for one in parts]
    for data in ((train, valid), arrays):
        tuned = tr.tune(ranker, *data, **options)
        assert [one["options"] for one in tuned.trials] == [one["options"] for one in wanted.trials]
        assert tuned.value == wanted.value
        assert tuned.name == "LinearRanker"


def test_what_a_ranker_was_given_is_not_searched_unasked(parts):
    ranker = tr.TreeRanker(tr.losses.LambdaRank(sigma=2.0), n_trees=7, num_leaves=5, min_data_in_leaf=2, threads=1)
    tuned = tr.tune(ranker, *parts, n_trials=2)
    assert not {"n_trees", "num_leaves", "min_data_in_leaf", "sigma"} & set(tuned.options)
    assert (tuned.ranker.loss.sigma, tuned.ranker.num_leaves) == (2.0, 5)
    asked = tr.tune(ranker, *parts, n_trials=3, space={"num_leaves": (2, 4)})
    assert asked.ranker.num_leaves in (2, 3, 4, 5)
    assert asked.ranker.n_trees == 7
    own = tr.TreeRanker("lightgbm:lambdarank", n_trees=3, min_data_in_leaf=2, threads=1)
    assert tr.tune(own, *parts, n_trials=1).ranker.loss == "lightgbm:lambdarank"


# By time


def dated(data):
    days = np.datetime64("2024-01-01") + np.random.default_rng(0).permutation(data.n_queries)
    return data.replace(metadata={"day": days})


def test_the_latest_fifth_judges_where_time_is_asked_for(parts):
    data = dated(parts[0])
    [(learned, judged, _)] = divide(data, None, seed=3, time_column="day").rounds
    assert learned.metadata["day"].max() < judged.metadata["day"].min()
    assert judged.n_queries == round(data.n_queries / 5)
    tuned = tr.tune("LeastSquares", data, time_column="day", space=L2, n_trials=2, seed=3)
    assert tuned.evaluated_on == "7 queries held out of 36, the latest by 'day'"


def test_folds_by_time_learn_from_the_past_alone_and_the_answer_from_all(parts, fits):
    data = dated(parts[0])
    division = divide(data, None, folds=3, time_column="day")
    assert division.is_folded
    later = None
    for learned, judged, _ in division.rounds:
        assert learned.metadata["day"].max() < judged.metadata["day"].min()
        assert later is None or judged.metadata["day"].min() > later
        later = judged.metadata["day"].max()
    assert later == data.metadata["day"].max()
    assert sum(part.held_out.n_queries for part in division.rounds) == 27  # of four periods the first judges nothing
    tuned = tr.tune("LeastSquares", data, folds=3, time_column="day", space=L2, n_trials=2)
    assert tuned.evaluated_on == "27 queries in 3 folds by 'day'"
    assert [one for one in fits if one[0] == "fit"][-1][1] == data.qids.tolist()


def test_time_is_refused_where_nothing_is_held_out_by_it(parts, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"omit one of the two: valid= or time_column=\.$"):
        tr.tune("LeastSquares", *parts, time_column="day")
    with pytest.raises(DataError, match="have no metadata column 'day' to split by"):
        tr.tune("LeastSquares", parts[0], time_column="day")
    monkeypatch.chdir(tmp_path)
    tr.write(dated(parts[0]), "log.csv")
    command = ["tune", "log.csv", "--system", "LeastSquares", "--n-trials", "2", "-o", "m.toprank"]
    command += ["--time-column", "day"]
    done = CliRunner().invoke(app, [*command, "--quiet"])
    assert done.exit_code == 0, done.output
    assert "the latest by 'day'" in done.output
    assert CliRunner().invoke(app, [*command, "--valid", "log.csv"]).exit_code == 2


def test_a_search_that_takes_long_speaks_unasked(parts, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "SILENCE", 0.0)
    tr.tune("LeastSquares", *parts, space=L2, n_trials=2)
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == ["1/2", "2/2"]
    tr.tune("LeastSquares", *parts, space=L2, n_trials=2, verbose=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(tuning, "SILENCE", 1e9)
    tr.tune("LeastSquares", *parts, space=L2, n_trials=2)
    assert capsys.readouterr().err == ""


def test_ctrl_c_while_the_best_of_folds_is_fitted_on_all(parts, monkeypatch):
    train, real = parts[0], tr.LinearRanker.fit

    def fit(self, data, *arguments, valid=None, **options):
        if valid is None:
            ctrl_c()
        return real(self, data, *arguments, valid=valid, **options)

    monkeypatch.setattr(tr.LinearRanker, "fit", fit)
    with pytest.warns(ConvergenceWarning, match=r"on all queries was interrupted.* The best trial is returned\."):
        tuned = tr.tune("ListNet", train, folds=3, n_trials=2)
    assert (tuned.interrupted, tuned.refitted) == (True, False)
    assert tuned.ranker.training_["queries"] < train.n_queries
    assert tuned.stopped.startswith("All 2 trials were completed. ")
