"""Evaluations of scores and runs, comparisons of systems with statistics, slices, agreement of judges."""

from toprank.lazy_imports import door

_HOMES, __getattr__ = door(__name__)
__all__ = [*_HOMES]
