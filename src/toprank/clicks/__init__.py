"""Labels from behavior: what users clicked, and what may be learned from it."""

from toprank.lazy_imports import door

_HOMES, __getattr__ = door(__name__)
__all__ = [*_HOMES]
