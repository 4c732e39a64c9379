"""`toprank serve`: models behind HTTP."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from toprank.cli import common, helping, options
from toprank.serving.settings import Settings

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.serving.models import Models


Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Do not log each request on standard error.", rich_help_panel=helping.RUNNING),
]


def _declared() -> type:
    """The settings of a service as options."""
    hints: dict[str, Any] = {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        kind, option = get_args(hint)
        hints[name] = Annotated[
            kind,
            typer.Option(
                min=option.least,
                max=option.most,
                help=option.help,
                metavar=option.metavar,
                rich_help_panel=option.group,
            ),
        ]
    return type("Declared", (), {"__annotations__": hints, **{field.name: field.default for field in fields(Settings)}})


def of_a_service(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a service, as its argument `settings`, but for those that do nothing there."""
    names = [field.name for field in fields(Settings) if field.name not in without]
    return options.in_place_of("settings", _declared(), names, lambda given: Settings(**given))


@of_a_service()
def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Model files, or NAME=FILE; the first is primary.")
    ],
    settings: Settings = Settings(),  # noqa: B008 - a frozen value
    reference: Annotated[
        Path | None, typer.Option(help="Reference data for the primary model; /metrics then reports drift from them.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Answer HTTP requests with models, until SIGTERM or Ctrl-C.

    Rankings come from POST /v1/rank; a page to try it is at /, the other endpoints are in /openapi.json. SIGHUP reads
    the model files again. Standard error gets one line of JSON for each request, unless --quiet.

    For example:

    \b
      toprank serve m.toprank
      toprank serve live=m.toprank next=n.toprank --shadow next
      toprank serve m.toprank --reference vali.txt
      toprank serve m.toprank --host 0.0.0.0 --token-file token.txt
    """
    from toprank.serving import check_installed

    check_installed()
    from toprank.serving.starting import start

    read = None if reference is None else lambda known: _reference(reference, known)
    start(models, settings, requests=not quiet, reference=read)


def _reference(path: Path, models: Models) -> RankingData:
    reading: options.Reading = {"label": False} if common.file_format(path) in common.TABLES else {}
    return common.read_alike(path, True, reading, like=models.get(None).ranker)
