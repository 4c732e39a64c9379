"""`toprank split`: one file becomes train, vali and test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toprank.cli import common, options


@options.reads_data("qid", "layout", "regroup")
def split(
    data: Annotated[Path, typer.Argument(help="LETOR text, a table, a folder of Parquet files or a stored copy.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write into.")],
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A column of dates or numbers: the test file is the latest.")
    ] = None,
    fractions: Annotated[
        str, typer.Option(help="Shares of the queries: train, vali and test, or train and test.")
    ] = "0.6,0.2,0.2",
    stable: Annotated[
        bool,
        typer.Option("--stable", help="Keep each query in its part as the file grows; sizes are then approximate."),
    ] = False,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """Split the queries of a file into train, vali and test; rows of a table keep all their columns.

    For example:

    \b
      toprank split log.parquet -o parts --by date
      toprank split all.txt -o parts --fractions 0.8,0.2 --seed 1
      toprank split growing.parquet -o parts --stable
    """
    from toprank.data.splitting import split_file

    try:
        shares = [float(word) for word in fractions.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--fractions takes numbers such as 0.6,0.2,0.2, not '{fractions}'.") from None
    if by is not None and (seed or stable):
        idle = "--seed" if seed else "--stable"
        raise typer.BadParameter(f"with --by the order of time decides, and {idle} nothing; leave one of them out.")
    with common.progress(f"Dividing {data} …", quiet):
        parts = split_file(data, output, shares, by=by, seed=seed, stable=stable, threads=threads, **reading)
    for path, part in parts.items():
        common.say(f"{path}: {part.n_queries:,} queries, {part.n_documents:,} documents", quiet)
