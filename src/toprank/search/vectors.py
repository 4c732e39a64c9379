"""Vectors that users bring, of any model: rows of length 1, whose products are cosines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from toprank.errors import DataError

__all__ = ["unit_rows"]


def unit_rows(what: str, given: npt.ArrayLike, n: int, width: int | None = None) -> npt.NDArray[np.float32]:
    """Vectors as rows of length 1; a row of zeros stays one.

    Args:
        what: whose they are, for the refusal: "The vectors 'minilm' of documents".
        given: a row for each.
        n: how many rows there must be.
        width: how long each must be; None: as they are.
    """
    try:
        array = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=np.float32)
    fits = array.ndim == 2 and len(array) == n and width in (None, array.shape[-1])
    if not fits or not np.isfinite(array).all():
        wide = "" if width is None else f" of {width:,}"
        raise DataError(f"{what} must be {n:,} rows{wide} of finite numbers; their shape is {array.shape}.")
    lengths = np.sqrt(np.einsum("ij,ij->i", array, array, dtype=np.float64))[:, None]
    rows: npt.NDArray[np.float32] = np.divide(
        array, lengths, out=np.zeros_like(array), where=lengths > 0, casting="same_kind"
    )
    return rows
