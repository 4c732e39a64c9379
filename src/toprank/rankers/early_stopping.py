"""Early stopping of training in rounds or epochs, and its history: metrics after each step, the best step, time left.

`BoosterStopping` is a LightGBM callback; `EpochStopping` and `LoopStopping` are called by the training loop.
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
    """Names of the rounds of a ranker, which accepts `callbacks` and reports each round if `verbose`."""

    option: str
    """The parameter for the number of rounds."""
    kept: str
    """The fitted attribute for the number of rounds kept."""
    nested: bool
    """Whether a training with fewer rounds is a prefix of one with more."""


class Round(NamedTuple):
    """The argument of callbacks after each round; a callback that returns True ends the training."""

    number: int
    """Rounds in the model so far, including those of `init_model`."""
    last: int
    """The number of the last round, unless training ends earlier."""
    train: float | None
    """The metric on the training data; None if it is not computed."""
    valid: float | None
    """The metric on the validation data; None without validation data."""
    best: int
    """The best round on the validation data so far; without validation data, the latest."""
    seconds: float
    """Time since the start of training."""
    seconds_left: float
    """Estimated time until the last round; NaN after the first, whose time includes the setup."""
    booster: Any = None
    """LightGBM's booster, read-only; None if LightGBM does not run the rounds."""


class Epoch(NamedTuple):
    """The argument of callbacks after each epoch, as `Round`; a callback that returns True ends the training."""

    number: int
    last: int
    loss: float
    """The mean loss of the epoch's batches, each before its step."""
    train: float | None
    """The metric on the training data with `eval_train`, else None."""
    valid: float | None
    best: int
    seconds: float
    seconds_left: float


def training_metrics(
    ranker: TreeRanker | NeuralRanker, train: RankingData | None, valid: RankingData | None, *, lenient: bool = False
) -> dict[str, BoundMetric]:
    """Return the metrics to compute after each step, "train" and "valid"; check now that they accept the data.

    `lenient` drops the training data if the metric does not accept their labels, which the loss may accept, such as
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
    """An earlier training that the present one continues."""

    steps: int = 0
    value: float | None = None
    """Its validation metric, which the present training must exceed."""
    model: Any = None


_NO_PRIOR = PriorTraining()


def stopping_options(
    ranker: TreeRanker | NeuralRanker,
    judge: BoundMetric | None,
    scores_before: Callable[[Any, RankingData], FloatArray],
    prior: PriorTraining,
) -> dict[str, Any]:
    """Return the arguments of `EarlyStopping` that follow from a ranker's parameters and its validation data.

    `scores_before(init_model, data)` returns the initial scores, whose metric on the validation data must be exceeded.
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
    """Estimate the time for `more` steps from the seconds for `made` steps; NaN if none were made.

    >>> seconds_left(3.0, 2, 4), seconds_left(0.0, 0, 0)
    (6.0, 0.0)
    """
    return 0.0 if more == 0 else seconds / made * more if made else math.nan


