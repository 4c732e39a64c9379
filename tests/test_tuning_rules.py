"""Spaces at their exact limits: what each bound takes and refuses, what is whole, what means the same."""

from __future__ import annotations

import math

import pytest

from toprank.errors import DataError, ToprankError
from toprank.model_selection.space import (
    OneOf,
    Range,
    Space,
    _between,
    _full_name,
    _read_dimension,
    _same,
    default_space,
    is_number,
    read_space,
)
from toprank.rankers import LinearRanker, NeuralRanker, TreeRanker
from toprank.systems import get


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("l2", 0, -1e-9), ("weight_decay", 0, -1e-9), ("min_data_in_leaf", 0, -1), ("n_trees", 1, 0),
        ("early_stopping", 1, 0), ("num_leaves", 2, 1), ("max_bin", 2, 1), ("learning_rate", 1e-9, 0),
        ("max_grad_norm", 1e-9, 0), ("feature_fraction", 1, 1.001), ("query_fraction", 1e-9, 0), ("dropout", 0, -1e-9),
        ("dropout", 0.999, 1),
    ],
)  # fmt: skip
def test_a_ranker_takes_a_parameter_at_its_bound_and_refuses_it_beyond(name, taken, refused):
    kind = NeuralRanker if name in ("weight_decay", "max_grad_norm", "dropout") else TreeRanker
    kind(**{name: taken}).check_parameters()
    for value in (refused, "none"):
        with pytest.raises(DataError, match=f"{name}.* must be"):
            kind(**{name: value}).check_parameters()


@pytest.mark.parametrize(
    ("values", "default", "wanted"),
    [
        ((1, 4), 2, Range(1, 4, whole=True)),
        ((1.0, 4.0, "log"), 2, Range(1, 4, log=True, whole=True)),
        ((1, 4), 2.0, Range(1.0, 4.0)),
        ((1, 4), None, Range(1, 4, whole=True)),
        ((1, 4.0), None, Range(1.0, 4.0)),
        ((1.0, 4), None, Range(1.0, 4.0)),
        ((0.5, 4.0, "linear"), 1.0, Range(0.5, 4.0)),
        ((-1, 4), 1.0, Range(-1.0, 4.0)),
        ([1, "a"], 2, OneOf((1, "a"))),
        ([1, True], 2, OneOf((1, True))),
    ],
)
def test_what_is_read(values, default, wanted):
    found = _read_dimension("x", values, default)
    assert found == wanted
    if isinstance(wanted, Range):
        assert (found.whole, type(found.low)) == (wanted.whole, int if wanted.whole else float)


@pytest.mark.parametrize(
    ("values", "default", "words"),
    [
        ((1,), 1.0, r"must be \(low, high\)"),
        ((1, 2, "log", 3), 1.0, r"must be \(low, high\)"),
        ((1, 2, "cubic"), 1.0, "scale of x"),
        (("a", 2), 1.0, "must be finite numbers"),
        ((1, math.inf), 1.0, "must be finite numbers"),
        ((True, 2), 1.0, "must be finite numbers"),
        ((2, 2), 1.0, "is empty"),
        ((3, 2), 1.0, "is empty"),
        ((0, 2, "log"), 1.0, "must start above 0"),
        ((1.5, 3), 2, "takes whole numbers"),
        ((1, 3.5), 2, "takes whole numbers"),
        ([], 1.0, "no values"),
        ([1, 2, 1.0], 1.0, "a value twice"),
        (3, 1.0, "To fix it, pass it as an option: x=3"),
    ],
)
def test_what_is_no_range(values, default, words):
    with pytest.raises(ToprankError, match=words):
        _read_dimension("x", values, default)


def test_grids_become_ranges():
    assert _between((0.1, 10.0, 1.0)) == (0.1, 10.0, "log")
    assert _between((0, 5)) == (0, 5)
    assert _between((-1.0, 5.0)) == (-1.0, 5.0)
    assert _between((3.0, 3.0)) == [3.0, 3.0]
    assert _between(("a", 1)) == ["a", 1]
    assert _between((False, True)) == [False, True]


def test_values_that_mean_the_same():
    assert _same(1, 1.0)
    assert _same([1, 2], (1, 2))
    assert not _same(1, True)
    assert not _same((1, 2), (2, 1))
    assert not _same((1,), 1)
    assert [is_number(one) for one in (1, 0.5, True, math.nan, math.inf, "1", None)] == [True, True, *[False] * 5]


def test_ends_belong_to_a_range_and_starts_outside_are_left_out():
    one = Range(1.0, 4.0)
    assert [one.holds(value) for value in (0.999, 1, 4, 4.001, True, "2")] == [False, True, True, False, False, False]
    assert (type(Range(1, 4, whole=True).decoded(2.0)), type(one.decoded(2))) == (int, float)
    choice = OneOf((1, (2, 3), True))
    assert [choice.holds(value) for value in (1.0, [2, 3], True, False)] == [True, True, True, False]
    assert (choice.encoded(1.0), choice.encoded([2, 3]), choice.decoded("(2, 3)")) == ("1", "(2, 3)", (2, 3))
    space = Space({"a": one, "b": choice, "c": one}, {"a": 9.0, "b": 1, "c": 4.0})
    assert space.start() == {"b": "1", "c": 4.0}
    assert space.options({"a": 2, "b": "True", "c": 3}) == {"a": 2.0, "b": True, "c": 3.0}


@pytest.mark.parametrize("value", ["a", "1", True, [1, "a"], [1, None], -1.0, math.inf, []])
def test_a_penalty_is_a_number_or_several(value):
    LinearRanker(l2=[1, 2.5]).check_parameters()
    with pytest.raises(DataError, match="l2 must be one or several numbers of 0 or larger"):
        LinearRanker(l2=value).check_parameters()


def test_both_spellings_of_an_option_are_one():
    assert [_full_name(name, {"l2": 1}) for name in ("l2", "alpha", "loss.alpha")] == ["l2", "loss.alpha", "loss.alpha"]
    system = get("ListNet")
    assert set(default_space(system)) == {"l2", "loss.alpha"}
    assert set(read_space(system, None, {"alpha": 1.0}).dimensions) == {"l2"}
    assert set(read_space(system, None, {"loss.alpha": 1.0}).dimensions) == {"l2"}
    for space, fixed, words in (
        ({"alpha": (1.0, 2.0)}, {"loss.alpha": 1.0}, "both fixed and searched"),
        ({"alpha": (1.0, 2.0), "loss.alpha": (1.0, 2.0)}, {}, "are the same option"),
        ({"C": (1.0, 2.0)}, {}, "C is 1/l2"),
        ({3: (1.0, 2.0)}, {}, "names of options"),
        ({}, {}, "has no default search space"),
        ([("l2", (1.0, 2.0))], {}, "must be a dictionary"),
    ):
        with pytest.raises(DataError, match=words):
            read_space(system, space, fixed)
