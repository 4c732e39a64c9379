"""`toprank explain`: explanations of a model's rankings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, helping, options, reading
from toprank.cli.predicting import Model

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData


@dataclass(frozen=True)
class Question:
    """The pair, query or feature to explain; by default the importance of all features."""

    qid: Annotated[
        str | None, typer.Option(help="Query to explain. Default: permutation importance of all features.")
    ] = None
    docs: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Explain why document A ranks above B."),
    ] = None
    feature: Annotated[str | None, typer.Option(help="Partial dependence of the score on this feature.")] = None
    metric: Annotated[str, typer.Option(help="Metric of the permutation importance.")] = "ndcg@10"
    convention: options.ConventionName = "standard"
    n_repeats: Annotated[
        int, typer.Option(min=1, help="Number of shuffles per feature for the permutation importance.")
    ] = 5

    qid_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column that holds query ids; '' for none.", rich_help_panel=helping.COLUMNS
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.feature is not None and (self.qid is not None or self.docs is not None):
            raise typer.BadParameter("--feature applies to all queries; omit --qid and --docs.")


def explain(
    model: Model,
    data: Annotated[
        Path, typer.Argument(help="Documents and their queries; with labels unless --qid or --feature is given.")
    ],
    question: Question,
    output: Annotated[options.Output, options.only("html", "json")],
    read: Annotated[
        reading.ReadOptions,
        options.only("label", "features", "document_id", "metadata", "missing", "layout", "regroup"),
    ],
    running: Annotated[options.Running, options.only("threads", "seed")],
) -> None:
    """Explain a model: the order of two documents, a query, a feature, or the importance of all features.

    For example:

    \b
      toprank explain m.toprank test.txt                        permutation importance, on labeled data
      toprank explain m.toprank test.txt --feature 3            partial dependence on the third feature
      toprank explain m.toprank test.txt --qid 7                contributions to the scores of query 7
      toprank explain m.toprank test.txt --qid 7 --docs A B     why A ranks above B, and counterfactuals
    """
    common.check_writable(output.html, "explained.html")
    keywords = {**options.keywords_of(read), "threads": running.threads}
    if question.qid_column is not None:
        keywords["qid"] = question.qid_column or False
    overall = question.qid is None and question.docs is None and question.feature is None
    ranker, documents = common.load_both(model, data, keywords, labels=overall)
    with common.progress("Explaining …"):
        results = _answers(ranker, documents, question, running)
    if output.html is not None:
        from toprank.report.explanations import explanations_page
        from toprank.report.page import write_page

        headings = {name.replace("_", " ").capitalize(): result for name, result in results.items()}
        write_page(output.html, explanations_page(f"Explained by toprank: {model.name} on {data.name}", headings))
        common.say(f"{output.html}: written")
    if output.json:
        [(_, first), *more] = results.items()
        common.print_json({**first.to_dict(), **{name: result.to_dict() for name, result in more}})
    elif output.html is None:
        typer.echo("\n\n".join(str(result) for result in results.values()))


def _answers(ranker: Any, data: RankingData, question: Question, running: options.Running) -> dict[str, Any]:
    """Return the explanations by name."""
    from toprank import explanations

    seed = running.seed
    if question.docs is not None:
        first = ranker.explain(data, question.qid, *question.docs, seed=seed)
        changes = explanations.counterfactuals(ranker, data, question.qid, *question.docs)
        return {"explanation": first, "counterfactuals": changes}
    if question.qid is not None:
        return {"query": explanations.explain_query(ranker, data, question.qid, seed=seed)}
    if question.feature is not None:
        feature = explanations.find_feature(ranker, data, question.feature)
        return {"partial_dependence": explanations.partial_dependence(ranker, data, feature, seed=seed)}
    judged: dict[str, Any] = {"metric": question.metric, "convention": question.convention}
    importance = explanations.permutation_importance(
        ranker, data, **judged, n_repeats=question.n_repeats, seed=seed, threads=running.threads
    )
    return {"importance": importance}
