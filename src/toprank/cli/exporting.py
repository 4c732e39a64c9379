"""`toprank export`: write a model in the format of another system."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options, reading
from toprank.cli.predicting import Model

if TYPE_CHECKING:
    from toprank.exporters import Parity


@dataclass(frozen=True)
class Export:
    """The exported file, and the data for its check."""

    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="Format: onnx, elasticsearch, opensearch, solr, vespa, xgboost, lightgbm, ranklib, c, python, json.",
        ),
    ]
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
    check: Annotated[
        Path | None, typer.Option(help="Also compare on this data, and write a self-test next to the file.")
    ] = None
    server_version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Version of the server that will read the file, such as 3.8.0."),
    ] = None
    allow_mismatches: Annotated[
        bool, typer.Option("--allow-mismatches", help="Write the file even if its scores differ from the model's.")
    ] = False


def export(
    model: Model,
    file: Export,
    form: options.JsonOutput,
    read: reading.OfDocuments,
    threads: options.Threads = None,
) -> None:
    """Write a model in the format of another system, checked to score as `predict` does.

    The file takes the features that `toprank predict` takes. Before it gets its name it is scored, and compared with
    the model on rows that stand at every split of its trees, and on missing values, zeros and huge ones. If a score or
    a ranking differs, or nothing here can score the file, the status is 1 and nothing is written.

    For example:

    \b
      toprank export m.toprank --to onnx -o m.onnx --check test.txt
      toprank export m.toprank --to opensearch --server-version 3.8.0 -o m.json
      toprank export m.toprank --to c -o ranker.c
    """
    from toprank.exporters import ParityError, get_format
    from toprank.exporters import export as write
    from toprank.rankers.model_files import load

    suffix = get_format(file.to).suffix
    common.check_writable(file.output, f"model{suffix}")
    if file.check is None:
        ranker, documents = load(model), None
    else:
        ranker, documents = common.load_both(model, file.check, {**options.keywords_of(read), "threads": threads})
    further: dict[str, Any] = {"server_version": file.server_version, "allow_mismatches": file.allow_mismatches}
    try:
        with common.progress(f"Exporting {model} …"):
            parity = write(ranker, file.to, file.output, check=documents, **further)
    except ParityError as problem:
        _show(problem.parity, None, form.json)
        raise
    _show(parity, file.output, form.json)
    if not form.json:
        common.say(f"{file.output}: written")


def _show(parity: Parity, output: Path | None, json: bool) -> None:
    """Print what was checked; `output` is the file, None if none was written."""
    if json:
        common.print_json({"file": None if output is None else str(output), **parity.to_dict()})
    else:
        typer.echo(str(parity))
