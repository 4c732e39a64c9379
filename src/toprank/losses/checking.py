"""Does a loss keep its promises? `check_loss` tries each of them on a little data and says what does not hold.

Rankers believe what a loss says of itself: a solver is chosen by its traits, a Newton step by its curvature, blocks of
queries run on several threads. A slip in any of these does not crash; it trains a slightly wrong model. So every
promise of `toprank.losses.base` is compared here with something computed in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import BoundLoss, Curvature, Judgments, Loss, Requested, Traits

# Central differences: what they cut off grows with the step's square, what rounding adds with its inverse; at the cube
# root of the float's 1e-16 both are about 1e-10 of ordinary values. Slopes are allowed 1e-5, Hessians (differences of
# gradients, with more terms each) 1e-4: far above that, and far below any slip.
_STEP = 1e-5
_RELATIVE_TOLERANCE = (
    1e-9  # of numbers that are computed in two ways: sums of some hundred terms in another order differ by 1e-13
)
_SIZES = (5, 1, 7, 2, 4, 3, 6)  # one document alone; the fifth query gets equal labels
_MAX_STEP_RATIO = 100.0  # how many times too short the steps of a majorizer may be
_MAX_DOCUMENTS = 200  # documents that are looked at: each costs four evaluations


def check_loss(
    loss: Loss,
    labels: npt.ArrayLike | None = None,
    queries: Queries | None = None,
    *,
    document_weights: npt.ArrayLike | None = None,
    scores: npt.ArrayLike | None = None,
    teacher: npt.ArrayLike | None = None,
    seed: int = 0,
) -> list[str]:
    """Sentences that say which promises a loss does not keep; an empty list where it keeps all.

    Checked: the gradient against central differences of the value (unless `exact_gradient` is not claimed); the
    curvature for symmetry, positive semi-definiteness and, where it claims to be exact, against differences of the
    gradient; that a majorizer is not so loose that trees crawl; convexity where claimed; invariance to shifts where
    claimed, and that it is claimed where it holds; that the gradient is affine in the gains where claimed; that the
    order of rows in a query does not matter (unless the loss says that it draws); that blocks of queries add up to the
    whole; weights of queries and documents; that scores of ±1e8 give finite numbers.

    Nothing is raised for a faulty loss: an exception becomes a sentence, too.

    Args:
        loss: the loss to examine.
        labels: labels that it takes; by default grades 0 to 4 in queries of 1 to 7 documents.
        queries: their queries; by default all labels are one query. Whole queries up to about 200 documents are used.
        document_weights: weights that it takes; by default none. That weights are used is checked in any case.
        scores: where to examine it, (n,), or (n, columns) for a loss in class space; by default random normal.
        teacher: a teacher's scores, for a loss that learns from one; by default random normal.
        seed: decides everything random.

    >>> from toprank.losses import ListNet
    >>> check_loss(ListNet(alpha=2.0))
    []
    """
    try:
        trial = _Trial.from_loss(loss, labels, queries, document_weights, scores, teacher, np.random.default_rng(seed))
    except Exception as trouble:  # noqa: BLE001 - somebody else's code: what it raises is a finding
        return [f"The loss could not be bound to the labels: {_described(trouble)}"]
    sentences: list[str] = []
    for check in _CHECKS:
        try:
            with np.errstate(all="ignore"):  # what counts is the result; that it is finite is a check of its own
                sentences += check(trial)
        except Exception as trouble:  # noqa: BLE001
            sentences.append(f"{(check.__doc__ or '').rstrip('.')}: this could not be checked. {_described(trouble)}")
            if check is _answers:
                break  # it would only be said again and again
    return sentences


@dataclass(frozen=True)
class _Trial:
    """A loss, the data on which it is tried, and the loss bound to them."""

    loss: Loss
    labels: FloatArray
    queries: Queries
    document_weights: FloatArray | None
    teacher: FloatArray | None
    scores: FloatArray
    rng: np.random.Generator
    bound: BoundLoss

    @classmethod
    def from_loss(
        cls,
        loss: Loss,
        labels: Any,
        queries: Queries | None,
        weights: Any,
        scores: Any,
        teacher: Any,
        rng: np.random.Generator,
    ) -> _Trial:
        """The loss on its data, or on data of ours; see `check_loss`."""
        if labels is None:
            queries = Queries.from_sizes(_SIZES) if queries is None else queries
            grades = rng.integers(0, 5, queries.n_documents).astype(np.float64)
            grades[:5] = np.arange(5)[: len(grades)]
            if len(queries) > 4:
                grades[slice(*queries.offsets[4:6])] = 2.0
        else:
            grades = np.asarray(labels, dtype=np.float64)
            queries = Queries([0, len(grades)]) if queries is None else queries
        last = max(1, int(np.searchsorted(queries.offsets, _MAX_DOCUMENTS, side="right")) - 1)
        kept = Queries(queries.offsets[: last + 1])
        n = kept.n_documents
        where = rng.standard_normal(n) if scores is None else np.asarray(scores, dtype=np.float64)[:n]
        weights = None if weights is None else np.asarray(weights, dtype=np.float64)[:n]
        if teacher is None and loss.traits.teacher:
            teacher = rng.standard_normal(n)
        taught = None if teacher is None else np.asarray(teacher, dtype=np.float64)[:n]
        bound = loss.bind(Judgments(grades[:n], kept, weights, teacher=taught))
        return cls(loss, grades[:n], kept, weights, taught, where, rng, bound)

    def on(self, labels: FloatArray, loss: Loss | None = None, order: Any = slice(None)) -> BoundLoss:
        """The loss, or another one, on other labels; weights and the teacher's scores in this order."""
        weights = None if self.document_weights is None else self.document_weights[order]
        teacher = None if self.teacher is None else self.teacher[order]
        return (loss or self.loss).on(labels, self.queries, document_weights=weights, teacher=teacher)

    def elsewhere(self, spread: float) -> FloatArray:
        """Other scores, in the same region."""
        return self.scores + spread * self.rng.standard_normal(self.scores.shape)

    def steps(self) -> Iterator[FloatArray]:
        """A small step in every score."""
        for index in np.ndindex(self.scores.shape):
            step = np.zeros_like(self.scores)
            step[index] = _STEP
            yield step


