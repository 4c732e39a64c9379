"""Evaluation of scores and runs, statistical comparison of systems, results by slice, and judge agreement."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
