"""Validation of the parameters of a `NeuralRanker` before it is trained or restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.data.arguments import check_callbacks, is_whole
from toprank.errors import DataError, UnknownNameError, refuse_if
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse
from toprank.rankers.neural.inputs import TRANSFORMS
from toprank.scorers.networks import ACTIVATIONS, Architecture

if TYPE_CHECKING:
    from toprank.rankers.neural.ranker import NeuralRanker

_MAX_LAYERS = 64
_CHOICES: dict[str, tuple[str, ...]] = {
    "network": ("mlp", "attention"),
    "activation": tuple(ACTIVATIONS),
    "norm": ("none", "batch", "layer"),
    "outputs": ("score", "grades"),
    "input_transform": TRANSFORMS,
    "schedule": ("cosine", "constant"),
}
_FORM = ("network", "hidden", "activation", "norm", "width", "n_heads", "n_layers", "outputs", "input_transform")
"""Parameters that determine the weights and their inputs."""


def check_combination(ranker: NeuralRanker) -> None:
    """Refuse invalid parameters and combinations; `ranker` is the draft that is trained."""
    check_form(ranker)
    check_callbacks(ranker.callbacks, "an Epoch")
    parse(ranker.metric)
    Convention.from_name(ranker.convention)
    _check_init_model(ranker)


def check_form(ranker: NeuralRanker) -> None:
    """Refuse invalid names and numbers, also without training."""
    for name, known in _CHOICES.items():
        value = getattr(ranker, name)
        if not isinstance(value, str) or value not in known:
            raise UnknownNameError(f"kind of {name}", str(value), known)
    wanted = ranker.gpu_loss
    if not isinstance(wanted, bool) and not (isinstance(wanted, str) and wanted == "auto"):
        raise DataError(f"gpu_loss must be 'auto', True or False, not {wanted!r}.")
    ranker.check_parameters()
    _check_sizes(ranker)


def architecture(ranker: NeuralRanker, n_inputs: int, n_outputs: int) -> Architecture:
    """Return the architecture of the network that a ranker's parameters describe."""
    return Architecture(
        network=ranker.network,
        n_inputs=n_inputs,
        n_outputs=n_outputs,
        hidden=tuple(int(size) for size in ranker.hidden),
        activation=ranker.activation,
        norm=ranker.norm,
        dropout=float(ranker.dropout),
        width=int(ranker.width),
        n_heads=int(ranker.n_heads),
        n_layers=int(ranker.n_layers),
    )


def _check_sizes(ranker: NeuralRanker) -> None:
    """Refuse invalid layer sizes."""
    hidden: Any = ranker.hidden
    plain = isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str)
    refuse_if(
        not plain or not all(is_whole(size, 1, 2**31) for size in hidden) or len(hidden) > _MAX_LAYERS,
        f"hidden must be a list of at most {_MAX_LAYERS} layer sizes, such as (128, 64), not {hidden!r}.",
    )
    refuse_if(ranker.n_layers > _MAX_LAYERS, f"n_layers must be at most {_MAX_LAYERS}, not {ranker.n_layers}.")
    refuse_if(
        ranker.width % ranker.n_heads,
        f"width={ranker.width} must be a multiple of n_heads={ranker.n_heads}.",
    )


def _check_init_model(ranker: NeuralRanker) -> None:
    """Refuse to continue training a network of another architecture."""
    before = ranker.init_model
    if before is None:
        return
    for name in _FORM:
        mine, theirs = (getattr(network, name) for network in (ranker, before.as_fitted))
        if name == "hidden":
            mine, theirs = tuple(mine), tuple(theirs)
        refuse_if(mine != theirs, f"init_model has {name}={theirs!r}, so training cannot continue with {mine!r}.")
