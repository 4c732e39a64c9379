"""`toprank convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toprank.cli import common


def convert(
    source: Annotated[list[Path], typer.Argument(metavar="IN...", help="One or more files that make one data set.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Where to write; the suffix tells the format.")],
    source_format: Annotated[str | None, typer.Option("--from", help="Format of IN. Default: by content.")] = None,
    target_format: Annotated[str | None, typer.Option("--to", help="Format of OUT. Default: by suffix.")] = None,
    scores: Annotated[
        Path | None, typer.Option(help="With a TREC run as OUT: scores of the documents, one per line; or .npy.")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(help="With a TREC run as IN: judgments that give its labels.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check the hashes of a stored copy on reading.")] = False,
    missing: common.MissingValues = common.Missing.nan,
    layout: common.Layout = None,
    regroup: common.Regroup = False,
    threads: common.Threads = None,
    seed: common.Seed = 0,
    quiet: common.Quiet = False,
) -> None:
    """Convert between LETOR text, Parquet, Arrow, CSV, TREC files and the stored copy.

    For example:

    \b
      toprank convert train.txt train.parquet
      toprank convert train.txt.gz train.toprank-data
      toprank convert S1.txt S2.txt S3.txt train.txt
      toprank convert run.txt candidates.csv --qrels qrels.txt
      toprank convert test.txt test.run --scores model.scores
    """
    del seed
    from toprank.data.files import read, read_scores, write
    from toprank.data.trec import run_of, write_run

    wants_run = target_format == "run" or (target_format is None and ".run" in target.suffixes)
    if (scores is not None) != wants_run:
        raise typer.BadParameter("a TREC run as OUT (suffix .run, or --to run) needs --scores, and only that does.")
    options: dict[str, Any] = {"regroup": regroup, "layout": layout, "verify": verify, "qrels": qrels}
    options = {name: value for name, value in options.items() if value}
    if missing != common.Missing.nan:
        options["missing"] = missing.value
    with common.progress(f"Reading {source[0]} …", quiet):
        data = read(source if len(source) > 1 else source[0], format=source_format, threads=threads, **options)
    with common.progress(f"Writing {target} …", quiet):
        if scores is None:
            write(data, target, format=target_format)
        else:
            write_run(run_of(data.aligned(read_scores(scores, data.n_documents)), data), target)
    common.say(f"{target}: {data}", quiet)
