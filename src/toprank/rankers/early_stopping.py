"""Early stopping of a training in rounds or epochs, and its history: the metric after each, the best, the time left.

`BoosterStopping` is a callback of LightGBM; `EpochStopping` and `LoopStopping` are called by the loop that makes the
epochs or rounds.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from typing_extensions import override

from toprank.compute import FloatArray, out_of_time
from toprank.data.dataset import RankingData
from toprank.display.progress import FILE_INTERVAL, ProgressLine, patience
from toprank.errors import DataError
from toprank.evaluation.scores import BoundMetric
from toprank.metrics.measure import Measure

if TYPE_CHECKING:
    from toprank.rankers.neural.ranker import NeuralRanker
    from toprank.rankers.trees.ranker import TreeRanker


class Rounds(NamedTuple):
    """What a ranker that learns in rounds calls them; it takes `callbacks`, and reports each round if `verbose`."""

    option: str
    """The parameter for the number of rounds to make."""
    kept: str
    """The fitted attribute for the number of rounds kept."""
    nested: bool
    """Whether a training of fewer rounds is the beginning of one of more."""


class Round(NamedTuple):
    """What a callback sees after each round; one that returns True ends the training."""

    number: int
    """Rounds in the model so far, those of `init_model` included."""
    last: int
    """The number of the last round, if nothing ends the training before."""
    train: float | None
    """The metric on the training data; None if it is not computed."""
    valid: float | None
    """The metric on the validation data; None without any."""
    best: int
    """The best round on the validation data so far; without any, the last."""
    seconds: float
    """Time since training began."""
    seconds_left: float
    """Estimated time until the last round; NaN after the first, whose time includes the start."""
    booster: Any = None
    """LightGBM's booster, to look at; None if LightGBM does not make the rounds."""


class Epoch(NamedTuple):
    """What a callback sees after each epoch, as in a `Round`; one that returns True ends the training."""

    number: int
    last: int
    loss: float
    """The mean loss of the epoch's batches, each before its step."""
    train: float | None
    """The metric on the training data, with `eval_train`; else None."""
    valid: float | None
    best: int
    seconds: float
    seconds_left: float


def training_metrics(
    ranker: TreeRanker | NeuralRanker, train: RankingData | None, valid: RankingData | None, *, lenient: bool = False
) -> dict[str, BoundMetric]:
    """Return the judges to ask after each step, "train" and "valid"; data that a metric refuses are refused now.

    `lenient`: leave the training data out if the metric does not take their labels, which a loss may take, such as
    negative ones.
    """
    judges = {}
    for name, data in (("train", train), ("valid", valid)):
        if data is None:
            continue
        judge = BoundMetric(data, ranker.metric, convention=ranker.convention, threads=ranker.threads)
        try:
            judge(np.zeros(data.n_documents))
        except DataError:
            if lenient and name == "train":
                continue
            raise
        judges[name] = judge
    if valid is not None and ranker.early_stopping is not None:
        judges["valid"].for_selection()
    return judges


class PriorTraining(NamedTuple):
    """An earlier training, which a training goes on from."""

    steps: int = 0
    value: float | None = None
    """Its validation metric, to be beaten."""
    model: Any = None


_NO_PRIOR = PriorTraining()


def stopping_options(
    ranker: TreeRanker | NeuralRanker,
    judge: BoundMetric | None,
    scores_before: Callable[[Any, RankingData], FloatArray],
    prior: PriorTraining,
) -> dict[str, Any]:
    """Return the arguments of an `EarlyStopping` that follow from a ranker's parameters and its validation data.

    `scores_before(init_model, data)` gives the scores that training goes on from, to be beaten on validation data.
    """
    progress, before = [TrainingProgress(ranker.metric)] if ranker.verbose else [], ranker.init_model
    return {
        "prior": prior._replace(
            value=None if before is None or judge is None else judge(scores_before(before, judge.data))
        ),
        "higher_is_better": judge is None or judge.higher_is_better,
        "patience": None if judge is None else ranker.early_stopping,
        "callbacks": [*progress, *ranker.callbacks],
    }


def seconds_left(seconds: float, made: int, more: int) -> float:
    """Return how long `more` steps will take, if `made` steps took so many seconds; NaN if none were made.

    >>> seconds_left(3.0, 2, 4), seconds_left(0.0, 0, 0)
    (6.0, 0.0)
    """
    return 0.0 if more == 0 else seconds / made * more if made else math.nan


