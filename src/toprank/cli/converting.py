"""`toprank convert`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from toprank.cli import common


class Precision(StrEnum):
    """How many bits a feature takes."""

    float32 = "float32"
    float64 = "float64"


def _column(role: str) -> Any:
    return typer.Option(metavar="COLUMN", help=f"Column of a table that holds {role}; '' for none.", show_default=False)


def convert(
    source: Annotated[
        list[Path], typer.Argument(metavar="IN...", help="Files that make one data set, or folders of Parquet files.")
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
    label: Annotated[str | None, _column("labels")] = None,
    qid: Annotated[str | None, _column("query ids")] = None,
    document_id: Annotated[str | None, _column("document ids")] = None,
    weight: Annotated[str | None, _column("document weights")] = None,
    query_weight: Annotated[str | None, _column("query weights")] = None,
    position: Annotated[str | None, _column("positions")] = None,
    features: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns of a table that are features, in this order.")
    ] = None,
    dtype: Annotated[Precision | None, typer.Option(help="Precision of the features of text or a table.")] = None,
    n_features: Annotated[
        int | None, typer.Option(min=1, help="How many features text has, where more than seen.")
    ] = None,
    threads: common.Threads = None,
    seed: common.Seed = 0,
    quiet: common.Quiet = False,
) -> None:
    """Convert between LETOR text, Parquet, Arrow, CSV, TREC files and the stored copy.

    Into a stored copy (.toprank-data) everything but TREC files passes block by block, so that IN may be larger than
    memory; with --regroup it is held in memory.

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
    del seed
    wants_run = target_format == "run" or (target_format is None and ".run" in target.suffixes)
    if (scores is not None) != wants_run:
        raise typer.BadParameter("a TREC run as OUT (suffix .run, or --to run) needs --scores, and only that does.")
    columns = {"label": label, "qid": qid, "document_id": document_id}
    columns |= {"weight": weight, "query_weight": query_weight, "position": position}
    options: dict[str, Any] = {name: column or False for name, column in columns.items() if column is not None}
    options |= {} if features is None else {"features": [name for name in features.split(",") if name]}
    others = {"regroup": regroup, "layout": layout, "qrels": qrels, "n_features": n_features}
    options |= {name: value for name, value in others.items() if value}
    options |= {} if dtype is None else {"dtype": dtype.value}
    options |= {} if missing == common.Missing.nan else {"missing": missing.value}
    options |= {"format": source_format, "threads": threads, "verify": verify}
    options |= {"to": "run" if wants_run else target_format, "scores": scores}
    from toprank.data.converting import convert as converted

    with _interrupt_told(target), common.progress(f"Converting {source[0]} to {target} …", quiet):
        data = converted(source if len(source) > 1 else source[0], target, **options)
    common.say(f"{target}: {data}", quiet)


@contextmanager
def _interrupt_told(target: Path) -> Iterator[None]:
    """After Ctrl-C, say what is under the name of the target: it takes a new file or folder in one step."""
    before = _identity(target)
    try:
        yield
    except KeyboardInterrupt:
        same = _identity(target) == before
        found = f"Interrupted: {target} is as it was before." if same else f"Interrupted, but {target} is complete."
        if target.exists() and not target.is_file() and not target.is_dir():  # a pipe or a device
            found = f"Interrupted: {target} may have taken a part."
        common.say(found, quiet=False)
        raise typer.Exit(130) from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
