"""Rows through a network, with bounded memory."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toprank.compute import FloatArray, IntArray
from toprank.data.queries import Queries
from toprank.rankers.neural_batches import plan_prediction
from toprank.rankers.neural_inputs import Inputs
from toprank.scorers.expected_gain import grade_probabilities
from toprank.scorers.networks import Layout, SetAttention

__all__ = ["Rows", "outputs_of", "prediction_network", "scores_of"]

_CHUNK = 1 << 13  # documents that go through the network at a time
_SHARE = 0.5  # of a GPU's free memory that the features may take


class Rows:
    """Features as the network sees them: prepared once, or batch by batch where they are sparse or lie on a disk.

    Args:
        X: features, as they come.
        inputs: what is done to them.
        device: where the rows are wanted.
        threads: number of threads.
        keep: prepare all of them now, where X lies in memory.
    """

    def __init__(
        self, X: Any, inputs: Inputs, device: torch.device, threads: int | None = 1, *, keep: bool = True
    ) -> None:
        self.X, self.inputs, self.device, self.threads = X, inputs, device, threads
        self.whole: Tensor | None = None
        if keep and isinstance(X, np.ndarray) and not isinstance(X, np.memmap):
            self.whole = torch.from_numpy(inputs.rows(X, threads))
            if _fits(self.whole, device):
                self.whole = self.whole.to(device)

    def take(self, rows: slice | IntArray) -> Tensor:
        """Some of the rows, in single precision."""
        if self.whole is None:
            return torch.from_numpy(self.inputs.rows(self.X[rows], self.threads)).to(self.device)
        if isinstance(rows, slice):
            return self.whole[rows].to(self.device)
        index = torch.from_numpy(rows).to(self.whole.device)
        return self.whole.index_select(0, index).to(self.device)


def _fits(whole: Tensor, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return whole.nbytes < _SHARE * free


def prediction_network(network: nn.Module, device: torch.device) -> nn.Module:
    """A copy for prediction: in double precision on a CPU, so that batches leave no trace in scores; else in single."""
    copy = deepcopy(network).to(device, torch.float64 if device.type == "cpu" else torch.float32)
    return copy.eval().requires_grad_(False)


def outputs_of(network: nn.Module, rows: Rows, queries: Queries) -> FloatArray:
    """(documents, outputs) of a `prediction_network`; attention sees the documents of each query together."""
    parameter = next(network.parameters())
    found: FloatArray | None = None
    plan = plan_prediction(queries, _CHUNK) if isinstance(network, SetAttention) else None
    n = queries.n_documents
    parts: list[Any] = list(plan.batches) if plan else [slice(a, min(a + _CHUNK, n)) for a in range(0, n, _CHUNK)]
    with torch.inference_mode():
        for part in parts:
            where = plan.rows[plan.documents(part)] if plan else part
            layout = Layout(plan.queries.sizes[slice(*part)], rows.device) if plan else None
            outputs = network(rows.take(where).to(parameter.dtype), layout).cpu().numpy()
            if found is None:
                found = np.empty((n, outputs.shape[1]))
            found[where] = outputs
    assert found is not None
    return found


def scores_of(outputs: FloatArray, gains: FloatArray) -> FloatArray:
    """The scores that rank the documents: the output itself, or the expected gain of the grades."""
    if not len(gains):
        return outputs[:, 0]
    expected: FloatArray = grade_probabilities(outputs) @ gains
    return expected
