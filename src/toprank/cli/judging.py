"""`toprank judges`: whether one judge can stand for another."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from toprank.cli import common, options

Weights = StrEnum("Weights", ["quadratic", "linear"])
Level = StrEnum("Level", ["ordinal", "nominal", "interval"])


def judges(
    human: Annotated[Path, typer.Argument(help="Judgments in TREC format that the others are compared with.")],
    others: Annotated[list[Path], typer.Argument(help="Judgments of the other judges, each named after its file.")],
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", metavar="RUN ...", help="Two or more runs, to be ordered under each judge."),
    ] = None,
    metrics: options.Metrics = "ndcg@10",
    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="The model behind a run, its file named like the run: warns if it was trained on a judge's labels."
        ),
    ] = None,
    weights: Annotated[Weights, typer.Option(help="Weights of the weighted kappa.")] = Weights.quadratic,
    level: Annotated[Level, typer.Option(help="Level of measurement for Krippendorff's alpha.")] = Level.ordinal,
    confidence: options.Confidence = 0.95,
    json: options.Json = False,
    markdown: options.Markdown = False,
    latex: options.Latex = False,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """Measure how far judges agree, and whether systems come out in the same order under each.

    For example:

    \b
      toprank judges human.qrels gpt.qrels
      toprank judges human.qrels gpt.qrels clicks.qrels --runs bm25.run dense.run -m ndcg@10,map
      toprank judges human.qrels gpt.qrels --runs bm25.run dense.run --model dense.toprank --json
    """
    from toprank.comparison.judging import judge_of
    from toprank.comparison.judging import judges as compared
    from toprank.data.trec import read_qrels, read_run
    from toprank.rankers.model_files import load

    common.check_form(json=json, markdown=markdown, latex=latex)
    common.refuse_twice([human, *others])
    if runs is not None and len(runs) < 2:
        raise typer.BadParameter("give at least two runs.")
    common.refuse_twice(runs or [])
    with common.progress("Reading judgments …", quiet):
        first, known = read_qrels(human), {}
        for path in others:
            name = judge_of(path)
            if name in known or name == judge_of(human):
                raise typer.BadParameter(f"two files name the same judge, {name}; rename one.")
            known[name] = read_qrels(path)
        systems = {name: read_run(path) for name, path in common.names_of(runs or []).items()}
        rankers = {name: load(path) for name, path in common.names_of(model or []).items()}
    with common.progress("Comparing …", quiet):
        agreement = compared(
            first,
            known,
            runs=systems or None,
            metrics=metrics,
            trained=rankers,
            weights=weights.value,
            level=level.value,
            confidence=confidence,
            name=judge_of(human),
            seed=seed,
            threads=threads,
        )
    common.print_result(agreement, json=json, markdown=markdown, latex=latex)
