"""The options that commands share, each declared once; and the values that are typed behind them."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from toprank.cli import helping

# ---- what means the same everywhere ----

_of_running = partial(typer.Option, rich_help_panel=helping.RUNNING)
_of_output = partial(typer.Option, rich_help_panel=helping.OUTPUT)
Threads = Annotated[
    int | None, _of_running(min=1, help="Number of threads; all cores by default. Does not change results.")
]
TrainingThreads = Annotated[
    int | None,
    _of_running(
        min=1,
        help="Number of threads; all cores by default, or for large trees those that are free. Does not change "
        "results, except for the last bits of networks and of LightGBM's own objectives.",
    ),
]
Seed = Annotated[int, _of_running(min=0, help="Random seed; the same seed gives the same bits.")]
Quiet = Annotated[bool, _of_running("--quiet", "-q", help="Print no progress or notes on standard error.")]
Json = Annotated[bool, _of_output("--json", help="Print one JSON object and nothing else on standard output.")]
Markdown = Annotated[bool, _of_output("--markdown", help="Print Markdown tables.")]
Latex = Annotated[bool, _of_output("--latex", help="Print LaTeX tables.")]
Html = Annotated[Path | None, _of_output(help="Write a report that opens in any browser.")]
Metrics = Annotated[
    str, typer.Option("--metrics", "--metric", "-m", help="Metrics, separated by commas: ndcg@10,map,err@20.")
]
ConventionName = Annotated[
    str, typer.Option("--convention", "-c", help="Rules of evaluation; `toprank conventions` lists them.")
]
Confidence = Annotated[float, typer.Option(min=0.5, max=0.9999, help="Confidence level of the intervals.")]
Slices = Annotated[
    str | None,
    typer.Option(
        "--slices",
        metavar="COLUMN",
        help="Also report by slice: a column of the data, head:COLUMN for head and tail, or head:documents.",
    ),
]
System = Annotated[str, typer.Option(help="Which system; `toprank systems` lists them.")]
Cells = Annotated[
    Path | None,
    typer.Option("--folder", metavar="FOLDER", help="Save finished cells here; an interrupted run resumes from them."),
]
Learned = Annotated[Path, typer.Argument(help="Labelled data to learn from.")]
Model = Annotated[Path, typer.Option("--output", "-o", "--model", help="Where to write the model.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Fix a hyper-parameter. May be given several times."),
]

Unjudged = StrEnum("Unjudged", ["refuse", "irrelevant", "condense", "drop"])
OfUnjudged = Annotated[Unjudged | None, typer.Option(help="What labels of -1 or NaN mean. Default: refuse them.")]

# ---- how data are read ----


Missing = StrEnum("Missing", ["nan", "zero"])
Precision = StrEnum("Precision", ["float32", "float64"])


def _column(role: str) -> Any:
    words = f"Column with {role}; '' for none."
    return typer.Option(metavar="COLUMN", help=words, show_default=False, rich_help_panel=helping.COLUMNS)


def _reading(words: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=words, rich_help_panel=helping.READING, **settings)


class _Keywords:
    """Keywords of `toprank.read` that are options, with their defaults."""

    label: Annotated[str | None, _column("labels")] = None
    qid: Annotated[str | None, _column("query ids")] = None
    document_id: Annotated[str | None, _column("document ids")] = None
    weight: Annotated[str | None, _column("document weights")] = None
    query_weight: Annotated[str | None, _column("query weights")] = None
    position: Annotated[str | None, _column("positions")] = None
    teacher: Annotated[str | None, _column("a teacher's scores, to learn from")] = None
    features: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Columns that are features, in this order.", rich_help_panel=helping.COLUMNS
        ),
    ] = None
    carry: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B,...",
            help="Columns to keep for slices and splits by time, but not use as features.",
            rich_help_panel=helping.COLUMNS,
        ),
    ] = None
    query_text: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with the words of the query.", rich_help_panel=helping.COLUMNS),
    ] = None
    document_text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B,...",
            help="Columns with the words of the documents; what they share with the query becomes features.",
            rich_help_panel=helping.COLUMNS,
        ),
    ] = None
    missing: Annotated[Missing, _reading("What NULL and absent features in a text file mean.")] = Missing.nan
    layout: Annotated[
        str | None, _reading("How to store the features of a text file. Default: dense.", metavar="dense|sparse")
    ] = None
    regroup: Annotated[
        bool | None,
        _reading("Group scattered rows of a query, or refuse them. Default: group in tables, refuse in text."),
    ] = None
    cache: Annotated[bool, _reading("Keep a binary copy next to a text file and open that next time.")] = False
    verify: Annotated[
        bool, _reading("With --cache or a stored copy: check the contents against their hashes.", "--verify")
    ] = False
    dtype: Annotated[Precision | None, _reading("Precision of the features of text or a table.")] = None
    n_features: Annotated[int | None, _reading("Number of features in text, if more than occur in it.", min=1)] = None


COLUMNS = ("label", "qid", "features", "document_id", "carry", "query_text", "document_text")
"""Which column is what: options of every command that reads data."""
DOCUMENTS = (*COLUMNS, "missing", "layout", "regroup")
"""How to read documents with their features."""
LABELLED = (*DOCUMENTS, "cache", "verify")
"""How to read documents to evaluate rankings of them."""
LEARNED = (*DOCUMENTS, "teacher", "cache")
"""How to read documents to learn from."""
Reading = dict[str, Any]
"""How to read data, as keywords of `toprank.read`: those that were given. Not every format has all."""
NOTHING: Reading = {}


def reads_data(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these names in the place of its parameter `reading`."""
    return in_place_of("reading", _Keywords, names, _chosen)


