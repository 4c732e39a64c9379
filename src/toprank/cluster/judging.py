"""Metrics and scores of a partition; these functions run on workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.cluster.work import Rows, in_sentences
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.scores import write_scores
from toprank.metrics.conventions import Convention
from toprank.metrics.evaluation import evaluate
from toprank.metrics.measure import Measure
from toprank.rankers.source import Score

__all__ = ["Values", "part_scores", "part_values", "settled_top", "write_part_scores"]


class Values(NamedTuple):
    """What an evaluation found in a partition."""

    by_metric: list[FloatArray]
    """A number for each query, metric by metric."""
    qids: npt.NDArray[Any]
    n_documents: int
    query_weights: FloatArray | None


def _judged_part(data: RankingData, unjudged: str) -> npt.NDArray[np.bool_] | None:
    """Which documents are judged, where the rule could leave a partition without any query; else None."""
    if unjudged not in ("condense", "drop") or data.judged.all():
        return None
    return data.judged if unjudged == "condense" else data.queries.spread(data.queries.min(data.judged))


@in_sentences
def settled_top(rows: Rows, unjudged: str) -> float:
    """The largest label once the rule for unjudged documents is applied; -inf where nothing is left."""
    data = rows.data
    assert data is not None
    kept = _judged_part(data, unjudged)
    labels = data.labels if kept is None else data.labels[kept]
    if unjudged == "irrelevant":
        labels = np.where(data.judged, labels, 0.0)
    return float(labels.max()) if len(labels) else -np.inf


@in_sentences
def part_values(
    rows: Rows, score: Any, metrics: Sequence[Measure], convention: Convention, options: dict[str, Any]
) -> Values:
    """Evaluate a partition. `score` is a function of rows, or a ranker, which may look at the whole query."""
    data = rows.data
    assert data is not None
    kept = _judged_part(data, options.get("unjudged") or convention.unjudged)
    if kept is not None and not kept.any():
        return Values([np.zeros(0) for _ in metrics], data.qids[:0], 0, None)
    found = evaluate(scores_of(score, data), data, metrics, convention=convention, **({"threads": 1} | options))
    values = [found.per_query[str(metric)] for metric in metrics]
    return Values(values, found.qids, found.n_documents, found.query_weights)


@in_sentences
def part_scores(rows: Rows, ranker: Any) -> FloatArray:
    """Scores of a partition's documents, in their order."""
    assert rows.data is not None
    return scores_of(ranker, rows.data)


@in_sentences
def write_part_scores(rows: Rows, path: str, ranker: Any) -> str:
    """Write the scores of a partition to a file of its own; its path."""
    assert rows.data is not None
    write_scores(scores_of(ranker, rows.data), path)
    return path


def scores_of(score: Score | Any, data: RankingData) -> FloatArray:
    """By a ranker, or by a function of the rows."""
    result: FloatArray = score.predict(data) if hasattr(score, "predict") else score(data.X)
    return result
