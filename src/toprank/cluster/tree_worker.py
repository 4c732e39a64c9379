"""Boosting rounds of one trainer, on the partitions of its worker. Runs on workers.

LightGBM's own network builds the trees (data-parallel: histograms are added over the trainers); every trainer ends with
the same trees. The first trainer posts checkpoints and returns the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.cluster.allreduce import AllReduce, PeerLostError
from toprank.cluster.trees import BoostingPlan, Checkpoint, Checkpoints, RunFlag, TrainerConfig
from toprank.cluster.work import WorkerRows, as_toprank_errors, bound_part
from toprank.compute import FloatArray
from toprank.data.concatenation import concatenate
from toprank.data.dataset import RankingData, check_finite
from toprank.errors import require_extra
from toprank.evaluation.scores import BoundMetric
from toprank.metrics.parsing import parse
from toprank.rankers.early_stopping import BoosterStopping, PriorTraining
from toprank.rankers.trees.parameters import InitialTrees, categorical_columns, initial_trees, lightgbm_parameters
from toprank.rankers.trees.training import InitialState, booster_of, datasets, is_sampled, make_rounds, objective_of

if TYPE_CHECKING:
    from toprank.rankers.trees.ranker import TreeRanker


@as_toprank_errors
def train_share(
    rows: Sequence[WorkerRows],
    valid: Sequence[WorkerRows],
    plan: BoostingPlan,
    config: TrainerConfig,
    state: Checkpoint | None,
) -> Checkpoint | None:
    """Train together with the other trainers; the first one returns the model."""
    client = require_extra("distributed", "cluster", "tr.cluster").get_client()
    attempt = RunFlag(config.attempt, client)
    if not attempt.begin(config.rank):
        raise PeerLostError("the training was canceled before this trainer began")
    data, held_out = _concatenated(rows), _concatenated(valid)
    assert data is not None
    own = replace(plan.ranker, threads=config.threads)
    before = initial_trees(own)
    if state is not None:
        before = InitialTrees(booster_of(state.trees), state.rounds, plan.intercept, plan.gains)
    # The client decides how long to wait for a trainer that does not connect or reply.
    with AllReduce(config.rank, len(config.machines), config.hub, config.token, wanted=attempt.wanted) as all_reduce:
        peers = _PeerGroup(all_reduce, plan)
        checkpoints = None if config.rank else Checkpoints(config.checkpoints, client)
        watch = _SharedWatch(peers, plan, state, attempt, checkpoints)
        with _network(config):
            _make_rounds(_Share(own, before, data, held_out), plan, config, watch, first=state is None)
    return watch.outcome() if config.rank == 0 else None


class _Share(NamedTuple):
    """One trainer's share of the training: its ranker, initial trees, training rows and validation rows."""

    ranker: TreeRanker
    before: InitialTrees | None
    data: RankingData
    held_out: RankingData | None


def _make_rounds(share: _Share, plan: BoostingPlan, config: TrainerConfig, watch: _SharedWatch, *, first: bool) -> None:
    """Run all rounds of this trainer; `first` is False when resuming from a checkpoint."""
    own, before, data, held_out = share
    peers = watch.peers
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
    if len(config.machines) > 1:
        parameters |= {"tree_learner": "data", "num_machines": len(config.machines), "pre_partition": True}
    start = InitialState(plan.gains, plan.intercept, None, before)
    if plan.loss is not None:
        bound = bound_part(plan.loss, data, plan.whole)
        start = start._replace(objective=objective_of(own, plan.loss, bound, start, data.X, peers))
    scores = (lambda raw: raw) if start.objective is None else start.objective.scores
    if first and own.init_model is not None:
        watch.first_value(own.init_model, judges.get("valid"), scores)
    metrics = {name: watch.metric(name, judge, scores) for name, judge in judges.items()}
    sets = datasets(own, peers.weighted(data), held_out, columns)
    make_rounds(own, parameters, sets, start, metrics, watch)


def _concatenated(rows: Sequence[WorkerRows]) -> RankingData | None:
    """Concatenate the partitions of a worker; a single one is not copied."""
    parts = [part.data for part in rows if part.data is not None]
    return concatenate(parts) if parts else None


