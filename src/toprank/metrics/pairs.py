"""Agreement of two orders, pair by pair: T criterion, pairwise accuracy, τ_b, Spearman's ρ, and the OWA ranking error.

They are undefined on a single document or equal labels; such queries are left out of the mean, and counted. Ties need
no expectation here: each measure says itself what a tied pair is worth.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.checks import check_number
from toprank.errors import UnknownNameError
from toprank.metrics import pairs as concordance
from toprank.metrics.measure import Measure, PerQuery, Rules, View, relevant_table, weighted

__all__ = ["OWA", "KendallTau", "PairwiseAccuracy", "SpearmanRho", "TCriterion"]

Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[Any]

PAIR_COLUMNS = ("concordant", "discordant", "score_ties", "label_pairs", "score_pairs", "spearman")


@kernel
def _add(tree: IntArray, code: int, amount: int) -> None:
    """Fenwick tree over the grades: count one document of a grade."""
    i = code + 1
    while i < len(tree):
        tree[i] += amount
        i += i & -i


@kernel
def _below(tree: IntArray, code: int) -> int:
    """How many counted documents have a grade code smaller than `code`."""
    total, i = 0, code
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


@kernel
def pair_counts(order: IntArray, ends: Flags, starts: IntArray, codes: Codes, n_codes: int, out: FloatArray) -> None:
    """For each query the numbers named in PAIR_COLUMNS, in O(m log grades).

    Pairs of different grades are concordant, discordant, or tied in score; ``score_pairs`` counts the pairs with
    different scores, ``spearman`` is ρ on mean ranks (NaN where a side is constant).
    """
    seen = np.zeros(n_codes + 1, dtype=np.int64)
    group = np.zeros(n_codes + 1, dtype=np.int64)
    for q in range(len(out)):
        start, stop = starts[q], starts[q + 1]
        m = stop - start
        concordant, discordant, tied, score_pairs, first = 0.0, 0.0, 0.0, 0.0, start
        for i in range(start, stop):
            if not ends[i]:
                continue
            for j in range(first, i + 1):  # against the groups above, and within the group
                code = codes[order[j]]
                lower, up_to = _below(seen, code), _below(seen, code + 1)
                concordant += (first - start) - up_to
                discordant += lower
                tied += (j - first) - (_below(group, code + 1) - _below(group, code))
                _add(group, code, 1)
            for j in range(first, i + 1):
                _add(seen, codes[order[j]], 1)
                _add(group, codes[order[j]], -1)
            score_pairs += float(first - start) * (i + 1 - first)
            first = i + 1
        out[q, 0], out[q, 1], out[q, 2] = concordant, discordant, tied
        out[q, 3], out[q, 4] = concordant + discordant + tied, score_pairs
        out[q, 5] = _spearman(order, ends, start, stop, codes, seen, m)
        for i in range(start, stop):
            _add(seen, codes[order[i]], -1)


@kernel
def _spearman(order: IntArray, ends: Flags, start: int, stop: int, codes: Codes, seen: IntArray, m: int) -> float:
    """Pearson's correlation of mean ranks; `seen` holds all documents of the query."""
    centre, first = (m + 1) / 2.0, start
    product, of_scores, of_labels = 0.0, 0.0, 0.0
    for i in range(start, stop):
        if not ends[i]:
            continue
        score_rank = ((first - start + 1) + (i - start + 1)) / 2.0 - centre
        for j in range(first, i + 1):
            code = codes[order[j]]
            lower, up_to = _below(seen, code), _below(seen, code + 1)
            label_rank = ((m - up_to + 1) + (m - lower)) / 2.0 - centre
            product += score_rank * label_rank
            of_scores += score_rank * score_rank
            of_labels += label_rank * label_rank
        first = i + 1
    if of_scores == 0.0 or of_labels == 0.0:
        return np.nan
    return float(min(1.0, max(-1.0, product / np.sqrt(of_scores * of_labels))))


