"""Measures for graded relevance: DCG, NDCG, ERR and its DCG-like approximation, and RBP.

The closed forms for expectations over tied documents are in `native/metrics.c`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.arguments import check_number
from toprank.errors import DataError
from toprank.metrics.conventions import Discount, Gain, NoRelevantRule
from toprank.metrics.measure import (
    MAX_COUNTED_GRADES,
    BoundMeasure,
    Measure,
    Rules,
    View,
    apply_no_relevant,
    divided,
    skip_no_relevant,
)


@dataclass(frozen=True)
class DCG(Measure):
    """Discounted cumulative gain Σ_{j ≤ k} G(y_(j)) / F(j)."""

    name: ClassVar[str] = "dcg"
    k: int | None = None
    gain: Gain | None = None
    discount: Discount | None = None

    def _tables(self, rules: Rules) -> tuple[FloatArray, FloatArray]:
        gain, discount = self.gain or rules.convention.gain, self.discount or rules.convention.discount
        return gain.table(rules.grades, rules.max_grade), discount.weights(rules.length(self.k))

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        table, weights = self._tables(rules)
        return skip_no_relevant(table, lambda view: view.weighted(table, weights), rules)


def _ideal(view: View, table: FloatArray, weights: FloatArray) -> FloatArray:
    if view.n_grades > MAX_COUNTED_GRADES:
        return view.filled(kernels.ideal_sum_of_many_grades, *view.judged, table, weights)
    best_first = np.argsort(-table, kind="stable")
    return view.filled(kernels.ideal_sum, view.grade_counts, table, best_first, weights)


@dataclass(frozen=True)
class NDCG(DCG):
    """Normalized DCG: DCG@k divided by the DCG@k of the ideal order."""

    name: ClassVar[str] = "ndcg"
    no_relevant: NoRelevantRule | None = None

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        table, weights = self._tables(rules)
        convention, rule = rules.convention, self.no_relevant or rules.convention.no_relevant

        def values(view: View) -> FloatArray:
            ideal = _ideal(view, table, weights)
            ratio = divided(view.weighted(table, weights), ideal)
            if self.k is not None and convention.short_ndcg == "zero":
                ratio[view.sizes < self.k] = 0.0
            return apply_no_relevant(ratio, ideal <= 0, rule)

        return values


@dataclass(frozen=True)
class AvgNDCG(DCG):
    """Mean of NDCG@1 … NDCG@k, k = 10 by default; with k = None (`meanndcg`), the mean over all ranks of the list."""

    name: ClassVar[str] = "avgndcg"
    k: int | None = 10

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        table, weights = self._tables(rules)
        convention = rules.convention
        rest = table, weights, self.k or 0, convention.short_ndcg == "zero"

        def values(view: View) -> FloatArray:
            out = view.filled(kernels.mean_ndcg, *view.ranked, *view.judged, *rest)
            return apply_no_relevant(out, out < 0, convention.no_relevant)

        return values

    def __str__(self) -> str:
        return "meanndcg" + super().__str__().removeprefix("avgndcg") if self.k is None else super().__str__()


def _top(rules: Rules, own: float | None, name: str) -> float:
    """Return the highest possible grade; raise an error if a label exceeds it."""
    top = rules.max_grade if own is None else own
    if not np.isfinite(top) or (rules.grades > top).any():
        raise DataError(
            f"max_grade of {name} is {top:g}, but the data have a label of {rules.grades.max():g}. Raise max_grade."
        )
    return top


@dataclass(frozen=True)
class ApproxERR(Measure):
    """DCG-like approximation of ERR: Σ_{j ≤ k} G(y_(j)) / j^β with the gain (2^y − 1)/2^max_grade.

    Equation (5) of Yang et al. 2010.
    """

    name: ClassVar[str] = "approxerr"
    k: int | None = None
    beta: float = 2.0
    max_grade: float | None = None

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        table = Gain.from_spec("err").table(rules.grades, _top(rules, self.max_grade, "approxerr"))
        weights = Discount.from_spec(f"zipf({self.beta!r})").weights(rules.length(self.k))
        return skip_no_relevant(table, lambda view: view.weighted(table, weights), rules)


@dataclass(frozen=True)
class ERR(Measure):
    """Expected reciprocal rank Σ_{r ≤ k} (1/r) R_r Π_{i<r} (1 − R_i), with R = (2^y − 1)/2^max_grade."""

    name: ClassVar[str] = "err"
    k: int | None = None
    max_grade: float | None = None

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        stops = Gain.from_spec("err").table(rules.grades, _top(rules, self.max_grade, "ERR"))
        limit, kernel = rules.length(self.k), kernels.expected_reciprocal_rank
        return skip_no_relevant(stops, lambda view: view.filled(kernel, *view.ranked, stops, limit), rules)


@dataclass(frozen=True)
class RBP(Measure):
    """Rank-biased precision (1 − p) Σ_j p^{j−1} y_(j)/max_grade; with `rel`, relevance is binary."""

    name: ClassVar[str] = "rbp"
    p: float = 0.8
    rel: float | None = None
    k: int | None = None
    max_grade: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("RBP's persistence p", self.p, above=0, below=1)

    @override
    def bind(self, rules: Rules) -> BoundMeasure:
        if self.rel is not None:
            table = rules.relevant(self.rel)
        else:
            top = _top(rules, self.max_grade, "RBP")
            table = Gain.from_spec("clipped").table(rules.grades, top) / (top if top > 0 else 1.0)
        weights = (1 - self.p) * self.p ** np.arange(rules.length(self.k), dtype=np.float64)
        return skip_no_relevant(table, lambda view: view.weighted(table, weights), rules)
