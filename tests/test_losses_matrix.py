"""The shared matrix: every loss keeps its promises as `check_loss` tries them, and is no better than it says.

The losses come from tests/loss_cases_<family>.py; see loss_cases.py for how to add one.
"""

from __future__ import annotations

import itertools
import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

from loss_cases import LOSSES, Problem, random_scores
from toprank import losses
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses import Squared, base, from_spec, to_spec
from toprank.losses.checking import check_loss
from toprank.metrics.conventions import Gain

STEP = 1e-5  # of central differences


@pytest.fixture(params=LOSSES, ids=[name for name, _, _ in LOSSES])
def problem(request):
    _, loss, options = request.param
    return Problem.of(loss, options)


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def bound(request, problem):
    if request.param and not problem.weights_allowed:
        with pytest.raises(DataError, match="weight"):
            problem.bound(weighted=True)
        pytest.skip("the loss refuses document weights, in a sentence")
    return problem.bound(weighted=request.param)


def steps_of(scores):
    """Every coordinate of the scores, as small steps."""
    for index in np.ndindex(scores.shape):
        step = np.zeros_like(scores)
        step[index] = STEP
        yield step


def numeric_gradient(bound, scores):
    slopes = [bound.at(scores + step).value - bound.at(scores - step).value for step in steps_of(scores)]
    return np.array(slopes).reshape(scores.shape) / (2 * STEP)


def numeric_hessian(bound, scores):
    rows = [(bound.at(scores + step).grad - bound.at(scores - step).grad).ravel() for step in steps_of(scores)]
    return np.array(rows) / (2 * STEP)


def matrix_of(curvature, scores):
    """The curvature as a dense matrix over the flattened scores."""
    units = np.eye(scores.size).reshape(scores.size, *scores.shape)
    return np.array([(curvature @ unit).ravel() for unit in units])


def close(actual, expected, rtol=1e-6, atol=1e-8):
    size = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol * size)


def differ(actual, expected):
    return bool(np.abs(actual - expected).max() > 1e-4 * max(1e-3, np.abs(expected).max()))


# --- derivatives ---------------------------------------------------------------------------------------------------


def rise_and_integral(bound, start, end):
    """The rise of the value from one point to another, and the integral of the slope along the way."""
    direction, n = end - start, 1000
    slopes = [np.sum(bound.at(start + (k + 0.5) / n * direction).grad * direction) for k in range(n)]
    return bound.at(end).value - bound.at(start).value, np.mean(slopes)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_what_a_loss_promises_is_kept(problem, weighted):
    if weighted and not problem.weights_allowed:
        with pytest.raises(DataError, match="weight"):
            problem.bound(weighted=True)
        pytest.skip("the loss refuses document weights, in a sentence")
    weights = problem.document_weights if weighted else None
    found = check_loss(
        problem.loss,
        problem.labels,
        problem.queries,
        document_weights=weights,
        scores=problem.scores,
        teacher=problem.teacher,
        seed=1,
    )
    assert [sentence.split(":")[0] for sentence in found] == (
        ["The order of a query's rows changes the loss, so training would depend on the order of the file."]
        if problem.options.get("order_dependent") and not problem.loss.traits.random
        else []
    )


def test_an_exact_gradient_is_claimed(problem):
    """A gradient that is exact nearly everywhere is none if the value jumps in between: the integral tells."""
    if problem.loss.traits.exact_gradient:
        return
    rng, n, bound = np.random.default_rng(1), len(problem.scores), problem.bound()
    points = [problem.scores, *(random_scores(rng, n, problem.options, 3.0) for _ in range(2))]
    lines = [rise_and_integral(bound, start, end) for start, end in itertools.combinations(points, 2)]
    assert max(abs(rise - integral) / abs(integral) for rise, integral in lines) > 5e-3, "it is exact: claim it"


def test_an_exact_curvature_is_claimed(problem):
    traits, bound = problem.loss.traits, problem.bound()
    if traits.exact_gradient and traits.curvature != "exact":
        actual = matrix_of(bound.at(problem.scores, curvature=True).curvature, problem.scores)
        assert differ(actual, numeric_hessian(bound, problem.scores)), "the curvature is exact: claim it"