def in_place_of(
    parameter: str, declared: type, names: Sequence[str], chosen: Callable[[dict[str, Any]], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options, declared as attributes of a class, in the place of one parameter.

    What was given comes to the command as `chosen` makes it.
    """
    annotations = get_type_hints(declared, include_extras=True)

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for own in signature.parameters.values():
            if own.name != parameter:
                parameters.append(own)
                continue
            parameters += [
                inspect.Parameter(name, own.kind, default=getattr(declared, name), annotation=annotations[name])
                for name in names
            ]

        @wraps(command)
        def run(**given: Any) -> None:
            made = chosen({name: given.pop(name) for name in names})
            command(**given, **{parameter: made})

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorated


def complete(command: Callable[..., None]) -> Callable[..., None]:
    """Every command takes --threads, --seed and --quiet; one that has no use for them need not name or show them."""
    own = inspect.signature(command, eval_str=True)
    taken = [
        declared.replace(annotation=helping.named(declared.name, declared.annotation))
        for declared in own.parameters.values()
    ]
    taken += [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=helping.hidden(annotation)
        )
        for name, annotation, default in (("threads", Threads, None), ("seed", Seed, 0), ("quiet", Quiet, False))
        if name not in own.parameters
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        command(**{name: value for name, value in given.items() if name in own.parameters})

    run.__signature__ = own.replace(parameters=taken)  # type: ignore[attr-defined]
    return run


def _chosen(given: dict[str, Any]) -> Reading:
    """What was given, as `toprank.read` takes it.

    >>> _chosen({"label": "clicks", "qid": "", "features": "bm25, age", "carry": ["day,device", "shop"]})
    {'label': 'clicks', 'qid': False, 'features': ['bm25', 'age'], 'carry': ['day', 'device', 'shop']}
    """
    chosen: Reading = {}
    for name, value in given.items():
        if value == getattr(_Keywords, name):
            continue
        if name in ("features", "carry", "document_text"):
            chosen[name] = words_of(value if isinstance(value, str) else ",".join(value))
            if not chosen[name]:
                raise typer.BadParameter(f"--{name.replace('_', '-')} takes names of columns, separated by commas.")
        else:
            chosen[name] = value.value if isinstance(value, StrEnum) else value or False  # '': there is no such column
    query, document = chosen.pop("query_text", None), chosen.pop("document_text", None)
    if (query is None) != (document is None) or query is False:
        raise typer.BadParameter("--query-text and --document-text go together: what do their words have in common?")
    if query is not None:
        chosen["text"] = {"query": query, "document": document}
    return chosen


# ---- values that are typed behind options ----

Number = TypeVar("Number", int, float)
_KINDS = (bool, int, float, str, list, tuple, dict, type(None))


def words_of(text: str) -> list[str]:
    """Return words that are separated by commas.

    >>> words_of("ndcg@10, map,")
    ['ndcg@10', 'map']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def value_of(text: str) -> Any:
    """A value as JSON where it is, else as Python writes it, else as text; several in a row are a list.

    >>> [value_of(text) for text in ("0.5", "true", "[8, 4]", "(8, 4)", "8,4", "8,", ".5", "efron", "ndcg@10")]
    [0.5, True, [8, 4], [8, 4], [8, 4], [8], 0.5, 'efron', 'ndcg@10']
    """
    text = text.strip()
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(value, _KINDS):
            return list(value) if isinstance(value, tuple) else value
    return text


def settings_of(pairs: list[str] | None) -> dict[str, Any]:
    """The hyper-parameters that were fixed by key=value; each once."""
    settings: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise typer.BadParameter(f"--set takes key=value, not '{pair}'.")
        if key in settings:
            raise typer.BadParameter(f"--set names {key} twice.")
        settings[key] = value_of(value)
    return settings


def numbers_of(text: str, kind: Callable[[str], Number], wanted: str) -> list[Number]:
    """Numbers that are separated by commas; `wanted` says what the option takes.

    >>> numbers_of("1, 5,10", int, "--cutoffs takes whole numbers")
    [1, 5, 10]
    """
    try:
        return [kind(word) for word in words_of(text)]
    except ValueError:
        raise typer.BadParameter(f"{wanted}, not '{text}'.") from None


def refuse_set(name: str, why: str, instead: str | None = None) -> typer.BadParameter:
    """The refusal to fix what the command itself decides."""
    return typer.BadParameter(f"{name} {why}: use --{instead or name}, not --set {name}=.")
