"""`Division`: the units held out in each fit; `cross_fit`: the loop that fits models and predicts out of fold.

A unit is a query with all of its documents. A division is validated on construction: no unit is used for training and
held out in the same round. Only `select_round` selects the data of a round, so a fit cannot see the data that it is
evaluated on. Held-out data given by the user have the same form, see `DividedData.given`.
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
    """One round of a division, as masks over the units.

    Attributes:
        train: units to train on.
        held_out: units to predict.
        valid: validation units; None if there are none.
    """

    train: BoolArray
    held_out: BoolArray
    valid: BoolArray | None = None


class Divisible(Protocol):
    """Data that can be divided by unit, such as `RankingData` or clicks bound to them."""

    @property
    def queries(self) -> Queries:
        """Grouping of the documents into units."""

    def select(self, which: npt.ArrayLike) -> Self:
        """Return the data of the units in a mask."""


@dataclass(frozen=True, eq=False)
class Division:
    """Rounds of training and held-out units.

    Attributes:
        rounds: one round for each fit.
        description: description of the division for reports.

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
                    f"Round {number} of the division trains on {int((apart > 1).sum()):,} held-out units; training, "
                    "validation and held-out units must not overlap."
                )

    @classmethod
    def folds(cls, fold: npt.ArrayLike, description: str = "", *, validation: bool = False) -> Division:
        """Hold out each fold once and train on the others.

        Args:
            fold: fold number of each unit, from 0; units with -1 are never used.
            description: description of the division for reports.
            validation: whether each round uses the next fold for validation.
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
        """Hold out the units in a mask and train on all others."""
        mask = np.asarray(held_out, dtype=bool)
        return cls((DivisionRound(~mask, mask),), description)

    @classmethod
    def expanding(cls, period: npt.ArrayLike, description: str = "", *, validation: bool = False) -> Division:
        """Hold out each period and train on all earlier ones (expanding window); periods are numbered from 0.

        With `validation`, the last period before the held-out one is used for validation instead of training.
        """
        number = np.asarray(period, dtype=np.int64)
        rounds = []
        for held_out in range(1 + validation, int(number.max()) + 1):
            before = number == held_out - 1 if validation else None
            rounds.append(DivisionRound(number < held_out - validation, number == held_out, before))
        return cls(tuple(rounds), description)

    @property
    def n_held_out(self) -> int:
        """Number of units that are held out in some round."""
        return int(np.any([held_out for _, held_out, _ in self.rounds], axis=0).sum())

    def on(self, data: Any) -> DividedData:
        """Bind the division to `Divisible` data; the data of a round are selected on each access."""
        return DividedData(_SelectedRounds(data, self.rounds), self.description, self)


class RoundData(NamedTuple):
    """Training, held-out and validation data (or None) of one round."""

    train: Any
    held_out: Any
    valid: Any = None


def select_round(data: Any, masks: DivisionRound) -> RoundData:
    """Select the data of a round; no other function separates training data from held-out data."""
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
        rounds: data of each round.
        description: description of the division for reports.
        division: the division; None if the user gave the held-out data.
    """

    rounds: Sequence[RoundData]
    description: str = ""
    division: Division | None = None

    @classmethod
    def given(cls, train: Any, held_out: Any, description: str = "") -> DividedData:
        """Train on one data set and hold out another one, both given by the user."""
        return cls((RoundData(train, held_out),), description)

    @property
    def is_folded(self) -> bool:
        """True if there are several rounds, so that no model is trained on all units."""
        return len(self.rounds) > 1

    @property
    def n_held_out(self) -> int | None:
        """Number of units that a single round holds out of the training data; None for given data or folds."""
        return None if self.division is None or self.is_folded else self.division.n_held_out

    def for_selection(self) -> DividedData:
        """Return rounds that use their held-out data for validation, too, for hyperparameter search.

        A fit may then stop early on the units that it is evaluated on, so metric values on them are optimistic. The
        data of all rounds are selected once.
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
        """Fit a model in each round and predict the held-out data; see `cross_fit`."""
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
    """Models of the rounds and their out-of-fold predictions.

    Attributes:
        models: model of each completed round.
        predictions: return value of `predict` for the held-out units of each completed round.
        division: the division; None if the user gave the held-out data.
        timed_out: whether a time limit ended the loop before its last round.
        interrupted: whether Ctrl-C ended a fit, which kept its best model, and the loop.
    """

    models: tuple[Model, ...]
    predictions: tuple[Any, ...]
    division: Division | None
    timed_out: bool = False
    interrupted: bool = False

    def out_of_fold(self, data: Divisible) -> FloatArray:
        """Return the predictions in the order of the documents of `data`; NaN for documents without a prediction.

        Predictions with several columns keep their columns.

        Raises:
            KeyboardInterrupt: Ctrl-C ended a fit, so that some predictions are from incomplete models.
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
    """Fit a model in each round of a division and predict its held-out units.

    Args:
        data: `Divisible` data of the units.
        division: rounds of training and held-out units.
        fit: called with the training data and the validation data (None if the round has none) of each round.
        predict: called with the model and the held-out data.
        threads: number of rounds that run in parallel. Default: 1.
        after_round: called with the predictions so far after each round but the last, if rounds run sequentially; an
            exception ends the loop.
        time_limited: whether to end the loop after the current round when a `TimeLimit` has expired. Default: run all
            rounds.

    If a model keeps its best state on Ctrl-C (its `was_interrupted` or `interrupted` is true), the loop ends after its
    round. Otherwise `KeyboardInterrupt` is raised, and the incomplete round is discarded.
    """
    divided = division.on(data)
    return divided.cross_fit(fit, predict, threads=threads, after_round=after_round, time_limited=time_limited)


def _was_interrupted(model: Any) -> bool:
    return bool(getattr(model, "was_interrupted", False) or getattr(model, "interrupted", False))
