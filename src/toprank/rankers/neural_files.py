"""Networks from the arrays of a model file. The parameters say which arrays there must be; nothing else is believed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from toprank.errors import DataError
from toprank.rankers.neural_parameters import NeuralParameters
from toprank.rankers.neural_scoring import prediction_network
from toprank.scorers.networks import build

if TYPE_CHECKING:
    from toprank.rankers.neural import NeuralRanker

__all__ = ["check_inputs", "restored_network"]


def restored_network(ranker: NeuralRanker, arrays: Mapping[str, npt.NDArray[Any]], known: Set[str]) -> nn.Module:
    """The network of a ranker's parameters with the weights of a file; refused where a weight does not fit.

    `known` are arrays of the file that are no weights.
    """
    parameters = NeuralParameters.of_form(ranker)
    n_inputs, n_outputs = len(ranker.inputs_.centre), max(len(ranker.gains_), 1)
    shape = parameters.architecture(n_inputs, n_outputs)
    with torch.device("meta"):  # a network of any size that a file may announce, without its memory
        network = build(shape)
    wanted_weights = network.state_dict()
    if set(arrays) - known - {name.replace(".", "_") for name in wanted_weights}:
        raise DataError("there are arrays that do not belong to the network")
    weights = {}
    for name, wanted in wanted_weights.items():
        found = arrays.get(name.replace(".", "_"))
        if found is None or found.shape != tuple(wanted.shape):
            raise DataError(f"the weights {name} are missing or do not fit the network")
        if found.dtype.kind not in "fiu" or not np.isfinite(found).all():
            raise DataError(f"the weights {name} are not finite numbers")
        weights[name] = torch.from_numpy(np.array(found, order="C")).to(wanted.dtype)
    network.load_state_dict(weights, assign=True)
    return prediction_network(network, torch.device("cpu"))


def check_inputs(ranker: NeuralRanker) -> None:
    """Refuse a transform that does not fit the number of features."""
    inputs, d = ranker.inputs_, ranker.n_features_in_
    if inputs.centre.shape != (d,) or inputs.spread.shape != (d,) or inputs.knots.shape[1:] != (d,):
        raise DataError("the transform does not fit the number of features")
    if any(not np.isfinite(part).all() for part in (inputs.centre, inputs.spread, inputs.knots)):
        raise DataError("the transform does not hold finite numbers")
    if not (inputs.spread > 0).all() or (inputs.kind == "quantile") != (len(inputs.knots) > 0):
        raise DataError("the transform is not what the parameters say")
    if (np.diff(inputs.knots, axis=0) < 0).any():
        raise DataError("the quantiles of the transform do not rise")
    if (ranker.outputs == "grades") != (len(ranker.gains_) > 0):
        raise DataError("the gains do not fit the outputs")