def in_gains(loss, gain):
    """The loss whose labels are read as gains, with no grade above those it is given; one without a gain as it is."""
    own = {field.name for field in fields(loss)}
    return replace(loss, **{name: value for name, value in (("gain", gain), ("max_grade", None)) if name in own})


def half_way(loss, problem, low, high):
    """The gradient for gains half-way between two, and half-way between the gradients for the two."""

    def grad(gains):
        return loss.on(gains, problem.queries, teacher=problem.teacher).at(problem.scores).grad

    return grad((low + high) / 2), (grad(low) + grad(high)) / 2


def test_an_affine_gradient_is_claimed_and_right_for_negative_gains(problem):
    rng, queries, scores = np.random.default_rng(11), problem.queries, problem.scores
    n = queries.n_documents
    if not problem.loss.traits.linear_in_gain:
        if problem.loss.traits.space == "class":
            pytest.skip("grades are classes there, not gains")
        if not problem.loss.traits.labels:
            pytest.skip("labels are not read")
        loss = in_gains(problem.loss, "linear")
        try:
            middle, mean = half_way(loss, problem, *(rng.uniform(0, 3, (2, n))))
            if not differ(middle, mean):  # on part of the real numbers alone
                middle, mean = half_way(loss, problem, *(rng.uniform(-3, 3, (2, n))))
        except DataError:
            return
        assert differ(middle, mean), "the gradient is affine in the gains: claim it"
        return
    loss, gains = in_gains(problem.loss, None), rng.uniform(-1, 3, (2, n))
    for one in (*gains, -np.abs(gains[0])):  # where sums are negative too
        bound = loss.on(one, queries, document_weights=problem.document_weights, teacher=problem.teacher)
        close(bound.at(scores).grad, numeric_gradient(bound, scores))
        curvature = bound.at(scores, curvature=True).curvature
        close(matrix_of(curvature, scores), numeric_hessian(bound, scores), rtol=1e-5, atol=1e-7)
        assert (curvature.diagonal() >= 0).all()  # boosting divides by it
    if getattr(problem.loss, "gain", None) is not None:
        worth = Gain.from_spec(problem.loss.gain).table(problem.labels, problem.labels.max())
        close(loss.on(worth, queries).at(scores).grad, problem.bound().at(scores).grad)


def test_curvature_takes_matrices_as_it_takes_vectors(problem):
    if problem.loss.traits.space == "class":
        pytest.skip("in class space a direction has the shape of the scores")
    curvature = problem.bound().at(problem.scores, curvature=True).curvature
    V = np.random.default_rng(2).standard_normal((len(problem.scores), 3))
    together = curvature @ V
    for column in range(3):
        close(together[:, column], curvature @ V[:, column], rtol=1e-12, atol=1e-14)
    close(curvature @ np.asfortranarray(V), together, rtol=1e-12, atol=1e-14)


def largest_jump(bound, start, end):
    """How far the slope jumps at the roughest place between two points, seen through an ever finer grid."""
    direction = end - start

    def slope(t):
        return float(np.sum(bound.at(start + t * direction).grad * direction))

    grid = np.linspace(0, 1, 65)
    slopes = np.array([slope(t) for t in grid])
    k = int(np.argmax(np.abs(np.diff(slopes))))
    low, high, f_low, f_high = grid[k], grid[k + 1], slopes[k], slopes[k + 1]
    for _ in range(30):
        middle = (low + high) / 2
        f_middle = slope(middle)
        if abs(f_middle - f_low) > abs(f_high - f_middle):
            high, f_high = middle, f_middle
        else:
            low, f_low = middle, f_middle
    return abs(f_high - f_low) / np.abs(slopes).max()


def test_smooth_iff_claimed(problem):
    rng, bound, n = np.random.default_rng(3), problem.bound(), len(problem.scores)
    jumps = []
    for _ in range(6):
        ends = [random_scores(rng, n, problem.options, 2.0) for _ in range(2)]
        jumps.append(largest_jump(bound, *ends))
    if problem.loss.traits.smooth:
        assert max(jumps) < 1e-5
    else:
        assert max(jumps) > 1e-4, "no kink was found: claim smooth"


