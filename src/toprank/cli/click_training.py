"""`toprank clicks train` and `evaluate`: train and evaluate rankers on click logs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, helping, options, reading

if TYPE_CHECKING:
    from toprank.clicks import ClickLog, ClickTrainingResult
    from toprank.data.dataset import RankingData

Log = Annotated[
    list[Path],
    typer.Argument(
        metavar="LOG...",
        help="A log: Parquet, CSV, JSON lines or the Yandex format; ubi_queries and ubi_events; or a folder with the "
        "files of one log, such as that of `toprank serve`.",
    ),
]
OneLog = Annotated[Path, typer.Argument(metavar="LOG", help="A log of clicks on documents of DATA.")]


def _column(role: str, none: str = "") -> Any:
    words = f"Column of the log with the {role}{none}."
    return typer.Option(metavar="COLUMN", help=words, show_default=False, rich_help_panel=helping.LOG)


@dataclass(frozen=True)
class LogColumns:
    """Columns of a log, as options for the keyword arguments of `toprank.clicks.read`."""

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
            help="For a log of events: value of each kind, such as click=1,cart=5,purchase=value.",
            show_default=False,
            rich_help_panel=helping.LOG,
        ),
    ] = None
    first_position: Annotated[
        int, typer.Option(min=0, max=1, help="The number of the first position: 1 or 0.", rich_help_panel=helping.LOG)
    ] = 1

    @property
    def keywords(self) -> dict[str, Any]:
        """The given options as keyword arguments of `toprank.clicks.read`; '' means no such column."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: False if value == "" else value for name, value in given.items() if value is not None}


def read_log(paths: list[Path], columns: LogColumns, context: list[str] | None = None) -> ClickLog:
    """Read a log, with progress, and with the columns of a context."""
    from toprank.clicks import read

    with common.progress(f"Reading {paths[0]} …"):
        return read(paths if len(paths) > 1 else paths[0], metadata=context or (), **columns.keywords)


Context = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the log, such as device or module, whose values have separate propensities. Several "
        "columns, separated by commas, are crossed.",
        show_default=False,
        rich_help_panel=helping.PROPENSITIES,
    ),
]


def context_of(text: str | None) -> list[str] | None:
    """Return the columns of a context."""
    if text is None:
        return None
    names = options.words_of(text)
    if not names:
        raise typer.BadParameter("--context takes the name of a column of the log, or several, separated by commas.")
    return names


@dataclass(frozen=True)
class Bias:
    """Propensities, and their clipping."""

    propensities: Annotated[
        str | None,
        typer.Option(
            help="One number per position, such as 1,0.5,0.3; or a method: all-pairs, pivot, chain, randomization, "
            "trust, regression-em, dual. Default: all-pairs.",
            show_default=False,
            rich_help_panel=helping.PROPENSITIES,
        ),
    ] = None
    offsets: Annotated[
        str | None,
        typer.Option(
            help="Trust offsets β, one number per position; --propensities are then the slopes α.",
            rich_help_panel=helping.PROPENSITIES,
        ),
    ] = None
    context: Context = None
    clip: Annotated[
        float | None,
        typer.Option(
            help="Smallest propensity to divide by, which limits the weight of a click. Default: 0 if propensities are "
            "given; 10/√sessions if they are estimated, and with dr.",
            show_default=False,
            rich_help_panel=helping.PROPENSITIES,
        ),
    ] = None

    @property
    def curves(self) -> Any:
        """The name of a method, numbers, or two rows of numbers."""
        slope = _row(self.propensities, "--propensities")
        if self.offsets is None:
            return slope
        offset = _row(self.offsets, "--offsets")
        if not isinstance(slope, list) or not isinstance(offset, list) or len(slope) != len(offset):
            raise typer.BadParameter("--offsets must have as many numbers as --propensities, one per position.")
        return [slope, offset]

    @property
    def keywords(self) -> dict[str, Any]:
        """Keyword arguments of functions that correct clicks."""
        return {"propensities": self.curves, "context": context_of(self.context), "clip": self.clip}


