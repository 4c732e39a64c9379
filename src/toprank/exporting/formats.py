"""`Format`: one way to write a ranker down for others, as a value: what it holds, how it is written, how it scores.

Each format has a module with a value `FORMATS` of its own; this registry knows where they live.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError
from toprank.exporting.probe_rows import TINY
from toprank.importing import first_use
from toprank.rankers.formula import Formula

__all__ = ["Format", "Target", "format_named", "names", "release"]

_SINGLE = 1e-5


class Target(NamedTuple):
    """What a writer is told besides the formula."""

    name: str
    """The name of the file without its suffix: that of the model inside."""
    version: str | None = None
    """Of the server that the file is for."""


@dataclass(frozen=True)
class Format:
    """A way to write rankers down.

    Args:
        name: as `toprank.export` calls it.
        title: what it is and who reads it, in a few words.
        suffix: what its files usually end in.
        precision: what the target computes in; ``double`` is held to no change of any ranking.
        files: the content of the file, under "", and of files beside it, each under what follows the file's stem.
        refuses: why it cannot say this formula, as a sentence with a remedy; None: it can.
        scores: what the file at a path makes of rows of features; the names of the columns come with them.
        interpreter: who computes `scores`, in words; asked when they have been computed.
        available: whether `interpreter` is there; else files are written without a comparison.
        remarks: sentences about what the target asks of its users: ranges of features, limits of size.
        versioned: whether what it writes depends on the version of a server.
        apart: kinds of made rows that are counted apart, since the target cannot treat them as `predict` does.
        tiny: values this close to zero make rows of the kind ``tiny``: LightGBM's ±1e-35, or where a target is coarser.
        rounds_sums: whether sums are rounded to single precision after each tree where the model's are.
        texts: whether the categories of a table are given as texts, and not as codes.
        constant: what the target leaves out of every score, which changes no order.
        settle: the format as it stands for one formula, one server and the data to check on, where any of this depends
            on them; None: as it is.
    """

    name: str
    title: str
    suffix: str
    precision: Literal["double", "single"]
    files: Callable[[Formula, Target], Mapping[str, bytes]]
    scores: Callable[[Path, FloatArray, tuple[str, ...]], FloatArray]
    interpreter: Callable[[], str]
    refuses: Callable[[Formula, Target], str | None] = lambda _formula, _target: None
    remarks: Callable[[Formula, Target], tuple[str, ...]] = lambda _formula, _target: ()
    available: Callable[[], bool] = lambda: True
    versioned: bool = False
    apart: frozenset[str] = frozenset()
    tiny: float = TINY
    rounds_sums: bool = False
    texts: bool = False
    constant: float = 0.0
    settle: Callable[[Format, Formula, Target, RankingData | None], Format] | None = None

    @property
    def tolerance(self) -> float:
        """Differences up to this share of the score (of 1, where it is smaller) are rounding."""
        return 1e-9 if self.precision == "double" else _SINGLE

    def tolerance_for(self, formula: Formula) -> float:
        """The same for a formula: what a network is fed is rounded to single precision, maybe in another way."""
        return _SINGLE if formula.has_network or self.adds_otherwise(formula) else self.tolerance

    def adds_otherwise(self, formula: Formula) -> bool:
        """Whether the model's own sums are of single precision, and the target's are of double."""
        return formula.single_sums and self.precision == "double" and not self.rounds_sums

    def check(self, formula: Formula, target: Target) -> None:
        """Refuse a formula that the format cannot say, and a version where none is asked for."""
        if target.version is not None and not self.versioned:
            raise DataError(f"The format {self.name} does not depend on a server; leave its version out.")
        reason = self.refuses(formula, target)
        if reason is not None:
            raise DataError(f"The format {self.name} cannot hold this model: {reason}")

    def settled(self, formula: Formula, target: Target, data: RankingData | None) -> Format:
        """The format for this export; see `settle`."""
        return self if self.settle is None else self.settle(self, formula, target, data)


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
    return next(one for one in formats if one.name == name.lower())


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
    r"""Names in which every mark that a target does not take is an underscore.

    >>> renamed(["bm25 title", "age"], r"\s")
    ['bm25_title', 'age']
    """
    return [re.sub(marks, "_", name) or "_" for name in names]


def name_refusal(names: Sequence[str], marks: str, target: str, which: str) -> str | None:
    """Why names cannot be told apart without the marks that a target does not take; `which` these are, in words."""
    if len(set(renamed(names, marks))) == len(names):
        return None
    return (
        f"{target} does not take {which} in names of features, and without them two have one name. Rename them before "
        "training."
    )


def name_remarks(names: Sequence[str], marks: str, target: str) -> tuple[str, ...]:
    """What was renamed."""
    changed = [(old, new) for old, new in zip(names, renamed(names, marks), strict=True) if old != new]
    if not changed:
        return ()
    some = f"{len(changed)} features are" if len(changed) > 1 else "a feature is"
    return (f"{target} does not take every name: {some} renamed, '{changed[0][0]}' to '{changed[0][1]}'.",)


def table_remarks(formula: Formula) -> tuple[str, ...]:
    """What a target is to be given in the place of dates, durations and categories."""
    if formula.encoding is None:
        return ()
    given = {"date": "days since 1970-01-01 UTC", "duration": "days", "text": "its code", "whole": "its code"}
    named = zip(formula.encoding.names, formula.encoding.columns, strict=True)
    return tuple(f"Give '{name}' as {given[column.kind]}." for name, column in named if column.kind in given)


def as_rows(X: Any) -> FloatArray:
    """Rows of features as a dense array in double precision."""
    dense = X.toarray() if hasattr(X, "toarray") else X
    return np.ascontiguousarray(dense, dtype=np.float64)
