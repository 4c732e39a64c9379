"""Measures of graded relevance: the DCG-like family (DCG, NDCG, approximate ERR), ERR and RBP.

ERR's reader goes down the list and stops where a document satisfies. Its ties are taken in expectation over their
orders by a closed form of its own (see `closed_forms` for the others).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.checks import check_number
from toprank.errors import DataError
from toprank.metrics import closed_forms as forms
from toprank.metrics.closed_forms import Codes, Flags
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

_NOBODY = 1e-18  # a probability this small is nobody


@kernel
def expected_reciprocal_rank(
    order: IntArray,
    ends: Flags,
    starts: IntArray,
    codes: Codes,
    stops: FloatArray,
    limit: int,
    out: FloatArray,
) -> None:
    """ERR = Σ_r (1/r) R_r Π_{i<r} (1 − R_i), with `stops` the table of R.

    In a tied group the reader is still reading after t of its documents with probability
    q_t = e_t(1 − R)/C(g, t), the mean over t-subsets of the product of (1 − R): the sum gains
    Π · Σ_t (q_{t−1} − q_t)/(rank of t), and Π is multiplied by q_g.
    """
    for q in range(len(out)):
        start, above, reading, total = starts[q], 0, 1.0, 0.0
        for i in range(start, starts[q + 1]):
            if above >= limit or reading <= 0.0:
                break
            if not ends[i]:
                continue
            size = i + 1 - start - above
            if size == 1:
                stop = stops[codes[order[i]]]
                total += reading * stop / (above + 1.0)
                reading *= 1.0 - stop
            else:
                go_on = np.empty(size, dtype=np.float64)
                for t in range(size):
                    go_on[t] = 1.0 - stops[codes[order[start + above + t]]]
                gained, kept = _err_of_group(go_on, above, limit)
                total += reading * gained
                reading *= kept
            above += size
        out[q] = total


@kernel
def _err_of_group(go_on: FloatArray, above: int, limit: int) -> tuple[float, float]:
    """What a tied group adds for a reader who enters it, and the probability to leave it unsatisfied.

    Only documents that can satisfy (x = 1 − R < 1) matter, r of g. With ē_h the mean product over h of them, and
    P_t(h) the chance that h of them are among the first t documents, q_t = Σ_h P_t(h) ē_h. Both come from recurrences
    without subtraction, so nothing cancels; ē falls, so h stops mattering soon. O((r + depth) · relevant h).
    """
    size, kept = len(go_on), 1.0
    for x in go_on:
        kept *= x
    products = _mean_products(go_on)
    chances = np.zeros(len(products), dtype=np.float64)
    chances[0] = 1.0
    r = 0
    for x in go_on:
        r += x < 1.0
    gained, before = 0.0, 1.0
    for t in range(1, min(size, limit - above) + 1):
        left = float(size - t + 1)  # documents that may stand at place t
        for h in range(len(chances) - 1, -1, -1):
            drawn = chances[h - 1] * (r - h + 1) / left if h > 0 else 0.0
            chances[h] = chances[h] * max(0.0, left - (r - h)) / left + drawn
        still = 0.0
        for h in range(len(chances)):
            still += chances[h] * products[h]
        gained += (before - still) / (above + t)
        before = still
        if before < _NOBODY:
            break
    return gained, kept


@kernel
def _mean_products(go_on: FloatArray) -> FloatArray:
    """The mean over h-subsets of the x < 1 of their product, for h = 0, 1, … until it is nothing."""
    r = 0
    for x in go_on:
        r += x < 1.0
    means = np.zeros(r + 1, dtype=np.float64)
    means[0] = 1.0
    n, top = 0, 0
    for x in go_on:
        if x >= 1.0:
            continue
        n += 1
        top = min(top + 1, r)
        for h in range(top, 0, -1):
            means[h] = means[h] * (n - h) / n + means[h - 1] * x * h / n
        while top > 1 and means[top] < _NOBODY and means[top - 1] < _NOBODY and n > 64:
            top -= 1
    last = r
    while last > 0 and means[last] < _NOBODY:
        last -= 1
    return means[: last + 1]


_FEW_GRADES = 64


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
    out = np.empty(len(view.starts) - 1)
    judged = view.judged_codes, view.judged_offsets
    if len(table) <= _FEW_GRADES:
        forms.ideal_sum(*judged, table, np.argsort(-table, kind="stable"), weights, out)
    else:
        forms.ideal_sum_of_many_grades(*judged, table, weights, out)
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
            forms.mean_ndcg(*view.ranked, *judged, table, weights, cut, zero_past_end, out)
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
            expected_reciprocal_rank(*view.ranked, stops, limit, out)
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
