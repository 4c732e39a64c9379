"""Smooth ranks: 1 + Σ_k σ((s_k − s_j)/T), what a metric makes of them, and the way back.

With p_jk = σ((s_k − s_j)/T), how much k counts as standing above j, every kind of metric is Σ_j read_j · (something of
the p_j·). The first pass over the pairs collects, per document,

    above    Σ_k p_jk, the smooth rank less 1
    extra    AP: Σ_{relevant k} p_jk, the relevant documents above;
             ERR and RR: Π_k (1 − R_k·p_jk), the chance that the reader gets here

and the second takes dL/dp_jk = rank_slope_j + extra_slope_j · (AP: relevant_k; ERR and RR: R_k/(1 − R_k·p_jk)) back to
the scores. Since p_kj = 1 − p_jk, a pair pushes its two documents apart by p(1 − p)/T · (dL/dp_jk − dL/dp_kj).

The curvature is the Laplacian of the pairs with weights p(1 − p)/T² · (|dL/dp_jk| + |dL/dp_kj|): since |σ''| ≤ σ', it
bounds the curvature of the smooth ranks, with the metric taken as linear in them. For a convex discount (DCG, NDCG
without a cut-off) the metric's own curvature is negative, so this bounds the Hessian.

p costs no exponential: with E = exp((s − max s)/T), p_jk = E_k/(E_j + E_k), unless the scores lie too far apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toprank.compute import FloatArray, IntArray, summing_kernel
from toprank.losses.rows import row_kernel

__all__ = ["NO_EXTRA", "HITS", "SURVIVAL", "collect", "push", "pair_flow"]

NO_EXTRA, HITS, SURVIVAL = 0, 1, 2

_ONE = np.uint64(1)
_WIDEST = 600.0


@summing_kernel
def collect(z: FloatArray, offsets: IntArray, reads: FloatArray, extra_kind: int, above: Any, extra: Any) -> None:
    """Fill `above` and `extra`; `z` are the scores over T, `reads` what the metric reads off each document."""
    E, p = np.empty(len(z)), np.empty(len(z))
    above[:] = 0.0
    extra[:] = 1.0 if extra_kind == SURVIVAL else 0.0
    for q in range(len(offsets) - 1):
        first, end = np.uint64(offsets[q]), np.uint64(offsets[q + 1])
        wide = _exponentials(first, end, z, E)
        for j in range(first, end):
            _probabilities(j, end, z, E, wide, p)
            _ranks(j, end, p, above)
            if extra_kind == HITS:
                _hits(j, end, p, reads, extra)
            elif extra_kind == SURVIVAL:
                _survival(j, end, p, reads, extra)


@summing_kernel
def push(
    z: FloatArray,
    offsets: IntArray,
    reads: FloatArray,
    extra_kind: int,
    rank_slope: FloatArray,
    extra_slope: FloatArray,
    grad: FloatArray,
    diagonal: FloatArray,
) -> None:
    """dL/dz, and the diagonal of the curvature in z."""
    E, p, slope, curve = np.empty(len(z)), np.empty(len(z)), np.empty(len(z)), np.empty(len(z))
    grad[:] = 0.0
    diagonal[:] = 0.0
    for q in range(len(offsets) - 1):
        first, end = np.uint64(offsets[q]), np.uint64(offsets[q + 1])
        wide = _exponentials(first, end, z, E)
        for j in range(first, end):
            _probabilities(j, end, z, E, wide, p)
            _slopes(j, end, p, reads, extra_kind, rank_slope, extra_slope, slope, curve)
            total, bend = 0.0, 0.0
            for k in range(j + _ONE, end):
                grad[k] += slope[k]
                diagonal[k] += curve[k]
                total += slope[k]
                bend += curve[k]
            grad[j] -= total
            diagonal[j] += bend


@summing_kernel
def pair_flow(
    z: FloatArray,
    offsets: IntArray,
    reads: FloatArray,
    extra_kind: int,
    rank_slope: FloatArray,
    extra_slope: FloatArray,
    V: FloatArray,
    out: FloatArray,
) -> None:
    """H·V for the curvature H in z, added to `out`."""
    E, p, slope, curve = np.empty(len(z)), np.empty(len(z)), np.empty(len(z)), np.empty(len(z))
    for q in range(len(offsets) - 1):
        first, end = np.uint64(offsets[q]), np.uint64(offsets[q + 1])
        wide = _exponentials(first, end, z, E)
        for j in range(first, end):
            _probabilities(j, end, z, E, wide, p)
            _slopes(j, end, p, reads, extra_kind, rank_slope, extra_slope, slope, curve)
            for k in range(j + _ONE, end):
                for column in range(V.shape[1]):
                    flow = curve[k] * (V[j, column] - V[k, column])
                    out[j, column] += flow
                    out[k, column] -= flow


@summing_kernel
def _exponentials(first: Any, end: Any, z: FloatArray, E: FloatArray) -> bool:
    """E = exp(z − max z); True where it would underflow."""
    high, low = z[first], z[first]
    for j in range(first, end):
        high, low = max(high, z[j]), min(low, z[j])
    if high - low > _WIDEST:
        return True
    for j in range(first, end):
        E[j] = np.exp(z[j] - high)
    return False


@row_kernel
def _probabilities(j: Any, end: Any, z: FloatArray, E: FloatArray, wide: bool, p: FloatArray) -> None:
    """p_jk = σ(z_k − z_j) for every later k."""
    if wide:
        for k in range(j + _ONE, end):
            p[k] = 1.0 / (1.0 + np.exp(z[j] - z[k]))
    else:
        own = E[j]
        for k in range(j + _ONE, end):
            p[k] = E[k] / (own + E[k])


@row_kernel
def _ranks(j: Any, end: Any, p: FloatArray, above: FloatArray) -> None:
    total = 0.0
    for k in range(j + _ONE, end):
        total += p[k]
        above[k] += 1.0 - p[k]
    above[j] += total


@row_kernel
def _hits(j: Any, end: Any, p: FloatArray, reads: FloatArray, extra: FloatArray) -> None:
    total = 0.0
    for k in range(j + _ONE, end):
        total += reads[k] * p[k]
        extra[k] += reads[j] * (1.0 - p[k])
    extra[j] += total


@row_kernel
def _survival(j: Any, end: Any, p: FloatArray, reads: FloatArray, extra: FloatArray) -> None:
    product = 1.0
    for k in range(j + _ONE, end):
        product *= 1.0 - reads[k] * p[k]
        extra[k] *= 1.0 - reads[j] * (1.0 - p[k])
    extra[j] *= product


@row_kernel
def _slopes(
    j: Any,
    end: Any,
    p: FloatArray,
    reads: FloatArray,
    extra_kind: int,
    rank_slope: FloatArray,
    extra_slope: FloatArray,
    slope: FloatArray,
    curve: FloatArray,
) -> None:
    """What the pair (j, k) adds to dL/dz_k, and its curvature."""
    for k in range(j + _ONE, end):
        steep = p[k] * (1.0 - p[k])
        down, up = rank_slope[j] * steep, rank_slope[k] * steep  # dL/dp_jk and dL/dp_kj, times dp/dz
        if extra_kind == HITS:
            down += extra_slope[j] * reads[k] * steep
            up += extra_slope[k] * reads[j] * steep
        elif extra_kind == SURVIVAL:
            down += extra_slope[j] * _chance(reads[k], p[k])
            up += extra_slope[k] * _chance(reads[j], 1.0 - p[k])
        slope[k] = down - up
        curve[k] = abs(down) + abs(up)


@row_kernel
def _chance(stop: float, p: float) -> float:
    """R·p(1 − p)/(1 − R·p), which is p for R = 1 even where 1 − p has rounded to nothing."""
    left = (1.0 - stop) + stop * (1.0 - p)
    return stop * p * ((1.0 - p) / left if left > 0.0 else 1.0)
