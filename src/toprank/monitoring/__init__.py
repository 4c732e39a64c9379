"""Does a ranker still meet what it was trained for? Drift of features and scores, and the DCG to expect."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
