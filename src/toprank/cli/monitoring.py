"""`toprank monitor`: whether a ranker still meets what it was trained for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toprank.cli import common, options
from toprank.cli.predicting import Model
from toprank.errors import DataError, UnknownNameError

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.rankers.base import Ranker

ALARM = 3
"""Exit status of an alarm, which is neither bad input (1) nor wrong usage (2)."""


@options.reads_data(*options.DOCUMENTS)
def monitor(
    model: Model,
    reference: Annotated[
        Path, typer.Argument(help="Queries like those the model was trained for; labels are ignored.")
    ],
    new: Annotated[Path, typer.Argument(help="Queries that the model gets now; labels are ignored.")],
    shadow: Annotated[Path | None, typer.Option(help="A second model; report how differently it ranks NEW.")] = None,
    psi: Annotated[float, typer.Option(min=0.0, help="Smallest PSI that can raise an alarm.")] = 0.1,
    k: Annotated[int, typer.Option(min=1, help="Depth of DCG, and of the top compared with the shadow's.")] = 10,
    confidence: Annotated[float, typer.Option(help="Confidence level for intervals and alarms.")] = 0.95,
    json: options.Json = False,
    html: options.Html = None,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Compare today's data with the data a model was trained for; exit status 3 means that somebody should look.

    For example:

    \b
      toprank monitor m.toprank vali.txt today.txt
      toprank monitor m.toprank vali.parquet today.parquet --html drift.html
      toprank monitor m.toprank vali.txt today.txt --shadow next.toprank --json
    """
    from toprank.monitoring import monitor as compared
    from toprank.rankers.model_files import load

    common.check_writable(html, "drift.html")
    ranker = load(model)
    other = None if shadow is None else load(shadow)
    sides = [_read(path, quiet, reading, ranker) for path in (reference, new)]
    with common.progress("Comparing …", quiet):
        drift = compared(ranker, *sides, shadow=other, k=k, psi=psi, confidence=confidence, seed=seed)
    drift = replace(drift, no_dcg_reason=common.with_options(drift.no_dcg_reason))
    if html is not None:
        from toprank.report.drift import drift_page
        from toprank.report.page import write_page

        write_page(html, drift_page(drift, f"{model.name}: {new.name} against {reference.name}"))
        common.say(f"{html}: the report", quiet)
    common.print_result(drift, json=json)
    if drift.alarms:
        raise typer.Exit(ALARM)


def _read(path: Path, quiet: bool, reading: options.Reading, ranker: Ranker) -> RankingData:
    """Read the features of a model; categories of a table keep levels new to the model, so that these are counted."""
    names = getattr(ranker, "feature_names_in_", None)
    if common.file_format(path) not in common.TABLES or names is None:
        return common.read_alike(path, quiet, reading, like=ranker)
    try:
        known = common.remembered(path, ranker)
        return common.read_data(path, quiet, {**known, "label": False, "features": list(names), **reading})
    except UnknownNameError as problem:
        if "features" in reading:  # a name that was typed
            raise
        raise DataError(f"{path} lacks columns that the model takes. {problem}") from None
