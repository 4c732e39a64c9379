"""The second pass over LETOR text: `parse` fills the arrays that were allocated to measure.

Both passes work on a chunk of whole lines and keep what they know in a small integer array, so that a call can stop (a
buffer is full) and the next one goes on. A *run* is a stretch of consecutive rows in a chunk with the same query token.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.decimals import BAD, HARD, HUGE, MISSING, NUMBER, Bytes, digits_at, inlined, read_number
from toprank.data.letor.scan import document_id, line_end, query_token, skip_blanks
from toprank.data.letor.survey import AT, ENTRIES, LARGEST_ID, LEAST_ID, MOST_ID, ROWS

Array = npt.NDArray[Any]

# The state (behind AT, LEAST_ID and MOST_ID): the run, the rows left in it, the places of the next row and entry,
# whether a sparse row does not ascend, how many numbers are left to the caller, what is wrong and where.
RUN, LEFT, ROW, ENTRY, SHUFFLED, N_HARD, FAULT, FAULT_AT = range(3, 11)
PARSE_STATE = 11

# Faults: what was expected at FAULT_AT.
FINE, LABEL, LABEL_FINITE, QUERY, FEATURE, ID_SIZE, ID_BELOW, ID_BEYOND, REPEATED, VALUE_WANTED, VALUE_SIZE = range(11)
MORE_ROOM = 11  # no fault of the text: the buffer for hard numbers is full
CHANGED = 12  # the text is not the one that was surveyed: it has other rows or entries


class Shape(NamedTuple):
    """What the result looks like.

    `first_id` is the feature id of column 0. An id below it is a fault where `first_is_given`, an id behind the last
    column where `width_is_given`; else only the range of ids is reported. `missing` stands for NULL and, in a dense
    result, for absent features. `hole` holds the bits of a NaN that marks the cells of the row at hand without a value
    so far; no number is ever stored as it.
    """

    first_id: int
    width: int
    first_is_given: bool
    width_is_given: bool
    missing: float
    hole: Any


class Result(NamedTuple):
    """The arrays to fill.

    `values` is the dense matrix row by row, or the entries of the sparse one; `bits` is the same memory as integers.
    `columns` and `row_ends` (where the entries of each row end) are empty for a dense result. `ids` holds the letters
    of the document ids, and has no columns where they are not wanted.
    """

    values: Array
    bits: Array
    columns: Array
    row_ends: Array
    labels: FloatArray
    ids: npt.NDArray[np.uint32]


@kernel
def parse(
    text: Bytes,
    end: int,
    runs: IntArray,
    places: IntArray,
    shape: Shape,
    result: Result,
    hard: IntArray,
    state: IntArray,
) -> None:
    """Read the rows from ``state[AT]`` to `end` into the result, or until a fault.

    Args:
        text: the bytes of the file.
        end: where the chunk ends.
        runs: the run table of the chunk.
        places: where the first row and the first entry of each run go in the result.
        shape: what the result looks like.
        result: the arrays to fill.
        hard: for each number that the caller must convert: its place in `values`, or -1 - row for a label, and where
            its text starts. Where it is full, the fault is MORE_ROOM and the row at hand is not done.
        state: where to start; it comes back with what was reached.
    """
    while state[AT] < end:
        at = skip_blanks(text, state[AT], end)
        if at == end or text[at] == 10 or text[at] == 35:
            state[AT] = line_end(text, at, end) + 1
            continue
        if state[LEFT] == 0:
            state[RUN] += 1
            run = state[RUN]
            if run == len(runs):
                _fault(state, CHANGED, at)
                return
            state[LEFT], state[ROW], state[ENTRY] = runs[run, ROWS], places[run, 0], places[run, 1]
        at = _parse_label_and_query(text, at, end, result, hard, state)
        if state[FAULT] == FINE:
            at = _parse_features(text, at, end, shape, result, hard, state)
        if state[FAULT] != FINE:
            return
        stop = line_end(text, at, end)
        if result.ids.shape[1] > 0:
            _copy_id(text, at + 1, stop, result.ids[state[ROW]])
        state[AT] = stop + 1
        state[ROW] += 1
        state[LEFT] -= 1
        sparse = len(result.row_ends) > 0 and state[MOST_ID] < 0
        if sparse and state[LEFT] == 0 and state[ENTRY] != places[state[RUN], 1] + runs[state[RUN], ENTRIES]:
            _fault(state, CHANGED, at)
            return


@kernel
def _parse_label_and_query(text: Bytes, at: int, end: int, result: Result, hard: IntArray, state: IntArray) -> int:
    """Store the label, step over the query token, and return the place after them."""
    label, after, found = read_number(text, at, end, False)
    if found == HARD:
        if state[N_HARD] == len(hard):
            return _fault(state, MORE_ROOM, at)
        hard[state[N_HARD], 0], hard[state[N_HARD], 1] = -1 - state[ROW], at
        state[N_HARD] += 1
    elif found != NUMBER:
        return _fault(state, LABEL if found == BAD else LABEL_FINITE, at)
    result.labels[state[ROW]] = label
    start, stop = query_token(text, after, end)
    if start == stop:
        return _fault(state, QUERY, start)
    return stop if start >= 0 else after


@inlined
def _parse_features(
    text: Bytes, at: int, end: int, shape: Shape, result: Result, hard: IntArray, state: IntArray
) -> int:
    """Store the features of a row and return the place of the comment or newline behind them."""
    values, bits, columns, row_ends = result.values, result.bits, result.columns, result.row_ends
    first_id, width, missing, hole = shape.first_id, shape.width, shape.missing, shape.hole
    dense = len(row_ends) == 0
    single = values.itemsize == 4
    base = state[ROW] * width if dense else state[ENTRY]
    filled, present, n_hard = 0, 0, state[N_HARD]
    while True:
        gap = at
        at = skip_blanks(text, at, end)
        if at == end or text[at] == 10 or text[at] == 35:
            break
        feature, colon = _read_id(text, at, end)
        if gap == at or colon < 0:
            return _fault(state, FEATURE, at)
        if feature > LARGEST_ID:
            return _fault(state, ID_SIZE, at)
        value, after, found = read_number(text, colon + 1, end, single)
        if found in (BAD, HUGE):
            return _fault(state, VALUE_WANTED if found == BAD else VALUE_SIZE, colon + 1)
        column = feature - first_id
        if column < 0 or column >= width:
            if shape.first_is_given if column < 0 else shape.width_is_given:
                return _fault(state, ID_BELOW if column < 0 else ID_BEYOND, at)
            state[LEAST_ID] = min(state[LEAST_ID], feature)
            state[MOST_ID] = max(state[MOST_ID], feature)
        else:
            place = base + (column if dense else present)
            if dense:
                repeated = column < filled and bits[place] != hole
                for jumped in range(base + filled, place):
                    bits[jumped] = hole
            else:
                if place >= len(columns):
                    return _fault(state, CHANGED, at)
                columns[place] = column
                repeated = column == filled - 1
                state[SHUFFLED] |= column < filled
            if repeated:
                return _fault(state, REPEATED, at)
            values[place] = missing if found == MISSING else value
            if found == HARD:
                if n_hard == len(hard):
                    return _fault(state, MORE_ROOM, at)
                hard[n_hard, 0], hard[n_hard, 1] = place, colon + 1
                n_hard += 1
            filled = max(filled, column + 1)
            present += 1
        at = after
    if dense:
        _fill_row(values, bits, base, filled, width, present, hole, missing)
    else:
        state[ENTRY] = base + present
        row_ends[state[ROW]] = base + present
    state[N_HARD] = n_hard
    return at


@inlined
def _fault(state: IntArray, what: int, at: int) -> int:
    state[FAULT], state[FAULT_AT] = what, at
    return at


@inlined
def _read_id(text: Bytes, at: int, end: int) -> tuple[int, int]:
    """A feature id, held above every legal one where it is larger, and the place of the colon behind it (-1: none)."""
    feature, colon = 0, -1
    if at + 8 <= end:
        n_digits, number = digits_at(text, at)
        if 0 < n_digits < 8 and text[at + n_digits] == 58:
            feature, colon = int(np.int64(number)), at + n_digits
    if colon < 0:
        feature, colon = _read_any_id(text, at, end)
    return feature, colon


@kernel
def _read_any_id(text: Bytes, at: int, end: int) -> tuple[int, int]:
    start, value = at, 0
    while at < end and 48 <= text[at] <= 57:
        value = min(value * 10 + (text[at] - 48), LARGEST_ID + 1)
        at += 1
    return value, (at if start < at < end and text[at] == 58 else -1)


@inlined
def _fill_row(
    values: Array, bits: Array, base: int, filled: int, width: int, present: int, hole: Any, missing: float
) -> None:
    """Put `missing` behind the last value of a dense row and into its holes."""
    for place in range(base + filled, base + width):
        values[place] = missing
    if present < filled:
        for place in range(base, base + filled):
            if bits[place] == hole:
                values[place] = missing


@kernel
def _copy_id(text: Bytes, at: int, end: int, letters: npt.NDArray[np.uint32]) -> None:
    start, stop = document_id(text, at, end)
    for k in range(len(letters)):
        letters[k] = text[start + k] if start + k < stop else 0
