"""`toprank fuse`: combine several runs into one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from toprank.cli import common, options


@dataclass(frozen=True)
class FusionOptions:
    """Options of the fusion."""

    method: Annotated[
        str,
        typer.Option(
            help="Fusion method: rrf, combsum, combmnz, combmax, combmin, weighted, borda, condorcet or learned."
        ),
    ] = "rrf"
    normalization: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Score normalization: none, min-max, max, sum, z-score or rank. Default: min-max."
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="One weight per run, for weighted. Default: chosen on --qrels."),
    ] = None
    rrf_k: Annotated[
        float, typer.Option("--rrf-k", help="Constant of rrf: a document at RANK gets 1 / (rrf_k + RANK).")
    ] = 60.0
    depth: Annotated[
        int | None, typer.Option(min=1, help="Number of documents to use per run and query. Default: all.")
    ] = None
    qrels: Annotated[
        Path | None,
        typer.Option(help="Judgments in TREC format, for weighted and learned. Scores are out of fold."),
    ] = None
    system: Annotated[str, typer.Option(help="System to train, for learned. See `toprank systems`.")] = "LambdaMART"
    metric: Annotated[str, typer.Option(help="Metric to choose weights and hyperparameters by.")] = "ndcg@10"


def fuse(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Two or more TREC runs, named by their tags, or by their files if tags repeat."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run to write.")],
    fusion: FusionOptions,
    running: options.Training,
) -> None:
    """Fuse several runs into one, by ranks, by normalized scores, or supervised by judgments.

    For example:

    \b
      toprank fuse bm25.run dense.run -o both.run
      toprank fuse bm25.run dense.run --method weighted --weights 0.3,0.7 -o both.run
      toprank fuse bm25.run dense.run --method learned --qrels qrels.txt -o both.run
    """
    from toprank.data.trec import read_run, write_run
    from toprank.fusion import fuse as fused

    if len(runs) < 2:
        raise typer.BadParameter("Pass at least two runs.")
    common.refuse_twice(runs)
    common.check_writable(output, "fused.run")
    read = options.runs_by_name({path: read_run(path) for path in runs})
    with common.progress("Fusing …"):
        run = fused(
            read,
            fusion.method,
            normalization=fusion.normalization,
            weights=options.numbers_of(fusion.weights, float, "--weights takes numbers") if fusion.weights else None,
            rrf_k=fusion.rrf_k,
            depth=fusion.depth,
            qrels=fusion.qrels,
            ranker=fusion.system,
            metric=fusion.metric,
            seed=running.seed,
            threads=running.threads,
        )
    write_run(run, output)
    common.say(f"{output}: {run.summary}")
