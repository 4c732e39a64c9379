"""Tests of the declared properties of a loss: `check_loss` compares each with an independent computation.

Rankers rely on these properties: the traits determine the solver, the curvature determines Newton steps, and blocks of
queries run in several threads. An error in any of them does not crash but trains a slightly wrong model.
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

# The truncation error of central differences grows with the square of the step, the rounding error with its inverse.
# At the cube root of 1e-16 both are about 1e-10. Gradients may differ by 1e-5, and Hessians, which are differences of
# gradients, by 1e-4: far above these errors, and far below typical mistakes.
_STEP = 1e-5
_RELATIVE_TOLERANCE = 1e-9  # for equal results; reordered sums of some hundred terms differ by 1e-13
_SIZES = (5, 1, 7, 2, 4, 3, 6)  # includes a single document; the fifth query has equal labels
_MAX_STEP_RATIO = 100.0  # tolerated factor by which steps of a majorizer are too short
_MAX_DOCUMENTS = 200  # each document costs four evaluations


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
    """Return a sentence for each property that a loss violates; an empty list if there are none.

    Checked are: the gradient against central differences of the value (unless `exact_gradient` is False); symmetry and
    positive semi-definiteness of the curvature and, if it is declared exact, differences of the gradient; the tightness
    of a majorizer; convexity and linearity in the gains, if declared; invariance to shifts, in both directions;
    invariance to the order of rows in a query (unless the loss is random); additivity over blocks of queries; weights
    of queries and documents; finite results for scores of ±1e8.

    Exceptions of a faulty loss are returned as sentences.

    Args:
        loss: loss to check.
        labels: labels that it supports. Default: grades 0 to 4 in queries of 1 to 7 documents.
        queries: their queries. Default: one query. Whole queries up to about 200 documents are used.
        document_weights: weights that it supports. Default: none. The use of weights is checked in any case.
        scores: where to evaluate it, (n,), or (n, columns) in class space. Default: random normal.
        teacher: a teacher's scores, for losses that learn from one. Default: random normal.
        seed: seed of all random numbers.

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
            with np.errstate(all="ignore"):  # finiteness is a separate check
                sentences += check(trial)
        except Exception as trouble:  # noqa: BLE001
            sentences.append(
                f"{(check.__doc__ or '').rstrip('.')}: the property could not be checked. {_described(trouble)}"
            )
            if check is _answers:
                break  # further checks would fail in the same way
    return sentences


@dataclass(frozen=True)
class _Trial:
    """A loss and the data to which it is bound."""

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
        """Bind the loss to its data, or to default data; see `check_loss`."""
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
        """Bind the loss, or another one, to other labels, with weights and teacher's scores in the same order."""
        weights = None if self.document_weights is None else self.document_weights[order]
        teacher = None if self.teacher is None else self.teacher[order]
        return (loss or self.loss).on(labels, self.queries, document_weights=weights, teacher=teacher)

    def elsewhere(self, spread: float) -> FloatArray:
        """Return other scores in the same region."""
        return self.scores + spread * self.rng.standard_normal(self.scores.shape)

    def steps(self) -> Iterator[FloatArray]:
        """Yield a small step in every score."""
        for index in np.ndindex(self.scores.shape):
            step = np.zeros_like(self.scores)
            step[index] = _STEP
            yield step


def _described(trouble: Exception) -> str:
    """Format an exception."""
    return f"{type(trouble).__name__}: {trouble}"


def _worst(actual: Any, expected: Any, rtol: float, floor: float = 0.0) -> tuple[int, ...] | None:
    """Return where two arrays differ most, if by more than rtol times the larger one and the floor."""
    actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    errors = np.abs(actual - expected)
    allowed = (
        rtol * max(np.abs(actual).max(initial=0.0), np.abs(expected).max(initial=0.0)) + floor + 1e-14
    )  # if both are 0 up to rounding
    if (errors <= allowed).all():  # false for NaN
        return None
    return tuple(int(i) for i in np.unravel_index(np.argmax(np.where(np.isnan(errors), np.inf, errors)), errors.shape))


def _place(index: tuple[int, ...]) -> str:
    return f"document {index[0]}" + (f", column {index[1]}" if len(index) > 1 else "")


