"""Published tables: the paper's protocol on the real data, our numbers beside theirs, and which claims hold."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
