"""`toprank tune`: search hyper-parameters and write the best model to a file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options, reading
from toprank.cli.options import refuse_set, settings_of, value_of
from toprank.cli.training import VALID_AND_TIME, TrainedModel, check_judge, read_to_learn
from toprank.data.command_line import command_line
from toprank.errors import require_extra

if TYPE_CHECKING:
    from toprank.systems import System


@dataclass(frozen=True)
class SearchOptions:
    """The system, its search space, and the data and metric of the evaluation."""

    system: Annotated[
        str | None, typer.Option(help="System to tune; `toprank systems` lists them. Default: YetiRank.")
    ] = None
    valid: Annotated[
        Path | None, typer.Option(help="Validation data. Default: hold out a fifth of the queries of DATA.")
    ] = None
    folds: Annotated[
        int | None, typer.Option(min=2, help="Number of folds for cross-validation over queries instead.")
    ] = None
    time_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of dates: the latest fifth is held out, or --folds follow time."),
    ] = None
    n_trials: Annotated[
        int, typer.Option(min=1, help="Total number of trials, including earlier ones of a resumed study.")
    ] = 50
    time_budget: Annotated[float | None, typer.Option(help="Time limit of the search in seconds. Default: none.")] = (
        None
    )
    space: Annotated[
        list[str] | None,
        typer.Option("--space", help="name=low:high, name=low:high:log or name=a,b,c. Repeatable."),
    ] = None
    setting: options.Settings = None
    metric: Annotated[str | None, typer.Option(help="Metric to optimize. Default: the system's metric.")] = None
    convention: options.ConventionName = "standard"
    unjudged: options.OfUnjudged = None


@dataclass(frozen=True)
class StudyFiles:
    """Storage and plot of the study."""

    storage: Annotated[
        Path | None, typer.Option(help="SQLite file that stores the study, so that it can be resumed.")
    ] = None
    study_name: Annotated[str | None, typer.Option(help="Name of the study in that file.")] = None
    plot: Annotated[Path | None, typer.Option(help="Plot importance and history: .svg, .png or .pdf.")] = None


def tune(
    data: options.Learned,
    model: options.Model,
    search: SearchOptions,
    study: StudyFiles,
    output: options.JsonOutput,
    read: reading.OfLearned,
    running: options.Training,
) -> None:
    """Search hyper-parameters, fit the best system, and write the model to a file.

    For example:

    \b
      toprank tune train.txt --valid vali.txt --system YetiRank --time-budget 300 -o m.toprank
      toprank tune log.parquet --time-column date -o m.toprank
      toprank tune train.txt --folds 5 --n-trials 100 --storage study.db --plot study.svg -o m.toprank
      toprank tune train.txt --valid vali.txt --space num_leaves=8:128:log --space l2=0.1,1,10 -o m.toprank
    """
    from toprank.model_selection.tuning import tune as tuned_by

    chosen, fixed, space = _checked(search)
    common.check_writable(model, "model.toprank")
    _check_plot(study.plot)
    keywords = {**options.keywords_of(read), "threads": running.threads}
    documents, held_out = read_to_learn(data, search.valid, search.time_column, search.unjudged, keywords)
    tuned = tuned_by(
        chosen,
        documents,
        held_out,
        metric=search.metric,
        convention=search.convention,
        n_trials=search.n_trials,
        time_budget=search.time_budget,
        space=space or None,
        folds=search.folds,
        time_column=search.time_column,
        storage=study.storage,
        study_name=study.study_name,
        seed=running.seed,
        threads=running.threads,
        verbose=not common.is_quiet(),
        **fixed,
    )
    tuned.ranker.training_ |= {
        "system": chosen.name,
        "convention": search.convention,
        "command": command_line(),
        "tuned": {"metric": tuned.metric, "value": tuned.value, "trials": len(tuned.trials), "on": tuned.evaluated_on},
    }
    done = TrainedModel(
        tuned.ranker, chosen.name, tuned.name, tuned.metric, tuned.to_dict, partial(str, tuned), tuned.interrupted
    )
    done.save(model)
    if study.plot is not None:
        tuned.plot(study.plot)
    done.report(model, output.json)


def _checked(search: SearchOptions) -> tuple[System, dict[str, Any], dict[str, Any]]:
    """Return the system, the fixed settings and the search space; refuse invalid ones before reading data."""
    from toprank import systems
    from toprank.model_selection import AUTO
    from toprank.model_selection.space import read_space
    from toprank.model_selection.tuning import tune as tuned_by

    name = search.system or systems.RECOMMENDED
    if name.strip().lower() == AUTO:
        raise typer.BadParameter("auto selects among systems and needs toprank train; tune searches one system.")
    if search.time_column is not None and search.valid is not None:
        raise VALID_AND_TIME
    require_extra("optuna", "tune", "toprank tune")
    chosen, fixed, space = systems.get(name), settings_of(search.setting), _space(search.space or [])
    for setting in fixed:
        if setting in signature(tuned_by).parameters:
            raise refuse_set(setting, "is an option of the search")
    read_space(chosen, space or None, chosen.plain_options(fixed))
    check_judge(search.metric, search.convention)
    return chosen, fixed, space


def _check_plot(plot: Path | None) -> None:
    from toprank.display.pictures import check_picture_path

    common.check_writable(plot, "study.svg")
    if plot is not None:
        check_picture_path(plot)


def _space(pairs: list[str]) -> dict[str, Any]:
    """Parse a search space: ``low:high`` and ``low:high:log`` are ranges, ``a,b,c`` or a JSON list are choices.

    >>> _space(["num_leaves=8:128:log", "l2=0.1,1", "hidden=[[64],[32,32]]"])
    {'num_leaves': (8, 128, 'log'), 'l2': [0.1, 1], 'hidden': [[64], [32, 32]]}
    >>> _space(["hidden=(64,),(32,32)"])
    {'hidden': [(64,), (32, 32)]}
    """
    space: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name or not text:
            raise typer.BadParameter(f"--space takes name=low:high, name=low:high:log or name=a,b,c, not '{pair}'.")
        if name in space:
            raise typer.BadParameter(f"--space is passed twice for {name}.")
        listed = value_of(text)
        if text.startswith("(") and not (isinstance(listed, list) and listed and isinstance(listed[0], tuple)):
            raise typer.BadParameter(f"--space {pair}: a range is {name}=low:high, a choice {name}=a,b,c.")
        if isinstance(listed, list):
            space[name] = listed
        elif "[" in text or "]" in text:
            raise typer.BadParameter(
                f"--space {pair} is not a list: {name}=a,b,c, or JSON as in hidden=[[64],[32,32]]."
            )
        elif "," in text or ":" not in text:
            space[name] = [value_of(part.strip()) for part in text.split(",")]
        else:
            space[name] = tuple(value_of(part.strip()) for part in text.split(":"))
    return space
