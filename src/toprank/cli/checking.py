"""`toprank check`: the data doctor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from toprank.cli import common
from toprank.cli.columns import GUESSED, Columns, reads_data


@reads_data
def check(
    data: Annotated[list[Path], typer.Argument(help="Data to examine; several files are taken as splits of one set.")],
    cutoffs: Annotated[str, typer.Option(help="Cut-offs you evaluate at, separated by commas.")] = "10",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 where anything is found.")] = False,
    json: common.Json = False,
    columns: Columns = GUESSED,
    missing: common.MissingValues = common.Missing.nan,
    layout: common.Layout = None,
    threads: common.Threads = None,
    seed: common.Seed = 0,
    quiet: common.Quiet = False,
) -> None:
    """Say what is wrong with data, in sentences, each with a remedy.

    For example:

    \b
      toprank check train.txt
      toprank check train.txt vali.txt test.txt --cutoffs 5,10 --strict
    """
    del seed
    from toprank.doctor import check_file

    try:
        depths = tuple(int(cut) for cut in cutoffs.split(",") if cut.strip())
    except ValueError:
        depths = ()
    if not depths or min(depths) < 1:
        raise typer.BadParameter(f"--cutoffs takes whole numbers of at least 1, separated by commas, not '{cutoffs}'.")
    options = common.reading_options(missing, columns, layout=layout)
    with common.progress(f"Examining {data[0]} …", quiet):
        report = check_file(data, cutoffs=depths, threads=threads, **options)
    report = replace(report, findings=tuple(replace(one, remedy=common.as_told(one.remedy)) for one in report.findings))
    if json:
        common.print_json(report.to_dict())
    else:
        typer.echo(str(report))
    if strict and report.findings:
        raise typer.Exit(1)
