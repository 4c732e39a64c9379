"""`toprank train`, `tune` and `systems`: from data to a model file."""

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

_BUDGET = 120.0
TWICE = typer.BadParameter("--time-column holds out by time, but --valid is given; leave one of them out.")
_UNSEARCHED = (
    "No --valid: the system's defaults were taken, nothing was searched, and no training was stopped early. "
    "The metric is that of the training data."
)


@dataclass(frozen=True)
class TrainOptions:
    """The system that is trained, and the data that it is chosen on."""

    system: Annotated[
        str | None,
        typer.Option(
            help="Which system; `toprank systems` lists them. auto: try several and choose. "
            "Default: a linear ranker and trees, blended; without --valid and with few queries, OWPC-constant."
        ),
    ] = None
    valid: Annotated[
        Path | None, typer.Option(help="Validation data, to choose by: from the system's grid, or with auto.")
    ] = None
    time_budget: Annotated[float | None, typer.Option(help="Seconds that auto may take. Default: 120.")] = None
    max_trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most candidates that auto may try; without --time-budget there is then no time limit."
        ),
    ] = None
    blend: Annotated[bool, typer.Option(help="With auto: allow a blend of the best few.")] = True
    time_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="With auto: a column of dates; the latest quarter is held out.")
    ] = None
    setting: options.Settings = None

    @property
    def automatic(self) -> bool:
        """True if several systems are tried."""
        from toprank.model_selection import AUTO

        return self.system is not None and self.system.strip().lower() == AUTO


@dataclass(frozen=True)
class JudgeOptions:
    """How models are judged: by a metric under some rules."""

    metric: Annotated[
        str | None,
        typer.Option(help="Metric to choose by with --valid, otherwise to print. Default: the system's own."),
    ] = None
    convention: options.ConventionName = "standard"
    unjudged: options.OfUnjudged = None
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Held-out data to calibrate P(grade | x) on, for the DCG that `monitor` expects."),
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
    if not done.cut_off:  # after Ctrl-C there is no time for this
        if to_calibrate is not None:
            done.ranker.calibrate(to_calibrate)
        done.ranker.training_["metrics"] = _training_metrics(done, documents, judged.convention)
    done.save(model)
    done.tell(model, output.json)


def _trained(
    wanted: TrainOptions,
    chosen: System | None,
    settings: dict[str, Any],
    data: tuple[RankingData, RankingData | None],
    judged: JudgeOptions,
    running: options.Running,
) -> TrainedModel:
    """Return the best of several systems, or the one that was asked for; the default depends on the data."""
    from toprank.model_selection.default import DEFAULT_SEARCH, default_systems

    rules = {"metric": judged.metric, "convention": judged.convention, "threads": running.threads}
    if wanted.automatic:
        seconds = _BUDGET if wanted.time_budget is None and wanted.max_trials is None else wanted.time_budget
        limits = {
            "time_budget": seconds,
            "max_trials": wanted.max_trials,
            "blend": wanted.blend,
            "time_column": wanted.time_column,
        }
        return _choose(*data, rules, {**limits, "seed": running.seed})
    if chosen is None and len(default := default_systems(*data)) > 1:
        return _choose(*data, rules, {**DEFAULT_SEARCH, "seed": running.seed})
    return _train(chosen or _system(default[0], settings, running.seed), *data, rules, settings)


def read_to_learn(
    data: Path, valid: Path | None, time_column: str | None, unjudged: str | None, read: dict[str, Any]
) -> tuple[RankingData, RankingData | None]:
    """Read training and validation data under a rule for unjudged documents, with the column to split by."""
    documents, held_out = common.read_both(data, valid, common.with_metadata(data, time_column, read))
    return common.settle(documents, unjudged), None if held_out is None else common.settle(held_out, unjudged)


