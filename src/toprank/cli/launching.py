"""`toprank launch`: whether a new model should take the place of the current one, from a log of clicks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, helping, options
from toprank.cli.clicks import (
    Clip,
    Context,
    HalfLife,
    Holdout,
    Latest,
    Offsets,
    OneLog,
    Propensities,
    Window,
    context_of,
    curves_of,
    labels_are_read,
    read_log,
    reads_log,
)

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData


@reads_log
@options.reads_data(*options.DOCUMENTS)
def launch(
    log: OneLog,
    data: Annotated[Path, typer.Argument(help="The documents, with the features of both models.")],
    new: Annotated[Path, typer.Option(help="The model to decide about.")],
    current: Annotated[Path, typer.Option(help="The model that serves now.")],
    metric: Annotated[str, typer.Option(help="What to count: click or value.")] = "click",
    k: Annotated[
        int | None,
        typer.Option(min=1, help="Count only the first N positions. Default: 10, or as many as the log has."),
    ] = None,
    estimator: Annotated[str, typer.Option(help="The estimator that decides: ips, snips or dr.")] = "snips",
    propensities: Propensities = None,
    offsets: Offsets = None,
    context: Context = None,
    clip: Clip = None,
    most: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="The most that a document that was never shown can be worth. Default: 1 for clicks."
        ),
    ] = None,
    minimum: Annotated[
        int, typer.Option(min=1, help="Decide only from an effective sample of at least this many impressions.")
    ] = 1000,
    slices: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Also report by slice: a column of the data, or head:COLUMN for head and tail."
        ),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Data the new model was trained for, to report what has drifted since.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Use only sessions since this time: a date such as 2026-11-18, or seconds since 1970.",
            rich_help_panel=helping.AGE,
        ),
    ] = None,
    by: Latest = None,
    holdout: Holdout = 0.2,
    half_life: HalfLife = None,
    window: Window = None,
    confidence: options.Confidence = 0.95,
    html: options.Html = None,
    json: options.Json = False,
    columns: options.Reading = options.NOTHING,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Decide whether to launch a new model, before users see it; exit status 0: launch, 3: do not, 4: cannot say.

    LOG must hold sessions that neither model learned from, and some of its lists must have been explored. With --by
    time only the latest sessions count: the ones that `toprank clicks train --by time` held out.

    For example:

    \b
      toprank launch log/ products.parquet --new next.toprank --current m.toprank --html launch.html
      toprank launch log.parquet test.txt --new next.toprank --current m.toprank --propensities 1,0.5,0.3 --k 3
      toprank launch log/ products.parquet --new a.toprank --current b.toprank --metric value --values purchase=value
      toprank launch log/ products.parquet --new next.toprank --current m.toprank --by time --half-life 14d
    """
    from toprank.clicks import launch as launched
    from toprank.rankers.model_files import digest_of, load

    common.check_writable(html, "launch.html")
    start = None if since is None else _seconds(since)
    curves, crossed = curves_of(propensities, offsets), context_of(context)
    models = [load(path) for path in (new, current)]
    click_log = read_log([log], quiet, columns, crossed)
    reading = common.carrying(data, slices, reading)
    documents = _documents(data, quiet, reading, models[0])
    others = (
        None if _columns_read(models[0]) == _columns_read(models[1]) else _documents(data, quiet, reading, models[1])
    )
    past = None if reference is None else _documents(reference, quiet, reading, models[0])
    names = (new.stem, current.stem) if new.stem != current.stem else (str(new), str(current))
    with common.progress("Comparing …", quiet):
        decided = launched(
            click_log, documents, models[0], models[1], metric, k=k, estimator=estimator, propensities=curves,
            context=crossed, clip=clip, most=most, minimum=minimum, slices=slices, reference=past, since=start, by=by,
            holdout=holdout, half_life=half_life, window=window, version=digest_of(current),
            current_data=others, names=names, confidence=confidence, seed=seed,
        )  # fmt: skip
    decided = replace(decided, no_answer=common.with_options(decided.no_answer))
    if html is not None:
        from toprank.report.launching import launch_page
        from toprank.report.page import write_page

        write_page(html, launch_page(decided, f"{names[0]} against {names[1]}"))
        common.say(f"{html}: the report", quiet)
    common.print_result(decided, json=json)
    raise typer.Exit(decided.status)


def _documents(path: Path, quiet: bool, reading: options.Reading, ranker: Any) -> RankingData:
    """Read documents in the columns of a model, with labels if there are any."""
    unlabelled = {} if labels_are_read(path, reading) else {"label": False}
    return common.read_alike(path, quiet, {**reading, **unlabelled}, like=ranker)


def _columns_read(ranker: Any) -> tuple[Any, ...]:
    """Return what decides how a file is read for a ranker; a ranker that matches words reads unlike any other."""
    names, first = getattr(ranker, "feature_names_in_", ()), getattr(ranker, "first_feature_id_", None)
    words = None if ranker.text_ is None else id(ranker)
    return ranker.n_features_in_, tuple(names), first, ranker.encoding_, words


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"--since takes a date such as 2026-11-18, or seconds since 1970, not '{text}'."
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
