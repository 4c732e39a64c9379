"""The rules of choosing on validation data, each side alone: edges of a grid, the default, what is said."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from toprank.errors import DataError
from toprank.model_selection.grid import GridSearch, _distinct, _key, grid_search
from toprank.model_selection.picture import _best_so_far
from toprank.model_selection.result import SelectionResult, _cell
from toprank.model_selection.search import Interrupts, Trial, TrialEvaluator
from toprank.significance import Interval


def search(values, *, better=1.0, penalties=(0.1, 1.0, 10.0), refine=()):
    """A search that has fitted its grid: l2 → metric."""
    one = object.__new__(GridSearch)
    one.judge = TrialEvaluator(None, "ndcg" if better > 0 else "owa", "standard", 1)
    one.penalties, one.interrupts = penalties, Interrupts()
    one.system = SimpleNamespace(refine=refine, name="System", exact_grid=False)
    one.sentences, one.kept, one.combinations = [], None, []
    one._trials = [Trial("System", {"l2": l2}, value) for l2, value in values.items()]
    one._candidate = lambda options, l2: l2
    return one


def go_on(one, batches, found=lambda l2: 0.0):
    """Try what is proposed after the grid, `found` says the metric of each l2; what was proposed."""
    asked = []
    for batch in batches:
        for penalties in batch:
            asked += penalties
            one.trials.extend(Trial("System", {"l2": l2}, found(l2)) for l2 in penalties)
    return asked


@pytest.mark.parametrize(
    ("values", "beyond"),
    [
        ({0.1: 0.5, 1.0: 0.4, 10.0: 0.3}, 0.01),
        ({0.1: 0.3, 1.0: 0.4, 10.0: 0.5}, 100.0),
        ({0.1: 0.3, 1.0: 0.5, 10.0: 0.4}, None),  # within the grid
        ({0.1: 0.5, 1.0: 0.5, 10.0: 0.3}, None),  # no better than its neighbor
        ({0.0: 0.5, 1.0: 0.4, 10.0: 0.3}, None),  # there is nothing beyond no penalty
        ({1.0: 0.5}, None),
        ({1.0: 0.4, 3.0: 0.5}, 9.0),
    ],
)
def test_the_next_penalty_beyond_an_edge(values, beyond):
    one = search(values)
    assert one._beyond(one.best) == beyond


def test_errors_are_better_where_they_are_lower():
    one = search({0.1: 0.3, 1.0: 0.4, 10.0: 0.5}, better=-1.0)
    assert one.best.options["l2"] == 0.1
    assert one._beyond(one.best) == 0.01


@pytest.mark.parametrize(("metric", "better"), [("ndcg@10", 1.0), ("owa", -1.0)])
def test_a_metric_says_which_way_is_better(metric, better):
    assert TrialEvaluator(None, metric, "standard", 1).sign == better


def test_the_first_of_the_best_is_kept():
    assert search({0.1: 0.5, 1.0: 0.5, 10.0: 0.3}).best.options["l2"] == 0.1


def test_a_walk_goes_on_as_long_as_it_gets_better():
    one = search({0.1: 0.3, 1.0: 0.4, 10.0: 0.5})
    assert go_on(one, one.walk(), lambda l2: 0.6 if l2 <= 100 else 0.2) == [100.0, 1000.0]
    assert one.best.options["l2"] == 100.0
    assert one.sentences == ["The best l2 was at the edge of the grid, 10; continued to 1000, the best is 100."]


def test_a_walk_that_finds_nothing_better_says_so():
    one = search({0.1: 0.3, 1.0: 0.4, 10.0: 0.5})
    assert go_on(one, one.walk()) == [100.0]
    assert one.sentences == ["The best l2 was at the edge of the grid, 10; continued to 100, which was not better."]


def test_a_walk_that_is_broken_off_says_how_far_it_came():
    one = search({0.1: 0.3, 1.0: 0.4, 10.0: 0.5})
    walk = one.walk()
    one.trials.append(Trial("System", {"l2": next(walk)[0][0]}, 0.9))
    walk.close()  # as where Ctrl-C ends the search
    assert one.sentences == ["The best l2 was at the edge of the grid, 10; continued to 100, the best is 100."]


def test_a_walk_ends_after_five_steps_and_begins_at_an_edge_alone():
    one = search({0.1: 0.3, 1.0: 0.4, 10.0: 0.5})
    assert go_on(one, one.walk(), float) == [100.0, 1e3, 1e4, 1e5, 1e6]
    for still in (
        search({0.1: 0.3, 1.0: 0.5, 10.0: 0.4}),
        search({0.1: 0.3, 1.0: 0.4, 10.0: 0.5}, penalties=None),
    ):
        assert (go_on(still, still.walk()), still.sentences) == ([], [])


def test_a_second_search_goes_around_the_best():
    one = search({0.1: 0.3, 1.0: 0.5, 10.0: 0.4}, refine=(0.5, 2.0))
    assert go_on(one, one.batches()) == [2.0, 0.5]  # C = 1/l2 is multiplied
    for still in (search({1.0: 0.5}), search({1.0: 0.5}, refine=(2.0,), penalties=None)):
        assert go_on(still, still.batches()) == []


def cautious(gains, se_rule, *, better=1.0, default=0.1):
    """Whether the default is kept where the best is better by these gains of queries."""
    one = search({0.1: 0.4, 1.0: 0.5} if better > 0 else {0.1: 0.5, 1.0: 0.4}, better=better)
    one._default = lambda: next((each for each in one.trials if each.options["l2"] == default), None)
    one._per_query = lambda each: better * np.array(gains) if each is one.best else np.zeros(len(gains))
    one.apply_se_rule(se_rule)
    return one


@pytest.mark.parametrize("better", [1.0, -1.0])
def test_caution_asks_for_more_than_so_many_standard_errors(better):
    gains = [0.0, 2.0]  # mean 1, standard error 1
    assert cautious(gains, 0.99, better=better).kept is None
    kept = cautious(gains, 1.0, better=better)
    assert kept.kept.options["l2"] == 0.1
    assert kept.sentences == [
        f"The default, l2 = 0.1, is kept: l2 = 1 is better by 1.0000 {kept.judge.metric} on the validation data, at a "
        "standard error of 1.0000."
    ]


def test_caution_says_nothing_where_there_is_nothing_to_choose():
    assert cautious([0.0, 2.0], 1.0, default=1.0).kept is None  # the default is the best
    assert cautious([0.0, 2.0], 1.0, default=7.0).kept is None  # it was not tried
    assert cautious([1.0, np.nan], 9.0).kept is None  # one query has no spread
    assert cautious([0.0, np.nan, 2.0], 1.0).kept is not None  # queries that do not count are left out


def test_candidates_that_mean_the_same_are_one():
    assert _key({"l2": 1}) == _key({"l2": 1.0})
    assert _key({"weights": "1/j", "p": 0.5}) == _key({"weights": "1/j", "p": 0.9})
    assert _key({"weights": "constant", "p": 0.5}) == _key({"p": 0.1, "weights": "constant"})
    assert _key({"weights": "top", "p": 0.5}) != _key({"weights": "top", "p": 0.9})
    assert _key({"q": 0.5, "weights": "1/j"}) != _key({"q": 0.9, "weights": "1/j"})
    assert _distinct([{"a": 1}, {"a": 1.0}, {"a": 2}]) == [{"a": 1}, {"a": 2}]


def a_choice(*rows, metric="ndcg", value=0.5, options=None, **more):
    trials = [Trial("System", {}, number=number).row() | row for number, row in enumerate(rows)]
    on = "3 queries of validation data"
    return SelectionResult(None, "System", options or {}, metric, "standard", value, on, trials, **more)


@pytest.mark.parametrize(
    ("row", "short"),
    [({}, False), ({"converged": 1.0}, False), ({"converged": 0.0}, True),
     ({"converged": 0.0, "interrupted": True}, False)],
)  # fmt: skip
def test_unconverged_is_what_was_not_interrupted(row, short):
    assert bool(a_choice(row).unconverged) is short


def test_a_choice_in_words():
    rows = [
        {"options": {"l2": 0.5}, "value": 0.25},
        {"options": {"l2": 1.0}, "value": 0.5, "converged": 0.0},
        {"options": {"l2": 2.0}, "state": "failed", "remark": "It diverged."},
    ]
    choice = a_choice(*rows, options={"l2": 1.0}, sentences=("A note.", "And another."))
    text = str(choice)
    assert text.startswith("System: ndcg (standard) 0.5000 on 3 queries of validation data, with l2=1.")
    assert text.rstrip().endswith("A note.\nAnd another.")
    assert choice.summary == "A note. And another."
    header, _, *lines = text.split("\n\n")[1].splitlines()
    assert header.split() == ["trial", "ndcg", "l2", "converged"]
    assert [line.split()[0] for line in lines] == ["1", "0"]  # the best first; what failed has no value to show
    frame = choice.to_frame()
    assert frame.columns.tolist() == ["trial", "name", "state", "value", "l2", "converged", "seconds", "remark"]
    assert frame.state.tolist() == ["complete", "complete", "failed"]
    assert [row["number"] for row in choice.unconverged] == [1]
    assert str(a_choice()) == "System: ndcg (standard) 0.5000 on 3 queries of validation data."
    assert [_cell(value) for value in (None, 0.123456, 3, "x")] == ["", "0.1235", "3", "x"]


def test_a_choice_of_errors_shows_the_least_first():
    lines = str(a_choice({"value": 0.5}, {"value": 0.25}, metric="owa")).splitlines()
    assert [line.split()[0] for line in lines[4:]] == ["1", "0"]


def test_a_choice_as_plain_values():
    row = {"value": 0.5, "difference_low": -np.inf}
    open_ended = Interval(0.5, -np.inf, np.inf, 0.95, 1, "")
    plain = a_choice(row, value=np.nan, interval=open_ended, sentences=("x",)).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    ends = {"value": 0.5, "low": None, "high": None}
    assert (plain["value"], plain["interval"], plain["trials"][0]["difference_low"]) == (None, ends, None)
    assert plain["summary"] == "x"
    assert "ranker" not in plain


@pytest.mark.parametrize(("metric", "best"), [("ndcg", 1), ("owa", 2)])
def test_the_picture_of_a_choice_follows_the_best_so_far(metric, best):
    rows = [{"value": 0.5}, {"value": 0.75}, {"value": 0.25}, {"value": None, "state": "refused"}]
    picture = str(a_choice(*rows, metric=metric).plot()._repr_html_())
    assert picture.count('class="dot"') == 3
    complete = sorted((row for row in a_choice(*rows[:3]).trials), key=lambda row: row["number"])
    corners = _best_so_far(complete, max if metric == "ndcg" else min, 3)
    assert corners[-1] == (3, rows[best]["value"])


def test_caution_is_no_less_than_nothing():
    with pytest.raises(DataError, match="se_rule must be"):
        grid_search("LeastSquares", None, None, se_rule=-1e-9)
