"""Labels from behaviour: what users clicked, and what may be learnt from it."""

from toprank.lazy_imports import door

_HOMES, __getattr__ = door(__name__)
__all__ = [*_HOMES]
