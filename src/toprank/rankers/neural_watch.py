"""Epochs, watched: the metric after each, the best of them, when to stop, and how long it will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["Epoch", "Progress", "Watch"]


class Epoch(NamedTuple):
    """What a callback sees after each epoch; one that returns True ends the training."""

    number: int
    """Epochs so far, those of `init_model` included."""
    last: int
    """The number of the last epoch, if nothing ends the training before."""
    loss: float
    """The mean loss of the epoch's batches, each before its step."""
    train: float | None
    """The metric on the training data, where it was asked for."""
    valid: float | None
    """The metric on the validation data, where there are any."""
    best: int
    """The best epoch on the validation data so far; without any, the last."""
    seconds: float
    """Time since training began."""
    seconds_left: float
    """Time until the last epoch, if they go on like this."""


class Watch:
    """Keeps the history and the best weights, and says when to stop.

    Args:
        epochs: how many to make.
        first: epochs made before (continued training).
        first_value: the validation metric after those: the value to beat.
        weights: the weights that training starts from.
        higher_is_better: the direction of the metric.
        patience: stop after so many epochs without a better validation metric, and keep the best; None: keep the last.
        callbacks: called with each `Epoch`.
    """

    def __init__(
        self,
        *,
        epochs: int,
        first: int = 0,
        first_value: float | None = None,
        weights: Any = None,
        higher_is_better: bool = True,
        patience: int | None = None,
        callbacks: Sequence[Callable[[Epoch], Any]] = (),
    ) -> None:
        self.epochs, self.first, self.best_value, self.patience = epochs, first, first_value, patience
        self.higher_is_better, self.callbacks = higher_is_better, callbacks
        self.best = self.done = first
        self.history: dict[str, list[float]] = {"epoch": [], "loss": []}
        self.stopped = f"All {epochs} epochs were made."
        self.over = self.unfinished = False
        self._last_weights, self._best_weights = None, weights if first_value is not None else None
        self._begin = time.perf_counter()

    def made(self, loss: float, metrics: dict[str, float], weights: Any) -> None:
        """Look at an epoch that was just made; `weights` are a copy."""
        number = self.done + 1
        row = {"epoch": number, "loss": loss, **metrics}
        history = {name: [*self.history.get(name, ()), value] for name, value in row.items()}
        # Nothing is called here, so that no interrupt comes between: an epoch that counts has its weights and its row.
        self._last_weights, self.history, self.done = weights, history, number
        valid = metrics.get("valid")
        self._compare(valid, weights)
        self._tell(loss, metrics.get("train"), valid)
        if valid is not None and self.patience is not None and self.done - self.best >= self.patience:
            self._stop(f"The validation metric did not improve for {self.patience} epochs.")

    def _compare(self, value: float | None, weights: Any) -> None:
        if value is None or value != value:  # NaN: no query could be judged
            return
        sign = 1.0 if self.higher_is_better else -1.0
        if self.best_value is None or sign * value > sign * self.best_value:
            self.best, self.best_value, self._best_weights = self.done, value, weights

    def _tell(self, loss: float, train: float | None, valid: float | None) -> None:
        seconds = time.perf_counter() - self._begin
        made = self.done - self.first
        left = seconds / made * (self.epochs - made)
        best = self.done if valid is None else self.best
        seen = Epoch(self.done, self.first + self.epochs, loss, train, valid, best, seconds, left)
        wishes = [callback(seen) for callback in self.callbacks]
        if any(wish is True for wish in wishes):
            self._stop(f"A callback ended the training after {self.done} epochs.")

    def _stop(self, reason: str) -> None:
        if not self.over:
            self.over, self.stopped = True, reason

    @property
    def has_something_to_keep(self) -> bool:
        """Whether an epoch was made, in this training."""
        return self.done > self.first

    @property
    def has_a_best(self) -> bool:
        """Whether the weights to keep were chosen on validation data."""
        return self.patience is not None and self._best_weights is not None

    def end_early(self, reason: str) -> None:
        """Note that the training did not come to its end."""
        self.over = self.unfinished = True
        self.stopped = reason

    def kept(self) -> tuple[Any, int, float | None]:
        """The weights to keep, their epoch and validation metric: the best where we may stop early, else the last."""
        if self.has_a_best:
            return self._best_weights, self.best, self.best_value
        valid = self.history.get("valid")
        return self._last_weights, self.done, valid[-1] if valid else None


class Progress:
    """A callback that tells on standard error where the training stands, about once a second."""

    def __init__(self, metric: str) -> None:
        self.metric, self.told = metric, -1.0

    def __call__(self, now: Epoch) -> None:
        """Tell, unless that was done a moment ago."""
        if now.seconds - self.told < 1.0 and now.number < now.last:
            return
        self.told = now.seconds
        parts = [f"epoch {now.number}/{now.last}", f"loss {now.loss:.4g}"]
        if now.train is not None:
            parts.append(f"train {self.metric} {now.train:.4f}")
        if now.valid is not None:
            parts.append(f"valid {self.metric} {now.valid:.4f} (best in epoch {now.best})")
        sys.stderr.write("  ".join([*parts, f"about {now.seconds_left:.0f} s left"]) + "\n")
