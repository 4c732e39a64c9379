"""Latent semantic analysis (LSA): truncated singular value decomposition of the tf-idf matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import one_blas_thread

_OVERSAMPLING = 10  # extra columns, because the last ones of a randomized SVD are inaccurate
_POWER_ITERATIONS = 4  # needed because singular values of text decrease slowly
_RANK_TOLERANCE = 1e-6  # relative to the largest singular value; smaller ones are rounding errors

Basis = npt.NDArray[np.float32]


def basis_of(matrix: Any, dimension: int, seed: int) -> Basis:
    """Return the leading right singular vectors of a sparse matrix as columns, always fewer than its rank.

    The randomized SVD (Halko, Martinsson, Tropp 2011) runs on one thread, so that its bits do not depend on the number
    of threads.
    """
    rows, columns = matrix.shape
    wanted = min(dimension, min(rows, columns) - 1)
    if wanted < 1 or matrix.nnz == 0:
        return np.zeros((columns, 0), dtype=np.float32)
    across = matrix.T.tocsr()
    with one_blas_thread():
        sample = np.random.default_rng(seed).standard_normal((columns, min(wanted + _OVERSAMPLING, rows, columns)))
        for _ in range(_POWER_ITERATIONS):
            sample, _ = np.linalg.qr(across @ (matrix @ sample))
        _, sizes, turned = np.linalg.svd(matrix @ sample, full_matrices=False)
        basis = sample @ turned.T
    rank = int((sizes > sizes[0] * _RANK_TOLERANCE).sum())
    kept = min(wanted, rank - 1 if rank < sample.shape[1] else wanted)
    leading: Basis = basis[:, : max(kept, 0)].astype(np.float32)
    return leading
