"""The loops over LETOR text: where the pieces of a line lie, the pass that measures, and the pass that reads.

Both passes work on a chunk of whole lines and keep what they know in a small integer array, so that a call can stop (a
buffer is full) and go on. The first measures, so that the second finds arrays of the right size: it looks at the first
and the last feature id of a row only, which is enough where ids ascend; the second pass sees every id. Bytes of
interest: 9 tab, 10 newline, 13 carriage return, 32 space, 35 #, 58 colon, 61 equals sign.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray, kernel
from toprank.data.decimals import BAD, HARD, HUGE, MISSING, NUMBER, Bytes, digits_at, inlined, read_number

__all__ = ["line_end", "lone_return"]

_RETURNS = 4096  # bytes looked through at once for carriage returns
_BLOCK = 64  # bytes tested at once; a loop without early exit is what the compiler can turn into vector instructions


@inlined
def is_blank(byte: int) -> bool:
    """Space, tab or carriage return: what may stand between tokens and at the end of a line."""
    return byte == 32 or byte == 9 or byte == 13


@inlined
def skip_blanks(text: Bytes, at: int, end: int) -> int:
    """The next byte that is not blank, or `end`."""
    while at < end and is_blank(text[at]):
        at += 1
    return at


@kernel
def token_end(text: Bytes, at: int, end: int) -> int:
    """The next blank, newline or # from `at` on, or `end`."""
    while at < end and not (is_blank(text[at]) or text[at] == 10 or text[at] == 35):
        at += 1
    return at


@kernel
def line_end(text: Bytes, at: int, end: int) -> int:
    """The next newline from `at` on, or `end`."""
    return _find(text, at, end, 10)


@kernel
def comment_or_line_end(text: Bytes, at: int, end: int) -> int:
    """The next # or newline from `at` on, or `end`."""
    return _find(text, at, end, 35)


@kernel
def _find(text: Bytes, at: int, end: int, wanted: int) -> int:
    """The next newline or `wanted` byte from `at` on, or `end`."""
    while at + _BLOCK <= end:
        found = 0
        start = np.uintp(at)
        for k in range(np.uintp(_BLOCK)):
            byte = text[start + k]
            found |= (byte == 10) | (byte == wanted)
        if found:
            break
        at += _BLOCK
    while at < end and text[at] != 10 and text[at] != wanted:
        at += 1
    return at


@kernel
def lone_return(text: Bytes, at: int, end: int) -> int:
    """The next carriage return with something else than a line's end behind it, from `at` on, or -1."""
    while at < end:
        stop = min(at + _RETURNS, end)
        found = 0
        start = np.uintp(at)
        for k in range(np.uintp(stop - at)):
            found |= text[start + k] == 13
        if found:
            for i in range(at, stop):
                if text[i] == 13 and i + 1 < end and text[i + 1] != 10 and text[i + 1] != 13:
                    return i
        at = stop
    return -1


@kernel
def query_token(text: Bytes, at: int, end: int) -> tuple[int, int]:
    """Where the id behind ``qid:`` starts and ends, given the place after the label; start < 0 where there is none."""
    at = skip_blanks(text, at, end)
    if at + 4 > end or text[at] != 113 or text[at + 1] != 105 or text[at + 2] != 100 or text[at + 3] != 58:
        return -1, at
    return at + 4, token_end(text, at + 4, end)


@kernel
def same_bytes(text: Bytes, start: int, stop: int, other: int, other_stop: int) -> bool:
    """Whether two ranges of the text hold the same bytes."""
    if stop - start != other_stop - other:
        return False
    for k in range(stop - start):  # noqa: SIM110 - kernels have no generators
        if text[start + k] != text[other + k]:
            return False
    return True


@kernel
def whole_number(text: Bytes, start: int, stop: int) -> tuple[int, bool]:
    """The integer that a token spells, and whether it spells it the one usual way (no +, no leading zeros, no -0).

    Integers of more than 18 digits count as words: they may not fit in 64 bits.
    """
    negative = start < stop and text[start] == 45
    first = start + negative
    n_digits = stop - first
    if n_digits < 1 or n_digits > 18 or (text[first] == 48 and (n_digits > 1 or negative)):
        return 0, False
    value = 0
    for i in range(first, stop):
        if text[i] < 48 or text[i] > 57:
            return 0, False
        value = value * 10 + (text[i] - 48)
    return (-value if negative else value), True


