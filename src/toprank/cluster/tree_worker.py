"""One trainer of several: the rounds of boosting on the partitions that lie on its worker. Runs on workers.

LightGBM's own network makes the trees (data-parallel: histograms are added over the trainers); every trainer ends with
the same trees. The first one posts checkpoints and returns the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.cluster.allreduce import AllReduce, LeftAloneError
from toprank.cluster.trees import BoostingPlan, Checkpoint, Checkpoints, Place, StartSign
from toprank.cluster.work import WorkerRows, bound_part, in_sentences
from toprank.compute import FloatArray
from toprank.data.checks import check_finite
from toprank.data.dataset import RankingData, concatenate
from toprank.errors import needs
from toprank.metrics.evaluation import Judge
from toprank.metrics.parsing import parse
from toprank.rankers.trees.parameters import Grown, categorical_columns, grown, lightgbm_parameters
from toprank.rankers.trees.training import Start, booster_of, datasets, is_sampled, make_rounds, objective_of
from toprank.rankers.watching import RoundWatch

if TYPE_CHECKING:
    from toprank.rankers.trees.ranker import TreeRanker


@in_sentences
def train_share(
    rows: Sequence[WorkerRows], valid: Sequence[WorkerRows], plan: BoostingPlan, place: Place, state: Checkpoint | None
) -> Checkpoint | None:
    """Make the rounds together with the other trainers; the first returns the model."""
    client = needs("distributed", "cluster", "tr.cluster").get_client()
    attempt = StartSign(place.attempt, client)
    if not attempt.begin(place.rank):
        raise LeftAloneError("the training was given up before this trainer began")
    data, held_out = _together(rows), _together(valid)
    assert data is not None
    own = replace(plan.asked, threads=place.threads)
    before = grown(own)
    if state is not None:
        before = Grown(booster_of(state.trees), state.rounds, plan.intercept, plan.gains)
    # How long to wait for a trainer that does not come, or does not answer, is for the client to say.
    with AllReduce(place.rank, len(place.machines), place.hub, place.token, wanted=attempt.wanted) as all_reduce:
        company = _Company(all_reduce, plan)
        checkpoints = None if place.rank else Checkpoints(place.checkpoints, client)
        watch = _SharedWatch(company, plan, state, attempt, checkpoints)
        with _network(place):
            _make_rounds(own, before, plan, place, data, held_out, company, watch, first=state is None)
    return watch.outcome() if place.rank == 0 else None


def _make_rounds(
    own: TreeRanker,
    before: Grown | None,
    plan: BoostingPlan,
    place: Place,
    data: RankingData,
    held_out: RankingData | None,
    company: _Company,
    watch: _SharedWatch,
    *,
    first: bool,
) -> None:
    """This trainer's part of all rounds; `first`: they do not go on from a checkpoint."""
    judges = {
        name: Judge(part, own.metric, convention=own.convention, max_grade=plan.tops[name] or None, threads=1)
        for name, part in (("train", data), ("valid", held_out))
        if name in plan.tops and part is not None
    }
    for part in (data, held_out):
        if part is not None:
            check_finite(part.X, part.feature_names)
    columns = categorical_columns(own.categorical, data)
    words = lightgbm_parameters(own, data, len(plan.intercept), columns)
    if len(place.machines) > 1:
        words |= {"tree_learner": "data", "num_machines": len(place.machines), "pre_partition": True}
    objective = None
    if plan.loss is not None:
        bound = bound_part(plan.loss, data, plan.whole)
        objective = objective_of(own, plan.loss, bound, plan.gains, plan.intercept, before, data.X, company)
    if first and own.init_model is not None:
        watch.first_value(own.init_model, judges.get("valid"))
    scores = (lambda raw: raw) if objective is None else objective.scores
    metrics = {name: watch.metric(name, judge, scores) for name, judge in judges.items()}
    sets = datasets(own, company.weighted(data), held_out, columns)
    make_rounds(own, words, sets, Start(plan.gains, plan.intercept, objective, before), metrics, watch)


