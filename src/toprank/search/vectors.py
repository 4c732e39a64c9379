"""Embedding vectors of documents and queries, normalized to unit length so that dot products are cosines."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.data.bytesource import os_errors
from toprank.errors import DataError, FormatError, UnknownNameError
from toprank.search.collections.collection import first_repeat, preview

_IDS, _ROWS = "ids", "vectors"  # arrays of an archive


def unit_rows(what: str, vectors: npt.ArrayLike, n: int, width: int | None = None) -> npt.NDArray[np.float32]:
    """Normalize vectors to unit length; zero vectors stay zero.

    Args:
        what: subject of error messages, such as "The vectors 'minilm' of documents".
        vectors: one vector per row.
        n: required number of rows.
        width: required dimension. Default: any.
    """
    try:
        array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=np.float32)
    if array.ndim != 2 or len(array) != n or width not in (None, array.shape[-1]):
        wide = "" if width is None else f" of {width:,}"
        raise DataError(f"{what} must have {n:,} rows{wide} of finite numbers; they have shape {array.shape}.")
    # Double precision, because squares of float32 values may overflow. Non-finite lengths also reveal NaN and infinity.
    lengths = np.sqrt(np.einsum("ij,ij->i", array, array, dtype=np.float64))[:, None]
    wrong = np.flatnonzero(~np.isfinite(lengths))
    if len(wrong):
        raise DataError(
            f"{what} must be finite numbers; row {wrong[0] + 1:,} contains NaN or infinity"
            f"{f', and so do {len(wrong) - 1:,} others' if len(wrong) > 1 else ''}."
        )
    rows: npt.NDArray[np.float32] = np.divide(
        array, lengths, out=np.zeros_like(array), where=lengths > 0, casting="same_kind"
    )
    return rows


def rows_of_ids(what: str, vectors: Any, every: Sequence[str], wanted: Sequence[str] | None = None) -> Any:
    """Return the vectors of given ids, from an array with one row per id of `every`, or from a NumPy file.

    A ``.npy`` file has one row per id of `every`. A ``.npz`` file has the arrays ``ids`` and ``vectors`` in any order
    and may contain further ids.

    Args:
        what: "documents" or "queries", for error messages.
        vectors: array or file name.
        every: ids of the rows of an array.
        wanted: ids to return vectors for. Default: all.
    """
    wanted = every if wanted is None else wanted
    if isinstance(vectors, str | os.PathLike):
        path = Path(vectors)
        ids, rows = _read(path)
        if ids is not None:
            return rows[_places(path, what, ids, wanted)]
    else:
        path, rows = None, np.asarray(vectors)
    if len(every) == 1 and rows.ndim == 1:  # a single query may be given as a plain vector
        rows = rows[None]
    if rows.ndim == 0 or len(rows) != len(every):
        count = 0 if rows.ndim == 0 else len(rows)
        problem = f"There are {count:,} vectors for {len(every):,} {what}. Pass one row for each"
        if path is None:
            raise DataError(f"{problem}.")
        raise FormatError(f"{problem} in the same order, or an .npz file with 'ids' and 'vectors'.", path=path)
    if wanted is every:
        return rows
    place = {name: number for number, name in enumerate(every)}
    return rows[[place[name] for name in wanted]]


def query_vectors(
    given: Mapping[str, Any] | None, qids: Sequence[str], known: Mapping[str, npt.NDArray[np.float32]]
) -> dict[str, npt.NDArray[np.float32]]:
    """Return unit-length query vectors by name; `known` contains the document vectors."""
    by_name = {}
    for name, value in (given or {}).items():
        if name not in known:
            raise UnknownNameError("set of vectors in this index", str(name), known)
        rows = rows_of_ids("queries", value, qids)
        by_name[name] = unit_rows(f"The vectors '{name}' of queries", rows, len(qids), known[name].shape[1])
    return by_name


def _read(path: Path) -> tuple[list[str] | None, npt.NDArray[Any]]:
    """Return ids (None for .npy) and rows of a NumPy file; raise an error for pickled objects."""
    try:
        with os_errors(path, "read"), path.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return None, loaded
            with loaded as archive:
                if not {_IDS, _ROWS} <= set(archive.files):
                    present = ", ".join(archive.files) or "nothing"
                    raise FormatError(f"Expected the arrays 'ids' and 'vectors', but found {present}.", path=path)
                ids, rows = archive[_IDS], archive[_ROWS]
    except FormatError:
        raise
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
        if "Object arrays" in str(problem):
            reason = (
                "It contains Python objects, which cannot be read without executing code. Save arrays of numbers and "
                "of text."
            )
        else:
            reason = "This is not a complete NumPy file (.npy or .npz)."
        raise FormatError(reason, path=path) from None
    if ids.ndim != 1 or rows.ndim != 2 or len(ids) != len(rows):
        raise FormatError(
            f"'ids' must have one entry per row of 'vectors', but their shapes are {ids.shape} and {rows.shape}.",
            path=path,
        )
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in ids.tolist()], rows


def _places(path: Path, what: str, ids: list[str], wanted: Sequence[str]) -> list[int]:
    """Return the indices of the wanted ids in `ids`."""
    if (places := first_repeat(ids)) is not None:
        raise FormatError(f"The id '{ids[places[0]]}' occurs more than once.", path=path)
    place = {name: number for number, name in enumerate(ids)}
    missing = [name for name in wanted if name not in place]
    if missing:
        raise FormatError(
            f"Vectors of {len(missing):,} of {len(wanted):,} {what} are missing: {preview(missing)}. Check that both "
            "use the same ids.",
            path=path,
        )
    return [place[name] for name in wanted]
