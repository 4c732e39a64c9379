"""Reading of LETOR / SVMrank text: ``label qid:ID id:value id:value … # comment``, one line per document.

The first pass (`toprank.data.letor.survey`) measures the text; the second pass here reads it into arrays of that size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, each_block, offsets_of
from toprank.data.arrays import precision
from toprank.data.bytesource import PathLike, check_size, is_float
from toprank.data.dataset import RankingData
from toprank.data.letor.faults import LARGEST_ID, fault_at, repeated_id
from toprank.data.letor.survey import Grouping, Names, Survey, SurveyedText
from toprank.data.queries import checked_regroup
from toprank.errors import DataError, FileError, FormatError, Remedy, UnknownNameError, warn_user

_SPARSE = Remedy("Read with {layout}.", layout="sparse")


class LetorKeywords(TypedDict, total=False):
    """Keywords of `read_letor` for the form of the result."""

    dtype: npt.DTypeLike
    missing: Literal["nan", "zero"]
    layout: Literal["dense", "sparse"]
    n_features: int | None
    first_feature_id: int | None


def read_letor(
    paths: PathLike | Sequence[PathLike],
    *,
    regroup: bool | None = None,
    threads: int | None = None,
    **options: Unpack[LetorKeywords],
) -> RankingData:
    r"""Read LETOR / SVMrank text, plain or compressed with gzip or zstd.

    A line is ``label qid:ID id:value … # comment``. Labels are finite numbers; -1 and NULL mean "not judged". Query ids
    are integers or words; `qids` is an integer array if all ids are integers, else a string array. Feature ids start at
    0 or 1 and may have any order, each at most once per line. Values are decimal numbers, rounded correctly; NULL or
    nan (missing); or inf, which `toprank check` reports. Blank lines, comment lines, tabs, CRLF and a byte order mark
    are allowed.

    `document_ids` are read from the comments if every row has one: the word after ``docid =``, or the only word.
    LightGBM's side files of a text `x` are used: `x.query` or `x.group` (query sizes; required if lines have no qid),
    `x.weight` (document weights) and `x.position` (positions), and those that `write_letor` adds: `x.query_weight`,
    `x.teacher` and `x.names`.

    Args:
        paths: one file, or several files of one data set. A query may continue in the next file.
        dtype: float32 or float64. Default: float32.
        missing: value for missing features, "nan" or "zero". In a dense matrix, this concerns NULL and features absent
            from a line. In a sparse matrix, absent features are always zeros without storage; NULL is stored as NaN
            ("nan") or not stored ("zero"). Default: "nan".
        layout: "dense" for an array or "sparse" for a CSR matrix. A dense array that would be far larger than the text
            raises an error. Default: "dense".
        n_features: number of columns. Default: up to the largest id in the files.
        first_feature_id: feature id of the first column, 0 or 1. Default: 0 if any id is 0, else 1.
        regroup: whether to group scattered rows of a query (queries by first appearance, rows in their order). Default:
            raise an error with the line.
        threads: number of threads. Default: all cores. The result does not depend on it.

    Raises:
        FileError: a file cannot be read.
        FormatError: a file has another format; the message contains file, line and column.
        DataError: the options contradict each other or the data.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.txt"
    >>> _ = path.write_text("2 qid:7 1:0.5 3:1 # docid = a\n0 qid:7 2:NULL 3:2 # docid = b\n")
    >>> data = read_letor(path)
    >>> data.X.tolist(), data.labels.tolist(), data.qids.tolist(), data.document_ids.tolist()
    ([[0.5, nan, 1.0], [nan, nan, 2.0]], [2.0, 0.0], [7], ['a', 'b'])
    """
    wanted = LetorOptions.from_keywords(**options, threads=threads)
    text = SurveyedText.from_files(paths, threads, regroup=checked_regroup(regroup, default=False))
    parsed = Reader(text.surveys, text.grouping, wanted.named(text.names)).read()
    queries, qids = text.queries()  # last, because an unreadable line is the more helpful error
    sides = text.per_document().grouped(text.grouping)
    return RankingData(
        parsed.X,
        parsed.labels,
        queries=queries,
        qids=qids,
        document_ids=parsed.document_ids,
        document_weights=sides.weights,
        positions=sides.positions,
        teacher=sides.teacher,
        query_weights=sides.weight_of_each_query(queries, qids),
        source_rows=text.grouping.moved_rows(),
        first_feature_id=parsed.first_id,
        feature_names=None if text.names is None else text.names.check(parsed.first_id, parsed.X.shape[1]),
    )


class LetorOptions(NamedTuple):
    """Validated options of `read_letor`."""

    dtype: np.dtype[Any]
    dense: bool
    zeros: bool
    n_features: int | None
    first_id: int | None
    threads: int | None

    @classmethod
    def from_keywords(
        cls,
        dtype: npt.DTypeLike = np.float32,
        missing: str = "nan",
        layout: str = "dense",
        n_features: int | None = None,
        first_feature_id: int | None = None,
        threads: int | None = None,
    ) -> LetorOptions:
        """Validate the options of `read_letor`."""
        if missing not in ("nan", "zero"):
            raise UnknownNameError("way to read missing values", missing, ("nan", "zero"))
        if layout not in ("dense", "sparse"):
            raise UnknownNameError("layout", layout, ("dense", "sparse"))
        if first_feature_id not in (None, 0, 1):
            raise DataError(f"first_feature_id must be 0, 1 or None (detect it), not {first_feature_id!r}.")
        if n_features is not None and not 1 <= n_features <= LARGEST_ID:
            raise DataError(f"n_features must be between 1 and {LARGEST_ID}, not {n_features}.")
        return cls(precision(dtype), layout == "dense", missing == "zero", n_features, first_feature_id, threads)

    def named(self, names: Names | None) -> LetorOptions:
        """Return the options with the columns of the names file, unless they are set already."""
        if names is None:
            return self
        first = names.first_id if self.first_id is None else self.first_id
        return self._replace(n_features=self.n_features or len(names.names), first_id=first)


class Shape(NamedTuple):
    """Shape and form of the result.

    `first_id` is the feature id of column 0. A smaller id is an error if `first_is_given`, and an id beyond the last
    column if `width_is_given`; otherwise only the range of ids is returned. `missing` replaces NULL and, in a dense
    result, absent features.
    """

    first_id: int
    width: int
    first_is_given: bool
    width_is_given: bool
    missing: float


class Result(NamedTuple):
    """Arrays to fill.

    `values` is the dense matrix in row order, or the entries of the sparse one. `columns` and `row_ends` (end of the
    entries of each row) are empty for a dense result. `ids` contains the characters of the document ids; it has no
    columns if they are not needed.
    """

    values: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    row_ends: npt.NDArray[Any]
    labels: FloatArray
    ids: npt.NDArray[np.uint32]


class Parsed(NamedTuple):
    """Features, labels and document ids of rows of text."""

    X: Any
    labels: FloatArray
    document_ids: npt.NDArray[Any] | None
    first_id: int


class Reader:
    """Reader of features, labels and document ids of surveyed files."""

    def __init__(self, surveys: Sequence[Survey], grouping: Grouping, wanted: LetorOptions) -> None:
        self.surveys, self.grouping, self.options = surveys, grouping, wanted
        self.dtype, self.dense = wanted.dtype, wanted.dense
        self.n_rows = int(grouping.run_rows.sum())

    @property
    def text_bytes(self) -> int:
        """Total size of the files in bytes."""
        return sum(source.size for source in {survey.chunk.source for survey in self.surveys})

    def read(self) -> Parsed:
        """Read features, labels and document ids."""
        ids, (least, most) = self.id_type(), id_range(self.surveys)
        while True:  # at most twice, if a row with unordered ids proves the survey wrong
            shape = self.shape(least, most)
            parsed, (below, beyond) = self.parse(shape, ids)
            if parsed is not None:
                return parsed
            least, most = min(least, below), max(most, beyond)

    def shape(self, least: int, most: int) -> Shape:
        """Return the shape of the result for a range of ids; raise an error if it is far larger than the text."""
        n_features, first_id = self.options.n_features, self.options.first_id
        first = first_id if first_id is not None else int(least != 0)
        width = n_features if n_features is not None else max(most - first + 1, 0)
        if self.dense:
            what = f"A dense array of {self.n_rows:,} rows and {width:,} features"
            n_bytes = self.n_rows * width * self.dtype.itemsize
            wanted = most if n_features is None else -1
            check_size(n_bytes, self.text_bytes, what, _SPARSE, partial(self._at_id, wanted))
        missing = 0.0 if self.options.zeros and self.dense else np.nan
        return Shape(first, width, first_id is not None, n_features is not None, missing)

    def _at_id(self, feature: int, problem: str) -> FormatError:
        """Return an error at the first occurrence of a feature, or without a line if it does not occur."""
        for survey in self.surveys:
            chunk = survey.chunk
            match = re.search(rb"(?<!\S)0*%d:" % feature, chunk.source.bytes(chunk.start, chunk.end))
            if feature >= 0 and match is not None:
                return chunk.source.fault(problem, chunk.start + match.start())
        return FormatError(problem, path=self.surveys[0].chunk.source.path)

    def parse(self, shape: Shape, ids: np.dtype[Any] | None) -> tuple[Parsed | None, tuple[int, int]]:
        """Read the rows into this shape; return None and the range of ids if some ids are outside of it."""
        result = self._result(shape.width, ids)
        below, beyond, shuffled = parse_chunks(self.surveys, self.grouping.places, shape, result, self.options.threads)
        if beyond >= 0:
            return None, (below, beyond)
        dense = result.values.reshape(self.n_rows, shape.width) if self.dense else None
        X = self._sparse(result, shape, shuffled) if dense is None else dense
        words = None if ids is None else self._document_ids(result, ids)
        return Parsed(X, result.labels, words, shape.first_id), (below, beyond)

    def _result(self, width: int, ids: np.dtype[Any] | None) -> Result:
        if self.dense:
            n_values, n_ends = self.n_rows * width, 0
        else:
            n_values, n_ends = n_entries(self.surveys), self.n_rows
        index = np.int32 if self.dense else index_type(n_values, width)
        letters = (0, 0) if ids is None else (self.n_rows, ids.itemsize // 4)
        return Result(
            values=np.empty(n_values, dtype=self.dtype),
            columns=np.empty(0 if self.dense else n_values, dtype=index),
            row_ends=np.zeros(n_ends + 1, dtype=index)[1:],
            labels=np.empty(self.n_rows),
            ids=np.empty(letters, dtype=np.uint32),
        )

    def _sparse(self, result: Result, shape: Shape, shuffled: bool) -> Any:
        from scipy import sparse

        ends = result.row_ends.base
        X = sparse.csr_matrix((result.values, result.columns, ends), shape=(self.n_rows, shape.width), copy=False)
        if shuffled:
            X.has_sorted_indices = False
            X.sort_indices()
            repeats = X.indices[1:] == X.indices[:-1]
            repeats[X.indptr[1:-1][(X.indptr[1:-1] > 0) & (X.indptr[1:-1] < X.nnz)] - 1] = False
            if repeats.any():
                entry = int(np.argmax(repeats))
                row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
                feature = int(X.indices[entry]) + shape.first_id
                raise repeated_id(self.surveys, self.grouping.row_of_text(row), feature)
        if self.options.zeros and (absent := np.isnan(X.data)).any():
            kept = offsets_of(~absent)[X.indptr].astype(X.indptr.dtype)
            X = sparse.csr_matrix((X.data[~absent], X.indices[~absent], kept), shape=X.shape)
        return X

    def id_type(self) -> np.dtype[Any] | None:
        """Type of the document ids in the text; None if a row has none."""
        states = np.array([survey.state for survey in self.surveys])
        longest = int(states[:, kernels.LetorSurvey.ID_LENGTH].max())
        if states[:, kernels.LetorSurvey.N_IDENTIFIED].sum() < self.n_rows:
            return None
        for survey in self.surveys:
            if survey.state[kernels.LetorSurvey.ID_ZERO]:
                problem = "The document id ends in a zero byte, which is not allowed; remove it."
                raise survey.chunk.source.fault(problem, int(survey.state[kernels.LetorSurvey.ID_ZERO]) - 1)
        try:
            check_size(4 * longest * self.n_rows, self.text_bytes, "The document ids, padded to the longest one,", "")
        except DataError as problem:
            path = self.surveys[0].chunk.source.path
            warn_user(f"{path}: {str(problem).rstrip()} The document ids are left out.")
            return None
        return np.dtype(f"U{longest}")

    @property
    def foreign_ids(self) -> bool:
        """True if a document id has non-ASCII characters."""
        return any(survey.state[kernels.LetorSurvey.ID_FOREIGN] for survey in self.surveys)

    def _document_ids(self, result: Result, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        ids = result.ids.reshape(-1).view(kind)
        if self.foreign_ids:  # the kernel stores bytes as characters; escape bytes that are not UTF-8
            return np.array([word.encode("latin-1").decode("utf-8", "backslashreplace") for word in ids.tolist()])
        return ids


def id_range(surveys: Sequence[Survey]) -> tuple[int, int]:
    """Return the smallest and the largest feature id in the survey."""
    states = np.array([survey.state for survey in surveys])
    return int(states[:, kernels.LetorSurvey.LEAST_ID].min()), int(states[:, kernels.LetorSurvey.MOST_ID].max())


def n_entries(surveys: Sequence[Survey]) -> int:
    """Return the number of entries of all rows."""
    return int(sum(survey.runs[:, kernels.LetorRun.ENTRIES].sum() for survey in surveys))


def index_type(entries: int, width: int) -> type[np.int32 | np.int64]:
    """Return the index type of a sparse matrix."""
    return np.int32 if max(entries, width) <= LARGEST_ID else np.int64


def parse_chunks(
    surveys: Sequence[Survey], places: IntArray, shape: Shape, result: Result, threads: int | None
) -> tuple[int, int, bool]:
    """Run the second pass: fill the result, or raise a `FormatError` for the first invalid line.

    Return the smallest and largest feature id outside the result, and whether the ids of a sparse row are unordered.
    `places` contains the first row and entry in the result for each run of all chunks.
    """
    firsts = np.cumsum([0] + [len(survey.runs) for survey in surveys])
    jobs = [(survey, places[first:last]) for survey, first, last in zip(surveys, firsts, firsts[1:], strict=False)]
    outcomes = each_block(lambda job: _parse(*job, shape, result), jobs, threads)
    states = []
    for outcome in outcomes:  # in the order of the text, so that the first fault is reported
        if isinstance(outcome, FormatError):
            raise outcome
        states.append(outcome)
    least, most, shuffled, _ = np.array(states).T
    return int(least.min()), int(most.max()), bool(shuffled.any())


def _parse(survey: Survey, places: IntArray, shape: Shape, result: Result) -> IntArray | FormatError:
    """Parse a chunk; return the range of ids outside, whether ids are unordered and the end position, or the error."""
    chunk, figures = survey.chunk, np.empty(4, dtype=np.int64)
    fault = kernels.letor_parse(chunk.read(), survey.runs, places, *shape, *result, figures)
    if fault == kernels.LetorFault.CHANGED:
        raise FileError(f"{chunk.source.path} changed while it was read. Read it again when it no longer changes.")
    if fault == kernels.LetorFault.FINE:
        return figures
    single = result.values.itemsize == 4
    return fault_at(chunk.source, fault, chunk.start + int(figures[3]), shape.width, single)


def looks_like_letor(first_bytes: bytes) -> bool:
    r"""Return whether a file with these first (decompressed) bytes may be LETOR text, according to its first row.

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
        first.pop()  # the bytes may end within a token
    label, *rest = first
    features = rest[1:] if rest and rest[0].startswith(b"qid:") else rest
    return bool(rest) and (is_float(label) or label == b"NULL") and all(_is_feature(token) for token in features)


def _is_feature(token: bytes) -> bool:
    name, colon, value = token.partition(b":")
    return name.isdigit() and bool(colon) and (is_float(value) or value.lower() == b"null")
