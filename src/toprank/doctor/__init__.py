"""The data doctor: what is wrong with these data, in sentences, each with counts and a remedy."""

from toprank.lazy_imports import door

_HOMES, __getattr__ = door(__name__)
__all__ = [*_HOMES]