@dataclass(frozen=True)
class SessionArguments:
    """Selection and weights of sessions."""

    time_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Hold out the latest sessions by this column of the log, such as time.",
            show_default=False,
            rich_help_panel=helping.AGE,
        ),
    ] = None
    holdout: Annotated[
        float,
        typer.Option(help="With --time-column: fraction of the sessions to hold out.", rich_help_panel=helping.AGE),
    ] = 0.2
    half_life: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Age at which a session has half the weight of the newest: 14d, 36h, or seconds. Default: equal "
            "weights.",
            show_default=False,
            rich_help_panel=helping.AGE,
        ),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Drop sessions older than this, relative to the newest: 90d, 12h, or seconds.",
            show_default=False,
            rich_help_panel=helping.AGE,
        ),
    ] = None


def _row(text: str | None, option: str) -> list[float] | str | None:
    if text is None or not any(letter.isdigit() for letter in text):
        return text
    return options.numbers_of(text, float, f"{option} takes numbers separated by commas")


def labels_are_read(data: Path, read: dict[str, Any], ranker: Any = None) -> bool:
    """Return whether a file has labels, as far as known before it is read; documents of a log need none."""
    return "label" in read or common.file_format(data) not in common.TABLES or common.has_label(data, ranker)


def read_documents(data: Path, valid: Path | None, read: dict[str, Any]) -> tuple[RankingData, RankingData | None]:
    """Return the documents, which need no labels, and labeled validation data."""
    if labels_are_read(data, read):
        return common.read_both(data, valid, read)
    documents = common.read_data(data, {**read, "label": False})
    return documents, None if valid is None else common.read_alike(valid, read, like=documents)


@dataclass(frozen=True, kw_only=True)
class ClickTrainOptions:
    """Options of the ranker, the correction of clicks, and the comparison."""

    log: OneLog
    data: Annotated[Path, typer.Argument(help="Documents with features; only --full-information uses their labels.")]
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the model.")]
    system: options.System = "ListNet"
    correction: Annotated[str, typer.Option(help="none, ips, snips, affine, dr or safe; for trees also position.")] = (
        "affine"
    )
    bias: Bias
    reward: Annotated[str, typer.Option(help="The reward to learn: click or value.")] = "click"
    max_exposure_ratio: Annotated[
        float, typer.Option(help="With safe: maximum ratio of the exposure of a document to its exposure in the log.")
    ] = 1.5
    allow_biased_loss: Annotated[
        bool, typer.Option("--allow-biased-loss", help="Allow a loss that is not linear in the gains.")
    ] = False
    naive: Annotated[Path | None, typer.Option(help="Where to write the naive model.")] = None
    full_information: Annotated[
        bool, typer.Option("--full-information", help="Also train on the labels of DATA, for comparison.")
    ] = False
    valid: Annotated[Path | None, typer.Option(help="Labeled data to compare the models on.")] = None
    folds: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of folds of queries for comparing the models; 0: no comparison.",
        ),
    ] = 5
    setting: options.Settings = None

    def check(self, html: Path | None) -> None:
        """Check that files can be written and that there is not a single fold, before any work."""
        common.check_writable(self.output, "model.toprank")
        common.check_writable(self.naive, "naive.toprank")
        common.check_writable(html)
        if self.folds == 1:
            raise typer.BadParameter("--folds must be 2 or more, or 0 for no comparison.")


