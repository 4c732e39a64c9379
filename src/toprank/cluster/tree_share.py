"""One trainer of several: the rounds of boosting on the partitions that lie on its worker. Runs on workers.

LightGBM's own network makes the trees (data-parallel: histograms are added over the trainers); every trainer ends with
the same trees. The first one posts checkpoints and returns the model.
"""

from __future__ import annotations

import copy
import logging
import pickle
import time
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from toprank.cluster.meeting import LeftAloneError, Meeting
from toprank.cluster.work import Rows, Whole, bound_without_card, in_sentences, weight_of
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData, concatenate
from toprank.errors import DataError, needs
from toprank.losses import Loss
from toprank.metrics.evaluation import Judge
from toprank.rankers.tree_parameters import categorical_columns, lightgbm_parameters
from toprank.rankers.tree_start import Start, objective_of
from toprank.rankers.tree_training import booster_of, datasets, make_rounds
from toprank.rankers.tree_watch import Round, Watch

__all__ = ["Board", "Checkpoint", "Place", "Plan", "train_share"]

_ASK = 0.5
"""Seconds between two looks at whether the client wants to stop."""
_TELL = 1.0
"""Seconds between two words about where the training stands."""


class Plan(NamedTuple):
    """What is trained; the same for all trainers."""

    ranker: Any
    loss: Loss | None
    gains: FloatArray
    intercept: FloatArray
    whole: Whole
    n_queries: int
    tops: dict[str, float]
    """The largest label of the data that are judged, "train" and "valid"."""
    every: int
    """Rounds between two checkpoints."""


class Place(NamedTuple):
    """Where a trainer is."""

    rank: int
    machines: tuple[str, ...]
    """LightGBM's addresses of all trainers, in the order of their ranks."""
    hub: tuple[str, int]
    token: bytes
    board: str
    threads: int
    patience: float


class Checkpoint(NamedTuple):
    """The rounds made so far, and what was known after them; at the end, the rounds to keep."""

    trees: str
    rounds: int
    valid: float | None
    history: dict[str, list[float]]
    best: int
    best_value: float | None
    stopped: str = ""
    interrupted: bool = False


class Board:
    """A place on the scheduler, which outlives workers: the last checkpoint, and the client's wish to stop."""

    def __init__(self, name: str, client: Any) -> None:
        distributed = needs("distributed", "cluster", "tr.cluster")
        self._note = distributed.Variable(f"{name}-checkpoint", client=client)
        self._round = distributed.Variable(f"{name}-round", client=client)
        self._stop = distributed.Event(f"{name}-stop", client=client)
        self._asked, self._wish, self._told = 0.0, False, -_TELL

    def post(self, checkpoint: Checkpoint) -> None:
        """Replace the last checkpoint."""
        self._note.set(zlib.compress(pickle.dumps(tuple(checkpoint)), 1))

    def last(self) -> Checkpoint | None:
        """The last checkpoint, where there is one."""
        try:
            return Checkpoint(*pickle.loads(zlib.decompress(self._note.get(timeout="2s"))))
        except TimeoutError:
            return None

    def tell(self, now: Round) -> None:
        """Say where the training stands, about once a second."""
        if now.seconds - self._told >= _TELL or now.number == now.last:
            self._told = now.seconds
            self._round.set(now._replace(booster=None))

    def told(self) -> Round | None:
        """Where the training stands, if that was said."""
        try:
            return Round(*self._round.get(timeout=_TELL))
        except TimeoutError:
            return None

    def ask_to_stop(self) -> None:
        """Tell the trainers to end after this round."""
        self._stop.set()

    def stop_wanted(self) -> bool:
        """Whether the client wants to stop; asked now and then."""
        if time.monotonic() - self._asked > _ASK:
            self._asked, self._wish = time.monotonic(), bool(self._stop.is_set())
        return self._wish

    def clear(self) -> None:
        """Forget everything."""
        self._note.delete()
        self._round.delete()
        self._stop.clear()


@in_sentences
def train_share(
    rows: Sequence[Rows], valid: Sequence[Rows], plan: Plan, place: Place, state: Checkpoint | None
) -> Checkpoint | None:
    """Make the rounds together with the other trainers; the first returns the model."""
    data, held_out = _together(rows), _together(valid)
    assert data is not None
    ranker = copy.copy(plan.ranker)
    ranker.threads = place.threads
    before = ranker.init_model
    if state is not None:
        ranker.init_model = SimpleNamespace(booster_=booster_of(state.trees), best_iteration_=state.rounds)
    judges = {
        name: Judge(part, ranker.metric, convention=ranker.convention, max_grade=plan.tops[name] or None, threads=1)
        for name, part in (("train", data), ("valid", held_out))
        if name in plan.tops and part is not None
    }
    _quieten()
    columns = categorical_columns(ranker.categorical, data)
    parameters = lightgbm_parameters(ranker, data, len(plan.intercept), columns) | _network(place)
    with Meeting(place.rank, len(place.machines), place.hub, place.token, place.patience) as meeting:
        company = _Company(meeting, plan, data)
        objective = None
        if plan.loss is not None:
            bound = bound_without_card(plan.loss, data, plan.whole.grades)
            objective = objective_of(ranker, plan.loss, bound, plan.gains, plan.intercept, company)
        start = Start(plan.gains, plan.intercept, objective)
        watch = _SharedWatch(company, plan, place, state)
        if before is not None and state is None:
            watch.first_value(before, judges.get("valid"))
        scores = (lambda raw: raw) if objective is None else objective.scores
        metrics = {name: watch.metric(name, judge, scores) for name, judge in judges.items()}
        sets = datasets(ranker, company.weighted(data), held_out, columns)
        try:
            make_rounds(ranker, parameters, sets, start, metrics, watch)
        finally:
            if watch.booster is not None:
                watch.booster.free_network()
    return watch.outcome() if place.rank == 0 else None


