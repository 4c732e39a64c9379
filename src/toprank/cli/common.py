"""What all commands do alike: read data, print results, and report progress.

Results go to standard output, everything else to standard error, so that output can be piped.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank import __version__
from toprank.cli import helping
from toprank.errors import DataError, FileError, ToprankError, retold
from toprank.showing.progress import step as step

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.data.trec import Run
    from toprank.rankers.base import Ranker


TABLES = ("parquet", "arrow", "csv")
"""Formats whose columns have names."""
_ROLES = ("label", "qid", "document_id")  # a model remembers the columns that have these


# Options that name files to write. What `train` writes is --output, too; elsewhere --model names a file to read.
_WRITTEN = {"--output", "--html", "--naive", "--plot", "target"}
_JSON_LINES = ("serve",)  # commands whose standard error programs read, from its first byte


class Command(helping.GroupedOptions):
    """A command whose errors name its options, and which says that it is at work if it takes long."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words; say what is wrong with a value in our words, not in those of the parser's library."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as problem:
            words = problem.message.removeprefix("Value error, ").partition(", unable to parse")[0]
            problem.message = words.replace("Input should be", "it must be")
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless it would write onto a file that it reads."""
        quiet = bool(ctx.params.get("quiet")) or ctx.info_name in _JSON_LINES
        options = [option for parameter in self.params for option in parameter.opts]
        with speaking_of(options), step(f"{_called(ctx)} is at work …", quiet):
            check_outputs(ctx.params, {str(each.name) for each in self.params if _WRITTEN & set(each.opts)})
            return super().invoke(ctx)


def _called(ctx: Any) -> str:
    """Return the name of a command as it is typed, with the groups that it is in."""
    return "toprank" if ctx.parent is None else f"{_called(ctx.parent)} {ctx.info_name}"


class SeveralRuns(Command):
    """A command that takes several files behind one --runs, up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words after giving each file a --runs of its own."""
        words: list[str] = []
        within = False
        for word in args:
            if word.startswith("-") and word != "-":
                within = word == "--runs"
                words += [] if within else [word]
            else:
                words += ["--runs", word] if within else [word]
        return super().parse_args(ctx, words)


class Commands(helping.GroupedCommands):
    """Commands that answer Ctrl-C with a sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named; after Ctrl-C, print what the interrupt says, or else "Interrupted."."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            say(f"toprank: {str(stop) or 'Interrupted.'}", quiet=False)
            raise typer.Exit(130) from None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toprank {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Learning to rank, focused on the top of the list."""


_OPTIONS: ContextVar[Collection[str]] = ContextVar("options of the command that runs", default=())


@contextmanager
def speaking_of(options: Collection[str]) -> Iterator[None]:
    """Let errors and `with_options` within this block name these options instead of arguments of Python."""
    before = _OPTIONS.set(options)
    try:
        yield
    except ToprankError as problem:
        problem.args = (with_options(problem.args[0]),)
        raise
    finally:
        _OPTIONS.reset(before)


def with_options(sentence: str) -> str:
    """Return a sentence with the options of the command that runs instead of arguments of Python.

    >>> from toprank.errors import Remedy, joined
    >>> large = joined("Too large;", Remedy("read with {dtype}.", "convert it with {dtype}.", dtype="float64"))
    >>> print(large, "|", with_options(large))
    Too large; read with dtype='float64'. | Too large; convert it with --dtype float64.
    >>> with speaking_of(["--dtype"]):
    ...     with_options(large)
    'Too large; read with --dtype float64.'
    """
    return retold(sentence, _typed, lambda argument: _option(argument) in _OPTIONS.get())


def _option(argument: str) -> str:
    if argument == "qid" and "--qid-column" in _OPTIONS.get():  # of `explain`, whose --qid says which query
        return "--qid-column"
    return "--from" if argument == "format" else f"--{argument.replace('_', '-')}"


def _typed(argument: str, value: Any) -> str:
    """Return an argument and its value as they are typed.

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
    """Print one JSON object; a result has None instead of NaN already, for which JSON has no word."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def check_form(**forms: bool) -> None:
    """Refuse two forms of output, such as --json and --latex."""
    if sum(forms.values()) > 1:
        *others, last = (f"--{name}" for name in forms)
        raise typer.BadParameter(f"choose one of {', '.join(others)} and {last}.")


def print_result(result: Any, *, json: bool, markdown: bool = False, latex: bool = False) -> None:
    """Print a result in the form that was asked for."""
    if json:
        print_json(result.to_dict())
    else:
        typer.echo(result.to_markdown() if markdown else result.to_latex() if latex else str(result))


def print_and_report(
    result: Any, html: Path | None, content: Callable[[], Any], *, json: bool, markdown: bool, latex: bool, quiet: bool
) -> None:
    """Print a result in the form that was asked for, and write its report if there is a file for it.

    `content` returns what the report says.
    """
    print_result(result, json=json, markdown=markdown, latex=latex)
    if html is not None:
        from toprank.report import write_html

        with progress("Writing the report …", quiet):
            write_html(html, content())
        say(f"{html}: the report", quiet)


def check_outputs(parameters: Mapping[str, Any], outputs: Collection[str]) -> None:
    """Refuse to write (`outputs`) onto a file that the same command reads and that its result would replace."""
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
                raise DataError(f"{written} is read by this command, and writing would replace it; name another file.")


def check_writable(path: Path | None, example: str = "report.html") -> None:
    """Refuse a path that cannot be written, before any work."""
    if path is None:
        return
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it, for example {path / example}.")
    if not path.parent.is_dir():
        raise FileError(f"{path} cannot be written: the folder {path.parent} does not exist.")


def refuse_twice(paths: Sequence[Path]) -> None:
    """Refuse a file or folder that is given twice, also under two names."""
    places = [path.resolve() for path in paths]
    for number, path in enumerate(paths):
        if places[number] in places[:number]:
            raise typer.BadParameter(f"{path} is given twice.")


def say(message: str, quiet: bool) -> None:
    """Print a remark on standard error."""
    if not quiet:
        sys.stderr.write(message + "\n")


def is_watched(quiet: bool) -> bool:
    """Whether standard error is a terminal, and progress is wanted."""
    return not quiet and sys.stderr.isatty()


@contextmanager
def progress(message: str, quiet: bool) -> Iterator[None]:
    """Show a spinner on a terminal while the block runs; elsewhere print the message once if it takes long."""
    if not is_watched(quiet):
        with step(message, quiet):
            yield
        return
    from rich.console import Console

    with step(None, quiet), Console(stderr=True).status(message):
        yield


def read_data(path: Path, quiet: bool, options: Mapping[str, Any]) -> RankingData:
    """Read data and show progress."""
    from toprank.data.files import read

    with progress(f"Reading {path} …", quiet):
        return read(path, **options)


def read_judgments(path: Path, quiet: bool, options: Mapping[str, Any]) -> RankingData:
    """Read data for their labels and queries; a table is read without its features."""
    bare: dict[str, Any] = {"features": []} if file_format(path) in TABLES else {}
    return read_data(path, quiet, {**bare, **options})


def carrying(path: Path, by: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of `toprank.read` by which a table also carries the column to slice or to split by, if any."""
    if by is None:
        return dict(options)
    from toprank.data.files import carrying
    from toprank.data.slices import columns_of

    return carrying(file_format(path), columns_of(by), options)


def read_both(
    data: Path, valid: Path | None, quiet: bool, options: Mapping[str, Any]
) -> tuple[RankingData, RankingData | None]:
    """Read training and validation data with the same features; `options` are keywords of `toprank.read`."""
    from toprank.data.files import in_agreement

    files = [file for file in (data, valid) if file is not None]
    if valid is None or any(_is_stream(file) or file_format(file) != "letor" for file in files):
        documents = read_data(data, quiet, options)
        return documents, None if valid is None else read_alike(valid, quiet, options, like=documents)
    documents, held_out = in_agreement(
        [read_data(file, quiet, options) for file in files],
        lambda number, further: read_data(files[number], quiet, {**options, **further}),
    )
    return documents, held_out


def settle(data: RankingData, unjudged: str | None) -> RankingData:
    """Apply a rule for unjudged documents, if there is one."""
    from toprank.data.unjudged import settled

    return data if unjudged is None else settled(data, unjudged)[0]


def read_alike(path: Path, quiet: bool, options: Mapping[str, Any], like: Any) -> RankingData:
    """Read data in the columns of `like`: the training data, or a fitted ranker."""
    from toprank.data.dataset import RankingData

    known = isinstance(like, RankingData)
    width = like.n_features if known else like.n_features_in_
    kind = file_format(path)
    wanted = dict(options)
    if kind == "letor" and getattr(like, "takes_more_features", False):
        read = read_data(path, quiet, {"first_feature_id": 1, **options})
        if read.n_features >= width:
            return read
    if kind == "letor":
        wanted["n_features"] = width  # the last features may be absent from a text file, and so may the first
        first = like.first_feature_id if known else getattr(like, "first_feature_id_", None)
        if first is not None:
            wanted["first_feature_id"] = first
    elif kind in TABLES:
        wanted = {**remembered(path, like), **wanted, "like": like}  # whatever else the table holds, in whatever order
    return read_data(path, quiet, wanted)


def load_both(
    model: Path, data: Path, quiet: bool, reading: dict[str, Any], labels: bool = False, queries: bool = True
) -> tuple[Any, RankingData]:
    """Load a model, and read data in its columns; labels and queries of a table only if they are wanted."""
    from toprank.rankers.model_files import load

    ranker = load(model)
    _use_threads(ranker, reading.get("threads"))
    named = "features" in reading or hasattr(ranker, "feature_names_in_")
    table = file_format(data) in TABLES
    if table and not labels and "label" not in reading and (named or not has_label(data)):
        reading["label"] = False
    if table and not queries and "qid" not in reading and named and not ranker.sees_queries:
        reading["qid"] = False
    return ranker, read_alike(data, quiet, reading, like=ranker)


def _use_threads(ranker: Ranker, threads: int | None) -> None:
    """Let a ranker predict on so many threads; so does each member of a blend."""
    if threads is not None and hasattr(ranker, "threads"):
        ranker.set_params(threads=threads)
    for member in getattr(ranker, "rankers_", ()):
        _use_threads(member, threads)


def remember_columns(ranker: Any, options: Mapping[str, Any]) -> None:
    """Keep in a model which columns of a table had labels, queries and ids, so that later commands know."""
    columns = {role: options[role] for role in _ROLES if isinstance(options.get(role), str)}
    if columns:
        ranker.training_["columns"] = columns


def remembered(table: Path, ranker: Any) -> dict[str, str]:
    """Return the roles of columns that a model remembers, as far as the table has these columns."""
    known = getattr(ranker, "training_", {}).get("columns")
    if not isinstance(known, dict):
        return {}
    columns = column_names(table)
    return {role: known[role] for role in _ROLES if known.get(role) in columns}


def column_names(table: Path) -> list[str]:
    """Return the names of the columns of a table."""
    from toprank.data.tables.sources import sources_of

    [first, *_] = sources_of(table, file_format(table))
    return list(first.schema.names)


def file_format(path: Path) -> str:
    """Return the format of a file; a pipe, whose bytes can be read only once, is taken for text."""
    from toprank.data.files import format_of

    return "letor" if _is_stream(path) else format_of(path)


def has_label(table: Path) -> bool:
    """Whether a column has one of the usual names of labels, so that it must not become a feature."""
    from toprank.data.frames.layout import USUAL_NAMES

    return any(name.lower() in USUAL_NAMES["label"] for name in column_names(table))


def _is_stream(path: Path) -> bool:
    """Whether the bytes under this name can be read only once."""
    return path.is_fifo() or path.is_char_device() or path.is_socket()


def names_of(paths: Iterable[Path]) -> dict[str, Path]:
    """Return files by their stems, or by the whole path if stems coincide."""
    paths = list(dict.fromkeys(paths))
    stems = Counter(path.stem for path in paths)
    return {path.stem if stems[path.stem] == 1 else str(path): path for path in paths}


def runs_by_name(runs: Mapping[Path, Run]) -> dict[str, Run]:
    """Return runs by their tags if these differ, else by their files."""
    tags = [run.tag for run in runs.values()]
    names = tags if len(set(tags)) == len(tags) else list(names_of(runs))
    return dict(zip(names, runs.values(), strict=True))
