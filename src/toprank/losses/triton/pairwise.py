"""Pairwise, lambda and smooth-rank losses: preparation, launches and kernels.

Each program of a kernel compares some documents of a query (rows, i) with all others (columns, j); either may be the
better one, or the one above.

Pairs of different grades have the loss φ(x), x = s_worse − s_better. `Exponential` is not included, because e^x
overflows float32 from x = 89 on. Lambda losses are logistic losses of pairs weighted by the change of the metric
(`gains.rank_table`), by the distance of ranks (`gains.distance_tables`), or both. Smooth ranks are r_j = 1 + Σ_{k≠j}
σ((s_k − s_j)/T); with p_jk = σ(z_k − z_j), dp_jk/dz_k = p_jk·p_kj is symmetric, so the gradient is dL/dz_k = Σ_j
p_jk·p_kj·(u_j − u_k), u_j = dL/dr_j.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from toprank.losses.lambdas import LambdaLoss, LambdaRank
from toprank.losses.pairwise import Hinge, Logistic, SquaredHinge
from toprank.losses.smooth import ApproxMetric, ApproxNDCG
from toprank.losses.triton.frame import BatchPart, Columns, Frame, PreparedLoss
from toprank.losses.triton.gains import LOG2, distance_tables, gains_of, has_dcg, has_gain, rank_table
from toprank.losses.triton.ranks import by_rank, launch, pointer
from toprank.losses.triton.triton_parts import constexpr, jit, kernel, program_part, sigmoid, softplus, tensor, tl
from toprank.metrics.conventions import Discount
from toprank.metrics.graded import DCG, NDCG
from toprank.metrics.parsing import parse

PairLoss = Logistic | Hinge | SquaredHinge

_KINDS: dict[type, int] = {Logistic: 0, Hinge: 1, SquaredHinge: 2}


def has_pairs(loss: PairLoss) -> bool:
    """Return whether the gain of ``margin`` is not a user-defined function."""
    return loss.pair_weight != "margin" or loss.gain is None or has_gain(loss.gain)


def pairs(loss: PairLoss, frame: Frame) -> PreparedLoss:
    """Prepare a loss of `toprank.losses.pairwise`."""
    margins, weights = None, frame.document_weights
    if loss.pair_weight == "margin":
        margins = frame.labels if loss.gain is None else gains_of(frame, loss.gain, loss.max_grade)
    begins = by_rank(frame.part, frame.labels, rank_table(frame))[4]  # number of better documents, one pair each
    n_pairs = frame.part.sum(begins)
    shares = frame.part.broadcast(torch.where(n_pairs > 0, 1.0 / n_pairs, 0.0))
    options = {
        "KIND": _KINDS[type(loss)],
        "DIFFERENCE": loss.pair_weight == "difference",
        "MARGIN": margins is not None,
        "WEIGHTED": weights is not None,
    }

    def evaluate(scores: Tensor, part: BatchPart, columns: Columns) -> tuple[Tensor, Tensor]:
        arrays = [pointer(column, scores) for column in columns]
        grad, losses = torch.zeros_like(scores), torch.zeros_like(scores)
        launch(part, pair_pass, scores, *arrays, part.scale, part.offsets, grad, losses, **options)
        return losses.sum(), grad

    return PreparedLoss((frame.labels, margins, weights, shares), evaluate)


def has_lambdarank(loss: LambdaRank) -> bool:
    """Return whether the metric is NDCG or DCG and the gain not a user-defined function."""
    return has_dcg(parse(loss.metric), loss.gain)


def lambdarank(loss: LambdaRank, frame: Frame) -> PreparedLoss:
    """Prepare `LambdaRank`."""
    measure = parse(loss.metric)
    assert isinstance(measure, DCG)
    discount, gains = measure.discount or LOG2, gains_of(frame, measure.gain or loss.gain)
    if isinstance(measure, NDCG):
        gains = gains * _over_ideal(frame, gains, discount, loss.truncation if measure.k is None else measure.k)
    options = {"TWO_SIDED": False, "DISCOUNTED": False, "STEPS": True, "DISTANCES": False, "NORM": loss.norm}
    return _lambdas(
        frame, gains, rank_table(frame, discount, measure.depth, loss.truncation), (loss.sigma, 1.0, 0.0), options
    )


def lambdaloss(loss: LambdaLoss, frame: Frame) -> PreparedLoss:
    """Prepare `LambdaLoss`."""
    gains = frame.labels
    if loss.scheme.startswith("ndcg"):
        gains = gains_of(frame, "exponential")
        gains = gains * _over_ideal(frame, gains, LOG2, None)
    options = {
        "TWO_SIDED": loss.scheme in ("arp1", "ndcg1"),
        "DISCOUNTED": loss.scheme == "ndcg1",
        "STEPS": loss.scheme == "ndcg2++",
        "DISTANCES": loss.scheme in ("ndcg2", "ndcg2++"),
        "NORM": False,
    }
    numbers = loss.sigma, 1.0 / math.log(2.0), loss.mu if loss.scheme == "ndcg2++" else 1.0
    return _lambdas(frame, gains, rank_table(frame), numbers, options)


def _over_ideal(frame: Frame, gains: Tensor, discount: Discount, depth: int | None) -> Tensor:
    """Return (n,) one over the ideal DCG of the query, or 0, with each gain at the mean weight of its ideal ranks."""
    weights = by_rank(frame.part, gains, rank_table(frame, discount, depth))[2]
    ideal = frame.part.sum(gains * weights)
    return frame.part.broadcast(torch.where(ideal > 0, 1.0 / ideal, 0.0))


def _lambdas(
    frame: Frame, gains: Tensor, table: Tensor, numbers: tuple[float, float, float], options: dict[str, bool]
) -> PreparedLoss:
    """Launch the lambda kernel; `numbers` are sigma, the unit of the logarithm, and mu."""
    tables, options = distance_tables(frame), {**options, "WEIGHTED": frame.document_weights is not None}
    sigma, unit, mu = (float(number) for number in numbers)

    def evaluate(scores: Tensor, part: BatchPart, columns: Columns) -> tuple[Tensor, Tensor]:
        gains, weights = columns
        grad, losses = torch.zeros_like(scores), torch.zeros_like(scores)
        moved = torch.zeros_like(scores) if options["NORM"] else losses
        arrays = scores, gains, pointer(weights, scores), by_rank(part, scores, table), *tables
        out = part.scale, part.offsets, grad, losses, moved
        launch(part, lambda_pass, *arrays, *out, part.n_documents, sigma, unit, mu, **options)
        return _normalized(part, losses, grad, moved) if options["NORM"] else (losses.sum(), grad)

    return PreparedLoss((gains, frame.document_weights), evaluate)


def _normalized(part: BatchPart, losses: Tensor, grad: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
    """Apply LightGBM's factor log2(1 + Λ)/Λ to each query."""
    total = part.sum(moved)
    factor = part.broadcast(torch.where(total > 0, torch.log1p(total) / (math.log(2.0) * total), 1.0))
    return torch.dot(losses, factor), grad * factor


