"""`toprank train`, `tune` and `systems`: from data to a model file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from inspect import signature
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, main, options
from toprank.cli.options import refuse_set, settings_of, value_of
from toprank.errors import count_of, needs

if TYPE_CHECKING:
    from toprank.choosing.choice import Choice
    from toprank.data.dataset import RankingData
    from toprank.rankers.base import Ranker
    from toprank.systems import System

_BUDGET = 120.0
_TWICE = typer.BadParameter("--by holds out by time, but --valid is given; leave one of them out.")
_UNSEARCHED = (
    "No --valid: the system's defaults were taken, nothing was searched, and no training was stopped early. "
    "The metric is that of the training data."
)


@options.reads_data(*options.LEARNED)
def train(
    data: options.Learned,
    model: options.Model,
    system: Annotated[
        str | None,
        typer.Option(
            help="Which system; `toprank systems` lists them. auto: try several and choose. "
            "Default: a linear ranker and trees, blended; without --valid and with few queries, OWPC-constant."
        ),
    ] = None,
    valid: Annotated[
        Path | None, typer.Option(help="Validation data, to choose by: from the system's grid, or with auto.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds that auto may take. Default: 120.")] = None,
    max_trials: Annotated[
        int | None,
        typer.Option(min=1, help="Most candidates that auto may try; without --budget there is then no time limit."),
    ] = None,
    blend: Annotated[bool, typer.Option(help="With auto: allow a blend of the best few.")] = True,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="With auto: a column of dates; the latest quarter is held out.")
    ] = None,
    setting: options.Settings = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric to choose by with --valid, otherwise to print. Default: the system's own."),
    ] = None,
    convention: options.ConventionName = "standard",
    unjudged: options.OfUnjudged = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Held-out data to calibrate P(grade | x) on, for the DCG that `monitor` expects."),
    ] = None,
    json: options.Json = False,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    threads: options.TrainingThreads = None,
    quiet: options.Quiet = False,
) -> None:
    """Train a ranker and write it to a file.

    For example:

    \b
      toprank train train.txt --valid vali.txt --model m.toprank
      toprank train train.txt --system cs-RgList --valid vali.txt --model m.toprank
      toprank train train.txt --system RankSVM --set l2=0.01 --model m.toprank
      toprank train train.txt --system auto --budget 60 --model m.toprank
      toprank train log.parquet --system auto --by date --model m.toprank
      toprank train train.txt --system PlugIn --calibrate vali.txt --model m.toprank
    """
    from toprank.choosing import AUTO
    from toprank.choosing.automatic import UNASKED, enough_to_choose
    from toprank.data.typed import typed_command
    from toprank.systems import DEFAULT

    automatic, settings = system is not None and system.strip().lower() == AUTO, settings_of(setting)
    _check_judge(metric, convention)
    _check_auto(automatic, budget, max_trials, blend, by, valid is not None)
    _check_settings(settings, valid is not None)
    if settings and (automatic or system is None):
        raise typer.BadParameter("--set fixes a hyper-parameter of one system; name that with --system.")
    common.check_writable(model, "model.toprank")
    chosen = None if automatic or system is None else _system(system, settings, seed)
    if calibrate is not None:
        _check_grades(chosen, settings)
    documents, held_out = _read(data, valid, by, unjudged, {**reading, "threads": threads}, quiet)
    to_calibrate = None
    if calibrate is not None:
        to_calibrate = common.settle(common.read_alike(calibrate, quiet, reading, like=documents), unjudged)
    judge = {"metric": metric, "convention": convention, "threads": threads}
    if automatic:
        seconds = _BUDGET if budget is None and max_trials is None else budget
        more = {"budget": seconds, "max_trials": max_trials, "blend": blend, "by": by}
        done = _choose(documents, held_out, judge, {**more, "seed": seed}, quiet)
    elif chosen is None and enough_to_choose(documents, held_out):
        done = _choose(documents, held_out, judge, {**UNASKED, "seed": seed}, quiet)
    else:
        chosen = chosen or _system(DEFAULT, settings, seed)
        done = _train(chosen, documents, held_out, judge, settings, quiet)
    done.ranker.training_ |= {"system": done.system, "convention": convention, "command": typed_command()}
    common.remember_columns(done.ranker, reading)
    if not done.cut_off:  # after Ctrl-C there is no time for this
        if to_calibrate is not None:
            done.ranker.calibrate(to_calibrate)
        done.ranker.training_["metrics"] = _training_metrics(done, documents, convention)
    _save(done, model)
    _tell(done, model, json, quiet)


def _read(
    data: Path, valid: Path | None, by: str | None, unjudged: str | None, reading: dict[str, Any], quiet: bool
) -> tuple[RankingData, RankingData | None]:
    """Read training and validation data under a rule for unjudged documents, with the column to split by."""
    documents, held_out = common.read_both(data, valid, quiet, common.carrying(data, by, reading))
    return common.settle(documents, unjudged), None if held_out is None else common.settle(held_out, unjudged)


@dataclass(frozen=True)
class _TrainedModel:
    """A fitted ranker, and how the command reports on it.

    Attributes:
        ranker: the fitted ranker.
        system: the system that was asked for; "auto" if the command chose one.
        name: the system that was trained.
        metric: the metric that the ranker was chosen by, or else is judged by.
        facts: returns what JSON says beside the model and its training.
        text: returns what a person reads, once the training metrics are known.
        interrupted: whether Ctrl-C ended the search, so that the ranker is the best until then.
    """

    ranker: Ranker
    system: str
    name: str
    metric: str
    facts: Callable[[], dict[str, Any]]
    text: Callable[[], str]
    interrupted: bool = False

    @cached_property  # a signal that comes once the model is complete changes nothing
    def cut_off(self) -> bool:
        """Whether a signal ended the search or the training before its end."""
        return self.interrupted or bool(main.requested()) or self.ranker.was_interrupted


def _save(done: _TrainedModel, model: Path) -> None:
    if done.cut_off:
        done.ranker.training_["interrupted"] = True
    done.ranker.save(model)


def _tell(done: _TrainedModel, model: Path, json: bool, quiet: bool) -> None:
    """Print what was trained; exit with the status of the signal that cut it off, so that a script stops there."""
    if json:
        from toprank.data.row_hashes import QUERIES, ROWS

        training = {name: value for name, value in done.ranker.training_.items() if name not in (ROWS, QUERIES)}
        common.print_json({"system": done.system, "model": str(model), "training": training, **done.facts()})
    else:
        if text := done.text():
            typer.echo(text)
        common.say(f"{model}: {done.name}, {done.ranker.n_features_in_} features", quiet)
    if done.cut_off:
        common.say(
            f"toprank: Interrupted: {model} is the best so far, not the end of the training. "
            "Use it, or give the command again to train to the end.",
            quiet=False,
        )
        raise typer.Exit(main.status())


def _check_judge(metric: str | None, convention: str) -> None:
    """Refuse a misspelt name before anything is read."""
    from toprank.metrics import Convention, parse

    if metric is not None:
        parse(metric)
    Convention.of(convention)


def _check_auto(
    automatic: bool,
    budget: float | None,
    max_trials: int | None,
    blend: bool,
    by: str | None,
    valid: bool,
) -> None:
    if not automatic and (budget is not None or max_trials is not None or not blend or by is not None):
        raise typer.BadParameter("--budget, --max-trials, --no-blend and --by belong to --system auto.")
    if by is not None and valid:
        raise _TWICE
    if budget is not None and not budget > 0:
        raise typer.BadParameter(f"--budget takes a number of seconds above 0, not {budget:g}.")


def _check_grades(system: System | None, settings: dict[str, Any]) -> None:
    """Refuse to calibrate what gives no probabilities of grades, before anything is read."""
    from toprank.rankers.probabilities import GradeProbabilities, has_grades

    ranker = None if system is None else system.make(**settings)
    if not isinstance(ranker, GradeProbabilities) or not has_grades(ranker):
        name = "what is chosen of several" if system is None else system.name
        raise typer.BadParameter(
            f"--calibrate sets P(grade | x) right, and {name} gives scores alone; PlugIn and McRank give both."
        )


def _check_settings(settings: dict[str, Any], chooses: bool) -> None:
    """Refuse to fix what the command decides; without validation data a ranker may have a metric of its own."""
    for name in ("threads", "seed"):
        if name in settings:
            raise refuse_set(name, "belongs to the command")
    for name in ("metric", "convention") if chooses else ():
        if name in settings:
            raise refuse_set(name, "is what to choose by on the validation data")


def _system(name: str, settings: dict[str, Any], seed: int) -> System:
    """The system, its settings checked; the seed is added to them where the ranker or its loss draws by one."""
    from toprank import losses, systems

    system = systems.get(name)
    of_ranker = set(system.make(**settings).get_params(deep=False))
    of_loss = set() if system.loss is None else {field.name for field in fields(type(losses.make(system.loss)))}
    for own in of_loss - of_ranker:
        if own in settings and f"loss.{own}" in settings:
            raise typer.BadParameter(f"--set names {own} twice: {own} and loss.{own} are the same.")
    if "seed" in of_ranker or ("seed" in of_loss and "loss.seed" not in settings):
        settings["seed"] = seed
    return system


def _choose(
    data: RankingData, valid: RankingData | None, by: dict[str, Any], more: dict[str, Any], quiet: bool
) -> _TrainedModel:
    """The best of several systems, or a blend of them."""
    from toprank.choosing import AUTO
    from toprank.choosing.automatic import auto

    judge = {**by, "metric": by["metric"] or "ndcg@10"}
    choice = auto(data, valid, **judge, **more, verbose=not quiet)
    facts = partial(_facts, choice, None)
    return _TrainedModel(
        choice.ranker, AUTO, choice.name, choice.metric, facts, partial(str, choice), choice.interrupted
    )


def _train(
    system: System,
    data: RankingData,
    valid: RankingData | None,
    by: dict[str, Any],
    settings: dict[str, Any],
    quiet: bool,
) -> _TrainedModel:
    """One system, its hyper-parameters chosen where there are validation data."""
    from toprank.choosing.grid import select

    choice = None
    tells = not quiet and system.kind.rounds is not None
    watched = tells and common.is_watched(quiet)
    asked = {"verbose": True, **settings} if tells else settings
    if watched and valid is not None:
        n = prod(len(values) for name, values in system.grid.items() if name not in settings)
        candidates = "1 candidate tells" if n == 1 else f"each of {n} candidates tells"
        common.say(f"Training {system.name}: {candidates} its rounds.", quiet)
    with common.step(None, quiet) if watched else common.progress(f"Training {system.name} …", quiet):
        if valid is None:
            ranker = system.make(**{"threads": by["threads"], **asked}).fit(data)
        else:
            choice = select(system, data, valid, **by, **asked)
            ranker = choice.ranker
    if choice is None:
        common.say(_UNSEARCHED, quiet)
    if tells:  # who loads the model may not want to be told
        ranker.set_params(verbose=settings.get("verbose", False))
    solution = getattr(ranker, "solution_", None)
    solver = None if solution is None else solution.message
    facts = partial(_facts, choice, solver)
    text = partial(_summary, ranker, choice, solver)
    interrupted = choice is not None and choice.interrupted
    return _TrainedModel(ranker, system.name, system.name, by["metric"] or system.metric, facts, text, interrupted)


def _facts(choice: Choice | None, solver: str | None) -> dict[str, Any]:
    return {**({"trials": [], "summary": ""} if choice is None else choice.to_dict()), "solver": solver}


def _training_metrics(done: _TrainedModel, data: RankingData, convention: str) -> dict[str, float]:
    """The metric of the training data; none where it is undefined, or where a teacher's scores stood for labels."""
    from toprank.metrics import Convention, Judge

    if Convention.of(convention).unjudged == "refuse" and not data.judged.all():
        return {}
    judge = Judge(data, done.metric, convention=convention)
    value = judge(done.ranker.predict(data))
    return {judge.name: value} if value == value else {}


