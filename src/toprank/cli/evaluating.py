"""`toprank evaluate`, `compare` and `conventions`: how good rankings are, and which is better."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options

if TYPE_CHECKING:
    from toprank.comparison import Comparison
    from toprank.compute import FloatArray
    from toprank.data.dataset import RankingData
    from toprank.data.trec import Qrels, Run
    from toprank.metrics.result import Evaluation
    from toprank.report import Content


Test = StrEnum("Test", ["randomization", "t", "wilcoxon"])
Correction = StrEnum("Correction", ["holm", "bonferroni", "none"])
Complete = Annotated[
    bool | None,
    typer.Option(
        help="With runs: count unanswered judged queries as 0 (trec_eval -c), or skip them. Default: the convention's.",
        show_default=False,
    ),
]


Least = Annotated[
    int, typer.Option(min=2, help="With --slices: slices with fewer queries get no interval and no test.")
]


@options.reads_data(*options.LABELLED)
def evaluate(
    data: Annotated[
        Path | None, typer.Argument(help="Labelled data: LETOR text, Parquet, CSV, a stored copy …")
    ] = None,
    scores: Annotated[
        Path | None, typer.Argument(help="One number per line, in the order of DATA; or .npy; or a model.")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgments in TREC format, with --run, instead of DATA.")] = None,
    run: Annotated[Path | None, typer.Option(help="A run in TREC format.")] = None,
    metrics: options.Metrics = "ndcg@10,map",
    convention: Annotated[
        str | None,
        typer.Option("--convention", "-c", help="Rules, by name, or 'all'. Default: standard; trec_eval with --run."),
    ] = None,
    per_query: Annotated[bool, typer.Option("--per-query", help="Also print the value of every query.")] = False,
    by: options.Slices = None,
    confidence: options.Confidence = 0.95,
    least: Least = 20,
    json: options.Json = False,
    max_grade: Annotated[
        float | None, typer.Option(help="Highest possible grade (ERR, RBP). Default: the data's.")
    ] = None,
    relevant_from: Annotated[float, typer.Option(help="Grades from here on are relevant for binary metrics.")] = 1.0,
    unjudged: options.OfUnjudged = None,
    complete: Complete = None,
    max_documents: Annotated[
        int | None, typer.Option(min=1, help="With --run: evaluate only this many documents per query (trec_eval -M).")
    ] = None,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """Score a ranking under a named convention.

    For example:

    \b
      toprank evaluate test.txt model.scores
      toprank evaluate test.txt model.scores -m ndcg@1,ndcg@10,err@20 -c letor4
      toprank evaluate test.txt model.scores -c all
      toprank evaluate test.txt m.toprank
      toprank evaluate test.parquet model.scores --slices device
      toprank evaluate --qrels qrels.txt --run run.txt -m map,ndcg_cut_10 --json
    """
    if by is not None and (run is not None or convention == "all" or per_query):
        raise typer.BadParameter("--slices takes DATA and SCORES under one convention, and goes without --per-query.")
    shared: dict[str, Any] = {"max_grade": max_grade, "relevant_from": relevant_from, "threads": threads}
    if qrels is not None or run is not None:
        if qrels is None or run is None or data is not None:
            raise typer.BadParameter("give DATA SCORES, or --qrels and --run together.")
        _refuse_reading(reading)
        name = _rules(metrics, convention or "trec_eval")
        shared |= {"complete": complete, "max_documents": max_documents, "condense": _condense(unjudged)}
        results = _evaluate_run(qrels, run, metrics, name, shared, quiet)
    else:
        if data is None or scores is None:
            raise typer.BadParameter("give DATA and SCORES, or --qrels and --run.")
        if complete is not None or max_documents is not None:
            raise typer.BadParameter("--complete and --max-documents go with --qrels and --run.")
        shared["unjudged"] = unjudged.value if unjudged else None
        name = _rules(metrics, convention or "standard")
        results = _evaluate_scores(data, scores, metrics, name, shared, common.carrying(data, by, reading), quiet)
    intervals = {"confidence": confidence, "least": least, "seed": seed, "threads": threads}
    _print(results, per_query, json, by, intervals)


def _rules(metrics: str, convention: str) -> str:
    """Return the name of the convention, or "all"; refuse a misspelt metric or convention before any file is read."""
    from toprank.metrics import Convention, parse_all

    parse_all(metrics)
    return convention if convention == "all" else Convention.of(convention).name


def _condense(unjudged: options.Unjudged | None) -> bool:
    """Whether runs are condensed to judged documents, by the rule for unjudged ones."""
    condense = {None: False, options.Unjudged.irrelevant: False, options.Unjudged.condense: True}.get(unjudged)
    if condense is None:
        raise typer.BadParameter("of runs, --unjudged is 'irrelevant' or 'condense'.")
    return condense


def _refuse_reading(reading: dict[str, Any]) -> None:
    for name in reading:
        use = "names a column of DATA, not of" if name in options.COLUMNS else "says how to read DATA, not"
        raise typer.BadParameter(f"--{name.replace('_', '-')} {use} a run.")


def _evaluate_scores(
    data: Path,
    scores: Path,
    metrics: str,
    convention: str,
    shared: dict[str, Any],
    reading: dict[str, Any],
    quiet: bool,
) -> dict[str, Evaluation | str]:
    from toprank.metrics import evaluate as measure
    from toprank.metrics.evaluation import evaluate_under_all

    reading = {**_remembered(data, [scores]), **reading, "threads": shared["threads"]}
    documents = common.read_judgments(data, quiet, reading)
    values = _scores(scores, data, documents, reading, quiet)
    with common.progress(f"Evaluating {scores} …", quiet):
        if convention == "all":
            return evaluate_under_all(values, documents, metrics, order="source", **shared)
        return {convention: measure(values, documents, metrics, convention=convention, order="source", **shared)}


def _evaluate_run(
    qrels: Path, run: Path, metrics: str, convention: str, shared: dict[str, Any], quiet: bool
) -> dict[str, Evaluation | str]:
    from toprank.data.trec import read_qrels, read_run
    from toprank.metrics.evaluation import under_all
    from toprank.metrics.runs import evaluate_run

    with common.progress(f"Reading {run} …", quiet):
        judgments, retrieved = read_qrels(qrels), read_run(run)

    def under(name: str) -> Evaluation:
        return evaluate_run(judgments, retrieved, metrics, convention=name, **shared)

    return under_all(under) if convention == "all" else {convention: under(convention)}


def _print(
    results: dict[str, Evaluation | str], per_query: bool, json: bool, by: str | None, intervals: dict[str, Any]
) -> None:
    from toprank.metrics.result import Evaluation

    result = next(iter(results.values()))
    if by is not None and isinstance(result, Evaluation):
        common.print_result(result.by(by, **intervals), json=json)
    elif json:
        every = {
            name: each.to_dict(per_query)
            if isinstance(each, Evaluation)
            else {"not_applicable": common.with_options(each)}
            for name, each in results.items()
        }
        common.print_json(next(iter(every.values())) if len(every) == 1 else {"conventions": every})
    elif len(results) > 1:
        typer.echo(side_by_side(results))
    else:
        if isinstance(result, Evaluation) and per_query:
            typer.echo("\t".join(["query", *result.names]))
            columns = [result.per_query[name] for name in result.names]
            for qid, *values in zip(result.qids.tolist(), *columns, strict=True):
                typer.echo("\t".join([str(qid), *(f"{value:.4f}" for value in values)]))
        typer.echo(str(result))


def side_by_side(results: dict[str, Evaluation | str]) -> str:
    """Return a table of conventions by metrics; a convention that cannot be applied has the reason in its row."""
    from toprank.metrics.result import Evaluation

    done = {name: result for name, result in results.items() if isinstance(result, Evaluation)}
    metrics = next(iter(done.values())).names
    width = max(len(name) for name in results)
    cells = [max(len(metric), 6) for metric in metrics]
    head = "  ".join([f"{'convention':<{width}}", *(f"{m:>{w}}" for m, w in zip(metrics, cells, strict=True))])
    lines = [head]
    for name, result in results.items():
        if isinstance(result, Evaluation):
            values = [f"{result.mean[metric]:>{w}.4f}" for metric, w in zip(metrics, cells, strict=True)]
            lines.append("  ".join([f"{name:<{width}}", *values]))
        else:
            lines.append(f"{name:<{width}}  not applicable: {common.with_options(result)}")
    return "\n".join(lines)


@options.reads_data(*options.LABELLED)
def compare(
    data: Annotated[Path, typer.Argument(help="Labelled data: LETOR text, Parquet … With --qrels: the first run.")],
    scores: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Two or more files of scores, or models, named after their files. With --qrels: further runs."
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(
            help="Judgments in TREC format; the other files are then runs, named by their tags or their files."
        ),
    ] = None,
    metrics: options.Metrics = "ndcg@10",
    convention: Annotated[
        str | None,
        typer.Option(
            "--convention", "-c", help="Rules of evaluation, by name. Default: standard; trec_eval with --qrels."
        ),
    ] = None,
    complete: Complete = None,
    unjudged: options.OfUnjudged = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare the others with this one. Default: all pairs.")
    ] = None,
    test: Annotated[Test, typer.Option(help="The paired test behind the p-values.")] = Test.randomization,
    correction: Annotated[Correction, typer.Option(help="Correction over all pairs and metrics.")] = Correction.holm,
    confidence: options.Confidence = 0.95,
    flips: Annotated[int, typer.Option(min=1, help="Random sign flips of the randomisation test.")] = 100_000,
    margin: Annotated[float, typer.Option(min=0, help="Differences up to this much are called equivalent.")] = 0.01,
    by: options.Slices = None,
    least: Least = 20,
    html: options.Html = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --html: the model file of a system, named like its scores; adds weights and calibration."
        ),
    ] = None,
    json: options.Json = False,
    markdown: options.Markdown = False,
    latex: options.Latex = False,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """Compare rankings of the same data, or runs, with intervals and corrected p-values.

    For example:

    \b
      toprank compare test.txt bm25.scores lambdamart.scores
      toprank compare test.txt today.toprank xgboost.json
      toprank compare test.txt a.scores b.scores c.scores --baseline a -m ndcg@10,map --markdown
      toprank compare test.txt a.scores b.scores --html report.html --model a.toprank
      toprank compare test.parquet a.scores b.scores --slices device
      toprank compare --qrels qrels.txt bm25.run dense.run -m ndcg@10,map --html report.html
    """
    from toprank.comparison import compare as compare_systems

    common.check_form(json=json, markdown=markdown, latex=latex)
    files, kind = (scores or [], "files of scores") if qrels is None else ([data, *(scores or [])], "runs")
    if len(files) < 2:
        raise typer.BadParameter(f"give at least two {kind}.")
    common.refuse_twice(files)
    if model and html is None:
        raise typer.BadParameter("--model tells a report more; give --html, too.")
    if qrels is None and complete is not None:
        raise typer.BadParameter("--complete goes with --qrels.")
    if qrels is not None and model:
        raise typer.BadParameter("--model goes with DATA: a run has no features.")
    common.check_writable(html)
    _rules(metrics, convention or "standard")
    if qrels is not None and by is not None:
        raise typer.BadParameter("--slices goes with DATA: a run has no columns.")
    documents, systems = (
        _read_scored(
            data, files, {**common.carrying(data, by, reading), "threads": threads}, quiet, report=html is not None
        )
        if qrels is None
        else _read_runs(qrels, files, reading, quiet)
    )
    rules: dict[str, Any] = (
        {"unjudged": unjudged.value if unjudged else None, "order": "source"}
        if qrels is None
        else {"complete": complete, "condense": _condense(unjudged)}
    )
    with common.progress("Comparing …", quiet):
        result = compare_systems(
            systems,
            documents,
            metrics,
            **rules,
            convention=convention,
            baseline=baseline,
            test=test.value,
            correction=correction.value,
            confidence=confidence,
            flips=flips,
            margin=margin,
            seed=seed,
            by=by,
            least=least,
            threads=threads,
        )
    source = data if qrels is None else qrels
    content = partial(_content, result, source, documents, systems, model or [], threads, rules)
    common.print_and_report(result, html, content, json=json, markdown=markdown, latex=latex, quiet=quiet)


def _read_scored(
    data: Path, files: list[Path], reading: dict[str, Any], quiet: bool, *, report: bool
) -> tuple[RankingData, dict[str, FloatArray]]:
    read = common.read_data if report else common.read_judgments  # a report tells of the features, too
    reading = {**_remembered(data, files), **reading}
    documents = read(data, quiet, reading)
    return documents, {
        name: _scores(path, data, documents, reading, quiet) for name, path in common.names_of(files).items()
    }


def _scores(path: Path, data: Path, documents: RankingData, reading: dict[str, Any], quiet: bool) -> FloatArray:
    """Return the scores in a file, or those of a model, in the order of the file of data."""
    from toprank.data.scores import read_scores
    from toprank.rankers.model_files import is_model

    if not is_model(path):
        return read_scores(path, documents.n_documents)
    ranker, rows = common.load_both(path, data, quiet, dict(reading), labels=True)
    ranker.warn_of_same_judge(documents)
    with common.progress(f"Scoring {data} …", quiet):
        scores: FloatArray = rows.in_source_order(ranker.predict(rows))
    return scores


def _remembered(data: Path, files: list[Path]) -> dict[str, str]:
    """Return the roles of columns that models among the files remember; the first model that knows one decides."""
    from toprank.rankers.model_files import is_model, load

    if common.file_format(data) not in common.TABLES:
        return {}
    known = [common.remembered(data, load(path)) for path in files if is_model(path)]
    return {role: column for roles in reversed(known) for role, column in roles.items()}


def _read_runs(qrels: Path, files: list[Path], reading: dict[str, Any], quiet: bool) -> tuple[Qrels, dict[str, Run]]:
    """Read judgments and runs; see `runs_by_name`."""
    from toprank.data.trec import read_qrels, read_run

    _refuse_reading(reading)
    with common.progress("Reading runs …", quiet):
        judgments, runs = read_qrels(qrels), {path: read_run(path) for path in files}
    return judgments, common.runs_by_name(runs)


def _content(
    result: Comparison,
    data: Path,
    documents: RankingData | Qrels,
    systems: Mapping[str, FloatArray | Run],
    models: list[Path],
    threads: int | None,
    rules: dict[str, Any],
) -> Content:
    """Return the content of the report."""
    from toprank.data.typed import typed_command
    from toprank.rankers.model_files import load
    from toprank.report import from_comparison

    rankers = {name: load(path) for name, path in common.names_of(models).items()}
    return from_comparison(
        result, documents, systems, rankers=rankers, name=data.name, command=typed_command(), threads=threads, **rules
    )


def conventions(json: options.Json = False) -> None:
    """List the conventions and their rules.

    For example:

    \b
      toprank conventions
    """
    from toprank.metrics import CONVENTIONS

    if json:
        common.print_json({name: {"rules": str(rules), "source": rules.source} for name, rules in CONVENTIONS.items()})
        return
    for convention in CONVENTIONS.values():
        typer.echo(f"{convention}\n    after {convention.source}")
