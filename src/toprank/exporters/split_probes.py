"""Rows that reach every split of every tree: at and just above its threshold, missing, inside and outside a category
set.

The splits on the path constrain each feature to an interval or to some of the categories. Rows take such values in the
precision of the file's reader, so that a single wrong number of an export changes a score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.encoding import codes_of
from toprank.exporters.float32 import LARGEST_SINGLE, MISSING_TEST_LIMIT, next_single, single_below
from toprank.rankers.formula import ExpandedFeatures
from toprank.rankers.target_encoding import looked_up
from toprank.rankers.trees.forest import MISSING_ZERO, TINY, Forest, Tree

MAX_PROBE_VALUE = float(np.nextafter(np.float32(LARGEST_SINGLE), np.float32(0)))
"""Largest value in generated rows: in files, the largest float stands for a threshold above everything."""
_ROWS_PER_SPLIT = 3  # at its threshold, above it, and missing; few splits get more
_MAX_MEAN_LEVELS = (
    2000  # Maximum number of levels tested per category with target encoding: a split keeps a mask of all of them.
)
_SEED = 0  # for reproducible rows
_EMPTY_INTERVAL = (1.0, 0.0)  # an empty interval
BoolArray = npt.NDArray[np.bool_]


class SplitCounts(NamedTuple):
    """Number of splits in the trees of a model.

    Attributes:
        covered: Number of splits that generated rows test.
        reachable: Number of splits that some row reaches, in the precision of the file's reader.
        unreachable: Number of splits that no row reaches, because the splits above send every value elsewhere.
    """

    covered: int
    reachable: int
    unreachable: int


class SplitProbeRows(NamedTuple):
    """Generated rows, their kinds, the coverage of splits, and whether rows were left out to limit their number."""

    X: FloatArray
    kinds: npt.NDArray[np.str_]
    nodes: SplitCounts
    sampled: bool


class ForestView(NamedTuple):
    """A forest, and the expansion of a table into its columns, if any."""

    forest: Forest
    wide: ExpandedFeatures | None


class _SplitConditions(NamedTuple):
    """Conditions of the splits of a tree: x <= threshold or, with a mask, membership in a set of values.

    Attributes:
        below: Largest number that is not above the threshold, in the precision of the file's reader.
        above: The next number.
        zero_left: True if values that count as zero go left; None if they are compared like any other.
        by_default: True if zeros go in the direction of missing values.
        masks: Masks of the feature's values that go left; see `_values`.
        free: True if the split tests two features at once: no row is generated for it, and any row may go to either
            side.
    """

    feature: list[int]
    below: list[float]
    above: list[float]
    nan_left: list[bool]
    zero_left: list[bool | None]
    by_default: list[bool]
    masks: list[BoolArray | None]
    left: list[int]
    right: list[int]
    free: list[bool]


# Allowed values of a feature: intervals below zero, around zero and above zero, and whether it may be missing.
_Interval = tuple[float, float, float, float, float, float, bool]
_State = _Interval | BoolArray
_Probe = tuple[str, float]
# Row, feature, value.
_Value = tuple[int, int, float]


def split_probe_rows(
    views: list[ForestView], usual: Callable[[int], FloatArray], *, single: bool, tiny: float, most: int
) -> SplitProbeRows:
    """Generate rows for all splits of some forests.

    Args:
        views: the forests.
        usual: function that generates n rows of typical values; the result differs from these only as required.
        single: whether the file's reader holds features in single precision.
        tiny: a split tested with a number this close to zero is also tested with zero or a larger number.
        most: maximum number of rows; if more are needed, splits are sampled.
    """
    rng, values = np.random.default_rng(_SEED), _values(views, single)
    trees = [_splits(tree, view, values, single) for view in views for tree in view.forest.trees]
    total = sum(len(tree.feature) for tree in trees)
    room = max(1, most // _ROWS_PER_SPLIT)
    chosen = np.ones(total, dtype=bool)
    if total > room:
        chosen[rng.permutation(total)[room:]] = False
    n_levels = sum(
        len(values[feature])
        for tree in trees
        for feature, mask in zip(tree.feature, tree.masks, strict=True)
        if mask is not None
    )
    share = min(1.0, max(0.0, most - _ROWS_PER_SPLIT * chosen.sum()) / max(1, n_levels))
    everything = _full_interval(single)
    collector = _RowCollector(values, everything, tiny, share, rng)
    reachable = covered = first = 0
    for tree in trees:
        for node, path in _reachable_splits(tree, values, everything):
            reachable += 1
            if chosen[first + node]:
                covered += 1
                collector.add_split(tree, node, path)
        first += len(tree.feature)
    X, kinds = collector.rows(usual, single)
    free = sum(sum(tree.free) for tree in trees)
    thinned = any(size > _MAX_MEAN_LEVELS for _, wide in views if wide for mean in wide.means for size in mean.sizes)
    sampled = covered < reachable or (share < 1.0 and n_levels > 0) or free > 0 or thinned
    return SplitProbeRows(X, kinds, SplitCounts(covered, reachable + free, total - reachable - free), sampled)


def _full_interval(single: bool) -> _Interval:
    above = float(np.nextafter(np.float32(TINY), np.float32(1))) if single else float(np.nextafter(TINY, 1.0))
    return (-MAX_PROBE_VALUE, -above, -TINY, TINY, above, MAX_PROBE_VALUE, True)


# ---- the values of categories ----


def _values(views: list[ForestView], single: bool) -> dict[int, FloatArray]:
    """Return, for each feature with a split by category, values that distinguish all of its splits; the last is NaN."""
    values: dict[int, set[float]] = {}
    for forest, wide in views:
        for feature, where in () if wide is None else wide.categories:
            values.setdefault(feature, set()).update(range(len(where) + 1))
        for mean in () if wide is None else wide.means:
            for feature, size in zip(mean.places, mean.sizes, strict=True):
                values.setdefault(feature, set()).update(range(0, size + 1, 1 + size // _MAX_MEAN_LEVELS))
        for column, categories in forest.features_and_sets():
            if categories is not None:
                values.setdefault(_source_feature(wide, column), set()).update(map(float, categories.tolist()))
    for known in values.values():
        known |= {0.0, max(known) + 1.0, -1.0}
    for forest, wide in views:
        for tree in forest.trees:
            for column, t, categories in zip(tree.feature.tolist(), tree.threshold, tree.categories, strict=True):
                if (
                    categories is None
                    and not _is_level(wide, column)
                    and (feature := _source_feature(wide, column)) in values
                ):
                    values[feature] |= {b for b in _adjacent_values(float(t), single) if abs(b) <= MAX_PROBE_VALUE}
    return {feature: np.array([*sorted(known), np.nan]) for feature, known in values.items()}


def _source_feature(wide: ExpandedFeatures | None, column: int) -> int:
    """Return the feature that a column is computed from."""
    if wide is None:
        return column
    if not _is_level(wide, column):
        return int(wide.numbers[column])
    if column >= wide.first_mean:
        return wide.means[column - wide.first_mean].places[0]
    return next(feature for feature, where in wide.categories if column in where)


def _is_pair(wide: ExpandedFeatures | None, column: int) -> bool:
    """Return whether a column depends on two features, so that neither of them determines the side of a row."""
    return wide is not None and column >= wide.first_mean and len(wide.means[column - wide.first_mean].places) > 1


def _is_level(wide: ExpandedFeatures | None, column: int) -> bool:
    return wide is not None and column >= len(wide.numbers)


def _adjacent_values(threshold: float, single: bool) -> tuple[float, float]:
    """Return the largest number up to a threshold and the next one, in the precision of the file's reader."""
    if single:
        return float(single_below(threshold)), float(next_single(threshold))
    return threshold, float(np.nextafter(threshold, np.inf))


