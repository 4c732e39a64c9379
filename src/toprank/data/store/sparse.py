"""Sparse features of a stored copy, looked at before they are used.

Compiled loops follow the indices of a CSR matrix unchecked, so a damaged index would end the process. Opening a copy
cannot read all indices, so they are checked when rows or arrays are taken.
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
    """A CSR matrix over the mapped arrays of a stored copy.

    A range of rows (``X[first:last]``) is a plain matrix over views whose indices have been checked. Anything else
    needs the arrays themselves, and the first time that they are asked for all indices are checked.
    """

    _folder: Path | None = None
    """The copy, until all indices are checked; None for matrices that SciPy computes from this one."""

    @classmethod
    def from_matrix(cls, folder: Path, plain: sparse.csr_matrix) -> StoredMatrix:
        """The same matrix, whose indices are still to be checked."""
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
        """Where the entries of each row begin."""
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
        """Refuse rows whose entries lie outside of the arrays, or outside of the columns."""
        for array in (self._indptr, self._indices, self.data):
            unshortened(array)
        wrong = leads_outside(self._indptr[first : last + 1], self._indices, self.shape[1])
        if wrong is not None:
            raise damaged(folder, f"X.{wrong}.npy holds indices that lie outside of X. Make the copy again.")
