"""Pairs, lambdas and smooth ranks by kernels: what they prepare once for a batch, what they launch, and the kernels.

Each program of a kernel reads some documents of a query (rows, i) against all others (columns, j), either of which may
be the better one, or the one above. `ranks` and `factors` (6, n) are those of `rank_pass`. For the formulas see
`toprank.losses.native`: `pairs`, `lambdas` and `smooth`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from toprank.losses.approx import ApproxMetric, ApproxNDCG
from toprank.losses.lambdas import LambdaLoss, LambdaRank
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.fused.ranks import (
    LOG2,
    by_rank,
    groups_only,
    launch,
    pointer,
    rank_table,
    width_of,
)
from toprank.losses.native.fused.triton_parts import constexpr, ideal_of, jit, kernel, sigmoid, softplus, tensor, tl
from toprank.losses.native.gains import gains_of
from toprank.losses.native.lambdas import Distances
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


@kernel
def pair_pass(
    scores: tensor,
    labels: tensor,
    margins: tensor,
    weights: tensor,
    ranks: tensor,
    scale: tensor,
    offsets: tensor,
    grad: tensor,
    losses: tensor,
    n: tensor,
    KIND: constexpr,
    DIFFERENCE: constexpr,
    MARGIN: constexpr,
    WEIGHTED: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Losses (n,), a pair's at its better document, and d/ds; KIND 0 logistic, 1 hinge, 2 squared hinge.

    `ranks` (6, n) are those of `rank_pass` on the labels: who stands after a document's grade is worse than it.
    """
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, y = tl.load(scores + rows, mask=valid, other=0.0), tl.load(labels + rows, mask=valid, other=0.0)
    loss, force, worse = tl.zeros_like(s), tl.zeros_like(s), tl.zeros((COLUMNS,), tl.int64)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        after = stop - start - tl.load(ranks + 5 * n + columns, inside, 0.0).to(tl.int64)
        worse += tl.where(inside, after, 0)
        difference = y[:, None] - tl.load(labels + columns, mask=inside, other=0.0)[None, :]
        gap = s[:, None] - tl.load(scores + columns, mask=inside, other=0.0)[None, :]
        if MARGIN:
            t = tl.load(margins + rows, mask=valid, other=0.0)
            gap -= t[:, None] - tl.load(margins + columns, mask=inside, other=0.0)[None, :]
        better = difference > 0
        x = tl.where(better, -gap, gap)
        if KIND == 0:
            value, slope = softplus(x), sigmoid(x)
        elif KIND == 1:
            value, slope = tl.maximum(1.0 + x, 0.0), tl.where(x > -1.0, 1.0, 0.0).to(x.dtype)
        else:
            short = tl.maximum(1.0 + x, 0.0)
            value, slope = short * short, 2.0 * short
        factor = tl.where(inside[None, :] & (difference != 0), 1.0, 0.0).to(x.dtype)
        if DIFFERENCE:
            factor *= tl.abs(difference)
        if WEIGHTED:
            own = tl.load(weights + rows, mask=valid, other=0.0)
            factor *= own[:, None] * tl.load(weights + columns, mask=inside, other=0.0)[None, :]
        loss += tl.sum(tl.where(better, factor * value, 0.0), 1)
        force += tl.sum(tl.where(better, -factor * slope, factor * slope), 1)
    n_pairs = tl.sum(worse, 0).to(s.dtype)
    share = tl.where(n_pairs > 0, tl.load(scale + query) / tl.maximum(n_pairs, 1.0), 0.0)
    tl.store(losses + rows, loss * share, mask=valid)
    tl.store(grad + rows, force * share, mask=valid)


@jit
def _rank_change(factors: tensor, n: tensor, rows: tensor, columns: tensor, ends: tensor, gap: tensor) -> tensor:
    """Δ = top − slope·below, above minus below, or that of a tie."""
    valid, inside = rows < ends, columns < ends
    top_i, slope_i = tl.load(factors + rows, valid, 0.0), tl.load(factors + n + rows, valid, 0.0)
    below_i, tie_i = tl.load(factors + 2 * n + rows, valid, 0.0), tl.load(factors + 3 * n + rows, valid, 0.0)
    top_j, slope_j = tl.load(factors + columns, inside, 0.0), tl.load(factors + n + columns, inside, 0.0)
    below_j = tl.load(factors + 2 * n + columns, inside, 0.0)
    down = top_i[:, None] - slope_i[:, None] * below_j[None, :]
    up = top_j[None, :] - slope_j[None, :] * below_i[:, None]
    return tl.where(gap == 0, tie_i[:, None], tl.maximum(tl.where(gap > 0, down, up), 0.0))