class EarlyStopping:
    """Keeps the history and the best model, and decides when to stop.

    `steps` are to be made, after those of an earlier training (`prior`). Stops after `patience` steps without a better
    model and keeps the best; with None, all steps are made and the last model is kept. `decides` names the metric by
    which models are compared, "valid" or "train"; a gain of at most `least_gain` does not count.
    """

    unit: ClassVar[str] = "round"
    report: ClassVar[type[Round | Epoch]] = Round
    """What callbacks are shown."""

    def __init__(
        self,
        *,
        steps: int,
        prior: PriorTraining = _NO_PRIOR,
        higher_is_better: bool = True,
        patience: int | None = None,
        decides: Literal["valid", "train"] = "valid",
        least_gain: float = 0.0,
        callbacks: Sequence[Callable[[Any], Any]] = (),
    ) -> None:
        self.steps, self.first, self.best_value, self.patience = steps, prior.steps, prior.value, patience
        self.decides, self.least_gain = decides, least_gain
        self.higher_is_better, self.callbacks = higher_is_better, callbacks
        self.best = self.done = self.first
        self.history: dict[str, list[float]] = {self.unit: []}
        self.stopped = self._all_made
        self.over = self.unfinished = self.interrupted = self.ran_out_of_time = False
        self.last_model, self.best_model = None, prior.model
        self._begin, self._started = time.perf_counter(), 0.0

    def note(self, metrics: Mapping[str, float], model: Any, **row: float) -> None:
        """Take note of a step that was just made; `row` is kept in the history beside the metrics."""
        number = self.done + 1
        numbers = {self.unit: number, **row, **metrics}
        history = {name: [*self.history.get(name, ()), value] for name, value in numbers.items()}
        # Nothing is called here, so that no interrupt comes between: a step that counts has its model and its row.
        self.last_model, self.history, self.done = model, history, number
        decisive = metrics.get(self.decides)
        self._compare(decisive)
        self._tell(row, metrics.get("train"), metrics.get("valid"))
        if self.interrupted:
            self.stop(self._interruption)
        if decisive is not None and self.patience is not None and self.done - self.best >= self.patience:
            name = "validation" if self.decides == "valid" else "training"
            self.stop(f"The {name} metric did not improve for {self.patience} {self.unit}s.")
        if not self.over and number < self.last and out_of_time():
            self.ran_out_of_time = True
            self.stop(f"The time was over after {number} {self.unit}s.")

    def _compare(self, value: float | None) -> None:
        if value is None or value != value:  # NaN: no query could be judged
            return
        sign = 1.0 if self.higher_is_better else -1.0
        if self.best_value is None or sign * value > sign * self.best_value + self.least_gain:
            self.best, self.best_value, self.best_model = self.done, value, self._copy_of_best()

    def _copy_of_best(self) -> Any:
        """Return what to keep of the best step so far."""
        return self.last_model

    def _tell(self, row: Mapping[str, float], train: float | None, valid: float | None) -> None:
        seconds = time.perf_counter() - self._begin
        made = self.done - self.first
        if made == 1:
            self._started = seconds
        left = seconds_left(seconds - self._started, made - 1, self.steps - made)
        best = self.done if valid is None else self.best
        times = {"seconds": seconds, "seconds_left": left}
        seen = self.seen(number=self.done, last=self.last, train=train, valid=valid, best=best, **row, **times)
        wishes = [callback(seen) for callback in self.callbacks]
        if any(wish is True for wish in wishes):
            self.stop(f"A callback ended the training after {self.done} {self.unit}s.")

    def seen(self, **fields: Any) -> Round | Epoch:
        """Return what callbacks are shown."""
        return self.report(**fields)

    def stop(self, reason: str) -> None:
        """Note why no more steps are made, unless a reason is noted already."""
        if not self.over:
            self.over, self.stopped = True, reason

    def go_on(self) -> None:
        """Take up a training again that stopped because its time was over."""
        self.over = self.ran_out_of_time = False
        self.stopped = self._all_made

    @property
    def _all_made(self) -> str:
        return f"All {self.steps} {self.unit}s were made."

    @property
    def _interruption(self) -> str:
        return f"Interrupted after {self.done} {self.unit}s."

    def interrupt(self) -> None:
        """Note that the training was interrupted from the keyboard."""
        self.interrupted = True
        self.end_early(self._interruption)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let an interrupt from the keyboard end the loop inside; raise it if no step was made yet."""
        try:
            yield
        except KeyboardInterrupt:
            if not self.has_something_to_keep:
                raise
            self.interrupt()

    def end_early(self, reason: str) -> None:
        """Note that the training ended before its last step."""
        self.over = self.unfinished = True
        self.stopped = reason

    @property
    def last(self) -> int:
        """The number of the last step, if nothing ends the training before."""
        return self.first + self.steps

    @property
    def has_something_to_keep(self) -> bool:
        """Whether a step was made, in this training."""
        return self.done > self.first

    @property
    def has_a_best(self) -> bool:
        """Whether the model to keep was chosen on validation data."""
        return self.patience is not None and self.best_value is not None

    def kept(self) -> tuple[Any, int, float | None]:
        """Return the model to keep, its steps and validation metric: the best with early stopping, else the last."""
        if self.has_a_best:
            return self.best_model, self.best, self.best_value
        valid = self.history.get("valid")
        return self.last_model, self.done, valid[-1] if valid else None


class EpochStopping(EarlyStopping):
    """A watch of epochs, each with its loss; the models are copies of the weights."""

    unit = "epoch"
    report = Epoch


class LoopStopping(EarlyStopping):
    """A watch of rounds that a loop of ours makes; the model is what the loop passes to `note`."""


class BoosterStopping(EarlyStopping):
    """A watch of rounds that is a callback of LightGBM; the model is its booster, cut after any round.

    With `dart`, which changes the weights of earlier trees, the best model is not the beginning of a later one, so its
    text is kept. `sampled`: a round without a split may be followed by one with a split.
    """

    before_iteration = False
    order = 0

    def __init__(self, *, dart: bool = False, sampled: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.dart, self.sampled = dart, sampled
        self.booster: Any = None
        self.attempts = 0  # rounds that were begun, those without a split included
        self._untouched: Any = None

    def settle_draws(self) -> None:
        """Make DART's random draws depend on the seed alone; called once in each round, with the scores in hand.

        A flag of LightGBM's says whether the trees to leave out were drawn already. It is not set when training
        begins, so asking for the first scores draws once or not at all, by chance, and all later draws are shifted.
        Setting any parameter begins the draws anew, and by now the flag is set.
        """
        if self.dart and self._untouched is not None:
            self._untouched.reset_parameter({"verbosity": -1})
        self._untouched = None

    def before_the_first(self, env: Any) -> None:
        """Take hold of the booster before the first round."""
        if env.iteration == env.begin_iteration:
            self._untouched = env.model

    before_the_first.before_iteration = True  # type: ignore[attr-defined]

    def __call__(self, env: Any) -> None:
        """Look at a round that was just made."""
        self.booster, self.attempts = env.model, self.attempts + 1
        if env.model.current_iteration() > self.done:
            self.note({entry[0]: float(entry[2]) for entry in env.evaluation_result_list}, None)
        elif not self.sampled:  # LightGBM takes a round without a split back
            self.stop(f"After {self.done} rounds no split was left that improves the fit.")
        if self.over:
            from lightgbm.callback import EarlyStopException

            raise EarlyStopException(self.done - 1, [])

    @override
    def _copy_of_best(self) -> str | None:
        whole = self.dart and self.patience is not None
        return self.booster.model_to_string(num_iteration=-1) if whole else None

    @override
    def seen(self, **fields: Any) -> Round:
        return Round(booster=self.booster, **fields)

    @override
    def kept(self) -> tuple[str, int, float | None]:
        text, rounds, valid = super().kept()
        return text or self.booster.model_to_string(num_iteration=rounds), rounds, valid


class TrainingProgress:
    """A callback that writes progress to standard error: about once a second on a terminal, less often elsewhere."""

    def __init__(self, metric: str | Measure) -> None:
        self.metric = metric
        self.tell = ProgressLine(1.0 if sys.stderr.isatty() else FILE_INTERVAL, after=patience())

    def __call__(self, now: Round | Epoch) -> None:
        """Write a line, unless the last one was written a moment ago."""
        unit = "epoch" if isinstance(now, Epoch) else "round"
        parts = [f"{unit} {now.number}/{now.last}"]
        if isinstance(now, Epoch):
            parts.append(f"loss {now.loss:.4g}")
        if now.train is not None:
            parts.append(f"train {self.metric} {now.train:.4f}")
        if now.valid is not None:
            parts.append(f"valid {self.metric} {now.valid:.4f} (best in {unit} {now.best})")
        if now.seconds_left == now.seconds_left:
            parts.append(f"about {now.seconds_left:.0f} s left")
        self.tell("  ".join(parts), last=now.number >= now.last)
