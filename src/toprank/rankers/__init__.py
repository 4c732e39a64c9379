"""Rankers: estimators that join a scorer, a loss and a solver."""

from toprank.lazy_imports import lazy_exports

KINDS, __getattr__ = lazy_exports(__name__)
"""Every ranker that a model file may hold, and its home."""
__all__ = ["KINDS", *KINDS]
