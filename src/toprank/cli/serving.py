"""`toprank serve`: models behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, helping
from toprank.serving.settings import Settings

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.serving.models import Models


Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Do not log each request on standard error.", rich_help_panel=helping.RUNNING),
]


def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Model files, or NAME=FILE; the first is primary.")
    ],
    settings: Settings,
    reference: Annotated[
        Path | None, typer.Option(help="Reference data for the primary model; /metrics then reports drift from them.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP, until SIGTERM or Ctrl-C.

    POST /v1/rank ranks documents; / is a page for trying it, and /openapi.json describes the other endpoints. SIGHUP
    reloads the model files. Each request is logged as a line of JSON on standard error, unless --quiet.

    For example:

    \b
      toprank serve m.toprank
      toprank serve live=m.toprank next=n.toprank --shadow next
      toprank serve m.toprank --reference vali.txt
      toprank serve m.toprank --host 0.0.0.0 --token-file token.txt
    """
    from toprank.serving import check_installed

    check_installed()
    from toprank.serving.startup import start

    read = None if reference is None else lambda known: _reference(reference, known)
    start(models, settings, requests=not quiet, reference=read)


def _reference(path: Path, models: Models) -> RankingData:
    read: dict[str, Any] = {"label": False} if common.file_format(path) in common.TABLES else {}
    with common.quieted(quiet=True):  # standard error is read by programs
        return common.read_alike(path, read, like=models.get(None).ranker)
