"""Pointwise losses: `Squared`, its query-shifted form, and the multinomial likelihood."""

from __future__ import annotations

import torch
from torch import Tensor

from toprank.errors import DataError
from toprank.losses.ordinal import Multinomial
from toprank.losses.pointwise import QuerySquared, Squared
from toprank.losses.triton.frame import BatchPart, Columns, Frame, PreparedLoss
from toprank.losses.triton.gains import gains_of, has_gain


def has_targets(loss: Squared | QuerySquared) -> bool:
    """Return whether the gain is not a user-defined function."""
    return loss.gain is None or has_gain(loss.gain)


def squared(loss: Squared, frame: Frame) -> PreparedLoss:
    """Prepare `Squared`."""

    def evaluate(scores: Tensor, part: BatchPart, columns: Columns) -> tuple[Tensor, Tensor]:
        targets, factors = columns
        residuals = scores - targets
        pulls = part.broadcast(part.scale) * factors * residuals
        return torch.dot(pulls, residuals), 2 * pulls

    return PreparedLoss((_targets(loss, frame), _factors(frame, loss.per_document)), evaluate)


def query_squared(loss: QuerySquared, frame: Frame) -> PreparedLoss:
    """Prepare `QuerySquared`."""
    shares = frame.over_sum(frame.weighted(torch.ones_like(frame.labels)))

    def centered(values: Tensor, part: BatchPart, shares: Tensor) -> Tensor:
        # Subtract the score of the first document, which preserves digits of large, similar scores.
        firsts = part.offsets[:-1].clamp_max(part.n_documents - 1)
        near = values - part.broadcast(values.index_select(0, firsts))
        return near - part.broadcast(part.sum(shares * near))

    def evaluate(scores: Tensor, part: BatchPart, columns: Columns) -> tuple[Tensor, Tensor]:
        targets, factors, shares = columns
        residuals = centered(scores, part, shares) - targets
        pulls = part.broadcast(part.scale) * factors * residuals
        return torch.dot(pulls, residuals), 2 * pulls

    targets = centered(_targets(loss, frame), frame.part, shares)
    return PreparedLoss((targets, _factors(frame, loss.per_document), shares), evaluate)


def multinomial(loss: Multinomial, frame: Frame) -> PreparedLoss:
    """Prepare `Multinomial`. Scores are (n, K); K comes from the scores, because a batch need not contain the
    highest grade.
    """

    def evaluate(scores: Tensor, part: BatchPart, columns: Columns) -> tuple[Tensor, Tensor]:
        codes, factors = columns
        if scores.ndim != 2 or (loss.n_grades is not None and scores.shape[1] != loss.n_grades):
            raise DataError(
                f"Multinomial needs scores with {loss.n_grades or 'as many'} columns"
                f"{'' if loss.n_grades else ' as there are grades'}, not of shape {tuple(scores.shape)}."
            )
        factors = part.broadcast(part.scale) * factors
        logs = scores.log_softmax(1)
        slopes = logs.exp().scatter_add_(1, codes[:, None], -torch.ones_like(factors)[:, None])
        return -torch.dot(factors, logs.gather(1, codes[:, None])[:, 0]), slopes * factors[:, None]

    return PreparedLoss((frame.labels.long(), _factors(frame, loss.per_document)), evaluate)


def _targets(loss: Squared | QuerySquared, frame: Frame) -> Tensor:
    return frame.labels if loss.gain is None else gains_of(frame, loss.gain, loss.max_grade)


def _factors(frame: Frame, per_document: bool) -> Tensor:
    """Return the factor of each document's term, without the scale of its query."""
    ones = torch.ones_like(frame.labels)
    return frame.weighted(ones / frame.part.broadcast(frame.part.sum(ones)) if per_document else ones)
