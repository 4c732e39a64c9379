"""`tune`, and what it hands back: the ranker, a table, and importance and history as a picture."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from toprank import losses, rankers
from toprank.choosing.search import Question, Search, Standing, as_data, divide, tell
from toprank.choosing.space import Choice, Space, read_space
from toprank.choosing.study import NAME, open_study, storage_path
from toprank.compute import available_threads
from toprank.data.checks import check_whole
from toprank.data.dataset import RankingData
from toprank.drawing import Box, Markup, Scale, path, tag
from toprank.errors import DataError, Remedy, needs, warn_user
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.rankers.base import ConvergenceWarning, Ranker
from toprank.showing.pictures import Picture
from toprank.showing.progress import SILENCE, Told, step
from toprank.showing.tables import Kind, Part, Shown, Table, frame_of
from toprank.systems import SYSTEMS, System, get

__all__ = ["Tuned", "tune"]

_SHOWN = 5


@dataclass(frozen=True, repr=False)
class Tuned(Shown):
    """The ranker with the best hyper-parameters that were found, and everything that was tried; `str` is a table.

    `value` is optimistic: it is the best of many on the data that chose it. What the ranker is worth, other data tell.
    """

    system: str
    ranker: Ranker
    """Fitted with the best options: on the training data, with the validation data to stop by; after folds, on all."""
    options: dict[str, Any]
    """The best of the hyper-parameters that were searched."""
    metric: str
    convention: str
    value: float
    """The metric on the data that the trials were judged by."""
    interval: tuple[float, float] | None
    """95 % interval of that over queries (Student's t), blind to the choice; None for a single query."""
    judged_on: str
    """What the trials were judged by, in words."""
    trials: list[dict[str, Any]]
    """A row for each trial: `number`, `options`, `value`, `state` (complete, pruned, failed or interrupted),
    `seconds`, `remark`; for complete ones also `interval`, `queries`, and `rounds` (the best of each part)."""
    importance: dict[str, float]
    """How much of the variance of the metric each hyper-parameter explains by itself, as shares of 1, largest first
    (fANOVA, over complete trials); empty for fewer than ten trials, or than two for each hyper-parameter."""
    stopped: str
    """Why the search ended, as a sentence."""

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """Importance and history; with a path, also written as a self-contained SVG file, which every browser opens."""
        picture = _picture(self)
        if path is not None:
            picture.save(path)
        return picture

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each trial, best or not; a frame of pandas or polars, or Arrow's."""
        names = dict.fromkeys(name for row in self.trials for name in row["options"])
        columns: dict[str, list[Any]] = {"trial": [row["number"] for row in self.trials]}
        columns |= {name: [row[name] for row in self.trials] for name in ("state", "value")}
        for place, end in enumerate(("low", "high")):
            columns[end] = [(row.get("interval") or (None, None))[place] for row in self.trials]
        columns |= {name: [row["options"].get(name) for row in self.trials] for name in names}
        return frame_of(columns | {name: [row[name] for row in self.trials] for name in ("seconds", "remark")}, kind)

    def _parts(self) -> Sequence[Part]:
        found = ", ".join(f"{name}={_short(value)}" for name, value in self.options.items())
        within = "" if self.interval is None else f" [{self.interval[0]:.4f}, {self.interval[1]:.4f}]"
        counts = Counter(row["state"] for row in self.trials)
        value = f"{self.system}: {self.metric} ({self.convention}) {self.value:.4f}{within} on {self.judged_on}"
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.importance.items())
        states = ", ".join(f"{number} {state}" for state, number in counts.items())
        said = (
            *([f"What mattered: {shares}."] if shares else []),
            f"{self.stopped} ({states})",
            "The value is the best of many, so it is optimistic; judge the ranker on data that chose nothing.",
        )
        return [f"{value}\nwith {found}", self._table(), said]

    def _table(self) -> Table:
        complete = [row for row in self.trials if row["state"] == "complete"]
        best_first = sorted(complete, key=lambda row: (abs(row["value"] - self.value), row["number"]))[:_SHOWN]
        names = list(self.options)
        rows = []
        for row in best_first:
            options = [_short(row["options"][name]) for name in names]
            rows.append((str(row["number"]), f"{row['value']:.4f}", *options, f"{row['seconds'] or 0:.1f}"))
        return Table(("trial", self.metric, *names, "seconds"), rows, names=0)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_WIDTH, _MARGIN, _BAR, _TITLE, _HISTORY = 760.0, 24, 26, 66, 240
