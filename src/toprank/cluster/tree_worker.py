"""One trainer of several: the rounds of boosting on the partitions of its worker. Runs on workers.

LightGBM's own network makes the trees (data-parallel: histograms are added over the trainers); every trainer ends with
the same trees. The first trainer posts checkpoints and returns the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.cluster.allreduce import AllReduce, LeftAloneError
from toprank.cluster.trees import BoostingPlan, Checkpoint, Checkpoints, Place, StartSign
from toprank.cluster.work import WorkerRows, bound_part, in_sentences
from toprank.compute import FloatArray
from toprank.data.concatenation import concatenate
from toprank.data.dataset import RankingData, check_finite
from toprank.errors import require_extra
from toprank.evaluation.scores import BoundMetric
from toprank.metrics.parsing import parse
from toprank.rankers.early_stopping import BoosterStopping, PriorTraining
from toprank.rankers.trees.parameters import InitialTrees, categorical_columns, grown, lightgbm_parameters
from toprank.rankers.trees.training import InitialState, booster_of, datasets, is_sampled, make_rounds, objective_of

if TYPE_CHECKING:
    from toprank.rankers.trees.ranker import TreeRanker


@in_sentences
def train_share(
    rows: Sequence[WorkerRows], valid: Sequence[WorkerRows], plan: BoostingPlan, place: Place, state: Checkpoint | None
) -> Checkpoint | None:
    """Make the rounds together with the other trainers; the first one returns the model."""
    client = require_extra("distributed", "cluster", "tr.cluster").get_client()
    attempt = StartSign(place.attempt, client)
    if not attempt.begin(place.rank):
        raise LeftAloneError("the training was given up before this trainer began")
    data, held_out = _together(rows), _together(valid)
    assert data is not None
    own = replace(plan.ranker, threads=place.threads)
    before = grown(own)
    if state is not None:
        before = InitialTrees(booster_of(state.trees), state.rounds, plan.intercept, plan.gains)
    # The client decides how long to wait for a trainer that does not come, or does not answer.
    with AllReduce(place.rank, len(place.machines), place.hub, place.token, wanted=attempt.wanted) as all_reduce:
        company = _Company(all_reduce, plan)
        checkpoints = None if place.rank else Checkpoints(place.checkpoints, client)
        watch = _SharedWatch(company, plan, state, attempt, checkpoints)
        with _network(place):
            _make_rounds(_Share(own, before, data, held_out), plan, place, watch, first=state is None)
    return watch.outcome() if place.rank == 0 else None


class _Share(NamedTuple):
    """One trainer's share of the training: its ranker, the trees to go on from, its rows and its validation rows."""

    ranker: TreeRanker
    before: InitialTrees | None
    data: RankingData
    held_out: RankingData | None


def _make_rounds(share: _Share, plan: BoostingPlan, place: Place, watch: _SharedWatch, *, first: bool) -> None:
    """Make this trainer's part of all rounds; `first`: they do not go on from a checkpoint."""
    own, before, data, held_out = share
    company = watch.company
    judges = {
        name: BoundMetric(part, own.metric, convention=own.convention, max_grade=plan.tops[name] or None, threads=1)
        for name, part in (("train", data), ("valid", held_out))
        if name in plan.tops and part is not None
    }
    for part in (data, held_out):
        if part is not None:
            check_finite(part.X, part.feature_names)
    columns = categorical_columns(own.categorical, data)
    parameters = lightgbm_parameters(own, data, len(plan.intercept), columns)
    if len(place.machines) > 1:
        parameters |= {"tree_learner": "data", "num_machines": len(place.machines), "pre_partition": True}
    start = InitialState(plan.gains, plan.intercept, None, before)
    if plan.loss is not None:
        bound = bound_part(plan.loss, data, plan.whole)
        start = start._replace(objective=objective_of(own, plan.loss, bound, start, data.X, company))
    scores = (lambda raw: raw) if start.objective is None else start.objective.scores
    if first and own.init_model is not None:
        watch.first_value(own.init_model, judges.get("valid"), scores)
    metrics = {name: watch.metric(name, judge, scores) for name, judge in judges.items()}
    sets = datasets(own, company.weighted(data), held_out, columns)
    make_rounds(own, parameters, sets, start, metrics, watch)


def _together(rows: Sequence[WorkerRows]) -> RankingData | None:
    """Join the partitions of a worker; a single one is used as it lies, several are copied."""
    parts = [part.data for part in rows if part.data is not None]
    return concatenate(parts) if parts else None


@contextmanager
def _network(place: Place) -> Iterator[None]:
    """Keep LightGBM's connections between the trainers for as long as they are needed.

    The connections belong to the thread, not to a booster. A booster that opened them would end those of its thread
    when the garbage collector finds it, which after a failure may be in the middle of the next training; so none does.
    """
    from lightgbm import basic

    if len(place.machines) == 1:
        yield
        return
    port = int(place.machines[place.rank].rpartition(":")[2])
    minutes = max(1, round(place.patience / 60))
    machines = ",".join(place.machines).encode()
    library = basic._LIB  # type: ignore[attr-defined]
    try:
        try:
            # Quietens LightGBM in this thread; its listening thread announces itself all the same, and cannot be told.
            basic.Dataset(np.zeros((2, 1)), params={"verbosity": -1, "num_threads": 1}).construct()
            basic._safe_call(library.LGBM_NetworkInit(machines, port, minutes, len(place.machines)))
        except basic.LightGBMError as problem:
            raise LeftAloneError(f"LightGBM's trainers did not meet: {problem}") from None
        yield
    finally:
        basic._safe_call(library.LGBM_NetworkFree())