@contextmanager
def _network(config: TrainerConfig) -> Iterator[None]:
    """Keep LightGBM's connections between the trainers open in this context.

    The connections belong to the thread, not to a booster. A booster that opened them would close those of its thread
    on garbage collection, which after a failure may happen during the next training; so no booster opens them.
    """
    from lightgbm import basic

    if len(config.machines) == 1:
        yield
        return
    port = int(config.machines[config.rank].rpartition(":")[2])
    minutes = max(1, round(config.timeout / 60))
    machines = ",".join(config.machines).encode()
    library = basic._LIB  # type: ignore[attr-defined]
    try:
        try:
            # Silence LightGBM in this thread; its listening thread still prints a line, which cannot be disabled.
            basic.Dataset(np.zeros((2, 1)), params={"verbosity": -1, "num_threads": 1}).construct()
            basic._safe_call(library.LGBM_NetworkInit(machines, port, minutes, len(config.machines)))
        except basic.LightGBMError as problem:
            raise PeerLostError(f"LightGBM's trainers did not connect: {problem}") from None
        yield
    finally:
        basic._safe_call(library.LGBM_NetworkFree())


class _PeerGroup:
    """The other trainers, from the perspective of an objective."""

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
    """Early stopping on the metrics of all trainers together, so that all stop after the same round."""

    def __init__(
        self,
        peers: _PeerGroup,
        plan: BoostingPlan,
        state: Checkpoint | None,
        attempt: RunFlag,
        checkpoints: Checkpoints | None,
    ) -> None:
        ranker = plan.ranker
        before = 0 if ranker.init_model is None else ranker.init_model.best_iteration_
        first = before if state is None else state.rounds
        self.attempt, self.checkpoints = attempt, checkpoints
        super().__init__(
            steps=ranker.n_trees - (first - before),
            prior=PriorTraining(first),
            higher_is_better=parse(ranker.metric).higher_is_better,  # not from a judge: a trainer may have none
            patience=ranker.early_stopping if "valid" in plan.tops else None,
            dart=ranker.boosting == "dart",
            sampled=is_sampled(ranker),
            callbacks=[checkpoints.report] if ranker.verbose and checkpoints is not None else [],
        )
        self.stopped = f"All {ranker.n_trees} rounds were completed."
        self.peers, self.plan, self.names = peers, plan, list(plan.tops)
        self.sums: dict[str, FloatArray] = {name: np.zeros(2) for name in self.names}
        if state is not None:
            self.best, self.best_value, self.history = state.best, state.best_value, state.history

    def metric(self, name: str, judge: BoundMetric, scores: Callable[[FloatArray], FloatArray]) -> Callable[..., float]:
        """Return the metric of this trainer's queries, which also records the sum and count for the all-reduce."""

        def value(raw: FloatArray) -> float:
            self.sums[name] = _sum_and_count(judge.per_query(scores(raw)))
            return float(self.sums[name][0])

        return value

    def first_value(
        self, before: TreeRanker, judge: BoundMetric | None, scores: Callable[[FloatArray], FloatArray]
    ) -> None:
        """Set the initial best value: the validation metric of the initial model."""
        if "valid" not in self.names:
            return
        own = np.zeros(2)
        if judge is not None:
            own = _sum_and_count(judge.per_query(scores(before.raw_scores(judge.data.X))))
        total, count = self.peers.sum(own)
        self.best_value = float(total / count) if count else None

    def __call__(self, env: Any) -> None:
        """Process a round with the metrics of all trainers."""
        stop = self.checkpoints is not None and (self.checkpoints.is_stop_requested() or not self.attempt.wanted())
        numbers = self.peers.sum(np.concatenate([*self.sums.values(), [float(stop)]]))
        means = [
            (name, "metric", float(total / count) if count else float("nan"), self.higher_is_better)
            for name, (total, count) in zip(self.names, numbers[:-1].reshape(-1, 2), strict=True)
        ]
        self.interrupted = self.interrupted or numbers[-1] > 0
        super().__call__(SimpleNamespace(model=env.model, evaluation_result_list=means))
        if self.checkpoints is not None and not self.dart and self.done % self.plan.checkpoint_every == 0:
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
    """Return the sum and count of values for the mean over all trainers; NaN marks a query that does not count."""
    return np.array([np.nansum(values), np.count_nonzero(~np.isnan(values))])