@kernel
def owa_error(
    order: IntArray,
    ends: Flags,
    starts: IntArray,
    codes: Codes,
    relevant: FloatArray,
    generator: int,
    share: float,
    out: FloatArray,
) -> None:
    """Mean over relevant documents of Φ(rank), rank = irrelevant documents scored at least as high (Usunier et al.
    2009, Def. 1).

    Φ(k) = Σ_{j≤k} α_j with α normalised over the n irrelevant documents; generators: 0 constant, 1 constant on the
    top `share` percent, 2 1/j, 3 2^{−(100/share)·j/n}. NaN where nothing is relevant, 0 where nothing is irrelevant.
    """
    for q in range(len(out)):
        start, stop = starts[q], starts[q + 1]
        n_relevant = 0
        for i in range(start, stop):
            n_relevant += int(relevant[codes[order[i]]])
        n = stop - start - n_relevant
        if n_relevant == 0 or n == 0:
            out[q] = np.nan if n_relevant == 0 else 0.0
            continue
        cumulative = np.zeros(n + 1, dtype=np.float64)
        for j in range(1, n + 1):
            if generator == 0:
                alpha = 1.0
            elif generator == 1:
                alpha = 1.0 if j <= max(1.0, share * n / 100.0) else 0.0
            elif generator == 2:
                alpha = 1.0 / j
            else:
                alpha = 2.0 ** (-(100.0 / share) * j / n)
            cumulative[j] = cumulative[j - 1] + alpha
        total, above, hits = 0.0, 0, 0
        for i in range(start, stop):
            if relevant[codes[order[i]]] > 0.0:
                hits += 1
            else:
                above += 1
            if ends[i]:
                total += hits * cumulative[above]
                hits = 0
        out[q] = min(1.0, total / n_relevant / cumulative[n])


@dataclass(frozen=True)
class TCriterion(Measure):
    """2/(m(m−1)) Σ_{i<i'} (y_(i) − y_(i')), (4) of Cossock & Zhang 2008; undefined on one document or equal labels."""

    name: ClassVar[str] = "t"

    @override
    def bind(self, rules: Rules) -> PerQuery:
        ranks = np.arange(1, rules.longest + 1, dtype=np.float64)
        ones, labels = np.ones(rules.longest), np.ascontiguousarray(rules.grades)

        def values(view: View) -> FloatArray:
            m = view.sizes.astype(np.float64)
            # Σ_{i<i'} (y_(i) − y_(i')) = Σ_i (m + 1 − 2i) y_(i)
            total = (m + 1) * weighted(view, labels, ones) - 2 * weighted(view, labels, ranks)
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
    def bind(self, rules: Rules) -> PerQuery:

        def values(view: View) -> FloatArray:
            counts = np.empty((len(view.sizes), len(concordance.PAIR_COLUMNS)))
            concordance.pair_counts(*view.ranked, len(rules.grades), counts)
            return self._of(dict(zip(concordance.PAIR_COLUMNS, counts.T, strict=True)))

        return values

    @abstractmethod
    def _of(self, counts: dict[str, FloatArray]) -> FloatArray:
        """The measure from the counts of `concordance.pair_counts`, by name."""


def _or_nan(above: FloatArray, below: FloatArray) -> FloatArray:
    result: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
    return result


@dataclass(frozen=True)
class PairwiseAccuracy(_PairMeasure):
    """Share of the pairs of different grades in the right order; a score tie counts one half."""

    name: ClassVar[str] = "pairacc"

    def _of(self, counts: dict[str, FloatArray]) -> FloatArray:
        return _or_nan(counts["concordant"] + counts["score_ties"] / 2, counts["label_pairs"])


@dataclass(frozen=True)
class KendallTau(_PairMeasure):
    """Kendall's τ_b between scores and labels."""

    name: ClassVar[str] = "tau"

    def _of(self, counts: dict[str, FloatArray]) -> FloatArray:
        # One root of the product: the root of a square is exact, so that equal orders give 1 and not the float above.
        tau = _or_nan(
            counts["concordant"] - counts["discordant"], np.sqrt(counts["label_pairs"] * counts["score_pairs"])
        )
        return np.clip(tau, -1.0, 1.0)


@dataclass(frozen=True)
class SpearmanRho(_PairMeasure):
    """Spearman's ρ between scores and labels, on mean ranks."""

    name: ClassVar[str] = "rho"

    def _of(self, counts: dict[str, FloatArray]) -> FloatArray:
        return counts["spearman"]


@dataclass(frozen=True)
class OWA(Measure):
    """Ordered-weighted ranking error of Usunier et al. 2009 (lower is better): mean over relevant documents of Φ(rank).

    `weights`: ``constant``, ``top`` (constant on the top p %), ``1/j`` or ``exp``; ties count against the ranking.
    """

    name: ClassVar[str] = "owa"
    higher_is_better: ClassVar[bool] = False
    pairwise_ties: ClassVar[bool] = True
    weights: str = "1/j"
    p: float = 10.0
    rel: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in _OWA_WEIGHTS:
            raise UnknownNameError("OWA weighting", self.weights, _OWA_WEIGHTS)
        check_number("OWA's p, a percentage,", self.p, above=0, most=100)

    @override
    def bind(self, rules: Rules) -> PerQuery:
        relevant, generator = relevant_table(rules, self.rel), _OWA_WEIGHTS.index(self.weights)

        def values(view: View) -> FloatArray:
            out = np.empty(len(view.sizes))
            concordance.owa_error(*view.ranked, relevant, generator, self.p, out)
            return out

        return values


_OWA_WEIGHTS = ("constant", "top", "1/j", "exp")
