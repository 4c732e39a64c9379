"""Scores and metrics of distributed data: workers score and evaluate their own partitions, and write their own files.

Predictions follow the original order of the rows, wherever the rows have been moved.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.cluster.work import WorkerRows, as_toprank_errors
from toprank.compute import FloatArray, IntArray, offsets_of
from toprank.data.bytesource import os_errors
from toprank.data.dataset import RankingData
from toprank.data.scores import write_scores
from toprank.errors import DataError
from toprank.evaluation.scores import BoundMetric, evaluate
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.rankers.source import Score

if TYPE_CHECKING:
    from toprank.cluster.dataset import DistributedData
    from toprank.rankers.base import Ranker


class PartitionValues(NamedTuple):
    """Metric values in a partition.

    Attributes:
        by_metric: Per-query values of each metric.
    """

    by_metric: list[FloatArray]
    qids: npt.NDArray[Any]
    n_documents: int
    query_weights: FloatArray | None


def _judged_part(data: RankingData, unjudged: str) -> npt.NDArray[np.bool_] | None:
    """Return a mask of judged documents if the rule could remove all queries of a partition, else None."""
    if unjudged not in ("condense", "drop") or data.judged.all():
        return None
    return data.judged if unjudged == "condense" else data.queries.broadcast(data.queries.min(data.judged))


@as_toprank_errors
def max_label(rows: WorkerRows, unjudged: str) -> float:
    """Return the largest label after applying the rule for unjudged documents; -inf if no document remains."""
    data = rows.present
    kept = _judged_part(data, unjudged)
    labels = data.labels if kept is None else data.labels[kept]
    if unjudged == "irrelevant":
        labels = np.where(data.judged, labels, 0.0)
    return float(labels.max()) if len(labels) else -np.inf


def valid_max_label(rows: WorkerRows, metric: str, convention: str) -> float | None:
    """Return the result of `max_label`; None if the metric does not accept the labels."""
    try:
        BoundMetric(rows.present, metric, convention=convention, threads=1)(np.zeros(rows.present.n_documents))
    except DataError:
        return None
    return max_label(rows, Convention.from_name(convention).unjudged)


@as_toprank_errors
def part_values(
    rows: WorkerRows, score: Any, metrics: Sequence[Measure], convention: Convention, options: dict[str, Any]
) -> PartitionValues:
    """Evaluate a partition. `score` is a function of rows, or a ranker that may use the whole query."""
    data = rows.present
    kept = _judged_part(data, options.get("unjudged") or convention.unjudged)
    if kept is not None and not kept.any():
        return PartitionValues([np.zeros(0) for _ in metrics], data.qids[:0], 0, None)
    settings: dict[str, Any] = {"threads": 1, "order": "data"} | options
    evaluation = evaluate(scores_of(score, data), data, metrics, convention=convention, **settings)
    values = [evaluation.per_query[str(metric)] for metric in metrics]
    return PartitionValues(values, evaluation.qids, evaluation.n_documents, evaluation.query_weights)


class Extremes(NamedTuple):
    """Range of labels, and whether a metric has the same value for the best and the worst order of all queries."""

    level: bool
    lowest: float
    highest: float


@as_toprank_errors
def part_extremes(rows: WorkerRows, measure: Measure, convention: Convention, max_grade: float | None) -> Extremes:
    """Return for a partition whether the metric can distinguish rankings; see `BoundMetric.for_selection`."""
    data = rows.present
    kept = _judged_part(data, convention.unjudged)
    if kept is not None and not kept.any():
        return Extremes(True, np.inf, -np.inf)
    judge = BoundMetric(data, measure, convention=convention, max_grade=max_grade, threads=1)
    labels = np.where(data.judged, data.labels, 0.0)
    return Extremes(np.array_equal(*judge.extremes(), equal_nan=True), float(labels.min()), float(labels.max()))


class PartScores(NamedTuple):
    """Scores of a partition's documents, and their original positions; see `WorkerRows`."""

    values: FloatArray
    order: IntArray | None
    owners: IntArray | None

    @property
    def places(self) -> IntArray:
        """Position of each document in its original partition."""
        return np.arange(len(self.values)) if self.order is None else self.order


@as_toprank_errors
def part_scores(rows: WorkerRows, ranker: Ranker) -> PartScores:
    """Score a partition's documents, in their current order."""
    return PartScores(scores_of(ranker, rows.present), rows.order, rows.owners)


@as_toprank_errors
def scores_from(scores: PartScores, holder: int, owner: int) -> tuple[FloatArray, IntArray]:
    """Return the scores of the rows in partition `holder` that originate from partition `owner`, and their positions
    there.
    """
    if scores.owners is None:
        assert holder == owner
        return scores.values, scores.places
    own = scores.owners == owner
    return scores.values[own], scores.places[own]


