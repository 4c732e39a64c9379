"""Opening stored copies: folders of memory-mapped arrays.

``train.toprank-data/`` contains one ``.npy`` file for each array of a `RankingData`, and ``meta.json`` with the format
version, the shapes, types and content hashes of the arrays, the feature names and, for a cache, a description of the
cached file. Memory-mapped arrays are loaded on access, so data may be larger than memory.
"""

from __future__ import annotations

import json
import math
import os
import time
import tokenize
from pathlib import Path
from typing import Any, Self

import numpy as np

from toprank.compute import Array, in_pieces
from toprank.data.arrays import checked_names
from toprank.data.bytesource import PathLike, os_errors
from toprank.data.dataset import PER_DOCUMENT, RankingData, csr_over
from toprank.data.encoding import Encoding
from toprank.data.hashes import digest
from toprank.data.metadata import ARRAY_PREFIX, Metadata, metadata_from_arrays
from toprank.data.queries import Queries
from toprank.data.roles import Roles
from toprank.data.store.writing import (
    DESCRIPTIONS,
    FORMAT,
    META,
    SUFFIX,
    VERSION,
    hash_of_description,
    is_ours,
    kinds_of,
)
from toprank.data.texts import TextRoles
from toprank.errors import DataError, FileError, FormatError

_DENSE, _SPARSE = ("X",), ("X.data", "X.indices", "X.indptr")
_REQUIRED = ("labels", "offsets", "qids")
# Exceptions of NumPy's header reader for damaged headers.
_UNREADABLE = (
    ValueError, EOFError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError, MemoryError,
    tokenize.TokenError,
)  # fmt: skip


def is_store(path: PathLike) -> bool:
    """Return whether `path` is a folder with the name or the content of a stored copy."""
    folder = Path(path)
    with os_errors(path, "read"):
        return folder.is_dir() and (folder.name.endswith(SUFFIX) or is_ours(folder))


def open_store(path: PathLike, *, verify: bool = False) -> RankingData:
    """Open a stored copy without reading the arrays.

    Sizes and types of all arrays are validated, so truncated or foreign folders raise an error.

    Args:
        path: the folder.
        verify: whether to read all arrays and compare their hashes with the stored ones. Default: False.
    """
    data, meta = open_described(path)
    if verify:
        check_content(path, data, meta)
    return data


def open_described(path: PathLike) -> tuple[RankingData, dict[str, Any]]:
    """Open a stored copy and its description, consistently even if another process replaces the copy."""
    folder = Path(path)
    for patience in (0.001, 0.005, 0.02, None):
        try:
            meta = _read_meta(folder)
            arrays = {name: _open_array(folder, name, described) for name, described in meta["arrays"].items()}
            if _read_meta(folder) == meta:  # each copy has a unique id
                return _assembled(folder, meta, arrays), meta
        except (FormatError, FileError):
            # Between two renames the folder does not exist for a moment; permanent errors remain after a retry.
            if patience is None:
                raise
        time.sleep(patience or 0)
    raise FileError(f"{folder} is constantly being replaced by another process; try again later.")


def check_content(path: PathLike, data: RankingData, meta: dict[str, Any]) -> None:
    """Compare the hashes of all arrays and descriptions with those stored when they were written."""
    for name, array in data.arrays(source=True).items():
        if digest(array) != meta["arrays"][name].get("hash"):
            raise FormatError(
                f"The content of '{name}' was changed: its hash differs. Write the copy again.", path=path
            )
    older = (
        {"feature_names"} if "feature_names_hash" not in meta else set()
    )  # The first format version has no hash of them.
    for name, subject in DESCRIPTIONS.items():
        written = name not in older and (name in meta or f"{name}_hash" in meta)
        if written and meta.get(f"{name}_hash") != hash_of_description(meta.get(name)):
            raise FormatError(f"{subject} damaged: the hash differs. Write the copy again.", path=path)


def damaged(folder: Path, how: str) -> FormatError:
    """Return the error for a damaged stored copy."""
    return FormatError(f"The stored copy is damaged: {how}", path=folder)