def train(
    wanted: ClickTrainOptions,
    sessions: SessionArguments,
    output: Annotated[options.Output, options.only("json", "html")],
    columns: LogColumns,
    read: reading.OfDocuments,
) -> None:
    """Train a ranker on clicks corrected for position, and a naive ranker for comparison.

    Held-out queries show which of the two is better. With few clicks, use --correction dr. Exit status 5: the log
    contradicts the propensities, so the choice is the naive model; all files are written.

    For example:

    \b
      toprank clicks train log.parquet products.parquet --system ListNet --correction affine -o m.toprank
      toprank clicks train log.csv train.txt --propensities 1,0.5,0.3 --correction snips -o m.toprank
      toprank clicks train log.csv train.txt -o m.toprank --full-information --valid vali.txt --html clicks.html
      toprank clicks train log/ products.parquet -o next.toprank --time-column time --half-life 14d --window 90d
      toprank clicks train log.parquet products.parquet --context device -o m.toprank
    """
    from toprank import systems
    from toprank.clicks import train as trained

    wanted.check(output.html)
    ranker = systems.make(wanted.system, **options.settings_of(wanted.setting))
    bias = wanted.bias.keywords
    click_log = read_log([wanted.log], columns, bias["context"])
    documents, held_out = read_documents(wanted.data, wanted.valid, options.keywords_of(read))
    further: dict[str, Any] = {
        **bias,
        **vars(sessions),
        "max_exposure_ratio": wanted.max_exposure_ratio,
        "reward": wanted.reward,
    }
    further |= {
        "allow_biased_loss": wanted.allow_biased_loss,
        "full_information": wanted.full_information,
        "folds": wanted.folds,
    }
    with common.progress("Training …"):
        result = trained(ranker, click_log, documents, wanted.correction, valid=held_out, **further)
    name = systems.get(wanted.system).name
    for model, path in ((result.ranker, wanted.output), (result.naive, wanted.naive)):
        if path is not None:
            model.training_["system"] = name
            model.save(path)
    output.write(lambda html: _write_page(html, click_log, documents, result, wanted.log.name))
    if output.json:
        common.print_json({"model": str(wanted.output), "system": name, **result.to_dict()})
    else:
        typer.echo(str(result))
        common.say(f"{wanted.output}: {name}, {result.ranker.n_features_in_} features")
        if result.choice == "naive" and wanted.correction != "none" and wanted.naive is None:
            common.say("The choice is the naive model. Write it with --naive FILE.")
    raise typer.Exit(result.status)


@dataclass(frozen=True)
class Estimated:
    """The ranking to evaluate, the log, the documents, and the estimator."""

    scores: Annotated[Path, typer.Argument(help="Scores, one per document of DATA.")]
    log: OneLog
    data: Annotated[Path, typer.Argument(help="The documents; labels are ignored.")]
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            "--metric",
            "-m",
            help="dcg@k, ctr@k, clicks@k, value@k and value-dcg@k, separated by commas.",
        ),
    ] = "dcg@10"
    estimator: Annotated[str, typer.Option(help="ips, snips, affine, dr or none.")] = "snips"


def evaluate(
    estimated: Estimated,
    bias: Bias,
    sessions: SessionArguments,
    output: options.JsonOutput,
    columns: LogColumns,
    read: reading.OfDocuments,
) -> None:
    """Estimate metrics of a ranking from a log of clicks on lists of other rankers.

    For example:

    \b
      toprank clicks evaluate new.scores log.parquet products.parquet --metrics dcg@10
      toprank clicks evaluate new.scores log.csv test.txt --propensities 1,0.5,0.3 --metrics dcg@3,ctr@3 --estimator dr
    """
    from toprank.clicks import evaluate as evaluated
    from toprank.data.scores import read_scores

    further = bias.keywords
    click_log = read_log([estimated.log], columns, further["context"])
    documents, _ = read_documents(estimated.data, None, options.keywords_of(read))
    values = read_scores(estimated.scores, documents.n_documents)
    wanted = options.words_of(estimated.metrics)
    further |= {"estimator": estimated.estimator, **vars(sessions)}
    output.show(evaluated(values, click_log, documents, wanted, order="source", **further))


def _write_page(html: Path, log: ClickLog, data: RankingData, result: ClickTrainingResult, name: str) -> None:
    from toprank.clicks import check
    from toprank.clicks.log import named
    from toprank.report.clicks import clicks_page, rankers_section
    from toprank.report.page import write_page

    with common.progress("Examining …"):
        report = check(log, named(data), n_resamples=100)
    write_page(html, clicks_page(report, name, None, rankers_section(result)))
