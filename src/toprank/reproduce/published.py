"""The figures of the papers, as their tables have them."""

from __future__ import annotations

import csv
from importlib.resources import files

__all__ = ["published", "units"]


def published(name: str) -> dict[tuple[str, str], float]:
    """(row, column) → figure of a published table."""
    return {place: float(figure) for place, figure in _printed(name).items()}


def units(name: str) -> dict[tuple[str, str], float]:
    """(row, column) → the unit of the figure's last decimal; it may be off by half of that.

    >>> units("cs-rglist-avgndcg")["ListMLE", "MQ2008"]
    0.001
    """
    return {place: 10.0 ** -len(figure.partition(".")[2]) for place, figure in _printed(name).items()}


def _printed(name: str) -> dict[tuple[str, str], str]:
    text = files("toprank.reproduce").joinpath("published", f"{name}.csv").read_text(encoding="utf-8")
    header, *rows = csv.reader(text.splitlines())
    return {
        (row[0], column): value.strip()
        for row in rows
        for column, value in zip(header[1:], row[1:], strict=True)
        if value
    }