@as_toprank_errors
def write_scores_of(path: str, name: str, size: int, *pieces: tuple[FloatArray, IntArray]) -> None:
    """Write the scores of a partition's rows in their original order; an empty file if it has no rows."""
    if sum(len(values) for values, _ in pieces) != size:
        raise DataError(f"{name} has other rows than when it was loaded; distribute the data again.")
    scores = np.empty(size)
    for values, order in pieces:
        scores[order] = values
    write_scores(scores, path)


@as_toprank_errors
def begin(folder: str, aside: str) -> None:
    """Create the temporary folder for the files; may be called again."""
    with os_errors(folder, "written"), suppress(FileExistsError):
        os.mkdir(aside)


@as_toprank_errors
def finish(folder: str, aside: str, names: Sequence[str]) -> None:
    """Move the files to their destination in place of the previous files; may be repeated after an interruption.

    The first file is removed first and added last, so that its presence implies a complete set.
    """
    with os_errors(folder, "written"):
        if not os.path.isdir(aside):
            return
        new = set(os.listdir(aside))
        for old in sorted(os.listdir(folder)):
            if re.fullmatch(r"part-[0-9]{5,}\.scores", old) and (old in new or old not in names):
                os.unlink(os.path.join(folder, old))
        for name in reversed(names):
            if name in new:
                os.replace(os.path.join(aside, name), os.path.join(folder, name))
        shutil.rmtree(aside)


def discard(aside: str) -> None:
    """Remove unfinished files; retry for a while, since a canceled task may still write its last file."""
    for _ in range(100):
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.exists(aside):
            return
        time.sleep(0.1)


def scores_of(score: Score | Any, data: RankingData) -> FloatArray:
    """Score documents with a ranker, or with a function of the rows."""
    result: FloatArray = score.predict(data) if hasattr(score, "predict") else score(data.X)
    return result


def predicted(placed: DistributedData, ranker: Ranker) -> FloatArray:
    """Return the scores of all documents, partition by partition, in the original order of the rows."""
    parts = placed.rows.each(part_scores, ranker)
    starts = offsets_of(placed.sizes)
    scores = np.empty(starts[-1])
    if sum(len(part.values) for part in parts) != len(scores):
        raise DataError("The partitions have other rows than when they were loaded; distribute the data again.")
    for number, part in zip(placed.stored_rows.kept, parts, strict=True):
        scores[starts[number if part.owners is None else part.owners] + part.places] = part.values
    return scores


def write_partition_scores(placed: DistributedData, ranker: Ranker, folder: str | os.PathLike[str]) -> list[str]:
    """Write the scores of each original partition to a separate file; all files appear, or none."""
    runner, root = placed.runner, os.path.abspath(folder)
    aside = os.path.join(root, f".scores-{secrets.token_hex(8)}")
    names = [f"part-{number:05d}.scores" for number in range(len(placed.parts))]

    def on_a_worker(function: Any, *args: Any) -> Any:
        return placed.rows.root.retry_lost(lambda: runner.results([runner.submit(function, *args)]))

    on_a_worker(begin, root, aside)
    try:
        placed.rows.root.retry_lost(
            lambda: _write_temporary(placed, ranker, [os.path.join(aside, name) for name in names])
        )
        on_a_worker(finish, root, aside, names)
    except BaseException:
        with suppress(Exception):  # raise the original error, not this one
            on_a_worker(discard, aside)
        raise
    return [os.path.join(root, name) for name in names]


def _write_temporary(placed: DistributedData, ranker: Ranker, paths: list[str]) -> None:
    """Score the partitions, send the scores of moved rows back to their original partitions, and write."""
    runner, homes = placed.runner, placed.stored_rows.homes
    futures, places = placed.rows.placement()
    scored = dict(zip(placed.stored_rows.kept, runner.each(part_scores, futures, ranker, homes=places), strict=True))
    runner.wait(list(scored.values()), places)  # write only if all scores succeed
    holders: list[set[int]] = [{number} & scored.keys() for number in range(len(paths))]
    for move in placed.stored_rows.moves:
        holders[move.donor].add(move.home)
    written = []
    for number, path in enumerate(paths):
        pieces = [
            runner.submit(scores_from, scored[holder], holder, number, workers=[homes[holder]])
            for holder in sorted(holders[number])
        ]
        name, size = placed.parts.sources[number].name, placed.sizes[number]
        written.append(runner.submit(write_scores_of, path, name, size, *pieces, workers=[homes[number]]))
    runner.results(written, homes)
