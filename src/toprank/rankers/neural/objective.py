"""Training objective of a network: outputs become scores, and a loss evaluates them batch by batch.

The loss of a batch is (number of batches) · Σ_{q in batch} scale_q · loss_q. Its mean over the batches of an epoch is
the mean over queries that every other ranker minimizes, for any division of the queries into batches.

`torch_loss` wraps any loss for PyTorch: the forward pass computes value and gradient together, and the backward pass
returns the stored gradient. Scores on another device are copied to the CPU, and the gradient is copied back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from toprank.compute import FloatArray, blocks_of, each_block
from toprank.data.dataset import RankingData
from toprank.errors import DataError, refuse_if
from toprank.losses import Loss
from toprank.losses import make as make_loss
from toprank.losses.base import BoundLoss, Judgments, Requested
from toprank.losses.composed import reseeded
from toprank.rankers.neural.inputs import EpochPlan
from toprank.rankers.outputs import first_outputs, loss_and_gains, weighted_grades
from toprank.scorers.networks import expected_gain

if TYPE_CHECKING:
    from toprank.rankers.neural.ranker import NeuralRanker

_DOCUMENTS_PER_TASK = 1 << 12  # for fewer, the overhead of a thread exceeds its work


class NotFinite(DataError):  # noqa: N818 - describes a score
    """A score is infinite or NaN."""


class _LossFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, bound: BoundLoss, first: int, last: int, threads: int | None) -> Tensor:
        values = np.ascontiguousarray(scores.detach().cpu().double().numpy())
        if not np.isfinite(values).all():
            raise NotFinite("A score is not finite, so the loss is undefined.")
        whole = bound.slice(first, last)
        grad, losses = np.zeros_like(values), np.empty(whole.n_queries)

        def work(ends: tuple[int, int]) -> None:
            block = bound.slice(first + ends[0], first + ends[1])
            rows = slice(*whole.offsets[list(ends)])
            losses[slice(*ends)] = bound.evaluate_block(block, values[rows], grad[rows], Requested())[0]

        each_block(work, blocks_of(whole.offsets, _DOCUMENTS_PER_TASK), threads)
        ctx.save_for_backward(torch.from_numpy(grad).to(scores.dtype).to(scores.device))
        return scores.new_tensor(float(np.sum(losses * whole.scale)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_value: Tensor) -> tuple[Tensor, None, None, None, None]:
        (grad,) = ctx.saved_tensors
        return grad * d_value, None, None, None, None


def torch_loss(
    bound: BoundLoss, first: int = 0, last: int | None = None, *, threads: int | None = None
) -> Callable[[Tensor], Tensor]:
    """Return the value of a bound loss for queries first … last − 1 as a differentiable function of their scores.

    >>> from toprank import Queries, losses
    >>> value = torch_loss(losses.ListNet().on([1, 0], Queries([0, 2])))
    >>> scores = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    >>> value(scores).backward()
    >>> [round(slope, 4) for slope in scores.grad.tolist()]
    [-0.2311, 0.2311]
    """
    end = len(bound.queries) if last is None else last

    def value(scores: Tensor) -> Tensor:
        expected = int(bound.queries.offsets[end] - bound.queries.offsets[first])
        if len(scores) != expected:
            raise DataError(
                f"There must be one score per document, but there are {len(scores)} scores for {expected} documents."
            )
        result: Tensor = _LossFunction.apply(scores, bound, first, end, threads)  # type: ignore[no-untyped-call]
        return result

    return value


BatchLoss = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True)
class NetworkObjective:
    """A loss on training data, as used by the training loop."""

    loss: Loss
    data: RankingData
    gains: FloatArray
    """G of each grade if the network has an output for each; else empty."""
    start: FloatArray | None
    """Initial biases of the outputs; None for random ones."""
    gpu_loss: Any
    """The loss as GPU kernels; None for the CPU implementation."""
    device: torch.device
    threads: int | None

    @classmethod
    def from_ranker(
        cls, ranker: NeuralRanker, data: RankingData, device: torch.device, threads: int | None
    ) -> NetworkObjective:
        """Build the objective from loss, outputs and labels; refuse invalid combinations."""
        before = ranker.init_model
        gains_before = None if before is None else before.gains_
        loss, gains = loss_and_gains(
            make_loss(ranker.loss), ranker.outputs, ranker.gain, data.labels, gains_before, "a network does"
        )
        bound = loss.bound_to(Judgments.from_data(data))

        def value(constant: float) -> float:
            return bound.at(np.full(data.n_documents, constant)).value

        start = first_outputs(loss, len(gains), *weighted_grades(data), value)
        return cls(loss, data, gains, start, _gpu_loss(ranker.gpu_loss, loss, device), device, threads)

    @property
    def n_outputs(self) -> int:
        """Number of outputs of the network."""
        return max(len(self.gains), 1)

    @property
    def blind_to_shifts(self) -> bool:
        """True if adding a constant to the output has no effect."""
        return self.loss.traits.shift_invariant and not len(self.gains)

    def judged(self, outputs: Tensor) -> Tensor:
        """Return the input of the loss: scores, or for likelihoods the outputs of all grades."""
        if not len(self.gains):
            return outputs[:, 0]
        if self.loss.traits.space == "class":
            return outputs
        return expected_gain(outputs, torch.as_tensor(self.gains).to(outputs))

    def resampled(self, seed: int, number: int) -> NetworkObjective:
        """Return the objective for an epoch; the seeds and the epoch number determine the draws of stochastic
        losses.
        """
        loss = reseeded(self.loss, (seed, number))
        if loss is self.loss:
            return self
        return replace(self, loss=loss, gpu_loss=None if self.gpu_loss is None else _gpu_loss(True, loss, self.device))

    def epoch(self, plan: EpochPlan) -> BatchLoss:
        """Return the loss of a batch in an epoch as a function of the batch number and the network's outputs."""
        if self.gpu_loss is not None:
            return self._gpu_epoch(plan)
        data, count = self.data, len(plan.batches)
        labels = data.labels[plan.rows]
        documents = None if data.document_weights is None else data.document_weights[plan.rows]
        queries = None if data.query_weights is None else data.query_weights[plan.order]
        teacher = None if data.teacher is None else data.teacher[plan.rows]
        ids = data.qids[plan.order]
        judgments = Judgments(labels, plan.queries, documents, queries, teacher=teacher, query_ids=ids)
        bound = self.loss.bound_to(judgments)

        def value(number: int, outputs: Tensor) -> Tensor:
            part = torch_loss(bound.resampled(number), *plan.batches[number], threads=self.threads)
            return count * part(self.judged(outputs))

        return value

    def _gpu_epoch(self, plan: EpochPlan) -> BatchLoss:
        from toprank.losses.triton import BatchPart

        prepared, longest = self.prepared, int(self.data.queries.sizes.max())
        rows, order = torch.from_numpy(plan.rows).to(self.device), torch.from_numpy(plan.order).to(self.device)
        offsets = torch.from_numpy(plan.queries.offsets.copy()).to(self.device)
        scale = self.query_scale.index_select(0, order)
        scale = scale * (len(plan.batches) / scale.sum())

        def value(number: int, outputs: Tensor) -> Tensor:
            first, last = plan.batches[number]
            documents = plan.documents((first, last))
            count = documents.stop - documents.start
            part = BatchPart(offsets[first : last + 1] - offsets[first], scale[first:last], count, longest)
            result: Tensor = prepared.value(self.judged(outputs), part, prepared.take(rows[documents]))
            return result

        return value

    @cached_property
    def prepared(self) -> Any:
        """The GPU loss on the labels of all data, on the device."""
        from toprank.losses.triton import Frame

        offsets = torch.from_numpy(self.data.queries.offsets.copy())
        labels, weights = self._on_device(self.data.labels), self._on_device(self.data.document_weights)
        return self.gpu_loss(Frame(labels, offsets, weights))

    @cached_property
    def query_scale(self) -> Tensor:
        """The weight of each query in the mean, (queries,), on the device."""
        weights, count = self._on_device(self.data.query_weights), len(self.data.queries)
        return torch.full((count,), 1.0 / count, device=self.device) if weights is None else weights / weights.sum()

    def _on_device(self, values: FloatArray | None) -> Any:
        return None if values is None else torch.from_numpy(values.astype(np.float32)).to(self.device)


def _gpu_loss(wanted: bool | Literal["auto"], loss: Loss, device: torch.device) -> Any:
    """Return the GPU kernels of the loss, if they and Triton are available; ``auto`` uses them only on NVIDIA GPUs."""
    if wanted is False or (wanted == "auto" and device.type != "cuda"):
        return None
    from toprank.losses.triton import available, gpu_loss

    kernels = gpu_loss(loss)
    if wanted is True and kernels is None:
        raise DataError(f"{loss!r} has no GPU implementation; use gpu_loss='auto', which falls back to the CPU.")
    if not available(device):
        refuse_if(
            wanted is True,
            f"gpu_loss=True needs an NVIDIA GPU and Triton, but the device is '{device}'; use gpu_loss='auto', "
            "which falls back to the CPU.",
        )
        return None
    return kernels
