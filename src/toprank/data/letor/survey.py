"""First pass over LETOR text: chunks of complete lines are measured in parallel, and runs of rows become queries.

A run is a sequence of consecutive rows with the same query token. Side files of a text `x` have one number per line:
LightGBM's `x.query` (or `x.group`) with query sizes, `x.weight` and `x.position`, and toprank's `x.query_weight` with
the query weight of each row and `x.teacher` with scores of another ranker. `x.names` contains feature ids and names.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank import kernels
from toprank.compute import FloatArray, IntArray, each_block
from toprank.data.bytesource import Bytes, ByteSource, PathLike, check_size, listed_paths, open_bytes, plain_name
from toprank.data.queries import Queries, factorize, joined_queries, weight_of_each_query
from toprank.errors import FormatError, Remedy, join_parts

_REGROUP = Remedy("read with {regroup}.", regroup=True)
_CHUNK = 4 << 20  # bytes per chunk, rounded up to complete lines
_ROOM = 1024  # initial capacity of the run table, which is doubled when full


@dataclass(frozen=True, eq=False)
class Chunk:
    """A part of a file with complete lines. Both passes read it again, so memory depends only on the threads."""

    source: ByteSource
    file: int
    start: int
    end: int

    def read(self) -> Bytes:
        """Read the bytes of the chunk."""
        return self.source.array(self.start, self.end)


@dataclass(frozen=True, eq=False)
class Survey:
    """Result of the first pass over a chunk: run table, final state, and query tokens if not all are numbers."""

    chunk: Chunk
    runs: IntArray
    state: IntArray
    words: list[bytes | None] | None

    def tokens(self) -> list[bytes | None]:
        """Return the query token of each run, or None."""
        if self.words is not None:
            return self.words
        return [b"%d" % value for value in self.runs[:, kernels.LetorRun.TOKEN_NUMBER].tolist()]


def survey_chunks(sources: Sequence[ByteSource], threads: int | None) -> list[Survey]:
    """Run the first pass over all files."""
    chunks = [chunk for file, source in enumerate(sources) for chunk in _chunks(source, file)]
    return each_block(_survey, chunks, threads)


def _chunks(source: ByteSource, file: int) -> list[Chunk]:
    return [Chunk(source, file, start, end) for start, end in source.pieces(_CHUNK)]


def _survey(chunk: Chunk) -> Survey:
    columns, at = kernels.LetorRun, kernels.LetorSurvey
    runs = np.empty((_ROOM, columns.RUN_COLUMNS), dtype=np.int64)
    state = np.zeros(at.SURVEY_STATE, dtype=np.int64)
    state[at.LEAST_ID], state[at.MOST_ID] = np.iinfo(np.int64).max, -1
    text = chunk.read()
    lone = kernels.lone_return(text)
    if lone >= 0:
        raise chunk.source.lone_return(chunk.start + lone)
    while state[at.AT] < len(text):
        if state[at.N_RUNS] == len(runs):
            runs = np.concatenate([runs, np.empty_like(runs)])
        kernels.letor_survey(text, runs, state)
    runs = runs[: state[at.N_RUNS]].copy()
    words: list[bytes | None] | None = None
    if state[at.N_WORDS]:
        content, spans = text.tobytes(), runs[:, [columns.START, columns.STOP]].tolist()
        words = [content[start:stop] if start >= 0 else None for start, stop in spans]
    runs[:, columns.STOP] += chunk.start  # convert to positions in the file
    runs[runs[:, columns.START] >= 0, columns.START] += chunk.start
    return Survey(chunk, runs, state, words)


@dataclass(frozen=True, eq=False)
class Grouping:
    """Assignment of rows to queries and to rows of the result.

    A `problem` is stored instead of raised, because an unreadable line is the more helpful error.
    """

    ids: npt.NDArray[Any]  # one for each query, by first appearance; empty without query tokens
    sizes: IntArray  # number of rows of each query
    places: IntArray  # first row and entry of each run in the result
    run_rows: IntArray  # number of rows of each run
    stretch_sizes: list[IntArray]  # for each file, sizes of its sequences of rows of the same query
    problem: FormatError | None

    @classmethod
    def from_surveys(cls, surveys: Sequence[Survey], regroup: bool, remedy: Remedy = _REGROUP) -> Grouping:
        """Group the runs of all chunks; `remedy` is used in the message about scattered queries."""
        runs = _Runs(
            table=np.concatenate([survey.runs for survey in surveys]),
            files=np.repeat([survey.chunk.file for survey in surveys], [len(survey.runs) for survey in surveys]),
            sources={survey.chunk.file: survey.chunk.source for survey in surveys},
            words=_words(surveys),
        )
        columns = kernels.LetorRun
        table, files, named = runs.table, runs.files, runs.table[:, columns.START] >= 0
        codes, ids, problem = _queries(runs)

        starts = np.flatnonzero(np.append(True, (codes[1:] != codes[:-1]) | (files[1:] != files[:-1])))
        sizes = np.add.reduceat(table[:, columns.ROWS], starts)
        if named.any() and not named.all():
            problem = _half_named(runs, named)
        elif problem is None and named.all() and not regroup:
            problem = _scattered(runs, codes, remedy)
        order = np.argsort(codes, kind="stable") if regroup else np.arange(len(table))
        return cls(
            ids=ids,
            sizes=np.bincount(codes, weights=table[:, columns.ROWS]).astype(np.int64),
            places=_places(table[:, [columns.ROWS, columns.ENTRIES]], order),
            run_rows=table[:, columns.ROWS],
            stretch_sizes=[sizes[files[starts] == file] for file in range(files[-1] + 1)],
            problem=problem,
        )

    def part(self, first: int, last: int) -> Grouping:
        """Return the grouping of the runs ``[first, last)`` of text whose rows keep their order."""
        places = self.places[first:last]
        return replace(self, places=places - places[0], run_rows=self.run_rows[first:last])

    def scatter(self, per_row: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Reorder values from the order of the text to the order of the result."""
        first_rows = np.cumsum(self.run_rows) - self.run_rows
        moved = np.empty_like(per_row)
        moved[np.arange(len(per_row)) + np.repeat(self.places[:, 0] - first_rows, self.run_rows)] = per_row
        return moved

    def moved_rows(self) -> IntArray | None:
        """Return the row in the text of each row of the result; None if the order is unchanged."""
        first_rows = np.cumsum(self.run_rows) - self.run_rows
        if np.array_equal(self.places[:, 0], first_rows):
            return None
        return self.scatter(np.arange(int(self.run_rows.sum())))

    def row_of_text(self, row: int) -> int:
        """Return the row in the text, from 0 over all files, of a row of the result."""
        run = int(np.flatnonzero((self.places[:, 0] <= row) & (row < self.places[:, 0] + self.run_rows))[0])
        return int(self.run_rows[:run].sum() + row - self.places[run, 0])