_LEFT, _RIGHT = 170.0, 60.0  # room for names, room for numbers


def _picture(tuned: Tuned) -> Picture:
    top = _TITLE + max(1, len(tuned.importance)) * _BAR + 80.0
    drawn = [*_importance_bars(tuned), *_history_plot(tuned, top)]
    return Picture(f"{tuned.system} tuned by {tuned.metric}", top + _HISTORY + 50, *drawn, width=_WIDTH)


def _text(x: float, y: float, words: str, kind: str | None = None) -> Markup:
    return tag("text", words, x=float(x), y=float(y), cls=kind)


def _importance_bars(tuned: Tuned) -> Iterator[Markup]:
    yield _text(_MARGIN, 30, f"What mattered to {tuned.metric} of {tuned.system}", "title")
    yield _text(_MARGIN, 50, "share of the variance over complete trials that each explains by itself", "muted")
    if not tuned.importance:
        yield _text(_MARGIN, _TITLE + 18, "Too few trials were complete to tell.")
    x = Scale(0.0, 1.0, _LEFT, _WIDTH - _RIGHT)
    for number, (name, share) in enumerate(tuned.importance.items()):
        y, end = _TITLE + number * _BAR, max(_LEFT + 1.0, x(share))
        yield _text(_LEFT - 8, y + 16, name, "end")
        yield tag("rect", cls="bar", x=_LEFT, y=y + 4, width=end - _LEFT, height=_BAR - 10, rx=2)
        yield _text(end + 6, y + 16, f"{share:.0%}")


