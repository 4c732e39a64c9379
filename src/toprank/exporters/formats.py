"""`Format`: a way to write a ranker for another system; `Prepared`: a ranker written that way, ready to be checked.

Each format has a module with a value `FORMATS`; this registry knows where they live.
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

_DOUBLE, _SINGLE = 1e-9, 1e-5
"""Tolerances. A sum of n terms in another order differs by some n·2⁻⁵³ of its size in double precision, n·2⁻²⁴ in
single: these allow for millions of terms, and for a hundred, of whose errors most cancel."""
ELSEWHERE = "Export it to onnx, c or python"
"""What to do with a model that a format cannot hold: these hold every formula, onnx all but very deep trees."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model in a format: its files, and what the check must know about the program that reads them.

    Attributes:
        files: The content of the file, under "", and of files beside it, each under what follows the file's stem.
        score: Scores rows of these features with the file at a path; None if nothing on this machine can read the file.
        interpreter: The program that computes `score`, in words.
        remarks: What the user of the file must know: names, ranges of features, limits of size.
        excluded: Kinds of probe rows that totals leave out because the program cannot treat them as `predict` does.
        single: Whether the program computes in single precision; if not, no ranking may change.
        rounds_sums: Whether the program rounds sums to single precision after each tree if the model does.
        texts: Whether the program takes the categories of a table as texts instead of codes.
        tiny: Rows with a value this close to zero are of the kind ``tiny``: LightGBM's 1e-35, or more if a program is
            coarser.
        constant: What every score of the program lacks; no order depends on it.
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
    def adds_otherwise(self) -> bool:
        """Whether the model adds in single precision and the file in double precision."""
        return self.formula.single_sums and not self.single and not self.rounds_sums

    @property
    def tolerance(self) -> float:
        """Differences up to this share of the score (of 1, if that is larger) count as rounding.

        The inputs of a network are rounded to single precision, and the program may round them differently.
        """
        return _SINGLE if self.single or self.formula.has_network or self.adds_otherwise else _DOUBLE


@dataclass(frozen=True, kw_only=True)
class Format:
    """A way to write rankers down.

    Attributes:
        name: Its name for `toprank.export`.
        title: What it is and who reads it, in a few words.
        suffix: The usual end of its files' names.
        prepare: Writes a formula for a server of this version, None for any; data to check on, if given, may add
            remarks.
        refuses: Says why it cannot hold a formula on a server, in a sentence with a remedy; None if it can.
        versioned: Whether the files depend on the version of a server.
    """

    name: str
    title: str
    suffix: str
    prepare: Callable[[Formula, str | None, RankingData | None], Prepared]
    refuses: Callable[[Formula, str | None], str | None] | None = None
    versioned: bool = False

    def refusal(self, formula: Formula, server: str | None = None) -> str | None:
        """Say why it cannot hold a formula on a server; None if it can."""
        return None if self.refuses is None else self.refuses(formula, server)

    def prepared(self, formula: Formula, server: str | None = None, data: RankingData | None = None) -> Prepared:
        """Write a formula in this format.

        Raises:
            DataError: the format cannot hold it, or knows no servers.
        """
        if server is not None and not self.versioned:
            raise DataError(f"The format {self.name} does not depend on a server; leave its version out.")
        if (reason := self.refusal(formula, server)) is not None:
            raise DataError(join_parts(f"The format {self.name} cannot hold this model:", reason))
        return self.prepare(formula, server, data)


# Where the formats live, in the order of the documentation.
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
    """The names of all formats."""
    return tuple(_HOMES)


def format_named(name: Any) -> Format:
    """Return the format of this name, in upper or lower case.

    >>> format_named("Python").suffix
    '.py'
    """
    if not isinstance(name, str) or name.lower() not in _HOMES:
        raise UnknownNameError("format", str(name), _HOMES)
    formats: list[Format] = first_use(_HOMES[name.lower()]).FORMATS
    return next(format for format in formats if format.name == name.lower())


def release(version: str) -> tuple[int, int]:
    """Return the first two numbers of a server's version.

    >>> release("v3.8.0"), release("9")
    ((3, 8), (9, 0))
    """
    parts = version.removeprefix("v").split(".")[:2]
    if not all(part.isdecimal() for part in parts):
        raise DataError(f"The version of a server is like '3.8.0', not {version!r}.")
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0


def renamed(names: Sequence[str], marks: str) -> list[str]:
    r"""Replace every mark that a reader does not take by an underscore.

    >>> renamed(["bm25 title", "age"], r"\s")
    ['bm25_title', 'age']
    """
    return [re.sub(marks, "_", name) or "_" for name in names]


def name_refusal(names: Sequence[str], marks: str, reader: str, which: str) -> str | None:
    """Say that two names become one without the marks that a reader does not take; `which`: these marks, in words."""
    if len(set(renamed(names, marks))) == len(names):
        return None
    return (
        f"{reader} does not take {which} in names of features, and without them two have one name. Rename them before "
        "training."
    )


def name_remarks(names: Sequence[str], marks: str, reader: str) -> tuple[str, ...]:
    """Say which features were renamed."""
    changed = [(old, new) for old, new in zip(names, renamed(names, marks), strict=True) if old != new]
    if not changed:
        return ()
    some = f"{len(changed)} features are" if len(changed) > 1 else "a feature is"
    return (f"{reader} does not take every name: {some} renamed, '{changed[0][0]}' to '{changed[0][1]}'.",)


def table_remarks(formula: Formula, category: str | None = "its code", of_dates: str = "") -> tuple[str, ...]:
    """Say how to give a program dates, durations and categories.

    Args:
        formula: the model.
        category: what stands for a level; None if another remark says so.
        of_dates: more about dates, as the end of a sentence.
    """
    if formula.encoding is None:
        return ()
    units = {"date": f"days since 1970-01-01 UTC{of_dates}", "duration": "days"}
    if category is not None:
        units |= {"text": category, "whole": category}
    columns = formula.encoding.columns
    return tuple(f"Give '{column.name}' as {units[column.kind]}." for column in columns if column.kind in units)


def compact_json(value: Any) -> str:
    """Write JSON without blanks: a model may have several megabytes."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
