"""Registry of export formats: `Format` writes a ranker for another system, `PreparedModel` holds the written files.

Each format is defined by a module with a constant `FORMATS`; this registry maps names to modules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError, join_parts
from toprank.lazy_imports import first_use
from toprank.rankers.formula import Formula
from toprank.rankers.trees.forest import TINY

_DOUBLE_TOLERANCE, _SINGLE_TOLERANCE = 1e-9, 1e-5
"""Tolerances. Reordering a sum of n terms changes it by about n·2⁻⁵³ of its size in double precision, n·2⁻²⁴ in single:
these allow for millions of terms, and for about a hundred, since most errors cancel."""
OTHER_FORMATS = "Export it to onnx, c or python"
"""Remedy if a format cannot represent a model: these formats hold every formula, onnx all but very deep trees."""


@dataclass(frozen=True, kw_only=True)
class PreparedModel:
    """A model written in a format: the contents of its files, and how to check them.

    Attributes:
        files: The content of each file, keyed by the suffix that follows the file's stem; "" is the model itself.
        score: Function that scores rows of these features with the file at a path; None if this machine cannot run the
            file.
        interpreter: Name of the program that computes `score`.
        remarks: Notes for the user of the file: renamed features, required inputs, size limits.
        excluded: Kinds of probe rows that totals omit because the program is known to treat them differently from
            `predict`.
        single: True if the program computes in single precision; if not, no ranking may change.
        rounds_sums: True if the program rounds sums to single precision after each tree if the model does.
        texts: True if the program takes categories as text instead of codes.
        tiny: Rows with a value this close to zero are of the kind ``tiny``: LightGBM's 1e-35, or more for a coarser
            program.
        constant: Constant missing from every score of the program; it affects no order.
    """

    formula: Formula
    files: Mapping[str, bytes]
    score: Callable[[Path, FloatArray, tuple[str, ...]], FloatArray] | None
    interpreter: str
    remarks: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()
    single: bool = False
    rounds_sums: bool = False
    texts: bool = False
    tiny: float = TINY
    constant: float = 0.0

    @property
    def sums_differ(self) -> bool:
        """True if the model adds in single precision but the file in double precision."""
        return self.formula.single_sums and not self.single and not self.rounds_sums

    @property
    def tolerance(self) -> float:
        """Largest difference that counts as rounding, as a fraction of the score (of 1, if the score is smaller).

        The inputs of a network are rounded to single precision, and the program may round them differently.
        """
        return _SINGLE_TOLERANCE if self.single or self.formula.has_network or self.sums_differ else _DOUBLE_TOLERANCE


@dataclass(frozen=True, kw_only=True)
class Format:
    """A file format that rankers can be exported to.

    Attributes:
        name: Name to pass to `toprank.export`.
        title: Short description of the file and its reader.
        suffix: Usual file suffix.
        writer: Function that writes a formula for a server of this version (None for any); data to check on, if
            given, may add remarks.
        support_check: Function that returns the reason why a formula cannot be represented on a server, as a sentence
            with a remedy, or None.
        versioned: True if the files depend on the version of a server.
    """

    name: str
    title: str
    suffix: str
    writer: Callable[[Formula, str | None, RankingData | None], PreparedModel]
    support_check: Callable[[Formula, str | None], str | None] | None = None
    versioned: bool = False

    def unsupported_reason(self, formula: Formula, server: str | None = None) -> str | None:
        """Return the reason why the format cannot represent a formula on a server; None if it can."""
        return None if self.support_check is None else self.support_check(formula, server)

    def prepare(self, formula: Formula, server: str | None = None, data: RankingData | None = None) -> PreparedModel:
        """Write a formula in this format.

        Raises:
            DataError: the format cannot represent the formula, or does not depend on a server.
        """
        if server is not None and not self.versioned:
            raise DataError(f"The format {self.name} does not depend on a server version; leave server_version out.")
        if (reason := self.unsupported_reason(formula, server)) is not None:
            raise DataError(join_parts(f"The format {self.name} cannot hold this model:", reason))
        return self.writer(formula, server, data)


# Module that defines each format, in the order of the documentation.
_HOMES: dict[str, str] = {
    "onnx": "toprank.exporters.onnx_graph",
    "elasticsearch": "toprank.exporters.elastic",
    "opensearch": "toprank.exporters.elastic",
    "solr": "toprank.exporters.solr",
    "vespa": "toprank.exporters.vespa",
    "xgboost": "toprank.exporters.xgboost_json",
    "lightgbm": "toprank.exporters.lightgbm_text",
    "ranklib": "toprank.exporters.ranklib",
    "c": "toprank.exporters.c_source",
    "python": "toprank.exporters.python_source",
    "json": "toprank.exporters.linear_json",
}


def names() -> tuple[str, ...]:
    """Return the names of all formats."""
    return tuple(_HOMES)


def get_format(name: Any) -> Format:
    """Return the format with this name; case is ignored.

    >>> get_format("Python").suffix
    '.py'
    """
    if not isinstance(name, str) or name.lower() not in _HOMES:
        raise UnknownNameError("format", str(name), _HOMES)
    formats: list[Format] = first_use(_HOMES[name.lower()]).FORMATS
    return next(format for format in formats if format.name == name.lower())


def release(version: str) -> tuple[int, int]:
    """Return the major and minor number of a server's version.

    >>> release("v3.8.0"), release("9")
    ((3, 8), (9, 0))
    """
    parts = version.removeprefix("v").split(".")[:2]
    if not all(part.isdecimal() for part in parts):
        raise DataError(f"The version of a server must be like '3.8.0', not {version!r}.")
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0


def renamed(names: Sequence[str], marks: str) -> list[str]:
    r"""Replace every character that a reader does not accept with an underscore.

    >>> renamed(["bm25 title", "age"], r"\s")
    ['bm25_title', 'age']
    """
    return [re.sub(marks, "_", name) or "_" for name in names]


def unsupported_names_reason(names: Sequence[str], marks: str, reader: str, which: str) -> str | None:
    """Return a reason if two names become equal without the characters that a reader rejects (`which`, in words)."""
    if len(set(renamed(names, marks))) == len(names):
        return None
    return (
        f"{reader} does not accept {which} in feature names, and two names become equal without them. Rename them "
        "before training."
    )


def name_remarks(names: Sequence[str], marks: str, reader: str) -> tuple[str, ...]:
    """Return a remark about the features that were renamed."""
    changed = [(old, new) for old, new in zip(names, renamed(names, marks), strict=True) if old != new]
    if not changed:
        return ()
    some = f"{len(changed)} features are" if len(changed) > 1 else "a feature is"
    return (f"{reader} does not accept every name: {some} renamed, '{changed[0][0]}' to '{changed[0][1]}'.",)


def table_remarks(formula: Formula, category: str | None = "its code", of_dates: str = "") -> tuple[str, ...]:
    """Return remarks on how to pass dates, durations and categories to a program.

    Args:
        formula: the model.
        category: the representation of a level, in words; None if another remark describes it.
        of_dates: an addition to the remark about dates, as the end of a sentence.
    """
    if formula.encoding is None:
        return ()
    units = {"date": f"days since 1970-01-01 UTC{of_dates}", "duration": "days"}
    if category is not None:
        units |= {"text": category, "whole": category}
    columns = formula.encoding.columns
    return tuple(f"Give '{column.name}' as {units[column.kind]}." for column in columns if column.kind in units)


def compact_json(value: Any) -> str:
    """Write JSON without whitespace: a model may have several megabytes."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
