"""`toprank compare`: statistical comparison of rankings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options, reading
from toprank.cli.evaluating import (
    Complete,
    MinQueries,
    check_rules,
    condense,
    read_scores_of,
    refuse_reading,
    remembered,
)
from toprank.errors import UnknownNameError
from toprank.evaluation.statistics import ComparisonOptions

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.evaluation import Comparison


@dataclass(frozen=True)
class ComparedFiles:
    """The rankings to compare, and their judgments."""

    data: Annotated[Path, typer.Argument(help="Labeled data: LETOR text, Parquet … With --qrels: the first run.")]
    scores: Annotated[
        list[Path] | None,
        typer.Argument(help="Two or more files of scores, or models. With --qrels: further runs."),
    ] = None
    qrels: Annotated[
        Path | None,
        typer.Option(help="Judgments in TREC format; the other files are then runs, named by tag or file name."),
    ] = None

    @property
    def files(self) -> list[Path]:
        """Files of scores, or runs."""
        return (self.scores or []) if self.qrels is None else [self.data, *(self.scores or [])]


@dataclass(frozen=True)
class RuleOptions:
    """Metrics of a comparison, and their convention."""

    metrics: options.Metrics = "ndcg@10"
    convention: Annotated[
        str | None,
        typer.Option("--convention", "-c", help="Evaluation convention. Default: standard; trec_eval with --qrels."),
    ] = None
    complete: Complete = None
    unjudged: options.OfUnjudged = None


Tests = Annotated[
    ComparisonOptions, options.only("baseline", "test", "correction", "confidence", "n_permutations", "margin")
]


@dataclass(frozen=True)
class SliceOptions:
    """Slices of a comparison."""

    slice_by: options.SliceBy = None
    min_queries: MinQueries = 20


@dataclass(frozen=True)
class Reported(options.Output):
    """Output format of a comparison, and its report."""

    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --html: model file of a system, with the name of its scores; adds weights and calibration."
        ),
    ] = None


def compare(
    compared: ComparedFiles,
    rules: RuleOptions,
    statistics: Annotated[
        ComparisonOptions, options.only("baseline", "test", "correction", "confidence", "n_permutations", "margin")
    ],
    sliced: SliceOptions,
    output: Reported,
    read: reading.OfLabeled,
    running: options.Running,
) -> None:
    """Compare rankings of the same data, or runs, with confidence intervals and corrected p-values.

    For example:

    \b
      toprank compare test.txt bm25.scores lambdamart.scores
      toprank compare test.txt today.toprank xgboost.json
      toprank compare test.txt a.scores b.scores c.scores --baseline a -m ndcg@10,map --markdown
      toprank compare test.txt a.scores b.scores --html report.html --model a.toprank
      toprank compare test.parquet a.scores b.scores --slice-by device
      toprank compare --qrels qrels.txt bm25.run dense.run -m ndcg@10,map --html report.html
    """
    from toprank.evaluation import compare as compare_systems

    _check(compared, rules, sliced, output)
    rankers = _rankers(output.model or [], compared.files)
    common.check_writable(output.html)
    check_rules(rules.metrics, rules.convention or "standard")
    further: dict[str, Any]
    if compared.qrels is None:
        read_by = {
            **common.with_metadata(compared.data, sliced.slice_by, options.keywords_of(read)),
            "threads": running.threads,
        }
        documents, systems = _read_scored(compared, read_by, report=output.html is not None)
        further = {"unjudged": rules.unjudged and rules.unjudged.value, "order": "source"}
    else:
        documents, systems = _read_runs(compared.qrels, compared.files, options.keywords_of(read))
        further = {"complete": rules.complete, "condense": condense(rules.unjudged)}
    further |= {"slice_by": sliced.slice_by, "min_queries": sliced.min_queries, "threads": running.threads}
    further |= asdict(replace(statistics, seed=running.seed))
    with common.progress("Comparing …"):
        result = compare_systems(systems, documents, rules.metrics, convention=rules.convention, **further)
    output.show(result)
    output.write(partial(_write, result, (compared.qrels or compared.data).name, rankers, running.threads))


def _check(compared: ComparedFiles, rules: RuleOptions, sliced: SliceOptions, output: Reported) -> None:
    """Refuse conflicting options."""
    output.check_form("json", "markdown", "latex")
    if len(compared.files) < 2:
        kind = "files of scores" if compared.qrels is None else "runs"
        raise typer.BadParameter(f"pass at least two {kind}.")
    common.refuse_twice(compared.files)
    if output.model and output.html is None:
        raise typer.BadParameter("--model needs --html: it adds details to the report.")
    if compared.qrels is None and rules.complete is not None:
        raise typer.BadParameter("--complete needs --qrels.")
    if compared.qrels is not None and output.model:
        raise typer.BadParameter("--model needs DATA: a run has no features.")
    if compared.qrels is not None and sliced.slice_by is not None:
        raise typer.BadParameter("--slice-by needs DATA: a run has no columns.")


def _rankers(models: list[Path], files: list[Path]) -> dict[str, Any]:
    """Return the models of a report by name; refuse models of systems that are not compared."""
    from toprank.rankers.model_files import load

    named, compared = options.names_of(models), options.names_of(files)
    for name in named:
        if name not in compared:
            raise UnknownNameError("file of scores for --model", name, compared)
    return {name: load(path) for name, path in named.items()}


def _read_scored(compared: ComparedFiles, read: dict[str, Any], *, report: bool) -> tuple[RankingData, dict[str, Any]]:
    """Read documents and scores; a report also needs features and texts."""
    data, files = compared.data, compared.files
    read = {**remembered(data, files), **read}
    if report:
        documents = common.read_data(data, {**_remembered_text(data, files), **read})
    else:
        documents = common.read_judgments(data, read)
    return documents, {
        name: read_scores_of(path, data, documents, read) for name, path in options.names_of(files).items()
    }


def _remembered_text(data: Path, files: list[Path]) -> dict[str, Any]:
    """Return the text columns stored in a model, so that a report shows the texts."""
    from toprank.rankers.model_files import is_model, load

    if common.file_format(data) not in common.TABLES:
        return {}
    columns = common.column_names(data)
    learned = (load(path).text_ for path in files if is_model(path))
    roles = (text.roles for text in learned if text is not None and set(text.roles.columns) <= set(columns))
    return next(({"text": text} for text in roles), {})


def _read_runs(qrels: Path, files: list[Path], read: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Read judgments and runs; see `runs_by_name`."""
    from toprank.data.trec import read_qrels, read_run

    refuse_reading(read)
    with common.progress("Reading runs …"):
        judgments, runs = read_qrels(qrels), {path: read_run(path) for path in files}
    return judgments, options.runs_by_name(runs)


def _write(result: Comparison, name: str, rankers: dict[str, Any], threads: int | None, html: Path) -> None:
    """Write the report."""
    from toprank.data.command_line import command_line
    from toprank.report import from_comparison, write_html

    with common.progress("Writing the report …"):
        write_html(html, from_comparison(result, rankers=rankers, name=name, command=command_line(), threads=threads))
