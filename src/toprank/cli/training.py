"""`toprank train`, `systems`: from data to a model file."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, stopping
from toprank.cli.columns import GUESSED, Columns, reads_data
from toprank.cli.settings import read_settings, refuse_set
from toprank.errors import FileError

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.portfolio import Choice
    from toprank.rankers.base import Ranker
    from toprank.systems import System

_AUTO = "auto"
_BUDGET = 120.0
_UNSEARCHED = (
    "No --valid: the system's defaults were taken, nothing was searched, and no training was stopped early. "
    "The metric is that of the training data."
)


@reads_data
def train(
    data: Annotated[Path, typer.Argument(help="Labelled data to learn from.")],
    model: Annotated[Path, typer.Option("--model", help="Where to write the model.")],
    system: Annotated[
        str, typer.Option(help="Which system; `toprank systems` lists them. auto: try several and choose.")
    ] = "cs-RgList",
    valid: Annotated[
        Path | None, typer.Option(help="Data to choose hyper-parameters on, by the system's grid, or systems, by auto.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds that auto may take. Default: 120.")] = None,
    blend: Annotated[bool, typer.Option(help="With auto: whether it may blend the best few.")] = True,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="key=value; a hyper-parameter to fix. May be given several times.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="What to choose by with --valid, else what to print. Default: the system's own.")
    ] = None,
    convention: common.ConventionName = "standard",
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
    """Train a ranker and write it to a file.

    For example:

    \b
      toprank train train.txt --system cs-RgList --valid vali.txt --model m.toprank
      toprank train train.txt --system RankSVM --set l2=0.01 --model m.toprank
      toprank train train.txt --system auto --budget 60 --model m.toprank
    """
    automatic = system.strip().lower() == _AUTO
    options = read_settings(setting or [])
    _check_options(automatic, metric, convention, model, budget, blend, options)
    _check_settings(options, valid is not None)
    chosen = None if automatic else _system(system, options, seed)
    reading = common.reading_options(missing, columns, layout=layout, regroup=regroup, cache=cache, threads=threads)
    documents, held_out = common.read_both(data, valid, quiet, reading)
    if chosen is None:
        choice = _choose(documents, held_out, metric, convention, budget, blend, seed, threads, quiet)
        cut_off = choice.interrupted or _cut_off(choice.ranker)
        _save(choice.ranker, _AUTO, None if cut_off else documents, metric or choice.metric, convention, model)
        _tell(choice, model, json, quiet)
    else:
        ranker, tried, notes = _train(chosen, documents, held_out, options, metric, convention, threads, quiet)
        cut_off = _cut_off(ranker)
        _save(ranker, chosen.name, None if cut_off else documents, metric or chosen.metric, convention, model)
        if held_out is None:
            common.say(_UNSEARCHED, quiet)
        _report(chosen.name, ranker, tried, notes, model, json, quiet)
    if cut_off:
        raise leave_interrupted(model)


def _cut_off(ranker: Ranker) -> bool:
    """Whether Ctrl-C ended the training, and the ranker is what was there by then."""
    from toprank.rankers.blend import was_interrupted

    return bool(stopping.requested()) or was_interrupted(ranker)


def leave_interrupted(model: Path) -> typer.Exit:
    """Say that the model is not the one that was asked for; a script must not go on with it."""
    common.say(
        f"toprank: Interrupted: {model} is the best so far, not the end of the training. "
        "Use it, or give the command again to train to the end.",
        quiet=False,
    )
    return typer.Exit(stopping.status())


def _check_options(
    automatic: bool,
    metric: str | None,
    convention: str,
    model: Path,
    budget: float | None,
    blend: bool,
    options: dict[str, Any],
) -> None:
    """Refuse what cannot work before anything is read."""
    from toprank.metrics import Convention, parse

    if metric is not None:
        parse(metric)
    Convention.of(convention)
    if not automatic and (budget is not None or not blend):
        raise typer.BadParameter("--budget and --no-blend belong to --system auto.")
    if automatic and options:
        raise typer.BadParameter("--set fixes a hyper-parameter of one system, but auto tries several; leave it out.")
    if budget is not None and not budget > 0:
        raise typer.BadParameter(f"--budget takes a number of seconds above 0, not {budget:g}.")
    if not model.parent.is_dir():
        raise FileError(f"{model} cannot be written: the folder {model.parent} does not exist.")


def _check_settings(options: dict[str, Any], chooses: bool) -> None:
    """Refuse to fix what the command decides; without validation data a ranker may have a metric of its own."""
    for name in ("threads", "seed"):
        if name in options:
            raise refuse_set(name, "belongs to the command")
    for name in ("metric", "convention") if chooses else ():
        if name in options:
            raise refuse_set(name, "is what to choose by on the validation data")


def _system(name: str, options: dict[str, Any], seed: int) -> System:
    """The system, its options checked; the seed is added to them where the ranker or its loss draws by one."""
    from toprank import losses, systems

    system = systems.get(name)
    of_ranker = set(system.make(**options).get_params(deep=False))
    of_loss = set() if system.loss is None else {one.name for one in fields(type(losses.make(system.loss)))}
    for own in of_loss - of_ranker:
        if own in options and f"loss.{own}" in options:
            raise typer.BadParameter(f"--set names {own} twice: {own} and loss.{own} are the same.")
    if "seed" in of_ranker or ("seed" in of_loss and "loss.seed" not in options):
        options["seed"] = seed
    return system


def _choose(
    data: RankingData,
    valid: RankingData | None,
    metric: str | None,
    convention: str,
    budget: float | None,
    blend: bool,
    seed: int,
    threads: int | None,
    quiet: bool,
) -> Choice:
    from toprank.portfolio import auto

    return auto(
        data,
        valid,
        metric=metric or "ndcg@10",
        convention=convention,
        budget=_BUDGET if budget is None else budget,
        blend=blend,
        seed=seed,
        threads=threads,
        verbose=not quiet and sys.stderr.isatty(),
    )


def _tell(choice: Choice, model: Path, json: bool, quiet: bool) -> None:
    if json:
        fields = choice.fields()
        tried = fields.pop("table")
        training = choice.ranker.training_
        common.print_json(
            {"system": _AUTO, "model": str(model), "training": training, "tried": tried, "solver": None, **fields}
        )
    else:
        typer.echo(str(choice))
    common.say(f"{model}: {choice.name}, {choice.ranker.n_features_in_} features", quiet)


def _save(ranker: Ranker, system: str, data: RankingData | None, metric: str, convention: str, model: Path) -> None:
    """Write the model; with data, also what it reaches on them. After Ctrl-C there is no time for that."""
    from toprank.data.typed import typed_command

    ranker.training_ |= {"system": system, "convention": convention, "command": typed_command()}
    if data is None:
        ranker.training_["interrupted"] = True
    else:
        ranker.training_["metrics"] = _training_metrics(ranker, data, metric, convention)
    ranker.save(model)


def _train(
    system: Any,
    data: RankingData,
    valid: RankingData | None,
    options: dict[str, Any],
    metric: str | None,
    convention: str,
    threads: int | None,
    quiet: bool,
) -> tuple[Any, list[dict[str, Any]], tuple[str, ...]]:
    from toprank.selection import select

    notes: tuple[str, ...] = ()
    tells = common.is_watched(quiet) and system.kind.rounds is not None
    asked = {"verbose": True, **options} if tells else options
    if tells and valid is not None:
        n = prod(len(values) for name, values in system.grid.items() if name not in options)
        candidates = "1 candidate tells" if n == 1 else f"each of {n} candidates tells"
        common.say(f"Training {system.name}: {candidates} its rounds.", quiet)
    with nullcontext() if tells else common.progress(f"Training {system.name} …", quiet):
        if valid is None:
            ranker, tried = system.make(**{"threads": threads, **asked}).fit(data), []
        else:
            result = select(system, data, valid, metric=metric, convention=convention, threads=threads, **asked)
            ranker, tried, notes = result.ranker, result.tried, result.notes
    if tells:  # who loads the model may not want to be told
        ranker.set_params(verbose=options.get("verbose", False))
    return ranker, tried, notes


def _training_metrics(ranker: Ranker, data: RankingData, metric: str, convention: str) -> dict[str, float]:
    from toprank.metrics import evaluate

    means = evaluate(ranker.predict(data), data, [metric], convention=convention).mean
    return {name: value for name, value in means.items() if value == value}  # undefined is not said


def _report(
    name: str, ranker: Ranker, tried: list[dict[str, Any]], notes: tuple[str, ...], model: Path, json: bool, quiet: bool
) -> None:
    solution = getattr(ranker, "solution_", None)
    if json:
        common.print_json(
            {
                "system": name,
                "model": str(model),
                "training": ranker.training_,
                "tried": tried,
                "notes": list(notes),
                "solver": None if solution is None else solution.message,
            }
        )
        return
    if tried:
        tries = "1 candidate" if len(tried) == 1 else f"{len(tried)} candidates"
        typer.echo(f"{tries} on the validation data; the best is kept.")
    for note in notes:
        typer.echo(note)
    for part in ("metrics", "valid"):
        for metric, value in ranker.training_.get(part, {}).items():
            if isinstance(value, float):
                typer.echo(f"{metric} on {'training' if part == 'metrics' else 'validation'} data: {value:.4f}")
    if solution is not None:
        typer.echo(solution.message)
    common.say(f"{model}: {name}, {ranker.n_features_in_} features", quiet)


def systems(
    json: common.Json = False,
    threads: common.Threads = None,
    seed: common.Seed = 0,
    quiet: common.Quiet = False,
) -> None:
    """List the systems that can be trained by name.

    For example:

    \b
      toprank systems
    """
    del threads, seed, quiet
    from toprank.systems import SYSTEMS

    if json:
        common.print_json(
            {
                name: {
                    "idea": one.idea,
                    "source": one.source,
                    "ranker": one.ranker,
                    "loss": one.loss,
                    "options": dict(one.options),
                    "grid": {key: list(values) for key, values in one.grid.items()},
                }
                for name, one in SYSTEMS.items()
            }
        )
        return
    width = max(len(name) for name in SYSTEMS)
    typer.echo(f"{_AUTO:<{width}}  for those who do not want to choose: tries several, blends the best")
    typer.echo(f"{'':<{width}}  see toprank train --help")
    for name, one in SYSTEMS.items():
        typer.echo(f"{name:<{width}}  {one.idea}")
        typer.echo(f"{'':<{width}}  {one.source}")
