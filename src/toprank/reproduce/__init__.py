"""Reproduction of published tables: reruns of paper protocols, compared with the published figures and claims."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
