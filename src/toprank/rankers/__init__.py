"""Rankers: estimators that join a scorer, a loss and a solver."""

from toprank.lazy_imports import door

KINDS, __getattr__ = door(__name__)
"""Every ranker that a model file may hold, and its home."""
__all__ = ["KINDS", *KINDS]
