"""`toprank clicks`: logs of what was shown and clicked, click models, and rankers that learn from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from toprank.cli import common, helping, options

if TYPE_CHECKING:
    from toprank.clicks import ClickLog, ClickModel, Trained
    from toprank.data.dataset import RankingData
    from toprank.significance import Interval

Log = Annotated[
    list[Path],
    typer.Argument(
        metavar="LOG...",
        help="A log: Parquet, CSV, JSON lines or Yandex' format; or ubi_queries and ubi_events; or a folder with the "
        "files of one log, such as that of `toprank serve`.",
    ),
]
_MODELS = "The click model: GlobalCTR, RankCTR, DocumentCTR, PBM, UBM, Cascade, DCM, SDBN, DBN or CCM."
Resamples = Annotated[int, typer.Option(min=2, help="Number of bootstrap resamples of queries, for intervals.")]


def _column(role: str, none: str = "") -> Any:
    words = f"Column of the log with {role}{none}."
    return typer.Option(metavar="COLUMN", help=words, show_default=False, rich_help_panel=helping.LOG)


class _LogColumns:
    """Keywords of `toprank.clicks.read` that are options, with their defaults."""

    query: Annotated[str | None, _column("queries")] = None
    document: Annotated[str | None, _column("documents")] = None
    position: Annotated[str | None, _column("positions")] = None
    click: Annotated[str | None, _column("clicks; with UBI, the action that counts as a click")] = None
    session: Annotated[str | None, _column("sessions, one for each list", "; '' for none")] = None
    user: Annotated[str | None, _column("users", "; '' for none")] = None
    time: Annotated[str | None, _column("times", "; '' for none")] = None
    value: Annotated[str | None, _column("values of impressions", "; '' for none")] = None
    values: Annotated[
        str | None,
        typer.Option(
            help="For a log of events: what each kind is worth, such as click=1,cart=5,purchase=value.",
            show_default=False,
            rich_help_panel=helping.LOG,
        ),
    ] = None
    first_position: Annotated[
        int, typer.Option(min=0, max=1, help="The number of the first position: 1 or 0.", rich_help_panel=helping.LOG)
    ] = 1


def _chosen(columns: dict[str, Any]) -> dict[str, Any]:
    """What was given, as `toprank.clicks.read` takes it; a column of '' is none."""
    return {name: False if value == "" else value for name, value in columns.items() if value is not None}


reads_log = options.in_place_of("columns", _LogColumns, tuple(get_type_hints(_LogColumns)), _chosen)
"""Give a command the options that say which column of a log is what, in the place of its parameter `columns`."""


def read_log(paths: list[Path], quiet: bool, columns: options.Reading, context: list[str] | None = None) -> ClickLog:
    """Read a log, with progress, and with the columns of a context."""
    from toprank.clicks import read

    with common.progress(f"Reading {paths[0]} …", quiet):
        return read(paths if len(paths) > 1 else paths[0], carry=context or (), **columns)


Context = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the log, such as device or module: each of its values gets propensities of its own. Several "
        "columns, separated by commas, are crossed.",
        show_default=False,
        rich_help_panel=helping.PROPENSITIES,
    ),
]


def context_of(text: str | None) -> list[str] | None:
    """The columns of a context."""
    if text is None:
        return None
    names = options.words_of(text)
    if not names:
        raise typer.BadParameter("--context takes the name of a column of the log, or several, separated by commas.")
    return names


@options.reads_data("qid", "document_id")
@reads_log
def check(
    log: Log,
    data: Annotated[
        Path | None, typer.Option(help="Data with document ids, to check that every shown document is in it.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if a problem is found.")] = False,
    context: Context = None,
    resamples: Resamples = 100,
    width: Annotated[
        float,
        typer.Option(help="Say how many sessions make the intervals of propensities this narrow, as a share of them."),
    ] = 0.5,
    json: options.Json = False,
    html: options.Html = None,
    columns: options.Reading = options.NOTHING,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Say what a click log can and cannot tell you, and how to fix what is wrong.

    For example:

    \b
      toprank clicks check log.parquet
      toprank clicks check log.csv --query words --document sku --data products.parquet --strict
      toprank clicks check ubi_queries.jsonl ubi_events.jsonl --html log.html
      toprank clicks check log.parquet --context device
    """
    from toprank.clicks import check as checked

    common.check_writable(html)
    crossed = context_of(context)
    click_log = read_log(log, quiet, columns, crossed)
    features = None if data is None else _known_documents(data, quiet, reading)
    with common.progress("Examining …", quiet):
        report = checked(click_log, features, context=crossed, resamples=resamples, width=width, seed=seed)
    findings = tuple(replace(finding, remedy=common.with_options(finding.remedy)) for finding in report.findings)
    report = replace(report, findings=findings)
    if html is not None:
        from toprank.report.clicks import clicks_page
        from toprank.report.page import write_page

        write_page(html, clicks_page(report, log[0].name))
        common.say(f"{html}: the report", quiet)
    common.print_result(report, json=json)
    if strict and any(finding.severity == "problem" for finding in report.findings):
        raise typer.Exit(1)


