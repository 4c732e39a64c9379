"""Error messages for faults in LETOR text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toprank import kernels
from toprank.data.arrays import IN_DOUBLE
from toprank.data.bytesource import ByteSource
from toprank.data.letor.survey import Survey
from toprank.errors import FormatError, Remedy, join_parts

LARGEST_ID = 2**31 - 1
"""The largest feature id."""
_WIDER = Remedy("requested; increase {n_features}.", "of the training data.", n_features=...)


def repeated_id(surveys: Sequence[Survey], row: int, feature: int) -> FormatError:
    """Return the error for a feature id that occurs twice in a row; rows are counted over all files."""
    for survey in surveys:
        if row < survey.state[kernels.LetorSurvey.N_ROWS]:
            break
        row -= int(survey.state[kernels.LetorSurvey.N_ROWS])
    source, at = survey.chunk.source, survey.chunk.start
    while True:
        end = source.newline(at)
        line = source.bytes(at, end).partition(b"#")[0]
        if line.strip():
            if row == 0:
                break
            row -= 1
        at = end + 1
    digits = str(feature).encode().lstrip(b"0")
    places = [at + m.start() for m in re.finditer(rb"(?<!\S)(\d+):", line) if m.group(1).lstrip(b"0") == digits]
    return fault_at(source, kernels.LetorFault.REPEATED, places[1], 0, single=False)


_SHOWN = 24  # bytes of a token quoted in a message


def fault_at(source: ByteSource, fault: int, position: int, width: int, single: bool) -> FormatError:
    """Return the error for a fault that the second pass found at a byte."""
    token = _token(source, position)
    instead = f"found {token!r}" if token else "the line ends here"
    kinds = kernels.LetorFault
    negative = fault == kinds.FEATURE and token.startswith("-") and token[1:2].isdigit()
    problem = {
        kinds.LABEL: f"Expected the label, a number, at the start of the line; {instead}.",
        kinds.LABEL_FINITE: f"The label {token!r} is not finite; write -1 or NULL for a document that is not judged.",
        kinds.LABEL_SIZE: f"The label {token!r} is too large for float64.",
        kinds.QUERY: "Expected the id of the query right after 'qid:'.",
        kinds.FEATURE: f"Expected a feature as 'id:value', the id a whole number, or '#' and a comment; {instead}.",
        kinds.ID_SIZE: f"The feature id in {token!r} is larger than the maximum, {LARGEST_ID}.",
        kinds.ID_BELOW: f"The id in {token!r} is 0, but first_feature_id is 1; read with first_feature_id=0.",
        kinds.ID_BEYOND: join_parts(f"The id in {token!r} is beyond the {width} features", _WIDER),
        kinds.REPEATED: f"The feature id in {token!r} occurs twice in this line; remove one of the two.",
        kinds.VALUE_WANTED: f"Expected the value of the feature, a number or NULL; {instead}.",
        kinds.VALUE_SIZE: join_parts(f"The value {token!r} is too large for float32;", IN_DOUBLE)
        if single
        else f"The value {token!r} is too large for float64.",
    }[fault]
    if negative:
        problem = f"The feature id in {token!r} is negative; ids count from 0 or 1."
    return source.fault(problem, position)


def _token(source: ByteSource, position: int) -> str:
    """Return the token at a byte, truncated if it is long."""
    content = source.bytes(position, position + 4 * _SHOWN)
    token = content.split(None, 1)[:1]
    text = "" if content[:1].isspace() or not token else token[0].decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
