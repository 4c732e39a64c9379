"""`toprank clicks train` and `evaluate`: rankers from clicks, and what clicks say of rankers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options
from toprank.cli.clicks import read_log, reads_log

if TYPE_CHECKING:
    from toprank.clicks import ClickLog, Trained
    from toprank.data.dataset import RankingData

__all__ = ["COMMANDS", "evaluate", "train"]

OneLog = Annotated[Path, typer.Argument(metavar="LOG", help="A log of clicks on documents of DATA.")]
Propensities = Annotated[
    str | None,
    typer.Option(
        help="One for each position, such as 1,0.5,0.3; or a method: all-pairs, pivot, chain, randomisation, trust, "
        "regression-em, dual. Default: all-pairs.",
        show_default=False,
    ),
]
Offsets = Annotated[
    str | None,
    typer.Option(help="P(click) besides, out of trust in each position: β, where --propensities are α."),
]
Clip = Annotated[
    float | None,
    typer.Option(
        help="The least propensity to divide by, which caps the weight of a click. Default: 0 where they are given; "
        "else, and with dr, 10/√sessions.",
        show_default=False,
    ),
]


@reads_log
@options.reads_data(*options.COLUMNS, "missing", "layout", "regroup")
def train(
    log: OneLog,
    data: Annotated[Path, typer.Argument(help="Features of the documents; labels are looked at by --full alone.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the model.")],
    system: Annotated[str, typer.Option(help="Which system; `toprank systems` lists them.")] = "ListNet",
    correction: Annotated[str, typer.Option(help="none, ips, snips, affine, dr, safe; of trees: position.")] = "affine",
    propensities: Propensities = None,
    offsets: Offsets = None,
    clip: Clip = None,
    within: Annotated[float, typer.Option(help="safe: how many times more or less exposure than in the log.")] = 1.5,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Train a loss that is not linear in the gains all the same.")
    ] = False,
    naive: Annotated[Path | None, typer.Option(help="Where to write the naive model.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Train on the labels of DATA too, to compare with.")] = False,
    valid: Annotated[Path | None, typer.Option(help="Labelled data to compare the models on.")] = None,
    folds: Annotated[
        int,
        typer.Option(
            min=0,
            help="Parts of the queries, each ranked by models that were trained on the others, to compare the models; "
            "0: nothing is held out.",
        ),
    ] = 5,
    setting: options.Settings = None,
    json: options.Json = False,
    html: options.Html = None,
    columns: options.Reading = options.NOTHING,
    reading: options.Reading = options.NOTHING,
    quiet: options.Quiet = False,
) -> None:
    """Train a ranker on clicks that are corrected for where documents stood; the naive one is trained beside it.

    Held-out queries tell which of the two to take. For few clicks, --correction dr is the safer one.

    For example:

    \b
      toprank clicks train log.parquet products.parquet --system ListNet --correction affine -o m.toprank
      toprank clicks train log.csv train.txt --propensities 1,0.5,0.3 --correction snips -o m.toprank
      toprank clicks train log.csv train.txt -o m.toprank --full --valid vali.txt --html clicks.html
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
    curves = _curves(propensities, offsets)
    shown = read_log([log], quiet, columns)
    documents, held_out = _documents(data, valid, quiet, reading)
    with common.progress("Training …", quiet):
        done = trained(
            ranker, shown, documents, correction, curves, clip=clip, within=within, approximate=approximate, full=full,
            valid=held_out, folds=folds,
        )  # fmt: skip
    done.ranker.training_["system"] = systems.get(system).name
    done.ranker.save(output)
    if naive is not None:
        done.naive.training_["system"] = systems.get(system).name
        done.naive.save(naive)
    if html is not None:
        _write_page(html, shown, documents, done, log.name, quiet)
    if json:
        common.print_json({"model": str(output), "system": systems.get(system).name, **done.to_dict()})
        return
    typer.echo(str(done))
    common.say(f"{output}: {systems.get(system).name}, {done.ranker.n_features_in_} features", quiet)
    if done.choice == "naive" and correction != "none" and naive is None:
        common.say("The naive model is the choice here: --naive FILE writes it.", quiet)


@reads_log
@options.reads_data(*options.COLUMNS, "missing", "layout", "regroup")
def evaluate(
    scores: Annotated[Path, typer.Argument(help="One score for each document of DATA.")],
    log: OneLog,
    data: Annotated[Path, typer.Argument(help="The documents; labels are not looked at.")],
    metrics: Annotated[str, typer.Option(help="dcg@k and ctr@k, separated by commas.")] = "dcg@10",
    estimator: Annotated[str, typer.Option(help="ips, snips, affine, dr or none.")] = "snips",
    propensities: Propensities = None,
    offsets: Offsets = None,
    clip: Clip = None,
    json: options.Json = False,
    columns: options.Reading = options.NOTHING,
    reading: options.Reading = options.NOTHING,
    quiet: options.Quiet = False,
) -> None:
    """Estimate what a ranking would be worth to the users of a log that was shown by other rankers.

    For example:

    \b
      toprank clicks evaluate new.scores log.parquet products.parquet --metrics dcg@10
      toprank clicks evaluate new.scores log.csv test.txt --propensities 1,0.5,0.3 --metrics dcg@3,ctr@3 --estimator dr
    """
    from toprank.clicks import evaluate as evaluated
    from toprank.data.scores import read_scores

    curves = _curves(propensities, offsets)
    shown = read_log([log], quiet, columns)
    documents, _ = _documents(data, None, quiet, reading)
    values = read_scores(scores, documents.n_documents)
    wanted = [name.strip() for name in metrics.split(",") if name.strip()]
    how: dict[str, Any] = {"estimator": estimator, "propensities": curves, "clip": clip}
    found = evaluated(values, shown, documents, wanted, order="source", **how)
    if json:
        common.print_json(found.to_dict())
    else:
        typer.echo(str(found))


def _documents(
    data: Path, valid: Path | None, quiet: bool, reading: options.Reading
) -> tuple[RankingData, RankingData | None]:
    """The documents, which need no labels, and labelled ones to compare models on."""
    if "label" in reading or common.format_told(data) not in common.TABLES or common.has_label(data):
        return common.read_both(data, valid, quiet, reading)
    documents = common.read_data(data, quiet, {**reading, "label": False})
    return documents, None if valid is None else common.read_alike(valid, quiet, reading, like=documents)


def _write_page(html: Path, log: ClickLog, data: RankingData, done: Trained, name: str, quiet: bool) -> None:
    from toprank.clicks import check
    from toprank.clicks.log import named
    from toprank.report.clicks import rankers_section, write_clicks

    with common.progress("Examining …", quiet):
        report = check(log, named(data), resamples=100)
    write_clicks(html, report, name, None, rankers_section(done))
    common.say(f"{html}: the report", quiet)


def _curves(propensities: str | None, offsets: str | None) -> Any:
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
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} takes numbers separated by commas, not '{text}'.") from None


COMMANDS = [train, evaluate]
