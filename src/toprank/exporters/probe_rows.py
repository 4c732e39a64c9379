"""Rows that reveal errors of an export: at every split of every tree, missing, zero, and of every magnitude.

Training rows alone pass many wrong exports, since few of them fall on a threshold. These rows test both sides of every
reachable split (`split_probes.py`), and every feature far from its typical values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.exporters.float32 import MISSING_TEST_LIMIT
from toprank.exporters.split_probes import MAX_PROBE_VALUE, ForestView, SplitCounts, split_probe_rows
from toprank.rankers.formula import Cuts, Formula, Function, LinearFunction, Network
from toprank.rankers.trees.forest import TINY, Forest

KINDS = {
    "data": "rows of the data that were given",
    "usual": "typical values, drawn at random",
    "thresholds": "at each split of a tree: the last value that goes left, and the first that goes right",
    "categories": "at each split: known and unknown categories, negative and fractional codes",
    "negative": "categories between -1 and 0, which LightGBM treats as category 0",
    "missing": "missing values: at each split that they reach; one, some, all",
    "zeros": "zeros, including negative zeros",
    "tiny": "values within ±1e-35 of zero, which LightGBM treats as zero",
    "large": "values of every magnitude between usual and huge",
    "huge": "a value of ±1e30 or the largest in single precision",
}
"""Descriptions of the kinds of rows."""

MAX_SPLIT_ROWS = 40_000
"""Maximum number of rows at splits; a model with more splits than these can cover is sampled."""
_MAX_CELLS = 1 << 24  # maximum number of cells in these rows: 128 MB
_MAX_CATEGORIES = 1500  # with rows for six values each
_N_USUAL_ROWS = 200
_ROWS_PER_FEATURE = 12  # rows per feature with a large value
_SEED = 0  # for reproducible rows

Usual = Callable[[int], FloatArray]
"""Function that generates n rows of typical values."""


class ProbeRows(NamedTuple):
    """Generated rows and their kinds.

    Attributes:
        sampled: True if there were more splits or categories than rows may cover.
    """

    X: FloatArray
    kinds: npt.NDArray[np.str_]
    nodes: SplitCounts
    sampled: bool


def _is_tiny(X: FloatArray, within: float) -> npt.NDArray[np.bool_]:
    """Return which rows contain a nonzero value that LightGBM, or the file's reader, treats as zero."""
    return np.asarray(((np.abs(X) <= within) & (X != 0.0)).any(axis=1))


def probe_rows(
    formula: Formula, data_rows: FloatArray | None = None, *, single: bool = False, tiny: float = TINY
) -> ProbeRows:
    """Generate rows for a formula.

    Args:
        formula: the exported formula.
        data_rows: rows of data to draw typical values from. Default: values suggested by the formula.
        single: whether the file's reader holds features in single precision; every value is then a single-precision
            number.
        tiny: rows with a value this close to zero are of the kind ``tiny``.
    """
    rng = np.random.default_rng(_SEED)
    functions, cuts, sets = formula.functions, formula.thresholds, _categories(formula)
    pools = [_value_pool(functions, cuts, sets, j, data_rows, rng) for j in range(formula.n_features)]
    pools = [np.where(np.abs(pool) <= tiny, 0.0, pool) for pool in pools]  # tiny values have rows for themselves

    def usual(n: int) -> FloatArray:
        return np.column_stack([rng.choice(pool, n) for pool in pools])

    numbers = np.setdiff1d(np.arange(formula.n_features), [] if sets is None else sets[0])
    blocks = {"usual": usual(_N_USUAL_ROWS), "missing": _missing(usual, rng), "zeros": _zeros(usual, rng)}
    blocks |= {
        "tiny": _tiny(usual, rng),
        "large": _large(usual, numbers, single, rng),
        "huge": _huge(usual, formula.n_features),
    }
    if sets is not None:
        blocks["categories"] = _rows_with_values(
            usual, sets[0], [sets[1] + shift for shift in (0.0, 0.5, -0.5, 1.0, -1.0, 1e6)]
        )
    most = min(MAX_SPLIT_ROWS, _MAX_CELLS // formula.n_features)
    views = [ForestView(f.part, f.wide) for f in functions if isinstance(f.part, Forest)]
    walked = split_probe_rows(views, usual, single=single, tiny=tiny, most=most)
    X = np.concatenate([*blocks.values(), walked.X])
    kinds = np.concatenate([*(np.full(len(block), kind) for kind, block in blocks.items()), walked.kinds])
    X = np.where(np.isinf(X), np.copysign(MAX_PROBE_VALUE, X), X)
    if single:
        with np.errstate(over="ignore"):
            X = X.astype(np.float32).astype(np.float64)
    kinds = np.where(_is_tiny(X, tiny), "tiny", kinds)
    if sets is not None:
        codes = X[:, np.unique(sets[0])]
        kinds = np.where(((codes > -1.0) & (codes < 0.0)).any(axis=1), "negative", kinds)
    order = rng.permutation(len(X))
    order = order[np.argsort(kinds[order], kind="stable")]  # each ranking has rows of one kind
    return ProbeRows(np.ascontiguousarray(X[order]), kinds[order], walked.nodes, walked.sampled)


def _categories(formula: Formula) -> Cuts | None:
    """Return each (feature, category) of a split or of the data once, and category 0 of each such feature."""
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
    table = np.array(sorted(pairs)[:_MAX_CATEGORIES])
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.float64)


