"""Request types: parsing of JSON, and error messages with an HTTP status.

The values of documents stay raw JSON; `rows.py` converts them to a matrix in the columns of the model.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from toprank.errors import ToprankError

_SAFE = 2**53 - 1  # Larger integers are not exact in JavaScript.
Id = Annotated[int, Meta(ge=-_SAFE, le=_SAFE)] | str


class RefusedError(ToprankError):
    """A rejected request, with an HTTP status and the reason as a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        super().__init__(sentence)


_VALUE = {"anyOf": [{"type": kind} for kind in ("number", "boolean", "string", "null")]}
_VALUES = {"anyOf": [{"type": "array", "items": _VALUE}, {"type": "object", "additionalProperties": _VALUE}]}
_ABOUT_VALUES = "An array in the order of training (or of `features`), or an object by name; null if missing."


def _about(words: str) -> Meta:
    return Meta(description=words)


class RequestedDocument(Struct, forbid_unknown_fields=True, gc=False):
    """A document: its id, and its values as raw JSON."""

    id: Id
    values: Annotated[Raw, Meta(description=_ABOUT_VALUES, extra_json_schema=_VALUES)]
    text: Annotated[dict[str, str | None] | None, _about("Texts by field, if the model matches words.")] = None


class _Candidates(Struct, forbid_unknown_fields=True, kw_only=True):
    """The documents of one query."""

    documents: list[RequestedDocument]
    query: Annotated[Id | None, _about("Required by models that use the whole query.")] = None
    query_text: Annotated[str | None, _about("Text of the query, if the model matches words.")] = None
    features: Annotated[list[str] | None, _about("Names of the values, if arrays are in another order.")] = None


class ScoreRequest(_Candidates, kw_only=True):
    """The documents of one query, to be scored in the given order."""

    model: Annotated[str | None, _about("Name of the model; default: the primary model.")] = None


Top = Annotated[Annotated[int, Meta(ge=1, le=_SAFE)] | None, _about("Number of documents to return; default: all.")]


Key = Annotated[
    Id | None, _about("Key of the client, such as a user: determines the arm of a split, and is logged as a hash.")
]

_Word = Annotated[str, Meta(min_length=1, max_length=64)]
Device = Annotated[_Word | None, _about("Device, such as phone; logged, for propensities by device.")]
Surface = Annotated[_Word | None, _about("Page or app; logged, for propensities by surface.")]


class RankRequest(ScoreRequest, kw_only=True):
    """The documents of one query, to be ranked."""

    top: Top = None
    key: Key = None
    device: Device = None
    surface: Surface = None


class ExplainRequest(ScoreRequest, kw_only=True):
    """The documents of one query, and the two whose order is to be explained."""

    a: Id
    b: Id


class InterleaveRequest(_Candidates, kw_only=True):
    """The documents of one query, to be ranked by the two interleaved models of the service."""

    top: Top = None
    key: Key = None
    device: Device = None
    surface: Surface = None


class Event(Struct, forbid_unknown_fields=True, kw_only=True):
    """A user event on a document of a list."""

    kind: Literal["click", "like", "dislike", "cart", "purchase", "return", "dwell"]
    document: Id
    value: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        _about("Amount of a purchase or return, or seconds of a dwell; null for other events."),
    ] = None
    id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | None,
        _about("Distinguishes repeated events on one document from duplicates of one event."),
    ] = None


class Events(Struct, forbid_unknown_fields=True):
    """User events on a list; duplicates are counted once."""

    request: Annotated[str, _about("`request` of a ranking, or `impression` of an interleaved list.")]
    events: Annotated[list[Event], Meta(max_length=1000)]


Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
_DISCARDED = 8  # Oversized bodies are read up to this multiple of the limit, so that the client receives the error.


class GoneError(Exception):
    """The client has closed the connection."""


async def read_body(receive: Receive, announced: bytes, limit: int, seconds: float) -> bytes:
    """Read the body of a request; `announced` is its length according to the header."""
    parts, size = list[bytes](), 0
    huge = announced.isdigit() and (len(announced) > 15 or int(announced) > _DISCARDED * limit)
    try:
        async with asyncio.timeout(seconds):
            while not huge:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                part = message.get("body", b"")
                size += len(part)
                huge = size > _DISCARDED * limit
                if size <= limit:
                    parts.append(part)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise RefusedError(408, f"The body did not arrive within {seconds:g} s.") from None
    if huge or size > limit:
        raise RefusedError(413, f"The body is larger than {limit:,} bytes, the limit of this service.")
    return parts[0] if len(parts) == 1 else b"".join(parts)


Asked = TypeVar("Asked", bound=Struct)
_decoder: Any = cache(msgspec.json.Decoder)  # created at the first request of a type
_NO_NUMBER = re.compile(rb"\b(?:NaN|Infinity)\b")


def parse_request(kind: type[Asked], body: bytes) -> Asked:
    """Parse a body as a request of a type.

    >>> parse_request(Events, b'{"request": "i", "events": [{"kind": "click", "document": 3}]}').events[0].document
    3
    >>> parse_request(Events, b'{"request": NaN}')
    Traceback (most recent call last):
    ...
    toprank.serving.requests.RefusedError: The body is not JSON, which has no NaN. Use null for missing values.
    """
    try:
        request: Asked = _decoder(kind).decode(body)
    except msgspec.ValidationError as problem:
        raise RefusedError(422, f"The request does not have the expected form: {decoder_message(problem)}.") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise invalid_json(body, problem) from None
    return request


def invalid_json(body: bytes, problem: Exception) -> RefusedError:
    """Return the error for a body that is not JSON."""
    if _NO_NUMBER.search(body):
        return RefusedError(400, "The body is not JSON, which has no NaN. Use null for missing values.")
    if isinstance(problem, RecursionError):
        return RefusedError(400, "The body is nested too deeply.")
    return RefusedError(400, f"The body is not JSON: {decoder_message(problem)}.")


def decoder_message(problem: Exception) -> str:
    """Return the message of the decoder without its quotes, with paths in JavaScript notation.

    >>> decoder_message(ValueError("Expected `int`, got `str` - at `$.documents[0].id`"))
    'expected int, got str at $.documents[0].id'
    """
    fault = str(problem).replace("`", "").replace(" - at ", " at ").removesuffix(".")
    fault = fault.replace("JSON is invalid_json: ", "")
    return fault[:1].lower() + fault[1:]


def first_duplicate(values: Sequence[Any]) -> Any:
    """Return the first value that occurs more than once; None if all are different.

    >>> first_duplicate(["a", "b", "a", "b"])
    'a'
    """
    if len(set(values)) == len(values):  # the common case, faster than counting
        return None
    return next(value for value, times in Counter(values).items() if times > 1)


def check_ids(documents: Sequence[RequestedDocument], limit: int) -> list[Any]:
    """Return the ids of the documents after checking their number and uniqueness."""
    if len(documents) > limit:
        raise RefusedError(413, f"The request has {len(documents):,} documents, but the limit is {limit:,}.")
    ids = [document.id for document in documents]
    if (twice := first_duplicate(ids)) is not None:
        raise RefusedError(422, f"Two documents have the id {twice!r}. The ids of a request must be unique.")
    return ids
