"""`Option`: declaration of a command-line option in the annotation of a dataclass field."""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """Help text and value bounds of an option; used as metadata of an `Annotated` field."""

    help: str
    least: float | None = None
    most: float | None = None
    metavar: str | None = None
    group: str | None = None
