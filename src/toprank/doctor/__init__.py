"""The data doctor: what is wrong with these data, in sentences, each with counts and a remedy."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
