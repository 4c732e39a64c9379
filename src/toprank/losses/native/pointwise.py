"""Losses of one document at a time: `Squared`, its query-shifted form, and the multinomial likelihood."""

from __future__ import annotations

import torch
from torch import Tensor

from toprank.errors import DataError
from toprank.losses.native.frame import Frame, Judge
from toprank.losses.native.gains import gains_of, has_gain
from toprank.losses.ordinal import Multinomial
from toprank.losses.pointwise import QuerySquared, Squared

__all__ = ["has_targets", "multinomial", "query_squared", "squared"]


def has_targets(loss: Squared | QuerySquared) -> bool:
    """The labels themselves, or any gain but a function of the user."""
    return loss.gain is None or has_gain(loss.gain)


def squared(loss: Squared, frame: Frame) -> Judge:
    """See `Squared`."""
    targets, factors = _targets(loss, frame), _factors(frame, loss.per_document)

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        residuals = scores - targets
        pulls = factors * residuals
        return torch.dot(pulls, residuals), 2 * pulls

    return judge


def query_squared(loss: QuerySquared, frame: Frame) -> Judge:
    """See `QuerySquared`."""
    targets, factors = _targets(loss, frame), _factors(frame, loss.per_document)
    shares = frame.weighted(frame.full(frame.n_documents, 1.0))
    totals = frame.sum(shares)
    shares = shares / frame.spread(torch.where(totals > 0, totals, 1.0))

    def centred(values: Tensor) -> Tensor:
        # Relative to the query's first document, so that large scores that lie close together keep their digits.
        near = values - frame.spread(values.index_select(0, frame.offsets[:-1]))
        return near - frame.spread(frame.sum(shares * near))

    targets = centred(targets)

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        residuals = centred(scores) - targets
        pulls = factors * residuals
        return torch.dot(pulls, residuals), 2 * pulls

    return judge


def multinomial(loss: Multinomial, frame: Frame) -> Judge:
    """See `Multinomial`. Scores are (n, K); a batch need not hold the highest grade, so K is what the scores have."""
    codes, factors = frame.labels.long()[:, None], _factors(frame, loss.per_document)

    def judge(scores: Tensor) -> tuple[Tensor, Tensor]:
        if scores.ndim != 2 or (loss.n_grades is not None and scores.shape[1] != loss.n_grades):
            raise DataError(
                f"Multinomial works in class space and needs scores with {loss.n_grades or 'as many'} columns"
                f"{'' if loss.n_grades else ' as there are grades'}, not of shape {tuple(scores.shape)}."
            )
        logs = scores.log_softmax(1)
        slopes = logs.exp().scatter_add_(1, codes, -torch.ones_like(factors)[:, None])
        return -torch.dot(factors, logs.gather(1, codes)[:, 0]), slopes * factors[:, None]

    return judge


def _targets(loss: Squared | QuerySquared, frame: Frame) -> Tensor:
    return frame.labels if loss.gain is None else gains_of(frame, loss.gain, loss.max_grade)


def _factors(frame: Frame, per_document: bool) -> Tensor:
    """What a document's term is multiplied by in the mean over queries."""
    scale = frame.scale / frame.sizes if per_document else frame.scale
    return frame.weighted(frame.spread(scale))
