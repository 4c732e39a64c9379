"""What is wrong with LETOR text, in sentences."""

from __future__ import annotations

from toprank.data.bytesource import ByteSource
from toprank.data.decimals_exact import exact_number
from toprank.data.letor import kernels
from toprank.data.letor.survey import LARGEST_ID
from toprank.errors import FormatError

__all__ = ["fault_at", "hard_number"]

_SHOWN = 24  # bytes of a token that a message quotes


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
    token = source.buffer[position : position + 4 * _SHOWN].split(None, 1)[:1]
    at_gap = source.buffer[position : position + 1].isspace()
    text = "" if at_gap or not token else token[0].decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def hard_number(source: ByteSource, position: int, single: bool, label: bool) -> float:
    """The number at a byte, converted without shortcuts; refused where it is too large for its type."""
    end = position
    while chunk := source.buffer[end : end + 64]:
        stops = [i for i, byte in enumerate(chunk) if byte <= 32 or byte == 35]
        end += stops[0] if stops else len(chunk)
        if stops:
            break
    value = exact_number(source.buffer[position:end].decode("ascii"), single)
    if value - value != 0:
        kind = "float32; read with dtype=float64" if single else "float64"
        what = "label" if label else "value"
        raise source.fault(f"The {what} {_token(source, position)!r} is too large for {kind}.", position)
    return value