def _described(trouble: Exception) -> str:
    """An exception in words."""
    return f"{type(trouble).__name__}: {trouble}"


def _worst(actual: Any, expected: Any, rtol: float, floor: float = 0.0) -> tuple[int, ...] | None:
    """Where two arrays differ most, if they differ by more than rtol of the larger one's size and the floor."""
    actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    errors = np.abs(actual - expected)
    allowed = (
        rtol * max(np.abs(actual).max(initial=0.0), np.abs(expected).max(initial=0.0)) + floor + 1e-14
    )  # where both are 0 but for rounding
    if (errors <= allowed).all():  # false for NaN
        return None
    return tuple(int(i) for i in np.unravel_index(np.argmax(np.where(np.isnan(errors), np.inf, errors)), errors.shape))


def _place(index: tuple[int, ...]) -> str:
    return f"document {index[0]}" + (f", column {index[1]}" if len(index) > 1 else "")


def _matrix(curvature: Curvature, scores: FloatArray) -> FloatArray:
    """The curvature as a dense matrix over the flattened scores."""
    units = np.eye(scores.size).reshape(scores.size, *scores.shape)
    return np.array([(curvature @ unit).ravel() for unit in units])


def _answers(trial: _Trial) -> Iterator[str]:
    """The loss answers with finite numbers of the right shapes."""
    now = trial.bound.at(trial.scores, curvature=True, threads=1)
    if not np.isfinite(now.value):
        yield f"The value at ordinary scores is {now.value}."
    if not np.isfinite(now.grad).all():
        row = np.argwhere(~np.isfinite(now.grad))[0]
        yield f"The gradient at ordinary scores is not finite for {_place(tuple(map(int, row)))}."


def _gradient(trial: _Trial) -> Iterator[str]:
    """The gradient is the derivative of the value."""
    if not trial.loss.traits.exact_gradient:
        return
    for scores in (trial.scores, 2.0 * trial.scores):
        now = trial.bound.at(scores)
        rises = [trial.bound.at(scores + step).value - trial.bound.at(scores - step).value for step in trial.steps()]
        slopes = np.array(rises).reshape(scores.shape) / (2 * _STEP)
        worst = _worst(now.grad, slopes, 1e-5, 1e-10 * abs(now.value))
        if worst is not None:
            yield (
                f"The gradient is not the derivative of the value: for {_place(worst)} it is {now.grad[worst]:.6g}, "
                f"and central differences give {slopes[worst]:.6g}."
            )
            return