def midpoint_gaps(problem, bound):
    """Mean of the values at two points less the value between them, relative to the values; negative: not convex."""
    rng, n = np.random.default_rng(4), len(problem.scores)
    for trial in range(240):
        scale = (0.3, 1.0, 5.0, 30.0)[trial % 4]
        a = random_scores(rng, n, problem.options, scale)
        b = random_scores(rng, n, problem.options, scale)
        f_a, f_b, f_m = (bound.at(scores).value for scores in (a, b, (a + b) / 2))
        yield ((f_a + f_b) / 2 - f_m) / max(abs(f_a), abs(f_b), 1e-12)


def test_convexity_is_claimed(problem):
    if not problem.loss.traits.convex:
        assert min(midpoint_gaps(problem, problem.bound())) < -1e-6, "no violation was found: claim convex"


def test_convex_losses_stay_above_their_tangents(problem, bound):
    if not (problem.loss.traits.convex and problem.loss.traits.exact_gradient):
        pytest.skip("not claimed")
    rng, n = np.random.default_rng(5), len(problem.scores)
    for tied in (False, True):
        for _ in range(20):
            a, b = (random_scores(rng, n, problem.options, 2.0) for _ in range(2))
            if tied:  # a subgradient at a kink
                a = np.round(a)
            at_a, at_b = bound.at(a), bound.at(b)
            tangent = at_a.value + float(np.sum(at_a.grad * (b - a)))
            assert at_b.value >= tangent - 1e-10 * max(1.0, abs(at_a.value), abs(tangent))


# --- invariances ---------------------------------------------------------------------------------------------------


def repeated(problem, counts):
    """Labels, weights, scores and queries with query q repeated counts[q] times, and the row each came from."""
    slices = [rows for rows, count in zip(problem.queries, counts, strict=True) for _ in range(count)]
    rows = np.concatenate([np.arange(part.start, part.stop) for part in slices])
    return rows, Queries.from_sizes([part.stop - part.start for part in slices])


def test_duplicated_data_leave_the_mean(problem):
    if problem.options.get("random"):
        pytest.skip("other rows draw other numbers")
    once = problem.bound().at(problem.scores)
    rows, queries = repeated(problem, [2] * len(problem.queries))
    twice = problem.loss.on(problem.labels[rows], queries, teacher=problem.teacher[rows]).at(problem.scores[rows])
    close(twice.value, once.value, rtol=1e-12, atol=1e-13)
    close(twice.grad, once.grad[rows] / 2, rtol=1e-10, atol=1e-13)


def test_query_weights_are_repetitions(problem):
    if problem.options.get("random"):
        pytest.skip("other rows draw other numbers")
    counts = [1, 3, 2, 0, 1, 1, 2]
    rows, queries = repeated(problem, counts)
    expected = problem.loss.on(problem.labels[rows], queries, teacher=problem.teacher[rows])
    expected = expected.at(problem.scores[rows], curvature=True)
    actual = problem.bound(query_weights=counts).at(problem.scores, curvature=True)
    close(actual.value, expected.value, rtol=1e-12, atol=1e-13)
    for ours, theirs in (
        (actual.grad, expected.grad),
        (actual.curvature.diagonal(), expected.curvature.diagonal()),
    ):
        summed = np.zeros_like(ours)
        np.add.at(summed, rows, theirs)
        close(ours, summed, rtol=1e-10, atol=1e-13)


def test_ragged_is_query_by_query(problem):
    if problem.options.get("random"):
        pytest.skip("other rows draw other numbers")
    # max_grade and the number of grades are facts of the whole data, so every piece is shown the same first query.
    whole, parts = problem.bound().at(problem.scores), []
    first = problem.queries.offsets[1]
    for rows in list(problem.queries)[1:]:
        index = np.r_[0:first, rows]
        queries = Queries([0, first, len(index)])
        bound = problem.loss.on(problem.labels[index], queries, teacher=problem.teacher[index])
        parts.append(bound.at(problem.scores[index]))
    alone = problem.loss.on(problem.labels[:first], Queries([0, first]), teacher=problem.teacher[:first])
    alone = alone.at(problem.scores[:first])
    total = alone.value + sum(2 * part.value - alone.value for part in parts)
    close(total / len(problem.queries), whole.value, rtol=1e-11, atol=1e-12)
    grads = [alone.grad, *(2 * part.grad[first:] for part in parts)]
    close(np.concatenate(grads) / len(problem.queries), whole.grad, rtol=1e-9, atol=1e-11)


