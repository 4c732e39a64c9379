"""`toprank predict`, `rank` and `inspect`: use of model files."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options, reading

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData

Model = Annotated[
    Path, typer.Argument(help="A model file from `toprank train`, LightGBM, XGBoost, CatBoost, RankLib or ONNX.")
]
Data = Annotated[Path, typer.Argument(help="Documents to score; labels are ignored.")]


def predict(
    model: Model,
    data: Data,
    read: reading.OfDocuments,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file. Default: standard output.")
    ] = None,
    threads: options.Threads = None,
) -> None:
    """Score documents: one number per line, in the order of DATA. A table needs no query column.

    For example:

    \b
      toprank predict m.toprank test.txt -o test.scores
    """
    from toprank.data.scores import write_scores

    common.check_writable(output, "model.scores")
    ranker, documents = common.load_both(model, data, {**options.keywords_of(read), "threads": threads}, queries=False)
    with common.progress(f"Scoring {data} …"):
        scores = documents.in_source_order(ranker.predict(documents))  # scores in the row order of the file
    if output is not None:
        write_scores(scores, output)
        common.say(f"{output}: {len(scores):,} scores")
    else:
        typer.echo("\n".join(repr(score) for score in scores.tolist()))


def rank(
    model: Model,
    data: Data,
    read: reading.OfDocuments,
    top: Annotated[int, typer.Option(min=1, help="Number of documents per query.")] = 10,
    trec: Annotated[bool, typer.Option("--trec", help="Print a TREC run.")] = False,
    json: options.Json = False,
    threads: options.Threads = None,
) -> None:
    """Print the best documents of each query, best first.

    For example:

    \b
      toprank rank m.toprank test.txt --top 10
      toprank rank m.toprank test.txt --top 1000 --trec > run.txt
    """
    ranker, documents = common.load_both(model, data, {**options.keywords_of(read), "threads": threads})
    with common.progress(f"Scoring {data} …"):
        scores = ranker.predict(documents)
    if len(scores) > 1 and (scores == scores[0]).all():
        common.say("All documents have the same score, so the printed order is the order of the rows.", always=True)
    lists = _ranked(scores, documents, top)
    if json:
        common.print_json({str(qid): [name for name, _ in rows] for qid, rows in lists.items()})
        return
    tag = str(ranker.training_.get("system", "toprank"))
    _check_words(lists, tag if trec else None)
    for qid, rows in lists.items():
        if trec:
            for place, (name, score) in enumerate(rows, start=1):
                typer.echo(f"{qid} Q0 {name} {place} {score!r} {tag}")
        else:
            typer.echo("\t".join([str(qid), *(str(name) for name, _ in rows)]))


def _check_words(lists: dict[Any, list[tuple[Any, float]]], tag: str | None) -> None:
    """Refuse ids with characters that separate fields, before printing."""
    from toprank.data.trec.files import check_words
    from toprank.errors import DataError

    qids, names = [str(qid) for qid in lists], [str(name) for rows in lists.values() for name, _ in rows]
    if tag is not None:
        for kind, words in (("query id", qids), ("document id", names), ("tag", [tag])):
            check_words(words, kind, "a TREC run")
        return
    for word in (*qids, *names):
        if any(mark in word for mark in "\t\r\n"):
            raise DataError(f"The id {word!r} contains a tab or a line break, which separate ids; use --json.")


def _ranked(scores: Any, data: RankingData, top: int) -> dict[Any, list[tuple[Any, float]]]:
    from toprank.metrics.sorting import best_rows

    names, best = data.row_names, best_rows(scores, data.queries, top)
    return {
        qid: list(zip(names[rows].tolist(), scores[rows].tolist(), strict=True))
        for qid, rows in zip(data.qids.tolist(), best, strict=True)
    }


def inspect(
    model: Model,
    everything: Annotated[bool, typer.Option("--all", help="Print all entries in full, one per line.")] = False,
    json: options.Json = False,
) -> None:
    """Describe a model file on one screen: kind, training and features.

    For example:

    \b
      toprank inspect m.toprank
      toprank inspect m.toprank --all
    """
    from toprank.rankers.model_files import inspect as describe

    metadata = describe(model)
    if json:
        common.print_json(metadata)
        return
    lines = [f"{key}: {value}" for key, value in _flat(metadata)] if everything else _screen(metadata)
    typer.echo("\n".join(lines))


_ROWS, _COLUMNS, _WORD = 24, 100, 40  # size of the screen, and maximum length of a value


def _screen(metadata: dict[str, Any]) -> list[str]:
    """Return the lines of the one-screen summary."""
    given = {
        name: part for name, part in metadata.items() if name in ("toprank_version", "kind", "features", "training")
    }
    head = [
        shorten(f"{key}: {value}", _COLUMNS, placeholder=" …")
        for key, value in _flat(given)
        if value is not None and key != "training.features"  # shown as the number of features already
    ]
    state, parts = metadata.get("state", {}), metadata["members"]
    tail = [f"parts: {len(parts)}, {sum(parts.values()):,} bytes", "Use --all for everything, --json for programs."]
    fitted = _row("fitted", [*_flat(state.get("fitted", {})), *((k, v) for k, v in state.items() if k == "members")])
    room = _ROWS - 1 - len(head) - len(tail)
    body = [*_row("parameters", _flat(state.get("parameters", {})))[: max(1, room - len(fitted[:2]))], *fitted[:2]]
    return [*head[: _ROWS - 1 - len(tail) - len(body)], *body, *tail]


def _row(name: str, values: list[tuple[str, Any]]) -> list[str]:
    """Format several values as a paragraph."""
    words = [f"{key}={shorten(_brief(value), _WORD, placeholder=' …')}" for key, value in values if value is not None]
    return wrap(f"{name}: {', '.join(words)}", _COLUMNS, subsequent_indent="  ") if words else []


def _brief(value: Any) -> str:
    """Format a value; summarize long lists by their length and the members of a blend by their kinds."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"{len(value)} × " + ", ".join(dict.fromkeys(str(entry.get("kind", "…")) for entry in value))
    return f"{len(value)} values" if isinstance(value, list) and len(value) > 5 else str(value)


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    lines: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            lines += _flat(value, f"{prefix}{key}.")
        else:
            lines.append((f"{prefix}{key}", value))
    return lines
