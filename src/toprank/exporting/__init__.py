"""Models out: a ranker as a file for another system, checked to score as `predict` does."""

from __future__ import annotations

from toprank.exporting.export import DifferenceError, DifferenceWarning, export, refusals
from toprank.exporting.form import Form, form_of
from toprank.exporting.formats import Format, format_named, names
from toprank.exporting.parity import Parity

__all__ = [
    "DifferenceError", "DifferenceWarning", "Form", "Format", "Parity", "export", "form_of", "format_named", "names",
    "refusals",
]  # fmt: skip
