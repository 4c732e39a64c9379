"""The stored copy: a folder of arrays that opens in milliseconds, whatever its size.

``train.toprank-data/`` holds one ``.npy`` file for each array of a `RankingData` and ``meta.json``: the format's
version, the arrays' shapes, types and content hashes, the feature names, and, where the copy is the cache of a file,
what that file was. Arrays are memory-mapped: pages come from disk when they are used, and data larger than memory work.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toprank.data import checks
from toprank.data.dataset import RankingData
from toprank.data.oserrors import os_errors
from toprank.data.queries import Queries
from toprank.data.store_writing import FORMAT, META, SUFFIX, VERSION, write_store
from toprank.errors import FileError, FormatError

__all__ = ["SUFFIX", "check_content", "is_store", "open_described", "open_store", "write_store"]

Array = npt.NDArray[Any]
PathLike = str | os.PathLike[str]

_DENSE, _SPARSE = ("X",), ("X.data", "X.indices", "X.indptr")
_REQUIRED = ("labels", "offsets", "qids")
# Kinds of number that each array may hold, as NumPy letters.
_KINDS = {
    "X": "f",
    "X.data": "f",
    "X.indices": "i",
    "X.indptr": "i",
    "labels": "f",
    "offsets": "i",
    "qids": "iU",
    "document_ids": "U",
    "document_weights": "f",
    "query_weights": "f",
    "positions": "i",
    "source_rows": "i",
}


def is_store(path: PathLike) -> bool:
    """Whether `path` is a folder that claims to be a stored copy, by its name or by its content."""
    folder = Path(path)
    return folder.is_dir() and (folder.name.endswith(SUFFIX) or (folder / META).is_file())


def open_store(path: PathLike, *, verify: bool = False) -> RankingData:
    """Open a stored copy without reading the arrays.

    Sizes and types of all arrays are checked against each other, so that a truncated or foreign folder is refused.

    Args:
        path: the folder.
        verify: also read every array and compare its hash with the stored one.
    """
    data, meta = open_described(path)
    if verify:
        check_content(path, data, meta)
    return data


def open_described(path: PathLike) -> tuple[RankingData, dict[str, Any]]:
    """A stored copy and its description. Both are of one copy, even where another process replaces it meanwhile."""
    folder = Path(path)
    for patience in (0.001, 0.005, 0.02, None):
        try:
            meta = _read_meta(folder)
            arrays = {name: _open_array(folder, name, described) for name, described in meta["arrays"].items()}
            if _read_meta(folder) == meta:  # every copy has an id of its own
                return _assembled(folder, meta, arrays), meta
        except (FormatError, FileError):
            # Between two renames there is nothing under this name; what is wrong for good is still so a moment later.
            if patience is None:
                raise
        time.sleep(patience or 0)
    raise FileError(f"{folder} is being replaced all the time by another process; try again later.")


def check_content(path: PathLike, data: RankingData, meta: dict[str, Any]) -> None:
    """Read every array and compare its hash with the one it was written with."""
    for name, array in data.arrays().items():
        if checks.digest(array) != meta["arrays"][name].get("hash"):
            raise FormatError(f"The content of '{name}' is not what was written: the hash differs.", path=path)
    if data.is_sparse:
        try:
            data.X.check_format(full_check=True)
        except ValueError as problem:
            raise FormatError(f"The stored copy is damaged: {problem}.", path=path) from None


def _read_meta(folder: Path) -> dict[str, Any]:
    """The description of a stored copy of a version that can be read."""
    if folder.exists() and not folder.is_dir():
        raise FormatError("This is a file; a stored copy is a folder.", path=folder)
    try:
        with os_errors(folder, "opened"):
            text = (folder / META).read_bytes()
    except FileError:
        if folder.is_dir() and not (folder / META).exists():
            raise FormatError(f"This folder is not a stored copy: it has no {META}.", path=folder) from None
        raise
    try:
        meta = json.loads(text)
        if meta["format"] != FORMAT:
            raise ValueError(meta["format"])
        version = int(meta["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(f"This folder is not a stored copy: its {META} is not ours.", path=folder) from None
    if version > VERSION:
        raise FormatError(
            f"This copy was written by a newer toprank (format {version}; this one reads up to {VERSION}). "
            "Update toprank, or write the copy again with this version.",
            path=folder,
        )
    if not isinstance(meta.get("arrays"), dict) or not all(isinstance(d, dict) for d in meta["arrays"].values()):
        raise FormatError(f"The stored copy is damaged: {META} does not describe its arrays.", path=folder)
    return dict(meta)


def _open_array(folder: Path, name: str, described: dict[str, Any]) -> Array:
    """One memory-mapped array, as its description promises."""
    if name not in _KINDS:
        raise FormatError(f"The stored copy is damaged: it lists an array '{name}' that cannot exist.", path=folder)
    file = folder / f"{name}.npy"
    try:
        array = np.load(file, mmap_mode="r" if 0 not in described["shape"] else None, allow_pickle=False)
    except FileNotFoundError:
        raise FormatError(f"The stored copy is damaged: {file.name} is missing.", path=folder) from None
    except (ValueError, EOFError, SyntaxError, KeyError, TypeError) as problem:
        raise FormatError(f"The stored copy is damaged: {file.name} is cut off or not ours.", path=folder) from problem
    except OSError as problem:
        raise FileError(f"{file} cannot be opened: {problem.strerror or problem}.") from problem
    promised = (described.get("dtype"), described.get("shape"))
    if array.dtype.kind not in _KINDS[name] or (array.dtype.str, list(array.shape)) != promised:
        raise FormatError(
            f"The stored copy is damaged: {file.name} holds {array.dtype} {array.shape}, not what {META} says.",
            path=folder,
        )
    if array.size and not array.flags.c_contiguous:
        raise FormatError(f"The stored copy is damaged: {file.name} is not stored by rows.", path=folder)
    return np.asarray(array)  # a plain array over the map


def _assembled(folder: Path, meta: dict[str, Any], arrays: dict[str, Array]) -> RankingData:
    """The data, once the arrays' lengths agree with each other."""
    try:
        rows, width = (int(number) for number in meta["X_shape"])
        names = meta["feature_names"]
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise TypeError("feature_names")
        sparse = _DENSE[0] not in arrays
        for name in (_SPARSE if sparse else _DENSE) + _REQUIRED:
            arrays[name]
        queries = Queries(arrays["offsets"])
        lengths = dict.fromkeys(("labels", "document_ids", "document_weights", "positions", "source_rows"), rows)
        lengths |= dict.fromkeys(("qids", "query_weights"), len(queries))
        shapes: dict[str, tuple[int, ...]] = {name: (length,) for name, length in lengths.items()}
        if sparse:
            shapes |= {"X.indptr": (rows + 1,), "X.indices": arrays["X.data"].shape}
        else:
            shapes["X"] = (rows, width)
        wrong = [name for name, shape in shapes.items() if name in arrays and arrays[name].shape != shape]
        if wrong or queries.n_documents != rows or (names is not None and len(names) != width):
            raise ValueError(wrong)
    except (KeyError, TypeError, ValueError) as problem:  # DataError, from Queries, is a ValueError
        raise FormatError("The stored copy is damaged: its arrays do not fit together.", path=folder) from problem
    data = RankingData.trusted(
        X=_sparse_matrix(arrays, (rows, width)) if sparse else arrays["X"],
        queries=queries,
        feature_names=None if names is None else tuple(names),
        **{name: arrays.get(name) for name in ("labels", "qids", *lengths)},
    )
    hashes = {name: described.get("hash") for name, described in meta["arrays"].items()}
    return data.with_digests(hashes) if all(isinstance(one, str) for one in hashes.values()) else data


def _sparse_matrix(arrays: dict[str, Array], shape: tuple[int, int]) -> Any:
    """A CSR matrix over the mapped arrays. Built by hand: SciPy's constructor reads all indices."""
    from scipy import sparse

    matrix = sparse.csr_matrix(shape, dtype=arrays["X.data"].dtype)
    matrix.data, matrix.indices, matrix.indptr = (arrays[name] for name in _SPARSE)
    return matrix