def _together(rows: Sequence[Rows]) -> RankingData | None:
    """The partitions of a worker as one; a single one as it lies, others copied side by side."""
    parts = [part.data for part in rows if part.data is not None]
    return concatenate(parts) if parts else None


def _network(place: Place) -> dict[str, Any]:
    return {
        "tree_learner": "data",
        "machines": ",".join(place.machines),
        "num_machines": len(place.machines),
        "local_listen_port": int(place.machines[place.rank].rpartition(":")[2]),
        "time_out": max(1, round(place.patience / 60)),
        "pre_partition": True,
    }


class _Company:
    """The other trainers, as an objective sees them."""

    def __init__(self, meeting: Meeting, plan: Plan, data: RankingData) -> None:
        self.meeting, self.rank = meeting, meeting.rank
        # Query weights are scaled to a mean of 1 over all data; the loss of this trainer's own to a sum of 1.
        self.factor = weight_of(data) * plan.n_queries / plan.whole.weight
        self._mean = plan.whole.weight / plan.n_queries

    def sum(self, numbers: FloatArray) -> FloatArray:
        """The sum over all trainers."""
        return self.meeting.sum(numbers)

    def weighted(self, data: RankingData) -> RankingData:
        """The data with all weights on the documents, query weights relative to their mean over all data."""
        if data.query_weights is None:
            return data
        weights = data.queries.spread(data.query_weights / self._mean)
        if data.document_weights is not None:
            weights = weights * data.document_weights
        return RankingData.trusted(
            X=data.X, labels=data.labels, queries=data.queries, qids=data.qids, document_weights=weights,
            feature_names=data.feature_names,
        )  # fmt: skip


class _SharedWatch(Watch):
    """A watch whose metrics are those of all trainers together, so that all stop after the same round."""

    def __init__(self, company: _Company, plan: Plan, place: Place, state: Checkpoint | None) -> None:
        ranker = plan.ranker
        before = 0 if ranker.init_model is None else ranker.init_model.best_iteration_
        first = before if state is None else state.rounds
        self.board = None if place.rank else _board(place.board)
        super().__init__(
            rounds=ranker.n_trees - (first - before),
            first=first,
            patience=ranker.early_stopping if "valid" in plan.tops else None,
            dart=ranker.boosting == "dart",
            sampled=min(ranker.feature_fraction, ranker.row_fraction, ranker.query_fraction) < 1,
            callbacks=[self.board.tell] if ranker.verbose and self.board is not None else [],
        )
        self.stopped = f"All {ranker.n_trees} rounds were made."
        self.company, self.plan, self.names = company, plan, list(plan.tops)
        self.sums: dict[str, FloatArray] = {name: np.zeros(2) for name in self.names}
        if state is not None:
            self.best, self.best_value, self.history = state.best, state.best_value, state.history

    def metric(self, name: str, judge: Judge, scores: Callable[[FloatArray], FloatArray]) -> Callable[..., float]:
        """The metric of this trainer's own queries; the sum behind it is noted for all."""
        self.higher_is_better = judge.higher_is_better

        def value(raw: FloatArray) -> float:
            values = judge.per_query(scores(raw))
            self.sums[name] = np.array([np.nansum(values), np.count_nonzero(~np.isnan(values))])
            return float(self.sums[name][0])

        return value

    def first_value(self, before: Any, judge: Judge | None) -> None:
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
        wish = float(self.board is not None and self.board.stop_wanted())
        numbers = self.company.sum(np.concatenate([*self.sums.values(), [wish]]))
        means = [
            (name, "metric", float(total / count) if count else float("nan"), self.higher_is_better)
            for name, (total, count) in zip(self.names, numbers[:-1].reshape(-1, 2), strict=True)
        ]
        self.interrupted = self.interrupted or numbers[-1] > 0
        super().__call__(SimpleNamespace(model=env.model, evaluation_result_list=means))
        if self.board is not None and not self.dart and self.done % self.plan.every == 0:
            text = env.model.model_to_string(num_iteration=-1)
            self.board.post(Checkpoint(text, self.done, None, self.history, self.best, self.best_value))

    def outcome(self) -> Checkpoint:
        """The rounds to keep."""
        trees, rounds, valid = self.kept()
        return Checkpoint(
            trees, rounds, valid, self.history, self.best, self.best_value, self.stopped, self.interrupted
        )


class _Log:
    """LightGBM tells of every port it binds, whatever verbosity says; here that is for those who ask for it."""

    def __init__(self) -> None:
        self._log = logging.getLogger("toprank.cluster.lightgbm")

    def info(self, message: str) -> None:
        """Usual messages, at the level of debugging."""
        self._log.debug(message)

    def warning(self, message: str) -> None:
        """Warnings, as they are."""
        self._log.warning(message)


@cache
def _quieten() -> None:
    import lightgbm

    lightgbm.register_logger(_Log())


def _board(name: str) -> Board:
    return Board(name, needs("distributed", "cluster", "tr.cluster").get_client())


def check_share(rows: Rows, metric: str, convention: str) -> bool:
    """Whether the metric takes the labels of a partition; runs on a worker."""
    assert rows.data is not None
    try:
        Judge(rows.data, metric, convention=convention, threads=1)(np.zeros(rows.data.n_documents))
    except DataError:
        return False
    return True


def is_desertion(problem: BaseException) -> bool:
    """Whether a trainer failed because another one did."""
    import lightgbm

    text = str(problem).lower()
    network = isinstance(problem, DataError | lightgbm.basic.LightGBMError) and ("socket" in text or "network" in text)
    return isinstance(problem, LeftAloneError) or network
