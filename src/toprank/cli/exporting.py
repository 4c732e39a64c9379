"""`toprank export`: a model as a file for another system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toprank.cli import common, options, predicting


@options.reads_data(*options.COLUMNS, "missing", "layout", "regroup")
def export(
    model: predicting.Model,
    to: Annotated[
        str,
        typer.Option(
            help="Format: onnx, elasticsearch, opensearch, solr, vespa, xgboost, lightgbm, ranklib, c, python, json."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    check: Annotated[
        Path | None, typer.Option(help="Data to compare on as well; a self-test is written beside the file.")
    ] = None,
    server_version: Annotated[
        str | None, typer.Option(help="Of the server, where the format depends on it: 3.8.0.")
    ] = None,
    json: options.Json = False,
    reading: options.Reading = options.NOTHING,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """Write a model in the format of another system, and prove that it scores as `predict` does.

    The file takes the features that `toprank predict` takes. Before it gets its name it is scored, and compared with
    the model on rows made from the model's own thresholds, with missing values, zeros and huge values among them.

    For example:

    \b
      toprank export m.toprank --to onnx -o m.onnx --check test.txt
      toprank export m.toprank --to opensearch --server-version 3.8.0 -o m.json
      toprank export m.toprank --to c -o ranker.c
    """
    from toprank.exporting import export as write
    from toprank.exporting import format_named
    from toprank.rankers.files import load

    format_named(to)
    common.check_writable(output, f"model{format_named(to).suffix}")
    if check is None:
        ranker, documents = load(model), None
    else:
        ranker, documents = predicting.load_both(model, check, quiet, {**reading, "threads": threads})
    with common.progress(f"Exporting {model} …", quiet):
        parity = write(ranker, to, output, check=documents, server_version=server_version)
    if json:
        common.print_json({"file": str(output), **parity.to_dict()})
        return
    typer.echo(str(parity))
    common.say(f"{output}: written", quiet)
