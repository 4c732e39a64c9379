"""`toprank reproduce`: published tables, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toprank.cli import common


def reproduce(
    study: Annotated[str, typer.Argument(help="cs-rglist, owpc or bayes-optimal.")],
    data: Annotated[
        Path, typer.Option("--data", envvar="TOPRANK_DATA", help="Folder with the LETOR sets. Default: $TOPRANK_DATA.")
    ],
    sets: Annotated[
        str | None, typer.Option(help="Sets, separated by commas, such as OHSUMED,MQ2008. Default: all that are found.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep finished cells here; a run that was ended goes on from them.")
    ] = None,
    json: common.Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    seed: common.Seed = 0,
    threads: common.Threads = None,
    quiet: common.Quiet = False,
) -> None:
    """Rerun a paper's protocol and put our figures beside the published ones.

    For example:

    \b
      toprank reproduce cs-rglist --data letor --sets OHSUMED,MQ2008
      toprank reproduce bayes-optimal --data letor --folder runs --json
    """
    del seed  # a study names its seeds
    from toprank.reproduce import reproduce as run

    if json and markdown:
        raise typer.BadParameter("choose one of --json and --markdown.")
    wanted = None if sets is None else [name for name in sets.split(",") if name.strip()]
    try:
        found = run(study, data, wanted, folder=folder, threads=threads, verbose=not quiet)
    except KeyboardInterrupt as stop:
        common.say(f"toprank: {stop}", quiet=False)
        raise typer.Exit(130) from None
    if json:
        common.print_json(found.to_dict())
    else:
        typer.echo(found.to_markdown() if markdown else str(found))
