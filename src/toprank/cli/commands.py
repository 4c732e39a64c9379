"""The commands of `toprank`, one function each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toprank import __version__
from toprank.cli import (
    clicks,
    common,
    demonstrating,
    evaluating,
    experimenting,
    explaining,
    exporting,
    helping,
    monitoring,
    options,
    predicting,
    preparing,
    serving,
    splitting,
    training,
)

__all__ = ["app"]


_WRITTEN = {
    "--output",
    "--html",
    "--model",
    "--naive",
    "--plot",
    "target",
}  # what names files to write
_JSON_LINES = ("serve",)  # commands whose standard error programs read, from its first byte


class _Command(helping.Command):
    """What goes wrong is told with the options of the command; it says that it works."""

    def invoke(self, ctx: Any) -> Any:
        quiet = bool(ctx.params.get("quiet")) or ctx.info_name in _JSON_LINES
        options = [option for one in self.params for option in one.opts]
        with common.speaking_of(options), common.step(f"toprank {ctx.info_name} is at work …", quiet):
            common.check_outputs(ctx.params, {one.name for one in self.params if _WRITTEN & set(one.opts)})
            return super().invoke(ctx)


class _Commands(helping.Commands):
    """Ctrl-C is a sentence wherever a command has none of its own for it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
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
_GROUPS = {
    "Start": (demonstrating.demo,),
    "Data": (preparing.check, preparing.convert, splitting.split),
    "Train": (training.train, training.tune, training.systems),
    "Judge": (
        evaluating.evaluate,
        evaluating.compare,
        experimenting.cv,
        evaluating.conventions,
        experimenting.reproduce,
    ),
    "Explain": (explaining.explain, predicting.inspect),
    "Ship": (predicting.predict, predicting.rank, exporting.export, serving.serve, monitoring.monitor),
}
for _group, _functions in _GROUPS.items():
    for _function in _functions:
        _settings: dict[str, Any] = {"cls": _Command, "rich_help_panel": _group}
        app.command(_function.__name__, **_settings)(options.complete(_function))

_CLICKS = typer.Typer(
    cls=_Commands,
    help="Train and evaluate on logs of what was shown and clicked.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in clicks.COMMANDS:
    _CLICKS.command(_command.__name__, cls=_Command)(options.complete(_command))
app.add_typer(_CLICKS, name="clicks", rich_help_panel="Clicks")


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
