"""`toprank clicks check`, `fit` and `simulate`: logs of what was shown and clicked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from toprank.cli import common, helping, options

if TYPE_CHECKING:
    from toprank.clicks import ClickLog, ClickModel
    from toprank.data.dataset import RankingData
    from toprank.significance import Interval

__all__ = ["COMMANDS", "Log", "check", "fit", "read_log", "reads_log", "simulate"]

Log = Annotated[
    list[Path],
    typer.Argument(
        metavar="LOG...",
        help="A log: Parquet, CSV, JSON lines or Yandex' format; or ubi_queries and ubi_events. A folder holds files "
        "of one log.",
    ),
]
_MODELS = "The click model: GlobalCTR, RankCTR, DocumentCTR, PBM, UBM, Cascade, DCM, SDBN, DBN or CCM."
Resamples = Annotated[int, typer.Option(min=2, help="How often queries are drawn again for intervals.")]


def _column(role: str, none: str = "") -> Any:
    words = f"Column of the log that holds {role}{none}."
    return typer.Option(metavar="COLUMN", help=words, show_default=False, rich_help_panel=helping.LOG)


class _LogColumns:
    """Keywords of `toprank.clicks.read` that are options, with their defaults."""

    query: Annotated[str | None, _column("queries")] = None
    document: Annotated[str | None, _column("documents")] = None
    position: Annotated[str | None, _column("positions")] = None
    click: Annotated[str | None, _column("clicks; with UBI, the action that counts as one")] = None
    session: Annotated[str | None, _column("sessions, one for each list", "; '' for none")] = None
    user: Annotated[str | None, _column("users", "; '' for none")] = None
    first_position: Annotated[int, typer.Option(min=0, max=1, help="The number of the first position.")] = 1


def _chosen(given: dict[str, Any]) -> dict[str, Any]:
    """What was given, as `toprank.clicks.read` takes it; a column of '' is none."""
    return {name: False if value == "" else value for name, value in given.items() if value is not None}


reads_log = options.in_place_of("columns", _LogColumns, tuple(get_type_hints(_LogColumns)), _chosen)
"""Give a command the options that say which column of a log is what, in the place of its parameter `columns`."""


def read_log(paths: list[Path], quiet: bool, columns: options.Reading) -> ClickLog:
    """Read a log, with progress."""
    from toprank.clicks import read

    with common.progress(f"Reading {paths[0]} …", quiet):
        return read(paths if len(paths) > 1 else paths[0], **columns)


@options.reads_data("qid", "document_id")
@reads_log
def check(
    log: Log,
    data: Annotated[Path | None, typer.Option(help="Data with document ids: is all that was shown among them?")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 where a problem is found.")] = False,
    resamples: Resamples = 100,
    json: options.Json = False,
    html: options.Html = None,
    columns: options.Reading = options.NOTHING,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Say what a click log can and cannot tell, in sentences, each with a remedy.

    For example:

    \b
      toprank clicks check log.parquet
      toprank clicks check log.csv --query words --document sku --data products.parquet --strict
      toprank clicks check ubi_queries.jsonl ubi_events.jsonl --html log.html
    """
    from toprank.clicks import check as checked

    common.check_writable(html)
    found = read_log(log, quiet, columns)
    features = None if data is None else _known_documents(data, quiet, reading)
    with common.progress("Examining …", quiet):
        report = checked(found, features, resamples=resamples, seed=seed)
    told = tuple(replace(one, remedy=common.as_told(one.remedy)) for one in report.findings)
    report = replace(report, findings=told)
    if html is not None:
        from toprank.report.clicks import write_clicks

        write_clicks(html, report, log[0].name)
        common.say(f"{html}: the report", quiet)
    if json:
        common.print_json(report.to_dict())
    else:
        typer.echo(str(report))
    if strict and any(one.severity == "problem" for one in report.findings):
        raise typer.Exit(1)


def _known_documents(data: Path, quiet: bool, reading: options.Reading) -> RankingData:
    """The ids of data; labels are not needed."""
    unlabelled = {"label": False} if common.format_told(data) in common.TABLES else {}
    return common.read_judgments(data, quiet, {**unlabelled, **reading})