# ---- splits ----


def _splits(tree: Tree, view: ForestView, values: dict[int, FloatArray], single: bool) -> _SplitConditions:
    forest, wide = view
    threshold, nan_left, kind = tree.threshold, tree.nan_left.copy(), tree.missing
    if wide is not None and wide.center is not None:
        threshold, nan_left = _uncentered(tree, wide.center)
    feature = [_source_feature(wide, column) for column in tree.feature.tolist()]
    edges = [_adjacent_values(float(t), single) for t in threshold]
    by_default = (kind == MISSING_ZERO).tolist()
    zero_left = [
        bool(tree.default_left[node]) if by_default[node] else bool(threshold[node] >= 0.0) if forest.flushes else None
        for node in range(len(feature))
    ]
    conditions = _SplitConditions(
        feature=feature,
        below=[b for b, _ in edges],
        above=[a for _, a in edges],
        nan_left=nan_left.tolist(),
        zero_left=zero_left,
        by_default=by_default,
        masks=[None] * len(feature),
        left=tree.left.tolist(),
        right=tree.right.tolist(),
        free=[_is_pair(wide, column) for column in tree.feature.tolist()],
    )
    for node, column in enumerate(tree.feature.tolist()):
        if feature[node] in values and not conditions.free[node]:
            conditions.masks[node] = _mask(conditions, node, values[feature[node]], tree, wide, column)
    return conditions


