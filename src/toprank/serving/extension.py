"""Endpoints and pages added to a service by a higher room, with the limits, token, log and reload of the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from toprank.serving.recorder import Recorder


class Endpoint(NamedTuple):
    """An endpoint: types of the request and the response, and the function between them, run on a thread of the
    service.

    Attributes:
        summary: for the OpenAPI document.
        rare: whether requests share the single thread of explanations.
    """

    request: type[Struct]
    answer: type[Struct]
    summary: str
    work: Callable[[Any], Struct]
    rare: bool = False


class Extension(Protocol):
    """Endpoints by path, pages by path, and files that are reloaded when they are replaced."""

    @property
    def pages(self) -> Mapping[str, tuple[bytes, bytes]]:
        """Content type and bytes of public pages."""
        ...

    def endpoints(self, recorder: Recorder) -> Mapping[str, Endpoint]:
        """Return the endpoints; `recorder` logs lists and selects those to perturb."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the served objects by name."""
        ...

    def reload(self) -> tuple[str, ...]:
        """Reload files that were replaced; return the names of the reloaded objects."""
        ...
