"""Drawing label vectors of known distribution: the inner loop of `SyntheticData.ndcg_optimal`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.synthetic.mixing import mixed

__all__ = ["sample_ratios"]


@kernel
def sample_ratios(
    cumulative: FloatArray,
    gains: FloatArray,
    by_gain: npt.NDArray[np.int64],
    depth: FloatArray,
    offsets: IntArray,
    first: int,
    last: int,
    samples: int,
    seed: np.uint64,
    total: FloatArray,
    squares: FloatArray,
) -> None:
    """Add up G(y_j) / IDCG(y), and its square, over label vectors y drawn for the queries ``first`` to ``last``.

    Args:
        cumulative: P(grade <= g) by document and grade.
        gains: G by grade.
        by_gain: the grades, largest gain first.
        depth: Σ_{j <= r} 1/F(j) for r = 0 … cut-off.
        offsets: where each query starts.
        first: the first query.
        last: the query after the last.
        samples: label vectors for each query.
        seed: with the query's number, decides the draws.
        total: by document, the sums; added to.
        squares: by document, the sums of squares; added to.
    """
    n_grades, cut = len(gains), len(depth) - 1
    counts = np.zeros(n_grades, dtype=np.int64)
    step = np.uint64(0x9E3779B97F4A7C15)
    for query in range(first, last):
        start, stop = offsets[query], offsets[query + 1]
        drawn = np.empty(stop - start, dtype=np.int64)
        state = mixed(mixed(seed + step) + np.uint64(query) * step)
        for _ in range(samples):
            counts[:] = 0
            for j in range(start, stop):
                state += step
                u = (mixed(state) >> np.uint64(11)) * 2.0**-53
                grade = 0
                while grade < n_grades - 1 and u >= cumulative[j, grade]:
                    grade += 1
                drawn[j - start] = grade
                counts[grade] += 1
            ideal, rank = 0.0, 0
            for grade in by_gain:  # the ideal order takes the grades in blocks: no sorting
                reached = min(rank + counts[grade], cut)
                ideal += gains[grade] * (depth[reached] - depth[rank])
                rank = reached
            if ideal > 0.0:
                for j in range(start, stop):
                    ratio = gains[drawn[j - start]] / ideal
                    total[j] += ratio
                    squares[j] += ratio * ratio
