"""Latent semantic analysis: a truncated singular value decomposition of tf-idf, which needs no labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.compute import one_blas_thread

_SPARE = 10  # columns beyond those that are kept: the last directions of a random sample are the worst
_PASSES = 4  # power iterations: the spectrum of text falls slowly
_NOISE = 1e-6  # of the largest singular value: what is smaller is rounding, and no direction of the texts

Basis = npt.NDArray[np.float32]


def basis_of(matrix: Any, dimension: int, seed: int) -> Basis:
    """The leading right singular vectors of a sparse matrix as columns, fewer where its rank is not above them.

    A randomized decomposition (Halko, Martinsson, Tropp 2011) on one thread, so that its bits do not depend on how
    many there are.
    """
    rows, columns = matrix.shape
    wanted = min(dimension, min(rows, columns) - 1)
    if wanted < 1 or matrix.nnz == 0:
        return np.zeros((columns, 0), dtype=np.float32)
    across = matrix.T.tocsr()
    with one_blas_thread():
        sample = np.random.default_rng(seed).standard_normal((columns, min(wanted + _SPARE, rows, columns)))
        for _ in range(_PASSES):
            sample, _ = np.linalg.qr(across @ (matrix @ sample))
        _, sizes, turned = np.linalg.svd(matrix @ sample, full_matrices=False)
        basis = sample @ turned.T
    rank = int((sizes > sizes[0] * _NOISE).sum())
    kept = min(wanted, rank - 1 if rank < sample.shape[1] else wanted)
    leading: Basis = basis[:, : max(kept, 0)].astype(np.float32)
    return leading
