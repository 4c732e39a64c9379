"""The command `toprank`: one function a command, exit status 0 (done), 1 (bad input) or 2 (wrong usage)."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer

from toprank import __version__
from toprank.cli import (
    checking,
    comparing,
    converting,
    demonstrating,
    evaluating,
    experimenting,
    predicting,
    reproducing,
    training,
    tuning,
)
from toprank.errors import ToprankError, UnknownNameError

__all__ = ["app", "run"]

app = typer.Typer(
    name="toprank",
    help="Learning to rank, focused on the top of the list.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("evaluate")(evaluating.evaluate)
app.command("compare")(comparing.compare)
app.command("cv")(experimenting.cv)
app.command("reproduce")(reproducing.reproduce)
app.command("check")(checking.check)
app.command("convert")(converting.convert)
app.command("conventions")(evaluating.conventions)
app.command("train")(training.train)
app.command("tune")(tuning.tune)
app.command("predict")(predicting.predict)
app.command("rank")(predicting.rank)
app.command("inspect")(predicting.inspect)
app.command("systems")(training.systems)
app.command("demo")(demonstrating.demo)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toprank {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Learning to rank, focused on the top of the list."""


def run() -> None:
    """The entry point: errors become one sentence on standard error, never a traceback."""
    if "--version" in sys.argv[1:]:  # understood everywhere, behind any command
        sys.argv[1:] = ["--version"]
    warnings.showwarning = _say_warning  # type: ignore[assignment]
    try:
        app()
    except UnknownNameError as problem:
        _fail(str(problem), 2)
    except ToprankError as problem:
        _fail(str(problem), 1)
    except MemoryError:
        _fail("There is not enough memory for this; use sparse features, a stored copy, or a larger machine.", 1)
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to say
        sys.stderr.close()
        sys.exit(1)
    except OSError as problem:
        _fail(f"{problem.strerror or problem}.", 1)


def _say_warning(message: Warning | str, *_: Any) -> None:
    """Warnings of ours are sentences for people; where in the source they arose is not."""
    sys.stderr.write(f"toprank: {message}\n")


def _fail(message: str, status: int) -> None:
    sys.stderr.write(f"toprank: {message}\n")
    sys.exit(status)
