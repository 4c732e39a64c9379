"""Groups of options: a parameter of a command whose type is a frozen dataclass becomes one option per field.

The dataclass declares name, default and help of its options once, and the command receives one value:

    @dataclass(frozen=True)
    class Running:
        seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no notes.")] = False

    def evaluate(data: Annotated[Path, typer.Argument()], running: Running) -> None: ...

`expanded(evaluate)` takes `data`, `seed` and `quiet`, which typer declares, and calls `evaluate` with a `Running`.
Groups may be nested. Modules outside the command line declare fields with `toprank.data.options.Option`; fields without
a declaration are not options. ``running: Annotated[Running, only("quiet")]`` selects and orders the options of a
command; the other fields keep their defaults.
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

_KIND = inspect.Parameter.KEYWORD_ONLY  # so that required options may follow optional ones


class WordChoice(StrEnum):
    """Value of an option with a fixed set of words."""


_one_of: Callable[[str, dict[str, str]], type[WordChoice]] = WordChoice  # type: ignore[assignment]  # the functional form


@dataclass(frozen=True)
class Only:
    """Selection and order of the fields of a group that become options; empty for all."""

    names: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def only(*names: str) -> Only:
    """Select these options of a group for a command."""
    return Only(names)


def without(*names: str) -> Only:
    """Select all options of a group except these for a command."""
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
        """Yield the options of the group and of nested groups."""
        for part in self.parts.values():
            yield from part.parameters() if isinstance(part, _Group) else [part]

    def value(self, given: dict[str, Any]) -> Any:
        """Return the group with the values of its options."""
        return self.made(**{name: _value(name, part, given) for name, part in self.parts.items()})


def _part(name: str, hint: Any, default: Any) -> inspect.Parameter | _Group | None:
    """Return a group or an option, or None if a field is neither."""
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
    """Return a command with one option per field of its groups.

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


# ---- options with the same meaning in all commands ----

_of_running = partial(typer.Option, rich_help_panel=helping.RUNNING)
_of_output = partial(typer.Option, rich_help_panel=helping.OUTPUT)
Threads = Annotated[
    int | None, _of_running(min=1, help="Number of threads. Default: all cores. Does not change results.")
]
TrainingThreads = Annotated[
    int | None,
    _of_running(
        min=1,
        help="Number of threads. Default: all cores, or for large trees all idle cores. Does not change results, "
        "except for rounding in networks and in LightGBM's own objectives.",
    ),
]
Seed = Annotated[int, _of_running(min=0, help="Random seed; the same seed gives identical results.")]
Quiet = Annotated[bool, _of_running("--quiet", "-q", help="Print no progress or notes on standard error.")]
Json = Annotated[bool, _of_output("--json", help="Print one JSON object and nothing else on standard output.")]
Metrics = Annotated[
    str, typer.Option("--metrics", "--metric", "-m", help="Metrics, separated by commas: ndcg@10,map,err@20.")
]
ConventionName = Annotated[
    str, typer.Option("--convention", "-c", help="Evaluation convention; `toprank conventions` lists them.")
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
System = Annotated[str, typer.Option(help="System to train; `toprank systems` lists them.")]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir", metavar="FOLDER", help="Save finished cells here; an interrupted run resumes from them."
    ),
]
Learned = Annotated[Path, typer.Argument(help="Labeled training data.")]
Model = Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Fix a hyper-parameter. Repeatable."),
]

Unjudged = StrEnum("Unjudged", ["refuse", "irrelevant", "condense", "drop"])
OfUnjudged = Annotated[Unjudged | None, typer.Option(help="Treatment of labels of -1 or NaN. Default: refuse.")]


@dataclass(frozen=True)
class Running:
    """Seed and threads of a command."""

    seed: Seed = 0
    threads: Threads = None


@dataclass(frozen=True)
class Training(Running):
    """Seed and threads of a command that trains models."""

    threads: TrainingThreads = None


@dataclass(frozen=True)
class Output:
    """Output format on standard output, and the file of the report."""

    html: Annotated[Path | None, _of_output(help="Write a report that opens in any browser.")] = None
    json: Json = False
    markdown: Annotated[bool, _of_output("--markdown", help="Print Markdown tables.")] = False
    latex: Annotated[
        bool, _of_output("--latex", help="Print LaTeX tables, for the packages booktabs and graphicx.")
    ] = False

    def check_form(self, *forms: str) -> None:
        """Refuse two output formats, such as --json and --latex."""
        if self.json + self.markdown + self.latex > 1:
            *others, last = (f"--{name}" for name in forms)
            raise typer.BadParameter(f"choose one of {', '.join(others)} and {last}.")

    def show(self, result: Any) -> None:
        """Print a result in the selected format."""
        if self.json:
            common.print_json(result.to_dict())
        else:
            typer.echo(result.to_markdown() if self.markdown else result.to_latex() if self.latex else str(result))

    def write(self, page: Callable[[Path], None]) -> None:
        """Write the report with `page`, if --html was passed."""
        if self.html is not None:
            page(self.html)
            common.say(f"{self.html}: report written")


JsonOutput = Annotated[Output, only("json")]


def complete(command: Callable[..., None], *, makes_remarks: bool = True) -> Callable[..., None]:
    """Return a command with expanded groups that also accepts --threads, --seed and --quiet.

    Help shows --threads and --seed if the command declares them, and --quiet if it prints progress or notes.
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


# ---- values of options ----

Number = TypeVar("Number", int, float)
_KINDS = (bool, int, float, str, list, tuple, dict, type(None))


def words_of(text: str) -> list[str]:
    """Split a text at commas.

    >>> words_of("ndcg@10, map,")
    ['ndcg@10', 'map']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def value_of(text: str) -> Any:
    """Parse a value as JSON, as a Python literal, or as text; commas separate the values of a list.

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
    """Return the hyper-parameters fixed by key=value; refuse duplicates."""
    settings: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise typer.BadParameter(f"--set takes key=value, not '{pair}'.")
        if key in settings:
            raise typer.BadParameter(f"--set is passed twice for {key}.")
        settings[key] = value_of(value)
    return settings


def numbers_of(text: str, kind: Callable[[str], Number], wanted: str) -> list[Number]:
    """Parse numbers separated by commas; `wanted` is the start of the error message.

    >>> numbers_of("1, 5,10", int, "--cutoffs takes whole numbers")
    [1, 5, 10]
    """
    try:
        return [kind(word) for word in words_of(text)]
    except ValueError:
        raise typer.BadParameter(f"{wanted}, not '{text}'.") from None


def refuse_set(name: str, why: str, instead: str | None = None) -> typer.BadParameter:
    """Return the error for --set of a value that another option of the command sets."""
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
    """Return the passed options as keywords of `toprank.read`.

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
        else:  # '' means no column
            chosen[field.name] = value.value if isinstance(value, StrEnum) else value or False
    query, document = chosen.pop("query_text", None), chosen.pop("document_text", None)
    if (query is None) != (document is None) or query is False:
        raise typer.BadParameter("--query-text and --document-text must be passed together.")
    return chosen if query is None else {**chosen, "text": {"query": query, "document": document}}


def _column_list(name: str, value: str | list[str]) -> list[str]:
    words = words_of(value if isinstance(value, str) else ",".join(value))
    if not words:
        raise typer.BadParameter(f"--{name.replace('_', '-')} takes column names, separated by commas.")
    return words
