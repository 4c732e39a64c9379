"""Functions shared by all commands: reading data, printing results, and reporting progress.

Results are written to standard output and everything else to standard error, so that output can be piped.
"""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank import __version__
from toprank.cli import helping
from toprank.data.roles import INFERENCE_LISTENER, Roles, is_inferable, known_roles
from toprank.display.progress import step as step
from toprank.errors import DataError, FileError, ToprankError, reword

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.rankers.base import Ranker

# Options that name output files.
_WRITTEN = {"--output", "--html", "--naive", "--plot", "target"}
_JSON_LINES = ("serve",)  # commands whose standard error is read by programs


class Command(helping.GroupedOptions):
    """Command whose errors name its options, and which reports that it is running if it takes long."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the arguments, and simplify the parser's messages about invalid values."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as problem:
            words = problem.message.removeprefix("Value error, ").partition(", unable to parse")[0]
            problem.message = words.replace("Input should be", "it must be")
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless an output file is also an input file."""
        quiet = bool(ctx.params.get("quiet")) or ctx.info_name in _JSON_LINES
        options = [option for parameter in self.params for option in parameter.opts]
        running = step(f"{_called(ctx)} is running …", quiet)
        with quieted(quiet), with_option_names(options), reporting_inferred(options), running:
            check_outputs(ctx.params, {str(each.name) for each in self.params if _WRITTEN & set(each.opts)})
            return super().invoke(ctx)


TABLES = ("parquet", "arrow", "csv")
"""Formats with named columns."""
_QUIET: ContextVar[bool] = ContextVar("toprank_cli_quiet", default=False)


@contextmanager
def quieted(quiet: bool) -> Iterator[None]:
    """Suppress remarks and warnings about unused columns within the block if `quiet`."""
    before = _QUIET.set(quiet)
    try:
        with warnings.catch_warnings():
            if quiet:
                from toprank.data.frames.categories import ColumnsLeftOutWarning

                warnings.simplefilter("ignore", ColumnsLeftOutWarning)
            yield
    finally:
        _QUIET.reset(before)


def _called(ctx: Any) -> str:
    """Return the full name of a command, including its groups."""
    return "toprank" if ctx.parent is None else f"{_called(ctx.parent)} {ctx.info_name}"


class Commands(helping.GroupedCommands):
    """Group of commands that report Ctrl-C as a message."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; after Ctrl-C, print the message of the interrupt, or "Interrupted."."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            say(f"toprank: {str(stop) or 'Interrupted.'}", always=True)
            raise typer.Exit(130) from None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toprank {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learning to rank, focused on the top of the list."""


_OPTIONS: ContextVar[Collection[str]] = ContextVar("toprank_cli_options", default=())


@contextmanager
def reporting_inferred(options: Collection[str]) -> Iterator[None]:
    """Report which columns were inferred from their names, and the options that override this."""
    reported = set[tuple[str, Any]]()

    def report(roles: Roles) -> None:
        new = tuple(keyword for keyword in roles.inferred if (keyword, roles.column(keyword)) not in reported)
        reported.update((keyword, roles.column(keyword)) for keyword in new)
        if new:
            overrides = [_option(keyword) for keyword in new if _option(keyword) in options]
            remedy = f" (override with {', '.join(overrides)})" if overrides else ""
            columns = ", ".join(replace(roles, inferred=new).in_words())
            say(f"Inferred from column names: {columns}{remedy}.")

    token = INFERENCE_LISTENER.set(report)
    try:
        yield
    finally:
        INFERENCE_LISTENER.reset(token)


@contextmanager
def with_option_names(options: Collection[str]) -> Iterator[None]:
    """Make errors and `with_options` within the block name these options instead of Python arguments."""
    before = _OPTIONS.set(options)
    try:
        yield
    except ToprankError as problem:
        problem.args = (with_options(problem.args[0]),)
        raise
    finally:
        _OPTIONS.reset(before)


def with_options(sentence: str) -> str:
    """Return a sentence with options of the running command instead of Python arguments.

    >>> from toprank.errors import Remedy, join_parts
    >>> large = join_parts("Too large;", Remedy("read with {dtype}.", "convert it with {dtype}.", dtype="float64"))
    >>> print(large, "|", with_options(large))
    Too large; read with dtype='float64'. | Too large; convert it with --dtype float64.
    >>> with with_option_names(["--dtype"]):
    ...     with_options(large)
    'Too large; read with --dtype float64.'
    """
    return reword(sentence, _typed, lambda argument: _option(argument) in _OPTIONS.get())


