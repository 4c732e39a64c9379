"""Plackett–Luce likelihoods: `ListMLE`, `PListMLE` and `CostSensitiveListMLE` with every treatment of ties.

Documents stand in the reverse of the ideal order, worst grade first, so that risk sets are prefixes. With T the running
maximum and L the running log Σ e^s, a group of tied documents at begin … end − 1 has, relative to its T,

    below = e^{L(begin − 1) − T},   all = e^{L(end − 1) − T},   Z = c·all + (1 − c)·below

for its terms c = 1/d, 2/d … 1 (Efron), or c = 1 for each (Breslow, and groups of one). The gradient of document k is

    e^{s_k}·Σ_{terms of better groups} w̄/(Z e^T) + e^{s_k − T}·Σ_{own group} c·w̄/Z − w_k

whose first sum is a running log-sum from the best group downwards. Running sums are in float64 whatever the scores are
in: a float32 logarithm of a sum of exponentials near 1e8 could not tell one document from two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PlackettLuce, PListMLE
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.grids import Grid, collected, grids_of
from toprank.metrics.gains import Discount

__all__ = ["likelihood"]


def likelihood(loss: ListMLE | PListMLE | CostSensitiveListMLE, frame: Frame) -> Judge:
    """See `toprank.losses.listmle`."""
    draws = None
    if loss.ties == "random":  # the reference's own
        draws = frame.tensor(np.random.default_rng(loss.seed).random(frame.n_documents), torch.float64)
    layouts = [_layout(loss, frame, grid, draws) for grid in grids_of(frame, pairs=False)]

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        values, parts = torch.zeros((), dtype=torch.float64, device=frame.device), []
        for layout in layouts:
            value, grad = layout.judge(scores)
            values = values + value
            parts.append((layout.targets, grad.to(frame.dtype)))
        return values.to(frame.dtype), collected(frame, parts)

    return judge


@dataclass(frozen=True)
class _Layout:
    """What the labels say about one grid; (B, M), worst grade first, float64. Padded places weigh nothing."""

    documents: Tensor
    targets: Tensor
    begin: Tensor
    end: Tensor
    """Where the document's group begins and ends within its row."""
    share: Tensor
    """c."""
    weights: Tensor
    """w, times the scale of the query."""
    means: Tensor
    """w̄: the mean of the weights of the group."""

    def judge(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        s = scores.index_select(0, self.documents.view(-1)).view(self.documents.shape).double()
        last = self.end - 1
        top = s.cummax(1).values.gather(1, last)
        sums = _from_nothing(s.logcumsumexp(1))
        everyone, below = (sums.gather(1, self.end) - top).exp(), (sums.gather(1, self.begin) - top).exp()
        risk = torch.lerp(below, everyone, self.share)
        behind = top - s
        value = torch.sum(self.means * risk.log() + self.weights * behind)
        terms = self.means / risk
        better = _from_nothing((terms.log() - top).flip(1).logcumsumexp(1)).flip(1).gather(1, self.end)
        own = _group_sums(self.share * terms, self.begin, self.end)
        return value, (s + better).exp() + (-behind).exp() * own - self.weights


def _layout(loss: PlackettLuce, frame: Frame, grid: Grid, draws: Tensor | None) -> _Layout:
    documents, labels = _worst_first(frame, grid, draws)
    place = torch.arange(grid.width, device=frame.device).expand(labels.shape)
    begin, end = torch.searchsorted(labels, labels), torch.searchsorted(labels, labels, right=True)
    weights = _term_weights(loss, frame, grid, labels, place, (end - begin).double())
    if loss.ties in ("efron", "breslow"):
        weights = _group_sums(weights, begin, end) / (end - begin)
    taking_part = grid.valid & (labels[:, :1] != labels.gather(1, grid.sizes - 1))
    if not loss.lowest:
        taking_part = taking_part & (labels != labels[:, :1])
    weights = weights * taking_part * frame.scale.index_select(0, grid.queries)[:, None]
    if frame.document_weights is not None:
        weights = weights * frame.document_weights.index_select(0, documents.view(-1)).view(documents.shape)
    if loss.ties in ("random", "file"):
        begin, end = place, place + 1
    size = end - begin
    share = (place - begin + 1) / size.double() if loss.ties == "efron" else torch.ones_like(weights)
    means = _group_sums(weights, begin, end) / size if loss.ties in ("efron", "breslow") else weights
    return _Layout(documents, grid.targets(documents), begin, end, share, weights, means)


def _worst_first(frame: Frame, grid: Grid, draws: Tensor | None) -> tuple[Tensor, Tensor]:
    """Documents and labels (infinite in padded places) in the reverse of the reference's stable ideal order."""
    documents = grid.documents
    labels = grid.read(frame.labels).masked_fill(~grid.valid, torch.inf)
    if draws is not None:
        drawn = grid.read(draws).argsort(1)
        documents, labels = documents.gather(1, drawn), labels.gather(1, drawn)
    labels, order = labels.sort(dim=1, descending=True, stable=True)
    return documents.gather(1, order).flip(1), labels.flip(1).contiguous()


def _term_weights(
    loss: PlackettLuce, frame: Frame, grid: Grid, labels: Tensor, place: Tensor, group_sizes: Tensor
) -> Tensor:
    """The weight of each document's term before document weights; see `PlackettLuce.term_weights`."""
    if isinstance(loss, CostSensitiveListMLE):
        return torch.pow(float(loss.pcf), labels.double().masked_fill(~grid.valid, 0.0)) / group_sizes
    if not isinstance(loss, PListMLE):
        return torch.ones(labels.shape, dtype=torch.float64, device=frame.device)
    position = (grid.sizes - place).clamp_min(1)  # 1 for the best
    if loss.discount != "published":
        table = frame.tensor(Discount.of(loss.discount).weights(grid.width), torch.float64)
        return table.index_select(0, position.view(-1) - 1).view(position.shape)
    sizes = grid.sizes.double()
    least = torch.exp2(1.0 - sizes)
    return (torch.exp2(1.0 - position.double()) - least) / torch.where(sizes > 1, 1.0 - least, 1.0)


def _from_nothing(logs: Tensor) -> Tensor:
    """Running log-sums with that of no document in front."""
    return torch.nn.functional.pad(logs, (1, 0), value=-torch.inf)


def _group_sums(values: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """The sum over the group of each document, by running sums: float64 keeps what their difference needs."""
    sums = torch.nn.functional.pad(values.cumsum(1), (1, 0))
    return sums.gather(1, end) - sums.gather(1, begin)