# --- numbers at the edge -------------------------------------------------------------------------------------------


def test_one_document(problem):
    label = problem.labels.max()
    scores = problem.scores[:1]
    if problem.loss.traits.space == "class":  # the number of grades is a fact of the data
        labels, queries, scores = np.array([label, 0.0]), Queries([0, 1, 2]), problem.scores[:2]
    else:
        labels, queries = np.array([label]), Queries([0, 1])
    result = problem.loss.on(labels, queries, teacher=problem.teacher[: len(labels)]).at(scores, curvature=True)
    assert np.isfinite(result.value)
    assert np.isfinite(result.grad).all()
    if problem.loss.traits.shift_invariant and problem.loss.traits.space == "score":
        assert not result.grad.any()
        assert not result.curvature.diagonal().any()


def test_equal_labels(problem):
    rows = slice(*problem.queries.offsets[4:6])
    result = problem.bound().at(problem.scores, curvature=True)
    assert np.isfinite(result.grad[rows]).all()
    if problem.options.get("silent"):
        assert not result.grad[rows].any()
        assert not result.curvature.diagonal()[rows].any()
        queries = Queries([0, rows.stop - rows.start])
        alone = problem.loss.on(problem.labels[rows], queries, teacher=problem.teacher[rows])
        assert alone.at(problem.scores[rows]).value == 0.0


def test_float32_scores_are_taken_as_float64(problem):
    bound, single = problem.bound(), problem.scores.astype(np.float32)
    narrow, wide = bound.at(single), bound.at(single.astype(np.float64))
    assert narrow.grad.dtype == np.float64
    assert narrow.value == wide.value
    assert np.array_equal(narrow.grad, wide.grad)


def test_same_bits_on_any_number_of_threads(problem, monkeypatch):
    monkeypatch.setattr(base, "BLOCK", 8)  # several blocks, of one or more queries
    bound = problem.bound()
    one = bound.at(problem.scores, curvature=True, threads=1)
    two = bound.at(problem.scores, curvature=True, threads=2)
    assert one.value == two.value
    assert np.array_equal(one.grad, two.grad)
    V = np.ones(problem.scores.shape)
    assert np.array_equal(one.curvature @ V, two.curvature @ V)
    monkeypatch.undo()
    whole = bound.at(problem.scores)
    close(one.value, whole.value, rtol=1e-13, atol=1e-14)
    close(one.grad, whole.grad, rtol=1e-13, atol=1e-14)


def test_repr_is_the_constructor(problem):
    loss = problem.loss
    assert eval(repr(loss), {name: getattr(losses, name) for name in losses.names()}) == loss


def test_a_loss_is_a_value(problem):
    """Equal, hashed, pickled and read back by what it holds, however its numbers and tables were given."""
    own = {field.name: getattr(problem.loss, field.name) for field in fields(problem.loss)}
    tables = [name for name in ("gain", "discount") if name in own]
    known = own | dict.fromkeys(tables, (0.0, 1.0, 3.0))
    forms = [list, tuple, np.array, lambda table: np.array(table, np.float32), lambda table: [*map(np.int64, table)]]
    kind = type(problem.loss)
    made = [kind(**known | {name: form(known[name]) for name in tables}) for form in forms]
    made.append(kind(**{name: np.float64(value) if type(value) is float else value for name, value in known.items()}))
    for loss in made:
        assert loss == made[0]
        assert hash(loss) == hash(made[0])
        assert repr(loss) == repr(eval(repr(loss), {name: getattr(losses, name) for name in losses.names()}))
        assert "np." not in repr(loss)
        again = pickle.loads(pickle.dumps(loss))
        assert again == loss
        assert hash(again) == hash(loss)
        assert from_spec(to_spec(loss)) == loss
    if tables:
        assert kind(**known | {key: [0.0, 1.0, 4.0] for key in tables}) != made[0]


def test_an_own_loss_gets_what_it_is_given():
    class Own(Squared):
        pass

    table = np.array([0.0, 1.0])
    assert Own(gain=table).gain is table  # it may count with it


def test_traits_are_described(problem):
    assert problem.loss.traits.cost.startswith("O(")
    assert type(problem.loss).__doc__