def _known_documents(data: Path, quiet: bool, reading: options.Reading) -> RankingData:
    """The ids of data; labels are not needed."""
    unlabelled = {"label": False} if common.file_format(data) in common.TABLES else {}
    return common.read_judgments(data, quiet, {**unlabelled, **reading})


@reads_log
def fit(
    log: Log,
    click_model: Annotated[str, typer.Option(help=_MODELS)] = "PBM",
    holdout: Annotated[
        float, typer.Option(help="Share of sessions, above 0 and below 1, to judge the model by.")
    ] = 0.2,
    compare: Annotated[bool, typer.Option("--compare", help="Compare all models on held-out sessions.")] = False,
    skip_doubled: Annotated[
        bool, typer.Option("--skip-doubled", help="Leave out sessions with several documents at one position.")
    ] = False,
    prior: Annotated[
        str | None,
        typer.Option(
            help="Clicks and skips to add to each probability. Default: two impressions at the log's click rate."
        ),
    ] = None,
    groups: Annotated[
        int,
        typer.Option(
            min=0, help="Number of groups of queries, each left out once, for the intervals; 0: no intervals."
        ),
    ] = 20,
    json: options.Json = False,
    html: options.Html = None,
    columns: options.Reading = options.NOTHING,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Fit a click model: its parameters with intervals, and how well it predicts held-out sessions.

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
    kind, prior_counts = model_named(click_model), None if prior is None else _prior(prior)
    click_log = read_log(log, quiet, columns)
    if skip_doubled and click_log.doubled.any():
        common.say(f"{int(click_log.doubled.sum()):,} sessions are left out: several documents at one position.", quiet)
        click_log = click_log.select(~click_log.doubled)
    kinds = list(MODELS.values()) if compare else list(dict.fromkeys([kind, *RATES]))
    with common.progress("Fitting …", quiet):
        models = [kind(prior=prior_counts) for kind in kinds]
        judged = compare_models(click_log, models, holdout=holdout, seed=seed)
        fitted = kind(prior=prior_counts).fit(click_log, threads=threads)
        ends = fitted.intervals(click_log, groups=groups, seed=seed) if kind.shared and groups else {}
    if html is not None:
        from toprank.clicks import check as checked
        from toprank.report.clicks import clicks_page
        from toprank.report.page import write_page

        write_page(html, clicks_page(checked(click_log, seed=seed), log[0].name, judged))
        common.say(f"{html}: the report", quiet)
    if json:
        common.print_json({**_parameters(fitted, ends), **judged.to_dict()})
        return
    typer.echo(_parameters_text(fitted, ends))
    typer.echo(f"\n{judged}")


def _prior(text: str) -> tuple[float, float]:
    wanted = "--prior takes two numbers, clicks and skips"
    numbers = _by_position(text, wanted)
    if len(numbers) != 2:
        raise typer.BadParameter(f"{wanted}, not '{text}'.")
    return numbers[0], numbers[1]


def _parameters(fitted: ClickModel, ends: dict[str, Interval[Any]]) -> dict[str, Any]:
    values = {
        name: ends[name].to_dict() if name in ends else {"value": value.tolist()}
        for name, value in fitted.parameters_.items()
    }
    return {"model": type(fitted).__name__, "prior": list(fitted.prior_), "parameters": values}


def _parameters_text(fitted: ClickModel, ends: dict[str, Interval[Any]]) -> str:
    """The parameters that all documents share, with intervals; of the browsing model those without a click above."""
    from toprank.showing.tables import Table, bracketed

    paragraphs = [str(fitted) if not ends else str(fitted).partition("\n")[0]]
    for name, interval in ends.items():
        columns = (interval.value, interval.low, interval.high)
        if interval.value.ndim == 2:
            columns = tuple(column[:, 0] for column in columns)
            paragraphs.append("Without a click above (--json has all):")
        rows = [(str(k + 1), f"{v:.3f}", bracketed(a, b)) for k, (v, a, b) in enumerate(zip(*columns, strict=True))]
        paragraphs.append(Table(("number", name, "95% interval"), rows, names=0).text())
    return "\n\n".join(paragraphs)


@options.reads_data("label", "qid", "document_id", "features", "carry")
def simulate(
    data: Annotated[Path, typer.Argument(help="Labelled data; labels say what users like.")],
    scores: Annotated[
        list[Path],
        typer.Argument(metavar="SCORES...", help="Files of scores to rank by; sessions alternate between them."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the log: .parquet, .arrow, .csv.")],
    click_model: Annotated[
        str, typer.Option(help="How users click: PBM, UBM, Cascade, DCM, SDBN, DBN or CCM.")
    ] = "PBM",
    examination: Annotated[
        str | None,
        typer.Option(
            help="P(looked at), such as 1,0.5,0.3; by position for PBM, by the distance to the last click for UBM. "
            "Default: 1 / position."
        ),
    ] = None,
    continuation: Annotated[
        str | None, typer.Option(help="DBN: P(go on); DCM: by position; CCM: after a skip, a click, a good click.")
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, help="Number of lists to show.")] = 10_000,
    k: Annotated[int, typer.Option(min=1, help="Documents in each list.")] = 10,
    noise: Annotated[float, typer.Option(help="P(click | looked at, not liked).")] = 0.1,
    trust: Annotated[
        str | None,
        typer.Option(help="P(click | looked at, not liked) by position, such as 0.4,0.3,0.2, instead of --noise."),
    ] = None,
    exploration: Annotated[float, typer.Option(help="Share of sessions with an altered list.")] = 0.0,
    way: Annotated[
        str,
        typer.Option(help="How lists are altered: shuffle; swap the first with another; or swap two neighbours."),
    ] = "shuffle",
    popularity: Annotated[float, typer.Option(help="Query i is asked in proportion to 1 / i^popularity.")] = 0.0,
    disagreement: Annotated[
        float, typer.Option(help="Share of relevance shuffled among the documents of a query.")
    ] = 0.0,
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
    users = _known(click_model, examination, continuation, k)
    believed = _probabilities(trust, "--trust") if trust else None
    if believed is not None and len(believed) < k:
        raise typer.BadParameter(f"--trust gives {len(believed)} positions, and --k {k}; give one for each.")
    documents = common.read_data(data, quiet, reading)
    names = [path.stem for path in scores]
    if len(set(names)) < len(names):
        raise typer.BadParameter("two files of scores have the same name, which is that of the ranker; rename one.")
    rankings = {path.stem: read_scores(path, documents.n_documents) for path in scores}
    with common.progress("Simulating …", quiet):
        log = simulated(
            documents, rankings, users, sessions, k=k, noise=noise, exploration=exploration, way=cast(Any, way),
            trust=None if believed is None else ([1.0] * len(believed), believed),
            popularity=popularity, disagreement=disagreement, seed=seed, order="source",
        )  # fmt: skip
    write(log, output)
    common.say(f"{output}: {log}", quiet)


def _known(name: str, examination: str | None, continuation: str | None, k: int) -> ClickModel:
    """The users that are asked for."""
    from toprank.clicks import CCM, DBN, DCM, PBM, SDBN, UBM, Cascade
    from toprank.clicks.held_out import model_named

    kind, looks = model_named(name), (PBM, UBM)
    if (examination is not None and kind not in looks) or (continuation is not None and kind not in (DBN, DCM, CCM)):
        raise typer.BadParameter("--examination belongs to PBM and UBM, --continuation to DBN, DCM and CCM.")
    if kind in looks:
        by_rank = [1 / place for place in range(1, k + 1)]
        looked = _probabilities(examination, "--examination") if examination else by_rank
        if len(looked) < k:
            raise typer.BadParameter(f"--examination gives {len(looked)} positions, and --k {k}; give one for each.")
        below = [[looked[place - click] if click <= place else 0.0 for click in range(k + 1)] for place in range(k)]
        return PBM.known(looked) if kind is PBM else UBM.known(below)
    if kind is SDBN or kind is Cascade:
        return kind()
    numbers = _probabilities(continuation, "--continuation") if continuation else []
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


def _probabilities(text: str, option: str) -> list[float]:
    wanted = f"{option} takes probabilities, separated by commas"
    numbers = _by_position(text, wanted)
    if not all(0 <= number <= 1 for number in numbers):
        raise typer.BadParameter(f"{wanted}, not '{text}'.")
    return numbers


def _by_position(text: str, wanted: str) -> list[float]:
    """Return numbers whose place tells what they are; refuse an empty place, which would move those behind it."""
    numbers = options.numbers_of(text, float, wanted)
    if len(numbers) <= text.count(","):
        raise typer.BadParameter(f"{wanted}, not '{text}'.")
    return numbers


OneLog = Annotated[Path, typer.Argument(metavar="LOG", help="A log of clicks on documents of DATA.")]
Propensities = Annotated[
    str | None,
    typer.Option(
        help="One number per position, such as 1,0.5,0.3; or a method: all-pairs, pivot, chain, randomisation, trust, "
        "regression-em, dual. Default: all-pairs.",
        show_default=False,
        rich_help_panel=helping.PROPENSITIES,
    ),
]
Offsets = Annotated[
    str | None,
    typer.Option(
        help="P(click) that trust adds at each position: β, where --propensities are α.",
        rich_help_panel=helping.PROPENSITIES,
    ),
]
Clip = Annotated[
    float | None,
    typer.Option(
        help="The least propensity to divide by, which caps the weight of a click. Default: 0 if the propensities "
        "are given, otherwise and with dr 10/√sessions.",
        show_default=False,
        rich_help_panel=helping.PROPENSITIES,
    ),
]
HalfLife = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN",
        help="The age at which a session counts half as much as the newest: 14d, 36h, or seconds. Default: all count "
        "alike.",
        show_default=False,
        rich_help_panel=helping.AGE,
    ),
]
Window = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN",
        help="Leave out sessions that are older than the newest by more than this: 90d, 12h, or seconds.",
        show_default=False,
        rich_help_panel=helping.AGE,
    ),
]
Latest = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Hold out the latest sessions, by this column of the log, such as time.",
        show_default=False,
        rich_help_panel=helping.AGE,
    ),
]
Holdout = Annotated[
    float, typer.Option(help="With --by: the share of the sessions to hold out.", rich_help_panel=helping.AGE)
]


