"""Partitions placed on a cluster: what rankers learn from there, and the sums that they ask for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toprank.cluster import work
from toprank.cluster.faults import LostError
from toprank.cluster.judging import part_values, settled_top
from toprank.cluster.queries import Move, joined, moves, taken
from toprank.cluster.running import Runner
from toprank.cluster.sources import DataPart, FramePart, Parts, agreed, load, rows_of_frame
from toprank.cluster.spread import Placement, Root, Spread
from toprank.compute import FloatArray
from toprank.errors import DataError
from toprank.losses import Loss
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.rankers.source import Score, ScoreJudge, Source
from toprank.scorers.base import Scorer
from toprank.scorers.features import Moments, Standardisation

__all__ = ["ClusterObjective", "Placed"]


class Placed(Source):
    """Partitions on a cluster, checked: whole queries, the same columns everywhere.

    Give it to `fit`, `evaluate` and `predict` as often as needed; the workers keep the rows until it is forgotten.
    """

    def __init__(self, runner: Runner, parts: Parts) -> None:
        self.runner, self.parts = runner, parts
        self.moves: list[Move] = []
        self._raw: list[Any] = [None] * len(parts)
        self._homes: list[str] = [""] * len(parts)
        self._kept = list(range(len(parts)))
        self.rows = Root(runner, self._place)
        facts = self._survey()
        found = moves(facts, parts.repair)
        if found:
            self.moves = [Move(self._kept[move.donor], self._kept[move.home], move.qids) for move in found]
            self.rows = Root(runner, self._place)
            facts = self._survey()
        self.facts = facts
        self.n_moved = sum(len(move.qids) for move in self.moves)
        """How many times rows of a query were moved to the partition where it begins."""
        self.n_features, self.feature_names = facts[0].n_features, facts[0].feature_names
        self.n_documents = sum(one.n_documents for one in facts)
        self.n_queries = sum(len(one.qids) for one in facts)
        self.n_unjudged = sum(one.n_unjudged for one in facts)
        digests = "".join(one.digest for one in facts)
        self.fingerprint = "parts-" + hashlib.blake2b(digests.encode(), digest_size=13).hexdigest()

    # ---- placing ----

    def place_evenly(self) -> None:
        """Forget where the partitions are, and place them all anew on the workers that are there now."""
        self._raw = [None] * len(self.parts)
        self.rows = Root(self.runner, self._place)

    def _place(self) -> Placement:
        """All partitions that have rows. What is still there stays; neighbours go to the same worker."""
        workers = self.runner.workers()
        whole = all(future is None for future in self._raw)
        for number, future in enumerate(self._raw):
            if future is None or self._homes[number] not in workers or future.status not in ("pending", "finished"):
                place = number * len(workers) // len(self._raw) if whole else number % len(workers)
                self._homes[number] = workers[place]
                self._raw[number] = self._load(self.parts.sources[number], workers[place])
        rows = self._repaired() if self.moves else self._raw
        return Placement([rows[number] for number in self._kept], [self._homes[number] for number in self._kept])

    def _repaired(self) -> list[Any]:
        """The partitions after the moves."""
        gone: dict[int, list[Any]] = {}
        come: dict[int, list[Any]] = {}
        for donor, home, qids in self.moves:
            gone.setdefault(donor, []).append(qids)
            part = self.runner.submit(taken, self._raw[donor], qids, workers=[self._homes[donor]])
            come.setdefault(home, []).append(part)
        rows = list(self._raw)
        for number in {*gone, *come}:
            left = np.concatenate(gone[number]) if number in gone else None
            more = come.get(number, [])
            rows[number] = self.runner.submit(joined, rows[number], left, *more, workers=[self._homes[number]])
        return rows

    def _load(self, source: Any, home: str) -> Any:
        client, submit = self.runner.client, self.runner.submit
        if isinstance(source, DataPart):
            rows = work.Rows(source.data, source.name, None)
            try:
                return client.scatter(rows, workers=[home], hash=False, timeout=self.runner.patience)
            except (TimeoutError, OSError):
                raise LostError from None
        if isinstance(source, FramePart):
            return submit(rows_of_frame, client.compute(source.frame), source.name, source.roles, workers=[home])
        return submit(load, source, workers=[home])

    def _survey(self) -> list[work.Facts]:
        """Look at every partition; those without rows are left out from now on."""
        found = self.rows.each(work.facts_of)
        if None in found:
            self._kept = [number for number, one in zip(self._kept, found, strict=True) if one is not None]
            self.rows = Root(self.runner, self._place)
        facts = [one for one in found if one is not None]
        if not facts:
            raise DataError("There are no documents: no partition has any rows.")
        _check_alike(facts)
        return facts

    # ---- what rankers ask for ----

    def standardisation(self, threads: int | None) -> Standardisation:
        """From sums over the partitions."""
        parts = self.rows.each(work.moments_of, self.facts[0].first, threads or 1)
        return Standardisation.from_moments(Moments.joined(parts), self.feature_names)

    def grades(self) -> tuple[FloatArray, FloatArray]:
        """See `Source.grades`."""
        every = np.concatenate([one.grades for one in self.facts])
        values, places = np.unique(every, return_inverse=True)
        counts = np.zeros(len(values))
        np.add.at(counts, places.reshape(-1), np.concatenate([one.counts for one in self.facts]))
        if np.isinf(counts).any():
            raise DataError(f"There are more than {work.MOST_GRADES} distinct labels; these are no grades. Use Linear.")
        return values, counts

    def whole(self, weighted: bool = True) -> work.Whole:
        """What a partition must know of the others."""
        weight = sum(one.weight for one in self.facts) if weighted else float(self.n_queries)
        return work.Whole(weight, np.unique(np.concatenate([one.grades for one in self.facts])))

    def objective(
        self,
        scorer: Scorer,
        loss: Loss,
        standardisation: Standardisation,
        threads: int | None,
        *,
        weighted: bool = True,
    ) -> ClusterObjective:
        """See `Source.objective`.

        A partition is worked on by one thread, unless `threads` says more: a worker with several of Dask's threads
        takes several partitions at a time.
        """
        check_loss(loss, self.facts)
        whole = self.whole(weighted)
        made = self.rows.then(work.part_objective, scorer, loss, standardisation, whole, weighted, threads or 1)
        return ClusterObjective(made, scorer.n_weights, curved=loss.traits.space == "score")

    def score_spread(self, standardisation: Standardisation, direction: FloatArray) -> float:
        """See `Source.score_spread`."""
        n, total, _ = self.rows.total(work.score_sums, standardisation, direction, 0.0)
        return float(np.sqrt(self.rows.total(work.score_sums, standardisation, direction, total / n)[2] / n))

    def judge(self, metric: str, convention: str, threads: int | None) -> ScoreJudge:
        """See `Source.judge`."""
        rules, measure = Convention.of(convention), parse(metric)
        top = max(self.rows.each(settled_top, rules.unjudged))

        def value(score: Score) -> float:
            parts = self.rows.each(
                part_values, score, [measure], rules, {"max_grade": top if top > 0 else None, "threads": threads or 1}
            )
            values = np.concatenate([part.by_metric[0] for part in parts])
            return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

        return ScoreJudge(measure, rules, value)

    def boost(self, ranker: Any, valid: Any) -> tuple[Any, Any]:
        """See `Source.boost`."""
        from toprank.cluster.trees import boost

        result: tuple[Any, Any] = boost(self, ranker, valid)
        return result

    def __repr__(self) -> str:
        return (
            f"Placed({len(self.facts)} partitions, {self.n_queries:,} queries, {self.n_documents:,} documents, "
            f"{self.n_features} features)"
        )


class ClusterObjective:
    """The mean loss over all queries, from sums over partitions; a solver cannot tell it from one in memory."""

    def __init__(self, made: Spread, n_weights: int, curved: bool) -> None:
        self.made, self.n_weights = made, n_weights
        if not curved:  # several scores a document: products of the curvature only
            self.hessian = None  # type: ignore[assignment,method-assign]

    def value_and_grad(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """The mean loss and its gradient."""
        value, grad = self.made.total(work.value_and_grad, weights)
        return float(value), grad

    def hessian(self, weights: FloatArray) -> FloatArray:
        """The curvature."""
        result: FloatArray = self.made.total(work.hessian, weights)[0]
        return result

    def hessian_times(self, weights: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The map v ↦ H v; what it needs is prepared on the workers and stays there."""
        prepared = self.made.then(work.products, weights)

        def times(vector: FloatArray) -> FloatArray:
            result: FloatArray = prepared.total(work.product, vector)[0]
            return result

        return times


