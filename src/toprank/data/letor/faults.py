"""What is wrong with LETOR text, in sentences."""

from __future__ import annotations

import re

from toprank.data.bytesource import ByteSource
from toprank.data.decimals import Bytes
from toprank.data.decimals_exact import exact_number
from toprank.data.letor import kernels
from toprank.data.letor.survey import LARGEST_ID
from toprank.errors import FileError, FormatError

__all__ = ["changed", "fault_at", "hard_number", "too_large"]

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
    token = b""
    while chunk := text[position + len(token) : position + len(token) + 64].tobytes():
        number = _NUMBER_ENDS.split(chunk, maxsplit=1)[0]
        token += number
        if len(number) < len(chunk):
            break
    return exact_number(token.decode("ascii"), single)


def too_large(source: ByteSource, position: int, single: bool, label: bool) -> FormatError:
    """The error for a number that its type cannot hold."""
    kind = "float32; read with dtype=float64" if single else "float64"
    what = "label" if label else "value"
    return source.fault(f"The {what} {_token(source, position)!r} is too large for {kind}.", position)


def changed(source: ByteSource) -> FileError:
    """The error for text whose second reading is not the first one."""
    return FileError(f"{source.path} changed while it was read. Read it again when nothing writes to it.")
