"""`toprank train` and `systems`: train a model and write it to a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, main, options, reading
from toprank.cli.options import refuse_set, settings_of
from toprank.data.command_line import command_line
from toprank.errors import count_of

if TYPE_CHECKING:
    from toprank.data.dataset import RankingData
    from toprank.model_selection.result import SelectionResult
    from toprank.rankers.base import Ranker
    from toprank.systems import System

_DEFAULT_TIME_BUDGET = 120.0  # seconds
VALID_AND_TIME = typer.BadParameter("--time-column has no effect with --valid; omit one of the two.")
_UNSEARCHED = (
    "Without --valid, the system's defaults are used without search or early stopping. "
    "The metric is computed on the training data."
)


@dataclass(frozen=True)
class TrainOptions:
    """The system to train, and the data to select it on."""

    system: Annotated[
        str | None,
        typer.Option(
            help="System to train; `toprank systems` lists them. auto: select among several. "
            "Default: a blend of a linear ranker and trees; without --valid and with few queries, OWPC-constant."
        ),
    ] = None
    valid: Annotated[
        Path | None, typer.Option(help="Validation data, to select hyper-parameters or, with auto, systems.")
    ] = None
    time_budget: Annotated[float | None, typer.Option(help="Time limit of auto in seconds. Default: 120.")] = None
    max_trials: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of candidates of auto; removes the default time limit."),
    ] = None
    blend: Annotated[bool, typer.Option(help="With auto: allow a blend of the best candidates.")] = True
    time_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="With auto: column of dates; the latest quarter is held out.")
    ] = None
    setting: options.Settings = None

    @property
    def automatic(self) -> bool:
        """True if several systems are candidates."""
        from toprank.model_selection import AUTO

        return self.system is not None and self.system.strip().lower() == AUTO


@dataclass(frozen=True)
class JudgeOptions:
    """Metric and convention of the evaluation."""

    metric: Annotated[
        str | None,
        typer.Option(help="Metric of the selection with --valid, or to print. Default: the system's metric."),
    ] = None
    convention: options.ConventionName = "standard"
    unjudged: options.OfUnjudged = None
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Held-out data to calibrate P(grade | x), used by `monitor`."),
    ] = None


def train(
    data: options.Learned,
    model: options.Model,
    wanted: TrainOptions,
    judged: JudgeOptions,
    output: options.JsonOutput,
    read: reading.OfLearned,
    running: options.Training,
) -> None:
    """Train a ranker and write it to a file.

    For example:

    \b
      toprank train train.txt --valid vali.txt -o m.toprank
      toprank train train.txt --system cs-RgList --valid vali.txt -o m.toprank
      toprank train train.txt --system RankSVM --set l2=0.01 -o m.toprank
      toprank train train.txt --system auto --time-budget 60 -o m.toprank
      toprank train log.parquet --system auto --time-column date -o m.toprank
      toprank train train.txt --system PlugIn --calibrate vali.txt -o m.toprank
    """
    settings = settings_of(wanted.setting)
    chosen = _checked(wanted, judged, settings, running.seed)
    common.check_writable(model, "model.toprank")
    if judged.calibrate is not None:
        _check_grades(chosen, settings)
    keywords = {**options.keywords_of(read), "threads": running.threads}
    documents, held_out = read_to_learn(data, wanted.valid, wanted.time_column, judged.unjudged, keywords)
    to_calibrate = None
    if judged.calibrate is not None:
        alike = common.read_alike(judged.calibrate, options.keywords_of(read), like=documents)
        to_calibrate = common.settle(alike, judged.unjudged)
    done = _trained(wanted, chosen, settings, (documents, held_out), judged, running)
    done.ranker.training_ |= {"system": done.system, "convention": judged.convention, "command": command_line()}
    if not done.cut_off:  # skip the rest after Ctrl-C
        if to_calibrate is not None:
            done.ranker.calibrate(to_calibrate)
        done.ranker.training_["metrics"] = _training_metrics(done, documents, judged.convention)
    done.save(model)
    done.report(model, output.json)


def _trained(
    wanted: TrainOptions,
    chosen: System | None,
    settings: dict[str, Any],
    data: tuple[RankingData, RankingData | None],
    judged: JudgeOptions,
    running: options.Running,
) -> TrainedModel:
    """Train the selected system, select among several, or use the default for the data."""
    from toprank.model_selection.default import DEFAULT_SEARCH, default_systems

    rules = {"metric": judged.metric, "convention": judged.convention, "threads": running.threads}
    if wanted.automatic:
        seconds = (
            _DEFAULT_TIME_BUDGET if wanted.time_budget is None and wanted.max_trials is None else wanted.time_budget
        )
        limits = {
            "time_budget": seconds,
            "max_trials": wanted.max_trials,
            "blend": wanted.blend,
            "time_column": wanted.time_column,
        }
        return _select(*data, rules, {**limits, "seed": running.seed})
    if chosen is None and len(default := default_systems(*data)) > 1:
        return _select(*data, rules, {**DEFAULT_SEARCH, "seed": running.seed})
    return _train(chosen or _system(default[0], settings, running.seed), *data, rules, settings)


def read_to_learn(
    data: Path, valid: Path | None, time_column: str | None, unjudged: str | None, read: dict[str, Any]
) -> tuple[RankingData, RankingData | None]:
    """Read training and validation data under a rule for unjudged documents, with the column to split by."""
    documents, held_out = common.read_both(data, valid, common.with_metadata(data, time_column, read))
    return common.settle(documents, unjudged), None if held_out is None else common.settle(held_out, unjudged)


@dataclass(frozen=True)
class TrainedModel:
    """A fitted ranker and its report.

    Attributes:
        ranker: the fitted ranker.
        system: the requested system; "auto" if the command selected one.
        name: the trained system.
        metric: metric of the selection or of the evaluation.
        facts: function that returns further keys of the JSON output.
        text: function that returns the printed report; called after the training metrics are computed.
        interrupted: whether Ctrl-C ended the search.
    """

    ranker: Ranker
    system: str
    name: str
    metric: str
    facts: Callable[[], dict[str, Any]]
    text: Callable[[], str]
    interrupted: bool = False

    @cached_property  # ignore signals after the model is complete
    def cut_off(self) -> bool:
        """True if a signal ended the search or the training before its end."""
        return self.interrupted or bool(main.requested()) or self.ranker.was_interrupted

    def save(self, model: Path) -> None:
        """Write the model file."""
        if self.cut_off:
            self.ranker.training_["interrupted"] = True
        self.ranker.save(model)

    def report(self, model: Path, json: bool) -> None:
        """Print the report; after an interrupt, exit with the status of the signal."""
        if json:
            from toprank.data.hashes import QUERIES, ROWS

            training = {name: value for name, value in self.ranker.training_.items() if name not in (ROWS, QUERIES)}
            common.print_json({"system": self.system, "model": str(model), "training": training, **self.facts()})
        else:
            if text := self.text():
                typer.echo(text)
            common.say(f"{model}: {self.name}, {self.ranker.n_features_in_} features")
        if self.cut_off:
            common.say(
                f"toprank: Interrupted: {model} is the best so far, but the training is incomplete. "
                "Use it, or run the command again.",
                always=True,
            )
            raise typer.Exit(main.status())


def check_judge(metric: str | None, convention: str) -> None:
    """Refuse an unknown metric or convention before reading data."""
    from toprank.metrics import Convention, parse

    if metric is not None:
        parse(metric)
    Convention.from_name(convention)


def _checked(wanted: TrainOptions, judged: JudgeOptions, settings: dict[str, Any], seed: int) -> System | None:
    """Return the requested system; refuse conflicting options before reading data."""
    check_judge(judged.metric, judged.convention)
    of_auto = (
        wanted.time_budget is not None
        or wanted.max_trials is not None
        or not wanted.blend
        or wanted.time_column is not None
    )
    if of_auto and not wanted.automatic:
        raise typer.BadParameter("--time-budget, --max-trials, --no-blend and --time-column need --system auto.")
    if wanted.time_column is not None and wanted.valid is not None:
        raise VALID_AND_TIME
    if wanted.time_budget is not None and not wanted.time_budget > 0:
        raise typer.BadParameter(f"--time-budget must be a number of seconds above 0, not {wanted.time_budget:g}.")
    _check_settings(settings, wanted.valid is not None)
    if settings and (wanted.automatic or wanted.system is None):
        raise typer.BadParameter("--set fixes a hyper-parameter of one system; name it with --system.")
    return None if wanted.automatic or wanted.system is None else _system(wanted.system, settings, seed)


def _check_grades(system: System | None, settings: dict[str, Any]) -> None:
    """Refuse to calibrate a ranker without grade probabilities, before reading data."""
    from toprank.rankers.probabilities import GradeProbabilities, has_grades

    ranker = None if system is None else system.make(**settings)
    if not isinstance(ranker, GradeProbabilities) or not has_grades(ranker):
        name = "a selection among several systems" if system is None else system.name
        raise typer.BadParameter(
            f"--calibrate needs probabilities of grades, but {name} has scores only; the systems PlugIn and McRank "
            "have both."
        )


def _check_settings(settings: dict[str, Any], chooses: bool) -> None:
    """Refuse --set of values that other options set."""
    for name in ("threads", "seed"):
        if name in settings:
            raise refuse_set(name, "is an option of the command")
    for name in ("metric", "convention") if chooses else ():
        if name in settings:
            raise refuse_set(name, "defines the selection on the validation data")


def _system(name: str, settings: dict[str, Any], seed: int) -> System:
    """Return the system with checked settings; add the seed if the ranker or its loss has one."""
    from toprank import losses, systems

    system = systems.get(name)
    of_ranker = set(system.make(**settings).get_params(deep=False))
    of_loss = set() if system.loss is None else {field.name for field in fields(type(losses.make(system.loss)))}
    for own in of_loss - of_ranker:
        if own in settings and f"loss.{own}" in settings:
            raise typer.BadParameter(f"--set is passed twice for {own}: {own} and loss.{own} are the same.")
    if "seed" in of_ranker or ("seed" in of_loss and "loss.seed" not in settings):
        settings["seed"] = seed
    return system


def _select(data: RankingData, valid: RankingData | None, by: dict[str, Any], more: dict[str, Any]) -> TrainedModel:
    """Select among several systems, or blend them."""
    from toprank.model_selection import AUTO
    from toprank.model_selection.automatic import auto

    judge = {**by, "metric": by["metric"] or "ndcg@10"}
    choice = auto(data, valid, **judge, **more, verbose=not common.is_quiet())
    facts = partial(_facts, choice, None)
    return TrainedModel(
        choice.ranker, AUTO, choice.name, choice.metric, facts, partial(str, choice), choice.interrupted
    )


def _train(
    system: System,
    data: RankingData,
    valid: RankingData | None,
    by: dict[str, Any],
    settings: dict[str, Any],
) -> TrainedModel:
    """Train one system, with a grid search if there are validation data."""
    from toprank.model_selection.grid import grid_search

    choice = None
    tells = not common.is_quiet() and system.kind.rounds is not None
    watched = tells and common.is_watched()
    asked = {"verbose": True, **settings} if tells else settings
    if watched and valid is not None:
        n = prod(len(values) for name, values in system.grid.items() if name not in settings)
        common.say(f"Training {system.name}: {count_of(n, 'candidate')}, with the progress of each.")
    with common.announced(None) if watched else common.progress(f"Training {system.name} …"):
        if valid is None:
            ranker = system.make(**{"threads": by["threads"], **asked}).fit(data)
        else:
            choice = grid_search(system, data, valid, **by, **asked)
            ranker = choice.ranker
    if choice is None:
        common.say(_UNSEARCHED)
    if tells:  # do not store verbose=True in the model
        ranker.set_params(verbose=settings.get("verbose", False))
    solution = getattr(ranker, "solution_", None)
    solver = None if solution is None else solution.message
    facts = partial(_facts, choice, solver)
    text = partial(_summary, ranker, choice, solver)
    interrupted = choice is not None and choice.interrupted
    return TrainedModel(ranker, system.name, system.name, by["metric"] or system.metric, facts, text, interrupted)


def _facts(choice: SelectionResult | None, solver: str | None) -> dict[str, Any]:
    return {**({"trials": [], "summary": ""} if choice is None else choice.to_dict()), "solver": solver}


def _training_metrics(done: TrainedModel, data: RankingData, convention: str) -> dict[str, float]:
    """Return the metric on the training data; empty if it is undefined, for example without labels."""
    from toprank.evaluation import BoundMetric
    from toprank.metrics import Convention

    if Convention.from_name(convention).unjudged == "refuse" and not data.judged.all():
        return {}
    judge = BoundMetric(data, done.metric, convention=convention)
    value = judge(done.ranker.predict(data))
    return {judge.name: value} if value == value else {}


def _summary(ranker: Ranker, choice: SelectionResult | None, solver: str | None) -> str:
    lines = []
    if choice is not None:
        tries = count_of(len(choice.trials), "candidate")
        lines = [f"Evaluated {tries} on the validation data and selected the best.", *choice.sentences]
    for part, kind in (("metrics", "training"), ("valid", "validation")):
        values = ranker.training_.get(part, {}).items()
        lines += [f"{name} on {kind} data: {value:.4f}" for name, value in values if isinstance(value, float)]
    return "\n".join(lines if solver is None else [*lines, solver])


def systems(json: options.Json = False) -> None:
    """List the systems that `train` and `tune` know by name.

    For example:

    \b
      toprank systems
    """
    from toprank.model_selection import AUTO
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
    typer.echo(f"{AUTO:<{width}}  evaluates several systems and blends the best")
    typer.echo(f"{'':<{width}}  see toprank train --help")
    for name, system in SYSTEMS.items():
        typer.echo(f"{name:<{width}}  {system.idea}")
        typer.echo(f"{'':<{width}}  {system.source}")
