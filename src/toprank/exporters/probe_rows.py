"""Rows made to find mistakes of an export: at every split of every tree, missing, zero, of every size.

Training rows alone pass many wrong exports, since few of them lie on a threshold. These rows meet every split that a
row can come to on both of its sides (`walking.py`), and every feature far from its usual values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.exporters.float32 import FAR
from toprank.exporters.walking import LARGEST, Grove, SplitCounts, walks
from toprank.rankers.formula import Cuts, Formula, Function, LinearFunction, Network
from toprank.rankers.trees.forest import TINY, Forest

KINDS = {
    "data": "rows of the data that were given",
    "usual": "values as the model expects them, drawn at random",
    "thresholds": "at each split of a tree: the last value that goes left, and the first that goes right",
    "categories": "at each split: known and unknown categories; negative ones, and values between them",
    "negative": "categories between -1 and 0, which LightGBM takes for category 0",
    "missing": "missing values: at each split that they come to; one, some, all",
    "zeros": "zeros, also negative ones",
    "tiny": "values within ±1e-35 of zero, which LightGBM takes for zero",
    "large": "values of every size between usual and huge",
    "huge": "a value of ±1e30 or the largest of single precision",
}
"""The kinds of rows, in words."""

MOST_ROWS = 40_000
"""Rows at splits; if a model has more splits than these can meet, splits are drawn."""
_CELLS = 1 << 24  # numbers in these rows at most: 128 MB
_CATEGORIES = 1500  # that get rows of their own, six each
_USUAL = 200
_SIZES = 12  # rows of a feature with a large value
_SEED = 0  # the same rows for the same model

Usual = Callable[[int], FloatArray]
"""Makes as many rows of usual values as it is told."""


class ProbeRows(NamedTuple):
    """Rows, and the kind of each.

    Attributes:
        sampled: Whether there were more splits or categories than rows may meet.
    """

    X: FloatArray
    kinds: npt.NDArray[np.str_]
    nodes: SplitCounts
    sampled: bool


def _is_tiny(X: FloatArray, within: float) -> npt.NDArray[np.bool_]:
    """Return which rows hold a value other than zero that LightGBM, or a file's reader, takes for zero."""
    return np.asarray(((np.abs(X) <= within) & (X != 0.0)).any(axis=1))


def probe_rows(
    formula: Formula, data_rows: FloatArray | None = None, *, single: bool = False, tiny: float = TINY
) -> ProbeRows:
    """Make rows for a formula.

    Args:
        formula: what is exported.
        data_rows: rows of data to build the probe rows around; None: values that the formula suggests.
        single: whether the file's reader holds features in single precision; then every value is a single.
        tiny: rows with a value this close to zero are of the kind ``tiny``.
    """
    rng = np.random.default_rng(_SEED)
    functions, cuts, sets = formula.functions, formula.thresholds, _categories(formula)
    pools = [_pool(functions, cuts, sets, j, data_rows, rng) for j in range(formula.n_features)]
    pools = [np.where(np.abs(pool) <= tiny, 0.0, pool) for pool in pools]  # such values have rows of their own

    def usual(n: int) -> FloatArray:
        return np.column_stack([rng.choice(pool, n) for pool in pools])

    numbers = np.setdiff1d(np.arange(formula.n_features), [] if sets is None else sets[0])
    blocks = {"usual": usual(_USUAL), "missing": _missing(usual, rng), "zeros": _zeros(usual, rng)}
    blocks |= {
        "tiny": _tiny(usual, rng),
        "large": _large(usual, numbers, single, rng),
        "huge": _huge(usual, formula.n_features),
    }
    if sets is not None:
        blocks["categories"] = _on(usual, sets[0], [sets[1] + shift for shift in (0.0, 0.5, -0.5, 1.0, -1.0, 1e6)])
    most = min(MOST_ROWS, _CELLS // formula.n_features)
    groves = [Grove(f.part, f.wide) for f in functions if isinstance(f.part, Forest)]
    walked = walks(groves, usual, single=single, tiny=tiny, most=most)
    X = np.concatenate([*blocks.values(), walked.X])
    kinds = np.concatenate([*(np.full(len(block), kind) for kind, block in blocks.items()), walked.kinds])
    X = np.where(np.isinf(X), np.copysign(LARGEST, X), X)
    if single:
        with np.errstate(over="ignore"):
            X = X.astype(np.float32).astype(np.float64)
    kinds = np.where(_is_tiny(X, tiny), "tiny", kinds)
    if sets is not None:
        codes = X[:, np.unique(sets[0])]
        kinds = np.where(((codes > -1.0) & (codes < 0.0)).any(axis=1), "negative", kinds)
    order = rng.permutation(len(X))
    order = order[np.argsort(kinds[order], kind="stable")]  # rankings are of one kind each
    return ProbeRows(np.ascontiguousarray(X[order]), kinds[order], walked.nodes, walked.sampled)


def _categories(formula: Formula) -> Cuts | None:
    """Return every (feature, category) of a split or of the data once; and the category 0 of each such feature."""
    pairs: set[tuple[int, int]] = set()
    for function in formula.functions:
        for column, categories in function.part.features_and_sets() if isinstance(function.part, Forest) else ():
            if categories is not None:
                pairs |= {(int(function.features[column]), int(category)) for category in categories}
    for name, levels in formula.levels.items():
        pairs |= {(formula.features.index(name), code) for code in range(len(levels))}
    if not pairs:
        return None
    pairs |= {(feature, 0) for feature, _ in pairs}
    table = np.array(sorted(pairs)[:_CATEGORIES])
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.float64)


