"""One cell of an experiment: one system on one fold with one seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

__all__ = ["Cell", "Failure", "plain"]


@dataclass(frozen=True)
class Cell:
    """A finished cell: how the system was chosen and fitted. Its test scores: `Results.scores`.

    Attributes:
        dataset: Name of the dataset.
        fold: Name of the fold.
        system: Name of the system in this experiment.
        seed: The seed; None where nothing about the system is random, so that one cell serves all seeds.
        key: Hash of everything that the scores depend on; the name of the cell's files.
        fingerprints: Of the "train", "valid" and "test" data.
        options: The hyper-parameters that validation chose.
        metric: What they were chosen by, on the validation data; None where the ranker does not tell.
        convention: The rules of that metric.
        valid: The value reached there.
        seconds: Time for choosing, fitting and predicting.
        message: How the solver or the boosting ended, in words.
        warnings: What was warned of on the way, each sentence once.
        tried: One row per candidate: its hyper-parameters and "valid".
        history: Learning curves, for rankers that record them: name → value after each round.
        importances: Share of each feature, for rankers that tell.
        weights: Weight of each feature, with its sign, for linear rankers.
        meaning: What such a weight is, in words.
        versions: Of toprank and of the packages that computed the cell.
    """

    dataset: str
    fold: str
    system: str
    seed: int | None
    key: str
    fingerprints: Mapping[str, str]
    options: Mapping[str, Any]
    metric: str | None
    convention: str
    valid: float | None
    seconds: float
    message: str = ""
    warnings: tuple[str, ...] = ()
    tried: tuple[Mapping[str, Any], ...] = ()
    history: Mapping[str, list[float]] = field(default_factory=dict)
    importances: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    meaning: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        values: dict[str, Any] = plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """The cell that `to_dict` wrote down; what it does not know is passed over."""
        known = {one.name for one in fields(cls)}
        given = {name: value for name, value in values.items() if name in known}
        for name in ("warnings", "tried", "importances", "weights"):
            given[name] = tuple(given.get(name, ()))
        return cls(**given)


@dataclass(frozen=True)
class Failure:
    """A cell that could not be computed, and why, in a sentence."""

    dataset: str
    fold: str
    system: str
    seed: int | None
    error: str


def plain(value: Any) -> Any:
    """The value as JSON can hold it: arrays as lists, what is not finite as None, anything else by its text.

    >>> plain({"l2": np.float64(0.5), "valid": float("nan"), "weights": (1, 2)})
    {'l2': 0.5, 'valid': None, 'weights': [1, 2]}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else repr(value)