def _check_alike(facts: Sequence[work.Facts]) -> None:
    """Refuse partitions whose columns differ."""
    first = facts[0]
    for one in facts[1:]:
        where = f"{one.name} differs from {first.name}"
        if one.n_features != first.n_features:
            raise DataError(
                f"{where}: it has {one.n_features} features instead of {first.n_features}. Name the columns with "
                "features=[...], or give n_features= for text files whose trailing features are absent."
            )
        if one.feature_names != first.feature_names:
            theirs, ours = one.feature_names or ("no names",), first.feature_names or ("no names",)
            other = next((a, b) for a, b in zip(theirs, ours, strict=False) if a != b)
            raise DataError(f"{where}: a feature is called '{other[0]}' instead of '{other[1]}'.")
        if one.sparse != first.sparse:
            raise DataError(f"{where}: one has sparse features and the other dense ones.")
        if one.qids.dtype.kind != first.qids.dtype.kind:
            raise DataError(f"{where}: query ids are whole numbers in one and text in the other.")
        if one.columns != first.columns:
            name = next(iter(set(one.columns) ^ set(first.columns)))
            raise DataError(
                f"{where}: {name} are there in one and not in the other. Give them everywhere, or drop them."
            )


_BY_PLACE = {
    "XENDCG": ("gamma", "uniform", "gamma=0.5, its expectation"),
    "ListMLE": ("ties", "random", "ties='efron'"),
    "PListMLE": ("ties", "random", "ties='efron'"),
    "CostSensitiveListMLE": ("ties", "random", "ties='efron'"),
}


def check_loss(loss: Loss, facts: Sequence[work.Facts]) -> None:
    """Refuse losses whose value depends on how the data are cut into partitions."""
    name = type(loss).__name__
    option, drawn, instead = _BY_PLACE.get(name, ("", "", ""))
    if option and getattr(loss, option) == drawn:
        raise DataError(
            f"{name} with {option}='{drawn}' draws by the place of each document, which partitions do not know; use "
            f"{instead}."
        )
    if name == "BoltzRank":
        raise DataError(
            "BoltzRank draws rankings by the place of each query, which partitions do not know; use ListNet."
        )
    if getattr(loss, "scheme", "") == "grade" and any(np.isinf(one.counts).any() for one in facts):
        raise DataError(f"The weights of {name} need all distinct labels, but there are more than {work.MOST_GRADES}.")


def placed(runner: Runner, parts: Parts) -> Placed:
    """Place partitions; files of tables are read by the columns of the first."""
    (alike,) = Root(runner, lambda: Placement([], [])).steadily(lambda: runner.results([runner.submit(agreed, parts)]))
    return Placed(runner, alike)
