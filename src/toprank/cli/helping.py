"""Help output: commands and options in groups, in full sentences, with consistent metavariables."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

OUTPUT, LOG, COLUMNS, READING, RUNNING = "Output", "Columns of the log", "Columns of a table", "Reading", "Running"
PROPENSITIES, AGE = "Propensities", "Age of sessions"
_FIRST, _LAST = ("Arguments", "Options"), (OUTPUT, LOG, COLUMNS, READING, RUNNING)
"""The first and last groups in the help of a command; groups of individual commands are in between."""
_WORDS = {Path: "FILE", int: "N", float: "NUMBER"}


def named(name: str, annotation: Any) -> Any:
    """Return a parameter with a metavariable, derived from its type or from the name of the option."""
    kind, info = get_args(annotation)
    info = copy(info)
    kinds = [member for member in get_args(kind) or (kind,) if member is not NoneType]
    of_list = get_origin(kinds[0]) is list or get_origin(kind) is list
    inner = get_args(kinds[0])[0] if get_origin(kinds[0]) is list else kinds[0]
    if info.metavar is None and inner is not bool:
        if isinstance(info, ArgumentInfo):
            info.metavar = name.upper() + "..." * of_list
        elif isinstance(inner, type) and issubclass(inner, Enum):  # tuple[str, str] is not a class
            info.metavar = "|".join(str(choice.value) for choice in inner)
        else:
            declared = (str(text) for text in (info.default, *(info.param_decls or ())))
            option = next((text for text in declared if text.startswith("--")), name)
            info.metavar = _WORDS.get(inner, option.removeprefix("--").replace("-", "_").upper())
    return Annotated[kind, info]


def hidden(annotation: Any) -> Any:
    """Return a parameter that is accepted but hidden from help."""
    kind, info = get_args(annotation)
    info = copy(info)
    info.hidden = True
    return Annotated[kind, info]


class GroupedOptions(TyperCommand):
    """Command with grouped options in its help."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the arguments for the usage line."""
        arguments = [parameter for parameter in self.get_params(ctx) if parameter.param_type_name == "argument"]
        return [
            "[OPTIONS]",
            *(str(argument.metavar) if argument.required else f"[{argument.metavar}]" for argument in arguments),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section per group of options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                groups.setdefault("Arguments", []).append((str(parameter.metavar), getattr(parameter, "help", "")))
            elif (record := parameter.get_help_record(ctx)) is not None:
                group = (
                    RUNNING if parameter.name == "help" else getattr(parameter, "rich_help_panel", None) or "Options"
                )
                groups.setdefault(group, []).append(record)
        own = [name for name in groups if name not in (*_FIRST, *_LAST)]
        _write(formatter, ((name, groups.get(name, [])) for name in (*_FIRST, *own, *_LAST)))


class GroupedCommands(TyperGroup):
    """Group of commands with grouped help, one sentence per command."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the commands in the order of their definition."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per group, in the order of their first commands."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            paragraph = " ".join(command.help.partition("\n\n")[0].split())
            panel = command.rich_help_panel if isinstance(command.rich_help_panel, str) else "Commands"
            groups.setdefault(panel, []).append((name, paragraph.partition(". ")[0].rstrip(".") + "."))
        _write(formatter, groups.items())


def _write(formatter: Any, groups: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    for name, rows in groups:
        if rows:
            with formatter.section(name):
                formatter.write_dl(rows)
