"""Groups of options: a parameter of a command whose type is a frozen dataclass becomes one option for each field.

The dataclass declares name, default and help of its options once, and the command receives one value:

    @dataclass(frozen=True)
    class Running:
        seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no notes.")] = False

    def evaluate(data: Annotated[Path, typer.Argument()], running: Running) -> None: ...

`expanded(evaluate)` takes `data`, `seed` and `quiet`, which typer declares, and calls `evaluate` with a `Running`. A
group may hold other groups. Rooms that know no command line declare fields by `toprank.data.options.Option`; fields
that are declared by neither are no options. A command with some of the options, or with another order in its help,
says so: ``running: Annotated[Running, only("quiet")]``; the other fields keep their defaults.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

from toprank.cli import common, helping
from toprank.data.options import Option

if TYPE_CHECKING:
    from toprank.cli.reading import ReadOptions
    from toprank.data.trec import Run

_KIND = inspect.Parameter.KEYWORD_ONLY  # an option without a default may follow one with a default


class WordChoice(StrEnum):
    """A value of a field that takes one of several words."""


_one_of: Callable[[str, dict[str, str]], type[WordChoice]] = WordChoice  # type: ignore[assignment]  # the functional form


@dataclass(frozen=True)
class Only:
    """The fields of a group that are options of a command, in this order; empty for all."""

    names: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def only(*names: str) -> Only:
    """Declare that a command has these options of a group."""
    return Only(names)


def without(*names: str) -> Only:
    """Declare that a command has all options of a group but these."""
    return Only(without=names)


class _Group(NamedTuple):
    """A group among the parameters of a command."""

    made: type
    parts: dict[str, inspect.Parameter | _Group]

    @classmethod
    def of(cls, made: type, chosen: Only) -> _Group:
        hints = get_type_hints(made, include_extras=True)
        defaults = {field.name: field.default for field in fields(made)}
        parts: dict[str, inspect.Parameter | _Group] = {}
        for name in chosen.names or defaults:
            default = inspect.Parameter.empty if defaults[name] is MISSING else defaults[name]
            part = _part(name, hints[name], default)
            if part is not None and name not in chosen.without:
                parts[name] = part
        return cls(made, parts)

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Return the options of the group, and of those in it."""
        for part in self.parts.values():
            yield from part.parameters() if isinstance(part, _Group) else [part]

    def value(self, given: dict[str, Any]) -> Any:
        """Return the group with the options that were given."""
        return self.made(**{name: _value(name, part, given) for name, part in self.parts.items()})


def _part(name: str, hint: Any, default: Any) -> inspect.Parameter | _Group | None:
    """Return a group or an option; None for a field that is neither."""
    kind, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if isinstance(kind, type) and is_dataclass(kind):
        return _Group.of(kind, next((each for each in metadata if isinstance(each, Only)), Only()))
    declared = next((each for each in metadata if isinstance(each, ParameterInfo | Option)), None)
    if declared is None:
        return None
    if isinstance(declared, Option):
        declared = typer.Option(
            min=declared.least, max=declared.most, help=declared.help, metavar=declared.metavar,
            rich_help_panel=declared.group,
        )  # fmt: skip
    if get_origin(kind) is Literal:
        kind = _one_of(name, {word: word for word in get_args(kind)})
    return inspect.Parameter(name, _KIND, default=default, annotation=Annotated[kind, declared])