def _pool(
    functions: Sequence[Function],
    cuts: Cuts,
    sets: Cuts | None,
    feature: int,
    data_rows: FloatArray | None,
    rng: np.random.Generator,
) -> FloatArray:
    """Return values that a feature usually takes."""
    if data_rows is not None and len(data_rows):
        present = data_rows[:, feature][np.isfinite(data_rows[:, feature])]
        if len(present):
            return np.asarray(rng.choice(present, 256), dtype=np.float64)
    own = cuts[1][cuts[0] == feature]
    own = own[np.abs(own) < FAR]
    pools = [own, own + 0.1 * np.abs(own) + 0.1, own - 0.1 * np.abs(own) - 0.1]
    if sets is not None:
        pools.append(sets[1][sets[0] == feature])
    for function in functions:
        for column in np.flatnonzero(function.features == feature).tolist():
            pools.append(_expected(function.part, column, rng))
    known = np.concatenate([np.asarray(pool, dtype=np.float64) for pool in pools])
    known = known[np.isfinite(known)]
    with np.errstate(over="ignore"):
        # rounded to single precision, so that readers of either precision see the same value
        return (known if len(known) else rng.normal(size=64)).astype(np.float32).astype(np.float64)


def _expected(part: LinearFunction | Forest | Network, column: int, rng: np.random.Generator) -> FloatArray:
    """Draw values of a column as a part learned to expect them."""
    if isinstance(part, Forest):
        return np.zeros(0)
    if isinstance(part, LinearFunction):
        return np.asarray(part.center[column] + rng.normal(size=64) / part.scale[column])
    if part.transform == "quantile":
        return np.asarray(rng.choice(part.knots[:, column], 64))
    mapped = part.center[column] + part.spread[column] * rng.normal(size=64)
    return np.asarray(np.sign(mapped) * np.expm1(np.abs(mapped)) if part.transform == "log1p" else mapped)


def _on(usual: Usual, columns: IntArray, sides: list[npt.NDArray[np.floating]]) -> FloatArray:
    """Return a usual row for each column and side, with the side's value in the column."""
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


def _large(usual: Usual, numbers: IntArray, single: bool, rng: np.random.Generator) -> FloatArray:
    """Return rows with one value, or all, of any size from usual up, half of them near to it, where curves still bend.

    Never all for a reader that adds in single precision: large terms cancel, and only rounding errors are left.
    """
    columns = np.repeat(numbers[:_USUAL], _SIZES)
    X = usual(len(columns) + (0 if single else _USUAL))
    alone, together = np.arange(len(columns)), np.arange(len(columns), len(X))
    powers = rng.uniform(0.0, np.where(rng.random(len(X)) < 0.5, 3.0, 30.0))
    factor = rng.choice([-1.0, 1.0], len(X)) * 10.0**powers
    sizes = np.abs(X[alone, columns])
    X[alone, columns] = factor[alone] * np.where(sizes > 0, np.minimum(sizes, 1e6), 1.0)
    X[np.ix_(together, numbers)] *= 10.0 ** rng.uniform(0.0, 3.0, (len(together), 1))
    return X


def _huge(usual: Usual, d: int) -> FloatArray:
    """Return rows with one huge value: two of them would cancel, and only rounding errors would be left."""
    values = np.array([1e30, -1e30, 3e38, -3e38])
    columns = np.arange(d)[:_USUAL]
    X = usual(len(values) * len(columns))
    X[np.arange(len(X)), np.tile(columns, len(values))] = np.repeat(values, len(columns))
    return X
