"""The first pass over LETOR text: measure, so that the second one finds arrays of the right size.

The survey looks at the first and the last feature id of a row only, which is enough where ids ascend; the second pass
sees every id and reports the true range, so that it can be repeated in the rare file where a row proves otherwise.
"""

from __future__ import annotations

import numpy as np

from toprank.compute import IntArray, kernel
from toprank.data.decimals import Bytes
from toprank.data.letor.scan import (
    comment_or_line_end,
    document_id,
    is_blank,
    line_end,
    query_token,
    same_bytes,
    skip_blanks,
    token_end,
    whole_number,
)

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
def survey(text: Bytes, end: int, runs: IntArray, state: IntArray) -> None:
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