def has_smooth(loss: ApproxNDCG | ApproxMetric) -> bool:
    """Return whether the metric is NDCG or DCG with the discount log2(1 + rank)."""
    measure = _smooth_measure(loss)
    return has_dcg(measure, loss.gain) and (measure.discount is None or measure.discount.name == "log2")


def _smooth_measure(loss: ApproxNDCG | ApproxMetric) -> DCG:
    return NDCG(loss.k) if isinstance(loss, ApproxNDCG) else parse(loss.metric)  # type: ignore[return-value]


def smooth(loss: ApproxNDCG | ApproxMetric, frame: Frame) -> PreparedLoss:
    """Prepare `ApproxMetric`; queries of equal gains contribute nothing."""
    measure = _smooth_measure(loss)
    gains = gains_of(frame, measure.gain or loss.gain)
    groups = by_rank(frame.part, gains, rank_table(frame))
    ones = torch.ones_like(gains)
    length = frame.part.broadcast(frame.part.sum(ones))
    speaking = (groups[5] - groups[4] < length).to(gains.dtype)
    worths, constants = frame.weighted(gains * speaking), torch.zeros_like(gains)
    if isinstance(measure, NDCG):
        worths, constants = worths * _over_ideal(frame, gains, LOG2, measure.depth), speaking / length
    temperature, cut = float(loss.temperature), float(measure.depth or 0)

    def evaluate(scores: Tensor, part: BatchPart, columns: Columns) -> tuple[Tensor, Tensor]:
        grad, losses, slopes = (torch.zeros_like(scores) for _ in range(3))
        out = part.scale, part.offsets, slopes, losses
        launch(part, smooth_pass, scores, *columns, *out, temperature, cut, CUT=measure.depth is not None)
        launch(part, flow_pass, scores, slopes, part.offsets, grad, temperature)
        return losses.sum(), grad

    return PreparedLoss((worths, constants), evaluate)