@reads_log
@options.reads_data(*options.DOCUMENTS)
def train(
    log: OneLog,
    data: Annotated[Path, typer.Argument(help="Features of the documents; only --full uses labels.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the model.")],
    system: options.System = "ListNet",
    correction: Annotated[
        str, typer.Option(help="none, ips, snips, affine, dr or safe; for trees also position.")
    ] = "affine",
    propensities: Propensities = None,
    offsets: Offsets = None,
    context: Context = None,
    clip: Clip = None,
    reward: Annotated[str, typer.Option(help="What to learn: click or value.")] = "click",
    within: Annotated[
        float, typer.Option(help="With safe: the factor by which exposure may differ from the log's.")
    ] = 1.5,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Train even if the loss is not linear in the gains.")
    ] = False,
    naive: Annotated[Path | None, typer.Option(help="Where to write the naive model.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Also train on the labels of DATA, for comparison.")] = False,
    valid: Annotated[Path | None, typer.Option(help="Labelled data to compare the models on.")] = None,
    folds: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of folds of queries, to compare the models on queries new to them; 0: hold out nothing.",
        ),
    ] = 5,
    by: Latest = None,
    holdout: Holdout = 0.2,
    half_life: HalfLife = None,
    window: Window = None,
    setting: options.Settings = None,
    json: options.Json = False,
    html: options.Html = None,
    columns: options.Reading = options.NOTHING,
    reading: options.Reading = options.NOTHING,
    quiet: options.Quiet = False,
) -> None:
    """Train a ranker on clicks corrected for position, and a naive one without the correction for comparison.

    Held-out queries decide which of the two to take. With few clicks, --correction dr is the safer choice.

    For example:

    \b
      toprank clicks train log.parquet products.parquet --system ListNet --correction affine -o m.toprank
      toprank clicks train log.csv train.txt --propensities 1,0.5,0.3 --correction snips -o m.toprank
      toprank clicks train log.csv train.txt -o m.toprank --full --valid vali.txt --html clicks.html
      toprank clicks train log/ products.parquet -o next.toprank --by time --half-life 14d --window 90d
      toprank clicks train log.parquet products.parquet --context device -o m.toprank
    """
    from toprank import systems
    from toprank.clicks import train as trained

    common.check_writable(output, "model.toprank")
    if naive is not None:
        common.check_writable(naive, "naive.toprank")
    common.check_writable(html)
    if folds == 1:
        raise typer.BadParameter("--folds takes two or more, or 0: one part leaves no others to learn from.")
    ranker = systems.make(system, **options.settings_of(setting))
    curves, crossed = curves_of(propensities, offsets), context_of(context)
    click_log = read_log([log], quiet, columns, crossed)
    documents, held_out = _documents(data, valid, quiet, reading)
    with common.progress("Training …", quiet):
        result = trained(
            ranker, click_log, documents, correction, curves, context=crossed, clip=clip, within=within, reward=reward,
            approximate=approximate, full=full, valid=held_out, folds=folds, by=by, holdout=holdout,
            half_life=half_life, window=window,
        )  # fmt: skip
    result.ranker.training_["system"] = systems.get(system).name
    result.ranker.save(output)
    if naive is not None:
        result.naive.training_["system"] = systems.get(system).name
        result.naive.save(naive)
    if html is not None:
        _write_page(html, click_log, documents, result, log.name, quiet)
    if json:
        common.print_json({"model": str(output), "system": systems.get(system).name, **result.to_dict()})
        return
    typer.echo(str(result))
    common.say(f"{output}: {systems.get(system).name}, {result.ranker.n_features_in_} features", quiet)
    if result.choice == "naive" and correction != "none" and naive is None:
        common.say("The naive model is the choice here: --naive FILE writes it.", quiet)


