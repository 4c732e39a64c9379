"""Rows that walk to every split of every tree: on its threshold and just above it, missing, in a category and outside.

The splits on the way demand something of each feature: an interval, or some of the categories. Rows take such values in
the precision of the file's reader, so that a single wrong number of an export changes a score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.encoding import codes_of
from toprank.exporters.float32 import FAR, LARGEST_SINGLE, next_single, single_below
from toprank.rankers.formula import ExpandedFeatures
from toprank.rankers.target_encoding import looked_up
from toprank.rankers.trees.forest import MISSING_ZERO, TINY, Forest, Tree

LARGEST = float(np.nextafter(np.float32(LARGEST_SINGLE), np.float32(0)))
"""Rows hold no larger number: in files, the largest of all stands for a threshold above everything."""
_ROWS_OF_A_SPLIT = 3  # on its threshold, above it, and missing; few splits get more
_LEVELS = 2000  # rows have so many of a category's levels with means at most: a split keeps a mask of all of them
_SEED = 0  # the same rows for the same model
_NONE = (1.0, 0.0)  # an interval without numbers
BoolArray = npt.NDArray[np.bool_]


class SplitCounts(NamedTuple):
    """Splits of the trees of a model.

    Attributes:
        met: How many have rows made for them.
        reachable: How many a row can come to, in the precision of the file's reader.
        unreachable: How many no row can come to, because the splits above them send every value elsewhere.
    """

    met: int
    reachable: int
    unreachable: int


class Walked(NamedTuple):
    """Rows, the kind of each, the splits that they meet, and whether probes were left out to limit the rows."""

    X: FloatArray
    kinds: npt.NDArray[np.str_]
    nodes: SplitCounts
    sampled: bool


class Grove(NamedTuple):
    """Trees, and where their columns come from: those of a table may be columns of zeros and ones."""

    forest: Forest
    wide: ExpandedFeatures | None


class _Questions(NamedTuple):
    """What the splits of a tree ask: whether x <= threshold, or with a mask, whether x is one of its values.

    Attributes:
        below: The largest number that is not above the threshold, in the precision of the file's reader.
        above: The next one.
        zero_left: Whether values that count as zero go left; None if they are compared like any other.
        by_default: Whether zeros go with the missing values.
        masks: Which of the values of the feature go left; see `_Values`.
        free: Whether it asks about two features at once: no row is made for it, and any row may come to either side.
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


# What a feature may be: from … to below zero, from … to as good as zero, from … to above zero; and missing.
_Interval = tuple[float, float, float, float, float, float, bool]
_State = _Interval | BoolArray
_Probe = tuple[str, float]
# Row, feature, value.
_Value = tuple[int, int, float]


