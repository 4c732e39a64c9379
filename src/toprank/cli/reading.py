"""Options of commands that read data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from toprank.cli import helping
from toprank.cli.options import only
from toprank.data.roles import ROLES

Missing = StrEnum("Missing", ["nan", "zero"])
Precision = StrEnum("Precision", ["float32", "float64"])

_of_columns = partial(typer.Option, rich_help_panel=helping.COLUMNS)
_of_reading = partial(typer.Option, rich_help_panel=helping.READING)


def _role(keyword: str) -> Any:
    words = f"Column with {ROLES[keyword].description}; '' for none."
    return _of_columns(metavar="COLUMN", help=words, show_default=False)


@dataclass(frozen=True)
class ReadOptions:
    """Keywords of `toprank.read` as options; each applies to some formats."""

    label: Annotated[str | None, _role("label")] = None
    qid: Annotated[str | None, _role("qid")] = None
    document_id: Annotated[str | None, _role("document_id")] = None
    weight: Annotated[str | None, _role("weight")] = None
    query_weight: Annotated[str | None, _role("query_weight")] = None
    position: Annotated[str | None, _role("position")] = None
    teacher: Annotated[str | None, _role("teacher")] = None
    features: Annotated[str | None, _of_columns(metavar="A,B,...", help="Feature columns, in this order.")] = None
    metadata: Annotated[
        list[str] | None,
        _of_columns(metavar="A,B,...", help="Columns to keep for slices and splits by time, but not use as features."),
    ] = None
    query_text: Annotated[str | None, _of_columns(metavar="COLUMN", help="Column with the words of the query.")] = None
    document_text: Annotated[
        list[str] | None,
        _of_columns(
            metavar="A,B,...",
            help="Columns with the words of the documents; their matches with the query become features.",
        ),
    ] = None
    missing: Annotated[Missing, _of_reading(help="Value of NULL and absent features in a text file.")] = Missing.nan
    layout: Annotated[
        str | None,
        _of_reading(help="Storage of the features of a text file. Default: dense.", metavar="dense|sparse"),
    ] = None
    regroup: Annotated[
        bool | None,
        _of_reading(help="Group scattered rows of a query, or refuse them. Default: group in tables, refuse in text."),
    ] = None
    cache: Annotated[bool, _of_reading(help="Store a binary copy next to a text file, and open it next time.")] = False
    verify: Annotated[
        bool,
        _of_reading("--verify", help="With --cache or a stored copy: verify the hashes of the contents."),
    ] = False
    dtype: Annotated[Precision | None, _of_reading(help="Precision of the features of text or a table.")] = None
    n_features: Annotated[
        int | None, _of_reading(help="Number of features in text, if more than occur in it.", min=1)
    ] = None


COLUMNS = ("label", "qid", "features", "document_id", "metadata", "query_text", "document_text")
"""Column roles, options of every command that reads data."""
DOCUMENTS = (*COLUMNS, "missing", "layout", "regroup")
WEIGHTS = ("weight", "query_weight")
"""Columns with weights, which are never inferred from names."""
OfDocuments = Annotated[ReadOptions, only(*DOCUMENTS)]
"""Options for reading documents with their features."""
OfLabeled = Annotated[ReadOptions, only(*DOCUMENTS, *WEIGHTS, "cache", "verify")]
"""Options for reading documents to evaluate."""
OfLearned = Annotated[ReadOptions, only(*DOCUMENTS, *WEIGHTS, "teacher", "cache")]
"""Options for reading training data."""