@kernel
def pair_pass(
    scores: tensor,
    labels: tensor,
    margins: tensor,
    weights: tensor,
    shares: tensor,
    scale: tensor,
    offsets: tensor,
    grad: tensor,
    losses: tensor,
    KIND: constexpr,
    DIFFERENCE: constexpr,
    MARGIN: constexpr,
    WEIGHTED: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Compute losses (n,), each pair's at its better document, and d/ds; KIND 0 logistic, 1 hinge, 2 squared hinge.

    `shares` holds one over the number of pairs of each document's query.
    """
    start, stop, first = program_part(offsets, ROWS)
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, y = tl.load(scores + rows, mask=valid, other=0.0), tl.load(labels + rows, mask=valid, other=0.0)
    loss, force = tl.zeros_like(s), tl.zeros_like(s)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
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
    share = tl.load(scale + tl.program_id(0)) * tl.load(shares + rows, mask=valid, other=0.0)
    tl.store(losses + rows, loss * share, mask=valid)
    tl.store(grad + rows, force * share, mask=valid)


@jit
def _rank_change(factors: tensor, n: tensor, rows: tensor, columns: tensor, ends: tensor, gap: tensor) -> tensor:
    """Return Δ = top − slope·below, above minus below; tied documents use the mean."""
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
    """Return δ at the distance of the ranks, or its mean over the ranks of tied documents."""
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
    WEIGHTED: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Compute losses (n,), each pair's at its better document; d/ds; and Σ |d/ds| (n,) over each document's pairs.

    `gains` are divided by the ideal DCG; `factors` (7, n) are those of `rank_pass` at the scores.
    """
    start, stop, first = program_part(offsets, ROWS)
    if first >= stop:
        return
    rows = first + tl.arange(0, ROWS)
    valid = rows < stop
    s, g = tl.load(scores + rows, valid, 0.0), tl.load(gains + rows, valid, 0.0)
    if DISCOUNTED:
        g = g * tl.load(factors + 2 * n + rows, valid, 0.0)
    loss, force, motion = tl.zeros_like(s), tl.zeros_like(s), tl.zeros_like(s)
    for at in range(start, stop, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        inside = columns < stop
        gap = s[:, None] - tl.load(scores + columns, inside, 0.0)[None, :]
        g_j = tl.load(gains + columns, inside, 0.0)
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
            near = tl.full((ROWS,), 0.01, s.dtype)  # a literal would be float32
            near = tl.where(size == (stop - start).to(s.dtype), 1.0, near)
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
    share = tl.load(scale + tl.program_id(0)) * unit
    tl.store(losses + rows, loss * share, valid)
    tl.store(grad + rows, force * (share * sigma), valid)
    if NORM:
        tl.store(moved + rows, motion * sigma, valid)


@kernel
def smooth_pass(
    scores: tensor,
    worths: tensor,
    constants: tensor,
    scale: tensor,
    offsets: tensor,
    slopes: tensor,
    losses: tensor,
    temperature: tensor,
    cut: tensor,
    CUT: constexpr,
    ROWS: constexpr,
    COLUMNS: constexpr,
) -> None:
    """Compute losses (n,), the share of the query's constant minus gain · value of the rank; and d value / d rank
    (n,).
    """
    start, stop, first = program_part(offsets, ROWS)
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
    slope = -value * value / (0.6931471805599453 * (1.0 + rank))  # log 2; kernels cannot use Python constants
    if CUT:
        t = tl.minimum(tl.maximum(rank - cut, 0.0), 1.0)
        step, fall = 1.0 - t * t * (3.0 - 2.0 * t), -6.0 * t * (1.0 - t)
        value, slope = value * step, slope * step + value * fall
    share = tl.load(scale + tl.program_id(0))
    worth = share * tl.load(worths + rows, mask=valid, other=0.0)
    loss = share * tl.load(constants + rows, mask=valid, other=0.0)
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
    """Compute d/ds from d/d rank."""
    start, stop, first = program_part(offsets, ROWS)
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
