"""`toprank check`, `convert` and `split`: data preparation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from toprank.cli import common, options, reading


def check(
    data: Annotated[
        list[Path], typer.Argument(help="Data to check; several files are treated as splits of one data set.")
    ],
    read: Annotated[reading.ReadOptions, options.only(*reading.COLUMNS, "missing", "layout")],
    output: options.JsonOutput,
    cutoffs: Annotated[str, typer.Option(metavar="N,N,...", help="Evaluation cutoffs, separated by commas.")] = "10",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if there are findings.")] = False,
    threads: options.Threads = None,
) -> None:
    """Find problems in data, and suggest remedies.

    For example:

    \b
      toprank check train.txt
      toprank check train.txt vali.txt test.txt --cutoffs 5,10 --strict
    """
    from toprank.doctor import check_file

    wanted = "--cutoffs takes whole numbers of at least 1, separated by commas"
    depths = tuple(options.numbers_of(cutoffs, int, wanted))
    if not depths or min(depths) < 1:
        raise typer.BadParameter(f"{wanted}, not '{cutoffs}'.")
    with common.progress(f"Examining {data[0]} …"):
        report = check_file(data, cutoffs=depths, threads=threads, **options.keywords_of(read))
    report = replace(
        report, findings=tuple(replace(each, remedy=common.with_options(each.remedy)) for each in report.findings)
    )
    output.show(report)
    if strict and report.findings:
        raise typer.Exit(1)


_CONVERTED = (
    *("missing", "layout", "regroup", "label", "qid", "document_id", "weight", "query_weight", "position", "teacher"),
    *("features", "metadata", "query_text", "document_text", "dtype", "n_features"),
)


@dataclass(frozen=True)
class Formats:
    """Formats of both files, and additional files for TREC formats."""

    source_format: Annotated[
        str | None, typer.Option("--from", metavar="FORMAT", help="Format of IN. Default: by content.")
    ] = None
    target_format: Annotated[
        str | None, typer.Option("--to", metavar="FORMAT", help="Format of OUT. Default: by suffix.")
    ] = None
    scores: Annotated[
        Path | None, typer.Option(help="If OUT is a TREC run: scores of the documents, one per line; or .npy.")
    ] = None
    qrels: Annotated[Path | None, typer.Option(help="If IN is a TREC run: judgments with its labels.")] = None
    verify: Annotated[bool, typer.Option("--verify", help="Verify the hashes of a stored copy.")] = False


def convert(
    source: Annotated[
        list[Path], typer.Argument(metavar="IN...", help="Files of one data set, or folders of Parquet files.")
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Output file; its suffix selects the format.")],
    formats: Formats,
    read: Annotated[reading.ReadOptions, options.only(*_CONVERTED)],
    threads: options.Threads = None,
) -> None:
    """Convert between LETOR text, Parquet, Arrow, CSV, TREC files and the stored copy.

    A stored copy (.toprank-data) is written block by block, so IN may be larger than memory, except for TREC files and
    with --regroup.

    For example:

    \b
      toprank convert train.txt train.parquet
      toprank convert train.txt.gz train.toprank-data
      toprank convert parts/ train.toprank-data
      toprank convert log.parquet train.toprank-data --label clicks --qid session --features bm25,age
      toprank convert S1.txt S2.txt S3.txt train.txt
      toprank convert run.txt candidates.csv --qrels qrels.txt
      toprank convert test.txt test.run --scores model.scores
    """
    wants_run = formats.target_format == "run" or (formats.target_format is None and ".run" in target.suffixes)
    if (formats.scores is not None) != wants_run:
        raise typer.BadParameter("--scores is required if OUT is a TREC run (suffix .run, or --to run), and only then.")
    keywords: dict[str, Any] = {**options.keywords_of(read), "format": formats.source_format, "threads": threads}
    keywords |= {"verify": formats.verify, "scores": formats.scores}
    keywords["to"] = "run" if wants_run else formats.target_format
    if formats.qrels is not None:
        keywords["qrels"] = formats.qrels
    from toprank.data.converting import convert as converted

    with _reporting_interrupt(target), common.progress(f"Converting {source[0]} to {target} …"):
        data = converted(source if len(source) > 1 else source[0], target, **keywords)
    common.say(f"{target}: {data}")


@contextmanager
def _reporting_interrupt(target: Path) -> Iterator[None]:
    """After Ctrl-C, report whether the target was written; files and folders are replaced atomically."""
    before = _identity(target)
    try:
        yield
    except KeyboardInterrupt:
        same = _identity(target) == before
        state = f"Interrupted: {target} is unchanged." if same else f"Interrupted, but {target} is complete."
        if target.exists() and not target.is_file() and not target.is_dir():  # a pipe or a device
            state = f"Interrupted: {target} may be incomplete."
        common.say(state, always=True)
        raise typer.Exit(130) from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True)
class SplitOptions:
    """Division of the queries."""

    time_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A column of dates or numbers: the test file is the latest.")
    ] = None
    fractions: Annotated[
        str,
        typer.Option(metavar="N,N,...", help="Shares of the queries: train, vali and test, or train and test."),
    ] = "0.6,0.2,0.2"
    stable: Annotated[
        bool,
        typer.Option("--stable", help="Keep each query in its part when the file grows; sizes are then approximate."),
    ] = False


def split(
    data: Annotated[Path, typer.Argument(help="LETOR text, a table, a folder of Parquet files, or a stored copy.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Output folder.")],
    parts: SplitOptions,
    read: Annotated[reading.ReadOptions, options.only("qid", "layout", "regroup")],
    running: options.Running,
) -> None:
    """Split the queries of a file into train, vali and test; tables keep all their columns.

    For example:

    \b
      toprank split log.parquet -o parts --time-column date
      toprank split all.txt -o parts --fractions 0.8,0.2 --seed 1
      toprank split growing.parquet -o parts --stable
    """
    from toprank.data.splitting import split_file

    shares = options.numbers_of(parts.fractions, float, "--fractions takes numbers such as 0.6,0.2,0.2")
    if parts.time_column is not None and (running.seed or parts.stable):
        idle = "--seed" if running.seed else "--stable"
        raise typer.BadParameter(f"--time-column divides by time, so {idle} has no effect; leave one of them out.")
    further: dict[str, Any] = {**options.keywords_of(read), "seed": running.seed, "threads": running.threads}
    with common.progress(f"Dividing {data} …"):
        written = split_file(data, output, shares, time_column=parts.time_column, stable=parts.stable, **further)
    for path, part in written.items():
        common.say(f"{path}: {part.n_queries:,} queries, {part.n_documents:,} documents")