def _blocks(trial: _Trial) -> Iterator[str]:
    """Blocks of queries add up to the whole."""
    whole, queries = trial.bound.at(trial.scores, curvature=True), trial.queries
    assert whole.curvature is not None
    total, middle = 0.0, len(queries) // 2
    for first, last in ((0, middle), (middle, len(queries))):
        if first == last:
            continue
        block = trial.bound.slice(first, last)
        rows = block.rows
        given, grad = trial.scores[rows].copy(), np.full_like(trial.scores[rows], np.nan)
        answer, bend = trial.bound.evaluate_block(block, given, grad, Requested(curvature=True))
        values = np.asarray(answer)
        which = f"For the queries {first} to {last - 1} alone"
        if values.shape != (last - first,):
            yield f"{which} `evaluate_block` returns shape {values.shape}, not one number for each query."
            return
        if not np.array_equal(given, trial.scores[rows]):
            yield f"{which} `evaluate_block` changes the scores it is given."
        if np.isnan(grad).any():
            yield f"{which} `evaluate_block` leaves parts of the gradient unfilled."
        elif _worst(grad, whole.grad[rows], _RELATIVE_TOLERANCE) is not None:
            yield f"{which} `evaluate_block` returns another gradient than for all queries; check the row indices."
        assert bend is not None
        if _worst(bend.diagonal(), whole.curvature.diagonal()[rows], _RELATIVE_TOLERANCE) is not None:
            yield f"{which} `evaluate_block` gives another curvature than for all queries at once."
        total += float(values @ trial.bound.scale[first:last])
    if _worst(total, whole.value, _RELATIVE_TOLERANCE) is not None:
        yield f"The losses of blocks add up to {total:.6g}, but the value is {whole.value:.6g}."


def _curvature(trial: _Trial) -> Iterator[str]:
    """The curvature is symmetric, positive semi-definite, and what the traits say."""
    for scores in (np.zeros_like(trial.scores), trial.scores):
        now = trial.bound.at(scores, curvature=True)
        assert now.curvature is not None
        matrix = _matrix(now.curvature, scores)
        troubles = list(_form(trial, matrix, now.curvature.diagonal()))
        if troubles:
            yield from troubles
            return
    if trial.loss.traits.curvature != "exact":
        return
    changes = [(trial.bound.at(trial.scores + s).grad - trial.bound.at(trial.scores - s).grad) for s in trial.steps()]
    hessian = np.array([change.ravel() for change in changes]) / (2 * _STEP)
    worst = _worst(matrix, hessian, 1e-4, 1e-10 * float(np.abs(now.grad).max(initial=0.0)))
    if worst is not None:
        yield (
            f"The curvature is not the Hessian: between the scores {worst[0]} and {worst[1]} it is "
            f"{matrix[worst]:.6g}, and differences of the gradient give {hessian[worst]:.6g}. Mend it, or claim "
            "curvature='gauss-newton' or 'majorizer'."
        )


def _form(trial: _Trial, matrix: FloatArray, diagonal: FloatArray) -> Iterator[str]:
    """What is wrong with a matrix, and with what is given as its diagonal."""
    size = float(np.abs(matrix).max(initial=1e-300))
    worst = _worst(matrix, matrix.T, _RELATIVE_TOLERANCE)
    if worst is not None:
        yield f"The curvature is not symmetric: see the documents {worst[0]} and {worst[1]}."
        return
    lowest = float(np.linalg.eigvalsh(matrix).min())  # right to about 1e-16 of the size for each row
    if lowest < -1e-10 * size * len(matrix):
        yield (
            f"The curvature is not positive semi-definite: its lowest eigenvalue is {lowest:.3g}. Leave out what bends "
            "down, and claim 'gauss-newton'."
        )
    if (
        diagonal.shape != trial.scores.shape
        or _worst(np.ravel(diagonal), np.diag(matrix), _RELATIVE_TOLERANCE) is not None
    ):
        yield "`curvature.diagonal()` is not the diagonal of what `curvature @ V` multiplies by."
    owner = np.repeat(trial.queries.document_query, trial.scores.size // len(trial.scores))
    if matrix[owner[:, None] != owner].any():
        yield "The curvature couples documents of different queries; a loss judges each query by itself."


def _words(trial: _Trial) -> Iterator[str]:
    """The traits speak of a curvature and a space that there are."""
    for name in ("curvature", "space", "columns"):
        word, known = getattr(trial.loss.traits, name), get_args(get_type_hints(Traits)[name])
        if word not in known:
            choices = ", ".join(f"'{choice}'" for choice in known)
            yield f"The traits claim {name}={word!r}, which says nothing to a ranker: it is one of {choices}."


def _looseness(trial: _Trial) -> Iterator[str]:
    """Where the curvature is a majorizer, it leaves steps that are worth making.

    Along the step d = −gradient/diagonal a quadratic of that diagonal eats half of what the gradient g promises, at t·d
    with t = 1. The loss itself does so where |L(s + t·d) − L(s) − t·g·d| = ½·t·|g·d|: that t says how many times too
    short the step is. It is finite for every loss that is bounded below, however far away its minimum lies.
    """
    if trial.loss.traits.curvature != "majorizer" or not trial.loss.traits.exact_gradient:
        return
    promising = []
    for scores in (trial.scores, 2.0 * trial.scores, trial.elsewhere(1.0)):
        now = trial.bound.at(scores, curvature=True)
        assert now.curvature is not None
        diagonal = now.curvature.diagonal()
        step = np.divide(-now.grad, diagonal, out=np.zeros_like(scores), where=diagonal > 0)
        promised = float(np.sum(now.grad * step))
        for t in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, _MAX_STEP_RATIO) if promised < 0 else ():
            bend = trial.bound.at(scores + t * step).value - now.value - t * promised
            if abs(bend) >= 0.5 * t * abs(promised):
                return
        promising.append(promised < 0)
    if any(promising):
        yield (
            f"The majorizer is loose: the steps that trees take (gradient over curvature) were more than "
            f"{_MAX_STEP_RATIO:g} times shorter than the loss allows at every test point, so training would be very "
            "slow. Find a tighter bound."
        )


