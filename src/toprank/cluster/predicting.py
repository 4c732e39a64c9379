"""Predictions for partitioned data, in the order in which the rows were given, wherever they were brought since."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import Any

import numpy as np

from toprank.cluster.judging import begin, discard, finish, part_scores, scores_from, write_scores_of
from toprank.cluster.placed import Placed
from toprank.compute import FloatArray
from toprank.errors import DataError

__all__ = ["predicted", "write_predicted"]


def predicted(placed: Placed, ranker: Any) -> FloatArray:
    """Scores of all documents: partition after partition, in the order of their rows."""
    found = placed.rows.each(part_scores, ranker)
    starts = np.concatenate([[0], np.cumsum(placed.sizes)])
    scores = np.empty(starts[-1])
    if sum(len(part.values) for part in found) != len(scores):
        raise DataError("The partitions have other rows than when they were placed; place them again.")
    for number, part in zip(placed.holding.kept, found, strict=True):
        order = np.arange(len(part.values)) if part.order is None else part.order
        scores[starts[number if part.owners is None else part.owners] + order] = part.values
    return scores


def write_predicted(placed: Placed, ranker: Any, folder: str | os.PathLike[str]) -> list[str]:
    """The scores of each partition, as it was given, in a file of its own; all files appear, or none."""
    runner, root = placed.runner, os.path.abspath(folder)
    aside = os.path.join(root, f".scores-{secrets.token_hex(8)}")
    names = [f"part-{number:05d}.scores" for number in range(len(placed.parts))]

    def one(function: Any, *args: Any) -> Any:
        return placed.rows.steadily(lambda: runner.results([runner.submit(function, *args)]))

    one(begin, root, aside)
    try:
        placed.rows.steadily(lambda: _write_aside(placed, ranker, [os.path.join(aside, name) for name in names]))
        one(finish, root, aside, names)
    except BaseException:
        with suppress(Exception):  # what went wrong first is what is told
            one(discard, aside)
        raise
    return [os.path.join(root, name) for name in names]


def _write_aside(placed: Placed, ranker: Any, paths: list[str]) -> None:
    """Score the partitions, send the scores of rows that were moved back where they came from, and write."""
    runner, homes = placed.runner, placed.holding.homes
    futures, places = placed.rows.placement()
    scored = dict(zip(placed.holding.kept, runner.each(part_scores, futures, ranker, homes=places), strict=True))
    runner.wait(list(scored.values()), places)  # where a score fails, nothing is written
    holders: list[set[int]] = [{number} & scored.keys() for number in range(len(paths))]
    for move in placed.holding.moves:
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
