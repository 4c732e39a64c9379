"""`Format`: one way to write a ranker down for others; `Prepared`: a ranker written down that way, ready to be checked.

Each format has a module with a value `FORMATS` of its own; this registry knows where they live.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError, joined
from toprank.importing import first_use
from toprank.rankers.formula import Formula
from toprank.rankers.trees.forest import TINY

_DOUBLE, _SINGLE = 1e-9, 1e-5
"""Tolerances. A sum of n terms in another order differs by some n·2⁻⁵³ of its size in double precision, n·2⁻²⁴ in
single: these allow for millions of terms, and for a hundred, of whose errors most cancel."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model in a format: its files, and what the check has to know of the program that reads them."""

    formula: Formula
    files: Mapping[str, bytes]
    """The content of the file, under "", and of files beside it, each under what follows the file's stem."""
    score: Callable[[Path, FloatArray, tuple[str, ...]], FloatArray] | None
    """What the file at a path makes of rows of these features; None: nothing is here that can read it."""
    interpreter: str
    """What computes `score`, in words."""
    remarks: tuple[str, ...] = ()
    """What whoever uses the file has to know: names, ranges of features, limits of size."""
    excluded: frozenset[str] = frozenset()
    """Kinds of probe rows that totals leave out, since the program cannot treat them as `predict` does."""
    single: bool = False
    """Whether the program computes in single precision; else no ranking may change."""
    rounds_sums: bool = False
    """Whether sums are rounded to single precision after each tree where the model's are."""
    texts: bool = False
    """Whether the categories of a table are given as texts, and not as codes."""
    tiny: float = TINY
    """Values this close to zero make rows of the kind ``tiny``: LightGBM's ±1e-35, or more where a program is coarser.
    """
    constant: float = 0.0
    """What is missing from every score, which changes no order."""

    @property
    def adds_otherwise(self) -> bool:
        """Whether the model's own sums are of single precision, and those of the file are of double."""
        return self.formula.single_sums and not self.single and not self.rounds_sums

    @property
    def tolerance(self) -> float:
        """Differences up to this share of the score (of 1, where it is smaller) are rounding.

        What a network is fed is rounded to single precision, and may be rounded otherwise.
        """
        return _SINGLE if self.single or self.formula.has_network or self.adds_otherwise else _DOUBLE


@dataclass(frozen=True, kw_only=True)
class Format:
    """A way to write rankers down."""

    name: str
    """As `toprank.export` calls it."""
    title: str
    """What it is and who reads it, in a few words."""
    suffix: str
    """What its files usually end in."""
    prepare: Callable[[Formula, str | None, RankingData | None], Prepared]
    """Writes a formula for a server of some version, None for any; data to check on may be there for remarks."""
    refuses: Callable[[Formula, str | None], str | None] | None = None
    """Why it cannot hold a formula on a server, as a sentence with a remedy; None: it can."""
    versioned: bool = False
    """Whether what it writes depends on the version of a server."""

    def refusal(self, formula: Formula, server: str | None = None) -> str | None:
        """Why it cannot hold a formula on a server; None: it can."""
        return None if self.refuses is None else self.refuses(formula, server)

    def prepared(self, formula: Formula, server: str | None = None, data: RankingData | None = None) -> Prepared:
        """A formula in this format.

        Raises:
            DataError: the format cannot hold it, or knows no servers.
        """
        if server is not None and not self.versioned:
            raise DataError(f"The format {self.name} does not depend on a server; leave its version out.")
        if (reason := self.refusal(formula, server)) is not None:
            raise DataError(joined(f"The format {self.name} cannot hold this model:", reason))
        return self.prepare(formula, server, data)


_HOMES: dict[str, str] = {
    "onnx": "toprank.exporting.onnx_graph",
    "elasticsearch": "toprank.exporting.elastic",
    "opensearch": "toprank.exporting.elastic",
    "solr": "toprank.exporting.solr",
    "vespa": "toprank.exporting.vespa",
    "xgboost": "toprank.exporting.xgboost_json",
    "lightgbm": "toprank.exporting.lightgbm_text",
    "ranklib": "toprank.exporting.ranklib",
    "c": "toprank.exporting.c_source",
    "python": "toprank.exporting.python_source",
    "json": "toprank.exporting.linear_json",
}
"""Where the formats live, in the order of the documentation."""


def names() -> tuple[str, ...]:
    """All formats."""
    return tuple(_HOMES)


def format_named(name: Any) -> Format:
    """The format of a name, in any case.

    >>> format_named("Python").suffix
    '.py'
    """
    if not isinstance(name, str) or name.lower() not in _HOMES:
        raise UnknownNameError("format", str(name), _HOMES)
    formats: list[Format] = first_use(_HOMES[name.lower()]).FORMATS
    return next(format for format in formats if format.name == name.lower())


def release(version: str) -> tuple[int, int]:
    """The first two numbers of a server's version.

    >>> release("v3.8.0"), release("9")
    ((3, 8), (9, 0))
    """
    parts = version.removeprefix("v").split(".")[:2]
    if not all(part.isdecimal() for part in parts):
        raise DataError(f"The version of a server is like '3.8.0', not {version!r}.")
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0


def renamed(names: Sequence[str], marks: str) -> list[str]:
    r"""Names in which every mark that a reader does not take is an underscore.

    >>> renamed(["bm25 title", "age"], r"\s")
    ['bm25_title', 'age']
    """
    return [re.sub(marks, "_", name) or "_" for name in names]


def name_refusal(names: Sequence[str], marks: str, reader: str, which: str) -> str | None:
    """Why names cannot be told apart without the marks that a reader does not take; `which` these are, in words."""
    if len(set(renamed(names, marks))) == len(names):
        return None
    return (
        f"{reader} does not take {which} in names of features, and without them two have one name. Rename them before "
        "training."
    )


def name_remarks(names: Sequence[str], marks: str, reader: str) -> tuple[str, ...]:
    """What was renamed."""
    changed = [(old, new) for old, new in zip(names, renamed(names, marks), strict=True) if old != new]
    if not changed:
        return ()
    some = f"{len(changed)} features are" if len(changed) > 1 else "a feature is"
    return (f"{reader} does not take every name: {some} renamed, '{changed[0][0]}' to '{changed[0][1]}'.",)


def table_remarks(formula: Formula, category: str | None = "its code", of_dates: str = "") -> tuple[str, ...]:
    """What a program is to be given in the place of dates, durations and categories.

    Args:
        formula: what is exported.
        category: what stands for a level; None: nothing to say of that.
        of_dates: what else to know of dates, as the end of a sentence.
    """
    if formula.encoding is None:
        return ()
    units = {"date": f"days since 1970-01-01 UTC{of_dates}", "duration": "days"}
    if category is not None:
        units |= {"text": category, "whole": category}
    named = zip(formula.encoding.names, formula.encoding.columns, strict=True)
    return tuple(f"Give '{name}' as {units[column.kind]}." for name, column in named if column.kind in units)


def as_rows(X: Any) -> FloatArray:
    """Rows of features as a dense array in double precision."""
    dense = X.toarray() if hasattr(X, "toarray") else X
    return np.ascontiguousarray(dense, dtype=np.float64)


def compact_json(value: Any) -> str:
    """JSON without blanks, as models of some megabytes are sent."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
