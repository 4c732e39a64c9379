"""The two passes over LETOR text on several threads: chunks of whole lines, measured, then read into place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap

import numpy as np
import numpy.typing as npt

from toprank.compute import IntArray, each_block
from toprank.data.bytesource import ByteSource
from toprank.data.letor import kernels
from toprank.data.letor.faults import fault_at, hard_number
from toprank.data.letor.survey import AT, LEAST_ID, MOST_ID, N_RUNS, RUN_COLUMNS, SURVEY_STATE
from toprank.data.letor.survey import survey as survey_rows
from toprank.data.streams import became_shorter
from toprank.errors import FormatError

__all__ = ["Chunk", "Survey", "parse_chunks", "survey_chunks"]

_CHUNK = 4 << 20  # bytes; some lines more, since a chunk ends with a line
_ROOM = 1024  # runs and hard numbers to begin with
NO_ID = 2**62


@dataclass(frozen=True, eq=False)
class Chunk:
    """A part of a file that ends with a line."""

    source: ByteSource
    file: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Survey:
    """What the first pass found in a chunk: its run table and the final state."""

    chunk: Chunk
    runs: IntArray
    state: IntArray


def survey_chunks(sources: Sequence[ByteSource], threads: int | None) -> list[Survey]:
    """The first pass over all files."""
    chunks = [chunk for file, source in enumerate(sources) for chunk in _chunks(source, file)]
    return each_block(_survey, chunks, threads)


def _chunks(source: ByteSource, file: int) -> list[Chunk]:
    chunks, start, size = [], source.start, len(source.text)
    while start < size:
        newline = source.buffer.find(b"\n", start + _CHUNK - 1)
        end = newline + 1 if newline >= 0 else size
        chunks.append(Chunk(source, file, start, end))
        start = end
    return chunks


def _survey(chunk: Chunk) -> Survey:
    runs = np.empty((_ROOM, RUN_COLUMNS), dtype=np.int64)
    state = np.zeros(SURVEY_STATE, dtype=np.int64)
    state[AT], state[LEAST_ID], state[MOST_ID] = chunk.start, NO_ID, -1
    while state[AT] < chunk.end:
        _check_size(chunk)
        if state[N_RUNS] == len(runs):
            runs = np.concatenate([runs, np.empty_like(runs)])
        survey_rows(chunk.source.text, chunk.end, runs, state)
    return Survey(chunk, runs[: state[N_RUNS]].copy(), state)


def _check_size(chunk: Chunk) -> None:
    """Refuse a file that became shorter: to read what is mapped and gone would end the process."""
    buffer = chunk.source.buffer
    if isinstance(buffer, mmap) and buffer.size() < chunk.end:  # the size of the file, not of the map
        raise became_shorter(chunk.source.path)


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
    state[AT], state[kernels.RUN] = chunk.start, -1
    state[LEAST_ID], state[MOST_ID] = NO_ID, -1
    while True:
        before = int(state[AT])
        _check_size(chunk)
        kernels.parse(chunk.source.text, chunk.end, survey.runs, places, shape, result, hard, state)
        solved, fault = int(state[kernels.N_HARD]), int(state[kernels.FAULT])
        try:
            _solve(chunk.source, hard[:solved], result)
        except FormatError as problem:
            return problem
        if fault == kernels.FINE:
            return state
        if fault != kernels.MORE_ROOM:
            return fault_at(chunk.source, fault, int(state[kernels.FAULT_AT]), shape.width)
        state[kernels.FAULT], state[kernels.N_HARD] = kernels.FINE, 0
        if state[AT] == before:  # not one row is done: it needs more than is there
            hard = np.empty((2 * len(hard), 2), dtype=np.int64)


def _solve(source: ByteSource, hard: IntArray, result: kernels.Result) -> None:
    """Convert the numbers that the kernel could not be sure of."""
    single = result.values.itemsize == 4
    for place, position in hard.tolist():
        if place < 0:
            result.labels[-1 - place] = hard_number(source, position, False, label=True)
        else:
            result.values[place] = hard_number(source, position, single, label=False)