@dataclass(frozen=True)
class TrainedModel:
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
        """True if a signal ended the search or the training before its end."""
        return self.interrupted or bool(main.requested()) or self.ranker.was_interrupted

    def save(self, model: Path) -> None:
        """Write the model."""
        if self.cut_off:
            self.ranker.training_["interrupted"] = True
        self.ranker.save(model)

    def tell(self, model: Path, json: bool) -> None:
        """Print what was trained; exit with the status of the signal that cut it off, so that a script stops there."""
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
                f"toprank: Interrupted: {model} is the best so far, not the end of the training. "
                "Use it, or give the command again to train to the end.",
                always=True,
            )
            raise typer.Exit(main.status())


def check_judge(metric: str | None, convention: str) -> None:
    """Refuse a misspelled name before anything is read."""
    from toprank.metrics import Convention, parse

    if metric is not None:
        parse(metric)
    Convention.from_name(convention)


def _checked(wanted: TrainOptions, judged: JudgeOptions, settings: dict[str, Any], seed: int) -> System | None:
    """Return the system that was asked for; refuse options that do not go together, before anything is read."""
    check_judge(judged.metric, judged.convention)
    of_auto = (
        wanted.time_budget is not None
        or wanted.max_trials is not None
        or not wanted.blend
        or wanted.time_column is not None
    )
    if of_auto and not wanted.automatic:
        raise typer.BadParameter("--time-budget, --max-trials, --no-blend and --time-column belong to --system auto.")
    if wanted.time_column is not None and wanted.valid is not None:
        raise TWICE
    if wanted.time_budget is not None and not wanted.time_budget > 0:
        raise typer.BadParameter(f"--time-budget takes a number of seconds above 0, not {wanted.time_budget:g}.")
    _check_settings(settings, wanted.valid is not None)
    if settings and (wanted.automatic or wanted.system is None):
        raise typer.BadParameter("--set fixes a hyper-parameter of one system; name that with --system.")
    return None if wanted.automatic or wanted.system is None else _system(wanted.system, settings, seed)


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


def _choose(data: RankingData, valid: RankingData | None, by: dict[str, Any], more: dict[str, Any]) -> TrainedModel:
    """The best of several systems, or a blend of them."""
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
    """One system, its hyper-parameters chosen where there are validation data."""
    from toprank.model_selection.grid import grid_search

    choice = None
    tells = not common.is_quiet() and system.kind.rounds is not None
    watched = tells and common.is_watched()
    asked = {"verbose": True, **settings} if tells else settings
    if watched and valid is not None:
        n = prod(len(values) for name, values in system.grid.items() if name not in settings)
        candidates = "1 candidate tells" if n == 1 else f"each of {n} candidates tells"
        common.say(f"Training {system.name}: {candidates} its rounds.")
    with common.announced(None) if watched else common.progress(f"Training {system.name} …"):
        if valid is None:
            ranker = system.make(**{"threads": by["threads"], **asked}).fit(data)
        else:
            choice = grid_search(system, data, valid, **by, **asked)
            ranker = choice.ranker
    if choice is None:
        common.say(_UNSEARCHED)
    if tells:  # who loads the model may not want to be told
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
    """The metric of the training data; none where it is undefined, or where a teacher's scores stood for labels."""
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
        lines = [f"{tries} on the validation data; the best is kept.", *choice.sentences]
    for part, kind in (("metrics", "training"), ("valid", "validation")):
        values = ranker.training_.get(part, {}).items()
        lines += [f"{name} on {kind} data: {value:.4f}" for name, value in values if isinstance(value, float)]
    return "\n".join(lines if solver is None else [*lines, solver])


def systems(json: options.Json = False) -> None:
    """List the systems that can be trained by name.

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
    typer.echo(f"{AUTO:<{width}}  for those who do not want to choose: tries several, blends the best")
    typer.echo(f"{'':<{width}}  see toprank train --help")
    for name, system in SYSTEMS.items():
        typer.echo(f"{name:<{width}}  {system.idea}")
        typer.echo(f"{'':<{width}}  {system.source}")
