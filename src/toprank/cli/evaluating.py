"""`toprank evaluate` and `conventions`: metrics of a ranking."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options, reading

if TYPE_CHECKING:
    from toprank.compute import FloatArray
    from toprank.data.dataset import RankingData
    from toprank.evaluation.result import Evaluation

Complete = Annotated[
    bool | None,
    typer.Option(
        help="With runs: count judged queries missing from the run as 0 (trec_eval -c), or skip them."
        " Default: by convention.",
        show_default=False,
    ),
]
MinQueries = Annotated[
    int, typer.Option(min=2, help="With --slice-by: slices with fewer queries get no interval and no test.")
]
Results = dict[str, "Evaluation | str"]


@dataclass(frozen=True)
class RankedFiles:
    """A ranking and its judgments: scores of labeled data, or a run and qrels."""

    data: Annotated[Path | None, typer.Argument(help="Labeled data: LETOR text, Parquet, CSV, a stored copy …")] = None
    scores: Annotated[
        Path | None, typer.Argument(help="Scores, one per line in the order of DATA; or .npy; or a model.")
    ] = None
    qrels: Annotated[Path | None, typer.Option(help="Judgments in TREC format, with --run, instead of DATA.")] = None
    run: Annotated[Path | None, typer.Option(help="A run in TREC format.")] = None


@dataclass(frozen=True)
class Figures:
    """The numbers that are printed."""

    metrics: options.Metrics = "ndcg@10,map"
    convention: Annotated[
        str | None,
        typer.Option(
            "--convention", "-c", help="Evaluation convention, or 'all'. Default: standard; trec_eval with --run."
        ),
    ] = None
    per_query: Annotated[bool, typer.Option("--per-query", help="Also print the values of each query.")] = False
    slice_by: options.SliceBy = None
    confidence: options.Confidence = 0.95
    min_queries: MinQueries = 20


@dataclass(frozen=True)
class GradeOptions:
    """Relevance grades, and the documents to evaluate."""

    max_grade: Annotated[float | None, typer.Option(help="Highest possible grade (ERR, RBP). Default: the data's.")] = (
        None
    )
    min_relevance: Annotated[float, typer.Option(help="Lowest grade that counts as relevant in binary metrics.")] = 1.0
    unjudged: options.OfUnjudged = None
    complete: Complete = None
    max_documents: Annotated[
        int | None, typer.Option(min=1, help="With --run: evaluate only this many documents per query (trec_eval -M).")
    ] = None


def evaluate(
    ranked: RankedFiles,
    figures: Figures,
    grades: GradeOptions,
    output: options.JsonOutput,
    read: reading.OfLabeled,
    running: options.Running,
) -> None:
    """Evaluate a ranking under a named convention.

    For example:

    \b
      toprank evaluate test.txt model.scores
      toprank evaluate test.txt model.scores -m ndcg@1,ndcg@10,err@20 -c letor4
      toprank evaluate test.txt model.scores -c all
      toprank evaluate test.txt m.toprank
      toprank evaluate test.parquet model.scores --slice-by device
      toprank evaluate --qrels qrels.txt --run run.txt -m map,ndcg_cut_10 --json
    """
    if figures.slice_by is not None and (ranked.run is not None or figures.convention == "all" or figures.per_query):
        raise typer.BadParameter("--slice-by needs DATA, SCORES and one convention, and excludes --per-query.")
    of_a_run = ranked.qrels is not None or ranked.run is not None
    evaluated = _evaluate_run if of_a_run else _evaluate_scores
    results = evaluated(ranked, figures, grades, options.keywords_of(read), running.threads)
    _print(results, figures, output, running)


def check_rules(metrics: str, convention: str) -> str:
    """Return the name of the convention, or "all"; refuse unknown names before reading data."""
    from toprank.metrics import Convention, parse_all

    parse_all(metrics)
    return convention if convention == "all" else Convention.from_name(convention).name


def condense(unjudged: options.Unjudged | None) -> bool:
    """Return whether runs are condensed to judged documents."""
    if unjudged in (options.Unjudged.refuse, options.Unjudged.drop):
        raise typer.BadParameter("for runs, --unjudged must be 'irrelevant' or 'condense'.")
    return unjudged is options.Unjudged.condense


def refuse_reading(read: dict[str, Any]) -> None:
    """Refuse options for reading data, if there are only runs."""
    for name in read:
        use = "applies to columns of DATA, not to" if name in reading.COLUMNS else "applies to DATA, not to"
        raise typer.BadParameter(f"--{name.replace('_', '-')} {use} a run.")


def _evaluate_scores(
    ranked: RankedFiles, figures: Figures, grades: GradeOptions, read: dict[str, Any], threads: int | None
) -> Results:
    from toprank.evaluation import evaluate as measure
    from toprank.evaluation.scores import under_all

    data, scores = ranked.data, ranked.scores
    if data is None or scores is None:
        raise typer.BadParameter("pass DATA and SCORES, or --qrels and --run.")
    if grades.complete is not None or grades.max_documents is not None:
        raise typer.BadParameter("--complete and --max-documents need --qrels and --run.")
    name = check_rules(figures.metrics, figures.convention or "standard")
    read = {**remembered(data, [scores]), **common.with_metadata(data, figures.slice_by, read), "threads": threads}
    documents = common.read_judgments(data, read)
    values = read_scores_of(scores, data, documents, read)

    rules: dict[str, Any] = {"max_grade": grades.max_grade, "min_relevance": grades.min_relevance, "threads": threads}
    rules["unjudged"] = grades.unjudged and grades.unjudged.value

    def under(convention: str) -> Evaluation:
        return measure(values, documents, figures.metrics, convention=convention, order="source", **rules)

    with common.progress(f"Evaluating {scores} …"):
        return under_all(under) if name == "all" else {name: under(name)}


def _evaluate_run(
    ranked: RankedFiles, figures: Figures, grades: GradeOptions, read: dict[str, Any], threads: int | None
) -> Results:
    from toprank.data.trec import read_qrels, read_run
    from toprank.evaluation.runs import evaluate_run
    from toprank.evaluation.scores import under_all

    if ranked.qrels is None or ranked.run is None or ranked.data is not None:
        raise typer.BadParameter("give DATA SCORES, or --qrels and --run together.")
    refuse_reading(read)
    name, condensed = check_rules(figures.metrics, figures.convention or "trec_eval"), condense(grades.unjudged)
    with common.progress(f"Reading {ranked.run} …"):
        judgments, retrieved = read_qrels(ranked.qrels), read_run(ranked.run)

    def under(convention: str) -> Evaluation:
        return evaluate_run(
            judgments, retrieved, figures.metrics, convention=convention, complete=grades.complete,
            max_documents=grades.max_documents, max_grade=grades.max_grade, min_relevance=grades.min_relevance,
            condense=condensed, threads=threads,
        )  # fmt: skip

    return under_all(under) if name == "all" else {name: under(name)}


def _print(results: Results, figures: Figures, output: options.Output, running: options.Running) -> None:
    from toprank.data.query_values import listed
    from toprank.evaluation.result import Evaluation

    result = next(iter(results.values()))
    evaluation = result if isinstance(result, Evaluation) else None
    if figures.slice_by is not None and evaluation is not None:
        slicing: dict[str, Any] = {"confidence": figures.confidence, "min_queries": figures.min_queries}
        output.show(evaluation.by_slice(figures.slice_by, **slicing, seed=running.seed, threads=running.threads))
    elif output.json:
        every = {
            name: each.to_dict(figures.per_query)
            if isinstance(each, Evaluation)
            else {"not_applicable": common.with_options(each)}
            for name, each in results.items()
        }
        common.print_json(next(iter(every.values())) if len(every) == 1 else {"conventions": every})
    elif len(results) > 1:
        typer.echo(side_by_side(results))
        if evaluation is not None and evaluation.unanswered:
            typer.echo(f"The run lacks {listed(evaluation.unanswered)} of those judged; conventions differ on them.")
    else:
        if evaluation is not None and figures.per_query:
            typer.echo("\t".join(["query", *evaluation.names]))
            columns = [evaluation.per_query[name] for name in evaluation.names]
            for qid, *values in zip(evaluation.qids.tolist(), *columns, strict=True):
                typer.echo("\t".join([str(qid), *(f"{value:.4f}" for value in values)]))
        typer.echo(str(result))


def side_by_side(results: dict[str, Evaluation | str]) -> str:
    """Return a table of conventions by metrics; a convention that cannot be applied has the reason in its row."""
    from toprank.evaluation.result import Evaluation

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


def read_scores_of(path: Path, data: Path, documents: RankingData, read: dict[str, Any]) -> FloatArray:
    """Return the scores in a file, or the scores of a model, in the row order of the data file."""
    from toprank.data.scores import read_scores
    from toprank.rankers.leakage import warn_of_same_judge
    from toprank.rankers.model_files import is_model

    if not is_model(path):
        return read_scores(path, documents.n_documents)
    ranker, rows = common.load_both(path, data, dict(read), labels=True)
    warn_of_same_judge(ranker, documents)
    with common.progress(f"Scoring {data} …"):
        scores: FloatArray = rows.in_source_order(ranker.predict(rows))
    return scores


def remembered(data: Path, files: list[Path]) -> dict[str, str]:
    """Return the roles of columns that models among the files remember; the first model that knows one decides."""
    from toprank.rankers.model_files import is_model, load

    if common.file_format(data) not in common.TABLES:
        return {}
    known = [common.remembered(data, load(path)) for path in files if is_model(path)]
    return {role: column for roles in reversed(known) for role, column in roles.items()}


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
