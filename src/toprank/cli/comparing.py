"""`toprank compare`."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toprank.cli import common
from toprank.cli.columns import GUESSED, Columns, reads_data
from toprank.errors import FileError

if TYPE_CHECKING:
    from toprank.comparison import Comparison
    from toprank.compute import FloatArray
    from toprank.data.dataset import RankingData


class Test(StrEnum):
    """Which paired test."""

    randomization = "randomization"
    t = "t"
    wilcoxon = "wilcoxon"


class Correction(StrEnum):
    """How p-values are corrected for the number of tests."""

    holm = "holm"
    bonferroni = "bonferroni"
    none = "none"


@reads_data
def compare(
    data: Annotated[Path, typer.Argument(help="Labelled data: LETOR text, Parquet, CSV, a stored copy …")],
    scores: Annotated[
        list[Path], typer.Argument(help="Two or more files of scores; a system is called after its file.")
    ],
    metrics: common.Metrics = "ndcg@10",
    convention: common.ConventionName = "standard",
    baseline: Annotated[str | None, typer.Option(help="Compare the others with this one. Default: all pairs.")] = None,
    test: Annotated[Test, typer.Option(help="The paired test behind the p-values.")] = Test.randomization,
    correction: Annotated[Correction, typer.Option(help="Correction over all pairs and metrics.")] = Correction.holm,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999, help="Level of the intervals.")] = 0.95,
    flips: Annotated[int, typer.Option(min=1, help="Random sign flips of the randomisation test.")] = 100_000,
    margin: Annotated[float, typer.Option(min=0, help="Differences up to this much are called equivalent.")] = 0.01,
    html: Annotated[Path | None, typer.Option(help="Write a report that opens in any browser.")] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(help="With --html: a system's model file, called like its scores; adds weights and calibration."),
    ] = None,
    json: common.Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX table.")] = False,
    columns: Columns = GUESSED,
    missing: common.MissingValues = common.Missing.nan,
    layout: common.Layout = None,
    regroup: common.Regroup = False,
    cache: common.Cache = False,
    verify: common.Verify = False,
    seed: common.Seed = 0,
    threads: common.Threads = None,
    quiet: common.Quiet = False,
) -> None:
    """Compare rankings of the same data, with intervals and corrected p-values.

    For example:

    \b
      toprank compare test.txt bm25.scores lambdamart.scores
      toprank compare test.txt a.scores b.scores c.scores --baseline a -m ndcg@10,map --markdown
      toprank compare test.txt a.scores b.scores --html report.html --model a.toprank
    """
    from toprank.comparison import compare as compare_systems
    from toprank.data.files import read_scores
    from toprank.metrics import Convention, parse_all

    if sum((json, markdown, latex)) > 1:
        raise typer.BadParameter("choose one of --json, --markdown and --latex.")
    if len(scores) < 2:
        raise typer.BadParameter("give at least two files of scores.")
    _refuse_twice(scores)
    if model and html is None:
        raise typer.BadParameter("--model tells a report more; give --html, too.")
    if html is not None:
        check_writable(html)
    parse_all(metrics)
    Convention.of(convention)
    reading = common.reading_options(
        missing, columns, layout=layout, regroup=regroup, cache=cache, verify=verify, threads=threads
    )
    documents = common.read_data(data, quiet, reading)
    given = {name: read_scores(path, documents.n_documents) for name, path in _names(scores).items()}
    systems = {name: documents.aligned(values) for name, values in given.items()}
    with common.progress("Comparing …", quiet):
        result = compare_systems(
            systems,
            documents,
            metrics,
            convention=convention,
            baseline=baseline,
            test=test.value,
            correction=correction.value,
            confidence=confidence,
            flips=flips,
            margin=margin,
            seed=seed,
            threads=threads,
        )
    if json:
        common.print_json(result.to_dict())
    else:
        typer.echo(result.to_markdown() if markdown else result.to_latex() if latex else str(result))
    if html is not None:
        _report(html, result, data, documents, systems, model or [], threads)
        common.say(f"{html}: the report", quiet)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before any work."""
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it, for example {path / 'report.html'}.")
    if not path.parent.is_dir():
        raise FileError(f"{path} cannot be written: the folder {path.parent} does not exist.")


def _report(
    html: Path,
    result: Comparison,
    data: Path,
    documents: RankingData,
    systems: dict[str, FloatArray],
    models: list[Path],
    threads: int | None,
) -> None:
    from toprank.data.typed import typed_command
    from toprank.rankers.files import load
    from toprank.report import from_comparison, write_html

    rankers = {path.stem: load(path) for path in models}
    content = from_comparison(
        result, documents, systems, rankers=rankers, name=data.name, command=typed_command(), threads=threads
    )
    write_html(html, content)


def _refuse_twice(paths: list[Path]) -> None:
    places = [path.resolve() for path in paths]
    for number, path in enumerate(paths):
        if places[number] in places[:number]:
            raise typer.BadParameter(f"{path} is given twice; a comparison is of different scores.")


def _names(paths: list[Path]) -> dict[str, Path]:
    """Systems by the stem of their file; by the whole path where stems coincide."""
    stems = Counter(path.stem for path in paths)
    return {path.stem if stems[path.stem] == 1 else str(path): path for path in paths}
