"""Models out: a ranker as a file for another system, checked to score as `predict` does."""

from toprank.lazy_imports import door

_HOMES, __getattr__ = door(__name__)
__all__ = [*_HOMES]