def _convexity(trial: _Trial) -> Iterator[str]:
    """The value is convex where that is claimed."""
    if not trial.loss.traits.convex:
        return
    for number in range(60):
        ends = [trial.elsewhere((0.3, 1.0, 5.0, 30.0)[number % 4]) for _ in range(2)]
        low, high = (trial.bound.at(end).value for end in ends)
        middle = trial.bound.at((ends[0] + ends[1]) / 2).value
        if (low + high) / 2 - middle < -1e-10 * max(abs(low), abs(high)):
            yield (
                f"The loss claims to be convex, but half-way between two points with values {low:.6g} and {high:.6g} "
                f"it is {middle:.6g}, above their mean."
            )
            return


def _shifts(trial: _Trial) -> Iterator[str]:
    """Shifts of a query's scores change nothing, or it is not claimed."""
    shift = trial.queries.broadcast(trial.rng.uniform(-3.0, 3.0, len(trial.queries)))
    before, after = trial.bound.at(trial.scores), trial.bound.at((trial.scores.T + shift).T)
    same = (
        _worst(after.value, before.value, _RELATIVE_TOLERANCE) is None
        and _worst(after.grad, before.grad, 1e-7, _RELATIVE_TOLERANCE) is None
    )
    if trial.loss.traits.shift_invariant and not same:
        yield (
            "The loss claims shift_invariant=True, but other numbers come out when a constant is added to all scores "
            "of a query."
        )
    if same and not trial.loss.traits.shift_invariant:
        yield (
            "Nothing changes when a constant is added to all scores of a query: claim shift_invariant=True, or a "
            "linear ranker learns an intercept that nothing determines."
        )


def _gains(trial: _Trial) -> Iterator[str]:
    """The gradient is affine in the gains where that is claimed."""
    if not trial.loss.traits.linear_in_gain:
        return
    loss = replace(trial.loss, gain=None) if hasattr(trial.loss, "gain") else trial.loss  # type: ignore[call-arg]
    ends = trial.rng.uniform(-1.0, 3.0, (2, len(trial.labels)))
    low, high, middle = (trial.on(gains, loss).at(trial.scores).grad for gains in (*ends, ends.mean(axis=0)))
    if _worst(middle, (low + high) / 2, _RELATIVE_TOLERANCE) is not None:
        yield (
            "The loss claims linear_in_gain=True, but for gains half-way between two others the gradient is not "
            "half-way between theirs: corrected clicks would train it with a bias."
        )


def _labels(trial: _Trial) -> Iterator[str]:
    """Labels are gains where that is claimed."""
    if not trial.loss.traits.labels_are_gains:
        return
    gains = trial.rng.uniform(-1.0, 3.0, len(trial.labels))
    once, twice = (trial.on(factor * gains).at(trial.scores) for factor in (1.0, 2.0))
    if (
        _worst(twice.value, 2 * once.value, _RELATIVE_TOLERANCE) is not None
        or _worst(twice.grad, 2 * once.grad, _RELATIVE_TOLERANCE) is not None
    ):
        yield (
            "The loss claims labels_are_gains=True, but with twice the labels value and gradient are not twice as "
            "large."
        )