class _Runs(NamedTuple):
    """The concatenated run tables of all chunks, with the file of each run."""

    table: IntArray
    files: IntArray
    sources: dict[int, ByteSource]
    words: list[bytes | None] | None
    """Query token of each run; None if all are numbers."""

    def name(self, run: int) -> str:
        """Return the name of the query of a run for messages."""
        number = self.table[run, kernels.LetorRun.TOKEN_NUMBER]
        token = b"%d" % number if self.words is None else self.words[run] or b""
        return token.decode("utf-8", "replace")[:40]

    def fault(self, problem: str, run: int, column: int) -> FormatError:
        """Return the error for a run, at the position in a column of its table."""
        return self.sources[int(self.files[run])].fault(problem, int(self.table[run, column]))


def _words(surveys: Sequence[Survey]) -> list[bytes | None] | None:
    if all(survey.words is None for survey in surveys):
        return None
    return [token for survey in surveys for token in survey.tokens()]


def _queries(runs: _Runs) -> tuple[IntArray, npt.NDArray[Any], FormatError | None]:
    """Return the query number of each run, by first appearance, the query ids, and the error, if any."""
    if runs.words is None:
        return *factorize(runs.table[:, kernels.LetorRun.TOKEN_NUMBER]), None
    numbers: dict[bytes | None, int] = {}
    codes = np.empty(len(runs.table), dtype=np.int64)
    for run, word in enumerate(runs.words):
        codes[run] = numbers.setdefault(word, len(numbers))
    tokens = [token for token in numbers if token is not None]
    for token in tokens:
        if token.endswith(b"\0"):  # NumPy strings drop trailing zero bytes, so two ids could become equal
            run = int(np.argmax(codes == numbers[token]))
            problem = "The id of the query ends in a zero byte, which is not allowed; remove it."
            return codes, np.array([]), runs.fault(problem, run, kernels.LetorRun.START)
    widest = max(map(len, tokens), default=0)
    text_bytes = sum(source.size for source in runs.sources.values())

    def at_longest(problem: str) -> FormatError:
        return runs.fault(problem, int(np.argmax(codes == numbers[max(tokens, key=len)])), kernels.LetorRun.START)

    what = "The query ids, padded to the longest one,"
    check_size(4 * widest * len(tokens), text_bytes, what, "Shorten the longest one.", at_longest)
    try:
        return codes, np.array([token.decode() for token in tokens]), None
    except UnicodeDecodeError as bad:
        run = int(np.argmax(codes == numbers[bad.object]))
        return codes, np.array([]), runs.fault("The id of the query is not UTF-8 text.", run, kernels.LetorRun.START)


