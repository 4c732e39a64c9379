"""Sparse features of a stored copy, with indices validated on access.

Compiled loops do not check the indices of a CSR matrix, so a damaged index could crash the process. Reading all indices
when a copy is opened would be slow, so they are validated when rows or arrays are accessed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scipy import sparse

from toprank.compute import Array, unshortened
from toprank.data.arrays import leads_outside
from toprank.data.dataset import csr_over
from toprank.data.store.opening import damaged


class StoredMatrix(sparse.csr_matrix):  # type: ignore[misc]
    """CSR matrix over the memory-mapped arrays of a stored copy.

    A slice of rows (``X[first:last]``) validates only its own indices. Any other access to the arrays validates all
    indices, once.
    """

    _folder: Path | None = None
    """Folder of the copy until all indices are validated; None for matrices that SciPy derives from this one."""

    @classmethod
    def from_matrix(cls, folder: Path, plain: sparse.csr_matrix) -> StoredMatrix:
        """Wrap a matrix whose indices are not validated yet."""
        matrix = cls(plain.shape, dtype=plain.dtype)
        matrix.data, matrix.indices, matrix.indptr = plain.data, plain.indices, plain.indptr
        matrix._folder = folder
        return matrix

    @property
    def indices(self) -> Array:
        """Column of each entry."""
        self._check_all()
        return self._indices

    @indices.setter
    def indices(self, values: Array) -> None:
        self._indices = values

    @property
    def indptr(self) -> Array:
        """Offset of the first entry of each row."""
        self._check_all()
        return self._indptr

    @indptr.setter
    def indptr(self, values: Array) -> None:
        self._indptr = values

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice) or key.step not in (None, 1):
            return super().__getitem__(key)
        unshortened(self._indices)
        first, last, _ = key.indices(self.shape[0])
        last = max(first, last)
        if self._folder is not None:
            self._check(self._folder, first, last)
        starts = self._indptr[first : last + 1]
        entries = slice(int(starts[0]), int(starts[-1]))
        arrays = self.data[entries], self._indices[entries], starts - starts[0]
        return csr_over(arrays, (last - first, self.shape[1]))

    def _check_all(self) -> None:
        if self._folder is not None:
            self._check(self._folder, 0, self.shape[0])
            self._folder = None

    def _check(self, folder: Path, first: int, last: int) -> None:
        """Raise an error for rows with entries outside of the arrays or columns."""
        for array in (self._indptr, self._indices, self.data):
            unshortened(array)
        wrong = leads_outside(self._indptr[first : last + 1], self._indices, self.shape[1])
        if wrong is not None:
            raise damaged(folder, f"X.{wrong}.npy contains indices outside of X. Write the copy again.")
