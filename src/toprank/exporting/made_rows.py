"""Rows made to catch an export in a mistake: on the model's own thresholds and beside them, missing, zero, huge.

Training rows alone pass many wrong exports, since few of them lie on a threshold. Here every value that a tree compares
with is met exactly, from both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.exporting.form import Blend, Forest, Form, Grades, Linear, Network, Part, Wide
from toprank.exporting.singles import next_single, single_below
from toprank.rankers.formula import TINY

__all__ = ["KINDS", "TINY", "MadeRows", "is_tiny", "made_rows"]

KINDS = {
    "data": "rows of the data that were given",
    "usual": "values as the model expects them, drawn at random",
    "thresholds": "a threshold's single precision neighbours on both sides, and the next ones",
    "doubles": "a threshold itself, and its double precision neighbours",
    "categories": "known and unknown categories, negative ones, and values between them",
    "missing": "missing values: one, some, all",
    "zeros": "zeros, also negative ones",
    "tiny": "values within ±1e-35 of zero, which LightGBM takes for zero",
    "huge": "a value of ±1e30 or the largest of single precision",
}
"""The kinds of rows, in words."""

_MOST = 1500  # thresholds that get rows of their own
_USUAL = 200

Usual = Callable[[int], FloatArray]
"""Makes so many rows of values as the model expects them."""


class MadeRows(NamedTuple):
    """Rows, and the kind of each."""

    X: FloatArray
    kinds: npt.NDArray[np.str_]


def is_tiny(X: FloatArray, within: float = TINY) -> npt.NDArray[np.bool_]:
    """Which rows hold a value that LightGBM, or a target, takes for zero though it is none."""
    return np.asarray(((np.abs(X) <= within) & (X != 0.0)).any(axis=1))


def made_rows(
    form: Form, given: FloatArray | None = None, *, single: bool = False, tiny: float = TINY, seed: int = 0
) -> MadeRows:
    """Rows for a form.

    Args:
        form: what is exported.
        given: rows of data, whose values the made ones are built around; None: values that the form suggests.
        single: whether the target holds features in single precision; then every value is one.
        tiny: rows with a value this close to zero are of the kind ``tiny``.
        seed: decides all that is drawn.
    """
    rng = np.random.default_rng(seed)
    parts = list(_parts(form.part, np.arange(form.n_features)))
    cuts, sets = _thresholds(parts), _categories(form, parts)
    pools = [_pool(parts, cuts, sets, j, given, rng) for j in range(form.n_features)]

    def usual(n: int) -> FloatArray:
        return np.column_stack([rng.choice(pool, n) for pool in pools])

    blocks = {"usual": usual(_USUAL), "missing": _missing(usual, rng), "zeros": _zeros(usual, rng)}
    blocks |= {"tiny": _tiny(usual, rng), "huge": _huge(usual, form.n_features)}
    columns, values = _chosen(cuts, rng)
    if len(columns):
        at, after = single_below(values), next_single(values)
        with np.errstate(over="ignore"):
            sides = [np.nextafter(at, np.float32(-np.inf)), at, after, np.nextafter(after, np.float32(np.inf))]
        blocks["thresholds"] = _on(usual, columns, sides)
        if not single:
            blocks["doubles"] = _on(
                usual, columns, [np.nextafter(values, -np.inf), values, np.nextafter(values, np.inf)]
            )
    if sets is not None:
        blocks["categories"] = _on(usual, sets[0], [sets[1] + shift for shift in (0.0, 0.5, -0.5, 1.0, -1.0, 1e6)])
    X = np.concatenate(list(blocks.values()))
    kinds = np.concatenate([np.full(len(block), kind) for kind, block in blocks.items()])
    X = np.where(np.isinf(X), np.copysign(float(np.finfo(np.float32).max), X), X)
    if single:
        with np.errstate(over="ignore"):
            X = X.astype(np.float32).astype(np.float64)
    kinds = np.where(is_tiny(X, tiny), "tiny", kinds)
    order = rng.permutation(len(X))
    order = order[np.argsort(kinds[order], kind="stable")]  # rankings are of one kind each
    return MadeRows(np.ascontiguousarray(X[order]), kinds[order])


class _Seen(NamedTuple):
    """A part, and the feature behind each column that it sees; −1: a level of a category."""

    part: Linear | Forest | Network
    features: IntArray


def _parts(part: Part, features: IntArray) -> Iterator[_Seen]:
    if isinstance(part, Blend):
        for _, term in part.terms:
            yield from _parts(term, features)
    elif isinstance(part, Wide):
        levels = np.full(part.width - len(part.numbers), -1)
        yield from _parts(part.part, np.concatenate([part.numbers, levels]))
    elif isinstance(part, Grades):
        yield _Seen(part.part, features)
    else:
        yield _Seen(part, features)


Cuts = tuple[IntArray, FloatArray]
"""Features, and a threshold of each."""


def _thresholds(parts: list[_Seen]) -> Cuts:
    """Every (feature, threshold) once."""
    found: list[Cuts] = [(np.zeros(0, dtype=np.int64), np.zeros(0))]
    for seen in parts:
        for tree in seen.part.trees if isinstance(seen.part, Forest) else ():
            feature = seen.features[tree.feature]
            compares = np.array([sets is None for sets in tree.categories], dtype=bool) & (feature >= 0)
            found.append((feature[compares], tree.threshold[compares]))
    table = np.unique(np.column_stack([np.concatenate(column) for column in zip(*found, strict=True)]), axis=0)
    return table[:, 0].astype(np.int64), table[:, 1]


def _chosen(cuts: Cuts, rng: np.random.Generator) -> Cuts:
    """Thresholds that get rows of their own. LightGBM's 1e300 gets none: it asks whether there is a value."""
    kept = np.flatnonzero(np.abs(cuts[1]) < 1e38)
    if len(kept) > _MOST:
        kept = np.sort(rng.choice(kept, _MOST, replace=False))
    return cuts[0][kept], cuts[1][kept]


