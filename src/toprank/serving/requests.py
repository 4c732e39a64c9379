"""The requests of clients: JSON becomes typed values, and mistakes become sentences with a status.

The values of documents stay text at first: `rows.py` makes a matrix of them, in the columns of the model.
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

_SAFE = 2**53 - 1  # beyond it, a number of JSON is another one in JavaScript
Id = Annotated[int, Meta(ge=-_SAFE, le=_SAFE)] | str


class RefusedError(ToprankError):
    """A request that is refused, with an HTTP status and the reason in a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        super().__init__(sentence)


_VALUE = {"anyOf": [{"type": kind} for kind in ("number", "boolean", "string", "null")]}
_VALUES = {"anyOf": [{"type": "array", "items": _VALUE}, {"type": "object", "additionalProperties": _VALUE}]}
_ABOUT_VALUES = "An array in the order of training (or of `features`), or an object by name; null: missing."


def _about(words: str) -> Meta:
    return Meta(description=words)


class RequestedDocument(Struct, forbid_unknown_fields=True, gc=False):
    """A document: its id, and the text of its values."""

    id: Id
    values: Annotated[Raw, Meta(description=_ABOUT_VALUES, extra_json_schema=_VALUES)]
    text: Annotated[dict[str, str | None] | None, _about("Its texts by field, where the model matches words.")] = None


class _Candidates(Struct, forbid_unknown_fields=True, kw_only=True):
    """The documents of one query."""

    documents: list[RequestedDocument]
    query: Annotated[Id | None, _about("Models that look at whole queries ask for it.")] = None
    query_text: Annotated[str | None, _about("The words of the query, where the model matches words.")] = None
    features: Annotated[list[str] | None, _about("Names of the values, where they are arrays in another order.")] = None


class ScoreRequest(_Candidates, kw_only=True):
    """The documents of one query, to be scored in the order given."""

    model: Annotated[str | None, _about("Its name; the primary model where none is given.")] = None


Top = Annotated[Annotated[int, Meta(ge=1, le=_SAFE)] | None, _about("So many of the best; all by default.")]


Key = Annotated[
    Id | None, _about("Whose request it is, such as a user: decides the arm of a split, and is logged hashed.")
]

_Word = Annotated[str, Meta(min_length=1, max_length=64)]
Device = Annotated[_Word | None, _about("Where the list is shown, such as phone; logged, for propensities by device.")]
Surface = Annotated[_Word | None, _about("On which page or in which app; logged, for propensities by surface.")]


class RankRequest(ScoreRequest, kw_only=True):
    """The documents of one query, to be ranked."""

    top: Top = None
    key: Key = None
    device: Device = None
    surface: Surface = None


class ExplainRequest(ScoreRequest, kw_only=True):
    """The documents of one query, and the two of them whose order is to be explained."""

    a: Id
    b: Id


class InterleaveRequest(_Candidates, kw_only=True):
    """The documents of one query, to be ranked by two models at once; the service was told which."""

    top: Top = None
    key: Key = None
    device: Device = None
    surface: Surface = None


class Event(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a user did with a document of a list."""

    kind: Literal["click", "like", "dislike", "cart", "purchase", "return", "dwell"]
    document: Id
    value: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        _about("What a purchase or return was worth, or the seconds of a dwell; others have none."),
    ] = None
    id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | None,
        _about("Tells several events of a kind on one document from one that is sent again."),
    ] = None


class Events(Struct, forbid_unknown_fields=True):
    """What a user did with a list; sent again, an event counts once."""

    request: Annotated[str, _about("The request of a ranking, or the impression of an interleaved list.")]
    events: Annotated[list[Event], Meta(max_length=1000)]


Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
_DISCARDED = 8  # so many times the limit of a body is read and thrown away, so that the client hears why


class GoneError(Exception):
    """The client has left."""


async def read_body(receive: Receive, announced: bytes, limit: int, seconds: float) -> bytes:
    """Read the body of a request; `announced`: the length that its header gives."""
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
        raise RefusedError(413, f"The body is larger than {limit:,} bytes, which is all that this service reads.")
    return parts[0] if len(parts) == 1 else b"".join(parts)


Asked = TypeVar("Asked", bound=Struct)
_decoder: Any = cache(msgspec.json.Decoder)  # made at the first request of a kind
_NO_NUMBER = re.compile(rb"\b(?:NaN|Infinity)\b")


def parse_request(kind: type[Asked], body: bytes) -> Asked:
    """Parse a body as a request of a kind.

    >>> parse_request(Events, b'{"request": "i", "events": [{"kind": "click", "document": 3}]}').events[0].document
    3
    >>> parse_request(Events, b'{"request": NaN}')
    Traceback (most recent call last):
    ...
    toprank.serving.requests.RefusedError: The body is not JSON, which has no NaN or Infinity: a missing value is null.
    """
    try:
        request: Asked = _decoder(kind).decode(body)
    except msgspec.ValidationError as problem:
        raise RefusedError(422, f"The request does not have the expected form: {decoder_message(problem)}.") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise invalid_json(body, problem) from None
    return request


def invalid_json(body: bytes, problem: Exception) -> RefusedError:
    """The refusal of what is not JSON."""
    if _NO_NUMBER.search(body):
        return RefusedError(400, "The body is not JSON, which has no NaN or Infinity: a missing value is null.")
    if isinstance(problem, RecursionError):
        return RefusedError(400, "The body is nested too deeply.")
    return RefusedError(400, f"The body is not JSON: {decoder_message(problem)}.")


def decoder_message(problem: Exception) -> str:
    """Return what the decoder says without its quotes; places are written as in JavaScript.

    >>> decoder_message(ValueError("Expected `int`, got `str` - at `$.documents[0].id`"))
    'expected int, got str at $.documents[0].id'
    """
    fault = str(problem).replace("`", "").replace(" - at ", " at ").removesuffix(".")
    fault = fault.replace("JSON is invalid_json: ", "")
    return fault[:1].lower() + fault[1:]


def first_duplicate(values: Sequence[Any]) -> Any:
    """Return the first value that occurs more than once; None if all differ.

    >>> first_duplicate(["a", "b", "a", "b"])
    'a'
    """
    if len(set(values)) == len(values):  # nearly always, and quicker than counting
        return None
    return next(value for value, times in Counter(values).items() if times > 1)


def check_ids(documents: Sequence[RequestedDocument], limit: int) -> list[Any]:
    """The ids of the documents; refused where there are too many, or two documents share one."""
    if len(documents) > limit:
        raise RefusedError(413, f"There are {len(documents):,} documents; this service takes {limit:,} at a time.")
    ids = [document.id for document in documents]
    if (twice := first_duplicate(ids)) is not None:
        raise RefusedError(422, f"Two documents have the id {twice!r}; the ids of a request must differ.")
    return ids
