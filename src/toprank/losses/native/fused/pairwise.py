"""Pairs, lambdas and smooth ranks by kernels: what they prepare once for a batch, and what they launch."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from toprank.losses.approx import ApproxMetric, ApproxNDCG
from toprank.losses.lambdaloss import LambdaLoss
from toprank.losses.lambdarank import LambdaRank
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.fused.lambda_kernel import lambda_pass
from toprank.losses.native.fused.pair_kernel import pair_pass
from toprank.losses.native.fused.ranks import (
    LOG2,
    by_rank,
    groups_only,
    launch,
    pointer,
    rank_table,
    width_of,
)
from toprank.losses.native.fused.smooth_kernels import flow_pass, smooth_pass
from toprank.losses.native.gains import gains_of
from toprank.losses.native.rank_steps import Distances
from toprank.losses.pairwise import Hinge, Logistic, SquaredHinge
from toprank.metrics.graded import DCG, NDCG
from toprank.metrics.parsing import parse

__all__ = ["lambdaloss", "lambdarank", "pairs", "smooth"]

_KINDS: dict[type, int] = {Logistic: 0, Hinge: 1, SquaredHinge: 2}


def pairs(loss: Logistic | Hinge | SquaredHinge, frame: Frame) -> Judge:
    """See `toprank.losses.native.pairs`."""
    margins, weights = None, frame.document_weights
    if loss.pair_weight == "margin":
        margins = frame.labels if loss.gain is None else gains_of(frame, loss.gain, loss.max_grade)
    ranks, n = by_rank(frame, frame.labels, groups_only(frame)), frame.n_documents
    options = {
        "KIND": _KINDS[type(loss)],
        "DIFFERENCE": loss.pair_weight == "difference",
        "MARGIN": margins is not None,
        "WEIGHTED": weights is not None,
    }

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        scores = scores.contiguous()
        grad, losses = torch.empty_like(scores), torch.empty_like(scores)
        arrays = scores, frame.labels, pointer(margins, scores), pointer(weights, scores)
        launch(frame, pair_pass, *arrays, ranks, frame.scale, frame.offsets, grad, losses, n, **options)
        return losses.sum(), grad

    return judge


def lambdarank(loss: LambdaRank, frame: Frame) -> Judge | None:
    """See `toprank.losses.native.lambdas`."""
    measure = parse(loss.metric)
    assert isinstance(measure, DCG)
    discount = measure.discount or LOG2
    if discount.function is not None:
        return None  # it may not like ranks beyond the longest query
    gains, by_gain = gains_of(frame, measure.gain or loss.gain), None
    if isinstance(measure, NDCG):
        depth = loss.truncation if measure.k is None else measure.k
        by_gain = by_rank(frame, gains, rank_table(frame, discount, depth))
    table = rank_table(frame, discount, measure.depth, loss.truncation)
    options = {"TWO_SIDED": False, "DISCOUNTED": False, "STEPS": True, "DISTANCES": False, "NORM": loss.norm}
    return _lambdas(frame, gains, by_gain, table, (loss.sigma, 1.0, 0.0), options)


def lambdaloss(loss: LambdaLoss, frame: Frame) -> Judge:
    """See `toprank.losses.native.lambdas`."""
    of_ndcg = loss.scheme.startswith("ndcg")
    gains = gains_of(frame, "exponential") if of_ndcg else frame.labels
    by_gain = by_rank(frame, gains, rank_table(frame, LOG2)) if of_ndcg else None
    options = {
        "TWO_SIDED": loss.scheme in ("arp1", "ndcg1"),
        "DISCOUNTED": loss.scheme == "ndcg1",
        "STEPS": loss.scheme == "ndcg2++",
        "DISTANCES": loss.scheme in ("ndcg2", "ndcg2++"),
        "NORM": False,
    }
    numbers = loss.sigma, 1.0 / math.log(2.0), loss.mu if loss.scheme == "ndcg2++" else 1.0
    return _lambdas(frame, gains, by_gain, groups_only(frame), numbers, options)


@lru_cache(maxsize=16)
def _distance_tables(width: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """δ by distance, from 0, in float32; and the tables of `Distances`."""
    distances = Distances(torch.from_numpy(LOG2.weights(width + 1)), 1.0)
    steps = torch.nn.functional.pad(-distances.inverse.diff(), (1, 1)).float()
    return steps.to(device), distances.sums().to(device), distances.within().to(device)


def _lambdas(
    frame: Frame,
    gains: Tensor,
    by_gain: Tensor | None,
    table: Tensor,
    numbers: tuple[float, float, float],
    options: dict[str, bool],
) -> Judge:
    """`numbers` are sigma, what the natural logarithm is multiplied by, and mu."""
    weights, tables = frame.document_weights, _distance_tables(width_of(frame), frame.device)
    options = {**options, "IDEAL": by_gain is not None, "WEIGHTED": weights is not None}
    sigma, unit, mu = (float(number) for number in numbers)

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        scores = scores.contiguous()
        grad, losses = torch.empty_like(scores), torch.empty_like(scores)
        moved = torch.empty_like(scores) if options["NORM"] else losses
        ranks = by_rank(frame, scores, table)
        arrays = scores, gains, pointer(weights, scores), ranks, pointer(by_gain, scores), *tables
        out = frame.scale, frame.offsets, grad, losses, moved
        launch(frame, lambda_pass, *arrays, *out, frame.n_documents, sigma, unit, mu, **options)
        return _normalised(frame, losses, grad, moved) if options["NORM"] else (losses.sum(), grad)

    return judge


def _normalised(frame: Frame, losses: Tensor, grad: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
    """LightGBM's factor log2(1 + Λ)/Λ for each query."""
    total = frame.sum(moved)
    factor = frame.spread(torch.where(total > 0, torch.log1p(total) / (math.log(2.0) * total), 1.0))
    return torch.dot(losses, factor), grad * factor


def smooth(loss: ApproxNDCG | ApproxMetric, frame: Frame) -> Judge:
    """See `toprank.losses.native.smooth`."""
    measure = NDCG(loss.k) if isinstance(loss, ApproxNDCG) else parse(loss.metric)
    assert isinstance(measure, DCG)
    gains, weights = gains_of(frame, measure.gain or loss.gain), frame.document_weights
    groups = by_rank(frame, gains, rank_table(frame, LOG2, measure.depth))
    temperature, cut = float(loss.temperature), float(measure.depth or 0)
    options = {
        "IDEAL": isinstance(measure, NDCG),
        "CUT": measure.depth is not None,
        "WEIGHTED": weights is not None,
    }

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        scores = scores.contiguous()
        grad, losses, slopes = (torch.empty_like(scores) for _ in range(3))
        arrays = scores, gains, pointer(weights, scores), groups, frame.scale, frame.offsets
        launch(frame, smooth_pass, *arrays, slopes, losses, frame.n_documents, temperature, cut, **options)
        launch(frame, flow_pass, scores, slopes, frame.offsets, grad, temperature)
        return losses.sum(), grad

    return judge
