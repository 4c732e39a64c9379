"""`fuse`: one run of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.data.arguments import check_number, check_whole
from toprank.data.trec import Qrels, Run
from toprank.errors import DataError, Remedy, UnknownNameError
from toprank.fusion.combination import METHODS, RANK_METHODS, RRF_K, combine
from toprank.fusion.learning import FusionLearning, LearnedScores, learned_order, learned_weights
from toprank.fusion.query_runs import QueryRuns

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker


@dataclass(frozen=True, eq=False, repr=False)
class Fused(Run):
    """A run that was fused from others; `summary` says how.

    Attributes:
        weights: the weights of the runs in a weighted sum: one set if they were given, else one for each fold.
    """

    summary: str = ""
    weights: tuple[tuple[float, ...], ...] = ()


def fuse(
    runs: Mapping[str, Any],
    method: str = "rrf",
    *,
    normalization: str | None = None,
    weights: Mapping[str, float] | Sequence[float] | None = None,
    rrf_k: float = RRF_K,
    depth: int | None = None,
    qrels: Any = None,
    ranker: str | Ranker = "LambdaMART",
    metric: str = "ndcg@10",
    folds: int = 5,
    seed: int = 0,
    threads: int | None = None,
) -> Fused:
    """Make one run of several, query by query; a query is answered by those runs that answer it.

    | method | what a document gets |
    |---|---|
    | ``rrf`` | the sum of 1 / (k + rank) |
    | ``combsum``, ``combmnz`` | the sum of its scores; that times the number of runs that have it |
    | ``combmax``, ``combmin`` | the largest, the least of its scores |
    | ``weighted`` | a weighted sum of its scores |
    | ``borda``, ``condorcet`` | points of an election: by place, or for each document beaten in most runs |
    | ``learned`` | the score of a ranker that looks at scores and ranks |

    Args:
        runs: by name: `Run`, file, ``{query: {document: score}}`` or frame.
        method: how.
        normalization: of scores: ``none``, ``min-max`` (default), ``max``, ``sum``, ``z-score``, ``rank``; a document
            that a run does not have counts 0.
        weights: of the runs, for ``weighted``. Without them they are chosen with `qrels`.
        rrf_k: constant k of ``rrf``, added to every rank. Default: 60.
        depth: how many documents of each run and query count; None: all.
        qrels: judgments, for ``weighted`` without weights and for ``learned``: each fold of the queries is scored by
            what was learned on the others, so the run may be evaluated with the same judgments.
        ranker: for ``learned``: the name of a system, or an unfitted ranker.
        metric: what weights and hyper-parameters are chosen by.
        folds: number of folds, for methods that learn.
        seed: of the folds.
        threads: number of threads.

    >>> runs = {"bm25": {"q": {"a": 9.0, "b": 8.0, "c": 1.0}}, "dense": {"q": {"b": 0.9, "d": 0.8}}}
    >>> fuse(runs).document_ids.tolist()
    ['b', 'a', 'd', 'c']
    """
    _check(method, normalization, weights, qrels)
    check_number("rrf_k", rrf_k, above=0)
    check_whole("folds", folds, least=2)
    if depth is not None:
        check_whole("depth", depth, least=1)
    if not isinstance(runs, Mapping):
        raise DataError("Runs are fused by name: give a dictionary such as {'bm25': run, 'dense': other_run}.")
    query_runs = QueryRuns.from_runs(runs, depth)
    scale = normalization or "min-max"
    shares = None if weights is None else _weights_of(weights, query_runs.names)
    learning = FusionLearning(ranker, metric, folds, seed, threads)
    if method == "learned":
        fused = learned_order(query_runs, _judgments(method, qrels), learning)
    elif method == "weighted" and shares is None:
        fused = learned_weights(query_runs, _judgments(method, qrels), scale, learning)
    else:
        sentence = f"{method} of {', '.join(query_runs.names)}" + ("" if method in RANK_METHODS else f", {scale}") + "."
        fused = LearnedScores(
            combine(query_runs, method, scale, shares, rrf_k), sentence, () if shares is None else (shares,)
        )
    run = query_runs.run(fused.scores, method)
    return Fused(run.qids, run.document_ids, run.scores, method, fused.sentence, fused.weights)


def _check(method: Any, normalization: str | None, weights: Any, qrels: Any) -> None:
    """Refuse a method that does not exist, and arguments that it does not take."""
    if method not in METHODS:
        raise UnknownNameError("method of fusion", str(method), METHODS)
    if normalization is not None and method in (*RANK_METHODS, "learned"):
        raise DataError(f"The method '{method}' takes no normalization: leave it out.")
    if weights is not None and method != "weighted":
        raise DataError(f"The method '{method}' takes no weights; 'weighted' does.")
    if qrels is not None and weights is not None:
        raise DataError(
            "With weights given, judgments would change nothing;",
            remedy=Remedy("leave out {qrels}, or {weights}.", qrels=..., weights=...),
        )
    if qrels is not None and method not in ("weighted", "learned"):
        raise DataError(
            f"The method '{method}' learns nothing from judgments;",
            remedy=Remedy("leave out {qrels}, or choose 'weighted' or 'learned'.", qrels=...),
        )


def _judgments(method: str, qrels: Any) -> Qrels:
    if qrels is None:
        problem = "'weighted' without weights chooses them" if method == "weighted" else "'learned' learns"
        give = Remedy("give {qrels}.", qrels=...)
        raise DataError(f"The method {problem} from judgments;", remedy=give)
    return Qrels.from_source(qrels)


def _weights_of(weights: Mapping[str, float] | Sequence[float], names: tuple[str, ...]) -> tuple[float, ...]:
    """A weight for each run."""
    if isinstance(weights, Mapping):
        for name in weights:
            if name not in names:
                raise UnknownNameError("run", str(name), names)
        weights = [weights.get(name, 0.0) for name in names]
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (len(names),) or not np.isfinite(values).all() or not values.any():
        raise DataError(f"weights must be a finite number for each of the {len(names)} runs, not all 0.")
    return tuple(values.tolist())
