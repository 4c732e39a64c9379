"""Rounds of boosting, watched: the metric after each, the best of them, when to stop, and how long it will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["Progress", "Round", "Watch"]


class Round(NamedTuple):
    """What a callback sees after each round; one that returns True ends the training."""

    number: int
    """Rounds in the model so far, those of `init_model` included."""
    last: int
    """The number of the last round, if nothing ends the training before."""
    train: float | None
    """The metric on the training data, where it is judged."""
    valid: float | None
    """The metric on the validation data, where there are any."""
    best: int
    """The best round on the validation data so far; without any, the last."""
    seconds: float
    """Time since training began."""
    seconds_left: float
    """Time until the last round, if they go on like this."""
    booster: Any
    """LightGBM's booster, to look at."""


class Watch:
    """A callback of LightGBM's that keeps the history, finds the best round and says when to stop.

    Args:
        first: rounds made before (continued training).
        first_value: the validation metric after those: the value to beat.
        rounds: how many to make.
        higher_is_better: the direction of the metric.
        patience: stop after so many rounds without a better validation metric, and keep the best; None: keep all.
        dart: whether trees are left out at random. DART changes the weights of old trees, so that the best model is
            not the beginning of a later one and its text must be kept.
        sampled: whether a round that finds no split may be followed by one that does.
        callbacks: called with each `Round`.
    """

    before_iteration = False
    order = 0

    def __init__(
        self,
        *,
        rounds: int,
        first: int = 0,
        first_value: float | None = None,
        higher_is_better: bool = True,
        patience: int | None = None,
        dart: bool = False,
        sampled: bool = False,
        callbacks: Sequence[Callable[[Round], Any]] = (),
    ) -> None:
        self.rounds, self.first, self.best_value, self.patience = rounds, first, first_value, patience
        self.higher_is_better, self.dart, self.sampled = higher_is_better, dart, sampled
        self.callbacks = callbacks
        self.best = self.done = first
        self.history: dict[str, list[float]] = {"round": []}
        self.booster: Any = None
        self.stopped = f"All {rounds} rounds were made."
        self.interrupted = False
        self._best_text: str | None = None
        self._untouched: Any = None
        self._begin = time.perf_counter()

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
        self.booster = env.model
        if env.model.current_iteration() == self.done:  # LightGBM takes a round without a split back
            if not self.sampled:
                self._stop(f"After {self.done} rounds no split was left that improves the fit.")
            return
        self.done += 1
        values = {one[0]: float(one[2]) for one in env.evaluation_result_list}
        self.history["round"].append(self.done)
        for name, value in values.items():
            self.history.setdefault(name, []).append(value)
        self._compare(values.get("valid"))
        self._tell(values.get("train"), values.get("valid"))
        if self.interrupted:
            self.interrupt()
            self._stop(self.stopped)
        if "valid" in values and self.patience is not None and self.done - self.best >= self.patience:
            self._stop(f"The validation metric did not improve for {self.patience} rounds.")

    def _compare(self, value: float | None) -> None:
        if value is None or value != value:  # NaN: no query could be judged
            return
        sign = 1.0 if self.higher_is_better else -1.0
        if self.best_value is None or sign * value > sign * self.best_value:
            self.best, self.best_value = self.done, value
            if self.dart and self.patience is not None:
                self._best_text = self.booster.model_to_string(num_iteration=-1)

    def _tell(self, train: float | None, valid: float | None) -> None:
        seconds = time.perf_counter() - self._begin
        made, last = self.done - self.first, self.first + self.rounds
        left = seconds / made * (self.rounds - made)
        best = self.done if valid is None else self.best
        seen = Round(self.done, last, train, valid, best, seconds, left, self.booster)
        wishes = [callback(seen) for callback in self.callbacks]
        if any(wish is True for wish in wishes):
            self._stop(f"A callback ended the training after {self.done} rounds.")

    def _stop(self, reason: str) -> None:
        from lightgbm.callback import EarlyStopException

        self.stopped = reason
        raise EarlyStopException(self.done - 1, [])

    def interrupt(self) -> None:
        """Note that the training was interrupted from the keyboard."""
        self.interrupted, self.stopped = True, f"Interrupted after {self.done} rounds."

    def kept(self) -> tuple[str, int, float | None]:
        """The model to keep, its rounds and its validation metric: the best round where we may stop early, else all."""
        if self.patience is None or self.best_value is None:
            valid = self.history.get("valid")
            return self.booster.model_to_string(num_iteration=self.done), self.done, valid[-1] if valid else None
        text = self._best_text or self.booster.model_to_string(num_iteration=self.best)
        return text, self.best, self.best_value


class Progress:
    """A callback that tells on standard error where the training stands, about once a second."""

    def __init__(self, metric: str) -> None:
        self.metric, self.told = metric, -1.0

    def __call__(self, now: Round) -> None:
        """Tell, unless that was done a moment ago."""
        if now.seconds - self.told < 1.0 and now.number < now.last:
            return
        self.told = now.seconds
        parts = [f"round {now.number}/{now.last}"]
        if now.train is not None:
            parts.append(f"train {self.metric} {now.train:.4f}")
        if now.valid is not None:
            parts.append(f"valid {self.metric} {now.valid:.4f} (best in round {now.best})")
        sys.stderr.write("  ".join([*parts, f"about {now.seconds_left:.0f} s left"]) + "\n")