def _history_plot(tuned: Tuned, top: float) -> Iterator[Markup]:
    """A dot for each trial, and the best so far as a line."""
    judged = [row for row in tuned.trials if row["value"] is not None]
    complete = [row for row in judged if row["state"] == "complete"]
    low, high = _bounds([row["value"] for row in complete])
    last = max(row["number"] for row in tuned.trials)
    box = Box(_LEFT, top, _WIDTH - _RIGHT, top + _HISTORY)
    x = Scale(0.0, float(last), box.left, box.right)
    y = Scale(low, high, box.bottom, box.top)  # what lies far from the complete trials is drawn at the edge
    yield _text(_MARGIN, top - 40, f"{tuned.metric} of each trial, on {tuned.judged_on}", "title")
    yield _text(_MARGIN, top - 20, "line: best so far; pale: pruned; beyond the scale: at its edge", "muted")
    yield tag("path", cls="axis", d=path([(box.left, box.top), (box.left, box.bottom), (box.right, box.bottom)]))
    for value in (low, (low + high) / 2, high):
        yield _text(_LEFT - 8, y(value) + 4, f"{value:.4f}", "muted end")
    for number in sorted({0, last // 2, last}):
        yield _text(x(number), box.bottom + 18, str(number), "muted mid")
    yield _text((box.left + box.right) / 2, box.bottom + 38, "trial", "muted mid")
    steps = _best_so_far(complete, tuned.value, last)
    yield tag("path", cls="line", d=path([(x(number), y(value)) for number, value in steps]))
    for row in judged:
        kind = "dot" if row["state"] == "complete" else "rest"
        yield tag("circle", cls=kind, cx=x(row["number"]), cy=y(row["value"]), r=3.5)


def _bounds(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or max(abs(high), 1.0) * 0.01
    return low - room, high + room


def _best_so_far(complete: list[dict[str, Any]], best: float, last: int) -> list[tuple[float, float]]:
    """Corners of a staircase that ends at the best value, up or down as the metric goes."""
    better = max if best == max(row["value"] for row in complete) else min
    reached = complete[0]["value"]
    corners = [(complete[0]["number"], reached)]
    for row in complete[1:]:
        corners.append((row["number"], reached))
        reached = better(reached, row["value"])
        corners.append((row["number"], reached))
    return [*corners, (last, reached)]


_TELLING = 10
_TELLING_EACH = 2
"""Complete trials, in all and for each hyper-parameter, below which its share of the variance is chance."""


def tune(
    system: System | str | Ranker | type[Ranker],
    train: RankingData | tuple[Any, ...],
    valid: RankingData | tuple[Any, ...] | None = None,
    *,
    metric: str | None = None,
    convention: str = "standard",
    trials: int = 50,
    seconds: float | None = None,
    space: Mapping[str, Any] | None = None,
    folds: int | None = None,
    by: str | None = None,
    storage: str | os.PathLike[str] | None = None,
    study: str | None = None,
    seed: int = 0,
    threads: int | None = None,
    callbacks: Sequence[Callable[[Standing], Any]] = (),
    verbose: bool | None = None,
    **fixed: Any,
) -> Tuned:
    """Search a system's hyper-parameters: fit on `train`, judge on queries that were not trained on.

    The first trial is the system as it is (where its values lie within the space), the next are drawn at random, and
    those after the tenth where earlier ones were good (Optuna's tree-structured Parzen estimator). A trial that falls
    behind the median of the others is pruned: rankers that learn in rounds during training, others after a fold.

    Args:
        system: a system or its name; or a ranker or its class, whose other parameters stay as they are.
        train: data to fit on, also as (X, y, qid).
        valid: data to judge on, likewise. None: `folds`, or else a fifth of the training queries, held out by seed.
        metric: what to judge by; None: what the system's source chooses by.
        convention: the rules of the metric.
        trials: how many trials the study shall have, those of a resumed one included.
        seconds: time for this search; the first trial may take longer, later ones are cut off where they can be.
        space: the hyper-parameters to search, instead of `default_space(system)`: a tuple is a range, ``(8, 128)`` or
            ``(8, 128, "log")``, a list is a choice, ``[0.5, 1, 2]``. ``"loss.sigma"`` is an option of the loss.
        folds: judge by cross-validation over whole queries with so many folds; the answer is then fitted on all.
        by: a carried column of dates or numbers: the latest fifth is held out instead, or each of `folds` judges on a
            period and learns from all before it, in a window that expands; see `toprank.split`.
        storage: path of an SQLite file that keeps the study, to be resumed by the same call.
        study: the name of the study in that file; a file may hold several.
        seed: decides what is drawn and held out, and the ranker's own randomness.
        threads: threads for each trial, which are made one after another.
        callbacks: functions of a `Standing`, called after each trial; one that returns True ends the search.
        verbose: tell each trial, the best so far and the time left on standard error; in a notebook, in one line that
            is written over. None: from the third second on; False: never.
        fixed: hyper-parameters to fix; they are not searched.

    The same seed gives the same trials, in one go or resumed, on the same number of threads and without `seconds`. An
    interrupt from the keyboard ends the search with a warning; the best so far is returned. A trial that fails is noted
    with its reason; only if none succeeds, it is an error.

    Raises:
        MissingExtraError: Optuna is not installed.
        UnknownNameError: there is no such system, metric, convention or hyper-parameter.
        DataError: the space, the data or the study in `storage` do not suit.

    >>> import toprank as tr
    >>> train, valid = tr.split(tr.synthetic(n_queries=60, seed=0), (0.5, 0.5))
    >>> tuned = tr.tune("LeastSquares", train, valid, space={"l2": (1e-4, 10.0, "log")}, trials=3)
    >>> len(tuned.trials), tuned.value >= tuned.trials[0]["value"]
    (3, True)
    """
    with warnings.catch_warnings():  # in a notebook its import asks for widgets, which a search shows none of
        warnings.filterwarnings("ignore", "IProgress not found")
        optuna = needs("optuna", "tune", "tr.tune")
    chosen = _system(system)
    if space is None and not isinstance(system, System | str):
        given = {name: value for name, value in chosen.options.items() if name != "loss"}
        fixed = {**given, **fixed}  # what a ranker was given is not searched unasked
    path = _check(trials, seconds, seed, threads, callbacks, storage, study)
    trials, seed = int(trials), int(seed)
    learn, judge = as_data(train), None if valid is None else as_data(valid)
    question = Question(
        chosen,
        divide(learn, judge, folds, seed, by),
        chosen.plain_options(fixed),
        metric or chosen.metric,
        Convention.of(convention).name,
        seed,
        threads,
    )
    searched = read_space(chosen, space, question.fixed)
    if question.division.folded:
        _check_single(question, searched)
    measure = parse(question.metric)
    question.check_judges()
    quiet, line = verbose is False, Told(after=SILENCE if verbose is None else 0.0)
    told = [*callbacks, *([] if quiet else [tell(question.metric, line)])]
    identity = {} if path is None else _identity(question, searched, learn, judge)
    pruner = optuna.pruners.MedianPruner(n_warmup_steps=_warm_up(question))
    with open_study(optuna, path, study or NAME, identity, maximize=measure.higher_is_better, pruner=pruner) as opened:
        search = Search(optuna, opened, question, searched, trials=trials, seconds=seconds, callbacks=told)
        with step(f"Searching hyper-parameters of {chosen.name}, trial by trial …", quiet, line):
            stopped = search.run()
        importance = _importance(optuna, opened, search)
        with step(f"Fitting the best of {chosen.name} once more …", quiet, line):
            return _answer(search, learn, stopped, importance)


def _system(given: Any) -> System:
    """The system that is meant; of a ranker, the one that makes such rankers: what differs from the defaults stays."""
    if isinstance(given, System):
        return given
    if isinstance(given, str):
        return get(given)
    ranker = given() if isinstance(given, type) and issubclass(given, Ranker) else given
    kind = type(ranker).__name__
    if not isinstance(ranker, Ranker) or getattr(rankers, kind, None) is not type(ranker):
        raise DataError(
            f"tune takes a system or its name, or a ranker of toprank (tr.TreeRanker(n_trees=50)), not "
            f"{kind if ranker is given else given!r}."
        )
    defaults, found = type(ranker)().get_params(deep=False), ranker.get_params(deep=False)
    options = {name: value for name, value in found.items() if repr(value) != repr(defaults[name])}
    name = None
    if "loss" in found and not str(found["loss"]).startswith("lightgbm:"):
        options.pop("loss", None)
        loss = losses.make(found["loss"])
        name = type(loss).__name__
        if name not in losses.names() or type(plain := losses.make(name)) is not type(loss):
            raise DataError(f"tune makes losses by their names, and {name} is one of your own; search in a loop.")
        own = {one.name: getattr(loss, one.name) for one in fields(loss)}
        options |= {f"loss.{field}": value for field, value in own.items() if value != getattr(plain, field)}
    alike = [one for one in SYSTEMS.values() if (one.ranker, one.loss) == (kind, name) and not one.options]
    grid = {} if not alike else {key: values for key, values in alike[0].grid.items() if key not in options}
    return System(kind, kind, name, source="", idea=repr(ranker), options=options, grid=grid)


def _check(trials: Any, seconds: Any, seed: Any, threads: int | None, callbacks: Any, storage: Any, study: Any) -> Any:
    check_whole("trials", trials, 1)
    check_whole("seed", seed, 0, below=2**31)
    if seconds is not None and (
        not isinstance(seconds, int | float | np.integer | np.floating) or not 0 < seconds < math.inf
    ):
        raise DataError(f"seconds must be a number above 0, or None for no limit, not {seconds!r}.")
    if callable(callbacks) or not all(map(callable, callbacks)):
        raise DataError("callbacks takes a list of functions, each of which is called with a Standing.")
    if study is not None and (not isinstance(study, str) or not study.strip()):
        raise DataError(f"study is the name of a study, not {study!r}.")
    available_threads(threads)
    return storage_path(storage)


def _check_single(question: Question, space: Space) -> None:
    """Refuse several penalties at once, which a ranker chooses among on validation data: after folds there are none."""
    options = question.ranker({}).get_params(deep=False)
    for name in ("l2", "tolerance"):
        dimension = space.dimensions.get(name)
        values = dimension.values if isinstance(dimension, Choice) else (options.get(name),)
        for value in values:
            if isinstance(value, list | tuple | np.ndarray):
                raise DataError(
                    f"{name}={value!r} leaves a choice to the ranker, but with folds there are no validation data "
                    "for it when the answer is fitted on all. Search it instead:",
                    remedy=Remedy("{space}, or fix one value.", space={name: [...]}),
                )


def _identity(question: Question, space: Space, train: RankingData, valid: RankingData | None) -> dict[str, Any]:
    """What a study must agree in to be resumed."""
    return {
        "system": question.system.name,
        "metric": f"{question.metric} ({question.convention})",
        "train": train.fingerprint,
        "judges": question.division.words,
        "valid": "" if valid is None else valid.fingerprint,
        "fixed": _told({**question.system.options, **question.fixed}),
        "space": _told(space.dimensions),
        "seed": question.seed,
    }


def _told(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(values)) or "none"


def _warm_up(question: Question) -> int:
    """A fifth of the rounds, in which small steps cannot yet show what they are good for; folds need none."""
    rounds = question.rounds
    return 0 if question.division.folded or rounds is None else rounds // 5


def _importance(optuna: Any, study: Any, search: Search) -> dict[str, float]:
    values = [row["value"] for row in search.table() if row["state"] == "complete"]
    if len(set(values)) < 2 or len(values) < max(_TELLING, _TELLING_EACH * len(search.space.dimensions)):
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=search.question.seed)
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()}


def _answer(search: Search, train: RankingData, stopped: str, importance: dict[str, float]) -> Tuned:
    question, best = search.question, search.best()
    assert best is not None  # a search without a complete trial does not come here
    ranker = _ranker(search, best, train)
    if stopped.startswith("Interrupted"):
        warn_user(f"tune: {stopped} The best of them is returned.", ConvergenceWarning)
    interval = best["interval"]
    return Tuned(
        system=question.system.name,
        ranker=ranker,
        options=best["options"],
        metric=question.metric,
        convention=question.convention,
        value=best["value"],
        interval=None if interval is None else (interval[0], interval[1]),
        judged_on=question.division.words,
        trials=search.table(),
        importance=importance,
        stopped=stopped,
    )


def _ranker(search: Search, best: Mapping[str, Any], train: RankingData) -> Any:
    """The ranker to hand back: that of the best trial where this process made it, else fitted again."""
    question, kept = search.question, search.kept
    if question.division.folded:
        return question.fitted_on_all(best["options"], best["rounds"], train)
    if kept is None or kept.number != best["number"]:
        part = question.division.parts[0]
        return question.ranker(best["options"]).fit(part.train, valid=part.valid)
    [ranker] = kept.outcome.rankers
    for one in kept.outcome.said:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    with contextlib.suppress(ValueError):  # not every kind of ranker has callbacks
        ranker.set_params(callbacks=())
    return ranker
