"""LETOR / SVMrank text: ``label qid:ID id:value id:value … # comment``, one line a document."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from toprank.compute import IntArray
from toprank.data.bytesource import ByteSource, open_bytes
from toprank.data.checks import listed_paths
from toprank.data.dataset import RankingData
from toprank.data.letor import groups as sides
from toprank.data.letor.groups import Grouping
from toprank.data.letor.kernels import LARGEST_ID, N_ROWS
from toprank.data.letor.matrix import Reader
from toprank.data.letor.passes import Survey, survey_chunks
from toprank.data.letor.writing import write_letor
from toprank.data.queries import Queries
from toprank.errors import DataError, FormatError, UnknownNameError

__all__ = ["looks_like_letor", "read_letor", "write_letor"]

PathLike = str | os.PathLike[str]


def read_letor(
    paths: PathLike | Sequence[PathLike],
    *,
    dtype: npt.DTypeLike = np.float32,
    missing: Literal["nan", "zero"] = "nan",
    layout: Literal["dense", "sparse"] = "dense",
    n_features: int | None = None,
    first_feature_id: int | None = None,
    regroup: bool = False,
    threads: int | None = None,
) -> RankingData:
    r"""Read LETOR / SVMrank text, plain or compressed with gzip or zstd.

    A line is ``label qid:ID id:value … # comment``. Labels are finite numbers (-1: not judged). Query ids are whole
    numbers or any words; `qids` holds integers where all of them are written as integers, else strings. Feature ids
    count from 0 or 1, in any order, each at most once a line. Values are decimal numbers, rounded correctly; NULL or
    nan (missing); or inf, which is kept, for `toprank check` to report. Blank lines, comment lines, tabs, CRLF and a
    byte order mark are fine.

    `document_ids` come from the comments, where every row has one: the word behind ``docid =``, or the only word.
    LightGBM's side files are used where they lie beside the text `x`: `x.query` or `x.group` (the sizes of queries;
    needed where lines have no qid), `x.weight` (document weights) and `x.position` (positions).

    Args:
        paths: one file, or several that make up one data set. A query may not go on in the next file.
        dtype: float32 or float64.
        missing: what stands for missing values: NaN or 0. In a dense matrix these are NULL and features that a line
            does not mention. In a sparse matrix unmentioned features are zeros that take no room, always; a NULL is
            kept as NaN ("nan") or left out like them ("zero").
        layout: a dense array or a sparse matrix (CSR). A dense array out of all proportion to the text is refused.
        n_features: the number of columns. Default: up to the largest id in the files.
        first_feature_id: the feature id of the first column, 0 or 1. Default: 0 if any id is 0, else 1.
        regroup: bring scattered rows of a query together (queries by first appearance, rows in their order).
        threads: how many threads to use. Default: all cores. The result is the same for any number.

    Raises:
        FileError: a file cannot be read.
        FormatError: a file holds something else; the message names the file, the line and the column.
        DataError: the options contradict each other or the data.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.txt"
    >>> _ = path.write_text("2 qid:7 1:0.5 3:1 # docid = a\n0 qid:7 2:NULL 3:2 # docid = b\n")
    >>> data = read_letor(path)
    >>> data.X.tolist(), data.labels.tolist(), data.qids.tolist(), data.document_ids.tolist()
    ([[0.5, nan, 1.0], [nan, nan, 2.0]], [2.0, 0.0], [7], ['a', 'b'])
    """
    single_or_double = checked_options(dtype, missing, layout, n_features, first_feature_id)
    names = listed_paths(paths)
    if not names:
        raise DataError("There is no file to read: the list of paths is empty.")
    sources = [open_bytes(name) for name in names]
    surveys = survey_chunks(sources, threads)
    n_rows = count_rows(sources, surveys)
    grouping = Grouping.of(surveys, regroup)
    reader = Reader(sources, surveys, grouping, single_or_double, layout == "dense", missing == "zero", threads)
    parsed = reader.read(n_features, first_feature_id)
    if grouping.problem is not None:
        raise grouping.problem
    sizes, qids = queries_of(names, n_rows, grouping)
    weights, positions = sides.per_document(names, n_rows)
    return RankingData(
        parsed.X,
        parsed.labels,
        queries=Queries.from_sizes(sizes),
        qids=qids,
        document_ids=parsed.document_ids,
        document_weights=None if weights is None else grouping.scatter(weights),
        positions=None if positions is None else grouping.scatter(positions),
        source_rows=grouping.moved_rows(),
        first_feature_id=parsed.first_id,
    )


def checked_options(
    dtype: npt.DTypeLike, missing: str, layout: str, n_features: int | None, first_feature_id: int | None
) -> np.dtype[Any]:
    if missing not in ("nan", "zero"):
        raise UnknownNameError("way to read missing values", missing, ("nan", "zero"))
    if layout not in ("dense", "sparse"):
        raise UnknownNameError("layout", layout, ("dense", "sparse"))
    if first_feature_id not in (None, 0, 1):
        raise DataError(f"first_feature_id must be 0, 1 or None (find out), not {first_feature_id!r}.")
    if n_features is not None and not 1 <= n_features <= LARGEST_ID:
        raise DataError(f"n_features must be between 1 and {LARGEST_ID}, not {n_features}.")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise DataError(f"dtype must be float32 or float64, not {np.dtype(dtype)}.")
    return np.dtype(dtype)


def count_rows(sources: Sequence[ByteSource], surveys: Sequence[Survey]) -> list[int]:
    """The number of rows of each file, none of which may be empty."""
    counts = [0] * len(sources)
    for survey in surveys:
        counts[survey.chunk.file] += int(survey.state[N_ROWS])
    for source, count in zip(sources, counts, strict=True):
        if count == 0:
            what = "The file is empty" if source.size == 0 else "The file holds blank lines and comments only"
            raise FormatError(f"{what}; expected lines 'label qid:ID id:value …'.", path=source.path)
    return counts


def queries_of(
    names: Sequence[Path], n_rows: Sequence[int], grouping: Grouping
) -> tuple[IntArray, npt.NDArray[Any] | None]:
    """The sizes of the queries, and their ids where the text names them."""
    named = len(grouping.ids) > 0
    found = [
        sides.query_sizes(name, n, stretches if named else None)
        for name, n, stretches in zip(names, n_rows, grouping.stretch_sizes, strict=True)
    ]
    if named:
        return grouping.sizes, grouping.ids
    sizes = []
    for name, side in zip(names, found, strict=True):
        if side is None:
            raise FormatError(
                "The lines do not say which query they belong to: add 'qid:ID' behind the labels, or put the sizes of "
                f"the queries, one a line, into {name.name}.query.",
                path=name,
                line=1,
            )
        sizes.append(side)
    return np.concatenate(sizes), None


def looks_like_letor(first_bytes: bytes) -> bool:
    r"""Whether a file that starts with these bytes (decompressed) may be LETOR text: judged by its first full row.

    >>> looks_like_letor(b"# a comment\n2 qid:10 1:0.5 2:NULL # docid = x\n")
    True
    >>> looks_like_letor(b"label,qid,f1\n2,10,0.5\n")
    False
    """
    lines = first_bytes.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rows = (line.partition(b"#")[0].split() for line in lines)
    first = next((row for row in rows if row), None)
    if first is None:
        return False
    if len(lines) == 1 and len(first) > 2 and b"#" not in lines[0]:
        first.pop()  # the bytes end within the line, perhaps within a token
    label, *rest = first
    if rest and rest[0].startswith(b"qid:"):
        return _is_number(label) and all(_is_feature(token) for token in rest[1:])
    return bool(rest) and _is_number(label) and all(_is_feature(token) for token in rest)


def _is_number(token: bytes) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


def _is_feature(token: bytes) -> bool:
    name, colon, value = token.partition(b":")
    return name.isdigit() and bool(colon) and (_is_number(value) or value.lower() == b"null")