def _places(sizes: IntArray, order: IntArray) -> IntArray:
    """Return the first row and entry of each run if the runs are arranged in this order."""
    places = np.empty(sizes.shape, dtype=np.int64)
    places[order] = np.cumsum(sizes[order], axis=0) - sizes[order]
    return places


def _half_named(runs: _Runs, named: npt.NDArray[np.bool_]) -> FormatError:
    odd = int(np.argmax(named != named[0]))
    if named[0]:
        what = "Expected 'qid:' and the id of the query after the label, as in the previous lines."
    else:
        what = "This line has a 'qid:', but previous lines do not; add it to all lines, or remove it."
    return runs.fault(what, odd, kernels.LetorRun.STOP if named[0] else kernels.LetorRun.START)


def _scattered(runs: _Runs, codes: IntArray, remedy: Remedy) -> FormatError | None:
    """Return the error for the first run whose query occurred before, but not in the previous run."""
    run = joined_queries(codes)[1]
    if run is None:
        return None
    problem = f"Query {runs.name(run)} starts again here: its rows are not contiguous."
    return runs.fault(join_parts(problem, "Sort the lines by query, or", remedy), run, kernels.LetorRun.START)


class SurveyedText(NamedTuple):
    """Files of a text after the first pass."""

    paths: list[Path]
    names: Names | None
    surveys: list[Survey]
    counts: list[int]
    """Number of rows of each file."""
    grouping: Grouping

    @classmethod
    def from_files(
        cls,
        paths: PathLike | Sequence[PathLike],
        threads: int | None,
        *,
        regroup: bool = False,
        remedy: Remedy = _REGROUP,
        spool: Path | None = None,
    ) -> Self:
        """Run the first pass; compressed files are decompressed in `spool`. See `Grouping.from_surveys`."""
        files = listed_paths(paths)
        names = names_beside(files)
        sources = [open_bytes(file, spool) for file in files]
        surveys = survey_chunks(sources, threads)
        counts = count_rows(sources, surveys)
        return cls(files, names, surveys, counts, Grouping.from_surveys(surveys, regroup, remedy))

    def queries(self) -> tuple[Queries, npt.NDArray[Any] | None]:
        """Return the queries and, if the text has them, their ids; raise an error for scattered rows."""
        if self.grouping.problem is not None:
            raise self.grouping.problem
        sizes, qids = queries_of(self.paths, self.counts, self.grouping)
        return Queries.from_sizes(sizes), qids

    def per_document(self) -> PerDocument:
        """Read the columns of the side files, in the order of the text."""
        return per_document(self.paths, self.counts)