def _read_meta(folder: Path) -> dict[str, Any]:
    """Read the description of a stored copy; raise an error for unsupported versions."""
    try:
        with os_errors(folder, "opened"):
            if folder.exists() and not folder.is_dir():
                raise FormatError("This is a file; a stored copy is a folder.", path=folder)
            text = (folder / META).read_bytes()
    except FileError as problem:
        if isinstance(problem.__cause__, FileNotFoundError) and folder.is_dir():
            raise FormatError(f"This folder is not a stored copy: it has no {META}.", path=folder) from None
        raise
    try:
        meta = json.loads(text)
        if meta["format"] != FORMAT:
            raise ValueError(meta["format"])
        version = int(meta["version"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise FormatError(f"This folder is not a stored copy: toprank did not write its {META}.", path=folder) from None
    if version > VERSION:
        raise FormatError(
            f"This copy was written by a newer toprank (format {version}; this one reads up to {VERSION}). "
            "Update toprank, or write the copy again with this version.",
            path=folder,
        )
    if not isinstance(meta.get("arrays"), dict) or not all(isinstance(d, dict) for d in meta["arrays"].values()):
        raise damaged(folder, f"{META} does not describe its arrays.")
    return dict(meta)


def _open_array(folder: Path, name: str, described: dict[str, Any]) -> Array:
    """Open a memory-mapped array and compare it with its description."""
    if not kinds_of(name):
        raise damaged(folder, f"it lists an unknown array '{name}'.")
    file = folder / f"{name}.npy"
    try:
        array = _mapped(file)
    except FileNotFoundError:
        raise damaged(folder, f"{file.name} is missing.") from None
    except _UNREADABLE as problem:
        raise damaged(folder, f"{file.name} is truncated or not a valid array file.") from problem
    except OSError as problem:
        raise FileError(f"{file} cannot be opened: {problem.strerror or problem}.") from problem
    promised = (described.get("dtype"), described.get("shape"))
    if array.dtype.kind not in kinds_of(name) or (array.dtype.str, list(array.shape)) != promised:
        raise damaged(folder, f"{file.name} contains {array.dtype} {array.shape}, which differs from {META}.")
    if array.size and not array.flags.c_contiguous:
        raise damaged(folder, f"{file.name} is not stored in row order.")
    return array


def _mapped(file: Path) -> Array:
    """Map a `.npy` file as a plain array; raise an error if its length differs from its header."""
    with file.open("rb") as stream:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("another version of the format")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
        start = stream.tell()
        if dtype.hasobject or os.fstat(stream.fileno()).st_size != start + dtype.itemsize * math.prod(shape):
            raise ValueError("length differs from the header")
        if 0 in shape:  # empty arrays cannot be mapped
            return np.empty(shape, dtype)
        return np.asarray(np.memmap(stream, dtype, "r", start, shape, "F" if by_columns else "C"))


def _assembled(folder: Path, meta: dict[str, Any], arrays: dict[str, Array]) -> RankingData:
    """Check that the lengths of the arrays agree, and build the data."""
    try:
        rows, width = (int(number) for number in meta["X_shape"])
        if not 0 <= width < 2**63:
            raise ValueError(width)
        sparse = _DENSE[0] not in arrays
        for name in (_SPARSE if sparse else _DENSE) + _REQUIRED:
            arrays[name]
        queries = Queries(arrays["offsets"])
        lengths = dict.fromkeys((*PER_DOCUMENT, "source_rows"), rows)
        lengths |= dict.fromkeys(("qids", "query_weights"), len(queries))
        shapes: dict[str, tuple[int, ...]] = {name: (length,) for name, length in lengths.items()}
        if sparse:
            shapes |= {"X.data": (int(arrays["X.indptr"][-1]),), "X.indptr": (rows + 1,)}
            shapes["X.indices"] = arrays["X.data"].shape
        else:
            shapes["X"] = (rows, width)
        wrong = [name for name, shape in shapes.items() if name in arrays and arrays[name].shape != shape]
        metadata = _metadata(folder, meta.get("carried", []), meta.get("text"), arrays, queries)
        if wrong or queries.n_documents != rows or (sparse and arrays["X.indptr"][0] != 0):
            raise ValueError(wrong)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as problem:  # Queries raises a ValueError
        raise damaged(folder, "its arrays do not match each other.") from problem
    if arrays["qids"].dtype.kind == "U":
        check_letters(folder, "qids", arrays["qids"])
    if "document_ids" in arrays:  # there may be many, so they are validated on access
        arrays["document_ids"] = StoredText.from_array(folder, "document_ids", arrays["document_ids"])
    data = RankingData._from_validated(
        X=csr_over((arrays[name] for name in _SPARSE), (rows, width)) if sparse else arrays["X"],
        queries=queries,
        feature_names=_names(folder, meta.get("feature_names"), width),
        first_feature_id=_first_id(folder, meta.get("first_feature_id")),
        metadata=metadata,
        encoding=_encoding(folder, meta, sparse),
        roles=Roles.from_plain(meta.get("roles")),
        **{name: arrays.get(name) for name in ("labels", "qids", *lengths)},
    )
    hashes = {name: described.get("hash") for name, described in meta["arrays"].items()}
    if all(isinstance(noted, str) for noted in hashes.values()):
        data.with_digests(hashes)
    if sparse:
        from toprank.data.store.sparse import StoredMatrix

        # Last, because from now on accessing the arrays of X reads and validates all indices.
        object.__setattr__(data, "X", StoredMatrix.from_matrix(folder, data.X))
    return data


def _metadata(folder: Path, names: Any, text: Any, arrays: dict[str, Array], queries: Queries) -> Metadata:
    """Return the metadata columns; raise ValueError or KeyError if they do not match the other arrays."""
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(names)
    roles = None if text is None else TextRoles.from_value(text)
    texts = set() if roles is None else set(roles.columns)
    columns = {name: f"{ARRAY_PREFIX}{number}" for number, name in enumerate(names)}
    listed = {key for key in arrays if key.startswith(ARRAY_PREFIX)}
    if len(columns) < len(names) or set(columns.values()) != listed or not texts <= columns.keys():
        raise ValueError(names)
    for name, key in columns.items():
        kind = arrays[key].dtype.kind
        if arrays[key].ndim != 1 or (kind == "u") != (name in texts) or (kind == "u" and arrays[key].itemsize > 1):
            raise ValueError(name)
        if kind == "U":
            check_letters(folder, key, arrays[key])
    metadata = metadata_from_arrays(names, arrays, len(queries), roles)
    if any(len(column) not in (len(queries), queries.n_documents) for column in metadata.values()):
        raise ValueError(names)
    return metadata


def _names(folder: Path, names: Any, width: int) -> tuple[str, ...] | None:
    """Return the feature names from a description."""
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise damaged(folder, "its feature names are not a list of names.")
    try:
        return checked_names(names, width)
    except DataError as problem:
        raise damaged(folder, f"{problem}") from None


def _encoding(folder: Path, meta: dict[str, Any], sparse: bool) -> Encoding | None:
    """Return the encoding from a description, which has none without categories and dates."""
    if "columns" not in meta:
        return None
    try:
        encoding = Encoding.from_plain(meta["columns"])
    except DataError as problem:
        raise damaged(folder, f"{problem}.") from None
    if sparse or list(encoding.names) != meta.get("feature_names"):
        raise damaged(folder, "the description of its columns does not match its features.")
    return encoding


def _first_id(folder: Path, first_id: Any) -> int | None:
    """Return the feature id of the first column from a description; None in older copies."""
    if first_id not in (None, 0, 1) or isinstance(first_id, bool | float):
        raise damaged(folder, f"its first feature id is {first_id!r}, but must be 0 or 1.")
    return first_id if first_id is None else int(first_id)


_LAST_LETTER = 0x10FFFF


class StoredText(np.ndarray[Any, np.dtype[Any]]):
    """Array of strings in a memory-mapped file, validated on access."""

    _folder: Path | None = None
    _name = ""

    @classmethod
    def from_array(cls, folder: Path, name: str, array: Array) -> Self:
        """Wrap an array whose characters are not validated yet."""
        text = array.view(cls)
        text._folder, text._name = folder, name
        return text

    def __array_finalize__(self, source: Any) -> None:
        self._folder, self._name = getattr(source, "_folder", None), getattr(source, "_name", "")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | np.integer):
            self[int(key) : int(key) + 1 or None]._check()
        return super().__getitem__(key)

    def tolist(self) -> Any:
        """Return the strings as a list."""
        self._check()
        return super().tolist()

    def _check(self) -> None:
        if self._folder is not None and self.dtype.kind == "U":
            check_letters(self._folder, self._name, np.asarray(self))


def check_letters(folder: Path, name: str, array: Array) -> None:
    """Raise an error for strings with invalid Unicode code points."""
    for piece in in_pieces(array):
        letters = np.ascontiguousarray(piece).view(np.uint32)
        if letters.size and letters.max() > _LAST_LETTER:
            raise damaged(folder, f"{name}.npy contains invalid text. Write the copy again.")
