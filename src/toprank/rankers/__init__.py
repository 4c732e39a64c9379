"""Rankers: estimators that combine a scorer, a loss and a solver."""

from toprank.lazy_imports import lazy_exports

KINDS, __getattr__ = lazy_exports(__name__)
"""Every ranker that a model file may contain, and its module."""
__all__ = ["KINDS", *KINDS]