def count_rows(sources: Sequence[ByteSource], surveys: Sequence[Survey]) -> list[int]:
    """Return the number of rows of each file; raise an error for an empty file."""
    counts = [0] * len(sources)
    for survey in surveys:
        counts[survey.chunk.file] += int(survey.state[kernels.LetorSurvey.N_ROWS])
    for source, count in zip(sources, counts, strict=True):
        if count == 0:
            what = "The file is empty" if source.size == 0 else "The file contains only blank lines and comments"
            raise FormatError(f"{what}; expected lines 'label qid:ID id:value …'.", path=source.path)
    return counts


def queries_of(
    names: Sequence[Path], n_rows: Sequence[int], grouping: Grouping
) -> tuple[IntArray, npt.NDArray[Any] | None]:
    """Return the sizes of the queries, and their ids if the text names them."""
    named = len(grouping.ids) > 0
    sides = [
        query_sizes(name, n, stretches if named else None)
        for name, n, stretches in zip(names, n_rows, grouping.stretch_sizes, strict=True)
    ]
    if named:
        return grouping.sizes, grouping.ids
    sizes = []
    for name, side in zip(names, sides, strict=True):
        if side is None:
            raise FormatError(
                "The lines have no query id: add 'qid:ID' after the labels, or write the query sizes, one per line, to "
                f"{name.name}.query.",
                path=name,
                line=1,
            )
        sizes.append(side)
    return np.concatenate(sizes), None


SIDES = (".query", ".group", ".weight", ".position", ".query_weight", ".teacher", ".names")


def query_sizes(path: Path, n_rows: int, stretches: IntArray | None) -> IntArray | None:
    """Read the query sizes of a text with `n_rows` rows from its side file; None if it has none.

    Raise an error if two side files contradict each other or the `qid:` tokens of the text (`stretches`).
    """
    sizes: IntArray | None = None
    for suffix in (".query", ".group"):
        side = beside(path, suffix)
        if side is None:
            continue
        listed = _numbers(side, int, np.int64, "a size, a whole number above 0", lambda size: size > 0)
        total = sum(listed.tolist())  # Python integers do not overflow
        if total != n_rows:
            raise FormatError(f"The sizes of the queries add up to {total}, but {path} has {n_rows} rows.", path=side)
        for other, what in ((sizes, f"the file {path.name}.query"), (stretches, f"the qid: tokens in {path}")):
            if other is not None and not np.array_equal(other, listed):
                raise FormatError(f"The sizes of the queries differ from {what}; remove the wrong one.", path=side)
        sizes = listed
    return sizes


class PerDocument(NamedTuple):
    """Columns of the side files; None for missing files."""

    weights: FloatArray | None
    positions: npt.NDArray[np.int64] | None
    query_weights: FloatArray | None
    """Query weight of each row."""
    teacher: FloatArray | None

    def grouped(self, grouping: Grouping) -> PerDocument:
        """Return the columns in the order of the result."""
        return PerDocument(*(None if column is None else grouping.scatter(column) for column in self))

    def weight_of_each_query(self, queries: Queries, qids: Any) -> FloatArray | None:
        """Return the weight of each query of grouped rows; raise an error if it varies within a query."""
        if self.query_weights is None:
            return None
        return weight_of_each_query(self.query_weights, queries, np.arange(len(queries)) if qids is None else qids)