@reads_log
@options.reads_data(*options.DOCUMENTS)
def evaluate(
    scores: Annotated[Path, typer.Argument(help="One score per document of DATA.")],
    log: OneLog,
    data: Annotated[Path, typer.Argument(help="The documents; labels are ignored.")],
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            "--metric",
            "-m",
            help="dcg@k, ctr@k, clicks@k, value@k and value-dcg@k, separated by commas.",
        ),
    ] = "dcg@10",
    estimator: Annotated[str, typer.Option(help="ips, snips, affine, dr or none.")] = "snips",
    propensities: Propensities = None,
    offsets: Offsets = None,
    context: Context = None,
    clip: Clip = None,
    by: Latest = None,
    holdout: Holdout = 0.2,
    half_life: HalfLife = None,
    window: Window = None,
    json: options.Json = False,
    columns: options.Reading = options.NOTHING,
    reading: options.Reading = options.NOTHING,
    quiet: options.Quiet = False,
) -> None:
    """Estimate how well a ranking would do with users, from a log that other rankers produced.

    For example:

    \b
      toprank clicks evaluate new.scores log.parquet products.parquet --metrics dcg@10
      toprank clicks evaluate new.scores log.csv test.txt --propensities 1,0.5,0.3 --metrics dcg@3,ctr@3 --estimator dr
    """
    from toprank.clicks import evaluate as evaluated
    from toprank.data.scores import read_scores

    curves, crossed = curves_of(propensities, offsets), context_of(context)
    click_log = read_log([log], quiet, columns, crossed)
    documents, _ = _documents(data, None, quiet, reading)
    values = read_scores(scores, documents.n_documents)
    wanted = options.words_of(metrics)
    further: dict[str, Any] = {"estimator": estimator, "propensities": curves, "context": crossed, "clip": clip}
    further |= {"by": by, "holdout": holdout, "half_life": half_life, "window": window}
    evaluation = evaluated(values, click_log, documents, wanted, order="source", **further)
    common.print_result(evaluation, json=json)