def _uncentered(tree: Tree, center: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return thresholds of raw features for a model that compares x − c and replaces missing values by c."""
    threshold, inside = tree.threshold.copy(), tree.feature < len(center)
    c, t = center[tree.feature[inside]], tree.threshold[inside]
    raw = t + c
    # Search the largest x with x − c <= t, rounded as `predict` rounds it. Each of the two roundings is at most half a
    # unit in the last place, so a few steps suffice. If x is far smaller than c they may not: the row then misses the
    # edge, which is harmless, since `predict` scores it there.
    for _ in range(64):
        raw = np.where(raw - c > t, np.nextafter(raw, -np.inf), raw)
        above = np.nextafter(raw, np.inf)
        raw = np.where(above - c <= t, above, raw)
    threshold[inside] = raw
    return threshold, np.where(inside, tree.threshold >= 0.0, tree.nan_left)


def _mask(
    splits: _SplitConditions, node: int, values: FloatArray, tree: Tree, wide: ExpandedFeatures | None, column: int
) -> BoolArray:
    """Return which values of a feature go left at a split."""
    missing = np.isnan(values)
    categories = tree.categories[node]
    if categories is not None:
        return np.isin(np.trunc(values), categories)
    if wide is not None and _is_level(wide, column):
        if column >= wide.first_mean:
            mean = wide.means[column - wide.first_mean]
            return np.asarray(looked_up(mean.table, codes_of(values, mean.sizes[0])) <= tree.threshold[node])
        where = next(where for _, where in wide.categories if column in where)
        code = np.where(missing | (values < 0) | (values >= len(where)), -1, values).astype(np.int64)
        is_level = (code >= 0) & (values == code) & (where[code] == column)
        return np.asarray(is_level <= tree.threshold[node])
    left = values <= splits.below[node]
    if (zero_left := splits.zero_left[node]) is not None:
        left[np.abs(values) <= TINY] = zero_left
    left[missing] = splits.nan_left[node]
    return np.asarray(left)


# ---- the way to a split ----


def _reachable_splits(
    tree: _SplitConditions, values: dict[int, FloatArray], everything: _Interval
) -> Iterator[tuple[int, dict[int, _State]]]:
    """Yield every split that a row can reach, with the constraints that its path puts on the features."""
    path: dict[int, _State] = {}
    ahead: list[tuple[int, int, _State | None]] = [(0, -1, None)] if tree.feature else []
    while ahead:
        node, feature, state = ahead.pop()
        if node < 0:  # back from the subtree of a split: restore the previous constraint on its feature
            if state is None:
                del path[feature]
            else:
                path[feature] = state
            continue
        if state is not None:
            ahead.append((-1, feature, path.get(feature)))
            path[feature] = state
        if tree.free[node]:
            ahead += [(child, -1, None) for child in (tree.left[node], tree.right[node]) if child >= 0]
            continue
        yield node, path
        sides = _sides(tree, node, path, values, everything)
        for child, side in zip((tree.left[node], tree.right[node]), sides, strict=True):
            if child >= 0 and not _is_empty(side):
                ahead.append((child, tree.feature[node], side))


def _sides(
    tree: _SplitConditions, node: int, path: dict[int, _State], values: dict[int, FloatArray], everything: _Interval
) -> tuple[_State, _State]:
    """Return the constraints on the feature of a split for rows that go left, and for rows that go right."""
    feature, mask = tree.feature[node], tree.masks[node]
    if mask is not None:
        state = path.get(feature)
        allowed = state if isinstance(state, np.ndarray) else np.ones(len(values[feature]), dtype=bool)
        return allowed & mask, allowed & ~mask
    interval = path.get(feature, everything)
    assert not isinstance(interval, np.ndarray)
    n0, n1, z0, z1, p0, p1, missing = interval
    b, a, zero_left = tree.below[node], tree.above[node], tree.zero_left[node]
    if zero_left is None:
        zeros = (z0, min(z1, b)), (max(z0, a), z1)
    else:
        zeros = ((z0, z1), _EMPTY_INTERVAL) if zero_left else (_EMPTY_INTERVAL, (z0, z1))
    nan_left = tree.nan_left[node]
    return (
        (n0, min(n1, b), *zeros[0], p0, min(p1, b), missing and nan_left),
        (max(n0, a), n1, *zeros[1], max(p0, a), p1, missing and not nan_left),
    )


def _is_empty(state: _State) -> bool:
    if isinstance(state, np.ndarray):
        return not state.any()
    return state[0] > state[1] and state[2] > state[3] and state[4] > state[5] and not state[6]


# ---- rows ----


class _RowCollector:
    """Collects rows: for each split a typical row, in several variants."""

    def __init__(
        self,
        values: dict[int, FloatArray],
        everything: _Interval,
        tiny: float,
        share: float,
        rng: np.random.Generator,
    ) -> None:
        self._values, self._everything, self._tiny, self._share, self._rng = values, everything, tiny, share, rng
        self._splits = 0
        self._kinds: list[str] = []
        self._base: list[int] = []
        self._states: list[_Interval] = []
        self._at: list[tuple[int, int]] = []  # split and feature for each of these states
        self._drawn_at: list[_Value] = []  # by split
        self._fixed: list[_Value] = []  # by row

    def add_split(self, tree: _SplitConditions, node: int, path: dict[int, _State]) -> None:
        """Add the rows of a split; they differ only in the feature that it tests."""
        feature = tree.feature[node]
        for other, state in path.items():
            if other == feature:
                continue
            if isinstance(state, np.ndarray):
                self._drawn_at.append((self._splits, other, self._drawn(other, state)))
            else:
                self._at.append((self._splits, other))
                self._states.append(state)
        for kind, value in self._probes(tree, node, path.get(feature)):
            self._fixed.append((len(self._kinds), feature, value))
            self._kinds.append(kind)
            self._base.append(self._splits)
        self._splits += 1

    def _drawn(self, feature: int, state: BoolArray) -> float:
        """Draw one of the allowed values of a category; return NaN if only a missing value is allowed."""
        places = np.flatnonzero(state[:-1])
        return float(self._values[feature][places[self._rng.integers(len(places))]]) if len(places) else float("nan")

    def _probes(self, tree: _SplitConditions, node: int, own: _State | None) -> list[_Probe]:
        if tree.masks[node] is not None:
            return self._category_probes(tree, node, own)
        assert not isinstance(own, np.ndarray)
        allowed = self._everything if own is None else own
        left, right = _sides(tree, node, {tree.feature[node]: allowed}, {}, allowed)
        probes: list[_Probe] = []
        for side, edge, sign in ((left, tree.below[node], 1.0), (right, tree.above[node], -1.0)):
            assert not isinstance(side, np.ndarray)
            probes += [("thresholds", value) for value in self._boundary_values(edge, side, sign, tree.zero_left[node])]
        if (tree.by_default[node] or not probes) and allowed[2] <= allowed[3]:
            probes.append(("zeros", min(max(0.0, allowed[2]), allowed[3])))
        return [*probes, ("missing", float("nan"))] if allowed[6] else probes

    def _boundary_values(self, edge: float, side: _Interval, sign: float, zero_left: bool | None) -> list[float]:
        """Return the value nearest to a threshold on one side (`sign` 1: below it), and a larger one if it is tiny."""
        pieces = [list(piece) for piece in ((side[0], side[1]), (side[2], side[3]), (side[4], side[5]))]
        if zero_left is not None and pieces[1][0] <= pieces[1][1]:  # all of them are equal to the model
            pieces[1] = [min(max(0.0, pieces[1][0]), pieces[1][1])] * 2
        ends = [hi if sign > 0 else lo for lo, hi in pieces if lo <= hi]
        near = [end for end in ends if sign * end <= sign * edge]
        if not near:
            return []
        nearest = sign * max(sign * end for end in near)
        if abs(nearest) > MISSING_TEST_LIMIT:
            return [_inside(piece) for piece in pieces if piece[0] <= piece[1]][-1:]
        if not 0.0 < abs(nearest) <= self._tiny:
            return [nearest]
        wider = [sign * min(0.0, sign * nearest), -sign * 1.01 * self._tiny]
        return [nearest, *[v for v in wider if v != nearest and any(lo <= v <= hi for lo, hi in pieces)][:1]]

    def _category_probes(self, tree: _SplitConditions, node: int, own: _State | None) -> list[_Probe]:
        feature, mask = tree.feature[node], tree.masks[node]
        values = self._values[feature]
        allowed = np.ones(len(values), dtype=bool) if own is None else own
        assert isinstance(allowed, np.ndarray)
        assert mask is not None
        chosen = self._rng.random(len(values)) < self._share
        for side in (allowed & mask, allowed & ~mask):
            places = np.flatnonzero(side[:-1])
            chosen[places[self._rng.integers(len(places))] if len(places) else -1] = True
        chosen[-1] = True  # the missing value, if it may reach this split
        return [("missing" if np.isnan(value) else "categories", float(value)) for value in values[chosen & allowed]]

    def rows(self, usual: Callable[[int], FloatArray], single: bool) -> tuple[FloatArray, npt.NDArray[np.str_]]:
        """Return all rows and their kinds."""
        base = usual(self._splits)
        if self._at:
            split, feature = np.array(self._at).T
            base[split, feature] = _clipped(base[split, feature], np.array(self._states, dtype=np.float64), single)
        X = _assigned(base, self._drawn_at)[np.array(self._base, dtype=np.int64)]
        return _assigned(X, self._fixed), np.array(self._kinds, dtype="<U10")


def _assigned(X: FloatArray, values: list[_Value]) -> FloatArray:
    """Assign values to cells of the array, and return it."""
    if values:
        row, feature, value = (np.array(column) for column in zip(*values, strict=True))
        X[row, feature] = value
    return X


def _inside(piece: list[float]) -> float:
    """Return a number of typical size in an interval."""
    lo, hi = piece
    return min(max(0.0, lo + 0.1 * abs(lo) + 0.1 if lo > -MISSING_TEST_LIMIT else lo), hi)


def _clipped(wished: FloatArray, states: FloatArray, single: bool) -> FloatArray:
    """Return the desired value if the state allows it, else a value inside the nearest allowed interval."""
    best, distance = np.full(len(wished), np.nan), np.full(len(wished), np.inf)
    for column, is_zero in ((0, False), (2, True), (4, False)):
        lo, hi = np.clip(states[:, column : column + 2], -MAX_PROBE_VALUE, MAX_PROBE_VALUE).T
        low_open, high_open = lo <= -MAX_PROBE_VALUE, hi >= MAX_PROBE_VALUE
        beyond = (
            hi - np.minimum(0.1 * np.abs(hi) + 0.1, MISSING_TEST_LIMIT),
            lo + np.minimum(0.1 * np.abs(lo) + 0.1, MISSING_TEST_LIMIT),
        )
        inner = np.select([low_open & high_open, low_open, high_open], [wished, *beyond], lo / 2 + hi / 2)
        if is_zero:
            inner = np.zeros(len(wished))
        if single:
            inner = np.clip(inner, -MAX_PROBE_VALUE, MAX_PROBE_VALUE).astype(np.float32).astype(np.float64)
        nearest = np.where((lo <= wished) & (wished <= hi), wished, np.clip(inner, lo, hi))
        away = np.where(lo <= hi, np.abs(nearest - wished), np.inf)
        best, distance = np.where(away < distance, nearest, best), np.minimum(away, distance)
    return best
