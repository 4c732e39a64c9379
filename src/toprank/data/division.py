"""`Division`: which units are held out from which fit; `cross_fit`: the one loop that fits and predicts out of fold.

A unit is a query, and everything that belongs to it stays on one side. A division is checked when it is made: no unit
is both learned from and held out in the same round. `select_round` alone selects the data of a round, so a fit cannot
see what it is judged on. Held-out data that a user gives have the same form: `DividedData.given`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, each_block, out_of_time
from toprank.data.queries import Queries
from toprank.errors import DataError

BoolArray = npt.NDArray[np.bool_]
Model = TypeVar("Model")


class DivisionRound(NamedTuple):
    """One fit of a division, as masks over the units.

    Attributes:
        train: units to learn from.
        held_out: units to predict.
        valid: units to choose hyper-parameters on; None if none are set apart.
    """

    train: BoolArray
    held_out: BoolArray
    valid: BoolArray | None = None


class Divisible(Protocol):
    """Data of units: `RankingData` by query, clicks bound to them by query."""

    @property
    def queries(self) -> Queries:
        """The documents of each unit."""

    def select(self, which: npt.ArrayLike) -> Self:
        """Return the data of some units, by a mask."""


@dataclass(frozen=True, eq=False)
class Division:
    """Rounds of training and held-out units.

    Attributes:
        rounds: one for each fit.
        description: the division in words, as results report it.

    >>> division = Division.folds(np.array([0, 1, 0, 2]))
    >>> [round.held_out.tolist() for round in division.rounds][0]
    [True, False, True, False]
    """

    rounds: tuple[DivisionRound, ...]
    description: str = ""

    def __post_init__(self) -> None:
        if not self.rounds:
            raise DataError("A division needs at least one round of training and held-out units.")
        for number, (train, held_out, valid) in enumerate(self.rounds, 1):
            apart = np.zeros(len(train), dtype=np.int64)
            for side in (train, held_out, *(() if valid is None else (valid,))):
                apart += side
            if (apart > 1).any():
                raise DataError(
                    f"Round {number} of the division would learn from {int((apart > 1).sum()):,} units that it holds "
                    "out; training, validation and held-out units must not overlap."
                )

    @classmethod
    def folds(cls, fold: npt.ArrayLike, description: str = "", *, validation: bool = False) -> Division:
        """Hold out each fold once and learn from the others.

        Args:
            fold: number of the fold of each unit, from 0; a unit of -1 is never held out and never learned from.
            description: the division in words.
            validation: whether each round sets the next fold apart to choose hyper-parameters on.
        """
        number = np.asarray(fold, dtype=np.int64)
        n_folds = int(number.max(initial=-1)) + 1
        rounds = []
        for held_out in range(n_folds):
            after = number == (held_out + 1) % n_folds if validation else None
            train = (number >= 0) & (number != held_out)
            rounds.append(DivisionRound(train if after is None else train & ~after, number == held_out, after))
        return cls(tuple(rounds), description)

    @classmethod
    def holdout(cls, held_out: npt.ArrayLike, description: str = "") -> Division:
        """Hold out some units, by a mask, and learn from all others."""
        mask = np.asarray(held_out, dtype=bool)
        return cls((DivisionRound(~mask, mask),), description)

    @classmethod
    def expanding(cls, period: npt.ArrayLike, description: str = "", *, validation: bool = False) -> Division:
        """Learn from all periods before each one, and hold that one out; periods are numbered from 0 in time.

        With `validation` the last period before the held-out one is set apart to choose hyper-parameters on.
        """
        number = np.asarray(period, dtype=np.int64)
        rounds = []
        for held_out in range(1 + validation, int(number.max()) + 1):
            before = number == held_out - 1 if validation else None
            rounds.append(DivisionRound(number < held_out - validation, number == held_out, before))
        return cls(tuple(rounds), description)

    @property
    def n_held_out(self) -> int:
        """How many units are held out in some round."""
        return int(np.any([held_out for _, held_out, _ in self.rounds], axis=0).sum())

    def on(self, data: Any) -> DividedData:
        """Bind the division to `Divisible` data; the data of a round are selected each time they are asked for."""
        return DividedData(_SelectedRounds(data, self.rounds), self.description, self)


class RoundData(NamedTuple):
    """The data of one fit: to learn from, to predict, and to choose hyper-parameters on (None if none are given)."""

    train: Any
    held_out: Any
    valid: Any = None


def select_round(data: Any, masks: DivisionRound) -> RoundData:
    """Return the data of a round: the one place where training data are set apart from held-out data."""
    train, held_out, valid = masks
    return RoundData(data.select(train), data.select(held_out), None if valid is None else data.select(valid))


class _SelectedRounds(Sequence[RoundData]):
    def __init__(self, data: Any, rounds: Sequence[DivisionRound]) -> None:
        self._data, self._rounds = data, rounds

    def __len__(self) -> int:
        return len(self._rounds)

    def __getitem__(self, number: Any) -> Any:
        return select_round(self._data, self._rounds[number])


@dataclass(frozen=True, eq=False)
class DividedData:
    """A division bound to its data.

    Attributes:
        rounds: the data of each fit.
        description: the division in words, as results report it.
        division: the division; None if the held-out data were given by the user.
    """

    rounds: Sequence[RoundData]
    description: str = ""
    division: Division | None = None

    @classmethod
    def given(cls, train: Any, held_out: Any, description: str = "") -> DividedData:
        """Learn from one set of data and hold out another, which the user chose."""
        return cls((RoundData(train, held_out),), description)

    @property
    def is_folded(self) -> bool:
        """Whether there are several rounds, so that no single model has learned from all units."""
        return len(self.rounds) > 1

    @property
    def n_held_out(self) -> int | None:
        """How many units a single round holds out of the training data; None if they were given or there are folds."""
        return None if self.division is None or self.is_folded else self.division.n_held_out

    def for_selection(self) -> DividedData:
        """Return the rounds with their held-out data as validation data too, as a search needs them.

        A fit may then stop early on the units that it is judged on, so a value found on them is optimistic. The data
        of all rounds are selected once.
        """
        return replace(self, rounds=tuple(round._replace(valid=round.held_out) for round in self.rounds))

    def cross_fit(
        self,
        fit: Callable[[Any, Any], Model],
        predict: Callable[[Model, Any], Any],
        *,
        threads: int | None = 1,
        after_round: Callable[[Sequence[Any]], None] | None = None,
        time_limited: bool = False,
    ) -> CrossFit[Model]:
        """Fit a model in each round and predict what it holds out; see `cross_fit`."""
        finished: list[tuple[Model, Any]] = []

        def run(number: int) -> tuple[Model, Any]:
            train, held_out, valid = self.rounds[number]
            model = fit(train, valid)
            return model, predict(model, held_out)

        timed_out, numbers = False, range(len(self.rounds))
        if threads != 1:
            finished = each_block(run, numbers, threads)
        for number in numbers if threads == 1 else ():
            timed_out = bool(finished) and time_limited and out_of_time()
            if timed_out or (finished and _was_interrupted(finished[-1][0])):
                break
            if finished and after_round is not None:
                after_round([values for _, values in finished])
            finished.append(run(number))
        models, predictions = zip(*finished, strict=True)
        return CrossFit(models, predictions, self.division, timed_out, any(map(_was_interrupted, models)))


@dataclass(frozen=True, eq=False)
class CrossFit(Generic[Model]):
    """Models of the rounds, and their predictions for what each of them did not see.

    Attributes:
        models: one for each round that was finished.
        predictions: what `predict` returned for the held-out units of each of these rounds.
        division: the division; None if the held-out data were given by the user.
        timed_out: whether a time limit ended the loop before its last round.
        interrupted: whether Ctrl-C ended a fit, which kept the best so far, and the loop with it.
    """

    models: tuple[Model, ...]
    predictions: tuple[Any, ...]
    division: Division | None
    timed_out: bool = False
    interrupted: bool = False

    def out_of_fold(self, data: Divisible) -> FloatArray:
        """Return the predictions in the order of the documents of `data`; NaN for documents that no round predicted.

        Predictions of several columns stay columns.

        Raises:
            KeyboardInterrupt: Ctrl-C ended a fit, so that not all predictions are those of trained models.
        """
        if self.interrupted:
            raise KeyboardInterrupt
        assert self.division is not None
        tail = np.shape(self.predictions[0])[1:]
        whole = np.full((data.queries.n_documents, *tail), np.nan)
        for (_, held_out, _), values in zip(self.division.rounds, self.predictions, strict=False):
            whole[data.queries.broadcast(held_out)] = values
        return whole


def cross_fit(
    data: Any,
    division: Division,
    fit: Callable[[Any, Any], Model],
    predict: Callable[[Model, Any], Any],
    *,
    threads: int | None = 1,
    after_round: Callable[[Sequence[Any]], None] | None = None,
    time_limited: bool = False,
) -> CrossFit[Model]:
    """Fit a model in each round of a division, and predict the units that the round holds out.

    Args:
        data: `Divisible` data of the units.
        division: the rounds.
        fit: called with the training data and the validation data (None if the round has none) of each round.
        predict: called with the model and the held-out data.
        threads: rounds that run at the same time. Default: one after the other.
        after_round: called with the predictions so far after each round but the last, if rounds run one after the
            other; an exception that it raises ends the loop.
        time_limited: end the loop after the current round once a `TimeLimit` is over. Default: finish all rounds.

    Ctrl-C ends the loop after a round whose model keeps the best so far (its `was_interrupted` or `interrupted` is
    true); any other Ctrl-C leaves the loop as `KeyboardInterrupt`, and nothing is kept of the unfinished round.
    """
    divided = division.on(data)
    return divided.cross_fit(fit, predict, threads=threads, after_round=after_round, time_limited=time_limited)


def _was_interrupted(model: Any) -> bool:
    return bool(getattr(model, "was_interrupted", False) or getattr(model, "interrupted", False))
