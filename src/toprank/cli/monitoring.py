"""`toprank monitor`: whether a ranker still meets what it was trained for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options, reading
from toprank.cli.predicting import Model
from toprank.errors import DataError, UnknownNameError

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.rankers.base import Ranker

ALARM = 3
"""Exit status of an alarm, which is neither bad input (1) nor wrong usage (2)."""


@dataclass(frozen=True)
class Monitored:
    """A model, and the data that are compared."""

    model: Model
    reference: Annotated[Path, typer.Argument(help="Queries like those the model was trained for; labels are ignored.")]
    new: Annotated[Path, typer.Argument(help="Queries that the model gets now; labels are ignored.")]
    shadow: Annotated[Path | None, typer.Option(help="A second model; report how differently it ranks NEW.")] = None


def monitor(
    files: Monitored,
    output: Annotated[options.Output, options.only("json", "html")],
    read: reading.OfDocuments,
    psi_threshold: Annotated[float, typer.Option(min=0.0, help="Smallest PSI that can raise an alarm.")] = 0.1,
    k: Annotated[int, typer.Option(min=1, help="Depth of DCG, and of the top compared with the shadow's.")] = 10,
    confidence: Annotated[float, typer.Option(help="Confidence level for intervals and alarms.")] = 0.95,
    seed: options.Seed = 0,
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

    common.check_writable(output.html, "drift.html")
    ranker = load(files.model)
    other = None if files.shadow is None else load(files.shadow)
    sides = [_read(path, options.keywords_of(read), ranker) for path in (files.reference, files.new)]
    with common.progress("Comparing …"):
        drift = compared(
            ranker, *sides, shadow=other, k=k, psi_threshold=psi_threshold, confidence=confidence, seed=seed
        )
    drift = replace(drift, no_dcg_reason=common.with_options(drift.no_dcg_reason))

    def write(html: Path) -> None:
        from toprank.report.drift import drift_page
        from toprank.report.page import write_page

        write_page(html, drift_page(drift, f"{files.model.name}: {files.new.name} against {files.reference.name}"))

    output.write(write)
    output.show(drift)
    if drift.alarms:
        raise typer.Exit(ALARM)


def _read(path: Path, read: dict[str, Any], ranker: Ranker) -> RankingData:
    """Read the features of a model; categories of a table keep levels new to the model, so that these are counted."""
    names = getattr(ranker, "feature_names_in_", None)
    if common.file_format(path) not in common.TABLES or names is None:
        return common.read_alike(path, read, like=ranker)
    try:
        known = common.remembered(path, ranker)
        return common.read_data(path, {**known, "label": False, "features": list(names), **read})
    except UnknownNameError as problem:
        if "features" in read:  # a name that was typed
            raise
        raise DataError(f"{path} lacks columns that the model takes. {problem}") from None
