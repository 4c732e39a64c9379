"""The commands of `toprank`, one function each."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from toprank import __version__
from toprank.cli import (
    checking,
    common,
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
from toprank.errors import ToprankError

__all__ = ["app"]


class _Commands(TyperGroup):
    """Errors speak of options, and Ctrl-C is a sentence wherever a command has none of its own for it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ToprankError as problem:
            problem.args = (common.as_told(problem.args[0], self.commands[ctx.invoked_subcommand]),)
            raise
        except KeyboardInterrupt:
            common.say("toprank: Interrupted.", quiet=False)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
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
