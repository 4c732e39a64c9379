"""`toprank demo`: search on real text, with the documentation of this Python as the collection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toprank.cli import common
from toprank.errors import MissingExtraError

if TYPE_CHECKING:
    from toprank.compute import FloatArray
    from toprank.report.content import ComparisonReport
    from toprank.search import Index, SearchEvaluation

INDEX = "python.index"
_METRIC = "ndcg@10"
_N_BETTER, _N_WORSE = 3, 1  # queries whose first page is shown
_N_DOCUMENTS = 3  # documents shown per query


def demonstrate(folder: Path, report: Path, seed: int, threads: int | None) -> None:
    """Index the documentation, compare systems on it, train the best, and write a report."""
    import toprank as tr
    from toprank.data.command_line import command_line

    title("Indexing the documentation of this Python: docstrings of the standard library")
    with common.progress("Reading the standard library …"):
        index = tr.search.index("python-docs", folder / INDEX, seed=seed)
    typer.echo(f"{len(index):,} documents.")

    title("BM25, LSA and their fusion, and a learned ranking, cross-validated over queries")
    with common.progress("Cross-validating with five folds of queries …"):
        evaluation = index.evaluate(seed=seed, threads=threads)
    typer.echo(str(evaluation))

    title("The first page of some queries, before and after")
    for line in _pages(index, evaluation):
        typer.echo(line)

    title("Training on all queries, and storing the model in the index")
    with common.progress("Training …"):
        # Use one thread by default, since 300 queries are too few to train in parallel.
        trained = index.train(seed=seed, threads=threads or 1)
    typer.echo(str(replace(trained, facts=())))  # the comparison has printed the remarks on the judgments

    title("The report")
    assert evaluation.comparison is not None
    content = tr.report.from_comparison(
        evaluation.comparison,
        name=index.name,
        title=f"toprank demo: searching the documentation of {index.name}",
        command=command_line(),
        threads=threads,
    )
    tr.report.write_html(report, _seen_from_the_leader(content))
    typer.echo(f"Open it in a browser: {report.resolve()}")


def _seen_from_the_leader(content: ComparisonReport) -> ComparisonReport:
    """Show differences to the best system if it is the baseline, which is only a default here."""
    [part] = content.parts
    leads = part.ranked_systems[0] == part.comparison.baseline
    return replace(content, parts=(replace(part, against_leader=True),)) if leads else content


def advice(folder: Path, command: str) -> str:
    """Return suggestions of next commands; `command` is the name of the program."""
    from toprank.serving import check_installed

    sentences = f"Search it: {command} search query {folder / INDEX} read a csv file"
    sentences += f"\nOr open its search page: {command} search serve {folder / INDEX}"
    try:
        check_installed()
    except MissingExtraError as problem:
        sentences += f" ({problem})"
    return sentences


def title(text: str) -> None:
    """Print the title of a section of the demonstration."""
    typer.echo(f"\n== {text}")


def _pages(index: Index, evaluation: SearchEvaluation) -> list[str]:
    """Return the top documents before and after, for the queries with the largest gains and the largest loss."""
    import numpy as np

    names = list(evaluation.runs)
    before, after = (evaluation.values.of(name, _METRIC) for name in (names[0], names[-1]))
    gain = after - before
    order = np.argsort(-gain, kind="stable")
    chosen = [*order[:_N_BETTER].tolist(), *order[::-1][:_N_WORSE].tolist()]
    assert index.topics is not None
    texts = dict(zip(index.topics.ids, index.topics.texts, strict=True))
    lines = []
    for place in chosen:
        qid = str(evaluation.values.units[place])
        verdict = "better" if gain[place] > 0 else "worse"
        values = f"{before[place]:.2f} → {after[place]:.2f}"
        lines.append(f"\n{texts[qid]!r}: {_METRIC} {values}, {verdict}")
        columns = [_top(evaluation.runs[name], qid) for name in (names[0], names[-1])]
        width = max(len(text) for text in columns[0])
        lines += [f"  {a:<{width}}  |  {b}" for a, b in zip(*columns, strict=True)]
    return lines


def _top(run: Any, qid: str) -> list[str]:
    """Return the top documents of a query as numbered lines, padded with empty lines."""
    rows = run.qids == qid
    scores: FloatArray = run.scores[rows]
    best = (-scores).argsort(kind="stable")[:_N_DOCUMENTS]
    ids = run.document_ids[rows][best].tolist()
    return [*(f"{rank}. {name}" for rank, name in enumerate(ids, 1)), *([""] * (_N_DOCUMENTS - len(ids)))]
