"""`Option`: how the command line declares a field of a value, stated where the value is, without a command line."""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """The help of an option, and the bounds of its value; the metadata of a field with `Annotated`."""

    help: str
    least: float | None = None
    most: float | None = None
    metavar: str | None = None
    group: str | None = None
