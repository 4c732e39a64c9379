"""Click logs: click models, propensities, learning and evaluation from clicks, online tests."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
