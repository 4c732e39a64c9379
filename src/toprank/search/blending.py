"""The default reranking model: a weighted blend of untrained orders, a linear ranker and small trees.

With a few dozen judged queries, trained rankers can be worse than BM25 or LSA alone. Untrained orders are therefore
members of the blend. Both trained members get equal weights, unless other weights are better out of fold by more than
one standard error; so if training hurts, the blend falls back on untrained orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import comb
from typing import Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.data.division import CrossFit, Division, cross_fit
from toprank.data.folds import part_numbers
from toprank.errors import DataError
from toprank.evaluation.scores import BoundMetric
from toprank.model_selection.result import SelectionResult
from toprank.model_selection.search import collect_warnings
from toprank.model_selection.weights import best_weights, simplex
from toprank.rankers.blend import BlendRanker, score_spread
from toprank.systems import get

BLEND = "blend"
_LINEAR, _TREES = "RankNet-linear", "YetiRank"
# Collections usually have at most a few hundred judged queries, too few for trees with more leaves.
_PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)
_ROUNDS, _LEAVES = (10, 25, 50, 100, 200), 7
_N_FOLDS = 5
_MIN_QUERIES = 60  # queries to choose the weights on; more cost time and hardly change the weights
_MAX_COMBINATIONS, _MAX_STEPS = 60, 10  # limits of the weight grid: combinations, steps per weight
_SE_RULE = 1.0


class _Member(NamedTuple):
    name: str
    unseen: FloatArray
    """Out-of-fold scores of the held-out queries."""
    options: dict[str, float]
    ranker: Any = None
    """Ranker fitted on all queries; None if the member is a feature."""
    column: int = -1


class _HeldOutQueries(NamedTuple):
    """Held-out queries for choosing the weights: each is scored out of fold by every member.

    Attributes:
        data: candidates of all queries.
        division: the division into folds.
        rows: rows of the documents of held-out queries.
        judge: metric of the held-out queries, in data order.
    """

    data: RankingData
    division: Division
    rows: IntArray
    judge: BoundMetric

    @classmethod
    def divide(cls, data: RankingData, metric: str, seed: int) -> _HeldOutQueries:
        """Divide the queries into five folds and hold out as many folds as needed for `_MIN_QUERIES`."""
        k = min(_N_FOLDS, data.n_queries)
        n_rounds = max(-(-_MIN_QUERIES * k // data.n_queries), 1)
        rounds = Division.folds(part_numbers(data, [1 / k] * k, seed=seed)).rounds
        rounds = tuple(round for round in rounds if _has_different_grades(data.select(round.train), metric))[:n_rounds]
        if not rounds:
            raise DataError(
                "Too few queries have candidates with different grades for cross-validation. Judge more queries."
            )
        judged = np.any([round.held_out for round in rounds], axis=0)
        rows = np.flatnonzero(data.queries.broadcast(judged))
        return cls(data, Division(rounds), rows, BoundMetric(data.select(judged), metric, threads=1))

    def member(self, name: str, options: Sequence[dict[str, float]], fit: Any, predict: Any, final: Any) -> _Member:
        """Return a trained member with the best of several options.

        `predict` returns one column of scores per option; `final` fits on all queries.
        """
        found: CrossFit[Any] = cross_fit(self.data, self.division, fit, predict)
        table = found.out_of_fold(self.data)[self.rows]
        best = best_weights(np.array([self.values(column) for column in table.T]))
        return _Member(name, table[:, best], options[best], final(**options[best]))

    @property
    def sign(self) -> float:
        """1 if higher values of the metric are better, else −1."""
        return 1.0 if self.judge.higher_is_better else -1.0

    def values(self, scores: FloatArray) -> FloatArray:
        """Return the metric of each query, negated if lower is better; undefined values count 0."""
        return self.sign * np.nan_to_num(self.judge.per_query(np.ascontiguousarray(scores)))


def _has_different_grades(data: RankingData, metric: str) -> bool:
    best, worst = BoundMetric(data, metric, threads=1).extremes()
    return not np.array_equal(best, worst, equal_nan=True)


def fit_blend(
    data: RankingData,
    metric: str,
    orders: Sequence[str],
    seed: int,
    threads: int | None,
    se_rule: float = _SE_RULE,
) -> SelectionResult:
    """Return the blend of all members, fitted on all queries, with weights chosen on held-out queries.

    Args:
        data: candidates with labels.
        metric: metric to choose hyperparameters and weights by.
        orders: features that rank candidates without training.
        seed: random seed of the folds and of the trees.
        threads: number of threads.
        se_rule: number of standard errors by which weights must beat equal weights of the trained members.
    """
    held_out = _HeldOutQueries.divide(data, metric, seed)
    with collect_warnings():  # warnings of a badly trained member are irrelevant: it gets no weight
        linear = _linear(held_out, threads)
        every = [*_features(held_out, orders), linear, _trees(held_out, seed, threads)]
    spreads = {member.name: score_spread(member.unseen, held_out.judge.data.queries) for member in every}
    members = [member for member in every if spreads[member.name] > 0]
    if not members:
        raise DataError("All candidates of each query have identical features, so they cannot be ranked.")
    factors = np.array([1 / spreads[member.name] for member in members])
    scores = [factor * member.unseen for member, factor in zip(members, factors, strict=True)]
    weights, value = _weights(held_out, members, scores, se_rule)
    names = [member.name for member in members]
    shares = dict(zip(names, np.round(weights, 3).tolist(), strict=True))
    options = shares | {f"{member.name} {name}": at for member in members for name, at in member.options.items()}
    trials = [_trial_row(number, member, held_out, shares[member.name]) for number, member in enumerate(members)]
    ranker = _merge_members(data, linear, members, dict(zip(names, (weights * factors).tolist(), strict=True)))
    evaluated_on = f"{held_out.judge.data.n_queries:,} queries, out of fold"
    return SelectionResult(
        ranker=ranker,
        name=BLEND,
        options=options,
        metric=held_out.judge.name,
        convention="standard",
        value=value,
        evaluated_on=evaluated_on,
        trials=trials,
        refitted=True,
    )


def _features(held_out: _HeldOutQueries, orders: Sequence[str]) -> list[_Member]:
    """Return the untrained members; missing values count as average (z-score 0)."""
    names, data = list(held_out.data.feature_names or ()), held_out.data
    columns = {name.removesuffix(" zscore in pool"): names.index(name) for name in orders}
    return [
        _Member(name, np.nan_to_num(np.asarray(data.X[held_out.rows, column], dtype=np.float64)), {}, None, column)
        for name, column in columns.items()
    ]


def _linear(held_out: _HeldOutQueries, threads: int | None) -> _Member:
    def fit(train: RankingData, l2: float, init: FloatArray | None = None) -> Any:
        made = get(_LINEAR).make(l2=l2, init=init, metric=held_out.judge.name, threads=threads)
        return _check_uninterrupted(made.fit(train))

    def fit_path(train: RankingData, _: None) -> list[Any]:
        path: list[Any] = []
        for l2 in _PENALTIES:
            path.append(fit(train, l2, path[-1].solution_.weights if path else None))
        return path

    def predict(path: list[Any], part: RankingData) -> FloatArray:
        return np.column_stack([ranker.predict(part) for ranker in path])

    options = [{"l2": l2} for l2 in _PENALTIES]
    return held_out.member(_LINEAR, options, fit_path, predict, lambda l2: fit(held_out.data, l2))


def _trees(held_out: _HeldOutQueries, seed: int, threads: int | None) -> _Member:
    def fit(train: RankingData, n_trees: int) -> Any:
        return _check_uninterrupted(
            get(_TREES).make(n_trees=n_trees, num_leaves=_LEAVES, seed=seed, threads=threads).fit(train)
        )

    def predict(ranker: Any, part: RankingData) -> FloatArray:
        return np.column_stack([
            ranker.booster_.predict(part.X, num_iteration=rounds, raw_score=True, num_threads=1) for rounds in _ROUNDS
        ])  # fmt: skip

    options: list[Any] = [{"n_trees": rounds} for rounds in _ROUNDS]
    return held_out.member(
        _TREES, options, lambda train, _: fit(train, _ROUNDS[-1]), predict, lambda n_trees: fit(held_out.data, n_trees)
    )


def _check_uninterrupted(ranker: Any) -> Any:
    """Re-raise an interrupt that ended the fit early, since a half-trained member would be useless."""
    if ranker.was_interrupted:
        raise KeyboardInterrupt
    return ranker


def _weights(
    held_out: _HeldOutQueries, members: Sequence[_Member], scores: Sequence[FloatArray], se_rule: float
) -> tuple[FloatArray, float]:
    """Return weights that sum to 1, and the metric of the blend with these weights.

    Trained members get equal weights and the others 0, unless other weights are clearly better (`best_weights`).
    """
    equal = np.array([float(member.ranker is not None) for member in members])
    equal = equal / equal.sum() if equal.any() else np.full(len(members), 1 / len(members))
    grid = [equal, *simplex(len(members), _n_steps(len(members)))]
    values = np.array([held_out.values(np.einsum("i,ij->j", weights, scores)) for weights in grid])
    best = best_weights(values, se_rule)
    return grid[best], held_out.sign * float(values[best].mean())


def _n_steps(n_members: int) -> int:
    """Return the largest number of steps per weight that keeps the grid within `_MAX_COMBINATIONS`."""
    return next(
        n for n in range(_MAX_STEPS, 0, -1) if n == 1 or comb(n + n_members - 1, n_members - 1) <= _MAX_COMBINATIONS
    )


def _trial_row(number: int, member: _Member, held_out: _HeldOutQueries, weight: float) -> dict[str, Any]:
    """Return a member's row of the trials table."""
    value = held_out.sign * float(held_out.values(member.unseen).mean())
    row = {"number": number, "name": member.name, "options": dict(member.options), "value": value}
    return {**row, "state": "complete", "seconds": None, "remark": "", "weight": weight}


def _merge_members(data: RankingData, linear: _Member, members: Sequence[_Member], factors: Mapping[str, float]) -> Any:
    """Merge the members: features and the linear member become one linear ranker, which is blended with the trees."""
    seen = linear.ranker.standardization_
    weights = factors.get(_LINEAR, 0.0) * linear.ranker.coef_ * seen.spread
    for member in members:
        if member.ranker is None:
            weights[member.column] += factors[member.name] * seen.spread[member.column]
    linear_part: Any = copy(linear.ranker)
    trees: Any = next((member.ranker for member in members if member.name == _TREES), None)
    linear_part._set(weights)
    if not factors.get(_TREES):
        return linear_part
    if not weights.any():
        return trees
    sizes = [score_spread(ranker.predict(data), data.queries) for ranker in (linear_part, trees)]
    return BlendRanker.from_fitted([linear_part, trees], data, [sizes[0], factors[_TREES] * sizes[1]])
