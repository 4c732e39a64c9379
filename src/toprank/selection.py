"""Choose hyper-parameters on validation data, and on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from toprank.compute import each_block
from toprank.data.dataset import RankingData
from toprank.losses import make as make_loss
from toprank.metrics.evaluation import Judge
from toprank.metrics.parsing import parse
from toprank.rankers.base import warn_unconverged
from toprank.systems import System, get

__all__ = ["Selected", "select"]

_PATHS = ("LinearRanker", "ExpectedGainRanker")  # rankers that take several penalties at once, each from the last
_ROUGH = 1e-4  # relative duality gap that suffices to tell candidates apart


@dataclass(frozen=True)
class Selected:
    """The ranker that validation data prefer, and everything that was tried."""

    system: str
    ranker: Any
    options: dict[str, Any]
    """The chosen hyper-parameters."""
    metric: str
    value: float
    """The metric of the ranker that is kept, on the validation data."""
    tried: list[dict[str, Any]]
    """One row per candidate: its hyper-parameters and `valid`, the metric."""


def select(
    system: System | str,
    train: RankingData,
    valid: RankingData,
    *,
    metric: str | None = None,
    convention: str = "standard",
    threads: int | None = None,
    **options: Any,
) -> Selected:
    """Search a system's grid: fit on `train`, choose on `valid`.

    Args:
        system: a system or its name.
        train: data to fit on.
        valid: data to choose on.
        metric: what to choose by; None: what the system's source chooses by.
        convention: the rules of the metric.
        threads: number of threads, over candidates; results do not depend on it (those of trees and networks to
            rounding, where a candidate has several threads to itself).
        options: hyper-parameters to fix; they are taken out of the grid.

    >>> import toprank as tr
    >>> train, valid = tr.split(tr.synthetic(n_queries=60, seed=0), (0.5, 0.5))
    >>> select("LeastSquares", train, valid).options["l2"] in get("LeastSquares").grid["l2"]
    True
    """
    chosen = get(system) if isinstance(system, str) else system
    judged = metric or options.pop("metric", None) or chosen.metric
    better = 1.0 if parse(judged).higher_is_better else -1.0
    options = chosen.plain_options(options)
    options.pop("threads", None)
    grid = {name: values for name, values in chosen.grid.items() if name not in options}
    penalties = grid.pop("l2", None) if chosen.ranker in _PATHS else None
    combinations = _distinct([dict(zip(grid, values, strict=True)) for values in product(*grid.values())])
    # Several combinations share the cores, one each; a single one may have them all. So may each of several networks:
    # PyTorch has one setting for the number of threads, and one device, so they are trained one after the other.
    at_once = 1 if chosen.ranker == "NeuralRanker" else threads
    own_threads = 1 if len(combinations) > 1 and at_once != 1 else threads
    if len(combinations) * len(penalties or (None,)) > 1:
        Judge(valid, judged, convention=convention, threads=threads).for_choosing()
    shared = {**options, "metric": judged, "convention": convention, "threads": own_threads}
    rough = _rough(chosen)

    # Ctrl-C ends the search; what was fitted until then is judged. A candidate that it leaves nothing of is lost.
    stopped: list[bool] = []
    lost: list[bool] = []

    def fit(combination: dict[str, Any], l2: tuple[float, ...] | None) -> Any:
        if stopped:
            return None
        path = {} if l2 is None else {"l2": list(l2)}
        try:
            ranker = chosen.make(**{**shared, **combination, **path, **rough}).fit(train, valid=valid)
        except KeyboardInterrupt:
            stopped.append(True)
            lost.append(True)
            return None
        if any(row.get("interrupted") for row in _path(ranker, judged)):
            stopped.append(True)
        return ranker

    def value(ranker: Any) -> float:
        return float(better * max(better * row["valid"] for row in _path(ranker, judged)))

    found: dict[int, Any] = {}
    try:
        each_block(lambda i: found.update({i: fit(combinations[i], penalties)}), range(len(combinations)), at_once)
    except KeyboardInterrupt:  # while waiting for the other threads
        stopped.append(True)
        lost.append(True)
    kept = [i for i in sorted(found) if found[i] is not None]
    if not kept:
        raise KeyboardInterrupt
    combinations, fitted = [combinations[i] for i in kept], [found[i] for i in kept]
    tried = [{**one, **row} for one, ranker in zip(combinations, fitted, strict=True) for row in _path(ranker, judged)]
    best = int(np.argmax([better * value(ranker) for ranker in fitted]))
    ranker = fitted[best]
    if chosen.refine and penalties is not None and not stopped:
        again = fit(combinations[best], tuple(ranker.l2_ / factor for factor in chosen.refine))
        if again is not None:
            tried += [{**combinations[best], **row} for row in again.path_]
            ranker = max((ranker, again), key=lambda one: better * value(one))
    final, reached = dict(combinations[best]), value(ranker)
    if penalties is not None or "l2" in options:
        final["l2"] = getattr(ranker, "l2_", options.get("l2"))
    if rough and not stopped:  # the search was content with a rough optimum; the answer is not
        try:
            exact = chosen.make(**{**shared, **final}).fit(train, valid=valid)
        except KeyboardInterrupt:
            lost.append(True)
        else:
            if not exact.solution_.interrupted:
                ranker, reached = exact, value(exact)
    if lost:
        warn_unconverged(f"select: interrupted; the best of the {len(tried)} candidates tried until then is kept.")
    return Selected(chosen.name, ranker.set_params(threads=threads), final, judged, reached, tried)


def _path(ranker: Any, metric: str) -> list[dict[str, Any]]:
    """What the ranker tried by itself, a row each; one row where it looks after itself (rounds, restarts)."""
    if hasattr(ranker, "path_"):
        path: list[dict[str, Any]] = ranker.path_
        return path
    return [{"valid": float(ranker.training_["valid"][str(metric)])}]


def _rough(system: System) -> dict[str, float]:
    linear = system.ranker == "LinearRanker"  # the others do not solve to a gap
    kinked = linear and system.loss is not None and not make_loss(system.loss).traits.smooth
    return {"tolerance": _ROUGH} if kinked else {}


def _distinct(combinations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OWPC's share p means nothing to the weights 1/j and constant: try those once."""
    seen, kept = set(), []
    for one in combinations:
        key = {**one, "p": None} if one.get("weights") in ("1/j", "constant") else one
        if (mark := tuple(sorted((name, str(value)) for name, value in key.items()))) not in seen:
            seen.add(mark)
            kept.append(one)
    return kept
