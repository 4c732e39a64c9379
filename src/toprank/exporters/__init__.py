"""Models out: a ranker as a file for another system, checked to score as `predict` does."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