def walks(groves: list[Grove], usual: Callable[[int], FloatArray], *, single: bool, tiny: float, most: int) -> Walked:
    """Make rows for all splits of some trees.

    Args:
        groves: the trees.
        usual: makes as many rows of usual values as it is told; rows differ from these only as far as they must.
        single: whether the file's reader holds features in single precision.
        tiny: a split that is met with a number this close to zero is met with zero or a larger number as well.
        most: the largest number of rows; if more are needed, splits are drawn at random.
    """
    rng, values = np.random.default_rng(_SEED), _values(groves, single)
    trees = [_splits(tree, grove, values, single) for grove in groves for tree in grove.forest.trees]
    total = sum(len(tree.feature) for tree in trees)
    room = max(1, most // _ROWS_OF_A_SPLIT)
    chosen = np.ones(total, dtype=bool)
    if total > room:
        chosen[rng.permutation(total)[room:]] = False
    n_levels = sum(
        len(values[feature])
        for tree in trees
        for feature, mask in zip(tree.feature, tree.masks, strict=True)
        if mask is not None
    )
    share = min(1.0, max(0.0, most - _ROWS_OF_A_SPLIT * chosen.sum()) / max(1, n_levels))
    everything = _everything(single)
    collector = _RowCollector(values, everything, tiny, share, rng)
    reachable = met = first = 0
    for tree in trees:
        for node, path in _reached(tree, values, everything):
            reachable += 1
            if chosen[first + node]:
                met += 1
                collector.stand_at(tree, node, path)
        first += len(tree.feature)
    X, kinds = collector.rows(usual, single)
    free = sum(sum(tree.free) for tree in trees)
    thinned = any(size > _LEVELS for _, wide in groves if wide for mean in wide.means for size in mean.sizes)
    sampled = met < reachable or (share < 1.0 and n_levels > 0) or free > 0 or thinned
    return Walked(X, kinds, SplitCounts(met, reachable + free, total - reachable - free), sampled)


def _everything(single: bool) -> _Interval:
    above = float(np.nextafter(np.float32(TINY), np.float32(1))) if single else float(np.nextafter(TINY, 1.0))
    return (-LARGEST, -above, -TINY, TINY, above, LARGEST, True)


# ---- the values of categories ----


def _values(groves: list[Grove], single: bool) -> dict[int, FloatArray]:
    """Return, for each feature with a split by category, values that tell all its splits apart; the last is NaN."""
    values: dict[int, set[float]] = {}
    for forest, wide in groves:
        for feature, where in () if wide is None else wide.categories:
            values.setdefault(feature, set()).update(range(len(where) + 1))
        for mean in () if wide is None else wide.means:
            for feature, size in zip(mean.places, mean.sizes, strict=True):
                values.setdefault(feature, set()).update(range(0, size + 1, 1 + size // _LEVELS))
        for column, categories in forest.features_and_sets():
            if categories is not None:
                values.setdefault(_behind(wide, column), set()).update(map(float, categories.tolist()))
    for known in values.values():
        known |= {0.0, max(known) + 1.0, -1.0}
    for forest, wide in groves:
        for tree in forest.trees:
            for column, t, categories in zip(tree.feature.tolist(), tree.threshold, tree.categories, strict=True):
                if categories is None and not _is_level(wide, column) and (feature := _behind(wide, column)) in values:
                    values[feature] |= {b for b in _around(float(t), single) if abs(b) <= LARGEST}
    return {feature: np.array([*sorted(known), np.nan]) for feature, known in values.items()}


def _behind(wide: ExpandedFeatures | None, column: int) -> int:
    """Return the feature behind a column."""
    if wide is None:
        return column
    if not _is_level(wide, column):
        return int(wide.numbers[column])
    if column >= wide.first_mean:
        return wide.means[column - wide.first_mean].places[0]
    return next(feature for feature, where in wide.categories if column in where)


def _is_pair(wide: ExpandedFeatures | None, column: int) -> bool:
    """Whether a column depends on two features, so that no interval or set of one tells the side of a row."""
    return wide is not None and column >= wide.first_mean and len(wide.means[column - wide.first_mean].places) > 1


def _is_level(wide: ExpandedFeatures | None, column: int) -> bool:
    return wide is not None and column >= len(wide.numbers)


def _around(threshold: float, single: bool) -> tuple[float, float]:
    """Return the last number up to a threshold and the first one above it, in the precision of the file's reader."""
    if single:
        return float(single_below(threshold)), float(next_single(threshold))
    return threshold, float(np.nextafter(threshold, np.inf))


# ---- splits ----


def _splits(tree: Tree, grove: Grove, values: dict[int, FloatArray], single: bool) -> _Questions:
    forest, wide = grove
    threshold, nan_left, kind = tree.threshold, tree.nan_left.copy(), tree.missing
    if wide is not None and wide.center is not None:
        threshold, nan_left = _uncentered(tree, wide.center)
    feature = [_behind(wide, column) for column in tree.feature.tolist()]
    edges = [_around(float(t), single) for t in threshold]
    by_default = (kind == MISSING_ZERO).tolist()
    zero_left = [
        bool(tree.default_left[node]) if by_default[node] else bool(threshold[node] >= 0.0) if forest.flushes else None
        for node in range(len(feature))
    ]
    questions = _Questions(
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
        if feature[node] in values and not questions.free[node]:
            questions.masks[node] = _mask(questions, node, values[feature[node]], tree, wide, column)
    return questions


def _uncentered(tree: Tree, center: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return thresholds of raw features for a model that compares x − c and takes a missing value for c."""
    threshold, inside = tree.threshold.copy(), tree.feature < len(center)
    c, t = center[tree.feature[inside]], tree.threshold[inside]
    raw = t + c
    # Search the largest x with x − c <= t, rounded as `predict` rounds it. Each of the two roundings is at most half a
    # unit in the last place, so a few steps do. If x is far smaller than c they may not: the row then stands beside the
    # edge, which is harmless, since `predict` scores it there.
    for _ in range(64):
        raw = np.where(raw - c > t, np.nextafter(raw, -np.inf), raw)
        above = np.nextafter(raw, np.inf)
        raw = np.where(above - c <= t, above, raw)
    threshold[inside] = raw
    return threshold, np.where(inside, tree.threshold >= 0.0, tree.nan_left)


def _mask(
    splits: _Questions, node: int, values: FloatArray, tree: Tree, wide: ExpandedFeatures | None, column: int
) -> BoolArray:
    """Return which of the values of a feature go left at a split."""
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


def _reached(
    tree: _Questions, values: dict[int, FloatArray], everything: _Interval
) -> Iterator[tuple[int, dict[int, _State]]]:
    """Yield every split that a row can come to, with what the features on the way there may be."""
    path: dict[int, _State] = {}
    ahead: list[tuple[int, int, _State | None]] = [(0, -1, None)] if tree.feature else []
    while ahead:
        node, feature, state = ahead.pop()
        if node < 0:  # back from below a split: restore what its feature might be before
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
    tree: _Questions, node: int, path: dict[int, _State], values: dict[int, FloatArray], everything: _Interval
) -> tuple[_State, _State]:
    """Return what the feature of a split may be if a row goes left, and if it goes right."""
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
        zeros = ((z0, z1), _NONE) if zero_left else (_NONE, (z0, z1))
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
    """Collects rows: for each split a row of usual values, in several variants."""

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
        self._at: list[tuple[int, int]] = []  # split and feature of each of these states
        self._drawn_at: list[_Value] = []  # by split
        self._fixed: list[_Value] = []  # by row

    def stand_at(self, tree: _Questions, node: int, path: dict[int, _State]) -> None:
        """Add the rows of a split: they differ only in the feature that it asks for."""
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
        """Draw one of the values that a category may have; missing if there is no other."""
        places = np.flatnonzero(state[:-1])
        return float(self._values[feature][places[self._rng.integers(len(places))]]) if len(places) else float("nan")

    def _probes(self, tree: _Questions, node: int, own: _State | None) -> list[_Probe]:
        if tree.masks[node] is not None:
            return self._of_categories(tree, node, own)
        assert not isinstance(own, np.ndarray)
        allowed = self._everything if own is None else own
        left, right = _sides(tree, node, {tree.feature[node]: allowed}, {}, allowed)
        probes: list[_Probe] = []
        for side, edge, sign in ((left, tree.below[node], 1.0), (right, tree.above[node], -1.0)):
            assert not isinstance(side, np.ndarray)
            probes += [("thresholds", value) for value in self._next_to(edge, side, sign, tree.zero_left[node])]
        if (tree.by_default[node] or not probes) and allowed[2] <= allowed[3]:
            probes.append(("zeros", min(max(0.0, allowed[2]), allowed[3])))
        return [*probes, ("missing", float("nan"))] if allowed[6] else probes

    def _next_to(self, edge: float, side: _Interval, sign: float, zero_left: bool | None) -> list[float]:
        """Return the number nearest to a threshold on one side (`sign` 1: below it); if tiny, also one that is not."""
        pieces = [list(piece) for piece in ((side[0], side[1]), (side[2], side[3]), (side[4], side[5]))]
        if zero_left is not None and pieces[1][0] <= pieces[1][1]:  # all alike
            pieces[1] = [min(max(0.0, pieces[1][0]), pieces[1][1])] * 2
        ends = [hi if sign > 0 else lo for lo, hi in pieces if lo <= hi]
        near = [end for end in ends if sign * end <= sign * edge]
        if not near:
            return []
        nearest = sign * max(sign * end for end in near)
        if abs(nearest) > FAR:
            return [_inside(piece) for piece in pieces if piece[0] <= piece[1]][-1:]
        if not 0.0 < abs(nearest) <= self._tiny:
            return [nearest]
        wider = [sign * min(0.0, sign * nearest), -sign * 1.01 * self._tiny]
        return [nearest, *[v for v in wider if v != nearest and any(lo <= v <= hi for lo, hi in pieces)][:1]]

    def _of_categories(self, tree: _Questions, node: int, own: _State | None) -> list[_Probe]:
        feature, mask = tree.feature[node], tree.masks[node]
        values = self._values[feature]
        allowed = np.ones(len(values), dtype=bool) if own is None else own
        assert isinstance(allowed, np.ndarray)
        assert mask is not None
        chosen = self._rng.random(len(values)) < self._share
        for side in (allowed & mask, allowed & ~mask):
            places = np.flatnonzero(side[:-1])
            chosen[places[self._rng.integers(len(places))] if len(places) else -1] = True
        chosen[-1] = True  # the missing value, if it may come here
        return [("missing" if np.isnan(value) else "categories", float(value)) for value in values[chosen & allowed]]

    def rows(self, usual: Callable[[int], FloatArray], single: bool) -> tuple[FloatArray, npt.NDArray[np.str_]]:
        """Return all rows, and the kind of each."""
        base = usual(self._splits)
        if self._at:
            split, feature = np.array(self._at).T
            base[split, feature] = _within(base[split, feature], np.array(self._states, dtype=np.float64), single)
        X = _with(base, self._drawn_at)[np.array(self._base, dtype=np.int64)]
        return _with(X, self._fixed), np.array(self._kinds, dtype="<U10")


def _with(X: FloatArray, values: list[_Value]) -> FloatArray:
    """Put values into the array, and return it."""
    if values:
        row, feature, value = (np.array(column) for column in zip(*values, strict=True))
        X[row, feature] = value
    return X


def _inside(piece: list[float]) -> float:
    """Return a number of usual size in an interval."""
    lo, hi = piece
    return min(max(0.0, lo + 0.1 * abs(lo) + 0.1 if lo > -FAR else lo), hi)


def _within(wished: FloatArray, states: FloatArray, single: bool) -> FloatArray:
    """Return the wished value if the state allows it, else a value inside the nearest part that it allows."""
    best, distance = np.full(len(wished), np.nan), np.full(len(wished), np.inf)
    for column, is_zero in ((0, False), (2, True), (4, False)):
        lo, hi = np.clip(states[:, column : column + 2], -LARGEST, LARGEST).T
        low_open, high_open = lo <= -LARGEST, hi >= LARGEST
        beyond = hi - np.minimum(0.1 * np.abs(hi) + 0.1, FAR), lo + np.minimum(0.1 * np.abs(lo) + 0.1, FAR)
        inner = np.select([low_open & high_open, low_open, high_open], [wished, *beyond], lo / 2 + hi / 2)
        if is_zero:
            inner = np.zeros(len(wished))
        if single:
            inner = np.clip(inner, -LARGEST, LARGEST).astype(np.float32).astype(np.float64)
        nearest = np.where((lo <= wished) & (wished <= hi), wished, np.clip(inner, lo, hi))
        away = np.where(lo <= hi, np.abs(nearest - wished), np.inf)
        best, distance = np.where(away < distance, nearest, best), np.minimum(away, distance)
    return best
