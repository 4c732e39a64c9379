"""Systems against each other: means, differences, intervals, p-values with their correction, and verdicts in words."""

from toprank.importing import door

_HOMES, __getattr__ = door(__name__)
__all__ = [*_HOMES]
