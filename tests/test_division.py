"""Divisions of units into rounds, and the loop that fits and predicts out of fold."""

import numpy as np
import pandas as pd
import pytest

import toprank as tr
from toprank.compute import TimeLimit
from toprank.data.division import DividedData, Division, DivisionRound, cross_fit
from toprank.rankers.target_encoding import out_of_fold

DATA = tr.synthetic(n_queries=12, n_features=3, n_documents=(1, 6), seed=3)


def test_each_unit_is_held_out_once_and_never_learned_from_in_that_round():
    fold = np.array([0, 2, 1, 0, -1, 2])
    division = Division.folds(fold, validation=True)
    held_out = np.array([round.held_out for round in division.rounds])
    assert (held_out.sum(axis=0) == (fold >= 0)).all()
    for number, (train, tested, valid) in enumerate(division.rounds):
        assert np.array_equal(valid, fold == (number + 1) % 3)
        assert np.array_equal(train | tested | valid, fold >= 0)
    assert division.n_held_out == 5


def test_expanding_windows_learn_from_the_past_alone():
    period = np.array([2, 0, 1, 3, 0])
    plain, validated = Division.expanding(period), Division.expanding(period, validation=True)
    for end, (train, held_out, valid) in enumerate(plain.rounds, 1):
        assert period[train].max() < end
        assert (period[held_out] == end).all()
        assert valid is None
    for end, (train, held_out, valid) in enumerate(validated.rounds, 2):
        assert period[train].max() < end - 1
        assert (period[valid] == end - 1).all()
        assert (period[held_out] == end).all()
    assert len(plain.rounds) == 3
    assert len(validated.rounds) == 2


@pytest.mark.parametrize("side", ["train", "valid"])
def test_a_division_that_leaks_is_refused(side):
    held_out = np.array([True, False, False])
    masks = {"train": np.array([False, True, False]), "held_out": held_out, "valid": np.array([False, False, True])}
    Division((DivisionRound(**masks),))
    masks[side] = masks[side] | held_out
    with pytest.raises(tr.errors.DataError, match="trains on 1 held-out units"):
        Division((DivisionRound(**masks),))


@pytest.mark.parametrize("threads", [1, 2])
def test_models_see_their_training_units_alone_and_predictions_come_in_the_order_of_the_data(threads):
    division = Division.folds(np.arange(DATA.n_queries) % 4)
    found = cross_fit(
        DATA,
        division,
        lambda train, valid: frozenset(train.qids.tolist()),
        lambda known, part: np.array([qid * (qid not in known) for qid in part.qid], dtype=float),
        threads=threads,
    )
    assert np.array_equal(found.out_of_fold(DATA), DATA.qid.astype(float))
    assert all(len(known) == 9 for known in found.models)


def test_units_that_no_round_holds_out_have_no_prediction():
    fold = np.where(np.arange(DATA.n_queries) < 4, -1, np.arange(DATA.n_queries) % 2)
    table = cross_fit(DATA, Division.folds(fold), lambda train, valid: None, lambda _, part: part.X).out_of_fold(DATA)
    known = DATA.queries.broadcast(fold >= 0)
    assert np.array_equal(table[known], DATA.X[known])
    assert np.isnan(table[~known]).all()


def test_a_time_limit_ends_a_limited_loop_and_the_first_round_is_always_kept():
    def fitted(**limited):
        with TimeLimit(0.0):
            division = Division.folds(np.arange(12) % 3)
            return cross_fit(DATA, division, lambda train, valid: 1, lambda _, part: part.labels, **limited)

    found, whole = fitted(time_limited=True), fitted()
    assert found.timed_out
    assert len(found.models) == 1
    assert np.isnan(found.out_of_fold(DATA)).any()
    assert not whole.timed_out
    assert np.array_equal(whole.out_of_fold(DATA), DATA.labels)


def test_target_encoding_is_complete_after_a_time_limit():
    sellers = pd.Categorical([f"s{i % 150}" for i in range(200)])
    frame = pd.DataFrame({"qid": np.repeat(np.arange(40), 5), "seller": sellers, "label": [0, 1] * 100})
    data = tr.RankingData.from_frame(frame)
    whole = out_of_fold(data, data.encoding, [(0,)], 0)
    with TimeLimit(0.0):
        assert np.array_equal(out_of_fold(data, data.encoding, [(0,)], 0), whole)
    assert np.isfinite(whole).all()


def test_an_exception_after_a_round_ends_the_loop():
    seen = []

    def stop(predictions):
        seen.append(len(predictions))
        raise KeyError

    with pytest.raises(KeyError):
        cross_fit(DATA, Division.folds(np.arange(12) % 3), lambda *_: 0, lambda *_: np.empty(0), after_round=stop)
    assert seen == [1]


def test_data_that_a_user_holds_out_have_the_form_of_a_division():
    train, held_out = tr.split(DATA, (0.5, 0.5))
    given, drawn = DividedData.given(train, held_out, "given"), Division.holdout(np.arange(12) < 3, "drawn").on(DATA)
    for divided, n_held_out in ((given, None), (drawn, 3)):
        assert (divided.is_folded, divided.n_held_out) == (False, n_held_out)
        [round] = divided.for_selection().rounds
        assert round.valid is round.held_out
        assert not set(round.train.qids.tolist()) & set(round.held_out.qids.tolist())
    found = given.cross_fit(lambda train, valid: (train, valid), lambda model, part: part)
    assert found.models == ((train, None),)
    assert found.predictions == (held_out,)
    folds = Division.folds(np.arange(12) % 3).on(DATA)
    assert folds.is_folded
    assert folds.n_held_out is None


class Interrupted:
    """A model of which Ctrl-C left something."""

    was_interrupted = True


@pytest.mark.parametrize("n_whole", [0, 1, 2])
def test_a_fit_that_ctrl_c_ended_ends_the_loop_and_has_no_predictions_out_of_fold(n_whole):
    models = iter([*range(n_whole), Interrupted()])
    found = cross_fit(DATA, Division.folds(np.arange(12) % 3), lambda *_: next(models), lambda _, part: part.labels)
    assert found.interrupted
    assert len(found.models) == n_whole + 1
    with pytest.raises(KeyboardInterrupt):
        found.out_of_fold(DATA)
