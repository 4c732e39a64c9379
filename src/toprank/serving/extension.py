"""Endpoints and pages that a room above adds to a service, under the service's limits, token, log and reload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from toprank.serving.recorder import Recorder


class Endpoint(NamedTuple):
    """A request, its answer, and the work between the two, which is done on one of the service's threads.

    Attributes:
        summary: For the OpenAPI document.
        rare: Whether it takes its turn behind the others, as explanations do.
    """

    request: type[Struct]
    answer: type[Struct]
    summary: str
    work: Callable[[Any], Struct]
    rare: bool = False


class Extension(Protocol):
    """Endpoints by path, pages by path, and what is read again when its files are replaced."""

    @property
    def pages(self) -> Mapping[str, tuple[bytes, bytes]]:
        """The type and the bytes of what everybody may see."""
        ...

    def endpoints(self, recorder: Recorder) -> Mapping[str, Endpoint]:
        """What can be asked; the recorder keeps the lists, and says which to change a little."""
        ...

    def versions(self) -> Mapping[str, str]:
        """What is served, by name."""
        ...

    def reload(self) -> tuple[str, ...]:
        """Read again what was replaced; the names of what is new now."""
        ...
