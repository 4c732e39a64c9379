"""Estimators of other libraries as rankers: trained, compared and reported as ours are."""

from __future__ import annotations

from toprank.rankers.wrapping.ranker import WrappedRanker, wrap

__all__ = ["WrappedRanker", "wrap"]