def _matrix(curvature: Curvature, scores: FloatArray) -> FloatArray:
    """Return the curvature as a dense matrix over the flattened scores."""
    units = np.eye(scores.size).reshape(scores.size, *scores.shape)
    return np.array([(curvature @ unit).ravel() for unit in units])


def _answers(trial: _Trial) -> Iterator[str]:
    """Check that results are finite and have the right shapes."""
    now = trial.bound.at(trial.scores, curvature=True, threads=1)
    if not np.isfinite(now.value):
        yield f"The value at ordinary scores is {now.value}."
    if not np.isfinite(now.grad).all():
        row = np.argwhere(~np.isfinite(now.grad))[0]
        yield f"The gradient at ordinary scores is not finite for {_place(tuple(map(int, row)))}."


def _gradient(trial: _Trial) -> Iterator[str]:
    """Check the gradient against differences of the value."""
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
    """Check that blocks of queries add up to the whole."""
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
    """Check that the curvature is symmetric, positive semi-definite, and as declared."""
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
            f"{matrix[worst]:.6g}, and differences of the gradient give {hessian[worst]:.6g}. Fix it, or declare "
            "curvature='gauss-newton' or 'majorizer'."
        )


def _form(trial: _Trial, matrix: FloatArray, diagonal: FloatArray) -> Iterator[str]:
    """Report errors of a matrix and of its separate diagonal."""
    size = float(np.abs(matrix).max(initial=1e-300))
    worst = _worst(matrix, matrix.T, _RELATIVE_TOLERANCE)
    if worst is not None:
        yield f"The curvature is not symmetric for the documents {worst[0]} and {worst[1]}."
        return
    lowest = float(np.linalg.eigvalsh(matrix).min())  # accurate to about 1e-16 of the norm per row
    if lowest < -1e-10 * size * len(matrix):
        yield (
            f"The curvature is not positive semi-definite: its lowest eigenvalue is {lowest:.3g}. Omit the "
            "negative part, and declare 'gauss-newton'."
        )
    if (
        diagonal.shape != trial.scores.shape
        or _worst(np.ravel(diagonal), np.diag(matrix), _RELATIVE_TOLERANCE) is not None
    ):
        yield "`curvature.diagonal()` is not the diagonal of the operator `curvature @ V`."
    owner = np.repeat(trial.queries.document_query, trial.scores.size // len(trial.scores))
    if matrix[owner[:, None] != owner].any():
        yield "The curvature couples documents of different queries; losses must be separate by query."


def _words(trial: _Trial) -> Iterator[str]:
    """Check that the declared curvature and space exist."""
    for name in ("curvature", "space", "columns"):
        word, known = getattr(trial.loss.traits, name), get_args(get_type_hints(Traits)[name])
        if word not in known:
            choices = ", ".join(f"'{choice}'" for choice in known)
            yield f"The traits declare {name}={word!r}, which is not one of {choices}."


def _looseness(trial: _Trial) -> Iterator[str]:
    """Check that a majorizer allows useful step sizes.

    Along the step d = −gradient/diagonal, the quadratic model with that diagonal removes half of the decrease promised
    by the gradient g, at t·d with t = 1. The loss itself does so at the t with |L(s + t·d) − L(s) − t·g·d| = ½·t·|g·d|,
    so that t is the factor by which the step is too short. It is finite for every loss that is bounded below.
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
    """Check declared convexity."""
    if not trial.loss.traits.convex:
        return
    for number in range(60):
        ends = [trial.elsewhere((0.3, 1.0, 5.0, 30.0)[number % 4]) for _ in range(2)]
        low, high = (trial.bound.at(end).value for end in ends)
        middle = trial.bound.at((ends[0] + ends[1]) / 2).value
        if (low + high) / 2 - middle < -1e-10 * max(abs(low), abs(high)):
            yield (
                f"The loss is declared convex, but halfway between two points with values {low:.6g} and {high:.6g} "
                f"it is {middle:.6g}, above their mean."
            )
            return


def _shifts(trial: _Trial) -> Iterator[str]:
    """Check invariance to shifts of a query's scores, in both directions."""
    shift = trial.queries.broadcast(trial.rng.uniform(-3.0, 3.0, len(trial.queries)))
    before, after = trial.bound.at(trial.scores), trial.bound.at((trial.scores.T + shift).T)
    same = (
        _worst(after.value, before.value, _RELATIVE_TOLERANCE) is None
        and _worst(after.grad, before.grad, 1e-7, _RELATIVE_TOLERANCE) is None
    )
    if trial.loss.traits.shift_invariant and not same:
        yield (
            "The loss declares shift_invariant=True, but other numbers come out when a constant is added to all scores "
            "of a query."
        )
    if same and not trial.loss.traits.shift_invariant:
        yield (
            "Nothing changes when a constant is added to all scores of a query: claim shift_invariant=True, or a "
            "linear ranker learns an intercept that nothing determines."
        )


def _gains(trial: _Trial) -> Iterator[str]:
    """Check that the gradient is affine in the gains, if declared."""
    if not trial.loss.traits.linear_in_gain:
        return
    loss = replace(trial.loss, gain=None) if hasattr(trial.loss, "gain") else trial.loss  # type: ignore[call-arg]
    ends = trial.rng.uniform(-1.0, 3.0, (2, len(trial.labels)))
    low, high, middle = (trial.on(gains, loss).at(trial.scores).grad for gains in (*ends, ends.mean(axis=0)))
    if _worst(middle, (low + high) / 2, _RELATIVE_TOLERANCE) is not None:
        yield (
            "The loss declares linear_in_gain=True, but for gains half-way between two others the gradient is not "
            "half-way between theirs: corrected clicks would train it with a bias."
        )


def _labels(trial: _Trial) -> Iterator[str]:
    """Check that labels are gains, if declared."""
    if not trial.loss.traits.labels_are_gains:
        return
    gains = trial.rng.uniform(-1.0, 3.0, len(trial.labels))
    once, twice = (trial.on(factor * gains).at(trial.scores) for factor in (1.0, 2.0))
    if (
        _worst(twice.value, 2 * once.value, _RELATIVE_TOLERANCE) is not None
        or _worst(twice.grad, 2 * once.grad, _RELATIVE_TOLERANCE) is not None
    ):
        yield (
            "The loss declares labels_are_gains=True, but with twice the labels value and gradient are not twice as "
            "large."
        )


def _order(trial: _Trial) -> Iterator[str]:
    """Check that the order of a query's rows does not matter."""
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
                f"The order of a query's rows changes the loss{tied}, so training would depend on the order of the "
                "file."
            )
            return