@reads_log
def fit(
    log: Log,
    click_model: Annotated[str, typer.Option(help=_MODELS)] = "PBM",
    holdout: Annotated[
        float, typer.Option(help="Share of sessions, above 0 and below 1, that the model is judged by.")
    ] = 0.2,
    compare: Annotated[bool, typer.Option("--compare", help="Compare all models on held-out sessions.")] = False,
    skip_doubled: Annotated[
        bool, typer.Option("--skip-doubled", help="Leave out sessions with several documents at one position.")
    ] = False,
    prior: Annotated[
        str | None,
        typer.Option(help="Clicks and skips to add to each probability. Default: two impressions at the log's rate."),
    ] = None,
    groups: Annotated[
        int, typer.Option(min=0, help="Groups of queries, each left out once for the intervals; 0: no intervals.")
    ] = 20,
    json: options.Json = False,
    html: options.Html = None,
    columns: options.Reading = options.NOTHING,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Fit a click model: its parameters with intervals, and how well it tells sessions that it has not seen.

    For example:

    \b
      toprank clicks fit log.parquet --click-model DBN
      toprank clicks fit log.parquet --compare --html models.html
    """
    from toprank.clicks import compare_models
    from toprank.clicks.held_out import MODELS, RATES, model_named

    common.check_writable(html)
    if not 0 < holdout < 1:
        raise typer.BadParameter(f"--holdout takes a share above 0 and below 1, not {holdout:g}.")
    if groups == 1:
        raise typer.BadParameter("--groups takes two or more, or 0: one group has no spread.")
    kind, asked = model_named(click_model), None if prior is None else _prior(prior)
    found = read_log(log, quiet, columns)
    if skip_doubled and found.doubled.any():
        common.say(f"{int(found.doubled.sum()):,} sessions are left out: several documents at one position.", quiet)
        found = found.select(~found.doubled)
    kinds = list(MODELS.values()) if compare else list(dict.fromkeys([kind, *RATES]))
    with common.progress("Fitting …", quiet):
        models = [one(prior=asked) for one in kinds]
        judged = compare_models(found, models, holdout=holdout, seed=seed)
        fitted = kind(prior=asked).fit(found, threads=threads)
        ends = fitted.intervals(found, groups=groups, seed=seed) if kind.shared and groups else {}
    if html is not None:
        from toprank.clicks import check as checked
        from toprank.report.clicks import write_clicks

        write_clicks(html, checked(found, seed=seed), log[0].name, judged)
        common.say(f"{html}: the report", quiet)
    if json:
        common.print_json({**_parameters(fitted, ends), **judged.to_dict()})
        return
    typer.echo(_told(fitted, ends))
    typer.echo(f"\n{judged}")


def _prior(text: str) -> tuple[float, float]:
    try:
        clicks, skips = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--prior takes two numbers, clicks and skips, not '{text}'.") from None
    return clicks, skips


def _parameters(fitted: ClickModel, ends: dict[str, Interval[Any]]) -> dict[str, Any]:
    from toprank.clicks.intervals import numbers

    values = {
        name: numbers(ends[name]) if name in ends else {"value": value.tolist()}
        for name, value in fitted.parameters_.items()
    }
    return {"model": type(fitted).__name__, "prior": list(fitted.prior_), "parameters": values}


def _told(fitted: ClickModel, ends: dict[str, Interval[Any]]) -> str:
    """The parameters that all documents share, with intervals; of the browsing model those without a click above."""
    from toprank.clicks.intervals import in_words
    from toprank.showing.tables import Table

    said = [str(fitted) if not ends else str(fitted).partition("\n")[0]]
    for name, found in ends.items():
        columns = (found.value, found.low, found.high)
        if found.value.ndim == 2:
            columns = tuple(column[:, 0] for column in columns)
            said.append("Without a click above (--json has all):")
        rows = [(str(k + 1), f"{v:.3f}", in_words(a, b)) for k, (v, a, b) in enumerate(zip(*columns, strict=True))]
        said.append(Table(("number", name, "95% interval"), rows, names=0).text())
    return "\n\n".join(said)


@options.reads_data("label", "qid", "document_id", "features", "carry")
def simulate(
    data: Annotated[Path, typer.Argument(help="Labelled data: what users like.")],
    scores: Annotated[list[Path], typer.Argument(metavar="SCORES...", help="Scores to rank by; sessions take turns.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the log: .parquet, .arrow, .csv.")],
    click_model: Annotated[str, typer.Option(help="How users click: PBM, UBM, Cascade, DCM, SDBN, DBN, CCM.")] = "PBM",
    examination: Annotated[
        str | None,
        typer.Option(
            help="P(looked at), such as 1,0.5,0.3: PBM by position, UBM by the distance to the last click. "
            "Default: 1 / position."
        ),
    ] = None,
    continuation: Annotated[
        str | None, typer.Option(help="DBN: P(go on); DCM: by position; CCM: after a skip, a click, a good click.")
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, help="How many lists are shown.")] = 10_000,
    k: Annotated[int, typer.Option(min=1, help="Documents of a list.")] = 10,
    noise: Annotated[float, typer.Option(help="P(click | looked at, not liked).")] = 0.1,
    trust: Annotated[
        str | None,
        typer.Option(help="P(click | looked at, not liked) by position, such as 0.4,0.3,0.2, instead of --noise."),
    ] = None,
    exploration: Annotated[float, typer.Option(help="Share of sessions whose list is not the ranker's own.")] = 0.0,
    way: Annotated[
        str,
        typer.Option(help="What these see: shuffle; swap: the first and another exchanged; neighbours: two of them."),
    ] = "shuffle",
    popularity: Annotated[float, typer.Option(help="Query i is asked for with a frequency of 1 / i^this.")] = 0.0,
    disagreement: Annotated[float, typer.Option(help="Share of relevance that users deal out anew.")] = 0.0,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Show rankings to users who behave as a click model says, and log their clicks.

    For example:

    \b
      toprank clicks simulate test.txt bm25.scores model.scores -o log.parquet --examination 1,0.5,0.3 --k 3
      toprank clicks simulate test.txt bm25.scores -o log.csv --click-model DBN --continuation 0.8 --exploration 0.1
    """
    from toprank.clicks import simulate as simulated
    from toprank.clicks import write
    from toprank.clicks.files import written_as
    from toprank.data.scores import read_scores

    common.check_writable(output, "log.parquet")
    written_as(output)
    users, believed = _known(click_model, examination, continuation, k), _numbers(trust, "--trust") if trust else None
    if believed is not None and len(believed) < k:
        raise typer.BadParameter(f"--trust gives {len(believed)} positions, and --k {k}; give one for each.")
    documents = common.read_data(data, quiet, reading)
    names = [path.stem for path in scores]
    if len(set(names)) < len(names):
        raise typer.BadParameter("two files of scores have the same name; rankers are called by it.")
    rankings = {path.stem: read_scores(path, documents.n_documents) for path in scores}
    with common.progress("Simulating …", quiet):
        found = simulated(
            documents, rankings, users, sessions, k=k, noise=noise, exploration=exploration, way=cast(Any, way),
            trust=None if believed is None else ([1.0] * len(believed), believed),
            popularity=popularity, disagreement=disagreement, seed=seed, order="source",
        )  # fmt: skip
    write(found, output)
    common.say(f"{output}: {found}", quiet)


def _known(name: str, examination: str | None, continuation: str | None, k: int) -> ClickModel:
    """The users that are asked for."""
    from toprank.clicks import CCM, DBN, DCM, PBM, SDBN, UBM, Cascade
    from toprank.clicks.held_out import model_named

    kind, looks = model_named(name), (PBM, UBM)
    if (examination is not None and kind not in looks) or (continuation is not None and kind not in (DBN, DCM, CCM)):
        raise typer.BadParameter("--examination belongs to PBM and UBM, --continuation to DBN, DCM and CCM.")
    if kind in looks:
        looked = _numbers(examination, "--examination") if examination else [1 / place for place in range(1, k + 1)]
        if len(looked) < k:
            raise typer.BadParameter(f"--examination gives {len(looked)} positions, and --k {k}; give one for each.")
        below = [[looked[place - click] if click <= place else 0.0 for click in range(k + 1)] for place in range(k)]
        return PBM.known(looked) if kind is PBM else UBM.known(below)
    if kind is SDBN or kind is Cascade:
        return kind()
    numbers = _numbers(continuation, "--continuation") if continuation else []
    if kind is DBN and len(numbers) <= 1:
        return DBN.known(*numbers)
    if kind is DCM and len(numbers) >= k:
        return DCM.known(numbers)
    if kind is CCM and len(numbers) == 3:
        return CCM.known(numbers)
    wanted = {DBN: "one number", DCM: f"{k} numbers, one for each position", CCM: "three numbers"}
    if kind not in wanted:
        raise typer.BadParameter(f"--click-model takes PBM, UBM, Cascade, DCM, SDBN, DBN or CCM, not {kind.__name__}.")
    raise typer.BadParameter(f"{kind.__name__} needs --continuation with {wanted[kind]}.")


def _numbers(text: str, option: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1.0]
    if not all(0 <= number <= 1 for number in numbers):
        raise typer.BadParameter(f"{option} takes probabilities, separated by commas, not '{text}'.")
    return numbers


COMMANDS: tuple[Callable[..., None], ...] = (check, fit, simulate)
