"""The model with trust bias, P(click) = α_k R + β_k, fitted by expectation-maximization.

A log identifies α and β up to one scale and one shift: relevances R' = aR + b with α/a and β - αb/a predict the same
clicks. Relevance is therefore defined as P(click) at the first position, where α is 1 and β is 0, and (click - β_k) /
α_k is an unbiased estimate of it at every position. β_k can be negative: users then click on poor documents less often
there than at the top.
"""

from __future__ import annotations

import numpy as np

from toprank.clicks.em import FittedPositions, climb, inside, maximize, product
from toprank.clicks.features import AttractionByFeatures
from toprank.clicks.log import ClickLog, sums
from toprank.clicks.products import ProductCells
from toprank.compute import FloatArray

_CONVERGENCE_TOLERANCE = 1e-3  # the fourth digit converges slowly and is below sampling error


def affine(
    log: ClickLog, weights: FloatArray, prior: tuple[float, float], tolerance: float, max_iterations: int,
    start: FloatArray | None = None, learner: AttractionByFeatures | None = None,
) -> FittedPositions:  # fmt: skip
    """Return the maximum-likelihood α and β with weighted queries; a learner models R by features."""
    cells, n, depth = ProductCells.from_log(log, log.position - 1, log.depth, weights), log.n_pairs, log.depth
    pair, place = np.repeat(np.arange(n), np.diff(cells.begins)), cells.place
    clicked, passed = cells.clicked, cells.shown - cells.clicked
    shown, (a, b) = sums(pair, cells.shown, n), prior

    def step(parameters: FloatArray) -> tuple[FloatArray, float]:
        liked, right, wrong = parameters[:n][pair], parameters[n : n + depth][place], parameters[n + depth :][place]
        click = right * liked + wrong * (1 - liked)
        by_liking = clicked * right * liked / click  # clicks on relevant documents
        likes = by_liking + passed * (1 - right) * liked / (1 - click)
        value = product(clicked, np.log(click)) + product(passed, np.log1p(-click))
        if learner is None:
            value += float((a * np.log(parameters[:n]) + b * np.log1p(-parameters[:n])).sum())
        shown_at, of_liked = sums(place, cells.shown, depth), sums(place, likes, depth)
        of_right, of_wrong = sums(place, by_liking, depth), sums(place, clicked - by_liking, depth)
        better = [
            (sums(pair, likes, n) + a) / (shown + a + b) if learner is None else learner(sums(pair, likes, n), shown),
            _share(of_right, of_liked),
            _share(of_wrong, shown_at - of_liked),
        ]
        return inside(np.concatenate(better)), value

    if start is None:
        rates = sums(place, clicked, depth) / np.maximum(sums(place, cells.shown, depth), 1e-300)
        likes = (sums(pair, clicked, n) + a) / (shown + a + b)
        start = np.concatenate([likes, np.minimum(1.5 * rates, 0.95), 0.5 * rates])

    def read(parameters: FloatArray) -> FloatArray:
        """Return values and offsets, which are identified; α and β themselves are not, and need not converge."""
        right, wrong = parameters[n : n + depth], parameters[n + depth :]
        slope = right - wrong
        values = (
            slope / slope[0] if slope[0] else np.full(depth, np.nan)
        )  # clicks at the first position do not depend on relevance
        return np.concatenate([values, wrong - values * wrong[0]])

    limits = tolerance * log.n_impressions, max_iterations
    fitted = (
        maximize(step, start, *limits, read, _CONVERGENCE_TOLERANCE) if learner is None else climb(step, start, *limits)
    )
    values, offsets = np.split(read(fitted.at), 2)
    ranker = None if learner is None else learner.ranker
    return FittedPositions(values, fitted.at, fitted.converged, ranker, offsets)


def _share(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.asarray(np.divide(part, whole, out=np.full(part.shape, 0.5), where=whole > 0))
