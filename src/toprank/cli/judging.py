"""`toprank agreement`: agreement between judges, and its effect on comparisons."""

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
    """Command in which --runs takes several files, up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the arguments after repeating --runs for each file."""
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
    """The judgments to compare, and the runs to rank under each judge."""

    reference: Annotated[Path, typer.Argument(help="Reference judgments in TREC format.")]
    others: Annotated[list[Path], typer.Argument(help="Judgments of other judges, named by file.")]
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", metavar="RUN ...", help="Two or more runs to rank under each judge."),
    ] = None
    metrics: options.Metrics = "ndcg@10"
    model: Annotated[
        list[Path] | None,
        typer.Option(help="Model of a run, with the same file name: warns if it was trained on a judge's labels."),
    ] = None


def agreement(
    files: JudgedFiles,
    output: Annotated[options.Output, options.only("json", "markdown", "latex")],
    running: options.Running,
    weights: Annotated[Weights, typer.Option(help="Weights of the weighted kappa.")] = Weights.quadratic,
    level: Annotated[Level, typer.Option(help="Level of measurement for Krippendorff's alpha.")] = Level.ordinal,
    confidence: options.Confidence = 0.95,
) -> None:
    """Measure the agreement of judges, and whether they rank systems in the same order.

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
        raise typer.BadParameter("pass at least two runs.")
    common.refuse_twice(files.runs or [])
    with common.progress("Reading judgments …"):
        first, known = read_qrels(files.reference), {}
        for path in files.others:
            name = judge_of(path)
            if name in known or name == judge_of(files.reference):
                raise typer.BadParameter(f"two files have the same judge name, {name}; rename one.")
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
