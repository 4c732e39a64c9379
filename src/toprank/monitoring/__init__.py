"""Drift monitoring: drift of features and scores, and expected DCG without labels."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