@jit
def _distance_step(
    factors: tensor,
    n: tensor,
    steps: tensor,
    sums: tensor,
    within: tensor,
    rows: tensor,
    columns: tensor,
    ends: tensor,
    gap: tensor,
) -> tensor:
    """δ at the distance of the ranks; where documents are tied, its mean over their ranks (see `Distances`)."""
    low_i = tl.load(factors + 4 * n + rows, rows < ends, 0.0).to(tl.int32)[:, None]
    high_i = tl.load(factors + 5 * n + rows, rows < ends, 1.0).to(tl.int32)[:, None]
    low_j = tl.load(factors + 4 * n + columns, columns < ends, 0.0).to(tl.int32)[None, :]
    high_j = tl.load(factors + 5 * n + columns, columns < ends, 1.0).to(tl.int32)[None, :]
    step = tl.load(steps + tl.abs(low_i - low_j))
    pairs = (high_i - low_i) * (high_j - low_j)
    if tl.max(tl.max(pairs, 1), 0) > 1:
        inner = tl.maximum(tl.maximum(low_j - high_i, low_i - high_j), 0)
        outer = tl.maximum(high_j - low_i, high_i - low_j)
        total = tl.load(sums + tl.abs(low_i - low_j)) + tl.load(sums + tl.abs(high_i - high_j))
        total -= tl.load(sums + inner) + tl.load(sums + outer)
        step = tl.where(gap == 0, tl.load(within + (high_i - low_i)), total / pairs).to(step.dtype)
    return step