def _option(argument: str) -> str:
    if argument == "qid" and "--qid-column" in _OPTIONS.get():  # in `explain`, --qid selects the query
        return "--qid-column"
    return "--from" if argument == "format" else f"--{argument.replace('_', '-')}"


def _typed(argument: str, value: Any) -> str:
    """Return an argument and its value in command-line form.

    >>> [_typed("it", value) for value in (..., True, False, "a", ["a", 2], [...], {"l2": (0.1, 1, "log")})]
    ['--it', '--it', "--it ''", '--it a', '--it a,2', '--it A,B,...', '--it l2=0.1:1:log']
    """
    option = _option(argument)
    if value is ... or value is True:
        return option
    if isinstance(value, dict):
        return " ".join(f"{option} {key}={_words(values)}" for key, values in value.items())
    return f"{option} {_words(value)}"


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "A,B,..." if value == [...] else (":" if isinstance(value, tuple) else ",").join(map(str, value))
    return "''" if value is False else str(value)


def print_json(value: Any) -> None:
    """Print one JSON object. Results contain None instead of NaN, which JSON does not support."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def check_outputs(parameters: Mapping[str, Any], outputs: Collection[str]) -> None:
    """Refuse an output file that is also an input file of the command."""
    read = [
        path
        for name, value in parameters.items()
        if name not in outputs
        for path in (value if isinstance(value, list | tuple) else [value])
        if isinstance(path, Path)
    ]
    for name in outputs:
        written = parameters.get(name)
        if not isinstance(written, Path) or not (os.path.isfile(written) or os.path.isdir(written)):
            continue
        for path in read:
            if os.path.exists(path) and os.path.samefile(path, written):
                raise DataError(f"{written} is an input of this command and would be overwritten; choose another file.")


def check_writable(path: Path | None, example: str = "report.html") -> None:
    """Refuse a path that cannot be written, before any computation."""
    if path is None:
        return
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it, for example {path / example}.")
    if not path.parent.is_dir():
        raise FileError(f"{path} cannot be written: the folder {path.parent} does not exist.")


def refuse_twice(paths: Sequence[Path]) -> None:
    """Refuse duplicate files or folders, even if their paths differ."""
    places = [path.resolve() for path in paths]
    for number, path in enumerate(paths):
        if places[number] in places[:number]:
            raise typer.BadParameter(f"{path} is passed twice.")


def say(message: str, *, always: bool = False) -> None:
    """Print a remark on standard error, unless the command is quiet and the remark is not `always` shown."""
    if always or not is_quiet():
        sys.stderr.write(message + "\n")


def is_quiet() -> bool:
    """Return whether the command that runs prints no remarks."""
    return _QUIET.get()


def is_watched() -> bool:
    """Return whether standard error is a terminal, and progress is wanted."""
    return not is_quiet() and sys.stderr.isatty()


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Show a spinner on a terminal while the block runs; elsewhere print the message once if it takes long."""
    if not is_watched():
        with announced(message):
            yield
        return
    from rich.console import Console

    with announced(None), Console(stderr=True).status(message):
        yield


def announced(message: str | None) -> AbstractContextManager[None]:
    """Print a message if the block takes long, unless the command is quiet."""
    return step(message, is_quiet())


def read_data(path: Path, options: Mapping[str, Any]) -> RankingData:
    """Read data and show progress."""
    from toprank.data.files import read

    with progress(f"Reading {path} …"):
        return read(path, **options)


def read_judgments(path: Path, options: Mapping[str, Any]) -> RankingData:
    """Read labels and queries; the features of a table are not read."""
    bare: dict[str, Any] = {"features": []} if file_format(path) in TABLES else {}
    return read_data(path, {**bare, **options})