def _categories(form: Form, parts: list[_Seen]) -> Cuts | None:
    """Every (feature, category) that a node asks for or the data had, once; and the category 0 of each feature."""
    found: set[tuple[int, int]] = set()
    for seen in parts:
        for tree in seen.part.trees if isinstance(seen.part, Forest) else ():
            for column, sets in zip(tree.feature.tolist(), tree.categories, strict=True):
                if sets is not None:
                    found |= {(int(seen.features[column]), int(one)) for one in sets}
    for feature in () if form.encoding is None else form.encoding.categories:
        found |= {(feature, code) for code in range(len(form.encoding.columns[feature].levels) if form.encoding else 0)}
    if not found:
        return None
    found |= {(feature, 0) for feature, _ in found}
    table = np.array(sorted(found)[:_MOST])
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.float64)


def _pool(
    parts: list[_Seen], cuts: Cuts, sets: Cuts | None, feature: int, given: FloatArray | None, rng: np.random.Generator
) -> FloatArray:
    """Values that a feature usually takes."""
    if given is not None and len(given):
        present = given[:, feature][np.isfinite(given[:, feature])]
        if len(present):
            return np.asarray(rng.choice(present, 256), dtype=np.float64)
    own = cuts[1][cuts[0] == feature]
    own = own[np.abs(own) < 1e30]
    pools = [own, own + 0.1 * np.abs(own) + 0.1, own - 0.1 * np.abs(own) - 0.1]
    if sets is not None:
        pools.append(sets[1][sets[0] == feature])
    for part, features in parts:
        for column in np.flatnonzero(features == feature).tolist():
            pools.append(_expected(part, column, rng))
    known = np.concatenate([np.asarray(pool, dtype=np.float64) for pool in pools])
    known = known[np.isfinite(known)]
    with np.errstate(over="ignore"):
        # in single precision, where both kinds of target agree about the value
        return (known if len(known) else rng.normal(size=64)).astype(np.float32).astype(np.float64)


def _expected(part: Linear | Forest | Network, column: int, rng: np.random.Generator) -> FloatArray:
    """Values of a column as a part was taught to expect them."""
    if isinstance(part, Forest):
        return np.zeros(0)
    if isinstance(part, Linear):
        return np.asarray(part.centre[column] + rng.normal(size=64) / part.scale[column])
    if part.transform == "quantile":
        return np.asarray(rng.choice(part.knots[:, column], 64))
    mapped = part.centre[column] + part.spread[column] * rng.normal(size=64)
    return np.asarray(np.sign(mapped) * np.expm1(np.abs(mapped)) if part.transform == "log1p" else mapped)


def _on(usual: Usual, columns: IntArray, sides: list[npt.NDArray[np.floating]]) -> FloatArray:
    """A usual row for each column and side, with the value put into it."""
    X = usual(len(columns) * len(sides))
    values = np.concatenate([np.asarray(side, dtype=np.float64) for side in sides])
    X[np.arange(len(X)), np.tile(columns, len(sides))] = values
    return X


def _missing(usual: Usual, rng: np.random.Generator) -> FloatArray:
    X = usual(_USUAL)
    n, d = X.shape
    X[rng.random((n, d)) < rng.choice([0.05, 0.3, 0.8], (n, 1))] = np.nan
    X[np.arange(n), rng.integers(d, size=n)] = np.nan
    X[-1] = np.nan
    return X


def _zeros(usual: Usual, rng: np.random.Generator) -> FloatArray:
    X = usual(_USUAL // 2)
    zeros = rng.random(X.shape) < 0.4
    X[zeros] = rng.choice([0.0, -0.0], zeros.sum())
    X[-1] = 0.0
    return X


def _tiny(usual: Usual, rng: np.random.Generator) -> FloatArray:
    X = usual(_USUAL // 2)
    single = np.float32(1e-35)
    values = np.array(
        [single, np.nextafter(single, np.float32(0)), np.float32(1e-36), np.float32(1e-45)], dtype=np.float64
    )
    X[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = rng.choice([-1, 1], len(X)) * rng.choice(
        values, len(X)
    )
    return X


def _huge(usual: Usual, d: int) -> FloatArray:
    """One value a row: two of them would cancel, and rounding would be all that is left."""
    values = np.array([1e30, -1e30, 3e38, -3e38])
    columns = np.arange(d)[:_USUAL]
    X = usual(len(values) * len(columns))
    X[np.arange(len(X)), np.tile(columns, len(values))] = np.repeat(values, len(columns))
    return X
