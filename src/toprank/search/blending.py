"""The default order: a blend of orders that need no judgments, a linear ranker and small trees.

A few dozen judged queries can mislead more than they teach: orders learned from them were worse than LSA alone on MED.
So the orders that need no judgments are members beside the learned ones. Both learned members count alike, unless other
weights of the members are clearly better on queries that the learned ones have not seen: if learning hurts, the blend
falls back on the orders that need none.

On validation queries of four collections, of 24 and of all queries, this did best in sum among: both learned members
alike always; the best weights, however small their lead; the mean of the best weights of many resamples; a linear
ranker whose few strong features are hardly penalised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import comb
from typing import Any, NamedTuple

import numpy as np

from toprank.choosing.choice import Choice
from toprank.choosing.hold_out import divide
from toprank.choosing.search import HoldOut, noting
from toprank.compute import FloatArray, IntArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.fusion.learning import simplex
from toprank.metrics.evaluation import Judge
from toprank.rankers.blend import BlendRanker, score_spread
from toprank.systems import get

BLEND = "blend"
_LINEAR, _TREES = "RankNet-linear", "YetiRank"
# On validation queries of four collections linear rankers and trees won in turn, and no tree of more leaves did better:
# a few hundred queries are all there usually are.
_PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)
_ROUNDS, _LEAVES = (10, 25, 50, 100, 200), 7
_FOLDS = 5
_ENOUGH = 60  # queries that weigh the members: more cost time, and turn the weights little
_COMBINATIONS, _STEPS = 60, 10  # of weights that are tried at most, and steps of each
_CAUTION = 1.0  # standard errors by which weights must be better than those that count learned members alike


class _Member(NamedTuple):
    name: str
    unseen: FloatArray
    """Scores of the queries that weigh the members, by a ranker that has not seen them."""
    options: dict[str, float]
    ranker: Any = None
    """Fitted on all queries; None: the order is a feature."""
    column: int = -1


class _Folds(NamedTuple):
    """Queries that are held out in turn, and who judges what others say of them."""

    data: RankingData
    parts: tuple[HoldOut, ...]
    judge: Judge
    """Of the queries that were held out, in the order of the data."""
    rows: IntArray

    @classmethod
    def of(cls, data: RankingData, metric: str, seed: int) -> _Folds:
        """Five parts, of which so many are held out as hold enough queries: all where there are few."""
        k = min(_FOLDS, data.n_queries)
        wanted = -(-_ENOUGH * k // data.n_queries)
        fine = [part for part in divide(data, None, folds=k, seed=seed).parts if _teaches(part.train, metric)]
        parts = tuple(fine[: max(wanted, 1)])
        if not parts:
            raise DataError("Too few queries have candidates of different grades to hold some out; judge more queries.")
        judged = np.isin(data.qids, np.concatenate([part.valid.qids for part in parts]))
        judge = Judge(data.select(judged), metric, threads=1)
        return cls(data, parts, judge, np.flatnonzero(data.queries.spread(judged)))

    def joined(self, scores: Sequence[FloatArray]) -> FloatArray:
        """The scores of each part, a column for each candidate, in the order of the judged queries."""
        column = np.empty((self.data.n_documents, scores[0].shape[1]))
        for part, table in zip(self.parts, scores, strict=True):
            column[self.data.queries.spread(np.isin(self.data.qids, part.valid.qids))] = table
        rows: FloatArray = column[self.rows]
        return rows

    @property
    def sign(self) -> float:
        """1 where more of the metric is better, −1 where less is."""
        return 1.0 if self.judge.higher_is_better else -1.0

    def values(self, scores: FloatArray) -> FloatArray:
        """The metric of each query, turned so that more is better; one that has no value counts 0 for all alike."""
        return self.sign * np.nan_to_num(self.judge.per_query(np.ascontiguousarray(scores)))

    def best(self, table: FloatArray) -> int:
        """The column that ranks the held-out queries best."""
        return int(np.argmax([self.values(column).mean() for column in table.T]))

    def spread(self, scores: FloatArray) -> float:
        """How far scores of a query lie apart."""
        return score_spread(scores, self.judge.data.queries)


def _teaches(data: RankingData, metric: str) -> bool:
    best, worst = Judge(data, metric, threads=1).extremes()
    return not np.array_equal(best, worst, equal_nan=True)


class Members(NamedTuple):
    """All members, and the queries that weigh them."""

    folds: _Folds
    every: list[_Member]
    linear: _Member


def blended(data: RankingData, metric: str, orders: Sequence[str], seed: int, threads: int | None) -> Choice:
    """The members, fitted on all queries, and their weights, found on queries that were held out in turn.

    Args:
        data: candidates with their labels.
        metric: what hyper-parameters and weights are chosen by.
        orders: features that order candidates by themselves.
        seed: of the folds and of the trees.
        threads: number of threads.
    """
    return weighed(data, members_of(data, metric, orders, seed, threads))


def members_of(data: RankingData, metric: str, orders: Sequence[str], seed: int, threads: int | None) -> Members:
    """The members; see `blended`."""
    folds = _Folds.of(data, metric, seed)
    with noting():  # of what a member warns, its weight tells
        linear = _linear(folds, threads)
        return Members(folds, [*_features(folds, orders), linear, _trees(folds, seed, threads)], linear)


def weighed(data: RankingData, given: Members, caution: float = _CAUTION) -> Choice:
    """One ranker of all members; `caution` as in `_weights`."""
    folds = given.folds
    spreads = [folds.spread(member.unseen) for member in given.every]
    members = [member for member, spread in zip(given.every, spreads, strict=True) if spread > 0]
    factors = [1 / spread for spread in spreads if spread > 0]
    if not members:
        raise DataError("All candidates of a query have the same features, so there is nothing to order them by.")
    scores = [factor * member.unseen for member, factor in zip(members, factors, strict=True)]
    weights, value = _weights(folds, members, scores, caution)
    shares = dict(zip((member.name for member in members), np.round(weights, 3).tolist(), strict=True))
    options = shares | {f"{member.name} {name}": at for member in members for name, at in member.options.items()}
    trials = [_row(place, member, folds, shares[member.name]) for place, member in enumerate(members)]
    of = dict(zip((member.name for member in members), (weights * np.array(factors)).tolist(), strict=True))
    ranker = _joined(data, given.linear, members, of)
    judged_on = f"{folds.judge.data.n_queries:,} queries, each ranked by a model trained on the others"
    return Choice(ranker, BLEND, options, folds.judge.name, "standard", value, judged_on, trials, refitted=True)


def _features(folds: _Folds, orders: Sequence[str]) -> list[_Member]:
    """Return the orders that need no learning; a candidate without a value counts as average (z-score 0)."""
    names = list(folds.data.feature_names or ())
    columns = [names.index(name) for name in orders]
    values = [np.nan_to_num(np.asarray(folds.data.X[folds.rows, column], dtype=np.float64)) for column in columns]
    known = [name.removesuffix(" zscore in pool") for name in orders]
    return [_Member(name, scores, {}, None, at) for name, scores, at in zip(known, values, columns, strict=True)]


def _linear(folds: _Folds, threads: int | None) -> _Member:
    def fitted(train: RankingData, l2: float, start: FloatArray | None = None) -> Any:
        return _whole(get(_LINEAR).make(l2=l2, start=start, metric=folds.judge.name, threads=threads).fit(train))

    def scores(part: HoldOut) -> FloatArray:
        columns, start = [], None
        for l2 in _PENALTIES:
            ranker = fitted(part.train, l2, start)
            columns.append(ranker.predict(part.valid))
            start = ranker.solution_.weights
        return np.column_stack(columns)

    table = folds.joined([scores(part) for part in folds.parts])
    best = folds.best(table)
    return _Member(_LINEAR, table[:, best], {"l2": _PENALTIES[best]}, fitted(folds.data, _PENALTIES[best]))


def _trees(folds: _Folds, seed: int, threads: int | None) -> _Member:
    def grown(train: RankingData, rounds: int) -> Any:
        made = get(_TREES).make(n_trees=rounds, num_leaves=_LEAVES, seed=seed, threads=threads)
        return _whole(made.fit(train))

    def scores(part: HoldOut) -> FloatArray:
        booster = grown(part.train, _ROUNDS[-1]).booster_
        return np.column_stack([
            booster.predict(part.valid.X, num_iteration=rounds, raw_score=True, num_threads=1) for rounds in _ROUNDS
        ])  # fmt: skip

    table = folds.joined([scores(part) for part in folds.parts])
    best = folds.best(table)
    return _Member(_TREES, table[:, best], {"n_trees": _ROUNDS[best]}, grown(folds.data, _ROUNDS[best]))


def _whole(ranker: Any) -> Any:
    """Pass on an interrupt that ended a fit early: a blend of half-trained members would be of no use."""
    if ranker.was_interrupted:
        raise KeyboardInterrupt
    return ranker


def _weights(
    folds: _Folds, members: Sequence[_Member], scores: Sequence[FloatArray], caution: float
) -> tuple[FloatArray, float]:
    """Weights that add up to 1, and what they are worth.

    The learned members count alike, and the others nothing, unless others are better by so many standard errors of the
    differences over the queries as `caution` says: the best of many on few queries is partly luck.
    """
    alike = np.array([float(member.ranker is not None) for member in members])
    alike = alike / alike.sum() if alike.any() else np.full(len(members), 1 / len(members))
    grid = [alike, *simplex(len(members), _steps(len(members)))]
    values = np.array([folds.values(np.einsum("i,ij->j", weights, scores)) for weights in grid])
    best = int(np.argmax(values.mean(axis=1)))
    gains = values[best] - values[0]
    if gains.mean() <= caution * gains.std() / np.sqrt(max(len(gains) - 1, 1)):
        best = 0
    return grid[best], folds.sign * float(values[best].mean())


def _steps(members: int) -> int:
    """Return the steps of each weight that make no more combinations than are tried."""
    return next(n for n in range(_STEPS, 0, -1) if n == 1 or comb(n + members - 1, members - 1) <= _COMBINATIONS)


def _row(number: int, member: _Member, folds: _Folds, weight: float) -> dict[str, Any]:
    """Return the row of a member in the table of trials."""
    value = folds.sign * float(folds.values(member.unseen).mean())
    row = {"number": number, "name": member.name, "options": dict(member.options), "value": value}
    return {**row, "state": "complete", "seconds": None, "remark": "", "weight": weight}


def _joined(data: RankingData, linear: _Member, members: Sequence[_Member], factors: Mapping[str, float]) -> Any:
    """One ranker: features and the linear member are one weighted sum of features, to which trees are added."""
    seen = linear.ranker.standardisation_
    weights = factors.get(_LINEAR, 0.0) * linear.ranker.coef_ * seen.spread
    for member in members:
        if member.ranker is None:
            weights[member.column] += factors[member.name] * seen.spread[member.column]
    together: Any = copy(linear.ranker)
    trees: Any = next((member.ranker for member in members if member.name == _TREES), None)
    together._set(weights)
    if not factors.get(_TREES):
        return together
    if not weights.any():
        return trees
    sizes = [score_spread(ranker.predict(data), data.queries) for ranker in (together, trees)]
    return BlendRanker.of([together, trees], data, [sizes[0], factors[_TREES] * sizes[1]])
