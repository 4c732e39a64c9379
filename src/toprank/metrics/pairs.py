"""Pairwise and correlation measures: T criterion, pairwise accuracy, Kendall's τ_b, Spearman's ρ, OWA ranking error.

They are undefined for a single document or equal labels; such queries are left out of the mean. Each measure defines
the value of a tied pair itself.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.arguments import check_number
from toprank.errors import UnknownNameError
from toprank.metrics.measure import BoundMeasure, Measure, Rules, View

ORDERED_WEIGHTS = {"constant": "CONSTANT", "top": "TOP", "1/j": "RECIPROCAL", "exp": "EXP"}
"""Decreasing weight functions of the ordered weighted average → their names in the kernels' `OrderedWeight`."""


@dataclass(frozen=True)
class TCriterion(Measure):
    """T criterion 2/(m(m−1)) Σ_{i<i'} (y_(i) − y_(i')), equation (4) of Cossock & Zhang 2008."""

    name: ClassVar[str] = "t"

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        ranks = np.arange(1, rules.longest + 1, dtype=np.float64)
        ones, labels = np.ones(rules.longest), np.ascontiguousarray(rules.grades)

        def values(view: View) -> FloatArray:
            m = view.sizes.astype(np.float64)
            # Σ_{i<i'} (y_(i) − y_(i')) = Σ_i (m + 1 − 2i) y_(i)
            total = (m + 1) * view.weighted(labels, ones) - 2 * view.weighted(labels, ranks)
            scaled = np.divide(2 * total, m * (m - 1), out=np.full(len(m), np.nan), where=m > 1)
            return np.where(_equal_labels(view), np.nan, scaled)

        return values


def _equal_labels(view: View) -> Any:
    first, starts = view.judged_offsets[0], view.judged_offsets[:-1] - view.judged_offsets[0]
    codes = view.judged_codes[first : view.judged_offsets[-1]]
    return np.maximum.reduceat(codes, starts) == np.minimum.reduceat(codes, starts)


@dataclass(frozen=True)
class _PairMeasure(Measure):
    pairwise_ties: ClassVar[bool] = True

    @override
    def bind(self, rules: Rules) -> BoundMeasure:

        def values(view: View) -> FloatArray:
            columns = vars(kernels.PairCount)
            counts = np.empty((len(view.sizes), len(columns)))
            kernels.pair_counts(*view.ranked, len(rules.grades), counts)
            return self._from_counts({name.lower(): counts[:, column] for name, column in columns.items()})

        return values

    @abstractmethod
    def _from_counts(self, counts: dict[str, FloatArray]) -> FloatArray:
        """Return the measure computed from the named counts of `kernels.pair_counts`."""


def _or_nan(above: FloatArray, below: FloatArray) -> FloatArray:
    result: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
    return result


@dataclass(frozen=True)
class PairwiseAccuracy(_PairMeasure):
    """Share of pairs with different grades that are ranked in the correct order; tied scores count one half."""

    name: ClassVar[str] = "pairacc"

    def _from_counts(self, counts: dict[str, FloatArray]) -> FloatArray:
        return _or_nan(counts["concordant"] + counts["score_ties"] / 2, counts["label_pairs"])


@dataclass(frozen=True)
class KendallTau(_PairMeasure):
    """Kendall's rank correlation τ_b between scores and labels."""

    name: ClassVar[str] = "tau"

    def _from_counts(self, counts: dict[str, FloatArray]) -> FloatArray:
        # Take one root of the product: it is exact for a square, so that equal orders give exactly 1.
        tau = _or_nan(
            counts["concordant"] - counts["discordant"], np.sqrt(counts["label_pairs"] * counts["score_pairs"])
        )
        return np.clip(tau, -1.0, 1.0)  # rounding error may exceed the range


@dataclass(frozen=True)
class SpearmanRho(_PairMeasure):
    """Spearman's rank correlation ρ between scores and labels, with mean ranks for ties."""

    name: ClassVar[str] = "rho"

    def _from_counts(self, counts: dict[str, FloatArray]) -> FloatArray:
        return counts["spearman"]


@dataclass(frozen=True)
class OWA(Measure):
    """Ordered weighted ranking error of Usunier et al. 2009: the mean of Φ(rank) over relevant documents.

    Lower is better, and ties count against the ranking. `weights` is ``constant``, ``top`` (constant on the top p %),
    ``1/j`` (default) or ``exp``.
    """

    name: ClassVar[str] = "owa"
    higher_is_better: ClassVar[bool] = False
    pairwise_ties: ClassVar[bool] = True
    weights: str = "1/j"
    p: float = 10.0
    rel: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in ORDERED_WEIGHTS:
            raise UnknownNameError("OWA weighting", self.weights, tuple(ORDERED_WEIGHTS))
        check_number("OWA's p, a percentage,", self.p, above=0, most=100)

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        relevant, generator = rules.relevant(self.rel), vars(kernels.OrderedWeight)[ORDERED_WEIGHTS[self.weights]]
        return lambda view: view.filled(kernels.owa_error, *view.ranked, relevant, generator, self.p)
