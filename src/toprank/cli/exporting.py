"""`toprank export`: a model as a file for another system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toprank.cli import common, options
from toprank.cli.predicting import Model

if TYPE_CHECKING:
    from toprank.exporting import Parity


@options.reads_data(*options.DOCUMENTS)
def export(
    model: Model,
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="Format: onnx, elasticsearch, opensearch, solr, vespa, xgboost, lightgbm, ranklib, c, python, json.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    check: Annotated[
        Path | None, typer.Option(help="Also compare on this data, and write a self-test next to the file.")
    ] = None,
    server_version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Version of the server that will read the file, such as 3.8.0."),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Write the file even if its scores differ from the model's.")
    ] = False,
    json: options.Json = False,
    reading: options.Reading = options.NOTHING,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
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
    from toprank.exporting import DifferenceError, format_named
    from toprank.exporting import export as write
    from toprank.rankers.model_files import load

    format_named(to)
    common.check_writable(output, f"model{format_named(to).suffix}")
    if check is None:
        ranker, documents = load(model), None
    else:
        ranker, documents = common.load_both(model, check, quiet, {**reading, "threads": threads})
    try:
        with common.progress(f"Exporting {model} …", quiet):
            parity = write(
                ranker, to, output, check=documents, server_version=server_version, allow_changes=allow_changes
            )
    except DifferenceError as problem:
        _show(problem.parity, None, json)
        raise
    _show(parity, output, json)
    if not json:
        common.say(f"{output}: written", quiet)


def _show(parity: Parity, output: Path | None, json: bool) -> None:
    """Print what was checked; `output` is the file, None if none was written."""
    if json:
        common.print_json({"file": None if output is None else str(output), **parity.to_dict()})
    else:
        typer.echo(str(parity))
