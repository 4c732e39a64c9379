"""Pair sums without an exponential for each pair: the logistic and the exponential loss of one query.

* Logistic: with E = e^s, σ(s_j − s_i) = E_j/(E_i + E_j), and a sum of log(1 + E_j/E_i) is the logarithm of a product,
  taken chunk by chunk: one exponential for each document, one division for each pair.
* Exponential: e^{−(s_i − s_j)} factorises, so sums over grades do: O(m), no pairs at all.

Arrays are those of one query in the order of `PairFrame` (see `pair_kernels`): rising labels, `begin` and `end`
bounding the documents of equal label.
"""

from __future__ import annotations

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel

__all__ = ["STEEPEST", "exponential_pairs", "logistic_pairs", "partner_sums", "relative_masses", "steepest_pair"]

STEEPEST = 600.0  # e^600 times any number of pairs is finite

_CHUNK = 16  # factors in one product before its logarithm is taken


@kernel
def relative_masses(scores: FloatArray) -> FloatArray:
    """Numbers proportional to e^s, from e^−300 to e^300 for scores within a range of 600."""
    masses: FloatArray = np.exp(scores - 0.5 * (scores.min() + scores.max()))
    return masses


@kernel
def logistic_pairs(
    scores: FloatArray, begin: IntArray, end: IntArray, labels: FloatArray, by_difference: bool, slopes: FloatArray
) -> float:
    """Σ c log(1 + e^{−(s_i − s_j)}); its derivatives are added to `slopes`.

    Needs scores within a range of 600, and no document weights (they would be powers inside the products).

    Very safe pairs (1 + E_j/E_i rounds to 1) add nothing to the value: an absolute error of 1e-16 a pair. The slopes
    are accurate to the last digits.
    """
    masses = relative_masses(scores)
    chunk = max(1, min(_CHUNK, int(STEEPEST / (scores.max() - scores.min() + 1.0))))  # no product overflows
    total = 0.0
    for i in range(len(scores)):
        start = 0
        while start < begin[i]:
            # Where all pairs count the same, all worse documents are one range; else those of equal label are.
            stop = end[start] if by_difference else begin[i]
            logs, pull = _logistic_range(
                masses, i, start, stop, chunk, labels[i] - labels[start], by_difference, slopes
            )
            total += logs
            slopes[i] -= pull
            start = stop
    return total


@kernel
def _logistic_range(
    masses: FloatArray,
    i: int,
    start: int,
    stop: int,
    chunk: int,
    difference: float,
    by_difference: bool,
    slopes: FloatArray,
) -> tuple[float, float]:
    """Σ log(1 + E_j/E_i) and Σ σ(s_j − s_i) over start ≤ j < stop; each σ is added to the slope of its j."""
    mass, inverse, factor = masses[i], 1.0 / masses[i], difference if by_difference else 1.0
    logs, pull = 0.0, 0.0
    for head in range(start, stop, chunk):
        product = 1.0
        for j in range(head, min(head + chunk, stop)):
            both = mass + masses[j]
            share = masses[j] / both
            slopes[j] += factor * share
            pull += share
            product *= both * inverse
        logs += np.log(product)
    return factor * logs, factor * pull


@kernel
def steepest_pair(scores: FloatArray, begin: IntArray, end: IntArray) -> float:
    """The largest s_j − s_i over pairs, in O(m)."""
    steepest, highest, start = -np.inf, -np.inf, 0
    while start < len(scores):
        stop = end[start]
        if begin[start] > 0:
            steepest = max(steepest, highest - scores[start:stop].min())
        highest = max(highest, scores[start:stop].max())
        start = stop
    return float(steepest)


@kernel
def exponential_pairs(
    scores: FloatArray,
    begin: IntArray,
    end: IntArray,
    labels: FloatArray,
    weights: FloatArray,
    by_difference: bool,
    slopes: FloatArray,
) -> float:
    """Σ c w w e^{−(s_i − s_j)}; its derivatives are added to `slopes`. Needs every s_j − s_i to be at most 600."""
    pull, push = np.zeros(len(scores)), np.zeros(len(scores))
    partner_sums(scores, begin, end, labels, weights, by_difference, True, pull)
    partner_sums(-scores, begin, end, labels, weights, by_difference, False, push)
    slopes += push
    slopes -= pull
    return float(pull.sum())


@kernel
def partner_sums(
    keys: FloatArray,
    begin: IntArray,
    end: IntArray,
    labels: FloatArray,
    weights: FloatArray,
    by_difference: bool,
    rising: bool,
    sums: FloatArray,
) -> None:
    """sums[d] = w_d Σ_e c_de w_e e^{k_e − k_d} over the worse partners e of d (rising) or the better ones (falling).

    Groups of equal label are visited in turn. `mass` is Σ w e^{k − peak} over the groups behind, and `spread` the same
    sum with each group weighed by its distance in label: moving on by a gap adds gap·mass to it, so nothing cancels.
    """
    n = len(keys)
    peak, mass, spread = -np.inf, 0.0, 0.0
    at, last_label = (0 if rising else n - 1), labels[0 if rising else n - 1]
    while 0 <= at < n:
        start, stop = begin[at], end[at]
        spread += abs(labels[at] - last_label) * mass
        last_label = labels[at]
        reach = spread if by_difference else mass
        if reach > 0:
            for d in range(start, stop):
                sums[d] = weights[d] * reach * np.exp(peak - keys[d])
        highest = keys[start:stop].max()
        if highest > peak:
            shrink = np.exp(peak - highest)
            peak, mass, spread = highest, mass * shrink, spread * shrink
        for d in range(start, stop):
            mass += weights[d] * np.exp(keys[d] - peak)
        at = stop if rising else start - 1
