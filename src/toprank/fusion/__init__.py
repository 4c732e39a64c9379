"""Runs of several systems become one."""

from toprank.lazy_imports import door

_HOMES, __getattr__ = door(__name__)
__all__ = [*_HOMES]
