"""`toprank cv` and `toprank reproduce`: cross-validation and reproduction of papers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toprank.cli import common, options, reading
from toprank.cli.options import numbers_of, refuse_set, value_of, words_of
from toprank.errors import DataError

if TYPE_CHECKING:
    from toprank.experiment import Experiment, Results

_DECIDED = {"threads": "threads", "metric": "selection-metric", "convention": "selection-convention"}


@dataclass(frozen=True)
class Cells:
    """Systems, data and rules of an experiment."""

    data: Annotated[
        list[Path], typer.Argument(help="Folders with folds (Fold1 …, or S1.txt … S5.txt), or data files to split.")
    ]
    systems: Annotated[
        str,
        typer.Option(
            "--systems",
            "--system",
            metavar="A,B,...",
            help="Systems, separated by commas; all-linear, all-trees, all-networks, all; auto selects in each fold.",
        ),
    ]
    metrics: options.Metrics = "ndcg@10,map"
    convention: Annotated[
        str,
        typer.Option("--convention", "-c", help="Rules of evaluation, one or several separated by commas, or all."),
    ] = "standard"
    folds: Annotated[int, typer.Option(min=3, help="Number of folds of a data file.")] = 5
    time_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of dates: folds follow time, and each test part is later than its training part.",
        ),
    ] = None
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...", help="Seeds for systems that use randomness, separated by commas. Default: --seed."
        ),
    ] = None
    unjudged: options.OfUnjudged = None
    selection_metric: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Metric to choose by. Default: each system's own.")
    ] = None
    selection_convention: Annotated[
        str, typer.Option(metavar="CONVENTION", help="Rules of the metric to choose by.")
    ] = "standard"
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="System to compare the others with. Default: the best.")
    ] = None
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SYSTEM.KEY=VALUE", help="Fix a hyper-parameter. Repeatable."),
    ] = None
    slice_by: options.SliceBy = None


@dataclass(frozen=True)
class Kept:
    """Output files."""

    cache_dir: options.CacheDir = None
    save_models: Annotated[bool, typer.Option("--save-models", help="Also keep the fitted models there.")] = False
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the per-query results to this Parquet file.")
    ] = None


def cv(cells: Cells, kept: Kept, output: options.Output, read: reading.OfLearned, running: options.Training) -> None:
    """Cross-validate systems: in each fold, select on validation data and evaluate on test data.

    For example:

    \b
      toprank cv letor/MQ2008 --systems RankSVM,ListNet,LambdaMART --cache-dir runs
      toprank cv letor/MQ2008 letor/OHSUMED --systems all-linear -m avgndcg,map -c standard,letor4
      toprank cv judged.parquet --systems LambdaMART,ListNet --folds 5 --seeds 0,1,2 --html report.html
      toprank cv judged.parquet --systems LambdaMART,ListNet --slice-by device
      toprank cv judged.parquet --systems LambdaMART,auto --set auto.time_budget=60
    """
    chosen = _check(cells, kept, output)
    experiment = _experiment(cells, chosen, kept, read, running)
    with common.announced(_message()):
        results = experiment.run(verbose=not common.is_quiet())
    saved = kept.output is not None or kept.cache_dir is not None or not results.cells
    rescue = (Path() if output.html is None else output.html.parent) / "toprank-results.parquet"
    with nullcontext() if saved else _rescued(results, rescue):
        _tell(results, kept, output)


def _check(cells: Cells, kept: Kept, output: options.Output) -> dict[str, Any]:
    """Return the systems; refuse invalid options before any computation."""
    output.check_form("json", "markdown", "latex")
    common.check_writable(kept.output)
    common.check_writable(output.html)
    if kept.output is not None and kept.output.suffix.lower() not in (".parquet", ".pq"):
        raise typer.BadParameter(f"--output writes a Parquet file: name it {kept.output.with_suffix('.parquet')}.")
    if kept.save_models and kept.cache_dir is None:
        raise typer.BadParameter("--save-models needs a --cache-dir to keep them in.")
    chosen = _systems(cells.systems, cells.setting or [])
    if output.html is not None and len(chosen) < 2:
        raise typer.BadParameter("a report compares systems; name two or more for --html.")
    return chosen


def _experiment(
    cells: Cells, systems: dict[str, Any], kept: Kept, read: reading.ReadOptions, running: options.Running
) -> Experiment:
    from toprank.experiment import Experiment

    wanted = "--seeds takes whole numbers separated by commas"
    return Experiment(
        _datasets(cells, options.keywords_of(read), running.seed),
        systems,
        metrics=cells.metrics,
        conventions=_conventions(cells.convention),
        seeds=[running.seed] if cells.seeds is None else numbers_of(cells.seeds, int, wanted),
        cache_dir=kept.cache_dir,
        selection_metric=cells.selection_metric,
        selection_convention=cells.selection_convention,
        baseline=cells.baseline,
        slice_by=cells.slice_by,
        split_seed=running.seed,
        save_models=kept.save_models,
        threads=running.threads,
    )


def _tell(results: Results, kept: Kept, output: options.Output) -> None:
    if not results.cells:
        raise DataError("All cells failed. The first error:", remedy=results.failures[0].error)
    if kept.output is not None:
        results.save(kept.output)
        common.say(f"{kept.output}: {results.per_query.num_rows:,} rows")
    output.show(results)
    output.write(partial(_write, results))


def _write(results: Results, html: Path) -> None:
    from toprank.report import from_results, write_html

    with common.progress("Writing the report …"):
        write_html(html, from_results(results))


def _message() -> str | None:
    """Return the progress message, or None if a terminal shows the progress of cells."""
    return None if common.is_watched() else "Reading the folds, and training the first systems on them …"


@contextmanager
def _rescued(results: Results, place: Path) -> Iterator[None]:
    """Save the results if printing or reporting them fails."""
    try:
        yield
    except BrokenPipeError:  # the reader has closed the pipe
        raise
    except BaseException:
        results.save(place)
        common.say(
            f"toprank: Printing or writing the results failed; they are saved in {place}. "
            f'Read them with toprank.experiment.Results.read("{place}").',
            always=True,
        )
        raise


def _datasets(cells: Cells, read: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the folds of each path by name; parent folders make duplicate names unique."""
    from toprank.data.files import is_readable_folder
    from toprank.data.folds import folds
    from toprank.data.unjudged import apply_rule_to_folds

    datasets: dict[str, Any] = {}
    common.refuse_twice(cells.data)
    for path in cells.data:
        own = path.is_dir() and not is_readable_folder(path)
        name = path.resolve().name if own else path.name.split(".")[0]
        for above in path.resolve().parents:
            if name not in datasets:
                break
            name = f"{above.name}/{name}"
        division = {"seed": seed} if cells.time_column is None else {"time_column": cells.time_column}
        if own:
            divided = folds(path, time_column=cells.time_column, **read)
        else:
            divided = folds(path, cells.folds, **division, **common.with_metadata(path, cells.slice_by, read))
        datasets[name] = divided if cells.unjudged is None else apply_rule_to_folds(divided, cells.unjudged)
    return datasets


