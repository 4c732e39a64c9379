"""`Judgments`: what a loss is bound to; parts of the data that know of the whole add up to it."""

from __future__ import annotations

import numpy as np
import pytest

from loss_cases import LOSSES, Problem
from toprank import losses
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses import Judgments

THREE = Queries([0, 2, 5, 6])
LABELS = np.array([0.0, 2.0, 1.0, 0.0, 4.0, 3.0])


def test_labels_are_all_there_are_unless_said():
    alone, part = Judgments(LABELS[:2], Queries([0, 2])), Judgments(LABELS[:2], Queries([0, 2]), grades=np.arange(5.0))
    assert (alone.top_grade, part.top_grade) == (2.0, 4.0)
    assert (alone.distinct_grades.tolist(), part.distinct_grades.tolist()) == ([0.0, 2.0], [0.0, 1.0, 2.0, 3.0, 4.0])
    assert alone.gains("err")[1] == (2**2 - 1) / 2**2
    assert part.gains("err")[1] == (2**2 - 1) / 2**4


def test_the_scale_is_that_of_the_whole_mean():
    assert Judgments(LABELS, THREE).scale().tolist() == [1 / 3] * 3
    assert Judgments(LABELS, THREE, query_weights=[1, 2, 5]).scale().tolist() == [1 / 8, 2 / 8, 5 / 8]
    assert Judgments(LABELS, THREE, query_weights=[1, 2, 5], total_weight=32.0).scale().tolist() == [
        1 / 32,
        1 / 16,
        5 / 32,
    ]
    assert Judgments(LABELS, THREE, total_weight=12.0).scale().tolist() == [1 / 12] * 3


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"labels": LABELS[:4]}, "4 labels for 6 documents"),
        ({"labels": np.where(LABELS == 4, np.nan, LABELS)}, "label of document 4 is nan; training needs judged"),
        ({"grades": np.arange(3.0)}, "The largest of the given grades is 2, but document 4 has the label 4"),
        ({"document_weights": np.ones(3)}, "3 document_weights, but 6 are needed"),
        ({"query_weights": np.ones(6)}, "6 query_weights, but 3 are needed"),
        ({"query_weights": np.zeros(3)}, "query_weights must be finite, nonnegative, and not all zero"),
        ({"document_weights": -np.ones(6), "total_weight": 9.0}, "document_weights must be finite, nonnegative"),
        ({"teacher": np.ones(5)}, "5 teacher scores, but 6 are needed"),
        ({"teacher": np.ones((6, 1))}, "teacher scores, but 6 are needed"),
        ({"teacher": np.full(6, np.inf)}, "teacher's score of document 0 is inf"),
    ],
)
def test_what_does_not_fit_is_refused(given, sentence):
    with pytest.raises(DataError, match=sentence):
        Judgments(**{"labels": LABELS, "queries": THREE, **given})


def test_a_part_of_the_data_may_weigh_nothing():
    nothing = Judgments(LABELS, THREE, np.zeros(6), np.zeros(3), total_weight=9.0)
    now = losses.ListNet().bound_to(nothing).at(np.arange(6.0))
    assert now.value == 0.0
    assert not now.grad.any()


@pytest.mark.parametrize(("name", "loss", "options"), LOSSES, ids=[case[0] for case in LOSSES])
def test_parts_that_know_of_the_whole_add_up_to_it(name, loss, options):
    if options.get("random") or name.startswith("boltzrank"):
        pytest.skip("what is drawn depends on the place in the data")
    problem = Problem.of(loss, options)
    queries, weights = problem.queries, np.arange(1.0, len(problem.queries) + 1)
    documents = problem.document_weights if problem.weights_allowed else None
    whole = problem.loss.on(
        problem.labels, queries, document_weights=documents, query_weights=weights, teacher=problem.teacher
    )
    expected, value, grads = whole.at(problem.scores), 0.0, []
    for first, last in ((0, 2), (2, 3), (3, 7)):
        rows = slice(*queries.offsets[[first, last]])
        part = Judgments(
            problem.labels[rows],
            Queries(queries.offsets[first : last + 1] - rows.start),
            None if documents is None else documents[rows],
            weights[first:last],
            grades=np.unique(problem.labels),
            total_weight=float(weights.sum()),
            teacher=problem.teacher[rows],
        )
        now = loss.bound_to(part).at(problem.scores[rows])
        value += now.value
        grads.append(now.grad)
    assert value == pytest.approx(expected.value, rel=1e-12)
    np.testing.assert_allclose(np.concatenate(grads), expected.grad, rtol=1e-10, atol=1e-14)
