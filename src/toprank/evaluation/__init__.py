"""Evaluations of scores and runs, comparisons of systems with statistics, slices, agreement of judges."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
