"""Models out: a ranker as a file for another system, checked to score as `predict` does."""

from __future__ import annotations

from toprank.exporting.exporter import DifferenceError, DifferenceWarning, export, refusals
from toprank.exporting.formats import Format, format_named, names
from toprank.exporting.parity import Parity

__all__ = [
    "DifferenceError", "DifferenceWarning", "Format", "Parity", "export", "format_named", "names",
    "refusals",
]  # fmt: skip
