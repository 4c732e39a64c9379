"""Measures of graded relevance: the DCG-like family (DCG, NDCG, approximate ERR), ERR and RBP.

ERR's reader goes down the list and stops where a document satisfies. The closed forms for ties are in
`native/metrics.c`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank import kernels
from toprank.compute import FloatArray
from toprank.data.checks import check_number
from toprank.errors import DataError
from toprank.metrics.conventions import Blank
from toprank.metrics.gains import Discount, Gain
from toprank.metrics.measure import (
    Measure,
    PerQuery,
    Rules,
    View,
    divided,
    length_of,
    relevant_table,
    skipping_blank,
    weighted,
    with_blank,
)

__all__ = ["DCG", "ERR", "NDCG", "RBP", "ApproxERR", "AvgNDCG"]

_FEW_GRADES = 64  # beyond, sorting the gains costs less than counting the grades


@dataclass(frozen=True)
class DCG(Measure):
    """Σ_{j ≤ k} G(y_(j)) / F(j)."""

    name: ClassVar[str] = "dcg"
    k: int | None = None
    gain: Gain | None = None
    discount: Discount | None = None

    def _tables(self, rules: Rules) -> tuple[FloatArray, FloatArray]:
        gain, discount = self.gain or rules.convention.gain, self.discount or rules.convention.discount
        return gain.table(rules.grades, rules.max_grade), discount.weights(length_of(self.k, rules))

    @override
    def bind(self, rules: Rules) -> PerQuery:
        table, weights = self._tables(rules)
        return skipping_blank(table, lambda view: weighted(view, table, weights), rules)


def _ideal(view: View, table: FloatArray, weights: FloatArray) -> FloatArray:
    out = np.empty(len(view.sizes))
    judged = view.judged_codes, view.judged_offsets
    if len(table) <= _FEW_GRADES:
        best_first, counts = np.argsort(-table, kind="stable"), np.empty(len(table), dtype=np.int64)
        kernels.ideal_sum(*judged, table, best_first, weights, counts, out)
    else:
        kernels.ideal_sum_of_many_grades(*judged, table, weights, out)
    return out


@dataclass(frozen=True)
class NDCG(DCG):
    """DCG@k divided by the DCG@k of the ideal order."""

    name: ClassVar[str] = "ndcg"
    blank: Blank | None = None

    @override
    def bind(self, rules: Rules) -> PerQuery:
        table, weights = self._tables(rules)
        convention, rule = rules.convention, self.blank or rules.convention.blank

        def values(view: View) -> FloatArray:
            ideal = _ideal(view, table, weights)
            ratio = divided(weighted(view, table, weights), ideal)
            if self.k is not None and convention.short_ndcg == "zero":
                ratio[view.sizes < self.k] = 0.0
            return with_blank(ratio, ideal <= 0, rule, normalised=True)

        return values


@dataclass(frozen=True)
class AvgNDCG(DCG):
    """Mean of NDCG@1 … NDCG@k (k = 10 unless said); `meanndcg`, k = None: the mean over all ranks of the list."""

    name: ClassVar[str] = "avgndcg"
    k: int | None = 10

    @override
    def bind(self, rules: Rules) -> PerQuery:
        table, weights = self._tables(rules)
        convention, cut = rules.convention, self.k or 0

        def values(view: View) -> FloatArray:
            out = np.empty(len(view.sizes))
            judged, zero_past_end = (view.judged_codes, view.judged_offsets), convention.short_ndcg == "zero"
            kernels.mean_ndcg(*view.ranked, *judged, table, weights, cut, zero_past_end, out)
            return with_blank(out, out < 0, convention.blank, normalised=True)

        return values

    def __str__(self) -> str:
        return "meanndcg" + super().__str__().removeprefix("avgndcg") if self.k is None else super().__str__()


def _check_top(rules: Rules, top: float, name: str) -> None:
    if not np.isfinite(top) or (rules.grades > top).any():
        raise DataError(f"{name} needs max_grade ≥ every label; max_grade is {top:g}, a label {rules.grades.max():g}.")


def _err_table(rules: Rules, top: float, name: str) -> FloatArray:
    _check_top(rules, top, name)
    return Gain.of("err").table(rules.grades, top)


@dataclass(frozen=True)
class ApproxERR(Measure):
    """Σ_{j ≤ k} G(y_(j)) / j^β with ERR's gain (2^y − 1)/2^max_grade: a DCG-like stand-in for ERR, (5) of Yang et al.
    2010.
    """

    name: ClassVar[str] = "approxerr"
    k: int | None = None
    beta: float = 2.0
    max_grade: float | None = None

    @override
    def bind(self, rules: Rules) -> PerQuery:
        top = rules.max_grade if self.max_grade is None else self.max_grade
        table = _err_table(rules, top, "approxerr")
        weights = Discount.of(f"zipf({self.beta!r})").weights(length_of(self.k, rules))
        return skipping_blank(table, lambda view: weighted(view, table, weights), rules)


@dataclass(frozen=True)
class ERR(Measure):
    """Expected reciprocal rank: Σ_{r ≤ k} (1/r) R_r Π_{i<r} (1 − R_i), R = (2^y − 1)/2^max_grade."""

    name: ClassVar[str] = "err"
    k: int | None = None
    max_grade: float | None = None

    @override
    def bind(self, rules: Rules) -> PerQuery:
        top = rules.max_grade if self.max_grade is None else self.max_grade
        stops = _err_table(rules, top, "ERR")
        limit = length_of(self.k, rules)

        def values(view: View) -> FloatArray:
            out = np.empty(len(view.sizes))
            kernels.expected_reciprocal_rank(*view.ranked, stops, limit, out)
            return out

        return skipping_blank(stops, values, rules)


@dataclass(frozen=True)
class RBP(Measure):
    """Rank-biased precision (1 − p) Σ_j p^{j−1} y_(j)/max_grade; binary relevance where `rel` is given."""

    name: ClassVar[str] = "rbp"
    p: float = 0.8
    rel: float | None = None
    k: int | None = None
    max_grade: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("RBP's persistence p", self.p, above=0, below=1)

    @override
    def bind(self, rules: Rules) -> PerQuery:
        top = rules.max_grade if self.max_grade is None else self.max_grade
        if self.rel is not None:
            table = relevant_table(rules, self.rel)
        else:
            _check_top(rules, top, "RBP")
            table = Gain.of("clipped").table(rules.grades, top) / (top if top > 0 else 1.0)
        weights = (1 - self.p) * self.p ** np.arange(length_of(self.k, rules), dtype=np.float64)
        return skipping_blank(table, lambda view: weighted(view, table, weights), rules)
