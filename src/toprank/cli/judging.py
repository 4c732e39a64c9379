"""`toprank agreement`: whether one judge can stand for another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from toprank.cli import common, options

Weights = StrEnum("Weights", ["quadratic", "linear"])
Level = StrEnum("Level", ["ordinal", "nominal", "interval"])


class SeveralRuns(common.Command):
    """A command that takes several files behind one --runs, up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words after giving each file a --runs of its own."""
        words: list[str] = []
        within = False
        for word in args:
            if word.startswith("-") and word != "-":
                within = word == "--runs"
                words += [] if within else [word]
            else:
                words += ["--runs", word] if within else [word]
        return super().parse_args(ctx, words)


@dataclass(frozen=True)
class JudgedFiles:
    """The judgments that are compared, and the runs that are ordered under each judge."""

    reference: Annotated[Path, typer.Argument(help="Judgments in TREC format that the others are compared with.")]
    others: Annotated[list[Path], typer.Argument(help="Judgments of the other judges, each named after its file.")]
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", metavar="RUN ...", help="Two or more runs, to be ordered under each judge."),
    ] = None
    metrics: options.Metrics = "ndcg@10"
    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="The model behind a run, its file named like the run: warns if it was trained on a judge's labels."
        ),
    ] = None


def agreement(
    files: JudgedFiles,
    output: Annotated[options.Output, options.only("json", "markdown", "latex")],
    running: options.Running,
    weights: Annotated[Weights, typer.Option(help="Weights of the weighted kappa.")] = Weights.quadratic,
    level: Annotated[Level, typer.Option(help="Level of measurement for Krippendorff's alpha.")] = Level.ordinal,
    confidence: options.Confidence = 0.95,
) -> None:
    """Measure how far judges agree, and whether systems come out in the same order under each.

    For example:

    \b
      toprank agreement human.qrels gpt.qrels
      toprank agreement human.qrels gpt.qrels clicks.qrels --runs bm25.run dense.run -m ndcg@10,map
      toprank agreement human.qrels gpt.qrels --runs bm25.run dense.run --model dense.toprank --json
    """
    from toprank.data.trec import read_qrels, read_run
    from toprank.evaluation.agreement import judge_agreement, judge_of
    from toprank.rankers.model_files import load

    output.check_form("json", "markdown", "latex")
    common.refuse_twice([files.reference, *files.others])
    if files.runs is not None and len(files.runs) < 2:
        raise typer.BadParameter("give at least two runs.")
    common.refuse_twice(files.runs or [])
    with common.progress("Reading judgments …"):
        first, known = read_qrels(files.reference), {}
        for path in files.others:
            name = judge_of(path)
            if name in known or name == judge_of(files.reference):
                raise typer.BadParameter(f"two files name the same judge, {name}; rename one.")
            known[name] = read_qrels(path)
        systems = {name: read_run(path) for name, path in options.names_of(files.runs or []).items()}
        rankers = {name: load(path) for name, path in options.names_of(files.model or []).items()}
    with common.progress("Comparing …"):
        result = judge_agreement(
            first,
            known,
            runs=systems or None,
            metrics=files.metrics,
            trained=rankers,
            weights=weights.value,
            level=level.value,
            confidence=confidence,
            name=judge_of(files.reference),
            seed=running.seed,
            threads=running.threads,
        )
    output.show(result)
