"""The command-line application of `toprank` and its groups of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from toprank.cli import (
    clicks,
    common,
    comparing,
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
    tuning,
)


def _commands(words: str, **settings: Any) -> typer.Typer:
    """Return an application with subcommands."""
    names = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(
        cls=common.Commands,
        help=words,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=names,
        **settings,
    )


app = _commands(
    "Learning to rank, focused on the top of the list.",
    name="toprank",
    add_completion=False,
    pretty_exceptions_enable=False,
)
_GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start": (demonstrating.demo,),
    "Data": (preparing.check, preparing.convert, preparing.split),
    "Train": (training.train, tuning.tune, training.systems),
    "Judge": (
        evaluating.evaluate,
        comparing.compare,
        judging.agreement,
        experimenting.cv,
        evaluating.conventions,
        launching.launch_report,
        fusing.fuse,
        experimenting.reproduce,
    ),
    "Explain": (explaining.explain, predicting.inspect),
    "Ship": (predicting.predict, predicting.rank, exporting.export, serving.serve, monitoring.monitor),
}


def _completed(command: Callable[..., None]) -> Callable[..., None]:
    silent = (predicting.inspect, evaluating.conventions, training.systems, searching.query)
    return options.complete(command, makes_remarks=command not in silent)


for _group, _functions in _GROUPS.items():
    for _function in _functions:
        _kind = judging.SeveralRuns if _function is judging.agreement else common.Command
        _settings: dict[str, Any] = {"cls": _kind, "rich_help_panel": _group}
        app.command(_function.__name__.replace("_", "-"), **_settings)(_completed(_function))

for _name, _words, _functions in (
    ("clicks", "Train and evaluate on logs of what was shown and clicked.", clicks.COMMANDS),
    (
        "search",
        "Search documents: index a collection, learn the order of what it finds, evaluate it.",
        searching.COMMANDS,
    ),
):
    _further = _commands(_words)
    for _function in _functions:
        _further.command(_function.__name__.replace("_", "-"), cls=common.Command)(_completed(_function))
    app.add_typer(_further, name=_name, rich_help_panel=_name.capitalize())

app.callback()(common.root)