def _order(trial: _Trial) -> Iterator[str]:
    """The order of a query's rows does not matter."""
    if trial.loss.traits.random:
        return
    for scores in (trial.scores, np.round(trial.scores), np.zeros_like(trial.scores)):
        order = np.concatenate([trial.rng.permutation(np.arange(rows.start, rows.stop)) for rows in trial.queries])
        before = trial.bound.at(scores, curvature=True)
        after = trial.on(trial.labels[order], order=order).at(scores[order], curvature=True)
        assert before.curvature is not None
        assert after.curvature is not None
        diagonals = after.curvature.diagonal(), before.curvature.diagonal()[order]
        pairs = ((after.value, before.value), (after.grad, before.grad[order]), diagonals)
        if any(_worst(ours, theirs, 1e-7, 1e-12) is not None for ours, theirs in pairs):
            tied = "" if scores is trial.scores else " where scores are tied"
            yield (
                f"The order of a query's rows changes the loss{tied}: the file, or what is drawn for its rows, would "
                "decide what is learned."
            )
            return


def _weights(trial: _Trial) -> Iterator[str]:
    """Weights of queries and documents count, or are refused."""
    n, longest = trial.queries.n_documents, int(np.argmax(trial.queries.sizes))
    weights = np.zeros(len(trial.queries))
    weights[longest] = 1.0
    on = partial(trial.loss.on, trial.labels, trial.queries, teacher=trial.teacher)
    only = on(query_weights=weights).at(trial.scores)
    if not (np.isfinite(only.value) and np.isfinite(only.grad).all()):
        yield "A query with weight 0 makes the value or the gradient infinite or NaN: do not divide by `scale`."
    elif only.grad[trial.queries.document_query != longest].any():
        yield "Query weights are not used: documents of a query with weight 0 have a gradient. Hand them to BoundLoss."
    equal_and_rising = np.ones(n), 1.0 + np.arange(n)
    try:
        bound = [on(document_weights=w) for w in equal_and_rising]
    except DataError:  # refused, in a sentence of its own
        return
    plain, ones, others = (weighted.at(trial.scores, curvature=True) for weighted in (on(), *bound))
    assert plain.curvature is not None
    assert ones.curvature is not None
    diagonals = ones.curvature.diagonal(), plain.curvature.diagonal()
    for name, ours, theirs in (
        ("value", ones.value, plain.value),
        ("gradient", ones.grad, plain.grad),
        ("curvature", *diagonals),
    ):
        if _worst(ours, theirs, _RELATIVE_TOLERANCE) is not None:
            yield f"Document weights that are all 1 change the {name}."
    if plain.grad.any() and _worst(others.grad, plain.grad, 1e-6) is None:
        yield "Document weights are taken and not used. Use them, or refuse them with a DataError."


def _extremes(trial: _Trial) -> Iterator[str]:
    """Scores of ±1e8 give finite numbers."""
    shape, rng = trial.scores.shape, trial.rng
    equal = (np.full(shape, 1e8), np.full(shape, -1e8))
    mixed = (rng.choice([-1e8, 1e8], shape), rng.choice([-1e8, 0.0, 1.0, 1e8], shape), 1e8 * rng.standard_normal(shape))
    for scores in (*equal, *mixed, 1e-300 * trial.scores):
        now = trial.bound.at(scores, curvature=True, threads=1)
        assert now.curvature is not None
        product = np.append(now.curvature @ rng.standard_normal(shape), now.curvature.diagonal())
        parts: dict[str, Any] = {"value": now.value, "gradient": now.grad, "curvature": product}
        bad = [name for name, numbers in parts.items() if not np.isfinite(numbers).all()]
        if bad:
            yield (
                f"At scores of ±1e8 not finite: {' and '.join(bad)}. A solver may try such scores: use "
                "np.logaddexp or np.tanh, subtract the largest score before exp, or clip."
            )
            return


_CHECKS: tuple[Callable[[_Trial], Iterator[str]], ...] = (
    _words, _answers, _gradient, _blocks, _curvature, _looseness, _convexity, _shifts, _gains, _labels, _order,
    _weights, _extremes,
)  # fmt: skip