@kernel
def lambda_pass(
    scores: tensor,
    gains: tensor,
    weights: tensor,
    factors: tensor,
    by_gain: tensor,
    steps: tensor,
    sums: tensor,
    within: tensor,
    scale: tensor,
    offsets: tensor,
    grad: tensor,
    losses: tensor,
    moved: tensor,
    n: tensor,
    sigma: tensor,
    unit: tensor,
    mu: tensor,
    TWO_SIDED: constexpr,
    DISCOUNTED: constexpr,
    STEPS: constexpr,
    DISTANCES: constexpr,
    NORM: constexpr,
    IDEAL: constexpr,
    WEIGHTED: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Losses (n,), a pair's at its better document; d/ds; and Σ |d/ds| (n,) over each document's pairs.

    `by_gain` (6, n) are those of `rank_pass` on the gains, which the ideal DCG divides.
    """
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, g = tl.load(scores + rows, valid, 0.0), tl.load(gains + rows, valid, 0.0)
    over = tl.full((), 1.0, s.dtype)
    if IDEAL:
        best = ideal_of(gains, by_gain, n, start, stop, COLUMNS)
        over = tl.where(best > 0, 1.0 / best, 0.0)
    g = g * over
    if DISCOUNTED:
        g = g * tl.load(factors + 2 * n + rows, valid, 0.0)
    loss, force, motion = tl.zeros_like(s), tl.zeros_like(s), tl.zeros_like(s)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        gap = s[:, None] - tl.load(scores + columns, inside, 0.0)[None, :]
        g_j = tl.load(gains + columns, inside, 0.0) * over
        if DISCOUNTED:
            g_j = g_j * tl.load(factors + 2 * n + columns, inside, 0.0)
        delta = tl.where(inside[None, :] & (columns[None, :] != rows[:, None]), 1.0, 0.0)
        if STEPS and DISTANCES:
            far = _distance_step(factors, n, steps, sums, within, rows, columns, stop, gap)
            delta *= _rank_change(factors, n, rows, columns, stop, gap) + mu * far
        elif STEPS:
            delta *= _rank_change(factors, n, rows, columns, stop, gap)
        elif DISTANCES:
            delta *= mu * _distance_step(factors, n, steps, sums, within, rows, columns, stop, gap)
        if NORM:
            size = tl.load(factors + 5 * n + rows, valid, 0.0) - tl.load(factors + 4 * n + rows, valid, 0.0)
            near = tl.where(size == (stop - start).to(s.dtype), 1.0, 0.01)
            delta = delta / (near[:, None] + tl.abs(gap))
        if WEIGHTED:
            delta *= tl.load(weights + rows, valid, 0.0)[:, None] * tl.load(weights + columns, inside, 0.0)[None, :]
        if TWO_SIDED:
            lose = sigmoid(-sigma * gap)
            loss += tl.sum(g[:, None] * delta * softplus(-sigma * gap), 1)
            force += tl.sum(delta * (g_j[None, :] * (1.0 - lose) - g[:, None] * lose), 1)
        else:
            better = g[:, None] > g_j[None, :]
            x = tl.where(better, -sigma * gap, sigma * gap)
            weight = tl.abs(g[:, None] - g_j[None, :]) * delta
            pull = weight * sigmoid(x)
            loss += tl.sum(tl.where(better, weight * softplus(x), 0.0), 1)
            force += tl.sum(tl.where(better, -pull, pull), 1)
            motion += tl.sum(pull, 1)
    share = tl.load(scale + query) * unit
    tl.store(losses + rows, loss * share, valid)
    tl.store(grad + rows, force * (share * sigma), valid)
    if NORM:
        tl.store(moved + rows, motion * sigma, valid)


@kernel
def smooth_pass(
    scores: tensor,
    gains: tensor,
    weights: tensor,
    factors: tensor,
    scale: tensor,
    offsets: tensor,
    slopes: tensor,
    losses: tensor,
    n: tensor,
    temperature: tensor,
    cut: tensor,
    IDEAL: constexpr,
    CUT: constexpr,
    WEIGHTED: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Losses (n,), whose sum is the value, and d value / d rank (n,).

    `factors` (6, n) are those of `rank_pass` on the gains: a query whose gains are all in one group says nothing.
    """
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s = tl.load(scores + rows, mask=valid, other=0.0) / temperature
    rank = tl.full((ROWS,), 1.0, s.dtype)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        z = tl.load(scores + columns, mask=columns < stop, other=0.0) / temperature
        counts = (columns < stop)[None, :] & (columns[None, :] != rows[:, None])
        rank += tl.sum(tl.where(counts, sigmoid(z[None, :] - s[:, None]), 0.0), 1)
    kind = s.dtype
    value = 1.0 / tl.log2(1.0 + rank)
    slope = -value * value / (0.6931471805599453 * (1.0 + rank))
    if CUT:
        t = tl.minimum(tl.maximum(rank - cut, 0.0), 1.0)
        step, fall = 1.0 - t * t * (3.0 - 2.0 * t), -6.0 * t * (1.0 - t)
        value, slope = value * step, slope * step + value * fall
    size = (stop - start).to(kind)
    speaking = (
        tl.load(factors + 5 * n + rows, mask=valid, other=0.0) - tl.load(factors + 4 * n + rows, mask=valid, other=0.0)
        < size
    )
    share = tl.where(speaking, tl.load(scale + query), 0.0)
    worth = tl.load(gains + rows, mask=valid, other=0.0) * share
    loss = tl.zeros_like(s)
    if IDEAL:
        best = ideal_of(gains, factors, n, start, stop, COLUMNS)
        worth = worth * tl.where(best > 0, 1.0 / best, 0.0)
        loss = share / size
    if WEIGHTED:
        worth = worth * tl.load(weights + rows, mask=valid, other=0.0)
    tl.store(losses + rows, (loss - worth * value).to(kind), mask=valid)
    tl.store(slopes + rows, (-worth * slope).to(kind), mask=valid)


@kernel
def flow_pass(
    scores: tensor,
    slopes: tensor,
    offsets: tensor,
    grad: tensor,
    temperature: tensor,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """d/ds from d/d rank."""
    query = tl.program_id(0)
    start, stop = tl.load(offsets + query), tl.load(offsets + query + 1)
    first = start + tl.program_id(1) * ROWS
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, u = tl.load(scores + rows, mask=valid, other=0.0) / temperature, tl.load(slopes + rows, mask=valid, other=0.0)
    flow = tl.zeros_like(s)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        z = tl.load(scores + columns, mask=inside, other=0.0) / temperature
        decay = tl.exp(-tl.abs(z[None, :] - s[:, None]))
        steep = decay / ((1.0 + decay) * (1.0 + decay))
        change = tl.load(slopes + columns, mask=inside, other=0.0)[None, :] - u[:, None]
        flow += tl.sum(tl.where(inside[None, :], steep * change, 0.0), 1)
    tl.store(grad + rows, (flow / temperature).to(s.dtype), mask=valid)
