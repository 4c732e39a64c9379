"""`toprank launch-report`: decide from a click log whether a new model should replace the current one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, helping, options, reading
from toprank.cli.click_training import Bias, LogColumns, OneLog, SessionArguments, labels_are_read, read_log

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData


@dataclass(frozen=True)
class LaunchModels:
    """The models, and the log and documents for the decision."""

    log: OneLog
    data: Annotated[Path, typer.Argument(help="The documents, with the features of both models.")]
    new: Annotated[
        list[Path],
        typer.Option(
            help="The new model. Give --new several times to choose between models: the report is about the best."
        ),
    ]
    current: Annotated[Path, typer.Option(help="The model in production.")]


@dataclass(frozen=True, kw_only=True)
class DecisionOptions:
    """Options of the decision."""

    metric: Annotated[str, typer.Option(help="The reward: click or value.")] = "click"
    k: Annotated[
        int | None,
        typer.Option(min=1, help="Depth of the metric. Default: 10, or the depth of the log if it is smaller."),
    ] = None
    estimator: Annotated[str, typer.Option(help="The estimator that decides: ips, snips or dr.")] = "snips"
    bias: Bias
    max_unseen_value: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Maximum value of a document that was never shown. Default: 1 for clicks, the largest observed for "
            "values.",
        ),
    ] = None
    min_effective_sample_size: Annotated[
        int, typer.Option(min=1, help="Minimum effective sample size for a decision, in impressions.")
    ] = 1000
    slice_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Also report by slice: a column of the data, or head:COLUMN for head and tail."
        ),
    ] = None
    n_candidates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of new models compared on these sessions, including earlier ones; it widens the intervals. "
            "Default: the number of --new.",
            show_default=False,
        ),
    ] = None
    reference: Annotated[
        Path | None, typer.Option(help="Data that the new model was trained for, to report drift.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Use only sessions since this time: a date such as 2026-11-18, or seconds since 1970.",
            rich_help_panel=helping.AGE,
        ),
    ] = None
    sessions: SessionArguments
    confidence: options.Confidence = 0.95


def launch_report(
    models: LaunchModels,
    decision: DecisionOptions,
    output: Annotated[options.Output, options.only("html", "json")],
    columns: LogColumns,
    read: reading.OfDocuments,
    seed: options.Seed = 0,
) -> None:
    """Decide from a click log whether a new model should replace the current one.

    Exit status 0: launch; 3: do not launch; 4: undecided; 5: a caveat blocks the decision, such as propensities that
    the log contradicts.

    Neither model may have been trained on the sessions of LOG, and some of its lists must have been explored. With
    --time-column time, only the latest sessions are used: those that `toprank clicks train --time-column time` held
    out.

    For example:

    \b
      toprank launch-report log/ products.parquet --new next.toprank --current m.toprank --html launch.html
      toprank launch-report log.parquet test.txt --new next.toprank --current m.toprank --propensities 1,0.5,0.3 --k 3
      toprank launch-report log/ products.parquet --new a.toprank --current b.toprank --metric value
      toprank launch-report log/ products.parquet --new next.toprank --current m.toprank --time-column time
      toprank launch-report log/ products.parquet --new linear.toprank --new trees.toprank --current m.toprank
    """
    from toprank.clicks import launch_report as estimate_launch
    from toprank.rankers.model_files import digest_of

    common.check_writable(output.html, "launch.html")
    bias = decision.bias.keywords
    further: dict[str, Any] = {"since": None if decision.since is None else _seconds(decision.since)}
    loaded, others_read = _loaded(models)
    *candidates, served = loaded.values()
    *new_names, current_name = loaded
    click_log = read_log([models.log], columns, bias["context"])
    keywords = common.with_metadata(models.data, decision.slice_by, options.keywords_of(read))
    documents = _documents(models.data, keywords, candidates[0])
    further["current_data"] = _documents(models.data, keywords, served) if others_read else None
    past = None if decision.reference is None else _documents(decision.reference, keywords, candidates[0])
    further |= {"reference": past, "names": ("new", current_name), "seed": seed}
    with common.progress("Comparing …"):
        report = estimate_launch(
            click_log, documents, dict(zip(new_names, candidates, strict=True)), served, decision.metric, k=decision.k,
            estimator=decision.estimator, max_unseen_value=decision.max_unseen_value,
            min_effective_sample_size=decision.min_effective_sample_size, slice_by=decision.slice_by,
            n_candidates=decision.n_candidates, version=digest_of(models.current), confidence=decision.confidence,
            **bias, **vars(decision.sessions), **further,
        )  # fmt: skip
    report = replace(report, undecided_reason=common.with_options(report.undecided_reason))

    def write(html: Path) -> None:
        from toprank.report.launching import launch_page
        from toprank.report.page import write_page

        write_page(html, launch_page(report, " against ".join(report.names)))

    output.write(write)
    output.show(report)
    raise typer.Exit(report.status)


def _loaded(models: LaunchModels) -> tuple[dict[str, Any], bool]:
    """Return the models by name, the current one last, and whether it uses other columns than the new ones."""
    from toprank.rankers.model_files import load

    loaded = {name: load(path) for name, path in _names([*models.new, models.current]).items()}
    first, *_ = loaded
    others_read = [name for name, model in loaded.items() if _columns_read(model) != _columns_read(loaded[first])]
    if set(others_read) - {[*loaded][-1]}:
        raise typer.BadParameter(
            f"The models of --new must use the same columns, but '{others_read[0]}' uses other columns than "
            f"'{first}'. Run the command once for each, with --n-candidates {len(models.new)}."
        )
    return loaded, bool(others_read)


def _names(paths: list[Path]) -> dict[str, Path]:
    """Return the models by name: the stems of their files, or the paths if stems are not unique."""
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(paths) else [str(path) for path in paths]
    if len(set(names)) < len(paths):
        raise typer.BadParameter("--new and --current name the same file twice. Give each model once.")
    return dict(zip(names, paths, strict=True))


def _documents(path: Path, read: dict[str, Any], ranker: Any) -> RankingData:
    """Read documents in the columns of a model, with labels if the file has any."""
    unlabeled = {} if labels_are_read(path, read, ranker) else {"label": False}
    return common.read_alike(path, {**read, **unlabeled}, like=ranker)


def _columns_read(ranker: Any) -> tuple[Any, ...]:
    """Return what determines how a file is read for a ranker; rankers that match words never share columns."""
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