def _weights(trial: _Trial) -> Iterator[str]:
    """Check that weights of queries and documents are used, or raise an error."""
    n, longest = trial.queries.n_documents, int(np.argmax(trial.queries.sizes))
    weights = np.zeros(len(trial.queries))
    weights[longest] = 1.0
    on = partial(trial.loss.on, trial.labels, trial.queries, teacher=trial.teacher)
    only = on(query_weights=weights).at(trial.scores)
    if not (np.isfinite(only.value) and np.isfinite(only.grad).all()):
        yield "A query with weight 0 makes the value or the gradient infinite or NaN: do not divide by `scale`."
    elif only.grad[trial.queries.document_query != longest].any():
        yield "Query weights are not used: documents of a query with weight 0 have a gradient. Pass them to BoundLoss."
    equal_and_rising = np.ones(n), 1.0 + np.arange(n)
    try:
        bound = [on(document_weights=w) for w in equal_and_rising]
    except DataError:  # a clear refusal is allowed
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
        yield "Document weights are ignored. Use them, or raise a DataError."


def _extremes(trial: _Trial) -> Iterator[str]:
    """Check that scores of ±1e8 give finite results."""
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
                f"At scores of ±1e8 not finite: {' and '.join(bad)}. Solvers may evaluate such scores: use "
                "np.logaddexp or np.tanh, subtract the largest score before exp, or clip."
            )
            return


_CHECKS: tuple[Callable[[_Trial], Iterator[str]], ...] = (
    _words, _answers, _gradient, _blocks, _curvature, _looseness, _convexity, _shifts, _gains, _labels, _order,
    _weights, _extremes,
)  # fmt: skip
