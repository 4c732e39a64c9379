"""Writing of LETOR text: shortest numbers that read back exactly, in batches, atomically."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from toprank.compute import blocks_of
from toprank.data.arrays import check_utf8
from toprank.data.bytesource import PathLike, output
from toprank.data.dataset import RankingData
from toprank.data.letor.survey import SIDES, beside
from toprank.data.warnings import warn_codes
from toprank.errors import DataError, FileError, UnknownNameError

_BATCH = 1 << 20  # values formatted at once; each needs about 15 bytes, stored three times


def write_letor(
    data: RankingData,
    path: PathLike,
    *,
    first_feature_id: int = 1,
    missing: Literal["NULL", "omit"] = "NULL",
) -> None:
    """Write LETOR / SVMrank text, compressed if the name ends in .gz or .zst; `read_letor` restores the data.

    A line is ``label qid:ID id:value … #docid = ID``. Numbers have the fewest digits that read back exactly, integers
    no decimal point. NaN labels (not judged) are written as ``NULL``, which other programs reject instead of reading it
    as a grade; use -1 for programs that should accept it. Document weights and positions are written to LightGBM's side
    files `path.weight` and `path.position`; query weights, teacher scores and feature names to toprank's side files
    `path.query_weight`, `path.teacher` (one line per row) and `path.names` (``id name``). Metadata are not written. All
    files are written atomically.

    Categories are written as codes, which depend on the table that was read, with a `CodesWarning`.

    Text has no types: string query ids that look like integers are read back as integers. Pass `n_features=` to the
    reader if the last column has no written value, and `first_feature_id=0` if the first column, with id 0, has none.

    Args:
        data: data to write; for a sparse matrix, only stored entries are written.
        path: output file, which is replaced if it exists.
        first_feature_id: feature id of the first column, 0 or 1. Default: 1.
        missing: "NULL" writes NaN as ``id:NULL``, "omit" leaves the feature out of the line. "omit" needs dense data
            without stored NaN in sparse ones, since an absent feature of a sparse matrix is a zero. Default: "NULL".

    Raises:
        DataError: an id cannot be written, or an option does not fit the data.
        FileError: a file cannot be written, or side files of another data set exist.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "small.txt"
    >>> write_letor(RankingData([[0.1, np.nan], [2.0, 1e-7]], [1, 0], qid=["a", "b"]), path)
    >>> print(path.read_text())
    1 qid:a 1:0.1 2:NULL
    0 qid:b 1:2 2:1e-7
    <BLANKLINE>
    """
    path = Path(path)
    if missing not in ("NULL", "omit"):
        raise UnknownNameError("way to write missing values", missing, ("NULL", "omit"))
    if first_feature_id not in (0, 1):
        raise DataError(f"first_feature_id must be 0 or 1, not {first_feature_id!r}.")
    _check_words(data.qids, "[ \t\r\n#]", "query id")
    if data.document_ids is not None:
        _check_words(data.document_ids, "[ \t\r\n]", "document id")
    spread = None if data.query_weights is None else data.queries.broadcast(data.query_weights)
    columns = {".weight": data.document_weights, ".position": data.positions}
    columns |= {".query_weight": spread, ".teacher": data.teacher}
    names = _names(data, first_feature_id)
    written = {suffix for suffix, column in columns.items() if column is not None} | ({".names"} if names else set())
    for suffix in SIDES:
        stale = beside(path, suffix) if suffix not in written else None
        if stale is not None:
            raise FileError(f"{stale} exists and would be read as part of the new {path}; move it away first.")
    if data.is_sparse and missing == "omit" and np.isnan(data.X.data).any():
        raise DataError("missing='omit' would turn the NaN entries of a sparse matrix into zeros; use 'NULL'.")
    warn_codes(data, "LETOR text")
    with ExitStack() as files:
        text = files.enter_context(output(path))
        for suffix, column in columns.items():
            if column is not None:
                side = files.enter_context(output(path.with_name(path.name + suffix)))
                side.write("".join(f"{value}\n" for value in column.tolist()).encode())
        if names:
            files.enter_context(output(path.with_name(f"{path.name}.names"))).write(names)
        for first, last in _batches(data.X):
            text.write(_lines(data, first, last, first_feature_id, missing == "omit"))


def _names(data: RankingData, first_feature_id: int) -> bytes:
    """Return the content of the side file of feature names; empty without names."""
    names = data.feature_names or ()
    for name in names:
        if "\n" in name or "\r" in name:
            raise DataError(f"The feature name {name!r} contains a line break and could not be read back; rename it.")
    return "".join(f"{number} {name}\n" for number, name in enumerate(names, first_feature_id)).encode()


def _check_words(words: npt.NDArray[Any], forbidden: str, kind: str) -> None:
    """Raise an error for ids that the reader would truncate or miss."""
    if words.dtype.kind != "U":
        return
    for word in words.tolist():
        check_utf8(word, kind)
        if word == "" or re.search(forbidden, word):
            what = "is empty" if word == "" else "contains whitespace, a line break or #"
            raise DataError(f"The {kind} {word!r} {what} and could not be read back; choose another.")


def _batches(matrix: Any) -> list[tuple[int, int]]:
    """Return ranges of rows with about `_BATCH` values each."""
    n_rows, width = matrix.shape
    starts = np.arange(n_rows + 1) * max(width, 1) if isinstance(matrix, np.ndarray) else matrix.indptr
    return blocks_of(starts, _BATCH)


def _entries(
    matrix: Any, first: int, last: int, omit: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the columns and values of some rows, in row order, and the start of each row."""
    if not isinstance(matrix, np.ndarray):
        ends = matrix.indptr[first : last + 1]
        return matrix.indices[ends[0] : ends[-1]], matrix.data[ends[0] : ends[-1]], ends - ends[0]
    block = matrix[first:last]
    if omit:
        rows, columns = np.nonzero(~np.isnan(block))
        return columns, block[rows, columns], np.searchsorted(rows, np.arange(len(block) + 1))
    n_rows, width = block.shape
    return np.tile(np.arange(width), n_rows), block.reshape(-1), np.arange(n_rows + 1) * width


def _lines(data: RankingData, first: int, last: int, first_feature_id: int, omit: bool) -> Any:
    """Return the text of some rows as bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def text(values: npt.NDArray[Any]) -> Any:
        if values.dtype.kind == "U":  # as a list, because Arrow truncates NumPy strings at a zero byte
            return pa.array(values.tolist(), pa.string())
        return pc.fill_null(pc.cast(pa.array(values, from_pandas=True), pa.string()), "NULL")

    columns, values, starts = _entries(data.X, first, last, omit)
    features = pc.binary_join_element_wise(text(columns + first_feature_id), text(values), ":")
    rows = pc.binary_join(pa.ListArray.from_arrays(pa.array(starts, pa.int32()), features), " ")
    labels = data.labels[first:last]
    parts = [
        text(labels),
        pc.binary_join_element_wise("qid", text(data.qids[data.queries.document_query[first:last]]), ":"),
        pc.if_else(pc.equal(pc.binary_length(rows), 0), pa.scalar(None, pa.string()), rows),
    ]
    if data.document_ids is not None:
        parts.append(pc.binary_join_element_wise("#docid =", text(data.document_ids[first:last]), " "))
    lines = pc.binary_join_element_wise(*parts, " ", null_handling="skip")
    whole = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
    return whole[0].as_py().encode() + b"\n"
