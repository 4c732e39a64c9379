"""Reports: what was compared, as one HTML file to hand to a colleague."""

from toprank.lazy_imports import door

_HOMES, __getattr__ = door(__name__)
__all__ = [*_HOMES]
