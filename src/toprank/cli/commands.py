"""The commands of `toprank`, one function each."""

from __future__ import annotations

from typing import Any

import typer

from toprank.cli import (
    clicks,
    common,
    demonstrating,
    evaluating,
    experimenting,
    explaining,
    exporting,
    fusing,
    judging,
    launching,
    monitoring,
    options,
    predicting,
    preparing,
    searching,
    serving,
    training,
)

__all__ = ["app"]


app = typer.Typer(
    cls=common.Commands,
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
    "Data": (preparing.check, preparing.convert, preparing.split),
    "Train": (training.train, training.tune, training.systems),
    "Judge": (
        evaluating.evaluate,
        evaluating.compare,
        judging.judges,
        experimenting.cv,
        evaluating.conventions,
        launching.launch,
        fusing.fuse,
        experimenting.reproduce,
    ),
    "Explain": (explaining.explain, predicting.inspect),
    "Ship": (predicting.predict, predicting.rank, exporting.export, serving.serve, monitoring.monitor),
}
for _group, _functions in _GROUPS.items():
    for _function in _functions:
        _kind = common.SeveralRuns if _function is judging.judges else common.Command
        _settings: dict[str, Any] = {"cls": _kind, "rich_help_panel": _group}
        app.command(_function.__name__, **_settings)(options.complete(_function))

_CLICKS = typer.Typer(
    cls=common.Commands,
    help="Train and evaluate on logs of what was shown and clicked.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in clicks.COMMANDS:
    _CLICKS.command(_command.__name__, cls=common.Command)(options.complete(_command))
app.add_typer(_CLICKS, name="clicks", rich_help_panel="Clicks")

_SEARCH = typer.Typer(
    cls=common.Commands,
    help="Search documents: index a collection, learn the order of what it finds, evaluate it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in searching.COMMANDS:
    _SEARCH.command(_command.__name__, cls=common.Command)(options.complete(_command))
app.add_typer(_SEARCH, name="search", rich_help_panel="Search")

app.callback()(common.root)