def with_metadata(path: Path, by: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of `toprank.read` by which a table also carries the column to slice or to split by, if any."""
    if by is None:
        return dict(options)
    from toprank.data.files import with_metadata
    from toprank.data.slices import columns_of

    return with_metadata(file_format(path), columns_of(by), options)


def read_both(data: Path, valid: Path | None, options: Mapping[str, Any]) -> tuple[RankingData, RankingData | None]:
    """Read training and validation data with the same features; `options` are keywords of `toprank.read`."""
    from toprank.data.files import in_agreement

    files = [file for file in (data, valid) if file is not None]
    if valid is None or any(_is_stream(file) or file_format(file) != "letor" for file in files):
        documents = read_data(data, options)
        return documents, None if valid is None else read_alike(valid, options, like=documents)
    documents, held_out = in_agreement(
        [read_data(file, options) for file in files],
        lambda number, further: read_data(files[number], {**options, **further}),
    )
    return documents, held_out


def settle(data: RankingData, unjudged: str | None) -> RankingData:
    """Apply the rule for unjudged documents, unless it is None."""
    from toprank.data.unjudged import apply_rule

    return data if unjudged is None else apply_rule(data, unjudged)[0]


def read_alike(path: Path, options: Mapping[str, Any], like: Any) -> RankingData:
    """Read data with the features of `like`, which is the training data or a fitted ranker."""
    from toprank.data.dataset import RankingData

    known = isinstance(like, RankingData)
    width = like.n_features if known else like.n_features_in_
    kind = file_format(path)
    wanted = dict(options)
    if kind == "letor" and getattr(like, "allows_extra_features", False):
        read = read_data(path, {"first_feature_id": 1, **options})
        return _padded(read, width, 0.0 if options.get("missing") == "zero" else math.nan)
    if kind == "letor":
        wanted["n_features"] = width  # the first and last features may be absent from a text file
        first = like.first_feature_id if known else getattr(like, "first_feature_id_", None)
        if first is not None:
            wanted["first_feature_id"] = first
    elif kind in TABLES:
        wanted["like"] = like  # select and order the columns of the table
    return read_data(path, wanted)


def _padded(data: RankingData, width: int, missing: float) -> RankingData:
    """Append features that are absent from a text file, without reading it again: it may be a pipe."""
    n_absent = width - data.n_features
    if n_absent <= 0:
        return data
    if data.is_sparse:
        from scipy import sparse

        X = sparse.csr_matrix((data.X.data, data.X.indices, data.X.indptr), shape=(data.n_documents, width))
        return data.replace(X=X)
    import numpy as np

    return data.replace(X=np.pad(data.X, ((0, 0), (0, n_absent)), constant_values=missing))


def load_both(
    model: Path, data: Path, reading: dict[str, Any], labels: bool = False, queries: bool = True
) -> tuple[Any, RankingData]:
    """Load a model and read data with its features; labels and queries of a table are optional."""
    from toprank.rankers.model_files import load

    ranker = load(model)
    _use_threads(ranker, reading.get("threads"))
    named = "features" in reading or hasattr(ranker, "feature_names_in_")
    table = file_format(data) in TABLES
    if table and not labels:
        reading = {**dict.fromkeys(("weight", "query_weight", "teacher"), False), **reading}
        if "label" not in reading and (named or not has_label(data)):
            reading["label"] = False
    if table and not queries and "qid" not in reading and named and not ranker.uses_query_context:
        reading["qid"] = False
    return ranker, read_alike(data, reading, like=ranker)


def _use_threads(ranker: Ranker, threads: int | None) -> None:
    """Set the number of threads of a ranker, or of each member of a blend."""
    if threads is not None and hasattr(ranker, "threads"):
        ranker.set_params(threads=threads)
    for member in getattr(ranker, "rankers_", ()):
        _use_threads(member, threads)


def remembered(table: Path, ranker: Any) -> dict[str, str]:
    """Return the column roles stored in a model, for columns that the table contains."""
    return (known_roles(ranker) or Roles()).only_in(column_names(table)).columns


def column_names(table: Path) -> list[str]:
    """Return the names of the columns of a table."""
    from toprank.data.tables.sources import sources_of

    [first, *_] = sources_of(table, file_format(table))
    return list(first.schema.names)


def file_format(path: Path) -> str:
    """Return the format of a file. A pipe can be read only once, so its format is assumed to be LETOR text."""
    from toprank.data.files import format_of

    return "letor" if _is_stream(path) else format_of(path)


def has_label(table: Path, ranker: Any = None) -> bool:
    """Return whether a table has a label column, inferred by name or stored in a ranker."""
    names = column_names(table)
    known = known_roles(ranker)
    return any(is_inferable("label", name) for name in names) or (known is not None and known.label in names)


def _is_stream(path: Path) -> bool:
    """Return whether a path is a pipe or device that can be read only once."""
    return path.is_fifo() or path.is_char_device() or path.is_socket()
