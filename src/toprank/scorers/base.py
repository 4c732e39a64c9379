"""What a scorer is: weights and a block of rows give scores, and the two linear maps of the chain rule."""

from __future__ import annotations

from typing import ClassVar, Protocol

from toprank.compute import FloatArray
from toprank.scorers.features import Features

__all__ = ["Scored", "ScoredByClass", "ScoredOnce", "Scorer"]


class Scored(Protocol):
    """Scores of a block of rows, and their derivative with respect to the weights."""

    holds_rows: ClassVar[bool]
    """Whether it holds a copy of the rows: those of all blocks together would be a copy of X."""

    @property
    def scores(self) -> FloatArray:
        """One score for each document (or a row of them, one for each grade)."""

    def back(self, d_scores: FloatArray) -> FloatArray:
        """Jᵀ · d_scores: a gradient in score space becomes a gradient of the weights."""

    def forth(self, d_weights: FloatArray) -> FloatArray:
        """J · d_weights: a change of the weights becomes a change of the scores."""


class ScoredOnce(Scored, Protocol):
    """One score for each document."""

    def jacobian(self) -> FloatArray:
        """J itself, (documents, weights)."""


class ScoredByClass(Scored, Protocol):
    """Several scores for each document, one for each grade or threshold, linear in the weights."""

    def curved(self, by_class: FloatArray) -> FloatArray:
        """Jᵀ H J, (weights, weights), from the documents' own curvatures H, (documents, columns, columns)."""


class Scorer(Protocol):
    """A family of scoring functions."""

    @property
    def n_weights(self) -> int:
        """Number of weights."""

    def forward(self, weights: FloatArray, features: Features, rows: slice) -> Scored:
        """Score a block of rows."""
