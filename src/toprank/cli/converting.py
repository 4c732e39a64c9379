"""`toprank convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData


def convert(
    source: Annotated[
        list[Path], typer.Argument(metavar="IN...", help="Files that make one data set, or a folder of Parquet files.")
    ],
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

    Into a stored copy (.toprank-data) text and tables pass block by block, so that IN may be larger than memory; with
    --regroup they are held in memory.

    For example:

    \b
      toprank convert train.txt train.parquet
      toprank convert train.txt.gz train.toprank-data
      toprank convert parts/ train.toprank-data
      toprank convert S1.txt S2.txt S3.txt train.txt
      toprank convert run.txt candidates.csv --qrels qrels.txt
      toprank convert test.txt test.run --scores model.scores
    """
    del seed
    from toprank.data.store import SUFFIX
    from toprank.data.streaming import convert as to_store

    wants_run = target_format == "run" or (target_format is None and ".run" in target.suffixes)
    if (scores is not None) != wants_run:
        raise typer.BadParameter("a TREC run as OUT (suffix .run, or --to run) needs --scores, and only that does.")
    options: dict[str, Any] = {"regroup": regroup, "layout": layout, "qrels": qrels}
    options = {name: value for name, value in options.items() if value}
    if missing != common.Missing.nan:
        options["missing"] = missing.value
    options |= {"format": source_format, "threads": threads}
    stored = target_format == "store" or (target_format is None and target.name.endswith(SUFFIX))
    try:
        if stored and not verify:
            with common.progress(f"Converting {source[0]} to {target} …", quiet):
                data = to_store(source if len(source) > 1 else source[0], target, **options)
        else:
            data = _read_and_write(source, target, target_format, scores, quiet, options | {"verify": verify})
    except KeyboardInterrupt:
        common.say(f"Interrupted: {target} is as it was before.", quiet=False)
        raise typer.Exit(130) from None
    common.say(f"{target}: {data}", quiet)


def _read_and_write(
    source: list[Path],
    target: Path,
    target_format: str | None,
    scores: Path | None,
    quiet: bool,
    options: dict[str, Any],
) -> RankingData:
    """Hold all data in memory on their way."""
    from toprank.data.files import read, read_scores, write
    from toprank.data.trec import run_of, write_run

    with common.progress(f"Reading {source[0]} …", quiet):
        data = read(source if len(source) > 1 else source[0], **options)
    with common.progress(f"Writing {target} …", quiet):
        if scores is None:
            write(data, target, format=target_format)
        else:
            write_run(run_of(data.aligned(read_scores(scores, data.n_documents)), data), target)
    return data