@kernel
def document_id(text: Bytes, at: int, end: int) -> tuple[int, int]:
    """Where the document id in the comment ``[at, end)`` (behind its #) starts and ends; start = end where none is.

    It is the word behind ``docid =`` (with or without blanks around the sign), or else the only word of the comment.
    """
    words, only, only_stop = 0, at, at
    while True:
        start = skip_blanks(text, at, end)
        if start == end:
            break
        stop = _word_end(text, start, end)
        if stop - start >= 5 and _is_docid(text, start):
            found = skip_blanks(text, start + 5, end)
            if found < end and text[found] == 61:
                found = skip_blanks(text, found + 1, end)
                return found, _word_end(text, found, end)
        words, only, only_stop = words + 1, start, stop
        at = stop
    return (only, only_stop) if words == 1 else (at, at)


@kernel
def _word_end(text: Bytes, at: int, end: int) -> int:
    while at < end and not is_blank(text[at]):
        at += 1
    return at


@kernel
def _is_docid(text: Bytes, at: int) -> bool:
    start = text[at] == 100 and text[at + 1] == 111 and text[at + 2] == 99
    return bool(start and text[at + 3] == 105 and text[at + 4] == 100)


LARGEST_ID = 2**31 - 1

# Columns of the run table, one row a run: the bytes of the query token (start -1: no token, stop: where it should be),
# the token as a number, and how many rows and features the run has.
START, STOP, VALUE, ROWS, ENTRIES = range(5)
RUN_COLUMNS = 5

# The state of both passes: where to go on, and the range of feature ids …
AT, LEAST_ID, MOST_ID = range(3)
# … and of the survey: the sizes so far (WORDS: runs whose token is no number), and what the document ids need.
N_ROWS, N_RUNS, N_WORDS, N_IDENTIFIED, ID_LENGTH, ID_FOREIGN, ID_ZERO = range(3, 10)
SURVEY_STATE = 10


@kernel
def survey_rows(text: Bytes, end: int, runs: IntArray, state: IntArray) -> None:
    """Count rows, runs, features and document ids from ``state[AT]`` to `end`, or until the run table is full."""
    at = state[AT]
    while at < end:
        line = at
        at = skip_blanks(text, at, end)
        if at == end or text[at] == 10 or text[at] == 35:
            at = line_end(text, at, end) + 1
            continue
        start, stop = query_token(text, token_end(text, at, end), end)
        run = state[N_RUNS] - 1
        if run < 0 or not _continues(text, start, stop, runs[run]):
            run += 1
            if run == len(runs):
                state[AT] = line
                return
            value, usual = whole_number(text, start, stop) if start >= 0 else (0, False)
            state[N_RUNS] += 1
            state[N_WORDS] += not usual
            runs[run, START], runs[run, STOP], runs[run, VALUE] = start, stop, value
            runs[run, ROWS], runs[run, ENTRIES] = 0, 0
        at = comment_or_line_end(text, stop, end)
        runs[run, ROWS] += 1
        runs[run, ENTRIES] += _survey_features(text, stop, at, state)
        state[N_ROWS] += 1
        if at < end and text[at] == 35:
            stop = line_end(text, at, end)
            _survey_comment(text, at + 1, stop, state)
            at = stop
        at += 1
    state[AT] = end


@kernel
def _continues(text: Bytes, start: int, stop: int, run: IntArray) -> bool:
    if start < 0 or run[START] < 0:
        return start < 0 and run[START] < 0
    return same_bytes(text, start, stop, run[START], run[STOP])


@kernel
def _survey_features(text: Bytes, at: int, end: int, state: IntArray) -> int:
    """The number of features (colons) in ``[at, end)``; the first and the last id widen the range of ids."""
    colons = 0
    for i in range(np.uintp(at), np.uintp(end)):
        colons += text[i] == 58
    if colons == 0:
        return 0
    _survey_id(text, skip_blanks(text, at, end), end, state)
    last = end - 1
    while text[last] != 58:
        last -= 1
    while last > at and not is_blank(text[last - 1]):
        last -= 1
    _survey_id(text, last, end, state)
    return colons


@kernel
def _survey_id(text: Bytes, at: int, end: int, state: IntArray) -> None:
    value, start = 0, at
    while at < end and 48 <= text[at] <= 57 and value <= LARGEST_ID:
        value = value * 10 + (text[at] - 48)
        at += 1
    if at > start and at < end and text[at] == 58 and value <= LARGEST_ID:
        state[LEAST_ID] = min(state[LEAST_ID], value)
        state[MOST_ID] = max(state[MOST_ID], value)


@kernel
def _survey_comment(text: Bytes, at: int, end: int, state: IntArray) -> None:
    start, stop = document_id(text, at, end)
    if stop > start:
        state[N_IDENTIFIED] += 1
        state[ID_LENGTH] = max(state[ID_LENGTH], stop - start)
        for i in range(start, stop):
            state[ID_FOREIGN] |= text[i] > 127
        if text[stop - 1] == 0 and state[ID_ZERO] == 0:
            state[ID_ZERO] = stop  # arrays of strings drop zeros at the end: two ids could become one


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
