"""Scores and metrics of data on a cluster: workers score and judge their own partitions, and write their own files.

Predictions come in the order in which the rows were given, wherever the rows have been moved since.
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

from toprank.cluster.work import WorkerRows, in_sentences
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
    from toprank.cluster.dataset import Placed
    from toprank.rankers.base import Ranker


class PartitionValues(NamedTuple):
    """The values of metrics in a partition.

    Attributes:
        by_metric: For each metric, a number for each query.
    """

    by_metric: list[FloatArray]
    qids: npt.NDArray[Any]
    n_documents: int
    query_weights: FloatArray | None


def _judged_part(data: RankingData, unjudged: str) -> npt.NDArray[np.bool_] | None:
    """Return which documents are judged if the rule could leave a partition without any query, else None."""
    if unjudged not in ("condense", "drop") or data.judged.all():
        return None
    return data.judged if unjudged == "condense" else data.queries.broadcast(data.queries.min(data.judged))


@in_sentences
def settled_top(rows: WorkerRows, unjudged: str) -> float:
    """Return the largest label after the rule for unjudged documents is applied; -inf if nothing is left."""
    data = rows.present
    kept = _judged_part(data, unjudged)
    labels = data.labels if kept is None else data.labels[kept]
    if unjudged == "irrelevant":
        labels = np.where(data.judged, labels, 0.0)
    return float(labels.max()) if len(labels) else -np.inf


def judged_top(rows: WorkerRows, metric: str, convention: str) -> float | None:
    """Return what `settled_top` does; None if the metric does not accept the labels."""
    try:
        BoundMetric(rows.present, metric, convention=convention, threads=1)(np.zeros(rows.present.n_documents))
    except DataError:
        return None
    return settled_top(rows, Convention.from_name(convention).unjudged)


@in_sentences
def part_values(
    rows: WorkerRows, score: Any, metrics: Sequence[Measure], convention: Convention, options: dict[str, Any]
) -> PartitionValues:
    """Evaluate a partition. `score` is a function of rows, or a ranker, which may look at the whole query."""
    data = rows.present
    kept = _judged_part(data, options.get("unjudged") or convention.unjudged)
    if kept is not None and not kept.any():
        return PartitionValues([np.zeros(0) for _ in metrics], data.qids[:0], 0, None)
    settings: dict[str, Any] = {"threads": 1, "order": "data"} | options
    evaluation = evaluate(scores_of(score, data), data, metrics, convention=convention, **settings)
    values = [evaluation.per_query[str(metric)] for metric in metrics]
    return PartitionValues(values, evaluation.qids, evaluation.n_documents, evaluation.query_weights)


class Extremes(NamedTuple):
    """Whether a metric is the same for the best and the worst order of a partition's queries, and their labels."""

    level: bool
    lowest: float
    highest: float


@in_sentences
def part_extremes(rows: WorkerRows, measure: Measure, convention: Convention, max_grade: float | None) -> Extremes:
    """Return a partition's part of the answer whether a metric can choose; see `BoundMetric.for_selection`."""
    data = rows.present
    kept = _judged_part(data, convention.unjudged)
    if kept is not None and not kept.any():
        return Extremes(True, np.inf, -np.inf)
    judge = BoundMetric(data, measure, convention=convention, max_grade=max_grade, threads=1)
    labels = np.where(data.judged, data.labels, 0.0)
    return Extremes(np.array_equal(*judge.extremes(), equal_nan=True), float(labels.min()), float(labels.max()))


class PartScores(NamedTuple):
    """Scores of a partition's documents, and where these stood when the data were given; see `WorkerRows`."""

    values: FloatArray
    order: IntArray | None
    owners: IntArray | None

    @property
    def places(self) -> IntArray:
        """Where each document stood in the partition that it was given in."""
        return np.arange(len(self.values)) if self.order is None else self.order


