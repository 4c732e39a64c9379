"""`toprank explain`: why a model ranks as it does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, helping, options
from toprank.cli.predicting import Model

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData


@options.reads_data("label", "features", "document_id", "carry", "missing", "layout", "regroup")
def explain(
    model: Model,
    data: Annotated[
        Path, typer.Argument(help="Documents and their queries; with labels unless --qid or --feature is given.")
    ],
    qid: Annotated[
        str | None, typer.Option(help="The query to explain. Default: explain which features matter overall.")
    ] = None,
    docs: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Explain why A stands above B, two documents of the query."),
    ] = None,
    feature: Annotated[str | None, typer.Option(help="Show how the score depends on one feature.")] = None,
    metric: Annotated[str, typer.Option(help="Metric to measure importance by.")] = "ndcg@10",
    convention: options.ConventionName = "standard",
    repeats: Annotated[int, typer.Option(min=1, help="How often each feature is shuffled, for importance.")] = 5,
    qid_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column that holds query ids; '' for none.", rich_help_panel=helping.COLUMNS
        ),
    ] = None,
    html: options.Html = None,
    json: options.Json = False,
    reading: options.Reading = options.NOTHING,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Explain why a model ranks the way it does: a pair of documents, a query, or all queries.

    For example:

    \b
      toprank explain m.toprank test.txt                        which features matter, on labelled data
      toprank explain m.toprank test.txt --feature 3            how the score runs along the third feature
      toprank explain m.toprank test.txt --qid 7                what moved each document of query 7
      toprank explain m.toprank test.txt --qid 7 --docs A B     why A stands above B, and what would change it
    """
    if feature is not None and (qid is not None or docs is not None):
        raise typer.BadParameter("--feature explains all queries; leave --qid and --docs out.")
    common.check_writable(html, "explained.html")
    reading = {**reading, "threads": threads}
    if qid_column is not None:
        reading["qid"] = qid_column or False
    local = not (qid is None and docs is None and feature is None)
    ranker, documents = common.load_both(model, data, quiet, reading, labels=not local)
    with common.progress("Explaining …", quiet):
        if docs is not None:
            results = _pair(ranker, documents, qid, docs, seed)
        elif qid is not None:
            results = _query(ranker, documents, qid, seed)
        elif feature is not None:
            results = _effect(ranker, documents, feature, seed)
        else:
            judged = {"metric": metric, "convention": convention, "repeats": repeats}
            results = _overall(ranker, documents, judged, seed, threads)
    if html is not None:
        from toprank.report.explanations import explanations_page
        from toprank.report.page import write_page

        headings = {name.replace("_", " ").capitalize(): result for name, result in results.items()}
        write_page(html, explanations_page(f"Explained by toprank: {model.name} on {data.name}", headings))
        common.say(f"{html}: written", quiet)
    if json:
        [(_, first), *more] = results.items()
        common.print_json({**first.to_dict(), **{name: result.to_dict() for name, result in more}})
    elif html is None:
        typer.echo("\n\n".join(str(result) for result in results.values()))


def _pair(ranker: Any, data: RankingData, qid: str | None, docs: tuple[str, str], seed: int) -> dict[str, Any]:
    from toprank.explaining import changes

    first = ranker.explain(data, qid, *docs, seed=seed)
    return {"explanation": first, "what_would_change_it": changes(ranker, data, qid, *docs)}


def _query(ranker: Any, data: RankingData, qid: str, seed: int) -> dict[str, Any]:
    from toprank.explaining import query

    return {"query": query(ranker, data, qid, seed=seed)}


def _effect(ranker: Any, data: RankingData, feature: str, seed: int) -> dict[str, Any]:
    from toprank.explaining import effect, feature_named

    return {"effect": effect(ranker, data, feature_named(ranker, data, feature), seed=seed)}


def _overall(ranker: Any, data: RankingData, judged: dict[str, Any], seed: int, threads: int | None) -> dict[str, Any]:
    from toprank.explaining import importance

    return {"importance": importance(ranker, data, **judged, seed=seed, threads=threads)}