def _value_pool(
    functions: Sequence[Function],
    cuts: Cuts,
    sets: Cuts | None,
    feature: int,
    data_rows: FloatArray | None,
    rng: np.random.Generator,
) -> FloatArray:
    """Return typical values of a feature."""
    if data_rows is not None and len(data_rows):
        present = data_rows[:, feature][np.isfinite(data_rows[:, feature])]
        if len(present):
            return np.asarray(rng.choice(present, 256), dtype=np.float64)
    own = cuts[1][cuts[0] == feature]
    own = own[np.abs(own) < MISSING_TEST_LIMIT]
    pools = [own, own + 0.1 * np.abs(own) + 0.1, own - 0.1 * np.abs(own) - 0.1]
    if sets is not None:
        pools.append(sets[1][sets[0] == feature])
    for function in functions:
        for column in np.flatnonzero(function.features == feature).tolist():
            pools.append(_typical_values(function.part, column, rng))
    known = np.concatenate([np.asarray(pool, dtype=np.float64) for pool in pools])
    known = known[np.isfinite(known)]
    with np.errstate(over="ignore"):
        # Round to single precision, so that readers of either precision see the same value.
        return (known if len(known) else rng.normal(size=64)).astype(np.float32).astype(np.float64)


def _typical_values(part: LinearFunction | Forest | Network, column: int, rng: np.random.Generator) -> FloatArray:
    """Draw values of a column from the distribution that a part of the formula was trained on."""
    if isinstance(part, Forest):
        return np.zeros(0)
    if isinstance(part, LinearFunction):
        return np.asarray(part.center[column] + rng.normal(size=64) / part.scale[column])
    if part.transform == "quantile":
        return np.asarray(rng.choice(part.knots[:, column], 64))
    mapped = part.center[column] + part.spread[column] * rng.normal(size=64)
    return np.asarray(np.sign(mapped) * np.expm1(np.abs(mapped)) if part.transform == "log1p" else mapped)


def _rows_with_values(usual: Usual, columns: IntArray, sides: list[npt.NDArray[np.floating]]) -> FloatArray:
    """Return a typical row for each column and side, with the side's value in the column."""
    X = usual(len(columns) * len(sides))
    values = np.concatenate([np.asarray(side, dtype=np.float64) for side in sides])
    X[np.arange(len(X)), np.tile(columns, len(sides))] = values
    return X


def _missing(usual: Usual, rng: np.random.Generator) -> FloatArray:
    X = usual(_N_USUAL_ROWS)
    n, d = X.shape
    X[rng.random((n, d)) < rng.choice([0.05, 0.3, 0.8], (n, 1))] = np.nan
    X[np.arange(n), rng.integers(d, size=n)] = np.nan
    X[-1] = np.nan
    return X


def _zeros(usual: Usual, rng: np.random.Generator) -> FloatArray:
    X = usual(_N_USUAL_ROWS // 2)
    zeros = rng.random(X.shape) < 0.4
    X[zeros] = rng.choice([0.0, -0.0], zeros.sum())
    X[-1] = 0.0
    return X


def _tiny(usual: Usual, rng: np.random.Generator) -> FloatArray:
    X = usual(_N_USUAL_ROWS // 2)
    single = np.float32(1e-35)
    values = np.array(
        [single, np.nextafter(single, np.float32(0)), np.float32(1e-36), np.float32(1e-45)], dtype=np.float64
    )
    X[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = rng.choice([-1, 1], len(X)) * rng.choice(
        values, len(X)
    )
    return X


def _large(usual: Usual, numbers: IntArray, single: bool, rng: np.random.Generator) -> FloatArray:
    """Return rows with one large value, or all large, of any magnitude, half of them moderate, where curves still bend.

    Rows are never large in all features if the reader adds in single precision: large terms cancel, and only rounding
    errors remain.
    """
    columns = np.repeat(numbers[:_N_USUAL_ROWS], _ROWS_PER_FEATURE)
    X = usual(len(columns) + (0 if single else _N_USUAL_ROWS))
    alone, together = np.arange(len(columns)), np.arange(len(columns), len(X))
    powers = rng.uniform(0.0, np.where(rng.random(len(X)) < 0.5, 3.0, 30.0))
    factor = rng.choice([-1.0, 1.0], len(X)) * 10.0**powers
    sizes = np.abs(X[alone, columns])
    X[alone, columns] = factor[alone] * np.where(sizes > 0, np.minimum(sizes, 1e6), 1.0)
    X[np.ix_(together, numbers)] *= 10.0 ** rng.uniform(0.0, 3.0, (len(together), 1))
    return X


def _huge(usual: Usual, d: int) -> FloatArray:
    """Return rows with one huge value: two of them would cancel, and only rounding errors would remain."""
    values = np.array([1e30, -1e30, 3e38, -3e38])
    columns = np.arange(d)[:_N_USUAL_ROWS]
    X = usual(len(values) * len(columns))
    X[np.arange(len(X)), np.tile(columns, len(values))] = np.repeat(values, len(columns))
    return X