def _systems(text: str, settings: list[str]) -> dict[str, Any]:
    """Return the systems by name with their fixed hyper-parameters."""
    from toprank.model_selection import AUTO
    from toprank.systems import SYSTEMS, get

    def name_of(word: str) -> str:
        return AUTO if word.lower() == AUTO else get(word).name

    names: dict[str, dict[str, Any]] = {}
    for word in words_of(text):
        group = [
            system.name
            for system in SYSTEMS.values()
            if word.lower() in ("all", f"all-{system.kind.family}") and not system.learns_from_teacher
        ]
        for name in group or [name_of(word)]:
            names.setdefault(name, {})
    for setting in settings:
        path, equals, value = setting.partition("=")
        system, dot, key = (part.strip() for part in path.partition("."))
        if not equals or not dot or not key:
            raise typer.BadParameter(f"--set takes SYSTEM.key=value, not '{setting}'.")
        name = name_of(system)
        if name not in names:
            raise typer.BadParameter(f"--set {setting}: {name} is not one of the systems.")
        if key in names[name]:
            raise typer.BadParameter(f"--set is passed twice for {name}.{key}.")
        if key in _DECIDED:
            raise refuse_set(f"{name}.{key}", "is the same for all systems", _DECIDED[key])
        names[name][key] = value_of(value)
    return {name: (name, options) for name, options in names.items()}


def _conventions(text: str) -> list[str]:
    from toprank.metrics import CONVENTIONS

    return list(CONVENTIONS) if text.strip().lower() == "all" else words_of(text)


def reproduce(
    study: Annotated[str, typer.Argument(help="cs-rglist, owpc or bayes-optimal.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="FOLDER",
            envvar="TOPRANK_DATA",
            help="Folder with the LETOR sets. Default: $TOPRANK_DATA.",
        ),
    ],
    output: Annotated[options.Output, options.only("json", "markdown")],
    sets: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Data sets, separated by commas, such as OHSUMED,MQ2008. Default: all available ones.",
        ),
    ] = None,
    cache_dir: options.CacheDir = None,
    threads: options.Threads = None,
) -> None:
    """Rerun the protocol of a paper and compare the results with the published ones.

    For example:

    \b
      toprank reproduce cs-rglist --data letor --sets OHSUMED,MQ2008
      toprank reproduce bayes-optimal --data letor --cache-dir runs --json
    """
    from toprank.reproduce import reproduce as run

    output.check_form("json", "markdown")
    wanted = None if sets is None else words_of(sets)
    with common.announced(_message()):
        reproduction = run(study, data, wanted, cache_dir=cache_dir, threads=threads, verbose=not common.is_quiet())
    output.show(reproduction)
