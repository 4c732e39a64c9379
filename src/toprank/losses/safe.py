"""DCG of smooth ranks without reward for moving far from the logged ranking, for estimated labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.arguments import check_number
from toprank.data.queries import Queries
from toprank.losses.base import BoundLoss, Judgments, Loss, Traits
from toprank.losses.smooth import SmoothMetricBound
from toprank.metrics.conventions import Discount
from toprank.metrics.graded import DCG

_ROUNDING_WIDTH = 0.1  # relative width of the smooth clipping, on either side


@dataclass(frozen=True)
class SafeDCG(Loss):
    """−Σ_j y_j·c_j, c_j = 1/log2(1 + r_j) of smooth ranks, clipped so that gains outside a band do not count.

    The band is relative to the logged exposure e_j of each document: with y_j ≥ 0, c_j counts up to within·e_j; with
    y_j < 0, down to e_j/within. A document whose exposure has already changed by the factor `within` has no gradient to
    move further, whatever its label. With within = 1 there is no reward for leaving the logged ranking. As long as
    every document keeps at least 1/within of its exposure, users keep at least 1/within of their DCG, whatever their
    preferences. The loss itself pushes no document below that bound, but other documents that rise may. The clipping is
    smoothed over a tenth of the bound on either side. e_j is the document's weight times the mean of c over the ranks
    of its query; without weights, the logged order is taken as random.

    Args:
        within: largest rewarded ratio of new and logged exposure, in either direction; at least 1.
        temperature: T of the smooth ranks r_j = 1 + Σ_{k≠j} σ((s_k − s_j)/T).

    Labels may be any real numbers. Cost: O(m²), memory O(m). Curvature: as that of `ApproxMetric`.
    Consistency: none; the loss is conservative by design.
    Source: Gupta, Oosterhuis & de Rijke 2024, "Practical and robust safety guarantees for advanced counterfactual
    learning to rank" (proximal ranking policy optimization), with smooth ranks instead of a stochastic policy.

    >>> from toprank import Queries
    >>> bound = SafeDCG(within=1.0).on([1, 0], Queries([0, 2]))
    >>> eval = bound.at([9.0, 0.0])   # at the first rank it would be worth 1, but it had (1 + 1/log2(3))/2
    >>> bool(np.isclose(eval.value, -(1 + 1 / np.log2(3)) / 2)), bool(eval.grad.any())
    (True, False)
    """

    traits: ClassVar[Traits] = Traits(
        convex=False, smooth=True, curvature="majorizer", cost="O(m²)", labels_are_gains=True
    )

    within: float = 1.5
    temperature: float = 0.5

    def __post_init__(self) -> None:
        check_number("SafeDCG's within", self.within, least=1)
        check_number("SafeDCG's temperature", self.temperature, above=0)

    @override
    def bind(self, judgments: Judgments) -> BoundLoss:
        return _BoundSafe(self, judgments)


def mean_exposure(queries: Queries) -> FloatArray:
    """Return the mean of 1/log2(1 + rank) over the ranks of each query.

    >>> mean_exposure(Queries([0, 1])).tolist()
    [1.0]
    """
    sums = np.cumsum(Discount.from_spec("log2").weights(int(queries.sizes.max())))
    return np.asarray(sums[queries.sizes - 1] / queries.sizes)


class _BoundSafe(SmoothMetricBound):
    def __init__(self, loss: SafeDCG, judgments: Judgments) -> None:
        super().__init__(DCG(), loss.temperature, None, judgments)
        usual = self.queries.broadcast(mean_exposure(self.queries))
        self.ends = judgments.weights * usual * np.where(judgments.labels >= 0, loss.within, 1 / loss.within)

    @override
    def _terms(self, rows: slice, above: FloatArray, extra: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        worth, end, (c, dc) = self.reads[rows], self.ends[rows], self.discount(1.0 + above)
        # Position within the smoothed interval, from 0 to 1; at the bound, in its middle, the slope is one half.
        sign, width = np.where(worth >= 0, 1.0, -1.0), 2 * _ROUNDING_WIDTH * end
        room = np.divide(sign * (c - end), width, out=np.where(sign * (c - end) > 0, 1.0, -1.0), where=width > 0) + 0.5
        beyond = np.clip(room, 0.0, 1.0)
        free = 1.0 - beyond
        counted = np.where(room < 1, c - sign * width * beyond**2 / 2, end)
        return worth * counted, -worth * dc * free, np.zeros_like(extra)
