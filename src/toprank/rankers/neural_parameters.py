"""What a `NeuralRanker` is asked for, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from toprank.data.checks import check_number, check_whole, is_whole
from toprank.data.dataset import RankingData
from toprank.errors import DataError, UnknownNameError
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.rankers.neural_inputs import TRANSFORMS
from toprank.scorers.networks import ACTIVATIONS, Architecture

__all__ = ["architecture_of", "check_form", "check_init_model", "check_parameters", "fitted_form"]

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


def check_parameters(ranker: Any) -> None:
    """Refuse parameters that mean nothing, before any work is done."""
    check_form(ranker)
    _check_callbacks(ranker.callbacks)
    parse(ranker.metric)
    Convention.of(ranker.convention)


def check_form(ranker: Any) -> None:
    """Refuse names and numbers that mean nothing."""
    for name, known in _CHOICES.items():
        value = getattr(ranker, name)
        if not isinstance(value, str) or value not in known:
            raise UnknownNameError(f"kind of {name}", str(value), known)
    if not isinstance(ranker.native, bool) and not (isinstance(ranker.native, str) and ranker.native == "auto"):
        raise DataError(f"native must be 'auto', True or False, not {ranker.native!r}.")
    _check_numbers(ranker)


def _check_numbers(ranker: Any) -> None:
    for name, least in _WHOLE.items():
        check_whole(name, getattr(ranker, name), least, below=2**31)
    if ranker.early_stopping is not None:
        check_whole("early_stopping, a number of epochs or None for never,", ranker.early_stopping, 1)
    check_number("learning_rate", ranker.learning_rate, above=0)
    if ranker.clip is not None:
        check_number("clip", ranker.clip, above=0)
    check_number("weight_decay", ranker.weight_decay, least=0)
    check_number("dropout", ranker.dropout, least=0, below=1)


def architecture_of(ranker: Any, n_inputs: int, n_outputs: int) -> Architecture:
    """The shape of the network that the parameters ask for."""
    hidden = ranker.hidden
    plain = isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str)
    if not plain or not all(is_whole(size, 1, 2**31) for size in hidden) or len(hidden) > _MOST_LAYERS:
        raise DataError(
            f"hidden must be a list of at most {_MOST_LAYERS} sizes of layers, such as (128, 64), not {hidden!r}."
        )
    if ranker.n_layers > _MOST_LAYERS:
        raise DataError(f"n_layers must be at most {_MOST_LAYERS}, not {ranker.n_layers}.")
    if ranker.width % ranker.n_heads:
        raise DataError(
            f"width={ranker.width} cannot be shared by n_heads={ranker.n_heads}; it must be a multiple of them."
        )
    return Architecture(
        network=ranker.network,
        n_inputs=n_inputs,
        n_outputs=n_outputs,
        hidden=tuple(int(size) for size in hidden),
        activation=ranker.activation,
        norm=ranker.norm,
        dropout=float(ranker.dropout),
        width=int(ranker.width),
        n_heads=int(ranker.n_heads),
        n_layers=int(ranker.n_layers),
    )


def fitted_form(ranker: Any) -> dict[str, Any]:
    """The parameters that decide the form, as a fitted ranker's network has it: `set_params` may have changed them."""
    shape = asdict(ranker.network_.shape)
    del shape["n_inputs"], shape["n_outputs"]
    outputs = "grades" if len(ranker.gains_) else "score"
    return {**shape, "outputs": outputs, "input_transform": ranker.inputs_.kind}


def _check_callbacks(callbacks: Any) -> None:
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise DataError("callbacks takes a list of functions, each of which is called with an Epoch.")
    for callback in callbacks:
        if not callable(callback):
            raise DataError(f"{callback!r} is no callback: it cannot be called with an Epoch.")


def check_init_model(ranker: Any, data: RankingData) -> None:
    """Refuse a model that training cannot go on from."""
    before = ranker.init_model
    if before is None:
        return
    if not isinstance(before, type(ranker)):
        raise DataError(f"init_model must be a fitted NeuralRanker, not a {type(before).__name__}.")
    if not hasattr(before, "network_"):
        raise DataError("init_model is not fitted. (scikit-learn's clone forgets what an estimator has learnt.)")
    before._check_features(data)
    form = fitted_form(before)
    for name in _FORM:
        mine, theirs = getattr(ranker, name), form[name]
        same = tuple(mine) == tuple(theirs) if name == "hidden" else mine == theirs
        if not same:
            raise DataError(f"init_model has {name}={theirs!r}, so it cannot go on with {mine!r}.")