def _value(name: str, part: inspect.Parameter | _Group, given: dict[str, Any]) -> Any:
    if isinstance(part, _Group):
        return part.value(given)
    return given[name].value if isinstance(given[name], WordChoice) else given[name]


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each field of the groups that it takes.

    >>> @dataclass(frozen=True)
    ... class Depth:
    ...     k: Annotated[int, Option("Number of documents.")] = 10
    ...     label: str = "no option"
    >>> def show(name: Annotated[str, typer.Argument()], depth: Depth) -> None:
    ...     print(name, depth)
    >>> list(inspect.signature(expanded(show)).parameters)
    ['name', 'k']
    >>> expanded(show)(name="a", k=3)
    a Depth(k=3, label='no option')
    """
    signature = inspect.signature(command, eval_str=True)
    parts: dict[str, inspect.Parameter | _Group] = {
        own.name: _part(own.name, own.annotation, own.default) or own.replace(kind=_KIND)
        for own in signature.parameters.values()
    }

    @wraps(command)
    def run(**given: Any) -> None:
        command(
            **{name: part.value(given) if isinstance(part, _Group) else given[name] for name, part in parts.items()}
        )

    everything = _Group(dict, parts)
    run.__signature__ = signature.replace(parameters=list(everything.parameters()))  # type: ignore[attr-defined]
    return run


# ---- options that mean the same everywhere ----

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
Metrics = Annotated[
    str, typer.Option("--metrics", "--metric", "-m", help="Metrics, separated by commas: ndcg@10,map,err@20.")
]
ConventionName = Annotated[
    str, typer.Option("--convention", "-c", help="Rules of evaluation; `toprank conventions` lists them.")
]
Confidence = Annotated[float, typer.Option(min=0.5, max=0.9999, help="Confidence level of the intervals.")]
SliceBy = Annotated[
    str | None,
    typer.Option(
        "--slice-by",
        metavar="COLUMN",
        help="Also report by slice: a column of the data, head:COLUMN for head and tail, or head:documents.",
    ),
]
System = Annotated[str, typer.Option(help="Which system; `toprank systems` lists them.")]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir", metavar="FOLDER", help="Save finished cells here; an interrupted run resumes from them."
    ),
]
Learned = Annotated[Path, typer.Argument(help="Labeled data to learn from.")]
Model = Annotated[Path, typer.Option("--output", "-o", help="Where to write the model.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Fix a hyper-parameter. May be given several times."),
]

Unjudged = StrEnum("Unjudged", ["refuse", "irrelevant", "condense", "drop"])
OfUnjudged = Annotated[Unjudged | None, typer.Option(help="What labels of -1 or NaN mean. Default: refuse them.")]


@dataclass(frozen=True)
class Running:
    """How a command runs."""

    seed: Seed = 0
    threads: Threads = None


@dataclass(frozen=True)
class Training(Running):
    """How a command runs that trains."""

    threads: TrainingThreads = None


@dataclass(frozen=True)
class Output:
    """The form of a result on standard output, and the file of its report."""

    html: Annotated[Path | None, _of_output(help="Write a report that opens in any browser.")] = None
    json: Json = False
    markdown: Annotated[bool, _of_output("--markdown", help="Print Markdown tables.")] = False
    latex: Annotated[
        bool, _of_output("--latex", help="Print LaTeX tables, for the packages booktabs and graphicx.")
    ] = False

    def check_form(self, *forms: str) -> None:
        """Refuse two forms of output, such as --json and --latex."""
        if self.json + self.markdown + self.latex > 1:
            *others, last = (f"--{name}" for name in forms)
            raise typer.BadParameter(f"choose one of {', '.join(others)} and {last}.")

    def show(self, result: Any) -> None:
        """Print a result in the form that was asked for."""
        if self.json:
            common.print_json(result.to_dict())
        else:
            typer.echo(result.to_markdown() if self.markdown else result.to_latex() if self.latex else str(result))

    def write(self, page: Callable[[Path], None]) -> None:
        """Write the report by `page`, if there is a file for it."""
        if self.html is not None:
            page(self.html)
            common.say(f"{self.html}: the report")


JsonOutput = Annotated[Output, only("json")]


def complete(command: Callable[..., None], *, makes_remarks: bool = True) -> Callable[..., None]:
    """Return a command with its options in the place of groups; it also takes --threads, --seed and --quiet.

    Help shows --threads and --seed if the command names them, and --quiet if it has progress or notes to print.
    """
    command = expanded(command)
    own = inspect.signature(command).parameters
    taken = [each.replace(annotation=helping.named(each.name, each.annotation)) for each in own.values()]
    alike = (("threads", Threads, None), ("seed", Seed, 0), ("quiet", Quiet, False))
    taken += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=annotation if name == "quiet" and makes_remarks else helping.hidden(annotation),
        )
        for name, annotation, default in alike
        if name not in own
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        command(**{name: value for name, value in given.items() if name in own})

    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    return run


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


def names_of(paths: Iterable[Path]) -> dict[str, Path]:
    """Return files by their stems, or by the whole path if stems coincide."""
    paths = list(dict.fromkeys(paths))
    stems = Counter(path.stem for path in paths)
    return {path.stem if stems[path.stem] == 1 else str(path): path for path in paths}


def runs_by_name(runs: Mapping[Path, Run]) -> dict[str, Run]:
    """Return runs by their tags if these differ, else by their files."""
    tags = [run.tag for run in runs.values()]
    names = tags if len(set(tags)) == len(tags) else list(names_of(runs))
    return dict(zip(names, runs.values(), strict=True))


def keywords_of(read: ReadOptions) -> dict[str, Any]:
    """Return what was given, as `toprank.read` takes it.

    >>> from toprank.cli.reading import ReadOptions
    >>> keywords_of(ReadOptions(label="clicks", qid="", features="bm25, age", metadata=["day,device", "shop"]))
    {'label': 'clicks', 'qid': False, 'features': ['bm25', 'age'], 'metadata': ['day', 'device', 'shop']}
    """
    chosen: dict[str, Any] = {}
    for field in fields(read):
        value = getattr(read, field.name)
        if value == field.default:
            continue
        if field.name in ("features", "metadata", "document_text"):
            chosen[field.name] = _column_list(field.name, value)
        else:  # '': there is no such column
            chosen[field.name] = value.value if isinstance(value, StrEnum) else value or False
    query, document = chosen.pop("query_text", None), chosen.pop("document_text", None)
    if (query is None) != (document is None) or query is False:
        raise typer.BadParameter("--query-text and --document-text go together: what do their words have in common?")
    return chosen if query is None else {**chosen, "text": {"query": query, "document": document}}


def _column_list(name: str, value: str | list[str]) -> list[str]:
    words = words_of(value if isinstance(value, str) else ",".join(value))
    if not words:
        raise typer.BadParameter(f"--{name.replace('_', '-')} takes names of columns, separated by commas.")
    return words