def _summary(ranker: Ranker, choice: Choice | None, solver: str | None) -> str:
    lines = []
    if choice is not None:
        tries = count_of(len(choice.trials), "candidate")
        lines = [f"{tries} on the validation data; the best is kept.", *choice.sentences]
    for part, kind in (("metrics", "training"), ("valid", "validation")):
        values = ranker.training_.get(part, {}).items()
        lines += [f"{name} on {kind} data: {value:.4f}" for name, value in values if isinstance(value, float)]
    return "\n".join(lines if solver is None else [*lines, solver])


@options.reads_data(*options.LEARNED)
def tune(
    data: options.Learned,
    model: options.Model,
    system: options.System = "LambdaMART",
    valid: Annotated[
        Path | None, typer.Option(help="Data to judge trials on. Default: hold out a fifth of the queries of DATA.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option(min=2, help="Judge by cross-validation with this many folds of queries instead.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of dates: the latest fifth is held out, or --folds follow time."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials, including those of a resumed study.")] = 50,
    seconds: Annotated[float | None, typer.Option(help="Time for the search; no limit by default.")] = None,
    space: Annotated[
        list[str] | None,
        typer.Option("--space", help="name=low:high, name=low:high:log or name=a,b,c. May be given several times."),
    ] = None,
    setting: options.Settings = None,
    metric: Annotated[str | None, typer.Option(help="Metric to judge by. Default: the system's own.")] = None,
    convention: options.ConventionName = "standard",
    unjudged: options.OfUnjudged = None,
    storage: Annotated[Path | None, typer.Option(help="An SQLite file that keeps the study, to be resumed.")] = None,
    study: Annotated[str | None, typer.Option(help="The name of the study in that file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw importance and history to this .svg file.")] = None,
    json: options.Json = False,
    reading: options.Reading = options.NOTHING,
    seed: options.Seed = 0,
    threads: options.TrainingThreads = None,
    quiet: options.Quiet = False,
) -> None:
    """Search hyper-parameters, fit the best, and write it to a file.

    For example:

    \b
      toprank tune train.txt --valid vali.txt --system LambdaMART --seconds 300 --model m.toprank
      toprank tune log.parquet --by date --model m.toprank
      toprank tune train.txt --folds 5 --trials 100 --storage study.db --plot study.svg --model m.toprank
      toprank tune train.txt --valid vali.txt --space num_leaves=8:128:log --space l2=0.1,1,10 --model m.toprank
    """
    from toprank import systems
    from toprank.choosing import AUTO
    from toprank.choosing.space import read_space
    from toprank.choosing.tuning import tune as search
    from toprank.data.typed import typed_command
    from toprank.showing.pictures import check_picture_path

    if system.strip().lower() == AUTO:
        raise typer.BadParameter("auto belongs to toprank train: it tries several systems; tune searches one.")
    if by is not None and valid is not None:
        raise _TWICE
    needs("optuna", "tune", "toprank tune")
    chosen, fixed, searched = systems.get(system), settings_of(setting), _space(space or [])
    for name in fixed:
        if name in signature(search).parameters:
            raise refuse_set(name, "belongs to the search")
    read_space(chosen, searched or None, chosen.plain_options(fixed))  # refused before anything is read
    _check_judge(metric, convention)
    common.check_writable(model, "model.toprank")
    common.check_writable(plot, "study.svg")
    if plot is not None:
        check_picture_path(plot)
    documents, held_out = _read(data, valid, by, unjudged, {**reading, "threads": threads}, quiet)
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
        by=by,
        storage=storage,
        study=study,
        seed=seed,
        threads=threads,
        verbose=not quiet,
        **fixed,
    )
    tuned.ranker.training_ |= {
        "system": chosen.name,
        "convention": convention,
        "command": typed_command(),
        "tuned": {"metric": tuned.metric, "value": tuned.value, "trials": len(tuned.trials), "on": tuned.judged_on},
    }
    common.remember_columns(tuned.ranker, reading)
    done = _TrainedModel(
        tuned.ranker, chosen.name, tuned.name, tuned.metric, tuned.to_dict, partial(str, tuned), tuned.interrupted
    )
    _save(done, model)
    if plot is not None:
        tuned.plot(plot)
    _tell(done, model, json, quiet)


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


def systems(json: options.Json = False) -> None:
    """List the systems that can be trained by name.

    For example:

    \b
      toprank systems
    """
    from toprank.choosing import AUTO
    from toprank.systems import SYSTEMS

    if json:
        common.print_json(
            {
                name: {
                    "idea": system.idea,
                    "source": system.source,
                    "ranker": system.ranker,
                    "loss": system.loss,
                    "options": dict(system.options),
                    "grid": {key: list(values) for key, values in system.grid.items()},
                }
                for name, system in SYSTEMS.items()
            }
        )
        return
    width = max(len(name) for name in SYSTEMS)
    typer.echo(f"{AUTO:<{width}}  for those who do not want to choose: tries several, blends the best")
    typer.echo(f"{'':<{width}}  see toprank train --help")
    for name, system in SYSTEMS.items():
        typer.echo(f"{name:<{width}}  {system.idea}")
        typer.echo(f"{'':<{width}}  {system.source}")
