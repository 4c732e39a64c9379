"""Vectors that users bring, of any model: rows of length 1, whose products are cosines."""

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
    """Vectors as rows of length 1; a row of zeros stays one.

    Args:
        what: what a refusal calls them: "The vectors 'minilm' of documents".
        vectors: a row for each.
        n: how many rows there must be.
        width: how long each must be; None: any length.
    """
    try:
        array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=np.float32)
    if array.ndim != 2 or len(array) != n or width not in (None, array.shape[-1]):
        wide = "" if width is None else f" of {width:,}"
        raise DataError(f"{what} must be {n:,} rows{wide} of finite numbers; their shape is {array.shape}.")
    # Lengths in double precision: the square of a float32 may be beyond it. They tell what is not finite, too.
    lengths = np.sqrt(np.einsum("ij,ij->i", array, array, dtype=np.float64))[:, None]
    wrong = np.flatnonzero(~np.isfinite(lengths))
    if len(wrong):
        raise DataError(
            f"{what} must be finite numbers; row {wrong[0] + 1:,} holds NaN or infinity"
            f"{f', and so do {len(wrong) - 1:,} others' if len(wrong) > 1 else ''}."
        )
    rows: npt.NDArray[np.float32] = np.divide(
        array, lengths, out=np.zeros_like(array), where=lengths > 0, casting="same_kind"
    )
    return rows


def rows_of_ids(what: str, vectors: Any, every: Sequence[str], wanted: Sequence[str] | None = None) -> Any:
    """The vectors of these ids in their order, from an array with a row for each of `every`, or from a file.

    A file is NumPy's: ``.npy`` has the rows in the order of `every`; ``.npz`` has two arrays, ``ids`` and ``vectors``,
    in any order, and may hold those of others too.

    Args:
        what: what a refusal says they are of: "documents" or "queries".
        vectors: an array, or the name of a file.
        every: the ids of an array's rows.
        wanted: the ids to return vectors of; None: all.
    """
    wanted = every if wanted is None else wanted
    if isinstance(vectors, str | os.PathLike):
        path = Path(vectors)
        ids, rows = _read(path)
        if ids is not None:
            return rows[_places(path, what, ids, wanted)]
    else:
        path, rows = None, np.asarray(vectors)
    if len(every) == 1 and rows.ndim == 1:  # of one query: the vector itself
        rows = rows[None]
    if rows.ndim == 0 or len(rows) != len(every):
        count = 0 if rows.ndim == 0 else len(rows)
        problem = f"There are {count:,} vectors for {len(every):,} {what}; give a row for each"
        if path is None:
            raise DataError(f"{problem}.")
        raise FormatError(f"{problem}, in their order, or an archive (.npz) of 'ids' and 'vectors'.", path=path)
    if wanted is every:
        return rows
    place = {name: number for number, name in enumerate(every)}
    return rows[[place[name] for name in wanted]]


def query_vectors(
    given: Mapping[str, Any] | None, qids: Sequence[str], known: Mapping[str, npt.NDArray[np.float32]]
) -> dict[str, npt.NDArray[np.float32]]:
    """Return vectors of queries by name as rows of length 1; `known` are those of the documents."""
    by_name = {}
    for name, value in (given or {}).items():
        if name not in known:
            raise UnknownNameError("set of vectors in this index", str(name), known)
        rows = rows_of_ids("queries", value, qids)
        by_name[name] = unit_rows(f"The vectors '{name}' of queries", rows, len(qids), known[name].shape[1])
    return by_name


def _read(path: Path) -> tuple[list[str] | None, npt.NDArray[Any]]:
    """Return ids (None if the file has none) and rows; a file that would have to run code is refused."""
    try:
        with os_errors(path, "read"), path.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return None, loaded
            with loaded as archive:
                if not {_IDS, _ROWS} <= set(archive.files):
                    present = ", ".join(archive.files) or "nothing"
                    raise FormatError(f"Expected the arrays 'ids' and 'vectors'; found {present}.", path=path)
                ids, rows = archive[_IDS], archive[_ROWS]
    except FormatError:
        raise
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
        if "Object arrays" in str(problem):
            reason = (
                "It holds Python objects, which cannot be read without running code; save arrays of numbers and of "
                "text."
            )
        else:
            reason = "This is neither a NumPy array (.npy) nor an archive of arrays (.npz), or it is cut off."
        raise FormatError(reason, path=path) from None
    if ids.ndim != 1 or rows.ndim != 2 or len(ids) != len(rows):
        raise FormatError(
            f"'ids' must name each row of 'vectors'; their shapes are {ids.shape} and {rows.shape}.", path=path
        )
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in ids.tolist()], rows


def _places(path: Path, what: str, ids: list[str], wanted: Sequence[str]) -> list[int]:
    """Return the places of the wanted ids among `ids`."""
    if (places := first_repeat(ids)) is not None:
        raise FormatError(f"The id '{ids[places[0]]}' occurs more than once.", path=path)
    place = {name: number for number, name in enumerate(ids)}
    missing = [name for name in wanted if name not in place]
    if missing:
        raise FormatError(
            f"It has no vector for {len(missing):,} of {len(wanted):,} {what}: {preview(missing)}. Are the ids spelled "
            "alike?",
            path=path,
        )
    return [place[name] for name in wanted]