def labels_are_read(data: Path, reading: options.Reading) -> bool:
    """Whether a file has labels, so far as can be told before it is read; documents of a log need none."""
    return "label" in reading or common.file_format(data) not in common.TABLES or common.has_label(data)


def _documents(
    data: Path, valid: Path | None, quiet: bool, reading: options.Reading
) -> tuple[RankingData, RankingData | None]:
    """The documents, which need no labels, and labelled ones to compare models on."""
    if labels_are_read(data, reading):
        return common.read_both(data, valid, quiet, reading)
    documents = common.read_data(data, quiet, {**reading, "label": False})
    return documents, None if valid is None else common.read_alike(valid, quiet, reading, like=documents)


def _write_page(html: Path, log: ClickLog, data: RankingData, result: Trained, name: str, quiet: bool) -> None:
    from toprank.clicks import check
    from toprank.clicks.log import named
    from toprank.report.clicks import clicks_page, rankers_section
    from toprank.report.page import write_page

    with common.progress("Examining …", quiet):
        report = check(log, named(data), resamples=100)
    write_page(html, clicks_page(report, name, None, rankers_section(result)))
    common.say(f"{html}: the report", quiet)


def curves_of(propensities: str | None, offsets: str | None) -> Any:
    """A method's name, numbers, or two rows of numbers."""
    slope = _row(propensities, "--propensities")
    if offsets is None:
        return slope
    offset = _row(offsets, "--offsets")
    if not isinstance(slope, list) or not isinstance(offset, list) or len(slope) != len(offset):
        raise typer.BadParameter("--offsets takes as many numbers as --propensities, one for each position.")
    return [slope, offset]