class _Company:
    """The other trainers, as an objective sees them."""

    def __init__(self, all_reduce: AllReduce, plan: BoostingPlan) -> None:
        self.all_reduce, self.rank = all_reduce, all_reduce.rank
        self.factor = float(plan.n_queries)  # losses here are parts of the mean over the queries of all data
        self._mean = plan.whole.weight / plan.n_queries

    def sum(self, numbers: FloatArray) -> FloatArray:
        """Return the sum over all trainers."""
        return self.all_reduce.sum(numbers)

    def weighted(self, data: RankingData) -> RankingData:
        """Return the data with all weights on the documents, query weights relative to their mean over all data."""
        if data.query_weights is None:
            return data
        weights = data.queries.broadcast(data.query_weights / self._mean)
        if data.document_weights is not None:
            weights = weights * data.document_weights
        return RankingData._from_validated(
            X=data.X, labels=data.labels, queries=data.queries, qids=data.qids, document_weights=weights,
            teacher=data.teacher,
            feature_names=data.feature_names, encoding=data.encoding,
        )  # fmt: skip


class _SharedWatch(BoosterStopping):
    """A watch whose metrics are those of all trainers together, so that all stop after the same round."""

    def __init__(
        self,
        company: _Company,
        plan: BoostingPlan,
        state: Checkpoint | None,
        attempt: StartSign,
        checkpoints: Checkpoints | None,
    ) -> None:
        ranker = plan.ranker
        before = 0 if ranker.init_model is None else ranker.init_model.best_iteration_
        first = before if state is None else state.rounds
        self.attempt, self.checkpoints = attempt, checkpoints
        super().__init__(
            steps=ranker.n_trees - (first - before),
            prior=PriorTraining(first),
            higher_is_better=parse(ranker.metric).higher_is_better,  # not by a judge: not every trainer has one
            patience=ranker.early_stopping if "valid" in plan.tops else None,
            dart=ranker.boosting == "dart",
            sampled=is_sampled(ranker),
            callbacks=[checkpoints.tell] if ranker.verbose and checkpoints is not None else [],
        )
        self.stopped = f"All {ranker.n_trees} rounds were made."
        self.company, self.plan, self.names = company, plan, list(plan.tops)
        self.sums: dict[str, FloatArray] = {name: np.zeros(2) for name in self.names}
        if state is not None:
            self.best, self.best_value, self.history = state.best, state.best_value, state.history

    def metric(self, name: str, judge: BoundMetric, scores: Callable[[FloatArray], FloatArray]) -> Callable[..., float]:
        """Return the metric of this trainer's own queries; it notes the sum and count that all trainers add up."""

        def value(raw: FloatArray) -> float:
            self.sums[name] = _sum_and_count(judge.per_query(scores(raw)))
            return float(self.sums[name][0])

        return value

    def first_value(
        self, before: TreeRanker, judge: BoundMetric | None, scores: Callable[[FloatArray], FloatArray]
    ) -> None:
        """Set the value to beat: the validation metric of the model to go on from."""
        if "valid" not in self.names:
            return
        own = np.zeros(2)
        if judge is not None:
            own = _sum_and_count(judge.per_query(scores(before.raw_scores(judge.data.X))))
        total, count = self.company.sum(own)
        self.best_value = float(total / count) if count else None

    def __call__(self, env: Any) -> None:
        """Look at a round, as all trainers see it."""
        stop = self.checkpoints is not None and (self.checkpoints.stop_wanted() or not self.attempt.wanted())
        numbers = self.company.sum(np.concatenate([*self.sums.values(), [float(stop)]]))
        means = [
            (name, "metric", float(total / count) if count else float("nan"), self.higher_is_better)
            for name, (total, count) in zip(self.names, numbers[:-1].reshape(-1, 2), strict=True)
        ]
        self.interrupted = self.interrupted or numbers[-1] > 0
        super().__call__(SimpleNamespace(model=env.model, evaluation_result_list=means))
        if self.checkpoints is not None and not self.dart and self.done % self.plan.every == 0:
            text = env.model.model_to_string(num_iteration=-1)
            self.checkpoints.post(Checkpoint(text, self.done, None, self.history, self.best, self.best_value))

    def outcome(self) -> Checkpoint:
        """Return the rounds to keep."""
        trees, rounds, valid = self.kept()
        return Checkpoint(
            trees=trees,
            rounds=rounds,
            valid=valid,
            history=self.history,
            best=self.best,
            best_value=self.best_value,
            stopped=self.stopped,
            interrupted=self.interrupted,
        )


def _sum_and_count(values: FloatArray) -> FloatArray:
    """Return what the mean over the queries of all trainers is made of; NaN is a query that does not count."""
    return np.array([np.nansum(values), np.count_nonzero(~np.isnan(values))])
