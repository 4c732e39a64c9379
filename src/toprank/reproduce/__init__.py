"""Published tables: the paper's protocol on the real data, our numbers beside theirs, and which claims hold."""

from toprank.lazy_imports import door

_HOMES, __getattr__ = door(__name__)
__all__ = [*_HOMES]
