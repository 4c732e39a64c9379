"""Click logs, click models, propensities, training and evaluation on clicks, and online tests."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
