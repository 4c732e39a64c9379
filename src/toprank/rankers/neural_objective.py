"""What a network is trained for: its outputs become scores, and a loss judges them batch by batch.

The loss of a batch is (number of batches) · Σ_{q in batch} scale_q · loss_q: its mean over the batches of an epoch is
the mean over queries that every other ranker minimises, however the queries fall into batches.

PyTorch differentiates any loss of ours over a bridge (`bridged`): the loss says its value and its gradient in one pass
when it is asked for the value; the way back only hands the gradient on. Scores on another device are copied to the CPU,
and the gradient back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from toprank.compute import FloatArray, blocks_of, each_block
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.losses import Loss
from toprank.losses import make as make_loss
from toprank.losses.base import BoundLoss, Want
from toprank.rankers.heads import first_outputs, loss_and_gains
from toprank.rankers.neural_inputs import EpochPlan
from toprank.rankers.neural_parameters import NeuralParameters
from toprank.scorers.networks import expected_gain

__all__ = ["NotFinite", "Objective", "bridged"]

_BLOCK = 1 << 12  # documents that a thread takes at a time: for fewer, calling it costs more than it does


class NotFinite(DataError):  # noqa: N818 - what it says of a score
    """A score is infinite or no number."""


class _Bridge(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, bound: BoundLoss, first: int, last: int, threads: int | None) -> Tensor:
        values = np.ascontiguousarray(scores.detach().cpu().double().numpy())
        if not np.isfinite(values).all():
            raise NotFinite("A score is not finite; no loss can judge it.")
        whole = bound.cut(first, last)
        grad, losses = np.zeros_like(values), np.empty(whole.n_queries)

        def work(ends: tuple[int, int]) -> None:
            block = bound.cut(first + ends[0], first + ends[1])
            rows = slice(*whole.offsets[list(ends)])
            losses[slice(*ends)] = bound.judge(block, values[rows], grad[rows], Want())[0]

        each_block(work, blocks_of(whole.offsets, _BLOCK), threads)
        ctx.save_for_backward(torch.from_numpy(grad).to(scores.dtype).to(scores.device))
        return scores.new_tensor(float(np.sum(losses * whole.scale)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_value: Tensor) -> tuple[Tensor, None, None, None, None]:
        (grad,) = ctx.saved_tensors
        return grad * d_value, None, None, None, None


def bridged(
    bound: BoundLoss, first: int = 0, last: int | None = None, *, threads: int | None = None
) -> Callable[[Tensor], Tensor]:
    """The part of a bound loss's value that the queries first … last − 1 contribute, as a function of their scores.

    Args:
        bound: a loss on data.
        first: the first query.
        last: the query after the last; None: all.
        threads: number of threads; results do not depend on it.

    >>> from toprank import Queries, losses
    >>> value = bridged(losses.ListNet().on([1, 0], Queries([0, 2])))
    >>> scores = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    >>> value(scores).backward()
    >>> [round(slope, 4) for slope in scores.grad.tolist()]
    [-0.2311, 0.2311]
    """
    end = len(bound.queries) if last is None else last

    def value(scores: Tensor) -> Tensor:
        expected = int(bound.queries.offsets[end] - bound.queries.offsets[first])
        if len(scores) != expected:
            raise DataError(f"There are {len(scores)} scores for {expected} documents; there must be one for each.")
        result: Tensor = _Bridge.apply(scores, bound, first, end, threads)  # type: ignore[no-untyped-call]
        return result

    return value


BatchLoss = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True)
class Objective:
    """A loss on training data, as the training loop asks for it.

    Args:
        loss: the loss.
        data: the training data.
        gains: G of each grade where the network has an output for each; else empty.
        start: what the biases of the outputs start from; None: from chance.
        native: the loss in PyTorch's own operations; None: the bridge to our kernels.
        device: where the scores are.
        threads: number of threads of the bridge.
    """

    loss: Loss
    data: RankingData
    gains: FloatArray
    start: FloatArray | None
    native: Any
    device: torch.device
    threads: int | None

    @classmethod
    def of(cls, asked: NeuralParameters, data: RankingData, device: torch.device, threads: int | None) -> Objective:
        """Look at the loss, the outputs and the labels; refuse what does not go together."""
        before = asked.init_model
        known = None if before is None else before.gains_
        loss, gains = loss_and_gains(
            make_loss(asked.loss), asked.outputs, asked.gain, data.labels, known, "a network does"
        )
        weights = {"document_weights": data.document_weights, "query_weights": data.query_weights}
        bound = loss.on(data.labels, data.queries, **weights)

        def value(constant: float) -> float:
            return bound.at(np.full(data.n_documents, constant)).value

        grades, counts = np.unique(data.labels, return_counts=True)
        start = first_outputs(loss, len(gains), grades, counts.astype(np.float64), value)
        return cls(loss, data, gains, start, _native(asked.native, loss, device), device, threads)

    @property
    def n_outputs(self) -> int:
        """Outputs of the network."""
        return max(len(self.gains), 1)

    @property
    def blind_to_shifts(self) -> bool:
        """Whether a constant added to the output changes nothing."""
        return self.loss.traits.shift_invariant and not len(self.gains)

    def judged(self, outputs: Tensor) -> Tensor:
        """What the loss judges: scores, or the outputs of all grades where it is a likelihood."""
        if not len(self.gains):
            return outputs[:, 0]
        if self.loss.traits.space == "class":
            return outputs
        return expected_gain(outputs, torch.as_tensor(self.gains).to(outputs))

    def drawn_anew(self, seed: int, number: int) -> Objective:
        """The same objective for an epoch: a loss that draws when it is bound does so by both seeds and the epoch.

        Args:
            seed: the ranker's.
            number: the epoch's.
        """
        if not is_dataclass(self.loss) or all(field.name != "seed" for field in fields(self.loss)):
            return self
        given: Any = self.loss
        chance = np.random.SeedSequence([given.seed, seed, number]).generate_state(1)
        loss = replace(given, seed=int(chance[0]))
        return replace(self, loss=loss, native=None if self.native is None else _native(True, loss, self.device))

    def epoch(self, plan: EpochPlan) -> BatchLoss:
        """The loss of each batch of an epoch, as a function of the batch's number and the network's outputs."""
        data, count = self.data, len(plan.batches)
        labels = data.labels[plan.rows]
        documents = None if data.document_weights is None else data.document_weights[plan.rows]
        queries = None if data.query_weights is None else data.query_weights[plan.order]
        if self.native is not None:
            return self._native_epoch(plan, labels, documents, queries)
        bound = self.loss.on(labels, plan.queries, document_weights=documents, query_weights=queries)

        def value(number: int, outputs: Tensor) -> Tensor:
            part = bridged(bound, *plan.batches[number], threads=self.threads)
            return count * part(self.judged(outputs))

        return value

    def _native_epoch(
        self, plan: EpochPlan, labels: FloatArray, documents: FloatArray | None, queries: FloatArray | None
    ) -> BatchLoss:
        count, top = len(plan.batches), float(self.data.labels.max())
        offsets = torch.from_numpy(plan.queries.offsets.copy())  # on the CPU: nobody waits for the device to say them
        on_device = [
            None if values is None else torch.from_numpy(values.astype(np.float32)).to(self.device)
            for values in (labels, documents, queries)
        ]

        @cache
        def bound(number: int) -> tuple[float, Any]:
            """The batch's share of the mean over queries, and its loss."""
            first, last = plan.batches[number]
            share = (last - first) / len(plan.order)
            if queries is not None:
                share = float(queries[first:last].sum() / queries.sum())
            if share == 0.0:
                return 0.0, torch.sum
            rows = plan.documents((first, last))
            labels, documents, weights = (
                None if whole is None else whole[part]
                for whole, part in zip(on_device, (rows, rows, slice(first, last)), strict=True)
            )
            starts = offsets[first : last + 1] - offsets[first]
            return share, self.native.bind(labels, starts, documents, weights, max_grade=top)

        def value(number: int, outputs: Tensor) -> Tensor:
            share, judge = bound(number)
            result: Tensor = (count * share) * judge(self.judged(outputs))
            return result

        return value


def _native(wanted: bool | Literal["auto"], loss: Loss, device: torch.device) -> Any:
    """PyTorch's operations on NVIDIA's GPUs; ``auto`` leaves them to those.

    On a CPU our kernels are the faster. Apple's GPUs (MPS) have neither float64, which running sums need, nor sums over
    segments.
    """
    if wanted is False or (wanted == "auto" and device.type in ("cpu", "mps")):
        return None
    if device.type == "mps":
        raise DataError(
            "native=True needs float64 and sums over segments, which PyTorch does not have on Apple's GPUs; use "
            "native='auto', which there takes the bridge."
        )
    from toprank.losses.native import native

    found = native(loss)
    if found is None and wanted is True:
        raise DataError(
            f"{loss!r} has no version in PyTorch's own operations; use native='auto', which then takes the bridge."
        )
    return found
