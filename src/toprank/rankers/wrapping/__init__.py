"""Estimators of other libraries as rankers, to train, compare and report like our own."""

from __future__ import annotations

from toprank.rankers.wrapping.ranker import WrappedRanker, wrap

__all__ = ["WrappedRanker", "wrap"]
