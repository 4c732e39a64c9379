"""`fuse`: combine several runs into one."""

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
    """A fused run.

    Attributes:
        summary: description of the fusion.
        weights: weights of the runs for ``weighted``: one tuple if given by the user, else one per fold.
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
    """Fuse several runs into one, query by query.

    | method | fused score of a document |
    |---|---|
    | ``rrf`` | reciprocal rank fusion: sum of 1 / (rrf_k + rank) |
    | ``combsum``, ``combmnz`` | sum of scores; the sum times the number of runs that retrieved the document |
    | ``combmax``, ``combmin`` | largest or smallest score |
    | ``weighted`` | weighted sum of scores |
    | ``borda``, ``condorcet`` | voting: points by rank, or number of documents beaten in a majority of runs |
    | ``learned`` | prediction of a ranker trained on scores and ranks |

    Args:
        runs: runs by name: `Run`, file, ``{query: {document: score}}`` or frame.
        method: fusion method. Default: ``"rrf"``.
        normalization: score normalization: ``none``, ``min-max`` (default), ``max``, ``sum``, ``z-score`` or ``rank``.
            Documents missing from a run count 0.
        weights: weights of the runs for ``weighted``. Default: chosen by cross-validation on `qrels`.
        rrf_k: constant k of ``rrf``, added to every rank. Default: 60.
        depth: number of documents to use per run and query. Default: all.
        qrels: judgments for ``weighted`` without weights and for ``learned``. Scores are out of fold, so the fused run
            may be evaluated on the same judgments.
        ranker: name of a system, or an unfitted ranker, for ``learned``. Default: ``"LambdaMART"``.
        metric: metric to choose weights and hyperparameters by. Default: NDCG@10.
        folds: number of cross-validation folds. Default: 5.
        seed: random seed of the folds. Default: 0.
        threads: number of threads. Default: all cores.

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
        raise DataError("Runs must be given by name, such as {'bm25': run, 'dense': other_run}.")
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
    """Raise an error for an unknown method, or for arguments that the method does not take."""
    if method not in METHODS:
        raise UnknownNameError("fusion method", str(method), METHODS)
    if normalization is not None and method in (*RANK_METHODS, "learned"):
        raise DataError(f"The method '{method}' takes no normalization. Leave it out.")
    if weights is not None and method != "weighted":
        raise DataError(f"The method '{method}' takes no weights. Leave them out, or use 'weighted'.")
    if qrels is not None and weights is not None:
        raise DataError(
            "Judgments are unused if weights are given.",
            remedy=Remedy("Leave out {qrels} or {weights}.", qrels=..., weights=...),
        )
    if qrels is not None and method not in ("weighted", "learned"):
        raise DataError(
            f"The method '{method}' does not use judgments.",
            remedy=Remedy("Leave out {qrels}, or use 'weighted' or 'learned'.", qrels=...),
        )


def _judgments(method: str, qrels: Any) -> Qrels:
    if qrels is None:
        name = "'weighted' without weights" if method == "weighted" else "'learned'"
        raise DataError(f"The method {name} needs judgments.", remedy=Remedy("Pass {qrels}.", qrels=...))
    return Qrels.from_source(qrels)


def _weights_of(weights: Mapping[str, float] | Sequence[float], names: tuple[str, ...]) -> tuple[float, ...]:
    """Return the weights in the order of the runs."""
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
        raise DataError(
            f"weights must contain one finite number for each of the {len(names)} runs, and not all may be 0."
        )
    return tuple(values.tolist())