def _together(rows: Sequence[WorkerRows]) -> RankingData | None:
    """The partitions of a worker as one; a single one as it lies, others copied side by side."""
    parts = [part.data for part in rows if part.data is not None]
    return concatenate(parts) if parts else None


@contextmanager
def _network(place: Place) -> Iterator[None]:
    """LightGBM's connections between the trainers, for as long as they are needed.

    They belong to the thread, not to a booster. One that made them ends those of its thread when the garbage collector
    finds it, which after a failure may be in the middle of the next training; so no booster is told of them.
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
            # Sets how much LightGBM says in this thread; its own, which listens, says that it does, and cannot be told.
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
        self.factor = float(plan.n_queries)  # the loss is a part of the mean over the queries of all data
        self._mean = plan.whole.weight / plan.n_queries

    def sum(self, numbers: FloatArray) -> FloatArray:
        """The sum over all trainers."""
        return self.all_reduce.sum(numbers)

    def weighted(self, data: RankingData) -> RankingData:
        """The data with all weights on the documents, query weights relative to their mean over all data."""
        if data.query_weights is None:
            return data
        weights = data.queries.spread(data.query_weights / self._mean)
        if data.document_weights is not None:
            weights = weights * data.document_weights
        return RankingData.trusted(
            X=data.X, labels=data.labels, queries=data.queries, qids=data.qids, document_weights=weights,
            teacher=data.teacher,
            feature_names=data.feature_names, encoding=data.encoding,
        )  # fmt: skip


class _SharedWatch(RoundWatch):
    """A watch whose metrics are those of all trainers together, so that all stop after the same round."""

    def __init__(
        self,
        company: _Company,
        plan: BoostingPlan,
        state: Checkpoint | None,
        attempt: StartSign,
        checkpoints: Checkpoints | None,
    ) -> None:
        asked = plan.asked
        before = 0 if asked.init_model is None else asked.init_model.best_iteration_
        first = before if state is None else state.rounds
        self.attempt, self.checkpoints = attempt, checkpoints
        super().__init__(
            steps=asked.n_trees - (first - before),
            first=first,
            higher_is_better=parse(asked.metric).higher_is_better,  # not by a judge: not every trainer has one
            patience=asked.early_stopping if "valid" in plan.tops else None,
            dart=asked.boosting == "dart",
            sampled=is_sampled(asked),
            callbacks=[checkpoints.tell] if asked.verbose and checkpoints is not None else [],
        )
        self.stopped = f"All {asked.n_trees} rounds were made."
        self.company, self.plan, self.names = company, plan, list(plan.tops)
        self.sums: dict[str, FloatArray] = {name: np.zeros(2) for name in self.names}
        if state is not None:
            self.best, self.best_value, self.history = state.best, state.best_value, state.history

    def metric(self, name: str, judge: Judge, scores: Callable[[FloatArray], FloatArray]) -> Callable[..., float]:
        """The metric of this trainer's own queries; the sum behind it is noted for all."""

        def value(raw: FloatArray) -> float:
            values = judge.per_query(scores(raw))
            self.sums[name] = np.array([np.nansum(values), np.count_nonzero(~np.isnan(values))])
            return float(self.sums[name][0])

        return value

    def first_value(self, before: TreeRanker, judge: Judge | None) -> None:
        """The validation metric of the model to go on from: the value to beat."""
        if "valid" not in self.names:
            return
        local = np.zeros(2)
        if judge is not None:
            values = judge.per_query(before.predict(judge.data))
            local = np.array([np.nansum(values), np.count_nonzero(~np.isnan(values))])
        total, count = self.company.sum(local)
        self.best_value = float(total / count) if count else None

    def __call__(self, env: Any) -> None:
        """Look at a round, as all trainers see it."""
        wish = self.checkpoints is not None and (self.checkpoints.stop_wanted() or not self.attempt.wanted())
        numbers = self.company.sum(np.concatenate([*self.sums.values(), [float(wish)]]))
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
        """The rounds to keep."""
        trees, rounds, valid = self.kept()
        return Checkpoint(
            trees, rounds, valid, self.history, self.best, self.best_value, self.stopped, self.interrupted
        )
