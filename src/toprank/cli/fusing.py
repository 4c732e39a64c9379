"""`toprank fuse`: one run of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toprank.cli import common, options


def fuse(
    runs: Annotated[
        list[Path], typer.Argument(help="Two or more TREC runs, called by their tags, or else their files.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run to write.")],
    method: Annotated[
        str,
        typer.Option(help="rrf, combsum, combmnz, combmax, combmin, weighted, borda, condorcet or learned."),
    ] = "rrf",
    normalization: Annotated[
        str | None, typer.Option(help="Of scores: none, min-max (default), max, sum, z-score, rank.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Of the runs, for weighted; else chosen with --qrels.")
    ] = None,
    k: Annotated[float, typer.Option("-k", help="Of rrf: 1 / (k + rank).")] = 60.0,
    depth: Annotated[int | None, typer.Option(min=1, help="Documents of each run and query that count.")] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(help="Judgments, for weighted and learned: each fold is scored by what others taught."),
    ] = None,
    ranker: Annotated[str, typer.Option(help="For learned: one of `toprank systems`.")] = "LambdaMART",
    metric: Annotated[str, typer.Option(help="What weights and hyper-parameters are chosen by.")] = "ndcg@10",
    seed: options.Seed = 0,
    threads: options.TrainingThreads = None,
    quiet: options.Quiet = False,
) -> None:
    """Make one run of several, by ranks, by normalised scores, or by what judgments teach.

    For example:

    \b
      toprank fuse bm25.run dense.run -o both.run
      toprank fuse bm25.run dense.run --method weighted --weights 0.3,0.7 -o both.run
      toprank fuse bm25.run dense.run --method learned --qrels qrels.txt -o both.run
    """
    from toprank.data.trec import read_run, write_run
    from toprank.fusion import fuse as fused

    if len(runs) < 2:
        raise typer.BadParameter("give at least two runs.")
    common.refuse_twice(runs)
    common.check_writable(output, "fused.run")
    read = common.runs_by_name({path: read_run(path) for path in runs})
    with common.progress("Fusing …", quiet):
        run = fused(
            read,
            method,
            normalization=normalization,
            weights=options.numbers_of(weights, float, "--weights takes numbers") if weights else None,
            k=k,
            depth=depth,
            qrels=qrels,
            ranker=ranker,
            metric=metric,
            seed=seed,
            threads=threads,
        )
    write_run(run, output)
    common.say(f"{output}: {run.summary}", quiet)
