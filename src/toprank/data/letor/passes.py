"""The two passes over LETOR text on several threads: chunks of whole lines, measured, then read into place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toprank.compute import IntArray, each_block
from toprank.data.bytesource import ByteSource
from toprank.data.decimals import Bytes, exact_number
from toprank.data.letor import kernels
from toprank.data.letor.kernels import (
    AT,
    LARGEST_ID,
    LEAST_ID,
    MOST_ID,
    N_RUNS,
    N_WORDS,
    RUN_COLUMNS,
    START,
    STOP,
    SURVEY_STATE,
    VALUE,
    lone_return,
    survey_rows,
)
from toprank.errors import FileError, FormatError

__all__ = ["Survey", "fault_at", "parse_chunks", "survey_chunks"]

_SHOWN = 24  # bytes of a token that a message quotes
_NUMBER_ENDS = re.compile(rb"[\x00- #]")


def fault_at(source: ByteSource, fault: int, position: int, width: int) -> FormatError:
    """The error for a fault that `parse` found at a byte."""
    token = _token(source, position)
    found = f"found {token!r}" if token else "the line ends here"
    negative = fault == kernels.FEATURE and token.startswith("-") and token[1:2].isdigit()
    problem = {
        kernels.LABEL: f"Expected the label, a number, at the start of the line; {found}.",
        kernels.LABEL_FINITE: f"The label {token!r} is not finite; write -1 for a document that is not judged.",
        kernels.QUERY: "Expected the id of the query right behind 'qid:'.",
        kernels.FEATURE: f"Expected a feature as 'id:value', the id a whole number, or '#' and a comment; {found}.",
        kernels.ID_SIZE: f"The feature id in {token!r} is above the largest one allowed, {LARGEST_ID}.",
        kernels.ID_BELOW: f"The id in {token!r} is 0, but ids were said to start at 1; read with first_feature_id=0.",
        kernels.ID_BEYOND: f"The id in {token!r} lies beyond the {width} features asked for; raise n_features.",
        kernels.REPEATED: f"The feature id in {token!r} appeared before in this line; an id may stand there once.",
        kernels.VALUE_WANTED: f"Expected the value of the feature, a number or NULL; {found}.",
        kernels.VALUE_SIZE: f"The value {token!r} is too large for float32; read with dtype=float64.",
    }[fault]
    if negative:
        problem = f"The feature id in {token!r} is negative; ids count from 0 or 1."
    return source.fault(problem, position)


def _token(source: ByteSource, position: int) -> str:
    """The token at a byte, cut where it is long."""
    found = source.bytes(position, position + 4 * _SHOWN)
    token = found.split(None, 1)[:1]
    text = "" if found[:1].isspace() or not token else token[0].decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def hard_number(text: Bytes, position: int, single: bool) -> float:
    """The number at a byte, converted without shortcuts; infinite where it is too large for its type."""
    size = 64
    while True:
        found = text[position : position + size].tobytes()
        token = _NUMBER_ENDS.split(found, maxsplit=1)[0]
        if len(token) < size:  # it ends here, or the text does
            break
        size *= 2
    return exact_number(token.decode("ascii"), single)


def too_large(source: ByteSource, position: int, single: bool, label: bool) -> FormatError:
    """The error for a number that its type cannot hold."""
    kind = "float32; read with dtype=float64" if single else "float64"
    what = "label" if label else "value"
    return source.fault(f"The {what} {_token(source, position)!r} is too large for {kind}.", position)


def changed(source: ByteSource) -> FileError:
    """The error for text whose second reading is not the first one."""
    return FileError(f"{source.path} changed while it was read. Read it again when nothing writes to it.")


_CHUNK = 4 << 20  # bytes; some lines more, since a chunk ends with a line
_ROOM = 1024  # runs and hard numbers to begin with
NO_ID = 2**62


@dataclass(frozen=True, eq=False)
class Chunk:
    """A part of a file that ends with a line. Both passes read it anew: they need no more memory than their threads."""

    source: ByteSource
    file: int
    start: int
    end: int

    def read(self) -> Bytes:
        """Its bytes, in memory."""
        return self.source.array(self.start, self.end)


@dataclass(frozen=True, eq=False)
class Survey:
    """What the first pass found in a chunk: its run table, the final state, and query tokens that are no numbers."""

    chunk: Chunk
    runs: IntArray
    state: IntArray
    words: list[bytes | None] | None

    def tokens(self) -> list[bytes | None]:
        """The query token of each run; None where it has none."""
        return [b"%d" % value for value in self.runs[:, VALUE].tolist()] if self.words is None else self.words


def survey_chunks(sources: Sequence[ByteSource], threads: int | None) -> list[Survey]:
    """The first pass over all files."""
    chunks = [chunk for file, source in enumerate(sources) for chunk in _chunks(source, file)]
    return each_block(_survey, chunks, threads)


def _chunks(source: ByteSource, file: int) -> list[Chunk]:
    chunks, start, size = [], source.start, source.size
    while start < size:
        end = min(source.newline(start + _CHUNK - 1) + 1, size)
        chunks.append(Chunk(source, file, start, end))
        start = end
    return chunks


def _survey(chunk: Chunk) -> Survey:
    runs = np.empty((_ROOM, RUN_COLUMNS), dtype=np.int64)
    state = np.zeros(SURVEY_STATE, dtype=np.int64)
    state[LEAST_ID], state[MOST_ID] = NO_ID, -1
    text = chunk.read()
    lone = lone_return(text, 0, len(text))
    if lone >= 0:
        raise chunk.source.lone_return(chunk.start + lone)
    while state[AT] < len(text):
        if state[N_RUNS] == len(runs):
            runs = np.concatenate([runs, np.empty_like(runs)])
        survey_rows(text, len(text), runs, state)
    runs = runs[: state[N_RUNS]].copy()
    words = None if state[N_WORDS] == 0 else _words(text, runs)
    runs[:, STOP] += chunk.start  # from here on places are those in the file
    runs[runs[:, START] >= 0, START] += chunk.start
    return Survey(chunk, runs, state, words)


def _words(text: Bytes, runs: IntArray) -> list[bytes | None]:
    content = text.tobytes()
    return [content[start:stop] if start >= 0 else None for start, stop in runs[:, [START, STOP]].tolist()]


def parse_chunks(
    surveys: Sequence[Survey], places: IntArray, shape: kernels.Shape, result: kernels.Result, threads: int | None
) -> tuple[int, int, bool]:
    """The second pass: fill the result.

    Returns the least and the most feature id outside the result, and whether ids of a sparse row are out of order.

    Args:
        surveys: what the first pass found.
        places: for each run of all chunks, the row and the entry in the result where it starts.
        shape: what the result looks like.
        result: the arrays to fill.
        threads: how many threads to use.

    Raises:
        FormatError: the first line that is not what it should be.
    """
    firsts = np.cumsum([0] + [len(survey.runs) for survey in surveys])
    jobs = [(survey, places[first:last]) for survey, first, last in zip(surveys, firsts, firsts[1:], strict=False)]
    outcomes = each_block(lambda job: _parse(*job, shape, result), jobs, threads)
    states = []
    for outcome in outcomes:  # in the order of the text, so that the first fault is the one reported
        if isinstance(outcome, FormatError):
            raise outcome
        states.append(outcome)
    together = np.array(states)
    return (
        int(together[:, LEAST_ID].min()),
        int(together[:, MOST_ID].max()),
        bool(together[:, kernels.SHUFFLED].any()),
    )


def _parse(
    survey: Survey, places: IntArray, shape: kernels.Shape, result: kernels.Result
) -> npt.NDArray[np.int64] | FormatError:
    chunk, hard = survey.chunk, np.empty((_ROOM, 2), dtype=np.int64)
    state = np.zeros(kernels.PARSE_STATE, dtype=np.int64)
    state[kernels.RUN] = -1
    state[LEAST_ID], state[MOST_ID] = NO_ID, -1
    text = chunk.read()
    while True:
        before = int(state[AT])
        kernels.parse(text, len(text), survey.runs, places, shape, result, hard, state)
        solved, fault = int(state[kernels.N_HARD]), int(state[kernels.FAULT])
        try:
            _solve(chunk, text, hard[:solved], result)
        except FormatError as problem:
            return problem
        if fault == kernels.CHANGED or (fault == kernels.FINE and not _is_whole(survey, state)):
            raise changed(chunk.source)
        if fault == kernels.FINE:
            return state
        if fault != kernels.MORE_ROOM:
            return fault_at(chunk.source, fault, chunk.start + int(state[kernels.FAULT_AT]), shape.width)
        state[kernels.FAULT], state[kernels.N_HARD] = kernels.FINE, 0
        if state[AT] == before:  # not one row is done: it needs more than is there
            hard = np.empty((2 * len(hard), 2), dtype=np.int64)


def _is_whole(survey: Survey, state: IntArray) -> bool:
    """Whether the second pass met the rows that the first one counted."""
    return bool(state[kernels.RUN] == len(survey.runs) - 1 and state[kernels.LEFT] == 0)


def _solve(chunk: Chunk, text: Bytes, hard: IntArray, result: kernels.Result) -> None:
    """Convert the numbers that the kernel could not be sure of."""
    single = result.values.itemsize == 4
    for place, position in hard.tolist():
        label = place < 0
        value = hard_number(text, position, single and not label)
        if value - value != 0:
            raise too_large(chunk.source, chunk.start + position, single and not label, label)
        if label:
            result.labels[-1 - place] = value
        else:
            result.values[place] = value
