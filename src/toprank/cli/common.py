"""What all commands share: options that mean the same everywhere, and how results and progress are printed.

Results go to standard output, everything else to standard error, so that output can be piped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.errors import told

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData


Threads = Annotated[int | None, typer.Option(min=1, help="Threads; all cores by default. Results never depend on it.")]
TrainingThreads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads; all cores by default. Trees and networks: the same number, the same bits."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random; the same seed gives the same bits.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks on standard error.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")]
Metrics = Annotated[str, typer.Option("--metrics", "-m", help="Metrics, separated by commas: ndcg@10,map,err@20.")]
ConventionName = Annotated[
    str, typer.Option("--convention", "-c", help="Rules of evaluation; `toprank conventions` lists them.")
]
Regroup = Annotated[bool, typer.Option(help="Bring scattered rows of a query together instead of refusing them.")]
Cache = Annotated[bool, typer.Option(help="Keep a binary copy beside a text file and open that the next time.")]


Layout = Annotated[str | None, typer.Option(help="How features of a text file are held: dense (default) or sparse.")]
Verify = Annotated[bool, typer.Option("--verify", help="With --cache or a stored copy: compare contents with hashes.")]


TABLES = ("parquet", "arrow", "csv")
"""Formats whose columns have names."""


class Missing(StrEnum):
    """What an absent value in a text file is."""

    nan = "nan"
    zero = "zero"


MissingValues = Annotated[Missing, typer.Option(help="What NULL and absent features of a text file become.")]


def as_told(sentence: str, command: Any = None) -> str:
    """A sentence of ours as a command says it.

    Args:
        sentence: it may know a remedy for commands, as `toprank.errors.Remedy`.
        command: the one that says it. Default: the one that runs.
    """
    import click

    if command is None and (context := click.get_current_context(silent=True)) is not None:
        command = context.command
    return told(sentence, [] if command is None else [option for one in command.params for option in one.opts])


def print_json(value: Any) -> None:
    """One JSON object on standard output; NaN is written as null by whoever made the value."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def say(message: str, quiet: bool) -> None:
    """A remark on standard error."""
    if not quiet:
        sys.stderr.write(message + "\n")


def is_watched(quiet: bool) -> bool:
    """Whether a person looks at standard error and wants to know how it goes."""
    return not quiet and sys.stderr.isatty()


@contextmanager
def progress(message: str, quiet: bool) -> Iterator[None]:
    """Show that work goes on while it does, where a person is watching."""
    if not is_watched(quiet):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(message):
        yield


def reading_options(missing: Missing, columns: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Keywords of `toprank.read`. They are handed on only where they were asked for: not every format has all."""
    wanted = {name: value for name, value in options.items() if value}
    if missing != Missing.nan:
        wanted["missing"] = missing.value
    return {**wanted, **columns}


def read_data(path: Path, quiet: bool, options: Mapping[str, Any]) -> RankingData:
    """Read data, with progress."""
    from toprank.data.files import read

    with progress(f"Reading {path} …", quiet):
        return read(path, **options)


def read_both(
    data: Path, valid: Path | None, quiet: bool, options: Mapping[str, Any]
) -> tuple[RankingData, RankingData | None]:
    """Training and validation data with the same features.

    Args:
        data: the file of the training data.
        valid: the file of the validation data, if there is one.
        quiet: whether to show no progress.
        options: from `reading_options`.
    """
    from toprank.data.files import in_agreement

    files = [file for file in (data, valid) if file is not None]
    if valid is None or any(_once(file) or format_told(file) != "letor" for file in files):
        documents = read_data(data, quiet, options)
        return documents, None if valid is None else read_alike(valid, quiet, options, like=documents)
    documents, held_out = in_agreement(
        [read_data(file, quiet, options) for file in files],
        lambda number, further: read_data(files[number], quiet, {**options, **further}),
    )
    return documents, held_out


def read_alike(path: Path, quiet: bool, options: Mapping[str, Any], like: Any) -> RankingData:
    """Read data with the features of others.

    Args:
        path: the file.
        quiet: whether to show no progress.
        options: from `reading_options`.
        like: the training data, or a fitted ranker.
    """
    from toprank.data.dataset import RankingData

    known = isinstance(like, RankingData)
    width = like.n_features if known else like.n_features_in_
    names = like.feature_names if known else getattr(like, "feature_names_in_", None)
    kind = format_told(path)
    wanted = dict(options)
    if kind == "letor":
        wanted["n_features"] = width  # the last features may be absent from a text file, and so may the first
        first = like.first_feature_id if known else getattr(like, "first_feature_id_", None)
        if first is not None:
            wanted["first_feature_id"] = first
    elif kind in TABLES and names is not None:
        wanted.setdefault("features", list(names))  # whatever else the table holds, and in whatever order
    return read_data(path, quiet, wanted)


def format_told(path: Path) -> str:
    """The format of a file; what comes through a pipe, whose bytes can be had once, is taken for text."""
    from toprank.data.files import format_of

    return "letor" if _once(path) else format_of(path)


def _once(path: Path) -> bool:
    """Whether the bytes under this name can be had once only."""
    return path.is_fifo() or path.is_char_device() or path.is_socket()
