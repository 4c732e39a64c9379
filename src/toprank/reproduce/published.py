"""The figures of the papers, as their tables have them."""

from __future__ import annotations

import csv
from importlib.resources import files

__all__ = ["published"]


def published(name: str) -> dict[tuple[str, str], float]:
    """(row, column) → figure of a published table."""
    text = files("toprank.reproduce").joinpath("published", f"{name}.csv").read_text(encoding="utf-8")
    header, *rows = csv.reader(text.splitlines())
    return {
        (row[0], column): float(value)
        for row in rows
        for column, value in zip(header[1:], row[1:], strict=True)
        if value
    }