def _row(text: str | None, option: str) -> list[float] | str | None:
    if text is None or not any(letter.isdigit() for letter in text):
        return text
    return options.numbers_of(text, float, f"{option} takes numbers separated by commas")


Confidence = Annotated[float, typer.Option(help="Confidence level of the interval, over all looks together.")]


@reads_log
def interleave(
    log: Log,
    confidence: Confidence = 0.95,
    json: options.Json = False,
    columns: options.Reading = options.NOTHING,
    quiet: options.Quiet = False,
) -> None:
    """Say which of two interleaved models users click more, with an interval that holds whenever you look.

    The unit is the query. The command also checks that both models began equally many lists.

    For example:

    \b
      toprank clicks interleave log/
      toprank clicks interleave log/ --json
    """
    from toprank.clicks import interleaved_release

    common.print_result(interleaved_release(read_log(log, quiet, columns), confidence=confidence), json=json)


@reads_log
def ab(
    log: Log,
    metric: Annotated[str, typer.Option(help="What to compare per unit: click or value.")] = "click",
    arms: Annotated[
        str | None,
        typer.Option(help="The new arm and the current one, such as new,old. Default: the larger one is the current."),
    ] = None,
    confidence: Confidence = 0.95,
    json: options.Json = False,
    columns: options.Reading = options.NOTHING,
    quiet: options.Quiet = False,
) -> None:
    """Compare the arms of an A/B test, with an interval that holds whenever you look.

    The unit is the key of a request, such as a user. The command also checks that the arms have their planned shares.

    For example:

    \b
      toprank clicks ab log/
      toprank clicks ab log/ --metric value --values purchase=value
    """
    from toprank.clicks import ab as compared

    names = None if arms is None else options.words_of(arms)
    if names is not None and len(names) != 2:
        raise typer.BadParameter(f"--arms takes two names, the new arm and the current one, not '{arms}'.")
    release = compared(read_log(log, quiet, columns), metric, arms=names, confidence=confidence)
    common.print_result(release, json=json)


COMMANDS: tuple[Callable[..., None], ...] = (check, fit, simulate, train, evaluate, interleave, ab)
