"""Agreement of two orders, pair by pair: pairwise accuracy, Kendall's τ_b, Spearman's ρ, and the OWA ranking error.

Ties need no expectation here: each measure says itself what a tied pair is worth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, kernel

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