def per_document(paths: Sequence[Path], n_rows: Sequence[int]) -> PerDocument:
    """Read document weights, positions, query weights and teacher scores from side files, in the order of the text.

    Raise an error if a side file does not match its text, or if only some of several texts have one.
    """

    def column(suffix: str, read: Callable[[Path], npt.NDArray[Any]]) -> npt.NDArray[Any] | None:
        sides = [beside(path, suffix) for path in paths]
        present = [side for side in sides if side is not None]
        if not present:
            return None
        parts = []
        for path, side, n in zip(paths, sides, n_rows, strict=True):
            if side is None:
                raise FormatError(
                    f"{path.name}{suffix} is missing, but {present[0]} exists; give all or none.", path=path
                )
            parts.append(read(side))
            if len(parts[-1]) != n:
                raise FormatError(
                    f"There are {len(parts[-1])} lines for the {n} rows of {path}; give one for each.", path=side
                )
        return np.concatenate(parts)

    weight, position = "a weight, a finite number that is not negative", "a position, a whole number"
    fits = range(-(2**63), 2**63).__contains__

    def weights(side: Path) -> npt.NDArray[Any]:
        return _numbers(side, float, np.float64, weight, lambda w: 0 <= w < np.inf)

    positions = column(".position", lambda side: _numbers(side, int, np.int64, position, fits))
    score = "a teacher's score, a finite number"
    teacher = column(".teacher", lambda side: _numbers(side, float, np.float64, score, math.isfinite))
    return PerDocument(column(".weight", weights), positions, column(".query_weight", weights), teacher)


class Names(NamedTuple):
    """Names of the columns, and the feature id of the first column."""

    first_id: int
    names: tuple[str, ...]
    path: Path

    def check(self, first_id: int, width: int) -> tuple[str, ...]:
        """Return the names; raise an error if the text is read with other columns."""
        if (first_id, width) != (self.first_id, len(self.names)):
            raise FormatError(
                f"The file names the features {self.first_id} to {self.first_id + len(self.names) - 1}, but the text "
                f"is read with {first_id} to {first_id + width - 1}. Correct the file, or remove it to read unnamed "
                "columns.",
                path=self.path,
            )
        return self.names


def names_beside(paths: Sequence[Path]) -> Names | None:
    """Read the names of the columns from the side files, with ``id name`` per line; None without such files.

    Raise an error if they are invalid, or differ between texts that are read as one.
    """
    sides = [beside(path, ".names") for path in paths]
    present = [_names(side) for side in sides if side is not None]
    if not present:
        return None
    for path, side in zip(paths, sides, strict=True):
        if side is None:
            raise FormatError(
                f"{path.name}.names is missing, but {present[0].path} exists; give all or none.", path=path
            )
    for other in present[1:]:
        if other[:2] != present[0][:2]:
            raise FormatError(
                f"The feature names differ from {present[0].path}; give all files the same names.", path=other.path
            )
    return present[0]


def _names(side: Path) -> Names:
    ids, names = list[int](), list[str]()
    for number, line in open_bytes(side).lines():
        token, blank, name = line.rstrip(b"\r\n").partition(b" ")
        expected = ids[-1] + 1 if ids else (0 if token == b"0" else 1)
        if not blank or token != str(expected).encode():
            raise FormatError(f"Expected feature id {expected}, a space and a name.", path=side, line=number)
        ids.append(expected)
        try:
            names.append(name.decode())
        except UnicodeDecodeError:
            raise FormatError("The name is not UTF-8 text.", path=side, line=number) from None
    if not ids:
        raise FormatError("The file has no names; remove it.", path=side)
    return Names(ids[0], tuple(names), side)


def beside(path: Path, suffix: str) -> Path | None:
    """Return the side file of a text, or None."""
    candidates = [path.with_name(path.name + suffix), plain_name(path).with_name(plain_name(path).name + suffix)]
    return next((side for side in candidates if os.path.isfile(side)), None)  # False if the name is too long


def _numbers(
    side: Path, convert: Callable[[bytes], Any], dtype: type, expected: str, allowed: Callable[[Any], bool]
) -> npt.NDArray[Any]:
    """Read one number from each non-blank line."""
    values = []
    for number, line in open_bytes(side).lines():
        if not (token := line.strip()):
            continue
        try:
            value = convert(token)
        except ValueError:
            value = None
        if value is None or b"_" in token or not allowed(value):
            shown = token[:24].decode("utf-8", "replace")
            raise FormatError(f"Expected {expected}; found {shown!r}.", path=side, line=number)
        values.append(value)
    try:
        return np.array(values, dtype=dtype)
    except OverflowError:
        raise FormatError(f"Expected {expected}; a number is too large.", path=side) from None
