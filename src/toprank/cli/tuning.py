"""`toprank tune`: a search for hyper-parameters, and the model that it ends with."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from toprank.cli import common, stopping
from toprank.cli.columns import GUESSED, Columns, reads_data
from toprank.cli.settings import read_settings, refuse_set, value_of
from toprank.cli.training import leave_interrupted
from toprank.errors import FileError


@reads_data
def tune(
    data: Annotated[Path, typer.Argument(help="Labelled data to learn from.")],
    model: Annotated[Path, typer.Option("--model", help="Where to write the model.")],
    system: Annotated[str, typer.Option(help="Which system; `toprank systems` lists them.")] = "LambdaMART",
    valid: Annotated[
        Path | None, typer.Option(help="Data to judge on. Default: a fifth of the queries of DATA, held out.")
    ] = None,
    folds: Annotated[int | None, typer.Option(min=2, help="Judge on so many folds of whole queries instead.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of the study, those of a resumed one included.")] = 50,
    seconds: Annotated[float | None, typer.Option(help="Time for the search; no limit by default.")] = None,
    space: Annotated[
        list[str] | None,
        typer.Option("--space", help="name=low:high, name=low:high:log or name=a,b,c. May be given several times."),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="key=value; a hyper-parameter to fix. May be given several times.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="What to judge by. Default: the system's own.")] = None,
    convention: common.ConventionName = "standard",
    storage: Annotated[Path | None, typer.Option(help="An SQLite file that keeps the study, to be resumed.")] = None,
    study: Annotated[str | None, typer.Option(help="The name of the study in that file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw importance and history to this .svg file.")] = None,
    json: common.Json = False,
    columns: Columns = GUESSED,
    missing: common.MissingValues = common.Missing.nan,
    layout: common.Layout = None,
    regroup: common.Regroup = False,
    cache: common.Cache = False,
    seed: common.Seed = 0,
    threads: common.TrainingThreads = None,
    quiet: common.Quiet = False,
) -> None:
    """Search hyper-parameters, fit the best, and write it to a file.

    For example:

    \b
      toprank tune train.txt --valid vali.txt --system LambdaMART --seconds 300 --model m.toprank
      toprank tune train.txt --folds 5 --trials 100 --storage study.db --plot study.svg --model m.toprank
      toprank tune train.txt --valid vali.txt --space num_leaves=8:128:log --space l2=0.1,1,10 --model m.toprank
    """
    from toprank import systems
    from toprank.data.typed import typed_command
    from toprank.errors import needs
    from toprank.metrics import Convention, parse
    from toprank.tuning import tune as search
    from toprank.tuning.result import check_picture_path
    from toprank.tuning.space import read_space

    if system.strip().lower() == "auto":
        raise typer.BadParameter("auto belongs to toprank train: it tries several systems; tune searches one.")
    needs("optuna", "tune", "toprank tune")
    chosen, fixed, searched = systems.get(system), read_settings(setting or []), _space(space or [])
    for name in fixed:
        if name in signature(search).parameters:
            raise refuse_set(name, "belongs to the search")
    read_space(chosen, searched or None, chosen.plain_options(fixed))  # refused before anything is read
    if metric is not None:
        parse(metric)
    Convention.of(convention)
    for path in (model, plot):
        if path is not None and not path.parent.is_dir():
            raise FileError(f"{path} cannot be written: the folder {path.parent} does not exist.")
    if plot is not None:
        check_picture_path(plot)
    reading = common.reading_options(missing, columns, layout=layout, regroup=regroup, cache=cache, threads=threads)
    documents, held_out = common.read_both(data, valid, quiet, reading)
    tuned = search(
        chosen,
        documents,
        held_out,
        metric=metric,
        convention=convention,
        trials=trials,
        seconds=seconds,
        space=searched or None,
        folds=folds,
        storage=storage,
        study=study,
        seed=seed,
        threads=threads,
        verbose=common.is_watched(quiet),
        **fixed,
    )
    tuned.ranker.training_ |= {
        "system": chosen.name,
        "convention": convention,
        "command": typed_command(),
        "tuned": {"metric": tuned.metric, "value": tuned.value, "trials": len(tuned.trials), "on": tuned.judged_on},
    }
    cut_off = tuned.stopped.startswith("Interrupted") or bool(stopping.requested())
    if cut_off:
        tuned.ranker.training_["interrupted"] = True
    tuned.ranker.save(model)
    if plot is not None:
        tuned.plot(plot)
    _report(tuned, model, json, quiet)
    if cut_off:
        raise leave_interrupted(model)


def _report(tuned: Any, model: Path, json: bool, quiet: bool) -> None:
    if not json:
        typer.echo(str(tuned))
        common.say(f"{model}: {tuned.system}, {tuned.ranker.n_features_in_} features", quiet)
        return
    names = ("system", "options", "metric", "convention", "value", "interval", "judged_on", "importance", "stopped")
    common.print_json(
        {
            **{name: getattr(tuned, name) for name in names},
            "trials": tuned.trials,
            "model": str(model),
            "training": tuned.ranker.training_,
        }
    )


def _space(pairs: list[str]) -> dict[str, Any]:
    """What to search: ``low:high`` and ``low:high:log`` as ranges, ``a,b,c`` or a JSON list as choices.

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
            raise typer.BadParameter(f"--space names {name} twice.")
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