class EarlyStopping:
    """Records the history and the best model, and decides when to stop.

    Args:
        steps: number of steps to make after the earlier training.
        prior: the earlier training that is continued.
        higher_is_better: whether larger values of the metric are better.
        patience: stop after this many steps without a better model, and keep the best. None to make all steps and keep
            the last model.
        decides: the metric by which models are compared, "valid" or "train".
        min_gain: smallest improvement that counts.
        callbacks: functions called after each step.
    """

    unit: ClassVar[str] = "round"
    report: ClassVar[type[Round | Epoch]] = Round
    """The type of the callbacks' argument."""

    def __init__(
        self,
        *,
        steps: int,
        prior: PriorTraining = _NO_PRIOR,
        higher_is_better: bool = True,
        patience: int | None = None,
        decides: Literal["valid", "train"] = "valid",
        min_gain: float = 0.0,
        callbacks: Sequence[Callable[[Any], Any]] = (),
    ) -> None:
        self.steps, self.first, self.best_value, self.patience = steps, prior.steps, prior.value, patience
        self.decides, self.min_gain = decides, min_gain
        self.higher_is_better, self.callbacks = higher_is_better, callbacks
        self.best = self.done = self.first
        self.history: dict[str, list[float]] = {self.unit: []}
        self.stopped = self._all_made
        self.over = self.unfinished = self.interrupted = self.ran_out_of_time = False
        self.last_model, self.best_model = None, prior.model
        self._begin, self._started = time.perf_counter(), 0.0

    def note(self, metrics: Mapping[str, float], model: Any, **row: float) -> None:
        """Record a completed step; `row` is added to the history next to the metrics."""
        number = self.done + 1
        numbers = {self.unit: number, **row, **metrics}
        history = {name: [*self.history.get(name, ()), value] for name, value in numbers.items()}
        # No function is called here, so an interrupt cannot separate a step from its model and its row.
        self.last_model, self.history, self.done = model, history, number
        decisive = metrics.get(self.decides)
        self._compare(decisive)
        self._report(row, metrics.get("train"), metrics.get("valid"))
        if self.interrupted:
            self.stop(self._interruption)
        if decisive is not None and self.patience is not None and self.done - self.best >= self.patience:
            name = "validation" if self.decides == "valid" else "training"
            self.stop(f"The {name} metric did not improve for {self.patience} {self.unit}s.")
        if not self.over and number < self.last and out_of_time():
            self.ran_out_of_time = True
            self.stop(f"The time limit was reached after {number} {self.unit}s.")

    def _compare(self, value: float | None) -> None:
        if value is None or value != value:  # NaN: the metric is undefined for all queries
            return
        sign = 1.0 if self.higher_is_better else -1.0
        if self.best_value is None or sign * value > sign * self.best_value + self.min_gain:
            self.best, self.best_value, self.best_model = self.done, value, self._copy_of_best()

    def _copy_of_best(self) -> Any:
        """Return the model to keep for the best step so far."""
        return self.last_model

    def _report(self, row: Mapping[str, float], train: float | None, valid: float | None) -> None:
        seconds = time.perf_counter() - self._begin
        made = self.done - self.first
        if made == 1:
            self._started = seconds
        left = seconds_left(seconds - self._started, made - 1, self.steps - made)
        best = self.done if valid is None else self.best
        times = {"seconds": seconds, "seconds_left": left}
        seen = self.seen(number=self.done, last=self.last, train=train, valid=valid, best=best, **row, **times)
        answers = [callback(seen) for callback in self.callbacks]
        if any(answer is True for answer in answers):
            self.stop(f"A callback ended the training after {self.done} {self.unit}s.")

    def seen(self, **fields: Any) -> Round | Epoch:
        """Return the argument for callbacks."""
        return self.report(**fields)

    def stop(self, reason: str) -> None:
        """Record the reason for stopping, unless there is one already."""
        if not self.over:
            self.over, self.stopped = True, reason

    def go_on(self) -> None:
        """Resume a training that stopped at its time limit."""
        self.over = self.ran_out_of_time = False
        self.stopped = self._all_made

    @property
    def _all_made(self) -> str:
        return f"All {self.steps} {self.unit}s were completed."

    @property
    def _interruption(self) -> str:
        return f"Interrupted after {self.done} {self.unit}s."

    def interrupt(self) -> None:
        """Record an interrupt from the keyboard."""
        self.interrupted = True
        self.end_early(self._interruption)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """End the inner loop on an interrupt from the keyboard; re-raise it if no step was completed."""
        try:
            yield
        except KeyboardInterrupt:
            if not self.has_completed_step:
                raise
            self.interrupt()

    def end_early(self, reason: str) -> None:
        """Record that training ended before its last step."""
        self.over = self.unfinished = True
        self.stopped = reason

    @property
    def last(self) -> int:
        """The number of the last step, unless training ends earlier."""
        return self.first + self.steps

    @property
    def has_completed_step(self) -> bool:
        """True if this training completed a step."""
        return self.done > self.first

    @property
    def has_best(self) -> bool:
        """True if the model to keep was selected on validation data."""
        return self.patience is not None and self.best_value is not None

    def kept(self) -> tuple[Any, int, float | None]:
        """Return the model to keep, its steps and validation metric: the best with early stopping, else the last."""
        if self.has_best:
            return self.best_model, self.best, self.best_value
        valid = self.history.get("valid")
        return self.last_model, self.done, valid[-1] if valid else None


class EpochStopping(EarlyStopping):
    """Early stopping for epochs, each with its loss; the models are copies of the weights."""

    unit = "epoch"
    report = Epoch


class LoopStopping(EarlyStopping):
    """Early stopping for rounds of our own training loops; the model is the one passed to `note`."""


class BoosterStopping(EarlyStopping):
    """Early stopping as a LightGBM callback; the model is its booster, truncated after any round.

    With `dart`, which changes the weights of earlier trees, the best model is not a prefix of a later one, so its text
    is stored. `sampled` states that a round without a split may be followed by one with a split.
    """

    before_iteration = False
    order = 0

    def __init__(self, *, dart: bool = False, sampled: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.dart, self.sampled = dart, sampled
        self.booster: Any = None
        self.attempts = 0  # rounds started, including those without a split
        self._untouched: Any = None

    def settle_draws(self) -> None:
        """Make DART's random draws depend only on the seed; called once in each round, after the scores were computed.

        A LightGBM flag records whether the trees to drop were drawn already. It is uninitialized when training begins,
        so the first request for scores may or may not draw, which shifts all later draws. Setting any parameter
        restarts the draws, and by now the flag is set.
        """
        if self.dart and self._untouched is not None:
            self._untouched.reset_parameter({"verbosity": -1})
        self._untouched = None

    def before_the_first(self, env: Any) -> None:
        """Store the booster before the first round."""
        if env.iteration == env.begin_iteration:
            self._untouched = env.model

    before_the_first.before_iteration = True  # type: ignore[attr-defined]

    def __call__(self, env: Any) -> None:
        """Record a completed round."""
        self.booster, self.attempts = env.model, self.attempts + 1
        if env.model.current_iteration() > self.done:
            self.note({entry[0]: float(entry[2]) for entry in env.evaluation_result_list}, None)
        elif not self.sampled:  # LightGBM discards a round without a split
            self.stop(f"After {self.done} rounds no split improves the fit.")
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
    """Callback that writes progress to standard error: about once a second on a terminal, less often elsewhere."""

    def __init__(self, metric: str | Measure) -> None:
        self.metric = metric
        self.tell = ProgressLine(1.0 if sys.stderr.isatty() else FILE_INTERVAL, after=patience())

    def __call__(self, now: Round | Epoch) -> None:
        """Write a line, unless the last one is recent."""
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
