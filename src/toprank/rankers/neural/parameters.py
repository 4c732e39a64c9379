"""What a `NeuralRanker` is asked for: checked once, and frozen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from toprank.data.checks import check_callbacks, check_number, check_whole, is_whole
from toprank.errors import DataError, UnknownNameError
from toprank.losses import Loss
from toprank.metrics.conventions import Convention
from toprank.metrics.measure import Measure
from toprank.metrics.parsing import parse
from toprank.rankers.neural.inputs import TRANSFORMS, Transform
from toprank.rankers.watching import Epoch
from toprank.scorers.networks import ACTIVATIONS, Architecture

if TYPE_CHECKING:
    from toprank.rankers.neural.ranker import NeuralRanker

__all__ = ["NeuralParameters"]

_MOST_LAYERS = 64
_CHOICES: dict[str, tuple[str, ...]] = {
    "network": ("mlp", "attention"),
    "activation": tuple(ACTIVATIONS),
    "norm": ("none", "batch", "layer"),
    "outputs": ("score", "grades"),
    "input_transform": TRANSFORMS,
    "schedule": ("cosine", "constant"),
}
_WHOLE = {"n_heads": 1, "n_layers": 1, "width": 1, "epochs": 1, "batch_documents": 1, "seed": 0}
_FORM = ("network", "hidden", "activation", "norm", "width", "n_heads", "n_layers", "outputs", "input_transform")
"""Parameters that decide which weights there are, and what they are fed."""


@dataclass(frozen=True)
class NeuralParameters:
    """The parameters of a `NeuralRanker`, by the same names; see there."""

    loss: Loss | str
    network: Literal["mlp", "attention"]
    hidden: tuple[int, ...]
    activation: str
    norm: Literal["none", "batch", "layer"]
    dropout: float
    width: int
    n_heads: int
    n_layers: int
    outputs: Literal["score", "grades"]
    gain: str | Sequence[float]
    input_transform: Transform
    epochs: int
    batch_documents: int
    learning_rate: float
    schedule: Literal["cosine", "constant"]
    weight_decay: float
    clip: float | None
    metric: str | Measure
    convention: str
    early_stopping: int | None
    train_metric: bool
    native: bool | Literal["auto"]
    device: str
    init_model: NeuralRanker | None
    callbacks: Sequence[Callable[[Epoch], Any]]
    seed: int
    threads: int | None
    verbose: bool

    @classmethod
    def of(cls, ranker: NeuralRanker) -> NeuralParameters:
        """Look at what a ranker is asked for; refuse what means nothing, or does not go together."""
        parameters = cls.of_form(ranker)
        check_callbacks(ranker.callbacks, "an Epoch")
        parse(ranker.metric)
        Convention.of(ranker.convention)
        _check_init_model(ranker)
        return parameters

    @classmethod
    def of_form(cls, ranker: NeuralRanker) -> NeuralParameters:
        """The same where nothing is trained: refuse names and numbers that mean nothing."""
        given = cls(**{field.name: getattr(ranker, field.name) for field in fields(cls)})
        for name, known in _CHOICES.items():
            value = getattr(given, name)
            if not isinstance(value, str) or value not in known:
                raise UnknownNameError(f"kind of {name}", str(value), known)
        if not isinstance(given.native, bool) and not (isinstance(given.native, str) and given.native == "auto"):
            raise DataError(f"native must be 'auto', True or False, not {given.native!r}.")
        _check_numbers(given)
        width, n_heads, n_layers = (int(getattr(given, name)) for name in ("width", "n_heads", "n_layers"))
        plain = replace(given, dropout=float(given.dropout), width=width, n_heads=n_heads, n_layers=n_layers)
        return replace(plain, hidden=_sizes(given))

    def architecture(self, n_inputs: int, n_outputs: int) -> Architecture:
        """The shape of the network that the parameters ask for."""
        own = {field.name: getattr(self, field.name) for field in fields(Architecture) if hasattr(self, field.name)}
        return Architecture(n_inputs=n_inputs, n_outputs=n_outputs, **own)


def _check_numbers(given: NeuralParameters) -> None:
    for name, least in _WHOLE.items():
        check_whole(name, getattr(given, name), least, below=2**31)
    if given.early_stopping is not None:
        check_whole("early_stopping, a number of epochs or None for never,", given.early_stopping, 1)
    check_number("learning_rate", given.learning_rate, above=0)
    if given.clip is not None:
        check_number("clip", given.clip, above=0)
    check_number("weight_decay", given.weight_decay, least=0)
    check_number("dropout", given.dropout, least=0, below=1)


def _sizes(given: NeuralParameters) -> tuple[int, ...]:
    """The hidden layers as plain numbers; sizes that make no network are refused."""
    hidden: Any = given.hidden
    plain = isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str)
    if not plain or not all(is_whole(size, 1, 2**31) for size in hidden) or len(hidden) > _MOST_LAYERS:
        raise DataError(
            f"hidden must be a list of at most {_MOST_LAYERS} sizes of layers, such as (128, 64), not {hidden!r}."
        )
    if given.n_layers > _MOST_LAYERS:
        raise DataError(f"n_layers must be at most {_MOST_LAYERS}, not {given.n_layers}.")
    if given.width % given.n_heads:
        raise DataError(
            f"width={given.width} cannot be shared by n_heads={given.n_heads}; it must be a multiple of them."
        )
    return tuple(int(size) for size in hidden)


def _check_init_model(ranker: NeuralRanker) -> None:
    """Refuse a model that training cannot go on from."""
    before = ranker.init_model
    if before is None:
        return
    if not isinstance(before, type(ranker)):
        raise DataError(f"init_model must be a fitted NeuralRanker, not a {type(before).__name__}.")
    if not hasattr(before, "network_"):
        raise DataError("init_model is not fitted. (scikit-learn's clone forgets what an estimator has learnt.)")
    for name in _FORM:
        mine, theirs = (getattr(one, name) for one in (ranker, before.as_fitted))
        if name == "hidden":
            mine, theirs = tuple(mine), tuple(theirs)
        if mine != theirs:
            raise DataError(f"init_model has {name}={theirs!r}, so it cannot go on with {mine!r}.")