@in_sentences
def part_scores(rows: WorkerRows, ranker: Ranker) -> PartScores:
    """Score a partition's documents, as they lie."""
    return PartScores(scores_of(ranker, rows.present), rows.order, rows.owners)


@in_sentences
def scores_from(scores: PartScores, holder: int, owner: int) -> tuple[FloatArray, IntArray]:
    """Return the scores in partition `holder` of rows that were given in partition `owner`, and their places there."""
    if scores.owners is None:
        assert holder == owner
        return scores.values, scores.places
    own = scores.owners == owner
    return scores.values[own], scores.places[own]


@in_sentences
def write_scores_of(path: str, name: str, size: int, *pieces: tuple[FloatArray, IntArray]) -> None:
    """Write the scores of a partition's rows in the order in which they were given; an empty file if it has no rows."""
    if sum(len(values) for values, _ in pieces) != size:
        raise DataError(f"{name} has other rows than when it was placed; place it again.")
    scores = np.empty(size)
    for values, order in pieces:
        scores[order] = values
    write_scores(scores, path)


@in_sentences
def begin(folder: str, aside: str) -> None:
    """Make the folder for files that are not all written yet; may be called again."""
    with os_errors(folder, "written"), suppress(FileExistsError):
        os.mkdir(aside)


@in_sentences
def finish(folder: str, aside: str, names: Sequence[str]) -> None:
    """Move the files to their place, instead of those of an earlier call; may be called again if it was cut short.

    The first file is removed first and comes last, so that if it is there the set is whole.
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
    """Remove what was not finished; try for a while, since a canceled writer may still be at its last file."""
    for _ in range(100):
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.exists(aside):
            return
        time.sleep(0.1)


def scores_of(score: Score | Any, data: RankingData) -> FloatArray:
    """Score documents by a ranker, or by a function of the rows."""
    result: FloatArray = score.predict(data) if hasattr(score, "predict") else score(data.X)
    return result


def predicted(placed: Placed, ranker: Ranker) -> FloatArray:
    """Return the scores of all documents: partition after partition, in the order in which the rows were given."""
    parts = placed.rows.each(part_scores, ranker)
    starts = offsets_of(placed.sizes)
    scores = np.empty(starts[-1])
    if sum(len(part.values) for part in parts) != len(scores):
        raise DataError("The partitions have other rows than when they were placed; place them again.")
    for number, part in zip(placed.stored_rows.kept, parts, strict=True):
        scores[starts[number if part.owners is None else part.owners] + part.places] = part.values
    return scores


def write_predicted(placed: Placed, ranker: Ranker, folder: str | os.PathLike[str]) -> list[str]:
    """Write the scores of each partition, as it was given, to a file of its own; all files appear, or none."""
    runner, root = placed.runner, os.path.abspath(folder)
    aside = os.path.join(root, f".scores-{secrets.token_hex(8)}")
    names = [f"part-{number:05d}.scores" for number in range(len(placed.parts))]

    def on_a_worker(function: Any, *args: Any) -> Any:
        return placed.rows.root.steadily(lambda: runner.results([runner.submit(function, *args)]))

    on_a_worker(begin, root, aside)
    try:
        placed.rows.root.steadily(lambda: _write_aside(placed, ranker, [os.path.join(aside, name) for name in names]))
        on_a_worker(finish, root, aside, names)
    except BaseException:
        with suppress(Exception):  # the first error is raised, not this one
            on_a_worker(discard, aside)
        raise
    return [os.path.join(root, name) for name in names]


def _write_aside(placed: Placed, ranker: Ranker, paths: list[str]) -> None:
    """Score the partitions, send the scores of moved rows back to where the rows came from, and write."""
    runner, homes = placed.runner, placed.stored_rows.homes
    futures, places = placed.rows.placement()
    scored = dict(zip(placed.stored_rows.kept, runner.each(part_scores, futures, ranker, homes=places), strict=True))
    runner.wait(list(scored.values()), places)  # if a score fails, nothing is written
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
