"""`toprank monitor`: detect data drift."""

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
"""Exit status for an alarm; 1 means bad input, 2 wrong usage."""


@dataclass(frozen=True)
class Monitored:
    """A model, and the two data sets to compare."""

    model: Model
    reference: Annotated[Path, typer.Argument(help="Reference queries, from the time of training; labels are ignored.")]
    new: Annotated[Path, typer.Argument(help="New queries; labels are ignored.")]
    shadow: Annotated[Path | None, typer.Option(help="A second model, to report how differently it ranks NEW.")] = None


def monitor(
    files: Monitored,
    output: Annotated[options.Output, options.only("json", "html")],
    read: reading.OfDocuments,
    psi_threshold: Annotated[
        float, typer.Option(min=0.0, help="Smallest population stability index (PSI) that raises an alarm.")
    ] = 0.1,
    k: Annotated[int, typer.Option(min=1, help="Depth of DCG, and of the comparison with --shadow.")] = 10,
    confidence: Annotated[float, typer.Option(help="Confidence level for intervals and alarms.")] = 0.95,
    seed: options.Seed = 0,
) -> None:
    """Detect drift between reference data and new data. The exit status is 3 if an alarm is raised.

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
    """Read the feature columns of a model; new category levels are kept, so that drift counts them."""
    names = getattr(ranker, "feature_names_in_", None)
    if common.file_format(path) not in common.TABLES or names is None:
        return common.read_alike(path, read, like=ranker)
    try:
        known = common.remembered(path, ranker)
        return common.read_data(path, {**known, "label": False, "features": list(names), **read})
    except UnknownNameError as problem:
        if "features" in read:  # the name comes from the command line
            raise
        raise DataError(f"{path} lacks input columns of the model. {problem}") from None
